# SPDX-License-Identifier: Apache-2.0
# A run in the background, and errors as exceptions.
import sys
import threading

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
port = session.get_inputs()[0]
x = np.random.default_rng(9).random([d if isinstance(d, int) else 2 for d in port.shape]).astype(np.float32)
done, found = threading.Event(), {}


def callback(results, user_data, error):
    found.update(results=results, error=error, user_data=user_data)
    done.set()


session.run_async(None, {port.name: x}, callback, "mine")
assert done.wait(30) and not found["error"] and found["user_data"] == "mine", found
try:
    session.run(None, {port.name: x.astype(np.float64)})
    raise SystemExit("a wrong type was taken")
except Exception as e:
    print(type(e).__name__)
np.savez(sys.argv[2], *found["results"])
