/* SPDX-License-Identifier: Apache-2.0 */
/* lower_rnn_cell.c - one step of a recurrent cell, as loops of the kernel under construction.
 *
 * In: a cy_rnn whose kernel is open, with scratch. Out: R * h for the rows of the task, the gates, the new states, the
 * output. Formulas and gate order: ONNX, RNN-14, GRU-14, LSTM-14.
 * A constant R of 8-bit integers stays what it is. The state is then rounded to 16 bits of its largest magnitude in
 * every step, two units in an i32, and R lies in pairs, too: a product and a sum of two weights is one instruction.
 * Sums are exact: the state takes fewer bits where 32 might not hold them. Other R of integers are widened as they are
 * read.
 */
#include "lower_rnn.h"

enum { MAX_ACCUMULATORS = 8 }; /* vectors: registers hold these, and fma's latency hides behind them */

#define bin(r, op, x, y) cy_x_bin((r)->b.k, op, x, y)
static cy_expr number(cy_rnn *r, double v) { return cy_x_const(r->b.k, r->dtype, v); }
static cy_expr load_at(cy_rnn *r, cy_karg arg, cy_expr i) { return cy_x_load(r->b.k, arg, i); }
static cy_val input(const cy_rnn *r, uint32_t i) { return cy_rnn_input(r, i); }

/* ---- rows ---- */

static void set_row(cy_rnn *r, cy_expr row) {
  r->row = row;
  r->batch = bin(r, CY_OP_add, r->first, row);
}

/* Walks the sequence forwards, or each element's own part of it backwards. */
static void set_time(cy_rnn *r) {
  cy_kernel *k = r->b.k;
  cy_val lens = input(r, CY_RNN_LENS);
  bool reverse = cy_attr_get_int(r->n, CY_ATTR_reverse, 0) != 0;
  cy_expr idx[1] = {r->batch}, last = cy_x_dim(k, cy_dim_addi(r->b.l->g, r->x->dim[0], -1));
  r->live = 0;
  if (lens) {
    cy_expr len = cy_x_cast(k, cy_lower_at(&r->b, lens, idx), CY_I64);
    r->live = bin(r, CY_OP_lt, r->step, len);
    if (reverse) { /* len - 1 - step while inside; the padding keeps its own positions */
      cy_expr back = bin(r, CY_OP_sub, bin(r, CY_OP_sub, len, cy_x_index(k, 1)), r->step);
      r->time = cy_x_select(k, r->live, back, r->step);
      return;
    }
  }
  r->time = reverse ? bin(r, CY_OP_sub, last, r->step) : r->step;
}

void cy_rnn_open_rows(cy_rnn *r) {
  set_row(r, cy_kb_loop(&r->b, cy_dim_const(r->b.l->g, r->rows), false));
  if (r->step)
    set_time(r);
}

void cy_rnn_close_rows(cy_rnn *r) { cy_kernel_end(r->b.k); }

/* ---- scratch and states ---- */

static cy_dim half_of(const cy_rnn *r) { return cy_dim_div(r->b.l->g, r->hidden, cy_dim_const(r->b.l->g, 2)); }

cy_karg cy_rnn_scratch(cy_rnn *r, cy_dtype dtype, cy_dim row) {
  return cy_kb_scratch(&r->b, dtype, cy_dim_muli(r->b.l->g, row, r->rows));
}

void cy_rnn_add_scratch(cy_rnn *r) {
  cy_dim one = cy_dim_const(r->b.l->g, 1);
  r->gate = cy_rnn_scratch(r, r->dtype, cy_dim_muli(r->b.l->g, r->gate_part, r->gates));
  if (!r->pairs)
    return;
  r->rounded = cy_rnn_scratch(r, CY_I32, half_of(r));
  r->step_of = cy_rnn_scratch(r, CY_F32, one);
  r->total = cy_rnn_scratch(r, CY_I32, one);
}

