/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_branch.c - If, and what it shares with loops (control.h).
 *
 * In:  nodes with two subgraphs. Out: an `if` node that owns two blocks; an If whose condition is known is imported in
 * place. Blocks use values of the enclosing graph directly, as ONNX subgraphs do. Where the branches' ranks differ, what
 * uses the result decides (choices.h).
 */
#include "control.h"

#include <stdlib.h>

#define X (n->in[0])

cy_new_syms cy_new_syms_make(cy_importer *im, uint32_t outputs) {
  return (cy_new_syms){CY_NEW_ARRAY(im->arena, cy_bound_sym, (outputs + 1) * CY_MAX_RANK), 0};
}

cy_dim cy_new_syms_add(cy_importer *im, cy_new_syms *s, uint32_t output, uint32_t axis) {
  cy_sym sym = cy_sym_new(im->g, NULL, CY_SYM_COUNT);
  cy_sym_of(im->g, sym)->min = 0;
  s->list[s->n++] = (cy_bound_sym){sym, output, axis};
  return cy_dim_sym(im->g, sym);
}

void cy_new_syms_bind(cy_importer *im, const cy_new_syms *s, cy_val first) {
  for (uint32_t i = 0; i < s->n; i++)
    cy_onnx_bind_count(im, s->list[i].sym, cy_build_output(im->g, first, s->list[i].output), s->list[i].axis);
}

static void find_newest(void *ctx, cy_sym s) {
  cy_sym *newest = ctx;
  *newest = s > *newest ? s : *newest;
}

bool cy_dim_is_inner(cy_importer *im, cy_dim d, cy_sym newest) {
  cy_sym last = 0;
  cy_dim_symbols(im->g, d, find_newest, &last);
  return last > newest;
}

void cy_outer_dims(cy_importer *im, cy_type *t, cy_sym newest) {
  for (int i = 0; i < t->rank; i++)
    t->dim[i] = cy_dim_is_inner(im, t->dim[i], newest) ? cy_dim_const(im->g, 0) : t->dim[i];
}

cy_val cy_with_rank(cy_importer *im, cy_val x, int rank) {
  const cy_type t = *cy_onnx_type(im, x);
  cy_dim d[CY_MAX_RANK];
  for (int i = 0; i < rank; i++)
    d[i] = i < rank - t.rank ? cy_dim_const(im->g, 1) : t.dim[i + t.rank - rank];
  for (int i = 0; i < t.rank - rank; i++)
    if (!cy_dim_is(im->g, t.dim[i], 1))
      return x;
  return t.rank == rank || t.content ? x : cy_build_reshape(im->g, x, d, rank);
}

static bool unify(cy_importer *im, const cy_onnx_node *n, uint32_t k, const cy_type *a, const cy_type *b,
                  cy_new_syms *syms, cy_type *out) {
  cy_content both = a->content;
  bool same = a->dtype == b->dtype && a->rank == b->rank;
  if (!same || (a->content && !cy_content_join(im->g, a->content, b->content, &both)))
    return cy_build_error(im->g, cy_arena_printf(im->arena, "output '%s'", n->proto->output[k]),
                          "the branches give %s and %s: both must have the same type and rank, and nothing that follows "
                          "decides for one of them; if the condition tests a dimension, fix that with --dim",
                          cy_type_text(im->g, a), cy_type_text(im->g, b));
  *out = *a;
  out->content = both;
  for (uint32_t i = 0; i < a->rank; i++)
    if (a->dim[i] != b->dim[i])
      out->dim[i] = cy_new_syms_add(im, syms, k, i);
  return true;
}

static bool import_branch(cy_importer *im, const cy_onnx_node *n, const Onnx__GraphProto *graph, cy_block *out_block,
                          cy_val *results) {
  cy_block here = cy_build_block(im->g), b = cy_block_create(im->g, here);
  cy_build_in(im->g, b);
  bool ok = cy_import_subgraph(im, n, graph, NULL, 0, results);
  cy_build_in(im->g, here);
  cy_onnx_at(im, n);
  if (ok)
    cy_block_set_results(im->g, b, results, (uint32_t)graph->n_output);
  *out_block = b;
  return ok;
}

