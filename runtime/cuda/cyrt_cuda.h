/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cyrt_cuda.h - what the files of the CUDA runtime share: the driver's functions, a model on a device, a context's
 * state.
 *
 * Linked into a model library only when the model is compiled for CUDA (cyrt_model.device refers to cuda.c). Nothing is
 * global: the driver's table and everything per device hang on the loaded model, the rest on the context. The primary
 * context of the device is current while one of our functions runs, and the caller's is current again afterwards.
 */
#ifndef CYRT_CUDA_H
#define CYRT_CUDA_H

#include "runtime/cyrt.h"
#include "runtime/cyto.h"

typedef uint64_t cuda_ptr; /* CUdeviceptr */
typedef int32_t cuda_code; /* CUresult */

/* name in the driver (versions are part of it: bare names are older interfaces), member, parameters */
#define CUDA_FUNCTIONS(X)                                                                                              \
  X(cuInit, init, (uint32_t flags))                                                                                    \
  X(cuDriverGetVersion, driver_version, (int32_t * version))                                                           \
  X(cuGetErrorName, error_name, (cuda_code code, const char **text))                                                   \
  X(cuDeviceGetCount, device_count, (int32_t * count))                                                                 \
  X(cuDeviceGet, device_get, (int32_t * device, int32_t number))                                                       \
  X(cuDeviceGetName, device_name, (char *name, int32_t length, int32_t device))                                        \
  X(cuDeviceGetAttribute, device_attribute, (int32_t * value, int32_t attribute, int32_t device))                      \
  X(cuDevicePrimaryCtxRetain, context_retain, (void **context, int32_t device))                                        \
  X(cuDevicePrimaryCtxRelease_v2, context_release, (int32_t device))                                                   \
  X(cuCtxPushCurrent_v2, context_push, (void *context))                                                                \
  X(cuCtxGetCurrent, context_current, (void **context))                                                                \
  X(cuCtxPopCurrent_v2, context_pop, (void **context))                                                                 \
  X(cuModuleLoadDataEx, module_load,                                                                                   \
    (void **module, const void *image, uint32_t n, const int32_t *options, void **values))                             \
  X(cuModuleUnload, module_unload, (void *module))                                                                     \
  X(cuModuleGetFunction, module_function, (void **function, void *module, const char *name))                           \
  X(cuFuncSetAttribute, function_attribute, (void *function, int32_t attribute, int32_t value))                        \
  X(cuMemAlloc_v2, mem_alloc, (cuda_ptr * ptr, size_t bytes))                                                          \
  X(cuMemFree_v2, mem_free, (cuda_ptr ptr))                                                                            \
  X(cuMemAllocAsync, pool_alloc, (cuda_ptr * ptr, size_t bytes, void *stream))                                         \
  X(cuMemFreeAsync, pool_free, (cuda_ptr ptr, void *stream))                                                           \
  X(cuMemGetInfo_v2, mem_info, (size_t * free, size_t * total))                                                        \
  X(cuMemHostAlloc, host_alloc, (void **ptr, size_t bytes, uint32_t flags))                                            \
  X(cuMemFreeHost, host_free, (void *ptr))                                                                             \
  X(cuMemcpyHtoDAsync_v2, copy_in_async, (cuda_ptr to, const void *from, size_t bytes, void *stream))                  \
  X(cuMemcpyDtoHAsync_v2, copy_out_async, (void *to, cuda_ptr from, size_t bytes, void *stream))                       \
  X(cuMemsetD8Async, fill_async, (cuda_ptr to, uint8_t value, size_t bytes, void *stream))                             \
  X(cuMemcpy2DAsync_v2, copy_2d_async, (const void *copy, void *stream))                                               \
  X(cuPointerGetAttribute, pointer_attribute, (void *value, int32_t attribute, cuda_ptr ptr))                          \
  X(cuStreamCreate, stream_create, (void **stream, uint32_t flags))                                                    \
  X(cuStreamDestroy_v2, stream_destroy, (void *stream))                                                                \
  X(cuStreamSynchronize, stream_wait, (void *stream))                                                                  \
  X(cuStreamBeginCapture_v2, capture_begin, (void *stream, int32_t mode))                                              \
  X(cuThreadExchangeStreamCaptureMode, capture_mode, (int32_t * mode))                                                 \
  X(cuStreamIsCapturing, capture_status, (void *stream, int32_t *status))                                              \
  X(cuStreamEndCapture, capture_end, (void *stream, void **graph))                                                     \
  X(cuGraphInstantiateWithFlags, graph_instantiate, (void **executable, void *graph, uint64_t flags))                  \
  X(cuGraphLaunch, graph_launch, (void *executable, void *stream))                                                     \
  X(cuEventCreate, event_create, (void **event, uint32_t flags))                                                       \
  X(cuEventRecord, event_record, (void *event, void *stream))                                                          \
  X(cuStreamWaitEvent, stream_wait_event, (void *stream, void *event, uint32_t flags))                                 \
  X(cuEventSynchronize, event_wait, (void *event))                                                                     \
  X(cuEventElapsedTime, event_elapsed, (float *ms, void *from, void *to))                                              \
  X(cuEventDestroy_v2, event_destroy, (void *event))                                                                   \
  X(cuGraphDestroy, graph_destroy, (void *graph))                                                                      \
  X(cuGraphExecDestroy, graph_exec_destroy, (void *executable))                                                        \
  X(cuTensorMapEncodeTiled, tensor_map,                                                                                \
    (void *map, int32_t type, uint32_t rank, void *address, const uint64_t *extents, const uint64_t *strides,          \
     const uint32_t *box, const uint32_t *steps, int32_t interleave, int32_t swizzle, int32_t promotion,               \
     int32_t outside))                                                                                                 \
  X(cuLaunchKernelEx, launch_ex, (const void *config, void *function, void **params, void **extra))                    \
  X(cuLaunchKernel, launch,                                                                                            \
    (void *function, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz, uint32_t shared,    \
     void *stream, void **params, void **extra))

