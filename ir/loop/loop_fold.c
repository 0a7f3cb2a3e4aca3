/* SPDX-License-Identifier: Apache-2.0 */
/* loop_fold.c - makes contractions simpler where their epilogue allows it: batch axes that become rows, axes of
 * convolutions that are none, convolutions of single positions that become matrix products, additions in i32 with which
 * accumulators may begin.
 *
 * In: a contraction kernel with its epilogue, before the target sees it. Out: the same results, fewer axes.
 */
#include "loop_axes.h"

#include <stdlib.h>
#include <string.h>

enum { MANY_ROWS = 48 }; /* a matrix of that many rows keeps the multipliers busy by itself */

/* Batch axis i and the rows walk through A like one axis: how, outermost first. */
static bool rows_continue(const cy_kernel *k, int i, bool *out_batch_first) {
  const cy_contraction *c = &k->contraction;
  *out_batch_first = cy_dim_is(k->g, c->m, 1) || c->a_batch[i] == cy_dim_mul(k->g, c->m, c->a_m);
  return *out_batch_first || c->a_m == cy_dim_mul(k->g, c->batch[i], c->a_batch[i]);
}

/* One variable for the rows of batch axis i. Where the epilogue treats the two differently, its indices are split
 * again, row by row. */
static bool fold_batch(cy_kernel *k, int i) {
  cy_contraction *c = &k->contraction;
  bool batch_first;
  int64_t m;
  if (!cy_dim_is(k->g, c->b_batch[i], 0) || !rows_continue(k, i, &batch_first))
    return false;
  cy_var rows = c->out_var[c->nbatch], outer = batch_first ? c->out_var[i] : rows,
         inner = batch_first ? rows : c->out_var[i];
  survey s = cy_survey_make(k);
  bool same = cy_survey_mergeable(&s, outer, inner);
  cy_survey_free(&s);
  if (!same && (!cy_dim_is_const(k->g, c->m, &m) || m >= MANY_ROWS))
    return false;
  cy_dim extent = cy_kernel_var(k, inner)->extent;
  if (same) {
    rows = cy_survey_merge(k, outer, inner);
  } else {
    rows = cy_kernel_add_var(k, cy_dim_mul(k->g, cy_kernel_var(k, outer)->extent, extent));
    cy_kernel_subst_var(k, outer, cy_x_bin(k, CY_OP_div, cy_x_var(k, rows), cy_x_dim(k, extent)));
    cy_kernel_subst_var(k, inner, cy_x_bin(k, CY_OP_mod, cy_x_var(k, rows), cy_x_dim(k, extent)));
  }
  if (!batch_first || cy_dim_is(k->g, c->m, 1))
    c->a_m = c->a_batch[i];
  c->m = cy_kernel_var(k, rows)->extent;
  c->out_var[c->nbatch] = rows;
  c->nout_vars--;
  for (int j = i; j < c->nout_vars; j++)
    c->out_var[j] = c->out_var[j + 1];
  c->nbatch--;
  for (int j = i; j < c->nbatch; j++) {
    c->batch[j] = c->batch[j + 1];
    c->a_batch[j] = c->a_batch[j + 1];
    c->b_batch[j] = c->b_batch[j + 1];
  }
  return true;
}

void cy_kernel_fold_batches(cy_kernel *k) {
  for (int i = k->contraction.nbatch; i-- > 0;)
    if (fold_batch(k, i))
      i = k->contraction.nbatch;
}

/* Does a position of the output read the position of the input at the same place, and nothing else? */
static bool is_pointwise(const cy_kernel *k) {
  const cy_contraction *c = &k->contraction;
  if (c->kind != CY_CONTRACT_CONV || cy_kernel_local_dtype(k, c->acc) != CY_F32)
    return false;
  for (int i = 0; i < c->nspatial; i++)
    if (c->kernel[i] != 1 || c->stride[i] != 1 || !cy_dim_is(k->g, c->pad[i], 0) || c->in[i] != c->out[i])
      return false;
  return true;
}

/* The output's axes but for the channel, outermost first: extents, strides of the input. */
static int position_axes(const cy_contraction *c, cy_dim *extent, cy_dim *stride) {
  extent[0] = c->images;
  stride[0] = c->x_image;
  for (int i = 0; i < c->nspatial; i++) {
    extent[1 + i] = c->out[i];
    stride[1 + i] = c->x_spatial[i];
  }
  return 1 + c->nspatial;
}

