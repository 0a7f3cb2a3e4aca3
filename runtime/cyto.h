/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cyto.h - what an application includes to use a compiled model, from C or C++.
 *
 * A run, without checks of errors (examples/loaded has them):
 *
 *   cyto_model_load("model.so", &model, &error);
 *   cyto_context_create(model, NULL, &context, &error);
 *   cyto_bind_input(context, cyto_model_find_input(model, "image"), CYTO_F32, 4, dims, pixels, &error);
 *   cyto_run(context, &error);
 *   cyto_output(context, 0, &result, &error);           result.data, result.dims
 *   cyto_context_destroy(context);
 *   cyto_model_unload(model);
 *
 * Indices.  Inputs and outputs are numbered from 0 in the model's order, which is that of its ONNX file. A number out of
 *   range is CYTO_INDEX_OUT_OF_RANGE.
 * Sizes.  Dims count elements, rank is how many there are, at most CYTO_MAX_RANK. All tensors are dense and row-major:
 *   the last dim is the one whose neighbours are adjacent in memory. Fields and parameters called bytes, capacity or
 *   alignment count bytes.
 * Ownership.  What cyto_..._load/create gives you is released by the matching unload/destroy. A context keeps its model
 *   alive, so the order of release is free. Pointers you bind stay yours: they must stay valid until you bind another
 *   or destroy the context; inputs are only read; output buffers must overlap neither inputs nor each other (but see
 *   Caches). Names, dims and output data handed out belong to the model or context and live as long as it (output data:
 *   until the next cyto_run(), cyto_bind_*() or cyto_context_prepare() of that context).
 * Caches.  An output that is an input with some of its elements written anew, such as the keys and values of a language
 *   model in a cache with room for more, may be bound to the memory of that input: then the new elements are all that is
 *   written, and nothing is copied. cyto_port.shared_input tells which outputs these are. Both begin at the same address,
 *   and are of one size; any other overlap is refused (CYTO_INVALID_ARGUMENT). After a run that fails the input may have
 *   been written to.
 * Growing caches.  An output that is an input with new rows behind it (present = Concat(past, new)), as most exporters write
 *   keys and values, may be kept by the context: cyto_context_keep(). Both then lie in one piece of memory with room for
 *   more rows, a run writes the new ones only, and its outputs are the next run's inputs without being bound.
 *   cyto_port.grown_input tells which outputs these are; docs/caches.md has an example.
 * Strings.  UTF-8, zero-terminated, never NULL unless stated.
 * NULL.  Only what is said to may be NULL. Else the answer is CYTO_INVALID_ARGUMENT or, of functions that return no status,
 *   an empty one: "", 0, or -1. Handles are not distinguished from other pointers: give each back once, and use it no more. Handles
 *   that a failed load or create would have filled in are NULL.
 * Errors.  Every function that can fail returns a cyto_status, CYTO_OK being 0, and fills the caller's cyto_error (may
 *   be NULL) with a text for people. Nothing is printed, nothing exits or aborts. After an error the context stays
 *   usable: repair what the text names and call again.
 * Threads.  A model may be used by any number of threads at once; a context by one at a time. All contexts of a process
 *   share one pool of threads, started when first needed, asleep when idle; an application may supply its own instead.
 *   A thread that loads or runs models, or that such a pool of its own has, needs a stack of 64 KB.
 */
#ifndef CYTO_H
#define CYTO_H

#include "cyto_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef CYTO_API
#if defined(_WIN32) || !defined(__GNUC__)
#define CYTO_API
#else
#define CYTO_API __attribute__((visibility("default")))
#endif
#endif

/* ---- errors (error.c) ---- */

