/* SPDX-License-Identifier: Apache-2.0 */
/* nvrtc.c - finding NVRTC, the compiler library for CUDA C, and compiling by it.
 *
 * In: CUDA C text and an architecture. Out: a cubin, or PTX for the driver to translate. Nothing of CUDA is needed to
 * build or link cytoc: the library is opened by name when a model for CUDA is compiled, together with its builtins,
 * which it would otherwise look for by bare name. Looked for in CUDA_HOME, where the loader looks, where toolkits are
 * usually installed, and in the folders of Python's wheels. Equal source and options give equal bytes. The log is read
 * for what makes a kernel slow without being an error: stack frames, spills, and matrix instructions that were
 * serialised (C7510, C7511, C7519). Such code is not used: it means that a generator is wrong.
 */
#define _GNU_SOURCE
#include "codegen/cuda/cuda_int.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

typedef struct _nvrtcProgram *program;
enum { INVALID_OPTION = 5 };

struct cy_nvrtc {
  void *library, *builtins;
  int major, minor;
  int (*version)(int *major, int *minor);
  int (*create)(program *p, const char *source, const char *name, int headers, const char *const *,
                const char *const *);
  int (*destroy)(program *p);
  int (*compile)(program p, int n, const char *const *options);
  int (*ptx_size)(program p, size_t *size);
  int (*ptx)(program p, char *out);
  int (*cubin_size)(program p, size_t *size);
  int (*cubin)(program p, char *out);
  int (*log_size)(program p, size_t *size);
  int (*log)(program p, char *out);
};

static char *format(const char *text, ...) __attribute__((format(printf, 1, 2)));
static char *format(const char *text, ...) {
  va_list args;
  char *out;
  va_start(args, text);
  if (vasprintf(&out, text, args) < 0)
    cy_no_memory();
  va_end(args);
  return out;
}

/* ---- finding the library ---- */

static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
static const char *const builtins[] = {"libnvrtc-builtins.so.13*", "libnvrtc-builtins.so.12*"};

/* Folders, '*' allowed; %s is the home folder or the virtual environment. */
static const char *const usual[] = {
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/lib",
    "/usr/local/cuda-*/lib64",
    "/usr/local/cuda-*/targets/" CY_ARCH_HERE "-linux/lib",
    "/opt/cuda/lib64",
    "/usr/lib/" CY_ARCH_HERE "-linux-gnu",
    "/usr/lib64",
};
static const char *const wheels[] = {
    "%s/lib/python3*/site-packages/nvidia/cu13/lib",
    "%s/lib/python3*/site-packages/nvidia/cuda_nvrtc/lib",
    "%s/lib/python3*/dist-packages/nvidia/cu13/lib",
    "%s/lib/python3*/dist-packages/nvidia/cuda_nvrtc/lib",
};

/* The last match, in the order of names: the newest version. */
static bool last_match(const char *pattern, char *out) { /* out: PATH_MAX bytes */
  glob_t found = {0};
  bool ok = glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc > 0 &&
            strlen(found.gl_pathv[found.gl_pathc - 1]) < PATH_MAX;
  if (ok)
    strcpy(out, found.gl_pathv[found.gl_pathc - 1]);
  globfree(&found);
  return ok;
}

/* Opens one version in a folder ("" is the loader's own search). It stays in the process after dlclose(): it keeps memory
 * of its own that nobody could find any more, and mapping its 100 MB again takes time. */
static bool open_version(cy_nvrtc *n, const char *folder, int which) {
  char path[PATH_MAX + 64], pattern[PATH_MAX + 64];
  if (*folder) {
    snprintf(pattern, sizeof pattern, "%s/%s", folder, builtins[which]);
    if (last_match(pattern, path))
      n->builtins = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  }
  snprintf(path, sizeof path, "%s%s%s", folder, *folder ? "/" : "", names[which]);
  n->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!n->library && n->builtins) {
    dlclose(n->builtins);
    n->builtins = NULL;
  }
  return n->library != NULL;
}

static bool open_in(cy_nvrtc *n, const char *pattern) {
  char folder[PATH_MAX] = "";
  if (*pattern && !last_match(pattern, folder))
    return false;
  for (int i = 0; i < 2; i++)
    if (open_version(n, folder, i))
      return true;
  return false;
}

