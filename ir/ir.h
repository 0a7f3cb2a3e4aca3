/* SPDX-License-Identifier: Apache-2.0 */
/* ir.h - the graph IR: SSA over tensors, and everything that is known about them at compile time.
 *
 * A cy_graph is one compiled model: values, nodes, blocks, symbols, interned strings and dims. Ids are dense 32-bit
 * numbers, 0 is "none" everywhere, so side tables are plain arrays indexed by id. Everything lives in the graph's
 * arena; nothing is freed singly but large constants that others were made of. Constant data stays where it was mapped and is only pointed to.
 *
 * Building.  cy_build() makes a node in the current block, infers the types of its outputs, evaluates it at once
 *   where all inputs are small constants or symbolic integers (so `Shape -> Gather -> Concat -> Reshape` never reaches
 *   a kernel), and returns its first output. On an error it files a diagnostic with the current origin and returns 0; a
 *   call given a 0 input returns 0 silently, so importers check once.
 * Threads.  A graph belongs to one thread.
 */
#ifndef CY_IR_H
#define CY_IR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "order.h"
#include "round.h"

#define CY_MAX_RANK 12
#define CY_MUST_USE __attribute__((warn_unused_result))

/* ---- tables ---------------------------------------------------------------------------------------------------- */

typedef enum cy_dtype {
#define DTYPE(id, name, onnx, bits, cls, c_type) CY_##id,
#include "dtypes.def"
#undef DTYPE
  CY_DTYPE_COUNT
} cy_dtype; /* equal to ONNX's TensorProto.DataType and to cyto_dtype; CY_REF is of the compiler only */

/* See ops.def. */
typedef enum cy_op_class {
  CY_CLASS_EW, CY_CLASS_VIEW, CY_CLASS_INDEX, CY_CLASS_REDUCE, CY_CLASS_ROOT, CY_CLASS_CALL, CY_CLASS_CTRL
} cy_op_class;

typedef enum cy_op {
  CY_OP_NONE,
#define OP(name, min_in, max_in, outs, cls, flags, cost, attrs) CY_OP_##name,
#include "ops.def"
#undef OP
  CY_OP_COUNT
} cy_op;

typedef enum cy_attr_key {
  CY_ATTR_NONE,
#define ATTR(name, kind) CY_ATTR_##name,
#include "attrs.def"
#undef ATTR
  CY_ATTR_COUNT
} cy_attr_key;

/* Which member of cy_attr holds the value. */
typedef enum cy_attr_kind {
  CY_KIND_INT, CY_KIND_FLOAT, CY_KIND_INTS, CY_KIND_FLOATS, CY_KIND_DIMS, CY_KIND_BLOCK
} cy_attr_kind;

typedef struct cy_dtype_info {
  const char *name;
  int onnx, bits;
  char cls; /* as in dtypes.def; 0 for none */
  const char *c_type;
} cy_dtype_info;

typedef struct cy_op_info {
  const char *name;
  int min_in, max_in, outs; /* -1: any number */
  cy_op_class cls;
  bool commutative, idempotent, typed, exact, never_negative, keeps_positive, passes_errors, expression, fusion_root, keeps_axes,
      row_major, of_floats, of_integers, of_numbers, gives_bool;
  int cost;
  const char *attrs;
} cy_op_info;

const cy_dtype_info *cy_dtype_of(cy_dtype dtype);                     /* tables.c */
const cy_op_info *cy_op_of(cy_op op);
#define cy_node_op(n) cy_op_of((cy_op)(n)->op) /* the row of a node's op */
cy_op cy_op_combines_by(cy_op op);                                    /* add of reduce_sum, ..; CY_OP_NONE: does not combine */
cy_op cy_op_by_name(const char *name, size_t len);                    /* CY_OP_NONE when unknown */
cy_dtype cy_dtype_by_name(const char *name, size_t len);
const char *cy_attr_name(cy_attr_key key);
cy_attr_kind cy_attr_kind_of(cy_attr_key key);
cy_attr_key cy_attr_by_name(const char *name, size_t len);
static inline bool cy_op_is_ew(cy_op op) { return cy_op_of(op)->cls == CY_CLASS_EW; }
/* Is each element of the result one of the first operand's, by its index alone? */
static inline bool cy_op_is_pure_view(cy_op op) { return cy_op_of(op)->cls == CY_CLASS_VIEW && cy_op_of(op)->expression; }
static inline bool cy_dtype_is_float(cy_dtype t) { return cy_dtype_of(t)->cls == 'F'; }
/* What an op computes real numbers of such inputs in: f64 where they are, f32 for all else. */
static inline cy_dtype cy_dtype_real(cy_dtype t) { return t == CY_F64 ? CY_F64 : CY_F32; }
static inline bool cy_dtype_is_byte(cy_dtype t) { return t == CY_I8 || t == CY_U8; } /* integers of 8 bits */
/* Floats of 8 bits, in which devices multiply matrices. */
static inline bool cy_dtype_is_float8(cy_dtype t) { return t == CY_F8E4M3FN || t == CY_F8E5M2; }
static inline bool cy_dtype_is_int(cy_dtype t) { return cy_dtype_of(t)->cls == 'I' || cy_dtype_of(t)->cls == 'U'; }
void cy_dtype_int_range(cy_dtype t, double *out_min, double *out_max); /* of an integer; rounded beyond 53 bits */

