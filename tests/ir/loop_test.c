/* SPDX-License-Identifier: Apache-2.0 */
/* loop_test.c - constructors and index arithmetic of loop IR, that scheduling keeps results, and the check of programs. */
#include "ir/loop/loop.h"
#include "tests/check.h"

#include <stdlib.h>

static cy_graph *g;

static cy_dim d(int64_t v) { return cy_dim_const(g, v); }
static cy_dim sym(const char *name) { return cy_dim_sym(g, cy_sym_by_name(g, name)); }
static cy_expr add(cy_kernel *k, cy_expr a, cy_expr b) { return cy_x_bin(k, CY_OP_add, a, b); }
static cy_expr mul(cy_kernel *k, cy_expr a, cy_expr b) { return cy_x_bin(k, CY_OP_mul, a, b); }
static cy_expr mulc(cy_kernel *k, cy_expr a, int64_t c) { return mul(k, a, cy_x_index(k, c)); }

static void test_folding(void) {
  cy_kernel *k = cy_kernel_create(g, "k");
  cy_karg a = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0);
  cy_expr x = cy_x_load(k, a, cy_x_index(k, 3)), one = cy_x_const(k, CY_F32, 1), zero = cy_x_const(k, CY_F32, 0);
  CHECK_INT_EQ(cy_x_bin(k, CY_OP_mul, x, one), x);
  CHECK_INT_EQ(cy_x_bin(k, CY_OP_div, x, one), x);
  CHECK_INT_EQ(cy_x_bin(k, CY_OP_sub, x, zero), x);
  CHECK(cy_x_bin(k, CY_OP_add, x, zero) != x); /* -0 + 0 is 0 */
  CHECK_INT_EQ(cy_x_bin(k, CY_OP_pow, x, cy_x_const(k, CY_F32, 2)), cy_x_bin(k, CY_OP_mul, x, x));
  CHECK_INT_EQ(cy_x_un(k, CY_OP_neg, cy_x_un(k, CY_OP_neg, x)), x);
  CHECK_INT_EQ(cy_x_cast(k, cy_x_cast(k, x, CY_F64), CY_F32), x);
  CHECK_INT_EQ(cy_x_const(k, CY_F32, 0.1), cy_x_const(k, CY_F32, (double)0.1f));
  cy_expr t = cy_x_int(k, CY_BOOL, 1);
  CHECK_INT_EQ(cy_x_select(k, t, x, zero), x);
  CHECK_INT_EQ(cy_x_bin(k, CY_OP_lt, zero, one), t);
  CHECK_INT_EQ(cy_x_bin(k, CY_OP_add, one, one), cy_x_const(k, CY_F32, 2));
  cy_expr mixed[2] = {x, cy_x_int(k, CY_I64, 2)};
  CHECK_INT_EQ(cy_x_op(k, CY_OP_pow, CY_F32, mixed, 2), cy_x_bin(k, CY_OP_mul, x, x));
}

