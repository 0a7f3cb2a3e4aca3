/* SPDX-License-Identifier: Apache-2.0 */
/* mock_cuda.c - a libcuda.so.1 without a GPU: memory is the host's, kernels run through the shim (shim.h).
 *
 * An image is the CUDA C text that mock_nvrtc.c handed on, or PTX, which ptx.py makes C of; loading one compiles it by
 * the machine's C compiler. Streams do nothing before somebody waits for them: then each does what it was given, in order,
 * and no other stream does anything, so that whatever relies on a wait that is missing finds old values, and what the host
 * will be copied to is poisoned until then. With mock_cuda()->prompt all is done at once. While a stream is captured,
 * operations are kept, and a graph does them when it is launched. What a driver refuses while a stream is recorded is
 * refused here, too, and spoils the recording. Memory of a pool may be copied to by the stream that it was taken on alone
 * until that has come so far. The test steers and looks through mock_cuda(), which is no part of the driver's interface.
 * Where the environment has CY_MOCK_IDLE, kernels are neither compiled nor run: for counting calls.
 * Current contexts are a thread's own; memory and what streams do are behind a lock, as the shim runs one kernel at a
 * time.
 */
#define _GNU_SOURCE
#include "tests/cuda/mock/mock_cuda.h"
#include "tests/check.h"
#include "tests/cuda/shim/shim_map.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
  OK = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NO_BINARY = 209,
  INVALID_DEVICE = 101,
  INVALID_CONTEXT = 201,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  ILLEGAL_ADDRESS = 700,
  LAUNCH_FAILED = 719,
  CAPTURE_UNSUPPORTED = 900,
  CAPTURE_INVALIDATED = 901,
  CAPTURE_UNMATCHED = 903,
  CAPTURE_IMPLICIT = 906,
  MAX_BLOCKS = 4096,
  UNASKED_SHARED = 48 << 10 /* that a block has without asking */
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

typedef struct operation {
  struct operation *next;
  int device;                    /* whose context was current */
  function *kernel;              /* NULL: a copy, */
  int (*work)(const void *data); /* .. or another library's work on `data` */
  void *data;
  int threads;
  long long blocks;
  int shared;
  uint64_t slots[512];
  shim_map maps[2];
  void *to;
  const void *from;
  size_t bytes;
  void *
      read; /* what it is copied from, if that was read when the copy was asked for: memory of the host that may move */
} operation;

typedef struct graph {
  operation *first, **last;
} graph;

typedef struct stream {
  struct stream *next; /* of all that there are */
  graph *capture;
  int mode;     /* of the capture */
  graph later;  /* what it has still to do */
  int failed;   /* what that gave, which the next wait tells */
  int blocking; /* the legacy stream waits for it, and it for the legacy stream */
  int spoilt;   /* something that cannot be recorded was tried meanwhile */
} stream;

typedef struct event {
  double us;
  int recorded;
  struct stream *stream;
  unsigned ticket, done; /* of its recordings, in order: the last one, the last that its stream came to */
} event;

static struct {
  uintptr_t at;
  size_t bytes;
  int device;
  int claimed;                /* it is memory of the test's, see mock_cuda_claim() */
  const struct stream *taken; /* on this stream, which has not come to it; NULL: any may use it */
} blocks[MAX_BLOCKS];
static mock_cuda_state mock = {.fail_device = -1,
                               .capability = 89,
                               .devices = 1,
                               .memory = (size_t)1 << 32,
                               .driver_version = 13000,
                               .kernel_us = 10};
