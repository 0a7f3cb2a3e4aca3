/* SPDX-License-Identifier: Apache-2.0 */
/* import_int.h - what the files of frontend/ share.
 *
 * mapped.c   file -> mapping -> skeleton (ModelProto without tensor data), unpacked by protobuf-c
 * import.c   ModelProto walk: order of nodes, dispatch to the importers by table.c;  importer.c   what these ask about their node
 * scopes.c   names of graphs and subgraphs
 * choices.c  ranks that the rest of the model decides: it is imported until one fits
 * axes.c     one name on axes that need not be equal: imported apart, to see what relies on it
 * ports.c    the model's inputs;  check.c   what can be said before importing: opsets, unsupported ops
 * tensor.c external.c   constants;  attrs.c   attribute readers;  functions.c   model-local functions
 * onnx_*.c   importers by family: one function per row (or several rows) of onnx_ops.def
 * helpers.c runtime_axes.c indices.c   what importers share
 *
 * An importer reads n->in[], builds IR and calls cy_importer_set() for each output. It may assume that the first `need`
 * inputs of its row are present; n->in[k] is 0 for an absent optional input and in[] is padded to CY_ONNX_MIN_IN
 * entries. When it returns false a diagnostic has been filed (cy_build_error(), or a builder given something invalid,
 * returning 0).
 */
#ifndef CY_FRONTEND_IMPORT_INT_H
#define CY_FRONTEND_IMPORT_INT_H

#include "frontend/axes.h"
#include "frontend/choices.h"
#include "frontend/frontend.h"
#include "onnx.pb-c.h"

#define CY_ONNX_MIN_IN 16
#define CY_ONNX_NEWEST_OPSET 28 /* of the default domain; higher ones get a warning */
#define CY_ONNX_ABSURD_OPSET 60
#define CY_SEEN_INDICES 16
#define CY_MAX_PROTO_DEPTH 160
#define CY_MAX_EXPANDED_NODES 4000000

typedef struct cy_mapping {
  const uint8_t *bytes;
  uint64_t size;
  bool borrowed; /* memory of the caller: not unmapped */
} cy_mapping;

typedef struct cy_names cy_names; /* string -> uint32 */

/* Opset versions in effect: of the model or of a function. */
typedef struct cy_opsets {
  size_t n;
  Onnx__OperatorSetIdProto **ids;
} cy_opsets;

/* A running expansion of a function: attribute bindings, and the chain of callers. */
typedef struct cy_call {
  const Onnx__FunctionProto *fn;
  const struct cy_onnx_node *site; /* the calling node, whose attributes are bound */
  const struct cy_call *caller;
} cy_call;

typedef struct cy_scope {
  cy_names *names;              /* -> cy_val; 0: the value of a node that failed */
  cy_names *ranks;              /* names -> declared rank; NULL: nothing is declared */
  const struct cy_scope *outer; /* of the enclosing graph; NULL for the main graph and for functions */
  const cy_call *call;
  const cy_opsets *opsets;
  cy_str graph;
  uint32_t depth;
} cy_scope;

typedef struct cy_onnx_row cy_onnx_row;

typedef struct cy_importer {
  cy_graph *g;
  cy_diag_sink *diag;
  cy_arena *arena;           /* scratch; gone after the attempt, while the protobuf stays for the next one */
  cy_choices *choices;
  cy_axes *axes;
  const char *file;
  const cy_mapping *map;
  const Onnx__ModelProto *model;
  const cy_import_options *options;
  cy_names *functions;
  cy_names *fixed_dims; /* symbol -> index + 1 into fixed */
  struct cy_fixed_dim *fixed;
  uint32_t nfixed;
  struct cy_externals *externals; /* the graph's */
  uint64_t expanded, skipped; /* nodes: imported; left out because a node before them failed */
  struct cy_seen_indices { /* indices.c: the last ones that were looked at, in turn */
    cy_val indices;
    cy_block block;
    bool from_end;
    cy_dim farthest;
  } seen[CY_SEEN_INDICES];
  uint32_t nseen;
  uint32_t malformed;         /* errors that no values of the inputs could excuse: dangling names, wrong attributes */
  /* Set by import.c for those that it calls: a subgraph or a function has nodes of any operator, and one operator may be
   * another's import. So files depend on one another in one direction. */
  /* used: a set of the names that are read when the nodes have run; what nodes read is added to it. */
  bool (*import_nodes)(struct cy_importer *im, cy_scope *scope, Onnx__NodeProto *const *nodes, size_t n, cy_names *used);
  const cy_onnx_row *(*find_row)(const char *domain, const char *op, int version); /* cy_onnx_find() */
} cy_importer;

