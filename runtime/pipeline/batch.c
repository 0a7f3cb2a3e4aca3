/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* batch.c - running a model on the rows of some items at once.
 *
 * In:  entries of equal shapes. A single one is bound as it lies; several are copied into one tensor per input, with
 *      their last row again and again where the model's batch is larger.
 * Out: each entry's outputs, which are rows of one block of memory.
 *
 * A run that is short of memory is done again in halves, in a new context, and the stage's limit is lowered; it rises again
 * after `patience` full batches, which are twice as many each time that this was too early. A batch that fails otherwise is
 * run item by item, so that the one with the fault is named.
 */
#include "pipeline_int.h"

#include <stdio.h>

enum { MAX_PATIENCE = 4096 };

/* ---- rows ---- */

static int lacks_batch(const batching *b, int32_t k, const cyto_tensor *t) {
  return b->batched[k] && t->rank == b->inputs[k].rank - 1;
}

int64_t cyrt_pipe_rows(const batching *b, const item *i, int32_t *out_bare) {
  int64_t rows = 1;
  if (i->head.count > b->n_inputs)
    return -1;
  *out_bare = i->head.count && lacks_batch(b, 0, &i->tensors[0]);
  if (!i->head.count || b->alone)
    return 1;
  for (int32_t k = 0; k < i->head.count; k++) {
    const cyto_tensor *t = &i->tensors[k];
    if (!b->batched[k] || !t->data)
      continue;
    if (lacks_batch(b, k, t) != *out_bare || (!*out_bare && t->rank != b->inputs[k].rank))
      return -1;
    rows = *out_bare ? 1 : t->dims[0];
  }
  return rows > 0 ? rows : 1;
}

static int64_t sum_of_rows(const entry *e, int64_t n) {
  int64_t rows = 0;
  for (int64_t k = 0; k < n; k++)
    rows += e[k].rows;
  return rows;
}

/* ---- inputs ---- */

static void rows_copy(uint8_t *to, const entry *e, int64_t n, int32_t k, int64_t total) {
  uint64_t row = 0;
  int64_t rows = sum_of_rows(e, n);
  for (int64_t i = 0; i < n; i++) {
    const cyto_tensor *t = &e[i].item->tensors[k];
    uint64_t bytes = (uint64_t)cyto_tensor_bytes(t->dtype, t->rank, t->dims);
    memcpy(to, t->data, bytes);
    to += bytes;
    row = bytes / (uint64_t)e[i].rows;
  }
  for (; rows < total; rows++, to += row)
    memcpy(to, to - row, row);
}

/* The tensor that the rows are put together in; NULL: no memory. */
static void *gathered(worker *w, int32_t k, uint64_t bytes) {
  if (w->gathered_bytes[k] >= bytes && w->gathered[k])
    return w->gathered[k];
  free(w->gathered[k]);
  w->gathered[k] = bytes < SIZE_MAX / 2 ? malloc(bytes ? bytes : 1) : NULL;
  w->gathered_bytes[k] = w->gathered[k] ? bytes : 0;
  return w->gathered[k];
}

static cyto_status bind_input(worker *w, const entry *e, int64_t n, int32_t k, int64_t total, cyto_error *error) {
  const batching *b = &w->stage->batching;
  const cyto_tensor *t = k < e->item->head.count ? &e->item->tensors[k] : NULL;
  if (!t || !t->data)
    return b->inputs[k].is_optional
               ? cyto_bind_input(w->context, k, 0, 0, NULL, NULL, error)
               : cyrt_error_set(error, CYTO_INVALID_ARGUMENT, "input '%s' is not given", b->inputs[k].name);
  int64_t dims[CYTO_MAX_RANK + 1];
  int32_t bare = lacks_batch(b, k, t);
  if (t->rank + bare > CYTO_MAX_RANK)
    return cyrt_error_set(error, CYTO_SHAPE_MISMATCH, "input '%s': has rank %d", b->inputs[k].name, t->rank);
  if (bare)
    dims[0] = 1;
  memcpy(dims + bare, t->dims, (size_t)t->rank * sizeof *dims);
  const void *data = t->data;
  if (b->batched[k] && (n > 1 || (total > e->rows && dims[0]))) {
    dims[0] = total;
    int64_t bytes = cyto_tensor_bytes(t->dtype, t->rank + bare, dims);
    void *to = bytes < 0 ? NULL : gathered(w, k, (uint64_t)bytes);
    if (!to)
      return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "input '%s': no memory for a batch of %lld", b->inputs[k].name,
                            (long long)total);
    rows_copy(to, e, n, k, total);
    data = to;
  }
  return cyto_bind_input(w->context, k, t->dtype, t->rank + bare, dims, data, error);
}

/* ---- outputs ---- */

static uint64_t aligned(uint64_t bytes) { return (bytes + CYRT_ALIGN - 1) / CYRT_ALIGN * CYRT_ALIGN; }

