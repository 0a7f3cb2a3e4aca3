/* lower_control.c - branches, loops and runtime calls as host steps.
 *
 * Blocks read outer values where they lie. What leaves a block is copied into the places of the op's outputs; what a
 * loop carries lives in one buffer per value, to which each turn's results are copied at its end. Sizes that change
 * from turn to turn are symbols of kind COUNT, set by steps of their own.
 */
#include "lower_int.h"

cy_sym cy_lower_read_scalar(cy_lowering *l, cy_val v) {
  cy_sym sym = cy_sym_new(l->g, NULL, CY_SYM_FREE);
  cy_lower_read(l, cy_lower_place(l, v), (cy_dtype)cy_lower_type(l, v)->dtype, sym);
  return sym;
}

static cy_step *set_symbol(cy_lowering *l, cy_sym sym, cy_dim value) {
  cy_step *s = cy_lower_step(l, CY_STEP_SET);
  s->sym = sym;
  s->limit = value;
  return s;
}

cy_sym cy_lower_count_symbol(cy_lowering *l, cy_dim d, cy_val v) {
  const cy_term *terms;
  if (cy_dim_terms(l->g, d, &terms) != 1 || terms[0].coef != 1 || terms[0].natoms != 1)
    return 0;
  const cy_atom *a = cy_dim_atom(l->g, terms[0].atoms[0]);
  if (a->kind != CY_ATOM_SYM)
    return 0;
  const cy_sym_info *s = cy_sym_of(l->g, a->sym);
  return s->kind == CY_SYM_COUNT && s->value == v ? a->sym : 0;
}

/* A place for a value that several blocks write: never a model output itself (those are copied at the end). */
static void place_joined(cy_lowering *l, cy_val v) {
  if (!l->place[v].placed)
    l->place[v] = cy_lower_unsized(l, cy_lower_type(l, v));
}

/* Gives v's symbols the sizes of the source (type ft), makes its dynamic buffer that large, and copies. */
static void move_place(cy_lowering *l, cy_val v, const cy_type *ft, cy_place source) {
  const cy_type *t = cy_lower_type(l, v);
  if (cy_lower_is_dynamic(l, t)) {
    if (!cy_lower_is_contiguous(l, &source, ft)) {
      cy_place dense = cy_lower_temp(l, (cy_dtype)ft->dtype, ft->dim, ft->rank);
      cy_lower_copy(l, &source, &dense, ft);
      source = dense;
    }
    cy_sym staged[CY_MAX_RANK] = {0}, syms[CY_MAX_RANK] = {0};
    for (int i = 0; i < t->rank; i++) {
      syms[i] = cy_lower_count_symbol(l, t->dim[i], v);
      if (!syms[i])
        continue;
      staged[i] = cy_sym_new(l->g, NULL, CY_SYM_FREE);
      set_symbol(l, staged[i], ft->dim[i]);
    }
    for (int i = 0; i < t->rank; i++)
      if (syms[i])
        set_symbol(l, syms[i], cy_dim_sym(l->g, staged[i]));
    cy_lower_size(l, &l->place[v]);
    for (int i = 0; i < t->rank; i++)
      source.stride[i] = l->place[v].stride[i]; /* the same dense tensor, by the new symbols */
  }
  cy_lower_copy(l, &source, &l->place[v], t);
}

static void move_into(cy_lowering *l, cy_val v, cy_val from) {
  move_place(l, v, cy_lower_type(l, from), *cy_lower_place(l, from));
}

void cy_lower_if(cy_lowering *l, cy_node node) {
  const cy_node_info *n = cy_node_of(l->g, node);
  static const cy_attr_key keys[2] = {CY_ATTR_then, CY_ATTR_else};
  cy_sym cond = cy_lower_read_scalar(l, n->in[0]);
  for (uint32_t i = 0; i < n->nout; i++)
    place_joined(l, n->out[i]);
  cy_step *step = cy_lower_step(l, CY_STEP_IF);
  step->sym = cond;
  cy_step **after = l->tail;
  for (int side = 0; side < 2; side++) {
    cy_block block = cy_attr_find(n, keys[side])->block;
    const cy_block_info *b = cy_block_of(l->g, block);
    l->tail = side ? &step->else_steps : &step->then_steps;
    *(side ? &step->else_block : &step->then_block) = block;
    cy_lower_steps(l, block);
    for (uint32_t i = 0; i < n->nout; i++)
      move_into(l, n->out[i], b->results[i]);
  }
  l->tail = after;
  l->node = node;
}