/* What an importer has asked for: which of the first 64 attributes; whether it knows of outputs besides the first. */
typedef struct cy_onnx_asked {
  const Onnx__NodeProto *proto;
  uint64_t attributes;
  bool outputs;
} cy_onnx_asked;

typedef struct cy_onnx_node {
  const Onnx__NodeProto *proto;
  const Onnx__NodeProto *written; /* the same with the names of outputs that nobody uses */
  cy_onnx_asked *asked;
  const char *op, *domain; /* domain "" for ai.onnx */
  int version;             /* opset in effect */
  int since;               /* of the row chosen */
  int arg;                 /* of the row chosen */
  uint32_t nin, nout;      /* as written in the model, trailing absent ones included */
  cy_val *in;
  cy_val *out; /* filled by cy_importer_set() */
  cy_scope *scope;
  cy_origin origin;
} cy_onnx_node;

typedef bool (*cy_import_fn)(cy_importer *im, const cy_onnx_node *n);
struct cy_onnx_row {
  const char *domain, *op;
  int since, need;
  cy_import_fn import;
  int arg;
};

/* A node as another importer shall see it: with these inputs, and places for its outputs. For operators that are made of
 * one that has an importer. */
typedef struct cy_onnx_inner {
  cy_onnx_node n;
  cy_val in[CY_ONNX_MIN_IN], out[4];
} cy_onnx_inner;
void cy_onnx_inner_init(cy_onnx_inner *q, const cy_onnx_node *n); /* no inputs, one output */

/* foreign.c: what a file is that is no ONNX, and the way from it to ONNX; NULL: not known. */
const char *cy_foreign_format(const uint8_t *bytes, size_t n);

/* mapped.c */
/* False with the reason in `why`. */
bool cy_mapping_open(cy_mapping *m, const char *path, char *why, size_t room);
void cy_mapping_close(cy_mapping *m);
/* Allocates from `arena`. NULL after a diagnostic. */
Onnx__ModelProto *cy_model_unpack(const cy_mapping *m, cy_arena *arena, cy_diag_sink *diag, const char *file);
/* What the skeleton has instead of bulk data of a TensorProto: in its raw_data. */
typedef struct cy_bulk {
  uint64_t field, offset, length; /* TensorProto field number; range of the mapped file */
} cy_bulk;

/* names.c */
cy_names *cy_names_create(cy_arena *arena);
bool cy_names_find(const cy_names *t, const char *key, uint32_t *out_value);
void cy_names_set(cy_names *t, const char *key, uint32_t value); /* key not copied */

/* table.c, for import.c and check.c */
const cy_onnx_row *cy_onnx_find(const char *domain, const char *op, int version);
bool cy_onnx_knows_domain(const char *domain);

/* check.c */
bool cy_check_model(cy_importer *im);
int cy_opset_version(const cy_opsets *sets, const char *domain);

