/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_recurrence.c - LinearAttention, CausalConvWithState, TensorScatter: what sequence models with a state are made of.
 *
 * Linear attention is a loop over the tokens, built as the `loop` node that a Scan would give: the state [batch, heads,
 * key size, value size] is carried in f32, every iteration decays it, adds the outer product of key and value, and
 * reads it with the query. The caches of the other two are plain compositions of concat, conv, gather and select.
 */
#include "frontend/import_int.h"

#include <math.h>

#define X (n->in[0])

static cy_dim num(cy_importer *im, int64_t v) { return cy_dim_const(im->g, v); }

/* ---- LinearAttention ---- */

enum { RULE_LINEAR, RULE_GATED, RULE_DELTA, RULE_GATED_DELTA };

typedef struct recurrence {
  cy_val q, k, v, decay, beta; /* [batch, tokens, heads, size], f32; beta, decay 0: not in the rule */
  int64_t group;               /* query heads that share a key head */
  int64_t window; /* states after the last tokens that are kept; 0: the last one, without an axis for them */
  double scale;
} recurrence;

/* [b, t, heads * size] -> f32 [b, t, heads, size] */
static cy_val split_heads(cy_importer *im, const cy_onnx_node *n, uint32_t k, int64_t heads) {
  const cy_type *t = n->in[k] ? cy_onnx_type(im, n->in[k]) : NULL;
  if (!t || t->rank != 3)
    return cy_build_error(im->g, NULL, "input %u: expected [batch, tokens, heads * size], found %s", k,
                          t ? cy_type_text(im->g, t) : "nothing");
  cy_dim d[4] = {t->dim[0], t->dim[1], num(im, heads), cy_dim_div(im->g, t->dim[2], num(im, heads))};
  return CAST(cy_build_reshape(im->g, n->in[k], d, 4), CY_F32);
}

/* Token `at` of x, as [b, heads, size, 1] (column) or [b, heads, 1, size]. */
static cy_val token(cy_importer *im, cy_val x, cy_val at, int axis) {
  cy_val y = cy_build_gather(im->g, x, at, 1);
  return y ? cy_build_unsqueeze(im->g, y, axis) : 0;
}

static cy_val column(cy_importer *im, cy_val x, cy_val at) { return token(im, x, at, 3); }
static cy_val row(cy_importer *im, cy_val x, cy_val at) { return token(im, x, at, 2); }

/* state' [b, heads, dk, dv] and what the queries of this token read from it, [b, query heads, dv]. */
static bool step(cy_importer *im, const recurrence *r, cy_val at, cy_val state, cy_val *out_state, cy_val *out_read) {
  int64_t rows = 2;
  cy_val key = column(im, r->k, at), value = row(im, r->v, at);
  if (r->decay)
    state = MUL(state, UNARY(exp, column(im, r->decay, at)));
  if (r->beta) {
    cy_val known = cy_build_reduce(im->g, CY_OP_reduce_sum, MUL(state, key), &rows, 1, true);
    value = MUL(row(im, r->beta, at), SUB(value, known));
  }
  state = ADD(state, MUL(key, value));
  cy_val query = cy_build_gather(im->g, r->q, at, 1);
  if (!state || !query)
    return false;
  const cy_type s = *cy_onnx_type(im, state), q = *cy_onnx_type(im, query);
  cy_dim d[5] = {s.dim[0], s.dim[1], num(im, r->group), s.dim[2], num(im, 1)};
  cy_dim flat[3] = {s.dim[0], q.dim[1], s.dim[3]};
  rows = 3;
  cy_val read = MUL(cy_build_reshape(im->g, query, d, 5), cy_build_unsqueeze(im->g, state, 2));
  read = read ? cy_build_reduce(im->g, CY_OP_reduce_sum, read, &rows, 1, false) : 0;
  *out_state = state;
  *out_read = read ? MUL(cy_build_reshape(im->g, read, flat, 3), LIKE(read, r->scale)) : 0;
  return *out_read != 0;
}

