/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_contrib.c - com.microsoft operators that exporters and optimisers write, and removed experimental ones, as
 * compositions.
 */
#include "frontend/import_int.h"

#include <math.h>
#include <string.h>

#define X (n->in[0])
#define SET(v) cy_importer_set(im, n, 0, (v))

/* Opset 1 experimental: scale * x + bias per channel. */
IMPORT(image_scaler) {
  const cy_type *t = cy_onnx_type(im, X);
  uint32_t count;
  const double *bias = cy_onnx_floats(im, n, "bias", &count);
  if (t->rank < 2 || !bias || count == 0)
    return cy_build_error(im->g, "attribute 'bias'", "expected one number per channel of %s, found %u",
                          cy_type_text(im->g, t), count);
  float *v = cy_arena_alloc(cy_graph_arena(im->g), sizeof(float) * count);
  for (uint32_t i = 0; i < count; i++)
    v[i] = (float)bias[i];
  cy_dim d = cy_dim_const(im->g, count);
  cy_type list = cy_type_make(CY_F32, 1, &d);
  cy_val shift = CAST(cy_build_const(im->g, &list, v, sizeof(float) * count), t->dtype);
  return SET(ADD(MUL(X, LIKE(X, cy_onnx_float(im, n, "scale", 1))), cy_onnx_per_channel(im, shift, "attribute 'bias'", X, 1)));
}

/* Input, skip, gamma, beta (not for the simplified form: the argument), bias; the sum may be asked for as output 3. */
IMPORT(skip_layer_norm) {
  bool rms = n->arg != 0;
  cy_val sum = ADD(X, n->in[1]), bias = n->in[rms ? 3 : 4], beta = rms ? 0 : n->in[3];
  sum = bias ? ADD(sum, bias) : sum;
  if (!sum || cy_onnx_wants(n, 1) || cy_onnx_wants(n, 2))
    return sum && cy_build_error(im->g, NULL, "outputs 'mean' and 'inv_std_var' are for training and not supported");
  if (!cy_onnx_broadcasts_to(im, n->in[2], "input 'gamma'", sum) || !cy_onnx_broadcasts_to(im, beta, "input 'beta'", sum))
    return false;
  int64_t axis = cy_onnx_type(im, sum)->rank - 1;
  cy_val y =
      MUL(cy_onnx_normalize(im, sum, &axis, 1, cy_onnx_float(im, n, "epsilon", rms ? 1e-6 : 1e-12), rms), n->in[2]);
  cy_importer_set(im, n, 3, sum);
  return SET(beta ? ADD(y, beta) : y);
}

/* Number of unmasked tokens per sequence; 0 without a mask. */
static cy_val mask_index(cy_importer *im, const cy_onnx_node *n) {
  const cy_type *t = cy_onnx_type(im, X);
  const int64_t axis = 1;
  if (!n->in[7])
    return cy_onnx_fill(im, cy_build_scalar_int(im->g, CY_I32, 0), t->dim, 1);
  return cy_build_reduce(im->g, CY_OP_reduce_sum, CAST(n->in[7], CY_I32), &axis, 1, false);
}

