/* SPDX-License-Identifier: Apache-2.0 */
/* int_depthwise.c - convolution of each channel of 8-bit integers with its own filter, by instructions that add up groups of
 * k: dot4 where the CPU has it, else dot2.
 *
 * Comes in: a cy_int_gemm_desc with cy_int_depthwise_possible. Goes out: one phase, a task being some row blocks of an
 * image. A row block is a few output rows and the input rows that they read, in groups of as many as a lane has elements (u8
 * by dot4, by dot2 i16 less the zero point): these are interleaved, so that one instruction does up to so many taps of a
 * kernel column for a vector of channels. What is interleaved once serves all output rows of the row block and all columns
 * of the kernel. Padding is the zero point; by dot4, that takes its share in what the sums begin with: see int_gemm.h.
 * Where a kernel has but one row, rows and columns change places.
 * Weights are packed by vectors of channels, tap by tap. An output row meets groups of them, at places of its own in the row
 * block's groups: a task puts them there, block by block, in scratch. The library would have them up to 8 times over.
 * For a block of 4 * W channels at a time, the row block's groups go to scratch as [group][vector][column][W] lanes, a
 * tile of outputs is summed up vector by vector, and the epilogue gets the channels of the block in their own order:
 * interleaving works on 128 bits at a time, for which they are permuted as they are loaded.
 */
#include "int_gemm.h"

#include <stdio.h>

enum { MAX_OUTPUTS = 4, MAX_LONG_OUTPUTS = 8 };       /* of a row block; of one along a row */
enum { MAX_ACCUMULATORS = 16, MAX_TAPS = 64 };        /* MAX_ACCUMULATORS: registers of a tile */
enum { TASK_NS = 20000, WORTH_SHARING = 4000 };       /* WORTH_SHARING: ns of a feature map */
enum { VECTORS = CY_INT_GEMM_WIDE };                  /* of a block */
static const double INTERLEAVED = 12, MULTIPLIED = 2; /* cycles of a block's column and group; of a use and tap */
static const double OUTPUTS_PER_NS = 4;               /* about */

/* A few output rows, and the input rows that they read, in groups. */
enum { MAX_ROWS = 72, MAX_USES = 144 };
typedef struct group_use { /* of a group by an output row */
  int output, group;
  int tap[4]; /* row of the kernel that meets each of the group's rows, -1: none does */
} group_use;
typedef struct row_block {
  int64_t outputs;
  int rows, groups, uses;
  int64_t row[MAX_ROWS]; /* from the first one on */
  group_use use[MAX_USES];
} row_block;

