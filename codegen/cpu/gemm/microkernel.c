/* SPDX-License-Identifier: Apache-2.0 */
/* microkernel.c - micro-kernels (their inner loops: microkernel_run.c), the blocked loop around them, and the epilogue
 * of a tile; the scheme is described in microkernel.h.
 *
 * Comes in: a cy_microkernel of values computed by gemm.c, conv.c or winograd.c. Goes out: code for one task.
 * Rules the micro-kernel follows (measured): accumulators, NV vectors of B and one broadcast must fit the registers; K
 * is not unrolled; pointers and accumulators are phis; LLVM's unroller is off; `llvm.fma`. Weights that come from memory are
 * prefetched a group of panels ahead, some bytes with every k, while the rows of a task pass over the group before.
 * With AVX-512 products are so fast that other memory counts, too: rows of the next tile are prefetched in the same way
 * where weights are few, and what the epilogue reads and writes. On Sapphire Rapids that took 1x1 convolutions of 56x56
 * positions from 1.37 to 1.02 ms (256 to 64 channels) and from 1.39 to 1.21 ms (64 to 256, with a residual sum).
 */
#include "microkernel.h"
#include "ir/ir.h"

#include <stdio.h>
#include <string.h>

enum { UKERNEL_ARGS = 10, UKERNEL_MAX_ARGS = 13 };

/* ---- the micro-kernel ---- */

static cy_weights weights_of(int flags) {
  return flags & CY_UK_F16 ? CY_WEIGHTS_F16 : flags & CY_UK_BF16 ? CY_WEIGHTS_BF16 : CY_WEIGHTS_F32;
}

static int weights_flag(cy_weights w) { return w == CY_WEIGHTS_F32 ? 0 : w == CY_WEIGHTS_F16 ? CY_UK_F16 : CY_UK_BF16; }

/* Bytes of NR weights. */
static int64_t row_bytes(const cy_cg *cg, const cy_microkernel *k) {
  return (int64_t)k->tile.nv * cg->W * cy_weight_bytes(k->weights);
}

void cy_accumulators_begin(cy_cg *cg, unsigned mr, unsigned nv, V c, V ldc, V accumulate, V *v) {
  V zero = LLVMConstNull(cg->vf), loaded[CY_LOOP_MAX];
  LLVMBasicBlockRef before = LLVMGetInsertBlock(cg->b);
  cy_if s;
  cy_if_begin(cg, &s, accumulate);
  LLVMBasicBlockRef then = LLVMGetInsertBlock(cg->b);
  V p = c;
  for (unsigned i = 0; i < mr; i++, p = cy_gep(cg, p, ldc))
    for (unsigned j = 0; j < nv; j++)
      loaded[i * nv + j] = cy_load(cg, cg->vf, cy_gepc(cg, p, (int64_t)j * cg->W * 4), 4);
  cy_if_end(cg, &s);
  for (unsigned i = 0; i < mr * nv; i++) {
    v[i] = LLVMBuildPhi(cg->b, cg->vf, "");
    LLVMAddIncoming(v[i], &zero, &before, 1);
    LLVMAddIncoming(v[i], &loaded[i], &then, 1);
  }
}

void cy_accumulators_store(cy_cg *cg, unsigned mr, unsigned nv, V c, V ldc, const V *v) {
  for (unsigned i = 0; i < mr; i++, c = cy_gep(cg, c, ldc))
    for (unsigned j = 0; j < nv; j++)
      cy_store(cg, v[i * nv + j], cy_gepc(cg, c, (int64_t)j * cg->W * 4), 4);
}

/* i1: do all rows of a tap read what is to be skipped? */
static V all_skipped(cy_cg *cg, unsigned mr, V tab, V skip) {
  V differ = NULL;
  for (unsigned i = 0; i < mr; i++) {
    V d = LLVMBuildXor(cg->b, cy_load(cg, cg->i64, cy_gepc(cg, tab, i * 8), 8), skip, "");
    differ = differ ? LLVMBuildOr(cg->b, differ, d, "") : d;
  }
  return cy_icmp(cg, LLVMIntEQ, differ, cy_i64(cg, 0));
}

/* What kinds put behind the name of a kernel, and behind its arguments: pointers and numbers, in this order. */
static const struct {
  int flag;
  const char *name, *args;
} kinds[] = {{CY_UK_SKIP, "_skip", "i"},     {CY_UK_PREFETCH, "_prefetch", "pi"}, {CY_UK_STREAMS, "_streams", ""},
             {CY_UK_NEXT, "_next", "ppi"},   {CY_UK_MAXIMA, "_maxima", "p"},   {CY_UK_WEIGH, "_weigh", "pp"},
             {CY_UK_NATURAL, "_natural", ""}};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* How many arguments there are, params NULL or their types; name: what kinds add is appended. */
static unsigned ukernel_shape(cy_cg *cg, int flags, LLVMTypeRef *params, char *name) {
  unsigned n = UKERNEL_ARGS;
  for (int i = 0; i < KINDS; i++) {
    if (!(flags & kinds[i].flag))
      continue;
    if (name)
      strcat(name, kinds[i].name);
    for (const char *arg = kinds[i].args; *arg; arg++, n++)
      if (params)
        params[n] = *arg == 'p' ? cg->ptr : cg->i64;
  }
  return n;
}

/* Argument i of those that a kind adds. */
static V kind_param(cy_cg *cg, V fn, int flags, int kind, unsigned i) {
  return LLVMGetParam(fn, ukernel_shape(cg, flags & (kind - 1), NULL, NULL) + i);
}

void cy_rows_of_table(cy_cg *cg, V base, V tab, unsigned mr, V *row) {
  for (unsigned i = 0; i < mr; i++) {
    V entry = cy_load(cg, cg->i64, cy_gepc(cg, tab, i * 8), 8);
    row[i] = LLVMBuildIntToPtr(cg->b, LLVMBuildAdd(cg->b, base, entry, ""), cg->ptr, "");
  }
}

