/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_gqa.c - com.microsoft's GroupQueryAttention: rotary embedding, a cache of keys and values, attention with shared
 * heads.
 *
 * Every sequence of the batch has its own number of tokens so far: seqlens_k says how many keys it has after this call,
 * less one; a prompt (as many queries as total_sequence_length) starts from nothing. present is past with the new keys
 * put behind its sequence's own; where both lie in one buffer, nothing else is written. What lies behind a sequence's keys
 * is not defined, and hidden by a mask. A cache may have room for more keys than the longest sequence has: no more than
 * these are looked at. The causal attribute holds for the longest sequence: it only says what need not be looked at.
 *
 * A cache that slides holds no more keys than its capacity C, of a window of W: after T tokens the last T of them, or,
 * once these are too many, what is left when G = C - W + 1 at a time have gone. Queries look at what was there with the
 * new keys behind it, from where what stays moves to the front.
 */
#include "frontend/import_int.h"

#include <math.h>

#define X (n->in[0])

typedef struct gqa {
  cy_val q, k, v; /* [b, heads, s, d] */
  int64_t heads, shared;
  cy_dim batch, rows, size, capacity; /* capacity: keys of past */
  cy_dim longest, total, keys;        /* keys of the longest sequence; of present; that are looked at */
  cy_val first;                       /* i64 [b, 1, 1, 1]: place of the first query in its sequence */
  cy_val before, length;              /* the same: keys of past that count; keys there are then */
  cy_val kept;                        /* the same, of a cache that slides: how many of these it keeps; else 0 */
  bool borrowed;                      /* no new keys and values: all are past, of another layer */
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
  a->borrowed =
      n->in[1] && n->in[3] && cy_onnx_type(im, n->in[1])->rank == 3 && cy_dim_is(im->g, dim_of(im, n->in[1], 1), 0);
  for (uint32_t k = 1; k < 3 && n->in[k]; k++)
    if (cy_onnx_type(im, n->in[k])->rank != 3 ||
        cy_onnx_clash(im, dim_of(im, n->in[k], 1), a->borrowed ? num(im, 0) : t->dim[1]))
      return cy_build_error(im->g, NULL, "expected as many rows of keys and values as of queries, %s, found %s",
                            cy_type_text(im->g, t), cy_type_text(im->g, cy_onnx_type(im, n->in[k])));
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
  cy_val one = cy_build_reshape(im->g, n->in[6], NULL, 0);
  const cy_dim *total = one ? cy_value_elems_or_read(im->g, one, &count) : NULL;
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
  a->longest = total[0];
  if (!cy_onnx_at_most(im, "input 'total_sequence_length'", num(im, 1), a->longest))
    return false;
  a->total = cy_dim_max(im->g, a->capacity, a->longest);
  a->keys = a->longest;
  cy_dim d[4] = {a->batch, num(im, 1), num(im, 1), num(im, 1)};
  cy_val length = cy_build_reshape(im->g, CAST(n->in[5], CY_I64), d, 4), zero = cy_build_scalar_int(im->g, CY_I64, 0);
  cy_val prompt = BINARY(eq, cy_build_dim_scalar(im->g, a->rows), CAST(one, CY_I64));
  a->length = length ? ADD(length, cy_build_scalar_int(im->g, CY_I64, 1)) : 0;
  cy_val before = a->length ? SUB(a->length, cy_build_dim_scalar(im->g, a->rows)) : 0;
  a->first = a->before = before ? SELECT(prompt, zero, before) : 0;
  return a->before != 0;
}

/* No sequence has more keys than there are, and no more are asked for than the cache and the new ones together. */
static bool check_lengths(cy_importer *im, const cy_onnx_node *n, const gqa *a) {
  cy_dim max = a->borrowed ? a->capacity : cy_dim_add(im->g, a->capacity, a->rows);
  if (!a->kept)
    cy_graph_require_text(im->g, a->longest, max, CY_REQUIRE_AT_MOST,
                          "node '%s': total_sequence_length is %lld, more than the %lld keys of the cache and new ones");
  return cy_onnx_check_indices(im, n->in[5], a->kept ? a->longest : a->total, false);
}

/* How many of so many tokens are in a cache that slides. */
static cy_val resident(cy_importer *im, const gqa *a, cy_val tokens, int64_t window) {
  cy_val capacity = cy_build_dim_scalar(im->g, a->capacity), last = cy_build_scalar_int(im->g, CY_I64, window - 1);
  cy_val step = MAX(SUB(capacity, last), cy_build_scalar_int(im->g, CY_I64, 1));
  cy_val gone = MUL(DIV(SUB(tokens, cy_build_scalar_int(im->g, CY_I64, window)), step), step);
  return SELECT(BINARY(le, tokens, capacity), tokens, SUB(tokens, gone));
}

