/* SPDX-License-Identifier: Apache-2.0 */
/* contract_int.h - what the generators of contractions share (contract.c), and the generators.
 *
 * Every contraction is seen as z independent products of an m x k by a k x n matrix: z counts batches or groups, m is
 * for a convolution the flattened (image, spatial..) index and k = (tap, channel). A kernel is printed from functions
 * that know the kind and a tile loop that does not:
 *
 *   <symbol>_at    fixes what of an element of A does not depend on k, in a <symbol>_row,
 *   <symbol>_tap_at   .. what depends on k alone, in a <symbol>_tap; k0: where the tile of k begins
 *   <symbol>_a_tap    offset of A's element in its argument, and whether it is inside: no zero of the padding
 *   <symbol>_a_at     .. from the row and k; -1 when it is outside
 *   <symbol>_b_at  the same of B's element (z, k, n); <symbol>_b_inside where it is known to be inside
 *   <symbol>_put   runs the epilogue for one result,
 *   <symbol>_put_chunk   .. for schedule->vector neighbours along n, where that can be
 *
 * Of transposed convolutions z counts groups and residues (residues.c), and all of these functions take a <symbol>_residue.
 *
 * B is read from its argument as the model has it, or packed: [z][n][k], k filled up with zeros to schedule->packed_k.
 */
#ifndef CY_CUDA_CONTRACT_INT_H
#define CY_CUDA_CONTRACT_INT_H

#include "codegen/cuda/cuda_int.h"

/* ---- sizes.c ---- */
/* Sizes of a contraction in the view above. */
typedef struct cy_cu_sizes {
  cy_dim z, m, n, k;
} cy_cu_sizes;
cy_cu_sizes cy_cu_sizes_of(cy_kernel *k);
/* v; where it is symbolic `otherwise`, but no more than it may be and no less than it is for one image. */
double cy_cu_estimate(cy_graph *g, cy_dim v, double otherwise);
/* How many tiles of m x n there are. */
double cy_cu_tiles_estimate(cy_kernel *k, const cy_cu_sizes *s, int m, int n);
cy_dim cy_cu_tiles(cy_graph *g, const cy_cu_sizes *s, int m, int n);
int64_t cy_cu_taps(const cy_contraction *c);
cy_dim cy_cu_depth(cy_kernel *k); /* of which the size of k of any product is a multiple */
/* A filter for every channel, one result channel each. */
bool cy_cu_is_depthwise(cy_graph *g, const cy_contraction *c);
cy_dim cy_cu_per_group(cy_graph *g, const cy_contraction *c, cy_dim channels);
cy_dtype cy_cu_factor_type(cy_kernel *k); /* of A */
/* What a contraction does with its results: the body but for what attention does with scores. */
const cy_stmt *cy_cu_epilogue(cy_kernel *k);
/* Transposed convolutions (residues.c) */
static inline bool cy_cu_has_residues(const cy_contraction *c) { return c->kind == CY_CONTRACT_CONV_TRANSPOSE; }
int64_t cy_cu_residues(const cy_contraction *c);     /* 1 of all else */
int64_t cy_cu_residue_taps(const cy_contraction *c); /* most of a residue; of all else: all taps */
cy_dim cy_cu_residue_rows(cy_graph *g, const cy_contraction *c);
/* Along axis i: distance of the taps of a residue, of the inputs that they meet; taps of a residue at most. */
int64_t cy_cu_residue_tap_step(const cy_contraction *c, int i);
int64_t cy_cu_residue_input_step(const cy_contraction *c, int i);
int64_t cy_cu_residue_axis_taps(const cy_contraction *c, int i);
static inline bool cy_cu_is_conv(const cy_contraction *c) {
  return c->kind == CY_CONTRACT_CONV || c->kind == CY_CONTRACT_CONV_TRANSPOSE;
}
/* Do zero points of integers count (zeros.c)? Weights in blocks have theirs by themselves. */
static inline bool cy_cu_has_zeros(const cy_contraction *c) { return c->has_a_zero || (c->has_b_zero && !c->b_bits); }