/* The taps. v: as for cy_run_emit, then the table's row of the tap. */
static void emit_taps(cy_cg *cg, V fn, unsigned mr, unsigned nv, int flags, V *v) {
  V base = LLVMGetParam(fn, 0), ldb = LLVMGetParam(fn, 4), full = LLVMGetParam(fn, 8), row[16];
  V skip = flags & CY_UK_SKIP ? kind_param(cg, fn, flags, CY_UK_SKIP, 0) : NULL;
  V prefetch = flags & CY_UK_PREFETCH ? kind_param(cg, fn, flags, CY_UK_PREFETCH, 1) : NULL;
  unsigned n = mr * nv, carried = n + 1 + (prefetch != NULL);
  cy_loop taps;
  cy_loop_begin(cg, &taps, cy_i64(cg, 0), LLVMGetParam(fn, 7), cy_i64(cg, 1), v, carried + 1);
  V tab = taps.v[carried], klen = full;
  cy_rows_of_table(cg, base, tab, mr, row);
  memcpy(v, taps.v, carried * sizeof *v);
  if (skip) /* no step of k, only on to the next tap's weights */
    klen = cy_select(cg, all_skipped(cg, mr, tab, skip), cy_i64(cg, 0), full);
  if (flags & CY_UK_NEXT) {
    V of[3];
    for (unsigned i = 0; i < 3; i++)
      of[i] = kind_param(cg, fn, flags, CY_UK_NEXT, i);
    const cy_next next = {of[0], of[1], of[2]};
    cy_run_next(cg, mr, nv, weights_of(flags), row, klen, ldb, &next, v);
  } else if (flags & CY_UK_MAXIMA && !cg->amx_bf16) { /* not tried where AMX multiplies */
    cy_run_next(cg, mr, nv, weights_of(flags), row, klen, ldb, NULL, v);
  } else if (flags & CY_UK_WEIGH) {
    V shifts = kind_param(cg, fn, flags, CY_UK_WEIGH, 0), sums = kind_param(cg, fn, flags, CY_UK_WEIGH, 1);
    const cy_weighing w = {shifts, sums, flags & CY_UK_NATURAL};
    cy_run_weigh(cg, mr, nv, row, klen, ldb, &w, v);
  } else if (flags & CY_UK_STREAMS)
    cy_run_streams(cg, mr, nv, weights_of(flags), row, klen, ldb, v);
  else
    cy_run_emit(cg, mr, nv, weights_of(flags), row, klen, ldb, prefetch, v);
  if (skip)
    v[n] = cy_gep(cg, taps.v[n], cy_mul(cg, full, ldb));
  v[carried] = cy_gep(cg, tab, LLVMGetParam(fn, 2));
  cy_loop_end(cg, &taps, v);
  memcpy(v, taps.out, carried * sizeof *v);
}

/* Of each row, lane by lane. */
static void emit_maxima(cy_cg *cg, unsigned mr, unsigned nv, V maxima, const V *v) {
  for (unsigned i = 0; i < mr; i++) {
    V at = cy_gepc(cg, maxima, i * cg->W * 4), top = cy_load(cg, cg->vf, at, 4);
    for (unsigned j = 0; j < nv; j++)
      top = cy_fmax(cg, v[i * nv + j], top);
    cy_store(cg, top, at, 4);
  }
}

/* void (i64 base, ptr tab, i64 tab_stride, ptr B, i64 ldb, ptr C, i64 ldc, i64 taps, i64 klen, i1 accumulate
 * [, i64 skip] [, ptr ahead, i64 prefetch_step] [, ptr next_rows, ptr next_sums, i64 next_step] [, ptr maxima]
 * [, ptr shifts, ptr sums]); bytes. Those in brackets: `kinds`. */
static V ukernel(cy_cg *cg, unsigned mr, unsigned nv, int flags) {
  char name[90];
  LLVMTypeRef params[UKERNEL_MAX_ARGS] = {cg->i64, cg->ptr, cg->i64, cg->ptr, cg->i64,
                                          cg->ptr, cg->i64, cg->i64, cg->i64, cg->i1};
  snprintf(name, sizeof name, "cyk_f32_%ux%u%s", mr, nv * cg->W, cy_weights_suffix(weights_of(flags)));
  unsigned args = ukernel_shape(cg, flags, params, name);
  V fn = cy_shared_find(cg, name);
  if (fn)
    return fn;
  cy_fn_state state = cy_fn_save(cg);
  fn = cy_fn_begin(cg, name, cg->voidt, params, args, CY_FN_SHARED | CY_FN_NOINLINE | CY_FN_NOALIAS);
  V c = LLVMGetParam(fn, 5), ldc = LLVMGetParam(fn, 6), v[CY_LOOP_MAX];
  unsigned n = mr * nv;
  cy_accumulators_begin(cg, mr, nv, c, ldc, LLVMGetParam(fn, 9), v);
  v[n] = LLVMGetParam(fn, 3);
  if (flags & CY_UK_PREFETCH)
    v[n + 1] = kind_param(cg, fn, flags, CY_UK_PREFETCH, 0);
  v[n + 1 + (flags & CY_UK_PREFETCH ? 1 : 0)] = LLVMGetParam(fn, 1);
  emit_taps(cg, fn, mr, nv, flags, v);
  if (flags & CY_UK_MAXIMA)
    emit_maxima(cg, mr, nv, kind_param(cg, fn, flags, CY_UK_MAXIMA, 0), v);
  cy_accumulators_store(cg, mr, nv, c, ldc, v);
  cy_fn_end(cg, NULL);
  cy_fn_restore(cg, state);
  return fn;
}

/* ---- the epilogue of a tile ---- */

typedef struct piece {
  const cy_epilogue *e;
  V *idx;
  unsigned n_idx;
  V c, col0;
} piece;

static void emit_piece(cy_cg *cg, const piece *p, V col, unsigned lanes) {
  p->idx[p->n_idx] = cy_add(cg, p->col0, col);
  p->e->emit(p->e->ctx, cg, cy_load(cg, cy_vecf(cg, lanes), cy_gepf(cg, p->c, col), 4), lanes, p->idx);
}

