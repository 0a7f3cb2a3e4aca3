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
  return SET(ADD(MUL(X, LIKE(X, cy_onnx_float(im, n, "scale", 1))), cy_onnx_channel(im, shift, t->rank, 1)));
}

/* Runs the importer of an operator of ai.onnx on a node that stands for it. */
static bool import_as(cy_importer *im, cy_onnx_node *n, const char *op, int version) {
  const cy_onnx_row *row = cy_onnx_find("", op, version);
  n->op = op;
  n->domain = "";
  n->version = version;
  n->since = row->since;
  n->arg = row->arg;
  return row->import(im, n);
}

/* Means what ai.onnx's operator of the same name meant at an operator set: the argument. */
IMPORT(as_standard) {
  cy_onnx_node standard = *n;
  return import_as(im, &standard, n->op, n->arg);
}

IMPORT(expand_dims) {
  cy_onnx_node standard = *n;
  return import_as(im, &standard, "Unsqueeze", 13);
}

/* Input 0 and output 0 are [n, s.., c], if an attribute does not deny it. */
IMPORT(channels_last) {
  bool pool = strcmp(n->op, "NhwcMaxPool") == 0, last = pool || cy_onnx_int(im, n, "channels_last", 0) != 0;
  int rank = cy_onnx_type(im, X)->rank;
  cy_val in[CY_ONNX_MIN_IN], y = 0;
  cy_onnx_node inner = *n;
  memcpy(in, n->in, sizeof in);
  if (last && rank > 2)
    in[0] = cy_onnx_move_axis(im, X, rank - 1, 1);
  inner.in = in;
  inner.out = &y;
  return in[0] && import_as(im, &inner, pool ? "MaxPool" : n->op, 12) &&
         SET(last && rank > 2 ? cy_onnx_move_axis(im, y, 1, rank - 1) : y);
}

/* The operator that attribute 'activation' of a fused one names, on x, with up to two parameters of its own. */
static cy_val activate(cy_importer *im, const cy_onnx_node *n, cy_val x, const double *p, uint32_t count) {
  static const struct {
    const char *name, *parameter[2];
  } known[] = {
      {"Relu", {0}},
      {"Tanh", {0}},
      {"Sigmoid", {0}},
      {"Softplus", {0}},
      {"Softsign", {0}},
      {"Elu", {"alpha"}},
      {"LeakyRelu", {"alpha"}},
      {"ThresholdedRelu", {"alpha"}},
      {"Clip", {"min", "max"}},
      {"HardSigmoid", {"alpha", "beta"}},
  };
  enum { KNOWN = sizeof known / sizeof known[0] };
  const char *name = cy_onnx_string(im, n, "activation", "");
  if (!x || !name[0])
    return x;
  int k = 0;
  while (k < KNOWN && strcmp(known[k].name, name) != 0)
    k++;
  if (k == KNOWN)
    return cy_build_error(im->g, "attribute 'activation'", "activation '%s' is not supported", name);
  Onnx__AttributeProto attributes[2], *list[2];
  Onnx__NodeProto proto = ONNX__NODE_PROTO__INIT;
  proto.attribute = list;
  for (uint32_t i = 0; i < 2 && i < count && known[k].parameter[i]; i++) {
    list[i] = &attributes[i];
    *list[i] = (Onnx__AttributeProto)ONNX__ATTRIBUTE_PROTO__INIT;
    list[i]->name = (char *)known[k].parameter[i];
    list[i]->has_type = list[i]->has_f = true;
    list[i]->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
    list[i]->f = (float)p[i];
    proto.n_attribute = i + 1;
  }
  cy_val in[CY_ONNX_MIN_IN] = {x}, y = 0;
  cy_onnx_node inner = *n;
  inner.proto = &proto;
  inner.in = in;
  inner.out = &y;
  inner.nin = inner.nout = 1;
  return import_as(im, &inner, name, 6) ? y : 0; /* Clip's bounds became inputs later */
}

IMPORT(fused_conv) {
  uint32_t count;
  const double *parameters = cy_onnx_floats(im, n, "activation_params", &count);
  cy_val y = cy_onnx_conv(im, n, X, n->in[1], cy_onnx_type(im, X)->dtype);
  if (y && n->in[2])
    y = ADD(y, cy_onnx_channel(im, n->in[2], cy_onnx_type(im, y)->rank, 1));
  return SET(activate(im, n, n->in[3] ? ADD(y, n->in[3]) : y, parameters, count));
}

