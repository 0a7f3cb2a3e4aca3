/* SPDX-License-Identifier: Apache-2.0 */
/* test_context.c - loading, inspecting, binding, running and failing, with the model of model.c.
 *
 * Needs beside its own binary: rt_model_a.so (TAG 1), rt_model_b.so (TAG 2), rt_bad_abi.so, rt_bad_cpu.so,
 * rt_bad_query.so, rt_bad_weights.so (by MODEL_FAULT), each with the runtime linked in; and model.c linked
 * statically as rt_model.
 */
#define _GNU_SOURCE
#include "../check.h"
#include "cyrt.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

extern const cyrt_model rt_model;

static const char *beside(const char *name) {
  static __thread char path[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", path, sizeof path - 100);
  path[length > 0 ? length : 0] = 0;
  char *slash = strrchr(path, '/');
  strcpy(slash ? slash + 1 : path, name);
  return path;
}

/* A context with inputs bound: left[i] = i, right[i] = -2 * i + 40. */
typedef struct fixture {
  cyto_model *model;
  cyto_context *context;
  cyto_error error;
  int64_t dims[2];
  float *left, *right;
} fixture;

static void fixture_shape(fixture *f, int64_t batch) {
  f->dims[0] = batch;
  f->dims[1] = 4;
  f->left = realloc(f->left, (size_t)batch * 16 + 16);
  f->right = realloc(f->right, (size_t)batch * 16 + 16);
  for (int64_t i = 0; i < batch * 4; i++) {
    f->left[i] = (float)i;
    f->right[i] = (float)(-2 * i + 40);
  }
}

static cyto_status fixture_bind(fixture *f) {
  cyto_status status = cyto_bind_input(f->context, 0, CYTO_F32, 2, f->dims, f->left, &f->error);
  return status ? status : cyto_bind_input(f->context, 1, CYTO_F32, 2, f->dims, f->right, &f->error);
}

static int fixture_open(fixture *f, int64_t batch, const cyto_options *options) {
  memset(f, 0, sizeof *f);
  fixture_shape(f, batch);
  return !cyto_model_from_linked(&rt_model, &f->model, &f->error) &&
         !cyto_context_create(f->model, options, &f->context, &f->error) && !fixture_bind(f);
}

static void fixture_close(fixture *f) {
  cyto_context_destroy(f->context);
  cyto_model_unload(f->model);
  free(f->left);
  free(f->right);
}

/* Checks both outputs of a run with `bias` added. */
static void check_results(fixture *f, float bias) {
  cyto_tensor sum, positive;
  int64_t count = f->dims[0] * 4, seen = 0;
  CHECK_REQUIRE(!cyto_output(f->context, 0, &sum, &f->error));
  CHECK_REQUIRE(!cyto_output(f->context, 1, &positive, &f->error));
  CHECK_INT_EQ(sum.bytes, count * 4);
  CHECK_INT_EQ(sum.dims[0], f->dims[0]);
  for (int64_t i = 0; i < count; i++) {
    float expected = f->left[i] + f->right[i] + bias;
    if (((float *)sum.data)[i] != expected) {
      CHECK_FAIL("sum[%lld]: expected %g, found %g", (long long)i, expected, ((float *)sum.data)[i]);
      break;
    }
    if (expected > 0) {
      CHECK_REQUIRE(seen < positive.dims[0]);
      CHECK_INT_EQ(((int64_t *)positive.data)[seen], i);
      seen++;
    }
  }
  CHECK_INT_EQ(positive.dims[0], seen);
}

static void test_inspect(void) {
  fixture f;
  cyto_port port;
  cyto_memory need;
  CHECK_REQUIRE(fixture_open(&f, 3, NULL));
  CHECK_STR_EQ(cyto_model_name(f.model), "by hand");
  const char *key = NULL, *text = NULL;
  CHECK_INT_EQ(cyto_model_metadata_count(f.model), 3);
  CHECK_INT_EQ(cyto_model_metadata(f.model, 1, &key, &text), CYTO_OK);
  CHECK_STR_EQ(key, "rate");
  CHECK_STR_EQ(text, "16000");
  CHECK_INT_EQ(cyto_model_metadata(f.model, 3, &key, &text), CYTO_INDEX_OUT_OF_RANGE);
  CHECK_INT_EQ(cyto_model_metadata(f.model, -1, &key, &text), CYTO_INDEX_OUT_OF_RANGE);
  CHECK_STR_EQ(text, "16000");
  CHECK_STR_EQ(cyto_model_find_metadata(f.model, "labels"), "cat,dog");
  CHECK(!cyto_model_find_metadata(f.model, "label"));
  CHECK_INT_EQ(cyto_model_input_count(f.model), 3);
  CHECK_INT_EQ(cyto_model_output_count(f.model), 3);
  CHECK_INT_EQ(cyto_model_find_input(f.model, "right"), 1);
  CHECK_INT_EQ(cyto_model_find_output(f.model, "right"), -1);
  CHECK_INT_EQ(cyto_model_input(f.model, 0, &port), CYTO_OK);
  CHECK_STR_EQ(port.name, "left");
  CHECK_STR_EQ(port.dim_names[0], "batch");
  CHECK_INT_EQ(port.dims[0], -1);
  CHECK_INT_EQ(port.dims[1], 4);
  CHECK_INT_EQ(cyto_model_input(f.model, 2, &port), CYTO_OK);
  CHECK_INT_EQ(port.is_optional, 1);
  CHECK_INT_EQ(cyto_model_output(f.model, 1, &port), CYTO_OK);
  CHECK_INT_EQ(port.is_dynamic, 1);
  CHECK_INT_EQ(cyto_model_input(f.model, 3, &port), CYTO_INDEX_OUT_OF_RANGE);
  CHECK_INT_EQ(cyto_model_output(f.model, -1, &port), CYTO_INDEX_OUT_OF_RANGE);
  const int64_t *dims[] = {f.dims, f.dims, NULL};
  cyto_options one = {.threads = 1};
  CHECK_INT_EQ(cyto_memory_need(f.model, &one, dims, &need, &f.error), CYTO_OK);
  CHECK_INT_EQ(need.arena, 64 + 512);
  CHECK_INT_EQ(need.outputs, 48 + 4);
  CHECK_INT_EQ(cyto_memory_need(f.model, &one, NULL, &need, &f.error), CYTO_SHAPE_MISMATCH);
  fixture_close(&f);
}

static void test_run(void) {
  for (int32_t threads = 0; threads <= 5; threads++) {
    fixture f;
    cyto_options options = {.threads = threads};
    float bias[4] = {1000, 1000, 1000, 1000};
    int64_t four = 4;
    CHECK_REQUIRE(fixture_open(&f, 7, &options));
    CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_OK);
    check_results(&f, 0);
    CHECK_INT_EQ(cyto_bind_input(f.context, 2, CYTO_F32, 1, &four, bias, &f.error), CYTO_OK);
    CHECK_INT_EQ(cyto_run(f.context, NULL), CYTO_OK);
    check_results(&f, 1000);
    CHECK_INT_EQ(cyto_bind_input(f.context, 2, 0, 0, NULL, NULL, &f.error), CYTO_OK);
    static const int64_t batches[] = {1, 1000, 0, 12};
    for (int i = 0; i < CHECK_COUNT(batches); i++) {
      fixture_shape(&f, batches[i]);
      CHECK_INT_EQ(fixture_bind(&f), CYTO_OK);
      CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_OK);
      check_results(&f, 0);
    }
    fixture_close(&f);
  }
}

