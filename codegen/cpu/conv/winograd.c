/* SPDX-License-Identifier: Apache-2.0 */
/* winograd.c - 3x3 convolution of stride 1, any dilation, by F(4x4,3x3): 36 products per 16 outputs and channel instead
 * of 144. Of three axes, the last two: what each tap of the first reads counts as channels of its own, unless tiles are
 * pairs of planes.
 *
 * Comes in: a cy_conv_desc with cy_winograd_possible. Goes out: a phase whose tasks are (block of tiles, block of
 * panels).
 *   1. 6x6 patches become 36 points, V[block of channels][36][tile][channel]. A task does so for its tiles in the
 * worker's scratch; where V of all tiles is small, a phase of its own does it once for all tasks, in shared scratch.
 *   2. Panel by panel, block of channels by block of channels: 3x3 filters become 36 points, U[36][channel][NR], and
 *      M[36][tile][NR] += V * U by the micro-kernels of microkernel.c. Where all of U is small, it is made once for all
 *      tasks of a call.
 *   3. M becomes 4x4 outputs, cut at the feature map's edge, which are handed to the epilogue.
 * U and M of a panel stay in the second-level cache. Filters are transformed here and not while compiling, since their
 * points are four times the weights: many tiles pay for the arithmetic, and where tiles are few, bringing the points
 * from memory would take longer than making them. Blocks of tiles run across rows and feature maps. A patch reads through 36
 * addresses, those outside the feature map pointing at zeros, so borders need no copy. Points lie 64 bytes more than a
 * round number apart: else 36 streams would fall into the same cache set.
 * Pairs of planes: of three axes with three taps each, F(2,3) along the first one. V and U have four slices, which are
 * sums and differences of two planes and of three taps; M has four, too, and a plane of outputs is made of three of these:
 * 144 products for 32 outputs instead of 864. So two planes are transformed for each plane of outputs instead of three.
 * Where tiles are few and registers many, points of filters are not even stored: winograd_rows.c.
 */
#include "codegen/cpu/variants.h"
#include "winograd_int.h"

#include <stdio.h>

#define SPOT 6                /* numbers kept of a tile: feature map, row, column, rows, columns; of three axes, the plane */
#define FILTERS_PREFETCH 2048 /* bytes from the filters that are transformed to those that are prefetched */
#define POINTS_PREFETCH 128   /* bytes from the points that are written to those that are prefetched */
#define FILTER_SCALE (1.0 / 36) /* of filters whose points are made without it; packed ones in f32 have it (pack.c) */

/* ---- sizes ---- */

/* Of the largest of the feature maps that dilation makes, and of all of them. */
static V map_tiles(cy_cg *cg, const wino *w, int axis) {
  V rows = cy_ceil_div(cg, cy_size(cg, w->axis[axis].out), cy_i64(cg, w->axis[axis].inc));
  return cy_ceil_div(cg, rows, cy_i64(cg, 4));
}
static V tiles_along(cy_cg *cg, const wino *w, int axis) {
  V maps = cy_imin(cg, cy_size(cg, w->axis[axis].out), cy_i64(cg, w->axis[axis].inc));
  return cy_mul(cg, map_tiles(cg, w, axis), maps);
}
static V planes_along(cy_cg *cg, const wino *w) {
  return cy_ceil_div(cg, cy_size(cg, w->d->out[0]), cy_i64(cg, tile_planes(w)));
}
static V tile_count(cy_cg *cg, const wino *w) {
  V maps = cy_size(cg, w->d->batch);
  if (is_deep(w->d))
    maps = cy_mul(cg, maps, planes_along(cg, w));
  return cy_mul(cg, maps, cy_mul(cg, tiles_along(cg, w, 1), tiles_along(cg, w, 2)));
}

cy_task_grid cy_winograd_grid(cy_cg *cg, const void *of) {
  const wino *w = of;
  return (cy_task_grid){.rows = cy_axis_pieces(cg, tile_count(cg, w), w->tiles),
                        .columns = {.count = cy_i64(cg, w->panels), .blocks = cy_i64(cg, w->parts), .unit = 1}};
}
static int spot_numbers(const wino *w) { return is_deep(w->d) ? SPOT : SPOT - 1; }
/* Bytes of a point: of V in a block of channels, of U, of M; with a cache line more. */
static int64_t v_point(const wino *w) { return w->v_tiles * w->cb * w->element + LINE; }
static int64_t u_point(const wino *w) { return w->rows ? 0 : w->nr * w->cb * w->element + LINE; }
static int64_t m_point(const wino *w) { return w->m_tiles * w->nr * 4 + LINE; }
static int64_t v_blocks(const wino *w) { return cy_ceil(v_channels(w), w->cb); }
static int64_t m_bytes(const wino *w) { return m_slices(w) * POINTS * m_point(w); }
static int64_t v_bytes(const wino *w) { return POINTS * v_blocks(w) * v_point(w); }
static int64_t u_bytes(const wino *w) { return POINTS * u_point(w); } /* of a slice, and of a panel */
static int64_t u_kept(const wino *w) { return w->filters_once ? m_slices(w) * w->panels : 1; } /* at a time */
V cy_winograd_worker_bytes(cy_cg *cg, const void *of) {
  const wino *w = of;
  int64_t spots = w->tiles * (int64_t)sizeof(int64_t) * spot_numbers(w);
  int64_t bytes = (w->shared ? 0 : v_bytes(w)) + u_kept(w) * u_bytes(w) + m_bytes(w) + spots;
  return cy_i64(cg, bytes / 64 * 64 + 64);
}
bool cy_winograd_shares(const void *of) { return ((const wino *)of)->shared; }
V cy_winograd_shared_bytes(cy_cg *cg, const void *of) { return cy_i64(cg, cy_winograd_shares(of) ? v_bytes(of) : 0); }
V cy_winograd_input_count(cy_cg *cg, const void *of) { return tile_count(cg, of); }

