/* SPDX-License-Identifier: Apache-2.0 */
/* shared.h - what plugins for other engines (ONNX Runtime, Triton) share: the compiler, opened when it is needed, and the
 * folder of compiled libraries, which the Python package uses, too.
 *
 * All functions may be called by any thread.
 */
#ifndef CYTOC_SHARED_H
#define CYTOC_SHARED_H

#include "tools/driver/cytoc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- cache.c ---- */

enum { CACHE_PATH = 4096 };

/* A ~ in front is the user's home, as in a shell, which has not seen what an application gives. false: it is too long. */
bool path_expand(char out[CACHE_PATH], const char *path);

/* Makes the library of this key where it is missing, by build(ctx, path): 0, or not. path: of the library. folder NULL: where
 * the Python package keeps its own. false: it could not be made, or (why is not "") the folder cannot be used. */
bool cache_library(const char *folder, const char *key, int (*build)(void *ctx, const char *path), void *ctx,
                   char path[CACHE_PATH], char why[256]);

/* ---- key.c ---- */

/* Two sums of 64 bits. Begin with KEY_BEGIN. */
typedef struct key_sum {
  uint64_t a, b;
} key_sum;
#define KEY_BEGIN ((key_sum){1, 2})

void key_add(key_sum *s, const void *data, size_t bytes);
/* Over the names, sizes and times of a file, or of all files of a folder in any order: other samples, another sum. */
uint64_t key_of_files(const char *path);

/* ---- compiler.c ---- */

#define COMPILER_ROWS(X)                                                                                               \
  X(cytoc_compile)                                                                                                     \
  X(cytoc_result_free) X(cytoc_version) X(cytoc_native_target) X(cytoc_build_id)

/* The functions of libcytoc. */
typedef struct compiler {
#define X(name) __typeof__(name) *name;
  COMPILER_ROWS(X)
#undef X
  char why[600]; /* it cannot be used; "": it can */
} compiler;

/* Opens libcytoc at the first call; it stays open. Never NULL. */
const compiler *compiler_open(void);
/* Of what else than model and options decides what a library is: the compiler, and this CPU. */
uint64_t compiler_hash(const compiler *c);
/* CYTOC_INVALID_OPTION where it refuses the options; then, and else, the caller frees the result. */
cytoc_status compiler_check(const compiler *c, const char *const *options, size_t n, cytoc_result *result);

#endif
