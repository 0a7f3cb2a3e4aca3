/* SPDX-License-Identifier: Apache-2.0 */
/* depthwise.c - the loops of depthwise convolutions, and what they share: plan, borders, epilogue.
 *
 * Comes in: the plan of a kind (depthwise.h). Goes out: one phase. Where rows are read where they lie and the width is
 * constant, the tiles at the left and right border are emitted of their own, without the columns outside; else such tiles
 * (and the last of a row) check each column.
 * Accumulators go from registers through the epilogue; where that has much arithmetic, or a tile's width is known at run time
 * only, those of a block of channels pass through a buffer in the first-level cache.
 */
#include "depthwise.h"

#include <stdio.h>

typedef cy_depthwise_frame frame;
typedef cy_depthwise_tile tile;

enum { MAX_ACCUMULATORS = 16, MAX_BORDER_TILES = 4 };

/* ---- the plan ---- */

/* Outputs of a tile, so that few of a row's last tile idle; more are better among equals. */
static int64_t tile_choose(int64_t width, int64_t max) {
  int64_t best = max, min = max / 2 + 1 < 4 ? max / 2 + 1 : 4;
  double least = 0;
  for (int64_t n = max; width && n >= min; n--) {
    double takes = (double)cy_round_up(width, n) + 0.02 * (double)((max - n) * width);
    if (least == 0 || takes < least) {
      least = takes;
      best = n;
    }
  }
  return width && width < best ? width : best;
}

/* Of all images, of one where their number is not known; 0: not known. */
static int64_t known_row_blocks(const cy_depthwise *p) {
  return cy_conv_images(p->d) * cy_csize_known(p->axis[0].out) * cy_ceil(cy_csize_known(p->axis[1].out), p->rows);
}

void cy_depthwise_plan(const cy_cg *cg, int64_t max_tile, double work, cy_depthwise *p) {
  const cy_axis *w = &p->axis[2];
  int64_t width = cy_csize_known(w->out), outputs = (width ? width : 64) * p->d->cout * p->rows;
  p->tile = tile_choose(width, max_tile);
  p->columns = (p->tile - 1) * w->step + (w->count - 1) * w->inc + 1;
  p->per_task = cy_cost_depthwise_task(cg, work * (double)outputs, known_row_blocks(p), p->by);
}

static V row_blocks_of_image(cy_cg *cg, const cy_depthwise *p) {
  return cy_ceil_div(cg, cy_size(cg, p->axis[1].out), cy_i64(cg, p->rows));
}

static V row_blocks(cy_cg *cg, const cy_depthwise *p) {
  return cy_mul(cg, cy_size(cg, p->d->batch), cy_mul(cg, cy_size(cg, p->axis[0].out), row_blocks_of_image(cg, p)));
}

cy_task_grid cy_depthwise_grid(cy_cg *cg, const void *of) {
  const cy_depthwise *p = of;
  return (cy_task_grid){.rows = cy_axis_pieces(cg, row_blocks(cg, p), p->per_task)};
}

void cy_depthwise_describe(const void *of, char *text, size_t size) {
  static const char *const names[] = {[CY_DEPTHWISE_FMA] = "fma", [CY_DEPTHWISE_DOT2] = "dot2", [CY_DEPTHWISE_DOT4] = "dot4"};
  const cy_depthwise *p = of;
  snprintf(text, size, "by %s, tile of %lldx%lld outputs, tasks of %lld rows", names[p->by], (long long)p->rows,
           (long long)p->tile, (long long)(p->per_task * p->rows));
}

/* ---- products ---- */

/* Is the column one that is known not to exist? */
static bool is_outside(const cy_depthwise *p, const tile *t, int64_t column) {
  const cy_axis *w = &p->axis[2];
  int64_t x0;
  if (t->border != CY_BORDER_KNOWN || !cy_is_const(t->x0, &x0))
    return false;
  int64_t at = x0 * w->step + w->start + column;
  return at < 0 || at >= cy_csize_known(w->in);
}

void cy_depthwise_add(cy_cg *cg, const cy_depthwise *p, const tile *t, const void *vector, V *acc) {
  const cy_axis *w = &p->axis[2];
  for (int64_t x = 0; x < p->columns; x++)
    for (int g = 0; g < p->groups && !is_outside(p, t, x); g++) {
      V column = NULL;
      for (int u = 0; u < p->uses; u++)
        for (int64_t k = 0; p->use[u].group == g && k < w->count; k++) {
          int64_t from = x - k * w->inc;
          if (from < 0 || from % w->step || from / w->step >= t->outputs)
            continue;
          column = column ? column : p->kind->load(cg, vector, g, x);
          V *to = &acc[p->use[u].output * t->outputs + from / w->step];
          *to = p->kind->add(cg, vector, *to, column, u, k);
        }
    }
}

/* ---- the epilogue ---- */

/* Outputs of a row of an image, as an epilogue's rows. */
typedef struct line {
  const frame *f;
  V y, x0;
} line;

