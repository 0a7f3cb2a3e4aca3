/* SPDX-License-Identifier: Apache-2.0 */
/* half_sink.c - casts to half precision move to what computes the values: no kernel is needed for a cast alone.
 *
 * In:  a graph in which products read casts to f16 or bf16 (round_to_half.c). Out: the same with casts in front of the
 * views (reshapes, transposes, slices, concatenations, resizing to the nearest) that they stood behind, where they
 * become the end of a kernel.
 *
 * A value is stored as halves if a cast reads it, maybe through views, and if all else that reads it, through views, too,
 * computes with its elements (a residual connection, a normalisation): that then reads the halves, as in a model that
 * comes in half precision, instead of having the value stored twice. What is a result, or goes to a call, a loop or into
 * a cache, stays in f32, and so do the views of it.
 *
 * A concatenation is one of halves if all that is concatenated can be. As that may depend on other concatenations, all
 * are taken for possible at first, and those that turn out not to be are excluded until none is left. Then what is wanted
 * as halves is marked: what casts read, and what is viewed or concatenated together with such.
 */
#include "quantise_int.h"

#include <string.h>

typedef enum answer { UNKNOWN, YES, NO } answer;

typedef struct sinking {
  cy_pass *p;
  cy_graph *g;
  cy_dtype half;
  bool share; /* may what computes read halves? */
  cy_uses uses;
  uint32_t nvalues, nnodes;
  uint8_t *taken; /* [value]: an answer: do all its readers take halves? */
  bool *wanted;   /* [value]: .. and does one want them? */
  bool *excluded; /* [node]: a view that stays in f32 */
  cy_val *made;   /* [value]: its halves */
  cy_node *next;  /* [node]: the one behind it in its block, itself at the end; 0: not in the graph */
} sinking;

static bool is_cast(const sinking *s, const cy_node_info *n, cy_dtype from, cy_dtype to) {
  return n && n->op == CY_OP_cast && cy_type_of(s->g, n->in[0])->dtype == from &&
         cy_type_of(s->g, n->out[0])->dtype == to;
}

static bool is_view(const cy_node_info *n) {
  if (!n || n->op == CY_OP_resize)
    return n && cy_attr_get_int(n, CY_ATTR_mode, CY_RESIZE_LINEAR) == CY_RESIZE_NEAREST;
  return cy_op_is_pure_view((cy_op)n->op) || n->op == CY_OP_concat;
}

/* How many of a view's operands, from the first one on, it moves. */
static uint32_t moved(const cy_node_info *n) { return n->op == CY_OP_concat ? n->nin : 1; }

/* Does n compute with each element that it reads? What goes through a row more than once shares halves where that saves a
 * launch; elsewhere f32 in a cache costs it nothing. */
static bool computes(const sinking *s, const cy_node_info *n) {
  cy_op_class cls = cy_op_of((cy_op)n->op)->cls;
  bool rows =
      cls == CY_CLASS_REDUCE || n->op == CY_OP_softmax || n->op == CY_OP_log_softmax || n->op == CY_OP_normalize;
  return cls == CY_CLASS_EW || (rows && cy_caps_of(s->p->options->caps)->device);
}

static bool is_taken(sinking *s, cy_val v);

/* Does node id take v of block b as halves? */
static bool takes(sinking *s, cy_val v, cy_node id, cy_block b) {
  const cy_node_info *n = id ? cy_node_of(s->g, id) : NULL; /* none: an output of the model or of a block */
  if (!n || n->block != b)
    return false;
  if (is_view(n))
    return !s->excluded[id] && (moved(n) > 1 || n->in[0] == v) && is_taken(s, n->out[0]);
  return is_cast(s, n, CY_F32, s->half) || (s->share && computes(s, n));
}

static bool is_taken(sinking *s, cy_val v) {
  const cy_node_info *d = cy_def(s->g, v);
  if (s->taken[v] != UNKNOWN)
    return s->taken[v] == YES;
  s->taken[v] = d && s->uses.start[v + 1] > s->uses.start[v] && cy_type_of(s->g, v)->dtype == CY_F32 ? YES : NO;
  for (uint32_t i = s->uses.start[v]; i < s->uses.start[v + 1] && s->taken[v] == YES; i++)
    if (!takes(s, v, s->uses.list[i], d->block))
      s->taken[v] = NO;
  return s->taken[v] == YES;
}

