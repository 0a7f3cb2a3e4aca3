/* onnx_gqa.c - com.microsoft's GroupQueryAttention: rotary embedding, a cache of keys and values, attention with shared
 * heads.
 *
 * Every sequence of the batch has its own number of tokens so far: seqlens_k says how many keys it has after this call,
 * less one; a prompt (as many queries as total_sequence_length) starts from nothing. present is past with the new keys
 * put behind its sequence's own: element j of it is a gather from [past, new]. What lies behind a sequence's keys is
 * not defined, and hidden by a mask. The causal attribute holds for the longest sequence: it only says what need not be
 * looked at.
 */
#include "frontend/import_int.h"

#include <math.h>

#define X (n->in[0])

typedef struct gqa {
  cy_val q, k, v; /* [b, heads, s, d] */
  int64_t heads, shared;
  cy_dim batch, rows, size, capacity, total; /* capacity: keys of past */
  cy_val before;                             /* i64 [b, 1, 1, 1]: keys of past that count */
} gqa;

static cy_dim num(cy_importer *im, int64_t v) { return cy_dim_const(im->g, v); }
static cy_dim dim_of(cy_importer *im, cy_val v, int axis) { return cy_onnx_type(im, v)->dim[axis]; }

/* [b, s, h * d] three times, or all in one. */
static bool split_inputs(cy_importer *im, const cy_onnx_node *n, gqa *a) {
  const cy_type *t = cy_onnx_type(im, X);
  a->heads = cy_onnx_int(im, n, "num_heads", 0);
  a->shared = cy_onnx_int(im, n, "kv_num_heads", 0);
  if (t->rank != 3 || a->heads < 1 || a->shared < 1 || a->heads % a->shared)
    return cy_build_error(im->g, NULL,
                          "expected a query [batch, sequence, hidden], num_heads and kv_num_heads that divides it, "
                          "found %s, %lld and %lld",
                          cy_type_text(im->g, t), (long long)a->heads, (long long)a->shared);
  if (!n->in[1] != !n->in[2])
    return cy_build_error(im->g, NULL, "expected key and value, or neither of them");
  a->batch = t->dim[0];
  a->rows = t->dim[1];
  cy_val part[3] = {X, n->in[1], n->in[2]};
  a->size = cy_dim_div(im->g, t->dim[2], num(im, n->in[1] ? a->heads : a->heads + 2 * a->shared));
  if (!n->in[1]) {
    cy_dim wide = cy_dim_muli(im->g, a->size, a->heads), thin = cy_dim_muli(im->g, a->size, a->shared);
    part[0] = cy_build_slice_axis(im->g, X, 2, num(im, 0), wide);
    part[1] = cy_build_slice_axis(im->g, X, 2, wide, thin);
    part[2] = cy_build_slice_axis(im->g, X, 2, cy_dim_add(im->g, wide, thin), thin);
  }
  a->q = cy_onnx_split_heads(im, part[0], a->heads);
  a->k = cy_onnx_split_heads(im, part[1], a->shared);
  a->v = cy_onnx_split_heads(im, part[2], a->shared);
  return a->q && a->k && a->v;
}

static bool read_lengths(cy_importer *im, const cy_onnx_node *n, gqa *a) {
  uint32_t count;
  const cy_dim *total = cy_value_elems_or_read(im->g, n->in[6], &count);
  const cy_type *lengths = cy_onnx_type(im, n->in[5]);
  if (!total || count != 1)
    return cy_build_error(im->g, "input 'total_sequence_length'", "expected one integer, found %s",
                          cy_type_text(im->g, cy_onnx_type(im, n->in[6])));
  int64_t b;
  if (!cy_dtype_is_int((cy_dtype)lengths->dtype) ||
      (cy_dim_is_const(im->g, a->batch, &b) && cy_type_elems(im->g, lengths) != a->batch))
    return cy_build_error(im->g, "input 'seqlens_k'", "expected one integer per sequence, found %s",
                          cy_type_text(im->g, lengths));
  a->capacity = n->in[3] ? dim_of(im, n->in[3], 2) : num(im, 0);
  a->total = cy_dim_max(im->g, a->capacity, total[0]);
  cy_dim d[4] = {a->batch, num(im, 1), num(im, 1), num(im, 1)};
  cy_val length = cy_build_reshape(im->g, CAST(n->in[5], CY_I64), d, 4), zero = cy_build_scalar_int(im->g, CY_I64, 0);
  cy_val prompt =
      BINARY(eq, cy_build_dim_scalar(im->g, a->rows), CAST(cy_build_reshape(im->g, n->in[6], NULL, 0), CY_I64));
  cy_val before = length ? ADD(length, cy_build_dim_scalar(im->g, cy_dim_sub(im->g, num(im, 1), a->rows))) : 0;
  a->before = before ? SELECT(prompt, zero, before) : 0;
  return a->before != 0;
}

