/* SPDX-License-Identifier: Apache-2.0 */
/* memory_test.c - memory of the device from the application's allocator and from pools; weights that are streamed from the
 * host, without a GPU.
 *
 * The mock driver has as much memory as a test says, counts calls, does late what streams were given, and refuses what it
 * is told to. Results are compared with those of the same library whose weights are on the device.
 */
#define _GNU_SOURCE
#include "tests/cuda/models.h"

#include <stdbool.h>

enum {
  ROWS = 4,
  WIDTH = 256,
  LAYERS = 40,
  SHORT = 4,
  WEIGHT = WIDTH * WIDTH * 4,
  UNIT = WEIGHT / 4,
  KEPT = 16,
  RUNS = 4
};
static float rows[ROWS * WIDTH], wanted[ROWS * WIDTH], short_wanted[ROWS * WIDTH];

/* ---- helpers ---- */

static cyto_context *open_with(cyto_model *model, const cyto_options *options) {
  cyto_context *context = NULL;
  cyto_error error = {0};
  if (cyto_context_create(model, options, &context, &error))
    CHECK_FAIL("%s", error.message);
  return context;
}

static cyto_status run(cyto_context *context, int64_t n, cyto_tensor *out, cyto_error *error) {
  cyto_status status = cyto_bind_input(context, 0, CYTO_F32, 2, (int64_t[]){n, WIDTH}, rows, error);
  if (!status)
    status = cyto_run(context, error);
  return status ? status : cyto_output(context, 0, out, error);
}

static void expect_wanted(cyto_context *context, int64_t n) {
  cyto_tensor out;
  cyto_error error = {0};
  if (run(context, n, &out, &error))
    CHECK_FAIL("%s", error.message);
  else if (memcmp(out.data, wanted, (size_t)n * WIDTH * 4))
    CHECK_FAIL("results differ from those with the weights on the device");
}

static void expect_error(const char *name, const cyto_options *options, int status, const char *text) {
  cyto_model *model = load(name);
  cyto_context *context = NULL;
  cyto_error error = {0};
  CHECK_INT_EQ(cyto_context_create(model, options, &context, &error), status);
  CHECK_STR_HAS(error.message, text);
  cyto_context_destroy(context);
  cyto_model_unload(model);
}

static void expect_clean(void) {
  CHECK_INT_EQ(mock->blocks + mock->pinned + mock->streams + mock->modules + mock->retained + mock->events, 0);
  CHECK_INT_EQ(mock->used, 0);
}

static void find_wanted(void) {
  for (int i = 0; i < ROWS * WIDTH; i++)
    rows[i] = (float)(i * 37 % 101) / 101 - .5f;
  cyto_model *model = load("deep.so");
  cyto_context *context = open_with(model, NULL);
  cyto_tensor out;
  cyto_error error = {0};
  CHECK_REQUIRE(context && !run(context, ROWS, &out, &error));
  memcpy(wanted, out.data, sizeof wanted);
  float max = 0;
  for (int i = 0; i < ROWS * WIDTH; i++)
    max = wanted[i] > max ? wanted[i] : max;
  CHECK(max > 1e-3f);
  cyto_context_destroy(context);
  cyto_model_unload(model);
  expect_clean();
}

/* ---- allocators ---- */

static struct {
  int (*alloc)(uint64_t *, size_t), (*release)(uint64_t), (*push)(void *), (*pop)(void **);
  int (*stream_create)(void **, unsigned), (*stream_destroy)(void *);
  int (*begin)(void *, int), (*end)(void *, void **), (*graph_destroy)(void *);
} cu;

static struct {
  int allocs, releases, refuse_from, refuse_to; /* from 0: none is refused; to 0: all from there on are */
  size_t held;
  uint64_t shift; /* of what is given */
  void *stream;
} user;

