/* SPDX-License-Identifier: Apache-2.0 */
/* lower_rnn.c - the recurrent cells: one kernel that walks the sequence, or, where R is large, kernels per step.
 *
 * The products with the inputs were made outside, for all steps at once (input 0 holds X * W + b). What is left per
 * step is R * h, the gates, and the new state (lower_rnn_cell.c). R is read in panels of neighbouring gates.
 * Walk: a task is some elements of the batch, all their state in per-worker scratch.
 * Steps: a host loop launches a kernel per step, a task being a block of units of these elements with all gates of the
 * units, so that one element keeps several threads busy, each with its own part of R in its cache; states alternate
 * between two buffers.
 * Product: of more elements R is multiplied with all states at once, by the target's generator for products; a second
 * kernel of the step makes states of the gates.
 * How many elements share what they read of R is up to the batch: where its size is known only at run time, or how many
 * workers there are, the program has several of these kernels and chooses when it runs. All of them read the same panels.
 * A device's threads share the columns of R in a walk, which one multiprocessor does for each element; a large R is a
 * product for any batch, so that all multiprocessors read it.
 */
#include "lower_rnn.h"

enum {
  LARGE_R = 512 << 10,   /* bytes */
  MIN_PRODUCT = 1 << 16, /* multiplications, from which on a launch more is nothing */
};

/* ---- a walk ---- */

/* The first element of the batch that a task has. The last task may do some again that others do, too. */
static cy_expr first_element(cy_rnn *r) {
  cy_graph *g = r->b.l->g;
  cy_kernel *k = r->b.k;
  cy_dim rows = cy_dim_const(g, r->rows), batch = r->x->dim[1];
  cy_expr task = cy_kb_grid_index(&r->b, cy_dim_cdiv(g, batch, rows));
  if (r->rows == 1 || cy_dim_is(g, batch, r->rows))
    return task;
  cy_expr last = cy_x_dim(k, cy_dim_sub(g, batch, rows));
  return cy_x_bin(k, CY_OP_min, cy_x_bin(k, CY_OP_mul, task, cy_x_dim(k, rows)), last);
}

static void copy_state(cy_rnn *r, cy_karg state, uint32_t initial) {
  cy_val v = cy_rnn_input(r, initial);
  cy_rnn_open_rows(r);
  cy_expr j = cy_kb_loop(&r->b, r->hidden, true), idx[2] = {r->batch, j};
  cy_expr value = v ? cy_lower_at(&r->b, v, idx) : cy_x_const(r->b.k, r->dtype, 0);
  cy_kernel_store(r->b.k, state, cy_rnn_in_state(r, j), value);
  cy_kernel_end(r->b.k);
  cy_rnn_close_rows(r);
}

static bool is_stored(const cy_lowering *l, const cy_rnn *r, uint32_t output) {
  return output < r->n->nout && l->place[r->n->out[output]].placed;
}

static void final_state(cy_rnn *r, uint32_t output, cy_karg state) {
  cy_lowering *l = r->b.l;
  if (!is_stored(l, r, output))
    return;
  const cy_type *t = cy_lower_type(l, r->n->out[output]);
  cy_rnn_open_rows(r);
  cy_expr j = cy_kb_loop(&r->b, r->hidden, true), idx[2] = {r->batch, j};
  cy_kb_store(&r->b, cy_lower_place(l, r->n->out[output]), (cy_dtype)t->dtype, 2, idx,
              cy_x_load(r->b.k, state, cy_rnn_in_state(r, j)));
  cy_kernel_end(r->b.k);
  cy_rnn_close_rows(r);
}

static void lower_walk(cy_lowering *l, cy_rnn *r) {
  cy_kb_init(&r->b, l, r->name);
  r->step = 0;
  r->first = first_element(r);
  r->gate_part = r->hidden;
  r->h = cy_rnn_scratch(r, r->dtype, r->hidden);
  r->c = cy_rnn_scratch(r, r->dtype, r->hidden);
  cy_rnn_add_scratch(r);
  copy_state(r, r->h, CY_RNN_H0);
  if (r->cell == CY_CELL_LSTM)
    copy_state(r, r->c, CY_RNN_C0);
  r->step = cy_kb_loop(&r->b, r->x->dim[0], false);
  cy_rnn_step(r);
  cy_kernel_end(r->b.k);
  r->step = 0;
  final_state(r, 1, r->h);
  final_state(r, 2, r->c);
  cy_kb_launch(&r->b, true);
}

