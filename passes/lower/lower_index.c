/* SPDX-License-Identifier: Apache-2.0 */
/* lower_index.c - one output element as an expression: ops whose source position is itself computed.
 *
 * Gathers, resampling (resize, grid_sample) and (de)quantisation with scales looked up along an axis. Positions that
 * data decides are clamped into the tensor, so that wrong indices read a wrong element but never foreign memory.
 */
#include "lower_int.h"
#include "passes/pass_int.h"

#include <math.h>

enum {
  MAX_REPEATS = 1 << 20,
  MAX_TAPS = 16,         /* of a window that is written out: more, and a GPU has no registers for them */
  MAX_INDICES = 1 << 20, /* of a constant that is searched for its extremes */
  MAX_STEPS = 8
};

static const cy_node_info *node_of(cy_kb *b, cy_node n) { return cy_node_of(b->l->g, n); }
#define bin(b, op, x, y) cy_x_bin((b)->k, op, x, y)

/* ---- gather ---- */

typedef struct range {
  int64_t low, high;
} range;

static bool constant_range(const cy_value *v, uint64_t count, range *r) {
  if ((v->type.dtype != CY_I64 && v->type.dtype != CY_I32) || !count || count > MAX_INDICES)
    return false;
  *r = (range){INT64_MAX, INT64_MIN};
  for (uint64_t i = 0; i < count; i++) {
    int64_t e = cy_scalar_load(v->data.bytes, (cy_dtype)v->type.dtype, i).i;
    r->low = e < r->low ? e : r->low;
    r->high = e > r->high ? e : r->high;
  }
  return r->low >= INT32_MIN && r->high <= INT32_MAX;
}

/* Between which numbers all of v's elements lie, where constants tell: tables that indices are looked up in. */
static bool range_of(cy_lowering *l, cy_val v, int step, range *r) {
  const cy_value *val = cy_value_of(l->g, v);
  const cy_node_info *n = val->node ? cy_node_of(l->g, val->node) : NULL;
  range other;
  if (val->data.bytes)
    return constant_range(val, cy_type_count(l->g, &val->type), r);
  if (val->type.dtype == CY_BOOL) {
    *r = (range){0, 1};
    return true;
  }
  if (!n || step == MAX_STEPS)
    return false;
  if (cy_op_is_pure_view((cy_op)n->op))
    return range_of(l, n->in[0], step + 1, r);
  switch (n->op) {
  case CY_OP_gather:
  case CY_OP_gather_elements:
    return range_of(l, n->in[0], step + 1, r);
  case CY_OP_cast: {
    cy_dtype to = (cy_dtype)val->type.dtype;
    return (to == CY_I32 || to == CY_I64) && range_of(l, n->in[0], step + 1, r);
  }
  case CY_OP_select:
    if (!range_of(l, n->in[1], step + 1, r) || !range_of(l, n->in[2], step + 1, &other))
      return false;
    *r = (range){other.low < r->low ? other.low : r->low, other.high > r->high ? other.high : r->high};
    return true;
  case CY_OP_add:
    if (!range_of(l, n->in[0], step + 1, r) || !range_of(l, n->in[1], step + 1, &other))
      return false;
    *r = (range){r->low + other.low, r->high + other.high};
    return r->low >= INT32_MIN && r->high <= INT32_MAX;
  case CY_OP_mul: /* by what is not negative */
    if (!range_of(l, n->in[0], step + 1, r) || !range_of(l, n->in[1], step + 1, &other) || r->low < 0 || other.low < 0)
      return false;
    *r = (range){r->low * other.low, r->high * other.high};
    return r->high <= INT32_MAX;
  case CY_OP_and: /* a mask bounds what it is applied to */
    if ((!range_of(l, n->in[1], step + 1, r) || r->low < 0) && (!range_of(l, n->in[0], step + 1, r) || r->low < 0))
      return false;
    r->low = 0;
    return true;
  case CY_OP_shr:
    if (!range_of(l, n->in[0], step + 1, r) || !range_of(l, n->in[1], step + 1, &other) || r->low < 0 ||
        other.low != other.high || other.low < 0 || other.low > 31)
      return false;
    *r = (range){r->low >> other.low, r->high >> other.low};
    return true;
  default:
    return false;
  }
}

/* An index out of data, element i of `indices`: negative ones count from the end. */
static cy_expr wrap_index(cy_kb *b, cy_val indices, cy_expr i, cy_dim extent) {
  range r;
  int64_t size;
  if (cy_dim_is_const(b->l->g, extent, &size) && size > 0 && range_of(b->l, indices, 0, &r) && r.low >= 0) {
    cy_dtype dtype = (cy_dtype)cy_lower_type(b->l, indices)->dtype;
    if (r.high >= size) /* as it comes: lanes of 32 bits are twice as many */
      i = bin(b, CY_OP_min, i, cy_x_int(b->k, dtype, size - 1));
    return cy_x_cast(b->k, i, CY_I64);
  }
  i = cy_x_cast(b->k, i, CY_I64);
  cy_expr negative = bin(b, CY_OP_lt, i, cy_x_index(b->k, 0));
  i = cy_x_select(b->k, negative, bin(b, CY_OP_add, i, cy_x_dim(b->k, extent)), i);
  return cy_lower_clamp(b, i, extent);
}

