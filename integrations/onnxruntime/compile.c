/* SPDX-License-Identifier: Apache-2.0 */
/* compile.c - OrtEp::Compile: for every group of nodes that was taken, what runs it, and what stands for it in a model that
 * is saved.
 *
 * In:  graphs of groups, as capability.c offered them, or of one EPContext node each; the fused nodes in their place.
 * Out: computes. With ep.context_enable, an EPContext node for each: its attribute ep_cache_context holds the library
 *      (ep.context_embed_mode 1) or names a file beside the model.
 *
 * EPContext nodes have the library's inputs and outputs in the library's order, so that names may change.
 */
#include "integrations/onnxruntime/plugin.h"

#include "version.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- where the inputs and outputs of a fused node are ---- */

/* Numbers in `values` of the names of a library. */
static size_t *find_all(walk *w, const ort_value_info **values, size_t n, const char **wanted, size_t n_wanted) {
  size_t *at = calloc(n_wanted + 1, sizeof *at);
  if (!at)
    walk_check(w, plugin_error(w->ort, ORT_FAIL, "cytoc: out of memory"));
  for (size_t k = 0; k < n_wanted; k++) {
    size_t i = 0;
    while (i < n && strcmp(walk_name(w, values[i]), wanted[k]))
      i++;
    at[k] = i;
    if (i == n) {
      free(at);
      walk_check(w, plugin_error(w->ort, ORT_EP_FAIL, "cytoc: the fused node has no value '%s'", wanted[k]));
    }
  }
  return at;
}

static ort_status *create_state(ort_compute *self, ort_compute_context *context, void **state) {
  (void)context;
  *state = self; /* what runs need is the unit's */
  return NULL;
}

static void release_state(ort_compute *self, void *state) { (void)self, (void)state; }

void release_computes(ort_ep *self, ort_compute **computes, size_t n) {
  (void)self;
  for (size_t i = 0; i < n; i++) {
    compute *c = (compute *)computes[i];
    if (c) {
      free(c->inputs);
      free(c->outputs);
      free(c);
    }
  }
}

/* inputs, outputs: the names of the library's, as the fused node has them. Fills *to at once, so that ONNX Runtime releases
 * what a later failure leaves. */
static void make_compute(walk *w, unit *u, const node *fused, const char **inputs, const char **outputs,
                         ort_compute **to) {
  compute *c = calloc(1, sizeof *c);
  if (!c)
    walk_check(w, plugin_error(w->ort, ORT_FAIL, "cytoc: out of memory"));
  *c = (compute){.base = {.version = ORT_OLDEST,
                          .create_state = create_state,
                          .compute = compute_run,
                          .release_state = release_state},
                 .unit = u};
  *to = &c->base;
  c->inputs = find_all(w, fused->in, fused->n_in, inputs, u->n_inputs);
  c->outputs = find_all(w, fused->out, fused->n_out, outputs, u->n_outputs);
}

/* ---- loading EPContext nodes ---- */

/* The folder of the model that is loaded, or of the one that ep.context_file_path names. */
static char *folder_of(walk *w, const ort_graph *ort) {
  const char *path = w->ep->context_path;
  if (!path || !*path)
    walk_check(w, w->ort->Graph_GetModelPath(ort, &path));
  const char *slash = path ? strrchr(path, '/') : NULL;
  return slash ? walk_format(w, "%.*s", (int)(slash - path + 1), path) : walk_format(w, "%s", "");
}

/* A file beside the model; what a model names must not lead elsewhere. */
static char *context_file(walk *w, const ort_graph *ort, const node *n, const char *name) {
  if (!*name || name[0] == '/' || !strcmp(name, "..") || !strncmp(name, "../", 3) || strstr(name, "/../"))
    walk_check(w,
               plugin_error(w->ort, ORT_EP_FAIL,
                            "cytoc: EPContext node '%s': attribute 'ep_cache_context' is '%s', expected a file in the "
                            "folder of the model",
                            n->name, name));
  char *path = walk_format(w, "%s%s", folder_of(w, ort), name);
  if (access(path, R_OK))
    walk_check(
        w, plugin_error(w->ort, ORT_NO_SUCHFILE,
                        "cytoc: EPContext node '%s': its library '%s' cannot be read (%s): it belongs beside the model",
                        n->name, path, strerror(errno)));
  return path;
}

