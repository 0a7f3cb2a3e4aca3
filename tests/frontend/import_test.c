/* SPDX-License-Identifier: Apache-2.0 */
/* import_test.c - the importer on small models made here: what must import, and what must be refused with which words.
 *
 * Models are built with the generated protobuf-c structures and packed into memory. Every refused case checks a part of
 * the diagnostic and that there is no graph. Then: a valid model cut at every byte, and messages nested 10,000 deep,
 * must not crash. Every model of ../shared/models (or models/ in $CYTO_SHARED) must give a graph or a diagnostic.
 * Besides: no row of the table of operators stands twice.
 */
#include "frontend/frontend.h"
#include "onnx.pb-c.h"
#include "tests/check.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NODES 8

typedef struct model {
  Onnx__ModelProto m;
  Onnx__GraphProto g;
  Onnx__OperatorSetIdProto opset, *opsets[1];
  Onnx__NodeProto node[MAX_NODES], *nodes[MAX_NODES];
  char *in[MAX_NODES][3], *out[MAX_NODES][2];
  Onnx__AttributeProto attr, *attrs[1];
  Onnx__ValueInfoProto port[2], *inputs[1], *outputs[1];
  Onnx__TypeProto type;
  Onnx__TypeProto__Tensor tensor;
  Onnx__TensorShapeProto shape;
  Onnx__TensorShapeProto__Dimension dim[4], *dims[4];
  Onnx__TensorProto init, *inits[1];
  int64_t init_dims[4];
  Onnx__FunctionProto fn, *fns[1];
} model;

/* x: f32[2,n] -> y, without nodes. */
static model *new_model(void) {
  model *m = calloc(1, sizeof *m);
  onnx__model_proto__init(&m->m);
  onnx__graph_proto__init(&m->g);
  onnx__operator_set_id_proto__init(&m->opset);
  m->opset.has_version = 1;
  m->opset.version = 17;
  m->opsets[0] = &m->opset;
  m->m.opset_import = m->opsets;
  m->m.n_opset_import = 1;
  m->m.graph = &m->g;
  m->g.name = "g";
  onnx__type_proto__init(&m->type);
  onnx__type_proto__tensor__init(&m->tensor);
  onnx__tensor_shape_proto__init(&m->shape);
  m->type.value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
  m->type.tensor_type = &m->tensor;
  m->tensor.has_elem_type = 1;
  m->tensor.elem_type = 1;
  m->tensor.shape = &m->shape;
  m->shape.n_dim = 2;
  m->shape.dim = m->dims;
  for (int i = 0; i < 4; i++) {
    onnx__tensor_shape_proto__dimension__init(&m->dim[i]);
    m->dims[i] = &m->dim[i];
  }
  m->dim[0].value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
  m->dim[0].dim_value = 2;
  m->dim[1].value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
  m->dim[1].dim_param = "n";
  for (int i = 0; i < 2; i++) {
    onnx__value_info_proto__init(&m->port[i]);
    m->port[i].name = i ? "y" : "x";
    m->port[i].type = &m->type;
  }
  m->inputs[0] = &m->port[0];
  m->outputs[0] = &m->port[1];
  m->g.input = m->inputs;
  m->g.output = m->outputs;
  m->g.n_input = m->g.n_output = 1;
  m->g.node = m->nodes;
  return m;
}

static Onnx__NodeProto *add_node(model *m, const char *op, const char *in0, const char *in1, const char *out) {
  size_t k = m->g.n_node++;
  Onnx__NodeProto *n = m->nodes[k] = &m->node[k];
  onnx__node_proto__init(n);
  n->op_type = (char *)op;
  m->in[k][0] = (char *)in0;
  m->in[k][1] = (char *)in1;
  m->out[k][0] = (char *)out;
  n->input = m->in[k];
  n->n_input = (in0 != NULL) + (in1 != NULL);
  n->output = m->out[k];
  n->n_output = 1;
  return n;
}