/* Element i of the row at hand, in scratch of so many elements a row. */
static cy_expr in_row(cy_rnn *r, cy_dim row, cy_expr i) {
  return bin(r, CY_OP_add, bin(r, CY_OP_mul, r->row, cy_x_dim(r->b.k, row)), i);
}

cy_expr cy_rnn_in_state(cy_rnn *r, cy_expr j) { return in_row(r, r->hidden, j); }

/* Position of unit j of gate g in a row of all gates. */
static cy_expr gate_index(cy_rnn *r, int g, cy_expr j) {
  return bin(r, CY_OP_add, j, cy_x_dim(r->b.k, cy_dim_muli(r->b.l->g, r->hidden, g)));
}

/* A unit of the task: its place in a gate of `gate`, and its number. */
typedef struct unit {
  cy_expr slot, j;
} unit;

/* A loop over the units of a task. */
static unit unit_loop(cy_rnn *r) {
  bool part = r->steps && !r->product;
  unit u;
  u.slot = cy_kb_loop(&r->b, part ? r->gate_part : r->hidden, true);
  u.j = part ? bin(r, CY_OP_add, bin(r, CY_OP_mul, r->block, cy_x_dim(r->b.k, r->gate_part)), u.slot) : u.slot;
  return u;
}

static cy_expr old_state(cy_rnn *r, cy_karg state, cy_expr j) {
  cy_expr idx[2] = {r->batch, j};
  return r->steps ? cy_kb_load(&r->b, state == r->c ? &r->c_old : &r->h_old, r->dtype, 2, idx)
                  : load_at(r, state, cy_rnn_in_state(r, j));
}

static void new_state(cy_rnn *r, cy_karg state, cy_expr j, cy_expr value) {
  cy_expr idx[2] = {r->batch, j};
  if (r->steps)
    cy_kb_store(&r->b, state == r->c ? &r->c_new : &r->h_new, r->dtype, 2, idx, value);
  else
    cy_kernel_store(r->b.k, state, cy_rnn_in_state(r, j), value);
}

/* New state of unit j; also stores it, and the step's output. */
static void store_state(cy_rnn *r, cy_expr j, cy_expr h_new, cy_expr c_new) {
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

/* ---- activations ---- */

/* acts[i] of x, with its alpha and beta (spec: RNN, activation functions). */
static cy_expr activate(cy_rnn *r, uint32_t i, cy_expr x) {
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
               cy_x_un(k, CY_OP_log1p, cy_x_un(k, CY_OP_exp, cy_x_un(k, CY_OP_neg, cy_x_un(k, CY_OP_abs, x)))));
  default:
    return cy_x_un(k, CY_OP_sigmoid, x);
  }
}

static cy_expr clipped(cy_rnn *r, cy_expr x) {
  double limit = cy_attr_get_float(r->n, CY_ATTR_clip, 0);
  return limit > 0 ? bin(r, CY_OP_min, bin(r, CY_OP_max, x, number(r, -limit)), number(r, limit)) : x;
}

/* ---- R of integers ---- */

