/* SPDX-License-Identifier: Apache-2.0 */
/* loop_expr.c - operations in kernels: the constructors that simplify, and rewriting by them.
 *
 * In: operands that are expressions of the same kernel. Out: the id of an equal or simpler expression. Constants fold
 * through cy_scalar_eval(), so a folded kernel computes exactly what the interpreter would. Only value-preserving rules
 * live here: x + 0.0 is kept (it turns -0 into +0), x - 0.0 and x * 1.0 go. Index arithmetic (i64) is normalised in
 * loop_index.c. To know before editing: every rule must return something no larger than what it replaces, or rewriting
 * may not end.
 */
#include "ir/ir_int.h"
#include "loop_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- operations ---- */

static bool is_const(const cy_kernel *k, cy_expr e) { return cy_expr_of(k, e)->op == CY_X_CONST; }

/* A numeric constant equal to v; for floats bit for bit, so that 0 is not -0. */
static bool is_value(const cy_kernel *k, cy_expr e, double v) {
  const cy_expr_info *x = cy_expr_of(k, e);
  if (x->op != CY_X_CONST)
    return false;
  if (cy_dtype_is_float(x->dtype))
    return memcmp(&x->c.f, &v, sizeof v) == 0;
  return x->c.i == (int64_t)v;
}

static bool is_op(const cy_kernel *k, cy_expr e, cy_op op) { return cy_expr_of(k, e)->op == op; }

static cy_dtype in_dtype(const cy_kernel *k, cy_op op, const cy_expr *a) {
  return cy_expr_of(k, a[op == CY_OP_select ? 1 : 0])->dtype;
}

static cy_expr fold(cy_kernel *k, cy_op op, cy_dtype dtype, const cy_expr *a, int n) {
  cy_scalar v[3];
  for (int i = 0; i < n; i++) {
    if (!is_const(k, a[i]))
      return 0;
    v[i] = cy_expr_of(k, a[i])->c;
  }
  return cy_x_scalar(k, dtype, cy_scalar_eval(op, in_dtype(k, op, a), dtype, v));
}

/* x ^ 0.5 is infinite for -inf and +0 for -0, where the square root is NaN and -0. */
static cy_expr root_of(cy_kernel *k, cy_expr x) {
  cy_dtype t = cy_expr_of(k, x)->dtype;
  cy_expr low = cy_x_bin(k, CY_OP_eq, x, cy_x_const(k, t, -INFINITY)), root = cy_x_un(k, CY_OP_sqrt, x);
  return cy_x_select(k, low, cy_x_const(k, t, INFINITY), cy_x_un(k, CY_OP_abs, root));
}

/* x ^ constant by multiplication and square root. */
static cy_expr pow_const(cy_kernel *k, cy_expr x, cy_expr e) {
  cy_dtype t = cy_expr_of(k, x)->dtype;
  cy_expr one = cy_x_int(k, t, 1), half = 0;
  if (is_value(k, e, 0))
    return one;
  if (is_value(k, e, 1))
    return x;
  if (is_value(k, e, 2))
    return cy_x_bin(k, CY_OP_mul, x, x);
  if (is_value(k, e, 3))
    return cy_x_bin(k, CY_OP_mul, cy_x_bin(k, CY_OP_mul, x, x), x);
  if (!cy_dtype_is_float(t))
    return 0;
  if (is_value(k, e, -1))
    return cy_x_bin(k, CY_OP_div, one, x);
  if (is_value(k, e, -2))
    return cy_x_bin(k, CY_OP_div, one, cy_x_bin(k, CY_OP_mul, x, x));
  if (is_value(k, e, 0.5) || is_value(k, e, -0.5))
    half = root_of(k, x);
  return half && is_value(k, e, -0.5) ? cy_x_bin(k, CY_OP_div, one, half) : half;
}

