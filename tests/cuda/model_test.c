/* SPDX-License-Identifier: Apache-2.0 */
/* model_test.c - whole CUDA models without a GPU: cytoc with a mock NVRTC, the runtime on a mock driver, against the
 * CPU target.
 *
 * examples/digits is compiled for both targets. The CUDA library is run one by one, recorded and replayed, at several
 * batch sizes and on memory of the device; then everything that can be missing or wrong is, one after the other.
 * Started from the root of the repository, as all tests; without a C compiler for the mock's kernels all is skipped.
 */
#define _GNU_SOURCE
#include "tests/cuda/models.h"

#include <elf.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/wait.h>

enum { MAX_BATCH = 5, PIXELS = 28 * 28, CLASSES = 10 };

static float image[MAX_BATCH * PIXELS];

/* ---- helpers ---- */

/* Where a section lies in an ELF file. */
static int find_section(const char *file, const char *name, size_t *out_at, size_t *out_bytes) {
  const Elf64_Ehdr *head = (const Elf64_Ehdr *)file;
  const Elf64_Shdr *sections = (const Elf64_Shdr *)(file + head->e_shoff);
  for (int i = 0; i < head->e_shnum; i++)
    if (!strcmp(file + sections[head->e_shstrndx].sh_offset + sections[i].sh_name, name)) {
      *out_at = sections[i].sh_offset;
      *out_bytes = sections[i].sh_size;
      return 1;
    }
  return 0;
}

static void new_image(unsigned seed) {
  for (int i = 0; i < MAX_BATCH * PIXELS; i++) {
    seed = seed * 1664525u + 1013904223u;
    image[i] = (float)(seed >> 8) / 16777216.f;
  }
}

static int64_t input_dims(const cyto_model *model, int64_t batch, int64_t *dims) {
  cyto_port port;
  cyto_model_input(model, 0, &port);
  for (int i = 0; i < port.rank; i++)
    dims[i] = port.dims[i] < 0 ? batch : port.dims[i];
  return port.rank;
}

static cyto_status run(cyto_context *context, const cyto_model *model, int64_t batch, const void *data,
                       cyto_tensor *out, cyto_error *error) {
  int64_t dims[CYTO_MAX_RANK];
  int32_t rank = (int32_t)input_dims(model, batch, dims);
  cyto_status status = cyto_bind_input(context, 0, CYTO_F32, rank, dims, data, error);
  if (!status)
    status = cyto_run(context, error);
  return status ? status : cyto_output(context, 0, out, error);
}

/* Runs both and compares. */
static void compare(cyto_context *cuda, const cyto_model *cuda_model, cyto_context *cpu, const cyto_model *cpu_model,
                    int64_t batch, float tolerance) {
  cyto_tensor a, b;
  cyto_error error;
  if (run(cuda, cuda_model, batch, image, &a, &error) || run(cpu, cpu_model, batch, image, &b, &error)) {
    CHECK_FAIL("%s", error.message);
    return;
  }
  CHECK_INT_EQ(a.bytes, b.bytes);
  for (uint64_t i = 0; i < b.bytes / 4; i++)
    if (!(fabsf(((float *)a.data)[i] - ((float *)b.data)[i]) < tolerance)) {
      CHECK_FAIL("element %d is %g, not %g", (int)i, (double)((float *)a.data)[i], (double)((float *)b.data)[i]);
      return;
    }
}

static void expect_error(const cyto_options *options, int status, const char *text) {
  cyto_model *model = load("cuda.so");
  cyto_context *context = NULL;
  cyto_error error = {0};
  CHECK_REQUIRE(model);
  CHECK_INT_EQ(cyto_context_create(model, options, &context, &error), status);
  if (!strstr(error.message, text))
    CHECK_FAIL("expected '%s' in: %s", text, error.message);
  cyto_context_destroy(context);
  cyto_model_unload(model);
}

/* ---- tests ---- */

static void test_no_driver(void) {
  void *real = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (real) {
    dlclose(real);
    check_skipped = "this machine has a driver";
    return;
  }
  expect_error(NULL, CYTO_NO_DEVICE, "NVIDIA driver was not found");
}

static void test_run_record_replay(void) {
  cyto_model *cuda = load("cuda.so"), *cpu = load("cpu.so");
  cyto_context *on_cuda = NULL, *on_cpu = NULL, *second = NULL;
  cyto_error error;
  CHECK_REQUIRE(cuda && cpu);
  CHECK_REQUIRE(!cyto_context_create(cpu, NULL, &on_cpu, &error));
  if (cyto_context_create(cuda, NULL, &on_cuda, &error) || cyto_context_create(cuda, NULL, &second, &error)) {
    CHECK_FAIL("%s", error.message);
    return;
  }
  CHECK_INT_EQ(mock->copies_in, 1); /* both contexts have the same weights */
  for (int i = 0; i < 4; i++) {
    new_image((unsigned)i);
    compare(on_cuda, cuda, on_cpu, cpu, 2, 1e-4f);
  }
  CHECK_INT_EQ(mock->recordings, 1);
  CHECK_INT_EQ(mock->replays, 3);
  for (int i = 0; i < 3; i++)
    compare(on_cuda, cuda, on_cpu, cpu, MAX_BATCH, 1e-4f);
  CHECK_INT_EQ(mock->recordings, 2);
  for (mock->schedule = 1; mock->schedule < 3; mock->schedule++)
    compare(second, cuda, on_cpu, cpu, 1, 1e-4f);
  mock->schedule = 0;
  cyto_context_destroy(on_cuda);
  cyto_context_destroy(second);
  cyto_context_destroy(on_cpu);
  cyto_model_unload(cuda);
  cyto_model_unload(cpu);
  CHECK_INT_EQ(mock->blocks, 0);
  CHECK_INT_EQ(mock->pinned + mock->streams + mock->modules + mock->retained, 0);
}

