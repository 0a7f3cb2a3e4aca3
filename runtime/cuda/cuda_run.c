/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cuda_run.c - one run of a CUDA model: inputs over, launches, outputs back; recorded once, then replayed.
 *
 * The application's tensors are copied to a pinned block (staging), from there by the stream to the device's (io), and
 * back the same way; tensors that are device memory already are used where they lie. The first run with given sizes and
 * pointers launches one by one. If the model's launches depend on sizes alone, the second is recorded as a CUDA graph,
 * copies included, and from then on a run is one launch of it, unless a sequence is so long that its steps are too many;
 * a context keeps recordings of the last few sizes.
 * A run on a stream that the application captures adds its launches to the application's graph, one by one.
 * Tensors whose size is known only at run time go without staging.
 */
#include "cyrt_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  ATTRIBUTE_MANAGED = 8, /* of a pointer */
  ATTRIBUTE_DEVICE = 9,
  IO_ALIGN = 256
};

/* ---- where tensors are ---- */

/* Answers of the driver hold no longer where the application binds memory of devices: it may have given it back since, and
 * the addresses may be the host's or another device's now. */
static void forget_seen(cuda_state *state) { state->asked += state->device_memory != 0; }

static int is_answered(const cuda_state *state, const cuda_seen *seen) {
  return seen->piece && seen->asked == state->asked;
}

/* The entry of a piece, or one for it. Pieces whose numbers are equal modulo CUDA_SEEN take entries beside each other. */
static cuda_seen *seen_of(cuda_state *state, uintptr_t piece) {
  enum { BESIDE = 8 };
  for (uintptr_t i = piece; i < piece + BESIDE; i++) {
    cuda_seen *seen = &state->seen[i % CUDA_SEEN];
    if (!is_answered(state, seen) || seen->piece == piece)
      return seen;
  }
  return &state->seen[piece % CUDA_SEEN];
}

/* What the driver says of the piece that a tensor lies in; it is asked at most once. */
static cuda_seen *look_up(cuda_state *state, const void *ptr) {
  uintptr_t piece = (uintptr_t)ptr >> CUDA_PIECE_BITS;
  cuda_seen *seen = seen_of(state, piece);
  if (!is_answered(state, seen) || seen->piece != piece)
    *seen = (cuda_seen){.piece = piece, .asked = state->asked, .on_device = cyrt_cuda_on_device(state, ptr)};
  return seen;
}

static int lies_on_device(cuda_state *state, const void *ptr) { return ptr && look_up(state, ptr)->on_device; }

/* Memory of another device is out of this one's reach, unless the driver moves it between them. */
static cyto_status check_device(const cuda_state *state, const cyrt_port *port, const void *ptr, cyto_error *error) {
  const cuda_driver *driver = &state->shared->driver;
  int32_t number = state->device->number;
  uint32_t managed = 0;
  if (driver->pointer_attribute(&number, ATTRIBUTE_DEVICE, (cuda_ptr)(uintptr_t)ptr) ||
      number == state->device->number ||
      (!driver->pointer_attribute(&managed, ATTRIBUTE_MANAGED, (cuda_ptr)(uintptr_t)ptr) && managed))
    return CYTO_OK;
  return cyrt_error_set(error, CYTO_INVALID_ARGUMENT,
                        "'%s' is bound to memory of device %d, expected memory of device %d, where the context runs",
                        port->name, number, state->device->number);
}

/* Does it lie in memory that the context keeps on the device? */
static int is_kept(const cuda_state *state, const cyrt_frame *frame, uint32_t slot) {
  return frame->room && state->grows[slot];
}

static uint64_t input_bytes(const cuda_state *state, const cyrt_frame *frame, uint32_t index) {
  const cyrt_port *port = &state->model->inputs[index];
  int64_t dims[CYTO_MAX_RANK];
  for (int32_t i = 0; i < port->rank; i++)
    dims[i] = port->dims[i] >= 0 ? port->dims[i] : frame->syms[-1 - port->dims[i]];
  int64_t bytes = frame->inputs[index] ? cyto_tensor_bytes(port->dtype, port->rank, dims) : 0;
  return bytes > 0 ? (uint64_t)bytes : 0;
}

static int is_dynamic(const cuda_state *state, uint32_t output) {
  return (state->model->outputs[output].flags & CYRT_PORT_DYNAMIC) != 0;
}

