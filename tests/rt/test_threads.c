/* SPDX-License-Identifier: Apache-2.0 */
/* test_threads.c - the pool: every task once, from many threads at once, across fork(), shared between libraries, and
 * the CPU counts it starts from.
 *
 * Links rt_model_a.so and rt_model_b.so directly (as applications do), each with its own copy of the runtime, besides
 * the program's own copy.
 */
#define _GNU_SOURCE
#include "../check.h"
#include "cyrt.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern const cyrt_model rt_model_a, rt_model_b;

/* That several libraries define cyrt_process_pool is the point here; the address sanitizer takes it for a mistake. */
CYTO_API const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "detect_odr_violation=0"; }

enum { TASKS = 5000 };

typedef struct tally {
  atomic_int seen[TASKS];
  atomic_int inside[CYTO_MAX_THREADS]; /* a worker must not be in the kernel twice */
  atomic_int clashes;
  int64_t workers, slow;
} tally;

static void tally_kernel(const cyrt_slot *args, int64_t begin, int64_t end, int64_t worker) {
  tally *t = args[0].ptr;
  if (worker < 0 || worker >= t->workers || atomic_fetch_add(&t->inside[worker], 1))
    atomic_fetch_add(&t->clashes, 1);
  for (int64_t i = begin; i < end; i++) {
    atomic_fetch_add_explicit(&t->seen[i], 1, memory_order_relaxed);
    for (volatile int64_t spin = 0; i % 97 == 0 && spin < t->slow; spin++)
      ;
  }
  atomic_fetch_sub(&t->inside[worker], 1);
}

static void tally_run(cyrt_frame *frame, tally *t, int64_t n, int64_t grain, int64_t slow) {
  cyrt_slot args[] = {{.ptr = t}};
  memset(t, 0, sizeof *t);
  t->workers = frame->workers;
  t->slow = slow;
  cyrt_parallel_for(frame, tally_kernel, args, n, grain);
  for (int64_t i = 0; i < TASKS; i++)
    if (atomic_load(&t->seen[i]) != (i < n)) {
      CHECK_FAIL("task %lld of %lld ran %d times", (long long)i, (long long)n, atomic_load(&t->seen[i]));
      break;
    }
  CHECK_INT_EQ(atomic_load(&t->clashes), 0);
}

static void run_sizes(int64_t workers, int rounds) {
  static const int64_t sizes[] = {0, 1, 2, 3, 7, 16, 100, 1001, TASKS};
  cyrt_frame frame = {.workers = workers, .pool = cyrt_pool_shared()};
  tally *t = malloc(sizeof *t);
  for (int round = 0; t && round < rounds; round++)
    for (int i = 0; i < CHECK_COUNT(sizes); i++)
      tally_run(&frame, t, sizes[i], 1 + round % 40, round % 3 ? 0 : 1000);
  free(t);
}

static void test_each_task_once(void) {
  for (int64_t workers = 1; workers <= 6; workers++)
    run_sizes(workers, 30);
  run_sizes(CYTO_MAX_THREADS, 1);
}

/* Sleeps long enough for the helpers to fall asleep between jobs. */
static void test_after_sleep(void) {
  for (int i = 0; i < 20; i++) {
    struct timespec pause = {0, 1000000 + i % 4 * 300000};
    run_sizes(3, 1);
    nanosleep(&pause, NULL);
  }
}

typedef struct cut {
  atomic_llong pieces, min, max, crooked; /* pieces; tasks in one; pieces that begin within a unit */
  int64_t n, unit;
} cut;

static void cut_kernel(const cyrt_slot *args, int64_t begin, int64_t end, int64_t worker) {
  cut *c = args[0].ptr;
  long long size = end - begin, min = atomic_load(&c->min), max = atomic_load(&c->max);
  (void)worker;
  atomic_fetch_add(&c->pieces, 1);
  atomic_fetch_add(&c->crooked, begin % c->unit != 0);
  while ((end < c->n || c->unit == 1) && size < min && !atomic_compare_exchange_weak(&c->min, &min, size))
    ;
  while (size > max && !atomic_compare_exchange_weak(&c->max, &max, size))
    ;
}