IMPORT(embed_layer_norm) {
  const cy_type *t = cy_onnx_type(im, X);
  if (!n->in[2] || !n->in[3] || !n->in[5] || !n->in[6])
    return cy_build_error(im->g, NULL, "expected tables of words and positions, gamma and beta: inputs 2, 3, 5 and 6");
  if (t->rank != 2)
    return cy_build_error(im->g, "input 'input_ids'", "expected [batch, sequence], found %s", cy_type_text(im->g, t));
  if (n->in[1] && !n->in[4])
    return cy_build_error(im->g, "input 'segment_embedding'", "segment_ids need it");
  if (!n->in[8] && !cy_onnx_at_most(im, "input 'position_embedding'", t->dim[1], cy_onnx_type(im, n->in[3])->dim[0]))
    return false;
  cy_val at = n->in[8] ? n->in[8] : cy_build_iota(im->g, CY_I64, &t->dim[1], 1, 0);
  const cy_val looked_up[3] = {X, n->in[1], n->in[8]}, tables[3] = {n->in[2], n->in[4], n->in[3]};
  for (int i = 0; i < 3; i++)
    if (looked_up[i] && !cy_onnx_check_rows(im, looked_up[i], tables[i]))
      return false;
  cy_val sum = ADD(cy_build_gather(im->g, n->in[2], X, 0), cy_build_gather(im->g, n->in[3], at, 0));
  if (n->in[1] && n->in[4])
    sum = ADD(sum, cy_build_gather(im->g, n->in[4], n->in[1], 0));
  if (!sum)
    return false;
  const int64_t axis = 2;
  cy_val y = cy_onnx_normalize(im, sum, &axis, 1, cy_onnx_float(im, n, "epsilon", 1e-12), false);
  if (cy_onnx_wants(n, 1) && !cy_importer_set(im, n, 1, mask_index(im, n)))
    return false;
  cy_importer_set(im, n, 2, sum);
  return SET(ADD(MUL(y, n->in[5]), n->in[6]));
}

cy_val cy_onnx_unpack(cy_importer *im, cy_val packed, int64_t bits, const cy_dim *dims, int rank) {
  int64_t per = 8 / bits;
  if (per == 1)
    return cy_build_reshape(im->g, packed, dims, rank);
  cy_dim parts[CY_MAX_RANK], grown[CY_MAX_RANK];
  memcpy(grown, dims, sizeof(cy_dim) * (size_t)rank);
  memcpy(parts, dims, sizeof(cy_dim) * (size_t)rank);
  parts[rank] = cy_dim_const(im->g, 1);
  cy_dim four[1] = {cy_dim_const(im->g, per)};
  cy_val shift = MUL(cy_build_iota(im->g, CY_U8, four, 1, 0), cy_build_scalar_int(im->g, CY_U8, bits));
  cy_val v = BINARY(and, BINARY(shr, cy_build_reshape(im->g, packed, parts, rank + 1), shift),
                    cy_build_scalar_int(im->g, CY_U8, (1 << bits) - 1));
  grown[rank - 1] = cy_dim_muli(im->g, dims[rank - 1], per);
  return cy_build_reshape(im->g, v, grown, rank);
}

/* Which block's scale each of the k rows has: 0 where that is as it lies; else [k] of integers. */
static bool read_groups(cy_importer *im, cy_val groups, int64_t k, int64_t block, cy_val *out) {
  *out = 0;
  if (!groups)
    return true;
  const cy_type *t = cy_onnx_type(im, groups);
  int64_t blocks = cy_ceil(k, block), given;
  if (t->rank != 1 || !cy_dtype_is_int(t->dtype) || !cy_dim_is_const(im->g, t->dim[0], &given) || given < k)
    return cy_build_error(im->g, "input 'g_idx'", "expected the block of each of %lld rows, found %s", (long long)k,
                          cy_type_text(im->g, t));
  uint32_t count;
  const double *v = cy_value_floats(im->g, groups, &count);
  bool usual = v != NULL;
  for (uint32_t i = 0; v && i < (uint32_t)k; i++) {
    if (v[i] < 0 || v[i] >= (double)blocks)
      return cy_build_error(im->g, "input 'g_idx'", "expected numbers of %lld blocks, found %g as element %u",
                            (long long)blocks, v[i], i);
    usual = usual && (int64_t)v[i] == i / block;
  }
  if (!usual)
    *out = cy_build_slice_axis(im->g, groups, 0, cy_dim_const(im->g, 0), cy_dim_const(im->g, k));
  return usual || *out;
}

/* The codes of B, of dims [n, blocks, bytes], as a matrix of dims `flat`. Constants stay as they lie: so do tensors of
 * u4 and u2. */
