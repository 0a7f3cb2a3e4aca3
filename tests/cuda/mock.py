"""How the Python suites compile and run CUDA models: by the mocks of NVIDIA's libraries, or on a device. The mock of cuDNN
computes only where a suite asks for it: our own kernels are what is tested.

A library loaded under the mock driver compiles its kernels by the machine's C compiler; what was compiled once is kept in
build/tests/cuda/mock/cache, by its text.
"""
import os


def folder(args):
    return os.path.join(args.build, 'tests', 'cuda', 'mock')


def options(args, arch='sm_80'):
    """What cytoc is given."""
    return ['--target=cuda'] if args.device else ['--target=' + arch, '--cudnn=off']


def environment(args, arch='sm_80'):
    """Leads cytoc to the mock of NVRTC and models to the mock of the driver, whose device is of the architecture."""
    env = dict(os.environ)
    if not args.device:
        env['CY_MOCK_CAPABILITY'] = arch[3:].rstrip('a')
        env['CUDA_HOME'] = folder(args)
        env['LD_LIBRARY_PATH'] = folder(args)
        env['CY_MOCK_CACHE'] = env['XDG_CACHE_HOME'] = os.path.join(folder(args), 'cache')
        env['CYTO_CUDNN'] = os.path.join(folder(args), 'cudnn')
        os.makedirs(env['CY_MOCK_CACHE'], exist_ok=True)
    return env
