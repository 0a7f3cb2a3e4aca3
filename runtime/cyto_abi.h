/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cyto_abi.h - what a compiled model and the runtime agree on.
 *
 * The compiler emits, for every model, one read-only `cyrt_model` and a handful of functions; the runtime (linked into
 * the same library) creates contexts for it and calls those functions. Shared by codegen and runtime, depends on libc only.
 *
 * Symbols.  Every size that is not known at compile time is a polynomial over *symbols*: `batch`, `height`, an anonymous
 *   input dimension, or a number that only running the model yields (how many elements NonZero found). A context holds the
 *   symbols' values; the first n_input_syms of them are read off the shapes of the bound inputs, the others are set by
 *   generated code while it runs.
 * Buffers.  Intermediate tensors live in one arena at offsets computed by plan() (again only when a symbol of the inputs
 *   changed); weights are read-only bytes of the library; tensors of data-dependent size live in dynamic slots
 *   allocated and released by generated code.
 * Strings, sequences, maps, optional values.  Generated code sees numbers (int32_t): a string is the number of a text, a
 *   sequence, map or optional value the number of an object in the context's store (values.h). The numbers hold for one
 *   run. Inputs are entered into the store when a run starts, outputs are read from it when it ends; a model of tensors of
 *   numbers alone has no store.
 * Threads.  A cyrt_frame belongs to one thread at a time. Models are immutable: any number of frames may share one.
 * Errors.  run() and plan() return 0 or a code of cyto_status (cyto.h) after filling frame->error; they never print or
 * exit.
 */
#ifndef CYTO_ABI_H
#define CYTO_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32) || !defined(__GNUC__) /* where what is seen from outside is listed when linking */
#define CYRT_HIDDEN
#else
#define CYRT_HIDDEN __attribute__((visibility("hidden")))
#endif

#define CYTO_ABI_VERSION 11u
#define CYTO_MAX_RANK 12 /* the same as CY_MAX_RANK of the compiler */

/* Element types. The numbers are ONNX's TensorProto.DataType, so that files and libraries agree. */
typedef enum cyto_dtype {
  CYTO_F32 = 1, CYTO_U8 = 2, CYTO_I8 = 3, CYTO_U16 = 4, CYTO_I16 = 5, CYTO_I32 = 6, CYTO_I64 = 7, CYTO_STRING = 8,
  CYTO_BOOL = 9, CYTO_F16 = 10, CYTO_F64 = 11, CYTO_U32 = 12, CYTO_U64 = 13, CYTO_C64 = 14, CYTO_C128 = 15, CYTO_BF16 = 16,
  CYTO_F8E4M3FN = 17, CYTO_F8E4M3FNUZ = 18, CYTO_F8E5M2 = 19, CYTO_F8E5M2FNUZ = 20, CYTO_U4 = 21, CYTO_I4 = 22,
  CYTO_F4E2M1 = 23, CYTO_F8E8M0 = 24, CYTO_U2 = 25, CYTO_I2 = 26,
  CYTO_F6E2M3 = 27, CYTO_F6E3M2 = 28 /* a byte each, the code in its low bits */
} cyto_dtype;

/* What a value is. */
typedef enum cyto_kind { CYTO_TENSOR = 0, CYTO_SEQUENCE = 1, CYTO_OPTIONAL = 2, CYTO_MAP = 3 } cyto_kind;

/* Type of an input or output: seq(map(int64, float32)) is a chain of three. */
typedef struct cyto_type {
  int32_t kind;               /* cyto_kind */
  int32_t dtype;              /* of a tensor's elements, of a map's keys; else 0 */
  const struct cyto_type *of; /* of a sequence's elements, an optional's value, a map's values (a tensor type); else NULL */
} cyto_type;

/* In tables of generated code: the dtype of the numbers of objects. */
#define CYRT_REF 29

/* One argument of a kernel: a pointer, or a size. */
typedef union cyrt_slot {
  void *ptr;
  int64_t size;
} cyrt_slot;

/* A kernel runs tasks [begin, end) of the n it was launched with. `worker` is in [0, workers of the frame): it picks the
 * worker's own stripe of the kernel's scratch. Different workers never run the same task. */
typedef void (*cyrt_kernel)(const cyrt_slot *args, int64_t begin, int64_t end, int64_t worker);