/* ---- transforms ---- */

/* Of the second axis, where filters are 36 times as large as what V is made for. */
static void output_scaled(cy_cg *cg, const V m[6], V out[4]) {
  cy_winograd_output(cg, m, out);
  for (int i = 0; i < 4; i++)
    out[i] = LLVMBuildFMul(cg->b, out[i], cy_splatf(cg, FILTER_SCALE, cg->W), "");
}

/* A tile's place in the output; od: of three axes. */
typedef struct spot {
  V n, oh, ow, od;
} spot;

/* The first output of tile t of an axis. */
static V tile_start(cy_cg *cg, const wino *w, int axis, V t) {
  int64_t dilation = w->axis[axis].inc;
  if (dilation == 1)
    return cy_mulc(cg, t, 4);
  V each = map_tiles(cg, w, axis);
  return cy_add(cg, cy_div(cg, t, each), cy_mulc(cg, cy_mod(cg, t, each), 4 * dilation));
}

/* Of three axes, what was counted as feature maps are planes of them, or so many at a time. */
static void spot_deepen(cy_cg *cg, const wino *w, spot *s, V planes, int64_t each) {
  if (!is_deep(w->d))
    return;
  s->od = cy_mulc(cg, cy_mod(cg, s->n, planes), each);
  s->n = cy_div(cg, s->n, planes);
}

static spot emit_spot(cy_cg *cg, const wino *w, V tile) {
  V tw = tiles_along(cg, w, 2), th = tiles_along(cg, w, 1), row = cy_div(cg, tile, tw);
  spot s = {cy_div(cg, row, th), tile_start(cg, w, 1, cy_mod(cg, row, th)), tile_start(cg, w, 2, cy_mod(cg, tile, tw)),
            NULL};
  spot_deepen(cg, w, &s, is_deep(w->d) ? planes_along(cg, w) : NULL, tile_planes(w));
  return s;
}

/* How many of a tile's four outputs along an axis exist, the first being `at`; none where a feature map is smaller than
 * others. */
static V tile_outputs(cy_cg *cg, const wino *w, int axis, V at) {
  V left = cy_addc(cg, cy_sub(cg, cy_size(cg, w->axis[axis].out), at), w->axis[axis].inc - 1);
  left = cy_imax(cg, left, cy_i64(cg, 0));
  return cy_imin(cg, cy_i64(cg, 4), cy_div(cg, left, cy_i64(cg, w->axis[axis].inc)));
}

/* The addresses of a patch of one tap in depth, as i64 in `table`. */
static void emit_addresses(cy_cg *cg, const task *t, const spot *s, V tap, V table) {
  const cy_conv_desc *d = t->w->d;
  int64_t size = t->w->ints ? 1 : 4;
  int iy = row_axis(d), ix = iy + 1;
  V column[6], column_ok[6], plane_ok = NULL;
  V map = LLVMBuildPtrToInt(cg->b, cy_arg_ptr(cg, d->a_slot), cg->i64, "");
  map = cy_add(cg, map, cy_mul(cg, s->n, cy_mulc(cg, cy_size(cg, d->in_n), size)));
  if (is_deep(d)) {
    V id = cy_add(cg, s->od, cy_addc(cg, cy_mulc(cg, tap, d->dilation[0]), -d->pad[0]));
    plane_ok = cy_icmp(cg, LLVMIntULT, id, cy_size(cg, d->in[0]));
    map = cy_add(cg, map, cy_mul(cg, id, cy_mulc(cg, cy_size(cg, d->in_s[0]), size)));
  }
  for (int x = 0; x < 6; x++) {
    V iw = cy_addc(cg, s->ow, x * d->dilation[ix] - d->pad[ix]);
    column_ok[x] = cy_icmp(cg, LLVMIntULT, iw, cy_size(cg, d->in[ix]));
    column[x] = cy_mul(cg, iw, cy_mulc(cg, cy_size(cg, d->in_s[ix]), size));
  }
  for (int y = 0; y < 6; y++) {
    V ih = cy_addc(cg, s->oh, y * d->dilation[iy] - d->pad[iy]);
    V ok = cy_icmp(cg, LLVMIntULT, ih, cy_size(cg, d->in[iy]));
    V row = cy_add(cg, map, cy_mul(cg, ih, cy_mulc(cg, cy_size(cg, d->in_s[iy]), size)));
    if (plane_ok)
      ok = LLVMBuildAnd(cg->b, ok, plane_ok, "");
    for (int x = 0; x < 6; x++) {
      V both = LLVMBuildAnd(cg->b, ok, column_ok[x], "");
      V address = cy_select(cg, both, cy_add(cg, row, column[x]), t->padding);
      cy_store(cg, address, cy_gepc(cg, table, (y * 6 + x) * 8), 8);
    }
  }
}

/* Six values each in some lines of memory: bytes from line to line, and from value to value. Where there is a sign, what
 * lies at other places, one or two, is added, times the sign, a vector. */
typedef struct lines {
  V at;
  int64_t apart, step;
  V sign, other[2];
} lines;

static lines plain_lines(V at, int64_t apart, int64_t step) { return (lines){.at = at, .apart = apart, .step = step}; }