static void *user_alloc(void *data, size_t bytes, void *stream) {
  uint64_t at = 0;
  CHECK(data == &user);
  user.allocs++;
  user.stream = stream;
  int refused =
      user.refuse_from && user.allocs >= user.refuse_from && !(user.refuse_to && user.allocs >= user.refuse_to);
  if (refused || cu.alloc(&at, bytes + 512))
    return NULL;
  user.held += bytes;
  return (void *)(uintptr_t)(at + user.shift);
}

static void user_release(void *data, void *ptr, size_t bytes, void *stream) {
  CHECK(data == &user && stream == user.stream);
  user.releases++;
  user.held -= bytes;
  CHECK_INT_EQ(cu.release((uint64_t)(uintptr_t)ptr - user.shift), 0);
}

static const cyto_device_allocator allocator = {user_alloc, user_release, &user};

static void open_driver(void) {
  static const char *const names[] = {"cuMemAlloc_v2",           "cuMemFree_v2",       "cuCtxPushCurrent_v2",
                                      "cuCtxPopCurrent_v2",      "cuStreamCreate",     "cuStreamDestroy_v2",
                                      "cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphDestroy"};
  for (int i = 0; i < CHECK_COUNT(names); i++) {
    void *symbol = dlsym(driver, names[i]);
    memcpy((void **)&cu + i, &symbol, sizeof symbol);
  }
}

/* All but weights comes from it and goes back to it, also what grows with the batch. */
static void test_allocator(void) {
  cyto_model *model = load("deep.so");
  cyto_context *context = open_with(model, &(cyto_options){.device_allocator = allocator});
  char about[1000];
  CHECK_REQUIRE(context);
  int blocks = mock->blocks;
  expect_wanted(context, 1);
  int first = user.allocs;
  CHECK(first >= 2);
  CHECK_INT_EQ(mock->blocks - blocks, first - user.releases);
  for (int i = 0; i < 3; i++)
    expect_wanted(context, ROWS);
  CHECK(user.releases > 0);
  int grown = user.allocs;
  expect_wanted(context, ROWS);
  expect_wanted(context, 1);
  CHECK_INT_EQ(user.allocs, grown);
  cyto_context_describe(context, about, sizeof about);
  CHECK_STR_HAS(about, "memory by the application's allocator");
  cyto_context_destroy(context);
  CHECK_INT_EQ(user.allocs, user.releases);
  CHECK_INT_EQ(user.held, 0);
  cyto_model_unload(model);
  expect_clean();
}

/* Each of its calls is refused once; nothing is lost, and the next run is right. */
static void test_allocator_refuses(void) {
  int refused = 0;
  for (int from = 1; from < 40; from++) {
    cyto_model *model = load("deep.so");
    cyto_context *context = NULL;
    cyto_tensor out;
    cyto_error error = {0};
    memset(&user, 0, sizeof user);
    user.refuse_from = from;
    cyto_status status = cyto_context_create(model, &(cyto_options){.device_allocator = allocator}, &context, &error);
    status = status ? status : run(context, ROWS, &out, &error);
    if (status) {
      refused++;
      CHECK_INT_EQ(status, CYTO_OUT_OF_MEMORY);
      CHECK_STR_HAS(error.message, "the application's device allocator has no memory for ");
    }
    user.refuse_from = 0;
    if (context)
      expect_wanted(context, ROWS);
    cyto_context_destroy(context);
    cyto_model_unload(model);
    CHECK_INT_EQ(user.held, 0);
    if (!status)
      break;
  }
  CHECK(refused >= 2);
  expect_clean();
}

static void test_allocator_bad(void) {
  cyto_model *model = load("deep.so");
  memset(&user, 0, sizeof user);
  user.shift = 64;
  cyto_context *context = open_with(model, &(cyto_options){.device_allocator = allocator});
  cyto_tensor out;
  cyto_error error = {0};
  CHECK_REQUIRE(context);
  CHECK_INT_EQ(run(context, 1, &out, &error), CYTO_INVALID_ARGUMENT);
  CHECK_STR_HAS(error.message, "expected a multiple of 256");
  cyto_context_destroy(context);
  cyto_model_unload(model);
  CHECK_INT_EQ(user.held, 0);
  expect_error("deep.so", &(cyto_options){.device_allocator = {user_alloc, NULL, NULL}}, CYTO_INVALID_ARGUMENT,
               "cyto_options.device_allocator has no release function");
  expect_clean();
}