#define CYTO_STATUS_ROWS(X)                                                                                            \
  X(CYTO_OK, 0, "ok")                                                                                                  \
  X(CYTO_INVALID_ARGUMENT, 1, "invalid argument")                                                                      \
  X(CYTO_SHAPE_MISMATCH, 2, "shape mismatch")                                                                          \
  X(CYTO_DTYPE_MISMATCH, 3, "dtype mismatch")                                                                          \
  X(CYTO_OUT_OF_MEMORY, 4, "out of memory")                                                                            \
  X(CYTO_BUFFER_TOO_SMALL, 5, "buffer too small")                                                                      \
  X(CYTO_NOT_FOUND, 6, "not found")                                                                                    \
  X(CYTO_BAD_LIBRARY, 7, "bad library")                                                                                \
  X(CYTO_UNSUPPORTED_CPU, 8, "unsupported CPU")                                                                        \
  X(CYTO_INDEX_OUT_OF_RANGE, 9, "index out of range")                                                                  \
  X(CYTO_NOT_READY, 10, "not ready")                                                                                   \
  X(CYTO_RUNTIME_FAILURE, 11, "failure while running")                                                                 \
  X(CYTO_NO_DEVICE, 12, "no usable device")                                                                            \
  X(CYTO_CANCELLED, 13, "cancelled")

typedef enum cyto_status {
#define X(name, number, text) name = number,
  CYTO_STATUS_ROWS(X)
#undef X
} cyto_status;

typedef struct cyto_error {
  int32_t code; /* a cyto_status; set to CYTO_OK by every call that succeeds */
  char message[1024];
} cyto_error;

/* The short name of a status, e.g. "shape mismatch"; "unknown status" for others. */
CYTO_API const char *cyto_status_name(int32_t status);

/* ---- element types (tensor.c) ---- */

/* "float32", "int4", ...; "unknown" for a number that is no dtype. */
CYTO_API const char *cyto_dtype_name(int32_t dtype);
/* Bits of one element (4 for CYTO_I4, 64 for CYTO_C64, those of a cyto_string for CYTO_STRING); 0 for numbers that are
 * no dtype. */
CYTO_API int32_t cyto_dtype_bits(int32_t dtype);
/* Bytes of a dense tensor, sub-byte elements packed; -1 when a dim is negative, dims are NULL (but with rank 0), or the
 * product overflows. */
CYTO_API int64_t cyto_tensor_bytes(int32_t dtype, int32_t rank, const int64_t *dims);

/* ---- strings, sequences, maps, optional values (values.c) ---- */

/* An element of a string tensor: any bytes, usually UTF-8. Of those that a model gives, text[length] is 0 as well.
 * Those that you give may have text NULL where length is 0. */
typedef struct cyto_string {
  const char *text;
  uint64_t length;
} cyto_string;

typedef struct cyto_tensor {
  void *data; /* for CYTO_STRING: cyto_string elements */
  uint64_t bytes;
  int32_t dtype;
  int32_t rank;
  int64_t dims[CYTO_MAX_RANK];
} cyto_tensor;

/* Any value. What an input is made of is yours: it is read by cyto_run() and must be valid until then, and as long as
 * you read outputs, whose tensors may be those of an input. What an output is made of belongs to the context and lives
 * until its next cyto_run(), cyto_bind_*() or cyto_context_prepare(). */
typedef struct cyto_value {
  int32_t kind;                   /* cyto_kind */
  cyto_tensor tensor;             /* CYTO_TENSOR; `bytes` of an input is not read */
  const struct cyto_value *items; /* CYTO_SEQUENCE: the elements. CYTO_OPTIONAL: the value, or none. CYTO_MAP: two
                                     tensors of rank 1 and equal length, keys (each once) and values */
  uint64_t count;                 /* of items */
} cyto_value;

/* ---- models (load.c) ---- */

typedef struct cyto_model cyto_model;
typedef struct cyrt_context cyto_context;

/* Opens a model library. CYTO_NOT_FOUND, CYTO_BAD_LIBRARY (no model, of another interface version, or not all of a file),
 * CYTO_UNSUPPORTED_CPU. It is code, which runs: open what you trust only. */
CYTO_API cyto_status cyto_model_load(const char *path, cyto_model **out_model, cyto_error *error);
/* The same for a library that lies in memory, such as cytoc_compile() gives, with no file of your own; the bytes are copied.
 * Linux alone: elsewhere, and where the system keeps programs from making code so (CYTO_RUNTIME_FAILURE), write a file. */
CYTO_API cyto_status cyto_model_load_memory(const void *bytes, uint64_t size, cyto_model **out_model, cyto_error *error);
/* The same for a model linked into the application: pass what the generated <name>_model() returns. */
CYTO_API cyto_status cyto_model_from_linked(const cyrt_model *linked, cyto_model **out_model, cyto_error *error);
/* Gives the model back; its library is closed once its last context is gone as well. NULL is allowed. */
CYTO_API void cyto_model_unload(cyto_model *model);

