/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cublaslt_numbers.h - those numbers of cuBLASLt (cublasLt.h, library_types.h) that are used here. They are the same in the
 * versions for CUDA 11, 12 and 13.
 */
#ifndef CUBLASLT_NUMBERS_H
#define CUBLASLT_NUMBERS_H

enum { /* cudaDataType */
       LT_R_32F = 0,
       LT_R_16F = 2,
       LT_R_16BF = 14
};
enum { LT_COMPUTE_32F = 68, LT_COMPUTE_TF32 = 77 }; /* cublasComputeType_t */
enum { LT_OP_N = 0, LT_OP_T = 1 };                  /* cublasOperation_t */
enum {                                              /* cublasLtMatmulDescAttributes_t */
       LT_DESC_TRANSA = 3,
       LT_DESC_TRANSB = 4,
       LT_DESC_EPILOGUE = 7,
       LT_DESC_BIAS_POINTER = 8
};
enum {                       /* cublasLtEpilogue_t */
       LT_EPILOGUE_NONE = 0, /* there is none */
       LT_EPILOGUE_DEFAULT = 1,
       LT_EPILOGUE_RELU = 2,
       LT_EPILOGUE_BIAS = 4, /* beside another */
       LT_EPILOGUE_GELU = 32
};
enum { LT_LAYOUT_BATCHES = 5, LT_LAYOUT_BATCH_STRIDE = 6 }; /* cublasLtMatrixLayoutAttribute_t */
enum {                                                      /* cublasLtMatmulPreferenceAttributes_t */
       LT_PREF_WORKSPACE = 1,
       LT_PREF_REDUCTIONS = 3,
       LT_PREF_ALIGN_A = 5, /* .. of B, C, D follow */
       LT_PREF_ALIGN_D = 8
};
enum { LT_REDUCTION_COMPUTE_TYPE = 2 }; /* cublasLtReductionScheme_t */
enum { LT_NOT_SUPPORTED = 15 };         /* cublasStatus_t */

#endif
