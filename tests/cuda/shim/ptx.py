# SPDX-License-Identifier: Apache-2.0
"""Translates PTX into GNU C that runs on the fibers of the shim: ptx.py IN.ptx OUT.c

A kernel becomes a function of 64-bit slots, a register a variable, an instruction a statement, a branch a goto. Shared
memory is what the launch asks for: variables of the kernel from 0 on, `<kernel>_shared` bytes of them, then the memory
whose size the launch says; its addresses are numbers from 0, generic ones those of the host. `<kernel>_threads` are what
a launch may have, `<kernel>_cluster` blocks of a cluster, `<kernel>_params` the parameters, the last `<kernel>_maps` of
them tensor maps. What is not known ends the program with the instruction and the kernel. Reading is ptx_read.py's matter,
instructions are ptx_ops.py's and ptx_warp.py's.
"""
import re
import sys

import ptx_ops
import ptx_read
import ptx_warp  # noqa: F401 (adds its rows to ptx_ops)
from ptx_read import Unknown, width

SPECIAL = {'%tid.x': 'CY_TID', '%ctaid.x': 'shim_block', '%nctaid.x': 'shim_blocks', '%laneid': '(CY_TID % 32)'}
NUMBER = re.compile(r'-?\d+U?$|-?0[xX][0-9a-fA-F]+U?$')
BITS = re.compile(r'0([fFdD])([0-9a-fA-F]+)$')
MAP_BYTES, MAP_ALIGN = 128, 64
PLACE = re.compile(r'\[\s*([%\w$]+)\s*(?:\+\s*(-?\d+))?\s*\]$')


def register_type(kind):
    return 'b1' if kind == 'pred' else 'u%d' % width(kind)


def c_name(name):
    return name.replace('%', '').replace('$', 'L_') + '_'


