/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_sequence.c - sequences and optional values.
 *
 * A sequence that is made here of known elements (`seq_make`), and an optional known to have a value (`box`) or none (a
 * constant 0), are seen through: SequenceAt with a known position is the element, SequenceLength a number, and what
 * nobody uses then is swept. So is a tensor cut into slices of 1 (`seq_split`), however many: joining them again is a
 * transpose, a position that is sure to be within it a gather. Only where the position, the length or a value depends
 * on running do runtime calls handle objects. An element taken out at run time is a tensor of a known rank; sizes that
 * the sequence's type does not tell are symbols.
 */
#include "frontend/import_int.h"

#include <string.h>

#define X (n->in[0])
#define SET(v) cy_importer_set(im, n, 0, (v))

enum { MAX_KNOWN = 256 }; /* parts that SplitToSequence cuts at compile time */

/* ---- types ------------------------------------------------------------------------------------------------------- */

cy_content cy_onnx_holding(cy_importer *im, cy_content_kind kind, const cy_type *t) {
  cy_content_info info = {.kind = (uint8_t)kind, .item = t->content, .dtype = t->dtype, .rank = t->rank};
  for (int i = 0; i < t->rank; i++)
    if (!cy_dim_is_const(im->g, t->dim[i], &info.dim[i]))
      info.dim[i] = -1;
  return cy_content_add(im->g, &info);
}

cy_content cy_onnx_empty_sequence(cy_importer *im, cy_dtype dtype) {
  cy_content_info info = {.kind = CY_CONTENT_SEQUENCE, .dtype = (uint8_t)dtype, .rank = CY_NO_RANK};
  return cy_content_add(im->g, &info);
}

/* The type of a sequence with one more element; 0 after a diagnostic. */
static cy_content with_element(cy_importer *im, cy_content sequence, cy_val element) {
  cy_content both, added = cy_onnx_holding(im, CY_CONTENT_SEQUENCE, cy_onnx_type(im, element));
  if (!sequence || cy_content_join(im->g, sequence, added, &both))
    return sequence ? both : added;
  cy_build_error(im->g, NULL, "cannot put %s into %s", cy_type_text(im->g, cy_onnx_type(im, element)),
                 cy_content_text(im->g, sequence));
  return 0;
}

static const cy_content_info *content_of(const cy_importer *im, cy_val v, cy_content_kind kind) {
  const cy_type *t = cy_onnx_type(im, v);
  const cy_content_info *info = t->content ? cy_content_of(im->g, t->content) : NULL;
  return info && info->kind == kind ? info : NULL;
}

bool cy_onnx_is_sequence(const cy_importer *im, cy_val v) { return content_of(im, v, CY_CONTENT_SEQUENCE) != NULL; }

static bool check_sequence(cy_importer *im, cy_val v) {
  if (cy_onnx_is_sequence(im, v))
    return true;
  return cy_build_error(im->g, "input 0", "expected a sequence, found %s", cy_type_text(im->g, cy_onnx_type(im, v)));
}

/* The type of what a container gives back: sizes that it does not tell become symbols. False after a diagnostic. */
static bool element_type(cy_importer *im, const cy_content_info *info, cy_type *out) {
  if (info->item) {
    *out = cy_type_ref(info->item);
    return true;
  }
  if (info->rank > CY_MAX_RANK)
    return cy_build_error(
        im->g, NULL,
        "the number of dimensions of the tensors in %s is not known when compiling: declare their shape in "
        "the type of the model's input",
        info->kind == CY_CONTENT_OPTIONAL ? "this optional" : "this sequence");
  *out = cy_type_make((cy_dtype)info->dtype, 0, NULL);
  for (out->rank = 0; out->rank < info->rank; out->rank++) {
    int64_t size = info->dim[out->rank];
    cy_sym s = size < 0 ? cy_sym_new(im->g, NULL, CY_SYM_COUNT) : 0;
    if (s)
      cy_sym_of(im->g, s)->min = 0;
    out->dim[out->rank] = s ? cy_dim_sym(im->g, s) : cy_dim_const(im->g, size);
  }
  return true;
}

/* ---- known sequences --------------------------------------------------------------------------------------------- */

static const cy_node_info *made_by(const cy_importer *im, cy_val v, cy_op op) {
  cy_node n = cy_value_of(im->g, v)->node;
  const cy_node_info *info = n ? cy_node_of(im->g, n) : NULL;
  return info && info->op == op ? info : NULL;
}

