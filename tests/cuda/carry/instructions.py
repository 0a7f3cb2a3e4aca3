# SPDX-License-Identifier: Apache-2.0
"""Instructions as the emulator of the tests does them, beside a device's.

    instructions.py --record FILE      here: FILE.npz gets what the mock driver's emulator computes (ptx.py, shim_ptx.c)
    instructions.py --against FILE     there: the device computes the same PTX; a line for each instruction

In:  CASES: an instruction's text, its registers, and how far results may be apart. libcuda.so.1: the mock's, or NVIDIA's.
Out: lines as device_test's --trace prints them. Numpy and Python are all that it needs.

Operands are in %r0.., one word a lane, results in %o0..: whatever the words mean. A case runs on 32 lanes and TURNS blocks of
random words, with the numbers' edges among them. Products of warpgroups need shared memory that is laid out for them: these
are compared as whole kernels (device_test.c).
"""
import argparse
import os
import re
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), 'bench', 'cuda'))
import cuda_device

TURNS, LANES = 16, 32
EDGES = [0, 1, 2, 31, 32, 33, 0x7fffffff, 0x80000000, 0xffffffff, 0x3f800000, 0xbf800000, 0x7f800000, 0xff800000, 0x7fc00000,
         0x00800000, 0x007fffff, 0x80000001, 0x4f000000, 0xcf000000, 0x33800000, 0x477fe000, 0x477ff000]
EXACT = 0
ULP = 'ulp'  # ('ulp', n)


def words(rng, n):
    out = rng.integers(0, 1 << 32, n, dtype=np.uint64).astype(np.uint32)
    edge = rng.random(n) < 0.4
    out[edge] = rng.choice(np.array(EDGES, np.uint32), int(edge.sum()))
    return out


def floats(rng, n):
    """f32 that are neither subnormal nor NaN."""
    return (rng.standard_normal(n) * 2.0 ** rng.integers(-12, 6, n)).astype(np.float32).view(np.uint32)


def small(kind):
    """Whole numbers whose products and sums are exact: two halves, four bytes or one TF32 a word."""
    def make(rng, n):
        if kind == 'f16':
            return rng.integers(-8, 9, 2 * n).astype(np.float16).view(np.uint32)
        if kind == 'bf16':
            return (rng.integers(-8, 9, 2 * n).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint32)
        if kind == 'e4m3':
            return rng.choice(np.array([0x00, 0x38, 0xb8, 0x40, 0xc0, 0x44, 0x30, 0xb0], np.uint8), 4 * n).view(np.uint32)
        if kind == 'tf32':
            return rng.integers(-8, 9, n).astype(np.float32).view(np.uint32)
        return rng.integers(0, 256, 4 * n).astype(np.uint8).view(np.uint32)
    return make


class Case:
    """text: instructions between operands %r0.. and results %o0..; makers: of each operand's words."""

    def __init__(self, name, text, makers, results=1, within=EXACT, least=75):
        self.name, self.text, self.makers, self.results, self.within, self.least = name, text, makers, results, within, least

    def inputs(self):
        rng = np.random.default_rng(sum(map(ord, self.name)))
        return np.stack([make(rng, TURNS * LANES) for make in self.makers])

    def ptx(self, name):
        """A kernel of that name, which reads operands from its first parameter and writes results to its second."""
        n, step = len(self.makers), 4 * TURNS * LANES
        lines = ['.visible .entry %s(.param .u64 %s_param_0, .param .u64 %s_param_1)' % (name, name, name), '.maxntid 32', '{',
                 '.reg .b32 %%r<%d>;' % n, '.reg .b32 %%o<%d>;' % self.results, '.reg .b32 %t<8>;', '.reg .b64 %d<6>;',
                 '.reg .b16 %h<4>;', '.reg .pred %p<4>;', '.shared .align 16 .b8 %s_room[512];' % name,
                 'ld.param.u64 %%d0, [%s_param_0];' % name, 'ld.param.u64 %%d1, [%s_param_1];' % name, 'mov.u32 %t0, %ctaid.x;',
                 'mov.u32 %t1, %tid.x;', 'mad.lo.u32 %t2, %t0, 32, %t1;', 'mul.wide.u32 %d2, %t2, 4;', 'add.s64 %d3, %d0, %d2;',
                 'add.s64 %d4, %d1, %d2;', 'mov.u32 %%t3, %s_room;' % name]
        lines += ['ld.global.u32 %%r%d, [%%d3+%d];' % (i, i * step) for i in range(n)]
        lines += [part.strip() + ';' for part in self.text.split(';') if part.strip()]
        lines += ['st.global.u32 [%%d4+%d], %%o%d;' % (i * step, i) for i in range(self.results)]
        return '\n'.join(lines + ['ret;', '}', ''])


