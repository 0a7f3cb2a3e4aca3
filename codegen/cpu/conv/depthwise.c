/* SPDX-License-Identifier: Apache-2.0 */
/* depthwise.c - convolution of each channel with its own filter, or in groups of so few channels that a vector holds
 * several groups.
 *
 * Comes in: a cy_conv_desc with cy_depthwise_possible. Goes out: one phase, a task being some output rows. Vectors run
 * over output channels; a tile is TW outputs of a row, its sums in registers. Each input column of a kernel row is
 * loaded once and goes to all the sums it belongs to, so that loads stay below the two per cycle that fma needs. In
 * groups that happens for each of a group's inputs in turn, which a shuffle puts under the group's outputs. Kernel rows
 * outside the input are skipped. Where the width is constant, the tiles at the left and right border are emitted of
 * their own, without the columns outside; else such tiles (and the last of a row) read the columns outside from zeros.
 * Sums go from registers through the epilogue; where that has much arithmetic, or a tile's width is known at run time
 * only, they pass through a buffer in L1, CHUNK channels at a time.
 */
#include "conv_int.h"

#include <stdio.h>

#define CHUNK 256
#define MAX_TAPS 32 /* along a row */
#define MAX_TW 14
#define MAX_COLUMNS 160
#define MAX_OUTPUTS 8 /* of a group; its inputs are unrolled */
#define MAX_LANES 16

typedef struct dw {
  const cy_conv_desc *d;
  cy_axis axis[3];
  int64_t c, width;  /* output channels; padded to vectors */
  int64_t gin, gout; /* channels of a group */
  int tw;            /* outputs of a tile */
  int columns;       /* inputs of a tile */
  int64_t row_block; /* output rows of a task */
} dw;

bool cy_depthwise_possible(const cy_cg *cg, const cy_conv_desc *d) {
  int w = d->n_spatial - 1;
  int64_t gin = d->cin / d->groups, gout = d->cout / d->groups;
  return d->groups > 1 && gin <= gout && gout <= MAX_OUTPUTS && cg->W % gout == 0 && !d->transposed &&
         d->kernel[w] <= MAX_TAPS && (MAX_TW - 1) * d->stride[w] + (d->kernel[w] - 1) * d->dilation[w] < MAX_COLUMNS;
}

/* ---- the plan ---- */

/* The tile width that wastes least of a row; wider is better among equals. */
static int width_choose(const cy_cg *cg, int64_t ow, int64_t kernel) {
  int max = cg->registers == 32 ? MAX_TW : kernel > 5 ? 7 : 8, best = max;
  double waste = 1e9;
  for (int tw = max; ow && tw >= 4; tw--) {
    double w = (double)(cy_round_up(ow, tw)) + (max - tw) * 0.02 * (double)ow;
    if (w < waste) {
      waste = w;
      best = tw;
    }
  }
  return ow && ow < best ? (int)ow : best;
}

static dw plan_of(const cy_cg *cg, const cy_conv_desc *d) {
  dw p = {.d = d, .c = d->cout, .gin = d->cin / d->groups, .gout = d->cout / d->groups};
  p.width = cy_round_up(d->cout, cg->W);
  cy_conv_axes(d, 0, p.axis);
  const cy_axis *w = &p.axis[2];
  int64_t ow = cy_csize_known(w->out), width = ow ? ow : 64;
  p.tw = width_choose(cg, ow, w->count);
  p.columns = (int)((p.tw - 1) * w->step + (w->count - 1) * w->inc + 1);
  p.row_block = cy_cost_depthwise_rows(cg, (double)(cy_conv_taps(d) * width * p.c * p.gin));
  return p;
}

static void pack(const cy_cg *cg, const void *of, int64_t matrices, cy_arena *arena, cy_packing *out) {
  (void)matrices; /* groups are in the descriptor */
  const dw *p = of;
  (void)cg;
  const cy_conv_desc *d = p->d;
  int64_t taps = p->axis[0].count * p->axis[1].count * p->axis[2].count;
  cy_pack_layout l = {.groups = d->groups,
                      .n = p->gout,
                      .taps = taps,
                      .c = p->gin,
                      .tap_block = taps,
                      .c_block = p->gin,
                      .nr = (unsigned)p->width,
                      .depthwise = true,
                      .bytes = taps * p->gin * p->width * 4};
  cy_packing_single(out, arena, l, cy_conv_tap_map(d, 0, arena));
}

