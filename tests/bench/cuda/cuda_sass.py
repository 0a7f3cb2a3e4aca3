# SPDX-License-Identifier: Apache-2.0
"""Warp instructions that a kernel executes, from its machine code: a model, where no device counts them.

In:  a cubin, and what --explain says of a kernel: its launch, tile, MFLOP that it multiplies, bytes that it moves.
Out: {kernel: Code}; Code.executed(Launch): instructions of one launch, all warps together.

An instruction counts once for each warp, times the turns of the loops around it. A loop is what a jump backwards repeats:
  - of the loops in which a kernel multiplies, the one with the largest part of products is the one that runs: kernels have
    others for operands that are not aligned, which count nothing. Its turns are those that do all the products.
  - the loop in which the tensor memory accelerator is given its orders has as many turns, by one warp.
  - any other loop has as many turns as it takes to move all bytes, one if it moves none.
What only calls reach (slow paths of divisions) counts nothing; both sides of a branch count.

Code.tile_clocks(launch, columns, steps) is what a tile takes of a kernel by tensor maps: (products, end). Its end is all instructions
that are in no loop of products, those of the loops that store whole sectors as often as they run, by the warps that have the tile, one a
clock for each quarter of a multiprocessor; products are those of codegen/cuda/matrix/pingpong.c.
"""
import collections
import re
import struct

PRODUCTS = {0x23c, 0x237, 0x27a, 0x9f0, 0x9f1, 0x9f3}  # HMMA, IMMA, QMMA, HGMMA, IGMMA, QGMMA
EIGHT_BITS = {0x237, 0x27a, 0x9f1, 0x9f3}              # .. of those types that have twice the rate of halves
FMA = {0x223, 0x823, 0xa23, 0xc23, 0x231, 0x226}       # FFMA, HFMA2, IDP
WARPGROUP = {0x9f0, 0x9f1, 0x9f3}
BRA, EXIT, TENSOR_LOAD = 0x947, 0x94d, {0x5b4, 0x3b4}
MEMORY = {0x381, 0x981, 0x386, 0x986, 0xfae}  # LDG, STG, LDGSTS
STORES, SHARED_LOADS = {0x386, 0x986}, {0x984}
ROWS_OF_WARP, PART = 16, 64   # of a tile's results on their way through shared memory
CACHE_BYTES = 5120 / 132      # that the second-level cache gives a multiprocessor in a clock
BYTES = [1, 1, 2, 2, 4, 8, 16, 16]
MULTIPLY_ADDS = {0x23c: 2048, 0x237: 4096, 0x27a: 4096}      # of a warp: m16n8k16, m16n8k32
Launch = collections.namedtuple('Launch', 'algorithm blocks threads tiles multiplies useful bytes')


def sections(path):
    """{kernel: [instruction as (low, high) 64 bits]}: code is in sections called .text.KERNEL, 16 bytes an instruction."""
    with open(path, 'rb') as f:
        data = f.read()
    at, size, count, names = struct.unpack_from('<Q10xHHH', data, 40)
    rows = [struct.unpack_from('<IIQQQQ', data, at + i * size) for i in range(count)]
    out = {}
    for name, _, _, _, offset, length in rows:
        begin = rows[names][4] + name
        text = data[begin:data.index(b'\0', begin)].decode()
        if text.startswith('.text.'):
            out[text[len('.text.'):]] = [struct.unpack_from('<QQ', data, offset + i) for i in range(0, length, 16)]
    return out


def signed(v, bits):
    return v - (1 << bits) if v >> (bits - 1) else v


