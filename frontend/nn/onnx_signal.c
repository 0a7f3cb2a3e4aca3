/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_signal.c - windows, Fourier transforms and mel filters.
 *
 * A DFT is a product with the matrix of cosines and sines: exact enough in f32 for the sizes that networks use (the
 * angle is reduced in integers, so long transforms lose nothing), and one matrix product is what the code generator is
 * best at. Long ones whose length has two factors are two such products, with small matrices, and a multiplication of
 * elements between them.
 */
#include "frontend/import_int.h"

#include <math.h>
#include <string.h>

#define X (n->in[0])
#define SET(v) cy_importer_set(im, n, 0, (v))

static cy_dim num(cy_importer *im, int64_t v) { return cy_dim_const(im->g, v); }

/* a0 - a1 cos(2 pi i / d) + a2 cos(4 pi i / d); the argument is the window. */
IMPORT(window) {
  static const double a[3][3] = {{0.5, 0.5, 0}, {25.0 / 46, 21.0 / 46, 0}, {0.42, 0.5, 0.08}};
  uint32_t count;
  const cy_dim *size = cy_onnx_elems(im, n, 0, &count);
  cy_dtype dtype = cy_onnx_dtype(im, n, "output_datatype", CY_F32, "FIUB");
  if (!size || !dtype)
    return false;
  if (count != 1)
    return cy_build_error(im->g, "input 'size'", "expected one size, found %u", count);
  cy_dim periods = cy_onnx_int(im, n, "periodic", 1) ? size[0] : cy_dim_addi(im->g, size[0], -1);
  cy_val i = cy_build_iota(im->g, CY_F64, size, 1, 0), d = CAST(cy_build_dim_scalar(im->g, periods), CY_F64);
  cy_val angle = DIV(MUL(i, cy_build_scalar(im->g, CY_F64, 2 * M_PI)), d);
  cy_val y = SUB(cy_build_scalar(im->g, CY_F64, a[n->arg][0]),
                 MUL(UNARY(cos, angle), cy_build_scalar(im->g, CY_F64, a[n->arg][1])));
  if (a[n->arg][2] != 0)
    y = ADD(y, MUL(UNARY(cos, MUL(angle, cy_build_scalar(im->g, CY_F64, 2))),
                   cy_build_scalar(im->g, CY_F64, a[n->arg][2])));
  return SET(y ? CAST(y, dtype) : 0);
}

/* cos and sin of 2 pi * row * column / length, as [rows, columns]. */
static bool waves(cy_importer *im, cy_dim rows, cy_dim columns, cy_dim length, cy_dtype dtype, cy_val *out_cos,
                  cy_val *out_sin) {
  cy_dim d[2] = {rows, columns};
  cy_val product = MUL(cy_build_iota(im->g, CY_I64, d, 2, 0), cy_build_iota(im->g, CY_I64, d, 2, 1));
  cy_val len = cy_build_dim_scalar(im->g, length), angle_share = CAST(BINARY(mod, product, len), CY_F64);
  cy_val angle = MUL(angle_share, DIV(cy_build_scalar(im->g, CY_F64, 2 * M_PI), CAST(len, CY_F64)));
  if (!angle)
    return false;
  *out_cos = CAST(UNARY(cos, angle), dtype);
  *out_sin = CAST(UNARY(sin, angle), dtype);
  return *out_cos && *out_sin;
}

static cy_val part(cy_importer *im, cy_val x, int64_t k) {
  const cy_type t = *cy_onnx_type(im, x);
  cy_val v = cy_build_slice_axis(im->g, x, t.rank - 1, num(im, k), num(im, 1));
  return cy_build_reshape(im->g, v, t.dim, t.rank - 1);
}

static cy_val join(cy_importer *im, cy_val re, cy_val image) {
  if (!re || !image)
    return 0;
  int rank = cy_onnx_type(im, re)->rank;
  cy_val v[2] = {cy_build_unsqueeze(im->g, re, rank), cy_build_unsqueeze(im->g, image, rank)};
  return v[0] && v[1] ? cy_build_concat(im->g, v, 2, rank) : 0;
}

/* The matrix that multiplies rows of real (then imaginary) parts by c - i s: from real to complex, or from both to
 * both. Columns: real parts, then imaginary ones; or in pairs. */