typedef struct depthwise {
  const cy_int_gemm_desc *d;
  const cy_conv_desc *w;
  cy_axis axis[3];
  row_block row_block;
  int64_t c, tile, per_task; /* tile: outputs of a row; row blocks of a task */
  cy_int_gemm_variant variant;
  bool narrow; /* weights are s8, else i16 */
  bool transposed; /* rows of what is here are columns of the image */
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

static int place_of(const row_block *b, int64_t row) {
  int i = 0;
  while (i < b->rows && b->row[i] < row)
    i++;
  return i;
}

static bool add_row(row_block *b, int64_t row) {
  int at = place_of(b, row);
  if (at < b->rows && b->row[at] == row)
    return true;
  if (b->rows == MAX_ROWS)
    return false;
  for (int i = b->rows++; i > at; i--)
    b->row[i] = b->row[i - 1];
  b->row[at] = row;
  return true;
}

/* In groups of `each` rows. false: more input rows, or uses of groups, than a row block may have. */
static bool row_block_of(int64_t outputs, const cy_axis *h, int each, row_block *b) {
  int64_t height = h->count, step = h->step, inc = h->inc;
  *b = (row_block){.outputs = outputs};
  for (int64_t i = 0; i < outputs * height; i++)
    if (!add_row(b, i / height * step + i % height * inc))
      return false;
  b->groups = (int)cy_ceil(b->rows, each);
  for (int64_t o = 0; o < outputs; o++)
    for (int g = 0; g < b->groups; g++) {
      group_use use = {(int)o, g, {-1, -1, -1, -1}};
      bool any = false;
      for (int64_t k = 0; k < height; k++) {
        int at = place_of(b, o * step + k * inc);
        if (at / each == g) {
          use.tap[at % each] = (int)k;
          any = true;
        }
      }
      if (any && b->uses == MAX_USES)
        return false;
      if (any)
        b->use[b->uses++] = use;
    }
  return true;
}

/* The row block that takes the least time for an output row. */
static void row_block_choose(depthwise *p) {
  const cy_axis *h = &p->axis[1], *w = &p->axis[2];
  int64_t height = cy_csize_known(h->out), max = p->transposed ? MAX_LONG_OUTPUTS : MAX_OUTPUTS;
  double min = 0;
  for (int64_t outputs = 1; outputs <= max && (!height || outputs <= height); outputs++) {
    row_block b;
    if (!row_block_of(outputs, h, (int)p->variant.step, &b))
      break;
    double cycles = INTERLEAVED * b.groups * (double)w->step + MULTIPLIED * b.uses * (double)w->count;
    double blocks = height ? (double)cy_ceil(height, outputs) : 1.0 / (double)outputs;
    if (min == 0 || cycles * blocks < min) {
      min = cycles * blocks;
      p->row_block = b;
    }
  }
}

/* Outputs of a row that are summed up together: few of the last tile's idle. */
static int64_t tile_choose(const cy_cg *cg, const depthwise *p, int64_t width) {
  int64_t registers = p->variant.dot4 || cg->registers == 32 ? MAX_ACCUMULATORS : MAX_ACCUMULATORS / 2;
  int64_t max = registers / p->row_block.outputs < 8 ? registers / p->row_block.outputs : 8, best = max;
  for (int64_t t = max; width && t > max / 2; t--)
    if (cy_round_up(width, t) < cy_round_up(width, best))
      best = t;
  return width && width < best ? width : best;
}

static depthwise plan_of(const cy_cg *cg, const cy_int_gemm_desc *d) {
  depthwise p = {.d = d, .w = &d->window, .c = d->window.cin, .narrow = d->b_bits == 8 && d->b_signed};
  p.variant = cy_group_kernel_of(cy_int_depthwise_dot4(cg, d) ? CY_GROUP_DOT4 : CY_GROUP_DOT2);
  cy_conv_axes(p.w, 0, p.axis);
  p.transposed = p.axis[1].count == 1 && p.axis[2].count > 1;
  if (p.transposed) {
    cy_axis row = p.axis[1];
    p.axis[1] = p.axis[2];
    p.axis[2] = row;
  }
  row_block_choose(&p);
  int64_t width = cy_csize_known(p.axis[2].out), height = cy_csize_known(p.axis[1].out);
  p.tile = tile_choose(cg, &p, width);
  double ns = (double)((width ? width : 64) * p.c * p.row_block.outputs) / OUTPUTS_PER_NS;
  int64_t all = height ? cy_ceil(height, p.row_block.outputs) : 0;
  p.per_task = 1 + (int64_t)(TASK_NS / (ns + 1));
  if (all && ns * (double)all > WORTH_SHARING && p.per_task > (all + 1) / 2)
    p.per_task = (all + 1) / 2;
  if (all) /* evenly */
    p.per_task = cy_ceil(all, cy_ceil(all, p.per_task));
  return p;
}

static int64_t block_channels(const cy_cg *cg) { return VECTORS * (int64_t)cg->W; }
static int64_t vector_bytes(const cy_cg *cg) { return 4 * (int64_t)cg->W; }
/* Bytes of a vector of channels: as packed; in their places, and of a block. */
static int64_t packed_weights(const cy_cg *cg, const depthwise *p) {
  return p->axis[2].count * p->axis[1].count * cg->W * (p->narrow ? 1 : 2);
}
static int64_t vector_weights(const cy_cg *cg, const depthwise *p) {
  return p->row_block.uses * p->axis[2].count * vector_bytes(cg);
}
static int64_t block_weights(const cy_cg *cg, const depthwise *p) { return VECTORS * vector_weights(cg, p); }

static void pack(const cy_cg *cg, const void *of, int64_t matrices, cy_arena *arena, cy_packing *out) {
  (void)matrices;
  const depthwise *p = of;
  int64_t taps = p->axis[1].count * p->axis[2].count;
  cy_pack_layout l = {.groups = p->c,
                      .n = 1,
                      .taps = taps,
                      .c = 1,
                      .tap_block = taps,
                      .c_block = 1,
                      .nr = cg->W,
                      .depthwise = true,
                      .weights = p->narrow ? CY_WEIGHTS_S8 : CY_WEIGHTS_S16,
                      .bytes = cy_ceil(p->c, cg->W) * packed_weights(cg, p)};
  cy_packing_single(out, arena, l, NULL);
}

static V row_block_count(cy_cg *cg, const depthwise *p) {
  return cy_ceil_div(cg, cy_size(cg, p->axis[1].out), cy_i64(cg, p->row_block.outputs));
}
static cy_task_grid grid_of(cy_cg *cg, const void *of) {
  const depthwise *p = of;
  return (cy_task_grid){.products = cy_mul(cg, cy_size(cg, p->w->batch), cy_size(cg, p->axis[0].out)),
                        .rows = cy_axis_pieces(cg, row_block_count(cg, p), p->per_task)};
}

/* Columns in scratch: enough for whole tiles. */
static V scratch_width(cy_cg *cg, const depthwise *p) {
  const cy_axis *a = &p->axis[2];
  V outputs = cy_mulc(cg, cy_ceil_div(cg, cy_size(cg, a->out), cy_i64(cg, p->tile)), p->tile);
  return cy_addc(cg, cy_mulc(cg, outputs, a->step), (a->count - 1) * a->inc + 1 - a->step);
}

static V worker_bytes(cy_cg *cg, const void *ctx) {
  const depthwise *p = ctx;
  V columns = cy_mulc(cg, scratch_width(cg, p), p->row_block.groups * VECTORS * vector_bytes(cg));
  return cy_addc(cg, columns, block_weights(cg, p));
}

/* ---- emission ---- */

typedef struct frame {
  const depthwise *p;
  cy_int_gemm_rows convert;
  V scratch, width, vector_bytes; /* vector_bytes: of all columns of a group's vector */
  V blank, start, buffer;         /* a position that counts as 0; of the block: what sums begin with; sums of a tile */
  V weights, placed;              /* as packed; the block's in their places, in scratch */
  V left, right;                  /* columns of scratch that are in the feature map */
  V image, depth, y0, c0;         /* of the task, the row block, and the block */
} frame;

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
  int order[16], parts = (int)cg->W / 4; /* of 128 bits */
  const int each = (int)f->p->variant.step, n = (int)cg->W * each / 4;
  V v = position_load(cg, from, channels);
  if (f->p->variant.dot4 && f->convert.is_signed)
    v = LLVMBuildXor(cg->b, v, cy_splat(cg, LLVMConstInt(cg->i8, 0x80, 0), 4 * cg->W), "");
  V words = LLVMBuildBitCast(cg->b, v, cg->vi, "");
  for (int half = 0; half < 4 / each; half++) {
    for (int i = 0; i < n; i++)
      order[i] = half * n + i % each * parts + i / each;
    out[half] = cy_shuffle(cg, words, words, order, (unsigned)n);
    if (!f->p->variant.dot4)
      out[half] = cy_int_gemm_widen(cg, &f->convert, out[half], 2 * cg->W);
  }
}

