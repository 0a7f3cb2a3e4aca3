/* SPDX-License-Identifier: Apache-2.0 */
/* library.c - the file of a model, as a library that runs.
 *
 * In:  the folder of a version: model.so (or .dll) compiled before, model.onnx, or model.cytoc, which is either. What is in a
 *      file tells which it is.
 * Out: an opened library. An ONNX model is compiled, or found in the cache. Where model.so is for another CPU or another
 *      version of the runtime, and model.onnx lies beside it, that is compiled.
 */
#include "integrations/triton/backend.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* The first that is there is taken. */
static const char *const names[] = {"model.so", "model.dll", "model.onnx", "model.cytoc"};
enum { NAMES = sizeof names / sizeof names[0] };

/* By what is in it; whatever is called .so or .dll is meant to be one. */
static bool is_library(const char *path) {
  char begin[4] = "";
  const char *dot = strrchr(path, '.');
  if (dot && (!strcmp(dot, ".so") || !strcmp(dot, ".dll")))
    return true;
  FILE *f = fopen(path, "rb");
  bool read = f && fread(begin, 1, sizeof begin, f) == sizeof begin;
  if (f)
    fclose(f);
  return read && (!memcmp(begin,
                          "\x7f"
                          "ELF",
                          4) ||
                  !memcmp(begin, "MZ", 2));
}

static bool find_file(const char *folder, const char *name, char path[CACHE_PATH]) {
  struct stat st;
  int n = snprintf(path, CACHE_PATH, "%s/%s", folder, name);
  return n > 0 && n < CACHE_PATH && !stat(path, &st) && S_ISREG(st.st_mode);
}

/* ---- the key ---- */

static bool add_contents(key_sum *s, const char *path) {
  char block[1 << 16];
  FILE *f = fopen(path, "rb");
  for (size_t n; f && (n = fread(block, 1, sizeof block, f));)
    key_add(s, block, n);
  bool whole = f && !ferror(f);
  if (f)
    fclose(f);
  return whole;
}

static bool is_model(const char *name) {
  for (int i = 0; i < NAMES; i++)
    if (!strcmp(name, names[i]))
      return true;
  return false;
}

/* Weights may lie in any file beside the model: these count by name, size and time, whatever their order. */
static void add_neighbours(key_sum *s, const char *folder, const char *model) {
  uint64_t sum = 0;
  DIR *d = opendir(folder);
  for (struct dirent *entry; d && (entry = readdir(d));) {
    char path[CACHE_PATH];
    int n = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (entry->d_name[0] != '.' && !is_model(entry->d_name) && n > 0 && n < CACHE_PATH && strcmp(path, model))
      sum += key_of_files(path);
  }
  if (d)
    closedir(d);
  key_add(s, &sum, sizeof sum);
}

static bool write_key(const model *m, const compiler *c, const char *folder, const char *path, char key[80]) {
  key_sum s = KEY_BEGIN;
  if (!add_contents(&s, path))
    return false;
  add_neighbours(&s, folder, path);
  for (size_t i = 0; i < m->options.n_words; i++)
    key_add(&s, m->options.words[i], strlen(m->options.words[i]));
  key_add(&s, &m->options.samples, sizeof m->options.samples);
  snprintf(key, 80, "triton-%016" PRIx64 "%016" PRIx64 "-%016" PRIx64, s.a, s.b, compiler_hash(c));
  return true;
}

/* ---- compiling ---- */

typedef struct job {
  const compiler *compiler;
  const model *m;
  const char *path;
  cytoc_result result;
  cytoc_status status;
} job;

static void on_diagnostic(void *ctx, const cytoc_diagnostic *d) {
  const job *j = ctx;
  if (d->severity == CYTOC_WARNING)
    log_line(TRITON_LOG_WARN, "model '%s': %s", j->m->name, d->line);
}

static double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* to NULL: in memory. */
static int build(void *ctx, const char *to) {
  job *j = ctx;
  cytoc_job todo = {.struct_size = sizeof todo,
                    .model_path = j->path,
                    .options = (const char *const *)j->m->options.words,
                    .option_count = j->m->options.n_words,
                    .output_path = to,
                    .ctx = j,
                    .on_diagnostic = on_diagnostic};
  double begin = seconds_now();
  log_line(TRITON_LOG_INFO, "model '%s': compiling %s", j->m->name, j->path);
  j->status = j->compiler->cytoc_compile(&todo, &j->result);
  if (j->status == CYTOC_OK)
    log_line(TRITON_LOG_INFO, "model '%s': compiled in %.1f s", j->m->name, seconds_now() - begin);
  return j->status == CYTOC_OK ? 0 : -1;
}

