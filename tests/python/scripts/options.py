# SPDX-License-Identifier: Apache-2.0
# Session options, all outputs, several batches.
import sys

import numpy as np
import onnxruntime

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
options.inter_op_num_threads = 1
options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
session = onnxruntime.InferenceSession(sys.argv[1], sess_options=options, providers=onnxruntime.get_available_providers())
feed = {i.name: np.random.default_rng(k).random([d if isinstance(d, int) else 3 for d in i.shape]).astype(np.float32)
        for k, i in enumerate(session.get_inputs())}
outputs = session.run(None, feed)
print([o.name for o in session.get_outputs()], session.get_modelmeta().graph_name)
np.savez(sys.argv[2], *outputs)