/* CUlaunchConfig and a CUlaunchAttribute of the driver */
typedef struct cuda_launch_attribute {
  int32_t id, pad, value, rest[15];
} cuda_launch_attribute;
typedef struct cuda_launch_config {
  uint32_t grid[3], block[3], shared;
  void *stream;
  const cuda_launch_attribute *attributes;
  uint32_t n_attributes;
} cuda_launch_config;
_Static_assert(sizeof(cuda_launch_attribute) == 72 && sizeof(cuda_launch_config) == 56, "as the driver has them");

typedef struct cuda_driver {
  void *library;
#define X(symbol, member, params) cuda_code(*member) params;
  CUDA_FUNCTIONS(X)
#undef X
} cuda_driver;

enum {
  CUDA_OUT_OF_MEMORY = 2,
  CUDA_STREAM_NON_BLOCKING = 1,
  CUDA_EVENT_NO_TIMING = 2,
  CUDA_CAPTURE_THREAD_LOCAL = 1,
  CUDA_CAPTURE_RELAXED = 2
};

/* ---- cuda_driver.c ---- */

/* Opens the driver's library and initialises it; `model` is for messages. */
cyto_status cyrt_cuda_driver_open(cuda_driver *driver, const cyrt_model *model, cyto_error *error);
void cyrt_cuda_driver_close(cuda_driver *driver);
/* Fills `error` for a driver's code that `call` returned; CYTO_OK when the code is 0. */
cyto_status cyrt_cuda_check(const cuda_driver *driver, cuda_code code, const char *call, cyto_error *error);
/* Memory of the device; `what` is for the message when there is too little. */
cyto_status cyrt_cuda_get(const cuda_driver *driver, cuda_ptr *out_ptr, uint64_t bytes, const char *what,
                          cyto_error *error);
/* The same of pinned memory of the host. */
cyto_status cyrt_cuda_get_pinned(const cuda_driver *driver, void **out_ptr, uint64_t bytes, const char *what,
                                 cyto_error *error);

/* ---- cuda_images.c ---- */

enum { CUDA_IMAGE_NAME = 40 };
struct cuda_device;
void cyrt_cuda_image_name(const cyrt_cuda_image *image, char out[CUDA_IMAGE_NAME]); /* "sm_90a" */
/* The image that fits the device best; an error that says what there is when none does. */
cyto_status cyrt_cuda_image_choose(const cuda_driver *driver, const struct cuda_device *device,
                                   const cyrt_cuda_images *images, const cyrt_cuda_image **out, cyto_error *error);
/* Unpacks the image that fits best and has the driver load it; one that the driver refuses is followed by the next best,
 * PTX last. An error has what was said of each. */
cyto_status cyrt_cuda_image_load(const cuda_driver *driver, const struct cuda_device *device,
                                 const cyrt_cuda_images *images, const cyrt_cuda_image **out, void **out_module,
                                 cyto_error *error);
