/* SPDX-License-Identifier: Apache-2.0 */
/* conv_planar.c - convolutions of feature maps that lie channel by channel: lanes are neighbouring outputs of a row.
 *
 * Comes in: a cy_conv_desc that is planar. Goes out: one phase, tasks being (feature map, group, some output rows that follow
 * each other, piece of these). A task copies what its piece reads to the worker's scratch, row by row of each channel,
 * with the borders as zeros and, for strides, cut into residues, of which neighbouring outputs read neighbours; what
 * several of its rows read it copies once. Then MR output channels times NV vectors of outputs are a tile, whose accumulators
 * stay in registers: for each tap and input channel NV vectors of the copy, from where the tap begins, and MR weights,
 * each for a whole vector. Nothing is unfolded, and neither feature map has to be transposed.
 * Where channels are few, or the layers around have feature maps in this order, that costs less than conv.c's algorithm
 * between two conversions; cy_planar_cost is for the pass that decides.
 */
#include "conv_int.h"
#include "ir/ir.h"

#include <stdio.h>
#include <stdlib.h>

enum {
  MAX_TILE = 16,    /* rows or vectors */
  MAX_PIECE = 2048, /* outputs */
  MAX_ROWS = 16,
  KEPT_SHARE = 8, /* .. of the second-level cache */
  LINE = 16,      /* floats */
  LONG_SUM = 128, /* products; with fewer, what is written counts, channel by channel */
  ENOUGH_TASKS = 16,
  UNKNOWN_ROW = 4096,   /* what a row of unknown length is taken for */
  UNKNOWN_ROWS = 64     /* likewise, rows of a feature map */
};

typedef struct planar {
  const cy_conv_desc *d;
  cy_axis axis[3];
  int64_t groups, c, m; /* channels of a group: of the input, the output */
  unsigned mr, nv;
  int64_t taps, residues;
  int64_t rows;      /* output rows of a task, along axis[1] */
  int64_t lines;     /* rows of the input that are kept for these, along the same axis */
  int64_t line_inc;  /* from one of them to the next one, in rows of the input */
  int64_t piece;     /* outputs of a row that a task does, a multiple of nv vectors */
  int64_t row;       /* floats that are kept of a residue */
  int64_t channel;   /* .. and of a channel: an odd number of cache lines, or channels would share places in caches */
  bool panels_outer; /* all output channels of a tile's outputs, before the next ones */
} planar;

/* ---- the plan ---- */

/* All tiles of a row. */
static double tile_cycles(const cy_cg *cg, int64_t k, int64_t m, int64_t width, unsigned mr, unsigned nv) {
  double tiles = (double)(cy_ceil(m, mr) * cy_ceil(width, (int64_t)nv * cg->W));
  return tiles * ((double)k * cy_cost_planar_step(cg, mr, nv) + mr * cg->model.planar_segment);
}

static cy_tile planar_tile(const cy_cg *cg, int64_t k, int64_t m, int64_t width) {
  cy_tile best = {1, 1};
  unsigned registers = cg->registers;
  for (unsigned mr = 1; mr <= MAX_TILE; mr++)
    for (unsigned nv = 1; mr * nv + nv + 1 <= registers; nv++)
      if (tile_cycles(cg, k, m, width, mr, nv) < tile_cycles(cg, k, m, width, best.mr, best.nv))
        best = (cy_tile){mr, nv};
  return best;
}

static int64_t outer_taps(const planar *p) { return p->axis[0].count * p->axis[1].count; }

/* As much of a row as fits a share of the second-level cache, but tasks enough for some cores. */
static int64_t piece_choose(const cy_cg *cg, const planar *p, int64_t width) {
  int64_t panel = (int64_t)p->nv * cg->W, floats = p->c * outer_taps(p) * p->residues;
  int64_t max = cy_l2_part(cg, 1, 32) / floats, others = cy_conv_images(p->d) * p->groups;
  max = max < MAX_PIECE ? max : MAX_PIECE;
  for (int i = 0; i < 2; i++)
    others *= cy_csize_or(p->axis[i].out, UNKNOWN_ROWS);
  double work = (double)others * tile_cycles(cg, p->taps * p->c, p->m, width, p->mr, p->nv);
  double worth = work / cg->model.planar_task;
  int64_t tasks = worth < ENOUGH_TASKS ? (int64_t)worth + 1 : ENOUGH_TASKS;
  int64_t pieces = cy_ceil(tasks, others), fit = cy_ceil(width, max > panel ? max : panel);
  return cy_round_up(cy_ceil(width, pieces > fit ? pieces : fit), panel);
}

