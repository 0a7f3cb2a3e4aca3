/* SPDX-License-Identifier: Apache-2.0 */
/* contractions.c - fewer, larger matrix products: those that share their first factor become one.
 *
 * In:  a swept graph in which equal values are one (cse). Out: `x * Wq, x * Wk, x * Wv` as `x * [Wq Wk Wv]` and slices
 * of its columns, which lowering turns into strides. x is read and packed once, and one launch has three times the work
 * to share.
 *
 * Only constant weights of rank 2, of the same types, in the same block. If every product has one reader and that adds
 * a constant along the columns, the biases are merged as well, so that they stay in the epilogue. If only some do, the
 * products stay apart. Results that all become halves again (widen_half.c) do so before they are cut apart. Products of
 * short rows of x, one of which an activation reads, stay apart, too: reading x again costs less than storing a result
 * that the activation would have taken as an epilogue.
 *
 * On a device, where a kernel that only adds costs its launch, element-wise ops behind a reshaped product (a Gemm of all
 * tokens) move in front of the reshape, so that activations and residual sums stay in the epilogue, too.
 */
#include "pass_int.h"

enum { MAX_MERGE = 16, MAX_COLUMNS = 32768, SHORT_ROW = 32 };

typedef struct product {
  cy_node node;
  cy_val w, out, bias; /* out: of the addition where there is a bias */
} product;

/* The constant [n] or [1.., n] that v's only reader adds; sets the sum. 0: none. */
static cy_val bias_of(cy_graph *g, const cy_uses *uses, cy_val v, cy_val *out_sum) {
  if (uses->start[v + 1] - uses->start[v] != 1 || !uses->list[uses->start[v]])
    return 0;
  const cy_node_info *add = cy_node_of(g, uses->list[uses->start[v]]);
  if (add->op != CY_OP_add || add->in[0] != v || !cy_value_is_const(g, add->in[1]) || add->block != cy_def(g, v)->block)
    return 0;
  const cy_type *t = cy_type_of(g, v), *b = cy_type_of(g, add->in[1]);
  if (b->rank < 1 || b->dim[b->rank - 1] != t->dim[t->rank - 1] || !cy_same_shape(cy_type_of(g, add->out[0]), t))
    return 0;
  for (int i = 0; i + 1 < b->rank; i++)
    if (!cy_dim_is(g, b->dim[i], 1))
      return 0;
  *out_sum = add->out[0];
  return add->in[1];
}

/* Products of x with constants, starting at node `first`. */
static uint32_t collect(cy_graph *g, const cy_uses *uses, cy_node first, product *out) {
  const cy_node_info *a = cy_node_of(g, first);
  const cy_type *wa = cy_type_of(g, a->in[1]);
  uint32_t n = 0;
  int64_t columns = 0, more;
  for (uint32_t i = uses->start[a->in[0]]; i < uses->start[a->in[0] + 1] && n < MAX_MERGE; i++) {
    cy_node u = uses->list[i];
    const cy_node_info *m = u ? cy_node_of(g, u) : NULL;
    if (!m || m->op != CY_OP_matmul || m->block != a->block || m->in[0] != a->in[0] || m->nin > 2 ||
        !cy_value_is_const(g, m->in[1]))
      continue;
    const cy_type *w = cy_type_of(g, m->in[1]);
    bool again = n && out[n - 1].node == u;
    if (again || w->rank != 2 || w->dtype != wa->dtype ||
        cy_type_of(g, m->out[0])->dtype != cy_type_of(g, a->out[0])->dtype || !cy_dim_is_const(g, w->dim[1], &more) ||
        columns + more > MAX_COLUMNS)
      continue;
    columns += more;
    out[n++] = (product){.node = u, .w = m->in[1], .out = m->out[0]};
  }
  return n;
}

static bool is_short(const cy_graph *g, const product *m) {
  const cy_type *w = cy_type_of(g, m->w);
  int64_t length;
  return cy_dim_is_const(g, w->dim[0], &length) && length <= SHORT_ROW;
}

/* Could what reads the product alone be its epilogue? */
static bool has_epilogue(const cy_graph *g, const cy_uses *uses, const product *m) {
  cy_node user = uses->start[m->out + 1] - uses->start[m->out] == 1 ? uses->list[uses->start[m->out]] : 0;
  const cy_node_info *n = user ? cy_node_of(g, user) : NULL;
  return n && cy_op_is_ew((cy_op)n->op) && n->op != CY_OP_cast && n->block == cy_node_of(g, m->node)->block &&
         cy_same_shape(cy_type_of(g, n->out[0]), cy_type_of(g, m->out));
}

