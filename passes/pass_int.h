/* SPDX-License-Identifier: Apache-2.0 */
/* pass_int.h - what the files of this folder share: the pass context, the rewrite driver, questions about nodes and
 * constants.
 *
 * A pass is `int cy_pass_NAME(cy_pass *p)`: 0, or -1 after a diagnostic. It takes temporary memory from p->scratch,
 * which is emptied when the pass returns; what shall stay goes into the graph's arena. Every pass counts what it did.
 */
#ifndef CY_PASS_INT_H
#define CY_PASS_INT_H

#include "passes.h"

typedef struct cy_pass {
  cy_graph *g;
  const cy_pass_options *options;
  cy_arena *scratch;
  const char *name;
  cy_pass_stat *stat;
} cy_pass;

/* ---- pass.c ---- */
void cy_pass_count(cy_pass *p, const char *what, uint64_t n); /* `what`: static; shows in --stats */
uint32_t cy_pass_nodes(const cy_graph *g);                    /* nodes in all blocks */
/* The nodes of a block as they are now, to walk over while the block changes; in scratch. */
const cy_node *cy_pass_walk(cy_pass *p, cy_block b, uint32_t *out_count);

/* ---- one function per pass, for pipeline.c ---- */
#define PASS(name, function, ...) int cy_pass_##function(cy_pass *p);
#include "passes.def"

/* ---- rewrite.c ---- */
typedef struct cy_rewrite {
  cy_pass *pass;
  cy_graph *g;
  cy_uses uses;     /* as of the start of the round */
  uint32_t nvalues; /* values that `uses` knows */
} cy_rewrite;

/* What n's first output may be replaced by, or 0 when the rule does not apply. New nodes land before n. */
typedef cy_val (*cy_rule_fn)(cy_rewrite *rw, const cy_node_info *n);
enum { CY_RULE_ANY_EW = 0xffff };
typedef struct cy_rule {
  uint16_t op; /* cy_op of the root, or CY_RULE_ANY_EW */
  const char *name;
  cy_rule_fn apply;
} cy_rule;
typedef struct cy_rule_set {
  const cy_rule *rules;
  uint32_t n;
} cy_rule_set;
/* Applies the sets until nothing changes. Returns how many rewrites were made. */
uint64_t cy_rewrite_run(cy_pass *p, const cy_rule_set *sets, uint32_t nsets);
bool cy_rewrite_single_use(const cy_rewrite *rw, cy_val v); /* false for values made in this round */
bool cy_rewrite_is_result(const cy_rewrite *rw, cy_val v);  /* a model output, block result, or read by a symbol */
void cy_rewrite_origin(cy_pass *p, const cy_node_info *n);  /* nodes built from now on come from n and this pass */

/* ---- simplify_shuffle.c ---- */
/* Can transposed convolution n be one of integers? x and w then are those, w as n's; zero: x's zero point, or 0. */
bool cy_shuffle_possible(cy_graph *g, const cy_node_info *n);
cy_val cy_shuffle_integers(cy_graph *g, const cy_node_info *n, cy_val x, cy_val w, cy_val zero);

/* ---- fold.c ---- */
/* the constant that n computes; 0: not of constants, or too large */
cy_val cy_fold_node(cy_graph *g, const cy_node_info *n);

/* ---- fold_search.c ---- */
bool cy_fold_topk(cy_pass *p, const cy_node_info *n); /* replaces both results; false: of no constant, or too large */
cy_val cy_fold_cumsum(cy_graph *g, const cy_node_info *n); /* of constants; 0: of a type that is left to a kernel */
cy_val cy_fold_gather_elements(cy_graph *g, const cy_node_info *n);

