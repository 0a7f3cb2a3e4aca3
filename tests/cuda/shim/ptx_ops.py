# SPDX-License-Identifier: Apache-2.0
"""What PTX instructions do, as C statements: a table of patterns of opcodes with all their modifiers.

A handler gets the function at hand (ptx.Writer: names of registers, operands as C expressions, results), the match and
the operands. Registers are unsigned integers of their width; .s types are read as signed ones, .f32 and .f64 by their
bits. An opcode that no row matches as a whole is refused: nothing is computed by guess. Instructions of whole warps and
those that do not end at once stand in ptx_warp.py.
"""
import re

from ptx_read import Unknown, width

INT = r'(?P<t>[usb](?:16|32|64))'
FLOAT = r'(?P<t>f32|f64)'
C_TYPES = {'u': 'u%d', 'b': 'u%d', 's': 'i%d', 'f': 'f%d'}
ROWS = []


def c_type(kind):
    return 'b1' if kind == 'pred' else C_TYPES[kind[0]] % width(kind)


def op(pattern):
    def add(handler):
        ROWS.append((re.compile(pattern), handler))
        return handler
    return add


FOUND = {}


def find(opcode):
    """(handler, match)"""
    if opcode not in FOUND:
        for pattern, handler in ROWS:
            match = pattern.fullmatch(opcode)
            if match:
                FOUND[opcode] = handler, match
                break
        else:
            raise Unknown('instruction %s' % opcode)
    return FOUND[opcode]


def formula(pattern, text):
    """A row whose result and operands {a}, {b}, {c} are of type t; {T} is the C type, {n} its bits."""
    def handler(c, m, x):
        t = m.group('t')
        if len(x) != 1 + len(set(re.findall(r'\{([abc])\}', text))):
            raise Unknown('%d operands' % len(x))
        values = {name: c.value(x[i], t) for name, i in zip('abc', range(1, len(x)))}
        return c.store(x[0], t, text.format(T=c_type(t), n=width(t), **values))
    op(pattern)(handler)


# ---- integers ----

for name, sign in (('add', '+'), ('sub', '-')):
    formula(name + r'\.' + INT, '(u{n})(u{n}){a} %s (u{n}){b}' % sign)
    formula(name + r'(?:\.rn)?\.' + FLOAT, '{a} %s {b}' % sign)
formula(r'mul\.lo\.' + INT, '(u64){a} * (u64){b}')
formula(r'mul(?:\.rn)?\.' + FLOAT, '{a} * {b}')
formula(r'mul\.hi\.(?P<t>[us](?:16|32))', '((i64){a} * (i64){b}) >> {n}')
formula(r'mul\.hi\.(?P<t>u64)', '((unsigned __int128){a} * {b}) >> 64')
formula(r'mul\.hi\.(?P<t>s64)', '((__int128){a} * {b}) >> 64')
formula(r'mad\.lo\.' + INT, '(u64){a} * (u64){b} + (u64){c}')
formula(r'mad\.hi\.(?P<t>[us]32)', '(((i64){a} * (i64){b}) >> 32) + (i64){c}')
formula(r'div\.(?P<t>[us](?:16|32|64))',
        'ptx_divisor({b}) == 1 ? {a} : (i64){b} == -1 && ({T})-1 < 0 ? ({T})(0 - (u64){a}) : {a} / {b}')
formula(r'rem\.(?P<t>[us](?:16|32|64))', 'ptx_divisor({b}) == 1 || ((i64){b} == -1 && ({T})-1 < 0) ? 0 : {a} % {b}')
formula(r'neg\.(?P<t>s(?:16|32|64))', '0 - (u64){a}')
formula(r'abs\.(?P<t>s(?:16|32|64))', '{a} < 0 ? 0 - (u64){a} : (u64){a}')
formula(r'min\.(?P<t>[us](?:16|32|64))', '{a} < {b} ? {a} : {b}')
formula(r'max\.(?P<t>[us](?:16|32|64))', '{a} > {b} ? {a} : {b}')
formula(r'and\.(?P<t>b16|b32|b64|pred)', '{a} & {b}')
formula(r'or\.(?P<t>b16|b32|b64|pred)', '{a} | {b}')
formula(r'xor\.(?P<t>b16|b32|b64|pred)', '{a} ^ {b}')
formula(r'not\.(?P<t>b16|b32|b64)', '~{a}')
formula(r'not\.(?P<t>pred)', '!{a}')
formula(r'prmt\.(?P<t>b32)', 'ptx_prmt({a}, {b}, {c})')
formula(r'dp4a\.u32\.(?P<t>u32)', 'ptx_dp4a_u({a}, {b}, {c})')
formula(r'dp4a\.s32\.(?P<t>s32)', 'ptx_dp4a_s((u32){a}, (u32){b}, (u32){c})')
formula(r'dp2a\.lo\.u32\.(?P<t>u32)', '{c} + ({a} & 0xffff) * ({b} & 0xff) + ({a} >> 16) * ({b} >> 8 & 0xff)')
formula(r'dp2a\.hi\.u32\.(?P<t>u32)', '{c} + ({a} & 0xffff) * ({b} >> 16 & 0xff) + ({a} >> 16) * ({b} >> 24)')


