# SPDX-License-Identifier: Apache-2.0
# OrtValues, and the bytes of a model.
import sys

import numpy as np
import onnxruntime as ort

with open(sys.argv[1], "rb") as f:
    session = ort.InferenceSession(f.read(), providers=["CPUExecutionProvider"])
port = session.get_inputs()[0]
x = np.random.default_rng(7).random([d if isinstance(d, int) else 2 for d in port.shape]).astype(np.float32)
value = ort.OrtValue.ortvalue_from_numpy(x)
print(value.shape(), value.data_type(), value.is_tensor(), value.device_name())
results = session.run_with_ort_values(None, {port.name: value})
np.savez(sys.argv[2], *[r.numpy() for r in results])
