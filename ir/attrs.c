/* SPDX-License-Identifier: Apache-2.0 */
/* attrs.c - attributes of nodes: made, found, and what an op's row says of them.
 *
 * In: keys and values. Out: an attribute as cy_build() takes it, or the one that a node has. Values are not copied here.
 */
#include "ir_int.h"

cy_attr cy_attr_int(cy_attr_key key, int64_t v) { return (cy_attr){.key = (uint16_t)key, .kind = CY_KIND_INT, .i = v}; }

cy_attr cy_attr_float(cy_attr_key key, double v) {
  return (cy_attr){.key = (uint16_t)key, .kind = CY_KIND_FLOAT, .f = v};
}

cy_attr cy_attr_ints(cy_attr_key key, const int64_t *v, uint32_t n) {
  return (cy_attr){.key = (uint16_t)key, .kind = CY_KIND_INTS, .n = n, .ints = v};
}

cy_attr cy_attr_floats(cy_attr_key key, const double *v, uint32_t n) {
  return (cy_attr){.key = (uint16_t)key, .kind = CY_KIND_FLOATS, .n = n, .floats = v};
}

cy_attr cy_attr_dims(cy_attr_key key, const cy_dim *v, uint32_t n) {
  return (cy_attr){.key = (uint16_t)key, .kind = CY_KIND_DIMS, .n = n, .dims = v};
}

cy_attr cy_attr_block(cy_attr_key key, cy_block b) {
  return (cy_attr){.key = (uint16_t)key, .kind = CY_KIND_BLOCK, .block = b};
}

const cy_attr *cy_attr_find(const cy_node_info *n, cy_attr_key key) {
  for (int i = 0; i < n->nattrs; i++)
    if (n->attrs[i].key == key)
      return &n->attrs[i];
  return NULL;
}

int64_t cy_attr_get_int(const cy_node_info *n, cy_attr_key key, int64_t otherwise) {
  const cy_attr *a = cy_attr_find(n, key);
  return a && a->kind == CY_KIND_INT ? a->i : otherwise;
}

double cy_attr_get_float(const cy_node_info *n, cy_attr_key key, double otherwise) {
  const cy_attr *a = cy_attr_find(n, key);
  return a && a->kind == CY_KIND_FLOAT ? a->f : otherwise;
}

cy_attr_kind cy_attr_kind_in(cy_op op, cy_attr_key key) {
  return key == CY_ATTR_pads && op != CY_OP_pad ? CY_KIND_INTS : cy_attr_kind_of(key);
}

bool cy_op_attr_next(const char **list, cy_attr_key *out_key, bool *out_optional) {
  const char *p = *list + strspn(*list, " ");
  size_t n = strcspn(p, " ?");
  if (n == 0)
    return false;
  *out_key = cy_attr_by_name(p, n);
  *out_optional = p[n] == '?';
  *list = p + n + *out_optional;
  return true;
}

bool cy_op_input_optional(cy_op op, uint32_t index) {
  if (op == CY_OP_loop)
    return index < 2;
  if (op == CY_OP_recurrent)
    return index >= 2;
  return cy_op_of(op)->max_in >= 0 && index >= (uint32_t)cy_op_of(op)->min_in;
}
