/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cyrt_cudnn.h - what the files about cuDNN share: the library's functions (cudnn.c), graphs and plans (cudnn_plan.c)
 * for kinds of problems (cudnn_conv.c, cudnn_attention.c), which make their operations by cudnn_make.c. What the runtime
 * sees of it is cudnn_solver.c. All of them stand in cudnn/.
 */
#ifndef CYRT_CUDNN_H
#define CYRT_CUDNN_H

#include "cuda_problem.h"
#include "cyrt_cuda.h"

/* ---- cudnn.c ---- */

typedef int32_t cudnn_code;     /* cudnnStatus_t */
typedef void *cudnn_descriptor; /* cudnnBackendDescriptor_t */

/* name, member, result, parameters */
#define CUDNN_FUNCTIONS(X)                                                                                             \
  X(cudnnGetVersion, get_version, size_t, (void))                                                                      \
  X(cudnnGetCudartVersion, get_cudart, size_t, (void))                                                                 \
  X(cudnnGetErrorString, error_name, const char *, (cudnn_code code))                                                  \
  X(cudnnGetLastErrorString, last_error, void, (char *text, size_t capacity))                                          \
  X(cudnnCreate, create, cudnn_code, (void **handle))                                                                  \
  X(cudnnDestroy, destroy, cudnn_code, (void *handle))                                                                 \
  X(cudnnSetStream, set_stream, cudnn_code, (void *handle, void *stream))                                              \
  X(cudnnBackendCreateDescriptor, make, cudnn_code, (int32_t type, cudnn_descriptor * out))                            \
  X(cudnnBackendDestroyDescriptor, free, cudnn_code, (cudnn_descriptor d))                                             \
  X(cudnnBackendSetAttribute, set, cudnn_code,                                                                         \
    (cudnn_descriptor d, int32_t attribute, int32_t type, int64_t count, const void *values))                          \
  X(cudnnBackendGetAttribute, get, cudnn_code,                                                                         \
    (cudnn_descriptor d, int32_t attribute, int32_t type, int64_t capacity, int64_t * count, void *values))            \
  X(cudnnBackendFinalize, finish, cudnn_code, (cudnn_descriptor d))                                                    \
  X(cudnnBackendExecute, execute, cudnn_code, (void *handle, cudnn_descriptor plan, cudnn_descriptor pack))

typedef struct cudnn {
  void *library;
  char path[500];
  uint32_t version; /* 91900 */
#define X(symbol, member, result, params) result(*member) params;
  CUDNN_FUNCTIONS(X)
#undef X
} cudnn;

/* Opens libcudnn.so.9 and checks that it fits the driver. *out is NULL with CYTO_OK when there is none, where `where`
 * then says which places were looked at; one that cannot be used is an error. */
cyto_status cyrt_cudnn_find(int32_t driver_version, cudnn **out, char where[400], cyto_error *error);
void cyrt_cudnn_close(cudnn *lib);
/* Fills `error` for a code that `call` returned; CYTO_OK when it is 0. */
cyto_status cyrt_cudnn_check(const cudnn *lib, cudnn_code code, const char *call, cyto_error *error);
static inline int cyrt_cudnn_unsupported(cudnn_code code) { return code / 1000 == 3; }

/* ---- cudnn_plan.c ---- */

/* CANDIDATES: engine configurations that are fit, best first by cuDNN's own guess */
enum { CUDNN_CANDIDATES = 24, CUDNN_DESCRIPTORS = 96, CUDNN_OPERATIONS = 24, CUDNN_VALUES = 6, CUDNN_RANK = 5 };

/* A problem as cuDNN sees it. */
typedef struct cudnn_graph {
  cudnn_descriptor made[CUDNN_DESCRIPTORS]; /* all but the candidates, in the order of their making */
  int32_t n;
  cudnn_descriptor graph;
  cudnn_descriptor candidate[CUDNN_CANDIDATES]; /* engine configurations */
  uint8_t compiles[CUDNN_CANDIDATES];           /* .. whose plan is compiled when it is made, in a second or so */
  int32_t n_candidates;
  int32_t n_values;
  union {
    float f;
    int32_t i;
  } value[CUDNN_VALUES]; /* tensors of one element that are passed by value */
  int64_t unread;        /* bytes of an output that nobody reads */
} cudnn_graph;

/* Fills graph->graph. `handle` may be NULL: then nothing can be done with the graph. A code of cuDNN, and in *out_call
 * which call failed; deinit releases what was made either way. */
cudnn_code cyrt_cudnn_graph_init(const cudnn *lib, void *handle, const cyrt_cuda_problem *problem, cudnn_graph *graph,
                                 const char **out_call);
/* Fills the candidates: those that compute as precisely as our own kernels, and the same at every run. `device`: a
 * finished descriptor of one (CUDNN_DEVICE) that need not be there, or NULL for the handle's. */
cudnn_code cyrt_cudnn_graph_candidates(const cudnn *lib, const cyrt_cuda_problem *problem, cudnn_descriptor device,
                                       cudnn_graph *graph, const char **out_call);
