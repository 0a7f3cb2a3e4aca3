/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_random.c - operators that draw random numbers: RandomUniform, RandomNormal (and ..Like), Bernoulli, Multinomial, and
 * Dropout in training.
 *
 * Element i of a node's draw is a hash of i and of the node's seed: a few integer operations of an index, like any other
 * expression, so it is fused, runs in parallel and on every target, and needs no state. A model therefore draws the same
 * numbers at every run, on every machine and at every optimisation level. Two nodes draw different ones: where the model
 * gives no seed, it is made from the node's name. What is drawn inside a loop is the same at each iteration.
 */
#include "frontend/import_int.h"

#include <math.h>
#include <string.h>

#define X (n->in[0])
#define SET(v) cy_importer_set(im, n, 0, (v))

static cy_val word(cy_importer *im, uint64_t v) { return cy_build_scalar_int(im->g, CY_U64, (int64_t)v); }

/* The attribute, which Dropout has as an integer; without one FNV-1a of the node's name and of its first output's. */
static uint64_t seed_of(cy_importer *im, const cy_onnx_node *n) {
  uint64_t h = 14695981039346656037u;
  if (cy_onnx_has(n, "seed")) {
    if (strcmp(n->op, "Dropout") == 0)
      return (uint64_t)cy_onnx_int(im, n, "seed", 0);
    float seed = (float)cy_onnx_float(im, n, "seed", 0);
    uint32_t bits;
    memcpy(&bits, &seed, sizeof bits);
    return bits;
  }
  const char *names[2] = {n->proto->name, n->nout ? n->proto->output[0] : ""};
  for (int i = 0; i < 2; i++)
    for (const char *p = names[i] ? names[i] : ""; *p; p++)
      h = (h ^ (uint8_t)*p) * 1099511628211u;
  return h;
}

/* x ^ x >> shift, times `factor`. */
static cy_val scramble(cy_importer *im, cy_val x, int shift, uint64_t factor) {
  x = BINARY(xor, x, BINARY(shr, x, word(im, (uint64_t)shift)));
  return factor ? MUL(x, word(im, factor)) : x;
}

/* Uniform in [0, 1) with the bits that `dtype` holds: the output function of SplitMix64 at the element's number. Streams of
 * one node differ in `stream`. */
static cy_val uniform(cy_importer *im, uint64_t seed, uint64_t stream, cy_dtype dtype, const cy_dim *dims, int rank) {
  cy_dim count = cy_dim_const(im->g, 1);
  for (int i = 0; i < rank; i++)
    count = cy_dim_mul(im->g, count, dims[i]);
  seed = (seed + stream * 0xD1B54A32D192ED03u) * 0x9E3779B97F4A7C15u;
  cy_val h = CAST(cy_build_iota(im->g, CY_I64, &count, 1, 0), CY_U64);
  h = ADD(MUL(ADD(h, word(im, 1)), word(im, 0x9E3779B97F4A7C15u)), word(im, seed ^ seed >> 32));
  h = scramble(im, scramble(im, scramble(im, h, 30, 0xBF58476D1CE4E5B9u), 27, 0x94D049BB133111EBu), 31, 0);
  int bits = dtype == CY_F64 ? 53 : 24;
  h = CAST(BINARY(shr, h, word(im, (uint64_t)(64 - bits))), CY_I64);
  h = MUL(CAST(h, dtype), cy_build_scalar(im->g, dtype, ldexp(1, -bits)));
  return h ? cy_build_reshape(im->g, h, dims, rank) : 0;
}

/* Box and Muller: the radius from one number, in (0, 1], the angle from another. */
static cy_val normal(cy_importer *im, uint64_t seed, cy_dtype dtype, const cy_dim *dims, int rank) {
  cy_val u = uniform(im, seed, 0, dtype, dims, rank), angle = uniform(im, seed, 1, dtype, dims, rank);
  if (!u || !angle)
    return 0;
  cy_val radius = UNARY(sqrt, MUL(UNARY(log, SUB(LIKE(u, 1), u)), LIKE(u, -2)));
  return MUL(radius, UNARY(cos, MUL(angle, LIKE(angle, 2 * M_PI))));
}

