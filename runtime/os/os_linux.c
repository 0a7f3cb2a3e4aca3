/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* os_linux.c - what the runtime asks of Linux. See os.h. */
#define _GNU_SOURCE
#include "cyrt.h"
#include "os.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <locale.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <wctype.h>

/* Absent from fully static programs (where nothing can be unmapped, and models are linked) and from an old libc without
 * -ldl. */
#pragma weak dlopen
#pragma weak dladdr
#pragma weak dlerror

/* ---- time, threads ---- */

int64_t cyrt_os_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

int64_t cyrt_os_ran_ns(void) {
  struct timespec t;
  return clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) ? -1 : t.tv_sec * 1000000000ll + t.tv_nsec;
}

uint64_t cyrt_os_thread_number(void) { return (uint64_t)syscall(SYS_gettid); }

void cyrt_os_sleep(int64_t ns) {
  struct timespec t = {ns / 1000000000, ns % 1000000000};
  nanosleep(&t, NULL);
}

void cyrt_os_wait(atomic_uint *word, uint32_t value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

void cyrt_os_wait_for(atomic_uint *word, uint32_t value, int64_t ns) {
  struct timespec time = {ns / 1000000000, ns % 1000000000};
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &time, NULL, 0);
}

void cyrt_os_wake(atomic_uint *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0); }

typedef struct thread_start {
  void (*main)(void *);
  void *data;
} thread_start;

static void *thread_main(void *data) {
  thread_start start = *(thread_start *)data;
  free(data);
  start.main(start.data);
  return NULL;
}

int cyrt_os_thread(void (*main)(void *), void *data) {
  thread_start *start = malloc(sizeof *start);
  sigset_t all, old;
  pthread_t thread;
  if (!start)
    return 0;
  *start = (thread_start){main, data};
  sigfillset(&all); /* signals are the application's business */
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int failed = pthread_create(&thread, NULL, thread_main, start);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (failed) {
    free(start);
    return 0;
  }
  pthread_detach(thread);
  return 1;
}

void cyrt_os_pin(void (*function)(void *)) {
  Dl_info info;
  void *code;
  memcpy(&code, &function, sizeof code);
  if (!dladdr || !dlopen || !dlerror || !dladdr(code, &info) || !info.dli_fname)
    return;
  if (!dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE))
    dlerror(); /* the program itself: needs no pin; leave no error behind */
}

/* A page that the kernel wipes on fork. (pthread_atfork is not in libc.so itself, so a library linked without the
 * development files could not call it.) */