/* Columns of a group to scratch. Rows that do not exist are read from the blank position again and again. */
static void emit_group(cy_cg *cg, const frame *f, int g, int64_t channels) {
  const depthwise *p = f->p;
  const cy_axis *h = &p->axis[1], *w = &p->axis[2];
  V stride = cy_size(cg, w->in_stride), none = cy_i64(cg, 0), row[4], next[4], v[4][2];
  const int each = (int)p->variant.step;
  V src = cy_gep(cg, cy_arg_ptr(cg, p->w->a_slot), cy_mul(cg, f->image, cy_size(cg, p->w->in_n)));
  src = cy_gep(cg, src, cy_add(cg, cy_mul(cg, f->depth, cy_size(cg, p->axis[0].in_stride)), f->c0));
  src = cy_gep(cg, src, cy_mul(cg, cy_addc(cg, f->left, w->start), stride));
  V top = cy_addc(cg, cy_mulc(cg, f->y0, h->step), h->start), steps[4];
  for (int i = 0; i < each; i++) {
    row[i] = f->blank;
    steps[i] = none;
    if (each * g + i >= p->row_block.rows)
      continue;
    V line = cy_addc(cg, top, p->row_block.row[each * g + i]),
      there = cy_icmp(cg, LLVMIntULT, line, cy_size(cg, h->in));
    row[i] = cy_select(cg, there, cy_gep(cg, src, cy_mul(cg, line, cy_size(cg, h->in_stride))), f->blank);
    steps[i] = cy_select(cg, there, stride, none);
  }
  V to = cy_gep(cg, f->scratch, cy_mulc(cg, f->vector_bytes, g * VECTORS));
  cy_loop x;
  cy_loop_begin(cg, &x, f->left, f->right, cy_i64(cg, 1), row, (unsigned)each);
  for (int i = 0; i < each; i++) {
    position_of(cg, f, x.v[i], channels, v[i]);
    next[i] = cy_gep(cg, x.v[i], steps[i]);
  }
  V column = cy_gep(cg, to, cy_mulc(cg, x.iv, vector_bytes(cg)));
  for (int i = 0; i * (int)cg->W < channels; i++) {
    V both[2] = {v[0][i / 2], v[1][i / 2]};
    for (int k = 0; k < 2 && p->variant.dot4; k++)
      both[k] = cy_unpacked(cg, v[2 * k][0], v[2 * k + 1][0], 1, i / 2);
    cy_store(cg, cy_unpacked(cg, both[0], both[1], 2, i % 2), cy_gep(cg, column, cy_mulc(cg, f->vector_bytes, i)),
             (unsigned)vector_bytes(cg));
  }
  cy_loop_end(cg, &x, next);
}

