/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_roi.c - RoiAlign and DeformConv: pixels read at computed places, bilinearly; and MaxRoiPool.
 *
 * The first two lay the image out with channels innermost, as rows of [pixels, channels], gather the four neighbours of
 * every sample, and weigh them. They differ in what lies outside: RoiAlign moves samples near the border onto it and drops
 * those beyond, DeformConv takes every missing neighbour as 0. What follows is a reduction (RoiAlign) or a matrix
 * product (DeformConv).
 */
#include "frontend/import_int.h"

#include <math.h>
#include <string.h>

#define X (n->in[0])
#define SET(v) cy_importer_set(im, n, 0, (v))

static cy_dim num(cy_importer *im, int64_t v) { return cy_dim_const(im->g, v); }
static cy_val size_of(cy_importer *im, cy_dim d) { return cy_build_dim_scalar(im->g, d); }

/* The lower and the upper neighbour of a coordinate along one axis, with their weights. */
typedef struct neighbours {
  cy_val at[2], weight[2];
} neighbours;

/* Values of the four neighbours times their weights, [.., channels]; `pixels` is [count, channels], the index of a pixel
 * (base + y) * width + x. */
static void corners(cy_importer *im, cy_val pixels, cy_val base, const neighbours *y, const neighbours *x, cy_dim width,
                    cy_val *out) {
  for (int i = 0; i < 4; i++) {
    cy_val row = MUL(ADD(base, y->at[i / 2]), size_of(im, width)), index = ADD(row, x->at[i % 2]);
    cy_val w = MUL(y->weight[i / 2], x->weight[i % 2]), v = index ? cy_build_gather(im->g, pixels, index, 0) : 0;
    out[i] = v && w ? MUL(v, cy_build_unsqueeze(im->g, w, cy_onnx_type(im, w)->rank)) : 0;
  }
}

static cy_val shaped(cy_importer *im, cy_val v, const cy_dim *d, int rank) {
  return v ? cy_build_reshape(im->g, v, d, rank) : 0;
}

/* ---- RoiAlign ---- */

typedef struct roi_plan {
  int64_t pooled[2], ratio; /* rows, columns; samples per bin and axis, 0: as many as a bin has pixels */
  double scale;
  bool half_pixel, max;
} roi_plan;

static cy_val roi_edge(cy_importer *im, const roi_plan *p, cy_val rois, int k) {
  cy_val v = MUL(cy_build_slice_axis(im->g, rois, 1, num(im, k), num(im, 1)), LIKE(rois, p->scale));
  return p->half_pixel ? SUB(v, LIKE(rois, 0.5)) : v;
}

/* How many samples a bin of each region has along the axis, as [rois, 1]; and room for the most of them. Where the model
 * leaves the number open, bins of larger regions have more, how many is found at run time; those of a region without
 * area, which half pixels allow, have none. */
static cy_val roi_samples(cy_importer *im, const roi_plan *p, cy_val bin, cy_dim *out_max) {
  static const int64_t all[2] = {0, 1};
  uint32_t count;
  *out_max = num(im, p->ratio);
  if (p->ratio)
    return LIKE(bin, (double)p->ratio);
  cy_val each = MAX(UNARY(ceil, bin), LIKE(bin, 0));
  cy_val upper = each ? cy_build_reduce(im->g, CY_OP_reduce_max, each, all, 2, false) : 0;
  upper = upper ? CAST(MIN(MAX(upper, LIKE(upper, 1)), LIKE(upper, 4096)), CY_I64) : 0;
  const cy_dim *e = upper ? cy_value_elems_or_read(im->g, upper, &count) : NULL;
  *out_max = e ? cy_dim_max(im->g, e[0], num(im, 1)) : 0;
  return e ? each : 0;
}

/* Samples along axis 0 (y) or 1 (x), as [rois, samples, 1] or [rois, 1, samples], bin by bin; their weights sum up to the
 * mean over a bin's samples. Where a region has fewer than there is room for, its last one stands again with weight 0. */