static void test_bound_outputs(void) {
  fixture f;
  float sum[20];
  int64_t positive[20];
  cyto_tensor out;
  CHECK_REQUIRE(fixture_open(&f, 5, NULL));
  CHECK_INT_EQ(cyto_output(f.context, 0, &out, &f.error), CYTO_NOT_READY);
  CHECK_INT_EQ(cyto_bind_output(f.context, 0, sum, sizeof sum, &f.error), CYTO_OK);
  CHECK_INT_EQ(cyto_bind_output(f.context, 1, positive, sizeof positive, &f.error), CYTO_OK);
  CHECK_INT_EQ(cyto_context_prepare(f.context, &f.error), CYTO_OK);
  CHECK_INT_EQ(cyto_output(f.context, 0, &out, &f.error), CYTO_OK);
  CHECK_INT_EQ(out.dims[0], 5);
  CHECK_INT_EQ(cyto_output(f.context, 1, &out, &f.error), CYTO_NOT_READY);
  CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_OK);
  check_results(&f, 0);
  CHECK_INT_EQ(cyto_output(f.context, 0, &out, &f.error), CYTO_OK);
  CHECK(out.data == sum);
  CHECK_INT_EQ(cyto_output(f.context, 1, &out, &f.error), CYTO_OK);
  CHECK(out.data == positive);

  CHECK_INT_EQ(cyto_bind_output(f.context, 0, sum, sizeof sum - 1, &f.error), CYTO_OK);
  CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_BUFFER_TOO_SMALL);
  CHECK_STR_EQ(f.error.message, "output 'sum': needs 80 bytes for float32 [5,4], the bound buffer holds 79");
  CHECK_INT_EQ(cyto_bind_output(f.context, 0, NULL, 0, &f.error), CYTO_OK);
  CHECK_INT_EQ(cyto_bind_output(f.context, 1, positive, 16, &f.error), CYTO_OK);
  CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_BUFFER_TOO_SMALL);
  CHECK_STR_HAS(f.error.message, "output 'positive': has 160 bytes [20], but the bound buffer holds 16");
  CHECK_INT_EQ(cyto_bind_output(f.context, 1, NULL, 0, &f.error), CYTO_OK);
  CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_OK);
  check_results(&f, 0);
  CHECK_INT_EQ(cyto_bind_output(f.context, 0, (char *)sum + 1, 79, &f.error), CYTO_INVALID_ARGUMENT);
  CHECK_INT_EQ(cyto_bind_output(f.context, 3, sum, sizeof sum, &f.error), CYTO_INDEX_OUT_OF_RANGE);
  fixture_close(&f);
}

