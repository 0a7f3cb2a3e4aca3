/* SPDX-License-Identifier: Apache-2.0 */
/* test_pipeline_stages.c - pipelines: frames that are like the one before, a cheap model before an expensive one, splits and joins,
 * cancelling at every stage, which stage the others wait for, bad input.
 */
#define _GNU_SOURCE
#include "pipeline_flow.h"

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
  cyto_stage stages[] = {
      {.kind = CYTO_STAGE_MODEL, .model = model, .threads = 1, .keep_inputs = 1},
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
static atomic_int live, max_live; /* parts */

static int32_t split(void *user, cyto_item *item, cyto_emitter *to, cyto_error *error) {
  int64_t k = number_of(item), fails = (int64_t)(intptr_t)user;
  for (int64_t part = 0; part < k % 7; part++) {
    if (cyto_emit(to, number_as(k * SUM_OF + part), 0, NULL))
      return CYTO_CANCELLED;
    atomic_fetch_add(&live, 1);
    if (atomic_load(&live) > atomic_load(&max_live))
      atomic_store(&max_live, atomic_load(&live));
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
      atomic_store(&max_live, 0);
      cyto_pipeline_options options = {.on_error = CYTO_ERRORS_SKIP, .unordered = unordered, .queue = 2};
      CHECK_REQUIRE(flow_start(&f, stages, 3, options, 40, 0, 0));
      check_sums(&f, fault ? 5 : -1,
                 fault == 1 ? "item 'i5' (number 5), stage 'tiles': truncated"
                            : "item 'i5' (number 5, part 2), stage 'look': no tissue",
                 unordered);
      CHECK(atomic_load(&abandoned) <= 1);
      CHECK(fault || atomic_load(&max_live) <= 2 * 2 * 2 + 2 + 3 + 1 + 2);
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

/* ---- bad input ---- */

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

int main(int argc, char **argv) {
  static const check_test tests[] = {
      {"reuse", test_reuse},
      {"early_exit", test_early_exit},
      {"needs_fails", test_needs_fails},
      {"split_join", test_split_join},
      {"emitting_join", test_emitting_join},
      {"cancel", test_cancel},
      {"bottleneck", test_bottleneck},
      {"bad", test_bad},
  };
  return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
