/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* threads.c - the pool of threads: fork-join over the tasks of one kernel.
 *
 * One pool per process. Libraries that carry this file find its place by cyrt_os_pool(); those opened by
 *   cyto_model_load() get the loader's pool through the frame. Whoever needs it first creates it; its code must then
 *   stay mapped as long as threads run in it, hence cyrt_os_pin(). It is never freed: idle threads sleep, and end with
 *   the process.
 * A job.  The caller takes the pool (busy), writes the job, opens the gate and works along; helpers that are awake join
 *   through the gate (bit OPEN plus a count of those inside). When no piece is left the caller closes the gate and
 *   waits only for those inside: a helper that wakes late finds the gate closed and costs nothing. If the pool is busy
 *   with another thread's job, the caller does all pieces itself: correct, and no worse when all CPUs are at work
 *   anyway.
 * Pieces.  The tasks are cut into up to eight equal pieces per worker. Each worker has its own run of consecutive
 *   pieces (so that the same worker meets the same part of a tensor in kernel after kernel, in its own cache) and then
 *   helps the others.
 * Waiting.  A helper spins for SPIN_NS after its last job (joining then costs 0.1 us), then sleeps (50 us).
 * Neighbours.  A helper whose core another process wants as well is taken off it in the middle of a piece, for some
 *   milliseconds for which all wait: two threads were slower than one. A helper therefore asks now and then how much of
 *   its core it has had. If that is too little, it rests, while the others overtake it, and longer each time that it
 *   comes back too soon.
 * fork().  The child has no helpers; a word that is wiped on fork tells, and the pool is reset and starts new ones when
 *   needed.
 */
#include "cyrt.h"
#include "os/os.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { SPIN_NS = 300000, PIECES_PER_WORKER = 8 };
/* Of a helper: how often it asks for its share of the core; time lost in a share that is too little (more than a
 * quarter of it, too); how long it rests, at first and at most; after how much time without loss that is forgotten. */
static const int64_t SHARE_NS = 2000000, LOST_NS = 1000000, REST_NS = 10000000, MAX_REST_NS = 640000000,
                     FORGET_NS = 100000000;
enum { WHOLE_UNIT = 64 }; /* a grain of multiples of it means that tasks are elements: pieces begin at whole vectors */
enum { RESETTING = 1, ALIVE = 2 }; /* *pool->alive; 0: this is a child of fork() */
static const uint32_t GATE_OPEN = 1u << 31, GATE_WAITED = 1u << 30, GATE_INSIDE = (1u << 30) - 1;

/* The pieces [next, end) that one worker owns; others take from it when they have none left. */
typedef struct piece_range {
  _Alignas(64) atomic_llong next;
  int64_t end;
} piece_range;

typedef struct job {
  cyrt_kernel kernel;
  const cyrt_slot *args;
  int64_t n, unit;             /* tasks; how many stay together */
  int64_t pieces, piece, over; /* units in each piece; units more than that, spread over the pieces */
  int64_t workers;
  piece_range ranges[CYTO_MAX_THREADS];
} job;

struct cyrt_pool {
  cyrt_pool_head head;
  /* A custom pool uses only these and the job. */
  cyto_parallel parallel;
  void *user;
  /* The shared pool. */
  atomic_int *alive;      /* zero in the child of a fork() */
  int32_t helpers, limit; /* started; how many may be (less than wanted once a start failed). Owned by who holds busy */
  _Alignas(64) atomic_uint busy;
  _Alignas(64) atomic_uint epoch; /* slept on: counts jobs */
  atomic_uint sleepers;
  _Alignas(64) atomic_uint gate; /* slept on: OPEN, WAITED, and how many helpers are inside */
  job job;
};

/* ---- a job ---- */

/* As many pieces for each worker, of equal numbers of tasks (one more or less): what remains over is waited for. */
static void job_init(job *j, int64_t workers, cyrt_kernel kernel, const cyrt_slot *args, int64_t n, int64_t grain) {
  if (workers > CYTO_MAX_THREADS)
    workers = CYTO_MAX_THREADS;
  j->unit = grain % WHOLE_UNIT ? 1 : WHOLE_UNIT;
  int64_t units = n / j->unit + (n % j->unit != 0), pieces = n / grain + (n % grain != 0);
  if (pieces > units)
    pieces = units;
  if (pieces > workers * PIECES_PER_WORKER)
    pieces = workers * PIECES_PER_WORKER;
  if (workers > pieces)
    workers = pieces;
  pieces -= pieces % workers;
  j->kernel = kernel;
  j->args = args;
  j->n = n;
  j->pieces = pieces;
  j->piece = units / pieces;
  j->over = units % pieces;
  j->workers = workers;
  for (int64_t i = 0; i < workers; i++) {
    atomic_store_explicit(&j->ranges[i].next, pieces / workers * i, memory_order_relaxed);
    j->ranges[i].end = pieces / workers * (i + 1);
  }
}

/* The first task of a piece. */
static int64_t piece_begin(const job *j, int64_t at) {
  return at == j->pieces ? j->n : (at * j->piece + at * j->over / j->pieces) * j->unit;
}