def module(cases, arch):
    """PTX with a kernel k<number> for each (number, case)."""
    head = '// instructions one by one\n.version 8.0\n.target %s\n.address_size 64\n' % arch
    return (head + ''.join(case.ptx('k%d' % k) for k, case in cases)).encode() + b'\0'


def plain(text, results=1, within=EXACT, makers=None, least=75):
    operands = 1 + max(int(w) for w in re.findall(r'%r(\d)', text))
    return Case(text.split(' ')[0], text, makers or [words] * operands, results, within, least)


def registers(letter, first, n):
    return '{%s}' % ', '.join('%%%s%d' % (letter, first + i) for i in range(n))


def product(shape, types, kind, a, b, d='f32', c='f32', least=80):
    """mma.sync: a and b words of the operands, four (two) of the sum."""
    n = 2 if shape.startswith('m8') else 4
    made = {'f32': floats_small, 's32': small('s8')}[c]
    text = 'mma.sync.aligned.%s.row.col.%s.%s.%s %s, %s, %s, %s;' % (shape, d, types, c, registers('o', 0, n), registers('r', 0, a),
                                                                    registers('r', a, b), registers('r', a + b, n))
    return Case('mma.sync.%s.%s' % (shape, types), text, [small(kind)] * (a + b) + [made] * n, n, EXACT, least)


def floats_small(rng, n):
    return rng.integers(-64, 65, n).astype(np.float32).view(np.uint32)


