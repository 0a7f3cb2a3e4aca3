/* lower_rnn.c - the recurrent cells: one kernel that walks the sequence, or, where R is large, a kernel per step.
 *
 * The products with the inputs were made outside, for all steps at once (input 0 holds X * W + b). What is left per
 * step is R * h, the gates, and the new state. R is read in panels of neighbouring gates.
 * Walk: a task is a batch element, all its state in per-worker scratch.
 * Steps: a host loop launches a kernel per step, a task being a panel of units of a batch element with all gates of
 * these, so that one element keeps several threads busy, each with its own part of R in its cache; h alternates between
 * two buffers.
 * Product: of several batch elements R is multiplied with all states at once, by the target's generator for products; a
 * second kernel of the step makes states of the gates.
 * A constant R of 8-bit integers stays what it is. The state is then rounded to 16 bits of its largest magnitude in
 * every step, two units in an i32, and R lies in pairs, too: a product and a sum of two weights is one instruction. Sums
 * are exact: the state takes fewer bits where 32 might not hold them. Other R of integers are widened as they are read.
 * Formulas and gate order: ONNX, RNN-14, GRU-14, LSTM-14.
 */
#include "lower_int.h"

#include <stdlib.h>
#include <string.h>

enum { IN_X, IN_R, IN_RB, IN_H0, IN_C0, IN_PEEPHOLE, IN_LENS, IN_SCALE, IN_ZERO };

typedef struct rnn {
  cy_kb b;
  const cy_node_info *n;
  int cell;
  int gates;
  cy_dim hidden, wide; /* h, gates * h */
  cy_dtype dtype;
  cy_expr batch, time;       /* task; position in the sequence */
  cy_expr live;              /* is this step inside the element's sequence? 0: always */
  cy_karg h, c, gate;        /* scratch rows; h and c of a walk only */
  bool steps;                /* kernels per step: */
  bool product;              /* one of them is a product, which leaves its results in: */
  cy_place gates_at;         /* [batch, gates * h] */
  cy_expr block;             /* its panel of units */
  cy_place h_old, h_new, c_at; /* [batch, hidden] */
  cy_dim panel;              /* gates that neighbour each other in `weights`: all, or few */
  cy_place weights;          /* R as [gates * h / panel, h, panel]; of pairs, h / 2 of them */
  bool pairs;                /* R is of integers, two in an i16: */
  int64_t top, shift;        /* the state's largest integer; what was subtracted from R's */
  bool has_zero;             /* R has zero points that are not `shift` */
  cy_karg rounded;           /* [h / 2]: units i and h / 2 + i of the state in an i32 */
  cy_local step_of, total;   /* what 1 of these integers stands for, and the sum of all */
} rnn;

static cy_expr bin(rnn *r, cy_op op, cy_expr x, cy_expr y) { return cy_x_bin(r->b.k, op, x, y); }
static cy_expr number(rnn *r, double v) { return cy_x_const(r->b.k, r->dtype, v); }
static cy_expr load_at(rnn *r, cy_karg arg, cy_expr i) { return cy_x_load(r->b.k, arg, i); }
static cy_val input(const rnn *r, uint32_t i) { return i < r->n->nin ? r->n->in[i] : 0; }

/* A constant R while compiling, as panels of neighbouring gates: [gates * h / panel, h, panel]. Every step reads all of
 * it, and streams run fast only where they are dense. One panel of gates * h columns is R transposed. */
static void write_panels(const cy_graph *g, cy_val v, const void *form, uint32_t piece, void *out) {
  (void)piece;
  const int64_t *dims = form, wide = dims[0], hidden = dims[1], panel = dims[2];
  const cy_data_f32 *in = cy_value_of(g, v)->data.bytes;
  float *to = out;
  for (int64_t j = 0; j < wide; j++)
    for (int64_t i = 0; i < hidden; i++)
      to[(j / panel * hidden + i) * panel + j % panel] = in[j * hidden + i];
}

/* The widest panel that divides what one pass of gate_products covers; 0: none. */
static int64_t panel_width(const rnn *r, int64_t hidden) {
  int64_t pass = r->cell == CY_CELL_LSTM ? 4 * hidden : hidden;
  for (int64_t panel = 64; panel >= 16; panel /= 2)
    if (pass % panel == 0)
      return panel;
  return 0;
}

/* The same of 8-bit integers, columns i and h / 2 + i being neighbours. */
static void write_pairs(const cy_graph *g, cy_val v, const void *form, uint32_t piece, void *out) {
  (void)piece;
  const int64_t *dims = form, wide = dims[0], half = dims[1] / 2, panel = dims[2];
  const uint8_t *in = cy_value_of(g, v)->data.bytes, flip = (uint8_t)dims[3];
  uint8_t *to = out;
  for (int64_t j = 0; j < wide; j++)
    for (int64_t i = 0; i < 2 * half; i++)
      to[((j / panel * half + i % half) * panel + j % panel) * 2 + i / half] = in[j * 2 * half + i] ^ flip;
}

