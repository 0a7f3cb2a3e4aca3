/* SPDX-License-Identifier: Apache-2.0 */
/* shim.c - the threads of a block or of a cluster of blocks as fibers; barriers, schedules, launches.
 *
 * A fiber runs until it waits at a barrier; cy_shim_launch() then goes on with another one. The order is the
 * schedule's, because a missing barrier shows only in some orders:
 *   0  threads in turn      1  one warp as far as it gets, warps in random order      2  random threads, some left out
 * Shared memory starts as all ones (NaN) in every block. When no thread can go on, the launch ends with -1: a barrier
 * that not all threads reach.
 */
#define _GNU_SOURCE
#include "tests/cuda/shim/shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Stacks begin at different places of theirs: at equal ones all would want the same few sets of every cache. */
enum { SHIM_STACK = 256 << 10, SHIM_STACKS_APART = 320, SHIM_STACK_PLACES = 256 };

extern char __start_cy_shared[] __attribute__((weak, visibility("hidden"))),
    __stop_cy_shared[] __attribute__((weak, visibility("hidden")));
shim_fiber *shim_now;
unsigned char *shim_dynamic, *shim_memory[SHIM_RANKS];
i64 shim_block, shim_blocks, shim_first;
int shim_ranks, shim_syncs;
static char *shim_variables[SHIM_RANKS]; /* the kernels' own in shared memory, of blocks that are not at hand */
void (*shim_block_ends)(void);
static shim_fiber shim_fibers[SHIM_THREADS];
static void *shim_main;
static u32 shim_exchange[SHIM_PLACES][SHIM_THREADS];
static b1 shim_met[SHIM_THREADS / 32]; /* the warp has met, and no lane has gone on */
static unsigned shim_seed;
static void (*shim_kernel)();
static const u64 *shim_slots;

void shim_switch(void **from, void *to);
__asm__(".text\n"
        ".type shim_switch, @function\n"
        "shim_switch:\n"
        "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
        "  mov %rsp, (%rdi)\n  mov %rsi, %rsp\n"
        "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n  ret\n");

#ifdef __SANITIZE_ADDRESS__
void __sanitizer_start_switch_fiber(void **save, const void *bottom, size_t size);
void __sanitizer_finish_switch_fiber(void *saved, const void **bottom, size_t *size);
static const void *shim_main_bottom;
static size_t shim_main_size;
#define SHIM_LEAVE(save, bottom, size) __sanitizer_start_switch_fiber(save, bottom, size)
#define SHIM_ARRIVE(saved, bottom, size) __sanitizer_finish_switch_fiber(saved, bottom, size)
#else
#define SHIM_LEAVE(save, bottom, size) (void)0
#define SHIM_ARRIVE(saved, bottom, size) (void)0
#endif

void shim_to_main(int state) {
  shim_fiber *f = shim_now;
  f->state = state;
  SHIM_LEAVE(state == SHIM_DONE ? NULL : &f->fake_stack, shim_main_bottom, shim_main_size);
  shim_switch(&f->stack_pointer, shim_main);
  SHIM_ARRIVE(f->fake_stack, &shim_main_bottom, &shim_main_size);
}

void shim_wait(int state) { shim_to_main(state); }

void shim_fault(const char *what, u64 number) {
  fprintf(stderr, "%s: 0x%llx in thread %d of block %lld\n", what, number, CY_TID, shim_block);
  abort();
}

static void shim_check_block(void) {
  shim_check_copies();
  shim_check_barriers();
  if (shim_block_ends)
    shim_block_ends();
}

#define SHIM_SLOTS(x)                                                                                                  \
  x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], x[9], x[10], x[11], x[12], x[13], x[14], x[15], x[16], x[17],  \
      x[18], x[19], x[20], x[21], x[22], x[23], x[24], x[25], x[26], x[27], x[28], x[29], x[30], x[31], x[32], x[33],  \
      x[34], x[35], x[36], x[37], x[38], x[39], x[40], x[41], x[42], x[43], x[44], x[45], x[46], x[47]
