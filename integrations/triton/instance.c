/* SPDX-License-Identifier: Apache-2.0 */
/* instance.c - who runs a model: a context of its library, and memory in which batches are put together.
 *
 * In:  a model, an instance of Triton's: on CPUs, or on the GPU that it names.
 * Out: an instance. Weights are the library's, and there once for all instances.
 */
#include "integrations/triton/backend.h"

#include <stdlib.h>
#include <string.h>

bool room_get(room *r, uint64_t bytes) {
  if (bytes <= r->bytes && r->data)
    return true;
  uint64_t wanted = (bytes + 64) / 64 * 64;
  free(r->data);
  *r = (room){.data = wanted > bytes ? aligned_alloc(64, wanted) : NULL};
  if (r->data)
    r->bytes = wanted;
  return r->data;
}

static void rooms_free(room *rooms, int32_t n) {
  for (int32_t i = 0; rooms && i < n; i++)
    free(rooms[i].data);
  free(rooms);
}

/* ---- contexts ---- */

/* The CPUs of the process, shared among the instances, unless the parameter `threads` says how many. */
static int32_t threads_of(const model *m) {
  int32_t share = cyto_cpu_count() / m->cpu_instances;
  return m->options.threads ? m->options.threads : share > 1 ? share : 1;
}

static triton_error *check_kind(const model *m, const char *name, int kind) {
  if (m->is_cuda && kind != TRITON_KIND_GPU)
    return error_of(TRITON_INVALID_ARG,
                    "instance '%s': the library is for %s: instance_group must ask for KIND_GPU, found a CPU", name,
                    cyto_model_target(m->library));
  if (!m->is_cuda && kind == TRITON_KIND_GPU)
    return error_of(
        TRITON_INVALID_ARG,
        "instance '%s': the library is for CPUs (%s): instance_group must ask for KIND_CPU, or the model be "
        "compiled for the GPU (parameter 'target', such as sm_89)",
        name, cyto_model_target(m->library));
  return NULL;
}

static triton_error *context_create(const model *m, triton_instance *triton, cyto_context **out) {
  const char *name;
  int kind;
  cyto_options options = {0};
  cyto_error error = {0};
  TRY(TRITONBACKEND_ModelInstanceName(triton, &name));
  TRY(TRITONBACKEND_ModelInstanceKind(triton, &kind));
  TRY(check_kind(m, name, kind));
  if (kind == TRITON_KIND_GPU)
    TRY(TRITONBACKEND_ModelInstanceDeviceId(triton, &options.device));
  options.threads = threads_of(m);
  cyto_status status = cyto_context_create(m->library, &options, out, &error);
  return status ? error_of_runtime(status, &error) : NULL;
}

static triton_error *tables_create(instance *i) {
  size_t inputs = (size_t)i->model->n_inputs + 1, outputs = (size_t)i->model->n_outputs + 1;
  i->bound = calloc(inputs, sizeof *i->bound);
  i->shapes = calloc(outputs, sizeof *i->shapes);
  i->gathered = calloc(inputs, sizeof *i->gathered);
  i->strings = calloc(inputs, sizeof *i->strings);
  i->results = calloc(outputs, sizeof *i->results);
  return i->bound && i->shapes && i->gathered && i->strings && i->results ? NULL : out_of_memory();
}

triton_error *instance_create(model *m, triton_instance *triton, instance **out) {
  instance *i = *out = calloc(1, sizeof *i);
  if (!i)
    return out_of_memory();
  i->triton = triton;
  i->model = m;
  triton_error *error = tables_create(i);
  if (!error)
    error = context_create(m, triton, &i->context);
  if (error)
    instance_destroy(i);
  return error;
}

void instance_destroy(instance *i) {
  cyto_context_destroy(i->context);
  rooms_free(i->gathered, i->model->n_inputs);
  rooms_free(i->strings, i->model->n_inputs);
  rooms_free(i->results, i->model->n_outputs);
  free(i->requests.data);
  free(i->bound);
  free(i->shapes);
  free(i);
}

/* ---- binding ---- */

static bool have_one_shape(const cyto_tensor *a, const cyto_tensor *b) {
  return !a->data == !b->data && a->rank == b->rank && !memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims);
}

triton_error *instance_bind(instance *i, int32_t input, const cyto_tensor *t) {
  cyto_error error = {0};
  if (!have_one_shape(&i->bound[input], t))
    i->planned = false;
  i->bound[input] = *t;
  cyto_status status = cyto_bind_input(i->context, input, t->dtype, t->rank, t->dims, t->data, &error);
  if (status)
    i->planned = false;
  return status ? error_of_runtime(status, &error) : NULL;
}

triton_error *instance_plan(instance *i) {
  cyto_error error = {0};
  cyto_status status = CYTO_OK;
  if (i->planned)
    return NULL;
  for (int32_t o = 0; !status && o < i->model->n_outputs; o++)
    if (i->model->outputs[o].at.type->kind == CYTO_TENSOR)
      status = cyto_bind_output(i->context, o, NULL, 0, &error);
  if (!status)
    status = cyto_context_prepare(i->context, &error);
  for (int32_t o = 0; !status && o < i->model->n_outputs; o++)
    if (i->model->outputs[o].type && !i->model->outputs[o].at.is_dynamic)
      status = cyto_output(i->context, o, &i->shapes[o], &error);
  i->planned = !status;
  return status ? error_of_runtime(status, &error) : NULL;
}
