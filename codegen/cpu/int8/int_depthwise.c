/* SPDX-License-Identifier: Apache-2.0 */
/* int_depthwise.c - depthwise convolution of 8-bit integers, by instructions that add up groups of k: dot4 where the CPU has
 * it, else dot2.
 *
 * Comes in: a cy_int_gemm_desc with cy_int_depthwise_possible. Goes out: the plan of conv/depthwise.c, copies and products.
 * The input rows that a row block reads come in groups of as many as a lane has elements (u8 by dot4, by dot2 i16 less the
 * zero point): these are interleaved, so that one instruction does up to so many taps of a kernel column for a vector of
 * channels. What is interleaved once serves all output rows of the row block and all columns of the kernel. Padding is the
 * zero point; by dot4, that takes its share in what the accumulators begin with: see int_gemm.h. Where a kernel has but one
 * row, the last two axes are transposed.
 * Weights are packed by vectors of channels, tap by tap. An output row meets groups of them, at places of its own in the row
 * block's groups: a task puts them there, block by block, in scratch. The library would have them up to 8 times over.
 * For a block of 4 * W channels at a time, the row block's groups go to scratch as [group][vector][column][W] lanes, and the
 * epilogue gets the channels of the block in their own order: interleaving works on 128 bits at a time, for which they are
 * permuted as they are loaded.
 */
#include "codegen/cpu/conv/depthwise.h"
#include "int_gemm.h"

#include <stdio.h>

enum { MAX_OUTPUTS = 4, MAX_LONG_OUTPUTS = 8 }; /* rows of a row block; of one along a row */
enum { MAX_ACCUMULATORS = 16, MAX_TILE = 8, MAX_TAPS = 64, MAX_ROWS = 72 };
enum { VECTORS = CY_INT_GEMM_WIDE }; /* of a block */

typedef struct depthwise {
  cy_depthwise all;
  const cy_int_gemm_desc *d;
  int rows;              /* of the input that a row block reads, .. */
  int64_t row[MAX_ROWS]; /* .. from the first one on */
  cy_int_gemm_variant variant;
  bool narrow; /* weights are s8, else i16 */
} depthwise;

bool cy_int_depthwise_possible(const cy_int_gemm_desc *d) {
  const cy_conv_desc *w = &d->window;
  cy_axis axis[3];
  if (!d->conv || d->bf16 || w->groups != w->cin || w->cin != w->cout || w->cin == 1 || w->transposed)
    return false;
  cy_conv_axes(w, 0, axis);
  return axis[0].count == 1 && axis[0].step == 1 && axis[0].start == 0 && axis[1].count * axis[2].count <= MAX_TAPS;
}

bool cy_int_depthwise_dot4(const cy_cg *cg, const cy_int_gemm_desc *d) {
  return cy_form_on(cg, CY_FORM_INT_DEPTHWISE_DOT4) && ((cg->vnni && !cg->sdot) || cg->vnni_spelled) &&
         d->b_bits == 8 && d->b_signed;
}

/* ---- the plan ---- */

/* Row of the kernel by which output o of a row block meets an input row of it; -1: by none. */
static int tap_of(const cy_axis *h, int64_t o, int64_t row) {
  int64_t from = row - o * h->step;
  return from >= 0 && from % h->inc == 0 && from / h->inc < h->count ? (int)(from / h->inc) : -1;
}

/* The row block of so many output rows. false: more input rows, or uses of groups, than it may have. */
static bool row_block_of(depthwise *p, int64_t outputs) {
  const cy_axis *h = &p->all.axis[1];
  const int each = (int)p->variant.step;
  p->all.rows = outputs;
  p->rows = p->all.uses = 0;
  for (int64_t row = 0; row <= (outputs - 1) * h->step + (h->count - 1) * h->inc; row++) {
    bool read = false;
    for (int64_t o = 0; o < outputs; o++)
      read |= tap_of(h, o, row) >= 0;
    if (read && p->rows == MAX_ROWS)
      return false;
    if (read)
      p->row[p->rows++] = row;
  }
  p->all.groups = (int)cy_ceil(p->rows, each);
  for (int i = 0; i < (int)outputs * p->all.groups; i++) {
    cy_depthwise_use use = {i / p->all.groups, i % p->all.groups, {-1, -1, -1, -1}};
    bool any = false;
    for (int r = 0; r < each && each * use.group + r < p->rows; r++) {
      use.tap[r] = tap_of(h, use.output, p->row[each * use.group + r]);
      any |= use.tap[r] >= 0;
    }
    if (any && p->all.uses == CY_DEPTHWISE_USES)
      return false;
    if (any)
      p->all.use[p->all.uses++] = use;
  }
  return true;
}