IMPORT(fused_gemm) {
  double parameters[2] = {cy_onnx_float(im, n, "activation_alpha", 0), cy_onnx_float(im, n, "activation_beta", 0)};
  uint32_t count = cy_onnx_has(n, "activation_beta") ? 2 : cy_onnx_has(n, "activation_alpha") ? 1 : 0;
  cy_onnx_node gemm = *n;
  cy_val y = 0;
  gemm.version = 13;
  gemm.out = &y;
  return cy_import_gemm(im, &gemm) && SET(activate(im, n, y, parameters, count));
}

/* Input, skip, gamma, beta (not for the simplified form: the argument), bias; the sum may be asked for as output 3. */
IMPORT(skip_layer_norm) {
  bool rms = n->arg != 0;
  cy_val sum = ADD(X, n->in[1]), bias = n->in[rms ? 3 : 4], beta = rms ? 0 : n->in[3];
  sum = bias ? ADD(sum, bias) : sum;
  if (!sum || cy_onnx_wants(n, 1) || cy_onnx_wants(n, 2))
    return sum && cy_build_error(im->g, NULL, "outputs 'mean' and 'inv_std_var' are for training and not supported");
  int64_t axis = cy_onnx_type(im, sum)->rank - 1;
  cy_val y =
      MUL(cy_onnx_normalize(im, sum, &axis, 1, cy_onnx_float(im, n, "epsilon", rms ? 1e-6 : 1e-12), rms), n->in[2]);
  cy_importer_set(im, n, 3, sum);
  return SET(beta ? ADD(y, beta) : y);
}

/* Over groups of channels, the last axis or axis 1, after adding skip and bias (the argument), whose sum is output 1;
 * then SiLU, if asked for. */
IMPORT(ms_group_norm) {
  bool last = cy_onnx_int(im, n, "channels_last", 1) != 0;
  const cy_type t = *cy_onnx_type(im, X);
  int64_t groups = cy_onnx_int(im, n, "groups", 0), c;
  const int64_t axis = 2;
  if (t.rank != 4 || groups < 1 || !cy_dim_is_const(im->g, t.dim[last ? 3 : 1], &c) || c % groups)
    return cy_build_error(im->g, "attribute 'groups'", "%lld groups do not fit %s", (long long)groups,
                          cy_type_text(im->g, &t));
  cy_val x = last ? cy_onnx_move_axis(im, X, 3, 1) : X, skip = n->arg ? n->in[3] : 0;
  if (skip && cy_onnx_type(im, skip)->rank == 2) {
    const cy_type *ts = cy_onnx_type(im, skip);
    cy_dim one = cy_dim_const(im->g, 1), d[4] = {ts->dim[0], ts->dim[1], one, one};
    skip = cy_build_reshape(im->g, skip, d, 4);
  } else if (skip && last) {
    skip = cy_onnx_move_axis(im, skip, 3, 1);
  }
  x = skip ? ADD(x, skip) : x;
  x = n->arg && n->in[4] ? ADD(x, cy_onnx_channel(im, n->in[4], 4, 1)) : x;
  if (x && cy_onnx_wants(n, 1) && !cy_importer_set(im, n, 1, last ? cy_onnx_move_axis(im, x, 1, 3) : x))
    return false;
  if (!x)
    return false;
  const cy_type tx = *cy_onnx_type(im, x);
  cy_dim rows[3] = {tx.dim[0], cy_dim_const(im->g, groups),
                    cy_dim_div(im->g, cy_type_elems(im->g, &tx), cy_dim_muli(im->g, tx.dim[0], groups))};
  cy_val y = cy_build_reshape(im->g, CAST(x, CY_F32), rows, 3);
  y = y ? cy_onnx_normalize(im, y, &axis, 1, cy_onnx_float(im, n, "epsilon", 1e-5), false) : 0;
  y = y ? cy_build_reshape(im->g, y, tx.dim, 4) : 0;
  y = y ? ADD(MUL(y, cy_onnx_channel(im, CAST(n->in[1], CY_F32), 4, 1)),
              cy_onnx_channel(im, CAST(n->in[2], CY_F32), 4, 1))
        : 0;
  if (y && cy_onnx_int(im, n, "activation", 0) != 0)
    y = MUL(y, UNARY(sigmoid, y));
  return y && SET(CAST(last ? cy_onnx_move_axis(im, y, 1, 3) : y, t.dtype));
}