/* The largest magnitude of a sum over k of R[j, k] - zero[j]. */
static int64_t largest_sum(const cy_graph *g, const rnn *r, const int64_t *dims) {
  const cy_value *v = cy_value_of(g, r->n->in[IN_R]), *zero = input(r, IN_ZERO) ? cy_value_of(g, input(r, IN_ZERO)) : NULL;
  cy_dtype t = (cy_dtype)v->type.dtype;
  int64_t most = 1;
  for (int64_t j = 0; j < dims[0]; j++) {
    int64_t sum = 0, z = zero ? cy_scalar_load(zero->data.bytes, t, zero->type.rank ? (uint64_t)j : 0).i : 0;
    for (int64_t i = 0; i < dims[1]; i++)
      sum += llabs(cy_scalar_load(v->data.bytes, t, (uint64_t)(j * dims[1] + i)).i - z);
    most = sum > most ? sum : most;
  }
  return most;
}

/* Is R, of which dims are known, one of pairs? */
static void choose_pairs(rnn *r, const int64_t *dims) {
  cy_graph *g = r->b.l->g;
  cy_dtype t = (cy_dtype)cy_value_of(g, r->n->in[IN_R])->type.dtype;
  cy_val zero = input(r, IN_ZERO);
  double all = 0;
  if ((t != CY_I8 && t != CY_U8) || dims[1] % 2 || (zero && !cy_value_of(g, zero)->data.bytes))
    return;
  r->pairs = true;
  r->shift = t == CY_U8 ? 128 : 0;
  r->has_zero = zero ? !cy_value_is_splat(g, zero, &all) || all != (double)r->shift : r->shift != 0;
  r->top = INT32_MAX / largest_sum(g, r, dims);
  r->top = r->top < INT16_MAX ? r->top : INT16_MAX;
}

static void place_weights(rnn *r) {
  cy_lowering *l = r->b.l;
  cy_graph *g = l->g;
  cy_val v = r->n->in[IN_R];
  const cy_type *t = cy_lower_type(l, v);
  cy_place p = *cy_lower_place(l, v);
  r->weights = p;
  r->weights.stride[0] = cy_dim_const(g, 0);
  r->weights.stride[1] = p.stride[1];
  r->weights.stride[2] = p.stride[0];
  r->panel = r->wide;
  int64_t *dims = CY_NEW_ARRAY(cy_graph_arena(g), int64_t, 4);
  bool fixed = cy_dim_is_const(g, t->dim[0], &dims[0]) && cy_dim_is_const(g, t->dim[1], &dims[1]);
  const cy_value *val = cy_value_of(g, v);
  if (!val->data.bytes || !fixed)
    return;
  choose_pairs(r, dims);
  if (!r->pairs && t->dtype != CY_F32)
    return;
  int64_t panel = panel_width(r, dims[1]), rows = r->pairs ? dims[1] / 2 : dims[1];
  dims[2] = panel ? panel : dims[0];
  dims[3] = r->shift;
  uint32_t c = cy_program_add_constant(l->p, v, val->data.size,
                                       r->pairs ? "pairs" : panel ? "panels" : "transposed",
                                       r->pairs ? write_pairs : write_panels, dims, 1);
  r->weights.buffer = cy_program_add_buffer(l->p, CY_BUF_CONST, c, cy_dim_const(g, (int64_t)val->data.size));
  r->weights.offset = cy_dim_const(g, 0);
  r->weights.stride[0] = cy_dim_const(g, rows * dims[2]);
  r->weights.stride[1] = cy_dim_const(g, dims[2]);
  r->weights.stride[2] = cy_dim_const(g, 1);
  if (panel)
    r->panel = cy_dim_const(g, panel);
}

/* acts[i] of x, with its alpha and beta (spec: RNN, activation functions). */
static cy_expr activate(rnn *r, uint32_t i, cy_expr x) {
  cy_kernel *k = r->b.k;
  const cy_attr *acts = cy_attr_find(r->n, CY_ATTR_acts), *alphas = cy_attr_find(r->n, CY_ATTR_alphas);
  const cy_attr *betas = cy_attr_find(r->n, CY_ATTR_betas);
  cy_expr a = number(r, alphas && i < alphas->n ? alphas->floats[i] : 0),
          b = number(r, betas && i < betas->n ? betas->floats[i] : 0);
  cy_expr zero = number(r, 0), one = number(r, 1), positive = bin(r, CY_OP_gt, x, zero);
  switch (acts->ints[i]) {
  case CY_ACT_TANH:
    return cy_x_un(k, CY_OP_tanh, x);
  case CY_ACT_RELU:
    return bin(r, CY_OP_max, x, zero);
  case CY_ACT_AFFINE:
    return bin(r, CY_OP_add, bin(r, CY_OP_mul, a, x), b);
  case CY_ACT_LEAKY_RELU:
    return cy_x_select(k, positive, x, bin(r, CY_OP_mul, a, x));
  case CY_ACT_THRESHOLDED_RELU:
    return cy_x_select(k, bin(r, CY_OP_ge, x, a), x, zero);
  case CY_ACT_SCALED_TANH:
    return bin(r, CY_OP_mul, a, cy_x_un(k, CY_OP_tanh, bin(r, CY_OP_mul, b, x)));
  case CY_ACT_HARD_SIGMOID:
    return bin(r, CY_OP_min, bin(r, CY_OP_max, bin(r, CY_OP_add, bin(r, CY_OP_mul, a, x), b), zero), one);
  case CY_ACT_ELU:
    return cy_x_select(k, positive, x, bin(r, CY_OP_mul, a, bin(r, CY_OP_sub, cy_x_un(k, CY_OP_exp, x), one)));
  case CY_ACT_SOFTSIGN:
    return bin(r, CY_OP_div, x, bin(r, CY_OP_add, one, cy_x_un(k, CY_OP_abs, x)));
  case CY_ACT_SOFTPLUS:
    return bin(r, CY_OP_add, bin(r, CY_OP_max, x, zero),
               cy_x_un(k, CY_OP_log,
                       bin(r, CY_OP_add, one, cy_x_un(k, CY_OP_exp, cy_x_un(k, CY_OP_neg, cy_x_un(k, CY_OP_abs, x))))));
  default:
    return cy_x_un(k, CY_OP_sigmoid, x);
  }
}

