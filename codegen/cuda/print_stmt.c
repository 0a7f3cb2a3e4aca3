/* SPDX-License-Identifier: Apache-2.0 */
/* print_stmt.c - parts of a kernel as C text that all schedules have: parameters, coordinates, statements.
 *
 * In:  a kernel being printed; p->group threads walk statements together. Out: C text. A lane loop is distributed in steps of
 *      the group, its reductions go to partials p<i> that are combined by shuffles (and, for a whole block, through shared
 *      memory) so that every thread has the result. Stores outside of lane loops are done by one thread. What a kernel both
 *      writes and reads is fenced by barriers around the writing statement. Names: a argument, d size, v loop variable, l
 *      local, t temporary, p partial.
 */
#include "codegen/cuda/cuda_int.h"

#include <stdlib.h>
#include <string.h>

enum { LOADS_AHEAD = 16 }; /* of a group's loop that only adds up: on their way at a time */

/* ---- parameters and sizes ---- */

void cy_cu_params(cy_cu *p, FILE *out, bool names_only) {
  const char *comma = "";
  for (uint32_t i = 0; i < p->nargs; i++, comma = ", ") {
    const char *prefix = p->args[i].kind == CY_ARG_SCRATCH ? "s" : "a";
    if (names_only)
      fprintf(out, "%s%s%u", comma, prefix, i);
    else
      fprintf(out, "%s%s%s *CY_RESTRICT %s%u", comma, p->args[i].kind == CY_ARG_READ ? "const " : "",
              cy_cu_storage(p->args[i].dtype), prefix, i);
  }
  for (uint32_t i = 0; i < p->ndims; i++, comma = ", ")
    fprintf(out, "%s%ssize%u", comma, names_only ? "" : "i64 ", i);
}

void cy_cu_narrow_dims(cy_cu *p) {
  for (uint32_t i = 0; i < p->ndims; i++) {
    const char *type = cy_cu_dim_type(p, p->dims[i]);
    cy_cu_line(p, "const %s d%u = (%s)size%u;", type, i, type, i);
  }
}

void cy_cu_locals(cy_cu *p) {
  for (cy_local l = 1; l <= cy_kernel_local_count(p->k); l++)
    cy_cu_line(p, "%s l%u = 0;", cy_cu_type(cy_kernel_local_dtype(p->k, l)), l);
}

/* ---- coordinates ---- */

void cy_cu_unravel(cy_cu *p, const cy_var *vars, uint32_t n, const char *number) {
  const char *number_type = p->wide ? "i64" : "int";
  char rest[64];
  snprintf(rest, sizeof rest, "%s", number);
  for (uint32_t i = n; i-- > 0;) {
    const char *type = cy_cu_var_type(p, vars[i]), *extent = cy_cu_dim(p, cy_kernel_var(p->k, vars[i])->extent);
    if (i == 0) {
      cy_cu_line(p, "const %s v%u = (%s)%s;", type, vars[i], type, rest);
    } else {
      cy_cu_line(p, "const %s v%u = (%s)(%s %% (%s)%s);", type, vars[i], type, rest, number_type, extent);
      cy_cu_line(p, "const %s r%u = %s / (%s)%s;", number_type, vars[i], rest, number_type, extent);
      snprintf(rest, sizeof rest, "r%u", vars[i]);
    }
  }
}

void cy_cu_count(cy_cu *p, const char *name, const cy_var *vars, uint32_t n, const cy_stmt *lanes) {
  __int128 upper = p->schedule->threads;
  fprintf(p->out, "%*sconst i64 %s = (i64)1", p->indent, "", name);
  for (uint32_t i = 0; i < n + (lanes != NULL); i++) {
    cy_dim extent = cy_kernel_var(p->k, i < n ? vars[i] : lanes->var)->extent;
    int64_t min, max;
    cy_dim_range(p->g, extent, &min, &max);
    upper = upper > INT64_MAX ? upper : upper * max;
    fprintf(p->out, " * %s", cy_cu_dim(p, extent));
  }
  fprintf(p->out, ";\n");
  p->wide = upper > INT32_MAX - p->schedule->threads;
}

/* ---- lane loops of groups ---- */

/* op of each local that `s` accumulates from outside of the lane loop `whole`. */
static void find_reductions(const cy_stmt *whole, const cy_stmt *s, uint8_t *op) {
  for (; s; s = s->next) {
    if (s->kind == CY_S_ACCUM && !cy_stmt_sets(whole->body, s->local))
      op[s->local] = (uint8_t)s->op;
    find_reductions(whole, s->body, op);
  }
}

