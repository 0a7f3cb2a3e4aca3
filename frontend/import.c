/* SPDX-License-Identifier: Apache-2.0 */
/* import.c - the walk over a ModelProto that rebuilds it in the graph IR.
 *
 * In:  the unpacked skeleton. Out: a cy_graph with inputs, outputs and nodes, or diagnostics.
 * Names live in scopes: a subgraph sees its enclosing scopes, a function sees only itself. A name bound to 0 belongs to
 * a node that failed; nodes that use it are skipped silently, so one mistake gives one message and several mistakes are
 * found in one run. Nodes may come in any order: they are sorted by what they use (subgraphs included) before they are
 * imported. Initializers are constants even where they are also listed as inputs. An output that nobody uses is to the
 * importers as if it had no name: exporters name all outputs, those that they do not mean, too.
 */
#include "frontend/file/external.h"
#include "frontend/import_int.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENOUGH_ERRORS 50

/* ---- order of nodes ---- */

typedef struct sorter {
  cy_importer *im;
  cy_names *producers; /* output name -> node index + 1 */
  cy_names *used;      /* names that nodes, their subgraphs, or the results read */
  uint32_t *deps, ndeps, capacity;
  uint32_t *start; /* of node i's dependencies in deps */
} sorter;

static void add_dep(sorter *s, const char *name) {
  uint32_t p;
  cy_names_set(s->used, name, 1);
  if (!cy_names_find(s->producers, name, &p))
    return;
  s->deps = cy_arena_grow(s->im->arena, s->deps, s->ndeps, &s->capacity, sizeof *s->deps);
  s->deps[s->ndeps++] = p - 1;
}

typedef struct local_names {
  const cy_names *names;
  const struct local_names *outer;
} local_names;

static void graph_deps(sorter *s, const Onnx__GraphProto *g, const local_names *outer);

static void node_deps(sorter *s, const Onnx__NodeProto *node, const local_names *locals) {
  for (size_t i = 0; i < node->n_input; i++) {
    uint32_t ignored;
    const local_names *l = locals;
    while (l && !cy_names_find(l->names, node->input[i], &ignored))
      l = l->outer;
    if (!l && node->input[i][0])
      add_dep(s, node->input[i]);
  }
  for (size_t i = 0; i < node->n_attribute; i++) {
    if (node->attribute[i]->g)
      graph_deps(s, node->attribute[i]->g, locals);
    for (size_t k = 0; k < node->attribute[i]->n_graphs; k++)
      graph_deps(s, node->attribute[i]->graphs[k], locals);
  }
}

/* What a subgraph uses from outside of itself. */
static void graph_deps(sorter *s, const Onnx__GraphProto *g, const local_names *outer) {
  cy_names *names = cy_names_create(s->im->arena);
  for (size_t i = 0; i < g->n_input; i++)
    if (g->input[i]->name)
      cy_names_set(names, g->input[i]->name, 1);
  for (size_t i = 0; i < g->n_initializer; i++)
    if (g->initializer[i]->name)
      cy_names_set(names, g->initializer[i]->name, 1);
  for (size_t i = 0; i < g->n_node; i++)
    for (size_t k = 0; k < g->node[i]->n_output; k++)
      cy_names_set(names, g->node[i]->output[k], 1);
  local_names locals = {names, outer};
  for (size_t i = 0; i < g->n_node; i++)
    node_deps(s, g->node[i], &locals);
}

static const char *label(const Onnx__NodeProto *n) {
  if (n->name && n->name[0])
    return n->name;
  return n->n_output && n->output[0][0] ? n->output[0] : n->op_type ? n->op_type : "?";
}

static bool is_constant(const Onnx__NodeProto *n) { return n->op_type && strcmp(n->op_type, "Constant") == 0; }

/* A constant whose name a later constant has taken. */
static bool is_replaced(const sorter *s, const Onnx__NodeProto *node, uint32_t index) {
  uint32_t p;
  return is_constant(node) && node->n_output && cy_names_find(s->producers, node->output[0], &p) && p != index + 1;
}

