/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_vision.c - sampling by coordinates and images put together from columns: GridSample, AffineGrid, Col2Im. */
#include "frontend/import_int.h"

#include <string.h>

#define X (n->in[0])
#define SET(v) cy_importer_set(im, n, 0, (v))

static cy_dim num(cy_importer *im, int64_t v) { return cy_dim_const(im->g, v); }

IMPORT(grid_sample) {
  static const int modes[5] = {CY_RESIZE_LINEAR, CY_RESIZE_NEAREST, CY_RESIZE_CUBIC, CY_RESIZE_LINEAR, CY_RESIZE_CUBIC};
  int mode =
      cy_onnx_word(im, n, "mode", n->version < 20 ? "bilinear" : "linear", "bilinear|nearest|bicubic|linear|cubic");
  int padding = cy_onnx_word(im, n, "padding_mode", "zeros", "zeros|border|reflection");
  if (mode < 0 || padding < 0)
    return false;
  cy_attr a[3] = {cy_attr_int(CY_ATTR_mode, modes[mode]), cy_attr_int(CY_ATTR_padding_mode, padding),
                  cy_attr_int(CY_ATTR_align_corners, cy_onnx_int(im, n, "align_corners", 0) != 0)};
  return SET(cy_build(im->g, CY_OP_grid_sample, n->in, 2, a, 3, NULL, 1));
}

/* Positions along one axis of extent e in [-1, 1], as dtype[e]. */
static cy_val positions(cy_importer *im, cy_dim e, bool corners, cy_dtype dtype) {
  cy_val i = cy_build_iota(im->g, dtype, &e, 1, 0);
  cy_val span = CAST(cy_build_dim_scalar(im->g, corners ? cy_dim_addi(im->g, e, -1) : e), dtype);
  cy_val twice = corners ? MUL(i, LIKE(i, 2)) : ADD(MUL(i, LIKE(i, 2)), LIKE(i, 1));
  return SUB(DIV(twice, span), LIKE(i, 1));
}

/* theta [n, k, k + 1], size [n, c, d..] -> grid [n, d.., k]: theta times (x, y, .., 1). */
IMPORT(affine_grid) {
  const cy_type t = *cy_onnx_type(im, X);
  uint32_t count;
  bool corners = cy_onnx_int(im, n, "align_corners", 0) != 0;
  const cy_dim *size = cy_onnx_elems(im, n, 1, &count);
  if (!size || t.rank != 3 || count < 4 || count > 5)
    return size &&
           cy_build_error(im->g, NULL, "expected theta [n, 2, 3] and 4 sizes, or [n, 3, 4] and 5, found %s and %u",
                          cy_type_text(im->g, &t), count);
  int k = (int)count - 2;
  cy_dim grid[CY_MAX_RANK] = {0}, flat[2] = {num(im, 1), num(im, 1)}, out[CY_MAX_RANK] = {size[0]};
  for (int i = 0; i < k; i++) {
    grid[i] = out[1 + i] = size[2 + i];
    flat[0] = cy_dim_mul(im->g, flat[0], size[2 + i]);
  }
  out[1 + k] = num(im, k);
  cy_dtype dtype = cy_dtype_real(t.dtype);
  cy_val rows[4];
  for (int i = 0; i < k; i++) { /* x runs along the last axis */
    int axis = k - 1 - i;
    cy_val p = positions(im, grid[axis], corners, dtype);
    rows[i] = cy_build_reshape(im->g, cy_build_expand(im->g, cy_onnx_channel(im, p, k, axis), grid, k), flat, 2);
  }
  rows[k] = cy_onnx_fill(im, cy_build_scalar(im->g, dtype, 1), flat, 2);
  for (int i = 0; i <= k; i++)
    if (!rows[i])
      return false;
  const int64_t swap[3] = {0, 2, 1};
  cy_val points = CAST(cy_build_concat(im->g, rows, (uint32_t)k + 1, 1), t.dtype);
  cy_val y = cy_build_matmul(im->g, points, cy_build_transpose(im->g, X, swap), t.dtype);
  return SET(cy_build_reshape(im->g, y, out, k + 2));
}

static bool spatial(cy_importer *im, const cy_onnx_node *n, const char *name, uint32_t count, int64_t otherwise,
                    int64_t *out) {
  uint32_t found;
  const int64_t *v = cy_onnx_ints(im, n, name, &found);
  if (v && found != count)
    return cy_build_error(im->g, cy_arena_printf(im->arena, "attribute '%s'", name), "expected %u numbers, found %u",
                          count, found);
  for (uint32_t i = 0; i < count; i++) {
    out[i] = v ? v[i] : otherwise;
    if (out[i] < otherwise || out[i] > 1 << 24)
      return cy_build_error(im->g, cy_arena_printf(im->arena, "attribute '%s'", name), "%lld is out of range",
                            (long long)out[i]);
  }
  return true;
}