void cyrt_cudnn_graph_deinit(const cudnn *lib, cudnn_graph *graph);

typedef struct cudnn_plan {
  cudnn_descriptor plan;
  int64_t workspace, unread_at; /* bytes; where the output that nobody reads begins in it */
} cudnn_plan;
/* `handle` may be NULL: then it cannot be run. */
cudnn_code cyrt_cudnn_plan_init(const cudnn *lib, void *handle, const cudnn_graph *graph, int32_t candidate,
                                cudnn_plan *plan);
/* Runs it on the handle's stream; pointers[i] is tensor i's first element. */
cudnn_code cyrt_cudnn_plan_run(const cudnn *lib, void *handle, const cudnn_plan *plan, const cudnn_graph *graph,
                               const cyrt_cuda_problem *problem, void *const pointers[CYRT_PROBLEM_TENSORS],
                               void *workspace);
/* What a kind of problem is: a row for each CYRT_PROBLEM_*. */
struct cudnn_maker;
typedef struct cudnn_kind {
  /* Can cuDNN be asked at all? Sizes must be positive and follow from each other. */
  int (*takes)(const cyrt_cuda_problem *problem);
  /* Makes the operations; how many. */
  int (*operations)(struct cudnn_maker *m, const cyrt_cuda_problem *problem, cudnn_descriptor ops[CUDNN_OPERATIONS]);
} cudnn_kind;
extern const cudnn_kind cyrt_cudnn_conv, cyrt_cudnn_product, cyrt_cudnn_attention; /* cudnn_conv.c, cudnn_attention.c */
const cudnn_kind *cyrt_cudnn_kind(const cyrt_cuda_problem *problem);

/* ---- cudnn_make.c ---- */
/* For kinds: descriptors. After a call that failed nothing more is done. */
typedef struct cudnn_maker {
  const cudnn *lib;
  cudnn_graph *graph;
  cudnn_code code;  /* the first that is not 0 */
  const char *call; /* that returned it */
  int64_t next_id;
} cudnn_maker;

/* Ids of tensors: i of the problem has CUDNN_FIRST_ID + i, the value i CUDNN_FIRST_VALUE + i. */
enum { CUDNN_FIRST_ID = 1, CUDNN_FIRST_VALUE = 20, CUDNN_UNREAD_ID = 30, CUDNN_FIRST_VIRTUAL = 100 };
void cyrt_cudnn_note(cudnn_maker *m, cudnn_code code, const char *call); /* the first that is not 0 stays */
cudnn_descriptor cyrt_cudnn_make(cudnn_maker *m, int32_t type);
void cyrt_cudnn_set(cudnn_maker *m, cudnn_descriptor d, int32_t attribute, int32_t type, int64_t count,
                    const void *values);
void cyrt_cudnn_set_int(cudnn_maker *m, cudnn_descriptor d, int32_t attribute, int32_t type, int32_t value);
void cyrt_cudnn_set_descriptor(cudnn_maker *m, cudnn_descriptor d, int32_t attribute, cudnn_descriptor value);
cudnn_descriptor cyrt_cudnn_finish(cudnn_maker *m, cudnn_descriptor d, const char *what);
/* An operation, finished: the descriptor that says how it is done, and its tensors, but for those that are NULL. */
typedef struct cudnn_operand {
  int32_t attribute;
  cudnn_descriptor descriptor;
} cudnn_operand;
cudnn_descriptor cyrt_cudnn_operation(cudnn_maker *m, int32_t type, const cudnn_operand *operands, int n,
                                      const char *what);
/* A tensor of the problem; one of a number type of cuDNN between operations; one of one element, given by value; one of
 * f32 that is written and not read. */
cudnn_descriptor cyrt_cudnn_tensor(cudnn_maker *m, const cyrt_cuda_problem *problem, int which, int64_t rank,
                                   const int64_t *dims, const int64_t *strides);
cudnn_descriptor cyrt_cudnn_virtual(cudnn_maker *m, int64_t rank, const int64_t *dims, const int64_t *strides,
                                    int32_t type);
cudnn_descriptor cyrt_cudnn_float(cudnn_maker *m, int64_t rank, float value);
cudnn_descriptor cyrt_cudnn_int(cudnn_maker *m, int64_t rank, int32_t value);
cudnn_descriptor cyrt_cudnn_unread(cudnn_maker *m, int64_t rank, const int64_t *dims, const int64_t *strides);
int32_t cyrt_cudnn_type(int64_t dtype); /* cuDNN's number of a cyto_dtype */
/* y = mode(x, b, t) */
typedef struct cudnn_pointwise {
  int32_t mode, precision;
  int64_t axis;                /* of CUDNN_GEN_INDEX */
  struct {
    int32_t attribute; /* 0: there is none */
    double value;
  } parameter[2];
  cudnn_descriptor x, b, t, y; /* b, t: NULL where the mode has fewer operands */
} cudnn_pointwise;
cudnn_descriptor cyrt_cudnn_pointwise(cudnn_maker *m, cudnn_pointwise p);

#endif