cy_expr cy_lower_gather(cy_kb *b, cy_node node, uint32_t output, const cy_expr *idx) {
  (void)output;
  const cy_node_info *n = node_of(b, node);
  const cy_type *x = cy_lower_type(b->l, n->in[0]), *indices = cy_lower_type(b->l, n->in[1]);
  int axis = (int)cy_attr_get_int(n, CY_ATTR_axis, 0);
  cy_expr in_idx[CY_MAX_RANK];
  for (int i = 0; i < x->rank; i++)
    if (i != axis)
      in_idx[i] = idx[i < axis ? i : i + indices->rank - 1];
  in_idx[axis] = wrap_index(b, n->in[1], cy_lower_at(b, n->in[1], idx + axis), x->dim[axis]);
  return cy_lower_at(b, n->in[0], in_idx);
}

cy_expr cy_lower_gather_elements(cy_kb *b, cy_node node, uint32_t output, const cy_expr *idx) {
  (void)output;
  const cy_node_info *n = node_of(b, node);
  const cy_type *x = cy_lower_type(b->l, n->in[0]);
  int axis = (int)cy_attr_get_int(n, CY_ATTR_axis, 0);
  cy_expr in_idx[CY_MAX_RANK];
  for (int i = 0; i < x->rank; i++)
    in_idx[i] = idx[i];
  in_idx[axis] = wrap_index(b, n->in[1], cy_lower_at(b, n->in[1], idx), x->dim[axis]);
  return cy_lower_at(b, n->in[0], in_idx);
}

cy_expr cy_lower_gather_nd(cy_kb *b, cy_node node, uint32_t output, const cy_expr *idx) {
  (void)output;
  const cy_node_info *n = node_of(b, node);
  const cy_type *x = cy_lower_type(b->l, n->in[0]), *indices = cy_lower_type(b->l, n->in[1]);
  int batch = (int)cy_attr_get_int(n, CY_ATTR_batch_dims, 0), last = indices->rank - 1;
  int64_t depth = 0;
  if (!cy_dim_is_const(b->l->g, indices->dim[last], &depth))
    cy_bug("gather_nd with an unknown index depth");
  cy_expr in_idx[CY_MAX_RANK], at[CY_MAX_RANK];
  for (int i = 0; i < last; i++)
    at[i] = idx[i];
  for (int i = 0; i < x->rank; i++) {
    if (i < batch) {
      in_idx[i] = idx[i];
    } else if (i < batch + depth) {
      at[last] = cy_x_index(b->k, i - batch);
      in_idx[i] = wrap_index(b, n->in[1], cy_lower_at(b, n->in[1], at), x->dim[i]);
    } else {
      in_idx[i] = idx[last + (i - batch - (int)depth)];
    }
  }
  return cy_lower_at(b, n->in[0], in_idx);
}

/* ---- resampling ---- */

/* The source elements and weights that one axis contributes. */
typedef struct taps {
  int n;
  cy_expr index[4];  /* i64, clamped */
  cy_expr weight[4]; /* f32 or f64; 0: one */
} taps;

static cy_expr f32(cy_kb *b, double v) { return cy_x_const(b->k, CY_F32, v); }
static cy_expr like(cy_kb *b, cy_expr x, double v) { return cy_x_const(b->k, cy_expr_of(b->k, x)->dtype, v); }

/* Keys' cubic kernel with parameter a, for the four neighbours of fraction t. */
static void cubic_weights(cy_kb *b, cy_expr t, double a, cy_expr *out) {
  for (int i = 0; i < 4; i++) {
    cy_expr d = cy_x_un(b->k, CY_OP_abs, bin(b, CY_OP_sub, t, like(b, t, i - 1)));
    double c3 = i == 1 || i == 2 ? a + 2 : a, c2 = i == 1 || i == 2 ? -(a + 3) : -5 * a;
    double c1 = i == 1 || i == 2 ? 0 : 8 * a, c0 = i == 1 || i == 2 ? 1 : -4 * a;
    cy_expr p = bin(b, CY_OP_add, bin(b, CY_OP_mul, d, like(b, t, c3)), like(b, t, c2));
    p = bin(b, CY_OP_add, bin(b, CY_OP_mul, p, d), like(b, t, c1));
    out[i] = bin(b, CY_OP_add, bin(b, CY_OP_mul, p, d), like(b, t, c0));
  }
}

/* A whole number as an index that is clamped next, which i32 holds or saturates to: vectors have no conversion to i64. */
static cy_expr index_of(cy_kb *b, cy_expr x) { return cy_x_cast(b->k, cy_x_cast(b->k, x, CY_I32), CY_I64); }

