/* SPDX-License-Identifier: Apache-2.0 */
/* quantise.c - static quantisation: where quantize and dequantize stand, so that whole blocks run on integers.
 *
 * In:  a folded graph in f32, and a cy_quant (quantise.h) that says what to do. Out, by its mode: the same graph with
 * the tensors to be observed, or errors to be measured, as further outputs; or with integers in it. A quantised tensor
 * v becomes dequantize(quantize(v)), which all its readers but the model's outputs read; weights become
 * dequantize(constant). What makes integer kernels of this is another pass; where none does, the graph is right all the
 * same.
 *
 * Which tensors: those that layers (contractions with constant weights) read. From there the walk goes backwards through
 * the element-wise ops that will be computed in the kernel of an earlier contraction or pooling, their root. Whatever
 * else these ops read from memory, such as the other branch of a residual sum, is quantised too; if the root moves or
 * pools data, so is what it reads. Not so if the root is a matrix product, or if there is no root and a product follows:
 * the stream that a transformer adds to goes through all of its layers, and each of them would round it. There,
 * element-wise ops read what products round as it was before. Floats of 8 bits (cy_quant.float8), whose steps are an eighth of
 * a number, are for layers alone: everybody else reads what was there before. Ops that only move elements (and maximum pooling, which
 * commutes with rounding) are rebuilt on the integers and share one scale with what they read.
 */
#include "quantise_int.h"

#include <string.h>

typedef struct placer {
  cy_pass *p;
  cy_graph *g;
  cy_quant *q;
  cy_uses uses;
  cy_node *nodes; /* of block 1, as they were */
  uint32_t nnodes, nvalues;
  uint32_t *pos;    /* [node]: 1 + place in `nodes`; 0: in another block */
  uint32_t *tensor; /* [value]: 1 + index in q->tensor, 0: stays float */
  uint32_t *group;  /* [tensor]: union-find; tensors of a group share a scale */
  cy_val *ints;     /* [tensor]: the u8 value */
  bool *is_moved;   /* [tensor]: .. made of those of others */
  uint32_t *inside; /* [node]: mark of the cone being walked */
  uint32_t mark;
  const int64_t *sizes; /* [symbol]: to estimate with */
} placer;

static bool is_f32(const cy_graph *g, cy_val v) { return cy_type_of(g, v)->dtype == CY_F32; }

/* ---- which tensors ---------------------------------------------------------------------------------------------- */

/* Does n nothing but move elements? Its integers are those of its inputs. No pool has floats of 8 bits. */
static bool moves(const placer *s, const cy_node_info *n) {
  unsigned does = cy_quant_op_does((cy_op)n->op);
  if (s->q->float8 && n->op == CY_OP_pool_max)
    return false;
  return does & CY_QUANT_MOVES ||
         (does & CY_QUANT_MOVES_NEAREST && cy_attr_get_int(n, CY_ATTR_mode, 0) == CY_RESIZE_NEAREST);
}

/* A sum over the feature map, as global pooling has it: other sums are statistics of normalisations, which want
 * precision.
 */
static bool sums_feature_map(const cy_graph *g, const cy_node_info *n) {
  uint32_t count;
  const int64_t *axes = cy_attr_list(n, CY_ATTR_axes, &count);
  if (n->op != CY_OP_reduce_sum || cy_type_of(g, n->in[0])->rank < 4)
    return false;
  for (uint32_t i = 0; i < count; i++)
    if (axes[i] < 2)
      return false;
  return true;
}

/* Ops in front of which integers save memory traffic, whatever they compute with inside. */
static bool reads_integers(const placer *s, const cy_node_info *n) {
  if (moves(s, n) || s->q->float8)
    return moves(s, n);
  return cy_quant_op_does((cy_op)n->op) & CY_QUANT_READS || sums_feature_map(s->g, n);
}

/* Inputs that are data, not sizes, indices or fillings. */
static uint32_t data_inputs(const cy_node_info *n) { return n->op == CY_OP_concat ? n->nin : 1; }

static cy_node def_here(const placer *s, cy_val v) {
  cy_node d = cy_value_of(s->g, v)->node;
  return d && s->pos[d] ? d : 0;
}

/* Are all readers of v in the cone being walked? */
static bool only_inside(const placer *s, cy_val v) {
  for (uint32_t i = s->uses.start[v]; i < s->uses.start[v + 1]; i++)
    if (!s->uses.list[i] || s->inside[s->uses.list[i]] != s->mark)
      return false;
  return true;
}

static const cy_quant_tensor *q_tensor(const placer *s, cy_val v) { return &s->q->tensor[s->tensor[v] - 1]; }