static bool index_outputs(cy_importer *im, const cy_scope *scope, Onnx__NodeProto *const *nodes, size_t n,
                          cy_names *producers) {
  bool ok = true;
  for (size_t i = 0; i < n; i++) {
    for (size_t k = 0; k < nodes[i]->n_output; k++) {
      const char *name = nodes[i]->output[k];
      uint32_t other;
      if (!name[0])
        continue;
      if (cy_names_find(producers, name, &other) && is_constant(nodes[other - 1]) && is_constant(nodes[i])) {
        cy_location where = cy_importer_where(im, cy_str_text(im->g, scope->graph));
        cy_diag_add(im->diag, CY_WARNING, &where,
                    "two constants have the name '%s' (nodes %u and %zu): the later one is taken", name, other - 1, i);
      } else if (cy_names_find(producers, name, &other)) {
        MALFORMED(im, cy_importer_quote(im, "output", name),
                       "two nodes produce this name: '%s' (number %u) and '%s' (number %zu)", label(nodes[other - 1]),
                       other - 1, label(nodes[i]), i);
        ok = false;
      } else if (cy_names_find(scope->names, name, &other)) {
        MALFORMED(im, cy_importer_quote(im, "output", name),
                       "node '%s' (number %zu) produces a name that an input or initializer has already",
                       label(nodes[i]), i);
        ok = false;
      }
      cy_names_set(producers, name, (uint32_t)i + 1);
    }
  }
  return ok;
}

static void report_cycle(cy_importer *im, Onnx__NodeProto *const *nodes, const uint32_t *path, uint32_t n) {
  const char *text = label(nodes[path[0]]);
  uint32_t shown = n < 12 ? n : 12;
  for (uint32_t i = 1; i < shown; i++)
    text = cy_arena_printf(im->arena, "%s' <- '%s", text, label(nodes[path[i]]));
  MALFORMED(im, NULL, "the graph has a cycle of %u node%s: '%s'%s <- '%s'", n, n == 1 ? "" : "s",
            text, shown < n ? " <- .." : "", label(nodes[path[0]]));
}

/* Depth-first, in the file's order, so that a sorted graph stays as it is. NULL after a diagnostic. */
static uint32_t *sort_nodes(sorter *s, Onnx__NodeProto *const *nodes, uint32_t n) {
  uint32_t *order = CY_NEW_ARRAY(s->im->arena, uint32_t, n + 1), norder = 0;
  uint32_t *stack = CY_NEW_ARRAY(s->im->arena, uint32_t, n + 1), *next = CY_NEW_ARRAY(s->im->arena, uint32_t, n + 1);
  uint8_t *state = CY_NEW_ARRAY(s->im->arena, uint8_t, n + 1); /* 0 new, 1 on the stack, 2 done */
  for (uint32_t root = 0; root < n; root++) {
    if (state[root])
      continue;
    uint32_t top = 0;
    stack[top++] = root;
    state[root] = 1;
    next[root] = s->start[root];
    while (top) {
      uint32_t at = stack[top - 1];
      if (next[at] == s->start[at + 1]) {
        order[norder++] = at;
        state[at] = 2;
        top--;
        continue;
      }
      uint32_t dep = s->deps[next[at]++];
      if (state[dep] == 1) {
        uint32_t first = top - 1;
        while (stack[first] != dep)
          first--;
        report_cycle(s->im, nodes, stack + first, top - first);
        return NULL;
      }
      if (state[dep] == 0) {
        state[dep] = 1;
        next[dep] = s->start[dep];
        stack[top++] = dep;
      }
    }
  }
  return order;
}

/* ---- one node ---- */

