/* SPDX-License-Identifier: Apache-2.0 */
/* arena.c - memory that is released all at once; large pieces also singly.
 *
 * Blocks of at least 64 KiB, each twice the last up to 4 MiB; a request that is larger gets a block of its own. All
 * memory comes out zeroed. cy_arena_reset() keeps the first block, so a scratch arena that is reset after every pass
 * allocates nothing.
 */
#include "ir_int.h"

#include <stdarg.h>
#include <stdlib.h>

typedef struct block {
  struct block *next; /* older */
  size_t used, size;
  bool own; /* of one request */
  _Alignas(16) char bytes[];
} block;

struct cy_arena {
  block *top;
  size_t next_size;
};

static block *new_block(size_t size, block *next) {
  block *b = calloc(1, sizeof *b + size);
  if (!b)
    cy_no_memory();
  b->size = size;
  b->next = next;
  return b;
}

cy_arena *cy_arena_create(void) {
  cy_arena *a = calloc(1, sizeof *a);
  if (!a)
    cy_no_memory();
  a->next_size = 64 << 10;
  a->top = new_block(a->next_size, NULL);
  return a;
}

void cy_arena_destroy(cy_arena *a) {
  if (!a)
    return;
  for (block *b = a->top, *next; b; b = next) {
    next = b->next;
    free(b);
  }
  free(a);
}

void *cy_arena_alloc(cy_arena *a, size_t bytes) {
  if (bytes > SIZE_MAX / 2)
    cy_no_memory();
  bytes = (bytes + 15) & ~(size_t)15;
  if (bytes == 0)
    bytes = 16; /* distinct, and never NULL */
  if (a->top->size - a->top->used < bytes) {
    if (bytes > a->next_size / 2) { /* of its own, below the current one, which keeps filling up */
      block *own = new_block(bytes, a->top->next);
      own->used = bytes;
    own->own = true;
      a->top->next = own;
      return own->bytes;
    }
    if (a->next_size < (4 << 20))
      a->next_size *= 2;
    a->top = new_block(a->next_size, a->top);
  }
  void *p = a->top->bytes + a->top->used;
  a->top->used += bytes;
  return p;
}

void cy_arena_give_back(cy_arena *a, void *piece) {
  block **at = &a->top;
  while (*at && (*at)->bytes != (char *)piece)
    at = &(*at)->next;
  block *b = *at;
  if (b && b->own) {
    *at = b->next;
    free(b);
  }
}

void *cy_arena_copy(cy_arena *a, const void *src, size_t bytes) {
  void *p = cy_arena_alloc(a, bytes);
  if (bytes)
    memcpy(p, src, bytes);
  return p;
}

void *cy_arena_grow(cy_arena *a, void *items, uint32_t count, uint32_t *cap, size_t item_bytes) {
  if (count < *cap)
    return items;
  uint32_t bigger = *cap ? *cap * 2 : 8;
  void *copy = cy_arena_alloc(a, (size_t)bigger * item_bytes);
  if (*cap)
    memcpy(copy, items, (size_t)*cap * item_bytes);
  *cap = bigger;
  return copy;
}

char *cy_arena_vprintf(cy_arena *a, const char *format, va_list args) {
  va_list again;
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, format, args);
  char *text = cy_arena_alloc(a, n < 0 ? 1 : (size_t)n + 1);
  if (n >= 0)
    vsnprintf(text, (size_t)n + 1, format, again);
  va_end(again);
  return text;
}

char *cy_arena_printf(cy_arena *a, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *text = cy_arena_vprintf(a, format, args);
  va_end(args);
  return text;
}

void cy_arena_reset(cy_arena *a) {
  while (a->top->next) {
    block *b = a->top;
    a->top = b->next;
    free(b);
  }
  memset(a->top->bytes, 0, a->top->used);
  a->top->used = 0;
  a->next_size = 64 << 10;
}