/* A branch that cannot be compiled for the sizes at hand, as exporters write them: they squeeze an axis "if it is 1".  If
 * it is taken the run fails; what it would give has the other branch's type. */
static bool refuse_branch(cy_importer *im, const cy_onnx_node *n, cy_block *block, const cy_val *other, cy_sym newest,
                          cy_val *results) {
  cy_block here = cy_build_block(im->g);
  *block = cy_block_create(im->g, here);
  cy_build_in(im->g, *block);
  cy_val cond = CAST(X, CY_BOOL);
  cy_val never = cond ? cy_build(im->g, CY_OP_refuse, &cond, 1, NULL, 0, NULL, 1) : 0;
  never = never && cy_onnx_type(im, never)->rank ? cy_build_reshape(im->g, never, NULL, 0) : never;
  for (uint32_t k = 0; k < n->nout; k++) {
    cy_type t = *cy_onnx_type(im, other[k]);
    cy_outer_dims(im, &t, newest);
    results[k] = never && !t.content ? cy_onnx_fill(im, CAST(never, (cy_dtype)t.dtype), t.dim, t.rank) : 0;
  }
  bool ok = true;
  for (uint32_t k = 0; k < n->nout; k++)
    ok = ok && results[k];
  if (ok)
    cy_block_set_results(im->g, *block, results, n->nout);
  cy_build_in(im->g, here);
  return ok;
}

/* Both branches; one may be refused when the other is right. */
static bool import_branches(cy_importer *im, const cy_onnx_node *n, const Onnx__GraphProto *const graphs[2],
                            cy_block blocks[2], cy_val *const results[2], cy_sym newest) {
  uint32_t malformed = im->malformed, asked = cy_choices_asked(im->choices);
  size_t mark[3] = {cy_diag_count(im->diag)};
  bool ok[2];
  for (int i = 0; i < 2; i++) {
    ok[i] = import_branch(im, n, graphs[i], &blocks[i], results[i]);
    mark[i + 1] = cy_diag_count(im->diag);
    if (!ok[i] && cy_choices_abandon(im->choices, asked))
      return false;
    asked = cy_choices_asked(im->choices);
  }
  if (ok[0] == ok[1] || im->malformed != malformed)
    return ok[0] && ok[1];
  int bad = ok[0] ? 1 : 0;
  if (mark[bad] == mark[bad + 1])
    return false;
  cy_choices_misfit(im->choices, CY_MISFIT_BRANCH);
  cy_diag_soften(im->diag, mark[bad], mark[bad + 1]);
  cy_location where = cy_importer_at(im, n);
  cy_diag_add(im->diag, CY_NOTE, &where, "the %s branch is left out for that; a run that takes it fails",
              bad ? "else" : "then");
  return refuse_branch(im, n, &blocks[bad], results[!bad], newest, results[bad]);
}

static bool check_results(cy_importer *im, const cy_onnx_node *n, const Onnx__GraphProto *graph, const char *which,
                          uint32_t expected) {
  if (graph->n_output == expected)
    return true;
  return cy_build_error(im->g, which, "the subgraph has %zu outputs, the node '%s' needs %u", graph->n_output, n->op,
                        expected);
}

static bool if_known(cy_importer *im, const cy_onnx_node *n, const Onnx__GraphProto *graph) {
  cy_val *results = CY_NEW_ARRAY(im->arena, cy_val, graph->n_output + 1);
  bool ok = cy_import_subgraph(im, n, graph, NULL, 0, results);
  for (uint32_t k = 0; ok && k < n->nout; k++)
    cy_importer_set(im, n, k, results[k]);
  return ok;
}

