/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cuda.c - a model on CUDA devices: which of its images fits, kernels and weights per device, a context's state.
 *
 * open() is called for every context. The first one on a device loads the images (cuda_images.c) and copies the weights
 * there; later ones find both. Running is in cuda_run.c.
 */
#include "cyrt_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  ATTRIBUTE_SHARED_BYTES = 8, /* of a function: CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
  WORKERS = 512
};

/* ---- kernels ---- */

/* What a kernel was found in. */
typedef struct loaded {
  void *module;
  const cyrt_cuda_image *image;
  int groups; /* of sm_90a, which has products of warpgroups */
} loaded;

static cyto_status load_images(cuda_shared *shared, cuda_device *device, const cyrt_cuda_images *images, loaded *out,
                               cyto_error *error) {
  cyto_status status = cyrt_cuda_image_load(&shared->driver, device, images, &out->image, &out->module, error);
  if (status)
    return status;
  out->groups = !out->image->ptx && out->image->arch == 90 + CYRT_CUDA_SPECIFIC;
  device->modules[device->n_modules++] = out->module;
  return CYTO_OK;
}

/* Dynamic shared memory is asked for from 48 KB on, which every device gives without, but for what a kernel has of its own;
 * so it always is. */
static cyto_status allow_shared(cuda_shared *shared, const cuda_device *device, uint32_t kernel, cyto_error *error) {
  int32_t bytes = (int32_t)device->shared_bytes[kernel];
  cuda_code got =
      bytes ? shared->driver.function_attribute(device->functions[kernel], ATTRIBUTE_SHARED_BYTES, bytes) : 0;
  return cyrt_cuda_check(&shared->driver, got, "cuFuncSetAttribute (shared memory of a block)", error);
}

/* Kernels of the same images stand anywhere in the table: the module is that of the first one with them. */
static cyto_status load_kernels(cuda_shared *shared, cuda_device *device, cyto_error *error) {
  const cyrt_cuda_model *code = shared->model->device_data;
  loaded *found_in = calloc(code->n_kernels + 1, sizeof *found_in);
  cyto_status status =
      found_in ? CYTO_OK : cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for the model's kernels");
  for (uint32_t i = 0; i < code->n_kernels && !status; i++) {
    const cyrt_cuda_kernel *k = &code->kernels[i];
    for (uint32_t j = 0; j < i && !found_in[i].module; j++)
      if (code->kernels[j].images == k->images)
        found_in[i] = found_in[j];
    if (!found_in[i].module && (status = load_images(shared, device, k->images, &found_in[i], error)))
      break;
    device->images[i] = found_in[i].image;
    device->shared_bytes[i] = found_in[i].groups && k->group_shared_bytes ? k->group_shared_bytes : k->shared_bytes;
    cuda_code found = shared->driver.module_function(&device->functions[i], found_in[i].module, k->name);
    if (found && k->optional) {
      device->functions[i] = NULL;
      continue;
    }
    status = cyrt_cuda_check(&shared->driver, found, "cuModuleGetFunction", error);
    if (!status)
      status = allow_shared(shared, device, i, error);
  }
  free(found_in);
  return status;
}

/* ---- devices ---- */

static void device_destroy(cuda_shared *shared, cuda_device *device) {
  const cuda_driver *driver = &shared->driver;
  const cyrt_cuda_model *code = shared->model->device_data;
  cuda_entry entry;
  if (code->libraries)
    code->libraries->device_close(device);
  if (device->context && !cyrt_cuda_enter(shared, device, &entry, NULL)) { /* else it is gone, and all with it */
    for (uint32_t i = 0; i < device->n_modules; i++)
      driver->module_unload(device->modules[i]);
    cyrt_cuda_weights_release(shared, device);
    cyrt_cuda_leave(shared, &entry);
  }
  if (device->context)
    driver->context_release(device->handle);
  free(device->modules);
  free(device->images);
  free(device->functions);
  free(device->shared_bytes);
  cyrt_cuda_weights_forget(device);
  free(device);
}

/* The devices that there are, and whether the model has code for them. */
static cyto_status no_such_device(const cuda_shared *shared, int32_t number, int32_t count, cyto_error *error) {
  const cuda_driver *driver = &shared->driver;
  const cyrt_cuda_model *code = shared->model->device_data;
  char seen[500] = "";
  for (int32_t i = 0; i < count && i < 16; i++) {
    cuda_device other = {.number = i};
    const cyrt_cuda_image *image = NULL;
    char name[100] = "?";
    size_t n = strlen(seen);
    driver->device_get(&other.handle, i);
    driver->device_name(name, sizeof name, other.handle);
    other.capability = cyrt_cuda_capability(driver, other.handle);
    int fits = !code->n_kernels || !cyrt_cuda_image_choose(driver, &other, code->kernels[0].images, &image, NULL);
    snprintf(seen + n, sizeof seen - n, "%s%d '%s' (sm_%u%s)", n ? ", " : "", i, name, other.capability,
             fits ? "" : ", which the model has no code for");
  }
  return cyrt_error_set(error, CYTO_INVALID_ARGUMENT,
                        "device %d does not exist: this process sees %d, numbered from 0: %s", number, count, seen);
}

