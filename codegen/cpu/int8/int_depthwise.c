/* SPDX-License-Identifier: Apache-2.0 */
/* int_depthwise.c - convolution of each channel of 8-bit integers with its own filter, by dot2; int_depthwise_dot4.c
 * does it by dot4 where the CPU has the instruction.
 *
 * Comes in: a cy_int_gemm_desc with cy_int_depthwise_possible. Goes out: one phase, a task being some output rows of an
 * image. At most CHUNK channels at a time, the input rows that a task needs are copied to scratch as i16 less the zero
 * point, their borders written as zeros; then nothing has to be checked any more. A tile is TILE outputs of a row. Taps
 * go in pairs: the i16 of two taps are interleaved and meet the weights of both in one vpmaddwd. Partners lie above
 * each other, so that what is interleaved for one output serves its neighbours; those of an odd last kernel row lie
 * side by side. Interleaving works on 128 bits at a time, so a vector of sums has its channels in the order of
 * cy_int_depthwise_slot; they are put right once, behind the last tap. Weights that are s8 in the library become i16 in
 * scratch once, before the tasks.
 */
#include "int_gemm.h"

#include <stdio.h>

enum { CHUNK = 64, TILE = 4, MAX_TAPS = 64, ROWS_BYTES = 96 * 1024 };
enum { MIN_ROWS = 4, WORTH_SHARING = 4000 }; /* ns of a feature map */

typedef struct dw {
  const cy_int_gemm_desc *d;
  const cy_conv_desc *w;
  cy_axis axis[3];
  int64_t c, taps, chunk, row_block;
  int64_t weights; /* as packed */
  bool narrow;     /* as s8 */
  cy_int_gemm_variant variant;
} dw;

bool cy_int_depthwise_possible(const cy_int_gemm_desc *d) {
  const cy_conv_desc *w = &d->window;
  cy_axis axis[3];
  if (!d->conv || d->bf16 || w->groups != w->cin || w->cin != w->cout || w->cin == 1 || w->transposed)
    return false;
  cy_conv_axes(w, 0, axis);
  return axis[0].count == 1 && axis[0].step == 1 && axis[0].start == 0 && axis[1].count * axis[2].count <= MAX_TAPS;
}

/* Which pair of taps (y, x) belongs to, and its place in it. */
int64_t cy_int_depthwise_pair(int64_t height, int64_t width, int64_t y, int64_t x, int64_t *out_place) {
  if (y < height / 2 * 2) {
    *out_place = y % 2;
    return y / 2 * width + x;
  }
  *out_place = x % 2;
  return height / 2 * width + x / 2;
}

static int64_t pair_count(int64_t height, int64_t width) { return height / 2 * width + height % 2 * ((width + 1) / 2); }

/* Where channel n's weights lie among the 2 * W channels of a block, in i32: its vector, its lane. */
int64_t cy_int_depthwise_slot(int64_t n, int64_t lanes) {
  int64_t in = n % (2 * lanes);
  return n - in + in / 4 % 2 * lanes + in / 8 * 4 + in % 4;
}

/* ---- the plan ---- */

static int64_t whole_blocks(const cy_cg *cg, int64_t channels) { return cy_round_up(channels, 2 * cg->W); }

/* Input rows, or columns, behind `outputs` outputs. */
static int64_t reach(const cy_axis *a, int64_t outputs) {
  return (outputs - 1) * a->step + (a->count - 1) * a->inc + 1;
}

static dw plan_of(const cy_cg *cg, const cy_int_gemm_desc *d) {
  dw p = {.d = d, .w = &d->window, .c = d->window.cin, .variant = cy_group_kernel_of(CY_GROUP_DOT2)};
  p.chunk = p.c < CHUNK ? whole_blocks(cg, p.c) : CHUNK;
  cy_conv_axes(p.w, 0, p.axis);
  p.taps = p.axis[1].count * p.axis[2].count;
  p.weights = pair_count(p.axis[1].count, p.axis[2].count) * 2 * whole_blocks(cg, p.c);
  p.narrow = d->b_bits == 8 && d->b_signed;
  int64_t width = cy_csize_known(p.axis[2].out), height = cy_csize_known(p.axis[1].out);
  width = width ? width : 64;
  double ns = (double)(p.taps * width * p.c) / 30;
  int64_t most = 1 + (int64_t)(20000 / (ns + 1)), row = reach(&p.axis[2], width) * p.chunk * 2;
  p.row_block = 1;
  if (height && ns * (double)height > WORTH_SHARING && most > (height + 1) / 2)
    most = (height + 1) / 2;
  most = most > MIN_ROWS ? most : MIN_ROWS;
  while (p.row_block < 16 && p.row_block < most && (!height || p.row_block < height) &&
         reach(&p.axis[1], p.row_block + 1) * row <= ROWS_BYTES)
    p.row_block++;
  if (height) /* blocks of equal height */
    p.row_block = (height + (height - 1) / p.row_block) / ((height - 1) / p.row_block + 1);
  return p;
}

