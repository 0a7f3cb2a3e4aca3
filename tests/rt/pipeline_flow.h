/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline_flow.h - what the tests of pipelines share: a model, items, and a thread that feeds them.
 *
 * The model is made here, by hand: y = 2 * x of [batch, 4], with an arena of 1 KB a row; a row that begins with -1 fails.
 * Data of items are numbers, as pointers.
 */
#ifndef PIPELINE_FLOW_H
#define PIPELINE_FLOW_H

#include "../check.h"
#include "cyrt.h"
#include "cyto_pipeline.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

enum { WIDTH = 4, ROW_ARENA = 1024, LIMIT = 1200 };

/* ---- the model ---- */

static atomic_int runs, rows_run, max_rows, padded_with_last;
static float bonus; /* added to y: tells two models apart */

static inline int32_t plan(cyrt_frame *frame) {
  int64_t batch = frame->syms[0];
  frame->arena_bytes = (uint64_t)batch * ROW_ARENA;
  frame->outputs[0].dims[0] = batch;
  frame->outputs[0].dims[1] = WIDTH;
  return CYTO_OK;
}

static inline int32_t compute(cyrt_frame *frame, int64_t batch) {
  const float *x = frame->inputs[0];
  float *y = frame->outputs[0].ptr;
  atomic_fetch_add(&runs, 1);
  atomic_fetch_add(&rows_run, (int)batch);
  if (batch > atomic_load(&max_rows))
    atomic_store(&max_rows, (int)batch);
  for (int64_t r = 0; r < batch; r++) {
    if (x[r * WIDTH] == -1)
      return cyrt_fail(frame, CYTO_RUNTIME_FAILURE, "row %lld is bad", (long long)r);
    for (int64_t k = 0; k < WIDTH; k++)
      y[r * WIDTH + k] = 2 * x[r * WIDTH + k] + bonus;
  }
  return CYTO_OK;
}

static inline int32_t run(cyrt_frame *frame) { return compute(frame, frame->syms[0]); }

enum { FIXED = 4 };
static inline int32_t fixed_plan(cyrt_frame *frame) {
  frame->arena_bytes = ROW_ARENA;
  frame->outputs[0].dims[0] = FIXED;
  frame->outputs[0].dims[1] = WIDTH;
  return CYTO_OK;
}
static inline int32_t fixed_run(cyrt_frame *frame) {
  const float *x = frame->inputs[0];
  atomic_store(&padded_with_last, !memcmp(x + (FIXED - 2) * WIDTH, x + (FIXED - 1) * WIDTH, WIDTH * sizeof *x));
  return compute(frame, FIXED);
}

static const int64_t open_dims[] = {-1, WIDTH}, fixed_dims[] = {FIXED, WIDTH}, odd_dims[] = {-1};
static const char *const batch_text[] = {"batch", ""}, *const symbols[] = {"batch"};
static const cyrt_port
    open_in[] = {{.name = "x", .dtype = CYTO_F32, .rank = 2, .dims = open_dims}},
    open_out[] = {{.name = "y", .dtype = CYTO_F32, .rank = 2, .dims = open_dims, .dim_texts = batch_text}},
    fixed_in[] = {{.name = "x", .dtype = CYTO_F32, .rank = 2, .dims = fixed_dims}},
    fixed_out[] = {{.name = "y", .dtype = CYTO_F32, .rank = 2, .dims = fixed_dims}},
    odd_out[] = {{.name = "found", .dtype = CYTO_F32, .rank = 1, .dims = odd_dims, .flags = CYRT_PORT_DYNAMIC}};
#define MODEL(in, out, n, planner, runner)                                                                             \
  {                                                                                                                    \
    .abi = CYTO_ABI_VERSION, .name = "by hand", .target = "any", .features = "", .compiler = "none", .n_inputs = 1,    \
    .n_outputs = 1, .inputs = in, .outputs = out, .n_syms = n, .n_input_syms = n, .sym_names = symbols,                \
    .n_offsets = 1, .plan = planner, .run = runner                                                                     \
  }
static const cyrt_model open_code = MODEL(open_in, open_out, 1, plan, run),
                        fixed_code = MODEL(fixed_in, fixed_out, 0, fixed_plan, fixed_run),
                        odd_code = MODEL(open_in, odd_out, 1, plan, run);

static inline cyto_model *model_open(const cyrt_model *code) {
  cyto_model *model = NULL;
  cyto_error error;
  CHECK(!cyto_model_from_linked(code, &model, &error));
  atomic_store(&runs, 0);
  atomic_store(&rows_run, 0);
  atomic_store(&max_rows, 0);
  return model;
}

/* ---- items ---- */

typedef struct row {
  float x[WIDTH];
} row;
static row rows[LIMIT];
static cyto_tensor tensors[LIMIT];
static atomic_int released;

static inline void release(void *user, void *data) {
  (void)user, (void)data;
  atomic_fetch_add(&released, 1);
}