/* Makes a cache that slides one of `total` places, by what there is in it. */
static bool read_slide(cy_importer *im, const cy_onnx_node *n, gqa *a, int64_t window) {
  if (!cy_onnx_int(im, n, "sliding_window_cache", 0))
    return true;
  int64_t capacity;
  if (!n->in[3] || window < 1 || a->borrowed)
    return cy_build_error(im->g, "attribute 'sliding_window_cache'",
                          "expected past_key, new keys and a local_window_size of 1 or more");
  if (n->in[10] || cy_onnx_int(im, n, "qk_output", 0) > 0)
    return cy_build_error(im->g, "attribute 'sliding_window_cache'",
                          "attention_bias and qk_output are not supported with it");
  if (cy_dim_is_const(im->g, a->capacity, &capacity) && capacity < window)
    return cy_build_error(im->g, "input 'past_key'", "expected room for a window of %lld keys, found %lld",
                          (long long)window, (long long)capacity);
  a->total = a->keys = cy_dim_add(im->g, a->capacity, a->rows);
  a->kept = resident(im, a, a->length, window);
  a->before = resident(im, a, a->before, window);
  a->length = a->before ? ADD(a->before, cy_build_dim_scalar(im->g, a->rows)) : 0;
  return a->kept && a->length;
}

/* x [b, h, s, d], rotated by the positions of its tokens. */
static cy_val rotate(cy_importer *im, const cy_onnx_node *n, const gqa *a, cy_val x) {
  cy_dim line[2] = {num(im, 1), a->rows}, flat[2] = {a->batch, num(im, 1)};
  cy_val at =
      n->in[9] ? n->in[9] : ADD(cy_build_iota(im->g, CY_I64, line, 2, 1), cy_build_reshape(im->g, a->first, flat, 2));
  for (int i = 7; i < 9 && n->in[9]; i++)
    if (!cy_onnx_check_rows(im, n->in[9], n->in[i]))
      return 0;
  cy_val cosine = at ? cy_build_gather(im->g, n->in[7], at, 0) : 0,
         sine = at ? cy_build_gather(im->g, n->in[8], at, 0) : 0;
  if (!cosine || !sine)
    return 0;
  cy_dim width = cy_dim_muli(im->g, dim_of(im, n->in[7], 1), 2);
  x = cy_onnx_rotary(im, cy_onnx_move_axis(im, x, 1, 2), cosine, sine, width,
                     cy_onnx_int(im, n, "rotary_interleaved", 0) != 0);
  return x ? cy_onnx_move_axis(im, x, 2, 1) : 0;
}

/* Places `from`, i64 [b, t, 1], of the tokens of x [b, h, s, d]; zeros from element `count` on. */
static cy_val tokens_at(cy_importer *im, cy_val x, cy_val from, cy_val count) {
  static const int64_t swap[4] = {0, 2, 1, 3};
  if (!x || !from || !count)
    return 0;
  cy_dim along[4] = {num(im, 1), num(im, 1), dim_of(im, from, 1), num(im, 1)};
  from = MIN(from, cy_build_dim_scalar(im->g, cy_dim_addi(im->g, dim_of(im, x, 2), -1)));
  cy_val in[2] = {cy_build_transpose(im->g, x, swap), from};
  cy_attr dims = cy_attr_int(CY_ATTR_batch_dims, 1);
  cy_val y = in[0] && from ? cy_build(im->g, CY_OP_gather_nd, in, 2, &dims, 1, NULL, 0) : 0;
  y = y ? cy_build_transpose(im->g, y, swap) : 0;
  cy_val written = BINARY(lt, cy_build_iota(im->g, CY_I64, along, 4, 2), count);
  return y && written ? SELECT(written, y, LIKE(y, 0)) : 0;
}

/* x, of four dimensions, with `count` more elements of v on one side of an axis. */
static cy_val grown(cy_importer *im, cy_val x, int axis, bool front, cy_dim count, cy_val v) {
  cy_dim pads[8];
  for (int i = 0; i < 8; i++)
    pads[i] = num(im, 0);
  pads[front ? axis : 4 + axis] = count;
  return x && v ? cy_build_pad(im->g, x, pads, CY_PAD_CONSTANT, v) : 0;
}

