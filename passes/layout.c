/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c - chooses the physical order of axes of every value: cy_value.layout.
 *
 * In:  a swept graph, all row-major. Out: layouts set; where a value is needed in another order than it has, an
 * `identity` node whose output has the new layout. The logical order of axes, and so the graph's meaning, never
 * changes.
 *
 * What wants what: convolutions, pools and interpolation of some channels read and write channels-last (pools most of
 * whose windows stay inside follow their input); model inputs, outputs, block results, runtime calls and control flow are
 * row-major; a reshape that merges axes reads row-major, and so does a gather of many rows that would not be dense;
 * everything else takes any order, kernels read through strides. What sums windows of a row wants another axis closest.
 *
 * Convolutions have a planar layout, too, on some targets: both feature maps row-major. It is taken where it costs less
 * than the other one with the conversions that this needs before and behind it. What row-major costs more than
 * channels-last (or less) is handed backwards with the preference, so that chains of convolutions choose one order
 * where that is best (cy_conv_cycles; costs_of).
 *
 * A transpose is then only another name for the same memory, if its input lies the right way: so its output is given
 * the layout that makes it a view, and a preference behind it is handed to what computes its input (which is how the heads of
 * attention are split and joined, and how graphs exported with channels last lose their transposes).
 *
 *   1. Backwards: preferred layouts. From readers to what computes, through views and element-wise ops; convolutions outrank the
 *      rest.
 *   2. Forwards: choices. A value takes the order of its largest input if that is not row-major, else the preferred one, else
 *      row-major. Needs that aren't met get their identity node.
 *
 * Rows of a product's first factor should be dense, or each product copies them: what products read, and what is added
 * or normalised on the way there, passes on no preference of borders for another order, and where orders meet, or rows are
 * gone through in any case, it becomes row-major. So the residual stream of a transformer is transposed once, where it
 * begins.
 */
#include "pass_int.h"

#include <string.h>

enum { MIN_CHANNELS = 8, ENOUGH_ROWS = 32 };

typedef struct order {
  uint8_t axis[CY_MAX_RANK]; /* physical, outermost first */
} order;

typedef struct preference {
  int weight; /* 0: none, 1: reshapes and borders, 2: convolutions */
  order o;
} preference;

typedef struct chooser {
  cy_pass *p;
  cy_graph *g;
  preference *preferred; /* [value], of those that exist at the start */
  bool *rows; /* [value], likewise: a product sums along its last axis, or that of what is computed from it */
  uint32_t nvalues;
  cy_val *moved;        /* [value]: its copy in another layout */
  const int64_t *sizes; /* [symbol]: what is taken for it */
  double *more; /* [value], likewise: what convolutions behind it take more if it is row-major; 0: nothing is known */
} chooser;

/* ---- orders ----------------------------------------------------------------------------------------------------- */

static order row_major(void) {
  order o;
  for (int i = 0; i < CY_MAX_RANK; i++)
    o.axis[i] = (uint8_t)i;
  return o;
}

static order channels_last(int rank) {
  order o = row_major();
  for (int i = 1; i + 1 < rank; i++)
    o.axis[i] = (uint8_t)(i + 1);
  if (rank > 1)
    o.axis[rank - 1] = 1;
  return o;
}

/* Do the two orders put elements of type t at the same places? Axes of length 1 don't matter. */
static bool same_memory(const cy_graph *g, const cy_type *t, const order *a, const order *b) {
  int i = 0, j = 0;
  for (;;) {
    while (i < t->rank && cy_dim_is(g, t->dim[a->axis[i]], 1))
      i++;
    while (j < t->rank && cy_dim_is(g, t->dim[b->axis[j]], 1))
      j++;
    if (i == t->rank || j == t->rank)
      return i == t->rank && j == t->rank;
    if (a->axis[i++] != b->axis[j++])
      return false;
  }
}

static bool is_row_major(const chooser *c, const cy_type *t, const order *o) {
  order plain = row_major();
  return same_memory(c->g, t, o, &plain);
}

static order get(const chooser *c, cy_val v) {
  order o;
  memcpy(o.axis, cy_value_of(c->g, v)->layout, sizeof o.axis);
  return o;
}

