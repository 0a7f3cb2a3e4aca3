/* SPDX-License-Identifier: Apache-2.0 */
/* round_to_half.c - a float model with operands of products in half precision, where asked for (--fp16, --bf16).
 *
 * In:  a folded graph in f32. Out: matmul, conv, conv_transpose and, where its kernel multiplies halves, attention read
 * operands that are rounded to f16 or bf16; they add up in f32, and everything else (softmax, normalisations,
 * reductions, element-wise ops) stays as it was. By what the target does:
 *
 *   half_factors   multiplies halves, this product faster than in f32: both operands are cast, which fusion puts into
 *                  the kernels that compute them
 *   half_weights   multiplies floats but takes weights as halves, at half the bytes: constants are, the other operand
 *                  stays f32: storing that as halves, too, would cost a conversion on either side for what comes from
 *                  a cache mostly (expected, not measured)
 *
 * With errors limited (--half-max-error), the products that measuring found to cost more than allowed stay in f32; to
 * measure, every product is computed once more in f32 from rounded operands, and compared (quantise.h: HALF,
 * MEASURE_HALF).
 *
 * Not asked for, a target that takes weights as halves gets those that f16 holds exactly: models that come in f16 keep
 * the size they have, and nothing is rounded. (bf16 is not taken up so: widening it costs up to 8 % of the time.)
 *
 * Nothing behind this pass may fold the constants back to f32. A constant with values beyond the largest f16 is named
 * in a warning, and its products stay as they are. With half_io, inputs and outputs of the model that are f32 are
 * halves, too.
 *
 * Where the casts stand in the end, and who else reads halves, is half_sink.c's.
 *
 * Left alone: products of integers, convolutions with a filter per channel (their kernels are bound by the input),
 * weights so small that it does not matter, and products in which nothing is constant where the target multiplies
 * floats.
 */
#include "quantise_int.h"

#include <math.h>
#include <string.h>

enum { MIN_WEIGHTS = 64, MAX_CODE = 255, FEW_QUERIES = 4 };

/* A value in half precision: 0 if it cannot be or has not been looked at. */
typedef struct narrow {
  cy_val value;
  cy_block block; /* where it was made: seen there from then on, and in blocks inside; constants: everywhere */
  bool refused;
} narrow;

typedef struct narrowing {
  cy_pass *p;
  cy_graph *g;
  cy_dtype half;
  bool exact;           /* only what loses nothing */
  bool planned;         /* only the products that the plan has in `half`; attention it has made itself */
  cy_quant *q;          /* NULL: errors are not limited */
  const int64_t *sizes; /* [symbol]: to estimate with */
  narrow *of;           /* [value], of those that there were at the beginning */
} narrowing;

/* ---- constants ---- */

static void warn(narrowing *s, cy_val v, const cy_node_info *n, double max) {
  cy_graph *g = s->g;
  const char *name = cy_str_text(g, cy_value_of(g, v)->name);
  cy_location where = {.graph = cy_str_text(g, n->origin.graph),
                       .node = cy_str_text(g, n->origin.name),
                       .op = cy_str_text(g, n->origin.op),
                       .node_index = n->origin.index};
  cy_diag_add(cy_graph_diag(g), CY_WARNING, &where,
              "constant %s%s%sstays in f32: its largest value, %g, is beyond the largest f16, 65504; --bf16 has the "
              "range of f32",
              *name ? "'" : "", name, *name ? "' " : "", max);
}

/* v's values rounded to half precision; 0: they do not fit. */
static cy_val narrow_constant(narrowing *s, cy_val v, const cy_node_info *n) {
  cy_val made = cy_half_constant(s->g, v, s->half, s->exact);
  if (made)
    cy_pass_count(s->p, "constants", 1);
  else if (!s->exact)
    warn(s, v, n, cy_half_largest(&cy_value_of(s->g, v)->data));
  return made;
}

/* ---- products ---- */

/* The constant whose bytes v is: large weights are left as transposed views of what the file has. 0: there is none. */
static cy_val bytes_behind(const cy_graph *g, cy_val v) {
  const cy_node_info *view = cy_def_of(g, v, CY_OP_transpose);
  v = view ? view->in[0] : v;
  return cy_value_of(g, v)->data.bytes ? v : 0;
}

