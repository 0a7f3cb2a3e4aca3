/* SPDX-License-Identifier: Apache-2.0 */
/* mock_module.c - modules, functions and launches of the mock driver: kernels run through the shim (shim.h).
 *
 * In:  images: the CUDA C text that mock_nvrtc.c handed on, or PTX, which ptx.py makes C of. Out: loading one compiles it by
 *      the machine's C compiler; a launch is an operation of its stream. Where the environment has CY_MOCK_IDLE, kernels are
 *      neither compiled nor run: for counting calls.
 */
#define _GNU_SOURCE
#include "tests/cuda/mock/mock_internal.h"
#include "tests/check.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  UNASKED_SHARED = 48 << 10, /* that a block has without asking */
  ERROR_LOG = 5,
  TENSOR_TF32 = 11
};

typedef int launch_fn(void (*kernel)(void), int threads, long long blocks, int cluster, int shared,
                      const uint64_t *slots, int nslots, int schedule, unsigned seed);

typedef struct module {
  struct function *functions;
  int device;
  void *library;
  char *source; /* NULL: it was PTX */
  launch_fn *launch;
} module;

typedef struct function {
  struct function *next;
  module *module;
  void (*entry)(void);
  int nslots, nmaps;           /* parameters: of 8 bytes, then tensor maps */
  unsigned shared;             /* dynamic shared memory that a launch may ask for */
  int asked;                   /* .. is what it was set to */
  int own_shared, max_threads; /* as PTX says; else 0 and any number */
  int cluster;                 /* blocks that run together */
  int waits;                   /* for the kernel in front of it, as its first statement; -1: PTX does not say */
} function;

/* ---- modules ---- */

static uint64_t hash(uint64_t h, const char *text) {
  for (; *text; text++)
    h = (h ^ (unsigned char)*text) * 1099511628211u;
  return h;
}

