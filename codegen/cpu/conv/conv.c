/* SPDX-License-Identifier: Apache-2.0 */
/* conv.c - convolution as implicit matrix product: any kernel, stride, dilation, padding, groups, 1 to 3 axes,
 * transposed too.
 *
 * Comes in: a cy_conv_desc. Goes out: one phase, tasks being (group, block of output positions, block of output
 * channels). A task writes a table of input addresses, one per tap and position, taps outside the input pointing at
 * zeros, and runs the blocked loops of microkernel.c over it. Blocks of positions run across rows and feature maps,
 * so small ones fill tiles too. Two ways to read the input:
 *   positions  a tap is one position's channels, read where they lie;
 *   runs    few channels: a tap is a whole row of the kernel, KW * C floats; unless padding is known not to be needed,
 *           the input rows, of long ones what a task reads, are first copied to the worker's scratch with their
 *           borders.
 * Positions also lie in the index table, as the epilogue needs them. Where output channels are few, "position" means a
 * block of outputs (conv_output_block.c), or vectors hold input channels and conv_lane_reduce.c has the loops.
 */
#include "codegen/cpu/variants.h"
#include "conv_int.h"

#include <stdio.h>
#include <string.h>

#define LONG_ROW 256 /* positions; longer ones are shared out and copied piece by piece */

typedef enum mode { MODE_POSITIONS, MODE_RUNS, MODE_RUNS_COPIED } mode;

typedef struct conv {
  const cy_conv_desc *d;
  cy_output_block output_block;
  cy_axis axis[3];
  mode mode;
  cy_tile tile;
  cy_blocks blocks;             /* mb: positions of a task, in copied mode rows * known width */
  int64_t row_block, piece;     /* copied mode: output rows of a task; of one, up to so many positions */
  int64_t groups, c, n, merged; /* after merging; per group */
  int64_t nr, last, taps, klen; /* as the micro-kernel sees them */
  int64_t tap_block, c_block;
  int64_t weights_at; /* byte offset of this part's weights */
  int n_idx;
  bool columns_outer;
  bool widened; /* halves become floats panel by panel, where these are not too large */
} conv;

/* How many outputs of this part lie along the axis. */
static V outputs_along(cy_cg *cg, const cy_axis *a) {
  V out = cy_size(cg, a->out);
  return a->scale == 1 ? out : cy_div(cg, cy_addc(cg, out, a->scale - 1 - a->residue), cy_i64(cg, a->scale));
}

/* The same for constants; 0: unknown. */
static int64_t axis_out(const cy_axis *a) {
  int64_t out = cy_csize_known(a->out);
  return out ? cy_ceil(out - a->residue, a->scale) : 0;
}

static int part_count(const cy_cg *cg, const cy_conv_desc *d) {
  int n = 1;
  bool residues = d->transposed && cy_output_block_choose(cg, d).count == 1;
  for (int i = 0; i < d->n_spatial && residues; i++)
    n *= (int)d->stride[i];
  return n;
}

/* ---- the plan ---- */

/* Groups of few outputs share a vector: that costs nothing, since their lanes would lie idle. */
static int64_t merge_choose(const cy_cg *cg, const cy_conv_desc *d) {
  int64_t n = d->cout / d->groups, merged = 1;
  if (cg->strict_fp) /* NaN times a weight of zero is NaN */
    return 1;
  while (n * merged * 2 <= cg->W && d->groups % (merged * 2) == 0)
    merged *= 2;
  return merged;
}

/* May kernel rows be read in place, never leaving the input sideways? */
static bool runs_in_place(const conv *c) {
  const cy_axis *w = &c->axis[2];
  int64_t in = cy_csize_known(w->in), out = axis_out(w);
  return in && out && w->start == 0 && (out - 1) * w->step + w->count <= in && w->in_stride.slot < 0 &&
         w->in_stride.value == c->c;
}

static mode mode_choose(const cy_cg *cg, const conv *c) {
  const cy_axis *w = &c->axis[2];
  if (!cy_form_on(cg, CY_FORM_RUNS) || c->groups > 1 || c->d->transposed || c->output_block.lane_reduce.lanes ||
      c->c >= 16 || w->count == 1 || w->inc != 1)
    return MODE_POSITIONS;
  return runs_in_place(c) ? MODE_RUNS : MODE_RUNS_COPIED;
}