/* A tensor of data-dependent size: generated code sets it by cyrt_slot_alloc(). */
typedef struct cyrt_dynamic {
  void *ptr;
  uint64_t bytes;    /* in use */
  uint64_t capacity; /* allocated */
} cyrt_dynamic;

/* Where an output of data-dependent shape lands is decided while running; all others are bound before. */
typedef struct cyrt_output {
  void *ptr;         /* bound by the caller, or owned by the context */
  uint64_t capacity; /* bytes that ptr may hold */
  int64_t dims[CYTO_MAX_RANK]; /* set by plan(), for dynamic ones by run() */
} cyrt_output;

struct cyrt_pool;   /* the thread pool (threads.c) */
struct cyrt_context; /* the runtime's side of a context (context.h) */
struct cyto_error;  /* cyto.h */
struct cyto_memory_use; /* cyto.h */
struct cyto_device_allocator; /* cyto.h */

/* What generated code sees of a context. */
typedef struct cyrt_frame {
  const void *const *inputs;  /* [n_inputs] element data */
  cyrt_output *outputs;       /* [n_outputs] */
  const uint8_t *weights;     /* the model's weights, 64-byte aligned */
  uint8_t *arena;             /* arena_bytes, 64-byte aligned */
  int64_t *syms;              /* [n_syms] */
  uint64_t *offsets;          /* [n_offsets] arena offsets, and room for finding them; filled by plan() */
  uint64_t arena_bytes;       /* set by plan() */
  cyrt_dynamic *dynamic;      /* [n_dynamic] */
  int64_t workers;            /* how many threads a parallel kernel may use, the calling one included; >= 1 */
  struct cyrt_pool *pool;
  struct cyto_error *error;   /* may be NULL */
  struct cyrt_context *context;
  /* 0, or how many elements outputs that continue inputs have room for along their axes: they lie where these inputs do */
  int64_t room;
  /* Where kernels of a device keep what they find out of range: for each of the model's checks the first such number + 1 (0:
     none), and what it should have been below. NULL: the host program checks */
  int64_t *checks;
  int64_t *sizes; /* see cyrt_profile */
} cyrt_frame;

/* One graph input or output. */
typedef struct cyrt_port {
  const char *name;    /* the true ONNX name, UTF-8 */
  int32_t dtype;       /* cyto_dtype */
  int32_t rank;
  const int64_t *dims; /* [rank]; >= 0: that size; < 0: symbol number -1 - d for inputs; for outputs -1: see plan()/run() */
  uint32_t flags;      /* CYRT_PORT_* */
  const cyto_type *type; /* if it is not a tensor (dtype is CYRT_REF then, rank 0); NULL: a tensor */
  int64_t shares;        /* output: the number, from 1, of the input in whose memory it may be made; 0: there is none */
  const char *const *dim_texts; /* output: [rank]; what sizes that are not fixed are of symbols: "2*seq+1"; "" where that
                                   cannot be told before running. NULL: no text */
  int32_t continues;     /* output: the number, from 1, of the input that it is with more behind it; 0: there is none */
  int32_t axis;          /* .. along this axis */
} cyrt_port;
enum {
  CYRT_PORT_DYNAMIC = 1, /* output whose shape depends on data: known only after run() */
  CYRT_PORT_OPTIONAL = 2 /* input with a default value: pointer may be left unbound (NULL in frame->inputs) */
};

struct cyrt_model;

/* What a context asks of the device that its model's kernels run on. */
typedef struct cyrt_device_request {
  const struct cyrt_model *model;
  const uint8_t *weights;       /* in host memory, for as long as the model is loaded */
  struct cyrt_context *context;
  int32_t device;               /* number of the device */
  int32_t device_memory;        /* what the application binds is memory of the device */
  void *stream;                 /* the application's, or NULL */
  const struct cyto_device_allocator *allocator; /* the application's, or NULL */
  uint64_t weights_limit;       /* most bytes of the device that weights may take; 0: no limit */
  int32_t pool;                 /* memory comes from the device's pool, where it has one */
} cyrt_device_request;

/* Rows of `bytes` bytes to be copied, whose beginnings are so far from each other. */
typedef struct cyrt_rows {
  const void *from;
  void *to;
  uint64_t from_step, to_step, bytes, count;
} cyrt_rows;

