/* SPDX-License-Identifier: Apache-2.0 */
/* qdq_tensors.c - which tensors of a model become integers, and with which scales.
 *
 * In:  the model's graph, with its layers; ranges, when samples have been seen. Out: the tensors that layers read, and
 * those that pooling, concatenation, addition, resampling and views make them of. Which of them are rounded follows
 * from the layers that are not kept in float; what is moved from one to another keeps its scale and its balance.
 *
 * The rules are those of the pass `quantise`, so that both lose the same: sums of products stay in float, as the stream
 * that a transformer adds to would be rounded by each of its layers.
 */
#include "qdq_int.h"

#include <string.h>

qdq_tensor *qdq_tensor_of(const qdq_writer *w, const char *name) {
  for (uint32_t t = 0; t < w->ntensors; t++)
    if (!strcmp(w->tensors[t].name, name))
      return &w->tensors[t];
  return NULL;
}

static uint32_t index_of(const qdq_writer *w, const qdq_tensor *t) { return (uint32_t)(t - w->tensors); }

const cy_quant_tensor *qdq_quant_of(const qdq_writer *w, const qdq_tensor *t) {
  return &w->quant.tensor[index_of(w, t)];
}

static const Onnx__NodeProto *maker_of(const qdq_writer *w, const char *name) {
  for (size_t i = 0; i < w->graph->n_node; i++)
    for (size_t k = 0; k < w->graph->node[i]->n_output; k++)
      if (!strcmp(w->graph->node[i]->output[k], name))
        return w->graph->node[i];
  return NULL;
}

static bool is_product(const Onnx__NodeProto *n) { return n && qdq_is_one_of(n->op_type, "MatMul Gemm"); }

bool qdq_read_by_product(const qdq_writer *w, const qdq_tensor *t) {
  for (uint32_t i = 0; i < w->nlayers; i++)
    if (w->layers[i].tensor == index_of(w, t) && !w->quant.layer[i].keep && is_product(w->layers[i].node))
      return true;
  return false;
}

/* Do its elements only change places, so that its integers are those of what it reads? */
static bool moves(const Onnx__NodeProto *n) {
  const Onnx__AttributeProto *mode = qdq_attribute(n, "mode");
  bool nearest = !mode || (mode->s.len == strlen("nearest") && !memcmp(mode->s.data, "nearest", mode->s.len));
  unsigned does = cy_quant_onnx_does(n->op_type);
  return does & CY_QUANT_MOVES || (does & CY_QUANT_MOVES_NEAREST && nearest);
}

size_t qdq_rounded_inputs(const qdq_writer *w, const qdq_tensor *t) {
  const Onnx__NodeProto *n = t->maker;
  if (!n)
    return 0;
  if (!strcmp(n->op_type, "Add")) {
    bool product = qdq_read_by_product(w, t);
    for (size_t k = 0; k < n->n_input; k++)
      product |= is_product(maker_of(w, n->input[k]));
    return product ? 0 : n->n_input;
  }
  if (!strcmp(n->op_type, "Concat"))
    return n->n_input;
  return moves(n) || cy_quant_onnx_does(n->op_type) & CY_QUANT_READS;
}

static void add_tensor(qdq_writer *w, const char *name) {
  if (*name && !qdq_tensor_of(w, name) && !qdq_initializer(w, name))
    w->tensors[w->ntensors++] = (qdq_tensor){.name = name, .maker = maker_of(w, name)};
}

void qdq_list_tensors(qdq_writer *w) {
  size_t room = w->graph->n_input + w->nlayers;
  for (size_t i = 0; i < w->graph->n_node; i++)
    room += w->graph->node[i]->n_output;
  w->tensors = CY_NEW_ARRAY(w->arena, qdq_tensor, room + 1);
  for (uint32_t i = 0; i < w->nlayers; i++) {
    const char *name = w->layers[i].node->input[0];
    add_tensor(w, name);
    w->layers[i].tensor = index_of(w, qdq_tensor_of(w, name));
  }
  for (uint32_t t = 0; t < w->ntensors; t++)
    for (size_t k = 0; k < qdq_rounded_inputs(w, &w->tensors[t]); k++)
      add_tensor(w, w->tensors[t].maker->input[k]);
}

/* ---- what is known of them -------------------------------------------------------------------------------------- */

