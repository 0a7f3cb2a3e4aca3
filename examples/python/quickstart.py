# SPDX-License-Identifier: Apache-2.0
"""Compiles a model, runs it, saves it as a library and opens that again.

    pip install ../.. && python quickstart.py [MODEL.onnx]
"""
import os
import sys
import tempfile

import numpy as np

import cytoc

here = os.path.dirname(os.path.abspath(__file__))
path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "..", "digits", "digits.onnx")
model = cytoc.compile(path)
print(model)

# Sizes that the model leaves open are 2 here.
rng = np.random.default_rng(0)
inputs = {port.name: rng.random([d if isinstance(d, int) else 2 for d in port.shape]).astype(port.dtype) for port in model.inputs}
outputs = model.run(None, inputs)
for port, value in zip(model.outputs, outputs):
    print("%s: %s %s" % (port.name, value.dtype, value.shape))

with tempfile.TemporaryDirectory() as folder:
    model.save(os.path.join(folder, "model.so"))
    again = cytoc.load(os.path.join(folder, "model.so"), threads=1)
    same = all(np.allclose(a, b) for a, b in zip(outputs, again.run(None, inputs)))
print("saved and loaded: %s" % ("equal" if same else "different"))
sys.exit(not same)
