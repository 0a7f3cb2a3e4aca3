/* SPDX-License-Identifier: Apache-2.0 */
/* lower_int.h - private to passes/lower*.c: from the tensor graph to kernels and host steps.
 *
 * Every value is *placed* (it has memory: a buffer, an offset, a stride per axis) or *inlined* (an expression of an output
 * index, composed into the kernels of its users). A kernel is made for each node that computes a placed value: axes of
 * the output become variables, cy_lower_def() composes the expression, a store ends it. Ops that need more than one
 * expression per element (softmax, products, scans) shape the kernel themselves and hand their result to the same
 * composition, as its *root value*.
 *
 * Arithmetic never happens in half or float8: expressions of such values are f32, converted at loads and stores.
 */
#ifndef CY_LOWER_INT_H
#define CY_LOWER_INT_H

#include "ir/loop/loop.h"
#include "lower.h"

typedef struct cy_kb cy_kb;
/* Element idx of an output of n, by elements of its inputs. */
typedef cy_expr (*cy_expr_fn)(cy_kb *b, cy_node n, uint32_t output, const cy_expr *idx);

/* Where a value lies. Strides and offset in elements. */
typedef struct cy_place {
  bool placed;
  uint32_t buffer;
  cy_dim offset;
  cy_dim stride[CY_MAX_RANK];
} cy_place;

typedef struct cy_lowering {
  cy_graph *g;
  cy_program *p;
  const cy_lower_options *o;
  const cy_target_caps *caps; /* o's; never NULL */
  int64_t busy_parts;   /* caps', at level 0 none: what -O0 makes is plain */
  bool splits_rows;     /* .. nor this */
  cy_arena *arena;
  cy_place *place;      /* [value] */
  uint32_t nplaces;
  cy_step **tail;       /* where the next step goes */
  cy_uses uses;
  uint32_t *sym_start;  /* data symbols by value: sym_list[sym_start[v] .. sym_start[v + 1]) */
  cy_sym *sym_list;
  bool *in_kernel;      /* [symbols + 1] nothing asks for its value but requirements that a kernel checks */
  cy_node node;         /* being lowered, for steps and messages */
  /* What the driver (lower.c) is asked for by those that it calls: an element is composed of elements of any other op,
   * and control flow holds blocks of any nodes. Set there, so that files depend on one another in one direction. */
  cy_expr_fn (*expr_of)(cy_op op); /* cy_lower_expr_of() */
  void (*steps_of)(struct cy_lowering *l, cy_block block); /* appends the steps of all nodes of a block */
  bool *found;          /* [value]: needs no kernel of its own any more (lower_maxima.c) */
  uint32_t maxima_buffer; /* maxima of images: where they lie, */
  cy_dim maxima_elems;    /* .. how many there are; 0: none */
  cy_node maxima_node;    /* .. which finds the last one */
} cy_lowering;

/* Are there generators of the target's that may be asked for kernels? */
static inline bool cy_lower_generates(const cy_lowering *l) { return l->o->level > 0 && l->caps->supports; }

/* Elements composed so far: element idx of an inlined value is composed once, however many paths lead to it. */
typedef struct cy_memo {
  struct cy_memo_entry {
    cy_val v; /* 0: free */
    cy_expr value, idx[CY_MAX_RANK];
  } *entry;
  uint32_t n, cap; /* cap: a power of two, or 0 */
} cy_memo;

/* A kernel under construction. */
struct cy_kb {
  cy_lowering *l;
  cy_kernel *k;
  cy_bind *bind;        /* [argument] */
  uint32_t nbind, bind_cap;
  cy_val root_value;        /* its elements are root_expr while composing; 0: none */
  cy_expr root_expr;
  cy_memo memo;         /* forgotten when the root_value changes */
  cy_node *fused;       /* nodes composed so far */
  uint32_t nfused, fused_cap;
  const cy_place *padded; /* zero-padded copy of a convolution's input, when plain loops read one */
};