/* Columns [first, end) of all groups, which lie beside the feature map, whatever the row block. */
static void emit_border(cy_cg *cg, const frame *f, V first, V end) {
  V elements = cy_mulc(cg, cy_sub(cg, end, first), cg->W * f->p->variant.step);
  V to = cy_gep(cg, f->scratch, cy_mulc(cg, first, vector_bytes(cg)));
  for (int i = 0; i < f->p->row_block.groups * VECTORS; i++)
    cy_int_gemm_blank(cg, &f->convert, cy_gep(cg, to, cy_mulc(cg, f->vector_bytes, i)), elements);
}

/* Bytes of an output's sums for the block, which has so many channels. */
static int64_t sums_bytes(const cy_cg *cg, int64_t channels) { return cy_round_up(channels, cg->W) * 4; }

/* The sums of a tile for a vector of channels. at: scratch of its first column. */
static void emit_sums(cy_cg *cg, const frame *f, V at, V vector, int64_t channels) {
  const depthwise *p = f->p;
  const cy_axis *w = &p->axis[2];
  V sums[MAX_ACCUMULATORS], bytes = cy_i64(cg, vector_weights(cg, p));
  V begin = cy_load(cg, cg->vi, cy_gep(cg, f->start, cy_mulc(cg, vector, cg->W * 4)), 4);
  at = cy_gep(cg, at, cy_mul(cg, vector, f->vector_bytes));
  V weights = cy_gep(cg, f->placed, cy_mul(cg, vector, bytes));
  for (int64_t i = 0; i < p->row_block.outputs * p->tile; i++)
    sums[i] = begin;
  for (int64_t x = 0; x <= (p->tile - 1) * w->step + (w->count - 1) * w->inc; x++)
    for (int g = 0; g < p->row_block.groups; g++) {
      V column = cy_gepc(cg, cy_gep(cg, at, cy_mulc(cg, f->vector_bytes, g * VECTORS)), x * vector_bytes(cg)), a = NULL;
      for (int u = 0; u < p->row_block.uses; u++)
        for (int64_t k = 0; p->row_block.use[u].group == g && k < w->count; k++) {
          int64_t from = x - k * w->inc;
          if (from < 0 || from % w->step || from / w->step >= p->tile)
            continue;
          a = a ? a : cy_load(cg, cg->vi, column, 4);
          V b = cy_load(cg, cg->vi, cy_gepc(cg, weights, (u * w->count + k) * cg->W * 4), 4);
          V *sum = &sums[p->row_block.use[u].output * p->tile + from / w->step];
          *sum = cy_int_gemm_add(cg, p->variant, *sum, a, b);
        }
    }
  V to = cy_gep(cg, f->buffer, cy_mulc(cg, vector, cg->W * 4));
  for (int64_t i = 0; i < p->row_block.outputs * p->tile; i++)
    cy_store(cg, sums[i], cy_gepc(cg, to, i * sums_bytes(cg, channels)), 4);
}