/* A contraction being printed. */
typedef struct cy_cu_contract {
  cy_cu *p;
  const cy_contraction *c;
  const char *symbol, *type;  /* type: of the accumulator */
  char z[160], m[160], n[96], k[160]; /* sizes as text; of transposed convolutions k is the largest of a residue */
  int64_t residue_unit[CY_MAX_SPATIAL]; /* residues.c: a residue's number counts its remainders by these */
} cy_cu_contract;

/* The argument that B is read from. */
static inline cy_karg cy_cu_b_arg(const cy_cuda_schedule *schedule, const cy_contraction *c) {
  return schedule->packed_k ? schedule->packed_arg : c->b;
}

/* ---- contract_functions.c ---- */
/* Prints the functions. */
void cy_cu_contract_begin(cy_cu_contract *q, cy_cu *p, const char *symbol);
/* Prints <symbol>_put and <symbol>_put_chunk alone. */
void cy_cu_contract_put(cy_cu_contract *q);

/* ---- contract_text.c ---- */
/* Copies the text with $S symbol, $T accumulator type, $P parameters (and a residue, if there are residues), $N their names, $Q
 * and $M the same without a residue, as kernels have them, $F statements of a kernel that fix the residue and K of `z` (ALL_K is
 * the largest), $A $B the pointers to the operands, $V that to the values of attention, $X $Y the storage types of A and B,
 * $Z how many products there are; $L the parameter of lengths.c, at the end of a kernel's: statements that read it follow. */
void cy_cu_contract_text(cy_cu_contract *q, const char *text);
/* at += z's offset, of batches that lie so far from each other. */
void cy_cu_print_batch(cy_cu_contract *q, const cy_dim *strides);
/* Prints const b1 <name> = can 16 bytes of an operand, `chunk` elements, be copied at once: if it `runs`, element by
 * element, and begins where all strides are multiples of that. */
void cy_cu_print_wide(cy_cu *p, const char *name, bool runs, const cy_dim *strides, int n, cy_karg arg, int64_t chunk);
/* Prints a macro <name>(v) that makes an element of this type, as it is stored, a value in a register. */
void cy_cu_print_decoding(cy_cu *p, const char *name, cy_dtype type);
/* Macros of numbers, which differ from kernel to kernel. */
typedef struct cy_cu_number {
  const char *name;
  int64_t value;
} cy_cu_number;
void cy_cu_print_numbers(FILE *out, const cy_cu_number *rows, size_t n);
/* A function of C text: cy_cu_contract_text(head), indented statements with sizes at hand, } */
void cy_cu_function_open(cy_cu_contract *q, const char *head);
void cy_cu_function_close(cy_cu_contract *q);

/* ---- packed.c ---- */
int64_t cy_cu_packed_row(cy_kernel *k); /* elements of a row of B that is packed while compiling; 0: it cannot be */
/* Of transposed convolutions: its elements, and where the channels of a tap begin in it. chunk: 16 bytes of elements. */
int64_t cy_cu_residue_row(const cy_contraction *c, int64_t depth, int64_t chunk);
int64_t cy_cu_residue_place(const cy_contraction *c, int64_t tap, int64_t depth, int64_t chunk);

/* ---- residues.c: transposed convolutions ---- */
void cy_cu_residue_print(cy_cu_contract *q); /* <symbol>_residue, <symbol>_residue_of; nothing where there are none */
/* Statements of <symbol>_tap_at, `rest` its tap; the window of row `rest` in <symbol>_at; int tap, in the model's order, of
 * number `own`; variables of a result of row m, which return where it is none. */
void cy_cu_residue_tap(cy_cu_contract *q, const char *type);
void cy_cu_residue_window(cy_cu_contract *q);
void cy_cu_residue_flat_tap(cy_cu_contract *q);
void cy_cu_residue_coordinates(cy_cu_contract *q);

/* ---- split.c ---- */
/* Has blocks share k where the schedule's tiles are too few. */
void cy_cu_split_schedule(const cy_machine *m, cy_kernel *k, cy_cuda_schedule *schedule);
/* Around a kernel's text. SHARES (at most), SHARE_BLOCKS, VECTOR: macros; <symbol>_shares(tiles, iterations);
 * <symbol>_end(.., shares, share_z, z, m, n, sums, M, N) ends VECTOR results, which are neighbours along n: share_z,
 * the number of the share and of the product, counts where there are several shares. */
