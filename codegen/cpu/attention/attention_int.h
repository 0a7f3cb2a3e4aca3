/* SPDX-License-Identifier: Apache-2.0 */
/* attention_int.h - what attention.c, attention_softmax.c and attention_half.c share: the plan, and a task's place. */
#ifndef CY_CPU_ATTENTION_INT_H
#define CY_CPU_ATTENTION_INT_H

#include "codegen/cpu/gemm/microkernel.h"

/* Is there an instruction that multiplies by powers of two (vscalef)? */
static inline bool cy_attention_scales(const cy_cg *cg) { return cg->avx512; }

typedef struct att {
  const cy_attention_desc *d;
  int shared;           /* trailing batch axes of one key head */
  cy_tile qk, pv;       /* tiles of the two products */
  int64_t nr_k, nr_v;   /* panel widths */
  int64_t rows, keys;   /* known numbers of a key head, or 0 */
  int64_t block, chunk; /* rows at once; rows of a task */
  int64_t tile;         /* keys at once, a multiple of nr_k */
  bool tiled;           /* there may be several tiles */
  bool all;             /* rows always see the same keys, known ones, by one tile */
  bool maxima;            /* whole panels of scores come with their maxima */
  int64_t ld_s, ld_o;   /* floats between rows of scores and outputs */
  int64_t panels_v;
  unsigned last_v; /* vectors of the last panel of values that there are columns for */
  bool few, many; /* kernels to emit: rows up to FEW, more */
  bool behind;    /* a block is finished between the products of the next one: see multiply_keys */
  bool late;      /* scores of many rows become weights in the product with the values, see microkernel_weigh.c */
  bool half, amx; /* q, k, v are bf16, multiplied by tiles of AMX or by dot2; of these kernels: */
  int64_t filled; /* elements of a head in scratch, whole tiles */
  int64_t ld_w;   /* bf16 between rows of weights */
  /* Operands that lie as the products of many rows want them; not scaled, and no panels to make. */
  bool queries_stay, values_stay;
  /* What queries or keys, and scores that come from memory, are multiplied by; what a score's weight is a power of two by,
   * 0: weights are the descriptor's. */
  double scale_q, scale_k, scale_s, unit;
} att;

typedef struct work {
  const att *a;
  V idx[CY_GEMM_BATCH];                           /* outer batch indices */
  V keys_at, values_at, query_area, scores, outputs; /* scratch */
  V queries;                                         /* the area or, where they stay, the operand itself */
  V k, v;                                         /* operands of this head */
  V weights;                                      /* scratch, as bf16: half */
  V tab_q, tab_s;                                 /* row tables; half: of tab_s, weights */
  V top, sum;                                     /* of the rows of a block, on the stack */
  V maxima;                                         /* .. [row][W], of whole panels: maxima */
  V shifts, sums;                                 /* of rows, too, and [row][W], as cy_weighing has them: late */
  V rows_fn;                                      /* changes and weighs the scores of a block */
  V empty;                                        /* what one over the sum is for rows that see no key */
  V row0, rows, begin;                            /* of the block; the task's first row */
  V head, packed_head, packed_end;                /* the task's; on the stack: whose keys are packed, up to which one */
  V next_k, next_v;                               /* of the task that follows; in the function of rows: of the block */
  V done_row0, done_rows;                         /* on the stack: the block that is to be finished; behind */
  V inverse;                                      /* of the sum of the epilogue's row */
} work;

/* ---- attention_rows.c ---- */
/* Row r of the run: its batch and row indices. */
void cy_attention_row_indices(cy_cg *cg, const work *w, V r, V *idx);
V cy_attention_query(cy_cg *cg, const work *w, V r); /* where it lies */

/* ---- attention_softmax.c ---- */
/* The function that w->rows_fn is, and a call of it: scores of the block's rows for keys [j0, j0 + n) become weights, or,
 * where they do so late and rows are not few, all is made ready for that; `first`: i1, there was no tile before. */
V cy_attention_softmax_emit(cy_cg *cg, const att *a);
void cy_attention_softmax(cy_cg *cg, const work *w, V j0, V n, V first, bool few);
/* Denormal results are zero from here on, till flush_end, which is given what flush_begin returned: one instruction less
 * for each vector of weights than a test, and products with them stop no Intel CPU. */
V cy_attention_flush_begin(cy_cg *cg);
void cy_attention_flush_end(cy_cg *cg, V before);
/* Behind the product in which scores became weights: a row's sum, and those of all rows into w->sum. */
V cy_attention_sum(cy_cg *cg, const work *w, V row);
void cy_attention_sums(cy_cg *cg, const work *w);

/* ---- attention_half.c: what is different where bf16 are multiplied ---- */
void cy_attention_half_plan(const cy_cg *cg, att *a);
/* Bytes of a worker's areas. */
V cy_attention_half_keys_bytes(cy_cg *cg, const att *a);
V cy_attention_half_values_bytes(cy_cg *cg, const att *a);
/* Keys and values [lo, hi) into scratch, lo being a multiple of nr_k. */
void cy_attention_half_pack(cy_cg *cg, const work *w, V lo, V hi);
void cy_attention_half_queries(cy_cg *cg, const work *w);
/* Scores, not scaled yet, of keys [j0, j0 + n), and (+)= outputs; j0 is a multiple of nr_k. */
void cy_attention_half_scores(cy_cg *cg, const work *w, V j0, V n);
void cy_attention_half_outputs(cy_cg *cg, const work *w, V j0, V n, V accumulate);
/* 16 weights of a row, and zeros behind its last vector. */
void cy_attention_half_weights(cy_cg *cg, V row, V at, V v);
void cy_attention_half_weights_end(cy_cg *cg, V row, V n);

#endif