static stream legacy = {.blocking = 1, .later = {.last = &legacy.later.first}}, *streams = &legacy;
enum { POISON = 0xbd };
enum { FIRST_DEVICE = 40, MAX_DEPTH = 8, LEGACY = 1, NON_BLOCKING = 1, ERROR_LOG = 5 };
/* Devices of pushed contexts; in static thread-local storage, since LeakSanitizer (of GCC 12) fails to read any other. */
static _Thread_local __attribute__((tls_model("initial-exec"))) int stack[MAX_DEPTH], depth;
static _Thread_local __attribute__((tls_model("initial-exec"))) stream *capturing; /* by this thread */
enum { GLOBAL = 0, THREAD_LOCAL = 1, RELAXED = 2 };
static _Thread_local __attribute__((tls_model("initial-exec"))) int mode; /* of this thread's calls */
static struct {
  char *at;
  size_t bytes;
} pinned[MAX_BLOCKS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static int unlocked(int code) {
  pthread_mutex_unlock(&mutex);
  return code;
}

static void count_call(void) { __atomic_add_fetch(&mock.calls, 1, __ATOMIC_RELAXED); }

mock_cuda_state *mock_cuda(void) { return &mock; }
int mock_cuda_calls(void) { return mock.calls; }
int mock_cuda_launches(void) { return mock.launches; }
void mock_cuda_set_devices(int n) { mock.devices = n; }
void mock_cuda_set_pools(int has) { mock.pools = has; }
int mock_cuda_pool_allocs(void) { return mock.pool_allocs; }

/* ---- driver, devices, contexts ---- */

int cuInit(unsigned flags) {
  count_call();
  (void)flags;
  if (getenv("CY_MOCK_CAPABILITY"))
    mock.capability = atoi(getenv("CY_MOCK_CAPABILITY"));
  return mock.init_code;
}

int cuDriverGetVersion(int *version) {
  count_call();
  *version = mock.driver_version;
  return OK;
}

int cuGetErrorName(int code, const char **name) {
  count_call();
  *name = code == 100             ? "CUDA_ERROR_NO_DEVICE"
          : code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
                                  : "CUDA_ERROR_OTHER";
  return OK;
}

int cuDeviceGetCount(int *count) {
  count_call();
  *count = mock.devices;
  return OK;
}

int cuDeviceGet(int *device, int number) {
  count_call();
  *device = number + FIRST_DEVICE;
  return number < mock.devices ? OK : INVALID_DEVICE;
}

int cuDeviceGetName(char *name, int length, int device) {
  count_call();
  (void)device;
  snprintf(name, (size_t)length, "Mock GPU");
  return OK;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
  count_call();
  (void)device;
  *value = attribute == 75    ? mock.capability / 10
           : attribute == 76  ? mock.capability % 10
           : attribute == 16  ? 58
           : attribute == 115 ? mock.pools
                              : 0;
  return OK;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
  count_call();
  *context = (void *)(uintptr_t)device;
  mock.retained++;
  return OK;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
  count_call();
  (void)device;
  mock.retained--;
  return OK;
}

int cuCtxPushCurrent_v2(void *context) {
  count_call();
  if (mock.push_code)
    return mock.push_code;
  if (!context || depth == MAX_DEPTH)
    return INVALID_VALUE;
  stack[depth++] = (int)(uintptr_t)context;
  return OK;
}

int cuCtxGetCurrent(void **context) {
  count_call();
  *context = depth ? (void *)(uintptr_t)stack[depth - 1] : NULL;
  return OK;
}

int cuCtxPopCurrent_v2(void **context) {
  count_call();
  if (!depth)
    return INVALID_VALUE;
  *context = (void *)(uintptr_t)stack[--depth];
  return OK;
}

static int current(void) { return depth ? stack[depth - 1] : 0; }

/* What calls come to that do not go with a stream's capture, whatever the thread's mode is. */
static int refused(void) {
  if (capturing)
    capturing->spoilt = 1;
  return !depth ? INVALID_CONTEXT : capturing ? CAPTURE_UNSUPPORTED : OK;
}

/* Is this the call that is to fail? */
static int planned_failure(void) { return mock.fail_nth && ++mock.tried == mock.fail_nth ? LAUNCH_FAILED : OK; }

/* What calls come to that need a context and that may not happen while a stream is captured: memory, modules, waiting. In
 * global mode, which threads begin in, those of all threads are spoilt that are captured in global mode; in relaxed mode
 * all goes. */
static int unsafe(void) {
  int spoils = 0;
  if (!depth)
    return INVALID_CONTEXT;
  pthread_mutex_lock(&mutex);
  for (stream *s = streams; s; s = s->next)
    if (s->capture && mode != RELAXED && (s == capturing || (mode == GLOBAL && s->mode == GLOBAL)))
      spoils = s->spoilt = 1;
  return unlocked(spoils ? CAPTURE_UNSUPPORTED : OK);
}

int cuThreadExchangeStreamCaptureMode(int *changed) {
  count_call();
  int before = mode;
  if (*changed < GLOBAL || *changed > RELAXED)
    return INVALID_VALUE;
  mode = *changed;
  *changed = before;
  return OK;
}

/* ---- memory ---- */

/* Where the environment has CY_MOCK_GUARD, memory lies between pages that nobody may touch, and ends less than 256 bytes
 * before the second one. */
enum { TENSOR_TF32 = 11 };
enum { PAGE = 4096, PIECE = 2 << 20 }; /* PIECE: what a driver gives whole, the host has no part of */

static size_t guarded_room(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

static void *block_alloc(size_t bytes) {
  if (!getenv("CY_MOCK_GUARD"))
    return aligned_alloc(PIECE, (bytes + PIECE) / PIECE * PIECE);
  size_t room = guarded_room(bytes);
  char *base = mmap(NULL, room + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED || (room && mprotect(base + PAGE, room, PROT_READ | PROT_WRITE)))
    return NULL;
  return base + PAGE + (room - bytes) / 256 * 256;
}

static void block_free(uintptr_t at, size_t bytes) {
  if (!getenv("CY_MOCK_GUARD"))
    free((void *)at);
  else
    munmap((void *)(at / PAGE * PAGE - PAGE), guarded_room(bytes) + 2 * PAGE);
}

int cuMemAlloc_v2(uint64_t *out, size_t bytes) {
  count_call();
  int code = unsafe();
  code = code ? code : planned_failure();
  if (code)
    return code;
  pthread_mutex_lock(&mutex);
  if (mock.used + bytes > mock.memory)
    return unlocked(OUT_OF_MEMORY);
  for (int i = 0; i < MAX_BLOCKS; i++)
    if (!blocks[i].at) {
      void *ptr = block_alloc(bytes);
      if (!ptr)
        return unlocked(OUT_OF_MEMORY);
      memset(ptr, 0xff, bytes);
      blocks[i].at = (uintptr_t)ptr;
      blocks[i].bytes = bytes;
      blocks[i].device = current();
      blocks[i].taken = NULL;
      mock.used += bytes;
      mock.blocks++;
      *out = blocks[i].at;
      return unlocked(OK);
    }
  return unlocked(OUT_OF_MEMORY);
}

/* Locked. */
static int free_block(uint64_t ptr, int device) {
  for (int i = 0; i < MAX_BLOCKS; i++)
    if (blocks[i].at == ptr) {
      if (blocks[i].device != device)
        return 201;
      block_free(blocks[i].at, blocks[i].bytes);
      mock.used -= blocks[i].bytes;
      mock.blocks--;
      blocks[i].at = 0;
      return OK;
    }
  return INVALID_VALUE;
}

int cuMemFree_v2(uint64_t ptr) {
  count_call();
  int code = unsafe();
  if (code)
    return code;
  pthread_mutex_lock(&mutex);
  return unlocked(free_block(ptr, current()));
}

int mock_cuda_claim(void *at, size_t bytes, int device) {
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < MAX_BLOCKS; i++)
    if (blocks[i].claimed ? blocks[i].at == (uintptr_t)at : bytes && !blocks[i].at) {
      memset(&blocks[i], 0, sizeof blocks[i]);
      blocks[i].at = bytes ? (uintptr_t)at : 0;
      blocks[i].bytes = bytes;
      blocks[i].device = device + FIRST_DEVICE;
      blocks[i].claimed = bytes > 0;
      return unlocked(OK);
    }
  return unlocked(INVALID_VALUE);
}

static int submit_work(void *where, int (*work)(const void *data), const void *data, size_t bytes);
static stream *stream_of(void *s);
static int catch_up(stream *s);

static int taken(const void *data) {
  for (int i = 0; i < MAX_BLOCKS; i++)
    if (blocks[i].at == *(const uint64_t *)data)
      blocks[i].taken = NULL;
  return OK;
}

/* By the pool: what is taken or freed there is so when the stream has come to it. */
int cuMemAllocAsync(uint64_t *out, size_t bytes, void *where) {
  count_call();
  if (!depth || !mock.pools)
    return depth ? INVALID_VALUE : INVALID_CONTEXT;
  if (mock.pool_code)
    return mock.pool_code;
  stream *by = stream_of(where) ? where : &legacy;
  int code = cuMemAlloc_v2(out, bytes);
  if (code == OUT_OF_MEMORY && !by->capture) { /* what was freed in front of it */
    pthread_mutex_lock(&mutex);
    by->failed = catch_up(by);
    pthread_mutex_unlock(&mutex);
    code = cuMemAlloc_v2(out, bytes);
  }
  if (code)
    return code;
  mock.pool_allocs++;
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < MAX_BLOCKS; i++)
    if (blocks[i].at == *out)
      blocks[i].taken = by;
  pthread_mutex_unlock(&mutex);
  return submit_work(where, taken, out, sizeof *out);
}

