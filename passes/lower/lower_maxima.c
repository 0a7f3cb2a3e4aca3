/* SPDX-License-Identifier: Apache-2.0 */
/* lower_maxima.c - largest elements of images, found by the kernels that compute these (passes/maxima.c).
 *
 * In:  a contraction's kernel under construction, whose target is stored images. Out: a further statement of it, the
 * maximum of the bits of their magnitudes for each image: maxima have no order, so that blocks may store them as they
 * come. All maxima of a program lie in one buffer, which its first kernel fills with zeros.
 */
#include "lower_int.h"
#include "passes/pass_int.h"

/* Elements of a cache line: what one kernel reads does not share one with what it, or the next one, raises. */
enum { LINE = 32 };

/* Memory behind what others took. */
static void take(cy_lowering *l, cy_val max) {
  const cy_type *t = cy_lower_type(l, max);
  cy_place *p = &l->place[max];
  if (!l->maxima_elems)
    l->maxima_buffer = cy_program_add_buffer(l->p, CY_BUF_ARENA, 0, cy_dim_const(l->g, 0));
  *p = (cy_place){
      .placed = true, .buffer = l->maxima_buffer, .offset = l->maxima_elems ? l->maxima_elems : cy_dim_const(l->g, 0)};
  cy_lower_dense_strides(l->g, t, NULL, p->stride);
  l->maxima_elems = cy_dim_add(l->g, p->offset, cy_dim_muli(l->g, cy_dim_cdiv(l->g, t->dim[0], cy_dim_const(l->g, LINE)), LINE));
  l->maxima_node = cy_value_of(l->g, max)->node;
}

/* Only steps that every run does, and in this order, know what is filled. */
static bool is_outermost(const cy_lowering *l, cy_val v) {
  const cy_node_info *n = cy_def(l->g, v);
  return n && n->block == 1;
}

void cy_lower_maxima(cy_kb *b, cy_val target, const cy_expr *idx, cy_expr value) {
  cy_lowering *l = b->l;
  cy_graph *g = l->g;
  const cy_type *t = cy_lower_type(l, target);
  const cy_target_caps *caps = l->caps;
  cy_val max = caps->finds_maxima && t->dtype == CY_F16 ? cy_maxima_of(g, &l->uses, target) : 0;
  if (!max || !caps->maxima_of || !caps->maxima_of(caps->machine, b->k) || !is_outermost(l, max) ||
      !is_outermost(l, target) || cy_value_of(g, max)->inlined || l->place[max].placed || cy_lower_is_dynamic(l, t))
    return;
  cy_val slices = cy_def(g, max)->in[0], bits = cy_def(g, slices)->in[0];
  if (l->uses.start[slices + 1] - l->uses.start[slices] != 1)
    return;
  cy_expr stored = cy_x_cast(b->k, cy_x_cast(b->k, value, CY_F16), CY_F32), at[CY_MAX_RANK] = {idx[0]};
  for (int i = 1; i < t->rank; i++)
    at[i] = cy_x_index(b->k, 0);
  take(l, max);
  cy_expr magnitude = cy_lower_behind(b, bits, target, idx, stored);
  cy_karg arg = cy_kb_arg(b, &l->place[max], CY_I32, CY_ARG_WRITE);
  cy_kernel_store_max(b->k, arg, cy_kb_offset(b, &l->place[max], t->rank, at), magnitude);
  l->found[max] = l->found[slices] = true;
}

bool cy_lower_rounded(cy_kb *b, cy_val ints, cy_val *out_x) {
  cy_lowering *l = b->l;
  cy_contraction *c = cy_kernel_contraction(b->k);
  cy_maxima_rounding r;
  if (!l->caps->finds_maxima || !cy_value_of(l->g, ints)->inlined || !cy_maxima_rounds(l->g, ints, &r) ||
      !cy_lower_is_stored(l, r.x) || !cy_lower_is_stored(l, r.max))
    return false;
  const cy_place *max = cy_lower_place(l, r.max);
  c->a_rounded = r.type;
  c->a_steps = r.steps;
  c->a_max = cy_kb_arg(b, max, CY_I32, CY_ARG_READ);
  c->a_max_step = !cy_dim_is(l->g, cy_lower_type(l, r.max)->dim[0], 1);
  *out_x = r.x;
  return true;
}

void cy_lower_maxima_zeros(cy_lowering *l) {
  cy_step *behind = l->p->steps;
  cy_place to = {
      .placed = true, .buffer = l->maxima_buffer, .offset = cy_dim_const(l->g, 0), .stride = {cy_dim_const(l->g, 1)}};
  cy_kb b;
  if (!l->maxima_elems)
    return;
  l->p->buffers[l->maxima_buffer].bytes = cy_dim_muli(l->g, l->maxima_elems, 4);
  l->p->steps = NULL;
  l->tail = &l->p->steps;
  l->node = l->maxima_node;
  cy_kb_init(&b, l, "zeros");
  cy_expr at = cy_kb_grid_index(&b, l->maxima_elems);
  cy_kb_store(&b, &to, CY_I32, 1, &at, cy_x_int(b.k, CY_I32, 0));
  cy_kb_launch(&b, true);
  *l->tail = behind;
}