static cy_val complex_matrix(cy_importer *im, cy_val c, cy_val s, bool from_complex, bool in_pairs) {
  cy_val of[2][2] = {{c, UNARY(neg, s)}, {s, c}}, rows[2];
  if (!of[0][1])
    return 0;
  cy_type t = *cy_onnx_type(im, c);
  t.dim[1] = cy_dim_muli(im->g, t.dim[1], 2);
  for (int i = 0; i < 1 + from_complex; i++) {
    rows[i] = in_pairs ? cy_build_reshape(im->g, join(im, of[i][0], of[i][1]), t.dim, 2)
                       : cy_build_concat(im->g, of[i], 2, 1);
    if (!rows[i])
      return 0;
  }
  return from_complex ? cy_build_concat(im->g, rows, 2, 0) : rows[0];
}

/* The last two axes exchanged. */
static cy_val transposed(cy_importer *im, cy_val x) {
  int rank = x ? cy_onnx_type(im, x)->rank : 0;
  return x ? cy_onnx_move_axis(im, x, rank - 2, rank - 1) : 0;
}

/* Is `length` long, and f[0] * f[1]? */
static bool two_factors(cy_importer *im, cy_dim length, int64_t f[2]) {
  const int64_t min_length = 512, min_gain = 4;
  int64_t n;
  if (!cy_dim_is_const(im->g, length, &n) || n < min_length)
    return false;
  for (f[0] = (int64_t)sqrt((double)n); n % f[0];)
    f[0]--;
  f[1] = n / f[0];
  return (f[0] + f[1]) * min_gain <= n / 2;
}

/* As transform, with n = f[1] n1 + n2 and k = k1 + f[0] k2: transforms over n1, a turn of each by n2 k1 / length, and
 * transforms over n2 (Cooley and Tukey: An algorithm for the machine calculation of complex Fourier series, 1965). */
static cy_val transform_factored(cy_importer *im, cy_val re, cy_val image, const int64_t f[2], int64_t bins,
                                 bool inverse) {
  cy_type t = *cy_onnx_type(im, re);
  cy_dtype dtype = (cy_dtype)t.dtype;
  int last = t.rank - 1;
  cy_dim n1 = num(im, f[0]), n2 = num(im, f[1]), length = num(im, f[0] * f[1]), k2 = num(im, (bins - 1) / f[0] + 1);
  cy_val in[2] = {re, image}, c[3], s[3], x[2], z[2];
  if (!waves(im, n1, n1, n1, dtype, &c[0], &s[0]) || !waves(im, n2, n1, length, dtype, &c[1], &s[1]) ||
      !waves(im, n2, k2, n2, dtype, &c[2], &s[2]))
    return 0;
  for (int i = 0; i < 3; i++)
    s[i] = inverse ? UNARY(neg, s[i]) : s[i];
  t.dim[last] = n1;
  t.dim[last + 1] = n2;
  for (int i = 0; i < 1 + (image != 0); i++)
    if (!(x[i] = transposed(im, cy_build_reshape(im->g, in[i], t.dim, last + 2))))
      return 0;
  cy_val y = image ? cy_build_concat(im->g, x, 2, last + 1) : x[0]; /* [.., n2, parts * n1] */
  y = cy_onnx_matmul(im, y, complex_matrix(im, c[0], s[0], image != 0, false), dtype);
  for (int i = 0; i < 2; i++)
    if (!(x[i] = y ? cy_build_slice_axis(im->g, y, last + 1, num(im, i * f[0]), n1) : 0))
      return 0;
  z[0] = transposed(im, ADD(MUL(x[0], c[1]), MUL(x[1], s[1])));
  z[1] = transposed(im, SUB(MUL(x[1], c[1]), MUL(x[0], s[1])));
  y = z[0] && z[1] ? cy_build_concat(im->g, z, 2, last + 1) : 0; /* [.., k1, 2 * n2] */
  y = cy_onnx_matmul(im, y, complex_matrix(im, c[2], s[2], true, true), dtype);
  t.dim[last + 1] = k2;
  t.dim[last + 2] = num(im, 2);
  y = y ? cy_onnx_move_axis(im, cy_build_reshape(im->g, y, t.dim, last + 3), last + 1, last) : 0; /* [.., k2, k1, 2] */
  t.dim[last] = cy_dim_mul(im->g, k2, n1);
  t.dim[last + 1] = num(im, 2);
  y = y ? cy_build_reshape(im->g, y, t.dim, last + 2) : 0;
  y = y ? cy_build_slice_axis(im->g, y, last, num(im, 0), num(im, bins)) : 0;
  return inverse ? DIV(y, CAST(cy_build_dim_scalar(im->g, length), dtype)) : y;
}