static void test_pool(void) {
  char about[1000];
  cyto_error error = {0};
  cyto_tensor out;
  mock->pools = 1;
  int allocs = mock->pool_allocs, frees = mock->pool_frees;
  cyto_model *model = load("deep.so");
  cyto_context *context = open_with(model, &(cyto_options){.device_pool = 1});
  CHECK_REQUIRE(context);
  expect_wanted(context, 1);
  for (int i = 0; i < 3; i++)
    expect_wanted(context, ROWS);
  CHECK(mock->pool_allocs - allocs >= 2);
  CHECK(mock->pool_frees - frees >= 1);
  cyto_context_describe(context, about, sizeof about);
  CHECK_STR_HAS(about, "memory of the device's stream-ordered pool");
  cyto_context_destroy(context);
  CHECK_INT_EQ(mock->pool_allocs - allocs, mock->pool_frees - frees);
  context = open_with(model, &(cyto_options){.device_pool = 1});
  mock->pool_code = 2;
  CHECK_INT_EQ(run(context, 1, &out, &error), CYTO_OUT_OF_MEMORY);
  CHECK_STR_HAS(error.message, "the device's pool has no memory for ");
  mock->pool_code = 0;
  expect_wanted(context, ROWS);
  cyto_context_destroy(context);
  mock->pools = 0;
  allocs = mock->pool_allocs;
  context = open_with(model, &(cyto_options){.device_pool = 1});
  expect_wanted(context, ROWS);
  CHECK_INT_EQ(mock->pool_allocs, allocs);
  cyto_context_describe(context, about, sizeof about);
  CHECK_STR_HAS(about, "the device has no stream-ordered pools");
  cyto_context_destroy(context);
  cyto_model_unload(model);
  expect_clean();
}

/* ---- weights that are streamed ---- */

static void expect_streamed(cyto_context *context) {
  char about[1000];
  cyto_context_describe(context, about, sizeof about);
  CHECK_STR_HAS(about, "weights are streamed: ");
}

/* A window of so many layers' weights; results are the same bits, in every run. */
static void test_windows(void) {
  static const int windows[] = {1, 2, 3, 7, 20, LAYERS - 1, LAYERS};
  for (int k = 0; k < CHECK_COUNT(windows); k++) {
    int layers = windows[k];
    cyto_model *model = load("deep.so");
    cyto_context *context = open_with(model, &(cyto_options){.device_weights = (uint64_t)layers * WEIGHT + 20000});
    CHECK_REQUIRE(context);
    if (layers < LAYERS)
      expect_streamed(context);
    for (int i = 0; i < RUNS; i++)
      expect_wanted(context, i == 2 ? 1 : ROWS);
    cyto_context_destroy(context);
    cyto_model_unload(model);
    expect_clean();
  }
}

/* From the second run on, weights are copied before they are asked for: each once a run, none twice. */
static void test_ahead(void) {
  cyto_model *model = load("deep.so");
  cyto_context *context = open_with(model, &(cyto_options){.device_weights = 3 * WEIGHT + 20000});
  CHECK_REQUIRE(context);
  expect_wanted(context, ROWS);
  int waits = mock->event_waits, copies = mock->copies_in;
  for (int i = 0; i < RUNS; i++)
    expect_wanted(context, ROWS);
  CHECK(mock->event_waits > waits);
  int more = mock->copies_in - copies - RUNS; /* without inputs */
  if (more > RUNS * LAYERS + 3)
    CHECK_FAIL("%d copies of weights in %d runs of %d layers", more, RUNS, LAYERS);
  cyto_context_destroy(context);
  cyto_model_unload(model);
  expect_clean();
}

