/* SPDX-License-Identifier: Apache-2.0 */
/* lower_blocks.c - products with weights in integers, scaled by blocks of rows: matmul_blocks.
 *
 * Two kernels on one copy of the weights. For few rows, plain kernels that read each weight once and multiply the
 * integers themselves:
 *
 *   part[row, block, n] = scale * (sum over the block of x * w - zero * sum over the block of x)
 *   y[row, n] = sum over blocks of part
 *
 * For more, a contraction, for which the target makes floats of a panel of weights at a time; for few rows, too, where
 * the target has a generator of its own for these (cy_target_caps.few_rows). Where the number of rows is only known
 * when the program runs, it has both. Targets without such a contraction, and level 0, have the plain kernels. Where
 * the op allows it, a contraction multiplies rounded factors, if the target has one that does; of rows in 8 bits, however
 * many they are. Few rows times weights of 4 bits may become integers that are as fine as accumulators of f32 are.
 */
#include "lower_int.h"

#include <stdint.h>

#define bin(b, op, x, y) cy_x_bin((b)->k, op, x, y)

typedef struct blocks {
  cy_lowering *l;
  const cy_node_info *node;
  const cy_type *x, *w;
  cy_val zero; /* of every block; 0: `middle` is that of all */
  int64_t middle, bits;
  cy_dtype codes;      /* of 4 bits that are floats; CY_NONE: integers, or what w's type says */
  cy_dim block, half;  /* rows of a block; rows of bytes */
  cy_dim n, rows, few; /* columns; rows of x; where they are few */
} blocks;

static blocks blocks_of(cy_lowering *l, const cy_node_info *n) {
  blocks s = {.l = l, .node = n, .x = cy_lower_type(l, n->in[0]), .w = cy_lower_type(l, n->in[1])};
  cy_dim rows = cy_dim_mul(l->g, s.w->dim[0], s.w->dim[2]);
  s.bits = rows == s.x->dim[s.x->rank - 1] ? 8 : 4;
  s.half = s.w->dim[2];
  s.codes = (cy_dtype)cy_attr_get_int(n, CY_ATTR_codes, CY_NONE);
  s.n = cy_dim_mul(l->g, s.w->dim[1], s.w->dim[3]);
  s.block = cy_dim_muli(l->g, s.half, 8 / s.bits);
  s.rows = cy_dim_const(l->g, 1);
  for (int i = 0; i < s.x->rank - 1; i++)
    s.rows = cy_dim_mul(l->g, s.rows, s.x->dim[i]);
  if (n->nin < 4 || !n->in[3])
    return s;
  const cy_value *zero = cy_value_of(l->g, n->in[3]);
  if (zero->type.rank || !zero->data.bytes)
    s.zero = n->in[3];
  else
    s.middle = cy_scalar_load(zero->data.bytes, (cy_dtype)zero->type.dtype, 0).i;
  return s;
}

/* Up to so many rows are few. Plain kernels: tiles are read so well that already two rows are better a contraction. */
static int64_t few_rows_of(const blocks *s) {
  int64_t own = s->l->caps->few_rows;
  return own ? own : cy_dim_is(s->l->g, s->w->dim[1], 1) ? 2 : 1;
}

/* The contraction that makes integers of rows, where the target has one, is for up to so many: it takes one after the other.
 * 4 rows by 4096x4096 weights by blocks of 32, on a core of Zen 5: 0.54 ms instead of 0.90 with VNNI, 0.78 instead of 0.89
 * with AVX-512, 1.50 instead of 1.92 with AVX2. */
enum { INTEGER_ROWS = 4 };

static cy_local sum_begin(cy_kb *b) {
  cy_local sum = cy_kernel_add_local(b->k, CY_F32);
  cy_kernel_set(b->k, sum, cy_x_const(b->k, CY_F32, 0));
  return sum;
}

/* Grid axes of all rows of x, to idx. The number of the row. */
static cy_expr grid_rows(cy_kb *b, const blocks *s, cy_expr *idx) {
  cy_expr row = cy_x_index(b->k, 0);
  for (int i = 0; i < s->x->rank - 1; i++) {
    idx[i] = cy_kb_grid_index(b, s->x->dim[i]);
    row = bin(b, CY_OP_add, bin(b, CY_OP_mul, row, cy_x_dim(b->k, s->x->dim[i])), idx[i]);
  }
  return row;
}

