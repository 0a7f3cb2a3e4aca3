# SPDX-License-Identifier: Apache-2.0
"""cytoc.ray and `cytoc predict --ray`, with the real Ray: on this machine, and on three nodes in network namespaces.

In:  --build DIR; build/ray-venv, which is made with requirements.txt of this folder.
Out: the closing line; everything is skipped where the packages cannot be had.
"""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import lib


def python_of(args):
    """(path, None), or (path, why there is no Ray)"""
    folder = os.path.join(lib.ROOT, 'build', 'ray-venv')
    python, log = os.path.join(folder, 'bin', 'python'), os.path.join(args.build, 'ray-venv.log')

    def has_ray():
        return os.path.exists(python) and not subprocess.run([python, '-c', 'import ray.data, onnx'], stdout=subprocess.DEVNULL,
                                                             stderr=subprocess.DEVNULL).returncode
    if has_ray():
        return python, None
    if os.environ.get('CYTO_NO_INSTALL'):
        return python, 'nothing is to be installed'
    with open(log, 'w') as f:
        for command in ([sys.executable, '-m', 'venv', folder],
                        [python, '-m', 'pip', 'install', '-q', '--disable-pip-version-check', '-r', os.path.join(HERE, 'requirements.txt')]):
            if subprocess.run(command, stdout=f, stderr=f).returncode:
                return python, 'it cannot be installed: %s' % log
    return python, None if has_ray() else 'it does not work: %s' % log


def main():
    args = lib.arguments(__doc__)
    if not lib.cases_wanted(args, [os.path.join(HERE, 'cases.py')]):
        return lib.none_wanted()
    python, why = python_of(args) if args.variant == 'release' else (None, 'the package loads release builds')
    if why:
        print('skipped: no Ray: %s\n0 passed, 0 failed, 1 skipped' % why)
        return
    env = dict(os.environ, CYTOC_LIB_DIR=args.build, PYTHONPATH=os.path.join(lib.ROOT, 'python'), PYTHONWARNINGS='ignore',
               CYTOC_CACHE_DIR=os.path.join(args.build, 'ray-cache'), RAY_USAGE_STATS_ENABLED='0', RAY_DATA_DISABLE_PROGRESS_BARS='1',
               RAY_DEDUP_LOGS='0', PYTHONDONTWRITEBYTECODE='1',
               RAY_worker_niceness='0')  # by itself Ray gives way to all else, and then its own limits in time are too short
    sys.exit(subprocess.run([python, os.path.join(HERE, 'cases.py'), '--build', args.build, *args.names], env=env).returncode)


if __name__ == '__main__':
    main()
