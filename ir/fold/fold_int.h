/* SPDX-License-Identifier: Apache-2.0 */
/* fold_int.h - one small evaluation, shared by fold_small.c (driver, moves) and fold_math.c (element-wise, reductions),
 * which does not call the former. */
#ifndef CY_FOLD_INT_H
#define CY_FOLD_INT_H

#include "ir/ir_int.h"

typedef struct fold_in {
  const cy_value *v;
  int rank;
  int64_t dim[CY_MAX_RANK];
  uint64_t count;
  const cy_dim *elems; /* set when folding symbolically */
} fold_in;

typedef struct fold {
  cy_graph *g;
  const cy_node_info *n;
  cy_dtype dtype; /* of the output */
  int rank;
  int64_t dim[CY_MAX_RANK];
  uint64_t count;
  fold_in *in;
  void *bytes;   /* constant result, or */
  cy_dim *elems; /* symbolic result */
  bool partly;   /* 0 stands for what is not known, in elems here and in those of inputs */
} fold;

void cy_fold_unravel(uint64_t index, int rank, const int64_t *dim, int64_t *out_idx);
/* Index into an input that broadcasts to the output's shape. */
uint64_t cy_fold_broadcast(const fold *f, const fold_in *in, const int64_t *idx);

/* Each fills bytes, or elems when symbolic; false when that cannot be done. */
bool cy_fold_ew(fold *f, bool symbolic);
bool cy_fold_reduce(fold *f, bool symbolic);
bool cy_fold_arg(fold *f);
bool cy_fold_cumulate(fold *f);

typedef struct cy_quotient {
  cy_val part[3]; /* a / b, and the integer beside it or 0 */
  bool minus;     /* which is taken away */
} cy_quotient;
bool cy_fold_quotient(cy_graph *g, cy_val v, cy_quotient *out);

#endif