/* ---- steps ---- */

/* All gates of a unit must be computable from the old state, in whole panels of units. */
static bool steps_choose(const cy_graph *g, const cy_rnn *r) {
  int64_t hidden, panel;
  if (r->panel == r->wide || !cy_dim_is_const(g, r->hidden, &hidden) || !cy_dim_is_const(g, r->panel, &panel))
    return false;
  if (r->cell == CY_CELL_GRU && !cy_rnn_resets_after(r))
    return false;
  return hidden % panel == 0 && r->large;
}

/* Units of a task: whole panels of a gate. */
static cy_dim units_of(cy_graph *g, const cy_rnn *r) {
  int64_t units, min, hidden;
  if (!cy_dim_is_const(g, r->panel, &min) || !cy_dim_is_const(g, r->hidden, &hidden))
    cy_bug("panels of a matrix of unknown size");
  for (units = 64; units > min && hidden % units; units /= 2)
    ;
  return cy_dim_const(g, units);
}

/* state = initial, [batch, hidden]. */
static void start_state(cy_lowering *l, cy_rnn *r, const cy_place *state, uint32_t initial) {
  cy_kb_init(&r->b, l, "state");
  cy_val v = cy_rnn_input(r, initial);
  cy_expr idx[2] = {cy_kb_grid_index(&r->b, r->x->dim[1]), cy_kb_grid_index(&r->b, r->hidden)};
  cy_expr value = v ? cy_lower_at(&r->b, v, idx) : cy_x_const(r->b.k, r->dtype, 0);
  cy_kb_store(&r->b, state, r->dtype, 2, idx, value);
  cy_kb_launch(&r->b, true);
}

static void keep_state(cy_lowering *l, const cy_rnn *r, uint32_t output, const cy_place *state) {
  if (is_stored(l, r, output))
    cy_lower_copy(l, state, cy_lower_place(l, r->n->out[output]), cy_lower_type(l, r->n->out[output]));
}

/* Two buffers for a state: a kernel that reads a state must not write it. */
static cy_place both_places(cy_lowering *l, const cy_rnn *r) {
  cy_dim dims[3] = {cy_dim_const(l->g, 2), r->x->dim[1], r->hidden};
  cy_place both = cy_lower_temp(l, r->dtype, dims, 3);
  both.stride[0] = both.stride[1];
  both.stride[1] = both.stride[2];
  return both;
}

/* Of two buffers, those that hold the states before and after step n. */
static void places_at(cy_lowering *l, cy_rnn *r, cy_dim n) {
  cy_dim size = cy_dim_mul(l->g, r->x->dim[1], r->hidden), odd = cy_dim_mod(l->g, n, cy_dim_const(l->g, 2));
  r->h_old.offset = r->c_old.offset = cy_dim_mul(l->g, odd, size);
  r->h_new.offset = r->c_new.offset = cy_dim_sub(l->g, size, r->h_old.offset);
}

/* The states before the first step, and a host loop over the steps, which are counted from 0; what is appended until
 * close_steps() is inside. */
static cy_dim open_steps(cy_lowering *l, cy_rnn *r, cy_step ***out_after) {
  r->h_old = r->h_new = both_places(l, r);
  r->c_old = r->c_new = r->cell == CY_CELL_LSTM ? both_places(l, r) : r->h_old;
  start_state(l, r, &r->h_old, CY_RNN_H0);
  if (r->cell == CY_CELL_LSTM)
    start_state(l, r, &r->c_old, CY_RNN_C0);
  cy_step *set = cy_lower_step(l, CY_STEP_SET), *loop = cy_lower_step(l, CY_STEP_LOOP);
  set->sym = loop->sym = cy_sym_new(l->g, NULL, CY_SYM_FREE);
  set->limit = cy_dim_const(l->g, 0);
  loop->limit = r->x->dim[0];
  *out_after = l->tail;
  l->tail = &loop->then_steps;
  cy_dim counter = cy_dim_sym(l->g, loop->sym);
  places_at(l, r, counter);
  return counter;
}

