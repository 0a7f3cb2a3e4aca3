/* SPDX-License-Identifier: Apache-2.0 */
/* int_winograd.c - 3x3 convolution of 8-bit integers, of stride 1, by F(4x4,3x3) in 16 bits, exactly: 36 products of
 * i16 per 16 outputs and channel instead of 144 of bytes, which take half as long each.
 *
 * Comes in: a cy_int_gemm_desc with `winograd`. Goes out: a phase whose tasks are (block of tiles, panels), as in
 * winograd.c:
 *   1. 6x6 patches less the zero point become 36 points, V[block of channels][36][tile][channel], in the worker's scratch
 *      or, where there are few blocks, by a phase of its own in shared scratch.
 *   2. Filters of a panel become 36 points, U[36][pair of channels][NR][2]; M[36][tile][NR] += V * U (int_kernel.c).
 *   3. M becomes 4x4 outputs for the epilogue.
 * Why this is exact: points are integers here. Those of a patch are sums of at most 100 times an input in amount, those
 * of a filter of 49 times a weight: both fit i16. Products are summed up, and sums transformed back, modulo 2^32, where
 * nothing is lost: this gives 9 * 2^s times the output, s being 6 at most. 9 has an inverse modulo 2^32, and a shift takes
 * the rest, if the output is less than 2^25 in amount. Whether all are, the weights tell (cy_int_gemm_largest_sum).
 */
#include "int_gemm_int.h"

#include <stdio.h>

enum { SIDE = 6, POINTS = SIDE * SIDE, OUT = 4, TAPS = 9 };
enum { INVERSE_OF_9 = 954437177 };
enum { MAX_TILES = 64, MAX_CHANNELS = 128 }; /* of a block */
enum { LINE = 64 };                          /* bytes more from point to point: not all in one set of a cache */
enum { MIN_BLOCKS = 8 };                     /* of tiles, whose tasks have all panels */
enum { WANTED_TASKS = 16 };
enum { ONCE_BYTES = 400 * 1024 }; /* of U that stays in the second-level cache beside the rest */
typedef struct wino {
  const cy_int_gemm_desc *d;
  const cy_conv_desc *w;
  cy_axis axis[3];
  cy_int_gemm_variant variant;
  cy_tile tile;
  int64_t c, cb, n, nr, panels;
  int64_t high, wide, total; /* tiles along the axes, and of all images */
  int64_t tiles, rows;       /* tiles of a task, and with those that fill up the last tile of the micro-kernel */
  int64_t parts;             /* of the panels, in tasks of their own */
  bool shared;               /* V is made by a phase of its own */
  bool once;                 /* U of all panels is made once for all tasks of a call */
} wino;

/* ---- the plan ---- */

/* Rows of the micro-kernel's tile: few of the last one's idle. */
static unsigned rows_choose(int64_t tiles) {
  unsigned best = 12;
  for (unsigned mr = 12; mr >= 8; mr--)
    if (cy_round_up(tiles, mr) < cy_round_up(tiles, best))
      best = mr;
  return best;
}

static wino plan_of(const cy_cg *cg, const cy_int_gemm_desc *d) {
  wino p = {.d = d, .w = &d->window, .variant = cy_group_kernel_of(CY_GROUP_DOT2)};
  p.variant.together = 1;
  cy_conv_axes(p.w, 0, p.axis);
  p.c = p.w->cin;
  p.n = p.w->cout;
  p.high = cy_ceil(cy_csize_known(p.axis[1].out), OUT);
  p.wide = cy_ceil(cy_csize_known(p.axis[2].out), OUT);
  p.total = cy_csize_known(p.w->batch) * p.high * p.wide;
  int64_t blocks = cy_ceil(p.total, MAX_TILES);
  p.tiles = cy_ceil(p.total, blocks);
  p.tile = (cy_tile){rows_choose(p.tiles), 2};
  if (blocks > 1)
    p.tiles = cy_round_up(p.tiles, p.tile.mr);
  blocks = cy_ceil(p.total, p.tiles);
  p.rows = cy_round_up(p.tiles, p.tile.mr);
  p.nr = (int64_t)p.tile.nv * cg->W;
  p.panels = cy_ceil(p.n, p.nr);
  p.shared = blocks < MIN_BLOCKS;
  p.once = !p.shared && POINTS * p.c * p.nr * 2 * p.panels <= ONCE_BYTES;
  p.parts = p.shared ? cy_ceil(WANTED_TASKS, blocks) : 1;
  p.parts = p.parts < p.panels ? p.parts : p.panels;
  p.cb = p.once || p.c <= MAX_CHANNELS ? p.c : MAX_CHANNELS;
  return p;
}

