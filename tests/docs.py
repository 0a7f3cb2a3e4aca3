# SPDX-License-Identifier: Apache-2.0
"""The documentation against what it describes: the table of operators, the options, the links.

In:  frontend/onnx_ops.def, the schemas of the packages onnx and onnxruntime, what the tools answer to --help, every *.md.
Out: with --update docs/operators.md and docs/options.md written anew; the closing line. A test for each of these two, which must
     be up to date, and for each document, whose relative links must lead to files and headings that are there, whose tables
     have heads, and whose lines have at most 150 characters outside of tables. README.md has at most 9,000 bytes. The
     program of docs/tutorial.md compiles and runs.
"""
import os
import re
import subprocess
import sys

import lib

README_BYTES = 9000
LINE = 150  # characters of a line that is not of a table
DOMAINS = {'AI': ('', 'ai.onnx'), 'ML': ('ai.onnx.ml', 'ai.onnx.ml'), 'MS': ('com.microsoft', 'com.microsoft'),
           'PREVIEW': ('ai.onnx.preview', 'ai.onnx.preview'),
           'TRAINING': ('ai.onnx.preview.training', 'ai.onnx.preview.training')}
GROUPS = [('float', 'f16 bf16 f32 f64'), ('signed integer', 'i8 i16 i32 i64'), ('unsigned integer', 'u8 u16 u32 u64'),
          ('float8', 'f8e4m3fn f8e4m3fnuz f8e5m2 f8e5m2fnuz f8e8m0'), ('4-bit', 'i4 u4 f4e2m1'), ('2-bit', 'i2 u2')]
SHORT = {'float': 'f32', 'double': 'f64', 'float16': 'f16', 'bfloat16': 'bf16', 'bool': 'bool', 'string': 'string'}
HEAD = """# Operators

Made by `make golden` from `frontend/onnx_ops.def` and the operators' schemas; do not edit.

*Opsets* are the versions of the operator that are imported: a number for each change of its definition in the standard (ONNX Runtime
for com.microsoft). *Types* are those of the operator's main input in its newest schema; complex numbers are supported nowhere.
*float* stands for f16, bf16, f32 and f64, *integer* for signed and unsigned ones of 8 to 64 bits. Whatever else an operator needs
(constant inputs, known ranks) is said by the error when a model does not have it. What is not listed is refused, all such nodes of a
model at once; a function that the model itself defines counts as an operator.
"""


OPTIONS_HEAD = """# Options

Made by `make golden` from the programs' own `--help`; do not edit. [quantisation.md](quantisation.md), [cuda.md](cuda.md) and
[troubleshooting.md](troubleshooting.md) say when to use which.
"""
TOOLS = {'cytoc': 'The compiler.', 'cyto-run': 'Runs a compiled model on files of inputs.',
         'cyto-bench': 'Compares a model with `-O0` and other frameworks, in processes that take turns.',
         'cyto-compare': 'Compares two libraries of one model: sizes, errors, times.',
         'cyto-tune': 'Finds threads, batch and contexts for a model. See [tuning.md](tuning.md#how-it-is-run-cyto-tune).',
         'cytoc verify': 'Is it right? See [verify.md](verify.md).',
         'cytoc predict': 'A model over a folder of files, by the Python package. See [predict.md](predict.md).',
         'cytoc report': 'One page about a model, by the Python package. See [report.md](report.md).'}


def rows():
    """{domain: {operator: first version of each row}}"""
    found = {}
    with open('frontend/onnx_ops.def', encoding='utf-8') as f:
        for match in re.finditer(r'^ONNX_OP\((\w+), "([^"]+)", (\d+),', f.read(), re.M):
            domain, op, since = match.groups()
            found.setdefault(domain, {}).setdefault(op, []).append(int(since))
    return found


def short(name):
    """f32 of "tensor(float)", "seq(tensor(float))" or "float"; maps keep both types, as in "map(i64, f32)"; None: not supported."""
    pair = re.search(r'map\((\w+), ?(?:tensor\()?(\w+)', name)
    if pair:
        return 'map(%s, %s)' % tuple(map(short, pair.groups()))
    inner = re.sub(r'.*\(|\)+$', '', name)
    name = SHORT.get(inner) or re.sub(r'^uint', 'u', re.sub(r'^int', 'i', re.sub(r'^float', 'f', inner)))
    return None if name.startswith('complex') else name


