# SPDX-License-Identifier: Apache-2.0
"""What carry.py packs runs where there is neither a compiler nor a linker, LLVM, onnx or a build tree, and carried.py goes on
behind what hangs or crashes.

In:  build/portable, the mocks of NVIDIA's libraries, a C compiler for them.
Out: the closing line. Both calls run twice: here, where the mock driver has the C compiler make kernels, which it keeps;
     then in a root of their own, where the kernel lets us make one: this machine's /usr without compilers, linkers, LLVM,
     protobuf-c, LZ4 and NVRTC, Python without onnx and ONNX Runtime, and the folder; no repository.
"""
import glob
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [TESTS, os.path.dirname(HERE), HERE, os.path.join(TESTS, 'bench', 'cuda')]
import instructions
import lib
import mock

HIDDEN = ['/usr/lib/llvm-*', '/usr/local/cuda*', '/usr/lib/gcc', '/usr/lib/gcc-cross', '/usr/libexec/gcc']
LIBRARIES = ['LLVM', 'protobuf-c', 'lz4', 'xml2', 'bfd', 'clang', 'isl', 'mpfr']
PROGRAMS = ['*gcc*', '*g++*', 'cc', 'c++', 'c89*', 'c99*', '*clang*', '*-ld', '*-ld.*', 'ld', 'ld.bfd', 'ld.gold', 'ld.lld*', 'lld*', 'ld64*', 'wasm-ld*', '*-as', 'as',
            'tcc', 'nvcc', 'make', 'cmake', 'gold']
PACKAGES = ['nvidia', 'onnx', 'onnxruntime', 'google', 'ml_dtypes', 'torch']
KERNELS = 'kernels:matmul 1x5x7'
FIRST = [KERNELS, 'about', 'instructions', 'networks', 'sanitizer']
SECOND = ['speed:^add$,nerf,layer_24']
FAKE = '''#!/bin/sh
case "$6" in
0) echo 'case 0 first'; echo 'right 0'; echo 'case 1 crashes'; echo 'cuLaunchKernel: an illegal address' >&2; kill -SEGV $$;;
2) echo 'case 2 hangs'; sleep 60;;
3) echo 'case 3 differs'; echo 'a2[7] is 1, not 2' >&2; echo 'wrong 3'; echo 'case 4 last'; echo 'right 4';;
esac
'''


def root_script(folder, command):
    """A shell script that runs the command in a root without what a bare machine lacks; the folder is /carried there."""
    new = os.path.join(folder, 'root')
    lines = ['set -e', 'mkdir -p %s' % new, 'mount -t tmpfs tmpfs %s' % new]
    shown = {os.path.realpath(p) for p in ('/usr', '/bin', '/lib', '/lib64', '/etc', '/proc', '/dev', sys.base_prefix, sys.prefix)}
    for path in sorted(shown | {sys.prefix}):
        lines += ['mkdir -p %s%s' % (new, path), 'mount --rbind %s %s%s' % (path, new, path)]
    lines += ['[ ! -L %s ] || ln -s usr%s %s%s' % (p, p, new, p) for p in ('/bin', '/lib', '/lib64')]
    hidden = [p for pattern in HIDDEN for p in glob.glob(pattern)]
    hidden += [p for name in LIBRARIES for p in glob.glob('/usr/lib/*/lib%s*.so*' % name)]
    hidden += [p for name in PROGRAMS for folder in ('/usr/bin', '/usr/local/bin') for p in glob.glob('%s/%s' % (folder, name))]
    for prefix in (sys.prefix, os.path.realpath(sys.prefix)):
        hidden += [p for name in PACKAGES for p in glob.glob(os.path.join(prefix, 'lib', 'python3*', 'site-packages', name))]
    hidden = {os.path.realpath(p) for p in hidden}
    for path in sorted(p for p in hidden if not any(p.startswith(other + '/') for other in hidden)):
        what, at = ('-t tmpfs tmpfs', path) if os.path.isdir(path) else ('--bind /dev/null', path)
        lines.append('mount %s %s%s' % (what, new, at))
    lines += ['mkdir -p %s/tmp %s/carried' % (new, new), 'mount --bind %s %s/carried' % (os.path.join(folder, 'carry'), new),
              "exec chroot %s /bin/sh -c 'cd /carried && exec %s'" % (new, ' '.join("\"%s\"" % w for w in command))]
    return '\n'.join(lines)


def can_make_root():
    return subprocess.run(['unshare', '-rm', 'mount', '-t', 'tmpfs', 'tmpfs', '/mnt'], capture_output=True).returncode == 0


def results(folder):
    with open(os.path.join(folder, 'results.jsonl'), encoding='utf-8') as f:
        rows = [json.loads(line) for line in f]
    return rows, {row['name']: row['text'] for row in rows if row['kind'] == 'part'}