static void add_tensor(placer *s, cy_val v) {
  cy_quant *q = s->q;
  const char *name = cy_str_text(s->g, cy_value_of(s->g, v)->name);
  cy_node d = cy_value_of(s->g, v)->node;
  if (!*name && d)
    name = cy_str_text(s->g, cy_node_of(s->g, d)->origin.name);
  q->tensor[q->ntensors++] = (cy_quant_tensor){.value = v, .name = cy_arena_printf(q->arena, "%s", name)};
  s->tensor[v] = q->ntensors;
}

typedef struct leaves {
  cy_val list[64];
  uint32_t n;
} leaves;

static void add_leaf(leaves *l, cy_val v) {
  for (uint32_t i = 0; i < l->n; i++)
    if (l->list[i] == v)
      return;
  if (l->n < sizeof l->list / sizeof l->list[0])
    l->list[l->n++] = v;
}

/* The cone of element-wise ops that end in v, each read only inside of it; the values that it reads from outside.
 * Walked by falling position, so that all readers of a value have been seen before it. */
static void walk_cone(placer *s, cy_val v, leaves *out) {
  cy_graph *g = s->g;
  leaves open = {.list = {v}, .n = 1};
  s->mark++;
  while (open.n) {
    uint32_t last = 0;
    for (uint32_t i = 1; i < open.n; i++)
      if (s->pos[def_here(s, open.list[i])] > s->pos[def_here(s, open.list[last])])
        last = i;
    cy_val at = open.list[last];
    open.list[last] = open.list[--open.n];
    cy_node d = def_here(s, at);
    bool ew = d && cy_op_is_ew((cy_op)cy_node_of(g, d)->op) && (at == v || only_inside(s, at));
    if (!ew) {
      add_leaf(out, at);
      continue;
    }
    s->inside[d] = s->mark;
    const cy_node_info *n = cy_node_of(g, d);
    for (uint32_t k = 0; k < n->nin; k++)
      if (!cy_value_is_const(g, n->in[k]))
        add_leaf(&open, n->in[k]);
  }
}

/* Is v reduced to statistics? */
static bool is_normalised(const placer *s, cy_val v) {
  for (uint32_t i = s->uses.start[v]; i < s->uses.start[v + 1]; i++) {
    const cy_node_info *n = s->uses.list[i] ? cy_node_of(s->g, s->uses.list[i]) : NULL;
    if (n && cy_op_of((cy_op)n->op)->cls == CY_CLASS_REDUCE && !sums_feature_map(s->g, n))
      return true;
  }
  return false;
}

/* The value whose kernel will compute the cone: the last one that only the cone reads. */
static cy_val root_of(const placer *s, const leaves *l, cy_val v) {
  cy_val root = 0;
  for (uint32_t i = 0; i < l->n; i++) {
    cy_node d = def_here(s, l->list[i]);
    cy_op_class cls = d ? cy_op_of((cy_op)cy_node_of(s->g, d)->op)->cls : CY_CLASS_CALL;
    if (d && cls != CY_CLASS_CALL && cls != CY_CLASS_CTRL &&
        cy_same_shape(cy_type_of(s->g, l->list[i]), cy_type_of(s->g, v)) &&
        (l->list[i] == v || only_inside(s, l->list[i])) && (!root || s->pos[d] > s->pos[def_here(s, root)]))
      root = l->list[i];
  }
  return root;
}

/* Does a matrix product in integers read v? */
static bool read_by_product(const placer *s, cy_val v) {
  for (uint32_t i = 0; i < s->q->nlayers; i++)
    if (s->q->layer[i].input == v && !s->q->layer[i].keep && s->q->layer[i].product)
      return true;
  return false;
}

/* The tensors that v's kernel reads and that are quantised if v is. */
static void needed_by(placer *s, cy_val v, leaves *out) {
  cy_graph *g = s->g;
  leaves l = {.n = 0};
  walk_cone(s, v, &l);
  cy_val root = root_of(s, &l, v);
  bool product = s->q->float8 || (root ? cy_def_of(g, root, CY_OP_matmul) != 0 : read_by_product(s, v));
  for (uint32_t i = 0; i < l.n && !product; i++)
    if (l.list[i] != root && l.list[i] != v && cy_same_shape(cy_type_of(g, l.list[i]), cy_type_of(g, v)) &&
        !is_normalised(s, l.list[i]) && !cy_quant_feeds_log(g, &s->uses, l.list[i]))
      add_leaf(out, l.list[i]);
  const cy_node_info *n = root ? cy_def(g, root) : NULL;
  if (n && reads_integers(s, n))
    for (uint32_t k = 0; k < data_inputs(n); k++)
      add_leaf(out, n->in[k]);
}

