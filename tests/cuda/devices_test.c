/* SPDX-License-Identifier: Apache-2.0 */
/* devices_test.c - one context over several devices: shares, order, speeds, devices that fail, what is refused; without a
 * GPU, by the mock driver with four of them.
 */
#define _GNU_SOURCE
#include "tests/cuda/models.h"

enum { DEVICES = 4, MAX_ROWS = 32, PIXELS = 8 * 8, CLASSES = 10 };
static float images[MAX_ROWS * PIXELS], expected[MAX_ROWS * CLASSES];
static const int32_t all[] = {0, 1, 2, 3};

static cyto_status run(cyto_context *context, int64_t rows, float *out, cyto_error *error) {
  const int64_t dims[] = {rows, 1, 8, 8};
  cyto_tensor result;
  cyto_status status = cyto_bind_input(context, 0, CYTO_F32, 4, dims, images, error);
  if (!status)
    status = cyto_run(context, error);
  if (!status)
    status = cyto_output(context, 0, &result, error);
  if (!status) {
    CHECK_INT_EQ(result.bytes, (uint64_t)rows * CLASSES * sizeof *out);
    memcpy(out, result.data, result.bytes);
  }
  return status;
}

static void check_run(cyto_context *context, int64_t rows) {
  static float found[MAX_ROWS * CLASSES];
  cyto_error error;
  memset(found, 0x55, sizeof found);
  if (run(context, rows, found, &error)) {
    CHECK_FAIL("%s", error.message);
    return;
  }
  for (int64_t k = 0; k < rows * CLASSES; k++)
    if (!(fabsf(found[k] - expected[k]) < 1e-4f)) {
      CHECK_FAIL("%lld rows, element %lld: %g, not %g", (long long)rows, (long long)k, (double)found[k],
                 (double)expected[k]);
      return;
    }
}

static cyto_context *open_all(cyto_model *model, int32_t errors) {
  cyto_context *context = NULL;
  cyto_error error;
  if (cyto_context_create(model, &(cyto_options){.devices = all, .device_count = DEVICES, .device_errors = errors},
                          &context, &error))
    CHECK_FAIL("%s", error.message);
  return context;
}

static void mock_reset(void) {
  mock->devices = DEVICES;
  mock->fail_device = -1;
  memset(mock->wait_us, 0, sizeof mock->wait_us);
  memset(mock->device_waits, 0, sizeof mock->device_waits);
}

/* ---- tests ---- */

static void expect_rows(void) {
  cyto_model *cpu = load("cpu.so");
  cyto_context *context = NULL;
  for (int k = 0; k < MAX_ROWS * PIXELS; k++)
    images[k] = (float)((k * 7919 + k / PIXELS * 31) % 256) / 255;
  CHECK_REQUIRE(cpu && !cyto_context_create(cpu, NULL, &context, NULL));
  CHECK(!run(context, MAX_ROWS, expected, NULL));
  cyto_context_destroy(context);
  cyto_model_unload(cpu);
}

static void test_shares(void) {
  mock_reset();
  cyto_model *model = load("cuda.so");
  CHECK_REQUIRE(model);
  cyto_context *context = open_all(model, 0);
  CHECK_REQUIRE(context);
  for (int64_t rows = 1; rows <= MAX_ROWS; rows = rows * 2 + 1)
    for (int turn = 0; turn < 3; turn++)
      check_run(context, rows);
  check_run(context, 0);
  check_run(context, MAX_ROWS);
  for (int k = 0; k < DEVICES; k++)
    CHECK(mock->device_waits[k] > 0);
  char said[2000];
  cyto_context_describe(context, said, sizeof said);
  CHECK_STR_HAS(said, "; device 3 'Mock GPU'");
  cyto_context_describe(context, said, 12);
  CHECK_INT_EQ(strlen(said), 11);
  CHECK_INT_EQ(cyto_context_keep(context, 4, NULL), CYTO_INVALID_ARGUMENT);
  cyto_context_destroy(context);
  cyto_model_unload(model);
  CHECK_INT_EQ(mock->blocks + mock->pinned + mock->streams + mock->modules + mock->retained + mock->graphs, 0);
}