/* Rows of the input that so many output rows read along an axis: of one row those that it has a tap for, else all. */
static void set_rows(planar *p, int64_t rows) {
  const cy_axis *a = &p->axis[1];
  p->rows = rows;
  p->line_inc = rows > 1 ? 1 : a->inc;
  p->lines = rows > 1 ? (rows - 1) * a->step + (a->count - 1) * a->inc + 1 : a->count;
}

static int64_t kept_floats(const planar *p) { return p->axis[0].count * p->lines * p->c * p->channel; }

/* Rows that follow each other share what they read, as long as that stays in a near cache and leaves tasks enough. */
static void rows_choose(const cy_cg *cg, planar *p, int64_t width) {
  const cy_axis *a = &p->axis[1];
  int64_t out = cy_csize_or(a->out, UNKNOWN_ROWS), others = cy_conv_images(p->d) * p->groups * cy_ceil(width, p->piece);
  others *= cy_csize_or(p->axis[0].out, UNKNOWN_ROWS);
  double row = tile_cycles(cg, p->taps * p->c, p->m, width < p->piece ? width : p->piece, p->mr, p->nv), min = 0;
  set_rows(p, 1);
  for (int64_t rows = 1; rows <= MAX_ROWS && rows <= out; rows *= 2) {
    planar q = *p;
    set_rows(&q, rows);
    if (rows > 1 && (kept_floats(&q) * 4 > cy_l2_part(cg, 1, KEPT_SHARE) ||
                     ((double)others * cy_ceil(out, rows) < ENOUGH_TASKS && (double)rows * row > cg->model.planar_task)))
      break;
    double copied = (double)q.lines / (double)rows;
    if (rows == 1 || copied < min) {
      min = copied;
      *p = q;
    }
  }
}

static planar plan_of(const cy_cg *cg, const cy_conv_desc *d) {
  planar p = {.d = d, .groups = d->groups, .c = d->cin / d->groups, .m = d->cout / d->groups};
  cy_conv_axes(d, 0, p.axis);
  const cy_axis *w = &p.axis[2];
  int64_t width = cy_csize_or(w->out, UNKNOWN_ROW);
  p.taps = cy_conv_taps(d);
  cy_tile tile = planar_tile(cg, p.taps * p.c, p.m, width);
  p.mr = tile.mr;
  p.nv = tile.nv;
  p.residues = w->step;
  p.piece = piece_choose(cg, &p, width);
  p.row = cy_round_up(p.piece + (w->count - 1) * w->inc / w->step, cg->W);
  p.channel = (cy_ceil(p.residues * p.row, LINE) | 1) * LINE;
  rows_choose(cg, &p, width);
  int64_t read = outer_taps(&p) * p.c * p.residues, near = (int64_t)cg->model.planar_near;
  p.panels_outer =
      p.taps * p.c >= LONG_SUM && read * p.row * 4 > near && read * ((int64_t)p.nv * cg->W + LINE) * 4 <= 2 * near;
  return p;
}

/* The kernel's taps in the order in which they are taken: along a row those of one residue follow each other, as they read
 * the same cache lines. */
static void order_taps(const cy_axis axis[3], int32_t *out) {
  const cy_axis *w = &axis[2];
  int64_t rows = axis[0].count * axis[1].count, n = 0;
  for (int64_t residue = 0; residue < w->step; residue++)
    for (int64_t t = 0; t < w->count; t++)
      if (t * w->inc % w->step == residue)
        out[n++] = (int32_t)t;
  for (int64_t i = w->count; i < rows * w->count; i++)
    out[i] = (int32_t)(out[i - w->count] + w->count);
}

