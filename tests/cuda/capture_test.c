/* SPDX-License-Identifier: Apache-2.0 */
/* capture_test.c - runs that become part of a CUDA graph which the application captures, without a GPU.
 *
 * The mock driver keeps what a captured stream is given, spoils a capture by whatever a driver would not have in one, and
 * does the operations when the graph is launched. Results are compared with the CPU target.
 */
#define _GNU_SOURCE
#include "tests/cuda/models.h"

#include <math.h>

enum { MAX_ROWS = 9, DEEP = 64, WIDE = 40, GLOBAL = 0 };

/* What an application does with the driver itself. */
static struct {
  int (*alloc)(uint64_t *, size_t), (*release)(uint64_t), (*push)(void *), (*pop)(void **);
  int (*stream_create)(void **, unsigned), (*stream_destroy)(void *);
  int (*begin)(void *, int), (*end)(void *, void **), (*instantiate)(void **, void *, unsigned long long);
  int (*launch)(void *, void *), (*graph_destroy)(void *), (*exec_destroy)(void *), (*wait)(void *);
} cu;
static uint64_t in, out[2]; /* a model's rows, and places for its results */
static void *stream;        /* which is captured */

/* ---- helpers ---- */

static void open_device(void) {
  static const char *const names[] = {"cuMemAlloc_v2",           "cuMemFree_v2",       "cuCtxPushCurrent_v2",
                                      "cuCtxPopCurrent_v2",      "cuStreamCreate",     "cuStreamDestroy_v2",
                                      "cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags",
                                      "cuGraphLaunch",           "cuGraphDestroy",     "cuGraphExecDestroy",
                                      "cuStreamSynchronize"};
  for (int i = 0; i < CHECK_COUNT(names); i++) {
    void *symbol = dlsym(driver, names[i]);
    memcpy((void **)&cu + i, &symbol, sizeof symbol);
  }
  cu.push((void *)40);
  cu.alloc(&in, MAX_ROWS * DEEP * 4);
  for (int i = 0; i < 2; i++)
    cu.alloc(&out[i], MAX_ROWS * WIDE * 4);
  cu.stream_create(&stream, 1);
  mock->any_capture = 1;
}

static void close_device(void) {
  void *popped;
  mock->any_capture = 0;
  cu.stream_destroy(stream);
  cu.release(in);
  for (int i = 0; i < 2; i++)
    cu.release(out[i]);
  cu.pop(&popped);
  CHECK_INT_EQ(mock->blocks + mock->pinned + mock->streams + mock->modules + mock->retained + mock->graphs, 0);
}

static void new_rows(unsigned seed) {
  for (int i = 0; i < MAX_ROWS * DEEP; i++) {
    seed = seed * 1664525u + 1013904223u;
    ((float *)(uintptr_t)in)[i] = (float)(seed >> 8) / 16777216.f - .5f;
  }
}

static cyto_context *context_of(cyto_model *model, const cyto_options *options) {
  cyto_context *context = NULL;
  cyto_error error;
  if (model && cyto_context_create(model, options, &context, &error))
    CHECK_FAIL("%s", error.message);
  return context;
}

/* .. on the captured stream. */
static cyto_context *on_stream(cyto_model *model) {
  return context_of(model, &(cyto_options){.device_memory = 1, .stream = stream});
}

static void bind(cyto_context *context, int64_t rows, uint64_t to) {
  cyto_error error;
  if (cyto_bind_input(context, 0, CYTO_F32, 2, (int64_t[]){rows, DEEP}, (void *)(uintptr_t)in, &error) ||
      cyto_bind_output(context, 0, (void *)(uintptr_t)to, to ? MAX_ROWS * WIDE * 4 : 0, &error))
    CHECK_FAIL("%s", error.message);
}

static void expect_run(cyto_context *context) {
  cyto_error error;
  if (cyto_run(context, &error))
    CHECK_FAIL("%s", error.message);
}