void cy_epilogue_tile(cy_cg *cg, const cy_epilogue *e, const cy_rows *rows, V c, V ldc, V mr, V row0, V cols, V col0,
                      unsigned tail_lanes) {
  unsigned W = cg->W;
  V whole = cy_mulc(cg, cy_div(cg, cols, cy_i64(cg, W)), W), idx[16], first = cy_i64(cg, 0);
  cy_loop r;
  if (e->together) {
    V some = cy_i64(cg, e->together), end = cy_mulc(cg, cy_div(cg, mr, some), e->together);
    cy_loop_begin(cg, &r, first, end, some, NULL, 0);
    rows->index(rows->ctx, cg, cy_add(cg, row0, r.iv), idx);
    piece several = {e, idx, rows->n_idx, cy_gep(cg, c, cy_mulc(cg, r.iv, e->flat * 4)), col0};
    emit_piece(cg, &several, cy_i64(cg, 0), e->together * e->flat);
    cy_loop_end(cg, &r, NULL);
    first = end;
  }
  cy_loop_begin(cg, &r, first, mr, cy_i64(cg, 1), NULL, 0);
  rows->index(rows->ctx, cg, cy_add(cg, row0, r.iv), idx);
  piece p = {e, idx, rows->n_idx, cy_gep(cg, c, cy_mul(cg, r.iv, ldc)), col0};
  cy_loop j;
  V from = cy_i64(cg, 0);
  for (unsigned wide = e->wide; wide > 1; wide = cg->model.lone_vectors && !e->all_wide ? wide / 2 : 0) {
    V lanes = cy_i64(cg, wide * W), end = cy_mul(cg, cy_div(cg, cols, lanes), lanes);
    cy_loop_begin(cg, &j, from, end, lanes, NULL, 0);
    emit_piece(cg, &p, j.iv, wide * W);
    cy_loop_end(cg, &j, NULL);
    from = end;
  }
  if (e->all_wide) {
    cy_loop_end(cg, &r, NULL);
    return;
  }
  cy_loop_begin(cg, &j, from, whole, cy_i64(cg, W), NULL, 0);
  emit_piece(cg, &p, j.iv, W);
  cy_loop_end(cg, &j, NULL);
  if (tail_lanes && tail_lanes < W) { /* the tail of the last panel, its lanes known */
    cy_if s;
    cy_if_begin(cg, &s, cy_icmp(cg, LLVMIntSLT, whole, cols));
    emit_piece(cg, &p, whole, tail_lanes);
    cy_if_end(cg, &s);
  } else if (tail_lanes == W) {
    cy_loop_begin(cg, &j, whole, cols, cy_i64(cg, 1), NULL, 0);
    emit_piece(cg, &p, j.iv, 1);
    cy_loop_end(cg, &j, NULL);
  }
  cy_loop_end(cg, &r, NULL);
}

/* ---- the blocked loops of a task ---- */

bool cy_microkernel_single(const cy_microkernel *k) {
  int64_t taps, c;
  return cy_is_const(k->taps, &taps) && cy_is_const(k->c, &c) && taps <= k->tap_block && c <= k->c_block;
}

/* One K block: taps [t0, t0+taps), channels [c0, c0+c). */
typedef struct kblock {
  V t0, taps, c0, c;
  V accumulate; /* i1 */
  V last;       /* i1 or constant */
  V next;       /* where the weights that come behind this block's panels begin; NULL: not known */
} kblock;

typedef struct panel {
  V b, ldb, valid, lane_tail; /* its weights, bytes from k to k; its columns; i1: fewer vectors than NV suffice */
  V ldc, col;
  V prefetch, prefetch_step; /* what is prefetched meanwhile, so many bytes per k; NULL: nothing */
  unsigned tail_nv;
} panel;

/* What a call of a micro-kernel chooses from. */
typedef struct choice {
  cy_tile tile;
  unsigned tails, tail_nv;
  V lane_tail;
  int flags;               /* CY_UK_* */
  unsigned streaming_rows; /* kernels of up to so many rows: CY_UK_STREAMS, too */
} choice;

/* Calls the micro-kernel of mr rows, narrow for the last panel when its columns need fewer vectors. */
static void call_kernel(cy_cg *cg, const choice *k, unsigned mr, V *args) {
  int flags = k->flags | (mr <= k->streaming_rows ? CY_UK_STREAMS : 0);
  V fn = ukernel(cg, mr, k->tile.nv, flags);
  LLVMTypeRef type = LLVMGlobalGetValueType(fn);
  if (k->tail_nv && k->tail_nv < k->tile.nv)
    fn = cy_select(cg, k->lane_tail, ukernel(cg, mr, k->tail_nv, flags), fn);
  LLVMBuildCall2(cg->b, type, fn, args, ukernel_shape(cg, k->flags, NULL, NULL), "");
}

static void emit_tile_call(cy_cg *cg, const choice *k, V mr, V *args) {
  unsigned MR = k->tile.mr;
  unsigned tails = k->tails & ~1u & ((1u << MR) - 1);
  if (!tails) {
    call_kernel(cg, k, MR, args);
    return;
  }
  LLVMBasicBlockRef join = LLVMAppendBasicBlockInContext(cg->ctx, cg->fn, "");
  LLVMBasicBlockRef full = LLVMAppendBasicBlockInContext(cg->ctx, cg->fn, "");
  V sw = LLVMBuildSwitch(cg->b, mr, full, MR);
  for (unsigned i = 1; i <= MR; i++) {
    if (i < MR && !(tails >> i & 1))
      continue;
    LLVMBasicBlockRef block = i == MR ? full : LLVMAppendBasicBlockInContext(cg->ctx, cg->fn, "");
    if (i < MR)
      LLVMAddCase(sw, cy_i64(cg, i), block);
    LLVMPositionBuilderAtEnd(cg->b, block);
    call_kernel(cg, k, i, args);
    LLVMBuildBr(cg->b, join);
  }
  LLVMPositionBuilderAtEnd(cg->b, join);
}