/* The place of the compiled text in the folder of the environment's CY_MOCK_CACHE; "" without one. */
static void cached(const char *image, char *out, size_t capacity) {
  static const char *const shims[] = {"tests/cuda/shim/shim.h",        "tests/cuda/shim/shim_map.h",    "tests/cuda/shim/shim.c",
                                      "tests/cuda/shim/shim_matrix.c", "tests/cuda/shim/shim_tensor.c", "tests/cuda/shim/shim_ptx.h",
                                      "tests/cuda/shim/shim_ptx.c",    "tests/cuda/shim/ptx.py",        "tests/cuda/shim/ptx_read.py",
                                      "tests/cuda/shim/ptx_ops.py",    "tests/cuda/shim/ptx_warp.py"};
  const char *folder = getenv("CY_MOCK_CACHE");
  static uint64_t h;
  static char text[1 << 16];
  *out = 0;
  if (!folder)
    return;
  for (int i = h ? CHECK_COUNT(shims) : 0; i < CHECK_COUNT(shims); i++) {
    FILE *f = fopen(shims[i], "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = 0;
    h = hash(h ? h : 14695981039346656037u, text);
    if (f)
      fclose(f);
  }
  snprintf(
      out, capacity, "%s/%016llx.so", folder,
      (unsigned long long)hash(hash(h, mock_state.capability == 90 ? CY_SHIM_FLAGS "warpgroups" : CY_SHIM_FLAGS), image));
}

static int is_idle(void) { return getenv("CY_MOCK_IDLE") != NULL; }

static int is_ptx(const char *image) { return !strncmp(image, "//", 2); }

static int compile(const char *image, const char *to) {
  char command[4000];
  if (is_ptx(image))
    snprintf(command, sizeof command,
             "python3 tests/cuda/shim/ptx.py /dev/stdin '%s.c' && cc " CY_SHIM_FLAGS
             " -march=native -ffp-contract=off -O0 -o '%s' '%s.c' " CY_SHIM_OBJECT " " CY_SHIM_PTX_OBJECT
             " -lm; status=$?; rm -f '%s.c'; exit $status",
             to, to, to, to);
  else
    snprintf(command, sizeof command,
             "cc " CY_SHIM_FLAGS " -DCY_WARPGROUPS=%d -nostdlib -pipe -o '%s' -x c - -x none " CY_SHIM_OBJECT
             " -lm -lgcc",
             mock_state.capability == 90, to);
  FILE *cc = popen(command, "w");
  if (!cc)
    return 0;
  fputs(image, cc);
  return pclose(cc) == 0;
}

/* Opens the compiled text; others that compile it at the same time see a file as a whole or not at all. */
static void *load(const char *image) {
  char dir[CHECK_PATH] = "", path[CHECK_PATH + 400], unfinished[sizeof path + 12];
  cached(image, path, sizeof path);
  if (!*path) {
    if (!check_folder("cyto-mock", dir))
      return NULL;
    snprintf(path, sizeof path, "%s/k.so", dir);
  }
  snprintf(unfinished, sizeof unfinished, "%s.%d", path, (int)getpid());
  int ok = !access(path, R_OK) || (compile(image, unfinished) && !rename(unfinished, path));
  void *library = ok ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (*dir) {
    unlink(path);
    rmdir(dir);
  }
  return library;
}

/* Is it the text of kernels? It begins with the prelude, as cytoc carries it. */
static int is_text(const char *image) {
  static const char begin[] = "/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */\n/* prelude.cuh";
  return !strncmp(image, begin, sizeof begin - 1);
}

int cuModuleLoadDataEx(void **out, const void *image, unsigned n, const int *options, void **values) {
  mock_count();
  int code = mock_unsafe();
  if (code)
    return code;
  for (unsigned i = 0; i + 1 < n && mock_state.load_code && mock_state.load_log; i++)
    if (options[i] == ERROR_LOG)
      snprintf(values[i], (uintptr_t)values[i + 1], "%s", mock_state.load_log);
  mock_state.loads++;
  if (mock_state.load_code) {
    int refusal = mock_state.load_code;
    mock_state.load_code = mock_state.load_refused && !--mock_state.load_refused ? 0 : refusal;
    return refusal;
  }
  void *library = is_idle() || (!is_text(image) && !is_ptx(image)) ? NULL : load(image);
  if (!library && !is_idle())
    return NO_BINARY;
  module *m = calloc(1, sizeof *m);
  m->library = library;
  void *launch = is_idle() ? NULL : dlsym(m->library, is_ptx(image) ? "ptx_launch" : "cy_shim_launch");
  memcpy(&m->launch, &launch, sizeof launch);
  m->source = is_ptx(image) ? NULL : strdup(image);
  m->device = mock_device();
  mock_state.modules++;
  *out = m;
  return OK;
}

/* Functions go with their module. */
int cuModuleUnload(void *where) {
  mock_count();
  module *m = where;
  for (function *f = m->functions, *next; f; f = next) {
    next = f->next;
    free(f);
  }
  if (m->library)
    dlclose(m->library);
  free(m->source);
  free(m);
  mock_state.modules--;
  return OK;
}

/* Bytes that a block may have when it asks. */
static int max_shared(void) {
  int c = mock_state.capability;
  return (c < 80 ? 64 : c == 80 || c == 87 ? 163 : c < 90 || c >= 120 ? 99 : 227) << 10;
}

int cuFuncSetAttribute(void *where, int attribute, int value) {
  mock_count();
  function *f = where;
  if (attribute != 8 || value < 0 || value + f->own_shared > max_shared())
    return INVALID_VALUE;
  f->shared = (unsigned)value;
  f->asked = 1;
  return OK;
}

/* Parameters are counted in the source. */
static int read_source(function *f, const char *source, const char *name) {
  char head[200];
  snprintf(head, sizeof head, ") %s(", name);
  const char *at = strstr(source, head);
  if (!at)
    return 0;
  f->nslots = 1;
  for (at += strlen(head); *at != ')'; at++) {
    f->nslots += *at == ',';
    f->nmaps += !strncmp(at, "CY_MAP ", 7);
  }
  f->nslots -= f->nmaps;
  f->waits = !strncmp(at, ") {\n  CY_AFTER();\n", 18);
  return 1;
}

/* What the library of a PTX image says of a kernel. */
static int number(const module *m, const char *name, const char *what) {
  char symbol[200];
  snprintf(symbol, sizeof symbol, "%s_%s", name, what);
  const int *n = dlsym(m->library, symbol);
  return n ? *n : 0;
}

int cuModuleGetFunction(void **out, void *where, const char *name) {
  mock_count();
  module *m = where;
  void *entry = is_idle() ? NULL : dlsym(m->library, name);
  function *f = calloc(1, sizeof *f);
  if ((!entry && !is_idle()) || (m->source && !read_source(f, m->source, name))) {
    free(f);
    return NOT_FOUND;
  }
  f->max_threads = 1024;
  if (!m->source) {
    f->waits = -1;
    f->nmaps = number(m, name, "maps");
    f->nslots = number(m, name, "params") - f->nmaps;
    f->own_shared = number(m, name, "shared");
    f->max_threads = number(m, name, "threads");
  }
  f->cluster = is_idle() ? 0 : number(m, name, "cluster");
  f->cluster = f->cluster ? f->cluster : 1;
  f->module = m;
  f->next = m->functions;
  m->functions = f;
  f->shared = UNASKED_SHARED - (unsigned)f->own_shared;
  memcpy(&f->entry, &entry, sizeof entry);
  *out = f;
  return OK;
}

/* ---- launches ---- */

/* Locked. */
int mock_perform_launch(const operation *o) {
  if (o->kernel->module->device != o->device)
    return INVALID_CONTEXT;
  mock_state.launches++;
  uint64_t slots[514];
  memcpy(slots, o->slots, (size_t)o->kernel->nslots * sizeof *slots);
  for (int i = 0; i < o->kernel->nmaps; i++)
    slots[o->kernel->nslots + i] = (uintptr_t)&o->maps[i];
  mock_state.clock_us += mock_state.kernel_us;
  if (is_idle())
    return OK;
  int wrong = o->kernel->module->launch(o->kernel->entry, o->threads, o->blocks, o->kernel->cluster,
                                        o->kernel->own_shared + o->shared, slots, o->kernel->nslots + o->kernel->nmaps,
                                        mock_state.schedule, 7);
  return wrong ? LAUNCH_FAILED : OK;
}

int cuTensorMapEncodeTiled(void *out, int type, unsigned rank, void *address, const uint64_t *extents,
                           const uint64_t *strides, const unsigned *box, const unsigned *steps, int interleave,
                           int swizzle, int promotion, int outside) {
  mock_count();
  uint8_t bytes = type == TENSOR_TF32 ? 4 : type ? 2 : 1;
  shim_map m = {.address = (uintptr_t)address,
                .extent = {1, 1, 1, 1, 1},
                .stride = {bytes},
                .box = {1, 1, 1, 1, 1},
                .step = {1, 1, 1, 1, 1},
                .bytes = bytes};
  (void)promotion;
  int ok = (type == 0 || type == 6 || type == 9 || type == TENSOR_TF32) && rank >= 2 && rank <= 5 && !interleave && swizzle == 3 && !outside &&
           (uintptr_t)out % 64 == 0 && steps[0] == 1 && mock_state.capability >= 90;
  for (unsigned i = 0; ok && i < rank; i++) {
    m.extent[i] = extents[i];
    ok = box[i] <= 256 && steps[i] && steps[i] <= 8;
    m.box[i] = (uint16_t)(ok ? (box[i] + steps[i] - 1) / steps[i] : 0);
    m.step[i] = (uint8_t)steps[i];
    if (i > 0)
      m.stride[i] = strides[i - 1];
  }
  if (!ok || !shim_map_valid(&m, (int)rank))
    return INVALID_VALUE;
  mock_state.maps++;
  memset(out, 0, 128);
  memcpy(out, &m, sizeof m);
  return OK;
}

int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *where, void **params, void **extra) {
  mock_count();
  (void)extra;
  operation o = {.kernel = f, .threads = (int)(bx * by * bz), .blocks = (long long)gx * gy * gz, .shared = (int)shared};
  if (gx > INT32_MAX || gy > 65535 || gz > 65535 || !o.blocks || o.threads < 1 || o.threads > o.kernel->max_threads ||
      shared > o.kernel->shared || (shared >= UNASKED_SHARED && !o.kernel->asked) || gx % (unsigned)o.kernel->cluster)
    return INVALID_VALUE;
  mock_state.max_shared = (int)shared > mock_state.max_shared ? (int)shared : mock_state.max_shared;
  for (int i = 0; i < o.kernel->nslots; i++)
    memcpy(&o.slots[i], params[i], 8);
  for (int i = 0; i < o.kernel->nmaps; i++)
    memcpy(&o.maps[i], params[o.kernel->nslots + i], sizeof o.maps[i]);
  return mock_submit(where, &o);
}

/* CUlaunchConfig and CUlaunchAttribute */
typedef struct launch_config {
  unsigned grid[3], block[3], shared;
  void *stream;
  const struct { int id, pad, value, rest[15]; } * attributes;
  unsigned n_attributes;
} launch_config;

/* Programmatic stream serialization alone: for a kernel that waits, behind another kernel. */
int cuLaunchKernelEx(const launch_config *c, void *f, void **params, void **extra) {
  enum { PROGRAMMATIC = 6 };
  mock_count();
  const function *kernel = f;
  const stream *s = mock_stream_of(c->stream) ? c->stream : &mock_legacy;
  const graph *given = s->capture ? s->capture : &s->later;
  const operation *last = given->first;
  while (last && last->next)
    last = last->next;
  if (c->n_attributes != 1 || c->attributes->id != PROGRAMMATIC || c->attributes->value != 1 || mock_state.capability < 90 ||
      !kernel->waits || (last && !last->kernel))
    return INVALID_VALUE;
  mock_state.programmatic++;
  int counted = mock_state.calls;
  int code = cuLaunchKernel(f, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->shared,
                            c->stream, params, extra);
  mock_state.calls = counted;
  return code;
}