static bool roi_axis(cy_importer *im, const roi_plan *p, cy_val rois, int axis, cy_dim extent, cy_dim *out_max,
                     neighbours *out) {
  cy_val start = roi_edge(im, p, rois, axis ? 0 : 1), length = SUB(roi_edge(im, p, rois, axis ? 2 : 3), start);
  if (!p->half_pixel)
    length = MAX(length, LIKE(rois, 1));
  cy_val bin = DIV(length, LIKE(rois, (double)p->pooled[axis])), each = bin ? roi_samples(im, p, bin, out_max) : 0;
  if (!each)
    return false;
  cy_dim count = cy_dim_mul(im->g, num(im, p->pooled[axis]), *out_max);
  cy_val i = cy_build_iota(im->g, CY_I64, &count, 1, 0), room = size_of(im, *out_max);
  cy_dtype dtype = cy_onnx_type(im, rois)->dtype;
  cy_val place = CAST(BINARY(mod, i, room), dtype), half = cy_build_scalar(im->g, dtype, 0.5);
  cy_val used = BINARY(lt, place, each), some = BINARY(gt, each, LIKE(each, 0)), divisor = MAX(each, LIKE(each, 1));
  cy_val at = ADD(MIN(place, SUB(divisor, LIKE(each, 1))), half);
  at = ADD(start, MUL(ADD(CAST(DIV(i, room), dtype), DIV(at, divisor)), bin));
  if (!at)
    return false;
  cy_val zero = LIKE(at, 0), end = CAST(size_of(im, extent), dtype), last = SUB(end, LIKE(at, 1));
  cy_val inside = BINARY(and, BINARY(ge, at, LIKE(at, -1)), BINARY(le, at, end));
  at = MIN(MAX(at, zero), last);
  cy_val low = UNARY(floor, at), part = SUB(at, low), one = LIKE(at, 1);
  cy_val share = p->max ? SELECT(some, one, zero) : SELECT(used, DIV(one, divisor), zero);
  out->at[0] = CAST(low, CY_I64);
  out->at[1] = CAST(MIN(ADD(low, one), last), CY_I64);
  out->weight[0] = SELECT(inside, MUL(SUB(one, part), share), zero);
  out->weight[1] = SELECT(inside, MUL(part, share), zero);
  for (int k = 0; k < 2; k++) {
    out->at[k] = out->at[k] ? cy_build_unsqueeze(im->g, out->at[k], axis ? 1 : 2) : 0;
    out->weight[k] = out->weight[k] ? cy_build_unsqueeze(im->g, out->weight[k], axis ? 1 : 2) : 0;
  }
  return out->at[1] && out->weight[1];
}

static cy_val roi_align(cy_importer *im, const cy_onnx_node *n, const roi_plan *p) {
  static const int64_t last[4] = {0, 2, 3, 1}, first[4] = {0, 3, 1, 2}, bins[2] = {2, 4};
  const cy_type t = *cy_onnx_type(im, X);
  cy_dim rois = cy_onnx_type(im, n->in[1])->dim[0], one = num(im, 1), upper[2];
  cy_dim pixels = cy_dim_mul(im->g, t.dim[0], cy_dim_mul(im->g, t.dim[2], t.dim[3])), flat[2] = {pixels, t.dim[1]};
  cy_dim column[3] = {rois, one, one};
  neighbours y, x;
  if (!cy_onnx_check_indices(im, n->in[2], t.dim[0], false))
    return 0;
  cy_dtype dtype = cy_dtype_real(t.dtype);
  cy_val where = CAST(n->in[1], dtype), v[4];
  if (!roi_axis(im, p, where, 0, t.dim[2], &upper[0], &y) || !roi_axis(im, p, where, 1, t.dim[3], &upper[1], &x))
    return 0;
  cy_dim split[6] = {rois, num(im, p->pooled[0]), upper[0], num(im, p->pooled[1]), upper[1], t.dim[1]};
  cy_val image = shaped(im, cy_build_transpose(im->g, CAST(X, dtype), last), flat, 2);
  cy_val base = MUL(shaped(im, CAST(n->in[2], CY_I64), column, 3), size_of(im, t.dim[2]));
  corners(im, image, base, &y, &x, t.dim[3], v);
  cy_op join = p->max ? CY_OP_max : CY_OP_add;
  cy_val sum = cy_build_binary(im->g, join, cy_build_binary(im->g, join, v[0], v[1]),
                               cy_build_binary(im->g, join, v[2], v[3]));
  sum = shaped(im, sum, split, 6);
  sum = sum ? cy_build_reduce(im->g, p->max ? CY_OP_reduce_max : CY_OP_reduce_sum, sum, bins, 2, false) : 0;
  return sum ? CAST(cy_build_transpose(im->g, sum, first), (cy_dtype)t.dtype) : 0;
}