def type_text(strings):
    kinds = {re.match(r'seq|optional|map|tensor|', s).group(0) for s in strings}
    left = {t for t in map(short, strings) if t}
    words = []
    for word, members in GROUPS:
        if left.issuperset(members.split()):
            words.append(word)
            left -= set(members.split())
    if {'signed integer', 'unsigned integer'} <= set(words):
        words = ['integer' if w == 'signed integer' else w for w in words if w != 'unsigned integer']
    words += sorted(left)
    if 'seq' in kinds:
        words.append('sequences')
    return ', '.join(words)


def schemas():
    """{(domain, operator): ({versions}, types)}"""
    import onnx.defs
    import onnxruntime.capi.onnxruntime_pybind11_state as state
    found = {}
    listed = onnx.defs.get_all_schemas_with_history()
    standard = {(s.domain, s.name) for s in listed}
    listed += [s for s in state.get_all_operator_schema()
               if s.domain in ('', 'com.microsoft') and (s.domain, s.name) not in standard and not s.deprecated]
    for s in sorted(listed, key=lambda s: s.since_version):
        main = s.inputs[0] if s.inputs else s.outputs[0] if s.outputs else None
        constraint = getattr(main, 'type_str', None) or getattr(main, 'typeStr', None) if main is not None else None
        types = next((list(c.allowed_type_strs) for c in s.type_constraints if c.type_param_str == constraint),
                     [constraint] if constraint else [])
        versions = found.get((s.domain, s.name), (set(), None))[0] | {s.since_version}
        found[s.domain, s.name] = versions, type_text(types)
    return found


def operators_page():
    known, lines = schemas(), [HEAD]
    for domain, ops in rows().items():
        key, title = DOMAINS[domain]
        lines.append('## %s\n\n| operator | opsets | types |\n|---|---|---|' % title)
        for op, since in sorted(ops.items(), key=lambda item: item[0].lower()):
            versions, types = known.get((key, op), (set(since), known.get(('', op), (None, 'float'))[1]))  # in no schema: of floats
            held = sorted(v for v in versions if v >= min(since)) or since
            lines.append('| %s | %s | %s |' % (op, ' '.join(map(str, held)), types))
        lines.append('')
    return '\n'.join(lines)


def long_line(path):
    """The first line over 150 characters that is not of a table, or None."""
    with open(path, encoding='utf-8') as f:
        for number, line in enumerate(f, 1):
            if len(line.rstrip('\n')) > LINE and not line.startswith('|'):
                return 'line %d has %d characters, expected %d at most' % (number, len(line) - 1, LINE)
    return None


def headless_table(path):
    """The first table of a document without a head, as a blank line within a table makes one, or None."""
    with open(path, encoding='utf-8') as f:
        lines = re.sub(r'^```.*?^```', lambda m: '\n' * m.group().count('\n'), f.read(), flags=re.M | re.S).split('\n')
    for number, line in enumerate(lines, 1):
        if line.startswith('|') and (number == 1 or not lines[number - 2].startswith('|')) and not re.match(r'\|[ :|-]+$', (lines + [''])[number]):
            return 'line %d: a table begins without a head; is there a blank line in it?' % number
    return None


def anchors(path):
    """What GitHub calls the headings of a document."""
    with open(path, encoding='utf-8') as f:
        text = re.sub(r'^```.*?^```', '', f.read(), flags=re.M | re.S)
    return {re.sub(r'[^\w\- ]', '', h.lower()).strip().replace(' ', '-') for h in re.findall(r'^#+ +(.*)', text, re.M)}


def bad_link(path):
    """The first link of a document that leads nowhere, or None."""
    with open(path, encoding='utf-8') as f:
        text = re.sub(r'^(```.*?^```|    .*?$)|`[^`\n]*`', '', f.read(), flags=re.M | re.S)
    for target in re.findall(r'\]\(([^)\s]+)\)', text):
        if re.match(r'\w+:', target):
            continue
        file, _, anchor = target.partition('#')
        there = os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
        if not os.path.exists(there):
            return 'link to %s: no such file' % target
        if anchor and there.endswith('.md') and anchor not in anchors(there):
            return 'link to %s: no such heading' % target
    return None


def options_page(args):
    """What the tools say of themselves."""
    parts = [OPTIONS_HEAD]
    env = dict(os.environ, CYTO_PYTHON=sys.executable, CYTOC_LIB_DIR=args.build, PYTHONPATH=os.path.join(lib.ROOT, 'python'), COLUMNS='120',
               NO_COLOR='1')
    for tool, heading in TOOLS.items():
        words = [os.path.join(args.build, tool.split()[0]), *tool.split()[1:], '--help']
        text = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, env=env).stdout
        parts.append('## %s\n\n%s\n\n```\n%s\n```\n' % (tool, heading, text.strip()))
    return '\n'.join(parts)