/* Are the weights so many that they come from beyond the second-level cache? */
static bool worth_prefetching(const cy_cg *cg, const cy_microkernel *k) {
  int64_t taps, c, panels;
  if (k->in_place || k->ints.bits || !cy_is_const(k->taps, &taps) || !cy_is_const(k->c, &c) ||
      !cy_is_const(k->panels, &panels))
    return false;
  return cy_cost_many_weights(cg, taps * c * panels * row_bytes(cg, k));
}

/* Tiles of up to so many rows, which are or may be all there are, read such weights as streams. */
static unsigned streaming_rows(const cy_cg *cg, const cy_microkernel *k) {
  int64_t rows;
  if (!cy_form_on(cg, CY_FORM_STREAMS) || !cg->model.streams || !worth_prefetching(cg, k))
    return 0;
  return cy_is_const(k->rows, &rows) && rows <= k->tile.mr ? k->tile.mr : 2;
}

/* One micro-kernel call: row r of tile row count mr, panel p, result to c. */
static void emit_product(cy_cg *cg, const cy_microkernel *k, const kblock *kb, const panel *p, V r, V mr, V c) {
  V tab = cy_gep(cg, k->tab, cy_add(cg, cy_mul(cg, kb->t0, k->tab_stride), cy_mulc(cg, r, 8)));
  V args[UKERNEL_MAX_ARGS] = {cy_add(cg, k->base, cy_mulc(cg, kb->c0, 4)),
                              tab,
                              k->tab_stride,
                              p->b,
                              p->ldb,
                              c,
                              p->ldc,
                              kb->taps,
                              kb->c,
                              kb->accumulate};
  choice from = {k->tile, k->tails, p->tail_nv, p->lane_tail, weights_flag(k->weights), streaming_rows(cg, k)};
  unsigned n = UKERNEL_ARGS;
  if (k->skip) {
    from.flags |= CY_UK_SKIP;
    args[n++] = k->skip;
  }
  if (p->prefetch) {
    from.flags |= CY_UK_PREFETCH;
    args[n++] = p->prefetch;
    args[n++] = p->prefetch_step;
  }
  emit_tile_call(cg, &from, mr, args);
}

/* Panel q: its weights at b, its columns. */
static panel panel_of(cy_cg *cg, const cy_microkernel *k, V b, V q) {
  int64_t NR = (int64_t)k->tile.nv * cg->W, n;
  panel p = {.b = b, .ldb = k->ldb, .col = cy_mulc(cg, q, NR)};
  p.valid = cy_imin(cg, cy_i64(cg, NR), cy_sub(cg, k->n, p.col));
  if (cy_is_const(k->n, &n))
    p.tail_nv = (unsigned)cy_ceil(n % NR, cg->W);
  p.lane_tail = cy_icmp(cg, LLVMIntSLE, p.valid, cy_i64(cg, (int64_t)p.tail_nv * cg->W));
  if (k->last) {
    V whole = cy_icmp(cg, LLVMIntEQ, p.valid, cy_i64(cg, NR));
    p.ldb = cy_select(cg, whole, k->ldb, cy_i64(cg, k->last * cy_weight_bytes(k->weights)));
  }
  return p;
}

/* ---- tiles in place: accumulators go from registers through the epilogue ---- */

enum { INLINE_DEPTH = 256, UNROLLED = 32 }; /* beyond, the epilogue does not matter; a loop is as fast */

/* The shape of panels: all but the last; the last one when it is not full. */
typedef struct shape {
  unsigned nv, lanes; /* vectors; lanes of the last one */
} shape;

static bool inline_possible(const cy_microkernel *k) {
  int64_t taps, c, n;
  return cy_is_const(k->taps, &taps) && cy_is_const(k->c, &c) && taps * c <= INLINE_DEPTH && (taps == 1 || !k->skip) &&
         !k->epilogue->heavy && cy_is_const(k->n, &n) && cy_microkernel_single(k);
}

/* Sums through the epilogue. */
static void emit_inline_epilogue(cy_cg *cg, const cy_microkernel *k, const panel *p, shape s, V r, const V *v) {
  unsigned last = k->index->n_idx - 1;
  V idx[16], col = cy_add(cg, k->col0, p->col);
  k->index->index(k->index->ctx, cg, r, idx);
  V first = idx[last];
  for (unsigned i = 0; i < k->tile.mr; i++) {
    if (k->row_bytes)
      idx[last] = cy_addc(cg, first, i);
    else
      k->index->index(k->index->ctx, cg, cy_addc(cg, r, i), idx);
    for (unsigned j = 0; j < s.nv; j++) {
      unsigned lanes = j + 1 < s.nv ? cg->W : s.lanes;
      V acc = v[i * s.nv + j];
      idx[last + 1] = cy_addc(cg, col, j * cg->W);
      k->epilogue->emit(k->epilogue->ctx, cg, lanes < cg->W ? cy_some_lanes(cg, acc, 0, lanes) : acc, lanes, idx);
    }
  }
}

/* The steps of one tap. */
static void emit_inline_steps(cy_cg *cg, const cy_microkernel *k, const panel *p, unsigned nv, const V *row, V *v) {
  int64_t depth = 0;
  cy_is_const(k->c, &depth);
  if (depth <= UNROLLED && !p->prefetch)
    cy_run_steps(cg, k->tile.mr, nv, k->weights, row, depth, p->ldb, v);
  else
    cy_run_emit(cg, k->tile.mr, nv, k->weights, row, k->c, p->ldb, p->prefetch ? p->prefetch_step : NULL, v);
}

/* What the epilogue will read and write in row i of a tile at r. */
static void emit_row_prefetch(cy_cg *cg, const cy_microkernel *k, const panel *p, unsigned nv, V r, unsigned i) {
  V idx[16], col = cy_add(cg, k->col0, p->col);
  unsigned last = k->index->n_idx - 1;
  k->index->index(k->index->ctx, cg, r, idx);
  idx[last] = cy_addc(cg, idx[last], i);
  for (unsigned j = 0; j < nv; j++) {
    idx[last + 1] = cy_addc(cg, col, j * cg->W);
    k->epilogue->prefetch(k->epilogue->ctx, cg, idx, true);
  }
}

