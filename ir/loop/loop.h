/* SPDX-License-Identifier: Apache-2.0 */
/* loop.h - the kernel level: loops around scalar expressions over loads, and the program of host steps that launches
 * kernels.
 *
 * A kernel has arguments (typed memory), a grid of parallel loop variables, and a body of statements. Expressions are
 * hash-consed and pure; arithmetic uses the element-wise enumerators of ops.def. Index arithmetic is i64. A contraction
 * kernel (matrix product, convolution) names its operands in k->contraction; its body is the *epilogue*, run once per
 * output element with the accumulator in a local and the output's index in variables: so every activation, residual,
 * scale and store layout is written once, as loop IR, for every target.
 *
 * Who uses it: lowering (passes/lower*.c) builds, codegen/ prints as LLVM IR or CUDA C, interp.c runs it as oracle.
 */
#ifndef CY_LOOP_H
#define CY_LOOP_H

#include "ir/pixel_shuffle.h"
#include "ir/ir.h"

typedef uint32_t cy_expr;  /* 0: none */
typedef uint32_t cy_var;   /* loop variable of a kernel, i64, 0 <= var < extent; ids from 1 */
typedef uint32_t cy_local; /* mutable scalar of a kernel; ids from 1 */
typedef uint32_t cy_karg;  /* argument of a kernel; ids from 0 */

/* Leaves of expressions; everything else is a cy_op of class EW (its dtype is the result's; comparisons give CY_BOOL). */
enum cy_leaf {
  CY_X_CONST = 0x200, /* `c` in `dtype` */
  CY_X_VAR,           /* loop variable `id` (i64) */
  CY_X_DIM,           /* size expression `id` (a cy_dim, i64): constant or handed in at launch */
  CY_X_LOCAL,         /* current value of local `id` */
  CY_X_LOAD           /* argument `id` at element offset arg[0]; dtype is the argument's storage type */
};

typedef struct cy_expr_info {
  uint16_t op;   /* cy_op or cy_leaf */
  uint8_t dtype; /* of the result */
  uint8_t n;     /* operands */
  cy_expr arg[3];
  uint32_t id;   /* VAR, DIM, LOCAL, LOAD */
  cy_scalar c;   /* CONST */
} cy_expr_info;

typedef enum cy_stmt_kind {
  CY_S_FOR, /* for var in [0, extent): body.  `lanes`: iterations are independent but for ACCUM; vectorise along var */
  CY_S_STORE, /* arg[offset] = value (value has the argument's storage dtype), or the greater of both */
  CY_S_SET,   /* local = value */
  CY_S_ACCUM  /* local = local <op> value; op one of add mul min max and or: may be reordered */
} cy_stmt_kind;

typedef struct cy_stmt {
  cy_stmt_kind kind;
  struct cy_stmt *next;          /* in the same list */
  struct cy_stmt *body;          /* FOR */
  cy_var var;                    /* FOR */
  bool lanes;                    /* FOR */
  uint16_t op;                   /* ACCUM; STORE: CY_OP_NONE, or CY_OP_max: see cy_kernel_store_max() */
  cy_local local;                /* SET, ACCUM */
  cy_karg arg;                   /* STORE */
  cy_expr offset, value;         /* STORE: element offset, value; SET, ACCUM: value */
} cy_stmt;

typedef enum cy_karg_kind {
  CY_ARG_READ,   /* never written by this kernel; does not overlap written ones unless `alias` */
  CY_ARG_WRITE,  /* written (and perhaps read); an element that two tasks write gets the same value from both */
  CY_ARG_SCRATCH /* `elems` elements private to each worker, contents undefined at the start of a task */
} cy_karg_kind;
typedef struct cy_karg_info {
  cy_karg_kind kind;
  cy_dtype dtype; /* as stored */
  cy_dim elems;   /* SCRATCH: size */
  bool param;     /* READ: numbers below 1e9 in size, read at constant offsets: see cy_program_share_kernels */
  bool whole;     /* .. all of them whole */
} cy_karg_info;

