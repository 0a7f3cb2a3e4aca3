/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_rnn.c - RNN, GRU, LSTM and com.microsoft's DynamicQuantizeLSTM.
 *
 * The input part X * W + b of all time steps is one matrix product; what is left, one `recurrent` per direction, walks
 * the time axis. Gates stay in ONNX's order (LSTM i o f c, GRU z r h). Recurrent biases are added to the input part,
 * except for a GRU with linear_before_reset, where the reset gate multiplies them.
 *
 * With quantised weights X is rounded as a whole and multiplied in integers, as DynamicQuantizeMatMul does. The
 * recurrent weights stay integers; ONNX Runtime rounds the state to 8 bits in every step (by other ranges for other
 * numbers of threads), `recurrent` to 16 or not at all. With --strict the state is rounded as ONNX Runtime does it on one
 * thread, over all sequences of the batch, and the walk is a `loop` node of products and element-wise ops.
 */
#include "frontend/import_int.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#define MAX_ACTS 3

/* In the order of cy_activation: defaults, and whether the function takes alpha and beta. */
static const struct activation {
  const char *name;
  bool alpha, beta;
  double default_alpha, default_beta;
} activations[] = {
    {"Sigmoid", false, false, 0, 0},  {"Tanh", false, false, 0, 0},          {"Relu", false, false, 0, 0},
    {"Affine", true, true, 1, 0},     {"LeakyRelu", true, false, 0.01, 0},   {"ThresholdedRelu", true, false, 1, 0},
    {"ScaledTanh", true, true, 1, 1}, {"HardSigmoid", true, true, 0.2, 0.5}, {"Elu", true, false, 1, 0},
    {"Softsign", false, false, 0, 0}, {"Softplus", false, false, 0, 0},
};

typedef struct rnn {
  cy_importer *im;
  const cy_onnx_node *n;
  int cell, gates, nacts, directions;
  bool layout, backward_only, linear_before_reset;
  bool quantised;     /* W and R are integers, with gates last */
  cy_onnx_rounded xq; /* then X */
  cy_dim time, batch;
  int64_t hidden;
  int64_t acts[2 * MAX_ACTS];
  double alphas[2 * MAX_ACTS], betas[2 * MAX_ACTS];
} rnn;

/* RNN's default, which is two names whatever the direction, written out: what ONNX Runtime makes of a node without them. */
static bool is_default(const rnn *r, const char *const *names, uint32_t n) {
  return names && n == 2 && r->cell == CY_CELL_RNN && r->directions == 1 && !strcasecmp(names[0], "Tanh") &&
         !strcasecmp(names[1], "Tanh");
}

static bool read_activations(rnn *r) {
  static const int usual[3][MAX_ACTS] = {[CY_CELL_RNN] = {CY_ACT_TANH},
                                         [CY_CELL_GRU] = {CY_ACT_SIGMOID, CY_ACT_TANH},
                                         [CY_CELL_LSTM] = {CY_ACT_SIGMOID, CY_ACT_TANH, CY_ACT_TANH}};
  cy_importer *im = r->im;
  uint32_t found, na, nb, a = 0, b = 0;
  const char *const *names = cy_onnx_strings(im, r->n, "activations", &found);
  const double *alphas = cy_onnx_floats(im, r->n, "activation_alpha", &na),
               *betas = cy_onnx_floats(im, r->n, "activation_beta", &nb);
  if (is_default(r, names, found))
    names = NULL;
  if (names && (int)found != r->nacts * r->directions)
    return cy_build_error(im->g, "attribute 'activations'", "expected %d names, found %u", r->nacts * r->directions,
                          found);
  for (int i = 0; i < r->nacts * r->directions; i++) {
    int k = usual[r->cell][i % r->nacts];
    if (names) {
      for (k = 0; k <= CY_ACT_SOFTPLUS && strcasecmp(activations[k].name, names[i]) != 0; k++)
        ;
      if (k > CY_ACT_SOFTPLUS)
        return cy_build_error(im->g, "attribute 'activations'", "unknown activation '%s'", names[i]);
    }
    r->acts[i] = k;
    r->alphas[i] = activations[k].alpha && a < na ? alphas[a++] : activations[k].default_alpha;
    r->betas[i] = activations[k].beta && b < nb ? betas[b++] : activations[k].default_beta;
  }
  return true;
}

