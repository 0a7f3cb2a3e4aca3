/* SPDX-License-Identifier: Apache-2.0 */
/* choose.h - what the tests of NVIDIA's libraries share: a model for CUDA beside the same for a CPU, the file of choices.
 *
 * A test that includes it defines alive(): how many objects of its mock library there are.
 */
#ifndef TESTS_CUDA_CHOOSE_H
#define TESTS_CUDA_CHOOSE_H

#include "tests/cuda/models.h"

#include <glob.h>
#include <sys/wait.h>

enum { MAX_ELEMS = 1 << 16 };

static char cache[PATH_MAX + 40]; /* XDG_CACHE_HOME */
static int batches = 2;           /* how many sizes both() runs */
static void *stream;              /* .. on this one; NULL: on the context's own */
static float input[MAX_ELEMS];

static int alive(void);

/* The state of the mock that lies at `path`, by its function of that name; ends the program without one. */
static void *mock_state(const char *path, const char *name) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *symbol = library ? dlsym(library, name) : NULL;
  void *(*get)(void);
  if (!symbol) {
    CHECK_FAIL("%s: %s", path, dlerror());
    exit(1);
  }
  memcpy(&get, &symbol, sizeof get);
  return get();
}

/* Checks the real library in a process of its own, as what is opened once by a name is found again. */
enum { PASSED, FAILED, ABSENT };
static void check_apart(int (*check)(void), const char *absent) {
  int status = 0;
  pid_t child = fork();
  if (!child)
    _exit(check());
  CHECK_REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == ABSENT)
    check_skipped = absent;
  else
    CHECK_INT_EQ(status, 0);
}

static void compile_as(const char *name, const char *options) {
  char command[4 * PATH_MAX];
  snprintf(command, sizeof command, "%s/cytoc %s -o %s %s -j 1", build, path_of("net.txt"), path_of(name), options);
  if (system(command))
    CHECK_FAIL("%s", command);
}

/* Makes net.so of a graph, and cpu.so to compare with, unless they are there from the last time. */
static void compile(const char *text, const char *options) {
  static const char *made;
  static char with[200];
  int same = made == text;
  if (same && !strcmp(with, options))
    return;
  made = text;
  snprintf(with, sizeof with, "%s", options);
  write_file("net.txt", text, strlen(text));
  compile_as("net.so", options);
  if (!same)
    compile_as("cpu.so", "--target=native");
}

static void new_input(unsigned seed) {
  for (int i = 0; i < MAX_ELEMS; i++) {
    seed = seed * 1664525u + 1013904223u;
    input[i] = (float)(seed >> 8) / 16777216.f - .5f;
  }
}

static cyto_status run(cyto_context *context, const cyto_model *model, int64_t batch, cyto_error *error) {
  cyto_port port;
  cyto_model_input(model, 0, &port);
  for (int i = 0; i < port.rank; i++)
    port.dims[i] = port.dims[i] < 0 ? batch : port.dims[i];
  cyto_status status = cyto_bind_input(context, 0, CYTO_F32, port.rank, port.dims, input, error);
  return status ? status : cyto_run(context, error);
}

static void compare(cyto_context *a, cyto_context *b, int32_t outputs, float limit) {
  for (int32_t k = 0; k < outputs; k++) {
    cyto_tensor x, y;
    double error = 0, size = 0;
    if (cyto_output(a, k, &x, NULL) || cyto_output(b, k, &y, NULL) || x.bytes != y.bytes) {
      CHECK_FAIL("output %d cannot be compared", k);
      return;
    }
    for (uint64_t i = 0; i < x.bytes / 4; i++) {
      double d = (double)((float *)x.data)[i] - (double)((float *)y.data)[i], w = (double)((float *)y.data)[i];
      error += d == d ? d * d : INFINITY;
      size += w * w;
    }
    if (!(sqrt(error) <= (double)limit * sqrt(size)))
      CHECK_FAIL("output %d is off by %g of %g", k, sqrt(error), sqrt(size));
  }
}

/* Runs net.so on the mocks and cpu.so, `runs` times for each batch, and compares; what the context says of itself. */
static void both(int runs, float limit, char said[1000]) {
  static const int64_t batch[] = {1, 3};
  cyto_model *cuda = load("net.so"), *cpu = load("cpu.so");
  cyto_context *on_cuda = NULL, *on_cpu = NULL;
  cyto_error error = {0};
  said[0] = 0;
  CHECK_REQUIRE(cuda && cpu);
  if (cyto_context_create(cuda, &(cyto_options){.stream = stream}, &on_cuda, &error) ||
      cyto_context_create(cpu, NULL, &on_cpu, &error))
    CHECK_FAIL("%s", error.message);
  for (int b = 0; b < batches && on_cuda && on_cpu; b++)
    for (int i = 0; i < runs; i++) {
      new_input((unsigned)(10 * b + i));
      if (run(on_cuda, cuda, batch[b], &error) || run(on_cpu, cpu, batch[b], &error))
        CHECK_FAIL("%s", error.message);
      else
        compare(on_cuda, on_cpu, cyto_model_output_count(cpu), limit);
    }
  if (on_cuda)
    cyto_context_describe(on_cuda, said, 1000);
  cyto_context_destroy(on_cuda);
  cyto_context_destroy(on_cpu);
  cyto_model_unload(cuda);
  cyto_model_unload(cpu);
  CHECK_INT_EQ(alive(), 0);
  CHECK_INT_EQ(mock->blocks + mock->events + mock->streams + mock->pinned + mock->modules + mock->graphs, 0);
}

static void forget_choices(void) { run_command("rm -rf %s%s%s", cache, "", ""); }

static char *choices_file(void) {
  static char path[2 * PATH_MAX];
  glob_t found = {0};
  char pattern[PATH_MAX + 80];
  snprintf(pattern, sizeof pattern, "%s/cytoc/cuda-*.txt", cache);
  *path = 0;
  if (!glob(pattern, 0, NULL, &found) && found.gl_pathc == 1)
    snprintf(path, sizeof path, "%s", found.gl_pathv[0]);
  globfree(&found);
  return path;
}

static void fails(int status, const char *text) {
  cyto_model *model = load("net.so");
  cyto_context *context = NULL;
  cyto_error error = {0};
  CHECK_REQUIRE(model);
  cyto_status got = cyto_context_create(model, NULL, &context, &error);
  if (!got)
    got = run(context, model, 1, &error);
  CHECK_INT_EQ(got, status);
  CHECK_STR_HAS(error.message, text);
  cyto_context_destroy(context);
  cyto_model_unload(model);
  CHECK_INT_EQ(alive(), 0);
  CHECK_INT_EQ(mock->blocks + mock->events + mock->streams + mock->pinned + mock->modules + mock->retained, 0);
}

#endif