typedef struct cy_var_info {
  cy_dim extent;
  bool grid; /* parallel: one of the kernel's tasks' coordinates */
} cy_var_info;

enum { CY_MAX_SPATIAL = 3, CY_MAX_BATCH = 6 };

typedef enum cy_contraction_kind {
  CY_CONTRACT_NONE,
  CY_CONTRACT_MATMUL,
  CY_CONTRACT_CONV,
  CY_CONTRACT_CONV_TRANSPOSE,
  CY_CONTRACT_ATTENTION
} cy_contraction_kind;

/* out[batch.., m, n] = sum_k a[batch.., m, k] * b[batch.., k, n], or a convolution with channels innermost. Operands begin
 * where their arguments do; strides are in elements of the argument. Output index variables, in this order: matmul:
 * batch.., m, n; convolution: image, spatial.., channel (the absolute output channel), of a planar one: image, channel,
 * spatial... The last one is the natural vector axis.
 *
 * Attention: out[batch.., m, n] = sum_j w[m, j] * v[batch.., j, n] / sum_j w[m, j], j < keys, with weights from scores
 * s[m, j] = scale * sum_k a[batch.., m, k] * b[batch.., k, j]; a, b, v are queries, keys, values. The body begins with
 * two loops over `key`: the first changes `score` (bias, masks, softcap), the second turns it into a weight, given the
 * greatest score of the row in `top`. Both read the output's index variables but the last. What follows is the
 * epilogue. causal, window and past (as in cy_attention) are also spelled out in the first loop: here they tell which
 * keys need not be looked at. */
typedef struct cy_contraction {
  cy_contraction_kind kind;
  cy_karg a, b;           /* activations, weights (or second factor) */
  cy_val b_const;         /* the constant behind b, 0 when b is computed at run time */
  cy_local acc;           /* read by the epilogue; dtype of the accumulation: f32, f64, i32 */
  bool has_a_zero, has_b_zero; /* integers: the sum is over (a - a_zero) * (b - b_zero); what padding adds is 0 */
  cy_karg a_zero, b_zero; /* of the operands' dtypes: one element; one, or one per output column (b_zero_step 0, 1) */
  int64_t b_zero_step;
  /* Convolutions: where not CY_NONE, a is of f16 and rounded as it is read, to this type of 8-bit integers: a * (a_steps / max),
   * where max is an f32 (1e-30 at least) with the bits of a_max[image * a_max_step], an i32. */
  cy_dtype a_rounded;
  double a_steps;
  cy_karg a_max;
  int64_t a_max_step;
  bool has_start; /* integers: accumulators begin with start[last output variable], an i32 */
  cy_karg start;
  cy_var out_var[CY_MAX_BATCH + 2];
  int nout_vars;
  /* Weights in integers, a and accumulators in f32: b is (b - zero) * scale, by blocks of b_block rows, an even number of which
   * lies in a byte each two where b_bits is 4: i of a block in the lower half, i + b_block / 2 in the upper one. scale, and
   * b_zero of u8 where it is not b_middle for all, are [blocks, n] without gaps, b is [blocks, n / b_k, rows of bytes,
   * b_k]. b_bits 0: it is what it says. Of floats in the place of integers (b_codes, or b's dtype) there are no zeros, and scale
   * is of any type of floats. */
  int b_bits;
  cy_dtype
      b_codes; /* f4e2m1: 4 bits are such floats, as 8 bits are floats where b is of f8e4m3fn or f8e5m2; CY_NONE: integers */
  int64_t b_block, b_middle;
  cy_karg b_scale;
  /* What a and b are rounded to; CY_I8: only a, to 127 steps of a block's largest; CY_I32: only a, to some 2^23 steps, as
   * fine as accumulators of f32 are; CY_NONE: nothing. Attention rounds a, b and v, to halves. */
  cy_dtype rounded;
  /* matmul */
  int nbatch;
  cy_dim batch[CY_MAX_BATCH], a_batch[CY_MAX_BATCH], b_batch[CY_MAX_BATCH]; /* extents, strides (0: broadcast) */
  cy_dim m, n, k, a_m, a_k, b_k, b_n;                                        /* extents, strides */
  /* attention, beside those of matmul; b_n: from key to key */
  cy_karg v;
  cy_dim v_batch[CY_MAX_BATCH], keys, v_k, v_n;
  double scale;
  cy_local score, top;
  cy_var key;
  bool causal;
  int64_t window;
  cy_dim past;
  bool zero_hidden; /* rows whose scores are all -infinity are 0, else NaN */
  /* convolution; spatial axes outermost first. b is w[o][c/group][k..] row-major (conv) or w[c][o/group][k..]
   * (transpose). */
  bool planar; /* the spatial axis that is closest in memory, not channels: see out_var */
  int nspatial;
  /* pad: in front; padding behind follows from out */
  cy_dim images, in[CY_MAX_SPATIAL], out[CY_MAX_SPATIAL], pad[CY_MAX_SPATIAL];
  int64_t kernel[CY_MAX_SPATIAL], stride[CY_MAX_SPATIAL], dilation[CY_MAX_SPATIAL], group;
  cy_dim channels_in, channels_out;
  cy_dim x_image, x_spatial[CY_MAX_SPATIAL], x_channel;  /* strides of a */
  cy_shuffle_fill shuffle[CY_MAX_SPATIAL]; /* of channels that become positions: which taps they have, see pixel_shuffle.h */
} cy_contraction;

