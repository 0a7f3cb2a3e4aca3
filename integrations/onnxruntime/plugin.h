/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.h - what the parts of the plugin know of each other.
 *
 *   plugin.c     what ONNX Runtime finds in the library: the factory, and which versions are accepted
 *   options.c    what a session asks for: provider options, those for EPContext models
 *   walk.c       memory and errors of a walk through a graph, and its nodes as arrays
 *   capability.c which nodes are taken, in groups that are compiled as one
 *   model.c      a group of nodes as an ONNX model, whose weights stay where ONNX Runtime has them
 *   unit.c       a group, compiled: from the cache or by libcytoc; its library opened
 *   compile.c    OrtEp::Compile, and models with EPContext nodes
 *   run.c        runs
 *
 * Compiling and keeping libraries is shared with other plugins: integrations/shared.
 */
#ifndef CYTOC_ORT_PLUGIN_H
#define CYTOC_ORT_PLUGIN_H

#include "integrations/onnxruntime/ort_abi.h"
#include "integrations/shared/shared.h"

#include "runtime/cyto.h"
#include "tools/driver/cytoc.h"

#include <pthread.h>
#include <setjmp.h>

#define PLUGIN_NAME "cytoc"

/* ---- plugin.c ---- */

typedef struct factory {
  ort_factory base;
  ort_calls ort;
  const void *api;      /* the runtime's table, one of each copy of it */
  uint32_t version;     /* of the runtime at hand */
  struct factory *next; /* made before */
} factory;