static bool open_below(cy_nvrtc *n, const char *root, const char *const *patterns, size_t count) {
  char path[PATH_MAX + 64];
  for (size_t i = 0; root && *root && i < count; i++) {
    snprintf(path, sizeof path, patterns[i], root);
    if (open_in(n, path))
      return true;
  }
  return false;
}

static bool find_library(cy_nvrtc *n) {
  const char *named = getenv("CYTO_NVRTC"); /* exactly this folder */
  if (named)
    return open_in(n, named);
  static const char *const in_toolkit[] = {"%s/lib64", "%s/lib", "%s/targets/" CY_ARCH_HERE "-linux/lib"};
  char local[PATH_MAX + 64];
  const char *home = getenv("HOME");
  size_t nwheels = sizeof wheels / sizeof *wheels;
  if (open_below(n, getenv("CUDA_HOME"), in_toolkit, 3) || open_below(n, getenv("CUDA_PATH"), in_toolkit, 3))
    return true;
  if (open_below(n, getenv("VIRTUAL_ENV"), wheels, nwheels) || open_in(n, ""))
    return true;
  for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
    if (open_in(n, usual[i]))
      return true;
  snprintf(local, sizeof local, "%s/.local", home ? home : "");
  return open_below(n, local, wheels, nwheels) || open_below(n, "/usr/local", wheels, nwheels) ||
         open_below(n, "/usr", wheels, nwheels);
}

/* ---- opening ---- */

static bool resolve(cy_nvrtc *n, const char **out_missing) {
  struct {
    const char *name;
    void *function;
  } const rows[] = {
      {"nvrtcVersion", &n->version},
      {"nvrtcCreateProgram", &n->create},
      {"nvrtcDestroyProgram", &n->destroy},
      {"nvrtcCompileProgram", &n->compile},
      {"nvrtcGetPTXSize", &n->ptx_size},
      {"nvrtcGetPTX", &n->ptx},
      {"nvrtcGetCUBINSize", &n->cubin_size},
      {"nvrtcGetCUBIN", &n->cubin},
      {"nvrtcGetProgramLogSize", &n->log_size},
      {"nvrtcGetProgramLog", &n->log},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    void *symbol = dlsym(n->library, rows[i].name);
    if (!symbol) {
      *out_missing = rows[i].name;
      return false;
    }
    memcpy(rows[i].function, &symbol, sizeof symbol);
  }
  return true;
}

cy_nvrtc *cy_nvrtc_open(char **out_error) {
  cy_nvrtc *n = calloc(1, sizeof *n);
  const char *missing = NULL;
  if (!n)
    cy_no_memory();
  if (!find_library(n))
    *out_error = format(
        "libnvrtc.so.13 (or .so.12), the compiler of CUDA kernels, was not found: `pip install nvidia-cuda-nvrtc` "
        "in the active virtual environment, or install the package 'cuda-nvrtc-13-0' (Debian: 'libnvrtc12'), or let "
        "CUDA_HOME name the toolkit, CYTO_NVRTC its folder");
  else if (!resolve(n, &missing))
    *out_error = format("libnvrtc has no '%s': install version 12 or 13 of it", missing);
  else if (n->version(&n->major, &n->minor) || n->major < 12)
    *out_error = format("libnvrtc is version %d.%d: install version 12 or 13 of it", n->major, n->minor);
  else
    return n;
  cy_nvrtc_close(n);
  return NULL;
}

int cy_nvrtc_version(const cy_nvrtc *n) { return n->major * 1000 + n->minor; }

void cy_nvrtc_describe(const cy_nvrtc *n, cy_kernel_compiler *out) {
  struct link_map *map = NULL;
  dlinfo(n->library, RTLD_DI_LINKMAP, &map);
  snprintf(out->name, sizeof out->name, "NVRTC %d.%d", n->major, n->minor);
  snprintf(out->path, sizeof out->path, "%s", map ? map->l_name : "");
}

void cy_nvrtc_close(cy_nvrtc *n) {
  if (!n)
    return;
  if (n->library)
    dlclose(n->library);
  if (n->builtins)
    dlclose(n->builtins);
  free(n);
}

