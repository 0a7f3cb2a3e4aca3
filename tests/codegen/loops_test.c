/* SPDX-License-Identifier: Apache-2.0 */
/* loops_test.c - compiled loop kernels against the interpreter: shapes, strides, reductions, scratch, dtypes, symbolic
 * sizes. */
#include "tests/check.h"
#include "tests/codegen/jit.h"
#include "tests/kernels.h"

static jit *j;

static void test_ops(void) {
  static const cy_dtype types[] = {CY_F32, CY_F64, CY_I8, CY_U16, CY_I32, CY_U64, CY_BOOL, CY_BF16};
  for (int t = 0; t < CHECK_COUNT(types); t++)
    for (cy_op op = CY_OP_neg; op < CY_OP_COUNT; op++) {
      if (!op_applies(op, types[t]))
        continue;
      char what[80];
      snprintf(what, sizeof what, "%s of %s", cy_op_of(op)->name, cy_dtype_of(types[t])->name);
      jit_case c = {.what = what, .elems = {77, 77, 77, 77}, .atol = types[t] == CY_F64 ? 1e-12 : 2e-6};
      c.ints = op_range(op, &c.lo, &c.hi);
      c.rtol = types[t] == CY_BF16 ? 1.6e-2 : 0;
      CHECK_INT_EQ(jit_check(j, flat_kernel(op, types[t], op_result(op, types[t]), 77), &c), 0);
    }
}

static void test_casts(void) {
  for (int a = 0; a < CHECK_COUNT(cast_types); a++)
    for (int b = 0; b < CHECK_COUNT(cast_types); b++) {
      cy_dtype from = cast_types[a], to = cast_types[b];
      char what[80];
      snprintf(what, sizeof what, "cast %s to %s", cy_dtype_of(from)->name, cy_dtype_of(to)->name);
      jit_case c = {.what = what, .elems = {70, 70}, .lo = -600, .hi = 600, .rtol = cast_rtol(from, to)};
      bool hub = from == CY_F32 || to == CY_F32 || from == CY_I64 || to == CY_I32;
      if (a != b && hub) /* all of them would compile for a minute */
        CHECK_INT_EQ(jit_check(j, flat_kernel(CY_OP_cast, from, to, 70), &c), 0);
    }
}

/* Products of words, in whole vectors and behind them, and what is made of such. */
static void test_words(void) {
  static const cy_op ops[] = {CY_OP_mul_q15, CY_OP_logistic_q15};
  for (int i = 0; i < CHECK_COUNT(ops); i++) {
    jit_case c = {.what = cy_op_of(ops[i])->name, .elems = {177, 177, 177, 177}};
    cy_kernel *k = flat_kernel(ops[i], CY_I16, CY_I16, 177);
    cy_kernel_expand_math(k);
    CHECK_INT_EQ(jit_check(j, k, &c), 0);
  }
}

/* Casts to eight-bit floats that let overflow become infinite or NaN, of a wide range. */
static void test_unsaturated(void) {
  static const cy_dtype types[] = {CY_F8E4M3FN, CY_F8E4M3FNUZ, CY_F8E5M2, CY_F8E5M2FNUZ};
  for (size_t t = 0; t < 4; t++)
    for (int saturate = 0; saturate < 2; saturate++) {
      cy_kernel *k = cy_kernel_create(g, "cast");
      cy_karg x = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0), y = cy_kernel_add_arg(k, CY_ARG_WRITE, types[t], 0);
      cy_var i = cy_kernel_add_var(k, d(100));
      cy_kernel_add_grid(k, i);
      cy_kernel_set_grid_lanes(k, true);
      cy_expr v = cy_x_load(k, x, cy_x_var(k, i));
      v = cy_x_select(k, cy_x_bin(k, CY_OP_eq, cy_x_var(k, i), cy_x_index(k, 13)), f32(k, INFINITY), v);
      cy_kernel_store(k, y, cy_x_var(k, i),
                      saturate ? cy_x_cast(k, v, types[t]) : cy_x_cast_unsaturated(k, v, types[t]));
      jit_case c = {
          .what = saturate ? "saturated" : "unsaturated", .elems = {100, 100}, .lo = -1e5, .hi = 1e5, .rtol = 1e-7};
      CHECK_INT_EQ(jit_check(j, k, &c), 0);
    }
}