/* Adds v and what it is made of, with a work list: networks are deep. */
static void mark_tensors(placer *s, cy_val first) {
  cy_graph *g = s->g;
  cy_val *stack = CY_NEW_ARRAY(s->p->scratch, cy_val, s->nvalues + 1);
  bool *seen = CY_NEW_ARRAY(s->p->scratch, bool, s->nvalues + 1);
  uint32_t top = 0;
#define PUSH(x)                                                                                                        \
  if (!seen[x] && !s->tensor[x] && is_f32(g, x) && !cy_value_is_const(g, x))                                           \
  stack[top++] = x, seen[x] = true
  PUSH(first);
  while (top) {
    cy_val v = stack[--top];
    add_tensor(s, v);
    leaves l = {.n = 0};
    needed_by(s, v, &l);
    for (uint32_t i = 0; i < l.n; i++)
      PUSH(l.list[i]);
  }
#undef PUSH
}

/* OBSERVE: finds the layers. */
static void list_layers(placer *s) {
  cy_quant *q = s->q;
  q->layer = CY_NEW_ARRAY(q->arena, cy_quant_layer, s->nnodes + 1);
  for (uint32_t i = 0; i < s->nnodes; i++) {
    const cy_node_info *n = cy_node_of(s->g, s->nodes[i]);
    if (!cy_quant_eligible(s->g, n))
      continue;
    cy_quant_layer *l = &q->layer[q->nlayers++];
    cy_quant_describe(q, s->g, s->nodes[i], l);
    cy_quant_cycles(q, s->g, n, s->sizes, l->cycles);
    if (cy_quant_skipped(q, s->g, n))
      l->keep = CY_QUANT_SKIPPED;
    else if (q->float8 && cy_quant_float8_keeps(s->g, n))
      l->keep = cy_quant_float8_keeps(s->g, n);
    else if (cy_quant_feeds_log(s->g, &s->uses, n->out[0]))
      l->keep = CY_QUANT_LOG;
  }
}

/* The node that v's integers can be had from by doing the same with integers; NULL: none. */
static const cy_node_info *mover_of(const placer *s, cy_val v) {
  cy_node d = def_here(s, v);
  const cy_node_info *n = d ? cy_node_of(s->g, d) : NULL;
  if (!n || !moves(s, n) || n->out[0] != v)
    return NULL;
  if (n->op == CY_OP_pad && n->nin > 1 && n->in[1] && !cy_splat_is(s->g, n->in[1], 0))
    return NULL;
  for (uint32_t k = 0; k < data_inputs(n); k++)
    if (!s->tensor[n->in[k]])
      return NULL;
  return n;
}

/* What each tensor is made of, and its channels. */
static void describe_tensors(placer *s) {
  cy_quant *q = s->q;
  const cy_type **types = CY_NEW_ARRAY(s->p->scratch, const cy_type *, q->ntensors + 1);
  for (uint32_t t = 0; t < q->ntensors; t++) {
    cy_quant_tensor *x = &q->tensor[t];
    const cy_node_info *n = mover_of(s, x->value);
    types[t] = cy_type_of(s->g, x->value);
    if (!n)
      continue;
    x->nfrom = data_inputs(n);
    x->from = CY_NEW_ARRAY(q->arena, uint32_t, x->nfrom);
    for (uint32_t k = 0; k < x->nfrom; k++)
      x->from[k] = s->tensor[n->in[k]] - 1;
    x->joins = n->op == CY_OP_concat;
    x->passes_channels = cy_quant_passes_channels(s->g, n);
  }
  cy_quant_balance_axes(q, s->g, types);
}

/* Every tensor that the layers which are not kept in float give rise to. */
static void mark_all(placer *s) {
  cy_quant *q = s->q;
  memset(s->tensor, 0, (s->nvalues + 1) * sizeof *s->tensor);
  q->tensor = CY_NEW_ARRAY(q->arena, cy_quant_tensor, s->nvalues + 1);
  q->ntensors = 0;
  for (uint32_t i = 0; i < q->nlayers; i++)
    if (!q->layer[i].keep)
      mark_tensors(s, cy_node_of(s->g, q->layer[i].node)->in[0]);
}

/* The same, with the ranges known before. */
static void list_tensors(placer *s) {
  cy_quant *q = s->q;
  cy_quant_tensor *known = q->tensor;
  uint32_t nknown = q->ntensors;
  mark_all(s);
  for (uint32_t k = 0; k < nknown; k++)
    if (s->tensor[known[k].value])
      q->tensor[s->tensor[known[k].value] - 1] = known[k];
  if (q->mode == CY_QUANT_OBSERVE)
    describe_tensors(s);
}

