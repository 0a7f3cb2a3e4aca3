# SPDX-License-Identifier: Apache-2.0
"""cytoc --tune: what it measures is in its file, what is in the file is taken, and what is interrupted stays.

In:  small networks of convolutions, made here. Out: the closing line. Results are compared with those of -O0; files that are
     wrong, of another CPU or version, and targets that do not run here end with what is said of them.
"""
import os
import re
import shutil
import signal
import subprocess
import time

import numpy as np
import onnx

import candidates
import graphs
import lib

HEAD = ['# cytoc tuning 1', '# version: ', '# cpu: ']


def many(layers):
    """Convolutions of as many different shapes."""
    g, x, channels = graphs.Graph(9), 'x', 16
    for i in range(layers):
        w = g.const(g.rng.standard_normal((16 + 4 * i, channels, 3, 3)) / 12, np.float32)
        x, channels = g.op('Relu', g.op('Conv', x, w, kernel_shape=[3, 3], pads=[1] * 4)), 16 + 4 * i
    return g.model([graphs.port('x', np.float32, (1, 16, 40, 40))], [graphs.port(x, np.float32, None)])


class Case:
    """A folder with a model and the file of its measurements."""

    def __init__(self, args, folder, model):
        self.args, self.folder = args, folder
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        self.model, self.library, self.file = (os.path.join(folder, name) for name in ('m.onnx', 'm.so', 'tuning.txt'))
        onnx.save(model, self.model)
        self.graph = model.graph

    def command(self, *options, tune=True):
        return [self.args.cytoc, self.model, '-o', self.library, *(['--tune=' + self.file] if tune else []), *options]

    def compile(self, *options, tune=True, **more):
        """(exit code, stdout, stderr)"""
        return lib.run(self.command(*options, tune=tune), **more)

    def text(self):
        with open(self.file, encoding='utf-8') as f:
            return f.read()

    def write(self, text):
        with open(self.file, 'w', encoding='utf-8') as f:
            f.write(text)

    def lines(self):
        """{layer: (chosen, {candidate: kilocycles or None})}; raises ValueError for what is no such file."""
        lines, found = self.text().splitlines(), {}
        if len(lines) < 3 or not all(line.startswith(head) for line, head in zip(lines, HEAD)):
            raise ValueError('head: %r' % lines[:3])
        for line in lines[3:]:
            layer, chosen, times = line.split('\t')
            found[layer] = chosen, {n: None if t == '-' else float(t) for n, t in (w.split('=') for w in times.split(' '))}
        return found

    def bytes(self):
        with open(self.library, 'rb') as f:
            return f.read()


def check_file(args, folder):
    """Layers with a choice are there, each with its candidates; the winner is the least, or what estimates prefer."""
    case = Case(args, folder, candidates.convolutions())
    code, out, err = case.compile('--explain=costs')
    if code:
        return lib.reason(err, code)
    estimated = candidates.layers_of(case.compile('--explain=costs', tune=False)[1])
    lines, taken = case.lines(), candidates.layers_of(out)
    if not 1 <= len(lines) <= len(estimated) or not set(lines) <= set(estimated):
        return 'layers %s of %s' % (sorted(lines), sorted(estimated))
    if not re.search(r'note: %d layers measured, 0 known before' % len(lines), err):
        return 'said: %s' % err
    for layer, (chosen, times) in lines.items():
        if len(times) < 2 or not set(times) <= estimated[layer][0] or not all(times.values()):
            return '%s: candidates %s' % (layer, times)
        if times[chosen] != min(times.values()) or taken[layer][1] != chosen:
            return '%s: chosen %s of %s, taken %s' % (layer, chosen, times, taken[layer])
    return None


