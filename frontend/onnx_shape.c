/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_shape.c - ops that move elements without arithmetic: reshape, transpose, slice, split, concat, pad, tile, resize
 * ..
 *
 * Shapes arrive as tensors; cy_onnx_elems() gives their elements as dims: constants, expressions over symbols, or
 * symbols that are read at run time. All size arithmetic is dim arithmetic, so nothing here asks whether a dim is
 * static.
 */
#include "frontend/import_int.h"

#define X (n->in[0])
#define SET(v) cy_importer_set(im, n, 0, (v))

static cy_dim num(cy_importer *im, int64_t v) { return cy_dim_const(im->g, v); }

/* The list in attribute `name` before version `since`, in input k from then on. NULL and *ok true: absent. */
static const cy_dim *dims_list(cy_importer *im, const cy_onnx_node *n, const char *name, int since, uint32_t k,
                               uint32_t *out_n, bool *ok) {
  *ok = true;
  if (n->version >= since) {
    *out_n = 0;
    if (!n->in[k])
      return NULL;
    const cy_dim *d = cy_onnx_elems(im, n, k, out_n);
    *ok = d != NULL;
    return d;
  }
  const int64_t *v = cy_onnx_ints(im, n, name, out_n);
  if (!v)
    return NULL;
  cy_dim *d = CY_NEW_ARRAY(im->arena, cy_dim, *out_n + 1);
  for (uint32_t i = 0; i < *out_n; i++)
    d[i] = num(im, v[i]);
  return d;
}

static bool rank_ok(cy_importer *im, int64_t rank) {
  if (rank <= CY_MAX_RANK)
    return true;
  cy_build_error(im->g, NULL, "tensors of rank %lld are not supported, %d is the most", (long long)rank, CY_MAX_RANK);
  return false;
}

/* ---- reshape and friends ---- */

/* Several elements may be -1 or 0 for all that is known before running. */
static bool is_open(cy_importer *im, const cy_dim *want, uint32_t rank) {
  int unknown = 0;
  for (uint32_t i = 0; i < rank; i++) {
    int64_t low, high;
    cy_dim_range(im->g, want[i], &low, &high);
    unknown += low < 0 && high >= 0 && cy_dim_has_data_sym(im->g, want[i]);
  }
  return unknown > 1;
}

/* Which element of a target shape must be computed from the others: the -1, or the only one whose sign is unknown. */
static int wildcard(cy_importer *im, const cy_dim *want, uint32_t rank) {
  int unknown = -1, unknowns = 0;
  for (uint32_t i = 0; i < rank; i++) {
    int64_t low, high;
    cy_dim_range(im->g, want[i], &low, &high);
    if (high < 0)
      return (int)i;
    if (low < 0) {
      unknown = (int)i;
      unknowns++;
    }
  }
  return unknowns == 1 ? unknown : -1;
}

/* An element that may be -1 (what is left), 0 (keep, which `kept` is then) or a size when the model runs: then it is what is
 * left, too. */
static void require_wild(cy_importer *im, cy_dim want, cy_dim left, cy_dim kept) {
  static const char *const differs = "node '%s': the new shape does not fit: a size of %lld where %lld was expected";
  cy_dim zero = num(im, 0), one = num(im, 1), size = cy_dim_max(im->g, want, zero),
         given = cy_dim_min(im->g, size, one);
  cy_dim known = cy_dim_min(im->g, cy_dim_addi(im->g, want, 1), one); /* 0: it is -1 */
  cy_dim found = cy_dim_add(im->g, size, cy_dim_mul(im->g, cy_dim_sub(im->g, known, given), kept));
  cy_dim right = cy_dim_mul(im->g, known, left);
  cy_graph_require_text(im->g, num(im, -1), want, CY_REQUIRE_AT_MOST,
                        "node '%s': the new shape must have no element below %lld, found %lld");
  cy_graph_require_text(im->g, found, right, CY_REQUIRE_AT_MOST, differs);
  cy_graph_require_text(im->g, right, found, CY_REQUIRE_AT_MOST, differs);
}