/* The tensors that t's elements come from, if it is one of those whose integers are moved; v: t as imported. */
static void describe_origin(qdq_writer *w, qdq_tensor *t, const cy_graph *g, cy_val v) {
  cy_quant_tensor *x = &w->quant.tensor[index_of(w, t)];
  size_t n = t->maker && moves(t->maker) ? qdq_rounded_inputs(w, t) : 0;
  for (size_t k = 0; k < n; k++)
    if (!qdq_tensor_of(w, t->maker->input[k]))
      return;
  if (!n)
    return;
  x->nfrom = (uint32_t)n;
  x->from = CY_NEW_ARRAY(w->quant.arena, uint32_t, n);
  for (size_t k = 0; k < n; k++)
    x->from[k] = index_of(w, qdq_tensor_of(w, t->maker->input[k]));
  x->joins = !strcmp(t->maker->op_type, "Concat");
  /* what is made is balanced then, and the model's own outputs are not */
  bool inside = !qdq_is_output(w, t->name) && !qdq_read_by_bodies(w, t->name);
  cy_node maker = v ? cy_value_of(g, v)->node : 0;
  x->passes_channels = inside && maker && cy_quant_passes_channels(g, cy_node_of(g, maker));
}

void qdq_describe_tensors(qdq_writer *w, const cy_graph *g) {
  const cy_type **types = CY_NEW_ARRAY(w->arena, const cy_type *, w->ntensors + 1);
  for (uint32_t t = 0; t < w->ntensors; t++) {
    cy_val v = qdq_value_of(g, w->tensors[t].name);
    types[t] = v ? &cy_value_of(g, v)->type : NULL;
    w->tensors[t].rank = v ? types[t]->rank : 0;
    describe_origin(w, &w->tensors[t], g, v);
  }
  cy_quant_balance_axes(&w->quant, g, types);
}

/* ---- which are rounded, and how --------------------------------------------------------------------------------- */

static uint32_t root(qdq_writer *w, uint32_t t) {
  while (w->tensors[t].group != t)
    t = w->tensors[t].group = w->tensors[w->tensors[t].group].group;
  return t;
}

static void unite(qdq_writer *w, uint32_t a, uint32_t b, bool always) {
  a = root(w, a);
  b = root(w, b);
  qdq_tensor *ta = &w->tensors[a], *tb = &w->tensors[b];
  if (a == b || (!always && !cy_quant_may_share((double[]){ta->low, tb->low}, (double[]){ta->high, tb->high})))
    return;
  tb->group = a;
  ta->low = tb->low < ta->low ? tb->low : ta->low;
  ta->high = tb->high > ta->high ? tb->high : ta->high;
}

static void mark_rounded(qdq_writer *w) {
  for (uint32_t t = 0; t < w->ntensors; t++)
    w->tensors[t].rounded = false;
  for (uint32_t i = 0; i < w->nlayers; i++)
    if (!w->quant.layer[i].keep)
      w->tensors[w->layers[i].tensor].rounded = true;
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t t = 0; t < w->ntensors; t++)
      for (size_t k = 0; w->tensors[t].rounded && k < qdq_rounded_inputs(w, &w->tensors[t]); k++) {
        qdq_tensor *from = qdq_tensor_of(w, w->tensors[t].maker->input[k]);
        changed |= from && !from->rounded;
        if (from)
          from->rounded = true;
      }
  }
}

void qdq_choose_scales(qdq_writer *w) {
  const cy_quant_tensor *q = w->quant.tensor;
  mark_rounded(w);
  for (uint32_t t = 0; t < w->ntensors; t++) {
    qdq_tensor *x = &w->tensors[t];
    *x =
        (qdq_tensor){x->name, x->maker, x->rank, .rounded = x->rounded, .low = q[t].low, .high = q[t].high, .group = t};
    x->moved = x->rounded && q[t].nfrom;
  }
  for (uint32_t t = 0; t < w->ntensors; t++)
    for (uint32_t k = 0; w->tensors[t].moved && k < q[t].nfrom; k++)
      unite(w, t, q[t].from[k], !q[t].joins || q[t].balance);
  for (uint32_t t = 0; t < w->ntensors; t++) {
    const qdq_tensor *r = &w->tensors[root(w, t)];
    cy_quant_u8(r->low, r->high, &w->tensors[t].scale, &w->tensors[t].zero);
  }
}
