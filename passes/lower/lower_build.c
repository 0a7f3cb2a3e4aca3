/* SPDX-License-Identifier: Apache-2.0 */
/* lower_build.c - kernels under construction: arguments, loads, stores, loops, and elements composed of other elements.
 *
 * In:  places (lower_places.c) and the expressions of ops, which the driver names (cy_lowering.expr_of). Out: a kernel with
 * its arguments bound, and the step that launches it. Every element of an inlined value is composed once for an index,
 * however many paths lead to it.
 */
#include "lower_int.h"

#include <string.h>

void cy_kb_init(cy_kb *b, cy_lowering *l, const char *name) { *b = (cy_kb){.l = l, .k = cy_kernel_create(l->g, name)}; }

static void add_bind(cy_kb *b, cy_bind bind) {
  b->bind = cy_arena_grow(cy_graph_arena(b->l->g), b->bind, b->nbind, &b->bind_cap, sizeof *b->bind);
  b->bind[b->nbind++] = bind;
}

static void note_fused(cy_kb *b, cy_node n) {
  for (uint32_t i = 0; i < b->nfused; i++)
    if (b->fused[i] == n)
      return;
  b->fused = cy_arena_grow(cy_graph_arena(b->l->g), b->fused, b->nfused, &b->fused_cap, sizeof *b->fused);
  b->fused[b->nfused++] = n;
}

cy_karg cy_kb_arg(cy_kb *b, const cy_place *p, cy_dtype dtype, cy_karg_kind kind) {
  if (dtype == CY_STRING || dtype == CY_REF)
    dtype = CY_I32; /* to a kernel they are numbers */
  cy_bind bind = cy_lower_bind(b->l, p, dtype);
  const cy_karg_info *args;
  uint32_t n = cy_kernel_args(b->k, &args);
  for (uint32_t i = 0; i < n; i++)
    if (args[i].kind == kind && args[i].dtype == dtype && b->bind[i].buffer == bind.buffer &&
        b->bind[i].offset == bind.offset)
      return i;
  add_bind(b, bind);
  return cy_kernel_add_arg(b->k, kind, dtype, 0);
}

cy_karg cy_kb_scratch(cy_kb *b, cy_dtype dtype, cy_dim elems) {
  cy_graph *g = b->l->g;
  cy_dim stripe = cy_dim_muli(g, elems, cy_dtype_of(dtype)->bits / 8);
  cy_dim bytes = cy_dim_mul(g, stripe, cy_dim_sym(g, b->l->p->workers));
  uint32_t buffer = cy_lower_buffer(b->l, bytes, cy_dim_has_data_sym(g, stripe));
  cy_lower_size_buffer(b->l, buffer);
  add_bind(b, (cy_bind){buffer, cy_dim_const(g, 0)});
  return cy_kernel_add_arg(b->k, CY_ARG_SCRATCH, dtype, elems);
}

cy_expr cy_kb_offset(cy_kb *b, const cy_place *p, int rank, const cy_expr *idx) {
  cy_expr sum = cy_x_index(b->k, 0);
  for (int i = 0; i < rank; i++)
    sum = cy_x_bin(b->k, CY_OP_add, sum, cy_x_bin(b->k, CY_OP_mul, idx[i], cy_x_dim(b->k, p->stride[i])));
  return sum;
}

cy_expr cy_kb_load(cy_kb *b, const cy_place *p, cy_dtype dtype, int rank, const cy_expr *idx) {
  cy_karg arg = cy_kb_arg(b, p, dtype, CY_ARG_READ);
  return cy_x_cast(b->k, cy_x_load(b->k, arg, cy_kb_offset(b, p, rank, idx)), cy_compute_dtype(dtype));
}

void cy_kb_store(cy_kb *b, const cy_place *p, cy_dtype dtype, int rank, const cy_expr *idx, cy_expr value) {
  cy_expr offset = cy_kb_offset(b, p, rank, idx);
  cy_kernel_store(b->k, cy_kb_arg(b, p, dtype, CY_ARG_WRITE), offset, value);
}

cy_expr cy_kb_grid_index(cy_kb *b, cy_dim extent) {
  if (cy_dim_is(b->l->g, extent, 1))
    return cy_x_index(b->k, 0);
  cy_var v = cy_kernel_add_var(b->k, extent);
  cy_kernel_add_grid(b->k, v);
  return cy_x_var(b->k, v);
}

cy_expr cy_kb_loop(cy_kb *b, cy_dim extent, bool lanes) {
  cy_var v = cy_kernel_add_var(b->k, extent);
  cy_kernel_for(b->k, v, lanes);
  return cy_x_var(b->k, v);
}