/* The row block that takes the least time for an output row. */
static void row_block_choose(const cy_cg *cg, depthwise *p) {
  const cy_axis *h = &p->all.axis[1], *w = &p->all.axis[2];
  int64_t height = cy_csize_known(h->out), max = p->all.transposed ? MAX_LONG_OUTPUTS : MAX_OUTPUTS;
  double min = 0;
  depthwise q = *p;
  for (int64_t outputs = 1; outputs <= max && (!height || outputs <= height) && row_block_of(&q, outputs); outputs++) {
    double cycles = cy_cost_int_depthwise_rows(cg, (double)(q.all.groups * w->step), (double)(q.all.uses * w->count));
    cycles *= height ? (double)cy_ceil(height, outputs) : 1.0 / (double)outputs;
    if (min == 0 || cycles < min) {
      min = cycles;
      *p = q;
    }
  }
}

static int64_t block_channels(const cy_cg *cg) { return VECTORS * (int64_t)cg->W; }
static int64_t vector_bytes(const cy_cg *cg) { return 4 * (int64_t)cg->W; }
/* Bytes of a vector of channels' weights: as packed; in their places. */
static int64_t packed_weights(const cy_cg *cg, const depthwise *p) {
  return p->all.axis[2].count * p->all.axis[1].count * cg->W * (p->narrow ? 1 : 2);
}
static int64_t vector_weights(const cy_cg *cg, const depthwise *p) {
  return p->all.uses * p->all.axis[2].count * vector_bytes(cg);
}

static void pack(const cy_cg *cg, const void *of, int64_t matrices, cy_arena *arena, cy_packing *out) {
  (void)matrices;
  const depthwise *p = of;
  int64_t taps = cy_conv_taps(p->all.d);
  cy_pack_layout l = {.groups = p->all.d->cout,
                      .n = 1,
                      .taps = taps,
                      .c = 1,
                      .tap_block = taps,
                      .c_block = 1,
                      .nr = cg->W,
                      .depthwise = true,
                      .weights = p->narrow ? CY_WEIGHTS_S8 : CY_WEIGHTS_S16,
                      .bytes = cy_ceil(p->all.d->cout, cg->W) * packed_weights(cg, p)};
  cy_packing_single(out, arena, l, NULL);
}

/* Columns in scratch: enough for whole tiles. */
static V scratch_width(cy_cg *cg, const depthwise *p) {
  const cy_axis *a = &p->all.axis[2];
  V outputs = cy_mulc(cg, cy_ceil_div(cg, cy_size(cg, a->out), cy_i64(cg, p->all.tile)), p->all.tile);
  return cy_addc(cg, cy_mulc(cg, outputs, a->step), (a->count - 1) * a->inc + 1 - a->step);
}

static V worker_bytes(cy_cg *cg, const void *ctx) {
  const depthwise *p = ctx;
  V columns = cy_mulc(cg, scratch_width(cg, p), p->all.groups * VECTORS * vector_bytes(cg));
  return cy_addc(cg, columns, VECTORS * vector_weights(cg, p));
}

/* ---- rows to scratch ---- */

typedef struct frame {
  cy_depthwise_frame all;
  const depthwise *p;
  cy_int_gemm_rows convert;
  V scratch, width;  /* width: columns of a group's vector */
  V blank, start;    /* a position that counts as 0; what accumulators of the block begin with */
  V weights, placed; /* as packed; the block's in their places, in scratch */
  V left, right;     /* columns of scratch that are in the feature map */
} frame;

/* From a group to the next. */
static V group_bytes(cy_cg *cg, const frame *f) { return cy_mulc(cg, f->width, VECTORS * vector_bytes(cg)); }