/* Taps around floor(x), x in source coordinates. */
static taps interpolate(cy_kb *b, cy_expr x, cy_dim extent, int mode, double cubic_a, bool exclude_outside) {
  taps r = {.n = mode == CY_RESIZE_CUBIC ? 4 : 2};
  cy_expr base = cy_x_un(b->k, CY_OP_floor, x), t = bin(b, CY_OP_sub, x, base);
  cy_expr first = index_of(b, base);
  if (mode == CY_RESIZE_CUBIC) {
    cubic_weights(b, t, cubic_a, r.weight);
  } else {
    r.weight[0] = bin(b, CY_OP_sub, like(b, t, 1), t);
    r.weight[1] = t;
  }
  cy_expr sum = 0;
  for (int i = 0; i < r.n; i++) {
    cy_expr at = bin(b, CY_OP_add, first, cy_x_index(b->k, mode == CY_RESIZE_CUBIC ? i - 1 : i));
    if (exclude_outside) {
      r.weight[i] = cy_x_select(b->k, cy_lower_in_range(b, at, extent), r.weight[i], like(b, t, 0));
      sum = sum ? bin(b, CY_OP_add, sum, r.weight[i]) : r.weight[i];
    }
    r.index[i] = cy_lower_clamp(b, at, extent);
  }
  for (int i = 0; sum && i < r.n; i++)
    r.weight[i] = bin(b, CY_OP_div, r.weight[i], sum);
  return r;
}

/* Element `at` of optional input k, a list of f32; 0 when it is absent. */
static cy_expr listed(cy_kb *b, const cy_node_info *n, uint32_t k, int64_t at, cy_dtype dtype) {
  cy_expr index = cy_x_index(b->k, at);
  return n->nin > k && n->in[k] ? cy_x_cast(b->k, cy_lower_at(b, n->in[k], &index), dtype) : 0;
}

/* Output over input, by what the model says where it does. */
static cy_expr resize_scale(cy_kb *b, const cy_node_info *n, int axis, cy_dtype dtype) {
  cy_kernel *k = b->k;
  const cy_type *in = cy_lower_type(b->l, n->in[0]), *out = cy_lower_type(b->l, n->out[0]);
  const cy_attr *scales = cy_attr_find(n, CY_ATTR_scales);
  if (scales && (int)scales->n == in->rank && scales->floats[axis] > 0)
    return cy_x_const(k, dtype, scales->floats[axis]);
  cy_expr given = listed(b, n, 1, axis, dtype);
  if (given)
    return given;
  return bin(b, CY_OP_div, cy_x_cast(k, cy_x_dim(k, out->dim[axis]), dtype),
             cy_x_cast(k, cy_x_dim(k, in->dim[axis]), dtype));
}

/* tf_crop_and_resize: x runs from the region's start to its end, both as parts of the axis; `last` and `out_last` are the
 * highest indices. */
static cy_expr crop_coordinate(cy_kb *b, const cy_node_info *n, int axis, cy_expr x, cy_expr last, cy_expr out_last,
                               cy_expr several, cy_dtype dtype) {
  cy_kernel *k = b->k;
  int rank = cy_lower_type(b->l, n->in[0])->rank;
  const cy_attr *roi = cy_attr_find(n, CY_ATTR_roi);
  bool known = roi && (int)roi->n == 2 * rank;
  cy_expr start = listed(b, n, 2, axis, dtype), end = listed(b, n, 2, rank + axis, dtype);
  start = start ? start : cy_x_const(k, dtype, known ? roi->floats[axis] : 0);
  end = end ? end : cy_x_const(k, dtype, known ? roi->floats[rank + axis] : 1);
  cy_expr step = bin(b, CY_OP_div, bin(b, CY_OP_mul, last, bin(b, CY_OP_sub, end, start)), out_last);
  cy_expr moved = bin(b, CY_OP_add, bin(b, CY_OP_mul, last, start), bin(b, CY_OP_mul, x, step));
  cy_expr middle = bin(b, CY_OP_mul, bin(b, CY_OP_add, start, end), cy_x_const(k, dtype, 0.5));
  return cy_x_select(k, several, moved, bin(b, CY_OP_mul, last, middle));
}

