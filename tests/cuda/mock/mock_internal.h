/* SPDX-License-Identifier: Apache-2.0 */
/* mock_internal.h - what the files of the mock driver share: a libcuda.so.1 without a GPU, whose memory is the host's.
 *
 *   mock_cuda.c     driver, devices, contexts       mock_stream.c   streams, copies, captures, graphs, events
 *   mock_memory.c   memory, pools, pinned memory    mock_module.c   modules, functions, launches
 *
 * The test steers and looks through mock_cuda(), which is no part of the driver's interface. Current contexts are a thread's
 * own; memory and what streams do are behind a lock, as the shim runs one kernel at a time. Names that begin with mock_ and
 * that are not in mock_cuda.h are hidden: the library has no other names than the driver's and those.
 */
#ifndef MOCK_INTERNAL_H
#define MOCK_INTERNAL_H

#include "tests/cuda/mock/mock_cuda.h"
#include "tests/cuda/shim/shim_map.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

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
  CAPTURE_IMPLICIT = 906
};
enum { FIRST_DEVICE = 40, MAX_DEPTH = 8 };
/* In static thread-local storage, since LeakSanitizer (of GCC 12) fails to read any other. */
#define MOCK_OF_THREAD _Thread_local __attribute__((tls_model("initial-exec")))

typedef struct operation {
  struct operation *next;
  int device;                    /* whose context was current */
  struct function *kernel;       /* NULL: a copy, */
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
  void *read; /* what it is copied from, if that was read when the copy was asked for: memory of the host that may move */
} operation;

typedef struct graph {
  operation *first, **last;
} graph;

typedef struct stream {
  struct stream *next; /* of all that there are */
  graph *capture;
  int mode;     /* of the capture */
  graph later;  /* what it has still to do */
  int failed;   /* what that gave, which the next wait reports */
  int blocking; /* the legacy stream waits for it, and it for the legacy stream */
  int spoilt;   /* something that cannot be recorded was tried meanwhile */
} stream;

#pragma GCC visibility push(hidden)

/* ---- mock_cuda.c ---- */
extern mock_cuda_state mock_state;
extern pthread_mutex_t mock_mutex;
extern MOCK_OF_THREAD int mock_stack[MAX_DEPTH], mock_depth; /* devices of pushed contexts */
int mock_unlock(int code);                                   /* the code */
void mock_count(void);                                       /* a call of the driver */
int mock_device(void);                                       /* whose context is current; 0: of none */
int mock_failure(void);                                      /* what the call comes to if it is the one that is to fail */

/* ---- mock_memory.c; locked ---- */
int mock_is_of_device(const void *ptr);
int mock_is_elsewhere(const void *ptr, int device);           /* is it memory of another device? The host's is of none */
int mock_is_not_taken(const void *ptr, const stream *by);     /* memory of a pool that another stream has still to come to? */
/* Memory of a device, or of the host that no system call can move: what a recording may copy from and to. */
int mock_stays(const char *ptr, size_t bytes);

/* ---- mock_stream.c ---- */
extern stream mock_legacy;
/* What calls come to that do not go with a stream's capture, whatever the thread's mode is. */
int mock_refused(void);
/* What calls come to that need a context and that may not happen while a stream is captured: memory, modules, waiting. In
 * global mode, which threads begin in, those of all threads are spoilt that are captured in global mode; in relaxed mode
 * all goes. */
int mock_unsafe(void);
stream *mock_stream_of(void *s); /* one that can be recorded; NULL: it cannot */
int mock_submit(void *where, const operation *given);
int mock_submit_work(void *where, int (*work)(const void *data), const void *data, size_t bytes);
int mock_catch_up(stream *s); /* locked; everything that it was given: the first code that is no success */

/* ---- mock_module.c ---- */
int mock_perform_launch(const operation *o); /* locked */

#pragma GCC visibility pop

#endif