typedef struct cy_kernel cy_kernel;

/* ---- building and reading kernels (loop.c, loop_stmts.c) ----------------------------------------------------------------- */

cy_kernel *cy_kernel_create(cy_graph *g, const char *name); /* in the graph's arena */
cy_graph *cy_kernel_graph(const cy_kernel *k);
const char *cy_kernel_name(const cy_kernel *k);
cy_contraction *cy_kernel_contraction(cy_kernel *k);         /* kind NONE for plain loop kernels */

cy_karg cy_kernel_add_arg(cy_kernel *k, cy_karg_kind kind, cy_dtype dtype, cy_dim elems);
uint32_t cy_kernel_args(const cy_kernel *k, const cy_karg_info **out_args);
cy_dtype cy_kernel_arg_dtype(const cy_kernel *k, cy_karg arg);
bool cy_kernel_loads(const cy_kernel *k, cy_karg arg); /* does any expression? */
/* Is the contraction's b read otherwise, too: by an expression, or as its a (a constant multiplied by itself)? */
bool cy_kernel_rereads_b(cy_kernel *k);
cy_var cy_kernel_add_var(cy_kernel *k, cy_dim extent);
cy_var_info *cy_kernel_var(const cy_kernel *k, cy_var v);
uint32_t cy_kernel_var_count(const cy_kernel *k);
/* Makes v the next (faster) coordinate of the tasks. Tasks are numbered row-major over the grid. When the grid has
 * exactly one variable and it is marked `lanes`, a task is one element and ranges of tasks are vectorised. */
void cy_kernel_add_grid(cy_kernel *k, cy_var v);
uint32_t cy_kernel_grid(const cy_kernel *k, const cy_var **out_vars);
cy_dim cy_kernel_tasks(cy_kernel *k); /* how many: the product of the grid's extents */
void cy_kernel_set_grid_lanes(cy_kernel *k, bool lanes);
bool cy_kernel_grid_lanes(const cy_kernel *k);
cy_local cy_kernel_add_local(cy_kernel *k, cy_dtype dtype);
cy_dtype cy_kernel_local_dtype(const cy_kernel *k, cy_local l);
uint32_t cy_kernel_local_count(const cy_kernel *k);

/* Statements are appended at the insertion point: the end of the body at first. */
cy_stmt *cy_kernel_body(const cy_kernel *k);
bool cy_stmt_sets(const cy_stmt *s, cy_local l); /* does s, or what follows or is inside of it, set l? */
void cy_kernel_for(cy_kernel *k, cy_var v, bool lanes); /* opens a loop: statements go inside until cy_kernel_end() */
void cy_kernel_end(cy_kernel *k);
void cy_kernel_store(cy_kernel *k, cy_karg arg, cy_expr offset, cy_expr value); /* casts value to the storage dtype */
/* arg[offset] = the greater of what is there and value, an i32 that is not negative; any number of tasks may share an
 * element. Where the target can (cy_target_caps.maxima_of). */
