/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h - small loop kernels that every target is tested with: element-wise ops and casts, strides, reductions,
 * softmax through scratch, gathered and padded indices, windows.
 *
 * The CPU's tests run them compiled, the CUDA tests behind the shim, in NVRTC and on devices; each compares with the
 * interpreter. Kernels are built in the graph `g`, which the test program makes. How many elements an argument has, is
 * said at each builder. Test programs are single files, so everything is here.
 */
#ifndef CY_TESTS_KERNELS_H
#define CY_TESTS_KERNELS_H

#include "ir/loop/loop.h"

#include <math.h>

static cy_graph *g;

static inline cy_dim d(int64_t v) { return cy_dim_const(g, v); }
static inline cy_expr var(cy_kernel *k, cy_var v) { return cy_x_var(k, v); }
static inline cy_expr idx(cy_kernel *k, cy_var v, int64_t stride) {
  return cy_x_bin(k, CY_OP_mul, var(k, v), cy_x_index(k, stride));
}
static inline cy_expr sum(cy_kernel *k, cy_expr a, cy_expr b) { return cy_x_bin(k, CY_OP_add, a, b); }
static inline cy_expr f32(cy_kernel *k, double v) { return cy_x_const(k, CY_F32, v); }

/* ---- element-wise ---- */

/* All types that casts know. */
static const cy_dtype cast_types[] = {CY_F32,    CY_F64,      CY_I8,         CY_U8,     CY_I16,        CY_U16,
                                      CY_I32,    CY_U32,      CY_I64,        CY_U64,    CY_BOOL,       CY_F16,
                                      CY_BF16,   CY_F8E4M3FN, CY_F8E4M3FNUZ, CY_F8E5M2, CY_F8E5M2FNUZ, CY_F4E2M1,
                                      CY_F8E8M0, CY_U4,       CY_I4,         CY_U2,     CY_I2,
                                      CY_F6E2M3, CY_F6E3M2};

/* Rounding to f32 on the way differs by an ulp. */
static inline double cast_rtol(cy_dtype from, cy_dtype to) {
  return cy_dtype_of(from)->bits < 64 ? 1e-7 : to == CY_F16 ? 1e-3 : to == CY_BF16 ? 8e-3 : 1e-7;
}

/* Is op of type t worth a case? Modulo and its like amplify the rounding of 16-bit floats. */
static inline bool op_applies(cy_op op, cy_dtype t) {
  const cy_op_info *o = cy_op_of(op);
  bool real = cy_dtype_is_float(t), tests = o->gives_bool; /* isnan of integers is false */
  if (!cy_op_is_ew(op) || o->typed || (o->of_floats && !tests && !real) || (o->of_integers && real))
    return false;
  if (op == CY_OP_mul_q15 || op == CY_OP_logistic_q15)
    return op == CY_OP_mul_q15 && t == CY_I16; /* the other never gets into code: see loop_math.c */
  if (t == CY_BOOL)
    return (o->of_integers && op != CY_OP_shl && op != CY_OP_shr) || (tests && !o->of_floats) || op == CY_OP_select;
  return !(t == CY_F16 || t == CY_BF16) || (op != CY_OP_mod && op != CY_OP_fmod && op != CY_OP_pow && op != CY_OP_tan);
}

static inline cy_dtype op_result(cy_op op, cy_dtype t) { return cy_op_of(op)->gives_bool ? CY_BOOL : t; }

/* Must inputs, integers too, be in a range of their own? */
static inline bool op_range(cy_op op, double *out_lo, double *out_hi) {
  bool shift = op == CY_OP_shl || op == CY_OP_shr;
  if (!shift && op != CY_OP_pow && op != CY_OP_div && op != CY_OP_mod && op != CY_OP_fmod)
    return false;
  *out_lo = shift ? 0 : -4;
  *out_hi = shift ? 70 : 5;
  return true;
}