# Where words are neither NaN nor out of the way, since a NaN's bits are not defined.
F = [floats] * 3
CASES = [
    *[plain(text) for text in (
        'shf.l.wrap.b32 %o0, %r0, %r1, %r2;', 'shf.r.clamp.b32 %o0, %r0, %r1, %r2;', 'shl.b32 %o0, %r0, %r1;', 'shr.s32 %o0, %r0, %r1;',
        'shr.u32 %o0, %r0, %r1;', 'lop3.b32 %o0, %r0, %r1, %r2, 0x96;', 'prmt.b32 %o0, %r0, %r1, %r2;', 'popc.b32 %o0, %r0;',
        'clz.b32 %o0, %r0;', 'bfind.u32 %o0, %r0;', 'brev.b32 %o0, %r0;', 'mul.lo.u32 %o0, %r0, %r1;', 'mul.hi.s32 %o0, %r0, %r1;',
        'mul.hi.u32 %o0, %r0, %r1;', 'mad.lo.s32 %o0, %r0, %r1, %r2;', 'dp4a.s32.s32 %o0, %r0, %r1, %r2;',
        'dp4a.u32.u32 %o0, %r0, %r1, %r2;', 'dp2a.lo.u32.u32 %o0, %r0, %r1, %r2;', 'add.cc.u32 %t4, %r0, %r1; addc.u32 %o0, %r2, 0;',
        'cvt.rni.s32.f32 %o0, %r0;', 'cvt.rmi.s32.f32 %o0, %r0;', 'cvt.rzi.u32.f32 %o0, %r0;', 'cvt.rn.f32.s32 %o0, %r0;',
        'cvt.rn.f32.u32 %o0, %r0;', 'setp.lt.f32 %p1, %r0, %r1; selp.u32 %o0, 1, 0, %p1;',
        'setp.neu.f32 %p1, %r0, %r1; selp.u32 %o0, 1, 0, %p1;', 'testp.infinite.f32 %p1, %r0; selp.u32 %o0, 1, 0, %p1;',
        'copysign.f32 %o0, %r0, %r1;', 'cvt.sat.f32.f32 %o0, %r0;', 'shfl.sync.bfly.b32 %o0, %r0, 5, 31, -1;',
        'shfl.sync.down.b32 %o0, %r0, 2, 31, -1;', 'shfl.sync.up.b32 %o0, %r0, 1, 0, -1;', 'shfl.sync.idx.b32 %o0, %r0, 15, 0x181f, -1;',
        'setp.gt.s32 %p1, %r0, 29; vote.sync.ballot.b32 %o0, %p1, -1;')],
    *[plain(text, makers=F[:1 + max(i for i in range(3) if '%%r%d' % i in text)]) for text in (
        'add.f32 %o0, %r0, %r1;', 'mul.f32 %o0, %r0, %r1;', 'fma.rn.f32 %o0, %r0, %r1, %r2;', 'fma.rp.f32 %o0, %r0, %r1, %r2;',
        'fma.rm.f32 %o0, %r0, %r1, %r2;', 'add.rz.f32 %o0, %r0, %r1;', 'div.rn.f32 %o0, %r0, %r1;', 'min.f32 %o0, %r0, %r1;',
        'max.f32 %o0, %r0, %r1;', 'cvt.rn.f16x2.f32 %o0, %r0, %r1;',
        'cvt.rn.f16.f32 %h0, %r0; cvt.f32.f16 %o0, %h0;')],
    *[plain(text, makers=F[:2], least=80) for text in ('cvt.rn.bf16x2.f32 %o0, %r0, %r1;', 'cvt.rna.tf32.f32 %o0, %r1;')],
    *[plain(text % t, makers=F[:2], least=89) for t in ('e4m3', 'e5m2') for text in (
        'cvt.rn.satfinite.%sx2.f32 %%h0, %%r0, %%r1; cvt.u32.u16 %%o0, %%h0;',
        'and.b32 %%t4, %%r0, 0xbfbfbfbf; add.u32 %%t4, %%t4, %%r1; and.b32 %%t4, %%t4, 0xbbbb; cvt.u16.u32 %%h0, %%t4; '
        'cvt.rn.f16x2.%sx2 %%o0, %%h0;')],
    *[plain(text, makers=F[:1 + ('%r1' in text)], within=(ULP, most)) for text, most in (
        ('ex2.approx.ftz.f32 %o0, %r0;', 4), ('rcp.approx.ftz.f32 %o0, %r0;', 2), ('div.full.f32 %o0, %r0, %r1;', 4),
        ('abs.f32 %t4, %r0; rsqrt.approx.f32 %o0, %t4;', 4), ('abs.f32 %t4, %r0; sqrt.rn.f32 %o0, %t4;', 0),
        ('abs.f32 %t4, %r0; sqrt.approx.f32 %o0, %t4;', 4))],
    Case('ldmatrix.x4', 'mad.lo.u32 %t4, %t1, 16, %t3;st.shared.v4.u32 [%t4], {%r0, %r1, %r2, %r3};bar.sync 0;'
         'ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%o0, %o1, %o2, %o3}, [%t4];', [words] * 4, 4),
    Case('ldmatrix.x4.trans', 'mad.lo.u32 %t4, %t1, 16, %t3;st.shared.v4.u32 [%t4], {%r0, %r1, %r2, %r3};'
         'bar.sync 0;ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%o0, %o1, %o2, %o3}, [%t4];', [words] * 4, 4),
    Case('cp.async', 'mad.lo.u32 %t4, %t1, 4, %t3;cp.async.ca.shared.global [%t4], [%d3], 4;'
         'cp.async.commit_group;cp.async.wait_group 0;bar.sync 0;xor.b32 %t5, %t1, 7;mad.lo.u32 %t4, %t5, 4, %t3;'
         'ld.shared.u32 %o0, [%t4];', [words], 1, least=80),
    product('m16n8k8', 'f16.f16', 'f16', 2, 1, least=75),
    product('m16n8k16', 'f16.f16', 'f16', 4, 2), product('m16n8k16', 'bf16.bf16', 'bf16', 4, 2),
    product('m16n8k8', 'tf32.tf32', 'tf32', 4, 2),
    product('m8n8k16', 's8.s8', 's8', 1, 1, 's32', 's32', 75), product('m8n8k16', 'u8.s8', 's8', 1, 1, 's32', 's32', 75),
    *[product('m16n8k32', types, 's8', 4, 2, 's32', 's32') for types in ('s8.s8', 'u8.s8', 's8.u8', 'u8.u8')],
    *[product('m16n8k32', types, 'e4m3', 4, 2, least=89) for types in ('e4m3.e4m3', 'e5m2.e4m3', 'e4m3.e5m2', 'e5m2.e5m2')],
]


