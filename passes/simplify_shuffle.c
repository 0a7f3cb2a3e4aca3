/* SPDX-License-Identifier: Apache-2.0 */
/* simplify_shuffle.c - transposed convolutions as convolutions whose channels become spatial positions (ir/pixel_shuffle.h).
 *
 * In:  transposed convolutions without dilation, of a known kernel. Out:
 *   of floats     (a rule of the simplify pass) a convolution, and views that shuffle its channels
 *   of integers   (called by the passes that make integers) a convolution that shuffles them itself: attribute `shuffle`
 */
#include "simplify.h"

#include "ir/pixel_shuffle.h"

#include <string.h>

/* A transposed convolution of stride s falls into s parts an axis, each with a kernel of its own. All of them together
 * are one product: a convolution of `taps` taps, as many as the kernel has strides, whose channels then become
 * spatial positions (pixel shuffle), of which padding cuts some off. That is better where parts are more than
 * MAX_PARTS, or have so few channels that vectors would be mostly empty, and the kernel is as long as some strides.
 * Where weights are computed, only convolutions have a generator: always; the kernel is filled up with zeros then. */
enum { MAX_PARTS = 8, FEW_CHANNELS = 8 };

typedef struct shuffle_plan {
  cy_graph *g;
  cy_type x, w, y;
  uint32_t spatial;
  const int64_t *strides, *pads;
  int64_t taps[CY_MAX_RANK], missing[CY_MAX_RANK]; /* elements that the kernel is short of taps * stride */
  int64_t edge[2 * CY_MAX_RANK];                   /* the convolution's pads */
  int64_t cropped[CY_MAX_RANK];                    /* positions in front of the output's first one */
  int64_t group, parts;
  cy_dim members, channels; /* outputs of a group, of the convolution */
} shuffle_plan;

/* A convolution whose every place the output wants, at least in part; `fixed`: no place that the input does not reach. */
static bool plan_edges(shuffle_plan *d, uint32_t i, bool fixed) {
  cy_graph *g = d->g;
  int64_t stride = d->strides[i], last = d->taps[i] - 1, skip = d->pads[i] / stride, left;
  cy_dim all = cy_dim_muli(g, cy_dim_addi(g, d->x.dim[2 + i], last), stride);
  cy_dim end = cy_dim_addi(g, d->y.dim[2 + i], d->pads[i]);
  skip = skip < last ? skip : last;
  d->edge[i] = last - skip;
  d->cropped[i] = d->pads[i] - skip * stride;
  if (!cy_dim_le(g, end, all)) {
    d->edge[d->spatial + i] = last + 1;
    return !fixed && cy_dim_le(g, end, cy_dim_addi(g, all, stride));
  }
  skip = cy_dim_is_const(g, cy_dim_sub(g, all, end), &left) ? left / stride : 0;
  d->edge[d->spatial + i] = last - (skip < last ? skip : last);
  return true;
}

/* Weights that are no constant yet, but scaled by some (see fold_affine) or dequantised, will be one. */
static bool is_scaled_const(const cy_graph *g, cy_val v) {
  const cy_node_info *n = NULL;
  while (!cy_value_is_const(g, v) && (n = cy_def(g, v)) && (n->op == CY_OP_mul || n->op == CY_OP_dequantize) &&
         cy_value_is_const(g, n->in[1]))
    v = n->in[0];
  return cy_value_is_const(g, v);
}