static void add_initializer(model *m, int64_t d0, int64_t d1) {
  onnx__tensor_proto__init(&m->init);
  m->init.name = "w";
  m->init_dims[0] = d0;
  m->init_dims[1] = d1;
  m->init.dims = m->init_dims;
  m->init.n_dims = 2;
  m->init.has_data_type = 1;
  m->init.data_type = 1;
  m->inits[0] = &m->init;
  m->g.initializer = m->inits;
  m->g.n_initializer = 1;
}

static void set_int(model *m, Onnx__NodeProto *n, const char *name, int64_t v) {
  onnx__attribute_proto__init(&m->attr);
  m->attr.name = (char *)name;
  m->attr.has_type = m->attr.has_i = 1;
  m->attr.type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
  m->attr.i = v;
  m->attrs[0] = &m->attr;
  n->attribute = m->attrs;
  n->n_attribute = 1;
}

static char *diag_text(cy_diag_sink *sink) {
  char *text = NULL;
  size_t size;
  FILE *f = open_memstream(&text, &size);
  cy_diag_print(sink, f);
  fclose(f);
  return text;
}

/* Imports; `expect` NULL: there must be a graph; else the diagnostics must contain it. Frees the model. */
static void check_with(const char *what, model *m, const char *expect, const cy_import_options *o) {
  size_t size = onnx__model_proto__get_packed_size(&m->m);
  uint8_t *bytes = malloc(size + 1);
  onnx__model_proto__pack(&m->m, bytes);
  cy_diag_sink *sink = cy_diag_create();
  cy_graph *g = cy_import_memory(bytes, size, "test.onnx", o, sink);
  char *text = diag_text(sink);
  bool ok = expect ? !g && strstr(text, expect) : g != NULL && cy_diag_errors(sink) == 0;
  if (!ok)
    CHECK_FAIL("%s: expected %s, found %s\n%s", what, expect ? expect : "a graph", g ? "a graph" : "none", text);
  free(text);
  if (g)
    cy_graph_destroy(g);
  cy_diag_destroy(sink);
  free(bytes);
  free(m);
}

static void check(const char *what, model *m, const char *expect) { check_with(what, m, expect, NULL); }

static void test_structure(void) {
  model *m = new_model();
  add_node(m, "Relu", "x", NULL, "y");
  check("one node", m, NULL);
  m = new_model();
  add_node(m, "Relu", "t", NULL, "y");
  add_node(m, "Exp", "x", NULL, "t");
  check("unsorted nodes", m, NULL);
  m = new_model();
  add_node(m, "Add", "x", "b", "a");
  add_node(m, "Relu", "a", NULL, "b");
  add_node(m, "Relu", "b", NULL, "y");
  check("cycle", m, "cycle of 2 nodes");
  m = new_model();
  add_node(m, "Add", "x", "nowhere", "y");
  check("dangling name", m, "'nowhere'");
  m = new_model();
  add_node(m, "Relu", "x", NULL, "y");
  add_node(m, "Exp", "x", NULL, "y");
  check("duplicate output", m, "two nodes produce this name");
  m = new_model();
  add_node(m, "Relu", "x", NULL, "z");
  check("output that nobody makes", m, "nothing produces this output");
  m = new_model();
  m->m.graph = NULL;
  check("no graph", m, "no graph");
}

static void test_operators(void) {
  model *m = new_model();
  add_node(m, "Frobnicate", "x", NULL, "t");
  add_node(m, "Wobble", "t", NULL, "y")->domain = "org.example";
  check("unknown domain", m, "'org.example'");
  m = new_model();
  add_node(m, "Frobnicate", "x", NULL, "t");
  add_node(m, "Wobble", "t", NULL, "y");
  check("both unknown ops are named", m, "'Wobble'");
  m = new_model();
  m->opset.version = 999;
  add_node(m, "Relu", "x", NULL, "y");
  check("opset 999", m, "opset version 999");
  m = new_model();
  add_node(m, "Add", "x", NULL, "y");
  check("missing input", m, "input 1 is missing");
  m = new_model();
  set_int(m, add_node(m, "LeakyRelu", "x", NULL, "y"), "alpha", 1);
  check("wrong attribute type", m, "expected an attribute of type float, found int");
  m = new_model();
  set_int(m, add_node(m, "Concat", "x", "x", "y"), "axis", 7);
  check("axis out of range", m, "axis 7");
}