/* Casts to integers of what they do not hold, and of what they just do. */
static void saturate(cy_dtype from, cy_dtype to, double max) {
  const double odd[] = {NAN, INFINITY, -INFINITY, max, -max, max * (1 - 0x1p-24), 1.5 * max, -1.5 * max};
  cy_kernel *k = cy_kernel_create(g, "cast");
  cy_karg x = cy_kernel_add_arg(k, CY_ARG_READ, from, 0), y = cy_kernel_add_arg(k, CY_ARG_WRITE, to, 0);
  cy_var i = cy_kernel_add_var(k, d(100));
  cy_kernel_add_grid(k, i);
  cy_kernel_set_grid_lanes(k, true);
  cy_expr at = cy_x_var(k, i), v = cy_x_load(k, x, at);
  for (int n = 0; n < CHECK_COUNT(odd); n++)
    v = cy_x_select(k, cy_x_bin(k, CY_OP_eq, at, cy_x_index(k, 5 * n)), cy_x_const(k, from, odd[n]), v);
  cy_kernel_store(k, y, at, cy_x_cast(k, v, to));
  jit_case c = {.what = "saturation", .elems = {100, 100}, .lo = -2 * max, .hi = 2 * max};
  CHECK_INT_EQ(jit_check(j, k, &c), 0);
}

static void test_saturation(void) {
  saturate(CY_F32, CY_I32, 0x1p31);
  saturate(CY_F32, CY_I64, 0x1p63);
  saturate(CY_F64, CY_I64, 0x1p63);
}

/* y[i] = x[i * i mod 97], everywhere or where i mod 3 is not 0: elsewhere the offset lies outside of x. */
static void test_scattered(void) {
  static const cy_dtype types[] = {CY_F32, CY_I32, CY_F64, CY_I64};
  for (int n = 0; n < 2 * CHECK_COUNT(types); n++) {
    cy_dtype t = types[n / 2];
    cy_kernel *k = cy_kernel_create(g, "scattered");
    cy_karg x = cy_kernel_add_arg(k, CY_ARG_READ, t, 0), y = cy_kernel_add_arg(k, CY_ARG_WRITE, t, 0);
    cy_var i = cy_kernel_add_var(k, d(100));
    cy_kernel_add_grid(k, i);
    cy_kernel_set_grid_lanes(k, true);
    cy_expr at = cy_x_var(k, i), v, zero = cy_x_index(k, 0);
    cy_expr from = cy_x_bin(k, CY_OP_mod, cy_x_bin(k, CY_OP_mul, at, at), cy_x_index(k, 97));
    if (n % 2 == 0) {
      v = cy_x_load(k, x, from);
    } else {
      cy_expr other = cy_x_bin(k, CY_OP_ne, cy_x_bin(k, CY_OP_mod, at, cy_x_index(k, 3)), zero);
      from = cy_x_select(k, other, from, cy_x_index(k, (int64_t)1 << 40));
      cy_expr none = cy_dtype_is_float(t) ? cy_x_const(k, t, 7) : cy_x_int(k, t, 7);
      v = cy_x_select(k, other, cy_x_load(k, x, from), none);
    }
    cy_kernel_store(k, y, at, v);
    jit_case c = {.what = "scattered", .elems = {97, 100}, .lo = 0, .hi = 100};
    CHECK_INT_EQ(jit_check(j, k, &c), 0);
  }
}

/* y[i][c] = x[i][at[c], clamped], from rows of all lengths around those of whole vectors. */
static void test_tables(void) {
  static const int64_t sizes[] = {1, 2, 7, 8, 9, 16, 17, 24, 25, 31, 32, 33, 48, 49, 63, 64, 65, 200};
  static const cy_dtype types[] = {CY_F32, CY_I32, CY_F64, CY_I16};
  for (int n = 0; n < 8 * CHECK_COUNT(sizes); n++) {
    int64_t size = sizes[n / 8];
    cy_dtype t = types[n / 2 % 4], narrow = n % 2 ? CY_I32 : CY_I64;
    cy_kernel *k = cy_kernel_create(g, "table");
    cy_karg x = cy_kernel_add_arg(k, CY_ARG_READ, t, 0), at = cy_kernel_add_arg(k, CY_ARG_READ, narrow, 0);
    cy_karg y = cy_kernel_add_arg(k, CY_ARG_WRITE, t, 0);
    cy_var i = cy_kernel_add_var(k, d(3)), c = cy_kernel_add_var(k, d(103));
    cy_kernel_add_grid(k, i);
    cy_kernel_for(k, c, true);
    cy_expr from = cy_x_load(k, at, var(k, c));
    from = cy_x_bin(k, CY_OP_max, from, cy_x_int(k, narrow, 0));
    from = cy_x_cast(k, cy_x_bin(k, CY_OP_min, from, cy_x_int(k, narrow, size - 1)), CY_I64);
    cy_kernel_store(k, y, sum(k, idx(k, i, 103), var(k, c)), cy_x_load(k, x, sum(k, idx(k, i, size), from)));
    cy_kernel_end(k);
    jit_case q = {.what = "table", .elems = {3 * size, 103, 309}, .lo = -3, .hi = (double)size + 3};
    CHECK_INT_EQ(jit_check(j, k, &q), 0);
  }
}

