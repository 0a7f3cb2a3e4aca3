/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_search.c - the choice of tokens in GreedySearch, Sampling and BeamSearch.
 *
 * In:  scores of all tokens, of every sequence. Out: which one each sequence goes on with, as a composition of ops; what
 * beams keep of hypotheses. All is done for the whole batch at once: sorting a few hypotheses is counting, for each, those
 * that come before it. Orders and ties are ONNX Runtime's.
 */
#include "frontend/contrib/generate.h"

#include <float.h>
#include <string.h>

static const int64_t axis1[1] = {1}, axis2[1] = {2};

static cy_dim num(cy_importer *im, int64_t v) { return cy_dim_const(im->g, v); }

static cy_val number(cy_importer *im, int64_t v) { return cy_build_scalar_int(im->g, CY_I64, v); }

/* 0, 1, .. along axis 1 of [1, count]. */
static cy_val counting(cy_importer *im, cy_dtype dtype, cy_dim count) {
  return cy_build_iota(im->g, dtype, (cy_dim[]){num(im, 1), count}, 2, 1);
}

static cy_val fill(cy_importer *im, cy_dtype dtype, double v, const cy_dim *dims, int rank) {
  return cy_onnx_fill(im, cy_build_scalar(im->g, dtype, v), dims, rank);
}

/* Every column of [rows, columns] at the place that `at` says, both i64. */
static cy_val pick(cy_importer *im, cy_val x, cy_val at) {
  cy_attr axis = cy_attr_int(CY_ATTR_axis, 1);
  return x && at ? cy_build(im->g, CY_OP_gather_elements, (cy_val[]){x, at}, 2, &axis, 1, NULL, 0) : 0;
}

/* [batch, columns] to [batch, count]: place k is the column whose rank is k and that counts; 0 where there is none. */
static cy_val by_rank(cy_importer *im, cy_val rank, cy_val counts, cy_dim count) {
  if (!rank || !counts)
    return 0;
  cy_dim columns = cy_onnx_type(im, rank)->dim[1];
  cy_dim places[3] = {num(im, 1), count, num(im, 1)}, along[3] = {num(im, 1), num(im, 1), columns};
  cy_val here = BINARY(eq, cy_build_unsqueeze(im->g, rank, 1), cy_build_iota(im->g, CY_I64, places, 3, 1));
  here = BINARY(and, here, cy_build_unsqueeze(im->g, counts, 1));
  cy_val at = here ? SELECT(here, cy_build_iota(im->g, CY_I64, along, 3, 2), number(im, 0)) : 0;
  return cy_build_reduce(im->g, CY_OP_reduce_sum, at, axis2, 1, false);
}

/* [batch, x..] of the scalars [batch], for broadcasting. */
static cy_val of_batch(cy_importer *im, cy_val v) { return cy_build_unsqueeze(im->g, v, 1); }

/* ---- scores ---- */

/* Which of the tokens are among ids [rows, count] (where `hit`, or everywhere if that is 0): bool [rows, vocab]. */
static cy_val mark(cy_importer *im, cy_val ids, cy_val hit, cy_dim vocab) {
  ids = CAST(ids, CY_I64);
  if (!ids)
    return 0;
  cy_dim rows = cy_onnx_type(im, ids)->dim[0], d[2] = {rows, cy_dim_addi(im->g, vocab, 1)};
  cy_val last = cy_build_dim_scalar(im->g, vocab);
  cy_val valid = BINARY(and, BINARY(ge, ids, number(im, 0)), BINARY(lt, ids, last));
  cy_val at = SELECT(hit && valid ? BINARY(and, valid, hit) : valid, ids, last);
  if (!at)
    return 0;
  const cy_attr a[2] = {cy_attr_int(CY_ATTR_axis, 1), cy_attr_int(CY_ATTR_combine, CY_COMBINE_SET)};
  cy_val in[3] = {fill(im, CY_I32, 0, d, 2), at, fill(im, CY_I32, 1, cy_onnx_type(im, at)->dim, 2)};
  cy_val y = cy_build(im->g, CY_OP_scatter_elements, in, 3, a, 2, NULL, 0);
  y = cy_build_slice_axis(im->g, y, 1, num(im, 0), vocab);
  return y ? BINARY(ne, y, LIKE(y, 0)) : 0;
}