/* [n, c * block, windows] summed into [n, c, image..]: a scatter that adds, onto the padded image. */
IMPORT(col2im) {
  const cy_type t = *cy_onnx_type(im, X);
  uint32_t count, nb;
  int64_t stride[CY_MAX_RANK], dilation[CY_MAX_RANK], pad[2 * CY_MAX_RANK];
  const cy_dim *image = cy_onnx_elems(im, n, 1, &count);
  const cy_dim *block = image ? cy_onnx_elems(im, n, 2, &nb) : NULL;
  if (!block)
    return false;
  if (t.rank != 3 || nb != count || count < 1 || 2 * count > CY_MAX_RANK)
    return cy_build_error(
        im->g, NULL, "expected [n, c * block, windows] and image and block shapes of one length, found %s, %u and %u",
        cy_type_text(im->g, &t), count, nb);
  if (!spatial(im, n, "strides", count, 1, stride) || !spatial(im, n, "dilations", count, 1, dilation) ||
      !spatial(im, n, "pads", 2 * count, 0, pad))
    return false;
  cy_dim size = num(im, 1), padded[CY_MAX_RANK], grid[2 * CY_MAX_RANK], total = num(im, 1), all = num(im, 1);
  for (uint32_t i = 0; i < count; i++) {
    int64_t low, high;
    cy_dim_range(im->g, block[i], &low, &high);
    if (high < 1 || low > 1 << 20)
      return cy_build_error(im->g, "input 'block_shape'", "%lld is out of range", (long long)high);
    size = cy_dim_mul(im->g, size, block[i]);
    padded[i] = cy_dim_addi(im->g, image[i], pad[i] + pad[count + i]);
    grid[i] = block[i];
    cy_dim reach = cy_dim_muli(im->g, cy_dim_addi(im->g, block[i], -1), dilation[i]);
    cy_dim room = cy_dim_addi(im->g, cy_dim_sub(im->g, padded[i], reach), -1);
    grid[count + i] = cy_dim_addi(im->g, cy_dim_div(im->g, room, num(im, stride[i])), 1);
    total = cy_dim_mul(im->g, total, padded[i]);
    all = cy_dim_mul(im->g, cy_dim_mul(im->g, all, grid[i]), grid[count + i]);
  }
  cy_val at = 0;
  for (uint32_t i = 0; i < count; i++) { /* row-major position in the padded image */
    cy_val inside = MUL(cy_build_iota(im->g, CY_I64, grid, 2 * (int)count, (int)i),
                        cy_build_scalar_int(im->g, CY_I64, dilation[i]));
    cy_val start = MUL(cy_build_iota(im->g, CY_I64, grid, 2 * (int)count, (int)(count + i)),
                       cy_build_scalar_int(im->g, CY_I64, stride[i]));
    cy_val p = ADD(inside, start);
    at = at ? ADD(MUL(at, cy_build_dim_scalar(im->g, padded[i])), p) : p;
  }
  cy_dim channels = cy_dim_div(im->g, t.dim[1], size), planes = cy_dim_mul(im->g, t.dim[0], channels);
  cy_dim flat[2] = {planes, all}, empty[2] = {planes, total}, out[CY_MAX_RANK] = {t.dim[0], channels};
  at = cy_build_expand(im->g, cy_build_reshape(im->g, at, &all, 1), flat, 2);
  cy_val in[3] = {cy_onnx_fill(im, LIKE(X, 0), empty, 2), at, cy_build_reshape(im->g, X, flat, 2)};
  cy_attr a[2] = {cy_attr_int(CY_ATTR_axis, 1), cy_attr_int(CY_ATTR_combine, CY_COMBINE_ADD)};
  cy_val y = cy_build(im->g, CY_OP_scatter_elements, in, 3, a, 2, NULL, 1);
  memcpy(out + 2, padded, sizeof(cy_dim) * count);
  y = cy_build_reshape(im->g, y, out, 2 + (int)count);
  for (uint32_t i = 0; i < count; i++)
    y = y ? cy_build_slice_axis(im->g, y, 2 + (int)i, num(im, pad[i]), image[i]) : 0;
  return SET(y);
}