IMPORT(reshape) {
  uint32_t rank;
  bool ok;
  const cy_dim *want = dims_list(im, n, "shape", 5, 1, &rank, &ok);
  if (!want || !rank_ok(im, rank))
    return want || !ok ? false : cy_build_error(im->g, NULL, "the new shape is missing");
  const cy_type t = *cy_onnx_type(im, X);
  bool allow_zero = cy_onnx_int(im, n, "allowzero", 0) != 0;
  if (n->version >= 5 && is_open(im, want, rank))
    return SET(cy_onnx_reshape_run_time(im, X, n->in[1], (int)rank, allow_zero));
  cy_dim d[CY_MAX_RANK], others = num(im, 1);
  int negatives = 0;
  for (uint32_t i = 0; i < rank; i++) {
    int64_t size;
    if (cy_dim_is_const(im->g, want[i], &size) && size < -1)
      return cy_build_error(im->g, "input 'shape'", "element %u is %lld: expected a size, 0 (keep) or -1 (what is left)", i,
                            (long long)size);
    negatives += cy_dim_is(im->g, want[i], -1);
  }
  if (negatives > 1)
    return cy_build_error(im->g, "input 'shape'", "at most one element may be -1, found %d", negatives);
  int wild = wildcard(im, want, rank);
  for (uint32_t i = 0; i < rank; i++) {
    d[i] = want[i];
    if ((int)i == wild)
      continue;
    if (cy_dim_is(im->g, want[i], 0) && !allow_zero) {
      if (i >= t.rank)
        return cy_build_error(im->g, "input 'shape'", "element %u is 0 (keep), but the input %s has no such dimension",
                              i, cy_type_text(im->g, &t));
      d[i] = t.dim[i];
    }
    others = cy_dim_mul(im->g, others, d[i]);
  }
  if (wild >= 0) {
    if (cy_dim_is(im->g, others, 0))
      return cy_build_error(im->g, "input 'shape'", "-1 cannot be computed: the other dimensions' product is 0");
    d[wild] = cy_dim_div(im->g, cy_type_elems(im->g, &t), others);
    require_wild(im, want[wild], d[wild], allow_zero || wild >= t.rank ? num(im, 0) : t.dim[wild]);
  }
  return SET(cy_build_reshape(im->g, X, d, (int)rank));
}

IMPORT(flatten) {
  int rank = cy_onnx_type(im, X)->rank;
  int64_t axis = cy_onnx_int(im, n, "axis", 1);
  if (axis < -rank || axis > rank)
    return cy_build_error(im->g, "attribute 'axis'", "axis %lld is outside of [%d, %d]", (long long)axis, -rank, rank);
  return SET(cy_onnx_flatten2(im, X, (int)(axis < 0 ? axis + rank : axis)));
}

/* Without axes the rank of the result follows from the sizes of the input, which are known only at run time. */
static void warn_kept(cy_importer *im, const cy_onnx_node *n, int axis, cy_dim size) {
  cy_location where = cy_importer_at(im, n);
  cy_diag_add(im->diag, CY_WARNING, &where,
              "no axes are given, and dimension %d (%s) is kept, where a size of 1 should vanish: ranks are fixed when "
              "compiling; if it is always 1, say so with --dim",
              axis, cy_dim_text(im->g, size));
}

/* Squeezes what is 1 and `more` of the dimensions that may be 1, open ones: all of these, or those that are 1 when it
 * runs. */
static cy_val squeeze_open(cy_importer *im, const cy_onnx_node *n, int open, int more) {
  const cy_type t = *cy_onnx_type(im, X);
  cy_dim d[CY_MAX_RANK];
  int64_t v;
  int rank = 0;
  for (int i = 0; i < t.rank; i++)
    if (cy_dim_is_const(im->g, t.dim[i], &v) ? v != 1 : more < open)
      d[rank++] = t.dim[i];
    else
      cy_graph_require(im->g, t.dim[i], cy_dim_const(im->g, 1), CY_REQUIRE_EQUAL);
  cy_location where = cy_importer_at(im, n);
  cy_diag_add(im->diag, CY_NOTE, &where,
              "no axes are given, and what follows needs rank %d: a run where another number of dimensions of %s is 1 "
              "fails",
              rank - (more < open ? more : 0), cy_type_text(im->g, &t));
  if (more == open)
    return cy_build_reshape(im->g, X, d, rank);
  cy_val sizes = cy_build_dims(im->g, d, (uint32_t)rank);
  cy_val mask = CAST(BINARY(eq, sizes, cy_build_scalar_int(im->g, CY_I64, 1)), CY_I64);
  cy_val x = cy_build_reshape(im->g, X, d, rank);
  return cy_onnx_drop_axes(im, x, mask, d, rank, rank - more);
}