void cy_cu_split_begin(cy_cu_contract *q);
/* Which z and share of k a block has, in a generator's text: of `across` x `down` tiles, ALL_K and all_iterations
 * iterations, zs counts the products and their shares. own_turns are those of z. */
#define CY_CU_SHARE_OF_BLOCK                                                                                           \
  "#if SHARES > 1\n"                                                                                                   \
  "  const int shares = $S_shares((i64)across * down * ($Z), all_iterations);\n"                                       \
  "  const int z = zs / shares, share = zs % shares;\n"                                                                \
  "  const i64 share_z = share * ($Z) + z;\n"                                                                          \
  "#else\n"                                                                                                            \
  "  const int shares = 1, z = zs, share = 0, share_z = 0;\n"                                                          \
  "#endif\n"                                                                                                           \
  "$F"                                                                                                                 \
  "  const int own_turns = (K + BK - 1) / BK, share_iterations = (own_turns + shares - 1) / shares;\n"
/* Statements that end BM / PARTS x BN results of a block of NT threads, from row m0 + above on: $T *results in shared
 * memory, in an order that keeps groups of 8 neighbours together. */
void cy_cu_split_results(cy_cu_contract *q);
void cy_cu_split_end(cy_cu_contract *q);

/* ---- blocks.c: weights in integers ---- */
/* Are bytes of a block's rows a multiple of `run`, which one thread reads of a column? */
bool cy_cu_blocks_fit(cy_kernel *k, int run);
/* Around a kernel's text: macros W_BITS (0 where B is no such), W_ROWS of bytes in a block, W_TILE columns that lie
 * together, W_SIGN to be flipped, W_FOURS (four neighbours of a row can be read at once), W_SCALES, W_SCALE(at), W_ZERO(at)
 * and, if W_EACH, W_ZEROS, which lie like scales; W_FLOATS: codes are floats, W_FLOAT(code); <symbol>_code_at. */
void cy_cu_blocks_begin(cy_cu_contract *q);
void cy_cu_blocks_end(const cy_cu_contract *q);
void cy_cu_blocks_element(cy_cu_contract *q); /* <symbol>_b(.., z, k, n): a weight, 0 outside */
/* What a tile of matrix.c takes: <symbol>_order, the k of its j'th row; <symbol>_codes; _fetch and _spread, which fill
 * and convert them. */
void cy_cu_blocks_tile(cy_cu_contract *q);

/* ---- matrix_load.c ---- */
enum { CY_CU_CHUNK = 16, CY_CU_TILE_ROW_BYTES = 64 };
static inline int cy_cu_chunk_of(cy_dtype t) { return CY_CU_CHUNK * 8 / cy_dtype_of(t)->bits; }
static inline bool cy_cu_multiple(cy_graph *g, cy_dim d, int64_t of) {
  int64_t v;
  return cy_dim_is_const(g, d, &v) && v % of == 0;
}
/* Types of 8 bits, which matrix instructions take in pairs of their own, rows of k alone. */
static inline bool cy_cu_is_narrow(cy_dtype t) { return cy_dtype_is_byte(t) || cy_dtype_is_float8(t); }
/* What names those instructions: A's type; of types of 8 bits B's behind it. */
static inline const char *cy_cu_factor_b_name(cy_dtype a, cy_dtype b) {
  return cy_cu_is_narrow(a) ? cy_dtype_of(b)->name : "";
}
/* One operand: its tile has rows of k, or rows of m or n that are transposed; the elements of a chunk are contiguous or
 * not, then those of neighbouring rows may be (`down`); 16 bytes can be copied at once if all of `strides` are
 * multiples of a chunk. `words`: that is never so; `aligned`: but they are multiples of 4 bytes. */
