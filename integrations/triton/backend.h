/* SPDX-License-Identifier: Apache-2.0 */
/* backend.h - what the parts of the backend know of each other.
 *
 *   backend.c   what Triton finds in the library: its entry points
 *   options.c   the parameters of a model's configuration
 *   library.c   the file of a model: compiled, or found in the cache, and opened
 *   ports.c     inputs and outputs of the library; those that are a state
 *   config.c    the configuration: read, checked against the library, completed from it
 *   layers.c    the time of a model's layers as metrics
 *   instance.c  who runs: a context, and memory for batches
 *   request.c   a request: its inputs, its response
 *   text.c      tensors of strings as Triton writes them
 *   execute.c   requests are gathered into batches, run, and answered
 *
 * A model is opened once; its instances are contexts of it, which share its weights. An instance is used by one thread at a
 * time. A triton_error that a function returns is handed on by the caller.
 */
#ifndef CYTOC_TRITON_BACKEND_H
#define CYTOC_TRITON_BACKEND_H

#include "integrations/shared/shared.h"
#include "integrations/triton/triton_abi.h"

#include "runtime/cyto.h"

#include <jansson.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

/* Returns the error of a call, if it has one. */
#define TRY(call)                                                                                                      \
  do {                                                                                                                 \
    triton_error *failed_ = (call);                                                                                    \
    if (failed_)                                                                                                       \
      return failed_;                                                                                                  \
  } while (0)

/* ---- backend.c ---- */

