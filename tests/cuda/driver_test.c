/* SPDX-License-Identifier: Apache-2.0 */
/* driver_test.c - drivers that refuse what they may refuse, and other threads' captures, without a GPU.
 *
 * Recordings that fail, at each of their steps; contexts opened and run while another thread captures a stream in global
 * mode, as PyTorch does; images that the driver does not load; shared memory of exactly 48 KB; and that the mock driver
 * itself does late what it may do late.
 */
#define _GNU_SOURCE
#include "tests/cuda/models.h"

#include <math.h>
#include <pthread.h>

enum { ROWS = 5, DEEP = 64, WIDE = 40, GLOBAL = 0 };
static float rows[ROWS * DEEP];

static struct {
  int (*alloc)(uint64_t *, size_t), (*release)(uint64_t), (*push)(void *), (*pop)(void **);
  int (*stream_create)(void **, unsigned), (*stream_destroy)(void *), (*wait)(void *);
  int (*begin)(void *, int), (*end)(void *, void **), (*graph_destroy)(void *);
  int (*in)(uint64_t, const void *, size_t, void *), (*out)(void *, uint64_t, size_t, void *);
} cu;

static void open_driver(void) {
  static const char *const names[] = {
      "cuMemAlloc_v2",      "cuMemFree_v2",       "cuCtxPushCurrent_v2",  "cuCtxPopCurrent_v2",
      "cuStreamCreate",     "cuStreamDestroy_v2", "cuStreamSynchronize",  "cuStreamBeginCapture_v2",
      "cuStreamEndCapture", "cuGraphDestroy",     "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2"};
  for (int i = 0; i < CHECK_COUNT(names); i++) {
    void *symbol = dlsym(driver, names[i]);
    memcpy((void **)&cu + i, &symbol, sizeof symbol);
  }
  for (int i = 0; i < ROWS * DEEP; i++)
    rows[i] = (float)(i * 37 % 101) / 101 - .5f;
}

static cyto_context *context_of(cyto_model *model) {
  cyto_context *context = NULL;
  cyto_error error;
  if (model && cyto_context_create(model, NULL, &context, &error))
    CHECK_FAIL("%s", error.message);
  return context;
}

static void expect_same(cyto_context *a, cyto_context *b, int64_t n) {
  cyto_tensor got, want;
  cyto_error error;
  cyto_context *const both[2] = {a, b};
  cyto_tensor *const to[2] = {&got, &want};
  for (int i = 0; i < 2; i++)
    if (cyto_bind_input(both[i], 0, CYTO_F32, 2, (int64_t[]){n, DEEP}, rows, &error) || cyto_run(both[i], &error) ||
        cyto_output(both[i], 0, to[i], &error)) {
      CHECK_FAIL("%s", error.message);
      return;
    }
  for (int64_t i = 0; i < n * WIDE; i++)
    if (!(fabsf(((float *)got.data)[i] - ((float *)want.data)[i]) < 2e-2f)) {
      CHECK_FAIL("element %d is %g, not %g", (int)i, (double)((float *)got.data)[i], (double)((float *)want.data)[i]);
      return;
    }
}

/* ---- tests ---- */

/* A driver that cannot record: every run is right all the same, recording is given up, and --about says why. */
static void test_recordings_fail(void) {
  static const struct {
    int step, code;
    const char *says;
  } faults[] = {{0, 900, "cuStreamBeginCapture"}, {1, 901, "cuStreamEndCapture"}, {2, 2, "cuGraphInstantiate"}};
  cyto_model *on_cpu = load("cpu.so");
  cyto_context *cpu = context_of(on_cpu);
  for (int f = 0; f < CHECK_COUNT(faults); f++) {
    char text[1000];
    cyto_model *model = load("cuda.so");
    cyto_context *context = context_of(model);
    CHECK_REQUIRE(cpu && context);
    mock->capture_code[faults[f].step] = faults[f].code;
    for (int i = 0; i < 5; i++)
      expect_same(context, cpu, 2);
    cyto_context_describe(context, text, sizeof text);
    CHECK_STR_HAS(text, "launched kernel by kernel, since recording a run as a graph failed: ");
    CHECK_STR_HAS(text, faults[f].says);
    for (int n = 1; n <= ROWS; n++) /* other sizes are tried, but not for ever */
      for (int i = 0; i < 3; i++)
        expect_same(context, cpu, n);
    mock->capture_code[faults[f].step] = 0;
    int recordings = mock->recordings;
    for (int i = 0; i < 3; i++)
      expect_same(context, cpu, ROWS);
    CHECK_INT_EQ(mock->recordings, recordings);
    cyto_context_destroy(context);
    cyto_model_unload(model);
  }
  cyto_context_destroy(cpu);
  cyto_model_unload(on_cpu);
  CHECK_INT_EQ(mock->blocks + mock->pinned + mock->streams + mock->modules + mock->graphs, 0);
}