static cy_val codes_of(cy_importer *im, cy_val b, int64_t bits, const cy_dim *dims, const cy_dim *flat) {
  cy_val packed = cy_build_reshape(im->g, b, dims, 3);
  cy_data data = cy_value_of(im->g, b)->data;
  if (packed && bits < 8 && data.bytes && cy_onnx_type(im, b)->dtype == CY_U8) {
    cy_type t = cy_type_make(bits == 4 ? CY_U4 : CY_U2, 2, flat);
    return cy_build_const(im->g, &t, data.bytes, data.size);
  }
  return cy_build_reshape(im->g, cy_onnx_unpack(im, packed, bits, dims, 3), flat, 2);
}

/* Codes w [n, k] with a scale and a zero point (0: the middle of their range) for every `block` of a row. */
static cy_val blockwise(cy_importer *im, cy_val w, cy_val scale, cy_val zero, int64_t bits, int64_t block,
                        cy_dtype dtype) {
  cy_attr a[2] = {cy_attr_int(CY_ATTR_axis, 1), cy_attr_int(CY_ATTR_block_size, block)};
  if (!w || !scale)
    return 0;
  cy_type type = *cy_onnx_type(im, w);
  zero = zero ? CAST(zero, (cy_dtype)type.dtype) : cy_build_scalar_int(im->g, (cy_dtype)type.dtype, 1 << (bits - 1));
  type.dtype = dtype;
  return zero ? cy_build(im->g, CY_OP_dequantize, (cy_val[]){w, scale, zero}, 3, a, 2, &type, 1) : 0;
}

/* The same where rows of weights may have any block's scale (groups, else 0) and zero points are no codes. */
static cy_val spelled_out(cy_importer *im, cy_val w, cy_val scale, cy_val zero, cy_val groups, int64_t k,
                          cy_dim blocks) {
  if (!w || !scale || !zero)
    return 0;
  const cy_type t = *cy_onnx_type(im, w);
  bool many = cy_onnx_type(im, zero)->rank != 0;
  w = CAST(w, cy_onnx_type(im, scale)->dtype);
  if (groups) { /* a scale for each row of weights */
    w = cy_build_slice_axis(im->g, w, 1, cy_dim_const(im->g, 0), cy_dim_const(im->g, k));
    zero = many ? cy_build_gather(im->g, zero, groups, 1) : zero;
    return MUL(SUB(w, zero), cy_build_gather(im->g, scale, groups, 1));
  }
  cy_dim each[3] = {t.dim[0], blocks, cy_dim_div(im->g, t.dim[1], blocks)};
  zero = many ? cy_build_unsqueeze(im->g, zero, 2) : zero;
  w = MUL(SUB(cy_build_reshape(im->g, w, each, 3), zero), cy_build_unsqueeze(im->g, scale, 2));
  return cy_build_reshape(im->g, w, t.dim, 2);
}

/* x with zeros behind its columns, up to k of them. */
static cy_val filled_up(cy_importer *im, cy_val x, int64_t given, int64_t k) {
  cy_dim pads[2 * CY_MAX_RANK] = {0};
  int rank = cy_onnx_type(im, x)->rank;
  if (!rank || given == k)
    return x;
  for (int i = 0; i < 2 * rank; i++)
    pads[i] = cy_dim_const(im->g, i == 2 * rank - 1 ? k - given : 0);
  return cy_build_pad(im->g, x, pads, CY_PAD_CONSTANT, LIKE(x, 0));
}

/* accuracy_level 4 lets kernels round the rows of x to 8 bits. */
static cy_val product_of(cy_importer *im, const cy_onnx_node *n, cy_val x, cy_val w, cy_dtype dtype) {
  if (cy_onnx_int(im, n, "accuracy_level", 0) != 4 || !x || !w || cy_onnx_type(im, x)->rank < 2)
    return cy_onnx_matmul(im, x, w, dtype);
  const cy_attr quantised_rows = cy_attr_int(CY_ATTR_round, CY_I8);
  const cy_type type = {.dtype = (uint8_t)dtype};
  return cy_build(im->g, CY_OP_matmul, (cy_val[]){x, w}, 2, &quantised_rows, 1, &type, 1);
}