static cyto_status device_fill(cuda_shared *shared, cuda_device *device, const cyrt_device_request *request,
                               cyto_error *error) {
  const cuda_driver *driver = &shared->driver;
  cuda_entry entry;
  int32_t count = 0;
  cyto_status status = cyrt_cuda_check(driver, driver->device_count(&count), "cuDeviceGetCount", error);
  if (!status && count == 0)
    status = cyrt_cuda_check(driver, 100, "cuDeviceGetCount", error);
  if (!status && (device->number < 0 || device->number >= count))
    status = no_such_device(shared, device->number, count, error);
  if (status ||
      (status = cyrt_cuda_check(driver, driver->device_get(&device->handle, device->number), "cuDeviceGet", error)))
    return status;
  device->capability = cyrt_cuda_capability(driver, device->handle);
  driver->device_attribute(&device->multiprocessors, ATTRIBUTE_MULTIPROCESSORS, device->handle);
  int32_t version = 0;
  driver->driver_version(&version);
  device->programmatic = device->capability >= PROGRAMMATIC_ARCH && version >= PROGRAMMATIC_DRIVER;
  if ((status = cyrt_cuda_check(driver, driver->context_retain(&device->context, device->handle),
                                "cuDevicePrimaryCtxRetain", error)) ||
      (status = cyrt_cuda_enter(shared, device, &entry, error)))
    return status;
  const cyrt_cuda_model *code = shared->model->device_data;
  status = load_kernels(shared, device, error);
  if (!status && shared->model->weights_bytes)
    status = cyrt_cuda_weights_load(shared, device, request, error);
  if (!status && code->libraries)
    status = code->libraries->device_open(shared, device, error);
  cyrt_cuda_leave(shared, &entry);
  return status;
}

static cyto_status find_device(cuda_shared *shared, const cyrt_device_request *request, cuda_device **out,
                               cyto_error *error) {
  for (cuda_device *d = shared->devices; d; d = d->next)
    if (d->number == request->device) {
      *out = d;
      return CYTO_OK;
    }
  const cyrt_cuda_model *code = shared->model->device_data;
  cuda_device *d = calloc(1, sizeof *d);
  if (!d)
    return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for the tables of a device");
  d->number = request->device;
  d->modules = calloc(code->n_kernels + 1, sizeof *d->modules);
  d->images = calloc(code->n_kernels + 1, sizeof *d->images);
  d->functions = calloc(code->n_kernels + 1, sizeof *d->functions);
  d->shared_bytes = calloc(code->n_kernels + 1, sizeof *d->shared_bytes);
  cyto_status status = d->modules && d->images && d->functions && d->shared_bytes
                           ? device_fill(shared, d, request, error)
                           : cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for the tables of a device");
  if (status) {
    device_destroy(shared, d);
    return status;
  }
  d->next = shared->devices;
  shared->devices = d;
  *out = d;
  return CYTO_OK;
}

static void shared_release(void *data) {
  cuda_shared *shared = data;
  if (!shared)
    return;
  while (shared->devices) {
    cuda_device *d = shared->devices;
    shared->devices = d->next;
    device_destroy(shared, d);
  }
  const cyrt_cuda_model *code = shared->model->device_data;
  if (code->libraries)
    code->libraries->release(shared);
  if (code->trace)
    code->trace->release(shared);
  cyrt_cuda_driver_close(&shared->driver);
  free(shared);
}

static cyto_status shared_open(const cyrt_model *model, void **out_shared, cyto_error *error) {
  cuda_shared *shared = calloc(1, sizeof *shared);
  if (!shared)
    return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for the driver's tables");
  shared->model = model;
  const cyrt_cuda_model *code = model->device_data;
  cyto_status status = cyrt_cuda_driver_open(&shared->driver, model, error);
  if (!status && code->libraries)
    status = code->libraries->find(shared, error);
  if (!status && code->trace)
    code->trace->find(shared);
  if (status)
    shared_release(shared);
  else
    *out_shared = shared;
  return status;
}

/* ---- what generated code and operators call through the frame's context ---- */