static int64_t blocks_of(const wino *p) { return cy_ceil(p->total, p->tiles); }

/* Cycles, without and with. */
static double direct_cycles(const cy_cg *cg, const wino *p) {
  double positions =
      (double)(cy_csize_known(p->w->batch) * cy_csize_known(p->axis[1].out) * cy_csize_known(p->axis[2].out));
  return cy_cost_groups(cg, positions * (double)(TAPS * p->c * cy_round_up(p->n, cg->W)), 4);
}
static double cycles(const cy_cg *cg, const wino *p) {
  double vectors = (double)p->c / (2.0 * cg->W), columns = (double)(p->panels * p->tile.nv), all = (double)p->total;
  double tiles = (double)(blocks_of(p) * p->rows), again = p->once ? 1 : (double)blocks_of(p);
  double products = cy_cost_groups(cg, tiles * POINTS * (double)(p->c * p->panels * p->nr), 2);
  return products + cy_cost_int_winograd(cg, all * vectors, again * (double)p->c / 2 * columns, all * columns);
}

bool cy_int_winograd_possible(const cy_cg *cg, const cy_int_gemm_desc *d) {
  const cy_conv_desc *w = &d->window;
  if (!cy_form_on(cg, CY_FORM_INT_WINOGRAD) || !d->conv || d->bf16 || d->b_bits != 8 || !d->b_signed ||
      d->b_zero_slot >= 0 || !cg->model.int_winograd || cg->amx_int8 || !(cg->vnni || cg->vnni_spelled) ||
      w->n_spatial != 2 || w->transposed || w->groups != 1 || w->cin % (2 * cg->W) || w->cout < (int64_t)cg->W ||
      (w->cin > MAX_CHANNELS && w->cin % MAX_CHANNELS))
    return false;
  for (int i = 0; i < 2; i++)
    if (w->kernel[i] != 3 || w->stride[i] != 1 || w->dilation[i] != 1 || !cy_csize_known(w->in[i]) ||
        !cy_csize_known(w->out[i]) || !cy_csize_known(w->in_s[i]))
      return false;
  return cy_csize_known(w->batch) && cy_csize_known(w->in_n);
}

bool cy_int_winograd_weigh(const cy_cg *cg, const cy_int_gemm_desc *d, double *with, double *without) {
  if (!cy_int_winograd_possible(cg, d))
    return false;
  wino p = plan_of(cg, d);
  *with = cycles(cg, &p);
  *without = direct_cycles(cg, &p) * cy_int_gemm_share(cg, d);
  return true;
}

double cy_int_winograd_cycles(const cy_cg *cg, const cy_int_gemm_desc *d) {
  double with, without;
  return cy_int_winograd_weigh(cg, d, &with, &without) && with < cg->model.int_winograd_worth * without ? with : 0;
}

bool cy_int_winograd_exact(int64_t sum) { return 255 * sum < 1 << 25; }

/* ---- sizes, in bytes ---- */

static int64_t v_rows(const wino *p) { return p->shared ? blocks_of(p) * p->rows : p->rows; }
static int64_t v_point(const wino *p) { return v_rows(p) * p->cb * 2 + LINE; }
static int64_t v_bytes(const wino *p) { return cy_round_up(p->c / p->cb * POINTS * v_point(p), 64); }
static int64_t u_point(const wino *p) { return p->cb * p->nr * 2 + LINE; }
static int64_t u_bytes(const wino *p) { return POINTS * u_point(p); } /* of a panel and block */
static int64_t m_point(const wino *p) { return p->rows * p->nr * 4 + LINE; }

/* ---- transforms ---- */

static V add(cy_cg *cg, V a, V b) { return LLVMBuildAdd(cg->b, a, b, ""); }
static V sub(cy_cg *cg, V a, V b) { return LLVMBuildSub(cg->b, a, b, ""); }
static V twice(cy_cg *cg, V a) { return add(cg, a, a); }
static V times(cy_cg *cg, V a, int64_t k) {
  LLVMTypeRef type = LLVMTypeOf(a);
  V factor = LLVMConstInt(LLVMGetElementType(type), (unsigned long long)k, 1);
  return LLVMBuildMul(cg->b, a, cy_splat(cg, factor, LLVMGetVectorSize(type)), "");
}

