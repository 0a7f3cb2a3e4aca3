/* model_test.c - whole CUDA models without a GPU: cytoc with a mock NVRTC, the runtime on a mock driver, against the
 * CPU target.
 *
 * examples/digits is compiled for both targets. The CUDA library is run one by one, recorded and replayed, at several
 * batch sizes and on memory of the device; then everything that can be missing or wrong is, one after the other.
 * Started from the root of the repository, as all tests; without a C compiler for the mock's kernels all is skipped.
 */
#define _GNU_SOURCE
#include "runtime/cyto.h"
#include "tests/check.h"
#include "tests/cuda/mock_cuda.h"

#include <dlfcn.h>
#include <elf.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_BATCH = 5, PIXELS = 28 * 28, CLASSES = 10 };

static char build[PATH_MAX], dir[CHECK_PATH];
static mock_cuda_state *mock;
static void *driver;
static float image[MAX_BATCH * PIXELS];

/* ---- helpers ---- */

static int run_command(const char *format, const char *a, const char *b, const char *c) {
  char command[3 * PATH_MAX];
  snprintf(command, sizeof command, format, a, b, c);
  return system(command);
}

static const char *path_of(const char *name) {
  static char path[4][PATH_MAX];
  static int next;
  char *p = path[next++ % 4];
  snprintf(p, PATH_MAX, "%s/%s", dir, name);
  return p;
}

static char *read_file(const char *name, size_t *out_bytes) {
  FILE *f = fopen(path_of(name), "rb");
  char *bytes = NULL;
  if (f && !fseek(f, 0, SEEK_END) && (bytes = malloc((size_t)ftell(f)))) {
    *out_bytes = (size_t)ftell(f);
    rewind(f);
    *out_bytes = fread(bytes, 1, *out_bytes, f);
  }
  if (f)
    fclose(f);
  return bytes;
}

static void write_file(const char *name, const char *bytes, size_t n) {
  FILE *f = fopen(path_of(name), "wb");
  if (!f || fwrite(bytes, 1, n, f) != n)
    CHECK_FAIL("%s cannot be written", name);
  if (f)
    fclose(f);
}

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

