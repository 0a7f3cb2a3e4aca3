/* SPDX-License-Identifier: Apache-2.0 */
/* loop_equal.c - kernels compared.
 *
 * A kernel is written out as a list of words in which expressions are numbered in the order of their first use, so that
 * the history of building leaves no trace; equal words, equal kernels. The constant behind a contraction counts only as
 * present or absent: its bytes are an argument. On request, numbers that a parameter may stand for count by their dtype
 * alone and are listed: kernels that are equal then are made one by loop_share.c.
 */
#include "loop_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void put(cy_words *w, uint64_t v) {
  if (w->n == w->cap) {
    w->cap = w->cap ? w->cap * 2 : 256;
    w->v = realloc(w->v, w->cap * sizeof *w->v);
    if (!w->v)
      cy_no_memory();
  }
  w->v[w->n++] = v;
}

static void put_dims(cy_words *w, const cy_dim *d, int n) {
  for (int i = 0; i < n; i++)
    put(w, d[i]);
}

bool cy_param_whole(const cy_expr_info *c) { return !cy_dtype_is_float(c->dtype) || c->c.f == nearbyint(c->c.f); }

/* May a parameter stand for constant c, operand `operand` of `user` (0: all of a statement's value)? Not where code for
 * a known number is another: divisors that are powers of two or of integers, factors of integers, shifts, exponents,
 * indices; nor for 0 and 255 as bounds, by which a target finds conversions to bytes. */
static bool is_hole(const cy_kernel *k, cy_expr user, int operand, const cy_expr_info *c) {
  double v = cy_dtype_is_float(c->dtype) ? c->c.f : (double)c->c.i;
  int unused;
  if (c->op != CY_X_CONST || !(fabs(v) < CY_PARAM_MAX) || (v == 0 && signbit(v)))
    return false;
  bool is_float = c->dtype == CY_F32 || c->dtype == CY_F64;
  if (c->dtype == CY_I16) /* zero points of bytes, no coefficients */
    return user && cy_expr_of(k, user)->op == CY_OP_add && v >= INT8_MIN && v <= UINT8_MAX;
  if (!is_float && c->dtype != CY_I32 && c->dtype != CY_U8 && c->dtype != CY_I8)
    return false;
  switch (user ? cy_expr_of(k, user)->op : CY_OP_add) {
  case CY_OP_add:
  case CY_OP_sub:
  case CY_OP_eq:
  case CY_OP_ne:
  case CY_OP_lt:
  case CY_OP_le:
  case CY_OP_gt:
  case CY_OP_ge: return true;
  case CY_OP_min:
  case CY_OP_max: return v != 0 && v != 255;
  case CY_OP_select: return operand > 0;
  case CY_OP_mul:
  case CY_OP_fma: return is_float;
  case CY_OP_div: return is_float && operand == 1 && fabs(frexp(v, &unused)) != 0.5;
  default: return false;
  }
}

static void put_hole(cy_words *w, cy_expr user, int operand, cy_expr constant) {
  const cy_expr_info *x = cy_expr_of(w->k, constant);
  int op = user ? cy_expr_of(w->k, user)->op : CY_OP_NONE;
  /* bounds and zero points: casts look for those that are whole */
  bool tells = op == CY_OP_add || op == CY_OP_sub || op == CY_OP_min || op == CY_OP_max;
  put(w, (uint64_t)1 << 62 | (uint64_t)x->dtype << 1 | (tells && cy_param_whole(x)));
  if (w->nholes == w->holes_cap) {
    w->holes_cap = w->holes_cap ? w->holes_cap * 2 : 32;
    w->hole = realloc(w->hole, w->holes_cap * sizeof *w->hole);
    if (!w->hole)
      cy_no_memory();
  }
  w->hole[w->nholes++] = (cy_hole){w->stmt, user, operand, constant};
}

static void put_expr(cy_words *w, cy_expr user, int operand, cy_expr e) {
  const cy_expr_info *x = e ? cy_expr_of(w->k, e) : NULL;
  if (x && w->with_holes && is_hole(w->k, user, operand, x)) {
    put_hole(w, user, operand, e);
    return;
  }
  if (!e || w->number[e]) {
    put(w, e ? w->number[e] : 0);
    return;
  }
  put(w, (uint64_t)1 << 63 | (uint64_t)x->op << 16 | (uint64_t)x->dtype << 8 | x->n);
  put(w, x->id);
  put(w, x->c.u);
  for (int i = 0; i < x->n; i++)
    put_expr(w, e, i, x->arg[i]);
  w->number[e] = ++w->numbers;
}

static void put_list(cy_words *w, cy_stmt *s) {
  for (; s; s = s->next) {
    put(w, (uint64_t)s->kind + 1);
    put(w, s->var ? cy_kernel_var(w->k, s->var)->extent : 0);
    put(w, (uint64_t)s->var << 32 | (uint64_t)s->op << 8 | s->lanes);
    put(w, (uint64_t)s->local << 32 | s->arg);
    w->stmt = s;
    put_expr(w, 0, 0, s->offset);
    put_expr(w, 0, 0, s->value);
    put_list(w, s->body);
  }
  put(w, 0);
}

