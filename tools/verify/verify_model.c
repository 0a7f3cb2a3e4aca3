/* SPDX-License-Identifier: Apache-2.0 */
/* verify_model.c - what `cytoc verify` asks an ONNX model itself, and models that are parts of it.
 *
 * In:  a model's file. Out: what its integer inputs index, whether it rounds by itself; the model with values from inside as
 * outputs; some of its nodes as a model of their own.
 *
 * A part is made for the reproducer: names stay, sizes are those of the run that is reproduced. What its nodes read of the
 * rest becomes an input. Small integers become constants in place of that: shapes and axes are better known when compiling,
 * and many operators want them so.
 */
#include "verify.h"

#include "tools/qdq/qdq_int.h"

#include <stdlib.h>
#include <string.h>

enum { SMALL = 1024 }; /* elements of integers that become constants */

typedef struct bound {
  const char *name;
  int64_t size;
} bound;

struct verify_model {
  qdq_job job;
  qdq_writer w;
  bound *bounds;
  size_t nbounds;
};

/* A model of its own for every trial: writing one with data in other files changes what it was read as. */
static int read_model(qdq_writer *w, qdq_job *job, const char *path, const char *output, cy_diag_sink *diag) {
  *job = (qdq_job){.input = path, .output = output, .calibrate = {.diag = diag}};
  *w = (qdq_writer){.job = job, .diag = diag, .arena = cy_arena_create()};
  return qdq_read(w);
}

static void free_model(qdq_writer *w) {
  if (w->externals)
    cy_externals_destroy(w->externals);
  cy_arena_destroy(w->arena);
}

/* ---- what integers index ---------------------------------------------------------------------------------------- */

static int64_t tensor_dim(const Onnx__TensorProto *t, int64_t axis) {
  axis += axis < 0 ? (int64_t)t->n_dims : 0;
  return axis >= 0 && axis < (int64_t)t->n_dims ? t->dims[axis] : 0;
}

static int64_t declared_dim(const Onnx__ValueInfoProto *v, const char *name, int64_t axis) {
  if (!v->name || strcmp(v->name, name) || !v->type || v->type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ||
      !v->type->tensor_type->shape)
    return 0;
  const Onnx__TensorShapeProto *s = v->type->tensor_type->shape;
  axis += axis < 0 ? (int64_t)s->n_dim : 0;
  return axis >= 0 && axis < (int64_t)s->n_dim &&
                 s->dim[axis]->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE
             ? s->dim[axis]->dim_value
             : 0;
}

/* A size of a value that a node in front of node `end` makes, where it is known without computing; 0: it is not. The model has
 * not been checked yet: a value may be made from itself. */
static int64_t dim_of(const qdq_writer *w, const char *name, int64_t axis, size_t end) {
  const Onnx__GraphProto *g = w->graph;
  const Onnx__TensorProto *t = qdq_initializer(w, name);
  int64_t size = t ? tensor_dim(t, axis) : 0;
  for (size_t i = 0; !size && i < g->n_input; i++)
    size = declared_dim(g->input[i], name, axis);
  for (size_t i = 0; !size && i < g->n_value_info; i++)
    size = declared_dim(g->value_info[i], name, axis);
  for (size_t i = 0; !size && i < end; i++) {
    const Onnx__NodeProto *n = g->node[i];
    if (!n->n_output || strcmp(n->output[0], name))
      continue;
    const Onnx__AttributeProto *value = qdq_attribute(n, "value");
    if (!strcmp(n->op_type, "Constant") && value && value->t)
      return tensor_dim(value->t, axis);
    if (n->n_input && qdq_is_one_of(n->op_type, "Identity Cast DequantizeLinear"))
      return dim_of(w, n->input[0], axis, i);
  }
  return size;
}

/* Operators whose input `index` counts along an axis of input `data`; without an axis of their own it is the attribute. */
static const struct {
  const char *op;
  size_t index, data;
  int64_t axis; /* -100: attribute */
} lookups[] = {{"Gather", 1, 0, -100},
               {"GatherElements", 1, 0, -100},
               {"ScatterElements", 1, 0, -100},
               {"GatherND", 1, 0, 0},
               {"ScatterND", 1, 0, 0},
               {"EmbedLayerNormalization", 0, 2, 0},
               {"EmbedLayerNormalization", 1, 4, 0},
               {"GatherBlockQuantized", 1, 0, 0}};

