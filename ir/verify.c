/* SPDX-License-Identifier: Apache-2.0 */
/* verify.c - checks every invariant of a graph, after passes and after reading text.
 *
 * In: a graph. Out: true, or the first violation as text: what, in which node, expected and found. Blocks are walked in
 * order with the set of values defined so far; what a nested block defines is unknown again behind it. Types are
 * inferred anew beside the stored ones. A violation is a mistake of cytoc (or of a hand-written text graph), never of a
 * model.
 */
#include "ir_int.h"

#include <stdarg.h>
#include <stdlib.h>

typedef struct checker {
  cy_graph *g;
  bool *defined;      /* by value */
  bool *seen;         /* by node */
  bool *entered;      /* by block */
  cy_diag_sink *sink; /* for what inference finds */
  char *text;
  size_t capacity;
} checker;

__attribute__((format(printf, 3, 4))) static bool wrong(checker *c, cy_node n, const char *format, ...) {
  va_list args;
  if (!c->text || c->capacity == 0)
    return false;
  int at = 0;
  if (n) {
    const cy_node_info *info = &cy_node_slot_of(c->g, n)->n;
    const char *out = info->nout && info->out[0] ? cy_str_text(c->g, cy_value_of(c->g, info->out[0])->name) : "";
    at = snprintf(c->text, c->capacity, "node %u (%s%s%s): ", n, cy_op_of((cy_op)info->op)->name, *out ? " -> " : "",
                  out);
  }
  va_start(args, format);
  if ((size_t)at < c->capacity)
    vsnprintf(c->text + at, c->capacity - (size_t)at, format, args);
  va_end(args);
  return false;
}

