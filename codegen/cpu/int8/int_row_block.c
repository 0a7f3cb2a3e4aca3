/* SPDX-License-Identifier: Apache-2.0 */
/* int_row_block.c - the input rows that a task's output positions read, once each and with their padding, instead of
 * the taps of every position.
 *
 * Comes in: a convolution of bytes by dot4 whose sizes are known, but for the batch. Goes out: a row block in scratch,
 * or the feature map where it lies if it needs no padding; behind the row block where each position of the task begins
 * in it. Micro-kernels add up one kernel row after the other, all of whose taps lie side by side; where these are no
 * multiple of four bytes, what is read beyond them meets weights of 0. Rows of the feature map are counted over the
 * whole batch, as if all feature maps with their padding stood one below the other. With three axes there is a feature
 * map for each output along the first one, and behind each of its rows come those that lie deeper: kernel rows are then
 * in this order, too.
 */
#include "int_gemm_int.h"

typedef cy_int_gemm_plan plan;
typedef cy_int_gemm_frame frame;

enum { MIN_GAIN = 2 };     /* to copy taps takes so many times as many vectors as the row block does */
enum { VECTOR = 64 };      /* bytes */
enum { MIN_TASKS = 24 };   /* if blocks grow */

static int64_t positive(int64_t v) { return v > 0 ? v : 0; }
static int64_t extent(const cy_axis *a) { return (a->count - 1) * a->inc + 1; }
static int64_t all_outputs(const cy_axis *a, int64_t outputs) { return (outputs - 1) * a->step + extent(a); }

/* Columns of a row block: of padding on the left, of the feature map; and of all. */
static int64_t left_of(const plan *p) { return positive(-p->axis[2].start); }
static int64_t width_of(const plan *p) { return all_outputs(&p->axis[2], p->axis[2].out.value); }
static int64_t there_of(const plan *p) {
  int64_t behind = p->axis[2].in.value - positive(p->axis[2].start), room = width_of(p) - left_of(p);
  return behind < room ? behind : room;
}

/* From a feature map with its padding to the one below. */
static int64_t height_of(const plan *p) { return all_outputs(&p->axis[1], p->axis[1].out.value); }

/* Does no output of the axis need padding? */
static bool inside(const cy_axis *a) { return a->start >= 0 && a->start + all_outputs(a, a->out.value) <= a->in.value; }

/* Is there but one feature map? */
static bool alone(const plan *p) { return cy_csize_is(p->d->window.batch, 1) && cy_csize_is(p->axis[0].out, 1); }

/* From a row of the row block to the one below. */
static int64_t row_pitch(const plan *p) { return p->axis[0].count * p->pitch; }

/* Of a task, at most. */
static int64_t row_block_rows(const plan *p) {
  const cy_axis *h = &p->axis[1];
  int64_t lines = cy_ceil(p->mb - 1, p->axis[2].out.value) + 1, maps = 1;
  if (alone(p))
    lines = lines < h->out.value ? lines : h->out.value;
  else
    maps = (lines - 1) / h->out.value + 2;
  return (lines - 1) * h->step + extent(h) + (maps - 1) * positive(extent(h) - h->step);
}

static bool fits(const plan *p) {
  const cy_axis *w = &p->axis[2];
  if (!p->d->conv || p->dense || p->groups != 1 || !p->packed || w->inc != 1 || !cy_csize_is(w->in_stride, p->c) ||
      (p->axis[0].count > 1 && p->axis[1].inc != 1))
    return false;
  for (int i = 0; i < 3; i++)
    if (!cy_csize_known(p->axis[i].in) || !cy_csize_known(p->axis[i].out))
      return false;
  return there_of(p) > 0;
}

/* Are there but two axes? */
static bool flat(const plan *p) {
  const cy_axis *d = &p->axis[0];
  return d->count == 1 && d->start == 0 && cy_csize_is(d->in, 1) && cy_csize_is(d->out, 1);
}

/* Blocks of whole output rows, and of more of them, read fewer input rows twice. */
static void grow_blocks(plan *p) {
  const cy_axis *h = &p->axis[1];
  int64_t width = p->axis[2].out.value, likely = p->rows ? p->rows : p->image, before = 0;
  for (int64_t lines = 1; lines <= h->out.value; lines++) {
    int64_t mb = cy_round_up(lines * width, p->tile.mr), read = all_outputs(h, lines) * 2;
    if (mb * MIN_TASKS > likely || (before && before <= 3 * h->step * (lines - 1)))
      return;
    before = read;
    p->mb = mb > p->mb ? mb : p->mb;
  }
}

