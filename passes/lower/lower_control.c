/* SPDX-License-Identifier: Apache-2.0 */
/* lower_control.c - branches, loops and runtime calls as host steps.
 *
 * Blocks read outer values where they lie. What leaves a block is copied into the places of the op's outputs; what a
 * loop carries lives in one buffer per value. Each iteration's results are copied there at its end, if they are not
 * made there (as caches are that grow), or lie in a slot that can become that buffer. Sizes that change from one
 * iteration to the next are symbols of kind COUNT, set by steps of their own.
 */
#include "lower_int.h"
#include "passes/pass_int.h"

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
      cy_lower_set_symbol(l, staged[i], ft->dim[i]);
    }
    for (int i = 0; i < t->rank; i++)
      if (syms[i])
        cy_lower_set_symbol(l, syms[i], cy_dim_sym(l->g, staged[i]));
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
    l->steps_of(l, block);
    for (uint32_t i = 0; i < n->nout; i++)
      move_into(l, n->out[i], b->results[i]);
  }
  l->tail = after;
  l->node = node;
}

/* ---- loops ---- */

enum { FIRST_ITERATIONS = 256 }; /* room of a scan output at first */

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

/* A scan output collects one element per iteration; it is dense over [iterations, ..]. Where a condition may end the
 * loop, it has room for some iterations first, and for twice as many whenever they are used up. Sizes of its elements
 * that only running tells are those of the first iteration. */
static void place_scan(cy_lowering *l, cy_val v, cy_dim limit) {
  const cy_type *t = cy_lower_type(l, v);
  cy_sym iterations = cy_lower_count_symbol(l, t->dim[0], v);
  place_joined(l, v);
  if (iterations)
    cy_lower_set_symbol(l, iterations, cy_dim_min(l->g, limit, cy_dim_const(l->g, FIRST_ITERATIONS)))->guess = true;
  for (int i = 1; i < t->rank; i++)
    if (cy_lower_count_symbol(l, t->dim[i], v))
      cy_lower_set_symbol(l, cy_lower_count_symbol(l, t->dim[i], v), cy_dim_const(l->g, 0))->guess = true;
  cy_lower_size(l, &l->place[v]);
}

/* In the first iteration: what its element (of type ft) tells of the sizes of scan output v. */
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
      cy_lower_set_symbol(l, cy_lower_count_symbol(l, t->dim[i], v), ft->dim[i - 1]);
  cy_lower_size(l, &l->place[v]);
  cy_lower_join(l, &first);
}