/* ---- reading the log ---- */

/* The function that a line of the log is about: the last "Function properties for NAME" before it. */
static const char *function_before(const char *log, const char *at, char out[160]) {
  static const char mark[] = "Function properties for ";
  const char *last = NULL;
  for (const char *p = log; (p = strstr(p, mark)) && p < at; p += sizeof mark - 1)
    last = p + sizeof mark - 1;
  snprintf(out, 160, "%.*s", last ? (int)strcspn(last, " \n'") : 0, last ? last : "");
  return out;
}

/* The next function behind *at that has spills or a stack which it may not have; *at is there then. */
static bool next_spilling(const char *log, const char **at, const cy_nvrtc_check *check, char function[160],
                          long *out_stack, long *out_spills) {
  while ((*at = strstr(*at, " bytes stack frame"))) {
    const char *p = (*at)++, *number = p;
    while (number > log && number[-1] >= '0' && number[-1] <= '9')
      number--;
    *out_stack = strtol(number, NULL, 10);
    *out_spills = 0;
    sscanf(p, " bytes stack frame, %ld bytes spill stores", out_spills);
    function_before(log, p, function);
    if (*out_spills || (*out_stack && !check->may_use_stack(check->ctx, function)))
      return true;
  }
  return false;
}

/* What is wrong with the compiled code, as a malloc'ed text; NULL: nothing. */
static char *find_fault(const char *log, const cy_nvrtc_check *check) {
  static const struct {
    const char *code, *means;
  } warnings[] = {{"C7510", "matrix instructions were serialised"},
                  {"C7511", "matrix instructions were serialised"},
                  {"C7519", "matrix instructions were serialised"},
                  {"'setmaxnreg' ignored", "registers are not redistributed to warpgroups"}};
  char function[160];
  for (size_t i = 0; i < sizeof warnings / sizeof *warnings; i++) {
    const char *at = strstr(log, warnings[i].code);
    if (at)
      return format("%s (%.*s): a bug in cytoc", warnings[i].means, (int)strcspn(at, "\n"), at);
  }
  long stack, spills;
  return next_spilling(log, &(const char *){log}, check, function, &stack, &spills)
             ? format("kernel '%s' was compiled with %ld bytes of stack and %ld bytes of spills: a bug in cytoc",
                      function, stack, spills)
             : NULL;
}

/* "Used 168 registers, used 1 barriers, 1024 bytes smem" */
static void tell_resources(const char *log, cy_cuda_arch arch, const cy_nvrtc_check *check) {
  static const char mark[] = ": Used ";
  char function[160], line[200];
  for (const char *p = log; (p = strstr(p, mark)); p++) {
    snprintf(line, sizeof line, "%.*s", (int)strcspn(p, "\n"), p);
    char *shared = strstr(line, " bytes smem");
    while (shared && shared > line && shared[-1] != ' ')
      shared--;
    check->resources(check->ctx, function_before(log, p, function), arch, atoi(p + sizeof mark - 1),
                     shared ? atoi(shared) : 0);
  }
}

static char *read_log(cy_nvrtc *n, program p) {
  size_t size = 0;
  if (n->log_size(p, &size))
    size = 0;
  char *log = calloc(size + 1, 1);
  if (!log)
    cy_no_memory();
  if (size && n->log(p, log))
    *log = 0;
  return log;
}

/* ---- looking for matrix instructions ---- */

typedef struct search {
  const cy_nvrtc_check *check;
  cy_cuda_arch arch;
  char *missing;
} search;

static void visit(void *ctx, const char *function, const char *code, uint64_t bytes) {
  search *s = ctx;
  unsigned counts[CY_CUDA_OPCODES] = {0};
  int wanted = s->check->wants_matrix(s->check->ctx, function, s->arch);
  cy_cubin_count(code, bytes, counts);
  if (!s->missing && wanted && !counts[wanted])
    s->missing = format("kernel '%s' was compiled without matrix instructions: a bug in cytoc", function);
}

/* ---- compiling ---- */

static char *take(program p, int (*get_size)(program, size_t *), int (*get)(program, char *), size_t *out_size) {
  if (get_size(p, out_size) || !*out_size)
    return NULL;
  char *bytes = malloc(*out_size);
  if (!bytes)
    cy_no_memory();
  if (get(p, bytes)) {
    free(bytes);
    return NULL;
  }
  return bytes;
}