/* The kernel begun makes the states of one step; behind it the loop ends, and the last states are kept. */
static void close_steps(cy_lowering *l, cy_rnn *r, cy_dim counter, cy_step **after) {
  r->h = 0;
  r->c = 1;
  r->step = cy_x_dim(r->b.k, counter);
  cy_rnn_step(r);
  cy_kb_launch(&r->b, true);
  r->step = 0;
  l->tail = after;
  places_at(l, r, r->x->dim[0]);
  keep_state(l, r, 1, &r->h_old);
  keep_state(l, r, 2, &r->c_old);
}

/* The task's block of units. A worker alone goes through them forwards and backwards by turns: it begins with what it
 * read of R last, which is still in its cache. */
static cy_expr block_of_step(cy_lowering *l, cy_rnn *r, cy_dim counter) {
  cy_graph *g = l->g;
  cy_kernel *k = r->b.k;
  cy_dim blocks = cy_dim_div(g, r->hidden, r->gate_part), one = cy_dim_const(g, 1);
  cy_dim odd = cy_dim_mod(g, counter, cy_dim_const(g, 2)), alone = cy_dim_div(g, one, cy_dim_sym(g, l->p->workers));
  cy_dim back = cy_dim_mul(g, odd, alone);
  cy_expr forwards = cy_kb_grid_index(&r->b, blocks), way = cy_x_dim(k, cy_dim_sub(g, one, cy_dim_muli(g, back, 2)));
  cy_expr begin = cy_x_dim(k, cy_dim_mul(g, back, cy_dim_addi(g, blocks, -1)));
  return cy_x_bin(k, CY_OP_add, cy_x_bin(k, CY_OP_mul, forwards, way), begin);
}

static void lower_steps(cy_lowering *l, cy_rnn *r) {
  cy_step **after;
  r->gate_part = units_of(l->g, r);
  cy_dim counter = open_steps(l, r, &after);
  cy_kb_init(&r->b, l, r->name);
  r->block = block_of_step(l, r, counter);
  r->first = first_element(r);
  cy_rnn_add_scratch(r);
  close_steps(l, r, counter, after);
}

/* ---- products ---- */

/* The states times R as it is: packed by the target for this batch. */
static void whole_product(cy_rnn *r, cy_contraction *c) {
  cy_lowering *l = r->b.l;
  const cy_place *weights = cy_lower_place(l, r->n->in[CY_RNN_R]);
  c->b = cy_kb_arg(&r->b, weights, r->dtype, CY_ARG_READ);
  c->b_const = r->n->in[CY_RNN_R];
  c->n = r->wide;
  c->b_n = weights->stride[0];
  c->b_k = weights->stride[1];
}

/* The states times every panel: for any batch, beside other kernels. */
static void panel_products(cy_rnn *r, cy_contraction *c) {
  cy_graph *g = r->b.l->g;
  c->b = cy_kb_arg(&r->b, &r->weights, r->dtype, CY_ARG_READ);
  c->n = r->panel;
  c->b_n = r->weights.stride[2];
  c->b_k = r->weights.stride[1];
  c->nbatch = 1;
  c->batch[0] = cy_dim_div(g, r->wide, r->panel);
  c->a_batch[0] = cy_dim_const(g, 0);
  c->b_batch[0] = r->weights.stride[0];
}