/* Keys (or values) of this call, [b, h, total, d], where there were none or where a cache slides: elements of past or new
 * ones; zeros behind those there are. One more row of zeros is what is looked up there, and there is when none are new. */
static cy_val joined(cy_importer *im, const gqa *a, cy_val past, cy_val now) {
  cy_dim line[4] = {num(im, 1), num(im, 1), a->total, num(im, 1)}, one = num(im, 1);
  cy_val zero = cy_build_scalar_int(im->g, CY_I64, 0), rows = cy_build_dim_scalar(im->g, a->rows);
  cy_val j = cy_build_iota(im->g, CY_I64, line, 4, 2), from = MIN(MAX(SUB(j, a->before), zero), rows);
  cy_dim whole[4] = {a->batch, num(im, a->shared), a->total, dim_of(im, now, 3)};
  cy_val in[2] = {grown(im, now, 2, false, one, LIKE(now, 0)), from ? cy_build_expand(im->g, from, whole, 4) : 0};
  cy_attr axis = cy_attr_int(CY_ATTR_axis, 2);
  cy_val added = in[0] && in[1] ? cy_build(im->g, CY_OP_gather_elements, in, 2, &axis, 1, NULL, 1) : 0;
  if (!added || !past)
    return added;
  past = grown(im, past, 2, false, cy_dim_sub(im->g, a->total, a->capacity), LIKE(past, 0));
  return SELECT(BINARY(lt, j, a->before), past, added);
}

static cy_val present(cy_importer *im, const gqa *a, cy_val past, cy_val now) {
  cy_dim d[4] = {a->batch, num(im, a->shared), a->borrowed ? a->total : a->capacity, dim_of(im, past ? past : now, 3)};
  if (past) /* it may have symbols of its own for the batch */
    past = cy_build_reshape(im->g, past, d, 4);
  if (a->borrowed)
    return past;
  if (!past || a->kept)
    return joined(im, a, past, now);
  cy_val starts = cy_build_reshape(im->g, a->before, &a->batch, 1);
  return cy_build_write_rows(im->g, past, now, starts, 2, a->total, CY_WRITE_LAST);
}

/* What the cache keeps of x, the keys (or values) of this call. */
static cy_val kept(cy_importer *im, const gqa *a, cy_val x) {
  if (!a->kept)
    return x;
  cy_dim line[3] = {num(im, 1), a->capacity, num(im, 1)}, flat[3] = {a->batch, num(im, 1), num(im, 1)};
  cy_val gone = cy_build_reshape(im->g, SUB(a->length, a->kept), flat, 3);
  return gone ? tokens_at(im, x, ADD(cy_build_iota(im->g, CY_I64, line, 3, 1), gone), a->kept) : 0;
}

/* ---- caches of integers ---- */

typedef struct storage {
  int64_t bits; /* 8, or 4: two in a byte, the first one low, 8 added to each; 0: as it is */
  cy_val scale; /* broadcasts to [b, h, t, d] */
} storage;

/* A scale may be for all, for each column of each head as [heads * size], or broadcast as it is. */
static bool read_storage(cy_importer *im, const cy_onnx_node *n, const gqa *a, const char *attribute, cy_val scale,
                         cy_val past, storage *out) {
  cy_dim columns[4] = {num(im, 1), num(im, a->shared), num(im, 1), a->size};
  if (scale && cy_onnx_type(im, scale)->rank == 1 && !cy_dim_is(im->g, dim_of(im, scale, 0), 1) &&
      !(scale = cy_build_reshape(im->g, scale, columns, 4)))
    return false;
  int kind = cy_onnx_word(im, n, attribute, "NONE", "NONE|PER_TENSOR|PER_CHANNEL");
  *out = (storage){.bits = kind > 0 ? cy_onnx_int(im, n, "kv_cache_bit_width", 8) : 0, .scale = scale};
  if (kind < 0)
    return false;
  if (!kind != !scale || (out->bits != 0 && out->bits != 4 && out->bits != 8))
    return cy_build_error(im->g, cy_arena_printf(im->arena, "attribute '%s'", attribute),
                          "a cache of integers needs a scale and has 4 or 8 bits, others have none");
  cy_dtype wanted = out->bits == 8 ? CY_I8 : out->bits == 4 ? CY_U8 : (cy_dtype)cy_onnx_type(im, X)->dtype;
  return !past || cy_onnx_type(im, past)->dtype == wanted ||
         cy_build_error(im->g, NULL, "expected a cache of type %s, found %s", cy_dtype_of(wanted)->name,
                        cy_type_text(im->g, cy_onnx_type(im, past)));
}