static cyto_model *load(const char *name) {
  cyto_model *model = NULL;
  cyto_error error;
  if (cyto_model_load(path_of(name), &model, &error))
    CHECK_FAIL("%s: %s", name, error.message);
  return model;
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
  CHECK_INT_EQ(mock->uploads, 1); /* both contexts have the same weights */
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

static void test_device_memory(void) {
  int (*alloc)(uint64_t *, size_t), (*push)(void *), (*release)(uint64_t);
  void *symbols[3] = {dlsym(driver, "cuMemAlloc_v2"), dlsym(driver, "cuCtxPushCurrent_v2"),
                      dlsym(driver, "cuMemFree_v2")};
  memcpy(&alloc, &symbols[0], sizeof alloc);
  memcpy(&push, &symbols[1], sizeof push);
  memcpy(&release, &symbols[2], sizeof release);
  uint64_t in = 0, out = 0;
  push((void *)1);
  alloc(&in, PIXELS * 4);
  alloc(&out, CLASSES * 4);
  memcpy((void *)(uintptr_t)in, image, PIXELS * 4);
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
  release(in);
  release(out);
}

static void test_errors(void) {
  static const struct {
    int code, status;
    const char *text;
  } init[] = {{100, CYTO_NO_DEVICE, "no CUDA device is visible"},
              {34, CYTO_NO_DEVICE, "stub"},
              {803, CYTO_NO_DEVICE, "reboot"},
              {999, CYTO_RUNTIME_FAILURE, "cuInit"}};
  for (int i = 0; i < CHECK_COUNT(init); i++) {
    mock->init_code = init[i].code;
    expect_error(NULL, init[i].status, init[i].text);
  }
  mock->init_code = 0;
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

/* What cytoc says when it cannot compile for CUDA. */
static void test_compile_errors(void) {
  static const struct {
    const char *environment, *options, *text;
  } rows[] = {
      {"CYTO_NVRTC=/nowhere", "--target=sm_89", "pip install nvidia-cuda-nvrtc"},
      {"CY_MOCK_NVRTC_MAJOR=11", "--target=sm_89", "libnvrtc is version 11.0: install version 12 or 13"},
      {"", "--target=sm_70", "'sm_70' is no architecture that is supported; expected"},
      {"", "--target=sm_70", "cuda, or sm_75, sm_80, sm_86"},
      {"", "--target=sm_75,sm_80 --tf32", "multiplies matrices of tf32, which sm_75 lacks; sm_80 and newer have it"},
      {"", "--target=native --tf32", "--tf32 is for CUDA"},
      {"", "--target=native --emit=cu", "code of CUDA devices"},
  };
  for (int i = 0; i < CHECK_COUNT(rows); i++) {
    char command[3 * PATH_MAX], said[4000] = "";
    snprintf(command, sizeof command, "%s %s/cytoc examples/digits/digits.onnx -o %s/bad.so %s 2>&1",
             rows[i].environment, build, dir, rows[i].options);
    FILE *f = popen(command, "r");
    CHECK_REQUIRE(f);
    said[fread(said, 1, sizeof said - 1, f)] = 0;
    CHECK(pclose(f) != 0);
    CHECK_STR_HAS(said, rows[i].text);
    CHECK(access(path_of("bad.so"), F_OK) != 0);
  }
}

/* The usual architectures: those that lack something are left out of what needs it, and it is said. */
static void test_left_out(void) {
  static const struct {
    const char *options, *text;
  } rows[] = {
      {"--target=cuda --tf32", "warning: the library will not run on sm_75: kernel '"},
      {"--target=cuda --tf32", "multiplies matrices of tf32, which sm_75 lacks; sm_80 and newer have it: leave out --tf32"},
      {"--target=cuda", NULL},
      {"--target=sm_80,sm_89 --tf32", NULL},
  };
  for (int i = 0; i < CHECK_COUNT(rows); i++) {
    char command[3 * PATH_MAX], said[4000] = "";
    snprintf(command, sizeof command, "%s/cytoc examples/digits/digits.onnx -o %s %s 2>&1", build, path_of("all.so"),
             rows[i].options);
    FILE *f = popen(command, "r");
    CHECK_REQUIRE(f);
    said[fread(said, 1, sizeof said - 1, f)] = 0;
    CHECK_INT_EQ(pclose(f), 0);
    if (rows[i].text)
      CHECK_STR_HAS(said, rows[i].text);
    else
      CHECK(!strstr(said, "warning"));
  }
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

/* A product by tensor maps on sm_90a, and one whose rows are no multiples of 16 bytes: by the kernel beside. */
static void test_tensors(void) {
  static const int depths[] = {128, 132};
  char graph[400];
  mock->capability = 90;
  for (int i = 0; i < CHECK_COUNT(depths); i++) {
    cyto_context *on_cuda = NULL, *on_cpu = NULL;
    cyto_error error;
    int n = snprintf(graph, sizeof graph,
                     "graph @product(%%x: f32[rows,%d]) {\n  @w = const f16[%d,4864] data(7)\n  %%h = cast %%x : "
                     "f16[rows,%d]\n  %%p = matmul %%h, @w : f16[rows,4864]\n  %%y = cast %%p : f32[rows,4864]\n  "
                     "return %%y\n}\n",
                     depths[i], depths[i], depths[i]);
    write_file("product.txt", graph, (size_t)n);
    CHECK_REQUIRE(!run_command("%s/cytoc %s -o %s --target=sm_90a", build, path_of("product.txt"), path_of("p.so")));
    CHECK_REQUIRE(!run_command("%s/cytoc %s -o %s --target=native", build, path_of("product.txt"), path_of("q.so")));
    cyto_model *cuda = load("p.so"), *cpu = load("q.so");
    CHECK_REQUIRE(cuda && cpu && !cyto_context_create(cuda, NULL, &on_cuda, &error) &&
                  !cyto_context_create(cpu, NULL, &on_cpu, &error));
    int before = mock->maps;
    compare(on_cuda, cuda, on_cpu, cpu, MAX_BATCH, 2e-2f);
    CHECK_INT_EQ(mock->maps - before, depths[i] % 8 ? 0 : 2);
    cyto_context_destroy(on_cuda);
    cyto_context_destroy(on_cpu);
    cyto_model_unload(cuda);
    cyto_model_unload(cpu);
  }
  mock->capability = 89;
}

static void open_mock(void) {
  char path[PATH_MAX + 40];
  snprintf(path, sizeof path, "%s/tests/cuda/mock/libcuda.so.1", build);
  driver = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* the runtime's dlopen("libcuda.so.1") finds it by its soname */
  void *symbol = driver ? dlsym(driver, "mock_cuda") : NULL;
  mock_cuda_state *(*get)(void);
  if (!symbol) {
    CHECK_FAIL("%s: %s", path, dlerror());
    return;
  }
  memcpy(&get, &symbol, sizeof get);
  mock = get();
}

static const check_test tests[] = {
    {"no driver", test_no_driver},
    {"open mock", open_mock},
    {"run, record, replay", test_run_record_replay},
    {"errors", test_errors},
    {"compile errors", test_compile_errors},
    {"left out", test_left_out},
    {"images", test_images},
    {"tensors", test_tensors},
    {"damaged images", test_damaged_images},
    {"device memory", test_device_memory},
};

int main(int argc, char **argv) {
  char self[PATH_MAX];
  if (!realpath(argv[0], self) || !check_folder("cyto-cuda", dir))
    return 1;
  snprintf(build, sizeof build, "%s", dirname(dirname(dirname(self))));
  if (system("cc --version >/dev/null 2>&1")) {
    printf("no C compiler to run kernels with\n0 passed, 0 failed, %d skipped\n", CHECK_COUNT(tests));
    return 0;
  }
  char home[PATH_MAX + 40];
  snprintf(home, sizeof home, "%s/tests/cuda/mock", build);
  setenv("CUDA_HOME", home, 1);
  int rc = run_command("%s/cytoc examples/digits/digits.onnx -o %s --target=%s", build, path_of("cuda.so"),
                       "sm_80,sm_90a") ||
           run_command("%s/cytoc examples/digits/digits.onnx -o %s --target=%s", build, path_of("cpu.so"), "native");
  if (rc)
    fprintf(stderr, "cytoc failed\n");
  else
    rc = check_main(argc, argv, tests, CHECK_COUNT(tests));
  run_command("rm -rf %s%s%s", dir, "", "");
  return rc;
}