@op(r'shl\.(?P<t>b16|b32|b64)')
@op(r'shr\.(?P<t>[usb](?:16|32|64))')
def shift(c, m, x):
    """Amounts are of 32 bits; the width or more leave 0, or the sign."""
    t, n = m.group('t'), width(m.group('t'))
    a, by = c.value(x[1], t), c.value(x[2], 'u32')
    if m.group(0).startswith('shl'):
        return c.store(x[0], t, '%s >= %d ? 0 : (u64)%s << %s' % (by, n, a, by))
    return c.store(x[0], t, '%s >> (%s >= %d ? %d : %s)' % (a, by, n, n - 1, by) if t[0] == 's' else
                   '%s >= %d ? 0 : %s >> %s' % (by, n, a, by))


@op(r'shf\.(l|r)\.(wrap|clamp)\.(?P<t>b32)')
def funnel(c, m, x):
    a, b, by = (c.value(v, 'u32') for v in x[1:])
    by = '(%s & 31)' % by if m.group(2) == 'wrap' else '(%s > 32 ? 32 : %s)' % (by, by)
    both = '((u64)%s << 32 | %s)' % (b, a)
    return c.store(x[0], 'b32', '(u32)(%s >> (32 - %s))' % (both, by) if m.group(1) == 'l' else '(u32)(%s >> %s)' % (both, by))


@op(r'bfe\.(?P<t>[us](?:32|64))')
def extract(c, m, x):
    t = m.group('t')
    a, at, n = c.value(x[1], t), c.value(x[2], 'u32'), c.value(x[3], 'u32')
    return c.store(x[0], t, 'ptx_bfe_%s(%s, %s, %s, %d)' % (t[0], a, at, n, width(t)))


@op(r'bfi\.(?P<t>b32|b64)')
def insert(c, m, x):
    t = m.group('t')
    a, b, at, n = c.value(x[1], t), c.value(x[2], t), c.value(x[3], 'u32'), c.value(x[4], 'u32')
    return c.store(x[0], t, 'ptx_bfi(%s, %s, %s, %s, %d)' % (a, b, at, n, width(t)))


@op(r'lop3\.(?P<t>b32)')
def lop3(c, m, x):
    table = int(x[4], 0)
    a, b, d = (c.value(v, 'b32') for v in x[1:4])
    terms = ['(%s%s & %s%s & %s%s)' % ('' if i & 4 else '~', a, '' if i & 2 else '~', b, '' if i & 1 else '~', d)
             for i in range(8) if table >> i & 1]
    return c.store(x[0], 'b32', ' | '.join(terms) or '0')


@op(r'(?P<o>popc|clz|bfind|brev)\.(?P<t>[bu](?:32|64))')
def count(c, m, x):
    t, o = m.group('t'), m.group('o')
    return c.store(x[0], t if o == 'brev' else 'u32', 'ptx_%s%d(%s)' % (o, width(t), c.value(x[1], t)))


@op(r'(?P<o>mul|mad)\.wide\.(?P<t>[us](?:16|32))')
def wide(c, m, x):
    t = m.group('t')
    big = t[0] + str(width(t) * 2)
    text = '(%s)%s * (%s)%s' % (c_type(big), c.value(x[1], t), c_type(big), c.value(x[2], t))
    if m.group('o') == 'mad':
        text = '(u64)(%s) + (u64)%s' % (text, c.value(x[3], big))
    return c.store(x[0], big, text)