typedef enum rank_fit { RANKS_EQUAL, RANKS_BY_ONES, RANKS_DIFFER } rank_fit;

/* By ones: the ranks differ by dims of 1 in front, which broadcasting would add. */
static rank_fit compare_ranks(cy_importer *im, const cy_type *a, const cy_type *b) {
  const cy_type *high = a->rank > b->rank ? a : b;
  int more = abs(a->rank - b->rank), ones = 0;
  while (ones < more && cy_dim_is(im->g, high->dim[ones], 1))
    ones++;
  return !more || a->dtype != b->dtype ? RANKS_EQUAL : ones == more ? RANKS_BY_ONES : RANKS_DIFFER;
}

static rank_fit compare_results(cy_importer *im, const cy_onnx_node *n, cy_val *const results[2], uint32_t *out_worst) {
  rank_fit worst = RANKS_EQUAL;
  for (uint32_t k = 0; k < n->nout; k++) {
    rank_fit fit = compare_ranks(im, cy_onnx_type(im, results[0][k]), cy_onnx_type(im, results[1][k]));
    *out_worst = fit > worst ? k : *out_worst;
    worst = fit > worst ? fit : worst;
  }
  return worst;
}

/* Results whose ranks differ by dims of 1 in front get the higher rank, or the lower one. */
static bool equal_ranks(cy_importer *im, const cy_onnx_node *n, const cy_block blocks[2], cy_val *const results[2],
                        bool lower) {
  cy_block here = cy_build_block(im->g);
  for (uint32_t k = 0; k < n->nout; k++) {
    const cy_type *t[2] = {cy_onnx_type(im, results[0][k]), cy_onnx_type(im, results[1][k])};
    if (compare_ranks(im, t[0], t[1]) != RANKS_BY_ONES)
      continue;
    int changed = (t[0]->rank > t[1]->rank) != lower, rank = t[!changed]->rank;
    cy_location where = cy_importer_at(im, n);
    cy_diag_add(im->diag, CY_WARNING, &where, "the branches give %s and %s for output '%s', which always gets rank %d",
                cy_type_text(im->g, t[0]), cy_type_text(im->g, t[1]), n->proto->output[k], rank);
    cy_build_in(im->g, blocks[changed]);
    results[changed][k] = cy_with_rank(im, results[changed][k], rank);
    cy_build_in(im->g, here);
    if (!results[changed][k])
      return false;
    cy_block_set_results(im->g, blocks[changed], results[changed], n->nout);
  }
  return true;
}

/* Only one of the branches gives ranks that what follows can use. */
static bool keep_branch(cy_importer *im, const cy_onnx_node *n, int kept, cy_block blocks[2], cy_val *const results[2],
                        uint32_t k, cy_sym newest) {
  cy_location where = cy_importer_at(im, n);
  cy_diag_add(im->diag, CY_NOTE, &where,
              "the %s branch gives %s for output '%s', what follows needs the rank of %s: that branch is left out, and a "
              "run that takes it fails",
              kept ? "then" : "else", cy_type_text(im->g, cy_onnx_type(im, results[!kept][k])), n->proto->output[k],
              cy_type_text(im->g, cy_onnx_type(im, results[kept][k])));
  return refuse_branch(im, n, &blocks[!kept], results[kept], newest, results[!kept]);
}

static bool settle_ranks(cy_importer *im, const cy_onnx_node *n, cy_block blocks[2], cy_val *const results[2],
                         cy_sym newest) {
  uint32_t worst = 0;
  rank_fit fit = compare_results(im, n, results, &worst);
  if (fit == RANKS_EQUAL)
    return true;
  int taken = cy_choose(im->choices, 2, fit == RANKS_DIFFER);
  if (fit == RANKS_DIFFER && taken != CY_UNDECIDED)
    return keep_branch(im, n, taken, blocks, results, worst, newest);
  return equal_ranks(im, n, blocks, results, taken == 1);
}