/* ---- branches by sizes ---- */

void cy_lower_branch(cy_lowering *l, cy_dim d, cy_branch *out) {
  cy_sym cond = cy_sym_new(l->g, NULL, CY_SYM_FREE);
  set_symbol(l, cond, d);
  out->step = cy_lower_step(l, CY_STEP_IF);
  out->step->sym = cond;
  out->after = l->tail;
  l->tail = &out->step->then_steps;
}

bool cy_lower_branch_from(cy_lowering *l, cy_dim d, int64_t least, cy_branch *out) {
  int64_t lo, hi;
  cy_dim_range(l->g, d, &lo, &hi);
  if (lo < least)
    cy_lower_branch(l, cy_dim_div(l->g, d, cy_dim_const(l->g, least)), out);
  return lo >= least;
}

void cy_lower_otherwise(cy_lowering *l, cy_branch *b) { l->tail = &b->step->else_steps; }

void cy_lower_join(cy_lowering *l, cy_branch *b) { l->tail = b->after; }

/* ---- loops ---- */

enum { FIRST_TURNS = 256 }; /* room of a scan output at first */

static void store_scalar(cy_lowering *l, const cy_place *to, cy_dtype dtype, cy_dim value) {
  cy_kb b;
  cy_kb_init(&b, l, "scalar");
  cy_kb_store(&b, to, dtype, 0, NULL, cy_x_cast(b.k, cy_x_dim(b.k, value), dtype));
  cy_kb_launch(&b, true);
}

static cy_dim trip_limit(cy_lowering *l, const cy_node_info *n) {
  uint32_t count;
  if (!n->in[0])
    return cy_dim_const(l->g, INT64_MAX);
  const cy_dim *known = cy_value_elems(l->g, n->in[0], &count);
  cy_dim limit = known ? known[0] : cy_dim_sym(l->g, cy_lower_read_scalar(l, n->in[0]));
  return cy_dim_max(l->g, limit, cy_dim_const(l->g, 0));
}

/* A scan output collects one element per turn; it is dense over [turns, ..]. Where a condition may end the loop, it has
 * room for some turns first, and for twice as many whenever they are used up. Sizes of its elements that only running
 * tells are those of the first turn. */
static void place_scan(cy_lowering *l, cy_val v, cy_dim limit) {
  const cy_type *t = cy_lower_type(l, v);
  cy_sym turns = cy_lower_count_symbol(l, t->dim[0], v);
  place_joined(l, v);
  if (turns)
    set_symbol(l, turns, cy_dim_min(l->g, limit, cy_dim_const(l->g, FIRST_TURNS)))->guess = true;
  for (int i = 1; i < t->rank; i++)
    if (cy_lower_count_symbol(l, t->dim[i], v))
      set_symbol(l, cy_lower_count_symbol(l, t->dim[i], v), cy_dim_const(l->g, 0))->guess = true;
  cy_lower_size(l, &l->place[v]);
}

/* In the first turn: what its element (of type ft) tells of the sizes of scan output v. */
static void size_scan(cy_lowering *l, cy_val v, const cy_type *ft, cy_sym counter) {
  const cy_type *t = cy_lower_type(l, v);
  bool unknown = false;
  for (int i = 1; i < t->rank; i++)
    unknown |= cy_lower_count_symbol(l, t->dim[i], v) != 0;
  if (!unknown)
    return;
  cy_dim one = cy_dim_const(l->g, 1);
  cy_branch first;
  cy_lower_branch(l, cy_dim_sub(l->g, one, cy_dim_min(l->g, one, cy_dim_sym(l->g, counter))), &first);
  for (int i = 1; i < t->rank; i++)
    if (cy_lower_count_symbol(l, t->dim[i], v))
      set_symbol(l, cy_lower_count_symbol(l, t->dim[i], v), ft->dim[i - 1]);
  cy_lower_size(l, &l->place[v]);
  cy_lower_join(l, &first);
}

