/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - what can be said about a model before it is imported.
 *
 * In:  the ModelProto. Out: diagnostics about opset versions, and about every operator that nothing implements, all in
 * one go, each once with the number of nodes that use it: whoever ports a model sees the whole task.
 */
#include "frontend/import_int.h"

#include <string.h>

enum { FIRST_IR_WITH_OPSETS = 3 }; /* older models mean opset 1 */

int cy_opset_version(const cy_opsets *sets, const char *domain) {
  for (size_t i = 0; i < sets->n; i++)
    if (strcmp(cy_onnx_domain(sets->ids[i]->domain), domain) == 0)
      return (int)sets->ids[i]->version;
  return domain[0] ? 1 : CY_ONNX_NEWEST_OPSET;
}

static bool check_opsets(cy_importer *im, const cy_opsets *sets, const char *graph) {
  cy_location where = cy_importer_where(im, graph);
  bool ok = true;
  for (size_t i = 0; i < sets->n; i++) {
    const char *domain = cy_onnx_domain(sets->ids[i]->domain);
    long long version = (long long)sets->ids[i]->version;
    if (version < 1 || (!domain[0] && version > CY_ONNX_ABSURD_OPSET) || version > 1 << 20) {
      cy_diag_add(im->diag, CY_ERROR, &where,
                  "opset version %lld of domain '%s' does not exist; the newest known one is %d", version, domain,
                  CY_ONNX_NEWEST_OPSET);
      ok = false;
    } else if (!domain[0] && version > CY_ONNX_NEWEST_OPSET) {
      cy_diag_add(im->diag, CY_WARNING, &where,
                  "opset version %lld is newer than the newest known one, %d: operators are read as of %d", version,
                  CY_ONNX_NEWEST_OPSET, CY_ONNX_NEWEST_OPSET);
    }
  }
  return ok;
}

typedef struct missing {
  const char *domain, *op, *graph, *node;
  int64_t index;
  int version;
  uint32_t count;
  struct missing *next;
} missing;

typedef struct survey {
  cy_importer *im;
  cy_names *visited; /* functions */
  missing *first, **last;
  bool ok;
} survey;

static void note_missing(survey *s, const Onnx__NodeProto *n, const char *domain, const char *graph, size_t index,
                         int version) {
  const char *op = n->op_type ? n->op_type : "";
  for (missing *m = s->first; m; m = m->next) {
    if (strcmp(m->op, op) == 0 && strcmp(m->domain, domain) == 0) {
      m->count++;
      return;
    }
  }
  missing *m = CY_NEW(s->im->arena, missing);
  *m = (missing){.domain = domain,
                 .op = op,
                 .graph = graph,
                 .node = n->name,
                 .index = (int64_t)index,
                 .version = version,
                 .count = 1};
  *s->last = m;
  s->last = &m->next;
}

static void survey_nodes(survey *s, Onnx__NodeProto *const *nodes, size_t n, const cy_opsets *sets, const char *graph,
                         int depth);

static void survey_graph(survey *s, const Onnx__GraphProto *g, const cy_opsets *sets, int depth) {
  survey_nodes(s, g->node, g->n_node, sets, g->name, depth);
}

static void survey_function(survey *s, const Onnx__FunctionProto *f, const cy_opsets *caller, int depth) {
  const char *key = cy_arena_printf(s->im->arena, "%p", (const void *)f);
  uint32_t seen;
  if (cy_names_find(s->visited, key, &seen))
    return;
  cy_names_set(s->visited, key, 1);
  cy_opsets sets = f->n_opset_import ? (cy_opsets){f->n_opset_import, f->opset_import} : *caller;
  s->ok = check_opsets(s->im, &sets, f->name) && s->ok;
  survey_nodes(s, f->node, f->n_node, &sets, f->name, depth + 1);
}