/* Memory for outputs: that of a batch which nobody uses any more, if its size is right. */
static block *block_get(stage *s, uint64_t bytes) {
  enum { SPARE = sizeof s->spare / sizeof *s->spare };
  block *found = NULL;
  cyrt_pipe_lock(s->pipeline);
  for (int32_t k = 0; k < SPARE && !found; k++)
    if (s->spare[k] && s->spare[k]->bytes == bytes && atomic_load(&s->spare[k]->refs) == 1)
      found = s->spare[k];
  if (found)
    atomic_fetch_add(&found->refs, 1);
  cyrt_pipe_unlock(s->pipeline);
  if (found || !(found = cyrt_pipe_block_new(bytes)))
    return found;
  atomic_fetch_add(&found->refs, 1);
  cyrt_pipe_lock(s->pipeline);
  block *old = s->spare[s->spare_next];
  s->spare[s->spare_next] = found;
  s->spare_next = (s->spare_next + 1) % SPARE;
  cyrt_pipe_unlock(s->pipeline);
  cyrt_pipe_block_give(old);
  return found;
}

static cyto_status no_memory(cyto_error *error, uint64_t bytes) {
  return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for %llu bytes of outputs", (unsigned long long)bytes);
}

/* Has the outputs, whose sizes are known, written to a block. */
static cyto_status bind_outputs(worker *w, cyto_tensor *full, block **out_block, cyto_error *error) {
  const batching *b = &w->stage->batching;
  uint64_t bytes = 0;
  for (int32_t k = 0; k < b->n_outputs; k++) {
    cyto_tensor *t = &full[k];
    t->dtype = b->outputs[k].dtype;
    t->rank = b->outputs[k].rank;
    memcpy(t->dims, w->context->frame.outputs[k].dims, sizeof t->dims);
    int64_t size = cyto_tensor_bytes(t->dtype, t->rank, t->dims);
    if (size < 0)
      return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "output '%s': its size overflows", b->outputs[k].name);
    t->bytes = (uint64_t)size;
    bytes += aligned(t->bytes);
  }
  block *to = *out_block = block_get(w->stage, bytes);
  if (!to)
    return no_memory(error, bytes);
  cyto_status status = CYTO_OK;
  uint8_t *at = to->memory;
  for (int32_t k = 0; k < b->n_outputs && !status; k++) {
    full[k].data = at;
    at += aligned(full[k].bytes);
    status = cyto_bind_output(w->context, k, full[k].data, full[k].bytes, error);
  }
  return status;
}

/* Copies outputs that the context owns to a block. */
static cyto_status copy_outputs(worker *w, cyto_tensor *full, block **out_block, cyto_error *error) {
  const batching *b = &w->stage->batching;
  uint64_t bytes = 0;
  cyto_status status = CYTO_OK;
  for (int32_t k = 0; k < b->n_outputs && !status; k++) {
    status = cyto_output(w->context, k, &full[k], error);
    bytes += aligned(full[k].bytes);
  }
  if (status)
    return status;
  block *to = *out_block = block_get(w->stage, bytes);
  if (!to)
    return no_memory(error, bytes);
  uint8_t *at = to->memory;
  for (int32_t k = 0; k < b->n_outputs; k++) {
    if (full[k].bytes)
      memcpy(at, full[k].data, full[k].bytes);
    full[k].data = at;
    at += aligned(full[k].bytes);
  }
  return CYTO_OK;
}

void cyrt_pipe_outputs_set(const stage *s, item *i, int32_t count, const cyto_tensor *tensors, block *b) {
  cyto_tensor *copy = malloc((size_t)(count + 1) * sizeof *copy);
  if (!copy) {
    i->head.status = CYTO_OUT_OF_MEMORY;
    i->head.stage = s->number;
    i->head.message = cyto_status_name(CYTO_OUT_OF_MEMORY);
    return;
  }
  if (count)
    memcpy(copy, tensors, (size_t)count * sizeof *copy);
  if (b)
    atomic_fetch_add(&b->refs, 1);
  if (s->given.keep_inputs) {
    free(i->inputs);
    cyrt_pipe_block_give(i->input_block);
    i->head.inputs = i->inputs = i->tensors;
    i->head.input_count = i->head.count;
    i->input_block = i->block;
  } else {
    free(i->tensors);
    cyrt_pipe_block_give(i->block);
  }
  i->head.tensors = i->tensors = copy;
  i->head.count = count;
  i->block = b;
}

void cyrt_pipe_inputs_restore(item *i) {
  free(i->tensors);
  cyrt_pipe_block_give(i->block);
  i->head.tensors = i->tensors = i->inputs;
  i->head.count = i->head.input_count;
  i->block = i->input_block;
  i->head.inputs = i->inputs = NULL;
  i->head.input_count = 0;
  i->input_block = NULL;
}

