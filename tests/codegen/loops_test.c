/* loops_test.c - compiled loop kernels against the interpreter: shapes, strides, reductions, scratch, dtypes, symbolic
 * sizes. */
#include "tests/check.h"
#include "tests/codegen/jit.h"

static cy_graph *g;
static jit *j;

static cy_dim d(int64_t v) { return cy_dim_const(g, v); }
static cy_expr idx(cy_kernel *k, cy_var v, int64_t stride) {
  return cy_x_bin(k, CY_OP_mul, cy_x_var(k, v), cy_x_index(k, stride));
}
static cy_expr sum(cy_kernel *k, cy_expr a, cy_expr b) { return cy_x_bin(k, CY_OP_add, a, b); }
static cy_expr f32(cy_kernel *k, double v) { return cy_x_const(k, CY_F32, v); }

/* out[i] = op(x[i], ..) over n elements, lanes along the only grid variable. */
static cy_kernel *flat_kernel(cy_op op, cy_dtype in, cy_dtype out, int64_t n) {
  cy_kernel *k = cy_kernel_create(g, "flat");
  int nin = cy_op_of(op)->min_in;
  cy_expr a[3];
  cy_var i = cy_kernel_add_var(k, d(n));
  cy_kernel_add_grid(k, i);
  cy_kernel_set_grid_lanes(k, true);
  for (int q = 0; q < nin; q++) {
    bool cond = op == CY_OP_select && q == 0;
    cy_karg arg = cy_kernel_add_arg(k, CY_ARG_READ, cond ? CY_BOOL : in, 0);
    a[q] = cy_x_load(k, arg, cy_x_var(k, i));
  }
  cy_karg y = cy_kernel_add_arg(k, CY_ARG_WRITE, out, 0);
  cy_expr v = op == CY_OP_cast ? cy_x_cast(k, a[0], out) : cy_x_op(k, op, out, a, nin);
  cy_kernel_store(k, y, cy_x_var(k, i), v);
  return k;
}

static bool is_test(cy_op op) { return op == CY_OP_isnan || op == CY_OP_isinf || (op >= CY_OP_eq && op <= CY_OP_ge); }

static void test_ops(void) {
  static const cy_dtype types[] = {CY_F32, CY_F64, CY_I8, CY_U16, CY_I32, CY_U64, CY_BOOL, CY_BF16};
  for (size_t t = 0; t < sizeof types / sizeof *types; t++)
    for (cy_op op = CY_OP_neg; op <= CY_OP_fma; op++) {
      bool real = cy_dtype_is_float(types[t]), math = op >= CY_OP_sqrt && op <= CY_OP_sigmoid;
      if (op == CY_OP_cast || op == CY_OP_bitcast || (math && !real) || (op == CY_OP_not && real) ||
          (op >= CY_OP_and && op <= CY_OP_shr && real) || (types[t] == CY_BOOL && op < CY_OP_and && op != CY_OP_not))
        continue;
      if (types[t] == CY_BOOL && (op == CY_OP_shl || op == CY_OP_shr || op == CY_OP_fma))
        continue;
      char what[80];
      snprintf(what, sizeof what, "%s of %s", cy_op_of(op)->name, cy_dtype_of(types[t])->name);
      jit_case c = {.what = what, .elems = {77, 77, 77, 77}, .atol = real && types[t] == CY_F64 ? 1e-12 : 2e-6};
      if (op == CY_OP_shl || op == CY_OP_shr || op == CY_OP_pow || op == CY_OP_div || op == CY_OP_mod ||
          op == CY_OP_fmod) {
        c.ints = true;
        c.lo = op == CY_OP_shl || op == CY_OP_shr ? 0 : -4;
        c.hi = op == CY_OP_shl || op == CY_OP_shr ? 70 : 5;
      }
      if (types[t] == CY_F16 || types[t] == CY_BF16) {
        c.rtol = types[t] == CY_F16 ? 2e-3 : 1.6e-2; /* modulo amplifies: keep clear of it */
        if (op == CY_OP_mod || op == CY_OP_fmod || op == CY_OP_pow || op == CY_OP_tan)
          continue;
      }
      CHECK_INT_EQ(jit_check(j, flat_kernel(op, types[t], is_test(op) ? CY_BOOL : types[t], 77), &c), 0);
    }
}