/* v for product n in half precision, built where nodes are being built; 0: it stays f32. */
static cy_val narrowed(narrowing *s, cy_val v, const cy_node_info *n) {
  cy_val source = bytes_behind(s->g, v);
  narrow *known = &s->of[source ? source : v];
  if (!known->refused && (!known->value || (!source && !cy_block_encloses(s->g, known->block, n->block))))
    *known = (narrow){source ? narrow_constant(s, source, n) : cy_build_cast(s->g, v, s->half), n->block, false};
  known->refused = !known->value;
  if (known->refused || !source || source == v)
    return known->value;
  return cy_build_transpose(s->g, known->value, cy_attr_find(cy_def(s->g, v), CY_ATTR_perm)->ints);
}

static bool is_product(const cy_graph *g, const cy_node_info *n) {
  return (n->op == CY_OP_matmul || n->op == CY_OP_conv || n->op == CY_OP_conv_transpose) &&
         cy_type_of(g, n->in[0])->dtype == CY_F32 && cy_type_of(g, n->in[1])->dtype == CY_F32;
}

/* Constants whose bytes the compiler has at hand. */
static bool has_weights(const narrowing *s, const cy_node_info *n) {
  const cy_type *w = cy_type_of(s->g, n->in[1]);
  bool each = n->op != CY_OP_matmul && cy_attr_get_int(n, CY_ATTR_group, 1) > 1 && cy_dim_is(s->g, w->dim[1], 1);
  return bytes_behind(s->g, n->in[1]) && !cy_value_is_const(s->g, n->in[0]) && !each &&
         cy_type_count(s->g, w) >= MIN_WEIGHTS;
}

/* v as a product in half precision sees it, in f32. */
static cy_val as_rounded(narrowing *s, cy_val v) {
  cy_val source = bytes_behind(s->g, v);
  if (!source)
    return cy_build_cast(s->g, cy_build_cast(s->g, v, s->half), CY_F32);
  cy_val r = cy_half_rounded(s->g, source, s->half, CY_F32);
  return source == v ? r : cy_build_transpose(s->g, r, cy_attr_find(cy_def(s->g, v), CY_ATTR_perm)->ints);
}

/* ---- of the layers that a plan has so ---- */

bool cy_half_offered(cy_pass *p, const cy_node_info *n, cy_dtype half, const int64_t *sizes) {
  const cy_pass_options *o = p->options;
  const narrowing s = {.p = p, .g = p->g, .half = half};
  if (!is_product(p->g, n))
    return false;
  return half == CY_BF16 ? cy_caps_half_factors(o->caps, half, p->g, n, sizes)
                         : cy_caps_half_weights(o->caps, half) && n->op == CY_OP_matmul && has_weights(&s, n) &&
                               cy_half_fits(half, &cy_value_of(p->g, bytes_behind(p->g, n->in[1]))->data);
}

cy_val cy_half_make(cy_pass *p, const cy_node_info *n, cy_dtype half, const int64_t *sizes) {
  narrowing s = {.p = p, .g = p->g, .half = half, .sizes = sizes};
  bool both = cy_caps_half_factors(p->options->caps, half, p->g, n, sizes);
  cy_node_info copy = *n;
  cy_val in[2] = {both ? as_rounded(&s, copy.in[0]) : copy.in[0], as_rounded(&s, copy.in[1])};
  return cy_build(p->g, (cy_op)copy.op, in, 2, copy.attrs, copy.nattrs, cy_type_of(p->g, copy.out[0]), 1);
}

/* Does the plan, if there is one, have something else of the node? */
static bool planned_otherwise(const narrowing *s, const cy_node_info *n, cy_node id) {
  cy_precision as = cy_quant_planned(s->p, n, id);
  return s->planned && as != (s->half == CY_BF16 ? CY_PRECISION_BF16 : CY_PRECISION_F16);
}

/* Attention multiplies twice: q and k, weights and v. */
static void narrow_attention(narrowing *s, cy_node_info *n, cy_node id) {
  cy_val half[3];
  cy_build_before(s->g, id);
  cy_rewrite_origin(s->p, n);
  for (int k = 0; k < 3; k++)
    if (!(half[k] = narrowed(s, n->in[k], n)))
      return;
  memcpy(n->in, half, sizeof half);
  cy_pass_count(s->p, "attention", 1);
}