/* x in row `idx` at row i of a block, or so many behind it. */
static cy_expr x_at(cy_kb *b, const blocks *s, cy_expr *idx, cy_expr block, cy_expr i, cy_dim behind) {
  cy_expr at = bin(b, CY_OP_add, bin(b, CY_OP_mul, block, cy_x_dim(b->k, s->block)), i);
  idx[s->x->rank - 1] = behind ? bin(b, CY_OP_add, at, cy_x_dim(b->k, behind)) : at;
  return cy_x_cast(b->k, cy_lower_at(b, s->node->in[0], idx), CY_F32);
}

/* zero * the sum of x over each block: [rows, blocks]; where zeros differ, the sum alone. */
static cy_place sum_x(const blocks *s) {
  const cy_dim dims[2] = {s->few, s->w->dim[0]};
  cy_place to = cy_lower_temp(s->l, CY_F32, dims, 2);
  cy_expr idx[CY_MAX_RANK], at[2];
  cy_kb b;
  cy_kb_init(&b, s->l, "sum_blocks");
  at[0] = grid_rows(&b, s, idx);
  at[1] = cy_kb_grid_index(&b, dims[1]);
  cy_local sum = sum_begin(&b);
  cy_expr i = cy_kb_loop(&b, s->block, false);
  cy_kernel_accum(b.k, sum, CY_OP_add, x_at(&b, s, idx, at[1], i, 0));
  cy_kernel_end(b.k);
  cy_expr all = cy_x_local(b.k, sum);
  if (!s->zero)
    all = bin(&b, CY_OP_mul, all, cy_x_const(b.k, CY_F32, (double)s->middle));
  cy_kb_store(&b, &to, CY_F32, 2, at, all);
  cy_kb_launch(&b, true);
  return to;
}

/* A code of 4 bits in f32. Of f4e2m1 exponent and mantissa move to their places, and the power makes up for the bias. */
static cy_expr code_value(cy_kb *b, const blocks *s, cy_expr code) {
  if (!s->codes)
    return cy_x_cast(b->k, code, CY_F32);
  cy_expr wide = cy_x_cast(b->k, code, CY_U32), size = bin(b, CY_OP_and, wide, cy_x_int(b->k, CY_U32, 7));
  cy_expr sign = bin(b, CY_OP_shl, bin(b, CY_OP_and, wide, cy_x_int(b->k, CY_U32, 8)), cy_x_int(b->k, CY_U32, 28));
  cy_expr bits = bin(b, CY_OP_or, bin(b, CY_OP_shl, size, cy_x_int(b->k, CY_U32, 22)), sign);
  return bin(b, CY_OP_mul, cy_x_op(b->k, CY_OP_bitcast, CY_F32, &bits, 1), cy_x_const(b->k, CY_F32, 0x1p126));
}

/* x * w of one row of bytes. */
static cy_expr multiply(cy_kb *b, const blocks *s, cy_expr *idx, const cy_expr *w_idx) {
  cy_expr w = cy_lower_at(b, s->node->in[1], w_idx), x = x_at(b, s, idx, w_idx[0], w_idx[2], 0);
  if (s->bits == 8)
    return bin(b, CY_OP_mul, x, cy_x_cast(b->k, w, CY_F32));
  cy_expr low = bin(b, CY_OP_mul, x, code_value(b, s, bin(b, CY_OP_and, w, cy_x_int(b->k, CY_U8, 15))));
  cy_expr high = code_value(b, s, bin(b, CY_OP_shr, w, cy_x_int(b->k, CY_U8, 4)));
  return bin(b, CY_OP_add, low, bin(b, CY_OP_mul, x_at(b, s, idx, w_idx[0], w_idx[2], s->half), high));
}

/* Grid axes of columns, to w_idx. The number of the column. */
static cy_expr grid_columns(cy_kb *b, const blocks *s, cy_expr *w_idx) {
  w_idx[1] = cy_kb_grid_index(b, s->w->dim[1]);
  w_idx[3] = cy_kb_grid_index(b, s->w->dim[3]);
  return bin(b, CY_OP_add, bin(b, CY_OP_mul, w_idx[1], cy_x_dim(b->k, s->w->dim[3])), w_idx[3]);
}

