/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_arrays.c - operators on arrays that com.microsoft and early operator sets have: inverses of matrices, pieces of
 * images, windows, hashes, tokens that would repeat an n-gram.
 */
#include "frontend/import_int.h"

#include <math.h>

#define X (n->in[0])
#define SET(v) cy_importer_set(im, n, 0, (v))

static cy_dim num(cy_importer *im, int64_t v) { return cy_dim_const(im->g, v); }

/* ---- Inverse ---- */

/* Row (axis 1) or column (axis 2) `at` of x [b, n, 2 n], with that axis. */
static cy_val line(cy_importer *im, cy_val x, cy_val at, int axis) {
  cy_val v = cy_build_gather(im->g, x, at, axis);
  return v ? cy_build_unsqueeze(im->g, v, axis) : 0;
}

/* Step `at` of Gauss and Jordan: of the rows from there on the one with the largest element of column `at` takes the
 * place of row `at`, is divided by it, and clears the column in all others. */
static cy_val eliminate(cy_importer *im, cy_val x, cy_val at) {
  const cy_type t = *cy_onnx_type(im, x);
  cy_dim rows[3] = {num(im, 1), t.dim[1], num(im, 1)}, wide[3] = {t.dim[0], num(im, 1), t.dim[2]};
  cy_val row = cy_build_iota(im->g, CY_I64, rows, 3, 1), size = line(im, x, at, 2);
  if (!row || !size)
    return 0;
  size = SELECT(BINARY(ge, row, at), UNARY(abs, size), LIKE(x, -1));
  cy_attr a[3] = {cy_attr_int(CY_ATTR_axis, 1), cy_attr_int(CY_ATTR_keepdims, 1), cy_attr_int(CY_ATTR_select_last, 0)};
  cy_val best = size ? cy_build(im->g, CY_OP_argmax, &size, 1, a, 3, NULL, 1) : 0; /* [b, 1, 1] */
  cy_val in[2] = {x, best ? cy_build_expand(im->g, best, wide, 3) : 0};
  cy_val pivot = in[1] ? cy_build(im->g, CY_OP_gather_elements, in, 2, a, 1, NULL, 1) : 0;
  cy_val moved = pivot ? SELECT(BINARY(eq, row, best), line(im, x, at, 1), x) : 0;
  cy_val here = BINARY(eq, row, at), top = pivot ? DIV(pivot, line(im, pivot, at, 2)) : 0;
  return moved && top ? SELECT(here, top, SUB(moved, MUL(line(im, moved, at, 2), top))) : 0;
}

IMPORT(inverse) {
  cy_graph *g = im->g;
  const cy_type t = *cy_onnx_type(im, X);
  if (t.rank < 2 || !cy_dtype_is_float(t.dtype))
    return cy_build_error(g, NULL, "expected matrices of real numbers, found %s", cy_type_text(g, &t));
  if (cy_onnx_clash(im, t.dim[t.rank - 1], t.dim[t.rank - 2]))
    return cy_build_error(g, NULL, "expected matrices as high as wide, found %s", cy_type_text(g, &t));
  cy_dim size = t.dim[t.rank - 1], square[3] = {num(im, 1), size, size};
  for (int i = 0; i < t.rank - 2; i++)
    square[0] = cy_dim_mul(g, square[0], t.dim[i]);
  cy_val x = CAST(X, cy_dtype_real(t.dtype)), flat = x ? cy_build_reshape(g, x, square, 3) : 0;
  cy_val unit = BINARY(eq, cy_build_iota(g, CY_I64, square, 3, 1), cy_build_iota(g, CY_I64, square, 3, 2));
  cy_val both[2] = {flat, unit && flat ? CAST(unit, cy_onnx_type(im, flat)->dtype) : 0};
  cy_val start = both[1] ? cy_build_concat(g, both, 2, 2) : 0;
  if (!start)
    return false;
  cy_block here = cy_build_block(g), body = cy_block_create(g, here);
  cy_type index = cy_type_make(CY_I64, 0, NULL), flag = cy_type_make(CY_BOOL, 0, NULL),
          state = *cy_onnx_type(im, start);
  cy_val at = cy_block_add_param(g, body, &index, NULL);
  cy_block_add_param(g, body, &flag, NULL);
  cy_val now = cy_block_add_param(g, body, &state, NULL), results[2];
  cy_build_in(g, body);
  results[0] = cy_build_scalar_int(g, CY_BOOL, 1);
  results[1] = eliminate(im, now, at);
  cy_build_in(g, here);
  if (!results[1])
    return false;
  cy_block_set_results(g, body, results, 2);
  cy_val in[3] = {cy_build_dim_scalar(g, size), 0, start};
  cy_attr a = cy_attr_block(CY_ATTR_body, body);
  cy_val y = cy_build(g, CY_OP_loop, in, 3, &a, 1, &state, 1);
  y = y ? cy_build_slice_axis(g, y, 2, size, size) : 0;
  return y && SET(CAST(cy_build_reshape(g, y, t.dim, t.rank), (cy_dtype)t.dtype));
}