/* The run is refused, and neither asks the driver for anything that would spoil the capture nor leaves part of itself. */
static void expect_refused(cyto_context *context, const char *why) {
  void *graph = NULL, *exec = NULL;
  cyto_error error = {0};
  int launches = mock->launches;
  CHECK_INT_EQ(cu.begin(stream, GLOBAL), 0);
  CHECK_INT_EQ(cyto_run(context, &error), CYTO_RUNTIME_FAILURE);
  CHECK_STR_HAS(error.message, why);
  CHECK_STR_HAS(error.message, "(900): the application captures a stream meanwhile");
  CHECK_INT_EQ(cu.end(stream, &graph), 0);
  CHECK_REQUIRE(graph && !cu.instantiate(&exec, graph, 0) && !cu.launch(exec, stream));
  CHECK_INT_EQ(mock->launches, launches);
  cu.graph_destroy(graph);
  cu.exec_destroy(exec);
}

/* What the CPU makes of the rows. */
static void expect_results(cyto_context *cpu, int64_t rows, uint64_t at) {
  cyto_error error;
  cyto_tensor want;
  CHECK_INT_EQ(cu.wait(stream), 0);
  CHECK_REQUIRE(!cyto_bind_input(cpu, 0, CYTO_F32, 2, (int64_t[]){rows, DEEP}, (void *)(uintptr_t)in, &error) &&
                !cyto_run(cpu, &error) && !cyto_output(cpu, 0, &want, &error));
  for (int64_t i = 0; i < rows * WIDE; i++) {
    float got = ((float *)(uintptr_t)at)[i], expected = ((float *)want.data)[i];
    if (!(fabsf(got - expected) < 1e-4f)) {
      CHECK_FAIL("element %d is %g, not %g", (int)i, (double)got, (double)expected);
      return;
    }
  }
}

/* ---- tests ---- */

/* Two runs in one graph, of different sizes: nothing is done before it is launched, and then as often as it is. */
static void test_captured(void) {
  open_device();
  cyto_model *model = load("cuda.so"), *on_cpu = load("cpu.so");
  cyto_context *context = on_stream(model), *cpu = context_of(on_cpu, NULL);
  void *graph = NULL, *exec = NULL;
  cyto_error error;
  CHECK_REQUIRE(context && cpu);
  bind(context, MAX_ROWS, out[0]);
  CHECK_INT_EQ(cyto_context_prepare(context, &error), 0);
  new_rows(1);
  memset((void *)(uintptr_t)out[0], 0, MAX_ROWS * WIDE * 4);
  int waits = mock->waits, blocks = mock->blocks, launches = mock->launches;
  CHECK_INT_EQ(cu.begin(stream, GLOBAL), 0);
  expect_run(context);
  bind(context, 3, out[1]);
  expect_run(context);
  CHECK_INT_EQ(cu.end(stream, &graph), 0);
  CHECK_INT_EQ(mock->waits - waits, 0);
  CHECK_INT_EQ(mock->blocks - blocks, 0);
  CHECK_INT_EQ(mock->launches - launches, 0);
  CHECK(*(float *)(uintptr_t)out[0] == 0);
  CHECK_REQUIRE(graph && !cu.instantiate(&exec, graph, 0));
  for (unsigned i = 0; i < 3; i++) {
    new_rows(i);
    CHECK_INT_EQ(cu.launch(exec, stream), 0);
    expect_results(cpu, MAX_ROWS, out[0]);
    expect_results(cpu, 3, out[1]);
  }
  cu.graph_destroy(graph);
  cu.exec_destroy(exec);
  cyto_context_destroy(context);
  cyto_context_destroy(cpu);
  cyto_model_unload(model);
  cyto_model_unload(on_cpu);
  close_device();
}