static V load_value(cy_cg *cg, LLVMTypeRef type, const lines *in, V line, int i) {
  V from = cy_mulc(cg, line, in->apart), v = cy_load(cg, type, cy_gepc(cg, cy_gep(cg, in->at, from), i * in->step), 4);
  if (!in->sign)
    return v;
  V sum = NULL;
  for (int k = 0; k < 2 && in->other[k]; k++) {
    V o = cy_load(cg, type, cy_gepc(cg, cy_gep(cg, in->other[k], from), i * in->step), 4);
    sum = sum ? LLVMBuildFAdd(cg->b, sum, o, "") : o;
  }
  return cy_fma(cg, in->sign, sum, v);
}

/* Along one axis, `count` lines become lines of `results`; what lies `prefetch` bytes behind these, if not 0, is
 * prefetched, to be written later. Such passes are loops, since 36 values do not fit the registers anyway: less code,
 * compiled sooner. */
static void emit_pass(cy_cg *cg, LLVMTypeRef type, int count, lines in,
                      void (*transform)(cy_cg *cg, const V *values, V *out), int results, lines out, int64_t prefetch) {
  cy_loop l;
  V d[6], r[6];
  cy_loop_begin(cg, &l, cy_i64(cg, 0), cy_i64(cg, count), cy_i64(cg, 1), NULL, 0);
  V to = cy_gep(cg, out.at, cy_mulc(cg, l.iv, out.apart));
  for (int i = 0; i < 6; i++)
    d[i] = load_value(cg, type, &in, l.iv, i);
  transform(cg, d, r);
  for (int i = 0; i < results; i++) {
    V at = cy_gepc(cg, to, i * out.step);
    cy_store(cg, r[i], at, 4);
    if (prefetch)
      cy_prefetch(cg, cy_gepc(cg, at, prefetch), true, CY_FIRST_LEVEL);
  }
  cy_loop_end(cg, &l, NULL);
}

/* Only tried with floats. */
static bool prefetches(const cy_cg *cg, const wino *w) { return cg->model.prefetch && !w->ints; }

/* The columns of a patch, whose addresses are in `table`, a vector of channels. half: 36 vectors. */
static void emit_columns(cy_cg *cg, const task *t, V table, V c, LLVMTypeRef type, V half) {
  const wino *w = t->w;
  int64_t vector = cg->W * 4;
  cy_loop x;
  int ix = row_axis(w->d) + 1;
  V d[6], r[6], right = cy_mulc(cg, cy_size(cg, w->d->in_s[ix]), 4 * w->d->dilation[ix] * 4);
  cy_loop_begin(cg, &x, cy_i64(cg, 0), cy_i64(cg, 6), cy_i64(cg, 1), NULL, 0);
  V column = cy_gep(cg, table, cy_mulc(cg, x.iv, 8)), to = cy_gep(cg, half, cy_mulc(cg, x.iv, vector));
  for (int i = 0; i < 6; i++) {
    V at = LLVMBuildIntToPtr(cg->b, cy_load(cg, cg->i64, cy_gepc(cg, column, i * 6 * 8), 8), cg->ptr, "");
    at = w->ints ? cy_gep(cg, at, c) : cy_gepf(cg, at, c);
    d[i] = w->ints ? w->ints->load(cg, t, at) : cy_load(cg, type, at, 4);
    if (prefetches(cg, w)) /* what the next patch reads there, which most often is that on the right */
      cy_prefetch(cg, cy_gep(cg, at, right), false, CY_FIRST_LEVEL);
  }
  cy_winograd_input(cg, d, r);
  for (int i = 0; i < 6; i++)
    cy_store(cg, r[i], cy_gepc(cg, to, i * 6 * vector), 4);
  cy_loop_end(cg, &x, NULL);
}

/* The rows of a patch whose columns are transformed, to V. */
static void emit_rows_in(cy_cg *cg, const wino *w, LLVMTypeRef type, lines half, V out) {
  int64_t point = v_point(w);
  emit_pass(cg, type, 6, half, cy_winograd_input, 6, plain_lines(out, 6 * point, point),
            prefetches(cg, w) ? POINTS_PREFETCH : 0);
}

/* F(2,3) along the first axis: slices of V are planes 0 - 2, 1 + 2, 2 - 1 and 1 - 3. */
static V pair_plane(cy_cg *cg, V slice, const int of[4]) {
  V v = cy_i64(cg, of[0]);
  for (int i = 1; i < 4; i++)
    v = cy_select(cg, cy_icmp(cg, LLVMIntEQ, slice, cy_i64(cg, i)), cy_i64(cg, of[i]), v);
  return v;
}

/* All slices of V, a vector of channels: the columns of each plane are transformed once. half: 36 vectors of each. */
static void emit_slices(cy_cg *cg, const task *t, V table, V c, unsigned lanes, V half, V out) {
  const wino *w = t->w;
  int64_t vector = cg->W * 4, plane = POINTS * vector, slice = POINTS * (w->slice / w->cb) * v_point(w);
  cy_loop p, s;
  cy_loop_begin(cg, &p, cy_i64(cg, 0), cy_i64(cg, 4), cy_i64(cg, 1), NULL, 0);
  V at = cy_gep(cg, table, cy_mulc(cg, p.iv, POINTS * 8)), to = cy_gep(cg, half, cy_mulc(cg, p.iv, plane));
  emit_columns(cg, t, at, c, cy_vecf(cg, lanes), to);
  cy_loop_end(cg, &p, NULL);
  cy_loop_begin(cg, &s, cy_i64(cg, 0), cy_i64(cg, 4), cy_i64(cg, 1), NULL, 0);
  lines of =
      plain_lines(cy_gep(cg, half, cy_mulc(cg, pair_plane(cg, s.iv, (int[]){0, 1, 2, 1}), plane)), 6 * vector, vector);
  V plus = cy_icmp(cg, LLVMIntEQ, s.iv, cy_i64(cg, 1));
  of.sign = cy_select(cg, plus, cy_splatf(cg, 1, lanes), cy_splatf(cg, -1, lanes));
  of.other[0] = cy_gep(cg, half, cy_mulc(cg, pair_plane(cg, s.iv, (int[]){2, 2, 1, 3}), plane));
  emit_rows_in(cg, w, cy_vecf(cg, lanes), of, cy_gep(cg, out, cy_mulc(cg, s.iv, slice)));
  cy_loop_end(cg, &s, NULL);
}

