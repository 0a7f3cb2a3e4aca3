/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_attention.c - Attention of ai.onnx (23 to 25) and com.microsoft's Attention and MultiHeadAttention;
 * FlexAttention.
 *
 * All of them bring their operands into the form [batch, heads, sequence, size] and end in one `attention` node; the
 * composition of products and softmax takes its place where a model asks for the scores or changes them.
 */
#include "frontend/import_int.h"

#include <math.h>
#include <stdio.h>

#define X (n->in[0])
#define SET(v) cy_importer_set(im, n, 0, (v))

/* What the operators have beside cy_attention. */
typedef struct attention {
  cy_attention op;   /* [b, hq, s, d], [b, hkv, t, d], [b, hkv, t, dv] */
  cy_val extra;      /* a second bias; 0: none */
  int64_t softmax;   /* its type; 0: as it is */
  bool wants_scores; /* the composition, whose inner values are then in parts */
  cy_attention_parts parts;
} attention;

static cy_dim num(cy_importer *im, int64_t v) { return cy_dim_const(im->g, v); }
static cy_dim dim_of(cy_importer *im, cy_val v, int axis) { return cy_onnx_type(im, v)->dim[axis]; }

/* Does softmax in its type give what f32 arithmetic of the operands' type gives anyway? */
static bool softmax_is_usual(cy_importer *im, const attention *a) {
  cy_dtype own = (cy_dtype)cy_onnx_type(im, a->op.q)->dtype;
  return !a->softmax || (cy_dtype)a->softmax == own || (a->softmax == CY_F32 && own != CY_F64);
}

/* Result [b, hq, s, dv]. */
static cy_val attend(cy_importer *im, attention *a) {
  cy_attention *op = &a->op;
  if (!op->q || !op->k || !op->v)
    return 0;
  int64_t h, own;
  cy_dim heads = dim_of(im, op->q, 1), kept = dim_of(im, op->k, 1);
  if (heads != kept &&
      (!cy_dim_is_const(im->g, heads, &h) || !cy_dim_is_const(im->g, kept, &own) || own < 1 || h % own))
    return cy_build_error(im->g, NULL, "%s query heads cannot share %s key heads", cy_dim_text(im->g, heads),
                          cy_dim_text(im->g, kept));
  if (op->mask && cy_onnx_type(im, op->mask)->dtype != CY_BOOL) {
    op->bias = CAST(op->mask, cy_onnx_type(im, op->q)->dtype);
    op->mask = 0;
  }
  if (a->extra)
    op->bias = op->bias ? ADD(op->bias, a->extra) : a->extra;
  if (a->wants_scores || !softmax_is_usual(im, a))
    return cy_build_attention_plain(im->g, op, (cy_dtype)a->softmax, &a->parts);
  return cy_build_attention(im->g, op);
}

cy_val cy_onnx_split_heads(cy_importer *im, cy_val x, int64_t heads) {
  if (!x)
    return 0;
  static const int64_t perm[4] = {0, 2, 1, 3};
  const cy_type *t = cy_onnx_type(im, x);
  cy_dim d[4] = {t->dim[0], t->dim[1], num(im, heads), cy_dim_div(im->g, t->dim[2], num(im, heads))};
  return cy_build_transpose(im->g, cy_build_reshape(im->g, x, d, 4), perm);
}

cy_val cy_onnx_join_heads(cy_importer *im, cy_val x) {
  if (!x)
    return 0;
  static const int64_t perm[4] = {0, 2, 1, 3};
  const cy_type t = *cy_onnx_type(im, x);
  cy_dim d[3] = {t.dim[0], t.dim[2], cy_dim_mul(im->g, t.dim[1], t.dim[3])};
  return cy_build_reshape(im->g, cy_build_transpose(im->g, x, perm), d, 3);
}

static cy_val append(cy_importer *im, cy_val past, cy_val now) {
  cy_val v[2] = {past, now};
  return past && now ? cy_build_concat(im->g, v, 2, 2) : now;
}