static int64_t positions_of(const conv *c, int64_t batch) {
  int64_t n = batch;
  for (int i = 0; i < 3; i++)
    n *= axis_out(&c->axis[i]);
  return n;
}

static int64_t known_positions(const conv *c) { return positions_of(c, cy_csize_known(c->d->batch)); }

static int64_t panel_count(const conv *c) { return cy_ceil(c->n, c->nr); }

static void blocks_choose(const cy_cg *cg, conv *c) {
  int64_t positions = known_positions(c), width = axis_out(&c->axis[2]);
  int64_t k = c->taps * c->klen;
  if (c->output_block.lane_reduce.lanes) /* its tiles have vectors for some of k */
    k = cy_ceil(k * c->n, cg->W);
  c->blocks = cy_blocks_choose(cg, c->tile, c->groups, positions, panel_count(c), k);
  c->row_block = 1;
  c->piece = cy_round_up(c->blocks.mb > LONG_ROW ? c->blocks.mb : LONG_ROW, c->tile.mr);
  if (c->mode == MODE_RUNS_COPIED && width)
    c->row_block = c->blocks.mb > width ? c->blocks.mb / width : 1;
  int64_t weights = c->taps * c->klen * c->n, input = positions * c->c * c->axis[2].step;
  c->columns_outer = positions && weights > input;
}

static conv part_plan(const cy_cg *cg, const cy_conv_desc *d, int part) {
  conv c = {
      .d = d, .output_block = cy_output_block_choose(cg, d), .merged = merge_choose(cg, d), .n_idx = 1 + d->n_spatial};
  cy_conv_axes(d, part, c.axis);
  if (c.output_block.count > 1)
    cy_output_block_axes(d, &c.output_block, c.axis);
  c.groups = d->groups / c.merged;
  c.c = d->cin / c.groups;
  c.n = d->cout / c.groups * c.output_block.count;
  c.mode = mode_choose(cg, &c);
  c.taps = c.axis[0].count * c.axis[1].count * (c.mode == MODE_POSITIONS ? c.axis[2].count : 1);
  c.klen = c.c * (c.mode == MODE_POSITIONS ? 1 : c.axis[2].count);
  c.tile = cy_tile_choose_floats(cg, known_positions(&c), c.n);
  if (cg->tile_rows)
    c.tile = (cy_tile){cg->tile_rows, cg->tile_vectors};
  const cy_lane_reduce *lane_reduce = c.output_block.lane_reduce.lanes ? &c.output_block.lane_reduce : NULL;
  if (lane_reduce)
    c.tile = (cy_tile){cy_lane_reduce_rows(cg, lane_reduce, c.n), 1};
  c.nr = (int64_t)c.tile.nv * cg->W;
  c.last = lane_reduce ? 0 : cy_last_columns(c.n, c.nr);
  cy_kblock_choose(cg, d->weights, c.taps, c.klen, &c.tap_block, &c.c_block);
  if (c.mode != MODE_POSITIONS || lane_reduce)
    c.c_block = c.klen;
  if (lane_reduce)
    c.tap_block = c.taps;
  if (c.taps == 0)
    c.tap_block = 1;
  c.widened = d->weights != CY_WEIGHTS_F32 && cg->model.widens;
  blocks_choose(cg, &c);
  return c;
}

static cy_pack_layout part_layout(const cy_cg *cg, const conv *c) {
  const cy_conv_desc *d = c->d;
  int64_t per_tap = c->mode == MODE_POSITIONS ? 1 : c->axis[2].count;
  cy_pack_layout l = {.groups = c->groups,
                      .n = c->n,
                      .taps = c->taps * per_tap,
                      .c = c->c,
                      .tap_block = c->tap_block * per_tap,
                      .c_block = per_tap > 1 ? c->c : c->c_block,
                      .nr = (unsigned)c->nr,
                      .last = (unsigned)c->last,
                      .places = c->output_block.count > 1 ? (int)c->output_block.count : 0,
                      .merged = (int)c->merged,
                      .weights = d->weights};
  l.bytes = c->groups * cy_pack_columns(&l) * l.taps * l.c * cy_weight_bytes(d->weights);
  l.bytes += cy_last_room(cg, c->last, d->weights);
  const cy_lane_reduce *lane_reduce = &c->output_block.lane_reduce;
  if (lane_reduce->lanes) {
    l.step = lane_reduce->lanes / lane_reduce->outputs;
    l.nr = lane_reduce->outputs > 1 ? lane_reduce->outputs : (unsigned)c->n;
    l.bytes = cy_lane_reduce_weights(lane_reduce, d, l.taps);
  }
  return l;
}

