/* SPDX-License-Identifier: Apache-2.0 */
/* lower_contract.c - products and convolutions as contraction kernels, or as plain loop nests.
 *
 * A contraction kernel describes its operands by sizes and strides; its body is the epilogue, composed like any other
 * expression from the accumulator. Whether a target has a generator for it is asked before; the plain nest
 * (lower_reduce.c) is the other answer, and the only one at level 0, where it makes -O0 an opinion of its own.
 */
#include "lower_int.h"
#include "passes/pass_int.h"

static cy_var out_var(cy_kb *b, cy_dim extent) {
  cy_contraction *c = cy_kernel_contraction(b->k);
  cy_var v = cy_kernel_add_var(b->k, extent);
  c->out_var[c->nout_vars++] = v;
  return v;
}

/* Names the memory of both operands; the constant behind the second one lets the target pack it while compiling. */
static void set_operands(cy_kb *b, const cy_node_info *n, cy_place **out_x, cy_place **out_w) {
  cy_lowering *l = b->l;
  cy_contraction *c = cy_kernel_contraction(b->k);
  cy_val a = n->in[0];
  cy_lower_rounded(b, n->in[0], &a);
  cy_place *x = cy_lower_place(l, a), *w = cy_lower_place(l, n->in[1]);
  c->a = cy_kb_arg(b, x, (cy_dtype)cy_lower_type(l, a)->dtype, CY_ARG_READ);
  c->b = cy_kb_arg(b, w, (cy_dtype)cy_lower_type(l, n->in[1])->dtype, CY_ARG_READ);
  for (uint32_t k = 2; k < n->nin; k++) {
    if (!n->in[k])
      continue;
    const cy_type *t = cy_lower_type(l, n->in[k]);
    cy_karg arg = cy_kb_arg(b, cy_lower_place(l, n->in[k]), (cy_dtype)t->dtype, CY_ARG_READ);
    *(k == 2 ? &c->has_a_zero : &c->has_b_zero) = true;
    *(k == 2 ? &c->a_zero : &c->b_zero) = arg;
    c->b_zero_step = k == 3 && t->rank && !cy_dim_is(l->g, t->dim[0], 1);
  }
  const cy_buffer *buffer = &l->p->buffers[w->buffer];
  if (buffer->kind == CY_BUF_CONST)
    c->b_const = l->p->constants[buffer->index].value;
  *out_x = x;
  *out_w = w;
}

/* Batch axes: the leading ones of the output; an operand that lacks one or has size 1 there stands still. */
static cy_dim batch_stride(cy_lowering *l, const cy_type *t, const cy_place *p, const cy_type *out, int axis) {
  int i = axis - (out->rank - t->rank);
  int64_t unused;
  if (i < 0 || cy_dim_is(l->g, t->dim[i], 1))
    return cy_dim_const(l->g, 0);
  if (t->dim[i] == out->dim[axis] || cy_dim_is_const(l->g, t->dim[i], &unused))
    return p->stride[i];
  /* 1 or the output's size: only the running model knows */
  return cy_dim_mul(l->g, p->stride[i], cy_dim_min(l->g, cy_dim_addi(l->g, t->dim[i], -1), cy_dim_const(l->g, 1)));
}

/* A product with one column is better one with one row: sums of dense rows of a, in place, by vectors. */
enum { MIN_DENSE = 16 };

static bool is_dense_column(cy_kb *b, const cy_contraction *c, const cy_type *ta, const cy_type *tb) {
  const cy_graph *g = b->l->g;
  int64_t k;
  return cy_dim_is(g, c->n, 1) && !cy_dim_is(g, c->m, 1) && cy_dim_is(g, c->a_k, 1) && cy_dim_is(g, c->b_k, 1) &&
         cy_dim_is_const(g, c->k, &k) && k >= MIN_DENSE && ta->dtype == CY_F32 && tb->dtype == CY_F32;
}

static void swap_dims(cy_dim *a, cy_dim *b) {
  cy_dim t = *a;
  *a = *b;
  *b = t;
}

static void swap_operands(cy_contraction *c) {
  cy_karg a = c->a;
  c->a = c->b;
  c->b = a;
  c->b_const = 0;
  swap_dims(&c->m, &c->n);
  swap_dims(&c->a_m, &c->b_n);
  for (int i = 0; i < c->nbatch; i++)
    swap_dims(&c->a_batch[i], &c->b_batch[i]);
}

