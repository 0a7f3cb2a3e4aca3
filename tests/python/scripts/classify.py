# SPDX-License-Identifier: Apache-2.0
# As ONNX Runtime's first tutorial: one image, one label.
import sys

import numpy as np
import onnxruntime as rt

sess = rt.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
input_name = sess.get_inputs()[0].name
label_name = sess.get_outputs()[0].name
shape = [d if isinstance(d, int) else 2 for d in sess.get_inputs()[0].shape]
x = np.random.default_rng(0).random(shape).astype(np.float32)
pred = sess.run([label_name], {input_name: x})[0]
print(sess.get_inputs()[0].type, sess.get_inputs()[0].shape, pred.argmax(1))
np.savez(sys.argv[2], pred=pred)
