/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_resize.c - Resize and Upsample of all versions: one IR op, `resize`.
 *
 * The op is given its output dims, and the scales where the model states them: the coordinate formulas use the stated
 * scale, not the quotient of the rounded sizes. An empty list of scales means "output over input".
 */
#include "frontend/import_int.h"

#include <math.h>

#define X (n->in[0])
#define SET(v) cy_importer_set(im, n, 0, (v))

typedef struct plan {
  int rank;
  cy_dim out[CY_MAX_RANK];
  double scale[CY_MAX_RANK];
  bool has_scales, enlarges; /* Upsample: scales from 1 on */
  cy_val scales; /* f32[rank]: those known only at run time; 0: none */
  double roi[2 * CY_MAX_RANK];
  cy_val region; /* f32[2 * rank], if the region is known only at run time; 0: it is roi */
} plan;

/* Is s the fraction p / q as a float has it? Of small denominators also as decimals have it. */
static bool is_fraction(double s, double p, double q) {
  return p >= 1 && (fabs(p / q - s) < (q <= 64 ? 1e-6 * s : 0) || (float)(p / q) == (float)s);
}

/* floor(d * s), for a symbolic d of another s than a fraction computed when running: f32[1] * f32[1]. */
static cy_dim scaled_when_running(cy_importer *im, cy_dim d, double s) {
  uint32_t count;
  cy_val in = CAST(cy_build_dims(im->g, &d, 1), CY_F32);
  cy_val out = in ? CAST(UNARY(floor, MUL(in, cy_build_scalar(im->g, CY_F32, s))), CY_I64) : 0;
  const cy_dim *e = out ? cy_value_elems_or_read(im->g, out, &count) : NULL;
  return e ? e[0] : 0;
}

/* floor(d * s); for a symbolic d the scale is taken as a fraction: a sample of each period of 300 is one. */
static cy_dim scaled(cy_importer *im, cy_dim d, double s) {
  int64_t v;
  if (cy_dim_is_const(im->g, d, &v))
    return cy_dim_const(im->g, (int64_t)floor((double)(float)((float)v * (float)s) + 1e-9));
  for (int64_t q = 1; q <= 1024; q++) {
    double p = nearbyint(s * (double)q);
    if (is_fraction(s, p, (double)q))
      return cy_dim_div(im->g, cy_dim_muli(im->g, d, (int64_t)p), cy_dim_const(im->g, q));
  }
  return scaled_when_running(im, d, s);
}

/* Which axes the lists of this node are about (attribute axes, opset 18); all by default. */
static bool listed_axes(cy_importer *im, const cy_onnx_node *n, int rank, int64_t *axes, uint32_t *out_n) {
  if (!cy_onnx_axes(im, n, 0, rank, axes, out_n))
    return false;
  if (*out_n == 0)
    for (int i = 0; i < rank; i++)
      axes[(*out_n)++] = i;
  return true;
}

static bool apply_scales(cy_importer *im, const double *s, uint32_t count, const int64_t *axes, uint32_t naxes,
                         const cy_type *t, plan *p) {
  if (count != naxes)
    return cy_build_error(im->g, "input 'scales'", "expected %u numbers, found %u", naxes, count);
  for (uint32_t i = 0; i < count; i++) {
    if (!(s[i] > 0) || s[i] > 1e6)
      return cy_build_error(im->g, "input 'scales'", "a scale must be positive, found %g", s[i]);
    if (p->enlarges && s[i] < 1)
      return cy_build_error(im->g, "input 'scales'", "Upsample has scales from 1 on, found %g; Resize makes axes shorter, too", s[i]);
    p->scale[axes[i]] = s[i];
    p->out[axes[i]] = s[i] == 1 ? t->dim[axes[i]] : scaled(im, t->dim[axes[i]], s[i]);
    if (!p->out[axes[i]])
      return false;
  }
  p->has_scales = true;
  return true;
}

