# SPDX-License-Identifier: Apache-2.0
"""Builds the libFuzzer targets and lets each look for crashes for --seconds.

Out: the closing line, one test per target; skipped where there is no clang with its fuzzing library, or when another
     variant than the release is tested: the targets have the sanitizers built in.
"""
import glob
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(os.path.dirname(HERE), 'onnx')]
import lib

MOST_SEED_BYTES = 4096


def find_clang(args):
    """A clang that links the fuzzing library, or None."""
    probe = os.path.join(args.build, 'fuzz-probe')
    with open(probe + '.c', 'w', encoding='utf-8') as f:
        f.write('int LLVMFuzzerTestOneInput(const unsigned char *p, unsigned long n) { return p && n > 4096; }\n')
    for name in ('clang-19', 'clang', 'clang-20', 'clang-18', 'clang-17'):
        if shutil.which(name) and lib.run([name, '-fsanitize=fuzzer,address,undefined', probe + '.c', '-o', probe])[0] == 0:
            return name
    return None


def seed(args, target):
    """Puts small real inputs into the target's corpus: the fuzzer then starts behind the first checks."""
    corpus = os.path.join(args.build, 'fuzz', 'corpus', target)
    os.makedirs(corpus, exist_ok=True)
    if target == 'text_fuzz':
        paths = sorted(glob.glob('tests/**/*.txt', recursive=True))
    else:
        import list_tests
        folders = [list_tests.node_folder(), *glob.glob(os.path.join(list_tests.DATA, '*'))]
        paths = sorted(p for folder in folders for p in glob.glob(os.path.join(folder, 'test_*', 'model.onnx')))[::10]
    for number, path in enumerate(paths):
        if os.path.getsize(path) < MOST_SEED_BYTES:
            shutil.copyfile(path, os.path.join(corpus, 'seed%d' % number))


def main():
    args = lib.arguments(__doc__, seconds={'type': int, 'default': 20})
    suite = lib.Suite(args)
    targets = [os.path.basename(p)[:-2] for p in sorted(glob.glob('tests/fuzz/*.c'))]
    clang = find_clang(args) if args.variant == 'release' else None
    environment = {k: v for k, v in os.environ.items() if not k.startswith('MAKE') and k != 'MFLAGS'}
    targets = [target for target in targets if args.wanted(target)]
    if not clang:
        for target in targets:
            suite.skip(target, 'no clang with libFuzzer (install clang and libclang-rt-dev)' if args.variant == 'release'
                       else 'fuzzing has a build of its own')
        suite.done('fuzz targets')

    def fuzz(seconds, *names):
        code, out, err = lib.run(['make', '--no-print-directory', '-j2', 'fuzz', 'FUZZ_CC=' + clang,
                                  'FUZZ_TARGETS=' + ' '.join(names), 'FUZZ_SECONDS=%d' % seconds], env=environment, timeout=1500)
        return lib.reason(err or out, code) if code else None

    for target in targets:
        seed(args, target)
    problem = fuzz(1, *targets)  # builds what they share
    with ThreadPoolExecutor(2) as pool:
        for target, why in zip(targets, pool.map(lambda target: problem or fuzz(args.seconds, target), targets)):
            suite.result(target, why)
    suite.done('fuzz targets')


if __name__ == '__main__':
    main()
