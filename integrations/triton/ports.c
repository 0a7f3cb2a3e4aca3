/* SPDX-License-Identifier: Apache-2.0 */
/* ports.c - inputs and outputs of a library as Triton sees them.
 *
 * In:  an opened library. Out: its ports with Triton's types; which outputs become an input again; whether there is a batch.
 */
#include "integrations/triton/backend.h"

#include "ir/nearest.h"

#include <stdlib.h>
#include <string.h>

static const struct type {
  int32_t dtype;
  int number;
  const char *name;
} types[] = {
#define X(dtype, number, name) {dtype, number, name},
    TRITON_TYPE_ROWS(X)
#undef X
};
enum { TYPES = sizeof types / sizeof types[0] };

int type_of_dtype(int32_t dtype) {
  for (int i = 0; i < TYPES; i++)
    if (types[i].dtype == dtype)
      return types[i].number;
  return 0;
}

static const struct type *type_at(int number) {
  for (int i = 0; i < TYPES; i++)
    if (types[i].number == number)
      return &types[i];
  return NULL;
}

const char *type_name(int type) {
  const struct type *t = type_at(type);
  return t ? t->name : "TYPE_INVALID";
}

int32_t type_bytes(int type) {
  const struct type *t = type_at(type);
  return t ? cyto_dtype_bits(t->dtype) / 8 : 0;
}

/* ---- the library's ---- */

static triton_error *read_ports(const model *m, int32_t n, port **out,
                                cyto_status (*get)(const cyto_model *, int32_t, cyto_port *)) {
  port *ports = *out = calloc((size_t)n + 1, sizeof *ports);
  if (!ports)
    return out_of_memory();
  for (int32_t i = 0; i < n; i++) {
    ports[i] = (port){.index = i, .twin = -1};
    get(m->library, i, &ports[i].at);
    if (ports[i].at.type->kind == CYTO_TENSOR)
      ports[i].type = type_of_dtype(ports[i].at.dtype);
  }
  return NULL;
}

/* An input that cannot be sent makes a model useless; an output that cannot is left out. */
static triton_error *check_ports(const model *m) {
  for (int32_t i = 0; i < m->n_inputs; i++)
    if (!m->inputs[i].type && !m->inputs[i].at.is_optional)
      return error_of(TRITON_UNSUPPORTED,
                      "input '%s' is %s, which Triton cannot send: expected a tensor of integers, floats, booleans or "
                      "strings",
                      m->inputs[i].at.name,
                      m->inputs[i].at.type->kind == CYTO_TENSOR ? cyto_dtype_name(m->inputs[i].at.dtype) : "no tensor");
  int32_t served = 0;
  for (int32_t i = 0; i < m->n_outputs; i++)
    if (m->outputs[i].type)
      served++;
    else
      log_line(TRITON_LOG_WARN, "model '%s': output '%s' is left out: Triton has no type for it", m->name,
               m->outputs[i].at.name);
  return served ? NULL : error_of(TRITON_UNSUPPORTED, "no output of the model is a tensor that Triton can send");
}

triton_error *ports_read(model *m) {
  m->n_inputs = cyto_model_input_count(m->library);
  m->n_outputs = cyto_model_output_count(m->library);
  TRY(read_ports(m, m->n_inputs, &m->inputs, cyto_model_input));
  TRY(read_ports(m, m->n_outputs, &m->outputs, cyto_model_output));
  return check_ports(m);
}

port *port_find(port *ports, int32_t n, const char *name) {
  for (int32_t i = 0; i < n; i++)
    if (!strcmp(ports[i].at.name, name))
      return &ports[i];
  return NULL;
}

const char *port_names(const port *ports, int32_t n, const char *wanted, char text[512]) {
  char near[CY_NEAREST_TEXT];
  cy_nearest nearest = cy_nearest_of(wanted, strlen(wanted));
  for (int32_t i = 0; i < n; i++)
    cy_nearest_try(&nearest, ports[i].at.name, strlen(ports[i].at.name));
  int used = snprintf(text, 512, "%s (there are", cy_nearest_say(&nearest, near));
  for (int32_t i = 0; i < n && used < 400; i++)
    used += snprintf(text + used, 512 - (size_t)used, "%s '%.80s'", i ? "," : "", ports[i].at.name);
  snprintf(text + used, 512 - (size_t)used, ")");
  return text;
}