void cy_kernel_store_max(cy_kernel *k, cy_karg arg, cy_expr offset, cy_expr value);
void cy_kernel_set(cy_kernel *k, cy_local l, cy_expr value);
void cy_kernel_accum(cy_kernel *k, cy_local l, cy_op op, cy_expr value);

/* Expressions. Constructors fold constants, drop neutral elements, and keep index arithmetic in sum-of-products form;
 * division and modulo of `i * E + j` with 0 <= j < E simplify by the extents of the variables. */
const cy_expr_info *cy_expr_of(const cy_kernel *k, cy_expr e);
uint32_t cy_expr_count(const cy_kernel *k);
cy_expr cy_x_const(cy_kernel *k, cy_dtype dtype, double v);
cy_expr cy_x_int(cy_kernel *k, cy_dtype dtype, int64_t v);
cy_expr cy_x_index(cy_kernel *k, int64_t v);                  /* i64 */
cy_expr cy_x_var(cy_kernel *k, cy_var v);
cy_expr cy_x_dim(cy_kernel *k, cy_dim d);                     /* i64; a constant dim becomes a constant */
cy_expr cy_x_local(cy_kernel *k, cy_local l);
cy_expr cy_x_load(cy_kernel *k, cy_karg arg, cy_expr offset); /* in the storage dtype */
cy_expr cy_x_op(cy_kernel *k, cy_op op, cy_dtype dtype, const cy_expr *args, int n); /* general; dtype of the result */
cy_expr cy_x_un(cy_kernel *k, cy_op op, cy_expr a);           /* result dtype by the op's rule */
cy_expr cy_x_bin(cy_kernel *k, cy_op op, cy_expr a, cy_expr b);
cy_expr cy_x_select(cy_kernel *k, cy_expr c, cy_expr a, cy_expr b);
#define cy_x_bin(k, op, a, b) CY_LAST_FIRST(cy_expr, a, b, cy_x_bin(k, op, x_, y_))
#define cy_x_select(k, c, a, b) CY_LAST_FIRST3(cy_expr, c, a, b, cy_x_select(k, x_, y_, z_))
/* The same where all that a and b load lies inside of the arguments, whatever c is: targets may load both. */
cy_expr cy_x_select_either(cy_kernel *k, cy_expr c, cy_expr a, cy_expr b);
/* Likewise, where c hardly ever holds and a takes long: targets compute a only where c holds for any element at hand. */
cy_expr cy_x_select_rare(cy_kernel *k, cy_expr c, cy_expr a, cy_expr b);
enum { CY_SELECT_EITHER = 1, CY_SELECT_RARE = 2 }; /* ids of such selects */
cy_expr cy_x_cast(cy_kernel *k, cy_expr a, cy_dtype dtype);
/* A sum of two products in i32: the bytes of w, an i16, times the halves of h, an i32, all of them signed. */
cy_expr cy_x_pairs(cy_kernel *k, cy_expr w, cy_expr h);
bool cy_x_is_pairs(const cy_kernel *k, cy_expr e, cy_expr *out_w, cy_expr *out_h);
/* To an eight-bit float without saturation: what is too large becomes infinite or NaN. Such casts have id 1. */
cy_expr cy_x_cast_unsaturated(cy_kernel *k, cy_expr a, cy_dtype dtype);

/* e as base + sum coef[i] * var[i] + rest, coefs and base symbolic, rest = 0 or an expression that is not affine. */
typedef struct cy_affine {
  cy_dim base;
  int n;
  cy_var var[CY_MAX_RANK * 2];
  cy_dim coef[CY_MAX_RANK * 2];
  cy_expr rest;
} cy_affine;
bool cy_expr_affine(cy_kernel *k, cy_expr e, cy_affine *out);  /* false: too many terms */
void cy_expr_mark(const cy_kernel *k, cy_expr e, bool *inout_marks); /* [e + 1]: e and all that it is computed from */
void cy_stmt_mark(const cy_kernel *k, const cy_stmt *s,
                  bool *inout_marks);                           /* .. values of s, of what follows or is inside */
