/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cuda_block.c - memory of a context on the device that only grows.
 *
 * In:  a block, bytes. Out: a block of so many at least; streamed weights (cuda_weights.c) make room where there is none.
 */
#include "cyrt_cuda.h"

/* What a graph of the application's uses stays until the context ends. */
void cyrt_cuda_block_free(cuda_state *state, cuda_block *block) {
  if (block->ptr && !state->lent)
    cyrt_cuda_give(state, block->ptr);
  *block = (cuda_block){0, 0};
}

cyto_status cyrt_cuda_block_grow(cuda_state *state, cuda_block *block, uint64_t bytes, const char *what,
                                 cyto_error *error) {
  if (block->ptr && block->bytes >= bytes)
    return CYTO_OK;
  cyrt_cuda_block_free(state, block);
  cyto_status status = cyrt_cuda_take(state, &block->ptr, bytes, what, error);
  if (status == CYTO_OUT_OF_MEMORY && state->window && !cyrt_cuda_window_yield(state, &block->ptr, bytes, what, NULL)) {
    cyrt_error_clear(error);
    status = CYTO_OK;
  }
  block->bytes = status ? 0 : bytes;
  return status;
}
