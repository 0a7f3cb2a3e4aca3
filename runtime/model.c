/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* model.c - a model's code and weights as a cyto_model, which counts its users and can be inspected.
 *
 * In:  a read-only cyrt_model, linked into the program or of a library (load.c). Out: a handle. Before any of the model's
 * code runs, the CPU is asked for the features it was compiled for. Weights lie in the library itself or in a file beside
 * it, which is mapped here. The handle counts its users: the application and every context.
 */
#include "cyrt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cyto_status check_code(const cyrt_model *code, const char *where, cyto_error *error) {
  char lacking[64];
  if (code->abi != CYTO_ABI_VERSION)
    return cyrt_error_set(error, CYTO_BAD_LIBRARY,
                          "'%s': model has interface version %u, expected %u; compile it with a cytoc of this version",
                          where, code->abi, CYTO_ABI_VERSION);
  if (!code->plan || !code->run || (code->n_inputs && !code->inputs) || (code->n_outputs && !code->outputs) ||
      code->n_input_syms > code->n_syms)
    return cyrt_error_set(error, CYTO_BAD_LIBRARY, "'%s': the model's tables are incomplete", where);
  if (cyrt_cpu_lacks(code->features, lacking))
    return cyrt_error_set(error, CYTO_UNSUPPORTED_CPU,
                          "'%s': model is compiled for %s (%s), but this CPU lacks '%s'; compile it with --target=%s "
                          "or --target=native on this machine",
                          where, code->target ? code->target : "another CPU", code->features, lacking, CYRT_USUAL_CPU);
  return CYTO_OK;
}

/* The side file's path: its name in the folder of the library or program that holds the model. 0 when it does not fit.
 */
static int side_file_path(const cyrt_model *code, const char *library, char path[CYRT_PATH]) {
  char own[CYRT_PATH];
  if (!library && cyrt_os_library_of(code, own))
    library = own;
  int folder = library ? (int)(cyrt_os_path_base(library) - library) : 0;
  int length = snprintf(path, CYRT_PATH, "%.*s%s", folder, folder ? library : "", code->weights_file);
  return length > 0 && length < CYRT_PATH;
}

/* Behind the library itself, as it comes from memory to memory: at the end of its file, with a block before them that begins
 * with CYRT_WEIGHTS_MARK and how many bytes they are. 0: they are not there. */
static int map_behind(cyto_model *model, const char *file) {
  char why[CYRT_WHY];
  int64_t size;
  uint64_t bytes = model->code->weights_bytes, total = bytes + CYRT_MAP_ALIGN;
  char *base = file ? cyrt_os_map(file, total, 1, &size, why) : NULL;
  size_t mark = sizeof CYRT_WEIGHTS_MARK;
  if (base && (memcmp(base, CYRT_WEIGHTS_MARK, mark) || memcmp(base + mark, &bytes, sizeof bytes))) {
    cyrt_os_unmap(base, total);
    base = NULL;
  }
  model->mapping = base;
  model->weights = base ? (uint8_t *)base + CYRT_MAP_ALIGN : NULL;
  model->mapped_bytes = total;
  return base != NULL;
}

/* file: of the library, NULL where it is linked; library: the same, NULL if that lies in memory. */
static cyto_status map_weights(cyto_model *model, const char *file, const char *library, cyto_error *error) {
  const cyrt_model *code = model->code;
  char path[CYRT_PATH], why[CYRT_WHY];
  int64_t bytes;
  model->weights = code->weights;
  if (code->weights || !code->weights_file || !code->weights_bytes)
    return CYTO_OK;
  if (model->library && !library)
    return map_behind(model, file)
               ? CYTO_OK
               : cyrt_error_set(
                     error, CYTO_BAD_LIBRARY,
                     "the weights of this library are in a file beside it, '%s': load it from its file (those "
                     "behind it, of a library in memory, are not all there)",
                     code->weights_file);
  if (cyrt_os_path_base(code->weights_file) != code->weights_file || !side_file_path(code, library, path))
    return cyrt_error_set(error, CYTO_BAD_LIBRARY, "'%s': not a name for a weights file", code->weights_file);
  model->weights = model->mapping = cyrt_os_map(path, code->weights_bytes, 0, &bytes, why);
  model->mapped_bytes = code->weights_bytes;
  if (model->mapping || (bytes < 0 && map_behind(model, library)))
    return CYTO_OK;
  if (bytes < 0)
    return cyrt_error_set(error, CYTO_NOT_FOUND, "'%s': cannot open the model's weights: %s", path, why);
  if ((uint64_t)bytes < code->weights_bytes)
    return cyrt_error_set(error, CYTO_BAD_LIBRARY, "'%s': the weights file has %lld bytes, expected %llu", path,
                          (long long)bytes, (unsigned long long)code->weights_bytes);
  return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "'%s': cannot map %llu bytes: %s", path,
                        (unsigned long long)code->weights_bytes, why);
}

cyto_status cyrt_model_create(const cyrt_model *code, void *library, const char *file, const char *path,
                                cyto_model **out_model, cyto_error *error) {
  cyto_status status = check_code(code, path ? path : code->name ? code->name : "model", error);
  cyto_model *model = status ? NULL : calloc(1, sizeof *model);
  if (!model) {
    if (library)
      cyrt_os_library_close(library);
    return status ? status : cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for the model's handle");
  }
  *model = (cyto_model){.code = code, .library = library, .references = 1};
  status = map_weights(model, file, path, error);
  if (status)
    cyto_model_unload(model);
  else
    *out_model = model;
  return status;
}