class Machine:
    """What the driver at hand makes of the cases: all in one module, or each in its own where the driver refuses that."""

    def __init__(self):
        self.driver = cuda_device.Driver()
        self.stream, self.arch = self.driver.stream(), self.driver.arch()
        self.cases = [(k, case) for k, case in enumerate(CASES) if case.least <= self.driver.capability]
        try:
            self.module = self.driver.load(module(self.cases, self.arch))
        except cuda_device.Error:
            self.module = None

    def run(self, k, case):
        driver, data = self.driver, np.ascontiguousarray(case.inputs())
        size = 4 * TURNS * LANES * case.results
        at, to = driver.upload(data), driver.alloc(size)
        kernel = driver.function(self.module or driver.load(module([(k, case)], self.arch)), 'k%d' % k)
        driver.launch(kernel, TURNS, LANES, [at, to], self.stream)
        out = driver.download(to, size, self.stream).view(np.uint32).reshape(case.results, -1)
        for block in (at, to):
            driver.free(block)
        return out


def apart(case, got, want):
    """None, or the first difference in words."""
    if case.within == EXACT:
        bad = got != want
    else:
        a, b = got.view(np.int32).astype(np.int64), want.view(np.int32).astype(np.int64)
        bad = np.abs(a - b) > case.within[1]
    if not bad.any():
        return None
    result, i = np.argwhere(bad)[0]
    return '%d of %d differ, first: operands %s give 0x%08x, the emulator 0x%08x' % (
        bad.sum(), bad.size, ' '.join('0x%08x' % v for v in case.inputs()[:, i]), got[result, i], want[result, i])


def record(machine, path):
    np.savez_compressed(path, **{'%d %s' % (k, case.name): machine.run(k, case) for k, case in machine.cases})
    print('%d instructions recorded' % len(machine.cases))


def compare(machine, path, first):
    wanted, failed = np.load(path), 0
    for k, case in machine.cases:
        key = '%d %s' % (k, case.name)
        if k < first or key not in wanted.files:
            continue
        print('case %s' % key, flush=True)
        why = apart(case, machine.run(k, case), wanted[key])
        failed += why is not None
        print(why + '\nwrong %d' % k if why else 'right %d' % k, flush=True)
    return failed > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--record', metavar='FILE')
    parser.add_argument('--against', metavar='FILE')
    parser.add_argument('--trace', type=int, default=0, metavar='FROM', help='begins with this case')
    args = parser.parse_args()
    if args.record:
        record(Machine(), args.record)
    elif args.against:
        sys.exit(compare(Machine(), args.against, args.trace))
    else:
        parser.error('--record or --against')


if __name__ == '__main__':
    main()
