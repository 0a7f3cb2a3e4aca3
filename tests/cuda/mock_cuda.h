/* mock_cuda.h - what a test sets and reads in the mock driver. */
#ifndef MOCK_CUDA_H
#define MOCK_CUDA_H

#include <stddef.h>

typedef struct mock_cuda_state {
  int init_code; /* what cuInit() returns */
  int devices;
  int capability; /* 89 */
  size_t memory;  /* of the device, bytes */
  int schedule;   /* of the shim */
  /* counted */
  size_t used;
  int blocks, pinned, streams, modules, retained; /* alive */
  int launches, recordings, replays, uploads, maps; /* since the start; maps: of tensors */
} mock_cuda_state;

mock_cuda_state *mock_cuda(void);

#endif
