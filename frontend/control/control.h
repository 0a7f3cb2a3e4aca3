/* SPDX-License-Identifier: Apache-2.0 */
/* control.h - what the importers of If (onnx_branch.c) and of loops (onnx_control.c, loop_counters.c) share: types of
 * values whose sizes follow from which branch is taken, and how often a body runs.
 */
#ifndef CY_FRONTEND_CONTROL_H
#define CY_FRONTEND_CONTROL_H

#include "frontend/import_int.h"

typedef struct cy_bound_sym {
  cy_sym sym;
  uint32_t output, axis;
} cy_bound_sym;

/* Symbols made for dims of outputs, to be bound when the node exists. */
typedef struct cy_new_syms {
  cy_bound_sym *list;
  uint32_t n;
} cy_new_syms;

cy_new_syms cy_new_syms_make(cy_importer *im, uint32_t outputs);
cy_dim cy_new_syms_add(cy_importer *im, cy_new_syms *s, uint32_t output, uint32_t axis);
void cy_new_syms_bind(cy_importer *im, const cy_new_syms *s, cy_val first); /* first: output of the node */

/* Does a dim depend on later symbols than `newest`, which are known within a body only? Such dims become 0. */
bool cy_dim_is_inner(cy_importer *im, cy_dim d, cy_sym newest);
void cy_outer_dims(cy_importer *im, cy_type *t, cy_sym newest);

/* A loop whose body an importer builds. `fill` gets what is carried into an iteration and gives: whether another one
 * follows (a bool scalar), what is carried on, what is scanned. It may be called several times, as the body of a Loop
 * is imported. */
typedef struct cy_loop {
  cy_val trips, cond; /* 0: no limit; always true at first */
  uint32_t ncarried, nscans;
  cy_val *initial;
  bool (*fill)(cy_importer *im, void *context, const cy_val *carried, cy_val *results);
  void *context;
} cy_loop;

/* A Loop's body as the model has it. */
typedef struct cy_loop_body {
  const Onnx__GraphProto *graph;
  cy_val cond;             /* 0: always true at first */
  const cy_val *unchanged; /* [carried inputs of the body] the value at all times; 0: it is the next of `initial` */
  const cy_val *initial;
} cy_loop_body;

/* loop_counters.c: carried integers that are start + step * turn. start 0: this is none. */
typedef struct cy_counter {
  cy_dim start;
  int64_t step;
} cy_counter;
cy_dim cy_counter_at(cy_importer *im, const cy_counter *c, cy_dim iteration);
/* Fills in what the body counts ([as b->initial], zeroed). Returns how often the body runs at most by its condition, or
 * exactly; 0 where that does not follow from these. */
cy_dim cy_count_loop(cy_importer *im, const cy_onnx_node *n, const cy_loop_body *b, cy_counter *out_counters,
                     bool *out_exactly);

/* The number of the iteration or the condition, as the body declares it. */
cy_val cy_loop_param(cy_importer *im, const Onnx__ValueInfoProto *input, cy_val v);

/* Out: the carried values at the end, then the scans, stacked. */
bool cy_onnx_loop(cy_importer *im, const cy_onnx_node *n, const cy_loop *loop, cy_val *out);

/* x with dims of 1 in front taken away or added, as broadcasting would; x itself where that does not give the rank. */
cy_val cy_with_rank(cy_importer *im, cy_val x, int rank);

#endif