static void test_casts(void) {
  static const cy_dtype types[] = {CY_F32,    CY_F64,      CY_I8,         CY_U8,     CY_I16,        CY_U16,
                                   CY_I32,    CY_U32,      CY_I64,        CY_U64,    CY_BOOL,       CY_F16,
                                   CY_BF16,   CY_F8E4M3FN, CY_F8E4M3FNUZ, CY_F8E5M2, CY_F8E5M2FNUZ, CY_F4E2M1,
                                   CY_F8E8M0, CY_U4,       CY_I4,         CY_U2,     CY_I2};
  size_t n = sizeof types / sizeof *types;
  for (size_t a = 0; a < n; a++)
    for (size_t b = 0; b < n; b++) {
      char what[80];
      snprintf(what, sizeof what, "cast %s to %s", cy_dtype_of(types[a])->name, cy_dtype_of(types[b])->name);
      jit_case c = {.what = what, .elems = {70, 70}, .lo = -600, .hi = 600, .rtol = 1e-7};
      bool hub = types[a] == CY_F32 || types[b] == CY_F32 || types[a] == CY_I64 || types[b] == CY_I32;
      if (a == b || !hub) /* all of them would compile for a minute */
        continue;
      if (cy_dtype_of(types[a])->bits == 64) /* rounding twice differs by an ulp */
        c.rtol = types[b] == CY_F16 ? 1e-3 : types[b] == CY_BF16 ? 8e-3 : c.rtol;
      CHECK_INT_EQ(jit_check(j, flat_kernel(CY_OP_cast, types[a], types[b], 70), &c), 0);
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

/* y[i][c] = x[i * xs0 + c * xs1] + b[c]; grid i, lanes c */
static void test_strides(void) {
  static const int64_t strides[][2] = {{37, 1}, {1, 9}, {74, 2}, {37, -1}, {0, 1}, {37, 0}};
  for (size_t s = 0; s < sizeof strides / sizeof *strides; s++) {
    cy_kernel *k = cy_kernel_create(g, "strides");
    cy_karg x = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0), b = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0);
    cy_karg y = cy_kernel_add_arg(k, CY_ARG_WRITE, CY_F32, 0);
    cy_var i = cy_kernel_add_var(k, d(9)), c = cy_kernel_add_var(k, d(37));
    cy_kernel_add_grid(k, i);
    cy_kernel_for(k, c, true);
    cy_expr at = sum(k, idx(k, i, strides[s][0]), idx(k, c, strides[s][1]));
    if (strides[s][1] < 0)
      at = sum(k, at, cy_x_index(k, 36));
    cy_expr v = sum(k, cy_x_load(k, x, at), cy_x_load(k, b, cy_x_var(k, c)));
    cy_kernel_store(k, y, sum(k, idx(k, i, 37), cy_x_var(k, c)), v);
    cy_kernel_end(k);
    jit_case q = {.what = "strides", .elems = {9 * 74, 37, 9 * 37}};
    CHECK_INT_EQ(jit_check(j, k, &q), 0);
  }
}