/* A kind of device other than this CPU. Its functions are part of the model's library: whoever loads a model calls them
 * through this table and needs nothing of the device itself. A context's frame keeps what is in host memory; run()
 * shows generated code a frame of its own whose pointers are the device's. Codes as those of run() and plan(). */
typedef struct cyrt_device {
  int64_t workers; /* of every frame: pieces of scratch that a kernel may use at once */
  /* *shared is NULL at first: what all contexts of the loaded model use. One thread at a time for a model. */
  int32_t (*open)(const cyrt_device_request *request, void **shared, void **out_state, struct cyto_error *error);
  void (*close)(void *state);
  void (*release)(void *shared);                         /* all contexts are closed */
  int32_t (*prepare)(void *state, cyrt_frame *frame);    /* plan() has run: gets the memory that is needed */
  int32_t (*run)(void *state, cyrt_frame *frame);
  void (*describe)(void *state, char *text,
                   uint64_t capacity); /* in words: device, driver, what is used; capacity > 0 */
  /* What the state holds of the device's memory and of pinned memory, as cyto_memory_snapshot() does. */
  int32_t (*memory)(const void *state, struct cyto_memory_use *uses, int32_t room);
  /* For outputs that a context keeps (context_keep.c): memory of the device, which run() takes inputs and outputs in without
   * copying, and copies between memory of either kind, in the order of the runs; with `wait` they are done afterwards. */
  int32_t (*keep_get)(void *state, uint64_t bytes, void **out, struct cyto_error *error);
  void (*keep_give)(void *state, void *ptr);
  int32_t (*keep_move)(void *state, const cyrt_rows *rows, int32_t wait, struct cyto_error *error);
} cyrt_device;

/* The model's own texts, numbered from 0, which is the empty one. */
typedef struct cyrt_texts {
  uint64_t count;
  const uint64_t *starts; /* [count + 1] in bytes; a zero, which is no part of it, follows every text */
  const char *bytes;
} cyrt_texts;

/* What the ONNX file says about the model, besides (metadata_props). */
typedef struct cyrt_metadata {
  const char *key, *value;
} cyrt_metadata;

/* A compiled model. All tables are read-only. */
typedef struct cyrt_model {
  uint32_t abi;               /* CYTO_ABI_VERSION */
  uint32_t flags;
  const char *name;           /* graph name */
  const char *target;         /* e.g. "x86-64-v3" or a CPU name */
  const char *features;       /* comma separated CPU features the code needs ("avx2,fma"), checked at load */
  const char *compiler;       /* "cytoc 0.2.0", and ", NVRTC 13.0" if kernels are its */
  uint32_t n_inputs, n_outputs;
  const cyrt_port *inputs, *outputs;
  uint32_t n_syms, n_input_syms;
  const char *const *sym_names; /* [n_syms]; "" when anonymous */
  uint32_t n_offsets, n_dynamic;
  const uint8_t *weights;       /* in the library itself, or NULL when in a side file */
  uint64_t weights_bytes;
  const char *weights_file;     /* file name beside the library, or NULL */
  /* Given syms, fills frame->offsets, frame->arena_bytes (scratch of frame->workers included), the dims of all outputs
   * that are not CYRT_PORT_DYNAMIC. */
  int32_t (*plan)(cyrt_frame *frame);
  int32_t (*run)(cyrt_frame *frame);
  const cyrt_device *device;    /* NULL: kernels are code of this library */
  const void *device_data;      /* of the device's kind: cyrt_cuda_model */
  const cyrt_texts *texts;      /* NULL: a model of tensors of numbers alone, whose contexts have no store */
  uint64_t n_metadata;
  const cyrt_metadata *metadata; /* of equal keys the last counts */
  const struct cyrt_profile *profile; /* NULL: compiled without --profile */
} cyrt_model;

/* A dlopen-able library exports exactly this (besides <name>_run and <name>_model of its header). Returns NULL if `version`
 * is not the library's. */
typedef const cyrt_model *(*cyto_model_query_fn)(uint32_t version);
#define CYTO_MODEL_QUERY "cyto_model_query"

/* ---- what generated code calls (hidden in every library; see the .c named) ---- */

/* threads.c: runs tasks [0, n) in pieces of more than half of `grain`; on the calling thread alone when frame->workers
 * is 1 or n <= grain. Returns when all are done. */
