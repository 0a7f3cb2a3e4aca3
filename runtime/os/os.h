/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* os.h - what the runtime asks of the operating system: os_linux.c, os_windows.c.
 *
 * Functions that fail say why as a text in `why`, which has room for CYRT_WHY bytes.
 */
#ifndef CYRT_OS_H
#define CYRT_OS_H

#include "cyto.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h> /* before the names below */

enum { CYRT_WHY = 800, CYRT_PATH = 4096 };

/* ---- time, threads ---- */

int64_t cyrt_os_now_ns(void); /* since some moment */
int64_t cyrt_os_ran_ns(void); /* how long this thread has had a CPU; -1: not known that well */
void cyrt_os_sleep(int64_t ns);
uint64_t cyrt_os_thread_number(void); /* of the calling thread, as the system's tools show it */
/* Sleeps until cyrt_os_wake() of the word, or not at all if it has another value; may return for no reason, too. */
void cyrt_os_wait(atomic_uint *word, uint32_t value);
/* The same, for so long at most. */
void cyrt_os_wait_for(atomic_uint *word, uint32_t value, int64_t ns);
void cyrt_os_wake(atomic_uint *word); /* all that sleep */
/* Starts a thread that takes no signals and is not waited for; 0: there is none. */
int cyrt_os_thread(void (*main)(void *), void *data);
/* Keeps the library that has this code, until the process ends. */
void cyrt_os_pin(void (*code)(void *));
/* A word that is 0 at first, and again in the child of a fork(). NULL: no memory. */
atomic_int *cyrt_os_fork_word(void);
void cyrt_os_fork_word_free(atomic_int *word);
/* Where the process has its pool, in all libraries the same; NULL: no memory. */
_Atomic(struct cyrt_pool *) *cyrt_os_pool(void);
/* CPUs that this process may use. */
int32_t cyrt_os_cpus(void);
#if defined(__x86_64__)
int cyrt_os_amx_granted(void); /* asks for the registers of AMX; asking again does no harm */
#endif

/* One thread at a time is between the two. */
typedef struct cyrt_lock {
  atomic_uint state; /* 0: free, 1: taken, 2: and somebody sleeps */
} cyrt_lock;
void cyrt_lock_take(cyrt_lock *lock); /* threads.c */
void cyrt_lock_give(cyrt_lock *lock);

/* ---- memory ---- */

void *cyrt_os_alloc(size_t bytes, size_t alignment); /* large ones on large pages; NULL: there is none */
void cyrt_os_free(void *ptr);

/* ---- files, libraries; paths are UTF-8 ---- */

const char *cyrt_os_path_base(const char *path); /* behind its folder */
int cyrt_os_readable(const char *path, char *why);
/* Bytes of a file, read-only, the first or, with `last`, the last of it, which begin at a multiple of CYRT_MAP_ALIGN; and how
 * many it has. NULL: *out_size is -1 if it cannot be opened. */
#define CYRT_MAP_ALIGN 65536
#define CYRT_WEIGHTS_MARK "cyto's weights" /* see load.c */
void *cyrt_os_map(const char *path, uint64_t bytes, int last, int64_t *out_size, char *why);
void cyrt_os_unmap(void *mapping, uint64_t bytes);
void *cyrt_os_library_open(const char *path, char *why); /* NULL: why not */
void *cyrt_os_library_symbol(void *library, const char *name);
void cyrt_os_library_close(void *library);
/* A file of these bytes that is gone when it is closed and no library of it is open. Its path is like that of no other.
 * -1: why not. */
int cyrt_os_memory_file(const void *bytes, uint64_t size, char path[CYRT_PATH], char *why);
void cyrt_os_memory_file_close(int file);
/* A file that is written anew. -1, and in what follows 0: why not. */
int64_t cyrt_os_file_create(const char *path, char *why);
int cyrt_os_file_write(int64_t file, const void *bytes, size_t n, char *why);
int cyrt_os_file_close(int64_t file, char *why);
void cyrt_os_file_remove(const char *path); /* if it is a regular one */
/* The path of the library or program that has this address; 0: not known. */
int cyrt_os_library_of(const void *address, char path[CYRT_PATH]);

/* ---- texts ---- */

/* A letter in lower case, or in upper case. `letters` comes from begin(), which may give NULL. */
void *cyrt_os_letters_begin(void);
uint32_t cyrt_os_letter(void *letters, uint32_t ch, int to_lower);
void cyrt_os_letters_end(void *letters);
#ifdef _WIN32
/* In place of the C library's: %s, %.*s, %d, %u, %lld and %llu. */
int cyrt_vsnprintf(char *text, size_t room, const char *format, va_list args);
int cyrt_snprintf(char *text, size_t room, const char *format, ...);
#define vsnprintf cyrt_vsnprintf
#define snprintf cyrt_snprintf
#endif

#endif
