/* SPDX-License-Identifier: Apache-2.0 */
/* lower_rnn.h - private to passes/lower_rnn*.c: a recurrent node while its kernels are made.
 *
 * A kernel's task has `rows` elements of the batch, which share what it loads of R. Sums of products with R hold them
 * side by side; all else goes through them in a loop (cy_rnn_open_rows), of which `row`, `batch`, `time` and `live`
 * speak.
 */
#ifndef CY_LOWER_RNN_H
#define CY_LOWER_RNN_H

#include "lower_int.h"

enum { CY_RNN_X, CY_RNN_R, CY_RNN_RB, CY_RNN_H0, CY_RNN_C0, CY_RNN_PEEPHOLE, CY_RNN_LENS, CY_RNN_SCALE, CY_RNN_ZERO };
enum { CY_RNN_MAX_ROWS = 4 };

typedef struct cy_rnn {
  cy_kb b;
  const cy_node_info *n;
  const cy_type *x;
  const char *name;          /* of kernels */
  int cell, gates;
  cy_dim hidden, wide;       /* h, gates * h */
  cy_dtype dtype;
  int rows;                  /* elements of the batch in a task: .. */
  cy_expr first, row, batch; /* .. the first of them; one, 0 .. rows, and its place in the batch */
  cy_expr step, time, live;  /* 0: no step yet; the row's place in its sequence; is that inside? 0: always */
  cy_karg h, c, gate;        /* scratch: [rows, h] both, of a walk only; [rows, gates, gate_part] */
  cy_dim gate_part;          /* units of a gate that a task has */
  bool large;                /* R is worth a launch per step */
  bool steps;                /* kernels per step, which keep the states in [batch, h]: */
  cy_place h_old, h_new, c_old, c_new;
  bool product;              /* one of them is a product, which leaves its results in [batch, gates * h]: */
  cy_dim product_rows;       /* .. of so many elements of the batch */
  cy_place gates_at;
  cy_expr block;             /* else this is the task's block of units */
  cy_dim panel;              /* gates that neighbour each other in `weights`: all, or few */
  cy_place weights;          /* R as [gates * h / panel, h, panel]; of pairs, h / 2 of them */
  bool pairs;                /* R is of integers, two in an i16: */
  int64_t top, shift;        /* the state's largest integer; what was subtracted from R's */
  bool has_zero;             /* R has zero points that are not `shift` */
  cy_karg rounded;           /* [rows, h / 2]: units i and h / 2 + i of the state in an i32 */
  cy_karg step_of, total;    /* [rows]: what 1 of these integers stands for, and the sum of all */
} cy_rnn;

static inline cy_val cy_rnn_input(const cy_rnn *r, uint32_t i) { return i < r->n->nin ? r->n->in[i] : 0; }
/* A GRU whose reset gate multiplies what R made of the state, not the state. */
static inline bool cy_rnn_resets_after(const cy_rnn *r) {
  return cy_attr_get_int(r->n, CY_ATTR_linear_before_reset, 0) != 0;
}

/* ---- lower_rnn_weights.c ---- */
void cy_rnn_place_weights(cy_lowering *l, cy_rnn *r); /* weights, panel, and what is of pairs */

/* ---- lower_rnn_cell.c ---- */
cy_karg cy_rnn_scratch(cy_rnn *r, cy_dtype dtype, cy_dim row); /* of so many elements for every row */
void cy_rnn_add_scratch(cy_rnn *r);                            /* what a step needs but h and c */
void cy_rnn_open_rows(cy_rnn *r);  /* what follows is done for every row of the task .. */
void cy_rnn_close_rows(cy_rnn *r); /* .. until here */
cy_expr cy_rnn_in_state(cy_rnn *r, cy_expr j); /* unit j of the row at hand in h or c of a walk */
void cy_rnn_step(cy_rnn *r);                   /* the states after r->step, and its output */

#endif