/* 3 << shifts[i] times output i. */
static const unsigned shifts[OUT] = {3, 2, 1, 1};
static void transform_out(cy_cg *cg, const V m[SIDE], V out[OUT]) {
  V s1 = add(cg, m[1], m[2]), d1 = sub(cg, m[2], m[1]), s2 = add(cg, m[3], m[4]), d2 = sub(cg, m[3], m[4]);
  V first = sub(cg, s2, times(cg, s1, 4));
  out[0] = add(cg, first, times(cg, m[0], 6));
  out[1] = add(cg, twice(cg, d1), d2);
  out[2] = sub(cg, s2, s1);
  V last = add(cg, d1, twice(cg, d2));
  out[3] = add(cg, last, times(cg, m[5], 6));
}

/* ---- V ---- */

/* What the loops of a task hand down. */
typedef struct frame {
  const wino *p;
  V zero;         /* point, <2 W x i16> */
  V padding;      /* a position of zero points */
  V v, u, m;      /* v: of the task's first tile */
  V table;        /* rows of the micro-kernel */
  V half, sums;   /* between two passes; outputs of a tile, [16][NR] */
  V first, count; /* tiles of the task */
  cy_epilogue epilogue;
} frame;

typedef struct spot {
  V image, y, x; /* of a tile's first output */
} spot;

static spot spot_of(cy_cg *cg, const wino *p, V tile) {
  V wide = cy_i64(cg, p->wide), row = cy_div(cg, tile, wide), high = cy_i64(cg, p->high);
  spot s = {.image = cy_div(cg, row, high)};
  s.y = cy_mulc(cg, cy_mod(cg, row, high), OUT);
  s.x = cy_mulc(cg, cy_mod(cg, tile, wide), OUT);
  return s;
}

/* Where the 36 positions of a patch lie: addresses as i64. */
static void emit_addresses(cy_cg *cg, const frame *f, V tile, V table) {
  const wino *p = f->p;
  const cy_axis *h = &p->axis[1], *w = &p->axis[2];
  spot s = spot_of(cg, p, tile);
  V image = cy_gep(cg, cy_arg_ptr(cg, p->w->a_slot), cy_mul(cg, s.image, cy_size(cg, p->w->in_n))), column[SIDE],
    ok[SIDE];
  for (int x = 0; x < SIDE; x++) {
    V at = cy_addc(cg, s.x, x + w->start);
    ok[x] = cy_icmp(cg, LLVMIntULT, at, cy_size(cg, w->in));
    column[x] = cy_mul(cg, at, cy_size(cg, w->in_stride));
  }
  for (int y = 0; y < SIDE; y++) {
    V at = cy_addc(cg, s.y, y + h->start), there = cy_icmp(cg, LLVMIntULT, at, cy_size(cg, h->in));
    V row = cy_gep(cg, image, cy_mul(cg, at, cy_size(cg, h->in_stride)));
    for (int x = 0; x < SIDE; x++) {
      V both = LLVMBuildAnd(cg->b, there, ok[x], ""), position = cy_gep(cg, row, column[x]);
      cy_store(cg, cy_select(cg, both, position, f->padding), cy_gepc(cg, table, (y * SIDE + x) * 8), 8);
    }
  }
}

