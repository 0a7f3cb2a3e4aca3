/* SPDX-License-Identifier: Apache-2.0 */
/* loop.c - kernels as containers: arguments, variables, the grid and locals.
 *
 * In: the calls of lowering. Out: a cy_kernel in the graph's arena. Statements are loop_stmts.c's, expressions
 * loop_nodes.c's, loop_expr.c's and loop_index.c's, text loop_print.c's, comparison loop_equal.c's.
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