/* An error of ours for the runtime; format and arguments as printf has them. */
ort_status *plugin_error(const ort_calls *ort, int32_t code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* What a compiled model says of itself, for later versions to decide whether they can load it. */
const char *ep_compatibility(ort_ep *self, const ort_graph *graph);

/* ---- options.c: a provider ---- */

enum { PLUGIN_WORDS = 16 };

typedef struct ep {
  ort_ep base;
  const factory *made_by;
  const ort_calls *ort;
  const ort_logger *logger;
  char *words[PLUGIN_WORDS]; /* options for the compiler, as the command line has them */
  size_t n_words;
  int32_t threads; /* 0: those of the session */
  char *cache_dir; /* NULL: where the Python package has its own */
  bool context_enable, context_embed;
  char *context_path;
  bool alone;              /* no node of the main graph is ONNX Runtime's */
  uint64_t samples;        /* of the option calibrate: a sum over names, sizes and times */
  struct unit *units;      /* all that was compiled or loaded */
  struct helpers *helpers; /* run.c */
  char compatibility[64];
} ep;

ort_status *ep_create(const factory *f, const ort_session_options *options, const ort_logger *logger, ep **out);
void ep_release(ep *e);
void ep_log(const ep *e, int32_t severity, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- walk.c ---- */

/* Memory that is released at once, and where to go on after an error: walk_check() and walk_take() leave through
 * `failed`, for which the function that owns the walk calls setjmp(). */
typedef struct walk {
  const ep *ep;
  const ort_calls *ort;
  jmp_buf failed;
  ort_status *status;
  struct walk_block *blocks;
  ort_value *value; /* held, and released with the walk */
  void *bytes;
} walk;

void walk_free(walk *w);
void *walk_take(walk *w, size_t n, size_t size); /* zeroed */
char *walk_format(walk *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
void walk_check(walk *w, ort_status *status);

typedef struct node {
  const ort_node *ort;
  const char *name, *op, *domain;
  size_t n_in, n_out, n_implicit, n_bodies;
  const ort_value_info **in, **out; /* NULL: left out */
  const ort_value_info **implicit;  /* what its bodies read of the graph around them */
  struct graph *bodies;
  const char **body_names; /* of the attributes */
  bool ours;
  int level; /* see capability.c */
} node;

typedef struct graph {
  const ort_graph *ort;
  const char *name;
  size_t n;
  node *nodes; /* in topological order */
} graph;

/* The graph with all that is nested in it. */
void walk_graph(walk *w, const ort_graph *ort, graph *out);
void walk_node(walk *w, const ort_node *ort, node *out);
const ort_value_info **walk_outputs(walk *w, const ort_graph *ort, size_t *n);
const char *walk_name(walk *w, const ort_value_info *value);
bool walk_is_constant(walk *w, const ort_value_info *value);

/* The type of a value. dtype 0: none that cytoc computes with. */
typedef struct type {
  int32_t dtype;
  bool has_shape;
  size_t rank;
  int64_t *dims;        /* -1: open */
  const char **symbols; /* "": without a name */
} type;
type walk_type(walk *w, const ort_value_info *value);
int32_t dtype_of_ort(int32_t number); /* a cyto_dtype; 0: none */

/* Names, each with a number. */
typedef struct names {
  size_t n, room;
  struct name {
    const char *text;
    intptr_t number;
  } * slots;
} names;
intptr_t *names_at(walk *w, names *set, const char *text, bool add); /* NULL: it is not there */

typedef struct attribute {
  const char *name;
  int32_t kind;
  const ort_op_attr *ort;
} attribute;
attribute *walk_attributes(walk *w, const node *n, size_t *count);
void *walk_attribute(walk *w, const attribute *a, size_t *bytes); /* its numbers or text, with a zero behind */
const attribute *attribute_find(const attribute *all, size_t n, const char *name);

/* ---- capability.c ---- */

ort_status *capability(ort_ep *self, const ort_graph *ort, ort_support *support);
bool node_is_context(walk *w, const node *n); /* an EPContext node of ours */

/* ---- model.c ---- */

typedef struct weight {
  const void *data;
  size_t bytes;
} weight;

/* What the graph of a group is called: ONNX Runtime has other names for it when it is asked for and when it is compiled. */
#define MODEL_GRAPH "graph"

/* A group of nodes, serialized. Lives as long as its walk. */
typedef struct model {
  const ort_graph *ort;
  const uint8_t *bytes;
  size_t size;
  weight *weights; /* external data: the location is the number of one */
  size_t n_weights;
  const char **inputs, **outputs;
  size_t n_inputs, n_outputs;
  char key[80]; /* of the cache */
} model;

/* taken[i]: node i is part of it. escaping: what is wanted of it. */
void model_write(walk *w, const graph *g, const bool *taken, names *escaping, model *out);

/* ---- unit.c ---- */

typedef struct run run;

typedef struct unit {
  struct unit *next;
  const ep *ep;
  char key[80];
  char *path; /* of the library, in the cache; NULL: `bytes` */
  void *bytes;
  size_t size;
  cyto_model *model;
  size_t n_inputs, n_outputs;
  char **inputs, **outputs; /* names in ONNX Runtime's graph, in the order of the library */
  bool *dynamic;            /* outputs whose shape is known only after running */
  pthread_mutex_t lock;     /* of the runs that are not in use */
  run *idle;
} unit;

/* What the compiler said of a model that it cannot compile. */
typedef struct refusal {
  bool of_model; /* the model, not the machine or the options */
  ort_status *status;
  void *ctx;
  void (*on_diagnostic)(void *ctx, const cytoc_diagnostic *d); /* for every error */
} refusal;

/* Compiles, or finds what was compiled before. NULL: why is in *r; the caller releases r->status. */
unit *unit_of(ep *e, const model *m, refusal *r);
/* Opens a library that is not compiled here: a file, or bytes, which are copied. */
ort_status *unit_open(ep *e, const char *path, const void *bytes, size_t size, unit **out);
ort_status *unit_read(const unit *u, void **bytes, size_t *size); /* the whole library; free() it */
void unit_release(unit *u);
/* Tells whether the compiler accepts the options. */
ort_status *options_check(const ep *e);

/* ---- compile.c, run.c ---- */

ort_status *compile(ort_ep *self, const ort_graph **graphs, const ort_node **fused, size_t n, ort_compute **computes,
                    ort_node **context_nodes);
void release_computes(ort_ep *self, ort_compute **computes, size_t n);

/* A fused node: which of its inputs and outputs are which of the library's. */
typedef struct compute {
  ort_compute base;
  unit *unit;
  size_t *inputs, *outputs;
} compute;
ort_status *compute_run(ort_compute *self, void *state, ort_kernel_context *context);
void runs_release(unit *u);
struct helpers *helpers_create(void);

#endif