/* A vector of channels, c and those behind it, of a patch. out: of point 0. */
static void emit_patch(cy_cg *cg, const frame *f, V table, V c, V out) {
  unsigned lanes = 2 * cg->W;
  LLVMTypeRef bytes = LLVMVectorType(cg->i8, lanes), words = LLVMVectorType(cg->i16, lanes);
  int64_t vector = lanes * 2;
  for (int x = 0; x < SIDE; x++) {
    V d[SIDE], r[SIDE];
    for (int y = 0; y < SIDE; y++) {
      V at = cy_load(cg, cg->ptr, cy_gepc(cg, table, (y * SIDE + x) * 8), 8),
        b = cy_load(cg, bytes, cy_gep(cg, at, c), 1);
      d[y] = f->p->d->a_signed ? LLVMBuildSExt(cg->b, b, words, "") : LLVMBuildZExt(cg->b, b, words, "");
      d[y] = sub(cg, d[y], f->zero);
    }
    cy_winograd_input(cg, d, r);
    for (int y = 0; y < SIDE; y++)
      cy_store(cg, r[y], cy_gepc(cg, f->half, (y * SIDE + x) * vector), 64);
  }
  for (int y = 0; y < SIDE; y++) {
    V d[SIDE], r[SIDE];
    for (int x = 0; x < SIDE; x++)
      d[x] = cy_load(cg, words, cy_gepc(cg, f->half, (y * SIDE + x) * vector), 64);
    cy_winograd_input(cg, d, r);
    for (int x = 0; x < SIDE; x++)
      cy_store(cg, r[x], cy_gepc(cg, out, (y * SIDE + x) * v_point(f->p)), 64);
  }
}

/* V of tiles [first, first + count), the first one's at v. */
static void emit_input(cy_cg *cg, const frame *f, V first, V count, V v) {
  const wino *p = f->p;
  V table = cy_alloca(cg, POINTS * 8);
  cy_loop t, c;
  cy_loop_begin(cg, &t, cy_i64(cg, 0), count, cy_i64(cg, 1), NULL, 0);
  emit_addresses(cg, f, cy_add(cg, first, t.iv), table);
  V to = cy_gep(cg, v, cy_mulc(cg, t.iv, p->cb * 2)), cb = cy_i64(cg, p->cb);
  cy_loop_begin(cg, &c, cy_i64(cg, 0), cy_i64(cg, p->c), cy_i64(cg, 2 * cg->W), NULL, 0);
  V block = cy_mulc(cg, cy_div(cg, c.iv, cb), POINTS * v_point(p)), within = cy_mulc(cg, cy_mod(cg, c.iv, cb), 2);
  emit_patch(cg, f, table, c.iv, cy_gep(cg, to, cy_add(cg, block, within)));
  cy_loop_end(cg, &c, NULL);
  cy_loop_end(cg, &t, NULL);
}

/* ---- U ---- */

/* Filters of panel q from channel c0 on. */
static V filters_at(cy_cg *cg, const wino *p, V q, V c0) {
  V channel = cy_add(cg, cy_mulc(cg, q, p->c), c0);
  return cy_gep(cg, cy_arg_ptr(cg, p->w->b_slot), cy_mulc(cg, channel, TAPS * p->nr));
}

/* U of a panel and block of channels whose filters are at `filters`. */
static void emit_filters(cy_cg *cg, const frame *f, V filters, V u) {
  const wino *p = f->p;
  LLVMTypeRef bytes = LLVMVectorType(cg->i8, 2 * cg->W), words = LLVMVectorType(cg->i16, 2 * cg->W);
  cy_loop i;
  cy_loop_begin(cg, &i, cy_i64(cg, 0), cy_i64(cg, p->cb / 2), cy_i64(cg, 1), NULL, 0);
  V from = cy_gep(cg, filters, cy_mulc(cg, i.iv, TAPS * p->nr * 2)), to = cy_gep(cg, u, cy_mulc(cg, i.iv, p->nr * 4));
  for (unsigned j = 0; j < p->tile.nv; j++) {
    V g[TAPS], half[3][SIDE], row[SIDE];
    for (int t = 0; t < TAPS; t++) {
      V b = cy_load(cg, bytes, cy_gepc(cg, from, t * p->nr * 2 + j * cg->W * 2), 1);
      g[t] = LLVMBuildSExt(cg->b, b, words, "");
    }
    for (int x = 0; x < 3; x++)
      cy_winograd_filter(cg, (V[3]){g[x], g[3 + x], g[6 + x]}, half[x]);
    for (int y = 0; y < SIDE; y++) {
      cy_winograd_filter(cg, (V[3]){half[0][y], half[1][y], half[2][y]}, row);
      for (int x = 0; x < SIDE; x++)
        cy_store(cg, row[x], cy_gepc(cg, to, (y * SIDE + x) * u_point(p) + j * cg->W * 4), 64);
    }
  }
  cy_loop_end(cg, &i, NULL);
}

/* ---- M ---- */

/* A point's share of the filters that come behind those at `from`, which are asked for while it is multiplied: they come
 * from memory. */
