/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cyrt.h - what the files of the runtime share, and nobody else sees.
 *
 * Every model library carries its own copy of these objects. A context or pool made by one copy (an application's
 * loader) is handed to code of another (the library it opened), so both start with the functions to call on them: a
 * copy works on a foreign object through these pointers alone. What stands in the two head structs is part of the
 * binary interface: changing it means another CYTO_ABI_VERSION; what follows them in threads.c and context.h may change
 * freely.
 */
#ifndef CYRT_H
#define CYRT_H

#include "os/os.h"

#include <stdarg.h>

#define CYRT_ALIGN 64u
#ifdef _WIN32
#define CYRT_FORMAT(text, values) __attribute__((format(gnu_printf, text, values)))
#else
#define CYRT_FORMAT(text, values) __attribute__((format(printf, text, values)))
#endif

/* ---- error.c ---- */

/* Fills `error` (may be NULL) and returns `code`. */
cyto_status cyrt_error_set(cyto_error *error, cyto_status code, const char *format, ...) CYRT_FORMAT(3, 4);
void cyrt_error_clear(cyto_error *error);
/* CYTO_INVALID_ARGUMENT: `what` ("cyto_run: no context") was NULL. */
cyto_status cyrt_error_null(cyto_error *error, const char *what);

/* ---- tensor.c ---- */

/* The alignment a pointer to elements needs, in bytes. */
uint32_t cyrt_dtype_align(int32_t dtype);
/* The type of tensors of these elements. */
const cyto_type *cyrt_tensor_type(int32_t dtype);
/* The number of elements, or -1 when a dim is negative or the product overflows. */
int64_t cyrt_count(int32_t rank, const int64_t *dims);
/* Prints "[batch,3,?]"; dims below zero are printed by `names` ("?" where empty or names is NULL). Returns text. */
#define CYRT_DIMS_TEXT 320
const char *cyrt_dims_text(int32_t rank, const int64_t *dims, const char *const *names, char text[CYRT_DIMS_TEXT]);

/* ---- model.c ---- */

struct cyto_model {
  const cyrt_model *code;
  const uint8_t *weights;
  void *library; /* that was opened, or NULL */
  void *mapping; /* of the weights' side file, or NULL */
  uint64_t mapped_bytes;
  int32_t references; /* the application's, and one per context; atomic */
  void *device_shared;   /* of code->device, or NULL */
  cyrt_lock device_lock; /* taken while a context is opened on a device */
  struct cyrt_trace *trace; /* NULL: nothing was ever recorded; atomic */
  /* context_spread.c's, so that a linked model is not linked with that; NULL: it is linked */
  cyto_status (*spread_open)(cyto_context *context, const cyto_options *options, cyto_error *error);
};

/* Makes the handle; `library` is taken over also when this fails. file: of it; NULL: linked. path: the same; NULL: linked, or
 * from memory. */
cyto_status cyrt_model_create(const cyrt_model *code, void *library, const char *file, const char *path,
                              cyto_model **out_model, cyto_error *error);
void cyrt_model_retain(cyto_model *model);
void cyrt_port_describe(const cyrt_model *code, const cyrt_port *port, int is_input, cyto_port *out_port);

/* ---- batch_axis.c ---- */

/* Does the port have the batch axis, the first one of the first input, `lead`? */
int cyrt_batch_has(const cyto_port *lead, const cyto_port *port);
/* Why its rows cannot be told apart; NULL: they can, or it is an input that all rows share. */
const char *cyrt_batch_fault(const cyto_port *lead, const cyto_port *port, int is_output);

/* ---- library.c, for os_linux.c ---- */

/* What is wrong with a file as a shared library of this machine, so that the dynamic linker need not be asked; NULL:
 * nothing. */
const char *cyrt_library_fault(const char *path);
/* Bytes of an open file; -1: it is no regular file. */
int64_t cyrt_file_bytes(int file);

/* ---- cpu.c ---- */

/* The first of the comma separated features that this CPU or operating system lacks, copied to `name`; 0 when all are
 * there. */
int cyrt_cpu_lacks(const char *features, char name[64]);
/* The architecture, and what messages advise to compile for where the CPU is not known. */
#ifdef __aarch64__
#define CYRT_ARCH "aarch64"
#define CYRT_USUAL_CPU CYRT_ARCH
#else
#define CYRT_ARCH "x86_64"
#define CYRT_USUAL_CPU "x86-64-v3"
#endif
/* os_linux.c: CPUs granted by the cgroup that `cgroup_file` (/proc/self/cgroup) names below `root` (/sys/fs/cgroup),
 * rounded up; 0: no limit. */
int32_t cyrt_cgroup_cpus(const char *cgroup_file, const char *root);

/* ---- threads.c ---- */

