/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_qlinear.c - com.microsoft's quantised operators: the operator they are named after between dequantize and
 * quantize.
 *
 * That is what they mean; pass `quantised` makes integer kernels of it, as of the same thing spelled out by
 * DequantizeLinear and QuantizeLinear. An operator that has an importer of its own is imported by that one, which sees
 * the dequantised inputs (cy_onnx_inner).
 */
#include "frontend/import_int.h"

#define X (n->in[0])
#define SET(v) cy_importer_set(im, n, 0, (v))

/* Input k of n, quantised; its scale and zero point are inputs s and z. */
static cy_val real(cy_importer *im, const cy_onnx_node *n, uint32_t k, uint32_t s, uint32_t z) {
  if (!n->in[k] || !n->in[s])
    return cy_build_error(im->g, NULL, "expected a tensor as input %u and its scale as input %u", k, s);
  return cy_onnx_dequantize(im, n->in[k], n->in[s], n->in[z]);
}

/* Output 0 of n: y, quantised with inputs s and z; `like` tells the type where there is no zero point. */
static bool put(cy_importer *im, const cy_onnx_node *n, cy_val y, uint32_t s, uint32_t z, cy_val like) {
  if (!n->in[s])
    return cy_build_error(im->g, NULL, "expected the scale of the output as input %u", s);
  return SET(cy_onnx_quantize(im, y, n->in[s], n->in[z], (cy_dtype)cy_onnx_type(im, like)->dtype));
}

/* a, its scale and zero point, b, .., the output's. The argument: a cy_op. */
IMPORT(qlinear_binary) {
  cy_val y = cy_build_binary(im->g, (cy_op)n->arg, real(im, n, 0, 1, 2), real(im, n, 3, 4, 5));
  return put(im, n, y, 6, 7, X);
}

/* x, its scale and zero point, the output's. The argument: Q_SIGMOID and so on. */
IMPORT(qlinear_unary) {
  cy_onnx_inner q;
  cy_onnx_inner_init(&q, n);
  bool last = cy_onnx_int(im, n, "channels_last", 0) != 0, ok = false;
  q.in[0] = real(im, n, 0, 1, 2);
  /* Pools may have their channels last. */
  if (!q.in[0] || (last && !(q.in[0] = cy_onnx_transpose_channels(im, q.in[0], false))))
    return false;
  switch (n->arg) {
  case Q_SIGMOID:
    ok = cy_importer_set(im, &q.n, 0, UNARY(sigmoid, q.in[0]));
    break;
  case Q_LEAKY_RELU:
    ok = cy_import_leaky_relu(im, &q.n);
    break;
  case Q_SOFTMAX:
    q.n.version = (int)cy_onnx_int(im, n, "opset", 13);
    q.n.arg = CY_OP_softmax;
    ok = cy_import_softmax(im, &q.n);
    break;
  case Q_AVERAGE_POOL:
    ok = cy_import_average_pool(im, &q.n);
    break;
  case Q_GLOBAL_AVERAGE_POOL:
    ok = cy_import_global_average_pool(im, &q.n);
    break;
  case Q_REDUCE_MEAN:
    q.n.version = 13;
    q.n.arg = REDUCE_MEAN;
    ok = cy_import_reduce(im, &q.n);
    break;
  }
  return ok && put(im, n, last ? cy_onnx_transpose_channels(im, q.out[0], true) : q.out[0], 3, 4, X);
}

/* The output's scale and zero point, then every input with its own. */
IMPORT(qlinear_concat) {
  uint32_t count = n->nin / 3;
  int axis;
  if (n->nin < 5 || n->nin % 3 != 2)
    return cy_build_error(im->g, NULL, "expected a scale and a zero point, and three inputs for each tensor, found %u",
                          n->nin);
  cy_val *v = CY_NEW_ARRAY(im->arena, cy_val, count);
  for (uint32_t i = 0; i < count; i++)
    if (!(v[i] = real(im, n, 2 + 3 * i, 3 + 3 * i, 4 + 3 * i)))
      return false;
  return cy_onnx_axis(im, cy_onnx_int(im, n, "axis", 1), cy_onnx_type(im, v[0])->rank, &axis) &&
         put(im, n, cy_build_concat(im->g, v, count, axis), 0, 1, n->in[2]);
}

