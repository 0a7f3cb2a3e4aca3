/* SPDX-License-Identifier: Apache-2.0 */
/* mock_cudnn.h - what a test sets and reads in the mock cuDNN. */
#ifndef MOCK_CUDNN_H
#define MOCK_CUDNN_H

#include <stddef.h>

enum { MOCK_ENGINES = 5 };

typedef struct mock_cudnn_state {
  size_t version, cudart; /* 91900, 13000 */
  int create_code;        /* what cudnnCreate() returns, */
  int graph_code;         /* .. finishing a graph, */
  int plan_code;          /* .. finishing any plan, */
  int execute_code;       /* .. running one */
  double engine_us[MOCK_ENGINES];
  double host_us;   /* that a call costs a stream which is not captured */
  int not_recorded; /* 1 + an engine that fails while its stream is captured */
  size_t workspace; /* of each plan */
  int wrong;        /* an engine whose results are; -1: none is */
  /* counted */
  int descriptors, handles;             /* alive */
  int graphs, plans, ran[MOCK_ENGINES]; /* since the start */
  char fault[300];                      /* what was wrong with the last call that failed */
} mock_cudnn_state;

mock_cudnn_state *mock_cudnn(void);

#endif