static void pack(const cy_cg *cg, const void *of, int64_t matrices, cy_arena *arena, cy_packing *out) {
  (void)matrices; /* groups are in the descriptor */
  (void)cg;
  const planar *p = of;
  const cy_conv_desc *d = p->d;
  int32_t *map = CY_NEW_ARRAY(arena, int32_t, p->taps);
  order_taps(p->axis, map);
  cy_pack_layout l = {.groups = p->groups,
                      .n = p->m,
                      .taps = p->taps,
                      .c = p->c,
                      .tap_block = p->taps,
                      .c_block = p->c,
                      .nr = p->mr,
                      .merged = 1,
                      .weights = d->weights,
                      .bytes = p->groups * cy_round_up(p->m, p->mr) * p->taps * p->c * 4};
  cy_packing_single(out, arena, l, map);
}

/* ---- sizes ---- */

static cy_task_grid grid_of(cy_cg *cg, const void *of) {
  const planar *p = of;
  V groups = cy_mulc(cg, cy_size(cg, p->d->batch), p->groups);
  return (cy_task_grid){.products = cy_mul(cg, groups, cy_size(cg, p->axis[0].out)),
                        .rows = cy_axis_pieces(cg, cy_size(cg, p->axis[1].out), p->rows),
                        .columns = cy_axis_pieces(cg, cy_size(cg, p->axis[2].out), p->piece)};
}

/* Scratch: what is kept of each row, and, where there are residues, a row as it was. */
static V worker_bytes(cy_cg *cg, const void *of) {
  const planar *p = of;
  return cy_i64(cg, cy_round_up((kept_floats(p) + (p->residues > 1 ? p->residues * p->row : 0)) * 4, 64));
}

/* ---- copying rows ---- */

/* What a task does, and the loop invariants of its kernel. */
typedef struct frame {
  const planar *p;
  V input, scratch, offsets;
  V n, group, o[2], x0; /* of the first output */
  V count, rows;        /* outputs of a row, rows */
  V acc;                /* of a tile */
} frame;

/* v[0 .. n) hold elements in turn of so many residues: makes v[i] a vector of residue i. n: a power of two. */
static void part_vectors(cy_cg *cg, V *v, unsigned n) {
  V parted[MAX_TILE];
  if (n == 1)
    return;
  for (unsigned i = 0; i < n / 2; i++) {
    parted[i] = cy_strided_lanes(cg, v[2 * i], v[2 * i + 1], 0, 2, cg->W);
    parted[n / 2 + i] = cy_strided_lanes(cg, v[2 * i], v[2 * i + 1], 1, 2, cg->W);
  }
  part_vectors(cg, parted, n / 2);
  part_vectors(cg, parted + n / 2, n / 2);
  for (unsigned i = 0; i < n / 2; i++) {
    v[2 * i] = parted[i];
    v[2 * i + 1] = parted[n / 2 + i];
  }
}

static bool parts_in_vectors(int64_t residues) { return residues <= MAX_TILE && (residues & (residues - 1)) == 0; }

/* residues * row floats as they lie in the input, to `residues` rows. */
static void part_row(cy_cg *cg, const planar *p, V to, V from) {
  unsigned n = (unsigned)p->residues, W = parts_in_vectors(p->residues) ? cg->W : 1;
  cy_loop l;
  cy_loop_begin(cg, &l, cy_i64(cg, 0), cy_i64(cg, p->row), cy_i64(cg, W), NULL, 0);
  V at = cy_gepf(cg, from, cy_mulc(cg, l.iv, n)), out = cy_gepf(cg, to, l.iv);
  if (W > 1) {
    V v[MAX_TILE];
    for (unsigned i = 0; i < n; i++)
      v[i] = cy_load(cg, cg->vf, cy_gepc(cg, at, (int64_t)i * W * 4), 4);
    part_vectors(cg, v, n);
    for (unsigned i = 0; i < n; i++)
      cy_store(cg, v[i], cy_gepc(cg, out, i * p->row * 4), 4);
  } else {
    cy_loop f;
    cy_loop_begin(cg, &f, cy_i64(cg, 0), cy_i64(cg, n), cy_i64(cg, 1), NULL, 0);
    V x = cy_load(cg, cg->f32, cy_gepf(cg, at, f.iv), 4);
    cy_store(cg, x, cy_gepf(cg, out, cy_mulc(cg, f.iv, p->row)), 4);
    cy_loop_end(cg, &f, NULL);
  }
  cy_loop_end(cg, &l, NULL);
}