static cy_expr simplify_binary(cy_kernel *k, cy_op op, cy_expr a, cy_expr b) {
  cy_dtype t = cy_expr_of(k, a)->dtype;
  bool is_float = cy_dtype_is_float(t), is_bool = t == CY_BOOL;
  switch (op) {
  case CY_OP_add:
    if (is_value(k, b, is_float ? -0.0 : 0))
      return a;
    return is_value(k, a, is_float ? -0.0 : 0) ? b : 0;
  case CY_OP_sub:
    if (is_value(k, b, 0))
      return a;
    return !is_float && a == b ? cy_x_int(k, t, 0) : 0;
  case CY_OP_mul:
    if (is_value(k, b, 1))
      return a;
    if (is_value(k, a, 1))
      return b;
    return !is_float && (is_value(k, a, 0) || is_value(k, b, 0)) ? cy_x_int(k, t, 0) : 0;
  case CY_OP_div: return is_value(k, b, 1) ? a : 0;
  case CY_OP_min:
  case CY_OP_max: return a == b ? a : 0;
  case CY_OP_and:
  case CY_OP_or:
    if (a == b)
      return a;
    for (int i = 0; is_bool && i < 2; i++) {
      cy_expr c = i ? a : b, x = i ? b : a;
      if (is_const(k, c))
        return (cy_expr_of(k, c)->c.i != 0) == (op == CY_OP_and) ? x : c;
    }
    return 0;
  case CY_OP_shl:
  case CY_OP_shr: return is_value(k, b, 0) ? a : 0;
  case CY_OP_pow: return pow_const(k, a, b);
  case CY_OP_eq:
  case CY_OP_le:
  case CY_OP_ge: return !is_float && a == b ? cy_x_int(k, CY_BOOL, 1) : 0;
  case CY_OP_ne:
  case CY_OP_lt:
  case CY_OP_gt: return !is_float && a == b ? cy_x_int(k, CY_BOOL, 0) : 0;
  default: return 0;
  }
}

static cy_expr simplify(cy_kernel *k, cy_op op, const cy_expr *a) {
  if (op == CY_OP_select) {
    if (a[1] == a[2])
      return a[1];
    if (is_op(k, a[0], CY_OP_not))
      return cy_x_select(k, cy_expr_of(k, a[0])->arg[0], a[2], a[1]);
    return is_const(k, a[0]) ? a[cy_expr_of(k, a[0])->c.i ? 1 : 2] : 0;
  }
  if (op == CY_OP_neg || op == CY_OP_not) /* twice is nothing */
    return is_op(k, a[0], op) ? cy_expr_of(k, a[0])->arg[0] : 0;
  return cy_op_of(op)->min_in == 2 ? simplify_binary(k, op, a[0], a[1]) : 0;
}

/* pow alone takes an exponent of another dtype: the wider arithmetic of the two is used. */
static cy_expr pow_mixed(cy_kernel *k, cy_expr a, cy_expr b) {
  cy_dtype ta = cy_expr_of(k, a)->dtype, tb = cy_expr_of(k, b)->dtype;
  if (cy_dtype_is_float(tb) && !cy_dtype_is_float(ta))
    return cy_x_cast(k, cy_x_bin(k, CY_OP_pow, cy_x_cast(k, a, tb), b), ta);
  return cy_x_bin(k, CY_OP_pow, a, cy_x_cast(k, b, ta));
}

cy_expr cy_x_op(cy_kernel *k, cy_op op, cy_dtype dtype, const cy_expr *args, int n) {
  if (!cy_op_is_ew(op) || n < 1 || n > 3 || n < cy_op_of(op)->min_in)
    cy_bug("kernel '%s': '%s' of %d operands", k->name, op < CY_OP_COUNT ? cy_op_of(op)->name : "?", n);
  if (op == CY_OP_cast)
    return cy_x_cast(k, args[0], dtype);
  if (op == CY_OP_pow && cy_expr_of(k, args[0])->dtype != cy_expr_of(k, args[1])->dtype)
    return pow_mixed(k, args[0], args[1]);
  cy_expr a[3] = {0};
  memcpy(a, args, sizeof *a * (size_t)n);
  if (cy_op_of(op)->commutative && is_const(k, a[0]) && !is_const(k, a[1])) {
    a[0] = args[1];
    a[1] = args[0];
  }
  cy_expr e = fold(k, op, dtype, a, n);
  if (!e)
    e = simplify(k, op, a);
  if (!e && in_dtype(k, op, a) == CY_I64)
    e = cy_index_op(k, op, a);
  return e ? e : cy_expr_raw(k, op, dtype, a, n);
}