/* What a quantize becomes, with the bounds of u8 and others, behind a load of bytes that a condition common to all
 * lanes guards; with NaN, infinities and what no i32 holds among the values. */
static void test_rounding(void) {
  static const struct {
    cy_dtype to;
    double low, high;
    int64_t zero;
  } forms[] = {
      {CY_U8, 0, 255, 0}, {CY_U8, -3, 252, 3}, {CY_U8, 0, 200, 0}, {CY_I8, -128, 127, 0}, {CY_I8, -118, 137, -10}};
  static const double odd[] = {NAN, INFINITY, -INFINITY, 1e30, -1e30, 254.5, 255.5, -0.5};
  for (size_t m = 0; m < CHECK_COUNT(forms) * CHECK_COUNT(odd); m++) {
    size_t n = m % CHECK_COUNT(forms);
    cy_kernel *k = cy_kernel_create(g, "round");
    cy_karg x = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0), y = cy_kernel_add_arg(k, CY_ARG_READ, CY_U8, 0);
    cy_karg to = cy_kernel_add_arg(k, CY_ARG_WRITE, forms[n].to, 0);
    cy_var r = cy_kernel_add_var(k, d(3)), i = cy_kernel_add_var(k, d(150));
    cy_kernel_add_grid(k, r);
    cy_kernel_for(k, i, true);
    cy_expr at = cy_x_bin(k, CY_OP_add, cy_x_bin(k, CY_OP_mul, cy_x_var(k, r), cy_x_index(k, 150)), cy_x_var(k, i));
    cy_expr v = cy_x_load(k, x, at), first = cy_x_bin(k, CY_OP_gt, cy_x_var(k, r), cy_x_index(k, 0));
    v = cy_x_select(k, cy_x_bin(k, CY_OP_eq, cy_x_var(k, i), cy_x_index(k, 13)), f32(k, odd[m / CHECK_COUNT(forms)]),
                    v);
    v = cy_x_bin(k, CY_OP_min, cy_x_bin(k, CY_OP_max, v, f32(k, forms[n].low)), f32(k, forms[n].high));
    v = cy_x_cast(k, cy_x_un(k, CY_OP_round, v), CY_I32);
    if (forms[n].zero)
      v = cy_x_bin(k, CY_OP_add, v, cy_x_int(k, CY_I32, forms[n].zero));
    v = cy_x_cast(k, v, forms[n].to);
    if (forms[n].to == CY_U8)
      v = cy_x_bin(k, CY_OP_max, v, cy_x_select(k, first, cy_x_load(k, y, at), cy_x_int(k, CY_U8, 0)));
    cy_kernel_store(k, to, at, v);
    cy_kernel_end(k);
    jit_case c = {.what = "rounding", .elems = {450, 450, 450}, .lo = -300, .hi = 500};
    CHECK_INT_EQ(jit_check(j, k, &c), 0);
  }
}

/* A whole number that is clamped: two roundings, one of a zero point known only at run time. */
static void test_whole(void) {
  cy_kernel *k = cy_kernel_create(g, "whole");
  cy_karg x = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0), zero = cy_kernel_add_arg(k, CY_ARG_READ, CY_U8, 0);
  cy_karg to = cy_kernel_add_arg(k, CY_ARG_WRITE, CY_U8, 0);
  cy_var i = cy_kernel_add_var(k, d(150));
  cy_kernel_add_grid(k, i);
  cy_kernel_set_grid_lanes(k, true);
  cy_expr at = cy_x_var(k, i), v = cy_x_un(k, CY_OP_round, cy_x_load(k, x, at));
  v = cy_x_select(k, cy_x_bin(k, CY_OP_eq, at, cy_x_index(k, 13)), f32(k, NAN), v);
  v = cy_x_bin(k, CY_OP_add, cy_x_un(k, CY_OP_round, v), cy_x_cast(k, cy_x_load(k, zero, cy_x_index(k, 0)), CY_F32));
  v = cy_x_bin(k, CY_OP_min, cy_x_bin(k, CY_OP_max, v, f32(k, 0)), f32(k, 255));
  cy_kernel_store(k, to, at, cy_x_cast(k, cy_x_cast(k, v, CY_I32), CY_U8));
  jit_case c = {.what = "whole numbers", .elems = {150, 1, 150}, .lo = -300, .hi = 500};
  CHECK_INT_EQ(jit_check(j, k, &c), 0);
}