static cy_val flat(cy_graph *g, cy_val bias, const cy_type *w) { return cy_build_reshape(g, bias, &w->dim[1], 1); }

/* The cast that is v's only reader; NULL: there is none. */
static const cy_node_info *cast_of(cy_graph *g, const cy_uses *uses, cy_val v) {
  cy_node user = uses->start[v + 1] - uses->start[v] == 1 ? uses->list[uses->start[v]] : 0;
  const cy_node_info *n = user ? cy_node_of(g, user) : NULL;
  return n && n->op == CY_OP_cast && n->block == cy_def(g, v)->block ? n : NULL;
}

/* If all results are cast to one type, by nobody else read: the casts become the results. CY_NONE: they are not. */
static cy_dtype take_casts(cy_graph *g, const cy_uses *uses, product *list, uint32_t n) {
  cy_dtype to = CY_NONE;
  for (uint32_t i = 0; i < n; i++) {
    const cy_node_info *cast = cast_of(g, uses, list[i].out);
    cy_dtype t = cast ? (cy_dtype)cy_type_of(g, cast->out[0])->dtype : CY_NONE;
    if (t == CY_NONE || (i && t != to) || cy_attr_get_int(cast, CY_ATTR_saturate, 1) != 1)
      return CY_NONE;
    to = t;
  }
  for (uint32_t i = 0; i < n; i++)
    list[i].out = cast_of(g, uses, list[i].out)->out[0];
  return to;
}

static void merge(cy_pass *p, const cy_uses *uses, cy_node first, product *list, uint32_t n, bool biased) {
  cy_graph *g = p->g;
  const cy_node_info *a = cy_node_of(g, first);
  cy_val w[MAX_MERGE], b[MAX_MERGE];
  cy_build_before(g, first);
  cy_rewrite_origin(p, a);
  for (uint32_t i = 0; i < n; i++) {
    w[i] = list[i].w;
    b[i] = biased ? flat(g, list[i].bias, cy_type_of(g, list[i].w)) : 0;
  }
  cy_dtype dtype = (cy_dtype)cy_type_of(g, a->out[0])->dtype;
  cy_val all = cy_build_matmul(g, a->in[0], cy_build_concat(g, w, n, 1), dtype);
  if (biased)
    all = cy_build_binary(g, CY_OP_add, all, cy_build_concat(g, b, n, 0));
  cy_dtype cast = take_casts(g, uses, list, n);
  if (cast != CY_NONE)
    all = cy_build_cast(g, all, cast);
  cy_dim at = cy_dim_const(g, 0);
  int axis = cy_type_of(g, a->out[0])->rank - 1;
  for (uint32_t i = 0; i < n; i++) {
    cy_dim size = cy_type_of(g, list[i].w)->dim[1];
    cy_graph_replace(g, list[i].out, cy_build_slice_axis(g, all, axis, at, size));
    at = cy_dim_add(g, at, size);
  }
  cy_build_in(g, 1);
  cy_pass_count(p, "products merged", n);
}

static void visit(cy_pass *p, const cy_uses *uses, cy_node id, uint32_t nvalues, bool *done) {
  cy_graph *g = p->g;
  const cy_node_info *n = cy_node_of(g, id);
  product list[MAX_MERGE];
  if (n->op != CY_OP_matmul || n->nin > 2 || !cy_value_is_const(g, n->in[1]) || n->in[0] > nvalues || done[n->in[0]] ||
      cy_value_is_const(g, n->in[0]) || cy_type_of(g, n->in[1])->rank != 2)
    return;
  done[n->in[0]] = true;
  uint32_t count = collect(g, uses, id, list), biased = 0;
  for (uint32_t i = 0; i < count; i++) {
    cy_val sum = 0;
    list[i].bias = bias_of(g, uses, list[i].out, &sum);
    if (list[i].bias) {
      list[i].out = sum;
      biased++;
    }
  }
  for (uint32_t i = 0; i < count && (biased == 0 || biased == count); i++)
    if (is_short(g, &list[i]) && has_epilogue(g, uses, &list[i]))
      return;
  if (count >= 2 && (biased == 0 || biased == count))
    merge(p, uses, id, list, count, biased != 0);
}

