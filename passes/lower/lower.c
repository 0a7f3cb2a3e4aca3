/* SPDX-License-Identifier: Apache-2.0 */
/* lower.c - the driver of lowering: walks the graph once, gives every stored value a place, and appends the steps that
 * compute it.
 *
 * In: a graph whose values are marked inlined or not (fuse.c) and laid out (layout.c). Out: a program.
 * A node whose outputs are all inlined makes no step: its users compose it. A node that only renames memory makes none
 * either. For everything else the *root value* is looked for: the one reduction or contraction inlined into the value, if
 * any; its own kernel is then used, else a plain kernel with one grid axis per output axis. Symbols read from data
 * are set right behind the step that computes the data.
 */
#include "lower_int.h"

#include <string.h>

/* ---- the steps of a block ---- */

/* The reduction or root inlined into v's expression, v's own included; 0 when there is none. */
static cy_val find_root(cy_lowering *l, cy_val v) {
  const cy_value *val = cy_value_of(l->g, v);
  if (!val->node)
    return 0;
  const cy_node_info *n = cy_node_of(l->g, val->node);
  bool ends = n->op == CY_OP_quantize_rows; /* its kernel may be that of what it reads */
  if (!ends && (cy_op_of(n->op)->cls == CY_CLASS_ROOT || cy_op_of(n->op)->cls == CY_CLASS_REDUCE))
    return v;
  for (uint32_t i = 0; i < n->nin; i++) {
    if (!n->in[i] || !cy_value_of(l->g, n->in[i])->inlined || l->place[n->in[i]].placed)
      continue;
    cy_val a = find_root(l, n->in[i]);
    if (a)
      return a;
  }
  return 0;
}

static void lower_value(cy_lowering *l, cy_node node, cy_val v) {
  cy_val root_value = find_root(l, v);
  cy_node root = root_value ? cy_value_of(l->g, root_value)->node : 0;
  const cy_node_info *n = cy_node_of(l->g, node);
  cy_lower_alloc(l, v);
  if (n->op == CY_OP_quantize_rows)
    cy_lower_alloc(l, n->out[1]);
  cy_root_fn fn = cy_lower_root_of(root ? cy_node_of(l->g, root)->op : n->op);
  if (fn)
    fn(l, root ? root : node, root_value ? root_value : v, v);
  else if (!root || !cy_lower_parted_reduce(l, root, root_value, v))
    cy_lower_plain(l, root_value, v, cy_op_of(root ? cy_node_of(l->g, root)->op : n->op)->name, NULL);
}

static void lower_node(cy_lowering *l, cy_node node) {
  const cy_node_info *n = cy_node_of(l->g, node);
  l->node = node;
  if (n->op == CY_OP_if) {
    cy_lower_if(l, node);
  } else if (n->op == CY_OP_loop) {
    cy_lower_loop(l, node);
  } else if (cy_op_of(n->op)->cls == CY_CLASS_CALL) {
    if (!(l->o->level > 0 && l->caps->device) || !cy_lower_search(l, node))
      cy_lower_call(l, node);
  } else if (n->op == CY_OP_recurrent) { /* one kernel, three outputs */
    cy_lower_recurrent(l, node, n->out[0], n->out[0]);
  } else if (n->op == CY_OP_quantize_rows) { /* both outputs from the kernel of the first one */
    lower_value(l, node, n->out[0]);
  } else {
    for (uint32_t i = 0; i < n->nout; i++) {
      cy_value *v = cy_value_of(l->g, n->out[i]);
      if (l->found[n->out[i]] || v->inlined || v->data.bytes ||
          l->uses.start[n->out[i]] == l->uses.start[n->out[i] + 1])
        continue;
      bool may_rename = l->place[n->out[i]].placed || cy_lower_output_index(l, n->out[i]) < 0;
      if (may_rename && cy_op_of(n->op)->cls == CY_CLASS_VIEW && cy_lower_view(l, node))
        continue;
      lower_value(l, node, n->out[i]);
    }
  }
  for (uint32_t i = 0; i < n->nout; i++)
    if (l->sym_start[n->out[i]] != l->sym_start[n->out[i] + 1])
      cy_lower_read_symbols(l, n->out[i]);
}

static void lower_block(cy_lowering *l, cy_block block) {
  const cy_block_info *b = cy_block_of(l->g, block);
  cy_lower_concat_places(l, block);
  for (uint32_t i = 0; i < b->nnodes; i++)
    lower_node(l, b->nodes[i]);
}

