/* SPDX-License-Identifier: Apache-2.0 */
/* mock_memory.c - memory of the mock driver's devices, which is the host's: its own, pools, pinned memory.
 *
 * In:  calls of the driver. Out: blocks, which know their device. Memory of a pool may be copied to by the stream that it was
 *      taken on alone until that has come so far. Where the environment has CY_MOCK_GUARD, memory lies between pages that
 *      nobody may touch, and ends less than 256 bytes before the second one.
 */
#define _GNU_SOURCE
#include "tests/cuda/mock/mock_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MAX_BLOCKS = 4096 };

typedef struct block {
  uintptr_t at;
  size_t bytes;
  int device;
  int claimed;                /* it is memory of the test's, see mock_cuda_claim() */
  const struct stream *taken; /* on this stream, which has not come to it; NULL: any may use it */
} block;
static block blocks[MAX_BLOCKS];
static struct {
  char *at;
  size_t bytes;
} pinned[MAX_BLOCKS];

/* The block of the device's memory that it lies in; NULL: it is the host's. */
static block *block_of(const void *ptr) {
  for (int i = 0; i < MAX_BLOCKS; i++)
    if (blocks[i].at && (uintptr_t)ptr >= blocks[i].at && (uintptr_t)ptr < blocks[i].at + blocks[i].bytes)
      return &blocks[i];
  return NULL;
}

/* ---- whose it is ---- */

int mock_is_of_device(const void *ptr) { return block_of(ptr) != NULL; }

int mock_is_elsewhere(const void *ptr, int device) {
  const block *b = block_of(ptr);
  return b && b->device != device;
}

int mock_is_not_taken(const void *ptr, const stream *by) {
  const block *b = block_of(ptr);
  return b && b->taken && b->taken != by;
}

int mock_stays(const char *ptr, size_t bytes) {
  const block *b = block_of(ptr);
  if (b)
    return (uintptr_t)ptr + bytes <= b->at + b->bytes;
  for (int i = 0; i < MAX_BLOCKS; i++)
    if (pinned[i].at && ptr >= pinned[i].at && ptr + bytes <= pinned[i].at + pinned[i].bytes)
      return 1;
  return 0;
}

/* ---- blocks ---- */

enum { PAGE = 4096, PIECE = 2 << 20 }; /* PIECE: what a driver gives whole, the host has no part of */