/* No worker gets more pieces than another, no piece more than one unit above another. */
static void test_equal_pieces(void) {
  static const int64_t grains[] = {1, 2, 3, 5, 64, 192};
  for (int64_t workers = 2; workers <= 5; workers++)
    for (int i = 0; i < CHECK_COUNT(grains); i++)
      for (int64_t n = grains[i] + 1; n < 3000; n += n / 5 + 1) {
        cyrt_frame frame = {.workers = workers, .pool = cyrt_pool_shared()};
        cut c = {.min = n, .n = n, .unit = grains[i] % 64 ? 1 : 64};
        cyrt_slot args[] = {{.ptr = &c}};
        cyrt_parallel_for(&frame, cut_kernel, args, n, grains[i]);
        long long pieces = atomic_load(&c.pieces);
        CHECK_REQUIRE(pieces >= 2 && (pieces < workers || pieces % workers == 0));
        CHECK_REQUIRE(atomic_load(&c.max) - atomic_load(&c.min) <= c.unit);
        CHECK_INT_EQ(atomic_load(&c.crooked), 0);
      }
}

static void *run_sizes_thread(void *data) {
  run_sizes((int64_t)(intptr_t)data, 40);
  return NULL;
}

static void test_concurrent_callers(void) {
  pthread_t threads[5];
  for (int i = 0; i < 5; i++)
    CHECK_REQUIRE(!pthread_create(&threads[i], NULL, run_sizes_thread, (void *)(intptr_t)(1 + i)));
  for (int i = 0; i < 5; i++)
    pthread_join(threads[i], NULL);
}

static void nested_kernel(const cyrt_slot *args, int64_t begin, int64_t end, int64_t worker) {
  cyrt_frame frame = {.workers = 3, .pool = cyrt_pool_shared()};
  tally *t = malloc(sizeof *t);
  (void)worker;
  for (int64_t i = begin; t && i < end; i++)
    tally_run(&frame, t, 50, 1, 0);
  atomic_fetch_add((atomic_int *)args[0].ptr, (int)(end - begin));
  free(t);
}

static void test_nested(void) {
  cyrt_frame frame = {.workers = 4, .pool = cyrt_pool_shared()};
  atomic_int done = 0;
  cyrt_slot args[] = {{.ptr = &done}};
  cyrt_parallel_for(&frame, nested_kernel, args, 40, 1);
  CHECK_INT_EQ(atomic_load(&done), 40);
}

