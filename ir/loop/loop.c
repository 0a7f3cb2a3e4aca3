/* SPDX-License-Identifier: Apache-2.0 */
/* loop.c - kernels as containers: arguments, variables, the grid, locals and the statement tree.
 *
 * In: the calls of lowering. Out: a cy_kernel in the graph's arena. Expressions are made in loop_expr.c and
 * loop_index.c, text and comparison in loop_print.c. Statements are appended at the top of a small stack of open FOR
 * and IF bodies. cy_kernel_dims() walks the kernel anew at every call: its order is a function of the statements alone,
 * so that the compiler of the kernel and the emitter of its launches agree without talking.
 */
#include "loop_int.h"

cy_kernel *cy_kernel_create(cy_graph *g, const char *name) {
  cy_kernel *k = CY_NEW(cy_graph_arena(g), cy_kernel);
  k->g = g;
  k->open[0].tail = &k->body;
  CY_LOOP_ROOM(k, k->vars, 0, k->vars_cap);
  CY_LOOP_ROOM(k, k->locals, 0, k->locals_cap);
  CY_LOOP_ROOM(k, k->exprs, 0, k->exprs_cap);
  k->name = cy_arena_printf(cy_graph_arena(g), "%s", name);
  return k;
}

cy_graph *cy_kernel_graph(const cy_kernel *k) { return k->g; }
const char *cy_kernel_name(const cy_kernel *k) { return k->name; }
cy_contraction *cy_kernel_contraction(cy_kernel *k) { return &k->contraction; }

cy_karg cy_kernel_add_arg(cy_kernel *k, cy_karg_kind kind, cy_dtype dtype, cy_dim elems) {
  CY_LOOP_ROOM(k, k->args, k->nargs, k->args_cap);
  k->args[k->nargs] = (cy_karg_info){.kind = kind, .dtype = dtype, .elems = elems};
  return k->nargs++;
}

uint32_t cy_kernel_args(const cy_kernel *k, const cy_karg_info **out_args) {
  if (out_args)
    *out_args = k->args;
  return k->nargs;
}

cy_dtype cy_kernel_arg_dtype(const cy_kernel *k, cy_karg arg) {
  if (arg >= k->nargs)
    cy_bug("kernel '%s' has no argument %u", k->name, arg);
  return k->args[arg].dtype;
}

bool cy_kernel_loads(const cy_kernel *k, cy_karg arg) {
  for (cy_expr e = 1; e <= cy_expr_count(k); e++)
    if (cy_expr_of(k, e)->op == CY_X_LOAD && cy_expr_of(k, e)->id == arg)
      return true;
  return false;
}

bool cy_kernel_rereads_b(cy_kernel *k) {
  const cy_contraction *c = cy_kernel_contraction(k);
  return c->a == c->b || cy_kernel_loads(k, c->b);
}

cy_var cy_kernel_add_var(cy_kernel *k, cy_dim extent) {
  k->nvars++;
  CY_LOOP_ROOM(k, k->vars, k->nvars, k->vars_cap);
  k->vars[k->nvars] = CY_NEW(cy_graph_arena(k->g), cy_var_info);
  k->vars[k->nvars]->extent = extent;
  return k->nvars;
}

cy_var_info *cy_kernel_var(const cy_kernel *k, cy_var v) {
  if (v == 0 || v > k->nvars)
    cy_bug("kernel '%s' has no variable %u", k->name, v);
  return k->vars[v];
}

uint32_t cy_kernel_var_count(const cy_kernel *k) { return k->nvars; }

void cy_kernel_add_grid(cy_kernel *k, cy_var v) {
  CY_LOOP_ROOM(k, k->grid, k->ngrid, k->grid_cap);
  cy_kernel_var(k, v)->grid = true;
  k->grid[k->ngrid++] = v;
}

uint32_t cy_kernel_grid(const cy_kernel *k, const cy_var **out_vars) {
  if (out_vars)
    *out_vars = k->grid;
  return k->ngrid;
}

cy_dim cy_kernel_tasks(cy_kernel *k) {
  cy_dim tasks = cy_dim_const(k->g, 1);
  for (uint32_t i = 0; i < k->ngrid; i++)
    tasks = cy_dim_mul(k->g, tasks, cy_kernel_var(k, k->grid[i])->extent);
  return tasks;
}

void cy_kernel_set_grid_lanes(cy_kernel *k, bool lanes) { k->grid_lanes = lanes; }
bool cy_kernel_grid_lanes(const cy_kernel *k) { return k->grid_lanes && k->ngrid == 1; }