static void add_bound(verify_model *m, const char *name, int64_t size) {
  if (!*name || size < 1)
    return;
  for (size_t i = 0; i < m->nbounds; i++)
    if (!strcmp(m->bounds[i].name, name)) {
      m->bounds[i].size = size < m->bounds[i].size ? size : m->bounds[i].size;
      return;
    }
  m->bounds = realloc(m->bounds, sizeof *m->bounds * (m->nbounds + 1));
  if (!m->bounds)
    cy_no_memory();
  m->bounds[m->nbounds++] = (bound){name, size};
}

int64_t verify_model_bound(const verify_model *m, const char *input) {
  for (size_t i = 0; i < m->nbounds; i++)
    if (!strcmp(m->bounds[i].name, input))
      return m->bounds[i].size;
  return 0;
}

/* Backwards, so that what nodes move about is known when they are seen. */
static void find_bounds(verify_model *m) {
  const Onnx__GraphProto *g = m->w.graph;
  for (size_t i = g->n_node; i-- > 0;) {
    const Onnx__NodeProto *n = g->node[i];
    for (size_t k = 0; k < sizeof lookups / sizeof *lookups; k++)
      if (!strcmp(n->op_type, lookups[k].op) && n->n_input > lookups[k].index && n->n_input > lookups[k].data) {
        int64_t axis = lookups[k].axis == -100 ? qdq_int_attribute(n, "axis", 0) : lookups[k].axis;
        add_bound(m, n->input[lookups[k].index], dim_of(&m->w, n->input[lookups[k].data], axis, i));
      }
    int64_t size = n->n_output ? verify_model_bound(m, n->output[0]) : 0;
    if (size && n->n_input &&
        qdq_is_one_of(n->op_type, "Cast Reshape Unsqueeze Squeeze Identity Flatten Transpose Expand Slice Tile "
                                  "Gather Max Min"))
      add_bound(m, n->input[0], size);
    for (size_t k = 0; size && k < n->n_input && !strcmp(n->op_type, "Concat"); k++)
      add_bound(m, n->input[k], size);
  }
}

verify_model *verify_model_open(const char *path, cy_diag_sink *diag) {
  verify_model *m = calloc(1, sizeof *m);
  if (!m)
    cy_no_memory();
  if (read_model(&m->w, &m->job, path, NULL, diag)) {
    verify_model_close(m);
    return NULL;
  }
  find_bounds(m);
  return m;
}

void verify_model_close(verify_model *m) {
  if (!m)
    return;
  free_model(&m->w);
  free(m->bounds);
  free(m);
}

/* ---- precision -------------------------------------------------------------------------------------------------- */

typedef bool node_test(const Onnx__NodeProto *n);

/* Is there such a node, in bodies and functions, too? */
static bool any_node(Onnx__NodeProto **nodes, size_t n, node_test *test) {
  for (size_t i = 0; i < n; i++) {
    if (test(nodes[i]))
      return true;
    for (size_t k = 0; k < nodes[i]->n_attribute; k++) {
      const Onnx__AttributeProto *a = nodes[i]->attribute[k];
      if (a->g && any_node(a->g->node, a->g->n_node, test))
        return true;
      for (size_t j = 0; j < a->n_graphs; j++)
        if (any_node(a->graphs[j]->node, a->graphs[j]->n_node, test))
          return true;
    }
  }
  return false;
}

static bool in_model(const verify_model *m, node_test *test) {
  bool found = any_node(m->w.graph->node, m->w.graph->n_node, test);
  for (size_t i = 0; !found && i < m->w.model->n_functions; i++)
    found = any_node(m->w.model->functions[i]->node, m->w.model->functions[i]->n_node, test);
  return found;
}

static bool rounds(const Onnx__NodeProto *n) {
  return strstr(n->op_type, "QuantizeLinear") == n->op_type || strstr(n->op_type, "DynamicQuantize") == n->op_type ||
         strstr(n->op_type, "QLinear") == n->op_type || strstr(n->op_type, "QAttention") == n->op_type ||
         strstr(n->op_type, "QGemm") == n->op_type;
}

static bool is_half(int type) {
  return type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16 || type == ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16;
}

static bool casts_to_half(const Onnx__NodeProto *n) {
  const Onnx__AttributeProto *to = strcmp(n->op_type, "Cast") ? NULL : qdq_attribute(n, "to");
  return to && is_half((int)to->i);
}

bool verify_model_is_quantised(const verify_model *m) { return in_model(m, rounds); }