void cy_int_row_block_plan(plan *p) {
  if (!fits(p))
    return;
  int64_t run = p->axis[2].count * p->c, mb = p->mb;
  grow_blocks(p);
  int64_t rows = p->rows && p->rows < p->mb ? p->rows : p->mb;
  p->row_block = true;
  p->run_groups = cy_ceil(run, p->variant.step);
  p->in_input = !p->shifted && run % p->variant.step == 0 && inside(&p->axis[1]) && inside(&p->axis[2]) && flat(p);
  p->pitch = cy_round_up(width_of(p) * p->c, 64);
  p->row_block_bytes = p->in_input ? 0 : cy_round_up(row_block_rows(p) * row_pitch(p) + p->variant.step, 64);
  int64_t pieces = rows * p->axis[0].count * p->axis[1].count * cy_ceil(run, VECTOR);
  p->row_block = p->in_input || (p->taps > 1 && p->row_block_bytes / VECTOR * MIN_GAIN <= pieces);
  p->variant.row_block = p->row_block;
  p->mb = p->row_block && !p->in_input ? p->mb : mb;
}

/* ---- code ---- */

V cy_int_row_block_pitch(cy_cg *cg, const plan *p) {
  V row = p->in_input ? cy_size(cg, p->axis[1].in_stride) : cy_i64(cg, p->pitch); /* deeper ones: inc is 1 */
  return cy_mulc(cg, row, p->axis[1].inc);
}

/* A row of the row block: one of the feature map, or padding. line: where that one begins. */
static void emit_row(cy_cg *cg, const frame *f, V dst, V line, V there) {
  const plan *p = f->p;
  const cy_axis *w = &p->axis[2];
  cy_map_row row = {line, there, cy_size(cg, w->in), cy_i64(cg, p->c), p->c, 1};
  cy_copy_row(cg, &f->convert.elements, dst, &row, cy_i64(cg, w->start), cy_i64(cg, width_of(p)));
}

/* Input row `row` of a feature map, and those that lie deeper, behind each other at dst. */
static void emit_depths(cy_cg *cg, const frame *f, V map, V row, V dst) {
  const plan *p = f->p;
  const cy_axis *h = &p->axis[1], *d = &p->axis[0];
  bool single = cy_csize_is(d->out, 1);
  V n = single ? map : cy_div(cg, map, cy_size(cg, d->out)), z = cy_i64(cg, 0), deep;
  if (!single)
    z = cy_mulc(cg, cy_mod(cg, map, cy_size(cg, d->out)), d->step);
  V at = cy_mul(cg, row, cy_size(cg, h->in_stride)), there = cy_icmp(cg, LLVMIntULT, row, cy_size(cg, h->in));
  at = cy_add(cg, at, cy_mul(cg, n, cy_size(cg, p->d->window.in_n)));
  if (flat(p)) {
    emit_row(cg, f, dst, cy_gep(cg, f->a, at), there);
    return;
  }
  cy_loop l;
  cy_loop_begin(cg, &l, cy_i64(cg, 0), cy_i64(cg, d->count), cy_i64(cg, 1), NULL, 0);
  z = cy_add(cg, z, cy_addc(cg, cy_mulc(cg, l.iv, d->inc), d->start));
  deep = cy_add(cg, at, cy_mul(cg, z, cy_size(cg, d->in_stride)));
  there = LLVMBuildAnd(cg->b, there, cy_icmp(cg, LLVMIntULT, z, cy_size(cg, d->in)), "");
  dst = cy_gep(cg, dst, cy_mulc(cg, l.iv, p->pitch));
  emit_row(cg, f, dst, cy_gep(cg, f->a, deep), there);
  cy_loop_end(cg, &l, NULL);
}