static bool build_matmul(cy_kb *b, const cy_node_info *n, cy_expr *out_idx) {
  cy_lowering *l = b->l;
  cy_contraction *c = cy_kernel_contraction(b->k);
  const cy_type *ta = cy_lower_type(l, n->in[0]), *tb = cy_lower_type(l, n->in[1]), *t = cy_lower_type(l, n->out[0]);
  if (t->rank - 2 > CY_MAX_BATCH)
    return false;
  cy_place *pa, *pb;
  set_operands(b, n, &pa, &pb);
  c->kind = CY_CONTRACT_MATMUL;
  for (int i = 0; i < t->rank - 2; i++) {
    if (cy_dim_is(l->g, t->dim[i], 1)) {
      out_idx[i] = cy_x_index(b->k, 0);
      continue;
    }
    out_idx[i] = cy_x_var(b->k, out_var(b, t->dim[i]));
    c->batch[c->nbatch] = t->dim[i];
    c->a_batch[c->nbatch] = batch_stride(l, ta, pa, t, i);
    c->b_batch[c->nbatch++] = batch_stride(l, tb, pb, t, i);
  }
  c->m = t->dim[t->rank - 2];
  c->n = t->dim[t->rank - 1];
  c->k = ta->dim[ta->rank - 1];
  c->a_m = pa->stride[ta->rank - 2];
  c->a_k = pa->stride[ta->rank - 1];
  c->b_k = pb->stride[tb->rank - 2];
  c->b_n = pb->stride[tb->rank - 1];
  bool swap = is_dense_column(b, c, ta, tb);
  if (swap)
    swap_operands(c);
  cy_expr row = cy_x_var(b->k, out_var(b, c->m)), column = cy_x_var(b->k, out_var(b, c->n));
  out_idx[t->rank - 2] = swap ? column : row;
  out_idx[t->rank - 1] = swap ? row : column;
  return true;
}

/* Do rows of both feature maps lie together, and not channels? Of a feature map with one channel that says nothing. */
static bool is_planar(cy_lowering *l, const cy_node_info *n, const cy_place *x) {
  const cy_graph *g = l->g;
  const cy_type *tx = cy_lower_type(l, n->in[0]), *t = cy_lower_type(l, n->out[0]);
  if (!l->caps->conv_cycles || n->op != CY_OP_conv || tx->dtype != CY_F32 ||
      cy_lower_type(l, n->in[1])->dtype != CY_F32 || !cy_dim_is(g, x->stride[tx->rank - 1], 1))
    return false;
  if (cy_dim_is(g, tx->dim[1], 1))
    return !cy_dim_is(g, t->dim[1], 1) && cy_layout_is_row_major(cy_value_of(g, n->out[0]));
  return !cy_dim_is(g, x->stride[1], 1);
}

static bool is_zero(const char *p, size_t size) {
  while (size && !*p)
    p++, size--;
  return !size;
}

/* Along axis i of w, [shuffle.., o, c, taps..]: how many elements of all kernels are zeros in front and behind. Element
 * tap * positions + position, taps running backwards, is what the position of a place has at the tap. */
static cy_shuffle_fill fill_of(cy_lowering *l, const cy_node_info *n, const cy_attr *shuffle, int axis) {
  const cy_type *t = cy_lower_type(l, n->in[1]);
  const char *bytes = cy_value_of(l->g, n->in[1])->data.bytes;
  size_t size = (size_t)cy_dtype_of((cy_dtype)t->dtype)->bits / 8;
  int64_t d[CY_MAX_RANK], inner = 1, position = 1, positions = shuffle->ints[axis], first = INT64_MAX, last = -1;
  if (!bytes || !cy_type_static(l->g, t, d))
    return (cy_shuffle_fill){positions, 0, 0};
  int64_t taps = d[2 + axis], parts = 1;
  for (uint32_t i = 0; i < shuffle->n; i++) {
    parts *= shuffle->ints[i];
    position *= (int)i > axis ? shuffle->ints[i] : 1; /* parts from a position to the next */
  }
  for (int i = 3 + axis; i < t->rank; i++)
    inner *= d[i];
  int64_t rows = d[0] / parts * d[1]; /* of taps: of a part, if there were but this axis */
  for (int i = 2; i < 2 + axis; i++)
    rows *= d[i];
  for (int64_t row = 0; row < parts * rows; row++)
    for (int64_t tap = 0; tap < taps; tap++) {
      int64_t at = (taps - 1 - tap) * positions + row / rows / position % positions;
      if ((at < first || at > last) &&
          !is_zero(bytes + (row * taps + tap) * inner * (int64_t)size, (size_t)inner * size)) {
        first = at < first ? at : first;
        last = at > last ? at : last;
      }
    }
  return last < 0 ? (cy_shuffle_fill){positions, 0, 0}
                  : (cy_shuffle_fill){positions, first, taps * positions - 1 - last};
}