/* ---- CropAndResize ---- */

typedef struct samples {          /* along one axis of the pieces, f32 or i64 [pieces, count] */
  cy_val inside, low, high, part; /* part: how far from low to high */
} samples;

/* Places from edges `from` to `to` (f32 [pieces, 1], 0 and 1 are the first and last of `size` elements), evenly. */
static bool place_samples(cy_importer *im, cy_val from, cy_val to, cy_dim size, cy_dim count, bool nearest,
                          samples *s) {
  cy_dim row[2] = {num(im, 1), count};
  cy_val last = CAST(cy_build_dim_scalar(im->g, cy_dim_addi(im->g, size, -1)), CY_F32),
         zero = cy_build_scalar(im->g, CY_F32, 0);
  cy_val steps = CAST(cy_build_dim_scalar(im->g, cy_dim_addi(im->g, count, -1)), CY_F32);
  cy_val i = cy_build_iota(im->g, CY_F32, row, 2, 1), one = cy_build_scalar(im->g, CY_F32, 1),
         half = cy_build_scalar(im->g, CY_F32, 0.5);
  cy_val step = DIV(MUL(SUB(to, from), last), MAX(steps, one));
  cy_val middle = MUL(MUL(half, ADD(from, to)), last);
  cy_val at = SELECT(BINARY(gt, steps, zero), ADD(MUL(from, last), MUL(i, step)), ADD(middle, MUL(i, zero)));
  s->inside = BINARY(and, BINARY(ge, at, zero), BINARY(le, at, last));
  at = MAX(zero, MIN(at, last));
  cy_val low = UNARY(floor, nearest ? ADD(at, half) : at);
  s->low = low ? CAST(low, CY_I64) : 0;
  s->high = at ? CAST(UNARY(ceil, at), CY_I64) : 0;
  s->part = SUB(at, low);
  return s->inside && s->low && s->high && s->part;
}

/* x [images, h, w, c] at (image, y, x) [pieces, rows, columns]: [pieces, rows, columns, c]. */
static cy_val read_at(cy_importer *im, cy_val x, cy_val image, cy_val row, cy_val column, const cy_dim *grid) {
  cy_dim flat[4] = {grid[0], grid[1], grid[2], num(im, 1)};
  cy_val index[3] = {image, cy_build_unsqueeze(im->g, row, 2), cy_build_unsqueeze(im->g, column, 1)};
  for (int i = 0; i < 3; i++)
    if (!index[i] || !(index[i] = cy_build_reshape(im->g, cy_build_expand(im->g, index[i], grid, 3), flat, 4)))
      return 0;
  cy_val in[2] = {x, cy_build_concat(im->g, index, 3, 3)};
  cy_attr dims = cy_attr_int(CY_ATTR_batch_dims, 0);
  return in[1] ? cy_build(im->g, CY_OP_gather_nd, in, 2, &dims, 1, NULL, 0) : 0;
}

static cy_val between(cy_importer *im, cy_val a, cy_val b, cy_val part) {
  return a && b ? ADD(a, MUL(SUB(b, a), part)) : 0;
}