atomic_int *cyrt_os_fork_word(void) {
  atomic_int *word = mmap(NULL, sizeof *word, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (word == MAP_FAILED)
    return NULL;
  madvise(word, sizeof *word, MADV_WIPEONFORK);
  return word;
}

void cyrt_os_fork_word_free(atomic_int *word) { munmap(word, sizeof *word); }

/* A data symbol with default visibility in every library: the dynamic linker lets all that are linked directly use the
 * first one's. */
CYTO_API _Atomic(struct cyrt_pool *) cyrt_process_pool;

_Atomic(struct cyrt_pool *) *cyrt_os_pool(void) { return &cyrt_process_pool; }

/* ---- CPUs ---- */

#if defined(__x86_64__)
/* Linux gives a process the registers of AMX when it asks for them (arch_prctl, ARCH_REQ_XCOMP_PERM), once for all its
 * threads; asking again does no harm. It refuses where a thread's stack for signals could not hold them. */
int cyrt_os_amx_granted(void) {
  enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
  return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#endif

/* quota / period in CPUs, rounded up; 0 when there is no limit. */
static int32_t quota_cpus(double quota, double period) {
  if (quota <= 0 || period <= 0)
    return 0;
  double cpus = quota / period;
  return cpus >= 1e6 ? 0 : (int32_t)cpus + (cpus > (int32_t)cpus);
}

/* The numbers, at most two, in the first line of a folder's file; those that it lacks, "max" for one, are 0. */
static void read_numbers(const char *folder, const char *name, double number[2]) {
  char path[1200], line[128], *at = line;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "re");
  if (!file || !fgets(line, sizeof line, file))
    *line = 0;
  if (file)
    fclose(file);
  for (int i = 0; i < 2; i++)
    number[i] = strtod(at, &at);
}

/* The limit set in one group's folder, 0 when none. */
static int32_t folder_limit(const char *folder, int v2) {
  double quota[2], period[2];
  read_numbers(folder, v2 ? "cpu.max" : "cpu.cfs_quota_us", quota);
  if (v2)
    return quota_cpus(quota[0], quota[1]);
  read_numbers(folder, "cpu.cfs_period_us", period);
  return quota_cpus(quota[0], period[0]);
}

/* The lowest limit of a group and all groups around it. Folders that are not visible (a container sees its own group as
 * the root, whatever the file says) have no say. */
static int32_t group_limit(const char *root, const char *controller, const char *group) {
  char folder[1100];
  size_t base = (size_t)snprintf(folder, sizeof folder, "%s%s", root, controller);
  int32_t lowest = 0;
  if (base >= sizeof folder || strlen(group) >= sizeof folder - base)
    return 0;
  strcpy(folder + base, group);
  for (;;) {
    int32_t limit = folder_limit(folder, controller[0] == 0);
    if (limit && (!lowest || limit < lowest))
      lowest = limit;
    char *slash = strrchr(folder + base, '/');
    if (!slash)
      return lowest;
    *slash = 0;
  }
}

int32_t cyrt_cgroup_cpus(const char *cgroup_file, const char *root) {
  char line[1024];
  int32_t lowest = 0;
  FILE *file = fopen(cgroup_file, "re");
  if (!file)
    return 0;
  while (fgets(line, sizeof line, file)) { /* "0::/group" (v2) or "4:cpu,cpuacct:/group" (v1) */
    char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
    int32_t limit = 0;
    if (!group)
      continue;
    *group++ = 0;
    names++;
    group[strcspn(group, "\n")] = 0;
    if (!*names)
      limit = group_limit(root, "", group);
    else if (!strcmp(names, "cpu") || !strcmp(names, "cpu,cpuacct") || !strcmp(names, "cpuacct,cpu")) {
      limit = group_limit(root, "/cpu", group);
      if (!limit)
        limit = group_limit(root, "/cpu,cpuacct", group);
    }
    if (limit && (!lowest || limit < lowest))
      lowest = limit;
  }
  fclose(file);
  return lowest;
}

static int32_t affinity_cpus(void) {
  for (int cpus = 1024; cpus <= 1 << 20; cpus *= 4) { /* the kernel refuses masks shorter than its own */
    cpu_set_t *set = malloc(CPU_ALLOC_SIZE(cpus));    /* CPU_ALLOC() calls what only glibc has */
    if (!set)
      break;
    int failed = sched_getaffinity(0, CPU_ALLOC_SIZE(cpus), set);
    int count = failed ? 0 : CPU_COUNT_S(CPU_ALLOC_SIZE(cpus), set);
    free(set);
    if (!failed)
      return count > 0 ? count : 1;
  }
  return 1;
}

int32_t cyrt_os_cpus(void) {
  int32_t allowed = affinity_cpus(), quota = cyrt_cgroup_cpus("/proc/self/cgroup", "/sys/fs/cgroup");
  return quota && quota < allowed ? quota : allowed;
}

/* ---- memory ---- */

void *cyrt_os_alloc(size_t bytes, size_t alignment) {
  const size_t huge = (size_t)2 << 20;
  void *ptr;
  if (bytes >= 2 * huge) { /* large arenas on huge pages: fewer faults and TLB misses */
    if (posix_memalign(&ptr, huge, bytes))
      return NULL;
    madvise(ptr, bytes & ~(huge - 1), MADV_HUGEPAGE);
    return ptr;
  }
  return posix_memalign(&ptr, alignment, bytes) ? NULL : ptr;
}

void cyrt_os_free(void *ptr) { free(ptr); }

/* ---- files, libraries ---- */

static int fails(char *why, const char *reason) {
  snprintf(why, CYRT_WHY, "%s", reason);
  return 0;
}

const char *cyrt_os_path_base(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

int cyrt_os_readable(const char *path, char *why) { return !access(path, R_OK) || fails(why, strerror(errno)); }

void *cyrt_os_map(const char *path, uint64_t bytes, int last, int64_t *out_size, char *why) {
  void *mapping = NULL;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  *out_size = -1;
  if (file < 0) {
    fails(why, strerror(errno));
    return NULL;
  }
  *out_size = cyrt_file_bytes(file);
  if (*out_size < 0)
    *out_size = 0;
  if ((uint64_t)*out_size >= bytes) {
    mapping = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, last ? (off_t)((uint64_t)*out_size - bytes) : 0);
    if (mapping == MAP_FAILED) {
      fails(why, strerror(errno));
      mapping = NULL;
    }
  }
  close(file);
  return mapping;
}

void cyrt_os_unmap(void *mapping, uint64_t bytes) { munmap(mapping, bytes); }

int64_t cyrt_os_file_create(const char *path, char *why) {
  int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0)
    fails(why, strerror(errno));
  return file;
}