static void put_contraction(cy_words *w, const cy_contraction *c) {
  put(w, c->kind);
  if (c->kind == CY_CONTRACT_NONE)
    return;
  put(w, (uint64_t)c->a << 32 | c->b);
  put(w, (uint64_t)c->acc << 1 | (c->b_const != 0));
  put(w, c->has_a_zero ? 1 + (uint64_t)c->a_zero : 0);
  put(w, c->has_start ? 1 + (uint64_t)c->start : 0);
  put(w, c->a_rounded);
  if (c->a_rounded) {
    put(w, (uint64_t)c->a_max << 32 | (uint64_t)c->a_max_step);
    put(w, (uint64_t)c->a_steps);
  }
  put(w, c->has_b_zero ? 2 + 2 * (uint64_t)c->b_zero + (uint64_t)c->b_zero_step : 0);
  for (int i = 0; i < c->nout_vars; i++) {
    put(w, c->out_var[i]);
    put(w, cy_kernel_var(w->k, c->out_var[i])->extent);
  }
  put(w,
      (uint64_t)c->nbatch << 32 | (uint64_t)(c->b_bits != 0) << 16 | (uint64_t)c->planar << 8 | (uint64_t)c->nspatial);
  const cy_dim d[] = {c->m,   c->n,      c->k,           c->a_m,          c->a_k,     c->b_k,
                      c->b_n, c->images, c->channels_in, c->channels_out, c->x_image, c->x_channel};
  put_dims(w, d, sizeof d / sizeof *d);
  if (c->b_bits) {
    put(w, (uint64_t)c->b_scale << 32 | (uint64_t)c->b_bits);
    put(w, (uint64_t)c->b_block << 16 | (uint64_t)c->b_codes << 8 | (uint64_t)c->rounded);
    put(w, (uint64_t)c->b_middle);
  }
  put_dims(w, c->batch, c->nbatch);
  put_dims(w, c->a_batch, c->nbatch);
  put_dims(w, c->b_batch, c->nbatch);
  if (c->kind == CY_CONTRACT_ATTENTION) {
    const cy_dim more[] = {c->keys, c->v_k, c->v_n, c->past};
    cy_scalar scale = {.f = c->scale};
    put(w, (uint64_t)c->v << 32 | c->key);
    put(w, c->rounded);
    put(w, (uint64_t)c->score << 32 | c->top);
    put(w, scale.u);
    put(w, (uint64_t)c->window << 2 | (uint64_t)c->zero_hidden << 1 | c->causal);
    put_dims(w, more, sizeof more / sizeof *more);
    put_dims(w, c->v_batch, c->nbatch);
  }
  put_dims(w, c->in, c->nspatial);
  put_dims(w, c->out, c->nspatial);
  put_dims(w, c->pad, c->nspatial);
  put_dims(w, c->x_spatial, c->nspatial);
  for (int i = 0; i < c->nspatial; i++) {
    put(w, (uint64_t)c->kernel[i]);
    put(w, (uint64_t)c->stride[i]);
    put(w, (uint64_t)c->dilation[i]);
    put(w, (uint64_t)c->shuffle[i].positions);
    put(w, (uint64_t)c->shuffle[i].before);
    put(w, (uint64_t)c->shuffle[i].behind);
  }
  put(w, (uint64_t)c->group);
}

cy_words cy_kernel_words(cy_kernel *k, bool holes) {
  cy_words w = {.k = k, .with_holes = holes, .number = calloc(cy_expr_count(k) + 1, sizeof(uint32_t))};
  if (!w.number)
    cy_no_memory();
  for (uint32_t i = 0; i < k->nargs; i++) {
    const cy_karg_info *a = &k->args[i];
    put(&w, (uint64_t)a->param << 17 | (uint64_t)a->whole << 16 | (uint64_t)a->kind << 8 | a->dtype);
    put(&w, a->kind == CY_ARG_SCRATCH ? a->elems : 0);
  }
  put(&w, (uint64_t)k->ngrid << 1 | cy_kernel_grid_lanes(k));
  for (uint32_t i = 0; i < k->ngrid; i++) {
    put(&w, k->grid[i]);
    put(&w, cy_kernel_var(k, k->grid[i])->extent);
  }
  for (uint32_t i = 1; i <= k->nlocals; i++)
    put(&w, k->locals[i]);
  put_contraction(&w, &k->contraction);
  put_list(&w, k->body);
  free(w.number);
  w.number = NULL;
  return w;
}

void cy_words_free(cy_words *w) {
  free(w->v);
  free(w->hole);
}

uint64_t cy_words_hash(const cy_words *w) {
  uint64_t h = 0xcbf29ce484222325u;
  for (size_t i = 0; i < w->n; i++) {
    h = (h ^ w->v[i]) * 0xff51afd7ed558ccdu;
    h ^= h >> 29;
  }
  return h;
}

uint64_t cy_kernel_hash(cy_kernel *k) {
  cy_words w = cy_kernel_words(k, false);
  uint64_t h = cy_words_hash(&w);
  cy_words_free(&w);
  return h;
}

bool cy_kernel_equal(cy_kernel *a, cy_kernel *b) {
  if (a == b)
    return true;
  if (a->g != b->g) /* dims are numbered per graph */
    return false;
  cy_words x = cy_kernel_words(a, false), y = cy_kernel_words(b, false);
  bool equal = x.n == y.n && memcmp(x.v, y.v, x.n * sizeof *x.v) == 0;
  cy_words_free(&x);
  cy_words_free(&y);
  return equal;
}