/* x [count, ..] without its first, and with v behind its last. */
static cy_val shift_in(cy_importer *im, cy_val x, cy_val v, int64_t count) {
  cy_val both[2] = {cy_build_slice_axis(im->g, x, 0, num(im, 1), num(im, count - 1)),
                    v ? cy_build_unsqueeze(im->g, v, 0) : 0};
  return both[0] && both[1] ? cy_build_concat(im->g, both, 2, 0) : 0;
}

/* Out: the outputs stacked over the tokens, [t, b, query heads, dv]; the last state, or the window of the last states,
 * zeros where there were fewer tokens. */
static cy_val run_tokens(cy_importer *im, const recurrence *r, cy_val initial, cy_val *out_state) {
  enum { AT, GOES_ON, STATE, STATES };
  cy_graph *g = im->g;
  cy_block here = cy_build_block(g), body = cy_block_create(g, here);
  const cy_type s = *cy_onnx_type(im, initial);
  cy_dim slots[5] = {num(im, r->window), s.dim[0], s.dim[1], s.dim[2], s.dim[3]};
  uint32_t carried = r->window ? 2 : 1;
  cy_val in[4] = {cy_build_dim_scalar(g, cy_onnx_type(im, r->k)->dim[1]), 0, initial,
                  r->window ? cy_onnx_fill(im, cy_build_scalar(g, CY_F32, 0), slots, 5) : 0};
  cy_type types[5] = {cy_type_make(CY_I64, 0, NULL), cy_type_make(CY_BOOL, 0, NULL), s, cy_type_make(CY_F32, 5, slots)};
  cy_val params[4], results[4] = {0}, read = 0;
  for (uint32_t i = 0; i < 2 + carried; i++)
    params[i] = cy_block_add_param(g, body, &types[i], NULL);
  cy_build_in(g, body);
  results[0] = cy_build_scalar_int(g, CY_BOOL, 1);
  bool ok = step(im, r, params[AT], params[STATE], &results[1], &read) &&
            (!r->window || (results[2] = shift_in(im, params[STATES], results[1], r->window)));
  cy_build_in(g, here);
  if (!ok)
    return 0;
  results[1 + carried] = read;
  cy_block_set_results(g, body, results, 2 + carried);
  const cy_type *one = cy_onnx_type(im, read);
  cy_dim d[4] = {cy_onnx_type(im, r->k)->dim[1], one->dim[0], one->dim[1], one->dim[2]};
  types[STATE + carried] = cy_type_make(CY_F32, 4, d);
  cy_attr a = cy_attr_block(CY_ATTR_body, body);
  cy_val first = cy_build(g, CY_OP_loop, in, 2 + carried, &a, 1, &types[STATE], carried + 1);
  *out_state = first && r->window ? cy_build_output(g, first, 1) : first;
  return first ? cy_build_output(g, first, carried) : 0;
}

/* x [b, t, heads, size] with every head `times` times. */
static cy_val repeated(cy_importer *im, cy_val x, int64_t times) {
  const cy_type t = *cy_onnx_type(im, x);
  cy_dim apart[5] = {t.dim[0], t.dim[1], t.dim[2], num(im, times), t.dim[3]};
  cy_dim flat[4] = {t.dim[0], t.dim[1], cy_dim_muli(im->g, t.dim[2], times), t.dim[3]};
  cy_val y = cy_build_unsqueeze(im->g, x, 3);
  return y ? cy_build_reshape(im->g, cy_build_expand(im->g, y, apart, 5), flat, 4) : 0;
}

/* What com.microsoft's states of several tokens have: only the last of past is read. window: the attribute. */
static bool state_window(cy_importer *im, const cy_onnx_node *n, int64_t *out_window) {
  enum { LIMIT = 8 };
  *out_window = cy_onnx_int(im, n, "state_window", 0);
  return (*out_window >= 0 && *out_window <= LIMIT) ||
         cy_build_error(im->g, "attribute 'state_window'", "expected 0 to %d, found %lld", LIMIT,
                        (long long)*out_window);
}