/* X [images, c, h, w], edges [pieces, 4] as y, x, y, x, the image of each piece, rows and columns of all pieces. */
IMPORT(crop_and_resize) {
  static const int64_t last[4] = {0, 2, 3, 1};
  const cy_type t = *cy_onnx_type(im, X), te = *cy_onnx_type(im, n->in[1]);
  int nearest = cy_onnx_word(im, n, "mode", "bilinear", "bilinear|nearest");
  uint32_t count = 0;
  const cy_dim *size = cy_onnx_elems(im, n, 3, &count);
  if (nearest < 0 || !size)
    return false;
  if (t.rank != 4 || te.rank != 2 || count != 2 || cy_onnx_type(im, n->in[2])->rank != 1)
    return cy_build_error(im->g, NULL,
                          "expected images of rank 4, edges [pieces, 4], their images and two sizes, found %s and %s",
                          cy_type_text(im->g, &t), cy_type_text(im->g, &te));
  cy_dim grid[3] = {te.dim[0], size[0], size[1]}, apart[3] = {te.dim[0], num(im, 1), num(im, 1)};
  cy_val edge[4], x = CAST(cy_build_transpose(im->g, X, last), CY_F32);
  for (int i = 0; i < 4; i++)
    if (!(edge[i] = cy_build_slice_axis(im->g, CAST(n->in[1], CY_F32), 1, num(im, i), num(im, 1))))
      return false;
  samples v, h;
  if (!place_samples(im, edge[0], edge[2], t.dim[2], size[0], nearest, &v) ||
      !place_samples(im, edge[1], edge[3], t.dim[3], size[1], nearest, &h))
    return false;
  cy_val image = CAST(cy_build_reshape(im->g, n->in[2], apart, 3), CY_I64),
         y = read_at(im, x, image, v.low, h.low, grid);
  cy_dim down[4] = {te.dim[0], size[0], num(im, 1), num(im, 1)},
         across[4] = {te.dim[0], num(im, 1), size[1], num(im, 1)};
  if (!nearest) {
    cy_val part[2] = {cy_build_reshape(im->g, v.part, down, 4), cy_build_reshape(im->g, h.part, across, 4)};
    y = between(im, y, read_at(im, x, image, v.low, h.high, grid), part[1]);
    cy_val right = read_at(im, x, image, v.high, h.high, grid), left = read_at(im, x, image, v.high, h.low, grid);
    y = between(im, y, between(im, left, right, part[1]), part[0]);
  }
  cy_val inside = BINARY(and, cy_build_reshape(im->g, v.inside, down, 4), cy_build_reshape(im->g, h.inside, across, 4));
  y = y && inside ? SELECT(inside, y, LIKE(y, cy_onnx_float(im, n, "extrapolation_value", 0))) : 0;
  return y && SET(CAST(cy_onnx_move_axis(im, y, 3, 1), (cy_dtype)t.dtype));
}

/* ---- windows and slices ---- */

/* All windows of `size` elements along an axis, `step` apart: an axis of windows in its place, their elements last. */
IMPORT(unfold_tensor) {
  const cy_type t = *cy_onnx_type(im, X);
  int64_t size = cy_onnx_int(im, n, "size", 0), step = cy_onnx_int(im, n, "step", 1), length;
  int axis;
  if (!cy_onnx_axis(im, cy_onnx_int(im, n, "dim", -1), t.rank, &axis))
    return false;
  if (size < 1 || step < 1 || t.rank >= CY_MAX_RANK || (cy_dim_is_const(im->g, t.dim[axis], &length) && length < size))
    return cy_build_error(im->g, NULL, "windows of %lld elements, %lld apart, do not fit axis %d of %s",
                          (long long)size, (long long)step, axis, cy_type_text(im->g, &t));
  cy_dim grid[2] = {cy_dim_addi(im->g, cy_dim_div(im->g, cy_dim_addi(im->g, t.dim[axis], -size), num(im, step)), 1),
                    num(im, size)};
  cy_val at = ADD(MUL(cy_build_iota(im->g, CY_I64, grid, 2, 0), cy_build_scalar_int(im->g, CY_I64, step)),
                  cy_build_iota(im->g, CY_I64, grid, 2, 1));
  cy_val y = at ? cy_build_gather(im->g, X, at, axis) : 0;
  return y && SET(cy_onnx_move_axis(im, y, axis + 1, t.rank));
}