def generated(args):
    """{path: what it shall contain}"""
    pages = {'docs/operators.md': operators_page()}
    if os.path.exists(args.cytoc):
        pages['docs/options.md'] = options_page(args)
    return pages


def tutorial(args):
    """The program of docs/tutorial.md, linked with a network as the tutorial exports it."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper, save
    work = os.path.join(args.build, 'docs-tutorial')
    os.makedirs(work, exist_ok=True)
    rng, nodes, weights = np.random.default_rng(1), [], []
    names = ['image', 'encode', 'middle', 'decode']
    for k, (shape, after) in enumerate((((16, 1, 3, 3), 'Relu'), ((16, 16, 3, 3), 'Relu'), ((1, 16, 1, 1), 'Sigmoid'))):
        weights.append(numpy_helper.from_array(rng.standard_normal(shape, np.float32) / 8, 'w%d' % k))
        nodes.append(helper.make_node('Conv', [names[k], 'w%d' % k], ['sum%d' % k], pads=[shape[2] // 2] * 4))
        nodes.append(helper.make_node(after, ['sum%d' % k], ['mask' if k == 2 else names[k + 1]]))
    port = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1, 'height', 'width'])
    graph = helper.make_graph(nodes, 'segment', [port('image')], [port('mask')], weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 20)], ir_version=10), os.path.join(work, 'segment.onnx'))
    with open('docs/tutorial.md', encoding='utf-8') as f:
        [program] = re.findall(r'^```c\n(.*?)^```', f.read(), re.M | re.S)
    with open(os.path.join(work, 'main.c'), 'w', encoding='utf-8') as f:
        f.write(program)
    for command in ([args.cytoc, 'segment.onnx', '-o', 'segment.a'],
                    ['cc', '-Wall', '-Werror', 'main.c', 'segment.a', '-I' + os.path.join(lib.ROOT, 'runtime'), '-lm', '-lpthread',
                     '-o', 'app'], ['./app']):
        done = subprocess.run(command, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            return '%s: %s' % (command[0], done.stdout[-300:])
    return None if done.stdout.strip() == '0.5' else 'an image of zeros gives %r, expected 0.5' % done.stdout


def index_of_tests(args):
    """tests/where.py finds the tests of TopK, and offers it where a name is nearly that."""
    ask = lambda name: lib.run([sys.executable, 'tests/where.py', '--build', args.build, name], timeout=120)
    code, out, err = ask('topk')
    for want in ('frontend/onnx_ops.def:', '  test_top_k_smallest', '  tests/passes/fold/search.txt', '  tests/operators/edges.py:'):
        if code or want not in out:
            return 'where topk: expected %r, found %s' % (want, lib.reason(err, code) if code else out)
    code, out, err = ask('TopQ')
    return None if code == 1 and 'did you mean TopK' in err else 'where TopQ: %s%s' % (out, err)


def cpu_names(args):
    """Rows of machine.def have names of their own, which `cytoc --version` lists, and no condition elsewhere may ask for: what differs is
    a column."""
    with open('codegen/cpu/machine.def', encoding='utf-8') as f:
        names = re.findall(r'^CPU\("([^"]+)"', f.read(), re.M)
    if len(names) < 20 or len(set(names)) != len(names):
        return 'machine.def has %d rows of %d names' % (len(names), len(set(names)))
    told = re.search(r'^names +(.*)', lib.run([args.cytoc, '--version'])[1], re.M) if os.path.exists(args.cytoc) else None
    if told and told.group(1).split() != names:
        return 'cytoc --version lists %s, machine.def %s' % (told.group(1), ' '.join(names))
    models = [n for n in names if not n.startswith('x86-64') and n != 'aarch64']
    found = subprocess.run(['git', 'grep', '-nE', '"(%s)"' % '|'.join(models), '--', '*.c', '*.h', '*.def', ':!tests', ':!examples',
                            ':!codegen/cpu/machine.def'], stdout=subprocess.PIPE, text=True).stdout
    return found and 'a CPU by its name: ' + found.splitlines()[0] or None


def cpu_features():
    """What rows of machine.def say that CPUs have, the loader can look for."""
    with open('codegen/cpu/machine.def', encoding='utf-8') as f:
        lines = re.findall(r'^(?:#define \w+|CPU\("[^"]+", "[^"]+",) (.*)', f.read(), re.M)
    with open('runtime/cpu.c', encoding='utf-8') as f:
        known = set(re.findall(r'\{"([^"]+)", ', f.read()))
    listed = {name for line in lines for text in re.findall(r'"([^"]*)"', line) for name in text.split(',')} - {''}
    if len(listed) < 30:
        return 'machine.def has %d features' % len(listed)
    missing = sorted(listed - known)
    return missing and 'runtime/cpu.c lacks a feature of machine.def: ' + ', '.join(missing) or None


# Files that select instructions may ask for AVX-512, the one that fills in what a CPU has may look at its model.
SELECTING = ('loops/loops_ops.c', 'loops/loops_expr.c', 'loops/loops_lookup.c', 'attention/attention_softmax.c',
             'attention/attention_int.h', 'gemm/microkernel_run.c', 'gemm/microkernel_weigh.c', 'gemm/splats.c',
             'int8/int_kernel.c', 'copy_rows.c', 'emit.c', 'emit.h')
MODELLING = ('cost.c', 'cost.h', 'cpus.c', 'cpu.c', 'emit.c', 'emit.h')


def cpu_conditions():
    """What differs between CPUs is a column of machine.def, of which cost.c makes time: no code asks for AVX-512 where it does not
    select instructions, for fmas or for the size of a cache."""
    def found(pattern, allowed):
        text = subprocess.run(['git', 'grep', '-nE', pattern, '--', 'codegen/*.c', 'codegen/*.h', 'passes', 'tools', ':!codegen/cuda'] +
                              [':!codegen/cpu/' + name for name in allowed], stdout=subprocess.PIPE, text=True).stdout
        return text.splitlines()
    lines = found(r'(->|\.)avx512\b', SELECTING) + found(r'model\.(fmas|l[123]_bytes)\b|(cg|cpu)->(fmas|l[123]_bytes)\b', MODELLING)
    return lines and 'a property of a CPU in a condition: ' + lines[0] or None


def versions():
    """Makefile, the Python package, the newest section of CHANGELOG.md and examples/cmake have one version, with -dev until it is released."""
    def found(path, pattern):
        with open(path, encoding='utf-8') as f:
            return re.search(pattern, f.read(), re.M).group(1)
    version, package = found('Makefile', r'^CYTO_VERSION := (\S+)'), found('python/cytoc/__init__.py', r'^__version__ = "(.+)"')
    section, example = found('CHANGELOG.md', r'^## (.+)'), found('examples/cmake/CMakeLists.txt', r'^find_package\(cyto (\S+)')
    wanted = re.sub(r'-dev$', ' (not yet released)', version)
    if package != re.sub(r'-dev$', '.dev0', version) or section != wanted:
        return 'Makefile has version %s, the Python package %s, CHANGELOG.md %r' % (version, package, section)
    if not version.startswith(example + '.'):
        return 'Makefile has version %s, examples/cmake asks for %s' % (version, example)
    return None


def difference(path, wanted):
    if not os.path.exists(path):
        return path + ' is missing'
    with open(path, encoding='utf-8') as f:
        return None if f.read() == wanted else path + ' is not what make golden writes'


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    size = os.path.getsize('README.md')
    tests = {'readme_size': None if size <= README_BYTES else 'README.md has %d bytes, expected %d at most' % (size, README_BYTES)}
    for path, wanted in generated(args).items():
        if args.update:
            with open(path, 'w', encoding='utf-8') as f:
                f.write(wanted)
        tests[path] = difference(path, wanted)
    listed = subprocess.run(['git', 'ls-files', '-co', '--exclude-standard', '*.md'], check=True, stdout=subprocess.PIPE, text=True)
    for path in filter(os.path.exists, listed.stdout.split()):
        tests['links ' + path] = bad_link(path)
        tests['tables ' + path] = headless_table(path)
        if not path.startswith('tests/bench/results/RESULTS'):
            tests['lines ' + path] = long_line(path)
    if args.wanted('tutorial') and args.variant == 'release' and os.path.exists(args.cytoc):
        tests['tutorial'] = tutorial(args)
    tests['versions'] = versions()
    tests['cpu names'] = cpu_names(args)
    tests['cpu features'] = cpu_features()
    tests['cpu conditions'] = cpu_conditions()
    if args.wanted('where'):
        tests['where'] = index_of_tests(args)
    for name, why in tests.items():
        if args.wanted(name):
            suite.result(name, why)
    suite.done('documents')


if __name__ == '__main__':
    main()