/* Unpacks an LZ4 block; how many bytes that gave, UINT64_MAX when it is none or is larger than `capacity`. */
uint64_t cyrt_cuda_unpack(const uint8_t *packed, uint64_t packed_bytes, uint8_t *out, uint64_t capacity);
uint32_t cyrt_cuda_capability(const cuda_driver *driver, int32_t handle); /* 89 */

/* ---- cuda.c ---- */

enum { ATTRIBUTE_MULTIPROCESSORS = 16, CUDA_PIECE_BITS = 21, CUDA_SEEN = 256 };
/* Programmatic dependent launch: devices that have it, drivers that keep it in graphs (CUDA 12.3). */
enum { PROGRAMMATIC_ARCH = 90, PROGRAMMATIC_DRIVER = 12030 };
/* A model on one device: kernels and weights. Lives until the model is unloaded. */
typedef struct cuda_device {
  struct cuda_device *next;
  struct cuda_choices *choices; /* what timing said; NULL: no library is in use */
  int32_t number, handle;
  uint32_t capability; /* 89 */
  int32_t multiprocessors;
  int32_t programmatic;           /* kernels may begin before those in front of them have ended, in recordings, too */
  void *context;                  /* the primary one */
  void **modules;                 /* [n_kernels]; as many as there are distinct images */
  const cyrt_cuda_image **images; /* [n_kernels] in which each was found */
  uint32_t n_modules;
  void **functions;               /* [n_kernels] */
  uint32_t *shared_bytes;         /* [n_kernels] dynamic shared memory of a block */
  cuda_ptr weights;               /* 0: there are none, or */
  struct cuda_streamed *streamed; /* .. they stay with the host (cuda_weights.c) */
} cuda_device;

/* What all contexts of a loaded model use: cyto_model.device_shared. */
typedef struct cuda_shared {
  cuda_driver driver;
  const cyrt_model *model;
  cuda_device *devices;
  struct cudnn *cudnn; /* libraries that kernels are offered to; NULL: not in use, */
  struct cublaslt *cublaslt;
  char why_not[CYRT_CUDA_LIBRARIES][400]; /* .. and why */
  void *nvtx;          /* libnvToolsExt, or NULL; and what it has for libraries compiled with --profile */
  int32_t (*nvtx_push)(const char *name);
  int32_t (*nvtx_pop)(void);
} cuda_shared;

typedef struct cuda_block { /* memory that only grows */
  cuda_ptr ptr;
  uint64_t bytes;
} cuda_block;

typedef struct cuda_entry cuda_entry;

typedef struct cuda_held { /* of the device, until it is given back */
  struct cuda_held *next;
  cuda_ptr ptr;
  uint64_t bytes;
} cuda_held;

/* Where a piece of the address space lies, as the driver said. One answer serves all tensors in the piece: drivers map memory
 * of devices in pieces of 2 MiB, and a piece is of one device or of the host. */
typedef struct cuda_seen {
  uintptr_t piece; /* its number; 0: none */
  uint64_t asked;  /* the answer is of this generation, see cuda_state.asked */
  int32_t on_device;
  int32_t checked; /* it is of the context's own device */
} cuda_seen;

/* Runs with equal sizes and pointers: the second is recorded, later ones replay it. */
#define CUDA_NOT_STAGED UINT64_MAX
enum {
  CUDA_MAX_FAILED = 3,
  CUDA_RECORDINGS = 16,    /* the one that was not used for longest gives way */
  CUDA_MAX_RECORDED = 8192 /* launches: a graph of more takes long to make, and megabytes */
};
typedef struct cuda_recording {
  uint64_t *key;              /* what its launches rest on, */
  int32_t seen;               /* runs with it; 0: not in use */
  int32_t eager;              /* it would have too many launches, or was tried in vain */
  void *graph;                /* CUgraphExec, or NULL */
  struct cuda_served *served; /* of cuda_steps.c: the graph serves a range of lengths; else NULL */
  uint64_t last;              /* number of the last run */
} cuda_recording;

