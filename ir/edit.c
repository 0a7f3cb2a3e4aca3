/* SPDX-License-Identifier: Apache-2.0 */
/* edit.c - changing a graph: replacing values, sweeping dead nodes, users of values.
 *
 * Replacing follows the value's use list (see ir_int.h), so its cost is that of its uses. Sweeping starts from what
 * must stay: results of live blocks and values that live symbols read; a symbol is live when it occurs in the type,
 * layout or attributes of something live, or in a requirement of a live block. Removed nodes keep their ids; they are only in no block any more (block 0).
 */
#include "ir_int.h"

/* ---- use lists --------------------------------------------------------------------------------------------------- */

static cy_value_slot *slot_of(const cy_graph *g, cy_val v) { return cy_chunks_at(&g->values, v); }

static void add_use(cy_graph *g, cy_val v, cy_node n) {
  uint32_t u = cy_chunks_add(&g->uses, g->arena);
  *(cy_use *)cy_chunks_at(&g->uses, u) = (cy_use){n, slot_of(g, v)->uses};
  slot_of(g, v)->uses = u;
}

void cy_node_note_uses(cy_graph *g, cy_node n) {
  cy_node_slot *s = cy_node_slot_of(g, n);
  if (s->nseen < s->n.nin) {
    cy_val *seen = CY_NEW_ARRAY(g->arena, cy_val, s->n.nin);
    if (s->nseen)
      memcpy(seen, s->seen, sizeof *seen * s->nseen);
    s->seen = seen;
  }
  for (uint32_t k = 0; k < s->n.nin; k++) {
    cy_val v = s->n.in[k];
    if (v && (k >= s->nseen || s->seen[k] != v))
      add_use(g, v, n);
    s->seen[k] = v;
  }
  s->nseen = s->n.nin;
}

static void note_touched(cy_graph *g) {
  for (uint32_t i = 0; i < g->ntouched; i++) {
    if (g->touched[i] > g->nodes.count) /* folded away after it was looked at */
      continue;
    cy_node_slot_of(g, g->touched[i])->touched = false;
    cy_node_note_uses(g, g->touched[i]);
  }
  g->ntouched = 0;
}

static void replace_in(cy_val *list, uint32_t n, cy_val from, cy_val to) {
  for (uint32_t i = 0; i < n; i++)
    if (list[i] == from)
      list[i] = to;
}

void cy_graph_replace(cy_graph *g, cy_val from, cy_val to) {
  cy_value_of(g, to);
  if (from == to || from == 0)
    return;
  note_touched(g);
  uint32_t u = slot_of(g, from)->uses;
  slot_of(g, from)->uses = 0;
  while (u) {
    cy_use use = *(cy_use *)cy_chunks_at(&g->uses, u);
    cy_node_slot *s = cy_node_slot_of(g, use.node);
    replace_in(s->n.in, s->n.nin, from, to);
    cy_node_note_uses(g, use.node);
    u = use.next;
  }
  for (cy_block b = 1; b <= g->blocks.count; b++) {
    cy_block_info *block = cy_block_of(g, b);
    replace_in(block->results, block->nresults, from, to);
  }
  for (uint32_t i = 0; i < g->noutputs; i++)
    if (g->outputs[i].value == from)
      g->outputs[i].value = to;
  for (cy_sym s = 1; s <= g->syms.count; s++) {
    cy_sym_info *info = cy_sym_of(g, s);
    if (info->value == from)
      info->value = to;
  }
}

/* ---- sweeping ---------------------------------------------------------------------------------------------------- */

typedef struct sweep {
  cy_graph *g;
  bool *value, *node, *sym, *block;
  unsigned char *dim; /* dims already walked, by id */
  cy_val *stack;
  uint32_t top;
} sweep;

static void keep_value(sweep *s, cy_val v) {
  if (!v || s->value[v])
    return;
  s->value[v] = true;
  s->stack[s->top++] = v;
}

static void keep_sym(void *ctx, cy_sym id) {
  sweep *s = ctx;
  if (s->sym[id])
    return;
  s->sym[id] = true;
  keep_value(s, cy_sym_of(s->g, id)->value);
}

static void keep_dims(sweep *s, const cy_dim *d, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    if (!d[i] || s->dim[d[i]])
      continue;
    s->dim[d[i]] = 1;
    cy_dim_symbols(s->g, d[i], keep_sym, s);
  }
}

static void keep_type(sweep *s, const cy_type *t) { keep_dims(s, t->dim, t->rank); }

