/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ops_objects.c - operators on sequences, optional values and maps: numbers of objects in the context's store
 * (values.h).
 *
 * Objects do not change, so an operator that changes a sequence makes another one. They share what they can: tensors
 * always, and the list of elements (sequences.c). Tensors are copied into the store, since the model uses their memory
 * again. An operator that gives back a tensor whose size only the object knows is called twice, see cyrt_op: first for
 * the sizes that are 0 in out->dims.
 */
#include "runtime/values.h"

#include <string.h>

static int32_t number_of(const cyrt_tensor *t) { return *(const int32_t *)t->data; }

/* Bytes of a tensor as models hold it: strings as numbers. */
static int64_t held_bytes(const cyrt_tensor *t) {
  int64_t count = cyrt_count(t->rank, t->dims);
  return t->dtype == CYTO_STRING ? count * (int64_t)sizeof(int32_t) : cyto_tensor_bytes(t->dtype, t->rank, t->dims);
}

static int32_t wrong_shape(cyrt_frame *frame, const char *op, const cyrt_tensor *found, const cyrt_tensor *wanted) {
  char a[CYRT_DIMS_TEXT], b[CYRT_DIMS_TEXT];
  return cyrt_fail(frame, CYTO_SHAPE_MISMATCH,
                   "%s: found a tensor of %s %s, the model was compiled for %s %s (0: any size)", op,
                   cyto_dtype_name(found->dtype), cyrt_dims_text(found->rank, found->dims, NULL, a),
                   cyto_dtype_name(wanted->dtype), cyrt_dims_text(wanted->rank, wanted->dims, NULL, b));
}

/* A tensor of the store as the operator's output: its sizes, or its elements. */
static int32_t give_tensor(cyrt_frame *frame, const char *op, const cyrt_tensor *t, cyrt_tensor *out) {
  int fits = t->dtype == out->dtype && t->rank == out->rank;
  for (int32_t i = 0; i < t->rank && fits; i++)
    fits = t->dims[i] == out->dims[i] || (!out->data && out->dims[i] == 0);
  if (!fits)
    return wrong_shape(frame, op, t, out);
  if (!out->data)
    memcpy(out->dims, t->dims, sizeof out->dims);
  else if (held_bytes(t) > 0)
    memcpy(out->data, t->data, (size_t)held_bytes(t));
  return CYTO_OK;
}

/* An object, or the tensor that it is, as the operator's output. */
static int32_t give(cyrt_frame *frame, const char *op, int32_t number, cyrt_tensor *out) {
  const cyrt_object *object = cyrt_object_at(frame, number);
  if (out->dtype == CYRT_REF) {
    *(int32_t *)out->data = number;
    return CYTO_OK;
  }
  return object && object->kind == CYTO_TENSOR
             ? give_tensor(frame, op, &object->tensor, out)
             : cyrt_fail(frame, CYTO_RUNTIME_FAILURE, "%s: the value is no tensor", op);
}

/* The object for an input: what its number says, or a copy of the tensor. */
static int32_t take(cyrt_frame *frame, const cyrt_tensor *in, int32_t *out_number) {
  cyrt_object object = {.kind = CYTO_TENSOR, .tensor = *in};
  if (in->dtype == CYRT_REF) {
    *out_number = number_of(in);
    return CYTO_OK;
  }
  int64_t bytes = held_bytes(in);
  int32_t status = bytes < 0 ? cyrt_fail(frame, CYTO_OUT_OF_MEMORY, "the size of a tensor overflows")
                             : cyrt_values_alloc(frame, (uint64_t)bytes, &object.tensor.data);
  if (status)
    return status;
  if (bytes)
    memcpy(object.tensor.data, in->data, (size_t)bytes);
  return cyrt_object_add(frame, &object, out_number);
}

/* ---- optional values ---- */

int32_t cyrt_op_box(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,
                    const cyrt_attr *attr) {
  (void)n_in, (void)n_out, (void)attr;
  return take(frame, &in[0], out[0].data);
}