/* A context's state. `head` stands first: for generated code this is the frame's context. */
typedef struct cuda_state {
  cyrt_context_head head;
  cuda_shared *shared;
  cuda_device *device;
  const cyrt_model *model;
  const cyrt_cuda_model *code;
  cyrt_frame frame;         /* what generated code sees: pointers of the device */
  cyrt_frame *host;         /* the context's frame, while running; */
  const cyrt_frame *layout; /* .. that, or as it is for the end of a range of lengths: what memory is laid out for, */
  const cyrt_frame *sized;  /* .. and copies of tensors are made for */
  void *stream;             /* that runs use: the caller's, or */
  void *own_stream;         /* .. our own, which waits for no other and on which runs are recorded */
  cuda_entry *entry;        /* of the run, while there is one */
  int32_t device_memory;
  cuda_block arena, io; /* io: inputs and outputs, one after the other */
  cuda_block checks;    /* of cuda_checks.c: what kernels find, */
  int64_t *found;       /* .. where the host looks (pinned, and as many zeros behind it); NULL: there are none */
  uint8_t *staging;     /* pinned, laid out like io */
  uint64_t staging_bytes;
  uint64_t *io_offset; /* [n_inputs + n_outputs]; CUDA_NOT_STAGED: used where the caller has it */
  const void **inputs; /* frame.inputs */
  uint8_t *grows;      /* [n_inputs + n_outputs] is it an output that continues an input, or that input? */
  cuda_block *outputs; /* [n_outputs] of data-dependent size */
  cuda_recording recordings[CUDA_RECORDINGS];
  uint64_t *keys; /* of the recordings, and the next one to be looked for */
  uint32_t key_words;
  uint64_t runs, launches;
  uint32_t failed_recordings; /* from CUDA_MAX_FAILED on none is tried any more */
  char why_eager[300];        /* what the driver said of the last one */
  int32_t behind_kernel;      /* what the stream was given last in this run is a kernel of ours */
  int32_t recording;          /* launches are being recorded: by us, or */
  int32_t captured;           /* .. by the application, as the last call found the stream */
  int32_t lent;               /* a graph of the application's uses the context's memory */
  struct cuda_steps *steps;   /* of cuda_steps.c; NULL: the model has no lengths */
  cuda_seen seen[CUDA_SEEN];  /* by their numbers modulo CUDA_SEEN */
  uint64_t asked;  /* generation of the answers that hold: from 1; with device_memory a new one for each run */
  cuda_held *held; /* all that the context has on the device */
  cyto_device_allocator allocator; /* .. by this one, */
  int32_t pooled;                  /* .. of the device's pool, */
  int32_t pool_missing;            /* .. or there is none, though it was asked for */
  struct cuda_window *window;      /* of cuda_weights.c; NULL: weights are on the device */
  struct cuda_plans *plans;        /* of cuda_choose.c; NULL: no library is in use */
  struct cuda_timeline *timeline;  /* of cuda_trace.c; NULL: compiled without --profile */
  int32_t stepwise;                /* this run is launched step by step, as somebody watches */
  uint64_t moved_in, moved_out;    /* bytes copied to the device and back, since a recorded run began */
} cuda_state;

static inline cuda_state *cuda_state_of(cyrt_frame *frame) { return (cuda_state *)frame->context; }

/* Of a launch that wants so many blocks: no more than there are pieces of scratch for. */
static inline int64_t cyrt_cuda_blocks(const cyrt_frame *frame, const cyrt_cuda_kernel *k, int64_t wanted) {
  return k->stripes && wanted > frame->workers / k->stripes ? frame->workers / k->stripes : wanted;
}

/* ---- cuda_record.c ---- */
/* Makes the device's context current, and the caller's again. Between them, and once it is relaxed, this thread may allocate,
 * load and wait though another one captures a stream in global mode (PyTorch's default): that capture is not spoilt by it. */
struct cuda_entry {
  int32_t pushed; /* the context was not current before */
  int32_t relaxed;
  int32_t mode; /* of the thread's calls while streams are captured, as it was */
};
cyto_status cyrt_cuda_enter(const cuda_shared *shared, const cuda_device *device, cuda_entry *out, cyto_error *error);
/* The same, not relaxed yet: enough to launch a graph. */
cyto_status cyrt_cuda_enter_calmly(const cuda_shared *shared, const cuda_device *device, cuda_entry *out,
                                   cyto_error *error);
void cyrt_cuda_relax(const cuda_shared *shared, cuda_entry *entry);
void cyrt_cuda_leave(const cuda_shared *shared, const cuda_entry *entry);
int cyrt_cuda_on_device(const cuda_state *state, const void *ptr);
/* Asks whether the application captures the stream at the moment: state->captured. */
cyto_status cyrt_cuda_find_capture(cuda_state *state, cyto_error *error);
/* What a graph cannot have is refused before the driver is asked for it: that would spoil the capture. */
cyto_status cyrt_cuda_refuse_capture(const cuda_state *state, const char *why, cyto_error *error);
/* A graph of what `work` gives to the context's own stream. */
cyto_status cyrt_cuda_record(cuda_state *state, int32_t (*work)(void *data), void *data, void **out_executable);