/* The type whose shuffle carries a register of this dtype. */
static const char *exchange_type(cy_dtype t) {
  const cy_dtype_info *info = cy_dtype_of(t);
  if (info->cls == 'F')
    return cy_cu_type(t);
  if (info->bits == 64)
    return info->cls == 'I' ? "i64" : "u64";
  return info->cls == 'I' ? "i32" : "u32";
}

static void combine_line(cy_cu *p, cy_op op, cy_dtype t, const char *into, const char *a, const char *b) {
  char v[192];
  cy_cu_combine(p, op, t, a, b, v, sizeof v);
  cy_cu_line(p, "%s = %s;", into, v);
}

/* p<l> of all warps or, of threads that are apart, of all threads, by way of shared memory: always in the same order.
 */
static void print_exchange(cy_cu *p, cy_local l, cy_op op) {
  cy_dtype t = cy_kernel_local_dtype(p->k, l);
  const char *x = exchange_type(t), *type = cy_cu_type(t);
  int row = p->apart ? p->apart : 1, n = p->apart ? p->group : p->group / 32;
  char part[16];
  snprintf(part, sizeof part, "p%u", l);
  cy_cu_line(p, "{");
  cy_cu_open(p);
  cy_cu_line(p, "CY_SHARED %s w[%d];", x, n * row);
  cy_cu_line(p, "CY_SYNC();");
  if (p->apart) {
    cy_cu_line(p, "w[CY_TID] = (%s)%s;", x, part);
  } else {
    cy_cu_line(p, "if (CY_TID %% 32 == 0)");
    cy_cu_line(p, "  w[CY_TID / 32] = (%s)%s;", x, part);
  }
  cy_cu_line(p, "CY_SYNC();");
  cy_cu_line(p, "%s = (%s)w[CY_TID %% %d];", part, type, row);
  cy_cu_line(p, "for (int i = 1; i < %d; i++) {", n);
  cy_cu_open(p);
  cy_cu_line(p, "const %s o = (%s)w[i * %d + CY_TID %% %d];", type, type, row, row);
  combine_line(p, op, t, part, part, "o");
  cy_cu_close(p, p->nlog);
  cy_cu_line(p, "}");
  cy_cu_close(p, p->nlog);
  cy_cu_line(p, "}");
}

/* p<l> of all threads of the group into l<l>. */
static void print_reduction(cy_cu *p, cy_local l, cy_op op) {
  cy_dtype t = cy_kernel_local_dtype(p->k, l);
  const char *x = exchange_type(t), *type = cy_cu_type(t);
  char part[16], local[16];
  snprintf(part, sizeof part, "p%u", l);
  snprintf(local, sizeof local, "l%u", l);
  if (!p->apart) {
    cy_cu_line(p, "CY_UNROLL");
    cy_cu_line(p, "for (int m = %d; m > 0; m /= 2) {", (p->group < 32 ? p->group : 32) / 2);
    cy_cu_open(p);
    cy_cu_line(p, "const %s o = (%s)cy_shfl_%s((%s)%s, m);", type, type, x, x, part);
    combine_line(p, op, t, part, part, "o");
    cy_cu_close(p, p->nlog);
    cy_cu_line(p, "}");
  }
  if (p->apart || p->group > 32)
    print_exchange(p, l, op);
  combine_line(p, op, t, local, local, part);
}

uint8_t *cy_cu_partials_open(cy_cu *p, const cy_stmt *loop) {
  uint32_t nlocals = cy_kernel_local_count(p->k);
  uint8_t *ops = calloc(nlocals + 1, 1);
  char identity[64];
  if (!ops)
    cy_no_memory();
  find_reductions(loop, loop->body, ops);
  cy_cu_line(p, "{");
  cy_cu_open(p);
  for (cy_local l = 1; l <= nlocals; l++)
    if (ops[l]) {
      cy_dtype t = cy_kernel_local_dtype(p->k, l);
      cy_cu_identity(ops[l], t, identity, sizeof identity);
      cy_cu_line(p, "%s p%u = %s;", cy_cu_type(t), l, identity);
      p->reduced[l] = 1;
    }
  return ops;
}

void cy_cu_partials_close(cy_cu *p, uint8_t *ops) {
  uint32_t nlocals = cy_kernel_local_count(p->k);
  memset(p->reduced, 0, nlocals + 1);
  for (cy_local l = 1; l <= nlocals; l++)
    if (ops[l])
      print_reduction(p, l, ops[l]);
  cy_cu_close(p, p->nlog);
  cy_cu_line(p, "}");
  free(ops);
}

static void print_lanes(cy_cu *p, const cy_stmt *s) {
  uint32_t mark = p->nlog;
  int group = p->group;
  uint8_t *ops = cy_cu_partials_open(p, s);
  const char *type = cy_cu_var_type(p, s->var);
  cy_cu_line(p, "for (%s v%u = lane; v%u < %s; v%u += %d) {", type, s->var, s->var,
             cy_cu_dim(p, cy_kernel_var(p->k, s->var)->extent), s->var, group);
  cy_cu_open(p);
  p->group = 1;
  cy_cu_list(p, s->body);
  p->group = group;
  cy_cu_close(p, mark);
  cy_cu_line(p, "}");
  cy_cu_partials_close(p, ops);
}

