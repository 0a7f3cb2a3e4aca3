/* SPDX-License-Identifier: Apache-2.0 */
/* capability.c - which nodes of a graph are taken, and in what groups.
 *
 * In:  an OrtGraph.
 * Out: groups of nodes, each compiled already, that ONNX Runtime fuses into one node each. What cytoc has no operator or
 *      type for, or cannot compile, is left to other providers; so are EPContext nodes but those that this one wrote.
 *
 * Levels.  A node that is left raises the level of what depends on a node that is taken and then on it. Nodes taken of one
 *   level are a group: no way leads out of it and back, and there are no more groups than dependencies need.
 * Bodies.  ONNX Runtime asks for the bodies of branches and loops first. Where the node itself can be taken, nothing of
 *   its bodies is: it is taken whole when its graph's turn comes.
 * Refusals.  The compiler names the nodes that it cannot compile. They are left, and what remains is grouped anew.
 */
#include "integrations/onnxruntime/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what can be compiled ---- */

#define AI ""
#define MS "com.microsoft"
#define ML "ai.onnx.ml"
#define PREVIEW "ai.onnx.preview"
#define TRAINING "ai.onnx.preview.training"

/* The compiler's own table; whether a version or a form of an operator is served is its answer when it compiles. */
static const struct known_op {
  const char *domain, *op;
} known_ops[] = {
#define ONNX_OP(domain, op, since, need, fn, arg) {domain, op},
#include "frontend/onnx_ops.def"
#undef ONNX_OP
};

static bool knows_op(const node *n) {
  const char *domain = strcmp(n->domain, "ai.onnx") ? n->domain : "";
  for (size_t i = 0; i < sizeof known_ops / sizeof known_ops[0]; i++)
    if (!strcmp(known_ops[i].op, n->op) && !strcmp(known_ops[i].domain, domain))
      return true;
  return false;
}

static bool knows_types(walk *w, const ort_value_info **values, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (values[i] && *walk_name(w, values[i]) && !walk_type(w, values[i]).dtype)
      return false;
  return true;
}

static bool knows_attributes(walk *w, const node *n) {
  size_t count;
  attribute *all = walk_attributes(w, n, &count);
  for (size_t i = 0; i < count; i++)
    if (all[i].kind < ORT_ATTR_INT || all[i].kind > ORT_ATTR_TENSOR)
      return false;
  return true;
}

static bool can_take(walk *w, const node *n) {
  if (!knows_op(n) || !knows_types(w, n->in, n->n_in) || !knows_types(w, n->out, n->n_out) ||
      !knows_types(w, n->implicit, n->n_implicit) || !knows_attributes(w, n))
    return false;
  for (size_t i = 0; i < n->n_bodies; i++)
    for (size_t k = 0; k < n->bodies[i].n; k++)
      if (!can_take(w, &n->bodies[i].nodes[k]))
        return false;
  return true;
}

bool node_is_context(walk *w, const node *n) {
  if (strcmp(n->op, "EPContext") || strcmp(n->domain, MS))
    return false;
  size_t count, bytes;
  attribute *all = walk_attributes(w, n, &count);
  const attribute *source = attribute_find(all, count, "source");
  return source && source->kind == ORT_ATTR_STRING && !strcmp(walk_attribute(w, source, &bytes), PLUGIN_NAME);
}

/* ---- groups ---- */

typedef struct search {
  walk *w;
  graph g;
  int levels;
  names made_at;  /* level and place of who makes a value: level * 2, and 1 if the node is taken */
  names escaping; /* values that are read outside of the group that makes them */
  bool *taken;    /* [g.n] of the group at hand */
  size_t *at;     /* [g.n] the nodes of the group at hand */
  size_t n_taken;
  bool changed; /* a node is no longer ours */
} search;

static void raise_level(search *s, node *n, const ort_value_info *value) {
  const char *name = walk_name(s->w, value);
  intptr_t *made = *name ? names_at(s->w, &s->made_at, name, false) : NULL;
  if (!made)
    return;
  int level = (int)(*made / 2), maker_ours = *made % 2;
  if (!n->ours && maker_ours)
    level++;
  if (level > n->level)
    n->level = level;
}