static const char *absolute(walk *w, const char *path) {
  char resolved[PATH_MAX];
  return realpath(path, resolved) ? walk_format(w, "%s", resolved) : path; /* dlopen() searches names without a slash */
}

static unit *open_context(walk *w, const ort_graph *ort, const node *n) {
  size_t count, bytes = 0;
  attribute *all = walk_attributes(w, n, &count);
  const attribute *context = attribute_find(all, count, "ep_cache_context");
  const attribute *embed = attribute_find(all, count, "embed_mode");
  if (!context || context->kind != ORT_ATTR_STRING)
    walk_check(w, plugin_error(w->ort, ORT_EP_FAIL, "cytoc: EPContext node '%s' has no attribute 'ep_cache_context'",
                               n->name));
  bool embedded = !embed || *(int64_t *)walk_attribute(w, embed, &bytes) == 1; /* 1 is the operator's default */
  unit *u = NULL;
  char *data = walk_attribute(w, context, &bytes);
  const char *path = embedded ? NULL : absolute(w, context_file(w, ort, n, data));
  ort_status *status = unit_open((ep *)w->ep, path, data, bytes, &u);
  if (status) {
    status = (w->status = status,
              plugin_error(w->ort, ORT_EP_FAIL, "cytoc: EPContext node '%s': %s; compile the model again", n->name,
                           w->ort->GetErrorMessage(w->status)));
    w->ort->ReleaseStatus(w->status);
    walk_check(w, status);
  }
  if (u->n_inputs != n->n_in || u->n_outputs != n->n_out)
    walk_check(w, plugin_error(
                      w->ort, ORT_EP_FAIL,
                      "cytoc: EPContext node '%s': expected %zu inputs and %zu outputs as its library has them, found "
                      "%zu and %zu",
                      n->name, u->n_inputs, u->n_outputs, n->n_in, n->n_out));
  return u;
}

static const char **names_of(walk *w, const ort_value_info **values, size_t n) {
  const char **names = walk_take(w, n, sizeof *names);
  for (size_t i = 0; i < n; i++)
    names[i] = walk_name(w, values[i]);
  return names;
}

/* ---- writing EPContext nodes ---- */

static void write_file(walk *w, const char *path, const void *bytes, size_t size) {
  static atomic_uint turn; /* threads may save models of one group at once */
  char *written = walk_format(w, "%s.%ld.%u.new", path, (long)getpid(), atomic_fetch_add(&turn, 1));
  FILE *f = fopen(written, "wb");
  bool whole = f && fwrite(bytes, 1, size, f) == size;
  if (f)
    whole = !fclose(f) && whole;
  if (whole && !rename(written, path))
    return;
  int why = errno;
  if (f)
    remove(written);
  walk_check(w, plugin_error(w->ort, ORT_EP_FAIL, "cytoc: '%s' cannot be written: %s", path, strerror(why)));
}

/* The library's file: beside the model with the EPContext nodes, under its name, so that several lie in one folder. */
static char *save_library(walk *w, const ort_graph *ort, const unit *u, const void *bytes, size_t size) {
  const char *path = w->ep->context_path;
  char *folder = folder_of(w, ort);
  if (!path || !*path)
    walk_check(w, w->ort->Graph_GetModelPath(ort, &path));
  const char *slash = path ? strrchr(path, '/') : NULL, *stem = slash ? slash + 1 : path && *path ? path : "model";
  const char *dot = strrchr(stem, '.');
  char *name = walk_format(w, "%.*s_cytoc_%.16s.so", dot ? (int)(dot - stem) : (int)strlen(stem), stem, u->key);
  write_file(w, walk_format(w, "%s%s", folder, name), bytes, size);
  return name;
}

enum { CONTEXT_ATTRIBUTES = 6 };

typedef struct new_attributes {
  walk *w;
  ort_op_attr *made[CONTEXT_ATTRIBUTES];
  size_t n;
} new_attributes;

static ort_status *add_attribute(new_attributes *to, const char *name, int32_t kind, const void *data, size_t bytes) {
  if (bytes > INT_MAX)
    return plugin_error(to->w->ort, ORT_EP_FAIL,
                        "cytoc: a library of %zu bytes cannot be part of a model: set ep.context_embed_mode to 0",
                        bytes);
  ort_status *status = to->w->ort->CreateOpAttr(name, data, (int)bytes, kind, &to->made[to->n]);
  to->n += !status;
  return status;
}