static void job_work(job *j, int64_t worker) {
  for (int64_t i = 0; i < j->workers; i++) {
    piece_range *range = &j->ranges[(worker + i) % j->workers];
    /* Look before taking: an exhausted counter is only read, so that its cache line is not fought for. */
    while (atomic_load_explicit(&range->next, memory_order_relaxed) < range->end) {
      int64_t at = atomic_fetch_add_explicit(&range->next, 1, memory_order_relaxed);
      if (at >= range->end)
        break;
      j->kernel(j->args, piece_begin(j, at), piece_begin(j, at + 1), worker);
    }
  }
}

/* ---- waiting ---- */

static void cpu_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Spins until (*word & mask) == value is `wanted`, for SPIN_NS at most. 1: it is. */
static int spin_until(atomic_uint *word, uint32_t mask, uint32_t value, int wanted) {
  int64_t deadline = 0;
  for (;;) {
    for (int i = 0; i < 128; i++) {
      if (((atomic_load_explicit(word, memory_order_acquire) & mask) == value) == wanted)
        return 1;
      cpu_relax();
    }
    int64_t now = cyrt_os_now_ns();
    if (!deadline)
      deadline = now + SPIN_NS;
    else if (now >= deadline)
      return 0;
  }
}

/* ---- locks ---- */

void cyrt_lock_take(cyrt_lock *lock) {
  uint32_t state = 0;
  if (atomic_compare_exchange_strong(&lock->state, &state, 1))
    return;
  while (atomic_exchange(&lock->state, 2))
    cyrt_os_wait(&lock->state, 2);
}

void cyrt_lock_give(cyrt_lock *lock) {
  if (atomic_exchange(&lock->state, 0) == 2)
    cyrt_os_wake(&lock->state);
}

/* ---- helpers ---- */

static int gate_enter(struct cyrt_pool *pool) {
  uint32_t gate = atomic_load_explicit(&pool->gate, memory_order_relaxed);
  while (gate & GATE_OPEN)
    if (atomic_compare_exchange_weak_explicit(&pool->gate, &gate, gate + 1, memory_order_acquire, memory_order_relaxed))
      return 1;
  return 0;
}

static void gate_leave(struct cyrt_pool *pool) {
  uint32_t before = atomic_fetch_sub_explicit(&pool->gate, 1, memory_order_acq_rel);
  if ((before & GATE_WAITED) && (before & GATE_INSIDE) == 1)
    cyrt_os_wake(&pool->gate);
}

typedef struct helper_start {
  struct cyrt_pool *pool;
  int64_t worker;
  uint32_t epoch;
} helper_start;

/* A helper's share of its core since it last asked, without the time that it slept. */
typedef struct core_share {
  int64_t wall, ran;  /* when that was */
  int64_t good, rest; /* time without loss since then; how long to rest next */
} core_share;

static void share_begin(core_share *s) {
  s->wall = cyrt_os_now_ns();
  s->ran = cyrt_os_ran_ns();
}

/* Behind a job: rests if the core is another's, too. */
static void share_check(core_share *s) {
  int64_t wall = cyrt_os_now_ns() - s->wall;
  if (wall < SHARE_NS || s->ran < 0)
    return;
  int64_t lost = wall - (cyrt_os_ran_ns() - s->ran);
  if (lost > LOST_NS && lost > wall / 4) {
    cyrt_os_sleep(s->rest);
    s->rest = s->rest < MAX_REST_NS / 2 ? 2 * s->rest : MAX_REST_NS;
    s->good = 0;
  } else if ((s->good += wall) > FORGET_NS) {
    s->rest = REST_NS;
  }
  share_begin(s);
}

static void helper_main(void *data) {
  helper_start start = *(helper_start *)data;
  struct cyrt_pool *pool = start.pool;
  uint32_t seen = start.epoch;
  core_share share = {.rest = REST_NS};
  free(data);
  share_begin(&share);
  for (;;) {
    if (!spin_until(&pool->epoch, UINT32_MAX, seen, 0)) {
      atomic_fetch_add(&pool->sleepers, 1);
      while (atomic_load(&pool->epoch) == seen)
        cyrt_os_wait(&pool->epoch, seen);
      atomic_fetch_sub(&pool->sleepers, 1);
      share_begin(&share);
    }
    seen = atomic_load_explicit(&pool->epoch, memory_order_acquire);
    if (!gate_enter(pool))
      continue;
    /* While inside, no other job can begin, so this epoch is the job's: do not come back for the same one. */
    seen = atomic_load_explicit(&pool->epoch, memory_order_relaxed);
    if (start.worker < pool->job.workers)
      job_work(&pool->job, start.worker);
    gate_leave(pool);
    share_check(&share);
  }
}

static int helper_create(struct cyrt_pool *pool) {
  helper_start *start = malloc(sizeof *start);
  if (!start)
    return 0;
  *start = (helper_start){pool, pool->helpers + 1, atomic_load(&pool->epoch)};
  if (!cyrt_os_thread(helper_main, start)) {
    free(start);
    return 0;
  }
  pool->helpers++;
  return 1;
}