IMPORT(roi_align) {
  int mode = cy_onnx_word(im, n, "mode", "avg", "avg|max");
  int coord = n->version < 16 ? 1
                              : cy_onnx_word(im, n, "coordinate_transformation_mode", "half_pixel",
                                             "half_pixel|output_half_pixel");
  roi_plan p = {.pooled = {cy_onnx_int(im, n, "output_height", 1), cy_onnx_int(im, n, "output_width", 1)},
                .ratio = cy_onnx_int(im, n, "sampling_ratio", 0),
                .scale = cy_onnx_float(im, n, "spatial_scale", 1),
                .half_pixel = coord == 0, .max = mode == 1};
  if (mode < 0 || coord < 0)
    return false;
  if (cy_onnx_type(im, X)->rank != 4 || cy_onnx_type(im, n->in[1])->rank != 2 || cy_onnx_type(im, n->in[2])->rank != 1)
    return cy_build_error(im->g, NULL, "expected [n, c, h, w], regions [r, 4] and batch indices [r], found %s",
                          cy_type_text(im->g, cy_onnx_type(im, X)));
  if (p.ratio < 0 || p.ratio > 64 || p.pooled[0] < 1 || p.pooled[1] < 1 || p.pooled[0] > 4096 || p.pooled[1] > 4096)
    return cy_build_error(im->g, "attribute 'sampling_ratio'",
                          "expected 0 to 64 samples per bin and a positive output size, found %lld",
                          (long long)p.ratio);
  return SET(roi_align(im, n, &p));
}

/* ---- MaxRoiPool ---- */

/* Which of `extent` pixels belong to which bin along an axis, bool [rois, bins, extent]; low and high are the region's
 * first and last pixel, [rois, 1]. */
static cy_val in_bin(cy_importer *im, cy_val low, cy_val high, int64_t bins, cy_dim extent) {
  cy_dim each[3] = {num(im, 1), num(im, bins), num(im, 1)}, pixels[3] = {num(im, 1), num(im, 1), extent};
  cy_val size = MAX(ADD(SUB(high, low), LIKE(low, 1)), LIKE(low, 1));
  size = size ? cy_build_unsqueeze(im->g, DIV(size, LIKE(size, (double)bins)), 2) : 0;
  low = low ? cy_build_unsqueeze(im->g, low, 2) : 0;
  cy_dtype dtype = low ? cy_onnx_type(im, low)->dtype : CY_F32;
  cy_val bin = cy_build_iota(im->g, dtype, each, 3, 1), at = cy_build_iota(im->g, dtype, pixels, 3, 2);
  cy_val first = ADD(UNARY(floor, MUL(bin, size)), low), end = ADD(UNARY(ceil, MUL(ADD(bin, LIKE(bin, 1)), size)), low);
  return BINARY(and, BINARY(ge, at, first), BINARY(lt, at, end));
}

/* The maximum over axis `axis` of x, separately for the bins that `mask` [rois, bins, extent] says: they become the last
 * axis. x is [rois, channels, ..]. */
static cy_val max_by_bin(cy_importer *im, cy_val x, int axis, cy_val mask, int64_t bins) {
  const int64_t last = 4;
  x = x ? cy_onnx_move_axis(im, x, axis, 3) : 0; /* [rois, channels, other, 1, extent] */
  x = x ? cy_build_unsqueeze(im->g, x, 3) : 0;
  if (!x || !mask)
    return 0;
  const cy_type m = *cy_onnx_type(im, mask);
  cy_dim d[5] = {m.dim[0], num(im, 1), num(im, 1), num(im, bins), m.dim[2]};
  x = SELECT(shaped(im, mask, d, 5), x, LIKE(x, -INFINITY));
  return x ? cy_build_reduce(im->g, CY_OP_reduce_max, x, &last, 1, false) : 0;
}

