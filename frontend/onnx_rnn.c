/* onnx_rnn.c - RNN, GRU, LSTM and com.microsoft's DynamicQuantizeLSTM.
 *
 * The input part X * W + b of all time steps is one matrix product; what is left, one `recurrent` per direction, walks
 * the time axis. Gates stay in ONNX's order (LSTM i o f c, GRU z r h). Recurrent biases are added to the input part,
 * except for a GRU with linear_before_reset, where the reset gate multiplies them.
 *
 * With quantised weights X is rounded as a whole and multiplied in integers, as DynamicQuantizeMatMul does. The
 * recurrent weights stay integers; ONNX Runtime rounds the state to 8 bits in every step (by other ranges for other
 * numbers of threads), `recurrent` to 16 or not at all.
 */
#include "frontend/import_int.h"

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

static bool read_activations(rnn *r) {
  static const int usual[3][MAX_ACTS] = {[CY_CELL_RNN] = {CY_ACT_TANH},
                                         [CY_CELL_GRU] = {CY_ACT_SIGMOID, CY_ACT_TANH},
                                         [CY_CELL_LSTM] = {CY_ACT_SIGMOID, CY_ACT_TANH, CY_ACT_TANH}};
  cy_importer *im = r->im;
  uint32_t found, na, nb, a = 0, b = 0;
  const char *const *names = cy_onnx_strings(im, r->n, "activations", &found);
  const double *alphas = cy_onnx_floats(im, r->n, "activation_alpha", &na),
               *betas = cy_onnx_floats(im, r->n, "activation_beta", &nb);
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
static bool join(const rnn *r, const cy_val *y, uint32_t k) {
  cy_importer *im = r->im;
  cy_val v[2];
  if (!cy_onnx_wants(r->n, k))
    return true;
  int axis = k == 0 ? 1 : 0;
  for (int d = 0; d < r->directions; d++)
    if (!(v[d] = cy_build_unsqueeze(im->g, cy_build_output(im->g, y[d], k), axis)))
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
  cy_val x = r.layout ? cy_onnx_move_axis(im, n->in[0], 0, 1) : n->in[0], y[2];
  cy_dim rows[2] = {cy_dim_mul(im->g, r.time, r.batch), cy_onnx_type(im, n->in[0])->dim[2]};
  x = cy_build_reshape(im->g, x, rows, 2);
  if (quantised && !cy_onnx_round(im, x, &r.xq))
    return false;
  for (int d = 0; d < r.directions; d++)
    if (!(y[d] = direction(&r, x, d)))
      return false;
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