/* ---- time ------------------------------------------------------------------------------------------------------- */

/* The layer, counted from 1, in whose kernel v is made; 0: it is no layer's. */
static uint32_t layer_making(placer *s, cy_val v) {
  leaves l = {.n = 0};
  walk_cone(s, v, &l);
  cy_val root = root_of(s, &l, v);
  for (uint32_t i = 0; root && i < s->q->nlayers; i++)
    if (s->q->layer[i].node == def_here(s, root))
      return i + 1;
  return 0;
}

/* Layers that would not be faster in integers, with the conversions they give rise to, stay in float. */
static void keep_slow(placer *s) {
  cy_quant *q = s->q;
  const cy_int_costs *c = &cy_caps_of(q->caps)->ints;
  cy_quant_tensor *known = q->tensor;
  uint32_t nknown = q->ntensors;
  mark_all(s);
  uint32_t nl = q->nlayers, n = nl + q->ntensors, nneeds = 0;
  int64_t *gain = CY_NEW_ARRAY(s->p->scratch, int64_t, n + 1);
  cy_quant_need *needs = CY_NEW_ARRAY(s->p->scratch, cy_quant_need, 2 * (size_t)nl + 65 * (size_t)q->ntensors + 1);
  bool *chosen = CY_NEW_ARRAY(s->p->scratch, bool, n + 1);
  for (uint32_t t = 0; t < q->ntensors; t++) {
    cy_val v = q->tensor[t].value;
    leaves l = {.n = 0};
    needed_by(s, v, &l);
    for (uint32_t i = 0; i < l.n; i++)
      if (s->tensor[l.list[i]])
        needs[nneeds++] = (cy_quant_need){nl + t, nl + s->tensor[l.list[i]] - 1, CY_QUANT_MUST};
    double elements = cy_quant_elements(s->g, v, s->sizes);
    uint32_t maker = layer_making(s, v);
    bool may_be_int = maker && !q->layer[maker - 1].keep;
    gain[nl + t] = (int64_t)((mover_of(s, v) ? c->moved : may_be_int ? c->stored : -c->round) * elements);
    if (may_be_int)
      needs[nneeds++] = (cy_quant_need){nl + t, maker - 1, (int64_t)((c->stored + c->round) * elements)};
  }
  for (uint32_t i = 0; i < nl; i++) {
    const cy_quant_layer *l = &q->layer[i];
    uint32_t t = s->tensor[l->input];
    int64_t back = t ? (int64_t)(c->back * cy_quant_elements(s->g, l->input, s->sizes)) : 0;
    if (l->keep && t)
      gain[nl + t - 1] -= back;
    if (l->keep)
      continue;
    gain[i] = (int64_t)(l->cycles[0] - l->cycles[1] * c->margin);
    needs[nneeds++] = (cy_quant_need){i, nl + t - 1, CY_QUANT_MUST};
    needs[nneeds++] = (cy_quant_need){nl + t - 1, i, back};
  }
  cy_quant_choose(s->p->scratch, gain, n, needs, nneeds, chosen);
  for (uint32_t i = 0; i < nl; i++)
    if (!q->layer[i].keep && !chosen[i])
      q->layer[i].keep = CY_QUANT_NO_GAIN;
  q->tensor = known;
  q->ntensors = nknown;
}

/* ---- scales ----------------------------------------------------------------------------------------------------- */

static uint32_t root(placer *s, uint32_t t) {
  while (s->group[t] != t)
    t = s->group[t] = s->group[s->group[t]];
  return t;
}

/* Unites the groups of tensors a and b; their ranges at the root. */
static bool unite(placer *s, uint32_t a, uint32_t b, bool always) {
  a = root(s, a);
  b = root(s, b);
  cy_quant_tensor *ta = &s->q->tensor[a], *tb = &s->q->tensor[b];
  if (a == b)
    return true;
  if (!always && !cy_quant_may_share((double[]){ta->low, tb->low}, (double[]){ta->high, tb->high}))
    return false;
  s->group[b] = a;
  ta->low = tb->low < ta->low ? tb->low : ta->low;
  ta->high = tb->high > ta->high ? tb->high : ta->high;
  return true;
}