/* Source coordinate of output index i along an axis (spec: Resize, coordinate_transformation_mode), in `dtype`. */
static cy_expr resize_coordinate(cy_kb *b, const cy_node_info *n, int axis, cy_expr i, cy_dtype dtype) {
  cy_kernel *k = b->k;
  cy_graph *g = b->l->g;
  const cy_type *in = cy_lower_type(b->l, n->in[0]), *out = cy_lower_type(b->l, n->out[0]);
  const cy_attr *scales = cy_attr_find(n, CY_ATTR_scales);
  cy_expr x = cy_x_cast(k, i, dtype), half = cy_x_const(k, dtype, 0.5);
  cy_expr in_size = cy_x_cast(k, cy_x_dim(k, in->dim[axis]), dtype),
          out_size = cy_x_cast(k, cy_x_dim(k, out->dim[axis]), dtype);
  cy_expr scale = resize_scale(b, n, axis, dtype);
  cy_expr half_pixel = bin(b, CY_OP_sub, bin(b, CY_OP_div, bin(b, CY_OP_add, x, half), scale), half);
  cy_expr last = cy_x_cast(k, cy_x_dim(k, cy_dim_addi(g, in->dim[axis], -1)), dtype);
  cy_expr out_last =
      cy_x_cast(k, cy_x_dim(k, cy_dim_max(g, cy_dim_addi(g, out->dim[axis], -1), cy_dim_const(g, 1))), dtype);
  cy_expr several = bin(b, CY_OP_gt, cy_x_dim(k, out->dim[axis]), cy_x_index(k, 1)), zero = cy_x_const(k, dtype, 0);
  switch (cy_attr_get_int(n, CY_ATTR_coord, CY_COORD_HALF_PIXEL)) {
  case CY_COORD_ASYMMETRIC:
    return bin(b, CY_OP_div, x, scale);
  case CY_COORD_ALIGN_CORNERS: /* the resized length is not rounded where the scale is given */
    if ((n->nin > 1 && n->in[1]) || (scales && (int)scales->n == in->rank))
      out_last = bin(b, CY_OP_sub, bin(b, CY_OP_mul, scale, in_size), cy_x_const(k, dtype, 1));
    return cy_x_select(k, several, bin(b, CY_OP_div, bin(b, CY_OP_mul, x, last), out_last), zero);
  case CY_COORD_PYTORCH_HALF_PIXEL:
    return cy_x_select(k, several, half_pixel, zero);
  case CY_COORD_TF_HALF_PIXEL_NN:
    return bin(b, CY_OP_div, bin(b, CY_OP_add, x, half), scale);
  case CY_COORD_TF_CROP:
    return crop_coordinate(b, n, axis, x, last, out_last, several, dtype);
  case CY_COORD_HALF_PIXEL_SYMMETRIC: {
    cy_expr adjust = bin(b, CY_OP_div, out_size, bin(b, CY_OP_mul, scale, in_size));
    cy_expr center = bin(b, CY_OP_mul, in_size, half);
    cy_expr offset = bin(b, CY_OP_mul, center, bin(b, CY_OP_sub, cy_x_const(k, dtype, 1), adjust));
    return bin(b, CY_OP_add, offset, half_pixel);
  }
  default:
    return half_pixel;
  }
}

static cy_expr nearest_index(cy_kb *b, cy_expr x, int64_t how, cy_dtype dtype) {
  cy_kernel *k = b->k;
  cy_expr half = cy_x_const(k, dtype, 0.5);
  switch (how) {
  case CY_NEAREST_ROUND_PREFER_CEIL:
    return cy_x_un(k, CY_OP_floor, bin(b, CY_OP_add, x, half));
  case CY_NEAREST_FLOOR:
    return cy_x_un(k, CY_OP_floor, x);
  case CY_NEAREST_CEIL:
    return cy_x_un(k, CY_OP_ceil, x);
  case CY_NEAREST_SIMPLE: /* opset 10 and older: down when enlarging, up when shrinking is not what it says; truncation
                           */
    return cy_x_un(k, CY_OP_trunc, x);
  default:
    return cy_x_un(k, CY_OP_ceil, bin(b, CY_OP_sub, x, half));
  }
}

/* Enlarging by a whole factor repeats every element as often, by the usual ways of finding the nearest one: the factor,
 * or 0. Loops over quotients are cut in two (loop over sources, loop over copies), so that reads are dense. */
static int64_t repeats(cy_kb *b, const cy_node_info *n, int axis) {
  cy_graph *g = b->l->g;
  cy_dim in = cy_lower_type(b->l, n->in[0])->dim[axis], out = cy_lower_type(b->l, n->out[0])->dim[axis];
  const cy_attr *scales = cy_attr_find(n, CY_ATTR_scales);
  int64_t coord = cy_attr_get_int(n, CY_ATTR_coord, CY_COORD_HALF_PIXEL), how = cy_attr_get_int(n, CY_ATTR_nearest, 0),
          factor;
  if ((n->nin > 1 && n->in[1]) || cy_dim_is(g, in, 0) || !cy_dim_is_const(g, cy_dim_div(g, out, in), &factor) ||
      factor < 2 || factor > MAX_REPEATS || cy_dim_muli(g, in, factor) != out)
    return 0;
  if (scales && (int)scales->n > axis && scales->floats[axis] > 0 && scales->floats[axis] != (double)factor)
    return 0;
  bool down = how == CY_NEAREST_FLOOR || how == CY_NEAREST_SIMPLE;
  bool nearest = how == CY_NEAREST_ROUND_PREFER_CEIL || how == CY_NEAREST_ROUND_PREFER_FLOOR;
  bool corners = coord == CY_COORD_ASYMMETRIC || coord == CY_COORD_TF_HALF_PIXEL_NN;
  return (corners && down) || (coord == CY_COORD_HALF_PIXEL && nearest) ? factor : 0;
}

/* Sum over the taps of axes [axis, rank), outermost first. */
static cy_expr weigh(cy_kb *b, cy_val x, const taps *t, int axis, int rank, cy_expr *in_idx) {
  if (axis == rank)
    return cy_lower_at(b, x, in_idx);
  cy_expr sum = 0;
  for (int i = 0; i < t[axis].n; i++) {
    in_idx[axis] = t[axis].index[i];
    cy_expr v = weigh(b, x, t, axis + 1, rank, in_idx);
    if (t[axis].weight[i])
      v = bin(b, CY_OP_mul, cy_x_cast(b->k, v, cy_expr_of(b->k, t[axis].weight[i])->dtype), t[axis].weight[i]);
    sum = sum ? bin(b, CY_OP_add, sum, v) : v;
  }
  return sum;
}