/* The plan of all parts. */
typedef struct direct {
  const cy_conv_desc *d;
  int parts;
  conv *part;
} direct;

static void *plan(const cy_cg *cg, const void *desc, cy_arena *arena) {
  direct *p = CY_NEW(arena, direct);
  *p = (direct){.d = desc, .parts = part_count(cg, desc)};
  p->part = CY_NEW_ARRAY(arena, conv, p->parts);
  int64_t offset = 0;
  for (int i = 0; i < p->parts; i++) {
    p->part[i] = part_plan(cg, desc, i);
    p->part[i].weights_at = offset;
    offset += cy_round_up(part_layout(cg, &p->part[i]).bytes, 64);
  }
  return p;
}

static const int32_t *part_map(const direct *p, int part, cy_arena *arena) {
  const cy_output_block *s = &p->part[part].output_block;
  return s->count > 1 ? cy_output_block_map(p->d, s, arena) : cy_conv_tap_map(p->d, part, arena);
}

static void pack(const cy_cg *cg, const void *of, int64_t matrices, cy_arena *arena, cy_packing *out) {
  (void)matrices; /* groups are in the descriptor */
  const direct *p = of;
  *out = (cy_packing){.n_parts = p->parts, .part = CY_NEW_ARRAY(arena, cy_pack_part, p->parts)};
  for (int i = 0; i < p->parts; i++) {
    out->part[i] = (cy_pack_part){part_layout(cg, &p->part[i]), p->part[i].weights_at, part_map(p, i, arena)};
    out->bytes = out->part[i].offset + out->part[i].layout.bytes;
  }
}

static const char *name_of(const void *of) {
  return ((const direct *)of)->d->transposed ? "conv transposed" : "conv direct";
}

/* ---- sizes ---- */

/* Output rows: the batch times all axes but the last. */
static V row_count(cy_cg *cg, const conv *c) {
  V rows = cy_size(cg, c->d->batch);
  return cy_mul(cg, rows, cy_mul(cg, outputs_along(cg, &c->axis[0]), outputs_along(cg, &c->axis[1])));
}

/* Positions of a full task. */
static V block_positions(cy_cg *cg, const conv *c) {
  if (c->mode != MODE_RUNS_COPIED)
    return cy_i64(cg, c->blocks.mb);
  return cy_mulc(cg, cy_imin(cg, outputs_along(cg, &c->axis[2]), cy_i64(cg, c->piece)), c->row_block);
}

static cy_task_axis row_axis(cy_cg *cg, const conv *c) {
  return cy_axis_shares(cg, outputs_along(cg, &c->axis[2]), c->tile.mr, c->piece);
}

/* Blocks of positions; in copied mode of output rows, or pieces of these. */
static cy_task_grid grid_of(cy_cg *cg, const void *of) {
  const conv *c = of;
  V rows = row_count(cg, c);
  cy_task_grid grid = {.products = c->groups > 1 ? cy_i64(cg, c->groups) : NULL, .columns_outer = c->columns_outer};
  if (c->mode != MODE_RUNS_COPIED)
    grid.rows = cy_axis_shares(cg, cy_mul(cg, rows, outputs_along(cg, &c->axis[2])), c->tile.mr, c->blocks.mb);
  else if (c->row_block > 1)
    grid.rows = cy_axis_shares(cg, rows, 1, c->row_block);
  else
    grid.rows = cy_axis_pieces(cg, cy_mul(cg, rows, row_axis(cg, c).blocks), 1);
  grid.columns = cy_axis_shares(cg, cy_i64(cg, panel_count(c)), 1, c->blocks.nb);
  return grid;
}

/* Input columns that so many outputs of a row read. */
static V columns_of(cy_cg *cg, const conv *c, V outputs) {
  return cy_addc(cg, cy_mulc(cg, cy_addc(cg, outputs, -1), c->axis[2].step), c->axis[2].count);
}

/* Scratch, in this order. */
typedef struct regions {
  V index, table, cbuf, widened, rows, end; /* byte offsets */
  V padded_width;                           /* floats of a copied row */
} regions;