def check_again(args, folder):
    """A second compilation measures nothing, and equal files give equal bytes; results are those of -O0."""
    case = Case(args, folder, candidates.convolutions())
    code, _, err = case.compile()
    first, text = (case.bytes(), case.text()) if not code else (None, None)
    if code:
        return lib.reason(err, code)
    for options in ([], ['--target=' + re.search('# cpu: (.*)', text)[1]]):
        code, _, err = case.compile(*options)
        if code or err or case.text() != text:
            return 'again, %s: exit code %d, %r, file %s' % (options, code, err, 'same' if case.text() == text else 'changed')
        if not options and case.bytes() != first:
            return 'another library'
    feeds = {'x': np.random.default_rng(2).standard_normal((1, 16, 29, 31)).astype(np.float32)}
    name = case.graph.output[0].name
    got, why = candidates.result(args, folder, feeds, name)
    code, _, err = case.compile('-O0', tune=False)
    want, problem = candidates.result(args, folder, feeds, name)
    return why or problem or lib.difference(name, got, want, 1e-4)


def check_measured(args, folder):
    """What the file says is taken, in layouts, too, whatever the estimates are."""
    case = Case(args, folder, candidates.convolutions())
    code, _, err = case.compile()
    if code:
        return lib.reason(err, code)
    head, times = '\n'.join(case.text().splitlines()[:3]) + '\n', case.lines()
    for favourite in ('direct', 'planar'):
        rows = {layer: sorted(set(t) | {'direct', 'planar', 'winograd'}) for layer, (_, t) in times.items()}
        case.write(head + ''.join('%s\t%s\t%s\n' % (layer, favourite, ' '.join(
            '%s=%d' % (n, 10 if n == favourite else 90000) for n in names)) for layer, names in rows.items()))
        code, out, err = case.compile('--explain=costs')
        taken = candidates.layers_of(out)
        if code or err or any(taken[layer][1] != favourite for layer in rows):
            return '%s: exit code %d, %r, %s' % (favourite, code, err, taken)
    return None


def wait_for(case, process, lines):
    """Until the file has so many lines; None, or why not."""
    end = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < end:
        if os.path.exists(case.file) and len(case.text().splitlines()) >= lines:
            return None
        time.sleep(0.01)
    return 'no line in the file: exit code %s' % process.poll()


def check_interrupted(args, folder):
    """SIGINT: the library is made of what is known. SIGKILL: the file is whole. Then tuning goes on from there."""
    case = Case(args, folder, many(12))
    known = 0
    for number in (signal.SIGKILL, signal.SIGINT):
        with subprocess.Popen(case.command(), stderr=subprocess.PIPE, text=True) as process:
            why = wait_for(case, process, 4 + known)
            process.send_signal(number)
            err = process.communicate()[1]
        found = case.lines()
        if why or not known < len(found) < 12:
            return '%s: %s, %d layers in the file' % (number.name, why, len(found))
        known = len(found)
        if number == signal.SIGINT:
            if process.returncode or not os.path.exists(case.library):
                return 'SIGINT: exit code %d, %s' % (process.returncode, err)
            if not re.search(r'warning: tuning ended with \d+ of \d+ layers measured', err):
                return 'SIGINT: said %r' % err
    return None


def check_seconds(args, folder):
    """The limit ends it, and the library is made."""
    case = Case(args, folder, many(40))
    code, _, err = case.compile('--tune-seconds=1')
    found = re.search(r'tuning ended with (\d+) of (\d+) layers measured', err)
    if code or not found or not os.path.exists(case.library):
        return 'exit code %d, %s' % (code, err)
    if int(found[1]) >= int(found[2]):
        return 'said: %s' % err
    have = len(case.lines()) if os.path.exists(case.file) else 0
    return None if have == int(found[1]) else '%d layers in the file, said %s' % (have, found[1])


def check_place(args, folder):
    """Without a name the file lies in the user's cache."""
    case = Case(args, folder, candidates.volumes())
    cache = os.path.join(os.path.abspath(folder), 'cache')
    code, _, err = case.compile('--tune', tune=False, env={**os.environ, 'XDG_CACHE_HOME': cache})
    if code:
        return lib.reason(err, code)
    files = os.listdir(os.path.join(cache, 'cytoc'))
    if len(files) != 1 or not re.fullmatch(r'tune-[\w.-]+\.txt', files[0]):
        return 'files: %s' % files
    env = {k: v for k, v in os.environ.items() if k not in ('XDG_CACHE_HOME', 'HOME')}
    code, _, err = case.compile('--tune', tune=False, env=env)
    return None if code == 1 and 'expected --tune=FILE' in err else 'without a home: exit code %d, %s' % (code, err)