/* Of pairs, before products with it: the state in integers. NaN in it become 0, and their step NaN. */
static void round_state(cy_rnn *r, cy_karg state) {
  cy_kernel *k = r->b.k;
  if (!r->pairs)
    return;
  cy_rnn_open_rows(r);
  cy_dim half = half_of(r);
  cy_local max = cy_kernel_add_local(k, CY_F32), up = cy_kernel_add_local(k, CY_F32),
           total = cy_kernel_add_local(k, CY_I32);
  cy_kernel_set(k, max, number(r, 1e-30));
  cy_expr i = cy_kb_loop(&r->b, r->hidden, true), part[2];
  cy_kernel_accum(k, max, CY_OP_max, cy_x_un(k, CY_OP_abs, old_state(r, state, i)));
  cy_kernel_end(k);
  cy_expr step_of = bin(r, CY_OP_mul, cy_x_local(k, max), number(r, 1.0 / (double)r->top));
  cy_kernel_store(k, r->step_of, r->row, step_of);
  cy_kernel_set(k, up, bin(r, CY_OP_div, number(r, (double)r->top), cy_x_local(k, max)));
  cy_kernel_set(k, total, cy_x_int(k, CY_I32, 0));
  i = cy_kb_loop(&r->b, half, true);
  for (int n = 0; n < 2; n++) {
    cy_expr j = n ? bin(r, CY_OP_add, i, cy_x_dim(k, half)) : i;
    cy_expr v = bin(r, CY_OP_mul, old_state(r, state, j), cy_x_local(k, up)), top = number(r, (double)r->top);
    v = bin(r, CY_OP_min, bin(r, CY_OP_max, v, number(r, (double)-r->top)), top);
    part[n] = cy_x_cast(k, cy_x_un(k, CY_OP_round, v), CY_I32);
  }
  if (r->has_zero)
    cy_kernel_accum(k, total, CY_OP_add, bin(r, CY_OP_add, part[0], part[1]));
  cy_expr low = bin(r, CY_OP_and, part[0], cy_x_int(k, CY_I32, 0xffff));
  cy_expr pair = bin(r, CY_OP_or, low, bin(r, CY_OP_shl, part[1], cy_x_int(k, CY_I32, 16)));
  cy_kernel_store(k, r->rounded, in_row(r, half, i), pair);
  cy_kernel_end(k);
  cy_kernel_store(k, r->total, r->row, cy_x_local(k, total));
  cy_rnn_close_rows(r);
}

/* Element j of a parameter of R, which may be one number. */
static cy_expr parameter(cy_rnn *r, uint32_t in, cy_expr j) { return cy_lower_at(&r->b, input(r, in), &j); }

/* An element of an R of integers, as f32. */
static cy_expr widened(cy_rnn *r, cy_expr weight, cy_expr j) {
  if (!input(r, CY_RNN_SCALE))
    return weight;
  cy_expr w = cy_x_cast(r->b.k, weight, CY_I32);
  if (input(r, CY_RNN_ZERO))
    w = bin(r, CY_OP_sub, w, cy_x_cast(r->b.k, parameter(r, CY_RNN_ZERO, j), CY_I32));
  return bin(r, CY_OP_mul, cy_x_cast(r->b.k, w, CY_F32), parameter(r, CY_RNN_SCALE, j));
}

/* A sum of pairs, of gate j, in f32. */
static cy_expr rescaled(cy_rnn *r, cy_expr sum, cy_expr j) {
  cy_kernel *k = r->b.k;
  if (r->has_zero) {
    cy_expr zero = input(r, CY_RNN_ZERO) ? cy_x_cast(k, parameter(r, CY_RNN_ZERO, j), CY_I32) : cy_x_int(k, CY_I32, 0);
    zero = bin(r, CY_OP_sub, zero, cy_x_int(k, CY_I32, r->shift));
    sum = bin(r, CY_OP_sub, sum, bin(r, CY_OP_mul, zero, load_at(r, r->total, r->row)));
  }
  cy_expr scale = bin(r, CY_OP_mul, parameter(r, CY_RNN_SCALE, j), load_at(r, r->step_of, r->row));
  return bin(r, CY_OP_mul, cy_x_cast(k, sum, CY_F32), scale);
}

/* ---- products with R ---- */

/* A column of R: where it lies in `weights`, which of all gates it is, and where its sum goes in `gate`. */
typedef struct column {
  cy_expr panel, lane, j, slot;
} column;