typedef struct cy_cu_operand {
  bool transposed, runs, down, words, aligned;
  cy_dim strides[CY_MAX_BATCH + CY_MAX_SPATIAL + 4];
  int nstrides;
} cy_cu_operand;
cy_cu_operand cy_cu_operand_a(cy_kernel *k);
cy_cu_operand cy_cu_operand_b(cy_kernel *k, const cy_cuda_schedule *schedule);
int cy_cu_load_bytes(cy_kernel *k, const cy_cuda_tile *tile); /* of shared memory, beside the tiles */
/* Channels that lie one behind the other where a comes as halves that are rounded: what makes a chunk of bytes. */
enum { CY_CU_ROUNDED_RUN = CY_CU_CHUNK };
void cy_cu_load_print(cy_cu_contract *q, const cy_cu_operand *a, const cy_cu_operand *b);

/* ---- zeros.c ---- */
void cy_cu_byte_constants(const cy_cu_contract *q); /* macros of 8-bit integers: sums of elements, the zero points */
/* <symbol>_add_row, where warpgroups multiply; <symbol>_subtract(.., acc, sums, all) takes from a thread's results what zero
 * points add to them. */
void cy_cu_zeros_print(cy_cu_contract *q);

/* ---- tma.c ---- */
enum { CY_CU_TMA_MIN_COLUMNS = 64 };
double cy_cu_tma_min_tiles(const cy_machine *m, int columns); /* how many of so many columns are enough */
cy_dim cy_cu_tma_enough(const cy_machine *m, cy_graph *g, cy_dim tiles, const cy_cuda_schedule *schedule);
/* A map of the argument: its type, boxes and steps of 1. */
cy_cuda_tensor cy_cu_tma_tensor_of(cy_kernel *k, cy_karg arg, int rank);
bool cy_cu_tma_transposes(cy_dtype t); /* does wgmma take rows of m or n? */

/* ---- matrix_tma.c ---- */
/* Sets tma_blocks where such a kernel would have enough blocks; what it needs to know of B comes later. */
void cy_cu_tma_schedule(const cy_machine *m, cy_kernel *k, cy_cuda_schedule *schedule);
/* How its factors lie, those of convolutions, too; see cy_cuda_tma_tensor(). */
void cy_cu_matrix_tma_tensor(cy_kernel *k, const cy_cuda_schedule *schedule, bool b, cy_cuda_tensor *out);
void cy_cu_tma_print(cy_cu_contract *q); /* nothing where there is none */

/* ---- pingpong.c ---- */
/* Sets tma_n and tma_pingpong, of a kernel that would have `rows` x .. tiles of 128 rows and so many columns. */
void cy_cu_pingpong(const cy_machine *m, cy_kernel *k, double rows, int columns, cy_cuda_schedule *schedule);

/* ---- conv_tma.c: the same for convolutions ---- */
void cy_cu_conv_tma_schedule(const cy_machine *m, cy_kernel *k, cy_cuda_schedule *schedule);
void cy_cu_conv_tma_tensor(cy_kernel *k, const cy_cuda_schedule *schedule, bool b, cy_cuda_tensor *out);
/* Functions of the kernel, and what its text has to know of places. */
void cy_cu_conv_tma_functions(cy_cu_contract *q);
void cy_cu_conv_tma_places(cy_cu_contract *q);
enum { CY_CU_TMA_M = 128, CY_CU_TMA_ROW_BYTES = 128 };
static inline int cy_cu_tma_depth(cy_dtype t) { return CY_CU_TMA_ROW_BYTES * 8 / cy_dtype_of(t)->bits; } /* of a tile */

/* ---- problem.c: what libraries of NVIDIA are told of a kernel; see cy_cuda_offer_match ---- */
/* Where a field of a cyrt_cuda_problem is, counted in sizes. */
#define CY_CU_FIELD(name) (offsetof(cyrt_cuda_problem, name) / sizeof(int64_t))
void cy_cu_problem_init(cy_graph *g, int kind, cy_dim field[CY_CUDA_PROBLEM_FIELDS]);
const cy_expr_info *cy_cu_without_casts(const cy_kernel *k, cy_expr e); /* what is cast, if from float to float */
void cy_cu_problem_tensor(cy_kernel *k, cy_dim *field, int which, cy_karg arg, cy_dim offset, const cy_dim stride[4]);
static inline bool cy_cu_is_float(cy_dtype t) { return t == CY_F32 || t == CY_F16 || t == CY_BF16; }