static size_t guarded_room(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

static void *block_alloc(size_t bytes) {
  if (!getenv("CY_MOCK_GUARD"))
    return aligned_alloc(PIECE, (bytes + PIECE) / PIECE * PIECE);
  size_t room = guarded_room(bytes);
  char *base = mmap(NULL, room + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED || (room && mprotect(base + PAGE, room, PROT_READ | PROT_WRITE)))
    return NULL;
  return base + PAGE + (room - bytes) / 256 * 256;
}

static void block_free(uintptr_t at, size_t bytes) {
  if (!getenv("CY_MOCK_GUARD"))
    free((void *)at);
  else
    munmap((void *)(at / PAGE * PAGE - PAGE), guarded_room(bytes) + 2 * PAGE);
}

int cuMemAlloc_v2(uint64_t *out, size_t bytes) {
  mock_count();
  int code = mock_unsafe();
  code = code ? code : mock_failure();
  if (code)
    return code;
  pthread_mutex_lock(&mock_mutex);
  if (mock_state.used + bytes > mock_state.memory)
    return mock_unlock(OUT_OF_MEMORY);
  for (int i = 0; i < MAX_BLOCKS; i++)
    if (!blocks[i].at) {
      void *ptr = block_alloc(bytes);
      if (!ptr)
        return mock_unlock(OUT_OF_MEMORY);
      memset(ptr, 0xff, bytes);
      blocks[i].at = (uintptr_t)ptr;
      blocks[i].bytes = bytes;
      blocks[i].device = mock_device();
      blocks[i].taken = NULL;
      mock_state.used += bytes;
      mock_state.blocks++;
      *out = blocks[i].at;
      return mock_unlock(OK);
    }
  return mock_unlock(OUT_OF_MEMORY);
}

/* Locked. */
static int free_block(uint64_t ptr, int device) {
  for (int i = 0; i < MAX_BLOCKS; i++)
    if (blocks[i].at == ptr) {
      if (blocks[i].device != device)
        return INVALID_CONTEXT;
      block_free(blocks[i].at, blocks[i].bytes);
      mock_state.used -= blocks[i].bytes;
      mock_state.blocks--;
      blocks[i].at = 0;
      return OK;
    }
  return INVALID_VALUE;
}

int cuMemFree_v2(uint64_t ptr) {
  mock_count();
  int code = mock_unsafe();
  if (code)
    return code;
  pthread_mutex_lock(&mock_mutex);
  return mock_unlock(free_block(ptr, mock_device()));
}

int mock_cuda_claim(void *at, size_t bytes, int device) {
  pthread_mutex_lock(&mock_mutex);
  for (int i = 0; i < MAX_BLOCKS; i++)
    if (blocks[i].claimed ? blocks[i].at == (uintptr_t)at : bytes && !blocks[i].at) {
      memset(&blocks[i], 0, sizeof blocks[i]);
      blocks[i].at = bytes ? (uintptr_t)at : 0;
      blocks[i].bytes = bytes;
      blocks[i].device = device + FIRST_DEVICE;
      blocks[i].claimed = bytes > 0;
      return mock_unlock(OK);
    }
  return mock_unlock(INVALID_VALUE);
}

static int taken(const void *data) {
  for (int i = 0; i < MAX_BLOCKS; i++)
    if (blocks[i].at == *(const uint64_t *)data)
      blocks[i].taken = NULL;
  return OK;
}

/* By the pool: what is taken or freed there is so when the stream has come to it. */
int cuMemAllocAsync(uint64_t *out, size_t bytes, void *where) {
  mock_count();
  if (!mock_depth || !mock_state.pools)
    return mock_depth ? INVALID_VALUE : INVALID_CONTEXT;
  if (mock_state.pool_code)
    return mock_state.pool_code;
  stream *by = mock_stream_of(where) ? where : &mock_legacy;
  int code = cuMemAlloc_v2(out, bytes);
  if (code == OUT_OF_MEMORY && !by->capture) { /* what was freed in front of it */
    pthread_mutex_lock(&mock_mutex);
    by->failed = mock_catch_up(by);
    pthread_mutex_unlock(&mock_mutex);
    code = cuMemAlloc_v2(out, bytes);
  }
  if (code)
    return code;
  mock_state.pool_allocs++;
  pthread_mutex_lock(&mock_mutex);
  for (int i = 0; i < MAX_BLOCKS; i++)
    if (blocks[i].at == *out)
      blocks[i].taken = by;
  pthread_mutex_unlock(&mock_mutex);
  return mock_submit_work(where, taken, out, sizeof *out);
}

typedef struct freeing {
  uint64_t ptr;
  int device;
} freeing;

static int free_later(const void *data) {
  const freeing *f = data;
  return free_block(f->ptr, f->device);
}

int cuMemFreeAsync(uint64_t ptr, void *where) {
  mock_count();
  const freeing f = {ptr, mock_device()};
  if (!mock_depth)
    return INVALID_CONTEXT;
  mock_state.pool_frees++;
  return mock_submit_work(where, free_later, &f, sizeof f);
}

int cuMemGetInfo_v2(size_t *available, size_t *total) {
  mock_count();
  if (!mock_depth)
    return INVALID_CONTEXT;
  *available = mock_state.memory - mock_state.used;
  *total = mock_state.memory;
  return OK;
}

int cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
  mock_count();
  (void)flags;
  int code = mock_unsafe();
  code = code ? code : mock_failure();
  if (code)
    return code;
  pthread_mutex_lock(&mock_mutex);
  for (int i = 0; i < MAX_BLOCKS && !(mock_state.host_limit && mock_state.pinned >= mock_state.host_limit); i++)
    if (!pinned[i].at) {
      *out = pinned[i].at = malloc(bytes);
      pinned[i].bytes = bytes;
      mock_state.pinned++;
      return mock_unlock(OK);
    }
  return mock_unlock(OUT_OF_MEMORY);
}

int cuMemFreeHost(void *ptr) {
  mock_count();
  int code = mock_unsafe();
  if (code)
    return code;
  pthread_mutex_lock(&mock_mutex);
  for (int i = 0; i < MAX_BLOCKS; i++)
    if (pinned[i].at == ptr) {
      free(ptr);
      pinned[i].at = NULL;
      mock_state.pinned--;
      return mock_unlock(OK);
    }
  return mock_unlock(INVALID_VALUE);
}

int cuPointerGetAttribute(void *out, int attribute, uint64_t ptr) {
  mock_count();
  pthread_mutex_lock(&mock_mutex);
  const block *b = block_of((const void *)(uintptr_t)ptr);
  if (!b)
    return mock_unlock(INVALID_VALUE);
  /* type, is it managed, device */
  *(int *)out = attribute == 2 ? 2 : attribute == 8 ? mock_state.managed : b->device - FIRST_DEVICE;
  return mock_unlock(attribute == 2 || attribute == 8 || attribute == 9 ? OK : INVALID_VALUE);
}
