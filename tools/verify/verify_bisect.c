/* SPDX-License-Identifier: Apache-2.0 */
/* verify_bisect.c - `cytoc verify --bisect`: the first layer that leaves the reference, and a small model that shows it.
 *
 * In:  a model one of whose outputs is beyond the limits, a sample. Out: a folder with model.onnx and test_data_set_0, of
 * inputs and of outputs as the reference has them; what it is and how small, on standard output.
 *
 * Method. The reference computes every value of the model. So does the library, all values being outputs of it; the first
 * node with a result beyond the limits is the layer. Where fusion is to blame, these outputs keep it from happening: then
 * values are asked for one at a time, and the layer is found by halving. What it takes to show the fault are the layer alone,
 * or with more and more of the nodes in front of it, and in the end behind it, on inputs that the reference computed. The
 * smallest such part that is beyond the limits when it is verified itself is the reproducer.
 */
#include "verify.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct bisection {
  const cytoc_options *o;
  const verify_model *m;
  verify_kind reference;
  const verify_limits *limits;
  const cyto_model *model;
  const input_sample *sample;
  cy_diag_sink *diag;
  cy_temps *temps;
  const char *tried; /* path of the model that is tried: all of it with taps, or a part */
  const char **names;
  size_t *makers, n;   /* values that nodes make, in their order, and the nodes */
  verify_known *known; /* the sample's inputs, then those of `names` that the reference gave */
  size_t nknown;
  verify_result values; /* of the reference */
} bisection;

static int complain(bisection *b, const char *format, const char *text) {
  cy_location where = {.file = b->o->input, .node_index = -1};
  cy_diag_add(b->diag, CY_ERROR, &where, format, text);
  return -1;
}

/* One side computes a model. NO_MODEL: it takes no such model; FAILED: it does not run, or crashes. *out is to be
 * freed. */
enum { COMPUTED, NO_MODEL, FAILED };
static int compute(const bisection *b, verify_kind kind, const char *source, const input_sample *s, verify_result *out,
                   char why[VERIFY_TEXT]) {
  verify_engine e;
  cytoc_options o = *b->o;
  if (source != b->o->input) {
    o.shapes = (options_list){0}; /* the part's sizes are fixed */
    o.last_logits = NULL;
  }
  int status = verify_engine_open(&e, kind, &o, source, NULL) ? NO_MODEL : COMPUTED;
  *out = (verify_result){0};
  if (!status && (verify_engine_run(&e, s, 1, out) || out->error))
    status = FAILED;
  snprintf(why, VERIFY_TEXT, "%s", out->error ? out->error : e.error);
  verify_engine_close(&e);
  return status;
}

static bool is_beyond(const bisection *b, const cyto_value *is, const cyto_value *expected) {
  char text[200];
  value_errors e = {0};
  errors_add(&e, is, expected);
  return verify_limits_beyond(b->limits, &e, text, sizeof text) != NULL;
}

/* ---- all values ------------------------------------------------------------------------------------------------- */

static void list_names(bisection *b) {
  size_t nodes = verify_model_nodes(b->m), room = 0;
  const char *name;
  for (size_t i = 0; i < nodes; i++)
    for (size_t k = 0; (name = verify_model_output_of(b->m, i, &k));) {
      if (b->n == room) {
        room = room * 2 + 64;
        b->names = realloc(b->names, room * sizeof *b->names);
        b->makers = realloc(b->makers, room * sizeof *b->makers);
        if (!b->names || !b->makers)
          cy_no_memory();
      }
      b->names[b->n] = name;
      b->makers[b->n++] = i;
    }
}

/* Where value `name` is among the outputs of the model with `taps` behind its own. -1: nowhere. */
static int32_t output_index(const bisection *b, const char *const *taps, size_t n, const char *name) {
  int32_t own = cyto_model_output_count(b->model), at = own;
  for (int32_t i = 0; i < own; i++) {
    cyto_port port;
    cyto_model_output(b->model, i, &port);
    if (!strcmp(port.name, name))
      return i;
  }
  for (size_t i = 0; i < n; i++) {
    bool is_own = output_index(b, NULL, 0, taps[i]) >= 0;
    if (!strcmp(taps[i], name))
      return is_own ? -1 : at;
    at += !is_own;
  }
  return -1;
}

static void add_known(bisection *b, const char *name, const cyto_value *value) {
  b->known[b->nknown++] = (verify_known){name, value};
}