/* Packed 2-, 4- or 8-bit weights B [n, blocks, bytes], scales and zero points per block: dequantised, then a matrix
 * product. */
IMPORT(matmul_nbits) {
  int64_t k = cy_onnx_int(im, n, "K", 0), columns = cy_onnx_int(im, n, "N", 0), bits = cy_onnx_int(im, n, "bits", 4),
          block = cy_onnx_int(im, n, "block_size", 0);
  cy_dtype dtype = cy_onnx_type(im, X)->dtype;
  if (k < 1 || columns < 1 || block < 16 || block > 1 << 20 || (block & (block - 1)) || k > (int64_t)1 << 40 ||
      columns > (int64_t)1 << 40 || (bits != 2 && bits != 4 && bits != 8))
    return cy_build_error(im->g, NULL,
                          "expected positive K and N, a block_size that is a power of two from 16 on and 2, 4 or 8 "
                          "bits, found %lld, %lld, "
                          "%lld and %lld",
                          (long long)k, (long long)columns, (long long)block, (long long)bits);
  if (cy_onnx_int(im, n, "weight_prepacked", 0))
    return cy_build_error(im->g, "attribute 'weight_prepacked'", "weights in the order of a device are not supported");
  cy_val groups;
  if (!read_groups(im, n->in[4], k, block, &groups))
    return false;
  uint32_t count;
  const double *scales = cy_value_floats(im->g, n->in[2], &count);
  for (uint32_t i = 0; scales && i < count; i++)
    if (!isfinite(scales[i]))
      return cy_build_error(im->g, "a scale", "expected finite numbers, found %g as element %u of %s", scales[i], i,
                            cy_type_text(im->g, cy_onnx_type(im, n->in[2])));
  int64_t blocks = cy_ceil(k, block), zp_bytes = cy_ceil(blocks * bits, 8);
  cy_dim d[3] = {cy_dim_const(im->g, columns), cy_dim_const(im->g, blocks), cy_dim_const(im->g, block * bits / 8)};
  cy_dim zp_dims[2] = {d[0], cy_dim_const(im->g, zp_bytes)};
  cy_dim flat[2] = {d[0], cy_dim_const(im->g, blocks * block)};
  cy_val w = codes_of(im, n->in[1], bits, d, flat), zp = n->in[3];
  cy_val scale = cy_build_reshape(im->g, n->in[2], d, 2);
  bool codes = zp && cy_onnx_type(im, zp)->dtype == CY_U8;
  if (codes) {
    zp = cy_onnx_unpack(im, cy_build_reshape(im->g, zp, zp_dims, 2), bits, zp_dims, 2);
    zp = cy_build_slice_axis(im->g, zp, 1, cy_dim_const(im->g, 0), d[1]);
  } else if (zp) {
    zp = cy_build_reshape(im->g, zp, d, 2);
  }
  if (groups || (zp && !codes))
    w = spelled_out(im, w, scale, zp ? CAST(zp, dtype) : LIKE(X, (double)(1 << (bits - 1))), groups, k, d[1]);
  else
    w = blockwise(im, w, scale, zp, bits, block, dtype);
  const int64_t swap[2] = {1, 0};
  cy_val x = groups ? X : filled_up(im, X, k, blocks * block); /* a last block that is not full stays whole */
  cy_val y = product_of(im, n, x, cy_build_transpose(im->g, w, swap), dtype);
  return SET(n->in[5] ? ADD(y, n->in[5]) : y);
}

/* The values that codes of four bits stand for, as bitsandbytes has them: floats of one sign, two exponent and one
 * mantissa bit over their largest; quantiles of the normal distribution. */