static void emit_filters_prefetch(cy_cg *cg, const wino *p, V from, V point) {
  int64_t bytes = p->cb * TAPS * p->nr, share = cy_round_up(cy_ceil(bytes, POINTS), LINE);
  V at = cy_gep(cg, from, cy_addc(cg, cy_mulc(cg, point, share), bytes));
  for (int64_t line = 0; line < share; line += LINE)
    cy_prefetch(cg, cy_gepc(cg, at, line), false, CY_SECOND_LEVEL);
}

/* The products of a block of channels, V's at v; onto: M has those of others. filters: of the block, or NULL. */
static void emit_gemm(cy_cg *cg, const frame *f, V v, V u, bool onto, V filters) {
  const wino *p = f->p;
  V kernel = cy_int_gemm_kernel(cg, p->variant, p->tile.mr, p->tile.nv, p->nr, onto), none = LLVMConstNull(cg->ptr);
  cy_loop e, r;
  cy_loop_begin(cg, &e, cy_i64(cg, 0), cy_i64(cg, POINTS), cy_i64(cg, 1), NULL, 0);
  V a = cy_gep(cg, v, cy_mulc(cg, e.iv, v_point(p))), b = cy_gep(cg, u, cy_mulc(cg, e.iv, u_point(p)));
  V m = cy_gep(cg, f->m, cy_mulc(cg, e.iv, m_point(p)));
  if (filters)
    emit_filters_prefetch(cg, p, filters, e.iv);
  cy_loop_begin(cg, &r, cy_i64(cg, 0), f->count, cy_i64(cg, p->tile.mr), NULL, 0);
  V rows = cy_gep(cg, a, cy_mulc(cg, r.iv, p->cb * 2)), to = cy_gep(cg, m, cy_mulc(cg, r.iv, p->nr * 4));
  V one = cy_i64(cg, 1), args[] = {rows, f->table, b,    to,  cy_i64(cg, p->nr * 4), cy_i64(cg, p->cb / 2), one,
                                   none, none,     none, one, cy_i64(cg, 0)};
  cy_call(cg, kernel, args, sizeof args / sizeof *args);
  cy_loop_end(cg, &r, NULL);
  cy_loop_end(cg, &e, NULL);
}

static void emit_sums(cy_cg *cg, const frame *f, V q) {
  const wino *p = f->p;
  V u = p->once ? cy_gep(cg, f->u, cy_mulc(cg, q, u_bytes(p))) : f->u;
  for (int part = 0; part < (p->cb < p->c ? 2 : 1); part++) {
    cy_loop c;
    cy_loop_begin(cg, &c, cy_i64(cg, part ? p->cb : 0), cy_i64(cg, part ? p->c : p->cb), cy_i64(cg, p->cb), NULL, 0);
    V filters = p->once ? NULL : filters_at(cg, p, q, c.iv);
    if (filters)
      emit_filters(cg, f, filters, u);
    V block = cy_mulc(cg, cy_div(cg, c.iv, cy_i64(cg, p->cb)), POINTS * v_point(p));
    emit_gemm(cg, f, cy_gep(cg, f->v, block), u, part, filters);
    cy_loop_end(cg, &c, NULL);
  }
}

/* ---- outputs ---- */

typedef struct line {
  V image, y, x;
} line;

static void row_index(void *ctx, cy_cg *cg, V row, V *idx) {
  const line *l = ctx;
  idx[0] = l->image;
  idx[1] = l->y;
  idx[2] = cy_add(cg, l->x, row);
}

/* A vector of columns. m: of point 0; to: of output 0. */
static void emit_unpatch(cy_cg *cg, const frame *f, V m, V to) {
  const wino *p = f->p;
  int64_t vector = cg->W * 4;
  V d[SIDE], r[OUT];
  for (int x = 0; x < SIDE; x++) {
    for (int y = 0; y < SIDE; y++)
      d[y] = cy_load(cg, cg->vi, cy_gepc(cg, m, (y * SIDE + x) * m_point(p)), 64);
    transform_out(cg, d, r);
    for (int y = 0; y < OUT; y++)
      cy_store(cg, r[y], cy_gepc(cg, f->half, (y * SIDE + x) * vector), 64);
  }
  for (int y = 0; y < OUT; y++) {
    for (int x = 0; x < SIDE; x++)
      d[x] = cy_load(cg, cg->vi, cy_gepc(cg, f->half, (y * SIDE + x) * vector), 64);
    transform_out(cg, d, r);
    for (int x = 0; x < OUT; x++) {
      V shift = cy_splat(cg, cy_i32(cg, (int32_t)(shifts[y] + shifts[x])), cg->W);
      r[x] = LLVMBuildAShr(cg->b, times(cg, r[x], INVERSE_OF_9), shift, "");
      cy_store(cg, r[x], cy_gepc(cg, to, (y * OUT + x) * p->nr * 4), 64);
    }
  }
}