/* One direction of a parameter that has them on axis 0, without that axis. */
static cy_val part(const rnn *r, uint32_t k, int d) {
  cy_importer *im = r->im;
  cy_val v = r->n->in[k];
  if (!v)
    return 0;
  cy_val one = cy_build_slice_axis(im->g, v, 0, cy_dim_const(im->g, d), cy_dim_const(im->g, 1));
  return one ? cy_build_squeeze(im->g, one, 0) : 0;
}

/* Initial states are [directions, batch, hidden], with layout 1 [batch, directions, hidden]. */
static cy_val state(const rnn *r, uint32_t k, int d) {
  cy_importer *im = r->im;
  cy_val v = r->n->in[k];
  if (!v)
    return 0;
  int axis = r->layout ? 1 : 0;
  cy_val one = cy_build_slice_axis(im->g, v, axis, cy_dim_const(im->g, d), cy_dim_const(im->g, 1));
  return one ? cy_build_squeeze(im->g, one, axis) : 0;
}

static cy_val slice_range(const rnn *r, cy_val v, int64_t from, int64_t size) {
  return cy_build_slice_axis(r->im->g, v, 0, cy_dim_const(r->im->g, from), cy_dim_const(r->im->g, size));
}

/* x [time * batch, in] times W of direction d. */
static cy_val input_product(const rnn *r, cy_val x, int d) {
  cy_importer *im = r->im;
  const int64_t swap[2] = {1, 0};
  cy_val w = part(r, 1, d);
  if (!w)
    return 0;
  if (r->quantised) {
    cy_val zero = part(r, 9, d), scale = part(r, 8, d);
    return cy_onnx_rounded_product(im, &r->xq, w, scale, zero);
  }
  return cy_build_matmul(im->g, x, cy_build_transpose(im->g, w, swap), cy_onnx_type(im, x)->dtype);
}

/* R of direction d, [gates * hidden, hidden]; with its scale and zero point, or 0. */
static cy_val recurrent_weights(const rnn *r, int d, cy_val *out_scale, cy_val *out_zero) {
  cy_importer *im = r->im;
  const int64_t swap[2] = {1, 0};
  cy_val w = part(r, 2, d);
  if (!r->quantised || !w)
    return w;
  *out_scale = part(r, 10, d);
  *out_zero = part(r, 11, d);
  return cy_onnx_check_parameters(im, w, out_scale, out_zero, 1) ? cy_build_transpose(im->g, w, swap) : 0;
}

/* The input part: the product plus biases; *out_rb is what stays for the recurrent part. */
static cy_val input_part(const rnn *r, cy_val x, int d, cy_val *out_rb) {
  cy_importer *im = r->im;
  int64_t width = r->gates * r->hidden;
  cy_val b = part(r, 3, d), y = input_product(r, x, d);
  *out_rb = 0;
  if (!y)
    return 0;
  if (b) {
    cy_val wb = slice_range(r, b, 0, width), rb = slice_range(r, b, width, width);
    y = ADD(y, r->linear_before_reset ? wb : ADD(wb, rb));
    *out_rb = r->linear_before_reset ? rb : 0;
  }
  cy_dim dims[3] = {r->time, r->batch, cy_dim_const(im->g, width)};
  return cy_build_reshape(im->g, y, dims, 3);
}

/* ---- the walk step by step ---- */