/* A vector of channels of a tile, of one tap in depth or of pairs of planes. */
static void emit_patch(cy_cg *cg, const task *t, V table, V c, unsigned lanes, V half, V out) {
  if (t->w->pairs) {
    emit_slices(cg, t, table, c, lanes, half, out);
    return;
  }
  int64_t vector = cg->W * 4;
  LLVMTypeRef type = t->w->ints ? LLVMVectorType(cg->i16, lanes) : cy_vecf(cg, lanes);
  emit_columns(cg, t, table, c, type, half);
  emit_rows_in(cg, t->w, type, plain_lines(half, 6 * vector, vector), out);
}

/* Where channel c of tile t stands in V. */
static V v_at(cy_cg *cg, const wino *w, V points, V t, V c) {
  V cb = cy_i64(cg, w->cb), block = cy_mulc(cg, cy_div(cg, c, cb), POINTS * v_point(w) / w->element);
  V number = cy_add(cg, cy_add(cg, block, cy_mul(cg, t, cb)), cy_mod(cg, c, cb));
  return w->ints ? cy_gep(cg, points, cy_mulc(cg, number, w->element)) : cy_gepf(cg, points, number);
}

/* What tile t reads, of one tap in depth or of pairs of planes, its addresses in `table`. */
static void emit_patches(cy_cg *cg, const task *f, V table, V t, V tap, V half, V points) {
  const wino *w = f->w;
  cy_loop c;
  unsigned lanes = cg->W * 4 / (unsigned)w->element;
  int64_t cin = w->d->cin, whole = cin / lanes * lanes;
  V before = cy_mulc(cg, tap, cin);
  if (whole) {
    cy_loop_begin(cg, &c, cy_i64(cg, 0), cy_i64(cg, whole), cy_i64(cg, lanes), NULL, 0);
    emit_patch(cg, f, table, c.iv, lanes, half, v_at(cg, w, points, t, cy_add(cg, before, c.iv)));
    cy_loop_end(cg, &c, NULL);
  }
  if (cin > whole)
    emit_patch(cg, f, table, cy_i64(cg, whole), (unsigned)(cin - whole), half,
               v_at(cg, w, points, t, cy_addc(cg, before, whole)));
}

static void emit_input(cy_cg *cg, const task *f, V first, V count, V points) {
  const wino *w = f->w;
  int64_t patches = w->pairs ? 4 : 1; /* at a time */
  V table = cy_alloca(cg, patches * POINTS * 8), half = cy_alloca(cg, patches * POINTS * cg->W * 4);
  cy_loop t, p;
  cy_loop_begin(cg, &t, cy_i64(cg, 0), count, cy_i64(cg, 1), NULL, 0);
  spot s = emit_spot(cg, w, cy_add(cg, first, t.iv));
  cy_loop_begin(cg, &p, cy_i64(cg, 0), cy_i64(cg, w->slices), cy_i64(cg, 1), NULL, 0);
  if (w->pairs) {
    emit_addresses(cg, f, &s, p.iv, cy_gep(cg, table, cy_mulc(cg, p.iv, POINTS * 8)));
  } else {
    emit_addresses(cg, f, &s, p.iv, table);
    emit_patches(cg, f, table, t.iv, p.iv, half, points);
  }
  cy_loop_end(cg, &p, NULL);
  if (w->pairs)
    emit_patches(cg, f, table, t.iv, cy_i64(cg, 0), half, points);
  cy_loop_end(cg, &t, NULL);
}

/* sign: of pairs of planes, a vector: 1 for the first plane, whose slices of M begin at `in`, -1 for the second one. */
static void emit_unpatch(cy_cg *cg, const wino *w, V in, V sign, V half, V out) {
  int64_t vector = cg->W * 4, point = m_point(w), row = w->nr * 4;
  LLVMTypeRef type = w->ints ? cg->vi : cg->vf;
  V second = sign ? cy_gepc(cg, in, POINTS * point) : NULL, third = sign ? cy_gepc(cg, in, 2 * POINTS * point) : NULL;
  emit_pass(cg, type, 6, (lines){in, point, 6 * point, sign, {second, third}}, cy_winograd_output, 4,
            plain_lines(half, vector, 6 * vector), 0);
  bool scaled = w->rows && w->d->weights != CY_WEIGHTS_F32;
  emit_pass(cg, type, 4, plain_lines(half, 6 * vector, vector),
            w->ints  ? w->ints->finish
            : scaled ? output_scaled
                     : cy_winograd_output,
            4, plain_lines(out, 4 * row, row), 0);
}

typedef struct output_row {
  V n, od, oh, ow; /* od: of three axes */
  int64_t step;
} output_row;

static void row_index(void *ctx, cy_cg *cg, V row, V *idx) {
  const output_row *r = ctx;
  *idx++ = r->n;
  if (r->od)
    *idx++ = r->od;
  *idx++ = r->oh;
  *idx = cy_add(cg, r->ow, cy_mulc(cg, row, r->step));
}

