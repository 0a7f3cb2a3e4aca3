/* SPDX-License-Identifier: Apache-2.0 */
/* indices.c - indices and lengths that come at run time: looked at before they are used.
 *
 * In:  a tensor of integers, and how many elements the axis has that it indexes. Out: a requirement (ir.h): a run in
 * which one of them is out of range ends with the node's name. Constants are checked here.
 *
 * Kernels clamp what they read, so that this is not about memory: it is about an answer to a question that nobody asked.
 * It costs one pass over the indices: i and -1 - i are both below the extent for what is in range, so that the largest
 * of max(i, -1 - i) tells. The host program reads that number and compares. Where an index must not count from the end,
 * a negative one becomes the largest number there is.
 */
#include "frontend/import_int.h"

#include <string.h>

enum { MAX_STEPS = 8, MAX_ELEMENTS = 16 };

static cy_dim num(cy_importer *im, int64_t v) { return cy_dim_const(im->g, v); }

static bool at_most(cy_importer *im, cy_dim a, cy_dim b) { return cy_dim_le(im->g, a, b); }

/* Do all elements of v count something of which there are at most `extent`? */
static bool counts_below(cy_importer *im, cy_val v, cy_dim extent, int step) {
  const cy_value *value = cy_value_of(im->g, v);
  const cy_node_info *n = value->node ? cy_node_of(im->g, value->node) : NULL;
  if (!n || step == MAX_STEPS)
    return false;
  int64_t axis = cy_attr_get_int(n, CY_ATTR_axis, 0);
  if (cy_op_is_pure_view((cy_op)n->op) || n->op == CY_OP_cast)
    return counts_below(im, n->in[0], extent, step + 1);
  switch (n->op) {
  case CY_OP_iota:
    return at_most(im, value->type.dim[axis], extent);
  case CY_OP_argmin:
  case CY_OP_argmax:
    return at_most(im, cy_onnx_type(im, n->in[0])->dim[axis], extent);
  case CY_OP_topk:
    return value->output == 1 && at_most(im, cy_onnx_type(im, n->in[0])->dim[axis], extent);
  default:
    return false;
  }
}

/* Are these the places that NonZero found in a tensor of x's leading dims? */
static bool names_places(cy_importer *im, cy_val v, const cy_type *x, int64_t count) {
  for (int step = 0; step < MAX_STEPS; step++) {
    const cy_value *value = cy_value_of(im->g, v);
    const cy_node_info *n = value->node ? cy_node_of(im->g, value->node) : NULL;
    if (!n)
      return false;
    if (n->op == CY_OP_nonzero) {
      const cy_type *t = cy_onnx_type(im, n->in[0]);
      bool same = t->rank == count;
      for (int i = 0; i < count && same; i++)
        same = t->dim[i] == x->dim[i];
      return same;
    }
    if (n->op != CY_OP_transpose && n->op != CY_OP_cast && n->op != CY_OP_identity)
      return false;
    v = n->in[0];
  }
  return false;
}

static bool out_of_range(cy_importer *im, int64_t index, int64_t extent) {
  return cy_build_error(im->g, "indices", "%lld is out of range of an axis of %lld elements", (long long)index,
                        (long long)extent);
}

/* An index that is known, or an expression of sizes. */
static bool check_element(cy_importer *im, cy_dim index, cy_dim extent, bool from_end) {
  int64_t i, n;
  bool known = cy_dim_is_const(im->g, index, &i);
  if (known && cy_dim_is_const(im->g, extent, &n))
    return (i < n && i >= (from_end ? -n : 0)) || out_of_range(im, i, n);
  if (!known || i >= 0)
    cy_graph_require(im->g, index, extent, CY_REQUIRE_INDEX);
  cy_dim front = from_end ? cy_dim_add(im->g, index, extent) : index;
  cy_graph_require(im->g, num(im, -1), front, CY_REQUIRE_INDEX);
  return true;
}

/* Elements at, at + step .. of a constant. */
static bool check_constant(cy_importer *im, cy_val v, int64_t at, int64_t step, cy_dim extent, bool from_end) {
  const cy_value *value = cy_value_of(im->g, v);
  int64_t low = INT64_MAX, high = INT64_MIN;
  int64_t count = 0;
  if (!cy_dim_is_const(im->g, cy_type_elems(im->g, &value->type), &count) || at >= count)
    return true;
  for (int64_t i = at; i < count; i += step) {
    int64_t e = cy_scalar_load(value->data.bytes, (cy_dtype)value->type.dtype, (uint64_t)i).i;
    low = e < low ? e : low;
    high = e > high ? e : high;
  }
  return check_element(im, num(im, high), extent, from_end) &&
         (low >= 0 || check_element(im, num(im, low), extent, from_end));
}

/* max(i, -1 - i) of v's elements along all axes but `kept`; negative ones are larger than all where they must not be. */
static cy_val farthest(cy_importer *im, cy_val v, int kept, bool from_end) {
  int64_t axes[CY_MAX_RANK];
  cy_dtype dtype = (cy_dtype)cy_onnx_type(im, v)->dtype;
  if (dtype != CY_I32 && dtype != CY_I64) {
    dtype = CY_I64;
    v = CAST(v, dtype);
  }
  cy_val max = cy_build_scalar_int(im->g, dtype, dtype == CY_I32 ? INT32_MAX : INT64_MAX);
  v = SELECT(BINARY(lt, v, LIKE(v, 0)), from_end ? UNARY(not, v) : max, v);
  int n = v ? cy_onnx_type(im, v)->rank - kept : 0;
  for (int i = 0; i < n; i++)
    axes[i] = i;
  return v && n > 0 ? cy_build_reduce(im->g, CY_OP_reduce_max, v, axes, (uint32_t)n, false) : v;
}