/* sum may be made where left is. */
static void test_shared_memory(void) {
  fixture f;
  cyto_port port;
  cyto_tensor out;
  float expected[24];
  CHECK_REQUIRE(fixture_open(&f, 5, NULL));
  cyto_model_output(f.model, 0, &port);
  CHECK_INT_EQ(port.shared_input, 0);
  cyto_model_output(f.model, 1, &port);
  CHECK_INT_EQ(port.shared_input, -1);
  cyto_model_input(f.model, 0, &port);
  CHECK_INT_EQ(port.shared_input, -1);
  CHECK_INT_EQ(cyto_bind_output(f.context, 0, f.left, 80, &f.error), CYTO_OK);
  for (int step = 1; step < 4; step++) {
    for (int i = 0; i < 20; i++)
      expected[i] = f.left[i] + f.right[i];
    CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_OK);
    CHECK_INT_EQ(cyto_output(f.context, 0, &out, &f.error), CYTO_OK);
    CHECK(out.data == f.left && !memcmp(f.left, expected, 80));
  }
  /* An input that is bound after it, of the same size, is looked at as well. */
  CHECK_INT_EQ(cyto_bind_input(f.context, 1, CYTO_F32, 2, f.dims, f.left, &f.error), CYTO_OK);
  CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_INVALID_ARGUMENT);
  CHECK_STR_EQ(f.error.message,
               "output 'sum' overlaps input 'right', but cannot be made in its memory: give it memory of its own");
  CHECK_INT_EQ(fixture_bind(&f), CYTO_OK);
  CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_OK);

  float *both = calloc(40, sizeof *both);
  CHECK_INT_EQ(cyto_bind_input(f.context, 0, CYTO_F32, 2, f.dims, both + 4, &f.error), CYTO_OK);
  CHECK_INT_EQ(cyto_bind_output(f.context, 0, both, 80, &f.error), CYTO_OK);
  CHECK_INT_EQ(cyto_context_prepare(f.context, &f.error), CYTO_INVALID_ARGUMENT);
  CHECK_STR_EQ(f.error.message,
               "output 'sum', 80 bytes, overlaps input 'left', 80 bytes: to share memory, they must begin at "
               "the same address and be of one size");
  CHECK_INT_EQ(cyto_bind_output(f.context, 0, both + 23, 68, &f.error), CYTO_OK);
  CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_BUFFER_TOO_SMALL);
  CHECK_INT_EQ(cyto_bind_input(f.context, 0, CYTO_F32, 2, f.dims, both + 20, &f.error), CYTO_OK);
  CHECK_INT_EQ(cyto_bind_output(f.context, 0, both, 160, &f.error), CYTO_OK); /* what is not used does not count */
  CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_OK);
  CHECK_INT_EQ(cyto_bind_output(f.context, 1, both + 10, 120, &f.error), CYTO_OK); /* found when its size is known */
  CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_INVALID_ARGUMENT);
  CHECK_STR_HAS(f.error.message, "output '");
  CHECK_INT_EQ(cyto_bind_output(f.context, 1, NULL, 0, &f.error), CYTO_OK);

  /* The context's own memory, read as the next input. */
  CHECK_INT_EQ(cyto_bind_output(f.context, 0, NULL, 0, &f.error), CYTO_OK);
  CHECK_INT_EQ(fixture_bind(&f), CYTO_OK);
  CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_OK);
  CHECK_INT_EQ(cyto_output(f.context, 0, &out, &f.error), CYTO_OK);
  memcpy(expected, out.data, 80);
  CHECK_INT_EQ(cyto_bind_input(f.context, 0, CYTO_F32, 2, f.dims, out.data, &f.error), CYTO_OK);
  CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_OK);
  for (int i = 0; i < 20; i++)
    CHECK(((float *)out.data)[i] == expected[i] + f.right[i]);
  CHECK_INT_EQ(cyto_bind_input(f.context, 1, CYTO_F32, 2, f.dims, out.data, &f.error), CYTO_OK);
  CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_INVALID_ARGUMENT);
  free(both);
  fixture_close(&f);
}