/* All rows that the piece reads: [tap of axis 0][line of axis 1][channel][residue][row]. */
static void copy_rows(cy_cg *cg, const frame *f) {
  const planar *p = f->p;
  const cy_conv_desc *d = p->d;
  cy_axis outer[2] = {p->axis[0], p->axis[1]};
  outer[1].count = p->lines;
  outer[1].inc = p->line_inc;
  V at = cy_gepf(cg, f->input, cy_mul(cg, f->n, cy_size(cg, d->in_n)));
  at = cy_gepf(cg, at, cy_mul(cg, cy_mulc(cg, f->group, p->c), cy_size(cg, d->in_c)));
  V first = cy_addc(cg, cy_mulc(cg, f->x0, p->axis[2].step), p->axis[2].start);
  V spare = cy_mulc(cg, cy_sub(cg, cy_i64(cg, p->rows), f->rows), p->axis[1].step);
  cy_kernel_rows line;
  cy_loop c;
  cy_kernel_rows_begin(cg, &line, outer, f->o, cy_sub(cg, cy_i64(cg, p->lines), spare));
  cy_loop_begin(cg, &c, cy_i64(cg, 0), cy_i64(cg, p->c), cy_i64(cg, 1), NULL, 0);
  V number = cy_add(cg, cy_mulc(cg, line.number, p->c), c.iv);
  V row = cy_gepf(cg, cy_gepf(cg, at, line.offset), cy_mul(cg, c.iv, cy_size(cg, d->in_c)));
  V kept = cy_gep(cg, f->scratch, cy_mulc(cg, number, p->channel * 4));
  V raw = p->residues > 1 ? cy_gepc(cg, f->scratch, kept_floats(p) * 4) : kept;
  cy_map_row from = {row, line.exists, cy_size(cg, p->axis[2].in), cy_i64(cg, 1), 1, 1};
  cy_elements floats = cy_elements_plain(cg, 4);
  cy_copy_row(cg, &floats, raw, &from, first, cy_i64(cg, p->residues * p->row));
  if (p->residues > 1)
    part_row(cg, p, kept, raw);
  cy_loop_end(cg, &c, NULL);
  cy_kernel_rows_end(cg, &line);
}

/* ---- tiles ---- */

/* Where each tap begins in what copy_rows leaves, in bytes, of the first channel and output. */
static V tap_offsets(cy_cg *cg, const planar *p) {
  const cy_axis *w = &p->axis[2];
  char name[160];
  int64_t line = p->c * p->channel, apart = p->axis[1].inc / p->line_inc * line;
  snprintf(name, sizeof name, "cyk_planar_%lld_%lld_%lld_%lld_%lld_%lld_%lld_%lld", (long long)outer_taps(p),
           (long long)p->axis[1].count, (long long)apart, (long long)(p->lines * line), (long long)w->count,
           (long long)w->inc, (long long)p->residues, (long long)p->row);
  V made = cy_shared_find(cg, name);
  if (made)
    return made;
  V *number = malloc((size_t)p->taps * sizeof(V));
  int32_t *order = malloc((size_t)p->taps * sizeof *order);
  if (!number || !order)
    cy_no_memory();
  order_taps(p->axis, order);
  for (int64_t i = 0; i < p->taps; i++) {
    int64_t t = order[i] / w->count, at = order[i] % w->count * w->inc;
    int64_t first = t / p->axis[1].count * p->lines * line + t % p->axis[1].count * apart;
    number[i] = cy_i64(cg, (first + at % p->residues * p->row + at / p->residues) * 4);
  }
  made = cy_shared_constant(cg, name, LLVMConstArray2(cg->i64, number, (uint64_t)p->taps));
  free(number);
  free(order);
  return made;
}