static void share_scales(placer *s) {
  cy_quant *q = s->q;
  for (uint32_t t = 0; t < q->ntensors; t++)
    s->group[t] = t;
  for (uint32_t t = 0; t < q->ntensors; t++) {
    const cy_node_info *n = mover_of(s, q->tensor[t].value);
    for (uint32_t k = 0; n && k < data_inputs(n); k++)
      unite(s, t, s->tensor[n->in[k]] - 1, n->op != CY_OP_concat || q->tensor[t].balance);
  }
}

/* ---- building --------------------------------------------------------------------------------------------------- */

/* From now on, behind the node that defines v; in front of everything for a model input. */
static void build_behind(placer *s, cy_val v) {
  cy_node d = def_here(s, v);
  uint32_t next = s->pos[d]; /* pos counts from 1 */
  if (next < s->nnodes)
    cy_build_before(s->g, s->nodes[next]);
  else
    cy_build_in(s->g, 1);
  cy_origin origin = {0};
  if (d)
    origin = cy_node_of(s->g, d)->origin;
  origin.pass = s->p->name;
  cy_build_origin(s->g, &origin);
}

static cy_val rescale(cy_graph *g, cy_op op, cy_val x, cy_val scale, cy_val zero, int axis, cy_dtype dtype) {
  cy_val in[3] = {x, scale, zero};
  cy_attr a[3] = {cy_attr_int(CY_ATTR_axis, axis), cy_attr_int(CY_ATTR_block_size, 0),
                  cy_attr_int(CY_ATTR_saturate, 1)};
  const cy_type *t = cy_type_of(g, x);
  cy_type type = cy_type_make(dtype, t->rank, t->dim);
  return cy_build(g, op, in, zero ? 3 : 2, a, op == CY_OP_quantize ? 3 : 2, &type, 1);
}

/* A tensor's balance (or what is multiplied by to divide by it), shaped to broadcast. */
static cy_val factors(placer *s, const cy_quant_tensor *x, bool inverse) {
  cy_graph *g = s->g;
  int rank = cy_type_of(g, x->value)->rank - x->axis;
  cy_dim dims[CY_MAX_RANK] = {cy_dim_const(g, x->channels)};
  for (int i = 1; i < rank; i++)
    dims[i] = cy_dim_const(g, 1);
  cy_type type = cy_type_make(CY_F32, rank, dims);
  cy_val v;
  float *f = cy_const_new(g, &type, &v);
  for (uint32_t c = 0; c < x->channels; c++)
    f[c] = inverse ? 1 / x->balance[c] : x->balance[c];
  return v;
}

/* What a tensor becomes; fill: what stands for 0 in it. zero 0: there is none. */
typedef struct grid {
  cy_val scale, zero, fill;
  cy_dtype dtype;
} grid;

static grid grid_of(placer *s, const cy_quant_tensor *x) {
  float scale;
  int zero = 0;
  bool float8 = s->q->float8;
  grid out = {.dtype = float8 ? CY_F8E4M3FN : CY_U8};
  if (float8)
    scale =
        cy_quant_float8_scale(2 * (x->high > -x->low ? x->high : -x->low)); /* others than the samples may be larger */
  else
    cy_quant_u8(x->low, x->high, &scale, &zero);
  out.scale = cy_build_scalar(s->g, CY_F32, scale);
  out.fill = float8 ? cy_build_scalar(s->g, out.dtype, 0) : cy_build_scalar_int(s->g, out.dtype, zero);
  out.zero = float8 ? 0 : out.fill;
  return out;
}

/* x quantised, and dequantised again: what readers of the balanced tensor get. */
static cy_val quantised(placer *s, const cy_quant_tensor *x, const grid *to) {
  cy_val v = x->balance ? cy_build_binary(s->g, CY_OP_mul, x->value, factors(s, x, true)) : x->value;
  return rescale(s->g, CY_OP_quantize, v, to->scale, to->zero, 0, to->dtype);
}

/* v's integers made of those of its node's inputs, where these have the same scale; else 0. */
static cy_val moved(placer *s, uint32_t t, const grid *to) {
  cy_graph *g = s->g;
  const cy_node_info *n = mover_of(s, s->q->tensor[t].value);
  if (!n)
    return 0;
  cy_val *in = CY_NEW_ARRAY(s->p->scratch, cy_val, n->nin + 2);
  for (uint32_t k = 0; k < n->nin; k++) {
    bool data = k < data_inputs(n);
    in[k] = data ? s->ints[s->tensor[n->in[k]] - 1] : n->in[k];
    if (data && (root(s, s->tensor[n->in[k]] - 1) != root(s, t) || !in[k]))
      return 0;
  }
  uint32_t nin = n->nin;
  if (n->op == CY_OP_pad) /* what stands for 0 */
    in[1] = to->fill, nin = 2;
  cy_type types[2] = {*cy_type_of(g, n->out[0])};
  types[0].dtype = to->dtype;
  if (n->nout > 1)
    types[1] = *cy_type_of(g, n->out[1]);
  bool typed = cy_op_of((cy_op)n->op)->typed;
  return cy_build(g, (cy_op)n->op, in, nin, n->attrs, n->nattrs, typed ? types : NULL, typed ? n->nout : 0);
}