/* ---- the caller ---- */

/* Closes the gate and waits until nobody is inside. */
static void helpers_wait(struct cyrt_pool *pool) {
  atomic_fetch_and_explicit(&pool->gate, ~GATE_OPEN, memory_order_acq_rel);
  if (spin_until(&pool->gate, GATE_INSIDE, 0, 1))
    return;
  for (;;) {
    uint32_t gate = atomic_fetch_or_explicit(&pool->gate, GATE_WAITED, memory_order_acq_rel) | GATE_WAITED;
    if (!(gate & GATE_INSIDE))
      return;
    cyrt_os_wait(&pool->gate, gate);
  }
}

static void pool_reset(struct cyrt_pool *pool);

/* The child of fork() has the forking thread alone, whatever the others were doing. False: another thread of the child
 * is just resetting the pool. */
static bool alive_after_fork(struct cyrt_pool *pool) {
  int state = atomic_load_explicit(pool->alive, memory_order_acquire);
  if (state == ALIVE)
    return true;
  if (state || !atomic_compare_exchange_strong(pool->alive, &state, RESETTING))
    return false;
  pool_reset(pool);
  atomic_store_explicit(pool->alive, ALIVE, memory_order_release);
  return true;
}

static void pool_parallel_for(struct cyrt_pool *pool, int64_t workers, cyrt_kernel kernel, const cyrt_slot *args,
                              int64_t n, int64_t grain) {
  if (!alive_after_fork(pool) || atomic_exchange_explicit(&pool->busy, 1, memory_order_acquire)) {
    kernel(args, 0, n, 0);
    return;
  }
  job *j = &pool->job;
  job_init(j, workers, kernel, args, n, grain);
  while (pool->helpers < j->workers - 1 && pool->helpers < pool->limit)
    if (!helper_create(pool))
      pool->limit = pool->helpers;
  if (j->workers == 1) {
    job_work(j, 0);
    atomic_store_explicit(&pool->busy, 0, memory_order_release);
    return;
  }
  atomic_store_explicit(&pool->gate, GATE_OPEN, memory_order_release);
  atomic_fetch_add(&pool->epoch, 1);
  if (atomic_load(&pool->sleepers))
    cyrt_os_wake(&pool->epoch);
  job_work(j, 0);
  helpers_wait(pool);
  atomic_store_explicit(&pool->busy, 0, memory_order_release);
}

void cyrt_parallel_for(cyrt_frame *frame, cyrt_kernel kernel, const cyrt_slot *args, int64_t n, int64_t grain) {
  if (n <= 0)
    return;
  if (frame->workers <= 1 || n <= grain || !frame->pool)
    kernel(args, 0, n, 0);
  else
    ((const cyrt_pool_head *)frame->pool)->parallel_for(frame->pool, frame->workers, kernel, args, n, grain);
}

/* ---- the pool of the process ---- */

static void pool_reset(struct cyrt_pool *pool) {
  pool->head.parallel_for = pool_parallel_for;
  pool->helpers = 0;
  pool->limit = CYTO_MAX_THREADS - 1;
  atomic_store(&pool->busy, 0);
  atomic_store(&pool->epoch, 0);
  atomic_store(&pool->sleepers, 0);
  atomic_store(&pool->gate, 0);
}

struct cyrt_pool *cyrt_pool_shared(void) {
  _Atomic(struct cyrt_pool *) *place = cyrt_os_pool();
  struct cyrt_pool *pool = place ? atomic_load_explicit(place, memory_order_acquire) : NULL, *none = NULL;
  if (pool || !place)
    return pool;
  pool = cyrt_os_alloc(sizeof *pool, 64);
  if (!pool)
    return NULL;
  memset(pool, 0, sizeof *pool);
  pool_reset(pool);
  pool->alive = cyrt_os_fork_word();
  if (pool->alive)
    atomic_store(pool->alive, ALIVE);
  if (!pool->alive || !atomic_compare_exchange_strong(place, &none, pool)) {
    if (pool->alive)
      cyrt_os_fork_word_free(pool->alive);
    cyrt_os_free(pool);
    return none;
  }
  cyrt_os_pin(helper_main);
  return pool;
}

/* ---- the application's own pool ---- */

static void custom_task(void *data, int64_t worker) { job_work(data, worker); }

static void custom_parallel_for(struct cyrt_pool *pool, int64_t workers, cyrt_kernel kernel, const cyrt_slot *args,
                                int64_t n, int64_t grain) {
  job_init(&pool->job, workers, kernel, args, n, grain);
  pool->parallel(pool->user, pool->job.workers, custom_task, &pool->job);
}

size_t cyrt_pool_custom_bytes(void) { return sizeof(struct cyrt_pool); }

struct cyrt_pool *cyrt_pool_custom(void *memory, cyto_parallel parallel, void *user) {
  struct cyrt_pool *pool = memory;
  memset(pool, 0, sizeof *pool);
  pool->head.parallel_for = custom_parallel_for;
  pool->parallel = parallel;
  pool->user = user;
  return pool;
}