static bool plan_shuffle(cy_rewrite *rw, const cy_node_info *n, shuffle_plan *d) {
  cy_graph *g = d->g;
  uint32_t count;
  bool fixed = is_scaled_const(g, n->in[1]), whole = fixed || rw->pass->options->strict_fp;
  const int64_t *dilations = cy_attr_list(n, CY_ATTR_dilations, &count);
  d->x = *cy_type_of(g, n->in[0]), d->w = *cy_type_of(g, n->in[1]), d->y = *cy_type_of(g, n->out[0]);
  d->pads = cy_attr_list(n, CY_ATTR_pads, &count);
  d->strides = cy_attr_list(n, CY_ATTR_strides, &d->spatial);
  d->group = cy_attr_get_int(n, CY_ATTR_group, 1);
  d->parts = 1;
  if (n->nin > 2 || 3 + 2 * d->spatial > CY_MAX_RANK || (fixed && d->group != 1) || (!fixed && d->x.dtype != CY_F32))
    return false;
  for (uint32_t i = 0; i < d->spatial; i++) {
    int64_t kernel, stride = d->strides[i];
    if (!cy_dim_is_const(g, d->w.dim[2 + i], &kernel) || kernel < 1 || (whole && kernel % stride) || d->pads[i] < 0 ||
        (dilations && dilations[i] != 1))
      return false;
    d->taps[i] = (kernel + stride - 1) / stride;
    d->missing[i] = d->taps[i] * stride - kernel;
    d->parts *= stride;
    if (!plan_edges(d, i, fixed))
      return false;
  }
  d->members = d->w.dim[1];
  d->channels = cy_dim_muli(g, d->members, d->group * d->parts);
  return !fixed || d->parts > MAX_PARTS ||
         (d->parts > 1 && cy_dim_le(g, d->members, cy_dim_const(g, FEW_CHANNELS - 1)));
}

/* [group * in, out, taps * strides ..] as a convolution's [group * strides .. * out, in, taps ..], whose taps run
 * backwards. Weights that are computed come to lie [taps .., in, group * strides .. * out], as its product wants them. */
static cy_val shuffled_weights(const shuffle_plan *d, cy_val v) {
  cy_graph *g = d->g;
  int s = (int)d->spatial, rank = 2 + s, at = d->group > 1; /* the groups: an axis of their own, in front */
  int64_t perm[CY_MAX_RANK], steps[CY_MAX_RANK], back[CY_MAX_RANK] = {s + 1, s};
  cy_dim zero = cy_dim_const(g, 0), pads[2 * CY_MAX_RANK], starts[CY_MAX_RANK], split[CY_MAX_RANK], to[CY_MAX_RANK];
  bool short_of = false;
  for (int i = 0; i < rank; i++) {
    pads[i] = zero;
    pads[rank + i] = i < 2 ? zero : cy_dim_const(g, d->missing[i - 2]);
    short_of = short_of || (i >= 2 && d->missing[i - 2]);
  }
  if (short_of)
    v = cy_build_pad(g, v, pads, CY_PAD_CONSTANT, 0);
  split[0] = cy_dim_const(g, d->group);
  split[at] = to[s] = cy_dim_div(g, d->w.dim[0], split[0]);
  split[at + 1] = d->members;
  to[s + 1] = d->channels;
  perm[s] = at;
  perm[s + 1] = 0; /* the groups, if any */
  perm[s + at + 1 + s] = at + 1;
  for (int i = 0; i < s; i++) {
    split[at + 2 + 2 * i] = to[i] = cy_dim_const(g, d->taps[i]);
    split[at + 3 + 2 * i] = cy_dim_const(g, d->strides[i]);
    perm[i] = at + 2 + 2 * i;
    perm[s + at + 1 + i] = at + 3 + 2 * i;
    back[2 + i] = i;
  }
  for (int i = 0; i < rank; i++) {
    steps[i] = i < s ? -1 : 1;
    starts[i] = i < s ? cy_dim_const(g, d->taps[i] - 1) : zero;
  }
  v = cy_build_transpose(g, cy_build_reshape(g, v, split, at + 2 + 2 * s), perm);
  return cy_build_transpose(g, cy_build_slice(g, cy_build_reshape(g, v, to, rank), starts, steps, to), back);
}