static const float bnb_values[2][16] = {
    {0, 1 / 192.0F, 2 / 3.0F, 1, 1 / 3.0F, 0.5F, 1 / 6.0F, 0.25F, -0.0F, -1 / 192.0F, -2 / 3.0F, -1, -1 / 3.0F, -0.5F,
     -1 / 6.0F, -0.25F},
    {-1, -0.6961928009986877F, -0.5250730514526367F, -0.39491748809814453F, -0.28444138169288635F,
     -0.18477343022823334F, -0.09105003625154495F, 0, 0.07958029955625534F, 0.16093020141124725F, 0.24611230194568634F,
     0.33791524171829224F, 0.44070982933044434F, 0.5626170039176941F, 0.7229568362236023F, 1}};

/* A times B [N, K], transposed by default. B: codes of four bits, the first of a byte high, and the largest
 * absolute value of each block of them, whatever rows these are in. */
IMPORT(matmul_bnb4) {
  int64_t k = cy_onnx_int(im, n, "K", 0), rows = cy_onnx_int(im, n, "N", 0),
          block = cy_onnx_int(im, n, "block_size", 0), kind = cy_onnx_int(im, n, "quant_type", -1);
  cy_dtype dtype = cy_onnx_type(im, X)->dtype;
  const int64_t max = (int64_t)1 << 30, swap[2] = {1, 0};
  if (k < 1 || rows < 1 || k > max || rows > max || block < 16 || block > 1 << 20 || (block & (block - 1)) ||
      kind < 0 || kind > 1 || cy_onnx_type(im, n->in[1])->dtype != CY_U8)
    return cy_build_error(
        im->g, NULL,
        "expected positive K and N, a block_size that is a power of two from 16 on, quant_type 0 or 1 "
        "and bytes, found %lld, %lld, %lld, %lld and %s",
        (long long)k, (long long)rows, (long long)block, (long long)kind,
        cy_type_text(im->g, cy_onnx_type(im, n->in[1])));
  int64_t count = k * rows, bytes = (count + 1) / 2, blocks = cy_ceil(count, block);
  cy_dim packed[2] = {cy_dim_const(im->g, bytes), cy_dim_const(im->g, 1)}, sixteen = cy_dim_const(im->g, 16);
  cy_dim pairs[2] = {packed[0], cy_dim_const(im->g, 2)}, codes = cy_dim_const(im->g, bytes * 2),
         all = cy_dim_const(im->g, count);
  cy_dim per_block[2] = {cy_dim_const(im->g, blocks), packed[1]},
         spread[2] = {per_block[0], cy_dim_const(im->g, block)};
  cy_dim whole = cy_dim_const(im->g, blocks * block), matrix[2] = {cy_dim_const(im->g, rows), cy_dim_const(im->g, k)};
  cy_type list = cy_type_make(CY_F32, 1, &sixteen);
  cy_val table = CAST(cy_build_const(im->g, &list, bnb_values[kind], sizeof bnb_values[kind]), dtype);
  cy_val high = cy_build_iota(im->g, CY_U8, pairs, 2, 1), four = cy_build_scalar_int(im->g, CY_U8, 4);
  cy_val code = BINARY(shr, cy_build_reshape(im->g, n->in[1], packed, 2), SUB(four, MUL(high, four)));
  code = BINARY(and, code, cy_build_scalar_int(im->g, CY_U8, 15));
  code =
      code ? cy_build_slice_axis(im->g, cy_build_reshape(im->g, code, &codes, 1), 0, cy_dim_const(im->g, 0), all) : 0;
  cy_val scale = cy_build_expand(im->g, cy_build_reshape(im->g, n->in[2], per_block, 2), spread, 2);
  scale =
      scale ? cy_build_slice_axis(im->g, cy_build_reshape(im->g, scale, &whole, 1), 0, cy_dim_const(im->g, 0), all) : 0;
  if (!code || !scale)
    return false;
  cy_val b = cy_build_reshape(im->g, MUL(cy_build_gather(im->g, table, CAST(code, CY_I64), 0), scale), matrix, 2);
  if (b && cy_onnx_int(im, n, "transB", 1))
    b = cy_build_transpose(im->g, b, swap);
  return SET(cy_onnx_matmul(im, X, b, dtype));
}