/* Outputs of a row of an image from x0 on, as an epilogue's rows. */
typedef struct image_line {
  int spatial; /* axes */
  V image, depth, y, x0;
} image_line;

static void line_index(void *ctx, cy_cg *cg, V row, V *idx) {
  const image_line *at = ctx;
  int n = 0;
  idx[n++] = at->image;
  if (at->spatial == 3)
    idx[n++] = at->depth;
  if (at->spatial >= 2)
    idx[n++] = at->y;
  idx[n] = cy_add(cg, at->x0, row);
}

static cy_rows line_rows(image_line *line) { return (cy_rows){line_index, line, (unsigned)line->spatial + 1}; }

void cy_int_gemm_as_integers(void *ctx, cy_cg *cg, V acc, unsigned lanes, const V *idx) {
  const cy_epilogue *inner = ctx;
  inner->emit(inner->ctx, cg, LLVMBuildBitCast(cg->b, acc, LLVMVectorType(cg->i32, lanes), ""), lanes, idx);
}

/* The epilogue of a tile, of which so many rows and columns exist. */
static void emit_tile_end(cy_cg *cg, const frame *f, V x0, V rows, V columns, int64_t channels) {
  const depthwise *p = f->p;
  bool whole = channels == block_channels(cg);
  cy_epilogue epilogue = {.emit = cy_int_gemm_as_integers,
                          .ctx = (void *)&p->w->epilogue,
                          .wide = cy_int_gemm_wide(cg, channels),
                          .all_wide = whole};
  epilogue.flat = p->w->epilogue.flat;
  if (!p->transposed || p->tile == 1) /* rows that follow each other in the buffer */
    epilogue.together = cy_int_gemm_together(cg, p->variant, &p->w->epilogue, channels);
  int64_t bytes = sums_bytes(cg, channels),
          across = p->tile * bytes; /* from output to output of a row, and of a column */
  V lines = p->transposed ? columns : rows, count = p->transposed ? rows : columns;
  cy_loop r;
  cy_loop_begin(cg, &r, cy_i64(cg, 0), lines, cy_i64(cg, 1), NULL, 0);
  V y = cy_add(cg, p->transposed ? x0 : f->y0, r.iv);
  image_line line = {p->w->n_spatial, f->image, f->depth, y, p->transposed ? f->y0 : x0};
  cy_rows index = line_rows(&line);
  V sums = cy_gep(cg, f->buffer, cy_mulc(cg, r.iv, p->transposed ? bytes : across));
  cy_epilogue_tile(cg, &epilogue, &index, sums, cy_i64(cg, p->transposed ? across : bytes), count, cy_i64(cg, 0),
                   cy_i64(cg, channels), f->c0, (unsigned)(channels % cg->W));
  cy_loop_end(cg, &r, NULL);
}