static void survey_nodes(survey *s, Onnx__NodeProto *const *nodes, size_t n, const cy_opsets *sets, const char *graph,
                         int depth) {
  if (depth > CY_MAX_PROTO_DEPTH)
    return; /* a chain of functions that deep is refused when it is expanded */
  for (size_t i = 0; i < n; i++) {
    const Onnx__FunctionProto *f = cy_function_find(s->im, nodes[i]);
    const char *domain = cy_onnx_domain(nodes[i]->domain);
    int version = cy_opset_version(sets, domain);
    if (f)
      survey_function(s, f, sets, depth);
    else if (!cy_onnx_find(domain, nodes[i]->op_type ? nodes[i]->op_type : "", version))
      note_missing(s, nodes[i], domain, graph, i, version);
    for (size_t a = 0; a < nodes[i]->n_attribute; a++) {
      const Onnx__AttributeProto *attr = nodes[i]->attribute[a];
      if (attr->g)
        survey_graph(s, attr->g, sets, depth + 1);
      for (size_t k = 0; k < attr->n_graphs; k++)
        survey_graph(s, attr->graphs[k], sets, depth + 1);
    }
  }
}

/* Operators that are not supported, and what to ask of the tool that wrote them. op NULL: all of the domain. */
static const struct {
  const char *domain, *op, *advice;
} instead[] = {
    {"com.microsoft.nchwc", NULL,
     "has its weights in an order that one CPU wanted: take the model before ONNX Runtime optimised it, or saved at "
     "ORT_ENABLE_EXTENDED"},
    {"com.microsoft", "PagedAttention",
     "has its keys and values in pages that a server hands out: have the model built with a cache for each sequence "
     "(onnxruntime-genai: without use_paged_attention, which gives GroupQueryAttention)"},
};

static void report(cy_importer *im, const missing *m) {
  cy_location where = {.file = im->file, .graph = m->graph, .node = m->node, .op = m->op, .node_index = m->index};
  const char *nodes = m->count == 1 ? "1 node uses it" : cy_arena_printf(im->arena, "%u nodes use it", m->count);
  if (!m->domain[0]) {
    cy_diag_add(im->diag, CY_ERROR, &where, "operator '%s' (opset %d) is not supported; %s", m->op, m->version, nodes);
    return;
  }
  for (size_t i = 0; i < sizeof instead / sizeof *instead; i++)
    if (strcmp(m->domain, instead[i].domain) == 0 && (!instead[i].op || strcmp(m->op, instead[i].op) == 0)) {
      cy_diag_add(im->diag, CY_ERROR, &where, "operator '%s' of domain '%s' %s; %s", m->op, m->domain,
                  instead[i].advice, nodes);
      return;
    }
  cy_diag_add(im->diag, CY_ERROR, &where,
              "operator '%s' of %sdomain '%s' is not supported and the model has no function for it; %s", m->op,
              cy_onnx_knows_domain(m->domain) ? "" : "the unknown ", m->domain, nodes);
}

bool cy_check_model(cy_importer *im) {
  cy_opsets sets = {im->model->n_opset_import, im->model->opset_import};
  const Onnx__GraphProto *g = im->model->graph;
  int before = cy_diag_errors(im->diag);
  if (im->model->ir_version > ONNX__VERSION__IR_VERSION) {
    cy_location where = cy_importer_where(im, g->name);
    cy_diag_add(
        im->diag, CY_ERROR, &where,
        "ir_version %lld is newer than %d, the newest known one: fields may be missed that change what the model "
        "means",
        (long long)im->model->ir_version, ONNX__VERSION__IR_VERSION);
    return false;
  }
  if (!sets.n && im->model->ir_version >= FIRST_IR_WITH_OPSETS) {
    cy_location where = cy_importer_where(im, g->name);
    cy_diag_add(im->diag, CY_ERROR, &where,
                "no opset_import, which ir_version %lld requires: the meaning of the operators is not known",
                (long long)im->model->ir_version);
    return false;
  }
  if (!check_opsets(im, &sets, g->name))
    return false;
  survey s = {.im = im, .visited = cy_names_create(im->arena), .last = NULL, .ok = true};
  s.last = &s.first;
  survey_graph(&s, g, &sets, 0);
  for (const missing *m = s.first; m; m = m->next)
    report(im, m);
  return s.ok && cy_diag_errors(im->diag) == before;
}