static cy_val last_slot(cy_importer *im, cy_val past, int64_t window) {
  if (!past || !window)
    return past;
  const cy_type *t = cy_onnx_type(im, past);
  if (t->rank < 4 || cy_onnx_clash(im, t->dim[0], num(im, window)))
    return cy_build_error(im->g, "input 'past_state'",
                          "expected %lld states along its first axis (state_window), found %s", (long long)window,
                          cy_type_text(im->g, t));
  cy_val v = cy_build_slice_axis(im->g, past, 0, num(im, window - 1), num(im, 1));
  return v ? cy_build_squeeze(im->g, v, 0) : 0;
}

/* The keys, one head of them for each of the values: several values' heads may share one, as wide as a query's. */
static cy_val keys(cy_importer *im, const cy_onnx_node *n, int64_t heads, int64_t kv_heads) {
  int64_t wide, size, there = kv_heads;
  const cy_type *t = cy_onnx_type(im, n->in[1]), *q = cy_onnx_type(im, X);
  if (t->rank == 3 && q->rank == 3 && cy_dim_is_const(im->g, t->dim[2], &wide) &&
      cy_dim_is_const(im->g, cy_dim_div(im->g, q->dim[2], num(im, heads)), &size)) {
    there = size > 0 ? wide / size : 0;
    if (there < 1 || wide % size || kv_heads % there)
      return cy_build_error(im->g, "input 'key'",
                            "expected %lld heads of %lld, or what divides them, found %lld elements",
                            (long long)kv_heads, (long long)size, (long long)wide);
  }
  cy_val k = split_heads(im, n, 1, there);
  return k && there < kv_heads ? repeated(im, k, kv_heads / there) : k;
}

static bool read_inputs(cy_importer *im, const cy_onnx_node *n, int rule, int64_t heads, int64_t kv_heads,
                        recurrence *r) {
  bool gated = rule == RULE_GATED || rule == RULE_GATED_DELTA, delta = rule >= RULE_DELTA;
  if (gated != (n->in[4] != 0) || delta != (n->in[5] != 0))
    return cy_build_error(im->g, "attribute 'update_rule'",
                          "gated rules need the input 'decay', delta rules the input 'beta', others must not have them");
  cy_val k = keys(im, n, heads, kv_heads);
  *r = (recurrence){
      .q = split_heads(im, n, 0, heads), .k = k, .v = split_heads(im, n, 2, kv_heads), .group = heads / kv_heads};
  if (!r->q || !r->k || !r->v)
    return false;
  if (gated && !(r->decay = split_heads(im, n, 4, kv_heads)))
    return false;
  bool shared = delta && cy_onnx_type(im, n->in[5])->rank == 3 && cy_dim_is(im->g, cy_onnx_type(im, n->in[5])->dim[2], 1);
  return !delta || (r->beta = split_heads(im, n, 5, shared ? 1 : kv_heads));
}

/* Has v, if it is there, these dims in front? */
static bool has_dims(cy_importer *im, cy_val v, const char *what, const cy_dim *want, int count) {
  const cy_type *t = v ? cy_onnx_type(im, v) : NULL;
  if (t && (t->content || t->rank < count))
    return cy_build_error(im->g, what, "expected a tensor of at least %d axes, found %s", count, cy_type_text(im->g, t));
  for (int k = 0; t && k < count; k++) {
    if (cy_onnx_clash(im, t->dim[k], want[k]))
      return cy_build_error(im->g, what, "expected %s along axis %d, found %s", cy_dim_text(im->g, want[k]), k,
                            cy_type_text(im->g, t));
    cy_graph_require(im->g, t->dim[k], want[k], CY_REQUIRE_EQUAL);
  }
  return true;
}