static void pack(const cy_cg *cg, const void *of, int64_t matrices, cy_arena *arena, cy_packing *out) {
  (void)matrices;
  const dw *p = of;
  cy_int_gemm_layout l = {.matrices = 1,
                          .n = p->c,
                          .taps = p->taps,
                          .c = 1,
                          .nr = 2 * cg->W,
                          .step = 2,
                          .row_taps = p->axis[2].count,
                          .wide = !p->narrow,
                          .depthwise = true,
                          .bytes = p->weights * (p->narrow ? 1 : 2)};
  *out = (cy_packing){.bytes = l.bytes, .ints = cy_arena_copy(arena, &l, sizeof l)};
}

static V row_blocks(cy_cg *cg, const dw *p) {
  return cy_ceil_div(cg, cy_size(cg, p->axis[1].out), cy_i64(cg, p->row_block));
}
static V images(cy_cg *cg, const dw *p) { return cy_mul(cg, cy_size(cg, p->w->batch), cy_size(cg, p->axis[0].out)); }
static V task_count(cy_cg *cg, const void *ctx) { return cy_mul(cg, images(cg, ctx), row_blocks(cg, ctx)); }

/* Columns of a row in scratch: enough for whole tiles. */
static V scratch_width(cy_cg *cg, const dw *p) {
  const cy_axis *a = &p->axis[2];
  V outputs = cy_mulc(cg, cy_ceil_div(cg, cy_size(cg, a->out), cy_i64(cg, TILE)), TILE);
  return cy_addc(cg, cy_mulc(cg, outputs, a->step),
                 a->count * a->inc + 1 - a->step); /* one more: a tap without partner */
}

static V rows_bytes(cy_cg *cg, const dw *p) {
  return cy_round64(cg, cy_mulc(cg, scratch_width(cg, p), reach(&p->axis[1], p->row_block) * p->chunk * 2));
}

static V worker_bytes(cy_cg *cg, const void *ctx) {
  const dw *p = ctx;
  return cy_round64(cg, cy_addc(cg, rows_bytes(cg, p), p->narrow ? p->weights * 2 : 0));
}

/* ---- emission ---- */

typedef struct frame {
  const dw *p;
  cy_int_gemm_rows convert;
  V scratch, row_bytes, width, buffer, weights;
  V image, depth, y0, c0; /* of the task, and of the chunk */
} frame;

/* Columns [first, end) of an input row, which exist, to scratch. from: the row's column 0, to: scratch of column
 * `first`. */
static void emit_line(cy_cg *cg, const frame *f, V to, V from, V first, V end, int64_t channels) {
  const dw *p = f->p;
  V count = cy_sub(cg, end, first), stride = cy_size(cg, p->axis[2].in_stride);
  int64_t dense;
  from = cy_gep(cg, from, cy_mul(cg, first, stride));
  if (channels == p->chunk && cy_is_const(stride, &dense) && dense == channels) {
    cy_int_gemm_run(cg, &f->convert, to, from, cy_mulc(cg, count, channels));
    return;
  }
  cy_loop x;
  cy_loop_begin(cg, &x, cy_i64(cg, 0), count, cy_i64(cg, 1), NULL, 0);
  V position = cy_gep(cg, from, cy_mul(cg, x.iv, stride));
  cy_int_gemm_run(cg, &f->convert, cy_gep(cg, to, cy_mulc(cg, x.iv, p->chunk * 2)), position, cy_i64(cg, channels));
  cy_loop_end(cg, &x, NULL);
}