static inline cyto_tensor *tensor_of(int64_t k, int32_t rank) {
  for (int i = 0; i < WIDTH; i++)
    rows[k].x[i] = (float)(k + 1 + i * 1000);
  tensors[k] = (cyto_tensor){.data = rows[k].x, .bytes = sizeof rows[k], .dtype = CYTO_F32, .rank = rank};
  tensors[k].dims[0] = rank == 2 ? 1 : WIDTH;
  tensors[k].dims[1] = rank == 2 ? WIDTH : 0;
  return &tensors[k];
}

static inline void *number_as(int64_t k) { return (void *)(intptr_t)(k + 1); }
static inline int64_t number_of(const cyto_item *item) { return (int64_t)(intptr_t)item->data - 1; }

static inline void sleep_us(int64_t us) {
  struct timespec time = {us / 1000000, us % 1000000 * 1000};
  nanosleep(&time, NULL);
}

typedef struct feeder {
  cyto_pipeline *pipeline;
  int64_t n, pause_us;
  int32_t rank; /* of the tensors; 0: none */
  atomic_int put, status;
} feeder;

static inline void feed(void *data) {
  feeder *f = data;
  for (int64_t k = 0; k < f->n; k++) {
    char name[32];
    snprintf(name, sizeof name, "i%lld", (long long)k);
    int status =
        (int)cyto_pipeline_put(f->pipeline, name, number_as(k), f->rank != 0, f->rank ? &tensors[k] : NULL, NULL);
    atomic_store(&f->status, status);
    if (status)
      break;
    atomic_fetch_add(&f->put, 1);
    if (f->pause_us)
      sleep_us(f->pause_us);
  }
  cyto_pipeline_close(f->pipeline);
}

static inline void *feed_main(void *data) {
  feed(data);
  return NULL;
}

typedef struct flow {
  cyto_pipeline *pipeline;
  pthread_t thread;
  feeder feeder;
} flow;

static inline int flow_open(flow *f, const cyto_stage *stages, int32_t count, cyto_pipeline_options options) {
  cyto_error error;
  memset(f, 0, sizeof *f);
  atomic_store(&released, 0);
  options.release = release;
  if (cyto_pipeline_create(stages, count, &options, &f->pipeline, &error)) {
    CHECK_FAIL("%s", error.message);
    return 0;
  }
  return 1;
}

static inline void flow_feed(flow *f, int64_t n, int32_t rank, int64_t pause_us) {
  for (int64_t k = 0; rank && k < n; k++)
    tensor_of(k, rank);
  f->feeder.pipeline = f->pipeline;
  f->feeder.n = n;
  f->feeder.rank = rank;
  f->feeder.pause_us = pause_us;
  pthread_create(&f->thread, NULL, feed_main, &f->feeder);
}

static inline int flow_start(flow *f, const cyto_stage *stages, int32_t count, cyto_pipeline_options options, int64_t n,
                             int32_t rank, int64_t pause_us) {
  if (!flow_open(f, stages, count, options))
    return 0;
  flow_feed(f, n, rank, pause_us);
  return 1;
}

static inline cyto_item *flow_take(flow *f) {
  cyto_item *item = NULL;
  cyto_pipeline_take(f->pipeline, 20000000000, &item, NULL);
  return item;
}

static inline void flow_end(flow *f) {
  cyto_pipeline_cancel(f->pipeline);
  pthread_join(f->thread, NULL);
  cyto_pipeline_destroy(f->pipeline);
}

/* ---- maps ---- */

static inline int32_t jitter(void *user, cyto_item *item, cyto_error *error) {
  (void)user, (void)error;
  sleep_us(number_of(item) * 7919 % 5 * 300);
  return CYTO_OK;
}

static inline int32_t plain(void *user, cyto_item *item, cyto_error *error) {
  (void)user, (void)item, (void)error;
  return CYTO_OK;
}

static inline int32_t failing(void *user, cyto_item *item, cyto_error *error) {
  int64_t at = (int64_t)(intptr_t)user;
  if (number_of(item) != at)
    return CYTO_OK;
  snprintf(error->message, sizeof error->message, "cannot be decoded");
  return CYTO_RUNTIME_FAILURE;
}

static inline void check_double(const cyto_item *item, int32_t rank) {
  CHECK_INT_EQ(item->status, 0);
  CHECK_REQUIRE(item->count == 1);
  CHECK_INT_EQ(item->tensors[0].rank, rank);
  CHECK_INT_EQ(item->tensors[0].bytes, sizeof(row));
  const float *y = item->tensors[0].data;
  for (int k = 0; k < WIDTH; k++)
    CHECK_CLOSE(y[k], 2 * rows[number_of(item)].x[k], 0);
}

static inline int64_t take_doubles(flow *f, int32_t rank) {
  int64_t n = 0;
  for (cyto_item *item; (item = flow_take(f)); n++) {
    CHECK_INT_EQ(item->number, n);
    check_double(item, rank);
    cyto_item_free(item);
  }
  return n;
}

#endif
