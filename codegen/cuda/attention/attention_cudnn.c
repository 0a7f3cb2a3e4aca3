/* SPDX-License-Identifier: Apache-2.0 */
/* attention_cudnn.c - which attention may be cuDNN's: that of halves whose scores get a bias and a mask in memory,
 * causality and a window at most, with batch axes that lie like one, one axis of heads, and one of those that share keys.
 * A mask of -inf may hide all keys of a row, whose result is nobody's then: it stays ours, and so does attention whose
 * rows are to be 0 then.
 *
 * Out: the fields of a cyrt_cuda_problem. Sizes known only then are the runtime's to refuse.
 */
#include "codegen/cuda/matrix/contract_int.h"
#include "runtime/cuda/cuda_problem.h"

#include <math.h>
#include <string.h>

typedef struct matcher {
  cy_kernel *k;
  cy_graph *g;
  const cy_contraction *c;
  const cy_karg_info *args;
  cy_dim *field;
  int batches, head,
      member; /* axes of the contraction: so many in front; -1: none; member: heads of q that share one of k */
  bool mqa;                /* all heads share one */
} matcher;

static bool stands_still(const matcher *m, int axis) {
  return cy_dim_is(m->g, m->c->b_batch[axis], 0) && cy_dim_is(m->g, m->c->v_batch[axis], 0);
}

static bool find_axes(matcher *m) {
  const cy_contraction *c = m->c;
  int n = c->nbatch;
  m->member = m->head = -1;
  if (n >= 2 && stands_still(m, n - 1) && !stands_still(m, n - 2) &&
      c->a_batch[n - 2] == cy_dim_mul(m->g, c->a_batch[n - 1], c->batch[n - 1]))
    m->member = --n;
  m->head = n - 1;
  m->batches = n > 1 ? n - 1 : 0;
  m->mqa = m->member < 0 && m->head >= 0 && stands_still(m, m->head);
  return true;
}

static cy_dim along(const matcher *m, int axis, const cy_dim *strides) {
  return axis < 0 ? cy_dim_const(m->g, 0) : strides[axis];
}

/* The stride of all batch axes as one. False: they do not lie so. */
static bool batch_stride(const matcher *m, const cy_dim *batch, cy_dim *out) {
  for (int i = 0; i + 1 < m->batches; i++)
    if (batch[i] != cy_dim_mul(m->g, batch[i + 1], m->c->batch[i + 1]))
      return false;
  *out = along(m, m->batches - 1, batch);
  return true;
}

/* Strides of batches and heads. False: batches, or heads that share keys, do not lie like the rest. */
static bool head_strides(const matcher *m, const cy_dim *batch, cy_dim out[4]) {
  if (!batch_stride(m, batch, &out[0]))
    return false;
  out[1] = along(m, m->member < 0 ? m->head : m->member, batch);
  return m->member < 0 || along(m, m->head, batch) == cy_dim_mul(m->g, out[1], m->c->batch[m->member]);
}

static void put_float(const matcher *m, size_t at, double v) {
  float f = (float)v;
  int32_t bits;
  memcpy(&bits, &f, sizeof bits);
  m->field[at] = cy_dim_const(m->g, bits);
}

/* ---- what the body reads and writes ---- */

/* Strides of an element offset along batches, heads, rows and the last axis. */
static bool strides_of(const matcher *m, cy_expr offset, cy_var last, cy_dim *out_base, cy_dim out[4]) {
  cy_affine a;
  cy_dim strides[CY_MAX_BATCH + 2];
  const cy_contraction *c = m->c;
  int rows = c->nbatch;
  if (!cy_expr_affine(m->k, offset, &a) || a.rest)
    return false;
  for (int i = 0; i < rows + 2; i++)
    strides[i] = cy_dim_const(m->g, 0);
  for (int i = 0; i < a.n; i++) {
    int j = 0;
    while (j < rows + 2 && a.var[i] != (j <= rows ? c->out_var[j] : last))
      j++;
    if (j == rows + 2)
      return false;
    strides[j] = a.coef[i];
  }
  *out_base = a.base;
  out[2] = strides[rows];
  out[3] = strides[rows + 1];
  return head_strides(m, strides, out);
}