/* What an application does with the driver itself, on device 0. */
static struct {
  int (*alloc)(uint64_t *, size_t), (*push)(void *), (*pop)(void **), (*release)(uint64_t);
  int (*stream_create)(void **, unsigned), (*stream_destroy)(void *);
} own;

static void open_own(void) {
  static const char *const names[] = {"cuMemAlloc_v2", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
                                      "cuMemFree_v2",  "cuStreamCreate",      "cuStreamDestroy_v2"};
  for (int i = 0; i < CHECK_COUNT(names); i++) {
    void *symbol = dlsym(driver, names[i]);
    memcpy((void **)&own + i, &symbol, sizeof symbol);
  }
}

/* Input and output of one image in memory of the device; `outputs` of these behind each other, 256 bytes apart. */
static void device_tensors(uint64_t *in, uint64_t *out, int outputs) {
  open_own();
  own.push((void *)40);
  own.alloc(in, PIXELS * 4);
  own.alloc(out, (size_t)outputs * 256);
  memcpy((void *)(uintptr_t)*in, image, PIXELS * 4);
}

static void device_tensors_free(uint64_t in, uint64_t out) {
  void *context;
  own.release(in);
  own.release(out);
  own.pop(&context);
}

static void test_device_memory(void) {
  uint64_t in = 0, out = 0;
  device_tensors(&in, &out, 1);
  cyto_model *cuda = load("cuda.so");
  cyto_context *context = NULL;
  cyto_options options = {.device_memory = 1};
  cyto_tensor result;
  cyto_error error;
  CHECK_REQUIRE(cuda && !cyto_context_create(cuda, &options, &context, &error));
  CHECK_INT_EQ(cyto_bind_output(context, 0, (void *)(uintptr_t)out, CLASSES * 4, &error), 0);
  for (int i = 0; i < 3; i++)
    if (run(context, cuda, 1, (void *)(uintptr_t)in, &result, &error))
      CHECK_FAIL("%s", error.message);
  CHECK(result.data == (void *)(uintptr_t)out);
  CHECK_INT_EQ(mock->pinned, 0); /* nothing is copied */
  float sum = 0;
  for (int i = 0; i < CLASSES; i++)
    sum += ((float *)result.data)[i];
  CHECK(sum == sum);
  CHECK_INT_EQ(run(context, cuda, 1, image, &result, &error), CYTO_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "host memory, expected device memory"));
  cyto_context_destroy(context);
  CHECK_REQUIRE(!cyto_context_create(cuda, NULL, &context, &error));
  CHECK_INT_EQ(run(context, cuda, 1, (void *)(uintptr_t)in, &result, &error), CYTO_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "device memory, expected host memory"));
  cyto_context_destroy(context);
  cyto_model_unload(cuda);
  device_tensors_free(in, out);
}

/* More outputs in turn than recordings are kept: the one not used for longest gives way, the others are replayed. */
static void test_recordings(void) {
  enum { KEPT = 16, PLACES = KEPT + 4 };
  uint64_t in = 0, out = 0;
  device_tensors(&in, &out, PLACES);
  cyto_model *cuda = load("cuda.so");
  cyto_context *context = NULL;
  cyto_options options = {.device_memory = 1};
  cyto_tensor result;
  cyto_error error;
  int before = mock->recordings;
  CHECK_REQUIRE(cuda && !cyto_context_create(cuda, &options, &context, &error));
  static const int iterations[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 16, 0, 17, 2, 1};
  for (int i = 0; i < CHECK_COUNT(iterations); i++)
    for (int twice = 0; twice < 2; twice++) {
      CHECK_INT_EQ(cyto_bind_output(context, 0, (void *)(uintptr_t)(out + 256u * (unsigned)iterations[i]), 256, &error),
                   0);
      CHECK_INT_EQ(run(context, cuda, 1, (void *)(uintptr_t)in, &result, &error), 0);
      CHECK(result.data == (void *)(uintptr_t)(out + 256u * (unsigned)iterations[i]));
      CHECK(!memcmp(result.data, (void *)(uintptr_t)out, CLASSES * 4));
    }
  CHECK_INT_EQ(mock->graphs, KEPT);
  /* the first 16, 16 (in place of 1), 17 (of 2), 2 (of 3), 1 (of 4) */
  CHECK_INT_EQ(mock->recordings - before, 16 + 4);
  cyto_context_destroy(context);
  cyto_model_unload(cuda);
  device_tensors_free(in, out);
  CHECK_INT_EQ(mock->graphs, 0);
}

