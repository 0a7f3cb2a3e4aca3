/* winograd.c - 3x3 convolution of stride 1, any dilation, by F(4x4,3x3): 36 products per 16 outputs and channel instead of 144.
 *
 * Comes in: a cy_conv_desc with cy_winograd_possible. Goes out: one phase, tasks being (block of tiles, block of
 * panels). A task
 *   1. turns 6x6 patches of its tiles into 36 points, V[36][tiles][cin], in the worker's scratch;
 *   2. multiplies each point with its weights, M[36][tiles][columns], by the micro-kernels of core.c;
 *   3. turns M back into 4x4 outputs, cut at the picture's edge, and hands them to the epilogue.
 * Blocks of tiles run across rows and images. A patch reads through 36 addresses, those outside the picture pointing at
 * zeros, so borders need no copy. Points lie 64 bytes more than a round number apart: else 36 streams would fall into
 * the same cache set.
 */
#include "conv_int.h"

#define POINTS 36
#define CHUNK 64 /* columns of the output transform at a time: its result stays in L1 */

typedef struct wino {
  const cy_conv_desc *d;
  cy_axis axis[3];
  cy_tile tile;
  int64_t nr, panels, tiles, nb; /* tiles and panels of a task */
  int64_t c, columns;            /* columns of a full task, padded */
} wino;

bool cy_winograd_possible(const cy_conv_desc *d) {
  if (d->n_spatial != 2 || d->transposed || d->groups != 1 || d->cin < 16 || d->cout < 16 || d->cin % 8)
    return false;
  for (int i = 0; i < 2; i++)
    if (d->kernel[i] != 3 || d->stride[i] != 1)
      return false;
  return true;
}

/* ---- the plan ---- */

/* With dilation D, outputs and inputs D apart form D*D pictures of their own, each cut into tiles. Tiles along an axis
 * of `out` outputs: */
static int64_t axis_tiles(int64_t out, int64_t dilation) { return dilation * (((out + dilation - 1) / dilation + 3) / 4); }

static int64_t known_tiles(const cy_conv_desc *d, int64_t images) {
  return images * axis_tiles(cy_conv_known(d->out[0]), d->dilation[0]) *
         axis_tiles(cy_conv_known(d->out[1]), d->dilation[1]);
}

/* Cycles of one task on vectors of W floats; bandwidth: bytes of weights a cycle. */
static double task_cost(unsigned W, int64_t tiles, int64_t columns, int64_t c, double bandwidth) {
  static const double tail[6] = {0, 2, 2, 3, 4, 5}; /* see next_rows in core.c */
  double rows = (double)(tiles / 6 * 6) + tail[tiles % 6];
  double product = 36.0 * rows * (double)(c * columns) / (2 * W),
         weights = 36.0 * (double)(c * columns) * 4 / bandwidth;
  double transforms = (double)tiles * ((double)c * 150 + (double)columns * 120) / W;
  return (product > weights ? product : weights) + transforms;
}

/* The block sizes that are best on average for 1, 2, 4 and 8 workers. */
static void blocks_choose(const cy_cg *cg, wino *w, int64_t total) {
  double best = 1e300;
  w->tiles = 24;
  w->nb = w->panels * w->nr > 256 ? (256 + w->nr - 1) / w->nr : w->panels;
  for (int64_t tiles = 4; total && tiles <= 48; tiles++)
    for (int64_t split = 1; split <= 16 && split <= w->panels; split *= 2) {
      int64_t nb = (w->panels + split - 1) / split, tasks = (total + tiles - 1) / tiles * ((w->panels + nb - 1) / nb);
      double cost = task_cost(cg->W, tiles < total ? tiles : total, nb * w->nr, w->c, 8), sum = 0;
      for (int64_t workers = 1; workers <= 8; workers *= 2)
        sum += (double)((tasks + workers - 1) / workers * workers) * cost;
      if (sum < best) {
        best = sum;
        w->tiles = tiles < total ? tiles : total;
        w->nb = nb;
      }
    }
}