/* The block's channels of a position, of which so many exist. */
static V position_load(cy_cg *cg, V from, int64_t channels) {
  unsigned lanes = 4 * cg->W, unit = channels % 4 ? 1 : 4;
  LLVMTypeRef bytes = LLVMVectorType(cg->i8, lanes);
  if (channels == (int64_t)lanes)
    return cy_load(cg, bytes, from, 1);
  V v = cy_load_first(cg, unit == 4 ? cg->vi : bytes, from, (unsigned)channels / unit, 1);
  return LLVMBuildBitCast(cg->b, v, bytes, "");
}

/* .. as a group has them, in an order that interleaving turns into their own: one vector, or two of half the channels. */
static void position_of(cy_cg *cg, const frame *f, V from, int64_t channels, V out[2]) {
  const cy_elements *elements = &f->convert.elements;
  const int each = (int)f->p->variant.step, n = (int)cg->W * each / 4, parts = (int)cg->W / 4; /* of 128 bits */
  int order[16];
  bool bytes = elements->to == 1;
  V v = position_load(cg, from, channels);
  v = LLVMBuildBitCast(cg->b, bytes ? cy_elements_change(cg, elements, v, 4 * cg->W) : v, cg->vi, "");
  for (int half = 0; half < 4 / each; half++) {
    for (int i = 0; i < n; i++)
      order[i] = half * n + i % each * parts + i / each;
    out[half] = cy_shuffle(cg, v, v, order, (unsigned)n);
    if (!bytes)
      out[half] = cy_elements_change(cg, elements, out[half], 2 * cg->W);
  }
}

/* Columns of a group to scratch. Rows that do not exist are read from the blank position again and again. */
static void emit_group(cy_cg *cg, const frame *f, int g) {
  const depthwise *p = f->p;
  const cy_axis *h = &p->all.axis[1], *w = &p->all.axis[2];
  int64_t channels = f->all.channels;
  V stride = cy_size(cg, w->in_stride), none = cy_i64(cg, 0), row[4], next[4], v[4][2] = {{NULL}};
  const int each = (int)p->variant.step;
  V src = cy_gep(cg, cy_arg_ptr(cg, p->all.d->a_slot), cy_mul(cg, f->all.image, cy_size(cg, p->all.d->in_n)));
  src = cy_gep(cg, src, cy_add(cg, cy_mul(cg, f->all.o[0], cy_size(cg, p->all.axis[0].in_stride)), f->all.c0));
  src = cy_gep(cg, src, cy_mul(cg, cy_addc(cg, f->left, w->start), stride));
  V top = cy_addc(cg, cy_mulc(cg, f->all.o[1], h->step), h->start), steps[4];
  for (int i = 0; i < each; i++) {
    row[i] = f->blank;
    steps[i] = none;
    if (each * g + i >= p->rows)
      continue;
    V line = cy_addc(cg, top, p->row[each * g + i]),
      there = cy_icmp(cg, LLVMIntULT, line, cy_size(cg, h->in));
    row[i] = cy_select(cg, there, cy_gep(cg, src, cy_mul(cg, line, cy_size(cg, h->in_stride))), f->blank);
    steps[i] = cy_select(cg, there, stride, none);
  }
  V to = cy_gep(cg, f->scratch, cy_mulc(cg, group_bytes(cg, f), g));
  cy_loop x;
  cy_loop_begin(cg, &x, f->left, f->right, cy_i64(cg, 1), row, (unsigned)each);
  for (int i = 0; i < each; i++) {
    position_of(cg, f, x.v[i], channels, v[i]);
    next[i] = cy_gep(cg, x.v[i], steps[i]);
  }
  V column = cy_gep(cg, to, cy_mulc(cg, x.iv, vector_bytes(cg)));
  for (int i = 0; i * (int)cg->W < channels; i++) {
    V both[2] = {v[0][i / 2], v[1][i / 2]}, at = cy_gep(cg, column, cy_mulc(cg, f->width, i * vector_bytes(cg)));
    for (int k = 0; k < 2 && p->variant.dot4; k++)
      both[k] = cy_unpacked(cg, v[2 * k][0], v[2 * k + 1][0], 1, i / 2);
    cy_store(cg, cy_unpacked(cg, both[0], both[1], 2, i % 2), at, (unsigned)vector_bytes(cg));
  }
  cy_loop_end(cg, &x, next);
}

static void emit_groups(cy_cg *cg, cy_depthwise_frame *f) {
  for (int g = 0; g < ((const frame *)f)->p->all.groups; g++)
    emit_group(cg, (const frame *)f, g);
}

