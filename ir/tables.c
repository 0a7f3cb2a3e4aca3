/* SPDX-License-Identifier: Apache-2.0 */
/* tables.c - ops.def (with elementwise.def), attrs.def and dtypes.def as arrays, and look-up by name.
 *
 * In: the X-macro tables. Out: const rows indexed by enumerator. Names are found by scanning: only the text parser
 * asks. Before editing: the rows live in the .def files; here is nothing to keep in step.
 */
#include "ir_int.h"

#include <math.h>

static const cy_dtype_info dtypes[CY_DTYPE_COUNT] = {
#define DTYPE(id, name, onnx, bits, cls, c_type) {name, onnx, bits, cls, c_type},
#include "dtypes.def"
#undef DTYPE
};

/* A row as written; flags are spelled out as letters. */
typedef struct raw_op {
  const char *name;
  int min_in, max_in, outs;
  cy_op_class cls;
  const char *flags;
  int cost;
  const char *attrs;
} raw_op;

#define HAS(flags, c) (__builtin_strchr((flags), (c)) != NULL)
static cy_op_info ops[CY_OP_COUNT];
static const raw_op raw_ops[CY_OP_COUNT] = {
    {"none", 0, 0, 0, CY_CLASS_VIEW, "", 0, ""},
#define OP(name, min_in, max_in, outs, cls, flags, cost, attrs)                                                        \
  {#name, min_in, max_in, outs, CY_CLASS_##cls, flags, cost, attrs},
#include "ops.def"
#undef OP
};

static const cy_op combines_by[CY_OP_COUNT] = {
#define OP(...)
#define COMBINING_OP(name, op, cls, flags, attributes) [CY_OP_##name] = CY_OP_##op,
#include "ops.def"
#undef OP
};

/* Every thread would write the same bytes, but two models may be compiled at once: fill before main. */
__attribute__((constructor)) static void fill_ops(void) {
  for (int i = 0; i < CY_OP_COUNT; i++) {
    const raw_op *r = &raw_ops[i];
    ops[i] = (cy_op_info){.name = r->name,
                          .min_in = r->min_in,
                          .max_in = r->max_in,
                          .outs = r->outs,
                          .cls = r->cls,
                          .commutative = HAS(r->flags, 'C'),
                          .idempotent = HAS(r->flags, 'I'),
                          .typed = HAS(r->flags, 'T'),
                          .exact = HAS(r->flags, 'X'),
                          .never_negative = HAS(r->flags, 'N'),
                          .keeps_positive = HAS(r->flags, 'P'),
                          .passes_errors = HAS(r->flags, 'L'),
                          .expression = HAS(r->flags, 'E') || r->cls == CY_CLASS_EW,
                          .fusion_root = HAS(r->flags, 'R') || r->cls == CY_CLASS_REDUCE,
                          .keeps_axes = HAS(r->flags, 'A') || r->cls == CY_CLASS_EW || r->cls == CY_CLASS_REDUCE,
                          .row_major = HAS(r->flags, 'W') || r->cls == CY_CLASS_CALL || r->cls == CY_CLASS_CTRL,
                          .of_floats = HAS(r->flags, 'F'),
                          .of_integers = HAS(r->flags, 'Z'),
                          .of_numbers = HAS(r->flags, 'M'),
                          .gives_bool = HAS(r->flags, 'B'),
                          .cost = r->cost,
                          .attrs = r->attrs};
  }
}

static const struct {
  const char *name;
  cy_attr_kind kind;
} attrs[CY_ATTR_COUNT] = {
    {"none", CY_KIND_INT},
#define ATTR(name, kind) {#name, CY_KIND_##kind},
#include "attrs.def"
#undef ATTR
};

#define DTYPE(id, name, onnx, bits, cls, c_type)                                                                       \
  _Static_assert(CY_##id == (onnx), "dtypes.def must be in ONNX's order");
#include "dtypes.def"
#undef DTYPE

const cy_dtype_info *cy_dtype_of(cy_dtype dtype) { return &dtypes[(unsigned)dtype < CY_DTYPE_COUNT ? dtype : CY_NONE]; }

const cy_op_info *cy_op_of(cy_op op) { return &ops[(unsigned)op < CY_OP_COUNT ? op : CY_OP_NONE]; }

cy_op cy_op_combines_by(cy_op op) { return combines_by[(unsigned)op < CY_OP_COUNT ? op : CY_OP_NONE]; }

static bool same(const char *name, const char *text, size_t len) {
  return strlen(name) == len && memcmp(name, text, len) == 0;
}

cy_op cy_op_by_name(const char *name, size_t len) {
  for (int i = 1; i < CY_OP_COUNT; i++)
    if (same(raw_ops[i].name, name, len))
      return (cy_op)i;
  return CY_OP_NONE;
}

void cy_dtype_int_range(cy_dtype t, double *out_min, double *out_max) {
  int bits = cy_dtype_of(t)->bits;
  bool is_signed = cy_dtype_of(t)->cls == 'I';
  *out_min = is_signed ? -ldexp(1, bits - 1) : 0;
  *out_max = ldexp(1, is_signed ? bits - 1 : bits) - 1;
}

cy_dtype cy_dtype_by_name(const char *name, size_t len) {
  for (int i = 1; i < CY_DTYPE_COUNT; i++)
    if (same(dtypes[i].name, name, len))
      return (cy_dtype)i;
  return CY_NONE;
}

const char *cy_attr_name(cy_attr_key key) { return attrs[(unsigned)key < CY_ATTR_COUNT ? key : CY_ATTR_NONE].name; }

cy_attr_kind cy_attr_kind_of(cy_attr_key key) { return attrs[(unsigned)key < CY_ATTR_COUNT ? key : CY_ATTR_NONE].kind; }

cy_attr_key cy_attr_by_name(const char *name, size_t len) {
  for (int i = 1; i < CY_ATTR_COUNT; i++)
    if (same(attrs[i].name, name, len))
      return (cy_attr_key)i;
  return CY_ATTR_NONE;
}