/* ---- lower_places.c: where values lie, and the steps that this needs ---- */
cy_dtype cy_compute_dtype(cy_dtype storage);
const cy_type *cy_lower_type(const cy_lowering *l, cy_val v);
/* Of a placed value; a constant gets its place on first use */
cy_place *cy_lower_place(cy_lowering *l, cy_val v);
/* Gives v a buffer of its own, in its layout, unless placed */
void cy_lower_alloc(cy_lowering *l, cy_val v);
cy_place cy_lower_temp(cy_lowering *l, cy_dtype dtype, const cy_dim *dims, int rank); /* a row-major buffer */
/* The buffer of input or output `index` of the model, row-major */
cy_place cy_lower_port(cy_lowering *l, cy_buffer_kind kind, uint32_t index, const cy_type *t);
int cy_lower_output_index(cy_lowering *l, cy_val v);              /* the model output that v is, or -1 */
bool cy_lower_is_dynamic(const cy_lowering *l, const cy_type *t); /* does its size follow from data? */
/* In the arena, whose size is settled when a run begins, or, where the size follows from data, in a slot of its own. */
uint32_t cy_lower_buffer(cy_lowering *l, cy_dim bytes, bool dynamic);
cy_place cy_lower_unsized(cy_lowering *l, const cy_type *t);      /* as temp, without memory: see below */
void cy_lower_size(cy_lowering *l, const cy_place *p); /* memory for what is dynamic, its size being known here */
void cy_lower_size_buffer(cy_lowering *l, uint32_t buffer); /* the same */
cy_step *cy_lower_step(cy_lowering *l, cy_step_kind kind);          /* appended */
void cy_lower_read(cy_lowering *l, const cy_place *p, cy_dtype dtype, cy_sym sym); /* sym = the first element there */
/* Strides of a dense tensor whose axes lie in the order `layout`, outermost first (NULL: row-major). */
void cy_lower_dense_strides(cy_graph *g, const cy_type *t, const uint8_t *layout, cy_dim *out_stride);
bool cy_lower_is_contiguous(const cy_lowering *l, const cy_place *p, const cy_type *t);
cy_bind cy_lower_bind(cy_lowering *l, const cy_place *p, cy_dtype dtype);

/* ---- lower_build.c: kernels under construction ---- */
void cy_kb_init(cy_kb *b, cy_lowering *l, const char *name);
cy_karg cy_kb_arg(cy_kb *b, const cy_place *p, cy_dtype dtype, cy_karg_kind kind);
cy_karg cy_kb_scratch(cy_kb *b, cy_dtype dtype, cy_dim elems);
/* Sum of stride * index; the place's own offset is in the bind */
cy_expr cy_kb_offset(cy_kb *b, const cy_place *p, int rank, const cy_expr *idx);
cy_expr cy_kb_load(cy_kb *b, const cy_place *p, cy_dtype dtype, int rank, const cy_expr *idx); /* in the compute type */
void cy_kb_store(cy_kb *b, const cy_place *p, cy_dtype dtype, int rank, const cy_expr *idx, cy_expr value);
cy_expr cy_kb_grid_index(cy_kb *b, cy_dim extent);                  /* a new grid variable; 0 for extent 1 */
cy_expr cy_kb_loop(cy_kb *b, cy_dim extent, bool lanes);            /* opens a loop: always paired with cy_kernel_end() */
void cy_kb_launch(cy_kb *b, bool schedule);                         /* finishes the kernel, appends the launch */
void cy_lower_copy(cy_lowering *l, const cy_place *from, const cy_place *to, const cy_type *t);
cy_place cy_lower_dense(cy_lowering *l, cy_val v);                  /* where v lies row-major: its place, or a copy */

/* Element idx of v: a load, the root_value, or the composed expression, in the compute type. */
cy_expr cy_lower_at(cy_kb *b, cy_val v, const cy_expr *idx);
/* As above, but always by the definition of v, not from its memory. */
cy_expr cy_lower_def(cy_kb *b, cy_val v, const cy_expr *idx);
/* Element idx of target, given that root_value's element is `value`. */
cy_expr cy_lower_behind(cy_kb *b, cy_val target, cy_val root_value, const cy_expr *idx, cy_expr value);
/* The kernel's result: element idx of target, given that root_value's element is `value`, stored to target's place. */
void cy_lower_finish(cy_kb *b, cy_val target, cy_val root_value, const cy_expr *idx, cy_expr value);
/* Computes and stores element idx of target. root_value: as below. */
void cy_lower_element(cy_kb *b, cy_val root_value, cy_val target, const cy_expr *idx);
/* A kernel with one grid axis per axis of target, by composition alone. root_value: 0, or the value of the same shape to
 * compute first. */
void cy_lower_plain(cy_lowering *l, cy_val root_value, cy_val target, const char *name, const cy_place *padded);
/* lower_maxima.c: has the kernel find target's largest elements, too, if somebody wants them and the target can: element idx
 * is `value`. */
