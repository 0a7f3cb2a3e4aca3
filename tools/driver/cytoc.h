/* SPDX-License-Identifier: Apache-2.0 */
/* cytoc.h - the compiler as a library, from C or C++: an ONNX model in, a compiled model out.
 *
 *   cytoc_job job = {.struct_size = sizeof job, .model_path = "model.onnx", .output_path = "model.so"};
 *   cytoc_result result;
 *   if (cytoc_compile(&job, &result) != CYTOC_OK)
 *     fprintf(stderr, "%s\n", result.message);
 *   cytoc_result_free(&result);
 *
 * Options.  The strings that the command line takes, `cytoc --help`: "--int8=static", "--dim=batch=1", "-O2". They mean
 *   the same here and there; what only a command line can do (--help, --version, --batch, a model, an output) is refused.
 * Ownership.  What a job points to is read during the call only. What a result points to belongs to the result, until
 *   cytoc_result_free().
 * Errors.  Nothing prints, exits or aborts. A status other than CYTOC_OK comes with a text in result.message, and with
 *   every diagnostic through on_diagnostic; no file is left behind.
 * Threads.  Any number of compilations may run at once, in threads of their own. Each is done by a process that is forked
 *   for it, and by children of that (-j says how many), which end with it: an application that waits for all children, or
 *   handles SIGCHLD, hears of one it does not know. Equal jobs give equal bytes, whatever runs beside them.
 */
#ifndef CYTOC_H
#define CYTOC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef CYTOC_API
#if defined(_WIN32) || !defined(__GNUC__)
#define CYTOC_API
#else
#define CYTOC_API __attribute__((visibility("default")))
#endif
#endif

#define CYTOC_STATUS_ROWS(X)                                                                                           \
  X(CYTOC_OK, 0, "ok")                                                                                                 \
  X(CYTOC_INVALID_OPTION, 1, "invalid option")       /* an option, or a field of the job */                            \
  X(CYTOC_INVALID_MODEL, 2, "invalid model")         /* cannot be read, is wrong, or has what is not supported */      \
  X(CYTOC_IO_FAILURE, 3, "input or output failed")   /* a file cannot be written, or no space is left */               \
  X(CYTOC_NO_LINKER, 4, "no linker")                 /* `ld` is missing (Debian: binutils) or failed */                \
  X(CYTOC_OUT_OF_MEMORY, 5, "out of memory")                                                                           \
  X(CYTOC_CANCELLED, 6, "cancelled")                 /* on_progress said so */                                         \
  X(CYTOC_INTERNAL_ERROR, 7, "mistake in cytoc")     /* please report it with the model */

typedef enum cytoc_status {
#define X(name, number, text) name = number,
  CYTOC_STATUS_ROWS(X)
#undef X
} cytoc_status;

typedef enum cytoc_severity { CYTOC_ERROR, CYTOC_WARNING, CYTOC_NOTE } cytoc_severity;

/* One thing to tell the person who made the model. Texts are never NULL; "" and -1: not known. */
typedef struct cytoc_diagnostic {
  size_t struct_size;
  cytoc_severity severity;
  const char *file;       /* path of the model, or "cytoc" */
  const char *graph;      /* name of the ONNX graph or function */
  const char *node;       /* name of the ONNX node */
  const char *op;         /* its operator */
  int64_t node_index;     /* its place in the graph, from 0 */
  const char *item;       /* "input 'w'", "attribute 'axis'" */
  const char *text;       /* what is wrong: found, expected, what to do */
  const char *line;       /* all of it as the command line prints it, without a newline */
} cytoc_diagnostic;

/* Reads external data: `location` as the model says it, `length` bytes from `offset` (length 0: all that is behind it).
 * Sets *out_data and *out_size to memory that stays valid until cytoc_compile() returns. 0, or another number when it
 * cannot be had, which is an error of the model. */
typedef int cytoc_external(void *ctx, const char *location, uint64_t offset, uint64_t length, const void **out_data,
                           uint64_t *out_size);

/* All zero but struct_size is the default. */
typedef struct cytoc_job {
  size_t struct_size;            /* sizeof(cytoc_job): fields may be added at the end */
  const char *model_path;        /* a file; or, with `model`, the name that diagnostics use (NULL: "model") */
  const void *model;             /* the bytes of a ModelProto; NULL: read model_path */
  size_t model_size;
  const char *model_dir;         /* with `model`: folder of its external data; NULL: there is none */
  cytoc_external *external;      /* .. or who knows it; NULL: files in model_dir */
  const char *const *options;    /* as the command line has them, without -o and the model */
  size_t option_count;
  const char *output_path;       /* where to write; the ending says what, as for -o. NULL: a shared library in memory,
                                    result.library */
  void *ctx;                     /* for the functions below and `external` */
  void (*on_diagnostic)(void *ctx, const cytoc_diagnostic *diagnostic); /* in the caller's thread; may be NULL */
  /* Progress: `stage` ("import", "passes", "kernels", "link", in this order, with
   * --tune behind "tune"; with samples "calibrate" and "passes" again
   * behind the first "passes"; where several kinds are written, the last two again for each), `done` of `total` parts of
   * it (total 0: not known). In the caller's thread, at the beginning of a stage and several times a second. Another
   * number than 0 cancels. May be NULL. */
  int (*on_progress)(void *ctx, const char *stage, int64_t done, int64_t total);
} cytoc_job;

typedef struct cytoc_result {
  size_t struct_size;
  cytoc_status status;
  const char *message;   /* "" for CYTOC_OK; else the errors, a line each */
  const void *library;   /* the shared library, where output_path was NULL */
  size_t library_size;
  const char *header;    /* the text of its C header, where output_path was NULL */
  const char *report;    /* what --explain, --stats and -v would print; "" without them */
  void *owner;           /* private */
} cytoc_result;

/* Compiles; the answer is out_result->status, too. out_result is always filled in: cytoc_result_free() it. */
CYTOC_API cytoc_status cytoc_compile(const cytoc_job *job, cytoc_result *out_result);
CYTOC_API void cytoc_result_free(cytoc_result *result); /* NULL, zeros and a second time are allowed */

/* "invalid model"; "unknown status" for others. */
CYTOC_API const char *cytoc_status_name(int32_t status);
/* "0.2.0"; "0.2.0-dev" before that is released */
CYTOC_API const char *cytoc_version(void);
/* What `native` means here: the CPU's name as --target takes it. Belongs to the library. */
CYTOC_API const char *cytoc_native_target(void);
/* Several words of the same kind, for keys of caches: version, revision of the sources, LLVM's version. */
CYTOC_API const char *cytoc_build_id(void);

#ifdef __cplusplus
}
#endif
#endif