/* On the caller's stream nothing is waited for when all tensors are on the device, and it stays the caller's. */
static void test_stream(void) {
  uint64_t in = 0, out = 0;
  void *stream = NULL;
  device_tensors(&in, &out, 1);
  own.stream_create(&stream, 1);
  cyto_model *cuda = load("cuda.so");
  cyto_context *context = NULL;
  cyto_options options = {.device_memory = 1, .stream = stream};
  cyto_tensor result;
  cyto_error error;
  CHECK_REQUIRE(cuda && !cyto_context_create(cuda, &options, &context, &error));
  CHECK_INT_EQ(cyto_bind_output(context, 0, (void *)(uintptr_t)out, CLASSES * 4, &error), 0);
  for (int i = 0; i < 3; i++) {
    int waits = mock->waits;
    CHECK_INT_EQ(run(context, cuda, 1, (void *)(uintptr_t)in, &result, &error), 0);
    CHECK_INT_EQ(mock->waits - waits, 0);
  }
  CHECK_INT_EQ(cyto_bind_output(context, 0, NULL, 0, &error), 0); /* in host memory: it must be there */
  int waits = mock->waits;
  CHECK_INT_EQ(run(context, cuda, 1, (void *)(uintptr_t)in, &result, &error), 0);
  CHECK(mock->waits > waits && !memcmp(result.data, (void *)(uintptr_t)out, CLASSES * 4));
  cyto_context_destroy(context);
  cyto_model_unload(cuda);
  CHECK_INT_EQ(mock->streams, 1);
  own.stream_destroy(stream);
  device_tensors_free(in, out);
}

/* One loaded model on two devices in turns: kernels, weights and memory of each are its own. */
static void test_devices(void) {
  cyto_model *cuda = load("cuda.so"), *cpu = load("cpu.so");
  cyto_context *on[3] = {NULL, NULL, NULL}, *on_cpu = NULL;
  cyto_error error;
  mock->devices = 2;
  CHECK_REQUIRE(cuda && cpu && !cyto_context_create(cpu, NULL, &on_cpu, &error));
  for (int i = 0; i < 3; i++)
    if (cyto_context_create(cuda, &(cyto_options){.device = i % 2}, &on[i], &error))
      CHECK_FAIL("%s", error.message);
  CHECK_INT_EQ(mock->retained, 2);
  for (int i = 0; i < 9; i++) {
    new_image((unsigned)i);
    compare(on[i % 3], cuda, on_cpu, cpu, 1 + i % 2, 1e-4f);
  }
  char said[300];
  cyto_context_describe(on[1], said, sizeof said);
  CHECK_STR_HAS(said, "device 1 'Mock GPU' (sm_89), driver for CUDA 13.0, kernels: sm_80");
  for (int i = 0; i < 3; i++)
    cyto_context_destroy(on[i]);
  cyto_context_destroy(on_cpu);
  cyto_model_unload(cuda);
  cyto_model_unload(cpu);
  mock->devices = 1;
  CHECK_INT_EQ(mock->blocks + mock->pinned + mock->streams + mock->modules + mock->retained + mock->graphs, 0);
}

/* A context on device 1 is bound to memory of device 0, which it reaches only where the driver moves it. */
static void test_other_device(void) {
  uint64_t in = 0, out = 0;
  device_tensors(&in, &out, 1);
  cyto_model *cuda = load("cuda.so");
  cyto_context *context = NULL;
  cyto_options options = {.device = 1, .device_memory = 1};
  cyto_tensor result;
  cyto_error error;
  mock->devices = 2;
  CHECK_REQUIRE(cuda && !cyto_context_create(cuda, &options, &context, &error));
  CHECK_INT_EQ(run(context, cuda, 1, (void *)(uintptr_t)in, &result, &error), CYTO_INVALID_ARGUMENT);
  CHECK_STR_HAS(error.message, "' is bound to memory of device 0, expected memory of device 1, where the context runs");
  mock->managed = 1;
  CHECK_INT_EQ(run(context, cuda, 1, (void *)(uintptr_t)in, &result, &error), 0);
  mock->managed = 0;
  cyto_context_destroy(context);
  cyto_model_unload(cuda);
  device_tensors_free(in, out);
  mock->devices = 1;
}

/* Runs on the driver's default stream, which cannot be recorded, and on one that waits for it, which another thread's use
 * of the default stream spoils a recording of: both are recorded on the context's own. */
static void test_legacy_stream(void) {
  cyto_model *cuda = load("cuda.so"), *cpu = load("cpu.so");
  cyto_context *context = NULL, *on_cpu = NULL;
  cyto_error error;
  void *streams[2] = {(void *)1, NULL}, *popped;
  int before = mock->recordings, replays = mock->replays;
  open_own();
  own.push((void *)40);
  own.stream_create(&streams[1], 0);
  mock->legacy_busy = 1;
  CHECK_REQUIRE(cuda && cpu && !cyto_context_create(cpu, NULL, &on_cpu, &error));
  for (int s = 0; s < 2; s++) {
    CHECK_REQUIRE(!cyto_context_create(cuda, &(cyto_options){.stream = streams[s]}, &context, &error));
    for (int i = 0; i < 3; i++)
      compare(context, cuda, on_cpu, cpu, 2, 1e-4f);
    cyto_context_destroy(context);
  }
  CHECK_INT_EQ(mock->recordings - before, 2);
  CHECK_INT_EQ(mock->replays - replays, 4);
  mock->legacy_busy = 0;
  own.stream_destroy(streams[1]);
  own.pop(&popped);
  cyto_context_destroy(on_cpu);
  cyto_model_unload(cuda);
  cyto_model_unload(cpu);
}

