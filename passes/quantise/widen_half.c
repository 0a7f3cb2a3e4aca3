/* SPDX-License-Identifier: Apache-2.0 */
/* widen_half.c - computes half-precision graphs in f32, as processors without half arithmetic do best.
 *
 * In:  a swept graph as imported. Out: every op on f16 or bf16 computes in f32; casts stand where a half value is
 * really stored: at the borders of the model, of blocks and of runtime calls, and behind casts that the model itself
 * asks for.
 *
 * A value between two widened ops is not rounded to half any more: results come out as accurate as f32 has them, which
 * is also what ONNX Runtime does on CPUs, at every level of its own: so it runs at -O0, too. Constants are cast here
 * and folded by fold, so weights are stored as f32. Data movement on a constant (an embedding looked up) stays half and
 * is cast behind, where less is left to cast.
 *
 * What a dequantize of 8 bits gives is not rounded either, even where the model casts it (converters to half precision
 * leave quantisation in f32, between casts): products of it are those of integers then (qdq_to_integer.c).
 *
 * For targets that multiply halves and add up in f32 (cy_target_caps.half_factors), products, convolutions and
 * attention keep their half operands, where that is faster, and only their results are f32. What a product reads lies
 * in memory as half: its other readers take that, too, rounded as the model says, instead of having it stored twice.
 */
#include "quantise_int.h"

#include <string.h>

typedef struct wide {
  cy_val value;   /* the same in f32, 0: none yet */
  cy_block block; /* where it was made: seen there from then on, and in blocks inside */
} wide;

typedef struct widening {
  cy_pass *p;
  cy_graph *g;
  wide *of; /* by value, `capacity` of them */
  uint32_t capacity;
  const int64_t *sizes; /* [symbol]: to estimate with */
  cy_uses uses;         /* as imported */
} widening;

static bool is_half(const cy_graph *g, cy_val v) {
  return v && (cy_type_of(g, v)->dtype == CY_F16 || cy_type_of(g, v)->dtype == CY_BF16);
}

static wide *wide_of(widening *w, cy_val v) {
  if (v >= w->capacity) {
    uint32_t capacity = cy_value_count(w->g) * 2 + 64;
    wide *of = CY_NEW_ARRAY(w->p->scratch, wide, capacity);
    if (w->capacity)
      memcpy(of, w->of, w->capacity * sizeof *of);
    w->of = of;
    w->capacity = capacity;
  }
  return &w->of[v];
}

/* v in f32 for a reader in block b; the cast is built before that reader. */
static cy_val widened(widening *w, cy_val v, cy_block b) {
  if (!is_half(w->g, v))
    return v;
  wide *known = wide_of(w, v);
  if (!known->value || !cy_block_encloses(w->g, known->block, b))
    *known = (wide){cy_build_cast(w->g, v, CY_F32), b};
  return known->value;
}

static bool moves_only(const cy_node_info *n) {
  cy_op_class cls = cy_op_of((cy_op)n->op)->cls;
  return cls == CY_CLASS_VIEW || n->op == CY_OP_gather || n->op == CY_OP_gather_elements || n->op == CY_OP_gather_nd;
}

/* Does n dequantize integers of at most 8 bits? */
static bool dequantizes(const cy_graph *g, const cy_node_info *n) {
  cy_dtype from = n->op == CY_OP_dequantize ? (cy_dtype)cy_type_of(g, n->in[0])->dtype : CY_NONE;
  return n->op == CY_OP_dequantize && cy_dtype_is_int(from) && cy_dtype_of(from)->bits <= 8;
}

/* Is v what such a dequantize gives, maybe moved or cast? */
static bool is_dequantised(const cy_graph *g, cy_val v) {
  const cy_node_info *n = cy_def(g, v);
  while (n && (n->op == CY_OP_transpose || n->op == CY_OP_reshape || n->op == CY_OP_cast))
    n = cy_def(g, n->in[0]);
  return n && dequantizes(g, n);
}

/* Does product n multiply v's halves as they are; n NULL: might any product? */
static bool factors_stay(const widening *w, cy_val v, const cy_node_info *n) {
  const cy_pass_options *o = w->p->options;
  return cy_caps_half_factors(o->caps, (cy_dtype)cy_type_of(w->g, v)->dtype, w->g, n, w->sizes);
}

/* One of floats, as far as is known yet. */
static bool is_product(const cy_graph *g, const cy_node_info *n) {
  if (n->op != CY_OP_matmul && n->op != CY_OP_conv && n->op != CY_OP_conv_transpose)
    return false;
  return n->op == CY_OP_conv_transpose || !is_dequantised(g, n->in[0]) || !is_dequantised(g, n->in[1]);
}

/* A product that multiplies halves as they are; attention, if one kernel does it: its first three operands are factors.
 */
static bool multiplies_halves(const widening *w, const cy_node_info *n) {
  const cy_graph *g = w->g;
  if (!(is_product(g, n) || n->op == CY_OP_attention) || !is_half(g, n->in[0]) ||
      cy_type_of(g, n->in[0])->dtype != cy_type_of(g, n->in[1])->dtype || !factors_stay(w, n->in[0], n))
    return false;
  return is_product(g, n) || cy_attention_fits(w->p, cy_type_of(g, n->in[0]), cy_type_of(g, n->in[2]));
}

/* Does n, if it reads v, which is half, read it as a factor? */
static bool is_factor_of(const widening *w, cy_val v, const cy_node_info *n) {
  return (is_product(w->g, n) && factors_stay(w, v, n)) || multiplies_halves(w, n);
}