/* Makes room for turn `counter` of scan output v. */
static void grow_scan(cy_lowering *l, cy_val v, cy_dim limit, cy_sym counter) {
  cy_graph *g = l->g;
  const cy_type *t = cy_lower_type(l, v);
  cy_sym turns = cy_lower_count_symbol(l, t->dim[0], v);
  if (!turns)
    return;
  cy_sym used = cy_sym_new(g, NULL, CY_SYM_FREE);
  cy_dim zero = cy_dim_const(g, 0), one = cy_dim_const(g, 1);
  cy_dim left = cy_dim_sub(g, cy_dim_sym(g, turns), cy_dim_sym(g, counter));
  cy_branch full;
  cy_lower_branch(l, cy_dim_sub(g, one, cy_dim_min(g, one, cy_dim_max(g, left, zero))), &full);
  cy_type old = *t;
  set_symbol(l, used, cy_dim_sym(g, turns));
  old.dim[0] = cy_dim_sym(g, used);
  cy_place copy = cy_lower_temp(l, (cy_dtype)old.dtype, old.dim, old.rank);
  cy_lower_copy(l, &l->place[v], &copy, &old);
  set_symbol(l, turns, cy_dim_min(g, limit, cy_dim_muli(g, old.dim[0], 2)));
  cy_lower_size(l, &l->place[v]);
  cy_lower_copy(l, &copy, &l->place[v], &old);
  cy_lower_join(l, &full);
}

/* Behind the loop: the sizes are no guesses any more. */
static void known_scan(cy_lowering *l, cy_val v, cy_sym counter) {
  const cy_type *t = cy_lower_type(l, v);
  for (int i = 0; i < t->rank; i++) {
    cy_sym size = cy_lower_count_symbol(l, t->dim[i], v);
    if (size)
      set_symbol(l, size, cy_dim_sym(l->g, i ? size : counter));
  }
}

static void append_scan(cy_lowering *l, cy_val v, cy_val from, cy_dim limit, cy_sym counter) {
  const cy_type *ft = cy_lower_type(l, from);
  size_scan(l, v, ft, counter);
  grow_scan(l, v, limit, counter);
  cy_place at = l->place[v];
  at.offset = cy_dim_add(l->g, at.offset, cy_dim_mul(l->g, at.stride[0], cy_dim_sym(l->g, counter)));
  for (int i = 0; i < ft->rank; i++)
    at.stride[i] = at.stride[i + 1];
  cy_lower_copy(l, cy_lower_place(l, from), &at, ft);
}

/* Where a turn's result lies; one that is a carried value's own buffer is saved first, before the moves overwrite it.
 */
static cy_place staged_result(cy_lowering *l, cy_val result, const cy_block_info *body) {
  cy_place at = *cy_lower_place(l, result);
  for (uint32_t i = 0; i < body->nparams; i++) {
    if (at.buffer != l->place[body->params[i]].buffer)
      continue;
    const cy_type *t = cy_lower_type(l, result);
    cy_place copy = cy_lower_temp(l, (cy_dtype)t->dtype, t->dim, t->rank);
    cy_lower_copy(l, &at, &copy, t);
    return copy;
  }
  return at;
}

/* The symbols of sizes of what a loop carries, and what keeps their values of this turn while the moves set them. */
typedef struct turn {
  cy_sym *sym;
  cy_dim *kept;
  uint32_t n;
} turn;