static void test_fork(void) {
#if defined(__SANITIZE_THREAD__)
  CHECK_SKIP("the thread sanitizer allows no threads after fork");
#endif
  for (int i = 0; i < 10; i++) {
    run_sizes(3, 1);
    pid_t child = fork();
    CHECK_REQUIRE(child >= 0);
    if (!child) {
      alarm(20);
      check_failures = 0;
      run_sizes(3, 2);
      _exit(check_failures ? 1 : 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK_INT_EQ(status, 0);
    run_sizes(3, 1);
  }
}

static void run_linked(const cyrt_model *linked, int32_t expected_tag) {
  static float left[400], right[400], sum[400];
  int64_t symbols[] = {100};
  int32_t tag = 0;
  const void *inputs[] = {left, right, NULL};
  void *outputs[] = {sum, NULL, &tag};
  cyto_error error;
  CHECK_INT_EQ(cyto_run_simple(linked, NULL, inputs, symbols, outputs, &error), CYTO_OK);
  CHECK_INT_EQ(tag, expected_tag);
}

/* All copies of the runtime must agree on one pool, and use its threads. */
typedef struct labour {
  atomic_llong pieces[2]; /* of the caller, and of its helper */
} labour;

static void labour_kernel(const cyrt_slot *args, int64_t begin, int64_t end, int64_t worker) {
  labour *l = args[0].ptr;
  int64_t until = cyrt_os_now_ns() + 200000;
  (void)begin, (void)end;
  while (cyrt_os_now_ns() < until)
    ;
  atomic_fetch_add(&l->pieces[worker], 1);
}

/* Runs jobs for some time; the helper's part of the pieces, in percent. */
static int64_t helper_part(cyrt_frame *frame, int64_t ns) {
  labour l = {0};
  cyrt_slot args[] = {{.ptr = &l}};
  for (int64_t until = cyrt_os_now_ns() + ns; cyrt_os_now_ns() < until;)
    cyrt_parallel_for(frame, labour_kernel, args, 16, 1);
  int64_t own = atomic_load(&l.pieces[0]), helped = atomic_load(&l.pieces[1]);
  return 100 * helped / (own + helped ? own + helped : 1);
}

/* A helper that has half a core rests more and more: it must not be waited for. Both are on one CPU here. */
static void test_neighbour(void) {
#if defined(__SANITIZE_THREAD__)
  CHECK_SKIP("the thread sanitizer allows no threads after fork");
#endif
  pid_t child = fork();
  if (child == 0) {
    cyrt_frame frame = {.workers = 2, .pool = cyrt_pool_shared()};
    cpu_set_t all, one;
    int cpu = 0;
    if (sched_getaffinity(0, sizeof all, &all))
      _exit(101);
    while (!CPU_ISSET(cpu, &all))
      cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one))
      _exit(101);
    helper_part(&frame, 1500000000);
    _exit((int)helper_part(&frame, 1500000000));
  }
  int status = 0;
  CHECK_REQUIRE(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
  if (WEXITSTATUS(status) > 20)
    CHECK_FAIL("a helper on a core that is taken did %d %% of the work", WEXITSTATUS(status));
}

static void test_one_pool(void) {
  struct cyrt_pool *own = cyrt_pool_shared();
  void *self = dlopen(NULL, RTLD_NOW);
  CHECK_REQUIRE(self);
  void **shared = dlsym(self, "cyrt_process_pool");
  CHECK_REQUIRE(shared);
  CHECK(*shared == own);
  static const char *const files[] = {"rt_model_a.so", "rt_model_b.so"};
  for (int i = 0; i < 2; i++) {
    Dl_info info;
    CHECK_REQUIRE(dladdr(i ? (const void *)&rt_model_b : (const void *)&rt_model_a, &info));
    void *library = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    CHECK_REQUIRE(library);
    CHECK_STR_HAS(info.dli_fname, files[i]);
    /* The library has its own definition, but what it sees is the program's: interposition. */
    CHECK(dlsym(library, "cyto_context_create") != NULL);
    dlclose(library);
  }
  run_sizes(2, 1);
  int before = check_threads();
  run_linked(&rt_model_a, 1);
  run_linked(&rt_model_b, 2);
  int cpus = cyto_cpu_count();
  int max = before > cpus ? before : cpus;
  CHECK(check_threads() <= max);
  dlclose(self);
}

static void reverse_parallel(void *user, int64_t n, cyto_task task, void *data) {
  *(int64_t *)user += n;
  for (int64_t i = n - 1; i >= 0; i--)
    task(data, i);
}

static void test_custom_pool(void) {
  int64_t calls = 0;
  void *memory = aligned_alloc(64, (cyrt_pool_custom_bytes() + 63) / 64 * 64);
  CHECK_REQUIRE(memory);
  cyrt_frame frame = {.workers = 5, .pool = cyrt_pool_custom(memory, reverse_parallel, &calls)};
  tally *t = malloc(sizeof *t);
  tally_run(&frame, t, 1000, 3, 0);
  CHECK_INT_EQ(calls, 5);
  tally_run(&frame, t, 5, 2, 0);
  CHECK_INT_EQ(calls, 8);
  free(t);
  free(memory);
}

/* ---- CPU counts ---- */

static void write_file(const char *folder, const char *name, const char *text) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "w");
  CHECK_REQUIRE(file);
  fputs(text, file);
  fclose(file);
}