/* A mask that is shorter than the keys: the missing ones are masked. */
static cy_val widen_mask(cy_importer *im, cy_val mask, cy_dim keys) {
  const cy_type t = *cy_onnx_type(im, mask);
  if (t.rank == 0 || t.dim[t.rank - 1] == keys)
    return mask;
  cy_dim pads[2 * CY_MAX_RANK];
  for (int i = 0; i < 2 * t.rank; i++)
    pads[i] = num(im, 0);
  pads[2 * t.rank - 1] = cy_dim_max(im->g, num(im, 0), cy_dim_sub(im->g, keys, t.dim[t.rank - 1]));
  return cy_build_pad(im->g, mask, pads, CY_PAD_CONSTANT,
                      t.dtype == CY_BOOL ? cy_build_scalar_int(im->g, CY_BOOL, 0) : LIKE(mask, -INFINITY));
}

static bool set_scores(cy_importer *im, const cy_onnx_node *n, const attention *a, int64_t mode) {
  if (!cy_onnx_wants(n, 3))
    return true;
  const cy_attention_parts *p = &a->parts;
  return cy_importer_set(im, n, 3, mode == 2 ? p->biased : mode == 3 ? p->weights : p->scores);
}

/* The keys that a query sees: none behind itself, `right` behind it at most, `left` before it at most; -1: any number. */
typedef struct reach {
  int64_t left, right;
} reach;

static bool read_reach(cy_importer *im, const cy_onnx_node *n, reach *out) {
  static const char *const names[2] = {"left_window_size", "right_window_size"};
  int64_t size[2];
  for (int i = 0; i < 2; i++) {
    char item[40];
    size[i] = cy_onnx_int(im, n, names[i], -1);
    snprintf(item, sizeof item, "attribute '%s'", names[i]);
    if (size[i] < -1)
      return cy_build_error(im->g, item, "expected a number of keys, or -1 for all, found %lld", (long long)size[i]);
    if (size[i] >= INT32_MAX) /* more than there are */
      size[i] = -1;
  }
  *out = (reach){size[0], cy_onnx_int(im, n, "is_causal", 0) ? 0 : size[1]};
  return true;
}

/* Query i stands at key i + past, or at the end of the cache, whose keys in use are counted for each sequence: of these
 * the last ones are the queries' own. */
static bool set_reach(cy_importer *im, reach r, cy_dim past, attention *a) {
  cy_attention *op = &a->op;
  if (!op->lengths) {
    op->causal = r.right >= 0;
    op->past = cy_dim_addi(im->g, past ? past : num(im, 0), r.right > 0 ? r.right : 0);
    op->window = r.left < 0 ? 0 : r.left + 1 + (r.right > 0 ? r.right : 0);
    return true;
  }
  if (r.left < 0 && r.right < 0)
    return true;
  cy_dim grid[2] = {dim_of(im, op->q, 2), dim_of(im, op->k, 2)}, one = num(im, 1);
  cy_dim d[4] = {dim_of(im, op->q, 0), one, one, one};
  cy_val end = cy_build_reshape(im->g, CAST(op->lengths, CY_I64), d, 4);
  cy_val offset = SUB(end, cy_build_dim_scalar(im->g, grid[0])), key = cy_build_iota(im->g, CY_I64, grid, 2, 1);
  cy_val at = ADD(cy_build_iota(im->g, CY_I64, grid, 2, 0), offset);
  for (int behind = 0; behind < 2; behind++) {
    int64_t max = behind ? r.right : r.left;
    if (max < 0)
      continue;
    cy_val end_key = ADD(at, cy_build_scalar_int(im->g, CY_I64, behind ? max : -max));
    cy_val seen = behind ? BINARY(le, key, end_key) : BINARY(le, end_key, key);
    op->mask = op->mask ? BINARY(and, op->mask, seen) : seen;
    if (!op->mask)
      return false;
  }
  return true;
}

static bool check_cache(cy_importer *im, const cy_onnx_node *n) {
  if (!n->in[4] != !n->in[5])
    return cy_build_error(im->g, NULL, "inputs past_key and past_value come together, found only one of them");
  if (n->in[4] && n->in[6])
    return cy_build_error(im->g, "input 'nonpad_kv_seqlen'",
                          "counts the keys of a cache in K and V, expected no past_key and past_value beside it");
  return true;
}