/* Keys, values and gates have the queries' batch and tokens, the state is a matrix for each of its sequences and heads. */
static bool inputs_fit(cy_importer *im, const recurrence *r, cy_val state, const cy_dim *state_dims) {
  const cy_dim *tokens = cy_onnx_type(im, r->q)->dim;
  return has_dims(im, r->k, "input 'key'", tokens, 2) && has_dims(im, r->v, "input 'value'", tokens, 2) &&
         has_dims(im, r->decay, "input 'decay'", tokens, 2) && has_dims(im, r->beta, "input 'beta'", tokens, 2) &&
         has_dims(im, state, "input 'past_state'", state_dims, 4);
}

IMPORT(linear_attention) {
  int rule = cy_onnx_word(im, n, "update_rule", "gated_delta", "linear|gated|delta|gated_delta");
  int64_t heads = cy_onnx_int(im, n, "q_num_heads", 0), kv_heads = cy_onnx_int(im, n, "kv_num_heads", 0), size, window;
  recurrence r = {0};
  if (rule < 0 || !state_window(im, n, &window))
    return false;
  if (heads < 1 || kv_heads < 1 || (heads % kv_heads && kv_heads % heads))
    return cy_build_error(im->g, "attribute 'q_num_heads'",
                          "expected a multiple of kv_num_heads (%lld), or what divides it, found %lld",
                          (long long)kv_heads, (long long)heads);
  if (!read_inputs(im, n, rule, heads, kv_heads, &r))
    return false;
  r.window = window;
  r.scale = cy_onnx_float(im, n, "scale", 0);
  if (r.scale == 0 && (!cy_dim_is_const(im->g, cy_onnx_type(im, r.q)->dim[3], &size) || size < 1))
    return cy_build_error(im->g, NULL,
                          "without attribute 'scale' the size of a head must be known at compile time, found %s",
                          cy_type_text(im->g, cy_onnx_type(im, r.q)));
  r.scale = r.scale != 0 ? r.scale : 1 / sqrt((double)size);
  if (heads < kv_heads) { /* a query for several keys */
    r.q = repeated(im, r.q, kv_heads / heads);
    heads = kv_heads;
    r.group = 1;
  }
  if (!r.q)
    return false;
  const cy_type q = *cy_onnx_type(im, r.q), v = *cy_onnx_type(im, r.v);
  cy_dim shape[4] = {q.dim[0], num(im, kv_heads), q.dim[3], v.dim[3]};
  cy_dim out[3] = {q.dim[0], q.dim[1], cy_dim_muli(im->g, v.dim[3], heads)};
  const int64_t batch_first[4] = {1, 0, 2, 3};
  cy_val past = last_slot(im, n->in[3], window);
  if (!inputs_fit(im, &r, past, shape))
    return false;
  cy_val state = past ? CAST(past, CY_F32) : cy_onnx_fill(im, cy_build_scalar(im->g, CY_F32, 0), shape, 4);
  cy_val y = state ? run_tokens(im, &r, state, &state) : 0;
  y = y ? cy_build_reshape(im->g, cy_build_transpose(im->g, y, batch_first), out, 3) : 0;
  cy_dtype dtype = cy_onnx_type(im, X)->dtype, kept = n->in[3] ? cy_onnx_type(im, n->in[3])->dtype : dtype;
  return y && cy_importer_set(im, n, 0, CAST(y, dtype)) && cy_importer_set(im, n, 1, CAST(state, kept));
}

/* ---- CausalConvWithState ---- */