/* The same number for indices that were looked at before. */
static cy_dim farthest_read(cy_importer *im, cy_val v, bool from_end) {
  cy_block block = cy_build_block(im->g);
  for (int i = 0; i < CY_SEEN_INDICES; i++) {
    const struct cy_seen_indices *s = &im->seen[i];
    if (s->indices == v && s->from_end == from_end && (s->block == block || s->block == 1))
      return s->farthest;
  }
  uint32_t one;
  cy_val far = farthest(im, v, 0, from_end);
  const cy_dim *d = far ? cy_value_elems_or_read(im->g, far, &one) : NULL;
  if (d)
    im->seen[im->nseen++ % CY_SEEN_INDICES] = (struct cy_seen_indices){v, block, from_end, *d};
  return d ? *d : 0;
}

static bool check_all(cy_importer *im, cy_val indices, cy_dim extent, bool from_end, cy_require kind,
                      const char *text) {
  uint32_t count = 0;
  if (!indices || counts_below(im, indices, extent, 0))
    return true;
  if (cy_value_of(im->g, indices)->data.bytes)
    return check_constant(im, indices, 0, 1, extent, from_end);
  const cy_dim *known = cy_value_elems(im->g, indices, &count);
  if (known && count <= MAX_ELEMENTS) {
    for (uint32_t i = 0; i < count; i++)
      if (!check_element(im, known[i], extent, from_end))
        return false;
    return true;
  }
  cy_dim far = farthest_read(im, indices, from_end);
  if (far)
    cy_graph_require_text(im->g, far, extent, kind, text);
  return far != 0;
}

bool cy_onnx_check_rows(cy_importer *im, cy_val indices, cy_val table) {
  const cy_type *t = table ? cy_onnx_type(im, table) : NULL;
  return !t || t->content || !t->rank || cy_onnx_check_indices(im, indices, t->dim[0], false);
}

bool cy_onnx_check_indices(cy_importer *im, cy_val indices, cy_dim extent, bool from_end) {
  return im->options->unchecked || check_all(im, indices, extent, from_end, CY_REQUIRE_CLAMPED, NULL);
}

bool cy_onnx_check_lengths(cy_importer *im, cy_val lengths, cy_dim max) {
  return im->options->unchecked || check_all(im, lengths, cy_dim_addi(im->g, max, 1), false, CY_REQUIRE_CLAMPED,
                                             "node '%s': a length is out of range: %lld, or one below 0, is not below "
                                             "%lld");
}

/* Axes, steps and the like are few, and their reading does not matter beside that of the sizes which hang on them. */
bool cy_onnx_check_axes(cy_importer *im, cy_val axes, int rank) {
  return check_all(im, axes, num(im, rank), true, CY_REQUIRE_INDEX,
                   "node '%s': an axis is out of range: %lld, or as far in front, of a tensor of rank %lld");
}

/* What a requirement's text says without "node 'name': ", which stands before every error of the compiler, too. */
static const char *without_node(const char *text) {
  static const char node[] = "node '%s': ";
  return strncmp(text, node, sizeof node - 1) ? text : text + sizeof node - 1;
}

bool cy_onnx_check_below(cy_importer *im, cy_val numbers, int64_t bound, const char *text) {
  uint32_t one;
  cy_val far = numbers ? CAST(numbers, CY_I64) : 0;
  int64_t axes[CY_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  if (far && cy_onnx_type(im, far)->rank)
    far = cy_build_reduce(im->g, CY_OP_reduce_max, far, axes, cy_onnx_type(im, far)->rank, false);
  const cy_dim *d = far ? cy_value_elems_or_read(im->g, far, &one) : NULL;
  int64_t known;
  if (d && cy_dim_is_const(im->g, *d, &known) && known >= bound)
    return cy_build_error(im->g, NULL, without_node(text), (long long)known, (long long)bound);
  if (d)
    cy_graph_require_text(im->g, *d, num(im, bound), CY_REQUIRE_INDEX, text);
  return d != NULL;
}

bool cy_onnx_check_true(cy_importer *im, cy_val right, const char *text) {
  cy_val wrong = right ? UNARY(not, right) : 0;
  const cy_type *t = wrong ? cy_onnx_type(im, wrong) : NULL;
  return t && (cy_dim_is(im->g, cy_type_elems(im->g, t), 0) || cy_onnx_check_below(im, wrong, 1, text));
}

bool cy_onnx_check_tuples(cy_importer *im, cy_val indices, const cy_type *x, int first, int64_t count) {
  const cy_type *t = indices ? cy_onnx_type(im, indices) : NULL;
  uint32_t n = 0;
  if (im->options->unchecked || !t || t->rank < 1 || count < 1 || first + count > x->rank ||
      (first == 0 && names_places(im, indices, x, count)))
    return true;
  if (cy_value_of(im->g, indices)->data.bytes) {
    for (int64_t i = 0; i < count; i++)
      if (!check_constant(im, indices, i, count, x->dim[first + i], true))
        return false;
    return true;
  }
  cy_dim depth = num(im, count);
  cy_val far = farthest(im, indices, 1, true);
  if (far && cy_onnx_type(im, far)->dim[0] != depth) /* as long as the updates' rank says; the running model checks */
    far = cy_build_reshape(im->g, far, &depth, 1);
  const cy_dim *d = far ? cy_value_elems_or_read(im->g, far, &n) : NULL;
  for (uint32_t i = 0; d && i < n; i++)
    cy_graph_require(im->g, d[i], x->dim[first + (int)i], CY_REQUIRE_CLAMPED);
  return d != NULL;
}
