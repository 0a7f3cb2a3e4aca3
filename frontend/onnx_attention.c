/* onnx_attention.c - Attention of ai.onnx (23, 24) and com.microsoft's Attention and MultiHeadAttention.
 *
 * All of them end in one composition over [batch, heads, sequence, size]: scores = scale * q k^T, softcap, masks,
 * softmax, times v. It has the form that exporters write, so that one pass recognises both. Masked scores become -inf
 * by a select (boolean masks, causal masks, lengths) or get the mask added (numbers).
 */
#include "frontend/import_int.h"

#include <math.h>

#define X (n->in[0])
#define SET(v) cy_importer_set(im, n, 0, (v))

typedef struct attention {
  cy_val q, k, v; /* [b, hq, s, d], [b, hkv, t, d], [b, hkv, t, dv] */
  double scale, softcap;
  cy_val mask;    /* number (added) or bool (true: keep), broadcasts to [b, h, s, t]; 0: none */
  cy_val extra;   /* a second number to add; 0: none */
  cy_val lengths; /* [b]: keys from there on are padding; 0: none */
  bool causal;
  cy_dim past;                    /* keys before the first query */
  int64_t softmax_dtype;          /* 0: as it is */
  cy_val scores, biased, weights; /* out: for those who ask */
} attention;

static cy_dim num(cy_importer *im, int64_t v) { return cy_dim_const(im->g, v); }
static cy_dim dim_of(cy_importer *im, cy_val v, int axis) { return cy_onnx_type(im, v)->dim[axis]; }

/* Every key head serves `hq / hkv` query heads. */
static cy_val repeat_heads(cy_importer *im, cy_val x, cy_dim heads) {
  const cy_type t = *cy_onnx_type(im, x);
  int64_t h, hkv;
  if (t.dim[1] == heads)
    return x;
  if (!cy_dim_is_const(im->g, heads, &h) || !cy_dim_is_const(im->g, t.dim[1], &hkv) || hkv < 1 || h % hkv)
    return cy_build_error(im->g, NULL, "%s query heads cannot share %s key heads", cy_dim_text(im->g, heads),
                          cy_dim_text(im->g, t.dim[1]));
  cy_dim one[5] = {t.dim[0], t.dim[1], num(im, 1), t.dim[2], t.dim[3]},
         all[5] = {t.dim[0], t.dim[1], num(im, h / hkv), t.dim[2], t.dim[3]};
  cy_dim out[4] = {t.dim[0], heads, t.dim[2], t.dim[3]};
  return cy_build_reshape(im->g, cy_build_expand(im->g, cy_build_reshape(im->g, x, one, 5), all, 5), out, 4);
}

static cy_val apply_masks(cy_importer *im, const attention *a, cy_val s) {
  if (!s)
    return 0;
  cy_dim grid[2] = {dim_of(im, a->q, 2), dim_of(im, a->k, 2)};
  if (a->mask && cy_onnx_type(im, a->mask)->dtype == CY_BOOL)
    s = SELECT(a->mask, s, LIKE(s, -INFINITY));
  else if (a->mask)
    s = ADD(s, CAST(a->mask, cy_onnx_type(im, s)->dtype));
  s = a->extra ? ADD(s, a->extra) : s;
  cy_val column = cy_build_iota(im->g, CY_I64, grid, 2, 1);
  if (a->causal) {
    cy_val last = ADD(cy_build_iota(im->g, CY_I64, grid, 2, 0), cy_build_dim_scalar(im->g, a->past));
    s = SELECT(BINARY(le, column, last), s, LIKE(s, -INFINITY));
  }
  if (a->lengths) {
    cy_dim d[4] = {dim_of(im, a->lengths, 0), num(im, 1), num(im, 1), num(im, 1)};
    s = SELECT(BINARY(lt, column, cy_build_reshape(im->g, CAST(a->lengths, CY_I64), d, 4)), s, LIKE(s, -INFINITY));
  }
  return s;
}

