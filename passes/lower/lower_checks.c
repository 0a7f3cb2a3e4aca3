/* SPDX-License-Identifier: Apache-2.0 */
/* lower_checks.c - numbers that stand in tensors: read as symbols, or checked where they are by a device itself.
 *
 * Symbols are read behind the step that computes their value (cy_lower_read_symbols), but for these:
 *
 * In:  the requirements that are about one number in a tensor and that kernels clamp to (CY_REQUIRE_CLAMPED). Out: for
 * those whose number serves nothing else, and whose bound is known when a run begins, a kernel behind the one that makes
 * the number, which keeps the first number out of range and its bound in the program's buffer of checks; the run looks
 * there when it ends. Reading the number back at once, as the host program does otherwise, would wait for the device, and
 * end the recording of runs.
 */
#include "lower_int.h"

/* Symbols that something besides such requirements asks for. */
typedef struct sought {
  bool *used;
} sought;

static void use(void *ctx, cy_sym s) { ((sought *)ctx)->used[s] = true; }

static void use_type(cy_lowering *l, sought *s, const cy_type *t) {
  for (int i = 0; i < t->rank; i++)
    cy_dim_symbols(l->g, t->dim[i], use, s);
}

static void use_node(cy_lowering *l, sought *s, const cy_node_info *n) {
  for (uint32_t i = 0; i < n->nout; i++)
    if (n->out[i])
      use_type(l, s, cy_lower_type(l, n->out[i]));
  for (uint32_t i = 0; i < n->nattrs; i++)
    for (uint32_t k = 0; n->attrs[i].kind == CY_KIND_DIMS && k < n->attrs[i].n; k++)
      cy_dim_symbols(l->g, n->attrs[i].dims[k], use, s);
}

static void use_blocks(cy_lowering *l, sought *s) {
  for (cy_block b = 1; b <= cy_block_count(l->g); b++) {
    const cy_block_info *block = cy_block_of(l->g, b);
    for (uint32_t i = 0; i < block->nparams; i++)
      use_type(l, s, cy_lower_type(l, block->params[i]));
    for (uint32_t i = 0; i < block->nnodes; i++)
      use_node(l, s, cy_node_of(l->g, block->nodes[i]));
  }
}

typedef struct bound {
  const cy_graph *g;
  bool known;
} bound;

static void see_bound(void *ctx, cy_sym s) {
  bound *b = ctx;
  b->known &= cy_sym_of(b->g, s)->kind == CY_SYM_INPUT;
}

static cy_block block_of(const cy_lowering *l, cy_val v) {
  cy_node node = cy_value_of(l->g, v)->node;
  return node ? cy_node_of(l->g, node)->block : 1;
}

/* Is this one that a kernel can check: a number that stands in a tensor, below what the sizes of the inputs say,
 * whenever it is made? */
static bool checkable(cy_lowering *l, const cy_requirement *r, cy_sym *out_sym) {
  bound b = {l->g, true};
  if (r->kind != CY_REQUIRE_CLAMPED || !(*out_sym = cy_dim_symbol(l->g, r->a)) ||
      cy_sym_of(l->g, *out_sym)->kind != CY_SYM_DATA || block_of(l, cy_sym_of(l->g, *out_sym)->value) != r->block)
    return false;
  cy_dim_symbols(l->g, r->b, see_bound, &b);
  return b.known;
}

void cy_lower_find_checks(cy_lowering *l) {
  const cy_requirement *list;
  uint32_t n = cy_graph_requirements(l->g, &list);
  sought s = {CY_NEW_ARRAY(l->arena, bool, cy_sym_count(l->g) + 1)};
  l->in_kernel = CY_NEW_ARRAY(l->arena, bool, cy_sym_count(l->g) + 1);
  if (!l->caps->device)
    return;
  use_blocks(l, &s);
  for (uint32_t i = 0; i < n; i++) {
    cy_sym sym;
    if (checkable(l, &list[i], &sym)) {
      l->in_kernel[sym] = true;
    } else {
      cy_dim_symbols(l->g, list[i].a, use, &s);
      cy_dim_symbols(l->g, list[i].b, use, &s);
    }
  }
  for (cy_sym sym = 1; sym <= cy_sym_count(l->g); sym++)
    l->in_kernel[sym] &= !s.used[sym];
}

