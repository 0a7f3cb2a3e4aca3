/* SPDX-License-Identifier: Apache-2.0 */
/* lower_attention.c - the `attention` op as a contraction kernel, or as a plain nest of loops over the keys of a row.
 *
 * In: a node as ir.h's cy_attention describes it, its q, k and v in memory. Out: one launch. Heads that share keys
 * become two batch axes, (heads of k, heads of q per head of k), of which the second stands still in k and v. What
 * happens to a score (softcap, bias, masks) and how it becomes a weight is loop IR, written here once: targets run it
 * inside their kernels, and the plain nest has the same expressions. The nest keeps one row of weights in scratch; it
 * serves types and targets without a generator. Where the number of queries is a symbol, and the target has a kernel of its
 * own for few of them, as for a model that writes token by token, there are two launches, of which a run takes one.
 */
#include "lower_int.h"

#define bin(b, op, x, y) cy_x_bin((b)->k, op, x, y)

/* An operand of the scores at the score's index, broadcast. */
static cy_expr at_score(cy_kb *b, const cy_attention *a, cy_val v, const cy_expr *idx) {
  const cy_type scores = cy_attention_scores(b->l->g, a), *t = cy_lower_type(b->l, v);
  cy_expr at[CY_MAX_RANK];
  cy_lower_broadcast(b, t, &scores, idx, at);
  return cy_lower_at(b, v, at);
}

static cy_expr hidden(cy_kb *b, cy_expr seen, cy_expr s, double fill) {
  return cy_x_select(b->k, seen, s, cy_x_const(b->k, cy_expr_of(b->k, s)->dtype, fill != 0 ? fill : -__builtin_inf()));
}

/* Score s of index idx (the last one: the key) as softmax sees it. */
static cy_expr changed_score(cy_kb *b, const cy_attention *a, int rank, const cy_expr *idx, cy_expr s) {
  cy_kernel *k = b->k;
  cy_dtype dtype = cy_expr_of(k, s)->dtype;
  cy_expr key = idx[rank - 1];
  if (a->softcap != 0) {
    cy_expr cap = cy_x_const(k, dtype, a->softcap);
    s = bin(b, CY_OP_mul, cy_x_un(k, CY_OP_tanh, bin(b, CY_OP_div, s, cap)), cap);
  }
  if (a->bias)
    s = bin(b, CY_OP_add, s, at_score(b, a, a->bias, idx));
  if (a->mask)
    s = hidden(b, at_score(b, a, a->mask, idx), s, a->fill);
  cy_dim past = a->past ? a->past : cy_dim_const(b->l->g, 0);
  cy_expr last = bin(b, CY_OP_add, idx[rank - 2], cy_x_dim(k, past));
  if (a->causal)
    s = hidden(b, bin(b, CY_OP_le, key, last), s, 0);
  if (a->window)
    s = hidden(b, bin(b, CY_OP_gt, key, bin(b, CY_OP_sub, last, cy_x_index(k, a->window))), s, 0);
  if (a->lengths)
    s = hidden(b, bin(b, CY_OP_lt, key, cy_x_cast(k, cy_lower_at(b, a->lengths, idx), CY_I64)), s, 0);
  return s;
}

static cy_expr weight(cy_kb *b, cy_expr s, cy_expr top) { return cy_x_exp_below(b->k, bin(b, CY_OP_sub, s, top)); }

/* ---- the contraction ---- */

typedef struct head_axis {
  int axis;
  cy_dim shared; /* heads of q per head of k; 0: one, or k has only one */
} head_axis;

static head_axis heads_of(cy_lowering *l, const cy_type *q, const cy_type *k) {
  head_axis h = {.axis = q->rank - 3};
  int64_t mine, own;
  if (q->dim[h.axis] != k->dim[h.axis] && cy_dim_is_const(l->g, q->dim[h.axis], &mine) &&
      cy_dim_is_const(l->g, k->dim[h.axis], &own) && own > 1 && mine > own)
    h.shared = cy_dim_const(l->g, mine / own);
  return h;
}

static cy_dim stride_of(cy_lowering *l, const cy_type *t, const cy_place *p, int axis) {
  return cy_dim_is(l->g, t->dim[axis], 1) ? cy_dim_const(l->g, 0) : p->stride[axis];
}

static cy_var add_batch(cy_kb *b, cy_dim extent, cy_dim of_q, cy_dim of_k, cy_dim of_v) {
  cy_contraction *c = cy_kernel_contraction(b->k);
  int i = c->nbatch++;
  c->batch[i] = extent;
  c->a_batch[i] = of_q;
  c->b_batch[i] = of_k;
  c->v_batch[i] = of_v;
  return c->out_var[c->nout_vars++] = cy_kernel_add_var(b->k, extent);
}