/* x [b, h, s, d], turned by the positions of its tokens. */
static cy_val turn(cy_importer *im, const cy_onnx_node *n, const gqa *a, cy_val x) {
  cy_dim line[2] = {num(im, 1), a->rows}, flat[2] = {a->batch, num(im, 1)};
  cy_val at =
      n->in[9] ? n->in[9] : ADD(cy_build_iota(im->g, CY_I64, line, 2, 1), cy_build_reshape(im->g, a->before, flat, 2));
  cy_val cosine = at ? cy_build_gather(im->g, n->in[7], at, 0) : 0,
         sine = at ? cy_build_gather(im->g, n->in[8], at, 0) : 0;
  if (!cosine || !sine)
    return 0;
  cy_dim width = cy_dim_muli(im->g, dim_of(im, n->in[7], 1), 2);
  x = cy_onnx_rotary(im, cy_onnx_move_axis(im, x, 1, 2), cosine, sine, width,
                     cy_onnx_int(im, n, "rotary_interleaved", 0) != 0);
  return x ? cy_onnx_move_axis(im, x, 2, 1) : 0;
}

/* Keys (or values) after this call: [b, h, total, d]. */
static cy_val present(cy_importer *im, const gqa *a, cy_val past, cy_val now) {
  static const int64_t swap[4] = {0, 2, 1, 3};
  cy_val both[2] = {past, now}, all = past ? cy_build_concat(im->g, both, 2, 2) : now;
  cy_dim line[3] = {num(im, 1), a->total, num(im, 1)}, flat[3] = {a->batch, num(im, 1), num(im, 1)};
  cy_dim last = cy_dim_addi(im->g, cy_dim_add(im->g, a->capacity, a->rows), -1);
  cy_val j = cy_build_iota(im->g, CY_I64, line, 3, 1), before = cy_build_reshape(im->g, a->before, flat, 3);
  if (!all || !j || !before)
    return 0;
  cy_val shift = SUB(cy_build_dim_scalar(im->g, a->capacity), before); /* of the new ones, in [past, new] */
  cy_val from = MIN(SELECT(BINARY(lt, j, before), j, ADD(j, shift)), cy_build_dim_scalar(im->g, last));
  cy_val in[2] = {cy_build_transpose(im->g, all, swap), from};
  cy_attr dims = cy_attr_int(CY_ATTR_batch_dims, 1);
  cy_val y = in[0] && from ? cy_build(im->g, CY_OP_gather_nd, in, 2, &dims, 1, NULL, 0) : 0;
  return y ? cy_build_transpose(im->g, y, swap) : 0;
}

/* bool [b, 1, s, total]: keys that a query sees. */
static cy_val seen(cy_importer *im, const gqa *a, int64_t window, bool causal) {
  cy_dim grid[2] = {a->rows, a->total}, newest = cy_dim_addi(im->g, a->rows, -1);
  cy_val key = cy_build_iota(im->g, CY_I64, grid, 2, 1),
         row = causal ? cy_build_iota(im->g, CY_I64, grid, 2, 0)
                      : cy_onnx_fill(im, cy_build_dim_scalar(im->g, newest), grid, 2),
         last = ADD(row, a->before);
  cy_val keep = BINARY(le, key, last);
  if (keep && window > 0)
    keep = BINARY(and, keep, BINARY(gt, key, SUB(last, cy_build_scalar_int(im->g, CY_I64, window))));
  return keep;
}

/* Every head of x [b, h, s, d] over its root mean square, times weights [d]. */
static cy_val normalised(cy_importer *im, const cy_onnx_node *n, cy_val x, cy_val weights) {
  const int64_t axis = 3;
  if (!x || !weights)
    return x;
  return MUL(cy_onnx_normalize(im, x, &axis, 1, cy_onnx_float(im, n, "qk_norm_epsilon", 1e-6), true), weights);
}

/* x, of four dimensions, with `count` more elements of v on one side of an axis. */
static cy_val grown(cy_importer *im, cy_val x, int axis, bool front, cy_dim count, cy_val v) {
  cy_dim pads[8];
  for (int i = 0; i < 8; i++)
    pads[i] = num(im, 0);
  pads[front ? axis : 4 + axis] = count;
  return x && v ? cy_build_pad(im->g, x, pads, CY_PAD_CONSTANT, v) : 0;
}

