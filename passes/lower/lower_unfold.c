/* SPDX-License-Identifier: Apache-2.0 */
/* lower_unfold.c - convolutions whose weights are computed at run time, as matrix products.
 *
 * Generators for convolutions want weights that are packed while compiling; those for products pack when they run. In:
 * a convolution of floats with enough channels. Out: three kernels.
 *   rows      [image, group, o.., x, k.., c]: the input, padded, with the kernel's taps along all axes but the last one
 *             side by side. What a position of the output needs, all taps and channels, is one run of it: kernel size
 * times
 *             the input's memory, less the last axis' part.
 *   weights   [group, (x tap, other taps, c), o]
 *   product   batches image, group, o..; a row of it is a position along the last axis.
 */
#include "lower_int.h"

enum { MIN_COLUMNS = 8, MIN_DEPTH = 16 };

typedef struct unfold {
  cy_lowering *l;
  const cy_node_info *n;
  const cy_type *x, *w, *out;
  int spatial;
  int64_t group, kernel[CY_MAX_RANK], stride[CY_MAX_RANK], dilation[CY_MAX_RANK], pad[CY_MAX_RANK];
  cy_dim inner, columns, width, depth; /* channels and outputs of a group; of `rows`; of the product */
  cy_place rows, weights;              /* dense */
} unfold;

#define bin(b, op, x, y) cy_x_bin((b)->k, op, x, y)

static bool takes(unfold *u) {
  cy_lowering *l = u->l;
  cy_graph *g = l->g;
  const cy_node_info *n = u->n;
  const cy_attr *strides = cy_attr_find(n, CY_ATTR_strides), *pads = cy_attr_find(n, CY_ATTR_pads);
  const cy_attr *dilations = cy_attr_find(n, CY_ATTR_dilations);
  int64_t columns, inner;
  u->spatial = u->x->rank - 2;
  u->group = cy_attr_get_int(n, CY_ATTR_group, 1);
  u->inner = u->w->dim[1];
  u->columns = cy_dim_div(g, u->w->dim[0], cy_dim_const(g, u->group));
  if (n->op != CY_OP_conv || n->nin != 2 || u->spatial < 1 || u->spatial > CY_MAX_SPATIAL ||
      cy_value_of(g, n->in[1])->data.bytes || u->x->dtype != CY_F32 || u->w->dtype != CY_F32 ||
      !cy_dim_is_const(g, u->columns, &columns) || !cy_dim_is_const(g, u->inner, &inner))
    return false;
  int64_t depth = inner;
  for (int i = 0; i < u->spatial; i++) {
    if (!cy_dim_is_const(g, u->w->dim[2 + i], &u->kernel[i]))
      return false;
    u->stride[i] = strides->ints[i];
    u->pad[i] = pads->ints[i];
    u->dilation[i] = dilations ? dilations->ints[i] : 1;
    depth *= u->kernel[i];
  }
  int last = u->spatial - 1;
  u->depth = cy_dim_const(g, depth);
  u->width =
      cy_dim_addi(g, cy_dim_muli(g, cy_dim_addi(g, u->out->dim[2 + last], -1), u->stride[last]), u->kernel[last]);
  return u->dilation[last] == 1 && columns >= MIN_COLUMNS && depth >= MIN_DEPTH;
}

/* o * stride + tap * dilation - pad along an axis; *inout_inside: does it lie in the input, as well as what was asked
 * before? */
static cy_expr position(cy_kb *b, const unfold *u, int axis, cy_expr o, cy_expr tap, cy_expr *inout_inside) {
  cy_kernel *k = b->k;
  cy_expr at = bin(b, CY_OP_add, bin(b, CY_OP_mul, o, cy_x_index(k, u->stride[axis])),
                   bin(b, CY_OP_mul, tap, cy_x_index(k, u->dilation[axis])));
  at = bin(b, CY_OP_sub, at, cy_x_index(k, u->pad[axis]));
  cy_expr ok = cy_lower_in_range(b, at, u->x->dim[2 + axis]);
  *inout_inside = *inout_inside ? bin(b, CY_OP_and, *inout_inside, ok) : ok;
  return cy_lower_clamp(b, at, u->x->dim[2 + axis]);
}

/* A group's member as an index of all channels. */
static cy_expr channel(cy_kb *b, cy_expr group, cy_expr member, cy_dim members) {
  return bin(b, CY_OP_add, bin(b, CY_OP_mul, group, cy_x_dim(b->k, members)), member);
}

static void make_rows(unfold *u) {
  cy_lowering *l = u->l;
  cy_graph *g = l->g;
  int last = u->spatial - 1, rank = 0;
  cy_dim dims[CY_MAX_RANK] = {u->x->dim[0], cy_dim_const(g, u->group)};
  for (rank = 2; rank < 2 + last; rank++)
    dims[rank] = u->out->dim[rank];
  dims[rank++] = u->width;
  for (int i = 0; i < last; i++)
    dims[rank++] = u->w->dim[2 + i];
  dims[rank++] = u->inner;
  u->rows = cy_lower_temp(l, CY_F32, dims, rank);
  cy_kb b;
  cy_kb_init(&b, l, "unfold");
  cy_expr idx[CY_MAX_RANK], x_idx[CY_MAX_RANK], inside = 0, none = cy_x_index(b.k, 0);
  for (int i = 0; i < rank; i++)
    idx[i] = cy_kb_grid_index(&b, dims[i]);
  x_idx[0] = idx[0];
  x_idx[1] = channel(&b, idx[1], idx[rank - 1], u->inner);
  for (int i = 0; i < last; i++)
    x_idx[2 + i] = position(&b, u, i, idx[2 + i], idx[3 + last + i], &inside);
  x_idx[2 + last] = position(&b, u, last, none, idx[2 + last], &inside);
  cy_expr value = cy_x_select(b.k, inside, cy_lower_at(&b, u->n->in[0], x_idx), cy_x_const(b.k, CY_F32, 0));
  cy_kb_store(&b, &u->rows, CY_F32, rank, idx, value);
  cy_kb_launch(&b, true);
}