/* gates = state * R^T. False: the target has no generator for it. */
static bool build_product(cy_lowering *l, cy_rnn *r, bool panels) {
  cy_kb_init(&r->b, l, "gates");
  cy_kernel *k = r->b.k;
  cy_contraction *c = cy_kernel_contraction(k);
  c->kind = CY_CONTRACT_MATMUL;
  c->a = cy_kb_arg(&r->b, &r->h_old, r->dtype, CY_ARG_READ);
  c->m = r->product_rows;
  c->k = c->a_m = r->hidden;
  c->a_k = cy_dim_const(l->g, 1);
  if (panels)
    panel_products(r, c);
  else
    whole_product(r, c);
  c->acc = cy_kernel_add_local(k, r->dtype);
  cy_dim extent[3] = {panels ? c->batch[0] : 0, c->m, c->n};
  cy_expr idx[3];
  for (int i = panels ? 0 : 1; i < 3; i++) {
    c->out_var[c->nout_vars] = cy_kernel_add_var(k, extent[i]);
    idx[i] = cy_x_var(k, c->out_var[c->nout_vars++]);
  }
  if (!cy_caps_supports(l->caps, k))
    return false;
  if (panels)
    idx[2] = cy_x_bin(k, CY_OP_add, cy_x_bin(k, CY_OP_mul, idx[0], cy_x_dim(k, r->panel)), idx[2]);
  cy_kb_store(&r->b, &r->gates_at, r->dtype, 2, idx + 1, cy_x_local(k, c->acc));
  return true;
}

/* Elements of the batch from which on a product is better than what has a row for each. */
static int64_t product_batch(const cy_lowering *l, const cy_rnn *r) {
  if (l->busy_parts)
    return r->large ? 1 : l->busy_parts / 2;
  return l->caps->tile_columns ? CY_RNN_MAX_ROWS + 1 : 4;
}

/* May there be products, for batches of so many elements? */
static bool product_choose(const cy_lowering *l, const cy_rnn *r, int64_t batch) {
  int64_t hidden, wide;
  const cy_value *weights = cy_value_of(l->g, r->n->in[CY_RNN_R]);
  if (!cy_lower_generates(l) || r->dtype != CY_F32 || weights->type.dtype != CY_F32 || !weights->data.bytes ||
      !cy_dim_is_const(l->g, r->hidden, &hidden) || !cy_dim_is_const(l->g, r->wide, &wide))
    return false;
  if (r->cell == CY_CELL_GRU && !cy_rnn_resets_after(r))
    return false;
  return batch * hidden * wide >= MIN_PRODUCT;
}

static void lower_product(cy_lowering *l, cy_rnn *r, bool panels) {
  cy_dim wide[2] = {r->x->dim[1], r->wide};
  cy_step **after;
  r->gates_at = cy_lower_temp(l, r->dtype, wide, 2);
  cy_dim counter = open_steps(l, r, &after);
  if (!build_product(l, r, panels))
    cy_bug("a product of f32 with constants has no generator");
  cy_kb_launch(&r->b, false);
  cy_kb_init(&r->b, l, r->name);
  r->first = first_element(r);
  close_steps(l, r, counter, after);
}

/* ---- the choice ---- */

/* Does a step take over ten times what a launch does? */
static bool is_large(const cy_lowering *l, const cy_rnn *r) {
  const cy_type *t = cy_lower_type(l, r->n->in[CY_RNN_R]);
  int64_t hidden, wide, bytes = cy_dtype_is_float((cy_dtype)t->dtype) ? 4 : 1;
  return cy_dim_is_const(l->g, r->hidden, &hidden) && cy_dim_is_const(l->g, r->wide, &wide) &&
         hidden * wide * bytes >= LARGE_R;
}

static const char *name_of(const cy_rnn *r) {
  return r->cell == CY_CELL_LSTM ? "lstm" : r->cell == CY_CELL_GRU ? "gru" : "rnn";
}

/* Steps for tasks of `rows` elements, or of fewer, if it turns out at run time that a task has fewer. */
static void lower_rows(cy_lowering *l, cy_rnn *r, int rows, cy_dim count) {
  int64_t min, max;
  cy_dim_range(l->g, count, &min, &max);
  while (rows > 1 && max < rows)
    rows--;
  cy_branch fewer;
  bool sure = rows == 1 || min >= rows;
  if (!sure)
    cy_lower_branch(l, cy_dim_div(l->g, count, cy_dim_const(l->g, rows)), &fewer);
  r->rows = rows;
  r->name = rows == 1 ? name_of(r) : cy_arena_printf(cy_graph_arena(l->g), "%s_%d", name_of(r), rows);
  if (r->steps)
    lower_steps(l, r);
  else
    lower_walk(l, r);
  if (sure)
    return;
  cy_lower_otherwise(l, &fewer);
  lower_rows(l, r, rows - 1, count);
  cy_lower_join(l, &fewer);
}

