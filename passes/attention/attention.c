/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - finds attention as exporters spell it out: scores = q k^T, changed, softmax, times v.
 *
 * In:  a swept graph in canonical spelling, softmax recognised. Out: `attention` nodes (ir.h, cy_attention).
 *
 * From the product with v backwards: softmax along the last axis, and from there (attention_walk.c) up to the product of
 * q and k any number of
 *   scales, additions of something that broadcasts, selects against a constant, softcap (c * tanh(s / c)), reshapes
 *   that leave rows and keys alone (nn.MultiheadAttention, shifted windows), additions between a reshape that gives rows
 *   and keys axes of their own and one back (relative positions in feature maps), and a largest of a number so low that
 * it
 *   only keeps masks finite, which biases take instead.
 * Each value in between has one reader: otherwise the scores would be computed twice. Scales outside of a bias multiply
 * it; factors of heads or rows (cosine attention's, Swin v2) become q's, if no bias or mask is inside; factors of q and
 * k, also behind views, join the scale. Where reshapes split batch axes, attention is computed in the finest of the
 * shapes. Repeated heads of k and v (reshape, expand, reshape) are looked through; a head that only one of them shares
 * is repeated. Masks that are triangles of constants become causality, which costs nothing and saves half. Scores times
 * zeros and ones of a constant, or of a slice of one, plus a number where it is zero, are masked by that number. The
 * product may also be written the other way round, v^T times transposed weights. Products with a mask and its opposite
 * become a select before (attention_masks.c).
 *
 * A finite fill with a bias behind it is a bias itself if it is so low that no score changes it.
 *
 * Weights that are NaN may be made 0, as exporters do for rows that see no key: softmax makes all of a row NaN or
 * nothing, so the result is looked at instead. (Only where v itself is not finite, and the product NaN for that, does 0
 * stand in its place.) Masked weights may be made 0 for the same reason: their scores become -inf. The fill is
 * then known to stand for -inf, also where it is as high as -10000 (NeMo).
 *
 * A column of the scores that the weights then lose, as attention sinks are written (softmax of scores and sinks side
 * by side, without its last column), is a key of zeros with a value of zeros in front of the others, whose bias is the
 * sink.
 *
 * Scores may be put together from parts of themselves, to one of which something was added (attention_windows.c); softmax
 * then may stand in front of a transpose of such parts.
 *
 * Where products multiply halves and add up in f32 (widen_half.c), weights are rounded in front of the second product;
 * such attention is found only if one kernel does it.
 *
 * Refused: anything else between the products, other axes of softmax, batch axes along which q is repeated, another
 * finite fill with a bias behind it.
 */
#include "attention_int.h"

#include <math.h>
#include <string.h>

static const double masked_twice = -1e4; /* the same where masked weights become 0 as well: so speech models write it */

typedef cy_attention_match match;
typedef cy_attention_addend addend;

/* ---- shapes ---- */

/* Batch axes of the finer view for each batch axis of `from`: group[i] .. group[i + 1). False: not a split. */
static bool split_axes(cy_graph *g, const cy_type *from, const cy_type *to, int *out_group) {
  int j = 0, n = to->rank - 2;
  for (int i = 0; i < from->rank - 2; i++) {
    cy_dim product = cy_dim_const(g, 1);
    out_group[i] = j;
    while (product != from->dim[i]) {
      if (j == n)
        return false;
      product = cy_dim_mul(g, product, to->dim[j++]);
    }
  }
  for (; j < n; j++)
    if (!cy_dim_is(g, to->dim[j], 1))
      return false;
  out_group[from->rank - 2] = n;
  return true;
}

/* Batch sizes of x by other names than those of t, which broadcasting takes to be equal or 1, become t's. */
static cy_val with_batch_of(cy_graph *g, cy_val x, const cy_type *t) {
  cy_type wide = *cy_type_of(g, x);
  bool same = true;
  for (int i = 0, at = t->rank - wide.rank; i < wide.rank - 2 && at >= 0; i++) {
    int64_t own, want;
    bool named = wide.dim[i] != t->dim[at + i] && !cy_dim_is_const(g, wide.dim[i], &own) &&
                 !cy_dim_is_const(g, t->dim[at + i], &want);
    wide.dim[i] = named ? t->dim[at + i] : wide.dim[i];
    same &= !named;
  }
  return same ? x : cy_build_expand(g, x, wide.dim, wide.rank);
}

/* Is the batch of `wide` that of `thin`, and in places the larger of that and another, with which it broadcast? */
static bool widens(cy_graph *g, const cy_type *thin, const cy_type *wide) {
  if (thin->rank != wide->rank)
    return false;
  for (int i = 0; i < thin->rank - 2; i++) {
    const cy_term *term;
    bool larger = cy_dim_terms(g, wide->dim[i], &term) == 1 && term->natoms == 1 && term->coef == 1 &&
                  cy_dim_atom(g, term->atoms[0])->kind == CY_ATOM_JOIN &&
                  cy_dim_join(g, thin->dim[i], wide->dim[i]) == wide->dim[i];
    if (thin->dim[i] != wide->dim[i] && !larger)
      return false;
  }
  return true;
}

/* x, which broadcasts to `from` but for its last two axes, as something that broadcasts to `to`. 0: it can't be. */
static cy_val reviewed(cy_graph *g, cy_val x, const cy_type *from, const cy_type *to) {
  const cy_type t = *cy_type_of(g, x);
  int group[CY_MAX_RANK + 1], missing = from->rank - t.rank;
  bool same = from->rank == to->rank && !memcmp(from->dim, to->dim, (size_t)(to->rank - 2) * sizeof *to->dim);
  if (same)
    return x;
  if (widens(g, from, to))
    return with_batch_of(g, x, to);
  if (!split_axes(g, from, to, group))
    return 0;
  cy_dim dims[CY_MAX_RANK];
  for (int i = 0; i < from->rank - 2; i++)
    for (int j = group[i]; j < group[i + 1]; j++) {
      cy_dim own = i < missing ? cy_dim_const(g, 1) : t.dim[i - missing];
      if (own != from->dim[i] && !cy_dim_is(g, own, 1))
        return 0;
      dims[j] = own == from->dim[i] ? to->dim[j] : cy_dim_const(g, 1);
    }
  for (int i = 0; i < 2; i++) {
    int at = t.rank - 2 + i;
    dims[to->rank - 2 + i] = at < 0 ? cy_dim_const(g, 1) : t.dim[at];
  }
  return cy_build_reshape(g, x, dims, to->rank);
}

/* The finest batch shape among the views of scores, weights and result. */
static cy_type finest(const match *m, const cy_type *weights, const cy_type *result) {
  cy_type best = *cy_type_of(m->g, m->scores->out[0]);
  const cy_type *others[2 + 2 * CY_ATTENTION_BIASES] = {weights, result};
  int n = 2;
  for (int i = 0; i < m->nbias; i++)
    others[n++] = &m->bias[i].view;
  for (int i = 0; i < m->nmask; i++)
    others[n++] = &m->mask[i].view;
  for (int i = 0; i < n; i++)
    if (others[i]->rank > best.rank || widens(m->g, &best, others[i]))
      best = *others[i];
  return best;
}

/* q or k in `view`: by way of a mask's or bias's, where masks made the batch larger behind a reshape. */
static cy_val reviewed_factor(const match *m, cy_val x, const cy_type *view) {
  const cy_type *scores = cy_type_of(m->g, m->scores->out[0]);
  cy_val y = reviewed(m->g, x, scores, view);
  for (int i = 0; !y && i < m->nbias + m->nmask; i++) {
    const cy_type *via = i < m->nbias ? &m->bias[i].view : &m->mask[i - m->nbias].view;
    y = reviewed(m->g, x, scores, via);
    y = y ? reviewed(m->g, y, via, view) : 0;
  }
  return y;
}

/* ---- operands ---- */

static bool swaps_rows(const cy_node_info *n) {
  uint32_t rank;
  const int64_t *perm = n && n->op == CY_OP_transpose ? cy_attr_list(n, CY_ATTR_perm, &rank) : NULL;
  if (!perm || rank < 2 || perm[rank - 1] != rank - 2 || perm[rank - 2] != rank - 1)
    return false;
  for (uint32_t i = 0; i + 2 < rank; i++)
    if (perm[i] != i)
      return false;
  return true;
}

/* The last two axes of x exchanged. */
static cy_val transposed(cy_graph *g, cy_val x) {
  const cy_node_info *n = cy_def(g, x);
  if (swaps_rows(n))
    return n->in[0];
  int rank = cy_type_of(g, x)->rank;
  int64_t perm[CY_MAX_RANK];
  for (int i = 0; i < rank; i++)
    perm[i] = i < rank - 2 ? i : 2 * rank - 3 - i;
  return cy_build_transpose(g, x, perm);
}

/* x = c * y, or a view of it that nobody else reads: y (viewed), and c goes into *scale. Else x. */
static cy_val unscaled(const match *m, cy_val x, double *scale) {
  cy_graph *g = m->g;
  const cy_node_info *n = cy_def(g, x);
  double c;
  if (!n || x > m->rw->nvalues || !cy_rewrite_single_use(m->rw, x))
    return x;
  if ((n->op == CY_OP_mul || n->op == CY_OP_div) && cy_attention_number(g, n->in[1], &c) && c != 0 &&
      cy_same_shape(cy_type_of(g, n->in[0]), cy_type_of(g, x))) {
    *scale *= n->op == CY_OP_mul ? c : 1 / c;
    return n->in[0];
  }
  if (n->op != CY_OP_transpose && n->op != CY_OP_reshape)
    return x;
  cy_val inner = unscaled(m, n->in[0], scale);
  if (inner == n->in[0])
    return x;
  uint32_t rank;
  return n->op == CY_OP_reshape ? cy_build_reshape(g, inner, cy_type_of(g, x)->dim, cy_type_of(g, x)->rank)
                                : cy_build_transpose(g, inner, cy_attr_list(n, CY_ATTR_perm, &rank));
}

/* x [.., g * r, t, d] that repeats each of g heads r times: the tensor with g heads; else 0. */
static cy_val unrepeated(cy_graph *g, cy_val x) {
  const cy_node_info *join = cy_def_of(g, x, CY_OP_reshape);
  const cy_node_info *expand = join ? cy_def_of(g, join->in[0], CY_OP_expand) : NULL;
  if (!expand)
    return 0;
  const cy_type *t = cy_type_of(g, x), *wide = cy_type_of(g, join->in[0]), *thin = cy_type_of(g, expand->in[0]);
  int r = t->rank, h = r - 3;
  if (h < 0 || wide->rank != r + 1 || thin->rank != r + 1 || !cy_dim_is(g, thin->dim[h + 1], 1))
    return 0;
  cy_dim dims[CY_MAX_RANK];
  for (int i = 0; i < r; i++) {
    int at = i + (i > h);
    bool kept = i == h ? thin->dim[at] == wide->dim[at] && cy_dim_mul(g, wide->dim[h], wide->dim[h + 1]) == t->dim[h]
                       : thin->dim[at] == wide->dim[at] && wide->dim[at] == t->dim[i];
    if (!kept)
      return 0;
    dims[i] = thin->dim[at];
  }
  return cy_build_reshape(g, expand->in[0], dims, r);
}

/* Keeps a bias or mask in the match's attention: as causality or as an operand. False: its shape does not fit. */
static bool keep_operand(match *m, cy_attention *a, const addend *x, const cy_type *view, bool is_mask) {
  cy_graph *g = m->g;
  cy_dim past;
  if (!a->causal && x->factor > 0 && (!is_mask || m->fill <= CY_ATTENTION_HIDDEN) &&
      cy_attention_causal_past(g, x->v, &past)) {
    a->causal = true;
    a->past = past;
    return true;
  }
  cy_val v = reviewed(g, with_batch_of(g, x->v, &x->view), &x->view, view);
  if (v && x->low != 0) {
    cy_val like = m->scores->out[0], zero = cy_build_like(g, like, 0), low = cy_build_like(g, like, x->low);
    v = cy_build_select(g, v, x->factor > 0 ? zero : low, x->factor > 0 ? low : zero);
  } else if (v && is_mask && x->factor < 0) {
    v = cy_build_unary(g, CY_OP_not, v);
  } else if (v && !is_mask && x->factor != 1) {
    v = cy_build_binary(g, CY_OP_mul, v, cy_build_like(g, v, x->factor));
  }
  cy_val *slot = is_mask ? &a->mask : &a->bias;
  if (v && *slot)
    v = cy_build_binary(g, is_mask ? CY_OP_and : CY_OP_add, *slot, v);
  *slot = v;
  return v != 0;
}

/* ---- sinks ---- */

/* Everything of x but the last column: x; else `weights`. */
static cy_val unsliced(const match *m, cy_val weights) {
  cy_graph *g = m->g;
  const cy_node_info *slice = cy_def_of(g, weights, CY_OP_slice);
  uint32_t n;
  if (!slice || !cy_rewrite_single_use(m->rw, weights))
    return weights;
  const cy_dim *starts = cy_attr_dim_list(slice, CY_ATTR_starts, &n);
  const int64_t *steps = cy_attr_list(slice, CY_ATTR_steps, &n);
  const cy_type *t = cy_type_of(g, weights), *whole = cy_type_of(g, slice->in[0]);
  int last = t->rank - 1;
  for (int i = 0; i <= last; i++)
    if (!cy_dim_is(g, starts[i], 0) || steps[i] != 1 ||
        whole->dim[i] != (i == last ? cy_dim_addi(g, t->dim[i], 1) : t->dim[i]))
      return weights;
  return slice->in[0];
}

/* x = [scores, sink], the last column by itself: the scores, and the sink is kept; else 0. */
static cy_val without_sink(match *m, cy_val x) {
  cy_graph *g = m->g;
  const cy_node_info *join = cy_def_of(g, x, CY_OP_concat);
  int last = cy_type_of(g, x)->rank - 1;
  if (!join || join->nin != 2 || cy_attr_get_int(join, CY_ATTR_axis, 0) != last || !cy_rewrite_single_use(m->rw, x) ||
      !cy_dim_is(g, cy_type_of(g, join->in[1])->dim[last], 1))
    return 0;
  const cy_node_info *wide = cy_def_of(g, join->in[1], CY_OP_expand);
  cy_val sink = wide && cy_type_of(g, wide->in[0])->rank == last + 1 ? wide->in[0] : join->in[1];
  m->sink = (addend){sink, *cy_type_of(g, join->in[0]), 1, 0};
  return join->in[0];
}

/* x with one more element in front along `axis`. */
static cy_val with_first(cy_graph *g, cy_val x, int axis, double first) {
  const cy_type t = *cy_type_of(g, x);
  cy_dim pads[2 * CY_MAX_RANK];
  for (int i = 0; i < 2 * t.rank; i++)
    pads[i] = cy_dim_const(g, i == axis);
  return cy_build_pad(g, x, pads, CY_PAD_CONSTANT, cy_build_scalar(g, (cy_dtype)t.dtype, first));
}

/* Has x, which broadcasts to the scores, a column for each key? */
static bool by_keys(const match *m, cy_val x) {
  const cy_type *t = cy_type_of(m->g, x), *scores = cy_type_of(m->g, m->scores->out[0]);
  return t->rank && t->dim[t->rank - 1] == scores->dim[scores->rank - 1];
}

/* select(seen, 0, low), `low` so low that no score changes it: `seen`, negated where it means hidden; else 0. */
static cy_val seen_of(cy_graph *g, cy_val bias, double *out_low) {
  const cy_node_info *n = cy_def_of(g, bias, CY_OP_select);
  double low;
  for (int which = 1; n && which <= 2; which++)
    if (cy_splat_is(g, n->in[which], 0) && cy_attention_number(g, n->in[3 - which], &low) &&
        low <= cy_attention_lowest) {
      *out_low = low;
      return which == 1 ? n->in[0] : cy_build_unary(g, CY_OP_not, n->in[0]);
    }
  return 0;
}

/* Puts the sink in front of all keys. */
static bool keep_sink(match *m, cy_attention *a, const cy_type *view) {
  cy_graph *g = m->g;
  const cy_type scores = *cy_type_of(g, m->scores->out[0]);
  cy_val sink = reviewed(g, m->sink.v, &m->sink.view, view);
  int rank = view->rank;
  double low = 0;
  if (!sink || cy_type_of(g, sink)->rank != rank || m->floor != 0)
    return false;
  cy_dim pads[2 * CY_MAX_RANK];
  for (int i = 0; i < 2 * rank; i++)
    pads[i] = i == 2 * rank - 1 ? scores.dim[scores.rank - 1] : cy_dim_const(g, 0);
  sink = cy_build_pad(g, sink, pads, CY_PAD_CONSTANT, cy_build_like(g, sink, 0));
  cy_val seen = a->bias && !a->mask ? seen_of(g, a->bias, &low) : 0;
  if (seen) {
    a->mask = seen;
    a->fill = low;
    a->bias = 0;
  }
  if ((a->bias && !by_keys(m, a->bias)) || (a->mask && !by_keys(m, a->mask)))
    return false;
  a->bias =
      a->bias ? cy_build_binary(g, CY_OP_add, with_first(g, a->bias, cy_type_of(g, a->bias)->rank - 1, 0), sink) : sink;
  if (a->mask)
    a->mask = with_first(g, a->mask, cy_type_of(g, a->mask)->rank - 1, 1);
  if (a->causal)
    a->past = cy_dim_addi(g, a->past, 1);
  a->k = with_first(g, a->k, cy_type_of(g, a->k)->rank - 2, 0);
  a->v = with_first(g, a->v, cy_type_of(g, a->v)->rank - 2, 0);
  return a->bias && a->k && a->v;
}

/* ---- the whole ---- */

/* Is x's batch that of `view`, if by other names, or (`may_stand`) 1 in places? */
static bool batch_fits(const cy_graph *g, const cy_type *x, const cy_type *view, bool may_stand) {
  if (x->rank != view->rank)
    return false;
  for (int i = 0; i < x->rank - 2; i++) {
    int64_t own, all;
    bool known = cy_dim_is_const(g, x->dim[i], &own) || cy_dim_is_const(g, view->dim[i], &all);
    if (x->dim[i] != view->dim[i] && known && !(may_stand && cy_dim_is(g, x->dim[i], 1)))
      return false;
  }
  return true;
}

static cy_val with_batch(cy_graph *g, cy_val x) {
  return cy_type_of(g, x)->rank == 2 ? cy_build_unsqueeze(g, x, 0) : x;
}

/* k or v of one head for all, as many times as the other has heads: attention has both alike. */
static cy_val with_heads(cy_graph *g, cy_val x, cy_val other) {
  cy_type t = *cy_type_of(g, x);
  int heads = t.rank - 3;
  cy_dim want = cy_type_of(g, other)->dim[heads];
  if (!cy_dim_is(g, t.dim[heads], 1) || cy_dim_is(g, want, 1))
    return x;
  t.dim[heads] = want;
  return cy_build_expand(g, x, t.dim, t.rank);
}

static bool is_half(const cy_graph *g, cy_val v) {
  return cy_type_of(g, v)->dtype == CY_F16 || cy_type_of(g, v)->dtype == CY_BF16;
}

/* What is rounded to halves in front of the product with v, itself of halves: weights of f32; else the weights. */
static cy_val unrounded(const match *m, cy_val weights, cy_val v, const cy_type *result) {
  const cy_node_info *round = is_half(m->g, v) ? cy_def_of(m->g, weights, CY_OP_cast) : NULL;
  bool rounded = round && result->dtype == CY_F32 && cy_type_of(m->g, round->in[0])->dtype == CY_F32 &&
                 cy_type_of(m->g, weights)->dtype == cy_type_of(m->g, v)->dtype &&
                 cy_rewrite_single_use(m->rw, weights);
  return rounded ? round->in[0] : weights;
}

/* select(isnan(p), 0, p), read once, of a p that nobody else reads: p; else the weights. */
static cy_val unguarded(const match *m, cy_val weights) {
  cy_graph *g = m->g;
  const cy_node_info *n = cy_def_of(g, weights, CY_OP_select);
  const cy_node_info *test = n && cy_rewrite_single_use(m->rw, weights) ? cy_def_of(g, n->in[0], CY_OP_isnan) : NULL;
  const cy_uses *uses = &m->rw->uses;
  cy_val p = test ? test->in[0] : 0;
  if (!p || p != n->in[2] || p > m->rw->nvalues || uses->start[p + 1] - uses->start[p] != 2 ||
      !cy_splat_is(g, n->in[1], 0) || !cy_rewrite_single_use(m->rw, n->in[0]) ||
      !cy_same_shape(cy_type_of(g, p), cy_type_of(g, weights)))
    return weights;
  return p;
}

/* v, or what it is a view of that leaves rows alone and that nobody else reads. */
static cy_val unviewed(const match *m, cy_val v) {
  const cy_node_info *n = cy_def_of(m->g, v, CY_OP_reshape);
  while (n && cy_rewrite_single_use(m->rw, v) &&
         cy_attention_same_rows(m->g, cy_type_of(m->g, n->in[0]), cy_type_of(m->g, n->out[0]))) {
    v = n->in[0];
    n = cy_def_of(m->g, v, CY_OP_reshape);
  }
  return v;
}

/* select(mask, 0, softmax(select(mask, low, s))), of a softmax that nobody else reads: the softmax; else the weights. */
static cy_val unmasked(const match *m, cy_val weights) {
  cy_graph *g = m->g;
  const cy_node_info *n = cy_def_of(g, weights, CY_OP_select);
  double fill;
  for (int which = 1; n && which <= 2 && cy_rewrite_single_use(m->rw, weights); which++) {
    const cy_node_info *soft = cy_splat_is(g, n->in[which], 0) ? cy_def_of(g, n->in[3 - which], CY_OP_softmax) : NULL;
    const cy_node_info *fills = soft ? cy_def_of(g, soft->in[0], CY_OP_select) : NULL;
    if (fills && fills->in[0] == n->in[0] && cy_attention_number(g, fills->in[which], &fill) && fill <= masked_twice &&
        cy_rewrite_single_use(m->rw, soft->out[0]) &&
        cy_same_shape(cy_type_of(g, soft->out[0]), cy_type_of(g, weights)))
      return soft->out[0];
  }
  return weights;
}

/* transpose(softmax(x)) that leaves keys alone, x put together from parts of the scores: x, transposed; else 0. */
static cy_val transposed_scores(const match *m, const cy_node_info *transpose) {
  cy_graph *g = m->g;
  uint32_t rank;
  const int64_t *perm =
      transpose && transpose->op == CY_OP_transpose ? cy_attr_list(transpose, CY_ATTR_perm, &rank) : NULL;
  const cy_node_info *soft = perm && perm[rank - 1] == rank - 1 ? cy_def_of(g, transpose->in[0], CY_OP_softmax) : NULL;
  bool parts = soft && cy_attr_get_int(soft, CY_ATTR_axis, -1) == (int)rank - 1 &&
               cy_def_of(g, soft->in[0], CY_OP_concat) && cy_rewrite_single_use(m->rw, transpose->in[0]) &&
               cy_rewrite_single_use(m->rw, transpose->out[0]) && cy_rewrite_single_use(m->rw, soft->in[0]);
  return parts ? cy_build_transpose(g, soft->in[0], perm) : 0;
}

/* What stands between softmax and the product with v. */
typedef struct ends {
  bool halves;  /* weights are rounded for a product of halves */
  bool guarded; /* weights that are NaN, or masked, become 0 */
  cy_type weights;
} ends;

/* Follows weights to softmax and from there to the product of q and k. False: this is no attention of v. */
static bool find_scores(match *m, cy_val weights, cy_val v, const cy_type *result, ends *out) {
  cy_graph *g = m->g;
  cy_val wide = unrounded(m, weights, v, result), rows = unviewed(m, wide), whole = unmasked(m, rows);
  cy_val slice = unguarded(m, whole), plain = unsliced(m, slice);
  bool masked = whole != rows;
  *out = (ends){.halves = wide != weights, .guarded = masked || slice != whole};
  const cy_node_info *soft = cy_def(g, unviewed(m, plain));
  cy_val scores = plain == weights ? transposed_scores(m, soft) : 0;
  if (scores) {
    out->weights = *cy_type_of(g, scores);
    return cy_dtype_is_float((cy_dtype)out->weights.dtype) && cy_attention_walk(m, scores) &&
           cy_type_of(g, m->scores->in[0])->dtype == out->weights.dtype;
  }
  if (!soft || soft->op != CY_OP_softmax ||
      (!(out->guarded && soft->out[0] == plain) && !cy_rewrite_single_use(m->rw, soft->out[0])))
    return false;
  cy_val top = plain == slice ? soft->in[0] : without_sink(m, soft->in[0]);
  if (!top || (plain != slice && out->guarded))
    return false;
  const cy_type *w = cy_type_of(g, plain == slice ? soft->out[0] : top);
  out->weights = *w;
  if (cy_attr_get_int(soft, CY_ATTR_axis, -1) != w->rank - 1 || !cy_dtype_is_float((cy_dtype)w->dtype) ||
      !cy_attention_walk(m, top) || (masked && m->nmask != 1))
    return false;
  m->fill = masked ? -INFINITY : m->fill;
  const cy_type *q = cy_type_of(g, m->scores->in[0]);
  return q->dtype == (out->halves ? cy_type_of(g, v) : w)->dtype &&
         (!out->halves || cy_attention_fits(m->rw->pass, q, cy_type_of(g, v)));
}

/* Sets a's q, k and v, in the batch axes of `view`, and its scale. False: they do not fit. */
static bool give_factors(match *m, cy_attention *a, cy_val v, const cy_type *result, const cy_type *view) {
  cy_graph *g = m->g;
  const cy_type scores = *cy_type_of(g, m->scores->out[0]);
  cy_val q = m->scores->in[0], k = m->scores->in[1];
  if (!batch_fits(g, cy_type_of(g, q), &scores, false) || !batch_fits(g, cy_type_of(g, k), &scores, true) ||
      !batch_fits(g, cy_type_of(g, v), result, true) || view->rank < 2 || view->rank > CY_MAX_RANK)
    return false;
  a->scale = m->softcap != 0 ? m->factor * m->softcap : m->factor;
  q = with_batch_of(g, unscaled(m, q, &a->scale), &scores);
  k = with_batch_of(g, transposed(g, unscaled(m, k, &a->scale)), &scores);
  v = with_batch_of(g, v, result);
  cy_val single_k = view->rank == scores.rank ? unrepeated(g, k) : 0, single_v = single_k ? unrepeated(g, v) : 0;
  bool shared =
      single_v && cy_type_of(g, single_k)->dim[view->rank - 3] == cy_type_of(g, single_v)->dim[view->rank - 3];
  a->q = reviewed_factor(m, q, view);
  a->k = shared ? single_k : reviewed_factor(m, k, view);
  a->v = shared ? single_v : reviewed(g, v, result, view);
  if (a->q && m->rows.v) {
    cy_val rows = reviewed(g, m->rows.v, &m->rows.view, view);
    bool same = rows && cy_type_of(g, rows)->dtype == cy_type_of(g, a->q)->dtype;
    a->q = same ? cy_build_binary(g, CY_OP_mul, a->q, rows) : 0;
  }
  return a->q && a->k && a->v;
}

/* Sets what a adds to its scores and what it masks of them. False: something does not fit. */
static bool give_scores(match *m, cy_attention *a, const cy_type *view) {
  cy_graph *g = m->g;
  a->softcap = m->softcap;
  a->fill = m->fill;
  for (int i = 0; i < m->nbias; i++)
    if (!keep_operand(m, a, &m->bias[i], view, false))
      return false;
  for (int i = 0; i < m->nmask; i++)
    if (!keep_operand(m, a, &m->mask[i], view, true))
      return false;
  if (m->floor != 0) {
    a->bias = a->bias ? cy_build_binary(g, CY_OP_max, a->bias, cy_build_like(g, a->bias, m->floor)) : 0;
    a->fill = a->fill < m->floor ? m->floor : a->fill;
  }
  return !m->sink.v || keep_sink(m, a, view);
}

/* weights (the second product's factor, softmax behind reshapes) * v, of type `result`; v as [.., t, e]. */
static cy_val attention(cy_rewrite *rw, cy_val weights, cy_val v, const cy_type *result) {
  cy_graph *g = rw->g;
  match m = {.rw = rw, .g = g, .factor = 1};
  ends around;
  if (!find_scores(&m, weights, v, result, &around))
    return 0;
  const cy_type view = finest(&m, &around.weights, result);
  cy_attention a = {.wide = around.halves};
  if (!give_factors(&m, &a, v, result, &view) || !give_scores(&m, &a, &view))
    return 0;
  a.q = with_batch(g, a.q);
  a.k = with_batch(g, a.k);
  a.v = with_heads(g, with_batch(g, a.v), a.k);
  a.k = with_heads(g, a.k, a.v);
  cy_val y = cy_build_reshape(g, cy_build_attention(g, &a), result->dim, result->rank);
  return around.guarded ? cy_build_select(g, cy_build_unary(g, CY_OP_isnan, y), cy_build_like(g, y, 0), y) : y;
}

/* softmax(..) * v */
static cy_val weights_times_v(cy_rewrite *rw, const cy_node_info *n) {
  return attention(rw, n->in[0], n->in[1], cy_type_of(rw->g, n->out[0]));
}

/* v^T * softmax(..)^T: the same, transposed */
static cy_val v_times_weights(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  const cy_node_info *transpose = cy_def(g, n->in[1]);
  if (!swaps_rows(transpose) || !cy_rewrite_single_use(rw, n->in[1]))
    return 0;
  const cy_node_info *soft = cy_def(g, transpose->in[0]);
  if (!soft || soft->op != CY_OP_softmax)
    return 0;
  cy_type result = *cy_type_of(g, n->out[0]);
  int r = result.rank;
  cy_dim columns = result.dim[r - 1];
  result.dim[r - 1] = result.dim[r - 2];
  result.dim[r - 2] = columns;
  cy_val y = attention(rw, transpose->in[0], transposed(g, n->in[0]), &result);
  return y ? transposed(g, y) : 0;
}

static const cy_rule rules[] = {
    {CY_OP_softmax, "mask of products", cy_attention_masked},
    {CY_OP_matmul, "attention", weights_times_v},
    {CY_OP_matmul, "attention, transposed", v_times_weights},
};

/* requires: swept   establishes: swept   breaks: unique, folded, placed, fused */
int cy_pass_attention(cy_pass *p) {
  const cy_rule_set set = {rules, sizeof rules / sizeof rules[0]};
  if (!p->options->plain_attention && cy_caps_of(p->options->caps)->max_head)
    cy_rewrite_run(p, &set, 1);
  return 0;
}