static cy_expr clipped(rnn *r, cy_expr x) {
  double limit = cy_attr_get_float(r->n, CY_ATTR_clip, 0);
  return limit > 0 ? bin(r, CY_OP_min, bin(r, CY_OP_max, x, number(r, -limit)), number(r, limit)) : x;
}

/* Position of unit j of gate g in a row of gates. */
static cy_expr gate_index(rnn *r, int g, cy_expr j) {
  return bin(r, CY_OP_add, j, cy_x_dim(r->b.k, cy_dim_muli(r->b.l->g, r->hidden, g)));
}

/* A loop over the units of a task; *out_slot: the unit's place in a gate of `gate`. */
static cy_expr unit_loop(rnn *r, cy_expr *out_slot) {
  bool part = r->steps && !r->product;
  *out_slot = cy_kb_loop(&r->b, part ? r->panel : r->hidden, true);
  return part ? bin(r, CY_OP_add, bin(r, CY_OP_mul, r->block, cy_x_dim(r->b.k, r->panel)), *out_slot) : *out_slot;
}

static cy_expr old_state(rnn *r, cy_karg state, cy_expr unit) {
  cy_expr idx[2] = {r->batch, unit};
  return r->steps ? cy_kb_load(&r->b, state == r->c ? &r->c_at : &r->h_old, r->dtype, 2, idx) : load_at(r, state, unit);
}

static void new_state(rnn *r, cy_karg state, cy_expr unit, cy_expr value) {
  cy_expr idx[2] = {r->batch, unit};
  if (r->steps)
    cy_kb_store(&r->b, state == r->c ? &r->c_at : &r->h_new, r->dtype, 2, idx, value);
  else
    cy_kernel_store(r->b.k, state, unit, value);
}

/* Panels of units of a gate. */
static cy_dim unit_blocks(const rnn *r) { return cy_dim_div(r->b.l->g, r->hidden, r->panel); }

/* Of pairs, before products with it: the state in integers. NaN in it become 0, and their step NaN. */
static void round_state(rnn *r, cy_karg state) {
  cy_kernel *k = r->b.k;
  if (!r->pairs)
    return;
  cy_dim half = cy_dim_div(r->b.l->g, r->hidden, cy_dim_const(r->b.l->g, 2));
  cy_local most = cy_kernel_add_local(k, CY_F32), up = cy_kernel_add_local(k, CY_F32);
  r->step_of = cy_kernel_add_local(k, CY_F32);
  r->total = cy_kernel_add_local(k, CY_I32);
  cy_kernel_set(k, most, number(r, 1e-30));
  cy_expr i = cy_kb_loop(&r->b, r->hidden, true), part[2];
  cy_kernel_accum(k, most, CY_OP_max, cy_x_un(k, CY_OP_abs, old_state(r, state, i)));
  cy_kernel_end(k);
  cy_kernel_set(k, r->step_of, bin(r, CY_OP_mul, cy_x_local(k, most), number(r, 1.0 / (double)r->top)));
  cy_kernel_set(k, up, bin(r, CY_OP_div, number(r, (double)r->top), cy_x_local(k, most)));
  cy_kernel_set(k, r->total, cy_x_int(k, CY_I32, 0));
  i = cy_kb_loop(&r->b, half, true);
  for (int n = 0; n < 2; n++) {
    cy_expr unit = n ? bin(r, CY_OP_add, i, cy_x_dim(k, half)) : i;
    cy_expr v = bin(r, CY_OP_mul, old_state(r, state, unit), cy_x_local(k, up)), top = number(r, (double)r->top);
    v = bin(r, CY_OP_min, bin(r, CY_OP_max, v, number(r, (double)-r->top)), top);
    part[n] = cy_x_cast(k, cy_x_un(k, CY_OP_round, v), CY_I32);
  }
  if (r->has_zero)
    cy_kernel_accum(k, r->total, CY_OP_add, bin(r, CY_OP_add, part[0], part[1]));
  cy_expr low = bin(r, CY_OP_and, part[0], cy_x_int(k, CY_I32, 0xffff));
  cy_kernel_store(k, r->rounded, i, bin(r, CY_OP_or, low, bin(r, CY_OP_shl, part[1], cy_x_int(k, CY_I32, 16))));
  cy_kernel_end(k);
}