static void emit_row_block(cy_cg *cg, const frame *f, int64_t channels) {
  const depthwise *p = f->p;
  V out = cy_size(cg, p->axis[2].out), height = cy_size(cg, p->axis[1].out);
  V rows = cy_imin(cg, cy_i64(cg, p->row_block.outputs), cy_sub(cg, height, f->y0));
  cy_loop x, v;
  for (int g = 0; g < p->row_block.groups; g++)
    emit_group(cg, f, g, channels);
  cy_loop_begin(cg, &x, cy_i64(cg, 0), out, cy_i64(cg, p->tile), NULL, 0);
  V at = cy_gep(cg, f->scratch, cy_mulc(cg, x.iv, p->axis[2].step * vector_bytes(cg)));
  cy_loop_begin(cg, &v, cy_i64(cg, 0), cy_i64(cg, cy_ceil(channels, cg->W)), cy_i64(cg, 1), NULL, 0);
  emit_sums(cg, f, at, v.iv, channels);
  cy_loop_end(cg, &v, NULL);
  V columns = cy_imin(cg, cy_i64(cg, p->tile), cy_sub(cg, out, x.iv));
  emit_tile_end(cg, f, x.iv, rows, columns, channels);
  cy_loop_end(cg, &x, NULL);
}

/* ---- weights to their places ---- */

/* The tap that the first row of a group is to a use, negative ones included, where its rows are consecutive taps and
 * those beside the kernel are of no other; else false. */
static bool is_run(const group_use *use, int each, int64_t height, int *out_first) {
  int r = 0;
  while (use->tap[r] < 0)
    r++;
  *out_first = use->tap[r] - r;
  for (int i = 0; i < each; i++) {
    int tap = *out_first + i;
    if (use->tap[i] != (tap >= 0 && tap < height ? tap : -1))
      return false;
  }
  return true;
}

static V shifted(cy_cg *cg, V v, int bits) { /* towards higher rows, or lower ones */
  V by = cy_splat(cg, cy_i32(cg, bits < 0 ? -bits : bits), cg->W);
  return bits == 0 ? v : bits > 0 ? LLVMBuildShl(cg->b, v, by, "") : LLVMBuildLShr(cg->b, v, by, "");
}

/* A lane's elements of a use. group: a column's taps, `count` vectors of them, 0 beyond the kernel. */
static V placed(cy_cg *cg, const depthwise *p, const group_use *use, const V *group, int count) {
  const int each = (int)p->variant.step, bits = 32 / each;
  int first;
  if (is_run(use, each, p->axis[1].count, &first)) {
    int at = first < 0 ? 0 : first / each, rest = first < 0 ? first : first % each;
    V low = shifted(cg, group[at], -rest * bits);
    return rest > 0 && at + 1 < count ? LLVMBuildOr(cg->b, low, shifted(cg, group[at + 1], (each - rest) * bits), "")
                                      : low;
  }
  V all = LLVMConstNull(cg->vi), element = cy_splat(cg, cy_i32(cg, (1 << bits) - 1), cg->W);
  for (int r = 0; r < each; r++)
    if (use->tap[r] >= 0) {
      V one = LLVMBuildAnd(cg->b, shifted(cg, group[use->tap[r] / each], -(use->tap[r] % each) * bits), element, "");
      all = LLVMBuildOr(cg->b, all, shifted(cg, one, r * bits), "");
    }
  return all;
}

/* Taps of a kernel column from `row` on, as far as there are so many, as the elements of each lane. from: the column's first
 * one. */