/* The node with only those outputs named that somebody uses. */
static const Onnx__NodeProto *without_unused(cy_importer *im, const cy_names *used, const Onnx__NodeProto *node) {
  uint32_t ignored;
  Onnx__NodeProto *copy = NULL;
  for (size_t k = 0; k < node->n_output; k++) {
    if (!node->output[k][0] || cy_names_find(used, node->output[k], &ignored))
      continue;
    if (!copy) {
      copy = cy_arena_copy(im->arena, node, sizeof *node);
      copy->output = cy_arena_copy(im->arena, node->output, sizeof *node->output * node->n_output);
    }
    copy->output[k] = (char *)"";
  }
  return copy ? copy : node;
}

/* A used output that the importer did not make is none of this operator's; nor is an unused one where the operator has
 * only one. */
static bool check_outputs(cy_importer *im, const cy_onnx_node *n, const Onnx__NodeProto *written) {
  bool ok = true, one = n->asked && !n->asked->outputs;
  for (uint32_t k = 0; k < n->nout; k++) {
    if (!(one && k ? written->output[k][0] : n->proto->output[k][0]) || n->out[k])
      continue;
    MALFORMED(im, cy_importer_quote(im, "output", written->output[k]),
                   "operator '%s' has no output number %u at opset %d and with these attributes", n->op, k, n->version);
    ok = false;
  }
  return ok;
}

/* False: an input is missing (reported) or belongs to a failed node (not reported again). */
static bool resolve_inputs(cy_importer *im, cy_onnx_node *n) {
  bool ok = true;
  for (uint32_t i = 0; i < n->nin; i++) {
    const char *name = n->proto->input[i];
    if (!name[0])
      continue;
    if (!cy_scope_find(n->scope, name, &n->in[i])) {
      MALFORMED(im, cy_importer_quote(im, "input", name),
                     "nothing produces this value: it is no output of a node, initializer or graph input");
      ok = false;
    } else if (!n->in[i]) {
      im->skipped++;
      ok = false;
    }
  }
  return ok;
}

/* com.microsoft's operators get attributes with every release, and one that is not looked at may change the result. Not
 * said of those that are hints, are described by shapes, or only matter with an input that is absent. */
static void warn_of_unasked(cy_importer *im, const cy_onnx_node *n) {
  static const char *const hints[] = {"accuracy_level", "chunk_size", "past_present_share_buffer", "mask_index_type",
                                      "training_mode",  "block_size", "normalize_routing_weights", "mask_filter_value"};
  size_t at = 0;
  cy_location where = cy_importer_at(im, n);
  for (const char *name; (name = cy_onnx_unasked(n, &at)) != NULL;) {
    bool hint = false;
    for (size_t i = 0; i < sizeof hints / sizeof hints[0]; i++)
      hint = hint || strcmp(hints[i], name) == 0;
    if (!hint)
      cy_diag_add(im->diag, CY_WARNING, &where,
                  "attribute '%s' is not looked at: cytoc does not know it, or it means nothing here", name);
  }
}

static bool run_importer(cy_importer *im, cy_onnx_node *n, cy_onnx_asked *asked) {
  const Onnx__FunctionProto *fn = cy_function_find(im, n->proto);
  if (fn)
    return cy_function_expand(im, n, fn);
  const cy_onnx_row *row = cy_onnx_find(n->domain, n->op, n->version);
  if (!row) {
    MALFORMED(im, NULL, "this operator is not supported");
    return false;
  }
  n->since = row->since;
  n->arg = row->arg;
  for (int k = 0; k < row->need; k++) {
    if (!n->in[k]) {
      MALFORMED(im, NULL, "input %d is missing, the operator needs %d", k, row->need);
      return false;
    }
  }
  asked->proto = n->proto;
  n->asked = asked;
  bool ok = row->import(im, n);
  if (ok && strcmp(n->domain, "com.microsoft") == 0)
    warn_of_unasked(im, n);
  return ok;
}