void cyrt_parallel_for(cyrt_frame *frame, cyrt_kernel kernel, const cyrt_slot *args, int64_t n, int64_t grain);

/* context.c: makes dynamic slot `slot` hold `bytes` (64-byte aligned, contents undefined). 0 or CYTO_OUT_OF_MEMORY. */
int32_t cyrt_slot_alloc(cyrt_frame *frame, uint32_t slot, int64_t bytes);
/* context.c: makes output `index` of data-dependent shape ready: dims[rank] in elements of `elem_bytes`; reuses a
 * bound buffer when large enough (else CYTO_BUFFER_TOO_SMALL when bound by the caller, or grows the context's own). */
int32_t cyrt_output_alloc(cyrt_frame *frame, uint32_t index, const int64_t *dims, int64_t rank, int64_t elem_bytes);
/* The first and the last step, by number, that use a part of the arena. */
typedef struct cyrt_lifetime {
  int32_t first, last;
} cyrt_lifetime;
/* place.c: n sizes at offsets[0 .. n) become offsets in the arena, which has the returned number of bytes. offsets has
 * room for CYRT_PLAN_WORDS * n; the last n of them become the sizes, none below 0. */
#define CYRT_PLAN_WORDS 7u
uint64_t cyrt_plan_arena(uint64_t *offsets, const cyrt_lifetime *lives, uint32_t n);
/* error.c: fills frame->error with the formatted text ("%s", "%lld" only) and returns code. */
int32_t cyrt_fail(cyrt_frame *frame, int32_t code, const char *format, ...);
/* error.c: what an operator of the runtime returned; where that is an error, "node 'NAME': " comes before its text. */
int32_t cyrt_fail_at(cyrt_frame *frame, int32_t code, const char *node);

/* A tensor as the runtime's operators see it: dense, row-major. */
typedef struct cyrt_tensor {
  void *data;
  int32_t dtype, rank;
  int64_t dims[CYTO_MAX_RANK];
} cyrt_tensor;

/* ops.c: operators that are no loop nests (sorting, searching, suppression, strings). `attrs` are the op's integers
 * and floats in the order its row in runtime/rt_ops.def documents. An op with data-dependent output sizes runs twice:
 * first with out[i].data == NULL, when it sets out[i].dims; then with memory for them. 0 or an error code. */
typedef union cyrt_attr {
  int64_t i;
  double f;
} cyrt_attr;
typedef int32_t (*cyrt_op)(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,
                           const cyrt_attr *attrs);

/* ---- libraries compiled with --profile (trace/) ---- */

/* One step of the program that takes time: a launch, or a call of an operator of the runtime. Read-only. */
typedef struct cyrt_profile_row {
  const char *kernel, *algorithm, *ops, *node;
  double flops, bytes, floor; /* floor: cycles of one core, or nanoseconds of a device; 0: not known */
  const char *assumed;        /* the sizes left open that these are for: "batch=1, seq=64"; "": any */
  int64_t number;             /* in the table of the model's rows */
  int64_t position;           /* of the step: see cyrt_profile_buffer */
} cyrt_profile_row;

/* A part of the arena: alive from the first to the last of these steps, by position. */
typedef struct cyrt_profile_buffer {
  int64_t first, last;
} cyrt_profile_buffer;

typedef struct cyrt_profile {
  int64_t n_rows;
  const cyrt_profile_row *const *rows; /* in the order of the program */
  int64_t n_buffers;
  const cyrt_profile_buffer *buffers;
  int32_t (*sizes)(cyrt_frame *frame); /* writes the bytes of every buffer to frame->sizes */
} cyrt_profile;

/* Generated code calls these around a step. The start is 0 while nothing is recorded; then stop() is not called.
 * other: not 0 where the sizes are not those that the row is for. */
int64_t cyrt_profile_start(cyrt_frame *frame, const cyrt_profile_row *row);
void cyrt_profile_stop(cyrt_frame *frame, const cyrt_profile_row *row, int64_t start, int64_t other);
/* cyrt_parallel_for() for a step that is recorded: what every thread does is, too. */
void cyrt_profile_parallel_for(cyrt_frame *frame, cyrt_kernel kernel, const cyrt_slot *args, int64_t n, int64_t grain,
                               const cyrt_profile_row *row);