/* Batch axes and their index expressions. False: too many. */
static bool set_batch(cy_kb *b, const cy_type *const *t, cy_place *const *p, cy_expr *out_idx) {
  cy_lowering *l = b->l;
  cy_dim zero = cy_dim_const(l->g, 0);
  head_axis h = heads_of(l, t[0], t[1]);
  if (t[0]->rank - 1 > CY_MAX_BATCH)
    return false;
  for (int i = 0; i < t[0]->rank - 2; i++) {
    cy_dim extent = t[0]->dim[i], s[3];
    for (int j = 0; j < 3; j++)
      s[j] = stride_of(l, t[j], p[j], i);
    if (cy_dim_is(l->g, extent, 1)) {
      out_idx[i] = cy_x_index(b->k, 0);
    } else if (i == h.axis && h.shared) {
      cy_dim of_q = cy_dim_mul(l->g, s[0], h.shared);
      cy_var group = add_batch(b, t[1]->dim[i], of_q, s[1], s[2]);
      cy_var member = add_batch(b, h.shared, s[0], zero, zero);
      out_idx[i] =
          bin(b, CY_OP_add, bin(b, CY_OP_mul, cy_x_var(b->k, group), cy_x_dim(b->k, h.shared)), cy_x_var(b->k, member));
    } else {
      out_idx[i] = cy_x_var(b->k, add_batch(b, extent, s[0], s[1], s[2]));
    }
  }
  return true;
}

/* max_rows: of queries, 0: any number. */
static bool set_operands(cy_kb *b, const cy_attention *a, int64_t max_rows, cy_expr *out_idx) {
  cy_lowering *l = b->l;
  cy_contraction *c = cy_kernel_contraction(b->k);
  const cy_val in[3] = {a->q, a->k, a->v};
  const cy_type *t[3];
  cy_place *p[3];
  cy_karg arg[3];
  for (int i = 0; i < 3; i++) {
    t[i] = cy_lower_type(l, in[i]);
    p[i] = cy_lower_place(l, in[i]);
  }
  for (int i = 0; i < 3; i++)
    arg[i] = cy_kb_arg(b, p[i], (cy_dtype)t[i]->dtype, CY_ARG_READ);
  int r = t[0]->rank;
  c->kind = CY_CONTRACT_ATTENTION;
  c->a = arg[0];
  c->b = arg[1];
  c->v = arg[2];
  c->m = max_rows ? cy_dim_min(l->g, t[0]->dim[r - 2], cy_dim_const(l->g, max_rows)) : t[0]->dim[r - 2];
  c->k = t[0]->dim[r - 1];
  c->keys = t[1]->dim[r - 2];
  c->n = t[2]->dim[r - 1];
  c->a_m = p[0]->stride[r - 2];
  c->a_k = p[0]->stride[r - 1];
  c->b_n = p[1]->stride[r - 2];
  c->b_k = p[1]->stride[r - 1];
  c->v_k = p[2]->stride[r - 2];
  c->v_n = p[2]->stride[r - 1];
  if (!set_batch(b, t, p, out_idx))
    return false;
  for (int i = r - 2; i < r; i++) {
    c->out_var[c->nout_vars] = cy_kernel_add_var(b->k, i == r - 2 ? c->m : c->n);
    out_idx[i] = cy_x_var(b->k, c->out_var[c->nout_vars++]);
  }
  return true;
}

/* The two loops over the keys. */
static void build_scores(cy_kb *b, const cy_attention *a, int rank, const cy_expr *idx) {
  cy_contraction *c = cy_kernel_contraction(b->k);
  cy_kernel *k = b->k;
  cy_expr at[CY_MAX_RANK], raw = cy_x_local(k, c->score);
  for (int i = 0; i < rank - 1; i++)
    at[i] = idx[i];
  at[rank - 1] = cy_x_var(k, c->key);
  cy_kernel_for(k, c->key, true);
  cy_expr s = changed_score(b, a, rank, at, raw);
  if (s != raw)
    cy_kernel_set(k, c->score, s);
  cy_kernel_end(k);
  cy_kernel_for(k, c->key, true);
  cy_kernel_set(k, c->score, weight(b, raw, cy_x_local(k, c->top)));
  cy_kernel_end(k);
}

