/* SPDX-License-Identifier: Apache-2.0 */
/* qdq_measure.c - models that tell what quantising does to each of its layers.
 *
 * In:  a model, ranges. Out: the same with every layer once more, in integers by itself, and
 *
 *   to measure   two further outputs for each, as cy_quant_layer.output has them: how it differs from that in float,
 *                and how the model's outputs do that no other layer lies in front of;
 *   single       a further input, a bool for each layer: where it is true the layer goes on in integers, else in float.
 */
#include "qdq_int.h"

#include <string.h>

/* A name for something of layer i. */
static char *name_of(const qdq_writer *w, uint32_t i, const char *ending) {
  return qdq_name(w, w->layers[i].node->output[0], ending);
}

/* Layer i in integers, with its bias as it was; its output. NULL after a diagnostic. */
static char *add_alone(qdq_writer *w, uint32_t i) {
  Onnx__NodeProto *n = qdq_copy_node(w, w->layers[i].node);
  cy_quant_layer *l = &w->quant.layer[i];
  const float *correct = l->correct;
  n->output[0] = name_of(w, i, "_alone");
  n->name = name_of(w, i, "_alone_node");
  l->correct = NULL; /* what is measured is without, and single layers are corrected behind them */
  int status = qdq_quantise_layer(w, i, n);
  l->correct = correct;
  qdq_grow(w, (void ***)&w->nodes, &w->nnodes, n);
  return status ? NULL : n->output[0];
}

/* ---- to measure ------------------------------------------------------------------------------------------------- */

static char *add_ints(qdq_writer *w, char *name, const int64_t *values, int64_t n) {
  qdq_add_initializer(w, name, ONNX__TENSOR_PROTO__DATA_TYPE__INT64, &n, 1, values, (size_t)n * sizeof *values);
  return name;
}

/* Sums of squares, as [1]: of what y differs from x, and of x. */
static void add_squares(qdq_writer *w, char *x, char *y, char *difference, char *one, char **out) {
  qdq_add_node(w, "Sub", (char *[]){y, x}, 2, difference);
  for (int k = 0; k < 2; k++) {
    char *sum = qdq_name(w, difference, k ? "_signal" : "_noise");
    qdq_set_int(w, qdq_add_node(w, "ReduceSumSquare", k ? &x : &difference, 1, sum), "keepdims", 0);
    out[k] = qdq_name(w, sum, "_one");
    qdq_add_node(w, "Reshape", (char *[]){sum, one}, 2, out[k]);
  }
}

static bool may_follow(const Onnx__NodeProto *n) {
  for (size_t a = 0; a < n->n_attribute; a++)
    if (n->attribute[a]->g || n->attribute[a]->n_graphs)
      return false;
  return (!n->domain || !*n->domain) && !(cy_quant_onnx_does(n->op_type) & CY_QUANT_HEAVY);
}

typedef struct renamed {
  char *from, *to;
} renamed;

static char *find(const renamed *r, size_t n, const char *name) {
  for (size_t i = 0; i < n; i++)
    if (!strcmp(r[i].from, name))
      return r[i].to;
  return NULL;
}

/* Does n read what has another name now? */
static bool is_behind(const Onnx__NodeProto *n, const renamed *now, size_t nnow) {
  for (size_t k = 0; k < n->n_input; k++)
    if (find(now, nnow, n->input[k]))
      return true;
  return false;
}

static void add_again(qdq_writer *w, const Onnx__NodeProto *as_read, const renamed *now, size_t nnow) {
  Onnx__NodeProto *n = qdq_copy_node(w, as_read);
  for (size_t k = 0; k < n->n_input; k++)
    if (find(now, nnow, n->input[k]))
      n->input[k] = find(now, nnow, n->input[k]);
  for (size_t k = 0; k < n->n_output; k++)
    if (*n->output[k])
      n->output[k] = find(now, nnow, n->output[k]);
  n->name = (char *)"";
  qdq_grow(w, (void ***)&w->nodes, &w->nnodes, n);
}