IMPORT(attention) {
  attention a = {.op = {.q = X, .k = n->in[1], .v = n->in[2], .mask = n->in[3], .lengths = n->in[6]},
                 .wants_scores = cy_onnx_wants(n, 3)};
  reach window = {0};
  int rank = cy_onnx_type(im, X)->rank;
  if (!read_reach(im, n, &window) || !check_cache(im, n))
    return false;
  int64_t hq = cy_onnx_int(im, n, "q_num_heads", 0), hkv = cy_onnx_int(im, n, "kv_num_heads", 0);
  if (cy_onnx_type(im, a.op.k)->rank != rank || cy_onnx_type(im, a.op.v)->rank != rank ||
      (rank != 4 && (rank != 3 || hq < 1 || hkv < 1)))
    return cy_build_error(im->g, NULL,
                          "expected Q, K and V of rank 4, or of rank 3 with q_num_heads and kv_num_heads, found %s",
                          cy_type_text(im->g, cy_onnx_type(im, X)));
  if (rank == 3) {
    a.op.q = cy_onnx_split_heads(im, a.op.q, hq);
    a.op.k = cy_onnx_split_heads(im, a.op.k, hkv);
    a.op.v = cy_onnx_split_heads(im, a.op.v, hkv);
  }
  if (!a.op.q || !a.op.k || !a.op.v)
    return false;
  int64_t size = 1;
  if (!cy_onnx_has(n, "scale") && !cy_dim_is_const(im->g, dim_of(im, a.op.q, 3), &size))
    return cy_build_error(im->g, "attribute 'scale'", "the size of a head must be known at compile time");
  a.op.scale = cy_onnx_has(n, "scale") ? cy_onnx_float(im, n, "scale", 1) : 1 / sqrt((double)(size > 0 ? size : 1));
  a.op.softcap = cy_onnx_float(im, n, "softcap", 0);
  a.softmax = cy_onnx_int(im, n, "softmax_precision", 0);
  if (a.softmax < 0 || a.softmax >= CY_REF || (a.softmax && !cy_dtype_is_float((cy_dtype)a.softmax)))
    return cy_build_error(im->g, "attribute 'softmax_precision'", "expected a float type, found %lld",
                          (long long)a.softmax);
  a.op.k = append(im, n->in[4], a.op.k);
  a.op.v = append(im, n->in[5], a.op.v);
  if (a.op.k && a.op.lengths && !cy_onnx_check_lengths(im, a.op.lengths, dim_of(im, a.op.k, 2)))
    return false;
  if (!a.op.k || !a.op.v || (a.op.mask && !(a.op.mask = widen_mask(im, a.op.mask, dim_of(im, a.op.k, 2)))))
    return false;
  if (a.op.mask && cy_onnx_type(im, a.op.mask)->dtype != CY_BOOL) {
    a.op.bias = CAST(a.op.mask, cy_onnx_type(im, a.op.q)->dtype);
    a.op.mask = 0;
  }
  if (!set_reach(im, window, n->in[4] ? dim_of(im, n->in[4], 2) : 0, &a))
    return false;
  a.op.zero_hidden = a.op.bias || a.op.mask || a.op.lengths || a.op.window;
  cy_val y = attend(im, &a);
  cy_importer_set(im, n, 1, a.op.k);
  cy_importer_set(im, n, 2, a.op.v);
  return set_scores(im, n, &a, cy_onnx_int(im, n, "qk_matmul_output_mode", 0)) &&
         SET(rank == 3 ? cy_onnx_join_heads(im, y) : y);
}

/* ---- com.microsoft
 * --------------------------------------------------------------------------------------------------------- */

/* `len` elements from the `at`th part of that length on, [len, 1, 1, 1]. */
static cy_val batch_part(cy_importer *im, cy_val list, int64_t at, cy_dim len) {
  cy_dim d[4] = {len, num(im, 1), num(im, 1), num(im, 1)};
  cy_val v = cy_build_slice_axis(im->g, list, 0, cy_dim_muli(im->g, len, at), len);
  return v ? cy_build_reshape(im->g, CAST(v, CY_I64), d, 4) : 0;
}