typedef struct freeing {
  uint64_t ptr;
  int device;
} freeing;

static int free_later(const void *data) {
  const freeing *f = data;
  return free_block(f->ptr, f->device);
}

int cuMemFreeAsync(uint64_t ptr, void *where) {
  count_call();
  const freeing f = {ptr, current()};
  if (!depth)
    return INVALID_CONTEXT;
  mock.pool_frees++;
  return submit_work(where, free_later, &f, sizeof f);
}

int cuMemGetInfo_v2(size_t *available, size_t *total) {
  count_call();
  if (!depth)
    return INVALID_CONTEXT;
  *available = mock.memory - mock.used;
  *total = mock.memory;
  return OK;
}

int cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
  count_call();
  (void)flags;
  int code = unsafe();
  code = code ? code : planned_failure();
  if (code)
    return code;
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < MAX_BLOCKS && !(mock.host_limit && mock.pinned >= mock.host_limit); i++)
    if (!pinned[i].at) {
      *out = pinned[i].at = malloc(bytes);
      pinned[i].bytes = bytes;
      mock.pinned++;
      return unlocked(OK);
    }
  return unlocked(OUT_OF_MEMORY);
}

int cuMemFreeHost(void *ptr) {
  count_call();
  int code = unsafe();
  if (code)
    return code;
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < MAX_BLOCKS; i++)
    if (pinned[i].at == ptr) {
      free(ptr);
      pinned[i].at = NULL;
      mock.pinned--;
      return unlocked(OK);
    }
  return unlocked(INVALID_VALUE);
}