void cy_lower_maxima(cy_kb *b, cy_val target, const cy_expr *idx, cy_expr value);
/* .. are `ints`, a contraction's first operand, images that it is to round? Tells it what it has to know but for them. */
bool cy_lower_rounded(cy_kb *b, cy_val ints, cy_val *out_x);
void cy_lower_maxima_zeros(cy_lowering *l); /* .. puts what such maxima begin with in front of all steps */
/* The index into an operand of type `in` that numpy's broadcasting pairs with idx of an output of type `out`. */
void cy_lower_broadcast(cy_kb *b, const cy_type *in, const cy_type *out, const cy_expr *idx, cy_expr *in_idx);
cy_expr cy_lower_clamp(cy_kb *b, cy_expr i, cy_dim extent);         /* min(max(i, 0), extent - 1) */
cy_expr cy_lower_in_range(cy_kb *b, cy_expr i, cy_dim extent);      /* 0 <= i < extent, bool */

/* ---- lower_branch.c: symbols that steps set, branches by sizes ---- */
cy_sym cy_lower_read_scalar(cy_lowering *l, cy_val v); /* a new symbol, whose value is v's element */
cy_step *cy_lower_set_symbol(cy_lowering *l, cy_sym sym, cy_dim value);
/* d if it is nothing but a symbol of kind COUNT of value v, else 0 */
cy_sym cy_lower_count_symbol(cy_lowering *l, cy_dim d, cy_val v);
/* Steps that are done where d, a size, is not 0 when the program runs, then those that are done otherwise. */
typedef struct cy_branch {
  cy_step *step, **after;
} cy_branch;
void cy_lower_branch(cy_lowering *l, cy_dim d, cy_branch *out);
/* The same where d is at least that, which must be positive; true: it is certain, there is no branch. */
bool cy_lower_branch_from(cy_lowering *l, cy_dim d, int64_t min, cy_branch *out);
void cy_lower_otherwise(cy_lowering *l, cy_branch *b);
void cy_lower_join(cy_lowering *l, cy_branch *b);

/* ---- lower_checks.c ---- */
void cy_lower_find_checks(cy_lowering *l); /* finds l->in_kernel */
/* Sets the symbols whose value stands in v, or appends the checks of it. */
void cy_lower_read_symbols(cy_lowering *l, cy_val v);

/* ---- lower_expr.c, lower_index.c, lower_reduce.c: expressions of one output element ---- */
cy_expr_fn cy_lower_expr_of(cy_op op);                              /* NULL: the op has no such expression */
cy_expr cy_lower_resize(cy_kb *b, cy_node n, uint32_t output, const cy_expr *idx);
cy_expr cy_lower_grid_sample(cy_kb *b, cy_node n, uint32_t output, const cy_expr *idx);
cy_expr cy_lower_gather(cy_kb *b, cy_node n, uint32_t output, const cy_expr *idx);
cy_expr cy_lower_gather_elements(cy_kb *b, cy_node n, uint32_t output, const cy_expr *idx);
cy_expr cy_lower_gather_nd(cy_kb *b, cy_node n, uint32_t output, const cy_expr *idx);
cy_expr cy_lower_quantize(cy_kb *b, cy_node n, uint32_t output, const cy_expr *idx);
cy_expr cy_lower_dequantize(cy_kb *b, cy_node n, uint32_t output, const cy_expr *idx);
cy_expr cy_lower_reduce(cy_kb *b, cy_node n, uint32_t output, const cy_expr *idx);
/* Steps for a reduction of rows whose length only the run tells, by parts where they turn out to be long; false: the
 * plain kernel is all that it takes. */
bool cy_lower_parted_reduce(cy_lowering *l, cy_node root, cy_val root_value, cy_val target);
cy_expr cy_lower_arg_reduce(cy_kb *b, cy_node n, uint32_t output, const cy_expr *idx);
cy_expr cy_lower_pool(cy_kb *b, cy_node n, uint32_t output, const cy_expr *idx);
cy_expr cy_lower_matmul_naive(cy_kb *b, cy_node n, uint32_t output, const cy_expr *idx);
cy_expr cy_lower_conv_naive(cy_kb *b, cy_node n, uint32_t output, const cy_expr *idx);
cy_expr cy_lower_conv_transpose_naive(cy_kb *b, cy_node n, uint32_t output, const cy_expr *idx);

/* ---- whole kernels ---- */