static void test_cgroups(void) {
  char root[CHECK_PATH], inner[300], list[300], command[400];
  CHECK_REQUIRE(check_folder("cyto_cgroup", root));
  snprintf(inner, sizeof inner, "%s/box", root);
  mkdir(inner, 0700);
  snprintf(inner, sizeof inner, "%s/box/app", root);
  mkdir(inner, 0700);
  snprintf(list, sizeof list, "%s/list", root);
  write_file(root, "list", "0::/box/app\n");
  CHECK_INT_EQ(cyrt_cgroup_cpus(list, root), 0);
  write_file(inner, "cpu.max", "max 100000\n");
  CHECK_INT_EQ(cyrt_cgroup_cpus(list, root), 0);
  write_file(inner, "cpu.max", "350000 100000\n");
  CHECK_INT_EQ(cyrt_cgroup_cpus(list, root), 4);
  snprintf(inner, sizeof inner, "%s/box", root);
  write_file(inner, "cpu.max", "200000 100000\n");
  CHECK_INT_EQ(cyrt_cgroup_cpus(list, root), 2);
  snprintf(inner, sizeof inner, "%s/cpu,cpuacct", root);
  mkdir(inner, 0700);
  write_file(inner, "cpu.cfs_quota_us", "50000\n");
  write_file(inner, "cpu.cfs_period_us", "100000\n");
  write_file(root, "list", "5:memory:/x\n4:cpu,cpuacct:/docker/not/visible\n0::/nothing\n");
  CHECK_INT_EQ(cyrt_cgroup_cpus(list, root), 1);
  write_file(inner, "cpu.cfs_quota_us", "-1\n");
  CHECK_INT_EQ(cyrt_cgroup_cpus(list, root), 0);
  CHECK_INT_EQ(cyrt_cgroup_cpus("/no/such/file", root), 0);
  snprintf(command, sizeof command, "rm -r '%s'", root);
  CHECK_INT_EQ(system(command), 0);
}

static void test_affinity(void) {
  cpu_set_t old, one;
  CHECK_REQUIRE(!sched_getaffinity(0, sizeof old, &old));
  CHECK(cyto_cpu_count() >= 1 && cyto_cpu_count() <= CPU_COUNT(&old));
  CPU_ZERO(&one);
  for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
    if (CPU_ISSET(i, &old))
      CPU_SET(i, &one);
  CHECK_REQUIRE(!sched_setaffinity(0, sizeof one, &one));
  CHECK_INT_EQ(cyto_cpu_count(), 1);
  sched_setaffinity(0, sizeof old, &old);
}

static void test_features(void) {
  char name[64];
  CHECK(!cyrt_cpu_lacks(NULL, name));
  CHECK(!cyrt_cpu_lacks("", name));
#if defined(__x86_64__)
  CHECK(!cyrt_cpu_lacks("sse2,+cmov,64bit", name));
  CHECK(cyrt_cpu_lacks("sse2,avx9000,sse", name));
  CHECK_STR_EQ(name, "avx9000");
  CHECK_INT_EQ(!cyrt_cpu_lacks("avx2", name), __builtin_cpu_supports("avx2") != 0);
  CHECK_INT_EQ(!cyrt_cpu_lacks("fma", name), __builtin_cpu_supports("fma") != 0);
  CHECK_INT_EQ(!cyrt_cpu_lacks("avx512vnni", name), __builtin_cpu_supports("avx512vnni") != 0);
  CHECK_INT_EQ(!cyrt_cpu_lacks("avx512f", name), __builtin_cpu_supports("avx512f") != 0);
#endif
}

int main(int argc, char **argv) {
  static const check_test tests[] = {
      {"fork", test_fork},
      {"each_task_once", test_each_task_once},
      {"equal_pieces", test_equal_pieces},
      {"after_sleep", test_after_sleep},
      {"concurrent_callers", test_concurrent_callers},
      {"nested", test_nested},
      {"neighbour", test_neighbour},
      {"one_pool", test_one_pool},
      {"custom_pool", test_custom_pool},
      {"cgroups", test_cgroups},
      {"affinity", test_affinity},
      {"features", test_features},
  };
  return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
