/* SPDX-License-Identifier: Apache-2.0 */
/* print.c - a loop-IR kernel as a CUDA function: parameters, the thread's items or tasks, statements.
 *
 * In: a kernel and its form (schedule.c). Out: C text that needs prelude.cuh and nothing else. In a group all threads
 * walk the statements together; a lane loop is distributed in steps of the group, its reductions go to partials p<i> that
 * are combined by shuffles (and, for a whole block, through shared memory) so that every thread has the result. Stores
 * outside of lane loops are done by one thread. What a kernel both writes and reads is fenced by barriers around the
 * writing statement. Names: a argument, d size, v loop variable, l local, t temporary, p partial.
 */
#include "codegen/cuda/cuda_int.h"

#include <stdlib.h>
#include <string.h>

enum { LOADS_AHEAD = 16 }; /* of a group's loop that only adds up: on their way at a time */

/* ---- parameters and sizes ---- */

static bool is_shared(const cy_cu *p, uint32_t arg) { return arg < 32 && p->form->in_shared >> arg & 1; }
static bool is_scratch(const cy_cu *p, uint32_t arg) { return p->args[arg].kind == CY_ARG_SCRATCH; }

void cy_cu_params(cy_cu *p, FILE *out, bool names_only) {
  const char *comma = "";
  for (uint32_t i = 0; i < p->nargs; i++, comma = ", ") {
    const char *prefix = is_scratch(p, i) ? "s" : "a";
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

/* The pieces of scratch of this group: in shared memory, or its stripe of the buffer. */
static void print_scratch(cy_cu *p) {
  int groups = p->form->threads / p->form->group;
  for (uint32_t i = 0; i < p->nargs; i++) {
    if (!is_scratch(p, i))
      continue;
    const char *type = cy_cu_storage(p->args[i].dtype), *elems = cy_cu_dim(p, p->args[i].elems);
    if (is_shared(p, i)) {
      cy_cu_line(p, "CY_SHARED %s m%u[%d * %s];", type, i, groups, elems);
      cy_cu_line(p, "%s *a%u = m%u + group * %s;", type, i, i, elems);
    } else if (cy_cu_packed(p->args[i].dtype)) {
      int per_byte = 8 / cy_dtype_of(p->args[i].dtype)->bits;
      cy_cu_line(p, "%s *a%u = s%u + (CY_BLOCK * %d + group) * (((i64)%s + %d) / %d);", type, i, i, groups, elems,
                 per_byte - 1, per_byte);
    } else {
      cy_cu_line(p, "%s *a%u = s%u + (CY_BLOCK * %d + group) * (i64)%s;", type, i, i, groups, elems);
    }
  }
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
  if (p->form->kind == CY_CUDA_GROUPS && only_accumulators(s->body))
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

/* ---- forms ---- */

void cy_cu_count(cy_cu *p, const char *name, const cy_var *vars, uint32_t n, const cy_stmt *lanes) {
  __int128 upper = p->form->threads;
  fprintf(p->out, "%*sconst i64 %s = (i64)1", p->indent, "", name);
  for (uint32_t i = 0; i < n + (lanes != NULL); i++) {
    cy_dim extent = cy_kernel_var(p->k, i < n ? vars[i] : lanes->var)->extent;
    int64_t min, max;
    cy_dim_range(p->g, extent, &min, &max);
    upper = upper > INT64_MAX ? upper : upper * max;
    fprintf(p->out, " * %s", cy_cu_dim(p, extent));
  }
  fprintf(p->out, ";\n");
  p->wide = upper > INT32_MAX - p->form->threads;
}

/* Items of several elements along the lanes, which are the whole body or the only grid variable. */
static void print_vectors(cy_cu *p, const cy_var *grid, uint32_t n, const char *type) {
  const cy_cuda_form *form = p->form;
  cy_var var = form->vector_var;
  const char *var_type = cy_cu_var_type(p, var);
  if (!form->lanes) {
    cy_cu_line(p, "const %s first = (%s)(item * %d);", var_type, var_type, form->vector);
    cy_cu_vector_items(p, cy_kernel_body(p->k));
    return;
  }
  cy_cu_line(p, "const %s across = %s / %d;", type, cy_cu_dim(p, cy_kernel_var(p->k, var)->extent), form->vector);
  cy_cu_line(p, "const %s first = (%s)(item %% across * %d);", var_type, var_type, form->vector);
  cy_cu_line(p, "const %s task = item / across;", type);
  cy_cu_unravel(p, grid, n, "task");
  cy_cu_vector_items(p, form->lanes->body);
}

/* Items that are iterations of a loop around the lanes: all first iterations come first, so that neighbouring threads
 * have neighbouring lanes and tasks. */
static void print_strips(cy_cu *p, const cy_var *grid, uint32_t n) {
  const cy_cuda_form *form = p->form;
  const char *var = cy_cu_var_type(p, form->lanes->var), *first = cy_cu_var_type(p, form->vector_var);
  const char *iterations = cy_cu_dim(p, cy_kernel_var(p->k, form->strip->var)->extent);
  const char *extent = cy_cu_dim(p, cy_kernel_var(p->k, form->lanes->var)->extent);
  cy_cu_count(p, "count", grid, n, form->lanes);
  cy_cu_line(p, "const i64 number = CY_BLOCK * %d + CY_TID;", form->threads);
  const char *type = p->wide ? "i64" : "int";
  cy_cu_line(p, "const %s first = (%s)(number / count * %d);", first, first, form->vector);
  cy_cu_line(p, "if (first >= %s)", iterations);
  cy_cu_line(p, "  return;");
  cy_cu_line(p, "const %s item = (%s)(number %% count);", type, type);
  cy_cu_line(p, "const %s v%u = (%s)(item %% %s);", var, form->lanes->var, var, extent);
  cy_cu_line(p, "const %s task = item / %s;", type, extent);
  cy_cu_unravel(p, grid, n, "task");
  cy_cu_strip_items(p);
}

static void print_item(cy_cu *p, const cy_stmt *body) {
  if (p->form->kind == CY_CUDA_COLUMNS)
    cy_cuda_columns_print(p, body);
  else if (p->form->kind == CY_CUDA_SCATTER)
    cy_cuda_scatter_print(p, body);
  else
    cy_cu_list(p, body);
}

static void print_items(cy_cu *p) {
  const cy_var *grid;
  uint32_t n = cy_kernel_grid(p->k, &grid);
  const cy_stmt *lanes = p->form->lanes;
  if (p->form->strip) {
    print_strips(p, grid, n);
    return;
  }
  cy_cu_count(p, "count", grid, n, lanes);
  const char *type = p->wide ? "i64" : "int";
  bool alone = p->form->kind == CY_CUDA_ITEMS;
  if (!alone) { /* all threads of a block meet at its barriers */
    if (p->form->kind == CY_CUDA_COLUMNS)
      cy_cu_line(p, "const i64 number = CY_BLOCK * %d + CY_TID %% %d;", p->form->columns, p->form->columns);
    else
      cy_cuda_scatter_items(p);
    cy_cu_line(p, "const b1 live = number < count;");
    cy_cu_line(p, "const %s item = (%s)(live ? number : count - 1);", type, type);
  } else {
    cy_cu_line(p, "const %s item = (%s)(CY_BLOCK * %d + CY_TID);", type, type, p->form->threads);
    cy_cu_line(p, p->form->vector ? "if (item >= count / %d)" : "if (item >= count)", p->form->vector);
    cy_cu_line(p, "  return;");
  }
  if (p->form->vector) {
    print_vectors(p, grid, n, type);
    return;
  }
  if (!lanes) {
    cy_cu_unravel(p, grid, n, "item");
    print_item(p, cy_kernel_body(p->k));
    return;
  }
  const char *extent = cy_cu_dim(p, cy_kernel_var(p->k, lanes->var)->extent), *var = cy_cu_var_type(p, lanes->var);
  cy_cu_line(p, "const %s v%u = (%s)(item %% %s);", var, lanes->var, var, extent);
  cy_cu_line(p, "const %s task = item / %s;", type, extent);
  cy_cu_unravel(p, grid, n, "task");
  int depth = 0;
  for (const cy_stmt *s = cy_kernel_body(p->k); s != lanes; s = s->body, depth++) {
    cy_cu_line(p, "for (%s v%u = 0; v%u < %s; v%u++) {", cy_cu_var_type(p, s->var), s->var, s->var,
               cy_cu_dim(p, cy_kernel_var(p->k, s->var)->extent), s->var);
    cy_cu_open(p);
  }
  print_item(p, lanes->body);
  while (depth-- > 0) {
    cy_cu_close(p, 0);
    cy_cu_line(p, "}");
  }
}

static void print_groups(cy_cu *p) {
  const cy_var *grid;
  uint32_t n = cy_kernel_grid(p->k, &grid);
  int groups = p->form->threads / p->form->group;
  for (uint32_t i = 0; i < p->nargs; i++)
    p->exchanged[i] = p->args[i].kind != CY_ARG_READ && cy_kernel_loads(p->k, i);
  cy_cu_line(p, "const int lane = CY_TID %% %d;", p->form->group);
  cy_cu_line(p, "const int group = CY_TID / %d;", p->form->group);
  print_scratch(p);
  cy_cu_count(p, "count", grid, n, NULL);
  cy_cu_line(p, "for (i64 number = CY_BLOCK * %d + group; number < count; number += CY_BLOCKS * %d) {", groups, groups);
  cy_cu_open(p);
  const char *type = p->wide ? "i64" : "int";
  cy_cu_line(p, "const %s task = (%s)number;", type, type);
  cy_cu_unravel(p, grid, n, "task");
  p->group = p->form->group;
  cy_cu_list(p, cy_kernel_body(p->k));
  p->group = 1;
  cy_cu_close(p, 0);
  cy_cu_line(p, "}");
}

void cy_cuda_print(FILE *out, cy_kernel *k, const cy_cuda_form *form, const char *symbol) {
  cy_cu p;
  cy_cu_init(&p, out, k, form);
  if (form->kind == CY_CUDA_TILES) {
    cy_cuda_contract_print(&p, symbol);
    cy_cu_deinit(&p);
    return;
  }
  fprintf(out, "CY_KERNEL(%d) %s(", form->threads, symbol);
  cy_cu_params(&p, out, false);
  cy_cu_lengths_param(&p, out);
  fprintf(out, ") {\n");
  cy_cu_open(&p);
  cy_cu_line(&p, "CY_AFTER();");
  cy_cu_lengths_read(&p);
  cy_cu_narrow_dims(&p);
  for (uint32_t i = 0; form->kind == CY_CUDA_ITEMS && i < p.nargs; i++)
    if (is_scratch(&p, i))
      cy_bug("kernel '%s': scratch in a kernel of items", symbol);
  cy_cu_locals(&p);
  if (form->kind == CY_CUDA_ROWS)
    cy_cuda_rows_print(&p);
  else if (form->kind == CY_CUDA_GROUPS)
    print_groups(&p);
  else
    print_items(&p);
  cy_cu_close(&p, 0);
  fprintf(out, "}\n\n");
  cy_cu_deinit(&p);
}