/* The layer of node id; NULL: it is none. */
static const cy_quant_layer *layer_at(const placer *s, cy_node id) {
  for (uint32_t i = 0; i < s->q->nlayers; i++)
    if (s->q->layer[i].node == id)
      return &s->q->layer[i];
  return NULL;
}

/* Does n move elements whose integers are moved, too? Who still reads what it makes wants it as it was. */
static bool moves_beside(const placer *s, const cy_node_info *n) {
  return n->nout && s->tensor[n->out[0]] && s->is_moved[s->tensor[n->out[0]] - 1];
}

/* Has every reader of tensor t's value in the graph as it was, but the model's outputs and block results, read the
 * integers' value: layers as it is, as their weights have the balance, others multiplied by that. Layers that are in
 * float for their precision read what was there before, as element-wise ops beside products do, and those in front of
 * logarithms; so does what moves it for such layers. */
static void redirect(placer *s, uint32_t t, cy_val to) {
  cy_graph *g = s->g;
  cy_val from = s->q->tensor[t].value, plain = to;
  bool stream = read_by_product(s, from) || cy_quant_feeds_log(g, &s->uses, from);
  if (s->q->tensor[t].balance) {
    build_behind(s, from);
    plain = cy_build_binary(g, CY_OP_mul, to, factors(s, &s->q->tensor[t], false));
  }
  for (uint32_t i = s->uses.start[from]; i < s->uses.start[from + 1]; i++) {
    cy_node_info *n = s->uses.list[i] ? cy_node_of(g, s->uses.list[i]) : NULL;
    const cy_quant_layer *l = n ? layer_at(s, s->uses.list[i]) : NULL;
    bool other = s->q->float8 && !(l && !l->keep);
    if (n && (other || (stream && cy_op_is_ew((cy_op)n->op)) || moves_beside(s, n)))
      continue;
    for (uint32_t k = 0; n && k < n->nin; k++)
      if (n->in[k] == from && !(l && l->precise))
        n->in[k] = l && !l->keep ? to : plain;
  }
}

/* ints[t] for all tensors, in the order of the graph; nothing reads them yet, so that every mover sees its inputs. */
static void build_tensors(placer *s, cy_val *out_floats) {
  cy_quant *q = s->q;
  uint32_t *order = CY_NEW_ARRAY(s->p->scratch, uint32_t, q->ntensors + 1), n = 0;
  for (uint32_t t = 0; t < q->ntensors; t++)
    if (!def_here(s, q->tensor[t].value))
      order[n++] = t;
  for (uint32_t i = 0; i < s->nnodes; i++)
    for (uint32_t k = 0; k < cy_node_of(s->g, s->nodes[i])->nout; k++) {
      cy_val v = cy_node_of(s->g, s->nodes[i])->out[k];
      if (v && s->tensor[v])
        order[n++] = s->tensor[v] - 1;
    }
  for (uint32_t i = 0; i < n; i++) {
    uint32_t t = order[i];
    const cy_quant_tensor *r = &q->tensor[root(s, t)];
    build_behind(s, q->tensor[t].value);
    grid to = grid_of(s, r);
    s->ints[t] = moved(s, t, &to);
    s->is_moved[t] = s->ints[t] != 0;
    if (!s->ints[t])
      s->ints[t] = quantised(s, &q->tensor[t], &to);
    out_floats[t] = rescale(s->g, CY_OP_dequantize, s->ints[t], to.scale, to.zero, 0, CY_F32);
  }
}

/* The weights of layer l as dequantize(s8 constant), built in front of it. */
static cy_val integer_weights(placer *s, const cy_quant_layer *l) {
  const cy_node_info *n = cy_node_of(s->g, l->node);
  cy_val scale, w = cy_quant_weights(s->p, n, q_tensor(s, l->input)->balance, &scale);
  cy_build_before(s->g, l->node);
  cy_rewrite_origin(s->p, n);
  return rescale(s->g, CY_OP_dequantize, w, scale, 0, cy_quant_weight_axis(s->g, n), CY_F32);
}