/* What is 1; the open dimensions stay, unless that is not what follows needs or the model declares. */
static cy_val squeeze_all(cy_importer *im, const cy_onnx_node *n) {
  const cy_type t = *cy_onnx_type(im, X);
  cy_dim d[CY_MAX_RANK];
  int64_t v;
  int rank = 0, open = 0;
  for (int i = 0; i < t.rank; i++) {
    open += !cy_dim_is_const(im->g, t.dim[i], &v);
    if (!cy_dim_is(im->g, t.dim[i], 1))
      d[rank++] = t.dim[i];
  }
  int more = cy_choose(im->choices, (uint32_t)open + 1, false);
  if (more > 0)
    return squeeze_open(im, n, open, more);
  for (int i = 0; i < t.rank; i++)
    if (!cy_dim_is_const(im->g, t.dim[i], &v))
      warn_kept(im, n, i, t.dim[i]);
  return cy_build_reshape(im->g, X, d, rank);
}

IMPORT(squeeze) {
  const cy_type t = *cy_onnx_type(im, X);
  int64_t axes[CY_MAX_RANK];
  uint32_t count;
  int named;
  if (n->version >= 13 && !cy_onnx_known(im, n, 1)) {
    cy_val mask = cy_onnx_axes_mask(im, n, 1, false, t.rank, &named);
    return mask && SET(cy_onnx_drop_axes(im, X, mask, t.dim, t.rank, t.rank - named));
  }
  if (!cy_onnx_axes(im, n, n->version >= 13, t.rank, axes, &count))
    return false;
  if (!count)
    return SET(squeeze_all(im, n));
  bool drop[CY_MAX_RANK] = {false};
  for (uint32_t i = 0; i < count; i++)
    drop[axes[i]] = true;
  cy_dim d[CY_MAX_RANK];
  int rank = 0;
  for (int i = 0; i < t.rank; i++) {
    int64_t v;
    if (drop[i] && cy_dim_is_const(im->g, t.dim[i], &v) && v != 1)
      return cy_build_error(im->g, "axes", "dimension %d is %lld, only dimensions of 1 can be removed", i,
                            (long long)v);
    if (!drop[i])
      d[rank++] = t.dim[i];
  }
  return SET(cy_build_reshape(im->g, X, d, rank));
}

IMPORT(unsqueeze) {
  const cy_type t = *cy_onnx_type(im, X);
  int64_t axes[CY_MAX_RANK], raw[CY_MAX_RANK];
  uint32_t count = 0;
  int named;
  if (n->version >= 13 && !cy_onnx_known(im, n, 1)) {
    cy_val mask = cy_onnx_axes_mask(im, n, 1, true, t.rank, &named);
    return mask && SET(cy_onnx_insert_axes(im, X, mask, t.rank + named));
  }
  if (n->version >= 13 && n->in[1]) {
    if (!cy_onnx_const_ints(im, n, 1, raw, CY_MAX_RANK, &count))
      return false;
  } else {
    cy_onnx_ints(im, n, "axes", &count);
  }
  int rank = t.rank + (int)count, from = 0;
  if (!rank_ok(im, rank) || !cy_onnx_axes(im, n, n->version >= 13, rank, axes, &count))
    return false;
  bool added[CY_MAX_RANK] = {false};
  for (uint32_t i = 0; i < count; i++)
    added[axes[i]] = true;
  cy_dim d[CY_MAX_RANK];
  for (int i = 0; i < rank; i++)
    d[i] = added[i] ? num(im, 1) : t.dim[from++];
  return SET(cy_build_reshape(im->g, X, d, rank));
}