static V group_of(cy_cg *cg, const depthwise *p, V from, int64_t row) {
  const int each = (int)p->variant.step;
  int64_t apart = p->axis[2].count * cg->W * (p->narrow ? 1 : 2);
  LLVMTypeRef words = LLVMVectorType(cg->i16, cg->W);
  V all = NULL;
  for (int i = 0; i < each && row + i < p->axis[1].count; i++) {
    V tap = cy_load(cg, p->narrow ? LLVMVectorType(cg->i8, cg->W) : words, cy_gepc(cg, from, (row + i) * apart), 1);
    if (each == 2 && p->narrow)
      tap = LLVMBuildSExt(cg->b, tap, words, "");
    tap = shifted(cg, LLVMBuildZExt(cg->b, tap, cg->vi, ""), i * 32 / each);
    all = all ? LLVMBuildOr(cg->b, all, tap, "") : tap;
  }
  return all;
}

/* void (ptr packed, ptr placed, i64 vectors, i32 zero, ptr start): the weights of so many vectors of channels, and what
 * their sums begin with: by dot4 less what the zero point will add. */
static V place_function(cy_cg *cg, const depthwise *p) {
  const cy_axis *h = &p->axis[1], *w = &p->axis[2];
  const row_block *b = &p->row_block;
  int count = (int)cy_ceil(h->count, p->variant.step);
  char name[100];
  snprintf(name, sizeof name, "cyk_depthwise_weights%s_%lldx%lld_%lldx%lld_%lld",
           p->variant.dot4 ? ""
           : p->narrow     ? "2"
                           : "2w",
           (long long)h->count, (long long)w->count, (long long)b->outputs, (long long)h->step, (long long)h->inc);
  V fn = cy_shared_find(cg, name), group[MAX_TAPS];
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
  for (int i = 0; i < count; i++) {
    group[i] = group_of(cg, p, cy_gep(cg, from, cy_mulc(cg, k.iv, cg->W * (p->narrow ? 1 : 2))), i * p->variant.step);
    sum = p->variant.dot4 ? cy_int_gemm_add(cg, p->variant, sum, ones, group[i]) : sum;
  }
  for (int u = 0; u < b->uses; u++) {
    V at = cy_mulc(cg, cy_addc(cg, k.iv, u * w->count), cg->W * 4);
    cy_store(cg, placed(cg, p, &b->use[u], group, count), cy_gep(cg, to, at), 4);
  }
  cy_loop_end(cg, &k, &sum);
  V less = cy_splat(cg, LLVMBuildNeg(cg->b, LLVMGetParam(fn, 3), ""), cg->W);
  cy_store(cg, LLVMBuildMul(cg->b, less, k.out[0], ""), cy_gep(cg, LLVMGetParam(fn, 4), cy_mulc(cg, v.iv, cg->W * 4)),
           4);
  cy_loop_end(cg, &v, NULL);
  cy_fn_end(cg, NULL);
  cy_fn_restore(cg, state);
  return fn;
}

static void emit_places(cy_cg *cg, const frame *f, int64_t channels) {
  V fn = place_function(cg, f->p), number = cy_div(cg, f->c0, cy_i64(cg, cg->W));
  V from = cy_gep(cg, f->weights, cy_mulc(cg, number, packed_weights(cg, f->p)));
  V zero = LLVMBuildZExt(cg->b, f->convert.zero, cg->i32, "");
  V args[] = {from, f->placed, cy_i64(cg, cy_ceil(channels, cg->W)), zero, f->start};
  LLVMBuildCall2(cg->b, LLVMGlobalGetValueType(fn), fn, args, 5, "");
  if (!f->p->d->started)
    return;
  V given = cy_gep(cg, cy_arg_ptr(cg, f->p->d->start_slot), cy_mulc(cg, f->c0, 4));
  for (int64_t at = 0; at < channels; at += cg->W) {
    unsigned lanes = channels - at < cg->W ? (unsigned)(channels - at) : cg->W;
    V to = cy_gepc(cg, f->start, at * 4), more = cy_load_first(cg, cg->vi, cy_gepc(cg, given, at * 4), lanes, 4);
    cy_store(cg, LLVMBuildAdd(cg->b, cy_load(cg, cg->vi, to, 4), more, ""), to, 4);
  }
}