static bool check_float(cy_importer *im, const char *item, cy_dtype dtype) {
  if (dtype == CY_F32 || dtype == CY_F64 || dtype == CY_F16 || dtype == CY_BF16)
    return true;
  return cy_build_error(im->g, item, "expected floats of 16 bits or more, found %s", cy_dtype_of(dtype)->name);
}

/* `otherwise`: the element type without an attribute that gives one. */
static bool draw(cy_importer *im, const cy_onnx_node *n, cy_dtype otherwise, const cy_dim *dims, int rank) {
  cy_dtype dtype = cy_onnx_dtype(im, n, "dtype", otherwise, "FIUBSC");
  if (!dtype || !check_float(im, "attribute 'dtype'", dtype))
    return false;
  cy_dtype inner = cy_dtype_real(dtype);
  uint64_t seed = seed_of(im, n);
  double low = cy_onnx_float(im, n, n->arg == RANDOM_NORMAL ? "mean" : "low", 0);
  double range = n->arg == RANDOM_NORMAL ? cy_onnx_float(im, n, "scale", 1) : cy_onnx_float(im, n, "high", 1) - low;
  cy_val u = n->arg == RANDOM_NORMAL ? normal(im, seed, inner, dims, rank) : uniform(im, seed, 0, inner, dims, rank);
  u = u ? ADD(MUL(u, LIKE(u, range)), LIKE(u, low)) : 0;
  return SET(u ? CAST(u, dtype) : 0);
}

IMPORT(random) {
  uint32_t rank;
  const int64_t *shape = cy_onnx_ints(im, n, "shape", &rank);
  cy_dim dims[CY_MAX_RANK];
  if (!shape || rank > CY_MAX_RANK)
    return cy_build_error(im->g, "attribute 'shape'", "expected at most %d dimensions", CY_MAX_RANK);
  for (uint32_t i = 0; i < rank; i++) {
    if (shape[i] < 0)
      return cy_build_error(im->g, "attribute 'shape'", "expected no negative dimension, found %lld", (long long)shape[i]);
    dims[i] = cy_dim_const(im->g, shape[i]);
  }
  return draw(im, n, CY_F32, dims, (int)rank);
}

IMPORT(random_like) {
  const cy_type t = *cy_onnx_type(im, X);
  return draw(im, n, (cy_dtype)t.dtype, t.dim, t.rank);
}

/* 1 with the probability that the input says. */
IMPORT(bernoulli) {
  const cy_type t = *cy_onnx_type(im, X);
  cy_dtype dtype = cy_onnx_dtype(im, n, "dtype", (cy_dtype)t.dtype, "FIUB"), inner = cy_dtype_real(t.dtype);
  if (!dtype || !check_float(im, "input 'input'", (cy_dtype)t.dtype))
    return false;
  cy_val hit = BINARY(lt, uniform(im, seed_of(im, n), 0, inner, t.dim, t.rank), CAST(X, inner));
  return SET(hit ? CAST(hit, dtype) : 0);
}

/* For every sample the number of classes whose cumulative probability it has passed. Input [batch, classes]: logarithms of
 * probabilities. */