/* Devices at once: a thread for each, with contexts of one loaded model. */
typedef struct device_thread {
  pthread_t thread;
  cyto_model *model;
  int number, wrong;
  float results[CLASSES];
} device_thread;

static void *run_on_device(void *data) {
  device_thread *t = data;
  for (int i = 0; i < 4; i++) {
    cyto_context *context = NULL;
    cyto_tensor result;
    t->wrong |= cyto_context_create(t->model, &(cyto_options){.device = t->number}, &context, NULL) != CYTO_OK;
    for (int n = 0; n < 4 && !t->wrong; n++) {
      t->wrong |= run(context, t->model, 1, image, &result, NULL) != CYTO_OK;
      if (!t->wrong && n + i > 0)
        t->wrong |= memcmp(result.data, t->results, sizeof t->results) != 0;
      else if (!t->wrong)
        memcpy(t->results, result.data, sizeof t->results);
    }
    cyto_context_destroy(context);
  }
  return NULL;
}

static void test_threads(void) {
  enum { DEVICES = 2 };
  device_thread threads[DEVICES] = {{0}};
  cyto_model *cuda = load("cuda.so");
  mock->devices = DEVICES;
  CHECK_REQUIRE(cuda);
  for (int i = 0; i < DEVICES; i++) {
    threads[i] = (device_thread){.model = cuda, .number = i};
    CHECK_REQUIRE(!pthread_create(&threads[i].thread, NULL, run_on_device, &threads[i]));
  }
  for (int i = 0; i < DEVICES; i++) {
    pthread_join(threads[i].thread, NULL);
    CHECK(!threads[i].wrong && !memcmp(threads[i].results, threads[0].results, sizeof threads[0].results));
  }
  cyto_model_unload(cuda);
  mock->devices = 1;
  CHECK_INT_EQ(mock->blocks + mock->modules + mock->retained, 0);
}

/* Memory that is missing only when the model runs; afterwards the context works as before. */
static void test_memory(void) {
  cyto_model *cuda = load("cuda.so");
  cyto_context *context = NULL;
  cyto_tensor result;
  cyto_error error;
  char expected[100];
  CHECK_REQUIRE(cuda && !cyto_context_create(cuda, NULL, &context, &error));
  mock->memory = mock->used + 1000;
  CHECK_INT_EQ(run(context, cuda, 2, image, &result, &error), CYTO_OUT_OF_MEMORY);
  snprintf(expected, sizeof expected, " bytes needed, 1000 free of %zu", mock->memory);
  CHECK_STR_HAS(error.message, "no device memory for intermediate tensors: ");
  CHECK_STR_HAS(error.message, expected);
  mock->memory = (size_t)1 << 32;
  mock->host_limit = 1;
  mock->pinned++;
  CHECK_INT_EQ(run(context, cuda, 2, image, &result, &error), CYTO_OUT_OF_MEMORY);
  CHECK_STR_HAS(error.message, "no pinned host memory for inputs and outputs: ");
  mock->pinned--;
  mock->host_limit = 0;
  CHECK_INT_EQ(run(context, cuda, 2, image, &result, &error), 0);
  cyto_context_destroy(context);
  cyto_model_unload(cuda);
  mock->host_limit = 1;
  expect_error(NULL, CYTO_OUT_OF_MEMORY, "no pinned host memory for copying the model's weights: ");
  mock->host_limit = 0;
  CHECK_INT_EQ(mock->blocks + mock->pinned + mock->streams + mock->modules + mock->retained, 0);
}

/* More weights than the pinned memory that they go through. */
static void test_large_weights(void) {
  enum { K = 16, N = 300000 }; /* 19.2 MB */
  static const char text[] = "graph @g(%x: f32[1,16]) {\n  @w = const f32[16,300000] data(3)\n"
                             "  %y = matmul %x, @w : f32[1,300000]\n  return %y\n}\n";
  cyto_tensor out[2];
  cyto_context *contexts[2] = {NULL, NULL};
  cyto_error error;
  static const char *const targets[2] = {"sm_80", "native"}, *const names[2] = {"large.so", "large-cpu.so"};
  const int64_t dims[2] = {1, K};
  int copies = mock->copies_in;
  write_file("large.txt", text, sizeof text - 1);
  for (int i = 0; i < 2; i++) {
    char command[4 * PATH_MAX];
    snprintf(command, sizeof command, "%s/cytoc %s -o %s --target=%s", build, path_of("large.txt"), path_of(names[i]),
             targets[i]);
    CHECK_REQUIRE(!system(command));
    cyto_model *model = load(names[i]);
    CHECK_REQUIRE(model && !cyto_context_create(model, NULL, &contexts[i], &error));
    CHECK_INT_EQ(cyto_bind_input(contexts[i], 0, CYTO_F32, 2, dims, image, &error), 0);
    CHECK_INT_EQ(cyto_run(contexts[i], &error), 0);
    CHECK_INT_EQ(cyto_output(contexts[i], 0, &out[i], &error), 0);
    cyto_model_unload(model);
  }
  CHECK_INT_EQ(mock->copies_in - copies, 3 + 1); /* 8 MB each; the input */
  float worst = 0;
  for (int i = 0; i < N; i++)
    worst = fmaxf(worst, fabsf(((float *)out[0].data)[i] - ((float *)out[1].data)[i]));
  CHECK(worst < 1e-5f);
  for (int i = 0; i < 2; i++)
    cyto_context_destroy(contexts[i]);
}