/* y[i] = op over c of x[i][c], lanes along the reduction, or across outputs (column sums). */
static void test_reduce(void) {
  static const cy_op ops[] = {CY_OP_add, CY_OP_mul, CY_OP_min, CY_OP_max, CY_OP_and, CY_OP_or};
  static const cy_dtype types[] = {CY_F32, CY_F64, CY_I32, CY_I64, CY_U8, CY_BOOL};
  for (size_t o = 0; o < 6; o++)
    for (size_t t = 0; t < 6; t++)
      for (int columns = 0; columns < 2; columns++) {
        if ((o > 3 && t < 2) || (types[t] == CY_BOOL && o < 4))
          continue;
        cy_kernel *k = cy_kernel_create(g, "reduce");
        cy_karg x = cy_kernel_add_arg(k, CY_ARG_READ, types[t], 0), y = cy_kernel_add_arg(k, CY_ARG_WRITE, types[t], 0);
        cy_var i = cy_kernel_add_var(k, d(11)), c = cy_kernel_add_var(k, d(123));
        cy_local l = cy_kernel_add_local(k, types[t]);
        cy_kernel_add_grid(k, i);
        cy_kernel_set_grid_lanes(k, columns);
        cy_kernel_set(k, l, cy_x_int(k, types[t], ops[o] == CY_OP_mul || ops[o] == CY_OP_and));
        cy_kernel_for(k, c, !columns);
        cy_expr at = sum(k, idx(k, i, columns ? 1 : 123), idx(k, c, columns ? 11 : 1));
        cy_kernel_accum(k, l, ops[o], cy_x_load(k, x, at));
        cy_kernel_end(k);
        cy_kernel_store(k, y, cy_x_var(k, i), cy_x_local(k, l));
        jit_case q = {
            .what = "reduce", .elems = {11 * 123, 11}, .rtol = 1e-4, .atol = types[t] == CY_F64 ? 1e-12 : 2e-5};
        CHECK_INT_EQ(jit_check(j, k, &q), 0);
      }
}

/* softmax of rows of a symbolic length, exponentials kept in scratch. */
static void test_softmax(void) {
  cy_dim n = cy_dim_sym(g, cy_sym_by_name(g, "cols")), rows = cy_dim_sym(g, cy_sym_by_name(g, "rows"));
  static const int64_t sizes[] = {1, 3, 8, 31, 64, 197};
  for (size_t s = 0; s < 6; s++) {
    cy_kernel *k = cy_kernel_create(g, "softmax");
    cy_karg x = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0), y = cy_kernel_add_arg(k, CY_ARG_WRITE, CY_F32, 0);
    cy_karg e = cy_kernel_add_arg(k, CY_ARG_SCRATCH, CY_F32, n);
    cy_var i = cy_kernel_add_var(k, rows), c = cy_kernel_add_var(k, n);
    cy_local top = cy_kernel_add_local(k, CY_F32), total = cy_kernel_add_local(k, CY_F32);
    cy_expr at = sum(k, cy_x_bin(k, CY_OP_mul, cy_x_var(k, i), cy_x_dim(k, n)), cy_x_var(k, c));
    cy_kernel_add_grid(k, i);
    cy_kernel_set(k, top, f32(k, -INFINITY));
    cy_kernel_for(k, c, true);
    cy_kernel_accum(k, top, CY_OP_max, cy_x_load(k, x, at));
    cy_kernel_end(k);
    cy_kernel_set(k, total, f32(k, 0));
    cy_kernel_for(k, c, true);
    cy_expr v = cy_x_un(k, CY_OP_exp, cy_x_bin(k, CY_OP_sub, cy_x_load(k, x, at), cy_x_local(k, top)));
    cy_kernel_store(k, e, cy_x_var(k, c), v);
    cy_kernel_accum(k, total, CY_OP_add, v);
    cy_kernel_end(k);
    cy_kernel_for(k, c, true);
    cy_kernel_store(k, y, at, cy_x_bin(k, CY_OP_div, cy_x_load(k, e, cy_x_var(k, c)), cy_x_local(k, total)));
    cy_kernel_end(k);
    int64_t *syms = calloc(cy_sym_count(g) + 1, sizeof *syms);
    syms[cy_sym_by_name(g, "cols")] = sizes[s];
    syms[cy_sym_by_name(g, "rows")] = 13;
    jit_case q = {.what = "softmax", .elems = {13 * sizes[s], 13 * sizes[s]}, .syms = syms, .rtol = 1e-5};
    CHECK_INT_EQ(jit_check(j, k, &q), 0);
    free(syms);
  }
}