/* out[i] = op(x[i], ..) over n elements, lanes along the only grid variable. */
static inline cy_kernel *flat_kernel(cy_op op, cy_dtype in, cy_dtype out, int64_t n) {
  cy_kernel *k = cy_kernel_create(g, "flat");
  int nin = cy_op_of(op)->min_in;
  cy_expr a[3];
  cy_var i = cy_kernel_add_var(k, d(n));
  cy_kernel_add_grid(k, i);
  cy_kernel_set_grid_lanes(k, true);
  for (int q = 0; q < nin; q++) {
    cy_karg arg = cy_kernel_add_arg(k, CY_ARG_READ, op == CY_OP_select && q == 0 ? CY_BOOL : in, 0);
    a[q] = cy_x_load(k, arg, var(k, i));
  }
  cy_karg y = cy_kernel_add_arg(k, CY_ARG_WRITE, out, 0);
  cy_kernel_store(k, y, var(k, i), op == CY_OP_cast ? cy_x_cast(k, a[0], out) : cy_x_op(k, op, out, a, nin));
  return k;
}

/* ---- loops ---- */

/* Of the input along rows and columns; how many columns. */
typedef struct stride_row {
  int64_t row, column, columns;
} stride_row;

static const stride_row strides[] = {{37, 1, 37}, {1, 9, 37}, {74, 2, 37}, {37, -1, 37}, {0, 1, 37},  {37, 0, 37},
                                     {40, 1, 40}, {1, 9, 40}, {37, 1, 36}, {80, 2, 40},  {48, 1, 40}, {40, 0, 40}};

/* y[i][c] = x[i * row + c * column] + b[c]: a lane loop that is the whole body. 9 * 80, columns, 9 * columns elements. */
static inline cy_kernel *strides_kernel(const stride_row *s) {
  cy_kernel *k = cy_kernel_create(g, "strides");
  cy_karg x = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0), b = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0);
  cy_karg y = cy_kernel_add_arg(k, CY_ARG_WRITE, CY_F32, 0);
  cy_var i = cy_kernel_add_var(k, d(9)), c = cy_kernel_add_var(k, d(s->columns));
  cy_kernel_add_grid(k, i);
  cy_kernel_for(k, c, true);
  cy_expr at = sum(k, idx(k, i, s->row), idx(k, c, s->column));
  if (s->column < 0)
    at = sum(k, at, cy_x_index(k, s->columns - 1));
  cy_kernel_store(k, y, sum(k, idx(k, i, s->columns), var(k, c)),
                  sum(k, cy_x_load(k, x, at), cy_x_load(k, b, var(k, c))));
  cy_kernel_end(k);
  return k;
}

static const cy_op reduce_ops[] = {CY_OP_add, CY_OP_mul, CY_OP_min, CY_OP_max, CY_OP_and, CY_OP_or};
static const cy_dtype reduce_types[] = {CY_F32, CY_F64, CY_I32, CY_I64, CY_U8, CY_BOOL};

static inline bool reduce_applies(cy_op op, cy_dtype t) {
  return op >= CY_OP_and ? !cy_dtype_is_float(t) : t != CY_BOOL;
}

/* y[i] = op over c of x[i][c], lanes along the reduction, or across the outputs. 11 * length, 11 elements. */
static inline cy_kernel *reduce_kernel(cy_op op, cy_dtype t, int64_t length, bool columns) {
  cy_kernel *k = cy_kernel_create(g, "reduce");
  cy_karg x = cy_kernel_add_arg(k, CY_ARG_READ, t, 0), y = cy_kernel_add_arg(k, CY_ARG_WRITE, t, 0);
  cy_var i = cy_kernel_add_var(k, d(11)), c = cy_kernel_add_var(k, d(length));
  cy_local l = cy_kernel_add_local(k, t);
  cy_kernel_add_grid(k, i);
  cy_kernel_set_grid_lanes(k, columns);
  cy_kernel_set(k, l, cy_x_int(k, t, op == CY_OP_mul || op == CY_OP_and));
  cy_kernel_for(k, c, !columns);
  cy_kernel_accum(k, l, op, cy_x_load(k, x, sum(k, idx(k, i, columns ? 1 : length), idx(k, c, columns ? 11 : 1))));
  cy_kernel_end(k);
  cy_kernel_store(k, y, var(k, i), cy_x_local(k, l));
  return k;
}

