/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_nn.c - convolutions and pooling: the windows over spatial axes.
 *
 * A window spec (kernel, strides, dilations, pads) is read once for all of them; auto_pad becomes explicit pads. Where
 * SAME padding depends on a symbolic size (stride > 1), the input is padded by a pad op of its own, since kernels want
 * constant pads. A bias becomes an add behind the convolution: fusion makes it an epilogue.
 */
#include "frontend/import_int.h"

#include <math.h>
#include <string.h>

#define X (n->in[0])
#define SET(v) cy_importer_set(im, n, 0, (v))
#define MAX_SPATIAL (CY_MAX_RANK - 2)

typedef struct window {
  int rank; /* spatial axes */
  int64_t kernel[MAX_SPATIAL], stride[MAX_SPATIAL], dilation[MAX_SPATIAL];
  cy_dim pad[2 * MAX_SPATIAL]; /* begins, ends */
  cy_dim in[MAX_SPATIAL], out[MAX_SPATIAL];
  int auto_pad; /* 0 NOTSET 1 SAME_UPPER 2 SAME_LOWER 3 VALID */
} window;

static cy_dim num(cy_importer *im, int64_t v) { return cy_dim_const(im->g, v); }
static int64_t reach(const window *w, int i) { return (w->kernel[i] - 1) * w->dilation[i] + 1; }

/* A list with one element per spatial axis (times `per`), each in [low, 2^31); absent: all `otherwise`. */
static bool spatial_list(cy_importer *im, const cy_onnx_node *n, const char *name, int count, int64_t low,
                         int64_t otherwise, int64_t *out) {
  uint32_t found;
  const int64_t *v = cy_onnx_ints(im, n, name, &found);
  if (v && (int)found != count) {
    cy_build_error(im->g, cy_arena_printf(im->arena, "attribute '%s'", name), "expected %d numbers, found %u", count,
                   found);
    return false;
  }
  for (int i = 0; i < count; i++) {
    out[i] = v ? v[i] : otherwise;
    if (out[i] < low || out[i] >= (int64_t)1 << 31) {
      cy_build_error(im->g, cy_arena_printf(im->arena, "attribute '%s'", name),
                     "%lld is out of range, expected %lld or more", (long long)out[i], (long long)low);
      return false;
    }
  }
  return true;
}

/* Kernel from the weights (w) or from kernel_shape; everything but pads and output sizes. */
static bool read_window(cy_importer *im, const cy_onnx_node *n, cy_val x, cy_val weights, window *w) {
  const cy_type *t = cy_onnx_type(im, x), *tw = weights ? cy_onnx_type(im, weights) : NULL;
  *w = (window){.rank = t->rank - 2};
  if (t->rank < 3 || (tw && tw->rank != t->rank)) {
    cy_build_error(im->g, NULL, "expected [batch, channels, spatial..]%s, found %s%s%s",
                   tw ? " and weights of the same rank" : "", cy_type_text(im->g, t), tw ? " and " : "",
                   tw ? cy_type_text(im->g, tw) : "");
    return false;
  }
  if (!tw && !cy_onnx_has(n, "kernel_shape"))
    return cy_build_error(im->g, "attribute 'kernel_shape'", "the attribute is missing");
  if (!spatial_list(im, n, "kernel_shape", w->rank, 1, 1, w->kernel) ||
      !spatial_list(im, n, "strides", w->rank, 1, 1, w->stride) ||
      !spatial_list(im, n, "dilations", w->rank, 1, 1, w->dilation))
    return false;
  for (int i = 0; i < w->rank; i++) {
    int64_t k;
    w->in[i] = t->dim[2 + i];
    if (!tw)
      continue;
    if (!cy_dim_is_const(im->g, tw->dim[2 + i], &k) || (cy_onnx_has(n, "kernel_shape") && k != w->kernel[i]))
      return cy_build_error(im->g, NULL,
                            "the weights %s do not fit attribute 'kernel_shape', or their size is not known",
                            cy_type_text(im->g, tw));
    w->kernel[i] = k;
  }
  w->auto_pad = cy_onnx_word(im, n, "auto_pad", "NOTSET", "NOTSET|SAME_UPPER|SAME_LOWER|VALID");
  return w->auto_pad >= 0;
}