/* Lists a product where errors are limited. Does it stay in f32? */
static bool kept(narrowing *s, cy_node id) {
  cy_quant *q = s->q;
  if (!q)
    return false;
  cy_quant_layer *l = &q->layer[q->nlayers++];
  cy_quant_describe(q, s->g, id, l);
  l->keep = cy_quant_skipped(q, s->g, cy_node_of(s->g, id)) ? CY_QUANT_SKIPPED
                                                            : cy_quant_judged(q, l, cy_node_of(s->g, id)->block);
  return l->keep;
}

/* The product once more, of rounded operands, in front of node `next` (0: at the end), and how it differs. */
static void measure_product(narrowing *s, cy_node id, cy_node next, bool both) {
  cy_graph *g = s->g;
  const cy_node_info *n = cy_node_of(g, id);
  cy_op op = (cy_op)n->op;
  if (next)
    cy_build_before(g, next);
  else
    cy_build_in(g, n->block);
  cy_val in[2] = {both ? as_rounded(s, n->in[0]) : n->in[0], as_rounded(s, n->in[1])};
  n = cy_node_of(g, id);
  cy_val y = cy_build(g, op, in, 2, n->attrs, n->nattrs, cy_type_of(g, n->out[0]), 1);
  cy_quant_compare(g, s->q, s->q->nlayers - 1, y, NULL, 0);
}

static void narrow_product(narrowing *s, cy_node id, cy_node next) {
  cy_graph *g = s->g;
  cy_node_info *n = cy_node_of(g, id);
  const cy_pass_options *o = s->p->options;
  bool both = !s->exact && cy_caps_half_factors(o->caps, s->half, g, n, s->sizes);
  bool attends = both && n->op == CY_OP_attention && cy_type_of(g, n->in[0])->dtype == CY_F32;
  if (attends && !s->q && !s->planned)
    narrow_attention(s, n, id);
  if (!is_product(g, n) || (!both && !((s->exact || cy_caps_half_weights(o->caps, s->half)) && has_weights(s, n))) ||
      planned_otherwise(s, n, id) || kept(s, id))
    return;
  if (s->q && s->q->mode == CY_QUANT_MEASURE_HALF) {
    measure_product(s, id, next, both);
    return;
  }
  cy_build_before(g, id);
  cy_rewrite_origin(s->p, n);
  cy_val w = narrowed(s, n->in[1], n), x = !w ? 0 : both ? narrowed(s, n->in[0], n) : n->in[0];
  if (!x)
    return;
  n->in[0] = x;
  n->in[1] = w;
  cy_pass_count(s->p, "products", 1);
}

/* Of weights in blocks, at most. */
static double largest_weight(const cy_graph *g, const cy_node_info *n) {
  const cy_value *scale = cy_value_of(g, n->in[2]);
  cy_dtype w = (cy_dtype)cy_type_of(g, n->in[1])->dtype;
  double code = cy_attr_get_int(n, CY_ATTR_codes, 0) ? 6
                : w == CY_F8E4M3FN                   ? 448
                : w == CY_F8E5M2                     ? 57344
                                                     : MAX_CODE,
         max = 0;
  for (uint64_t i = 0, count = scale->data.bytes ? cy_type_count(g, &scale->type) : 0; i < count; i++)
    max = fmax(max, fabs(cy_scalar_load(scale->data.bytes, (cy_dtype)scale->type.dtype, i).f));
  return max * code;
}

static void allow_rounding(narrowing *s, cy_node id) {
  cy_graph *g = s->g;
  const cy_node_info *n = cy_node_of(g, id);
  const cy_attr half = cy_attr_int(CY_ATTR_round, s->half);
  cy_val in[4] = {0}, out = n->out[0];
  uint32_t count = n->nin;
  memcpy(in, n->in, count * sizeof *in);
  cy_graph_replace(g, out, cy_build(g, CY_OP_matmul_blocks, in, count, &half, 1, NULL, 0));
}

/* Weights in integers stay as they are: a kernel makes halves of a panel of them at a time, and where it does not round
 * x, too, x is cast. */