static uint64_t output_bytes(const cuda_state *state, const cyrt_frame *frame, uint32_t index) {
  const cyrt_port *port = &state->model->outputs[index];
  int64_t bytes = cyto_tensor_bytes(port->dtype, port->rank, frame->outputs[index].dims);
  return bytes > 0 ? (uint64_t)bytes : 0;
}

/* ---- memory ---- */

static cyto_status grow_staging(cuda_state *state, uint64_t bytes, cyto_error *error) {
  const cuda_driver *driver = &state->shared->driver;
  if (state->staging && state->staging_bytes >= bytes)
    return CYTO_OK;
  if (state->staging)
    driver->host_free(state->staging);
  void *ptr;
  cyto_status status = cyrt_cuda_get_pinned(driver, &ptr, bytes, "inputs and outputs", error);
  state->staging = ptr;
  state->staging_bytes = status ? 0 : bytes;
  return status;
}

/* Where tensors are staged; how many bytes that takes. */
static uint64_t place_staged(cuda_state *state, const cyrt_frame *frame) {
  uint64_t total = 0, inputs = state->model->n_inputs, n = inputs + state->model->n_outputs;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t output = i - (uint32_t)inputs;
    int staged = is_kept(state, frame, i) ? 0
                 : i < inputs             ? !state->device_memory
                                          : !is_dynamic(state, output) &&
                                    !(state->device_memory && lies_on_device(state, frame->outputs[output].ptr));
    uint64_t bytes = !staged ? 0 : i < inputs ? input_bytes(state, frame, i) : output_bytes(state, frame, output);
    state->io_offset[i] = staged ? total : CUDA_NOT_STAGED;
    total += (bytes + IO_ALIGN - 1) / IO_ALIGN * IO_ALIGN;
  }
  return total;
}

static int has_memory(const cuda_state *state, const cyrt_frame *frame, uint64_t staged) {
  return state->arena.ptr && state->arena.bytes >= frame->arena_bytes &&
         (!staged || (state->io.bytes >= staged && state->staging_bytes >= staged));
}

static cyto_status get_memory(cuda_state *state, const cyrt_frame *frame, cyto_error *error) {
  uint64_t total = place_staged(state, frame);
  if (!has_memory(state, frame, total))
    cyrt_cuda_relax(state->shared, state->entry);
  if (state->captured && total)
    return cyrt_cuda_refuse_capture(state, "tensors in host memory are copied", error);
  if (state->captured && (!state->arena.ptr || state->arena.bytes < frame->arena_bytes))
    return cyrt_cuda_refuse_capture(state, "it needs memory: prepare the context for these sizes before", error);
  cyto_status status = cyrt_cuda_block_grow(state, &state->arena, frame->arena_bytes, "intermediate tensors", error);
  if (!status && total)
    status = cyrt_cuda_block_grow(state, &state->io, total, "inputs and outputs", error);
  return status || !total ? status : grow_staging(state, total, error);
}

int32_t cyrt_cuda_prepare(void *data, cyrt_frame *frame) {
  cuda_state *state = data;
  cuda_entry entry;
  forget_seen(state);
  if (has_memory(state, frame, place_staged(state, frame)))
    return CYTO_OK;
  cyto_status status = cyrt_cuda_enter(state->shared, state->device, &entry, frame->error);
  if (status)
    return status;
  status = cyrt_cuda_find_capture(state, frame->error);
  if (!status)
    status = get_memory(state, frame, frame->error);
  cyrt_cuda_leave(state->shared, &entry);
  return status;
}

int32_t cyrt_cuda_output_alloc(cyrt_frame *frame, uint32_t index, const int64_t *dims, int64_t rank,
                               int64_t elem_bytes) {
  cuda_state *state = cuda_state_of(frame);
  const cyrt_context_head *owner = (const cyrt_context_head *)state->host->context;
  int32_t status = owner->output_alloc(state->host, index, dims, rank, elem_bytes);
  if (status)
    return status;
  const cyrt_output *out = &state->host->outputs[index];
  memcpy(frame->outputs[index].dims, out->dims, sizeof out->dims);
  frame->outputs[index].ptr = out->ptr;
  if (cyrt_cuda_on_device(state, out->ptr))
    return check_device(state, &state->model->outputs[index], out->ptr, frame->error);
  uint64_t bytes = output_bytes(state, state->host, index);
  status = cyrt_cuda_block_grow(state, &state->outputs[index], bytes, "an output", frame->error);
  frame->outputs[index].ptr = (void *)(uintptr_t)state->outputs[index].ptr;
  return status;
}