/* x [b, h, s, d] as the cache holds it. */
static cy_val stored(cy_importer *im, const storage *c, cy_val x) {
  if (!x || !c->bits)
    return x;
  double max = c->bits == 8 ? 127 : 7;
  cy_val y = UNARY(round, DIV(CAST(x, CY_F32), CAST(c->scale, CY_F32)));
  y = y ? CAST(MAX(MIN(y, LIKE(y, max)), LIKE(y, -max - 1)), CY_I8) : 0;
  if (!y || c->bits == 8)
    return y;
  const cy_type t = *cy_onnx_type(im, y);
  cy_dim half = cy_dim_div(im->g, t.dim[3], num(im, 2)), pairs[5] = {t.dim[0], t.dim[1], t.dim[2], half, num(im, 2)};
  cy_val all = cy_build_reshape(im->g, CAST(ADD(y, LIKE(y, 8)), CY_U8), pairs, 5), part[2];
  for (int i = 0; i < 2; i++)
    part[i] = all ? cy_build_slice_axis(im->g, all, 4, num(im, i), num(im, 1)) : 0;
  if (!part[0] || !part[1])
    return 0;
  return cy_build_reshape(im->g, ADD(part[0], MUL(part[1], LIKE(part[1], 16))), pairs, 4);
}

static cy_val loaded(cy_importer *im, const storage *c, cy_val x, cy_dtype dtype) {
  if (!x || !c->bits)
    return x;
  const cy_type t = *cy_onnx_type(im, x);
  if (c->bits == 4)
    x = SUB(CAST(cy_onnx_unpack(im, x, 4, t.dim, 4), CY_F32), cy_build_scalar(im->g, CY_F32, 8));
  cy_val y = x ? MUL(CAST(x, CY_F32), CAST(c->scale, CY_F32)) : 0;
  return y ? CAST(y, dtype) : 0;
}

/* ---- */