IMPORT(multinomial) {
  const cy_type t = *cy_onnx_type(im, X);
  int64_t samples = cy_onnx_int(im, n, "sample_size", 1), dtype = cy_onnx_int(im, n, "dtype", CY_I32);
  if (t.rank != 2 || samples < 1 || (dtype != CY_I32 && dtype != CY_I64))
    return cy_build_error(im->g, NULL, "expected [batch, classes], a positive sample_size and integer samples, found %s",
                          cy_type_text(im->g, &t));
  static const int64_t last[1] = {2};
  cy_attr a[3] = {cy_attr_int(CY_ATTR_axis, 1), cy_attr_int(CY_ATTR_exclusive, 0), cy_attr_int(CY_ATTR_reverse, 0)};
  cy_val x = CAST(X, CY_F32), p = x ? cy_build(im->g, CY_OP_softmax, &x, 1, a, 1, NULL, 1) : 0;
  cy_val below = p ? cy_build(im->g, CY_OP_cumsum, &p, 1, a, 3, NULL, 1) : 0;
  cy_dim drawn[3] = {t.dim[0], cy_dim_const(im->g, samples), cy_dim_const(im->g, 1)};
  cy_val u = uniform(im, seed_of(im, n), 0, CY_F32, drawn, 3);
  cy_val passed = below ? BINARY(le, cy_build_unsqueeze(im->g, below, 1), u) : 0;
  cy_val count = passed ? cy_build_reduce(im->g, CY_OP_reduce_sum, CAST(passed, CY_I64), last, 1, false) : 0;
  count = count ? MIN(count, cy_build_dim_scalar(im->g, cy_dim_addi(im->g, t.dim[1], -1))) : 0;
  return SET(count ? CAST(count, (cy_dtype)dtype) : 0);
}

/* Which elements dropout keeps when its third input says that the model is being trained; 0 after a diagnostic. */
static cy_val kept(cy_importer *im, const cy_onnx_node *n) {
  const cy_type *t = cy_onnx_type(im, X);
  cy_val u = uniform(im, seed_of(im, n), 0, CY_F32, t->dim, t->rank);
  cy_val ratio = n->in[1] ? CAST(n->in[1], CY_F32) : cy_build_scalar(im->g, CY_F32, 0.5);
  cy_val keep = u && ratio ? BINARY(ge, u, ratio) : 0;
  cy_val training = keep ? CAST(n->in[2], CY_BOOL) : 0;
  cy_val right = BINARY(and, BINARY(ge, ratio, LIKE(ratio, 0)), BINARY(lt, ratio, LIKE(ratio, 1)));
  if (n->in[1] && training && right &&
      !cy_onnx_check_true(im, BINARY(or, right, UNARY(not, training)), "node '%s': expected a ratio from 0 to below 1"))
    return 0;
  return training ? BINARY(or, keep, UNARY(not, training)) : 0;
}

IMPORT(dropout) {
  const cy_type t = *cy_onnx_type(im, X);
  uint32_t count;
  const cy_dim *training = n->version >= 12 && n->in[2] ? cy_value_elems(im->g, n->in[2], &count) : NULL;
  if (n->version >= 12 && n->in[2] && !(training && count == 1 && cy_dim_is(im->g, training[0], 0))) {
    cy_dtype dtype = cy_dtype_real(t.dtype);
    cy_val keep = kept(im, n), ratio = n->in[1] ? CAST(n->in[1], dtype) : cy_build_scalar(im->g, dtype, 0.5);
    cy_val on = keep ? SELECT(CAST(n->in[2], CY_BOOL), ratio, LIKE(ratio, 0)) : 0;
    cy_val scale = on ? DIV(LIKE(on, 1), SUB(LIKE(on, 1), on)) : 0;
    cy_val y = scale ? CAST(MUL(CAST(X, dtype), scale), (cy_dtype)t.dtype) : 0;
    if (!y || (cy_onnx_wants(n, 1) && !cy_importer_set(im, n, 1, keep)))
      return false;
    return SET(SELECT(keep, y, LIKE(y, 0)));
  }
  cy_val mask = cy_build_scalar_int(im->g, n->version < 10 ? (cy_dtype)t.dtype : CY_BOOL, 1);
  if (cy_onnx_wants(n, 1) && !cy_importer_set(im, n, 1, cy_onnx_fill(im, mask, t.dim, t.rank)))
    return false;
  return SET(X);
}