/* The columns of all groups that lie beside the feature map, whatever the row block. Scratch column x is input column x + start. */
static void emit_borders(cy_cg *cg, frame *f) {
  const cy_axis *w = &f->p->all.axis[2];
  int64_t lanes = cg->W * f->p->variant.step;
  f->left = cy_imin(cg, cy_i64(cg, w->start < 0 ? -w->start : 0), f->width);
  f->right = cy_imax(cg, f->left, cy_imin(cg, f->width, cy_addc(cg, cy_size(cg, w->in), -w->start)));
  V behind = cy_sub(cg, f->width, f->right), bytes = cy_mulc(cg, f->width, vector_bytes(cg));
  cy_loop i;
  cy_loop_begin(cg, &i, cy_i64(cg, 0), cy_i64(cg, f->p->all.groups * VECTORS), cy_i64(cg, 1), NULL, 0);
  V row = cy_gep(cg, f->scratch, cy_mul(cg, i.iv, bytes)), end = cy_gep(cg, row, cy_mulc(cg, f->right, vector_bytes(cg)));
  cy_copy_blank(cg, &f->convert.elements, row, cy_mulc(cg, f->left, lanes));
  cy_copy_blank(cg, &f->convert.elements, end, cy_mulc(cg, behind, lanes));
  cy_loop_end(cg, &i, NULL);
}

/* ---- products ---- */

/* A vector of channels: its columns from the tile's first one on, its weights. */
typedef struct vector {
  const frame *f;
  V columns, weights;
} vector;

static V column_load(cy_cg *cg, const void *ctx, int group, int64_t x) {
  const vector *v = ctx;
  V at = cy_gep(cg, v->columns, cy_mulc(cg, group_bytes(cg, v->f), group));
  return cy_load(cg, cg->vi, cy_gepc(cg, at, x * vector_bytes(cg)), 4);
}

static V tap_add(cy_cg *cg, const void *ctx, V acc, V column, int use, int64_t tap) {
  const vector *v = ctx;
  int64_t at = (use * v->f->p->all.axis[2].count + tap) * vector_bytes(cg);
  return cy_int_gemm_add(cg, v->f->p->variant, acc, column, cy_load(cg, cg->vi, cy_gepc(cg, v->weights, at), 4));
}

static void accumulate(cy_cg *cg, const cy_depthwise_frame *of, const cy_depthwise_tile *t, V channel, unsigned lanes, V *acc) {
  (void)lanes;
  const frame *f = (const frame *)of;
  V first = cy_gep(cg, f->scratch, t->first), start = cy_load(cg, cg->vi, cy_gepf(cg, f->start, channel), 4);
  vector v = {f, cy_gep(cg, first, cy_mul(cg, channel, cy_mulc(cg, f->width, 4))),
              cy_gep(cg, f->placed, cy_mulc(cg, channel, vector_weights(cg, f->p) / cg->W))};
  for (int64_t i = 0; i < f->p->all.rows * t->outputs; i++)
    acc[i] = start;
  cy_depthwise_add(cg, &f->p->all, t, &v, acc);
  for (int64_t i = 0; i < f->p->all.rows * t->outputs; i++)
    acc[i] = LLVMBuildBitCast(cg->b, acc[i], cg->vf, "");
}

void cy_int_gemm_as_integers(void *ctx, cy_cg *cg, V acc, unsigned lanes, const V *idx) {
  const cy_epilogue *inner = ctx;
  inner->emit(inner->ctx, cg, LLVMBuildBitCast(cg->b, acc, LLVMVectorType(cg->i32, lanes), ""), lanes, idx);
}

static cy_epilogue epilogue(cy_cg *cg, const cy_depthwise_frame *f) {
  const depthwise *p = ((const frame *)f)->p;
  const cy_epilogue *inner = &p->all.d->epilogue;
  bool dense = !p->all.transposed || p->all.tile == 1; /* rows follow each other in the buffer */
  return (cy_epilogue){.emit = cy_int_gemm_as_integers,
                       .ctx = (void *)inner,
                       .wide = cy_int_gemm_wide(cg, f->channels),
                       .all_wide = f->channels == block_channels(cg),
                       .flat = inner->flat,
                       .together = dense ? cy_int_gemm_together(cg, p->variant, inner, f->channels) : 0};
}

