/* SPDX-License-Identifier: Apache-2.0 */
/* loop_int.h - what the files behind loop.h share: the kernel's own structure and the hooks between them.
 *
 * Only ir/ includes it. Arrays grow by doubling in the graph's arena; an old copy stays readable, so a pointer got from
 * cy_expr_of() (expressions never change) outlives later constructors. Variables are allocated one by one because they
 * do change. Expressions are hash-consed: equal structure, equal id. An id says nothing about time: a LOAD or LOCAL
 * means its value where the statement that uses it runs.
 */
#ifndef CY_LOOP_INT_H
#define CY_LOOP_INT_H

#include "loop.h"

enum { CY_LOOP_DEPTH = 64 }; /* nesting of statements while building */

typedef struct cy_open_stmt { /* where statements are appended */
  cy_stmt *owner;             /* FOR or IF; NULL: the kernel's body */
  cy_stmt **tail;
} cy_open_stmt;

struct cy_kernel {
  cy_graph *g;
  const char *name;
  cy_contraction contraction;
  cy_karg_info *args;
  uint32_t nargs, args_cap;
  cy_var_info **vars; /* [0] unused */
  uint32_t nvars, vars_cap;
  cy_var *grid;
  uint32_t ngrid, grid_cap;
  bool grid_lanes;
  cy_dtype *locals; /* [0] unused */
  uint32_t nlocals, locals_cap;
  cy_stmt *body;
  cy_open_stmt open[CY_LOOP_DEPTH];
  int depth;
  cy_expr_info *exprs; /* [0] unused */
  uint32_t nexprs, exprs_cap;
  uint32_t *table; /* hash-consing: expression ids, 0 empty */
  uint32_t table_size;
  cy_dim *dims; /* answer of cy_kernel_dims */
  uint32_t ndims, dims_cap;
  struct cy_spelled *spelled; /* loop_math.c: functions that were made arithmetic */
  uint32_t nspelled, spelled_cap;
  uint64_t hash; /* set when a program takes the kernel in; 0: not yet */
};

/* Room for element `count` (0-based) of an array of the kernel. */
#define CY_LOOP_ROOM(k, items, count, cap)                                                                             \
  ((items) = cy_arena_grow(cy_graph_arena((k)->g), (items), (count), &(cap), sizeof *(items)))

/* loop_nodes.c: the expression as given, without simplification. */
cy_expr cy_expr_intern(cy_kernel *k, const cy_expr_info *info);
cy_expr cy_expr_raw(cy_kernel *k, cy_op op, cy_dtype dtype, const cy_expr *args, int n);
cy_expr cy_x_scalar(cy_kernel *k, cy_dtype dtype, cy_scalar v);
/* loop_expr.c: rebuilds e through the constructors. `leaf` may replace an expression before, `op` after its operands were
 * rewritten (0: keep; either may be NULL). memo: expressions done, 0 = not yet; it covers those that existed at the start. */
typedef struct cy_rewrite {
  cy_expr (*leaf)(cy_kernel *k, cy_expr e, void *ctx);
  cy_expr (*op)(cy_kernel *k, const cy_expr_info *x, const cy_expr *args);
  void *ctx;
  cy_expr *memo;
  uint32_t n;
} cy_rewrite;
cy_expr cy_expr_rewrite(cy_kernel *k, cy_expr e, cy_rewrite *r);
/* loop_stmts.c: applies r to every expression of the statements; memo is made here. */
void cy_kernel_rewrite(cy_kernel *k, cy_rewrite r);

/* loop_index.c: simplified index arithmetic (i64), 0 when the operation has no special case. */
cy_expr cy_index_op(cy_kernel *k, cy_op op, const cy_expr *args);

/* loop_equal.c: a kernel as words: equal words, equal kernels. With holes, numbers that a parameter may stand for count
 * by their dtype, and what casts ask of them, alone. */
enum { CY_PARAM_MAX = 1000000000 }; /* parameters are smaller */
typedef struct cy_hole {
  cy_stmt *stmt;
  cy_expr user; /* whose operand it is; 0: the statement's value */
  int operand;
  cy_expr constant;
} cy_hole;
typedef struct cy_words {
  cy_kernel *k;
  uint64_t *v;
  size_t n, cap;
  bool with_holes;
  cy_hole *hole; /* in the order of the words */
  size_t nholes, holes_cap;
  cy_stmt *stmt; /* while writing: where it stands */
  uint32_t *number, numbers; /* while writing: of expressions; 0: not met yet */
} cy_words;
cy_words cy_kernel_words(cy_kernel *k, bool holes);
uint64_t cy_words_hash(const cy_words *w);
void cy_words_free(cy_words *w);
bool cy_param_whole(const cy_expr_info *constant);

#endif