/* f32[rank]: elements from `first` of the list for the listed axes, `otherwise` for the others. */
static cy_val for_all_axes(cy_importer *im, cy_val list, uint32_t first, const int64_t *axes, uint32_t naxes, int rank,
                           double otherwise) {
  cy_val part[CY_MAX_RANK], filler = cy_build_scalar(im->g, CY_F32, otherwise);
  cy_dim unit = cy_dim_const(im->g, 1);
  filler = filler ? cy_build_reshape(im->g, filler, &unit, 1) : 0;
  for (int i = 0; i < rank; i++)
    part[i] = filler;
  for (uint32_t i = 0; i < naxes && list; i++)
    part[axes[i]] = cy_build_slice_axis(im->g, list, 0, cy_dim_const(im->g, first + i), unit);
  return filler && list ? cy_build_concat(im->g, part, (uint32_t)rank, 0) : 0;
}

/* Scales known only at run time: the sizes are computed and read, the op gets the scales as an input. */
static bool read_scales(cy_importer *im, cy_val scales, const int64_t *axes, uint32_t naxes, const cy_type *t,
                        plan *p) {
  cy_dim extents[CY_MAX_RANK];
  uint32_t count;
  for (uint32_t i = 0; i < naxes; i++)
    extents[i] = t->dim[axes[i]];
  if (!(scales = CAST(scales, CY_F32)) ||
      !cy_onnx_check_true(im, BINARY(lt, LIKE(scales, 0), scales), "node '%s': expected scales above 0") ||
      (p->enlarges && !cy_onnx_check_true(im, BINARY(le, LIKE(scales, 1), scales), "node '%s': expected scales from 1 on")))
    return false;
  cy_val sizes = CAST(UNARY(floor, MUL(CAST(cy_build_dims(im->g, extents, naxes), CY_F32), scales)), CY_I64);
  const cy_dim *e = sizes ? cy_value_elems_or_read(im->g, sizes, &count) : NULL;
  p->scales = for_all_axes(im, scales, 0, axes, naxes, t->rank, 1);
  if (!e || count != naxes)
    return cy_build_error(im->g, "input 'scales'", "expected %u numbers, found %s", naxes,
                          cy_type_text(im->g, cy_onnx_type(im, scales)));
  for (uint32_t i = 0; i < naxes; i++)
    p->out[axes[i]] = e[i];
  return true;
}

static bool keep_aspect_run_time(cy_importer *im, const int64_t *axes, uint32_t naxes, const cy_type *t, int policy,
                                 cy_val sizes, plan *p) {
  const int64_t axis = 0;
  cy_dim extents[CY_MAX_RANK], n = cy_dim_const(im->g, naxes);
  for (uint32_t i = 0; i < naxes; i++)
    extents[i] = t->dim[axes[i]];
  cy_val in = CAST(cy_build_dims(im->g, extents, naxes), CY_F32), ratio = DIV(CAST(sizes, CY_F32), in);
  cy_op best = policy == 1 ? CY_OP_reduce_min : CY_OP_reduce_max;
  cy_val scale = ratio ? cy_build_reduce(im->g, best, ratio, &axis, 1, false) : 0;
  cy_val out = CAST(UNARY(floor, ADD(MUL(in, scale), cy_build_scalar(im->g, CY_F32, 0.5))), CY_I64);
  const cy_dim *e = cy_onnx_sizes(im, out);
  p->scales = scale ? for_all_axes(im, cy_build_expand(im->g, scale, &n, 1), 0, axes, naxes, t->rank, 1) : 0;
  for (uint32_t i = 0; e && i < naxes; i++)
    p->out[axes[i]] = e[i];
  return e && p->scales;
}