int32_t cyrt_op_unbox(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,
                      const cyrt_attr *attr) {
  (void)n_in, (void)n_out, (void)attr;
  if (!cyrt_object_at(frame, number_of(&in[0])))
    return cyrt_fail(frame, CYTO_INVALID_ARGUMENT, "OptionalGetElement: the optional has no value");
  return give(frame, "OptionalGetElement", number_of(&in[0]), &out[0]);
}

/* ---- sequences ---- */

static int32_t new_list(cyrt_frame *frame, int64_t capacity, cyrt_list **out_list) {
  struct cyrt_values *v = cyrt_values_of(frame);
  *out_list = v ? cyrt_list_create(v, capacity) : NULL;
  return *out_list ? CYTO_OK : cyrt_values_full(frame);
}

static int32_t add_sequence(cyrt_frame *frame, cyrt_list *list, int64_t count, cyrt_tensor *out) {
  cyrt_object object = {.kind = CYTO_SEQUENCE, .list = list, .count = count};
  return cyrt_object_add(frame, &object, out->data);
}

/* The sequence whose number an input is; false after an error. */
static int sequence_of(cyrt_frame *frame, const char *op, const cyrt_tensor *in, cyrt_object *out_object,
                       int32_t *status) {
  const cyrt_object *object = cyrt_object_at(frame, number_of(in));
  if (object && object->kind == CYTO_SEQUENCE) {
    *out_object = *object; /* the table of objects may move */
    return 1;
  }
  *status = cyrt_fail(frame, CYTO_RUNTIME_FAILURE, "%s: the value is no sequence", op);
  return 0;
}

/* The position that an optional input gives, counted from the end where it is negative; `otherwise` without one. */
static int position_of(cyrt_frame *frame, const char *op, const cyrt_tensor *in, int present, int64_t count,
                       int64_t last, int64_t otherwise, int64_t *out_position, int32_t *status) {
  int64_t given = present ? *(const int64_t *)in->data : otherwise;
  *out_position = given < 0 ? given + count : given;
  if (*out_position >= 0 && *out_position <= last)
    return 1;
  *status = cyrt_fail(frame, CYTO_INDEX_OUT_OF_RANGE, "%s: position %lld in a sequence of %lld", op, (long long)given,
                      (long long)count);
  return 0;
}

int32_t cyrt_op_seq_make(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,
                         const cyrt_attr *attr) {
  (void)n_out, (void)attr;
  cyrt_list *list;
  int32_t status = new_list(frame, n_in, &list);
  for (int32_t i = 0; i < n_in && !status; i++)
    status = take(frame, &in[i], &list->items[i]);
  if (status)
    return status;
  list->used = n_in;
  return add_sequence(frame, list, n_in, &out[0]);
}

/* The sequence `number` with an item put in, or without one. */
static int32_t edited(cyrt_frame *frame, int32_t number, int64_t at, int32_t item, int insert, cyrt_tensor *out) {
  int32_t made = cyrt_list_edit(cyrt_values_of(frame), number, at, item, insert);
  if (made < 0)
    return cyrt_values_full(frame);
  *(int32_t *)out->data = made;
  return CYTO_OK;
}

int32_t cyrt_op_seq_insert(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,
                           const cyrt_attr *attr) {
  (void)n_out, (void)attr;
  static const char op[] = "SequenceInsert";
  cyrt_object s;
  int32_t status = CYTO_OK, item;
  int64_t at;
  if (!sequence_of(frame, op, &in[0], &s, &status) ||
      !position_of(frame, op, &in[2], n_in > 2 && in[2].data, s.count, s.count, s.count, &at, &status) ||
      (status = take(frame, &in[1], &item)))
    return status;
  return edited(frame, number_of(&in[0]), at, item, 1, &out[0]);
}