static wino plan(const cy_cg *cg, const cy_conv_desc *d) {
  wino w = {.d = d, .c = d->cin};
  cy_conv_axes(d, 0, w.axis);
  int64_t total = known_tiles(d, cy_conv_known(d->batch));
  w.tile = cy_tile_choose(cg, total, d->cout);
  w.nr = (int64_t)w.tile.nv * cg->W;
  w.panels = (d->cout + w.nr - 1) / w.nr;
  blocks_choose(cg, &w, total);
  w.columns = w.nb * w.nr;
  return w;
}

cy_pack_layout cy_winograd_layout(const cy_cg *cg, const cy_conv_desc *d) {
  wino w = plan(cg, d);
  return (cy_pack_layout){.groups = 1,
                          .n = d->cout,
                          .taps = POINTS,
                          .c = w.c,
                          .tap_block = 1,
                          .c_block = w.c,
                          .nr = (unsigned)w.nr,
                          .merged = 1,
                          .winograd = 1,
                          .bytes = POINTS * w.panels * w.nr * w.c * 4};
}

double cy_winograd_cost(const cy_cg *cg, const cy_conv_desc *d, double unknown_pixels) {
  wino w = plan(cg, d);
  int64_t tiles = known_tiles(d, cy_conv_images(d));
  return task_cost(cg->W, tiles ? tiles : (int64_t)unknown_pixels / 16, w.panels * w.nr, w.c,
                   CY_BYTES_PER_CYCLE);
}

/* ---- sizes ---- */

static V tiles_along(cy_cg *cg, const wino *w, int axis) {
  int64_t dilation = w->axis[axis].inc;
  V out = cy_addc(cg, cy_size(cg, w->axis[axis].out), dilation - 1);
  return cy_mulc(cg, cy_ceil_div(cg, cy_div(cg, out, cy_i64(cg, dilation)), cy_i64(cg, 4)), dilation);
}
static V tile_count(cy_cg *cg, const wino *w) {
  return cy_mul(cg, cy_size(cg, w->d->batch), cy_mul(cg, tiles_along(cg, w, 1), tiles_along(cg, w, 2)));
}
static int64_t column_blocks(const wino *w) { return (w->panels + w->nb - 1) / w->nb; }
static V task_count(cy_cg *cg, void *ctx) {
  const wino *w = ctx;
  return cy_mulc(cg, cy_ceil_div(cg, tile_count(cg, w), cy_i64(cg, w->tiles)), column_blocks(w));
}
static int64_t point_floats(const wino *w, int64_t width) { return w->tiles * width + 16; }
static int64_t worker_bytes(const wino *w) {
  return POINTS * (point_floats(w, w->c) + point_floats(w, w->columns)) * 4 / 64 * 64 + 64;
}

/* ---- transforms ---- */

static V fadd(cy_cg *cg, V a, V b) { return LLVMBuildFAdd(cg->b, a, b, ""); }
static V fsub(cy_cg *cg, V a, V b) { return LLVMBuildFSub(cg->b, a, b, ""); }
static V mad(cy_cg *cg, double k, V a, V b) {
  return cy_fma(cg, cy_splatf(cg, k, LLVMGetVectorSize(LLVMTypeOf(a))), a, b);
}

/* One axis of the input transform: 6 values to 6. */
static void transform_in(cy_cg *cg, const V d[6], V out[6]) {
  V even = mad(cg, -4, d[2], d[4]), odd = mad(cg, -4, d[1], d[3]);
  V even2 = fsub(cg, d[4], d[2]), odd2 = fsub(cg, d[3], d[1]);
  out[0] = mad(cg, 4, d[0], mad(cg, -5, d[2], d[4]));
  out[1] = fadd(cg, even, odd);
  out[2] = fsub(cg, even, odd);
  out[3] = mad(cg, 2, odd2, even2);
  out[4] = mad(cg, -2, odd2, even2);
  out[5] = mad(cg, 4, d[1], mad(cg, -5, d[3], d[5]));
}