def pack(args, carried):
    return lib.run([sys.executable, os.path.join(HERE, 'carry.py'), '--build', args.build, '--save', carried, '--mocks', '--arch', 'sm_80',
                    '--preset', '-1', '--limit-mb', '400', '--networks', '^(one_row|bert_toy)$', '--speed', '^add$|nerf|layer_24'], 1200)


def in_root(folder, command):
    script = os.path.join(folder, 'root.sh')
    with open(script, 'w', encoding='utf-8') as f:
        f.write(root_script(folder, [sys.executable] + command))
    return lib.run(['unshare', '-rm', 'sh', script], 400)


def test_clean_root(args, folder):
    """None, or what is wrong."""
    carried = os.path.join(folder, 'carry')
    code, out, err = pack(args, carried)
    if code or 'FAILED' in out:
        return 'carry.py: ' + lib.reason(err + out, code)
    for parts in (FIRST, SECOND):
        command = ['run.py', '--mocks', '--jobs', '1', *parts]
        code, out, err = lib.run([sys.executable, os.path.join(carried, command[0]), *command[1:]], 600)
        if not code and can_make_root():
            cut_results(carried, parts is FIRST)
            code, out, err = in_root(folder, command)
        if code:
            return 'run.py %s: %s' % (parts, lib.reason(err, code))
    return check_results(args, folder, carried)


def cut_results(carried, first):
    """What the run with a compiler found is dropped: that of the root counts."""
    path = os.path.join(carried, 'results', 'results.jsonl')
    rows = [json.loads(line) for line in open(path, encoding='utf-8')]
    kept = [] if first else [row for row in rows if row['kind'] in ('network', 'has') or row.get('name') in dict(FIRST_WANTED)]
    with open(path, 'w', encoding='utf-8') as f:
        f.writelines(json.dumps(row) + '\n' for row in kept)


FIRST_WANTED = [('kernels', '2 right, 0 wrong'), ('instructions', '%d right, 0 wrong'), ('networks', '2 right, 0 wrong'),
                ('sanitizer', 'there is no compute-sanitizer')]


def check_results(args, folder, carried):
    rows, parts = results(os.path.join(carried, 'results'))
    failures = [row for row in rows if row['kind'] == 'failure']
    if failures:
        return str(failures[0])
    n = sum(case.least <= 80 for case in instructions.CASES)
    wanted = {name: text % n if '%d' in text else text for name, text in FIRST_WANTED}
    wanted['speed'] = '3 passed, 0 failed, 0 skipped'
    if {name: parts.get(name) for name in wanted} != wanted:
        return 'the parts came to %s, expected %s' % (parts, wanted)
    has = next(row for row in rows if row['kind'] == 'has')
    there = [name for name in ('ld', 'cc', 'nvcc', 'onnx', 'onnxruntime') if has[name]]
    if there and can_make_root():
        return 'the root has %s' % there
    measured = {row['case'] for row in rows if row['kind'] == 'speed' and row['contender'] == 'cytoc' and row['us'] > 0}
    if measured != {'add', 'nerf_mlp_batch1', 'layer_24x64x72'}:
        return 'measured were %s' % measured
    return test_report(args, os.path.join(carried, 'results', 'results.jsonl'), os.path.join(folder, 'RESULTS.md'))


def test_instructions(args, folder):
    """A result that differs is told, with its operands; the others are right."""
    import numpy as np
    path, env = os.path.join(folder, 'instructions.npz'), dict(os.environ, CY_MOCK_CAPABILITY='75', LD_LIBRARY_PATH=mock.folder(args))
    code, _, err = lib.run([sys.executable, 'tests/cuda/carry/instructions.py', '--record', path], env=env)
    if code:
        return lib.reason(err, code)
    found = dict(np.load(path))
    name = next(key for key in found if 'mma.sync.m16n8k8' in key)
    found[name][1, 5] ^= 4
    np.savez(path, **found)
    code, out, err = lib.run([sys.executable, 'tests/cuda/carry/instructions.py', '--against', path], env=env)
    wrong = [line for line in out.splitlines() if line.startswith('wrong')]
    right = sum(line.startswith('right') for line in out.splitlines())
    if code == 1 and wrong == ['wrong ' + name.split()[0]] and '1 of 2048 differ, first: operands' in out and right == len(found) - 1:
        return None
    return 'found %s and %d right: %s' % (wrong, right, lib.reason(err or out, code))


