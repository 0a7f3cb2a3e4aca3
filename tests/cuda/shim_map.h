/* shim_map.h - what a tensor map is to the shim: read by its copies, written by mock_cuda.c and kernels_test.c. */
#ifndef SHIM_MAP_H
#define SHIM_MAP_H

#include <stdint.h>

typedef struct shim_map {
  uint64_t address, extent[5],
      stride[5];          /* from the contiguous axis outwards; strides in bytes; 1, 0 behind the last */
  uint16_t box[5];        /* elements; their rows are swizzled by 128 bytes */
  uint8_t step[5], bytes; /* bytes: of an element */
} shim_map;
_Static_assert(sizeof(shim_map) <= 128, "a map of the driver has 128 bytes");

#endif
