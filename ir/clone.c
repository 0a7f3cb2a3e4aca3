/* SPDX-License-Identifier: Apache-2.0 */
/* clone.c - a copy of a graph that may be changed without changing the other.
 *
 * In:  a graph. Out: another with the same ids: a value, node, block, symbol, dim or string of the one is that of the same
 * number in the other until either is edited. So what is learnt from a run of the clone holds for the graph it came from.
 *
 * Copied is what edits change where it lies: tables, lists of inputs, outputs, attributes, block contents, use lists. What
 * is never changed once it is there stays the original's: texts, terms of dims, lists in attributes, bytes of constants,
 * whether they are mapped from the model's file or were computed. So a clone may be large in nodes, never in weights, and
 * the original must outlive it.
 */
#include "ir_int.h"

static void *copy(cy_graph *g, const void *from, size_t count, size_t item) {
  return from ? cy_arena_copy(g->arena, from, count * item) : NULL;
}

static void copy_chunks(cy_graph *g, cy_chunks *c) {
  for (uint32_t k = 0; k < sizeof c->chunk / sizeof c->chunk[0]; k++)
    c->chunk[k] = copy(g, c->chunk[k], c->item, (size_t)256 << k);
}

static void copy_id_table(cy_graph *g, cy_id_table *t) { t->slot = copy(g, t->slot, t->size, sizeof *t->slot); }

static void copy_node(cy_graph *g, cy_node_slot *s) {
  cy_node_info *n = &s->n;
  n->in = copy(g, n->in, n->nin, sizeof *n->in);
  n->out = copy(g, n->out, n->nout, sizeof *n->out);
  n->attrs = copy(g, n->attrs, n->nattrs, sizeof *n->attrs);
  s->seen = copy(g, s->seen, s->nseen, sizeof *s->seen);
}

/* Results grow where they lie, as cy_block_set_results() and cy_graph_add_output() leave room for it. */
static cy_val *copy_growing(cy_graph *g, const cy_val *list, uint32_t n) {
  cy_val *to = list ? CY_NEW_ARRAY(g->arena, cy_val, 2 * (size_t)n + 1) : NULL;
  if (n)
    memcpy(to, list, n * sizeof *to);
  return to;
}

static void copy_block(cy_graph *g, cy_block_info *b) {
  b->nodes = copy(g, b->nodes, b->capacity, sizeof *b->nodes);
  b->params = copy_growing(g, b->params, b->nparams);
  b->results = copy_growing(g, b->results, b->nresults);
}

static void copy_tables(cy_graph *g) {
  cy_chunks *tables[] = {&g->values, &g->nodes, &g->blocks, &g->strs,  &g->dims,
                         &g->atoms,  &g->syms,  &g->uses,   &g->texts, &g->contents};
  for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
    copy_chunks(g, tables[i]);
  copy_id_table(g, &g->str_table);
  copy_id_table(g, &g->dim_table);
  copy_id_table(g, &g->atom_table);
  copy_id_table(g, &g->text_table);
  g->sym_of_str = copy(g, g->sym_of_str, g->sym_of_str_size, sizeof *g->sym_of_str);
  g->inputs = copy(g, g->inputs, g->inputs_cap, sizeof *g->inputs);
  g->outputs = copy(g, g->outputs, g->outputs_cap, sizeof *g->outputs);
  g->metadata = copy(g, g->metadata, g->metadata_cap, sizeof *g->metadata);
  g->touched = copy(g, g->touched, g->touched_cap, sizeof *g->touched);
  g->requirements = copy(g, g->requirements, g->requirements_cap, sizeof *g->requirements);
}

cy_graph *cy_graph_clone(const cy_graph *from) {
  cy_arena *a = cy_arena_create();
  cy_graph *g = cy_arena_copy(a, from, sizeof *from);
  g->arena = a;
  g->owned = NULL; /* the original releases it */
  copy_tables(g);
  for (cy_node n = 1; n <= g->nodes.count; n++)
    copy_node(g, cy_node_slot_of(g, n));
  for (cy_block b = 1; b <= g->blocks.count; b++)
    copy_block(g, cy_block_of(g, b));
  return g;
}