cy_local cy_kernel_add_local(cy_kernel *k, cy_dtype dtype) {
  k->nlocals++;
  CY_LOOP_ROOM(k, k->locals, k->nlocals, k->locals_cap);
  k->locals[k->nlocals] = dtype;
  return k->nlocals;
}

cy_dtype cy_kernel_local_dtype(const cy_kernel *k, cy_local l) {
  if (l == 0 || l > k->nlocals)
    cy_bug("kernel '%s' has no local %u", k->name, l);
  return k->locals[l];
}

uint32_t cy_kernel_local_count(const cy_kernel *k) { return k->nlocals; }

/* ---- statements ---- */

cy_stmt *cy_kernel_body(const cy_kernel *k) { return k->body; }

bool cy_stmt_sets(const cy_stmt *s, cy_local l) {
  for (; s; s = s->next)
    if ((s->kind == CY_S_SET && s->local == l) || cy_stmt_sets(s->body, l))
      return true;
  return false;
}

static cy_stmt *append(cy_kernel *k, cy_stmt_kind kind) {
  cy_stmt *s = CY_NEW(cy_graph_arena(k->g), cy_stmt);
  s->kind = kind;
  cy_open_stmt *top = &k->open[k->depth];
  *top->tail = s;
  top->tail = &s->next;
  return s;
}

static void enter(cy_kernel *k, cy_stmt *owner) {
  if (k->depth + 1 == CY_LOOP_DEPTH)
    cy_bug("kernel '%s' nests more than %d statements", k->name, CY_LOOP_DEPTH - 1);
  k->open[++k->depth] = (cy_open_stmt){owner, &owner->body};
}

void cy_kernel_for(cy_kernel *k, cy_var v, bool lanes) {
  cy_stmt *s = append(k, CY_S_FOR);
  s->var = v;
  s->lanes = lanes;
  enter(k, s);
}

void cy_kernel_end(cy_kernel *k) {
  if (k->depth == 0)
    cy_bug("kernel '%s': end without for", k->name);
  k->depth--;
}

void cy_kernel_store(cy_kernel *k, cy_karg arg, cy_expr offset, cy_expr value) {
  if (arg >= k->nargs)
    cy_bug("kernel '%s' stores to argument %u of %u", k->name, arg, k->nargs);
  value = cy_x_cast(k, value, k->args[arg].dtype);
  cy_stmt *s = append(k, CY_S_STORE);
  s->arg = arg;
  s->offset = offset;
  s->value = value;
}

void cy_kernel_set(cy_kernel *k, cy_local l, cy_expr value) {
  value = cy_x_cast(k, value, cy_kernel_local_dtype(k, l));
  cy_stmt *s = append(k, CY_S_SET);
  s->local = l;
  s->value = value;
}

void cy_kernel_accum(cy_kernel *k, cy_local l, cy_op op, cy_expr value) {
  value = cy_x_cast(k, value, cy_kernel_local_dtype(k, l));
  cy_stmt *s = append(k, CY_S_ACCUM);
  s->local = l;
  s->op = (uint16_t)op;
  s->value = value;
}

/* ---- rewriting ---- */

static void rewrite_list(cy_kernel *k, cy_stmt *s, cy_rewrite *r) {
  for (; s; s = s->next) {
    if (s->offset)
      s->offset = cy_expr_rewrite(k, s->offset, r);
    if (s->value)
      s->value = cy_expr_rewrite(k, s->value, r);
    rewrite_list(k, s->body, r);
  }
}

void cy_kernel_rewrite(cy_kernel *k, cy_rewrite r) {
  r.n = cy_expr_count(k) + 1;
  r.memo = CY_NEW_ARRAY(cy_graph_arena(k->g), cy_expr, r.n);
  rewrite_list(k, k->body, &r);
}

typedef struct subst {
  cy_var v;
  cy_expr by;
} subst;

static cy_expr subst_leaf(cy_kernel *k, cy_expr e, void *ctx) {
  const subst *s = ctx;
  const cy_expr_info *x = cy_expr_of(k, e);
  return x->op == CY_X_VAR && x->id == s->v ? s->by : 0;
}

void cy_kernel_subst_var(cy_kernel *k, cy_var v, cy_expr by) {
  subst s = {v, by};
  cy_kernel_rewrite(k, (cy_rewrite){.leaf = subst_leaf, .ctx = &s});
}