cy_val cy_onnx_block_ngrams(cy_importer *im, cy_val ids, cy_val scores, int64_t size, double value) {
  const cy_type t = *cy_onnx_type(im, ids);
  cy_dim windows = cy_dim_max(im->g, num(im, 0), cy_dim_addi(im->g, t.dim[1], 1 - size)), one = num(im, 1);
  cy_val hit = 0;
  for (int64_t k = 0; k < size - 1; k++) { /* the last ids, where there are so many */
    cy_val mine = cy_build_slice_axis(im->g, ids, 1, num(im, k), windows);
    cy_dim from = cy_dim_max(im->g, num(im, 0), cy_dim_addi(im->g, t.dim[1], k + 1 - size));
    cy_val same = BINARY(eq, mine, cy_build_slice_axis(im->g, ids, 1, from, one));
    hit = hit ? BINARY(and, hit, same) : same;
    if (!hit)
      return 0;
  }
  cy_val next = cy_build_slice_axis(im->g, ids, 1, num(im, size - 1), windows);
  cy_val blocked = mark(im, next, hit, cy_onnx_type(im, scores)->dim[1]);
  return blocked ? SELECT(blocked, LIKE(scores, value), scores) : 0;
}

cy_val cy_search_rows(const cy_search *s, cy_val x) {
  cy_importer *im = s->im;
  if (!x || cy_dim_is(im->g, s->beams, 1))
    return x;
  const cy_type t = *cy_onnx_type(im, x);
  cy_dim all[CY_MAX_RANK + 1] = {s->batch, s->beams}, rows[CY_MAX_RANK] = {s->rows};
  memcpy(all + 2, t.dim + 1, sizeof *all * (t.rank - 1u));
  memcpy(rows + 1, t.dim + 1, sizeof *all * (t.rank - 1u));
  x = cy_build_expand(im->g, cy_build_unsqueeze(im->g, x, 1), all, t.rank + 1);
  return cy_build_reshape(im->g, x, rows, t.rank);
}

/* Tokens where `may` is false get the lowest score. */
static cy_val restricted(const cy_search *s, cy_val scores, cy_val may) {
  cy_importer *im = s->im;
  return may && scores ? SELECT(may, scores, LIKE(scores, -FLT_MAX)) : 0;
}

/* ---- Whisper's time stamps, which enclose what is said ---- */

typedef struct stamped {
  cy_val last, before; /* bool [rows, 1]: the last token, and the one before it, are stamps */
  cy_val newest, any;  /* i64 [rows, 1], the newest stamp; bool [rows, 1], whether there is one */
  cy_val begun;        /* bool [rows, 1]: there are tokens behind the first stamp */
} stamped;

static bool find_stamps(const cy_search *s, cy_val tokens, stamped *out) {
  cy_importer *im = s->im;
  tokens = CAST(tokens, CY_I64);
  if (!tokens)
    return false;
  cy_dim count = cy_onnx_type(im, tokens)->dim[1], one = num(im, 1);
  cy_val stamp = BINARY(ge, tokens, number(im, s->stamps.first)), place = counting(im, CY_I64, count);
  cy_val end = cy_build_dim_scalar(im->g, count);
  cy_val oldest = cy_build_reduce(im->g, CY_OP_reduce_min, SELECT(stamp, place, end), axis1, 1, true);
  cy_val newest = cy_build_reduce(im->g, CY_OP_reduce_max, SELECT(stamp, place, number(im, -1)), axis1, 1, true);
  out->any = BINARY(ge, newest, number(im, 0));
  out->newest = pick(im, tokens, MAX(newest, number(im, 0)));
  out->last = cy_build_slice_axis(im->g, stamp, 1, cy_dim_addi(im->g, count, -1), one);
  out->begun = BINARY(lt, ADD(oldest, number(im, 1)), end);
  cy_dim second = cy_dim_max(im->g, cy_dim_addi(im->g, count, -2), num(im, 0));
  out->before = BINARY(or, cy_build_slice_axis(im->g, stamp, 1, second, one), UNARY(not, out->begun));
  return out->newest && out->last && out->before && out->any;
}