def check_open(args, folder):
    """Sizes that are not fixed: said, and compiled."""
    model = candidates.convolutions()
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = 'height'
    case = Case(args, folder, model)
    code, _, err = case.compile()
    return None if not code and re.search('layers go by estimates: their sizes are not fixed', err) else \
        'exit code %d, %s' % (code, err)


def check_bad(args, folder):
    case = Case(args, folder, candidates.volumes())
    code, _, err = case.compile()
    if code:
        return lib.reason(err, code)
    good = case.text()
    head, layer = good.splitlines()[:3], good.splitlines()[3]
    rows = [('other text', 'hello\n', 1, 'this is no file of --tune: its first line'),
            ('another CPU', good.replace(head[2], '# cpu: other9'), 1, "measured on 'other9', and the target is"),
            ('another version', good.replace(head[1], '# version: cytoc 0.0.1'), 0, "all of it is ignored.*'cytoc 0.0.1'"),
            ('head alone', HEAD[0] + '\n', 0, 'all of it is ignored.*does not say which version'),
            ('cut off', good[:-4], 0, 'line 4 is ignored: it is cut off'),
            ('cut off at the end', good[:-1], 0, 'line 4 is ignored: it is cut off'),
            ('no tab', '\n'.join(head + ['conv 1']) + '\n', 0, 'line 4 is ignored: expected a layer, a tab'),
            ('no number', '\n'.join(head + [layer + 'x']) + '\n', 0, 'line 4 is ignored: expected measured times'),
            ('not finite', '\n'.join(head + [layer.split('\t')[0] + '\tdirect\tdirect=inf']) + '\n', 0,
             'line 4 is ignored: expected measured times'),
            ('twice', good + layer + '\n', 0, 'line 5 is ignored: this layer has a candidate already'),
            ('empty', '', 0, '1 layers measured')]
    for name, text, want, message in rows:
        case.write(text)
        code, _, err = case.compile()
        if code != want or not re.search(message, err):
            return '%s: exit code %d, %s' % (name, code, err)
        if want and case.text() != text:
            return '%s: the file was changed' % name
        if not want and (not case.lines() or case.compile()[2] and name != 'twice'):
            return '%s: was not measured again' % name
    os.remove(case.file)
    os.mkdir(case.file)
    code, _, err = case.compile()
    if code != 1 or 'cannot read the file' not in err:
        return 'a folder: exit code %d, %s' % (code, err)
    case.file = os.path.join(folder, 'none', 'tuning.txt')
    code, _, err = case.compile()
    return None if code == 1 and 'cannot write what was measured' in err else 'no folder: exit code %d, %s' % (code, err)


def check_refused(args, folder):
    case = Case(args, folder, candidates.volumes())
    other = 'aarch64' if os.uname().machine == 'x86_64' else 'x86-64-v3'
    for options, message in ((['--target=sm_80'], "does not run code for 'sm_80': it is a device"),
                             (['--target=' + other], "does not run code for '%s'" % other),
                             (['--choice=x'], "options '--tune' and '--choice' exclude each other"),
                             (['-O0'], "option '--tune' needs -O1 or more"),
                             (['--tune-seconds=0'], 'tune-seconds')):
        code, _, err = case.compile(*options)
        if code != 1 or message not in err or os.path.exists(case.library) or os.path.exists(case.file):
            return '%s: exit code %d, %s' % (options, code, err)
    code, _, err = case.compile('--tune-seconds=3', tune=False)
    return None if code == 1 and "belongs to '--tune'" in err else '--tune-seconds: exit code %d, %s' % (code, err)


def main():
    args = lib.arguments(__doc__)
    suite, folder = lib.Suite(args), os.path.join(args.build, 'tune')
    for name, check in (('file', check_file), ('again', check_again), ('measured', check_measured),
                        ('interrupted', check_interrupted), ('seconds', check_seconds), ('place', check_place),
                        ('open', check_open), ('bad', check_bad), ('refused', check_refused)):
        if args.wanted(name):
            suite.result(name, check(args, folder))
            shutil.rmtree(folder, ignore_errors=True)
    suite.done()


if __name__ == '__main__':
    main()
