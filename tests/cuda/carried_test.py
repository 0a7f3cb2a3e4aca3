# SPDX-License-Identifier: Apache-2.0
"""What carry.py packs runs where there is neither LLVM nor a build tree, and carried.py goes on behind what hangs or
crashes.

In:  build/portable, the mocks of NVIDIA's libraries, a C compiler for them.
Out: the closing line. The packed folder runs in a root of its own, where the kernel lets us make one: this machine's
     /usr without LLVM, protobuf-c, LZ4 and NVRTC, Python, and the folder; no repository. Elsewhere it runs in place.
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
sys.path[:0] = [os.path.dirname(HERE), os.path.join(os.path.dirname(HERE), 'bench')]
import lib

HIDDEN = ['/usr/lib/llvm-*', '/usr/lib/x86_64-linux-gnu/lib%s*.so*', '/usr/local/cuda*']
LIBRARIES = ['LLVM', 'protobuf-c', 'lz4', 'xml2']  # the others are the C compiler's, too, which the mocks call
FAKE = '''#!/bin/sh
case "$4" in
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
    hidden = [p for pattern in HIDDEN for name in LIBRARIES[:1 if '%' not in pattern else None]
              for p in glob.glob(pattern % name if '%' in pattern else pattern)]
    for prefix in (sys.prefix, os.path.realpath(sys.prefix)):
        hidden += glob.glob(os.path.join(prefix, 'lib', 'python3*', 'site-packages', 'nvidia'))
    for path in sorted(set(hidden)):
        what, at = ('-t tmpfs tmpfs', path) if os.path.isdir(path) else ('--bind /dev/null', os.path.realpath(path))
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


def test_clean_root(args, folder):
    """None, or what is wrong."""
    carried = os.path.join(folder, 'carry')
    code, out, err = lib.run([sys.executable, os.path.join(HERE, 'carry.py'), '--build', args.build, '--save', carried, '--mocks',
                              '--nodes', '^test_relu$', '--preset', '-1', 'tools', 'node_tests'])
    if code:
        return 'carry.py: ' + lib.reason(err, code)
    command = ['run.py', '--mocks', '--jobs', '1', '--seconds', '150', 'kernels:matmul 1x5x7', 'nodes', 'speed:^add$']
    if can_make_root():
        script = os.path.join(folder, 'root.sh')
        with open(script, 'w', encoding='utf-8') as f:
            f.write(root_script(folder, [sys.executable] + command))
        code, out, err = lib.run(['unshare', '-rm', 'sh', script], 200)
    else:
        code, out, err = lib.run([sys.executable, os.path.join(carried, command[0]), *command[1:]], 200)
    if code:
        return 'run.py: ' + lib.reason(err, code)
    rows, parts = results(os.path.join(carried, 'results'))
    failures = [row for row in rows if row['kind'] == 'failure']
    if failures:
        return str(failures[0])
    wanted = {'kernels': '2 right, 0 wrong', 'nodes': '1 passed, 0 failed, 0 skipped', 'speed': '1 passed, 0 failed, 0 skipped'}
    if parts != wanted:
        return 'the parts came to %s, expected %s' % (parts, wanted)
    if not [row for row in rows if row['kind'] == 'speed' and row['contender'] == 'cytoc' and row['us'] > 0]:
        return 'nothing was measured'
    return test_report(args, os.path.join(carried, 'results', 'results.jsonl'), os.path.join(folder, 'RESULTS.md'))


def test_report(args, path, markdown):
    with open(markdown, 'w', encoding='utf-8') as f:
        f.write('# Speed\n\nNo device has been measured yet. Later.\n')
    code, _, err = lib.run([sys.executable, 'tests/bench/cuda.py', '--report', path, '--results', markdown])
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


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    if not os.path.exists(os.path.join(args.build, 'portable', 'cytoc')):
        suite.skip('carry', 'build/portable is made in the release variant only')
        suite.done()
    folder = tempfile.mkdtemp(prefix='cyto-carry-')
    for name, test in (('clean root', test_clean_root), ('faults', test_faults)):
        if args.wanted(name):
            suite.result(name, test(args, folder))
    shutil.rmtree(folder, ignore_errors=True)
    suite.done()


if __name__ == '__main__':
    main()