/* The tables are written in vectors of so many numbers, the last of which may reach into what is written next, or into
 * the room behind a table's row. */
static int64_t table_lanes(const cy_cg *cg) { return cg->W / 2; }

/* Numbers in a row of the tables. */
static V table_row(cy_cg *cg, const conv *c) { return cy_addc(cg, block_positions(cg, c), table_lanes(cg)); }

/* What decides how many bytes a task's weights take as floats. */
static cy_microkernel micro_shape(cy_cg *cg, const conv *c) {
  return (cy_microkernel){.tile = c->tile,
                          .weights = c->d->weights,
                          .taps = cy_i64(cg, c->taps),
                          .c = cy_i64(cg, c->klen),
                          .tap_block = c->tap_block,
                          .c_block = c->c_block,
                          .cbuf_panels = c->blocks.nb};
}

static regions regions_of(cy_cg *cg, const conv *c) {
  regions r;
  cy_microkernel micro = micro_shape(cg, c);
  V positions = block_positions(cg, c);
  bool single = c->taps <= c->tap_block && c->klen <= c->c_block;
  V row = table_row(cg, c);
  r.index = cy_i64(cg, 0);
  r.table = cy_round64(cg, cy_mulc(cg, row, c->n_idx * 8));
  r.cbuf = cy_round64(cg, cy_add(cg, r.table, cy_mulc(cg, row, c->taps * 8)));
  r.widened = cy_round64(cg, cy_add(cg, r.cbuf, cy_mulc(cg, positions, single ? 0 : c->blocks.nb * c->nr * 4)));
  r.rows = cy_addc(cg, r.widened, c->output_block.lane_reduce.lanes ? 0 : cy_widened_bytes(cg, &micro));
  r.padded_width =
      cy_mulc(cg, columns_of(cg, c, cy_imin(cg, outputs_along(cg, &c->axis[2]), cy_i64(cg, c->piece))), c->c);
  V copied = cy_mulc(cg, r.padded_width, c->mode == MODE_RUNS_COPIED ? c->row_block * c->taps * 4 : 0);
  r.end = cy_round64(cg, cy_add(cg, r.rows, copied));
  return r;
}

static V worker_bytes(cy_cg *cg, const void *ctx) {
  const direct *p = ctx;
  V max = cy_i64(cg, 0);
  for (int i = 0; i < p->parts; i++)
    max = cy_imax(cg, max, regions_of(cg, &p->part[i]).end);
  return max;
}

/* ---- the tables ---- */

/* Loop-invariant values of the function being emitted. */
typedef struct frame {
  const conv *c;
  regions r;
  V scratch, input, zeros;       /* i64 addresses but scratch */
  V in, in_stride, in_n, out[3]; /* in, in_stride: positions of a row; strides in bytes */
  V row;                         /* numbers in one of the tables */
} frame;

/* Output row `flat`, cut to its position; first position x0, n of them; r0: their first row of the tables. */
typedef struct segment {
  V n, o[3], x0, count, r0, row; /* row: number within the task, copied mode */
} segment;

static V scaled(cy_cg *cg, V o, const cy_axis *a) { return cy_addc(cg, cy_mulc(cg, o, a->scale), a->residue); }

static V splat64(cy_cg *cg, V x) { return cy_splat(cg, x, (unsigned)table_lanes(cg)); }

/* first, first + by, .. */
static V series(cy_cg *cg, V first, V by) {
  V number[16];
  for (unsigned i = 0; i < (unsigned)table_lanes(cg); i++)
    number[i] = cy_i64(cg, i);
  V steps = LLVMBuildMul(cg->b, LLVMConstVector(number, (unsigned)table_lanes(cg)), splat64(cg, by), "");
  return LLVMBuildAdd(cg->b, splat64(cg, first), steps, "");
}

/* Row `number` of the index table, for the positions from `row` on. */
static V index_at(cy_cg *cg, const frame *f, int number, V row) {
  V at = cy_add(cg, cy_mulc(cg, f->row, number), row);
  return cy_gep(cg, f->scratch, cy_add(cg, f->r.index, cy_mulc(cg, at, 8)));
}