/* Softmax of rows of n, exponentials kept in scratch and read in the order of writing or, mirrored, by another thread
 * than wrote them. rows * n elements each. */
static inline cy_kernel *softmax_kernel(cy_dim rows, cy_dim n, bool mirrored) {
  cy_kernel *k = cy_kernel_create(g, "softmax");
  cy_karg x = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0), y = cy_kernel_add_arg(k, CY_ARG_WRITE, CY_F32, 0);
  cy_karg e = cy_kernel_add_arg(k, CY_ARG_SCRATCH, CY_F32, n);
  cy_var i = cy_kernel_add_var(k, rows), c = cy_kernel_add_var(k, n);
  cy_local top = cy_kernel_add_local(k, CY_F32), total = cy_kernel_add_local(k, CY_F32);
  cy_expr at = sum(k, cy_x_bin(k, CY_OP_mul, var(k, i), cy_x_dim(k, n)), var(k, c)), from = var(k, c);
  if (mirrored)
    from = cy_x_bin(k, CY_OP_sub, cy_x_bin(k, CY_OP_sub, cy_x_dim(k, n), cy_x_index(k, 1)), from);
  cy_kernel_add_grid(k, i);
  cy_kernel_set(k, top, f32(k, -INFINITY));
  cy_kernel_for(k, c, true);
  cy_kernel_accum(k, top, CY_OP_max, cy_x_load(k, x, at));
  cy_kernel_end(k);
  cy_kernel_set(k, total, f32(k, 0));
  cy_kernel_for(k, c, true);
  cy_expr v = cy_x_un(k, CY_OP_exp, cy_x_bin(k, CY_OP_sub, cy_x_load(k, x, at), cy_x_local(k, top)));
  cy_kernel_store(k, e, var(k, c), v);
  cy_kernel_accum(k, total, CY_OP_add, v);
  cy_kernel_end(k);
  cy_kernel_for(k, c, true);
  cy_kernel_store(k, y, at, cy_x_bin(k, CY_OP_div, cy_x_load(k, e, from), cy_x_local(k, total)));
  cy_kernel_end(k);
  return k;
}

/* y[(row * columns + i) * step + j] = x[(row * turns + j) * columns * load + i * load] + i for 3 rows, columns i as
 * lanes, turns j in a loop inside them: 3 * turns * columns * load, 3 * columns * step elements. */