IMPORT(transpose) {
  int rank = cy_onnx_type(im, X)->rank;
  uint32_t count;
  const int64_t *perm = cy_onnx_ints(im, n, "perm", &count);
  int64_t p[CY_MAX_RANK];
  bool seen[CY_MAX_RANK] = {false}, identity = true;
  if (perm && (int)count != rank)
    return cy_build_error(im->g, "attribute 'perm'", "expected %d axes, found %u", rank, count);
  for (int i = 0; i < rank; i++) {
    p[i] = perm ? perm[i] : rank - 1 - i;
    p[i] += p[i] < 0 ? rank : 0;
    if (p[i] < 0 || p[i] >= rank || seen[p[i]])
      return cy_build_error(im->g, "attribute 'perm'", "expected every axis from 0 to %d once, found %lld as element %d",
                            rank - 1, (long long)perm[i], i);
    seen[p[i]] = true;
    identity = identity && p[i] == i;
  }
  return SET(identity ? X : cy_build_transpose(im->g, X, p));
}

IMPORT(expand) {
  uint32_t rank;
  const cy_dim *want = cy_onnx_elems(im, n, 1, &rank);
  if (!want || !rank_ok(im, rank))
    return false;
  cy_type t = *cy_onnx_type(im, X), shape = cy_type_make(t.dtype, (int)rank, want);
  cy_dim d[CY_MAX_RANK];
  cy_onnx_require_sizes(im, want, rank);
  int out = cy_build_broadcast(im->g, &t, &shape, d);
  return out >= 0 && SET(cy_build_expand(im->g, X, d, out));
}

/* Every repeated axis becomes two, [repeats, dim]; the first is a broadcast. */
static cy_val tile(cy_importer *im, cy_val x, const cy_dim *repeats) {
  const cy_type t = *cy_onnx_type(im, x);
  cy_dim before[2 * CY_MAX_RANK], after[2 * CY_MAX_RANK], out[CY_MAX_RANK];
  int rank = 0;
  for (int i = 0; i < t.rank; i++) {
    out[i] = cy_dim_mul(im->g, t.dim[i], repeats[i]);
    if (!cy_dim_is(im->g, repeats[i], 1) && !cy_dim_is(im->g, t.dim[i], 1)) {
      before[rank] = num(im, 1);
      after[rank++] = repeats[i];
    }
    before[rank] = t.dim[i];
    after[rank++] = cy_dim_is(im->g, t.dim[i], 1) ? repeats[i] : t.dim[i];
  }
  if (!rank_ok(im, rank))
    return 0;
  x = rank == t.rank ? x : cy_build_reshape(im->g, x, before, rank);
  x = cy_build_expand(im->g, x, after, rank);
  return rank == t.rank ? x : cy_build_reshape(im->g, x, out, t.rank);
}

IMPORT(tile) {
  int rank = cy_onnx_type(im, X)->rank, axis;
  cy_dim r[CY_MAX_RANK];
  uint32_t count;
  if (n->version < 6) {
    int64_t times, at;
    uint32_t one;
    if (!n->in[2] || !cy_onnx_const_ints(im, n, 1, &times, 1, &one) || !cy_onnx_const_ints(im, n, 2, &at, 1, &one) ||
        !cy_onnx_axis(im, at, rank, &axis))
      return false;
    for (int i = 0; i < rank; i++)
      r[i] = num(im, i == axis ? times : 1);
    return SET(tile(im, X, r));
  }
  const cy_dim *want = cy_onnx_elems(im, n, 1, &count);
  if (want && (int)count != rank)
    return cy_build_error(im->g, "input 'repeats'", "expected %d numbers, found %u", rank, count);
  if (!want)
    return false;
  cy_onnx_require_sizes(im, want, count);
  return SET(tile(im, X, want));
}

/* ---- slice, split, concat, pad ---- */

/* v counted from the end where it is negative, whatever is known of its sign: floor(v / 2^60) is -1 for negatives, 0
 * otherwise (sizes of which 2^62 is a part count as too large). Constants beyond any extent ("from the start", "to the
 * end") become the nearest position outside. */
static cy_dim from_end(cy_importer *im, cy_dim v, cy_dim extent) {
  const int64_t beyond = (int64_t)1 << 31;
  int64_t low, high, c;
  if (cy_dim_is_const(im->g, v, &c) && (c >= beyond - 1 || c <= -beyond))
    return c > 0 ? extent : num(im, -1);
  cy_dim_range(im->g, v, &low, &high);
  if (low >= 0)
    return v;
  if (high < 0)
    return cy_dim_add(im->g, v, extent);
  cy_dim negative = cy_dim_div(im->g, v, num(im, (int64_t)1 << 60));
  return cy_dim_sub(im->g, v, cy_dim_mul(im->g, negative, extent));
}