/* Column `lane` of panel q of those that the task reads from gate `first` on. */
static column column_at(cy_rnn *r, int first, cy_expr q, cy_expr lane) {
  cy_kernel *k = r->b.k;
  cy_graph *g = r->b.l->g;
  cy_expr width = cy_x_dim(k, r->panel);
  cy_dim each = cy_dim_div(g, r->gate_part, r->panel), all = cy_dim_div(g, r->hidden, r->panel);
  column c = {.lane = lane};
  if (r->steps) { /* `each` panels of every gate, block after block of them */
    cy_expr n = bin(r, CY_OP_add, q, cy_x_dim(k, cy_dim_muli(g, each, first))), per = cy_x_dim(k, each);
    cy_expr gate = bin(r, CY_OP_div, n, per);
    cy_expr begin = bin(r, CY_OP_add, bin(r, CY_OP_mul, gate, cy_x_dim(k, all)), bin(r, CY_OP_mul, r->block, per));
    c.panel = bin(r, CY_OP_add, begin, bin(r, CY_OP_mod, n, per));
    c.slot = bin(r, CY_OP_add, bin(r, CY_OP_mul, n, width), lane);
  } else {
    cy_dim before = cy_dim_div(g, cy_dim_muli(g, r->hidden, first), r->panel);
    c.panel = bin(r, CY_OP_add, q, cy_x_dim(k, before));
  }
  c.j = bin(r, CY_OP_add, bin(r, CY_OP_mul, c.panel, width), lane);
  c.slot = r->steps ? c.slot : c.j;
  return c;
}

/* gate = R * state in n columns, for all rows; of pairs, the state is what round_state made of it. */
static void column_sums(cy_rnn *r, const column *columns, int n, cy_karg state) {
  cy_kernel *k = r->b.k;
  cy_local sum[MAX_ACCUMULATORS];
  cy_dtype stored = r->pairs ? CY_I16 : (cy_dtype)cy_lower_type(r->b.l, r->n->in[CY_RNN_R])->dtype;
  for (int s = 0; s < n * r->rows; s++) {
    sum[s] = cy_kernel_add_local(k, r->pairs ? CY_I32 : r->dtype);
    cy_kernel_set(k, sum[s], r->pairs ? cy_x_int(k, CY_I32, 0) : number(r, 0));
  }
  cy_dim depth = r->pairs ? half_of(r) : r->hidden;
  cy_expr i = cy_kb_loop(&r->b, depth, false);
  for (int s = 0; s < n * r->rows; s++) {
    const column *c = &columns[s / r->rows];
    cy_expr idx[3] = {c->panel, i, c->lane}, weight = cy_kb_load(&r->b, &r->weights, stored, 3, idx);
    set_row(r, cy_x_index(k, s % r->rows));
    cy_expr product = r->pairs ? cy_x_pairs(k, weight, load_at(r, r->rounded, in_row(r, depth, i)))
                               : bin(r, CY_OP_mul, widened(r, weight, c->j), old_state(r, state, i));
    cy_kernel_accum(k, sum[s], CY_OP_add, product);
  }
  cy_kernel_end(k);
  for (int s = 0; s < n * r->rows; s++) {
    const column *c = &columns[s / r->rows];
    set_row(r, cy_x_index(k, s % r->rows));
    cy_expr all = cy_x_local(k, sum[s]);
    cy_dim row = cy_dim_muli(r->b.l->g, r->gate_part, r->gates);
    all = r->pairs ? rescaled(r, all, c->j) : all;
    cy_kernel_store(k, r->gate, in_row(r, row, c->slot), all);
  }
}

/* Panels whose accumulators fit into registers at once. Where the target has no tiles, a panel fills them. */
static int panels_at_once(const cy_rnn *r) {
  int64_t tile = r->b.l->caps->tile_columns, panel;
  if (!tile || !cy_dim_is_const(r->b.l->g, r->panel, &panel) || panel > tile)
    return 1;
  return (int)(MAX_ACCUMULATORS * tile / (2 * panel * r->rows));
}