/* importer.c */
const char *cy_onnx_domain(const char *domain); /* "" for ai.onnx and NULL */
bool cy_importer_set(cy_importer *im, const cy_onnx_node *n, uint32_t k, cy_val v);
void cy_onnx_at(cy_importer *im, const cy_onnx_node *n); /* what is built from now on comes from n (again) */
/* Output k exists, and somebody uses it: `proto` of a cy_onnx_node has names for such outputs only. */
bool cy_onnx_wants(const cy_onnx_node *n, uint32_t k);
bool cy_scope_find(const cy_scope *s, const char *name, cy_val *out_value);
cy_location cy_importer_where(cy_importer *im, const char *graph);
cy_location cy_importer_at(cy_importer *im, const cy_onnx_node *n);
const char *cy_importer_quote(cy_importer *im, const char *what, const char *name); /* "what 'name'" */

/* scopes.c */
void cy_scope_origin(cy_importer *im, const cy_scope *scope); /* what is built from now on comes from its graph */
void cy_scope_bind(cy_importer *im, cy_scope *scope, const char *name, cy_val v);
cy_names *cy_scope_outputs(cy_importer *im, const Onnx__GraphProto *graph); /* the set of their names */
cy_names *cy_scope_ranks(cy_importer *im, const Onnx__GraphProto *graph);   /* those that the graph declares */
void cy_scope_initializers(cy_importer *im, cy_scope *scope, const Onnx__GraphProto *graph);
/* Imports a subgraph's nodes into the current block; `params` are bound to its inputs. Results to out (n_output of
 * them). */
bool cy_import_subgraph(cy_importer *im, const cy_onnx_node *n, const Onnx__GraphProto *graph, const cy_val *params,
                        uint32_t nparams, cy_val *out_results);

/* ports.c */
bool cy_import_fix_dims(cy_importer *im);
bool cy_import_inputs(cy_importer *im, cy_scope *scope);
/* Attribute 'type' of n: a container's description, 0 after a diagnostic; what a container of this type would hold. */
bool cy_import_held_tensor(cy_importer *im, const cy_onnx_node *n, const Onnx__TypeProto *type, cy_content_info *out);

/* functions.c */
void cy_functions_index(cy_importer *im);
const Onnx__FunctionProto *cy_function_find(const cy_importer *im, const Onnx__NodeProto *node);
bool cy_function_expand(cy_importer *im, const cy_onnx_node *n, const Onnx__FunctionProto *fn);

/* tensor.c */
cy_val cy_import_tensor(cy_importer *im, const Onnx__TensorProto *t, const char *item);
cy_val cy_import_sparse(cy_importer *im, const Onnx__SparseTensorProto *t, const char *item);

/* attrs.c: value of an attribute, or what is said when it is absent. A wrong type is reported, counted in
 * im->malformed, and reads as absent. */
const Onnx__AttributeProto *cy_onnx_attr(cy_importer *im, const cy_onnx_node *n, const char *name,
                                         Onnx__AttributeProto__AttributeType type);
bool cy_onnx_has(const cy_onnx_node *n, const char *name);
/* The next attribute from *at on that is set to something and that nobody has asked for; NULL: no more. */
const char *cy_onnx_unasked(const cy_onnx_node *n, size_t *at);
int64_t cy_onnx_int(cy_importer *im, const cy_onnx_node *n, const char *name, int64_t otherwise);
/* An element type, of one of the classes ("FIUB": numbers and bools; see dtypes.def). `otherwise` CY_NONE: it must be
 * there. CY_NONE after a diagnostic. */
cy_dtype cy_onnx_dtype(cy_importer *im, const cy_onnx_node *n, const char *name, cy_dtype otherwise,
                       const char *classes);
/* otherwise: rounded to a float, as an attribute that says it would be */
double cy_onnx_float(cy_importer *im, const cy_onnx_node *n, const char *name, double otherwise);
const char *cy_onnx_string(cy_importer *im, const cy_onnx_node *n, const char *name, const char *otherwise);
const int64_t *cy_onnx_ints(cy_importer *im, const cy_onnx_node *n, const char *name,
                            uint32_t *out_n); /* NULL: absent */
