/* SPDX-License-Identifier: Apache-2.0 */
/* mock_cuda.h - what a test sets and reads in the mock driver. */
#ifndef MOCK_CUDA_H
#define MOCK_CUDA_H

#include <stddef.h>

enum { MOCK_DEVICES = 8 };

typedef struct mock_cuda_state {
  /* what cuInit(), cuModuleLoadDataEx(), cuCtxPushCurrent() and the next wait return; 0: they do their work */
  int init_code, load_code, push_code, wait_code;
  const char *load_log; /* .. and why */
  int load_refused;     /* so many are refused with load_code, the next ones are not; 0: all are */
  int capture_code[3];  /* what begins and ends of captures and their instantiation give; 0: they do their work */
  int unpoisoned;       /* memory of the host stays as it is until it is copied to */
  int prompt;           /* streams do at once what they are given */
  int any_capture;      /* the test captures, too, in other modes than the runtime's */
  int legacy_busy;      /* another thread uses the legacy stream whenever a stream is recorded */
  int devices;
  int capability;             /* 89 */
  size_t memory;              /* of the device, bytes */
  int schedule;               /* of the shim */
  int driver_version;         /* 13000 */
  double clock_us, kernel_us; /* what events tell; what a launch takes */
  int fail_nth, tried;        /* the call of this number that gets, copies or orders something fails with 719; so far */
  int pools;                  /* the device has stream-ordered pools, */
  int pool_code;              /* .. which give this in the place of memory */
  int managed;                /* the driver moves memory between devices */
  int host_limit;             /* more blocks of pinned memory than these are refused; 0: none are */
  int fail_device, fail_after, fail_code; /* waits on this device fail with the code, but for so many; -1: on none */
  int wait_us[MOCK_DEVICES];              /* how long a wait on each device takes, at least */
  /* counted */
  int device_waits[MOCK_DEVICES];
  size_t used;
  int blocks, pinned, streams, modules, retained;            /* alive */
  int events, graphs;                                        /* alive */
  int launches, recordings, replays, copies_in, waits, maps; /* since the start; maps: of tensors */
  int max_shared;                                            /* dynamic shared memory that a launch had */
  int programmatic;                                          /* launches that may begin early */
  int calls;                                                 /* of any function of the driver */
  int pool_allocs, pool_frees, event_waits;                  /* since the start */
  int loads;                                                 /* images that were given */
} mock_cuda_state;

mock_cuda_state *mock_cuda(void);
/* .calls, .launches, .devices, .pools and .pool_allocs, for callers that do not know the struct. */
int mock_cuda_calls(void);
int mock_cuda_launches(void);
void mock_cuda_set_devices(int n);
void mock_cuda_set_pools(int has);
int mock_cuda_pool_allocs(void);
/* Does work(data) on the stream: now, or whenever the graph that is being captured is launched. `data` is copied. */
int mock_cuda_submit(void *stream, int (*work)(const void *data), const void *data, size_t bytes);
/* Memory of the test's, not from the driver, is a device's from now on; bytes 0: the host's again. */
int mock_cuda_claim(void *at, size_t bytes, int device);

#endif
