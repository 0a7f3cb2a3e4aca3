/* SPDX-License-Identifier: Apache-2.0 */
/* importer.c - what importers of operators ask about the node at hand, and what they hand back.
 *
 * In:  the node, its scope. Out: locations for diagnostics, values of names, outputs set. What walks over the model and
 * calls the importers is import.c; nothing here leads back to it.
 */
#include "frontend/import_int.h"

#include <string.h>

cy_location cy_importer_where(cy_importer *im, const char *graph) {
  return (cy_location){.file = im->file, .graph = graph, .node_index = -1};
}

cy_location cy_importer_at(cy_importer *im, const cy_onnx_node *n) {
  cy_location where = cy_importer_where(im, cy_str_text(im->g, n->origin.graph));
  where.node = n->proto->name;
  where.op = n->op;
  where.node_index = n->origin.index;
  return where;
}

const char *cy_importer_quote(cy_importer *im, const char *what, const char *name) {
  return cy_arena_printf(im->arena, "%s '%s'", what, name);
}

bool cy_scope_find(const cy_scope *s, const char *name, cy_val *out_value) {
  for (; s; s = s->outer)
    if (cy_names_find(s->names, name, out_value))
      return true;
  return false;
}

bool cy_importer_set(cy_importer *im, const cy_onnx_node *n, uint32_t k, cy_val v) {
  (void)im;
  if (n->asked && k)
    n->asked->outputs = true;
  if (k < n->nout)
    n->out[k] = v;
  return v != 0;
}

void cy_onnx_at(cy_importer *im, const cy_onnx_node *n) { cy_build_origin(im->g, &n->origin); }

bool cy_onnx_wants(const cy_onnx_node *n, uint32_t k) {
  if (n->asked && k)
    n->asked->outputs = true;
  return k < n->proto->n_output && n->proto->output[k][0];
}

const char *cy_onnx_domain(const char *domain) { return !domain || strcmp(domain, "ai.onnx") == 0 ? "" : domain; }