/* Indices of places and shuffled channels, [shuffle.., channel], become those of the output. */
static void shuffle_out(cy_kb *b, const cy_attr *shuffle, cy_dim channels, cy_expr *idx) {
  cy_kernel *k = b->k;
  cy_expr part = cy_x_bin(k, CY_OP_div, idx[1], cy_x_dim(k, channels));
  idx[1] = cy_x_bin(k, CY_OP_mod, idx[1], cy_x_dim(k, channels));
  for (uint32_t i = shuffle->n; i-- > 0;) {
    cy_expr positions = cy_x_index(k, shuffle->ints[i]), at = i ? cy_x_bin(k, CY_OP_mod, part, positions) : part;
    idx[2 + i] = cy_x_bin(k, CY_OP_add, cy_x_bin(k, CY_OP_mul, idx[2 + i], positions), at);
    part = cy_x_bin(k, CY_OP_div, part, positions);
  }
}

static bool build_conv(cy_kb *b, const cy_node_info *n, cy_expr *out_idx) {
  cy_lowering *l = b->l;
  cy_contraction *c = cy_kernel_contraction(b->k);
  const cy_type *tx = cy_lower_type(l, n->in[0]), *tw = cy_lower_type(l, n->in[1]), *t = cy_lower_type(l, n->out[0]);
  const cy_attr *strides = cy_attr_find(n, CY_ATTR_strides), *pads = cy_attr_find(n, CY_ATTR_pads);
  const cy_attr *dilations = cy_attr_find(n, CY_ATTR_dilations), *shuffle = cy_attr_find(n, CY_ATTR_shuffle);
  if (tx->rank - 2 > CY_MAX_SPATIAL)
    return false;
  cy_place *px, *pw;
  set_operands(b, n, &px, &pw);
  if (!cy_lower_is_contiguous(l, pw, tw))
    return false; /* an expanded or sliced constant */
  c->kind = n->op == CY_OP_conv ? CY_CONTRACT_CONV : CY_CONTRACT_CONV_TRANSPOSE;
  c->nspatial = tx->rank - 2;
  c->group = cy_attr_get_int(n, CY_ATTR_group, 1);
  c->images = t->dim[0];
  c->channels_in = tx->dim[1];
  c->channels_out = shuffle ? tw->dim[0] : t->dim[1];
  c->x_image = px->stride[0];
  c->x_channel = px->stride[1];
  out_idx[0] = cy_x_var(b->k, out_var(b, t->dim[0]));
  c->planar = is_planar(l, n, px);
  if (c->planar)
    out_idx[1] = cy_x_var(b->k, out_var(b, c->channels_out));
  for (int i = 0; i < c->nspatial; i++) {
    c->in[i] = tx->dim[2 + i];
    c->out[i] = shuffle ? cy_dim_div(l->g, t->dim[2 + i], cy_dim_const(l->g, shuffle->ints[i])) : t->dim[2 + i];
    c->pad[i] = cy_dim_const(l->g, pads->ints[i]);
    c->stride[i] = strides->ints[i];
    c->dilation[i] = dilations ? dilations->ints[i] : 1;
    c->x_spatial[i] = px->stride[2 + i];
    if (!cy_dim_is_const(l->g, tw->dim[2 + i], &c->kernel[i]))
      return false;
    out_idx[2 + i] = cy_x_var(b->k, out_var(b, c->out[i]));
    if (shuffle)
      c->shuffle[i] = fill_of(l, n, shuffle, i);
  }
  if (!c->planar)
    out_idx[1] = cy_x_var(b->k, out_var(b, c->channels_out));
  if (shuffle)
    shuffle_out(b, shuffle, t->dim[1], out_idx);
  return true;
}