/* How many elements a kernel that is `width` wide reaches when it is stretched by 1 / scale: as many as may lie within an
 * open interval of its length. Scales that are computed may be a little less than what the sizes say. */
static cy_dim antialias_taps(cy_kb *b, const cy_node_info *n, int axis, int width) {
  cy_graph *g = b->l->g;
  const cy_type *in = cy_lower_type(b->l, n->in[0]), *out = cy_lower_type(b->l, n->out[0]);
  const cy_attr *scales = cy_attr_find(n, CY_ATTR_scales);
  cy_dim by_sizes = cy_dim_cdiv(g, cy_dim_muli(g, in->dim[axis], width), out->dim[axis]);
  if (scales && scales->n == in->rank && scales->floats[axis] > 0)
    return cy_dim_const(g, (int64_t)ceil(fmin(width / fmin(scales->floats[axis], 1), 1e9)));
  if (n->nin > 1 && n->in[1])
    return cy_dim_addi(g, by_sizes, width + 2);
  return cy_dim_max(g, by_sizes, cy_dim_const(g, width));
}

/* A window's taps summed by a loop for each axis: with antialias the window is stretched by 1 / scale when it shrinks, and
 * weights are normalised. Without, these are the sums of weigh(), of windows that are too many elements to write out. */
static cy_expr window_axis(cy_kb *b, const cy_node_info *n, int axis, cy_expr *idx, const cy_expr *coord, int rank,
                           cy_dtype dtype) {
  while (axis < rank && !coord[axis])
    axis++;
  if (axis == rank)
    return cy_x_cast(b->k, cy_lower_at(b, n->in[0], idx), dtype);
  cy_kernel *k = b->k;
  const cy_type *in = cy_lower_type(b->l, n->in[0]);
  bool cubic = cy_attr_get_int(n, CY_ATTR_mode, 0) == CY_RESIZE_CUBIC;
  bool exclude = cy_attr_get_int(n, CY_ATTR_exclude_outside, 0) != 0;
  bool stretch = cy_attr_get_int(n, CY_ATTR_antialias, 0) != 0;
  cy_expr ratio = stretch ? resize_scale(b, n, axis, dtype) : cy_x_const(k, dtype, 1);
  cy_expr scale = stretch ? bin(b, CY_OP_min, ratio, like(b, ratio, 1)) : ratio;
  cy_expr reach = bin(b, CY_OP_div, like(b, ratio, cubic ? 2 : 1), scale);
  int width = cubic ? 4 : 2;
  cy_dim taps = stretch ? antialias_taps(b, n, axis, width) : cy_dim_const(b->l->g, width);
  cy_expr first = cy_x_cast(
      k, cy_x_un(k, CY_OP_floor, bin(b, CY_OP_add, bin(b, CY_OP_sub, coord[axis], reach), like(b, ratio, 1))), CY_I64);
  cy_local sum = cy_kernel_add_local(k, dtype), norm = cy_kernel_add_local(k, dtype);
  cy_kernel_set(k, sum, like(b, ratio, 0));
  cy_kernel_set(k, norm, like(b, ratio, 0));
  cy_expr at = bin(b, CY_OP_add, first, cy_kb_loop(b, taps, false));
  cy_expr d = cy_x_un(k, CY_OP_abs, bin(b, CY_OP_mul, bin(b, CY_OP_sub, coord[axis], cy_x_cast(k, at, dtype)), scale));
  cy_expr weight;
  if (cubic) {
    double a = cy_attr_get_float(n, CY_ATTR_cubic_a, -0.75);
    cy_expr near = bin(
        b, CY_OP_add,
        bin(b, CY_OP_mul,
            bin(b, CY_OP_mul, bin(b, CY_OP_sub, bin(b, CY_OP_mul, d, like(b, ratio, a + 2)), like(b, ratio, a + 3)), d),
            d),
        like(b, ratio, 1));
    cy_expr far =
        bin(b, CY_OP_add,
            bin(b, CY_OP_mul,
                bin(b, CY_OP_sub, bin(b, CY_OP_mul, bin(b, CY_OP_sub, d, like(b, ratio, 5)), d), like(b, ratio, -8)),
                bin(b, CY_OP_mul, d, like(b, ratio, a))),
            like(b, ratio, -4 * a));
    weight = cy_x_select(k, bin(b, CY_OP_lt, d, like(b, ratio, 1)), near,
                         cy_x_select(k, bin(b, CY_OP_lt, d, like(b, ratio, 2)), far, like(b, ratio, 0)));
  } else {
    weight = bin(b, CY_OP_max, bin(b, CY_OP_sub, like(b, ratio, 1), d), like(b, ratio, 0));
  }
  if (exclude)
    weight = cy_x_select(k, cy_lower_in_range(b, at, in->dim[axis]), weight, like(b, ratio, 0));
  idx[axis] = cy_lower_clamp(b, at, in->dim[axis]);
  if (stretch || exclude)
    cy_kernel_accum(k, norm, CY_OP_add, weight);
  cy_kernel_accum(k, sum, CY_OP_add, bin(b, CY_OP_mul, weight, window_axis(b, n, axis + 1, idx, coord, rank, dtype)));
  cy_kernel_end(k);
  return stretch || exclude ? bin(b, CY_OP_div, cy_x_local(k, sum), cy_x_local(k, norm)) : cy_x_local(k, sum);
}