/* The device is too small for the weights: nobody asked for streaming. */
static void test_small_device(void) {
  cyto_model *model = load("deep.so");
  mock->memory = 30 * WEIGHT;
  cyto_context *context = open_with(model, NULL);
  CHECK_REQUIRE(context);
  expect_streamed(context);
  for (int i = 0; i < RUNS; i++)
    expect_wanted(context, ROWS);
  cyto_context_destroy(context);
  mock->memory = 12 * WEIGHT; /* the window gives way to what runs need: three quarters would be too much */
  context = open_with(model, NULL);
  CHECK_REQUIRE(context);
  for (int i = 0; i < RUNS; i++)
    expect_wanted(context, ROWS);
  expect_streamed(context);
  cyto_context_destroy(context);
  cyto_model_unload(model);
  mock->memory = WEIGHT / 2;
  expect_error("deep.so", NULL, CYTO_OUT_OF_MEMORY, "no device memory for streamed weights");
  mock->memory = (size_t)1 << 32;
  mock->host_limit = 1;
  mock->pinned++;
  expect_error("deep.so", &(cyto_options){.device_weights = WEIGHT}, CYTO_OUT_OF_MEMORY,
               "no pinned host memory for the model's weights, which are more than the device may hold");
  mock->pinned--;
  mock->host_limit = 0;
  expect_clean();
}

/* Memory of the pool is ordered by the caller's stream alone, and the window has a stream of its own: at first, when it gives
 * way, and when there is too little for both. */
static void test_pool_windows(void) {
  void *popped, *stream;
  cyto_model *model = load("deep.so");
  open_driver();
  cu.push((void *)40);
  mock->pools = 1;
  for (int weights = 30; weights >= 12; weights -= 18) {
    mock->memory = (size_t)weights * WEIGHT;
    cu.stream_create(&stream, 1);
    cyto_context *context = open_with(model, &(cyto_options){.device_pool = 1, .stream = stream});
    CHECK_REQUIRE(context);
    for (int i = 0; i < RUNS; i++)
      expect_wanted(context, i ? ROWS : 1);
    expect_streamed(context);
    cyto_context_destroy(context);
    cu.stream_destroy(stream); /* which comes to what was given back */
  }
  cyto_model_unload(model);
  mock->memory = (size_t)1 << 32;
  mock->pools = 0;
  cu.pop(&popped);
  expect_clean();
}

/* One more piece of the device is refused, then there is memory again: the window is as large as the largest weight at least,
 * and runs go on. */
static void test_window_returns(void) {
  int failed = 0;
  for (int from = 1; from < 12; from++) {
    cyto_model *model = load("deep.so");
    cyto_tensor out;
    cyto_error error = {0};
    memset(&user, 0, sizeof user);
    mock->memory = 12 * WEIGHT;
    cyto_context *context = open_with(model, &(cyto_options){.device_allocator = allocator});
    CHECK_REQUIRE(context);
    user.refuse_from = user.allocs + from;
    user.refuse_to = user.refuse_from + 1;
    failed += run(context, 1, &out, &error) != 0;
    expect_wanted(context, ROWS);
    expect_wanted(context, 1);
    cyto_context_destroy(context);
    cyto_model_unload(model);
    CHECK_INT_EQ(user.held, 0);
  }
  memset(&user, 0, sizeof user);
  mock->memory = (size_t)1 << 32;
  CHECK(failed > 0);
  expect_clean();
}

/* A kernel that reads two weights of five units each, in a window of ten of which another weight took the first four. */
static void test_two_weights(void) {
  float results[2][320 * WIDTH];
  for (int limited = 0; limited < 2; limited++) {
    cyto_model *model = load("pair.so");
    cyto_context *context = open_with(model, &(cyto_options){.device_weights = limited ? 10 * UNIT : 0});
    CHECK_REQUIRE(context);
    for (int i = 0; i < RUNS; i++) {
      cyto_tensor out;
      cyto_error error = {0};
      if (run(context, 1, &out, &error))
        CHECK_FAIL("run %d: %s", i, error.message);
      else
        memcpy(results[limited], out.data, sizeof results[0]);
    }
    if (limited)
      expect_streamed(context);
    cyto_context_destroy(context);
    cyto_model_unload(model);
  }
  CHECK(!memcmp(results[0], results[1], sizeof results[0]));
  expect_clean();
}