static void line_index(void *ctx, cy_cg *cg, V row, V *idx) {
  const line *at = ctx;
  int n = 0, spatial = at->f->p->d->n_spatial;
  idx[n++] = at->f->image;
  if (spatial == 3)
    idx[n++] = at->f->o[0];
  if (spatial >= 2)
    idx[n++] = at->y;
  idx[n] = cy_add(cg, at->x0, row);
}

/* Bytes of an output's accumulators in the buffer. */
static int64_t output_bytes(const cy_cg *cg, int64_t channels) { return cy_round_up(channels, cg->W) * 4; }

/* What is in the buffer, of so many of the tile's columns. */
static void emit_epilogue(cy_cg *cg, const frame *f, const tile *t, V columns) {
  const cy_depthwise *p = f->p;
  cy_epilogue epilogue = p->kind->epilogue ? p->kind->epilogue(cg, f) : p->d->epilogue;
  int64_t bytes = output_bytes(cg, f->channels), row_bytes = t->outputs * bytes;
  V rows = cy_imin(cg, cy_i64(cg, p->rows), cy_sub(cg, cy_size(cg, p->axis[1].out), f->o[1])), none = cy_i64(cg, 0);
  cy_loop r; /* rows of the image */
  cy_loop_begin(cg, &r, none, p->transposed ? columns : rows, cy_i64(cg, 1), NULL, 0);
  line at = {f, cy_add(cg, p->transposed ? t->x0 : f->o[1], r.iv), p->transposed ? f->o[1] : t->x0};
  cy_rows index = {line_index, &at, (unsigned)p->d->n_spatial + 1};
  V acc = cy_gep(cg, f->buffer, cy_mulc(cg, r.iv, p->transposed ? bytes : row_bytes));
  cy_epilogue_tile(cg, &epilogue, &index, acc, cy_i64(cg, p->transposed ? row_bytes : bytes), p->transposed ? rows : columns,
                   none, cy_i64(cg, f->channels), f->c0, (unsigned)(f->channels % cg->W));
  cy_loop_end(cg, &r, NULL);
}

/* ---- tiles ---- */

/* A vector of the block's channels, to the buffer or through the epilogue. */
static void emit_vector(cy_cg *cg, const frame *f, const tile *t, V channel, unsigned lanes, bool buffered) {
  const cy_depthwise *p = f->p;
  V acc[MAX_ACCUMULATORS], idx[5];
  p->kind->accumulate(cg, f, t, channel, lanes, acc);
  for (int64_t i = 0; i < p->rows * t->outputs; i++) {
    if (buffered) {
      cy_store(cg, acc[i], cy_gepc(cg, cy_gepf(cg, f->buffer, channel), i * output_bytes(cg, f->channels)), 4);
      continue;
    }
    line at = {f, f->o[1], t->x0};
    line_index(&at, cg, cy_i64(cg, i), idx);
    idx[p->d->n_spatial + 1] = cy_add(cg, f->c0, channel);
    p->d->epilogue.emit(p->d->epilogue.ctx, cg, acc[i], lanes, idx);
  }
}

/* Never is anything read beyond the last channel, which may be the end of the input. */
static void emit_tile(cy_cg *cg, const frame *f, V x0, int64_t outputs, cy_depthwise_border border) {
  const cy_depthwise *p = f->p;
  const cy_axis *w = &p->axis[2];
  bool full = border == CY_BORDER_NONE || border == CY_BORDER_KNOWN, buffered = !full || p->d->epilogue.heavy;
  V first = cy_addc(cg, cy_mulc(cg, x0, w->step), border == CY_BORDER_COPIED ? 0 : w->start), columns = cy_i64(cg, outputs);
  tile t = {x0, outputs, border, cy_mul(cg, first, f->column_bytes)};
  int64_t all = p->kind->copied ? cy_round_up(f->channels, cg->W) : f->channels, tail = all % cg->W;
  cy_loop v;
  if (all > tail) {
    cy_loop_begin(cg, &v, cy_i64(cg, 0), cy_i64(cg, all - tail), cy_i64(cg, cg->W), NULL, 0);
    emit_vector(cg, f, &t, v.iv, cg->W, buffered);
    cy_loop_end(cg, &v, NULL);
  }
  if (tail)
    emit_vector(cg, f, &t, cy_i64(cg, all - tail), (unsigned)tail, buffered);
  if (buffered)
    emit_epilogue(cg, f, &t, full ? columns : cy_imin(cg, columns, cy_sub(cg, cy_size(cg, w->out), x0)));
}

/* ---- rows ---- */

/* Tiles [from, to) of a row, all with this border. */
static void emit_tiles(cy_cg *cg, const frame *f, V from, V to, cy_depthwise_border border) {
  cy_loop x;
  if (from == to)
    return;
  cy_loop_begin(cg, &x, from, to, cy_i64(cg, f->p->tile), NULL, 0);
  emit_tile(cg, f, x.iv, f->p->tile, border);
  cy_loop_end(cg, &x, NULL);
}