/* Start and size of one axis, clamped as the standard does: backwards, what starts before the first element starts there
 * (in numpy nowhere). */
static void slice_axis(cy_importer *im, cy_dim extent, cy_dim start, cy_dim end, int64_t step, cy_dim *out_start,
                       cy_dim *out_size) {
  cy_dim zero = num(im, 0), count;
  int64_t min, max;
  cy_dim_range(im->g, start, &min, &max);
  start = from_end(im, start, extent);
  end = from_end(im, end, extent);
  if (step > 0) {
    *out_start = cy_dim_max(im->g, start, zero); /* beyond the end: the size is 0 */
    count = cy_dim_sub(im->g, cy_dim_min(im->g, end, extent), *out_start);
  } else {
    if (min < -1) /* -1: extent - 1, which without elements is -1, too */
      start = cy_dim_max(im->g, start, zero);
    *out_start = cy_dim_min(im->g, start, cy_dim_addi(im->g, extent, -1));
    count = cy_dim_sub(im->g, *out_start, cy_dim_max(im->g, end, num(im, -1)));
  }
  *out_size = cy_dim_max(im->g, zero, cy_dim_cdiv(im->g, count, num(im, step < 0 ? -step : step)));
}

IMPORT(slice) {
  if (n->version >= 10 && n->in[1] && n->in[2] && (!cy_onnx_known(im, n, 3) || !cy_onnx_known(im, n, 4)))
    return SET(cy_onnx_slice_run_time(im, n));
  const cy_type t = *cy_onnx_type(im, X);
  uint32_t ns, ne, naxes = 0, nsteps = 0;
  bool ok, ok2;
  const cy_dim *starts = dims_list(im, n, "starts", 10, 1, &ns, &ok),
               *ends = dims_list(im, n, "ends", 10, 2, &ne, &ok2);
  if (!ok || !ok2)
    return false;
  int64_t axes[CY_MAX_RANK], step[CY_MAX_RANK], steps[CY_MAX_RANK];
  if (!cy_onnx_axes(im, n, n->version >= 10 ? 3 : 0, t.rank, axes, &naxes))
    return false;
  if (n->version >= 10 && n->in[1] && n->in[2] &&
      cy_onnx_type(im, n->in[1])->dtype != cy_onnx_type(im, n->in[2])->dtype)
    return cy_build_error(im->g, "input 'ends'", "starts and ends must have the same type, found %s and %s",
                          cy_type_text(im->g, cy_onnx_type(im, n->in[1])),
                          cy_type_text(im->g, cy_onnx_type(im, n->in[2])));
  if (n->version >= 10 && n->in[4] && !cy_onnx_const_ints(im, n, 4, step, CY_MAX_RANK, &nsteps))
    return false;
  if (!starts || !ends || ns != ne || ns > t.rank || (naxes && naxes != ns) || (nsteps && nsteps != ns))
    return cy_build_error(
        im->g, NULL,
        "starts, ends, axes and steps must have one element per sliced axis of %s, found %u, %u, %u and %u",
        cy_type_text(im->g, &t), ns, ne, naxes, nsteps);
  cy_dim start[CY_MAX_RANK], size[CY_MAX_RANK];
  for (int i = 0; i < t.rank; i++) {
    start[i] = num(im, 0);
    size[i] = t.dim[i];
    steps[i] = 1;
  }
  for (uint32_t i = 0; i < ns; i++) {
    int a = naxes ? (int)axes[i] : (int)i;
    steps[a] = nsteps ? step[i] : 1;
    if (steps[a] == 0 || steps[a] == INT64_MIN)
      return cy_build_error(im->g, "input 'steps'", "a step must not be %lld", (long long)steps[a]);
    slice_axis(im, t.dim[a], starts[i], ends[i], steps[a], &start[a], &size[a]);
  }
  return SET(cy_build_slice(im->g, X, start, steps, size));
}