/* Every channel by itself: y[b, c, i] = sum_k w[c, 0, k] x[b, c, i + k * dilation]. */
static cy_val depthwise(cy_importer *im, cy_val x, cy_val w, cy_dim length, int64_t channels, int64_t dilation) {
  const int64_t one = 1, none[2] = {0, 0};
  const cy_type t = *cy_onnx_type(im, x);
  cy_attr a[4] = {cy_attr_ints(CY_ATTR_strides, &one, 1), cy_attr_ints(CY_ATTR_pads, none, 2),
                  cy_attr_ints(CY_ATTR_dilations, &dilation, 1), cy_attr_int(CY_ATTR_group, channels)};
  cy_dim d[3] = {t.dim[0], t.dim[1], length};
  cy_type out = cy_type_make(t.dtype, 3, d);
  cy_val in[2] = {x, w};
  return cy_build(im->g, CY_OP_conv, in, 2, a, 4, &out, 1);
}

/* x [batch, length, channels..] as [batch, channels, length]. */
static cy_val channels_first(cy_importer *im, cy_val x) {
  const cy_type t = *cy_onnx_type(im, x);
  cy_dim d[3] = {t.dim[0], t.rank > 1 ? t.dim[1] : num(im, 1), num(im, 1)};
  for (int i = 2; i < t.rank; i++)
    d[2] = cy_dim_mul(im->g, d[2], t.dim[i]);
  return cy_onnx_move_axis(im, cy_build_reshape(im->g, x, d, 3), 2, 1);
}

/* And back, to the channels of a tensor of type `like`; slots of a state may stand in front. */
static cy_val channels_back(cy_importer *im, cy_val x, const cy_type *like) {
  int rank = x ? cy_onnx_type(im, x)->rank : 0, front = rank - 2, out = 0;
  cy_val y = x ? cy_onnx_move_axis(im, x, rank - 1, front) : 0;
  if (!y)
    return 0;
  const cy_type t = *cy_onnx_type(im, y);
  cy_dim d[CY_MAX_RANK];
  for (; out < rank - 1; out++)
    d[out] = t.dim[out];
  for (int i = 2; i < like->rank && out < CY_MAX_RANK; i++)
    d[out++] = like->dim[i];
  return cy_build_reshape(im->g, y, d, out);
}

/* Of x, which `before` elements of the past precede: what precedes the element behind each of the last `window` ones,
 * [window, batch, channels, before]; zeros where there are fewer. 0: behind the last one only, without that axis. */
static cy_val present_state(cy_importer *im, cy_val x, cy_dim length, cy_dim before, int64_t window) {
  if (!window)
    return cy_build_slice_axis(im->g, x, 2, length, before);
  cy_dim grid[2] = {num(im, window), before}, rest[4] = {num(im, window), num(im, 1), num(im, 1), num(im, 1)};
  cy_val zero = cy_build_scalar_int(im->g, CY_I64, 0), slot = cy_build_iota(im->g, CY_I64, grid, 2, 0);
  cy_val start = ADD(slot, cy_build_dim_scalar(im->g, cy_dim_addi(im->g, length, 1 - window)));
  cy_val at = ADD(start, cy_build_iota(im->g, CY_I64, grid, 2, 1));
  cy_val y = at ? cy_onnx_move_axis(im, cy_build_gather(im->g, x, MAX(at, zero), 2), 2, 0) : 0;
  slot = cy_build_iota(im->g, CY_I64, rest, 4, 0);
  cy_val there = BINARY(ge, ADD(slot, cy_build_dim_scalar(im->g, length)), cy_build_scalar_int(im->g, CY_I64, window));
  return y && there ? SELECT(there, y, LIKE(y, 0)) : 0;
}