static void set(chooser *c, cy_val v, const order *o) {
  cy_value *value = cy_value_of(c->g, v);
  if (is_row_major(c, &value->type, o))
    cy_layout_reset(value);
  else
    memcpy(value->layout, o->axis, sizeof o->axis);
}

/* The order of transpose(x, perm) that makes it the same memory as x in order `in`; and back. */
static order through_transpose(const int64_t *perm, int rank, const order *in) {
  int64_t inverse[CY_MAX_RANK];
  order out = row_major();
  cy_perm_invert(perm, rank, inverse);
  for (int i = 0; i < rank; i++)
    out.axis[i] = (uint8_t)inverse[in->axis[i]];
  return out;
}

static order before_transpose(const int64_t *perm, int rank, const order *out) {
  order in = row_major();
  for (int i = 0; i < rank; i++)
    in.axis[i] = (uint8_t)perm[out->axis[i]];
  return in;
}

/* ---- what ops are to layouts ------------------------------------------------------------------------------------ */

static bool wants_channels_last(const cy_node_info *n) {
  return n->op == CY_OP_conv || n->op == CY_OP_conv_transpose || n->op == CY_OP_pool_max || n->op == CY_OP_pool_avg;
}

/* Is it a pool whose windows stay inside of the input along the axis that lies closest in memory, or most of them? Such a
 * one reads rows as well as channels, and a conversion would cost more than the pool. */
static bool pools_rows(cy_graph *g, const cy_node_info *n) {
  cy_pool_split unused;
  return (n->op == CY_OP_pool_max || n->op == CY_OP_pool_avg) &&
         cy_pool_split_of(g, n, cy_type_of(g, n->in[0])->rank - 3, &unused);
}

/* Interpolates along the axis that lies closest in memory, where neighbours come from anywhere: channels, if there are
 * enough, are read side by side. */
static bool interpolates(const cy_graph *g, const cy_node_info *n) {
  bool copies = cy_attr_get_int(n, CY_ATTR_mode, CY_RESIZE_NEAREST) == CY_RESIZE_NEAREST;
  if (n->op != CY_OP_grid_sample && (n->op != CY_OP_resize || copies))
    return false;
  const cy_type *x = cy_type_of(g, n->in[0]), *y = cy_type_of(g, n->out[0]);
  int64_t channels;
  if (n->op == CY_OP_resize && !cy_resizes_axis(n, x, y, x->rank - 1))
    return false;
  return x->rank >= 3 && x->dim[0] == y->dim[0] && x->dim[1] == y->dim[1] && cy_dim_is_const(g, x->dim[1], &channels) &&
         channels >= MIN_CHANNELS;
}

/* Does n sum windows along the axis that lies closest in memory in order o? */
static bool sums_closest(const cy_graph *g, const cy_node_info *n, const order *o) {
  const cy_type *x = n->op == CY_OP_resize ? cy_type_of(g, n->in[0]) : NULL;
  return x && x->rank && cy_attr_get_int(n, CY_ATTR_antialias, 0) &&
         cy_attr_get_int(n, CY_ATTR_mode, CY_RESIZE_NEAREST) != CY_RESIZE_NEAREST &&
         cy_resizes_axis(n, x, cy_type_of(g, n->out[0]), o->axis[x->rank - 1]);
}

/* The order that n wants for its feature map and its result, when the feature map comes in order `in`: rows that are
 * summed are read side by side, if there are no channels. */
static bool order_wanted(const cy_graph *g, const cy_node_info *n, const order *in, order *out) {
  int rank = n->nin && n->in[0] ? cy_type_of(g, n->in[0])->rank : 0;
  int64_t rows;
  if (wants_channels_last(n) || interpolates(g, n)) {
    *out = channels_last(rank);
    return true;
  }
  *out = row_major();
  if (rank < 2 || !sums_closest(g, n, in))
    return false;
  if (!sums_closest(g, n, out))
    return true;
  out->axis[rank - 1] = (uint8_t)(rank - 2);
  out->axis[rank - 2] = (uint8_t)(rank - 1);
  return !sums_closest(g, n, out) && cy_dim_is_const(g, cy_type_of(g, n->in[0])->dim[rank - 2], &rows) &&
         rows >= ENOUGH_ROWS;
}