cy_expr cy_lower_resize(cy_kb *b, cy_node node, uint32_t output, const cy_expr *idx) {
  (void)output;
  const cy_node_info *n = node_of(b, node);
  const cy_type *in = cy_lower_type(b->l, n->in[0]), *out = cy_lower_type(b->l, n->out[0]);
  int mode = (int)cy_attr_get_int(n, CY_ATTR_mode, CY_RESIZE_NEAREST);
  int64_t coord_mode = cy_attr_get_int(n, CY_ATTR_coord, CY_COORD_HALF_PIXEL);
  /* rounding to one element needs the exact quotient */
  cy_dtype dtype = mode == CY_RESIZE_NEAREST ? CY_F64 : cy_dtype_real((cy_dtype)in->dtype);
  taps t[CY_MAX_RANK];
  cy_expr in_idx[CY_MAX_RANK], coord[CY_MAX_RANK] = {0}, outside = 0;
  for (int i = 0; i < in->rank; i++) {
    t[i] = (taps){.n = 1, .index = {idx[i]}};
    in_idx[i] = idx[i];
    if (!cy_resizes_axis(n, in, out, i))
      continue;
    int64_t factor = mode == CY_RESIZE_NEAREST ? repeats(b, n, i) : 0;
    if (factor) {
      t[i].index[0] = bin(b, CY_OP_div, idx[i], cy_x_index(b->k, factor));
      continue;
    }
    coord[i] = resize_coordinate(b, n, i, idx[i], dtype);
    if (coord_mode == CY_COORD_TF_CROP) {
      cy_expr last = cy_x_cast(b->k, cy_x_dim(b->k, cy_dim_addi(b->l->g, in->dim[i], -1)), dtype);
      cy_expr out_of =
          bin(b, CY_OP_or, bin(b, CY_OP_lt, coord[i], cy_x_const(b->k, dtype, 0)), bin(b, CY_OP_gt, coord[i], last));
      outside = outside ? bin(b, CY_OP_or, outside, out_of) : out_of;
    }
    if (mode == CY_RESIZE_NEAREST) {
      cy_expr at = index_of(b, nearest_index(b, coord[i], cy_attr_get_int(n, CY_ATTR_nearest, 0), dtype));
      t[i].index[0] = cy_lower_clamp(b, at, in->dim[i]);
    } else {
      t[i] = interpolate(b, coord[i], in->dim[i], mode, cy_attr_get_float(n, CY_ATTR_cubic_a, -0.75),
                         cy_attr_get_int(n, CY_ATTR_exclude_outside, 0) != 0);
    }
  }
  int elements = 1;
  for (int i = 0; i < in->rank; i++)
    elements *= t[i].n;
  bool window = mode != CY_RESIZE_NEAREST && (cy_attr_get_int(n, CY_ATTR_antialias, 0) || elements > MAX_TAPS);
  cy_expr value =
      window ? window_axis(b, n, 0, in_idx, coord, in->rank, dtype) : weigh(b, n->in[0], t, 0, in->rank, in_idx);
  cy_dtype compute = cy_compute_dtype((cy_dtype)out->dtype);
  if (cy_dtype_is_int(compute) && mode != CY_RESIZE_NEAREST)
    value = cy_x_un(b->k, CY_OP_round, value);
  value = cy_x_cast(b->k, value, compute);
  if (outside)
    value = cy_x_select(b->k, outside, cy_x_cast(b->k, f32(b, cy_attr_get_float(n, CY_ATTR_extrapolation, 0)), compute),
                        value);
  return value;
}

/* ---- grid_sample ---- */

/* What coordinates and sums are computed in: positions' or the grid's precision, whichever is higher, f32 at least. */
static cy_dtype sample_dtype(cy_kb *b, const cy_node_info *n) {
  bool wide = cy_lower_type(b->l, n->in[0])->dtype == CY_F64 || cy_lower_type(b->l, n->in[1])->dtype == CY_F64;
  return wide ? CY_F64 : CY_F32;
}

/* Mirrors x into [low, low + span]. */
static cy_expr reflect_coordinate(cy_kb *b, cy_expr x, cy_expr low, cy_expr span) {
  cy_expr period = bin(b, CY_OP_max, bin(b, CY_OP_mul, span, like(b, x, 2)), like(b, x, 1e-30));
  cy_expr within = bin(b, CY_OP_mod, bin(b, CY_OP_sub, x, low), period);
  return bin(b, CY_OP_add, low, bin(b, CY_OP_min, within, bin(b, CY_OP_sub, period, within)));
}

