/* SPDX-License-Identifier: Apache-2.0 */
/* weights_spelled.c - dequantisation that an exporter spelled out (torchao's) as what it is: rules of simplify.
 *
 * In:  a product's second factor, maybe transposed: (q - zero) * scale of constants, q of up to 8 bits, by channels
 *
 *   mul(cast.f32(sub(cast.i32(q), zero)), scale)        q [n, k], scale [n, 1] or [1, k]
 *
 * or by blocks, of q [n, blocks, rows], scale [n, blocks, 1] (or q [blocks, rows, n]), and with a reshape behind it to
 * [n, blocks * rows]. The difference may be of floats, or an addition, or missing.
 * Out: dequantize, of which pass `weights` makes products of integers (weights_given.c), where that keeps it so.
 *
 * Refused: zero points that are no whole numbers in the range of q; differences that wrap around or are rounded; all that
 * such products do not read, which is cheaper to compute from where it is read.
 */
#include "quantise_int.h"
#include "passes/simplify.h"

#include <math.h>

typedef struct spelled {
  cy_val q, scale, zero; /* zero: 0: there is none */
  bool added;            /* what is, is minus the zero point */
  cy_dtype from;         /* what the difference is computed in */
} spelled;

static cy_dtype dtype_of(const cy_graph *g, cy_val v) { return (cy_dtype)cy_type_of(g, v)->dtype; }

/* What casts of numbers give that lose nothing of 8 bits. */
static cy_val behind_casts(const cy_graph *g, cy_val v) {
  const cy_node_info *n = cy_def_of(g, v, CY_OP_cast);
  while (n && cy_cast_lossless(dtype_of(g, n->in[0]), dtype_of(g, v))) {
    v = n->in[0];
    n = cy_def_of(g, v, CY_OP_cast);
  }
  return v;
}

static bool is_constant(const cy_graph *g, cy_val v) { return cy_value_of(g, v)->data.bytes != NULL; }

/* What a product of v and scales is made of. */
static bool read_product(const cy_graph *g, const cy_node_info *mul, spelled *out) {
  *out = (spelled){.scale = mul->in[1]};
  cy_val v = mul->in[0];
  const cy_node_info *cast = cy_def_of(g, v, CY_OP_cast), *d;
  if (cast && dtype_of(g, cast->in[0]) == CY_F16 && cy_def_of(g, cast->in[0], CY_OP_cast))
    cast = cy_def(g, cast->in[0]); /* which has all whole numbers up to 2048 */
  v = cast ? cast->in[0] : v;
  d = cy_def_of(g, v, CY_OP_sub);
  d = d ? d : cy_def_of(g, v, CY_OP_add);
  out->from = dtype_of(g, v);
  out->zero = d ? behind_casts(g, d->in[1]) : 0;
  out->added = d && d->op == CY_OP_add;
  out->q = behind_casts(g, d ? d->in[0] : v);
  const cy_dtype_info *q = cy_dtype_of(dtype_of(g, out->q)), *from = cy_dtype_of(out->from);
  bool rounds = d && (from->cls == 'U' || from->bits < (cy_dtype_is_float(out->from) ? 32 : 16));
  return dtype_of(g, mul->out[0]) == CY_F32 && dtype_of(g, out->scale) == CY_F32 &&
         is_constant(g, behind_casts(g, out->scale)) && is_constant(g, out->q) && (q->cls == 'I' || q->cls == 'U') &&
         q->bits <= 8 && !rounds && (!d || is_constant(g, out->zero));
}