/* Products of pairs in every width of vectors, of an h that all lanes share or each has its own of; extremes included. */
static void test_pairs(void) {
  static const int64_t wide[] = {64, 83, 16, 8, 5};
  for (size_t m = 0; m < 2 * CHECK_COUNT(wide); m++) {
    int64_t n = wide[m / 2], depth = 7;
    bool shared = m % 2;
    cy_kernel *k = cy_kernel_create(g, "pairs");
    cy_karg w = cy_kernel_add_arg(k, CY_ARG_READ, CY_I16, 0), h = cy_kernel_add_arg(k, CY_ARG_READ, CY_I32, 0);
    cy_karg to = cy_kernel_add_arg(k, CY_ARG_WRITE, CY_I32, 0);
    cy_var i = cy_kernel_add_var(k, d(n)), s = cy_kernel_add_var(k, d(depth));
    cy_local sum = cy_kernel_add_local(k, CY_I32);
    cy_kernel_for(k, i, true);
    cy_kernel_set(k, sum, cy_x_int(k, CY_I32, 0));
    cy_kernel_for(k, s, false);
    cy_expr at = cy_x_bin(k, CY_OP_add, cy_x_bin(k, CY_OP_mul, cy_x_var(k, s), cy_x_index(k, n)), cy_x_var(k, i));
    cy_expr first = cy_x_bin(k, CY_OP_eq, cy_x_var(k, s), cy_x_index(k, 0));
    cy_expr pair = cy_x_bin(k, CY_OP_shl, cy_x_load(k, h, shared ? cy_x_var(k, s) : at), cy_x_int(k, CY_I32, 1));
    cy_expr bytes = cy_x_select(k, first, cy_x_int(k, CY_I16, -32640), cy_x_load(k, w, at)); /* -128 twice */
    pair = cy_x_select(k, first, cy_x_int(k, CY_I32, INT32_MIN + 0x7fff), pair);
    cy_expr from_w, from_h, e = cy_x_pairs(k, bytes, pair);
    CHECK(cy_x_is_pairs(k, e, &from_w, &from_h) && from_w == bytes && from_h == pair);
    cy_kernel_accum(k, sum, CY_OP_add, e);
    cy_kernel_end(k);
    cy_kernel_store(k, to, cy_x_var(k, i), cy_x_local(k, sum));
    cy_kernel_end(k);
    jit_case c = {.what = "pairs", .elems = {n * depth, shared ? depth : n * depth, n}};
    CHECK_INT_EQ(jit_check(j, k, &c), 0);
  }
}

/* Quotients and rests of vectors: of all pairs of bytes, and of numbers of every size, the least one by -1 and divisors
 * 0 included. */