class Code:
    def __init__(self, words, arch):
        self.words, self.arch = words, arch
        self.codes = [low & 0xfff for low, _ in words]
        self.live = self.reachable(0, range(len(self.codes)))
        self.loops = self.find_loops()

    def __len__(self):
        return len(self.words)

    def target(self, i):
        """The instruction that a BRA goes to; in units of bytes, from sm_90 on split in two fields."""
        low = self.words[i][0]
        distance = signed(low >> 32, 32)
        if self.arch >= 90:
            distance = ((distance >> 2) << 8 | (low >> 16 & 0xff)) * 4
        return i + 1 + distance // 16

    def always(self, i):
        return (self.words[i][0] >> 12 & 0xf) == 7  # @PT

    def reachable(self, first, within):
        """Instructions that follow `first` without leaving those of `within`, calls left out."""
        seen, todo = set(), [first]
        while todo:
            i = todo.pop()
            while i in within and i not in seen:
                seen.add(i)
                if self.codes[i] == BRA:
                    todo.append(self.target(i))
                if self.codes[i] in (BRA, EXIT) and self.always(i):
                    break
                i += 1
        return seen

    def find_loops(self):
        """Sets of instructions, one for each place that is jumped back to."""
        ends = {}
        for i in sorted(self.live):
            if self.codes[i] == BRA and self.target(i) < i:
                body = self.reachable(self.target(i), range(self.target(i), i + 1))
                if i in body:
                    ends[self.target(i)] = body
        return list(ends.values())

    def multiplies_bytes(self):
        return any(code in EIGHT_BITS for code in self.codes)

    def of(self, loop, codes):
        return sum(self.codes[i] in codes for i in loop)

    def moved(self, loop):
        """Bytes that a warp moves in a turn."""
        return sum(32 * BYTES[self.words[i][1] >> 9 & 7] for i in loop if self.codes[i] in MEMORY)

    def innermost(self, loop):
        return not any(o < loop for o in self.loops)

    def product_loops(self, products):
        return [loop for loop in self.loops if self.innermost(loop) and self.of(loop, products)]

    def turns_of_products(self, loop, products, launch, warps):
        tile = re.search(r'(\d+)x(\d+)x(\d+)', launch.algorithm)
        if launch.tiles or (launch.multiplies and not launch.algorithm.startswith('gemv')):
            m, n, k = (int(t) for t in tile.groups())
            if launch.tiles:  # columns of the tensor maps' tiles; 128 bytes of k
                m, n, k = 128, int(re.search(r'tma 128x(\d+)', launch.algorithm)[1]), 2 * k
            elif self.of(loop, WARPGROUP):  # two for each stage of 64 bytes, one or two stages in a turn
                k *= self.of(loop, WARPGROUP) / 2
            return launch.multiplies * 1e6 / 2 / (launch.blocks * m * n * k)
        each = 0
        for code in (self.codes[i] for i in loop):
            if code in products:
                each += 64 * int(tile[2]) * 16 / 4 if code in WARPGROUP else MULTIPLY_ADDS.get(code, 32)
        return max(1, launch.useful * 1e6 / 2 / (warps * each))

    @staticmethod
    def warps_of_tile(launch):
        """Warpgroups that multiply in turns have a tile each."""
        return 4 if 'ping-pong' in launch.algorithm else 8

    def tile_clocks(self, launch, columns, steps):
        loops = self.product_loops(PRODUCTS)
        best = max(loops, key=lambda loop: self.of(loop, PRODUCTS) / len(loop))
        tile = min((loop for loop in self.loops if loop > best), key=len)
        storing = [loop for loop in self.loops if loop < tile and self.innermost(loop) and self.of(loop, STORES)]
        whole = [loop for loop in storing if self.of(loop, STORES) <= 2] or storing
        end = len(tile - best - set().union(*storing))
        for loop in whole:
            end += len(loop) * ROWS_OF_WARP * PART / (32 * 4 * max(1, self.of(loop, SHARED_LOADS)))
        moved = 128 * (128 + (columns / 2 if columns >= 128 else columns))
        return steps * max(4 * columns, moved / CACHE_BYTES), end * self.warps_of_tile(launch) / 4

    def executed(self, launch):
        warps = launch.blocks * (self.warps_of_tile(launch) if launch.tiles else (launch.threads + 31) // 32)
        contraction = bool(re.match(r'matrix|fma|tiles|gemv|attention|narrow', launch.algorithm))
        products = PRODUCTS if any(code in PRODUCTS for code in self.codes) else FMA
        multiplying = self.product_loops(products) if contraction else []
        best = max(multiplying, key=lambda loop: self.of(loop, products) / len(loop), default=None)
        turns = self.turns_of_products(best, products, launch, warps) if best else 1
        # all bytes go through the loops that move some, inner ones of a nest alone
        moving = [loop for loop in self.loops if self.innermost(loop) and not contraction and self.moved(loop)]
        moved = sum(self.moved(loop) for loop in moving)
        total = 0
        for i in self.live:
            weight = warps
            for loop in self.loops:
                if i not in loop:
                    continue
                if loop is best:
                    weight *= turns
                elif loop in multiplying:
                    weight = 0
                elif self.of(loop, TENSOR_LOAD) and self.innermost(loop):
                    weight *= turns / self.warps_of_tile(launch)
                elif loop in moving:
                    weight *= max(1, launch.bytes / (warps * moved))
            total += weight
        return total


def read(path, arch):
    return {name: Code(words, arch) for name, words in sections(path).items()}