static void emit_index(cy_cg *cg, const frame *f, const segment *s) {
  const conv *c = f->c;
  cy_loop l;
  cy_loop_begin(cg, &l, cy_i64(cg, 0), s->count, cy_i64(cg, table_lanes(cg)), NULL, 0);
  V row = cy_add(cg, s->r0, l.iv);
  cy_store(cg, splat64(cg, s->n), index_at(cg, f, 0, row), 8);
  for (int i = 3 - c->d->n_spatial, j = 1; i < 3; i++, j++) {
    V at = scaled(cg, i == 2 ? cy_add(cg, s->x0, l.iv) : s->o[i], &c->axis[i]);
    cy_store(cg, i == 2 ? series(cg, at, cy_i64(cg, c->axis[i].scale)) : splat64(cg, at), index_at(cg, f, j, row), 8);
  }
  cy_loop_end(cg, &l, NULL);
}

static V table_at(cy_cg *cg, const frame *f, V tap, V row) {
  V at = cy_add(cg, cy_mul(cg, tap, f->row), row);
  return cy_gep(cg, f->scratch, cy_add(cg, f->r.table, cy_mulc(cg, at, 8)));
}

/* The entries of one tap for a segment. row: address of the input row; ok: it exists; x: input column of the first
 * position. */
static void emit_entries(cy_cg *cg, const frame *f, const segment *s, V tap, V row, V ok, V x, bool sideways) {
  V to = table_at(cg, f, tap, s->r0), zeros = splat64(cg, f->zeros);
  const cy_axis *w = &f->c->axis[2];
  V step = cy_i64(cg, w->step), stride = cy_mul(cg, f->in_stride, step);
  cy_loop l;
  cy_loop_begin(cg, &l, cy_i64(cg, 0), s->count, cy_i64(cg, table_lanes(cg)), NULL, 0);
  V column = cy_add(cg, x, cy_mul(cg, l.iv, step));
  V entry = series(cg, cy_add(cg, row, cy_mul(cg, column, f->in_stride)), stride);
  if (sideways) {
    V columns = series(cg, column, step), exists;
    exists = LLVMBuildICmp(cg->b, LLVMIntULT, columns, splat64(cg, f->in), "");
    entry = LLVMBuildSelect(cg->b, exists, entry, zeros, "");
  }
  cy_store(cg, LLVMBuildSelect(cg->b, ok, entry, zeros, ""), cy_gep(cg, to, cy_mulc(cg, l.iv, 8)), 8);
  cy_loop_end(cg, &l, NULL);
}

/* What a segment reads of one row, copied. Returns its address. */
static V emit_row_copy(cy_cg *cg, const frame *f, const segment *s, V tap, V row, V ok) {
  const conv *c = f->c;
  const cy_axis *w = &c->axis[2];
  V number = cy_add(cg, cy_mulc(cg, s->row, c->taps), tap);
  V to = cy_gep(cg, f->scratch, cy_add(cg, f->r.rows, cy_mul(cg, number, cy_mulc(cg, f->r.padded_width, 4))));
  cy_map_row from = {LLVMBuildIntToPtr(cg->b, row, cg->ptr, ""), ok, f->in, cy_size(cg, w->in_stride), c->c, 1};
  cy_elements floats = cy_elements_plain(cg, 4);
  V first = cy_addc(cg, cy_mulc(cg, s->x0, w->step), w->start);
  cy_copy_row(cg, &floats, to, &from, first, columns_of(cg, c, s->count));
  return LLVMBuildPtrToInt(cg->b, to, cg->i64, "");
}

/* All taps of one kernel row (axes 0 and 1 fixed). */
static void emit_kernel_row(cy_cg *cg, const frame *f, const segment *s, V kernel_row, V row, V ok) {
  const conv *c = f->c;
  const cy_axis *w = &c->axis[2];
  V x = cy_mulc(cg, s->x0, w->step), yes = LLVMConstInt(cg->i1, 1, 0);
  if (c->mode == MODE_RUNS_COPIED) {
    frame copied = *f;
    copied.in_stride = cy_i64(cg, c->c * 4);
    V at = emit_row_copy(cg, f, s, kernel_row, row, ok);
    emit_entries(cg, &copied, s, kernel_row, at, yes, cy_i64(cg, 0), false);
  } else if (c->mode == MODE_RUNS) {
    emit_entries(cg, f, s, kernel_row, row, ok, x, false);
  } else {
    cy_loop l;
    cy_loop_begin(cg, &l, cy_i64(cg, 0), cy_i64(cg, w->count), cy_i64(cg, 1), NULL, 0);
    V column = cy_add(cg, x, cy_addc(cg, cy_mulc(cg, l.iv, w->inc), w->start));
    V tap = cy_add(cg, cy_mulc(cg, kernel_row, w->count), l.iv);
    emit_entries(cg, f, s, tap, row, ok, column, true);
    cy_loop_end(cg, &l, NULL);
  }
}