/* Axes `at - 1` and `at` become one at `at - 1`, if the input and the epilogue allow it. */
static bool join_axes(cy_kernel *k, cy_dim *extent, cy_dim *stride, int at) {
  cy_contraction *c = &k->contraction;
  int alone = cy_dim_is(k->g, extent[at - 1], 1) ? at - 1 : cy_dim_is(k->g, extent[at], 1) ? at : -1;
  if (alone >= 0) {
    cy_kernel_subst_var(k, c->out_var[alone], cy_x_index(k, 0));
    if (alone == at - 1) {
      c->out_var[at - 1] = c->out_var[at];
      stride[at - 1] = stride[at];
      extent[at - 1] = extent[at];
    }
    return true;
  }
  survey s = cy_survey_make(k);
  bool same = stride[at - 1] == cy_dim_mul(k->g, stride[at], extent[at]) &&
              cy_survey_mergeable(&s, c->out_var[at - 1], c->out_var[at]);
  cy_survey_free(&s);
  if (same) {
    c->out_var[at - 1] = cy_survey_merge(k, c->out_var[at - 1], c->out_var[at]);
    extent[at - 1] = cy_kernel_var(k, c->out_var[at - 1])->extent;
    stride[at - 1] = stride[at];
  }
  return same;
}

bool cy_kernel_positions_join(cy_kernel *k) {
  const cy_contraction *c = &k->contraction;
  if (c->kind != CY_CONTRACT_CONV || c->planar)
    return false;
  survey s = cy_survey_make(k);
  bool join = true;
  for (int inner = c->nout_vars - 2, i = inner - 1; i >= 0 && join; i--) {
    if (cy_dim_is(k->g, cy_kernel_var(k, c->out_var[i])->extent, 1))
      continue;
    join = cy_survey_mergeable(&s, c->out_var[i], c->out_var[inner]);
    inner = i;
  }
  cy_survey_free(&s);
  return join;
}

/* Rows that follow each other without a gap become one. The output's variables: image, channel, spatial... */
static void fold_planar(cy_kernel *k) {
  cy_contraction *c = &k->contraction;
  cy_dim extent[2 + CY_MAX_SPATIAL], stride[2 + CY_MAX_SPATIAL];
  for (int i = 0; i < c->nspatial; i++) {
    extent[2 + i] = c->out[i];
    stride[2 + i] = c->x_spatial[i];
  }
  while (c->nspatial > 1 && join_axes(k, extent, stride, c->nspatial + 1))
    c->nspatial--;
  c->nout_vars = 2 + c->nspatial;
  c->in[c->nspatial - 1] = c->out[c->nspatial - 1] = extent[c->nspatial + 1];
  c->x_spatial[c->nspatial - 1] = stride[c->nspatial + 1];
}

/* Drops spatial axis i of a convolution. */
static void drop_axis(cy_contraction *c, int i) {
  int at = (c->planar ? 2 : 1) + i, behind = --c->nspatial - i;
  c->nout_vars--;
  memmove(&c->out_var[at], &c->out_var[at + 1], (size_t)(c->nout_vars - at) * sizeof *c->out_var);
  cy_dim *dims[] = {c->in, c->out, c->pad, c->x_spatial};
  for (int d = 0; d < 4; d++)
    memmove(&dims[d][i], &dims[d][i + 1], (size_t)behind * sizeof **dims);
  int64_t *sizes[] = {c->kernel, c->stride, c->dilation};
  for (int d = 0; d < 3; d++)
    memmove(&sizes[d][i], &sizes[d][i + 1], (size_t)behind * sizeof **sizes);
  memmove(&c->shuffle[i], &c->shuffle[i + 1], (size_t)behind * sizeof *c->shuffle);
}

