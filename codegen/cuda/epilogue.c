/* SPDX-License-Identifier: Apache-2.0 */
/* epilogue.c - what a convolution or product does with its accumulators, as libraries of NVIDIA can be told it.
 *
 * In:  a kernel whose epilogue is one store, and who knows how tensors lie like the output (conv.c, product.c).
 * Out: the cyrt_cuda_epilogue, bias and residual of a cyrt_cuda_problem. Activations are found by how they are spelled in
 *      runtime/cuda/activations.def. Values may be rounded between the steps where the model says so and are not by a library:
 *      it is as precise or more.
 */
#include "codegen/cuda/matrix/contract_int.h"
#include "runtime/cuda/cublaslt_numbers.h"
#include "runtime/cuda/cuda_problem.h"
#include "runtime/cuda/cudnn_numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *spelled;
  bool library[CY_LIBRARIES]; /* has it */
} activations[CYRT_ACTIVATIONS] = {
#define ACTIVATION(name, mode, p, q, epilogue, ours)                                                                   \
  {ours,                                                                                                               \
   {[CY_LIBRARY_CUDNN] = CUDNN_##mode != CUDNN_NONE || CYRT_ACTIVATION_##name == CYRT_ACTIVATION_NONE,                 \
    [CY_LIBRARY_CUBLASLT] = LT_EPILOGUE_##epilogue != LT_EPILOGUE_NONE}},
#include "runtime/cuda/activations.def"
#undef ACTIVATION
};

/* ---- activations by their spelling ---- */

typedef struct spelling {
  const cy_kernel *k;
  cy_expr x;   /* 0: not met yet */
  double p, q; /* NaN: not met yet */
} spelling;

static const char *past_spaces(const char *t) { return t + strspn(t, " "); }

/* Behind the operand that begins here. */
static const char *behind(const char *t) {
  int open = 0;
  t = past_spaces(t);
  do {
    open += (*t == '(') - (*t == ')');
    t += *t == '(' || *t == ')' ? 1 : strcspn(t, " ()|");
    t = open ? past_spaces(t) : t;
  } while (open);
  return t;
}

static cy_expr without_casts(const cy_kernel *k, cy_expr e) {
  const cy_expr_info *x = cy_expr_of(k, e);
  while (x->op == CY_OP_cast && cy_cu_is_float(x->dtype) && cy_cu_is_float(cy_expr_of(k, x->arg[0])->dtype)) {
    e = x->arg[0];
    x = cy_expr_of(k, e);
  }
  return e;
}

/* A number, or p or q. Models of halves have rounded ones. */
static bool number_fits(spelling *s, const char *t, cy_expr e) {
  const cy_expr_info *x = cy_expr_of(s->k, e);
  double *named = *t == 'p' ? &s->p : *t == 'q' ? &s->q : NULL, wanted = named ? *named : strtod(t, NULL);
  if (x->op != CY_X_CONST || !cy_cu_is_float(x->dtype))
    return false;
  if (isnan(wanted))
    wanted = *named = x->c.f;
  return fabs(x->c.f - wanted) <= 1e-3 * fabs(wanted);
}

static bool fits(spelling *s, const char *t, cy_expr e);

static bool operands_fit(spelling *s, const char *t, const cy_expr *arg, int n, bool swapped) {
  for (int i = 0; i < n; i++, t = behind(t))
    if (!fits(s, t, arg[swapped ? n - 1 - i : i]))
      return false;
  return *past_spaces(t) == ')';
}

static bool fits(spelling *s, const char *t, cy_expr e) {
  t = past_spaces(t);
  e = without_casts(s->k, e);
  if (*t == 'x') {
    s->x = s->x ? s->x : e;
    return s->x == e;
  }
  if (*t != '(')
    return number_fits(s, t, e);
  const cy_expr_info *x = cy_expr_of(s->k, e);
  cy_op op = (cy_op)x->op;
  cy_expr arg[3] = {x->arg[0], x->arg[1], x->arg[2]};
  int n = cy_expr_function(s->k, e, &op, &arg[0]) ? 1 : x->n;
  size_t length = strcspn(t + 1, " ");
  if (op >= CY_OP_COUNT || cy_op_by_name(t + 1, length) != op)
    return false;
  spelling before = *s;
  if (operands_fit(s, t + 1 + length, arg, n, false))
    return true;
  *s = before;
  return n == 2 && cy_op_of(op)->commutative && operands_fit(s, t + 1 + length, arg, n, true);
}

/* Does what stands behind an alternative, "; p <= q", hold? */
static bool holds(const spelling *s, const char *t) {
  static const char min[] = "; p <= ";
  t = behind(t);
  if (*t != ';')
    return true;
  t += strlen(min);
  return s->p <= (*t == 'q' ? s->q : strtod(t, NULL));
}

/* ---- accumulators ---- */

static int64_t bits_of(double v) {
  float f = (float)v;
  int32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

static void put(cy_cu_offer *o, size_t at, int64_t v) { o->field[at] = cy_dim_const(o->g, v); }

static bool addend(cy_cu_offer *o, const cy_expr_info *x) {
  if (!cy_cu_is_float(o->args[x->id].dtype))
    return false;
  if (!o->bias && o->like_columns(o, x->id, x->arg[0]))
    return o->bias = true;
  return !o->residual && o->like_output(o, CYRT_PROBLEM_RESIDUAL, x->id, x->arg[0]) && (o->residual = true);
}

/* The contraction's accumulator, times a constant or not. */
static bool scaled(cy_cu_offer *o, cy_expr e, double *alpha) {
  const cy_expr_info *x = cy_cu_without_casts(o->k, e);
  if (x->op == CY_X_LOCAL)
    return x->id == o->c->acc;
  if (x->op != CY_OP_mul && x->op != CY_OP_div)
    return false;
  const cy_expr_info *acc = cy_cu_without_casts(o->k, x->arg[0]), *by = cy_cu_without_casts(o->k, x->arg[1]);
  if (acc->op != CY_X_LOCAL || acc->id != o->c->acc || by->op != CY_X_CONST || !isnormal((float)by->c.f))
    return false;
  *alpha = x->op == CY_OP_mul ? by->c.f : 1 / by->c.f;
  return true;
}

/* The accumulator with what is added to it, from `e` inwards. */
static bool summed(cy_cu_offer *o, cy_expr e, double *alpha) {
  const cy_expr_info *x = cy_cu_without_casts(o->k, e);
  if (x->op != CY_OP_add)
    return scaled(o, e, alpha);
  for (int i = 0; i < 2; i++) {
    const cy_expr_info *term = cy_cu_without_casts(o->k, x->arg[i]);
    if (term->op == CY_X_LOAD)
      return addend(o, term) && summed(o, x->arg[1 - i], alpha);
  }
  return false;
}

/* ---- the whole ---- */

static void clear_bias(cy_cu_offer *o) {
  o->bias = false;
  put(o, CY_CU_FIELD(tensor[CYRT_PROBLEM_BIAS].slot), -1);
}

static void clear(cy_cu_offer *o) {
  clear_bias(o);
  o->residual = false;
  put(o, CY_CU_FIELD(tensor[CYRT_PROBLEM_RESIDUAL].slot), -1);
}

static bool activated(cy_cu_offer *o, int which, const char *t, cy_expr value) {
  spelling s = {.k = o->k, .p = NAN, .q = NAN};
  double alpha = 1;
  if (!fits(&s, t, value) || !holds(&s, t) || !summed(o, s.x, &alpha))
    return false;
  put(o, CY_CU_FIELD(epilogue.activation), which);
  put(o, CY_CU_FIELD(epilogue.alpha), bits_of(alpha));
  put(o, CY_CU_FIELD(epilogue.p), bits_of(isnan(s.p) ? 1 : s.p));
  put(o, CY_CU_FIELD(epilogue.q), bits_of(isnan(s.q) ? 1 : s.q));
  return true;
}

/* Is the value an activation that one of these libraries has, of a sum? `after`: with a residual behind it already. */
static bool any_activation(cy_cu_offer *o, cy_expr value, bool after) {
  for (int i = after; i < CYRT_ACTIVATIONS; i++)
    for (const char *t = activations[i].spelled; t; t = strchr(t, '|') ? strchr(t, '|') + 1 : NULL) {
      bool wanted = false;
      for (int l = 0; l < CY_LIBRARIES; l++)
        wanted |= activations[i].library[l] && (o->libraries & 1 << l) && !(after && l == CY_LIBRARY_CUBLASLT);
      if (wanted && activated(o, i, t, value))
        return true;
      if (after)
        clear_bias(o);
      else
        clear(o);
    }
  return false;
}

static bool added_after(cy_cu_offer *o, cy_expr value) {
  const cy_expr_info *x = cy_cu_without_casts(o->k, value);
  for (int i = 0; i < 2 && x->op == CY_OP_add; i++) {
    const cy_expr_info *term = cy_cu_without_casts(o->k, x->arg[i]);
    clear(o);
    if (term->op == CY_X_LOAD && cy_cu_is_float(o->args[term->id].dtype) &&
        o->like_output(o, CYRT_PROBLEM_RESIDUAL, term->id, term->arg[0])) {
      o->residual = true;
      if (any_activation(o, x->arg[1 - i], true))
        return o->after = true;
    }
  }
  return false;
}

bool cy_cu_epilogue_match(cy_cu_offer *o) {
  const cy_stmt *s = cy_kernel_body(o->k);
  if (!s || s->next || s->kind != CY_S_STORE || !cy_cu_is_float(o->args[s->arg].dtype) ||
      !o->like_output(o, CYRT_PROBLEM_OUT, s->arg, s->offset))
    return false;
  clear(o);
  return any_activation(o, s->value, false) || added_after(o, s->value);
}

/* Strides of the output's coordinates, of which there are n, in an element offset; 0 where it does not depend on one. */
bool cy_cu_strides_of(const cy_cu_offer *o, cy_expr offset, int n, cy_dim *out_base, cy_dim *strides) {
  cy_affine a;
  memset(strides, 0, sizeof *strides * (size_t)n);
  if (!cy_expr_affine(o->k, offset, &a) || a.rest)
    return false;
  for (int i = 0; i < a.n; i++) {
    int j = 0;
    while (j < n && o->c->out_var[j] != a.var[i])
      j++;
    if (j == n)
      return false;
    strides[j] = a.coef[i];
  }
  *out_base = a.base;
  return strides[n - 1] && cy_dim_is(o->g, strides[n - 1], 1);
}