/* ---- the frame that generated code sees ---- */

static cyto_status wrong_kind(const cyrt_port *port, int device, cyto_error *error) {
  return cyrt_error_set(error, CYTO_INVALID_ARGUMENT,
                        "'%s' is bound to %s memory, expected %s memory: see device_memory in cyto_options", port->name,
                        device ? "device" : "host", device ? "host" : "device");
}

static cyto_status place(cuda_state *state, const cyrt_port *port, const void *ptr, uint32_t slot, const void **out,
                         cyto_error *error) {
  int is_input = slot < state->model->n_inputs;
  *out = ptr;
  if (!ptr || is_kept(state, state->host, slot))
    return CYTO_OK;
  cuda_seen *seen = look_up(state, ptr);
  int device = seen->on_device;
  if ((device && !state->device_memory) || (!device && state->device_memory && is_input)) {
    seen->piece = 0; /* it may be another's when it is bound again */
    return wrong_kind(port, device, error);
  }
  if (!device)
    *out = (const void *)(uintptr_t)(state->io.ptr + state->io_offset[slot]);
  if (!device || seen->checked)
    return CYTO_OK;
  cyto_status status = check_device(state, port, ptr, error);
  seen->checked = !status;
  return status;
}

/* `layout`: as the arena is laid out. */
static cyto_status fill_frame(cuda_state *state, cyrt_frame *host, const cyrt_frame *layout) {
  const cyrt_model *model = state->model;
  cyrt_frame *f = &state->frame;
  state->host = host;
  state->layout = layout;
  state->sized = host;
  f->arena = (uint8_t *)(uintptr_t)state->arena.ptr;
  f->arena_bytes = layout->arena_bytes;
  f->syms = host->syms;
  f->offsets = layout->offsets;
  f->workers = host->workers;
  f->room = host->room;
  f->error = host->error;
  cyto_status status = CYTO_OK;
  for (uint32_t i = 0; i < model->n_inputs && !status; i++)
    status = place(state, &model->inputs[i], host->inputs[i], i, &state->inputs[i], host->error);
  for (uint32_t i = 0; i < model->n_outputs && !status; i++) {
    const void *at = NULL;
    f->outputs[i] = host->outputs[i];
    if (!is_dynamic(state, i))
      status = place(state, &model->outputs[i], host->outputs[i].ptr, model->n_inputs + i, &at, host->error);
    f->outputs[i].ptr = (void *)(uintptr_t)at;
  }
  return status;
}

/* ---- copies ---- */

static int is_staged(const cuda_state *state, uint32_t slot, const void *at) {
  return at && state->io_offset[slot] != CUDA_NOT_STAGED &&
         (cuda_ptr)(uintptr_t)at == state->io.ptr + state->io_offset[slot];
}

static void stage_inputs(cuda_state *state) {
  for (uint32_t i = 0; i < state->model->n_inputs; i++)
    if (is_staged(state, i, state->inputs[i]))
      memcpy(state->staging + state->io_offset[i], state->host->inputs[i], input_bytes(state, state->host, i));
}

static int32_t copy_inputs(cuda_state *state) {
  const cuda_driver *driver = &state->shared->driver;
  for (uint32_t i = 0; i < state->model->n_inputs; i++) {
    uint64_t bytes = is_staged(state, i, state->inputs[i]) ? input_bytes(state, state->sized, i) : 0;
    cuda_code code = bytes ? driver->copy_in_async((cuda_ptr)(uintptr_t)state->inputs[i],
                                                   state->staging + state->io_offset[i], bytes, state->stream)
                           : 0;
    if (code)
      return cyrt_cuda_check(driver, code, "cuMemcpyHtoDAsync", state->frame.error);
    state->moved_in += bytes;
  }
  return CYTO_OK;
}