static V row_count(cy_cg *cg, const dw *p) {
  return cy_mul(cg, cy_size(cg, p->d->batch), cy_mul(cg, cy_size(cg, p->axis[0].out), cy_size(cg, p->axis[1].out)));
}
static V task_count(cy_cg *cg, const void *ctx) {
  const dw *p = ctx;
  return cy_ceil_div(cg, row_count(cg, p), cy_i64(cg, p->row_block));
}

/* ---- emission ---- */

/* One output row. lo, hi: the taps of axes 0 and 1 that lie inside; in: address of the input at (n, tap 0 of both, 0,
 * 0), which may lie outside. */
typedef struct line {
  V n, o[2], in, lo[2], hi[2];
  V out_width, in_width, stride[3]; /* bytes */
  V weights, buffer, zeros;
} line;

typedef enum check { CHECK_NONE, CHECK_KNOWN, CHECK_RUN } check;

/* A tile's outputs, and where its columns lie: offsets from the row; which are absent, or i1 whether they exist. */
typedef struct columns {
  int outputs;
  check check;
  V offset[MAX_COLUMNS], ok[MAX_COLUMNS];
  bool absent[MAX_COLUMNS];
  LLVMTypeRef type; /* of a vector of channels */
  V x0;             /* the first output */
} columns;

/* Input q of each output's group. */
static V column_load(cy_cg *cg, const dw *p, const line *l, const columns *c, int x, V row, V channel, int q) {
  V at = cy_add(cg, row, c->offset[x]);
  if (c->check == CHECK_RUN)
    at = cy_select(cg, c->ok[x], at, l->zeros);
  at = LLVMBuildIntToPtr(cg->b, at, cg->ptr, "");
  if (p->gout == 1)
    return cy_load(cg, c->type, cy_gepf(cg, at, channel), 4);
  unsigned lanes = LLVMGetVectorSize(c->type), inputs = lanes / (unsigned)p->gout * (unsigned)p->gin;
  V first = cy_mulc(cg, cy_div(cg, channel, cy_i64(cg, p->gout)), p->gin);
  V v = cy_load(cg, cy_vecf(cg, inputs), cy_gepf(cg, at, first), 4);
  int from[MAX_LANES];
  for (unsigned i = 0; i < lanes; i++)
    from[i] = (int)(i / p->gout * p->gin) + q;
  return cy_shuffle(cg, v, v, from, lanes);
}

/* One kernel row of inputs q: sums[] += its taps. */
static void emit_kernel_row(cy_cg *cg, const dw *p, const line *l, const columns *c, V row, V weights, V channel, int q,
                            V *sums) {
  const cy_axis *w = &p->axis[2];
  V tap[MAX_TAPS];
  for (int k = 0; k < w->count; k++)
    tap[k] = cy_load(cg, c->type, cy_gepc(cg, weights, (k * p->gin + q) * p->width * 4), 4);
  for (int x = 0; x < p->columns; x++) {
    V v = NULL;
    for (int k = 0; k < w->count; k++) {
      int64_t at = x - k * w->inc;
      if (at < 0 || at % w->step || at / w->step >= c->outputs || c->absent[x])
        continue;
      if (!v)
        v = column_load(cg, p, l, c, x, row, channel, q);
      sums[at / w->step] = cy_fma(cg, v, tap[k], sums[at / w->step]);
    }
  }
}

/* The epilogue's index of output x of the line, but for the channel. */
static unsigned line_index(cy_cg *cg, const dw *p, const line *l, V x0, V x, V *idx) {
  unsigned n = 0;
  idx[n++] = l->n;
  for (int i = 3 - p->d->n_spatial; i < 2; i++)
    idx[n++] = l->o[i];
  idx[n++] = cy_add(cg, x0, x);
  return n;
}