/* A kernel without its scores and results; false: no generator has it. */
static bool build_generated(cy_kb *b, cy_lowering *l, const cy_attention *a, int64_t max_rows, cy_val root_value,
                            cy_expr *out_idx) {
  if (!cy_lower_generates(l) || !cy_lower_is_stored(l, a->q) || !cy_lower_is_stored(l, a->k) ||
      !cy_lower_is_stored(l, a->v))
    return false;
  cy_kb_init(b, l, "attention");
  if (!set_operands(b, a, max_rows, out_idx))
    return false;
  cy_contraction *c = cy_kernel_contraction(b->k);
  cy_dtype dtype = cy_compute_dtype((cy_dtype)cy_lower_type(l, root_value)->dtype);
  c->acc = cy_kernel_add_local(b->k, dtype);
  c->score = cy_kernel_add_local(b->k, dtype);
  c->top = cy_kernel_add_local(b->k, dtype);
  c->key = cy_kernel_add_var(b->k, c->keys);
  c->scale = a->scale;
  c->causal = a->causal;
  c->window = a->window;
  c->zero_hidden = a->zero_hidden;
  c->rounded = a->round;
  c->past = a->past ? a->past : cy_dim_const(l->g, 0);
  return cy_caps_supports(l->caps, b->k);
}

static void finish_generated(cy_kb *b, const cy_attention *a, cy_val root_value, cy_val target, const cy_expr *idx) {
  build_scores(b, a, cy_lower_type(b->l, root_value)->rank, idx);
  cy_lower_finish(b, target, root_value, idx, cy_x_local(b->k, cy_kernel_contraction(b->k)->acc));
  cy_kb_launch(b, false);
}

/* The most queries of a head that are few; 0: the target has no kernel of its own for them, or they are always or never. */
static int64_t few_queries(cy_lowering *l, const cy_attention *a) {
  const cy_type *q = cy_lower_type(l, a->q), *k = cy_lower_type(l, a->k);
  head_axis h = heads_of(l, q, k);
  cy_dim together = h.shared ? h.shared : cy_dim_is(l->g, k->dim[h.axis], 1) ? q->dim[h.axis] : cy_dim_const(l->g, 1);
  int64_t heads, min, max, few = l->caps->few_queries;
  few = cy_dim_is_const(l->g, together, &heads) && heads > 0 ? few / heads : 0;
  cy_dim_range(l->g, q->dim[q->rank - 2], &min, &max);
  return min <= few && few < max ? few : 0;
}

static bool lower_generated(cy_lowering *l, const cy_attention *a, cy_val root_value, cy_val target) {
  cy_expr idx[CY_MAX_RANK];
  cy_kb b;
  cy_branch many;
  if (!build_generated(&b, l, a, 0, root_value, idx))
    return false;
  const cy_type *q = cy_lower_type(l, a->q);
  int64_t few = few_queries(l, a);
  if (few)
    cy_lower_branch_from(l, q->dim[q->rank - 2], few + 1, &many);
  finish_generated(&b, a, root_value, target, idx);
  if (!few)
    return true;
  cy_lower_otherwise(l, &many);
  if (!build_generated(&b, l, a, few, root_value, idx))
    cy_bug("attention of few rows has no generator");
  finish_generated(&b, a, root_value, target, idx);
  cy_lower_join(l, &many);
  return true;
}

/* ---- the plain nest ---- */

/* The index into k or v for index idx of q: broadcast axes stand still, heads are shared. */
static void key_index(cy_kb *b, const cy_type *q, const cy_type *t, const cy_expr *idx, cy_expr *out) {
  head_axis h = heads_of(b->l, q, t);
  for (int i = 0; i < q->rank - 2; i++) {
    bool shared = i == h.axis && h.shared;
    out[i] = shared ? bin(b, CY_OP_div, idx[i], cy_x_dim(b->k, h.shared)) : idx[i];
    if (cy_dim_is(b->l->g, t->dim[i], 1))
      out[i] = cy_x_index(b->k, 0);
  }
}

static cy_local local_set(cy_kb *b, cy_dtype dtype, double v) {
  cy_local l = cy_kernel_add_local(b->k, dtype);
  cy_kernel_set(b->k, l, cy_x_const(b->k, dtype, v));
  return l;
}

/* A factor, rounded to halves where that is not CY_NONE. */
static cy_expr factor_at(cy_kb *b, cy_val v, const cy_expr *idx, cy_dtype round, cy_dtype dtype) {
  cy_expr x = cy_lower_at(b, v, idx);
  return cy_x_cast(b->k, round ? cy_x_cast(b->k, x, round) : x, dtype);
}