static void *open_and_run(void *data) {
  cyto_context *cpu = data;
  cyto_model *model = load("cuda.so");
  cyto_context *context = context_of(model);
  for (int i = 0; i < 4 && context; i++)
    expect_same(context, cpu, 3);
  cyto_context_destroy(context);
  cyto_model_unload(model);
  return NULL;
}

/* One thread captures; another one loads the model, allocates, records, replays and ends. Neither notices the other; what
 * calls the driver as it likes would spoil the capture. */
static void test_captures_of_others(void) {
  void *stream, *graph = NULL, *popped;
  uint64_t block;
  pthread_t other;
  cyto_model *on_cpu = load("cpu.so");
  cyto_context *cpu = context_of(on_cpu);
  open_driver();
  cu.push((void *)40);
  cu.stream_create(&stream, 1);
  mock->any_capture = 1;
  CHECK_INT_EQ(cu.begin(stream, GLOBAL), 0);
  CHECK_REQUIRE(!pthread_create(&other, NULL, open_and_run, cpu));
  pthread_join(other, NULL);
  CHECK_INT_EQ(cu.end(stream, &graph), 0);
  CHECK(graph != NULL);
  cu.graph_destroy(graph);
  CHECK_INT_EQ(cu.begin(stream, GLOBAL), 0);
  CHECK_INT_EQ(cu.alloc(&block, 1), 900); /* the thread's mode is as before */
  CHECK_INT_EQ(cu.end(stream, &graph), 901);
  mock->any_capture = 0;
  cu.stream_destroy(stream);
  cu.pop(&popped);
  cyto_context_destroy(cpu);
  cyto_model_unload(on_cpu);
}

/* A device of sm_87: the driver refuses the cubin of sm_80, and takes the PTX; if it refuses all, each is said. */
static void test_images(void) {
  char text[1000];
  cyto_error error = {0};
  cyto_model *model = load("cuda.so"), *on_cpu = load("cpu.so");
  cyto_context *context = NULL, *cpu = context_of(on_cpu);
  open_driver();
  mock->capability = 87;
  mock->load_code = 209;
  mock->load_refused = 1;
  context = context_of(model);
  CHECK_REQUIRE(context);
  expect_same(context, cpu, 4);
  cyto_context_describe(context, text, sizeof text);
  CHECK_STR_HAS(text, "kernels: PTX of compute_80");
  cyto_context_destroy(context);
  cyto_model_unload(model);
  model = load("cuda.so");
  mock->load_code = 209;
  mock->load_log = "no such luck";
  int loads = mock->loads;
  CHECK_INT_EQ(cyto_context_create(model, NULL, &context, &error), CYTO_BAD_LIBRARY);
  CHECK_INT_EQ(mock->loads - loads, 2);
  CHECK_STR_HAS(error.message, "loading code for sm_80 by a driver");
  CHECK_STR_HAS(error.message, ": no such luck; loading code for PTX of compute_80 by a driver");
  mock->load_code = 2; /* memory: no other image needs less */
  mock->load_log = NULL;
  loads = mock->loads;
  CHECK_INT_EQ(cyto_context_create(model, NULL, &context, &error), CYTO_OUT_OF_MEMORY);
  CHECK_INT_EQ(mock->loads - loads, 1);
  mock->load_code = 0;
  mock->capability = 89;
  cyto_context_destroy(cpu);
  cyto_model_unload(model);
  cyto_model_unload(on_cpu);
}