/* ---- weights to their places ---- */

/* A use's elements for each lane: the taps of a kernel column, whose first one is at `from`, where the group has their rows. */
static V placed(cy_cg *cg, const depthwise *p, const cy_depthwise_use *use, V from) {
  const int each = (int)p->variant.step;
  int64_t apart = p->all.axis[2].count * cg->W * (p->narrow ? 1 : 2);
  LLVMTypeRef words = LLVMVectorType(cg->i16, cg->W);
  V all = NULL;
  for (int i = 0; i < each; i++) {
    if (use->tap[i] < 0)
      continue;
    V tap = cy_load(cg, p->narrow ? LLVMVectorType(cg->i8, cg->W) : words, cy_gepc(cg, from, use->tap[i] * apart), 1);
    if (each == 2 && p->narrow)
      tap = LLVMBuildSExt(cg->b, tap, words, "");
    tap = LLVMBuildZExt(cg->b, tap, cg->vi, "");
    tap = i ? LLVMBuildShl(cg->b, tap, cy_splat(cg, cy_i32(cg, i * 32 / each), cg->W), "") : tap;
    all = all ? LLVMBuildOr(cg->b, all, tap, "") : tap;
  }
  return all;
}

/* void (ptr packed, ptr placed, i64 vectors, i32 zero, ptr start): the weights of so many vectors of channels, and what
 * their accumulators begin with: by dot4 less what the zero point will add. */
static V place_function(cy_cg *cg, const depthwise *p) {
  const cy_axis *h = &p->all.axis[1], *w = &p->all.axis[2];
  char name[100];
  snprintf(name, sizeof name, "cyk_depthwise_weights%s_%lldx%lld_%lldx%lld_%lld",
           p->variant.dot4 ? ""
           : p->narrow     ? "2"
                           : "2w",
           (long long)h->count, (long long)w->count, (long long)p->all.rows, (long long)h->step, (long long)h->inc);
  V fn = cy_shared_find(cg, name);
  if (fn)
    return fn;
  cy_fn_state state = cy_fn_save(cg);
  LLVMTypeRef params[] = {cg->ptr, cg->ptr, cg->i64, cg->i32, cg->ptr};
  fn = cy_fn_begin(cg, name, cg->voidt, params, 5, CY_FN_SHARED | CY_FN_NOINLINE | CY_FN_NOALIAS);
  V ones = cy_splat(cg, cy_i32(cg, 0x01010101), cg->W), sum = LLVMConstNull(cg->vi);
  cy_loop v, k;
  cy_loop_begin(cg, &v, cy_i64(cg, 0), LLVMGetParam(fn, 2), cy_i64(cg, 1), NULL, 0);
  V from = cy_gep(cg, LLVMGetParam(fn, 0), cy_mulc(cg, v.iv, packed_weights(cg, p)));
  V to = cy_gep(cg, LLVMGetParam(fn, 1), cy_mulc(cg, v.iv, vector_weights(cg, p)));
  cy_loop_begin(cg, &k, cy_i64(cg, 0), cy_i64(cg, w->count), cy_i64(cg, 1), &sum, 1);
  sum = k.v[0];
  V column = cy_gep(cg, from, cy_mulc(cg, k.iv, cg->W * (p->narrow ? 1 : 2)));
  for (int u = 0; u < p->all.uses; u++) {
    V taps = placed(cg, p, &p->all.use[u], column);
    if (p->variant.dot4 && p->all.use[u].output == 0) /* each tap once */
      sum = cy_int_gemm_add(cg, p->variant, sum, ones, taps);
    cy_store(cg, taps, cy_gep(cg, to, cy_mulc(cg, cy_addc(cg, k.iv, u * w->count), vector_bytes(cg))), 4);
  }
  cy_loop_end(cg, &k, &sum);
  V less = cy_splat(cg, LLVMBuildNeg(cg->b, LLVMGetParam(fn, 3), ""), cg->W);
  cy_store(cg, LLVMBuildMul(cg->b, less, k.out[0], ""),
           cy_gep(cg, LLVMGetParam(fn, 4), cy_mulc(cg, v.iv, vector_bytes(cg))), 4);
  cy_loop_end(cg, &v, NULL);
  cy_fn_end(cg, NULL);
  cy_fn_restore(cg, state);
  return fn;
}