/* ---- tasks ---- */

/* A block's channels of row blocks [first, end). */
static void emit_block(cy_cg *cg, frame *f, V first, V end, int64_t channels) {
  const depthwise *p = f->p;
  cy_loop b;
  emit_places(cg, f, channels);
  cy_loop_begin(cg, &b, first, end, cy_i64(cg, 1), NULL, 0);
  f->y0 = cy_mulc(cg, b.iv, p->row_block.outputs);
  emit_row_block(cg, f, channels);
  cy_loop_end(cg, &b, NULL);
}

static void emit_task(cy_cg *cg, void *frame_of, const cy_task *t) {
  frame *f = frame_of;
  const depthwise *p = f->p;
  V depth = cy_size(cg, p->axis[0].out), first = t->rows.begin, end = t->rows.end;
  int64_t block = block_channels(cg), whole = p->c / block * block;
  f->image = cy_div(cg, t->product, depth);
  f->depth = cy_mod(cg, t->product, depth);
  cy_loop c;
  if (whole) {
    cy_loop_begin(cg, &c, cy_i64(cg, 0), cy_i64(cg, whole), cy_i64(cg, block), NULL, 0);
    f->c0 = c.iv;
    emit_block(cg, f, first, end, block);
    cy_loop_end(cg, &c, NULL);
  }
  if (whole < p->c) {
    f->c0 = cy_i64(cg, whole);
    emit_block(cg, f, first, end, p->c - whole);
  }
}

/* Scratch column x is input column x + start. */
static void emit_borders(cy_cg *cg, frame *f) {
  const cy_axis *w = &f->p->axis[2];
  f->left = cy_imin(cg, cy_i64(cg, w->start < 0 ? -w->start : 0), f->width);
  f->right = cy_imax(cg, f->left, cy_imin(cg, f->width, cy_addc(cg, cy_size(cg, w->in), -w->start)));
  emit_border(cg, f, cy_i64(cg, 0), f->left);
  emit_border(cg, f, f->right, f->width);
}

/* ---- the generator ---- */

CY_PLAN_MAKE(depthwise)

static void emit(cy_cg *cg, const void *of, const char *name) {
  const depthwise *p = of;
  int64_t block = block_channels(cg);
  V scratch = cy_phase_begin(cg, name, 0, &p->w->epilogue, p->w->scratch_slot, worker_bytes, p);
  frame f = {.p = p, .convert = cy_int_gemm_rows_begin(cg, p->variant, p->d), .width = scratch_width(cg, p)};
  f.placed = scratch;
  f.scratch = cy_gepc(cg, f.placed, block_weights(cg, p));
  f.vector_bytes = cy_mulc(cg, f.width, vector_bytes(cg));
  f.blank = cy_alloca(cg, block);
  f.start = cy_alloca(cg, block * 4);
  f.buffer = cy_alloca(cg, p->row_block.outputs * p->tile * block * 4);
  f.weights = cy_arg_ptr(cg, p->w->b_slot);
  LLVMBuildMemSet(cg->b, f.blank, f.convert.byte, cy_i64(cg, block), 64);
  emit_borders(cg, &f);
  cy_tasks_emit(cg, grid_of, p, emit_task, &f);
  cy_fn_end(cg, NULL);
}

static void describe(const void *of, char *text, size_t size) {
  const depthwise *p = of;
  snprintf(text, size, "by %s, tile of %lld outputs of %lld rows, tasks of %lld such blocks", p->variant.dot4 ? "dot4" : "dot2",
           (long long)p->tile, (long long)p->row_block.outputs, (long long)p->per_task);
}

const cy_generator cy_int_depthwise_generator = {.plan = plan_make,
                                                 .pack = pack,
                                                 .text = "conv int8 depthwise",
                                                 .describe = describe,
                                                 .phase = {{"", NULL, emit, .grid = grid_of}},
                                                 .worker_bytes = worker_bytes};
