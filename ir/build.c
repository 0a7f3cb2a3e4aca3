/* SPDX-License-Identifier: Apache-2.0 */
/* build.c - making nodes: attributes, inference, folding and placing, in this order.
 *
 * In: op, inputs, attributes and, for ops flagged T, output types. Out: the first output, or 0 after a diagnostic at
 * the current origin. What changes nothing (a cast to the same type, a reshape to the same dims, ..) returns its input;
 * what is known at compile time comes back as a constant without a node; integers known as dims keep their node, which
 * is swept when nobody needs the tensor. Attributes are stored sorted by key and converted to the kind the op's row
 * wants, so equal nodes have equal bytes. Dims of CALL and CTRL outputs that are fresh COUNT symbols are bound to the
 * output they belong to.
 */
#include "ir_int.h"

/* ---- attributes -------------------------------------------------------------------------------------------------- */

/* Copies a list attribute's elements, converting plain integers to dims and back. False: not possible. */
static bool copy_attr(cy_graph *g, cy_attr_kind kind, const cy_attr *from, cy_attr *to) {
  *to = *from;
  to->kind = (uint16_t)kind;
  cy_dim *dims;
  int64_t *ints;
  if (from->kind == CY_KIND_INTS && kind == CY_KIND_DIMS) {
    to->dims = dims = CY_NEW_ARRAY(g->arena, cy_dim, from->n);
    for (uint32_t i = 0; i < from->n; i++)
      dims[i] = cy_dim_const(g, from->ints[i]);
    return true;
  }
  if (from->kind == CY_KIND_DIMS && kind == CY_KIND_INTS) {
    to->ints = ints = CY_NEW_ARRAY(g->arena, int64_t, from->n);
    for (uint32_t i = 0; i < from->n; i++)
      if (!cy_dim_is_const(g, from->dims[i], &ints[i]))
        return false;
    return true;
  }
  if (from->kind != kind)
    return false;
  if (kind == CY_KIND_INTS)
    to->ints = cy_arena_copy(g->arena, from->ints, sizeof *from->ints * from->n);
  if (kind == CY_KIND_FLOATS)
    to->floats = cy_arena_copy(g->arena, from->floats, sizeof *from->floats * from->n);
  if (kind == CY_KIND_DIMS)
    to->dims = cy_arena_copy(g->arena, from->dims, sizeof *from->dims * from->n);
  return true;
}

static const cy_attr *find_raw(const cy_attr *attrs, uint32_t n, cy_attr_key key) {
  for (uint32_t i = 0; i < n; i++)
    if (attrs[i].key == key)
      return &attrs[i];
  return NULL;
}