/* All tiles of the task, columns of panel q. */
static void emit_output(cy_cg *cg, const frame *f, V q) {
  const wino *p = f->p;
  V col0 = cy_mulc(cg, q, p->nr), cols = cy_imin(cg, cy_i64(cg, p->nr), cy_sub(cg, cy_i64(cg, p->n), col0));
  cy_loop t, j, y;
  cy_loop_begin(cg, &t, cy_i64(cg, 0), f->count, cy_i64(cg, 1), NULL, 0);
  V m = cy_gep(cg, f->m, cy_mulc(cg, t.iv, p->nr * 4));
  cy_loop_begin(cg, &j, cy_i64(cg, 0), cy_mulc(cg, cols, 4), cy_i64(cg, cg->W * 4), NULL, 0);
  V to = cy_gep(cg, f->sums, j.iv);
  emit_unpatch(cg, f, cy_gep(cg, m, j.iv), to);
  cy_loop_end(cg, &j, NULL);
  spot s = spot_of(cg, p, cy_add(cg, f->first, t.iv));
  V four = cy_i64(cg, OUT), high = cy_imin(cg, four, cy_sub(cg, cy_size(cg, p->axis[1].out), s.y));
  V wide = cy_imin(cg, four, cy_sub(cg, cy_size(cg, p->axis[2].out), s.x));
  cy_loop_begin(cg, &y, cy_i64(cg, 0), high, cy_i64(cg, 1), NULL, 0);
  line at = {s.image, cy_add(cg, s.y, y.iv), s.x};
  cy_rows rows = {row_index, &at, 3};
  V from = cy_gep(cg, f->sums, cy_mulc(cg, y.iv, OUT * p->nr * 4));
  cy_epilogue_tile(cg, &f->epilogue, &rows, from, cy_i64(cg, p->nr * 4), wide, cy_i64(cg, 0), cols, col0,
                   (unsigned)(p->n % cg->W));
  cy_loop_end(cg, &y, NULL);
  cy_loop_end(cg, &t, NULL);
}

/* ---- phases ---- */

static void frame_begin(cy_cg *cg, const wino *p, frame *f) {
  const cy_int_gemm_desc *d = p->d;
  f->p = p;
  cy_int_gemm_rows convert = cy_int_gemm_rows_begin(cg, p->variant, d);
  f->zero = cy_splat(cg, convert.zero, 2 * cg->W);
  f->padding = cy_alloca(cg, p->c);
  LLVMBuildMemSet(cg->b, f->padding, LLVMBuildTrunc(cg->b, convert.zero, cg->i8, ""), cy_i64(cg, p->c), 64);
  f->half = cy_alloca(cg, POINTS * cg->W * 4);
}

static void emit_shared_input(cy_cg *cg, const wino *p, cy_contract_info *info) {
  char name[sizeof info->phase->name];
  snprintf(name, sizeof name, "%s_input", p->w->name);
  cy_kernel_begin(cg, name, 0);
  frame f = {0};
  frame_begin(cg, p, &f);
  V v = cy_gep(cg, cy_arg_ptr(cg, p->w->shared_slot), cy_mulc(cg, cg->begin, p->cb * 2));
  emit_input(cg, &f, cg->begin, cy_sub(cg, cg->end, cg->begin), v);
  cy_fn_end(cg, NULL);
  cy_phase_add(info, name, p->total);
}