/* While a stream is captured that the legacy stream would wait for, a context may be made whose weights are streamed. */
static void test_open_while_capturing(void) {
  void *popped, *stream, *graph = NULL;
  open_driver();
  cu.push((void *)40);
  cyto_model *model = load("deep.so");
  cu.stream_create(&stream, 0);
  CHECK_INT_EQ(cu.begin(stream, 1), 0);
  cyto_context *context = open_with(model, &(cyto_options){.device_weights = 3 * WEIGHT + 20000});
  CHECK_INT_EQ(cu.end(stream, &graph), 0);
  CHECK_REQUIRE(context && graph);
  cu.graph_destroy(graph);
  expect_wanted(context, ROWS);
  cyto_context_destroy(context);
  cyto_model_unload(model);
  cu.stream_destroy(stream);
  cu.pop(&popped);
  expect_clean();
}

/* Kept caches have the window give way, as all else that runs need. */
static void test_kept_beside_window(void) {
  const int64_t none[2] = {0, WIDTH};
  cyto_model *model = load("kept.so");
  cyto_error error = {0};
  mock->memory = 12 * WEIGHT;
  cyto_context *context = open_with(model, NULL);
  CHECK_REQUIRE(context);
  expect_streamed(context);
  CHECK_INT_EQ(cyto_bind_input(context, 1, CYTO_F32, 2, none, NULL, &error), 0);
  if (cyto_context_keep(context, 4 * WIDTH, &error)) /* as much as four weights */
    CHECK_FAIL("%s", error.message);
  cyto_tensor out;
  for (int i = 0; i < RUNS; i++)
    if (run(context, 1, &out, &error))
      CHECK_FAIL("run %d: %s", i, error.message);
  cyto_context_destroy(context);
  cyto_model_unload(model);
  mock->memory = (size_t)1 << 32;
  expect_clean();
}

/* Kernels of sm_90 begin early behind kernels alone: memory of the pool that is taken or given between two is one more step. */
static void test_pool_between_kernels(void) {
  cyto_model *model = load("counts.so");
  cyto_error error = {0};
  mock->pools = 1;
  mock->capability = 90;
  cyto_context *context = open_with(model, &(cyto_options){.device_pool = 1});
  CHECK_REQUIRE(context);
  int programmatic = mock->programmatic;
  for (int i = 0; i < RUNS; i++) {
    cyto_tensor out;
    if (run(context, i ? ROWS : 1, &out, &error))
      CHECK_FAIL("run %d: %s", i, error.message);
  }
  CHECK(mock->programmatic > programmatic);
  cyto_context_destroy(context);
  cyto_model_unload(model);
  mock->pools = 0;
  mock->capability = 89;
  expect_clean();
}

/* Two contexts of one model, each with its window. */
static void test_two(void) {
  cyto_model *model = load("deep.so");
  const cyto_options options = {.device_weights = 2 * WEIGHT + 20000};
  cyto_context *a = open_with(model, &options), *b = open_with(model, &options);
  CHECK_REQUIRE(a && b);
  for (int i = 0; i < RUNS; i++) {
    expect_wanted(a, ROWS);
    expect_wanted(b, 1 + i % ROWS);
  }
  cyto_context_destroy(a);
  expect_wanted(b, ROWS);
  cyto_context_destroy(b);
  cyto_model_unload(model);
  expect_clean();
}

/* Every call that gets memory, streams and events, copies or orders fails once, in opening and in two runs: that is told,
 * nothing is lost, and the next run is right. */