IMPORT(bias_add) { return SET(ADD(ADD(X, n->in[1]), n->in[2])); }

/* (x + bias) in halves: left * gelu(right). */
IMPORT(bias_split_gelu) {
  cy_val x = ADD(X, n->in[1]), half[2];
  if (!x)
    return false;
  const cy_type t = *cy_onnx_type(im, x);
  cy_dim size = cy_dim_div(im->g, t.dim[t.rank - 1], cy_dim_const(im->g, 2));
  for (int i = 0; i < 2; i++)
    half[i] = cy_build_slice_axis(im->g, x, t.rank - 1, i ? size : cy_dim_const(im->g, 0), size);
  cy_val in[CY_ONNX_MIN_IN] = {half[1]}, y = 0;
  cy_onnx_node gelu = *n;
  gelu.in = in;
  gelu.out = &y;
  return half[0] && half[1] && import_as(im, &gelu, "Gelu", 20) && SET(MUL(half[0], y));
}

/* Distances of the rows of two matrices from each other. */
IMPORT(cdist) {
  int metric = cy_onnx_word(im, n, "metric", "sqeuclidean", "euclidean|sqeuclidean");
  if (cy_onnx_type(im, X)->rank != 2 || cy_onnx_type(im, n->in[1])->rank != 2)
    return cy_build_error(im->g, NULL, "expected two matrices, found %s and %s",
                          cy_type_text(im->g, cy_onnx_type(im, X)), cy_type_text(im->g, cy_onnx_type(im, n->in[1])));
  const int64_t axis = 2;
  cy_val d = metric < 0 ? 0 : SUB(cy_build_unsqueeze(im->g, X, 1), cy_build_unsqueeze(im->g, n->in[1], 0));
  cy_val y = d ? cy_build_reduce(im->g, CY_OP_reduce_sum, MUL(d, d), &axis, 1, false) : 0;
  return y && SET(metric == 0 ? UNARY(sqrt, y) : y);
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
  if (t->rank != 2)
    return cy_build_error(im->g, "input 'input_ids'", "expected [batch, sequence], found %s", cy_type_text(im->g, t));
  cy_val at = n->in[8] ? n->in[8] : cy_build_iota(im->g, CY_I64, &t->dim[1], 1, 0);
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

/* Packed 2-, 4- or 8-bit weights B [n, blocks, bytes], scales and zero points per block: dequantised, then a matrix
 * product. */
static cy_val unpack(cy_importer *im, cy_val packed, int64_t bits, const cy_dim *dims, int rank) {
  int64_t per = 8 / bits;
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

IMPORT(matmul_nbits) {
  int64_t k = cy_onnx_int(im, n, "K", 0), columns = cy_onnx_int(im, n, "N", 0), bits = cy_onnx_int(im, n, "bits", 4),
          block = cy_onnx_int(im, n, "block_size", 0);
  cy_dtype dtype = cy_onnx_type(im, X)->dtype;
  if (k < 1 || columns < 1 || block < 16 || block > 1 << 20 || k > (int64_t)1 << 40 || columns > (int64_t)1 << 40 ||
      (bits != 2 && bits != 4 && bits != 8))
    return cy_build_error(
        im->g, NULL,
        "expected positive K and N, a block_size of 16 or more and 2, 4 or 8 bits, found %lld, %lld, %lld and %lld",
        (long long)k, (long long)columns, (long long)block, (long long)bits);
  if (n->in[4])
    return cy_build_error(im->g, "input 'g_idx'", "group indices are not supported");
  int64_t blocks = (k + block - 1) / block, zp_bytes = (blocks * bits + 7) / 8;
  cy_dim d[3] = {cy_dim_const(im->g, columns), cy_dim_const(im->g, blocks), cy_dim_const(im->g, block * bits / 8)};
  cy_dim per_block[3] = {d[0], d[1], cy_dim_const(im->g, 1)}, zp_dims[2] = {d[0], cy_dim_const(im->g, zp_bytes)};
  cy_val w = CAST(unpack(im, cy_build_reshape(im->g, n->in[1], d, 3), bits, d, 3), dtype);
  cy_val scale = cy_build_reshape(im->g, n->in[2], per_block, 3), zp = LIKE(X, (double)(1 << (bits - 1)));
  if (n->in[3] && cy_onnx_type(im, n->in[3])->dtype == CY_U8) {
    cy_val all = unpack(im, cy_build_reshape(im->g, n->in[3], zp_dims, 2), bits, zp_dims, 2);
    all = cy_build_slice_axis(im->g, all, 1, cy_dim_const(im->g, 0), d[1]);
    zp = CAST(cy_build_reshape(im->g, all, per_block, 3), dtype);
  } else if (n->in[3]) {
    zp = cy_build_reshape(im->g, n->in[3], per_block, 3);
  }
  cy_dim flat[2] = {d[0], cy_dim_const(im->g, blocks * block)};
  w = cy_build_reshape(im->g, MUL(SUB(w, zp), scale), flat, 2);
  w = cy_build_slice_axis(im->g, w, 1, cy_dim_const(im->g, 0), cy_dim_const(im->g, k));
  const int64_t swap[2] = {1, 0};
  cy_val y = cy_onnx_matmul(im, X, cy_build_transpose(im->g, w, swap), dtype);
  return SET(n->in[5] ? ADD(y, n->in[5]) : y);
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

/* x [b, s, heads, size], of which the first `turn` are turned; cosine and sine [b, s, turn / 2], b may be 1. */
cy_val cy_onnx_rotary(cy_importer *im, cy_val x, cy_val cosine, cy_val sine, cy_dim turn, bool interleaved) {
  if (!x || !cosine || !sine)
    return 0;
  cy_val c = cy_build_unsqueeze(im->g, cosine, 2), s = cy_build_unsqueeze(im->g, sine, 2);
  cy_dim rest = cy_dim_sub(im->g, cy_onnx_type(im, x)->dim[3], turn);
  cy_val head = c && s ? cy_build_slice_axis(im->g, x, 3, cy_dim_const(im->g, 0), turn) : 0;
  cy_val y = head ? rotate(im, head, c, s, cy_dim_div(im->g, turn, cy_dim_const(im->g, 2)), interleaved) : 0;
  if (!y || cy_dim_is(im->g, rest, 0))
    return y;
  cy_val both[2] = {y, cy_build_slice_axis(im->g, x, 3, turn, rest)};
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
    cy_dim width = dims && heads ? cy_dim_div(im->g, t.dim[2], cy_dim_const(im->g, heads))
                   : heads       ? cy_dim_div(im->g, t.dim[2], cy_dim_const(im->g, heads))
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
  for (int i = 0; i < 2; i++) {
    if (at && !ms) {
      cs[i] = cy_build_gather(im->g, cs[i], at, 0);
    } else if (at) { /* one offset, or positions per token */
      cy_val p = cy_onnx_type(im, at)->rank == 2
                     ? at
                     : ADD(cy_build_iota(im->g, CY_I64, &tx.dim[1], 1, 0), cy_build_reshape(im->g, at, NULL, 0));
      cs[i] = cy_build_gather(im->g, cs[i], p, 0);
    }
    if (cs[i] && cy_onnx_type(im, cs[i])->rank == 2) /* the same for every sequence */
      cs[i] = cy_build_unsqueeze(im->g, cs[i], 0);
    if (!cs[i])
      return false;
  }
  cy_dim turn = dims ? cy_dim_const(im->g, dims) : tx.dim[3];
  cy_val y = cy_onnx_rotary(im, x, cs[0], cs[1], turn, cy_onnx_int(im, n, "interleaved", 0) != 0);
  return SET(t.rank == 3 ? cy_build_reshape(im->g, y, t.dim, 3) : cy_onnx_move_axis(im, y, 1, 2));
}

/* EmbedLayerNormalization of tables in 8 bits: input k has its scale and zero point in s and z. */
IMPORT(qembed_layer_norm) {
  static const struct { uint8_t k, s, z; } parts[] = {{2, 8, 13}, {3, 9, 14}, {4, 10, 15}, {5, 11, 16}, {6, 12, 17}};
  cy_val in[CY_ONNX_MIN_IN] = {X, n->in[1]};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    uint32_t k = parts[i].k, s = parts[i].s, z = parts[i].z;
    if (k == 4 && !n->in[k])
      continue;
    if (n->nin <= z || !n->in[k] || !n->in[s] || !n->in[z])
      return cy_build_error(im->g, NULL, "input %u needs a scale and a zero point: inputs %u and %u", k, s, z);
    if (!(in[k] = cy_onnx_dequantize(im, n->in[k], n->in[s], n->in[z])))
      return false;
  }
  in[7] = n->in[7];
  cy_onnx_node plain = *n;
  plain.in = in;
  return cy_import_embed_layer_norm(im, &plain);
}