const double *cy_onnx_floats(cy_importer *im, const cy_onnx_node *n, const char *name, uint32_t *out_n);
const char *const *cy_onnx_strings(cy_importer *im, const cy_onnx_node *n, const char *name, uint32_t *out_n);
const Onnx__GraphProto *cy_onnx_graph(cy_importer *im, const cy_onnx_node *n, const char *name);
/* One of a list of words ("a|b|c"): its index; -1 after a diagnostic. */
int cy_onnx_word(cy_importer *im, const cy_onnx_node *n, const char *name, const char *otherwise, const char *words);

/* helpers.c: small things most importers need */
bool cy_onnx_axis(cy_importer *im, int64_t axis, int rank, int *out_axis); /* from -rank .. rank-1 */
/* The axes of attribute "axes", or of input k where k > 0: normalised, sorted order kept, unique. false after a
 * diagnostic; *out_n is 0 when absent or empty. */
bool cy_onnx_axes(cy_importer *im, const cy_onnx_node *n, uint32_t k, int rank, int64_t *out_axes, uint32_t *out_n);
const cy_dim *cy_onnx_elems(cy_importer *im, const cy_onnx_node *n, uint32_t k,
                            uint32_t *out_n); /* input k's contents; NULL after a diagnostic */
bool cy_onnx_const_ints(cy_importer *im, const cy_onnx_node *n, uint32_t k, int64_t *out, uint32_t max,
                        uint32_t *out_n);
bool cy_onnx_clash(cy_importer *im, cy_dim a, cy_dim b); /* both are known, and differ */
/* Or else an error, at run time at the latest. */
bool cy_onnx_at_most(cy_importer *im, const char *item, cy_dim a, cy_dim b);
void cy_onnx_require_sizes(cy_importer *im, const cy_dim *d, uint32_t n); /* none is below 0 when the model runs */
/* Broadcasting that goes one way: v does not make `into` larger. */
bool cy_onnx_fits_into(cy_importer *im, const char *item, cy_val v, cy_val into);
/* Where elements of `made` are computed from an axis of that size, it is not 0. */
bool cy_onnx_check_source(cy_importer *im, cy_dim size, cy_val made);
cy_val cy_onnx_flatten2(cy_importer *im, cy_val x, int axis); /* [prod(before axis), prod(from axis)] */
cy_val cy_onnx_channel(cy_importer *im, cy_val v, int rank,
                       int axis); /* 1-D [c] -> [c, 1, 1] .. for broadcasting along axis */
/* The same of v, called `item`, for x [.., channels at axis, ..]: an error unless v has one value per channel, when it runs
 * at the latest. v 0: 0. */
cy_val cy_onnx_per_channel(cy_importer *im, cy_val v, const char *item, cy_val x, int axis);
/* Does v, called `item`, broadcast to the shape that x has? Else an error, when it runs at the latest. v 0: true. */
bool cy_onnx_broadcasts_to(cy_importer *im, cy_val v, const char *item, cy_val x);
cy_val cy_onnx_mean(cy_importer *im, cy_val x, const int64_t *axes, uint32_t n, bool keepdims);
cy_val cy_onnx_normalize(cy_importer *im, cy_val x, const int64_t *axes, uint32_t n, double epsilon, bool rms);
cy_val cy_onnx_move_axis(cy_importer *im, cy_val x, int from, int to);
cy_val cy_onnx_transpose_channels(cy_importer *im, cy_val x,
                                  bool back); /* [n, s.., c] to [n, c, s..], or back; 0 stays 0 */