/* One axis of the output transform: 6 values to 4. */
static void transform_out(cy_cg *cg, const V m[6], V out[4]) {
  V s1 = fadd(cg, m[1], m[2]), d1 = fsub(cg, m[1], m[2]), s2 = fadd(cg, m[3], m[4]), d2 = fsub(cg, m[3], m[4]);
  out[0] = fadd(cg, fadd(cg, m[0], s1), s2);
  out[1] = mad(cg, 2, d2, d1);
  out[2] = mad(cg, 4, s2, s1);
  out[3] = fadd(cg, mad(cg, 8, d2, d1), m[5]);
}

/* A tile's place in the output. */
typedef struct spot {
  V n, oh, ow;
} spot;

/* The first output of tile t of an axis. */
static V tile_start(cy_cg *cg, const wino *w, int axis, V t) {
  int64_t dilation = w->axis[axis].inc;
  if (dilation == 1)
    return cy_mulc(cg, t, 4);
  V each = cy_div(cg, tiles_along(cg, w, axis), cy_i64(cg, dilation));
  return cy_add(cg, cy_div(cg, t, each), cy_mulc(cg, cy_mod(cg, t, each), 4 * dilation));
}

static spot emit_spot(cy_cg *cg, const wino *w, V tile) {
  V tw = tiles_along(cg, w, 2), th = tiles_along(cg, w, 1), row = cy_div(cg, tile, tw);
  return (spot){cy_div(cg, row, th), tile_start(cg, w, 1, cy_mod(cg, row, th)), tile_start(cg, w, 2, cy_mod(cg, tile, tw))};
}

/* How many of a tile's four outputs along an axis exist, the first being `at`; none where a picture is smaller than others. */
static V tile_outputs(cy_cg *cg, const wino *w, int axis, V at) {
  V left = cy_addc(cg, cy_sub(cg, cy_size(cg, w->axis[axis].out), at), w->axis[axis].inc - 1);
  left = cy_imax(cg, left, cy_i64(cg, 0));
  return cy_imin(cg, cy_i64(cg, 4), cy_div(cg, left, cy_i64(cg, w->axis[axis].inc)));
}

/* The 36 addresses of a patch, as i64 in `table`. */
static void emit_addresses(cy_cg *cg, const wino *w, const spot *s, V table) {
  const cy_conv_desc *d = w->d;
  V zeros = LLVMBuildPtrToInt(cg->b, cy_zeros(cg, w->c * 4), cg->i64, ""), column[6], column_ok[6];
  V image = LLVMBuildPtrToInt(cg->b, cy_arg_ptr(cg, d->a_slot), cg->i64, "");
  image = cy_add(cg, image, cy_mul(cg, s->n, cy_mulc(cg, cy_size(cg, d->in_n), 4)));
  for (int x = 0; x < 6; x++) {
    V iw = cy_addc(cg, s->ow, x * d->dilation[1] - d->pad[1]);
    column_ok[x] = cy_icmp(cg, LLVMIntULT, iw, cy_size(cg, d->in[1]));
    column[x] = cy_mul(cg, iw, cy_mulc(cg, cy_size(cg, d->in_s[1]), 4));
  }
  for (int y = 0; y < 6; y++) {
    V ih = cy_addc(cg, s->oh, y * d->dilation[0] - d->pad[0]), ok = cy_icmp(cg, LLVMIntULT, ih, cy_size(cg, d->in[0]));
    V row = cy_add(cg, image, cy_mul(cg, ih, cy_mulc(cg, cy_size(cg, d->in_s[0]), 4)));
    for (int x = 0; x < 6; x++) {
      V both = LLVMBuildAnd(cg->b, ok, column_ok[x], "");
      cy_store(cg, cy_select(cg, both, cy_add(cg, row, column[x]), zeros), cy_gepc(cg, table, (y * 6 + x) * 8), 8);
    }
  }
}