static void test_index(void) {
  cy_kernel *k = cy_kernel_create(g, "k");
  cy_dim n = sym("n"), c = sym("c");
  cy_sym_of(g, cy_sym_by_name(g, "c"))->min = 1;
  cy_expr i = cy_x_var(k, cy_kernel_add_var(k, n)), j = cy_x_var(k, cy_kernel_add_var(k, c)), e = cy_x_dim(k, c);
  cy_expr flat = add(k, mul(k, i, e), j);
  CHECK_INT_EQ(cy_x_bin(k, CY_OP_div, flat, e), i);
  CHECK_INT_EQ(cy_x_bin(k, CY_OP_mod, flat, e), j);
  CHECK_INT_EQ(cy_x_bin(k, CY_OP_sub, flat, flat), cy_x_index(k, 0));
  CHECK_INT_EQ(add(k, j, mul(k, e, i)), flat);
  /* a size that may be 0 divides where a loop over it, or over a multiple of it, runs */
  cy_expr z = cy_x_dim(k, n), in = cy_x_var(k, cy_kernel_add_var(k, cy_dim_mul(g, n, c)));
  CHECK_INT_EQ(cy_x_bin(k, CY_OP_div, add(k, mul(k, j, z), i), z), j);
  CHECK_INT_EQ(cy_x_bin(k, CY_OP_mod, add(k, mul(k, j, z), in), z), cy_x_bin(k, CY_OP_mod, in, z));
  CHECK_INT_EQ(cy_expr_of(k, cy_x_bin(k, CY_OP_div, mul(k, j, z), z))->op, CY_OP_div);
  cy_expr a = cy_x_var(k, cy_kernel_add_var(k, d(4))), b = cy_x_var(k, cy_kernel_add_var(k, d(6)));
  cy_expr ab = add(k, mulc(k, a, 6), b);
  CHECK_INT_EQ(cy_x_bin(k, CY_OP_div, ab, cy_x_index(k, 6)), a);
  CHECK_INT_EQ(cy_x_bin(k, CY_OP_fmod, ab, cy_x_index(k, 6)), b);
  CHECK_INT_EQ(cy_x_bin(k, CY_OP_div, ab, cy_x_index(k, 24)), cy_x_index(k, 0));
  CHECK_INT_EQ(cy_x_bin(k, CY_OP_mod, ab, cy_x_index(k, 24)), ab);
  /* (6a + b) / 3 = 2a + b / 3, and dividing twice is dividing once */
  cy_expr third = cy_x_bin(k, CY_OP_div, ab, cy_x_index(k, 3));
  CHECK_INT_EQ(third, add(k, mulc(k, a, 2), cy_x_bin(k, CY_OP_div, b, cy_x_index(k, 3))));
  CHECK_INT_EQ(cy_x_bin(k, CY_OP_div, cy_x_bin(k, CY_OP_div, b, cy_x_index(k, 2)), cy_x_index(k, 2)),
               cy_x_bin(k, CY_OP_div, b, cy_x_index(k, 4)));
  CHECK_INT_EQ(cy_x_bin(k, CY_OP_lt, b, cy_x_index(k, 6)), cy_x_int(k, CY_BOOL, 1));
  CHECK_INT_EQ(cy_x_bin(k, CY_OP_ge, add(k, b, cy_x_index(k, -6)), cy_x_index(k, 0)), cy_x_int(k, CY_BOOL, 0));
  CHECK_INT_EQ(cy_x_bin(k, CY_OP_min, b, cy_x_index(k, 5)), b);
  CHECK_INT_EQ(cy_x_bin(k, CY_OP_max, b, cy_x_index(k, 0)), b);
  CHECK_INT_EQ(cy_x_bin(k, CY_OP_lt, j, e), cy_x_int(k, CY_BOOL, 1));
  /* negative dividends: truncation differs from floor, so nothing may be split off */
  cy_expr low = add(k, ab, cy_x_index(k, -7));
  CHECK(cy_x_bin(k, CY_OP_div, low, cy_x_index(k, 6)) != 0);
  cy_expr q = cy_x_bin(k, CY_OP_div, low, cy_x_index(k, 6));
  CHECK_INT_EQ(cy_expr_of(k, q)->op, CY_OP_div);
  /* quotient and remainder become the dividend again, also of a size that is known to be positive only by its loop;
   * not where the dividend may be negative */
  cy_expr five = cy_x_index(k, 5), m = cy_x_bin(k, CY_OP_mod, ab, five), r = cy_x_bin(k, CY_OP_div, ab, five);
  CHECK_INT_EQ(add(k, add(k, mul(k, r, five), j), m), add(k, ab, j));
  CHECK_INT_EQ(mulc(k, add(k, mul(k, r, five), m), 3), mulc(k, ab, 3));
  CHECK(add(k, mulc(k, r, 4), m) != add(k, ab, mulc(k, r, -1)));
  m = cy_x_bin(k, CY_OP_mod, low, five), r = cy_x_bin(k, CY_OP_div, low, five);
  CHECK(add(k, mul(k, r, five), m) != low);
  cy_dim size = cy_dim_addi(g, cy_dim_div(g, n, d(2)), -1), wide = cy_dim_addi(g, cy_dim_muli(g, size, 2), -1);
  cy_expr row = cy_x_var(k, cy_kernel_add_var(k, size)), at = cy_x_var(k, cy_kernel_add_var(k, wide)), by = cy_x_dim(k, size);
  cy_expr shifted = add(k, mul(k, row, cy_x_dim(k, wide)), at);
  m = cy_x_bin(k, CY_OP_mod, shifted, by), r = cy_x_bin(k, CY_OP_div, shifted, by);
  CHECK_INT_EQ(cy_expr_of(k, m)->op, CY_OP_mod);
  CHECK_INT_EQ(add(k, mul(k, r, by), m), shifted);
}

static void test_affine(void) {
  cy_kernel *k = cy_kernel_create(g, "k");
  cy_karg t = cy_kernel_add_arg(k, CY_ARG_READ, CY_I64, 0);
  cy_var vi = cy_kernel_add_var(k, d(4)), vj = cy_kernel_add_var(k, sym("n"));
  cy_expr i = cy_x_var(k, vi), j = cy_x_var(k, vj), gathered = cy_x_load(k, t, j);
  cy_expr e = add(k, add(k, mul(k, i, cy_x_dim(k, sym("n"))), mulc(k, gathered, 3)), add(k, j, cy_x_index(k, 5)));
  cy_affine a;
  CHECK(cy_expr_affine(k, e, &a));
  CHECK_INT_EQ(a.n, 2);
  CHECK_INT_EQ(a.var[0], vi);
  CHECK_INT_EQ(a.coef[0], sym("n"));
  CHECK(cy_dim_is(g, a.coef[1], 1));
  CHECK(cy_dim_is(g, a.base, 5));
  CHECK_INT_EQ(a.rest, mulc(k, gathered, 3));
  CHECK(cy_expr_uses_var(k, e, vj));
  CHECK(!cy_expr_uses_var(k, gathered, vi));
  /* large element data is no dim */
  cy_expr big = add(k, gathered, cy_x_index(k, INT64_MAX));
  CHECK(cy_expr_affine(k, big, &a) && a.rest);
}