static void find_levels(search *s) {
  s->made_at = (names){0};
  s->levels = 0;
  for (size_t i = 0; i < s->g.n; i++) {
    node *n = &s->g.nodes[i];
    n->level = 0;
    for (size_t k = 0; k < n->n_in; k++)
      raise_level(s, n, n->in[k]);
    for (size_t k = 0; k < n->n_implicit; k++)
      raise_level(s, n, n->implicit[k]);
    for (size_t k = 0; k < n->n_out; k++) {
      const char *name = walk_name(s->w, n->out[k]);
      if (*name)
        *names_at(s->w, &s->made_at, name, true) = 2 * (intptr_t)n->level + n->ours;
    }
    if (n->level >= s->levels)
      s->levels = n->level + 1;
  }
}

static void read_value(search *s, const node *n, const ort_value_info *value) {
  const char *name = walk_name(s->w, value);
  intptr_t *made = *name ? names_at(s->w, &s->made_at, name, false) : NULL;
  if (made && *made != 2 * (intptr_t)n->level + n->ours)
    *names_at(s->w, &s->escaping, name, true) = 1;
}

static void find_escaping(search *s) {
  size_t n_outputs;
  const ort_value_info **outputs = walk_outputs(s->w, s->g.ort, &n_outputs);
  s->escaping = (names){0};
  for (size_t i = 0; i < n_outputs; i++)
    *names_at(s->w, &s->escaping, walk_name(s->w, outputs[i]), true) = 1;
  for (size_t i = 0; i < s->g.n; i++) {
    const node *n = &s->g.nodes[i];
    for (size_t k = 0; k < n->n_in; k++)
      read_value(s, n, n->in[k]);
    for (size_t k = 0; k < n->n_implicit; k++)
      read_value(s, n, n->implicit[k]);
  }
}

static void take_level(search *s, int level) {
  s->n_taken = 0;
  for (size_t i = 0; i < s->g.n; i++) {
    s->taken[i] = s->g.nodes[i].ours && s->g.nodes[i].level == level;
    if (s->taken[i])
      s->at[s->n_taken++] = i;
  }
}

static void leave(search *s, node *n, const char *why) {
  if (!n->ours)
    return;
  n->ours = false;
  s->changed = true;
  ep_log(s->w->ep, ORT_LOG_INFO, "node '%s' (%s) is left to ONNX Runtime: %s", n->name, n->op, why);
}

/* ---- what has to be known at the edge of a group ---- */

static bool comes_in(search *s, const node *n, const ort_value_info *value) {
  const char *name = walk_name(s->w, value);
  intptr_t *made = *name ? names_at(s->w, &s->made_at, name, false) : NULL;
  return *name && !(made && *made == 2 * (intptr_t)n->level + 1) && !walk_is_constant(s->w, value);
}

static void check_ranks(search *s, node *n, const ort_value_info **values, size_t count) {
  for (size_t k = 0; k < count; k++)
    if (comes_in(s, n, values[k]) && !walk_type(s->w, values[k]).has_shape)
      leave(s, n, "the rank of an input is not known");
}

/* ---- what the compiler says ---- */

static bool has_body(const node *n, const char *name) {
  for (size_t i = 0; i < n->n_bodies; i++) {
    const graph *body = &n->bodies[i];
    if (!strcmp(body->name ? body->name : "", name))
      return true;
    for (size_t k = 0; k < body->n; k++)
      if (has_body(&body->nodes[k], name))
        return true;
  }
  return false;
}

static void on_diagnostic(void *ctx, const cytoc_diagnostic *d) {
  search *s = ctx;
  for (size_t i = 0; i < s->n_taken; i++) {
    node *n = &s->g.nodes[s->at[i]];
    if ((!strcmp(d->graph, MODEL_GRAPH) && d->node_index == (int64_t)i) || has_body(n, d->graph))
      leave(s, n, d->text);
  }
}

/* A group is compiled here, before it is offered: what cannot be is left. Where the machine or the options are at fault, the
 * group is offered all the same, so that creating the session fails with that error. */
