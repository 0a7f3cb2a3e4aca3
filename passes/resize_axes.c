/* SPDX-License-Identifier: Apache-2.0 */
/* resize_axes.c - resizing by large windows along one axis after the other.
 *
 * In:  a swept graph. Out: a resize that shrinks along several axes with antialias, or a cubic one of more than two axes,
 * where every element is the sum of a window, as one resize per axis: h + w taps instead of h * w. Cubic windows of all
 * four axes (sizes that are all known at run time alone) have 256 taps otherwise. What lies between is in f32 (f64) for
 * all types, so that elements are rounded once.
 *
 * The order is that of least work. An axis that keeps a part f of its extent at t taps costs f t for each element that it
 * gets, and leaves f of them; of two, the one with the lesser f t / (1 - f) goes first, and axes that grow come last.
 * Along the axis closest in memory, the feature map is transposed before and behind it (layout.c), which counts as more
 * taps.
 *
 * Refused: crops, which have a value of their own outside; cubic windows of integers, whose sums may leave the type's
 * range before they are rounded.
 */
#include "pass_int.h"

#include <string.h>

enum { CLOSEST = 3, UNKNOWN_TAPS = 4, MAX_AXES_AT_ONCE = 2 /* of a cubic window without antialias */ };
#define UNKNOWN_PART 0.5

/* What decides on the place of an axis in the order: growing ones behind shrinking ones, then by work. */
typedef struct rank_of_axis {
  bool grows;
  double work;
} rank_of_axis;

static rank_of_axis rank_axis(cy_graph *g, const cy_type *in, const cy_type *out, int axis) {
  double part = UNKNOWN_PART, taps = UNKNOWN_TAPS;
  int64_t from, to;
  if (cy_dim_is_const(g, in->dim[axis], &from) && cy_dim_is_const(g, out->dim[axis], &to) && from > 0 && to > 0) {
    part = (double)to / (double)from;
    taps = part < 1 ? 2 / part : 2;
  }
  double work = part * taps * (axis == in->rank - 1 ? CLOSEST : 1);
  return (rank_of_axis){part >= 1, part == 1 ? 0 : work / (1 - part)};
}

static bool goes_before(rank_of_axis a, rank_of_axis b) { return a.grows != b.grows ? b.grows : a.work < b.work; }

/* The axes along which n resizes, in their order. */
static int find_axes(cy_graph *g, const cy_node_info *n, int *out) {
  const cy_type *in = cy_type_of(g, n->in[0]), *type = cy_type_of(g, n->out[0]);
  rank_of_axis rank[CY_MAX_RANK];
  int count = 0;
  for (int axis = 0; axis < in->rank; axis++) {
    if (!cy_resizes_axis(n, in, type, axis))
      continue;
    rank_of_axis r = rank_axis(g, in, type, axis);
    int at = count++;
    for (; at && goes_before(r, rank[at - 1]); at--) {
      rank[at] = rank[at - 1];
      out[at] = out[at - 1];
    }
    rank[at] = r;
    out[at] = axis;
  }
  return count;
}

/* n along one axis. */
static cy_val along(cy_graph *g, const cy_node_info *n, cy_val x, int axis) {
  cy_type t = *cy_type_of(g, x);
  const cy_attr *scales = cy_attr_find(n, CY_ATTR_scales);
  cy_attr *attrs = CY_NEW_ARRAY(cy_graph_arena(g), cy_attr, n->nattrs);
  cy_val in[CY_MAX_RANK];
  double one[CY_MAX_RANK];
  memcpy(in, n->in, n->nin * sizeof *in);
  in[0] = x;
  t.dim[axis] = cy_type_of(g, n->out[0])->dim[axis];
  for (uint32_t i = 0; i < n->nattrs; i++) {
    attrs[i] = n->attrs[i];
    if (attrs[i].key == CY_ATTR_scales && scales->n) {
      for (uint32_t k = 0; k < scales->n; k++)
        one[k] = (int)k == axis ? scales->floats[k] : 1;
      attrs[i] = cy_attr_floats(CY_ATTR_scales, one, scales->n);
    }
  }
  return cy_build(g, CY_OP_resize, in, n->nin, attrs, n->nattrs, &t, 1);
}

static cy_val one_after_the_other(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  cy_dtype dtype = (cy_dtype)cy_type_of(g, n->in[0])->dtype;
  int64_t mode = cy_attr_get_int(n, CY_ATTR_mode, CY_RESIZE_NEAREST);
  int axes[CY_MAX_RANK];
  bool whole = !cy_dtype_is_float(dtype);
  bool antialias = cy_attr_get_int(n, CY_ATTR_antialias, 0) != 0;
  if (mode == CY_RESIZE_NEAREST || (whole && mode == CY_RESIZE_CUBIC) || (mode == CY_RESIZE_LINEAR && !antialias) ||
      cy_attr_get_int(n, CY_ATTR_coord, CY_COORD_HALF_PIXEL) == CY_COORD_TF_CROP)
    return 0;
  int count = find_axes(g, n, axes);
  if (count < (antialias ? 2 : MAX_AXES_AT_ONCE + 1))
    return 0;
  cy_val v = cy_build_cast(g, n->in[0], cy_dtype_real(dtype));
  for (int i = 0; i < count; i++)
    v = along(g, n, v, axes[i]);
  return cy_build_cast(g, whole ? cy_build_unary(g, CY_OP_round, v) : v, dtype);
}

static const cy_rule rules[] = {
    {CY_OP_resize, "one axis after the other", one_after_the_other},
};

/* requires: swept   establishes: swept   breaks: unique, folded, placed, fused */
int cy_pass_resize_axes(cy_pass *p) {
  const cy_rule_set set = {rules, sizeof rules / sizeof rules[0]};
  cy_rewrite_run(p, &set, 1);
  return 0;
}