/* Keys are seen from a start (0: the first) on, before an end, both [b, 1, 1, 1]. The operators mask by a number that is
 * merely low: a query that sees no key at all sees them as without this mask. */
static bool set_range(cy_importer *im, cy_val end, cy_val start, attention *a) {
  cy_dim keys = dim_of(im, a->op.k, 2), rows[2] = {dim_of(im, a->op.q, 2), num(im, 1)};
  cy_val all = cy_build_dim_scalar(im->g, keys), zero = cy_build_scalar_int(im->g, CY_I64, 0);
  end = MIN(end, all);
  cy_val none = BINARY(le, end, start ? MAX(start, zero) : zero);
  end = SELECT(none, all, end);
  a->op.lengths = end ? cy_build_reshape(im->g, end, &cy_onnx_type(im, end)->dim[0], 1) : 0;
  if (!start || !a->op.lengths)
    return a->op.lengths != 0;
  start = SELECT(none, zero, start);
  a->op.mask = BINARY(le, start, cy_build_iota(im->g, CY_I64, &keys, 1, 0));
  if (a->op.causal) {
    cy_val past = cy_build_dim_scalar(im->g, a->op.past ? a->op.past : num(im, 0));
    cy_val last = ADD(cy_build_iota(im->g, CY_I64, rows, 2, 0), past);
    a->op.mask = BINARY(or, a->op.mask, BINARY(lt, last, start));
  }
  return a->op.mask != 0;
}

/* Masks of com.microsoft: lengths [b], ends and starts [2 * b], lengths with where queries and keys start [3 * b + 2], or
 * 0/1 per key [b, t] or per query and key [b, s, t]. a has q, k, v and past. */
static bool ms_mask(cy_importer *im, const cy_onnx_node *n, cy_val mask, attention *a) {
  if (!mask)
    return true;
  const cy_type t = *cy_onnx_type(im, mask);
  cy_dim one = num(im, 1), batch = dim_of(im, a->op.q, 0);
  if (t.rank == 1 && (t.dim[0] == batch || !cy_dim_is(im->g, t.dim[0], 0))) {
    bool both = t.dim[0] == cy_dim_muli(im->g, batch, 2);
    if (!both && t.dim[0] != batch && t.dim[0] != cy_dim_addi(im->g, cy_dim_muli(im->g, batch, 3), 2))
      return cy_build_error(im->g, "input 'mask_index'",
                            "expected one length per sequence, or all ends and starts, found %s",
                            cy_type_text(im->g, &t));
    if (!cy_onnx_check_true(im, BINARY(ge, mask, LIKE(mask, 0)), "node '%s': a length in mask_index is below 0"))
      return false;
    cy_val end = batch_part(im, mask, 0, batch), start = both ? batch_part(im, mask, 1, batch) : 0;
    return end && (start || !both) && set_range(im, end, start, a);
  }
  if (t.rank != 2 && t.rank != 3)
    return cy_build_error(im->g, "input 'mask_index'", "masks of this form are not supported: %s",
                          cy_type_text(im->g, &t));
  cy_dim d[4] = {t.dim[0], one, t.rank == 3 ? t.dim[1] : one, t.dim[t.rank - 1]};
  cy_val keep = CAST(cy_build_reshape(im->g, mask, d, 4), cy_onnx_type(im, a->op.q)->dtype);
  a->op.mask = keep ? MUL(SUB(LIKE(keep, 1), keep), LIKE(keep, cy_onnx_float(im, n, "mask_filter_value", -10000))) : 0;
  return a->op.mask != 0;
}

static bool ms_scale(cy_importer *im, const cy_onnx_node *n, attention *a) {
  int64_t size;
  a->op.scale = cy_onnx_float(im, n, "scale", 0);
  if (a->op.scale != 0)
    return true;
  if (!a->op.q || !cy_dim_is_const(im->g, dim_of(im, a->op.q, 3), &size) || size < 1)
    return a->op.q &&
           cy_build_error(im->g, "attribute 'num_heads'", "the size of a head must be known at compile time");
  a->op.scale = 1 / sqrt((double)size);
  return true;
}