/* One k: v: the accumulators, then where its weights lie, then its vectors. */
static void emit_step(cy_cg *cg, const planar *p, V *v) {
  unsigned n = p->mr * p->nv;
  V x[MAX_TILE * 2];
  for (unsigned j = 0; j < p->nv; j++)
    x[j] = cy_load(cg, cg->vf, cy_gepc(cg, v[n + 1], (int64_t)j * cg->W * 4), 4);
  for (unsigned i = 0; i < p->mr; i++) {
    V w = cy_splat(cg, cy_load(cg, cg->f32, cy_gepc(cg, v[n], i * 4), 4), cg->W);
    for (unsigned j = 0; j < p->nv; j++)
      v[i * p->nv + j] = cy_fma(cg, w, x[j], v[i * p->nv + j]);
  }
  v[n] = cy_gepc(cg, v[n], p->mr * 4);
  v[n + 1] = cy_gepc(cg, v[n + 1], p->channel * 4);
}

/* A tile: mr channels, whose weights are given, of nv vectors of outputs, whose first lies at `from`. */
static void emit_tile(cy_cg *cg, const frame *f, V weights, V from, V to) {
  const planar *p = f->p;
  unsigned n = p->mr * p->nv;
  V v[CY_LOOP_MAX];
  for (unsigned i = 0; i < n; i++)
    v[i] = LLVMConstNull(cg->vf);
  v[n] = weights;
  cy_loop t, c;
  cy_loop_begin(cg, &t, cy_i64(cg, 0), cy_i64(cg, p->taps), cy_i64(cg, 1), v, n + 1);
  for (unsigned i = 0; i <= n; i++)
    v[i] = t.v[i];
  v[n + 1] = cy_gep(cg, from, cy_load(cg, cg->i64, cy_gep(cg, f->offsets, cy_mulc(cg, t.iv, 8)), 8));
  if (p->c > 1) {
    cy_loop_begin(cg, &c, cy_i64(cg, 0), cy_i64(cg, p->c), cy_i64(cg, 1), v, n + 2);
    for (unsigned i = 0; i < n + 2; i++)
      v[i] = c.v[i];
  }
  emit_step(cg, p, v);
  if (p->c > 1) {
    cy_loop_end(cg, &c, v);
    for (unsigned i = 0; i <= n; i++)
      v[i] = c.out[i];
  }
  cy_loop_end(cg, &t, v);
  cy_accumulators_store(cg, p->mr, p->nv, to, cy_i64(cg, (int64_t)p->nv * cg->W * 4), t.out);
}

/* ---- tasks ---- */

static void row_index(void *ctx, cy_cg *cg, V row, V *idx) {
  const frame *f = ctx;
  const planar *p = f->p;
  int outer = p->d->n_spatial - 1;
  idx[0] = f->n;
  idx[1] = cy_add(cg, cy_mulc(cg, f->group, p->m), row);
  for (int i = 0; i < outer; i++)
    idx[2 + i] = f->o[2 - outer + i];
}

/* All outputs of a row of the task. */
static void emit_row(cy_cg *cg, const frame *f, V kept) {
  const planar *p = f->p;
  int64_t panel = (int64_t)p->nv * cg->W, block = p->taps * p->c * p->mr * 4, out = cy_csize_known(p->axis[2].out);
  V weights = cy_gep(cg, cy_arg_ptr(cg, p->d->b_slot), cy_mulc(cg, f->group, cy_ceil(p->m, p->mr) * block));
  cy_rows index = {row_index, (void *)f, (unsigned)p->d->n_spatial + 1};
  cy_loop l[2], *i = &l[p->panels_outer], *j = &l[!p->panels_outer]; /* channels, outputs */
  for (int k = 0; k < 2; k++)
    if (&l[k] == i)
      cy_loop_begin(cg, i, cy_i64(cg, 0), cy_i64(cg, cy_ceil(p->m, p->mr)), cy_i64(cg, 1), NULL, 0);
    else
      cy_loop_begin(cg, j, cy_i64(cg, 0), f->count, cy_i64(cg, panel), NULL, 0);
  V row0 = cy_mulc(cg, i->iv, p->mr), rows = cy_imin(cg, cy_i64(cg, p->mr), cy_sub(cg, cy_i64(cg, p->m), row0));
  V here = cy_gep(cg, weights, cy_mulc(cg, i->iv, block)), from = cy_gepf(cg, kept, j->iv);
  emit_tile(cg, f, here, from, f->acc);
  V columns = cy_imin(cg, cy_i64(cg, panel), cy_sub(cg, f->count, j->iv));
  cy_epilogue_tile(cg, &p->d->epilogue, &index, f->acc, cy_i64(cg, panel * 4), rows, row0, columns,
                   cy_add(cg, f->x0, j->iv), out ? (unsigned)(out % cg->W) : cg->W);
  for (int k = 1; k >= 0; k--)
    cy_loop_end(cg, &l[k], NULL);
}

