# SPDX-License-Identifier: Apache-2.0
"""PTX instructions of whole warps and of asynchronous units, as C statements (see ptx_ops.py).

Operands stand in the order of the ISA; what the instructions do is in shim_ptx.c and behind the shim.
"""
from ptx_ops import op
from ptx_read import Unknown


def gather(c, name, operand, kind='b32'):
    """An array `name` of the registers of a list."""
    values = [c.value(v, kind) for v in c.elements(operand)]
    return 'u32 %s[%d] = {%s};' % (name, len(values), ', '.join(values))


def scatter(c, name, operand):
    return ' '.join(c.store(v, 'b32', '%s[%d]' % (name, i)) for i, v in enumerate(c.elements(operand)))


def count(c, operand, wanted):
    n = len(c.elements(operand))
    if n != wanted:
        raise Unknown('%d registers in place of %d' % (n, wanted))


# ---- barriers ----

@op(r'(?:bar|barrier)\.sync(?:\.aligned)?')
@op(r'bar\.warp\.sync')
def barrier(c, m, x):
    if m.group(0) == 'bar.warp.sync':
        return 'ptx_whole_warp(%s); shim_wait(SHIM_WARP);' % c.value(x[0], 'u32')
    if x != ['0']:
        raise Unknown('barrier %s' % x)
    return 'shim_wait(SHIM_BLOCK);'


@op(r'barrier\.cluster\.(?P<o>arrive\.(?:release|relaxed)|wait\.acquire)(?:\.aligned)?')
def cluster_barrier(c, m, x):
    """What stands between arriving and waiting is done before."""
    return 'ptx_cluster_%s(%s);' % (m.group('o').split('.')[0], '' if 'wait' in m.group('o') else int('release' in m.group('o')))


@op(r'mapa\.shared::cluster\.u32')
def map_shared(c, m, x):
    return c.store(x[0], 'u32', 'ptx_map_shared(%s, %s)' % (c.value(x[1], 'u32'), c.value(x[2], 'u32')))


@op(r'mbarrier\.arrive(?:\.release\.cluster)?\.shared::cluster\.b64')
def barrier_arrive_at(c, m, x):
    if x[0] != '_':
        raise Unknown('state of a barrier')
    return 'ptx_barrier_arrive_at(%s);' % c.pointer(x[1])


@op(r'setmaxnreg\.(?P<how>inc|dec)\.sync\.aligned\.u32')
def registers(c, m, x):
    if not c.f.bounded:
        raise Unknown('a kernel without .minnctapersm or .maxnreg')
    return 'ptx_registers(%d, %d);' % (m.group('how') == 'inc', int(x[0]))


@op(r'griddepcontrol\.(?:wait|launch_dependents)')
def dependent_launch(c, m, x):
    return ';'  # one kernel at a time


@op(r'membar\.(?:gl|cta|sys)')
@op(r'fence\.(?:sc|acq_rel)\.(?:gpu|cta|sys)')
def fence(c, m, x):
    return ';'


@op(r'shfl\.sync\.(?P<how>bfly|idx|down|up)\.b32')
def shuffle(c, m, x):
    to = x[0].split('|')
    a, b, clamp, mask = (c.value(v, 'u32') for v in x[1:])
    text = '{ b1 there; u32 got = ptx_shfl_%s(%s, %s, %s, %s, &there); ' % (m.group('how'), a, b, clamp, mask)
    text += c.store(to[0], 'b32', 'got')
    return text + (' ' + c.store(to[1], 'pred', 'there') if len(to) > 1 else '') + ' }'


@op(r'vote\.sync\.(?P<how>ballot\.b32|any\.pred|all\.pred)')
def vote(c, m, x):
    how, kind = m.group('how').split('.')
    text = 'ptx_ballot(%s, %s)' % (c.value(x[1], 'pred'), c.value(x[2], 'u32'))
    return c.store(x[0], kind, text + {'ballot': '', 'any': ' != 0', 'all': ' == 0xffffffffu'}[how])


# ---- matrices of a warp ----

@op(r'ldmatrix\.sync\.aligned\.m8n8\.x4(?P<transposed>\.trans)?\.shared(?:::cta)?\.b16')
def load_matrix(c, m, x):
    count(c, x[0], 4)
    return '{ u32 r[4]; cy_load_matrix%s(r, (void *)%s); %s }' % ('_transposed' if m.group('transposed') else '',
                                                            c.address(x[1], 'shared', 16, False), scatter(c, 'r', x[0]))