/* pad: loads only inside; gather by i64 indices; a scatter-like store with a stride. */
static void test_index(void) {
  cy_kernel *k = cy_kernel_create(g, "index");
  cy_karg x = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0), at = cy_kernel_add_arg(k, CY_ARG_READ, CY_I64, 0);
  cy_karg y = cy_kernel_add_arg(k, CY_ARG_WRITE, CY_F32, 0), z = cy_kernel_add_arg(k, CY_ARG_WRITE, CY_F32, 0);
  cy_var i = cy_kernel_add_var(k, d(5)), c = cy_kernel_add_var(k, d(50));
  cy_kernel_add_grid(k, i);
  cy_kernel_for(k, c, true);
  cy_expr vc = cy_x_var(k, c), src = sum(k, vc, cy_x_index(k, -7));
  cy_expr inside = cy_x_bin(k, CY_OP_and, cy_x_bin(k, CY_OP_ge, src, cy_x_index(k, 0)),
                            cy_x_bin(k, CY_OP_lt, src, cy_x_index(k, 30)));
  cy_expr padded = cy_x_select(k, inside, cy_x_load(k, x, sum(k, idx(k, i, 30), src)), f32(k, 7));
  cy_kernel_store(k, y, sum(k, idx(k, i, 50), vc), sum(k, padded, f32(k, 1)));
  cy_expr where = cy_x_bin(k, CY_OP_mod, cy_x_load(k, at, vc), cy_x_index(k, 30));
  cy_expr taken = cy_x_load(k, x, sum(k, idx(k, i, 30), where));
  cy_kernel_store(k, z, sum(k, idx(k, i, 1), idx(k, c, 5)), taken);
  cy_kernel_end(k);
  jit_case q = {.what = "index", .elems = {150, 50, 250, 250}};
  CHECK_INT_EQ(jit_check(j, k, &q), 0);
}

/* A 2 x 2 maximum window with an if around it, unit i. */
static void test_window(void) {
  cy_kernel *k = cy_kernel_create(g, "window");
  cy_karg x = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0), y = cy_kernel_add_arg(k, CY_ARG_WRITE, CY_F32, 0);
  cy_var i = cy_kernel_add_var(k, d(6)), c = cy_kernel_add_var(k, d(19)), a = cy_kernel_add_var(k, d(2)),
         b = cy_kernel_add_var(k, d(2));
  cy_local m = cy_kernel_add_local(k, CY_F32);
  cy_kernel_add_grid(k, i);
  cy_kernel_for(k, c, true);
  cy_kernel_set(k, m, f32(k, -INFINITY));
  cy_kernel_for(k, a, false);
  cy_kernel_for(k, b, false);
  cy_expr row = sum(k, cy_x_var(k, i), cy_x_var(k, a));
  cy_kernel_if(k, cy_x_bin(k, CY_OP_lt, row, cy_x_index(k, 6)));
  cy_expr at = sum(k, cy_x_bin(k, CY_OP_mul, row, cy_x_index(k, 20)), sum(k, cy_x_var(k, c), cy_x_var(k, b)));
  cy_kernel_accum(k, m, CY_OP_max, cy_x_load(k, x, at));
  cy_kernel_else(k);
  cy_kernel_accum(k, m, CY_OP_max, f32(k, 0.25));
  cy_kernel_end(k);
  cy_kernel_end(k);
  cy_kernel_end(k);
  cy_kernel_store(k, y, sum(k, idx(k, i, 19), cy_x_var(k, c)), cy_x_local(k, m));
  cy_kernel_end(k);
  jit_case q = {.what = "window", .elems = {120, 6 * 19}};
  CHECK_INT_EQ(jit_check(j, k, &q), 0);
}

static const check_test tests[] = {
    {"strides", test_strides}, {"reduce", test_reduce}, {"softmax", test_softmax}, {"index", test_index},
    {"window", test_window},   {"casts", test_casts},   {"ops", test_ops},         {"unsaturated", test_unsaturated},
};

int main(int argc, char **argv) {
  cy_diag_sink *diag = cy_diag_create();
  g = cy_graph_create(diag, "test");
  j = jit_create("native");
  int failed = check_main(argc, argv, tests, CHECK_COUNT(tests));
  jit_destroy(j);
  cy_graph_destroy(g);
  cy_diag_destroy(diag);
  return failed;
}