/* Tiles of 48 KB, which a driver gives to no kernel that did not ask. */
static void test_shared_memory(void) {
  cyto_error error;
  cyto_tensor y;
  static float x[256 * 256];
  cyto_model *model = load("halves.so");
  cyto_context *context = context_of(model);
  CHECK_REQUIRE(context);
  int largest = mock->max_shared;
  if (cyto_bind_input(context, 0, CYTO_F32, 2, (int64_t[]){256, 256}, x, &error) || cyto_run(context, &error) ||
      cyto_output(context, 0, &y, &error))
    CHECK_FAIL("%s", error.message);
  CHECK(largest <= 48 << 10);
  CHECK_INT_EQ(mock->max_shared, 48 << 10);
  cyto_context_destroy(context);
  cyto_model_unload(model);
}

/* The mock's own streams: what was not waited for was not done, and what it will be written to is poisoned. */
static void test_late(void) {
  uint64_t block;
  void *stream[2], *popped;
  int number = 7, found = 7, other = 9, late = 9, *pinned = NULL;
  int (*pin)(void **, size_t, unsigned), (*unpin)(void *);
  void *symbols[2] = {dlsym(driver, "cuMemHostAlloc"), dlsym(driver, "cuMemFreeHost")};
  memcpy(&pin, &symbols[0], sizeof pin);
  memcpy(&unpin, &symbols[1], sizeof unpin);
  open_driver();
  cu.push((void *)40);
  CHECK_REQUIRE(!cu.alloc(&block, 4) && !cu.stream_create(&stream[0], 1) && !cu.stream_create(&stream[1], 1));
  CHECK_INT_EQ(cu.in(block, &number, 4, stream[0]), 0);
  CHECK_INT_EQ(cu.out(&found, block, 4, stream[0]), 0);
  CHECK(found != 7);
  CHECK_INT_EQ(cu.out(&other, block, 4, stream[1]), 0);
  CHECK_INT_EQ(cu.wait(stream[1]), 0);
  CHECK(other != 7 && other != 9); /* before the copy that nobody ordered in front of it */
  CHECK_REQUIRE(!pin((void **)&pinned, sizeof *pinned, 0));
  *pinned = 7;
  CHECK_INT_EQ(cu.in(block, pinned, 4, stream[0]), 0);
  CHECK_INT_EQ(cu.out(&late, block, 4, stream[0]), 0);
  number = *pinned = 8; /* pageable memory was read when the copy was asked for, pinned is read late */
  CHECK_INT_EQ(cu.wait(stream[0]), 0);
  CHECK_INT_EQ(found, 7);
  CHECK_INT_EQ(late, 8);
  unpin(pinned);
  cu.release(block);
  cu.stream_destroy(stream[0]);
  cu.stream_destroy(stream[1]);
  cu.pop(&popped);
}

static const check_test tests[] = {
    {"*open mock", open_mock},
    {"recordings fail", test_recordings_fail},
    {"captures of others", test_captures_of_others},
    {"images", test_images},
    {"shared memory", test_shared_memory},
    {"late", test_late},
};

static int prepare(void) {
  static const char net[] =
      "graph @g(%x: f32[rows,64]) {\n  @w = const f32[64,96] data(7)\n  @v = const f32[96,40] data(8)\n"
      "  %p = matmul %x, @w : f32[rows,96]\n  %t = tanh %p\n"
      "  %y = matmul %t, @v : f32[rows,40]\n  return %y\n}\n",
                    halves[] = "graph @g(%x: f32[256,256]) {\n  @w = const f32[256,8192] data(7)\n"
                               "  %y = matmul %x, @w : f32[256,8192]\n  return %y\n}\n";
  write_file("net.txt", net, sizeof net - 1);
  write_file("halves.txt", halves, sizeof halves - 1);
  return run_command("%s/cytoc %s -o %s --target=sm_80", build, path_of("net.txt"), path_of("cuda.so")) ||
         run_command("%s/cytoc %s -o %s --target=native", build, path_of("net.txt"), path_of("cpu.so")) ||
         run_command("%s/cytoc %s -o %s --target=sm_80 --fp16", build, path_of("halves.txt"), path_of("halves.so"));
}

int main(int argc, char **argv) { return models_main(argc, argv, tests, CHECK_COUNT(tests), prepare); }