/* sum over an inner loop of x at xi * y at yi, whose index `axis` runs. */
static cy_local dot(cy_kb *b, cy_dtype round, cy_dtype dtype, cy_dim extent, cy_val x, cy_expr *xi, int x_axis,
                    cy_val y, cy_expr *yi, int y_axis) {
  cy_local sum = local_set(b, dtype, 0);
  xi[x_axis] = yi[y_axis] = cy_kb_loop(b, extent, false);
  cy_expr product = bin(b, CY_OP_mul, factor_at(b, x, xi, round, dtype), factor_at(b, y, yi, round, dtype));
  cy_kernel_accum(b->k, sum, CY_OP_add, product);
  cy_kernel_end(b->k);
  return sum;
}

static void lower_nest(cy_lowering *l, const cy_attention *a, cy_val root_value, cy_val target) {
  const cy_type *q = cy_lower_type(l, a->q), *kt = cy_lower_type(l, a->k), *vt = cy_lower_type(l, a->v);
  int r = q->rank;
  cy_dtype dtype = a->round ? CY_F32 : cy_compute_dtype((cy_dtype)q->dtype);
  cy_dim keys = kt->dim[r - 2];
  cy_kb b;
  cy_kb_init(&b, l, "attention_rows");
  cy_kernel *k = b.k;
  cy_expr idx[CY_MAX_RANK], qi[CY_MAX_RANK], ki[CY_MAX_RANK], vi[CY_MAX_RANK];
  for (int i = 0; i < r - 1; i++)
    qi[i] = idx[i] = cy_kb_grid_index(&b, q->dim[i]);
  key_index(&b, q, kt, idx, ki);
  key_index(&b, q, vt, idx, vi);
  cy_karg row = cy_kb_scratch(&b, dtype, keys);

  cy_local top = local_set(&b, dtype, -__builtin_inf());
  idx[r - 1] = ki[r - 2] = cy_kb_loop(&b, keys, false);
  cy_local raw = dot(&b, a->round, dtype, q->dim[r - 1], a->q, qi, r - 1, a->k, ki, r - 1);
  cy_expr scaled = bin(&b, CY_OP_mul, cy_x_local(k, raw), cy_x_const(k, dtype, a->scale));
  cy_local held = cy_kernel_add_local(k, dtype);
  cy_kernel_set(k, held, changed_score(&b, a, r, idx, scaled));
  cy_kernel_store(k, row, idx[r - 1], cy_x_local(k, held));
  cy_kernel_accum(k, top, CY_OP_max, cy_x_local(k, held));
  cy_kernel_end(k);

  cy_dim one = cy_dim_const(l->g, 1);
  cy_local sum = cy_kernel_add_local(k, dtype); /* from 1 on where there are no keys: their sum of nothing is 0 */
  cy_kernel_set(k, sum, cy_x_cast(k, cy_x_dim(k, cy_dim_sub(l->g, one, cy_dim_min(l->g, keys, one))), dtype));
  cy_expr j = cy_kb_loop(&b, keys, false);
  cy_expr greatest = cy_x_local(k, top);
  cy_kernel_set(k, held, weight(&b, cy_x_load(k, row, j), greatest));
  cy_kernel_store(k, row, j, cy_x_local(k, held));
  cy_kernel_accum(k, sum, CY_OP_add, cy_x_local(k, held));
  cy_kernel_end(k);

  idx[r - 1] = vi[r - 1] = cy_kb_loop(&b, vt->dim[r - 1], false);
  cy_local out = local_set(&b, dtype, 0);
  vi[r - 2] = j = cy_kb_loop(&b, keys, false);
  cy_kernel_accum(k, out, CY_OP_add,
                  bin(&b, CY_OP_mul, cy_x_load(k, row, j), factor_at(&b, a->v, vi, a->round, dtype)));
  cy_kernel_end(k);
  cy_expr y = bin(&b, CY_OP_div, cy_x_local(k, out), cy_x_local(k, sum));
  if (a->zero_hidden) {
    cy_expr hidden_row = bin(&b, CY_OP_eq, greatest, cy_x_const(k, dtype, -__builtin_inf()));
    y = cy_x_select(k, hidden_row, cy_x_const(k, dtype, 0), y);
  }
  cy_lower_finish(&b, target, root_value, idx, y);
  cy_kernel_end(k);
  cy_kb_launch(&b, true);
}

void cy_lower_attention(cy_lowering *l, cy_node root, cy_val root_value, cy_val target) {
  cy_attention a = cy_attention_of(cy_node_of(l->g, root));
  if (!lower_generated(l, &a, root_value, target))
    lower_nest(l, &a, root_value, target);
}