/* Gathers rows, as many as its input has or more: they are worth making dense. */
static bool gathers_rows(cy_graph *g, const cy_node_info *n) {
  int64_t columns;
  if (n->op != CY_OP_gather)
    return false;
  const cy_type *t = cy_type_of(g, n->in[0]);
  int64_t axis = cy_attr_get_int(n, CY_ATTR_axis, 0);
  return axis + 1 < t->rank && cy_dim_is_const(g, t->dim[t->rank - 1], &columns) && columns >= MIN_CHANNELS &&
         cy_dim_le(g, t->dim[axis], cy_type_elems(g, cy_type_of(g, n->in[1])));
}

/* Reads and writes memory as a whole, in row-major order. */
static bool wants_row_major(const cy_node_info *n) { return cy_node_op(n)->row_major; }

/* Output axes are the input's, one to one (lengths may differ). */
static bool keeps_axes(const cy_node_info *n) { return cy_node_op(n)->keeps_axes; }

/* Strides of the output are strides of the input: its layout is not free. */
static bool is_strided_view(const cy_node_info *n) { return n->op == CY_OP_slice || n->op == CY_OP_expand; }

/* How a reshape's axes become those of its output: run by run, each of equal product on both sides and as short as can
 * be. [axis of the input]: of its run. */
typedef struct runs {
  int first[CY_MAX_RANK], end[CY_MAX_RANK];       /* axes of the input, */
  int to_first[CY_MAX_RANK], to_end[CY_MAX_RANK]; /* those that they become */
} runs;

/* False: products agree only as a whole, or only when running. */
static bool runs_of(const chooser *c, const cy_type *from, const cy_type *to, runs *out) {
  cy_graph *g = c->g;
  for (int i = 0, j = 0; i < from->rank;) {
    int i0 = i, j0 = j;
    cy_dim before = from->dim[i++], after = cy_dim_const(g, 1);
    while (before != after) {
      if (i == from->rank && j == to->rank)
        return false;
      if (j == to->rank || (i < from->rank && cy_dim_le(g, before, after)))
        before = cy_dim_mul(g, before, from->dim[i++]);
      else
        after = cy_dim_mul(g, after, to->dim[j++]);
    }
    for (int a = i0; a < i; a++) {
      out->first[a] = i0, out->end[a] = i;
      out->to_first[a] = j0, out->to_end[a] = j;
    }
  }
  return true;
}

static bool merges(const cy_type *from, const runs *r) {
  for (int a = 0; a < from->rank; a++)
    if (r->end[a] - r->first[a] > 1)
      return true;
  return false;
}

/* The order of a reshape's output that makes it the same memory as the input in order `in`: there is one where runs lie
 * together and in the order of their axes. Axes of length 1 don't matter, and come first. */
static bool through_reshape(const chooser *c, const cy_type *from, const cy_type *to, const order *in, order *out) {
  runs r;
  int list[CY_MAX_RANK], n = 0, next = -1; /* next: the axis that must come next, while a run lasts */
  bool listed[CY_MAX_RANK] = {false};
  if (!runs_of(c, from, to, &r))
    return false;
  for (int k = 0; k < from->rank; k++) {
    int a = in->axis[k];
    if (cy_dim_is(c->g, from->dim[a], 1))
      continue;
    if (next < 0) {
      next = r.first[a];
      for (int j = r.to_first[a]; j < r.to_end[a]; j++)
        if (!cy_dim_is(c->g, to->dim[j], 1))
          listed[list[n++] = j] = true;
    }
    while (next < a && cy_dim_is(c->g, from->dim[next], 1))
      next++;
    if (a != next++)
      return false;
    while (next < r.end[a] && cy_dim_is(c->g, from->dim[next], 1))
      next++;
    next = next == r.end[a] ? -1 : next;
  }
  *out = row_major();
  int at = 0;
  for (int j = 0; j < to->rank; j++)
    if (!listed[j])
      out->axis[at++] = (uint8_t)j;
  for (int i = 0; i < n; i++)
    out->axis[at++] = (uint8_t)list[i];
  return true;
}

/* ---- backwards: preferred layouts ------------------------------------------------------------------------------ */

