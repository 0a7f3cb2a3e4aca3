/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gather.c - workers of a model's stage: which items are run at once.
 *
 * One worker gathers at a time, so that a batch has neighbours; the others run theirs meanwhile. A batch is full by rows, by
 * time, or when the next item does not fit it: other shapes, or other values of an input without the batch axis.
 * Items that need no run (failed ones, others' followers) go along in their place.
 */
#include "pipeline_int.h"

#include <stdio.h>

enum { FIRST_PATIENCE = 16 };

/* ---- the model's batch axis ---- */

/* Why items cannot be put together; NULL: they can. */
static const char *why_alone(const batching *b, char *text, size_t room) {
  if (!b->n_inputs || !b->inputs[0].rank)
    return "its first input has no axis that could be the batch";
  for (int32_t k = 0; k < b->n_inputs + b->n_outputs; k++) {
    int is_output = k >= b->n_inputs;
    const char *fault = cyrt_batch_fault(&b->inputs[0], &b->inputs[k], is_output);
    if (!fault)
      continue;
    snprintf(text, room, "%s '%s' %s", is_output ? "output" : "input", b->inputs[k].name, fault);
    return text;
  }
  return NULL;
}

static cyto_status ports_read(stage *s, cyto_error *error) {
  batching *b = &s->batching;
  const cyto_model *model = s->given.model;
  b->n_inputs = cyto_model_input_count(model);
  b->n_outputs = cyto_model_output_count(model);
  b->inputs = calloc((size_t)(b->n_inputs + b->n_outputs) + 1, sizeof *b->inputs);
  b->batched = calloc((size_t)(b->n_inputs + b->n_outputs) + 1, 1);
  if (!b->inputs || !b->batched)
    return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for the pipeline");
  b->outputs = b->inputs + b->n_inputs;
  for (int32_t k = 0; k < b->n_inputs + b->n_outputs; k++) {
    cyto_port *port = &b->inputs[k];
    int is_input = k < b->n_inputs;
    if (is_input)
      cyto_model_input(model, k, port);
    else
      cyto_model_output(model, k - b->n_inputs, port);
    if (!port->dtype || port->dtype == CYTO_STRING)
      return cyrt_error_set(error, CYTO_INVALID_ARGUMENT,
                            "stage '%s': %s '%s' is no tensor of numbers: run the model in a map of yours", s->name,
                            is_input ? "input" : "output", port->name);
    b->batched[k] = (uint8_t)cyrt_batch_has(&b->inputs[0], port);
    b->is_dynamic |= !is_input && port->is_dynamic;
  }
  return CYTO_OK;
}

static cyto_status limits_init(stage *s, cyto_error *error) {
  batching *b = &s->batching;
  char text[300];
  const char *why = why_alone(b, text, sizeof text);
  b->alone = why != NULL;
  b->fixed = b->n_inputs && b->inputs[0].rank && b->inputs[0].dims[0] > 0 && !why ? b->inputs[0].dims[0] : 0;
  s->max = s->given.batch ? s->given.batch : b->fixed ? b->fixed : 1;
  if (s->max > 1 && why)
    return cyrt_error_set(error, CYTO_INVALID_ARGUMENT,
                          "stage '%s': batches of %lld cannot be split again: %s; use batch 1", s->name,
                          (long long)s->max, why);
  if (b->fixed && s->max > b->fixed)
    s->max = b->fixed;
  s->limit = s->max;
  s->patience = FIRST_PATIENCE;
  return CYTO_OK;
}

static cyto_status contexts_init(stage *s, cyto_error *error) {
  size_t n = (size_t)s->batching.n_inputs + 1;
  if (s->given.options)
    s->options = *s->given.options;
  if (!s->options.threads && s->threads >= cyto_cpu_count())
    s->options.threads = 1;
  for (int32_t k = 0; k < s->threads; k++) {
    worker *w = &s->workers[k];
    w->gathered = calloc(n, sizeof *w->gathered);
    w->gathered_bytes = calloc(n, sizeof *w->gathered_bytes);
    w->entries = malloc(2 * MAX_ENTRIES * sizeof *w->entries);
    if (!w->gathered || !w->gathered_bytes || !w->entries)
      return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for the pipeline");
    cyto_status status = cyto_context_create(s->given.model, &s->options, &w->context, error);
    if (status)
      return status;
  }
  return CYTO_OK;
}

cyto_status cyrt_pipe_model_init(stage *s, cyto_error *error) {
  cyto_status status = ports_read(s, error);
  if (!status)
    status = limits_init(s, error);
  return status ? status : contexts_init(s, error);
}

void cyrt_pipe_model_end(stage *s) {
  for (int32_t k = 0; k < s->threads && s->workers; k++) {
    worker *w = &s->workers[k];
    cyto_context_destroy(w->context);
    for (int32_t i = 0; w->gathered && i < s->batching.n_inputs; i++)
      free(w->gathered[i]);
    free(w->gathered);
    free(w->gathered_bytes);
    free(w->entries);
  }
  for (size_t k = 0; k < sizeof s->spare / sizeof *s->spare; k++)
    cyrt_pipe_block_give(s->spare[k]);
  cyrt_pipe_result_give(s->last);
  free(s->last_input);
  free(s->batching.inputs);
  free(s->batching.batched);
}

/* ---- what an item is for the stage ---- */

/* An item that needs the model, by the application's or the cheap model's word, gets back the inputs that were kept.
 * Negative: it has failed. */
static int needs_model(stage *s, item *i) {
  int needed = 1;
  if (s->given.needs) {
    cyto_error error;
    cyrt_error_clear(&error);
    cyrt_pipe_unlock(s->pipeline);
    needed = s->given.needs(s->given.user, &i->head, &error);
    cyrt_pipe_lock(s->pipeline);
    if (needed < 0)
      cyrt_pipe_fail(i, s, CYTO_RUNTIME_FAILURE, error.message[0] ? error.message : "`needs` failed");
  } else if (s->given.sure != 0 && i->head.count) {
    needed = cyrt_pipe_highest(&i->tensors[0]) < s->given.sure;
  }
  if (needed > 0 && i->inputs && (s->given.needs || s->given.sure != 0))
    cyrt_pipe_inputs_restore(i);
  return needed;
}

/* Why cyrt_pipe_rows() refuses an item. */
static void explain_misfit(const batching *b, const item *i, char *text, size_t size) {
  int32_t bare = 0;
  snprintf(text, size, "has %d tensors, and the model %d inputs", i->head.count, b->n_inputs);
  for (int32_t k = 0; i->head.count <= b->n_inputs && k < i->head.count; k++) {
    const cyto_tensor *t = &i->tensors[k];
    int32_t rank = b->inputs[k].rank;
    if (!k)
      bare = b->batched[k] && t->rank == rank - 1;
    if (!b->batched[k] || !t->data || t->rank == rank - bare)
      continue;
    if (!k)
      snprintf(text, size, "input '%s': expected rank %d, or %d without the batch axis, found %d", b->inputs[k].name,
               rank, rank - 1, t->rank);
    else
      snprintf(text, size, "input '%s': expected rank %d, %s the batch axis as input '%s' is, found %d",
               b->inputs[k].name, rank - bare, bare ? "without" : "with", b->inputs[0].name, t->rank);
    return;
  }
}

static void classify(stage *s, entry *e) {
  item *i = e->item;
  if (cyrt_pipe_passes(i))
    return;
  if (!i->head.count && s->batching.n_inputs)
    i->decided = 2; /* there is nothing to be run */
  if (!i->decided)
    i->decided = needs_model(s, i) > 0 ? 1 : 2;
  if (i->decided == 2)
    return;
  e->rows = cyrt_pipe_rows(&s->batching, i, &e->bare);
  if (e->rows >= 0)
    return;
  char text[300];
  e->rows = 0;
  explain_misfit(&s->batching, i, text, sizeof text);
  cyrt_pipe_fail(i, s, CYTO_INVALID_ARGUMENT, text);
}

/* Is tensor k of these items the same but for the number of rows? Inputs without the batch axis are the same in all. */
static int tensor_fits(const stage *s, int32_t k, const cyto_tensor *a, const cyto_tensor *b, int32_t bare) {
  int32_t axis = s->batching.batched[k] && !bare;
  if (a->dtype != b->dtype || a->rank != b->rank || !a->data != !b->data || (axis && (!a->dims[0] || !b->dims[0])))
    return 0; /* nor does what has no rows fit to anything */
  for (int32_t d = axis; d < a->rank; d++)
    if (a->dims[d] != b->dims[d])
      return 0;
  if (s->batching.batched[k] || !a->data)
    return 1;
  int64_t bytes = cyto_tensor_bytes(a->dtype, a->rank, a->dims);
  return bytes <= 0 || !memcmp(a->data, b->data, (size_t)bytes);
}

static int fits(const stage *s, const entry *first, const entry *e, int64_t rows) {
  if (!first || !e->rows)
    return 1;
  if (s->batching.alone || rows + e->rows > s->limit || first->bare != e->bare ||
      first->item->head.count != e->item->head.count)
    return 0;
  for (int32_t k = 0; k < e->item->head.count; k++)
    if (!tensor_fits(s, k, &first->item->tensors[k], &e->item->tensors[k], e->bare))
      return 0;
  return 1;
}

/* ---- gathering ---- */

/* The next item, or NULL when no more are waited for: the batch has begun and its time is over, or the queue is. */
static item *next_item(stage *s, int64_t n, int64_t rows, int64_t deadline) {
  cyto_pipeline *p = s->pipeline;
  queue *q = &s->in;
  for (;;) {
    item *i = p->cancelled ? NULL : cyrt_pipe_peek(q);
    if (i || p->cancelled || cyrt_pipe_is_over(q))
      return i;
    if (n && (!rows || cyrt_os_now_ns() >= deadline))
      return NULL;
    cyrt_pipe_wait(p, &q->filled, n ? deadline : -1);
  }
}

static int64_t gather(worker *w, entry *entries) {
  stage *s = w->stage;
  int64_t n = 0, rows = 0, deadline = -1;
  const entry *first = NULL;
  while (n < MAX_ENTRIES && rows < s->limit) {
    entry e = {.item = next_item(s, n, rows, deadline)};
    if (!e.item)
      break;
    classify(s, &e);
    if (!fits(s, first, &e, rows))
      break;
    cyrt_pipe_pop(&s->in);
    if (!n)
      cyrt_pipe_ticket_take(w);
    s->sums.passed += e.item->decided == 2 && !cyrt_pipe_passes(e.item);
    e.item->decided = 0;
    if (e.rows)
      cyrt_pipe_reuse_decide(s, &e);
    e.rows = e.follows ? 0 : e.rows;
    entries[n] = e;
    if (e.rows && !first) {
      first = &entries[n];
      deadline = cyrt_os_now_ns() + s->given.wait_ns;
    }
    rows += e.rows;
    n++;
  }
  return n;
}

static int64_t gather_alone(worker *w, entry *entries) {
  stage *s = w->stage;
  cyrt_pipe_state(w, WORKER_WAITS_IN);
  while (s->gathering)
    cyrt_pipe_wait(s->pipeline, &s->gate, -1);
  s->gathering = 1;
  int64_t n = gather(w, entries);
  s->gathering = 0;
  cyrt_pipe_signal(&s->gate);
  cyrt_pipe_state(w, WORKER_BUSY);
  return n;
}

/* ---- running what was gathered ---- */

static void run_gathered(worker *w, entry *entries, int64_t n, entry *live) {
  stage *s = w->stage;
  int64_t count = 0;
  for (int64_t k = 0; k < n; k++)
    if (entries[k].rows)
      live[count++] = entries[k];
  if (count) {
    cyrt_pipe_unlock(s->pipeline);
    cyrt_pipe_batch_run(w, live, count);
    cyrt_pipe_lock(s->pipeline);
  }
  for (int64_t k = 0; k < n; k++) {
    cyrt_pipe_result_publish(s, &entries[k]);
    s->sums.items += entries[k].rows || entries[k].follows;
  }
  for (int64_t k = 0; k < n; k++)
    if (entries[k].follows)
      cyrt_pipe_result_follow(w, &entries[k]);
}

void cyrt_pipe_model_work(worker *w) {
  entry *entries = w->entries;
  int64_t n;
  while ((n = gather_alone(w, entries))) {
    run_gathered(w, entries, n, entries + MAX_ENTRIES);
    for (int64_t k = 0; k < n; k++) {
      cyrt_pipe_result_give(entries[k].leads);
      cyrt_pipe_result_give(entries[k].follows);
      cyrt_pipe_put(w, entries[k].item);
    }
    cyrt_pipe_ticket_give(w);
  }
}