/* ---- element-wise ops behind reshaped products ---- */

enum { MAX_STEPS = 32 };

/* Is v a product, or what element-wise ops of its shape make of one? */
static bool is_of_product(const cy_graph *g, cy_val v) {
  for (int step = 0; step < MAX_STEPS && v; step++) {
    const cy_node_info *d = cy_def(g, v);
    if (!d || d->op == CY_OP_matmul || d->op == CY_OP_conv)
      return d != NULL;
    cy_val from = 0;
    for (uint32_t k = 0; k < d->nin && cy_op_is_ew((cy_op)d->op) && !from; k++)
      from = cy_def(g, d->in[k]) && cy_same_shape(cy_type_of(g, d->in[k]), cy_type_of(g, v)) ? d->in[k] : 0;
    v = from;
  }
  return false;
}

/* An operand of what gives `out`, as it is where that has the shape of `from`. 0: it is broadcast. */
static cy_val reshaped_back(cy_graph *g, cy_val x, const cy_type *out, const cy_type *from) {
  const cy_type *t = cy_type_of(g, x);
  const cy_node_info *d = cy_def_of(g, x, CY_OP_reshape);
  cy_dim last = t->rank ? t->dim[t->rank - 1] : 0;
  if (d && cy_same_shape(t, out) && cy_same_shape(cy_type_of(g, d->in[0]), from))
    return d->in[0];
  if (cy_same_shape(t, out))
    return cy_build_reshape(g, x, from->dim, from->rank);
  for (int i = 0; i + 1 < t->rank; i++)
    if (!cy_dim_is(g, t->dim[i], 1))
      return 0;
  if (!last || t->rank == 1)
    return !last || cy_dim_is(g, last, 1) || last == from->dim[from->rank - 1] ? x : 0;
  return cy_dim_is(g, last, 1) || last == from->dim[from->rank - 1] ? cy_build_reshape(g, x, &last, 1) : 0;
}

static cy_val ew_of_reshape(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  const cy_type out = *cy_type_of(g, n->out[0]);
  cy_val in[3], product = 0;
  if (n->nin > 3 || n->nout != 1)
    return 0;
  for (uint32_t k = 0; k < n->nin && !product; k++) {
    const cy_node_info *d = cy_def_of(g, n->in[k], CY_OP_reshape);
    bool fits = d && d->block == n->block && cy_same_shape(cy_type_of(g, n->in[k]), &out) &&
                cy_type_of(g, d->in[0])->rank > 0 && is_of_product(g, d->in[0]);
    product = fits ? d->in[0] : 0;
  }
  if (!product)
    return 0;
  cy_type type = *cy_type_of(g, product);
  for (uint32_t k = 0; k < n->nin; k++) {
    in[k] = reshaped_back(g, n->in[k], &out, &type);
    if (!in[k])
      return 0;
  }
  type.dtype = out.dtype;
  cy_val y = cy_build(g, (cy_op)n->op, in, n->nin, n->attrs, n->nattrs, &type, cy_node_op(n)->typed);
  return y ? cy_build_reshape(g, y, out.dim, out.rank) : 0;
}

static const cy_rule device_rules[] = {{CY_RULE_ANY_EW, "reshape below element-wise", ew_of_reshape}};

/* requires: swept   establishes: swept   breaks: unique, folded, placed, fused */
int cy_pass_contractions(cy_pass *p) {
  cy_graph *g = p->g;
  cy_uses uses =
      cy_graph_uses(g, p->scratch); /* edits below only ever take readers away from what is looked at later */
  uint32_t nvalues = cy_value_count(g);
  bool *done = CY_NEW_ARRAY(p->scratch, bool, nvalues + 1);
  for (cy_block b = 1; b <= cy_block_count(g); b++) {
    uint32_t count;
    const cy_node *nodes = cy_pass_walk(p, b, &count);
    for (uint32_t i = 0; i < count; i++)
      visit(p, &uses, nodes[i], nvalues, done);
  }
  cy_graph_sweep(g);
  const cy_rule_set set = {device_rules, sizeof device_rules / sizeof *device_rules};
  if (cy_caps_of(p->options->caps)->device)
    cy_rewrite_run(p, &set, 1);
  return 0;
}