/* x [.., length] times e^(-+ 2 pi i k / length), k < bins. */
static cy_val transform(cy_importer *im, cy_val re, cy_val image, cy_dim length, cy_dim bins, bool inverse) {
  cy_val c, s;
  if (!re)
    return 0;
  cy_dtype dtype = cy_onnx_type(im, re)->dtype;
  int64_t f[2], count;
  if (two_factors(im, length, f) && cy_dim_is_const(im->g, bins, &count))
    return transform_factored(im, re, image, f, count, inverse);
  if (!waves(im, length, bins, length, dtype, &c, &s))
    return 0;
  s = inverse ? s : UNARY(neg, s);
  cy_val yr = cy_onnx_matmul(im, re, c, dtype), yi = cy_onnx_matmul(im, re, s, dtype);
  if (image) {
    yr = SUB(yr, cy_onnx_matmul(im, image, s, dtype));
    yi = ADD(yi, cy_onnx_matmul(im, image, c, dtype));
  }
  if (inverse) {
    cy_val len = CAST(cy_build_dim_scalar(im->g, length), dtype);
    yr = DIV(yr, len);
    yi = DIV(yi, len);
  }
  return join(im, yr, yi);
}

/* The real signal behind the first half of its spectrum, [.., length, 1]: bins that the other half mirrors count twice. */
static cy_val inverse_onesided(cy_importer *im, cy_val re, cy_val image, cy_dim length) {
  if (!re || !image)
    return 0;
  const cy_type t = *cy_onnx_type(im, re);
  cy_dim bins = t.dim[t.rank - 1];
  cy_val c, s, k = cy_build_iota(im->g, CY_I64, &bins, 1, 0), zero = cy_build_scalar_int(im->g, CY_I64, 0);
  if (!waves(im, bins, length, length, t.dtype, &c, &s))
    return 0;
  cy_val twice = MUL(k, cy_build_scalar_int(im->g, CY_I64, 2)), len = cy_build_dim_scalar(im->g, length);
  cy_val single = BINARY(or, BINARY(eq, k, zero), BINARY(eq, twice, len));
  cy_val weight = SELECT(single, LIKE(re, 1), LIKE(re, 2));
  cy_val y = SUB(cy_onnx_matmul(im, MUL(re, weight), c, t.dtype), cy_onnx_matmul(im, MUL(image, weight), s, t.dtype));
  y = DIV(y, CAST(len, t.dtype));
  return y ? cy_build_unsqueeze(im->g, y, t.rank) : 0;
}

/* Cuts or zero-pads the last axis to `length`. */
static cy_val fit_length(cy_importer *im, cy_val x, cy_dim length) {
  if (!x)
    return 0;
  const cy_type t = *cy_onnx_type(im, x);
  cy_dim pads[2 * CY_MAX_RANK];
  for (int i = 0; i < 2 * t.rank; i++)
    pads[i] = num(im, 0);
  pads[2 * t.rank - 1] = cy_dim_sub(im->g, length, t.dim[t.rank - 1]);
  return t.dim[t.rank - 1] == length ? x : cy_build_pad(im->g, x, pads, CY_PAD_CONSTANT, LIKE(x, 0));
}

/* A signal whose last dimension, open here, says when it runs whether numbers are real (1) or complex (2), as a complex one. */
static cy_val as_complex(cy_importer *im, cy_val x) {
  const cy_type t = *cy_onnx_type(im, x);
  cy_dim parts = t.dim[t.rank - 1], two = num(im, 2), pads[2 * CY_MAX_RANK];
  cy_graph_require(im->g, num(im, 1), parts, CY_REQUIRE_AT_MOST);
  cy_graph_require(im->g, parts, two, CY_REQUIRE_AT_MOST);
  for (int i = 0; i < 2 * t.rank; i++)
    pads[i] = num(im, 0);
  pads[2 * t.rank - 1] = cy_dim_max(im->g, num(im, 0), cy_dim_sub(im->g, two, parts));
  x = cy_build_pad(im->g, x, pads, CY_PAD_CONSTANT, LIKE(x, 0));
  return x ? cy_build_slice_axis(im->g, x, t.rank - 1, num(im, 0), two) : 0;
}