enum { NUMBER, BOUND, WORDS }; /* of a check: the number + 1, 0 while all are in range; what it must be below */

/* The number in `at` beside its bound. One item: a launch that the device hardly notices. */
static void check_number(cy_lowering *l, const cy_place *at, cy_dtype dtype, cy_dim extent, uint32_t row) {
  cy_kb b;
  cy_kb_init(&b, l, "check");
  cy_dim words = cy_dim_const(l->g, (int64_t)row * WORDS);
  const cy_place to = {.placed = true, .buffer = l->p->checks_buffer, .offset = words};
  cy_expr one = cy_x_int(b.k, CY_I64, 1), number = cy_x_cast(b.k, cy_kb_load(&b, at, dtype, 0, NULL), CY_I64);
  cy_karg kept = cy_kb_arg(&b, &to, CY_I64, CY_ARG_WRITE);
  cy_expr old = cy_x_load(b.k, kept, cy_x_index(b.k, NUMBER)), limit = cy_x_dim(b.k, extent);
  cy_expr out = cy_x_bin(b.k, CY_OP_and, cy_x_bin(b.k, CY_OP_ge, number, limit),
                         cy_x_bin(b.k, CY_OP_eq, old, cy_x_int(b.k, CY_I64, 0)));
  cy_local first = cy_kernel_add_local(b.k, CY_I64), bound = cy_kernel_add_local(b.k, CY_I64);
  cy_kernel_set(b.k, first, cy_x_select(b.k, out, cy_x_bin(b.k, CY_OP_add, number, one), old));
  cy_kernel_set(b.k, bound, cy_x_select(b.k, out, limit, cy_x_load(b.k, kept, cy_x_index(b.k, BOUND))));
  cy_expr number_at = cy_x_index(b.k, NUMBER), bound_at = cy_x_index(b.k, BOUND);
  cy_kernel_store(b.k, kept, number_at, cy_x_local(b.k, first));
  cy_kernel_store(b.k, kept, bound_at, cy_x_local(b.k, bound));
  cy_kb_launch(&b, true);
}

static void check_symbol(cy_lowering *l, const cy_place *at, cy_dtype dtype, cy_sym sym) {
  const cy_requirement *list;
  uint32_t n = cy_graph_requirements(l->g, &list);
  for (uint32_t i = 0; i < n; i++) {
    cy_sym of;
    if (!checkable(l, &list[i], &of) || of != sym)
      continue;
    cy_program *p = l->p;
    if (!p->nchecks)
      p->checks_buffer = cy_program_add_buffer(p, CY_BUF_CHECKS, 0, cy_dim_const(l->g, 0));
    p->checks = cy_arena_grow(cy_graph_arena(l->g), p->checks, p->nchecks, &p->checks_cap, sizeof *p->checks);
    p->checks[p->nchecks++] = i;
    p->buffers[p->checks_buffer].bytes = cy_dim_const(l->g, (int64_t)p->nchecks * WORDS * 8);
    check_number(l, at, dtype, list[i].b, p->nchecks - 1);
  }
}

void cy_lower_read_symbols(cy_lowering *l, cy_val v) {
  const cy_type *t = cy_lower_type(l, v);
  for (uint32_t i = l->sym_start[v]; i < l->sym_start[v + 1]; i++) {
    cy_sym_info *s = cy_sym_of(l->g, l->sym_list[i]);
    cy_place at = *cy_lower_place(l, v);
    int64_t rest = s->index, extent = 1;
    for (int axis = t->rank - 1; axis >= 0; axis--, rest /= extent) {
      if (!cy_dim_is_const(l->g, t->dim[axis], &extent) || extent < 1)
        extent = 1;
      at.offset = cy_dim_add(l->g, at.offset, cy_dim_muli(l->g, at.stride[axis], rest % extent));
    }
    if (l->in_kernel[l->sym_list[i]])
      check_symbol(l, &at, (cy_dtype)t->dtype, l->sym_list[i]);
    else
      cy_lower_read(l, &at, (cy_dtype)t->dtype, l->sym_list[i]);
  }
}