/* Element j of a parameter of R, which may be one number. */
static cy_expr parameter(rnn *r, uint32_t in, cy_expr j) { return cy_lower_at(&r->b, input(r, in), &j); }

/* An element of an R of integers, as f32. */
static cy_expr widened(rnn *r, cy_expr weight, cy_expr j) {
  if (!input(r, IN_SCALE))
    return weight;
  cy_expr w = cy_x_cast(r->b.k, weight, CY_I32);
  if (input(r, IN_ZERO))
    w = bin(r, CY_OP_sub, w, cy_x_cast(r->b.k, parameter(r, IN_ZERO, j), CY_I32));
  return bin(r, CY_OP_mul, cy_x_cast(r->b.k, w, CY_F32), parameter(r, IN_SCALE, j));
}

/* A sum of pairs, of gate j, in f32. */
static cy_expr rescaled(rnn *r, cy_expr sum, cy_expr j) {
  cy_kernel *k = r->b.k;
  if (r->has_zero) {
    cy_expr zero = input(r, IN_ZERO) ? cy_x_cast(k, parameter(r, IN_ZERO, j), CY_I32) : cy_x_int(k, CY_I32, 0);
    zero = bin(r, CY_OP_sub, zero, cy_x_int(k, CY_I32, r->shift));
    sum = bin(r, CY_OP_sub, sum, bin(r, CY_OP_mul, zero, cy_x_local(k, r->total)));
  }
  cy_expr scale = bin(r, CY_OP_mul, parameter(r, IN_SCALE, j), cy_x_local(k, r->step_of));
  return bin(r, CY_OP_mul, cy_x_cast(k, sum, CY_F32), scale);
}

/* gate[from h * first ..) = [x part] + sum over k of R^T[k, j] * state[k] (+ rb); of pairs, the state is what
 * round_state made of it. */
static void gate_products(rnn *r, int first, int count, cy_karg state, bool with_x, bool with_rb) {
  if (r->product)
    return;
  cy_kernel *k = r->b.k;
  cy_graph *g = r->b.l->g;
  bool whole = r->panel == r->wide;
  cy_dim pass = cy_dim_muli(g, r->hidden, count), before = cy_dim_muli(g, r->hidden, first);
  cy_dim turns = r->steps ? cy_dim_const(g, count) : cy_dim_div(g, pass, r->panel);
  cy_expr turn = whole ? cy_x_index(k, 0) : cy_kb_loop(&r->b, turns, false);
  cy_expr lane = cy_kb_loop(&r->b, whole ? pass : r->panel, true), width = cy_x_dim(k, r->panel), slot, panel = turn;
  cy_expr j = bin(r, CY_OP_add, whole ? lane : bin(r, CY_OP_add, bin(r, CY_OP_mul, turn, width), lane),
                  cy_x_dim(k, r->steps ? cy_dim_muli(g, r->panel, first) : before));
  slot = j;
  if (r->steps) {
    cy_expr gate = bin(r, CY_OP_add, turn, cy_x_index(k, first));
    panel = bin(r, CY_OP_add, bin(r, CY_OP_mul, gate, cy_x_dim(k, unit_blocks(r))), r->block);
    j = bin(r, CY_OP_add, bin(r, CY_OP_mul, panel, width), lane);
  } else if (!whole) {
    panel = bin(r, CY_OP_add, turn, cy_x_dim(k, cy_dim_div(g, before, r->panel)));
  }
  cy_local sum = cy_kernel_add_local(k, r->pairs ? CY_I32 : r->dtype);
  cy_expr x_idx[3] = {r->time, r->batch, j}, rb_idx[1] = {j};
  cy_expr start = with_x ? cy_lower_at(&r->b, r->n->in[IN_X], x_idx) : number(r, 0);
  if (with_rb && input(r, IN_RB))
    start = bin(r, CY_OP_add, start, cy_lower_at(&r->b, input(r, IN_RB), rb_idx));
  cy_kernel_set(k, sum, r->pairs ? cy_x_int(k, CY_I32, 0) : start);
  cy_dim depth = r->pairs ? cy_dim_div(g, r->hidden, cy_dim_const(g, 2)) : r->hidden;
  cy_expr i = cy_kb_loop(&r->b, depth, false), r_idx[3] = {panel, i, whole ? j : lane};
  cy_dtype stored = r->pairs ? CY_I16 : (cy_dtype)cy_lower_type(r->b.l, r->n->in[IN_R])->dtype;
  cy_expr weight = cy_kb_load(&r->b, &r->weights, stored, 3, r_idx);
  cy_expr product = r->pairs ? cy_x_pairs(k, weight, load_at(r, r->rounded, i))
                             : bin(r, CY_OP_mul, widened(r, weight, j), old_state(r, state, i));
  cy_kernel_accum(k, sum, CY_OP_add, product);
  cy_kernel_end(k);
  cy_expr all = cy_x_local(k, sum);
  cy_kernel_store(k, r->gate, slot, r->pairs ? bin(r, CY_OP_add, rescaled(r, all, j), start) : all);
  cy_kernel_end(k);
  if (!whole)
    cy_kernel_end(k);
}