/* In the order of the op's row, which is what makes equal nodes equal. */
static bool set_attrs(cy_graph *g, cy_node_info *node, const cy_attr *attrs, uint32_t nattrs) {
  const char *list = cy_op_of((cy_op)node->op)->attrs, *op = cy_op_of((cy_op)node->op)->name;
  cy_attr_key key;
  bool optional;
  node->attrs = CY_NEW_ARRAY(g->arena, cy_attr, nattrs);
  while (cy_op_attr_next(&list, &key, &optional)) {
    const cy_attr *a = find_raw(attrs, nattrs, key);
    if (!a && !optional) {
      cy_build_error(g, NULL, "op '%s' is built without its attribute '%s'", op, cy_attr_name(key));
      return false;
    }
    if (!a)
      continue;
    if (!copy_attr(g, cy_attr_kind_in((cy_op)node->op, key), a, &node->attrs[node->nattrs])) {
      cy_build_error(g, NULL, "attribute '%s' of op '%s' has the wrong kind", cy_attr_name(key), op);
      return false;
    }
    node->nattrs++;
  }
  for (uint32_t i = 0; i < nattrs; i++) {
    if (!cy_attr_find(node, (cy_attr_key)attrs[i].key)) {
      cy_build_error(g, NULL, "op '%s' has no attribute '%s'", op, cy_attr_name((cy_attr_key)attrs[i].key));
      return false;
    }
  }
  return true;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

/* Types that follow from the first output's for ops with a given type. */
static bool output_type(cy_graph *g, cy_op op, const cy_type *types, uint32_t nout, uint32_t k, cy_type *out) {
  *out = (cy_type){0};
  if (k < nout && types) {
    *out = types[k];
    return true;
  }
  if (!cy_op_of(op)->typed)
    return true;
  if (types && nout == 1 && k == 1 && (op == CY_OP_pool_max || op == CY_OP_topk)) {
    *out = types[0];
    out->dtype = CY_I64;
    return true;
  }
  cy_build_error(g, NULL, "op '%s' is built without the type of its output %u", cy_op_of(op)->name, k);
  return false;
}

cy_node cy_node_create(cy_graph *g, cy_op op, const cy_val *in, uint32_t nin, const cy_attr *attrs, uint32_t nattrs,
                       const cy_type *types, uint32_t nout) {
  const cy_op_info *info = cy_op_of(op);
  if (op == CY_OP_NONE || nin < (uint32_t)info->min_in || (info->max_in >= 0 && nin > (uint32_t)info->max_in))
    cy_bug("op '%s' with %u inputs", info->name, nin);
  uint32_t values_before = g->values.count, n_out = info->outs >= 0 ? (uint32_t)info->outs : nout;
  cy_node n = cy_chunks_add(&g->nodes, g->arena);
  cy_node_info *node = &cy_node_slot_of(g, n)->n;
  *node = (cy_node_info){.op = (uint16_t)op, .nin = nin, .nout = n_out, .origin = g->origin};
  node->in = cy_arena_copy(g->arena, in, sizeof *in * nin);
  node->out = CY_NEW_ARRAY(g->arena, cy_val, n_out);
  bool ok = set_attrs(g, node, attrs, nattrs);
  for (uint32_t k = 0; ok && k < n_out; k++) {
    cy_type type;
    ok = output_type(g, op, types, nout, k, &type);
    node->out[k] = cy_value_add(g, &type);
    cy_value_of(g, node->out[k])->node = n;
    cy_value_of(g, node->out[k])->output = k;
  }
  if (ok && cy_infer(g, n))
    return n;
  g->values.count = values_before; /* ids of what failed are used again */
  g->nodes.count--;
  return 0;
}

void cy_node_insert(cy_graph *g, cy_node n) {
  cy_block_append(g, g->in_block, g->before, n);
  cy_node_note_uses(g, n);
}

static bool same_dims(const cy_type *a, const cy_type *b) {
  return a->rank == b->rank && memcmp(a->dim, b->dim, sizeof(cy_dim) * a->rank) == 0;
}

static bool all_dims_are(const cy_graph *g, const cy_attr *a, int64_t v) {
  for (uint32_t i = 0; a && i < a->n; i++)
    if (a->kind == CY_KIND_DIMS ? !cy_dim_is(g, a->dims[i], v) : a->ints[i] != v)
      return false;
  return true;
}

/* The value that the op would only repeat, or 0. May step past a reshape that another reshape undoes. */
static cy_val unchanged(cy_graph *g, cy_op op, cy_val *x, uint32_t nin, const cy_attr *attrs, uint32_t nattrs,
                        const cy_type *type) {
  const cy_value *v = cy_value_of(g, *x);
  const cy_attr *a;
  switch (op) {
  case CY_OP_cast:
  case CY_OP_bitcast: return type && type->dtype == v->type.dtype ? *x : 0;
  case CY_OP_concat: return nin == 1 ? *x : 0;
  case CY_OP_expand: return type && same_dims(type, &v->type) ? *x : 0;
  case CY_OP_reshape:
    for (; type && !same_dims(type, &v->type); v = cy_value_of(g, *x)) {
      if (!v->node || cy_node_slot_of(g, v->node)->n.op != CY_OP_reshape || v->elems)
        return 0;
      *x = cy_node_slot_of(g, v->node)->n.in[0];
    }
    return type ? *x : 0;
  case CY_OP_transpose:
    a = find_raw(attrs, nattrs, CY_ATTR_perm);
    for (uint32_t i = 0; a && i < a->n; i++)
      if (a->ints[i] != (int64_t)i)
        return 0;
    return a && a->n == v->type.rank ? *x : 0;
  case CY_OP_slice:
    return type && same_dims(type, &v->type) && all_dims_are(g, find_raw(attrs, nattrs, CY_ATTR_starts), 0) &&
                   all_dims_are(g, find_raw(attrs, nattrs, CY_ATTR_steps), 1)
               ? *x
               : 0;
  case CY_OP_pad: return all_dims_are(g, find_raw(attrs, nattrs, CY_ATTR_pads), 0) ? *x : 0;
  default: return 0;
  }
}

/* COUNT symbols that stand for a dim of v now know it. */
static void bind_counts(cy_graph *g, cy_val v) {
  const cy_type *t = &cy_value_of(g, v)->type;
  for (int i = 0; i < t->rank; i++) {
    const cy_term *term;
    if (cy_dim_terms(g, t->dim[i], &term) != 1 || term->natoms != 1 || term->coef != 1)
      continue;
    const cy_atom *atom = cy_dim_atom(g, term->atoms[0]);
    cy_sym_info *s = atom->kind == CY_ATOM_SYM ? cy_sym_of(g, atom->sym) : NULL;
    if (s && s->kind == CY_SYM_COUNT && s->value == 0) {
      s->value = v;
      s->index = i;
    }
  }
}

cy_val cy_build(cy_graph *g, cy_op op, const cy_val *in, uint32_t nin, const cy_attr *attrs, uint32_t nattrs,
                const cy_type *types, uint32_t nout) {
  for (uint32_t k = 0; k < nin; k++)
    if (in[k] == 0 && !cy_op_input_optional(op, k))
      return 0;
  cy_val first = nin ? in[0] : 0;
  if (nin && first) {
    cy_val same = unchanged(g, op, &first, nin, attrs, nattrs, types);
    if (same)
      return same;
  }
  cy_node n = cy_node_create(g, op, nin == 1 ? &first : in, nin, attrs, nattrs, types, nout);
  if (!n)
    return 0;
  cy_node_info *node = &cy_node_slot_of(g, n)->n;
  cy_val out = node->nout ? node->out[0] : 0;
  if (cy_fold_small(g, n)) {
    g->nodes.count--;
    return out;
  }
  cy_op_class cls = cy_op_of(op)->cls;
  for (uint32_t k = 0; k < node->nout && (cls == CY_CLASS_CALL || cls == CY_CLASS_CTRL); k++)
    bind_counts(g, node->out[k]);
  cy_node_insert(g, n);
  return out;
}

cy_val cy_build_output(const cy_graph *g, cy_val first, uint32_t index) {
  if (first == 0)
    return 0;
  const cy_value *v = cy_value_of(g, first);
  if (v->node == 0) { /* folded: outputs have consecutive ids */
    return index == 0 ? first : first + index;
  }
  const cy_node_info *n = &cy_node_slot_of(g, v->node)->n;
  if (index >= n->nout)
    cy_bug("output %u of a node '%s' with %u", index, cy_op_of((cy_op)n->op)->name, n->nout);
  return n->out[index];
}
