/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_gates.c - com.microsoft operators that fuse what stands around the recurrences and embeddings of hybrid language
 * models: gates, norms with gates, rotation by several positions, hashes of neighbouring tokens.
 *
 * Each computes in f32 between its inputs and outputs, as ONNX Runtime's kernels do.
 */
#include "frontend/import_int.h"

#include <math.h>

#define X (n->in[0])
#define SET(v) cy_importer_set(im, n, 0, (v))

static cy_dim num(cy_importer *im, int64_t v) { return cy_dim_const(im->g, v); }
static cy_val f32(cy_importer *im, cy_val v) { return v ? CAST(v, CY_F32) : 0; }

static bool put(cy_importer *im, const cy_onnx_node *n, cy_val y) {
  return y && SET(CAST(y, cy_onnx_type(im, X)->dtype));
}

/* x + y * gate, the product rounded to their type. */
IMPORT(gated_add) { return SET(ADD(X, MUL(n->in[1], n->in[2]))); }

/* Root mean square norm of groups as long as the scale, times scale and silu(gate). */
IMPORT(gated_rms_norm) {
  const cy_type t = *cy_onnx_type(im, X), ts = *cy_onnx_type(im, n->in[1]);
  if (t.rank < 1 || t.rank >= CY_MAX_RANK || ts.rank != 1)
    return cy_build_error(im->g, "input 'scale'", "expected a list, for groups of the last axis of %s, found %s",
                          cy_type_text(im->g, &t), cy_type_text(im->g, &ts));
  cy_dim d[CY_MAX_RANK];
  for (int i = 0; i < t.rank; i++)
    d[i] = t.dim[i];
  d[t.rank - 1] = cy_dim_div(im->g, t.dim[t.rank - 1], ts.dim[0]);
  d[t.rank] = ts.dim[0];
  int64_t axis = t.rank;
  cy_val x = f32(im, cy_build_reshape(im->g, X, d, t.rank + 1)), gate = f32(im, n->in[2]);
  cy_val y = x ? cy_onnx_normalize(im, x, &axis, 1, cy_onnx_float(im, n, "epsilon", 1e-5), true) : 0;
  y = y ? cy_build_reshape(im->g, MUL(y, f32(im, n->in[1])), t.dim, t.rank) : 0;
  return put(im, n, y && gate ? MUL(y, MUL(gate, UNARY(sigmoid, gate))) : 0);
}

/* decay_scale * softplus(a + dt_bias); sigmoid(b). */
IMPORT(linear_attention_gate) {
  cy_val x = ADD(f32(im, X), f32(im, n->in[1]));
  if (!x)
    return false;
  cy_val y = MUL(f32(im, n->in[2]), cy_onnx_softplus(im, x));
  if (!put(im, n, y) || !cy_onnx_wants(n, 1))
    return y != 0;
  if (!n->in[3])
    return cy_build_error(im->g, "input 'b'", "output 'beta' needs it");
  return cy_importer_set(im, n, 1, CAST(UNARY(sigmoid, f32(im, n->in[3])), cy_onnx_type(im, X)->dtype));
}

/* key, query [b, s, copies, d], value [b, s, d], scales of the norms of key and query. */
IMPORT(engram_gate) {
  const cy_type t = *cy_onnx_type(im, X);
  int64_t axis = 3, size;
  double epsilon = cy_onnx_float(im, n, "epsilon", 1e-5);
  if (t.rank != 4 || cy_onnx_type(im, n->in[1])->rank != 4 || cy_onnx_type(im, n->in[2])->rank != 3 ||
      !cy_dim_is_const(im->g, t.dim[3], &size))
    return cy_build_error(im->g, NULL,
                          "expected key and query [batch, sequence, copies, hidden] of known size and a value"
                          " [batch, sequence, hidden], found %s",
                          cy_type_text(im->g, &t));
  cy_val part[2];
  for (int i = 0; i < 2; i++)
    part[i] = MUL(cy_onnx_normalize(im, f32(im, n->in[i]), &axis, 1, epsilon, true), f32(im, n->in[3 + i]));
  cy_val dot = part[0] && part[1] ? cy_build_reduce(im->g, CY_OP_reduce_sum, MUL(part[0], part[1]), &axis, 1, true) : 0;
  dot = dot ? MUL(dot, LIKE(dot, 1 / sqrt((double)size))) : 0;
  cy_val root = dot ? UNARY(sqrt, MAX(UNARY(abs, dot), LIKE(dot, 1e-6))) : 0;
  cy_val gate = root ? UNARY(sigmoid, MUL(UNARY(sign, dot), root)) : 0;
  return put(im, n, gate ? MUL(gate, cy_build_unsqueeze(im->g, f32(im, n->in[2]), 2)) : 0);
}