/* gate[first ..) of all rows = R * state, for `count` gates. */
static void gate_products(cy_rnn *r, int first, int count, cy_karg state) {
  cy_kernel *k = r->b.k;
  cy_graph *g = r->b.l->g;
  if (r->product)
    return;
  if (r->panel == r->wide) {
    cy_expr lane = cy_kb_loop(&r->b, cy_dim_muli(g, r->hidden, count), true);
    cy_expr j = bin(r, CY_OP_add, lane, cy_x_dim(k, cy_dim_muli(g, r->hidden, first)));
    column_sums(r, &(column){cy_x_index(k, 0), j, j, j}, 1, state);
    cy_kernel_end(k);
    return;
  }
  if (r->b.l->busy_parts) { /* a thread for each */
    cy_expr n = cy_kb_loop(&r->b, cy_dim_muli(g, r->gate_part, count), true), width = cy_x_dim(k, r->panel);
    cy_expr q = bin(r, CY_OP_div, n, width);
    column c = column_at(r, first, q, bin(r, CY_OP_mod, n, width));
    column_sums(r, &c, 1, state);
    cy_kernel_end(k);
    return;
  }
  int64_t panels, done = 0;
  if (!cy_dim_is_const(g, cy_dim_div(g, cy_dim_muli(g, r->gate_part, count), r->panel), &panels))
    cy_bug("panels of a matrix of unknown size");
  for (int n = panels_at_once(r); n > 0; n /= 2) {
    int64_t iterations = (panels - done) / n;
    if (!iterations)
      continue;
    cy_expr iteration = cy_kb_loop(&r->b, cy_dim_const(g, iterations), false), lane = cy_kb_loop(&r->b, r->panel, true);
    column columns[MAX_ACCUMULATORS];
    for (int i = 0; i < n; i++) {
      cy_expr q = bin(r, CY_OP_add, bin(r, CY_OP_mul, iteration, cy_x_index(k, n)), cy_x_index(k, done + i));
      columns[i] = column_at(r, first, q, lane);
    }
    column_sums(r, columns, n, state);
    cy_kernel_end(k);
    cy_kernel_end(k);
    done += iterations * n;
  }
}

/* ---- gates ---- */

/* What R makes of the state, in gate g. */
static cy_expr gate_held(cy_rnn *r, int g, unit u) {
  cy_graph *graph = r->b.l->g;
  cy_expr at = gate_index(r, g, u.j), idx[2] = {r->batch, at}, held;
  if (r->product) {
    held = cy_kb_load(&r->b, &r->gates_at, r->dtype, 2, idx);
  } else {
    cy_expr slot = bin(r, CY_OP_add, u.slot, cy_x_dim(r->b.k, cy_dim_muli(graph, r->gate_part, g)));
    held = load_at(r, r->gate, in_row(r, cy_dim_muli(graph, r->gate_part, r->gates), slot));
  }
  return input(r, CY_RNN_RB) ? bin(r, CY_OP_add, held, cy_lower_at(&r->b, input(r, CY_RNN_RB), &at)) : held;
}

static cy_expr x_part(cy_rnn *r, int g, unit u) {
  cy_expr idx[3] = {r->time, r->batch, gate_index(r, g, u.j)};
  return cy_lower_at(&r->b, r->n->in[CY_RNN_X], idx);
}

static cy_expr gate_value(cy_rnn *r, int g, uint32_t act, unit u, cy_expr extra) {
  cy_expr x = bin(r, CY_OP_add, gate_held(r, g, u), x_part(r, g, u));
  if (extra)
    x = bin(r, CY_OP_add, x, extra);
  return activate(r, act, clipped(r, x));
}

static cy_expr peephole(cy_rnn *r, int which, cy_expr j, cy_expr c) {
  if (!input(r, CY_RNN_PEEPHOLE))
    return 0;
  cy_expr at[1] = {gate_index(r, which, j)};
  return bin(r, CY_OP_mul, cy_lower_at(&r->b, input(r, CY_RNN_PEEPHOLE), at), c);
}

/* ---- cells ---- */