/* The tokens that the stamps so far leave: stamps come in pairs (but for the first) and never fall. */
static cy_val allowed(const cy_search *s, const stamped *at) {
  cy_importer *im = s->im;
  const int64_t latest = 50; /* of the first stamp */
  cy_val token = counting(im, CY_I64, s->vocab), stamp = BINARY(ge, token, number(im, s->stamps.first));
  cy_val never = BINARY(or, BINARY(eq, token, number(im, s->stamps.no_stamps)),
                        BINARY(eq, token, number(im, s->stamps.start_of_lm)));
  cy_val once = BINARY(or, BINARY(eq, token, number(im, s->stamps.translate)),
                       BINARY(eq, token, number(im, s->stamps.transcribe)));
  once = BINARY(or, once, BINARY(eq, token, number(im, s->stamps.start)));
  cy_val no = BINARY(or, never, BINARY(and, once, at->begun));
  cy_val pair = BINARY(and, at->last, at->before), open = BINARY(and, at->last, UNARY(not, at->before));
  no = BINARY(or, no, BINARY(and, pair, stamp));
  no = BINARY(or, no, BINARY(and, open, BINARY(lt, token, number(im, s->eos))));
  cy_val min = SELECT(open, at->newest, ADD(at->newest, number(im, 1)));
  no = BINARY(or, no, BINARY(and, BINARY(and, at->any, stamp), BINARY(lt, token, min)));
  cy_val late = BINARY(gt, token, number(im, s->stamps.first + latest));
  return UNARY(not, BINARY(or, no, BINARY(and, late, UNARY(not, at->begun))));
}

/* Where all stamps together are more probable than any other token, a stamp it is. */
static cy_val timed(const cy_search *s, const cy_search_state *state, cy_val scores, cy_dim length) {
  cy_importer *im = s->im;
  stamped at;
  if (!find_stamps(s, cy_build_slice_axis(im->g, state->v[CY_SEARCH_SEQUENCES], 1, num(im, 0), length), &at))
    return 0;
  cy_val low = LIKE(scores, -FLT_MAX), y = SELECT(allowed(s, &at), scores, low);
  cy_val stamp = BINARY(ge, counting(im, CY_I64, s->vocab), number(im, s->stamps.first));
  cy_val stamps = SELECT(stamp, y, low);
  cy_val max = cy_build_reduce(im->g, CY_OP_reduce_max, stamps, axis1, 1, true);
  cy_val text = cy_build_reduce(im->g, CY_OP_reduce_max, SELECT(stamp, low, y), axis1, 1, true);
  cy_val parts = SELECT(BINARY(gt, stamps, low), UNARY(exp, SUB(stamps, max)), LIKE(scores, 0));
  cy_val sum = cy_build_reduce(im->g, CY_OP_reduce_sum, parts, axis1, 1, true);
  cy_val together = SELECT(BINARY(gt, sum, LIKE(sum, 0)), ADD(UNARY(log, sum), max), low);
  y = SELECT(BINARY(and, BINARY(gt, together, text), UNARY(not, stamp)), low, y);
  return y ? SELECT(s->timed, y, scores) : 0;
}

/* ---- all that changes scores ---- */

/* What changes the scores [rows, vocab] before the choice, in ONNX Runtime's order. */
static cy_val processed(const cy_search *s, const cy_search_state *state, cy_val scores, cy_dim length, bool first) {
  cy_importer *im = s->im;
  if (s->repetition_penalty) {
    cy_val less = SELECT(BINARY(lt, scores, LIKE(scores, 0)), MUL(scores, s->repetition_penalty),
                         DIV(scores, s->repetition_penalty));
    scores = SELECT(state->v[CY_SEARCH_SEEN], less, scores);
  }
  if (s->ngram && scores) {
    cy_val so_far = cy_build_slice_axis(im->g, state->v[CY_SEARCH_SEQUENCES], 1, num(im, 0), length);
    scores = so_far ? cy_onnx_block_ngrams(im, so_far, scores, s->ngram, -FLT_MAX) : 0;
  }
  if (s->words)
    scores = restricted(s, scores, s->words);
  if (s->first_words && first)
    scores = restricted(s, scores, cy_search_rows(s, s->first_words));
  if (s->min_length && scores) {
    cy_val early = BINARY(lt, cy_build_dim_scalar(im->g, length), s->min_length);
    cy_val end = BINARY(eq, counting(im, CY_I64, s->vocab), number(im, s->eos));
    scores = SELECT(BINARY(and, end, early), LIKE(scores, -FLT_MAX), scores);
  }
  if (s->temperature && scores)
    scores = DIV(scores, s->temperature);
  if (s->present && scores)
    scores = SUB(scores, s->present);
  if (s->timed && scores)
    scores = timed(s, state, scores, length);
  return scores;
}