/* A sink adds to the sum of a softmax and to nothing else: one more key of zeros, which every query sees, with a value
 * of zeros and the sink as its bias. */
static bool add_sink(cy_importer *im, const gqa *a, cy_val sink, cy_attention *op) {
  cy_dim one = num(im, 1), heads = num(im, a->heads), d[4] = {one, heads, one, one};
  cy_val zero = LIKE(op->q, 0), bias = 0;
  sink =
      sink ? cy_build_reshape(im->g, CAST(sink, cy_onnx_type(im, op->q)->dtype), d, 4) : cy_onnx_fill(im, zero, d, 4);
  sink = grown(im, sink, 3, true, a->total, zero);
  if (op->bias && !(bias = grown(im, op->bias, 3, false, one, zero)))
    return false;
  op->bias = bias ? ADD(bias, sink) : sink;
  op->k = grown(im, op->k, 2, false, one, zero);
  op->v = grown(im, op->v, 2, false, one, zero);
  op->mask = grown(im, op->mask, 3, false, one, cy_build_scalar_int(im->g, CY_BOOL, 1));
  op->causal = false; /* the mask says it */
  return op->bias && op->k && op->v && op->mask;
}

static bool check_inputs(cy_importer *im, const cy_onnx_node *n, bool rotary) {
  if (!n->in[5] || !n->in[6] || !n->in[3] != !n->in[4])
    return cy_build_error(im->g, NULL, "expected seqlens_k, total_sequence_length, and past_key with past_value");
  if (n->in[12] || n->in[13] || cy_onnx_int(im, n, "sliding_window_cache", 0) || cy_onnx_int(im, n, "qk_output", 0) > 0)
    return cy_build_error(im->g, NULL, "quantised or sliding caches and the scores as an output are not supported");
  if (n->in[10] && cy_onnx_type(im, n->in[10])->rank != 4)
    return cy_build_error(im->g, "input 'attention_bias'", "expected [batch, heads, sequence, keys], found %s",
                          cy_type_text(im->g, cy_onnx_type(im, n->in[10])));
  if (rotary && (!n->in[7] || !n->in[8]))
    return cy_build_error(im->g, NULL, "do_rotary needs inputs cos_cache and sin_cache");
  for (int i = 3; i < 5; i++)
    if (n->in[i] && cy_onnx_type(im, n->in[i])->rank != 4)
      return cy_build_error(im->g, NULL, "expected past [batch, heads, sequence, size], found %s",
                            cy_type_text(im->g, cy_onnx_type(im, n->in[i])));
  return true;
}

IMPORT(group_query_attention) {
  gqa a = {0};
  int64_t size, window = cy_onnx_int(im, n, "local_window_size", -1);
  bool rotary = cy_onnx_int(im, n, "do_rotary", 0) != 0, causal = cy_onnx_int(im, n, "causal", 1) != 0;
  if (!check_inputs(im, n, rotary) || !split_inputs(im, n, &a) || !read_lengths(im, n, &a))
    return false;
  double scale = cy_onnx_float(im, n, "scale", 0);
  if (scale == 0 && (!cy_dim_is_const(im->g, a.size, &size) || size < 1))
    return cy_build_error(im->g, "attribute 'scale'", "the size of a head must be known at compile time");
  a.q = normalised(im, n, a.q, n->in[14]);
  a.k = normalised(im, n, a.k, n->in[15]);
  if (!a.q || !a.k)
    return false;
  if (rotary) {
    a.q = turn(im, n, &a, a.q);
    a.k = a.q ? turn(im, n, &a, a.k) : 0;
  }
  cy_attention op = {.q = a.q,
                     .k = a.k ? present(im, &a, n->in[3], a.k) : 0,
                     .v = present(im, &a, n->in[4], a.v),
                     .bias = n->in[10],
                     .mask = seen(im, &a, window, causal),
                     .scale = scale != 0 ? scale : 1 / sqrt((double)size),
                     .softcap = cy_onnx_float(im, n, "softcap", 0),
                     .causal = causal,
                     .past = cy_dim_sub(im->g, a.total, a.rows)};
  if (!op.k || !op.v || !op.mask)
    return false;
  cy_importer_set(im, n, 1, op.k);
  cy_importer_set(im, n, 2, op.v);
  if ((n->in[11] || cy_onnx_int(im, n, "smooth_softmax", 0) > 0) && !add_sink(im, &a, n->in[11], &op))
    return false;
  return cy_importer_set(im, n, 0, cy_onnx_join_heads(im, cy_build_attention(im->g, &op)));
}