/* To the nearest integer, halves away from zero: as C's round(). */
static cy_val rounded(cy_importer *im, cy_val v) {
  cy_val half = v ? LIKE(v, 0.5) : 0;
  return SELECT(BINARY(lt, v, v ? LIKE(v, 0) : 0), UNARY(ceil, SUB(v, half)), UNARY(floor, ADD(v, half)));
}

/* Regions are [batch index, x1, y1, x2, y2]; their corners are rounded to pixels, and bins without a pixel are 0. */
IMPORT(max_roi_pool) {
  uint32_t count;
  const int64_t *pooled = cy_onnx_ints(im, n, "pooled_shape", &count);
  const cy_type t = *cy_onnx_type(im, X), *r = cy_onnx_type(im, n->in[1]);
  if (!pooled || count != 2 || pooled[0] < 1 || pooled[1] < 1 || t.rank != 4 || r->rank != 2)
    return cy_build_error(im->g, NULL,
                          "expected [n, c, h, w], regions [r, 5] and a pooled_shape of two sizes, found %s and %s",
                          cy_type_text(im->g, &t), cy_type_text(im->g, r));
  cy_val rois = CAST(n->in[1], cy_dtype_real(t.dtype)), corner[5];
  double scale = cy_onnx_float(im, n, "spatial_scale", 1);
  for (int k = 0; k < 5; k++) {
    corner[k] = cy_build_slice_axis(im->g, rois, 1, num(im, k), num(im, 1));
    if (k)
      corner[k] = rounded(im, MUL(corner[k], LIKE(rois, scale)));
  }
  cy_val index = cy_build_squeeze(im->g, CAST(corner[0], CY_I64), 1);
  if (!index || !cy_onnx_check_indices(im, index, t.dim[0], false))
    return false;
  cy_val x = cy_build_gather(im->g, X, index, 0);
  x = max_by_bin(im, x, 3, in_bin(im, corner[1], corner[3], pooled[1], t.dim[3]), pooled[1]);
  x = max_by_bin(im, x, 2, in_bin(im, corner[2], corner[4], pooled[0], t.dim[2]), pooled[0]);
  x = x ? SELECT(BINARY(eq, x, LIKE(x, -INFINITY)), LIKE(x, 0), x) : 0;
  return SET(x ? cy_onnx_move_axis(im, x, 3, 2) : 0);
}

/* ---- DeformConv ---- */

typedef struct deform {
  int64_t kernel[2], stride[2], dilation[2], pad[2], groups, offset_groups;
  cy_dim out[2];
  cy_dtype dtype; /* that it computes in */
} deform;

static bool pair_of(cy_importer *im, const cy_onnx_node *n, const char *name, int64_t otherwise, int64_t *out) {
  uint32_t count;
  const int64_t *v = cy_onnx_ints(im, n, name, &count);
  if (v && count < 2)
    return cy_build_error(im->g, cy_arena_printf(im->arena, "attribute '%s'", name), "expected one number per axis");
  for (int i = 0; i < 2; i++)
    out[i] = v ? v[i] : otherwise;
  return true;
}

/* Neighbours along an axis of every sample [n, offset group, tap, rows, columns]; `offset` is [n, og, taps, 2, rows,
 * columns]. */
static bool deform_axis(cy_importer *im, const deform *p, cy_val offset, int axis, cy_dim extent, neighbours *out) {
  const cy_type t = *cy_onnx_type(im, offset);
  cy_dim d[5] = {num(im, 1), num(im, 1), t.dim[2], t.dim[4], t.dim[5]};
  cy_dim all[5] = {t.dim[0], t.dim[1], t.dim[2], t.dim[4], t.dim[5]};
  cy_val tap = cy_build_iota(im->g, CY_I64, d, 5, 2), width = cy_build_scalar_int(im->g, CY_I64, p->kernel[1]);
  tap = axis ? BINARY(mod, tap, width) : DIV(tap, width);
  cy_val start = MUL(cy_build_iota(im->g, CY_I64, d, 5, 3 + axis), cy_build_scalar_int(im->g, CY_I64, p->stride[axis]));
  cy_val place = ADD(ADD(MUL(tap, cy_build_scalar_int(im->g, CY_I64, p->dilation[axis])), start),
                     cy_build_scalar_int(im->g, CY_I64, -p->pad[axis]));
  cy_val moved = shaped(im, cy_build_slice_axis(im->g, offset, 3, num(im, axis), num(im, 1)), all, 5);
  cy_val at = moved ? ADD(moved, CAST(place, p->dtype)) : 0;
  if (!at)
    return false;
  cy_val low = UNARY(floor, at), part = SUB(at, low), one = LIKE(at, 1), zero = LIKE(at, 0);
  cy_val last = SUB(CAST(size_of(im, extent), p->dtype), one);
  for (int k = 0; k < 2; k++) {
    cy_val here = k ? ADD(low, one) : low, inside = BINARY(and, BINARY(ge, here, zero), BINARY(le, here, last));
    out->at[k] = CAST(MIN(MAX(here, zero), last), CY_I64);
    out->weight[k] = SELECT(inside, k ? part : SUB(one, part), zero);
  }
  return out->at[1] && out->weight[1];
}