static void test_bad_inputs(void) {
  fixture f;
  int64_t three[] = {5, 4, 1}, wide[] = {5, 3}, other[] = {6, 4}, huge[] = {INT64_MAX, 4}, negative[] = {-5, 4};
  CHECK_REQUIRE(fixture_open(&f, 5, NULL));
  CHECK_INT_EQ(cyto_bind_input(f.context, 0, CYTO_F64, 2, f.dims, f.left, &f.error), CYTO_DTYPE_MISMATCH);
  CHECK_STR_EQ(f.error.message, "input 'left': expected float32, found float64");
  CHECK_INT_EQ(f.error.code, CYTO_DTYPE_MISMATCH);
  CHECK_INT_EQ(cyto_bind_input(f.context, 0, CYTO_F32, 3, three, f.left, &f.error), CYTO_SHAPE_MISMATCH);
  CHECK_STR_EQ(f.error.message, "input 'left': expected shape [batch,4], found [5,4,1]");
  CHECK_INT_EQ(cyto_bind_input(f.context, 0, CYTO_F32, 2, wide, f.left, &f.error), CYTO_SHAPE_MISMATCH);
  CHECK_STR_EQ(f.error.message, "input 'left': expected shape [batch,4], found [5,3]");
  CHECK_INT_EQ(cyto_bind_input(f.context, 0, CYTO_F32, 2, huge, f.left, &f.error), CYTO_SHAPE_MISMATCH);
  CHECK_STR_HAS(f.error.message, "overflows");
  CHECK_INT_EQ(cyto_bind_input(f.context, 0, CYTO_F32, 2, negative, f.left, &f.error), CYTO_SHAPE_MISMATCH);
  CHECK_INT_EQ(cyto_bind_input(f.context, 0, CYTO_F32, 2, NULL, f.left, &f.error), CYTO_SHAPE_MISMATCH);
  CHECK_INT_EQ(cyto_bind_input(f.context, 0, CYTO_F32, 99, f.dims, f.left, &f.error), CYTO_SHAPE_MISMATCH);
  CHECK_INT_EQ(cyto_bind_input(f.context, 0, CYTO_F32, 2, f.dims, NULL, &f.error), CYTO_INVALID_ARGUMENT);
  CHECK_INT_EQ(cyto_bind_input(f.context, 0, CYTO_F32, 2, f.dims, (char *)f.left + 2, &f.error), CYTO_INVALID_ARGUMENT);
  CHECK_STR_HAS(f.error.message, "input 'left'");
  CHECK_INT_EQ(cyto_bind_input(f.context, -1, CYTO_F32, 2, f.dims, f.left, &f.error), CYTO_INDEX_OUT_OF_RANGE);
  CHECK_INT_EQ(cyto_bind_input(f.context, 3, CYTO_F32, 2, f.dims, f.left, NULL), CYTO_INDEX_OUT_OF_RANGE);
  CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_OK); /* the good bindings still stand */
  check_results(&f, 0);
  CHECK_INT_EQ(cyto_bind_input(f.context, 1, CYTO_F32, 2, other, f.right, &f.error), CYTO_OK);
  CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_SHAPE_MISMATCH);
  CHECK_STR_EQ(f.error.message, "input 'right': expected 5 on axis 0 ('batch') as on axis 0 of input 'left', found 6; sizes may differ in a library compiled with --dim 'batch=?'");
  CHECK_INT_EQ(fixture_bind(&f), CYTO_OK);
  CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_OK);
  check_results(&f, 0);
  fixture_close(&f);
}