static bool lower_generated(cy_lowering *l, const cy_node_info *n, cy_val root_value, cy_val target) {
  if (!cy_lower_generates(l))
    return false;
  cy_maxima_rounding rounding;
  for (uint32_t k = 0; k < n->nin; k++)
    if (n->in[k] && !cy_lower_is_stored(l, n->in[k]) && (k || !cy_maxima_rounds(l->g, n->in[0], &rounding)))
      return false;
  cy_kb b;
  cy_kb_init(&b, l, cy_op_of((cy_op)n->op)->name);
  cy_expr idx[CY_MAX_RANK];
  if (!(n->op == CY_OP_matmul ? build_matmul(&b, n, idx) : build_conv(&b, n, idx)))
    return false;
  cy_contraction *c = cy_kernel_contraction(b.k);
  c->acc = cy_kernel_add_local(b.k, cy_compute_dtype((cy_dtype)cy_lower_type(l, root_value)->dtype));
  if (!cy_caps_supports(l->caps, b.k))
    return false;
  const cy_type *t = cy_lower_type(l, target);
  cy_expr value = cy_lower_behind(&b, target, root_value, idx, cy_x_local(b.k, c->acc));
  cy_kb_store(&b, cy_lower_place(l, target), (cy_dtype)t->dtype, t->rank, idx, value);
  cy_lower_maxima(&b, target, idx, value);
  if (n->op == CY_OP_matmul)
    cy_kernel_fold_batches(b.k);
  else
    cy_kernel_fold_positions(b.k);
  cy_kb_launch(&b, false);
  return true;
}

/* Where a convolution pads, its plain loops read a padded copy: range checks in the inner loop would cost more. */
static cy_place padded_input(cy_lowering *l, const cy_node_info *n) {
  const cy_type *t = cy_lower_type(l, n->in[0]);
  const cy_attr *pads = cy_attr_find(n, CY_ATTR_pads);
  cy_dim dims[CY_MAX_RANK] = {t->dim[0], t->dim[1]};
  for (int i = 2, s = t->rank - 2; i < t->rank; i++)
    dims[i] = cy_dim_addi(l->g, t->dim[i], pads->ints[i - 2] + pads->ints[s + i - 2]);
  cy_place to = cy_lower_temp(l, (cy_dtype)t->dtype, dims, t->rank);
  cy_kb b;
  cy_kb_init(&b, l, "conv_pad");
  cy_kernel *k = b.k;
  cy_expr idx[CY_MAX_RANK], in_idx[CY_MAX_RANK], inside = 0;
  for (int i = 0; i < t->rank; i++) {
    in_idx[i] = idx[i] = cy_kb_grid_index(&b, dims[i]);
    if (i < 2)
      continue;
    in_idx[i] = cy_x_bin(k, CY_OP_sub, idx[i], cy_x_index(k, pads->ints[i - 2]));
    cy_expr ok = cy_lower_in_range(&b, in_idx[i], t->dim[i]);
    inside = inside ? cy_x_bin(k, CY_OP_and, inside, ok) : ok;
    in_idx[i] = cy_lower_clamp(&b, in_idx[i], t->dim[i]);
  }
  cy_expr value = cy_lower_at(&b, n->in[0], in_idx);
  cy_dtype dtype = cy_compute_dtype((cy_dtype)t->dtype);
  cy_expr zero = cy_dtype_is_float(dtype) ? cy_x_const(k, dtype, 0) : cy_x_int(k, dtype, 0);
  if (n->nin > 2 && n->in[2])
    zero = cy_lower_at(&b, n->in[2], NULL);
  cy_kb_store(&b, &to, (cy_dtype)t->dtype, t->rank, idx, cy_x_select(k, inside, value, zero));
  cy_kb_launch(&b, true);
  return to;
}

static bool pads_anything(const cy_node_info *n) {
  const cy_attr *pads = cy_attr_find(n, CY_ATTR_pads);
  bool any = false;
  for (uint32_t i = 0; i < pads->n; i++) {
    if (pads->ints[i] < 0)
      return false; /* a crop: the plain loops' range checks do that */
    any |= pads->ints[i] > 0;
  }
  return any;
}

void cy_lower_contraction(cy_lowering *l, cy_node root, cy_val root_value, cy_val target) {
  const cy_node_info *n = cy_node_of(l->g, root);
  if (lower_generated(l, n, root_value, target) || cy_lower_unfolded(l, root, root_value, target))
    return;
  cy_place padded;
  bool pads = n->op == CY_OP_conv && pads_anything(n);
  if (pads)
    padded = padded_input(l, n);
  cy_lower_plain(l, root_value, target, cy_op_of((cy_op)n->op)->name, pads ? &padded : NULL);
}
