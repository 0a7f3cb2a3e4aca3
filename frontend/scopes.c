/* SPDX-License-Identifier: Apache-2.0 */
/* scopes.c - the names of a graph: initializers, declared ranks, what a subgraph puts out.
 *
 * In:  a GraphProto. Out: a scope with its names bound to values; of a subgraph, its nodes are imported, too, by what walks
 * over nodes (cy_importer.import_nodes).
 */
#include "frontend/import_int.h"

void cy_scope_origin(cy_importer *im, const cy_scope *scope) {
  cy_origin o = {.graph = scope->graph, .index = -1};
  cy_build_origin(im->g, &o);
}

void cy_scope_bind(cy_importer *im, cy_scope *scope, const char *name, cy_val v) {
  uint32_t rank;
  cy_names_set(scope->names, name, v);
  if (v && scope->ranks && cy_names_find(scope->ranks, name, &rank) && !cy_onnx_type(im, v)->content &&
      rank != cy_onnx_type(im, v)->rank)
    cy_choices_misfit(im->choices, CY_MISFIT_RANK);
  if (v && !cy_value_of(im->g, v)->name)
    cy_value_of(im->g, v)->name = cy_intern(im->g, name);
}

cy_names *cy_scope_outputs(cy_importer *im, const Onnx__GraphProto *graph) {
  cy_names *names = cy_names_create(im->arena);
  for (size_t i = 0; i < graph->n_output; i++)
    if (graph->output[i]->name)
      cy_names_set(names, graph->output[i]->name, 1);
  return names;
}

static void declare_ranks(cy_names *ranks, size_t n, Onnx__ValueInfoProto *const *values) {
  for (size_t i = 0; i < n; i++) {
    const Onnx__TypeProto *t = values[i]->type;
    bool tensor = t && t->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE && t->tensor_type && values[i]->name;
    if (tensor && t->tensor_type->shape)
      cy_names_set(ranks, values[i]->name, (uint32_t)t->tensor_type->shape->n_dim);
  }
}

cy_names *cy_scope_ranks(cy_importer *im, const Onnx__GraphProto *graph) {
  cy_names *ranks = cy_names_create(im->arena);
  declare_ranks(ranks, graph->n_value_info, graph->value_info);
  declare_ranks(ranks, graph->n_output, graph->output);
  return ranks;
}

void cy_scope_initializers(cy_importer *im, cy_scope *scope, const Onnx__GraphProto *graph) {
  cy_names *seen = cy_names_create(im->arena);
  cy_scope_origin(im, scope);
  for (size_t i = 0; i < graph->n_initializer + graph->n_sparse_initializer; i++) {
    bool sparse = i >= graph->n_initializer;
    const Onnx__SparseTensorProto *sp = sparse ? graph->sparse_initializer[i - graph->n_initializer] : NULL;
    const Onnx__TensorProto *t = sparse ? sp->values : graph->initializer[i];
    const char *name = t && t->name ? t->name : "", *item = cy_importer_quote(im, "initializer", name);
    uint32_t other;
    if (!name[0]) {
      MALFORMED(im, NULL, "initializer %zu has no name", i);
      continue;
    }
    if (cy_names_find(seen, name, &other))
      MALFORMED(im, item, "the name is used by two initializers");
    cy_names_set(seen, name, 1);
    cy_scope_bind(im, scope, name, sparse ? cy_import_sparse(im, sp, item) : cy_import_tensor(im, t, item));
  }
}

bool cy_import_subgraph(cy_importer *im, const cy_onnx_node *n, const Onnx__GraphProto *graph, const cy_val *params,
                        uint32_t nparams, cy_val *out_results) {
  cy_scope scope = {.names = cy_names_create(im->arena),
                    .ranks = cy_scope_ranks(im, graph),
                    .outer = n->scope,
                    .call = n->scope->call,
                    .opsets = n->scope->opsets,
                    .graph = cy_intern(im->g, graph->name ? graph->name : ""),
                    .depth = n->scope->depth + 1};
  if (graph->n_input < nparams)
    nparams = (uint32_t)graph->n_input;
  for (uint32_t i = 0; i < nparams; i++)
    if (graph->input[i]->name && graph->input[i]->name[0])
      cy_scope_bind(im, &scope, graph->input[i]->name, params[i]);
  cy_scope_initializers(im, &scope, graph);
  if (!im->import_nodes(im, &scope, graph->node, graph->n_node, cy_scope_outputs(im, graph)))
    return false;
  cy_scope_origin(im, &scope);
  bool ok = true;
  for (size_t i = 0; i < graph->n_output; i++) {
    const char *name = graph->output[i]->name ? graph->output[i]->name : "";
    out_results[i] = 0;
    if (!cy_names_find(scope.names, name, &out_results[i]))
      MALFORMED(im, cy_importer_quote(im, "output", name), "the subgraph does not produce this output itself%s",
                     cy_scope_find(&scope, name, &out_results[i])
                         ? ": pass the value of the enclosing graph through an Identity node"
                         : "");
    ok = ok && cy_names_find(scope.names, name, &out_results[i]) && out_results[i];
  }
  return ok;
}
