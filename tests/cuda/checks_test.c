/* SPDX-License-Identifier: Apache-2.0 */
/* checks_test.c - indices out of range in CUDA models: launched, recorded and replayed runs, on streams that nobody waits
 * for, and in graphs of the application; without a GPU, by the mock driver.
 *
 * lookups.onnx adds what two Gathers, 'first' and 'second', find. tests/operators/values.py has what each operator checks. Here it is when a run tells, which node, and that the next run is well.
 */
#define _GNU_SOURCE
#include "tests/cuda/models.h"

enum { TABLE = 5, COLUMNS = 3, ROWS = 4 };
static float tables[2][TABLE * COLUMNS];
static int64_t indices[2][ROWS];
static const char out_of_range[] = "an index is out of range: 7, or as far in front, of an axis of 5 elements";

static void fill(void) {
  for (int i = 0; i < TABLE * COLUMNS; i++)
    tables[0][i] = (float)i, tables[1][i] = (float)(100 * i);
  for (int i = 0; i < ROWS; i++)
    indices[0][i] = i, indices[1][i] = -1 - i;
}

static cyto_context *context_of(cyto_model *model, const cyto_options *options) {
  cyto_context *context = NULL;
  cyto_error error;
  if (model && cyto_context_create(model, options, &context, &error))
    CHECK_FAIL("%s", error.message);
  return context;
}

/* Inputs are x, i, j, z: two look-ups behind each other. */
static void bind(cyto_context *context, const void *x, const void *i, const void *j, const void *z) {
  const int64_t table[2] = {TABLE, COLUMNS}, rows[1] = {ROWS};
  cyto_error error;
  if (cyto_bind_input(context, 0, CYTO_F32, 2, table, x, &error) ||
      cyto_bind_input(context, 1, CYTO_I64, 1, rows, i, &error) ||
      cyto_bind_input(context, 2, CYTO_I64, 1, rows, j, &error) ||
      cyto_bind_input(context, 3, CYTO_F32, 2, table, z, &error))
    CHECK_FAIL("%s", error.message);
}

static void expect_values(const float *got) {
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < COLUMNS; c++) {
      float want = tables[0][indices[0][r] * COLUMNS + c] + tables[1][(TABLE + indices[1][r]) * COLUMNS + c];
      if (got[r * COLUMNS + c] != want) {
        CHECK_FAIL("row %d, column %d: %g, not %g", r, c, (double)got[r * COLUMNS + c], (double)want);
        return;
      }
    }
}

static void expect_fine(cyto_context *context) {
  cyto_tensor y;
  cyto_error error;
  if (cyto_run(context, &error) || cyto_output(context, 0, &y, &error)) {
    CHECK_FAIL("%s", error.message);
    return;
  }
  expect_values(y.data);
}

static void expect_told(cyto_context *context, const char *node, const char *what) {
  cyto_error error = {0};
  CHECK_INT_EQ(cyto_run(context, &error), CYTO_SHAPE_MISMATCH);
  CHECK_STR_HAS(error.message, node);
  CHECK_STR_HAS(error.message, what);
}

/* The first, the recorded, and the replayed run; which node comes first; the run behind is well. */
static void test_recorded(void) {
  cyto_model *model = load("cuda.so");
  cyto_context *context = context_of(model, NULL);
  int recordings = mock->recordings;
  CHECK_REQUIRE(context);
  fill();
  bind(context, tables[0], indices[0], indices[1], tables[1]);
  for (int turn = 0; turn < 4; turn++) {
    indices[0][2] = 7;
    expect_told(context, "node 'first'", out_of_range);
    indices[1][0] = -8; /* both now: the first in the order of the model */
    expect_told(context, "node 'first'", out_of_range);
    indices[0][2] = 2;
    expect_told(context, "node 'second'", out_of_range);
    indices[1][0] = -1;
    expect_fine(context);
  }
  CHECK_INT_EQ(mock->recordings - recordings, 1);
  cyto_context_destroy(context);
  cyto_model_unload(model);
  CHECK_INT_EQ(mock->blocks + mock->pinned + mock->streams + mock->modules + mock->graphs, 0);
}

/* What an application does with the driver itself. */
static struct {
  int (*alloc)(uint64_t *, size_t), (*release)(uint64_t), (*push)(void *), (*pop)(void **);
  int (*stream_create)(void **, unsigned), (*stream_destroy)(void *);
  int (*begin)(void *, int), (*end)(void *, void **), (*instantiate)(void **, void *, unsigned long long);
  int (*launch)(void *, void *), (*graph_destroy)(void *), (*exec_destroy)(void *), (*wait)(void *);
  int (*submit)(void *, int (*)(const void *), const void *, size_t);
} cu;

static void open_driver(void) {
  static const char *const names[] = {"cuMemAlloc_v2",           "cuMemFree_v2",       "cuCtxPushCurrent_v2",
                                      "cuCtxPopCurrent_v2",      "cuStreamCreate",     "cuStreamDestroy_v2",
                                      "cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags",
                                      "cuGraphLaunch",           "cuGraphDestroy",     "cuGraphExecDestroy",
                                      "cuStreamSynchronize",     "mock_cuda_submit"};
  for (int i = 0; i < CHECK_COUNT(names); i++) {
    void *symbol = dlsym(driver, names[i]);
    memcpy((void **)&cu + i, &symbol, sizeof symbol);
  }
}