CYTO_API const char *cyto_model_name(const cyto_model *model);     /* of the ONNX graph */
CYTO_API const char *cyto_model_target(const cyto_model *model);   /* what it was compiled for: "x86-64-v3" */
CYTO_API const char *cyto_model_compiler(const cyto_model *model); /* "cytoc 0.2.0"; "cytoc 0.2.0, NVRTC 13.0" */

/* What the ONNX file says about the model besides (metadata_props): labels, a sampling rate, a licence .. The order
 * is the file's; of equal keys the last counts. CYTO_INDEX_OUT_OF_RANGE leaves both alone. */
CYTO_API int32_t cyto_model_metadata_count(const cyto_model *model);
CYTO_API cyto_status cyto_model_metadata(const cyto_model *model, int32_t index, const char **out_key,
                                         const char **out_value);
/* The value of that key, or NULL. */
CYTO_API const char *cyto_model_find_metadata(const cyto_model *model, const char *key);

/* One input or output. A dim that is not fixed is -1; dim_names then has its symbol ("batch"), of outputs what it is of
 * the inputs' symbols ("2*seq+1"), or "" when it has no name or depends on data. */
typedef struct cyto_port {
  const char *name;
  int32_t dtype; /* cyto_dtype; 0 if it is not a tensor */
  int32_t rank;
  int64_t dims[CYTO_MAX_RANK];
  const char *dim_names[CYTO_MAX_RANK];
  const cyto_type *type; /* kind, and what is inside; of tensors, too */
  int32_t is_optional; /* input: has a default, may stay unbound */
  int32_t is_dynamic;  /* output: its shape depends on data and is known only after running */
  int32_t shared_input; /* output: the input whose memory it may be bound to, see Caches; -1: none, and of inputs */
  int32_t grown_input;  /* output: the input that it is with more behind it, see Growing caches; -1: none, and of inputs */
  int32_t grown_axis;   /* .. along this axis; else -1 */
} cyto_port;

CYTO_API int32_t cyto_model_input_count(const cyto_model *model);
CYTO_API int32_t cyto_model_output_count(const cyto_model *model);
/* CYTO_INDEX_OUT_OF_RANGE leaves *out_port alone. */
CYTO_API cyto_status cyto_model_input(const cyto_model *model, int32_t index, cyto_port *out_port);
CYTO_API cyto_status cyto_model_output(const cyto_model *model, int32_t index, cyto_port *out_port);
/* The index of the input or output of that name, or -1. */
CYTO_API int32_t cyto_model_find_input(const cyto_model *model, const char *name);
CYTO_API int32_t cyto_model_find_output(const cyto_model *model, const char *name);

/* ---- contexts (context*.c) ---- */

/* Memory of a context. alloc returns `bytes` aligned to `alignment` (a power of two), or NULL. Called only by the
 * thread that uses the context. */
typedef struct cyto_allocator {
  void *(*alloc)(void *user, size_t bytes, size_t alignment);
  void (*release)(void *user, void *ptr, size_t bytes);
  void *user;
} cyto_allocator;

/* Memory of a device that a context gets, in the place of the driver's: PyTorch's caching allocator, RMM, a region of your
 * own. alloc returns memory of the context's device, aligned to 256 bytes, or NULL; `stream` is that of the runs (a
 * CUstream), and what is done with the memory is done there or waits for it. Called only by the thread that uses the
 * context; release, when the stream is empty. */
typedef struct cyto_device_allocator {
  void *(*alloc)(void *user, size_t bytes, void *stream);
  void (*release)(void *user, void *ptr, size_t bytes, void *stream);
  void *user;
} cyto_device_allocator;

/* The application's own thread pool: must call task(data, i) once for every i in [0, n), in any order, on any threads,
 * at once or one after the other, and return when all are done. */
typedef void (*cyto_task)(void *data, int64_t i);
typedef void (*cyto_parallel)(void *user, int64_t n, cyto_task task, void *data);