/* ---- the sequences ---- */

/* One token behind each of the sequences that `from` names (0: each its own). */
static bool append(const cy_search *s, cy_search_state *state, cy_val from, cy_val tokens, cy_dim length) {
  cy_importer *im = s->im;
  cy_val *v = state->v;
  cy_val old = from ? cy_build_gather(im->g, v[CY_SEARCH_SEQUENCES], from, 0) : v[CY_SEARCH_SEQUENCES];
  cy_val here = BINARY(eq, counting(im, CY_I64, s->length), cy_build_dim_scalar(im->g, length));
  v[CY_SEARCH_TOKENS] = cy_build_reshape(im->g, tokens, (cy_dim[]){s->rows, num(im, 1)}, 2);
  v[CY_SEARCH_SEQUENCES] = SELECT(here, v[CY_SEARCH_TOKENS], old);
  if (s->repetition_penalty) {
    cy_val seen = from ? cy_build_gather(im->g, v[CY_SEARCH_SEEN], from, 0) : v[CY_SEARCH_SEEN];
    v[CY_SEARCH_SEEN] = BINARY(or, seen, BINARY(eq, v[CY_SEARCH_TOKENS], counting(im, CY_I32, s->vocab)));
  }
  return v[CY_SEARCH_TOKENS] && v[CY_SEARCH_SEQUENCES] && (!s->repetition_penalty || v[CY_SEARCH_SEEN]);
}

bool cy_search_start(const cy_search *s, cy_val ids, cy_search_state *out) {
  cy_importer *im = s->im;
  cy_dim none = num(im, 0), pads[4] = {none, none, none, cy_dim_sub(im->g, s->length, s->prompt)};
  cy_dim beams[2] = {s->batch, s->beams}, kept[3] = {s->batch, s->beams, s->length};
  cy_val *v = out->v;
  *out = (cy_search_state){0};
  v[CY_SEARCH_SEQUENCES] =
      cy_search_rows(s, cy_build_pad(im->g, ids, pads, CY_PAD_CONSTANT, cy_build_scalar_int(im->g, CY_I32, s->pad)));
  v[CY_SEARCH_DONE] = fill(im, CY_BOOL, 0, beams, 1);
  if (s->repetition_penalty && !(v[CY_SEARCH_SEEN] = cy_search_rows(s, mark(im, ids, 0, s->vocab))))
    return false;
  if (s->kind == CY_SEARCH_SAMPLE && !(v[CY_SEARCH_RANDOM] = cy_search_seed(s)))
    return false;
  if (s->kind != CY_SEARCH_BEAMS)
    return v[CY_SEARCH_SEQUENCES] && v[CY_SEARCH_DONE];
  /* Equal beams must not choose the same tokens: all but the first begin far behind. */
  cy_val late = BINARY(gt, counting(im, CY_I64, s->beams), number(im, 0));
  cy_val start = SELECT(late, cy_build_scalar(im->g, CY_F32, -1e9), cy_build_scalar(im->g, CY_F32, 0));
  v[CY_SEARCH_SCORES] = cy_build_expand(im->g, start, beams, 2);
  v[CY_SEARCH_KEPT] = cy_onnx_fill(im, cy_build_scalar_int(im->g, CY_I32, s->pad), kept, 3);
  v[CY_SEARCH_KEPT_SCORES] = fill(im, CY_F32, 0, beams, 2);
  v[CY_SEARCH_KEPT_COUNT] = fill(im, CY_I64, 0, beams, 1);
  return v[CY_SEARCH_SEQUENCES] && v[CY_SEARCH_SCORES] && v[CY_SEARCH_KEPT];
}