IMPORT(causal_conv) {
  const cy_type t = *cy_onnx_type(im, X), w = *cy_onnx_type(im, n->in[1]);
  int64_t channels, dilation = cy_onnx_int(im, n, "dilation", 1), window;
  int activation = cy_onnx_word(im, n, "activation", "none", "none|silu|swish");
  bool last = cy_onnx_int(im, n, "channels_last", 0) != 0;
  if (activation < 0 || !state_window(im, n, &window))
    return false;
  if (cy_onnx_int(im, n, "ndim", 1) != 1 || dilation < 1)
    return cy_build_error(
        im->g, NULL, "expected 'ndim' 1, as others are not supported, and 'dilation' from 1 on, found %lld and %lld",
        (long long)cy_onnx_int(im, n, "ndim", 1), (long long)dilation);
  if ((last ? t.rank < 3 : t.rank != 3) || w.rank != 3 || !cy_dim_is_const(im->g, w.dim[0], &channels))
    return cy_build_error(im->g, NULL, "expected [batch, channels, length] and weights [channels, 1, k], found %s and %s",
                          cy_type_text(im->g, &t), cy_type_text(im->g, &w));
  cy_val now = last ? channels_first(im, X) : X, past = last_slot(im, n->in[3], window);
  if (past && last)
    past = channels_first(im, past);
  if (!now || (n->in[3] && !past))
    return false;
  const cy_type tx = *cy_onnx_type(im, now);
  cy_dim before = cy_dim_muli(im->g, cy_dim_addi(im->g, w.dim[2], -1), dilation), d[3] = {tx.dim[0], tx.dim[1], before};
  if (past && (cy_onnx_type(im, past)->rank != 3 || cy_onnx_clash(im, cy_onnx_type(im, past)->dim[2], before)))
    return cy_build_error(im->g, "input 'past_state'", "expected %s elements of every channel, found %s",
                          cy_dim_text(im->g, before), cy_type_text(im->g, cy_onnx_type(im, n->in[3])));
  cy_val part[2] = {past ? past : cy_onnx_fill(im, LIKE(X, 0), d, 3), now};
  cy_val x = cy_dim_is(im->g, before, 0) ? now : cy_build_concat(im->g, part, 2, 2);
  cy_val y = x ? depthwise(im, x, n->in[1], tx.dim[2], channels, dilation) : 0;
  if (n->in[2])
    y = ADD(y, cy_onnx_per_channel(im, n->in[2], "input 'bias'", y, 1));
  if (activation)
    y = MUL(y, UNARY(sigmoid, y));
  if (!y || !cy_importer_set(im, n, 0, last ? channels_back(im, y, &t) : y))
    return false;
  if (!cy_onnx_wants(n, 1))
    return true;
  cy_val state = present_state(im, x, tx.dim[2], before, window);
  return cy_importer_set(im, n, 1, last ? channels_back(im, state, &t) : state);
}

/* ---- TensorScatter: update written into the cache from position write_indices[batch] on along an axis ---- */

IMPORT(tensor_scatter) {
  const cy_type t = *cy_onnx_type(im, X), u = *cy_onnx_type(im, n->in[1]);
  int axis, mode = cy_onnx_word(im, n, "mode", "linear", "linear|circular");
  if (mode < 0 || !cy_onnx_axis(im, cy_onnx_int(im, n, "axis", -2), t.rank, &axis))
    return false;
  if (u.rank != t.rank || axis == 0)
    return cy_build_error(im->g, NULL,
                          "expected a cache and an update of one rank, and an axis behind the batch, found %s and %s",
                          cy_type_text(im->g, &t), cy_type_text(im->g, &u));
  cy_dim one = num(im, 1), room = cy_dim_sub(im->g, t.dim[axis], u.dim[axis]);
  if (mode == 0 && n->in[2] && !cy_onnx_check_lengths(im, n->in[2], room))
    return false;
  if (mode == 1 && n->in[2] &&
      !cy_onnx_check_true(im, BINARY(ge, n->in[2], LIKE(n->in[2], 0)), "node '%s': a write index is below 0"))
    return false;
  cy_val starts = n->in[2] ? n->in[2] : cy_onnx_fill(im, cy_build_scalar_int(im->g, CY_I64, 0), &one, 1);
  return cy_importer_set(
      im, n, 0,
      cy_build_write_rows(im->g, X, n->in[1], starts, axis, t.dim[axis], mode == 1 ? CY_WRITE_WRAP : CY_WRITE_PLAIN));
}