/* Both passes are loops, since 36 values do not fit the registers anyway: less code, compiled sooner. half: 36 vectors.
 */
static void emit_patch(cy_cg *cg, const wino *w, V table, V c, unsigned lanes, V half, V out) {
  LLVMTypeRef type = cy_vecf(cg, lanes);
  int64_t vector = cg->W * 4, point = point_floats(w, w->c) * 4;
  cy_loop x, y;
  V d[6], r[6], zero = cy_i64(cg, 0), six = cy_i64(cg, 6), one = cy_i64(cg, 1);
  cy_loop_begin(cg, &x, zero, six, one, NULL, 0);
  V column = cy_gep(cg, table, cy_mulc(cg, x.iv, 8)), to = cy_gep(cg, half, cy_mulc(cg, x.iv, vector));
  for (int i = 0; i < 6; i++) {
    V at = LLVMBuildIntToPtr(cg->b, cy_load(cg, cg->i64, cy_gepc(cg, column, i * 6 * 8), 8), cg->ptr, "");
    d[i] = cy_load(cg, type, cy_gepf(cg, at, c), 4);
  }
  transform_in(cg, d, r);
  for (int i = 0; i < 6; i++)
    cy_store(cg, r[i], cy_gepc(cg, to, i * 6 * vector), 4);
  cy_loop_end(cg, &x, NULL);
  cy_loop_begin(cg, &y, zero, six, one, NULL, 0);
  V row = cy_gep(cg, half, cy_mulc(cg, y.iv, 6 * vector));
  to = cy_gep(cg, cy_gepf(cg, out, c), cy_mulc(cg, y.iv, 6 * point));
  for (int i = 0; i < 6; i++)
    d[i] = cy_load(cg, type, cy_gepc(cg, row, i * vector), 4);
  transform_in(cg, d, r);
  for (int i = 0; i < 6; i++)
    cy_store(cg, r[i], cy_gepc(cg, to, i * point), 4);
  cy_loop_end(cg, &y, NULL);
}

static void emit_input(cy_cg *cg, const wino *w, V first, V count, V points, V table, V half) {
  cy_loop t, c;
  int64_t whole = w->c / cg->W * cg->W;
  cy_loop_begin(cg, &t, cy_i64(cg, 0), count, cy_i64(cg, 1), NULL, 0);
  spot s = emit_spot(cg, w, cy_add(cg, first, t.iv));
  emit_addresses(cg, w, &s, table);
  V out = cy_gepf(cg, points, cy_mulc(cg, t.iv, w->c));
  if (whole) {
    cy_loop_begin(cg, &c, cy_i64(cg, 0), cy_i64(cg, whole), cy_i64(cg, cg->W), NULL, 0);
    emit_patch(cg, w, table, c.iv, cg->W, half, out);
    cy_loop_end(cg, &c, NULL);
  }
  if (w->c > whole)
    emit_patch(cg, w, table, cy_i64(cg, whole), (unsigned)(w->c - whole), half, out);
  cy_loop_end(cg, &t, NULL);
}