static int ask_reference(bisection *b) {
  char why[VERIFY_TEXT];
  if (verify_model_tap(b->o->input, b->names, b->n, b->tried, b->diag))
    return -1;
  if (compute(b, b->reference, b->tried, b->sample, &b->values, why))
    return complain(b, "--bisect: the reference cannot give the values inside the model: %s", why);
  b->known = calloc(b->n + (size_t)b->sample->n + 1, sizeof *b->known);
  if (!b->known)
    cy_no_memory();
  for (int32_t k = 0; k < b->sample->n; k++) {
    cyto_port port;
    cyto_model_input(b->model, k, &port);
    if (b->sample->inputs[k].kind != CYTO_TENSOR || b->sample->inputs[k].tensor.dtype)
      add_known(b, port.name, &b->sample->inputs[k]);
  }
  for (size_t i = 0; i < b->n; i++) {
    int32_t at = output_index(b, b->names, b->n, b->names[i]);
    if (at >= 0 && at < b->values.n)
      add_known(b, b->names[i], &b->values.outputs[at]);
  }
  return 0;
}

static const cyto_value *expected_of(const bisection *b, const char *name) {
  for (size_t i = 0; i < b->nknown; i++)
    if (!strcmp(b->known[i].name, name))
      return b->known[i].value;
  return NULL;
}

/* The first of all values that is beyond, when the library gives them all. b->n: none is, or it does not run so. */
static size_t first_of_all(bisection *b) {
  char why[VERIFY_TEXT];
  verify_result ours;
  size_t found = b->n;
  if (!compute(b, VERIFY_OURS, b->tried, b->sample, &ours, why))
    for (size_t i = 0; i < b->n && found == b->n; i++) {
      int32_t at = output_index(b, b->names, b->n, b->names[i]);
      const cyto_value *expected = expected_of(b, b->names[i]);
      if (at >= 0 && at < ours.n && expected && is_beyond(b, &ours.outputs[at], expected))
        found = i;
    }
  verify_results_free(&ours, 1);
  return found;
}

/* Is value i beyond, when it is the only one that is asked for besides the outputs? */
static bool alone_beyond(bisection *b, size_t i) {
  char why[VERIFY_TEXT];
  verify_result ours;
  const cyto_value *expected = expected_of(b, b->names[i]);
  if (!expected || verify_model_tap(b->o->input, &b->names[i], 1, b->tried, b->diag))
    return false;
  int32_t at = output_index(b, &b->names[i], 1, b->names[i]);
  bool beyond = compute(b, VERIFY_OURS, b->tried, b->sample, &ours, why) ||
                (at >= 0 && at < ours.n && is_beyond(b, &ours.outputs[at], expected));
  verify_results_free(&ours, 1);
  return beyond;
}

