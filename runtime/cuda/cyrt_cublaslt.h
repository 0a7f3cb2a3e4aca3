/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cyrt_cublaslt.h - cuBLASLt's functions, and how a product is described to it (cublaslt.c). */
#ifndef CYRT_CUBLASLT_H
#define CYRT_CUBLASLT_H

#include "cuda_problem.h"
#include "cyrt_cuda.h"

typedef int32_t cublaslt_code;      /* cublasStatus_t */
typedef struct cublaslt_algorithm { /* cublasLtMatmulHeuristicResult_t */
  uint64_t algorithm[8];
  size_t workspace;
  cublaslt_code state;
  float waves;
  int32_t reserved[4];
} cublaslt_algorithm;

/* name, member, result, parameters */
#define CUBLASLT_FUNCTIONS(X)                                                                                          \
  X(cublasLtGetVersion, get_version, size_t, (void))                                                                   \
  X(cublasLtGetCudartVersion, get_cudart, size_t, (void))                                                              \
  X(cublasLtGetStatusName, error_name, const char *, (cublaslt_code code))                                             \
  X(cublasLtCreate, create, cublaslt_code, (void **handle))                                                            \
  X(cublasLtDestroy, destroy, cublaslt_code, (void *handle))                                                           \
  X(cublasLtMatmulDescCreate, op_make, cublaslt_code, (void **op, int32_t compute, int32_t scale))                     \
  X(cublasLtMatmulDescDestroy, op_free, cublaslt_code, (void *op))                                                     \
  X(cublasLtMatmulDescSetAttribute, op_set, cublaslt_code, (void *op, int32_t what, const void *from, size_t bytes))   \
  X(cublasLtMatrixLayoutCreate, layout_make, cublaslt_code,                                                            \
    (void **layout, int32_t type, uint64_t rows, uint64_t columns, int64_t lead))                                      \
  X(cublasLtMatrixLayoutDestroy, layout_free, cublaslt_code, (void *layout))                                           \
  X(cublasLtMatrixLayoutSetAttribute, layout_set, cublaslt_code,                                                       \
    (void *layout, int32_t what, const void *from, size_t bytes))                                                      \
  X(cublasLtMatmulPreferenceCreate, preference_make, cublaslt_code, (void **preference))                               \
  X(cublasLtMatmulPreferenceDestroy, preference_free, cublaslt_code, (void *preference))                               \
  X(cublasLtMatmulPreferenceSetAttribute, preference_set, cublaslt_code,                                               \
    (void *preference, int32_t what, const void *from, size_t bytes))                                                  \
  X(cublasLtMatmulAlgoGetHeuristic, heuristic, cublaslt_code,                                                          \
    (void *handle, void *op, void *a, void *b, void *c, void *d, void *preference, int32_t wanted,                     \
     cublaslt_algorithm *out, int32_t *out_n))                                                                         \
  X(cublasLtMatmul, matmul, cublaslt_code,                                                                             \
    (void *handle, void *op, const void *alpha, const void *a, void *la, const void *b, void *lb, const void *beta,    \
     const void *c, void *lc, void *d, void *ld, const uint64_t *algorithm, void *workspace, size_t bytes,             \
     void *stream))

typedef struct cublaslt {
  void *library;
  char path[500];
  size_t version; /* 130100 */
#define X(symbol, member, result, params) result(*member) params;
  CUBLASLT_FUNCTIONS(X)
#undef X
} cublaslt;

/* Opens the newest libcublasLt.so that the driver is new enough for, with all functions. NULL: none, and why. */
cublaslt *cyrt_cublaslt_find(int32_t driver_version, char why_not[400]);
void cyrt_cublaslt_close(cublaslt *lib);
/* A handle, with the device's context current; NULL: none, and why. */
void *cyrt_cublaslt_open(const cublaslt *lib, char why_not[300]);

/* D = epilogue(alpha * op(A) op(B) + beta * C), all of them by columns: A is our second factor, and so on. */
enum { CUBLASLT_CANDIDATES = 8, CUBLASLT_A = 0, CUBLASLT_B, CUBLASLT_C, CUBLASLT_D, CUBLASLT_MATRICES };
typedef struct cublaslt_matrix {
  int64_t rows, columns, lead, batch_stride; /* as they lie */
  int32_t type, transposed;
} cublaslt_matrix;
typedef struct cublaslt_product {
  void *op, *layout[CUBLASLT_MATRICES];
  cublaslt_algorithm found[CUBLASLT_CANDIDATES];
} cublaslt_product;

#endif