static void test_not_bound(void) {
  cyto_model *model;
  cyto_context *context;
  cyto_error error;
  CHECK_REQUIRE(!cyto_model_from_linked(&rt_model, &model, &error));
  CHECK_REQUIRE(!cyto_context_create(model, NULL, &context, &error));
  cyto_model_unload(model); /* the context keeps it */
  CHECK_INT_EQ(cyto_run(context, &error), CYTO_INVALID_ARGUMENT);
  CHECK_STR_EQ(error.message, "input 'left' is not bound: expected float32 [batch,4]");
  cyto_context_destroy(context);
  cyto_context_destroy(NULL);
  cyto_model_unload(NULL);
  CHECK_INT_EQ(cyto_context_create(NULL, NULL, &context, &error), CYTO_INVALID_ARGUMENT);
}

/* Failures of generated code and sizes beyond all memory, without touching the (small) data. */
static void test_failing_model(void) {
  fixture f;
  int64_t unlucky[] = {13, 4}, large[] = {(int64_t)1 << 45, 4}, larger[] = {(int64_t)1 << 43, 4};
  CHECK_REQUIRE(fixture_open(&f, 2, NULL));
  for (int i = 0; i < 3; i++) {
    int64_t *dims = i == 0 ? unlucky : i == 1 ? large : larger;
    CHECK_INT_EQ(cyto_bind_input(f.context, 0, CYTO_F32, 2, dims, f.left, &f.error), CYTO_OK);
    CHECK_INT_EQ(cyto_bind_input(f.context, 1, CYTO_F32, 2, dims, f.right, &f.error), CYTO_OK);
    CHECK_INT_EQ(cyto_context_prepare(f.context, &f.error), i == 0 ? CYTO_RUNTIME_FAILURE : CYTO_OUT_OF_MEMORY);
    CHECK_STR_HAS(f.error.message, i == 0 ? "planning the model" : i == 1 ? "is too large" : "intermediate tensors");
    CHECK_INT_EQ(cyto_run(f.context, NULL), i == 0 ? CYTO_RUNTIME_FAILURE : CYTO_OUT_OF_MEMORY);
  }
  CHECK_INT_EQ(fixture_bind(&f), CYTO_OK);
  CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_OK);
  check_results(&f, 0);
  fixture_close(&f);
}

/* An allocator that fails once, at the n-th request, and counts what is not given back. */
typedef struct failing {
  int until, live;
} failing;

static void *failing_alloc(void *user, size_t bytes, size_t alignment) {
  failing *f = user;
  void *ptr = NULL;
  if (f->until-- == 0 || posix_memalign(&ptr, alignment, bytes))
    return NULL;
  f->live++;
  return ptr;
}

static void failing_release(void *user, void *ptr, size_t bytes) {
  memset(ptr, 0x55, bytes); /* the size must be right */
  free(ptr);
  ((failing *)user)->live--;
}

static void no_parallel(void *user, int64_t n, cyto_task task, void *data) {
  (void)user;
  for (int64_t i = n - 1; i >= 0; i--)
    task(data, i);
}

static void test_failing_allocator(void) {
  int n = 0, failed = 1;
  for (; failed && n < 100; n++) {
    failing state = {n, 0};
    cyto_options options = {
        .threads = 3, .parallel = no_parallel, .allocator = {failing_alloc, failing_release, &state}};
    fixture f;
    failed = !fixture_open(&f, 6, &options);
    if (failed) {
      CHECK_INT_EQ(f.error.code, CYTO_OUT_OF_MEMORY);
    } else {
      cyto_status status = cyto_run(f.context, &f.error);
      failed = status != CYTO_OK;
      CHECK(status == CYTO_OK || status == CYTO_OUT_OF_MEMORY);
      CHECK(!failed || f.error.message[0]);
      CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_OK); /* it failed only once */
      check_results(&f, 0);
    }
    fixture_close(&f);
    CHECK_INT_EQ(state.live, 0);
  }
  CHECK(n > 6);
}