/* Experimental: today's Slice, without steps. */
IMPORT(dynamic_slice) {
  cy_onnx_node slice = *n;
  slice.version = 10;
  return cy_import_slice(im, &slice);
}

/* ---- NGramRepeatBlock ---- */

/* ids [b, length], scores [b, words]: -infinity for the words that, put behind the ids, would end an n-gram that is
 * among them already. */
IMPORT(ngram_repeat_block) {
  const cy_type t = *cy_onnx_type(im, X), ts = *cy_onnx_type(im, n->in[1]);
  int64_t size = cy_onnx_int(im, n, "ngram_size", 0);
  enum { LIMIT = 256 };
  if (t.rank != 2 || ts.rank != 2 || size < 1 || size > LIMIT)
    return cy_build_error(
        im->g, NULL,
        "expected ids [batch, length], scores [batch, words] and an ngram_size of 1 to %d, found %s, %s and %lld", LIMIT,
        cy_type_text(im->g, &t), cy_type_text(im->g, &ts), (long long)size);
  return SET(cy_onnx_block_ngrams(im, X, n->in[1], size, -INFINITY));
}

/* ---- MurmurHash3 (x86, 32 bits) of every number's bytes ---- */

static cy_val word(cy_importer *im, uint32_t v) { return cy_build_scalar_int(im->g, CY_U32, v); }

static cy_val rotated(cy_importer *im, cy_val x, uint32_t by) {
  return x ? BINARY(or, BINARY(shl, x, word(im, by)), BINARY(shr, x, word(im, 32 - by))) : 0;
}

static cy_val hash_word(cy_importer *im, cy_val hash, cy_val x) {
  x = MUL(rotated(im, MUL(x, word(im, 0xcc9e2d51)), 15), word(im, 0x1b873593));
  return ADD(MUL(rotated(im, BINARY(xor, hash, x), 13), word(im, 5)), word(im, 0xe6546b64));
}

static cy_val mix_shifted(cy_importer *im, cy_val h, uint32_t by) {
  return h ? BINARY(xor, h, BINARY(shr, h, word(im, by))) : 0;
}

IMPORT(murmur_hash) {
  const cy_type t = *cy_onnx_type(im, X);
  int bits = cy_dtype_of(t.dtype)->bits;
  if (t.dtype == CY_STRING || (bits != 32 && bits != 64))
    return cy_build_error(im->g, NULL, "hashes of numbers of 32 and 64 bits are supported, found %s",
                          cy_type_text(im->g, &t));
  cy_val seed = word(im, (uint32_t)cy_onnx_int(im, n, "seed", 0)), h, x = X;
  cy_dtype as = bits == 64 ? CY_U64 : CY_U32;
  if (t.dtype != as)
    x = cy_build_bitcast(im->g, X, as);
  if (bits == 64) {
    h = hash_word(im, seed, CAST(BINARY(and, x, cy_build_scalar_int(im->g, CY_U64, UINT32_MAX)), CY_U32));
    h = hash_word(im, h, CAST(BINARY(shr, x, cy_build_scalar_int(im->g, CY_U64, 32)), CY_U32));
  } else {
    h = hash_word(im, seed, x);
  }
  h = mix_shifted(im, BINARY(xor, h, word(im, (uint32_t)bits / 8)), 16);
  h = mix_shifted(im, MUL(h, word(im, 0x85ebca6b)), 13);
  h = mix_shifted(im, MUL(h, word(im, 0xc2b2ae35)), 16);
  if (!cy_onnx_int(im, n, "positive", 1))
    h = cy_build_bitcast(im->g, h, CY_I32);
  return SET(h);
}