/* Outputs of the caller's: rows of all devices lie in them as one. */
static void test_bound_output(void) {
  mock_reset();
  cyto_model *model = load("cuda.so");
  cyto_context *context = model ? open_all(model, 0) : NULL;
  CHECK_REQUIRE(context);
  const int64_t dims[] = {10, 1, 8, 8};
  float out[11 * CLASSES];
  for (int k = 0; k < 11 * CLASSES; k++)
    out[k] = 77;
  CHECK(!cyto_bind_input(context, 0, CYTO_F32, 4, dims, images, NULL));
  CHECK(!cyto_bind_output(context, 0, out, 10 * CLASSES * sizeof *out, NULL));
  CHECK(!cyto_run(context, NULL));
  for (int k = 0; k < 11 * CLASSES; k++)
    CHECK_CLOSE(out[k], k < 10 * CLASSES ? expected[k] : 77, 1e-4);
  cyto_context_destroy(context);
  cyto_model_unload(model);
}

/* A device that takes longer gets less: the time of a run comes near to that of the best division. */
static void test_speeds(void) {
  mock_reset();
  cyto_model *model = load("cuda.so");
  const int32_t two[] = {0, 1};
  cyto_context *context = NULL;
  CHECK_REQUIRE(model &&
                !cyto_context_create(model, &(cyto_options){.devices = two, .device_count = 2}, &context, NULL));
  check_run(context, MAX_ROWS);
  mock->wait_us[1] = 300000; /* far more than its rows take */
  for (int turn = 0; turn < 6; turn++)
    check_run(context, MAX_ROWS);
  int slow = mock->device_waits[1], fast = mock->device_waits[0];
  mock->wait_us[1] = 0;
  check_run(context, 2); /* the share of a few rows is the fast one's alone */
  CHECK_INT_EQ(mock->device_waits[1], slow);
  CHECK(mock->device_waits[0] > fast);
  cyto_context_destroy(context);
  cyto_model_unload(model);
}

static void test_one_fails(void) {
  mock_reset();
  cyto_model *model = load("cuda.so");
  cyto_context *context = model ? open_all(model, CYTO_DEVICE_ERRORS_AGAIN) : NULL;
  CHECK_REQUIRE(context);
  check_run(context, MAX_ROWS);
  mock->fail_device = 2;
  mock->fail_after = 1; /* in the middle */
  mock->fail_code = 719;
  for (int turn = 0; turn < 5; turn++)
    check_run(context, MAX_ROWS);
  int waits = mock->device_waits[2];
  check_run(context, MAX_ROWS);
  CHECK_INT_EQ(mock->device_waits[2], waits); /* it gets nothing more */
  char said[2000];
  cyto_context_describe(context, said, sizeof said);
  CHECK_STR_HAS(said, "device 2 has failed: ");
  for (int other = 0; other < DEVICES; other++) { /* one after the other, until none is left */
    mock->fail_device = other;
    mock->fail_after = 0;
    static float out[MAX_ROWS * CLASSES];
    cyto_error error = {0};
    cyto_status status = run(context, MAX_ROWS, out, &error);
    CHECK_INT_EQ(status, other == 3 ? CYTO_RUNTIME_FAILURE : CYTO_OK);
    if (other == 3)
      CHECK_STR_HAS(error.message, "device 3: ");
  }
  mock_reset(); /* the last one is not out: its rows may have been at fault */
  check_run(context, MAX_ROWS);
  cyto_context_destroy(context);
  cyto_model_unload(model);
}

static void test_stop(void) {
  mock_reset();
  cyto_model *model = load("cuda.so");
  cyto_context *context = model ? open_all(model, CYTO_DEVICE_ERRORS_STOP) : NULL;
  CHECK_REQUIRE(context);
  check_run(context, MAX_ROWS);
  mock->fail_device = 1;
  mock->fail_after = 0;
  mock->fail_code = 719;
  static float out[MAX_ROWS * CLASSES];
  cyto_error error = {0};
  CHECK_INT_EQ(run(context, MAX_ROWS, out, &error), CYTO_RUNTIME_FAILURE);
  CHECK_STR_HAS(error.message, "device 1: ");
  mock_reset();
  check_run(context, MAX_ROWS);
  cyto_context_destroy(context);
  cyto_model_unload(model);
}