static void test_failures(void) {
  int failed = 0, n = 1;
  for (; n < 2000; n++) {
    cyto_model *model = load("short.so");
    cyto_context *context = NULL;
    cyto_tensor out;
    cyto_error error = {0};
    mock->tried = 0;
    mock->fail_nth = n;
    cyto_status status =
        cyto_context_create(model, &(cyto_options){.device_weights = 2 * WEIGHT + 20000}, &context, &error);
    for (int i = 0; i < 2 && !status; i++)
      status = run(context, ROWS, &out, &error);
    int whole = mock->tried < n;
    mock->fail_nth = 0;
    failed += status != 0;
    if (status && !strstr(error.message, "719"))
      CHECK_FAIL("call %d: %s", n, error.message);
    if (context && (run(context, ROWS, &out, &error) || run(context, ROWS, &out, &error)))
      CHECK_FAIL("after call %d failed: %s", n, error.message);
    else if (context && !short_wanted[0])
      memcpy(short_wanted, out.data, sizeof short_wanted);
    else if (context && memcmp(short_wanted, out.data, sizeof short_wanted))
      CHECK_FAIL("after call %d failed results differ", n);
    cyto_context_destroy(context);
    cyto_model_unload(model);
    expect_clean();
    if (whole)
      break;
  }
  CHECK(failed > 20 && n < 2000);
}

/* What the copies cost at least is said when compiling. */
static void test_explained(void) {
  CHECK_INT_EQ(
      run_command(
          "%s/cytoc %s -o %s --target=sm_80 --explain | grep -q '^weights: 10.5 MB.*streams them.*takes 421 us'", build,
          path_of("deep.txt"), path_of("explained.so")),
      0);
}

/* ---- which device ---- */

static void test_device_messages(void) {
  mock->devices = 2;
  expect_error("deep.so", &(cyto_options){.device = 7}, CYTO_INVALID_ARGUMENT,
               "device 7 does not exist: this process sees 2");
  expect_error("deep.so", &(cyto_options){.device = -1}, CYTO_INVALID_ARGUMENT, "device -1 does not exist");
  expect_error("deep.so", &(cyto_options){.device = 7}, CYTO_INVALID_ARGUMENT, "1 'Mock GPU' (sm_89)");
  mock->capability = 75;
  expect_error("deep.so", NULL, CYTO_BAD_LIBRARY,
               "the model has code for sm_80, PTX of compute_80, but device 0 ('Mock GPU') is sm_75");
  mock->capability = 89;
  mock->devices = 1;
  expect_error("cpu.so", &(cyto_options){.device = 1}, CYTO_INVALID_ARGUMENT, "is compiled for a CPU");
  expect_clean();
}

static const check_test tests[] = {{"*open mock", open_mock},
                                   {"*open driver", open_driver},
                                   {"*wanted", find_wanted},
                                   {"allocator", test_allocator},
                                   {"allocator refuses", test_allocator_refuses},
                                   {"allocator, bad", test_allocator_bad},
                                   {"pool", test_pool},
                                   {"windows", test_windows},
                                   {"ahead", test_ahead},
                                   {"small device", test_small_device},
                                   {"windows of the pool", test_pool_windows},
                                   {"window returns", test_window_returns},
                                   {"two weights", test_two_weights},
                                   {"open while capturing", test_open_while_capturing},
                                   {"kept beside window", test_kept_beside_window},
                                   {"pool between kernels", test_pool_between_kernels},
                                   {"two contexts", test_two},
                                   {"failures", test_failures},
                                   {"explained", test_explained},
                                   {"messages", test_device_messages}};

/* A network of layers, whose weights are of one size, and a bias each that stays on the device. */
static bool write_layers(const char *name, int layers) {
  FILE *f = fopen(path_of(name), "w");
  if (!f)
    return false;
  fprintf(f, "graph @g(%%x: f32[n,%d]) {\n", WIDTH);
  for (int i = 0; i < layers; i++)
    fprintf(f, "  @w%d = const f32[%d,%d] data(%d)\n  @b%d = const f32[%d] data(%d)\n", i, WIDTH, WIDTH, i + 3, i,
            WIDTH, i + 50);
  for (int i = 0; i < layers; i++) {
    char from[20] = "x";
    if (i)
      snprintf(from, sizeof from, "h%d", i - 1);
    fprintf(f, "  %%p%d = matmul %%%s, @w%d : f32[n,%d]\n  %%s%d = add %%p%d, @b%d\n  %%h%d = tanh %%s%d\n", i, from, i,
            WIDTH, i, i, i, i, i);
  }
  fprintf(f, "  return %%h%d\n}\n", layers - 1);
  return !fclose(f);
}