static const char *value_name(checker *c, cy_val v) {
  const char *name = cy_str_text(c->g, cy_value_of(c->g, v)->name);
  return *name ? name : cy_arena_printf(c->g->arena, "v%u", v);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static bool check_type(checker *c, cy_node n, cy_val v) {
  const cy_value *info = cy_value_of(c->g, v);
  const cy_type *t = &info->type;
  unsigned axes = 0;
  if (t->dtype == CY_NONE || t->dtype >= CY_DTYPE_COUNT || t->rank > CY_MAX_RANK)
    return wrong(c, n, "value '%s' has no valid type (dtype %d, rank %d)", value_name(c, v), t->dtype, t->rank);
  if ((t->dtype == CY_REF) != (t->content != 0) || t->content > c->g->contents.count || (t->content && t->rank))
    return wrong(c, n, "value '%s' is a reference without a description, or a tensor with one", value_name(c, v));
  for (int i = 0; i < t->rank; i++) {
    if (t->dim[i] == 0 || t->dim[i] > c->g->dims.count)
      return wrong(c, n, "value '%s' has no dim %d", value_name(c, v), i);
    axes |= info->layout[i] < t->rank ? 1u << info->layout[i] : 0;
  }
  if (axes != (1u << t->rank) - 1)
    return wrong(c, n, "the layout of value '%s' is no permutation of its axes", value_name(c, v));
  return true;
}

static bool check_const(checker *c, cy_node n, cy_val v) {
  const cy_value *info = cy_value_of(c->g, v);
  uint64_t count;
  if (!cy_type_static_count(c->g, &info->type, &count))
    return wrong(c, n, "constant '%s' has a symbolic type %s", value_name(c, v), cy_type_text(c->g, &info->type));
  uint64_t size = cy_dtype_bytes((cy_dtype)info->type.dtype, count);
  if (info->data.size < size)
    return wrong(c, n, "constant '%s' has %llu bytes, expected %llu for %s", value_name(c, v),
                 (unsigned long long)info->data.size, (unsigned long long)size, cy_type_text(c->g, &info->type));
  return true;
}

static bool check_use(checker *c, cy_node n, cy_val v) {
  if (v > c->g->values.count)
    return wrong(c, n, "uses value %u of %u", v, c->g->values.count);
  if (cy_value_is_const(c->g, v))
    return check_type(c, n, v) && check_const(c, n, v);
  if (!c->defined[v])
    return wrong(c, n, "uses '%s' before it is defined", value_name(c, v));
  return true;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static bool check_block(checker *c, cy_block b);

static bool check_attrs(checker *c, cy_node id) {
  const cy_node_info *n = &cy_node_slot_of(c->g, id)->n;
  const char *list = cy_op_of((cy_op)n->op)->attrs;
  cy_attr_key key;
  bool optional;
  int known = 0;
  while (cy_op_attr_next(&list, &key, &optional)) {
    const cy_attr *a = cy_attr_find(n, key);
    if (!a && !optional)
      return wrong(c, id, "has no attribute '%s'", cy_attr_name(key));
    if (a && a->kind != cy_attr_kind_in((cy_op)n->op, key))
      return wrong(c, id, "attribute '%s' has the wrong kind", cy_attr_name(key));
    known += a != NULL;
  }
  if (known != n->nattrs)
    return wrong(c, id, "has an attribute its op does not know, or one twice");
  for (int i = 0; i < n->nattrs; i++) {
    const cy_attr *a = &n->attrs[i];
    for (uint32_t k = 0; a->kind == CY_KIND_DIMS && k < a->n; k++)
      if (a->dims[k] == 0 || a->dims[k] > c->g->dims.count)
        return wrong(c, id, "attribute '%s' has no dim %u", cy_attr_name((cy_attr_key)a->key), k);
  }
  return true;
}

static bool check_blocks(checker *c, cy_node id) {
  const cy_node_info *n = &cy_node_slot_of(c->g, id)->n;
  for (int i = 0; i < n->nattrs; i++) {
    if (n->attrs[i].kind != CY_KIND_BLOCK)
      continue;
    cy_block b = n->attrs[i].block;
    if (b == 0 || b > c->g->blocks.count || c->entered[b])
      return wrong(c, id, "attribute '%s' has no block of its own", cy_attr_name((cy_attr_key)n->attrs[i].key));
    if (!check_block(c, b))
      return false;
  }
  return true;
}

static bool check_inputs(checker *c, cy_node id) {
  const cy_node_info *n = &cy_node_slot_of(c->g, id)->n;
  const cy_op_info *op = cy_op_of((cy_op)n->op);
  if ((int)n->nin < op->min_in || (op->max_in >= 0 && (int)n->nin > op->max_in))
    return wrong(c, id, "has %u inputs", n->nin);
  for (uint32_t k = 0; k < n->nin; k++) {
    if (n->in[k] == 0 && !cy_op_input_optional((cy_op)n->op, k))
      return wrong(c, id, "has no input %u", k);
    if (n->in[k] && !check_use(c, id, n->in[k]))
      return false;
  }
  return true;
}

static bool check_outputs(checker *c, cy_node id) {
  const cy_node_info *n = &cy_node_slot_of(c->g, id)->n;
  const cy_op_info *op = cy_op_of((cy_op)n->op);
  if (op->outs >= 0 && (int)n->nout != op->outs)
    return wrong(c, id, "has %u outputs, expected %d", n->nout, op->outs);
  for (uint32_t k = 0; k < n->nout; k++) {
    const cy_value *v = cy_value_of(c->g, n->out[k]);
    if (v->node != id || v->output != k)
      return wrong(c, id, "its output %u ('%s') belongs to node %u", k, value_name(c, n->out[k]), v->node);
    if (v->data.bytes || v->param)
      return wrong(c, id, "its output %u ('%s') is a %s too", k, value_name(c, n->out[k]),
                   v->param ? "parameter" : "constant");
    if (!check_type(c, id, n->out[k]))
      return false;
  }
  return true;
}

/* The diagnostics of a sink as one line. */
static const char *sink_text(cy_graph *g, cy_diag_sink *sink) {
  char *text = NULL;
  size_t size = 0;
  FILE *f = open_memstream(&text, &size);
  if (!f)
    cy_no_memory();
  cy_diag_print(sink, f);
  fclose(f);
  const char *start = strstr(text, "error: ");
  start = start ? start + strlen("error: ") : text;
  const char *copy = cy_arena_printf(g->arena, "%.*s", (int)strcspn(start, "\n"), start);
  free(text);
  return copy;
}

static bool check_inference(checker *c, cy_node id) {
  cy_graph *g = c->g;
  const cy_node_info *n = &cy_node_slot_of(g, id)->n;
  cy_type *stored = CY_NEW_ARRAY(g->arena, cy_type, n->nout);
  for (uint32_t k = 0; k < n->nout; k++)
    stored[k] = cy_value_of(g, n->out[k])->type;
  cy_diag_sink *diag = g->diag;
  cy_origin origin = g->origin;
  g->diag = c->sink;
  g->origin = (cy_origin){.index = -1};
  bool ok = cy_infer(g, id);
  const char *why = ok ? "" : sink_text(g, g->diag);
  g->diag = diag;
  g->origin = origin;
  if (!ok)
    wrong(c, id, "%s", why);
  for (uint32_t k = 0; k < n->nout; k++) {
    cy_type inferred = cy_value_of(g, n->out[k])->type;
    if (ok && !cy_type_equal(&inferred, &stored[k]))
      ok = wrong(c, id, "expected type %s, found %s", cy_type_text(g, &inferred), cy_type_text(g, &stored[k]));
    cy_value_of(g, n->out[k])->type = stored[k];
  }
  return ok;
}

static bool check_node(checker *c, cy_block b, cy_node id) {
  if (id == 0 || id > c->g->nodes.count)
    return wrong(c, 0, "block %u lists node %u of %u", b, id, c->g->nodes.count);
  const cy_node_info *n = &cy_node_slot_of(c->g, id)->n;
  if (n->op == CY_OP_NONE || n->op >= CY_OP_COUNT)
    return wrong(c, id, "has no op");
  if (c->seen[id])
    return wrong(c, id, "is in two places");
  c->seen[id] = true;
  if (n->block != b)
    return wrong(c, id, "is in block %u and says %u", b, n->block);
  if (!check_inputs(c, id) || !check_attrs(c, id) || !check_blocks(c, id) || !check_outputs(c, id) ||
      !check_inference(c, id))
    return false;
  for (uint32_t k = 0; k < n->nout; k++)
    c->defined[n->out[k]] = true;
  return true;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static bool check_block(checker *c, cy_block b) {
  const cy_block_info *block = cy_block_of(c->g, b);
  c->entered[b] = true;
  for (uint32_t i = 0; i < block->nparams; i++) {
    if (!check_type(c, 0, block->params[i]))
      return false;
    if (!cy_value_of(c->g, block->params[i])->param)
      return wrong(c, 0, "parameter '%s' of block %u is not marked as one", value_name(c, block->params[i]), b);
    c->defined[block->params[i]] = true;
  }
  for (uint32_t i = 0; i < block->nnodes; i++)
    if (!check_node(c, b, block->nodes[i]))
      return false;
  for (uint32_t i = 0; i < block->nresults; i++) {
    if (block->results[i] == 0)
      return wrong(c, 0, "block %u has no result %u", b, i);
    if (!check_use(c, 0, block->results[i]))
      return false;
  }
  for (uint32_t i = 0; i < block->nparams && b != 1; i++)
    c->defined[block->params[i]] = false;
  for (uint32_t i = 0; i < block->nnodes && b != 1; i++) {
    const cy_node_info *n = &cy_node_slot_of(c->g, block->nodes[i])->n;
    for (uint32_t k = 0; k < n->nout; k++)
      c->defined[n->out[k]] = false;
  }
  return true;
}

static bool check_ports(checker *c) {
  const cy_graph *g = c->g;
  const cy_block_info *top = cy_block_of(g, 1);
  if (g->ninputs != top->nparams || g->noutputs != top->nresults)
    return wrong(c, 0, "the model has %u inputs and %u outputs, its block %u and %u", g->ninputs, g->noutputs,
                 top->nparams, top->nresults);
  for (uint32_t i = 0; i < g->ninputs; i++)
    if (g->inputs[i].value != top->params[i])
      return wrong(c, 0, "input %u is not the block's parameter", i);
  for (uint32_t i = 0; i < g->noutputs; i++)
    if (g->outputs[i].value != top->results[i])
      return wrong(c, 0, "output %u is not the block's result", i);
  return true;
}

bool cy_graph_verify(cy_graph *g, char *out_text, size_t capacity) {
  cy_arena *scratch = cy_arena_create();
  if (out_text && capacity)
    *out_text = 0;
  checker c = {g,
               CY_NEW_ARRAY(scratch, bool, g->values.count + 1),
               CY_NEW_ARRAY(scratch, bool, g->nodes.count + 1),
               CY_NEW_ARRAY(scratch, bool, g->blocks.count + 1),
               cy_diag_create(),
               out_text,
               capacity};
  bool ok = check_ports(&c) && check_block(&c, 1);
  for (cy_sym s = 1; s <= g->syms.count && ok; s++)
    if (cy_sym_of(g, s)->value > g->values.count)
      ok = wrong(&c, 0, "symbol '%s' reads value %u of %u", cy_str_text(g, cy_sym_of(g, s)->name),
                 cy_sym_of(g, s)->value, g->values.count);
  cy_diag_destroy(c.sink);
  cy_arena_destroy(scratch);
  return ok;
}