cy_expr cy_x_un(cy_kernel *k, cy_op op, cy_expr a) {
  return cy_x_op(k, op, cy_op_of(op)->gives_bool ? CY_BOOL : (cy_dtype)cy_expr_of(k, a)->dtype, &a, 1);
}

cy_expr (cy_x_bin)(cy_kernel *k, cy_op op, cy_expr a, cy_expr b) {
  cy_dtype ta = cy_expr_of(k, a)->dtype, tb = cy_expr_of(k, b)->dtype;
  if (op == CY_OP_pow && ta != tb)
    return pow_mixed(k, a, b);
  if (ta != tb)
    cy_bug("kernel '%s': '%s' of %s and %s", k->name, cy_op_of(op)->name, cy_dtype_of(ta)->name, cy_dtype_of(tb)->name);
  cy_expr args[2] = {a, b};
  return cy_x_op(k, op, cy_op_of(op)->gives_bool ? CY_BOOL : ta, args, 2);
}

cy_expr (cy_x_select)(cy_kernel *k, cy_expr c, cy_expr a, cy_expr b) {
  cy_expr args[3] = {c, a, b};
  return cy_x_op(k, CY_OP_select, cy_expr_of(k, a)->dtype, args, 3);
}

/* A select with an id: of the other sides, or those turned round where `turns` allows it. */
static cy_expr select_kind(cy_kernel *k, cy_expr c, cy_expr a, cy_expr b, uint32_t id, bool turns) {
  cy_expr e = cy_x_select(k, c, a, b);
  cy_expr_info x = *cy_expr_of(k, e);
  bool own = x.op == CY_OP_select && ((x.arg[1] == a && x.arg[2] == b) || (turns && x.arg[1] == b && x.arg[2] == a));
  if (!own) /* one of the sides, which may be a select itself */
    return e;
  x.id = id;
  return cy_expr_intern(k, &x);
}

cy_expr cy_x_select_either(cy_kernel *k, cy_expr c, cy_expr a, cy_expr b) {
  return select_kind(k, c, a, b, CY_SELECT_EITHER, true);
}

cy_expr cy_x_select_rare(cy_kernel *k, cy_expr c, cy_expr a, cy_expr b) {
  return select_kind(k, c, a, b, CY_SELECT_RARE, false);
}

/* Does every value of `from` exist in `to`? */
static bool widens(cy_dtype from, cy_dtype to) {
  const cy_dtype_info *f = cy_dtype_of(from), *t = cy_dtype_of(to);
  if (f->cls == 'F')
    return t->cls == 'F' && (to == CY_F64 || (to == CY_F32 && f->bits < 32));
  if (f->cls == 'B')
    return t->cls == 'I' || t->cls == 'U' || t->cls == 'F';
  if (t->cls == 'F')
    return (to == CY_F64 && f->bits <= 32) || (to == CY_F32 && f->bits <= 16);
  return t->bits > f->bits && (f->cls == 'U' || t->cls == 'I');
}

cy_expr cy_x_cast(cy_kernel *k, cy_expr a, cy_dtype dtype) {
  const cy_expr_info *x = cy_expr_of(k, a);
  if (x->dtype == dtype)
    return a;
  if (x->op == CY_X_CONST)
    return fold(k, CY_OP_cast, dtype, &a, 1);
  if (x->op == CY_OP_cast) { /* through a type that loses nothing */
    cy_expr inner = x->arg[0];
    cy_dtype t = cy_expr_of(k, inner)->dtype;
    if (widens(t, x->dtype) && (t == dtype || (!cy_dtype_is_float(t) && !cy_dtype_is_float(x->dtype))))
      return cy_x_cast(k, inner, dtype);
  }
  return cy_expr_raw(k, CY_OP_cast, dtype, &a, 1);
}

cy_expr cy_x_cast_unsaturated(cy_kernel *k, cy_expr a, cy_dtype dtype) {
  const cy_expr_info *x = cy_expr_of(k, a);
  bool eight = cy_dtype_is_float(dtype) && cy_dtype_of(dtype)->bits == 8;
  if (!eight || x->dtype == dtype)
    return cy_x_cast(k, a, dtype);
  if (x->op == CY_X_CONST)
    return cy_x_scalar(k, dtype, cy_scalar_convert(x->dtype, dtype, x->c, false));
  cy_expr_info cast = {.op = CY_OP_cast, .dtype = (uint8_t)dtype, .n = 1, .arg = {a}, .id = 1};
  return cy_expr_intern(k, &cast);
}