/* ---- scheduling ---- */

enum { CASES = 14 };

/* Kernels that merge, reorder, split, vectorise; built twice: once scheduled, once not. */
static cy_kernel *build(int which, int64_t *out_in, int64_t *out_out) {
  cy_kernel *k = cy_kernel_create(g, "k");
  cy_karg x = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0), y = cy_kernel_add_arg(k, CY_ARG_WRITE, CY_F32, 0);
  static const int64_t sizes[CASES][3] = {{3, 5, 7},  {1, 4, 40}, {2, 48, 30}, {6, 1, 4096}, {5, 9, 33},
                                          {5, 9, 33}, {4, 3, 17}, {2, 32, 64}, {2, 3, 256},  {3, 1, 58},
                                          {3, 1, 60}, {5, 2, 32}, {5, 2, 32},  {3, 5, 40}};
  const int64_t *s = sizes[which];
  cy_var v[3];
  cy_expr i[3];
  cy_local l = cy_kernel_add_local(k, CY_F32);
  for (int a = 0; a < 3; a++) {
    v[a] = cy_kernel_add_var(k, d(s[a]));
    i[a] = cy_x_var(k, v[a]);
    if (which != 4 && which != 5)
      cy_kernel_add_grid(k, v[a]);
  }
  cy_expr row = add(k, mulc(k, add(k, mulc(k, i[0], s[1]), i[1]), s[2]), i[2]); /* row-major */
  cy_expr swap = add(k, mulc(k, add(k, mulc(k, i[0], s[2]), i[2]), s[1]), i[1]);
  *out_in = *out_out = s[0] * s[1] * s[2];
  switch (which) {
  case 2:
  case 7:
  case 8: /* transpose */
    cy_kernel_store(k, y, swap, cy_x_load(k, x, row));
    break;
  case 3: /* few long rows, broadcast along the first axis */ cy_kernel_store(k, y, row, cy_x_load(k, x, i[2])); break;
  case 4:
  case 5: { /* reduction over the last (4) or the middle axis (5) */
    cy_var grid = which == 4 ? v[1] : v[2], loop = which == 4 ? v[2] : v[1];
    cy_kernel_add_grid(k, v[0]);
    cy_kernel_add_grid(k, grid);
    cy_kernel_set(k, l, cy_x_const(k, CY_F32, 0));
    cy_kernel_for(k, loop, false);
    cy_kernel_accum(k, l, CY_OP_add, cy_x_load(k, x, row));
    cy_kernel_end(k);
    *out_out = s[0] * (which == 4 ? s[1] : s[2]);
    cy_expr at = add(k, mulc(k, i[0], which == 4 ? s[1] : s[2]), cy_x_var(k, grid));
    cy_kernel_store(k, y, at, cy_x_local(k, l));
    break;
  }
  case 6: /* the index itself is data */
    cy_kernel_store(k, y, row, add(k, cy_x_load(k, x, row), cy_x_cast(k, i[1], CY_F32)));
    break;
  case 9:
  case 10: { /* a shuffle: one divisor (9), or two (10) */
    cy_expr two = cy_x_index(k, 2), inner = cy_x_bin(k, CY_OP_mod, i[2], which == 9 ? two : cy_x_index(k, 3));
    cy_expr from = add(k, mulc(k, inner, which == 9 ? 29 : 10), cy_x_bin(k, CY_OP_div, i[2], two));
    cy_kernel_store(k, y, row, cy_x_load(k, x, add(k, mulc(k, i[0], s[2]), from)));
    break;
  }
  case 11: /* channels become pixels, in rows side by side (11), or so far apart that they compete for cache lines (12) */
  case 12:
  case 13: { /* each channel's become neighbours */
    int64_t far[3] = {s[1], 1, which == 12 ? 1024 : s[0] * s[1]}, near[3] = {s[1] * s[2], 1, s[1]};
    const int64_t *by = which == 13 ? near : far;
    cy_expr transposed = add(k, mulc(k, add(k, mulc(k, i[1], s[0]), i[0]), s[2]), i[2]),
            at = add(k, add(k, mulc(k, i[0], by[0]), mulc(k, i[1], by[1])), mulc(k, i[2], by[2]));
    cy_kernel_store(k, y, at, cy_x_load(k, x, which == 13 ? row : transposed));
    break;
  }
  default: cy_kernel_store(k, y, row, cy_x_un(k, CY_OP_abs, cy_x_load(k, x, row)));
  }
  return k;
}