def test_products(args, folder):
    """The emulator's products of matrices beside numpy's, by the layout of fragments that the ISA gives."""
    import numpy as np
    path, env = os.path.join(folder, 'products.npz'), dict(os.environ, CY_MOCK_CAPABILITY='80', LD_LIBRARY_PATH=mock.folder(args))
    code, _, err = lib.run([sys.executable, 'tests/cuda/carry/instructions.py', '--record', path], env=env)
    if code:
        return lib.reason(err, code)
    found = np.load(path)
    k, case = next((k, c) for k, c in enumerate(instructions.CASES) if c.name == 'mma.sync.m16n8k16.f16.f16')
    words = case.inputs().reshape(10, instructions.TURNS, 32)[:, 0]
    halves = [np.ascontiguousarray(w).view(np.float16).reshape(32, 2).astype(np.float32) for w in words[:6]]
    a, b, c = np.zeros((16, 16), np.float32), np.zeros((16, 8), np.float32), np.zeros((16, 8), np.float32)
    got = found['%d %s' % (k, case.name)].reshape(4, instructions.TURNS, 32)[:, 0].view(np.float32)
    out = np.zeros((16, 8), np.float32)
    for lane in range(32):
        group, pair = lane // 4, lane % 4 * 2
        for i in range(2):
            for part in range(4):
                a[group + 8 * (part % 2), pair + i + 8 * (part // 2)] = halves[part][lane, i]
            for part in range(2):
                b[pair + i + 8 * part, group] = halves[4 + part][lane, i]
                c[group + 8 * part, pair + i] = words[6 + 2 * part + i].view(np.float32)[lane]
                out[group + 8 * part, pair + i] = got[2 * part + i, lane]
    return None if np.array_equal(out, a @ b + c) else 'off by %g' % np.abs(out - a @ b - c).max()


def test_report(args, path, markdown):
    with open(markdown, 'w', encoding='utf-8') as f:
        f.write('# Speed\n\nNo device has been measured yet. Later.\n')
    code, _, err = lib.run([sys.executable, 'tests/bench/cuda/cuda.py', '--report', path, '--results', markdown])
    with open(markdown, encoding='utf-8') as f:
        text = f.read()
    if code or 'No device' in text or '| add | cytoc |' not in text or '- kernels: 2 right' not in text:
        return 'cuda.py --report: %s' % (lib.reason(err, code) if code else 'it wrote %.300r' % text)
    return None


def test_faults(args, folder):
    """A kernel that crashes, one that hangs, one that is wrong: each costs itself."""
    root = os.path.join(folder, 'faults')
    program = os.path.join(root, 'build', 'tests', 'cuda', 'device_test')
    os.makedirs(os.path.dirname(program))
    with open(program, 'w', encoding='utf-8') as f:
        f.write(FAKE)
    os.chmod(program, stat.S_IRWXU)
    code, _, err = lib.run([sys.executable, os.path.join(HERE, 'carried.py'), '--root', root, '--mocks', 'kernels',
                            '--out', os.path.join(root, 'out'), '--kernel-seconds', '1'], 60)
    if code:
        return lib.reason(err, code)
    rows, parts = results(os.path.join(root, 'out'))
    found = [(row['contender'], row['why']) for row in rows if row['kind'] == 'failure']
    wanted = [('1 crashes', 'cuLaunchKernel: an illegal address; signal 11'), ('2 hangs', 'no end after 1 s'),
              ('3 differs', 'a2[7] is 1, not 2')]
    return None if found == wanted and parts == {'kernels': '2 right, 3 wrong'} else 'found %s, %s' % (found, parts)


def test_slow_network(args, folder):
    """A network that hangs costs its own limit, and is told; the one behind it runs, and the time of the part is kept."""
    root = os.path.join(folder, 'slow')
    program = os.path.join(root, 'build', 'cyto-run')
    for name in ('1', '2'):
        os.makedirs(os.path.join(root, 'build', 'carried', 'networks', name, 'ref'))
        with open(os.path.join(root, 'build', 'carried', 'networks', name, 'limit'), 'w', encoding='utf-8') as f:
            f.write('1e-4')
    with open(program, 'w', encoding='utf-8') as f:
        f.write('#!/bin/sh\ncase "$1" in */1/*) sleep 60;; esac\n')
    os.chmod(program, stat.S_IRWXU)
    shutil.copytree(TESTS, os.path.join(root, 'tests'), ignore=lambda path, names: [n for n in names if not n.endswith('.py')])
    code, out, err = lib.run([sys.executable, os.path.join(HERE, 'carried.py'), '--root', root, '--mocks', 'networks', '--network-seconds', '1',
                              '--out', os.path.join(root, 'out')], 60)
    rows, parts = results(os.path.join(root, 'out'))
    found = {row['name']: row['why'] for row in rows if row['kind'] == 'network'}
    wanted = {'1': 'no end in time: ', '2': None}
    return None if not code and found == wanted and parts == {'networks': '1 right, 1 wrong'} else 'found %s, %s: %s' % (found, parts, err[-300:])


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    if not os.path.exists(os.path.join(args.build, 'portable', 'cytoc')):
        suite.skip('carry', 'build/portable is made in the release variant only')
        suite.done()
    folder = tempfile.mkdtemp(prefix='cyto-carry-')
    for name, test in (('clean root', test_clean_root), ('faults', test_faults), ('slow network', test_slow_network),
                       ('instructions', test_instructions), ('products', test_products)):
        if args.wanted(name):
            suite.result(name, test(args, folder))
    shutil.rmtree(folder, ignore_errors=True)
    suite.done()


if __name__ == '__main__':
    main()