cy_val cy_onnx_fill(cy_importer *im, cy_val scalar, const cy_dim *dims, int rank);
cy_val cy_onnx_gelu_tanh(cy_importer *im, cy_val x);                        /* onnx_math.c: the approximation */
cy_val cy_onnx_softplus(cy_importer *im, cy_val x);                         /* log(1 + exp(x)) */
cy_val cy_onnx_matmul(cy_importer *im, cy_val a, cy_val b, cy_dtype dtype); /* numpy.matmul, 1-D operands too */
/* onnx_contrib.c */
cy_val cy_onnx_rotary(cy_importer *im, cy_val x, cy_val cosine, cy_val sine, cy_dim rotated, bool interleaved);
cy_val cy_onnx_split_heads(cy_importer *im, cy_val x, int64_t heads); /* onnx_attention.c: [b, s, h * d] -> [b, h, s, d] */
cy_val cy_onnx_join_heads(cy_importer *im, cy_val x);                /* and back; 0 stays 0 */
cy_val cy_onnx_conv(cy_importer *im, const cy_onnx_node *n, cy_val x, cy_val weights, cy_dtype dtype); /* onnx_nn.c */
/* .. of integers; zero points as conv's in ops.def, 0 where there are none. */
cy_val cy_onnx_conv_zeros(cy_importer *im, const cy_onnx_node *n, cy_val x, cy_val weights, cy_val x_zero, cy_val w_zero,
                          cy_dtype dtype);
/* onnx_norm.c: x [n, c, s..] as [n, groups, c / groups * s], normalised over the last of them. */
cy_val cy_onnx_group_normalize(cy_importer *im, cy_val x, int64_t groups, double epsilon);
/* onnx_search.c: ids [b, length], scores [b, words]: `value` for the words that, put behind the ids, would end an n-gram
 * that is among them already. */
cy_val cy_onnx_block_ngrams(cy_importer *im, cy_val ids, cy_val scores, int64_t size, double value);
/* onnx_quant.c: with checked parameters; scale and zero point (or 0) per tensor, or along an axis. f32 is what is meant. */
cy_val cy_onnx_per_tensor(cy_importer *im, cy_val v); /* one element: a scalar */
cy_val cy_onnx_dequantize(cy_importer *im, cy_val x, cy_val scale, cy_val zero);
/* Do scale and zero point (0: none) fit x, as numbers or along `axis`? Single elements become scalars. */
bool cy_onnx_check_parameters(cy_importer *im, cy_val x, cy_val *scale, cy_val *zero, int axis);
cy_val cy_onnx_dequantize_along(cy_importer *im, cy_val x, cy_val scale, cy_val zero, int axis);
cy_val cy_onnx_quantize(cy_importer *im, cy_val y, cy_val scale, cy_val zero, cy_dtype dtype);
/* u8 of `dims` with several numbers of `bits` bits in each, the first in the lowest: a last axis 8 / bits times as long. */
cy_val cy_onnx_unpack(cy_importer *im, cy_val packed, int64_t bits, const cy_dim *dims, int rank);
/* x as u8 with the scale and zero point that its extremes ask for when it runs; its product with integers b, in f32. */
typedef struct cy_onnx_rounded {
  cy_val ints, scale, zero;
} cy_onnx_rounded;
bool cy_onnx_round(cy_importer *im, cy_val x, cy_onnx_rounded *out);
cy_val cy_onnx_rounded_product(cy_importer *im, const cy_onnx_rounded *a, cy_val b, cy_val scale, cy_val zero);
void cy_onnx_bind_count(cy_importer *im, cy_sym s, cy_val v, int64_t index); /* onnx_index.c: s is a dimension of v */

/* onnx_sequence.c. Content 0 lets the elements, or the value, decide. */
cy_content cy_onnx_holding(cy_importer *im, cy_content_kind kind, const cy_type *t); /* a container of values of type t */
cy_content cy_onnx_empty_sequence(cy_importer *im, cy_dtype dtype);
cy_val cy_onnx_make_sequence(cy_importer *im, const cy_val *v, uint32_t count, cy_content content);
/* Its elements; NULL: not known */
const cy_val *cy_onnx_known_sequence(const cy_importer *im, cy_val v, uint32_t *out_count);
cy_val cy_onnx_split_sequence(cy_importer *im, cy_val x); /* of the slices of x along its first axis, which they lack */
cy_val cy_onnx_sequence_length(cy_importer *im, cy_val v);
bool cy_onnx_is_sequence(const cy_importer *im, cy_val v);
cy_val cy_onnx_sequence_at(cy_importer *im, cy_val sequence, cy_val place); /* place: i64 scalar */
cy_val cy_onnx_box(cy_importer *im, cy_val v, cy_content optional);
cy_val cy_onnx_unbox(cy_importer *im, cy_val v); /* of anything but an optional: itself */