static void ask(chooser *c, cy_val v, int weight, const order *o) {
  if (!v || cy_value_of(c->g, v)->data.bytes || c->preferred[v].weight >= weight)
    return;
  c->preferred[v] = (preference){weight, *o};
}

/* Is the last axis the one that lies closest in memory? Axes of length 1 don't matter. */
static bool dense_rows(const cy_graph *g, const cy_type *t, const order *o) {
  int i = t->rank - 1, last = t->rank - 1;
  while (i > 0 && cy_dim_is(g, t->dim[o->axis[i]], 1))
    i--;
  while (last > 0 && cy_dim_is(g, t->dim[last], 1))
    last--;
  return !t->rank || o->axis[i] == last;
}

static bool goes_through_rows(const cy_node_info *n, int rank) {
  bool reduced[CY_MAX_RANK];
  if (n->op == CY_OP_softmax)
    return cy_attr_get_int(n, CY_ATTR_axis, 0) == rank - 1;
  return n->op == CY_OP_normalize && cy_axes_of(n, rank, reduced) && reduced[rank - 1];
}

/* ---- convolutions ---- */

/* What symbols are taken for: batches, lengths of sequences, sides of feature maps. */
enum { ONE_IMAGE = 1, LONG_SEQUENCE = 4096, MIDDLING = 64 };

typedef struct guess {
  int64_t *sizes, value;
} guess;

static void set_symbol(void *ctx, cy_sym s) {
  const guess *to = ctx;
  to->sizes[s] = to->value;
}

static int64_t *guess_sizes(const cy_graph *g, cy_arena *arena) {
  const cy_port_info *ports;
  uint32_t n = cy_graph_inputs(g, &ports), count = cy_sym_count(g) + 1;
  guess to = {CY_NEW_ARRAY(arena, int64_t, count), LONG_SEQUENCE};
  for (uint32_t i = 0; i < count; i++)
    to.sizes[i] = MIDDLING;
  for (uint32_t i = 0; i < n; i++) {
    const cy_type *t = cy_type_of(g, ports[i].value);
    if (t->rank == 3)
      cy_dim_symbols(g, t->dim[2], set_symbol, &to);
  }
  to.value = ONE_IMAGE;
  for (uint32_t i = 0; i < n; i++)
    if (cy_type_of(g, ports[i].value)->rank > 1)
      cy_dim_symbols(g, cy_type_of(g, ports[i].value)->dim[0], set_symbol, &to);
  return to.sizes;
}

/* What convolution n and those behind it take, conversions included, by the order in which its input lies. */
typedef struct conv_costs {
  double plain[2], channels[2]; /* by its layout: planar, channels closest */
} conv_costs;

static double lesser(const double cost[2]) { return cost[0] < cost[1] ? cost[0] : cost[1]; }

/* False: n has no planar layout. */
static bool costs_of(const chooser *c, const cy_node_info *n, conv_costs *out) {
  const cy_pass_options *o = c->p->options;
  cy_conv_cycles t;
  if (n->op != CY_OP_conv || o->few_runs || !cy_caps_conv_cycles(o->caps, c->g, n, c->sizes, &t))
    return false;
  const preference *w = &c->preferred[n->out[0]];
  bool plain = is_row_major(c, cy_type_of(c->g, n->out[0]), &w->o);
  double behind = !w->weight ? 0 : c->more[n->out[0]] ? c->more[n->out[0]] : plain ? -t.transpose_out : t.transpose_out;
  behind = behind > t.transpose_out ? t.transpose_out : behind < -t.transpose_out ? -t.transpose_out : behind;
  *out =
      (conv_costs){{t.planar + behind, t.channels + t.transpose_in}, {t.planar + behind + t.transpose_in, t.channels}};
  return true;
}

static bool planar_pays(const chooser *c, const cy_node_info *n, bool plain_in) {
  conv_costs t;
  if (!costs_of(c, n, &t))
    return false;
  const double *cost = plain_in ? t.plain : t.channels;
  return cost[0] < cost[1];
}

/* More for v row-major than for channels-last: negative, where row-major is the better one. */
static void add_more(chooser *c, cy_val v, double more) {
  if (v && !cy_value_of(c->g, v)->data.bytes)
    c->more[v] += more;
}