/* Rotates pairs of the last axis: x * cos + rotate(x) * sin, halves or neighbours. */
static cy_val rotate(cy_importer *im, cy_val x, cy_val cosine, cy_val sine, cy_dim half, bool interleaved) {
  const cy_type t = *cy_onnx_type(im, x);
  int last = t.rank - 1;
  cy_dim pairs[CY_MAX_RANK], zero = cy_dim_const(im->g, 0), one = cy_dim_const(im->g, 1);
  if (!interleaved) {
    cy_val a = cy_build_slice_axis(im->g, x, last, zero, half), b = cy_build_slice_axis(im->g, x, last, half, half);
    cy_val v[2] = {SUB(MUL(a, cosine), MUL(b, sine)), ADD(MUL(a, sine), MUL(b, cosine))};
    return v[0] && v[1] ? cy_build_concat(im->g, v, 2, last) : 0;
  }
  memcpy(pairs, t.dim, sizeof pairs);
  pairs[last] = half;
  pairs[t.rank] = cy_dim_const(im->g, 2);
  x = cy_build_reshape(im->g, x, pairs, t.rank + 1);
  cy_val a = cy_build_reshape(im->g, cy_build_slice_axis(im->g, x, t.rank, zero, one), pairs, t.rank);
  cy_val b = cy_build_reshape(im->g, cy_build_slice_axis(im->g, x, t.rank, one, one), pairs, t.rank);
  cy_val v[2] = {SUB(MUL(a, cosine), MUL(b, sine)), ADD(MUL(a, sine), MUL(b, cosine))};
  for (int i = 0; i < 2; i++)
    if (!v[i] || !(v[i] = cy_build_unsqueeze(im->g, v[i], t.rank)))
      return 0;
  return cy_build_reshape(im->g, cy_build_concat(im->g, v, 2, t.rank), t.dim, t.rank);
}

/* x [b, s, heads, size], of which the first `rotated` are rotated; cosine and sine [b, s, turn / 2], b may be 1. */
cy_val cy_onnx_rotary(cy_importer *im, cy_val x, cy_val cosine, cy_val sine, cy_dim rotated, bool interleaved) {
  if (!x || !cosine || !sine)
    return 0;
  cy_val c = cy_build_unsqueeze(im->g, cosine, 2), s = cy_build_unsqueeze(im->g, sine, 2);
  cy_dim rest = cy_dim_sub(im->g, cy_onnx_type(im, x)->dim[3], rotated),
         half = cy_dim_div(im->g, rotated, cy_dim_const(im->g, 2));
  const cy_type *tc = cy_onnx_type(im, cosine), *ts = cy_onnx_type(im, sine);
  if (tc->rank != 3 || ts->rank != 3)
    return cy_build_error(im->g, "inputs 'cos_cache', 'sin_cache'",
                          "expected a row for each position, [batch, sequence, half of a head], found %s and %s",
                          cy_type_text(im->g, tc), cy_type_text(im->g, ts));
  for (int i = 0; i < tc->rank && i < ts->rank; i++)
    cy_graph_require(im->g, tc->dim[i], ts->dim[i], CY_REQUIRE_EQUAL);
  cy_val given[2] = {cosine, sine};
  for (int i = 0; i < 2; i++) {
    const cy_type *t = cy_onnx_type(im, given[i]);
    if (cy_onnx_clash(im, t->dim[t->rank - 1], half))
      return cy_build_error(im->g, i ? "input 'sin_cache'" : "input 'cos_cache'", "expected %s values for a position, found %s",
                            cy_dim_text(im->g, half), cy_type_text(im->g, t));
    cy_graph_require(im->g, t->dim[t->rank - 1], half, CY_REQUIRE_EQUAL);
    for (int k = 0; k < 2; k++) /* batch, sequence */
      if (k || !cy_dim_is(im->g, t->dim[0], 1))
        cy_graph_require(im->g, t->dim[k], cy_onnx_type(im, x)->dim[k], CY_REQUIRE_EQUAL);
  }
  cy_val head = c && s ? cy_build_slice_axis(im->g, x, 3, cy_dim_const(im->g, 0), rotated) : 0;
  cy_val y = head ? rotate(im, head, c, s, half, interleaved) : 0;
  if (!y || cy_dim_is(im->g, rest, 0))
    return y;
  cy_val both[2] = {y, cy_build_slice_axis(im->g, x, 3, rotated, rest)};
  return both[1] ? cy_build_concat(im->g, both, 2, 3) : 0;
}

