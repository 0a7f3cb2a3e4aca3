/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* context_memory.c - memory of a context: what the application's allocator gives, counted.
 *
 * In:  a context, or the allocator that one is made with. Out: memory aligned for vectors, or NULL.
 */
#include "context.h"

void *cyrt_allocator_get(const cyto_allocator *allocator, uint64_t bytes) {
  if (bytes > (uint64_t)1 << 46) /* sizes come from shapes: do not bother the allocator with nonsense */
    return NULL;
  bytes = bytes ? bytes : 1;
  void *ptr = allocator->alloc(allocator->user, bytes, CYRT_ALIGN);
  if ((uintptr_t)ptr % CYRT_ALIGN == 0)
    return ptr;
  allocator->release(allocator->user, ptr, bytes); /* vectors would not be aligned */
  return NULL;
}

void cyrt_allocator_give(const cyto_allocator *allocator, void *ptr, uint64_t bytes) {
  if (ptr)
    allocator->release(allocator->user, ptr, bytes ? bytes : 1);
}

void *cyrt_memory_get(cyto_context *context, uint64_t bytes) {
  void *ptr = cyrt_allocator_get(&context->allocator, bytes);
  context->in_use += ptr ? bytes : 0;
  context->peak = context->in_use > context->peak ? context->in_use : context->peak;
  return ptr;
}

void cyrt_memory_give(cyto_context *context, void *ptr, uint64_t bytes) {
  context->in_use -= ptr ? bytes : 0;
  cyrt_allocator_give(&context->allocator, ptr, bytes);
}

int cyrt_memory_grow(cyto_context *context, void **ptr, uint64_t *capacity, uint64_t bytes) {
  if (*ptr && *capacity >= bytes)
    return 1;
  cyrt_memory_give(context, *ptr, *capacity);
  *ptr = cyrt_memory_get(context, bytes);
  *capacity = *ptr ? bytes : 0;
  return *ptr != NULL;
}
