/* SPDX-License-Identifier: Apache-2.0 */
/* test_abuse.c - what an application may do wrong, and what the world around it does: calls with NULL, files that are no
 * libraries or were damaged, small stacks, fork() and signals while a model runs, plug-ins that come and go.
 *
 * Needs rt_model_a.so and rt_plugin.so beside its own binary; and model.c linked statically as rt_model. What could
 * crash runs in a child.
 */
#define _GNU_SOURCE
#include "../check.h"
#include "cyrt.h"

#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern const cyrt_model rt_model;

/* Plug-ins bring a runtime of their own, whose symbols are the same. */
CYTO_API const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "detect_odr_violation=0"; }

/* ---- NULL ---- */

#define CHECK_NULL(call) CHECK_INT_EQ(call, CYTO_INVALID_ARGUMENT)

static void test_null_model(void) {
  cyto_error error;
  cyto_port port;
  cyto_memory memory;
  cyto_model *model = (cyto_model *)&port;
  cyto_context *context = (cyto_context *)&port;
  CHECK_NULL(cyto_model_load(NULL, &model, &error));
  CHECK(!model);
  CHECK_NULL(cyto_model_load("x", NULL, NULL));
  model = (cyto_model *)&port;
  CHECK_NULL(cyto_model_from_linked(NULL, &model, &error));
  CHECK(!model);
  CHECK_NULL(cyto_model_from_linked(&rt_model, NULL, NULL));
  CHECK_STR_EQ(cyto_model_name(NULL), "");
  CHECK_STR_EQ(cyto_model_target(NULL), "");
  CHECK_STR_EQ(cyto_model_compiler(NULL), "");
  const char *key = "k", *text = "t";
  CHECK_INT_EQ(cyto_model_metadata_count(NULL), 0);
  CHECK_NULL(cyto_model_metadata(NULL, 0, &key, &text));
  CHECK(!cyto_model_find_metadata(NULL, "k"));
  CHECK_INT_EQ(cyto_model_input_count(NULL), 0);
  CHECK_INT_EQ(cyto_model_output_count(NULL), 0);
  CHECK_NULL(cyto_model_input(NULL, 0, &port));
  CHECK_NULL(cyto_model_output(NULL, 0, &port));
  CHECK_INT_EQ(cyto_model_find_input(NULL, "left"), -1);
  CHECK_INT_EQ(cyto_model_find_output(NULL, "sum"), -1);
  CHECK_NULL(cyto_context_create(NULL, NULL, &context, &error));
  CHECK(!context);
  CHECK_NULL(cyto_memory_need(NULL, NULL, NULL, &memory, &error));
  cyto_model_unload(NULL);
  CHECK_REQUIRE(!cyto_model_from_linked(&rt_model, &model, NULL));
  CHECK_NULL(cyto_model_metadata(model, 0, NULL, &text));
  CHECK_NULL(cyto_model_metadata(model, 0, &key, NULL));
  CHECK(!cyto_model_find_metadata(model, NULL));
  CHECK_NULL(cyto_model_input(model, 0, NULL));
  CHECK_NULL(cyto_model_output(model, 0, NULL));
  CHECK_INT_EQ(cyto_model_find_input(model, NULL), -1);
  CHECK_INT_EQ(cyto_model_find_output(model, NULL), -1);
  CHECK_NULL(cyto_context_create(model, NULL, NULL, NULL));
  CHECK_NULL(cyto_memory_need(model, NULL, NULL, NULL, NULL));
  cyto_model_unload(model);
}