/* condition, x, scale, zero, y, scale, zero, the output's. */
IMPORT(qlinear_where) {
  cy_val y = cy_build_select(im->g, X, real(im, n, 1, 2, 3), real(im, n, 4, 5, 6));
  return put(im, n, y, 7, 8, n->in[1]);
}

static cy_val transposed(cy_importer *im, cy_val x, bool wanted) {
  static const int64_t swap[2] = {1, 0};
  return x && wanted ? cy_build_transpose(im->g, x, swap) : x;
}

/* a, scale, zero, b, scale, zero, c in i32 with the scale of the products, the output's: f32 without. */
IMPORT(qgemm) {
  if (cy_onnx_type(im, X)->rank != 2 || cy_onnx_type(im, n->in[3])->rank != 2)
    return cy_build_error(im->g, NULL, "expected two matrices, found %s and %s",
                          cy_type_text(im->g, cy_onnx_type(im, X)), cy_type_text(im->g, cy_onnx_type(im, n->in[3])));
  bool transpose_b = cy_onnx_int(im, n, "transB", 0) != 0;
  cy_val a = transposed(im, real(im, n, 0, 1, 2), cy_onnx_int(im, n, "transA", 0) != 0);
  cy_val b =
      transposed(im, cy_onnx_dequantize_along(im, n->in[3], n->in[4], n->in[5], transpose_b ? 0 : 1), transpose_b);
  cy_val y = a && b ? cy_build_matmul(im->g, a, b, CY_F32) : 0;
  if (y && n->in[6])
    y = ADD(y, MUL(CAST(n->in[6], CY_F32), MUL(cy_onnx_per_tensor(im, n->in[1]), cy_onnx_per_tensor(im, n->in[4]))));
  double alpha = cy_onnx_float(im, n, "alpha", 1);
  y = y && alpha != 1 ? MUL(y, LIKE(y, alpha)) : y;
  return n->in[7] ? put(im, n, y, 7, 8, X) : SET(y);
}

/* input, weight, bias, their scales, mask_index, their zero points, past: Attention of the dequantised. */
IMPORT(qattention) {
  cy_onnx_inner q;
  cy_onnx_inner_init(&q, n);
  q.n.nout = n->nout;
  q.in[0] = cy_onnx_dequantize(im, X, n->in[3], n->in[6]);
  q.in[1] = cy_onnx_dequantize_along(im, n->in[1], n->in[4], n->in[7], 1);
  q.in[2] = n->in[2];
  q.in[3] = n->in[5];
  q.in[4] = n->in[8];
  q.n.nin = 5;
  if (!q.in[0] || !q.in[1] || !cy_import_ms_attention(im, &q.n))
    return false;
  for (uint32_t i = 0; i < n->nout && i < 2; i++)
    if (cy_onnx_wants(n, i) && !cy_importer_set(im, n, i, q.out[i]))
      return false;
  return true;
}

/* Rows of u8 that hold several elements in each byte, as u8 of one each: as many along the last axis as `like` has. */
static cy_val unpack_rows(cy_importer *im, cy_val v, int64_t bits, const cy_type *like) {
  const cy_type t = *cy_onnx_type(im, v);
  v = cy_onnx_unpack(im, v, bits, t.dim, t.rank);
  return v && like ? cy_build_slice_axis(im->g, v, t.rank - 1, cy_dim_const(im->g, 0), like->dim[t.rank - 1]) : v;
}

/* Scales, or zero points, of blocks of data of dims d; several elements of these in a byte along the last axis: `per`.
 */