/* A constant that halves hold: its halves are made at once. */
static bool fits(sinking *s, cy_val v) {
  if (!s->made[v] && cy_type_of(s->g, v)->dtype == CY_F32 && cy_value_of(s->g, v)->data.bytes)
    s->made[v] = cy_half_constant(s->g, v, s->half, false);
  return s->made[v];
}

/* Can halves of x, which a view in block b reads, be had without a kernel for them? */
static bool has_halves(sinking *s, cy_val x, cy_block b) {
  const cy_node_info *d = cy_def(s->g, x);
  cy_op_class cls = d ? cy_op_of((cy_op)d->op)->cls : CY_CLASS_VIEW;
  if (!d)
    return cy_value_is_const(s->g, x) && fits(s, x);
  if (d->block != b)
    return false;
  if (is_cast(s, d, s->half, CY_F32))
    return true;
  return (is_view(d) ? !s->excluded[cy_value_of(s->g, x)->node] : cls == CY_CLASS_EW || cls == CY_CLASS_ROOT) &&
         is_taken(s, x);
}

static bool can_sink(sinking *s, cy_node id) {
  const cy_node_info *n = cy_node_of(s->g, id);
  bool ok = !s->excluded[id] && is_taken(s, n->out[0]);
  for (uint32_t k = 0; k < moved(n) && ok; k++)
    ok = has_halves(s, n->in[k], n->block);
  return ok;
}

/* Excludes views that cannot be of halves, until that excludes no others. */
static void exclude(sinking *s) {
  for (bool again = true; again;) {
    again = false;
    memset(s->taken, UNKNOWN, s->nvalues + 1);
    for (cy_node id = 1; id <= s->nnodes; id++)
      if (s->next[id] && is_view(cy_node_of(s->g, id)) && !s->excluded[id] && !can_sink(s, id))
        again = s->excluded[id] = true;
  }
}

static bool want(sinking *s, cy_val v) {
  bool more = !s->wanted[v];
  s->wanted[v] = true;
  return more;
}

/* Wants what casts read, and from there on all that views make one with it. */
static void mark_wanted(sinking *s) {
  for (bool again = true; again;) {
    again = false;
    for (cy_node id = 1; id <= s->nnodes; id++) {
      const cy_node_info *n = s->next[id] ? cy_node_of(s->g, id) : NULL;
      bool one = n && (is_cast(s, n, CY_F32, s->half) || (is_view(n) && !s->excluded[id] && s->wanted[n->out[0]]));
      for (uint32_t k = 0; n && is_view(n) && !s->excluded[id] && k < moved(n); k++)
        one |= s->wanted[n->in[k]] && cy_def(s->g, n->in[k]) && is_taken(s, n->in[k]);
      for (uint32_t k = 0; one && k < moved(n); k++)
        again |= want(s, n->in[k]);
      if (one && is_view(n))
        again |= want(s, n->out[0]);
    }
  }
}

/* ---- rewriting ---- */

static void build_behind(sinking *s, cy_val v) {
  cy_node d = cy_value_of(s->g, v)->node;
  if (s->next[d] == d)
    cy_build_in(s->g, cy_node_of(s->g, d)->block);
  else
    cy_build_before(s->g, s->next[d]);
  cy_rewrite_origin(s->p, cy_node_of(s->g, d));
}

static cy_val halves_of(sinking *s, cy_val v) {
  const cy_node_info *d = cy_def(s->g, v);
  if (s->made[v])
    return s->made[v];
  if (is_cast(s, d, s->half, CY_F32))
    return s->made[v] = d->in[0];
  build_behind(s, v);
  return s->made[v] = cy_build_cast(s->g, v, s->half);
}