static cy_expr peephole(rnn *r, int which, cy_expr j, cy_expr c) {
  if (!input(r, IN_PEEPHOLE))
    return 0;
  cy_expr at[1] = {gate_index(r, which, j)};
  return bin(r, CY_OP_mul, cy_lower_at(&r->b, input(r, IN_PEEPHOLE), at), c);
}

/* Gate g of unit j, which the product alone does not make: a reset gate applies before its x part is added (GRU). */
static cy_expr gate_of_product(rnn *r, int g, cy_expr j) {
  cy_expr column = gate_index(r, g, j), idx[3] = {r->time, r->batch, column};
  cy_expr x = cy_kb_load(&r->b, &r->gates_at, r->dtype, 2, idx + 1);
  if (input(r, IN_RB))
    x = bin(r, CY_OP_add, x, cy_lower_at(&r->b, input(r, IN_RB), &column));
  return r->cell == CY_CELL_GRU && g == 2 ? x : bin(r, CY_OP_add, x, cy_lower_at(&r->b, r->n->in[IN_X], idx));
}

static cy_expr gate_held(rnn *r, int g, cy_expr slot) {
  if (r->product)
    return gate_of_product(r, g, slot);
  cy_dim before = cy_dim_muli(r->b.l->g, r->steps ? r->panel : r->hidden, g);
  return load_at(r, r->gate, bin(r, CY_OP_add, slot, cy_x_dim(r->b.k, before)));
}

static cy_expr gate_value(rnn *r, int g, uint32_t act, cy_expr slot, cy_expr extra) {
  cy_expr x = gate_held(r, g, slot);
  if (extra)
    x = bin(r, CY_OP_add, x, extra);
  return activate(r, act, clipped(r, x));
}

/* New state of unit j; also stores it, and the step's output. */
static void store_state(rnn *r, cy_expr j, cy_expr h_new, cy_expr c_new) {
  cy_kernel *k = r->b.k;
  cy_lowering *l = r->b.l;
  cy_expr shown = h_new;
  if (r->live) {
    shown = cy_x_select(k, r->live, h_new, number(r, 0));
    h_new = cy_x_select(k, r->live, h_new, old_state(r, r->h, j));
    if (c_new)
      c_new = cy_x_select(k, r->live, c_new, old_state(r, r->c, j));
  }
  cy_expr y_idx[3] = {r->time, r->batch, j};
  const cy_type *t = cy_lower_type(l, r->n->out[0]);
  if (l->place[r->n->out[0]].placed)
    cy_kb_store(&r->b, cy_lower_place(l, r->n->out[0]), (cy_dtype)t->dtype, 3, y_idx, shown);
  if (c_new)
    new_state(r, r->c, j, c_new);
  new_state(r, r->h, j, h_new);
}

/* Gates i, o, f, c. A unit's old h is read before it is written; other units' gates were computed before. */
static void lstm_step(rnn *r) {
  cy_kernel *k = r->b.k;
  round_state(r, r->h);
  gate_products(r, 0, 4, r->h, true, true);
  cy_expr slot, j = unit_loop(r, &slot);
  cy_local c_old = cy_kernel_add_local(k, r->dtype), c_new = cy_kernel_add_local(k, r->dtype);
  cy_kernel_set(k, c_old, old_state(r, r->c, j));
  cy_expr held = cy_x_local(k, c_old), i = gate_value(r, 0, 0, slot, peephole(r, 0, j, held));
  cy_expr f = cy_attr_get_int(r->n, CY_ATTR_input_forget, 0) ? bin(r, CY_OP_sub, number(r, 1), i)
                                                             : gate_value(r, 2, 0, slot, peephole(r, 2, j, held));
  cy_expr fresh = gate_value(r, 3, 1, slot, 0);
  cy_kernel_set(k, c_new, bin(r, CY_OP_add, bin(r, CY_OP_mul, f, held), bin(r, CY_OP_mul, i, fresh)));
  cy_expr o = gate_value(r, 1, 0, slot, peephole(r, 1, j, cy_x_local(k, c_new)));
  store_state(r, j, bin(r, CY_OP_mul, o, activate(r, 2, cy_x_local(k, c_new))), cy_x_local(k, c_new));
  cy_kernel_end(k);
}