/* The steps of a tile whose rows lie behind each other. Where there are enough of them, they are cut in as many pieces as
 * the tile has rows; while a piece is computed, what the epilogue wants of a row comes from memory: all at once would
 * keep weights from coming. Only tried with AVX-512. */
static void emit_dense_steps(cy_cg *cg, const cy_microkernel *k, const panel *p, unsigned nv, V r, V *row, V *v) {
  int64_t depth = 0, done = 0, mr = k->tile.mr;
  cy_is_const(k->c, &depth);
  if (!cg->model.prefetch || !k->epilogue->prefetch || depth <= UNROLLED) {
    emit_inline_steps(cg, k, p, nv, row, v);
    return;
  }
  for (int64_t i = 0; i < mr; i++) {
    int64_t steps = depth * (i + 1) / mr - done;
    emit_row_prefetch(cg, k, p, nv, r, (unsigned)i);
    cy_run_emit(cg, k->tile.mr, nv, k->weights, row, cy_i64(cg, steps), p->ldb, p->prefetch ? p->prefetch_step : NULL,
                v);
    for (int64_t j = 0; j < mr; j++)
      row[j] = cy_gepc(cg, row[j], steps * 4);
    done += steps;
  }
}

/* The taps of rows that lie where the table says. v: as for cy_run_emit. */
static void emit_inline_taps(cy_cg *cg, const cy_microkernel *k, const panel *p, unsigned nv, V r, V *v) {
  unsigned mr = k->tile.mr, carried = mr * nv + 1 + (p->prefetch != NULL);
  V row[16];
  cy_loop taps;
  v[carried] = cy_gep(cg, k->tab, cy_mulc(cg, r, 8));
  cy_loop_begin(cg, &taps, cy_i64(cg, 0), k->taps, cy_i64(cg, 1), v, carried + 1);
  cy_rows_of_table(cg, k->base, taps.v[carried], mr, row);
  memcpy(v, taps.v, carried * sizeof *v);
  emit_inline_steps(cg, k, p, nv, row, v);
  v[carried] = cy_gep(cg, taps.v[carried], k->tab_stride);
  cy_loop_end(cg, &taps, v);
  memcpy(v, taps.out, carried * sizeof *v);
}

/* MR rows from r on of one panel. */
static void emit_inline_tile(cy_cg *cg, const cy_microkernel *k, const panel *p, shape s, V r) {
  unsigned mr = k->tile.mr;
  V v[CY_LOOP_MAX], row[16];
  for (unsigned i = 0; i < mr * s.nv; i++)
    v[i] = LLVMConstNull(cg->vf);
  v[mr * s.nv] = p->b;
  v[mr * s.nv + 1] = p->prefetch;
  if (k->row_bytes) {
    V a = LLVMBuildIntToPtr(cg->b, cy_add(cg, k->base, cy_mulc(cg, r, k->row_bytes)), cg->ptr, "");
    for (unsigned i = 0; i < mr; i++)
      row[i] = cy_gepc(cg, a, i * k->row_bytes);
    emit_dense_steps(cg, k, p, s.nv, r, row, v);
  } else {
    emit_inline_taps(cg, k, p, s.nv, r, v);
  }
  emit_inline_epilogue(cg, k, p, s, r, v);
}

/* Panels done for a tile of rows before the next: their weights stay in the second-level cache, their accumulators in the
 * first. */
static int64_t group_choose(const cy_cg *cg, const cy_microkernel *k) {
  const int64_t columns = 256; /* of a tile's accumulators, which wait for the epilogue */
  int64_t cache = (int64_t)(k->ints.bits ? cg->model.converted_group : cg->model.panel_group);
  int64_t NR = (int64_t)k->tile.nv * cg->W, bytes = cy_block_depth(k) * row_bytes(cg, k), group = bytes ? cache / bytes : 1;
  if (group > columns / NR)
    group = columns / NR;
  if (group > k->cbuf_panels)
    group = k->cbuf_panels;
  return group < 1 || k->in_place ? 1 : group;
}

/* The groups of panels of a task, as emit_groups goes through them. */
typedef struct groups {
  const cy_microkernel *k;
  const kblock *kb;
  V b, panel_bytes;
  V stored, stored_bytes; /* the same of weights that are prefetched, which may have become floats since */
  int64_t group;          /* panels */
  V step;                 /* bytes per k of weights to prefetch, or NULL */
  V rows_step;            /* of the rows of the next tile, or NULL */
} groups;

/* Of the panel that comes as many panels later as a group has, what falls to tile r. Behind the last panels of a task
 * come those of its next block of K, or of the next task. */
static V weights_to_prefetch(cy_cg *cg, const groups *g, V r, V q) {
  const cy_microkernel *k = g->k;
  V at = cy_gep(cg, g->stored, cy_mul(cg, cy_addc(cg, q, g->group), g->stored_bytes));
  V part = cy_mul(cg, cy_div(cg, r, cy_i64(cg, k->tile.mr)), cy_mul(cg, cy_mul(cg, g->kb->taps, g->kb->c), g->step));
  if (g->kb->next) {
    V beyond = cy_addc(cg, cy_sub(cg, q, k->p1), g->group), within = cy_icmp(cg, LLVMIntSLT, beyond, cy_i64(cg, 0));
    at = cy_select(cg, within, at, cy_gep(cg, g->kb->next, cy_mul(cg, beyond, g->stored_bytes)));
  }
  return cy_gep(cg, at, part);
}

/* Of the tile of rows behind that of mr rows at r, what falls to panel q of those from q0 on. */
static V rows_to_prefetch(cy_cg *cg, const groups *g, V r, V mr, V q0, V q) {
  V at = cy_add(cg, g->k->base, cy_mulc(cg, cy_add(cg, r, mr), g->k->row_bytes));
  V part = cy_mul(cg, cy_sub(cg, q, q0), cy_mul(cg, g->k->c, g->rows_step));
  return LLVMBuildIntToPtr(cg->b, cy_add(cg, at, part), cg->ptr, "");
}

