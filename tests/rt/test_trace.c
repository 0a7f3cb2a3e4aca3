/* SPDX-License-Identifier: Apache-2.0 */
/* test_trace.c - recordings of the model of model.c: several threads that run it and one that begins and ends recordings,
 * sums, limits, files; what a context says of its memory; an allocator that leaks on purpose. With SAN=thread for races.
 */
#define _GNU_SOURCE
#include "../check.h"
#include "cyto.h"
#include "tools/resident.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

extern const cyrt_model rt_model;

enum { BATCH = 64, THREADS = 4, RECORDINGS = 30, RUNS = 200 };

typedef struct fixture {
  cyto_model *model;
  cyto_context *context;
  cyto_error error;
  float left[BATCH * 4], right[BATCH * 4];
} fixture;

static int bind(fixture *f, int64_t batch) {
  const int64_t dims[2] = {batch, 4};
  return !cyto_bind_input(f->context, 0, CYTO_F32, 2, dims, f->left, &f->error) &&
         !cyto_bind_input(f->context, 1, CYTO_F32, 2, dims, f->right, &f->error);
}

/* model NULL: one of its own. */
static int fixture_open(fixture *f, cyto_model *model, const cyto_options *options) {
  memset(f, 0, sizeof *f);
  if (!model && cyto_model_from_linked(&rt_model, &f->model, &f->error))
    return 0;
  return !cyto_context_create(model ? model : f->model, options, &f->context, &f->error) && bind(f, BATCH);
}

static void fixture_close(fixture *f) {
  cyto_context_destroy(f->context);
  cyto_model_unload(f->model);
}

/* ---- tests ---- */

static void test_sums(void) {
  cyto_options options = {.threads = 2};
  cyto_trace_sums add, copy;
  fixture f;
  CHECK_REQUIRE(fixture_open(&f, NULL, &options));
  CHECK_INT_EQ(cyto_trace_step_count(f.model), 2);
  CHECK_INT_EQ(cyto_trace_step(f.model, 0, &add), CYTO_NOT_READY);
  CHECK_INT_EQ(cyto_trace_stop(f.model, &f.error), CYTO_NOT_READY);
  CHECK_REQUIRE(!cyto_run(f.context, &f.error));
  CHECK_REQUIRE(!cyto_trace_start(f.model, -1, &f.error));
  CHECK_INT_EQ(cyto_trace_start(f.model, 0, &f.error), CYTO_INVALID_ARGUMENT);
  for (int i = 0; i < 3; i++)
    CHECK_REQUIRE(!cyto_run(f.context, &f.error));
  CHECK_INT_EQ(cyto_trace_write(f.model, "/dev/null", &f.error), CYTO_NOT_READY);
  CHECK_REQUIRE(!cyto_trace_stop(f.model, &f.error));
  CHECK_REQUIRE(!cyto_run(f.context, &f.error)); /* is not part of it */
  CHECK_REQUIRE(!cyto_trace_step(f.model, 0, &add) && !cyto_trace_step(f.model, 1, &copy));
  CHECK_INT_EQ(add.first_runs, 1);
  CHECK_INT_EQ(add.runs, 2);
  CHECK_INT_EQ(copy.runs, 2);
  CHECK_INT_EQ(copy.position, 1);
  CHECK(add.ns > 0 && add.floor_ns > 0 && add.other_sizes && !strcmp(add.node, "Add_0"));
  CHECK_INT_EQ(cyto_trace_step(f.model, 2, &add), CYTO_INDEX_OUT_OF_RANGE);
  CHECK_INT_EQ(cyto_trace_step(f.model, -1, &add), CYTO_INDEX_OUT_OF_RANGE);
  CHECK_INT_EQ(cyto_trace_write(f.model, "/dev/full", &f.error), CYTO_RUNTIME_FAILURE);
  CHECK_STR_HAS(f.error.message, "No space left");
  CHECK_INT_EQ(cyto_trace_write(f.model, NULL, &f.error), CYTO_INVALID_ARGUMENT);
  CHECK_INT_EQ(cyto_trace_start(NULL, 0, &f.error), CYTO_INVALID_ARGUMENT);
  fixture_close(&f);
}