/* Spatial axes of one position, read by one tap, are none: those that are left are closer in memory. */
static void drop_single_axes(cy_kernel *k) {
  cy_contraction *c = &k->contraction;
  for (int i = c->nspatial - 1; c->kind == CY_CONTRACT_CONV && i >= 0 && c->nspatial > 1; i--)
    if (c->kernel[i] == 1 && cy_dim_is(k->g, c->in[i], 1) && cy_dim_is(k->g, c->out[i], 1) &&
        cy_dim_is(k->g, c->pad[i], 0) && c->shuffle[i].positions <= 1) {
      cy_kernel_subst_var(k, c->out_var[(c->planar ? 2 : 1) + i], cy_x_index(k, 0));
      drop_axis(c, i);
    }
}

void cy_kernel_fold_positions(cy_kernel *k) {
  cy_contraction *c = &k->contraction;
  cy_dim extent[1 + CY_MAX_SPATIAL], stride[1 + CY_MAX_SPATIAL];
  drop_single_axes(k);
  if (!is_pointwise(k))
    return;
  if (c->planar) {
    fold_planar(k);
    return;
  }
  if (c->group != 1 || !cy_dim_is(k->g, c->x_channel, 1))
    return;
  int n = position_axes(c, extent, stride), left = n;
  cy_var channel = c->out_var[n];
  while (left > 1 && join_axes(k, extent, stride, left - 1))
    left--;
  if (left == n)
    return;
  c->kind = CY_CONTRACT_MATMUL;
  c->nbatch = left - 1;
  for (int i = 0; i < c->nbatch; i++) {
    c->batch[i] = extent[i];
    c->a_batch[i] = stride[i];
    c->b_batch[i] = cy_dim_const(k->g, 0);
  }
  c->m = extent[left - 1];
  c->n = c->channels_out;
  c->k = c->b_n = c->channels_in;
  c->a_m = stride[left - 1];
  c->a_k = c->b_k = cy_dim_const(k->g, 1);
  c->out_var[left] = channel;
  c->nout_vars = left + 1;
}

/* ---- what accumulators begin with ---- */

static bool is_sum(const cy_kernel *k, cy_expr e) {
  const cy_expr_info *x = cy_expr_of(k, e);
  return x->op == CY_X_LOCAL && x->id == k->contraction.acc;
}

/* Is a statement's value the sum itself? */
static bool keeps_sum(const cy_kernel *k, const cy_stmt *s) {
  for (; s; s = s->next)
    if ((s->value && is_sum(k, s->value)) || keeps_sum(k, s->body))
      return true;
  return false;
}

/* The only expression that reads the sum; 0: there are more. */
static cy_expr reader_of_sum(const cy_kernel *k) {
  bool *marks = calloc(cy_expr_count(k) + 1, sizeof *marks);
  cy_expr found = 0;
  int readers = 0;
  if (!marks)
    cy_no_memory();
  cy_stmt_mark(k, k->body, marks);
  for (cy_expr e = 1; e <= cy_expr_count(k); e++) {
    const cy_expr_info *x = cy_expr_of(k, e);
    bool reads = false;
    for (int i = 0; marks[e] && i < x->n; i++)
      reads |= is_sum(k, x->arg[i]);
    found = reads ? e : found;
    readers += reads;
  }
  free(marks);
  return readers == 1 ? found : 0;
}

static cy_expr without_start(cy_kernel *k, cy_expr e, void *ctx) {
  return e == *(const cy_expr *)ctx ? cy_x_local(k, k->contraction.acc) : 0;
}

void cy_kernel_fold_start(cy_kernel *k) {
  cy_contraction *c = &k->contraction;
  if (c->has_start || cy_kernel_local_dtype(k, c->acc) != CY_I32 || cy_stmt_sets(k->body, c->acc) ||
      keeps_sum(k, k->body))
    return;
  cy_expr e = reader_of_sum(k);
  const cy_expr_info *x = cy_expr_of(k, e);
  if (!e || x->op != CY_OP_add || x->dtype != CY_I32)
    return;
  const cy_expr_info *load = cy_expr_of(k, x->arg[is_sum(k, x->arg[0])]);
  if (load->op != CY_X_LOAD || cy_kernel_arg_dtype(k, load->id) != CY_I32)
    return;
  const cy_expr_info *at = cy_expr_of(k, load->arg[0]);
  if (at->op != CY_X_VAR || at->id != c->out_var[c->nout_vars - 1])
    return;
  c->has_start = true;
  c->start = load->id;
  cy_kernel_rewrite(k, (cy_rewrite){.leaf = without_start, .ctx = &e});
}