static void emit_rows(cy_cg *cg, const frame *f) {
  const planar *p = f->p;
  cy_loop r;
  cy_loop_begin(cg, &r, cy_i64(cg, 0), f->rows, cy_i64(cg, 1), NULL, 0);
  frame row = *f;
  row.o[1] = cy_add(cg, f->o[1], r.iv);
  emit_row(cg, &row, cy_gepf(cg, f->scratch, cy_mulc(cg, r.iv, p->axis[1].step * p->c * p->channel)));
  cy_loop_end(cg, &r, NULL);
}

static void emit_task(cy_cg *cg, void *of, const cy_task *t) {
  frame *f = of;
  const planar *p = f->p;
  const cy_csize sizes[] = {p->d->batch, cy_cconst(p->groups), p->axis[0].out};
  V idx[3];
  cy_batch_split(cg, sizes, 3, t->product, idx);
  f->n = idx[0];
  f->group = idx[1];
  f->o[0] = idx[2];
  f->o[1] = t->rows.begin;
  f->x0 = t->columns.begin;
  f->count = cy_sub(cg, t->columns.end, f->x0);
  f->rows = cy_sub(cg, t->rows.end, f->o[1]);
  copy_rows(cg, f);
  emit_rows(cg, f);
}

static void emit(cy_cg *cg, const void *of, const char *name) {
  const planar *p = of;
  const cy_conv_desc *d = p->d;
  V scratch = cy_phase_begin(cg, name, 0, &d->epilogue, d->scratch_slot, worker_bytes, p);
  frame f = {.p = p, .input = cy_arg_ptr(cg, d->a_slot), .offsets = tap_offsets(cg, p), .scratch = scratch};
  f.acc = cy_alloca(cg, (int64_t)p->mr * p->nv * cg->W * 4);
  cy_tasks_emit(cg, grid_of, p, emit_task, &f);
  cy_fn_end(cg, NULL);
}

CY_PLAN_MAKE(planar)

static void describe(const void *of, char *text, size_t size) {
  const planar *p = of;
  snprintf(text, size, "tile %ux%u vectors, tasks of %lld rows, %lld outputs each", p->mr, p->nv, (long long)p->rows,
           (long long)p->piece);
}

const cy_generator cy_planar_generator = {.plan = plan_make,
                                          .pack = pack,
                                          .text = "conv planar",
                                          .describe = describe,
                                          .phase = {{"", NULL, emit, .grid = grid_of}},
                                          .worker_bytes = worker_bytes};

/* ---- the choice ---- */

double cy_planar_cost(const cy_cg *cg, const cy_conv_desc *d) {
  planar p = plan_of(cg, d);
  double width = (double)cy_csize_or(p.axis[2].out, UNKNOWN_ROW), outer = (double)(cy_conv_images(d) * p.groups);
  for (int i = 0; i < 2; i++)
    outer *= (double)cy_csize_or(p.axis[i].out, UNKNOWN_ROWS);
  double k = (double)(p.taps * p.c), n = (double)cy_ceil((int64_t)width, p.piece);
  const cy_planar_work w = {.sums = tile_cycles(cg, p.taps * p.c, p.m, (int64_t)width, p.mr, p.nv),
                            .pieces = n,
                            .weight_bytes = k * (double)p.m * 4,
                            .kept = (double)(p.axis[0].count * p.lines * p.c) / (double)p.rows,
                            .vectors = (double)(p.row * p.residues) / cg->W,
                            .residues = p.residues,
                            .vector_residues = parts_in_vectors(p.residues),
                            .rows = (double)p.rows,
                            .output_vectors = (double)p.m * width / cg->W,
                            .tile_rows = n * (double)cy_ceil(p.m, p.mr)};
  return outer * cy_cost_planar(cg, &w);
}