/* The nodes behind layer i once more, on `alone`; what became of which value. 0: there is what may not follow. */
static size_t add_tail(qdq_writer *w, uint32_t i, char *alone, renamed *out) {
  const Onnx__GraphProto *g = w->graph;
  const char *ending = cy_arena_printf(w->arena, "_behind_%u", i);
  size_t n = 0;
  out[n++] = (renamed){w->layers[i].node->output[0], alone};
  for (size_t at = 0; at < g->n_node; at++) {
    const Onnx__NodeProto *m = g->node[at];
    bool behind = is_behind(m, out, n);
    if (behind && !may_follow(m))
      return 0;
    for (size_t k = 0; behind && k < m->n_output; k++)
      if (*m->output[k])
        out[n++] = (renamed){m->output[k], qdq_name(w, m->output[k], ending)};
  }
  for (size_t at = 0; n > 1 && at < g->n_node; at++)
    if (is_behind(g->node[at], out, n))
      add_again(w, g->node[at], out, n);
  return n;
}

typedef struct measuring {
  size_t noutputs; /* of the model itself, which come first */
  char *one;       /* a shape: [1] */
  renamed *room;
} measuring;

static bool is_f32(const Onnx__ValueInfoProto *v) {
  return v->type && v->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE &&
         v->type->tensor_type->elem_type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
}

/* The sums of the model's own outputs that no other layer lies in front of. */
static size_t add_ends(qdq_writer *w, uint32_t i, char *alone, const measuring *m, char **out) {
  cy_quant_layer *l = &w->quant.layer[i];
  size_t n = add_tail(w, i, alone, m->room);
  l->nends = 0;
  l->end = CY_NEW_ARRAY(w->quant.arena, const char *, m->noutputs + 1);
  for (size_t k = 0; n && k < m->noutputs; k++) {
    char *is = w->graph->output[k]->name, *now = find(m->room, n, is);
    if (!now || !is_f32(w->graph->output[k]))
      continue;
    add_squares(w, is, now, qdq_name(w, now, "_differs"), m->one, out + 2 * (size_t)l->nends);
    l->end[l->nends++] = is;
  }
  return 2 * (size_t)l->nends;
}

/* The sums of squares, and how many elements a channel has. */
static char *add_sums(qdq_writer *w, uint32_t i, char *alone, char *difference, const measuring *m) {
  char *y = w->layers[i].node->output[0], *size = name_of(w, i, "_size"), *each = name_of(w, i, "_per_channel"),
       *count = name_of(w, i, "_channels"), *some = name_of(w, i, "_elements"), *all = name_of(w, i, "_sums"),
       **sums = CY_NEW_ARRAY(w->arena, char *, 3 + 2 * m->noutputs);
  add_squares(w, y, alone, difference, m->one, sums);
  qdq_add_node(w, "Size", &y, 1, size);
  add_ints(w, count, (const int64_t[]){w->quant.layer[i].channels}, 1);
  qdq_add_node(w, "Div", (char *[]){size, count}, 2, some);
  qdq_set_int(w, qdq_add_node(w, "Cast", &some, 1, each), "to", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT);
  sums[2] = each;
  size_t n = 3 + add_ends(w, i, alone, m, sums + 3);
  qdq_set_int(w, qdq_add_node(w, "Concat", sums, n, all), "axis", 0);
  return all;
}

/* The sums of the differences of each channel. */
static char *add_differences(qdq_writer *w, uint32_t i, char *difference) {
  char *out = name_of(w, i, "_differences");
  int64_t axes[CY_MAX_RANK], n = 0;
  for (int k = 0; k < w->layers[i].rank; k++)
    if (k != qdq_channel_axis(&w->layers[i]))
      axes[n++] = k;
  if (!n)
    return difference;
  char *but = add_ints(w, name_of(w, i, "_axes"), axes, n);
  qdq_set_int(w, qdq_add_node(w, "ReduceSum", (char *[]){difference, but}, 2, out), "keepdims", 0);
  return out;
}

static int measure_layer(qdq_writer *w, uint32_t i, const measuring *m) {
  char *alone = add_alone(w, i), *difference = name_of(w, i, "_difference");
  if (!alone)
    return -1;
  char *sums = add_sums(w, i, alone, difference, m);
  w->quant.layer[i].output = (uint32_t)w->graph->n_output;
  qdq_add_output(w, sums);
  qdq_add_output(w, add_differences(w, i, difference));
  return 0;
}

/* Pairs of the tensors that are inputs of the model (n = NULL), or that n makes. */
static void add_dot2(qdq_writer *w, const Onnx__NodeProto *n) {
  for (uint32_t t = 0; t < w->ntensors; t++)
    if (w->tensors[t].rounded && w->tensors[t].maker == n)
      qdq_add_pair(w, &w->tensors[t]);
}