/* Where the tiles of a task go, for the outputs of all panels: many divisions where sizes are not known. */
static void emit_spots(cy_cg *cg, const wino *w, V first, V count, V table) {
  cy_loop t;
  cy_loop_begin(cg, &t, cy_i64(cg, 0), count, cy_i64(cg, 1), NULL, 0);
  spot s = emit_spot(cg, w, cy_add(cg, first, t.iv));
  V to = cy_gep(cg, table, cy_mulc(cg, t.iv, spot_numbers(w) * 8));
  V all[SPOT] = {s.n, s.oh, s.ow, tile_outputs(cg, w, 1, s.oh), tile_outputs(cg, w, 2, s.ow), s.od};
  for (int i = 0; i < spot_numbers(w); i++)
    cy_store(cg, all[i], cy_gepc(cg, to, i * 8), 8);
  cy_loop_end(cg, &t, NULL);
}

static void load_spot(cy_cg *cg, const wino *w, V table, V s[SPOT]) {
  for (int i = 0; i < spot_numbers(w); i++)
    s[i] = cy_load(cg, cg->i64, cy_gepc(cg, table, i * 8), 8);
}

/* Row y of a tile. */
static output_row output_row_of(cy_cg *cg, const wino *w, V s[SPOT], V y) {
  const int64_t *dilation = w->d->dilation + row_axis(w->d);
  return (output_row){s[0], s[5], cy_add(cg, s[1], cy_mulc(cg, y, dilation[0])), s[2], dilation[1]};
}

/* A loop over the planes of a tile, whose place s becomes that of the plane; ended by cy_loop_end if there are several. */
static void begin_planes(cy_cg *cg, const wino *w, V s[SPOT], cy_loop *l) {
  l->iv = cy_i64(cg, 0);
  if (!w->pairs)
    return;
  V left = cy_sub(cg, cy_size(cg, w->d->out[0]), s[5]);
  cy_loop_begin(cg, l, cy_i64(cg, 0), cy_imin(cg, left, cy_i64(cg, 2)), cy_i64(cg, 1), NULL, 0);
  s[5] = cy_add(cg, s[5], l->iv);
}

/* One tile, all columns of the panel that begins at output channel col0. */
static void emit_output_tile(cy_cg *cg, const task *t, V table, V m, V col0, V half, V buffer) {
  const wino *w = t->w;
  const cy_conv_desc *d = w->d;
  V cols = cy_imin(cg, cy_i64(cg, w->nr), cy_sub(cg, cy_i64(cg, d->cout), col0)), s[SPOT] = {0}, sign = NULL;
  cy_loop plane, j, y;
  load_spot(cg, w, table, s);
  begin_planes(cg, w, s, &plane);
  if (w->pairs) {
    V first = cy_icmp(cg, LLVMIntEQ, plane.iv, cy_i64(cg, 0));
    sign = cy_splat(cg, cy_select(cg, first, LLVMConstReal(cg->f32, 1), LLVMConstReal(cg->f32, -1)), cg->W);
    m = cy_gep(cg, m, cy_mulc(cg, plane.iv, POINTS * m_point(w)));
  }
  cy_loop_begin(cg, &j, cy_i64(cg, 0), cols, cy_i64(cg, cg->W), NULL, 0);
  V to = cy_gepf(cg, buffer, j.iv);
  emit_unpatch(cg, w, cy_gepf(cg, m, j.iv), sign, half, to);
  cy_loop_end(cg, &j, NULL);
  cy_loop_begin(cg, &y, cy_i64(cg, 0), s[3], cy_i64(cg, 1), NULL, 0);
  output_row at = output_row_of(cg, w, s, y.iv);
  cy_rows rows = {row_index, &at, 1 + (unsigned)d->n_spatial};
  V from = cy_gep(cg, buffer, cy_mulc(cg, y.iv, 4 * w->nr * 4));
  cy_epilogue_tile(cg, &t->epilogue, &rows, from, cy_i64(cg, w->nr * 4), s[4], cy_i64(cg, 0), cols, col0,
                   (unsigned)(d->cout % cg->W));
  cy_loop_end(cg, &y, NULL);
  if (w->pairs)
    cy_loop_end(cg, &plane, NULL);
}

/* What the epilogue will read and write of a tile, in the panel that begins at output channel col0: most outputs are
 * larger than the second-level cache, and stores wait for the lines that they overwrite. */
static void emit_output_prefetch(cy_cg *cg, const wino *w, V table, V col0) {
  const cy_conv_desc *d = w->d;
  V s[SPOT] = {0}, idx[SPOT];
  cy_loop plane, y, x;
  load_spot(cg, w, table, s);
  begin_planes(cg, w, s, &plane);
  cy_loop_begin(cg, &y, cy_i64(cg, 0), s[3], cy_i64(cg, 1), NULL, 0);
  output_row at = output_row_of(cg, w, s, y.iv);
  cy_loop_begin(cg, &x, cy_i64(cg, 0), s[4], cy_i64(cg, 1), NULL, 0);
  row_index(&at, cg, x.iv, idx);
  for (unsigned j = 0; j < w->tile.nv; j++) {
    idx[1 + d->n_spatial] = cy_addc(cg, col0, j * cg->W);
    d->epilogue.prefetch(d->epilogue.ctx, cg, idx, true);
  }
  cy_loop_end(cg, &x, NULL);
  cy_loop_end(cg, &y, NULL);
  if (w->pairs)
    cy_loop_end(cg, &plane, NULL);
}