static void write_others(void) {
  static const char pair[] =
      "graph @pair(%x: f32[n,256]) {\n  @w = const f32[256,256] data(1)\n  @a = const f32[320,256] data(2)\n"
      "  @b = const f32[320,256] data(3)\n  %p = matmul %x, @w : f32[n,256]\n"
      "  %s = reduce_sum %p {axes=[0], keepdims=1} : f32[1,256]\n  %q = mul %s, @a : f32[320,256]\n"
      "  %y = add %q, @b : f32[320,256]\n  return %y\n}\n";
  static const char counts[] =
      "sym s = count(%i, 1)\ngraph @counts(%x: f32[n,256]) {\n  @zero = const f32[] {0}\n"
      "  @w = const f32[2,8] data(1)\n  @v = const f32[8,8] data(2)\n  %b = gt %x, @zero\n"
      "  %i = nonzero %b : i64[2,s]\n  %t = transpose %i {perm=[1,0]} : i64[s,2]\n  %f = cast %t : f32[s,2]\n"
      "  %m = matmul %f, @w : f32[s,8]\n  %k = matmul %m, @v : f32[s,8]\n"
      "  %y = reduce_max %k {axes=[0], keepdims=0} : f32[8]\n  return %y\n}\n";
  char kept[KEPT * 150 + 300];
  int n = snprintf(kept, sizeof kept, "graph @kept(%%x: f32[n,256], %%past: f32[p,256]) {\n");
  for (int i = 0; i < KEPT; i++)
    n += snprintf(kept + n, sizeof kept - (size_t)n, "  @w%d = const f32[256,256] data(%d)\n", i, i + 1);
  for (int i = 0; i < KEPT; i++) {
    char from[20] = "x";
    if (i)
      snprintf(from, sizeof from, "h%d", i - 1);
    n += snprintf(kept + n, sizeof kept - (size_t)n, "  %%h%d = matmul %%%s, @w%d : f32[n,256]\n", i, from, i);
  }
  n += snprintf(kept + n, sizeof kept - (size_t)n,
                "  %%all = concat %%past, %%h0 {axis=0} : f32[p+n,256]\n  return %%h%d, %%all\n}\n", KEPT - 1);
  write_file("pair.txt", pair, sizeof pair - 1);
  write_file("counts.txt", counts, sizeof counts - 1);
  write_file("kept.txt", kept, (size_t)n);
}

static int prepare(void) {
  static const char *const libraries[][3] = {
      {"deep.so", "deep.txt", "sm_80 --cudnn=off"},     {"short.so", "short.txt", "sm_80 --cudnn=off"},
      {"pair.so", "pair.txt", "sm_80 --cudnn=off"},     {"kept.so", "kept.txt", "sm_80 --cudnn=off"},
      {"counts.so", "counts.txt", "sm_90 --cudnn=off"}, {"cpu.so", "deep.txt", "native"}};
  if (!write_layers("deep.txt", LAYERS) || !write_layers("short.txt", SHORT))
    return 1;
  write_others();
  int rc = 0;
  for (int k = 0; k < CHECK_COUNT(libraries) && !rc; k++) {
    char command[4 * PATH_MAX];
    snprintf(command, sizeof command, "%s/cytoc %s -o %s --target=%s", build, path_of(libraries[k][1]),
             path_of(libraries[k][0]), libraries[k][2]);
    rc = system(command);
  }
  return rc;
}

int main(int argc, char **argv) { return models_main(argc, argv, tests, CHECK_COUNT(tests), prepare); }