const cy_val *cy_onnx_known_sequence(const cy_importer *im, cy_val v, uint32_t *out_count) {
  static const cy_val none[1];
  const cy_node_info *n = made_by(im, v, CY_OP_seq_make);
  *out_count = n ? n->nin : 0;
  return n ? (n->nin ? n->in : none) : NULL;
}

cy_val cy_onnx_make_sequence(cy_importer *im, const cy_val *v, uint32_t count, cy_content content) {
  for (uint32_t i = 0; i < count; i++)
    if (!v[i] || !(content = with_element(im, content, v[i])))
      return 0;
  cy_type t = cy_type_ref(content);
  return cy_build(im->g, CY_OP_seq_make, v, count, NULL, 0, &t, 1);
}

/* What a sequence of slices of 1 was cut from; 0: it is something else. */
static cy_val cut_from(const cy_importer *im, cy_val v, int *out_axis, bool *out_keep) {
  const cy_node_info *n = made_by(im, v, CY_OP_seq_split);
  if (!n || n->nin > 1)
    return 0;
  *out_axis = (int)cy_attr_get_int(n, CY_ATTR_axis, 0);
  *out_keep = cy_attr_get_int(n, CY_ATTR_keepdims, 0) != 0;
  return n->in[0];
}

/* A position as an i64 scalar; 0: absent, or after a diagnostic. */
static cy_val position(cy_importer *im, cy_val v) {
  const cy_type *t = v ? cy_onnx_type(im, v) : NULL;
  if (t && !cy_dtype_is_int((cy_dtype)t->dtype))
    return cy_build_error(im->g, "input 'position'", "expected an integer, found %s", cy_type_text(im->g, t));
  return v ? cy_build_reshape(im->g, CAST(v, CY_I64), NULL, 0) : 0;
}

/* Is the position known? Counted from the front then; checked against 0 .. last. */
static bool known_position(cy_importer *im, cy_val v, int64_t count, int64_t last, int64_t *out, bool *out_error) {
  uint32_t n;
  const cy_dim *d = cy_value_elems(im->g, v, &n);
  if (!d || n != 1 || !cy_dim_is_const(im->g, d[0], out))
    return false;
  int64_t given = *out;
  *out += *out < 0 ? count : 0;
  if (*out < 0 || *out > last) {
    cy_build_error(im->g, "input 'position'", "expected a position in a sequence of %lld, found %lld", (long long)count,
                   (long long)given);
    *out_error = true;
  }
  return true;
}

