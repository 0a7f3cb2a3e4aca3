/* SPDX-License-Identifier: Apache-2.0 */
/* images.c - the device code of some kernels as an object file: one read-only symbol, a cyrt_cuda_images (cyto_abi.h).
 *
 * Images are packed, each for itself, since a run unpacks one of them: cubins and PTX are two thirds zeros and
 * repetitions. LZ4 needs 40 lines to unpack, in a runtime that has nothing but libc.
 */
#include "codegen/cuda/cuda_int.h"
#include "codegen/work.h"
#include "runtime/cyto_abi.h"

#include <lz4hc.h>
#include <stdlib.h>

enum { ALIGN = 64 };

char *cy_cuda_pack(const char *bytes, size_t size, size_t *out_size) {
  int capacity = size <= LZ4_MAX_INPUT_SIZE ? LZ4_compressBound((int)size) : 0;
  char *block = malloc((size_t)capacity + 1);
  if (!block || !capacity)
    cy_bug("device code of %zu bytes cannot be packed", size);
  *out_size = (size_t)LZ4_compress_HC(bytes, block, (int)size, capacity, LZ4HC_CLEVEL_MAX);
  return block;
}

static bool write_at(FILE *f, uint64_t at, const void *bytes, size_t n) {
  return fseek(f, (long)at, SEEK_SET) == 0 && fwrite(bytes, 1, n, f) == n;
}

/* Where each image goes, in the head; what all of it takes. */
static uint64_t lay_out(const cy_cuda_image *images, int n, char **packed, cyrt_cuda_images *head,
                        uint64_t head_bytes) {
  uint64_t at = (head_bytes + ALIGN - 1) / ALIGN * ALIGN;
  head->count = (uint64_t)n;
  for (int i = 0; i < n; i++) {
    size_t size;
    uint32_t specific = images[i].arch.suffix ? CYRT_CUDA_SPECIFIC : 0;
    packed[i] = cy_cuda_pack(images[i].bytes, images[i].size, &size);
    head->image[i] = (cyrt_cuda_image){(uint32_t)images[i].arch.number + specific,
                                       images[i].ptx,
                                       at,
                                       size,
                                       images[i].size,
                                       cyrt_cuda_checksum(images[i].bytes, images[i].size)};
    at += (size + ALIGN - 1) / ALIGN * ALIGN;
  }
  return at;
}

bool cy_cuda_images_write(FILE *f, const cy_arch *host, const cy_cuda_image *images, int n, const char *symbol) {
  size_t head_bytes = offsetof(cyrt_cuda_images, image) + (size_t)n * sizeof(cyrt_cuda_image);
  cyrt_cuda_images *head = calloc(1, head_bytes);
  char **packed = calloc((size_t)n + 1, sizeof *packed);
  cy_data_image elf;
  if (!head || !packed)
    cy_no_memory();
  cy_elf_data_object(host->machine, ".cyto_cuda", symbol, lay_out(images, n, packed, head, head_bytes), &elf);
  bool ok = write_at(f, 0, elf.head, sizeof elf.head) && write_at(f, elf.data_offset, head, head_bytes);
  for (int i = 0; i < n; i++) {
    ok = ok && write_at(f, elf.data_offset + head->image[i].offset, packed[i], head->image[i].packed_bytes);
    free(packed[i]);
  }
  ok = ok && write_at(f, elf.tail_offset, elf.tail, elf.tail_bytes);
  free(packed);
  free(head);
  return ok;
}