static void keep_block(sweep *s, cy_block b) {
  if (s->block[b])
    return;
  s->block[b] = true;
  const cy_block_info *info = cy_block_of(s->g, b);
  for (uint32_t i = 0; i < info->nresults; i++)
    keep_value(s, info->results[i]);
  for (uint32_t i = 0; i < info->nparams; i++)
    keep_type(s, &cy_value_of(s->g, info->params[i])->type);
  for (uint32_t i = 0; i < s->g->nrequirements; i++) { /* the model asks for these, whatever is computed in the end */
    const cy_requirement *r = &s->g->requirements[i];
    if (r->block == b)
      keep_dims(s, (cy_dim[]){r->a, r->b}, 2);
  }
}

static void keep_node(sweep *s, cy_node n) {
  if (!n || s->node[n])
    return;
  s->node[n] = true;
  const cy_node_info *info = &cy_node_slot_of(s->g, n)->n;
  for (uint32_t k = 0; k < info->nin; k++)
    keep_value(s, info->in[k]);
  for (uint32_t k = 0; k < info->nout; k++) /* a kernel writes all of its outputs */
    keep_type(s, &cy_value_of(s->g, info->out[k])->type);
  for (int k = 0; k < info->nattrs; k++) {
    if (info->attrs[k].kind == CY_KIND_DIMS)
      keep_dims(s, info->attrs[k].dims, info->attrs[k].n);
    if (info->attrs[k].kind == CY_KIND_BLOCK)
      keep_block(s, info->attrs[k].block);
  }
}

uint32_t cy_graph_sweep(cy_graph *g) {
  cy_arena *scratch = cy_arena_create();
  sweep s = {.g = g,
             .value = CY_NEW_ARRAY(scratch, bool, g->values.count + 1),
             .node = CY_NEW_ARRAY(scratch, bool, g->nodes.count + 1),
             .sym = CY_NEW_ARRAY(scratch, bool, g->syms.count + 1),
             .block = CY_NEW_ARRAY(scratch, bool, g->blocks.count + 1),
             .dim = CY_NEW_ARRAY(scratch, unsigned char, g->dims.count + 1),
             .stack = CY_NEW_ARRAY(scratch, cy_val, g->values.count + 1)};
  keep_block(&s, 1);
  while (s.top) {
    const cy_value *v = cy_value_of(g, s.stack[--s.top]);
    keep_type(&s, &v->type);
    keep_node(&s, v->node);
  }
  uint32_t removed = 0;
  for (cy_block b = 1; b <= g->blocks.count; b++) {
    cy_block_info *block = cy_block_of(g, b);
    uint32_t n = 0;
    for (uint32_t i = 0; i < block->nnodes; i++) {
      if (s.block[b] && s.node[block->nodes[i]])
        block->nodes[n++] = block->nodes[i];
      else
        cy_node_slot_of(g, block->nodes[i])->n.block = 0;
    }
    removed += block->nnodes - n;
    block->nnodes = n;
  }
  cy_arena_destroy(scratch);
  return removed;
}

/* ---- users ------------------------------------------------------------------------------------------------------- */

typedef struct use_fill {
  uint32_t *at;  /* counts, then next free place, by value */
  cy_node *list; /* NULL while counting */
} use_fill;

static void use(use_fill *f, cy_val v, cy_node n) {
  if (!v)
    return;
  if (f->list)
    f->list[f->at[v]] = n;
  f->at[v]++;
}

static void each_use(const cy_graph *g, use_fill *f) {
  for (cy_block b = 1; b <= g->blocks.count; b++) {
    const cy_block_info *block = cy_block_of(g, b);
    for (uint32_t i = 0; i < block->nnodes; i++) {
      const cy_node_info *n = &cy_node_slot_of(g, block->nodes[i])->n;
      for (uint32_t k = 0; k < n->nin; k++)
        use(f, n->in[k], block->nodes[i]);
    }
    for (uint32_t k = 0; k < block->nresults; k++)
      use(f, block->results[k], 0);
  }
  for (cy_sym s = 1; s <= g->syms.count; s++)
    if (cy_sym_of(g, s)->kind == CY_SYM_DATA)
      use(f, cy_sym_of(g, s)->value, 0);
}

cy_uses cy_graph_uses(const cy_graph *g, cy_arena *scratch) {
  uint32_t n = g->values.count, total = 0;
  uint32_t *start = CY_NEW_ARRAY(scratch, uint32_t, n + 2);
  use_fill f = {CY_NEW_ARRAY(scratch, uint32_t, n + 2), NULL};
  each_use(g, &f);
  for (cy_val v = 0; v <= n; v++) {
    start[v] = total;
    total += f.at[v];
    f.at[v] = start[v];
  }
  start[n + 1] = total;
  f.list = CY_NEW_ARRAY(scratch, cy_node, total + 1);
  each_use(g, &f);
  return (cy_uses){start, f.list};
}