/* ---- query.c ---- */
cy_node_info *cy_def(const cy_graph *g, cy_val v);              /* the defining node or NULL */
cy_node_info *cy_def_of(const cy_graph *g, cy_val v, cy_op op); /* .. if it is an `op` */
bool cy_block_encloses(const cy_graph *g, cy_block outer, cy_block b); /* it is b, or b lies in it */
static inline const cy_type *cy_type_of(const cy_graph *g, cy_val v) { return &cy_value_of(g, v)->type; }
bool cy_splat_is(cy_graph *g, cy_val v, double want); /* constant with all elements equal to want */
bool cy_never_negative(cy_graph *g, cy_val v);        /* the graph says so; an element may be NaN */
/* Does a resize move anything along this axis? */
bool cy_resizes_axis(const cy_node_info *n, const cy_type *in, const cy_type *out, int axis);
bool cy_type_static(const cy_graph *g, const cy_type *t, int64_t *out_dims); /* out_dims[rank] may be NULL */
bool cy_same_shape(const cy_type *a, const cy_type *b);
uint64_t cy_type_count(const cy_graph *g, const cy_type *t); /* elements; 0 when not static (or empty) */
const int64_t *cy_attr_list(const cy_node_info *n, cy_attr_key key, uint32_t *out_n); /* NULL when absent */
const cy_dim *cy_attr_dim_list(const cy_node_info *n, cy_attr_key key, uint32_t *out_n);
bool cy_perm_compose(const int64_t *inner, const int64_t *outer, int rank, int64_t *out); /* true: the identity */
void cy_perm_invert(const int64_t *perm, int rank, int64_t *out);
bool cy_axes_of(const cy_node_info *n, int rank, bool *out_axes); /* `axes` as flags; false when out of range */
void cy_layout_reset(cy_value *v);                                /* row-major */
bool cy_layout_is_row_major(const cy_value *v);
bool cy_cast_lossless(cy_dtype from, cy_dtype to);

/* ---- maxima.c: dynamic quantisation of images, whose largest elements other kernels find ---- */
/* Of a value that has the bits of every image's largest element: the images, of f16; 0: it is something else. */
cy_val cy_maxima_source(cy_graph *g, cy_val max);
cy_val cy_maxima_of(cy_graph *g, const cy_uses *uses, cy_val x); /* .. the value, of images; 0: there is none */
cy_val cy_maxima_bounded(cy_graph *g, cy_val v); /* .. of these bits as floats, 1e-30 at least; 0: v is something else */
/* Will the target's kernel of a product or convolution, which makes the images, have found it? */
bool cy_maxima_are_found(cy_graph *g, const cy_target_caps *caps, cy_val max);
bool cy_maxima_by_contraction(const cy_graph *g, const cy_target_caps *caps, cy_val x); /* .. if x are such images */
typedef struct cy_maxima_rounding {
  cy_val x, max; /* images, and the bits of their largest elements */
  cy_val up, product, whole; /* steps / max, times x, rounded */
  double steps;
  cy_dtype type;
} cy_maxima_rounding;
bool cy_maxima_rounds(cy_graph *g, cy_val ints, cy_maxima_rounding *out); /* false: ints are something else */

/* attention_plain.c: is one kernel made for attention with heads as in q and v? */
bool cy_attention_fits(const cy_pass *p, const cy_type *q, const cy_type *v);
/* lower_pieces.c: the windows of a pool along a spatial axis: the first few reach over the border in front, those from
 * `end` on, at most `behind`, over the one at the end. */
typedef struct cy_pool_split {
  int64_t first;
  int behind;
  cy_dim end, size; /* size: of the output */
} cy_pool_split;
/* False where so many do that the pool is better not cut there. spatial: 0 is the first spatial axis. */
bool cy_pool_split_of(cy_graph *g, const cy_node_info *n, int spatial, cy_pool_split *out);
/* A constant in the graph's arena, contents to be filled in by the caller before use. */
void *cy_const_new(cy_graph *g, const cy_type *type, cy_val *out);
/* Constant v holds the numbers of constant `from` in another layout. */
void cy_const_made_of(cy_graph *g, cy_val v, cy_val from);

#endif