static void test_division(void) {
  static const cy_dtype types[] = {CY_I8, CY_U8, CY_I16, CY_U16, CY_I32, CY_U32, CY_I64};
  static const cy_op ops[] = {CY_OP_div, CY_OP_mod, CY_OP_fmod};
  enum { DOT2 = 1 << 16 };
  for (size_t m = 0; m < CHECK_COUNT(types) * CHECK_COUNT(ops); m++) {
    cy_dtype t = types[m / CHECK_COUNT(ops)];
    int bits = cy_dtype_of(t)->bits;
    cy_kernel *k = cy_kernel_create(g, "division");
    cy_karg x = cy_kernel_add_arg(k, CY_ARG_READ, t, 0), to = cy_kernel_add_arg(k, CY_ARG_WRITE, t, 0);
    cy_var i = cy_kernel_add_var(k, d(DOT2));
    cy_kernel_add_grid(k, i);
    cy_kernel_set_grid_lanes(k, true);
    cy_expr at = cy_x_var(k, i), a = at, b = cy_x_bin(k, CY_OP_shr, at, cy_x_index(k, 8));
    if (bits > 8) { /* random bits, of which b has fewer and fewer */
      a = cy_x_load(k, x, at);
      cy_expr by = cy_x_cast(k, cy_x_bin(k, CY_OP_mod, at, cy_x_index(k, bits)), t);
      b = cy_x_bin(k, CY_OP_shr, cy_x_load(k, x, cy_x_bin(k, CY_OP_sub, cy_x_index(k, DOT2 - 1), at)), by);
      cy_expr odd = cy_x_bin(k, CY_OP_eq, cy_x_bin(k, CY_OP_mod, at, cy_x_index(k, 5)), cy_x_index(k, 0));
      a = cy_x_select(k, odd, cy_x_int(k, t, cy_dtype_of(t)->cls == 'I' ? (int64_t)(UINT64_MAX << (bits - 1)) : -1), a);
    }
    cy_kernel_store(k, to, at, cy_x_bin(k, ops[m % CHECK_COUNT(ops)], cy_x_cast(k, a, t), cy_x_cast(k, b, t)));
    char what[80];
    snprintf(what, sizeof what, "%s of %s", cy_op_of(ops[m % CHECK_COUNT(ops)])->name, cy_dtype_of(t)->name);
    jit_case c = {.what = what, .elems = {DOT2, DOT2}};
    CHECK_INT_EQ(jit_check(j, k, &c), 0);
  }
}

static void test_strides(void) {
  for (int s = 0; s < CHECK_COUNT(strides); s++) {
    jit_case q = {.what = "strides", .elems = {9 * 80, strides[s].columns, 9 * strides[s].columns}};
    CHECK_INT_EQ(jit_check(j, strides_kernel(&strides[s]), &q), 0);
  }
}

static void test_crossings(void) {
  for (int i = 0; i < CHECK_COUNT(crossings); i++) {
    const crossing *c = &crossings[i];
    jit_case q = {.what = "crossing", .elems = {3 * c->iterations * c->columns * c->load, 3 * c->columns * c->step}};
    CHECK_INT_EQ(jit_check(j, crossing_kernel(c), &q), 0);
  }
}

static void test_reduce(void) {
  for (int n = 0; n < 6 * 6 * 2; n++) {
    cy_op op = reduce_ops[n / 12];
    cy_dtype t = reduce_types[n / 2 % 6];
    jit_case q = {.what = "reduce", .elems = {11 * 123, 11}, .rtol = 1e-4, .atol = t == CY_F64 ? 1e-12 : 2e-5};
    if (reduce_applies(op, t))
      CHECK_INT_EQ(jit_check(j, reduce_kernel(op, t, 123, n % 2), &q), 0);
  }
}

static void test_softmax(void) {
  cy_sym cols = cy_sym_by_name(g, "cols"), rows = cy_sym_by_name(g, "rows");
  static const int64_t sizes[] = {1, 3, 8, 31, 64, 197};
  for (int s = 0; s < CHECK_COUNT(sizes); s++) {
    int64_t *syms = calloc(cy_sym_count(g) + 1, sizeof *syms);
    syms[cols] = sizes[s];
    syms[rows] = 13;
    jit_case q = {.what = "softmax", .elems = {13 * sizes[s], 13 * sizes[s]}, .syms = syms, .rtol = 1e-5};
    CHECK_INT_EQ(jit_check(j, softmax_kernel(cy_dim_sym(g, rows), cy_dim_sym(g, cols), false), &q), 0);
    free(syms);
  }
}

static void test_index(void) {
  jit_case q = {.what = "index", .elems = {150, 50, 250, 250}};
  CHECK_INT_EQ(jit_check(j, index_kernel(), &q), 0);
}

static void test_window(void) {
  jit_case q = {.what = "window", .elems = {120, 6 * 19}};
  CHECK_INT_EQ(jit_check(j, window_kernel(), &q), 0);
}

static const check_test tests[] = {
    {"rounding", test_rounding},
    {"strides", test_strides},
    {"reduce", test_reduce},
    {"softmax", test_softmax},
    {"index", test_index},
    {"window", test_window},
    {"casts", test_casts},
    {"words", test_words},
    {"ops", test_ops},
    {"unsaturated", test_unsaturated},
    {"saturation", test_saturation},
    {"crossings", test_crossings},
    {"whole", test_whole},
    {"pairs", test_pairs},
    {"division", test_division},
    {"scattered", test_scattered},
    {"tables", test_tables},
};

int main(int argc, char **argv) { return jit_main(argc, argv, tests, CHECK_COUNT(tests), &g, &j); }