static cy_val shuffle_out(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  shuffle_plan d = {.g = rw->g};
  if (!plan_shuffle(rw, n, &d))
    return 0;
  uint32_t s = d.spatial, at = 1 + (d.group > 1); /* where strides begin among the axes of what is shuffled */
  int64_t perm[CY_MAX_RANK] = {0, 1}, ones[CY_MAX_RANK];
  cy_dim places[CY_MAX_RANK] = {d.x.dim[0], cy_dim_const(g, d.group)}, whole[CY_MAX_RANK] = {d.y.dim[0], d.y.dim[1]};
  cy_dim starts[CY_MAX_RANK] = {cy_dim_const(g, 0), cy_dim_const(g, 0)};
  cy_type to = d.y;
  to.dim[1] = d.channels;
  places[at + s] = d.members;
  perm[at] = at + (int64_t)s;
  for (uint32_t i = 0; i < s; i++) {
    ones[i] = 1;
    to.dim[2 + i] = places[at + s + 1 + i] =
        cy_dim_addi(g, d.x.dim[2 + i], d.edge[i] + d.edge[s + i] - (d.taps[i] - 1));
    places[at + i] = cy_dim_const(g, d.strides[i]);
    whole[2 + i] = cy_dim_muli(g, to.dim[2 + i], d.strides[i]);
    starts[2 + i] = cy_dim_const(g, d.cropped[i]);
    perm[at + 1 + 2 * i] = at + 1 + (int64_t)(s + i);
    perm[at + 2 + 2 * i] = at + (int64_t)i;
  }
  cy_attr a[4] = {cy_attr_ints(CY_ATTR_strides, ones, s), cy_attr_ints(CY_ATTR_pads, d.edge, 2 * s),
                  cy_attr_ints(CY_ATTR_dilations, ones, s), cy_attr_int(CY_ATTR_group, d.group)};
  cy_val in[2] = {n->in[0], shuffled_weights(&d, n->in[1])};
  cy_val all = cy_build(g, CY_OP_conv, in, 2, a, 4, &to, 1);
  all = cy_build_transpose(g, cy_build_reshape(g, all, places, (int)(at + 1 + 2 * s)), perm);
  return cy_build_slice(g, cy_build_reshape(g, all, whole, d.y.rank), starts, NULL, d.y.dim);
}

/* ---- of integers ------------------------------------------------------------------------------------------------ */

/* Products with zeros that fill up kernels, for each other one: what generators may leave out, as they do for channels
 * that fill a vector, and what they compute where positions that lie side by side share one. */
static const double MAX_FILLED = 3, MAX_EMPTY = 1.5;
enum { VECTOR = 16 };
enum { MAX_STRIDE = 1 << 15 }; /* products of three are numbers */

/* A convolution of stride 1 whose places make all of the output, and nothing else. */
typedef struct places {
  cy_type y;
  uint32_t spatial;
  const int64_t *strides;
  cy_shuffle_axis axis[CY_MAX_RANK];
  int64_t kernel[CY_MAX_RANK], pads[2 * CY_MAX_RANK];
  int64_t parts, taps; /* of all axes together */
} places;

/* Is there little enough to compute besides the kernel, of positions with so many channels? */
static bool has_few_zeros(const places *p, int64_t channels) {
  int64_t sharing = (VECTOR + channels - 1) / channels; /* positions */
  double all = 1, left = 1;
  for (uint32_t i = p->spatial; i-- > 0;) {
    double filled = (double)(p->axis[i].taps * p->strides[i]) / (double)p->kernel[i];
    all *= filled;
    left *= sharing > 1 ? filled : 1;
    sharing = (sharing + p->strides[i] - 1) / p->strides[i];
  }
  return all <= 1 + MAX_FILLED && left <= 1 + MAX_EMPTY;
}

static bool plan_places(cy_graph *g, const cy_node_info *n, places *p) {
  uint32_t count;
  int64_t channels;
  const cy_type *x = cy_type_of(g, n->in[0]), *w = cy_type_of(g, n->in[1]);
  const int64_t *dilations = cy_attr_list(n, CY_ATTR_dilations, &count), *pads = cy_attr_list(n, CY_ATTR_pads, &count);
  *p = (places){.y = *cy_type_of(g, n->out[0]), .parts = 1, .taps = 1};
  p->strides = cy_attr_list(n, CY_ATTR_strides, &p->spatial);
  if (cy_attr_get_int(n, CY_ATTR_group, 1) != 1)
    return false;
  for (uint32_t i = 0; i < p->spatial; i++) {
    int64_t stride = p->strides[i], *behind = &p->pads[p->spatial + i];
    if (!cy_dim_is_const(g, w->dim[2 + i], &p->kernel[i]) || p->kernel[i] < 1 || pads[i] < 0 || pads[i] > MAX_STRIDE ||
        stride > MAX_STRIDE || (dilations && dilations[i] != 1))
      return false;
    cy_shuffle_axis a = p->axis[i] = cy_shuffle_axis_of(p->kernel[i], stride, pads[i]);
    cy_dim out = cy_dim_div(g, p->y.dim[2 + i], cy_dim_const(g, stride));
    if (cy_dim_muli(g, out, stride) != p->y.dim[2 + i] || a.edge < 0 ||
        !cy_dim_is_const(g, cy_dim_addi(g, cy_dim_sub(g, out, x->dim[2 + i]), a.taps - 1 - a.edge), behind) ||
        *behind < 0)
      return false;
    p->pads[i] = a.edge;
    p->parts *= stride;
    p->taps *= a.taps;
  }
  return has_few_zeros(p, cy_dim_is_const(g, w->dim[1], &channels) && channels > 0 ? channels : 1);
}

