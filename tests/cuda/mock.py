"""How the Python suites compile and run CUDA models: by the mocks of NVIDIA's libraries, or on a device. The mock of cuDNN
computes convolutions only where a suite asks for it: our own kernels are what is tested.

A library loaded under the mock driver compiles its kernels by the machine's C compiler; what was compiled once is kept in
build/tests/cuda/mock/cache, by its text.
"""
import os


def folder(args):
    return os.path.join(args.build, 'tests', 'cuda', 'mock')


def options(args):
    """What cytoc is given."""
    return ['--target=cuda'] if args.device else ['--target=sm_80', '--cudnn=off']


def environment(args):
    """Leads cytoc to the mock of NVRTC and models to the mock of the driver."""
    env = dict(os.environ)
    if not args.device:
        env['CUDA_HOME'] = folder(args)
        env['LD_LIBRARY_PATH'] = folder(args)
        env['CY_MOCK_CACHE'] = env['XDG_CACHE_HOME'] = os.path.join(folder(args), 'cache')
        env['CYTO_CUDNN'] = os.path.join(folder(args), 'cudnn')
        os.makedirs(env['CY_MOCK_CACHE'], exist_ok=True)
    return env