static void move_view(sinking *s, cy_node id) {
  cy_graph *g = s->g;
  const cy_node_info *n = cy_node_of(g, id);
  uint32_t count = n->nin, halves = moved(n);
  cy_val *in = CY_NEW_ARRAY(s->p->scratch, cy_val, count + 1), out = n->out[0];
  for (uint32_t k = 0; k < count; k++)
    in[k] = k < halves ? halves_of(s, n->in[k]) : n->in[k];
  cy_type t = *cy_type_of(g, out);
  t.dtype = (uint8_t)s->half;
  build_behind(s, out);
  n = cy_node_of(g, id);
  bool typed = cy_op_of((cy_op)n->op)->typed;
  s->made[out] = cy_build(g, (cy_op)n->op, in, count, n->attrs, n->nattrs, typed ? &t : NULL, typed);
  if (!s->made[out])
    cy_bug("half_sink: '%s' can't be built of halves", cy_op_of((cy_op)n->op)->name);
  cy_pass_count(s->p, "sunk", 1);
}

/* What computes with v reads its halves, wide again. */
static void widen_readers(sinking *s, cy_val v) {
  cy_val half = halves_of(s, v), wide = 0;
  for (uint32_t i = s->uses.start[v]; i < s->uses.start[v + 1]; i++) {
    cy_node_info *n = cy_node_of(s->g, s->uses.list[i]);
    if (is_view(n) || is_cast(s, n, CY_F32, s->half))
      continue;
    if (!wide) {
      build_behind(s, v);
      wide = cy_build_cast(s->g, half, CY_F32);
      cy_pass_count(s->p, "residuals", 1);
      n = cy_node_of(s->g, s->uses.list[i]);
    }
    for (uint32_t k = 0; k < n->nin; k++)
      if (n->in[k] == v)
        n->in[k] = wide;
  }
}

static void note_order(sinking *s) {
  for (cy_block b = 1; b <= cy_block_count(s->g); b++) {
    const cy_block_info *block = cy_block_of(s->g, b);
    for (uint32_t i = 0; i < block->nnodes; i++)
      s->next[block->nodes[i]] = block->nodes[i + 1 < block->nnodes ? i + 1 : i];
  }
}

static void rewrite(sinking *s, cy_block b) {
  uint32_t count;
  const cy_node *nodes = cy_pass_walk(s->p, b, &count);
  for (uint32_t i = 0; i < count; i++) {
    const cy_node_info *n = cy_node_of(s->g, nodes[i]);
    if (is_view(n) && s->wanted[n->out[0]] && can_sink(s, nodes[i]))
      move_view(s, nodes[i]);
    else if (is_cast(s, n, CY_F32, s->half) && cy_def(s->g, n->in[0]) && has_halves(s, n->in[0], b)) {
      cy_val out = n->out[0];
      cy_graph_replace(s->g, out, halves_of(s, n->in[0]));
    }
  }
  for (uint32_t i = 0; i < count; i++) {
    const cy_node_info *n = cy_node_of(s->g, nodes[i]);
    for (uint32_t k = 0; k < n->nout; k++)
      if (s->made[n->out[k]] && !is_cast(s, n, s->half, CY_F32) && is_taken(s, n->out[k]))
        widen_readers(s, n->out[k]);
  }
}

void cy_half_sink(cy_pass *p, cy_dtype half, bool share) {
  cy_graph *g = p->g;
  sinking s = {.p = p, .g = g, .half = half, .share = share, .nvalues = cy_value_count(g), .nnodes = cy_node_count(g)};
  s.uses = cy_graph_uses(g, p->scratch);
  s.taken = CY_NEW_ARRAY(p->scratch, uint8_t, s.nvalues + 1);
  s.wanted = CY_NEW_ARRAY(p->scratch, bool, s.nvalues + 1);
  s.excluded = CY_NEW_ARRAY(p->scratch, bool, s.nnodes + 1);
  s.made = CY_NEW_ARRAY(p->scratch, cy_val, s.nvalues + 1);
  s.next = CY_NEW_ARRAY(p->scratch, cy_node, s.nnodes + 1);
  note_order(&s);
  exclude(&s);
  mark_wanted(&s);
  for (cy_block b = 1; b <= cy_block_count(g); b++)
    rewrite(&s, b);
}