static void test_load(void) {
  cyto_model *model[3];
  cyto_error error;
  for (int i = 0; i < 3; i++) {
    CHECK_INT_EQ(cyto_model_load(beside(i % 2 ? "rt_model_b.so" : "rt_model_a.so"), &model[i], &error), CYTO_OK);
    CHECK_REQUIRE(error.code == CYTO_OK);
  }
  for (int i = 0; i < 3; i++) {
    cyto_context *context;
    cyto_tensor tag;
    float data[8] = {0};
    int64_t dims[] = {2, 4};
    CHECK_REQUIRE(!cyto_context_create(model[i], NULL, &context, &error));
    cyto_model_unload(model[i]);
    CHECK_INT_EQ(cyto_bind_input(context, 0, CYTO_F32, 2, dims, data, &error), CYTO_OK);
    CHECK_INT_EQ(cyto_bind_input(context, 1, CYTO_F32, 2, dims, data, &error), CYTO_OK);
    CHECK_INT_EQ(cyto_run(context, &error), CYTO_OK);
    CHECK_REQUIRE(!cyto_output(context, 2, &tag, &error));
    CHECK_INT_EQ(*(int32_t *)tag.data, 1 + i % 2);
    cyto_context_destroy(context);
  }
}

static void test_bad_libraries(void) {
  static const struct {
    const char *file;
    cyto_status status;
    const char *text;
  } rows[] = {
      {"rt_bad_abi.so", CYTO_BAD_LIBRARY, "rt_bad_abi.so': model has interface version 999, expected 11"},
      {"rt_bad_cpu.so", CYTO_UNSUPPORTED_CPU, "this CPU lacks 'avx9000'"},
      {"rt_bad_query.so", CYTO_BAD_LIBRARY, "not a compiled model"},
      {"rt_bad_weights.so", CYTO_NOT_FOUND, "rt_no_such.weights"},
      {"rt_missing.so", CYTO_NOT_FOUND, "cannot read"},
      {".", CYTO_BAD_LIBRARY, "cannot load"},
  };
  cyto_model *model;
  cyto_error error;
  for (int i = 0; i < CHECK_COUNT(rows); i++) {
    CHECK_INT_EQ(cyto_model_load(beside(rows[i].file), &model, &error), rows[i].status);
    CHECK_STR_HAS(error.message, rows[i].text);
  }
  CHECK_INT_EQ(cyto_model_load("", &model, NULL), CYTO_INVALID_ARGUMENT);
  CHECK_INT_EQ(cyto_model_load("rt_not_in_this_folder.so", &model, &error), CYTO_NOT_FOUND);
}

/* <name>_create() of generated code. */
static void test_create_simple(void) {
  const cyto_simple_options one = {.threads = 1}, three = {.threads = 3};
  cyto_context *cache = NULL;
  cyto_error error;
  char text[100];
  CHECK_INT_EQ(cyto_create_simple(NULL, &cache, NULL, &error), CYTO_INVALID_ARGUMENT);
  CHECK_INT_EQ(cyto_create_simple(&rt_model, NULL, &one, &error), CYTO_INVALID_ARGUMENT);
  CHECK_INT_EQ(cyto_create_simple(&rt_model, &cache, &one, &error), CYTO_OK);
  cyto_context_describe(cache, text, sizeof text);
  CHECK_STR_HAS(text, "1 thread");
  CHECK_INT_EQ(cyto_create_simple(&rt_model, &cache, &three, &error), CYTO_INVALID_ARGUMENT);
  CHECK_STR_HAS(error.message, "destroy it");
  cyto_context_destroy(cache);
  cache = NULL;
  CHECK_INT_EQ(cyto_create_simple(&rt_model, &cache, &three, &error), CYTO_OK);
  cyto_context_describe(cache, text, sizeof text);
  CHECK_STR_HAS(text, "3 threads");
  cyto_context_destroy(cache);
}

/* Sizes of outputs are described by symbols of the inputs. */
static void test_output_names(void) {
  cyto_model *model = NULL;
  cyto_port port;
  cyto_error error;
  CHECK_INT_EQ(cyto_model_from_linked(&rt_model, &model, &error), CYTO_OK);
  CHECK_INT_EQ(cyto_model_output(model, 0, &port), CYTO_OK);
  CHECK_STR_EQ(port.dim_names[0], "batch");
  CHECK_STR_EQ(port.dim_names[1], "");
  CHECK_INT_EQ(cyto_model_output(model, 1, &port), CYTO_OK);
  CHECK_STR_EQ(port.dim_names[0], "");
  cyto_model_unload(model);
}