/* One direction of an LSTM whose state is rounded in every step. */
typedef struct steps {
  const rnn *r;
  int d;
  cy_val x;                     /* [time, batch, gates * hidden], without the bias */
  cy_val w, scale, zero;        /* R */
  cy_val bias;                  /* [gates * hidden], 0: none */
  cy_val peepholes[3];          /* of i, o and f; 0: none */
  cy_val lengths;               /* i64 [batch, 1], 0: all are as long */
  cy_val h0, c0;
} steps;

enum { GATE_I, GATE_O, GATE_F, GATE_C, GATES };

static cy_val number(cy_importer *im, double v) { return cy_build_scalar(im->g, CY_F32, v); }

/* Activation k of the direction (0: of gates, 1: of what enters the cell, 2: of the cell) of x. */
static cy_val activated(const steps *s, int k, cy_val x) {
  cy_importer *im = s->r->im;
  int at = s->d * s->r->nacts + k;
  cy_val a = number(im, s->r->alphas[at]), b = number(im, s->r->betas[at]), zero = number(im, 0), one = number(im, 1);
  cy_val below = BINARY(lt, x, zero);
  switch ((enum cy_activation)s->r->acts[at]) {
  case CY_ACT_SIGMOID: return UNARY(sigmoid, x);
  case CY_ACT_TANH: return UNARY(tanh, x);
  case CY_ACT_RELU: return MAX(x, zero);
  case CY_ACT_AFFINE: return ADD(MUL(a, x), b);
  case CY_ACT_LEAKY_RELU: return SELECT(below, MUL(a, x), x);
  case CY_ACT_THRESHOLDED_RELU: return SELECT(BINARY(gt, x, a), x, zero);
  case CY_ACT_SCALED_TANH: return MUL(a, UNARY(tanh, MUL(b, x)));
  case CY_ACT_HARD_SIGMOID: return MAX(zero, MIN(one, ADD(MUL(a, x), b)));
  case CY_ACT_ELU: return SELECT(below, MUL(a, SUB(UNARY(exp, MIN(x, zero)), one)), x);
  case CY_ACT_SOFTSIGN: return DIV(x, ADD(one, UNARY(abs, x)));
  case CY_ACT_SOFTPLUS: return cy_onnx_softplus(im, x);
  }
  return 0;
}

/* A gate of sums [batch, gates * hidden], with its peephole's view of the cell, before its activation. */
static cy_val gate(const steps *s, cy_val sums, int k, cy_val cell) {
  cy_importer *im = s->r->im;
  cy_dim hidden = cy_dim_const(im->g, s->r->hidden);
  cy_val v = cy_build_slice_axis(im->g, sums, 1, cy_dim_muli(im->g, hidden, k), hidden);
  double clip = cy_onnx_float(im, s->r->n, "clip", 0);
  if (k < GATE_C && s->peepholes[k])
    v = ADD(v, MUL(s->peepholes[k], cell));
  if (clip > 0) {
    cy_val low = number(im, -clip), high = number(im, clip);
    v = MIN(MAX(v, low), high);
  }
  return v;
}

/* The state and the cell behind step t, [batch, hidden], and what the step puts out. */
static bool step(const steps *s, cy_val t, cy_val *h, cy_val *c, cy_val *out_y) {
  cy_importer *im = s->r->im;
  cy_onnx_rounded q;
  cy_val runs = s->lengths ? BINARY(lt, t, s->lengths) : 0, none = number(im, 0);
  if (!cy_onnx_round(im, runs ? SELECT(runs, *h, none) : *h, &q)) /* those that have ended have no say in the range */
    return false;
  cy_val product = cy_onnx_rounded_product(im, &q, s->w, s->scale, s->zero);
  cy_val sums = ADD(cy_build_gather(im->g, s->x, t, 0), product);
  if (s->bias)
    sums = ADD(sums, s->bias);
  if (!sums)
    return false;
  cy_val i = activated(s, 0, gate(s, sums, GATE_I, *c)), f = 0, one = number(im, 1);
  f = cy_onnx_int(im, s->r->n, "input_forget", 0) ? SUB(one, i) : activated(s, 0, gate(s, sums, GATE_F, *c));
  cy_val enters = MUL(i, activated(s, 1, gate(s, sums, GATE_C, *c)));
  cy_val cell = ADD(MUL(f, *c), enters);
  cy_val o = activated(s, 0, gate(s, sums, GATE_O, cell));
  cy_val state = MUL(o, activated(s, 2, cell));
  *out_y = runs ? SELECT(runs, state, none) : state;
  *h = runs ? SELECT(runs, state, *h) : state;
  *c = runs ? SELECT(runs, cell, *c) : cell;
  return *out_y && *h && *c;
}

