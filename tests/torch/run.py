# SPDX-License-Identifier: Apache-2.0
"""torch.compile(module, backend="cytoc") and cytoc.export, in a Python with the real PyTorch.

In:  --build DIR; build/torch-venv, made from requirements.txt beside this file where it is missing (unless CYTO_NO_INSTALL is set), or
     the Python that CYTO_TORCH_PYTHON names.
Out: the closing line; everything is skipped where PyTorch cannot be had.
"""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import lib
import torch_venv


def main():
    args = lib.arguments(__doc__)
    if not lib.cases_wanted(args, [os.path.join(HERE, 'cases.py')]):
        return lib.none_wanted()
    why = 'the package loads release builds' if args.variant != 'release' else None
    if not why:
        python, why = torch_venv.prepare(args, ('torch', 'onnxscript', 'torchvision', 'setuptools'))
    if why:
        print('skipped: no PyTorch: %s\n0 passed, 0 failed, 1 skipped' % why)
        return
    # Entry points, as an installation has them.
    egg = os.path.join(args.build, 'torch-egg')
    os.makedirs(egg, exist_ok=True)
    subprocess.run([python, 'setup.py', '-q', 'egg_info', '--egg-base', egg], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    env = dict(os.environ, CYTOC_LIB_DIR=args.build, PYTHONPATH=os.pathsep.join((os.path.join(lib.ROOT, 'python'), egg)), PYTHONWARNINGS='ignore',
               CYTOC_CACHE_DIR=os.path.join(args.build, 'torch-cache'))
    sys.exit(subprocess.run([python, os.path.join(HERE, 'cases.py'), *args.names], env=env).returncode)


if __name__ == '__main__':
    main()