/* ---- rotation by three positions per token ---- */

/* Which of the three positions turns pair i: sections one behind the other, or taking turns. i64[half] */
static cy_val position_of_pair(cy_importer *im, const int64_t *section, int64_t layout, int64_t half) {
  int64_t *which = CY_NEW_ARRAY(im->arena, int64_t, (size_t)half);
  for (int64_t i = 0; i < half; i++) {
    if (layout)
      which[i] = i % 3 == 1 && i < 3 * section[1] ? 1 : i % 3 == 2 && i < 3 * section[2] ? 2 : 0;
    else
      which[i] = i < section[0] ? 0 : i < section[0] + section[1] ? 1 : 2;
  }
  return cy_build_ints(im->g, which, (uint32_t)half);
}

/* A table [positions, half] read at positions [3, b, s]: [b, s, half], where pair i is from position `which`[i]. */
static cy_val rotated_by(cy_importer *im, cy_val table, cy_val at, cy_val which, const cy_type *t) {
  static const int64_t last[4] = {1, 2, 3, 0};
  cy_dim d[4] = {t->dim[0], t->dim[1], cy_onnx_type(im, table)->dim[1], num(im, 1)};
  cy_val all = cy_build_gather(im->g, table, at, 0); /* [3, b, s, half] */
  cy_val in[2] = {all ? cy_build_transpose(im->g, all, last) : 0, 0};
  cy_dim row[4] = {num(im, 1), num(im, 1), d[2], num(im, 1)};
  in[1] = cy_build_expand(im->g, cy_build_reshape(im->g, which, row, 4), d, 4);
  cy_attr a = cy_attr_int(CY_ATTR_axis, 3);
  cy_val y = in[0] && in[1] ? cy_build(im->g, CY_OP_gather_elements, in, 2, &a, 1, NULL, 1) : 0;
  return y ? cy_build_squeeze(im->g, y, 3) : 0;
}

/* x [b, heads, s, d] or [b, s, heads * d], positions [3, b, s], tables of cosines and sines. */
IMPORT(multimodal_rotary) {
  const cy_type t = *cy_onnx_type(im, X), *at = cy_onnx_type(im, n->in[1]), *table = cy_onnx_type(im, n->in[2]);
  int64_t heads = cy_onnx_int(im, n, "num_heads", 0), dims = cy_onnx_int(im, n, "rotary_embedding_dim", 0),
          layout = cy_onnx_int(im, n, "mrope_layout", 0), half;
  uint32_t count;
  const int64_t *section = cy_onnx_ints(im, n, "mrope_section", &count);
  if ((t.rank != 4 && (t.rank != 3 || heads < 1)) || at->rank != 3 || table->rank != 2 ||
      !cy_dim_is_const(im->g, table->dim[1], &half) || (dims && dims != 2 * half))
    return cy_build_error(
        im->g, NULL,
        "expected [batch, heads, sequence, size], or three dimensions and num_heads, positions [3, batch,"
        " sequence] and tables of known width, found %s, %s and %s",
        cy_type_text(im->g, &t), cy_type_text(im->g, at), cy_type_text(im->g, table));
  if (!section || count != 3 || section[0] < 0 || section[1] < 0 || section[2] < 0 || layout < 0 || layout > 1 ||
      section[0] > half || section[1] > half || section[2] > half || section[0] + section[1] + section[2] != half)
    return cy_build_error(im->g, "attribute 'mrope_section'",
                          "expected three counts that add up to %lld, and layout 0 or 1", (long long)half);
  if (cy_onnx_int(im, n, "is_packed_batching", 0))
    return cy_build_error(im->g, "attribute 'is_packed_batching'", "ragged batches are not supported");
  cy_dim d[4] = {t.dim[0], t.dim[1], num(im, heads), cy_dim_div(im->g, t.dim[2], num(im, heads > 0 ? heads : 1))};
  cy_val x = t.rank == 3 ? cy_build_reshape(im->g, X, d, 4) : cy_onnx_move_axis(im, X, 1, 2);
  if (!x)
    return false;
  const cy_type tx = *cy_onnx_type(im, x);
  cy_val which = position_of_pair(im, section, layout, half);
  bool interleaved = cy_onnx_int(im, n, "interleaved", 0) != 0;
  for (int i = 2; i < 4; i++)
    if (!cy_onnx_check_rows(im, n->in[1], n->in[i]))
      return false;
  cy_val sine = rotated_by(im, n->in[3], n->in[1], which, &tx), cosine = rotated_by(im, n->in[2], n->in[1], which, &tx);
  cy_val y = cy_onnx_rotary(im, x, cosine, sine, num(im, 2 * half), interleaved);
  return y && SET(t.rank == 3 ? cy_build_reshape(im->g, y, t.dim, 3) : cy_onnx_move_axis(im, y, 1, 2));
}

