/* SPDX-License-Identifier: Apache-2.0 */
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

/* What the driver demands of a map of `rank` axes (cuTensorMapEncodeTiled), with swizzled rows and no interleaving. */
static inline int shim_map_valid(const shim_map *m, int rank) {
  int ok =
      rank >= 1 && rank <= 5 && m->address % 16 == 0 && m->box[0] * m->bytes <= 128 && m->box[0] * m->bytes % 16 == 0;
  for (int i = 0; i < 5 && ok; i++) {
    ok = m->extent[i] && m->extent[i] <= (uint64_t)1 << 31 && m->step[i] && m->step[i] <= 8 && m->box[i] &&
         m->box[i] * m->step[i] <= 256;
    if (i > 0 && i < rank)
      ok &= m->stride[i] && m->stride[i] % 16 == 0 && m->stride[i] >> 40 == 0;
  }
  return ok;
}

#endif