static void emit_segment(cy_cg *cg, const frame *f, const segment *s) {
  cy_kernel_rows r;
  emit_index(cg, f, s);
  cy_kernel_rows_begin(cg, &r, f->c->axis, s->o, NULL);
  V map = cy_add(cg, f->input, cy_mul(cg, s->n, f->in_n));
  emit_kernel_row(cg, f, s, r.number, cy_add(cg, map, cy_mulc(cg, r.offset, 4)), r.exists);
  cy_kernel_rows_end(cg, &r);
}

/* Fills the tables for `count` positions from number p0 on, row by row. */
static void emit_tables(cy_cg *cg, const frame *f, V p0, V count) {
  V width = f->out[2], first = cy_div(cg, p0, width), end = cy_add(cg, p0, count);
  V last = cy_ceil_div(cg, end, width);
  cy_loop l;
  cy_loop_begin(cg, &l, first, last, cy_i64(cg, 1), NULL, 0);
  segment s;
  V from = cy_mul(cg, l.iv, width), lo = cy_imax(cg, p0, from), hi = cy_imin(cg, end, cy_add(cg, from, width));
  s.x0 = cy_sub(cg, lo, from);
  s.count = cy_sub(cg, hi, lo);
  s.r0 = cy_sub(cg, lo, p0);
  s.row = cy_sub(cg, l.iv, first);
  s.o[2] = NULL;
  s.o[1] = cy_mod(cg, l.iv, f->out[1]);
  V rest = cy_div(cg, l.iv, f->out[1]);
  s.o[0] = cy_mod(cg, rest, f->out[0]);
  s.n = cy_div(cg, rest, f->out[0]);
  emit_segment(cg, f, &s);
  cy_loop_end(cg, &l, NULL);
}

/* ---- tasks ---- */

static void row_index(void *ctx, cy_cg *cg, V row, V *idx) {
  const frame *f = ctx;
  for (int i = 0; i < f->c->n_idx; i++)
    idx[i] = cy_load(cg, cg->i64, index_at(cg, f, i, row), 8);
}

/* Is it worth asking whether all positions of a tile lie outside the feature map? */
static bool may_skip(const conv *c) { return c->mode == MODE_POSITIONS && c->taps > 1 && c->klen >= 16; }

/* What the task's rows are as positions. */
static cy_share positions_in(cy_cg *cg, const frame *f, cy_share rows) {
  const conv *c = f->c;
  if (c->mode != MODE_RUNS_COPIED)
    return rows;
  if (c->row_block > 1)
    return (cy_share){cy_mul(cg, rows.begin, f->out[2]), cy_mul(cg, rows.end, f->out[2])};
  cy_task_axis row = row_axis(cg, c);
  V first = cy_mul(cg, cy_div(cg, rows.begin, row.blocks), f->out[2]), piece = cy_mod(cg, rows.begin, row.blocks);
  cy_share s = cy_axis_share(cg, &row, piece, piece);
  return (cy_share){cy_add(cg, first, s.begin), cy_add(cg, first, s.end)};
}

static unsigned tails_of_blocks(const cy_cg *cg, const conv *c) {
  int64_t positions = known_positions(c), width = axis_out(&c->axis[2]);
  if (c->mode != MODE_RUNS_COPIED || !positions)
    return cy_share_tails(cg, c->tile, positions, c->blocks.mb);
  if (c->row_block == 1)
    return cy_share_tails(cg, c->tile, width, c->piece);
  int64_t rows = positions / width, blocks = cy_ceil(rows, c->row_block), few = rows / blocks * width;
  return cy_tails(cg, c->tile, few, few) | (rows % blocks ? cy_tails(cg, c->tile, few + width, few + width) : 0);
}