/* All zero is the default. */
typedef struct cyto_options {
  int32_t threads;        /* how many a run may use, the calling one included; 0: all CPUs this process may use */
  cyto_parallel parallel; /* NULL: the shared pool */
  void *parallel_user;
  cyto_allocator allocator; /* alloc NULL: the C library's */
  /* Models for CUDA: */
  int32_t device;           /* number of the device */
  int32_t device_memory;    /* 1: tensors that are bound lie in memory of the device */
  void *stream;             /* CUstream that runs use; NULL: one of the context's own, which waits for no other. With a
                               stream of yours and all tensors on the device, cyto_run() returns before the results are
                               there. The default stream is (void *)1 (CU_STREAM_LEGACY). While you capture it, see
                               cyto_run() */
  /* Several devices, which share the batch of each run by their speed; tensors lie in the host's memory. The first size of the
   * first input must be open, all outputs must have it, and rows must not depend on each other. Models that are loaded, not
   * linked. NULL: `device` alone */
  const int32_t *devices;
  int32_t device_count;  /* of them */
  int32_t device_errors; /* cyto_device_errors: what a run does whose part on one of them fails */
  /* Where the context's memory on the device comes from (weights, which all contexts of the model share, are the driver's):
   * your allocator; alloc NULL: cuMemAlloc, or with device_pool 1 the device's stream-ordered pool (cuMemAllocAsync), whose
   * memory grows and goes without waiting for the device; where it has none, cuMemAlloc. cyto_context_describe() says so */
  int32_t device_pool;
  cyto_device_allocator device_allocator; /* not with `devices`: it serves one device and one thread */
  /* The most bytes of the device that weights take; 0: as many as there are. Weights that are more, or do not fit, stay in
   * pinned memory of the host and are copied in each run, ahead of the kernels that read them: slow, but it runs. The first
   * context on a device decides for all. It is then the limit of each context, which has a part of the device of its own,
   * and that part is never smaller than the largest weight */
  uint64_t device_weights;
} cyto_options;

/* AGAIN: the others do that part again, and that device gets no more; an error comes when all have failed. STOP: the run fails,
 * with an error that names the device. */
typedef enum cyto_device_errors { CYTO_DEVICE_ERRORS_AGAIN, CYTO_DEVICE_ERRORS_STOP } cyto_device_errors;

#define CYTO_MAX_THREADS 256 /* more are not used */

/* CPUs that this process may use: its affinity mask, cut to the CPU quota of its cgroup; on Windows, those of its
 * processor group that its affinity mask has. */
CYTO_API int32_t cyto_cpu_count(void);

/* What runs a model: bindings, memory and settings. options NULL: the default; they are copied. CYTO_NO_DEVICE where a
 * model for CUDA finds no device that it can use. */
CYTO_API cyto_status cyto_context_create(cyto_model *model, const cyto_options *options, cyto_context **out_context,
                                         cyto_error *error);
/* NULL is allowed. Libraries of models that are linked directly have this function, too: any of them destroys contexts of
 * all. */
CYTO_API void cyto_context_destroy(cyto_context *context);
/* What the context runs on, in words: threads, or the device, its driver, and the libraries that are used or why not.
 * Cut to `capacity` bytes with the final zero. */
CYTO_API void cyto_context_describe(const cyto_context *context, char *text, uint64_t capacity);

/* Binds `data` without copying; it must be aligned for its element type and dense in row-major order. dtype and rank
 * must be the port's, fixed dims equal. `data` NULL unbinds an optional input (dtype, rank and dims are then ignored).
 */
CYTO_API cyto_status cyto_bind_input(cyto_context *context, int32_t index, int32_t dtype, int32_t rank,
                                     const int64_t *dims, const void *data, cyto_error *error);
/* Binds an input of any kind; its type must be the port's, tensors in it are checked as cyto_bind_input() does. `value`
 * itself is copied, what it points to is not. NULL unbinds an optional input. */
CYTO_API cyto_status cyto_bind_value(cyto_context *context, int32_t index, const cyto_value *value, cyto_error *error);
/* Has the output written straight to `data`, which holds `capacity` bytes, and may be where its shared_input is bound.
 * `data` NULL: the context owns the memory (the default). */
CYTO_API cyto_status cyto_bind_output(cyto_context *context, int32_t index, void *data, uint64_t capacity,
                                      cyto_error *error);