static char *refusal(const cy_nvrtc *n, int code, const char *arch, const char *log) {
  const char *first = strstr(log, "error");
  while (first && first > log && first[-1] != '\n')
    first--;
  log = first ? first : log;
  if (code == INVALID_OPTION)
    return format("NVRTC %d.%d does not know '%s': install a newer one (`pip install --upgrade nvidia-cuda-nvrtc`) or "
                  "choose another "
                  "--target",
                  n->major, n->minor, arch + 6);
  return format("NVRTC %d.%d fails with code %d%s: %.600s", n->major, n->minor, code,
                code == 7 ? " (libnvrtc-builtins of the same version is missing beside it)" : "",
                *log ? log : "no log");
}

/* Creates a program and compiles it: the compiler's code and its log, malloc'ed. */
static int run(cy_nvrtc *n, const char *source, const char *const *options, int count, program *out, char **out_log) {
  *out = NULL;
  int rc = n->create(out, source, "kernels.cu", 0, NULL, NULL);
  if (!rc)
    rc = n->compile(*out, count, options);
  *out_log = *out ? read_log(n, *out) : strdup("");
  return rc;
}

/* The same once more, with kernels that spill allowed all registers: perhaps those for two blocks at a time were too
 * few. */
static int run_again(cy_nvrtc *n, const char *source, const char *const *options, int count,
                     const cy_nvrtc_check *check, program *p, char **log) {
  char function[160];
  long stack, spills;
  int all = count;
  const char **more = NULL;
  for (const char *at = *log;; all++) {
    if (!(more = realloc(more, ((size_t)all + 1) * sizeof *more)))
      cy_no_memory();
    if (!next_spilling(*log, &at, check, function, &stack, &spills))
      break;
    more[all] = format("-DCY_ONE_BLOCK_%s", function);
  }
  memcpy(more, options, (size_t)count * sizeof *more);
  free(*log);
  n->destroy(p);
  int rc = run(n, source, more, all, p, log);
  while (all > count)
    free((char *)more[--all]);
  free(more);
  return rc;
}

int cy_nvrtc_compile(cy_nvrtc *n, const char *source, cy_cuda_arch arch, bool ptx, const cy_nvrtc_check *check,
                     cy_cuda_image *out, char **out_error) {
  char option[40], suffix[2] = {arch.suffix, 0};
  const char *options[] = {
      option, "--std=c++17", "-default-device", "-no-source-include", "-diag-suppress=177", "--ptxas-options=-v"};
  enum { PTX_OPTIONS = 5, CUBIN_OPTIONS = 6 };
  program p = NULL;
  char *log;
  snprintf(option, sizeof option, "-arch=%s_%d%s", ptx ? "compute" : "sm", arch.number, suffix);
  int rc = run(n, source, options, ptx ? PTX_OPTIONS : CUBIN_OPTIONS, &p, &log);
  *out = (cy_cuda_image){.arch = arch, .ptx = ptx};
  if (!rc && !ptx && (*out_error = find_fault(log, check))) {
    free(*out_error);
    rc = run_again(n, source, options, CUBIN_OPTIONS, check, &p, &log);
    *out_error = rc ? NULL : find_fault(log, check);
  }
  if (!rc && !*out_error)
    out->bytes = ptx ? take(p, n->ptx_size, n->ptx, &out->size) : take(p, n->cubin_size, n->cubin, &out->size);
  if (out->bytes && !ptx && check->resources)
    tell_resources(log, arch, check);
  search s = {check, arch, NULL};
  if (out->bytes && !ptx && check->wants_matrix)
    cy_cubin_visit(out->bytes, out->size, visit, &s);
  if (s.missing) {
    free(out->bytes);
    out->bytes = NULL;
    *out_error = s.missing;
  }
  if (!out->bytes && !*out_error)
    *out_error = refusal(n, rc, option, log);
  free(log);
  if (p)
    n->destroy(&p);
  return out->bytes ? 0 : rc == INVALID_OPTION ? CY_NVRTC_NO_ARCH : -1;
}