/* format and arguments as printf has them. */
triton_error *error_of(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
triton_error *error_of_runtime(cyto_status status, const cyto_error *error);
triton_error *out_of_memory(void);
triton_error *error_copy(triton_error *error);
void log_line(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ignore(triton_error *error); /* where nobody can be told */

typedef struct backend {
  int64_t max_batch; /* of models whose configuration leaves it open */
} backend;

/* ---- options.c ---- */

enum { OPTION_WORDS = 16 };

typedef struct options {
  char *words[OPTION_WORDS]; /* for the compiler, as its command line has them */
  size_t n_words;
  int32_t threads;  /* of an instance; 0: the CPUs of this process, shared by the instances */
  char *cache;      /* folder; NULL: where the Python package has its own */
  uint64_t samples; /* of calibrate */
  bool has_target, layers;
  bool direct, oldest; /* sequences, by which of Triton's strategies */
} options;

/* parameters: the map of a configuration, or NULL. On an error, too, options_free() it. */
triton_error *options_read(options *o, const json_t *parameters);
triton_error *options_add(options *o, const char *name, const char *value); /* a word of the compiler's */
void options_free(options *o);

/* ---- ports.c ---- */

typedef struct port {
  cyto_port at;              /* of the library */
  int32_t index;             /* its number there */
  int type;                  /* Triton's; 0: none that it could send */
  bool is_state;             /* kept by Triton from one request of a sequence to the next */
  bool is_control;           /* input: of a sequence, made by Triton */
  bool starts_bare;          /* input, a state: its data is not there yet in the first request of a sequence */
  bool grows[CYTO_MAX_RANK]; /* input, a state: dims of which each request adds to; they begin with 0 */
  int32_t twin;              /* output that is a state: the input it becomes; else -1 */
} port;

typedef struct layers layers;

typedef struct model {
  triton_model *triton;
  const char *name;
  uint64_t version;
  options options;
  cyto_model *library;
  bool is_cuda;
  port *inputs, *outputs;
  int32_t n_inputs, n_outputs;
  int64_t max_batch;     /* 0: the first dim is no batch */
  int32_t cpu_instances; /* that the configuration asks for */
  layers *layers;        /* NULL: not asked for */
} model;

triton_error *ports_read(model *m);
int type_of_dtype(int32_t dtype); /* Triton's; 0: none */
const char *type_name(int type);
int32_t type_bytes(int type); /* of an element */
/* The port of that name, or NULL. */
port *port_find(port *ports, int32_t n, const char *name);
/* "; did you mean ..?", and which there are. */
const char *port_names(const port *ports, int32_t n, const char *wanted, char text[512]);
/* "[batch,3,-1]" */
const char *port_shape(const port *p, char text[512]);
/* Whether a state gets longer along this dim. */
bool port_grows(const port *in, const port *out, int32_t dim);
/* The input that this output is a newer one of, by what the compiler knows or by their names; -1: none. */
int32_t port_twin(const model *m, const port *output);
/* Whether the first dim of every input and output is one that names a batch. */
bool ports_are_batched(const model *m);

/* ---- library.c ---- */

/* folder: of the version. file: the name in the configuration, or "". gpu: instances are wanted on GPUs. */
triton_error *library_open(model *m, const char *folder, const char *file, bool gpu);

/* ---- config.c ---- */

typedef struct config {
  json_t *root;
  const char *file; /* default_model_filename, or "" */
  bool gpu;         /* an instance_group asks for one */
} config;

triton_error *config_read(config *c, triton_model *model);
void config_free(config *c);
int32_t config_instances(const config *c, const char *kind); /* that it asks for of this kind, at least 1 */
/* Fills in what the configuration leaves open. */
triton_error *config_complete(config *c, model *m, int64_t max_batch);
/* Takes over what it says of batches and states; an error where it does not fit the library. */
triton_error *config_apply(const config *c, model *m);

/* ---- layers.c ---- */

triton_error *layers_start(model *m);
void layers_stop(layers *l); /* NULL is allowed */

/* ---- instance.c ---- */

/* Memory that only grows. */
typedef struct room {
  void *data;
  uint64_t bytes;
} room;
bool room_get(room *r, uint64_t bytes);

typedef struct instance {
  triton_instance *triton;
  model *model;
  cyto_context *context;
  bool planned;             /* for the shapes of `bound` */
  cyto_tensor *bound;       /* [n_inputs] what is bound; data NULL: nothing */
  cyto_tensor *shapes;      /* [n_outputs] what comes of it; of dynamic ones, nothing */
  room *gathered, *strings; /* [n_inputs] */
  room *results;            /* [n_outputs] */
  room requests;            /* execute.c */
} instance;

triton_error *instance_create(model *m, triton_instance *triton, instance **out);
void instance_destroy(instance *i);
/* Binds an input; data NULL: an optional one that is not there. Must stay valid until the run is over. */
triton_error *instance_bind(instance *i, int32_t input, const cyto_tensor *t);
/* The shapes of the outputs for what is bound. */
triton_error *instance_plan(instance *i);

/* ---- request.c ---- */

typedef struct view {
  triton_input *input; /* NULL: an optional one that is not there */
  uint32_t pieces;
  bool is_zero; /* a state that has no data yet */
  uint64_t bytes;
  int32_t rank;
  int64_t dims[CYTO_MAX_RANK];
} view;

/* Where an output goes. */
typedef struct target {
  bool wanted; /* in the response */
  void *response, *state;
  triton_state *handle; /* of the state */
} target;

typedef struct request {
  triton_request *triton;
  triton_response *response;
  triton_error *error; /* the answer */
  bool is_done;
  int64_t rows;    /* of the batch; 1 without batches */
  view *inputs;    /* [n_inputs] */
  target *outputs; /* [n_outputs] */
} request;

/* Reads the request's inputs; an error is its answer. r->inputs and r->outputs are given. */
void request_begin(request *r, const model *m, triton_request *triton);
/* Whether both can be rows of one batch. */
bool request_fits(const request *a, const request *b, const model *m);
/* Copies an input to `to`. */
triton_error *request_copy(const view *v, const char *name, void *to);
/* Where an input lies in one aligned piece; NULL: it does not. */
triton_error *request_direct(const view *v, const char *name, uint64_t alignment, const void **data);
/* Memory for an output: in the response if it is wanted, in the state if it is one. */
triton_error *request_place(request *r, const port *output, const int64_t *dims, int32_t rank, uint64_t bytes);
triton_error *request_update_states(const request *r, const model *m);
/* Sends the response. The request is still held. */
void request_answer(request *r);

/* ---- text.c ---- */

/* n strings, each 4 bytes that tell its length and its text, as cyto_strings, whose texts stay where they are. */
triton_error *text_read(const char *name, const void *data, uint64_t bytes, cyto_string *strings, uint64_t n);
uint64_t text_bytes(const cyto_string *strings, uint64_t n);
void text_write(const cyto_string *strings, uint64_t n, void *to);

/* ---- execute.c ---- */

triton_error *execute(instance *i, triton_request **requests, uint32_t n);

#endif