static void test_errors(void) {
  static const struct {
    int code, status;
    const char *text;
  } init[] = {{100, CYTO_NO_DEVICE, "no CUDA device is visible"},
              {34, CYTO_NO_DEVICE, "stub"},
              {803, CYTO_NO_DEVICE, "reboot"},
              {804, CYTO_NO_DEVICE, "compatibility libraries"},
              {3, CYTO_NO_DEVICE, "fork earlier"},
              {802, CYTO_NO_DEVICE, "nvidia-fabricmanager"},
              {999, CYTO_RUNTIME_FAILURE, "cuInit"}},
    loading[] = {
        {200, CYTO_BAD_LIBRARY, "are of a newer CUDA than the driver's: update the driver, or compile with an older"},
        {209, CYTO_BAD_LIBRARY, "are of a newer CUDA than the driver's: update the driver, or compile with an older"},
        {221, CYTO_BAD_LIBRARY, "libnvidia-ptxjitcompiler.so.1 of the driver is missing"},
        {2, CYTO_OUT_OF_MEMORY, "(cuModuleLoadDataEx): CUDA_ERROR_OUT_OF_MEMORY (2): 4294967296 bytes of the "},
        {999, CYTO_RUNTIME_FAILURE, "loading code for sm_80 by a driver for CUDA 13.0 (cuModuleLoadDataEx): "},
        {218, CYTO_BAD_LIBRARY, "the driver cannot translate the model's PTX"},
        {222, CYTO_BAD_LIBRARY, "the model's PTX is newer than the driver: update the driver"}};
  for (int i = 0; i < CHECK_COUNT(init); i++) {
    mock->init_code = init[i].code;
    expect_error(NULL, init[i].status, init[i].text);
  }
  mock->init_code = 0;
  for (int i = 0; i < CHECK_COUNT(loading); i++) {
    mock->load_code = loading[i].code;
    expect_error(NULL, loading[i].status, loading[i].text);
  }
  mock->load_code = 218;
  mock->load_log = "line 7; error: unknown instruction";
  expect_error(NULL, CYTO_BAD_LIBRARY, "cannot translate the model's PTX: line 7; error: unknown instruction");
  mock->load_code = 0;
  mock->capability = 75; /* older than everything in the library */
  expect_error(NULL, CYTO_BAD_LIBRARY,
               "the model has code for sm_80, sm_90a, PTX of compute_80, but device 0 ('Mock GPU') is sm_75");
  mock->capability = 89;
  expect_error(&(cyto_options){.device = 3}, CYTO_INVALID_ARGUMENT, "device 3 does not exist");
  mock->devices = 0;
  expect_error(NULL, CYTO_NO_DEVICE, "no CUDA device is visible");
  mock->devices = 1;
  mock->memory = 1000;
  expect_error(NULL, CYTO_OUT_OF_MEMORY, "no device memory for the model's weights");
  expect_error(NULL, CYTO_OUT_OF_MEMORY, "bytes needed, 1000 free of 1000");
  mock->memory = (size_t)1 << 32;
  CHECK_INT_EQ(mock->blocks + mock->streams + mock->modules + mock->retained, 0);
}

/* A driver of another age: in a process of its own, as this one has the mock. */
static void test_old_driver(void) {
  char command[4 * PATH_MAX], said[2000] = "";
  CHECK_REQUIRE(!run_command("mkdir -p %s && cc -shared -x c /dev/null -Wl,-soname,libcuda.so.1 -o %s/%s", path_of("old"),
                             path_of("old"), "libcuda.so.1"));
  snprintf(command, sizeof command, "LD_LIBRARY_PATH=%s %s/cyto-run %s --random 1 2>&1", path_of("old"), build,
           path_of("cuda.so"));
  FILE *f = popen(command, "r");
  CHECK_REQUIRE(f);
  said[fread(said, 1, sizeof said - 1, f)] = 0;
  CHECK(pclose(f) != 0);
  CHECK_STR_HAS(said, "libcuda.so.1 has no 'cuInit': update the NVIDIA driver to 525 or newer");
}