static void test_null_context(void) {
  cyto_error error;
  cyto_tensor tensor;
  cyto_value value;
  char text[100] = "left";
  cyto_model *model;
  cyto_context *context;
  int64_t dims[] = {2, 4};
  CHECK_NULL(cyto_bind_input(NULL, 0, CYTO_F32, 0, NULL, NULL, &error));
  CHECK_STR_HAS(error.message, "no context");
  CHECK_NULL(cyto_bind_value(NULL, 0, NULL, NULL));
  CHECK_NULL(cyto_bind_output(NULL, 0, NULL, 0, &error));
  CHECK_NULL(cyto_context_prepare(NULL, &error));
  CHECK_NULL(cyto_run(NULL, NULL));
  CHECK_NULL(cyto_output(NULL, 0, &tensor, &error));
  CHECK_NULL(cyto_output_value(NULL, 0, &value, &error));
  cyto_context_describe(NULL, text, sizeof text);
  CHECK_STR_EQ(text, "");
  cyto_context_destroy(NULL);
  CHECK_REQUIRE(!cyto_model_from_linked(&rt_model, &model, &error));
  CHECK_REQUIRE(!cyto_context_create(model, NULL, &context, &error));
  CHECK_INT_EQ(cyto_bind_input(context, 0, CYTO_F32, 2, NULL, text, NULL), CYTO_SHAPE_MISMATCH);
  CHECK_NULL(cyto_bind_input(context, 0, CYTO_F32, 2, dims, NULL, NULL));
  CHECK_NULL(cyto_bind_value(context, 0, NULL, NULL));
  CHECK_NULL(cyto_output(context, 0, NULL, NULL));
  CHECK_NULL(cyto_output_value(context, 0, NULL, &error));
  cyto_context_describe(context, NULL, 10);
  cyto_context_describe(context, text, 1);
  CHECK_STR_EQ(text, "");
  cyto_context_destroy(context);
  cyto_model_unload(model);
}

static void test_null_others(void) {
  const void *inputs[3] = {NULL};
  void *outputs[3] = {NULL};
  cyto_error error;
  int64_t symbol = 2;
  CHECK_NULL(cyto_run_simple(NULL, NULL, inputs, &symbol, outputs, &error));
  CHECK_NULL(cyto_run_simple(&rt_model, NULL, NULL, &symbol, outputs, &error));
  CHECK_NULL(cyto_run_simple(&rt_model, NULL, inputs, &symbol, NULL, &error));
  CHECK_NULL(cyto_run_simple(&rt_model, NULL, inputs, &symbol, outputs, NULL));
  CHECK_INT_EQ(cyto_run_simple(&rt_model, NULL, inputs, NULL, outputs, NULL), CYTO_SHAPE_MISMATCH);
  CHECK_INT_EQ(cyto_tensor_bytes(CYTO_F32, 2, NULL), -1);
  CHECK_INT_EQ(cyto_tensor_bytes(CYTO_F32, -1, NULL), -1);
}

/* ---- arguments that do not fit ---- */

/* Aligned to 8 bytes, and no more. */
static void *crooked_alloc(void *user, size_t bytes, size_t alignment) {
  char *block = aligned_alloc(alignment, (bytes + 2 * alignment) / alignment * alignment);
  ++*(int *)user;
  return block ? block + 8 : NULL;
}

static void crooked_release(void *user, void *ptr, size_t bytes) {
  (void)bytes;
  --*(int *)user;
  free((char *)ptr - 8);
}

/* Memory that is not aligned is given back, and not used. */
static void test_crooked_allocator(void) {
  int live = 0;
  cyto_options options = {.threads = 1, .allocator = {crooked_alloc, crooked_release, &live}};
  cyto_model *model;
  cyto_context *context;
  CHECK_REQUIRE(!cyto_model_from_linked(&rt_model, &model, NULL));
  CHECK_INT_EQ(cyto_context_create(model, &options, &context, NULL), CYTO_OUT_OF_MEMORY);
  CHECK_INT_EQ(live, 0);
  options.allocator.release = NULL;
  CHECK_NULL(cyto_context_create(model, &options, &context, NULL));
  options = (cyto_options){.threads = -1};
  CHECK_NULL(cyto_context_create(model, &options, &context, NULL));
  cyto_model_unload(model);
}

/* ---- running, with results that are checked ---- */

enum { ROWS = 100 };
static const int64_t shape[] = {ROWS, 4};
static float left[ROWS * 4], right[ROWS * 4];

static cyto_status bind_both(cyto_context *context) {
  cyto_status status = cyto_bind_input(context, 0, CYTO_F32, 2, shape, left, NULL);
  return status ? status : cyto_bind_input(context, 1, CYTO_F32, 2, shape, right, NULL);
}