/* The signal to transform and how many numbers each element has, 1 or 2; false: it has neither. */
static bool signal_parts(cy_importer *im, cy_val *x, int64_t *out_parts) {
  const cy_type *t = cy_onnx_type(im, *x);
  if (!t->rank)
    return false;
  if (cy_dim_is_const(im->g, t->dim[t->rank - 1], out_parts))
    return *out_parts == 1 || *out_parts == 2;
  *out_parts = 2;
  return (*x = as_complex(im, *x)) != 0;
}

typedef struct dft_plan {
  cy_dim length; /* 0: that of the axis */
  bool onesided, inverse;
} dft_plan;

/* Along one axis of [.., parts]. */
static cy_val dft_along(cy_importer *im, cy_val x, int axis, int64_t parts, const dft_plan *p) {
  const cy_type t = *cy_onnx_type(im, x);
  int last = t.rank - 2;
  bool mirrored = p->onesided && p->inverse;
  cy_dim two = num(im, 2), length = p->length ? p->length : t.dim[axis];
  if (mirrored && !p->length)
    length = cy_dim_mul(im->g, two, cy_dim_addi(im->g, t.dim[axis], -1));
  cy_dim half = cy_dim_addi(im->g, cy_dim_div(im->g, length, two), 1), used = mirrored ? half : length;
  cy_val re = fit_length(im, cy_onnx_move_axis(im, part(im, x, 0), axis, last), used);
  cy_val image = parts == 2 ? fit_length(im, cy_onnx_move_axis(im, part(im, x, 1), axis, last), used) : 0;
  if (mirrored && !image)
    return cy_build_error(im->g, "attribute 'onesided'", "a one-sided inverse transform needs a complex input");
  cy_val y = mirrored ? inverse_onesided(im, re, image, length)
                      : transform(im, re, image, length, p->onesided ? half : length, p->inverse);
  return cy_onnx_move_axis(im, y, last, axis);
}

/* An axis known only at run time: all of them are transformed and filled up to one shape; the chosen one is cut to size. */
static cy_val dft_any_axis(cy_importer *im, const cy_onnx_node *n, cy_val x, int64_t parts, const dft_plan *p) {
  const cy_type t = *cy_onnx_type(im, x);
  cy_val mask = 0, y = 0, one[CY_MAX_RANK];
  cy_dim max[CY_MAX_RANK], own[CY_MAX_RANK], start[CY_MAX_RANK];
  int naxes, last = t.rank - 1;
  if (!(mask = cy_onnx_axes_mask(im, n, 2, false, t.rank, &naxes)))
    return 0;
  for (int i = 0; i < last; i++) {
    if (!(one[i] = dft_along(im, x, i, parts, p)))
      return 0;
    own[i] = cy_onnx_type(im, one[i])->dim[i];
    own[last] = cy_onnx_type(im, one[i])->dim[last];
    max[i] = cy_dim_max(im->g, own[i], t.dim[i]);
  }
  for (int i = 0; i < last; i++) {
    cy_dim pads[2 * CY_MAX_RANK];
    for (int k = 0; k < t.rank; k++) {
      start[k] = pads[k] = num(im, 0);
      pads[t.rank + k] = k == last ? num(im, 0) : cy_dim_sub(im->g, max[k], k == i ? own[k] : t.dim[k]);
    }
    cy_val full = cy_build_pad(im->g, one[i], pads, CY_PAD_CONSTANT, LIKE(one[i], 0));
    y = y ? SELECT(cy_onnx_flag(im, mask, i), full, y) : full;
  }
  cy_dim kept[CY_MAX_RANK];
  memcpy(kept, t.dim, sizeof kept);
  kept[last] = own[last];
  cy_val sizes = SELECT(CAST(mask, CY_BOOL), cy_build_dims(im->g, own, t.rank), cy_build_dims(im->g, kept, t.rank));
  const cy_dim *size = y ? cy_onnx_sizes(im, sizes) : NULL;
  return size ? cy_build_slice(im->g, y, start, NULL, size) : 0;
}