/* `target` is the placed value, `root_value` (maybe the same) the root's output whose element the kernel computes. */
typedef void (*cy_root_fn)(cy_lowering *l, cy_node root, cy_val root_value, cy_val target);
cy_root_fn cy_lower_root_of(cy_op op);                              /* NULL: a plain kernel will do */
void cy_lower_recurrent(cy_lowering *l, cy_node root, cy_val root_value, cy_val target);   /* lower_rnn.c */
bool cy_lower_is_stored(cy_lowering *l, cy_val v); /* lower_contract.c: its elements lie in memory, or will */
void cy_lower_contraction(cy_lowering *l, cy_node root, cy_val root_value, cy_val target); /* lower_contract.c */
bool cy_lower_unfolded(cy_lowering *l, cy_node root, cy_val root_value,
                       cy_val target); /* lower_unfold.c; false: not one for it */
void cy_lower_matmul_blocks(cy_lowering *l, cy_node root, cy_val root_value, cy_val target); /* lower_blocks.c */
void cy_lower_attention(cy_lowering *l, cy_node root, cy_val root_value, cy_val target);   /* lower_attention.c */
void cy_lower_concat(cy_lowering *l, cy_node root, cy_val root_value, cy_val target);      /* lower_memory.c */
void cy_lower_pad(cy_lowering *l, cy_node root, cy_val root_value, cy_val target);         /* lower_pieces.c */
void cy_lower_pools(cy_lowering *l, cy_node root, cy_val root_value, cy_val target);       /* lower_pieces.c */
void cy_lower_scatter(cy_lowering *l, cy_node root, cy_val root_value, cy_val target);     /* lower_write.c */
void cy_lower_cumulative(cy_lowering *l, cy_node root, cy_val root_value, cy_val target);  /* lower_cumulative.c */
void cy_lower_write_rows(cy_lowering *l, cy_node root, cy_val root_value, cy_val target);  /* lower_write.c */
/* lower_write.c: drops those of the program's shares that would change what is read later. Steps are numbered. */
void cy_lower_check_shares(cy_lowering *l);

/* ---- lower_grow.c: caches that grow ---- */
void cy_lower_growing_places(cy_lowering *l); /* before lowering: caches that grow, and their inputs */
/* Steps that are done where `present` does not lie where `past` does, which it continues; false: it never can. */
bool cy_lower_unless_grown(cy_lowering *l, cy_val past, cy_val present, cy_branch *out);

/* ---- lower_memory.c: values that rename memory ---- */
/* Do both places put the elements of a tensor of type t at the same addresses? */
bool cy_lower_same_place(const cy_lowering *l, const cy_place *a, const cy_place *b, const cy_type *t);
void cy_lower_concat_places(cy_lowering *l, cy_block block);        /* before lowering: inputs placed inside outputs */
void cy_lower_output_places(cy_lowering *l);                        /* .. what outputs are views of, in their memory */
bool cy_lower_view(cy_lowering *l, cy_node n);                      /* does n's output rename its input? Places it so */
/* Of products of axes, taken one axis after the other on both sides until they are equal: is a the one that has to
 * grow? Where it is not certain that a <= b (a size may be 0) it is if b is a multiple of it. */
bool cy_lower_grows(cy_graph *g, cy_dim a, cy_dim b);
/* Where the output of a view of stored memory would lie; false when it needs a copy. */
bool cy_lower_view_place(cy_lowering *l, const cy_node_info *n, cy_place *out);

/* ---- lower_control.c: branches, loops and calls of the runtime ---- */
void cy_lower_if(cy_lowering *l, cy_node n);
void cy_lower_loop(cy_lowering *l, cy_node n);
void cy_lower_call(cy_lowering *l, cy_node n);

/* ---- lower_sort.c: rows of keys, whole numbers, and what sorting makes of them ---- */
typedef struct cy_lower_rows {
  cy_place place; /* [rows][n] */
  cy_dtype type;  /* CY_I32 or CY_I64 */
  cy_dim rows, n;
} cy_lower_rows;
typedef struct cy_lower_sorted {
  cy_place key, at; /* [rows][..]: the first keys in rising order, equal ones as they stood; where in the row each stood */
  cy_dtype type, at_type; /* CY_I32 or CY_I64 */
} cy_lower_sorted;
cy_dtype cy_lower_key_type(cy_dtype element);
/* Rises as the elements do, or (falling) as they fall; NaN is larger than everything, -0 is 0. */
cy_expr cy_lower_key(cy_kb *b, cy_expr x, bool falling);
/* Sorts rows whole. */
cy_lower_sorted cy_lower_sort_all(cy_lowering *l, const cy_lower_rows *rows);
void cy_lower_topk(cy_lowering *l, const cy_node_info *n);

/* ---- lower_search.c ---- */
/* As kernels, where the target wants that; false: this one has none. */
bool cy_lower_search(cy_lowering *l, cy_node n);

#endif