/* A library with a flipped bit in a packed image, at one place after the other: never another model's results. */
static void test_damaged_images(void) {
  size_t n = 0, at = 0, bytes = 0;
  char *file = read_file("cuda.so", &n);
  CHECK_REQUIRE(file && find_section(file, ".cyto_cuda", &at, &bytes));
  cyrt_cuda_images *images = (cyrt_cuda_images *)(file + at);
  int unpacked = 0, checked = 0;
  CHECK_REQUIRE(images->count == 3);
  mock->capability = 80;
  for (int i = 0; i < 12; i++) {
    char *byte = file + at + images->image[0].offset + (uint64_t)i * images->image[0].packed_bytes / 12;
    *byte ^= 16;
    write_file("damaged.so", file, n);
    *byte ^= 16;
    cyto_model *model = load("damaged.so");
    cyto_context *context = NULL;
    cyto_error error = {0};
    CHECK_INT_EQ(cyto_context_create(model, NULL, &context, &error), CYTO_BAD_LIBRARY);
    CHECK_STR_HAS(error.message, "the library is damaged: its device code for sm_80 ");
    unpacked += strstr(error.message, "cannot be unpacked") != NULL;
    checked += strstr(error.message, "another checksum") != NULL;
    cyto_context_destroy(context);
    cyto_model_unload(model);
    unlink(path_of("damaged.so"));
  }
  mock->capability = 89;
  CHECK_INT_EQ(unpacked + checked, 12);
  CHECK(unpacked && checked);
  images->image[0].bytes = (uint64_t)1 << 40;
  write_file("damaged.so", file, n);
  mock->capability = 80;
  cyto_model *model = load("damaged.so");
  cyto_context *context = NULL;
  cyto_error error = {0};
  CHECK_INT_EQ(cyto_context_create(model, NULL, &context, &error), CYTO_BAD_LIBRARY);
  CHECK_STR_HAS(error.message, "has an impossible size");
  mock->capability = 89;
  cyto_model_unload(model);
  free(file);
}

/* Newer devices than any image take the PTX; the same generation takes the cubin. Both just run. */
static void test_images(void) {
  static const int capabilities[] = {80, 86, 90, 120};
  cyto_error error;
  for (int i = 0; i < CHECK_COUNT(capabilities); i++) {
    cyto_model *model = load("cuda.so");
    cyto_context *context = NULL;
    mock->capability = capabilities[i];
    if (cyto_context_create(model, NULL, &context, &error))
      CHECK_FAIL("sm_%d: %s", capabilities[i], error.message);
    cyto_context_destroy(context);
    cyto_model_unload(model);
  }
  mock->capability = 89;
}

/* Compiles a graph for a device and for a CPU, runs both, and compares. */
static void compare_graph(const char *graph, const char *for_cuda, const char *for_cpu, float tolerance) {
  const char *const options[] = {for_cuda, for_cpu}, *const names[] = {"p.so", "q.so"};
  char command[200];
  cyto_context *context[2] = {NULL, NULL};
  cyto_model *model[2];
  cyto_error error;
  write_file("graph.txt", graph, strlen(graph));
  for (int i = 0; i < 2; i++) {
    snprintf(command, sizeof command, "%%s/cytoc %%s -o %%s %s", options[i]);
    CHECK_REQUIRE(!run_command(command, build, path_of("graph.txt"), path_of(names[i])));
    model[i] = load(names[i]);
    CHECK_REQUIRE(model[i]);
    if (cyto_context_create(model[i], NULL, &context[i], &error)) {
      CHECK_FAIL("%s: %s", options[i], error.message);
      return;
    }
  }
  compare(context[0], model[0], context[1], model[1], MAX_BATCH, tolerance);
  for (int i = 0; i < 2; i++) {
    cyto_context_destroy(context[i]);
    cyto_model_unload(model[i]);
  }
}

/* A product by tensor maps on sm_90a, and one whose rows are no multiples of 16 bytes: by the kernel beside. */
static void test_tensors(void) {
  static const int depths[] = {128, 132};
  char graph[400];
  mock->capability = 90;
  for (int i = 0; i < CHECK_COUNT(depths); i++) {
    snprintf(graph, sizeof graph,
             "graph @product(%%x: f32[rows,%d]) {\n  @w = const f16[%d,4864] data(7)\n  %%h = cast %%x : f16[rows,%d]\n"
             "  %%p = matmul %%h, @w : f16[rows,4864]\n  %%y = cast %%p : f32[rows,4864]\n  return %%y\n}\n",
             depths[i], depths[i], depths[i]);
    int before = mock->maps;
    compare_graph(graph, "--target=sm_90a", "--target=native", 2e-2f);
    CHECK_INT_EQ(mock->maps - before, depths[i] % 8 ? 0 : 2);
  }
  int before = mock->maps; /* rows so few that blocks share k in its place */
  compare_graph(
      "graph @product(%x: f32[rows,512]) {\n  @w = const f16[512,640] data(7)\n  %h = cast %x : f16[rows,512]\n"
      "  %p = matmul %h, @w : f16[rows,640]\n  %y = cast %p : f32[rows,640]\n  return %y\n}\n",
      "--target=sm_90a", "--target=native", 2e-2f);
  CHECK_INT_EQ(mock->maps - before, 0);
  before = mock->maps; /* a convolution, by patches of the output and shifted boxes of the input */
  compare_graph("graph @conv(%x: f32[rows,1,15,14]) {\n  @w = const f16[66,64,1,3] data(7)\n"
                "  @v = const f32[64,1,1] data(5)\n  %m = mul %x, @v : f32[rows,64,15,14]\n"
                "  %h = cast %m : f16[rows,64,15,14]\n  %c = conv %h, @w {strides=[1,1], pads=[0,1,0,1], "
                "dilations=[1,1], group=1} : f32[rows,66,15,14]\n  return %c\n}\n",
                "--target=sm_90a --cudnn=off", "--target=native", 2e-2f);
  CHECK_INT_EQ(mock->maps - before, 2);
  before = mock->maps; /* of 8-bit integers */
  compare_graph("graph @product(%x: f32[rows,256]) {\n  @w = const f32[256,4864] data(7)\n"
                "  %y = matmul %x, @w : f32[rows,4864]\n  return %y\n}\n",
                "--target=sm_90a --int8", "--target=x86-64-v3 --int8 --int8-prefer=size", 1e-4f);
  CHECK_INT_EQ(mock->maps - before, 2);
  mock->capability = 89;
}