static void run(cy_kernel *k, float *x, float *y) {
  void *args[2] = {x, y};
  char text[200];
  int64_t *syms = calloc(cy_sym_count(g) + 1, sizeof *syms);
  if (!cy_kernel_verify(k, text, sizeof text))
    CHECK_FAIL("%s", text);
  cy_kernel_interpret(k, args, syms, 0, cy_kernel_tasks_eval(k, syms));
  free(syms);
}

static void test_schedule(void) {
  static float x[40000], y[40000], z[40000];
  for (int i = 0; i < 40000; i++)
    x[i] = (float)(i * 37 % 1001) - 500;
  for (int c = 0; c < CASES; c++) {
    int64_t in, out;
    cy_kernel *plain = build(c, &in, &out), *k = build(c, &in, &out);
    CHECK(cy_kernel_equal(plain, k));
    CHECK(cy_kernel_hash(plain) == cy_kernel_hash(k));
    cy_kernel_schedule(k);
    memset(y, 0x55, sizeof y);
    memset(z, 0x55, sizeof z);
    run(plain, x, y);
    run(k, x, z);
    if (memcmp(y, z, sizeof y)) {
      CHECK_FAIL("case %d differs", c);
      cy_kernel_print(k, stderr);
    }
    if (getenv("CY_LOOP_PRINT"))
      cy_kernel_print(k, stdout);
  }
}

static void test_shapes_of_schedules(void) {
  int64_t in, out;
  cy_kernel *k = build(0, &in, &out); /* contiguous: one axis, all lanes */
  cy_kernel_schedule(k);
  CHECK_INT_EQ(cy_kernel_grid(k, NULL), 1);
  CHECK(cy_kernel_grid_lanes(k));
  CHECK(!cy_kernel_body(k)->next && cy_kernel_body(k)->kind == CY_S_STORE);
  k = build(4, &in, &out); /* rows: lanes along the reduction */
  cy_kernel_schedule(k);
  CHECK_INT_EQ(cy_kernel_grid(k, NULL), 1);
  CHECK(cy_kernel_body(k)->next->kind == CY_S_FOR && cy_kernel_body(k)->next->lanes);
  k = build(5, &in, &out); /* columns: lanes across the outputs */
  cy_kernel_schedule(k);
  CHECK(cy_kernel_body(k)->kind == CY_S_FOR && cy_kernel_body(k)->lanes);
  k = build(6, &in, &out);
  cy_kernel_schedule(k);
  CHECK(cy_kernel_grid(k, NULL) >= 1 && cy_kernel_body(k)->lanes);
  for (int which = 7; which <= 9; which++) { /* lanes along the loads, inside them a loop along the store */
    k = build(which, &in, &out);
    cy_kernel_schedule(k);
    const cy_stmt *lanes = cy_kernel_body(k), *iterations = lanes->body;
    CHECK(lanes->lanes && iterations->kind == CY_S_FOR && !iterations->lanes && iterations->body->kind == CY_S_STORE);
    CHECK(cy_dim_is(g, cy_kernel_var(k, lanes->var)->extent, which == 7 ? 16 : which == 8 ? 128 : 29));
    CHECK(cy_dim_is(g, cy_kernel_var(k, iterations->var)->extent, which == 7 ? 8 : which == 8 ? 3 : 2));
  }
  for (int which = 11; which <= 13; which++) { /* few lanes, the rest of their cache lines coming next; or all */
    k = build(which, &in, &out);
    cy_kernel_schedule(k);
    const cy_var *grid;
    uint32_t n = cy_kernel_grid(k, &grid);
    CHECK_INT_EQ(n, which == 13 ? 1 : 2);
    CHECK(cy_dim_is(g, cy_kernel_var(k, grid[n - 1])->extent, which == 13 ? 3 : 5));
    CHECK(cy_dim_is(g, cy_kernel_var(k, cy_kernel_body(k)->var)->extent, which == 11 ? 16 : which == 12 ? 8 : 40));
  }
}

static void test_cost(void) {
  int64_t in, out, *syms = calloc(cy_sym_count(g) + 1, sizeof *syms);
  cy_cost c = cy_kernel_cost(build(4, &in, &out), syms);
  CHECK_INT_EQ(c.flops, 5 * 9 * 33);
  CHECK_INT_EQ(c.read_bytes, 5 * 9 * 33 * 4);
  CHECK_INT_EQ(c.write_bytes, 5 * 9 * 4);
  c = cy_kernel_cost(build(3, &in, &out), syms); /* a broadcast row counts once */
  CHECK_INT_EQ(c.read_bytes, 4096 * 4);
  free(syms);
}

/* out[b][m][n] = sum of a[b][m][k] * w[k][n]: 3 batches of m rows, 4 columns, depth 5; strides of a and of the output
 * are given. */
