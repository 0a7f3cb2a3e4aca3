# SPDX-License-Identifier: Apache-2.0
"""How the Python suites compile and run CUDA models: by the mocks of NVIDIA's libraries, or on a device. The mock of cuDNN
computes only where a suite asks for it: our own kernels are what is tested.

A library loaded under the mock driver compiles its kernels by the machine's C compiler; what was compiled once is kept in
build/tests/cuda/mock/cache, by its text. With --nvrtc kernels run as NVRTC compiles them:
the mock hands its PTX on.
"""
import glob
import os
import sys


def folder(args):
    return os.path.join(args.build, 'tests', 'cuda', 'mock')


TARGET = dict(default='cuda', help='what cytoc compiles for with --device: the architecture alone spares the others')


def options(args, arch='sm_80'):
    """What cytoc is given."""
    return ['--target=' + (args.target if args.device else arch), '--cudnn=off', '--cublaslt=off']


def environment(args, arch='sm_80', nvrtc=False):
    """Leads cytoc to the mock of NVRTC and models to the mock of the driver, whose device is of the architecture."""
    env = dict(os.environ)
    if not args.device:
        env['CY_MOCK_CAPABILITY'] = arch[3:].rstrip('a')
        env['CUDA_HOME'] = folder(args)
        env['LD_LIBRARY_PATH'] = folder(args)
        env['CY_MOCK_CACHE'] = env['XDG_CACHE_HOME'] = os.path.join(folder(args), 'cache')
        env['CYTO_CUDNN'] = os.path.join(folder(args), 'cudnn')
        env['CYTO_CUBLASLT'] = os.path.join(folder(args), 'cublas')
        os.makedirs(env['CY_MOCK_CACHE'], exist_ok=True)
        if nvrtc:
            env['CY_MOCK_NVRTC'] = nvrtc_folder() or sys.exit('there is no NVRTC 13 in %s' % sys.prefix)
    return env


def compiling(env):
    """The same for cytoc: a real NVRTC looks for the driver, too, and fails by one that is a mock."""
    return {**env, 'LD_LIBRARY_PATH': ''}


def nvrtc_folder():
    """Where the active Python environment has NVRTC 13; None: nowhere."""
    found = glob.glob(os.path.join(sys.prefix, 'lib', 'python3*', 'site-packages', 'nvidia', 'cu13', 'lib', 'libnvrtc.so.13'))
    return os.path.dirname(found[0]) if found else None