/* Gates z, r, h. */
static void gru_step(rnn *r) {
  cy_kernel *k = r->b.k;
  bool reset_after = cy_attr_get_int(r->n, CY_ATTR_linear_before_reset, 0) != 0;
  cy_expr j, slot;
  round_state(r, r->h);
  if (reset_after) { /* h gate: x + r * (R h + rb); the product stands alone in its part of the row */
    gate_products(r, 0, 2, r->h, true, true);
    gate_products(r, 2, 1, r->h, false, true);
  } else {
    gate_products(r, 0, 2, r->h, true, true);
    j = cy_kb_loop(&r->b, r->hidden, true); /* r * h, in the row that the cell state does not need */
    cy_kernel_store(k, r->c, j, bin(r, CY_OP_mul, gate_value(r, 1, 0, j, 0), load_at(r, r->h, j)));
    cy_kernel_end(k);
    round_state(r, r->c);
    gate_products(r, 2, 1, r->c, true, true);
  }
  j = unit_loop(r, &slot);
  cy_local h_old = cy_kernel_add_local(k, r->dtype);
  cy_kernel_set(k, h_old, old_state(r, r->h, j));
  cy_expr z = gate_value(r, 0, 0, slot, 0), x = gate_held(r, 2, slot);
  if (reset_after) {
    cy_expr x_idx[3] = {r->time, r->batch, gate_index(r, 2, j)};
    x = bin(r, CY_OP_mul, gate_value(r, 1, 0, slot, 0), x);
    x = bin(r, CY_OP_add, cy_lower_at(&r->b, r->n->in[IN_X], x_idx), x);
  }
  cy_expr fresh = activate(r, 1, clipped(r, x));
  cy_expr kept = bin(r, CY_OP_mul, z, cy_x_local(k, h_old));
  store_state(r, j, bin(r, CY_OP_add, bin(r, CY_OP_mul, bin(r, CY_OP_sub, number(r, 1), z), fresh), kept), 0);
  cy_kernel_end(k);
}

static void rnn_step(rnn *r) {
  round_state(r, r->h);
  gate_products(r, 0, 1, r->h, true, true);
  cy_expr slot, j = unit_loop(r, &slot);
  store_state(r, j, gate_value(r, 0, 0, slot, 0), 0);
  cy_kernel_end(r->b.k);
}

static void copy_state(rnn *r, cy_karg state, cy_val initial) {
  cy_expr j = cy_kb_loop(&r->b, r->hidden, true), idx[2] = {r->batch, j};
  cy_kernel_store(r->b.k, state, j, initial ? cy_lower_at(&r->b, initial, idx) : number(r, 0));
  cy_kernel_end(r->b.k);
}

static void final_state(rnn *r, uint32_t output, cy_karg state) {
  cy_lowering *l = r->b.l;
  if (output >= r->n->nout || !l->place[r->n->out[output]].placed)
    return;
  const cy_type *t = cy_lower_type(l, r->n->out[output]);
  cy_expr j = cy_kb_loop(&r->b, r->hidden, true), idx[2] = {r->batch, j};
  cy_kb_store(&r->b, cy_lower_place(l, r->n->out[output]), (cy_dtype)t->dtype, 2, idx, load_at(r, state, j));
  cy_kernel_end(r->b.k);
}

/* Walks the sequence forwards, or each element's own part of it backwards. */
static void set_time(rnn *r, cy_expr step, cy_dim turns) {
  cy_kernel *k = r->b.k;
  cy_val lens = input(r, IN_LENS);
  bool reverse = cy_attr_get_int(r->n, CY_ATTR_reverse, 0) != 0;
  cy_expr idx[1] = {r->batch}, last = cy_x_dim(k, cy_dim_addi(r->b.l->g, turns, -1));
  r->live = 0;
  if (lens) {
    cy_expr len = cy_x_cast(k, cy_lower_at(&r->b, lens, idx), CY_I64);
    r->live = cy_x_bin(k, CY_OP_lt, step, len);
    if (reverse) { /* len - 1 - step while inside; the padding keeps its own positions */
      cy_expr back = cy_x_bin(k, CY_OP_sub, cy_x_bin(k, CY_OP_sub, len, cy_x_index(k, 1)), step);
      r->time = cy_x_select(k, r->live, back, step);
      return;
    }
  }
  r->time = reverse ? cy_x_bin(k, CY_OP_sub, last, step) : step;
}

static void cell_step(rnn *r) {
  if (r->cell == CY_CELL_LSTM)
    lstm_step(r);
  else if (r->cell == CY_CELL_GRU)
    gru_step(r);
  else
    rnn_step(r);
}

static void add_rounded(rnn *r) {
  if (r->pairs)
    r->rounded = cy_kb_scratch(&r->b, CY_I32, cy_dim_div(r->b.l->g, r->hidden, cy_dim_const(r->b.l->g, 2)));
}

/* ---- a walk ---- */

static void lower_walk(rnn *r, const cy_type *x) {
  r->batch = cy_kb_grid_index(&r->b, x->dim[1]);
  r->h = cy_kb_scratch(&r->b, r->dtype, r->hidden);
  r->c = cy_kb_scratch(&r->b, r->dtype, r->hidden);
  r->gate = cy_kb_scratch(&r->b, r->dtype, r->wide);
  add_rounded(r);
  copy_state(r, r->h, input(r, IN_H0));
  if (r->cell == CY_CELL_LSTM)
    copy_state(r, r->c, input(r, IN_C0));
  cy_expr step = cy_kb_loop(&r->b, x->dim[0], false);
  set_time(r, step, x->dim[0]);
  cell_step(r);
  cy_kernel_end(r->b.k);
  final_state(r, 1, r->h);
  final_state(r, 2, r->c);
  cy_kb_launch(&r->b, true);
}