static void emit_task(cy_cg *cg, frame *f, V task) {
  const wino *p = f->p;
  V parts = cy_i64(cg, p->parts);
  f->first = cy_mulc(cg, cy_div(cg, task, parts), p->tiles);
  f->count = cy_imin(cg, cy_i64(cg, p->tiles), cy_sub(cg, cy_i64(cg, p->total), f->first));
  cy_share panels = cy_share_of(cg, cy_i64(cg, p->panels), parts, cy_mod(cg, task, parts));
  if (p->shared)
    f->v = cy_gep(cg, cy_arg_ptr(cg, p->w->shared_slot), cy_mulc(cg, f->first, p->cb * 2));
  else
    emit_input(cg, f, f->first, f->count, f->v);
  cy_loop q;
  cy_loop_begin(cg, &q, panels.begin, panels.end, cy_i64(cg, 1), NULL, 0);
  emit_sums(cg, f, q.iv);
  emit_output(cg, f, q.iv);
  cy_loop_end(cg, &q, NULL);
}

/* ---- the generator ---- */

static void *plan(const cy_cg *cg, const void *desc, cy_arena *arena) {
  wino p = plan_of(cg, desc);
  return cy_arena_copy(arena, &p, sizeof p);
}

static void pack(const cy_cg *cg, const void *of, int64_t matrices, cy_arena *arena, cy_packing *out) {
  (void)cg;
  (void)matrices;
  const wino *p = of;
  cy_int_gemm_layout l = {
      .matrices = 1, .n = p->n, .taps = TAPS, .c = p->c, .nr = (unsigned)p->nr, .step = 2, .winograd = true};
  l.last = l.nr;
  l.bytes = l.matrix_bytes = p->panels * p->c * TAPS * p->nr;
  *out = (cy_packing){.bytes = l.bytes, .ints = cy_arena_copy(arena, &l, sizeof l)};
}

static const char *name_of(const void *of) {
  (void)of;
  return "conv int8 winograd f4x3";
}

static void emit(cy_cg *cg, const void *of, cy_contract_info *info) {
  const wino *p = of;
  const cy_int_gemm_desc *d = p->d;
  const cy_epilogue *inner = &d->window.epilogue;
  int64_t own = p->shared ? 0 : v_bytes(p), filters = cy_round_up(u_bytes(p) * (p->once ? p->panels : 1), 64);
  info->n_phases = 0;
  info->worker_bytes = own + filters + cy_round_up(POINTS * m_point(p), 64);
  info->shared_bytes = p->shared ? v_bytes(p) : 0;
  if (p->shared)
    emit_shared_input(cg, p, info);
  cy_kernel_begin(cg, p->w->name, 0);
  cy_epilogue_open(inner, cg);
  frame f = {.epilogue = {.emit = cy_int_gemm_as_integers, .ctx = (void *)inner, .wide = p->n >= p->nr ? 2 : 0}};
  frame_begin(cg, p, &f);
  f.v = cy_scratch(cg, p->w->scratch_slot, cy_i64(cg, info->worker_bytes));
  f.u = cy_gepc(cg, f.v, own);
  f.m = cy_gepc(cg, f.u, filters);
  f.table = cy_row_table(cg, p->tile.mr, cy_i64(cg, p->cb * 2));
  f.sums = cy_alloca(cg, OUT * OUT * p->nr * 4);
  cy_loop q, t;
  if (p->once) {
    cy_loop_begin(cg, &q, cy_i64(cg, 0), cy_i64(cg, p->panels), cy_i64(cg, 1), NULL, 0);
    V filters = filters_at(cg, p, q.iv, cy_i64(cg, 0));
    emit_filters(cg, &f, filters, cy_gep(cg, f.u, cy_mulc(cg, q.iv, u_bytes(p))));
    cy_loop_end(cg, &q, NULL);
  }
  cy_loop_begin(cg, &t, cg->begin, cg->end, cy_i64(cg, 1), NULL, 0);
  emit_task(cg, &f, t.iv);
  cy_loop_end(cg, &t, NULL);
  cy_fn_end(cg, NULL);
  cy_phase_add(info, p->w->name, blocks_of(p) * p->parts);
}

static void describe(const void *of, char *text, size_t size) {
  const wino *p = of;
  snprintf(text, size, "tile %ux%lld, tasks of %lld tiles, channels by %lld", p->tile.mr, (long long)p->nr,
           (long long)p->tiles, (long long)p->cb);
}

const cy_generator cy_int_winograd_generator = {
    .plan = plan, .pack = pack, .name = name_of, .describe = describe, .emit = emit};