static void emit_task(cy_cg *cg, void *frame_of, const cy_task *t) {
  const frame *f = frame_of;
  const conv *c = f->c;
  V group = t->product;
  cy_task task = *t;
  task.rows = positions_in(cg, f, t->rows);
  cy_microkernel micro = micro_shape(cg, c);
  cy_microkernel_task(cg, &micro, &task, cy_i64(cg, panel_count(c)), cy_cconst(c->n), c->last);
  emit_tables(cg, f, task.rows.begin, micro.rows);
  V weights = cy_gepc(cg, cy_arg_ptr(cg, c->d->b_slot), c->weights_at);
  int64_t group_bytes = c->taps * c->klen * cy_panel_columns(c->n, c->nr, c->last) * cy_weight_bytes(c->d->weights);
  cy_rows index = {row_index, (void *)f, (unsigned)c->n_idx};
  cy_output_block_outputs outputs = {c->d, c->output_block};
  cy_epilogue places = cy_output_block_epilogue(&outputs);
  micro.b = cy_gep(cg, weights, cy_mulc(cg, group, group_bytes));
  micro.tails = tails_of_blocks(cg, c);
  micro.tab = cy_gep(cg, f->scratch, f->r.table);
  micro.tab_stride = cy_mulc(cg, f->row, 8);
  micro.base = cy_mulc(cg, group, c->c * 4);
  micro.skip = may_skip(c) ? f->zeros : NULL;
  micro.cbuf = cy_gep(cg, f->scratch, f->r.cbuf);
  micro.widened = cy_gep(cg, f->scratch, f->r.widened);
  micro.col0 = cy_mulc(cg, group, c->n);
  micro.epilogue = c->output_block.count > 1 ? &places : &c->d->epilogue;
  micro.index = &index;
  if (c->output_block.lane_reduce.lanes)
    cy_lane_reduce_emit(cg, &micro, &c->output_block.lane_reduce);
  else
    cy_microkernel_emit(cg, &micro);
}

static V address(cy_cg *cg, V p) { return LLVMBuildPtrToInt(cg->b, p, cg->i64, ""); }

static void emit_part(cy_cg *cg, const direct *p, const conv *c, const char *name, int flags) {
  const cy_conv_desc *d = c->d;
  V scratch = cy_phase_begin(cg, name, flags, &d->epilogue, d->scratch_slot, worker_bytes, p);
  frame f = {.c = c, .r = regions_of(cg, c), .scratch = scratch, .row = table_row(cg, c)};
  f.input = address(cg, cy_arg_ptr(cg, d->a_slot));
  f.zeros = address(cg, cy_zeros(cg, (c->mode == MODE_POSITIONS ? d->cin : c->klen) * 4));
  f.in_n = cy_mulc(cg, cy_size(cg, d->in_n), 4);
  f.in = cy_size(cg, c->axis[2].in);
  f.in_stride = cy_mulc(cg, cy_size(cg, c->axis[2].in_stride), 4);
  for (int i = 0; i < 3; i++)
    f.out[i] = outputs_along(cg, &c->axis[i]);
  cy_tasks_emit(cg, grid_of, c, emit_task, &f);
  cy_fn_end(cg, NULL);
}

static V all_tasks(cy_cg *cg, const void *ctx) {
  const direct *p = ctx;
  V sum = cy_i64(cg, 0);
  for (int i = 0; i < p->parts; i++)
    sum = cy_add(cg, sum, cy_task_count(cg, grid_of, &p->part[i]));
  return sum;
}

/* Tasks of all parts behind each other: each part runs what falls to it. */
static void emit_parts(cy_cg *cg, const direct *p, const char *kernel) {
  char name[160];
  for (int i = 0; i < p->parts; i++) {
    snprintf(name, sizeof name, "%s_part%d", kernel, i);
    emit_part(cg, p, &p->part[i], name, CY_FN_INTERNAL | CY_FN_NOINLINE);
  }
  cy_kernel_begin(cg, kernel, 0);
  V base = cy_i64(cg, 0);
  for (int i = 0; i < p->parts; i++) {
    V count = cy_task_count(cg, grid_of, &p->part[i]), lo = cy_imax(cg, cy_sub(cg, cg->begin, base), cy_i64(cg, 0));
    V args[4] = {cg->args, lo, cy_imin(cg, cy_sub(cg, cg->end, base), count), cg->worker};
    cy_if some;
    cy_if_begin(cg, &some, cy_icmp(cg, LLVMIntSLT, lo, args[2]));
    snprintf(name, sizeof name, "%s_part%d", kernel, i);
    cy_call(cg, LLVMGetNamedFunction(cg->module, name), args, 4);
    cy_if_end(cg, &some);
    base = cy_add(cg, base, count);
  }
  cy_fn_end(cg, NULL);
}