int cyrt_os_file_write(int64_t file, const void *bytes, size_t n, char *why) {
  const char *at = bytes;
  while (n) {
    ssize_t written = write((int)file, at, n);
    if (written < 0 && errno != EINTR)
      return fails(why, strerror(errno));
    at += written > 0 ? written : 0;
    n -= written > 0 ? (size_t)written : 0;
  }
  return 1;
}

int cyrt_os_file_close(int64_t file, char *why) { return !close((int)file) || fails(why, strerror(errno)); }

void cyrt_os_file_remove(const char *path) {
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0)
    return;
  if (cyrt_file_bytes(file) >= 0)
    unlink(path);
  close(file);
}

/* The dynamic linker takes a path that it knows for the library it has, and numbers of files are used again while
 * libraries stay: the number of the inode, bit for bit, tells the paths apart. */
static void memory_file_path(int file, char path[CYRT_PATH]) {
  struct stat info = {0};
  int n = snprintf(path, CYRT_PATH, "/proc/self/fd");
  syscall(SYS_fstat, file, &info);
  for (uint64_t bits = info.st_ino; bits; bits >>= 1)
    n += snprintf(path + n, (size_t)(CYRT_PATH - n), bits & 1 ? "/." : "//");
  snprintf(path + n, (size_t)(CYRT_PATH - n), "/%d", file);
}

int cyrt_os_memory_file(const void *bytes, uint64_t size, char path[CYRT_PATH], char *why) {
  int file = (int)syscall(SYS_memfd_create, "cyto", 1u); /* MFD_CLOEXEC */
  if (file < 0)
    return fails(why, strerror(errno)) - 1;
  for (uint64_t done = 0; done < size;) {
    ssize_t wrote = write(file, (const char *)bytes + done, size - done);
    if (wrote < 0 && errno == EINTR)
      continue;
    if (wrote <= 0) {
      fails(why, strerror(errno));
      close(file);
      return -1;
    }
    done += (uint64_t)wrote;
  }
  memory_file_path(file, path);
  return file;
}

void cyrt_os_memory_file_close(int file) { close(file); }

void *cyrt_os_library_open(const char *path, char *why) {
  const char *fault = cyrt_library_fault(path);
  void *library = fault ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    fails(why, fault ? fault : dlerror());
  return library;
}

void *cyrt_os_library_symbol(void *library, const char *name) { return dlsym(library, name); }

void cyrt_os_library_close(void *library) { dlclose(library); }

int cyrt_os_library_of(const void *address, char path[CYRT_PATH]) {
  Dl_info info;
  if (!dladdr || !dladdr(address, &info) || !info.dli_fname || strlen(info.dli_fname) >= CYRT_PATH)
    return 0;
  strcpy(path, info.dli_fname);
  return 1;
}

/* ---- texts ---- */

/* The C library's UTF-8 locale; without one only ASCII letters change. */
void *cyrt_os_letters_begin(void) { return newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0); }

void cyrt_os_letters_end(void *letters) {
  if (letters)
    freelocale(letters);
}

uint32_t cyrt_os_letter(void *letters, uint32_t ch, int to_lower) {
  if (letters)
    return (uint32_t)(to_lower ? towlower_l((wint_t)ch, letters) : towupper_l((wint_t)ch, letters));
  return (to_lower ? ch >= 'A' && ch <= 'Z' : ch >= 'a' && ch <= 'z') ? ch ^ 32 : ch;
}