/* A run that fails is part of the recording, and the context goes before it is written. */
static void test_failure(void) {
  char path[] = "/tmp/cyto-trace-XXXXXX", text[4096];
  fixture f;
  CHECK_REQUIRE(fixture_open(&f, NULL, NULL));
  CHECK_REQUIRE(!cyto_trace_start(f.model, 0, &f.error));
  CHECK(bind(&f, 13) && cyto_run(f.context, &f.error));
  cyto_context_destroy(f.context);
  f.context = NULL;
  int file = mkstemp(path);
  CHECK_REQUIRE(file >= 0 && !cyto_trace_stop(f.model, &f.error) && !cyto_trace_write(f.model, path, &f.error));
  ssize_t n = read(file, text, sizeof text - 1);
  text[n > 0 ? n : 0] = 0;
  CHECK_STR_HAS(text, "\"failure\": ");
  CHECK_STR_HAS(text, "first run (cold)");
  close(file);
  unlink(path);
  fixture_close(&f);
}

typedef struct runner {
  cyto_model *model;
  atomic_int *over;
  int failed;
} runner;

static void *run_on(void *data) {
  runner *r = data;
  for (int k = 0; !atomic_load(r->over); k++) {
    cyto_options options = {.threads = 1 + k % 2};
    fixture f;
    r->failed |= !fixture_open(&f, r->model, &options);
    for (int i = 0; i < RUNS && !r->failed; i++)
      r->failed |= cyto_run(f.context, &f.error) != CYTO_OK;
    fixture_close(&f);
  }
  return NULL;
}

static void test_threads(void) {
  atomic_int over = 0;
  pthread_t threads[THREADS];
  runner runners[THREADS];
  fixture f;
  CHECK_REQUIRE(fixture_open(&f, NULL, NULL));
  for (int i = 0; i < THREADS; i++) {
    runners[i] = (runner){f.model, &over, 0};
    CHECK_REQUIRE(!pthread_create(&threads[i], NULL, run_on, &runners[i]));
  }
  for (int i = 0; i < RECORDINGS; i++) {
    cyto_trace_sums add, copy;
    CHECK_INT_EQ(cyto_trace_start(f.model, i % 3 - 1, &f.error), CYTO_OK);
    usleep(2000);
    CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_OK);
    CHECK_INT_EQ(cyto_trace_stop(f.model, &f.error), CYTO_OK);
    CHECK_INT_EQ(cyto_trace_step(f.model, 0, &add), CYTO_OK);
    CHECK_INT_EQ(cyto_trace_step(f.model, 1, &copy), CYTO_OK);
    CHECK(add.runs + add.first_runs > 0 && add.runs == copy.runs && add.first_runs == copy.first_runs);
    CHECK_INT_EQ(cyto_trace_write(f.model, "/dev/null", &f.error), CYTO_OK);
  }
  atomic_store(&over, 1);
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
    CHECK_INT_EQ(runners[i].failed, 0);
  }
  fixture_close(&f);
}

typedef struct reader {
  cyto_model *model;
  atomic_int *over;
  int failed, read;
} reader;

/* Asks for sums and writes files whenever it can: of a recording that is over, or of none. */
static void *read_on(void *data) {
  reader *r = data;
  while (!atomic_load(r->over)) {
    cyto_trace_sums add = {0};
    cyto_error error;
    cyto_status sums = cyto_trace_step(r->model, 0, &add), file = cyto_trace_write(r->model, "/dev/null", &error);
    r->failed |= (sums && sums != CYTO_NOT_READY) || (file && file != CYTO_NOT_READY);
    r->failed |= !sums && add.runs + add.first_runs != 2;
    r->read += !sums && !file;
  }
  return NULL;
}