/* Only with AVX-512 is the rest so fast that it pays to ask for a tile's outputs while the one before is transformed. */
static void emit_output(cy_cg *cg, const task *f, V col0) {
  const wino *w = f->w;
  V buffer = cy_alloca(cg, 16 * w->nr * 4), half = cy_alloca(cg, POINTS * cg->W * 4);
  cy_loop t;
  cy_loop_begin(cg, &t, cy_i64(cg, 0), f->count, cy_i64(cg, 1), NULL, 0);
  V spot = cy_gep(cg, f->spots, cy_mulc(cg, t.iv, spot_numbers(w) * 8));
  if (prefetches(cg, w) && w->d->epilogue.prefetch) {
    V next = cy_imin(cg, cy_addc(cg, t.iv, 1), cy_addc(cg, f->count, -1));
    emit_output_prefetch(cg, w, cy_gep(cg, f->spots, cy_mulc(cg, next, spot_numbers(w) * 8)), col0);
  }
  emit_output_tile(cg, f, spot, cy_gepf(cg, f->m, cy_mulc(cg, t.iv, w->nr)), col0, half, buffer);
  cy_loop_end(cg, &t, NULL);
}

/* ---- products ---- */

/* Channels whose weights lie side by side; bytes of these, of a column. */
static int64_t units(const wino *w) { return w->ints ? 2 : 1; }
static int64_t tap_bytes(const wino *w) { return w->ints ? 2 : cy_weight_bytes(w->d->weights); }
/* Bytes from a tap in depth of a filter to the next one. */
static int64_t depth_bytes(const wino *w) { return w->d->cin * TAPS * w->nr * cy_weight_bytes(w->d->weights); }

/* A tap of a filter, a vector of columns; where there are factors, vectors, of three taps in depth. */
static V load_tap(cy_cg *cg, const wino *w, V from, const V *factor) {
  cy_weights weights = w->d->weights;
  if (w->ints)
    return w->ints->tap(cg, from);
  V g = cy_weights_load(cg, weights, from);
  if (!factor)
    return weights == CY_WEIGHTS_F32 ? g : LLVMBuildFMul(cg->b, g, cy_splatf(cg, FILTER_SCALE, cg->W), "");
  g = LLVMBuildFMul(cg->b, g, factor[0], "");
  for (int k = 1; k < 3; k++)
    g = cy_fma(cg, cy_weights_load(cg, weights, cy_gepc(cg, from, k * depth_bytes(w))), factor[k], g);
  return g;
}

/* Where U of a slice and a panel lies. */
static V u_of(cy_cg *cg, const task *t, V q, V slice) {
  const wino *w = t->w;
  V number = w->panels > 1 ? cy_add(cg, cy_mulc(cg, q, m_slices(w)), slice) : slice;
  return w->filters_once ? cy_gep(cg, t->u, cy_mulc(cg, number, u_bytes(w))) : t->u;
}

/* A vector of columns: 9 taps, each `apart` bytes behind the one before, to 36 points. */
static void emit_filter(cy_cg *cg, const wino *w, V from, V apart, const V *factor, V to) {
  V g[TAPS], half[3][6], row[6];
  for (int t = 0; t < TAPS; t++)
    g[t] = load_tap(cg, w, cy_gep(cg, from, cy_mulc(cg, apart, t)), factor);
  for (int x = 0; x < 3; x++)
    cy_winograd_filter(cg, (V[3]){g[x], g[3 + x], g[6 + x]}, half[x]);
  for (int y = 0; y < 6; y++) {
    cy_winograd_filter(cg, (V[3]){half[0][y], half[1][y], half[2][y]}, row);
    for (int x = 0; x < 6; x++)
      cy_store(cg, row[x], cy_gepc(cg, to, (y * 6 + x) * u_point(w)), 4);
  }
}

/* Filters come from memory at half the speed at which they are transformed, unless they are asked for in time. They lie
 * in the order in which they are read, those of the next block and panel, too. */
static void emit_filters_prefetch(cy_cg *cg, const wino *w, V from) {
  int64_t filter = TAPS * w->nr * tap_bytes(w);
  for (int64_t line = 0; line < filter; line += 64)
    cy_prefetch(cg, cy_gepc(cg, from, FILTERS_PREFETCH + line), false, CY_SECOND_LEVEL);
}

/* A slice of U of pairs of planes: of the first or the last tap in depth, or of half the sum of all, or with the middle
 * one subtracted. */
static void emit_pair_filter(cy_cg *cg, const wino *w, V slice, V from, V apart, V to) {
  V first = cy_icmp(cg, LLVMIntEQ, slice, cy_i64(cg, 0)), last = cy_icmp(cg, LLVMIntEQ, slice, cy_i64(cg, 3));
  cy_if one;
  cy_if_begin(cg, &one, LLVMBuildOr(cg->b, first, last, ""));
  V tap = cy_select(cg, last, cy_i64(cg, 2 * depth_bytes(w)), cy_i64(cg, 0));
  emit_filter(cg, w, cy_gep(cg, from, tap), apart, NULL, to);
  cy_if_else(cg, &one);
  double half = w->d->weights == CY_WEIGHTS_F32 ? 0.5 : 0.5 * FILTER_SCALE;
  V ends = cy_splatf(cg, half, cg->W), plus = cy_icmp(cg, LLVMIntEQ, slice, cy_i64(cg, 1));
  V middle = cy_select(cg, plus, ends, cy_splatf(cg, -half, cg->W));
  emit_filter(cg, w, from, apart, (V[3]){ends, middle, ends}, to);
  cy_if_end(cg, &one);
}