static cy_expr sample_index(cy_kb *b, const cy_node_info *n, cy_expr at, cy_dim extent, cy_expr *out_inside) {
  int64_t padding = cy_attr_get_int(n, CY_ATTR_padding_mode, CY_SAMPLE_ZEROS);
  if (padding == CY_SAMPLE_ZEROS) {
    cy_expr ok = cy_lower_in_range(b, at, extent);
    *out_inside = *out_inside ? bin(b, CY_OP_and, *out_inside, ok) : ok;
  } else if (padding == CY_SAMPLE_REFLECTION) {
    bool corners = cy_attr_get_int(n, CY_ATTR_align_corners, 0) != 0;
    cy_dtype dtype = sample_dtype(b, n);
    cy_expr size = cy_x_cast(b->k, cy_x_dim(b->k, extent), dtype);
    cy_expr span = corners ? bin(b, CY_OP_sub, size, like(b, size, 1)) : size;
    cy_expr low = like(b, size, corners ? 0 : -0.5),
            moved = reflect_coordinate(b, cy_x_cast(b->k, at, dtype), low, span);
    at = cy_x_cast(b->k, cy_x_un(b->k, CY_OP_round, moved), CY_I64);
  }
  return cy_lower_clamp(b, at, extent);
}

/* The element at in_idx, which lies in x wherever that has elements; zero where it is not `inside`. */
static cy_expr sample_at(cy_kb *b, const cy_node_info *n, const cy_expr *in_idx, cy_expr inside) {
  const cy_type *x = cy_lower_type(b->l, n->in[0]);
  cy_expr v = cy_x_cast(b->k, cy_lower_at(b, n->in[0], in_idx), sample_dtype(b, n));
  bool some = true;
  for (int i = 2; i < x->rank; i++) {
    int64_t min, max;
    cy_dim_range(b->l->g, x->dim[i], &min, &max);
    some &= min > 0;
  }
  if (!inside)
    return v;
  return (some ? cy_x_select_either : cy_x_select)(b->k, inside, v, like(b, v, 0));
}

static cy_expr sample_taps(cy_kb *b, const cy_node_info *n, const cy_expr *coord, int axis, cy_expr *in_idx,
                           cy_expr inside) {
  const cy_type *x = cy_lower_type(b->l, n->in[0]);
  int spatial = x->rank - 2, mode = (int)cy_attr_get_int(n, CY_ATTR_mode, CY_RESIZE_LINEAR);
  if (axis == spatial)
    return sample_at(b, n, in_idx, inside);
  cy_dim extent = x->dim[2 + axis];
  if (mode == CY_RESIZE_NEAREST) {
    cy_expr at = cy_x_cast(b->k, cy_x_un(b->k, CY_OP_round, coord[axis]), CY_I64);
    in_idx[2 + axis] = sample_index(b, n, at, extent, &inside);
    return sample_taps(b, n, coord, axis + 1, in_idx, inside);
  }
  cy_expr base = cy_x_un(b->k, CY_OP_floor, coord[axis]), t = bin(b, CY_OP_sub, coord[axis], base);
  cy_expr first = cy_x_cast(b->k, base, CY_I64), weight[4], sum = 0;
  bool cubic = mode == CY_RESIZE_CUBIC;
  if (cubic) {
    cubic_weights(b, t, cy_attr_get_float(n, CY_ATTR_cubic_a, -0.75), weight);
  } else {
    weight[0] = bin(b, CY_OP_sub, like(b, t, 1), t);
    weight[1] = t;
  }
  for (int i = 0; i < (cubic ? 4 : 2); i++) {
    cy_expr here = inside;
    in_idx[2 + axis] = sample_index(b, n, bin(b, CY_OP_add, first, cy_x_index(b->k, cubic ? i - 1 : i)), extent, &here);
    cy_expr v = bin(b, CY_OP_mul, weight[i], sample_taps(b, n, coord, axis + 1, in_idx, here));
    sum = sum ? bin(b, CY_OP_add, sum, v) : v;
  }
  return sum;
}

cy_expr cy_lower_grid_sample(cy_kb *b, cy_node node, uint32_t output, const cy_expr *idx) {
  (void)output;
  const cy_node_info *n = node_of(b, node);
  const cy_type *x = cy_lower_type(b->l, n->in[0]);
  int spatial = x->rank - 2;
  cy_dtype dtype = sample_dtype(b, n);
  bool corners = cy_attr_get_int(n, CY_ATTR_align_corners, 0) != 0;
  int64_t padding = cy_attr_get_int(n, CY_ATTR_padding_mode, CY_SAMPLE_ZEROS),
          mode = cy_attr_get_int(n, CY_ATTR_mode, CY_RESIZE_LINEAR);
  cy_expr at[CY_MAX_RANK] = {idx[0]}, coord[CY_MAX_SPATIAL], in_idx[CY_MAX_RANK] = {idx[0], idx[1]};
  for (int i = 0; i < spatial; i++)
    at[1 + i] = idx[2 + i];
  for (int i = 0; i < spatial; i++) { /* the grid's last axis counts the spatial axes from the innermost */
    at[1 + spatial] = cy_x_index(b->k, spatial - 1 - i);
    cy_expr p = cy_x_cast(b->k, cy_lower_at(b, n->in[1], at), dtype),
            size = cy_x_cast(b->k, cy_x_dim(b->k, x->dim[2 + i]), dtype);
    cy_expr unit = bin(b, CY_OP_mul, bin(b, CY_OP_add, p, like(b, p, 1)), like(b, p, 0.5));
    coord[i] = corners ? bin(b, CY_OP_mul, unit, bin(b, CY_OP_sub, size, like(b, p, 1)))
                       : bin(b, CY_OP_sub, bin(b, CY_OP_mul, unit, size), like(b, p, 0.5));
    if (mode == CY_RESIZE_CUBIC)
      continue; /* each of the taps is brought inside */
    if (padding == CY_SAMPLE_BORDER)
      coord[i] = bin(b, CY_OP_min, bin(b, CY_OP_max, coord[i], like(b, p, 0)), bin(b, CY_OP_sub, size, like(b, p, 1)));
    if (padding == CY_SAMPLE_REFLECTION) {
      cy_expr span = corners ? bin(b, CY_OP_sub, size, like(b, p, 1)) : size;
      coord[i] = reflect_coordinate(b, coord[i], like(b, p, corners ? 0 : -0.5), span);
    }
  }
  cy_expr value = sample_taps(b, n, coord, 0, in_idx, 0);
  return cy_x_cast(b->k, value, cy_compute_dtype((cy_dtype)cy_lower_type(b->l, n->out[0])->dtype));
}