/* Result [b, hq, s, dv]. */
static cy_val attend(cy_importer *im, attention *a) {
  static const int64_t swap[4] = {0, 1, 3, 2};
  if (!a->q || !a->k || !a->v)
    return 0;
  cy_dim heads = dim_of(im, a->q, 1);
  cy_dtype dtype = cy_onnx_type(im, a->q)->dtype;
  cy_val k = repeat_heads(im, a->k, heads), v = repeat_heads(im, a->v, heads);
  if (!k || !v)
    return 0;
  cy_val s = MUL(cy_build_matmul(im->g, a->q, cy_build_transpose(im->g, k, swap), dtype), LIKE(a->q, a->scale));
  if (a->softcap > 0 && s)
    s = MUL(UNARY(tanh, DIV(s, LIKE(s, a->softcap))), LIKE(s, a->softcap));
  a->scores = s;
  a->biased = s = apply_masks(im, a, s);
  if (s && a->softmax_dtype)
    s = CAST(s, (cy_dtype)a->softmax_dtype);
  cy_attr axis = cy_attr_int(CY_ATTR_axis, 3);
  s = s ? cy_build(im->g, CY_OP_softmax, &s, 1, &axis, 1, NULL, 1) : 0;
  a->weights = s ? CAST(s, dtype) : 0;
  return a->weights ? cy_build_matmul(im->g, a->weights, v, dtype) : 0;
}

/* [b, s, h * d] -> [b, h, s, d] */
static cy_val split_heads(cy_importer *im, cy_val x, int64_t heads) {
  if (!x)
    return 0;
  static const int64_t perm[4] = {0, 2, 1, 3};
  const cy_type *t = cy_onnx_type(im, x);
  cy_dim d[4] = {t->dim[0], t->dim[1], num(im, heads), cy_dim_div(im->g, t->dim[2], num(im, heads))};
  return cy_build_transpose(im->g, cy_build_reshape(im->g, x, d, 4), perm);
}

static cy_val join_heads(cy_importer *im, cy_val x) {
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
  return cy_importer_set(im, n, 3, mode == 2 ? a->biased : mode == 3 ? a->weights : a->scores);
}

IMPORT(attention) {
  attention a = {.q = X, .k = n->in[1], .v = n->in[2], .mask = n->in[3], .lengths = n->in[6], .past = num(im, 0)};
  int rank = cy_onnx_type(im, X)->rank;
  int64_t hq = cy_onnx_int(im, n, "q_num_heads", 0), hkv = cy_onnx_int(im, n, "kv_num_heads", 0);
  if (cy_onnx_type(im, a.k)->rank != rank || cy_onnx_type(im, a.v)->rank != rank ||
      (rank != 4 && (rank != 3 || hq < 1 || hkv < 1)))
    return cy_build_error(im->g, NULL,
                          "expected Q, K and V of rank 4, or of rank 3 with q_num_heads and kv_num_heads, found %s",
                          cy_type_text(im->g, cy_onnx_type(im, X)));
  if (rank == 3) {
    a.q = split_heads(im, a.q, hq);
    a.k = split_heads(im, a.k, hkv);
    a.v = split_heads(im, a.v, hkv);
  }
  if (!a.q || !a.k || !a.v)
    return false;
  int64_t size = 1;
  if (!cy_onnx_has(n, "scale") && !cy_dim_is_const(im->g, dim_of(im, a.q, 3), &size))
    return cy_build_error(im->g, "attribute 'scale'", "the size of a head must be known at compile time");
  a.scale = cy_onnx_float(im, n, "scale", 1 / sqrt((double)(size > 0 ? size : 1)));
  a.softcap = cy_onnx_float(im, n, "softcap", 0);
  a.causal = cy_onnx_int(im, n, "is_causal", 0) != 0;
  a.softmax_dtype = cy_onnx_int(im, n, "softmax_precision", 0);
  if (a.softmax_dtype < 0 || a.softmax_dtype >= CY_REF ||
      (a.softmax_dtype && !cy_dtype_is_float((cy_dtype)a.softmax_dtype)))
    return cy_build_error(im->g, "attribute 'softmax_precision'", "expected a float type, found %lld",
                          (long long)a.softmax_dtype);
  if (n->in[4])
    a.past = dim_of(im, n->in[4], 2);
  a.k = append(im, n->in[4], a.k);
  a.v = append(im, n->in[5], a.v);
  if (!a.k || !a.v || (a.mask && !(a.mask = widen_mask(im, a.mask, dim_of(im, a.k, 2)))))
    return false;
  cy_val y = attend(im, &a);
  cy_importer_set(im, n, 1, a.k);
  cy_importer_set(im, n, 2, a.v);
  return set_scores(im, n, &a, cy_onnx_int(im, n, "qk_matmul_output_mode", 0)) &&
         SET(rank == 3 ? join_heads(im, y) : y);
}