static cy_val columns(cy_importer *im, cy_val x, cy_dim from, cy_dim size) {
  return x ? cy_build_slice_axis(im->g, x, cy_onnx_type(im, x)->rank - 1, from, size) : 0;
}

/* past and present are [2, b, h, t, d]: keys, then values. */
static cy_val past_half(cy_importer *im, cy_val past, int64_t k) {
  if (!past)
    return 0;
  cy_val v = cy_build_slice_axis(im->g, past, 0, num(im, k), num(im, 1));
  return v ? cy_build_squeeze(im->g, v, 0) : 0;
}

/* `all` is [b, s, columns]: q, k and v side by side. past, mask and extra: inputs, 0 where absent. */
static bool attend_packed(cy_importer *im, const cy_onnx_node *n, cy_val all, cy_val past, cy_val mask, cy_val extra) {
  attention a = {.extra = extra, .op.causal = cy_onnx_int(im, n, "unidirectional", 0) != 0};
  int64_t heads = cy_onnx_int(im, n, "num_heads", 0);
  uint32_t count;
  const int64_t *sizes = cy_onnx_ints(im, n, "qkv_hidden_sizes", &count);
  if (!all || heads < 1 || (sizes && count != 3) || cy_onnx_type(im, all)->rank != 3)
    return all &&
           cy_build_error(im->g, NULL, "expected an input [batch, sequence, hidden], num_heads, three hidden sizes");
  int64_t wide;
  if (!sizes && cy_dim_is_const(im->g, dim_of(im, all, 2), &wide) && wide % 3)
    return cy_build_error(im->g, NULL, "expected weights for queries, keys and values of one size, found %lld columns",
                          (long long)wide);
  if (cy_onnx_int(im, n, "do_rotary", 0))
    return cy_build_error(im->g, NULL, "rotary embedding is not supported inside this operator");
  cy_dim third = cy_dim_div(im->g, dim_of(im, all, 2), num(im, 3)), at = num(im, 0);
  cy_val part[3];
  for (int i = 0; i < 3; i++) {
    cy_dim size = sizes ? num(im, sizes[i]) : third;
    part[i] = cy_onnx_split_heads(im, columns(im, all, at, size), heads);
    at = cy_dim_add(im->g, at, size);
  }
  a.op.q = part[0];
  if (!part[0] || !part[1] || !part[2] || !ms_scale(im, n, &a))
    return false;
  a.op.k = part[1];
  a.op.v = part[2];
  if (past || cy_onnx_wants(n, 1)) { /* one cache of both, which they are read from */
    cy_val both[2] = {cy_build_unsqueeze(im->g, part[1], 0), cy_build_unsqueeze(im->g, part[2], 0)};
    cy_val now = both[0] && both[1] ? cy_build_concat(im->g, both, 2, 0) : 0, all_keys[2] = {past, now};
    a.op.past = past ? dim_of(im, past, 3) : 0;
    cy_val present = past && now ? cy_build_concat(im->g, all_keys, 2, 3) : now;
    a.op.k = past_half(im, present, 0);
    a.op.v = past_half(im, present, 1);
    if (!a.op.k || !a.op.v || (cy_onnx_wants(n, 1) && !cy_importer_set(im, n, 1, present)))
      return false;
  }
  if (!ms_mask(im, n, mask, &a))
    return false;
  return SET(cy_onnx_join_heads(im, attend(im, &a)));
}

IMPORT(ms_attention) {
  if (cy_onnx_type(im, n->in[1])->rank != 2 || n->in[6])
    return cy_build_error(im->g, NULL, "expected weights [hidden, 3 * hidden], and no shared past buffer");
  cy_val all = cy_onnx_matmul(im, X, n->in[1], cy_onnx_type(im, X)->dtype);
  return attend_packed(im, n, n->in[2] ? ADD(all, n->in[2]) : all, n->in[4], n->in[3], n->in[5]);
}

