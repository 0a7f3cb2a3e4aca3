/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* context_spread.c - a context over several devices, which share the batch of each run.
 *
 * In:  a context whose inputs and outputs lie in the host's memory.
 * Out: outputs as of one run. Each device has a context and a thread of its own (the caller is the first one's), which
 *      run on consecutive rows of inputs and outputs, as they lie, so that results are in order.
 *
 * Shares go by the rows that a device has done in its time so far. What a device fails at is done again by those that have
 * not failed in this run; once they have done it, the other is out. Where all fail, the data is at fault, and
 * nobody is out. A device that is short of memory is not out, but gets half of its share.
 *
 * Linked by cyto_model_load() alone: other files know it by the functions of cyrt_spread.
 */
#include "context.h"
#include "os/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IDLE, GO, QUIT, GONE };         /* part.word */
enum { WORKS, HAS_FAILED, OUT };       /* part.health */
enum { MAX_DEVICES = 64, PROBE = 32 }; /* runs after which a device without a share gets a row */

typedef struct part {
  cyto_context *owner, *context; /* of all devices; on this one */
  struct spread *spread;
  int32_t device, health;
  double rate;        /* rows in a nanosecond; 0: not known */
  int64_t from, rows; /* of the run */
  cyto_status status;
  cyto_error error; /* of the run, or why it is out */
  atomic_uint word;
} part;

typedef struct spread {
  cyrt_spread head;
  int32_t count, strict;
  uint64_t runs;
  uint8_t *batched; /* [inputs] */
  part parts[];
} spread;

/* ---- a device's part of a run ---- */

static uint64_t row_bytes(int32_t dtype, int32_t rank, const int64_t *dims) {
  int64_t bytes = dims[0] > 0 ? cyto_tensor_bytes(dtype, rank, dims) / dims[0] : 0;
  return bytes > 0 ? (uint64_t)bytes : 0;
}

static cyto_status part_bind_input(part *p, int32_t k) {
  const cyrt_port *port = &p->owner->model->code->inputs[k];
  const uint8_t *data = p->owner->pointers[k];
  int64_t dims[CYTO_MAX_RANK];
  if (!data)
    return cyto_bind_input(p->context, k, 0, 0, NULL, NULL, &p->error);
  memcpy(dims, p->owner->inputs[k].dims, sizeof dims);
  if (p->spread->batched[k]) {
    data += row_bytes(port->dtype, port->rank, dims) * (uint64_t)p->from;
    dims[0] = p->rows;
  }
  return cyto_bind_input(p->context, k, port->dtype, port->rank, dims, data, &p->error);
}

static cyto_status part_bind_output(part *p, int32_t k) {
  const cyrt_port *port = &p->owner->model->code->outputs[k];
  const cyrt_output *output = &p->owner->frame.outputs[k];
  uint64_t row = row_bytes(port->dtype, port->rank, output->dims);
  return cyto_bind_output(p->context, k, (uint8_t *)output->ptr + row * (uint64_t)p->from, row * (uint64_t)p->rows,
                          &p->error);
}

static void part_run(part *p) {
  const cyrt_model *code = p->owner->model->code;
  int64_t start = cyrt_os_now_ns();
  p->status = CYTO_OK;
  for (uint32_t k = 0; k < code->n_inputs && !p->status; k++)
    p->status = part_bind_input(p, (int32_t)k);
  for (uint32_t k = 0; k < code->n_outputs && !p->status; k++)
    p->status = part_bind_output(p, (int32_t)k);
  if (!p->status)
    p->status = cyto_run(p->context, &p->error);
  double rate = (double)p->rows / (double)(cyrt_os_now_ns() - start + 1);
  if (!p->status && p->rows)
    p->rate =
        p->rate > 0 ? 2 * p->rate * rate / (p->rate + rate) : rate; /* the mean of times: what is slow shows soon */
}

static void part_main(void *data) {
  part *p = data;
  for (;;) {
    uint32_t word = atomic_load(&p->word);
    if (word == QUIT)
      break;
    if (word == GO) {
      part_run(p);
      atomic_store(&p->word, IDLE);
      cyrt_os_wake(&p->word);
    } else {
      cyrt_os_wait(&p->word, word);
    }
  }
  atomic_store(&p->word, GONE);
  cyrt_os_wake(&p->word);
}

static void part_tell(part *p, uint32_t word) {
  atomic_store(&p->word, word);
  cyrt_os_wake(&p->word);
}

static void part_wait(part *p, uint32_t until) {
  for (uint32_t word; (word = atomic_load(&p->word)) != until;)
    cyrt_os_wait(&p->word, word);
}

/* ---- shares ---- */

static double usual_rate(const spread *s) {
  double sum = 0;
  int known = 0;
  for (int32_t k = 0; k < s->count; k++)
    if (s->parts[k].health == WORKS && s->parts[k].rate > 0) {
      sum += s->parts[k].rate;
      known++;
    }
  return known ? sum / known : 1;
}

/* Cuts rows [from, from + rows) by the devices' rates; those that have failed get none. 0: there are no others. */
static int cut(spread *s, int64_t from, int64_t rows) {
  double usual = usual_rate(s), sum = 0, before = 0;
  int64_t at = 0;
  int probes = ++s->runs % PROBE == 0;
  for (int32_t k = 0; k < s->count; k++)
    sum += s->parts[k].health != WORKS ? 0 : s->parts[k].rate > 0 ? s->parts[k].rate : usual;
  for (int32_t k = 0; k < s->count; k++) {
    part *p = &s->parts[k];
    before += p->health != WORKS ? 0 : p->rate > 0 ? p->rate : usual;
    int64_t end = (int64_t)(before / sum * (double)rows + 0.5);
    if (probes && p->health == WORKS && end == at && at < rows)
      end = at + 1;
    p->from = from + at;
    p->rows = p->health != WORKS || end <= at ? 0 : (end < rows ? end : rows) - at;
    at += p->rows;
  }
  return sum > 0;
}

/* Runs all parts that have rows; a run of no rows is the first device's. */
static void run_parts(spread *s, int64_t rows) {
  part *mine = NULL;
  for (int32_t k = 0; k < s->count; k++) {
    part *p = &s->parts[k];
    p->status = CYTO_OK;
    if (p->health != WORKS || (rows && !p->rows))
      continue;
    if (!mine)
      mine = p;
    else if (rows)
      part_tell(p, GO);
  }
  if (mine)
    part_run(mine);
  for (int32_t k = 0; k < s->count; k++)
    if (&s->parts[k] != mine)
      part_wait(&s->parts[k], IDLE);
}

/* ---- a run ---- */

static cyto_status tell(const part *p, cyto_error *error) {
  return cyrt_error_set(error, p->status, "device %d: %s", p->device, p->error.message);
}

/* Those that failed in the run have their parts done again; `ok` says whether that went well. */
static void settle(spread *s, int ok) {
  for (int32_t k = 0; k < s->count; k++) {
    part *p = &s->parts[k];
    if (p->health != HAS_FAILED)
      continue;
    p->health = ok && p->error.code != CYTO_OUT_OF_MEMORY ? OUT : WORKS;
    p->rate *= p->error.code == CYTO_OUT_OF_MEMORY ? 0.5 : 1;
  }
}

static cyto_status run_rows(spread *s, int64_t from, int64_t rows, cyto_error *error) {
  struct {
    int64_t from, rows;
  } again[MAX_DEVICES];
  int32_t n = 0;
  if (!cut(s, from, rows))
    return CYTO_NO_DEVICE; /* the error is that of who failed before */
  run_parts(s, rows);
  for (int32_t k = 0; k < s->count; k++) {
    part *p = &s->parts[k];
    if (!p->status)
      continue;
    tell(p, error);
    p->error.code = p->status;
    p->health = HAS_FAILED;
    again[n].from = p->from;
    again[n++].rows = p->rows;
  }
  cyto_status first = n && error ? error->code : CYTO_RUNTIME_FAILURE;
  for (int32_t k = 0; k < n; k++) {
    cyto_status status = s->strict ? CYTO_NO_DEVICE : run_rows(s, again[k].from, again[k].rows, error);
    if (status)
      return status == CYTO_NO_DEVICE ? first : status;
  }
  return CYTO_OK;
}

static cyto_status spread_run(cyto_context *context, cyto_error *error) {
  spread *s = (spread *)context->spread;
  cyto_error own;
  cyto_error *said = error ? error : &own;
  int32_t works = 0;
  for (int32_t k = 0; k < s->count; k++)
    works += s->parts[k].health == WORKS;
  if (!works)
    return cyrt_error_set(error, CYTO_NO_DEVICE, "all of the context's %d devices have failed; the first one: %s",
                          s->count, s->parts[0].error.message);
  cyto_status status = run_rows(s, 0, context->inputs[0].dims[0], said);
  settle(s, !status);
  if (!status)
    cyrt_error_clear(error);
  return status;
}

/* ---- making and ending ---- */

static void spread_close(cyrt_spread *head) {
  spread *s = (spread *)head;
  for (int32_t k = 1; k < s->count; k++)
    if (atomic_load(&s->parts[k].word) != GONE) {
      part_tell(&s->parts[k], QUIT);
      part_wait(&s->parts[k], GONE);
    }
  for (int32_t k = 0; k < s->count; k++)
    cyto_context_destroy(s->parts[k].context);
  free(s->batched);
  free(s);
}

static void spread_describe(const cyrt_spread *head, char *text, uint64_t capacity) {
  const spread *s = (const spread *)head;
  uint64_t used = 0;
  for (int32_t k = 0; k < s->count && used + 2 < capacity; k++) {
    const part *p = &s->parts[k];
    if (k)
      used += (uint64_t)snprintf(text + used, capacity - used, "; ");
    if (used >= capacity)
      break;
    if (p->health == OUT)
      snprintf(text + used, capacity - used, "device %d has failed: %s", p->device, p->error.message);
    else
      cyto_context_describe(p->context, text + used, capacity - used);
    used += strlen(text + used);
  }
}

static cyto_status batch_check(const cyto_context *context, uint8_t *batched, cyto_error *error) {
  const cyrt_model *code = context->model->code;
  cyto_port lead, port;
  if (!code->n_inputs || cyto_model_input(context->model, 0, &lead) || !lead.rank || lead.dims[0] >= 0)
    return cyrt_error_set(
        error, CYTO_INVALID_ARGUMENT,
        "several devices share a batch, and the model has none: the first size of its first input must be open");
  for (uint32_t k = 0; k < code->n_inputs + code->n_outputs; k++) {
    int is_output = k >= code->n_inputs;
    cyrt_port_describe(code, is_output ? &code->outputs[k - code->n_inputs] : &code->inputs[k], !is_output, &port);
    const char *fault = cyrt_batch_fault(&lead, &port, is_output);
    if (fault)
      return cyrt_error_set(error, CYTO_INVALID_ARGUMENT, "several devices cannot share the batch: %s '%s' %s",
                            is_output ? "output" : "input", port.name, fault);
    if (!is_output)
      batched[k] = (uint8_t)cyrt_batch_has(&lead, &port);
  }
  return CYTO_OK;
}

static cyto_status options_check(const cyto_context *context, const cyto_options *options, cyto_error *error) {
  const char *fault = !context->model->code->device ? "the model is for the CPU: compile it with --target=cuda"
                      : options->device_count < 1 || !options->devices || options->device_count > MAX_DEVICES
                          ? "there must be 1 to 64 of them"
                      : options->device_memory || options->stream
                          ? "tensors lie in the host's memory, and each device has its own stream"
                      : options->device_allocator.alloc
                          ? "device_allocator serves one device and one thread: leave it out, or set device_pool"
                          : NULL;
  return fault ? cyrt_error_set(error, CYTO_INVALID_ARGUMENT, "cyto_options.devices: %s", fault) : CYTO_OK;
}

static cyto_status part_open(spread *s, int32_t k, cyto_context *owner, const cyto_options *options,
                             cyto_error *error) {
  part *p = &s->parts[k];
  cyto_options own = *options;
  own.device = p->device = options->devices[k];
  own.allocator = (cyto_allocator){0}; /* the application's is for the thread that runs the context */
  own.devices = NULL;
  own.device_count = 0;
  p->owner = owner;
  p->spread = s;
  atomic_init(&p->word, GONE);
  cyto_status status = cyto_context_create(owner->model, &own, &p->context, error);
  if (status || !k)
    return status;
  atomic_store(&p->word, IDLE);
  if (cyrt_os_thread(part_main, p))
    return CYTO_OK;
  atomic_store(&p->word, GONE);
  return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "device %d: its thread cannot be started", p->device);
}

cyto_status cyrt_spread_open(cyto_context *context, const cyto_options *options, cyto_error *error) {
  cyto_status status = options_check(context, options, error);
  if (status)
    return status;
  spread *s = calloc(1, sizeof *s + (size_t)options->device_count * sizeof *s->parts);
  if (s)
    s->batched = calloc((size_t)context->model->code->n_inputs + 1, 1);
  if (!s || !s->batched) {
    free(s);
    return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for the tables of devices");
  }
  cyrt_os_pin(part_main);
  s->head = (cyrt_spread){spread_run, spread_close, spread_describe};
  s->strict = options->device_errors == CYTO_DEVICE_ERRORS_STOP;
  status = batch_check(context, s->batched, error);
  for (int32_t k = 0; k < options->device_count && !status; k++) {
    s->count++;
    status = part_open(s, k, context, options, error);
  }
  if (!status) {
    atomic_store(&s->parts[0].word, IDLE);
    context->spread = &s->head;
    context->frame.workers = context->model->code->device->workers;
    return CYTO_OK;
  }
  spread_close(&s->head);
  return status;
}