/* ---- com.microsoft
 * --------------------------------------------------------------------------------------------------------- */

/* Masks of com.microsoft: lengths [b], or 0/1 per key [b, t] or per query and key [b, s, t]. */
static bool ms_mask(cy_importer *im, const cy_onnx_node *n, cy_val mask, attention *a) {
  if (!mask)
    return true;
  const cy_type t = *cy_onnx_type(im, mask);
  cy_dim one = num(im, 1), batch = dim_of(im, a->q, 0);
  if (t.rank == 1 && (t.dim[0] == batch || !cy_dim_is(im->g, t.dim[0], 0))) {
    if (t.dim[0] != batch)
      return cy_build_error(im->g, "input 'mask_index'", "expected one length per sequence, found %s",
                            cy_type_text(im->g, &t));
    a->lengths = mask;
    return true;
  }
  if (t.rank != 2 && t.rank != 3)
    return cy_build_error(im->g, "input 'mask_index'", "masks of this form are not supported: %s",
                          cy_type_text(im->g, &t));
  cy_dim d[4] = {t.dim[0], one, t.rank == 3 ? t.dim[1] : one, t.dim[t.rank - 1]};
  cy_val keep = CAST(cy_build_reshape(im->g, mask, d, 4), cy_onnx_type(im, a->q)->dtype);
  a->mask = keep ? MUL(SUB(LIKE(keep, 1), keep), LIKE(keep, cy_onnx_float(im, n, "mask_filter_value", -10000))) : 0;
  return a->mask != 0;
}