/* ---- the whole graph ---- */

static void index_symbols(cy_lowering *l) {
  uint32_t nsyms = cy_sym_count(l->g);
  l->sym_start = CY_NEW_ARRAY(l->arena, uint32_t, l->nplaces + 1);
  l->sym_list = CY_NEW_ARRAY(l->arena, cy_sym, nsyms + 1);
  for (cy_sym s = 1; s <= nsyms; s++)
    if (cy_sym_of(l->g, s)->kind == CY_SYM_DATA)
      l->sym_start[cy_sym_of(l->g, s)->value + 1]++;
  for (uint32_t v = 1; v <= l->nplaces; v++)
    l->sym_start[v] += l->sym_start[v - 1];
  uint32_t *next = CY_NEW_ARRAY(l->arena, uint32_t, l->nplaces + 1);
  memcpy(next, l->sym_start, sizeof(uint32_t) * l->nplaces);
  for (cy_sym s = 1; s <= nsyms; s++)
    if (cy_sym_of(l->g, s)->kind == CY_SYM_DATA)
      l->sym_list[next[cy_sym_of(l->g, s)->value]++] = s;
}

/* Symbols whose data folding made a constant: no step computes it, so they are read at the start. */
static void read_constants(cy_lowering *l) {
  for (cy_val v = 1; v < l->nplaces; v++)
    if (l->sym_start[v] != l->sym_start[v + 1] && cy_value_of(l->g, v)->data.bytes)
      cy_lower_read_symbols(l, v);
}

static void place_inputs(cy_lowering *l) {
  const cy_port_info *ports;
  uint32_t n = cy_graph_inputs(l->g, &ports);
  for (uint32_t i = 0; i < n; i++) {
    const cy_type *t = cy_lower_type(l, ports[i].value);
    l->place[ports[i].value] = cy_lower_port(l, CY_BUF_INPUT, i, t);
    cy_lower_read_symbols(l, ports[i].value);
  }
}

/* Outputs that no kernel of their own computes: inputs and constants handed through, one value under two names. */
static void copy_outputs(cy_lowering *l) {
  const cy_port_info *ports;
  uint32_t n = cy_graph_outputs(l->g, &ports);
  for (uint32_t i = 0; i < n; i++) {
    cy_place *from = cy_lower_place(l, ports[i].value);
    cy_buffer *b = &l->p->buffers[from->buffer];
    if (b->kind == CY_BUF_OUTPUT && b->index == i)
      continue;
    const cy_type *t = cy_lower_type(l, ports[i].value);
    cy_place to = cy_lower_port(l, CY_BUF_OUTPUT, i, t);
    cy_lower_copy(l, cy_lower_place(l, ports[i].value), &to, t);
  }
}

static void number_step(void *next, cy_step *s) { s->position = (*(int32_t *)next)++; }

cy_program *cy_lower(cy_graph *g, const cy_lower_options *o) {
  cy_lowering l = {.g = g,
                   .o = o,
                   .caps = cy_caps_of(o->caps),
                   .arena = cy_arena_create(),
                   .p = cy_program_create(g),
                   .expr_of = cy_lower_expr_of,
                   .steps_of = lower_block};
  l.busy_parts = o->level > 0 ? l.caps->busy_parts : 0;
  l.splits_rows = o->level > 0 && l.caps->splits_rows;
  cy_graph_record(g, true);
  cy_graph_require_sizes(g);
  cy_graph_record(g, false);
  l.nplaces = cy_value_count(g) + 1;
  l.place = CY_NEW_ARRAY(l.arena, cy_place, l.nplaces);
  l.found = CY_NEW_ARRAY(l.arena, bool, l.nplaces);
  l.uses = cy_graph_uses(g, l.arena);
  index_symbols(&l);
  cy_lower_find_checks(&l);
  l.tail = &l.p->steps;
  place_inputs(&l);
  cy_lower_growing_places(&l);
  read_constants(&l);
  cy_lower_output_places(&l);
  lower_block(&l, 1);
  copy_outputs(&l);
  cy_lower_maxima_zeros(&l);
  int32_t next = 0;
  cy_steps_visit(l.p->steps, number_step, &next);
  cy_lower_check_shares(&l);
  cy_arena_destroy(l.arena);
  if (cy_diag_errors(cy_graph_diag(g)))
    return NULL;
  char why[1024] = "";
  if (o->verify && !cy_program_verify(l.p, why, sizeof why))
    cy_bug("lowering: %s", why);
  return l.p;
}