/* No size is below 0, and all together are as long as the axis. */
static bool sizes_add_up(cy_importer *im, const cy_dim *sizes, uint32_t count, cy_dim extent) {
  cy_dim sum = num(im, 0);
  for (uint32_t i = 0; i < count; i++) {
    int64_t size;
    if (cy_dim_is_const(im->g, sizes[i], &size) && size < 0)
      return cy_build_error(im->g, "input 'split'", "size %u is %lld", i, (long long)size);
    cy_graph_require(im->g, sizes[i], num(im, 0), CY_REQUIRE_SIZE);
    sum = cy_dim_add(im->g, sum, sizes[i]);
  }
  int64_t have, want;
  if (cy_dim_is_const(im->g, sum, &have) && cy_dim_is_const(im->g, extent, &want) && have != want)
    return cy_build_error(im->g, "input 'split'", "the sizes add up to %lld, the axis has %lld elements",
                          (long long)have, (long long)want);
  cy_graph_require_text(im->g, sum, extent, CY_REQUIRE_EQUAL,
                        "node '%s': the sizes of the parts add up to %lld, the axis has %lld elements");
  return true;
}

IMPORT(split) {
  const cy_type t = *cy_onnx_type(im, X);
  int axis;
  uint32_t count = 0;
  bool ok;
  if (!cy_onnx_axis(im, cy_onnx_int(im, n, "axis", 0), t.rank, &axis))
    return false;
  const cy_dim *sizes = dims_list(im, n, "split", n->version < 2 && n->in[1] ? 1 : 13, 1, &count, &ok);
  if (!ok)
    return false;
  if (sizes && count < n->nout)
    return cy_build_error(im->g, NULL, "the node has %u outputs, sizes are given for %u", n->nout, count);
  int64_t parts = cy_onnx_int(im, n, "num_outputs", n->nout), extent;
  if (!sizes && n->version < 18 && parts > 0 && cy_dim_is_const(im->g, t.dim[axis], &extent) && extent % parts)
    return cy_build_error(im->g, NULL, "dimension %d of %s cannot be split into %lld equal parts", axis,
                          cy_type_text(im->g, &t), (long long)parts);
  if (parts <= 0 || parts < n->nout)
    return cy_build_error(im->g, "attribute 'num_outputs'", "expected at least %u, found %lld", n->nout,
                          (long long)parts);
  if (sizes && !sizes_add_up(im, sizes, count, t.dim[axis]))
    return false;
  cy_dim at = num(im, 0), each = cy_dim_cdiv(im->g, t.dim[axis], num(im, parts));
  if (!sizes && n->version >= 18) { /* the last part may be smaller, not less than nothing */
    cy_dim last = cy_dim_sub(im->g, t.dim[axis], cy_dim_muli(im->g, each, parts - 1));
    if (cy_dim_is_const(im->g, last, &extent) && extent < 0)
      return cy_build_error(im->g, "attribute 'num_outputs'", "%s has too few elements along axis %d for %lld parts",
                            cy_type_text(im->g, &t), axis, (long long)parts);
    cy_graph_require(im->g, last, num(im, 0), CY_REQUIRE_SIZE);
  }
  for (uint32_t i = 0; i < n->nout; i++) {
    cy_dim rest = cy_dim_sub(im->g, t.dim[axis], at), size = sizes ? sizes[i] : parts == 1 ? t.dim[axis] : each;
    if (!sizes && n->version >= 18)
      size = cy_dim_max(im->g, num(im, 0), cy_dim_min(im->g, each, rest));
    if (cy_onnx_wants(n, i) && !cy_importer_set(im, n, i, cy_build_slice_axis(im->g, X, axis, at, size)))
      return false;
    bool sum = sizes || n->version < 18 || i == 0; /* else where part i + 1 begins, without a term for each part */
    at = sum ? cy_dim_add(im->g, at, size) : cy_dim_min(im->g, cy_dim_muli(im->g, each, i + 1), t.dim[axis]);
  }
  return true;
}

IMPORT(concat) {
  int axis;
  if (!cy_onnx_axis(im, cy_onnx_int(im, n, "axis", 1), cy_onnx_type(im, X)->rank, &axis))
    return false;
  cy_val *v = CY_NEW_ARRAY(im->arena, cy_val, n->nin + 1);
  uint32_t count = 0;
  for (uint32_t i = 0; i < n->nin; i++)
    if (n->in[i])
      v[count++] = n->in[i];
  return SET(count == 1 ? v[0] : cy_build_concat(im->g, v, count, axis));
}