/* Tasks of a walk share the batch among the workers, those of steps the units. */
static void lower_tasks(cy_lowering *l, cy_rnn *r) {
  cy_dim batch = r->x->dim[1], workers = cy_dim_sym(l->g, l->p->workers);
  bool tiles = l->o->level > 0 && l->caps->tile_columns;
  r->steps = steps_choose(l->g, r);
  lower_rows(l, r, tiles ? CY_RNN_MAX_ROWS : 1, r->steps ? batch : cy_dim_cdiv(l->g, batch, workers));
}

static void lower_all_products(cy_lowering *l, cy_rnn *r, cy_dim rows, bool panels) {
  r->steps = r->product = true;
  r->product_rows = rows;
  r->rows = 1;
  r->name = name_of(r);
  lower_product(l, r, panels);
  r->product = false;
}

/* Products whatever the batch is: of few elements, too, where the target has a generator of its own for these. */
static void lower_any_products(cy_lowering *l, cy_rnn *r) {
  cy_dim batch = r->x->dim[1], few = cy_dim_min(l->g, batch, cy_dim_const(l->g, l->caps->few_rows));
  cy_branch many;
  bool always = cy_lower_branch_from(l, batch, l->caps->few_rows + 1, &many);
  lower_all_products(l, r, batch, false);
  if (always)
    return;
  cy_lower_otherwise(l, &many);
  lower_all_products(l, r, few, false);
  cy_lower_join(l, &many);
}

/* A size that is not 0 where a product is best: for many elements, but where R is small and there are several workers:
 * steps are too short to be shared then. */
static cy_dim product_wins(cy_lowering *l, const cy_rnn *r) {
  cy_dim many = cy_dim_div(l->g, r->x->dim[1], cy_dim_const(l->g, product_batch(l, r)));
  cy_dim alone = cy_dim_div(l->g, cy_dim_const(l->g, 1), cy_dim_sym(l->g, l->p->workers));
  return r->large ? many : cy_dim_mul(l->g, many, alone);
}

void cy_lower_recurrent(cy_lowering *l, cy_node root, cy_val root_value, cy_val target) {
  (void)root_value;
  (void)target;
  cy_rnn r = {.n = cy_node_of(l->g, root)};
  r.cell = (int)cy_attr_get_int(r.n, CY_ATTR_cell, CY_CELL_LSTM);
  r.gates = r.cell == CY_CELL_LSTM ? 4 : r.cell == CY_CELL_GRU ? 3 : 1;
  r.hidden = cy_dim_const(l->g, cy_attr_get_int(r.n, CY_ATTR_hidden, 1));
  r.wide = cy_dim_muli(l->g, r.hidden, r.gates);
  r.x = cy_lower_type(l, r.n->in[CY_RNN_X]);
  r.dtype = cy_compute_dtype((cy_dtype)r.x->dtype);
  for (uint32_t i = 0; i < r.n->nout; i++)
    if (l->uses.start[r.n->out[i]] != l->uses.start[r.n->out[i] + 1])
      cy_lower_alloc(l, r.n->out[i]);
  r.large = is_large(l, &r);
  cy_rnn_place_weights(l, &r);
  int64_t batch, min = product_batch(l, &r);
  bool known = cy_dim_is_const(l->g, r.x->dim[1], &batch), shared = l->caps->tile_columns && r.panel != r.wide;
  bool product = product_choose(l, &r, known ? batch : min);
  cy_dim wins = product_wins(l, &r);
  if (product && known && batch >= min && (r.large || !shared)) {
    lower_all_products(l, &r, r.x->dim[1], false);
  } else if (product && !known && l->busy_parts && r.large) {
    lower_any_products(l, &r);
  } else if (!product || !shared || cy_dim_is(l->g, wins, 0)) {
    lower_tasks(l, &r);
  } else {
    cy_branch branch;
    cy_lower_branch(l, wins, &branch);
    lower_all_products(l, &r, r.x->dim[1], true);
    cy_lower_otherwise(l, &branch);
    lower_tasks(l, &r);
    cy_lower_join(l, &branch);
  }
}