static int32_t copy_outputs(cuda_state *state) {
  const cuda_driver *driver = &state->shared->driver;
  const cyrt_model *model = state->model;
  cyrt_frame *f = &state->frame;
  int32_t status = CYTO_OK;
  for (uint32_t i = 0; i < model->n_outputs && !status; i++) {
    uint32_t slot = model->n_inputs + i;
    uint64_t bytes =
        !is_dynamic(state, i) && is_staged(state, slot, f->outputs[i].ptr) ? output_bytes(state, state->sized, i) : 0;
    if (bytes)
      status = cyrt_cuda_check(driver,
                               driver->copy_out_async(state->staging + state->io_offset[slot],
                                                      state->io.ptr + state->io_offset[slot], bytes, state->stream),
                               "cuMemcpyDtoHAsync", f->error);
    state->moved_out += bytes;
  }
  return status ? status : cyrt_cuda_checks_issue(state);
}

/* Either of them, for those who watch. */
static int32_t copy_watched(cuda_state *state, int back) {
  const struct cyrt_cuda_trace *trace = state->stepwise ? state->code->trace : NULL;
  const uint64_t *moved = back ? &state->moved_out : &state->moved_in;
  uint64_t before = *moved;
  int64_t begun = trace ? trace->copy_begin(state, back) : 0;
  int32_t status = back ? copy_outputs(state) : copy_inputs(state);
  if (trace && !status && *moved > before)
    trace->copy_end(state, begun, *moved - before);
  return status;
}

/* Everything that the stream does for a run, in order: what is recorded. */
static int32_t issue(void *data) {
  cuda_state *state = data;
  state->behind_kernel = 0;
  int32_t status = cyrt_cuda_steps_issue(state);
  if (!status)
    status = copy_watched(state, 0);
  if (!status)
    status = state->model->run(&state->frame);
  return status ? status : copy_watched(state, 1);
}

static cyto_status copy_dynamic(cuda_state *state, uint32_t index) {
  const cuda_driver *driver = &state->shared->driver;
  const cyrt_output *out = &state->host->outputs[index];
  uint64_t bytes = output_bytes(state, state->host, index);
  if (!bytes || state->frame.outputs[index].ptr == out->ptr)
    return CYTO_OK;
  cuda_code code =
      driver->copy_out_async(out->ptr, (cuda_ptr)(uintptr_t)state->frame.outputs[index].ptr, bytes, state->stream);
  state->moved_out += bytes;
  return cyrt_cuda_check(driver, code ? code : driver->stream_wait(state->stream), "cuMemcpyDtoHAsync",
                         state->host->error);
}

/* With a stream of the caller and all outputs on the device nothing is waited for. */
static int waits(const cuda_state *state) {
  const cyrt_model *model = state->model;
  int wait = state->stream == state->own_stream;
  for (uint32_t i = 0; i < model->n_outputs; i++)
    wait |= state->frame.outputs[i].ptr != state->host->outputs[i].ptr;
  for (uint32_t i = 0; i < model->n_inputs; i++)
    wait |= is_staged(state, i, state->inputs[i]);
  return wait;
}

static cyto_status finish(cuda_state *state) {
  const cuda_driver *driver = &state->shared->driver;
  const cyrt_model *model = state->model;
  cyto_status status = CYTO_OK;
  int wait = waits(state);
  if (wait)
    cyrt_cuda_relax(state->shared, state->entry);
  if (wait)
    status = cyrt_cuda_check(driver, driver->stream_wait(state->stream), "running the model (cuStreamSynchronize)",
                             state->host->error);
  if (wait && !status)
    status = cyrt_cuda_checks_tell(state, state->host->error);
  for (uint32_t i = 0; i < model->n_outputs && !status; i++) {
    uint32_t slot = model->n_inputs + i;
    if (is_dynamic(state, i))
      status = copy_dynamic(state, i);
    else if (is_staged(state, slot, state->frame.outputs[i].ptr))
      memcpy(state->host->outputs[i].ptr, state->staging + state->io_offset[slot], output_bytes(state, state->host, i));
  }
  return status;
}

/* ---- recording ---- */

/* All that the launches of a run rest on. */
static void make_key(cuda_state *state, uint64_t *key) {
  const cyrt_model *model = state->model;
  uint32_t n = 0;
  key[n++] = state->arena.ptr;
  key[n++] = state->io.ptr;
  key[n++] = (uintptr_t)state->staging;
  key[n++] = state->code->libraries ? state->code->libraries->workspace(state) : 0;
  key[n++] = (uint64_t)state->host->room;
  key[n++] = state->layout != state->host;
  for (uint32_t i = 0; i < model->n_input_syms; i++)
    key[n++] = (uint64_t)state->layout->syms[i];
  for (uint32_t i = 0; i < model->n_inputs; i++)
    key[n++] = (uintptr_t)state->inputs[i];
  for (uint32_t i = 0; i < model->n_outputs; i++)
    key[n++] = (uintptr_t)state->frame.outputs[i].ptr;
}