/* A sum and a maximum of many elements, each by many blocks and then by one. */
static void test_long_sums(void) {
  int before = mock->launches;
  compare_graph("graph @g(%x: f32[128]) {\n  @w = const f32[1024,128] data(3)\n  @part = const f32[] {0.001}\n"
                "  %m = mul @w, %x\n  %s = reduce_sum %m {axes=[0,1], keepdims=0}\n  %t = mul %s, @part\n"
                "  %g = reduce_max %m {axes=[0,1], keepdims=0}\n  %y = add %t, %g\n  return %y\n}\n",
                "--target=sm_80", "--target=native", 1e-4f);
  CHECK_INT_EQ(mock->launches - before, 5); /* the elements, twice two steps */
}

static const char long_rows[] =
    "graph @g(%x: f32[16]) {\n  @w = const f32[3,4375,16] data(3)\n  @low = const f32[] {-inf}\n"
    "  @not = const f32[] {nan}\n  @none = const i64[] {0}\n  @part = const i64[] {4097}\n  @one = const i64[] {1}\n"
    "  @many = const f32[] {100000}\n  @ten = const f32[] {10}\n  @zero = const f32[] {0}\n"
    "  %m = mul @w, %x\n  %r = reshape %m : f32[3,70000]\n  %i = iota {axis=1} : i64[3,70000]\n"
    "  %b = iota {axis=0} : i64[3,70000]\n  %e = lt %i, @part\n  %v = select %e, @low, %r\n";

/* Rows that many blocks share: parts of nothing but -inf, a last part that is shorter, NaN, elements that are equal. */
static void test_long_rows(void) {
  static const struct {
    const char *rest;
    int launches;
  } rows[] = {
      {"  %s = softmax %v {axis=1}\n  %y = mul %s, @many\n  return %y\n}\n", 1 + 4},
      {"  %h = cast %v : f16[3,70000]\n  %s = softmax %h {axis=1}\n  %t = cast %s : f32[3,70000]\n"
       "  %y = mul %t, @many\n  return %y\n}\n",
       1 + 4},
      {"  %y = log_softmax %r {axis=1}\n  return %y\n}\n", 1 + 4},
      {"  %y = normalize %r {axes=[1], epsilon=0.001, rms=0}\n  return %y\n}\n", 1 + 3},
      {"  %y = normalize %r {axes=[1], epsilon=0.001, rms=1}\n  return %y\n}\n", 1 + 3},
      {"  %k = eq %i, @none\n  %f = eq %b, @one\n  %fk = and %k, %f\n  %q = select %fk, @not, %v\n"
       "  %a = argmax %q {axis=1, keepdims=0, select_last=0}\n  %y = cast %a : f32[3]\n  return %y\n}\n",
       2 + 1},
      {"  %k = eq %i, @part\n  %q = select %k, @not, %v\n"
       "  %a = argmin %q {axis=1, keepdims=1, select_last=1}\n  %y = cast %a : f32[3,1]\n  return %y\n}\n",
       2 + 1},
      {"  %p = mul %r, @ten\n  %q = cast %p : i8[3,70000]\n"
       "  %a = argmax %q {axis=1, keepdims=0, select_last=0}\n  %y = cast %a : f32[3]\n  return %y\n}\n",
       1 + 1},
      {"  %p = mul %r, @ten\n  %n = max %p, @zero\n  %q = cast %n : u8[3,70000]\n"
       "  %a = argmin %q {axis=1, keepdims=0, select_last=1}\n  %y = cast %a : f32[3]\n  return %y\n}\n",
       1 + 1},
      {"  %n = min %r, @zero\n  %z = select %e, @zero, %n\n  %h = neg %z\n  %q = select %e, @zero, %h\n" /* 0 and -0 */
       "  %a = argmin %q {axis=1, keepdims=0, select_last=1}\n  %y = cast %a : f32[3]\n  return %y\n}\n",
       2 + 1},
  };
  for (int i = 0; i < CHECK_COUNT(rows); i++) {
    char graph[2000];
    int before = mock->launches;
    snprintf(graph, sizeof graph, "%s%s", long_rows, rows[i].rest);
    compare_graph(graph, "--target=sm_80", "--target=native -O0", 1e-3f);
    CHECK_INT_EQ(mock->launches - before, rows[i].launches);
  }
}

static int call(const char *name, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  int (*function)(uint64_t, uint64_t, uint64_t, uint64_t);
  void *symbol = dlsym(driver, name);
  memcpy(&function, &symbol, sizeof symbol);
  return symbol ? function(a, b, c, d) : -1;
}
#define AT(x) ((uint64_t)(uintptr_t)(x))