/* Around a capture a context runs as ever, on larger sizes, too: the graph keeps the memory that it uses. */
static void test_between_runs(void) {
  open_device();
  cyto_model *model = load("cuda.so"), *on_cpu = load("cpu.so");
  cyto_context *context = on_stream(model), *cpu = context_of(on_cpu, NULL);
  void *graph = NULL, *exec = NULL;
  CHECK_REQUIRE(context && cpu);
  new_rows(5);
  bind(context, 2, out[0]);
  for (int i = 0; i < 3; i++) /* launched, recorded, replayed */
    expect_run(context);
  expect_results(cpu, 2, out[0]);
  int recordings = mock->recordings;
  CHECK_INT_EQ(cu.begin(stream, GLOBAL), 0);
  expect_run(context);
  CHECK_INT_EQ(cu.end(stream, &graph), 0);
  CHECK_INT_EQ(mock->recordings, recordings);
  CHECK_REQUIRE(graph && !cu.instantiate(&exec, graph, 0));
  int blocks = mock->blocks;
  bind(context, MAX_ROWS, out[1]);
  for (int i = 0; i < 3; i++)
    expect_run(context);
  CHECK_INT_EQ(mock->blocks - blocks, 1);
  expect_results(cpu, MAX_ROWS, out[1]);
  new_rows(6);
  CHECK_INT_EQ(cu.launch(exec, stream), 0);
  expect_results(cpu, 2, out[0]);
  cu.graph_destroy(graph);
  cu.exec_destroy(exec);
  cyto_context_destroy(context);
  cyto_context_destroy(cpu);
  cyto_model_unload(model);
  cyto_model_unload(on_cpu);
  close_device();
}

/* Memory that is not there, results in host memory, sizes that depend on data. */
static void test_refused(void) {
  open_device();
  cyto_model *model = load("cuda.so"), *counts = load("counts.so");
  cyto_context *context = on_stream(model), *counting = on_stream(counts);
  cyto_error error;
  CHECK_REQUIRE(context && counting);
  bind(context, 4, out[0]);
  expect_refused(context, "it needs memory: prepare the context for these sizes before");
  expect_run(context);
  bind(context, MAX_ROWS, out[0]);
  expect_refused(context, "it needs memory: prepare the context for these sizes before");
  bind(context, 4, 0);
  CHECK_INT_EQ(cyto_context_prepare(context, &error), 0);
  expect_refused(context, "tensors in host memory are copied");
  bind(counting, 4, out[0]);
  expect_run(counting);
  expect_refused(counting, "its steps depend on data");
  cyto_context_destroy(context);
  cyto_context_destroy(counting);
  cyto_model_unload(model);
  cyto_model_unload(counts);
  close_device();
}

/* The default stream cannot be captured; to use it while one is that waits for it would spoil that capture. A capture
 * that is spoilt already is said to be. */
static void test_spoilt(void) {
  open_device();
  cyto_model *model = load("cuda.so");
  cyto_context *context = context_of(model, &(cyto_options){.device_memory = 1, .stream = (void *)1});
  cyto_context *other = on_stream(model);
  void *waits = NULL, *graph = NULL;
  uint64_t block;
  cyto_error error;
  CHECK_REQUIRE(context && other && !cu.stream_create(&waits, 0));
  bind(context, 4, out[0]);
  expect_run(context);
  CHECK_INT_EQ(cu.begin(waits, GLOBAL), 0);
  CHECK_INT_EQ(cyto_run(context, &error), CYTO_RUNTIME_FAILURE);
  CHECK_STR_HAS(error.message, "cuStreamIsCapturing");
  CHECK_STR_HAS(error.message, "(906): the application captures a stream meanwhile");
  CHECK_INT_EQ(cu.end(waits, &graph), 0);
  cu.graph_destroy(graph);
  bind(other, 4, out[0]);
  expect_run(other);
  CHECK_INT_EQ(cu.begin(stream, GLOBAL), 0);
  CHECK_INT_EQ(cu.alloc(&block, 1), 900);
  CHECK_INT_EQ(cyto_run(other, &error), CYTO_RUNTIME_FAILURE);
  CHECK_STR_HAS(error.message, "(901): the application captures a stream meanwhile");
  CHECK_INT_EQ(cu.end(stream, &graph), 901);
  expect_run(other);
  cu.stream_destroy(waits);
  cyto_context_destroy(context);
  cyto_context_destroy(other);
  cyto_model_unload(model);
  close_device();
}