static cy_kernel *product(int64_t m, int64_t a_batch, int64_t a_m, int64_t out_batch, int64_t out_m) {
  cy_kernel *k = cy_kernel_create(g, "product");
  cy_contraction *c = cy_kernel_contraction(k);
  c->kind = CY_CONTRACT_MATMUL;
  c->a = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0);
  c->b = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0);
  cy_karg y = cy_kernel_add_arg(k, CY_ARG_WRITE, CY_F32, 0);
  c->b_batch[0] = d(0);
  c->acc = cy_kernel_add_local(k, CY_F32);
  c->nbatch = 1;
  c->batch[0] = d(3);
  c->a_batch[0] = d(a_batch);
  c->m = d(m);
  c->a_m = d(a_m);
  c->n = c->b_k = d(4);
  c->k = d(5);
  c->a_k = c->b_n = d(1);
  const cy_dim extent[3] = {c->batch[0], c->m, c->n};
  const int64_t stride[3] = {out_batch, out_m, 1};
  cy_expr at = cy_x_index(k, 0);
  for (int i = 0; i < 3; i++) {
    c->out_var[c->nout_vars++] = cy_kernel_add_var(k, extent[i]);
    at = add(k, at, mulc(k, cy_x_var(k, c->out_var[i]), stride[i]));
  }
  cy_kernel_store(k, y, at, cy_x_local(k, c->acc));
  return k;
}

static void test_fold_batches(void) {
  enum { M, A_BATCH, A_M, OUT_BATCH, OUT_M, LEFT, ROWS };
  static const int64_t cases[][7] = {
      {2, 10, 5, 8, 4, 0, 6},      /* dense */
      {2, 5, 15, 4, 12, 0, 6},     /* rows outermost */
      {1, 5, 7, 4, 9, 0, 3},       /* one row: its stride means nothing */
      {2, 10, 5, 4, 12, 0, 6},     /* the output crosses: its indices are split again */
      {2, 16, 5, 8, 4, 1, 2},      /* a gap between the batches of A */
      {64, 320, 5, 4, 12, 1, 64},  /* enough rows: not worth splitting indices */
  };
  float a[1024], w[20], want[1024], got[1024];
  for (int i = 0; i < 1024; i++)
    a[i] = (float)(i % 13) - 5;
  for (int i = 0; i < 20; i++)
    w[i] = (float)(i % 7) - 2;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const int64_t *v = cases[i];
    cy_kernel *before = product(v[M], v[A_BATCH], v[A_M], v[OUT_BATCH], v[OUT_M]);
    cy_kernel *k = product(v[M], v[A_BATCH], v[A_M], v[OUT_BATCH], v[OUT_M]);
    cy_kernel_fold_batches(k);
    const cy_contraction *c = cy_kernel_contraction(k);
    CHECK_INT_EQ(c->nbatch, v[LEFT]);
    CHECK_INT_EQ(c->nout_vars, 2 + v[LEFT]);
    CHECK(cy_dim_is(g, c->m, v[ROWS]));
    for (int j = 0; j < 1024; j++)
      want[j] = got[j] = 0;
    void *to_want[] = {a, w, want}, *to_got[] = {a, w, got};
    cy_kernel_interpret(before, to_want, NULL, 0, cy_kernel_tasks_eval(before, NULL));
    cy_kernel_interpret(k, to_got, NULL, 0, cy_kernel_tasks_eval(k, NULL));
    for (int j = 0; j < 1024; j++)
      CHECK(want[j] == got[j]);
  }
}

typedef struct positions {
  int64_t images, height, width, kernel, stride; /* of a 1-pixel convolution unless kernel and stride say otherwise */
  int64_t x_row, out_row, out_image;             /* floats from row to row, image to image; a pixel has 5 in, 4 out */
  int64_t left, rows;                            /* what must come of it: batch axes (-1: still a convolution), rows */
  int64_t tall, pad, axes; /* if tall is not 0: of the kernel's height; above and below; axes that must be left */
  bool planar;             /* channels lie apart; there are no gaps */
} positions;