static bool is_half_port(const Onnx__ValueInfoProto *v) {
  return v->type && v->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE &&
         is_half(v->type->tensor_type->elem_type);
}

bool verify_model_is_half(const verify_model *m) {
  const Onnx__GraphProto *g = m->w.graph;
  bool half = in_model(m, casts_to_half);
  for (size_t i = 0; !half && i < g->n_initializer; i++)
    half = is_half(g->initializer[i]->data_type);
  for (size_t i = 0; !half && i < g->n_input; i++)
    half = is_half_port(g->input[i]);
  for (size_t i = 0; !half && i < g->n_output; i++)
    half = is_half_port(g->output[i]);
  return half;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------ */

size_t verify_model_nodes(const verify_model *m) { return m->w.graph->n_node; }

const char *verify_model_node(const verify_model *m, size_t i, char *text, size_t room) {
  const Onnx__NodeProto *n = m->w.graph->node[i];
  const char *name = n->name && *n->name ? n->name : n->n_output ? n->output[0] : "";
  snprintf(text, room, "%s '%s'", n->op_type, name);
  return text;
}

const char *verify_model_output_of(const verify_model *m, size_t i, size_t *k) {
  const Onnx__NodeProto *n = m->w.graph->node[i];
  while (*k < n->n_output && !*n->output[*k])
    ++*k;
  return *k < n->n_output ? n->output[(*k)++] : NULL;
}

static bool is_output(const Onnx__GraphProto *g, const char *name) {
  for (size_t i = 0; i < g->n_output; i++)
    if (!strcmp(g->output[i]->name, name))
      return true;
  return false;
}

int verify_model_tap(const char *path, const char *const *taps, size_t n, const char *output, cy_diag_sink *diag) {
  qdq_job job;
  qdq_writer w;
  int status = read_model(&w, &job, path, output, diag);
  for (size_t i = 0; !status && i < n; i++)
    if (!is_output(w.graph, taps[i]))
      qdq_add_output(&w, cy_arena_printf(w.arena, "%s", taps[i]));
  if (!status)
    status = qdq_save(&w);
  free_model(&w);
  return status;
}

/* ---- parts ------------------------------------------------------------------------------------------------------ */

typedef struct name_list {
  const char **list;
  size_t n;
} name_list;

static bool is_in(const name_list *l, const char *name) {
  for (size_t i = 0; i < l->n; i++)
    if (!strcmp(l->list[i], name))
      return true;
  return false;
}

static void add_name(const qdq_writer *w, name_list *l, const char *name) {
  if (name && *name && !is_in(l, name))
    qdq_grow(w, (void ***)&l->list, &l->n, (void *)name);
}

static void list_reads(const qdq_writer *w, const Onnx__NodeProto *n, name_list *out);

/* What a body reads and does not make. */
static void list_body(const qdq_writer *w, const Onnx__GraphProto *g, name_list *out) {
  name_list made = {0}, read = {0};
  for (size_t i = 0; i < g->n_input; i++)
    add_name(w, &made, g->input[i]->name);
  for (size_t i = 0; i < g->n_initializer; i++)
    add_name(w, &made, g->initializer[i]->name);
  for (size_t i = 0; i < g->n_node; i++) {
    list_reads(w, g->node[i], &read);
    for (size_t k = 0; k < g->node[i]->n_output; k++)
      add_name(w, &made, g->node[i]->output[k]);
  }
  for (size_t i = 0; i < g->n_output; i++)
    add_name(w, &read, g->output[i]->name);
  for (size_t i = 0; i < read.n; i++)
    if (!is_in(&made, read.list[i]))
      add_name(w, out, read.list[i]);
}

static void list_reads(const qdq_writer *w, const Onnx__NodeProto *n, name_list *out) {
  for (size_t k = 0; k < n->n_input; k++)
    add_name(w, out, n->input[k]);
  for (size_t k = 0; k < n->n_attribute; k++) {
    if (n->attribute[k]->g)
      list_body(w, n->attribute[k]->g, out);
    for (size_t j = 0; j < n->attribute[k]->n_graphs; j++)
      list_body(w, n->attribute[k]->graphs[j], out);
  }
}

typedef struct part {
  qdq_writer *w;
  bool *kept;       /* [nodes] */
  name_list *reads; /* [nodes] */
  const verify_known *known;
  size_t nknown;
  const verify_known **inputs;
  size_t ninputs;
} part;

static const verify_known *known_of(const part *p, const char *name) {
  for (size_t i = 0; i < p->nknown; i++)
    if (!strcmp(p->known[i].name, name))
      return &p->known[i];
  return NULL;
}

static size_t maker_of(const part *p, const char *name) {
  const Onnx__GraphProto *g = p->w->graph;
  for (size_t i = 0; i < g->n_node; i++)
    for (size_t k = 0; k < g->node[i]->n_output; k++)
      if (!strcmp(g->node[i]->output[k], name))
        return i;
  return g->n_node;
}

static bool is_tensor(const cyto_value *v) { return v->kind == CYTO_TENSOR && v->tensor.dtype; }

/* Must a node's result be made inside the part? What is constant, and what is no tensor that has been seen. */
static bool must_keep(const part *p, size_t node, const char *name) {
  const verify_known *k = known_of(p, name);
  return !strcmp(p->w->graph->node[node]->op_type, "Constant") || !k || !is_tensor(k->value);
}

/* Of nodes first..last those that lead to `wanted`, and whatever in front of them has to be there. */
static void choose_nodes(part *p, size_t first, size_t last, const char *wanted) {
  const Onnx__GraphProto *g = p->w->graph;
  name_list needed = {0};
  add_name(p->w, &needed, wanted);
  for (size_t i = last + 1; i-- > 0;) {
    bool makes = false, must = false;
    for (size_t k = 0; k < g->node[i]->n_output; k++) {
      const char *out = g->node[i]->output[k];
      bool asked = *out && is_in(&needed, out);
      makes |= *out && (wanted ? asked : i >= first);
      must |= asked && must_keep(p, i, out);
    }
    p->kept[i] = i >= first ? makes : must;
    for (size_t k = 0; p->kept[i] && k < p->reads[i].n; k++)
      add_name(p->w, &needed, p->reads[i].list[k]);
  }
}

static bool is_made(const part *p, const char *name) {
  size_t maker = maker_of(p, name);
  return maker < p->w->graph->n_node && p->kept[maker];
}

static bool is_small_int(const cyto_value *v) {
  const cyto_tensor *t = &v->tensor;
  return (t->dtype == CYTO_I64 || t->dtype == CYTO_I32 || t->dtype == CYTO_BOOL) &&
         t->bytes <= SMALL * (uint64_t)cyto_dtype_bits(t->dtype) / 8;
}

static void add_constant(part *p, const char *name, const cyto_tensor *t) {
  qdq_add_initializer(p->w, cy_arena_printf(p->w->arena, "%s", name), t->dtype, t->dims, (size_t)t->rank,
                      cy_arena_copy(p->w->arena, t->data, t->bytes ? t->bytes : 1), t->bytes);
}

static Onnx__ValueInfoProto *tensor_port(const qdq_writer *w, const char *name, const cyto_tensor *t) {
  Onnx__ValueInfoProto *v = CY_NEW(w->arena, Onnx__ValueInfoProto);
  Onnx__TypeProto *type = CY_NEW(w->arena, Onnx__TypeProto);
  Onnx__TypeProto__Tensor *tensor = CY_NEW(w->arena, Onnx__TypeProto__Tensor);
  Onnx__TensorShapeProto *shape = CY_NEW(w->arena, Onnx__TensorShapeProto);
  onnx__value_info_proto__init(v);
  onnx__type_proto__init(type);
  onnx__type_proto__tensor__init(tensor);
  onnx__tensor_shape_proto__init(shape);
  for (int32_t i = 0; i < t->rank; i++) {
    Onnx__TensorShapeProto__Dimension *d = CY_NEW(w->arena, Onnx__TensorShapeProto__Dimension);
    onnx__tensor_shape_proto__dimension__init(d);
    d->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
    d->dim_value = t->dims[i];
    qdq_grow(w, (void ***)&shape->dim, &shape->n_dim, d);
  }
  tensor->has_elem_type = 1;
  tensor->elem_type = t->dtype;
  tensor->shape = shape;
  type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
  type->tensor_type = tensor;
  v->name = cy_arena_printf(w->arena, "%s", name);
  v->type = type;
  return v;
}

static const Onnx__ValueInfoProto *declared(Onnx__ValueInfoProto **list, size_t n, const char *name) {
  for (size_t i = 0; i < n; i++)
    if (!strcmp(list[i]->name, name))
      return list[i];
  return NULL;
}

typedef struct ports {
  Onnx__ValueInfoProto **list;
  size_t n;
} ports;

/* What the part reads of the rest. -1: it is not known. */
static int add_read(part *p, const char *name, ports *in) {
  Onnx__GraphProto *g = p->w->graph;
  if (is_made(p, name) || qdq_initializer(p->w, name) || declared(in->list, in->n, name))
    return 0;
  for (size_t i = 0; i < g->n_sparse_initializer; i++)
    if (g->sparse_initializer[i]->values && !strcmp(g->sparse_initializer[i]->values->name, name))
      return 0;
  const Onnx__ValueInfoProto *own = declared(g->input, g->n_input, name);
  const verify_known *known = known_of(p, name);
  if (!known)
    return qdq_fail(p->w, NULL, NULL, "the reference did not give the value '%s', which the reproducer needs", name);
  if (is_tensor(known->value) && !own && is_small_int(known->value)) {
    add_constant(p, name, &known->value->tensor);
    return 0;
  }
  bool tensor = is_tensor(known->value);
  qdq_grow(p->w, (void ***)&in->list, &in->n,
           tensor ? tensor_port(p->w, name, &known->value->tensor) : (Onnx__ValueInfoProto *)own);
  p->inputs = realloc(p->inputs, sizeof *p->inputs * (p->ninputs + 1));
  if (!p->inputs)
    cy_no_memory();
  p->inputs[p->ninputs++] = known;
  return 0;
}

/* What the part makes and the rest reads, or the model gives. */
static void add_made(part *p, const char *wanted, ports *out) {
  Onnx__GraphProto *g = p->w->graph;
  for (size_t i = 0; i < g->n_node; i++)
    for (size_t k = 0; p->kept[i] && k < g->node[i]->n_output; k++) {
      const char *name = g->node[i]->output[k];
      bool leaves = wanted ? !strcmp(name, wanted) : is_output(g, name);
      for (size_t j = 0; *name && !wanted && !leaves && j < g->n_node; j++)
        leaves = !p->kept[j] && is_in(&p->reads[j], name);
      if (!*name || !leaves)
        continue;
      Onnx__ValueInfoProto *v = (Onnx__ValueInfoProto *)declared(g->output, g->n_output, name);
      const verify_known *known = known_of(p, name);
      if (known && is_tensor(known->value))
        v = tensor_port(p->w, name, &known->value->tensor);
      if (!v) {
        v = CY_NEW(p->w->arena, Onnx__ValueInfoProto);
        onnx__value_info_proto__init(v);
        v->name = (char *)name;
      }
      qdq_grow(p->w, (void ***)&out->list, &out->n, v);
    }
}

static int make_part(part *p, size_t first, size_t last, const char *wanted) {
  qdq_writer *w = p->w;
  Onnx__GraphProto *g = w->graph;
  ports in = {0}, out = {0};
  int status = 0;
  p->kept = CY_NEW_ARRAY(w->arena, bool, g->n_node + 1);
  p->reads = CY_NEW_ARRAY(w->arena, name_list, g->n_node + 1);
  for (size_t i = 0; i < g->n_node; i++)
    list_reads(w, g->node[i], &p->reads[i]);
  choose_nodes(p, first, last, wanted);
  for (size_t i = 0; !status && i < g->n_node; i++)
    for (size_t k = 0; !status && p->kept[i] && k < p->reads[i].n; k++)
      status = add_read(p, p->reads[i].list[k], &in);
  add_made(p, wanted, &out);
  w->nodes = NULL;
  w->nnodes = 0;
  for (size_t i = 0; i < g->n_node; i++)
    if (p->kept[i])
      qdq_grow(w, (void ***)&w->nodes, &w->nnodes, g->node[i]);
  g->input = in.list;
  g->n_input = in.n;
  g->output = out.list;
  g->n_output = out.n;
  g->n_value_info = 0;
  qdq_drop_unused(w);
  g->node = w->nodes;
  g->n_node = w->nnodes;
  return status;
}

int verify_model_cut(const char *path, size_t first, size_t last, const char *wanted, const verify_known *known,
                     size_t nknown, const char *output, const verify_known ***out_inputs, size_t *out_n,
                     size_t *out_nodes, cy_diag_sink *diag) {
  qdq_job job;
  qdq_writer w;
  part p = {.w = &w, .known = known, .nknown = nknown};
  int status = read_model(&w, &job, path, output, diag);
  if (!status)
    status = make_part(&p, first, last, wanted);
  *out_nodes = w.nnodes;
  if (!status)
    status = qdq_save(&w);
  free_model(&w);
  *out_inputs = p.inputs;
  *out_n = p.ninputs;
  return status;
}