/* Makes room for iteration `counter` of scan output v. */
static void grow_scan(cy_lowering *l, cy_val v, cy_dim limit, cy_sym counter) {
  cy_graph *g = l->g;
  const cy_type *t = cy_lower_type(l, v);
  cy_sym iterations = cy_lower_count_symbol(l, t->dim[0], v);
  if (!iterations)
    return;
  cy_sym used = cy_sym_new(g, NULL, CY_SYM_FREE);
  cy_dim zero = cy_dim_const(g, 0), one = cy_dim_const(g, 1);
  cy_dim left = cy_dim_sub(g, cy_dim_sym(g, iterations), cy_dim_sym(g, counter));
  cy_branch full;
  cy_lower_branch(l, cy_dim_sub(g, one, cy_dim_min(g, one, cy_dim_max(g, left, zero))), &full);
  cy_type old = *t;
  cy_lower_set_symbol(l, used, cy_dim_sym(g, iterations));
  old.dim[0] = cy_dim_sym(g, used);
  cy_place copy = cy_lower_temp(l, (cy_dtype)old.dtype, old.dim, old.rank);
  cy_lower_copy(l, &l->place[v], &copy, &old);
  cy_lower_set_symbol(l, iterations, cy_dim_min(g, limit, cy_dim_muli(g, old.dim[0], 2)));
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
      cy_lower_set_symbol(l, size, cy_dim_sym(l->g, i ? size : counter));
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

/* ---- what a loop carries ---- */

/* How a carried value becomes what the next iteration gets. A growing one has a buffer with room for more along an
 * axis: new elements go behind those that are there. Where they are gathered on their way, that fills a second buffer
 * with as much room, and the two change places. */
typedef enum carriage {
  MOVED,   /* copied */
  SWAPPED, /* the iteration's result has a dynamic slot of its own, which changes places with the value's */
  WRITTEN, /* the result is made where the value lies */
  GROWING
} carriage;

typedef struct carried {
  carriage how;
  cy_val param, result;
  /* GROWING */
  cy_val joined; /* param with more behind it: result, or what result is gathered from */
  int axis;
  int64_t more; /* in every iteration */
  cy_sym room;
} carried;

static const cy_node_info *node_in(const cy_lowering *l, cy_val v, cy_block block) {
  cy_node id = cy_value_of(l->g, v)->node;
  const cy_node_info *n = id ? cy_node_of(l->g, id) : NULL;
  return n && n->block == block && !cy_value_of(l->g, v)->inlined && !cy_value_of(l->g, v)->data.bytes ? n : NULL;
}

/* Are a and b, both in rows, equal in all dims but one? */
static bool equal_but(const cy_lowering *l, cy_val a, cy_val b, int axis) {
  const cy_type *x = cy_lower_type(l, a), *y = cy_lower_type(l, b);
  if (x->rank != y->rank || x->dtype != y->dtype || !cy_layout_is_row_major(cy_value_of(l->g, a)) ||
      !cy_layout_is_row_major(cy_value_of(l->g, b)))
    return false;
  for (int i = 0; i < x->rank; i++)
    if (i != axis && x->dim[i] != y->dim[i])
      return false;
  return true;
}

static bool is_growing(cy_lowering *l, carried *c, cy_block block) {
  const cy_node_info *n = node_in(l, c->result, block);
  const cy_type *t = cy_lower_type(l, c->param);
  c->joined = c->result;
  int turned = -1;
  if (n && n->op == CY_OP_gather) {
    c->joined = n->in[0];
    turned = (int)cy_attr_get_int(n, CY_ATTR_axis, 0);
    n = node_in(l, c->joined, block);
  }
  if (!n || n->op != CY_OP_concat || n->in[0] != c->param || cy_dtype_of((cy_dtype)t->dtype)->bits < 8)
    return false;
  c->axis = (int)cy_attr_get_int(n, CY_ATTR_axis, 0);
  const cy_type *longer = cy_lower_type(l, c->joined);
  return cy_lower_count_symbol(l, t->dim[c->axis], c->param) && turned != c->axis &&
         cy_dim_is_const(l->g, cy_dim_sub(l->g, longer->dim[c->axis], t->dim[c->axis]), &c->more) && c->more > 0 &&
         equal_but(l, c->param, c->joined, c->axis) && equal_but(l, c->joined, c->result, -1);
}

/* Is the result the value with parts written anew, which nothing else reads? */
static bool is_written(cy_lowering *l, const carried *c, cy_block block) {
  const cy_node_info *n = node_in(l, c->result, block);
  bool writes = n && (n->op == CY_OP_write_rows || n->op == CY_OP_scatter_elements || n->op == CY_OP_scatter_nd);
  return writes && n->in[0] == c->param && l->uses.start[c->param + 1] - l->uses.start[c->param] == 1 &&
         equal_but(l, c->param, c->result, -1);
}

/* Decides before the body is lowered, and gives values their places. */
static void place_carried(cy_lowering *l, carried *c, cy_block block) {
  const cy_type *t = cy_lower_type(l, c->param);
  if (l->o->level > 0 && is_growing(l, c, block)) {
    c->how = GROWING;
    c->room = cy_sym_new(l->g, NULL, CY_SYM_FREE);
    cy_type roomy = *t;
    roomy.dim[c->axis] = cy_dim_sym(l->g, c->room);
    l->place[c->param] = l->place[c->joined] = cy_lower_unsized(l, &roomy);
    if (c->result != c->joined)
      l->place[c->result] = cy_lower_unsized(l, &roomy);
    return;
  }
  place_joined(l, c->param);
  if (l->o->level > 0 && is_written(l, c, block)) {
    c->how = WRITTEN;
    l->place[c->result] = l->place[c->param];
  }
}

static void size_carried(cy_lowering *l, const carried *c) {
  cy_lower_size(l, &l->place[c->param]);
  if (c->result != c->joined)
    cy_lower_size(l, &l->place[c->result]);
}

/* Before the loop: the value is `initial`. */
static void enter_carried(cy_lowering *l, const carried *c, cy_val initial, cy_dim limit) {
  if (c->how != GROWING) {
    move_into(l, c->param, initial);
    return;
  }
  const cy_type *t = cy_lower_type(l, c->param), *ft = cy_lower_type(l, initial);
  cy_dim iterations = cy_dim_min(l->g, limit, cy_dim_const(l->g, FIRST_ITERATIONS));
  cy_lower_set_symbol(l, c->room, cy_dim_add(l->g, ft->dim[c->axis], cy_dim_muli(l->g, iterations, c->more)));
  for (int i = 0; i < t->rank; i++)
    if (cy_lower_count_symbol(l, t->dim[i], c->param))
      cy_lower_set_symbol(l, cy_lower_count_symbol(l, t->dim[i], c->param), ft->dim[i]);
  size_carried(l, c);
  cy_lower_copy(l, cy_lower_place(l, initial), &l->place[c->param], t);
}

/* At the beginning of an iteration: room for what it adds. */
static void make_room(cy_lowering *l, const carried *c) {
  cy_graph *g = l->g;
  const cy_type *t = cy_lower_type(l, c->param);
  cy_dim room = cy_dim_sym(g, c->room), needed = cy_dim_addi(g, t->dim[c->axis], c->more);
  cy_branch full;
  cy_lower_branch(l, cy_dim_max(g, cy_dim_sub(g, needed, room), cy_dim_const(g, 0)), &full);
  cy_place copy = cy_lower_temp(l, (cy_dtype)t->dtype, t->dim, t->rank);
  cy_lower_copy(l, &l->place[c->param], &copy, t);
  cy_lower_set_symbol(l, c->room, cy_dim_muli(g, needed, 2));
  size_carried(l, c);
  cy_lower_copy(l, &copy, &l->place[c->param], t);
  cy_lower_join(l, &full);
}

static bool is_slot(cy_lowering *l, cy_val v) {
  const cy_place *p = &l->place[v];
  return l->p->buffers[p->buffer].kind == CY_BUF_DYNAMIC && cy_dim_is(l->g, p->offset, 0) &&
         cy_lower_is_contiguous(l, p, cy_lower_type(l, v));
}

/* Once the body is lowered: do slots swap? Those of results that no other value is carried in. */
static void choose_swaps(cy_lowering *l, carried *list, uint32_t n, cy_block block) {
  for (uint32_t i = 0; i < n && l->o->level > 0; i++) {
    carried *c = &list[i];
    const cy_node_info *def = node_in(l, c->result, block);
    bool alone = c->how == MOVED && def && l->place[c->result].placed && is_slot(l, c->result) && is_slot(l, c->param);
    for (uint32_t k = 0; k < n && alone; k++)
      alone = l->place[list[k].param].buffer != l->place[c->result].buffer &&
              (k == i || l->place[list[k].result].buffer != l->place[c->result].buffer || list[k].how == MOVED);
    if (alone)
      c->how = SWAPPED;
  }
}

/* Where an iteration's result lies; one that is a carried value's own buffer is saved first, before the moves overwrite
 * it.
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

/* The symbols of sizes of what a loop carries, and what keeps their values of this iteration while the moves set them.
 * */
typedef struct iteration {
  cy_sym *sym;
  cy_dim *kept;
  uint32_t n;
} iteration;

static iteration keep_sizes(cy_lowering *l, const cy_block_info *body) {
  uint32_t max = body->nparams * CY_MAX_RANK;
  iteration kept = {CY_NEW_ARRAY(l->arena, cy_sym, max + 1), CY_NEW_ARRAY(l->arena, cy_dim, max + 1), 0};
  for (uint32_t k = 0; k < body->nparams; k++) {
    const cy_type *t = cy_lower_type(l, body->params[k]);
    for (int i = 0; i < t->rank; i++) {
      cy_sym sym = cy_lower_count_symbol(l, t->dim[i], body->params[k]);
      if (!sym)
        continue;
      cy_sym copy = cy_sym_new(l->g, NULL, CY_SYM_FREE);
      cy_lower_set_symbol(l, copy, t->dim[i]);
      kept.sym[kept.n] = sym;
      kept.kept[kept.n++] = cy_dim_sym(l->g, copy);
    }
  }
  return kept;
}

static cy_dim of_iteration(cy_lowering *l, const iteration *kept, cy_dim d) {
  for (uint32_t i = 0; i < kept->n; i++)
    d = cy_dim_subst(l->g, d, kept->sym[i], kept->kept[i]);
  return d;
}

/* The sizes of v become those of type ft, as they were in this iteration. */
static void resize_carried(cy_lowering *l, const iteration *kept, cy_val v, const cy_type *ft) {
  const cy_type *t = cy_lower_type(l, v);
  for (int i = 0; i < t->rank; i++) {
    cy_sym size = cy_lower_count_symbol(l, t->dim[i], v);
    if (size)
      cy_lower_set_symbol(l, size, of_iteration(l, kept, ft->dim[i]));
  }
}

static void swap_slots(cy_lowering *l, cy_val a, cy_val b) {
  cy_step *s = cy_lower_step(l, CY_STEP_SWAP);
  s->bind = CY_NEW_ARRAY(cy_graph_arena(l->g), cy_bind, 2);
  s->bind[0] = (cy_bind){l->place[a].buffer, cy_dim_const(l->g, 0)};
  s->bind[1] = (cy_bind){l->place[b].buffer, cy_dim_const(l->g, 0)};
  s->nbind = 2;
}

/* Gives the carried values what the body's results are. Any of these may be of a size that another's move changes, or lie
 * in a slot that swaps: what is copied is so before. */
static void move_carried(cy_lowering *l, const cy_block_info *body, const carried *list, uint32_t n) {
  cy_place *results = CY_NEW_ARRAY(l->arena, cy_place, n + 1);
  for (uint32_t i = 0; i < n; i++)
    if (list[i].how == MOVED)
      results[i] = staged_result(l, list[i].result, body);
  iteration kept = keep_sizes(l, body);
  for (uint32_t i = 0; i < n; i++) {
    if (list[i].how != MOVED)
      continue;
    cy_type type = *cy_lower_type(l, list[i].result);
    results[i].offset = of_iteration(l, &kept, results[i].offset);
    for (int k = 0; k < type.rank; k++) {
      type.dim[k] = of_iteration(l, &kept, type.dim[k]);
      results[i].stride[k] = of_iteration(l, &kept, results[i].stride[k]);
    }
    move_place(l, list[i].param, &type, results[i]);
  }
  for (uint32_t i = 0; i < n; i++) {
    if (list[i].how == MOVED)
      continue;
    resize_carried(l, &kept, list[i].param, cy_lower_type(l, list[i].result));
    if (list[i].how == SWAPPED || (list[i].how == GROWING && list[i].result != list[i].joined))
      swap_slots(l, list[i].param, list[i].result);
  }
}

/* Behind the loop: v is the value; where nothing reads it, its sizes are all that may be asked for. */
static void leave_carried(cy_lowering *l, cy_val v, const carried *c) {
  if (c->how == GROWING && l->uses.start[v] == l->uses.start[v + 1])
    resize_carried(l, &(iteration){NULL, NULL, 0}, v, cy_lower_type(l, c->param));
  else
    move_into(l, v, c->param);
}

static bool is_true(const cy_lowering *l, cy_val v) {
  const cy_value *x = cy_value_of(l->g, v);
  return x->data.bytes && *(const uint8_t *)x->data.bytes;
}

/* Is there an iteration after each, whatever is computed? Then nothing waits for the condition. */
static bool goes_on(const cy_lowering *l, const cy_block_info *body) {
  return body->results[0] == body->params[1] || is_true(l, body->results[0]);
}

/* Number and condition of the iteration, for what reads them; symbols that stand for them are known without. */
static void begin_iteration(cy_lowering *l, const cy_step *loop, const cy_block_info *body) {
  const cy_dim values[2] = {cy_dim_sym(l->g, loop->sym), cy_dim_const(l->g, 1)};
  for (int i = 0; i < 2; i++) {
    cy_val v = body->params[i];
    if (l->uses.start[v] != l->uses.start[v + 1])
      store_scalar(l, &l->place[v], (cy_dtype)cy_lower_type(l, v)->dtype, values[i]);
    for (uint32_t s = l->sym_start[v]; s < l->sym_start[v + 1]; s++)
      cy_lower_set_symbol(l, l->sym_list[s], values[i]);
  }
}

/* An iteration of loop n: what it carries for the next one and whether there is one; elements of scanned outputs. */
static void lower_iteration(cy_lowering *l, const cy_node_info *n, const cy_step *loop, carried *list) {
  const cy_block_info *body = cy_block_of(l->g, loop->then_block);
  uint32_t count = n->nin - 2;
  begin_iteration(l, loop, body);
  for (uint32_t i = 2; i < body->nparams; i++)
    cy_lower_read_symbols(l, body->params[i]);
  for (uint32_t i = 0; i < count; i++)
    if (list[i].how == GROWING)
      make_room(l, &list[i]);
  l->steps_of(l, loop->then_block);
  for (uint32_t i = count; i < n->nout; i++)
    append_scan(l, n->out[i], body->results[1 + i], loop->limit, loop->sym);
  bool sure = goes_on(l, body);
  cy_sym go_on = sure ? 0 : cy_lower_read_scalar(l, body->results[0]);
  choose_swaps(l, list, count, loop->then_block);
  move_carried(l, body, list, count);
  if (!sure)
    cy_lower_set_symbol(l, loop->cond, cy_dim_sym(l->g, go_on));
}

void cy_lower_loop(cy_lowering *l, cy_node node) {
  const cy_node_info *n = cy_node_of(l->g, node);
  cy_block block = cy_attr_find(n, CY_ATTR_body)->block;
  const cy_block_info *body = cy_block_of(l->g, block);
  uint32_t count = n->nin - 2;
  carried *list = CY_NEW_ARRAY(l->arena, carried, count + 1);
  cy_dim limit = trip_limit(l, n);
  bool sure = (!n->in[1] || is_true(l, n->in[1])) && goes_on(l, body);
  cy_sym cond = sure ? 0 : cy_sym_new(l->g, NULL, CY_SYM_FREE), counter = cy_sym_new(l->g, NULL, CY_SYM_FREE);
  if (n->in[1] && !sure) {
    cy_sym given = cy_lower_read_scalar(l, n->in[1]);
    cy_lower_set_symbol(l, cond, cy_dim_sym(l->g, given));
  } else if (!sure) {
    cy_lower_set_symbol(l, cond, cy_dim_const(l->g, 1));
  }
  for (uint32_t i = 0; i < 2; i++)
    place_joined(l, body->params[i]);
  for (uint32_t i = 0; i < count; i++) {
    list[i] = (carried){.param = body->params[2 + i], .result = body->results[1 + i]};
    place_carried(l, &list[i], block);
  }
  for (uint32_t i = 0; i < count; i++)
    enter_carried(l, &list[i], n->in[2 + i], limit);
  for (uint32_t i = count; i < n->nout; i++)
    place_scan(l, n->out[i], limit);
  cy_lower_set_symbol(l, counter, cy_dim_const(l->g, 0));

  cy_step *step = cy_lower_step(l, CY_STEP_LOOP);
  step->sym = counter;
  step->cond = cond;
  step->limit = limit;
  step->then_block = block;
  cy_step **after = l->tail;
  l->tail = &step->then_steps;
  lower_iteration(l, n, step, list);
  l->tail = after;
  l->node = node;

  for (uint32_t i = 0; i < n->nout; i++) {
    cy_val v = n->out[i];
    if (i >= count) {
      known_scan(l, v, counter);
      continue;
    }
    place_joined(l, v);
    leave_carried(l, v, &list[i]);
  }
}

/* ---- runtime calls ---- */

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