/* The input rows behind output rows [y0, y0 + count). */
static void emit_copy(cy_cg *cg, const frame *f, V count, int64_t channels) {
  const dw *p = f->p;
  const cy_axis *h = &p->axis[1], *w = &p->axis[2];
  V src = cy_gep(cg, cy_arg_ptr(cg, p->w->a_slot), cy_mul(cg, f->image, cy_size(cg, p->w->in_n))), zero = cy_i64(cg, 0);
  src = cy_gep(cg, src, cy_add(cg, cy_mul(cg, f->depth, cy_size(cg, p->axis[0].in_stride)), f->c0));
  V rows = cy_addc(cg, cy_mulc(cg, count, h->step), (h->count - 1) * h->inc + 1 - h->step);
  /* scratch column x is input column x + start */
  V left = cy_imin(cg, cy_i64(cg, w->start < 0 ? -w->start : 0), f->width);
  V right = cy_imax(cg, left, cy_imin(cg, f->width, cy_addc(cg, cy_size(cg, w->in), -w->start)));
  cy_loop y;
  cy_loop_begin(cg, &y, zero, rows, cy_i64(cg, 1), NULL, 0);
  V line = cy_addc(cg, cy_add(cg, cy_mulc(cg, f->y0, h->step), y.iv), h->start), position = cy_i64(cg, p->chunk);
  V to = cy_gep(cg, f->scratch, cy_mul(cg, y.iv, f->row_bytes));
  cy_if s;
  cy_if_begin(cg, &s, cy_icmp(cg, LLVMIntULT, line, cy_size(cg, h->in)));
  cy_int_gemm_blank(cg, &f->convert, to, cy_mul(cg, left, position));
  V end = cy_addc(cg, right, w->start), begin = cy_addc(cg, left, w->start);
  V from = cy_gep(cg, src, cy_mul(cg, line, cy_size(cg, h->in_stride)));
  emit_line(cg, f, cy_gep(cg, to, cy_mulc(cg, left, p->chunk * 2)), from, begin, end, channels);
  V blank = cy_mul(cg, cy_sub(cg, f->width, right), position);
  cy_int_gemm_blank(cg, &f->convert, cy_gep(cg, to, cy_mulc(cg, right, p->chunk * 2)), blank);
  cy_if_else(cg, &s);
  cy_int_gemm_blank(cg, &f->convert, to, cy_mul(cg, f->width, position));
  cy_if_end(cg, &s);
  cy_loop_end(cg, &y, NULL);
}

/* Elements 0-3 (half 0) or 4-7 of each 128 bits of a and b in turn. */
static V interleave(cy_cg *cg, V a, V b, int half) {
  int lanes[64], n = (int)(2 * cg->W);
  for (int i = 0; i < n; i++)
    lanes[i] = i / 8 * 8 + half * 4 + i % 8 / 2 + (i & 1 ? n : 0);
  return LLVMBuildBitCast(cg->b, cy_shuffle(cg, a, b, lanes, (unsigned)n), cg->vi, "");
}

/* The channels of two vectors of sums in their own order, W from `first` on. */
static V in_order(cy_cg *cg, V low, V high, unsigned first) {
  int lanes[64];
  for (unsigned i = 0; i < cg->W; i++)
    lanes[i] = (int)cy_int_depthwise_slot(first + i, cg->W);
  return cy_shuffle(cg, low, high, lanes, cg->W);
}

/* A tile's sums for 2 * W channels on their way. */
typedef struct tile {
  V at, weights; /* scratch of the first column and channel; its weights of pair 0 */
  V sums[TILE][2];
} tile;

static V column_load(cy_cg *cg, const frame *f, const tile *t, int64_t y, int64_t x) {
  V row = cy_gep(cg, t->at, cy_mulc(cg, f->row_bytes, y * f->p->axis[1].inc));
  return cy_load(cg, LLVMVectorType(cg->i16, 2 * cg->W), cy_gepc(cg, row, x * f->p->chunk * 2), 2);
}

/* Column x of kernel row y and its partner, to all the sums they belong to. Of taps side by side, those at even places.
 */