/* All taps for one vector of channels; results to the buffer, or with `to` NULL through the epilogue. */
static void emit_sums(cy_cg *cg, const dw *p, const line *l, const columns *c, V channel, V to) {
  V sums[MAX_TW];
  cy_loop k[2];
  unsigned n = (unsigned)c->outputs;
  for (unsigned i = 0; i < n; i++)
    sums[i] = LLVMConstNull(c->type);
  cy_loop_begin(cg, &k[0], l->lo[0], l->hi[0], cy_i64(cg, 1), sums, n);
  cy_loop_begin(cg, &k[1], l->lo[1], l->hi[1], cy_i64(cg, 1), k[0].v, n);
  V row = l->in;
  for (int i = 0; i < 2; i++)
    row = cy_add(cg, row, cy_mul(cg, cy_mulc(cg, k[i].iv, p->axis[i].inc), l->stride[i]));
  V number = cy_add(cg, cy_mulc(cg, k[0].iv, p->axis[1].count), k[1].iv);
  V weights =
      cy_gepf(cg, cy_gep(cg, l->weights, cy_mulc(cg, number, p->axis[2].count * p->gin * p->width * 4)), channel);
  for (unsigned i = 0; i < n; i++)
    sums[i] = k[1].v[i];
  for (int q = 0; q < p->gin; q++)
    emit_kernel_row(cg, p, l, c, row, weights, channel, q, sums);
  cy_loop_end(cg, &k[1], sums);
  cy_loop_end(cg, &k[0], k[1].out);
  for (unsigned i = 0; i < n; i++) {
    V idx[5];
    if (to) {
      cy_store(cg, k[0].out[i], cy_gepc(cg, to, i * CHUNK * 4), 4);
    } else {
      idx[line_index(cg, p, l, c->x0, cy_i64(cg, i), idx)] = channel;
      p->d->epilogue.emit(p->d->epilogue.ctx, cg, k[0].out[i], LLVMGetVectorSize(c->type), idx);
    }
  }
}

static void columns_fill(cy_cg *cg, const dw *p, const line *l, V x0, columns *c) {
  const cy_axis *w = &p->axis[2];
  V base = cy_addc(cg, cy_mulc(cg, x0, w->step), w->start);
  c->x0 = x0;
  for (int x = 0; x < p->columns; x++) {
    V column = cy_addc(cg, base, x);
    int64_t at;
    c->offset[x] = cy_mul(cg, column, l->stride[2]);
    c->ok[x] = cy_icmp(cg, LLVMIntULT, column, l->in_width);
    c->absent[x] = c->check == CHECK_KNOWN && cy_is_const(column, &at) && (at < 0 || at >= cy_csize_known(w->in));
  }
}

/* Where the sums of a vector of channels go. */
static V sums_at(cy_cg *cg, const line *l, V c0, V channel, bool buffered) {
  return buffered ? cy_gepf(cg, l->buffer, cy_sub(cg, channel, c0)) : NULL;
}

/* Channels [c0, end). */
static void emit_chunk_sums(cy_cg *cg, const dw *p, const line *l, V c0, V end, columns *c, bool buffered) {
  V whole = cy_imin(cg, end, cy_i64(cg, p->c / cg->W * cg->W));
  unsigned tail = (unsigned)(p->c % cg->W);
  cy_loop v;
  c->type = cg->vf;
  cy_loop_begin(cg, &v, c0, whole, cy_i64(cg, cg->W), NULL, 0);
  emit_sums(cg, p, l, c, v.iv, sums_at(cg, l, c0, v.iv, buffered));
  cy_loop_end(cg, &v, NULL);
  if (!tail)
    return;
  cy_if s; /* never read beyond the last channel: it may be the last float of the input */
  cy_if_begin(cg, &s, cy_icmp(cg, LLVMIntSLT, whole, end));
  c->type = cy_vecf(cg, tail);
  emit_sums(cg, p, l, c, whole, sums_at(cg, l, c0, whole, buffered));
  cy_if_end(cg, &s);
}