/* bool [b, 1, s, keys]: keys that a query sees. */
static cy_val seen(cy_importer *im, const gqa *a, int64_t window, bool causal) {
  cy_dim grid[2] = {a->rows, a->keys};
  cy_val key = cy_build_iota(im->g, CY_I64, grid, 2, 1);
  if (!causal)
    return BINARY(lt, key, a->length);
  cy_val last = ADD(cy_build_iota(im->g, CY_I64, grid, 2, 0), a->before), keep = BINARY(le, key, last);
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

/* A sink adds to the sum of a softmax and to nothing else: one more key of zeros, which every query sees, with a value
 * of zeros and the sink as its bias. */
static bool add_sink(cy_importer *im, const gqa *a, cy_val sink, cy_attention *op) {
  cy_dim one = num(im, 1), heads = num(im, a->heads), d[4] = {one, heads, one, one};
  cy_val zero = LIKE(op->q, 0), bias = 0;
  sink =
      sink ? cy_build_reshape(im->g, CAST(sink, cy_onnx_type(im, op->q)->dtype), d, 4) : cy_onnx_fill(im, zero, d, 4);
  sink = grown(im, sink, 3, true, a->keys, zero);
  if (op->bias && !(bias = grown(im, op->bias, 3, false, one, zero)))
    return false;
  op->bias = bias ? ADD(bias, sink) : sink;
  op->k = grown(im, op->k, 2, false, one, zero);
  op->v = grown(im, op->v, 2, false, one, zero);
  op->mask = grown(im, op->mask, 3, false, one, cy_build_scalar_int(im->g, CY_BOOL, 1));
  op->causal = false; /* the mask says it */
  return op->bias && op->k && op->v && op->mask;
}

/* The keys (or values) that are looked at. */
static cy_val looked_at(cy_importer *im, const gqa *a, cy_val x) {
  return x && a->keys != dim_of(im, x, 2) ? cy_build_slice_axis(im->g, x, 2, num(im, 0), a->keys) : x;
}

/* A bias for the keys there are or those of the whole cache, for those that are looked at. */
static cy_val fitted(cy_importer *im, const gqa *a, cy_val bias) {
  cy_dim there = dim_of(im, bias, 3);
  if (there == a->keys)
    return bias;
  bias = grown(im, bias, 3, false, cy_dim_max(im->g, num(im, 0), cy_dim_sub(im->g, a->keys, there)), LIKE(bias, 0));
  return bias ? cy_build_slice_axis(im->g, bias, 3, num(im, 0), a->keys) : 0;
}

static bool check_inputs(cy_importer *im, const cy_onnx_node *n, bool rotary) {
  if (!n->in[5] || !n->in[6] || !n->in[3] != !n->in[4])
    return cy_build_error(im->g, NULL, "expected seqlens_k, total_sequence_length, and past_key with past_value");
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

/* Output 3: the scores, 0 where nothing is seen (attribute qk_output 1), or what softmax makes of them (2); of the keys
 * there are. */
static cy_val attend(cy_importer *im, const cy_onnx_node *n, const gqa *a, const cy_attention *op) {
  int64_t kind = cy_onnx_int(im, n, "qk_output", 0);
  if (kind <= 0 || !cy_onnx_wants(n, 3))
    return cy_build_attention(im->g, op);
  cy_attention_parts parts = {0};
  cy_val y = cy_build_attention_plain(im->g, op, CY_F32, &parts), scores = parts.weights;
  if (y && kind == 1)
    scores = SELECT(op->mask, parts.biased, LIKE(parts.biased, 0));
  scores = y && scores ? cy_build_slice_axis(im->g, scores, 3, num(im, 0), a->longest) : 0;
  return scores && cy_importer_set(im, n, 3, CAST(scores, cy_onnx_type(im, X)->dtype)) ? y : 0;
}

IMPORT(group_query_attention) {
  gqa a = {0};
  storage keys, values;
  int64_t size, window = cy_onnx_int(im, n, "local_window_size", -1);
  bool rotary = cy_onnx_int(im, n, "do_rotary", 0) != 0, causal = cy_onnx_int(im, n, "causal", 1) != 0;
  cy_dtype dtype = cy_onnx_type(im, X)->dtype;
  if (!check_inputs(im, n, rotary) || !split_inputs(im, n, &a) || !read_lengths(im, n, &a) ||
      !read_slide(im, n, &a, window) || !check_lengths(im, n, &a) ||
      !read_storage(im, n, &a, "k_quant_type", n->in[12], n->in[3], &keys) ||
      !read_storage(im, n, &a, "v_quant_type", n->in[13], n->in[4], &values))
    return false;
  double scale = cy_onnx_float(im, n, "scale", 0);
  if (scale == 0 && (!cy_dim_is_const(im->g, a.size, &size) || size < 1))
    return cy_build_error(im->g, "attribute 'scale'", "the size of a head must be known at compile time");
  a.q = normalised(im, n, a.q, n->in[14]);
  a.k = normalised(im, n, a.k, n->in[15]);
  if (!a.q || !a.k)
    return false;
  if (rotary) {
    if (!n->in[9] && !cy_onnx_at_most(im, "input 'cos_cache'", a.longest, dim_of(im, n->in[7], 0)))
      return false;
    a.q = rotate(im, n, &a, a.q);
    a.k = a.q && !a.borrowed ? rotate(im, n, &a, a.k) : a.k;
  }
  a.k = stored(im, &keys, a.k);
  a.v = stored(im, &values, a.v);
  cy_val now[2] = {a.k ? present(im, &a, n->in[3], a.k) : 0, a.v ? present(im, &a, n->in[4], a.v) : 0};
  cy_val k = looked_at(im, &a, now[0]), v = looked_at(im, &a, now[1]);
  cy_attention op = {.q = a.q,
                     .k = loaded(im, &keys, k, dtype),
                     .v = loaded(im, &values, v, dtype),
                     .bias = n->in[10],
                     .zero_hidden = n->in[10] != 0,
                     .mask = seen(im, &a, window, causal),
                     .scale = scale != 0 ? scale : 1 / sqrt((double)size),
                     .softcap = cy_onnx_float(im, n, "softcap", 0),
                     .causal = causal,
                     .past = cy_dim_sub(im->g, a.keys, a.rows)};
  if (!op.k || !op.v || !op.mask)
    return false;
  cy_importer_set(im, n, 1, kept(im, &a, now[0]));
  cy_importer_set(im, n, 2, kept(im, &a, now[1]));
  if (op.bias && !(op.bias = fitted(im, &a, op.bias)))
    return false;
  if ((n->in[11] || cy_onnx_int(im, n, "smooth_softmax", 0) > 0) && !add_sink(im, &a, n->in[11], &op))
    return false;
  return cy_importer_set(im, n, 0, cy_onnx_join_heads(im, attend(im, n, &a, &op)));
}