/* out[n][h][w][o] = sum of x[n][h][w][c] * f[o][c]. */
static cy_kernel *pointwise(const positions *p) {
  cy_kernel *k = cy_kernel_create(g, "pointwise");
  cy_contraction *c = cy_kernel_contraction(k);
  int64_t tall = p->tall ? p->tall : p->kernel, map = p->height * p->width;
  int64_t oh = (p->height + 2 * p->pad - tall) / p->stride + 1, ow = (p->width - p->kernel) / p->stride + 1;
  const cy_dim extent[4] = {d(p->images), d(oh), d(ow), d(4)};
  const int64_t stride[4] = {p->out_image, p->planar ? ow : p->out_row, p->planar ? 1 : 4, p->planar ? oh * ow : 1};
  c->kind = CY_CONTRACT_CONV;
  c->a = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0);
  c->b = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0);
  cy_karg y = cy_kernel_add_arg(k, CY_ARG_WRITE, CY_F32, 0);
  c->acc = cy_kernel_add_local(k, CY_F32);
  c->nspatial = 2;
  c->group = 1;
  c->images = extent[0];
  c->planar = p->planar;
  c->x_image = d(p->planar ? 5 * map : p->x_row * p->height);
  c->x_channel = d(p->planar ? map : 1);
  c->channels_in = d(5);
  c->channels_out = extent[3];
  for (int i = 0; i < 2; i++) {
    c->in[i] = d(i ? p->width : p->height);
    c->out[i] = extent[1 + i];
    c->pad[i] = d(i ? 0 : p->pad);
    c->kernel[i] = i ? p->kernel : tall;
    c->stride[i] = p->stride;
    c->dilation[i] = 1;
    c->x_spatial[i] = d(p->planar ? (i ? 1 : p->width) : i ? 5 : p->x_row);
  }
  cy_expr at = cy_x_index(k, 0);
  static const int orders[2][4] = {{0, 1, 2, 3}, {0, 3, 1, 2}};
  for (int i = 0; i < 4; i++) {
    int axis = orders[p->planar][i];
    c->out_var[c->nout_vars++] = cy_kernel_add_var(k, extent[axis]);
    at = add(k, at, mulc(k, cy_x_var(k, c->out_var[i]), stride[axis]));
  }
  cy_kernel_store(k, y, at, cy_x_local(k, c->acc));
  return k;
}

static void test_positions_join(void) {
  static const struct {
    positions p;
    bool join;
  } cases[] = {
      {{2, 3, 4, 1, 1, 20, 16, 48, 0, 0, 0, 0, 0, false}, true},   /* dense */
      {{2, 3, 4, 1, 1, 23, 16, 48, 0, 0, 0, 0, 0, false}, true},   /* a gap in the input, which is not asked for */
      {{2, 4, 5, 2, 1, 25, 16, 48, 0, 0, 0, 0, 0, false}, true},   /* several taps */
      {{1, 3, 4, 1, 1, 20, 16, 999, 0, 0, 0, 0, 0, false}, true},  /* one image: its stride means nothing */
      {{2, 3, 4, 1, 1, 20, 16, 100, 0, 0, 0, 0, 0, false}, false}, /* a gap between images */
      {{2, 3, 4, 1, 1, 20, 24, 72, 0, 0, 0, 0, 0, false}, false},  /* between rows */
      {{2, 3, 4, 1, 1, 20, 16, 48, 0, 0, 0, 0, 0, true}, false},   /* channels lie apart */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    cy_kernel *k = pointwise(&cases[i].p);
    CHECK_INT_EQ(cy_kernel_positions_join(k), cases[i].join);
    cy_kernel_store(k, 2, cy_x_index(k, 0), cy_x_cast(k, cy_x_var(k, cy_kernel_contraction(k)->out_var[2]), CY_F32));
    CHECK(!cy_kernel_positions_join(k)); /* a value that tells where it is */
  }
}

static void test_fold_positions(void) {
  static const positions cases[] = {
      {2, 3, 4, 1, 1, 20, 16, 48, 0, 24, 0, 0, 0, false},  /* dense: one axis */
      {2, 3, 4, 1, 1, 20, 16, 100, 1, 12, 0, 0, 0, false}, /* a gap between the images of the output */
      {1, 3, 4, 1, 1, 20, 16, 999, 0, 12, 0, 0, 0, false}, /* one image: its stride means nothing */
      {2, 1, 1, 1, 1, 7, 9, 4, 0, 2, 0, 0, 0, false},      /* images of one pixel, with gaps */
      {2, 3, 4, 1, 1, 23, 16, 48, -1, 0, 0, 0, 0, false},  /* a gap between the rows of the input */
      {2, 3, 4, 1, 1, 20, 24, 72, -1, 0, 0, 0, 0, false},  /* of the output */
      {2, 3, 4, 1, 2, 20, 8, 16, -1, 0, 0, 0, 0, false},   /* a stride */
      {2, 3, 4, 2, 1, 20, 12, 24, -1, 0, 0, 0, 0, false},  /* more than a pixel */
      /* a column is one axis, but not one of two pixels, and a row is none that is read by several taps */
      {2, 6, 1, 1, 1, 5, 4, 24, -1, 0, 3, 1, 1, false},
      {2, 6, 1, 1, 2, 5, 4, 12, -1, 0, 3, 1, 1, true},
      {2, 1, 6, 1, 1, 30, 24, 24, -1, 0, 3, 1, 2, false},
      {2, 6, 2, 1, 1, 10, 8, 48, -1, 0, 3, 1, 2, false},
  };
  float x[256], f[80], want[512], got[512];
  for (int i = 0; i < 256; i++)
    x[i] = (float)(i % 13) - 5;
  for (int i = 0; i < 80; i++)
    f[i] = (float)(i % 7) - 2;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const positions *p = &cases[i];
    cy_kernel *before = pointwise(p), *k = pointwise(p);
    cy_kernel_fold_positions(k);
    const cy_contraction *c = cy_kernel_contraction(k);
    CHECK_INT_EQ(c->kind, p->left < 0 ? CY_CONTRACT_CONV : CY_CONTRACT_MATMUL);
    if (p->left >= 0) {
      CHECK_INT_EQ(c->nbatch, p->left);
      CHECK_INT_EQ(c->nout_vars, 2 + p->left);
      CHECK(cy_dim_is(g, c->m, p->rows));
    }
    if (p->axes)
      CHECK_INT_EQ(c->nspatial, p->axes);
    for (int j = 0; j < 512; j++)
      want[j] = got[j] = 0;
    void *to_want[] = {x, f, want}, *to_got[] = {x, f, got};
    cy_kernel_interpret(before, to_want, NULL, 0, cy_kernel_tasks_eval(before, NULL));
    cy_kernel_interpret(k, to_got, NULL, 0, cy_kernel_tasks_eval(k, NULL));
    for (int j = 0; j < 512; j++)
      CHECK(want[j] == got[j]);
  }
}