bool cy_expr_uses_var(const cy_kernel *k, cy_expr e, cy_var v); /* through locals not followed */
bool cy_expr_is_int(const cy_kernel *k, cy_expr e, int64_t *out); /* a constant index */
/* Rewrites: every occurrence of variable v in the kernel by expression `by`. */
void cy_kernel_subst_var(cy_kernel *k, cy_var v, cy_expr by);
/* .. every load of an argument at element `at` by one at place(k, at, ctx). */
void cy_kernel_move_loads(cy_kernel *k, cy_karg arg, cy_expr (*place)(cy_kernel *k, cy_expr at, void *ctx), void *ctx);

/* The distinct non-constant dims that the kernel's statements, extents and contraction use: what a launch must hand
 * in, in this order. */
uint32_t cy_kernel_dims(cy_kernel *k, const cy_dim **out_dims);

void cy_kernel_print(cy_kernel *k, FILE *out);               /* text form, see ir/text/TEXT.md */
/* Structural hash of everything but the name; and equality. Identical kernels are emitted once. */
uint64_t cy_kernel_hash(cy_kernel *k);
bool cy_kernel_equal(cy_kernel *a, cy_kernel *b);
/* Checks types, scopes and ids. False: `out_text` (caller's, may be NULL) says what is wrong. */
bool cy_kernel_verify(cy_kernel *k, char *out_text, size_t capacity);

/* loop_math.c: exp, log, tanh, erf, sin, .. of f32 as polynomials in basic arithmetic (one expression for CPU, CUDA and
 * oracle), applied to the whole kernel before codegen. Those of f64 stay calls of libm. */
void cy_kernel_expand_math(cy_kernel *k);
/* Is e such a polynomial, of a function of one number? Then which, and of what. */
bool cy_expr_function(const cy_kernel *k, cy_expr e, cy_op *out_op, cy_expr *out_arg);

/* loop_math.c: e^x for x <= 0, the weights of a softmax: in f32 0 from about -87.7 on, where it is no normal number
 * any more. NaN stays. */
cy_expr cy_x_exp_below(cy_kernel *k, cy_expr x);

/* loop_schedule.c: clean-up of the axes and the choice of lanes. Merges grid and loop axes that all accesses treat as
 * one, drops axes of extent 1, picks the lane loop (unit stride first), orders the grid. Run by lowering on plain loop
 * kernels. */
void cy_kernel_schedule(cy_kernel *k);
/* loop_schedule.c, before cy_kernel_schedule(), for a target that has few lanes: puts a loop over rows inside of the
 * lanes where much of the addresses is the same for all rows. */
void cy_kernel_share_addresses(cy_kernel *k);

/* loop_fold.c: makes batch axes along which B stands still part of the rows of a matrix product, where A allows it: a
 * product of few rows reads all of B for each of them. Run by lowering once the epilogue is there. */
void cy_kernel_fold_batches(cy_kernel *k);
/* loop_fold.c: takes spatial axes of one position and one tap from a convolution, and makes one of single positions a
 * matrix product whose rows are all positions, where the epilogue treats them as one axis. Run by lowering once the
 * epilogue is there. */
void cy_kernel_fold_positions(cy_kernel *k);
/* Of a convolution: does the epilogue treat images and spatial axes as one? It is the same then where all of these
 * indices are 0 but the last, which counts all positions. */
bool cy_kernel_positions_join(cy_kernel *k);
/* loop_fold.c: where the epilogue begins with adding an i32 per column to the accumulators, has them begin with it.
 * Called by targets that can do that. */
void cy_kernel_fold_start(cy_kernel *k);

/* interp.c: runs tasks [begin, end) on host memory, syms as for cy_dim_eval. Contraction kernels run as plain nested
 * sums. The oracle. */
void cy_kernel_interpret(cy_kernel *k, void *const *args, const int64_t *syms, int64_t begin, int64_t end);
int64_t cy_kernel_tasks_eval(cy_kernel *k, const int64_t *syms);