/* Rows [from, from + e->rows) of the outputs are the entry's. */
static void entry_outputs(const stage *s, entry *e, cyto_tensor *full, int64_t from, int64_t total, block *memory,
                          cyto_tensor *own) {
  const batching *b = &s->batching;
  for (int32_t k = 0; k < b->n_outputs; k++) {
    cyto_tensor *t = &own[k];
    *t = full[k];
    if (!b->batched[b->n_inputs + k])
      continue;
    if (total != e->rows) {
      t->bytes = full[k].bytes / (uint64_t)total * (uint64_t)e->rows;
      t->data = (uint8_t *)full[k].data + full[k].bytes / (uint64_t)total * (uint64_t)from;
      t->dims[0] = e->rows;
    }
    if (e->bare && t->dims[0] == 1) {
      memmove(t->dims, t->dims + 1, (size_t)(t->rank - 1) * sizeof *t->dims);
      t->dims[--t->rank] = 0;
    }
  }
  cyrt_pipe_outputs_set(s, e->item, b->n_outputs, own, memory);
}

/* Sizes that were not known before must be those that the rows can be told apart by. */
static cyto_status outputs_check(const batching *b, const cyto_tensor *full, int64_t total, cyto_error *error) {
  for (int32_t k = 0; k < b->n_outputs; k++)
    if (!full[k].rank || full[k].dims[0] != total)
      return cyrt_error_set(error, CYTO_SHAPE_MISMATCH, "output '%s': has %lld rows for a batch of %lld; use batch 1",
                            b->outputs[k].name, (long long)full[k].dims[0], (long long)total);
  return CYTO_OK;
}

/* ---- a run ---- */

static cyto_status run_into(worker *w, cyto_tensor *full, block **memory, cyto_error *error) {
  cyto_status status;
  if (w->stage->batching.is_dynamic) {
    status = cyto_run(w->context, error);
    return status ? status : copy_outputs(w, full, memory, error);
  }
  status = cyrt_context_plan(w->context, error);
  if (!status)
    status = bind_outputs(w, full, memory, error);
  return status ? status : cyto_run(w->context, error);
}

static cyto_status run_bound(worker *w, entry *e, int64_t n, int64_t total, cyto_error *error) {
  stage *s = w->stage;
  size_t outputs = (size_t)s->batching.n_outputs + 1;
  block *memory = NULL;
  cyto_tensor *full = calloc(2 * outputs, sizeof *full);
  if (!full)
    return no_memory(error, 2 * outputs * sizeof *full);
  cyto_status status = run_into(w, full, &memory, error);
  if (!status && (n > 1 || total != e->rows))
    status = outputs_check(&s->batching, full, total, error);
  for (int64_t k = 0, from = 0; k < n && !status; from += e[k++].rows)
    entry_outputs(s, &e[k], full, from, total, memory, full + outputs);
  cyrt_pipe_block_give(memory);
  free(full);
  return status;
}

static cyto_status run_once(worker *w, entry *e, int64_t n, int64_t rows, cyto_error *error) {
  stage *s = w->stage;
  int64_t total = s->batching.fixed > rows ? s->batching.fixed : rows;
  cyto_status status = w->context ? CYTO_OK : cyto_context_create(s->given.model, &s->options, &w->context, error);
  for (int32_t k = 0; k < s->batching.n_inputs && !status; k++)
    status = bind_input(w, e, n, k, total, error);
  return status ? status : run_bound(w, e, n, total, error);
}

/* ---- how many rows memory allows ---- */

static void limit_lower(stage *s, int64_t rows) {
  cyrt_pipe_lock(s->pipeline);
  s->sums.short_of_memory++;
  if (rows / 2 < s->limit)
    s->limit = rows > 1 ? rows / 2 : 1;
  if (s->good < s->patience && s->has_risen) /* too early */
    s->patience = s->patience * 2 < MAX_PATIENCE ? s->patience * 2 : MAX_PATIENCE;
  s->good = 0;
  cyrt_pipe_unlock(s->pipeline);
}

static void limit_raise(stage *s, int64_t rows) {
  cyrt_pipe_lock(s->pipeline);
  s->sums.batches++;
  s->sums.rows += rows;
  s->good += rows >= s->limit;
  if (s->limit < s->max && s->good >= s->patience) {
    s->limit = s->limit * 2 < s->max ? s->limit * 2 : s->max;
    s->has_risen = 1;
    s->good = 0;
  }
  cyrt_pipe_unlock(s->pipeline);
}

static void fail(stage *s, entry *e, cyto_status status, const cyto_error *error) {
  cyrt_pipe_lock(s->pipeline);
  cyrt_pipe_fail(e->item, s, status, error->message);
  cyrt_pipe_unlock(s->pipeline);
}

void cyrt_pipe_batch_run(worker *w, entry *e, int64_t n) {
  stage *s = w->stage;
  cyto_error error = {0};
  int64_t rows = sum_of_rows(e, n);
  cyto_status status = run_once(w, e, n, rows, &error);
  if (!status) {
    limit_raise(s, rows);
    return;
  }
  if (status == CYTO_OUT_OF_MEMORY) { /* what the attempt got is given back */
    cyto_context_destroy(w->context);
    w->context = NULL;
    if (n > 1)
      limit_lower(s, rows);
  }
  if (n == 1) {
    fail(s, e, status, &error);
    return;
  }
  int64_t step = status == CYTO_OUT_OF_MEMORY ? (n + 1) / 2 : 1;
  for (int64_t from = 0; from < n; from += step)
    cyrt_pipe_batch_run(w, e + from, from + step < n ? step : n - from);
}