class Writer:
    """One function as C. Registers that products of warpgroups go on writing to are elements of `held`: those of the
    product and all that they are moved to before somebody waits."""
    def __init__(self, function, variables):
        self.f, self.out = function, []
        self.scopes, self.shared, self.declared = [{}], {}, {}
        self.written = set()  # registers, since the last fence of products
        self.passed = set()  # labels
        self.params = {p.name: p for p in function.params + function.results}
        self.module = {v.name: v for v in variables}
        self.shared_bytes = 0
        self.held = {name: i for i, name in enumerate(self.find_held())}
        self.nheld = len(self.held)
        self.place_shared(variables)

    def find_held(self):
        held, before = set(), -1
        instructions = [s for s in self.f.statements if s[0] == 'do']
        for s in instructions:
            if s[2].startswith('wgmma.mma_async'):
                held |= set(self.elements(s[3][0]))
        moves = [s[3] for s in instructions if s[2].startswith('mov.') and s[3][1][0] == '%']
        while held and len(held) != before:
            before = len(held)
            held |= {to for to, by in moves if by in held}
        return sorted(held)

    def place_shared(self, variables):
        inside = [s[1] for s in self.f.statements if s[0] == 'var' and s[1].space == 'shared']
        text = ' '.join(x for s in self.f.statements if s[0] == 'do' for x in s[3])
        used = [v for v in variables if v.space == 'shared' and re.search(r'(?<![\w$])%s(?![\w$])' % re.escape(v.name), text)]
        for v in sorted(inside + used, key=lambda v: v.open):
            at = -(-self.shared_bytes // v.align) * v.align
            self.shared[v.name] = at
            self.shared_bytes = at + v.bytes * (not v.open)
            if v.open:
                self.shared_bytes = at

    # ---- operands ----

    def elements(self, operand):
        if operand[0] not in '{([':
            raise Unknown('operand %s' % operand)
        return ptx_read.split_operands(operand[1:-1])

    def kind(self, name):
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None

    def register(self, name):
        return 'held[%d]' % self.held[name] if name in self.held else c_name(name)

    def symbol(self, name):
        """The address of a variable or parameter in its own space: those of a kernel's parameters and of local memory are
        no generic ones, and are told from them by a bit."""
        if name in self.shared:
            return '%du' % self.shared[name]
        if name in self.params:
            at = c_name(name) if self.params[name].array or not self.f.entry else '&' + c_name(name)
            return '(PTX_PARAM + (u64)%s)' % at
        if name in self.declared:
            return '(PTX_%s + (u64)%s)' % (self.declared[name], c_name(name))
        if name in self.module:
            return '(u64)%s' % c_name(name)
        raise Unknown('operand %s' % name)

    def value(self, operand, kind):
        c = ptx_ops.c_type(kind)
        if operand in SPECIAL:
            return '((%s)%s)' % (c, SPECIAL[operand])
        of = self.kind(operand)
        bits = BITS.match(operand)
        if of:
            if (of == 'pred') != (kind == 'pred') or (kind[0] == 'f' and width(of) != width(kind)):
                raise Unknown('operand %s as .%s' % (operand, kind))
            raw = self.register(operand)
        elif bits:
            raw = '0x%s%s' % (bits.group(2), 'ull' if bits.group(1) in 'dD' else 'u')
        elif NUMBER.match(operand) and kind[0] != 'f':
            raw = '%sll' % operand.rstrip('U') if int(operand.rstrip('U'), 0) < 1 << 63 else '%sull' % operand.rstrip('U')
        elif re.match(r'[\w$]+$', operand):
            raw = self.symbol(operand)
        else:
            raise Unknown('operand %s' % operand)
        return 'cy_f%d_bits(%s)' % (width(kind), raw) if kind[0] == 'f' else '((%s)%s)' % (c, raw)

    def store(self, name, kind, text):
        if name == '_':
            return ';'
        of = self.kind(name)
        if not of or (of == 'pred') != (kind == 'pred') or width(of) < width(kind):
            raise Unknown('result %s of .%s' % (name, kind))
        if kind[0] == 'f':
            if width(of) != width(kind):
                raise Unknown('result %s of .%s' % (name, kind))
            text = 'cy_bits_%s(%s)' % (kind, text)
        elif kind != 'pred':
            text = '(%s)(%s)' % (ptx_ops.c_type(kind), text)
        return '%s = %s;' % (self.register(name), text)

    def pointer(self, operand):
        """The number in brackets."""
        match = PLACE.match(operand)
        if not match:
            raise Unknown('address %s' % operand)
        base, offset = match.groups()
        of = self.kind(base)
        text = self.value(base, 'b%d' % width(of)) if of else self.symbol(base)
        return '(%s + %s)' % (text, offset) if offset else text

    def address(self, operand, space, size, written):
        if space in ('param', 'local'):
            return 'ptx_%s(%s, %d)' % (space, self.pointer(operand), size)
        how = {'shared': 'ptx_shared', None: 'ptx_generic'}.get(space, 'ptx_at')
        return '%s%s(%s, %d)' % (how, '_put' if written and how != 'ptx_at' else '', self.pointer(operand), size)

    def label(self, name):
        return 'to_' + c_name(name)

    def jump(self, name):
        """Back to where a loop begins, jumps are counted."""
        return '%sgoto %s;' % ('PTX_ROUND(); ' if name in self.passed else '', self.label(name))

    def function(self, name):
        return c_name(name)

    def space(self, name):
        """What a called function reads or writes: the bytes of a parameter."""
        return 'ptx_param(%s, 1)' % self.symbol(name)

    # ---- statements ----

    def declare(self, statement):
        kind, names = statement[1:]
        for prefix, n in names:
            for name in [prefix] if n is None else ['%s%d' % (prefix, i) for i in range(n)]:
                self.scopes[-1][name] = kind
        if len(self.scopes) > 1:
            self.line('%s %s;' % (register_type(kind), ', '.join(c_name(n) for n, _ in names)))

    def declare_used(self):
        """Of the function's own registers those that occur."""
        used = {}
        for s in self.f.statements:
            if s[0] == 'do':
                for x in s[3] + ([s[1][1]] if s[1] else []):
                    for name in re.findall(r'%?[\w$]+', x):
                        kind = self.scopes[0].get(name)
                        if kind and name not in self.held:
                            used.setdefault(register_type(kind), set()).add(name)
        return ['  %s %s;' % (c, ', '.join(sorted(c_name(n) for n in names))) for c, names in sorted(used.items())]

    def line(self, text):
        self.out.append('  ' + text)

    def variable(self, v):
        if v.space in ('local', 'param'):
            self.declared[v.name] = v.space.upper()
            self.line('_Alignas(16) char %s[%d];' % (c_name(v.name), v.bytes))
        elif v.space != 'shared':
            raise Unknown('variable in .%s' % v.space)

    def instruction(self, guard, opcode, operands):
        handler, match = ptx_ops.find(opcode)
        text = handler(self, match, operands)
        if guard:
            text = 'if (%s%s) { %s }' % (guard[0], self.value(guard[1], 'pred'), text)
        self.line(text)

    def check_fenced(self, opcode, operands):
        """What products add to or read is not written between their fence and them; the text is taken as it stands."""
        if opcode.startswith('wgmma.fence'):
            self.written = set()
        elif opcode.startswith('wgmma.mma_async'):
            own = [x for operand in operands[:2] if operand[0] == '{' for x in self.elements(operand)]
            late = sorted(self.written.intersection(own))
            if late:
                raise Unknown('%s is written behind the fence' % late[0])
        elif operands and not opcode.startswith(('st.', 'red.')):
            self.written.update(self.elements(operands[0]) if operands[0][0] == '{' else operands[:1])

    def statements(self):
        for s in self.f.statements:
            if s[0] == 'reg':
                self.declare(s)
            elif s[0] == 'var':
                self.variable(s[1])
            elif s[0] == 'open':
                self.scopes.append({})
                self.line('{')
            elif s[0] == 'close':
                self.scopes.pop()
                self.line('}')
            elif s[0] == 'label':
                self.passed.add(s[1])
                self.line('%s:;' % self.label(s[1]))
            else:
                try:
                    self.check_fenced(*s[2:])
                    self.instruction(*s[1:])
                except Unknown as e:
                    raise Unknown('%s: %s %s: %s' % (self.f.name, s[2], ', '.join(s[3]), e))

    def head(self):
        if self.f.entry:
            return 'void %s(%s)' % (self.f.name, ', '.join('u64 %s' % c_name(p.name) for p in self.f.params) or 'void')
        spaces = ', '.join('char *%s' % c_name(p.name) for p in self.f.results + self.f.params)
        return 'static void %s(%s)' % (c_name(self.f.name), spaces)

    def write(self, f):
        self.statements()
        if self.f.entry:
            for p in self.f.params:
                if p.array and (p.align < MAP_ALIGN or p.bytes != MAP_BYTES):
                    raise Unknown('%s: parameter %s is no tensor map' % (self.f.name, p.name))
            numbers = {'shared': self.shared_bytes, 'threads': self.f.threads, 'cluster': self.f.cluster, 'params': len(self.f.params),
                       'maps': sum(p.array for p in self.f.params)}
            f.write('const int %s;\n' % ', '.join('%s_%s = %d' % (self.f.name, *row) for row in numbers.items()))
        f.write('%s {\n' % self.head())
        own = self.declare_used()
        if self.held:
            own.append('  u32 held[%d];' % len(self.held))
        if any(s[0] == 'do' and re.match(r'(?:add|sub|mad)(?:c|.*\.cc)\.', s[2]) for s in self.f.statements):
            own.append('  u32 carry = 0;')
        f.write('\n'.join(own + self.out) + '\n}\n')


def write_variable(f, v):
    if v.space == 'shared':
        return
    values = v.values.strip() if v.values else None
    if v.space not in ('global', 'const') or (values and values[0] != '{'):
        raise Unknown('variable %s' % v.name)
    f.write('static _Alignas(16) %s %s[%d]%s;\n' % (register_type(v.kind), c_name(v.name), v.bytes // (width(v.kind) // 8),
                                                  ' = %s' % values if values else ''))


def main():
    with open(sys.argv[1], errors='replace') as f:
        functions, variables = ptx_read.read_module(f.read())
    with open(sys.argv[2], 'w') as f:
        f.write('#include "tests/cuda/shim/shim_ptx.h"\n\n')
        for v in variables:
            write_variable(f, v)
        writers = [Writer(function, variables) for function in functions]
        f.write(''.join('%s;\n' % w.head() for w in writers if not w.f.entry))
        for w in writers:
            w.write(f)


if __name__ == '__main__':
    try:
        main()
    except Unknown as e:
        sys.exit('ptx.py: %s' % e)