int cuPointerGetAttribute(void *out, int attribute, uint64_t ptr) {
  count_call();
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < MAX_BLOCKS; i++)
    if (blocks[i].at && ptr >= blocks[i].at && ptr < blocks[i].at + blocks[i].bytes) {
      /* type, is it managed, device */
      *(int *)out = attribute == 2 ? 2 : attribute == 8 ? mock.managed : blocks[i].device - FIRST_DEVICE;
      return unlocked(attribute == 2 || attribute == 8 || attribute == 9 ? OK : INVALID_VALUE);
    }
  return unlocked(INVALID_VALUE);
}

/* ---- operations ---- */

/* Is it memory of another device? The host's is of none. */
static int is_elsewhere(const void *ptr, int device) {
  for (int i = 0; i < MAX_BLOCKS; i++)
    if (blocks[i].at && (uintptr_t)ptr >= blocks[i].at && (uintptr_t)ptr < blocks[i].at + blocks[i].bytes)
      return blocks[i].device != device;
  return 0;
}

/* Is it memory of a pool that another stream has still to come to? */
static int is_not_taken(const void *ptr, const stream *by) {
  for (int i = 0; i < MAX_BLOCKS; i++)
    if (blocks[i].at && (uintptr_t)ptr >= blocks[i].at && (uintptr_t)ptr < blocks[i].at + blocks[i].bytes)
      return blocks[i].taken && blocks[i].taken != by;
  return 0;
}

/* Memory of a device, or of the host that no system call can move: what a recording may copy from and to. */
static int stays(const char *ptr, size_t bytes) {
  for (int i = 0; i < MAX_BLOCKS; i++)
    if ((blocks[i].at && (uintptr_t)ptr >= blocks[i].at && (uintptr_t)ptr + bytes <= blocks[i].at + blocks[i].bytes) ||
        (pinned[i].at && ptr >= pinned[i].at && ptr + bytes <= pinned[i].at + pinned[i].bytes))
      return 1;
  return 0;
}

static int is_idle(void);

static int perform(const operation *o) {
  if (o->work)
    return o->work(o->data);
  if (!o->kernel) {
    if (is_elsewhere(o->to, o->device) || is_elsewhere(o->from, o->device))
      return 201;
    memcpy(o->to, o->from, o->bytes);
    return OK;
  }
  if (o->kernel->module->device != o->device)
    return 201;
  mock.launches++;
  uint64_t slots[514];
  memcpy(slots, o->slots, (size_t)o->kernel->nslots * sizeof *slots);
  for (int i = 0; i < o->kernel->nmaps; i++)
    slots[o->kernel->nslots + i] = (uintptr_t)&o->maps[i];
  mock.clock_us += mock.kernel_us;
  if (is_idle())
    return OK;
  int wrong = o->kernel->module->launch(o->kernel->entry, o->threads, o->blocks, o->kernel->cluster,
                                        o->kernel->own_shared + o->shared, slots, o->kernel->nslots + o->kernel->nmaps,
                                        mock.schedule, 7);
  return wrong ? 719 : OK; /* CUDA_ERROR_LAUNCH_FAILED */
}