static bool resolve_pads(cy_importer *im, const cy_onnx_node *n, window *w) {
  int64_t pads[2 * MAX_SPATIAL];
  if (!spatial_list(im, n, "pads", 2 * w->rank, -((int64_t)1 << 30), 0, pads))
    return false;
  for (int i = 0; i < w->rank; i++) {
    if (w->auto_pad == 0 || w->auto_pad == 3) {
      w->pad[i] = num(im, w->auto_pad ? 0 : pads[i]);
      w->pad[w->rank + i] = num(im, w->auto_pad ? 0 : pads[w->rank + i]);
      continue;
    }
    cy_dim windows = cy_dim_cdiv(im->g, w->in[i], num(im, w->stride[i]));
    cy_dim span = cy_dim_addi(im->g, cy_dim_muli(im->g, cy_dim_addi(im->g, windows, -1), w->stride[i]), reach(w, i));
    cy_dim total = cy_dim_max(im->g, num(im, 0), cy_dim_sub(im->g, span, w->in[i])),
           half = cy_dim_div(im->g, total, num(im, 2));
    w->pad[i] = w->auto_pad == 1 ? half : cy_dim_sub(im->g, total, half);
    w->pad[w->rank + i] = w->auto_pad == 1 ? cy_dim_sub(im->g, total, half) : half;
  }
  return true;
}

/* Sizes after the window has moved over the padded input. */
static bool window_sizes(cy_importer *im, window *w, bool ceil_mode) {
  for (int i = 0; i < w->rank; i++) {
    cy_dim s = num(im, w->stride[i]),
           padded = cy_dim_add(im->g, cy_dim_add(im->g, w->in[i], w->pad[i]), w->pad[w->rank + i]);
    cy_dim room = cy_dim_addi(im->g, padded, -reach(w, i));
    int64_t v;
    if (cy_dim_is_const(im->g, room, &v) && v < 0) {
      cy_build_error(im->g, NULL, "a window of %lld does not fit into spatial dimension %d, padded to %s",
                     (long long)reach(w, i), i, cy_dim_text(im->g, padded));
      return false;
    }
    w->out[i] = cy_dim_addi(im->g, ceil_mode ? cy_dim_cdiv(im->g, room, s) : cy_dim_div(im->g, room, s), 1);
    if (ceil_mode) { /* windows that would start in the padding at the end do not count */
      cy_dim starts =
          cy_dim_addi(im->g, cy_dim_div(im->g, cy_dim_addi(im->g, cy_dim_add(im->g, w->in[i], w->pad[i]), -1), s), 1);
      w->out[i] = cy_dim_min(im->g, w->out[i], starts);
    }
  }
  return true;
}

static bool constant_pads(cy_importer *im, const window *w) {
  int64_t v;
  for (int i = 0; i < 2 * w->rank; i++)
    if (!cy_dim_is_const(im->g, w->pad[i], &v))
      return false;
  return true;
}

/* Kernels want constant pads: others are applied here, and become 0. */
static cy_val apply_symbolic_pads(cy_importer *im, cy_val x, window *w, cy_val fill) {
  if (constant_pads(im, w))
    return x;
  int rank = w->rank + 2;
  cy_dim pads[2 * CY_MAX_RANK];
  for (int i = 0; i < 2 * rank; i++)
    pads[i] = num(im, 0);
  for (int i = 0; i < w->rank; i++) {
    pads[2 + i] = w->pad[i];
    pads[rank + 2 + i] = w->pad[w->rank + i];
    w->in[i] = cy_dim_add(im->g, cy_dim_add(im->g, w->in[i], w->pad[i]), w->pad[w->rank + i]);
  }
  for (int i = 0; i < 2 * w->rank; i++)
    w->pad[i] = num(im, 0);
  return cy_build_pad(im->g, x, pads, CY_PAD_CONSTANT, fill);
}