MMA = {'f16': 2, 'bf16': 2, 'tf32': 1, 'e4m3': 4, 'e5m2': 4, 's8': 4, 'u8': 4}
INTEGERS, FLOAT8 = ('s8', 'u8'), {'e4m3': 'f8e4m3fn', 'e5m2': 'f8e5m2'}


@op(r'mma\.sync\.aligned\.m(?P<m>8|16)n8k(?P<k>\d+)\.row\.col\.(?P<d>f32|s32)\.(?P<a>\w+)\.(?P<b>\w+)\.(?P=d)')
def mma(c, m, x):
    rows, k, a, b = int(m.group('m')), int(m.group('k')), m.group('a'), m.group('b')
    if a not in MMA or b not in MMA or (m.group('d') == 's32') != (a in INTEGERS) or (a != b and (MMA[a] < 4 or (a in INTEGERS) != (b in INTEGERS))):
        raise Unknown('instruction %s' % m.group(0))
    words = k // MMA[a]
    if words not in (4, 8) or (rows == 8 and a not in INTEGERS) or (words < 8 and a in FLOAT8):
        raise Unknown('instruction %s' % m.group(0))
    for operand, n in zip(x, (rows // 4, rows // 8 * words // 4, words // 4, rows // 4)):
        count(c, operand, n)
    return '{ %s %s %s ptx_mma_%s(%d, %d, d, a, b, ptx_of_%s, ptx_of_%s); %s }' % (
        gather(c, 'a', x[1]), gather(c, 'b', x[2]), gather(c, 'd', x[3]), m.group('d'), rows, words, a, b,
        scatter(c, 'd', x[0]))


# ---- copies ----

@op(r'cp\.async\.(?P<cache>cg|ca)\.shared(?:::cta)?\.global(?:\.L2::(?:64|128|256)B)?')
def copy(c, m, x):
    """Behind the size comes how many bytes there are, or a predicate that says that there are none."""
    size, function = {'cg': (16, 'cy_copy_async'), 'ca': (4, 'cy_copy_word')}[m.group('cache')]
    if x[2] != str(size):
        raise Unknown('copy of %s bytes' % x[2])
    given = str(size)
    if len(x) > 3:
        given = '%s ? 0 : %d' % (c.value(x[3], 'pred'), size) if c.kind(x[3]) == 'pred' else '(i32)' + c.value(x[3], 'u32')
    return '%s((void *)%s, (void *)%s, %s);' % (function, c.address(x[0], 'shared', size, True), c.pointer(x[1]), given)


@op(r'cp\.async\.(?P<o>commit_group|wait_group|wait_all)')
def copied(c, m, x):
    return {'commit_group': 'cy_copy_commit();', 'wait_group': 'CY_COPY_WAIT(%s);' % ''.join(x),
            'wait_all': 'cy_copy_commit(); CY_COPY_WAIT(0);'}[m.group('o')]


@op(r'cp\.async\.bulk\.tensor\.(?P<n>[235])d\.shared::(?:cluster|cta)\.global\.tile\.mbarrier::complete_tx::bytes'
    r'(?P<many>\.multicast::cluster)?')
def copy_tensor(c, m, x):
    """Behind the barrier come the blocks of the cluster, as bits."""
    source = c.elements(x[1])
    at = [c.value(v, 's32') for v in c.elements(source[1])]
    many = m.group('many') is not None
    if len(source) != 2 or len(at) != int(m.group('n')) or len(x) != 3 + many:
        raise Unknown('operands %s' % x)
    return 'ptx_tensor_load(%s, (void *)%s, (const void *)%s, (int[5]){%s}, (u64 *)%s);' % (
        c.value(x[3], 'u16') if many else '0', c.address(x[0], 'shared', 128, False), c.pointer('[%s]' % source[0]),
        ', '.join(at), c.address(x[2], 'shared', 8, True))


@op(r'prefetch\.tensormap')
def prefetch_map(c, m, x):
    c.pointer(x[0])
    return ';'


@op(r'fence\.proxy\.async(?:\.shared::cta)?')
def publish(c, m, x):
    return 'cy_publish();'


@op(r'fence\.mbarrier_init\.release\.cluster')
def barriers_there(c, m, x):
    return 'ptx_barriers_published();'


@op(r'mbarrier\.(?P<o>init|arrive|arrive\.expect_tx)(?:\.release\.cta)?\.shared(?:::cta)?\.b64')
def barrier_event(c, m, x):
    o, to = m.group('o'), 0 if m.group('o') == 'init' else 1
    if to and x[0] != '_':
        raise Unknown('state of a barrier')
    at = '(u64 *)' + c.address(x[to], 'shared', 8, True)
    more = ', (i32)' + c.value(x[to + 1], 'u32') if len(x) > to + 1 else ''
    if (o == 'arrive') != (not more):
        raise Unknown('operands %s' % x)
    return '%s(%s%s);' % ({'init': 'ptx_barrier_init', 'arrive': 'cy_barrier_arrive',
                           'arrive.expect_tx': 'cy_barrier_expect'}[o], at, more)


@op(r'mbarrier\.try_wait\.parity(?:\.acquire\.cta)?\.shared(?:::cta)?\.b64')
def barrier_wait(c, m, x):
    return '%s shim_barrier_wait((u64 *)%s, (i32)%s);' % (c.store(x[0], 'pred', '1'), c.address(x[1], 'shared', 8, True),
                                                    c.value(x[2], 'u32'))


# ---- products of warpgroups ----

@op(r'wgmma\.fence\.sync\.aligned')
def product_fence(c, m, x):
    return 'ptx_wgmma_fence();'


@op(r'wgmma\.commit_group\.sync\.aligned')
def product_commit(c, m, x):
    return 'ptx_wgmma_commit();'


@op(r'wgmma\.wait_group\.sync\.aligned')
def product_wait(c, m, x):
    return 'ptx_wgmma_wait(%s, held, %d);' % (x[0], c.nheld)


@op(r'wgmma\.mma_async\.sync\.aligned\.m64n(?P<n>\d+)k(?P<k>8|16|32)\.(?P<d>f32|s32)\.(?P<a>\w+)\.(?P<b>\w+)')
def product(c, m, x):
    """d, a, b, scale-d, of floats signs of a and b, and of halves: is a transposed (unless it lies in registers), is b."""
    n, a, b = int(m.group('n')), m.group('a'), m.group('b')
    float8, floats, in_registers = a in FLOAT8 and b in FLOAT8, m.group('d') == 'f32', x[1][0] == '{'
    if not (float8 and m.group('k') == '32' or
            (a == b and (a, m.group('k')) in (('f16', '16'), ('bf16', '16'), ('tf32', '8'))) if floats else
            a in INTEGERS and b in INTEGERS and m.group('k') == '32'):
        raise Unknown('instruction %s' % m.group(0))
    halves = floats and a != 'tf32' and not float8
    if n % 8 or n > 256 or len(x) != 4 + 2 * floats + (2 - in_registers if halves else 0):
        raise Unknown('operands of %s' % m.group(0))
    count(c, x[0], n // 2)
    if floats and x[4:6] != ['1', '1']:
        raise Unknown('sign %s of a factor' % x[4:6])
    turns = [int(v) for v in x[6:]] if halves else [0, 0]
    how = 'PTX_F32' if floats else 'PTX_S32'
    begin = '{ %s u32 *sums = ptx_wgmma_begin(%d, d, %s, %s); ' % (gather(c, 'd', x[0]), n // 2, c.value(x[3], 'pred'), how)
    if in_registers and halves:
        count(c, x[1], 4)
        text = '%s shim_wgmma_held(%d, shim_%s, (f32 *)sums, ptx_wgmma_kept(a), %s);' % (
            gather(c, 'a', x[1]), n, a, c.value(x[2], 'u64'))
        if turns != [1]:
            raise Unknown('a second factor that is not transposed, behind one in registers')
    elif float8 and not in_registers:
        text = 'shim_wgmma_float8(%d, shim_%s, shim_%s, 0, 0, (f32 *)sums, %s, %s);' % (
            n, FLOAT8[a], FLOAT8[b], c.value(x[1], 'u64'), c.value(x[2], 'u64'))
    elif floats and not in_registers:
        text = 'shim_wgmma(%d, shim_%s, %d, %d, (f32 *)sums, %s, %s);' % (
            n, a if halves else 'cut', turns[0], turns[1], c.value(x[1], 'u64'), c.value(x[2], 'u64'))
    elif in_registers:
        raise Unknown('a factor of %s in registers' % a)
    else:
        text = 'shim_wgmma_bytes(%d, shim_%s, shim_%s, 0, 0, (i32 *)sums, %s, %s);' % (
            n, a.replace('s', 'i'), b.replace('s', 'i'), c.value(x[1], 'u64'), c.value(x[2], 'u64'))
    return begin + text + ' ptx_wgmma_end(d, %d); %s }' % (n // 2, scatter(c, 'd', x[0]))