cy_val cy_search_goes_on(const cy_search *s, const cy_search_state *state) {
  static const int64_t axis0[1] = {0};
  cy_importer *im = s->im;
  cy_val open = CAST(UNARY(not, state->v[CY_SEARCH_DONE]), CY_I32);
  return CAST(cy_build_reduce(im->g, CY_OP_reduce_max, open, axis0, 1, false), CY_BOOL);
}

/* ---- beams ---- */

/* The probability of a sequence, by which hypotheses are ranked. */
static cy_val weighted(const cy_search *s, cy_val score, cy_dim length) {
  cy_importer *im = s->im;
  cy_val by = CAST(cy_build_dim_scalar(im->g, length), CY_F32);
  return DIV(score, s->length_penalty ? BINARY(pow, by, s->length_penalty) : by);
}

/* Puts sequences [rows, length] where `valid` [batch, beams] among the hypotheses; behind those of equal score. */
static bool keep(const cy_search *s, cy_search_state *state, cy_val sequences, cy_val score, cy_val valid) {
  cy_importer *im = s->im;
  cy_val *v = state->v;
  cy_dim both = cy_dim_muli(im->g, s->beams, 2), one = num(im, 1);
  cy_dim all[2] = {s->batch, s->beams}, flat[2] = {cy_dim_mul(im->g, s->batch, both), s->length};
  cy_dim apart[3] = {s->batch, s->beams, s->length};
  valid = cy_build_expand(im->g, valid, all, 2);
  cy_val used =
      cy_build_expand(im->g, BINARY(lt, counting(im, CY_I64, s->beams), of_batch(im, v[CY_SEARCH_KEPT_COUNT])), all, 2);
  cy_val counts = cy_build_concat(im->g, (cy_val[]){used, valid}, 2, 1);
  cy_val scores = cy_build_concat(im->g, (cy_val[]){v[CY_SEARCH_KEPT_SCORES], score}, 2, 1);
  if (!counts || !scores)
    return false;
  cy_val other = cy_build_unsqueeze(im->g, scores, 1), mine = cy_build_unsqueeze(im->g, scores, 2);
  cy_val earlier = BINARY(lt, cy_build_iota(im->g, CY_I64, (cy_dim[]){one, one, both}, 3, 2),
                          cy_build_iota(im->g, CY_I64, (cy_dim[]){one, both, one}, 3, 1));
  cy_val before = BINARY(or, BINARY(gt, other, mine), BINARY(and, BINARY(eq, other, mine), earlier));
  before = CAST(BINARY(and, before, cy_build_unsqueeze(im->g, counts, 1)), CY_I64);
  cy_val from = by_rank(im, cy_build_reduce(im->g, CY_OP_reduce_sum, before, axis2, 1, false), counts, s->beams);
  if (!from)
    return false;
  cy_val added = cy_build_reduce(im->g, CY_OP_reduce_sum, CAST(valid, CY_I64), axis1, 1, false);
  v[CY_SEARCH_KEPT_COUNT] = MIN(ADD(v[CY_SEARCH_KEPT_COUNT], added), cy_build_dim_scalar(im->g, s->beams));
  v[CY_SEARCH_KEPT_SCORES] = pick(im, scores, from);
  cy_val first = MUL(cy_build_iota(im->g, CY_I64, (cy_dim[]){s->batch, one}, 2, 0), cy_build_dim_scalar(im->g, both));
  cy_val parts[2] = {v[CY_SEARCH_KEPT], cy_build_reshape(im->g, sequences, apart, 3)};
  cy_val lines = parts[1] ? cy_build_reshape(im->g, cy_build_concat(im->g, parts, 2, 1), flat, 2) : 0;
  v[CY_SEARCH_KEPT] = cy_build_gather(im->g, lines, ADD(from, first), 0);
  return v[CY_SEARCH_KEPT] && v[CY_SEARCH_KEPT_SCORES] && v[CY_SEARCH_KEPT_COUNT];
}

/* The best tokens of an element of the batch in falling order, twice as many as there are beams: these suffice if each of
 * the beams comes to its end. */
typedef struct candidates {
  cy_val score, token, beam; /* [batch, 2 * beams] */
  cy_val ends, open;         /* bool: end-of-sequence tokens; all others */
} candidates;