typedef struct place {
  const dw *p;
  const line *l;
  V x0;
} place;

static void row_index(void *ctx, cy_cg *cg, V row, V *idx) {
  const place *at = ctx;
  line_index(cg, at->p, at->l, at->x0, row, idx);
}

/* The tile at x0, `outputs` wide; CHECK_RUN: as far as the row reaches. */
static void emit_tile(cy_cg *cg, const dw *p, const line *l, V x0, int outputs, check check) {
  columns cols = {.outputs = outputs, .check = check};
  columns_fill(cg, p, l, x0, &cols);
  if (check != CHECK_RUN && !p->d->epilogue.heavy) {
    emit_chunk_sums(cg, p, l, cy_i64(cg, 0), cy_i64(cg, p->c), &cols, false);
    return;
  }
  V nx = check == CHECK_RUN ? cy_imin(cg, cy_i64(cg, outputs), cy_sub(cg, l->out_width, x0)) : cy_i64(cg, outputs);
  cy_loop c;
  cy_loop_begin(cg, &c, cy_i64(cg, 0), cy_i64(cg, p->c), cy_i64(cg, CHUNK), NULL, 0);
  V end = cy_imin(cg, cy_addc(cg, c.iv, CHUNK), cy_i64(cg, p->c));
  emit_chunk_sums(cg, p, l, c.iv, end, &cols, true);
  place at = {p, l, x0};
  cy_rows rows = {row_index, &at, (unsigned)p->d->n_spatial + 1};
  cy_epilogue_tile(cg, &p->d->epilogue, &rows, l->buffer, cy_i64(cg, CHUNK * 4), nx, cy_i64(cg, 0),
                   cy_sub(cg, end, c.iv), c.iv, (unsigned)(p->c % cg->W));
  cy_loop_end(cg, &c, NULL);
}

/* Is the tile at x0 full, all its columns existing? */
static bool inside(const dw *p, int64_t x0, int64_t outputs, int64_t width) {
  int64_t first = x0 * p->axis[2].step + p->axis[2].start;
  return first >= 0 && first + p->columns <= width && outputs == p->tw;
}

/* A row of constant width: border tiles on their own, a loop for those between. False when there are too many of them.
 */
static bool emit_known_row(cy_cg *cg, const dw *p, const line *l) {
  int64_t ow = cy_csize_known(p->axis[2].out), iw = cy_csize_known(p->axis[2].in), tw = p->tw, from = 0, to;
  if (!ow || !iw)
    return false;
  while (from < ow && !inside(p, from, ow - from < tw ? ow - from : tw, iw))
    from += tw;
  for (to = from; to < ow && inside(p, to, ow - to < tw ? ow - to : tw, iw);)
    to += tw;
  if (from / tw + cy_ceil(ow - (to < ow ? to : ow), tw) > 4)
    return false;
  for (int64_t x = 0; x < ow; x += tw)
    if (x < from || x >= to)
      emit_tile(cg, p, l, cy_i64(cg, x), (int)(ow - x < tw ? ow - x : tw), CHECK_KNOWN);
  if (to > from) {
    cy_loop x;
    cy_loop_begin(cg, &x, cy_i64(cg, from), cy_i64(cg, to), cy_i64(cg, tw), NULL, 0);
    emit_tile(cg, p, l, x.iv, p->tw, CHECK_NONE);
    cy_loop_end(cg, &x, NULL);
  }
  return true;
}

static void emit_unknown_row(cy_cg *cg, const dw *p, const line *l) {
  const cy_axis *w = &p->axis[2];
  cy_loop x;
  cy_loop_begin(cg, &x, cy_i64(cg, 0), l->out_width, cy_i64(cg, p->tw), NULL, 0);
  V first = cy_addc(cg, cy_mulc(cg, x.iv, w->step), w->start), last = cy_addc(cg, first, p->columns - 1);
  V in = cy_icmp(cg, LLVMIntSLT, last, l->in_width);
  in = LLVMBuildAnd(cg->b, cy_icmp(cg, LLVMIntSGE, first, cy_i64(cg, 0)), in, "");
  in = LLVMBuildAnd(cg->b, in, cy_icmp(cg, LLVMIntSLE, cy_addc(cg, x.iv, p->tw), l->out_width), "");
  cy_if s;
  cy_if_begin(cg, &s, in);
  emit_tile(cg, p, l, x.iv, p->tw, CHECK_NONE);
  cy_if_else(cg, &s);
  emit_tile(cg, p, l, x.iv, p->tw, CHECK_RUN);
  cy_if_end(cg, &s);
  cy_loop_end(cg, &x, NULL);
}