/* The recording for this run's key; a new one takes the place of the one that was not used for longest. */
static cuda_recording *find_recording(cuda_state *state) {
  size_t bytes = state->key_words * sizeof *state->keys;
  uint64_t *key = state->keys + CUDA_RECORDINGS * state->key_words;
  cuda_recording *oldest = &state->recordings[0];
  make_key(state, key);
  for (int i = 0; i < CUDA_RECORDINGS; i++) {
    cuda_recording *r = &state->recordings[i];
    if (r->seen && !memcmp(r->key, key, bytes))
      return r;
    oldest = r->last < oldest->last ? r : oldest;
  }
  cyrt_cuda_forget_recording(state, oldest);
  memcpy(oldest->key, key, bytes);
  return oldest;
}

static cyto_status run_eagerly(cuda_state *state) {
  cyrt_cuda_relax(state->shared, state->entry);
  cyrt_cuda_window_begin(state);
  cyto_status status = (cyto_status)issue(state);
  if (state->code->libraries && !state->window)
    state->code->libraries->settle(state);
  return status;
}

/* The driver would not record the run: that is no fault of the model's. What is, shows again. */
static cyto_status run_unrecorded(cuda_state *state, cuda_recording *r) {
  cyto_error *error = state->host->error;
  r->eager = 1;
  state->failed_recordings++;
  snprintf(state->why_eager, sizeof state->why_eager, "%.299s", error ? error->message : "?");
  cyrt_error_clear(error);
  return run_eagerly(state);
}

/* The graph has what a recording of our own has, but for copies of tensors. */
static cyto_status run_captured(cuda_state *state) {
  cyrt_cuda_relax(state->shared, state->entry);
  if (!(state->code->flags & CYRT_CUDA_REPLAY))
    return cyrt_cuda_refuse_capture(state, "its steps depend on data", state->host->error);
  if (state->window)
    return cyrt_cuda_refuse_capture(state, "its weights are streamed from the host", state->host->error);
  state->lent = 1;
  state->recording = 1;
  cyto_status status = (cyto_status)issue(state);
  state->recording = 0;
  return status;
}

/* A step of a sequence, by the recording for a range of lengths. */
static cyto_status run_step(cuda_state *state) {
  cuda_recording *r = find_recording(state);
  int launched = 0;
  cyto_status status = CYTO_OK;
  r->last = ++state->runs;
  r->seen = 1;
  if (!r->eager) {
    state->sized = state->layout;
    status = cyrt_cuda_steps_run(state, r, issue, waits(state), &launched);
    state->sized = state->host;
  }
  if (launched < 0)
    return run_unrecorded(state, r);
  return status || launched ? status : run_eagerly(state);
}

static cyto_status run_here(cuda_state *state) {
  const cuda_driver *driver = &state->shared->driver;
  cyto_status status = CYTO_OK;
  if (state->captured)
    return run_captured(state);
  stage_inputs(state);
  if (!(state->code->flags & CYRT_CUDA_REPLAY) || state->stepwise || state->window)
    return run_eagerly(state);
  if (state->layout != state->host)
    return run_step(state);
  cuda_recording *r = find_recording(state);
  r->last = ++state->runs;
  if (!r->seen || r->eager) {
    uint64_t before = state->launches;
    status = run_eagerly(state);
    make_key(state, r->key); /* choosing may have needed memory */
    r->seen = !status;
    r->eager |= state->launches - before > CUDA_MAX_RECORDED || state->failed_recordings >= CUDA_MAX_FAILED;
    return status;
  }
  if (!r->graph)
    cyrt_cuda_relax(state->shared, state->entry);
  if (!r->graph && cyrt_cuda_record(state, issue, state, &r->graph))
    return run_unrecorded(state, r);
  return cyrt_cuda_check(driver, driver->graph_launch(r->graph, state->stream), "cuGraphLaunch", state->host->error);
}