static bool find_candidates(const cy_search *s, cy_val scores, candidates *c) {
  cy_importer *im = s->im;
  cy_dim flat[2] = {s->batch, cy_dim_mul(im->g, s->beams, s->vocab)};
  scores = cy_build_reshape(im->g, scores, flat, 2);
  if (!scores)
    return false;
  cy_type types[2] = {*cy_onnx_type(im, scores), *cy_onnx_type(im, scores)};
  types[0].dim[1] = types[1].dim[1] = cy_dim_muli(im->g, s->beams, 2);
  types[1].dtype = CY_I64;
  cy_attr a[3] = {cy_attr_int(CY_ATTR_axis, 1), cy_attr_int(CY_ATTR_largest, 1), cy_attr_int(CY_ATTR_sorted, 1)};
  c->score = cy_build(im->g, CY_OP_topk, &scores, 1, a, 3, types, 2);
  cy_val place = cy_build_output(im->g, c->score, 1), vocab = cy_build_dim_scalar(im->g, s->vocab);
  c->beam = DIV(place, vocab);
  c->token = SUB(place, MUL(c->beam, vocab));
  c->ends = BINARY(eq, c->token, number(im, s->eos));
  c->open = UNARY(not, c->ends);
  return c->open != 0;
}

/* An element is done when there are enough hypotheses and nothing that is still open can become better. ONNX Runtime
 * looks for the best open score of element b from place b * beams of all scores on, where its neighbours' are, too. */
static cy_val done(const cy_search *s, const cy_search_state *state, const candidates *c, cy_dim length) {
  cy_importer *im = s->im;
  const cy_val *v = state->v;
  cy_dim both = cy_dim_muli(im->g, s->beams, 2), one = num(im, 1), all = cy_dim_mul(im->g, s->batch, both);
  cy_val beams = cy_build_dim_scalar(im->g, s->beams), full = BINARY(eq, v[CY_SEARCH_KEPT_COUNT], beams);
  if (!s->early_stopping && full) {
    cy_val first = MUL(cy_build_iota(im->g, CY_I64, (cy_dim[]){s->batch, one}, 2, 0), beams);
    cy_val at = ADD(first, counting(im, CY_I64, both));
    cy_val flat = cy_build_reshape(im->g, c->score, &all, 1);
    cy_val best = cy_build_reduce(im->g, CY_OP_reduce_max, cy_build_gather(im->g, flat, at, 0), axis1, 1, false);
    cy_val worst = cy_build_slice_axis(im->g, v[CY_SEARCH_KEPT_SCORES], 1, cy_dim_addi(im->g, s->beams, -1), one);
    cy_val better = worst ? BINARY(lt, cy_build_squeeze(im->g, worst, 1), weighted(s, best, length)) : 0;
    full = BINARY(and, full, UNARY(not, better));
  }
  return full ? BINARY(or, v[CY_SEARCH_DONE], full) : 0;
}