static void narrow_blocks(narrowing *s, cy_node id) {
  cy_graph *g = s->g;
  cy_node_info *n = cy_node_of(g, id);
  const cy_pass_options *o = s->p->options;
  bool rounds = cy_caps_of(o->caps)->blocks_round;
  if (s->exact || s->q || s->planned || (rounds && cy_attr_find(n, CY_ATTR_round)) ||
      cy_type_of(g, n->in[0])->dtype != CY_F32 || !cy_caps_half_factors(o->caps, s->half, g, n, s->sizes))
    return;
  double max = s->half == CY_F16 ? largest_weight(g, n) : 0;
  if (max >= CY_HALF_BEYOND_F16) {
    warn(s, n->in[2], n, max);
    return;
  }
  cy_build_before(g, id);
  cy_rewrite_origin(s->p, n);
  if (rounds)
    allow_rounding(s, id);
  else
    n->in[0] = narrowed(s, n->in[0], n);
  cy_pass_count(s->p, "products", 1);
}

/* In the order of execution: blocks inside a node before what stands behind it. */
static void narrow_block(narrowing *s, cy_block b) {
  cy_graph *g = s->g;
  uint32_t count = cy_block_of(g, b)->nnodes;
  cy_node *nodes = CY_NEW_ARRAY(s->p->scratch, cy_node, count + 1);
  for (uint32_t i = 0; i < count; i++)
    nodes[i] = cy_block_of(g, b)->nodes[i];
  for (uint32_t i = 0; i < count; i++) {
    const cy_node_info *n = cy_node_of(g, nodes[i]);
    for (int k = 0; k < n->nattrs; k++)
      if (n->attrs[k].kind == CY_KIND_BLOCK)
        narrow_block(s, n->attrs[k].block);
    if (n->op == CY_OP_matmul_blocks)
      narrow_blocks(s, nodes[i]);
    else
      narrow_product(s, nodes[i], i + 1 < count ? nodes[i + 1] : 0);
  }
}

/* ---- attention that rounds its factors itself ---- */

/* What is cast to v; 0: v is no cast of f32. */
static cy_val cast_source(const narrowing *s, cy_val v) {
  const cy_node_info *cast = cy_def_of(s->g, v, CY_OP_cast);
  return cast && cy_type_of(s->g, cast->in[0])->dtype == CY_F32 ? cast->in[0] : 0;
}

/* The same, if it lies in memory for others, too: a cache, a result. */
static cy_val stored_source(const narrowing *s, cy_uses uses, cy_val v) {
  cy_val source = cast_source(s, v);
  const cy_node_info *from = source ? cy_def(s->g, source) : NULL;
  cy_op_class cls = from ? cy_op_of((cy_op)from->op)->cls : CY_CLASS_VIEW;
  bool alone = source && uses.start[source + 1] - uses.start[source] == 1;
  return alone && (cls == CY_CLASS_EW || cls == CY_CLASS_ROOT) ? 0 : source;
}

/* Is v what a model keeps from run to run, maybe moved? */
static bool is_cache(const narrowing *s, cy_val v) {
  const cy_node_info *n = cy_def(s->g, v);
  while (n && cy_op_is_pure_view((cy_op)n->op))
    n = cy_def(s->g, n->in[0]);
  return n && (n->op == CY_OP_concat || n->op == CY_OP_write_rows);
}

/* Is attention bound by the memory that it reads? Else it gains more from halves that are copied as they are than a cast
 * takes. */
static bool waits_for_memory(const narrowing *s, const cy_attention *a) {
  const cy_type *q = cy_type_of(s->g, a->q);
  cy_val keys = cast_source(s, a->k);
  int64_t queries;
  return (keys && is_cache(s, keys)) ||
         (cy_dim_is_const(s->g, q->dim[q->rank - 2], &queries) && queries <= FEW_QUERIES);
}

/* Factors of f32 that are stored anyway are read so: no kernel casts them first. Keys and values have one type. */
static void read_wide(narrowing *s, cy_uses uses, cy_node id) {
  cy_attention a = cy_attention_of(cy_node_of(s->g, id));
  cy_val q = stored_source(s, uses, a.q), k = cast_source(s, a.k), v = cast_source(s, a.v);
  bool both = k && v && (stored_source(s, uses, a.k) || stored_source(s, uses, a.v));
  if ((!q && !both) || !waits_for_memory(s, &a))
    return;
  a.q = q ? q : a.q;
  a.k = both ? k : a.k;
  a.v = both ? v : a.v;
  a.round = s->half;
  cy_build_before(s->g, id);
  cy_rewrite_origin(s->p, cy_node_of(s->g, id));
  cy_val y = cy_build_attention(s->g, &a);
  cy_graph_replace(s->g, cy_node_of(s->g, id)->out[0], y);
  cy_pass_count(s->p, "attention read in f32", 1);
}