IMPORT(dft) {
  const cy_type t = *cy_onnx_type(im, X);
  uint32_t count;
  int axis;
  int64_t parts, raw = n->since < 20 ? cy_onnx_int(im, n, "axis", 1) : -2;
  dft_plan p = {.onesided = cy_onnx_int(im, n, "onesided", 0) != 0, .inverse = cy_onnx_int(im, n, "inverse", 0) != 0};
  cy_val x = X;
  if (t.rank < 2 || !signal_parts(im, &x, &parts))
    return cy_build_error(im->g, NULL, "expected [.., length, 1 (real) or 2 (complex)], found %s",
                          cy_type_text(im->g, &t));
  if (p.onesided && p.inverse)
    cy_graph_require(im->g, t.dim[t.rank - 1], num(im, 2), CY_REQUIRE_EQUAL);
  if (n->in[1]) {
    const cy_dim *e = cy_onnx_elems(im, n, 1, &count);
    if (!e || count != 1)
      return false;
    p.length = e[0];
  }
  if (n->since >= 20 && !cy_onnx_known(im, n, 2))
    return SET(dft_any_axis(im, n, x, parts, &p));
  if (n->since >= 20 && n->in[2] && !cy_onnx_const_ints(im, n, 2, &raw, 1, &count))
    return false;
  if (!cy_onnx_axis(im, raw, t.rank, &axis))
    return false;
  if (axis == t.rank - 1)
    return cy_build_error(im->g, NULL, "the axis must stand before the last dimension, found %lld", (long long)raw);
  return SET(dft_along(im, x, axis, parts, &p));
}

/* signal [b, length, 1 or 2], frame_step, window?, frame_length? -> [b, frames, bins, 2]; PyTorch writes a real signal
 * as [b, length] */
IMPORT(stft) {
  const cy_type t = *cy_onnx_type(im, X);
  uint32_t count;
  int64_t parts = 1, low, high;
  bool onesided = cy_onnx_int(im, n, "onesided", 1) != 0, flat = t.rank == 2;
  cy_val x = X;
  if (!flat && (t.rank != 3 || !signal_parts(im, &x, &parts)))
    return cy_build_error(im->g, NULL, "expected [batch, length, 1 or 2], found %s", cy_type_text(im->g, &t));
  if (n->in[2] && cy_onnx_type(im, n->in[2])->rank != 1)
    return cy_build_error(im->g, "input 'window'", "expected a list of numbers, found %s",
                          cy_type_text(im->g, cy_onnx_type(im, n->in[2])));
  const cy_dim *length = n->in[3] ? cy_onnx_elems(im, n, 3, &count) : n->in[2] ? cy_onnx_type(im, n->in[2])->dim : NULL;
  const cy_dim *step = cy_onnx_elems(im, n, 1, &count);
  if (step && count == 1)
    cy_dim_range(im->g, step[0], &low, &high);
  if (!length || !step || count != 1 || high < 1)
    return cy_build_error(im->g, "input 'frame_step'", "expected a positive step, and a window or a frame length");
  cy_graph_require_text(im->g, num(im, 1), step[0], CY_REQUIRE_AT_MOST,
                        "node '%s': expected a frame_step of %lld or more, found %lld");
  cy_dim frames = cy_dim_addi(im->g, cy_dim_div(im->g, cy_dim_sub(im->g, t.dim[1], length[0]), step[0]), 1);
  cy_dim grid[2] = {frames, length[0]};
  cy_val at = ADD(MUL(cy_build_iota(im->g, CY_I64, grid, 2, 0), cy_build_dim_scalar(im->g, step[0])),
                  cy_build_iota(im->g, CY_I64, grid, 2, 1));
  cy_val p[2] = {flat ? x : part(im, x, 0), parts == 2 ? part(im, x, 1) : 0};
  for (int i = 0; i < parts; i++) {
    p[i] = p[i] && at ? cy_build_gather(im->g, p[i], at, 1) : 0;
    p[i] = n->in[2] ? MUL(p[i], n->in[2]) : p[i];
  }
  cy_dim bins = onesided ? cy_dim_addi(im->g, cy_dim_div(im->g, length[0], num(im, 2)), 1) : length[0];
  return SET(transform(im, p[0], p[1], length[0], bins, false));
}