/* From now on the context keeps all outputs whose port has a grown_input, in memory of its own with room for `room` elements
 * along grown_axis, and for more when that is full: twice as many, what is there being copied. The first run starts with
 * what is bound to these inputs (with no rows, dims of 0 and data NULL) and copies it. Every run then continues what the
 * one before left, until other data is bound to the input. A run that fails leaves it as it was. cyto_output() makes a
 * dense copy of a kept output when it is asked for one. room 0: no longer; the inputs must be bound again.
 * CYTO_INVALID_ARGUMENT: the model has no such output, or one is bound. */
CYTO_API cyto_status cyto_context_keep(cyto_context *context, int64_t room, cyto_error *error);
/* The next run continues the first `rows` of what is kept: 0 starts a new sequence, a few less drop tokens.
 * CYTO_INVALID_ARGUMENT: nothing is kept, or there are fewer. */
CYTO_API cyto_status cyto_context_rewind(cyto_context *context, int64_t rows, cyto_error *error);

/* Checks the bound shapes against each other, computes those of the outputs and gets all memory, so that cyto_run()
 * only computes. Optional: cyto_run() does it when input shapes changed. Afterwards cyto_output() tells the shapes. */
CYTO_API cyto_status cyto_context_prepare(cyto_context *context, cyto_error *error);
/* Computes the outputs from what is bound at the moment. Every input that is not optional must be bound
 * (CYTO_INVALID_ARGUMENT). Returns when the outputs are there, but for cyto_options.stream.
 *
 * While the application captures that stream into a CUDA graph, nothing is computed: the kernels become part of the
 * graph. For that all tensors lie on the device, cyto_context_prepare() was called for these sizes before, and no step
 * of the model depends on data; else the run is refused (CYTO_RUNTIME_FAILURE), and the capture is as good as before. A
 * run before it lets the model choose between its kernels and cuDNN's. The graph uses memory of the context: it must not
 * be launched after that is destroyed, nor at the same time as other runs of it. */
CYTO_API cyto_status cyto_run(cyto_context *context, cyto_error *error);

/* An output after cyto_run(); those that are not dynamic also after cyto_context_prepare(), when their data is not yet
 * written. CYTO_NOT_READY before. */
CYTO_API cyto_status cyto_output(cyto_context *context, int32_t index, cyto_tensor *out_tensor, cyto_error *error);

/* An output of any kind after cyto_run(). */
CYTO_API cyto_status cyto_output_value(cyto_context *context, int32_t index, cyto_value *out_value, cyto_error *error);

/* What a context needs, in bytes. */
typedef struct cyto_memory {
  uint64_t weights; /* once per model, mapped from its file */
  uint64_t arena;   /* intermediate tensors and scratch; without those whose size depends on data */
  uint64_t outputs; /* outputs that are not dynamic, when owned by the context */
  uint64_t context; /* the context's own tables */
} cyto_memory;

/* input_dims[i] has the dims of input i; NULL where all are fixed or the input is optional; input_dims itself may be
 * NULL. */
CYTO_API cyto_status cyto_memory_need(cyto_model *model, const cyto_options *options, const int64_t *const *input_dims,
                                      cyto_memory *out_memory, cyto_error *error);

/* What a context holds at the moment. */
typedef struct cyto_memory_use {
  const char *name;      /* "weights", "arena", "outputs", ..; lives as long as the model */
  uint64_t in_use, peak; /* bytes: that its last sizes need, and that were got for the largest so far */
} cyto_memory_use;

/* Fills `uses`, which has room for `room` rows (CYTO_MEMORY_USES are enough), and returns how many rows there are. The last
 * row, "all of the context", is what its allocator gave; weights belong to the model and are no part of it, nor is the
 * memory of a device. Between runs. */
#define CYTO_MEMORY_USES 16
CYTO_API int32_t cyto_memory_snapshot(const cyto_context *context, cyto_memory_use *uses, int32_t room);

/* One call for a linked model, which the generated <name>_run() makes. inputs[i] and outputs[i] as for the bind
 * functions (outputs large enough: their sizes are not checked; NULL: owned by the context); where a port is no tensor,
 * they are a const cyto_value * and a cyto_value *, which needs a cache. `symbols` has the values of the input symbols
 * in order, NULL when every input shape is fixed. *cache keeps the context for the next call: NULL before the first
 * one, cyto_context_destroy() it after the last; with cache NULL a context is made and destroyed in every call. */
