/* SPDX-License-Identifier: Apache-2.0 */
/* test_pipeline.c - pipelines: order, bounded queues, batches by size and time, short memory, errors in every stage,
 * cancelling at every stage, splits and joins, frames that are like the one before, a cheap model before an expensive one,
 * tiles that become an image.
 *
 * The model is made here, by hand: y = 2 * x of [batch, 4], with an arena of 1 KB a row; a row that begins with -1 fails.
 * Data of items are numbers, as pointers.
 */
#define _GNU_SOURCE
#include "../check.h"
#include "cyrt.h"
#include "cyto_pipeline.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

enum { WIDTH = 4, ROW_ARENA = 1024, MOST = 1200 };

/* ---- the model ---- */

static atomic_int runs, rows_run, max_rows, padded_with_last;
static float bonus; /* added to y: tells two models apart */

static int32_t plan(cyrt_frame *frame) {
  int64_t batch = frame->syms[0];
  frame->arena_bytes = (uint64_t)batch * ROW_ARENA;
  frame->outputs[0].dims[0] = batch;
  frame->outputs[0].dims[1] = WIDTH;
  return CYTO_OK;
}

static int32_t compute(cyrt_frame *frame, int64_t batch) {
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

static int32_t run(cyrt_frame *frame) { return compute(frame, frame->syms[0]); }

enum { FIXED = 4 };
static int32_t fixed_plan(cyrt_frame *frame) {
  frame->arena_bytes = ROW_ARENA;
  frame->outputs[0].dims[0] = FIXED;
  frame->outputs[0].dims[1] = WIDTH;
  return CYTO_OK;
}
static int32_t fixed_run(cyrt_frame *frame) {
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

static cyto_model *model_open(const cyrt_model *code) {
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
static row rows[MOST];
static cyto_tensor tensors[MOST];
static atomic_int released, live, most_live;

static void release(void *user, void *data) {
  (void)user, (void)data;
  atomic_fetch_add(&released, 1);
}

static cyto_tensor *tensor_of(int64_t k, int32_t rank) {
  for (int i = 0; i < WIDTH; i++)
    rows[k].x[i] = (float)(k + 1 + i * 1000);
  tensors[k] = (cyto_tensor){.data = rows[k].x, .bytes = sizeof rows[k], .dtype = CYTO_F32, .rank = rank};
  tensors[k].dims[0] = rank == 2 ? 1 : WIDTH;
  tensors[k].dims[1] = rank == 2 ? WIDTH : 0;
  return &tensors[k];
}

static void *number_as(int64_t k) { return (void *)(intptr_t)(k + 1); }
static int64_t number_of(const cyto_item *item) { return (int64_t)(intptr_t)item->data - 1; }

static void sleep_us(int64_t us) {
  struct timespec time = {us / 1000000, us % 1000000 * 1000};
  nanosleep(&time, NULL);
}

typedef struct feeder {
  cyto_pipeline *pipeline;
  int64_t n, pause_us;
  int32_t rank; /* of the tensors; 0: none */
  atomic_int put, status;
} feeder;

static void feed(void *data) {
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

static void *feed_main(void *data) {
  feed(data);
  return NULL;
}

typedef struct flow {
  cyto_pipeline *pipeline;
  pthread_t thread;
  feeder feeder;
} flow;

static int flow_open(flow *f, const cyto_stage *stages, int32_t count, cyto_pipeline_options options) {
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

static void flow_feed(flow *f, int64_t n, int32_t rank, int64_t pause_us) {
  for (int64_t k = 0; rank && k < n; k++)
    tensor_of(k, rank);
  f->feeder.pipeline = f->pipeline;
  f->feeder.n = n;
  f->feeder.rank = rank;
  f->feeder.pause_us = pause_us;
  pthread_create(&f->thread, NULL, feed_main, &f->feeder);
}

static int flow_start(flow *f, const cyto_stage *stages, int32_t count, cyto_pipeline_options options, int64_t n,
                      int32_t rank, int64_t pause_us) {
  if (!flow_open(f, stages, count, options))
    return 0;
  flow_feed(f, n, rank, pause_us);
  return 1;
}

static cyto_item *flow_take(flow *f) {
  cyto_item *item = NULL;
  cyto_pipeline_take(f->pipeline, 20000000000, &item, NULL);
  return item;
}

static void flow_end(flow *f) {
  cyto_pipeline_cancel(f->pipeline);
  pthread_join(f->thread, NULL);
  cyto_pipeline_destroy(f->pipeline);
}

/* ---- maps ---- */

static int32_t jitter(void *user, cyto_item *item, cyto_error *error) {
  (void)user, (void)error;
  sleep_us(number_of(item) * 7919 % 5 * 300);
  return CYTO_OK;
}

static int32_t plain(void *user, cyto_item *item, cyto_error *error) {
  (void)user, (void)item, (void)error;
  return CYTO_OK;
}

static int32_t failing(void *user, cyto_item *item, cyto_error *error) {
  int64_t at = (int64_t)(intptr_t)user;
  if (number_of(item) != at)
    return CYTO_OK;
  snprintf(error->message, sizeof error->message, "cannot be decoded");
  return CYTO_RUNTIME_FAILURE;
}

static void test_order(void) {
  cyto_stage stages[] = {{.kind = CYTO_STAGE_MAP, .threads = 4, .map = jitter},
                         {.kind = CYTO_STAGE_MAP, .threads = 3, .map = jitter},
                         {.kind = CYTO_STAGE_MAP, .map = plain}};
  for (int64_t queue = 1; queue < 6; queue += 2) {
    flow f;
    CHECK_REQUIRE(flow_start(&f, stages, 3, (cyto_pipeline_options){.queue = queue}, 60, 0, 0));
    int64_t expected = 0;
    for (cyto_item *item; (item = flow_take(&f)); expected++) {
      CHECK_INT_EQ(item->number, expected);
      CHECK_INT_EQ(number_of(item), expected);
      CHECK_INT_EQ(item->status, 0);
      cyto_item_free(item);
    }
    CHECK_INT_EQ(expected, 60);
    flow_end(&f);
    CHECK_INT_EQ(atomic_load(&released), 60);
  }
}

static void test_unordered(void) {
  cyto_stage stages[] = {{.kind = CYTO_STAGE_MAP, .threads = 4, .map = jitter}};
  flow f;
  CHECK_REQUIRE(flow_start(&f, stages, 1, (cyto_pipeline_options){.unordered = 1}, 80, 0, 0));
  int seen[80] = {0}, swapped = 0, n = 0;
  int64_t before = -1;
  for (cyto_item *item; (item = flow_take(&f)); n++) {
    seen[item->number]++;
    swapped += item->number < before;
    before = item->number;
    cyto_item_free(item);
  }
  CHECK_INT_EQ(n, 80);
  for (int k = 0; k < 80; k++)
    CHECK_INT_EQ(seen[k], 1);
  CHECK(swapped > 0);
  flow_end(&f);
}

/* So many items get in, however busy the machine is, and no more. */
static void await_put(flow *f, int64_t count) {
  for (int k = 0; k < 2000 && atomic_load(&f->feeder.put) < count; k++)
    sleep_us(5000);
  sleep_us(50000);
  CHECK_INT_EQ(atomic_load(&f->feeder.put), count);
}

/* Nobody takes results: how many items get in is what the queues and threads hold. */
static void test_back_pressure(void) {
  enum { FULL = 3 + 1 + 2 + 1 + 4 };
  cyto_stage stages[] = {{.kind = CYTO_STAGE_MAP, .map = plain, .queue = 3},
                         {.kind = CYTO_STAGE_MAP, .map = plain, .queue = 2}};
  flow f;
  CHECK_REQUIRE(flow_start(&f, stages, 2, (cyto_pipeline_options){.queue = 4}, 100, 0, 0));
  await_put(&f, FULL);
  cyto_item_free(flow_take(&f));
  await_put(&f, FULL + 1);
  cyto_stage_statistics s;
  CHECK(!cyto_stage_statistics_get(f.pipeline, 1, &s));
  CHECK(s.waiting_out_ns > 50000000);
  CHECK_INT_EQ(s.waiting, 2);
  CHECK_INT_EQ(s.most_waiting, 2);
  CHECK_INT_EQ(cyto_stage_statistics_get(f.pipeline, 2, &s), CYTO_INDEX_OUT_OF_RANGE);
  flow_end(&f);
  CHECK_INT_EQ(atomic_load(&f.feeder.status), CYTO_CANCELLED);
  CHECK_INT_EQ(atomic_load(&released), 12);
}

static void test_in_flight(void) {
  cyto_stage stages[] = {{.kind = CYTO_STAGE_MAP, .map = plain}};
  flow f;
  CHECK_REQUIRE(flow_start(&f, stages, 1, (cyto_pipeline_options){.in_flight = 2}, 10, 0, 0));
  await_put(&f, 2);
  int n = 0;
  for (cyto_item *item; (item = flow_take(&f)); n++)
    cyto_item_free(item);
  CHECK_INT_EQ(n, 10);
  flow_end(&f);
}

static void test_errors(void) {
  for (int at = 0; at < 3; at++)
    for (int policy = CYTO_ERRORS_STOP; policy <= CYTO_ERRORS_SKIP; policy++) {
      cyto_stage stages[3];
      for (int k = 0; k < 3; k++)
        stages[k] = (cyto_stage){.kind = CYTO_STAGE_MAP,
                                 .map = k == at ? failing : jitter,
                                 .threads = 2,
                                 .name = k == at ? "decode" : "other",
                                 .user = (void *)(intptr_t)5};
      flow f;
      CHECK_REQUIRE(flow_start(&f, stages, 3, (cyto_pipeline_options){.on_error = policy}, 20, 0, 0));
      int n = 0;
      for (cyto_item *item; (item = flow_take(&f)); n++) {
        CHECK_INT_EQ(item->number, n);
        CHECK_INT_EQ(item->status, n == 5 ? CYTO_RUNTIME_FAILURE : 0);
        CHECK_STR_EQ(item->message, n == 5 ? "item 'i5' (number 5), stage 'decode': cannot be decoded" : "");
        CHECK_INT_EQ(item->stage, n == 5 ? at : 0);
        cyto_item_free(item);
      }
      CHECK_INT_EQ(n, policy == CYTO_ERRORS_STOP ? 6 : 20);
      cyto_item *item;
      CHECK_INT_EQ(cyto_pipeline_take(f.pipeline, 0, &item, NULL),
                   policy == CYTO_ERRORS_STOP ? CYTO_CANCELLED : CYTO_OK);
      cyto_pipeline_statistics s;
      cyto_pipeline_statistics_get(f.pipeline, &s);
      CHECK_INT_EQ(s.failed, 1);
      flow_end(&f);
      CHECK_INT_EQ(atomic_load(&released), atomic_load(&f.feeder.put));
    }
}

/* ---- models ---- */

static void check_double(const cyto_item *item, int32_t rank) {
  CHECK_INT_EQ(item->status, 0);
  CHECK_REQUIRE(item->count == 1);
  CHECK_INT_EQ(item->tensors[0].rank, rank);
  CHECK_INT_EQ(item->tensors[0].bytes, sizeof(row));
  const float *y = item->tensors[0].data;
  for (int k = 0; k < WIDTH; k++)
    CHECK_CLOSE(y[k], 2 * rows[number_of(item)].x[k], 0);
}

static int64_t take_doubles(flow *f, int32_t rank) {
  int64_t n = 0;
  for (cyto_item *item; (item = flow_take(f)); n++) {
    CHECK_INT_EQ(item->number, n);
    check_double(item, rank);
    cyto_item_free(item);
  }
  return n;
}

static void test_batches(void) {
  cyto_model *model = model_open(&open_code);
  for (int32_t rank = 1; rank < 3; rank++)
    for (int32_t contexts = 1; contexts < 4; contexts++)
      for (int64_t batch = 1; batch < 9; batch += 7) {
        cyto_stage stages[] = {{.kind = CYTO_STAGE_MODEL,
                                .model = model,
                                .batch = batch,
                                .threads = contexts,
                                .wait_ns = 1000000000,
                                .queue = 16},
                               {.kind = CYTO_STAGE_MAP, .map = jitter, .threads = 2}};
        flow f;
        atomic_store(&runs, 0);
        CHECK_REQUIRE(flow_start(&f, stages, 2, (cyto_pipeline_options){0}, 50, rank, 0));
        CHECK_INT_EQ(take_doubles(&f, rank), 50);
        CHECK_INT_EQ(atomic_load(&runs), (50 + batch - 1) / batch); /* by size; the last one as the queue has ended */
        flow_end(&f);
      }
  cyto_model_unload(model);
}

static void test_batch_time(void) {
  cyto_model *model = model_open(&open_code);
  cyto_stage stages[] = {{.kind = CYTO_STAGE_MODEL, .model = model, .batch = 100, .threads = 1, .wait_ns = 60000000}};
  flow f;
  CHECK_REQUIRE(flow_start(&f, stages, 1, (cyto_pipeline_options){.queue = 64}, 12, 2, 20000));
  CHECK_INT_EQ(take_doubles(&f, 2), 12);
  CHECK(atomic_load(&runs) >= 2 && atomic_load(&runs) <= 11); /* about 4 items in 60 ms */
  CHECK(atomic_load(&max_rows) >= 2);
  flow_end(&f);
  cyto_model_unload(model);
}

static void test_fixed_batch(void) {
  cyto_model *model = model_open(&fixed_code);
  cyto_stage stages[] = {{.kind = CYTO_STAGE_MODEL, .model = model, .threads = 1, .wait_ns = 1000000000}};
  flow f;
  CHECK_REQUIRE(flow_start(&f, stages, 1, (cyto_pipeline_options){.queue = 8}, 10, 1, 0));
  CHECK_INT_EQ(take_doubles(&f, 1), 10);
  CHECK_INT_EQ(atomic_load(&runs), 3);
  CHECK(atomic_load(&padded_with_last));
  flow_end(&f);
  cyto_model_unload(model);
}

/* Items of two shapes: only equal ones go together. */
static void test_shapes(void) {
  cyto_model *model = model_open(&open_code);
  cyto_stage stages[] = {{.kind = CYTO_STAGE_MODEL, .model = model, .batch = 8, .threads = 1, .wait_ns = 1000000}};
  flow f;
  static float two[2 * WIDTH] = {1, 2, 3, 4, 5, 6, 7, 8};
  cyto_tensor pair = {.data = two, .bytes = sizeof two, .dtype = CYTO_F32, .rank = 2, .dims = {2, WIDTH}};
  cyto_tensor wrong = {.data = two, .bytes = sizeof two, .dtype = CYTO_F32, .rank = 2, .dims = {WIDTH, 2}};
  cyto_tensor none = {.data = two, .dtype = CYTO_F32, .rank = 2, .dims = {0, WIDTH}};
  CHECK_REQUIRE(flow_start(&f, stages, 1, (cyto_pipeline_options){.queue = 16, .on_error = CYTO_ERRORS_SKIP}, 0, 2, 0));
  pthread_join(f.thread, NULL);
  cyto_pipeline_destroy(f.pipeline);
  CHECK_REQUIRE(!cyto_pipeline_create(stages, 1, &(cyto_pipeline_options){.queue = 16, .on_error = CYTO_ERRORS_SKIP},
                                      &f.pipeline, NULL));
  const cyto_tensor *const all[] = {&pair, &wrong, tensor_of(2, 2), tensor_of(3, 1), &none, &pair, NULL};
  for (int k = 0; k < 7; k++)
    CHECK(!cyto_pipeline_put(f.pipeline, NULL, NULL, all[k] != NULL, all[k], NULL));
  cyto_pipeline_close(f.pipeline);
  CHECK_INT_EQ(cyto_pipeline_put(f.pipeline, NULL, NULL, 0, NULL, NULL), CYTO_NOT_READY);
  for (int k = 0; k < 7; k++) {
    cyto_item *item = NULL;
    CHECK_REQUIRE(!cyto_pipeline_take(f.pipeline, -1, &item, NULL) && item);
    CHECK_INT_EQ(item->number, k);
    CHECK_INT_EQ(item->status != 0, k == 1);
    CHECK_INT_EQ(item->count, k != 6); /* nothing to run: it passes */
    if (k == 1)
      CHECK_STR_HAS(item->message, "item (number 1), stage 'model': input 'x'");
    if (k == 0 || k == 5)
      CHECK_CLOSE(((const float *)item->tensors[0].data)[7], 16, 0);
    if (k == 4)
      CHECK_INT_EQ(item->tensors[0].bytes, 0);
    cyto_item_free(item);
  }
  cyto_pipeline_destroy(f.pipeline);
  cyto_model_unload(model);
}

/* An item that fails in a batch fails alone, by its name. */
static void test_model_error(void) {
  cyto_model *model = model_open(&open_code);
  cyto_stage stages[] = {
      {.kind = CYTO_STAGE_MODEL, .model = model, .batch = 8, .threads = 2, .wait_ns = 1000000000, .name = "net"}};
  for (int policy = CYTO_ERRORS_STOP; policy <= CYTO_ERRORS_SKIP; policy++) {
    cyto_pipeline *p;
    CHECK_REQUIRE(
        !cyto_pipeline_create(stages, 1, &(cyto_pipeline_options){.queue = 16, .on_error = policy}, &p, NULL));
    for (int64_t k = 0; k < 16; k++) {
      cyto_tensor *t = tensor_of(k, 2);
      if (k == 11)
        rows[k].x[0] = -1;
      CHECK(!cyto_pipeline_put(p, "frame", number_as(k), 1, t, NULL));
    }
    cyto_pipeline_close(p);
    int n = 0;
    for (cyto_item *item; !cyto_pipeline_take(p, -1, &item, NULL) && item; n++) {
      if (n == 11)
        CHECK_STR_EQ(item->message, "item 'frame' (number 11), stage 'net': row 0 is bad");
      else
        check_double(item, 2);
      cyto_item_free(item);
    }
    CHECK_INT_EQ(n, policy == CYTO_ERRORS_STOP ? 12 : 16);
    cyto_pipeline_destroy(p);
  }
  cyto_model_unload(model);
}

/* ---- short memory ---- */

static atomic_llong memory_used, memory_limit;

static void *limited_alloc(void *user, size_t bytes, size_t alignment) {
  (void)user;
  if (atomic_fetch_add(&memory_used, (long long)bytes) + (long long)bytes > atomic_load(&memory_limit)) {
    atomic_fetch_sub(&memory_used, (long long)bytes);
    return NULL;
  }
  return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void limited_release(void *user, void *ptr, size_t bytes) {
  (void)user;
  if (ptr)
    atomic_fetch_sub(&memory_used, (long long)bytes);
  free(ptr);
}

static void test_short_memory(void) {
  cyto_model *model = model_open(&open_code);
  cyto_options options = {.threads = 1, .allocator = {limited_alloc, limited_release, NULL}};
  cyto_stage stages[] = {{.kind = CYTO_STAGE_MODEL,
                          .model = model,
                          .batch = 16,
                          .threads = 1,
                          .wait_ns = 1000000000,
                          .options = &options}};
  flow f;
  atomic_store(&memory_limit, 1 << 20);
  CHECK_REQUIRE(flow_open(&f, stages, 1, (cyto_pipeline_options){.queue = 32}));
  atomic_store(&memory_limit, 7 * ROW_ARENA); /* a context and six rows */
  flow_feed(&f, 1200, 2, 0);
  cyto_stage_statistics s;
  for (int64_t n = 0; n < 1200; n++) {
    cyto_item *item = flow_take(&f);
    CHECK_REQUIRE(item);
    CHECK_INT_EQ(item->number, n);
    check_double(item, 2);
    cyto_item_free(item);
    if (n == 150) { /* remembered: more was tried now and then, in vain */
      cyto_stage_statistics_get(f.pipeline, 0, &s);
      CHECK(s.short_of_memory >= 2 && s.short_of_memory <= 8);
      CHECK(s.batch <= 8); /* batches that were not full may have lowered it further */
      atomic_store(&memory_limit, 1 << 20);
    }
  }
  cyto_stage_statistics_get(f.pipeline, 0, &s);
  CHECK_INT_EQ(s.batch, 16); /* it rose again */
  CHECK_INT_EQ(s.rows, 1200);
  CHECK_INT_EQ(s.failed, 0);
  flow_end(&f);
  atomic_store(&memory_limit, 1 << 20);
  CHECK_REQUIRE(
      flow_start(&f, stages, 1, (cyto_pipeline_options){.on_error = CYTO_ERRORS_SKIP, .queue = 8}, 4, 2, 20000));
  atomic_store(&memory_limit, 0); /* nothing at all: items fail, and others go on when there is some */
  for (int64_t n = 0; n < 4; n++) {
    cyto_item *item = flow_take(&f);
    CHECK_REQUIRE(item);
    CHECK_INT_EQ(item->status, CYTO_OUT_OF_MEMORY);
    CHECK_STR_HAS(item->message, "no memory");
    cyto_item_free(item);
  }
  flow_end(&f);
  CHECK_INT_EQ(atomic_load(&memory_used), 0);
  cyto_model_unload(model);
}

/* ---- frames, and two models ---- */

static void test_reuse(void) {
  cyto_model *model = model_open(&open_code);
  for (int64_t batch = 1; batch < 9; batch += 7) {
    cyto_stage stages[] = {
        {.kind = CYTO_STAGE_MODEL, .model = model, .batch = batch, .threads = 2, .wait_ns = 50000000, .reuse = 0.5}};
    cyto_pipeline *p;
    CHECK_REQUIRE(!cyto_pipeline_create(stages, 1, &(cyto_pipeline_options){.queue = 64}, &p, NULL));
    atomic_store(&rows_run, 0);
    for (int64_t k = 0; k < 40; k++) { /* scenes of eight frames, which drift by 0.1 */
      cyto_tensor *t = tensor_of(k, 2);
      for (int i = 0; i < WIDTH; i++)
        rows[k].x[i] = (float)(k / 8 * 100) + (float)(k % 8) * 0.1f;
      CHECK(!cyto_pipeline_put(p, "frame", number_as(k), 1, t, NULL));
    }
    cyto_pipeline_close(p);
    int64_t n = 0;
    for (cyto_item *item; !cyto_pipeline_take(p, -1, &item, NULL) && item; n++) {
      /* 0.5 and more after the fifth: computed, and the next ones are compared with that one */
      float computed = (float)(n / 8 * 100) + (n % 8 >= 5 ? 5 : 0) * 0.1f;
      CHECK_CLOSE(*(const float *)item->tensors[0].data, 2 * computed, 1e-6);
      cyto_item_free(item);
    }
    CHECK_INT_EQ(n, 40);
    CHECK_INT_EQ(atomic_load(&rows_run), 10);
    cyto_stage_statistics s;
    cyto_stage_statistics_get(p, 0, &s);
    CHECK_INT_EQ(s.reused, 30);
    CHECK_INT_EQ(s.items, 40);
    cyto_pipeline_destroy(p);
  }
  cyto_model_unload(model);
}

static int32_t is_odd(void *user, const cyto_item *item, cyto_error *error) {
  (void)user;
  (void)error;
  return number_of(item) % 2;
}

static int32_t is_unsure(void *user, const cyto_item *item, cyto_error *error) {
  (void)user;
  if (number_of(item) != 3)
    return 0;
  snprintf(error->message, sizeof error->message, "not to be told");
  return -1;
}

static void test_needs_fails(void) {
  cyto_model *model = model_open(&open_code);
  cyto_stage stages[] = {{.kind = CYTO_STAGE_MODEL, .model = model, .threads = 1, .keep_inputs = 1},
                         {.kind = CYTO_STAGE_MODEL, .name = "expensive", .model = model, .threads = 1, .needs = is_unsure}};
  flow f;
  CHECK_REQUIRE(flow_start(&f, stages, 2, (cyto_pipeline_options){.on_error = CYTO_ERRORS_SKIP}, 6, 2, 0));
  for (cyto_item *item; (item = flow_take(&f));) {
    CHECK_INT_EQ(item->status, item->number == 3 ? CYTO_RUNTIME_FAILURE : CYTO_OK);
    if (item->status)
      CHECK_STR_HAS(item->message, "stage 'expensive': not to be told");
    cyto_item_free(item);
  }
  flow_end(&f);
  cyto_model_unload(model);
}

static void test_early_exit(void) {
  cyto_model *model = model_open(&open_code);
  for (int by_number = 0; by_number < 2; by_number++) {
    /* The first run doubles; the second doubles the same inputs, of items that it gets. */
    cyto_stage stages[] = {
        {.kind = CYTO_STAGE_MODEL, .model = model, .batch = 4, .threads = 1, .wait_ns = 1000000, .keep_inputs = 1},
        {.kind = CYTO_STAGE_MODEL,
         .model = model,
         .batch = 4,
         .threads = 2,
         .wait_ns = 1000000,
         .needs = by_number ? NULL : is_odd,
         .sure = by_number ? 6020 : 0}}; /* the highest of item k is 2 * (k + 1 + 3000) */
    flow f;
    CHECK_REQUIRE(flow_start(&f, stages, 2, (cyto_pipeline_options){0}, 30, 2, 0));
    CHECK_INT_EQ(take_doubles(&f, 2), 30);
    cyto_stage_statistics s;
    cyto_stage_statistics_get(f.pipeline, 1, &s);
    CHECK_INT_EQ(s.passed, by_number ? 21 : 15);
    CHECK_INT_EQ(s.items, by_number ? 9 : 15);
    flow_end(&f);
  }
  cyto_model_unload(model);
}

/* ---- splits and joins ---- */

enum { SUM_OF = 1000 };

static int32_t split(void *user, cyto_item *item, cyto_emitter *to, cyto_error *error) {
  int64_t k = number_of(item), fails = (int64_t)(intptr_t)user;
  for (int64_t part = 0; part < k % 7; part++) {
    if (cyto_emit(to, number_as(k * SUM_OF + part), 0, NULL))
      return CYTO_CANCELLED;
    atomic_fetch_add(&live, 1);
    if (atomic_load(&live) > atomic_load(&most_live))
      atomic_store(&most_live, atomic_load(&live));
  }
  if (k != fails)
    return CYTO_OK;
  snprintf(error->message, sizeof error->message, "truncated");
  return CYTO_RUNTIME_FAILURE;
}

static int32_t add(void *user, void **state, cyto_item *part, cyto_emitter *to, cyto_error *error) {
  (void)error;
  atomic_fetch_sub(&live, 1);
  if (!*state)
    *state = calloc(1, sizeof(int64_t));
  *(int64_t *)*state += number_of(part) % SUM_OF + 1;
  return user ? cyto_emit(to, part->data, 0, NULL) : CYTO_OK;
}

static int32_t finish(void *user, void **state, cyto_item *whole, cyto_error *error) {
  (void)user, (void)error;
  whole->data = number_as(*state ? *(int64_t *)*state : 0);
  free(*state);
  *state = NULL;
  return CYTO_OK;
}

static atomic_int abandoned;
static void abandon(void *user, void **state) {
  (void)user;
  free(*state);
  atomic_fetch_add(&abandoned, 1);
}

static int32_t part_fails(void *user, cyto_item *item, cyto_error *error) {
  (void)user;
  sleep_us(number_of(item) % 3 * 100);
  if (number_of(item) != 5 * SUM_OF + 2)
    return CYTO_OK;
  snprintf(error->message, sizeof error->message, "no tissue");
  return CYTO_RUNTIME_FAILURE;
}

static void check_sums(flow *f, int64_t failed, const char *message, int unordered) {
  int64_t n = 0;
  for (cyto_item *item; (item = flow_take(f)); n++) {
    int64_t k = item->number, parts = k % 7;
    if (!unordered)
      CHECK_INT_EQ(k, n);
    if (k == failed)
      CHECK_STR_EQ(item->message, message);
    else
      CHECK_INT_EQ(number_of(item), parts * (parts + 1) / 2);
    CHECK_INT_EQ(item->status != 0, k == failed);
    cyto_item_free(item);
  }
  CHECK_INT_EQ(n, 40);
}

static void test_split_join(void) {
  for (int unordered = 0; unordered < 2; unordered++)
    for (int fault = 0; fault < 3; fault++) {
      cyto_stage stages[] = {
          {.kind = CYTO_STAGE_SPLIT,
           .split = split,
           .user = (void *)(intptr_t)(fault == 1 ? 5 : -1),
           .threads = 2,
           .name = "tiles"},
          {.kind = CYTO_STAGE_MAP, .map = fault == 2 ? part_fails : plain, .threads = 3, .name = "look"},
          {.kind = CYTO_STAGE_JOIN, .add = add, .finish = finish, .abandon = abandon}};
      flow f;
      atomic_store(&abandoned, 0);
      atomic_store(&live, 0);
      atomic_store(&most_live, 0);
      cyto_pipeline_options options = {.on_error = CYTO_ERRORS_SKIP, .unordered = unordered, .queue = 2};
      CHECK_REQUIRE(flow_start(&f, stages, 3, options, 40, 0, 0));
      check_sums(&f, fault ? 5 : -1,
                 fault == 1 ? "item 'i5' (number 5), stage 'tiles': truncated"
                            : "item 'i5' (number 5, part 2), stage 'look': no tissue",
                 unordered);
      CHECK(atomic_load(&abandoned) <= 1);
      CHECK(fault || atomic_load(&most_live) <= 2 * 2 * 2 + 2 + 3 + 1 + 2);
      flow_end(&f);
    }
}

/* What is finished goes on before the whole is; a split in a split. */
static void test_emitting_join(void) {
  cyto_stage stages[] = {{.kind = CYTO_STAGE_SPLIT, .split = split, .user = (void *)(intptr_t)-1},
                         {.kind = CYTO_STAGE_SPLIT, .split = split, .user = (void *)(intptr_t)-1, .threads = 2},
                         {.kind = CYTO_STAGE_JOIN, .add = add, .finish = finish, .user = (void *)1},
                         {.kind = CYTO_STAGE_JOIN, .add = add, .finish = finish}};
  flow f;
  CHECK_REQUIRE(flow_start(&f, stages, 4, (cyto_pipeline_options){0}, 7, 0, 0));
  int64_t n = 0;
  for (cyto_item *item; (item = flow_take(&f)); n++) {
    CHECK_INT_EQ(item->number, n);
    int64_t sum = 0; /* the outer join adds what the inner emitted, and its sums */
    for (int64_t part = 0; part < n % 7; part++) {
      int64_t inner = (n * SUM_OF + part) % 7;
      for (int64_t q = 0; q < inner; q++)
        sum += ((n * SUM_OF + part) * SUM_OF + q) % SUM_OF + 1;
      sum += inner * (inner + 1) / 2 % SUM_OF + 1;
    }
    CHECK_INT_EQ(number_of(item), sum);
    cyto_item_free(item);
  }
  CHECK_INT_EQ(n, 7);
  flow_end(&f);
}

/* ---- cancelling ---- */

static atomic_int entered;
static int32_t slow(void *user, cyto_item *item, cyto_error *error) {
  (void)user, (void)item, (void)error;
  atomic_store(&entered, 1);
  sleep_us(3000);
  return CYTO_OK;
}

static void test_cancel(void) {
  cyto_model *model = model_open(&open_code);
  for (int at = 0; at < 5; at++) { /* the slow stage, where things are when the run is cancelled; 4: nobody takes */
    cyto_stage stages[] = {{.kind = CYTO_STAGE_MAP, .map = at == 0 ? slow : plain, .threads = 2},
                           {.kind = CYTO_STAGE_SPLIT, .split = split, .user = (void *)(intptr_t)-1},
                           {.kind = CYTO_STAGE_MAP, .map = at == 2 ? slow : plain, .threads = 2},
                           {.kind = CYTO_STAGE_JOIN, .add = add, .finish = finish, .abandon = abandon},
                           {.kind = CYTO_STAGE_MAP, .map = at == 1 || at == 3 ? slow : plain}};
    flow f;
    atomic_store(&entered, 0);
    CHECK_REQUIRE(flow_start(&f, stages, 5, (cyto_pipeline_options){.queue = 2, .unordered = at == 3}, 200, 0, 0));
    for (int k = 0; k < 200 && at != 4 && !atomic_load(&entered); k++)
      sleep_us(1000);
    sleep_us(10000);
    cyto_pipeline_cancel(f.pipeline);
    cyto_item *item;
    CHECK_INT_EQ(cyto_pipeline_take(f.pipeline, -1, &item, NULL), CYTO_CANCELLED);
    CHECK(!item);
    pthread_join(f.thread, NULL);
    CHECK_INT_EQ(atomic_load(&f.feeder.status), CYTO_CANCELLED);
    CHECK_INT_EQ(cyto_pipeline_put(f.pipeline, NULL, NULL, 0, NULL, NULL), CYTO_CANCELLED);
    cyto_pipeline_destroy(f.pipeline);
  }
  cyto_stage waiting[] = {
      {.kind = CYTO_STAGE_MODEL, .model = model, .batch = 100, .threads = 3, .wait_ns = 60000000000}};
  flow f; /* while a batch waits for more */
  CHECK_REQUIRE(flow_start(&f, waiting, 1, (cyto_pipeline_options){.queue = 200}, 0, 0, 0));
  pthread_join(f.thread, NULL);
  cyto_pipeline_destroy(f.pipeline);
  CHECK_REQUIRE(!cyto_pipeline_create(waiting, 1, NULL, &f.pipeline, NULL));
  CHECK(!cyto_pipeline_put(f.pipeline, NULL, NULL, 1, tensor_of(0, 2), NULL));
  sleep_us(10000);
  cyto_item *item;
  CHECK_INT_EQ(cyto_pipeline_take(f.pipeline, 1000000, &item, NULL), CYTO_NOT_READY);
  cyto_pipeline_destroy(f.pipeline);
  cyto_model_unload(model);
}

/* ---- memory that outlives, bad input ---- */

static void test_kept_outputs(void) {
  cyto_model *model = model_open(&open_code);
  cyto_stage stages[] = {{.kind = CYTO_STAGE_MODEL, .model = model, .batch = 4, .threads = 1, .wait_ns = 1000000000}};
  flow f;
  void *kept[8];
  const float *y[8];
  CHECK_REQUIRE(flow_start(&f, stages, 1, (cyto_pipeline_options){0}, 8, 2, 0));
  for (int k = 0; k < 8; k++) {
    cyto_item *item = flow_take(&f);
    CHECK_REQUIRE(item);
    kept[k] = cyto_tensors_keep(item);
    y[k] = item->tensors[0].data;
    cyto_item_free(item);
  }
  flow_end(&f);
  cyto_model_unload(model);
  for (int k = 0; k < 8; k++) {
    CHECK_CLOSE(y[k][1], 2 * rows[k].x[1], 0);
    cyto_tensors_release(kept[k]);
  }
  cyto_tensors_release(NULL);
}

static void test_bad(void) {
  cyto_model *model = model_open(&open_code), *odd = model_open(&odd_code);
  const struct {
    cyto_stage stage;
    const char *text;
  } cases[] = {{{.kind = CYTO_STAGE_MAP, .name = "m"}, "stage 0 'm': a map needs its callback"},
               {{.kind = CYTO_STAGE_SPLIT}, "a split needs its callback"},
               {{.kind = CYTO_STAGE_JOIN, .add = add, .finish = finish}, "a join needs a split before it"},
               {{.kind = CYTO_STAGE_MODEL}, "a model's stage needs its model"},
               {{.kind = 9}, "its kind is none of"},
               {{.kind = CYTO_STAGE_MAP, .map = plain, .threads = -1}, "must not be negative"},
               {{.kind = CYTO_STAGE_MODEL, .model = model, .reuse = -1}, "must not be negative"},
               {{.kind = CYTO_STAGE_MODEL, .model = odd, .batch = 2},
                "output 'found' has a size that depends on data; use batch 1"}};
  cyto_pipeline *p;
  cyto_error error;
  for (int k = 0; k < CHECK_COUNT(cases); k++) {
    CHECK_INT_EQ(cyto_pipeline_create(&cases[k].stage, 1, NULL, &p, &error), CYTO_INVALID_ARGUMENT);
    CHECK_STR_HAS(error.message, cases[k].text);
    CHECK(!p);
  }
  const cyto_pipeline_options negative[] = {{.queue = -1}, {.in_flight = -1}};
  for (int k = 0; k < CHECK_COUNT(negative); k++) {
    CHECK_INT_EQ(cyto_pipeline_create(&(cyto_stage){.map = plain}, 1, &negative[k], &p, &error), CYTO_INVALID_ARGUMENT);
    CHECK_STR_HAS(error.message, "queue and in_flight must not be negative");
  }
  CHECK_INT_EQ(cyto_pipeline_create(NULL, 0, NULL, &p, &error), CYTO_INVALID_ARGUMENT);
  CHECK_INT_EQ(cyto_pipeline_create(&cases[0].stage, 1, NULL, NULL, &error), CYTO_INVALID_ARGUMENT);
  CHECK_INT_EQ(cyto_pipeline_take(NULL, 0, NULL, &error), CYTO_INVALID_ARGUMENT);
  CHECK_INT_EQ(cyto_pipeline_put(NULL, NULL, NULL, 0, NULL, &error), CYTO_INVALID_ARGUMENT);
  const int32_t devices[] = {0, 1};
  cyto_options several = {.devices = devices, .device_count = 2};
  cyto_stage over_devices = {.kind = CYTO_STAGE_MODEL, .model = model, .options = &several};
  CHECK_INT_EQ(cyto_pipeline_create(&over_devices, 1, NULL, &p, &error), CYTO_INVALID_ARGUMENT);
  CHECK_STR_HAS(error.message, "the model is linked");
  cyto_pipeline_destroy(NULL);
  cyto_item_free(NULL);
  cyto_model_unload(model);
  cyto_model_unload(odd);
}

/* ---- tiles ---- */

enum {
  CHANNELS = 3,
  TILE_Y = 4,
  TILE_X = 600,
  IMAGE_Y = 7,
  IMAGE_X = 900
}; /* lines longer than what is done at once */

/* What a region of the image ought to be, voxel by voxel; NaN where no tile lies. */
static float mean_at(const cyto_blend *how, const cyto_tile *tiles, int64_t n, int64_t channel, int64_t y, int64_t x) {
  volatile float sum = 0, count = 0, product;
  for (int64_t k = 0; k < n; k++) {
    int64_t row = y - tiles[k].origin[0], column = x - tiles[k].origin[1];
    if (row < 0 || row >= TILE_Y || column < 0 || column >= TILE_X)
      continue;
    int64_t at = row * TILE_X + column;
    product = tiles[k].values[channel * TILE_Y * TILE_X + at] * how->weights[at];
    sum = sum + product;
    count = count + how->weights[at];
  }
  return count > 0 ? sum / count : how->fill;
}

static int label_at(const cyto_blend *how, const cyto_tile *tiles, int64_t n, int64_t y, int64_t x) {
  int label = 0;
  float best = mean_at(how, tiles, n, 0, y, x);
  for (int c = 1; c < CHANNELS; c++) {
    float mean = mean_at(how, tiles, n, c, y, x);
    if (mean > best || (mean != mean && best == best)) {
      label = c;
      best = mean;
    }
  }
  return label;
}

static int64_t differences(const cyto_blend *how, const cyto_tile *tiles, int64_t n, const int64_t start[2],
                           const int64_t stop[2], const void *out) {
  int64_t wrong = 0, rows = stop[0] - start[0], columns = stop[1] - start[1];
  for (int64_t y = 0; y < rows; y++)
    for (int64_t x = 0; x < columns; x++)
      for (int64_t c = 0; c < (how->kind == CYTO_BLEND_ARGMAX ? 1 : CHANNELS); c++) {
        int64_t at = (c * rows + y) * columns + x;
        float mean = mean_at(how, tiles, n, c, start[0] + y, start[1] + x);
        if (how->kind == CYTO_BLEND_MEANS)
          wrong += memcmp(&mean, (const float *)out + at, sizeof mean) != 0 && mean == mean;
        else if (how->kind == CYTO_BLEND_ABOVE)
          wrong += ((const uint8_t *)out)[at] != (mean > how->threshold);
        else
          wrong += ((const uint8_t *)out)[at] != label_at(how, tiles, n, start[0] + y, start[1] + x);
      }
  return wrong;
}

/* Overlapping tiles, one beyond the border, a gap between two; some values are NaN, infinite or equal. */
static void test_tiles(void) {
  enum { SIZE = TILE_Y * TILE_X };
  static const int64_t origins[][2] = {{0, -20}, {0, 300}, {3, -20}, {3, 350}};
  static float values[4][CHANNELS * SIZE], weights[SIZE], out[CHANNELS * IMAGE_Y * IMAGE_X];
  cyto_blend how = {
      .rank = 2, .lead = CHANNELS, .tile = {TILE_Y, TILE_X}, .weights = weights, .fill = 0.5f, .threshold = 0.25f};
  cyto_tile tiles[4] = {{0}};
  uint32_t seed = 1;
  for (int k = 0; k < SIZE; k++)
    weights[k] = 0.001f + (float)((seed = seed * 1664525u + 1013904223u) >> 8) / (1 << 24);
  for (int t = 0; t < 4; t++) {
    for (int k = 0; k < CHANNELS * SIZE; k++)
      values[t][k] = (float)((int)((seed = seed * 1664525u + 1013904223u) >> 24) - 128) / 64;
    values[t][17] = NAN;
    values[t][SIZE + 90] = INFINITY;
    tiles[t] = (cyto_tile){values[t], {origins[t][0], origins[t][1]}};
  }
  static const int64_t regions[][4] = {
      {0, 0, IMAGE_Y, IMAGE_X}, {2, 5, 3, 6}, {1, 290, 6, 899}, {3, 0, 3, 10}, {0, 570, 7, 600}};
  for (int kind = CYTO_BLEND_MEANS; kind <= CYTO_BLEND_ABOVE; kind++)
    for (size_t r = 0; r < CHECK_COUNT(regions); r++)
      for (int64_t n = 0; n <= 4; n++) {
        cyto_error error;
        how.kind = kind;
        memset(out, 0x55, sizeof out);
        CHECK_INT_EQ(cyto_tiles_blend(&how, tiles, n, regions[r], regions[r] + 2, out, &error), CYTO_OK);
        CHECK_INT_EQ(differences(&how, tiles, n, regions[r], regions[r] + 2, out), 0);
      }
}

static void test_bad_tiles(void) {
  float one = 1, out = 0;
  int64_t start[CYTO_MAX_RANK] = {0}, stop[CYTO_MAX_RANK] = {1};
  cyto_tile tile = {&one, {0}};
  cyto_error error;
  cyto_blend good = {.rank = 1, .lead = 1, .tile = {1}, .weights = &one}, bad[6];
  CHECK_INT_EQ(cyto_tiles_blend(&good, &tile, 1, start, stop, &out, &error), CYTO_OK);
  CHECK(out == 1);
  for (int k = 0; k < 6; k++)
    bad[k] = good;
  bad[0].rank = 0;
  bad[1].rank = CYTO_MAX_RANK + 1;
  bad[2].lead = 0;
  bad[3].tile[0] = 0;
  bad[4].weights = NULL;
  bad[5].kind = CYTO_BLEND_ARGMAX;
  bad[5].lead = 257;
  for (int k = 0; k < 6; k++)
    CHECK_INT_EQ(cyto_tiles_blend(&bad[k], &tile, 1, start, stop, &out, &error), CYTO_INVALID_ARGUMENT);
  CHECK_INT_EQ(cyto_tiles_blend(&good, NULL, 1, start, stop, &out, &error), CYTO_INVALID_ARGUMENT);
  CHECK_STR_HAS(error.message, "cyto_tiles_blend");
}

static void test_bottleneck(void) {
  cyto_stage stages[] = {{.kind = CYTO_STAGE_MAP, .map = plain},
                         {.kind = CYTO_STAGE_MAP, .map = slow},
                         {.kind = CYTO_STAGE_MAP, .map = plain}};
  flow f;
  CHECK_REQUIRE(flow_start(&f, stages, 3, (cyto_pipeline_options){0}, 30, 0, 0));
  for (cyto_item *item; (item = flow_take(&f));)
    cyto_item_free(item);
  cyto_pipeline_statistics s;
  cyto_stage_statistics first, second, third;
  cyto_pipeline_statistics_get(f.pipeline, &s);
  cyto_stage_statistics_get(f.pipeline, 0, &first);
  cyto_stage_statistics_get(f.pipeline, 1, &second);
  cyto_stage_statistics_get(f.pipeline, 2, &third);
  CHECK_INT_EQ(s.bottleneck, 1);
  CHECK_INT_EQ(s.items, 30);
  CHECK(s.ns > 80000000);
  CHECK(first.waiting_out_ns > second.waiting_out_ns);
  CHECK(third.waiting_in_ns > third.busy_ns);
  CHECK(second.busy_ns > 80000000 && second.busy_ns > 2 * first.busy_ns && second.busy_ns > 2 * third.busy_ns);
  flow_end(&f);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"order", test_order},
                                     {"unordered", test_unordered},
                                     {"back_pressure", test_back_pressure},
                                     {"in_flight", test_in_flight},
                                     {"errors", test_errors},
                                     {"batches", test_batches},
                                     {"batch_time", test_batch_time},
                                     {"fixed_batch", test_fixed_batch},
                                     {"shapes", test_shapes},
                                     {"model_error", test_model_error},
                                     {"short_memory", test_short_memory},
                                     {"reuse", test_reuse},
                                     {"early_exit", test_early_exit},
                                     {"needs_fails", test_needs_fails},
                                     {"split_join", test_split_join},
                                     {"emitting_join", test_emitting_join},
                                     {"cancel", test_cancel},
                                     {"kept_outputs", test_kept_outputs},
                                     {"tiles", test_tiles},
                                     {"bad_tiles", test_bad_tiles},
                                     {"bottleneck", test_bottleneck},
                                     {"bad", test_bad}};
  return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