/* y reversed along the time. */
static cy_val reversed(const rnn *r, cy_val y) {
  cy_importer *im = r->im;
  cy_val last = cy_build_dim_scalar(im->g, cy_dim_addi(im->g, r->time, -1));
  cy_val at = SUB(last, cy_build_iota(im->g, CY_I64, &r->time, 1, 0));
  return at ? cy_build_gather(im->g, y, at, 0) : 0;
}

/* Y [time, batch, hidden], Y_h and Y_c. */
static bool walk(const steps *s, cy_val out[3]) {
  enum { AT, GOES_ON, STATE, CELL, PARAMS };
  const rnn *r = s->r;
  cy_importer *im = r->im;
  cy_graph *g = im->g;
  bool back = r->backward_only || s->d == 1;
  cy_block here = cy_build_block(g), body = cy_block_create(g, here);
  cy_dim d[3] = {r->time, r->batch, cy_dim_const(g, r->hidden)};
  const cy_type state = cy_type_make(CY_F32, 2, d + 1);
  cy_type types[PARAMS + 1] = {cy_type_make(CY_I64, 0, NULL), cy_type_make(CY_BOOL, 0, NULL), state, state,
                               cy_type_make(CY_F32, 3, d)};
  cy_val in[PARAMS] = {cy_build_dim_scalar(g, r->time), 0, s->h0, s->c0}, params[PARAMS], results[PARAMS];
  for (int i = 0; i < PARAMS; i++)
    params[i] = cy_block_add_param(g, body, &types[i], NULL);
  cy_build_in(g, body);
  results[0] = cy_build_scalar_int(g, CY_BOOL, 1);
  cy_val t = params[AT];
  if (back)
    t = SUB(cy_build_dim_scalar(g, cy_dim_addi(g, r->time, -1)), t);
  results[1] = params[STATE];
  results[2] = params[CELL];
  bool ok = t && step(s, t, &results[1], &results[2], &results[3]);
  cy_build_in(g, here);
  if (!ok)
    return false;
  cy_block_set_results(g, body, results, PARAMS);
  cy_attr a = cy_attr_block(CY_ATTR_body, body);
  cy_val first = cy_build(g, CY_OP_loop, in, PARAMS, &a, 1, &types[STATE], 3);
  for (uint32_t k = 0; first && k < 3; k++)
    out[k] = cy_build_output(g, first, (k + 2) % 3); /* the last one is what the steps put out */
  if (first && back)
    out[0] = reversed(r, out[0]);
  return first && out[0];
}

static cy_val or_zeros(const rnn *r, cy_val v) {
  cy_importer *im = r->im;
  cy_dim d[2] = {r->batch, cy_dim_const(im->g, r->hidden)};
  return v ? v : cy_onnx_fill(im, number(im, 0), d, 2);
}