int32_t cyrt_op_seq_erase(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,
                          const cyrt_attr *attr) {
  (void)n_out, (void)attr;
  static const char op[] = "SequenceErase";
  cyrt_object s;
  int32_t status = CYTO_OK;
  int64_t at;
  if (!sequence_of(frame, op, &in[0], &s, &status) ||
      !position_of(frame, op, &in[1], n_in > 1 && in[1].data, s.count, s.count - 1, s.count - 1, &at, &status))
    return status;
  return edited(frame, number_of(&in[0]), at, 0, 0, &out[0]);
}

int32_t cyrt_op_seq_length(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,
                           const cyrt_attr *attr) {
  (void)n_in, (void)n_out, (void)attr;
  cyrt_object s;
  int32_t status = CYTO_OK;
  if (sequence_of(frame, "SequenceLength", &in[0], &s, &status))
    *(int64_t *)out[0].data = s.count;
  return status;
}

int32_t cyrt_op_seq_at(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,
                       const cyrt_attr *attr) {
  (void)n_in, (void)n_out, (void)attr;
  static const char op[] = "SequenceAt";
  cyrt_object s;
  int32_t status = CYTO_OK;
  int64_t at;
  if (!sequence_of(frame, op, &in[0], &s, &status) ||
      !position_of(frame, op, &in[1], 1, s.count, s.count - 1, 0, &at, &status))
    return status;
  int32_t item = cyrt_list_at(cyrt_values_of(frame), number_of(&in[0]), at);
  return item < 0 ? cyrt_values_full(frame) : give(frame, op, item, &out[0]);
}

/* ---- joining and cutting tensors ---- */

/* Bytes of the part of a tensor below dimension `axis`; sub-byte elements have none of their own. */
static int64_t run_bytes(const cyrt_tensor *t, int32_t axis) {
  int64_t n = t->dtype == CYTO_STRING ? (int64_t)sizeof(int32_t) : cyto_dtype_bits(t->dtype) / 8;
  for (int32_t i = axis; i < t->rank; i++)
    n *= t->dims[i];
  return n;
}

static int64_t rows_above(const cyrt_tensor *t, int32_t axis) { return cyrt_count(axis, t->dims); }

static int32_t check_bytes(cyrt_frame *frame, const char *op, int32_t dtype) {
  return cyto_dtype_bits(dtype) >= 8
             ? CYTO_OK
             : cyrt_fail(frame, CYTO_DTYPE_MISMATCH, "%s: elements of type %s are not supported", op,
                         cyto_dtype_name(dtype));
}

/* The sizes of all elements joined along `axis`; with new_axis they are stacked along one of its own. */
static int32_t joined_dims(cyrt_frame *frame, const int32_t *items, int64_t count, int32_t axis, int new_axis,
                           cyrt_tensor *out_shape) {
  for (int64_t k = 0; k < count; k++) {
    const cyrt_object *item = cyrt_object_at(frame, items[k]);
    if (!item || item->kind != CYTO_TENSOR)
      return cyrt_fail(frame, CYTO_RUNTIME_FAILURE, "ConcatFromSequence: element %lld is no tensor", (long long)k);
    cyrt_tensor t = item->tensor;
    if (new_axis && t.rank < CYTO_MAX_RANK && axis <= t.rank) {
      memmove(t.dims + axis + 1, t.dims + axis, (size_t)(t.rank - axis) * sizeof *t.dims);
      t.dims[axis] = 1;
      t.rank++;
    }
    if (k == 0) {
      *out_shape = t;
      continue;
    }
    int fits = t.rank == out_shape->rank && t.dtype == out_shape->dtype;
    for (int32_t i = 0; i < t.rank && fits; i++)
      fits = i == axis || t.dims[i] == out_shape->dims[i];
    if (!fits)
      return wrong_shape(frame, "ConcatFromSequence", &t, out_shape);
    out_shape->dims[axis] += t.dims[axis];
  }
  return count ? CYTO_OK : cyrt_fail(frame, CYTO_INVALID_ARGUMENT, "ConcatFromSequence: the sequence is empty");
}