/* Its name is the fused node's: that is how ONNX Runtime knows what it stands for. */
static ort_status *make_node(walk *w, const unit *u, const char *fused, bool embed, const void *data, size_t bytes,
                             ort_node **out) {
  new_attributes a = {.w = w};
  int64_t main_context = 1, mode = embed;
  ort_status *status = add_attribute(&a, "main_context", ORT_ATTR_INT, &main_context, 1);
  if (!status)
    status = add_attribute(&a, "embed_mode", ORT_ATTR_INT, &mode, 1);
  if (!status)
    status = add_attribute(&a, "ep_cache_context", ORT_ATTR_STRING, data, bytes);
  if (!status)
    status = add_attribute(&a, "source", ORT_ATTR_STRING, PLUGIN_NAME, strlen(PLUGIN_NAME));
  if (!status)
    status = add_attribute(&a, "ep_sdk_version", ORT_ATTR_STRING, CYTO_VERSION, strlen(CYTO_VERSION));
  if (!status)
    status = add_attribute(&a, "partition_name", ORT_ATTR_STRING, fused, strlen(fused));
  if (!status)
    status = w->ort->CreateNode("EPContext", "com.microsoft", fused, (const char *const *)u->inputs, u->n_inputs,
                                (const char *const *)u->outputs, u->n_outputs, a.made, a.n, out);
  for (size_t i = 0; status && i < a.n; i++) /* the node has them, else */
    w->ort->ReleaseOpAttr(a.made[i]);
  return status;
}

static void make_context(walk *w, const ort_graph *ort, const unit *u, const node *fused, ort_node **out) {
  size_t size = 0;
  if (!w->ort->CreateNode)
    walk_check(w, plugin_error(w->ort, ORT_EP_FAIL, "cytoc: this ONNX Runtime cannot make EPContext nodes"));
  walk_check(w, unit_read(u, &w->bytes, &size));
  bool embed = w->ep->context_embed;
  const char *name = embed ? NULL : save_library(w, ort, u, w->bytes, size);
  walk_check(w, make_node(w, u, fused->name, embed, embed ? w->bytes : name, embed ? size : strlen(name), out));
}

/* ---- all of it ---- */

static unit *compile_group(walk *w, const graph *g) {
  bool *all = walk_take(w, g->n, sizeof *all);
  names escaping = {0};
  size_t n;
  const ort_value_info **outputs = walk_outputs(w, g->ort, &n);
  for (size_t i = 0; i < n; i++)
    *names_at(w, &escaping, walk_name(w, outputs[i]), true) = 1;
  memset(all, 1, g->n * sizeof *all);
  model m;
  model_write(w, g, all, &escaping, &m);
  refusal r = {0};
  unit *u = unit_of((ep *)w->ep, &m, &r);
  walk_check(w, r.status);
  return u;
}

static void compile_one(walk *w, const ort_graph *ort, const ort_node *fused_node, ort_compute **to,
                        ort_node **context) {
  graph g;
  node fused;
  walk_graph(w, ort, &g);
  walk_node(w, fused_node, &fused);
  if (g.n == 1 && node_is_context(w, &g.nodes[0])) {
    const node *n = &g.nodes[0];
    unit *u = open_context(w, ort, n);
    make_compute(w, u, &fused, names_of(w, n->in, n->n_in), names_of(w, n->out, n->n_out), to);
    return;
  }
  unit *u = compile_group(w, &g);
  make_compute(w, u, &fused, (const char **)u->inputs, (const char **)u->outputs, to);
  if (w->ep->context_enable)
    make_context(w, ort, u, &fused, context);
}

static ort_status *compile_alone(ep *e, const ort_graph *ort, const ort_node *fused, ort_compute **to,
                                 ort_node **context) {
  walk w = {.ep = e, .ort = e->ort};
  if (!setjmp(w.failed))
    compile_one(&w, ort, fused, to, context);
  walk_free(&w);
  return w.status;
}

ort_status *compile(ort_ep *self, const ort_graph **graphs, const ort_node **fused, size_t n, ort_compute **computes,
                    ort_node **context_nodes) {
  ort_status *status = NULL;
  for (size_t i = 0; !status && i < n; i++)
    status = compile_alone((ep *)self, graphs[i], fused[i], &computes[i], &context_nodes[i]);
  return status;
}
