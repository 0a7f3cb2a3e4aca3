/* SPDX-License-Identifier: Apache-2.0 */
/* leaking_alloc.c - for LD_PRELOAD: an allocator that never gives large blocks back, for a program that should notice.
 *
 * glibc's own does the rest.
 */
#include <malloc.h>

enum { LARGE = 16384 };

extern void __libc_free(void *ptr);

void free(void *ptr) {
  if (ptr && malloc_usable_size(ptr) < LARGE)
    __libc_free(ptr);
}