@op(r'(?P<o>add|sub|mad\.lo|mad\.hi)(?P<first>c?)(?P<cc>\.cc)?\.(?P<t>[us]32)')
@op(r'(?P<o>mad)(?P<first>c)\.(?P<half>lo|hi)(?P<cc>\.cc)?\.(?P<t>[us]32)')
def carried(c, m, x):
    """Sums with the carry of the one before (c) or for the next one (.cc)."""
    o, t = m.group('o'), 'u32'
    if m.group('t') == 's32' and o.startswith('mad'):
        raise Unknown('instruction %s' % m.group(0))
    values = [c.value(v, t) for v in x[1:]]
    half = m.groupdict().get('half') or o[4:]
    if o.startswith('mad'):
        product = '(u64)%s * %s' % tuple(values[:2])
        values = ['(u32)(%s)' % product if half == 'lo' else '(u32)((%s) >> 32)' % product, values[2]]
    carry = ' %s carry' % ('-' if o == 'sub' else '+') if m.group('first') else ''
    text = '{ u64 sum = (u64)%s %s (u64)%s%s; ' % (values[0], '-' if o == 'sub' else '+', values[1], carry)
    text += c.store(x[0], t, '(u32)sum')
    return text + (' carry = (u32)(sum >> 32) & 1; }' if m.group('cc') else ' }')


# ---- floats ----

formula(r'fma\.rn\.(?P<t>f32)', 'fmaf({a}, {b}, {c})')
formula(r'fma\.rn\.(?P<t>f64)', 'fma({a}, {b}, {c})')
formula(r'neg\.' + FLOAT, '-{a}')
formula(r'abs\.(?P<t>f32)', 'fabsf({a})')
formula(r'abs\.(?P<t>f64)', 'fabs({a})')
formula(r'min\.(?P<t>f32)', 'fminf({a}, {b})')
formula(r'max\.(?P<t>f32)', 'fmaxf({a}, {b})')
formula(r'min\.(?P<t>f64)', 'fmin({a}, {b})')
formula(r'max\.(?P<t>f64)', 'fmax({a}, {b})')
formula(r'(?:min)\.NaN\.(?P<t>f32)', 'cy_min_f32({a}, {b})')
formula(r'(?:max)\.NaN\.(?P<t>f32)', 'cy_max_f32({a}, {b})')
formula(r'copysign\.(?P<t>f32)', 'copysignf({b}, {a})')  # the sign of the first
formula(r'copysign\.(?P<t>f64)', 'copysign({b}, {a})')
formula(r'div\.(?:rn|approx|full)\.(?P<t>f32)', '{a} / {b}')
formula(r'div\.rn\.(?P<t>f64)', '{a} / {b}')
formula(r'rcp\.(?:rn|approx)\.(?P<t>f32)', '1.f / {a}')
formula(r'rcp\.rn\.(?P<t>f64)', '1. / {a}')
formula(r'sqrt\.(?:rn|approx)\.(?P<t>f32)', 'sqrtf({a})')
formula(r'sqrt\.rn\.(?P<t>f64)', 'sqrt({a})')
formula(r'rsqrt\.approx\.(?P<t>f32)', '1.f / sqrtf({a})')
formula(r'(?:ex2)\.approx\.(?P<t>f32)', 'exp2f({a})')
formula(r'(?:lg2)\.approx\.(?P<t>f32)', 'log2f({a})')
FLUSHED = {'rcp': '1.f / {a}', 'div': '{a} / {b}', 'sqrt': 'sqrtf({a})', 'rsqrt': '1.f / sqrtf({a})', 'ex2': 'exp2f({a})',
           'lg2': 'log2f({a})'}
# of 64 bits: to 20 bits, as the ISA has it
formula(r'rcp\.approx\.ftz\.(?P<t>f64)', 'ptx_coarse(1. / {a})')
formula(r'rsqrt\.approx\.ftz\.(?P<t>f64)', 'ptx_coarse(1. / sqrt({a}))')


@op(r'(?P<o>rcp|div|sqrt|rsqrt|ex2|lg2)\.approx\.ftz\.f32')
def flushed(c, m, x):
    values = dict(zip('ab', ('ptx_ftz(%s)' % c.value(v, 'f32') for v in x[1:])))
    return c.store(x[0], 'f32', 'ptx_ftz(%s)' % FLUSHED[m.group('o')].format(**values))


