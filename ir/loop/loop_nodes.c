/* SPDX-License-Identifier: Apache-2.0 */
/* loop_nodes.c - expressions of kernels as they are stored: hash-consing, leaves, and questions about them.
 *
 * In: operands that are expressions of the same kernel. Out: the id of the expression as given, nothing simplified
 * (loop_expr.c does that). Equal structure, equal id.
 */
#include "loop_int.h"

#include <stdlib.h>
#include <string.h>

/* ---- hash-consing ---- */

static uint64_t info_hash(const cy_expr_info *x) {
  uint64_t words[] = {
      (uint64_t)x->op << 32 | (uint64_t)x->dtype << 8 | x->n, x->arg[0], x->arg[1], x->arg[2], x->id, x->c.u};
  uint64_t h = 0x9e3779b97f4a7c15u;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    h = (h ^ words[i]) * 0xff51afd7ed558ccdu;
    h ^= h >> 32;
  }
  return h;
}

static bool info_equal(const cy_expr_info *a, const cy_expr_info *b) {
  return a->op == b->op && a->dtype == b->dtype && a->n == b->n && a->arg[0] == b->arg[0] && a->arg[1] == b->arg[1] &&
         a->arg[2] == b->arg[2] && a->id == b->id && a->c.u == b->c.u;
}

static void table_insert(cy_kernel *k, uint32_t e) {
  uint32_t at = (uint32_t)info_hash(&k->exprs[e]) & (k->table_size - 1);
  while (k->table[at])
    at = (at + 1) & (k->table_size - 1);
  k->table[at] = e;
}

static void table_grow(cy_kernel *k) {
  k->table_size = k->table_size ? k->table_size * 2 : 128;
  k->table = CY_NEW_ARRAY(cy_graph_arena(k->g), uint32_t, k->table_size);
  for (uint32_t e = 1; e <= k->nexprs; e++)
    table_insert(k, e);
}

cy_expr cy_expr_intern(cy_kernel *k, const cy_expr_info *info) {
  if (k->nexprs * 2 >= k->table_size)
    table_grow(k);
  uint32_t at = (uint32_t)info_hash(info) & (k->table_size - 1);
  for (; k->table[at]; at = (at + 1) & (k->table_size - 1))
    if (info_equal(&k->exprs[k->table[at]], info))
      return k->table[at];
  k->nexprs++;
  CY_LOOP_ROOM(k, k->exprs, k->nexprs, k->exprs_cap);
  k->exprs[k->nexprs] = *info;
  k->table[at] = k->nexprs;
  return k->nexprs;
}

cy_expr cy_expr_raw(cy_kernel *k, cy_op op, cy_dtype dtype, const cy_expr *args, int n) {
  cy_expr_info x = {.op = (uint16_t)op, .dtype = (uint8_t)dtype, .n = (uint8_t)n};
  for (int i = 0; i < n; i++)
    x.arg[i] = args[i];
  return cy_expr_intern(k, &x);
}

const cy_expr_info *cy_expr_of(const cy_kernel *k, cy_expr e) {
  if (e == 0 || e > k->nexprs)
    cy_bug("kernel '%s' has no expression %u", k->name, e);
  return &k->exprs[e];
}

uint32_t cy_expr_count(const cy_kernel *k) { return k->nexprs; }

/* ---- leaves ---- */

cy_expr cy_x_scalar(cy_kernel *k, cy_dtype dtype, cy_scalar c) {
  cy_expr_info x = {.op = CY_X_CONST, .dtype = (uint8_t)dtype, .c = c};
  return cy_expr_intern(k, &x);
}

cy_expr cy_x_const(cy_kernel *k, cy_dtype dtype, double v) {
  cy_scalar s = {.f = v};
  return cy_x_scalar(k, dtype, dtype == CY_F64 ? s : cy_scalar_eval(CY_OP_cast, CY_F64, dtype, &s));
}

cy_expr cy_x_int(cy_kernel *k, cy_dtype dtype, int64_t v) {
  cy_scalar s = {.i = v};
  return cy_x_scalar(k, dtype, dtype == CY_I64 ? s : cy_scalar_eval(CY_OP_cast, CY_I64, dtype, &s));
}

cy_expr cy_x_index(cy_kernel *k, int64_t v) { return cy_x_scalar(k, CY_I64, (cy_scalar){.i = v}); }

static cy_expr leaf(cy_kernel *k, int op, cy_dtype dtype, uint32_t id) {
  cy_expr_info x = {.op = (uint16_t)op, .dtype = (uint8_t)dtype, .id = id};
  return cy_expr_intern(k, &x);
}

cy_expr cy_x_var(cy_kernel *k, cy_var v) {
  return cy_dim_is(k->g, cy_kernel_var(k, v)->extent, 1) ? cy_x_index(k, 0) : leaf(k, CY_X_VAR, CY_I64, v);
}

cy_expr cy_x_dim(cy_kernel *k, cy_dim d) {
  int64_t v;
  return cy_dim_is_const(k->g, d, &v) ? cy_x_index(k, v) : leaf(k, CY_X_DIM, CY_I64, d);
}

cy_expr cy_x_local(cy_kernel *k, cy_local l) { return leaf(k, CY_X_LOCAL, cy_kernel_local_dtype(k, l), l); }

cy_expr cy_x_load(cy_kernel *k, cy_karg arg, cy_expr offset) {
  if (arg >= k->nargs)
    cy_bug("kernel '%s' loads from argument %u of %u", k->name, arg, k->nargs);
  cy_expr_info x = {.op = CY_X_LOAD, .dtype = (uint8_t)k->args[arg].dtype, .n = 1, .arg = {offset}, .id = arg};
  return cy_expr_intern(k, &x);
}

/* ---- questions ---- */

/* Operands have smaller ids than their users: one downward sweep visits each expression once. */
void cy_expr_mark(const cy_kernel *k, cy_expr e, bool *inout_marks) {
  inout_marks[e] = true;
  for (cy_expr i = e; i > 0; i--)
    for (int j = 0; inout_marks[i] && j < k->exprs[i].n; j++)
      inout_marks[k->exprs[i].arg[j]] = true;
}

void cy_stmt_mark(const cy_kernel *k, const cy_stmt *s, bool *inout_marks) {
  for (; s; s = s->next) {
    if (s->value)
      cy_expr_mark(k, s->value, inout_marks);
    cy_stmt_mark(k, s->body, inout_marks);
  }
}

bool cy_expr_is_int(const cy_kernel *k, cy_expr e, int64_t *out) {
  const cy_expr_info *x = cy_expr_of(k, e);
  *out = x->c.i;
  return x->op == CY_X_CONST || (x->op == CY_X_DIM && cy_dim_is_const(k->g, x->id, out));
}

bool cy_expr_uses_var(const cy_kernel *k, cy_expr e, cy_var v) {
  bool small[512] = {0}, *marks = e < 512 ? small : calloc(e + 1, sizeof *marks), found = false;
  if (!marks)
    cy_no_memory();
  cy_expr_mark(k, e, marks);
  for (cy_expr i = e; i > 0 && !found; i--)
    found = marks[i] && k->exprs[i].op == CY_X_VAR && k->exprs[i].id == v;
  if (marks != small)
    free(marks);
  return found;
}