/* cuda/cuda_trace.c: the same around a launch on a device; the answer is 0 while neither a recording nor a profiler of
 * NVIDIA's wants to know. */
int64_t cyrt_cuda_profile_start(cyrt_frame *frame, const cyrt_profile_row *row);
void cyrt_cuda_profile_stop(cyrt_frame *frame, const cyrt_profile_row *row, int64_t start, int64_t other);

/* Programs of string_match and string_tokens: instructions of three words, op and two operands; ranges lie behind them,
 * three words each, of which the third is not used. Instruction 0 is the first; what matches leads to CYRT_RX_MATCH. */
enum {
  CYRT_RX_MATCH,
  CYRT_RX_IN,     /* a character in one of `b` ranges (low, high) from word `a` on */
  CYRT_RX_NOT_IN, /* ... in none of them */
  CYRT_RX_SPLIT,  /* goes on at instructions a and b */
  CYRT_RX_JUMP,   /* goes on at a */
  CYRT_RX_ASSERT  /* a: one of the following */
};
enum {
  CYRT_RX_AT_BEGIN,
  CYRT_RX_AT_END,
  CYRT_RX_AT_LINE_BEGIN,
  CYRT_RX_AT_LINE_END,
  CYRT_RX_AT_WORD_EDGE,
  CYRT_RX_NOT_AT_WORD_EDGE
};

/* Attribute letter_case of string_normalize; mode of count_ngrams: ONNX's TF, IDF, TFIDF. */
enum { CYRT_CASE_KEEP, CYRT_CASE_LOWER, CYRT_CASE_UPPER };
enum { CYRT_TERM_COUNT, CYRT_TERM_INVERSE, CYRT_TERM_WEIGHTED };

/* ---- models for CUDA (cuda.c) ---- */

extern const cyrt_device cyrt_cuda_device CYRT_HIDDEN;

/* Device code of some kernels for one architecture, packed as an LZ4 block. */
typedef struct cyrt_cuda_image {
  uint32_t arch;                 /* 89; with 'a' (features of that architecture alone): 90 + CYRT_CUDA_SPECIFIC */
  uint32_t ptx;                  /* 0: cubin, 1: PTX with its final zero */
  uint64_t offset, packed_bytes; /* offset: from the start of the cyrt_cuda_images */
  uint64_t bytes, checksum;      /* unpacked; cyrt_cuda_checksum() of these */
} cyrt_cuda_image;
enum { CYRT_CUDA_SPECIFIC = 1000 };
/* A hash (FNV-1a): begins with CYRT_HASH, takes one number after the other. */
#define CYRT_HASH 14695981039346656037u
static inline uint64_t cyrt_hash_add(uint64_t hash, uint64_t number) { return (hash ^ number) * 1099511628211u; }
static inline uint64_t cyrt_cuda_checksum(const void *data, uint64_t bytes) {
  const uint8_t *p = (const uint8_t *)data;
  uint64_t hash = CYRT_HASH;
  for (uint64_t i = 0; i < bytes; i++)
    hash = cyrt_hash_add(hash, p[i]);
  return hash;
}
typedef struct cyrt_cuda_images {
  uint64_t count;
  cyrt_cuda_image image[1]; /* [count] */
} cyrt_cuda_images;

typedef struct cyrt_cuda_kernel {
  const char *name;
  const cyrt_cuda_images *images; /* several kernels may share them */
  uint32_t slots;                 /* parameters: all of 8 bytes */
  uint32_t threads;               /* of a block */
  uint32_t stripes;               /* pieces of scratch that a block uses; 0: any number of blocks may run */
  uint32_t max_blocks;            /* more than these cannot be launched */
  uint32_t shared_bytes;          /* dynamic shared memory of a block, */
  uint32_t group_shared_bytes;    /* .. in an image of sm_90a; 0: the same */
  uint32_t optional;              /* 1: not all images have it */
  uint32_t then;                  /* the kernel launched behind it with the same parameters; 0: none */
  /* [slots] 1: may change from step to step of a sequence; then one more parameter follows the slots: NULL, or where in the
     device's memory a record lies: how many blocks have work, and for each slot what is to be added. NULL: none changes */
  const uint8_t *varying;
} cyrt_cuda_kernel;

