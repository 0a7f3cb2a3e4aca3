/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* reuse.c - what spares runs: frames that hardly differ from the last one that was computed, and numbers that say that a
 * second model is not needed.
 */
#include "pipeline_int.h"

#include "runtime/half.h"

#include <math.h>

/* ---- numbers ---- */

#define DIFFERENCE_ROWS(X)                                                                                             \
  X(CYTO_F32, float, double)                                                                                           \
  X(CYTO_F64, double, double)                                                                                          \
  X(CYTO_U8, uint8_t, int32_t)                                                                                         \
  X(CYTO_I8, int8_t, int32_t)                                                                                          \
  X(CYTO_U16, uint16_t, int32_t)                                                                                       \
  X(CYTO_I16, int16_t, int32_t)                                                                                        \
  X(CYTO_I32, int32_t, double)                                                                                         \
  X(CYTO_U32, uint32_t, double)                                                                                        \
  X(CYTO_I64, int64_t, double)                                                                                         \
  X(CYTO_U64, uint64_t, double)                                                                                        \
  X(CYTO_BOOL, uint8_t, int32_t)

/* Sums of so many differences are exact as integers, and are then added to the whole. */
enum { RUN = 4096 };

#define X(dtype, type, wide)                                                                                           \
  static double difference_##dtype(const void *left, const void *right, int64_t n) {                                   \
    const type *a = left, *b = right;                                                                                  \
    double sum = 0;                                                                                                    \
    for (int64_t from = 0; from < n; from += RUN) {                                                                    \
      wide some = 0;                                                                                                   \
      for (int64_t k = from; k < n && k < from + RUN; k++) {                                                           \
        wide d = (wide)a[k] - (wide)b[k];                                                                              \
        some += d < 0 ? -d : d;                                                                                        \
      }                                                                                                                \
      sum += (double)some;                                                                                             \
    }                                                                                                                  \
    return sum;                                                                                                        \
  }
DIFFERENCE_ROWS(X)
#undef X

static double difference_halves(const void *left, const void *right, int64_t n, float (*widen)(uint16_t)) {
  const uint16_t *a = left, *b = right;
  double sum = 0;
  for (int64_t k = 0; k < n; k++)
    sum += fabs((double)widen(a[k]) - (double)widen(b[k]));
  return sum;
}

static double sum_of_differences(int32_t dtype, const void *a, const void *b, int64_t n) {
  switch (dtype) {
#define X(dtype, type, wide)                                                                                           \
  case dtype:                                                                                                          \
    return difference_##dtype(a, b, n);
    DIFFERENCE_ROWS(X)
#undef X
  case CYTO_F16:
    return difference_halves(a, b, n, cyrt_f16_to_f32);
  case CYTO_BF16:
    return difference_halves(a, b, n, cyrt_bf16_to_f32);
  default:
    return INFINITY;
  }
}

double cyrt_pipe_difference(const cyto_tensor *a, const cyto_tensor *b) {
  if (a->dtype != b->dtype || a->rank != b->rank || !a->data || !b->data ||
      (a->rank && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) != 0))
    return INFINITY;
  int64_t n = cyrt_count(a->rank, a->dims);
  double sum = n > 0 ? sum_of_differences(a->dtype, a->data, b->data, n) : 0;
  return n > 0 ? sum == sum ? sum / (double)n : INFINITY : 0; /* NaN is like nothing */
}

double cyrt_pipe_highest(const cyto_tensor *t) {
  double max = -INFINITY;
  if (t->dtype != CYTO_F32)
    return max;
  const float *x = t->data;
  for (int64_t k = 0, n = cyrt_count(t->rank, t->dims); k < n; k++)
    max = x[k] > max ? x[k] : max;
  return max;
}

/* ---- results that others get, too ---- */

void cyrt_pipe_result_give(result *r) {
  if (!r || --r->refs)
    return;
  cyrt_pipe_block_give(r->block);
  free(r->tensors);
  free(r);
}

static void remember(stage *s, entry *e) {
  const cyto_tensor *t = &e->item->tensors[0];
  int64_t bytes = cyto_tensor_bytes(t->dtype, t->rank, t->dims);
  cyrt_pipe_result_give(s->last);
  s->last = NULL;
  cyrt_pipe_unlock(s->pipeline);
  void *copy = bytes >= 0 ? realloc(s->last_input, (size_t)bytes + 1) : NULL;
  result *r = copy ? calloc(1, sizeof *r) : NULL;
  if (copy)
    s->last_input = copy;
  if (r && bytes)
    memcpy(copy, t->data, (size_t)bytes);
  cyrt_pipe_lock(s->pipeline);
  if (!r)
    return; /* without memory nothing is reused */
  s->last_tensor = *t;
  s->last_tensor.data = copy;
  r->refs = 2;
  s->last = e->leads = r;
}

void cyrt_pipe_reuse_decide(stage *s, entry *e) {
  if (!(s->given.reuse > 0) || !e->item->head.count || !e->item->tensors[0].data)
    return;
  double difference = INFINITY;
  if (s->last && s->last->state >= 0) {
    cyrt_pipe_unlock(s->pipeline); /* who gathers alone changes what is compared */
    difference = cyrt_pipe_difference(&e->item->tensors[0], &s->last_tensor);
    cyrt_pipe_lock(s->pipeline);
  }
  if (difference < s->given.reuse && s->last && s->last->state >= 0) {
    e->follows = s->last;
    s->last->refs++;
    return;
  }
  remember(s, e);
}

void cyrt_pipe_result_publish(stage *s, entry *e) {
  result *r = e->leads;
  item *i = e->item;
  if (!r)
    return;
  r->state = -1;
  if (!i->head.status && (r->tensors = malloc((size_t)(i->head.count + 1) * sizeof *r->tensors))) {
    memcpy(r->tensors, i->tensors, (size_t)i->head.count * sizeof *r->tensors);
    r->count = i->head.count;
    r->block = i->block;
    if (r->block)
      atomic_fetch_add(&r->block->refs, 1);
    r->state = 1;
  }
  cyrt_pipe_signal(&s->published);
}

void cyrt_pipe_result_follow(worker *w, entry *e) {
  stage *s = w->stage;
  result *r = e->follows;
  while (!r->state && !s->pipeline->cancelled)
    cyrt_pipe_wait(s->pipeline, &s->published, -1); /* its run has begun: it waits for nobody */
  if (s->pipeline->cancelled)
    return;
  if (r->state > 0) {
    cyrt_pipe_outputs_set(s, e->item, r->count, r->tensors, r->block);
    s->sums.reused++;
    return;
  }
  cyrt_pipe_unlock(s->pipeline);
  e->rows = cyrt_pipe_rows(&s->batching, e->item, &e->bare);
  cyrt_pipe_batch_run(w, e, 1);
  cyrt_pipe_lock(s->pipeline);
}