/* A device that is short of memory is not out: its part is the others' this time. */
static void test_short_memory(void) {
  mock_reset();
  cyto_model *model = load("cuda.so");
  cyto_context *context = model ? open_all(model, CYTO_DEVICE_ERRORS_AGAIN) : NULL;
  CHECK_REQUIRE(context);
  mock->fail_device = 3;
  mock->fail_after = 0;
  mock->fail_code = 2;
  check_run(context, MAX_ROWS);
  mock_reset();
  int waits = mock->device_waits[3];
  for (int turn = 0; turn < 3; turn++)
    check_run(context, MAX_ROWS);
  CHECK(mock->device_waits[3] > waits);
  cyto_context_destroy(context);
  cyto_model_unload(model);
}

static void *no_alloc(void *user, size_t bytes, void *stream) {
  (void)user, (void)bytes, (void)stream;
  CHECK_FAIL("the allocator is called");
  return NULL;
}

static void no_release(void *user, void *ptr, size_t bytes, void *stream) {
  (void)ptr;
  no_alloc(user, bytes, stream);
}

static void test_bad(void) {
  mock_reset();
  cyto_model *model = load("cuda.so"), *fixed = load("fixed.so"), *cpu = load("cpu.so");
  CHECK_REQUIRE(model && fixed && cpu);
  const int32_t missing[] = {0, 9};
  const struct {
    cyto_model *model;
    cyto_options options;
    const char *text;
  } cases[] = {{cpu, {.devices = all, .device_count = 2}, "the model is for the CPU"},
               {model, {.devices = all}, "there must be 1 to 64"},
               {model, {.device_count = 2}, "there must be 1 to 64"},
               {model, {.devices = all, .device_count = 65}, "there must be 1 to 64"},
               {model, {.devices = all, .device_count = 2, .device_memory = 1}, "tensors lie in the host's memory"},
               {model,
                {.devices = all, .device_count = 2, .device_allocator = {no_alloc, no_release, NULL}},
                "device_allocator serves one device and one thread: leave it out, or set device_pool"},
               {model, {.devices = missing, .device_count = 2}, "device 9 does not exist: this process sees 4"},
               {fixed, {.devices = all, .device_count = 2}, "the first size of its first input must be open"}};
  for (int k = 0; k < CHECK_COUNT(cases); k++) {
    cyto_context *context = NULL;
    cyto_error error = {0};
    CHECK_INT_EQ(cyto_context_create(cases[k].model, &cases[k].options, &context, &error), CYTO_INVALID_ARGUMENT);
    CHECK_STR_HAS(error.message, cases[k].text);
    CHECK(!context);
  }
  cyto_model_unload(model);
  cyto_model_unload(fixed);
  cyto_model_unload(cpu);
  CHECK_INT_EQ(mock->blocks + mock->pinned + mock->streams + mock->modules + mock->retained, 0);
}

static const check_test tests[] = {{"*open mock", open_mock}, {"*expected", expect_rows},
                                   {"shares", test_shares},   {"bound output", test_bound_output},
                                   {"speeds", test_speeds},   {"one fails", test_one_fails},
                                   {"stop", test_stop},       {"short memory", test_short_memory},
                                   {"bad", test_bad}};

static int prepare(void) {
  static const char *const libraries[][2] = {
      {"cuda.so", "sm_80 --cudnn=off"}, {"fixed.so", "sm_80 --cudnn=off --dim batch=2"}, {"cpu.so", "native"}};
  int rc = 0;
  for (int k = 0; k < CHECK_COUNT(libraries) && !rc; k++)
    rc = run_command("%s/cytoc examples/digits/digits.onnx -o %s --target=%s", build, path_of(libraries[k][0]),
                     libraries[k][1]);
  return rc;
}

int main(int argc, char **argv) { return models_main(argc, argv, tests, CHECK_COUNT(tests), prepare); }