static int is_of_device(const void *ptr) {
  for (int i = 0; i < MAX_BLOCKS; i++)
    if (blocks[i].at && (uintptr_t)ptr >= blocks[i].at && (uintptr_t)ptr < blocks[i].at + blocks[i].bytes)
      return 1;
  return 0;
}

/* Of a stream that can be recorded; NULL: it cannot. */
static stream *stream_of(void *s) { return (uintptr_t)s == LEGACY ? NULL : s; }

static operation *copy_of(const operation *o) {
  operation *kept = malloc(sizeof *kept);
  *kept = *o;
  kept->next = NULL;
  if (o->work) {
    kept->data = malloc(o->bytes);
    memcpy(kept->data, o->data, o->bytes);
  }
  return kept;
}

static void append(graph *g, operation *o) {
  *g->last = o;
  g->last = &o->next;
}

/* The first thing that the stream was given. */
static int step(stream *s) {
  operation *o = s->later.first;
  if (!(s->later.first = o->next))
    s->later.last = &s->later.first;
  int code = perform(o);
  free(o->work ? o->data : NULL);
  free(o->read);
  free(o);
  return code;
}

/* Everything that the stream was given; the first code that is no success. */
static int catch_up(stream *s) {
  int code = s->failed;
  while (s->later.first) {
    int got = step(s);
    code = code ? code : got;
  }
  s->failed = 0;
  return code;
}

/* The legacy stream and those that are blocking do what they were given before each other in the order of calls: here, at
 * the latest when one of the others is given something. */
static void keep_order(const stream *s) {
  for (stream *other = streams; other; other = other->next)
    if (other != s && (s == &legacy ? other->blocking : other == &legacy && s->blocking))
      other->failed = catch_up(other);
}

/* Locked. Now or later. */
static int give(stream *s, const operation *o) {
  if (!o->work && !o->kernel && (is_not_taken(o->to, s) || is_not_taken(o->from, s)))
    return ILLEGAL_ADDRESS;
  keep_order(s);
  if (mock.prompt)
    return perform(o);
  operation *kept = copy_of(o);
  if (!o->work && !o->kernel && !stays(o->from, o->bytes))
    kept->from = kept->read = memcpy(malloc(o->bytes + 1), o->from, o->bytes);
  append(&s->later, kept);
  if (!o->work && !o->kernel && !mock.unpoisoned && !is_of_device(o->to))
    memset(o->to, POISON, o->bytes);
  return OK;
}

/* Locked. The legacy stream would wait for streams that are being captured, which spoils these. */
static int legacy_refused(void) {
  int code = OK;
  for (stream *s = streams; s; s = s->next)
    if (s->capture && s->blocking) {
      s->spoilt = 1;
      code = CAPTURE_IMPLICIT;
    }
  return code;
}

static int submit(void *where, const operation *given) {
  stream *s = stream_of(where);
  operation here = *given, *o = &here;
  o->device = current();
  if (!s || !s->capture) {
    pthread_mutex_lock(&mutex);
    int code = s ? OK : legacy_refused();
    return unlocked(code ? code : give(s ? s : &legacy, o));
  }
  if (!o->work && !o->kernel && !(stays(o->to, o->bytes) && stays(o->from, o->bytes)))
    return refused();
  append(s->capture, copy_of(o));
  return OK;
}

static int submit_work(void *where, int (*work)(const void *data), const void *data, size_t bytes) {
  return submit(where, &(operation){.work = work, .data = (void *)data, .bytes = bytes});
}

int mock_cuda_submit(void *stream, int (*work)(const void *data), const void *data, size_t bytes) {
  return submit_work(stream, work, data, bytes);
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *where) {
  count_call();
  int code = planned_failure();
  if (code)
    return code;
  code = submit(where, &(operation){.to = (void *)(uintptr_t)to, .from = from, .bytes = bytes});
  __atomic_add_fetch(&mock.copies_in, code == OK, __ATOMIC_RELAXED);
  return code;
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *where) {
  count_call();
  return submit(where, &(operation){.to = to, .from = (const void *)(uintptr_t)from, .bytes = bytes});
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *where) {
  count_call();
  return submit(where,
                &(operation){.to = (void *)(uintptr_t)to, .from = (const void *)(uintptr_t)from, .bytes = bytes});
}

/* As the driver has it (CUDA_MEMCPY2D); rows one by one, since they may be recorded. */
typedef struct rows_copy {
  size_t from_x, from_y;
  int from_kind;
  const void *from_host;
  uint64_t from_device;
  void *from_array;
  size_t from_pitch, to_x, to_y;
  int to_kind;
  void *to_host;
  uint64_t to_device;
  void *to_array;
  size_t to_pitch, width, height;
} rows_copy;

