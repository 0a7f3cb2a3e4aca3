/* SPDX-License-Identifier: Apache-2.0 */
/* infer_int.h - what the infer_*.c files share. One function per op of a class other than EW, named after its row; a
 * missing one does not link. `infer` is one inference: the node, and short ways to its types. */
#ifndef CY_INFER_INT_H
#define CY_INFER_INT_H

#include "ir/ir_int.h"

typedef struct infer {
  cy_graph *g;
  const cy_node_info *n;
} infer;

typedef bool infer_function(infer *i);

#define INFER_EW(name)
#define INFER_VIEW(name) infer_function cy_infer_##name;
#define INFER_INDEX(name) infer_function cy_infer_##name;
#define INFER_REDUCE(name) infer_function cy_infer_##name;
#define INFER_ROOT(name) infer_function cy_infer_##name;
#define INFER_CALL(name) infer_function cy_infer_##name;
#define INFER_CTRL(name) infer_function cy_infer_##name;
#define OP(name, min_in, max_in, outs, cls, flags, cost, attrs) INFER_##cls(name)
#include "ir/ops.def"
#undef OP

static inline const cy_type *in_type(const infer *i, uint32_t k) { return &cy_value_of(i->g, i->n->in[k])->type; }
static inline bool has_in(const infer *i, uint32_t k) { return k < i->n->nin && i->n->in[k]; }
static inline cy_type *out_type(const infer *i, uint32_t k) { return &cy_value_of(i->g, i->n->out[k])->type; }
static inline int64_t int_attr(const infer *i, cy_attr_key key) { return cy_attr_get_int(i->n, key, 0); }
static inline bool set_type(const infer *i, uint32_t k, cy_type t) {
  *out_type(i, k) = t;
  return true;
}
static inline bool is_const(const infer *i, cy_dim d, int64_t *v) { return cy_dim_is_const(i->g, d, v); }

#define FAIL(i, ...) (cy_build_error((i)->g, NULL, __VA_ARGS__), false)
#define TEXT(i, type) cy_type_text((i)->g, (type))

/* infer_checks.c. Each is false after a diagnostic. */
bool cy_check_rank(infer *i, uint32_t k, int at_least, int at_most);
bool cy_check_dtype(infer *i, uint32_t k, cy_dtype dtype);
bool cy_check_axis(infer *i, int64_t axis, int rank);
bool cy_check_list(infer *i, cy_attr_key key, int length);                   /* attribute has this many elements */
/* As cy_dims_clash(); where only the running model can tell, it will. */
bool cy_dims_differ(infer *i, cy_dim a, cy_dim b);
/* Output dims of operands that broadcast; -1 after a diagnostic. */
int cy_infer_broadcast(infer *i, const cy_type *a, const cy_type *b, cy_dim *out_dims);
bool cy_check_dim(infer *i, const char *what, cy_dim found, cy_dim expected); /* differ only where both are constant */
/* Are there elements along the axis of x if `wanted` is not 0? */
bool cy_check_has_source(infer *i, const cy_type *x, int axis, cy_dim wanted);
/* Where elements of type `made` are read along the axis of x, it has some; the running model checks what is not known. */
bool cy_check_source(infer *i, const cy_type *x, int axis, const cy_type *made);
bool cy_dims_clash(const infer *i, cy_dim a, cy_dim b);                       /* constant and different */

#endif
