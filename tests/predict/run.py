# SPDX-License-Identifier: Apache-2.0
"""Tiling, formats and `cytoc predict`, in a Python with the real PyTorch, MONAI and the libraries of the formats.

In:  --build DIR; build/torch-venv with requirements.txt of this folder (tests/torch_venv.py).
Out: the closing line; everything is skipped where the packages cannot be had.
"""
import glob
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import lib
import torch_venv

MODULES = ('torch', 'onnx', 'monai', 'tifffile', 'zarr', 'nibabel', 'imageio', 'PIL', 'soundfile', 'av', 'safetensors', 'tqdm')


def main():
    args = lib.arguments(__doc__)
    if not lib.cases_wanted(args, sorted(glob.glob(os.path.join(HERE, 'test_*.py'))), qualified=True):
        return lib.none_wanted()
    why = 'the package loads release builds' if args.variant != 'release' else None
    if not why:
        python, why = torch_venv.prepare(args, MODULES, [os.path.join(HERE, 'requirements.txt')])
    if why:
        print('skipped: no MONAI, or no libraries of formats: %s\n0 passed, 0 failed, 1 skipped' % why)
        return
    env = dict(os.environ, CYTOC_LIB_DIR=args.build, PYTHONPATH=os.path.join(lib.ROOT, 'python'), PYTHONWARNINGS='ignore',
               CYTOC_CACHE_DIR=os.path.join(args.build, 'predict-cache'))
    sys.exit(subprocess.run([python, os.path.join(HERE, 'cases.py'), '--build', args.build, *args.names], env=env).returncode)


if __name__ == '__main__':
    main()