static void import_node(cy_importer *im, cy_scope *scope, const Onnx__NodeProto *written, const cy_names *used,
                        int32_t index) {
  const Onnx__NodeProto *node = without_unused(im, used, written);
  cy_onnx_asked asked = {0};
  cy_onnx_node n = {
      .proto = node, .written = written, .op = node->op_type ? node->op_type : "", .domain = cy_onnx_domain(node->domain), .scope = scope};
  n.nin = (uint32_t)node->n_input;
  n.nout = (uint32_t)node->n_output;
  n.in = CY_NEW_ARRAY(im->arena, cy_val, n.nin + CY_ONNX_MIN_IN);
  n.out = CY_NEW_ARRAY(im->arena, cy_val, n.nout + 1);
  n.version = cy_opset_version(scope->opsets, n.domain);
  n.origin = (cy_origin){.name = cy_intern(im->g, node->name ? node->name : ""), .graph = scope->graph, .index = index};
  n.origin.op = cy_intern(im->g, n.domain[0] ? cy_arena_printf(im->arena, "%s.%s", n.domain, n.op) : n.op);
  cy_onnx_at(im, &n);
  int before = cy_diag_errors(im->diag);
  uint64_t skipped = im->skipped;
  bool ok = false;
  if (++im->expanded > CY_MAX_EXPANDED_NODES)
    MALFORMED(im, NULL, "the model has more than %d nodes when its functions are expanded",
                   CY_MAX_EXPANDED_NODES);
  else if (resolve_inputs(im, &n)) {
    ok = run_importer(im, &n, &asked);
    cy_onnx_at(im, &n);
    if (!ok && cy_diag_errors(im->diag) == before && im->skipped == skipped)
      cy_build_error(im->g, NULL, "cannot import this node: an input or attribute that it needs is missing");
  }
  ok = ok && cy_diag_errors(im->diag) == before && check_outputs(im, &n, written);
  for (uint32_t k = 0; k < n.nout; k++)
    if (node->output[k][0])
      cy_scope_bind(im, scope, node->output[k], ok ? n.out[k] : 0);
}

/* Several mistakes are reported in one run, but the first one tells that a choice was wrong. */
static bool enough(cy_importer *im, int before) {
  int errors = cy_diag_errors(im->diag);
  return errors >= ENOUGH_ERRORS || cy_choices_abandoned(im->choices) ||
         (errors > before && cy_choices_asked(im->choices));
}

static bool import_nodes(cy_importer *im, cy_scope *scope, Onnx__NodeProto *const *nodes, size_t n, cy_names *used) {
  int before = cy_diag_errors(im->diag);
  cy_scope_origin(im, scope);
  sorter s = {.im = im,
              .producers = cy_names_create(im->arena),
              .used = used,
              .start = CY_NEW_ARRAY(im->arena, uint32_t, n + 1)};
  if (!index_outputs(im, scope, nodes, n, s.producers))
    return false;
  for (size_t i = 0; i < n; i++) {
    s.start[i] = s.ndeps;
    node_deps(&s, nodes[i], NULL);
  }
  s.start[n] = s.ndeps;
  const uint32_t *order = sort_nodes(&s, nodes, (uint32_t)n);
  if (!order)
    return false;
  for (size_t i = 0; i < n && !enough(im, before) && im->expanded <= CY_MAX_EXPANDED_NODES; i++)
    if (!is_replaced(&s, nodes[order[i]], order[i]))
      import_node(im, scope, nodes[order[i]], used, (int32_t)order[i]);
  return cy_diag_errors(im->diag) == before;
}

/* ---- graphs ---- */

static bool import_outputs(cy_importer *im, cy_scope *scope, const Onnx__GraphProto *graph) {
  cy_names *seen = cy_names_create(im->arena);
  cy_scope_origin(im, scope);
  for (size_t i = 0; i < graph->n_output; i++) {
    const char *name = graph->output[i]->name ? graph->output[i]->name : "", *item = cy_importer_quote(im, "output", name);
    cy_val v = 0;
    uint32_t other;
    if (!cy_names_find(scope->names, name, &v))
      MALFORMED(im, item, "nothing produces this output of the model");
    else if (cy_names_find(seen, name, &other))
      MALFORMED(im, item, "the model lists this output twice");
    else if (v)
      cy_graph_add_output(im->g, name, v);
    cy_names_set(seen, name, 1);
  }
  if (!graph->n_output)
    MALFORMED(im, NULL, "the model has no outputs");
  return cy_diag_errors(im->diag) == 0;
}