static void emit_column(cy_cg *cg, const frame *f, tile *t, int64_t y, int64_t x) {
  const dw *p = f->p;
  const cy_axis *h = &p->axis[1], *w = &p->axis[2];
  int64_t width = whole_blocks(cg, p->c), place;
  bool above = y + 1 < h->count;
  V both[2] = {NULL, NULL};
  for (int64_t k = 0; k < w->count; k += above ? 1 : 2) {
    int64_t from = x - k * w->inc;
    if (from < 0 || from % w->step || from / w->step >= TILE)
      continue;
    for (int half = 0; !both[1] && half < 2; half++) {
      V second = column_load(cg, f, t, above ? y + 1 : y, above ? x : x + w->inc);
      both[half] = interleave(cg, column_load(cg, f, t, y, x), second, half);
    }
    int64_t pair = cy_int_depthwise_pair(h->count, w->count, y, k, &place);
    for (int half = 0; half < 2; half++) {
      V weights = cy_load(cg, cg->vi, cy_gepc(cg, t->weights, (pair * width + half * cg->W) * 4), 4);
      V *sum = &t->sums[from / w->step][half];
      *sum = cy_int_gemm_add(cg, p->variant, *sum, both[half], weights);
    }
  }
}

/* All taps of a tile for the 2 * W channels at `channel` of the chunk. at: scratch of its first column. */
static void emit_sums(cy_cg *cg, const frame *f, V at, V channel) {
  const cy_axis *h = &f->p->axis[1], *w = &f->p->axis[2];
  tile t = {.at = cy_gep(cg, at, cy_mulc(cg, channel, 2)),
            .weights = cy_gep(cg, f->weights, cy_mulc(cg, cy_add(cg, f->c0, channel), 4))};
  for (int i = 0; i < TILE; i++)
    t.sums[i][0] = t.sums[i][1] = LLVMConstNull(cg->vi);
  for (int64_t y = 0; y < h->count; y += 2)
    for (int64_t x = 0; x < reach(w, TILE); x++)
      emit_column(cg, f, &t, y, x);
  for (int i = 0; i < TILE; i++)
    for (unsigned half = 0; half < 2; half++)
      cy_store(cg, in_order(cg, t.sums[i][0], t.sums[i][1], half * cg->W),
               cy_gepc(cg, cy_gep(cg, f->buffer, cy_mulc(cg, channel, 4)), (i * CHUNK + half * cg->W) * 4), 4);
}

static void line_index(void *ctx, cy_cg *cg, V row, V *idx) {
  const cy_int_gemm_line *at = ctx;
  int n = 0;
  idx[n++] = at->image;
  if (at->spatial == 3)
    idx[n++] = at->depth;
  if (at->spatial >= 2)
    idx[n++] = at->y;
  idx[n] = cy_add(cg, at->x0, row);
}

cy_rows cy_int_gemm_line_rows(cy_int_gemm_line *line) {
  return (cy_rows){line_index, line, (unsigned)line->spatial + 1};
}

void cy_int_gemm_as_integers(void *ctx, cy_cg *cg, V acc, unsigned lanes, const V *idx) {
  const cy_epilogue *inner = ctx;
  inner->emit(inner->ctx, cg, LLVMBuildBitCast(cg->b, acc, LLVMVectorType(cg->i32, lanes), ""), lanes, idx);
}

static void emit_output_row(cy_cg *cg, const frame *f, V y, int64_t channels) {
  const dw *p = f->p;
  const cy_axis *w = &p->axis[2];
  V out = cy_size(cg, w->out);
  V from = cy_gep(cg, f->scratch, cy_mul(cg, cy_mulc(cg, y, p->axis[1].step), f->row_bytes));
  cy_loop x, c;
  cy_loop_begin(cg, &x, cy_i64(cg, 0), out, cy_i64(cg, TILE), NULL, 0);
  V at = cy_gep(cg, from, cy_mulc(cg, x.iv, w->step * p->chunk * 2));
  cy_loop_begin(cg, &c, cy_i64(cg, 0), cy_i64(cg, channels), cy_i64(cg, 2 * cg->W), NULL, 0);
  emit_sums(cg, f, at, c.iv);
  cy_loop_end(cg, &c, NULL);
  cy_int_gemm_line line = {p->w->n_spatial, f->image, f->depth, cy_add(cg, f->y0, y), x.iv};
  cy_rows rows = cy_int_gemm_line_rows(&line);
  cy_epilogue epilogue = {
      .emit = cy_int_gemm_as_integers, .ctx = (void *)&p->w->epilogue, .wide = p->c >= 4 * (int64_t)cg->W ? 4 : 0};
  V count = cy_imin(cg, cy_i64(cg, TILE), cy_sub(cg, out, x.iv));
  cy_epilogue_tile(cg, &epilogue, &rows, f->buffer, cy_i64(cg, CHUNK * 4), count, cy_i64(cg, 0), cy_i64(cg, channels),
                   f->c0, (unsigned)(p->c % cg->W));
  cy_loop_end(cg, &x, NULL);
}