static cy_val channel_constant(placer *s, const cy_node_info *n, const float *values, uint32_t count) {
  cy_dim d = cy_dim_const(s->g, count);
  cy_type type = cy_type_make(CY_F32, 1, &d);
  return cy_quant_along_channels(s->g, n,
                                 cy_build_const(s->g, &type,
                                                cy_arena_copy(cy_graph_arena(s->g), values, count * sizeof *values),
                                                count * sizeof *values));
}

/* Adds the mean of what rounding changed back: to the bias behind the layer where that is a constant. */
static void correct_bias(placer *s, const cy_quant_layer *l) {
  cy_graph *g = s->g;
  cy_val y = cy_node_of(g, l->node)->out[0];
  cy_node user = s->uses.start[y + 1] - s->uses.start[y] == 1 ? s->uses.list[s->uses.start[y]] : 0;
  cy_node_info *add = user ? cy_node_of(g, user) : NULL;
  if (!add || add->op != CY_OP_add || add->in[0] != y || !cy_value_is_const(g, add->in[1]))
    return;
  cy_build_before(g, user);
  cy_rewrite_origin(s->p, add);
  add->in[1] =
      cy_build_binary(g, CY_OP_add, add->in[1], channel_constant(s, cy_node_of(g, l->node), l->correct, l->channels));
  cy_pass_count(s->p, "biases corrected", 1);
}

static void apply(placer *s) {
  cy_quant *q = s->q;
  share_scales(s);
  cy_val *floats = CY_NEW_ARRAY(s->p->scratch, cy_val, q->ntensors + 1);
  build_tensors(s, floats);
  for (uint32_t t = 0; t < q->ntensors; t++)
    redirect(s, t, floats[t]);
  for (uint32_t i = 0; i < q->nlayers; i++) {
    if (q->layer[i].keep)
      continue;
    cy_val w = integer_weights(s, &q->layer[i]);
    cy_node_of(s->g, q->layer[i].node)->in[1] = w;
    if (q->layer[i].correct)
      correct_bias(s, &q->layer[i]);
    cy_pass_count(s->p, "layers", 1);
  }
  cy_pass_count(s->p, "tensors", q->ntensors);
}

/* ---- measuring -------------------------------------------------------------------------------------------------- */

/* Layer l once more, quantised by itself; built behind it. */
static cy_val quantised_layer(placer *s, const cy_quant_layer *l) {
  cy_graph *g = s->g;
  const cy_node_info *n = cy_node_of(g, l->node);
  const cy_quant_tensor *x = &s->q->tensor[root(s, s->tensor[l->input] - 1)];
  cy_val w = integer_weights(s, l);
  build_behind(s, n->out[0]);
  grid to = grid_of(s, x);
  cy_val ints = quantised(s, q_tensor(s, l->input), &to);
  cy_val in[2] = {rescale(g, CY_OP_dequantize, ints, to.scale, to.zero, 0, CY_F32), w};
  return cy_build(g, (cy_op)n->op, in, 2, n->attrs, n->nattrs, cy_type_of(g, n->out[0]), 1);
}

static cy_val make_static(void *ctx, const cy_quant_layer *l) { return quantised_layer(ctx, l); }

static void go_behind(void *ctx, cy_val v) { build_behind(ctx, v); }

/* How the output of each layer differs when it is quantised by itself. */
static void measure(placer *s) {
  const cy_port_info *ports;
  uint32_t noutputs = cy_graph_outputs(s->g, &ports); /* of the model itself */
  share_scales(s);
  for (uint32_t i = 0; i < s->q->nlayers; i++) {
    cy_node_info *n = cy_node_of(s->g, s->q->layer[i].node);
    if (s->q->layer[i].keep)
      continue;
    cy_val from = n->out[0], y = quantised_layer(s, &s->q->layer[i]);
    uint32_t nends;
    cy_build_in(s->g, 1);
    const cy_quant_end *ends = cy_quant_ends(s->p, s->nodes, s->nnodes, noutputs, from, y, &nends);
    cy_quant_compare(s->g, s->q, i, y, ends, nends);
  }
}

/* Each layer quantised, with its bias corrected, when its number is chosen. */
static void single(placer *s) {
  cy_quant_singles made;
  share_scales(s);
  cy_quant_singles_start(s->p, &made, s->q->nlayers);
  for (uint32_t i = 0; i < s->q->nlayers; i++) {
    const cy_quant_layer *l = &s->q->layer[i];
    if (l->keep)
      continue;
    cy_val y = quantised_layer(s, l);
    if (l->correct)
      y = cy_build_binary(s->g, CY_OP_add, y, channel_constant(s, cy_node_of(s->g, l->node), l->correct, l->channels));
    cy_quant_single(s->p, &made, i, l->node, &y, 1);
  }
  cy_quant_singles_end(s->p, &made);
}