static void read_all_wide(narrowing *s) {
  cy_uses uses = cy_graph_uses(s->g, s->p->scratch);
  for (cy_block b = 1; b <= cy_block_count(s->g); b++) {
    uint32_t count;
    const cy_node *nodes = cy_pass_walk(s->p, b, &count);
    for (uint32_t i = 0; i < count; i++)
      if (cy_node_of(s->g, nodes[i])->op == CY_OP_attention &&
          cy_type_of(s->g, cy_node_of(s->g, nodes[i])->out[0])->dtype == CY_F32)
        read_wide(s, uses, nodes[i]);
  }
}

/* ---- inputs and outputs ---- */

static void narrow_inputs(narrowing *s) {
  const cy_port_info *ports;
  cy_graph *g = s->g;
  uint32_t n = cy_graph_inputs(g, &ports);
  for (uint32_t i = 0; i < n; i++) {
    cy_val v = ports[i].value;
    if (cy_type_of(g, v)->dtype != CY_F32)
      continue;
    cy_value_of(g, v)->type.dtype = (uint8_t)s->half;
    if (cy_block_of(g, 1)->nnodes)
      cy_build_before(g, cy_block_of(g, 1)->nodes[0]);
    else
      cy_build_in(g, 1);
    cy_val wide = cy_build_cast(g, v, CY_F32);
    cy_graph_replace(g, v, wide);
    cy_def(g, wide)->in[0] = v;
  }
}

static void narrow_outputs(narrowing *s) {
  const cy_port_info *ports;
  cy_graph *g = s->g;
  uint32_t n = cy_graph_outputs(g, &ports);
  cy_build_in(g, 1);
  for (uint32_t i = 0; i < n; i++)
    if (cy_type_of(g, ports[i].value)->dtype == CY_F32)
      cy_graph_set_output(g, i, cy_build_cast(g, ports[i].value, s->half));
}

static void tidy(cy_pass *p) {
  cy_build_in(p->g, 1);
  cy_graph_sweep(p->g);
}

/* What the plan has in each half precision. */
static void follow_plan(cy_pass *p, cy_dtype half) {
  narrowing s = {.p = p, .g = p->g, .half = half, .planned = true, .sizes = cy_quant_sizes(p->g, p->scratch)};
  s.of = CY_NEW_ARRAY(p->scratch, narrow, cy_value_count(p->g) + 1);
  narrow_block(&s, 1);
  tidy(p);
  cy_half_sink(p, half, p->options->quant->shares_halves);
  tidy(p);
}

/* requires: swept   establishes: swept   breaks: unique, folded, placed, fused */
int cy_pass_to_half(cy_pass *p) {
  const cy_pass_options *o = p->options;
  if (o->quant && o->quant->mode == CY_QUANT_PLAN) {
    follow_plan(p, CY_BF16);
    follow_plan(p, CY_F16);
  }
  if (!o->half && (o->few_runs || !cy_caps_half_weights(o->caps, CY_F16)))
    return 0;
  narrowing s = {.p = p, .g = p->g, .half = o->half ? o->half : CY_F16, .exact = !o->half};
  s.sizes = cy_quant_sizes(p->g, p->scratch);
  s.of = CY_NEW_ARRAY(p->scratch, narrow, cy_value_count(p->g) + 1);
  if (o->quant && cy_quant_is_half(o->quant->mode)) {
    s.q = o->quant;
    s.q->layer = CY_NEW_ARRAY(s.q->arena, cy_quant_layer, cy_node_count(p->g) + 1);
  }
  narrow_block(&s, 1);
  if (o->half_io) {
    narrow_inputs(&s);
    narrow_outputs(&s);
  }
  tidy(p);
  if (!s.exact) {
    cy_half_sink(p, s.half, !s.q);
    tidy(p);
    if (cy_caps_of(o->caps)->attention_rounds && !s.q)
      read_all_wide(&s);
    tidy(p);
  }
  return 0;
}