/* Is input k of n a feature map as its output is? Not so what is broadcast, and what a reduction has left. */
static bool is_like_output(const chooser *c, const cy_node_info *n, uint32_t k) {
  const cy_type *from = n->in[k] ? cy_type_of(c->g, n->in[k]) : NULL, *to = cy_type_of(c->g, n->out[0]);
  cy_op_class cls = cy_node_op(n)->cls;
  return from && from->rank == to->rank && !cy_value_of(c->g, n->in[k])->data.bytes && cls != CY_CLASS_REDUCE &&
         (cls != CY_CLASS_EW || cy_same_shape(from, to));
}

/* What n's output takes more its inputs share: where their ways meet again, as in select(v < 0, a * v, v), it is counted
 * once. */
static void share_more(chooser *c, const cy_node_info *n) {
  uint32_t count = 0;
  for (uint32_t k = 0; k < n->nin; k++)
    count += is_like_output(c, n, k);
  for (uint32_t k = 0; k < n->nin; k++)
    if (is_like_output(c, n, k))
      add_more(c, n->in[k], c->more[n->out[0]] / count);
}

static void mark_rows(chooser *c, const cy_node_info *n) {
  if (n->op == CY_OP_matmul || n->op == CY_OP_quantize_rows)
    c->rows[n->in[0]] = true;
  if (n->nout != 1 || !c->rows[n->out[0]])
    return;
  const cy_type *t = cy_type_of(c->g, n->out[0]);
  if (!dense_rows(c->g, t, &c->preferred[n->out[0]].o) && c->preferred[n->out[0]].weight == 1)
    c->preferred[n->out[0]].weight = 0;
  if (cy_node_op(n)->cls != CY_CLASS_EW && !goes_through_rows(n, t->rank))
    return;
  for (uint32_t k = 0; k < n->nin; k++)
    if (n->in[k] && cy_same_shape(cy_type_of(c->g, n->in[k]), t))
      c->rows[n->in[k]] = true;
}

static void ask_inputs(chooser *c, const cy_node_info *n) {
  cy_graph *g = c->g;
  order plain = row_major(), o;
  mark_rows(c, n);
  const preference *w = n->nout ? &c->preferred[n->out[0]] : NULL;
  if (pools_rows(g, n)) {
    const cy_type *t = cy_type_of(g, n->in[0]);
    order last = channels_last(t->rank);
    bool positions = w->weight && same_memory(g, t, &w->o, &last);
    ask(c, n->in[0], positions ? w->weight : 1, positions ? &last : &plain);
  } else if (order_wanted(g, n, &plain, &o)) {
    conv_costs t;
    double more = costs_of(c, n, &t) ? lesser(t.plain) - lesser(t.channels) : 0;
    add_more(c, n->in[0], more);
    ask(c, n->in[0], 2, more < 0 ? &plain : &o);
  } else if (gathers_rows(g, n)) {
    ask(c, n->in[0], 1, &plain);
  } else if (wants_row_major(n)) {
    for (uint32_t k = 0; k < n->nin; k++)
      ask(c, n->in[k], 1, &plain);
  } else if (n->op == CY_OP_reshape) {
    const cy_type *from = cy_type_of(g, n->in[0]), *to = cy_type_of(g, n->out[0]);
    runs r;
    if (w->weight && !is_row_major(c, to, &w->o) && through_reshape(c, to, from, &w->o, &o))
      ask(c, n->in[0], w->weight, &o);
    else if (!runs_of(c, from, to, &r) || merges(from, &r))
      ask(c, n->in[0], 1, &plain);
  } else if (n->op == CY_OP_transpose && w && w->weight) {
    uint32_t rank;
    const int64_t *perm = cy_attr_list(n, CY_ATTR_perm, &rank);
    o = before_transpose(perm, (int)rank, &w->o);
    ask(c, n->in[0], w->weight, &o);
  } else if (keeps_axes(n) && w && w->weight && !sums_closest(g, n, &w->o)) {
    for (uint32_t k = 0; k < n->nin; k++)
      if (n->in[k] && cy_type_of(g, n->in[k])->rank == cy_type_of(g, n->out[0])->rank)
        ask(c, n->in[k], w->weight, &w->o);
    share_more(c, n);
  }
}