/* One of the tensors packed as [b, s, heads, parts, d]. */
static cy_val packed(cy_importer *im, cy_val x, int64_t part) {
  static const int64_t perm[4] = {0, 2, 1, 3};
  cy_val v = cy_build_slice_axis(im->g, x, 3, num(im, part), num(im, 1));
  return v ? cy_build_transpose(im->g, cy_build_squeeze(im->g, v, 3), perm) : 0;
}

/* An operand of MultiHeadAttention: [b, s, h * d] with a slice of the bias, or [b, h, s, d] as it is. */
static cy_val operand(cy_importer *im, cy_val x, cy_val bias, cy_dim from, int64_t heads) {
  if (!x || cy_onnx_type(im, x)->rank == 4)
    return x;
  cy_val b = bias ? columns(im, bias, from, dim_of(im, x, 2)) : 0;
  return cy_onnx_split_heads(im, b ? ADD(x, b) : x, heads);
}

/* ---- MultiHeadAttention's cache ---- */

typedef struct cache {
  bool shared;  /* past is as long as present, and `used` says how much of it counts */
  cy_dim used;  /* keys of past */
  cy_val start; /* the same, i64 [1] */
  cy_val beams; /* cache_indirection [batch, beams, length], or 0 */
} cache;

static bool read_cache(cy_importer *im, const cy_onnx_node *n, cache *c) {
  uint32_t count = 0;
  *c = (cache){.beams = n->in[9]};
  if (!n->in[6] != !n->in[7])
    return cy_build_error(im->g, NULL, "expected past_key and past_value, or neither of them");
  for (uint32_t k = 6; k < 8; k++)
    if (n->in[k] && cy_onnx_type(im, n->in[k])->rank != 4)
      return cy_build_error(im->g, NULL, "expected past [batch, heads, length, size], found %s",
                            cy_type_text(im->g, cy_onnx_type(im, n->in[k])));
  if (!n->in[6])
    return true;
  c->used = dim_of(im, n->in[6], 2);
  if (!n->in[8])
    return !c->beams || cy_build_error(im->g, NULL, "cache_indirection needs past_sequence_length");
  cy_val length = cy_build_reshape(im->g, n->in[8], NULL, 0);
  const cy_dim *used = length ? cy_value_elems_or_read(im->g, length, &count) : NULL;
  if (!used || count != 1)
    return cy_build_error(im->g, "input 'past_sequence_length'", "expected one integer, found %s",
                          cy_type_text(im->g, cy_onnx_type(im, n->in[8])));
  c->shared = true;
  c->used = used[0];
  cy_dim one = num(im, 1);
  if (!(c->start = cy_build_reshape(im->g, CAST(n->in[8], CY_I64), &one, 1)))
    return false;
  if (!cy_onnx_at_most(im, "input 'past_sequence_length'", num(im, 0), c->used))
    return false;
  return !c->beams || cy_onnx_type(im, c->beams)->rank == 3 ||
         cy_build_error(im->g, "input 'cache_indirection'", "expected [batch, beams, length], found %s",
                        cy_type_text(im->g, cy_onnx_type(im, c->beams)));
}

/* past [batch * beams, heads, used, size], every token from the beam that wrote it. */
static cy_val follow_beams(cy_importer *im, const cache *c, cy_val past) {
  static const int64_t swap[4] = {0, 2, 1, 3};
  const cy_type t = *cy_onnx_type(im, past), tb = *cy_onnx_type(im, c->beams);
  cy_dim grid[3] = {tb.dim[0], tb.dim[1], c->used}, flat[3] = {t.dim[0], c->used, num(im, 1)};
  cy_val from = cy_build_slice_axis(im->g, CAST(c->beams, CY_I64), 2, num(im, 0), c->used);
  from = from ? ADD(from, MUL(cy_build_iota(im->g, CY_I64, grid, 3, 0), cy_build_dim_scalar(im->g, tb.dim[1]))) : 0;
  cy_val at[2] = {from ? cy_build_reshape(im->g, from, flat, 3) : 0, cy_build_iota(im->g, CY_I64, flat, 3, 1)};
  cy_val in[2] = {cy_build_transpose(im->g, past, swap), at[0] && at[1] ? cy_build_concat(im->g, at, 2, 2) : 0};
  cy_attr dims = cy_attr_int(CY_ATTR_batch_dims, 0);
  cy_val y = in[0] && in[1] ? cy_build(im->g, CY_OP_gather_nd, in, 2, &dims, 1, NULL, 0) : 0;
  return y ? cy_build_transpose(im->g, y, swap) : 0;
}