static cy_type spatial_type(cy_dtype dtype, cy_dim batch, cy_dim channels, const window *w) {
  cy_dim d[CY_MAX_RANK] = {batch, channels};
  memcpy(d + 2, w->out, sizeof(cy_dim) * (size_t)w->rank);
  return cy_type_make(dtype, w->rank + 2, d);
}

static cy_val with_bias(cy_importer *im, cy_val y, cy_val bias) {
  if (!bias || !y)
    return y;
  return ADD(y, cy_onnx_per_channel(im, bias, "input 'B'", y, 1));
}

/* ---- convolution ---- */

static bool check_groups(cy_importer *im, cy_val x, cy_val w, int64_t group, cy_dim in_per_group, cy_dim out_channels) {
  int64_t c, per, out;
  const cy_type *tx = cy_onnx_type(im, x), *tw = cy_onnx_type(im, w);
  if (group < 1)
    return cy_build_error(im->g, "attribute 'group'", "expected 1 or more, found %lld", (long long)group);
  if (cy_dim_is_const(im->g, tx->dim[1], &c) && cy_dim_is_const(im->g, in_per_group, &per) &&
      (per > INT64_MAX / group || per * group != c))
    return cy_build_error(im->g, NULL, "input %s and weights %s do not fit: %lld channels, but %lld groups of %lld",
                          cy_type_text(im->g, tx), cy_type_text(im->g, tw), (long long)c, (long long)group,
                          (long long)per);
  if (cy_dim_is_const(im->g, out_channels, &out) && out % group)
    return cy_build_error(im->g, NULL, "%lld output channels cannot be split into %lld groups", (long long)out,
                          (long long)group);
  return true;
}

cy_val cy_onnx_conv(cy_importer *im, const cy_onnx_node *n, cy_val x, cy_val weights, cy_dtype dtype) {
  return cy_onnx_conv_zeros(im, n, x, weights, 0, 0, dtype);
}

cy_val cy_onnx_conv_zeros(cy_importer *im, const cy_onnx_node *n, cy_val x, cy_val weights, cy_val x_zero, cy_val w_zero,
                          cy_dtype dtype) {
  window w;
  if (!x || !weights || !read_window(im, n, x, weights, &w) || !resolve_pads(im, n, &w))
    return 0;
  int64_t group = cy_onnx_int(im, n, "group", 1);
  const cy_type *tw = cy_onnx_type(im, weights);
  if (!check_groups(im, x, weights, group, tw->dim[1], tw->dim[0]))
    return 0;
  x = apply_symbolic_pads(im, x, &w, x_zero ? x_zero : LIKE(x, 0));
  if (!x || !window_sizes(im, &w, false))
    return 0;
  cy_type type = spatial_type(dtype, cy_onnx_type(im, x)->dim[0], tw->dim[0], &w);
  cy_attr a[4] = {cy_attr_ints(CY_ATTR_strides, w.stride, (uint32_t)w.rank),
                  cy_attr_dims(CY_ATTR_pads, w.pad, 2 * (uint32_t)w.rank),
                  cy_attr_ints(CY_ATTR_dilations, w.dilation, (uint32_t)w.rank), cy_attr_int(CY_ATTR_group, group)};
  cy_val in[4] = {x, weights, x_zero, w_zero};
  return cy_build(im->g, CY_OP_conv, in, w_zero ? 4 : x_zero ? 3 : 2, a, 4, &type, 1);
}

IMPORT(conv) { return SET(with_bias(im, cy_onnx_conv(im, n, X, n->in[1], cy_onnx_type(im, X)->dtype), n->in[2])); }