static bool beams_step(const cy_search *s, cy_search_state *state, cy_val scores, cy_dim length, cy_val *out_from,
                       cy_val *out_scores) {
  cy_importer *im = s->im;
  cy_val *v = state->v;
  cy_dim apart[3] = {s->batch, s->beams, s->vocab}, one = num(im, 1), flat = s->rows;
  scores = ADD(cy_build_reshape(im->g, scores, apart, 3), cy_build_unsqueeze(im->g, v[CY_SEARCH_SCORES], 2));
  candidates c;
  if (!(*out_scores = scores) || !find_candidates(s, scores, &c))
    return false;
  /* The first of the open ones go on, */
  const cy_attr a[3] = {cy_attr_int(CY_ATTR_axis, 1), cy_attr_int(CY_ATTR_exclusive, 1),
                        cy_attr_int(CY_ATTR_reverse, 0)};
  cy_val open = CAST(c.open, CY_I64);
  cy_val rank = open ? cy_build(im->g, CY_OP_cumsum, &open, 1, a, 3, NULL, 0) : 0;
  cy_val chosen = by_rank(im, rank, c.open, s->beams), was_done = of_batch(im, v[CY_SEARCH_DONE]);
  cy_val first =
      MUL(cy_build_iota(im->g, CY_I64, (cy_dim[]){s->batch, one}, 2, 0), cy_build_dim_scalar(im->g, s->beams));
  cy_val next = pick(im, c.score, chosen), token = CAST(pick(im, c.token, chosen), CY_I32);
  cy_val from = ADD(pick(im, c.beam, chosen), first);
  if (!from || !next || !token)
    return false;
  v[CY_SEARCH_SCORES] = SELECT(was_done, LIKE(next, 0), next);
  token = SELECT(was_done, cy_build_scalar_int(im->g, CY_I32, s->pad), token);
  from = SELECT(was_done, number(im, 0), from);
  /* .. and of those among the best `beams` that end the sequences become hypotheses. */
  cy_val ended[3] = {c.ends, c.score, c.beam};
  for (int i = 0; i < 3; i++)
    ended[i] = cy_build_slice_axis(im->g, ended[i], 1, num(im, 0), s->beams);
  cy_val lines = cy_build_reshape(im->g, ADD(ended[2], first), &flat, 1);
  lines = cy_build_gather(im->g, v[CY_SEARCH_SEQUENCES], lines, 0);
  cy_val valid = BINARY(and, ended[0], UNARY(not, was_done)), score = weighted(s, ended[1], length);
  if (!lines || !keep(s, state, lines, score, valid) || !(v[CY_SEARCH_DONE] = done(s, state, &c, length)))
    return false;
  *out_from = cy_build_reshape(im->g, from, &flat, 1);
  return *out_from && append(s, state, *out_from, token, length);
}

/* ---- one sequence each ---- */

static bool single_step(const cy_search *s, cy_search_state *state, cy_val scores, cy_dim length) {
  cy_importer *im = s->im;
  cy_val *v = state->v;
  cy_val token = s->kind == CY_SEARCH_SAMPLE ? cy_search_sample(s, scores, &v[CY_SEARCH_RANDOM])
                                             : cy_build_reduce(im->g, CY_OP_argmax, scores, axis1, 1, false);
  token = CAST(token, CY_I32);
  cy_val end = token ? BINARY(eq, token, LIKE(token, (double)s->eos)) : 0;
  v[CY_SEARCH_DONE] = end ? BINARY(or, v[CY_SEARCH_DONE], end) : 0;
  token = v[CY_SEARCH_DONE] ? SELECT(v[CY_SEARCH_DONE], LIKE(token, (double)s->pad), token) : 0;
  return token && append(s, state, 0, token, length);
}

bool cy_search_step(const cy_search *s, cy_search_state *state, cy_val logits, cy_dim length, bool first,
                    cy_val *out_from, cy_val *out_scores) {
  cy_importer *im = s->im;
  cy_attr axis = cy_attr_int(CY_ATTR_axis, 1);
  *out_from = *out_scores = 0;
  cy_val scores =
      logits && s->kind == CY_SEARCH_BEAMS ? cy_build(im->g, CY_OP_log_softmax, &logits, 1, &axis, 1, NULL, 0) : logits;
  scores = scores ? processed(s, state, scores, length, first) : 0;
  if (!scores)
    return false;
  return s->kind == CY_SEARCH_BEAMS ? beams_step(s, state, scores, length, out_from, out_scores)
                                    : single_step(s, state, scores, length);
}

bool cy_search_finish(const cy_search *s, cy_search_state *state, cy_val *out_sequences, cy_val *out_scores) {
  cy_importer *im = s->im;
  cy_val *v = state->v;
  *out_sequences = v[CY_SEARCH_SEQUENCES];
  *out_scores = 0;
  if (s->kind != CY_SEARCH_BEAMS)
    return true;
  /* What is open counts, too; elements that have something open have reached the full length. */
  cy_val open = of_batch(im, UNARY(not, v[CY_SEARCH_DONE])), score = weighted(s, v[CY_SEARCH_SCORES], s->length);
  if (!open || !keep(s, state, v[CY_SEARCH_SEQUENCES], score, open))
    return false;
  *out_sequences = cy_build_slice_axis(im->g, v[CY_SEARCH_KEPT], 1, num(im, 0), s->returned);
  *out_scores = cy_build_slice_axis(im->g, v[CY_SEARCH_KEPT_SCORES], 1, num(im, 0), s->returned);
  return *out_sequences && *out_scores;
}