int cuMemcpy2DAsync_v2(const rows_copy *c, void *where) {
  count_call();
  const char *from = c->from_kind == 2 ? (const char *)(uintptr_t)c->from_device : c->from_host;
  char *to = c->to_kind == 2 ? (char *)(uintptr_t)c->to_device : c->to_host;
  int code = !depth ? INVALID_CONTEXT : OK;
  if (c->from_x || c->from_y || c->to_x || c->to_y || c->width > c->from_pitch || c->width > c->to_pitch ||
      c->from_pitch > INT32_MAX || c->to_pitch > INT32_MAX || (c->from_kind == 2) != is_of_device(from) ||
      (c->to_kind == 2) != is_of_device(to))
    return INVALID_VALUE;
  for (size_t i = 0; i < c->height && !code; i++)
    code = submit(where, &(operation){.to = to + i * c->to_pitch, .from = from + i * c->from_pitch, .bytes = c->width});
  return code;
}

typedef struct filling {
  void *to;
  size_t bytes;
  unsigned char value;
} filling;

static int fill(const void *data) {
  const filling *f = data;
  memset(f->to, f->value, f->bytes);
  return OK;
}

int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void *where) {
  count_call();
  const filling f = {(void *)(uintptr_t)to, bytes, value};
  return submit(where, &(operation){.work = fill, .data = (void *)&f, .bytes = sizeof f});
}

int cuTensorMapEncodeTiled(void *out, int type, unsigned rank, void *address, const uint64_t *extents,
                           const uint64_t *strides, const unsigned *box, const unsigned *steps, int interleave,
                           int swizzle, int promotion, int outside) {
  count_call();
  uint8_t bytes = type == TENSOR_TF32 ? 4 : type ? 2 : 1;
  shim_map m = {.address = (uintptr_t)address,
                .extent = {1, 1, 1, 1, 1},
                .stride = {bytes},
                .box = {1, 1, 1, 1, 1},
                .step = {1, 1, 1, 1, 1},
                .bytes = bytes};
  (void)promotion;
  int ok = (type == 0 || type == 6 || type == 9 || type == TENSOR_TF32) && rank >= 2 && rank <= 5 && !interleave && swizzle == 3 && !outside &&
           (uintptr_t)out % 64 == 0 && steps[0] == 1 && mock.capability >= 90;
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
  mock.maps++;
  memset(out, 0, 128);
  memcpy(out, &m, sizeof m);
  return OK;
}

int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *where, void **params, void **extra) {
  count_call();
  (void)extra;
  operation o = {.kernel = f, .threads = (int)(bx * by * bz), .blocks = (long long)gx * gy * gz, .shared = (int)shared};
  if (gx > INT32_MAX || gy > 65535 || gz > 65535 || !o.blocks || o.threads < 1 || o.threads > o.kernel->max_threads ||
      shared > o.kernel->shared || (shared >= UNASKED_SHARED && !o.kernel->asked) || gx % (unsigned)o.kernel->cluster)
    return INVALID_VALUE;
  mock.max_shared = (int)shared > mock.max_shared ? (int)shared : mock.max_shared;
  for (int i = 0; i < o.kernel->nslots; i++)
    memcpy(&o.slots[i], params[i], 8);
  for (int i = 0; i < o.kernel->nmaps; i++)
    memcpy(&o.maps[i], params[o.kernel->nslots + i], sizeof o.maps[i]);
  return submit(where, &o);
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
  count_call();
  const function *kernel = f;
  const stream *s = stream_of(c->stream) ? c->stream : &legacy;
  const graph *given = s->capture ? s->capture : &s->later;
  const operation *last = given->first;
  while (last && last->next)
    last = last->next;
  if (c->n_attributes != 1 || c->attributes->id != PROGRAMMATIC || c->attributes->value != 1 || mock.capability < 90 ||
      !kernel->waits || (last && !last->kernel))
    return INVALID_VALUE;
  mock.programmatic++;
  int counted = mock.calls;
  int code = cuLaunchKernel(f, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->shared,
                            c->stream, params, extra);
  mock.calls = counted;
  return code;
}

/* ---- streams and graphs ---- */

int cuGraphDestroy(void *g);

