/* SPDX-License-Identifier: Apache-2.0 */
/* functions.c - model-local functions, expanded where they are called.
 *
 * In:  a node whose (domain, type, overload) names a FunctionProto of the model. Out: the function's nodes in the
 * current block. A function sees only its own names and its own opset imports. Attribute references are followed by
 * attrs.c through the cy_call chain kept here; the same chain finds recursion.
 */
#include "frontend/import_int.h"

#define MAX_CALL_DEPTH 100

static const char *key_of(cy_arena *arena, const char *domain, const char *name, const char *overload) {
  return cy_arena_printf(arena, "%s\n%s\n%s", cy_onnx_domain(domain), name ? name : "", overload ? overload : "");
}

void cy_functions_index(cy_importer *im) {
  im->functions = cy_names_create(im->arena);
  for (size_t i = 0; i < im->model->n_functions; i++) {
    const Onnx__FunctionProto *f = im->model->functions[i];
    const char *key = key_of(im->arena, f->domain, f->name, f->overload);
    uint32_t other;
    if (cy_names_find(im->functions, key, &other)) {
      cy_location where = cy_importer_where(im, f->name);
      cy_diag_add(im->diag, CY_ERROR, &where, "the model defines function '%s' of domain '%s' twice",
                  f->name ? f->name : "", cy_onnx_domain(f->domain));
    }
    cy_names_set(im->functions, key, (uint32_t)i);
  }
}

const Onnx__FunctionProto *cy_function_find(const cy_importer *im, const Onnx__NodeProto *node) {
  uint32_t i;
  if (!im->model->n_functions ||
      !cy_names_find(im->functions, key_of(im->arena, node->domain, node->op_type, node->overload), &i))
    return NULL;
  return im->model->functions[i];
}

static bool may_call(cy_importer *im, const cy_onnx_node *n, const Onnx__FunctionProto *fn) {
  int depth = 0;
  for (const cy_call *c = n->scope->call; c; c = c->caller, depth++) {
    if (c->fn == fn) {
      cy_build_error(im->g, NULL, "function '%s' calls itself; functions must not be recursive", fn->name);
      return false;
    }
  }
  if (depth >= MAX_CALL_DEPTH) {
    cy_build_error(im->g, NULL, "functions call each other more than %d levels deep", MAX_CALL_DEPTH);
    return false;
  }
  if (n->nin > fn->n_input || n->nout > fn->n_output) {
    cy_build_error(im->g, NULL, "function '%s' has %zu inputs and %zu outputs, the node has %u and %u", fn->name,
                   fn->n_input, fn->n_output, n->nin, n->nout);
    return false;
  }
  return true;
}

bool cy_function_expand(cy_importer *im, const cy_onnx_node *n, const Onnx__FunctionProto *fn) {
  if (!may_call(im, n, fn))
    return false;
  cy_call call = {fn, n, n->scope->call};
  cy_opsets opsets = {fn->n_opset_import, fn->opset_import};
  cy_scope scope = {.names = cy_names_create(im->arena),
                    .call = &call,
                    .opsets = opsets.n ? &opsets : n->scope->opsets,
                    .graph = cy_intern(im->g, fn->name ? fn->name : ""),
                    .depth = n->scope->depth + 1};
  for (uint32_t i = 0; i < n->nin; i++)
    if (n->in[i])
      cy_names_set(scope.names, fn->input[i], n->in[i]);
  /* An input that the caller leaves out stays absent inside: the nodes that name it get "" instead. */
  Onnx__NodeProto **nodes = CY_NEW_ARRAY(im->arena, Onnx__NodeProto *, fn->n_node + 1);
  cy_names *absent = cy_names_create(im->arena);
  for (size_t i = 0; i < fn->n_input; i++)
    if (i >= n->nin || !n->in[i])
      cy_names_set(absent, fn->input[i], 1);
  for (size_t i = 0; i < fn->n_node; i++) {
    nodes[i] = cy_arena_copy(im->arena, fn->node[i], sizeof *fn->node[i]);
    nodes[i]->input = CY_NEW_ARRAY(im->arena, char *, nodes[i]->n_input + 1);
    for (size_t k = 0; k < nodes[i]->n_input; k++) {
      uint32_t ignored;
      nodes[i]->input[k] = cy_names_find(absent, fn->node[i]->input[k], &ignored) ? (char *)"" : fn->node[i]->input[k];
    }
  }
  cy_names *used = cy_names_create(im->arena);
  for (uint32_t i = 0; i < n->nout; i++)
    if (cy_onnx_wants(n, i))
      cy_names_set(used, fn->output[i], 1);
  if (!im->import_nodes(im, &scope, nodes, fn->n_node, used))
    return false;
  for (uint32_t i = 0; i < n->nout; i++) {
    cy_val v = 0;
    if (!cy_scope_find(&scope, fn->output[i], &v) && cy_onnx_wants(n, i)) {
      cy_build_error(im->g, NULL, "function '%s' does not produce its output '%s'", fn->name, fn->output[i]);
      return false;
    }
    cy_importer_set(im, n, i, v);
  }
  return true;
}