/* Rows [v0, v1), counted over all feature maps. */
static void emit_rows(cy_cg *cg, const frame *f, V v0, V v1) {
  const plan *p = f->p;
  V height = cy_i64(cg, height_of(p)), zero = cy_i64(cg, 0);
  cy_loop l;
  cy_loop_begin(cg, &l, v0, v1, cy_i64(cg, 1), NULL, 0);
  V map = alone(p) ? zero : cy_div(cg, l.iv, height), row = alone(p) ? l.iv : cy_mod(cg, l.iv, height);
  V dst = cy_gep(cg, f->scratch, cy_mulc(cg, cy_sub(cg, l.iv, v0), row_pitch(p)));
  emit_depths(cg, f, map, cy_addc(cg, row, p->axis[1].start), dst);
  cy_loop_end(cg, &l, NULL);
}

/* Where positions [x0, x1) of an output row begin, and of how many positions the first is the task's `number`th. */
static void emit_offsets(cy_cg *cg, const frame *f, V line, V x0, V x1, V number) {
  const plan *p = f->p;
  const cy_axis *w = &p->axis[2];
  V to = cy_gep(cg, f->offsets, cy_mulc(cg, cy_sub(cg, number, x0), 8));
  cy_loop x;
  cy_loop_begin(cg, &x, x0, x1, cy_i64(cg, 1), NULL, 0);
  V offset = cy_add(cg, line, cy_mulc(cg, x.iv, w->step * p->c));
  cy_store(cg, offset, cy_gep(cg, to, cy_mulc(cg, x.iv, 8)), 8);
  cy_loop_end(cg, &x, NULL);
}

/* In a row block that begins with row v0, or in the feature map. */
static V line_offset(cy_cg *cg, const plan *p, V n, V y, V v0) {
  const cy_axis *h = &p->axis[1], *w = &p->axis[2];
  V row = cy_mulc(cg, y, h->step);
  if (!p->in_input)
    return cy_mulc(cg, cy_sub(cg, cy_add(cg, cy_mulc(cg, n, height_of(p)), row), v0), row_pitch(p));
  V at = cy_mul(cg, cy_addc(cg, row, h->start), cy_size(cg, h->in_stride));
  at = cy_add(cg, at, cy_mul(cg, n, cy_size(cg, p->d->window.in_n)));
  return cy_addc(cg, at, w->start * p->c);
}

/* Of output row `line`, counted over the batch: where the row block's rows for it begin. */
static V first_row(cy_cg *cg, const plan *p, V line) {
  const cy_axis *h = &p->axis[1];
  V n = cy_div(cg, line, cy_size(cg, h->out)), y = cy_mod(cg, line, cy_size(cg, h->out));
  return cy_add(cg, cy_mulc(cg, n, height_of(p)), cy_mulc(cg, y, h->step));
}

void cy_int_row_block_copy(cy_cg *cg, const frame *f, V count) {
  const plan *p = f->p;
  V width = cy_size(cg, p->axis[2].out), height = cy_size(cg, p->axis[1].out), end = cy_add(cg, f->row0, count);
  V first = cy_div(cg, f->row0, width), last = cy_ceil_div(cg, end, width), v0 = first_row(cg, p, first);
  if (!p->in_input)
    emit_rows(cg, f, v0, cy_addc(cg, first_row(cg, p, cy_addc(cg, last, -1)), extent(&p->axis[1])));
  cy_loop l;
  cy_loop_begin(cg, &l, first, last, cy_i64(cg, 1), NULL, 0);
  V from = cy_mul(cg, l.iv, width), x0 = cy_sub(cg, cy_imax(cg, f->row0, from), from);
  V x1 = cy_imin(cg, width, cy_sub(cg, end, from)), n = cy_div(cg, l.iv, height), y = cy_mod(cg, l.iv, height);
  V begin = line_offset(cg, p, n, y, v0), number = cy_sub(cg, cy_add(cg, from, x0), f->row0);
  emit_offsets(cg, f, begin, x0, x1, number);
  cy_loop_end(cg, &l, NULL);
  /* a tile that is not full computes the last position several times */
  V behind = cy_gep(cg, f->offsets, cy_mulc(cg, count, 8));
  V again = cy_load(cg, cg->i64, cy_gepc(cg, behind, -8), 8);
  for (unsigned i = 0; i < p->tile.mr && !(p->rows && p->rows % p->tile.mr == 0); i++)
    cy_store(cg, again, cy_gepc(cg, behind, 8 * i), 8);
}
