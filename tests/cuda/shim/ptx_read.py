# SPDX-License-Identifier: Apache-2.0
"""Reads PTX as NVRTC prints it: functions with their parameters and statements, variables of the module.

Only structure is read here; what instructions mean is said in ptx_ops.py. What is unknown is refused.
"""
import re

COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/', re.S)
HEADER = re.compile(r'\s*\.(version|target|address_size)[^\n]*')
FUNCTION = re.compile(r'\s*(?:\.visible\s+|\.weak\s+)?\.(entry|func)\s*(?:\(([^)]*)\))?\s*([\w$]+)\s*\(([^)]*)\)\s*'
                      r'((?:\.\w+[^;{]*?)?)\s*([;{])')
VARIABLE = re.compile(r'(?:\.(?:extern|visible|weak)\s+)*\.(global|const|shared|local|param)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)'
                      r'\s+([\w$]+)(?:\[(\d*)\])?(?:\s*=\s*(.*))?$', re.S)
PARAMETER = re.compile(r'\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+'
                       r'(?:\.ptr\s+(?:\.\w+\s+)*(?:\.align\s+\d+\s+)?)?([\w$]+)(?:\[(\d+)\])?$')
SPACE = re.compile(r'\s*')
END = re.compile(r'[\0\s]*\Z')
LABEL = re.compile(r'\s*([$\w]+):(?!:)')
STATEMENT = re.compile(r'\s*([^;]*?)\s*;', re.S)
GUARD = re.compile(r'@(!?)(%\w+|\w+)\s+')
REGISTERS = re.compile(r'\.reg\s+\.(\w+)\s+(.*)$', re.S)


class Unknown(Exception):
    pass


def width(kind):
    """Bits of a type; of predicates 1."""
    if kind == 'pred':
        return 1
    match = re.fullmatch(r'[busf](8|16|32|64)', kind)
    if not match:
        raise Unknown('type .%s' % kind)
    return int(match.group(1))


class Variable:
    def __init__(self, text):
        match = VARIABLE.match(text)
        if not match:
            raise Unknown('declaration: %s' % text)
        self.space, align, self.kind, self.name, count, self.values = match.groups()
        self.align = int(align or width(self.kind) // 8)
        self.open = count == ''  # as large as the launch says
        self.bytes = width(self.kind) // 8 * int(count or 1)


class Parameter:
    def __init__(self, text):
        match = PARAMETER.match(text.strip())
        if not match:
            raise Unknown('parameter: %s' % text)
        align, kind, self.name, count = match.groups()
        self.array, self.align = count is not None, int(align or width(kind) // 8)
        self.bytes = width(kind) // 8 * int(count or 1)


class Function:
    """statements: ('open',), ('close',), ('label', name), ('reg', kind, names), ('var', Variable),
    ('do', guard, opcode, operands)."""
    def __init__(self, kind, result, name, params, bounds):
        most = re.search(r'\.maxntid\s+(\d+)', bounds)
        cluster = re.search(r'\.reqnctapercluster\s+(\d+)', bounds)
        self.cluster = int(cluster.group(1)) if cluster else 1
        self.bounded = re.search(r'\.(minnctapersm|maxnreg)\s', bounds) is not None
        self.entry, self.name, self.threads = kind == 'entry', name, int(most.group(1)) if most else 1024
        self.results = [Parameter(p) for p in (result or '').split(',') if p.strip()]
        self.params = [Parameter(p) for p in params.split(',') if p.strip()]
        self.statements = []


def split_operands(text):
    """At commas outside of braces, brackets and parentheses."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in '{[(') - (c in '}])')
        if c == ',' and not depth:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return parts + [last] if last or parts else []


def register_names(text):
    """%r<4> is %r0 .. %r3: the prefix and the count; others are names."""
    names = []
    for part in text.split(','):
        match = re.fullmatch(r'\s*(%?[\w$]+)(?:<(\d+)>)?\s*', part)
        if not match:
            raise Unknown('registers: %s' % text)
        names.append((match.group(1), int(match.group(2)) if match.group(2) else None))
    return names


def read_statement(text):
    if text.startswith('.reg'):
        match = REGISTERS.match(text)
        return ('reg', match.group(1), register_names(match.group(2)))
    if re.match(r'\.(?:pragma|loc)\s', text):
        return None
    if text.startswith('.'):
        return ('var', Variable(text))
    guard = GUARD.match(text)
    if guard:
        text = text[guard.end():]
    parts = text.split(None, 1)
    return ('do', guard.groups() if guard else None, parts[0], split_operands(parts[1]) if len(parts) > 1 else [])


def read_body(text, at, function):
    """From behind the opening brace; where the text goes on."""
    depth = 1
    while True:
        at = SPACE.match(text, at).end()
        if text[at] in '{}':
            depth += 1 if text[at] == '{' else -1
            at += 1
            if not depth:
                return at
            function.statements.append(('open',) if text[at - 1] == '{' else ('close',))
            continue
        match = LABEL.match(text, at)
        if match:
            function.statements.append(('label', match.group(1)))
        else:
            match = STATEMENT.match(text, at)
            statement = read_statement(match.group(1)) if match.group(1) else None
            if statement:
                function.statements.append(statement)
        at = match.end()


def read_module(text):
    """(functions, variables of the module)"""
    text = COMMENT.sub(' ', text)
    functions, variables, at = [], [], 0
    while not END.match(text, at):
        match = HEADER.match(text, at)
        if match:
            at = match.end()
            continue
        match = FUNCTION.match(text, at)
        if match:
            *head, end = match.groups()
            function = Function(*head)
            at = match.end()
            if end == '{':
                at = read_body(text, at, function)
                functions.append(function)
            continue
        match = STATEMENT.match(text, at)
        if not match:
            raise Unknown('text: %s' % text[at:at + 80].strip())
        if match.group(1):
            variables.append(Variable(match.group(1)))
        at = match.end()
    return functions, variables