static bool check_blocks(cy_importer *im, cy_val v, const cy_dim *d, int rank, int along, int64_t block, int64_t per,
                         const char *item) {
  const cy_type *t = cy_onnx_type(im, v);
  bool fits = t->rank == rank;
  for (int i = 0; fits && i < rank; i++) {
    cy_dim wanted = i == along ? cy_dim_cdiv(im->g, d[i], cy_dim_const(im->g, block)) : d[i];
    fits = !cy_onnx_clash(im, t->dim[i], i + 1 == rank ? cy_dim_cdiv(im->g, wanted, cy_dim_const(im->g, per)) : wanted);
  }
  return fits || cy_build_error(im->g, item, "expected one for each block of %lld elements along axis %d, found %s",
                                (long long)block, along, cy_type_text(im->g, t));
}

/* Rows of blockwise quantised data: data, indices, scales, zero points. */
IMPORT(gather_block_quantized) {
  const cy_type t = *cy_onnx_type(im, X), ti = *cy_onnx_type(im, n->in[1]);
  int64_t block = cy_onnx_int(im, n, "block_size", 128), bits = cy_onnx_int(im, n, "bits", 4);
  int gather, along;
  if (!cy_onnx_axis(im, cy_onnx_int(im, n, "gather_axis", 0), t.rank, &gather) ||
      !cy_onnx_axis(im, cy_onnx_int(im, n, "quantize_axis", 1), t.rank, &along))
    return false;
  if (block < 16 || (block & (block - 1)))
    return cy_build_error(im->g, "attribute 'block_size'", "expected a power of two from 16 on, found %lld",
                          (long long)block);
  bool packed = t.dtype == CY_U8 && bits != 8;
  if (packed && bits != 2 && bits != 4)
    return cy_build_error(im->g, "attribute 'bits'", "expected 2, 4 or 8, found %lld", (long long)bits);
  int64_t per = packed ? 8 / bits : 1;
  cy_dim whole[CY_MAX_RANK];
  for (int i = 0; i < t.rank; i++)
    whole[i] = i + 1 == t.rank ? cy_dim_muli(im->g, t.dim[i], per) : t.dim[i];
  if (!check_blocks(im, n->in[2], whole, t.rank, along, block, 1, "input 'scales'") ||
      (n->in[3] && !check_blocks(im, n->in[3], whole, t.rank, along, block, per, "input 'zero_points'")))
    return false;
  if (n->in[3] && cy_onnx_type(im, n->in[3])->dtype != t.dtype)
    return cy_build_error(im->g, "input 'zero_points'", "expected the type of the data, found %s",
                          cy_type_text(im->g, cy_onnx_type(im, n->in[3])));
  if (!cy_onnx_check_indices(im, n->in[1], whole[gather], true))
    return false;
  bool late = gather == along || (packed && gather == t.rank - 1); /* then everything is dequantised first */
  cy_val in[3] = {late ? X : cy_build_gather(im->g, X, n->in[1], gather),
                  late ? n->in[2] : cy_build_gather(im->g, n->in[2], n->in[1], gather)};
  cy_val zero = n->in[3];
  if (!zero && t.dtype == CY_U8)
    zero =
        cy_onnx_fill(im, cy_build_scalar_int(im->g, CY_U8, 1 << (bits - 1)), cy_onnx_type(im, n->in[2])->dim, t.rank);
  in[2] = zero && !late ? cy_build_gather(im->g, zero, n->in[1], gather) : zero;
  if (!in[0] || !in[1] || (zero && !in[2]))
    return false;
  if (packed)
    in[0] = unpack_rows(im, in[0], bits, NULL);
  if (packed && n->in[3])
    in[2] = unpack_rows(im, in[2], bits, cy_onnx_type(im, in[1]));
  if (!in[0] || (zero && !in[2]))
    return false;
  cy_attr a[2] = {cy_attr_int(CY_ATTR_axis, late || along < gather ? along : along + ti.rank - 1),
                  cy_attr_int(CY_ATTR_block_size, block)};
  cy_type type = *cy_onnx_type(im, in[0]);
  type.dtype = cy_onnx_type(im, n->in[2])->dtype;
  cy_val y = cy_build(im->g, CY_OP_dequantize, in, in[2] ? 3 : 2, a, 2, &type, 1);
  return SET(late && y ? cy_build_gather(im->g, y, n->in[1], gather) : y);
}