/* Pads per axis from the list [begins.., ends..] over the named axes. */
static bool full_pads(cy_importer *im, const cy_onnx_node *n, int rank, cy_dim *out) {
  uint32_t count, naxes = 0;
  bool ok;
  if (n->version >= 18 && n->in[1] && !cy_onnx_known(im, n, 3)) {
    const cy_dim *all = cy_onnx_pads_run_time(im, n, 1, 3, rank);
    for (int i = 0; all && i < 2 * rank; i++)
      out[i] = all[i];
    return all != NULL;
  }
  const cy_dim *pads = dims_list(im, n, n->version < 2 ? "paddings" : "pads", 11, 1, &count, &ok);
  int64_t axes[CY_MAX_RANK];
  if (!ok)
    return false;
  if (n->version >= 18 && n->in[3]) {
    if (!cy_onnx_axes(im, n, 3, rank, axes, &naxes))
      return false;
  } else {
    naxes = (uint32_t)rank;
    for (int i = 0; i < rank; i++)
      axes[i] = i;
  }
  if (!pads || count != 2 * naxes) {
    cy_build_error(im->g, "input 'pads'", "expected %u numbers (begins, then ends), found %u", 2 * naxes, count);
    return false;
  }
  for (int i = 0; i < 2 * rank; i++)
    out[i] = num(im, 0);
  for (uint32_t i = 0; i < naxes; i++) {
    out[axes[i]] = pads[i];
    out[rank + axes[i]] = pads[naxes + i];
  }
  return true;
}

/* What is reflected lies within the axis, as it is after the cropping by negative pads; the border is not repeated. */
static bool reflects_inside(cy_importer *im, const cy_type *t, const cy_dim *pads) {
  cy_dim zero = num(im, 0);
  for (int i = 0; i < t->rank; i++) {
    cy_dim cut = cy_dim_add(im->g, cy_dim_min(im->g, pads[i], zero), cy_dim_min(im->g, pads[t->rank + i], zero));
    cy_dim max = cy_dim_max(im->g, cy_dim_addi(im->g, cy_dim_add(im->g, t->dim[i], cut), -1), zero);
    for (int side = 0; side < 2; side++)
      if (!cy_onnx_at_most(im, "input 'pads'", pads[side * t->rank + i], max))
        return false;
  }
  return true;
}

IMPORT(pad) {
  int rank = cy_onnx_type(im, X)->rank, mode = cy_onnx_word(im, n, "mode", "constant", "constant|reflect|edge|wrap");
  cy_dim pads[2 * CY_MAX_RANK];
  if (mode < 0 || !full_pads(im, n, rank, pads) ||
      (mode == CY_PAD_REFLECT && !reflects_inside(im, cy_onnx_type(im, X), pads)))
    return false;
  cy_val fill = 0;
  if (mode == CY_PAD_CONSTANT) {
    fill = n->version >= 11 ? n->in[2] : LIKE(X, cy_onnx_float(im, n, "value", 0));
    fill = !fill ? LIKE(X, 0) : cy_onnx_type(im, fill)->rank ? cy_build_reshape(im->g, fill, NULL, 0) : fill;
    if (!fill)
      return false;
  }
  return SET(cy_build_pad(im->g, X, pads, mode, fill));
}

/* Opset 1 "Crop": border [left, top, right, bottom], or left/top and attribute scale [height, width]. */
IMPORT(crop) {
  const cy_type t = *cy_onnx_type(im, X);
  uint32_t nb, ns;
  const int64_t *border = cy_onnx_ints(im, n, "border", &nb), *scale = cy_onnx_ints(im, n, "scale", &ns);
  if (t.rank != 4 || nb != 4 || (scale && ns != 2))
    return cy_build_error(im->g, NULL, "expected a tensor of rank 4, 4 borders and 2 scales, found %s, %u and %u",
                          cy_type_text(im->g, &t), nb, ns);
  cy_dim h = scale ? num(im, scale[0]) : cy_dim_addi(im->g, t.dim[2], -border[1] - border[3]);
  cy_dim w = scale ? num(im, scale[1]) : cy_dim_addi(im->g, t.dim[3], -border[0] - border[2]);
  cy_val y = cy_build_slice_axis(im->g, X, 2, num(im, border[1]), h);
  return SET(cy_build_slice_axis(im->g, y, 3, num(im, border[0]), w));
}

