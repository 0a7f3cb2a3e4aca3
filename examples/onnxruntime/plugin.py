# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime with cytoc as its execution provider: what changes in a program that uses ONNX Runtime."""
import os
import sys

import numpy as np
import onnxruntime as ort

import cytoc

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join(HERE, '..', 'digits', 'digits.onnx')

ort.register_execution_provider_library('cytoc', cytoc.ort_plugin())
devices = [d for d in ort.get_ep_devices() if d.ep_name == 'cytoc']

options = ort.SessionOptions()
options.add_provider_for_devices(devices, {'cache_dir': sys.argv[1]} if len(sys.argv) > 1 else {})
session = ort.InferenceSession(MODEL, options)

records = np.fromfile(os.path.join(HERE, '..', 'digits', 'digits.bin'), np.uint8).reshape(-1, 65)  # a label and 8x8 pixels
images = records[:, 1:].reshape(-1, 1, 8, 8).astype(np.float32) / 16
found = session.run(None, {'image': images})[0]
plain = ort.InferenceSession(MODEL, providers=['CPUExecutionProvider']).run(None, {'image': images})[0]

print('providers:', ', '.join(session.get_providers()))
print('right:     %.1f %% of %d digits' % (100 * np.mean(found.argmax(1) == records[:, 0]), len(records)))
print('largest difference from ONNX Runtime alone: %.1e' % np.abs(found - plain).max())
assert 'cytoc' in session.get_providers() and np.abs(found - plain).max() < 1e-5