/* What is looked at, and the output present, of past and of what this call adds, [batch, heads, length, size]. */
static bool extend(cy_importer *im, const cache *c, cy_val past, cy_val now, cy_val *out_seen, cy_val *out_present) {
  if (!past || !now || !c->shared) {
    *out_seen = *out_present = append(im, past, now);
    return *out_seen != 0;
  }
  cy_dim end = cy_dim_add(im->g, c->used, dim_of(im, now, 2));
  if (!cy_onnx_at_most(im, "input 'past_sequence_length'", end, dim_of(im, past, 2)))
    return false;
  *out_present = cy_build_write_rows(im->g, past, now, c->start, 2, dim_of(im, past, 2), CY_WRITE_PLAIN);
  if (!*out_present)
    return false;
  cy_val old = cy_build_slice_axis(im->g, *out_present, 2, num(im, 0), c->beams ? c->used : end);
  *out_seen = old && c->beams ? append(im, follow_beams(im, c, old), now) : old;
  return *out_seen != 0;
}

IMPORT(multi_head_attention) {
  attention a = {.extra = n->in[5],
                 .op.causal = cy_onnx_int(im, n, "unidirectional", 0) != 0,
                 .wants_scores = cy_onnx_wants(n, 3)};
  int64_t heads = cy_onnx_int(im, n, "num_heads", 0);
  cy_val present[2];
  cache c;
  cy_val key = n->in[1], value = n->in[2], bias = n->in[3];
  int rank = cy_onnx_type(im, X)->rank;
  if (heads < 1 || (rank != 3 && rank != 5))
    return cy_build_error(im->g, NULL, "expected a query [batch, sequence, hidden] and num_heads, found %s",
                          cy_type_text(im->g, cy_onnx_type(im, X)));
  if (rank == 5) {
    a.op.q = packed(im, X, 0);
    a.op.k = packed(im, X, 1);
    a.op.v = packed(im, X, 2);
  } else {
    cy_dim width = dim_of(im, X, 2);
    a.op.q = operand(im, X, bias, num(im, 0), heads);
    if (key && cy_onnx_type(im, key)->rank == 5) {
      a.op.k = packed(im, key, 0);
      a.op.v = packed(im, key, 1);
    } else {
      a.op.k = operand(im, key, bias, width, heads);
      a.op.v = operand(im, value, bias, cy_dim_muli(im->g, width, 2), heads);
    }
  }
  if (!a.op.q || !a.op.k || !a.op.v)
    return cy_build_error(im->g, NULL, "inputs 'key' and 'value' are missing");
  if (!read_cache(im, n, &c) || !extend(im, &c, n->in[6], a.op.k, &a.op.k, &present[0]) ||
      !extend(im, &c, n->in[7], a.op.v, &a.op.v, &present[1]))
    return false;
  a.op.past = c.used;
  if (!ms_scale(im, n, &a) || !ms_mask(im, n, n->in[4], &a))
    return false;
  cy_importer_set(im, n, 1, present[0]);
  cy_importer_set(im, n, 2, present[1]);
  cy_val y = attend(im, &a);
  return y && (!a.wants_scores || cy_importer_set(im, n, 3, a.parts.biased)) && SET(cy_onnx_join_heads(im, y));
}

/* One token: query (or all three side by side), key, value, mask, attention_bias, past_key, past_value, their length,
 * number of beams, cache_indirection, bias. */