/* ---- kernels that differ by numbers ---- */

typedef struct clip {
  int64_t n;
  double scale, low, high, by; /* y = cast<u8>(min(max(x * scale, low), high)) + high / by */
  int kept;                    /* index of the kernel that is launched afterwards */
} clip;
static const clip clips[] = {
    {33, 3, -5, 250, 2, 0},
    {33, 0.5, -14, 241, 2, 0},
    {33, 3, -5, 250, 2, 0},
    {33, 2, 0, 250, 2, 1},  /* 0: a bound of its own */
    {33, 3, -5, 250, 4, 2}, /* another divisor: powers of two */
    {34, 3, -5, 250, 2, 3}, /* another size */
    {33, 3, -5, 3e9, 2, 4}, /* beyond what parameters may be */
    {33, 3, -7.5, 250, 2, 5},
    {33, 7, -6.5, 99, 2, 5},   /* bounds that are not whole */
    {33, 0.25, -1, 200, 2, 6}, /* clip_key() keeps it apart */
};
enum { CLIPS = sizeof clips / sizeof *clips, KEPT = 7 };

static cy_kernel *clip_kernel(const clip *c) {
  cy_kernel *k = cy_kernel_create(g, c->scale == 0.25 ? "apart" : "clip");
  cy_karg x = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0), y = cy_kernel_add_arg(k, CY_ARG_WRITE, CY_F32, 0);
  cy_var v = cy_kernel_add_var(k, d(c->n));
  cy_kernel_add_grid(k, v);
  cy_expr high = cy_x_const(k, CY_F32, c->high), at = cy_x_load(k, x, cy_x_var(k, v));
  cy_expr low = cy_x_bin(k, CY_OP_max, mul(k, at, cy_x_const(k, CY_F32, c->scale)), cy_x_const(k, CY_F32, c->low));
  cy_expr shift = cy_x_bin(k, CY_OP_div, at, cy_x_const(k, CY_F32, c->by));
  cy_expr zero = cy_x_bin(k, CY_OP_add, cy_x_cast(k, at, CY_I32), cy_x_int(k, CY_I32, (int64_t)c->low));
  zero = cy_x_cast(k, zero, CY_F32);
  cy_kernel_store(k, y, cy_x_var(k, v), add(k, add(k, cy_x_bin(k, CY_OP_min, low, high), shift), zero));
  return k;
}

static uint64_t clip_key(void *ctx, cy_kernel *k) {
  (void)ctx;
  return strcmp(cy_kernel_name(k), "apart") == 0;
}

static void run_launch(const cy_program *p, const cy_step *s, const float *x, float *y) {
  void *args[8] = {(void *)(uintptr_t)x, y};
  for (uint32_t i = 2; i < s->nbind; i++)
    args[i] = (void *)(uintptr_t)cy_value_of(g, p->constants[p->buffers[s->bind[i].buffer].index].value)->data.bytes;
  cy_kernel_interpret(s->kernel, args, NULL, 0, cy_kernel_tasks_eval(s->kernel, NULL));
}