static void emit_places(cy_cg *cg, cy_depthwise_frame *of) {
  const frame *f = (const frame *)of;
  int64_t channels = of->channels;
  V fn = place_function(cg, f->p), from = cy_gep(cg, f->weights, cy_mulc(cg, of->c0, packed_weights(cg, f->p) / cg->W));
  V zero = LLVMBuildZExt(cg->b, f->convert.zero, cg->i32, "");
  V args[] = {from, f->placed, cy_i64(cg, cy_ceil(channels, cg->W)), zero, f->start};
  LLVMBuildCall2(cg->b, LLVMGlobalGetValueType(fn), fn, args, 5, "");
  if (!f->p->d->started)
    return;
  V given = cy_gepf(cg, cy_arg_ptr(cg, f->p->d->start_slot), of->c0);
  for (int64_t at = 0; at < channels; at += cg->W) {
    unsigned lanes = channels - at < cg->W ? (unsigned)(channels - at) : cg->W;
    V to = cy_gepc(cg, f->start, at * 4), more = cy_load_first(cg, cg->vi, cy_gepc(cg, given, at * 4), lanes, 4);
    cy_store(cg, LLVMBuildAdd(cg->b, cy_load(cg, cg->vi, to, 4), more, ""), to, 4);
  }
}

/* ---- the generator ---- */

static const cy_depthwise_kind kind = {.copied = true,
                                       .block = emit_places,
                                       .row_block = emit_groups,
                                       .accumulate = accumulate,
                                       .load = column_load,
                                       .add = tap_add,
                                       .epilogue = epilogue};

static depthwise plan_of(const cy_cg *cg, const cy_int_gemm_desc *d) {
  bool dot4 = cy_int_depthwise_dot4(cg, d);
  depthwise p = {.all = {.kind = &kind, .d = &d->window, .by = dot4 ? CY_DEPTHWISE_DOT4 : CY_DEPTHWISE_DOT2, .block = block_channels(cg)},
                 .d = d,
                 .variant = cy_group_kernel_of(dot4 ? CY_GROUP_DOT4 : CY_GROUP_DOT2),
                 .narrow = d->b_bits == 8 && d->b_signed};
  cy_axis *axis = p.all.axis;
  cy_conv_axes(p.all.d, 0, axis);
  p.all.transposed = axis[1].count == 1 && axis[2].count > 1;
  if (p.all.transposed) {
    cy_axis row = axis[1];
    axis[1] = axis[2];
    axis[2] = row;
  }
  row_block_choose(cg, &p);
  int64_t registers = dot4 || cg->registers == 32 ? MAX_ACCUMULATORS : MAX_ACCUMULATORS / 2, max = registers / p.all.rows;
  cy_depthwise_plan(cg, max < MAX_TILE ? max : MAX_TILE, 1, &p.all);
  return p;
}

CY_PLAN_MAKE(depthwise)

static void emit(cy_cg *cg, const void *of, const char *name) {
  const depthwise *p = of;
  int64_t block = block_channels(cg);
  frame f = {.p = p};
  f.placed = cy_depthwise_begin(cg, &p->all, name, worker_bytes, &f.all);
  f.convert = cy_int_gemm_rows_begin(cg, p->variant, p->d);
  f.width = scratch_width(cg, p);
  f.scratch = cy_gepc(cg, f.placed, VECTORS * vector_weights(cg, p));
  f.all.column_bytes = cy_i64(cg, vector_bytes(cg));
  f.blank = cy_alloca(cg, block);
  f.start = cy_alloca(cg, block * 4);
  f.weights = cy_arg_ptr(cg, p->all.d->b_slot);
  LLVMBuildMemSet(cg->b, f.blank, f.convert.byte, cy_i64(cg, block), 64);
  emit_borders(cg, &f);
  cy_depthwise_end(cg, &f.all);
}

const cy_generator cy_int_depthwise_generator = {.plan = plan_make,
                                                 .pack = pack,
                                                 .text = "conv int8 depthwise",
                                                 .describe = cy_depthwise_describe,
                                                 .phase = {{"", NULL, emit, .grid = cy_depthwise_grid}},
                                                 .worker_bytes = worker_bytes};