int32_t cyrt_cuda_run(void *data, cyrt_frame *frame) {
  cuda_state *state = data;
  cuda_entry entry;
  cyto_status status = cyrt_cuda_enter_calmly(state->shared, state->device, &entry, frame->error);
  if (status)
    return status;
  state->entry = &entry;
  forget_seen(state);
  status = cyrt_cuda_find_capture(state, frame->error);
  if (!status)
    status = cyrt_cuda_checks_before(state, frame->error);
  const cyrt_frame *layout = status || state->window ? NULL : cyrt_cuda_steps_layout(state, frame);
  if (layout && get_memory(state, layout, NULL)) {
    cyrt_cuda_steps_stop(state);
    layout = NULL;
  }
  if (!status && !layout)
    status = get_memory(state, layout = frame, frame->error);
  if (!status)
    status = fill_frame(state, frame, layout);
  const struct cyrt_cuda_trace *trace = status ? NULL : state->code->trace;
  state->stepwise = trace && trace->begin(state);
  if (trace)
    cyrt_cuda_relax(state->shared, &entry);
  if (!status && (status = run_here(state))) {
    cyrt_cuda_relax(state->shared, &entry);
    status = cyrt_cuda_checks_failed(state, status, frame->error);
  }
  if (!status)
    status = finish(state);
  if (trace)
    trace->end(state);
  state->entry = NULL;
  cyrt_cuda_leave(state->shared, &entry);
  return status;
}

/* ---- what generated code calls ---- */

/* A kernel behind one of ours may begin while that ends: it waits itself (CY_AFTER in prelude.cuh), as its image is of an
 * architecture that can. */
static cuda_code launch(cuda_state *state, uint32_t kernel, uint32_t blocks, void **params) {
  enum { PROGRAMMATIC = 6 };
  static const cuda_launch_attribute early = {.id = PROGRAMMATIC, .value = 1};
  const cuda_device *device = state->device;
  const cyrt_cuda_kernel *k = &state->code->kernels[kernel];
  int able = device->programmatic && device->images[kernel]->arch % CYRT_CUDA_SPECIFIC >= PROGRAMMATIC_ARCH;
  cuda_launch_config config = {.grid = {blocks, 1, 1},
                               .block = {k->threads, 1, 1},
                               .shared = device->shared_bytes[kernel],
                               .stream = state->stream,
                               .attributes = &early,
                               .n_attributes = 1};
  int behind = state->behind_kernel;
  state->behind_kernel = 1;
  if (able && behind && !state->stepwise)
    return state->shared->driver.launch_ex(&config, device->functions[kernel], params, NULL);
  return state->shared->driver.launch(device->functions[kernel], blocks, 1, 1, k->threads, 1, 1, config.shared,
                                      state->stream, params, NULL);
}

static int32_t launch_seen(cyrt_frame *frame, uint32_t kernel, const cyrt_slot *slots, int64_t blocks,
                           int64_t then_blocks, const cyrt_cuda_tma *tma) {
  cuda_state *state = cuda_state_of(frame);
  const cuda_driver *driver = &state->shared->driver;
  const cyrt_cuda_kernel *k = &state->code->kernels[kernel];
  void *params[CUDA_MAX_SLOTS];
  int32_t status;
  cuda_ptr lengths;
  if (cyrt_cuda_steps_note(frame, kernel, slots, blocks, then_blocks, tma))
    return CYTO_OK;
  int taken = cyrt_cuda_steps_take(state, k, &blocks, &lengths);
  if (blocks <= 0)
    return CYTO_OK;
  state->launches++;
  if (tma && !taken && cyrt_cuda_launch_tma(frame, slots, tma, &status))
    return status;
  blocks = cyrt_cuda_blocks(frame, k, blocks);
  if (blocks > k->max_blocks || k->slots >= CUDA_MAX_SLOTS)
    return cyrt_fail(frame, CYTO_RUNTIME_FAILURE, "kernel '%s' cannot be launched: %lld blocks, %lld parameters",
                     k->name, (long long)blocks, (long long)k->slots);
  for (uint32_t i = 0; i < k->slots; i++)
    params[i] = (void *)(uintptr_t)&slots[i];
  params[k->slots] = &lengths;
  cuda_code code = launch(state, kernel, (uint32_t)blocks, params);
  if (code)
    return cyrt_cuda_check(driver, code, k->name, frame->error);
  return k->then ? launch_seen(frame, k->then, slots, then_blocks, 0, NULL) : CYTO_OK;
}