/* Elements of a bias or a mask lie side by side along the keys, as far as is known: sizes that only running tells may make
 * them one for all keys, which the runtime refuses. */
static bool match_tensor(matcher *m, int which, cy_karg arg, cy_expr offset, cy_var last) {
  cy_dim base, strides[4];
  int64_t step;
  if (!strides_of(m, offset, last, &base, strides) ||
      (cy_dim_is_const(m->g, strides[3], &step) ? step != 1 : which == CYRT_PROBLEM_OUT))
    return false;
  cy_cu_problem_tensor(m->k, m->field, which, arg, base, strides);
  return true;
}

static bool is_score(const matcher *m, cy_expr e) {
  const cy_expr_info *x = cy_expr_of(m->k, e);
  return x->op == CY_X_LOCAL && x->id == m->c->score;
}

/* score + bias, the bias in memory in f32 or as the queries are */
static bool match_bias(matcher *m, cy_expr e) {
  const cy_expr_info *x = cy_expr_of(m->k, e);
  for (int i = 0; i < 2 && x->op == CY_OP_add; i++) {
    const cy_expr_info *b = cy_cu_without_casts(m->k, x->arg[1 - i]);
    cy_dtype dtype = b->op == CY_X_LOAD ? m->args[b->id].dtype : CY_BOOL;
    if (is_score(m, x->arg[i]) && (dtype == CY_F32 || dtype == m->args[m->c->a].dtype))
      return match_tensor(m, CYRT_ATTENTION_BIAS, b->id, b->arg[0], m->c->key);
  }
  return false;
}

/* score or score + bias where the mask is true, else a number */
static bool match_masked(matcher *m, cy_expr e) {
  const cy_expr_info *x = cy_expr_of(m->k, e), *mask = x->op == CY_OP_select ? cy_expr_of(m->k, x->arg[0]) : NULL;
  if (!mask || mask->op != CY_X_LOAD || m->args[mask->id].dtype != CY_BOOL)
    return is_score(m, e) || match_bias(m, e);
  const cy_expr_info *fill = cy_expr_of(m->k, x->arg[2]);
  if (fill->op != CY_X_CONST || !isfinite(fill->c.f) ||
      !match_tensor(m, CYRT_ATTENTION_MASK, mask->id, mask->arg[0], m->c->key))
    return false;
  put_float(m, CY_CU_FIELD(attention.fill), fill->c.f);
  return is_score(m, x->arg[1]) || match_bias(m, x->arg[1]);
}

/* Is *e what is left of a score where `seen`, and -inf elsewhere? Then the score. */
static bool match_hidden(const matcher *m, cy_expr seen, cy_expr *e) {
  const cy_expr_info *x = cy_expr_of(m->k, *e);
  if (x->op != CY_OP_select || x->arg[0] != seen || x->arg[2] != cy_x_const(m->k, CY_F32, -__builtin_inf()))
    return false;
  *e = x->arg[1];
  return true;
}

/* The first loop's body. Equal expressions have one number. */
static bool match_change(matcher *m, const cy_stmt *change) {
  const cy_contraction *c = m->c;
  const cy_stmt *set = change->body;
  if (!set)
    return !c->causal && !c->window;
  if (set->next || set->kind != CY_S_SET)
    return false;
  cy_expr e = set->value, key = cy_x_var(m->k, c->key);
  cy_expr last = cy_x_bin(m->k, CY_OP_add, cy_x_var(m->k, c->out_var[c->nbatch]), cy_x_dim(m->k, c->past));
  cy_expr first = cy_x_bin(m->k, CY_OP_sub, last, cy_x_index(m->k, c->window));
  if (c->window && !match_hidden(m, cy_x_bin(m->k, CY_OP_gt, key, first), &e))
    return false;
  if (c->causal && !match_hidden(m, cy_x_bin(m->k, CY_OP_le, key, last), &e))
    return false;
  return match_masked(m, e);
}