/* onnx_string.c: constants, and casts from or to strings */
cy_val cy_onnx_text(cy_importer *im, const void *bytes, size_t length);                                 /* a scalar */
/* Of a list attribute */
cy_val cy_onnx_texts(cy_importer *im, const cy_onnx_node *n, const char *name, uint32_t *out_count);
cy_val cy_onnx_int_list(cy_importer *im, const int64_t *v, uint32_t n);
cy_val cy_onnx_cast_string(cy_importer *im, cy_val x, cy_dtype to);

/* onnx_ml.c: what classifiers and regressors share */
enum { POST_NONE, POST_SOFTMAX, POST_LOGISTIC, POST_SOFTMAX_ZERO, POST_PROBIT }; /* attribute 'post_transform' */
int cy_onnx_ml_post(cy_importer *im, const cy_onnx_node *n);                    /* -1 after a diagnostic */
cy_val cy_onnx_ml_transformed(cy_importer *im, cy_val scores, int post);
/* Input 0 as rows of f32: [features] becomes [1, features] */
cy_val cy_onnx_ml_rows(cy_importer *im, const cy_onnx_node *n);
cy_val cy_onnx_ml_floats(cy_importer *im, const double *v, uint32_t n);
cy_val cy_onnx_ml_constant(cy_importer *im, cy_dtype dtype, const void *bytes, const int64_t *dims, int rank);
/* Two classes, one column of scores s [rows, 1]: the label by a threshold, and both columns of scores. */
bool cy_onnx_ml_set_binary(cy_importer *im, const cy_onnx_node *n, cy_val labels, cy_val s, int post, bool probability);
/* The labels, integers or strings, or the class numbers where there are none. */
cy_val cy_onnx_ml_labels(cy_importer *im, const cy_onnx_node *n, const char *ints, const char *strings, uint32_t classes);
cy_val cy_onnx_ml_best(cy_importer *im, cy_val labels, cy_val scores); /* of each row's highest score, the first one */

/* indices.c: refused when the model runs, or here where they are constants. False after a diagnostic. */
/* Every element is in [-extent, extent), or [0, extent) where it must not count from the end. */
bool cy_onnx_check_indices(cy_importer *im, cy_val indices, cy_dim extent, bool from_end);
/* The same for the rows of a table, none from the end; what is no table is left to those who read it. */
bool cy_onnx_check_rows(cy_importer *im, cy_val indices, cy_val table);
bool cy_onnx_check_lengths(cy_importer *im, cy_val lengths, cy_dim upper); /* in [0, upper]; lengths may be 0 */
bool cy_onnx_check_axes(cy_importer *im, cy_val axes, int rank); /* in [-rank, rank) */
/* Numbers that come at run time are below `bound`; the text as for cy_graph_require_text(), with the largest and bound. */
bool cy_onnx_check_below(cy_importer *im, cy_val numbers, int64_t bound, const char *text);
/* All of `right`, booleans that may come at run time, are true; text: without a number. */
bool cy_onnx_check_true(cy_importer *im, cy_val right, const char *text);
/* Tuples [.., count]: coordinate i indexes axis first + i of x, from its end, too. */
bool cy_onnx_check_tuples(cy_importer *im, cy_val indices, const cy_type *x, int first, int64_t count);

/* runtime_axes.c: axes and shapes known only when the model runs. A mask is i64[rank], 1 at the named dimensions. */
bool cy_onnx_known(cy_importer *im, const cy_onnx_node *n, uint32_t k); /* input k is absent, empty or constant */
const cy_dim *cy_onnx_sizes(cy_importer *im, cy_val v);                 /* elements of v, none of them negative */
cy_val cy_onnx_axes_mask(cy_importer *im, const cy_onnx_node *n, uint32_t k, bool more, int rank,
                         int *out_n); /* of input k, over `rank` dimensions (and one more per axis, with `more`) */