static void emit_unpatch(cy_cg *cg, const wino *w, V in, V half, V out) {
  int64_t vector = cg->W * 4, point = point_floats(w, w->columns) * 4;
  cy_loop x, y;
  V d[6], r[4], zero = cy_i64(cg, 0), one = cy_i64(cg, 1);
  cy_loop_begin(cg, &x, zero, cy_i64(cg, 6), one, NULL, 0);
  V column = cy_gep(cg, in, cy_mulc(cg, x.iv, point)), to = cy_gep(cg, half, cy_mulc(cg, x.iv, vector));
  for (int i = 0; i < 6; i++)
    d[i] = cy_load(cg, cg->vf, cy_gepc(cg, column, i * 6 * point), 4);
  transform_out(cg, d, r);
  for (int i = 0; i < 4; i++)
    cy_store(cg, r[i], cy_gepc(cg, to, i * 6 * vector), 4);
  cy_loop_end(cg, &x, NULL);
  cy_loop_begin(cg, &y, zero, cy_i64(cg, 4), one, NULL, 0);
  V row = cy_gep(cg, half, cy_mulc(cg, y.iv, 6 * vector));
  to = cy_gep(cg, out, cy_mulc(cg, y.iv, 4 * CHUNK * 4));
  for (int i = 0; i < 6; i++)
    d[i] = cy_load(cg, cg->vf, cy_gepc(cg, row, i * vector), 4);
  transform_out(cg, d, r);
  for (int i = 0; i < 4; i++)
    cy_store(cg, r[i], cy_gepc(cg, to, i * CHUNK * 4), 4);
  cy_loop_end(cg, &y, NULL);
}

typedef struct output_row {
  V n, oh, ow;
  int64_t step;
} output_row;

static void row_index(void *ctx, cy_cg *cg, V row, V *idx) {
  const output_row *r = ctx;
  idx[0] = r->n;
  idx[1] = r->oh;
  idx[2] = cy_add(cg, r->ow, cy_mulc(cg, row, r->step));
}

/* One tile, columns [j0, j0 + CHUNK) of the task, which are output channels col0 + j0 and on. */
static void emit_output_chunk(cy_cg *cg, const wino *w, const spot *s, V m, V j0, V col0, V half, V buffer) {
  const cy_conv_desc *d = w->d;
  V left = cy_sub(cg, cy_sub(cg, cy_i64(cg, d->cout), col0), j0), here = cy_sub(cg, cy_i64(cg, w->columns), j0);
  V cols = cy_imin(cg, cy_i64(cg, CHUNK), cy_imin(cg, left, here));
  cy_loop j, y;
  cy_loop_begin(cg, &j, cy_i64(cg, 0), cols, cy_i64(cg, cg->W), NULL, 0);
  emit_unpatch(cg, w, cy_gepf(cg, m, cy_add(cg, j0, j.iv)), half, cy_gepf(cg, buffer, j.iv));
  cy_loop_end(cg, &j, NULL);
  V ld = cy_i64(cg, CHUNK * 4), ny = tile_outputs(cg, w, 1, s->oh), nx = tile_outputs(cg, w, 2, s->ow);
  cy_loop_begin(cg, &y, cy_i64(cg, 0), ny, cy_i64(cg, 1), NULL, 0);
  output_row at = {s->n, cy_add(cg, s->oh, cy_mulc(cg, y.iv, d->dilation[0])), s->ow, d->dilation[1]};
  cy_rows rows = {row_index, &at, 3};
  cy_epilogue_tile(cg, &d->epilogue, &rows, cy_gep(cg, buffer, cy_mulc(cg, y.iv, 4 * CHUNK * 4)), ld, nx, cy_i64(cg, 0),
                   cols, cy_add(cg, col0, j0), (unsigned)(d->cout % cg->W));
  cy_loop_end(cg, &y, NULL);
}

static void emit_output(cy_cg *cg, const wino *w, V first, V count, V col0, V points, V half, V buffer) {
  cy_loop t, j;
  cy_loop_begin(cg, &t, cy_i64(cg, 0), count, cy_i64(cg, 1), NULL, 0);
  spot s = emit_spot(cg, w, cy_add(cg, first, t.iv));
  V m = cy_gepf(cg, points, cy_mulc(cg, t.iv, w->columns));
  V columns = cy_imin(cg, cy_i64(cg, w->columns), cy_sub(cg, cy_i64(cg, w->d->cout), col0));
  cy_loop_begin(cg, &j, cy_i64(cg, 0), columns, cy_i64(cg, CHUNK), NULL, 0);
  emit_output_chunk(cg, w, &s, m, j.iv, col0, half, buffer);
  cy_loop_end(cg, &j, NULL);
  cy_loop_end(cg, &t, NULL);
}