static void emit(cy_cg *cg, const void *of, const char *name) {
  const direct *p = of;
  if (p->parts > 1)
    emit_parts(cg, p, name);
  else
    emit_part(cg, p, p->part, name, 0);
}

static void describe(const void *of, char *text, size_t size) {
  const direct *p = of;
  const conv *c = p->part;
  const char *taps = c->mode == MODE_POSITIONS ? "" : ", taps are rows of the kernel";
  snprintf(text, size, "tile %ux%lld, tasks of %lld positions and %lld panels, k by %lld, %d parts%s%s", c->tile.mr,
           (long long)c->nr, (long long)c->blocks.mb, (long long)c->blocks.nb, (long long)(c->tap_block * c->c_block), p->parts,
           taps, c->widened ? ", weights widened by panels" : "");
  size_t n = strlen(text);
  if (c->output_block.lane_reduce.lanes)
    snprintf(text + n, size - n, ", vectors of input channels");
  else if (c->output_block.count > 1)
    snprintf(text + n, size - n, ", %lld outputs together", (long long)c->output_block.count);
}

const cy_generator cy_direct_generator = {.plan = plan,
                                          .pack = pack,
                                          .name = name_of,
                                          .describe = describe,
                                          .phase = {{"", NULL, emit, all_tasks}},
                                          .worker_bytes = worker_bytes};

/* ---- cost ---- */

/* The share of an axis' taps that lie inside the feature map. */
static double inside_share(const cy_axis *a) {
  int64_t in = cy_csize_known(a->in), out = axis_out(a), inside = 0;
  for (int64_t o = 0; in && o < out; o++)
    for (int64_t t = 0; t < a->count; t++) {
      int64_t at = o * a->step + a->start + t * a->inc;
      inside += at >= 0 && at < in;
    }
  return in && out && a->count ? (double)inside / (double)(out * a->count) : 1;
}

/* How many, where that is known; else as many as estimates take for it. */
double cy_conv_outputs(const cy_conv_desc *d) {
  double positions = (double)cy_conv_images(d);
  for (int i = 0; i < d->n_spatial; i++)
    positions *= (double)cy_csize_known(d->out[i]);
  return (positions > 0 ? positions : CY_UNKNOWN_POSITIONS) * (double)d->cout;
}

/* Cycles of the direct convolution on one core. */
double cy_direct_cost(const cy_cg *cg, const cy_conv_desc *d) {
  cy_output_block output_block = cy_output_block_choose(cg, d);
  double work = 0, bytes = 0;
  for (int part = 0; part < part_count(cg, d); part++) {
    conv c = part_plan(cg, d, part);
    double positions = (double)positions_of(&c, cy_conv_images(d));
    double weights = (double)(c.taps * c.klen * c.n) * (double)c.groups;
    double products = (positions > 0 ? positions : CY_UNKNOWN_POSITIONS) * weights;
    for (int i = 0; i < 3; i++)
      products *= c.axis[i].inc > 1 ? inside_share(&c.axis[i]) : 1;
    work += cy_cost_fmas(cg, products);
    bytes += weights * (double)cy_weight_bytes(d->weights);
  }
  if (output_block.products > 0)
    work = cy_cost_fmas(cg, output_block.products * (double)(d->cin * cg->W * cy_conv_images(d)));
  return cy_cost_plain(cg, work, bytes, cy_conv_outputs(d));
}

cy_variants cy_direct_variants(const cy_cg *cg, const cy_conv_desc *d) {
  conv plan = part_plan(cg, d, 0);
  bool floats = d->weights == CY_WEIGHTS_F32, tiles = floats && part_count(cg, d) == 1 && !plan.output_block.lane_reduce.lanes;
  return (cy_variants){.kinds = floats ? CY_OF_DIRECT : CY_OF_HALVES,
                       .base = CY_BASE_DIRECT,
                       .tile = plan.tile,
                       .rows = tiles ? known_positions(&plan) : 0,
                       .n = plan.n,
                       .by = &cy_direct_generator,
                       .desc = d};
}