/* keep_aspect_ratio_policy: one scale for all listed axes, the smallest or largest that the sizes ask for. */
static bool keep_aspect(cy_importer *im, const int64_t *axes, uint32_t naxes, const cy_type *t, int policy, plan *p) {
  double best = 0;
  for (uint32_t i = 0; i < naxes; i++) {
    int64_t in, out;
    if (!cy_dim_is_const(im->g, t->dim[axes[i]], &in) || !cy_dim_is_const(im->g, p->out[axes[i]], &out) || in < 1)
      return cy_build_error(im->g, "attribute 'keep_aspect_ratio_policy'",
                            "symbolic sizes are not supported here; fix them with --shape");
    double s = (double)out / (double)in;
    best = i == 0 || (policy == 1 ? s < best : s > best) ? s : best;
  }
  for (uint32_t i = 0; i < naxes; i++) {
    int64_t in = 0;
    cy_dim_is_const(im->g, t->dim[axes[i]], &in);
    p->scale[axes[i]] = best;
    p->out[axes[i]] = cy_dim_const(im->g, (int64_t)floor((double)in * best + 0.5));
  }
  p->has_scales = true;
  return true;
}

static bool apply_sizes(cy_importer *im, const cy_onnx_node *n, uint32_t k, const int64_t *axes, uint32_t naxes,
                        const cy_type *t, plan *p) {
  uint32_t count;
  const cy_dim *e = cy_onnx_elems(im, n, k, &count);
  int policy = cy_onnx_word(im, n, "keep_aspect_ratio_policy", "stretch", "stretch|not_larger|not_smaller");
  if (!e || policy < 0)
    return false;
  if (count != naxes)
    return cy_build_error(im->g, "input 'sizes'", "expected %u numbers, found %u", naxes, count);
  for (uint32_t i = 0; i < count; i++)
    p->out[axes[i]] = e[i];
  if (policy && !cy_onnx_known(im, n, k))
    return keep_aspect_run_time(im, axes, naxes, t, policy, n->in[k], p);
  return policy == 0 || keep_aspect(im, axes, naxes, t, policy, p);
}

static bool read_roi(cy_importer *im, const cy_onnx_node *n, const int64_t *axes, uint32_t naxes, plan *p) {
  uint32_t count = 0;
  const cy_type *t = n->in[1] ? cy_onnx_type(im, n->in[1]) : NULL;
  if (!t || t->rank != 1 || !cy_dim_is(im->g, t->dim[0], 2 * (int64_t)naxes))
    return cy_build_error(im->g, "input 'roi'", "expected a list of %u numbers, found %s", 2 * naxes,
                          t ? cy_type_text(im->g, t) : "nothing");
  const double *v = cy_value_floats(im->g, n->in[1], &count);
  for (uint32_t i = 0; v && i < naxes; i++) {
    p->roi[axes[i]] = v[i];
    p->roi[p->rank + axes[i]] = v[naxes + i];
  }
  if (v)
    return true;
  cy_val list = CAST(n->in[1], CY_F32), ends[2];
  ends[0] = for_all_axes(im, list, 0, axes, naxes, p->rank, 0);
  ends[1] = for_all_axes(im, list, naxes, axes, naxes, p->rank, 1);
  p->region = ends[0] && ends[1] ? cy_build_concat(im->g, ends, 2, 0) : 0;
  return p->region != 0;
}

static bool is_empty(cy_importer *im, cy_val v) {
  return !v || cy_dim_is(im->g, cy_type_elems(im->g, cy_onnx_type(im, v)), 0);
}

static cy_val build(cy_importer *im, const cy_onnx_node *n, const plan *p, int mode, int coord, int nearest) {
  const cy_type *t = cy_onnx_type(im, X);
  cy_type type = cy_type_make(t->dtype, p->rank, p->out);
  cy_attr a[9] = {cy_attr_int(CY_ATTR_mode, mode),
                  cy_attr_int(CY_ATTR_coord, coord),
                  cy_attr_int(CY_ATTR_nearest, nearest),
                  cy_attr_float(CY_ATTR_cubic_a, cy_onnx_float(im, n, "cubic_coeff_a", -0.75)),
                  cy_attr_int(CY_ATTR_exclude_outside, cy_onnx_int(im, n, "exclude_outside", 0)),
                  cy_attr_float(CY_ATTR_extrapolation, cy_onnx_float(im, n, "extrapolation_value", 0)),
                  cy_attr_int(CY_ATTR_antialias, cy_onnx_int(im, n, "antialias", 0)),
                  cy_attr_floats(CY_ATTR_scales, p->scale, p->has_scales ? (uint32_t)p->rank : 0),
                  cy_attr_floats(CY_ATTR_roi, p->roi,
                                 coord == CY_COORD_TF_CROP && !p->region ? 2 * (uint32_t)p->rank : 0)};
  cy_val in[3] = {X, p->scales, p->region};
  return cy_build(im->g, CY_OP_resize, in, p->region ? 3 : p->scales ? 2 : 1, a, 9, &type, 1);
}

