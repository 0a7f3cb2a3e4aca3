/* SPDX-License-Identifier: Apache-2.0 */
/* space_to_depth.c - convolutions of space-to-depth, a quarter of the size with four times the channels, read its input.
 *
 * In:  a swept graph. Out: conv(concat(x[.., 0::2, 0::2], x[.., 1::2, 0::2], ..), w), which YOLO begins with, as a
 * convolution of x with twice the stride and a filter of twice the height and width, in which each part's weights have
 * the places of its residue. Pads are as many residues as they were positions. The parts may come in any order, but must be
 * all there. Only for targets that read feature maps of few channels as fast as others: then f32 takes the same time,
 * and integers less, as no bytes are moved.
 */
#include "pass_int.h"

enum { MAX_RESIDUES = 16 };

typedef struct residues {
  cy_val x;
  int64_t step[2];             /* down and across */
  uint32_t place[MAX_RESIDUES]; /* by residue, the lower ones first: which part it is */
  uint32_t count;
} residues;

/* Part k, a slice that takes every step[i]th of x. */
static bool take_part(cy_graph *g, residues *p, cy_val part, uint32_t k, uint32_t *seen) {
  const cy_node_info *s = cy_def_of(g, part, CY_OP_slice);
  uint32_t rank;
  if (!s)
    return false;
  const int64_t *steps = cy_attr_list(s, CY_ATTR_steps, &rank);
  const cy_dim *starts = cy_attr_dim_list(s, CY_ATTR_starts, &rank);
  const cy_type *from = cy_type_of(g, s->in[0]), *to = cy_type_of(g, part);
  int64_t at[2];
  if (rank != 4 || (k && s->in[0] != p->x) || steps[0] != 1 || steps[1] != 1 || from->dim[0] != to->dim[0] ||
      from->dim[1] != to->dim[1])
    return false;
  p->x = s->in[0];
  for (int i = 0; i < 2; i++) {
    if (!k)
      p->step[i] = steps[2 + i];
    if (steps[2 + i] != p->step[i] || p->step[i] < 1 || !cy_dim_is_const(g, starts[2 + i], &at[i]) || at[i] < 0 ||
        at[i] >= p->step[i] || cy_dim_muli(g, to->dim[2 + i], p->step[i]) != from->dim[2 + i])
      return false;
  }
  if (p->step[0] > MAX_RESIDUES || p->step[1] > MAX_RESIDUES || p->step[0] * p->step[1] != p->count)
    return false;
  uint32_t residue = (uint32_t)(at[0] * p->step[1] + at[1]);
  p->place[residue] = k;
  *seen |= 1u << residue;
  return true;
}

static bool find_residues(cy_graph *g, const cy_node_info *concat, residues *out) {
  uint32_t seen = 0;
  *out = (residues){.count = concat->nin};
  if (concat->nin < 2 || concat->nin > MAX_RESIDUES || cy_attr_get_int(concat, CY_ATTR_axis, 0) != 1)
    return false;
  for (uint32_t k = 0; k < concat->nin; k++)
    if (!take_part(g, out, concat->in[k], k, &seen))
      return false;
  return seen == (1u << concat->nin) - 1;
}

/* [o][part][c][h][w] as [o][c][h][residue down][w][residue across]. */
static cy_val spread_weights(cy_graph *g, const residues *p, cy_val w) {
  enum { O, C, H, W };
  const cy_type *t = cy_type_of(g, w);
  cy_dim channels = cy_type_of(g, p->x)->dim[1], down = cy_dim_const(g, p->step[0]),
         across = cy_dim_const(g, p->step[1]);
  cy_dim shape[] = {t->dim[O], down, across, channels, t->dim[H], t->dim[W]};
  cy_dim whole[] = {t->dim[O], channels, cy_dim_muli(g, t->dim[H], p->step[0]), cy_dim_muli(g, t->dim[W], p->step[1])};
  static const int64_t order[] = {0, 3, 4, 1, 5, 2};
  cy_val part[MAX_RESIDUES];
  for (uint32_t i = 0; i < p->count; i++)
    part[i] = cy_build_slice_axis(g, w, C, cy_dim_muli(g, channels, p->place[i]), channels);
  cy_val all = cy_build_reshape(g, cy_build_concat(g, part, p->count, C), shape, 6);
  return cy_build_reshape(g, cy_build_transpose(g, all, order), whole, 4);
}

/* Convolution n of x with weights w, strides and pads times the residues. */
static cy_val build_conv(cy_graph *g, const cy_node_info *n, const residues *p, cy_val w) {
  int64_t strides[2], pads[4];
  const cy_attr *was = cy_attr_find(n, CY_ATTR_strides), *edge = cy_attr_find(n, CY_ATTR_pads);
  cy_attr attrs[8];
  if (n->nattrs > 8)
    return 0;
  for (int i = 0; i < 4; i++)
    pads[i] = edge->ints[i] * p->step[i % 2];
  for (int i = 0; i < 2; i++)
    strides[i] = was->ints[i] * p->step[i];
  for (uint32_t i = 0; i < n->nattrs; i++)
    attrs[i] = n->attrs[i].key == CY_ATTR_strides ? cy_attr_ints(CY_ATTR_strides, strides, 2)
               : n->attrs[i].key == CY_ATTR_pads  ? cy_attr_ints(CY_ATTR_pads, pads, 4)
                                                  : n->attrs[i];
  cy_val in[2] = {p->x, w};
  return cy_build(g, CY_OP_conv, in, 2, attrs, n->nattrs, cy_type_of(g, n->out[0]), 1);
}

static cy_val conv_of_residues(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  const cy_node_info *concat = cy_def_of(g, n->in[0], CY_OP_concat);
  const cy_attr *dilations = cy_attr_find(n, CY_ATTR_dilations);
  residues p;
  if (!cy_caps_of(rw->pass->options->caps)->conv_cycles || !concat || n->nin != 2 || !cy_value_is_const(g, n->in[1]) ||
      cy_type_of(g, n->in[1])->rank != 4 || cy_attr_get_int(n, CY_ATTR_group, 1) != 1 ||
      !cy_rewrite_single_use(rw, n->in[0]) || !find_residues(g, concat, &p))
    return 0;
  for (uint32_t i = 0; dilations && i < 2; i++)
    if (dilations->ints[i] != 1)
      return 0;
  return build_conv(g, n, &p, spread_weights(g, &p, n->in[1]));
}

static const cy_rule rules[] = {{CY_OP_conv, "convolution of residues", conv_of_residues}};

/* requires: swept   establishes: swept   breaks: unique, folded, placed, fused */
int cy_pass_space_to_depth(cy_pass *p) {
  const cy_rule_set set = {rules, sizeof rules / sizeof rules[0]};
  cy_rewrite_run(p, &set, 1);
  return 0;
}