/* Pads as input 2, which must be constant. */
static bool pads_from_input(cy_importer *im, const cy_onnx_node *n, int rank, int64_t *pads) {
  uint32_t count;
  if (!cy_onnx_const_ints(im, n, 2, pads, 2 * MAX_SPATIAL, &count))
    return false;
  for (uint32_t i = 0; i < count; i++)
    if (pads[i] < 0 || pads[i] > (int64_t)1 << 30)
      return cy_build_error(im->g, "input 'Pads'", "expected numbers of at least 0, found %lld", (long long)pads[i]);
  return (int)count == 2 * rank ||
         cy_build_error(im->g, "input 'Pads'", "expected %d numbers, found %u", 2 * rank, count);
}

/* Pads that give the wanted output sizes; out = (in - 1) * stride + output_padding + reach - pads. */
static bool transpose_sizes(cy_importer *im, const cy_onnx_node *n, window *w) {
  int64_t extra[MAX_SPATIAL], pads[2 * MAX_SPATIAL];
  uint32_t nshape;
  const int64_t *shape = cy_onnx_ints(im, n, "output_shape", &nshape);
  if (!spatial_list(im, n, "output_padding", w->rank, 0, 0, extra) ||
      !spatial_list(im, n, "pads", 2 * w->rank, -((int64_t)1 << 30), 0, pads) ||
      (n->arg && n->in[2] && !pads_from_input(im, n, w->rank, pads)))
    return false;
  if (shape && (int)nshape == w->rank + 2) /* some exporters write the whole shape */
    shape += 2;
  else if (shape && (int)nshape != w->rank)
    return cy_build_error(im->g, "attribute 'output_shape'", "expected %d numbers, found %u", w->rank, nshape);
  for (int i = 0; i < w->rank; i++) {
    cy_dim full =
        cy_dim_addi(im->g, cy_dim_muli(im->g, cy_dim_addi(im->g, w->in[i], -1), w->stride[i]), extra[i] + reach(w, i));
    bool same = w->auto_pad == 1 || w->auto_pad == 2;
    if (!shape && !same) {
      bool valid = w->auto_pad == 3;
      w->pad[i] = num(im, valid ? 0 : pads[i]);
      w->pad[w->rank + i] = num(im, valid ? 0 : pads[w->rank + i]);
      w->out[i] = cy_dim_sub(im->g, cy_dim_sub(im->g, full, w->pad[i]), w->pad[w->rank + i]);
    } else {
      w->out[i] = shape ? num(im, shape[i]) : cy_dim_muli(im->g, w->in[i], w->stride[i]);
      cy_dim total = cy_dim_max(im->g, num(im, 0), cy_dim_sub(im->g, full, w->out[i])),
             half = cy_dim_div(im->g, total, num(im, 2));
      w->pad[i] = w->auto_pad == 1 ? half : cy_dim_sub(im->g, total, half);
      w->pad[w->rank + i] = w->auto_pad == 1 ? cy_dim_sub(im->g, total, half) : half;
    }
    int64_t v;
    if (cy_dim_is_const(im->g, w->out[i], &v) && v < 0)
      return cy_build_error(im->g, NULL, "output size of spatial dimension %d is negative", i);
  }
  return true;
}

/* com.microsoft (argument 1): X, W, pads, bias. */
IMPORT(conv_transpose) {
  window w;
  cy_val weights = n->in[1];
  if (!read_window(im, n, X, weights, &w) || !transpose_sizes(im, n, &w))
    return false;
  int64_t group = cy_onnx_int(im, n, "group", 1), v;
  const cy_type *tw = cy_onnx_type(im, weights), *tx = cy_onnx_type(im, X);
  if (group < 1 || !check_groups(im, X, weights, group, cy_dim_div(im->g, tw->dim[0], num(im, group)),
                                 cy_dim_muli(im->g, tw->dim[1], group)))
    return false;
  for (int i = 0; i < 2 * w.rank; i++)
    if (!cy_dim_is_const(im->g, w.pad[i], &v))
      return cy_build_error(im->g, "attribute 'output_shape'",
                            "padding that depends on a symbolic size is not supported here; fix it with --shape");
  cy_type type = spatial_type(tx->dtype, tx->dim[0], cy_dim_muli(im->g, tw->dim[1], group), &w);
  cy_attr a[4] = {cy_attr_ints(CY_ATTR_strides, w.stride, (uint32_t)w.rank),
                  cy_attr_dims(CY_ATTR_pads, w.pad, 2 * (uint32_t)w.rank),
                  cy_attr_ints(CY_ATTR_dilations, w.dilation, (uint32_t)w.rank), cy_attr_int(CY_ATTR_group, group)};
  cy_val in[2] = {X, weights};
  return SET(with_bias(im, cy_build(im->g, CY_OP_conv_transpose, in, 2, a, 4, &type, 1), n->in[n->arg ? 3 : 2]));
}