const char *port_shape(const port *p, char text[512]) {
  int used = snprintf(text, 512, "[");
  for (int32_t d = 0; d < p->at.rank && used < 400; d++) {
    const char *comma = d ? "," : "";
    if (p->at.dims[d] < 0 && *p->at.dim_names[d])
      used += snprintf(text + used, 512 - (size_t)used, "%s%.60s", comma, p->at.dim_names[d]);
    else
      used += snprintf(text + used, 512 - (size_t)used, "%s%lld", comma, (long long)p->at.dims[d]);
  }
  snprintf(text + used, 512 - (size_t)used, "]");
  return text;
}

/* ---- states ---- */

/* How exporters and people name a state before and after: {before, after}, each with what stands in front of and behind a
 * common part. */
static const struct pair {
  const char *in[2], *out[2];
} pairs[] = {{{"past", ""}, {"present", ""}}, {{"past_key_values", ""}, {"present", ""}},
             {{"", "_in"}, {"", "_out"}},     {{"", ""}, {"", "_out"}},
             {{"", ""}, {"", "_new"}},        {{"", ""}, {"", "_next"}},
             {{"", ""}, {"new_", ""}},        {{"", ""}, {"next_", ""}},
             {{"", ""}, {"", "N"}},           {{"", ""}, {"", "n"}},
             {{"", "0"}, {"", "n"}},          {{"", "_0"}, {"", "_n"}},
             {{"", "_prev"}, {"", "_next"}},  {{"prev_", ""}, {"next_", ""}},
             {{"old_", ""}, {"new_", ""}},    {{"initial_", ""}, {"final_", ""}},
             {{"hi", ""}, {"ho", ""}},        {{"ci", ""}, {"co", ""}}};

/* The part between, or false. */
static bool middle_of(const char *name, const char *const around[2], const char **part, size_t *length) {
  size_t n = strlen(name), front = strlen(around[0]), back = strlen(around[1]);
  if (n < front + back || strncmp(name, around[0], front) || strcmp(name + n - back, around[1]))
    return false;
  *part = name + front;
  *length = n - front - back;
  return true;
}

static bool are_named_so(const char *in, const char *out) {
  for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
    const char *a, *b;
    size_t n, m;
    if (middle_of(in, pairs[i].in, &a, &n) && middle_of(out, pairs[i].out, &b, &m) && n == m && !memcmp(a, b, n) &&
        n + strlen(pairs[i].in[0]) > 0)
      return true;
  }
  return false;
}

/* Every fixed dim is the same one. */
static bool have_one_type(const cyto_port *a, const cyto_port *b) {
  if (a->dtype != b->dtype || a->rank != b->rank)
    return false;
  for (int32_t d = 0; d < a->rank; d++)
    if (a->dims[d] >= 0 && b->dims[d] >= 0 && a->dims[d] != b->dims[d])
      return false;
  return true;
}

bool port_grows(const port *in, const port *out, int32_t dim) {
  if (out->at.grown_input == in->index)
    return dim == out->at.grown_axis;
  return in->at.dims[dim] < 0 && out->at.dims[dim] < 0 && strcmp(in->at.dim_names[dim], out->at.dim_names[dim]);
}

int32_t port_twin(const model *m, const port *output) {
  if (output->at.grown_input >= 0)
    return output->at.grown_input;
  if (output->at.shared_input >= 0)
    return output->at.shared_input;
  for (int32_t i = 0; i < m->n_inputs; i++)
    if (have_one_type(&m->inputs[i].at, &output->at) && are_named_so(m->inputs[i].at.name, output->at.name))
      return i;
  return -1;
}

/* ---- batches ---- */

/* A first dim that is open may be anything: rows of a graph, steps of time. */
static bool names_batch(const char *name) {
  static const char *const whole[] = {"N", "n", "B", "b", "bs", "BS"};
  for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++)
    if (!strcmp(name, whole[i]))
      return true;
  return strstr(name, "batch") || strstr(name, "Batch") || strstr(name, "BATCH");
}

static bool starts_with(const port *p, const char *symbol) {
  return p->at.rank > 0 && p->at.dims[0] < 0 && !p->at.is_dynamic && !strcmp(p->at.dim_names[0], symbol);
}

bool ports_are_batched(const model *m) {
  const char *symbol = m->n_inputs && m->inputs[0].at.rank > 0 ? m->inputs[0].at.dim_names[0] : "";
  if (!names_batch(symbol))
    return false;
  for (int32_t i = 0; i < m->n_inputs; i++)
    if (!m->inputs[i].is_control && !starts_with(&m->inputs[i], symbol))
      return false;
  for (int32_t i = 0; i < m->n_outputs; i++)
    if (m->outputs[i].type && !starts_with(&m->outputs[i], symbol))
      return false;
  return true;
}