/* write_rows: what its result has elsewhere is x's; behind the last place comes the first; or rows are the last ones that
 * count: what lies behind them is not looked at, zeros where x was copied */
typedef enum cy_write_mode { CY_WRITE_PLAIN, CY_WRITE_WRAP, CY_WRITE_LAST } cy_write_mode;
enum cy_pad_mode { CY_PAD_CONSTANT, CY_PAD_REFLECT, CY_PAD_EDGE, CY_PAD_WRAP };
enum cy_combine { CY_COMBINE_SET, CY_COMBINE_ADD, CY_COMBINE_MUL, CY_COMBINE_MIN, CY_COMBINE_MAX };
enum cy_cell { CY_CELL_RNN, CY_CELL_GRU, CY_CELL_LSTM };
enum cy_activation { CY_ACT_SIGMOID, CY_ACT_TANH, CY_ACT_RELU, CY_ACT_AFFINE, CY_ACT_LEAKY_RELU, CY_ACT_THRESHOLDED_RELU,
                     CY_ACT_SCALED_TANH, CY_ACT_HARD_SIGMOID, CY_ACT_ELU, CY_ACT_SOFTSIGN, CY_ACT_SOFTPLUS };
enum cy_resize_mode { CY_RESIZE_NEAREST, CY_RESIZE_LINEAR, CY_RESIZE_CUBIC };
enum cy_resize_coord { CY_COORD_HALF_PIXEL, CY_COORD_ASYMMETRIC, CY_COORD_ALIGN_CORNERS, CY_COORD_PYTORCH_HALF_PIXEL,
                       CY_COORD_TF_CROP, CY_COORD_HALF_PIXEL_SYMMETRIC, CY_COORD_TF_HALF_PIXEL_NN };
enum cy_resize_nearest { CY_NEAREST_ROUND_PREFER_FLOOR, CY_NEAREST_ROUND_PREFER_CEIL, CY_NEAREST_FLOOR,
                         CY_NEAREST_CEIL, CY_NEAREST_SIMPLE };
/* Programs of string_match and string_tokens, attributes of string_normalize and count_ngrams: as CYRT_RX_*, _CASE_*,
 * _TERM_* in cyto_abi.h. */
enum cy_rx { CY_RX_MATCH, CY_RX_IN, CY_RX_NOT_IN, CY_RX_SPLIT, CY_RX_JUMP, CY_RX_ASSERT };
enum cy_rx_place { CY_RX_AT_BEGIN, CY_RX_AT_END, CY_RX_AT_LINE_BEGIN, CY_RX_AT_LINE_END, CY_RX_AT_WORD_EDGE,
                   CY_RX_NOT_AT_WORD_EDGE };
enum cy_letter_case { CY_CASE_KEEP, CY_CASE_LOWER, CY_CASE_UPPER };
enum cy_term_weight { CY_TERM_COUNT, CY_TERM_INVERSE, CY_TERM_WEIGHTED };
enum cy_sample_padding { CY_SAMPLE_ZEROS, CY_SAMPLE_BORDER, CY_SAMPLE_REFLECTION };

/* ---- arena (arena.c), strings (intern.c), diagnostics (diag.c), sudden ends (bug.c) -------------------------------- */