/* ---- barriers ---- */

static bool stores_exchanged(const cy_cu *p, const cy_stmt *s) {
  for (; s; s = s->next)
    if ((s->kind == CY_S_STORE && p->exchanged[s->arg]) || stores_exchanged(p, s->body))
      return true;
  return false;
}

/* A statement whose stores other threads of the group read, before or behind it. */
static bool needs_fence(const cy_cu *p, const cy_stmt *s) {
  if (p->group == 1)
    return false;
  if (s->kind == CY_S_STORE)
    return p->exchanged[s->arg];
  return s->kind == CY_S_FOR && s->lanes && stores_exchanged(p, s->body);
}

static void print_fence(cy_cu *p) { cy_cu_line(p, p->group == 32 ? "CY_SYNC_WARP();" : "CY_SYNC();"); }

/* ---- statements ---- */

static bool only_accumulators(const cy_stmt *s) {
  for (; s; s = s->next)
    if (s->kind != CY_S_ACCUM)
      return false;
  return true;
}

static void print_for(cy_cu *p, const cy_stmt *s) {
  if (s->lanes && p->group > 1) {
    print_lanes(p, s);
    return;
  }
  uint32_t mark = p->nlog;
  if (p->schedule->kind == CY_CUDA_GROUPS && only_accumulators(s->body))
    cy_cu_line(p, "CY_UNROLL_BY(%d)", LOADS_AHEAD);
  cy_cu_line(p, "for (%s v%u = 0; v%u < %s; v%u++) {", cy_cu_var_type(p, s->var), s->var, s->var,
             cy_cu_dim(p, cy_kernel_var(p->k, s->var)->extent), s->var);
  cy_cu_open(p);
  cy_cu_list(p, s->body);
  cy_cu_close(p, mark);
  cy_cu_line(p, "}");
}

static void print_max(cy_cu *p, const cy_stmt *s) {
  char offset[192], value[192];
  snprintf(value, sizeof value, "%s", cy_cu_value(p, s->value));
  if (p->in_vector) {
    cy_cu_line(p, "top%u = top%u > (u32)%s ? top%u : (u32)%s;", s->arg, s->arg, value, s->arg, value);
    return;
  }
  snprintf(offset, sizeof offset, "%s", cy_cu_value(p, s->offset));
  cy_cu_line(p,
             p->holds_maxima ? "cy_held_max_put(maxima, (u32 *)a%u + %s, (u32)%s);" : "cy_put_max((u32 *)a%u + %s, (u32)%s);",
             s->arg, offset, value);
}

static void print_store(cy_cu *p, const cy_stmt *s) {
  char offset[192], value[192];
  if (s->op) {
    print_max(p, s);
    return;
  }
  snprintf(offset, sizeof offset, "%s", cy_cu_value(p, s->offset));
  snprintf(value, sizeof value, "%s", cy_cu_value(p, s->value));
  if (p->group > 1)
    cy_cu_line(p, "if (lane == 0) {");
  cy_cu_store(p, s->arg, offset, value);
  if (p->group > 1)
    cy_cu_line(p, "}");
}

static void print_accum(cy_cu *p, const cy_stmt *s) {
  char into[16];
  snprintf(into, sizeof into, "%c%u", p->reduced[s->local] ? 'p' : 'l', s->local);
  const char *v = cy_cu_value(p, s->value);
  char value[192];
  snprintf(value, sizeof value, "%s", v);
  combine_line(p, s->op, cy_kernel_local_dtype(p->k, s->local), into, into, value);
}

void cy_cu_stmt(cy_cu *p, const cy_stmt *s) {
  switch (s->kind) {
  case CY_S_FOR: print_for(p, s); break;
  case CY_S_STORE: print_store(p, s); break;
  case CY_S_SET: cy_cu_line(p, "l%u = %s;", s->local, cy_cu_value(p, s->value)); break;
  case CY_S_ACCUM: print_accum(p, s); break;
  }
}

/* Values are forgotten behind every statement: the next may see other memory and locals. */
void cy_cu_list(cy_cu *p, const cy_stmt *s) {
  for (bool fenced = false; s; s = s->next) {
    uint32_t mark = p->nlog;
    bool fence = needs_fence(p, s);
    if (fence && !fenced)
      print_fence(p);
    cy_cu_stmt(p, s);
    cy_cu_forget(p, mark);
    if (fence)
      print_fence(p);
    fenced = fence;
  }
}