static bool strict_direction(const rnn *r, cy_val x, int d, cy_val out[3]) {
  cy_importer *im = r->im;
  int64_t width = r->gates * r->hidden;
  cy_dim dims[3] = {r->time, r->batch, cy_dim_const(im->g, width)}, column[2] = {r->batch, cy_dim_const(im->g, 1)};
  cy_val b = part(r, 3, d), p = part(r, 7, d);
  steps s = {.r = r, .d = d, .w = part(r, 2, d), .scale = part(r, 10, d), .zero = part(r, 11, d)};
  cy_val product = input_product(r, x, d);
  s.x = product ? cy_build_reshape(im->g, product, dims, 3) : 0;
  s.h0 = or_zeros(r, state(r, 5, d));
  s.c0 = or_zeros(r, state(r, 6, d));
  if (b) {
    cy_val of_input = slice_range(r, b, 0, width), of_state = slice_range(r, b, width, width);
    s.bias = ADD(of_input, of_state);
  }
  for (int k = 0; p && k < 3; k++)
    s.peepholes[k] = slice_range(r, p, k * r->hidden, r->hidden);
  if (r->n->in[4])
    s.lengths = cy_build_reshape(im->g, CAST(r->n->in[4], CY_I64), column, 2);
  return s.x && s.w && s.h0 && s.c0 && walk(&s, out);
}

static cy_val direction(const rnn *r, cy_val x, int d) {
  cy_importer *im = r->im;
  const cy_onnx_node *n = r->n;
  cy_val in[9] = {0};
  in[0] = input_part(r, x, d, &in[2]);
  in[1] = recurrent_weights(r, d, &in[7], &in[8]);
  if (!in[0] || !in[1])
    return 0;
  in[3] = state(r, 5, d);
  in[4] = r->cell == CY_CELL_LSTM ? state(r, 6, d) : 0;
  in[5] = r->cell == CY_CELL_LSTM ? part(r, 7, d) : 0;
  in[6] = n->in[4];
  uint32_t at = (uint32_t)(d * r->nacts), na = (uint32_t)r->nacts;
  cy_attr a[9] = {cy_attr_int(CY_ATTR_cell, r->cell),
                  cy_attr_int(CY_ATTR_hidden, r->hidden),
                  cy_attr_ints(CY_ATTR_acts, r->acts + at, na),
                  cy_attr_floats(CY_ATTR_alphas, r->alphas + at, na),
                  cy_attr_floats(CY_ATTR_betas, r->betas + at, na),
                  cy_attr_float(CY_ATTR_clip, cy_onnx_float(im, n, "clip", 0)),
                  cy_attr_int(CY_ATTR_reverse, r->backward_only || d == 1),
                  cy_attr_int(CY_ATTR_linear_before_reset, r->linear_before_reset),
                  cy_attr_int(CY_ATTR_input_forget, cy_onnx_int(im, n, "input_forget", 0) != 0)};
  return cy_build(im->g, CY_OP_recurrent, in, in[7] ? 9 : 7, a, 9, NULL, 3);
}

static bool read_shape(rnn *r) {
  cy_importer *im = r->im;
  const cy_onnx_node *n = r->n;
  const cy_type *tx = cy_onnx_type(im, n->in[0]), *tw = cy_onnx_type(im, n->in[1]), *tr = cy_onnx_type(im, n->in[2]);
  int way = cy_onnx_word(im, n, "direction", "forward", "forward|reverse|bidirectional");
  if (way < 0)
    return false;
  r->directions = way == 2 ? 2 : 1;
  r->backward_only = way == 1;
  r->layout = cy_onnx_int(im, n, "layout", 0) != 0;
  int gates = r->quantised ? 2 : 1, inner = 3 - gates;
  if (tx->rank != 3 || tw->rank != 3 || tr->rank != 3 || !cy_dim_is_const(im->g, tr->dim[inner], &r->hidden) ||
      r->hidden < 1 || r->hidden >= 1 << 24 || cy_onnx_int(im, n, "hidden_size", r->hidden) != r->hidden ||
      !cy_dim_is(im->g, tr->dim[gates], r->gates * r->hidden) ||
      !cy_dim_is(im->g, tw->dim[gates], r->gates * r->hidden) || !cy_dim_is(im->g, tr->dim[0], r->directions) ||
      !cy_dim_is(im->g, tw->dim[0], r->directions))
    return cy_build_error(
        im->g, NULL,
        "X %s, W %s and R %s do not fit together: with %d gates and %d directions, W is [directions, %s] and "
        "R [directions, %s]",
        cy_type_text(im->g, tx), cy_type_text(im->g, tw), cy_type_text(im->g, tr), r->gates, r->directions,
        r->quantised ? "input, gates * hidden" : "gates * hidden, input",
        r->quantised ? "hidden, gates * hidden" : "gates * hidden, hidden");
  r->time = tx->dim[r->layout ? 1 : 0];
  r->batch = tx->dim[r->layout ? 0 : 1];
  return true;
}