static bool match_epilogue(matcher *m, const cy_stmt *store) {
  if (!store || store->next || store->kind != CY_S_STORE || !cy_cu_is_float(m->args[store->arg].dtype))
    return false;
  const cy_expr_info *x = cy_cu_without_casts(m->k, store->value);
  return x->op == CY_X_LOCAL && x->id == m->c->acc &&
         match_tensor(m, CYRT_PROBLEM_OUT, store->arg, store->offset, m->c->out_var[m->c->nbatch + 1]);
}

/* ---- the whole ---- */

static bool put_operand(matcher *m, int which, cy_karg arg, const cy_dim *batch, cy_dim row, cy_dim step) {
  cy_dim strides[4] = {0, 0, row, cy_dim_const(m->g, 1)};
  bool of_rows = which == CYRT_ATTENTION_Q;
  if (!cy_dim_is(m->g, step, 1))
    return false;
  if (of_rows && !head_strides(m, batch, strides))
    return false;
  if (!of_rows) {
    if (!batch_stride(m, batch, &strides[0]))
      return false;
    strides[1] = along(m, m->head, batch);
  }
  cy_cu_problem_tensor(m->k, m->field, which, arg, cy_dim_const(m->g, 0), strides);
  return true;
}

static void put_sizes(const matcher *m) {
  const cy_contraction *c = m->c;
  cy_dim one = cy_dim_const(m->g, 1), zero = cy_dim_const(m->g, 0), heads = m->head < 0 ? one : c->batch[m->head];
  cy_dim batch = one;
  for (int i = 0; i < m->batches; i++)
    batch = cy_dim_mul(m->g, batch, c->batch[i]);
  m->field[CY_CU_FIELD(flags)] = cy_dim_const(m->g, c->causal ? CYRT_ATTENTION_CAUSAL : 0);
  const cy_dim sizes[] = {batch,
                          m->member < 0 ? heads : cy_dim_mul(m->g, heads, c->batch[m->member]),
                          m->mqa ? one : heads,
                          c->m,
                          c->keys,
                          c->k,
                          c->n,
                          c->causal || c->window ? c->past : zero,
                          cy_dim_const(m->g, c->window),
                          zero,
                          zero};
  _Static_assert(sizeof sizes / sizeof *sizes == sizeof(cyrt_cuda_attention) / sizeof(int64_t), "every field");
  memcpy(m->field + CY_CU_FIELD(attention), sizes, sizeof sizes);
  put_float(m, CY_CU_FIELD(attention.scale), c->scale);
}

bool cy_cu_attention_match(cy_kernel *k, cy_dim field[CY_CUDA_PROBLEM_FIELDS]) {
  const cy_contraction *c = cy_kernel_contraction(k);
  matcher m = {.k = k, .g = cy_kernel_graph(k), .c = c, .field = field};
  const cy_stmt *change = cy_kernel_body(k);
  cy_kernel_args(k, &m.args);
  cy_dtype t = m.args[c->a].dtype;
  int64_t size, columns;
  if (!cy_dim_is_const(m.g, c->k, &size) || !cy_dim_is_const(m.g, c->n, &columns) || size % 8 || columns % 8)
    return false;
  if (c->zero_hidden)
    return false;
  if ((t != CY_F16 && t != CY_BF16) || m.args[c->b].dtype != t || m.args[c->v].dtype != t || !find_axes(&m))
    return false;
  cy_cu_problem_init(m.g, CYRT_PROBLEM_ATTENTION, field);
  if (!put_operand(&m, CYRT_ATTENTION_Q, c->a, c->a_batch, c->a_m, c->a_k) ||
      !put_operand(&m, CYRT_ATTENTION_K, c->b, c->b_batch, c->b_n, c->b_k) ||
      !put_operand(&m, CYRT_ATTENTION_V, c->v, c->v_batch, c->v_k, c->v_n))
    return false;
  put_sizes(&m);
  return match_change(&m, change) && match_epilogue(&m, change->next->next);
}