/* Sampled pixels, channels closest: [n, offset group, tap, rows, columns, channels of an offset group]. */
static cy_val deform_samples(cy_importer *im, const cy_onnx_node *n, const deform *p) {
  static const int64_t last[4] = {0, 1, 3, 2};
  const cy_type t = *cy_onnx_type(im, X);
  cy_graph *g = im->g;
  cy_dim og = num(im, p->offset_groups), taps = num(im, p->kernel[0] * p->kernel[1]), one = num(im, 1);
  cy_dim each = cy_dim_div(g, t.dim[1], og), area = cy_dim_mul(g, t.dim[2], t.dim[3]);
  cy_dim grouped[4] = {t.dim[0], og, each, area}, offsets[6] = {t.dim[0], og, taps, num(im, 2), p->out[0], p->out[1]};
  cy_dim flat[2] = {cy_dim_mul(g, cy_dim_mul(g, t.dim[0], og), area), each};
  cy_dim planes[5] = {t.dim[0], og, one, one, one}, masked[6] = {t.dim[0], og, taps, p->out[0], p->out[1], one};
  neighbours y, x;
  cy_val v[4], offset = shaped(im, CAST(n->in[2], p->dtype), offsets, 6);
  if (!offset || !deform_axis(im, p, offset, 0, t.dim[2], &y) || !deform_axis(im, p, offset, 1, t.dim[3], &x))
    return 0;
  cy_val image = shaped(im, cy_build_transpose(g, cy_build_reshape(g, CAST(X, p->dtype), grouped, 4), last), flat, 2);
  cy_val plane = ADD(MUL(cy_build_iota(g, CY_I64, planes, 5, 0), size_of(im, og)), cy_build_iota(g, CY_I64, planes, 5, 1));
  corners(im, image, MUL(plane, size_of(im, t.dim[2])), &y, &x, t.dim[3], v);
  cy_val sum = ADD(ADD(v[0], v[1]), ADD(v[2], v[3]));
  return n->in[4] ? MUL(sum, shaped(im, CAST(n->in[4], p->dtype), masked, 6)) : sum;
}

/* Groups and offset groups cut the channels into pieces that lie in one of each. Rows of the product are pixels
 * [n, group, rows * columns, pieces of a group * taps * channels of a piece]; its columns are outputs of a group. */