cyto_status cyto_model_from_linked(const cyrt_model *linked, cyto_model **out_model, cyto_error *error) {
  cyrt_error_clear(error);
  if (out_model)
    *out_model = NULL;
  if (!linked || !out_model)
    return cyrt_error_null(error, "cyto_model_from_linked: no model or no place for its handle");
  return cyrt_model_create(linked, NULL, NULL, NULL, out_model, error);
}

void cyrt_model_retain(cyto_model *model) { __atomic_fetch_add(&model->references, 1, __ATOMIC_RELAXED); }

void cyto_model_unload(cyto_model *model) {
  if (!model || __atomic_sub_fetch(&model->references, 1, __ATOMIC_ACQ_REL) > 0)
    return;
  if (model->trace)
    model->trace->release(model->trace);
  if (model->device_shared)
    model->code->device->release(model->device_shared);
  if (model->mapping)
    cyrt_os_unmap(model->mapping, model->mapped_bytes);
  if (model->library)
    cyrt_os_library_close(model->library);
  free(model);
}

/* ---- inspection ---- */

static const char *text_or_empty(const char *text) { return text ? text : ""; }

const char *cyto_model_name(const cyto_model *model) { return text_or_empty(model ? model->code->name : NULL); }
const char *cyto_model_target(const cyto_model *model) { return text_or_empty(model ? model->code->target : NULL); }
const char *cyto_model_compiler(const cyto_model *model) { return text_or_empty(model ? model->code->compiler : NULL); }
int32_t cyto_model_metadata_count(const cyto_model *model) { return model ? (int32_t)model->code->n_metadata : 0; }

cyto_status cyto_model_metadata(const cyto_model *model, int32_t index, const char **out_key, const char **out_value) {
  if (!model || !out_key || !out_value)
    return CYTO_INVALID_ARGUMENT;
  if (index < 0 || (uint64_t)index >= model->code->n_metadata)
    return CYTO_INDEX_OUT_OF_RANGE;
  *out_key = model->code->metadata[index].key;
  *out_value = model->code->metadata[index].value;
  return CYTO_OK;
}

const char *cyto_model_find_metadata(const cyto_model *model, const char *key) {
  uint64_t i = model && key ? model->code->n_metadata : 0;
  while (i > 0)
    if (!strcmp(model->code->metadata[--i].key, key))
      return model->code->metadata[i].value;
  return NULL;
}

int32_t cyto_model_input_count(const cyto_model *model) { return model ? (int32_t)model->code->n_inputs : 0; }
int32_t cyto_model_output_count(const cyto_model *model) { return model ? (int32_t)model->code->n_outputs : 0; }

void cyrt_port_describe(const cyrt_model *code, const cyrt_port *port, int is_input, cyto_port *out_port) {
  memset(out_port, 0, sizeof *out_port);
  out_port->name = port->name;
  out_port->dtype = port->type ? 0 : port->dtype;
  out_port->type = port->type ? port->type : cyrt_tensor_type(port->dtype);
  out_port->rank = port->rank;
  out_port->is_optional = is_input && (port->flags & CYRT_PORT_OPTIONAL);
  out_port->is_dynamic = !is_input && (port->flags & CYRT_PORT_DYNAMIC);
  out_port->shared_input = is_input ? -1 : (int32_t)port->shares - 1;
  out_port->grown_input = is_input ? -1 : port->continues - 1;
  out_port->grown_axis = out_port->grown_input < 0 ? -1 : port->axis;
  for (int32_t i = 0; i < port->rank; i++) {
    int64_t dim = port->dims[i], symbol = -1 - dim;
    int named = is_input && dim < 0 && symbol < (int64_t)code->n_syms && code->sym_names;
    const char *name = named                                     ? code->sym_names[symbol]
                       : !is_input && dim < 0 && port->dim_texts ? port->dim_texts[i]
                                                                 : NULL;
    out_port->dims[i] = dim < 0 ? -1 : dim;
    out_port->dim_names[i] = name ? name : "";
  }
}

cyto_status cyto_model_input(const cyto_model *model, int32_t index, cyto_port *out_port) {
  if (!model || !out_port)
    return CYTO_INVALID_ARGUMENT;
  if (index < 0 || (uint32_t)index >= model->code->n_inputs)
    return CYTO_INDEX_OUT_OF_RANGE;
  cyrt_port_describe(model->code, &model->code->inputs[index], 1, out_port);
  return CYTO_OK;
}

cyto_status cyto_model_output(const cyto_model *model, int32_t index, cyto_port *out_port) {
  if (!model || !out_port)
    return CYTO_INVALID_ARGUMENT;
  if (index < 0 || (uint32_t)index >= model->code->n_outputs)
    return CYTO_INDEX_OUT_OF_RANGE;
  cyrt_port_describe(model->code, &model->code->outputs[index], 0, out_port);
  return CYTO_OK;
}

static int32_t find_port(const cyrt_port *ports, uint32_t count, const char *name) {
  for (uint32_t i = 0; name && i < count; i++)
    if (!strcmp(ports[i].name, name))
      return (int32_t)i;
  return -1;
}

int32_t cyto_model_find_input(const cyto_model *model, const char *name) {
  return model ? find_port(model->code->inputs, model->code->n_inputs, name) : -1;
}

int32_t cyto_model_find_output(const cyto_model *model, const char *name) {
  return model ? find_port(model->code->outputs, model->code->n_outputs, name) : -1;
}