/* U of channels [c0, c0 + n) of panel q, of a slice. */
static void emit_filters(cy_cg *cg, const task *t, V q, V slice, V c0, V n) {
  const wino *w = t->w;
  int64_t bytes = tap_bytes(w), row = w->nr * bytes, unit = units(w);
  V u = u_of(cg, t, q, slice);
  cy_loop i, j;
  V panel = cy_gep(cg, cy_arg_ptr(cg, w->d->b_slot), cy_mulc(cg, q, w->c / unit * TAPS * row));
  c0 = cy_div(cg, c0, cy_i64(cg, unit));
  cy_loop_begin(cg, &i, cy_i64(cg, 0), cy_div(cg, n, cy_i64(cg, unit)), cy_i64(cg, 1), NULL, 0);
  V c = cy_add(cg, c0, i.iv), filters = cy_gep(cg, panel, cy_mulc(cg, c, TAPS * row)), apart = cy_i64(cg, row);
  emit_filters_prefetch(cg, w, filters);
  cy_loop_begin(cg, &j, cy_i64(cg, 0), cy_i64(cg, w->nr), cy_i64(cg, cg->W), NULL, 0);
  V at = cy_gep(cg, filters, cy_mulc(cg, j.iv, bytes));
  V to = cy_gepf(cg, u, cy_add(cg, cy_mulc(cg, i.iv, w->nr), j.iv));
  if (w->pairs)
    emit_pair_filter(cg, w, slice, at, apart, to);
  else
    emit_filter(cg, w, at, apart, NULL, to);
  cy_loop_end(cg, &j, NULL);
  cy_loop_end(cg, &i, NULL);
}

/* Filters of panel q from channel c0 on, one unit after the other. */
static V filters_at(cy_cg *cg, const task *t, V q, V c0) {
  const wino *w = t->w;
  V unit = cy_div(cg, cy_add(cg, cy_mulc(cg, q, w->c), c0), cy_i64(cg, units(w)));
  return cy_gep(cg, cy_arg_ptr(cg, w->d->b_slot), cy_mulc(cg, unit, TAPS * w->nr * tap_bytes(w)));
}

/* M += V * U over channels [c0, c0 + n) of a slice. V of all tiles is larger than the second-level cache and its rows are short,
 * so each point's are prefetched while those of the point before are multiplied; with AVX-512, also M, which comes from
 * the second level. */
static void emit_gemm(cy_cg *cg, const task *t, V q, V slice, V c0, V n) {
  const wino *w = t->w;
  cy_loop e;
  int64_t total;
  V number = cy_add(cg, cy_mulc(cg, slice, w->slice / w->cb), cy_div(cg, c0, cy_i64(cg, w->cb)));
  V v = cy_gep(cg, t->v, cy_mulc(cg, number, POINTS * v_point(w))), u = u_of(cg, t, q, slice);
  V m = cy_gep(cg, t->m, cy_mulc(cg, slice, POINTS * m_point(w)));
  cy_loop_begin(cg, &e, cy_i64(cg, 0), cy_i64(cg, POINTS), cy_i64(cg, 1), NULL, 0);
  V a = cy_gep(cg, v, cy_mulc(cg, e.iv, v_point(w)));
  V b = cy_gep(cg, u, cy_mulc(cg, e.iv, u_point(w))), c = cy_gep(cg, m, cy_mulc(cg, e.iv, m_point(w)));
  cy_product p = {.tile = w->tile,
                  .rows = t->count,
                  .tails = cy_tails(cg, w->tile, cy_is_const(tile_count(cg, w), &total) ? total : 0, w->tiles),
                  .a = a,
                  .prefetch = cy_gepc(cg, a, v_point(w)),
                  .b = b,
                  .c = c,
                  .next_accumulators = cy_gep(cg, m, cy_mulc(cg, cy_addc(cg, e.iv, 1), m_point(w))),
                  .tab = t->tab,
                  .row_bytes = w->cb * w->element,
                  .ldc = w->nr * 4,
                  .k = n,
                  .accumulate = cy_icmp(cg, LLVMIntNE, c0, cy_i64(cg, 0))};
  if (w->ints)
    w->ints->product(cg, t, &p, e.iv, filters_at(cg, t, q, c0));
  else
    cy_product_emit(cg, &p);
  cy_loop_end(cg, &e, NULL);
}

/* Both at once, where tiles are few. */
static void emit_rows(cy_cg *cg, const task *t, V q, V c0, V n) {
  const wino *w = t->w;
  int64_t filter = TAPS * w->nr * cy_weight_bytes(w->d->weights);
  V block = cy_mulc(cg, cy_div(cg, c0, cy_i64(cg, w->cb)), POINTS * v_point(w));
  V filters = cy_gep(cg, cy_arg_ptr(cg, w->d->b_slot), cy_mulc(cg, cy_add(cg, cy_mulc(cg, q, w->c), c0), filter));
  cy_winograd_rows p = {.weights = w->d->weights,
                        .tiles = w->tiles,
                        .v = cy_gep(cg, t->v, block),
                        .filters = filters,
                        .m = t->m,
                        .v_point = v_point(w),
                        .m_point = m_point(w),
                        .channels = n,
                        .accumulate = cy_icmp(cg, LLVMIntNE, c0, cy_i64(cg, 0)),
                        .prefetch = cy_gep(cg, filters, cy_mulc(cg, n, filter))};
  cy_winograd_rows_emit(cg, &p);
}

/* M of panel q, over all channels. */
static void emit_products(cy_cg *cg, const task *t, V q) {
  const wino *w = t->w;
  int64_t channels = m_channels(w);
  cy_loop slice, c;
  cy_loop_begin(cg, &slice, cy_i64(cg, 0), cy_i64(cg, m_slices(w)), cy_i64(cg, 1), NULL, 0);
  cy_loop_begin(cg, &c, cy_i64(cg, 0), cy_i64(cg, channels), cy_i64(cg, w->cb), NULL, 0);
  V n = cy_imin(cg, cy_i64(cg, w->cb), cy_sub(cg, cy_i64(cg, channels), c.iv));
  if (w->rows) {
    emit_rows(cg, t, q, c.iv, n);
  } else {
    if (!w->filters_once)
      emit_filters(cg, t, q, slice.iv, c.iv, n);
    emit_gemm(cg, t, q, slice.iv, c.iv, n);
  }
  cy_loop_end(cg, &c, NULL);
  cy_loop_end(cg, &slice, NULL);
}