static void test_run_simple(void) {
  float left[8] = {1, 2, 3, 4, 5, 6, 7, 8}, right[8] = {1, 1, 1, 1, -9, -9, -9, -9}, sum[8];
  int64_t symbols[] = {2}, positive[8];
  int32_t tag = 0;
  const void *inputs[] = {left, right, NULL};
  void *outputs[] = {sum, positive, &tag};
  cyto_context *cache = NULL;
  cyto_error error;
  CHECK_INT_EQ(cyto_run_simple(&rt_model, NULL, inputs, symbols, outputs, &error), CYTO_OK);
  CHECK_CLOSE(sum[0], 2, 0);
  for (int i = 0; i < 3; i++) {
    memset(sum, 0, sizeof sum);
    CHECK_INT_EQ(cyto_run_simple(&rt_model, &cache, inputs, symbols, outputs, &error), CYTO_OK);
    CHECK_CLOSE(sum[7], -1, 0);
    CHECK_INT_EQ(positive[3], 3);
    CHECK_INT_EQ(tag, 1);
  }
  CHECK_INT_EQ(cyto_run_simple(&rt_model, &cache, inputs, NULL, outputs, &error), CYTO_SHAPE_MISMATCH);
  CHECK_INT_EQ(cyto_run_simple(&rt_model, &cache, inputs, symbols, outputs, &error), CYTO_OK);
  cyto_context_destroy(cache);
}

static void *run_many(void *data) {
  fixture f;
  int64_t seed = *(int64_t *)data;
  cyto_options options = {.threads = (int32_t)(seed % 3)};
  CHECK(fixture_open(&f, 3 + seed, &options));
  for (int i = 0; i < 50; i++) {
    fixture_shape(&f, 1 + (seed * 7 + i * 5) % 40);
    CHECK_INT_EQ(f.dims[0] == 13 ? CYTO_OK : fixture_bind(&f), CYTO_OK);
    if (f.dims[0] == 13)
      continue;
    CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_OK);
    check_results(&f, 0);
  }
  fixture_close(&f);
  return NULL;
}

static void test_many_threads(void) {
  pthread_t threads[6];
  int64_t seeds[6];
  for (int i = 0; i < 6; i++) {
    seeds[i] = i;
    CHECK_REQUIRE(!pthread_create(&threads[i], NULL, run_many, &seeds[i]));
  }
  for (int i = 0; i < 6; i++)
    pthread_join(threads[i], NULL);
}

static void test_tensor_facts(void) {
  int64_t dims[] = {3, 5}, empty[] = {0, INT64_MAX, INT64_MAX}, overflow[] = {(int64_t)1 << 32, (int64_t)1 << 31};
  CHECK_STR_EQ(cyto_dtype_name(CYTO_BF16), "bfloat16");
  CHECK_STR_EQ(cyto_dtype_name(0), "unknown");
  CHECK_STR_EQ(cyto_dtype_name(-1), "unknown");
  CHECK_INT_EQ(cyto_dtype_bits(CYTO_C128), 128);
  CHECK_INT_EQ(cyto_dtype_bits(999), 0);
  CHECK_INT_EQ(cyto_tensor_bytes(CYTO_I4, 2, dims), 8);
  CHECK_INT_EQ(cyto_tensor_bytes(CYTO_F64, 0, NULL), 8);
  CHECK_INT_EQ(cyto_tensor_bytes(CYTO_F64, 3, empty), 0);
  CHECK_INT_EQ(cyto_tensor_bytes(CYTO_U8, 2, overflow), -1);
  CHECK_STR_EQ(cyto_status_name(CYTO_NOT_FOUND), "not found");
  CHECK_STR_EQ(cyto_status_name(12345), "unknown status");
}

int main(int argc, char **argv) {
  static const check_test tests[] = {
      {"inspect", test_inspect},
      {"run", test_run},
      {"bound_outputs", test_bound_outputs},
      {"shared_memory", test_shared_memory},
      {"bad_inputs", test_bad_inputs},
      {"not_bound", test_not_bound},
      {"failing_model", test_failing_model},
      {"failing_allocator", test_failing_allocator},
      {"load", test_load},
      {"bad_libraries", test_bad_libraries},
      {"run_simple", test_run_simple},
      {"create_simple", test_create_simple},
      {"output_names", test_output_names},
      {"many_threads", test_many_threads},
      {"tensor_facts", test_tensor_facts},
  };
  return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
