/* SPDX-License-Identifier: Apache-2.0 */
/* lower_write.c - values that are another one, parts of it written anew: rows of a cache, scattered elements.
 *
 * In: write_rows, scatter_elements, scatter_nd. Out: a kernel that copies, and one that writes. The copy is left out where
 * the other value lies there already: when running, if an output of the model is bound to the memory of the input that it
 * is made of (a step SHARED asks); or always, if lowering a loop gave both one place.
 * Which outputs may do so is known once all is lowered: no step behind the copy may read that input, none before it write
 * that output (cy_lower_check_shares).
 */
#include "lower_int.h"
#include "passes/pass_int.h"

static const cy_node_info *node_of(cy_lowering *l, cy_node n) { return cy_node_of(l->g, n); }
#define bin(b, op, x, y) cy_x_bin((b)->k, op, x, y)

/* ---- memory of an input ---- */

/* The model input that v is, as a whole and in its order, or -1. */
static int input_of(cy_lowering *l, cy_val v) {
  const cy_node_info *n = cy_def(l->g, v);
  while (n && (n->op == CY_OP_reshape || n->op == CY_OP_identity)) {
    v = n->in[0];
    n = cy_def(l->g, v);
  }
  const cy_port_info *ports;
  uint32_t count = cy_graph_inputs(l->g, &ports);
  for (uint32_t i = 0; i < count; i++)
    if (ports[i].value == v && !cy_value_of(l->g, v)->data.bytes)
      return (int)i;
  return -1;
}

/* Opens the branch of what is done where `target` does not lie in the memory of x; false: it never can. */
static bool unless_shared(cy_lowering *l, cy_val x, cy_val target, cy_branch *out) {
  const cy_place *to = cy_lower_place(l, target), *from = &l->place[x];
  const cy_buffer *b = &l->p->buffers[to->buffer];
  const cy_type *t = cy_lower_type(l, x);
  int input = input_of(l, x);
  if (input < 0 || b->kind != CY_BUF_OUTPUT || node_of(l, l->node)->block != 1 || !from->placed ||
      l->p->buffers[from->buffer].kind != CY_BUF_INPUT || !cy_lower_is_contiguous(l, from, t) ||
      cy_dtype_of((cy_dtype)t->dtype)->bits < 8 || t->dtype == CY_STRING || t->dtype == CY_REF)
    return false;
  cy_step *s = cy_lower_step(l, CY_STEP_SHARED);
  s->sym = cy_sym_new(l->g, NULL, CY_SYM_FREE);
  s->index = b->index;
  s->limit = b->bytes;
  s->bind = CY_NEW(cy_graph_arena(l->g), cy_bind);
  *s->bind = (cy_bind){from->buffer, cy_dim_const(l->g, 0)};
  s->nbind = 1;
  cy_program *p = l->p;
  p->shares = cy_arena_grow(cy_graph_arena(l->g), p->shares, p->nshares, &p->shares_cap, sizeof *p->shares);
  p->shares[p->nshares++] = (cy_memory_share){(uint32_t)input, b->index, s};
  out->step = cy_lower_step(l, CY_STEP_IF);
  out->step->sym = s->sym;
  out->after = l->tail;
  l->tail = &out->step->else_steps;
  return true;
}

typedef struct share_check {
  const cy_program *p;
  const cy_memory_share *share;
  int32_t last; /* position of the last step of the branch that copies */
  bool bad;
} share_check;

static void last_step(void *last, cy_step *s) { *(int32_t *)last = s->position; }

static void check_use(share_check *c, const cy_step *s, uint32_t buffer) {
  const cy_buffer *b = &c->p->buffers[buffer];
  c->bad |= b->kind == CY_BUF_INPUT && b->index == c->share->input && s->position > c->last;
  c->bad |= b->kind == CY_BUF_OUTPUT && b->index == c->share->output && s->position < c->share->step->position;
}

static void check_step(void *context, cy_step *s) {
  share_check *c = context;
  for (uint32_t i = 0; i < s->nbind; i++)
    check_use(c, s, s->bind[i].buffer);
  for (uint32_t i = 0; i < s->nin; i++)
    if (s->in[i].type.dtype != CY_NONE)
      check_use(c, s, s->in[i].at.buffer);
  for (uint32_t i = 0; i < s->nout; i++)
    if (s->out[i].type.dtype != CY_NONE)
      check_use(c, s, s->out[i].at.buffer);
}

void cy_lower_check_shares(cy_lowering *l) {
  cy_program *p = l->p;
  uint32_t sound = 0;
  for (uint32_t i = 0; i < p->nshares; i++) {
    cy_memory_share share = p->shares[i];
    share_check c = {.p = p, .share = &share, .last = share.step->next->position};
    cy_steps_visit(share.step->next->else_steps, last_step, &c.last);
    cy_steps_visit(p->steps, check_step, &c);
    if (!c.bad) {
      p->shares[sound++] = share;
      continue;
    }
    share.step->kind = CY_STEP_SET; /* it is never so */
    share.step->limit = cy_dim_const(l->g, 0);
    share.step->nbind = 0;
  }
  p->nshares = sound;
}