/* What all functions begin with. */
static task task_begin(cy_cg *cg, const wino *w) {
  task t = {.w = w, .epilogue = w->d->epilogue};
  if (w->ints)
    w->ints->begin(cg, &t);
  else
    t.padding = LLVMBuildPtrToInt(cg->b, cy_zeros(cg, w->d->cin * 4), cg->i64, "");
  return t;
}

/* V of tile `first` in shared scratch. */
static V shared_points(cy_cg *cg, const wino *w, V first) {
  V points = cy_arg_ptr(cg, w->d->shared_slot), number = cy_mulc(cg, first, w->cb);
  return w->ints ? cy_gep(cg, points, cy_mulc(cg, number, w->element)) : cy_gepf(cg, points, number);
}

/* The phase that makes V of all tiles; a task is a tile. */
void cy_winograd_emit_input(cy_cg *cg, const void *of, const char *name) {
  const wino *w = of;
  cy_kernel_begin(cg, name, 0);
  task t = task_begin(cg, w);
  V points = shared_points(cg, w, cg->begin);
  emit_input(cg, &t, cg->begin, cy_sub(cg, cg->end, cg->begin), points);
  cy_fn_end(cg, NULL);
}

static void emit_task(cy_cg *cg, void *of, const cy_task *at) {
  task *t = of;
  const wino *w = t->w;
  V first = at->rows.begin;
  cy_loop q;
  t->count = cy_sub(cg, at->rows.end, first);
  if (w->shared)
    t->v = shared_points(cg, w, first);
  else
    emit_input(cg, t, first, t->count, t->v);
  emit_spots(cg, w, first, t->count, t->spots);
  cy_loop_begin(cg, &q, at->columns.begin, at->columns.end, cy_i64(cg, 1), NULL, 0);
  emit_products(cg, t, q.iv);
  emit_output(cg, t, cy_mulc(cg, q.iv, w->nr));
  cy_loop_end(cg, &q, NULL);
}

/* ---- the generator ---- */

static void *plan(const cy_cg *cg, const void *desc, cy_arena *arena) {
  wino w = cy_winograd_plan(cg, desc);
  return cy_arena_copy(arena, &w, sizeof w);
}

static void pack(const cy_cg *cg, const void *of, int64_t matrices, cy_arena *arena, cy_packing *out) {
  (void)matrices; /* groups are in the descriptor */
  (void)cg;
  const wino *w = of;
  const cy_conv_desc *d = w->d;
  cy_pack_layout l = {.groups = 1,
                      .n = d->cout,
                      .taps = TAPS,
                      .c = w->c,
                      .tap_block = TAPS,
                      .c_block = 1,
                      .depth = (int)w->depth,
                      .winograd = true,
                      .nr = (unsigned)w->nr,
                      .merged = 1,
                      .weights = d->weights,
                      .bytes = TAPS * w->panels * w->nr * w->c * cy_weight_bytes(d->weights)};
  cy_packing_single(out, arena, l, cy_conv_tap_map(d, 0, arena));
}

static const char *name_of(const void *of) {
  return ((const wino *)of)->pairs ? "conv winograd f2x4x4" : "conv winograd f4x3";
}

void cy_winograd_emit(cy_cg *cg, const void *of, const char *name) {
  const wino *w = of;
  const cy_conv_desc *d = w->d;
  V scratch = cy_phase_begin(cg, name, 0, &d->epilogue, d->scratch_slot, cy_winograd_worker_bytes, w);
  task t = task_begin(cg, w);
  t.v = scratch;
  t.u = cy_gepc(cg, t.v, w->shared ? 0 : v_bytes(w));
  t.m = cy_gepc(cg, t.u, u_kept(w) * u_bytes(w));
  t.spots = cy_gepc(cg, t.m, m_bytes(w));
  t.tab = cy_row_table(cg, w->tile.mr, cy_i64(cg, w->cb * w->element));
  cy_loop slice;
  if (w->filters_once) {
    cy_loop_begin(cg, &slice, cy_i64(cg, 0), cy_i64(cg, m_slices(w) * w->panels), cy_i64(cg, 1), NULL, 0);
    V panels = cy_i64(cg, m_slices(w)), q = cy_div(cg, slice.iv, panels), of_panel = cy_mod(cg, slice.iv, panels);
    if (w->panels == 1) {
      q = cy_i64(cg, 0);
      of_panel = slice.iv;
    }
    emit_filters(cg, &t, q, of_panel, cy_i64(cg, 0), cy_i64(cg, m_channels(w)));
    cy_loop_end(cg, &slice, NULL);
  }
  cy_tasks_emit(cg, cy_winograd_grid, w, emit_task, &t);
  cy_fn_end(cg, NULL);
}

void cy_winograd_describe(const void *of, char *text, size_t size) {
  const wino *w = of;
  snprintf(text, size, "tile %ux%lld, tasks of %lld tiles and %lld panels, channels by %lld%s%s", w->tile.mr,
           (long long)w->nr, (long long)w->tiles, (long long)w->nb, (long long)w->cb, w->pairs ? ", pairs of planes" : "",
           w->filters_once ? ", filters once" : "");
}

cy_variants cy_winograd_variants(const cy_conv_desc *d) {
  return (cy_variants){.kinds = CY_OF_WINOGRAD, .base = CY_BASE_WINOGRAD, .by = &cy_winograd_generator, .desc = d};
}

const cy_generator cy_winograd_generator = {CY_WINOGRAD_PHASES, .plan = plan, .pack = pack, .name = name_of};