/* Taps of axis i inside the input for output o. */
static void emit_range(cy_cg *cg, const dw *p, int i, line *l) {
  const cy_axis *a = &p->axis[i];
  V pos = cy_addc(cg, cy_mulc(cg, l->o[i], a->step), a->start), zero = cy_i64(cg, 0), inc = cy_i64(cg, a->inc);
  V size = cy_size(cg, a->in);
  l->lo[i] = cy_div(cg, cy_addc(cg, cy_imax(cg, cy_sub(cg, zero, pos), zero), a->inc - 1), inc);
  V room = cy_imax(cg, cy_sub(cg, size, pos), zero);
  l->hi[i] = cy_imin(cg, cy_i64(cg, a->count), cy_ceil_div(cg, room, inc));
  l->in = cy_add(cg, l->in, cy_mul(cg, pos, l->stride[i]));
}

static void emit_row(cy_cg *cg, const dw *p, line *l, V input, V row) {
  V oh = cy_size(cg, p->axis[1].out), od = cy_size(cg, p->axis[0].out), rest = cy_div(cg, row, oh);
  l->o[1] = cy_mod(cg, row, oh);
  l->o[0] = cy_mod(cg, rest, od);
  l->n = cy_div(cg, rest, od);
  l->in = cy_add(cg, input, cy_mul(cg, l->n, cy_mulc(cg, cy_size(cg, p->d->in_n), 4)));
  emit_range(cg, p, 0, l);
  emit_range(cg, p, 1, l);
  if (!emit_known_row(cg, p, l))
    emit_unknown_row(cg, p, l);
}

CY_PLAN_MAKE(dw)

static void emit(cy_cg *cg, const void *of, const char *name) {
  const dw *p = of;
  const cy_conv_desc *d = p->d;
  cy_kernel_begin(cg, name, 0);
  cy_epilogue_open(&d->epilogue, cg);
  line l = {.out_width = cy_size(cg, p->axis[2].out),
            .in_width = cy_size(cg, p->axis[2].in),
            .weights = cy_arg_ptr(cg, d->b_slot),
            .buffer = cy_alloca(cg, p->tw * CHUNK * 4)};
  for (int i = 0; i < 3; i++)
    l.stride[i] = cy_mulc(cg, cy_size(cg, p->axis[i].in_stride), 4);
  l.zeros = LLVMBuildPtrToInt(cg->b, cy_zeros(cg, p->width * 4), cg->i64, "");
  V input = LLVMBuildPtrToInt(cg->b, cy_arg_ptr(cg, d->a_slot), cg->i64, "");
  V lo = cy_mulc(cg, cg->begin, p->row_block), hi = cy_imin(cg, cy_mulc(cg, cg->end, p->row_block), row_count(cg, p));
  cy_loop r;
  cy_loop_begin(cg, &r, lo, hi, cy_i64(cg, 1), NULL, 0);
  emit_row(cg, p, &l, input, r.iv);
  cy_loop_end(cg, &r, NULL);
  cy_fn_end(cg, NULL);
}

static void describe(const void *of, char *text, size_t size) {
  const dw *p = of;
  snprintf(text, size, "tile of %d outputs, tasks of %lld rows", p->tw, (long long)p->row_block);
}

const cy_generator cy_depthwise_generator = {.plan = plan_make,
                                             .pack = pack,
                                             .text = "conv depthwise",
                                             .describe = describe,
                                             .phase = {{"", NULL, emit, task_count}}};
