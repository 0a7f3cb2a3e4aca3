# SPDX-License-Identifier: Apache-2.0
"""volume.c for Python: what train.py trains on, and volumes.py writes to files."""
import ctypes
import os
import subprocess

import numpy as np


def maker(folder):
    """volume_make() of volume.c, compiled into folder: (size, seed) to what is seen, and where cells are."""
    path = os.path.join(folder, 'volume.so')
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'volume.c')
    subprocess.run(['cc', '-O2', '-shared', '-fPIC', '-o', path, source, '-lm'], check=True)
    library = ctypes.CDLL(path)

    def make(size, seed):
        seen, cell = np.empty(size, np.float32), np.empty(size, np.uint8)
        library.volume_make(*size, seed, seen.ctypes.data_as(ctypes.c_void_p), cell.ctypes.data_as(ctypes.c_void_p))
        return seen, cell
    return make
