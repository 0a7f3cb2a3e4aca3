/* SPDX-License-Identifier: Apache-2.0 */
/* depthwise_float.c - depthwise convolution of floats, by fma, of channels with their own filters or of groups of so few
 * channels that a vector holds several groups.
 *
 * Comes in: a cy_conv_desc with cy_depthwise_possible. Goes out: the plan of depthwise.c, and products. Rows are read where they
 * lie, each kernel row for an output row of its own; kernel rows outside the input are skipped, columns outside are read
 * from zeros. In groups, each column is loaded for each of a group's inputs in turn, which a shuffle puts under the group's
 * outputs.
 */
#include "depthwise.h"

enum { MAX_TAPS = 32, MAX_COLUMNS = 160 };                           /* along a row; of a tile */
enum { MAX_OUTPUTS = 8, MAX_LANES = 16 };                            /* of a group, whose inputs are unrolled */
enum { MAX_TILE = 14, FEW_TILE = 8, LEAST_TILE = 7, LONG_ROW = 5 };  /* by 32 registers, by 16, for long kernel rows */

typedef struct floats {
  cy_depthwise all;
  int64_t width;     /* channels of weights, padded to vectors */
  int64_t gin, gout; /* channels of a group */
} floats;

typedef struct frame {
  cy_depthwise_frame all;
  const floats *p;
  V input, weights, zeros, stride[3]; /* stride: bytes */
  V row, lo[2], hi[2]; /* the input at tap 0 of axes 0 and 1, which may lie outside; their taps that lie inside */
} frame;

bool cy_depthwise_possible(const cy_cg *cg, const cy_conv_desc *d) {
  int w = d->n_spatial - 1;
  int64_t gin = d->cin / d->groups, gout = d->cout / d->groups;
  return d->groups > 1 && gin <= gout && gout <= MAX_OUTPUTS && cg->W % gout == 0 && !d->transposed &&
         d->kernel[w] <= MAX_TAPS && (MAX_TILE - 1) * d->stride[w] + (d->kernel[w] - 1) * d->dilation[w] < MAX_COLUMNS;
}