/* ---- pooling ---- */

static uint32_t pool_attrs(const window *w, cy_attr *a) {
  a[0] = cy_attr_ints(CY_ATTR_kernel, w->kernel, (uint32_t)w->rank);
  a[1] = cy_attr_ints(CY_ATTR_strides, w->stride, (uint32_t)w->rank);
  a[2] = cy_attr_dims(CY_ATTR_pads, w->pad, 2 * (uint32_t)w->rank);
  a[3] = cy_attr_ints(CY_ATTR_dilations, w->dilation, (uint32_t)w->rank);
  return 4;
}

static cy_val lowest(cy_importer *im, cy_val x) {
  const cy_dtype_info *t = cy_dtype_of(cy_onnx_type(im, x)->dtype);
  if (t->cls == 'F')
    return LIKE(x, -INFINITY);
  return cy_build_scalar_int(im->g, cy_onnx_type(im, x)->dtype, t->cls == 'I' ? -((int64_t)1 << (t->bits - 1)) : 0);
}

IMPORT(max_pool) {
  window w;
  cy_attr a[5];
  if (!read_window(im, n, X, 0, &w) || !resolve_pads(im, n, &w))
    return false;
  bool indices = cy_onnx_wants(n, 1);
  cy_val x = indices ? X : apply_symbolic_pads(im, X, &w, lowest(im, X));
  if (!x || !window_sizes(im, &w, cy_onnx_int(im, n, "ceil_mode", 0) != 0))
    return false;
  const cy_type *t = cy_onnx_type(im, X);
  cy_type types[2] = {spatial_type(t->dtype, t->dim[0], t->dim[1], &w), spatial_type(CY_I64, t->dim[0], t->dim[1], &w)};
  uint32_t na = pool_attrs(&w, a);
  a[na++] = cy_attr_int(CY_ATTR_storage_order, cy_onnx_int(im, n, "storage_order", 0));
  cy_val y = cy_build(im->g, CY_OP_pool_max, &x, 1, a, na, types, 2);
  if (y && indices)
    cy_importer_set(im, n, 1, cy_build_output(im->g, y, 1));
  return SET(y);
}

static cy_val average(cy_importer *im, cy_val x, const window *w, bool count_padding) {
  cy_attr a[5];
  const cy_type *t = cy_onnx_type(im, x);
  cy_type type = spatial_type(t->dtype, t->dim[0], t->dim[1], w);
  uint32_t na = pool_attrs(w, a);
  a[na++] = cy_attr_int(CY_ATTR_count_include_pad, count_padding);
  return cy_build(im->g, CY_OP_pool_avg, &x, 1, a, na, &type, 1);
}

/* One channel of one feature map as large as x's, of ones: its average under padding that counts is the share of a
 * window that lies inside. */
static cy_val ones_like_plane(cy_importer *im, cy_val x) {
  cy_type t = *cy_onnx_type(im, x);
  t.dim[0] = t.dim[1] = num(im, 1);
  return cy_onnx_fill(im, LIKE(x, 1), t.dim, t.rank);
}