static void collect_preferences(chooser *c) {
  cy_graph *g = c->g;
  order plain = row_major();
  for (cy_block b = cy_block_count(g); b >= 1; b--) {
    const cy_block_info *block = cy_block_of(g, b);
    for (uint32_t i = 0; i < block->nresults; i++)
      ask(c, block->results[i], 1, &plain);
    for (uint32_t i = block->nnodes; i-- > 0;)
      ask_inputs(c, cy_node_of(g, block->nodes[i]));
  }
}

/* ---- forwards: choices ------------------------------------------------------------------------------------------ */

/* n is a product with one matrix of constants, whose rows would no longer be one axis if it wrote in order `out`: a
 * kernel would go through the matrix for every few of them. */
static bool parts_rows(const chooser *c, const cy_node_info *n, const order *in, const order *out) {
  cy_graph *g = c->g;
  const cy_type *t = cy_type_of(g, n->out[0]);
  int r = t->rank, at = 0;
  int64_t rows;
  if (n->op != CY_OP_matmul || r < 3 || !cy_value_of(g, n->in[1])->data.bytes || cy_type_of(g, n->in[1])->rank != 2 ||
      in->axis[r - 1] != r - 1 || (cy_dim_is_const(g, t->dim[r - 2], &rows) && rows >= ENOUGH_ROWS))
    return false;
  for (int k = 0; k < r - 1; k++) {
    int a = in->axis[k];
    if (cy_dim_is(g, t->dim[a], 1))
      continue;
    while (out->axis[at] == r - 1 || cy_dim_is(g, t->dim[out->axis[at]], 1))
      at++;
    if (out->axis[at++] != a)
      return true;
  }
  return false;
}

/* v as an identity node in order o; inserted where the builder stands. */
static cy_val move(chooser *c, cy_val v, const order *o) {
  cy_graph *g = c->g;
  cy_val to = cy_build_unary(g, CY_OP_identity, v);
  if (!to || to == v)
    return v;
  memcpy(cy_value_of(g, to)->layout, o->axis, sizeof o->axis);
  cy_pass_count(c->p, "conversions", 1);
  return to;
}

/* Input k of node `id` must lie in order o. */
static void need(chooser *c, cy_node id, uint32_t k, const order *o) {
  cy_graph *g = c->g;
  cy_node_info *n = cy_node_of(g, id);
  cy_val v = n->in[k];
  if (!v || cy_value_of(g, v)->data.bytes)
    return;
  order have = get(c, v);
  if (same_memory(g, cy_type_of(g, v), &have, o))
    return;
  cy_val old = v <= c->nvalues ? c->moved[v] : 0;
  if (old && cy_node_of(g, cy_value_of(g, old)->node)->block == n->block) {
    order there = get(c, old);
    if (same_memory(g, cy_type_of(g, v), &there, o)) {
      n->in[k] = old;
      return;
    }
  }
  cy_build_before(g, id);
  cy_rewrite_origin(c->p, n);
  n->in[k] = move(c, v, o);
  if (v <= c->nvalues)
    c->moved[v] = n->in[k];
}

static bool is_result(const cy_graph *g, const cy_node_info *n) {
  const cy_block_info *b = cy_block_of(g, n->block);
  for (uint32_t i = 0; i < b->nresults; i++)
    if (b->results[i] == n->out[0])
      return true;
  return false;
}

/* Is at least half of what a concat joins, whose readers want row-major, row-major already? A cache that the model or a
 * loop is given and gives back longer counts as that half: sizes do not tell, and in another order all of it would be
 * copied twice. */
static bool mostly_plain(const chooser *c, const cy_node_info *n) {
  cy_graph *g = c->g;
  const cy_type *t = cy_type_of(g, n->out[0]);
  const preference *w = &c->preferred[n->out[0]];
  if (n->op != CY_OP_concat || !w->weight || !is_row_major(c, t, &w->o))
    return false;
  bool returns = n->block != 1 || is_result(g, n); /* of a loop, perhaps reordered */
  for (uint32_t k = 0; k < n->nin && returns; k++)
    if (!cy_def(g, n->in[k]) && !cy_value_of(g, n->in[k])->data.bytes)
      return true;
  int64_t axis = cy_attr_get_int(n, CY_ATTR_axis, 0);
  cy_dim plain = cy_dim_const(g, 0);
  for (uint32_t k = 0; k < n->nin; k++) {
    order have = get(c, n->in[k]);
    if (is_row_major(c, cy_type_of(g, n->in[k]), &have))
      plain = cy_dim_add(g, plain, cy_type_of(g, n->in[k])->dim[axis]);
  }
  return cy_dim_le(g, t->dim[axis], cy_dim_muli(g, plain, 2));
}