/* The graph with only those outputs that the node's users ask for. */
static const Onnx__GraphProto *wanted_part(cy_importer *im, const cy_onnx_node *n, const Onnx__GraphProto *graph) {
  Onnx__GraphProto *part = cy_arena_copy(im->arena, graph, sizeof *graph);
  part->output = CY_NEW_ARRAY(im->arena, Onnx__ValueInfoProto *, n->nout + 1);
  part->n_output = 0;
  for (uint32_t k = 0; k < n->nout; k++)
    if (cy_onnx_wants(n, k))
      part->output[part->n_output++] = graph->output[k];
  return part;
}

static bool import_if(cy_importer *im, const cy_onnx_node *n, const Onnx__GraphProto *then_graph,
                      const Onnx__GraphProto *else_graph) {
  uint32_t count;
  int64_t known;
  const cy_dim *c = cy_value_elems(im->g, X, &count);
  if (c && count == 1 && cy_dim_is_const(im->g, c[0], &known))
    return if_known(im, n, known ? then_graph : else_graph);
  cy_val *a = CY_NEW_ARRAY(im->arena, cy_val, n->nout + 1), *b = CY_NEW_ARRAY(im->arena, cy_val, n->nout + 1);
  cy_block blocks[2];
  cy_val *results[2] = {a, b};
  cy_sym newest = cy_sym_count(im->g);
  if (!import_branches(im, n, (const Onnx__GraphProto *[2]){then_graph, else_graph}, blocks, results, newest) ||
      !settle_ranks(im, n, blocks, results, newest))
    return false;
  cy_type *types = CY_NEW_ARRAY(im->arena, cy_type, n->nout + 1);
  cy_new_syms syms = cy_new_syms_make(im, n->nout);
  for (uint32_t k = 0; k < n->nout; k++)
    if (!unify(im, n, k, cy_onnx_type(im, a[k]), cy_onnx_type(im, b[k]), &syms, &types[k]))
      return false;
  cy_val cond = cy_onnx_type(im, X)->rank ? cy_build_reshape(im->g, X, NULL, 0) : X;
  cy_attr attrs[2] = {cy_attr_block(CY_ATTR_then, blocks[0]), cy_attr_block(CY_ATTR_else, blocks[1])};
  cy_val first = cy_build(im->g, CY_OP_if, &cond, 1, attrs, 2, types, n->nout);
  if (!first)
    return n->nout == 0;
  cy_new_syms_bind(im, &syms, first);
  for (uint32_t k = 0; k < n->nout; k++)
    cy_importer_set(im, n, k, cy_build_output(im->g, first, k));
  return true;
}

/* What nobody uses is no output of the If that is built: the branches need not agree about it. */
IMPORT(if_else) {
  const Onnx__GraphProto *then_graph = cy_onnx_graph(im, n, "then_branch"),
                         *else_graph = cy_onnx_graph(im, n, "else_branch");
  if (!then_graph || !else_graph || !check_results(im, n, then_graph, "attribute 'then_branch'", n->nout) ||
      !check_results(im, n, else_graph, "attribute 'else_branch'", n->nout))
    return false;
  cy_onnx_node inner = *n;
  Onnx__NodeProto proto = *n->proto;
  inner.proto = &proto;
  inner.nout = 0;
  inner.out = CY_NEW_ARRAY(im->arena, cy_val, n->nout + 1);
  proto.output = CY_NEW_ARRAY(im->arena, char *, n->nout + 1);
  for (uint32_t k = 0; k < n->nout; k++)
    if (cy_onnx_wants(n, k))
      proto.output[inner.nout++] = n->proto->output[k];
  proto.n_output = inner.nout;
  if (!import_if(im, &inner, wanted_part(im, n, then_graph), wanted_part(im, n, else_graph)))
    return false;
  for (uint32_t k = 0, at = 0; k < n->nout; k++)
    if (cy_onnx_wants(n, k))
      cy_importer_set(im, n, k, inner.out[at++]);
  return true;
}