static turn keep_sizes(cy_lowering *l, const cy_block_info *body) {
  uint32_t most = body->nparams * CY_MAX_RANK;
  turn kept = {CY_NEW_ARRAY(l->arena, cy_sym, most + 1), CY_NEW_ARRAY(l->arena, cy_dim, most + 1), 0};
  for (uint32_t k = 0; k < body->nparams; k++) {
    const cy_type *t = cy_lower_type(l, body->params[k]);
    for (int i = 0; i < t->rank; i++) {
      cy_sym sym = cy_lower_count_symbol(l, t->dim[i], body->params[k]);
      if (!sym)
        continue;
      cy_sym copy = cy_sym_new(l->g, NULL, CY_SYM_FREE);
      set_symbol(l, copy, t->dim[i]);
      kept.sym[kept.n] = sym;
      kept.kept[kept.n++] = cy_dim_sym(l->g, copy);
    }
  }
  return kept;
}

static cy_dim of_turn(cy_lowering *l, const turn *kept, cy_dim d) {
  for (uint32_t i = 0; i < kept->n; i++)
    d = cy_dim_subst(l->g, d, kept->sym[i], kept->kept[i]);
  return d;
}

/* Gives the carried values what the body's results are. Any of these may be of a size that another's move changes. */
static void move_carried(cy_lowering *l, const cy_block_info *body, uint32_t carried) {
  cy_place *results = CY_NEW_ARRAY(l->arena, cy_place, carried + 1);
  for (uint32_t i = 0; i < carried; i++)
    results[i] = staged_result(l, body->results[1 + i], body);
  turn kept = keep_sizes(l, body);
  for (uint32_t i = 0; i < carried; i++) {
    cy_type type = *cy_lower_type(l, body->results[1 + i]);
    results[i].offset = of_turn(l, &kept, results[i].offset);
    for (int k = 0; k < type.rank; k++) {
      type.dim[k] = of_turn(l, &kept, type.dim[k]);
      results[i].stride[k] = of_turn(l, &kept, results[i].stride[k]);
    }
    move_place(l, body->params[2 + i], &type, results[i]);
  }
}

void cy_lower_loop(cy_lowering *l, cy_node node) {
  const cy_node_info *n = cy_node_of(l->g, node);
  const cy_block_info *body = cy_block_of(l->g, cy_attr_find(n, CY_ATTR_body)->block);
  uint32_t carried = n->nin - 2;
  cy_dim limit = trip_limit(l, n);
  cy_sym cond = cy_sym_new(l->g, NULL, CY_SYM_FREE), counter = cy_sym_new(l->g, NULL, CY_SYM_FREE);
  if (n->in[1]) {
    cy_sym given = cy_lower_read_scalar(l, n->in[1]);
    set_symbol(l, cond, cy_dim_sym(l->g, given));
  } else {
    set_symbol(l, cond, cy_dim_const(l->g, 1));
  }
  for (uint32_t i = 0; i < body->nparams; i++)
    place_joined(l, body->params[i]);
  for (uint32_t i = 0; i < carried; i++)
    move_into(l, body->params[2 + i], n->in[2 + i]);
  for (uint32_t i = carried; i < n->nout; i++)
    place_scan(l, n->out[i], limit);
  set_symbol(l, counter, cy_dim_const(l->g, 0));

  cy_step *step = cy_lower_step(l, CY_STEP_LOOP);
  step->sym = counter;
  step->cond = cond;
  step->limit = limit;
  step->then_block = cy_attr_find(n, CY_ATTR_body)->block;
  cy_step **after = l->tail;
  l->tail = &step->then_steps;
  store_scalar(l, &l->place[body->params[0]], CY_I64, cy_dim_sym(l->g, counter));
  store_scalar(l, &l->place[body->params[1]], CY_BOOL, cy_dim_const(l->g, 1));
  for (uint32_t i = 0; i < body->nparams; i++)
    cy_lower_read_symbols(l, body->params[i]);
  cy_lower_steps(l, step->then_block);
  for (uint32_t i = carried; i < n->nout; i++)
    append_scan(l, n->out[i], body->results[1 + i], limit, counter);
  cy_sym go_on = cy_lower_read_scalar(l, body->results[0]);
  move_carried(l, body, carried);
  set_symbol(l, cond, cy_dim_sym(l->g, go_on));
  l->tail = after;
  l->node = node;

  for (uint32_t i = 0; i < n->nout; i++) {
    cy_val v = n->out[i];
    if (i >= carried) {
      known_scan(l, v, counter);
      continue;
    }
    place_joined(l, v);
    move_into(l, v, body->params[2 + i]);
  }
}