static void import_metadata(cy_importer *im) {
  for (size_t i = 0; i < im->model->n_metadata_props; i++) {
    const Onnx__StringStringEntryProto *row = im->model->metadata_props[i];
    cy_graph_add_metadata(im->g, row->key ? row->key : "", row->value ? row->value : "");
  }
}

/* Lengths behind convolutions along one axis are often computed before these are. */
static void expect_kernels(cy_graph *g, const Onnx__GraphProto *graph) {
  for (size_t i = 0; i < graph->n_node; i++) {
    const Onnx__NodeProto *n = graph->node[i];
    for (size_t k = 0; k < n->n_attribute && n->op_type && strcmp(n->op_type, "Conv") == 0; k++) {
      const Onnx__AttributeProto *a = n->attribute[k];
      if (a->name && strcmp(a->name, "kernel_shape") == 0 && a->n_ints == 1)
        cy_graph_expect_kernel(g, a->ints[0]);
    }
  }
}

static bool import_model(cy_importer *im) {
  const Onnx__GraphProto *graph = im->model->graph;
  cy_location where = cy_importer_where(im, NULL);
  int before = cy_diag_errors(im->diag);
  if (!graph) {
    cy_diag_add(im->diag, CY_ERROR, &where, "not a valid ONNX model: there is no graph in it");
    return false;
  }
  cy_functions_index(im);
  if (!cy_check_model(im))
    return false;
  cy_graph_set_name(im->g, graph->name && graph->name[0] ? graph->name : "model");
  import_metadata(im);
  cy_opsets opsets = {im->model->n_opset_import, im->model->opset_import};
  cy_scope scope = {.names = cy_names_create(im->arena),
                    .ranks = cy_scope_ranks(im, graph),
                    .opsets = &opsets,
                    .graph = cy_intern(im->g, graph->name ? graph->name : "")};
  cy_scope_origin(im, &scope);
  if (!cy_import_fix_dims(im))
    return false;
  cy_build_in(im->g, 1);
  cy_scope_initializers(im, &scope, graph);
  if (!cy_import_inputs(im, &scope))
    return false;
  expect_kernels(im->g, graph);
  import_nodes(im, &scope, graph->node, graph->n_node, cy_scope_outputs(im, graph));
  if (cy_diag_errors(im->diag) > before)
    return false;
  return import_outputs(im, &scope, graph) && cy_diag_errors(im->diag) == before;
}

/* ---- entry points ---- */

static void release(void *handle) {
  cy_mapping_close(handle);
  free(handle);
}

/* What all attempts to import a model have in common. */
typedef struct cy_job {
  cy_mapping *map;
  const char *file;
  const cy_import_options *options;
  cy_diag_sink *diag;
  size_t said; /* diagnostics that are kept */
  cy_arena *arena;
  const Onnx__ModelProto *model;
  cy_externals *externals;
  cy_choices *choices;
  cy_axes *axes;
  cy_graph *g; /* of the last attempt; it may have failed */
} cy_job;

static bool import_once(void *context, uint64_t *out_nodes) {
  cy_job *job = context;
  cy_importer im = {.diag = job->diag,
                    .file = job->file,
                    .map = job->map,
                    .options = job->options,
                    .arena = cy_arena_create(),
                    .model = job->model,
                    .externals = job->externals,
                    .choices = job->choices,
                    .axes = job->axes,
                    .import_nodes = import_nodes,
                    .find_row = cy_onnx_find};
  cy_graph_destroy(job->g);
  cy_diag_forget(job->diag, job->said);
  cy_externals_retry(job->externals);
  im.g = job->g = cy_graph_create(job->diag, job->file);
  cy_graph_record(im.g, true);
  bool ok = import_model(&im);
  cy_graph_record(im.g, false);
  *out_nodes = im.expanded;
  cy_arena_destroy(im.arena);
  return ok;
}

