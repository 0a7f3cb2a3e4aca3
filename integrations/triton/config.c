/* SPDX-License-Identifier: Apache-2.0 */
/* config.c - a model's configuration, config.pbtxt, as JSON.
 *
 * In:  what the user wrote, or nothing; the opened library.
 * Out: inputs, outputs, the size of batches, states and the kind of instances, where the configuration leaves them open; errors
 *      where it says something else than the library. What is written counts: nothing of it is changed.
 *
 * In batches (max_batch_size above 0) the first dim of all tensors is the batch, and the configuration leaves it out.
 * Triton knows no tensors without dims: those are [1] there, in batches with an empty `reshape`.
 */
#include "integrations/triton/backend.h"

#include "ir/nearest.h"

#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

triton_error *config_read(config *c, triton_model *model) {
  triton_message *message;
  const char *text;
  size_t bytes;
  json_error_t where;
  *c = (config){.file = ""};
  TRY(TRITONBACKEND_ModelConfig(model, 1, &message));
  triton_error *error = TRITONSERVER_MessageSerializeToJson(message, &text, &bytes);
  if (!error && !(c->root = json_loadb(text, bytes, 0, &where)))
    error = error_of(TRITON_INTERNAL, "the configuration cannot be read: %s", where.text);
  ignore(TRITONSERVER_MessageDelete(message));
  if (error)
    return error;
  const char *file = json_string_value(json_object_get(c->root, "default_model_filename"));
  c->file = file ? file : "";
  size_t i;
  json_t *group;
  json_array_foreach(json_object_get(c->root, "instance_group"), i, group) {
    const char *kind = json_string_value(json_object_get(group, "kind"));
    c->gpu = c->gpu || (kind && !strcmp(kind, "KIND_GPU"));
  }
  return NULL;
}

void config_free(config *c) { json_decref(c->root); }

int32_t config_instances(const config *c, const char *kind) {
  int64_t n = 0;
  size_t i;
  json_t *group;
  json_array_foreach(json_object_get(c->root, "instance_group"), i, group) {
    const char *has = json_string_value(json_object_get(group, "kind"));
    int64_t count = json_integer_value(json_object_get(group, "count"));
    if (!has || !strcmp(has, kind) || !strcmp(has, "KIND_AUTO"))
      n += count > 0 ? count : 1;
  }
  return n < 1 ? 1 : n > CYTO_MAX_THREADS ? CYTO_MAX_THREADS : (int32_t)n;
}

/* Numbers of 64 bits are texts in the JSON of protobuf. */
static int64_t number_of(const json_t *value) {
  const char *text = json_string_value(value);
  return text ? strtoll(text, NULL, 10) : json_integer_value(value);
}

static const char *text_of(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text ? text : "";
}

static json_t *sequences_of(const config *c) {
  json_t *s = json_object_get(c->root, "sequence_batching");
  return json_is_object(s) ? s : NULL;
}

