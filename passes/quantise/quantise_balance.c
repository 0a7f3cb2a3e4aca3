/* SPDX-License-Identifier: Apache-2.0 */
/* quantise_balance.c - equalisation: per-channel factors that bring the ranges of a tensor's channels closer together.
 *
 * In:  what the tensors are made of and which layers read them; the largest magnitude to expect of every channel. Out:
 * `axis`, that of the channels; `balance`, by which the tensor is divided before it is rounded, and its readers' weights
 * are multiplied.
 *
 * One scale for all channels wastes the steps of those with small values. A filter per channel (depthwise) has a scale
 * of its own for each channel's weights, so there all of the difference can go into the weights; elsewhere weights of
 * one output share a scale over the input channels, and half of it (in logarithms) goes there. It works behind any
 * activation function, as it acts where the tensor is stored. Tensors that share integers share the reference that
 * magnitudes are compared with, and the factors.
 */
#include "quantise_int.h"

#include <math.h>

/* ---- which can be balanced -------------------------------------------------------------------------------------- */

bool cy_quant_passes_channels(const cy_graph *g, const cy_node_info *n) {
  const cy_type *x = cy_type_of(g, n->in[0]), *y = cy_type_of(g, n->out[0]);
  if (x->rank < 3 || y->rank != x->rank)
    return false;
  if (n->op == CY_OP_concat)
    return cy_attr_get_int(n, CY_ATTR_axis, 0) == 1;
  uint32_t rank;
  if (n->op == CY_OP_slice && cy_attr_list(n, CY_ATTR_steps, &rank)[1] != 1)
    return false; /* reversed */
  return (n->op == CY_OP_pool_max || n->op == CY_OP_pad || n->op == CY_OP_resize || n->op == CY_OP_slice ||
          n->op == CY_OP_identity) &&
         x->dim[1] == y->dim[1];
}

/* The axis along which tensor t may be balanced, as far as it and its readers are concerned; -1: none. */
static int own_axis(const cy_quant *q, uint32_t t, int rank) {
  const cy_quant_tensor *x = &q->tensor[t];
  int axis = -1;
  for (uint32_t i = 0; i < q->nlayers; i++)
    if (q->layer[i].input == x->value && !q->layer[i].keep) {
      int at = q->layer[i].product ? rank - 1 : 1;
      if (axis >= 0 && at != axis)
        return -1;
      axis = at;
    }
  if (axis < 0 && rank >= 3)
    axis = 1;
  return x->nfrom && (axis != 1 || !x->passes_channels) ? -1 : axis;
}

void cy_quant_balance_axes(cy_quant *q, const cy_graph *g, const cy_type *const *types) {
  for (uint32_t t = 0; t < q->ntensors; t++) {
    cy_quant_tensor *x = &q->tensor[t];
    int64_t n = 0;
    x->axis = own_axis(q, t, types[t] ? types[t]->rank : 0);
    if (x->axis >= 0 && (!types[t] || !cy_dim_is_const(g, types[t]->dim[x->axis], &n) || n < 1))
      x->axis = -1;
    x->channels = x->axis >= 0 ? (uint32_t)n : 1;
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t t = 0; t < q->ntensors; t++)
      for (uint32_t k = 0; k < q->tensor[t].nfrom; k++) {
        cy_quant_tensor *a = &q->tensor[t], *b = &q->tensor[q->tensor[t].from[k]];
        if ((a->axis == 1 && b->axis == 1) || (a->axis < 0 && b->axis < 0))
          continue;
        a->axis = b->axis = -1;
        a->channels = b->channels = 1;
        changed = true;
      }
  }
}

/* ---- by how much ------------------------------------------------------------------------------------------------ */

static const double min = 1.0 / 256;

static uint32_t root(uint32_t *group, uint32_t t) {
  while (group[t] != t)
    t = group[t] = group[group[t]];
  return t;
}

/* How much of the difference goes into the weights. */
static double share(const cy_quant *q, uint32_t t) {
  bool layers = false;
  for (uint32_t i = 0; i < q->ntensors; i++)
    for (uint32_t k = 0; k < q->tensor[i].nfrom; k++)
      if (q->tensor[i].from[k] == t)
        return 0.5;
  for (uint32_t i = 0; i < q->nlayers; i++)
    if (q->layer[i].input == q->tensor[t].value && !q->layer[i].keep) {
      if (!q->layer[i].depthwise)
        return 0.5;
      layers = true;
    }
  return layers ? 1 : 0.5;
}

static float *own_factors(cy_quant *q, uint32_t t, double max) {
  cy_quant_tensor *x = &q->tensor[t];
  float *f = CY_NEW_ARRAY(q->arena, float, x->channels);
  double power = share(q, t);
  for (uint32_t c = 0; c < x->channels; c++) {
    double r = pow(x->max[c] / max, power);
    f[c] = (float)(r > min ? r : min);
  }
  return f;
}

/* Those of the tensors that t is made of; NULL: not all known yet. */
static const float *moved_factors(cy_quant *q, const cy_quant_tensor *x) {
  for (uint32_t k = 0; k < x->nfrom; k++)
    if (!q->tensor[x->from[k]].balance)
      return NULL;
  if (!x->joins)
    return q->tensor[x->from[0]].balance;
  float *f = CY_NEW_ARRAY(q->arena, float, x->channels);
  for (uint32_t k = 0, at = 0; k < x->nfrom; k++)
    for (uint32_t c = 0; c < q->tensor[x->from[k]].channels; c++)
      f[at++] = q->tensor[x->from[k]].balance[c];
  return f;
}

void cy_quant_balance(cy_quant *q) {
  uint32_t *group = CY_NEW_ARRAY(q->arena, uint32_t, q->ntensors + 1);
  double *max = CY_NEW_ARRAY(q->arena, double, q->ntensors + 1);
  for (uint32_t t = 0; t < q->ntensors; t++)
    group[t] = t;
  for (uint32_t t = 0; t < q->ntensors; t++)
    for (uint32_t k = 0; k < q->tensor[t].nfrom; k++)
      group[root(group, q->tensor[t].from[k])] = root(group, t);
  for (uint32_t t = 0; t < q->ntensors; t++)
    for (uint32_t c = 0; q->tensor[t].axis >= 0 && c < q->tensor[t].channels; c++)
      max[root(group, t)] = fmax(max[root(group, t)], q->tensor[t].max[c]);
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t t = 0; t < q->ntensors; t++) {
      cy_quant_tensor *x = &q->tensor[t];
      if (x->axis < 0 || x->balance || !(max[root(group, t)] > 0))
        continue;
      x->balance = x->nfrom ? moved_factors(q, x) : own_factors(q, t, max[root(group, t)]);
      changed |= x->balance != NULL;
    }
  }
}