static void test_tensors(void) {
  model *m = new_model();
  add_initializer(m, (int64_t)1 << 62, 4);
  add_node(m, "Add", "x", "w", "y");
  check("dims of 2^62", m, "overflows");
  m = new_model();
  add_initializer(m, -3, 4);
  add_node(m, "Add", "x", "w", "y");
  check("negative dims", m, "negative");
  m = new_model();
  add_initializer(m, 2, 4);
  add_node(m, "Add", "x", "w", "y");
  check("no data", m, "need 32 bytes");
  m = new_model();
  add_initializer(m, 0, 4);
  add_node(m, "Concat", "x", "x", "y");
  set_int(m, &m->node[0], "axis", 0);
  check("empty tensor", m, NULL);
  static Onnx__StringStringEntryProto entry, *entries[1] = {&entry};
  onnx__string_string_entry_proto__init(&entry);
  entry.key = "location";
  entry.value = "../secret";
  m = new_model();
  add_initializer(m, 2, 4);
  m->init.has_data_location = 1;
  m->init.data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
  m->init.external_data = entries;
  m->init.n_external_data = 1;
  add_node(m, "Add", "x", "w", "y");
  check("external data in memory", m, "external data");
  m = new_model();
  m->dim[0].dim_value = (int64_t)1 << 62;
  add_node(m, "Relu", "x", NULL, "y");
  check("input of 2^62", m, "too large");
}

