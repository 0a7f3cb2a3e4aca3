/* SPDX-License-Identifier: Apache-2.0 */
/* print.c - a loop-IR kernel as a CUDA function: which items or tasks a thread has, by schedule.
 *
 * In: a kernel and its schedule (schedule.c). Out: C text that needs prelude.cuh and nothing else. What all schedules
 * have in common, statements above all, is in print_stmt.c.
 */
#include "codegen/cuda/cuda_int.h"

static bool is_shared(const cy_cu *p, uint32_t arg) { return arg < 32 && p->schedule->in_shared >> arg & 1; }
static bool is_scratch(const cy_cu *p, uint32_t arg) { return p->args[arg].kind == CY_ARG_SCRATCH; }

/* The pieces of scratch of this group: in shared memory, or its stripe of the buffer. */
static void print_scratch(cy_cu *p) {
  int groups = p->schedule->threads / p->schedule->group;
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

/* ---- schedules ---- */

/* Items of several elements along the lanes, which are the whole body or the only grid variable. */
static void print_vectors(cy_cu *p, const cy_var *grid, uint32_t n, const char *type) {
  const cy_cuda_schedule *schedule = p->schedule;
  cy_var var = schedule->vector_var;
  const char *var_type = cy_cu_var_type(p, var);
  if (!schedule->lanes) {
    cy_cu_line(p, "const %s first = (%s)(item * %d);", var_type, var_type, schedule->vector);
    cy_cu_vector_items(p, cy_kernel_body(p->k));
    return;
  }
  cy_cu_line(p, "const %s across = %s / %d;", type, cy_cu_dim(p, cy_kernel_var(p->k, var)->extent), schedule->vector);
  cy_cu_line(p, "const %s first = (%s)(item %% across * %d);", var_type, var_type, schedule->vector);
  cy_cu_line(p, "const %s task = item / across;", type);
  cy_cu_unravel(p, grid, n, "task");
  cy_cu_vector_items(p, schedule->lanes->body);
}

/* Items that are iterations of a loop around the lanes: all first iterations come first, so that neighbouring threads
 * have neighbouring lanes and tasks. */
static void print_strips(cy_cu *p, const cy_var *grid, uint32_t n) {
  const cy_cuda_schedule *schedule = p->schedule;
  const char *var = cy_cu_var_type(p, schedule->lanes->var), *first = cy_cu_var_type(p, schedule->vector_var);
  const char *iterations = cy_cu_dim(p, cy_kernel_var(p->k, schedule->strip->var)->extent);
  const char *extent = cy_cu_dim(p, cy_kernel_var(p->k, schedule->lanes->var)->extent);
  cy_cu_count(p, "count", grid, n, schedule->lanes);
  cy_cu_line(p, "const i64 number = CY_BLOCK * %d + CY_TID;", schedule->threads);
  const char *type = p->wide ? "i64" : "int";
  cy_cu_line(p, "const %s first = (%s)(number / count * %d);", first, first, schedule->vector);
  cy_cu_line(p, "if (first >= %s)", iterations);
  cy_cu_line(p, "  return;");
  cy_cu_line(p, "const %s item = (%s)(number %% count);", type, type);
  cy_cu_line(p, "const %s v%u = (%s)(item %% %s);", var, schedule->lanes->var, var, extent);
  cy_cu_line(p, "const %s task = item / %s;", type, extent);
  cy_cu_unravel(p, grid, n, "task");
  cy_cu_strip_items(p);
}

static void print_item(cy_cu *p, const cy_stmt *body) {
  if (p->schedule->kind == CY_CUDA_COLUMNS)
    cy_cuda_columns_print(p, body);
  else if (p->schedule->kind == CY_CUDA_SCATTER)
    cy_cuda_scatter_print(p, body);
  else
    cy_cu_list(p, body);
}

static void print_lane_of_item(cy_cu *p, const cy_var *grid, uint32_t n, const char *type) {
  cy_var lane = p->schedule->lanes->var;
  const char *extent = cy_cu_dim(p, cy_kernel_var(p->k, lane)->extent), *var = cy_cu_var_type(p, lane);
  cy_cu_line(p, "const %s v%u = (%s)(item %% %s);", var, lane, var, extent);
  cy_cu_line(p, "const %s task = item / %s;", type, extent);
  cy_cu_unravel(p, grid, n, "task");
}

/* An item that is one iteration of the lanes, inside the loops around these. */
static void print_around(cy_cu *p, const cy_stmt *lanes) {
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

static void print_items(cy_cu *p) {
  const cy_var *grid;
  uint32_t n = cy_kernel_grid(p->k, &grid);
  const cy_stmt *lanes = p->schedule->lanes;
  if (p->schedule->strip) {
    print_strips(p, grid, n);
    return;
  }
  cy_cu_count(p, "count", grid, n, lanes);
  const char *type = p->wide ? "i64" : "int";
  bool alone = p->schedule->kind == CY_CUDA_ITEMS;
  if (!alone) { /* all threads of a block meet at its barriers */
    if (p->schedule->kind == CY_CUDA_COLUMNS)
      cy_cu_line(p, "const i64 number = CY_BLOCK * %d + CY_TID %% %d;", p->schedule->columns, p->schedule->columns);
    else
      cy_cuda_scatter_items(p);
    cy_cu_line(p, "const b1 live = number < count;");
    cy_cu_line(p, "const %s item = (%s)(live ? number : count - 1);", type, type);
  } else {
    cy_cu_line(p, "const %s item = (%s)(CY_BLOCK * %d + CY_TID);", type, type, p->schedule->threads);
    cy_cu_line(p, p->schedule->vector ? "if (item >= count / %d)" : "if (item >= count)", p->schedule->vector);
    cy_cu_line(p, "  return;");
  }
  if (p->schedule->vector) {
    print_vectors(p, grid, n, type);
    return;
  }
  if (!lanes) {
    cy_cu_unravel(p, grid, n, "item");
    print_item(p, cy_kernel_body(p->k));
    return;
  }
  print_lane_of_item(p, grid, n, type);
  print_around(p, lanes);
}

static void print_groups(cy_cu *p) {
  const cy_var *grid;
  uint32_t n = cy_kernel_grid(p->k, &grid);
  int groups = p->schedule->threads / p->schedule->group;
  for (uint32_t i = 0; i < p->nargs; i++)
    p->exchanged[i] = p->args[i].kind != CY_ARG_READ && cy_kernel_loads(p->k, i);
  cy_cu_line(p, "const int lane = CY_TID %% %d;", p->schedule->group);
  cy_cu_line(p, "const int group = CY_TID / %d;", p->schedule->group);
  print_scratch(p);
  cy_cu_count(p, "count", grid, n, NULL);
  cy_cu_line(p, "for (i64 number = CY_BLOCK * %d + group; number < count; number += CY_BLOCKS * %d) {", groups, groups);
  cy_cu_open(p);
  const char *type = p->wide ? "i64" : "int";
  cy_cu_line(p, "const %s task = (%s)number;", type, type);
  cy_cu_unravel(p, grid, n, "task");
  p->group = p->schedule->group;
  cy_cu_list(p, cy_kernel_body(p->k));
  p->group = 1;
  cy_cu_close(p, 0);
  cy_cu_line(p, "}");
}

void cy_cuda_print(FILE *out, cy_kernel *k, const cy_cuda_schedule *schedule, const char *symbol) {
  cy_cu p;
  cy_cu_init(&p, out, k, schedule);
  if (schedule->kind == CY_CUDA_TILES) {
    cy_cuda_contract_print(&p, symbol);
    cy_cu_deinit(&p);
    return;
  }
  fprintf(out, "CY_KERNEL(%d) %s(", schedule->threads, symbol);
  cy_cu_params(&p, out, false);
  cy_cu_lengths_param(&p, out);
  fprintf(out, ") {\n");
  cy_cu_open(&p);
  cy_cu_line(&p, "CY_AFTER();");
  cy_cu_lengths_read(&p);
  cy_cu_narrow_dims(&p);
  for (uint32_t i = 0; schedule->kind == CY_CUDA_ITEMS && i < p.nargs; i++)
    if (is_scratch(&p, i))
      cy_bug("kernel '%s': scratch in a kernel of items", symbol);
  cy_cu_locals(&p);
  if (schedule->kind == CY_CUDA_ROWS)
    cy_cuda_rows_print(&p);
  else if (schedule->kind == CY_CUDA_GROUPS)
    print_groups(&p);
  else
    print_items(&p);
  cy_cu_close(&p, 0);
  fprintf(out, "}\n\n");
  cy_cu_deinit(&p);
}