typedef struct move {
  cy_karg arg;
  cy_expr (*place)(cy_kernel *k, cy_expr at, void *ctx);
  void *ctx;
} move;

static cy_expr move_leaf(cy_kernel *k, cy_expr e, void *ctx) {
  const move *m = ctx;
  const cy_expr_info x = *cy_expr_of(k, e);
  cy_rewrite inside = {.leaf = move_leaf, .ctx = ctx};
  if (x.op != CY_X_LOAD || x.id != m->arg)
    return 0;
  return cy_x_load(k, m->arg, m->place(k, cy_expr_rewrite(k, x.arg[0], &inside), m->ctx));
}

void cy_kernel_move_loads(cy_kernel *k, cy_karg arg, cy_expr (*place)(cy_kernel *k, cy_expr at, void *ctx), void *ctx) {
  move m = {arg, place, ctx};
  cy_kernel_rewrite(k, (cy_rewrite){.leaf = move_leaf, .ctx = &m});
}

/* ---- sizes a launch hands in ---- */

static void dim_add(cy_kernel *k, cy_dim d) {
  if (d == 0 || cy_dim_is_const(k->g, d, NULL))
    return;
  for (uint32_t i = 0; i < k->ndims; i++)
    if (k->dims[i] == d)
      return;
  CY_LOOP_ROOM(k, k->dims, k->ndims, k->dims_cap);
  k->dims[k->ndims++] = d;
}

static void expr_dims(cy_kernel *k, cy_expr e, bool *seen) {
  if (e == 0 || seen[e])
    return;
  seen[e] = true;
  const cy_expr_info *x = cy_expr_of(k, e);
  if (x->op == CY_X_DIM)
    dim_add(k, x->id);
  for (int i = 0; i < x->n; i++)
    expr_dims(k, x->arg[i], seen);
}

static void stmt_dims(cy_kernel *k, const cy_stmt *s, bool *seen) {
  for (; s; s = s->next) {
    if (s->kind == CY_S_FOR)
      dim_add(k, cy_kernel_var(k, s->var)->extent);
    expr_dims(k, s->offset, seen);
    expr_dims(k, s->value, seen);
    stmt_dims(k, s->body, seen);
  }
}

static void contraction_dims(cy_kernel *k) {
  const cy_contraction *c = &k->contraction;
  if (c->kind == CY_CONTRACT_NONE)
    return;
  for (int i = 0; i < c->nout_vars; i++)
    dim_add(k, cy_kernel_var(k, c->out_var[i])->extent);
  for (int i = 0; i < c->nbatch; i++) {
    dim_add(k, c->batch[i]);
    dim_add(k, c->a_batch[i]);
    dim_add(k, c->b_batch[i]);
  }
  const cy_dim matmul[] = {c->m, c->n, c->k, c->a_m, c->a_k, c->b_k, c->b_n};
  for (size_t i = 0; i < sizeof matmul / sizeof *matmul; i++)
    dim_add(k, matmul[i]);
  if (c->kind == CY_CONTRACT_ATTENTION) {
    const cy_dim attention[] = {c->keys, c->v_k, c->v_n, c->past};
    for (size_t i = 0; i < sizeof attention / sizeof *attention; i++)
      dim_add(k, attention[i]);
    for (int i = 0; i < c->nbatch; i++)
      dim_add(k, c->v_batch[i]);
  }
  for (int i = 0; i < c->nspatial; i++) {
    dim_add(k, c->in[i]);
    dim_add(k, c->out[i]);
    dim_add(k, c->pad[i]);
    dim_add(k, c->x_spatial[i]);
  }
  const cy_dim conv[] = {c->images, c->channels_in, c->channels_out, c->x_image, c->x_channel};
  for (size_t i = 0; i < sizeof conv / sizeof *conv; i++)
    dim_add(k, conv[i]);
}

uint32_t cy_kernel_dims(cy_kernel *k, const cy_dim **out_dims) {
  k->ndims = 0;
  for (uint32_t i = 0; i < k->nargs; i++)
    if (k->args[i].kind == CY_ARG_SCRATCH)
      dim_add(k, k->args[i].elems);
  for (uint32_t i = 0; i < k->ngrid; i++)
    dim_add(k, cy_kernel_var(k, k->grid[i])->extent);
  bool *seen = CY_NEW_ARRAY(cy_graph_arena(k->g), bool, cy_expr_count(k) + 1);
  stmt_dims(k, k->body, seen);
  contraction_dims(k);
  if (out_dims)
    *out_dims = k->dims;
  return k->ndims;
}