/* ---- products ---- */

static void emit_products(cy_cg *cg, const wino *w, V count, V q0, V in, V out, V tab) {
  cy_loop e, q;
  V panels = cy_imin(cg, cy_i64(cg, w->nb), cy_sub(cg, cy_i64(cg, w->panels), q0));
  cy_loop_begin(cg, &e, cy_i64(cg, 0), cy_i64(cg, POINTS), cy_i64(cg, 1), NULL, 0);
  V a = cy_gep(cg, in, cy_mulc(cg, e.iv, point_floats(w, w->c) * 4));
  V c = cy_gep(cg, out, cy_mulc(cg, e.iv, point_floats(w, w->columns) * 4));
  int64_t panel_bytes = w->c * w->nr * 4;
  V weights = cy_gep(cg, cy_arg_ptr(cg, w->d->b_slot), cy_mulc(cg, e.iv, w->panels * panel_bytes));
  cy_loop_begin(cg, &q, cy_i64(cg, 0), panels, cy_i64(cg, 1), NULL, 0);
  cy_product p = {.tile = w->tile,
                  .rows = count,
                  .a = a,
                  .tab = tab,
                  .row_bytes = w->c * 4,
                  .ldc = w->columns * 4,
                  .b = cy_gep(cg, weights, cy_mulc(cg, cy_add(cg, q0, q.iv), panel_bytes)),
                  .c = cy_gep(cg, c, cy_mulc(cg, q.iv, w->nr * 4)),
                  .k = cy_i64(cg, w->c)};
  int64_t total;
  p.tails = cy_tails(w->tile, cy_is_const(tile_count(cg, w), &total) ? total : 0, w->tiles);
  cy_product_emit(cg, &p);
  cy_loop_end(cg, &q, NULL);
  cy_loop_end(cg, &e, NULL);
}

void cy_winograd_emit(cy_cg *cg, const cy_conv_desc *d, cy_contract_info *info) {
  wino w = plan(cg, d);
  cy_kernel_begin(cg, d->name, 0);
  if (d->epilogue.begin)
    d->epilogue.begin(d->epilogue.ctx, cg);
  V in = cy_scratch(cg, d->scratch_slot, cy_i64(cg, worker_bytes(&w)));
  V out = cy_gepc(cg, in, POINTS * point_floats(&w, w.c) * 4), addresses = cy_alloca(cg, POINTS * 8);
  V buffer = cy_alloca(cg, 16 * CHUNK * 4), half = cy_alloca(cg, POINTS * cg->W * 4),
    tab = cy_row_table(cg, w.tile.mr, cy_i64(cg, w.c * 4));
  cy_loop t;
  cy_loop_begin(cg, &t, cg->begin, cg->end, cy_i64(cg, 1), NULL, 0);
  V splits = cy_i64(cg, column_blocks(&w)), first = cy_mulc(cg, cy_div(cg, t.iv, splits), w.tiles);
  V q0 = cy_mulc(cg, cy_mod(cg, t.iv, splits), w.nb);
  V count = cy_imin(cg, cy_i64(cg, w.tiles), cy_sub(cg, tile_count(cg, &w), first));
  emit_input(cg, &w, first, count, in, addresses, half);
  emit_products(cg, &w, count, q0, in, out, tab);
  emit_output(cg, &w, first, count, cy_mulc(cg, q0, w.nr), out, half, buffer);
  cy_loop_end(cg, &t, NULL);
  cy_fn_end(cg, NULL);
  cy_phase_add(info, d->name, cy_size_fn(cg, d->name, "_tasks", task_count, &w));
  info->worker_bytes = worker_bytes(&w);
  info->shared_bytes = 0;
}