void cy_kb_launch(cy_kb *b, bool schedule) {
  if (schedule && b->l->splits_rows)
    cy_kernel_share_addresses(b->k);
  if (schedule)
    cy_kernel_schedule(b->k);
  cy_kernel_expand_math(b->k);
  cy_step *s = cy_lower_step(b->l, CY_STEP_LAUNCH);
  s->kernel = cy_program_intern_kernel(b->l->p, b->k);
  s->bind = b->bind;
  s->nbind = b->nbind;
  s->fused = b->fused;
  s->nfused = b->nfused;
}

void cy_lower_copy(cy_lowering *l, const cy_place *from, const cy_place *to, const cy_type *t) {
  cy_kb b;
  cy_kb_init(&b, l, "copy");
  cy_expr idx[CY_MAX_RANK];
  for (int i = 0; i < t->rank; i++)
    idx[i] = cy_kb_grid_index(&b, t->dim[i]);
  cy_expr offset = cy_kb_offset(&b, from, t->rank, idx);
  cy_karg arg = cy_kb_arg(&b, from, t->dtype, CY_ARG_READ);
  cy_kb_store(&b, to, t->dtype, t->rank, idx, cy_x_load(b.k, arg, offset));
  cy_kb_launch(&b, true);
}

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

/* ---- composing ---- */

/* A constant with one value everywhere needs no memory. */
static bool splat_value(cy_kb *b, cy_val v, cy_expr *out) {
  cy_graph *g = b->l->g;
  cy_value *val = cy_value_of(g, v);
  if (!val->data.bytes || cy_dtype_of(val->type.dtype)->cls == 'C')
    return false;
  double unused;
  int64_t n = 0;
  if (!cy_dim_is_const(g, cy_type_elems(g, &val->type), &n) || n == 0)
    return false;
  if (n > 1 && !cy_value_is_splat(g, v, &unused))
    return false;
  cy_dtype compute = cy_compute_dtype(val->type.dtype);
  cy_scalar s = cy_scalar_load(val->data.bytes, val->type.dtype, 0);
  *out = cy_dtype_is_float(compute) ? cy_x_const(b->k, compute, s.f) : cy_x_int(b->k, compute, s.i);
  return true;
}

static struct cy_memo_entry *memo_slot(const cy_memo *m, cy_val v, const cy_expr *idx, int rank) {
  uint32_t hash = v * 2654435761u;
  for (int i = 0; i < rank; i++)
    hash = (hash ^ idx[i]) * 16777619u;
  for (uint32_t at = hash ^ hash >> 15;; at++) {
    struct cy_memo_entry *e = &m->entry[at & (m->cap - 1)];
    if (!e->v || (e->v == v && !memcmp(e->idx, idx, sizeof *idx * (size_t)rank)))
      return e;
  }
}

static void memo_grow(cy_kb *b) {
  cy_memo old = b->memo;
  b->memo.cap = old.cap ? old.cap * 2 : 64;
  b->memo.entry = CY_NEW_ARRAY(b->l->arena, struct cy_memo_entry, b->memo.cap);
  for (uint32_t i = 0; i < old.cap; i++) {
    struct cy_memo_entry *e = &old.entry[i];
    if (e->v)
      *memo_slot(&b->memo, e->v, e->idx, cy_value_of(b->l->g, e->v)->type.rank) = *e;
  }
}

/* The definition of an inlined value, composed once per index. */
static cy_expr composed(cy_kb *b, cy_val v, const cy_expr *idx, int rank) {
  if (b->memo.n * 2 >= b->memo.cap)
    memo_grow(b);
  struct cy_memo_entry *e = memo_slot(&b->memo, v, idx, rank);
  if (e->v)
    return e->value;
  cy_expr value = cy_lower_def(b, v, idx);
  if (b->memo.n * 2 >= b->memo.cap)
    memo_grow(b);
  e = memo_slot(&b->memo, v, idx, rank); /* composing may have moved the table */
  e->v = v;
  e->value = value;
  memcpy(e->idx, idx, sizeof *idx * (size_t)rank);
  b->memo.n++;
  return value;
}

static cy_expr anchored(cy_kb *b) {
  cy_node n = cy_value_of(b->l->g, b->root_value)->node;
  if (n)
    note_fused(b, n);
  return b->root_expr;
}

cy_expr cy_lower_at(cy_kb *b, cy_val v, const cy_expr *idx) {
  if (v == b->root_value)
    return anchored(b);
  cy_expr e;
  if (splat_value(b, v, &e))
    return e;
  const cy_value *val = cy_value_of(b->l->g, v);
  if (val->inlined && !b->l->place[v].placed)
    return composed(b, v, idx, val->type.rank);
  return cy_kb_load(b, cy_lower_place(b->l, v), val->type.dtype, val->type.rank, idx);
}