static cy_val deform_product(cy_importer *im, const deform *p, cy_val samples, cy_val weights) {
  static const int64_t cut[7] = {0, 1, 5, 3, 4, 2, 6}, side_by_side[6] = {0, 1, 3, 2, 4, 5}, first[5] = {0, 2, 4, 3, 1};
  static const int64_t planes[4] = {0, 1, 3, 2};
  cy_graph *g = im->g;
  const cy_type s = *cy_onnx_type(im, samples), w = *cy_onnx_type(im, weights);
  int64_t common = p->groups;
  for (int64_t rest = p->offset_groups % common, next; rest; rest = next) {
    next = common % rest;
    common = rest;
  }
  cy_dim groups = num(im, p->groups), taps = s.dim[2], area = cy_dim_mul(g, p->out[0], p->out[1]);
  cy_dim per_offset = num(im, p->groups / common), pieces = num(im, p->offset_groups / common);
  cy_dim channels = cy_dim_div(g, s.dim[5], per_offset), outputs = cy_dim_div(g, w.dim[0], groups);
  cy_dim depth = cy_dim_mul(g, cy_dim_mul(g, pieces, taps), channels);
  cy_dim split[7] = {s.dim[0], s.dim[1], taps, p->out[0], p->out[1], per_offset, channels};
  cy_dim of_group[6] = {s.dim[0], groups, pieces, area, taps, channels}, rows[4] = {s.dim[0], groups, area, depth};
  cy_dim parts[5] = {groups, outputs, pieces, channels, taps}, columns[4] = {num(im, 1), groups, depth, outputs};
  cy_dim out[4] = {s.dim[0], w.dim[0], p->out[0], p->out[1]};
  cy_val a = shaped(im, cy_build_transpose(g, shaped(im, samples, split, 7), cut), of_group, 6);
  a = a ? shaped(im, cy_build_transpose(g, a, side_by_side), rows, 4) : 0;
  cy_val b = shaped(im, weights, parts, 5);
  b = b ? shaped(im, cy_build_transpose(g, b, first), columns, 4) : 0;
  cy_val y = a && b ? cy_build_matmul(g, a, b, p->dtype) : 0;
  return y ? shaped(im, cy_build_transpose(g, y, planes), out, 4) : 0;
}

/* Offsets are there for each position of the output, of which there are as many as of a convolution's. */
static bool check_offsets(cy_importer *im, const cy_onnx_node *n, const cy_type *x, const cy_type *offset, const deform *p) {
  uint32_t count;
  const int64_t *pads = cy_onnx_ints(im, n, "pads", &count);
  for (int i = 0; i < 2; i++) {
    int64_t end = pads && count == 4 ? pads[2 + i] : 0, reach = p->dilation[i] * (p->kernel[i] - 1) + 1;
    cy_dim free_steps = cy_dim_addi(im->g, x->dim[2 + i], p->pad[i] + end - reach);
    cy_dim want = cy_dim_addi(im->g, cy_dim_div(im->g, free_steps, num(im, p->stride[i])), 1);
    if (cy_onnx_clash(im, offset->dim[2 + i], want))
      return cy_build_error(im->g, "input 'offset'", "expected %s positions along axis %d for an input %s, found %s",
                            cy_dim_text(im->g, want), 2 + i, cy_type_text(im->g, x), cy_type_text(im->g, offset));
    cy_graph_require(im->g, offset->dim[2 + i], want, CY_REQUIRE_EQUAL);
  }
  return true;
}

IMPORT(deform_conv) {
  const cy_type t = *cy_onnx_type(im, X), w = *cy_onnx_type(im, n->in[1]), o = *cy_onnx_type(im, n->in[2]);
  deform p = {.groups = cy_onnx_int(im, n, "group", 1),
              .offset_groups = cy_onnx_int(im, n, "offset_group", 1),
              .dtype = cy_dtype_real(t.dtype)};
  if (t.rank != 4 || w.rank != 4 || o.rank != 4 || p.groups < 1 || p.offset_groups < 1 ||
      !cy_dim_is_const(im->g, w.dim[2], &p.kernel[0]) || !cy_dim_is_const(im->g, w.dim[3], &p.kernel[1]))
    return cy_build_error(im->g, NULL,
                          "expected images, weights of known size and offsets, all of rank 4, found %s, %s and %s",
                          cy_type_text(im->g, &t), cy_type_text(im->g, &w), cy_type_text(im->g, &o));
  if (!pair_of(im, n, "strides", 1, p.stride) || !pair_of(im, n, "dilations", 1, p.dilation) ||
      !pair_of(im, n, "pads", 0, p.pad) || !check_offsets(im, n, &t, &o, &p))
    return false;
  memcpy(p.out, o.dim + 2, sizeof p.out);
  cy_val samples = deform_samples(im, n, &p), weights = CAST(n->in[1], p.dtype);
  cy_val y = samples && weights ? deform_product(im, &p, samples, weights) : 0;
  y = y ? CAST(y, (cy_dtype)t.dtype) : 0;
  return SET(n->in[3] ? ADD(y, cy_onnx_per_channel(im, n->in[3], "input 'B'", y, 1)) : y);
}