typedef struct cy_arena cy_arena;
cy_arena *cy_arena_create(void);
void cy_arena_destroy(cy_arena *a);
/* Zeroed, 16-byte aligned; aborts when the machine is out of memory. */
void *cy_arena_alloc(cy_arena *a, size_t bytes);
/* Frees what cy_arena_alloc returned if it is large enough to be worth it; nobody may read it again. */
void cy_arena_give_back(cy_arena *a, void *piece);
void *cy_arena_copy(cy_arena *a, const void *src, size_t bytes);
/* Room for element `count` (0-based) of an array of *cap; the array, perhaps elsewhere. */
void *cy_arena_grow(cy_arena *a, void *items, uint32_t count, uint32_t *cap, size_t item_bytes);
char *cy_arena_printf(cy_arena *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *cy_arena_vprintf(cy_arena *a, const char *format, va_list args) __attribute__((format(printf, 2, 0)));
void cy_arena_reset(cy_arena *a);
#define CY_NEW(arena, type) ((type *)cy_arena_alloc((arena), sizeof(type)))
#define CY_NEW_ARRAY(arena, type, n) ((type *)cy_arena_alloc((arena), sizeof(type) * (size_t)(n)))

/* Checked arithmetic on sizes that come out of models: false on overflow. */
static inline bool cy_mul_size(uint64_t a, uint64_t b, uint64_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool cy_add_size(uint64_t a, uint64_t b, uint64_t *out) { return !__builtin_add_overflow(a, b, out); }

typedef uint32_t cy_str; /* interned string; 0 is "" */

typedef enum cy_severity { CY_ERROR, CY_WARNING, CY_NOTE } cy_severity;
/* Where in the model. Unused fields are NULL / -1. */
typedef struct cy_location {
  const char *file, *graph, *node, *op; /* node: ONNX name, op: ONNX type with domain */
  int64_t node_index;
  const char *item; /* "input 'x'", "attribute 'pads'", .. */
} cy_location;
typedef struct cy_diag_sink cy_diag_sink;
cy_diag_sink *cy_diag_create(void);
void cy_diag_destroy(cy_diag_sink *sink);
/* Text: lower case, no full stop, names in single quotes, what was expected and found, what to do. */
void cy_diag_add(cy_diag_sink *sink, cy_severity severity, const cy_location *where, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
int cy_diag_errors(const cy_diag_sink *sink);
size_t cy_diag_count(const cy_diag_sink *sink);
void cy_diag_soften(cy_diag_sink *sink, size_t from, size_t to); /* those errors are warnings now */
void cy_diag_forget(cy_diag_sink *sink, size_t from); /* all since then */
/* Each line that cy_diag_print() prints. */
void cy_diag_each(const cy_diag_sink *sink, void (*print)(void *ctx, const char *line), void *ctx);
void cy_diag_print(const cy_diag_sink *sink, FILE *out); /* deduplicated, in order, capped at 20 with a count of the rest */
/* What is to blame for an error, if it is not the model. */
typedef enum cy_cause { CY_CAUSE_MODEL, CY_CAUSE_OPTION, CY_CAUSE_FILE, CY_CAUSE_LINKER, CY_CAUSE_MEMORY, CY_CAUSE_BUG } cy_cause;
void cy_diag_blame(cy_diag_sink *sink, cy_cause cause); /* for what was added last */
typedef struct cy_diagnostic {
  cy_severity severity;
  cy_cause cause;
  cy_location where;      /* no NULLs in it */
  const char *text;       /* what was added */
  const char *line;       /* as it is printed, without a newline */
} cy_diagnostic;
const cy_diagnostic *cy_diag_at(const cy_diag_sink *sink, size_t i); /* i < cy_diag_count(); until more is added */
/* cytoc itself is wrong: prints, then aborts. Never for a wrong model. */
_Noreturn void cy_bug(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* There is no memory: says so, and ends the process with exit code 1. */
_Noreturn void cy_no_memory(void);
extern void (*cy_at_sudden_end)(void); /* called by both: removes what must not be left behind; NULL: nothing */
/* Called by both behind that, in place of what they do to end the process; it does not return. NULL: they do it. */
extern void (*cy_at_last)(cy_cause cause); /* CY_CAUSE_MEMORY or CY_CAUSE_BUG */
extern const char *cy_bug_context; /* what is running, e.g. the pass's name; for the message */

/* ---- dims (dims/): interned integer polynomials over symbols ------------------------------------------------------- */

typedef uint32_t cy_dim; /* equal expressions have equal ids; 0 is none */
typedef uint32_t cy_sym;
typedef struct cy_graph cy_graph;
typedef uint32_t cy_val;
typedef uint32_t cy_node;
typedef uint32_t cy_block;

/* Where a symbol's value comes from at run time. */
typedef enum cy_sym_kind {
  CY_SYM_INPUT, /* a dimension of graph inputs, >= 0 */
  /* Element `index` of integer (or bool) value `value`, read when it has been computed; any sign unless min says */
  CY_SYM_DATA,
  CY_SYM_COUNT, /* dimension `index` of `value`, known when its node (a CALL or CTRL op) has run; >= 0 */
  CY_SYM_FREE,  /* set by the host program itself (loop counters) */
  CY_SYM_ROOM   /* of a step ROOM: strides depend on it, sizes do not */
} cy_sym_kind;
typedef struct cy_sym_info {
  cy_str name;
  cy_sym_kind kind;
  cy_val value;
  int64_t index;
  int64_t min, max; /* known bounds; INT64_MIN / INT64_MAX when unknown */
  cy_dim upper;      /* not less than it, whenever it has a value; 0: none is known */
} cy_sym_info;

cy_dim cy_dim_const(cy_graph *g, int64_t v);
cy_dim cy_dim_sym(cy_graph *g, cy_sym s);
cy_dim cy_dim_add(cy_graph *g, cy_dim a, cy_dim b);
cy_dim cy_dim_sub(cy_graph *g, cy_dim a, cy_dim b);
cy_dim cy_dim_mul(cy_graph *g, cy_dim a, cy_dim b);
cy_dim cy_dim_div(cy_graph *g, cy_dim a, cy_dim b);  /* floor; exact quotients of polynomials simplify */
cy_dim cy_dim_cdiv(cy_graph *g, cy_dim a, cy_dim b); /* ceiling */
cy_dim cy_dim_mod(cy_graph *g, cy_dim a, cy_dim b);  /* floor mod: sign of b */
cy_dim cy_dim_min(cy_graph *g, cy_dim a, cy_dim b);
cy_dim cy_dim_max(cy_graph *g, cy_dim a, cy_dim b);
cy_dim cy_dim_join(cy_graph *g, cy_dim a, cy_dim b); /* of sizes that broadcast: 0 where one is 0, else the larger */
cy_dim cy_dim_addi(cy_graph *g, cy_dim a, int64_t b);
cy_dim cy_dim_muli(cy_graph *g, cy_dim a, int64_t b);
bool cy_dim_is_const(const cy_graph *g, cy_dim d, int64_t *out_value);
bool cy_dim_is(const cy_graph *g, cy_dim d, int64_t value);           /* certainly equal to value */
bool cy_dim_divides(cy_graph *g, cy_dim d, cy_dim n, cy_dim *out_quotient); /* n = d * quotient for all d but 0 */
void cy_dim_range(const cy_graph *g, cy_dim d, int64_t *out_min, int64_t *out_max); /* saturating bounds */
bool cy_dim_le(const cy_graph *g, cy_dim a, cy_dim b);                /* certainly a <= b */
bool cy_dim_lt(const cy_graph *g, cy_dim a, cy_dim b);                /* certainly a < b */
/* Every symbol of d evaluated by syms[sym] -> value; division by zero yields 0. */
int64_t cy_dim_eval(const cy_graph *g, cy_dim d, const int64_t *syms);
/* Replaces symbol s by expression `by` in d. */
cy_dim cy_dim_subst(cy_graph *g, cy_dim d, cy_sym s, cy_dim by);
bool cy_dim_has_data_sym(const cy_graph *g, cy_dim d);                /* depends on a symbol that only running sets: neither INPUT nor ROOM */
/* Calls visit for every symbol of d, each once. */
void cy_dim_symbols(const cy_graph *g, cy_dim d, void (*visit)(void *ctx, cy_sym s), void *ctx);
cy_sym cy_dim_symbol(const cy_graph *g, cy_dim d); /* of a dim that is nothing but one, or 0 */
const char *cy_dim_text(cy_graph *g, cy_dim d);                       /* "2*seq+1"; lives in the graph's arena */
cy_dim cy_dim_parse(cy_graph *g, const char *text, const char **out_end);

/* The structure behind a dim, for those who emit code for it: a sum of coef * product of atoms, each atom a symbol or
 * one of div/mod/min/max/join of two dims. */
typedef enum cy_atom_kind {
  CY_ATOM_SYM,
  CY_ATOM_DIV,
  CY_ATOM_MOD,
  CY_ATOM_MIN,
  CY_ATOM_MAX,
  CY_ATOM_JOIN
} cy_atom_kind;
typedef struct cy_atom {
  cy_atom_kind kind;
  cy_sym sym;
  cy_dim a, b;
} cy_atom;
typedef struct cy_term {
  int64_t coef;
  int natoms;
  const uint32_t *atoms; /* ids for cy_dim_atom(), sorted, repeated for powers */
} cy_term;
/* 0 terms: the constant 0; a constant term has natoms 0 */
int cy_dim_terms(const cy_graph *g, cy_dim d, const cy_term **out_terms);
const cy_atom *cy_dim_atom(const cy_graph *g, uint32_t atom);

cy_sym cy_sym_new(cy_graph *g, const char *name, cy_sym_kind kind); /* name may be NULL: a fresh one like "s3" is made */
cy_sym cy_sym_by_name(cy_graph *g, const char *name);               /* input symbols; made on first use (min 0) */
cy_sym_info *cy_sym_of(const cy_graph *g, cy_sym s);
uint32_t cy_sym_count(const cy_graph *g);                           /* ids are 1 .. count */

/* ---- types, values, nodes (graph.c) --------------------------------------------------------------------------------- */

/* What a sequence, map or optional value holds (values.c): interned, so equal descriptions have equal ids; 0: a tensor. */
typedef uint16_t cy_content;
typedef enum cy_content_kind { CY_CONTENT_SEQUENCE, CY_CONTENT_OPTIONAL, CY_CONTENT_MAP } cy_content_kind;
#define CY_ANY_RANK 255
#define CY_NO_RANK 254 /* no tensor was put in yet: joins with everything */
typedef struct cy_content_info {
  uint8_t kind;    /* cy_content_kind */
  uint8_t key;     /* of a map: cy_dtype of its keys */
  cy_content item; /* of a sequence's elements, an optional's value, a map's values; 0: tensors as below (of a map:
                      single numbers or strings, rank 0) */
  uint8_t dtype, rank; /* of the tensors; rank may be CY_ANY_RANK, CY_NO_RANK */
  int64_t dim[CY_MAX_RANK]; /* -1: any */
} cy_content_info;

typedef struct cy_type {
  uint8_t dtype; /* cy_dtype */
  uint8_t rank;
  cy_content content; /* of a CY_REF; else 0 */
  cy_dim dim[CY_MAX_RANK];
} cy_type;

/* Constant bytes: dense, row-major, little-endian, sub-byte types packed as ONNX packs them. Not owned. Those that
 * are mapped from a file lie at any address: read them by memcpy or through cy_data_f32. */
typedef float cy_data_f32 __attribute__((aligned(1)));
typedef struct cy_data {
  const void *bytes;
  uint64_t size;
} cy_data;

typedef struct cy_value {
  cy_type type;
  cy_str name;      /* ONNX name where it has one */
  cy_node node;     /* that defines it, 0 for constants, graph inputs and block parameters */
  uint32_t output;  /* which output of that node */
  cy_data data;     /* data.bytes != NULL: a constant */
  cy_dim *elems;    /* integer contents as dims, one per element, where known (also of integer-valued floats); else NULL */
  uint8_t layout[CY_MAX_RANK]; /* physical order, outermost first, of the logical axes; identity = row-major */
  bool inlined;     /* set by fusion: never stored, computed inside the kernels of its users */
  bool param;       /* a graph input or block parameter */
  cy_val source;    /* constants: the one that most of it was computed from, 0: none; see cy_const_source */
} cy_value;

typedef struct cy_attr {
  uint16_t key;  /* cy_attr_key */
  uint16_t kind; /* cy_attr_kind */
  uint32_t n;    /* list length */
  union {
    int64_t i;
    double f;
    const int64_t *ints;
    const double *floats;
    const cy_dim *dims;
    cy_block block;
  };
} cy_attr;

/* Where a node came from. */
typedef struct cy_origin {
  cy_str name, op;     /* of the ONNX node: name, "domain.Type" */
  cy_str graph;        /* graph or function name */
  int32_t index;       /* of the ONNX node in its graph, -1 when none */
  const char *pass;    /* the pass that made it; NULL: the importer */
} cy_origin;

/* What cycles of a layer are asked for: as it is, in integers, or to round what it reads, each row (each image of a
 * convolution) by a scale of its own. */
typedef enum cy_layer_arithmetic {
  CY_LAYER_FLOATS,
  CY_LAYER_INTS,
  CY_LAYER_ROUNDING,
  CY_LAYER_BF16,         /* both factors */
  CY_LAYER_F16_WEIGHTS,  /* products only: weights that become f32 as they are read */
  CY_LAYER_INT4_WEIGHTS, /* the same */
} cy_layer_arithmetic;

/* What a convolution takes on one core of a target, in cycles: where channel after channel lies in memory as a feature
 * map, or where channels lie closest; and to turn its input or output from one order to the other. */
typedef struct cy_conv_cycles {
  double planar, channels, transpose_in, transpose_out;
} cy_conv_cycles;

typedef struct cy_node_info {
  uint16_t op; /* cy_op */
  uint16_t nattrs;
  uint32_t nin, nout;
  cy_val *in, *out; /* inputs may be 0 where optional */
  cy_attr *attrs;
  cy_block block;
  cy_origin origin;
} cy_node_info;

/* A block is a straight list of nodes in an order in which every value is defined before it is used. Block 1 is the
 * graph. */
typedef struct cy_block_info {
  cy_node *nodes;
  uint32_t nnodes, capacity;
  cy_val *params, *results;
  uint32_t nparams, nresults;
  cy_block parent;
} cy_block_info;

typedef struct cy_port_info { /* an input or output of the model */
  cy_str name;
  cy_val value;
} cy_port_info;

typedef struct cy_metadata { /* what the model's file says about it, for applications: labels, a sampling rate .. */
  cy_str key, value;
} cy_metadata;

cy_graph *cy_graph_create(cy_diag_sink *diag, const char *file);
void cy_graph_destroy(cy_graph *g);
/* clone.c: the same once more, with equal ids, to be changed without changing this one, which must outlive it: bytes of
 * constants and other things that never change are not copied. */
cy_graph *cy_graph_clone(const cy_graph *g);
cy_arena *cy_graph_arena(const cy_graph *g);
cy_diag_sink *cy_graph_diag(const cy_graph *g);
const char *cy_graph_name(const cy_graph *g);
void cy_graph_set_name(cy_graph *g, const char *name);
void cy_graph_add_metadata(cy_graph *g, const char *key, const char *value);
uint32_t cy_graph_metadata(const cy_graph *g,
                           const cy_metadata **out_rows); /* how many, in the order they were added */
/* Takes over what must live as long as the graph (a mapped file): release(handle) is called by cy_graph_destroy. */
void cy_graph_own(cy_graph *g, void *handle, void (*release)(void *handle));

cy_str cy_intern(cy_graph *g, const char *text);
cy_str cy_intern_n(cy_graph *g, const char *text, size_t len);
const char *cy_str_text(const cy_graph *g, cy_str s);

cy_value *cy_value_of(const cy_graph *g, cy_val v); /* pointers stay valid: storage is chunked */
cy_node_info *cy_node_of(const cy_graph *g, cy_node n);
cy_block_info *cy_block_of(const cy_graph *g, cy_block b);
uint32_t cy_value_count(const cy_graph *g); /* ids are 1 .. count */
uint32_t cy_node_count(const cy_graph *g);
uint32_t cy_block_count(const cy_graph *g);

/* What sizes must fulfil for a node: found by shape inference, and said by importers, between cy_graph_record(g, true) and
 * (g, false), where dims are not numbers; checked by the library when it runs the node's block. What computes a and b is
 * kept for this, even where passes drop the node. Not part of the text form. */
typedef enum cy_require {
  CY_REQUIRE_EQUAL,
  CY_REQUIRE_BROADCAST, /* equal, or one of them is 1 */
  CY_REQUIRE_AT_MOST,   /* a <= b */
  CY_REQUIRE_SOURCE,    /* b > 0 if a > 0: elements to read from, if any are to be made */
  CY_REQUIRE_SIZE,      /* 0 <= a */
  CY_REQUIRE_FITS,      /* a, a number of elements, is at most b, and computing it does not overflow */
  CY_REQUIRE_INDEX,     /* a < b: a is read from data */
  CY_REQUIRE_CLAMPED    /* the same of what kernels clamp, so that it may be reported when the run has ended */
} cy_require;
typedef struct cy_requirement {
  cy_dim a, b;
  cy_block block;
  cy_require kind;
  const char *text; /* NULL: that of the kind */
  cy_origin origin;
} cy_requirement;
void cy_graph_record(cy_graph *g, bool on);
/* A convolution of sound reads so many places at a time. Exporters compute the lengths behind several of these from the
 * input's, which may be required to be as long as a few kernels then. */
void cy_graph_expect_kernel(cy_graph *g, int64_t length);
void cy_graph_require(cy_graph *g, cy_dim a, cy_dim b, cy_require kind); /* while recording; known to hold: nothing */
/* With a text of its own (not copied): a format that has the node as %s, then a and b as %lld. */
void cy_graph_require_text(cy_graph *g, cy_dim a, cy_dim b, cy_require kind, const char *text);
/* For all values of the graph: no size below 0, and numbers of elements that fit. */
void cy_graph_require_sizes(cy_graph *g);
uint32_t cy_graph_requirements(const cy_graph *g, const cy_requirement **out_list);
void cy_graph_requirements_cut(cy_graph *g, uint32_t n); /* to the first n: nodes built since then are not used */

/* Model inputs and outputs (block 1's params and results are the same values). */
uint32_t cy_graph_inputs(const cy_graph *g, const cy_port_info **out_ports);
uint32_t cy_graph_outputs(const cy_graph *g, const cy_port_info **out_ports);
cy_val cy_graph_add_input(cy_graph *g, const char *name, const cy_type *type);
void cy_graph_add_output(cy_graph *g, const char *name, cy_val v);
void cy_graph_set_output(cy_graph *g, uint32_t index, cy_val v);

cy_type cy_type_make(cy_dtype dtype, int rank, const cy_dim *dims);
cy_dim cy_type_elems(cy_graph *g, const cy_type *t);                  /* number of elements */
bool cy_type_equal(const cy_type *a, const cy_type *b);
const char *cy_type_text(cy_graph *g, const cy_type *t);              /* "f32[1,3,batch]" */

/* values.c: texts of string tensors, dense from 0 (the empty text); equal ones have equal numbers. */
uint32_t cy_text_add(cy_graph *g, const void *bytes, size_t length);
const char *cy_text_of(const cy_graph *g, uint32_t text, size_t *out_length); /* zero-terminated as well */
uint32_t cy_text_count(const cy_graph *g);
cy_content cy_content_add(cy_graph *g, const cy_content_info *info);
const cy_content_info *cy_content_of(const cy_graph *g, cy_content c);
cy_type cy_type_ref(cy_content c);                                    /* of a value that holds c */
/* The description that fits both; false: there is none. */
bool cy_content_join(cy_graph *g, cy_content a, cy_content b, cy_content *out);
const char *cy_content_text(const cy_graph *g, cy_content c);         /* "seq(f32[?,3])"; lives in the graph's arena */

/* ---- building (build.c, attrs.c; infer/, fold/; places: graph.c) ---------------------------------------------------- */

cy_block cy_block_create(cy_graph *g, cy_block parent);
cy_val cy_block_add_param(cy_graph *g, cy_block b, const cy_type *type, const char *name);
void cy_block_set_results(cy_graph *g, cy_block b, const cy_val *vals, uint32_t n);
void cy_build_in(cy_graph *g, cy_block b);                            /* appends to block b from now on */
cy_block cy_build_block(const cy_graph *g);
/* Inserts before node n from now on; cy_build_in() ends it */
void cy_build_before(cy_graph *g, cy_node n);
void cy_build_origin(cy_graph *g, const cy_origin *origin);           /* of the nodes built from now on */
/* Error about what is being built: location is the current origin. Returns 0. */
cy_val cy_build_error(cy_graph *g, const char *item, const char *format, ...) __attribute__((format(printf, 3, 4)));
#define CY_NO_COMPLEX "complex numbers are not supported; use tensors with an axis [real, imaginary]"

/* The general form. `type` is for ops flagged T (one per output: types[outs]); NULL otherwise. Returns the first output;
 * the others are cy_node_of(g, cy_value_of(g, v)->node)->out[k]. Attributes are copied. */
cy_val cy_build(cy_graph *g, cy_op op, const cy_val *in, uint32_t nin, const cy_attr *attrs, uint32_t nattrs,
                const cy_type *types, uint32_t nout);
cy_val cy_build_output(const cy_graph *g, cy_val first, uint32_t index); /* another output of first's node */
cy_attr cy_attr_int(cy_attr_key key, int64_t v);
cy_attr cy_attr_float(cy_attr_key key, double v);
cy_attr cy_attr_ints(cy_attr_key key, const int64_t *v, uint32_t n);
cy_attr cy_attr_floats(cy_attr_key key, const double *v, uint32_t n);
cy_attr cy_attr_dims(cy_attr_key key, const cy_dim *v, uint32_t n);
cy_attr cy_attr_block(cy_attr_key key, cy_block b);
const cy_attr *cy_attr_find(const cy_node_info *n, cy_attr_key key);  /* NULL when absent */
int64_t cy_attr_get_int(const cy_node_info *n, cy_attr_key key, int64_t otherwise);
double cy_attr_get_float(const cy_node_info *n, cy_attr_key key, double otherwise);

/* Shorthands. Shapes: `dims`/`rank` are full shapes. All broadcast as the ops do. */
cy_val cy_build_const(cy_graph *g, const cy_type *type, const void *bytes, uint64_t size); /* bytes not copied */
cy_val cy_build_scalar(cy_graph *g, cy_dtype dtype, double v);        /* rank 0 */
cy_val cy_build_scalar_int(cy_graph *g, cy_dtype dtype, int64_t v);
cy_val cy_build_ints(cy_graph *g, const int64_t *v, uint32_t n);      /* i64[n] */
cy_val cy_build_dims(cy_graph *g, const cy_dim *v, uint32_t n);       /* i64[n], symbolic contents */
cy_val cy_build_dim_scalar(cy_graph *g, cy_dim v);                    /* i64[] */
cy_val cy_build_unary(cy_graph *g, cy_op op, cy_val x);
cy_val cy_build_binary(cy_graph *g, cy_op op, cy_val a, cy_val b);
cy_val cy_build_select(cy_graph *g, cy_val c, cy_val a, cy_val b);
#define cy_build_binary(g, op, a, b) CY_LAST_FIRST(cy_val, a, b, cy_build_binary(g, op, x_, y_))
#define cy_build_select(g, c, a, b) CY_LAST_FIRST3(cy_val, c, a, b, cy_build_select(g, x_, y_, z_))
cy_val cy_build_cast(cy_graph *g, cy_val x, cy_dtype dtype);          /* x itself when it has that dtype */
cy_val cy_build_bitcast(cy_graph *g, cy_val x, cy_dtype dtype);       /* of as many bits */
cy_val cy_build_like(cy_graph *g, cy_val x, double v);                /* scalar constant of x's dtype */
cy_val cy_build_reshape(cy_graph *g, cy_val x, const cy_dim *dims, int rank);
cy_val cy_build_expand(cy_graph *g, cy_val x, const cy_dim *dims, int rank);
cy_val cy_build_transpose(cy_graph *g, cy_val x, const int64_t *perm);
/* steps NULL: all are 1. */
cy_val cy_build_slice(cy_graph *g, cy_val x, const cy_dim *starts, const int64_t *steps, const cy_dim *sizes);
cy_val cy_build_slice_axis(cy_graph *g, cy_val x, int axis, cy_dim start, cy_dim size);
cy_val cy_build_pad(cy_graph *g, cy_val x, const cy_dim *pads, int mode, cy_val fill); /* pads: begins then ends */
cy_val cy_build_concat(cy_graph *g, const cy_val *v, uint32_t n, int axis);
/* x with rows written along axis from starts on: see ops.def; length: of the result along axis */
cy_val cy_build_write_rows(cy_graph *g, cy_val x, cy_val rows, cy_val starts, int axis, cy_dim length,
                           cy_write_mode mode);
cy_val cy_build_gather(cy_graph *g, cy_val x, cy_val indices, int axis);
cy_val cy_build_iota(cy_graph *g, cy_dtype dtype, const cy_dim *dims, int rank, int axis);
cy_val cy_build_reduce(cy_graph *g, cy_op op, cy_val x, const int64_t *axes, uint32_t naxes, bool keepdims);
cy_val cy_build_matmul(cy_graph *g, cy_val a, cy_val b, cy_dtype dtype); /* ranks >= 2 */
cy_val cy_build_squeeze(cy_graph *g, cy_val x, int axis);
cy_val cy_build_unsqueeze(cy_graph *g, cy_val x, int axis);
/* infer_checks.c: broadcasts shapes the numpy way into out (rank returned, -1 after a diagnostic). */
int cy_build_broadcast(cy_graph *g, const cy_type *a, const cy_type *b, cy_dim *out_dims);

/* attention.c: softmax(scores) * v, where scores [b.., h, s, t] = scale * q k^T, then softcap * tanh(scores /
 * softcap), then bias added, then `fill` where the mask says so, then -infinity where a key may not be seen for other
 * reasons. h is a multiple of g: h / g neighbouring heads of q share one of k and v. Batch axes of k and v may be 1;
 * bias and mask broadcast to the scores. A row whose scores are all -infinity, which sees no key, is NaN, as softmax has
 * it, or 0 where zero_hidden says so. */
typedef struct cy_attention {
  cy_val q, k, v;
  cy_val bias;    /* numbers; 0: none */
  cy_val mask;    /* bool, true: seen; 0: none */
  double fill;    /* what masked scores become; 0 stands for -infinity */
  cy_val lengths; /* integers [b], of q's first axis: keys from there on are not seen; 0: none */
  double scale;
  double softcap; /* 0: none */
  bool causal;    /* query i sees keys up to i + past */
  int64_t window; /* query i sees keys above i + past - window; 0: all */
  cy_dim past;    /* 0 is zero */
  bool zero_hidden; /* rows that see no key are 0 */
  cy_dtype
      round; /* CY_F16, CY_BF16: q, k and v are rounded to it, unless they are; the rest is f32. CY_NONE: nothing is */
  bool wide;      /* q, k and v are halves; scores, bias and result are f32. For cy_build_attention() only */
} cy_attention;
typedef struct cy_attention_parts { /* the values of the composition */
  cy_val scores, biased, weights;   /* [b.., h, s, t]: up to softcap, with bias and masks, softmax */
} cy_attention_parts;
cy_val cy_build_attention(cy_graph *g, const cy_attention *a);
/* The same as products, softmax and element-wise ops. softmax: its type (CY_NONE: that of q). out_parts may be NULL. */
cy_val cy_build_attention_plain(cy_graph *g, const cy_attention *a, cy_dtype softmax, cy_attention_parts *out_parts);
/* [.., g, t, d] -> [.., heads, t, d]; one head stays one */
cy_val cy_build_repeat_heads(cy_graph *g, cy_val x, cy_dim heads);
cy_attention cy_attention_of(const cy_node_info *n);
cy_type cy_attention_scores(cy_graph *g, const cy_attention *a);      /* type of the scores */

/* What is known of a value's contents. */
/* Integer contents as dims, from constants too (<= 4096 elements); NULL when unknown */
const cy_dim *cy_value_elems(cy_graph *g, cy_val v, uint32_t *out_n);
/* reads.c: as above, but makes CY_SYM_DATA symbols for those elements of an integer tensor that are known only at run time (static
 * element count <= 64). */
const cy_dim *cy_value_elems_or_read(cy_graph *g, cy_val v, uint32_t *out_n);
/* Constant contents as doubles; NULL when not constant */
const double *cy_value_floats(cy_graph *g, cy_val v, uint32_t *out_n);
bool cy_value_is_const(const cy_graph *g, cy_val v);
/* What the model has of a constant that was transposed, scaled, rounded .. while compiling; v itself if it was not. */
cy_val cy_const_source(const cy_graph *g, cy_val v);
bool cy_value_is_splat(cy_graph *g, cy_val v, double *out_value);     /* constant with all elements equal */

/* infer.c: sets the types of n's outputs from its inputs and attributes (for ops flagged T: checks the given ones
 * where it can). False after a diagnostic. */
bool cy_infer(cy_graph *g, cy_node n);
/* fold_small.c: if n can be evaluated now (all inputs small constants, or integers known as dims), gives its outputs
 * data or elems. Returns true when the outputs became constants, i.e. the node is no longer needed. */
bool cy_fold_small(cy_graph *g, cy_node n);
/* scalar.c: one element of an element-wise op, exact per dtype: the arithmetic of folding and of the interpreter. */
typedef union cy_scalar {
  double f;   /* floats, converted */
  int64_t i;  /* signed, bool (0/1) */
  uint64_t u; /* unsigned */
} cy_scalar;
cy_scalar cy_scalar_eval(cy_op op, cy_dtype in_dtype, cy_dtype out_dtype, const cy_scalar *args);
/* logistic_q15 of x: polynomial of x - CY_LOGISTIC_MIDDLE, squared CY_LOGISTIC_SQUARES times, by mul_q15 and wrapping
 * sums. x times it is off by 1.6e-4 of the range at most, 0.0006 where that is 4, and so is x * sigmoid(x). */
enum { CY_LOGISTIC_TERMS = 5, CY_LOGISTIC_MIDDLE = 1 << 14, CY_LOGISTIC_SQUARES = 3 };
extern const int16_t cy_logistic_q15[CY_LOGISTIC_TERMS];
cy_scalar cy_scalar_load(const void *bytes, cy_dtype dtype, uint64_t index);
void cy_scalar_store(void *bytes, cy_dtype dtype, uint64_t index, cy_scalar v); /* rounds / wraps to dtype */
/* Where accumulating by op (add, mul, min, max, and, or, xor) begins: what changes nothing, infinite for min and max
 * of floats. */
cy_scalar cy_scalar_neutral(cy_op op, cy_dtype dtype);

/* halves.c: arrays of n numbers between f32 and half precision (f16 or bf16), by cy_scalar_store and cy_scalar_load;
 * memory at any address. */
void cy_halves_store(void *to, cy_dtype half, const void *from, uint64_t n);
void cy_halves_load(void *to, cy_dtype half, const void *from, uint64_t n);
void cy_halves_round(void *to, cy_dtype half, const void *from, uint64_t n); /* f32 to f32 */
bool cy_halves_hold(cy_dtype half, const void *from, uint64_t n);            /* all bit for bit? */

/* ---- editing (edit.c) ------------------------------------------------------------------------------------------- */

/* All uses of `from` (inputs of nodes, block results, model outputs) become `to`. */
void cy_graph_replace(cy_graph *g, cy_val from, cy_val to);
/* Removes nodes whose outputs nobody uses; returns how many. Keeps what symbols read. */
uint32_t cy_graph_sweep(cy_graph *g);
/* Users of every value: users of v are list[start[v] .. start[v+1]). Valid until the next edit; in arena `scratch`. A
 * use by a block's results or a model output is node 0; a symbol that reads the value counts as a use by node 0 too. */
typedef struct cy_uses {
  const uint32_t *start;
  const cy_node *list;
} cy_uses;
cy_uses cy_graph_uses(const cy_graph *g, cy_arena *scratch);

/* ---- text form and checking (print.c, parse.c, verify.c) -------------------------------------------------------- */

void cy_graph_print(cy_graph *g, FILE *out);                           /* grammar: ir/text/TEXT.md */
cy_graph *cy_graph_parse(const char *text, size_t len, const char *file, cy_diag_sink *diag); /* NULL after diagnostics */
/* Checks every invariant (types re-inferred, order, ids, attributes, blocks). False: `out_text` (caller's, may be
 * NULL) says what. */
bool cy_graph_verify(cy_graph *g, char *out_text, size_t capacity);

#endif
