/* SPDX-License-Identifier: Apache-2.0 */
/* models.h - what the tests of the CUDA runtime share: models compiled into a folder of their own, the mocks.
 *
 * cytoc is led to the mock of NVRTC, the runtime to the mock driver, once the test "*open mock" has run.
 */
#ifndef TESTS_CUDA_MODELS_H
#define TESTS_CUDA_MODELS_H

#include "runtime/cyto.h"
#include "tests/check.h"
#include "tests/cuda/mock/mock_cuda.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

static char build[PATH_MAX], dir[CHECK_PATH];
static mock_cuda_state *mock;
static void *driver;

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

static inline void write_file(const char *name, const char *bytes, size_t n) {
  FILE *f = fopen(path_of(name), "wb");
  if (!f || fwrite(bytes, 1, n, f) != n)
    CHECK_FAIL("%s cannot be written", name);
  if (f)
    fclose(f);
}

static inline char *read_file(const char *name, size_t *out_bytes) {
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

static inline cyto_model *load(const char *name) {
  cyto_model *model = NULL;
  cyto_error error;
  if (cyto_model_load(path_of(name), &model, &error))
    CHECK_FAIL("%s: %s", name, error.message);
  return model;
}

static inline void open_mock(void) {
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

/* main() of a program: fills build and dir, runs the tests when prepare (NULL: nothing) has given 0, and cleans up. */
static int models_main(int argc, char **argv, const check_test *tests, int n_tests, int (*prepare)(void)) {
  char self[PATH_MAX], home[PATH_MAX + 40];
  if (!realpath(argv[0], self) || !check_folder("cyto-cuda", dir))
    return 1;
  snprintf(build, sizeof build, "%s", dirname(dirname(dirname(self))));
  if (system("cc --version >/dev/null 2>&1")) {
    printf("no C compiler to run kernels with\n0 passed, 0 failed, %d skipped\n", n_tests);
    return 0;
  }
  snprintf(home, sizeof home, "%s/tests/cuda/mock", build);
  setenv("CUDA_HOME", home, 1);
  snprintf(home, sizeof home, "%s/tests/cuda/mock/cache", build);
  run_command("mkdir -p %s%s%s", home, "", "");
  setenv("CY_MOCK_CACHE", home, 1);
  setenv("CYTO_CUDNN", "", 1); /* nor any library of the machine's */
  setenv("CYTO_CUBLASLT", "", 1);
  int rc = prepare ? prepare() : 0;
  if (!rc)
    rc = check_main(argc, argv, tests, n_tests);
  run_command("rm -rf %s%s%s", dir, "", "");
  return rc;
}

#endif