IMPORT(average_pool) {
  window w;
  if (!read_window(im, n, X, 0, &w) || !resolve_pads(im, n, &w))
    return false;
  bool count_padding = cy_onnx_int(im, n, "count_include_pad", 0) != 0;
  cy_val inside = count_padding || constant_pads(im, &w) ? 0 : ones_like_plane(im, X);
  window w_inside = w;
  cy_val x = apply_symbolic_pads(im, X, &w, LIKE(X, 0));
  if (!x || !window_sizes(im, &w, cy_onnx_int(im, n, "ceil_mode", 0) != 0))
    return false;
  if (!inside)
    return SET(average(im, x, &w, count_padding));
  inside = apply_symbolic_pads(im, inside, &w_inside, LIKE(X, 0));
  return inside && SET(DIV(average(im, x, &w, true), average(im, inside, &w, true)));
}

static cy_val power(cy_importer *im, cy_val x, double p) {
  if (p == 1)
    return x;
  if (p == 2)
    return MUL(x, x);
  return p == 0.5 ? UNARY(sqrt, x) : BINARY(pow, x, LIKE(x, p));
}

static double lp_order(cy_importer *im, const cy_onnx_node *n) {
  return n->version < 2 ? cy_onnx_float(im, n, "p", 2) : (double)cy_onnx_int(im, n, "p", 2);
}

/* (sum |x|^p) ^ (1/p) over windows: an average times the window's size, over an input that is padded beforehand so that
 * every window is whole. */
IMPORT(lp_pool) {
  window w;
  if (!read_window(im, n, X, 0, &w) || !resolve_pads(im, n, &w) ||
      !window_sizes(im, &w, cy_onnx_int(im, n, "ceil_mode", 0) != 0))
    return false;
  double p = lp_order(im, n), size = 1;
  int rank = w.rank + 2;
  cy_dim pads[2 * CY_MAX_RANK];
  for (int i = 0; i < 2 * rank; i++)
    pads[i] = num(im, 0);
  for (int i = 0; i < w.rank; i++) {
    cy_dim span = cy_dim_addi(im->g, cy_dim_muli(im->g, cy_dim_addi(im->g, w.out[i], -1), w.stride[i]), reach(&w, i));
    pads[2 + i] = w.pad[i];
    pads[rank + 2 + i] = cy_dim_sub(im->g, cy_dim_sub(im->g, span, w.in[i]), w.pad[i]);
    w.pad[i] = w.pad[w.rank + i] = num(im, 0);
    size *= (double)w.kernel[i];
  }
  cy_val zero = LIKE(X, 0), x = cy_build_pad(im->g, power(im, UNARY(abs, X), p), pads, CY_PAD_CONSTANT, zero);
  return x && SET(power(im, MUL(average(im, x, &w, true), LIKE(X, size)), 1 / p));
}

static uint32_t spatial_axes(const cy_type *t, int64_t *axes) {
  for (int i = 2; i < t->rank; i++)
    axes[i - 2] = i;
  return t->rank > 2 ? (uint32_t)t->rank - 2 : 0;
}

IMPORT(global_average_pool) {
  int64_t axes[CY_MAX_RANK];
  uint32_t count = spatial_axes(cy_onnx_type(im, X), axes);
  return SET(count ? cy_onnx_mean(im, X, axes, count, true) : X);
}

IMPORT(global_max_pool) {
  int64_t axes[CY_MAX_RANK];
  uint32_t count = spatial_axes(cy_onnx_type(im, X), axes);
  return SET(count ? cy_build_reduce(im->g, CY_OP_reduce_max, X, axes, count, true) : X);
}

IMPORT(global_lp_pool) {
  int64_t axes[CY_MAX_RANK];
  uint32_t count = spatial_axes(cy_onnx_type(im, X), axes);
  double p = lp_order(im, n);
  return SET(
      power(im, cy_build_reduce(im->g, CY_OP_reduce_sum, power(im, UNARY(abs, X), p), axes, count, true), 1 / p));
}