static void *host_alloc(struct cyrt_context *context, uint64_t bytes) {
  (void)context;
  void *ptr = NULL;
  return bytes > (uint64_t)1 << 46 || posix_memalign(&ptr, CYRT_ALIGN, bytes ? bytes : 1) ? NULL : ptr;
}

static void host_release(struct cyrt_context *context, void *ptr, uint64_t bytes) {
  (void)context;
  (void)bytes;
  free(ptr);
}

static int32_t slot_alloc(cyrt_frame *frame, uint32_t slot, int64_t bytes) {
  cuda_state *state = cuda_state_of(frame);
  cyrt_dynamic *dynamic = &frame->dynamic[slot];
  if (bytes < 0)
    return cyrt_fail(frame, CYTO_OUT_OF_MEMORY, "the size of an intermediate tensor overflows");
  cuda_block block = {(cuda_ptr)(uintptr_t)dynamic->ptr, dynamic->capacity};
  uint64_t wanted = (uint64_t)bytes;
  if (block.ptr && wanted > block.bytes && wanted < (uint64_t)1 << 40)
    wanted += wanted / 4; /* it grew once: loops make it grow again */
  cyto_status status = cyrt_cuda_block_grow(state, &block, wanted, "an intermediate tensor", frame->error);
  dynamic->ptr = (void *)(uintptr_t)block.ptr;
  dynamic->capacity = block.bytes;
  dynamic->bytes = status ? 0 : (uint64_t)bytes;
  return status;
}

/* ---- contexts ---- */

static void state_close(void *data) {
  cuda_state *state = data;
  if (!state)
    return;
  const cuda_driver *driver = &state->shared->driver;
  cuda_entry entry;
  if (state->device && !cyrt_cuda_enter(state->shared, state->device, &entry, NULL)) {
    if (state->stream)
      driver->stream_wait(state->stream);
    cyrt_cuda_forget_recordings(state);
    if (state->code->libraries)
      state->code->libraries->close(state);
    if (state->code->trace)
      state->code->trace->close(state);
    if (state->staging)
      driver->host_free(state->staging);
    cyrt_cuda_checks_close(state);
    cyrt_cuda_window_close(state);
    cyrt_cuda_give_all(state);
    if (state->own_stream)
      driver->stream_destroy(state->own_stream);
    cyrt_cuda_leave(state->shared, &entry);
  }
  cyrt_cuda_forget_held(state);
  free(state->head.stash);
  free(state->io_offset);
  free(state->inputs);
  free(state->grows);
  free(state->outputs);
  free(state->frame.outputs);
  free(state->frame.dynamic);
  free(state->keys);
  cyrt_cuda_steps_close(state);
  if (state->timeline) /* events went above, or there are none */
    free(state->timeline);
  free(state);
}

static int state_tables(cuda_state *state) {
  const cyrt_model *model = state->model;
  state->key_words = model->n_input_syms + model->n_inputs + model->n_outputs + 6;
  state->io_offset = calloc(model->n_inputs + model->n_outputs + 1, sizeof *state->io_offset);
  state->inputs = calloc(model->n_inputs + 1, sizeof *state->inputs);
  state->grows = calloc(model->n_inputs + model->n_outputs + 1, sizeof *state->grows);
  state->outputs = calloc(model->n_outputs + 1, sizeof *state->outputs);
  state->frame.outputs = calloc(model->n_outputs + 1, sizeof *state->frame.outputs);
  state->frame.dynamic = calloc(model->n_dynamic + 1, sizeof *state->frame.dynamic);
  state->keys = calloc((CUDA_RECORDINGS + 1) * (size_t)state->key_words, sizeof *state->keys);
  for (uint32_t i = 0; i < CUDA_RECORDINGS && state->keys; i++)
    state->recordings[i].key = state->keys + i * state->key_words;
  for (uint32_t i = 0; i < model->n_outputs && state->grows; i++)
    if (model->outputs[i].continues)
      state->grows[model->outputs[i].continues - 1] = state->grows[model->n_inputs + i] = 1;
  return state->io_offset && state->inputs && state->grows && state->outputs && state->frame.outputs &&
         state->frame.dynamic && state->keys && cyrt_cuda_steps_open(state);
}