/* ---- rows ---- */

/* Where the first row of element idx[0] of the first axis goes. */
static cy_expr first_place(cy_kb *b, const cy_node_info *n, const cy_expr *idx, int axis) {
  cy_graph *g = b->l->g;
  cy_dim places = cy_lower_type(b->l, n->out[0])->dim[axis], rows = cy_lower_type(b->l, n->in[1])->dim[axis];
  bool single = cy_dim_is(g, cy_lower_type(b->l, n->in[2])->dim[0], 1);
  cy_expr element = single ? cy_x_index(b->k, 0) : idx[0];
  cy_expr start = cy_x_cast(b->k, cy_lower_at(b, n->in[2], &element), CY_I64);
  if (cy_attr_get_int(n, CY_ATTR_mode, 0) == CY_WRITE_WRAP)
    return start;
  return cy_lower_clamp(b, start, cy_dim_addi(g, cy_dim_sub(g, places, rows), 1));
}

/* Zeros behind x, where target is longer along axis. */
static void fill_rest(cy_lowering *l, cy_val x, cy_val target, int axis) {
  const cy_type *t = cy_lower_type(l, target);
  cy_dim start = cy_lower_type(l, x)->dim[axis], more = cy_dim_sub(l->g, t->dim[axis], start);
  if (cy_dim_is(l->g, more, 0))
    return;
  cy_kb b;
  cy_kb_init(&b, l, "fill");
  cy_expr idx[CY_MAX_RANK];
  for (int i = 0; i < t->rank; i++)
    idx[i] = cy_kb_grid_index(&b, i == axis ? more : t->dim[i]);
  idx[axis] = bin(&b, CY_OP_add, idx[axis], cy_x_dim(b.k, start));
  cy_expr zero = cy_x_const(b.k, cy_compute_dtype((cy_dtype)t->dtype), 0);
  cy_kb_store(&b, cy_lower_place(l, target), (cy_dtype)t->dtype, t->rank, idx, zero);
  cy_kb_launch(&b, true);
}

/* Makes target, which may be longer along the axis in which n writes rows, what n's first input is. */
static void copy_base(cy_lowering *l, const cy_node_info *n, cy_val target) {
  cy_val x = n->in[0];
  const cy_type *t = cy_lower_type(l, x);
  int axis = (int)cy_attr_get_int(n, CY_ATTR_axis, 0);
  cy_branch apart;
  if (cy_lower_same_place(l, &l->place[x], &l->place[target], t))
    return;
  bool may_share = unless_shared(l, x, target, &apart);
  cy_kb b;
  cy_kb_init(&b, l, "copy");
  cy_expr idx[CY_MAX_RANK];
  for (int i = 0; i < t->rank; i++)
    idx[i] = cy_kb_grid_index(&b, t->dim[i]);
  cy_expr value = cy_lower_at(&b, x, idx);
  if (n->op == CY_OP_write_rows && cy_attr_get_int(n, CY_ATTR_mode, 0) == CY_WRITE_LAST) {
    cy_expr before = bin(&b, CY_OP_lt, idx[axis], first_place(&b, n, idx, axis));
    value = cy_x_select(b.k, before, value, cy_x_const(b.k, cy_expr_of(b.k, value)->dtype, 0));
  }
  cy_kb_store(&b, cy_lower_place(l, target), (cy_dtype)t->dtype, t->rank, idx, value);
  cy_kb_launch(&b, true);
  if (n->op == CY_OP_write_rows)
    fill_rest(l, x, target, axis);
  if (may_share)
    cy_lower_join(l, &apart);
}

void cy_lower_write_rows(cy_lowering *l, cy_node root, cy_val root_value, cy_val target) {
  const cy_node_info *n = node_of(l, root);
  if (root_value != target)
    cy_bug("writing rows cannot take an epilogue");
  int axis = (int)cy_attr_get_int(n, CY_ATTR_axis, 0);
  copy_base(l, n, target);
  const cy_type *t = cy_lower_type(l, n->in[1]);
  cy_kb b;
  cy_kb_init(&b, l, "write_rows");
  cy_expr idx[CY_MAX_RANK];
  for (int i = 0; i < t->rank; i++)
    idx[i] = cy_kb_grid_index(&b, t->dim[i]);
  cy_expr row = cy_lower_at(&b, n->in[1], idx);
  idx[axis] = bin(&b, CY_OP_add, first_place(&b, n, idx, axis), idx[axis]);
  if (cy_attr_get_int(n, CY_ATTR_mode, 0) == CY_WRITE_WRAP)
    idx[axis] = bin(&b, CY_OP_mod, idx[axis], cy_x_dim(b.k, cy_lower_type(l, target)->dim[axis]));
  cy_kb_store(&b, cy_lower_place(l, target), (cy_dtype)t->dtype, t->rank, idx, row);
  cy_kb_launch(&b, true);
}

