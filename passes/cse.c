/* SPDX-License-Identifier: Apache-2.0 */
/* cse.c - equal nodes and equal constants become one.
 *
 * In:  a swept graph. Out: no two nodes in sight of each other with the same op, inputs, attributes and types.
 * Method: blocks are walked in order with one hash table; entries made in a nested block are taken out when it ends, so
 *   a node is only ever replaced by one that is computed before it on every way there. Constants are made equal first:
 *   a hash over size and a sample of the bytes, then a full comparison, so big weights are read only when two of them
 *   look alike.
 * Runtime calls and control flow stay: their sizes are symbols of their own.
 */
#include "pass_int.h"

#include <string.h>

typedef struct entry {
  uint64_t hash;
  uint32_t id;   /* node, or value while constants are merged */
  uint32_t next; /* in the same bucket */
} entry;

typedef struct table {
  cy_pass *p;
  uint32_t *bucket; /* head entry + 1 */
  uint32_t mask;
  entry *entries;
  uint32_t n;
  uint64_t merged;
} table;

static uint64_t mix(uint64_t h, uint64_t v) {
  h = (h ^ v) * 0x9e3779b97f4a7c15u;
  return h ^ h >> 29;
}

static void init(table *t, cy_pass *p, uint32_t capacity) {
  uint32_t size = 64;
  while (size < capacity)
    size *= 2;
  *t = (table){.p = p, .mask = size - 1};
  t->bucket = CY_NEW_ARRAY(p->scratch, uint32_t, size);
  t->entries = CY_NEW_ARRAY(p->scratch, entry, capacity + 1);
}

static void insert(table *t, uint64_t hash, uint32_t id) {
  uint32_t *head = &t->bucket[hash & t->mask];
  t->entries[t->n] = (entry){hash, id, *head};
  *head = ++t->n;
}

/* Takes out everything inserted since there were n entries. */
static void undo(table *t, uint32_t n) {
  while (t->n > n) {
    entry *e = &t->entries[--t->n];
    t->bucket[e->hash & t->mask] = e->next;
  }
}

/* ---- constants ---- */

enum { SAMPLE = 2048 };

static uint64_t hash_bytes(uint64_t h, const unsigned char *b, uint64_t n) {
  for (; n >= 8; b += 8, n -= 8) {
    uint64_t word;
    memcpy(&word, b, 8);
    h = mix(h, word);
  }
  for (; n; n--)
    h = mix(h, *b++);
  return h;
}

static uint64_t hash_const(const cy_value *v) {
  uint64_t n = v->data.size, h = mix(v->type.dtype, n);
  h = hash_bytes(h, v->data.bytes, n < SAMPLE ? n : SAMPLE);
  return n > 2 * SAMPLE ? hash_bytes(h, (const unsigned char *)v->data.bytes + n - SAMPLE, SAMPLE) : h;
}

static bool equal_const(const cy_value *a, const cy_value *b) {
  return cy_type_equal(&a->type, &b->type) && a->data.size == b->data.size &&
         (a->data.bytes == b->data.bytes || !memcmp(a->data.bytes, b->data.bytes, a->data.size));
}

/* by[v]: the constant that stands for v, or 0. */
static void merge_constants(cy_pass *p) {
  cy_graph *g = p->g;
  uint32_t count = cy_value_count(g);
  table t;
  init(&t, p, count);
  cy_val *by = CY_NEW_ARRAY(p->scratch, cy_val, count + 1);
  for (cy_val v = 1; v <= count; v++) {
    const cy_value *value = cy_value_of(g, v);
    if (!value->data.bytes || value->node || value->type.content)
      continue;
    uint64_t h = hash_const(value);
    uint32_t e = t.bucket[h & t.mask];
    while (e && !(t.entries[e - 1].hash == h && equal_const(cy_value_of(g, t.entries[e - 1].id), value)))
      e = t.entries[e - 1].next;
    if (e)
      by[v] = t.entries[e - 1].id;
    else
      insert(&t, h, v);
  }
  uint64_t merged = 0;
  for (cy_block b = 1; b <= cy_block_count(g); b++)
    for (uint32_t i = 0; i < cy_block_of(g, b)->nnodes; i++) {
      cy_node_info *n = cy_node_of(g, cy_block_of(g, b)->nodes[i]);
      for (uint32_t k = 0; k < n->nin; k++)
        if (n->in[k] && n->in[k] <= count && by[n->in[k]]) {
          n->in[k] = by[n->in[k]];
          merged++;
        }
    }
  cy_pass_count(p, "constant uses merged", merged);
}

/* ---- nodes ---- */