static void make_weights(unfold *u) {
  cy_lowering *l = u->l;
  int last = u->spatial - 1, rank = 0;
  cy_dim dims[CY_MAX_RANK] = {cy_dim_const(l->g, u->group)};
  dims[1] = u->w->dim[2 + last];
  for (rank = 2; rank < 2 + last; rank++)
    dims[rank] = u->w->dim[rank];
  dims[rank++] = u->inner;
  dims[rank++] = u->columns;
  u->weights = cy_lower_temp(l, CY_F32, dims, rank);
  cy_kb b;
  cy_kb_init(&b, l, "unfold_weights");
  cy_expr idx[CY_MAX_RANK], w_idx[CY_MAX_RANK];
  for (int i = 0; i < rank; i++)
    idx[i] = cy_kb_grid_index(&b, dims[i]);
  w_idx[0] = channel(&b, idx[0], idx[rank - 1], u->columns);
  w_idx[1] = idx[rank - 2];
  for (int i = 0; i < last; i++)
    w_idx[2 + i] = idx[2 + i];
  w_idx[2 + last] = idx[1];
  cy_kb_store(&b, &u->weights, CY_F32, rank, idx, cy_lower_at(&b, u->n->in[1], w_idx));
  cy_kb_launch(&b, true);
}

static cy_expr batch_axis(cy_kb *b, cy_contraction *c, cy_dim extent, cy_dim a, cy_dim w) {
  if (cy_dim_is(b->l->g, extent, 1))
    return cy_x_index(b->k, 0);
  c->batch[c->nbatch] = extent;
  c->a_batch[c->nbatch] = a;
  c->b_batch[c->nbatch++] = w;
  cy_var v = cy_kernel_add_var(b->k, extent);
  c->out_var[c->nout_vars++] = v;
  return cy_x_var(b->k, v);
}

/* The product, before its epilogue; *idx: the output's index. */
static bool build_product(unfold *u, cy_kb *b, cy_expr *idx) {
  cy_lowering *l = u->l;
  cy_graph *g = l->g;
  cy_kb_init(b, l, "conv");
  cy_contraction *c = cy_kernel_contraction(b->k);
  int last = u->spatial - 1;
  cy_dim zero = cy_dim_const(g, 0);
  c->kind = CY_CONTRACT_MATMUL;
  c->a = cy_kb_arg(b, &u->rows, CY_F32, CY_ARG_READ);
  c->b = cy_kb_arg(b, &u->weights, CY_F32, CY_ARG_READ);
  idx[0] = batch_axis(b, c, u->x->dim[0], u->rows.stride[0], zero);
  cy_expr group = batch_axis(b, c, cy_dim_const(g, u->group), u->rows.stride[1], u->weights.stride[0]);
  for (int i = 2; i < 2 + last; i++)
    idx[i] = batch_axis(b, c, u->out->dim[i], u->rows.stride[i], zero);
  c->m = u->out->dim[2 + last];
  c->n = u->columns;
  c->k = u->depth;
  c->a_m = cy_dim_muli(g, u->rows.stride[2 + last], u->stride[last]);
  c->a_k = c->b_n = cy_dim_const(g, 1);
  c->b_k = u->columns;
  cy_var m = cy_kernel_add_var(b->k, c->m), n = cy_kernel_add_var(b->k, c->n);
  c->out_var[c->nout_vars++] = m;
  c->out_var[c->nout_vars++] = n;
  idx[2 + last] = cy_x_var(b->k, m);
  idx[1] = channel(b, group, cy_x_var(b->k, n), u->columns);
  c->acc = cy_kernel_add_local(b->k, CY_F32);
  return cy_caps_supports(l->caps, b->k);
}

bool cy_lower_unfolded(cy_lowering *l, cy_node root, cy_val root_value, cy_val target) {
  const cy_node_info *n = cy_node_of(l->g, root);
  unfold u = {.l = l,
              .n = n,
              .x = cy_lower_type(l, n->in[0]),
              .w = cy_lower_type(l, n->in[1]),
              .out = cy_lower_type(l, root_value)};
  if (!cy_lower_generates(l) || !takes(&u))
    return false;
  make_rows(&u);
  make_weights(&u);
  cy_kb b;
  cy_expr idx[CY_MAX_RANK];
  if (!build_product(&u, &b, idx))
    cy_bug("a product of f32 has no generator");
  cy_lower_finish(&b, target, root_value, idx, cy_x_local(b.k, cy_kernel_contraction(b.k)->acc));
  cy_kernel_fold_batches(b.k);
  cy_kb_launch(&b, false);
  return true;
}