/* Gates i, o, f, c. A unit's old h is read before it is written; other units' gates were computed before. */
static void lstm_step(cy_rnn *r) {
  cy_kernel *k = r->b.k;
  round_state(r, r->h);
  gate_products(r, 0, 4, r->h);
  cy_rnn_open_rows(r);
  unit u = unit_loop(r);
  cy_local c_old = cy_kernel_add_local(k, r->dtype), c_new = cy_kernel_add_local(k, r->dtype);
  cy_kernel_set(k, c_old, old_state(r, r->c, u.j));
  cy_expr held = cy_x_local(k, c_old), i = gate_value(r, 0, 0, u, peephole(r, 0, u.j, held));
  cy_expr f = cy_attr_get_int(r->n, CY_ATTR_input_forget, 0) ? bin(r, CY_OP_sub, number(r, 1), i)
                                                             : gate_value(r, 2, 0, u, peephole(r, 2, u.j, held));
  cy_expr fresh = gate_value(r, 3, 1, u, 0);
  cy_kernel_set(k, c_new, bin(r, CY_OP_add, bin(r, CY_OP_mul, f, held), bin(r, CY_OP_mul, i, fresh)));
  cy_expr o = gate_value(r, 1, 0, u, peephole(r, 1, u.j, cy_x_local(k, c_new)));
  cy_expr c = cy_x_local(k, c_new);
  store_state(r, u.j, bin(r, CY_OP_mul, o, activate(r, 2, c)), c);
  cy_kernel_end(k);
  cy_rnn_close_rows(r);
}

/* r * h, in the rows that the cell state does not need. */
static void reset_state(cy_rnn *r) {
  cy_rnn_open_rows(r);
  unit u = unit_loop(r);
  cy_expr kept = bin(r, CY_OP_mul, gate_value(r, 1, 0, u, 0), old_state(r, r->h, u.j));
  cy_kernel_store(r->b.k, r->c, cy_rnn_in_state(r, u.j), kept);
  cy_kernel_end(r->b.k);
  cy_rnn_close_rows(r);
}

/* Gates z, r, h. */
static void gru_step(cy_rnn *r) {
  cy_kernel *k = r->b.k;
  bool reset_after = cy_rnn_resets_after(r);
  round_state(r, r->h);
  gate_products(r, 0, reset_after ? 3 : 2, r->h);
  if (!reset_after) {
    reset_state(r);
    round_state(r, r->c);
    gate_products(r, 2, 1, r->c);
  }
  cy_rnn_open_rows(r);
  unit u = unit_loop(r);
  cy_local h_old = cy_kernel_add_local(k, r->dtype);
  cy_kernel_set(k, h_old, old_state(r, r->h, u.j));
  cy_expr z = gate_value(r, 0, 0, u, 0), x = gate_held(r, 2, u);
  if (reset_after) /* x + r * (R h + rb) */
    x = bin(r, CY_OP_mul, gate_value(r, 1, 0, u, 0), x);
  cy_expr fresh = activate(r, 1, clipped(r, bin(r, CY_OP_add, x_part(r, 2, u), x)));
  cy_expr kept = bin(r, CY_OP_mul, z, cy_x_local(k, h_old));
  store_state(r, u.j, bin(r, CY_OP_add, bin(r, CY_OP_mul, bin(r, CY_OP_sub, number(r, 1), z), fresh), kept), 0);
  cy_kernel_end(k);
  cy_rnn_close_rows(r);
}

static void simple_step(cy_rnn *r) {
  round_state(r, r->h);
  gate_products(r, 0, 1, r->h);
  cy_rnn_open_rows(r);
  unit u = unit_loop(r);
  store_state(r, u.j, gate_value(r, 0, 0, u, 0), 0);
  cy_kernel_end(r->b.k);
  cy_rnn_close_rows(r);
}

void cy_rnn_step(cy_rnn *r) {
  if (r->cell == CY_CELL_LSTM)
    lstm_step(r);
  else if (r->cell == CY_CELL_GRU)
    gru_step(r);
  else
    simple_step(r);
}