cy_val cy_onnx_split_sequence(cy_importer *im, cy_val x) {
  cy_type t = *cy_onnx_type(im, x);
  memmove(t.dim, t.dim + 1, sizeof *t.dim * (size_t)--t.rank);
  t = cy_type_ref(cy_onnx_holding(im, CY_CONTENT_SEQUENCE, &t));
  cy_attr a[2] = {cy_attr_int(CY_ATTR_axis, 0), cy_attr_int(CY_ATTR_keepdims, 0)};
  return cy_build(im->g, CY_OP_seq_split, &x, 1, a, 2, &t, 1);
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

IMPORT(sequence_construct) {
  for (uint32_t i = 0; i < n->nin; i++)
    if (!n->in[i])
      return cy_build_error(im->g, NULL, "element %u is missing", i);
  return SET(cy_onnx_make_sequence(im, n->in, n->nin, 0));
}

IMPORT(sequence_empty) {
  cy_dtype dtype = cy_onnx_dtype(im, n, "dtype", CY_F32, "FIUBSC");
  return dtype && SET(cy_onnx_make_sequence(im, NULL, 0, cy_onnx_empty_sequence(im, dtype)));
}

/* The sequence that an operator changes, and where. */
typedef struct changed {
  const cy_val *known; /* its elements; NULL: known at run time */
  uint32_t count;      /* of these */
  cy_val place;        /* 0: not given */
} changed;

static bool changed_sequence(cy_importer *im, const cy_onnx_node *n, uint32_t place_input, changed *out) {
  if (!check_sequence(im, X))
    return false;
  out->known = cy_onnx_known_sequence(im, X, &out->count);
  out->place = position(im, n->in[place_input]);
  return !n->in[place_input] || out->place;
}

IMPORT(sequence_insert) {
  changed s;
  if (!changed_sequence(im, n, 2, &s))
    return false;
  bool error = false;
  int64_t at = s.count;
  if (s.known && (!s.place || known_position(im, s.place, s.count, s.count, &at, &error))) {
    cy_val *v = CY_NEW_ARRAY(im->arena, cy_val, s.count + 1);
    if (error)
      return false;
    for (uint32_t i = 0; i <= s.count; i++)
      v[i] = i < at ? s.known[i] : i == at ? n->in[1] : s.known[i - 1];
    return SET(cy_onnx_make_sequence(im, v, s.count + 1, cy_onnx_type(im, X)->content));
  }
  cy_content content = with_element(im, cy_onnx_type(im, X)->content, n->in[1]);
  if (!content)
    return false;
  cy_type t = cy_type_ref(content);
  cy_val in[3] = {X, n->in[1], s.place};
  return SET(cy_build(im->g, CY_OP_seq_insert, in, s.place ? 3 : 2, NULL, 0, &t, 1));
}

IMPORT(sequence_erase) {
  changed s;
  if (!changed_sequence(im, n, 1, &s))
    return false;
  bool error = false;
  int64_t last = (int64_t)s.count - 1, at = last;
  if (s.known && (s.count == 0 || !s.place || known_position(im, s.place, s.count, last, &at, &error))) {
    if (error || s.count == 0)
      return error ? false : cy_build_error(im->g, NULL, "the sequence is empty: nothing can be erased");
    cy_val *v = CY_NEW_ARRAY(im->arena, cy_val, s.count + 1);
    for (uint32_t i = 0; i < last; i++)
      v[i] = s.known[i + (i >= at)];
    return SET(cy_onnx_make_sequence(im, v, s.count - 1, cy_onnx_type(im, X)->content));
  }
  cy_type t = *cy_onnx_type(im, X);
  cy_val in[2] = {X, s.place};
  return SET(cy_build(im->g, CY_OP_seq_erase, in, s.place ? 2 : 1, NULL, 0, &t, 1));
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

cy_val cy_onnx_sequence_length(cy_importer *im, cy_val v) {
  uint32_t count;
  int axis;
  bool keep;
  if (cy_onnx_known_sequence(im, v, &count))
    return cy_build_scalar_int(im->g, CY_I64, count);
  cy_val whole = cut_from(im, v, &axis, &keep);
  if (whole)
    return cy_build_dim_scalar(im->g, cy_onnx_type(im, whole)->dim[axis]);
  return cy_build(im->g, CY_OP_seq_length, &v, 1, NULL, 0, NULL, 1);
}

/* Is a position, counted from the front, sure to be one of `size`? */
static bool surely_within(cy_importer *im, cy_val place, cy_dim size) {
  uint32_t n;
  int64_t first, last, lower, upper;
  const cy_dim *d = cy_value_elems(im->g, place, &n);
  if (!d || n != 1)
    return false;
  cy_dim_range(im->g, d[0], &first, &last);
  cy_dim_range(im->g, size, &lower, &upper);
  return first >= 0 && last < lower;
}

cy_val cy_onnx_sequence_at(cy_importer *im, cy_val sequence, cy_val place) {
  uint32_t count;
  int64_t at;
  bool error = false;
  const cy_val *known = cy_onnx_known_sequence(im, sequence, &count);
  cy_type t;
  if (known && place && known_position(im, place, count, (int64_t)count - 1, &at, &error))
    return error ? 0 : known[at];
  int axis;
  bool keep;
  cy_val whole = cut_from(im, sequence, &axis, &keep);
  if (whole && place && surely_within(im, place, cy_onnx_type(im, whole)->dim[axis])) {
    cy_val slice = cy_build_gather(im->g, whole, place, axis);
    return keep && slice ? cy_build_unsqueeze(im->g, slice, axis) : slice;
  }
  cy_val in[2] = {sequence, place};
  if (!place || !element_type(im, content_of(im, sequence, CY_CONTENT_SEQUENCE), &t))
    return 0;
  return cy_build(im->g, CY_OP_seq_at, in, 2, NULL, 0, &t, 1);
}

IMPORT(sequence_length) { return check_sequence(im, X) && SET(cy_onnx_sequence_length(im, X)); }

IMPORT(sequence_at) { return check_sequence(im, X) && SET(cy_onnx_sequence_at(im, X, position(im, n->in[1]))); }

/* ---- joining and cutting ----------------------------------------------------------------------------------------- */

/* Slices of x along axis `from` joined along `axis`, a new one or not: x with its axes in another order. */
static cy_val join_parts(cy_importer *im, cy_val x, int from, int axis, bool stack) {
  int64_t perm[CY_MAX_RANK];
  int rank = cy_onnx_type(im, x)->rank, other = 0;
  for (int i = 0; i < rank; i++)
    perm[i] = i == axis ? from : (other += other == from, other++);
  x = cy_build_transpose(im->g, x, perm);
  if (!x || stack)
    return x;
  cy_type t = *cy_onnx_type(im, x);
  t.dim[axis] = cy_dim_mul(im->g, t.dim[axis], t.dim[axis + 1]);
  memmove(t.dim + axis + 1, t.dim + axis + 2, sizeof *t.dim * (size_t)(rank - axis - 2));
  return cy_build_reshape(im->g, x, t.dim, rank - 1);
}

IMPORT(concat_from_sequence) {
  uint32_t count;
  bool stack = cy_onnx_int(im, n, "new_axis", 0) != 0;
  int axis;
  cy_type t;
  if (!check_sequence(im, X))
    return false;
  const cy_val *known = cy_onnx_known_sequence(im, X, &count);
  if (known && !count)
    return cy_build_error(im->g, NULL, "the sequence is empty: there is nothing to join");
  if (known)
    t = *cy_onnx_type(im, known[0]);
  else if (!element_type(im, content_of(im, X, CY_CONTENT_SEQUENCE), &t))
    return false;
  if (t.content || t.rank + stack > CY_MAX_RANK)
    return cy_build_error(im->g, NULL, "expected a sequence of tensors of at most %d dimensions, found elements %s",
                          CY_MAX_RANK - stack, cy_type_text(im->g, &t));
  if (!cy_onnx_axis(im, cy_onnx_int(im, n, "axis", 0), t.rank + stack, &axis))
    return false;
  if (known) {
    cy_val *v = CY_NEW_ARRAY(im->arena, cy_val, count + 1);
    for (uint32_t i = 0; i < count; i++)
      if (!(v[i] = stack ? cy_build_unsqueeze(im->g, known[i], axis) : known[i]))
        return false;
    return SET(count == 1 ? v[0] : cy_build_concat(im->g, v, count, axis));
  }
  int from;
  bool keep;
  cy_val whole = cut_from(im, X, &from, &keep);
  if (whole && (!keep || (!stack && from == axis)))
    return SET(keep ? whole : join_parts(im, whole, from, axis, stack));
  if (stack)
    memmove(t.dim + axis + 1, t.dim + axis, sizeof *t.dim * (size_t)(t.rank++ - axis));
  cy_sym s = cy_sym_new(im->g, NULL, CY_SYM_COUNT); /* along the axis the element's size tells nothing */
  cy_sym_of(im->g, s)->min = 0;
  t.dim[axis] = cy_dim_sym(im->g, s);
  cy_attr a[2] = {cy_attr_int(CY_ATTR_axis, axis), cy_attr_int(CY_ATTR_new_axis, stack)};
  return SET(cy_build(im->g, CY_OP_seq_concat, &X, 1, a, 2, &t, 1));
}

/* Sizes of the parts as dims, where their number is known; NULL: it is known only at run time. */
static const cy_dim *part_sizes(cy_importer *im, cy_val split, cy_dim whole, uint32_t *out_count) {
  int64_t extent, each = 1, given;
  const cy_type *t = split ? cy_onnx_type(im, split) : NULL;
  const cy_dim *list = split ? cy_value_elems(im->g, split, out_count) : NULL;
  if (t && t->rank == 1)
    return list && *out_count <= MAX_KNOWN ? list : NULL;
  if (t && (!list || !cy_dim_is_const(im->g, list[0], &each) || each < 1))
    return NULL;
  if (!cy_dim_is_const(im->g, whole, &extent) || extent / each >= MAX_KNOWN)
    return NULL;
  given = cy_ceil(extent, each);
  cy_dim *sizes = CY_NEW_ARRAY(im->arena, cy_dim, given + 1);
  for (int64_t k = 0; k < given; k++)
    sizes[k] = cy_dim_const(im->g, k + 1 < given ? each : extent - k * each);
  *out_count = (uint32_t)given;
  return sizes;
}

/* The size of every part where a list of unknown length has one number throughout, as a filled shape has; else -1. */
static int64_t every_part(cy_importer *im, cy_val split) {
  const cy_node_info *n;
  double size;
  if (!split)
    return 1;
  bool list = cy_onnx_type(im, split)->rank == 1;
  while ((n = made_by(im, split, CY_OP_expand)) || (n = made_by(im, split, CY_OP_reshape)))
    split = n->in[0];
  return list && cy_value_is_splat(im->g, split, &size) && size >= 0 ? (int64_t)size : -1;
}

static bool split_run_time(cy_importer *im, const cy_onnx_node *n, int axis, bool keep, cy_val split) {
  cy_type part = *cy_onnx_type(im, X);
  cy_content_info info;
  part.dim[axis] = cy_dim_const(im->g, 1); /* of any size, unless it goes */
  info = *cy_content_of(im->g, cy_onnx_holding(im, CY_CONTENT_SEQUENCE, &part));
  info.dim[axis] = every_part(im, split);
  if (!keep)
    memmove(info.dim + axis, info.dim + axis + 1, sizeof *info.dim * (size_t)(info.rank-- - axis - 1));
  cy_type t = cy_type_ref(cy_content_add(im->g, &info));
  cy_attr a[2] = {cy_attr_int(CY_ATTR_axis, axis), cy_attr_int(CY_ATTR_keepdims, keep)};
  cy_val in[2] = {X, split};
  return SET(cy_build(im->g, CY_OP_seq_split, in, split ? 2 : 1, a, 2, &t, 1));
}

IMPORT(split_to_sequence) {
  const cy_type t = *cy_onnx_type(im, X);
  cy_val split = n->in[1] ? CAST(n->in[1], CY_I64) : 0;
  bool keep = split || cy_onnx_int(im, n, "keepdims", 1) != 0;
  uint32_t count;
  int axis;
  if (t.content)
    return cy_build_error(im->g, "input 0", "expected a tensor, found %s", cy_type_text(im->g, &t));
  if (!cy_onnx_axis(im, cy_onnx_int(im, n, "axis", 0), t.rank, &axis))
    return false;
  const cy_dim *sizes = part_sizes(im, split, t.dim[axis], &count);
  if (!sizes)
    return split_run_time(im, n, axis, keep, split);
  cy_val *parts = CY_NEW_ARRAY(im->arena, cy_val, count + 1);
  cy_dim at = cy_dim_const(im->g, 0);
  for (uint32_t k = 0; k < count; k++) {
    parts[k] = cy_build_slice_axis(im->g, X, axis, at, sizes[k]);
    if (!parts[k] || (!keep && !(parts[k] = cy_build_squeeze(im->g, parts[k], axis))))
      return false;
    at = cy_dim_add(im->g, at, sizes[k]);
  }
  return SET(cy_onnx_make_sequence(im, parts, count, cy_onnx_empty_sequence(im, (cy_dtype)t.dtype)));
}

/* ---- optional values --------------------------------------------------------------------------------------------- */

static cy_val no_value(cy_importer *im, cy_content held) {
  int32_t *zero = CY_NEW(cy_graph_arena(im->g), int32_t);
  cy_type t = cy_type_ref(held);
  return cy_build_const(im->g, &t, zero, sizeof *zero);
}

cy_val cy_onnx_box(cy_importer *im, cy_val v, cy_content optional) {
  cy_type t = cy_type_ref(optional ? optional : cy_onnx_holding(im, CY_CONTENT_OPTIONAL, cy_onnx_type(im, v)));
  return cy_build(im->g, CY_OP_box, &v, 1, NULL, 0, &t, 1);
}

cy_val cy_onnx_unbox(cy_importer *im, cy_val v) {
  const cy_content_info *info = content_of(im, v, CY_CONTENT_OPTIONAL);
  const cy_node_info *box = made_by(im, v, CY_OP_box);
  cy_type t;
  if (!info)
    return v; /* anything else is its own value */
  if (box)
    return box->in[0];
  if (cy_value_is_const(im->g, v))
    return cy_build_error(im->g, "input 0", "the optional has no value");
  return element_type(im, info, &t) ? cy_build(im->g, CY_OP_unbox, &v, 1, NULL, 0, &t, 1) : 0;
}

IMPORT(optional) {
  if (X)
    return SET(cy_onnx_box(im, X, 0));
  const Onnx__AttributeProto *a = cy_onnx_attr(im, n, "type", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TYPE_PROTO);
  cy_content_info info = {.kind = CY_CONTENT_OPTIONAL};
  if (!a || !a->tp)
    return cy_build_error(im->g, "attribute 'type'", "an Optional without an input needs the type of its value");
  return cy_import_held_tensor(im, n, a->tp, &info) && SET(no_value(im, cy_content_add(im->g, &info)));
}

IMPORT(optional_has_element) {
  bool optional = X && content_of(im, X, CY_CONTENT_OPTIONAL), none = !X || (optional && cy_value_is_const(im->g, X));
  if (none || !optional || made_by(im, X, CY_OP_box))
    return SET(cy_build_scalar_int(im->g, CY_BOOL, !none));
  return SET(CAST(X, CY_BOOL));
}

IMPORT(optional_get_element) { return SET(cy_onnx_unbox(im, X)); }
