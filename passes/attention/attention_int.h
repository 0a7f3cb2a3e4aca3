/* SPDX-License-Identifier: Apache-2.0 */
/* attention_int.h - what attention.c and attention_walk.c share: what is known of an attention while it is being matched.
 */
#ifndef CY_ATTENTION_INT_H
#define CY_ATTENTION_INT_H

#include "passes/pass_int.h"

enum { CY_ATTENTION_BIASES = 4 }; /* at most; and as many masks */

/* Something of the scores, valid in the shape that they had there. */
typedef struct cy_attention_addend {
  cy_val v;
  cy_type view;
  double factor;
  double low; /* of a bias that is this where v, a mask, is false (factor < 0: true), else 0; 0: v holds numbers */
} cy_attention_addend;

typedef struct cy_attention_match {
  cy_rewrite *rw;
  cy_graph *g;
  const cy_node_info *scores; /* q * k^T */
  cy_attention_addend bias[CY_ATTENTION_BIASES];
  int nbias;
  cy_attention_addend mask[CY_ATTENTION_BIASES]; /* factor: 1 where true means seen, -1 where it means hidden */
  int nmask;
  cy_attention_addend sink; /* the score of a key that has no value, beside the others; v 0: none */
  /* Factors of heads or rows, one for all keys; v 0: none. What the walk finds from there on is inside. */
  cy_attention_addend rows;
  double fill;   /* of masked scores */
  double floor;  /* what scores are at least; 0: anything */
  double factor; /* of the scores, outside of where the walk is */
  double softcap;
} cy_attention_match;

/* ---- attention_walk.c ---- */
/* Follows `scores`, what softmax reads, to the product of q and k: sets m->scores, what is added, masked and so on in
 * between, and the factors. False: something else lies between, and m holds nothing of use. */
bool cy_attention_walk(cy_attention_match *m, cy_val scores);
/* Does a reshape from a to b leave rows and keys alone? Numbers of keys may be written differently: where everything
 * else agrees, so must they. */
bool cy_attention_same_rows(cy_graph *g, const cy_type *a, const cy_type *b);
/* Something so low that no score changes a sum with it: rounding takes the score away. */
static const double cy_attention_lowest = -1e30;
/* A constant of one element. */
static inline bool cy_attention_number(cy_graph *g, cy_val v, double *out) {
  return cy_value_is_const(g, v) && cy_type_count(g, cy_type_of(g, v)) == 1 && cy_value_is_splat(g, v, out);
}

/* ---- attention_windows.c ---- */
/* v is s but for windows in which something was added, and nobody else reads s: s, and *out_bias is what was added, 0
 * around the windows. Else 0. */
cy_val cy_attention_windows(cy_rewrite *rw, cy_val v, cy_val *out_bias);

/* ---- attention_masks.c ---- */
#define CY_ATTENTION_HIDDEN (-1e9) /* is added to scores that shall not count; no score is that large */
cy_val cy_attention_masked(cy_rewrite *rw, const cy_node_info *softmax); /* a rule: products become a select */
bool cy_attention_causal_past(cy_graph *g, cy_val x, cy_dim *out_past);  /* a triangle: the keys before row 0 */
/* The constant that is true where `numbers`, of f32, are `one`. */
cy_val cy_attention_seen_at(cy_graph *g, const cy_value *numbers, float one);

#endif