/* One number of any numeric type as f64. */
static cy_val number(cy_importer *im, const cy_onnx_node *n, uint32_t k) {
  return CAST(cy_build_reshape(im->g, n->in[k], NULL, 0), CY_F64);
}

static cy_val mel_of_hertz(cy_importer *im, cy_val hz) {
  cy_val ratio = ADD(LIKE(hz, 1), DIV(hz, LIKE(hz, 700)));
  return MUL(DIV(UNARY(log, ratio), LIKE(hz, log(10))), LIKE(hz, 2595));
}

/* The bins at which the triangles begin, peak and end: f64[mels + 2], equally far apart in mels. */
static cy_val mel_edges(cy_importer *im, const cy_onnx_node *n, cy_dim mels) {
  cy_dim count = cy_dim_addi(im->g, mels, 2);
  cy_val low = mel_of_hertz(im, number(im, n, 3)), high = mel_of_hertz(im, number(im, n, 4));
  cy_val step = DIV(SUB(high, low), CAST(cy_build_dim_scalar(im->g, count), CY_F64));
  cy_val mel = ADD(MUL(cy_build_iota(im->g, CY_F64, &count, 1, 0), step), low);
  cy_val power = BINARY(pow, LIKE(mel, 10), DIV(mel, LIKE(mel, 2595)));
  cy_val hz = MUL(SUB(power, LIKE(power, 1)), LIKE(power, 700)), size = number(im, n, 1);
  return UNARY(floor, DIV(MUL(hz, ADD(size, LIKE(size, 1))), number(im, n, 2)));
}

/* num_mel_bins, dft_length, sample_rate, lower and upper edge -> [dft_length / 2 + 1, num_mel_bins]: column m rises
 * from edge m to edge m + 1, where it is 1, and falls to edge m + 2. */
IMPORT(mel_weight_matrix) {
  uint32_t count;
  cy_dtype dtype = cy_onnx_dtype(im, n, "output_datatype", CY_F32, "FIUB");
  const cy_dim *mels = cy_onnx_elems(im, n, 0, &count),
               *length = mels && count == 1 ? cy_onnx_elems(im, n, 1, &count) : NULL;
  for (uint32_t k = 0; k < 5; k++)
    if (!length || !cy_dim_is(im->g, cy_type_elems(im->g, cy_onnx_type(im, n->in[k])), 1))
      return cy_build_error(im->g, NULL, "expected five single numbers");
  if (!dtype)
    return false;
  cy_dim grid[2] = {cy_dim_addi(im->g, cy_dim_div(im->g, length[0], num(im, 2)), 1), mels[0]};
  cy_val edges = mel_edges(im, n, mels[0]), bin = cy_build_iota(im->g, CY_F64, grid, 2, 0), edge[3];
  cy_val last = cy_build_dim_scalar(im->g, cy_dim_addi(im->g, grid[0], -1));
  cy_val inside = edges ? BINARY(and, BINARY(ge, edges, LIKE(edges, 0)), BINARY(le, edges, CAST(last, CY_F64))) : 0;
  if (!cy_onnx_check_true(im, inside, "node '%s': expected edges from 0 hertz to half of a sample_rate above 0"))
    return false;
  for (int i = 0; i < 3; i++)
    edge[i] = cy_build_slice_axis(im->g, edges, 0, num(im, i), mels[0]);
  cy_val rise = DIV(SUB(bin, edge[0]), SUB(edge[1], edge[0])), fall = DIV(SUB(edge[2], bin), SUB(edge[2], edge[1]));
  cy_val zero = LIKE(bin, 0), behind = SELECT(BINARY(lt, bin, edge[2]), fall, zero);
  cy_val before = SELECT(BINARY(lt, bin, edge[0]), zero, rise);
  cy_val y = SELECT(BINARY(lt, bin, edge[1]), before, SELECT(BINARY(eq, bin, edge[1]), LIKE(bin, 1), behind));
  return SET(y ? CAST(y, dtype) : 0);
}