/* ---- work and cost (cost.c) ------------------------------------------------------------------------------------- */

typedef struct cy_cost {
  double flops;      /* arithmetic operations (multiply-add = 2) */
  double read_bytes; /* distinct bytes */
  double write_bytes;
} cy_cost;
cy_cost cy_kernel_cost(cy_kernel *k, const int64_t *syms); /* syms: a binding for estimation */

/* ---- programs (program.c) --------------------------------------------------------------------------------------- */

typedef enum cy_buffer_kind {
  CY_BUF_ARENA,   /* offset planned at compile time (an expression where sizes are symbolic) */
  CY_BUF_INPUT,   /* model input `index` */
  CY_BUF_OUTPUT,  /* model output `index`, shape known before the run */
  CY_BUF_CONST,   /* constant `index` of the program */
  CY_BUF_DYNAMIC, /* dynamic slot `index`: size depends on data */
  CY_BUF_CHECKS   /* what kernels find out of range: two i64 for each of the program's checks, 0 when a run begins */
} cy_buffer_kind;
typedef struct cy_buffer {
  cy_buffer_kind kind;
  uint32_t index;
  cy_dim bytes;
  cy_dim offset;        /* ARENA: set by memory planning, bytes; 0: the library plans when it runs */
  int32_t first, last;  /* positions of the first and last step that touch it */
} cy_buffer;

/* Produces one piece of a constant's bytes; `out` is where they all begin. Thread-safe, pieces in any order. */
typedef void cy_constant_write(const cy_graph *g, cy_val value, const void *layout, uint32_t piece, void *out);

/* Bytes in the library's weight section. `write` produces `size` bytes from the value (packing); NULL: the value's
 * bytes as they are. */
typedef struct cy_constant {
  cy_val value;
  uint64_t size, offset;
  /* Names the layout; equal (value, key) are shared; "" for plain */
  const char *key;
  cy_constant_write *write;
  const void *layout;
  uint32_t pieces; /* calls of `write` that it takes */
} cy_constant;

typedef struct cy_bind { /* an argument of a launch: a buffer, and where in it */
  uint32_t buffer;
  cy_dim offset; /* bytes */
} cy_bind;

/* A tensor handed to a runtime call: dense, row-major. */
typedef struct cy_call_tensor {
  cy_bind at;
  cy_type type;
} cy_call_tensor;

/* An output whose step `step` (SHARED) found it to lie where an input does: what would be copied stays where it is. */
typedef struct cy_memory_share {
  uint32_t input, output;
  struct cy_step *step;
} cy_memory_share;

typedef enum cy_step_kind {
  CY_STEP_LAUNCH, /* kernel over all its tasks */
  CY_STEP_CALL,   /* runtime op; symbols of kind COUNT of its outputs are set from the sizes it reports */
  CY_STEP_READ,   /* symbol `sym` = element at bind[0], of dtype `dtype` */
  CY_STEP_ALLOC,  /* dynamic slot of buffer `bind[0]` gets its size */
  CY_STEP_OUTPUT, /* output `index` of data-dependent shape: dims known now; its buffer becomes usable */
  CY_STEP_IF,     /* symbol sym != 0: then_steps, else else_steps */
  /* While (sym (counter) < limit): then_steps, counter++ ; ends early when symbol `cond` is 0 (checked before each
   * turn; 0: no condition) */
  CY_STEP_LOOP,
  CY_STEP_SET,   /* symbol sym = expression `limit` */
  CY_STEP_SWAP,  /* the dynamic slots of buffers bind[0] and bind[1] exchange their memory */
  CY_STEP_SHARED, /* symbol sym = does output `index`, of `limit` bytes, lie where the input of buffer bind[0] does? */
  CY_STEP_ROOM    /* symbol sym = how many elements outputs that continue inputs have room for, lying where these do; 0: they
                     do not, and are dense */
} cy_step_kind;