/* Zero points of q's dtype, [dims], of which there are as many as scales or one for all. 0: they are no such numbers. */
static cy_val zero_points(cy_graph *g, const spelled *s, const cy_dim *dims, int rank) {
  const cy_value *v = cy_value_of(g, s->zero);
  cy_dtype t = dtype_of(g, s->q), from = (cy_dtype)v->type.dtype;
  cy_type type = cy_type_make(t, rank, dims);
  uint64_t count = cy_type_count(g, &type), given = cy_type_count(g, &v->type);
  const void *bytes = v->data.bytes;
  cy_val made;
  if (given != 1 && (given != count || !cy_same_shape(&v->type, cy_type_of(g, s->scale))))
    return 0;
  void *to = cy_const_new(g, &type, &made);
  for (uint64_t i = 0; i < count; i++) {
    cy_scalar x = cy_scalar_load(bytes, from, given == 1 ? 0 : i);
    double zero = cy_dtype_is_float(from) ? x.f : cy_dtype_of(from)->cls == 'U' ? (double)x.u : (double)x.i;
    zero = s->added ? -zero : zero;
    cy_scalar_store(to, t, i, (cy_scalar){.i = (int64_t)(fabs(zero) < 256 ? zero : 256)});
    cy_scalar back = cy_scalar_load(to, t, i);
    if ((cy_dtype_of(t)->cls == 'U' ? (double)back.u : (double)back.i) != zero)
      return 0;
  }
  return made;
}

/* dequantize of q as a matrix, its scales and zero points being [dims]. */
static cy_val dequantized(cy_graph *g, const spelled *s, const cy_type *matrix, const cy_dim *dims, int rank, int axis,
                          int64_t block) {
  cy_val in[3] = {0, 0, s->zero ? zero_points(g, s, dims, rank) : 0};
  if (s->zero && !in[2])
    return 0;
  in[0] = cy_build_reshape(g, s->q, matrix->dim, matrix->rank);
  in[1] = cy_build_reshape(g, s->scale, dims, rank);
  const cy_attr attrs[2] = {cy_attr_int(CY_ATTR_axis, axis), cy_attr_int(CY_ATTR_block_size, block)};
  return cy_build(g, CY_OP_dequantize, in, in[2] ? 3 : 2, attrs, 2, matrix, 1);
}

/* Is v one of this round's that products keep as integers? */
static bool stays(const cy_rewrite *rw, cy_val v) {
  return v <= rw->nvalues && cy_type_of(rw->g, v)->rank == 2 && cy_weights_wanted(rw->pass, v, &rw->uses);
}

static cy_val by_channels(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  spelled s;
  if (!stays(rw, n->out[0]) || !read_product(g, n, &s))
    return 0;
  const cy_type w = *cy_type_of(g, n->out[0]), t = *cy_type_of(g, s.scale);
  int axis = cy_dim_is(g, t.dim[0], 1) ? 1 : 0;
  if (t.rank != 2 || !cy_same_shape(cy_type_of(g, s.q), &w) || !cy_dim_is(g, t.dim[1 - axis], 1) ||
      t.dim[axis] != w.dim[axis])
    return 0;
  return dequantized(g, &s, &w, &t.dim[axis], 1, axis, 0);
}

static cy_val by_blocks(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  const cy_node_info *mul = cy_def_of(g, n->in[0], CY_OP_mul);
  spelled s;
  if (!mul || !stays(rw, n->out[0]) || !read_product(g, mul, &s))
    return 0;
  const cy_type w = *cy_type_of(g, n->out[0]), *q = cy_type_of(g, s.q), *t = cy_type_of(g, s.scale);
  int axis = t->rank == 3 && cy_dim_is(g, t->dim[2], 1) ? 1 : 0, rows = axis + 1; /* q's axis of a block */
  int64_t block;
  if (q->rank != 3 || t->rank != 3 || !cy_dim_is(g, t->dim[rows], 1) || !cy_same_shape(q, cy_type_of(g, n->in[0])) ||
      q->dim[axis ? 0 : 2] != w.dim[1 - axis] || !cy_dim_is_const(g, q->dim[rows], &block))
    return 0;
  const cy_dim dims[2] = {t->dim[0], t->dim[axis ? 1 : 2]};
  if (dims[0] != q->dim[0] || dims[1] != q->dim[axis ? 1 : 2])
    return 0;
  return dequantized(g, &s, &w, dims, 2, axis, block);
}

static const cy_rule rules[] = {
    {CY_OP_mul, "weights by channels", by_channels},
    {CY_OP_reshape, "weights by blocks", by_blocks},
};

cy_rule_set cy_weights_spelled_rules(void) { return (cy_rule_set){rules, sizeof rules / sizeof *rules}; }