static cyto_context *open_context(cyto_model *model, int32_t threads) {
  cyto_options options = {.threads = threads};
  cyto_context *context = NULL;
  for (int i = 0; i < ROWS * 4; i++)
    left[i] = (float)(i + 1);
  if (!cyto_context_create(model, &options, &context, NULL) && bind_both(context)) {
    cyto_context_destroy(context);
    context = NULL;
  }
  return context;
}

/* True: the outputs are what they should be. */
static int runs(cyto_context *context) {
  cyto_tensor sum;
  if (cyto_run(context, NULL) || cyto_output(context, 0, &sum, NULL))
    return 0;
  return sum.dims[0] == ROWS && memcmp(sum.data, left, sizeof left) == 0;
}

static cyto_context *open_linked(int32_t threads) {
  cyto_model *model;
  if (cyto_model_from_linked(&rt_model, &model, NULL))
    return NULL;
  cyto_context *context = open_context(model, threads);
  cyto_model_unload(model);
  return context;
}

/* The cache of one model is no good for another; unloaded models live on in their contexts. */
static void test_cache_of_another(void) {
  cyrt_model other = rt_model;
  cyto_context *context = open_linked(1), *cache = context;
  const void *inputs[3] = {left, right, NULL};
  void *outputs[3] = {NULL};
  const int64_t symbol = ROWS;
  CHECK_REQUIRE(context);
  CHECK_NULL(cyto_run_simple(&other, &cache, inputs, &symbol, outputs, NULL));
  CHECK(cache == context);
  CHECK_INT_EQ(cyto_run_simple(&rt_model, &cache, inputs, &symbol, outputs, NULL), CYTO_OK);
  CHECK(runs(context));
  cyto_context_destroy(context);
}

/* ---- files ---- */