typedef struct cy_step {
  cy_step_kind kind;
  struct cy_step *next, *then_steps, *else_steps;
  cy_node node;            /* for messages and --explain */
  cy_kernel *kernel;       /* LAUNCH */
  cy_node *fused;          /* LAUNCH: the nodes it computes, in no order; for --explain */
  uint32_t nfused;
  /* LAUNCH: one per kernel argument (SCRATCH ones: buffer of workers * elems); READ, ALLOC, SHARED: one; SWAP: two */
  cy_bind *bind;
  uint32_t nbind;
  const char *call;        /* CALL: name in rt_ops.def */
  cy_call_tensor *in, *out;
  uint32_t nin, nout;
  const cy_attr *attrs;    /* CALL: in the row's order */
  uint32_t nattrs;
  cy_sym sym, cond;
  cy_block then_block, else_block; /* IF, LOOP: what the steps compute; 0: none of the graph's blocks */
  cy_dtype dtype;
  cy_dim limit;            /* LOOP, SET, SHARED */
  bool guess;              /* SET: a later one says what the symbol is; until then, no check may read it */
  uint32_t index;          /* OUTPUT, SHARED */
  int32_t position;        /* pre-order number */
} cy_step;

/* An output that is an input with more behind it along an axis, and has the room of the program's step ROOM. */
typedef struct cy_memory_growth {
  uint32_t input, output;
  int axis;
} cy_memory_growth;

typedef struct cy_program {
  cy_graph *g;
  cy_buffer *buffers;
  uint32_t nbuffers, buffers_cap;
  cy_constant *constants;
  uint32_t nconstants, constants_cap;
  cy_step *steps;
  cy_kernel **kernels; /* distinct ones */
  uint32_t nkernels, kernels_cap;
  cy_memory_share *shares;
  uint32_t nshares, shares_cap;
  cy_memory_growth *growths;
  uint32_t ngrowths, growths_cap;
  uint32_t *checks;    /* requirements (cy_graph_requirements) that kernels check, in the order of the steps */
  uint32_t nchecks, checks_cap, checks_buffer;
  cy_sym room; /* of a step ROOM, where there are growths; else 0 */
  cy_dim arena_bytes; /* 0: not planned, or the library plans when it runs */
  uint32_t ndynamic;
  cy_sym workers;      /* CY_SYM_FREE symbol: how many workers run a kernel (scratch sizes depend on it) */
  uint64_t weights_bytes;
} cy_program;

cy_program *cy_program_create(cy_graph *g);
/* Calls `visit` for every step from `steps` on, those of bodies behind the step that has them: in the order of
 * `position`. */
void cy_steps_visit(cy_step *steps, void (*visit)(void *ctx, cy_step *s), void *ctx);
uint32_t cy_program_add_buffer(cy_program *p, cy_buffer_kind kind, uint32_t index, cy_dim bytes);
uint32_t cy_program_add_constant(cy_program *p, cy_val value, uint64_t size, const char *key,
                                 cy_constant_write *write, const void *layout, uint32_t pieces);
/* The program's copy of an identical kernel, or k itself (added). */
cy_kernel *cy_program_intern_kernel(cy_program *p, cy_kernel *k);
/* loop_share.c: makes one kernel of those that are equal but for numbers in them (zero points, bounds, scales): what
 * differs becomes loads from arguments, constants of each launch. Kernels of which share_key() differs stay apart. */
void cy_program_share_kernels(cy_program *p, uint64_t (*share_key)(void *ctx, cy_kernel *k), void *ctx);
void cy_program_print(cy_program *p, FILE *out);             /* text form, see ir/text/TEXT.md */
/* Checks kernels, buffers, and what steps refer to. False: `out_text` (caller's, may be NULL) says what is wrong. */
bool cy_program_verify(cy_program *p, char *out_text, size_t capacity);
/* Runs the whole program by the interpreter; inputs/outputs in model order, outputs allocated by malloc (caller
 * frees), dims written. Data dependent steps included, runtime calls excepted. The oracle for end-to-end tests. 0, or
 * -1 for an unsupported step. */
int cy_program_interpret(cy_program *p, const void *const *inputs, const int64_t *input_syms, void **out_data,
                         cy_type *out_types);

#endif