/* A recording that begins frees the one that is being read only when that is done. */
static void test_readers(void) {
  enum { READERS = 2 };
  atomic_int over = 0;
  pthread_t threads[READERS];
  reader readers[READERS];
  fixture f;
  CHECK_REQUIRE(fixture_open(&f, NULL, NULL));
  for (int i = 0; i < READERS; i++) {
    readers[i] = (reader){f.model, &over, 0, 0};
    CHECK_REQUIRE(!pthread_create(&threads[i], NULL, read_on, &readers[i]));
  }
  for (int i = 0; i < RECORDINGS; i++) {
    CHECK_INT_EQ(cyto_trace_start(f.model, 0, &f.error), CYTO_OK);
    CHECK(!cyto_run(f.context, &f.error) && !cyto_run(f.context, &f.error));
    CHECK_INT_EQ(cyto_trace_stop(f.model, &f.error), CYTO_OK);
    usleep(i % 2 ? 2000 : 0);
  }
  usleep(50000);
  atomic_store(&over, 1);
  for (int i = 0; i < READERS; i++) {
    pthread_join(threads[i], NULL);
    CHECK_INT_EQ(readers[i].failed, 0);
    CHECK(readers[i].read > 0);
  }
  fixture_close(&f);
}

static void test_snapshot(void) {
  cyto_memory_use uses[CYTO_MEMORY_USES];
  fixture f;
  CHECK_REQUIRE(fixture_open(&f, NULL, NULL));
  CHECK_REQUIRE(!cyto_run(f.context, &f.error));
  CHECK_REQUIRE(bind(&f, 1) && !cyto_run(f.context, &f.error));
  int32_t n = cyto_memory_snapshot(f.context, uses, CYTO_MEMORY_USES);
  CHECK_REQUIRE(n > 2 && n <= CYTO_MEMORY_USES);
  CHECK(!strcmp(uses[0].name, "arena") && uses[0].in_use < uses[0].peak);
  CHECK(!strcmp(uses[n - 1].name, "all of the context") && uses[n - 1].in_use > uses[0].peak);
  CHECK_INT_EQ(cyto_memory_snapshot(f.context, NULL, 0), n);
  CHECK_INT_EQ(cyto_memory_snapshot(NULL, uses, CYTO_MEMORY_USES), 0);
  fixture_close(&f);
}

/* ---- growth ---- */

enum { BLOCK = 1 << 16 };

static void *leaking_alloc(void *user, size_t bytes, size_t alignment) {
  (void)user;
  size_t room = bytes > BLOCK ? bytes : BLOCK;
  void *ptr = aligned_alloc(alignment, (room + alignment - 1) / alignment * alignment);
  return ptr ? memset(ptr, 1, room) : NULL;
}

static void keep_it(void *user, void *ptr, size_t bytes) {
  void **last = user;
  (void)bytes;
  *(void **)ptr = *last; /* for the end of the test: other tools look for leaks, too */
  *last = ptr;
}

static void give_back(void *user, void *ptr, size_t bytes) {
  (void)user, (void)bytes;
  free(ptr);
}

static int64_t grown(void (*release)(void *, void *, size_t)) {
  void *kept = NULL;
  cyto_options options = {.threads = 1, .allocator = {leaking_alloc, release, &kept}};
  resident_growth growth = {.runs = 100};
  cyto_model *model = NULL;
  cyto_error error;
  CHECK_INT_EQ(cyto_model_from_linked(&rt_model, &model, &error), CYTO_OK);
  for (int64_t i = 0; i < growth.runs; i++) {
    fixture f;
    CHECK(fixture_open(&f, model, &options) && !cyto_run(f.context, &f.error));
    fixture_close(&f);
    resident_note(&growth, i);
  }
  for (void *next; kept; kept = next) {
    next = *(void **)kept;
    free(kept);
  }
  cyto_model_unload(model);
  return resident_grown(&growth);
}

static void test_growth(void) {
  if (resident_bytes() < 0) {
    CHECK_SKIP("the system does not tell what is in RAM");
    return;
  }
  int64_t leaking = grown(keep_it);
  CHECK(leaking > 89 * BLOCK);
  CHECK(grown(give_back) < leaking / 4);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"sums", test_sums},       {"failure", test_failure},   {"threads", test_threads},
                                     {"readers", test_readers}, {"snapshot", test_snapshot}, {"growth", test_growth}};
  return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