/* ---- several precisions ------------------------------------------------------------------------------------------ */

static void offer(placer *s) {
  const cy_quant_maker m = {make_static, go_behind, s};
  share_scales(s);
  cy_quant_offer(s->p, s->q, &m, s->nodes, s->nnodes);
}

/* The layers that the plan has in integers of fixed ranges. Those that gain nothing so, beside what else they may be, become
 * that. */
static void follow_plan(placer *s) {
  cy_quant *q = s->q;
  for (uint32_t i = 0; i < q->nlayers; i++) {
    cy_quant_layer *l = &q->layer[i];
    l->precise = !l->keep && q->plan[l->node] != CY_PRECISION_STATIC;
    if (l->precise)
      l->keep = "as planned";
  }
  keep_slow(s);
  for (uint32_t i = 0; i < q->nlayers; i++) {
    const cy_quant_layer *l = &q->layer[i];
    if (l->keep && q->plan[l->node] == CY_PRECISION_STATIC)
      q->plan[l->node] = q->fallback[l->node];
  }
}

/* ---- the pass --------------------------------------------------------------------------------------------------- */

static void observe(placer *s) {
  for (uint32_t t = 0; t < s->q->ntensors; t++)
    s->q->tensor[t].output = cy_quant_add_output(s->g, "tensor", t, s->q->tensor[t].value);
}

static void start(placer *s) {
  cy_graph *g = s->g;
  const cy_block_info *block = cy_block_of(g, 1);
  s->nnodes = block->nnodes;
  s->nodes = CY_NEW_ARRAY(s->p->scratch, cy_node, s->nnodes + 1);
  if (s->nnodes)
    memcpy(s->nodes, block->nodes, s->nnodes * sizeof *s->nodes);
  s->uses = cy_graph_uses(g, s->p->scratch);
  s->nvalues = cy_value_count(g);
  s->pos = CY_NEW_ARRAY(s->p->scratch, uint32_t, cy_node_count(g) + 1);
  s->inside = CY_NEW_ARRAY(s->p->scratch, uint32_t, cy_node_count(g) + 1);
  s->tensor = CY_NEW_ARRAY(s->p->scratch, uint32_t, s->nvalues + 1);
  s->group = CY_NEW_ARRAY(s->p->scratch, uint32_t, s->nvalues + 1);
  s->ints = CY_NEW_ARRAY(s->p->scratch, cy_val, s->nvalues + 1);
  s->is_moved = CY_NEW_ARRAY(s->p->scratch, bool, s->nvalues + 1);
  s->sizes = cy_quant_sizes(g, s->p->scratch);
  for (uint32_t i = 0; i < s->nnodes; i++)
    s->pos[s->nodes[i]] = i + 1;
}

/* requires: swept, folded   establishes: swept   breaks: unique, folded, placed, fused */
int cy_pass_quantise(cy_pass *p) {
  cy_quant *q = p->options->quant;
  if (!q || cy_quant_is_half(q->mode))
    return 0;
  bool planned = q->mode == CY_QUANT_PLAN, offers = q->mode == CY_QUANT_OFFER;
  if (!cy_quant_is_static(q->mode) && !planned && !offers) {
    cy_quant_dynamic(p, q, 1);
    cy_build_in(p->g, 1);
    cy_graph_sweep(p->g);
    return 0;
  }
  placer s = {.p = p, .g = p->g, .q = q};
  start(&s);
  if (q->mode == CY_QUANT_OBSERVE)
    list_layers(&s);
  bool timed = q->caps && !q->float8; /* no target knows times of floats of 8 bits */
  if ((q->mode == CY_QUANT_OBSERVE || q->mode == CY_QUANT_STATIC) && timed && !q->smallest)
    keep_slow(&s);
  if (planned)
    follow_plan(&s);
  list_tensors(&s);
  if (q->mode == CY_QUANT_OBSERVE)
    observe(&s);
  else if (q->mode == CY_QUANT_MEASURE)
    measure(&s);
  else if (q->mode == CY_QUANT_SINGLE)
    single(&s);
  else if (offers)
    offer(&s);
  else
    apply(&s);
  if (q->mode == CY_QUANT_STATIC) /* bodies of loops and branches: their tensors can't be observed from outside */
    cy_quant_dynamic(p, q, 2);
  if (planned)
    cy_quant_dynamic_planned(p, q);
  cy_build_in(p->g, 1);
  cy_graph_sweep(p->g);
  return 0;
}