/* ---- pairs ---- */

cy_expr cy_x_pairs(cy_kernel *k, cy_expr w, cy_expr h) {
  cy_expr low_w = cy_x_cast(k, cy_x_cast(k, w, CY_I8), CY_I32), low_h = cy_x_cast(k, cy_x_cast(k, h, CY_I16), CY_I32);
  cy_expr high_w = cy_x_cast(k, cy_x_bin(k, CY_OP_shr, w, cy_x_int(k, CY_I16, 8)), CY_I32);
  cy_expr high_h = cy_x_bin(k, CY_OP_shr, h, cy_x_int(k, CY_I32, 16));
  return cy_x_bin(k, CY_OP_add, cy_x_bin(k, CY_OP_mul, low_w, low_h), cy_x_bin(k, CY_OP_mul, high_w, high_h));
}

/* The operand of e, an operation of this kind and dtype with, as a second operand, this number (of a unary one: 0). */
static cy_expr under(const cy_kernel *k, cy_expr e, cy_op op, cy_dtype dtype, int64_t second) {
  const cy_expr_info *x = e ? cy_expr_of(k, e) : NULL;
  if (!x || x->op != op || x->dtype != dtype)
    return 0;
  const cy_expr_info *c = x->n > 1 ? cy_expr_of(k, x->arg[1]) : NULL;
  return (!c && !second) || (c && c->op == CY_X_CONST && c->c.i == second) ? x->arg[0] : 0;
}

bool cy_x_is_pairs(const cy_kernel *k, cy_expr e, cy_expr *out_w, cy_expr *out_h) {
  const cy_expr_info *sum = cy_expr_of(k, e), *low, *high;
  if (sum->op != CY_OP_add || sum->dtype != CY_I32)
    return false;
  low = cy_expr_of(k, sum->arg[0]);
  high = cy_expr_of(k, sum->arg[1]);
  if (low->op != CY_OP_mul || high->op != CY_OP_mul)
    return false;
  cy_expr w = under(k, under(k, low->arg[0], CY_OP_cast, CY_I32, 0), CY_OP_cast, CY_I8, 0);
  cy_expr h = under(k, under(k, low->arg[1], CY_OP_cast, CY_I32, 0), CY_OP_cast, CY_I16, 0);
  *out_w = w;
  *out_h = h;
  return w && h && cy_expr_of(k, w)->dtype == CY_I16 && cy_expr_of(k, h)->dtype == CY_I32 &&
         under(k, under(k, high->arg[0], CY_OP_cast, CY_I32, 0), CY_OP_shr, CY_I16, 8) == w &&
         under(k, high->arg[1], CY_OP_shr, CY_I32, 16) == h;
}

/* ---- rewriting ---- */

cy_expr cy_expr_rewrite(cy_kernel *k, cy_expr e, cy_rewrite *r) {
  if (e < r->n && r->memo[e])
    return r->memo[e];
  const cy_expr_info x = *cy_expr_of(k, e);
  cy_expr out = r->leaf ? r->leaf(k, e, r->ctx) : 0;
  if (!out && x.n) {
    cy_expr a[3] = {0};
    for (int i = 0; i < x.n; i++)
      a[i] = cy_expr_rewrite(k, x.arg[i], r);
    out = r->op ? r->op(k, &x, a) : 0;
    if (!out && x.op == CY_OP_cast && x.id)
      out = cy_x_cast_unsaturated(k, a[0], x.dtype);
    if (!out && x.op == CY_OP_select && x.id)
      out = (x.id == CY_SELECT_RARE ? cy_x_select_rare : cy_x_select_either)(k, a[0], a[1], a[2]);
    if (!out)
      out = x.op == CY_X_LOAD ? cy_x_load(k, x.id, a[0]) : cy_x_op(k, x.op, x.dtype, a, x.n);
  }
  if (!out)
    out = e;
  if (e < r->n)
    r->memo[e] = out;
  return out;
}