/* A kernel that is being matched. */
typedef struct cy_cu_offer cy_cu_offer;
struct cy_cu_offer {
  cy_kernel *k;
  cy_graph *g;
  const cy_contraction *c;
  const cy_karg_info *args;
  cy_dim *field;      /* [CY_CUDA_PROBLEM_FIELDS] */
  unsigned libraries; /* bits by number: those that may take it */
  /* Fills a tensor that lies as the output does, or the bias: one number for each column. False: it does not lie so. */
  bool (*like_output)(cy_cu_offer *o, int which, cy_karg arg, cy_expr offset);
  bool (*like_columns)(cy_cu_offer *o, cy_karg arg, cy_expr offset);
  bool bias, residual, after;
};

/* ---- epilogue.c ---- */
bool cy_cu_epilogue_match(cy_cu_offer *o);
bool cy_cu_strides_of(const cy_cu_offer *o, cy_expr offset, int n, cy_dim *out_base, cy_dim *strides);

/* ---- conv.c, product.c, attention_cudnn.c ---- */
/* `repack`: could it be cuDNN's with the weights packed? */
bool cy_cu_conv_match(const cy_machine *m, cy_kernel *k, const cy_cuda_schedule *schedule, bool repack,
                      cy_dim out_field[CY_CUDA_PROBLEM_FIELDS]);
bool cy_cu_product_match(const cy_machine *m, cy_kernel *k, const cy_cuda_schedule *schedule,
                         cy_dim out_field[CY_CUDA_PROBLEM_FIELDS]);
bool cy_cu_is_like_conv(const cy_contraction *c, cy_graph *g); /* a product that cuDNN can compute as one */
bool cy_cu_attention_match(cy_kernel *k, cy_dim out_field[CY_CUDA_PROBLEM_FIELDS]);

/* ---- attention_sizes.c ---- */
int cy_cu_attention_shared(cy_kernel *k);      /* trailing batch axes of one key head */
void cy_cu_attention_sizes(cy_cu_contract *q); /* as the kernels' text names them */
/* const b1 wide_<name> = can 16 bytes of it be copied at once; its steps from row to row and element to element */
void cy_cu_attention_operand(cy_cu_contract *q, const char *name, cy_karg arg, cy_dim row, cy_dim step, const cy_dim *batch);

/* ---- attention_tma.c ---- */
void cy_cu_attention_tma_schedule(const cy_machine *m, cy_kernel *k, int shared, cy_dim blocks, cy_cuda_schedule *schedule);
void cy_cu_attention_tma_tensor(cy_kernel *k, bool values, cy_cuda_tensor *out);
void cy_cu_attention_tma_print(cy_cu_contract *q);
/* Results on their way through shared memory, PART columns of 4 bytes a row: groups of 8 columns and halves of them trade
 * places, so that a warp meets every bank equally often. */
#define CY_CU_STAGED "#define STAGED(m, n) ((m) * PART + ((n) ^ ((m) & 3) << 3 ^ ((n) >> 5 & 1) << 2))\n"

/* ---- attention_text.c ---- */
typedef struct cy_cu_attention_text {
  const char *functions, *products, *warpgroup, *body; /* warpgroup: products as sm_90a has them; NULL: as the others */
} cy_cu_attention_text;
extern const cy_cu_attention_text cy_cu_attention_matrix, cy_cu_attention_plain;

typedef struct cy_cu_generator {
  const char *name;
  bool (*supports)(const cy_machine *m, cy_kernel *k);
  void (*schedule)(const cy_machine *m, cy_kernel *k, cy_cuda_schedule *schedule);
  void (*print)(cy_cu *p, const char *symbol);
  bool (*wants_packed)(const cy_cuda_schedule *schedule, cy_kernel *k); /* would it be faster with B packed? NULL: never */
} cy_cu_generator;
extern const cy_cu_generator cy_cu_depthwise; /* depthwise.c */
extern const cy_cu_generator cy_cu_gemv;      /* gemv.c */
extern const cy_cu_generator cy_cu_narrow;    /* narrow.c */
extern const cy_cu_generator cy_cu_plain;  /* plain.c */
extern const cy_cu_generator cy_cu_matrix, cy_cu_singles; /* matrix.c */
extern const cy_cu_generator cy_cu_attention; /* attention.c */

#endif