/* Panel q for the tile of mr rows at r, whose panels begin at q0. */
static panel group_panel(cy_cg *cg, const groups *g, V r, V mr, V q0, V q) {
  panel p = panel_of(cg, g->k, cy_gep(cg, g->b, cy_mul(cg, q, g->panel_bytes)), q);
  V weights = g->step ? weights_to_prefetch(cg, g, r, q) : NULL;
  V rows = g->rows_step ? rows_to_prefetch(cg, g, r, mr, q0, q) : NULL;
  p.prefetch = rows ? rows : weights;
  p.prefetch_step = rows ? g->rows_step : g->step;
  if (rows && weights) { /* rows come with the first group */
    V first = cy_icmp(cg, LLVMIntEQ, q0, g->k->p0);
    p.prefetch = cy_select(cg, first, rows, weights);
    p.prefetch_step = cy_select(cg, first, g->rows_step, g->step);
  }
  return p;
}

/* Bytes per k of the next tile's rows that each panel prefetches, where the hardware, which has to find each tile's
 * rows anew, would come too late: rows that lie behind each other, of a matrix that the second-level cache does not
 * hold, few panels being multiplied by each tile; more hide the wait, and the prefetches themselves take 2 % (tfswa_unet).
 * Of many weights only where they are there already: 1500 rows by 384x1536 took 23.0 ms without, 20.0 with, but 1536x384
 * 19.8 and 20.7 (Sapphire Rapids). NULL: not worth it. Only tried with AVX-512. */
static V rows_step_choose(cy_cg *cg, const cy_microkernel *k, int64_t group, bool many_weights) {
  int64_t c, panels, rows;
  if (!cg->model.prefetch || k->in_place || !cy_microkernel_single(k) || !cy_is_const(k->c, &c) || c <= UNROLLED ||
      k->row_bytes != c * 4)
    return NULL;
  if (many_weights && !(k->b_stays && k->a_bytes))
    return NULL;
  if ((k->a_bytes && k->a_bytes < cy_l2_part(cg, 1, 2)) || (cy_is_const(k->rows, &rows) && rows <= k->tile.mr))
    return NULL;
  if (cy_is_const(k->panels, &panels) && panels < group)
    group = panels;
  return group <= 2 ? cy_i64(cg, cy_ceil(k->tile.mr * 4, group)) : NULL;
}

/* What the epilogue will read for a panel of tile r, of mr rows. Asking for what it will write, too, made products with a
 * gelu behind them 3 % slower. Only tried with AVX-512. */
static void emit_output_prefetch(cy_cg *cg, const groups *g, const panel *p, V r, V mr) {
  const cy_microkernel *k = g->k;
  V idx[16], col = cy_add(cg, k->col0, p->col);
  if (!cg->model.prefetch || !k->epilogue->reads)
    return;
  cy_if last;
  cy_loop i;
  cy_if_begin(cg, &last, g->kb->last);
  cy_loop_begin(cg, &i, cy_i64(cg, 0), mr, cy_i64(cg, 1), NULL, 0);
  k->index->index(k->index->ctx, cg, cy_add(cg, r, i.iv), idx);
  for (unsigned j = 0; j < k->tile.nv; j++) {
    idx[k->index->n_idx] = cy_addc(cg, col, j * cg->W);
    k->epilogue->prefetch(k->epilogue->ctx, cg, idx, false);
  }
  cy_loop_end(cg, &i, NULL);
  cy_if_end(cg, &last);
}

/* Tile r of mr rows, panels [q0, end): accumulators in memory at c, then the epilogue over all of them. */
static void emit_stored_tile(cy_cg *cg, const groups *g, V r, V mr, V q0, V end, V c, V ldc) {
  const cy_microkernel *k = g->k;
  int64_t NR = (int64_t)k->tile.nv * cg->W, always;
  cy_loop q;
  cy_loop_begin(cg, &q, q0, end, cy_i64(cg, 1), NULL, 0);
  panel p = group_panel(cg, g, r, mr, q0, q.iv);
  p.ldc = ldc;
  emit_output_prefetch(cg, g, &p, r, mr);
  emit_product(cg, k, g->kb, &p, r, mr, cy_gep(cg, c, cy_mulc(cg, cy_sub(cg, q.iv, q0), NR * 4)));
  cy_loop_end(cg, &q, NULL);
  cy_if s;
  bool branch = !cy_is_const(g->kb->last, &always);
  if (branch)
    cy_if_begin(cg, &s, g->kb->last);
  V col = cy_mulc(cg, q0, NR), cols = cy_sub(cg, cy_imin(cg, k->n, cy_mulc(cg, end, NR)), col);
  cy_epilogue_tile(cg, k->epilogue, k->index, c, ldc, mr, r, cols, cy_add(cg, k->col0, col), k->tail_lanes);
  if (branch)
    cy_if_end(cg, &s);
}

/* The same for MR rows, whose accumulators stay in registers. */
static void emit_inline_tiles(cy_cg *cg, const groups *g, V r, V q0, V end) {
  const cy_microkernel *k = g->k;
  int64_t NR = (int64_t)k->tile.nv * cg->W, n = 0;
  cy_is_const(k->n, &n);
  V full = cy_i64(cg, n / NR), MR = cy_i64(cg, k->tile.mr);
  cy_loop q;
  if (n >= NR) {
    cy_loop_begin(cg, &q, q0, cy_imin(cg, end, full), cy_i64(cg, 1), NULL, 0);
    panel p = group_panel(cg, g, r, MR, q0, q.iv);
    emit_inline_tile(cg, k, &p, (shape){k->tile.nv, cg->W}, r);
    cy_loop_end(cg, &q, NULL);
  }
  if (n % NR) {
    cy_if s;
    cy_if_begin(cg, &s, cy_icmp(cg, LLVMIntSGT, end, full));
    panel p = group_panel(cg, g, r, MR, q0, full);
    unsigned nv = (unsigned)cy_ceil(n % NR, cg->W), rest = (unsigned)(n % cg->W);
    emit_inline_tile(cg, k, &p, (shape){nv, rest ? rest : cg->W}, r);
    cy_if_end(cg, &s);
  }
}