int32_t cyrt_op_seq_concat(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,
                           const cyrt_attr *attr) {
  (void)n_in, (void)n_out;
  static const char op[] = "ConcatFromSequence";
  int32_t status = check_bytes(frame, op, out[0].dtype), axis = (int32_t)attr[0].i;
  cyrt_object s;
  cyrt_tensor shape = {0};
  if (status || !sequence_of(frame, op, &in[0], &s, &status))
    return status;
  const int32_t *items = cyrt_list_items(cyrt_values_of(frame), number_of(&in[0]));
  if (!items)
    return cyrt_values_full(frame);
  if ((status = joined_dims(frame, items, s.count, axis, attr[1].i != 0, &shape)))
    return status;
  shape.data = NULL;
  cyrt_tensor sizes = out[0];
  sizes.data = NULL;
  if ((status = give_tensor(frame, op, &shape, &sizes)) || !out[0].data) {
    memcpy(out[0].dims, sizes.dims, sizeof sizes.dims);
    return status;
  }
  if (memcmp(sizes.dims, out[0].dims, (size_t)sizes.rank * sizeof *sizes.dims))
    return wrong_shape(frame, op, &shape, &out[0]);
  int64_t rows = rows_above(&shape, axis), pitch = run_bytes(&shape, axis), start = 0;
  for (int64_t k = 0; k < s.count && rows > 0 && pitch > 0; k++) {
    const cyrt_tensor *t = &cyrt_object_at(frame, items[k])->tensor;
    int64_t run = run_bytes(t, axis);
    for (int64_t row = 0; row < rows && run; row++)
      memcpy((uint8_t *)out[0].data + row * pitch + start, (const uint8_t *)t->data + row * run, (size_t)run);
    start += run;
  }
  return CYTO_OK;
}

/* Elements along the axis of part k of the cut; -1: there is none. Without a list all parts have one size but the last.
 */
static int64_t part_size(const cyrt_tensor *split, int64_t k, int64_t start, int64_t whole) {
  if (split && split->rank == 1)
    return k < split->dims[0] ? ((const int64_t *)split->data)[k] : -1;
  int64_t size = split ? *(const int64_t *)split->data : 1;
  return start >= whole || size < 1 ? -1 : whole - start < size ? whole - start : size;
}

int32_t cyrt_op_seq_split(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,
                          const cyrt_attr *attr) {
  (void)n_out;
  static const char op[] = "SplitToSequence";
  const cyrt_tensor *x = &in[0], *split = n_in > 1 && in[1].data ? &in[1] : NULL;
  int32_t axis = (int32_t)attr[0].i, status = check_bytes(frame, op, x->dtype);
  int64_t whole = x->dims[axis], rows = rows_above(x, axis), unit = run_bytes(x, axis + 1), start = 0, n = 0;
  cyrt_list *list;
  if (status || (status = new_list(frame, split && split->rank == 1 ? split->dims[0] : whole, &list)))
    return status;
  for (int64_t size; (size = part_size(split, n, start, whole)) >= 0 && start + size <= whole; n++, start += size) {
    cyrt_object part = {.kind = CYTO_TENSOR, .tensor = *x};
    int64_t run = size * unit;
    part.tensor.dims[axis] = size;
    if ((status = cyrt_values_alloc(frame, (uint64_t)(rows * run), &part.tensor.data)))
      return status;
    for (int64_t row = 0; row < rows && run > 0; row++)
      memcpy((uint8_t *)part.tensor.data + row * run, (const uint8_t *)x->data + (row * whole + start) * unit,
             (size_t)run);
    if (!attr[1].i) {
      memmove(part.tensor.dims + axis, part.tensor.dims + axis + 1, (size_t)(x->rank - axis - 1) * sizeof *x->dims);
      part.tensor.rank--;
    }
    if ((status = cyrt_object_add(frame, &part, &list->items[n])))
      return status;
  }
  if (start != whole)
    return cyrt_fail(frame, CYTO_INVALID_ARGUMENT, "%s: the parts do not add up to the %lld along axis %d", op,
                     (long long)whole, axis);
  list->used = n;
  return add_sequence(frame, list, n, &out[0]);
}