static cyto_status state_fill(cuda_state *state, const cyrt_device_request *request, cyto_error *error) {
  const cuda_driver *driver = &state->shared->driver;
  state->head = (cyrt_context_head){
      .alloc = host_alloc, .release = host_release, .slot_alloc = slot_alloc, .output_alloc = cyrt_cuda_output_alloc};
  state->frame.inputs = state->inputs;
  state->frame.context = (struct cyrt_context *)state;
  state->device_memory = request->device_memory;
  state->asked = 1;
  cuda_entry entry;
  cyto_status status = cyrt_cuda_enter(state->shared, state->device, &entry, error);
  if (status)
    return status;
  status = cyrt_cuda_check(driver, driver->stream_create(&state->own_stream, CUDA_STREAM_NON_BLOCKING),
                           "cuStreamCreate", error);
  state->stream = request->stream ? request->stream : state->own_stream;
  cyrt_cuda_memory_open(state, request);
  if (!status)
    status = cyrt_cuda_window_open(state, error);
  if (!status)
    status = cyrt_cuda_checks_open(state, error);
  if (!status && state->code->libraries && !state->window)
    status = state->code->libraries->open(state, error);
  cyrt_cuda_leave(state->shared, &entry);
  return status;
}

static int32_t state_open(const cyrt_device_request *request, void **shared, void **out_state, cyto_error *error) {
  cyto_status status = *shared ? CYTO_OK : shared_open(request->model, shared, error);
  if (status)
    return status;
  cuda_state *state = calloc(1, sizeof *state);
  if (!state)
    return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for a context");
  state->shared = *shared;
  state->model = request->model;
  state->code = request->model->device_data;
  if (!state_tables(state) || (state->code->trace && !state->code->trace->open(state)))
    status = cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for a context");
  if (!status)
    status = find_device(state->shared, request, &state->device, error);
  if (!status)
    status = state_fill(state, request, error);
  if (status)
    state_close(state);
  else
    *out_state = state;
  return status;
}

static void describe(void *data, char *text, uint64_t capacity) {
  const cuda_state *state = data;
  const cuda_driver *driver = &state->shared->driver;
  char name[100] = "?", held[CUDA_IMAGE_NAME] = "no kernels";
  int32_t version = 0;
  driver->device_name(name, sizeof name, state->device->handle);
  driver->driver_version(&version);
  if (state->code->n_kernels)
    cyrt_cuda_image_name(state->device->images[0], held);
  int n = snprintf(text, capacity, "device %d '%s' (sm_%u), driver for CUDA %d.%d, kernels: %s", state->device->number,
                   name, state->device->capability, version / 1000, version % 1000 / 10, held);
  if (*state->why_eager && n > 0 && (uint64_t)n < capacity)
    n += snprintf(text + n, capacity - (uint64_t)n,
                  "; launched kernel by kernel, since recording a run as a graph failed: %s", state->why_eager);
  if (n > 0 && (uint64_t)n < capacity)
    n += snprintf(text + n, capacity - (uint64_t)n, "%s", cyrt_cuda_memory_words(state));
  if (state->window && n > 0 && (uint64_t)n < capacity)
    cyrt_cuda_window_describe(state, text + n, capacity - (uint64_t)n);
  else if (state->code->libraries && n > 0 && (uint64_t)n < capacity)
    state->code->libraries->describe(state, text + n, capacity - (uint64_t)n);
}

static int32_t memory(const void *data, cyto_memory_use *uses, int32_t room) {
  const cuda_state *state = data;
  uint64_t outputs = 0, dynamic = 0, dynamic_held = 0;
  for (uint32_t i = 0; i < state->model->n_outputs; i++)
    outputs += state->outputs[i].bytes;
  for (uint32_t i = 0; i < state->model->n_dynamic; i++) {
    dynamic += state->frame.dynamic[i].bytes;
    dynamic_held += state->frame.dynamic[i].capacity;
  }
  cyto_memory_use weights[2];
  cyrt_cuda_window_memory(state, weights);
  const cyto_memory_use all[] = {
      weights[0],
      {"device: arena", state->frame.arena_bytes, state->arena.bytes},
      {"device: inputs and outputs", state->io.bytes + outputs, state->io.bytes + outputs},
      {"device: tensors of data-dependent size", dynamic, dynamic_held},
      {"pinned memory", state->staging_bytes, state->staging_bytes},
      weights[1],
  };
  int32_t n = 0;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    if (!all[i].peak)
      continue;
    if (n < room)
      uses[n] = all[i];
    n++;
  }
  return n;
}

const cyrt_device cyrt_cuda_device = {
    .workers = WORKERS,
    .open = state_open,
    .close = state_close,
    .release = shared_release,
    .prepare = cyrt_cuda_prepare,
    .run = cyrt_cuda_run,
    .describe = describe,
    .memory = memory,
    .keep_get = cyrt_cuda_keep_get,
    .keep_give = cyrt_cuda_keep_give,
    .keep_move = cyrt_cuda_keep_move,
};