/* Tiles outside [from, to) of a row. */
static void emit_border_tiles(cy_cg *cg, const frame *f, V from, V to, V width) {
  int64_t n = f->p->tile, left, right, all;
  bool known = cy_is_const(from, &left) && cy_is_const(to, &right) && cy_is_const(width, &all);
  if (known && cy_ceil(left + all - right, n) <= MAX_BORDER_TILES) {
    for (int64_t i = 0, x = 0; i < left + all - right; i += n) {
      x = i < left ? i : i - left + right;
      emit_tile(cg, f, cy_i64(cg, x), all - x < n ? all - x : n, CY_BORDER_KNOWN);
    }
    return;
  }
  cy_loop i;
  cy_loop_begin(cg, &i, cy_i64(cg, 0), cy_add(cg, from, cy_sub(cg, width, to)), cy_i64(cg, n), NULL, 0);
  V behind = cy_add(cg, i.iv, cy_sub(cg, to, from));
  emit_tile(cg, f, cy_select(cg, cy_icmp(cg, LLVMIntSLT, i.iv, from), i.iv, behind), n, CY_BORDER_CHECKED);
  cy_loop_end(cg, &i, NULL);
}

/* A row that is read where it lies. Tiles [from, to) are full, and all their columns exist. */
static void emit_row(cy_cg *cg, const frame *f) {
  const cy_depthwise *p = f->p;
  const cy_axis *w = &p->axis[2];
  V zero = cy_i64(cg, 0), n = cy_i64(cg, p->tile), width = cy_size(cg, w->out);
  V from = cy_i64(cg, w->start < 0 ? cy_round_up(cy_ceil(-w->start, w->step), p->tile) : 0);
  V room = cy_imax(cg, cy_addc(cg, cy_size(cg, w->in), w->step - w->start - p->columns), zero);
  V begins = cy_imin(cg, cy_div(cg, room, cy_i64(cg, w->step)), cy_addc(cg, width, 1 - p->tile));
  V to = cy_mul(cg, cy_ceil_div(cg, cy_imax(cg, begins, zero), n), n);
  from = cy_imin(cg, from, width);
  to = cy_imax(cg, from, to);
  emit_border_tiles(cg, f, from, to, width);
  emit_tiles(cg, f, from, to, CY_BORDER_NONE);
}

/* ---- tasks ---- */

static void emit_row_block(cy_cg *cg, frame *f, V number) {
  const cy_depthwise *p = f->p;
  V blocks = row_blocks_of_image(cg, p), depth = cy_size(cg, p->axis[0].out), map = cy_div(cg, number, blocks);
  f->o[1] = cy_mulc(cg, cy_mod(cg, number, blocks), p->rows);
  f->o[0] = cy_mod(cg, map, depth);
  f->image = cy_div(cg, map, depth);
  p->kind->row_block(cg, f);
  if (p->kind->copied)
    emit_tiles(cg, f, cy_i64(cg, 0), cy_size(cg, p->axis[2].out), CY_BORDER_COPIED);
  else
    emit_row(cg, f);
}

/* A block's channels of some row blocks. */
static void emit_block(cy_cg *cg, frame *f, V c0, int64_t channels, cy_share rows) {
  f->c0 = c0;
  f->channels = channels;
  if (f->p->kind->block)
    f->p->kind->block(cg, f);
  cy_loop b;
  cy_loop_begin(cg, &b, rows.begin, rows.end, cy_i64(cg, 1), NULL, 0);
  emit_row_block(cg, f, b.iv);
  cy_loop_end(cg, &b, NULL);
}

static void emit_task(cy_cg *cg, void *frame_of, const cy_task *task) {
  frame *f = frame_of;
  const cy_depthwise *p = f->p;
  int64_t c = p->d->cout, whole = c / p->block * p->block;
  cy_loop l;
  if (whole > p->block) {
    cy_loop_begin(cg, &l, cy_i64(cg, 0), cy_i64(cg, whole), cy_i64(cg, p->block), NULL, 0);
    emit_block(cg, f, l.iv, p->block, task->rows);
    cy_loop_end(cg, &l, NULL);
  } else if (whole) {
    emit_block(cg, f, cy_i64(cg, 0), p->block, task->rows);
  }
  if (whole < c)
    emit_block(cg, f, cy_i64(cg, whole), c - whole, task->rows);
}

V cy_depthwise_begin(cy_cg *cg, const cy_depthwise *p, const char *name, cy_formula *worker_bytes, frame *f) {
  V scratch = cy_phase_begin(cg, name, 0, &p->d->epilogue, p->d->scratch_slot, worker_bytes, p);
  f->p = p;
  f->buffer = cy_alloca(cg, p->rows * p->tile * output_bytes(cg, p->block));
  return scratch;
}

void cy_depthwise_end(cy_cg *cg, frame *f) {
  cy_tasks_emit(cg, cy_depthwise_grid, f->p, emit_task, f);
  cy_fn_end(cg, NULL);
}