/* Memory that was the host's becomes the device's, another device's, and the host's again: each run asks anew. A run waits if
 * its output is the host's. */
static void test_moved_memory(void) {
  enum { PIECE = 2 << 20 };
  static _Alignas(PIECE) char piece[PIECE];
  const uint64_t at = (uint64_t)(uintptr_t)piece;
  int (*claim)(void *, size_t, int);
  void *symbol = dlsym(driver, "mock_cuda_claim");
  cyto_error error;
  memcpy(&claim, &symbol, sizeof claim);
  open_device();
  cyto_model *model = load("cuda.so"), *on_cpu = load("cpu.so");
  cyto_context *context = on_stream(model), *cpu = context_of(on_cpu, NULL);
  CHECK_REQUIRE(context && cpu);
  new_rows(9);
  for (int turn = 0; turn < 3; turn++) {
    bind(context, 4, at);
    int waits = mock->waits;
    expect_run(context);
    CHECK_INT_EQ(mock->waits - waits, 1);
    expect_results(cpu, 4, at);
    CHECK_INT_EQ(claim(piece, sizeof piece, 0), 0);
    if (turn == 1) /* preparing asks, too */
      CHECK_INT_EQ(cyto_context_prepare(context, &error), 0);
    memset(piece, 0, MAX_ROWS * WIDE * 4);
    waits = mock->waits;
    expect_run(context);
    CHECK_INT_EQ(mock->waits - waits, 0);
    expect_results(cpu, 4, at);
    CHECK_INT_EQ(claim(piece, 0, 0), 0);
    CHECK_INT_EQ(claim(piece, sizeof piece, 1), 0);
    CHECK_INT_EQ(cyto_run(context, &error), CYTO_INVALID_ARGUMENT);
    CHECK_STR_HAS(error.message, "is bound to memory of device 1, expected memory of device 0");
    CHECK_INT_EQ(claim(piece, 0, 0), 0);
  }
  cyto_context_destroy(context);
  cyto_context_destroy(cpu);
  cyto_model_unload(model);
  cyto_model_unload(on_cpu);
  close_device();
}

static const check_test tests[] = {
    {"*open mock", open_mock}, {"captured", test_captured}, {"between runs", test_between_runs},
    {"refused", test_refused}, {"spoilt", test_spoilt},     {"moved memory", test_moved_memory},
};

static int prepare(void) {
  static const char net[] =
      "graph @g(%x: f32[rows,64]) {\n  @w = const f32[64,96] data(7)\n  @v = const f32[96,40] data(8)\n"
      "  %p = matmul %x, @w : f32[rows,96]\n  %t = tanh %p\n"
      "  %y = matmul %t, @v : f32[rows,40]\n  return %y\n}\n",
                    counts[] = "sym s = count(%i, 1)\ngraph @g(%x: f32[rows,64]) {\n  @zero = const f32[] {0}\n"
                               "  %b = gt %x, @zero\n  %i = nonzero %b : i64[2,s]\n"
                               "  %f = cast %i : f32[2,s]\n  %y = reduce_max %f {axes=[1], keepdims=0} : f32[2]\n"
                               "  return %y\n}\n";
  write_file("net.txt", net, sizeof net - 1);
  write_file("counts.txt", counts, sizeof counts - 1);
  int rc = run_command("%s/cytoc %s -o %s --target=sm_80", build, path_of("net.txt"), path_of("cuda.so")) ||
           run_command("%s/cytoc %s -o %s --target=native", build, path_of("net.txt"), path_of("cpu.so")) ||
           run_command("%s/cytoc %s -o %s --target=sm_80", build, path_of("counts.txt"), path_of("counts.so"));
  if (rc)
    fprintf(stderr, "cytoc failed\n");
  return rc;
}

int main(int argc, char **argv) { return models_main(argc, argv, tests, CHECK_COUNT(tests), prepare); }