typedef struct crossing {
  cy_dtype type;
  int64_t columns, iterations, step, load;
} crossing;
static const crossing crossings[] = {
    {CY_F32, 21, 2, 2, 1}, {CY_F32, 16, 3, 3, 1},    {CY_F32, 21, 3, 12, 2},  {CY_I32, 19, 4, 4, 1},
    {CY_F32, 8, 5, 6, 1},  {CY_F32, 40, 8, 8, 1},    {CY_F32, 13, 19, 19, 2}, {CY_F32, 5, 3, 3, 1},
    {CY_F64, 21, 3, 3, 2}, {CY_U8, 70, 3, 3, 2},     {CY_U8, 64, 2, 2, 1},    {CY_I8, 37, 4, 4, 1},
    {CY_U8, 20, 3, 4, 1},  {CY_U8, 16, 5, 5, 1},     {CY_U8, 64, 16, 40, 1},  {CY_I8, 35, 21, 33, 2},
    {CY_U8, 9, 16, 16, 1}, {CY_I16, 37, 13, 13, 1},  {CY_U16, 16, 8, 19, 2},  {CY_F16, 24, 8, 19, 1},
    {CY_F16, 21, 3, 3, 1}, {CY_BF16, 40, 16, 17, 1}, {CY_F32, 48, 32, 32, 1}, {CY_F16, 64, 64, 64, 1},
};
static inline cy_kernel *crossing_kernel(const crossing *c) {
  cy_kernel *k = cy_kernel_create(g, "crossing");
  cy_karg x = cy_kernel_add_arg(k, CY_ARG_READ, c->type, 0), y = cy_kernel_add_arg(k, CY_ARG_WRITE, c->type, 0);
  cy_var row = cy_kernel_add_var(k, d(3)), i = cy_kernel_add_var(k, d(c->columns)),
         j = cy_kernel_add_var(k, d(c->iterations));
  cy_kernel_add_grid(k, row);
  cy_expr from = sum(k, idx(k, row, c->iterations * c->columns * c->load), idx(k, j, c->columns * c->load));
  cy_expr to = sum(k, idx(k, row, c->columns * c->step), idx(k, i, c->step));
  cy_kernel_for(k, i, true);
  cy_kernel_for(k, j, false);
  cy_expr v = cy_x_load(k, x, sum(k, from, idx(k, i, c->load)));
  cy_kernel_store(k, y, sum(k, to, var(k, j)), sum(k, v, cy_x_cast(k, var(k, i), c->type)));
  cy_kernel_end(k);
  cy_kernel_end(k);
  return k;
}

/* Loads that only happen inside of a select, gathered indices, a strided store. 150, 50, 250, 250 elements. */
static inline cy_kernel *index_kernel(void) {
  cy_kernel *k = cy_kernel_create(g, "index");
  cy_karg x = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0), at = cy_kernel_add_arg(k, CY_ARG_READ, CY_I64, 0);
  cy_karg y = cy_kernel_add_arg(k, CY_ARG_WRITE, CY_F32, 0), z = cy_kernel_add_arg(k, CY_ARG_WRITE, CY_F32, 0);
  cy_var i = cy_kernel_add_var(k, d(5)), c = cy_kernel_add_var(k, d(50));
  cy_kernel_add_grid(k, i);
  cy_kernel_for(k, c, true);
  cy_expr vc = var(k, c), src = sum(k, vc, cy_x_index(k, -7));
  cy_expr inside = cy_x_bin(k, CY_OP_and, cy_x_bin(k, CY_OP_ge, src, cy_x_index(k, 0)),
                            cy_x_bin(k, CY_OP_lt, src, cy_x_index(k, 30)));
  cy_expr padded = cy_x_select(k, inside, cy_x_load(k, x, sum(k, idx(k, i, 30), src)), f32(k, 7));
  cy_kernel_store(k, y, sum(k, idx(k, i, 50), vc), sum(k, padded, f32(k, 1)));
  cy_expr where = cy_x_bin(k, CY_OP_mod, cy_x_load(k, at, vc), cy_x_index(k, 30));
  cy_kernel_store(k, z, sum(k, var(k, i), idx(k, c, 5)), cy_x_load(k, x, sum(k, idx(k, i, 30), where)));
  cy_kernel_end(k);
  return k;
}

/* A 2 x 2 maximum window, rows behind the last being 0.25. 120, 6 * 19 elements. */
static inline cy_kernel *window_kernel(void) {
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
  cy_expr row = sum(k, var(k, i), var(k, a));
  cy_expr at = sum(k, cy_x_bin(k, CY_OP_mul, row, cy_x_index(k, 20)), sum(k, var(k, c), var(k, b)));
  cy_expr inside = cy_x_bin(k, CY_OP_lt, row, cy_x_index(k, 6));
  cy_kernel_accum(k, m, CY_OP_max, cy_x_select(k, inside, cy_x_load(k, x, at), f32(k, 0.25)));
  cy_kernel_end(k);
  cy_kernel_end(k);
  cy_kernel_store(k, y, sum(k, idx(k, i, 19), var(k, c)), cy_x_local(k, m));
  cy_kernel_end(k);
  return k;
}

#endif