static triton_error *said_by_compiler(const job *j) {
  bool of_user = j->status == CYTOC_INVALID_OPTION || j->status == CYTOC_INVALID_MODEL;
  return error_of(of_user ? TRITON_INVALID_ARG : TRITON_INTERNAL, "model '%s': %s", j->m->name, j->result.message);
}

static triton_error *open_built(model *m, const char *path, const job *j) {
  cyto_error error = {0};
  cyto_status status = path ? cyto_model_load(path, &m->library, &error)
                            : cyto_model_load_memory(j->result.library, j->result.library_size, &m->library, &error);
  return status ? error_of_runtime(status, &error) : NULL;
}

static triton_error *compile_now(model *m, job *j, const char *folder) {
  char key[80], built[CACHE_PATH], why[256];
  if (!write_key(m, j->compiler, folder, j->path, key))
    return error_of(TRITON_NOT_FOUND, "model '%s': %s cannot be read: %s", m->name, j->path, strerror(errno));
  if (cache_library(m->options.cache, key, build, j, built, why))
    return open_built(m, built, j);
  if (!*why && j->status != CYTOC_IO_FAILURE)
    return said_by_compiler(j);
  log_line(TRITON_LOG_WARN, "model '%s': the compiled library is not kept: %s; parameter 'cache' names another folder",
           m->name, *why ? why : j->result.message);
  j->compiler->cytoc_result_free(&j->result);
  return build(j, NULL) ? said_by_compiler(j) : open_built(m, NULL, j);
}

/* The compute capability of the first device, by the driver. */
static bool device_target(char text[16]) {
  enum { MAJOR = 75, MINOR = 76 }; /* numbers of attributes */
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
  int (*get)(int *, int, int) = driver ? (int (*)(int *, int, int))dlsym(driver, "cuDeviceGetAttribute") : NULL;
  int major, minor;
  bool found = init && get && !init(0) && !get(&major, MAJOR, 0) && !get(&minor, MINOR, 0);
  if (found)
    snprintf(text, 16, "sm_%d%d", major, minor);
  return found;
}

static triton_error *compile(model *m, const char *folder, const char *path, bool gpu) {
  char target[16];
  job j = {.compiler = compiler_open(), .m = m, .path = path};
  if (*j.compiler->why)
    return error_of(TRITON_UNAVAILABLE, "model '%s': %s", m->name, j.compiler->why);
  if (gpu && !m->options.has_target) {
    if (!device_target(target))
      return error_of(TRITON_INVALID_ARG,
                      "model '%s': instance_group asks for a GPU, and the driver tells of none: the parameter 'target' "
                      "names it, such as sm_89",
                      m->name);
    TRY(options_add(&m->options, "target", target));
  }
  triton_error *error = compile_now(m, &j, folder);
  j.compiler->cytoc_result_free(&j.result);
  return error;
}

/* ---- opening ---- */

/* Options are the compiler's: a library has been through it. */
static void warn_of_options(const model *m, const char *path) {
  for (size_t i = 0; i < m->options.n_words; i++)
    log_line(TRITON_LOG_WARN, "model '%s': %s has no effect: %s is compiled already", m->name, m->options.words[i],
             path);
}

static triton_error *load(model *m, const char *folder, const char *path, bool may_compile, bool gpu) {
  char source[CACHE_PATH];
  cyto_error error = {0};
  cyto_status status = cyto_model_load(path, &m->library, &error);
  if (!status)
    warn_of_options(m, path);
  if (!status)
    return NULL;
  bool of_place = status == CYTO_UNSUPPORTED_CPU || status == CYTO_BAD_LIBRARY;
  if (!of_place || !may_compile || !find_file(folder, "model.onnx", source))
    return error_of(TRITON_INVALID_ARG, "model '%s': %s", m->name, error.message);
  log_line(TRITON_LOG_WARN, "model '%s': %s; model.onnx is compiled instead", m->name, error.message);
  return compile(m, folder, source, gpu);
}

triton_error *library_open(model *m, const char *folder, const char *file, bool gpu) {
  char path[CACHE_PATH];
  if (!strcmp(file,
              names[NAMES - 1])) /* Triton's own word for a model that is called NAME.cytoc and has no configuration */
    file = "";
  bool found = *file && find_file(folder, file, path);
  for (int i = 0; !*file && !found && i < NAMES; i++)
    found = find_file(folder, names[i], path);
  if (!found && *file)
    return error_of(TRITON_NOT_FOUND, "model '%s': %s/%s is no file (default_model_filename)", m->name, folder, file);
  if (!found)
    return error_of(TRITON_NOT_FOUND, "model '%s': expected model.onnx, model.so or model.cytoc in %s, found none",
                    m->name, folder);
  TRY(is_library(path) ? load(m, folder, path, !*file, gpu) : compile(m, folder, path, gpu));
  m->is_cuda = !strncmp(cyto_model_target(m->library), "sm_", 3);
  return NULL;
}