/* Channels [c0, c0 + channels) of a task. */
static void emit_chunk(cy_cg *cg, const frame *f, V count, int64_t channels) {
  cy_loop y;
  emit_copy(cg, f, count, channels);
  cy_loop_begin(cg, &y, cy_i64(cg, 0), count, cy_i64(cg, 1), NULL, 0);
  emit_output_row(cg, f, y.iv, channels);
  cy_loop_end(cg, &y, NULL);
}

static void emit_task(cy_cg *cg, void *frame_of, V task) {
  frame *f = frame_of;
  const dw *p = f->p;
  V blocks = row_blocks(cg, p), image = cy_div(cg, task, blocks), depth = cy_size(cg, p->axis[0].out);
  f->y0 = cy_mulc(cg, cy_mod(cg, task, blocks), p->row_block);
  f->image = cy_div(cg, image, depth);
  f->depth = cy_mod(cg, image, depth);
  V count = cy_imin(cg, cy_i64(cg, p->row_block), cy_sub(cg, cy_size(cg, p->axis[1].out), f->y0));
  int64_t whole = p->c / CHUNK * CHUNK;
  cy_loop c;
  if (whole) {
    cy_loop_begin(cg, &c, cy_i64(cg, 0), cy_i64(cg, whole), cy_i64(cg, CHUNK), NULL, 0);
    f->c0 = c.iv;
    emit_chunk(cg, f, count, CHUNK);
    cy_loop_end(cg, &c, NULL);
  }
  if (whole < p->c) {
    f->c0 = cy_i64(cg, whole);
    emit_chunk(cg, f, count, p->c - whole);
  }
}

/* The weights as i16. */
static V wide_weights(cy_cg *cg, const dw *p, V scratch) {
  V from = cy_arg_ptr(cg, p->w->b_slot), to = cy_gep(cg, scratch, rows_bytes(cg, p));
  int64_t lanes = 2 * cg->W;
  cy_loop i;
  if (!p->narrow)
    return from;
  cy_loop_begin(cg, &i, cy_i64(cg, 0), cy_i64(cg, p->weights), cy_i64(cg, lanes), NULL, 0);
  V v = cy_load(cg, LLVMVectorType(cg->i8, (unsigned)lanes), cy_gep(cg, from, i.iv), 1);
  v = LLVMBuildSExt(cg->b, v, LLVMVectorType(cg->i16, (unsigned)lanes), "");
  cy_store(cg, v, cy_gep(cg, to, cy_mulc(cg, i.iv, 2)), 2);
  cy_loop_end(cg, &i, NULL);
  return to;
}

/* ---- the generator ---- */

static void *plan(const cy_cg *cg, const void *desc, cy_arena *arena) {
  dw p = plan_of(cg, desc);
  return cy_arena_copy(arena, &p, sizeof p);
}

static void emit(cy_cg *cg, const void *of, const char *name) {
  const dw *p = of;
  cy_kernel_begin(cg, name, 0);
  cy_epilogue_open(&p->w->epilogue, cg);
  frame f = {.p = p, .convert = cy_int_gemm_rows_begin(cg, p->variant, p->d), .width = scratch_width(cg, p)};
  f.scratch = cy_scratch(cg, p->w->scratch_slot, worker_bytes(cg, p));
  f.row_bytes = cy_mulc(cg, f.width, p->chunk * 2);
  f.buffer = cy_alloca(cg, TILE * CHUNK * 4);
  f.weights = wide_weights(cg, p, f.scratch);
  cy_tasks_emit(cg, emit_task, &f);
  cy_fn_end(cg, NULL);
}

static void describe(const void *of, char *text, size_t size) {
  const dw *p = of;
  snprintf(text, size, "tile of %d outputs, tasks of %lld rows, channels by %lld", TILE, (long long)p->row_block,
           (long long)p->chunk);
}

const cy_generator cy_int_depthwise_generator = {.plan = plan,
                                                 .pack = pack,
                                                 .text = "conv int8 depthwise",
                                                 .describe = describe,
                                                 .phase = {{"", NULL, emit, task_count}},
                                                 .worker_bytes = worker_bytes};