/* ---- scatter: the updates go in order ---- */

static cy_expr wrap_scatter_index(cy_kb *b, cy_expr i, cy_dim extent) {
  i = cy_x_cast(b->k, i, CY_I64);
  cy_expr negative = bin(b, CY_OP_lt, i, cy_x_index(b->k, 0));
  return cy_lower_clamp(b, cy_x_select(b->k, negative, bin(b, CY_OP_add, i, cy_x_dim(b->k, extent)), i), extent);
}

static void combine_store(cy_kb *b, int64_t combine, const cy_place *to, const cy_type *t, const cy_expr *idx,
                          cy_expr update) {
  static const cy_op ops[] = {[CY_COMBINE_ADD] = CY_OP_add,
                              [CY_COMBINE_MUL] = CY_OP_mul,
                              [CY_COMBINE_MIN] = CY_OP_min,
                              [CY_COMBINE_MAX] = CY_OP_max};
  cy_karg arg = cy_kb_arg(b, to, (cy_dtype)t->dtype, CY_ARG_WRITE);
  cy_expr at = cy_kb_offset(b, to, t->rank, idx);
  if (combine != CY_COMBINE_SET) {
    cy_expr old = cy_x_cast(b->k, cy_x_load(b->k, arg, at), cy_compute_dtype((cy_dtype)t->dtype));
    update = bin(b, ops[combine], old, update);
  }
  cy_kernel_store(b->k, arg, at, update);
}

/* Tasks: positions off the axis; along the axis the updates go in order, since several may hit one element. */
static void scatter_elements_kernel(cy_lowering *l, const cy_node_info *n, const cy_place *to, const cy_type *t) {
  const cy_type *indices = cy_lower_type(l, n->in[1]);
  int axis = (int)cy_attr_get_int(n, CY_ATTR_axis, 0);
  cy_kb b;
  cy_kb_init(&b, l, "scatter_elements");
  cy_expr idx[CY_MAX_RANK];
  for (int i = 0; i < indices->rank; i++)
    if (i != axis)
      idx[i] = cy_kb_grid_index(&b, indices->dim[i]);
  cy_expr i = cy_kb_loop(&b, indices->dim[axis], false);
  idx[axis] = i;
  cy_expr update = cy_lower_at(&b, n->in[2], idx);
  idx[axis] = wrap_scatter_index(&b, cy_lower_at(&b, n->in[1], idx), t->dim[axis]);
  combine_store(&b, cy_attr_get_int(n, CY_ATTR_combine, CY_COMBINE_SET), to, t, idx, update);
  cy_kernel_end(b.k);
  cy_kb_launch(&b, true);
}

/* Tasks: elements of the slices that an index tuple names; index tuples go in order. */
static void scatter_nd_kernel(cy_lowering *l, const cy_node_info *n, const cy_place *to, const cy_type *t) {
  const cy_type *indices = cy_lower_type(l, n->in[1]);
  int last = indices->rank - 1;
  int64_t depth = last + t->rank - cy_lower_type(l, n->in[2])->rank; /* where the indices' last size is a symbol */
  cy_dim_is_const(l->g, indices->dim[last], &depth);
  cy_kb b;
  cy_kb_init(&b, l, "scatter_nd");
  cy_expr idx[CY_MAX_RANK], at[CY_MAX_RANK], update_at[CY_MAX_RANK];
  for (int i = (int)depth; i < t->rank; i++)
    update_at[last + i - depth] = idx[i] = cy_kb_grid_index(&b, t->dim[i]);
  for (int i = 0; i < last; i++)
    update_at[i] = at[i] = cy_kb_loop(&b, indices->dim[i], false);
  for (int i = 0; i < depth; i++) {
    at[last] = cy_x_index(b.k, i);
    idx[i] = wrap_scatter_index(&b, cy_lower_at(&b, n->in[1], at), t->dim[i]);
  }
  combine_store(&b, cy_attr_get_int(n, CY_ATTR_combine, CY_COMBINE_SET), to, t, idx,
                cy_lower_at(&b, n->in[2], update_at));
  for (int i = 0; i < last; i++)
    cy_kernel_end(b.k);
  cy_kb_launch(&b, true);
}

void cy_lower_scatter(cy_lowering *l, cy_node root, cy_val root_value, cy_val target) {
  const cy_node_info *n = node_of(l, root);
  cy_lower_alloc(l, root_value);
  const cy_place *to = cy_lower_place(l, root_value);
  const cy_type *t = cy_lower_type(l, root_value);
  copy_base(l, n, root_value);
  if (n->op == CY_OP_scatter_nd)
    scatter_nd_kernel(l, n, to, t);
  else
    scatter_elements_kernel(l, n, to, t);
  if (target != root_value)
    cy_lower_plain(l, 0, target, "scatter_epilogue", NULL);
}