/* Which tap of the convolution, and which position of its place, tap `flat` of the transposed one is for. */
static int64_t tap_of(const places *p, int64_t flat, int64_t *out_part) {
  int64_t tap = 0, part = 0, taps = 1, parts = 1;
  for (uint32_t i = p->spatial; i-- > 0;) {
    const cy_shuffle_axis *a = &p->axis[i];
    int64_t at = flat % p->kernel[i] + a->before;
    flat /= p->kernel[i];
    tap += (a->taps - 1 - at / p->strides[i]) * taps;
    part += at % p->strides[i] * parts;
    taps *= a->taps;
    parts *= p->strides[i];
  }
  *out_part = part;
  return tap;
}

/* Constant w [c, o, kernel..] as [parts * o, c, taps..], filled up with zeros. */
static cy_val place_weights(cy_graph *g, const places *p, cy_val w) {
  const cy_data *data = &cy_value_of(g, w)->data;
  cy_type type = *cy_type_of(g, w);
  int64_t d[CY_MAX_RANK], kernel = 1, tap, part;
  size_t size = (size_t)cy_dtype_of((cy_dtype)type.dtype)->bits / 8;
  if (!data->bytes || !size || !cy_type_static(g, &type, d))
    return 0;
  type.dim[0] = cy_dim_const(g, p->parts * d[1]);
  type.dim[1] = cy_dim_const(g, d[0]);
  for (uint32_t i = 0; i < p->spatial; i++) {
    kernel *= d[2 + i];
    type.dim[2 + i] = cy_dim_const(g, p->axis[i].taps);
  }
  cy_val v;
  char *to = cy_const_new(g, &type, &v);
  cy_const_made_of(g, v, w);
  const char *from = data->bytes;
  memset(to, 0, (size_t)(p->parts * d[1] * d[0] * p->taps) * size);
  for (int64_t k = 0; k < kernel; k++) {
    tap = tap_of(p, k, &part);
    for (int64_t c = 0; c < d[0]; c++)
      for (int64_t o = 0; o < d[1]; o++)
        memcpy(to + (((part * d[1] + o) * d[0] + c) * p->taps + tap) * (int64_t)size,
               from + ((c * d[1] + o) * kernel + k) * (int64_t)size, size);
  }
  return v;
}

bool cy_shuffle_possible(cy_graph *g, const cy_node_info *n) {
  places p;
  return plan_places(g, n, &p);
}

cy_val cy_shuffle_integers(cy_graph *g, const cy_node_info *n, cy_val x, cy_val w, cy_val zero) {
  places p;
  cy_val in[3] = {x, plan_places(g, n, &p) ? place_weights(g, &p, w) : 0, zero};
  int64_t ones[CY_MAX_RANK];
  if (!in[1])
    return 0;
  for (uint32_t i = 0; i < p.spatial; i++)
    ones[i] = 1;
  cy_attr a[5] = {cy_attr_ints(CY_ATTR_strides, ones, p.spatial), cy_attr_ints(CY_ATTR_pads, p.pads, 2 * p.spatial),
                  cy_attr_ints(CY_ATTR_dilations, ones, p.spatial), cy_attr_int(CY_ATTR_group, 1),
                  cy_attr_ints(CY_ATTR_shuffle, p.strides, p.spatial)};
  p.y.dtype = CY_I32;
  return cy_build(g, CY_OP_conv, in, zero ? 3 : 2, a, 5, &p.y, 1);
}

/* ---- the set ---------------------------------------------------------------------------------------------------- */

static const cy_rule rules[] = {
    {CY_OP_conv_transpose, "pixel shuffle", shuffle_out},
};

cy_rule_set cy_simplify_shuffle_rules(void) { return (cy_rule_set){rules, sizeof rules / sizeof rules[0]}; }