static size_t attr_bytes(const cy_attr *a) {
  switch ((cy_attr_kind)a->kind) {
  case CY_KIND_INTS:
    return a->n * sizeof *a->ints;
  case CY_KIND_FLOATS:
    return a->n * sizeof *a->floats;
  case CY_KIND_DIMS:
    return a->n * sizeof *a->dims;
  default:
    return 0;
  }
}

static uint64_t hash_node(const cy_graph *g, const cy_node_info *n) {
  uint64_t h = mix(n->op, n->nin);
  bool swap = n->nin == 2 && cy_op_of((cy_op)n->op)->commutative && n->in[0] > n->in[1];
  for (uint32_t i = 0; i < n->nin; i++)
    h = mix(h, n->in[swap ? 1 - i : i]);
  for (uint32_t i = 0; i < n->nattrs; i++) {
    const cy_attr *a = &n->attrs[i];
    h = mix(h, a->key);
    h = attr_bytes(a) ? hash_bytes(h, (const unsigned char *)a->ints, attr_bytes(a)) : mix(h, (uint64_t)a->i);
  }
  for (uint32_t i = 0; i < n->nout; i++) {
    const cy_type *t = cy_type_of(g, n->out[i]);
    h = mix(h, t->dtype);
    h = hash_bytes(h, (const unsigned char *)t->dim, t->rank * sizeof *t->dim);
  }
  return h;
}

static bool equal_attrs(const cy_node_info *a, const cy_node_info *b) {
  if (a->nattrs != b->nattrs)
    return false;
  for (uint32_t i = 0; i < a->nattrs; i++) {
    const cy_attr *x = &a->attrs[i], *y = &b->attrs[i];
    if (x->key != y->key || x->kind != y->kind || x->n != y->n)
      return false;
    size_t bytes = attr_bytes(x);
    bool list = x->kind == CY_KIND_INTS || x->kind == CY_KIND_FLOATS || x->kind == CY_KIND_DIMS;
    if (list ? bytes && memcmp(x->ints, y->ints, bytes) : memcmp(&x->i, &y->i, x->kind == CY_KIND_BLOCK ? 4 : 8))
      return false;
  }
  return true;
}

static bool equal_node(const cy_graph *g, const cy_node_info *a, const cy_node_info *b) {
  if (a->op != b->op || a->nin != b->nin || a->nout != b->nout || !equal_attrs(a, b))
    return false;
  bool same = !a->nin || !memcmp(a->in, b->in, a->nin * sizeof *a->in);
  if (!same && !(a->nin == 2 && cy_op_of((cy_op)a->op)->commutative && a->in[0] == b->in[1] && a->in[1] == b->in[0]))
    return false;
  for (uint32_t i = 0; i < a->nout; i++)
    if (!cy_type_equal(cy_type_of(g, a->out[i]), cy_type_of(g, b->out[i])))
      return false;
  return true;
}

static void visit_block(table *t, cy_block b) {
  cy_graph *g = t->p->g;
  uint32_t mark = t->n, nnodes = cy_block_of(g, b)->nnodes;
  for (uint32_t i = 0; i < nnodes; i++) {
    cy_node id = cy_block_of(g, b)->nodes[i];
    cy_node_info *n = cy_node_of(g, id);
    cy_op_class cls = cy_op_of((cy_op)n->op)->cls;
    for (uint32_t k = 0; k < n->nattrs; k++)
      if (n->attrs[k].kind == CY_KIND_BLOCK)
        visit_block(t, n->attrs[k].block);
    if (cls == CY_CLASS_CALL || cls == CY_CLASS_CTRL)
      continue;
    uint64_t h = hash_node(g, n);
    uint32_t e = t->bucket[h & t->mask];
    while (e && !(t->entries[e - 1].hash == h && equal_node(g, cy_node_of(g, t->entries[e - 1].id), n)))
      e = t->entries[e - 1].next;
    if (!e) {
      insert(t, h, id);
      continue;
    }
    const cy_node_info *by = cy_node_of(g, t->entries[e - 1].id);
    for (uint32_t k = 0; k < n->nout; k++)
      cy_graph_replace(g, n->out[k], by->out[k]);
    t->merged++;
  }
  undo(t, mark);
}

/* requires: swept   establishes: swept, unique   breaks: placed, fused */
int cy_pass_cse(cy_pass *p) {
  merge_constants(p);
  table t;
  init(&t, p, cy_pass_nodes(p->g));
  visit_block(&t, 1);
  cy_pass_count(p, "nodes merged", t.merged);
  cy_graph_sweep(p->g);
  return 0;
}