@op(r'(?P<o>add|sub|mul|fma)\.(?P<r>rz|rm|rp)\.(?P<t>f32|f64)')
def rounded(c, m, x):
    t, values = m.group('t'), [c.value(v, m.group('t')) for v in x[1:]]
    if m.group('o') != 'fma':
        values = {'add': [values[0], '1', values[1]], 'sub': [values[0], '1', '-' + values[1]],
                  'mul': values + ['-0.f']}[m.group('o')]
    return c.store(x[0], t, 'ptx_fma_%s(%s, %s)' % (t, ', '.join(values), {'rz': 'FE_TOWARDZERO', 'rm': 'FE_DOWNWARD',
                                                                         'rp': 'FE_UPWARD'}[m.group('r')]))


@op(r'testp\.(?P<o>infinite|finite|notanumber|number)\.(?P<t>f32|f64)')
def test(c, m, x):
    a = c.value(x[1], m.group('t'))
    return c.store(x[0], 'pred', {'infinite': 'isinf(%s)', 'finite': 'isfinite(%s)', 'notanumber': 'isnan(%s)',
                                  'number': '!isnan(%s)'}[m.group('o')] % a)


# ---- choices ----

SIGNS = {'eq': '==', 'ne': '!=', 'lt': '<', 'le': '<=', 'gt': '>', 'ge': '>='}
UNSIGNED = {'lo': 'lt', 'ls': 'le', 'hi': 'gt', 'hs': 'ge'}


def comparison(c, how, t, a, b):
    a, b = c.value(a, t), c.value(b, t)
    if t[0] != 'f':
        return '%s %s %s' % (a, SIGNS[UNSIGNED.get(how, how)], b)
    either = '(isnan(%s) || isnan(%s))' % (a, b)
    if how in ('num', 'nan'):
        return '!%s' % either if how == 'num' else either
    if how in SIGNS:
        return '!%s && %s != %s' % (either, a, b) if how == 'ne' else '%s %s %s' % (a, SIGNS[how], b)
    if how[-1] == 'u' and how[:-1] in SIGNS:
        return '%s || %s %s %s' % (either, a, SIGNS[how[:-1]], b)
    raise Unknown('comparison %s' % how)


@op(r'setp\.(?P<how>\w+)(?:\.(?P<with>and|or|xor))?\.(?P<t>[usbf](?:16|32|64))')
def compare(c, m, x):
    both = x[0].split('|')
    text = '(%s)' % comparison(c, m.group('how'), m.group('t'), x[1], x[2])
    other = '!' + text
    if m.group('with'):
        sign, third = {'and': '&', 'or': '|', 'xor': '^'}[m.group('with')], c.value(x[3], 'pred')
        text, other = '%s %s %s' % (text, sign, third), '%s %s %s' % (other, sign, third)
    if len(both) == 1:
        return c.store(x[0], 'pred', text)
    return '{ b1 first = %s, second = %s; %s %s }' % (text, other, c.store(both[0], 'pred', 'first'),
                                                     c.store(both[1], 'pred', 'second'))


@op(r'selp\.(?P<t>[usbf](?:16|32|64))')
def select(c, m, x):
    t = 'b' + m.group('t')[1:]
    return c.store(x[0], t, '%s ? %s : %s' % (c.value(x[3], 'pred'), c.value(x[1], t), c.value(x[2], t)))


@op(r'slct\.(?P<t>[usbf](?:16|32|64))\.(?P<by>s32|f32)')
def choose(c, m, x):
    t = 'b' + m.group('t')[1:]
    return c.store(x[0], t, '%s >= 0 ? %s : %s' % (c.value(x[3], m.group('by')), c.value(x[1], t), c.value(x[2], t)))


# ---- moves and conversions ----

@op(r'mov\.(?P<t>pred|[usbf](?:16|32|64))')
def move(c, m, x):
    t = m.group('t')
    bits = t if t == 'pred' else 'b' + t[1:]
    if x[0][0] == '{' or x[1][0] == '{':
        packed, parts = (x[1], x[0]) if x[0][0] == '{' else (x[0], x[1])
        parts = c.elements(parts)
        n = width(t) // len(parts)
        if x[1][0] == '{':
            whole = ['(u64)%s << %d' % (c.value(p, 'b%d' % n), i * n) for i, p in enumerate(parts)]
            return c.store(packed, bits, ' | '.join(whole))
        value = c.value(packed, bits)
        return '{ u64 whole = %s; %s }' % (value, ' '.join(c.store(p, 'b%d' % n, 'whole >> %d' % (i * n))
                                                           for i, p in enumerate(parts) if p != '_'))
    return c.store(x[0], bits, c.value(x[1], bits))