/* ---- cuda_memory.c: memory of a context on the device ---- */

enum { CYRT_CUDA_ALIGN = 256 };
void cyrt_cuda_memory_open(cuda_state *state, const cyrt_device_request *request);
const char *cyrt_cuda_memory_words(const cuda_state *state); /* for describe() */
cyto_status cyrt_cuda_take(cuda_state *state, cuda_ptr *out_ptr, uint64_t bytes, const char *what, cyto_error *error);
/* Waits until memory that was just taken may be used on any stream: a pool, and allocators such as PyTorch's, give what is
 * free in the order of state->stream alone. */
cyto_status cyrt_cuda_taken(cuda_state *state, cyto_error *error);
/* Back to where it came from; what the stream still does with it is waited for. */
void cyrt_cuda_give(cuda_state *state, cuda_ptr ptr);
void cyrt_cuda_give_all(cuda_state *state);
void cyrt_cuda_forget_held(cuda_state *state); /* the device's context is gone, and all with it */

/* ---- cuda_weights.c: weights on the device, or more than fit there ---- */

cyto_status cyrt_cuda_weights_load(cuda_shared *shared, cuda_device *device, const cyrt_device_request *request,
                                   cyto_error *error);
void cyrt_cuda_weights_release(cuda_shared *shared, cuda_device *device); /* the device's context is current */
void cyrt_cuda_weights_forget(cuda_device *device);                       /* the tables */
/* A context's own part of the device, through which streamed weights go. */
cyto_status cyrt_cuda_window_open(cuda_state *state, cyto_error *error);
void cyrt_cuda_window_close(cuda_state *state);
/* Makes it smaller where the application set no limit, so that there is memory for something else; CYTO_OUT_OF_MEMORY: it
 * cannot be. */
cyto_status cyrt_cuda_window_yield(cuda_state *state, cuda_ptr *out_ptr, uint64_t bytes, const char *what,
                                   cyto_error *error);
/* With streamed weights: before a launch, the slots as the device sees them; behind it. */
cyto_status cyrt_cuda_window_enter(cuda_state *state, const cyrt_slot *slots, uint32_t n, cyrt_slot *out,
                                   cyto_error *error);
cyto_status cyrt_cuda_window_leave(cuda_state *state, cyto_error *error);
void cyrt_cuda_window_begin(cuda_state *state); /* of a run */
/* Where the host has what generated code takes for weights on the device; NULL: they are there, or it is something else. */
const void *cyrt_cuda_window_host(const cuda_state *state, const void *at, uint64_t bytes);
int cyrt_cuda_window_describe(const cuda_state *state, char *text, uint64_t capacity);
void cyrt_cuda_window_memory(const cuda_state *state, cyto_memory_use out[2]); /* of the device, of the host */

/* ---- cuda_block.c ---- */
/* Makes the block hold `bytes`; contents are lost when it grows. */
cyto_status cyrt_cuda_block_grow(cuda_state *state, cuda_block *block, uint64_t bytes, const char *what,
                                 cyto_error *error);
/* Gives its memory back, as soon as nothing uses it. */
void cyrt_cuda_block_free(cuda_state *state, cuda_block *block);

/* ---- cuda_choose.c: only in models with kernels that a library of NVIDIA can stand in for ---- */

/* What the other files call on it. */
struct cyrt_cuda_libraries {
  cyto_status (*find)(cuda_shared *shared, cyto_error *error); /* fills shared->cudnn, cublaslt or why_not */
  void (*release)(cuda_shared *shared);
  cyto_status (*device_open)(cuda_shared *shared, cuda_device *device, cyto_error *error);
  void (*device_close)(cuda_device *device);
  cyto_status (*open)(cuda_state *state, cyto_error *error); /* the device's context is current */
  void (*close)(cuda_state *state);
  uint64_t (*workspace)(const cuda_state *state); /* what a recording rests on */
  void (*settle)(cuda_state *state);              /* all launches of a run were made: choices are kept */
  int (*describe)(const cuda_state *state, char *text, uint64_t capacity);
  cyto_status (*follow)(cuda_state *state, cyto_error *error); /* state->stream is another one now */
};