int qdq_build_measuring(qdq_writer *w) {
  const Onnx__GraphProto *g = w->graph;
  measuring m = {g->n_output, qdq_name(w, "cytoc.quantise.one", ""), CY_NEW_ARRAY(w->arena, renamed, w->nnames + 2)};
  add_ints(w, m.one, (const int64_t[]){1}, 1);
  add_dot2(w, NULL);
  for (size_t at = 0; at < g->n_node; at++) {
    qdq_grow(w, (void ***)&w->nodes, &w->nnodes, g->node[at]);
    add_dot2(w, g->node[at]);
  }
  for (uint32_t i = 0; i < w->nlayers; i++)
    if (!w->quant.layer[i].keep && measure_layer(w, i, &m))
      return -1;
  return 0;
}

/* ---- single ----------------------------------------------------------------------------------------------------- */

/* A further input of the model: a bool for each layer. */
static char *add_flags(qdq_writer *w) {
  Onnx__ValueInfoProto *v = CY_NEW(w->arena, Onnx__ValueInfoProto);
  Onnx__TypeProto *type = CY_NEW(w->arena, Onnx__TypeProto);
  Onnx__TypeProto__Tensor *tensor = CY_NEW(w->arena, Onnx__TypeProto__Tensor);
  Onnx__TensorShapeProto__Dimension *dim = CY_NEW(w->arena, Onnx__TensorShapeProto__Dimension);
  onnx__value_info_proto__init(v);
  onnx__type_proto__init(type);
  onnx__type_proto__tensor__init(tensor);
  onnx__tensor_shape_proto__dimension__init(dim);
  dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
  dim->dim_value = w->nlayers;
  tensor->has_elem_type = 1;
  tensor->elem_type = ONNX__TENSOR_PROTO__DATA_TYPE__BOOL;
  tensor->shape = CY_NEW(w->arena, Onnx__TensorShapeProto);
  onnx__tensor_shape_proto__init(tensor->shape);
  tensor->shape->n_dim = 1;
  tensor->shape->dim = cy_arena_copy(w->arena, &dim, sizeof dim);
  type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
  type->tensor_type = tensor;
  v->name = qdq_name(w, "cytoc.quantise.layers", "");
  v->type = type;
  qdq_grow(w, (void ***)&w->graph->input, &w->graph->n_input, v);
  return v->name;
}

/* Layer i, whose node is n now: in integers, its bias corrected, where that is chosen. */
static int add_choice(qdq_writer *w, uint32_t i, Onnx__NodeProto *n, char *flags) {
  const cy_quant_layer *l = &w->quant.layer[i];
  const qdq_layer *of = &w->layers[i];
  char *y = of->node->output[0], *mine = name_of(w, i, "_number"), *chosen = name_of(w, i, "_chosen");
  int64_t own = i;
  n->output[0] = name_of(w, i, "_float");
  char *with = add_alone(w, i);
  if (!with)
    return -1;
  if (l->correct) {
    char *sum = name_of(w, i, "_corrected"), *by = qdq_add_factors(w, name_of(w, i, "_correction"), l->correct,
                                                                   l->channels, of->rank, qdq_channel_axis(of));
    qdq_add_node(w, "Add", (char *[]){with, by}, 2, sum);
    with = sum;
  }
  qdq_add_initializer(w, mine, ONNX__TENSOR_PROTO__DATA_TYPE__INT64, NULL, 0, &own, sizeof own);
  qdq_add_node(w, "Gather", (char *[]){flags, mine}, 2, chosen);
  qdq_add_node(w, "Where", (char *[]){chosen, with, n->output[0]}, 3, y);
  return 0;
}

int qdq_build_single(qdq_writer *w) {
  const Onnx__GraphProto *g = w->graph;
  char *flags = add_flags(w);
  add_dot2(w, NULL);
  for (size_t at = 0; at < g->n_node; at++) {
    Onnx__NodeProto *n = qdq_copy_node(w, g->node[at]);
    qdq_grow(w, (void ***)&w->nodes, &w->nnodes, n);
    for (uint32_t i = 0; i < w->nlayers; i++)
      if (w->layers[i].node == g->node[at] && !w->quant.layer[i].keep && add_choice(w, i, n, flags))
        return -1;
    add_dot2(w, g->node[at]);
  }
  return 0;
}