/* A number that kernels compare with its bound. */
typedef struct cyrt_cuda_bound {
  const char *node;
  const char *format; /* of the error: the node as %s, number and bound as %lld */
} cyrt_cuda_bound;

struct cyrt_cuda_libraries;
struct cyrt_cuda_trace;
typedef struct cyrt_cuda_model {
  uint32_t n_kernels;
  uint32_t flags; /* CYRT_CUDA_REPLAY, .. */
  const cyrt_cuda_kernel *kernels;
  const struct cyrt_cuda_libraries *libraries; /* NULL: no kernel may be another library's */
  uint64_t n_checks;
  uint64_t agree;                      /* with libraries: the number of the kernel that compares two results */
  const cyrt_cuda_bound *checks;       /* [n_checks] those of cyrt_frame.checks, in the order of the launches */
  const struct cyrt_cuda_trace *trace; /* NULL: compiled without --profile */
  uint64_t lengths; /* bit i: the i-th symbol of the inputs may change from step to step of a sequence */
  uint64_t n_weights;
  const uint64_t *weights_at;          /* [n_weights] where each of the weights begins, ascending */
} cyrt_cuda_model;
enum { CYRT_CUDA_CUDNN, CYRT_CUDA_CUBLASLT, CYRT_CUDA_LIBRARIES };
enum {
  CYRT_CUDA_REPLAY = 1, /* equal sizes of inputs mean equal launches: a run can be recorded */
  /* shifted left by the number of a library: kernels may be its; there is no context without it */
  CYRT_CUDA_USE = 1 << 8,
  CYRT_CUDA_REQUIRE = 1 << 16
};
extern const struct cyrt_cuda_libraries cyrt_cuda_libraries CYRT_HIDDEN; /* cuda_choose.c */
extern const struct cyrt_cuda_trace cyrt_cuda_trace CYRT_HIDDEN; /* cuda_trace.c */

struct cyrt_cuda_problem; /* cuda/cuda_problem.h */

/* A tensor that a kernel reads by a tensor map: sizes from the contiguous axis outwards. */
enum { CYRT_CUDA_BOX_RANK = 5 };
typedef struct cyrt_cuda_box {
  int64_t slot, dtype, rank; /* slot: of its pointer; a cyto_dtype: halves or 8-bit integers; rank: 2 to 5 */
  int64_t extent[CYRT_CUDA_BOX_RANK];
  int64_t stride[CYRT_CUDA_BOX_RANK - 1]; /* of all axes but the first, in elements */
  int64_t box[CYRT_CUDA_BOX_RANK];        /* elements that one copy brings, */
  int64_t step[CYRT_CUDA_BOX_RANK];       /* .. and how far they are apart */
} cyrt_cuda_box;

/* A kernel that stands beside another for devices with tensor maps; its parameters are the slots and two maps. Its blocks
 * go on to further tiles where there are fewer than this. They run in clusters of `cluster`. */
typedef struct cyrt_cuda_tma {
  int64_t kernel, blocks, cluster;
  cyrt_cuda_box tensor[2];
} cyrt_cuda_tma;

/* Generated code calls these with pointers of the device in slots and tensors. 0 or an error code. then_blocks: of the
 * kernel behind it, which is left out where that is 0. tma, or NULL, is launched instead where the device has it, blocks
 * are wanted and maps can tell how the tensors lie. */
int32_t cyrt_cuda_launch(cyrt_frame *frame, uint32_t kernel, const cyrt_slot *slots, int64_t blocks,
                         int64_t then_blocks, const cyrt_cuda_tma *tma);
/* The same for a kernel that a library of NVIDIA can stand in for: the fastest one. */
int32_t cyrt_cuda_choose_launch(cyrt_frame *frame, uint32_t kernel, const cyrt_slot *slots, int64_t blocks,
                                int64_t then_blocks, const cyrt_cuda_tma *tma, const struct cyrt_cuda_problem *problem);
int32_t cyrt_cuda_fetch(cyrt_frame *frame, const void *at, int64_t bytes, void *out); /* waits until it is computed */
int32_t cyrt_cuda_call(cyrt_frame *frame, cyrt_op op, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out,
                       int32_t n_out, const cyrt_attr *attrs);

#ifdef __cplusplus
}
#endif
#endif