/* What the mock takes from the runtime a driver would take: what cannot be recorded spoils a recording. */
static void test_refusals(void) {
  static const struct {
    const char *name;
    int code;
  } rows[] = {{"cuMemAlloc_v2", 900},       {"cuMemFree_v2", 900},   {"cuMemHostAlloc", 900},
              {"cuModuleLoadDataEx", 900},  {"cuStreamCreate", 900}, {"cuStreamSynchronize", 900},
              {"cuMemcpyHtoDAsync_v2", 900}};
  uint64_t stream = 0, graph = 0, block = 0, context = 0, pageable = 0;
  CHECK_INT_EQ(call("cuMemAlloc_v2", AT(&block), 64, 0, 0), 201); /* no context is current */
  CHECK_INT_EQ(call("cuStreamCreate", AT(&stream), 1, 0, 0), 201);
  call("cuCtxPushCurrent_v2", 40, 0, 0, 0);
  CHECK_REQUIRE(!call("cuStreamCreate", AT(&stream), 1, 0, 0) && !call("cuMemAlloc_v2", AT(&block), 64, 0, 0));
  for (int i = 0; i < CHECK_COUNT(rows); i++) {
    bool copies = strstr(rows[i].name, "HtoD"), waits = strstr(rows[i].name, "Synchronize");
    CHECK_INT_EQ(call("cuStreamBeginCapture_v2", stream, 1, 0, 0), 0);
    int code = copies ? call(rows[i].name, block, AT(&pageable), 8, stream)
                      : call(rows[i].name, waits ? stream : AT(&pageable), 8, 0, 0);
    if (code != rows[i].code)
      CHECK_FAIL("%s gives %d while a stream is recorded", rows[i].name, code);
    CHECK_INT_EQ(call("cuStreamEndCapture", stream, AT(&graph), 0, 0), 901);
  }
  CHECK_INT_EQ(call("cuStreamEndCapture", stream, AT(&graph), 0, 0), 903);
  CHECK_INT_EQ(call("cuMemFree_v2", block, 0, 0, 0), 0);
  CHECK_INT_EQ(call("cuStreamDestroy_v2", stream, 0, 0, 0), 0);
  call("cuCtxPopCurrent_v2", AT(&context), 0, 0, 0);
}

/* A kernel that failed shows when the run is waited for; what follows says so, too. */
static void test_broken(void) {
  static const struct {
    int code;
    const char *text;
  } rows[] = {{700, "compute-sanitizer tells which"}, {719, "cannot use the device"}, {702, "has a display"}};
  cyto_model *cuda = load("cuda.so");
  cyto_context *context = NULL;
  cyto_tensor result;
  cyto_error error;
  CHECK_REQUIRE(cuda && !cyto_context_create(cuda, NULL, &context, &error));
  for (int i = 0; i < CHECK_COUNT(rows); i++) {
    mock->wait_code = rows[i].code;
    CHECK_INT_EQ(run(context, cuda, 1, image, &result, &error), CYTO_RUNTIME_FAILURE);
    CHECK_STR_HAS(error.message, rows[i].text);
  }
  CHECK_INT_EQ(run(context, cuda, 1, image, &result, &error), 0);
  cyto_context_destroy(context);
  cyto_model_unload(cuda);
}

/* In a process of its own: the last model goes when the driver takes no calls any more, as while a process ends, and the
 * application's context stays the current one; the driver's library stays though nobody has it open. */
static int unload_late(void) {
  char path[PATH_MAX + 40];
  void *popped = NULL;
  cyto_context *context = NULL;
  cyto_error error;
  snprintf(path, sizeof path, "%s/tests/cuda/mock/libcuda.so.1", build);
  open_own();
  own.push((void *)41);
  cyto_model *model = load("cuda.so");
  if (!model || cyto_context_create(model, NULL, &context, &error))
    return 1;
  cyto_context_destroy(context);
  mock->push_code = 4;
  cyto_model_unload(model);
  mock->push_code = 0;
  if (own.pop(&popped) || popped != (void *)41)
    return 2;
  dlclose(driver);
  return dlopen(path, RTLD_NOW | RTLD_NOLOAD) ? 0 : 3;
}

static void test_unload_late(void) {
  int status = 0;
  pid_t child = fork();
  if (!child)
    _exit(unload_late());
  CHECK_REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
  CHECK_INT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
}

static const check_test tests[] = {
    {"no driver", test_no_driver},
    {"*open mock", open_mock},
    {"refusals", test_refusals},
    {"run, record, replay", test_run_record_replay},
    {"errors", test_errors},
    {"old driver", test_old_driver},
    {"images", test_images},
    {"tensors", test_tensors},
    {"long sums", test_long_sums},
    {"long rows", test_long_rows},
    {"damaged images", test_damaged_images},
    {"device memory", test_device_memory},
    {"recordings", test_recordings},
    {"stream", test_stream},
    {"devices", test_devices},
    {"other device", test_other_device},
    {"legacy stream", test_legacy_stream},
    {"broken", test_broken},
    {"unload late", test_unload_late},
    {"threads", test_threads},
    {"memory", test_memory},
    {"large weights", test_large_weights},
};

static int prepare(void) {
  int rc = run_command("%s/cytoc examples/digits/digits.onnx -o %s --target=%s", build, path_of("cuda.so"),
                       "sm_80,sm_90a --cudnn=off") ||
           run_command("%s/cytoc examples/digits/digits.onnx -o %s --target=%s", build, path_of("cpu.so"), "native");
  if (rc)
    fprintf(stderr, "cytoc failed\n");
  return rc;
}

int main(int argc, char **argv) { return models_main(argc, argv, tests, CHECK_COUNT(tests), prepare); }