typedef struct cyrt_pool_head {
  void (*parallel_for)(struct cyrt_pool *pool, int64_t workers, cyrt_kernel kernel, const cyrt_slot *args, int64_t n,
                       int64_t grain);
} cyrt_pool_head;

/* The pool of the process; NULL when there is no memory for it. Never freed. */
struct cyrt_pool *cyrt_pool_shared(void);
/* A pool that calls the application's own: lives in memory of cyrt_pool_custom_bytes(). */
size_t cyrt_pool_custom_bytes(void);
struct cyrt_pool *cyrt_pool_custom(void *memory, cyto_parallel parallel, void *user);

/* ---- context.c ---- */

struct cyrt_values; /* values.h */

typedef struct cyrt_context_head {
  /* First of all, in every version: libraries of several models, each with a runtime of its own, export
   * cyto_context_destroy(), and a program calls any of these. */
  void (*destroy)(struct cyrt_context *context);
  void *(*alloc)(struct cyrt_context *context, uint64_t bytes);
  void (*release)(struct cyrt_context *context, void *ptr, uint64_t bytes);
  int32_t (*slot_alloc)(cyrt_frame *frame, uint32_t slot, int64_t bytes);
  int32_t (*output_alloc)(cyrt_frame *frame, uint32_t index, const int64_t *dims, int64_t rank, int64_t elem_bytes);
  void *stash; /* what an operator found in its first call and needs in its second, see ops.c */
  uint64_t stash_bytes;
  const void *stash_tag;
  struct cyrt_values *values; /* NULL: the model has numbers only */
  struct cyrt_recorder *recorder; /* during a run that is recorded; else NULL */
} cyrt_context_head;

/* ---- trace/: what a context's runs did, while the model is being recorded ---- */

typedef enum cyrt_event_kind {
  CYRT_EVENT_STEP,  /* a row's step, on the thread that runs the model or on a stream; a: bytes of the arena alive, b: of
                       dynamic slots */
  CYRT_EVENT_PIECE, /* what one thread did of it; a: tasks */
  CYRT_EVENT_RUN,   /* a: number, from 0, of the context; b: a cyto_status */
  CYRT_EVENT_IN,    /* copies to the device, by its stream; a: bytes */
  CYRT_EVENT_OUT    /* .. and back */
} cyrt_event_kind;
typedef struct cyrt_event {
  const cyrt_profile_row *row; /* STEP, PIECE */
  int64_t start, end;          /* by cyrt_os_now_ns() */
  uint64_t lane;               /* number of the thread; with `stream`, the stream */
  int64_t a, b;
  int16_t kind, stream, other, failed;
} cyrt_event;

/* What one thread has done of a step. */
typedef struct cyrt_piece {
  _Alignas(64) int64_t start;
  int64_t end, tasks;
  uint64_t lane;
} cyrt_piece;

/* What the generated code's side of a recording knows of it. One thread at a time uses it, that of the run. */
typedef struct cyrt_recorder {
  void (*record)(struct cyrt_recorder *r, const cyrt_event *event);
  cyrt_piece *pieces; /* [workers of the context] */
  const cyrt_profile_row *open; /* the step that has begun, and when */
  int64_t open_start;
  int64_t bytes_in, bytes_out;  /* moved to the device and back */
} cyrt_recorder;

/* A model's recording, as contexts see it. */
typedef struct cyrt_trace {
  /* Around a run, which began at `start`; 0: it is not recorded, and there is no leave(). */
  int (*enter)(struct cyrt_trace *trace, struct cyrt_context *context, int64_t start);
  void (*planned)(struct cyrt_trace *trace, struct cyrt_context *context); /* sizes are known */
  void (*leave)(struct cyrt_trace *trace, struct cyrt_context *context, cyto_status status, const cyto_error *error);
  void (*release)(struct cyrt_trace *trace); /* the model is unloaded */
} cyrt_trace;

/* Scratch memory for operators, 64-byte aligned; NULL when there is none. */
void *cyrt_scratch_alloc(cyrt_frame *frame, uint64_t bytes);
void cyrt_scratch_free(cyrt_frame *frame, void *ptr, uint64_t bytes);
/* Keeps `ptr` (scratch) until cyrt_stash_take() with the same tag, the next put, or the end of the context. */
void cyrt_stash_put(cyrt_frame *frame, const void *tag, void *ptr, uint64_t bytes);
void *cyrt_stash_take(cyrt_frame *frame, const void *tag, uint64_t *out_bytes);

/* ---- ops*.c: the operators, a row each in rt_ops.def ---- */

#define CYRT_OP(name, function, attrs)                                                                                 \
  int32_t function(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,            \
                   const cyrt_attr *attr);
#include "rt_ops.def"
#undef CYRT_OP

#endif