static bool ms_scale(cy_importer *im, const cy_onnx_node *n, attention *a) {
  int64_t size;
  a->scale = cy_onnx_float(im, n, "scale", 0);
  if (a->scale != 0)
    return true;
  if (!a->q || !cy_dim_is_const(im->g, dim_of(im, a->q, 3), &size) || size < 1)
    return a->q && cy_build_error(im->g, "attribute 'num_heads'", "the size of a head must be known at compile time");
  a->scale = 1 / sqrt((double)size);
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

IMPORT(ms_attention) {
  attention a = {.extra = n->in[5], .past = num(im, 0), .causal = cy_onnx_int(im, n, "unidirectional", 0) != 0};
  int64_t heads = cy_onnx_int(im, n, "num_heads", 0);
  uint32_t count;
  const int64_t *sizes = cy_onnx_ints(im, n, "qkv_hidden_sizes", &count);
  if (cy_onnx_type(im, X)->rank != 3 || cy_onnx_type(im, n->in[1])->rank != 2 || heads < 1 || (sizes && count != 3))
    return cy_build_error(im->g, NULL,
                          "expected an input [batch, sequence, hidden], weights [hidden, 3 * hidden] and num_heads");
  if (cy_onnx_int(im, n, "do_rotary", 0) || n->in[6])
    return cy_build_error(im->g, NULL,
                          "rotary embedding and a shared past buffer are not supported inside this operator");
  cy_val all = cy_onnx_matmul(im, X, n->in[1], cy_onnx_type(im, X)->dtype), part[3];
  all = n->in[2] ? ADD(all, n->in[2]) : all;
  cy_dim third = cy_dim_div(im->g, dim_of(im, n->in[1], 1), num(im, 3)), at = num(im, 0);
  for (int i = 0; i < 3; i++) {
    cy_dim size = sizes ? num(im, sizes[i]) : third;
    part[i] = split_heads(im, columns(im, all, at, size), heads);
    at = cy_dim_add(im->g, at, size);
  }
  a.q = part[0];
  if (!part[0] || !part[1] || !part[2] || !ms_scale(im, n, &a) || !ms_mask(im, n, n->in[3], &a))
    return false;
  if (n->in[4])
    a.past = dim_of(im, n->in[4], 3);
  a.k = append(im, past_half(im, n->in[4], 0), part[1]);
  a.v = append(im, past_half(im, n->in[4], 1), part[2]);
  if (cy_onnx_wants(n, 1)) {
    cy_val both[2] = {a.k ? cy_build_unsqueeze(im->g, a.k, 0) : 0, a.v ? cy_build_unsqueeze(im->g, a.v, 0) : 0};
    if (!both[0] || !both[1] || !cy_importer_set(im, n, 1, cy_build_concat(im->g, both, 2, 0)))
      return false;
  }
  return SET(join_heads(im, attend(im, &a)));
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
  return split_heads(im, b ? ADD(x, b) : x, heads);
}

IMPORT(multi_head_attention) {
  attention a = {.extra = n->in[5], .past = num(im, 0), .causal = cy_onnx_int(im, n, "unidirectional", 0) != 0};
  int64_t heads = cy_onnx_int(im, n, "num_heads", 0);
  cy_val key = n->in[1], value = n->in[2], bias = n->in[3];
  int rank = cy_onnx_type(im, X)->rank;
  if (heads < 1 || (rank != 3 && rank != 5))
    return cy_build_error(im->g, NULL, "expected a query [batch, sequence, hidden] and num_heads, found %s",
                          cy_type_text(im->g, cy_onnx_type(im, X)));
  if (rank == 5) {
    a.q = packed(im, X, 0);
    a.k = packed(im, X, 1);
    a.v = packed(im, X, 2);
  } else {
    cy_dim width = dim_of(im, X, 2);
    a.q = operand(im, X, bias, num(im, 0), heads);
    if (key && cy_onnx_type(im, key)->rank == 5) {
      a.k = packed(im, key, 0);
      a.v = packed(im, key, 1);
    } else {
      a.k = operand(im, key, bias, width, heads);
      a.v = operand(im, value, bias, cy_dim_muli(im->g, width, 2), heads);
    }
  }
  if (n->in[6])
    a.past = dim_of(im, n->in[6], 2);
  a.k = append(im, n->in[6], a.k);
  a.v = append(im, n->in[7], a.v);
  if (!a.q || !a.k || !a.v)
    return cy_build_error(im->g, NULL, "inputs 'key' and 'value' are missing");
  if (!ms_scale(im, n, &a) || !ms_mask(im, n, n->in[4], &a))
    return false;
  cy_importer_set(im, n, 1, a.k);
  cy_importer_set(im, n, 2, a.v);
  return SET(join_heads(im, attend(im, &a)));
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
  double root = sqrt(cy_onnx_float(im, n, "scale", size > 0 ? 1 / sqrt((double)size) : 1));
  int64_t precision = cy_onnx_int(im, n, "softmax_precision", q.dtype == CY_F64 ? CY_F64 : CY_F32);
  if (precision != CY_F64 && precision != CY_F32 && precision != CY_F16 && precision != CY_BF16)
    return cy_build_error(im->g, "attribute 'softmax_precision'", "expected a floating-point type, found %lld",
                          (long long)precision);
  cy_val k = repeat_heads(im, n->in[1], q.dim[1]), v = repeat_heads(im, n->in[2], q.dim[1]);
  k = MUL(k, k ? LIKE(k, root) : 0);
  k = k ? cy_build_transpose(im->g, k, swap) : 0;
  cy_val s = k && v ? cy_build_matmul(im->g, MUL(X, LIKE(X, root)), k, (cy_dtype)q.dtype) : 0;
  s = modify(im, n, "score_mod", s ? CAST(s, (cy_dtype)precision) : 0);
  cy_attr axis = cy_attr_int(CY_ATTR_axis, 3);
  s = modify(im, n, "prob_mod", s ? cy_build(im->g, CY_OP_softmax, &s, 1, &axis, 1, NULL, 1) : 0);
  s = s ? cy_build_matmul(im->g, s, CAST(v, (cy_dtype)precision), (cy_dtype)precision) : 0;
  return s && SET(CAST(s, cy_onnx_type(im, n->in[2])->dtype));
}