INTEGERS = r'[us](?:8|16|32|64)'


@op(r'cvt\.(?P<d>%s)\.(?P<s>%s)' % (INTEGERS, INTEGERS))
def integer(c, m, x):
    return c.store(x[0], m.group('d'), c.value(x[1], m.group('s')))


@op(r'cvt\.r(?P<r>[nzmp])i(?P<ftz>\.ftz)?\.(?P<d>%s)\.(?P<s>f32|f64)' % INTEGERS)
def to_integer(c, m, x):
    """Beyond the ends: the ends; of NaN 0, and the smallest of 64 bits."""
    a = c.value(x[1], m.group('s'))
    if m.group('ftz'):
        a = 'ptx_ftz(%s)' % a
    whole = {'n': 'rint', 'z': 'trunc', 'm': 'floor', 'p': 'ceil'}[m.group('r')]
    return c.store(x[0], m.group('d'), 'ptx_to_%s(%s((f64)%s))' % (m.group('d'), whole, a))


@op(r'cvt\.r(?P<r>[nzmp])i\.(?P<d>f32|f64)\.(?P=d)')
def to_whole(c, m, x):
    whole = {'n': 'rint', 'z': 'trunc', 'm': 'floor', 'p': 'ceil'}[m.group('r')] + ('f' if m.group('d') == 'f32' else '')
    return c.store(x[0], m.group('d'), '%s(%s)' % (whole, c.value(x[1], m.group('d'))))


@op(r'cvt\.rn\.(?P<d>f32|f64)\.(?P<s>%s)' % INTEGERS)
@op(r'cvt\.rn\.(?P<d>f32)\.(?P<s>f64)')
@op(r'cvt\.(?P<d>f64)\.(?P<s>f32)')
def to_float(c, m, x):
    return c.store(x[0], m.group('d'), '(%s)%s' % (c_type(m.group('d')), c.value(x[1], m.group('s'))))


@op(r'cvt\.sat\.f32\.f32')
def saturated(c, m, x):
    return c.store(x[0], 'f32', 'ptx_sat(%s)' % c.value(x[1], 'f32'))


HALVES = {'f16': 'cy_enc_f16', 'bf16': 'cy_enc_bf16'}


@op(r'cvt\.rn\.(?P<h>f16|bf16)\.f32')
def to_half(c, m, x):
    return c.store(x[0], 'b16', '%s(%s)' % (HALVES[m.group('h')], c.value(x[1], 'f32')))


@op(r'cvt\.f32\.(?P<h>f16|bf16)')
def from_half(c, m, x):
    return c.store(x[0], 'f32', '%s(%s)' % (HALVES[m.group('h')].replace('enc', 'dec'), c.value(x[1], 'b16')))


@op(r'cvt\.rn\.(?P<h>f16|bf16)x2\.f32')
def to_halves(c, m, x):
    """The first operand goes to the upper half."""
    return c.store(x[0], 'b32', '(u32)%s(%s) << 16 | %s(%s)' % (HALVES[m.group('h')], c.value(x[1], 'f32'),
                                                               HALVES[m.group('h')], c.value(x[2], 'f32')))


FLOAT8 = {'e4m3': 'f8e4m3fn', 'e5m2': 'f8e5m2'}


@op(r'cvt\.rn\.satfinite\.(?P<t>e4m3|e5m2)x2\.f32')
def to_float8(c, m, x):
    """The first operand goes to the upper byte."""
    one = 'cy_sat_%s(%%s)' % FLOAT8[m.group('t')]
    return c.store(x[0], 'b16', '(u16)(%s << 8 | %s)' % (one % c.value(x[1], 'f32'), one % c.value(x[2], 'f32')))


@op(r'cvt\.rn\.f16x2\.(?P<t>e4m3|e5m2)x2')
def from_float8(c, m, x):
    one, v = 'cy_enc_f16(cy_dec_%s((u8)(%%s)))' % FLOAT8[m.group('t')], c.value(x[1], 'b16')
    return c.store(x[0], 'b32', '(u32)%s << 16 | %s' % (one % ('%s >> 8' % v), one % v))


@op(r'cvt\.rna\.tf32\.f32')
def to_tf32(c, m, x):
    return c.store(x[0], 'b32', 'ptx_tf32(%s)' % c.value(x[1], 'b32'))