IMPORT(center_crop_pad) {
  const cy_type t = *cy_onnx_type(im, X);
  int64_t axes[CY_MAX_RANK];
  uint32_t naxes, count;
  const cy_dim *want = cy_onnx_elems(im, n, 1, &count);
  if (!want || !cy_onnx_axes(im, n, 0, t.rank, axes, &naxes))
    return false;
  if (count != (naxes ? naxes : t.rank))
    return cy_build_error(im->g, "input 'shape'", "expected %u numbers, found %u", naxes ? naxes : t.rank, count);
  cy_val y = X;
  for (uint32_t i = 0; i < count; i++) {
    int a = naxes ? (int)axes[i] : (int)i;
    cy_dim zero = num(im, 0), two = num(im, 2), keep = cy_dim_min(im->g, t.dim[a], want[i]);
    cy_dim cut = cy_dim_div(im->g, cy_dim_sub(im->g, t.dim[a], keep), two), missing = cy_dim_sub(im->g, want[i], keep),
           pads[2 * CY_MAX_RANK];
    y = cy_build_slice_axis(im->g, y, a, cut, keep);
    for (int k = 0; k < 2 * t.rank; k++)
      pads[k] = zero;
    pads[a] = cy_dim_div(im->g, missing, two);
    pads[t.rank + a] = cy_dim_sub(im->g, missing, pads[a]);
    y = y && !cy_dim_is(im->g, missing, 0) ? cy_build_pad(im->g, y, pads, CY_PAD_CONSTANT, LIKE(X, 0)) : y;
  }
  return SET(y);
}

/* ---- blocks and space ---- */

static bool block_of(cy_importer *im, const cy_onnx_node *n, int64_t *out) {
  *out = cy_onnx_int(im, n, "blocksize", 0);
  if (cy_onnx_type(im, X)->rank == 4 && *out > 0 && *out < 1 << 20)
    return true;
  cy_build_error(im->g, NULL, "expected a tensor of rank 4 and a positive blocksize, found %s and %lld",
                 cy_type_text(im->g, cy_onnx_type(im, X)), (long long)*out);
  return false;
}

IMPORT(depth_to_space) {
  int64_t b;
  int mode = cy_onnx_word(im, n, "mode", "DCR", "DCR|CRD");
  if (mode < 0 || !block_of(im, n, &b))
    return false;
  const cy_type t = *cy_onnx_type(im, X);
  cy_dim k = num(im, b), c = cy_dim_div(im->g, t.dim[1], num(im, b * b));
  cy_dim dcr[6] = {t.dim[0], k, k, c, t.dim[2], t.dim[3]}, crd[6] = {t.dim[0], c, k, k, t.dim[2], t.dim[3]};
  const int64_t pdcr[6] = {0, 3, 4, 1, 5, 2}, pcrd[6] = {0, 1, 4, 2, 5, 3};
  cy_dim out[4] = {t.dim[0], c, cy_dim_mul(im->g, t.dim[2], k), cy_dim_mul(im->g, t.dim[3], k)};
  cy_val y = cy_build_reshape(im->g, X, mode ? crd : dcr, 6);
  return SET(cy_build_reshape(im->g, cy_build_transpose(im->g, y, mode ? pcrd : pdcr), out, 4));
}

IMPORT(space_to_depth) {
  int64_t b;
  int mode = cy_onnx_word(im, n, "mode", "DCR", "DCR|CRD");
  if (mode < 0 || !block_of(im, n, &b))
    return false;
  const cy_type t = *cy_onnx_type(im, X);
  cy_dim k = num(im, b), h = cy_dim_div(im->g, t.dim[2], k), w = cy_dim_div(im->g, t.dim[3], k);
  cy_dim split[6] = {t.dim[0], t.dim[1], h, k, w, k},
         out[4] = {t.dim[0], cy_dim_mul(im->g, t.dim[1], num(im, b * b)), h, w};
  const int64_t dcr[6] = {0, 3, 5, 1, 2, 4}, crd[6] = {0, 1, 3, 5, 2, 4};
  cy_val y = cy_build_reshape(im->g, X, split, 6);
  return SET(cy_build_reshape(im->g, cy_build_transpose(im->g, y, mode ? crd : dcr), out, 4));
}