CYTO_API cyto_status cyto_run_simple(const cyrt_model *linked, cyto_context **cache, const void *const *inputs,
                                     const int64_t *symbols, void *const *outputs, cyto_error *error);

/* The <name>_options of generated headers: those of cyto_options of the same names. */
typedef struct cyto_simple_options {
  int32_t threads, device;
} cyto_simple_options;

/* Makes the *cache, which must be NULL, of the first cyto_run_simple(), as the generated <name>_create() does. options
 * NULL: the default. */
CYTO_API cyto_status cyto_create_simple(const cyrt_model *linked, cyto_context **cache,
                                        const cyto_simple_options *options, cyto_error *error);

/* ---- measured settings (tuned.c): of `cyto-tune model.so` ---- */

#define CYTO_TUNED_VERSION 1
typedef struct cyto_tuned {
  int32_t threads;   /* of each context: cyto_options.threads */
  int32_t contexts;  /* that run side by side, each by a thread of its own */
  int64_t batch;     /* size of the dim `symbol` for each run; 0: the model fixes it */
  int32_t cpus;      /* cyto_cpu_count() where it was measured: with another number of them, measure again */
  char symbol[64];   /* "batch"; "": the model fixes it */
} cyto_tuned;

/* Reads what cyto-tune chose. model: refuses a file of a model of another name or target; NULL: any will do.
 * CYTO_NOT_FOUND: there is no such file; CYTO_INVALID_ARGUMENT: it is damaged, of another version or model, or nothing that
 * was measured was within the limits. *out_tuned is zeros then. */
CYTO_API cyto_status cyto_tuned_read(const char *path, const cyto_model *model, cyto_tuned *out_tuned, cyto_error *error);

/* ---- recordings (trace/): of models compiled by cytoc --profile ---- */

/* From now on runs of the model, in all of its contexts, are recorded: when each step began and ended, on which thread or
 * stream. What was recorded before is given back. events: how many of these are kept (64 bytes each); 0: a million. -1:
 * none, only what cyto_trace_step() tells. A model that is not being recorded runs as fast as without --profile. Runs on a
 * device are launched step by step meanwhile. CYTO_INVALID_ARGUMENT: the model was compiled without --profile, or is being
 * recorded. */
CYTO_API cyto_status cyto_trace_start(cyto_model *model, int64_t events, cyto_error *error);
/* Waits until runs that are being recorded are over: not to be called by what runs in them. */
CYTO_API cyto_status cyto_trace_stop(cyto_model *model, cyto_error *error);
/* Writes what was recorded up to cyto_trace_stop() as a file of Chrome's trace format, which ui.perfetto.dev and
 * chrome://tracing show: a lane for each thread and stream, counters of the arena's memory in use. Of a context, the first
 * run is named so, which is cold. Nothing is left of a file that cannot be written. */
CYTO_API cyto_status cyto_trace_write(cyto_model *model, const char *path, cyto_error *error);

/* A step of the program and the sums of what was recorded of it: a kernel, or an operator of the runtime. */
typedef struct cyto_trace_sums {
  const char *node, *ops, *algorithm, *kernel; /* node: the first ONNX node in it, or "" */
  double flops, bytes;     /* that it computes and moves at least, */
  double floor_ns;         /* .. and the shortest time of that on one core, or on the device; 0: not known */
  const char *assumed;     /* the sizes that these three are for: "batch=1, seq=64"; "": any */
  int64_t position;        /* of the step in the program, as cytoc --explain=json tells it */
  int32_t other_sizes;     /* not 0: has run with others */
  int64_t runs, ns;        /* without those of each context's first run, */
  int64_t first_runs, first_ns; /* .. and these, which are cold */
} cyto_trace_sums;

CYTO_API int64_t cyto_trace_step_count(const cyto_model *model); /* in the order of the program; 0: no --profile */
/* After cyto_trace_stop(). CYTO_INDEX_OUT_OF_RANGE leaves *out_sums alone. */
CYTO_API cyto_status cyto_trace_step(const cyto_model *model, int64_t index, cyto_trace_sums *out_sums);

#ifdef __cplusplus
}
#endif
#endif