enum { SHIM_MAX_SLOTS = 48 };

static void shim_entry(void) {
  SHIM_ARRIVE(NULL, &shim_main_bottom, &shim_main_size);
  shim_kernel(
      SHIM_SLOTS(shim_slots)); /* pointers and 64-bit integers are passed alike; what is too much is not looked at */
  shim_to_main(SHIM_DONE);
}

static void shim_start(shim_fiber *f, int number, int threads) {
  if (!f->stack)
    f->stack = mmap(NULL, SHIM_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  u64 *top = (u64 *)(f->stack + SHIM_STACK - 64 - number % SHIM_STACK_PLACES * SHIM_STACKS_APART);
  top[-1] = 0; /* where shim_entry() would return to; keeps the stack aligned as after a call */
  top[-2] = (u64)(uintptr_t)shim_entry;
  f->stack_pointer = top - 8;
  f->self = number;
  f->rank = number / threads;
  f->number = number % threads;
  f->state = SHIM_READY;
  f->place = 0;
}

static size_t shim_own_bytes(void) { return __start_cy_shared ? (size_t)(__stop_cy_shared - __start_cy_shared) : 0; }

/* What there is once per block is that of the fiber's from here on. */
static void shim_enter(int rank) {
  int before = (int)(shim_block - shim_first);
  if (rank != before && shim_own_bytes()) {
    memcpy(shim_variables[before], __start_cy_shared, shim_own_bytes());
    memcpy(__start_cy_shared, shim_variables[rank], shim_own_bytes());
  }
  shim_block = shim_first + rank;
  shim_dynamic = shim_memory[rank];
}

/* Did it go on? */
static int shim_run(shim_fiber *f) {
  void *fake = NULL;
  (void)fake;
  if (f->state == SHIM_BARRIER && shim_barrier_done(f))
    f->state = SHIM_READY;
  if (f->state != SHIM_READY)
    return 0;
  shim_now = f;
  shim_enter(f->rank);
  SHIM_LEAVE(&fake, f->stack, SHIM_STACK);
  shim_switch(&shim_main, f->stack_pointer);
  SHIM_ARRIVE(fake, NULL, NULL);
  return 1;
}

/* ---- barriers and schedules ---- */

static unsigned shim_random(void) {
  shim_seed = shim_seed * 1664525u + 1013904223u;
  return shim_seed >> 8;
}

/* Threads [from, to) that all wait in `state` or are done go on. */
static int shim_release(int from, int to, int state) {
  int waiting = 0;
  for (int i = from; i < to; i++) {
    if (shim_fibers[i].state != state && shim_fibers[i].state != SHIM_DONE)
      return 0;
    waiting += shim_fibers[i].state == state;
  }
  for (int i = from; waiting && i < to; i++)
    if (shim_fibers[i].state == state)
      shim_fibers[i].state = SHIM_READY;
  return waiting;
}

static int shim_release_warp(int from, int to) {
  int met = shim_release(from, to, SHIM_WARP) > 0;
  shim_met[from / 32] |= met;
  return met;
}

b1 shim_goes_first(void) {
  b1 *met = &shim_met[SHIM_SELF / 32], first = *met;
  *met = 0;
  return first;
}

/* Did any thread go on, or may now? */
static int shim_pass(int threads, int schedule) { /* of all blocks */
  int warps = (threads + 31) / 32, went = 0, met, first = schedule ? (int)(shim_random() % (unsigned)warps) : 0;
  int step = schedule && warps % 2 ? 2 : 1; /* an order of the warps */
  for (int w = 0; w < warps; w++) {
    int from = (first + w * step) % warps * 32, to = from + 32 < threads ? from + 32 : threads;
    do {
      for (int i = from; i < to; i++) {
        int n = schedule ? from + (i - from + (int)(shim_random() % 32)) % (to - from) : i;
        if (schedule == 2 && shim_random() % 2)
          continue;
        went += shim_run(&shim_fibers[n]);
      }
      for (int i = from; schedule == 1 && i < to; i++)
        went += shim_run(&shim_fibers[i]);
      went += met = shim_release_warp(from, to);
    } while (met && schedule == 1);
  }
  for (int rank = 0, each = threads / shim_ranks; rank < shim_ranks; rank++)
    went += shim_release(rank * each, (rank + 1) * each, SHIM_BLOCK);
  met = shim_release(0, threads, SHIM_CLUSTER);
  shim_syncs += met > 0;
  return went + met;
}

static int shim_ended(int threads, int *out_stuck) {
  int done = 0, ready = 0;
  for (int i = 0; i < threads; i++) {
    done += shim_fibers[i].state == SHIM_DONE;
    ready += shim_fibers[i].state == SHIM_READY ||
             (shim_fibers[i].state == SHIM_BARRIER && shim_barrier_done(&shim_fibers[i]));
  }
  *out_stuck = !ready && done < threads;
  return done == threads;
}

/* Shared memory of so many blocks. */
static int shim_allocate(int ranks, int dynamic) {
  int ok = 1;
  shim_ranks = ranks;
  for (int rank = 0; rank < ranks; rank++) {
    void *p = NULL;
    ok &= !posix_memalign(&p, 1024, dynamic ? (size_t)dynamic : 1);
    shim_memory[rank] = p;
    shim_variables[rank] = malloc(shim_own_bytes() + 1);
    ok &= shim_variables[rank] != NULL;
  }
  return ok;
}

static void shim_clear(int rank, size_t dynamic) {
  memset(shim_memory[rank], 0xff, dynamic);
  memset(shim_variables[rank], 0xff, shim_own_bytes());
  if (!rank && shim_own_bytes())
    memset(__start_cy_shared, 0xff, shim_own_bytes());
}

/* blocks: of which `cluster` run at a time, and reach each other's shared memory. */
__attribute__((visibility("default"))) int cy_shim_launch(void (*kernel)(), int threads, i64 blocks, int cluster,
                                                          int shared, const u64 *slots, int nslots, int schedule,
                                                          unsigned seed) {
  static u64 all[SHIM_MAX_SLOTS];
  int stuck = threads * cluster > SHIM_THREADS || (cluster > 1 && threads % 32) || cluster > SHIM_RANKS ||
              blocks % cluster || nslots > SHIM_MAX_SLOTS || !shim_allocate(cluster, shared);
  if (stuck)
    return -1;
  memset(all, 0, sizeof all);
  memcpy(all, slots, (size_t)nslots * sizeof *slots);
  shim_kernel = kernel;
  shim_slots = all;
  shim_blocks = blocks;
  shim_seed = seed;
  for (shim_first = 0; shim_first < blocks && !stuck; shim_first += cluster) {
    shim_block = shim_first;
    shim_forget_copies();
    shim_forget_barriers();
    for (int rank = 0; rank < cluster; rank++)
      shim_clear(rank, (size_t)shared);
    for (int i = 0; i < threads * cluster; i++)
      shim_start(&shim_fibers[i], i, threads);
    while (shim_pass(threads * cluster, schedule) || (!shim_ended(threads * cluster, &stuck) && !stuck))
      ;
    if (!stuck)
      shim_check_block();
  }
  for (int rank = 0; rank < cluster; rank++) {
    free(shim_memory[rank]);
    free(shim_variables[rank]);
  }
  return stuck ? -1 : 0;
}

u32 cy_shfl32(u32 v, int mask) {
  int me = SHIM_SELF;
  u32 *exchange = shim_exchange[shim_next_place()];
  exchange[me] = v;
  CY_SYNC_WARP();
  return exchange[(me & ~31) | ((me ^ mask) & 31)];
}