/* Output k of every direction, with the directions as axis `axis`, then moved to where layout wants them. */
static bool join(const rnn *r, cy_val y[2][3], uint32_t k) {
  cy_importer *im = r->im;
  cy_val v[2];
  if (!cy_onnx_wants(r->n, k))
    return true;
  int axis = k == 0 ? 1 : 0;
  for (int d = 0; d < r->directions; d++)
    if (!(v[d] = cy_build_unsqueeze(im->g, y[d][k], axis)))
      return false;
  cy_val all = r->directions == 1 ? v[0] : cy_build_concat(im->g, v, 2, axis);
  if (r->layout && k == 0) {
    const int64_t perm[4] = {2, 0, 1, 3};
    all = cy_build_transpose(im->g, all, perm);
  } else if (r->layout) {
    all = cy_onnx_move_axis(im, all, 0, 1);
  }
  return cy_importer_set(im, r->n, k, all);
}

static bool import_cell(cy_importer *im, const cy_onnx_node *n, int cell, bool quantised) {
  static const int gates[3] = {[CY_CELL_RNN] = 1, [CY_CELL_GRU] = 3, [CY_CELL_LSTM] = 4};
  static const int nacts[3] = {[CY_CELL_RNN] = 1, [CY_CELL_GRU] = 2, [CY_CELL_LSTM] = 3};
  rnn r = {.im = im, .n = n, .cell = cell, .gates = gates[cell], .nacts = nacts[cell], .quantised = quantised};
  if (!read_shape(&r) || !read_activations(&r) || (n->in[4] && !cy_onnx_check_lengths(im, n->in[4], r.time)))
    return false;
  r.linear_before_reset = r.cell == CY_CELL_GRU && cy_onnx_int(im, n, "linear_before_reset", 0) != 0;
  cy_val x = r.layout ? cy_onnx_move_axis(im, n->in[0], 0, 1) : n->in[0], y[2][3];
  cy_dim rows[2] = {cy_dim_mul(im->g, r.time, r.batch), cy_onnx_type(im, n->in[0])->dim[2]};
  x = cy_build_reshape(im->g, x, rows, 2);
  if (quantised && !cy_onnx_round(im, x, &r.xq))
    return false;
  for (int d = 0; d < r.directions; d++) {
    if (quantised && im->options->strict) {
      if (!strict_direction(&r, x, d, y[d]))
        return false;
      continue;
    }
    cy_val first = direction(&r, x, d);
    if (!first)
      return false;
    for (uint32_t k = 0; k < 3; k++)
      y[d][k] = cy_build_output(im->g, first, k);
  }
  return join(&r, y, 0) && join(&r, y, 1) && (r.cell != CY_CELL_LSTM || join(&r, y, 2));
}

/* The argument is the cell. */
IMPORT(rnn) { return import_cell(im, n, n->arg, false); }

/* LSTM's inputs, then scales and zero points of W and R, per direction or per column. */
IMPORT(dynamic_quantize_lstm) {
  if (!n->in[8] || !n->in[10])
    return cy_build_error(im->g, n->in[8] ? "input 'R_scale'" : "input 'W_scale'", "expected a scale, found nothing");
  return import_cell(im, n, CY_CELL_LSTM, true);
}
