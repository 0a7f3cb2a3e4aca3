/* SPDX-License-Identifier: Apache-2.0 */
/* loop_stmts.c - the statements of a kernel: appended, rewritten, and what they depend on.
 *
 * In: the calls of lowering. Out: the statement tree; a kernel with expressions replaced; the dims that it takes as
 * parameters. Statements are appended at the top of a small stack of open FOR and IF bodies. cy_kernel_dims() walks the
 * kernel anew at every call: its order is a function of the statements alone, so that the compiler of the kernel and the
 * emitter of its launches agree without talking.
 */
#include "loop_int.h"

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

void cy_kernel_store_max(cy_kernel *k, cy_karg arg, cy_expr offset, cy_expr value) {
  cy_open_stmt *top = &k->open[k->depth];
  cy_stmt **at = top->tail;
  cy_kernel_store(k, arg, offset, value);
  (*at)->op = CY_OP_max;
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

/* ---- what it depends on ---- */

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