static plan start(const cy_type *t) {
  plan p = {.rank = t->rank};
  for (int i = 0; i < t->rank; i++) {
    p.out[i] = t->dim[i];
    p.scale[i] = 1;
    p.roi[t->rank + i] = 1;
  }
  return p;
}

IMPORT(resize) {
  const cy_type t = *cy_onnx_type(im, X);
  plan p = start(&t);
  int64_t axes[CY_MAX_RANK];
  uint32_t naxes, count;
  int mode = cy_onnx_word(im, n, "mode", "nearest", "nearest|linear|cubic");
  int coord = cy_onnx_word(im, n, "coordinate_transformation_mode", n->version < 11 ? "asymmetric" : "half_pixel",
                           "half_pixel|asymmetric|align_corners|pytorch_half_pixel|tf_crop_and_resize|half_pixel_"
                           "symmetric|tf_half_pixel_for_nn");
  int nearest =
      cy_onnx_word(im, n, "nearest_mode", "round_prefer_floor", "round_prefer_floor|round_prefer_ceil|floor|ceil");
  if (mode < 0 || coord < 0 || nearest < 0 || !listed_axes(im, n, t.rank, axes, &naxes))
    return false;
  uint32_t ks = n->version < 11 ? 1 : 2;
  if (n->version >= 11 && !is_empty(im, n->in[3])) {
    if (!apply_sizes(im, n, 3, axes, naxes, &t, &p))
      return false;
  } else if (is_empty(im, n->in[ks])) {
    return cy_build_error(im->g, NULL, "one of 'scales' and 'sizes' must be given");
  } else {
    const double *s = cy_value_floats(im->g, n->in[ks], &count);
    if (s ? !apply_scales(im, s, count, axes, naxes, &t, &p) : !read_scales(im, n->in[ks], axes, naxes, &t, &p))
      return false;
  }
  if (coord == CY_COORD_TF_CROP && !read_roi(im, n, axes, naxes, &p))
    return false;
  return SET(build(im, n, &p, mode, coord, n->version < 11 ? CY_NEAREST_SIMPLE : nearest));
}

IMPORT(upsample) {
  const cy_type t = *cy_onnx_type(im, X);
  plan p = start(&t);
  p.enlarges = true;
  int64_t axes[CY_MAX_RANK];
  for (int i = 0; i < t.rank; i++)
    axes[i] = i;
  int mode = cy_onnx_word(im, n, "mode", "nearest", "nearest|linear|cubic|bilinear");
  uint32_t count = 0;
  const double *s;
  double old[4] = {1, 1, cy_onnx_float(im, n, "height_scale", 1), cy_onnx_float(im, n, "width_scale", 1)};
  if (n->version >= 9) {
    s = n->in[1] ? cy_value_floats(im->g, n->in[1], &count) : NULL;
  } else if ((s = cy_onnx_floats(im, n, "scales", &count)) == NULL && t.rank == 4) {
    s = old;
    count = 4;
  }
  if (mode < 0)
    return false;
  if (!s && n->version >= 9 && n->in[1]) {
    if (!read_scales(im, n->in[1], axes, t.rank, &t, &p))
      return false;
  } else if (!s || !apply_scales(im, s, count, axes, t.rank, &t, &p)) {
    return false;
  }
  return SET(build(im, n, &p, mode == 3 ? CY_RESIZE_LINEAR : mode, CY_COORD_ASYMMETRIC, CY_NEAREST_SIMPLE));
}
