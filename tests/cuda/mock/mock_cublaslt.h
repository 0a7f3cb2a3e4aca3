/* SPDX-License-Identifier: Apache-2.0 */
/* mock_cublaslt.h - what a test sets and reads in the mock cuBLASLt. */
#ifndef MOCK_CUBLASLT_H
#define MOCK_CUBLASLT_H

#include <stddef.h>

enum { MOCK_ALGORITHMS = 5 };

typedef struct mock_cublaslt_state {
  size_t version, cudart; /* 130100, 13000 */
  int create_code;        /* what cublasLtCreate() returns, */
  int heuristic_code;     /* .. looking for algorithms, */
  int matmul_code;        /* .. running one */
  double algorithm_us[MOCK_ALGORITHMS];
  double host_us;   /* that a call costs a stream which is not captured */
  int not_recorded; /* 1 + an algorithm that fails while its stream is captured */
  int wrong;        /* an algorithm whose results are; -1: none is */
  /* counted */
  int descriptors, handles;                           /* alive */
  int asked, ran[MOCK_ALGORITHMS], with_epilogue[64]; /* since the start; by epilogue */
  char fault[300];                                    /* what was wrong with the last call that failed */
} mock_cublaslt_state;

mock_cublaslt_state *mock_cublaslt(void);

#endif