int cuStreamCreate(void **out, unsigned flags) {
  count_call();
  int code = unsafe();
  code = code ? code : planned_failure();
  if (code)
    return code;
  stream *s = *out = calloc(1, sizeof(stream));
  s->blocking = !(flags & NON_BLOCKING);
  s->later.last = &s->later.first;
  pthread_mutex_lock(&mutex);
  s->next = streams;
  streams = s;
  mock.streams++;
  return unlocked(OK);
}

/* The driver lets it finish. */
int cuStreamDestroy_v2(void *s) {
  count_call();
  pthread_mutex_lock(&mutex);
  catch_up(s);
  for (stream **at = &streams; *at; at = &(*at)->next)
    if (*at == s) {
      *at = (*at)->next;
      break;
    }
  free(s);
  mock.streams--;
  return unlocked(OK);
}

/* A wait on the device whose context is current: what it is to fail with. */
static int device_wait(void) {
  int device = depth ? stack[depth - 1] - FIRST_DEVICE : 0, code = OK;
  if (device < 0 || device >= MOCK_DEVICES)
    return OK;
  pthread_mutex_lock(&mutex);
  mock.device_waits[device]++;
  if (device == mock.fail_device && mock.fail_after-- <= 0)
    code = mock.fail_code;
  pthread_mutex_unlock(&mutex);
  if (mock.wait_us[device])
    usleep((unsigned)mock.wait_us[device]);
  return code;
}

int cuStreamSynchronize(void *s) {
  count_call();
  int code = device_wait();
  code = code ? code : mock.wait_code;
  mock.waits++;
  mock.wait_code = 0;
  if (code)
    return code;
  if (stream_of(s) && ((stream *)s)->capture)
    return refused();
  pthread_mutex_lock(&mutex);
  stream *of = stream_of(s) ? s : &legacy;
  if (of == &legacy && (code = legacy_refused()))
    return unlocked(code);
  keep_order(of);
  return unlocked(catch_up(of));
}

int cuStreamBeginCapture_v2(void *s, int how) {
  count_call();
  if (!stream_of(s) || capturing || ((stream *)s)->capture)
    return CAPTURE_UNSUPPORTED;
  if (mock.capture_code[0])
    return mock.capture_code[0];
  graph *g = calloc(1, sizeof *g);
  g->last = &g->first;
  capturing = s;
  capturing->capture = g;
  capturing->mode = how;
  capturing->spoilt = capturing->blocking && mock.legacy_busy;
  return how == THREAD_LOCAL || mock.any_capture ? OK : INVALID_VALUE;
}

int cuStreamIsCapturing(void *s, int *status) {
  count_call();
  if (!stream_of(s))
    return capturing && capturing->blocking ? CAPTURE_IMPLICIT : (*status = 0, OK);
  const stream *of = s;
  *status = !of->capture ? 0 : of->spoilt ? 2 : 1;
  return OK;
}

int cuStreamEndCapture(void *s, void **out) {
  count_call();
  stream *ended = s;
  if (!stream_of(s) || ended != capturing)
    return CAPTURE_UNMATCHED;
  *out = ended->capture;
  ended->capture = NULL;
  capturing = NULL;
  if (!ended->spoilt && !mock.capture_code[1])
    return OK;
  cuGraphDestroy(*out);
  *out = NULL;
  return ended->spoilt ? CAPTURE_INVALIDATED : mock.capture_code[1];
}

/* The executable takes the operations over. */
int cuGraphInstantiateWithFlags(void **out, void *g, unsigned long long flags) {
  count_call();
  (void)flags;
  if (mock.capture_code[2])
    return mock.capture_code[2];
  graph *copy = malloc(sizeof *copy);
  *copy = *(graph *)g;
  ((graph *)g)->first = NULL;
  *out = copy;
  mock.recordings++;
  mock.graphs++;
  return OK;
}

int cuGraphLaunch(void *executable, void *s) {
  count_call();
  if (!depth || (stream_of(s) && ((stream *)s)->capture))
    return refused();
  pthread_mutex_lock(&mutex);
  mock.replays++;
  for (const operation *o = ((graph *)executable)->first; o; o = o->next)
    if (give(stream_of(s) ? s : &legacy, o))
      return unlocked(719);
  return unlocked(OK);
}

int cuGraphDestroy(void *g) {
  count_call();
  for (operation *o = ((graph *)g)->first, *next; o; o = next) {
    next = o->next;
    free(o->data);
    free(o);
  }
  free(g);
  return OK;
}

int cuGraphExecDestroy(void *executable) {
  count_call();
  mock.graphs--;
  return cuGraphDestroy(executable);
}

/* ---- events: what the mock's clock says ---- */