# ---- memory ----

ELEMENT = r'(?P<t>[busf](?:8|16|32|64))'


@op(r'ld(?:\.relaxed\.gpu|\.volatile|\.weak)?(?:\.(?P<s>param|global|shared|local|const))?(?:::cta)?(?:\.nc)?'
    r'(?:\.L1::(?:no_allocate|evict_last))?(?:\.L2::(?:64|128|256)B)?(?:\.v(?P<v>[248]))?\.' + ELEMENT)
def load(c, m, x):
    t, names = m.group('t'), c.elements(x[0]) if m.group('v') else [x[0]]
    size = width(t) // 8
    at = c.address(x[1], m.group('s'), size * len(names), False)
    parts = ['%s v%d; memcpy(&v%d, at + %d, %d);' % (c_type('b' + t[1:]), i, i, i * size, size) for i in range(len(names))]
    parts += [c.store(n, t, 'v%d' % i if t[0] in 'bu' else '(%s)v%d' % (c_type(t), i) if t[0] == 's' else
                      'cy_f%d_bits(v%d)' % (size * 8, i)) for i, n in enumerate(names) if n != '_']
    return '{ const char *at = %s; %s }' % (at, ' '.join(parts))


@op(r'st(?:\.relaxed\.gpu|\.volatile|\.weak)?(?:\.(?P<s>param|global|shared|local))?(?:::cta)?(?:\.v(?P<v>[248]))?\.' + ELEMENT)
def save(c, m, x):
    t, values = m.group('t'), c.elements(x[1]) if m.group('v') else [x[1]]
    size, kind = width(t) // 8, 'b' + t[1:]
    at = c.address(x[0], m.group('s'), size * len(values), True)
    parts = ['{ %s v = %s; memcpy(at + %d, &v, %d); }' % (c_type(kind), c.value(v, kind), i * size, size)
             for i, v in enumerate(values)]
    return '{ char *at = %s; %s }' % (at, ' '.join(parts))


ATOMS = {'and': 'old & {b}', 'or': 'old | {b}', 'xor': 'old ^ {b}', 'exch': '{b}', 'add': 'old + {b}',
         'max': 'old > {b} ? old : {b}', 'min': 'old < {b} ? old : {b}', 'cas': 'old == {b} ? {c} : old'}


@op(r'(?P<r>atom|red)(?:\.relaxed)?(?:\.gpu)?(?:\.(?P<s>global|shared))?\.(?P<o>and|or|xor|exch|add|max|min|cas)\.' + ELEMENT)
def atom(c, m, x):
    t, rest = m.group('t'), x[2:] if m.group('r') == 'atom' else x[1:]
    at = c.address(x[1] if m.group('r') == 'atom' else x[0], m.group('s'), width(t) // 8, True)
    new = ATOMS[m.group('o')].format(**dict(zip('bc', (c.value(v, t) for v in rest))))
    result = c.store(x[0], t, 'old') if m.group('r') == 'atom' and x[0] != '_' else ''
    return '{ %s *at = (void *)%s, old = *at; *at = %s; %s }' % (c_type(t), at, new, result)


@op(r'cvta(?P<to>\.to)?\.(?P<s>global|shared|local|param|const)\.u64')
def convert_address(c, m, x):
    """From the space's own address to the generic one, or (.to) the other way round."""
    base = {'shared': '(u64)shim_dynamic', 'local': '- PTX_LOCAL', 'param': '- PTX_PARAM'}.get(m.group('s'), '0')
    return c.store(x[0], 'u64', '%s %s (%s)' % (c.value(x[1], 'u64'), '-' if m.group('to') else '+', base))


# ---- control ----

@op(r'bra(?:\.uni)?')
def branch(c, m, x):
    return c.jump(x[0])


@op(r'ret(?:\.uni)?')
@op(r'exit')
def leave(c, m, x):
    return 'return;'


@op(r'trap')
def stop(c, m, x):
    return 'shim_fault("trap", 0);'


@op(r'call(?:\.uni)?')
def call(c, m, x):
    """call (result), function, (arguments): the space for each of them is an array of bytes."""
    results = c.elements(x[0]) if x[0][0] == '(' else []
    rest = x[1:] if results else x
    spaces = results + (c.elements(rest[1]) if len(rest) > 1 else [])
    return '%s(%s);' % (c.function(rest[0]), ', '.join(c.space(v) for v in spaces))