/* The sum over block w_idx[0] in column n of row idx, the `row`th. sums: NULL where zero is 0. */
static cy_expr sum_block(cy_kb *b, const blocks *s, cy_expr row, cy_expr *idx, cy_expr *w_idx, cy_expr n,
                         const cy_place *sums) {
  const cy_expr column[2] = {w_idx[0], n}, at[2] = {row, w_idx[0]};
  cy_local sum = sum_begin(b);
  w_idx[2] = cy_kb_loop(b, s->half, false);
  cy_kernel_accum(b->k, sum, CY_OP_add, multiply(b, s, idx, w_idx));
  cy_kernel_end(b->k);
  cy_expr all = cy_x_local(b->k, sum), less = sums ? cy_kb_load(b, sums, CY_F32, 2, at) : 0;
  if (s->zero)
    less = bin(b, CY_OP_mul, less, cy_x_cast(b->k, cy_lower_at(b, s->zero, column), CY_F32));
  if (sums)
    all = bin(b, CY_OP_sub, all, less);
  return bin(b, CY_OP_mul, all, cy_lower_at(b, s->node->in[2], column));
}

/* [rows, blocks, n] */
static cy_place multiply_blocks(const blocks *s, const cy_place *sums) {
  const cy_dim dims[3] = {s->few, s->w->dim[0], s->n};
  cy_place to = cy_lower_temp(s->l, CY_F32, dims, 3);
  cy_expr idx[CY_MAX_RANK], at[3], w_idx[4];
  cy_kb b;
  cy_kb_init(&b, s->l, "matmul_blocks");
  at[0] = grid_rows(&b, s, idx);
  at[1] = w_idx[0] = cy_kb_grid_index(&b, dims[1]);
  at[2] = grid_columns(&b, s, w_idx);
  cy_kb_store(&b, &to, CY_F32, 3, at, sum_block(&b, s, at[0], idx, w_idx, at[2], sums));
  cy_kb_launch(&b, true);
  return to;
}

static cy_dim at_most(const blocks *s, cy_dim d, int64_t max) {
  return max == INT64_MAX ? d : cy_dim_min(s->l->g, d, cy_dim_const(s->l->g, max));
}

/* What is stored of all rows has room for `max`. */
static void plain_rows(blocks *s, int64_t max, cy_val root_value, cy_val target) {
  bool zeros = s->zero || s->middle, single = cy_dim_is(s->l->g, s->w->dim[0], 1);
  s->few = at_most(s, s->rows, max);
  cy_place sums, parts;
  if (zeros)
    sums = sum_x(s);
  if (!single)
    parts = multiply_blocks(s, zeros ? &sums : NULL);
  cy_expr idx[CY_MAX_RANK], at[3], w_idx[4];
  cy_kb b;
  cy_kb_init(&b, s->l, single ? "matmul_blocks" : "add_blocks");
  at[0] = grid_rows(&b, s, idx);
  at[2] = single ? grid_columns(&b, s, w_idx) : cy_kb_grid_index(&b, s->n);
  cy_expr all;
  if (single) {
    w_idx[0] = cy_x_index(b.k, 0);
    all = sum_block(&b, s, at[0], idx, w_idx, at[2], zeros ? &sums : NULL);
  } else {
    cy_local sum = sum_begin(&b);
    at[1] = cy_kb_loop(&b, s->w->dim[0], false);
    cy_kernel_accum(b.k, sum, CY_OP_add, cy_kb_load(&b, &parts, CY_F32, 3, at));
    cy_kernel_end(b.k);
    all = cy_x_local(b.k, sum);
  }
  idx[s->x->rank - 1] = at[2];
  cy_lower_finish(&b, target, root_value, idx, all);
  cy_kb_launch(&b, true);
}

/* Does the target have a generator? One that rounds factors, where the op allows that, comes first. */
static bool has_generator(cy_lowering *l, cy_kernel *k, cy_dtype rounded) {
  cy_contraction *c = cy_kernel_contraction(k);
  c->rounded = rounded;
  if (rounded && cy_caps_supports(l->caps, k))
    return true;
  c->rounded = CY_NONE;
  return cy_caps_supports(l->caps, k);
}