static const char *beside(const char *name) {
  static char path[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", path, sizeof path - 100);
  path[length > 0 ? length : 0] = 0;
  char *slash = strrchr(path, '/');
  strcpy(slash ? slash + 1 : path, name);
  return path;
}

static char *read_library(size_t *out_bytes) {
  FILE *f = fopen(beside("rt_model_a.so"), "rb");
  char *data = NULL;
  if (f && !fseek(f, 0, SEEK_END)) {
    *out_bytes = (size_t)ftell(f);
    rewind(f);
    data = malloc(*out_bytes);
    if (data && fread(data, 1, *out_bytes, f) != *out_bytes)
      CHECK_FAIL("cannot read the library");
  }
  if (f)
    fclose(f);
  return data;
}

static void write_library(const char *path, const char *data, size_t bytes) {
  FILE *f = fopen(path, "wb");
  if (!f || fwrite(data, 1, bytes, f) != bytes)
    CHECK_FAIL("cannot write '%s'", path);
  if (f)
    fclose(f);
}

/* What comes of loading a file, in a child: a cyto_status, or 1000 + the signal that ended it. */
static int load_in_child(const char *path) {
  pid_t child = fork();
  if (child == 0) {
    cyto_model *model;
    cyto_error error;
    alarm(20);
    cyto_status status = cyto_model_load(path, &model, &error);
    _exit(status == CYTO_OK || error.message[0] ? (int)status : 255);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Cut anywhere: refused, but where all is there that is loaded. */
static void test_truncated(void) {
  char folder[CHECK_PATH], path[CHECK_PATH + 20];
  size_t bytes = 0;
  char *data = read_library(&bytes);
  CHECK_REQUIRE(data && check_folder("cyto_abuse", folder));
  snprintf(path, sizeof path, "%s/cut.so", folder);
  size_t loaded = 0;
  const Elf64_Ehdr *head = (const Elf64_Ehdr *)(const void *)data;
  for (unsigned i = 0; i < head->e_phnum; i++) {
    const Elf64_Phdr *s = (const Elf64_Phdr *)(const void *)(data + head->e_phoff) + i;
    if (s->p_type == PT_LOAD && s->p_offset + s->p_filesz > loaded)
      loaded = s->p_offset + s->p_filesz;
  }
  for (size_t n = 0; n < bytes; n += 1 + n / 20) {
    write_library(path, data, n);
    CHECK_INT_EQ(load_in_child(path), n < loaded ? CYTO_BAD_LIBRARY : CYTO_OK);
  }
  unlink(path);
  rmdir(folder);
  free(data);
}

/* Headers with other bits: what the dynamic linker would crash on is refused before. */
static void test_damaged_headers(void) {
  char folder[CHECK_PATH], path[CHECK_PATH + 20];
  size_t bytes = 0;
  char *data = read_library(&bytes);
  CHECK_REQUIRE(data && check_folder("cyto_abuse", folder));
  snprintf(path, sizeof path, "%s/flip.so", folder);
  const Elf64_Ehdr *head = (const Elf64_Ehdr *)(const void *)data;
  size_t end = head->e_phoff + head->e_phnum * sizeof(Elf64_Phdr);
  for (size_t at = 0; at < end; at++) {
    size_t field = at < head->e_phoff ? 0 : (at - head->e_phoff) % sizeof(Elf64_Phdr);
    if (at >= head->e_phoff && (field < offsetof(Elf64_Phdr, p_offset) || field % 8 < 3))
      continue; /* one segment less, or of other places of the file, is as good for all that headers tell */
    data[at] ^= 1 << at % 8;
    write_library(path, data, bytes);
    int status = load_in_child(path);
    if (status != CYTO_OK && status != CYTO_BAD_LIBRARY)
      CHECK_FAIL("bit %zu of byte %zu, field %zu of a segment: %d", at % 8, at, field, status);
    data[at] ^= 1 << at % 8;
  }
  unlink(path);
  rmdir(folder);
  free(data);
}

static void test_other_files(void) {
  char folder[CHECK_PATH], path[CHECK_PATH + 20];
  size_t bytes = 0;
  char *data = read_library(&bytes);
  CHECK_REQUIRE(data && check_folder("cyto_abuse", folder));
  snprintf(path, sizeof path, "%s/file.so", folder);
  static const struct {
    size_t at;
    char byte;
  } rows[] = {{0, 'X'}, {EI_CLASS, ELFCLASS32}, {16, ET_EXEC}, {18, EM_386}, {18, 40}};
  for (int i = 0; i < CHECK_COUNT(rows); i++) {
    char old = data[rows[i].at];
    data[rows[i].at] = rows[i].byte;
    write_library(path, data, bytes);
    CHECK_INT_EQ(load_in_child(path), CYTO_BAD_LIBRARY);
    data[rows[i].at] = old;
  }
  write_library(path, "#!/bin/sh\n", 10);
  CHECK_INT_EQ(load_in_child(path), CYTO_BAD_LIBRARY);
  unlink(path);
  CHECK_INT_EQ(load_in_child(path), CYTO_NOT_FOUND);
  CHECK_REQUIRE(!mkfifo(path, 0600));
  CHECK_INT_EQ(load_in_child(path), CYTO_BAD_LIBRARY); /* and does not wait for who writes */
  unlink(path);
  rmdir(folder);
  free(data);
  static const char *const files[] = {"/", "/dev/null", "/dev/zero", "/proc/self/exe", "/proc/self/mem"};
  for (int i = 0; i < CHECK_COUNT(files); i++)
    if (!access(files[i], R_OK))
      CHECK_INT_EQ(load_in_child(files[i]), CYTO_BAD_LIBRARY);
  Dl_info libc;
  void *(*function)(size_t) = malloc;
  void *code;
  memcpy(&code, &function, sizeof code);
  if (dladdr(code, &libc) && libc.dli_fname[0] == '/')
    CHECK_INT_EQ(load_in_child(libc.dli_fname), CYTO_BAD_LIBRARY);
}

/* ---- stacks, forks, signals ---- */

static void *load_and_run(void *data) {
  cyto_model *model = NULL;
  (void)data;
  CHECK_INT_EQ(cyto_model_load(beside("rt_model_a.so"), &model, NULL), CYTO_OK);
  cyto_context *context = model ? open_context(model, 3) : NULL;
  cyto_model_unload(model);
  CHECK(context && runs(context));
  cyto_context_destroy(context);
  return NULL;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SMALL_STACK = 1 << 20 }; /* of which sanitizers take most */
#else
enum { SMALL_STACK = 64 << 10 };
#endif

/* All of it in a thread with a small stack. */
static void test_small_stack(void) {
  pthread_attr_t attr;
  pthread_t thread;
  pthread_attr_init(&attr);
  CHECK_REQUIRE(!pthread_attr_setstacksize(&attr, SMALL_STACK));
  CHECK_REQUIRE(!pthread_create(&thread, &attr, load_and_run, NULL));
  pthread_join(thread, NULL);
  pthread_attr_destroy(&attr);
}

static atomic_int stop, ran;

static void *run_until_stopped(void *data) {
  cyto_context *context = open_linked(3);
  (void)data;
  while (context && !atomic_load(&stop)) {
    CHECK(runs(context));
    atomic_fetch_add(&ran, 1);
  }
  CHECK(context != NULL);
  cyto_context_destroy(context);
  return NULL;
}

/* The child of a process whose other thread is in the middle of a run. */
static void test_fork_while_running(void) {
#if defined(__SANITIZE_THREAD__)
  CHECK_SKIP("the thread sanitizer allows no threads after fork");
#endif
  pthread_t thread;
  atomic_store(&stop, 0);
  CHECK_REQUIRE(!pthread_create(&thread, NULL, run_until_stopped, NULL));
  while (!atomic_load(&ran))
    sched_yield();
  for (int i = 0; i < 30; i++) {
    pid_t child = fork();
    if (child == 0) {
      alarm(20);
      cyto_context *context = open_linked(3);
      int good = context && runs(context) && runs(context);
      cyto_context_destroy(context);
      _exit(!good);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK_INT_EQ(status, 0);
  }
  atomic_store(&stop, 1);
  pthread_join(thread, NULL);
}

static void on_alarm(int number) { (void)number; }

/* Signals every 200 us, which interrupt what the runtime waits for. */
static void test_signals(void) {
  struct sigaction act = {.sa_handler = on_alarm}, before;
  struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
  sigaction(SIGALRM, &act, &before);
  setitimer(ITIMER_REAL, &often, NULL);
  for (int i = 0; i < 40; i++) {
    struct timespec pause = {0, i % 4 * 300000};
    load_and_run(NULL);
    nanosleep(&pause, NULL); /* helpers fall asleep now and then */
  }
  setitimer(ITIMER_REAL, &never, NULL);
  sigaction(SIGALRM, &before, NULL);
}

/* ---- plug-ins ---- */

/* A plug-in with a model and a runtime in it, which is closed while its helpers are awake or asleep, and opened again. */
static void test_plugin(void) {
  int after_first = 0;
  for (int i = 0; i < 20; i++) {
    struct timespec pause = {0, i % 4 * 400000};
    cyto_error error;
    const void *inputs[3] = {left, right, NULL};
    void *outputs[3] = {NULL};
    const int64_t symbol = ROWS;
    void *plugin = dlopen(beside("rt_plugin.so"), RTLD_NOW | RTLD_LOCAL), *code = NULL;
    int32_t (*run)(cyto_context **, const void *const *, const int64_t *, void *const *, cyto_error *);
    CHECK_REQUIRE(plugin && (code = dlsym(plugin, "rt_plugin_run")));
    memcpy(&run, &code, sizeof code);
    CHECK_INT_EQ(run(NULL, inputs, &symbol, outputs, &error), CYTO_OK);
    dlclose(plugin);
    nanosleep(&pause, NULL);
    if (i == 0)
      after_first = check_threads();
  }
  CHECK(check_threads() <= after_first);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {
      {"plugin", test_plugin}, /* first: whoever needs the pool first makes it */
      {"null_model", test_null_model},
      {"null_context", test_null_context},
      {"null_others", test_null_others},
      {"crooked_allocator", test_crooked_allocator},
      {"cache_of_another", test_cache_of_another},
      {"truncated", test_truncated},
      {"damaged_headers", test_damaged_headers},
      {"other_files", test_other_files},
      {"small_stack", test_small_stack},
      {"signals", test_signals},
      {"fork_while_running", test_fork_while_running},
  };
  return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