/* By halving: the first value that is beyond, one at a time. The last one is if none before it is. */
static size_t first_by_halves(bisection *b) {
  size_t low = 0, high = b->n - 1;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (alone_beyond(b, middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* ---- the reproducer --------------------------------------------------------------------------------------------- */

typedef struct part {
  size_t first, last, nodes;
  const char *wanted; /* NULL: all that is read outside */
  input_sample sample;
  verify_result expected;
} part;

static void part_free(part *p) {
  free(p->sample.inputs); /* the values are others' */
  verify_results_free(&p->expected, 1);
  p->sample = (input_sample){0};
}

/* The part as a model with inputs; what it gives in both. 1: beyond the limits. 0: within, or it is no model. */
static int try_part(bisection *b, part *p) {
  char why[VERIFY_TEXT];
  const verify_known **inputs = NULL;
  size_t n = 0;
  verify_result ours = {0};
  int beyond = 0;
  cy_diag_sink *quiet = cy_diag_create();
  int status = verify_model_cut(b->o->input, p->first, p->last, p->wanted, b->known, b->nknown, b->tried, &inputs, &n,
                                &p->nodes, quiet);
  cy_diag_destroy(quiet);
  p->sample.inputs = calloc(n + 1, sizeof *p->sample.inputs);
  if (!p->sample.inputs)
    cy_no_memory();
  for (size_t i = 0; i < n; i++)
    p->sample.inputs[i] = *inputs[i]->value;
  p->sample.n = (int32_t)n;
  free(inputs);
  if (!status && !compute(b, b->reference, b->tried, &p->sample, &p->expected, why)) {
    beyond = compute(b, VERIFY_OURS, b->tried, &p->sample, &ours, why) == FAILED;
    for (int32_t i = 0; !beyond && i < ours.n && i < p->expected.n; i++)
      beyond = is_beyond(b, &ours.outputs[i], &p->expected.outputs[i]);
    verify_results_free(&ours, 1);
  }
  if (!beyond)
    part_free(p);
  return beyond;
}

/* The smallest part that shows it: the layer, with ever more in front of it, then behind it. */
static int find_part(bisection *b, size_t layer, const char *wanted, part *out) {
  size_t last = verify_model_nodes(b->m) - 1, shown = layer + 1, hidden = layer + 1;
  for (size_t front = 0; shown > layer; front = front * 2 + 1) {
    *out = (part){.first = front < layer ? layer - front : 0, .last = layer, .wanted = wanted};
    if (try_part(b, out))
      shown = out->first;
    else if (!out->first)
      break;
    else
      hidden = out->first;
  }
  while (shown <= layer && shown + 1 < hidden) {
    part less = {.first = shown + (hidden - shown) / 2, .last = layer, .wanted = wanted};
    if (try_part(b, &less)) {
      part_free(out);
      *out = less;
      shown = less.first;
    } else
      hidden = less.first;
  }
  if (shown <= layer) /* the part that was tried last may be another one */
    return part_free(out), try_part(b, out);
  for (size_t behind = 1;; behind *= 2) {
    size_t end = layer + behind < last ? layer + behind : last;
    for (size_t front = 0;; front = front * 2 + 1) {
      *out = (part){.first = front < layer ? layer - front : 0, .last = end};
      if (try_part(b, out))
        return 1;
      if (!out->first)
        break;
    }
    if (end == last)
      return 0;
  }
}

/* ---- writing it ------------------------------------------------------------------------------------------------- */

static int make_folder(bisection *b, const char *folder) {
  return mkdir(folder, 0777) && errno != EEXIST ? complain(b, "--bisect: cannot make the folder '%s'", folder) : 0;
}

static int write_values(bisection *b, const char *folder, const char *kind, const char *json_kind,
                        const cyto_value *values, int32_t n) {
  for (int32_t i = 0; i < n; i++) {
    char path[4200], error[TENSOR_ERROR_SIZE];
    const cyto_tensor *t = &values[i].tensor;
    host_tensor tensor = {.dtype = t->dtype, .rank = t->rank, .data = t->data, .bytes = (size_t)t->bytes};
    memcpy(tensor.dims, t->dims, sizeof tensor.dims);
    bool is_tensor = values[i].kind == CYTO_TENSOR;
    snprintf(path, sizeof path, is_tensor ? "%s/%s_%d.pb" : "%s/%s_%d_value.json", folder, is_tensor ? kind : json_kind,
             i);
    if (is_tensor ? tensor_pb_write(path, "", &tensor, error) : value_json_write(path, &values[i], error))
      return complain(b, "--bisect: %s", error);
  }
  return 0;
}

static int write_reproducer(bisection *b, const part *p, const char *folder) {
  char model[4200], data[4200];
  const verify_known **inputs = NULL;
  size_t n, nodes;
  snprintf(model, sizeof model, "%s/model.onnx", folder);
  snprintf(data, sizeof data, "%s/test_data_set_0", folder);
  if (make_folder(b, folder) || make_folder(b, data))
    return -1;
  int status = verify_model_cut(b->o->input, p->first, p->last, p->wanted, b->known, b->nknown, model, &inputs, &n,
                                &nodes, b->diag);
  free(inputs);
  if (status || write_values(b, data, "input", "in", p->sample.inputs, p->sample.n))
    return -1;
  return write_values(b, data, "output", "out", p->expected.outputs, p->expected.n);
}

static void tell(const bisection *b, size_t layer, const part *p, const char *folder) {
  char text[300];
  printf("first layer beyond the limits: %s\n", verify_model_node(b->m, layer, text, sizeof text));
  printf("reproducer: '%s/model.onnx', %zu of %zu nodes", folder, p->nodes, verify_model_nodes(b->m));
  if (p->nodes > 1)
    printf(", as the layer alone is within the limits on the reference's inputs");
  printf("\n  cytoc verify %s/model.onnx --inputs %s/test_data_set_0 with the same options\n", folder, folder);
}

static int bisect(bisection *b, const char *folder) {
  part p = {0};
  list_names(b);
  if (!b->n)
    return complain(b, "--bisect: the model has no nodes%s", "");
  if (ask_reference(b))
    return -1;
  size_t at = first_of_all(b);
  if (at == b->n)
    at = first_by_halves(b);
  if (!find_part(b, b->makers[at], b->names[at], &p))
    return complain(b, "--bisect: no part of the model shows the fault by itself%s", "");
  int status = write_reproducer(b, &p, folder);
  if (!status)
    tell(b, b->makers[at], &p, folder);
  part_free(&p);
  return status;
}

int verify_bisect(const cytoc_options *o, const verify_model *m, verify_kind reference, const verify_limits *limits,
                  const cyto_model *model, const input_sample *sample, const char *folder, cy_diag_sink *diag) {
  bisection b = {
      .o = o, .m = m, .reference = reference, .limits = limits, .model = model, .sample = sample, .diag = diag};
  b.temps = cy_temps_create(diag);
  if (!b.temps)
    return -1;
  b.tried = cy_temps_file(b.temps, "tried.onnx");
  cy_temps_file(b.temps, "tried.onnx.data");
  int status = bisect(&b, folder);
  verify_results_free(&b.values, 1);
  free(b.known);
  free(b.names);
  free(b.makers);
  cy_temps_destroy(b.temps);
  return status;
}