cy_expr cy_lower_def(cy_kb *b, cy_val v, const cy_expr *idx) {
  if (v == b->root_value)
    return anchored(b);
  const cy_value *val = cy_value_of(b->l->g, v);
  const cy_node_info *n = cy_node_of(b->l->g, val->node);
  cy_expr_fn fn = val->node ? b->l->expr_of((cy_op)n->op) : NULL;
  if (!fn)
    cy_bug("op '%s' cannot be inlined into another kernel", val->node ? cy_op_of(n->op)->name : "none");
  note_fused(b, val->node);
  return fn(b, val->node, val->output, idx);
}

bool cy_lower_is_stored(cy_lowering *l, cy_val v) {
  const cy_value *val = cy_value_of(l->g, v);
  return val->data.bytes || l->place[v].placed || !val->inlined;
}

cy_expr cy_lower_behind(cy_kb *b, cy_val target, cy_val root_value, const cy_expr *idx, cy_expr value) {
  b->root_value = root_value;
  b->root_expr = value;
  b->memo = (cy_memo){0};
  cy_expr e = cy_lower_def(b, target, idx);
  b->root_value = 0;
  b->memo = (cy_memo){0};
  return e;
}

void cy_lower_finish(cy_kb *b, cy_val target, cy_val root_value, const cy_expr *idx, cy_expr value) {
  const cy_type *t = cy_lower_type(b->l, target);
  cy_expr e = cy_lower_behind(b, target, root_value, idx, value);
  cy_kb_store(b, cy_lower_place(b->l, target), t->dtype, t->rank, idx, e);
}

void cy_lower_element(cy_kb *b, cy_val root_value, cy_val target, const cy_expr *idx) {
  const cy_type *t = cy_lower_type(b->l, target);
  b->memo = (cy_memo){0};
  if (root_value && root_value != target) { /* once, however often the chain behind it asks */
    cy_expr value = cy_lower_def(b, root_value, idx);
    cy_local held = cy_kernel_add_local(b->k, cy_compute_dtype((cy_dtype)cy_lower_type(b->l, root_value)->dtype));
    cy_kernel_set(b->k, held, value);
    cy_lower_finish(b, target, root_value, idx, cy_x_local(b->k, held));
  } else {
    cy_kb_store(b, cy_lower_place(b->l, target), t->dtype, t->rank, idx, cy_lower_def(b, target, idx));
  }
}

void cy_lower_plain(cy_lowering *l, cy_val root_value, cy_val target, const char *name, const cy_place *padded) {
  cy_kb b;
  cy_kb_init(&b, l, name);
  b.padded = padded;
  const cy_type *t = cy_lower_type(l, target);
  cy_expr idx[CY_MAX_RANK];
  for (int i = 0; i < t->rank; i++)
    idx[i] = cy_kb_grid_index(&b, t->dim[i]);
  cy_lower_element(&b, root_value, target, idx);
  cy_kb_launch(&b, true);
}

/* ---- indices ---- */

void cy_lower_broadcast(cy_kb *b, const cy_type *in, const cy_type *out, const cy_expr *idx, cy_expr *in_idx) {
  cy_graph *g = b->l->g;
  int skip = out->rank - in->rank;
  int64_t unused;
  for (int i = 0; i < in->rank; i++) {
    cy_dim d = in->dim[i];
    if (cy_dim_is(g, d, 1)) {
      in_idx[i] = cy_x_index(b->k, 0);
    } else if (d == out->dim[skip + i] || cy_dim_is_const(g, d, &unused)) {
      in_idx[i] = idx[skip + i];
    } else { /* 1 or the output's size: only the running model knows */
      cy_dim moves = cy_dim_min(g, cy_dim_addi(g, d, -1), cy_dim_const(g, 1));
      in_idx[i] = cy_x_bin(b->k, CY_OP_mul, idx[skip + i], cy_x_dim(b->k, moves));
    }
  }
}

/* Of an axis without elements it is 0, not -1. */
cy_expr cy_lower_clamp(cy_kb *b, cy_expr i, cy_dim extent) {
  cy_graph *g = b->l->g;
  cy_expr low = cy_x_bin(b->k, CY_OP_max, i, cy_x_index(b->k, 0));
  cy_dim last = cy_dim_addi(g, cy_dim_max(g, extent, cy_dim_const(g, 1)), -1);
  return cy_x_bin(b->k, CY_OP_min, low, cy_x_dim(b->k, last));
}

cy_expr cy_lower_in_range(cy_kb *b, cy_expr i, cy_dim extent) {
  cy_expr low = cy_x_bin(b->k, CY_OP_ge, i, cy_x_index(b->k, 0));
  return cy_x_bin(b->k, CY_OP_and, low, cy_x_bin(b->k, CY_OP_lt, i, cy_x_dim(b->k, extent)));
}