/* ---- steps ---- */

enum { LARGE_R = 512 << 10 }; /* bytes: a step takes over ten times what a launch does */

/* All gates of a unit must be computable from the old state, in whole panels of units. */
static bool steps_choose(const rnn *r) {
  cy_graph *g = r->b.l->g;
  int64_t hidden, panel, wide;
  if (r->panel == r->wide || !cy_dim_is_const(g, r->hidden, &hidden) || !cy_dim_is_const(g, r->panel, &panel) ||
      !cy_dim_is_const(g, r->wide, &wide))
    return false;
  if (r->cell == CY_CELL_GRU && !cy_attr_get_int(r->n, CY_ATTR_linear_before_reset, 0))
    return false;
  return hidden % panel == 0 && hidden * wide * (r->pairs ? 1 : 4) >= LARGE_R;
}

/* state = initial, [batch, hidden]. */
static void start_state(cy_lowering *l, rnn *r, const cy_type *x, const cy_place *state, cy_val initial) {
  cy_kb_init(&r->b, l, "state");
  cy_expr idx[2] = {cy_kb_grid_index(&r->b, x->dim[1]), cy_kb_grid_index(&r->b, r->hidden)};
  cy_kb_store(&r->b, state, r->dtype, 2, idx, initial ? cy_lower_at(&r->b, initial, idx) : number(r, 0));
  cy_kb_launch(&r->b, true);
}

static void keep_state(cy_lowering *l, const rnn *r, uint32_t output, const cy_place *state) {
  if (output < r->n->nout && l->place[r->n->out[output]].placed)
    cy_lower_copy(l, state, cy_lower_place(l, r->n->out[output]), cy_lower_type(l, r->n->out[output]));
}

/* A host loop over the steps; what is appended until its tail is put back is inside. */
static cy_sym open_steps(cy_lowering *l, cy_dim turns, cy_step ***out_after) {
  cy_step *set = cy_lower_step(l, CY_STEP_SET), *loop = cy_lower_step(l, CY_STEP_LOOP);
  set->sym = loop->sym = cy_sym_new(l->g, NULL, CY_SYM_FREE);
  set->limit = cy_dim_const(l->g, 0);
  loop->limit = turns;
  *out_after = l->tail;
  l->tail = &loop->then_steps;
  return loop->sym;
}

/* States before the first step, [batch, hidden]. */
static void start_states(cy_lowering *l, rnn *r, const cy_type *x, const cy_place *h) {
  cy_dim dims[2] = {x->dim[1], r->hidden};
  r->c_at = r->cell == CY_CELL_LSTM ? cy_lower_temp(l, r->dtype, dims, 2) : *h;
  start_state(l, r, x, h, input(r, IN_H0));
  if (r->cell == CY_CELL_LSTM)
    start_state(l, r, x, &r->c_at, input(r, IN_C0));
}

/* The kernel begun makes the states of one step; behind it, the loop over the steps is closed. */
static void close_steps(cy_lowering *l, rnn *r, const cy_type *x, cy_dim counter, cy_step **after) {
  r->h = 0;
  r->c = 1;
  set_time(r, cy_x_dim(r->b.k, counter), x->dim[0]);
  cell_step(r);
  cy_kb_launch(&r->b, true);
  l->tail = after;
}

/* The last states, as far as they are outputs. */
static void keep_states(cy_lowering *l, const rnn *r, const cy_place *h) {
  keep_state(l, r, 1, h);
  keep_state(l, r, 2, &r->c_at);
}

static void lower_steps(cy_lowering *l, rnn *r, const cy_type *x, const char *name) {
  cy_graph *g = l->g;
  cy_dim dims[3] = {cy_dim_const(g, 2), x->dim[1], r->hidden}, row = cy_dim_mul(g, x->dim[1], r->hidden);
  cy_place both = cy_lower_temp(l, r->dtype, dims, 3), h = both;
  h.stride[0] = both.stride[1];
  h.stride[1] = both.stride[2];
  start_states(l, r, x, &h);
  cy_step **after;
  cy_dim counter = cy_dim_sym(g, open_steps(l, x->dim[0], &after)), odd = cy_dim_mod(g, counter, dims[0]);
  r->h_old = r->h_new = h;
  r->h_old.offset = cy_dim_mul(g, odd, row);
  r->h_new.offset = cy_dim_sub(g, row, r->h_old.offset);
  cy_kb_init(&r->b, l, name);
  r->block = cy_kb_grid_index(&r->b, unit_blocks(r));
  r->batch = cy_kb_grid_index(&r->b, x->dim[1]);
  r->gate = cy_kb_scratch(&r->b, r->dtype, cy_dim_muli(g, r->panel, r->gates));
  add_rounded(r);
  close_steps(l, r, x, counter, after);
  h.offset = cy_dim_mul(g, cy_dim_mod(g, x->dim[0], dims[0]), row);
  keep_states(l, r, &h);
}