IMPORT(decoder_masked_attention) {
  static const uint8_t places[][2] = {{1, 1}, {2, 2}, {10, 3}, {3, 4}, {4, 5}, {5, 6}, {6, 7}, {7, 8}, {9, 9}};
  cy_onnx_inner q;
  cy_onnx_inner_init(&q, n);
  q.in[0] = X;
  for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
    q.in[places[i][1]] = n->in[places[i][0]];
  if (!n->in[1] && !n->in[2] && cy_onnx_type(im, X)->rank == 3) {
    cy_dim third = cy_dim_div(im->g, dim_of(im, X, 2), num(im, 3));
    for (int64_t i = 0; i < 3; i++)
      if (!(q.in[i] = columns(im, X, cy_dim_muli(im->g, third, i), third)))
        return false;
  }
  q.n.nout = n->nout;
  if (!cy_import_multi_head_attention(im, &q.n))
    return false;
  for (uint32_t i = 0; i < n->nout && i < 4; i++)
    if (cy_onnx_wants(n, i) && !cy_importer_set(im, n, i, q.out[i]))
      return false;
  return true;
}

/* ---- FlexAttention (ai.onnx.preview): subgraphs change the scores and the probabilities ---- */

static cy_val modify(cy_importer *im, const cy_onnx_node *n, const char *attribute, cy_val x) {
  if (!x || !cy_onnx_has(n, attribute))
    return x;
  const Onnx__GraphProto *graph = cy_onnx_graph(im, n, attribute);
  cy_val y = 0;
  if (!graph)
    return 0;
  if (graph->n_input != 1 || graph->n_output != 1)
    return cy_build_error(im->g, cy_arena_printf(im->arena, "attribute '%s'", attribute),
                          "expected a graph of one input and one output, found %zu and %zu", graph->n_input,
                          graph->n_output);
  bool ok = cy_import_subgraph(im, n, graph, &x, 1, &y);
  cy_onnx_at(im, n);
  return ok ? CAST(y, cy_onnx_type(im, x)->dtype) : 0;
}

IMPORT(flex_attention) {
  static const int64_t swap[4] = {0, 1, 3, 2};
  const cy_type q = *cy_onnx_type(im, X);
  int64_t size = 0;
  for (int k = 0; k < 3; k++)
    if (cy_onnx_type(im, n->in[k])->rank != 4)
      return cy_build_error(im->g, NULL, "expected Q, K and V of rank 4, input %d is %s", k,
                            cy_type_text(im->g, cy_onnx_type(im, n->in[k])));
  if (!cy_onnx_has(n, "scale") && !cy_dim_is_const(im->g, q.dim[3], &size))
    return cy_build_error(im->g, NULL, "the size of a head must be known at compile time, found %s",
                          cy_type_text(im->g, &q));
  double root = sqrt(size > 0 ? 1 / sqrt((double)size) : cy_onnx_float(im, n, "scale", 1));
  int64_t precision = cy_onnx_int(im, n, "softmax_precision", cy_dtype_real(q.dtype));
  if (precision != CY_F64 && precision != CY_F32 && precision != CY_F16 && precision != CY_BF16)
    return cy_build_error(im->g, "attribute 'softmax_precision'", "expected a floating-point type, found %lld",
                          (long long)precision);
  cy_val k = cy_build_repeat_heads(im->g, n->in[1], q.dim[1]), v = cy_build_repeat_heads(im->g, n->in[2], q.dim[1]);
  k = MUL(k, k ? LIKE(k, root) : 0);
  k = k ? cy_build_transpose(im->g, k, swap) : 0;
  cy_val s = k && v ? cy_build_matmul(im->g, MUL(X, LIKE(X, root)), k, (cy_dtype)q.dtype) : 0;
  s = modify(im, n, "score_mod", s ? CAST(s, (cy_dtype)precision) : 0);
  cy_attr axis = cy_attr_int(CY_ATTR_axis, 3);
  s = modify(im, n, "prob_mod", s ? cy_build(im->g, CY_OP_softmax, &s, 1, &axis, 1, NULL, 1) : 0);
  s = s ? cy_build_matmul(im->g, s, CAST(v, (cy_dtype)precision), (cy_dtype)precision) : 0;
  return s && SET(CAST(s, cy_onnx_type(im, n->in[2])->dtype));
}