cy_val cy_onnx_flag(cy_importer *im, cy_val mask, int i); /* element i as a bool scalar */
/* Reshapes x to the `left` of the dims that the mask does not name; puts in dimensions of 1 where it names them. */
cy_val cy_onnx_drop_axes(cy_importer *im, cy_val x, cy_val mask, const cy_dim *dims, int rank, int left);
cy_val cy_onnx_insert_axes(cy_importer *im, cy_val x, cy_val mask, int rank);
cy_val cy_onnx_reduce_masked(cy_importer *im, cy_op op, cy_val x, cy_val mask, int naxes, bool keepdims);
cy_val cy_onnx_slice_run_time(cy_importer *im, const cy_onnx_node *n);
/* 2 * rank pads out of a list of pads and one of axes; NULL after a diagnostic. */
const cy_dim *cy_onnx_pads_run_time(cy_importer *im, const cy_onnx_node *n, uint32_t pads, uint32_t axes, int rank);
cy_val cy_onnx_reshape_run_time(cy_importer *im, cy_val x, cy_val shape, int rank, bool allow_zero);
static inline const cy_type *cy_onnx_type(const cy_importer *im, cy_val v) { return &cy_value_of(im->g, v)->type; }

/* An error that a branch of an If is not forgiven, see onnx_branch.c. */
#define MALFORMED(im, ...) ((im)->malformed++, cy_build_error((im)->g, __VA_ARGS__))

/* The vocabulary of compositions; `im` is the importer at hand. */
#define UNARY(op, x) cy_build_unary(im->g, CY_OP_##op, (x))
#define BINARY(op, a, b) cy_build_binary(im->g, CY_OP_##op, (a), (b))
#define ADD(a, b) BINARY(add, a, b)
#define SUB(a, b) BINARY(sub, a, b)
#define MUL(a, b) BINARY(mul, a, b)
#define DIV(a, b) BINARY(div, a, b)
#define MAX(a, b) BINARY(max, a, b)
#define MIN(a, b) BINARY(min, a, b)
#define SELECT(c, a, b) cy_build_select(im->g, (c), (a), (b))
#define CAST(x, t) cy_build_cast(im->g, (x), (t))
#define LIKE(x, v) cy_build_like(im->g, (x), (v))
#define IMPORT(name) bool cy_import_##name(cy_importer *im, const cy_onnx_node *n)

/* Arguments of rows that are no cy_op. */
enum {
  REDUCE_SUM,
  REDUCE_MEAN,
  REDUCE_MAX,
  REDUCE_MIN,
  REDUCE_PROD,
  REDUCE_L1,
  REDUCE_L2,
  REDUCE_LOG_SUM,
  REDUCE_LOG_SUM_EXP,
  REDUCE_SUM_SQUARE
};

enum { Q_SIGMOID, Q_LEAKY_RELU, Q_SOFTMAX, Q_AVERAGE_POOL, Q_GLOBAL_AVERAGE_POOL, Q_REDUCE_MEAN };

enum { NHWC_CONV = 1, NHWC_FUSED_CONV };

enum { WINDOW_HANN, WINDOW_HAMMING, WINDOW_BLACKMAN };
enum { RANDOM_UNIFORM, RANDOM_NORMAL };
enum { GENERATE_GREEDY, GENERATE_SAMPLE, GENERATE_BEAMS, GENERATE_WHISPER };
enum { OPTIMIZER_ADAGRAD, OPTIMIZER_ADAM, OPTIMIZER_MOMENTUM };

#define ONNX_OP(domain, op, since, need, fn, arg) IMPORT(fn);
#include "frontend/onnx_ops.def"
#undef ONNX_OP

#endif
