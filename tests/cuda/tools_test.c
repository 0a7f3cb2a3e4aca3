/* SPDX-License-Identifier: Apache-2.0 */
/* tools_test.c - what cytoc and cyto-bench do for CUDA, and say where they cannot: on the mocks of NVRTC and the driver.
 *
 * Started from the root of the repository, as all tests.
 */
#define _GNU_SOURCE
#include "tests/cuda/models.h"

/* What --emit shows: the source for all, PTX, machine code of the first architecture (here all are the mock's text). */
static void test_emit(void) {
  static const char *const kinds[] = {"cu", "ptx", "cubin"};
  CHECK_REQUIRE(!run_command("%s/cytoc examples/digits/digits.onnx -o %s --target=%s --emit=cu,ptx,cubin", build,
                             path_of("shown"), "sm_80"));
  for (int i = 0; i < CHECK_COUNT(kinds); i++) {
    char name[40];
    size_t n = 0;
    snprintf(name, sizeof name, "shown.%s", kinds[i]);
    char *text = read_file(name, &n);
    CHECK(text && n > 1000 && memmem(text, n, "CY_KERNEL(", 10));
    free(text);
  }
}

/* What cytoc says when it cannot compile for CUDA. */
static void test_compile_errors(void) {
  static const struct {
    const char *environment, *options, *text;
  } rows[] = {
      {"CYTO_NVRTC=/nowhere", "--target=sm_89", "pip install nvidia-cuda-nvrtc"},
      {"CYTO_NVRTC=/nowhere", "--target=sm_89", "or install the package 'cuda-nvrtc-13-0' (Debian: 'libnvrtc12')"},
      {"CY_MOCK_NVRTC_MAJOR=11", "--target=sm_89", "libnvrtc is version 11.0: install version 12 or 13"},
      {"", "--target=sm_70", "'sm_70' is no architecture that is supported; expected"},
      {"", "--target=sm_70", "cuda, or sm_75, sm_80, sm_86, sm_87, sm_89, sm_90, sm_90a, sm_100, "},
      {"", "--target=sm_80,sm_91", "'sm_91' is no architecture that is supported; expected"},
      {"", "--target=sm_80,", "'' is no architecture that is supported; expected"},
      {"", "--target=sm_75,sm_80 --tf32", "multiplies matrices of tf32, which sm_75 lacks; sm_80 and newer have it"},
      {"", "--target=sm_75,sm_80 --bf16", "multiplies matrices of bf16, which sm_75 lacks; sm_80 and newer have it"},
      {"", "--target=sm_75,sm_80 --bf16", "convert the model to f16, or leave sm_75 out of --target"},
      {"CY_MOCK_NVRTC_CODE=5", "--target=sm_120",
       "NVRTC 13.0 does not know 'sm_120': install a newer one (`pip install"},
      {"CY_MOCK_NVRTC_LACKS=sm_120", "--target=cuda,sm_120", "NVRTC 13.0 does not know 'sm_120'"},
      {"CY_MOCK_NVRTC_CODE=7", "--target=sm_80", "(libnvrtc-builtins of the same version is missing beside it)"},
      {"", "--target=native --tf32", "--tf32 is for CUDA"},
      {"", "--target=native --emit=cu", "code of CUDA devices"},
      {"CY_MOCK_NVRTC_LOG=\"$(printf 'ptxas info : Function properties for first\\n    0 bytes stack frame, 0 bytes "
       "spill stores, 0 bytes spill loads\\nptxas info : Function properties for second\\n    16 bytes stack frame, 0 "
       "bytes spill stores, 0 bytes spill loads\\n')\"",
       "--target=sm_80", "kernel 'second' was compiled with 16 bytes of stack and 0 bytes of spills: a bug in cytoc"},
      {"CY_MOCK_NVRTC_LOG=\"$(printf 'ptxas info : Function properties for first\\n    0 bytes stack frame, 8 bytes "
       "spill stores, 12 bytes spill loads\\n')\"",
       "--target=sm_80", "kernel 'first' was compiled with 0 bytes of stack and 8 bytes of spills: a bug in cytoc"},
      {"CY_MOCK_NVRTC_LOG=\"$(printf 'ptxas info : (C7510) Potential Performance Loss: wgmma.mma_async instructions "
       "are serialized\\n')\"",
       "--target=sm_80", "matrix instructions were serialised (C7510"},
      {"CY_MOCK_NVRTC_LOG=\"$(printf 'ptxas info : (C7511) Potential Performance Loss: wgmma.mma_async instructions "
       "are serialized\\n')\"",
       "--target=sm_80", "matrix instructions were serialised (C7511"},
      {"CY_MOCK_NVRTC_LOG=\"$(printf 'ptxas info : (C7519) Potential Performance Loss: wgmma.mma_async instructions "
       "are serialized\\n')\"",
       "--target=sm_80", "matrix instructions were serialised (C7519"},
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

/* The usual architectures: those that lack something are left out of what needs it, and it is said, as is what architectures
 * have and kernels do not use. */
static void test_left_out(void) {
  static const struct {
    const char *options, *text;
  } rows[] = {
      {"--target=cuda --tf32", "warning: the library will not run on sm_75: kernel '"},
      {"--target=cuda --tf32",
       "multiplies matrices of tf32, which sm_75 lacks; sm_80 and newer have it: leave out --tf32"},
      {"--target=cuda", NULL},
      {"--target=sm_80,sm_89 --tf32", NULL},
      {"--target=sm_90 --fp16",
       "warning: on sm_90 matrices are multiplied by mma.sync, at 62 % of the device's rate at most: "
       "sm_90a has products of warpgroups (wgmma)"},
      {"--target=sm_90", NULL}, /* products of f32 */
      {"--target=sm_90,sm_90a --fp16", NULL},
      {"--target=sm_120 --fp16", NULL},
      {"--target=sm_100a --fp16", "warning: on sm_100a matrices are multiplied by mma.sync, at 25 % "},
  };
  setenv("CY_MOCK_NVRTC_LOG",
         "Function properties for k\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n", 1);
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
  unsetenv("CY_MOCK_NVRTC_LOG");
}

/* An older NVRTC does not know all of the usual architectures: devices of these take the PTX. */
static void test_unknown_arch(void) {
  char command[3 * PATH_MAX], said[4000] = "";
  setenv("CY_MOCK_NVRTC_LACKS", "sm_120", 1);
  CHECK_INT_EQ(
      run_command("%s/cytoc examples/digits/digits.onnx -o %s --target=%s", build, path_of("older.so"), "cuda"), 0);
  unsetenv("CY_MOCK_NVRTC_LACKS");
  snprintf(command, sizeof command,
           "CYTO_CUDNN= CYTO_CUBLASLT= CY_MOCK_CAPABILITY=120 LD_LIBRARY_PATH=%s/tests/cuda/mock %s/cyto-run %s --random 1 --dim "
           "batch=1 --about 2>&1",
           build, build, path_of("older.so"));
  FILE *f = popen(command, "r");
  CHECK_REQUIRE(f);
  said[fread(said, 1, sizeof said - 1, f)] = 0;
  CHECK_INT_EQ(pclose(f), 0);
  CHECK_STR_HAS(said, "kernels: PTX of compute_80");
}

/* A kernel that spills where two of its blocks are to run at a time is compiled for one. */
static void test_spills_by_two(void) {
  setenv("CY_MOCK_NVRTC_TWO",
         "Function properties for k\n    0 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads\n", 1);
  CHECK_INT_EQ(run_command("%s/cytoc examples/digits/digits.onnx -o %s --target=%s", build, path_of("two.so"), "sm_80"),
               0);
  unsetenv("CY_MOCK_NVRTC_TWO");
}

/* One kernel for several architectures: compiled one after the other and side by side, it is the same library. */
static void test_jobs(void) {
  static const char text[] = "graph @g(%x: f32[8]) {\n  %y = tanh %x\n  return %y\n}\n";
  char *library[2];
  size_t bytes[2] = {0, 0};
  write_file("model.txt", text, sizeof text - 1);
  for (int i = 0; i < 2; i++) {
    char command[3 * PATH_MAX];
    snprintf(command, sizeof command, "cd %s && %s/cytoc model.txt -o jobs.so --target=cuda -j %d", dir, build,
             i ? 8 : 1);
    CHECK_INT_EQ(system(command), 0);
    library[i] = read_file("jobs.so", &bytes[i]);
  }
  CHECK(library[0] && bytes[0] && bytes[0] == bytes[1] && !memcmp(library[0], library[1], bytes[0]));
  free(library[0]);
  free(library[1]);
}

/* A text file; for free(). */
static char *read_text(const char *name) {
  size_t n = 0;
  char *text = read_file(name, &n);
  if (text)
    text[n - 1] = 0;
  return text;
}

/* cyto-bench of a model on the mocks; its figures. */
static char *bench(const char *environment, const char *model, const char *options) {
  char command[4 * PATH_MAX];
  snprintf(
      command, sizeof command,
      "%s LD_LIBRARY_PATH=%s/tests/cuda/mock %s/cyto-bench %s --target=cuda --seconds 0.001 --json %s %s >/dev/null",
      environment, build, build, path_of(model), path_of("bench.json"), options);
  CHECK_INT_EQ(system(command), 0);
  return read_text("bench.json");
}

/* cyto-bench on the device that is present, and where there is none. */
static void test_bench(void) {
  static const char text[] = "graph @g(%x: f32[8]) {\n  %y = tanh %x\n  return %y\n}\n";
  static const char before[] = "# Speed\n\nFigures of another day.\n";
  char command[3 * PATH_MAX], options[2 * PATH_MAX], said[4000] = "";
  write_file("tiny.txt", text, sizeof text - 1);
  write_file("results.md", before, sizeof before - 1);
  snprintf(options, sizeof options, "--against eager --results %s", path_of("results.md"));
  char *figures = bench("", "tiny.txt", options), *results = read_text("results.md");
  CHECK_REQUIRE(figures && results);
  CHECK_STR_HAS(figures, "\"device\": \"Mock GPU (sm_89), driver for CUDA 13.0\"");
  CHECK_STR_HAS(figures, "\"contender\": \"compiled -O3\"");
  CHECK_STR_HAS(figures, "\"contender\": \"eager -O0\"");
  CHECK(!strstr(figures, "failure"));
  CHECK(!strncmp(results, before, sizeof before - 1) && !strncmp(results + sizeof before - 1, "\n## ", 4));
  CHECK_STR_HAS(results, "\n\nMock GPU (sm_89), driver for CUDA 13.0; ");
  CHECK_STR_HAS(results, "--target=cuda");
  free(figures);
  free(results);
  /* a library from elsewhere: no compiler is asked for, and nobody else can run it */
  snprintf(command, sizeof command, "cd %s && %s/cytoc tiny.txt -o carried.so --target=sm_89", dir, build);
  CHECK_INT_EQ(system(command), 0);
  figures = bench("env -u CUDA_HOME", "carried.so", "");
  CHECK_REQUIRE(figures);
  CHECK_STR_HAS(figures, "\"model\": \"carried\"");
  CHECK_STR_HAS(figures, "\"contender\": \"compiled -O3\"");
  CHECK(!strstr(figures, "-O0") && !strstr(figures, "torch") && !strstr(figures, "failure"));
  free(figures);
  void *real = dlopen("/usr/lib/x86_64-linux-gnu/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (real)
    return;
  snprintf(command, sizeof command, "%s/cyto-bench %s --target=cuda 2>&1", build, path_of("tiny.txt"));
  FILE *f = popen(command, "r");
  CHECK_REQUIRE(f);
  said[fread(said, 1, sizeof said - 1, f)] = 0;
  CHECK(pclose(f) != 0);
  CHECK_STR_HAS(said, "cyto-bench: error: there is nothing to measure on: ");
  CHECK_STR_HAS(said, "the NVIDIA driver was not found");
}

static const check_test tests[] = {
    {"compile errors", test_compile_errors},
    {"left out", test_left_out},
    {"unknown architecture", test_unknown_arch},
    {"spills by two", test_spills_by_two},
    {"jobs", test_jobs},
    {"emit", test_emit},
    {"bench", test_bench},
};

int main(int argc, char **argv) { return models_main(argc, argv, tests, CHECK_COUNT(tests), NULL); }
