/* SPDX-License-Identifier: Apache-2.0 */
/* test_pipeline.c - pipelines: order, bounded queues, batches by size and time, short memory, errors in every stage.
 * Further kinds of stages: test_pipeline_stages.c; tiles: test_tiles.c.
 */
#define _GNU_SOURCE
#include "pipeline_flow.h"

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
  CHECK_INT_EQ(s.max_waiting, 2);
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

/* ---- memory that outlives ---- */

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

int main(int argc, char **argv) {
  static const check_test tests[] = {
      {"order", test_order},
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
      {"kept_outputs", test_kept_outputs},
  };
  return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