static void try_group(search *s) {
  model m;
  model_write(s->w, &s->g, s->taken, &s->escaping, &m);
  if (!m.n_outputs) { /* nobody reads what it computes */
    for (size_t i = 0; i < s->n_taken; i++)
      leave(s, &s->g.nodes[s->at[i]], "no output is used");
    return;
  }
  refusal r = {.ctx = s, .on_diagnostic = on_diagnostic};
  if (unit_of((ep *)s->w->ep, &m, &r))
    return;
  const char *why = s->w->ort->GetErrorMessage(r.status);
  for (size_t i = 0; r.of_model && !s->changed && i < s->n_taken; i++)
    s->g.nodes[s->at[i]].ours = false;
  if (r.of_model && !s->changed) {
    s->changed = true;
    ep_log(s->w->ep, ORT_LOG_WARNING, "a group of %zu nodes is left to ONNX Runtime: %s", s->n_taken, why);
  }
  s->w->ort->ReleaseStatus(r.status);
}

/* Until all groups are compiled. Every round leaves a node, or is the last. */
static void settle(search *s) {
  do {
    s->changed = false;
    find_levels(s);
    find_escaping(s);
    for (size_t i = 0; i < s->g.n; i++)
      if (s->g.nodes[i].ours) {
        check_ranks(s, &s->g.nodes[i], s->g.nodes[i].in, s->g.nodes[i].n_in);
        check_ranks(s, &s->g.nodes[i], s->g.nodes[i].implicit, s->g.nodes[i].n_implicit);
      }
    for (int level = 0; !s->changed && level < s->levels; level++) {
      take_level(s, level);
      if (s->n_taken)
        try_group(s);
    }
  } while (s->changed);
}

static void fuse(search *s, ort_support *support, const ort_node *const *nodes, size_t n, bool drop_constants) {
  const ort_fusion fusion = {.version = ORT_OLDEST, .drop_constants = drop_constants};
  walk_check(s->w, s->w->ort->EpGraphSupportInfo_AddNodesToFuse(support, nodes, n, &fusion));
}

/* Constants of a group are in its library, and ONNX Runtime may release its own: but for those of bodies of which it saves the
 * nodes as they were (models with EPContext nodes have these in the main graph only), and for what an EPContext node reads,
 * which may have become one since the model was saved: a graph input with a value that nobody gave. */
static void offer(search *s, ort_support *support, bool is_main) {
  const ort_node **nodes = walk_take(s->w, s->g.n, sizeof *nodes);
  ep *e = (ep *)s->w->ep;
  for (int level = 0; level < s->levels; level++) {
    take_level(s, level);
    for (size_t i = 0; i < s->n_taken; i++)
      nodes[i] = s->g.nodes[s->at[i]].ort;
    if (s->n_taken)
      fuse(s, support, nodes, s->n_taken, is_main || !e->context_enable);
  }
  size_t n_left = 0;
  for (size_t i = 0; i < s->g.n; i++)
    if (!node_is_context(s->w, &s->g.nodes[i]))
      n_left += !s->g.nodes[i].ours;
    else
      fuse(s, support, &s->g.nodes[i].ort, 1, false);
  if (is_main)
    e->alone = !n_left;
}

/* The node whose body the graph is; false: it is no body. */
static bool node_around(walk *w, const ort_graph *ort, node *out) {
  const ort_node *around = NULL;
  walk_check(w, w->ort->Graph_GetParentNode(ort, &around));
  if (around)
    walk_node(w, around, out);
  return around;
}

/* Other nodes with bodies are functions, such as SequenceMap, which ONNX Runtime inlines: it would find no operator set for a
 * node that is fused by then. */
static bool keeps_bodies(const node *n) {
  return !*n->domain && (!strcmp(n->op, "If") || !strcmp(n->op, "Loop") || !strcmp(n->op, "Scan"));
}

static void take_graph(walk *w, const ort_graph *ort, ort_support *support) {
  search s = {.w = w};
  node around;
  bool nested = node_around(w, ort, &around);
  if (nested && (can_take(w, &around) || !keeps_bodies(&around)))
    return;
  walk_graph(w, ort, &s.g);
  s.taken = walk_take(w, s.g.n, sizeof *s.taken);
  s.at = walk_take(w, s.g.n, sizeof *s.at);
  for (size_t i = 0; i < s.g.n; i++)
    s.g.nodes[i].ours = can_take(w, &s.g.nodes[i]);
  settle(&s);
  offer(&s, support, !nested);
}

ort_status *capability(ort_ep *self, const ort_graph *ort, ort_support *support) {
  walk w = {.ep = (ep *)self, .ort = ((ep *)self)->ort};
  if (!setjmp(w.failed))
    take_graph(&w, ort, support);
  walk_free(&w);
  return w.status;
}