/* May readers of v take its value before it was rounded? */
static bool keeps_wide(const widening *w, cy_val v) {
  for (uint32_t i = w->uses.start[v]; i < w->uses.start[v + 1]; i++)
    if (w->uses.list[i] && is_factor_of(w, v, cy_node_of(w->g, w->uses.list[i])))
      return false;
  return true;
}

/* Is n a cache that grows: an output of the model that is an input with more behind it (lower_grow.c)? */
static bool grows(const cy_graph *g, const cy_node_info *n) {
  const cy_port_info *ports;
  if (n->op != CY_OP_concat || cy_def(g, n->in[0]))
    return false;
  uint32_t count = cy_graph_outputs(g, &ports);
  for (uint32_t i = 0; i < count; i++)
    if (ports[i].value == n->out[0])
      return true;
  return false;
}

/* Is n computed in f32? */
static bool wants(widening *w, const cy_node_info *n) {
  const cy_graph *g = w->g;
  bool half = n->op == CY_OP_dequantize && is_half(g, n->out[0]), factors = false;
  for (uint32_t i = 0; i < n->nin; i++)
    if (is_half(g, n->in[i])) {
      half = true;
      factors |= factors_stay(w, n->in[i], NULL) && !is_dequantised(g, n->in[i]);
    }
  cy_op_class cls = cy_op_of((cy_op)n->op)->cls;
  if (!half || cls == CY_CLASS_CALL || cls == CY_CLASS_CTRL || n->op == CY_OP_bitcast || n->op == CY_OP_write_rows ||
      grows(g, n))
    return false; /* of the last two, what is large is stored as half, and stays where it is */
  if (!moves_only(n))
    return true;
  if (factors)
    return false;                       /* on their way to products */
  for (uint32_t i = 0; i < n->nin; i++) /* moves what has been computed in f32 */
    if (n->in[i] && wide_of(w, n->in[i])->value && cy_def(g, n->in[i]))
      return true;
  return false;
}

static void widen_node(widening *w, cy_node id) {
  cy_graph *g = w->g;
  const cy_node_info *n = cy_node_of(g, id);
  if (n->op == CY_OP_cast && is_half(g, n->in[0]) && is_half(g, n->out[0]))
    return; /* rounds from one half to the other */
  cy_build_before(g, id);
  cy_rewrite_origin(w->p, n);
  cy_val *in = CY_NEW_ARRAY(w->p->scratch, cy_val, n->nin + 1);
  uint32_t factors = !multiplies_halves(w, n) ? 0 : n->op == CY_OP_attention ? 3 : n->nin;
  for (uint32_t i = 0; i < n->nin; i++)
    in[i] = i < factors ? n->in[i] : widened(w, n->in[i], n->block);
  cy_type *types = CY_NEW_ARRAY(w->p->scratch, cy_type, n->nout + 1);
  for (uint32_t k = 0; k < n->nout; k++) {
    types[k] = *cy_type_of(g, n->out[k]);
    if (is_half(g, n->out[k]))
      types[k].dtype = CY_F32;
  }
  bool typed = cy_op_of((cy_op)n->op)->typed || n->op == CY_OP_attention;
  cy_val first = cy_build(g, (cy_op)n->op, in, n->nin, n->attrs, n->nattrs, typed ? types : NULL, typed ? n->nout : 0);
  if (!first)
    cy_bug("half: '%s' can't be built in f32", cy_op_of((cy_op)n->op)->name);
  for (uint32_t k = 0; k < n->nout; k++) {
    cy_val old = n->out[k], now = k ? cy_build_output(g, first, k) : first;
    if (is_half(g, old)) {
      cy_val narrow = cy_build_cast(g, now, (cy_dtype)cy_type_of(g, old)->dtype);
      if (keeps_wide(w, old))
        *wide_of(w, narrow) = (wide){now, n->block};
      cy_graph_replace(g, old, narrow);
    } else {
      cy_graph_replace(g, old, now);
    }
  }
  cy_pass_count(w->p, "widened", 1);
}

/* In the order of execution: blocks inside a node before what stands behind it. */
static void widen_block(widening *w, cy_block b) {
  cy_graph *g = w->g;
  const cy_block_info *block = cy_block_of(g, b);
  uint32_t n = block->nnodes;
  cy_node *nodes = CY_NEW_ARRAY(w->p->scratch, cy_node, n + 1);
  if (n)
    memcpy(nodes, block->nodes, n * sizeof *nodes);
  for (uint32_t i = 0; i < n; i++) {
    const cy_node_info *node = cy_node_of(g, nodes[i]);
    for (int k = 0; k < node->nattrs; k++)
      if (node->attrs[k].kind == CY_KIND_BLOCK)
        widen_block(w, node->attrs[k].block);
    const cy_node_info *before = node->op == CY_OP_cast && is_half(g, node->out[0]) ? cy_def(g, node->in[0]) : NULL;
    if (before && dequantizes(g, before) && cy_type_of(g, node->in[0])->dtype == CY_F32 && keeps_wide(w, node->out[0]))
      *wide_of(w, node->out[0]) = (wide){node->in[0], b};
    if (wants(w, node))
      widen_node(w, nodes[i]);
  }
}

/* requires: swept   establishes: swept   breaks: unique, folded, placed, fused */
int cy_pass_half(cy_pass *p) {
  widening w = {.p = p, .g = p->g, .sizes = cy_quant_sizes(p->g, p->scratch)};
  w.uses = cy_graph_uses(p->g, p->scratch);
  widen_block(&w, 1);
  cy_build_in(p->g, 1);
  cy_graph_sweep(p->g);
  return 0;
}