/* The order in which an op that keeps axes should write: its largest input's, if that is not row-major. */
static bool inherited(const chooser *c, const cy_node_info *n, order *out) {
  cy_graph *g = c->g;
  const cy_type *t = cy_type_of(g, n->out[0]);
  for (int full = 1; full >= 0; full--) /* inputs of the output's shape first */
    for (uint32_t k = 0; k < n->nin; k++) {
      cy_val v = n->in[k];
      if (!v || cy_type_of(g, v)->rank != t->rank || cy_value_of(g, v)->data.bytes ||
          cy_layout_is_row_major(cy_value_of(g, v)) || (full && !cy_same_shape(cy_type_of(g, v), t)))
        continue;
      *out = get(c, v);
      return true;
    }
  return false;
}

/* Should n's output, which products read by rows, rather be row-major than inherit order o? */
static bool transposes_rows(const chooser *c, const cy_node_info *n, const order *o) {
  cy_graph *g = c->g;
  cy_val out = n->out[0];
  const cy_type *t = cy_type_of(g, out);
  if (n->nout != 1 || out > c->nvalues || !c->rows[out] || c->preferred[out].weight == 2 || dense_rows(g, t, o))
    return false;
  if (goes_through_rows(n, t->rank))
    return true;
  for (uint32_t k = 0; k < n->nin && cy_node_op(n)->cls == CY_CLASS_EW; k++) {
    const cy_value *v = cy_value_of(g, n->in[k]);
    if (!v->data.bytes && cy_same_shape(&v->type, t) && cy_layout_is_row_major(v))
      return true;
  }
  return false;
}

/* A normalization goes through its feature map once more in any case: the place to transpose what planar convolutions read.
 * */
static bool transposes_map(const chooser *c, const cy_node_info *n) {
  const preference *w = &c->preferred[n->out[0]];
  return n->op == CY_OP_normalize && w->weight == 2 && c->more[n->out[0]] < 0 &&
         is_row_major(c, cy_type_of(c->g, n->out[0]), &w->o);
}

static void choose_reshape(chooser *c, cy_node id) {
  cy_graph *g = c->g;
  const cy_node_info *n = cy_node_of(g, id);
  const cy_type *from = cy_type_of(g, n->in[0]), *to = cy_type_of(g, n->out[0]);
  const preference *w = &c->preferred[n->out[0]];
  order in = get(c, n->in[0]), plain = row_major(), out;
  runs r;
  if (is_row_major(c, from, &in))
    return;
  if (w->weight && is_row_major(c, to, &w->o) && runs_of(c, from, to, &r) && merges(from, &r)) {
    need(c, id, 0, &plain); /* what computes the input may convert it at once */
  } else if (through_reshape(c, from, to, &in, &out)) {
    set(c, n->out[0], &out);
  } else if (w->weight == 2 && !is_row_major(c, to, &w->o)) {
    set(c, n->out[0], &w->o); /* a copy in any case: straight into the order wanted */
  } else {
    need(c, id, 0, &plain);
  }
}

