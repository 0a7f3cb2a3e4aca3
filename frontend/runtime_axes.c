/* runtime_axes.c - axes that only running tells: a Reduce, Squeeze, Unsqueeze or Slice whose axes are a graph input.
 *
 * In:  the axes as dims (symbols read from data); only their number is known. Out: a mask with one dim per dimension of
 * the tensor, 1 where it is named and 0 elsewhere, and shapes computed with it. All of it is dim arithmetic: the host
 * program evaluates it once the axes have been read, and kernels see nothing new. A reduction reduces every axis in
 * turn and keeps the result where the mask says so, which costs one pass per axis; exporters write constant axes, so
 * what counts here is that every valid model works. Axes are taken as distinct, as the standard demands.
 */
#include "frontend/import_int.h"

cy_dim cy_onnx_dim_equals(cy_importer *im, cy_dim a, int64_t i) {
  cy_graph *g = im->g;
  cy_dim apart = cy_dim_max(g, cy_dim_addi(g, a, -i), cy_dim_sub(g, cy_dim_const(g, i), a));
  return cy_dim_max(g, cy_dim_const(g, 0), cy_dim_sub(g, cy_dim_const(g, 1), apart));
}

static cy_dim without(cy_importer *im, cy_dim flag) { return cy_dim_sub(im->g, cy_dim_const(im->g, 1), flag); }

bool cy_onnx_axes_known(cy_importer *im, const cy_onnx_node *n, uint32_t k) {
  uint32_t count;
  int64_t unused;
  const cy_type *t = n->in[k] ? cy_onnx_type(im, n->in[k]) : NULL;
  if (!t || (t->rank == 1 && cy_dim_is(im->g, t->dim[0], 0)))
    return true;
  const cy_dim *e = cy_value_elems(im->g, n->in[k], &count);
  for (uint32_t i = 0; e && i < count; i++)
    if (!cy_dim_is_const(im->g, e[i], &unused))
      return false;
  return e != NULL;
}

bool cy_onnx_axes_mask(cy_importer *im, const cy_onnx_node *n, uint32_t k, bool more, int rank, cy_dim *out_mask,
                       uint32_t *out_n) {
  const cy_dim *axes = cy_onnx_elems(im, n, k, out_n);
  if (!axes)
    return false;
  rank += more ? (int)*out_n : 0;
  if ((int)*out_n > rank || rank > CY_MAX_RANK)
    return cy_build_error(im->g, "axes", "%u axes for a tensor of rank %d", *out_n, rank);
  for (int i = 0; i < rank; i++) {
    out_mask[i] = cy_dim_const(im->g, 0);
    for (uint32_t a = 0; a < *out_n; a++) {
      cy_dim axis = cy_dim_mod(im->g, axes[a], cy_dim_const(im->g, rank));
      out_mask[i] = cy_dim_add(im->g, out_mask[i], cy_onnx_dim_equals(im, axis, i));
    }
  }
  return true;
}

void cy_onnx_dims_without(cy_importer *im, const cy_dim *dims, const cy_dim *mask, int rank, int left, cy_dim *out) {
  cy_graph *g = im->g;
  cy_dim before = cy_dim_const(g, 0); /* dimensions kept in front of i */
  for (int j = 0; j < left; j++)
    out[j] = cy_dim_const(g, 0);
  for (int i = 0; i < rank; i++) {
    cy_dim kept = without(im, mask[i]), size = cy_dim_mul(g, kept, dims[i]);
    for (int j = 0; j < left; j++)
      out[j] = cy_dim_add(g, out[j], cy_dim_mul(g, size, cy_onnx_dim_equals(im, before, j)));
    before = cy_dim_add(g, before, kept);
  }
}

void cy_onnx_dims_with(cy_importer *im, const cy_dim *dims, const cy_dim *mask, int rank, int from, cy_dim *out) {
  cy_graph *g = im->g;
  cy_dim before = cy_dim_const(g, 0); /* dimensions of the input in front of i */
  for (int i = 0; i < rank; i++) {
    cy_dim old = cy_dim_const(g, 0), kept = without(im, mask[i]);
    for (int k = 0; k < from; k++)
      old = cy_dim_add(g, old, cy_dim_mul(g, dims[k], cy_onnx_dim_equals(im, before, k)));
    out[i] = cy_dim_add(g, mask[i], cy_dim_mul(g, kept, old));
    before = cy_dim_add(g, before, kept);
  }
}

cy_val cy_onnx_flag(cy_importer *im, cy_dim flag) { return CAST(cy_build_dim_scalar(im->g, flag), CY_BOOL); }

cy_val cy_onnx_reduce_masked(cy_importer *im, cy_op op, cy_val x, const cy_dim *mask, uint32_t naxes, bool keepdims) {
  if (!x)
    return 0;
  const cy_type t = *cy_onnx_type(im, x);
  cy_dim start[CY_MAX_RANK], size[CY_MAX_RANK], left[CY_MAX_RANK];
  for (int64_t i = 0; i < t.rank && x; i++) {
    x = SELECT(cy_onnx_flag(im, mask[i]), cy_build_reduce(im->g, op, x, &i, 1, true), x);
    start[i] = cy_dim_const(im->g, 0);
    size[i] = cy_dim_add(im->g, mask[i], cy_dim_mul(im->g, without(im, mask[i]), t.dim[i]));
  }
  x = x ? cy_build_slice(im->g, x, start, NULL, size) : 0;
  if (keepdims || !x)
    return x;
  cy_onnx_dims_without(im, t.dim, mask, t.rank, t.rank - (int)naxes, left);
  return cy_build_reshape(im->g, x, left, t.rank - (int)naxes);
}