/* ---- products ---- */

enum { LEAST_BATCH = 4, LEAST_PRODUCT = 1 << 16 }; /* elements; multiplications, from which on a launch more is nothing */

/* gates = state * R^T. False: the target has no generator for it. */
static bool build_product(rnn *r, const cy_type *x, const cy_place *h) {
  cy_lowering *l = r->b.l;
  cy_kb_init(&r->b, l, "gates");
  cy_kernel *k = r->b.k;
  cy_contraction *c = cy_kernel_contraction(k);
  const cy_place *weights = cy_lower_place(l, r->n->in[IN_R]);
  c->kind = CY_CONTRACT_MATMUL;
  c->a = cy_kb_arg(&r->b, h, r->dtype, CY_ARG_READ);
  c->b = cy_kb_arg(&r->b, weights, r->dtype, CY_ARG_READ);
  c->b_const = r->n->in[IN_R];
  c->a_offset = c->b_offset = cy_dim_const(l->g, 0);
  c->m = x->dim[1];
  c->n = r->wide;
  c->k = c->a_m = r->hidden;
  c->a_k = cy_dim_const(l->g, 1);
  c->b_n = weights->stride[0];
  c->b_k = weights->stride[1];
  c->acc = cy_kernel_add_local(k, r->dtype);
  cy_expr idx[2];
  for (int i = 0; i < 2; i++) {
    c->out_var[c->nout_vars++] = cy_kernel_add_var(k, i ? c->n : c->m);
    idx[i] = cy_x_var(k, c->out_var[i]);
  }
  if (!l->o->supports(l->o->target, k))
    return false;
  cy_kb_store(&r->b, &r->gates_at, r->dtype, 2, idx, cy_x_local(k, c->acc));
  return true;
}

static bool product_choose(const rnn *r, const cy_type *x) {
  cy_lowering *l = r->b.l;
  int64_t batch, hidden, wide;
  const cy_value *weights = cy_value_of(l->g, r->n->in[IN_R]);
  if (l->o->level == 0 || !l->o->supports || r->dtype != CY_F32 || weights->type.dtype != CY_F32 || !weights->data.bytes ||
      !cy_dim_is_const(l->g, x->dim[1], &batch) || !cy_dim_is_const(l->g, r->hidden, &hidden) ||
      !cy_dim_is_const(l->g, r->wide, &wide))
    return false;
  if (r->cell == CY_CELL_GRU && !cy_attr_get_int(r->n, CY_ATTR_linear_before_reset, 0))
    return false;
  return batch >= LEAST_BATCH && batch * hidden * wide >= LEAST_PRODUCT;
}

static void lower_product(cy_lowering *l, rnn *r, const cy_type *x, const char *name) {
  cy_graph *g = l->g;
  cy_dim dims[2] = {x->dim[1], r->hidden}, wide[2] = {x->dim[1], r->wide};
  cy_place h = cy_lower_temp(l, r->dtype, dims, 2);
  r->gates_at = cy_lower_temp(l, r->dtype, wide, 2);
  start_states(l, r, x, &h);
  cy_step **after;
  cy_dim counter = cy_dim_sym(g, open_steps(l, x->dim[0], &after));
  if (!build_product(r, x, &h))
    cy_bug("a product of f32 with constants has no generator");
  cy_kb_launch(&r->b, false);
  r->h_old = r->h_new = h;
  cy_kb_init(&r->b, l, name);
  r->batch = cy_kb_grid_index(&r->b, x->dim[1]);
  close_steps(l, r, x, counter, after);
  keep_states(l, r, &h);
}

void cy_lower_recurrent(cy_lowering *l, cy_node root, cy_val anchor, cy_val target) {
  (void)anchor;
  (void)target;
  rnn r = {.n = cy_node_of(l->g, root)};
  r.cell = (int)cy_attr_get_int(r.n, CY_ATTR_cell, CY_CELL_LSTM);
  r.gates = r.cell == CY_CELL_LSTM ? 4 : r.cell == CY_CELL_GRU ? 3 : 1;
  r.hidden = cy_dim_const(l->g, cy_attr_get_int(r.n, CY_ATTR_hidden, 1));
  r.wide = cy_dim_muli(l->g, r.hidden, r.gates);
  const cy_type *x = cy_lower_type(l, r.n->in[IN_X]);
  const char *name = r.cell == CY_CELL_LSTM ? "lstm" : r.cell == CY_CELL_GRU ? "gru" : "rnn";
  r.dtype = cy_compute_dtype((cy_dtype)x->dtype);
  for (uint32_t i = 0; i < r.n->nout; i++)
    if (l->uses.start[r.n->out[i]] != l->uses.start[r.n->out[i] + 1])
      cy_lower_alloc(l, r.n->out[i]);
  cy_kb_init(&r.b, l, name);
  r.product = product_choose(&r, x);
  if (!r.product)
    place_weights(&r);
  r.steps = r.product || steps_choose(&r);
  if (r.product)
    lower_product(l, &r, x, name);
  else if (r.steps)
    lower_steps(l, &r, x, name);
  else
    lower_walk(&r, x);
}