/* ---- cuda_trace.c: only in libraries compiled with --profile ---- */

struct cyrt_cuda_trace {
  void (*find)(cuda_shared *shared); /* NVTX */
  void (*release)(cuda_shared *shared);
  int (*open)(cuda_state *state); /* 0: no memory */
  void (*close)(cuda_state *state);
  int (*begin)(cuda_state *state); /* of a run: does anyone watch it? */
  int64_t (*copy_begin)(cuda_state *state, int back);
  void (*copy_end)(cuda_state *state, int64_t begun, uint64_t bytes);
  void (*end)(cuda_state *state);
};

/* ---- cuda_checks.c ---- */
cyto_status cyrt_cuda_checks_open(cuda_state *state, cyto_error *error); /* the device's context is current */
void cyrt_cuda_checks_close(cuda_state *state);
int32_t cyrt_cuda_checks_issue(cuda_state *state); /* the copy that ends a run */
/* An error if the run that was waited for found something out of range; */
cyto_status cyrt_cuda_checks_tell(cuda_state *state, cyto_error *error);
/* .. or an earlier one that nobody waited for; */
cyto_status cyrt_cuda_checks_before(cuda_state *state, cyto_error *error);
/* .. or one that ended with `status`, which may be a consequence: the error that counts. */
cyto_status cyrt_cuda_checks_failed(cuda_state *state, cyto_status status, cyto_error *error);

/* ---- cuda_keep.c: cyrt_device.keep_.. ---- */
int32_t cyrt_cuda_keep_get(void *state, uint64_t bytes, void **out, cyto_error *error);
void cyrt_cuda_keep_give(void *state, void *ptr);
int32_t cyrt_cuda_keep_move(void *state, const cyrt_rows *rows, int32_t wait, cyto_error *error);

/* ---- cuda_steps.c ---- */
void cyrt_cuda_forget_recordings(cuda_state *state);
void cyrt_cuda_forget_recording(cuda_state *state, cuda_recording *r);
int cyrt_cuda_steps_open(cuda_state *state); /* 0: no memory */
void cyrt_cuda_steps_close(cuda_state *state);
/* Is the run a step of a sequence? Then the frame as it is at the end of the range of lengths; else NULL. */
const cyrt_frame *cyrt_cuda_steps_layout(cuda_state *state, const cyrt_frame *frame);
void cyrt_cuda_steps_stop(cuda_state *state); /* there is no memory for ends of ranges */
/* Replays the recording for such a step; if there is none that fits, one is made of what `issue` does. `waits`: the host will
 * wait for the run. *out_launched: 1 the run is launched; 0 nothing is, its kernels are to be launched one by one; -1 the
 * same, since the driver did not record it. */
cyto_status cyrt_cuda_steps_run(cuda_state *state, cuda_recording *r, int32_t (*issue)(void *data), int waits,
                                int *out_launched);
int32_t cyrt_cuda_steps_issue(cuda_state *state); /* what such a recording begins with */
/* A launch that is only noted: 1. */
int cyrt_cuda_steps_note(cyrt_frame *frame, uint32_t kernel, const cyrt_slot *slots, int64_t blocks,
                         int64_t then_blocks, const cyrt_cuda_tma *tma);
/* While such a recording is made: 1, and blocks and record of the next launch that lengths reach; else 0. */
int cyrt_cuda_steps_take(cuda_state *state, const cyrt_cuda_kernel *k, int64_t *out_grid, cuda_ptr *out_record);
/* Is the kernel part of such a recording with what its table says? */
int cyrt_cuda_steps_taking(const cuda_state *state, uint32_t kernel);
void cyrt_cuda_served_free(cuda_state *state, struct cuda_served *served);

/* ---- cuda_tensor.c ---- */
/* 0: the device or the tensors do not fit, nothing was launched. */
int cyrt_cuda_launch_tma(cyrt_frame *frame, const cyrt_slot *slots, const cyrt_cuda_tma *tma, int32_t *out_status);

/* ---- cuda_run.c ---- */
enum { CUDA_MAX_SLOTS = 512 };
int32_t cyrt_cuda_prepare(void *state, cyrt_frame *frame);
int32_t cyrt_cuda_run(void *state, cyrt_frame *frame);
int32_t cyrt_cuda_output_alloc(cyrt_frame *frame, uint32_t index, const int64_t *dims, int64_t rank,
                               int64_t elem_bytes);

#endif