int32_t cyrt_cuda_launch(cyrt_frame *frame, uint32_t kernel, const cyrt_slot *slots, int64_t blocks,
                         int64_t then_blocks, const cyrt_cuda_tma *tma) {
  cuda_state *state = cuda_state_of(frame);
  cyrt_slot seen[CUDA_MAX_SLOTS];
  if (!state->window || blocks <= 0 || state->code->kernels[kernel].slots > CUDA_MAX_SLOTS)
    return launch_seen(frame, kernel, slots, blocks, then_blocks, tma);
  int32_t status = cyrt_cuda_window_enter(state, slots, state->code->kernels[kernel].slots, seen, frame->error);
  if (!status)
    status = launch_seen(frame, kernel, seen, blocks, then_blocks, tma);
  return status ? status : (int32_t)cyrt_cuda_window_leave(state, frame->error);
}

int32_t cyrt_cuda_fetch(cyrt_frame *frame, const void *at, int64_t bytes, void *out) {
  cuda_state *state = cuda_state_of(frame);
  state->behind_kernel = 0;
  const cuda_driver *driver = &state->shared->driver;
  const void *weight = cyrt_cuda_window_host(state, at, (uint64_t)bytes);
  if (weight) {
    memcpy(out, weight, (size_t)bytes);
    return CYTO_OK;
  }
  cuda_code code = driver->copy_out_async(out, (cuda_ptr)(uintptr_t)at, (size_t)bytes, state->stream);
  state->moved_out += (uint64_t)bytes;
  return cyrt_cuda_check(driver, code ? code : driver->stream_wait(state->stream), "reading from the device",
                         frame->error);
}

/* Tensors of an operator in host memory: `from` with data of its own; copied from the device when `fetch`. */
static int32_t to_host(cyrt_frame *frame, const cyrt_tensor *from, cyrt_tensor *to, int32_t n, int fetch) {
  for (int32_t i = 0; i < n; i++) {
    to[i] = from[i];
    if (!from[i].data)
      continue;
    int64_t bytes = cyto_tensor_bytes(from[i].dtype, from[i].rank, from[i].dims);
    to[i].data = bytes < 0 ? NULL : malloc(bytes ? (size_t)bytes : 1);
    if (!to[i].data)
      return cyrt_fail(frame, CYTO_OUT_OF_MEMORY, "no memory for %lld bytes of an operator's tensors",
                       (long long)bytes);
    int32_t status = fetch && bytes ? cyrt_cuda_fetch(frame, from[i].data, bytes, to[i].data) : CYTO_OK;
    if (status)
      return status;
  }
  return CYTO_OK;
}

static int32_t to_device(cyrt_frame *frame, const cyrt_tensor *from, const cyrt_tensor *to, int32_t n) {
  cuda_state *state = cuda_state_of(frame);
  state->behind_kernel = 0;
  const cuda_driver *driver = &state->shared->driver;
  for (int32_t i = 0; i < n; i++) {
    int64_t bytes = from[i].data ? cyto_tensor_bytes(from[i].dtype, from[i].rank, from[i].dims) : 0;
    cuda_code code =
        bytes > 0 ? driver->copy_in_async((cuda_ptr)(uintptr_t)to[i].data, from[i].data, (size_t)bytes, state->stream)
                  : 0;
    if (code)
      return cyrt_cuda_check(driver, code, "cuMemcpyHtoDAsync", frame->error);
    state->moved_in += bytes > 0 ? (uint64_t)bytes : 0;
  }
  return cyrt_cuda_check(driver, driver->stream_wait(state->stream), "cuStreamSynchronize", frame->error);
}

int32_t cyrt_cuda_call(cyrt_frame *frame, cyrt_op op, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out,
                       int32_t n_out, const cyrt_attr *attrs) {
  int32_t n = n_in + n_out;
  cyrt_tensor *host = calloc((size_t)n + 1, sizeof *host);
  if (!host)
    return cyrt_fail(frame, CYTO_OUT_OF_MEMORY, "no memory for an operator's tensors");
  int32_t status = to_host(frame, in, host, n_in, 1);
  if (!status)
    status = to_host(frame, out, host + n_in, n_out, 0);
  if (!status)
    status = op(frame, host, n_in, host + n_in, n_out, attrs);
  if (!status)
    status = to_device(frame, host + n_in, out, n_out);
  for (int32_t i = 0; i < n; i++) {
    if (i >= n_in)
      memcpy(out[i - n_in].dims, host[i].dims, sizeof host[i].dims);
    free(host[i].data);
  }
  free(host);
  return status;
}