/* The core behind cy_widen_emit(). */
static cy_microkernel widened_micro(cy_cg *cg, const cy_microkernel *stored) {
  cy_microkernel k = *stored;
  k.weights = CY_WEIGHTS_F32;
  k.last = 0;
  k.ldb = cy_i64(cg, (int64_t)stored->tile.nv * cg->W * 4);
  return k;
}

int64_t cy_widened_bytes(cy_cg *cg, const cy_microkernel *stored) {
  if (!cy_widens(cg, stored))
    return 0;
  cy_microkernel k = widened_micro(cg, stored);
  return cy_round_up(cy_block_depth(&k) * k.tile.nv * cg->W * 4 * group_choose(cg, &k), 64);
}

/* Bytes per k of the weights that each tile of rows prefetches. None where rows are so few that they wait for memory: what
 * is asked for takes buffers of the first level, of which there are some twenty, and the hardware alone is faster
 * (gpt2_small, 8 rows, Zen 4: 25.1 to 22.4 ms). */
static V weights_step(cy_cg *cg, const cy_microkernel *k) {
  const int64_t few = 10 * cy_weight_bytes(k->weights) / 4;
  V tiles = cy_div(cg, cy_addc(cg, k->rows, k->tile.mr - 1), cy_i64(cg, k->tile.mr));
  V step = cy_addc(cg, cy_div(cg, cy_i64(cg, row_bytes(cg, k) - 1), tiles), 1);
  if (cg->model.prefetch_few)
    return step;
  return cy_select(cg, cy_icmp(cg, LLVMIntSLT, k->rows, cy_i64(cg, few)), cy_i64(cg, 0), step);
}

/* One K block: by groups of panels, tile by tile, so that the epilogue, which follows the last block, meets long runs
 * of each row: what it loads and stores then lies in streams that the hardware prefetches. */
static void emit_groups(cy_cg *cg, const cy_microkernel *stored, const kblock *kb, V b, V panel_bytes) {
  bool widened = cy_widens(cg, stored), single = cy_microkernel_single(stored);
  const cy_microkernel floats = widened_micro(cg, stored), *k = widened ? &floats : stored;
  int64_t NR = (int64_t)k->tile.nv * cg->W, MR = k->tile.mr;
  groups all = {.k = k,
                .kb = kb,
                .b = b,
                .panel_bytes = panel_bytes,
                .stored = b,
                .stored_bytes = panel_bytes,
                .group = group_choose(cg, k)};
  V ldc = cy_i64(cg, (single ? all.group : k->cbuf_panels) * NR * 4);
  V accumulators = single ? cy_alloca(cg, MR * all.group * NR * 4) : k->cbuf;
  if (widened)
    all.panel_bytes = cy_mulc(cg, cy_mul(cg, kb->taps, kb->c), NR * 4);
  if (worth_prefetching(cg, stored))
    all.step = weights_step(cg, stored);
  all.rows_step = rows_step_choose(cg, k, all.group, all.step);
  cy_loop g, r;
  cy_loop_begin(cg, &g, k->p0, k->p1, cy_i64(cg, all.group), NULL, 0);
  V end = cy_imin(cg, k->p1, cy_addc(cg, g.iv, all.group));
  if (widened) {
    V last = cy_icmp(cg, LLVMIntEQ, end, k->p1), on = cy_i64(cg, all.group * NR);
    V back = cy_mulc(cg, cy_sub(cg, k->p0, g.iv), NR);
    const cy_widening w = {.micro = stored,
                           .c0 = kb->c0,
                           .taps = kb->taps,
                           .c = kb->c,
                           .from = cy_gep(cg, b, cy_mul(cg, g.iv, panel_bytes)),
                           .q0 = g.iv,
                           .end = end,
                           .prefetch_columns = cy_select(cg, last, back, on),
                           .prefetch_rows = cy_select(cg, last, kb->c, cy_i64(cg, 0)),
                           .to = k->widened};
    cy_widen_emit(cg, &w);
    all.b = cy_gep(cg, k->widened, cy_sub(cg, cy_i64(cg, 0), cy_mul(cg, g.iv, all.panel_bytes)));
  }
  cy_loop_begin(cg, &r, cy_i64(cg, 0), k->rows, cy_i64(cg, MR), NULL, 0);
  V mr = r.step = cy_next_rows(cg, k->tile, cy_sub(cg, k->rows, r.iv)), c = accumulators;
  if (!single)
    c = cy_gep(cg, accumulators, cy_add(cg, cy_mul(cg, r.iv, ldc), cy_mulc(cg, cy_sub(cg, g.iv, k->p0), NR * 4)));
  cy_if s;
  bool in_registers = inline_possible(k);
  if (in_registers) {
    cy_if_begin(cg, &s, cy_icmp(cg, LLVMIntEQ, mr, cy_i64(cg, MR)));
    emit_inline_tiles(cg, &all, r.iv, g.iv, end);
    cy_if_else(cg, &s);
  }
  emit_stored_tile(cg, &all, r.iv, mr, g.iv, end, c, ldc);
  if (in_registers)
    cy_if_end(cg, &s);
  cy_loop_end(cg, &r, NULL);
  cy_loop_end(cg, &g, NULL);
}

/* Bytes of a k of all panels. */
static V all_bytes(cy_cg *cg, const cy_microkernel *k) {
  int64_t row = row_bytes(cg, k), gap = k->last ? row - k->last * cy_weight_bytes(k->weights) : 0;
  return cy_addc(cg, cy_mulc(cg, k->panels, row), -gap);
}

/* Where the weights begin that come behind the panels of a block of K, the one at k0: those of the next block, behind the
 * last one those of the panels behind the task's. Blocks are about equal. */