int cuEventCreate(void **out, unsigned flags) {
  count_call();
  (void)flags;
  if (!depth)
    return INVALID_CONTEXT;
  int code = planned_failure();
  if (code)
    return code;
  *out = calloc(1, sizeof(event));
  mock.events++;
  return OK;
}

typedef struct noting {
  event *event;
  unsigned ticket;
} noting;

static int note_time(const void *data) {
  const noting *n = data;
  n->event->us = mock.clock_us;
  n->event->done = n->ticket;
  return OK;
}

/* The other stream does what it was given up to that recording, and no more. */
static int await(const void *data) {
  const noting *n = data;
  stream *s = n->event->stream;
  int code = OK;
  while (n->event->done < n->ticket && s && s->later.first && !code)
    code = step(s);
  return code;
}

int cuStreamWaitEvent(void *s, void *e, unsigned flags) {
  count_call();
  const noting n = {e, ((event *)e)->ticket};
  if (flags || !depth || (stream_of(s) && ((stream *)s)->capture))
    return flags ? INVALID_VALUE : refused();
  mock.event_waits++;
  int code = planned_failure();
  if (code)
    return code;
  return submit_work(s, await, &n, sizeof n);
}

int cuEventRecord(void *e, void *s) {
  count_call();
  if (stream_of(s) && ((stream *)s)->capture)
    return refused();
  event *kept = e;
  int code = planned_failure();
  if (code)
    return code;
  kept->recorded = 1;
  kept->stream = stream_of(s) ? s : &legacy;
  const noting n = {kept, ++kept->ticket};
  return submit_work(s, note_time, &n, sizeof n);
}

int cuEventSynchronize(void *e) {
  count_call();
  pthread_mutex_lock(&mutex);
  stream *s = ((event *)e)->stream;
  int code = s ? catch_up(s) : OK;
  return unlocked(code);
}

int cuEventElapsedTime(float *ms, void *from, void *to) {
  count_call();
  const event *a = from, *b = to;
  *ms = (float)((b->us - a->us) / 1000);
  return a->recorded && b->recorded ? OK : INVALID_HANDLE;
}

/* Once the stream has come to it. */
int cuEventDestroy_v2(void *e) {
  count_call();
  pthread_mutex_lock(&mutex);
  for (stream *s = streams; s; s = s->next)
    if (s == ((event *)e)->stream)
      s->failed = catch_up(s);
  free(e);
  mock.events--;
  return unlocked(OK);
}

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
      (unsigned long long)hash(hash(h, mock.capability == 90 ? CY_SHIM_FLAGS "warpgroups" : CY_SHIM_FLAGS), image));
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
             mock.capability == 90, to);
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

int cuModuleLoadDataEx(void **out, const void *image, unsigned n, const int *options, void **values) {
  count_call();
  int code = unsafe();
  if (code)
    return code;
  for (unsigned i = 0; i + 1 < n && mock.load_code && mock.load_log; i++)
    if (options[i] == ERROR_LOG)
      snprintf(values[i], (uintptr_t)values[i + 1], "%s", mock.load_log);
  mock.loads++;
  if (mock.load_code) {
    int refusal = mock.load_code;
    mock.load_code = mock.load_refused && !--mock.load_refused ? 0 : refusal;
    return refusal;
  }
  void *library = is_idle() || (strncmp(image, "/* prelude.cuh", 14) && !is_ptx(image)) ? NULL : load(image);
  if (!library && !is_idle())
    return NO_BINARY;
  module *m = calloc(1, sizeof *m);
  m->library = library;
  void *launch = is_idle() ? NULL : dlsym(m->library, is_ptx(image) ? "ptx_launch" : "cy_shim_launch");
  memcpy(&m->launch, &launch, sizeof launch);
  m->source = is_ptx(image) ? NULL : strdup(image);
  m->device = current();
  mock.modules++;
  *out = m;
  return OK;
}

/* Functions go with their module. */
int cuModuleUnload(void *where) {
  count_call();
  module *m = where;
  for (function *f = m->functions, *next; f; f = next) {
    next = f->next;
    free(f);
  }
  if (m->library)
    dlclose(m->library);
  free(m->source);
  free(m);
  mock.modules--;
  return OK;
}

/* Bytes that a block may have when it asks. */
static int max_shared(void) {
  int c = mock.capability;
  return (c < 80 ? 64 : c == 80 || c == 87 ? 163 : c < 90 || c >= 120 ? 99 : 227) << 10;
}

int cuFuncSetAttribute(void *where, int attribute, int value) {
  count_call();
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
  count_call();
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
