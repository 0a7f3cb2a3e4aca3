/* SPDX-License-Identifier: Apache-2.0 */
/* lower_maxima.c - largest elements of images, found by the kernels that compute these (passes/maxima.c).
 *
 * In:  a contraction's kernel under construction, whose target is stored images. Out: a further statement of it, the
 * maximum of the bits of their magnitudes for each image: maxima have no order, so that blocks may store them as they
 * come. All maxima of a program lie in one buffer, which its first kernel fills with zeros.
 */
#include "lower_int.h"
#include "passes/pass_int.h"

/* Memory behind what others took. */
static void take(cy_lowering *l, cy_val most) {
  const cy_type *t = cy_lower_type(l, most);
  cy_place *p = &l->place[most];
  if (!l->most_elems)
    l->most_buffer = cy_program_add_buffer(l->p, CY_BUF_ARENA, 0, cy_dim_const(l->g, 0));
  *p = (cy_place){
      .placed = true, .buffer = l->most_buffer, .offset = l->most_elems ? l->most_elems : cy_dim_const(l->g, 0)};
  cy_lower_dense_strides(l->g, t, NULL, p->stride);
  l->most_elems = cy_dim_add(l->g, p->offset, t->dim[0]);
  l->most_node = cy_value_of(l->g, most)->node;
}

/* Only steps that every run does, and in this order, know what is filled. */
static bool is_outermost(const cy_lowering *l, cy_val v) {
  const cy_node_info *n = cy_def(l->g, v);
  return n && n->block == 1;
}

void cy_lower_most(cy_kb *b, cy_val target, const cy_expr *idx, cy_expr value) {
  cy_lowering *l = b->l;
  cy_graph *g = l->g;
  const cy_type *t = cy_lower_type(l, target);
  const cy_target_caps *caps = l->caps;
  cy_val most = caps->finds_most && t->dtype == CY_F16 ? cy_most_of(g, &l->uses, target) : 0;
  if (!most || !caps->most_of || !caps->most_of(caps->machine, b->k) || !is_outermost(l, most) ||
      !is_outermost(l, target) || cy_value_of(g, most)->inlined || l->place[most].placed || cy_lower_is_dynamic(l, t))
    return;
  cy_val slices = cy_def(g, most)->in[0], bits = cy_def(g, slices)->in[0];
  cy_expr stored = cy_x_cast(b->k, cy_x_cast(b->k, value, CY_F16), CY_F32), at[CY_MAX_RANK] = {idx[0]};
  for (int i = 1; i < t->rank; i++)
    at[i] = cy_x_index(b->k, 0);
  take(l, most);
  cy_expr magnitude = cy_lower_behind(b, bits, target, idx, stored);
  cy_karg arg = cy_kb_arg(b, &l->place[most], CY_I32, CY_ARG_WRITE);
  cy_kernel_store_max(b->k, arg, cy_kb_offset(b, &l->place[most], t->rank, at), magnitude);
  l->found[most] = l->found[slices] = true;
}

bool cy_lower_rounded(cy_kb *b, cy_val ints, cy_val *out_x) {
  cy_lowering *l = b->l;
  cy_contraction *c = cy_kernel_contraction(b->k);
  cy_most_rounding r;
  if (!l->caps->finds_most || !cy_value_of(l->g, ints)->inlined || !cy_most_rounds(l->g, ints, &r) ||
      !cy_lower_is_stored(l, r.x) || !cy_lower_is_stored(l, r.most))
    return false;
  const cy_place *most = cy_lower_place(l, r.most);
  c->a_rounded = r.type;
  c->a_steps = r.steps;
  c->a_most = cy_kb_arg(b, most, CY_I32, CY_ARG_READ);
  c->a_most_step = !cy_dim_is(l->g, cy_lower_type(l, r.most)->dim[0], 1);
  *out_x = r.x;
  return true;
}

void cy_lower_most_zeros(cy_lowering *l) {
  cy_step *behind = l->p->steps;
  cy_place to = {
      .placed = true, .buffer = l->most_buffer, .offset = cy_dim_const(l->g, 0), .stride = {cy_dim_const(l->g, 1)}};
  cy_kb b;
  if (!l->most_elems)
    return;
  l->p->buffers[l->most_buffer].bytes = cy_dim_muli(l->g, l->most_elems, 4);
  l->p->steps = NULL;
  l->tail = &l->p->steps;
  l->node = l->most_node;
  cy_kb_init(&b, l, "zeros");
  cy_expr at = cy_kb_grid_index(&b, l->most_elems);
  cy_kb_store(&b, &to, CY_I32, 1, &at, cy_x_int(b.k, CY_I32, 0));
  cy_kb_launch(&b, true);
  *l->tail = behind;
}