static V next_weights(cy_cg *cg, const cy_microkernel *k, const kblock *kb, V k0) {
  V all = cy_mul(cg, k->taps, k->c), max = cy_i64(cg, k->tap_block * k->c_block);
  V begin = cy_add(cg, k0, cy_mul(cg, kb->taps, kb->c)), depth = cy_imin(cg, max, cy_sub(cg, all, begin));
  V same = cy_add(cg, cy_mul(cg, begin, all_bytes(cg, k)), cy_mulc(cg, cy_mul(cg, k->p0, depth), row_bytes(cg, k)));
  V other = cy_mulc(cg, cy_mul(cg, k->p1, max), row_bytes(cg, k));
  return cy_gep(cg, k->b, cy_select(cg, kb->last, other, same));
}

void cy_microkernel_emit(cy_cg *cg, const cy_microkernel *k) {
  int64_t row = row_bytes(cg, k);
  V zero = cy_i64(cg, 0), yes = LLVMConstInt(cg->i1, 1, 0), no = LLVMConstInt(cg->i1, 0, 0);
  if (cy_microkernel_single(k)) {
    kblock kb = {.t0 = zero, .taps = k->taps, .c0 = zero, .c = k->c, .accumulate = no, .last = yes};
    V bytes = k->in_place ? cy_i64(cg, row) : cy_mulc(cg, cy_mul(cg, k->taps, k->c), row);
    emit_groups(cg, k, &kb, k->b, bytes);
    return;
  }
  cy_loop t, c;
  kblock kb = {0};
  V tb = cy_i64(cg, k->tap_block), cb = cy_i64(cg, k->c_block);
  cy_loop_begin(cg, &t, zero, k->taps, tb, NULL, 0);
  cy_loop_begin(cg, &c, zero, cy_imax(cg, k->c, cy_i64(cg, 1)), cb, NULL, 0); /* sums of nothing are stored, too */
  kb.t0 = t.iv;
  kb.taps = cy_imin(cg, tb, cy_sub(cg, k->taps, t.iv));
  kb.c0 = c.iv;
  kb.c = cy_imin(cg, cb, cy_sub(cg, k->c, c.iv));
  V k0 = cy_add(cg, cy_mul(cg, t.iv, k->c), cy_mul(cg, kb.taps, c.iv));
  kb.accumulate = cy_icmp(cg, LLVMIntNE, k0, zero);
  kb.last = cy_icmp(cg, LLVMIntEQ, cy_add(cg, k0, cy_mul(cg, kb.taps, kb.c)), cy_mul(cg, k->taps, k->c));
  if (!k->in_place)
    kb.next = next_weights(cg, k, &kb, k0);
  V before = cy_mul(cg, k0, k->in_place ? k->ldb : all_bytes(cg, k));
  V bytes = k->in_place ? cy_i64(cg, row) : cy_mulc(cg, cy_mul(cg, kb.taps, kb.c), row);
  emit_groups(cg, k, &kb, cy_gep(cg, k->b, before), bytes);
  cy_loop_end(cg, &c, NULL);
  cy_loop_end(cg, &t, NULL);
}

void cy_product_emit(cy_cg *cg, const cy_product *p) {
  V zero = cy_i64(cg, 0), MR = cy_i64(cg, p->tile.mr), a = LLVMBuildPtrToInt(cg->b, p->a, cg->i64, "");
  bool next = cg->model.prefetch && p->next_accumulators;
  const cy_weighing *w = p->weighing;
  int flags = next ? CY_UK_NEXT : p->prefetch ? CY_UK_PREFETCH : p->maxima ? CY_UK_MAXIMA : w ? CY_UK_WEIGH : 0;
  choice from = {p->tile, p->tails, 0, NULL, flags | (w && w->natural ? CY_UK_NATURAL : 0), 0};
  cy_loop r;
  cy_loop_begin(cg, &r, zero, p->rows, MR, NULL, 0);
  V args[UKERNEL_MAX_ARGS] = {cy_add(cg, a, cy_mulc(cg, r.iv, p->row_bytes)),
                              p->whole_tab ? cy_gep(cg, p->tab, cy_mulc(cg, r.iv, 8)) : p->tab,
                              zero,
                              p->b,
                              p->ldb ? p->ldb : cy_i64(cg, (int64_t)p->tile.nv * cg->W * 4),
                              cy_gep(cg, p->c, cy_mulc(cg, r.iv, p->ldc)),
                              cy_i64(cg, p->ldc),
                              cy_i64(cg, 1),
                              p->k,
                              p->accumulate ? p->accumulate : LLVMConstInt(cg->i1, 0, 0)};
  r.step = cy_next_rows(cg, p->tile, cy_sub(cg, p->rows, r.iv));
  V *more = args + UKERNEL_ARGS;
  if (next) {
    V row = cy_add(cg, r.iv, r.step), last = cy_icmp(cg, LLVMIntSGE, row, p->rows);
    more[0] = cy_select(cg, last, p->prefetch, cy_gep(cg, p->a, cy_mulc(cg, row, p->row_bytes)));
    more[1] = cy_select(cg, last, p->next_accumulators, cy_gep(cg, p->c, cy_mulc(cg, row, p->ldc)));
    more[2] = cy_i64(cg, cy_ceil(p->tile.mr * p->ldc * CY_RUN_STEPS * 4, p->row_bytes));
  } else if (p->prefetch) {
    more[0] = cy_gep(cg, p->prefetch, cy_mulc(cg, r.iv, p->row_bytes));
    more[1] = cy_i64(cg, p->tile.mr * 4);
  } else if (p->maxima) {
    more[0] = cy_gepf(cg, p->maxima, cy_mulc(cg, r.iv, cg->W));
  } else if (w) {
    more[0] = cy_gepf(cg, w->shifts, r.iv);
    more[1] = cy_gepf(cg, w->sums, cy_mulc(cg, r.iv, cg->W));
  }
  emit_tile_call(cg, &from, r.step, args);
  cy_loop_end(cg, &r, NULL);
}