/* Symbols of their own for axes of one name that nothing needs equal. The graph with them has to have the same nodes:
 * else equal sizes were good for something that no requirement tells of. */
static void part_axes(cy_job *job) {
  cy_graph *whole = job->g;
  job->g = NULL;
  job->said = cy_diag_count(job->diag);
  bool ok = cy_axes_part(job->axes) && cy_choices_repeat(job->choices, import_once, job) &&
            cy_axes_join(job->axes, job->g) && cy_choices_repeat(job->choices, import_once, job) &&
            cy_node_count(job->g) == cy_node_count(whole);
  cy_diag_forget(job->diag, job->said);
  cy_graph_destroy(ok ? whole : job->g);
  job->g = ok ? job->g : whole;
}

static bool import_job(cy_job *job) {
  job->model = cy_model_unpack(job->map, job->arena, job->diag, job->file);
  const char *foreign = job->model && job->model->graph ? NULL : cy_foreign_format(job->map->bytes, job->map->size);
  if (foreign) {
    cy_location where = {.file = job->file, .node_index = -1};
    cy_diag_forget(job->diag, job->said);
    cy_diag_add(job->diag, CY_ERROR, &where, "not an ONNX model: %s", foreign);
    return false;
  }
  if (!job->model)
    return false;
  job->choices = cy_choices_create(job->arena);
  job->axes = cy_axes_create(job->arena, job->model->graph, job->options);
  if (!cy_choices_decide(job->choices, import_once, job))
    return false;
  part_axes(job);
  return true;
}

static cy_graph *import_mapping(cy_mapping *map, const char *file, const cy_import_options *o, cy_diag_sink *diag) {
  static const cy_import_options none;
  cy_job job = {.map = map,
                .file = file,
                .options = o ? o : &none,
                .diag = diag,
                .arena = cy_arena_create(),
                .said = cy_diag_count(diag)};
  const char *slash = strrchr(file, '/'), *folder = map->borrowed ? NULL : ".";
  if (slash)
    folder = cy_arena_printf(job.arena, "%.*s", (int)(slash - file) + (slash == file), file);
  if (job.options->folder)
    folder = job.options->folder;
  job.externals = cy_externals_create(folder, job.options->ask, job.options->ask_ctx);
  if (import_job(&job)) {
    cy_graph_own(job.g, map, release);
    cy_graph_own(job.g, job.externals, cy_externals_destroy);
  } else {
    cy_graph_destroy(job.g);
    job.g = NULL;
    cy_externals_destroy(job.externals);
    release(map);
  }
  cy_arena_destroy(job.arena);
  return job.g;
}

static cy_mapping *new_mapping(void) {
  cy_mapping *map = calloc(1, sizeof *map);
  if (!map)
    cy_no_memory();
  return map;
}

static bool is_saved_model(const char *folder) {
  char path[PATH_MAX];
  return snprintf(path, sizeof path, "%s/saved_model.pb", folder) < PATH_MAX && access(path, R_OK) == 0;
}

cy_graph *cy_import_file(const char *path, const cy_import_options *o, cy_diag_sink *diag) {
  cy_location where = {.file = path, .node_index = -1};
  cy_mapping *map = new_mapping();
  char why[CY_EXTERNAL_WHY];
  if (!cy_mapping_open(map, path, why, sizeof why)) {
    cy_diag_add(diag, CY_ERROR, &where, "%s%s", why,
                is_saved_model(path) ? "; it is a SavedModel of TensorFlow: python -m tf2onnx.convert --saved-model FOLDER "
                                       "--output model.onnx"
                                     : "");
    free(map);
    return NULL;
  }
  return import_mapping(map, path, o, diag);
}

cy_graph *cy_import_memory(const void *bytes, size_t size, const char *name, const cy_import_options *o,
                           cy_diag_sink *diag) {
  cy_mapping *map = new_mapping();
  *map = (cy_mapping){.bytes = bytes, .size = size, .borrowed = true};
  return import_mapping(map, name, o, diag);
}