static void test_share_kernels(void) {
  float x[34], want[CLIPS][34] = {{0}}, got[34] = {0};
  for (int i = 0; i < 34; i++)
    x[i] = (float)(i * 13 % 34) * 9.7f - 100;
  cy_program *p = cy_program_create(g);
  uint32_t in = cy_program_add_buffer(p, CY_BUF_ARENA, 0, d(34 * 4));
  uint32_t out = cy_program_add_buffer(p, CY_BUF_ARENA, 0, d(34 * 4));
  cy_bind bind[CLIPS][2];
  cy_step step[CLIPS], inside = {.kind = CY_STEP_IF, .sym = cy_sym_by_name(g, "n")};
  for (int i = 0; i < CLIPS; i++) {
    bind[i][0] = (cy_bind){in, 0};
    bind[i][1] = (cy_bind){out, 0};
    step[i] = (cy_step){.kind = CY_STEP_LAUNCH, .bind = bind[i], .nbind = 2};
    step[i].kernel = cy_program_intern_kernel(p, clip_kernel(&clips[i]));
    step[i].next = i + 1 < CLIPS && i != 3 ? &step[i + 1] : NULL;
    run_launch(p, &step[i], x, want[i]);
  }
  p->steps = &inside; /* four launches in a branch, the others behind it */
  inside.then_steps = &step[0];
  inside.next = &step[4];
  CHECK_INT_EQ(p->nkernels, CLIPS - 1); /* two are equal as they are */
  cy_program_share_kernels(p, clip_key, NULL);
  CHECK_INT_EQ(p->nkernels, KEPT);
  char why[256] = "";
  if (!cy_program_verify(p, why, sizeof why))
    CHECK_FAIL("%s", why);
  for (int i = 0; i < CLIPS; i++) {
    CHECK(step[i].kernel == p->kernels[clips[i].kept]);
    memset(got, 0, sizeof got);
    run_launch(p, &step[i], x, got);
    CHECK(memcmp(got, want[i], sizeof got) == 0);
  }
  const cy_karg_info *args;
  CHECK_INT_EQ(cy_kernel_args(p->kernels[0], &args), 5); /* bounds; the scale, which is not whole in all; i32 */
  CHECK(args[2].param && args[3].param && args[4].param && args[2].whole + args[3].whole + args[4].whole == 2);
  CHECK_INT_EQ(cy_kernel_args(p->kernels[1], NULL), 2);
}

static void test_verify_program(void) {
  cy_kernel *copy = cy_kernel_create(g, "copy");
  cy_karg x = cy_kernel_add_arg(copy, CY_ARG_READ, CY_F32, d(1)), y = cy_kernel_add_arg(copy, CY_ARG_WRITE, CY_F32, d(1));
  cy_kernel_store(copy, y, cy_x_index(copy, 0), cy_x_load(copy, x, cy_x_index(copy, 0)));
  cy_program *p = cy_program_create(g);
  uint32_t arena = cy_program_add_buffer(p, CY_BUF_ARENA, 0, d(4));
  uint32_t constant = cy_program_add_buffer(p, CY_BUF_CONST, 0, d(4));
  cy_program_add_constant(p, 1, 4, "", NULL, NULL, 1);
  cy_bind bind[2] = {{.buffer = constant}, {.buffer = arena}};
  cy_step step = {.kind = CY_STEP_LAUNCH, .kernel = copy, .bind = bind, .nbind = 2};
  p->steps = &step;
  char why[256] = "";
  CHECK(!cy_program_verify(p, why, sizeof why));
  CHECK_STR_EQ(why, "step 0: launches a kernel that is not the program's");
  step.kernel = cy_program_intern_kernel(p, copy);
  CHECK(cy_program_verify(p, why, sizeof why));
  step.nbind = 1;
  CHECK(!cy_program_verify(p, why, sizeof why));
  CHECK_STR_EQ(why, "step 0: kernel 'copy' has 2 arguments, 1 are bound");
  step.nbind = 2;
  bind[1].buffer = constant;
  CHECK(!cy_program_verify(p, why, sizeof why));
  CHECK_STR_EQ(why, "step 0: kernel 'copy' writes argument 1, bound to an input or constant");
  bind[1].buffer = 9;
  CHECK(!cy_program_verify(p, why, sizeof why));
  CHECK_STR_EQ(why, "step 0: there is no buffer b9");
  bind[1].buffer = arena;
  p->buffers[arena].bytes = 0;
  CHECK(!cy_program_verify(p, why, sizeof why));
  CHECK_STR_EQ(why, "buffer b0 has no size");
}

static const check_test tests[] = {{"folding", test_folding},
                                   {"index", test_index},
                                   {"affine", test_affine},
                                   {"schedule", test_schedule},
                                   {"shapes", test_shapes_of_schedules},
                                   {"cost", test_cost},
                                   {"fold_batches", test_fold_batches},
                                   {"positions_join", test_positions_join},
                                   {"fold_positions", test_fold_positions},
                                   {"share_kernels", test_share_kernels},
                                   {"verify_program", test_verify_program}};

int main(int argc, char **argv) {
  cy_diag_sink *diag = cy_diag_create();
  g = cy_graph_create(diag, "test");
  int failed = check_main(argc, argv, tests, CHECK_COUNT(tests));
  cy_graph_destroy(g);
  cy_diag_destroy(diag);
  return failed;
}