static void choose_node(chooser *c, cy_node id) {
  cy_graph *g = c->g;
  const cy_node_info *n = cy_node_of(g, id);
  if (!n->nout)
    return;
  const preference *w = &c->preferred[n->out[0]];
  order plain = row_major(), o = plain, in = n->nin && n->in[0] ? get(c, n->in[0]) : plain;
  if (pools_rows(g, n) && is_row_major(c, cy_type_of(g, n->in[0]), &in))
    return;
  if (gathers_rows(g, n) && in.axis[cy_type_of(g, n->in[0])->rank - 1] == cy_attr_get_int(n, CY_ATTR_axis, 0))
    need(c, id, 0, &plain);
  if (n->op == CY_OP_conv && planar_pays(c, n, is_row_major(c, cy_type_of(g, n->in[0]), &in))) {
    need(c, id, 0, &plain);
  } else if (order_wanted(g, n, &in, &o)) {
    need(c, id, 0, &o);
    set(c, n->out[0], &o); /* a second output, pool_max's indices, stays row-major */
  } else if (wants_row_major(n)) {
    for (uint32_t k = 0; k < n->nin; k++)
      if (n->op != CY_OP_write_rows || k != 1) /* rows are read wherever they lie */
        need(c, id, k, &plain);
  } else if (n->op == CY_OP_reshape) {
    choose_reshape(c, id);
  } else if (n->op == CY_OP_transpose) {
    uint32_t rank;
    const int64_t *perm = cy_attr_list(n, CY_ATTR_perm, &rank);
    o = through_transpose(perm, (int)rank, &in);
    set(c, n->out[0], &o);
  } else if (keeps_axes(n) && !mostly_plain(c, n) && inherited(c, n, &o)) {
    set(c, n->out[0], transposes_rows(c, n, &o) || transposes_map(c, n) ? &plain : &o);
  } else if (parts_rows(c, n, &in, w->weight ? &w->o : &plain)) {
    set(c, n->out[0], &in);
  } else if (w->weight && !is_strided_view(n) && n->nout == 1 && !sums_closest(g, n, &w->o)) {
    set(c, n->out[0], &w->o);
  }
}

static void choose_block(chooser *c, cy_block b) {
  cy_graph *g = c->g;
  uint32_t count = cy_block_of(g, b)->nnodes;
  cy_node *nodes = CY_NEW_ARRAY(c->p->scratch, cy_node, count + 1);
  if (count)
    memcpy(nodes, cy_block_of(g, b)->nodes, count * sizeof *nodes);
  for (uint32_t i = 0; i < count; i++) {
    const cy_node_info *n = cy_node_of(g, nodes[i]);
    choose_node(c, nodes[i]);
    for (uint32_t k = 0; k < n->nattrs; k++)
      if (n->attrs[k].kind == CY_KIND_BLOCK)
        choose_block(c, n->attrs[k].block);
  }
  order plain = row_major();
  for (uint32_t i = 0; i < cy_block_of(g, b)->nresults; i++) {
    cy_val v = cy_block_of(g, b)->results[i];
    order have = get(c, v);
    if (cy_value_of(g, v)->data.bytes || is_row_major(c, cy_type_of(g, v), &have))
      continue;
    cy_build_in(g, b);
    cy_origin none =
        cy_value_of(g, v)->node ? cy_node_of(g, cy_value_of(g, v)->node)->origin : (cy_origin){.index = -1};
    none.pass = c->p->name;
    cy_build_origin(g, &none);
    cy_val to = move(c, v, &plain);
    if (b == 1)
      cy_graph_set_output(g, i, to);
    else
      cy_block_of(g, b)->results[i] = to;
  }
}

/* requires: swept   establishes: swept, placed   breaks: fused */
int cy_pass_layout(cy_pass *p) {
  chooser c = {.p = p, .g = p->g, .nvalues = cy_value_count(p->g)};
  c.preferred = CY_NEW_ARRAY(p->scratch, preference, c.nvalues + 1);
  c.rows = CY_NEW_ARRAY(p->scratch, bool, c.nvalues + 1);
  c.moved = CY_NEW_ARRAY(p->scratch, cy_val, c.nvalues + 1);
  c.more = CY_NEW_ARRAY(p->scratch, double, c.nvalues + 1);
  c.sizes = guess_sizes(p->g, p->scratch);
  for (cy_val v = 1; v <= c.nvalues; v++)
    cy_layout_reset(cy_value_of(p->g, v));
  collect_preferences(&c);
  choose_block(&c, 1);
  cy_build_in(p->g, 1);
  uint64_t moved = 0;
  for (cy_val v = 1; v <= c.nvalues; v++)
    moved += !cy_layout_is_row_major(cy_value_of(p->g, v));
  cy_pass_count(p, "values not row-major", moved);
  return 0;
}