static void test_options(void) {
  const char *good = "x=2x5", *wrong = "x=3x5", *rank = "x=2x5x1", *dim = "n=4", *unknown = "m=4";
  const struct {
    const char *shape, *dim, *expect;
  } cases[] = {{good, NULL, NULL},        {wrong, NULL, "declares 2"}, {rank, NULL, "3 dimensions"},
               {NULL, dim, NULL},         {NULL, unknown, "'m'"},      {"z=1", NULL, "name of an input"},
               {good, dim, "given twice"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    cy_import_options o = {.dims = &cases[i].dim,
                           .ndims = cases[i].dim != NULL,
                           .shapes = &cases[i].shape,
                           .nshapes = cases[i].shape != NULL};
    model *m = new_model();
    add_node(m, "Relu", "x", NULL, "y");
    check_with("options", m, cases[i].expect, &o);
  }
}

static void test_functions(void) {
  for (int recursive = 0; recursive < 2; recursive++) {
    model *m = new_model();
    static char *in[1] = {"a"}, *out[1] = {"b"};
    add_node(m, "F", "x", NULL, "y")->domain = "local";
    add_node(m, recursive ? "F" : "Relu", "a", NULL, "b")->domain = recursive ? "local" : "";
    m->g.n_node = 1;
    onnx__function_proto__init(&m->fn);
    m->fn.name = "F";
    m->fn.domain = "local";
    m->fn.input = in;
    m->fn.output = out;
    m->fn.n_input = m->fn.n_output = m->fn.n_node = 1;
    m->fn.node = m->nodes + 1;
    m->fns[0] = &m->fn;
    m->m.functions = m->fns;
    m->m.n_functions = 1;
    check("function", m, recursive ? "recursive" : NULL);
  }
}

static void import_bytes(const uint8_t *bytes, size_t size) {
  uint8_t *exact = malloc(size ? size : 1); /* so that a sanitizer sees reads beyond the end */
  memcpy(exact, bytes, size);
  cy_diag_sink *sink = cy_diag_create();
  cy_graph *g = cy_import_memory(exact, size, "cut.onnx", NULL, sink);
  if (!g && cy_diag_errors(sink) == 0)
    CHECK_FAIL("refused without a diagnostic");
  if (g)
    cy_graph_destroy(g);
  cy_diag_destroy(sink);
  free(exact);
}

static void test_hostile(void) {
  model *m = new_model();
  add_node(m, "Relu", "x", NULL, "y");
  uint8_t bytes[1024];
  size_t size = onnx__model_proto__pack(&m->m, bytes);
  for (size_t n = 0; n <= size; n++)
    import_bytes(bytes, n);
  for (size_t i = 0; i < size; i++)
    for (int bit = 0; bit < 8; bit++) {
      bytes[i] ^= (uint8_t)(1 << bit);
      import_bytes(bytes, size);
      bytes[i] ^= (uint8_t)(1 << bit);
    }
  free(m);
  /* graph -> node -> attribute -> graph .. : each level is a length-delimited field around the next */
  enum { LEVELS = 10000 };
  uint8_t *deep = malloc(LEVELS * 8 + 16), *p = deep + LEVELS * 8;
  for (int i = LEVELS; i-- > 0;) {
    uint8_t tag = i == 0 ? 7 << 3 | 2 : i % 3 == 1 ? 1 << 3 | 2 : i % 3 == 2 ? 5 << 3 | 2 : 6 << 3 | 2;
    uint64_t len = (uint64_t)(deep + LEVELS * 8 - p);
    uint8_t head[11] = {tag};
    int n = 1;
    for (; len >= 128; len >>= 7)
      head[n++] = (uint8_t)(len | 128);
    head[n++] = (uint8_t)len;
    p -= n;
    memcpy(p, head, (size_t)n);
  }
  import_bytes(p, (size_t)(deep + LEVELS * 8 - p));
  free(deep);
}

static void test_models(void) {
  const char *shared = getenv("CYTO_SHARED");
  char folder[2048];
  snprintf(folder, sizeof folder, "%s/models", shared ? shared : "../shared");
  DIR *d = opendir(folder);
  if (!d)
    CHECK_SKIP("there are no models in ../shared or $CYTO_SHARED");
  int graphs = 0, refused = 0;
  for (struct dirent *e; (e = readdir(d)) != NULL;) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s/model.onnx", folder, e->d_name);
    FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "rb");
    if (!f)
      continue;
    fclose(f);
    cy_diag_sink *sink = cy_diag_create();
    cy_graph *g = cy_import_file(path, NULL, sink);
    graphs += g != NULL;
    refused += g == NULL;
    if (!g == !cy_diag_errors(sink) || (g && strncmp(e->d_name, "neg_", 4) == 0))
      CHECK_FAIL("%s: %s", path, g ? "a graph, expected a diagnostic" : "neither a graph nor an error");
    if (g)
      cy_graph_destroy(g);
    cy_diag_destroy(sink);
  }
  closedir(d);
  printf("%s: %d models imported, %d refused with a diagnostic\n", folder, graphs, refused);
}

/* No two rows of onnx_ops.def serve the same domain, op type and version: the table would silently take one of them. */
static void test_table(void) {
  static const struct {
    const char *domain, *op;
    int since;
  } rows[] = {
#define ONNX_OP(domain, op, since, need, fn, arg) {#domain, op, since},
#include "frontend/onnx_ops.def"
#undef ONNX_OP
  };
  size_t n = sizeof rows / sizeof rows[0];
  for (size_t i = 0; i < n; i++)
    for (size_t j = 0; j < i; j++)
      if (rows[i].since == rows[j].since && !strcmp(rows[i].op, rows[j].op) && !strcmp(rows[i].domain, rows[j].domain))
        CHECK_FAIL("onnx_ops.def: two rows for %s %s since %d", rows[i].domain, rows[i].op, rows[i].since);
}

static const check_test tests[] = {{"table", test_table},         {"structure", test_structure},
                                   {"operators", test_operators}, {"tensors", test_tensors},
                                   {"options", test_options},     {"functions", test_functions},
                                   {"hostile", test_hostile},     {"models", test_models}};

int main(int argc, char **argv) { return check_main(argc, argv, tests, CHECK_COUNT(tests)); }