/* ---- hashes of neighbouring tokens ---- */

/* ids [b, s], a multiplier per shift, a modulus per head, the ids before: for every n up to the longest, `heads`
 * numbers: the ids shifted by 0 .. n - 1, each times its multiplier, put together by exclusive or, modulo that of the
 * head. */
IMPORT(ngram_hash) {
  const cy_type t = *cy_onnx_type(im, X);
  int64_t longest = cy_onnx_int(im, n, "max_ngram_size", 0), heads = cy_onnx_int(im, n, "n_head_per_ngram", 0);
  enum { LIMIT = 64 };
  if (t.rank != 2 || longest < 2 || longest > LIMIT || heads < 1 || cy_onnx_type(im, n->in[1])->rank != 1 ||
      cy_onnx_type(im, n->in[2])->rank != 1)
    return cy_build_error(im->g, NULL,
                          "expected ids [batch, sequence], two lists, n_head_per_ngram and max_ngram_size from 2 on,"
                          " found %s, %lld and %lld",
                          cy_type_text(im->g, &t), (long long)heads, (long long)longest);
  if (cy_onnx_clash(im, cy_onnx_type(im, n->in[1])->dim[0], num(im, longest)) ||
      cy_onnx_clash(im, cy_onnx_type(im, n->in[2])->dim[0], num(im, (longest - 1) * heads)))
    return cy_build_error(im->g, NULL, "expected %lld multipliers and %lld sizes, found %s and %s", (long long)longest,
                          (long long)(longest - 1) * heads, cy_type_text(im->g, cy_onnx_type(im, n->in[1])),
                          cy_type_text(im->g, cy_onnx_type(im, n->in[2])));
  cy_dim before = num(im, longest - 1), d[2] = {t.dim[0], before};
  cy_val pad = cy_build_scalar_int(im->g, t.dtype, cy_onnx_int(im, n, "pad_id", 0));
  cy_val both[2] = {n->in[3] ? n->in[3] : cy_onnx_fill(im, pad, d, 2), X}, part[LIMIT], mix = 0;
  cy_val all = both[0] ? cy_build_concat(im->g, both, 2, 1) : 0;
  for (int64_t i = 0; all && i < longest; i++) {
    cy_val factor = cy_build_slice_axis(im->g, n->in[1], 0, num(im, i), num(im, 1));
    cy_val shifted = MUL(cy_build_slice_axis(im->g, all, 1, num(im, longest - 1 - i), t.dim[1]), factor);
    mix = i ? BINARY(xor, mix, shifted) : shifted;
    cy_val size = i ? cy_build_slice_axis(im->g, n->in[2], 0, num(im, (i - 1) * heads), num(im, heads)) : 0;
    if (!mix || (i && !size) || (i && !(part[i - 1] = BINARY(mod, cy_build_unsqueeze(im->g, mix, 2), size))))
      return false;
  }
  cy_val y = all ? cy_build_concat(im->g, part, (uint32_t)longest - 1, 2) : 0;
  return y && SET(y) &&
         (!cy_onnx_wants(n, 1) || cy_importer_set(im, n, 1, cy_build_slice_axis(im->g, all, 1, t.dim[1], before)));
}