static triton_error *refuse(const model *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
static triton_error *refuse(const model *m, const char *format, ...) {
  char text[2048];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return error_of(TRITON_INVALID_ARG, "model '%s': %s", m->name, text);
}

/* ---- completing ---- */

/* The array of this name, made where it is missing. */
static json_t *array_of(json_t *object, const char *key) {
  json_t *array = json_object_get(object, key);
  if (json_is_array(array))
    return array;
  json_object_set_new(object, key, json_array());
  return json_object_get(object, key);
}

static void put_shape(json_t *to, const port *p, bool in_batches) {
  json_t *dims = json_array();
  for (int32_t d = in_batches; d < p->at.rank; d++)
    json_array_append_new(dims, json_integer(p->at.dims[d]));
  if (!json_array_size(dims)) {
    json_array_append_new(dims, json_integer(1));
    if (in_batches)
      json_object_set_new(to, "reshape", json_pack("{s:[]}", "shape"));
  }
  json_object_set_new(to, "dims", dims);
}

static bool is_open(const json_t *entry) { return !json_array_size(json_object_get(entry, "dims")); }

/* What an entry of `input` or `output` leaves open. */
static void complete_entry(json_t *entry, const port *p, bool in_batches) {
  const char *type = text_of(entry, "data_type");
  if (!*type || !strcmp(type, "TYPE_INVALID"))
    json_object_set_new(entry, "data_type", json_string(type_name(p->type)));
  if (is_open(entry))
    put_shape(entry, p, in_batches);
  if (p->at.is_optional)
    json_object_set_new(entry, "optional", json_true());
}

static void complete_ports(json_t *root, const char *key, port *ports, int32_t n, bool in_batches) {
  json_t *entries = array_of(root, key), *entry;
  size_t i;
  json_array_foreach(entries, i, entry) {
    const port *p = port_find(ports, n, text_of(entry, "name"));
    if (p && p->type)
      complete_entry(entry, p, in_batches);
  }
  if (i)
    return;
  for (int32_t k = 0; k < n; k++)
    if (ports[k].type && !ports[k].is_state && !ports[k].is_control) {
      entry = json_pack("{s:s}", "name", ports[k].at.name);
      complete_entry(entry, &ports[k], in_batches);
      json_array_append_new(entries, entry);
    }
}

static bool is_listed(const json_t *root, const char *key, const char *name) {
  size_t i;
  json_t *entry;
  json_array_foreach(json_object_get(root, key), i, entry) {
    if (!strcmp(text_of(entry, "name"), name))
      return true;
  }
  return false;
}

/* What a sequence begins with: zeros, and no rows where it grows. Other dims that are open have one, as Triton has it. */
static json_t *first_state(const port *in, const port *out, bool in_batches) {
  json_t *dims = json_array();
  for (int32_t d = in_batches; d < in->at.rank; d++) {
    int64_t size = port_grows(in, out, d) ? 0 : in->at.dims[d] < 0 ? 1 : in->at.dims[d];
    json_array_append_new(dims, json_integer(size));
  }
  return json_pack("[{s:s,s:s,s:o,s:b}]", "name", "zeros", "data_type", type_name(in->type), "dims", dims, "zero_data",
                   1);
}

static void add_state(json_t *states, const port *in, const port *out, bool in_batches) {
  json_t *dims = json_array();
  for (int32_t d = in_batches; d < in->at.rank; d++)
    json_array_append_new(dims, json_integer(in->at.dims[d]));
  json_t *state =
      json_pack("{s:s,s:s,s:s,s:o,s:o}", "input_name", in->at.name, "output_name", out->at.name, "data_type",
                type_name(in->type), "dims", dims, "initial_state", first_state(in, out, in_batches));
  json_array_append_new(states, state);
}

static void complete_states(const config *c, model *m, bool in_batches) {
  json_t *states = array_of(sequences_of(c), "state");
  for (int32_t o = 0; o < m->n_outputs; o++) {
    int32_t i = m->outputs[o].type ? port_twin(m, &m->outputs[o]) : -1;
    if (i < 0 || m->inputs[i].is_state || is_listed(c->root, "input", m->inputs[i].at.name) ||
        is_listed(c->root, "output", m->outputs[o].at.name))
      continue;
    m->inputs[i].is_state = m->outputs[o].is_state = true;
    add_state(states, &m->inputs[i], &m->outputs[o], in_batches);
  }
}

enum { CANDIDATES = 64, IDLE_MICROSECONDS = 60000000 };

/* The parameter `sequences`: Triton lets a backend write this only where the user has not. */
static triton_error *complete_sequences(const config *c, model *m, bool in_batches) {
  if (!m->options.direct && !m->options.oldest)
    return NULL;
  if (sequences_of(c) || json_is_object(json_object_get(c->root, "dynamic_batching")))
    return refuse(
        m, "parameter 'sequences' writes sequence_batching: leave out sequence_batching and dynamic_batching, or "
           "the parameter");
  json_t *how = m->options.direct ? json_object() : json_pack("{s:i}", "max_candidate_sequences", CANDIDATES);
  json_object_set_new(c->root, "sequence_batching",
                      json_pack("{s:o,s:i}", m->options.direct ? "direct" : "oldest", how,
                                "max_sequence_idle_microseconds", IDLE_MICROSECONDS));
  complete_states(c, m, in_batches);
  if (json_array_size(json_object_get(sequences_of(c), "state")))
    return NULL;
  return refuse(
      m, "parameter 'sequences': no output is a newer one of an input, by what the model does or by its name: write "
         "sequence_batching { state { .. } } in its place");
}

static void mark_controls(const config *c, model *m) {
  size_t i;
  json_t *control;
  json_array_foreach(json_object_get(sequences_of(c), "control_input"), i, control) {
    port *p = port_find(m->inputs, m->n_inputs, text_of(control, "name"));
    if (p)
      p->is_control = true;
  }
}

static void mark_states(const config *c, model *m) {
  size_t i;
  json_t *state;
  json_array_foreach(json_object_get(sequences_of(c), "state"), i, state) {
    port *in = port_find(m->inputs, m->n_inputs, text_of(state, "input_name"));
    port *out = port_find(m->outputs, m->n_outputs, text_of(state, "output_name"));
    if (in)
      in->is_state = true;
    if (out)
      out->is_state = true;
  }
}

/* 0, as Triton does not tell whether somebody wrote it, counts where inputs or outputs are written, too. */
static void complete_batch(config *c, const model *m, int64_t max_batch) {
  bool leaves_open = !json_array_size(json_object_get(c->root, "input")) &&
                     !json_array_size(json_object_get(c->root, "output")) &&
                     !number_of(json_object_get(c->root, "max_batch_size"));
  if (leaves_open && max_batch > 0 && ports_are_batched(m))
    json_object_set_new(c->root, "max_batch_size", json_integer(max_batch));
  bool batches = number_of(json_object_get(c->root, "max_batch_size")) > 1;
  bool in_sequences = sequences_of(c) || m->options.direct || m->options.oldest;
  if (leaves_open && batches && !in_sequences && !json_is_object(json_object_get(c->root, "dynamic_batching")))
    json_object_set_new(c->root, "dynamic_batching", json_object());
}

static triton_error *config_write(const config *c, triton_model *model) {
  triton_message *message;
  char *text = json_dumps(c->root, JSON_COMPACT);
  if (!text)
    return out_of_memory();
  triton_error *error = TRITONSERVER_MessageNewFromSerializedJson(&message, text, strlen(text));
  if (!error) {
    error = TRITONBACKEND_ModelSetConfig(model, 1, message);
    ignore(TRITONSERVER_MessageDelete(message));
  }
  free(text);
  return error;
}

triton_error *config_complete(config *c, model *m, int64_t max_batch) {
  mark_controls(c, m);
  mark_states(c, m);
  complete_batch(c, m, max_batch);
  bool in_batches = number_of(json_object_get(c->root, "max_batch_size")) > 0;
  TRY(complete_sequences(c, m, in_batches));
  complete_ports(c->root, "input", m->inputs, m->n_inputs, in_batches);
  complete_ports(c->root, "output", m->outputs, m->n_outputs, in_batches);
  json_t *groups = array_of(c->root, "instance_group");
  if (m->is_cuda && !json_array_size(groups))
    json_array_append_new(groups, json_pack("{s:s}", "kind", "KIND_GPU"));
  return config_write(c, m->triton);
}

/* ---- checking ---- */

static triton_error *check_type(const model *m, const char *what, const port *p, const json_t *entry) {
  const char *type = text_of(entry, "data_type");
  if (!strcmp(type, type_name(p->type)))
    return NULL;
  return refuse(m, "%s '%s': expected %s, which the library has, found %s", what, p->at.name, type_name(p->type), type);
}

static bool fits(const port *p, const json_t *dims, bool in_batches) {
  if (!p->at.rank && !in_batches)
    return json_array_size(dims) == 1 && number_of(json_array_get(dims, 0)) == 1;
  if ((int32_t)json_array_size(dims) != p->at.rank - in_batches)
    return false;
  for (int32_t d = in_batches; d < p->at.rank; d++) {
    int64_t size = number_of(json_array_get(dims, (size_t)(d - in_batches)));
    if (size >= 0 && p->at.dims[d] >= 0 && size != p->at.dims[d])
      return false;
  }
  return true;
}

static triton_error *check_dims(const model *m, const char *what, const port *p, const json_t *entry) {
  bool in_batches = m->max_batch > 0;
  const json_t *reshape = json_object_get(entry, "reshape");
  const json_t *dims = json_is_object(reshape) ? json_object_get(reshape, "shape") : json_object_get(entry, "dims");
  char shape[512];
  if (fits(p, dims, in_batches))
    return NULL;
  char *found = json_dumps(dims ? dims : json_null(), JSON_COMPACT | JSON_ENCODE_ANY);
  triton_error *error =
      refuse(m, "%s '%s': the library has %s, found dims %s%s", what, p->at.name, port_shape(p, shape),
             found ? found : "", in_batches ? ", with the batch (max_batch_size) in front of them" : "");
  free(found);
  return error;
}

static triton_error *check_entry(const model *m, const char *what, port *ports, int32_t n, const json_t *entry) {
  char names[512];
  const char *name = text_of(entry, "name");
  const port *p = port_find(ports, n, name);
  if (!p || !p->type)
    return refuse(m, "the library has no %s '%s'%s", what, name, port_names(ports, n, name, names));
  if (json_is_true(json_object_get(entry, "allow_ragged_batch")))
    return refuse(m,
                  "input '%s': allow_ragged_batch is not supported: requests of different shapes are run one after the "
                  "other, which needs no such line",
                  name);
  TRY(check_type(m, what, p, entry));
  return check_dims(m, what, p, entry);
}

static triton_error *check_entries(const config *c, const model *m, const char *what, port *ports, int32_t n) {
  size_t i;
  json_t *entry;
  json_array_foreach(json_object_get(c->root, what), i, entry) { TRY(check_entry(m, what, ports, n, entry)); }
  return NULL;
}

/* Nobody would give a value to an input that is not listed. */
static triton_error *check_inputs_listed(const config *c, const model *m) {
  for (int32_t i = 0; i < m->n_inputs; i++) {
    const port *p = &m->inputs[i];
    if (!p->is_state && !p->is_control && !p->at.is_optional && !is_listed(c->root, "input", p->at.name))
      return refuse(m,
                    "input '%s' of the library is missing from the configuration: add it, or leave out all of `input`",
                    p->at.name);
  }
  return NULL;
}

static triton_error *check_batch(const model *m, const char *what, const port *ports, int32_t n) {
  char shape[512];
  for (int32_t i = 0; m->max_batch && i < n; i++)
    if (ports[i].type && (!ports[i].at.rank || ports[i].at.dims[0] >= 0) && !ports[i].at.is_dynamic)
      return refuse(m,
                    "max_batch_size is %lld, but the first dim of %s '%s' %s is no batch: write max_batch_size: 0, or "
                    "export the model with a symbolic batch",
                    (long long)m->max_batch, what, ports[i].at.name, port_shape(&ports[i], shape));
  return NULL;
}

static triton_error *apply_state(model *m, const json_t *state) {
  char names[512];
  const char *in_name = text_of(state, "input_name"), *out_name = text_of(state, "output_name");
  port *in = port_find(m->inputs, m->n_inputs, in_name), *out = port_find(m->outputs, m->n_outputs, out_name);
  if (!in || !in->type)
    return refuse(m, "state: the library has no input '%s'%s", in_name,
                  port_names(m->inputs, m->n_inputs, in_name, names));
  if (!out || !out->type)
    return refuse(m, "state: the library has no output '%s'%s", out_name,
                  port_names(m->outputs, m->n_outputs, out_name, names));
  if (in->type != out->type)
    return refuse(m, "state: input '%s' is %s, output '%s' is %s: they must be of one type", in_name,
                  type_name(in->type), out_name, type_name(out->type));
  TRY(check_type(m, "state", in, state));
  TRY(check_dims(m, "state", in, state));
  in->is_state = out->is_state = true;
  out->twin = in->index;
  in->starts_bare = !json_array_size(json_object_get(state, "initial_state"));
  for (int32_t d = 0; d < in->at.rank; d++)
    in->grows[d] = port_grows(in, out, d);
  return NULL;
}

static triton_error *apply_sequences(const config *c, model *m) {
  char names[512];
  const json_t *sequences = sequences_of(c);
  size_t i;
  json_t *entry;
  json_array_foreach(json_object_get(sequences, "control_input"), i, entry) {
    const char *name = text_of(entry, "name");
    if (!port_find(m->inputs, m->n_inputs, name))
      return refuse(m, "control_input: the library has no input '%s'%s", name,
                    port_names(m->inputs, m->n_inputs, name, names));
  }
  json_array_foreach(json_object_get(sequences, "state"), i, entry) { TRY(apply_state(m, entry)); }
  return NULL;
}

triton_error *config_apply(const config *c, model *m) {
  static const char *const unsupported[] = {"batch_input", "batch_output"};
  for (int i = 0; i < 2; i++)
    if (json_array_size(json_object_get(c->root, unsupported[i])))
      return refuse(m, "%s is not supported: it is for batches of different shapes, which are run one after the other",
                    unsupported[i]);
  m->max_batch = number_of(json_object_get(c->root, "max_batch_size"));
  m->cpu_instances = config_instances(c, "KIND_CPU");
  mark_controls(c, m);
  TRY(check_batch(m, "input", m->inputs, m->n_inputs));
  TRY(check_batch(m, "output", m->outputs, m->n_outputs));
  TRY(apply_sequences(c, m));
  TRY(check_entries(c, m, "input", m->inputs, m->n_inputs));
  TRY(check_entries(c, m, "output", m->outputs, m->n_outputs));
  return check_inputs_listed(c, m);
}
