# SPDX-License-Identifier: Apache-2.0
"""Asks a server of the open inference protocol, MLServer or Triton, for digits: client.py [HOST:PORT]."""
import os
import sys

import numpy as np
import tritonclient.http as http

HERE = os.path.dirname(os.path.abspath(__file__))
records = np.fromfile(os.path.join(HERE, '..', 'digits', 'digits.bin'), np.uint8).reshape(-1, 65)[:32]  # a label and 8x8 pixels
images = records[:, 1:].reshape(-1, 1, 8, 8).astype(np.float32) / 16

client = http.InferenceServerClient(sys.argv[1] if len(sys.argv) > 1 else '127.0.0.1:8080')
about = client.get_model_metadata('digits')
output = about['outputs'][0]['name']
right = 0
for image, label in zip(images, records[:, 0]):
    given = http.InferInput(about['inputs'][0]['name'], (1, 1, 8, 8), 'FP32')
    # Triton takes and gives bytes, which is faster; MLServer numbers only.
    given.set_data_from_numpy(image[None], binary_data=False)
    result = client.infer('digits', [given], outputs=[http.InferRequestedOutput(output, binary_data=False)])
    right += int(result.as_numpy(output).argmax() == label)
client.close()
print('right: %d of %d' % (right, len(images)))
assert right > 0.9 * len(images)