/* The contraction of up to `max` rows, but for its epilogue. False: the target has no generator for it. */
static bool build_product(cy_kb *b, const blocks *s, int64_t max, cy_dtype rounded, cy_expr *out_idx) {
  cy_lowering *l = s->l;
  cy_graph *g = l->g;
  if (!cy_lower_generates(l) || s->x->rank - 2 > CY_MAX_BATCH)
    return false;
  cy_kb_init(b, l, "matmul_blocks");
  cy_contraction *c = cy_kernel_contraction(b->k);
  const cy_place *x = cy_lower_place(l, s->node->in[0]);
  int rank = s->x->rank;
  c->kind = CY_CONTRACT_MATMUL;
  c->a = cy_kb_arg(b, x, (cy_dtype)s->x->dtype, CY_ARG_READ);
  c->b = cy_kb_arg(b, cy_lower_place(l, s->node->in[1]), (cy_dtype)s->w->dtype, CY_ARG_READ);
  c->b_scale =
      cy_kb_arg(b, cy_lower_place(l, s->node->in[2]), (cy_dtype)cy_lower_type(l, s->node->in[2])->dtype, CY_ARG_READ);
  c->has_b_zero = s->zero != 0;
  if (s->zero)
    c->b_zero = cy_kb_arg(b, cy_lower_place(l, s->zero), CY_U8, CY_ARG_READ);
  c->b_bits = (int)s->bits;
  c->b_codes = s->codes;
  c->b_middle = s->middle;
  cy_dim_is_const(g, s->block, &c->b_block);
  for (int i = 0; i < rank; i++) {
    cy_dim extent = i == rank - 1 ? s->n : at_most(s, s->x->dim[i], max);
    if (i < rank - 2 && cy_dim_is(g, extent, 1)) {
      out_idx[i] = cy_x_index(b->k, 0);
      continue;
    }
    cy_var v = c->out_var[c->nout_vars++] = cy_kernel_add_var(b->k, extent);
    out_idx[i] = cy_x_var(b->k, v);
    if (i >= rank - 2)
      continue;
    c->batch[c->nbatch] = extent;
    c->a_batch[c->nbatch] = x->stride[i];
    c->b_batch[c->nbatch++] = cy_dim_const(g, 0);
  }
  c->m = at_most(s, s->x->dim[rank - 2], max);
  c->k = s->x->dim[rank - 1];
  c->n = s->n;
  c->b_k = s->w->dim[3];
  c->a_m = x->stride[rank - 2];
  c->a_k = x->stride[rank - 1];
  c->b_n = cy_dim_const(g, 1);
  c->acc = cy_kernel_add_local(b->k, CY_F32);
  return has_generator(l, b->k, rounded);
}

static void finish_product(cy_kb *b, cy_val root_value, cy_val target, const cy_expr *idx) {
  cy_lower_finish(b, target, root_value, idx, cy_x_local(b->k, cy_kernel_contraction(b->k)->acc));
  cy_kernel_fold_batches(b->k);
  cy_kb_launch(b, false);
}

static cy_dtype rounding_of(const blocks *s) { return (cy_dtype)cy_attr_get_int(s->node, CY_ATTR_round, CY_NONE); }

/* A product that rounds factors so, or makes integers of rows. */
static bool build_rounded(cy_kb *b, const blocks *s, int64_t max, cy_dtype rounded, cy_expr *out_idx) {
  return build_product(b, s, max, rounded, out_idx) && cy_kernel_contraction(b->k)->rounded == rounded;
}

static void few_rows(blocks *s, int64_t max, cy_val root_value, cy_val target) {
  cy_expr idx[CY_MAX_RANK];
  cy_kb b;
  if (max <= INTEGER_ROWS && build_rounded(&b, s, max, CY_I32, idx))
    finish_product(&b, root_value, target, idx);
  else if (s->l->caps->few_rows && build_product(&b, s, max, rounding_of(s), idx))
    finish_product(&b, root_value, target, idx);
  else
    plain_rows(s, max, root_value, target);
}

void cy_lower_matmul_blocks(cy_lowering *l, cy_node root, cy_val root_value, cy_val target) {
  blocks s = blocks_of(l, cy_node_of(l->g, root));
  int64_t min, max, few = few_rows_of(&s);
  cy_dim_range(l->g, s.rows, &min, &max);
  cy_expr idx[CY_MAX_RANK];
  cy_kb b;
  if (rounding_of(&s) == CY_I8 && build_rounded(&b, &s, INT64_MAX, CY_I8, idx)) {
    finish_product(&b, root_value, target, idx);
    return;
  }
  bool halves = rounding_of(&s) == CY_BF16 && build_rounded(&b, &s, INT64_MAX, CY_BF16, idx);
  if (!halves && build_rounded(&b, &s, INTEGER_ROWS, CY_I32, idx))
    few = INTEGER_ROWS;
  if (max <= few || !build_product(&b, &s, INT64_MAX, rounding_of(&s), idx)) {
    few_rows(&s, max <= few ? max : INT64_MAX, root_value, target);
    return;
  }
  cy_branch many;
  bool always = cy_lower_branch_from(l, s.rows, few + 1, &many);
  finish_product(&b, root_value, target, idx);
  if (always)
    return;
  cy_lower_otherwise(l, &many);
  few_rows(&s, few, root_value, target);
  cy_lower_join(l, &many);
}