/* ---- runtime calls ---- */

cy_place cy_lower_dense(cy_lowering *l, cy_val v) {
  const cy_type *t = cy_lower_type(l, v);
  cy_place p = *cy_lower_place(l, v);
  if (!cy_lower_is_contiguous(l, &p, t)) {
    cy_place dense = cy_lower_temp(l, (cy_dtype)t->dtype, t->dim, t->rank);
    cy_lower_copy(l, &p, &dense, t);
    p = dense;
  }
  return p;
}

static cy_call_tensor operand(cy_lowering *l, cy_val v) {
  const cy_type *t = cy_lower_type(l, v);
  cy_place p = cy_lower_dense(l, v);
  return (cy_call_tensor){cy_lower_bind(l, &p, (cy_dtype)t->dtype), *t};
}

/* The attributes in the order in which runtime/rt_ops.def documents them. */
static const cy_attr *call_attrs(cy_lowering *l, const cy_node_info *n, uint32_t *out_n) {
  static const struct {
    cy_op op;
    cy_attr_key keys[4]; /* whole numbers, 0 when absent */
  } rows[] = {
      {CY_OP_topk, {CY_ATTR_axis, CY_ATTR_largest, CY_ATTR_sorted}},
      {CY_OP_unique, {CY_ATTR_axis, CY_ATTR_sorted}},
      {CY_OP_non_max_suppression, {CY_ATTR_center_point_box}},
      {CY_OP_require_found, {CY_ATTR_limit}},
      {CY_OP_string_normalize, {CY_ATTR_letter_case, CY_ATTR_case_sensitive}},
      {CY_OP_string_split, {CY_ATTR_limit}},
      {CY_OP_string_tokens, {CY_ATTR_between, CY_ATTR_min_length}},
      {CY_OP_count_ngrams, {CY_ATTR_mode, CY_ATTR_min_length, CY_ATTR_max_length, CY_ATTR_max_skip}},
      {CY_OP_seq_concat, {CY_ATTR_axis, CY_ATTR_new_axis}},
      {CY_OP_seq_split, {CY_ATTR_axis, CY_ATTR_keepdims}},
  };
  cy_attr *attrs = CY_NEW_ARRAY(cy_graph_arena(l->g), cy_attr, 5);
  *out_n = 0;
  if (n->op == CY_OP_unique)
    attrs[(*out_n)++] = cy_attr_int(CY_ATTR_axis, cy_attr_find(n, CY_ATTR_axis) != NULL);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    for (int k = 0; k < 4 && rows[i].op == n->op && rows[i].keys[k]; k++)
      attrs[(*out_n)++] = cy_attr_int(rows[i].keys[k], cy_attr_get_int(n, rows[i].keys[k], 0));
  return attrs;
}

void cy_lower_call(cy_lowering *l, cy_node node) {
  const cy_node_info *n = cy_node_of(l->g, node);
  cy_arena *arena = cy_graph_arena(l->g);
  cy_call_tensor *in = CY_NEW_ARRAY(arena, cy_call_tensor, n->nin + 1),
                 *out = CY_NEW_ARRAY(arena, cy_call_tensor, n->nout);
  for (uint32_t i = 0; i < n->nin; i++)
    if (n->in[i])
      in[i] = operand(l, n->in[i]);
  for (uint32_t i = 0; i < n->nout; i++) {
    const cy_type *t = cy_lower_type(l, n->out[i]);
    place_joined(l, n->out[i]);
    out[i] = (cy_call_tensor){cy_lower_bind(l, &l->place[n->out[i]], (cy_dtype)t->dtype), *t};
  }
  cy_step *s = cy_lower_step(l, CY_STEP_CALL);
  s->call = cy_op_of((cy_op)n->op)->name;
  s->in = in;
  s->nin = n->nin;
  s->out = out;
  s->nout = n->nout;
  s->attrs = call_attrs(l, n, &s->nattrs);
}