/* ---- quantize, dequantize ---- */

/* Element of a scale or zero point for element idx of the tensor: one for all, per axis, or per block along the axis.
 */
static cy_expr parameter_at(cy_kb *b, const cy_node_info *n, cy_val v, const cy_expr *idx) {
  const cy_type *t = cy_lower_type(b->l, v), *x = cy_lower_type(b->l, n->in[0]);
  int64_t axis = cy_attr_get_int(n, CY_ATTR_axis, 0), block = cy_attr_get_int(n, CY_ATTR_block_size, 0);
  cy_expr at[CY_MAX_RANK] = {cy_x_index(b->k, 0)};
  if (block > 0 && t->rank == x->rank) {
    for (int i = 0; i < x->rank; i++)
      at[i] = idx[i];
    at[axis] = bin(b, CY_OP_div, idx[axis], cy_x_index(b->k, block));
  } else if (t->rank == 1 && !cy_dim_is(b->l->g, t->dim[0], 1)) {
    at[0] = idx[axis];
  }
  return cy_lower_at(b, v, at);
}

cy_expr cy_lower_quantize(cy_kb *b, cy_node node, uint32_t output, const cy_expr *idx) {
  (void)output;
  const cy_node_info *n = node_of(b, node);
  cy_dtype out = (cy_dtype)cy_lower_type(b->l, n->out[0])->dtype, compute = cy_compute_dtype(out);
  cy_expr x = cy_x_cast(b->k, cy_lower_at(b, n->in[0], idx), CY_F32);
  cy_expr scale = cy_x_cast(b->k, parameter_at(b, n, n->in[1], idx), CY_F32);
  cy_expr q = bin(b, CY_OP_div, x, scale);
  if (cy_dtype_is_float(out))
    return cy_x_cast(b->k, cy_x_cast(b->k, q, out), compute); /* float8 has zero point 0 */
  double low, high, zero = 0;
  cy_dtype_int_range(out, &low, &high);
  cy_val zp = n->nin > 2 ? n->in[2] : 0;
  if (!zp || (cy_value_is_const(b->l->g, zp) && cy_value_is_splat(b->l->g, zp, &zero))) {
    /* bounds are whole numbers, so that rounding behind them gives the same and is one with the conversion */
    q = bin(b, CY_OP_min, bin(b, CY_OP_max, q, f32(b, low - zero)), f32(b, high - zero));
    q = cy_x_cast(b->k, cy_x_un(b->k, CY_OP_round, q), CY_I32);
    return cy_x_cast(b->k, bin(b, CY_OP_add, q, cy_x_int(b->k, CY_I32, (int64_t)zero)), compute);
  }
  q = bin(b, CY_OP_add, cy_x_un(b->k, CY_OP_round, q), cy_x_cast(b->k, parameter_at(b, n, zp, idx), CY_F32));
  q = bin(b, CY_OP_min, bin(b, CY_OP_max, q, f32(b, low)), f32(b, high));
  return cy_x_cast(b->k, cy_x_cast(b->k, q, CY_I32), compute);
}

cy_expr cy_lower_dequantize(cy_kb *b, cy_node node, uint32_t output, const cy_expr *idx) {
  (void)output;
  const cy_node_info *n = node_of(b, node);
  cy_dtype in = (cy_dtype)cy_lower_type(b->l, n->in[0])->dtype;
  cy_expr x = cy_lower_at(b, n->in[0], idx), scale = cy_x_cast(b->k, parameter_at(b, n, n->in[1], idx), CY_F32);
  cy_dtype middle = cy_dtype_is_float(in) ? CY_F32 : CY_I32; /* the difference of two 8- or 32-bit integers, exactly */
  x = cy_x_cast(b->k, x, middle);
  if (n->nin > 2 && n->in[2])
    x = bin(b, CY_OP_sub, x, cy_x_cast(b->k, parameter_at(b, n, n->in[2], idx), middle));
  x = bin(b, CY_OP_mul, cy_x_cast(b->k, x, CY_F32), scale);
  return cy_x_cast(b->k, x, cy_compute_dtype((cy_dtype)cy_lower_type(b->l, n->out[0])->dtype));
}
