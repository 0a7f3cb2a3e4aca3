/* shim_map.h - what a tensor map is to the shim: read by its copies, written by mock_cuda.c and kernels_test.c. */
#ifndef SHIM_MAP_H
#define SHIM_MAP_H

#include <stdint.h>

typedef struct shim_map {
  uint64_t address, extent[3], stride[3]; /* from the contiguous axis outwards; strides in bytes */
  uint32_t box[3], bytes;                 /* bytes: of an element; rows of a box are swizzled by 128 bytes */
} shim_map;

#endif