static void pack(const cy_cg *cg, const void *of, int64_t matrices, cy_arena *arena, cy_packing *out) {
  (void)matrices; /* groups are in the descriptor */
  (void)cg;
  const floats *p = of;
  const cy_conv_desc *d = p->all.d;
  int64_t taps = cy_conv_taps(d);
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

/* Taps of axis i inside the input for output o. */
static void emit_range(cy_cg *cg, frame *f, int i, V o) {
  const cy_axis *a = &f->p->all.axis[i];
  V pos = cy_addc(cg, cy_mulc(cg, o, a->step), a->start), zero = cy_i64(cg, 0), inc = cy_i64(cg, a->inc);
  f->lo[i] = cy_div(cg, cy_addc(cg, cy_imax(cg, cy_sub(cg, zero, pos), zero), a->inc - 1), inc);
  V room = cy_imax(cg, cy_sub(cg, cy_size(cg, a->in), pos), zero);
  f->hi[i] = cy_imin(cg, cy_i64(cg, a->count), cy_ceil_div(cg, room, inc));
  f->row = cy_gep(cg, f->row, cy_mul(cg, pos, f->stride[i]));
}

static void emit_row(cy_cg *cg, cy_depthwise_frame *of) {
  frame *f = (frame *)of;
  f->row = cy_gep(cg, f->input, cy_mul(cg, f->all.image, cy_mulc(cg, cy_size(cg, f->p->all.d->in_n), 4)));
  emit_range(cg, f, 0, f->all.o[0]);
  emit_range(cg, f, 1, f->all.o[1]);
}

/* A kernel row for a vector of channels, and input q of each output's group. */
typedef struct kernel_row {
  const frame *f;
  const cy_depthwise_tile *t;
  LLVMTypeRef type; /* of the vector */
  V row, channel, tap[MAX_TAPS];
  int q;
} kernel_row;

static V column_load(cy_cg *cg, const void *ctx, int group, int64_t x) {
  (void)group;
  const kernel_row *r = ctx;
  const floats *p = r->f->p;
  const cy_axis *w = &p->all.axis[2];
  V at = cy_gep(cg, cy_gep(cg, r->row, r->t->first), cy_mulc(cg, r->f->all.column_bytes, x));
  if (r->t->border == CY_BORDER_CHECKED) {
    V column = cy_addc(cg, cy_mulc(cg, r->t->x0, w->step), w->start + x);
    at = cy_select(cg, cy_icmp(cg, LLVMIntULT, column, cy_size(cg, w->in)), at, r->f->zeros);
  }
  if (p->gout == 1)
    return cy_load(cg, r->type, cy_gepf(cg, at, r->channel), 4);
  unsigned lanes = LLVMGetVectorSize(r->type), inputs = lanes / (unsigned)p->gout * (unsigned)p->gin;
  V first = cy_mulc(cg, cy_div(cg, r->channel, cy_i64(cg, p->gout)), p->gin);
  V v = cy_load(cg, cy_vecf(cg, inputs), cy_gepf(cg, at, first), 4);
  int from[MAX_LANES];
  for (unsigned i = 0; i < lanes; i++)
    from[i] = (int)(i / p->gout * p->gin) + r->q;
  return cy_shuffle(cg, v, v, from, lanes);
}

static V tap_add(cy_cg *cg, const void *ctx, V acc, V column, int use, int64_t tap) {
  (void)use;
  const kernel_row *r = ctx;
  return cy_fma(cg, column, r->tap[tap], acc);
}

static void accumulate(cy_cg *cg, const cy_depthwise_frame *of, const cy_depthwise_tile *t, V channel, unsigned lanes, V *acc) {
  const frame *f = (const frame *)of;
  const floats *p = f->p;
  const cy_axis *a = p->all.axis;
  unsigned n = (unsigned)t->outputs;
  kernel_row r = {.f = f, .t = t, .type = cy_vecf(cg, lanes), .row = f->row, .channel = cy_add(cg, f->all.c0, channel)};
  cy_loop k[2];
  for (unsigned i = 0; i < n; i++)
    acc[i] = LLVMConstNull(r.type);
  cy_loop_begin(cg, &k[0], f->lo[0], f->hi[0], cy_i64(cg, 1), acc, n);
  cy_loop_begin(cg, &k[1], f->lo[1], f->hi[1], cy_i64(cg, 1), k[0].v, n);
  for (int i = 0; i < 2; i++)
    r.row = cy_gep(cg, r.row, cy_mul(cg, cy_mulc(cg, k[i].iv, a[i].inc), f->stride[i]));
  V number = cy_add(cg, cy_mulc(cg, k[0].iv, a[1].count), k[1].iv);
  V weights = cy_gepf(cg, cy_gep(cg, f->weights, cy_mulc(cg, number, a[2].count * p->gin * p->width * 4)), r.channel);
  for (unsigned i = 0; i < n; i++)
    acc[i] = k[1].v[i];
  for (; r.q < p->gin; r.q++) {
    for (int64_t x = 0; x < a[2].count; x++)
      r.tap[x] = cy_load(cg, r.type, cy_gepc(cg, weights, (x * p->gin + r.q) * p->width * 4), 4);
    cy_depthwise_add(cg, &p->all, t, &r, acc);
  }
  cy_loop_end(cg, &k[1], acc);
  cy_loop_end(cg, &k[0], k[1].out);
  for (unsigned i = 0; i < n; i++)
    acc[i] = k[0].out[i];
}

static const cy_depthwise_kind kind = {.row_block = emit_row, .accumulate = accumulate, .load = column_load, .add = tap_add};

/* Channels of a block: such that blocks are equal, as another one is more code; or all of them. */
static int64_t block_choose(const cy_cg *cg, int64_t channels) {
  int64_t max = (int64_t)cg->model.depthwise_block, n = max;
  while (n > max / 2 && channels % n)
    n -= cg->W;
  return n > max / 2 ? n : channels <= 2 * max ? channels : max;
}

static floats plan_of(const cy_cg *cg, const cy_conv_desc *d) {
  floats p = {.all = {.kind = &kind, .d = d, .by = CY_DEPTHWISE_FMA, .block = block_choose(cg, d->cout), .rows = 1, .groups = 1, .uses = 1},
              .width = cy_round_up(d->cout, cg->W),
              .gin = d->cin / d->groups,
              .gout = d->cout / d->groups};
  cy_conv_axes(d, 0, p.all.axis);
  int64_t max = cg->registers == 32 ? MAX_TILE : p.all.axis[2].count > LONG_ROW ? LEAST_TILE : FEW_TILE;
  cy_depthwise_plan(cg, max, (double)(cy_conv_taps(d) * p.gin), &p.all);
  return p;
}

CY_PLAN_MAKE(floats)

static void emit(cy_cg *cg, const void *of, const char *name) {
  const floats *p = of;
  frame f = {.p = p};
  cy_depthwise_begin(cg, &p->all, name, NULL, &f.all);
  f.input = cy_arg_ptr(cg, p->all.d->a_slot);
  f.weights = cy_arg_ptr(cg, p->all.d->b_slot);
  f.zeros = cy_zeros(cg, p->width * 4);
  for (int i = 0; i < 3; i++)
    f.stride[i] = cy_mulc(cg, cy_size(cg, p->all.axis[i].in_stride), 4);
  f.all.column_bytes = f.stride[2];
  cy_depthwise_end(cg, &f.all);
}

const cy_generator cy_depthwise_generator = {.plan = plan_make,
                                             .pack = pack,
                                             .text = "conv depthwise",
                                             .describe = cy_depthwise_describe,
                                             .phase = {{"", NULL, emit, .grid = cy_depthwise_grid}}};
