/* SPDX-License-Identifier: Apache-2.0 */
/* failing_alloc.c - for LD_PRELOAD: a program that gets no memory where it asks for it the n-th time.
 *
 * In:  CYTO_FAIL_AT=n, counted from 1 when main() begins, so that libraries' constructors have theirs. CYTO_FAIL_ALL:
 *      all further ones fail, too. Processes that the program starts count anew.
 * glibc's own allocator does the rest.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *ptr, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

static long at, count; /* at 0: main() has not begun, or nothing is to fail */
static bool all;

static bool fails(void) {
  long n = at ? __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED) : 0;
  bool failed = at && (n == at || (all && n > at));
  if (failed)
    errno = ENOMEM;
  return failed;
}

void *malloc(size_t bytes) { return fails() ? NULL : __libc_malloc(bytes); }
void *calloc(size_t n, size_t bytes) { return fails() ? NULL : __libc_calloc(n, bytes); }
void *realloc(void *ptr, size_t bytes) { return fails() ? NULL : __libc_realloc(ptr, bytes); }
void *aligned_alloc(size_t alignment, size_t bytes) { return fails() ? NULL : __libc_memalign(alignment, bytes); }
void *memalign(size_t alignment, size_t bytes) { return fails() ? NULL : __libc_memalign(alignment, bytes); }

int posix_memalign(void **out_ptr, size_t alignment, size_t bytes) {
  if (fails())
    return ENOMEM;
  *out_ptr = __libc_memalign(alignment, bytes);
  return *out_ptr ? 0 : ENOMEM;
}

typedef int (*main_fn)(int argc, char **argv, char **envp);
typedef int (*start_fn)(main_fn run, int argc, char **argv, void (*init)(void), void (*fini)(void),
                        void (*loader_fini)(void), void *stack_end);

int __libc_start_main(main_fn run, int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*loader_fini)(void), void *stack_end);

int __libc_start_main(main_fn run, int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*loader_fini)(void), void *stack_end) {
  start_fn start = (start_fn)dlsym(RTLD_NEXT, "__libc_start_main");
  const char *text = getenv("CYTO_FAIL_AT");
  all = getenv("CYTO_FAIL_ALL") != NULL;
  at = text ? atol(text) : 0;
  return start(run, argc, argv, init, fini, loader_fini, stack_end);
}