/* A run on the caller's stream, and one in the caller's graph, are told when the next one begins. */
static void test_streams(void) {
  uint64_t at[5];
  void *stream, *graph = NULL, *exec = NULL, *popped;
  cyto_model *model = load("cuda.so");
  cyto_error error;
  open_driver();
  fill();
  cu.push((void *)40);
  for (int i = 0; i < 5; i++)
    cu.alloc(&at[i], 256);
  cu.stream_create(&stream, 1);
  cyto_context *context = context_of(model, &(cyto_options){.device_memory = 1, .stream = stream});
  CHECK_REQUIRE(context);
  memcpy((void *)at[0], tables[0], sizeof tables[0]);
  memcpy((void *)at[3], tables[1], sizeof tables[1]);
  memcpy((void *)at[1], indices[0], sizeof indices[0]);
  memcpy((void *)at[2], indices[1], sizeof indices[1]);
  bind(context, (void *)at[0], (void *)at[1], (void *)at[2], (void *)at[3]);
  CHECK_INT_EQ(cyto_bind_output(context, 0, (void *)at[4], 256, &error), 0);
  int64_t *index = (int64_t *)at[1];
  for (int turn = 0; turn < 3; turn++) {
    index[3] = 7;
    CHECK_INT_EQ(cyto_run(context, &error), 0);
    CHECK_INT_EQ(cu.wait(stream), 0);
    index[3] = 3;
    expect_told(context, "node 'first'", ", in an earlier run on this stream");
    CHECK_INT_EQ(cyto_run(context, &error), 0);
    CHECK_INT_EQ(cu.wait(stream), 0);
    expect_values((float *)at[4]);
  }
  mock->any_capture = 1;
  CHECK_INT_EQ(cu.begin(stream, 0), 0);
  CHECK_INT_EQ(cyto_run(context, &error), 0);
  CHECK_INT_EQ(cu.end(stream, &graph), 0);
  CHECK_REQUIRE(graph && !cu.instantiate(&exec, graph, 0));
  index[0] = -8;
  CHECK_INT_EQ(cu.launch(exec, stream), 0);
  CHECK_INT_EQ(cu.wait(stream), 0);
  index[0] = 0;
  expect_told(context, "node 'first'", ", in an earlier run on this stream");
  CHECK_INT_EQ(cu.launch(exec, stream), 0);
  CHECK_INT_EQ(cu.wait(stream), 0);
  expect_values((float *)at[4]);
  CHECK_INT_EQ(cyto_run(context, &error), 0);
  mock->any_capture = 0;
  cu.graph_destroy(graph);
  cu.exec_destroy(exec);
  cyto_context_destroy(context);
  cyto_model_unload(model);
  cu.stream_destroy(stream);
  for (int i = 0; i < 5; i++)
    cu.release(at[i]);
  cu.pop(&popped);
  CHECK_INT_EQ(mock->blocks + mock->pinned + mock->streams + mock->modules + mock->graphs, 0);
}

/* An allocator that orders its memory by the stream, as PyTorch's does: what had it before still writes there, until the
 * stream has come so far. */
typedef struct earlier {
  void *at;
  size_t bytes;
} earlier;

static int write_earlier(const void *data) {
  const earlier *e = data;
  memset(e->at, 0x11, e->bytes);
  return 0;
}

static void *ordered_alloc(void *user, size_t bytes, void *stream) {
  uint64_t at = 0;
  (void)user;
  if (cu.alloc(&at, bytes))
    return NULL;
  const earlier e = {(void *)(uintptr_t)at, bytes};
  cu.submit(stream, write_earlier, &e, sizeof e);
  return e.at;
}

static void ordered_release(void *user, void *ptr, size_t bytes, void *stream) {
  (void)user, (void)bytes, (void)stream;
  CHECK_INT_EQ(cu.release((uint64_t)(uintptr_t)ptr), 0);
}

/* What kernels find is 0 at first in such memory, too. */
static void test_ordered_memory(void) {
  void *stream, *popped;
  cyto_model *model = load("cuda.so");
  open_driver();
  fill();
  cu.push((void *)40);
  cu.stream_create(&stream, 1);
  cyto_context *context =
      context_of(model, &(cyto_options){.stream = stream, .device_allocator = {ordered_alloc, ordered_release, NULL}});
  CHECK_REQUIRE(context);
  bind(context, tables[0], indices[0], indices[1], tables[1]);
  for (int i = 0; i < 3; i++)
    expect_fine(context);
  cyto_context_destroy(context);
  cyto_model_unload(model);
  cu.stream_destroy(stream);
  cu.pop(&popped);
  CHECK_INT_EQ(mock->blocks + mock->pinned + mock->streams + mock->modules + mock->graphs, 0);
}

static const check_test tests[] = {{"*open mock", open_mock},
                                   {"recorded", test_recorded},
                                   {"streams", test_streams},
                                   {"ordered memory", test_ordered_memory}};

static int prepare(void) {
  return run_command("%s/cytoc tests/cuda/data/lookups.onnx -o %s --target=sm_80%s", build, path_of("cuda.so"), "");
}

int main(int argc, char **argv) { return models_main(argc, argv, tests, CHECK_COUNT(tests), prepare); }