/* ai.onnx: X, cos, sin, positions; com.microsoft (argument 1): X, positions, cos, sin. X is [b, heads, s, d] or [b, s,
 * heads * d]. */
IMPORT(rotary_embedding) {
  bool ms = n->arg != 0;
  cy_val x = X, cosine = n->in[ms ? 2 : 1], sine = n->in[ms ? 3 : 2], at = ms ? n->in[1] : n->in[3];
  const cy_type t = *cy_onnx_type(im, X);
  int64_t heads = cy_onnx_int(im, n, "num_heads", 0), dims = cy_onnx_int(im, n, "rotary_embedding_dim", 0);
  if ((t.rank != 4 && (t.rank != 3 || (heads < 1 && !ms))) || !sine || dims % 2)
    return cy_build_error(im->g, NULL,
                          "expected [batch, heads, sequence, size], or three dimensions and num_heads, found %s",
                          cy_type_text(im->g, &t));
  if (t.rank == 3) {
    cy_dim width = heads ? cy_dim_div(im->g, t.dim[2], cy_dim_const(im->g, heads))
                         : cy_dim_muli(im->g, cy_onnx_type(im, cosine)->dim[cy_onnx_type(im, cosine)->rank - 1], 2);
    cy_dim d[4] = {t.dim[0], t.dim[1], cy_dim_div(im->g, t.dim[2], width), width};
    x = cy_build_reshape(im->g, x, d, 4);
  } else {
    x = cy_onnx_move_axis(im, x, 1, 2);
  }
  if (!x)
    return false;
  const cy_type tx = *cy_onnx_type(im, x); /* [b, s, heads, d] */
  cy_val cs[2] = {cosine, sine};
  if (at && ms && cy_onnx_type(im, at)->rank != 2) { /* one offset, not positions per token */
    if (!cy_onnx_at_most(im, "input 'cos_cache'", tx.dim[1], cy_onnx_type(im, cosine)->dim[0]))
      return false;
    at = ADD(cy_build_iota(im->g, CY_I64, &tx.dim[1], 1, 0), cy_build_reshape(im->g, CAST(at, CY_I64), NULL, 0));
  }
  for (int i = 0; i < 2; i++) {
    if (at && !cy_onnx_check_rows(im, at, cs[i]))
      return false;
    if (at)
      cs[i] = cy_build_gather(im->g, cs[i], at, 0);
    if (cs[i] && cy_onnx_type(im, cs[i])->rank == 2) /* the same for every sequence */
      cs[i] = cy_build_unsqueeze(im->g, cs[i], 0);
    if (!cs[i])
      return false;
  }
  cy_dim rotated = dims ? cy_dim_const(im->g, dims) : tx.dim[3];
  cy_val y = cy_onnx_rotary(im, x, cs[0], cs[1], rotated, cy_onnx_int(im, n, "interleaved", 0) != 0);
  return SET(t.rank == 3 ? cy_build_reshape(im->g, y, t.dim, 3) : cy_onnx_move_axis(im, y, 1, 2));
}
