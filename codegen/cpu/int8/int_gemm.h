/* SPDX-License-Identifier: Apache-2.0 */
/* int_gemm.h - contractions by instructions that add up groups of k: matrix products and convolutions of 8-bit integers
 * with exact i32 accumulators, and of bf16 with f32 accumulators.
 *
 * out = sum (a - a_zero) * (b - b_zero), a being s8 or u8; what padding adds is 0. Like contract.h, nothing here knows
 * the compiler's IR, and both sides, packing and code, derive their plan from the descriptor and cg. Algorithms:
 *   dot2    a and b as i16, vpmaddwd: exact for whatever 8-bit numbers less their zero points are; b is packed as s8
 *           where it fits, else as i16
 *   dot4    a as u8, b as s8, vpdpbusd: where the CPU has it; a constant b is s8. What a's zero point and shifting s8 to
 *           u8 add is a constant per column, taken from the sums of b's columns, where there is a zero point or a
 *           shift: accumulators begin with it. What zero points of b add, which is packed at run time, is taken away
 *           from them in the end
 *   split   dot4 by vpmaddubsw on other CPUs. Its sums of two products saturate at 16 bits, so weights are split into
 *           parts that add up to them, 255 * (|w| + |w'|) being at most 32767 for all pairs of a part. A group of k
 *           that has a second part for one of a panel's columns comes again at the panel's end, with that part. Where
 *           few do, this takes less time than dot2; whether they do, the weights tell (cy_int_gemm_again)
 *   bf16    dot2 of bf16, vdpbf16ps, which takes denormals for zeros and adds the two products one after the other:
 *           where the CPU has it (cg->bf16_dot)
 *   winograd  3x3 convolutions by dot2 of what F(4x4,3x3) makes of patches and filters (int_winograd.c)
 * A filter per channel is applied by dot4 or dot2, too (int_depthwise.c).
 * Where the CPU has AMX, dot4 and bf16 are multiplied by it, 16 rows by 16 columns by 16 groups of k at a time
 * (int_amx.c); k is then filled up to whole tiles.
 * A task copies its rows of a into scratch in the layout wanted, [row][k], padding included; micro-kernels then read
 * nothing but rows at equal distances and packed panels of b. dot4 of convolutions reads rows of the feature map
 * instead (int_row_block.c), whose padded copy is in scratch; groups of k begin anew with each row of the kernel then.
 * Panels of channels that are shuffled leave out the taps that they have only zeros for (int_order.c).
 */
#ifndef CY_CPU_INT_GEMM_H
#define CY_CPU_INT_GEMM_H

#include "codegen/cpu/conv/conv_int.h"
#include "ir/pixel_shuffle.h"

typedef struct cy_int_gemm_desc {
  bool conv;           /* which of the two below tells the sizes; strides count elements */
  cy_gemm_desc gemm;   /* name, slots and epilogue are those of the one in use */
  cy_conv_desc window; /* not transposed */
  cy_shuffle_fill
      shuffle[3]; /* of its axes, where channels become positions: taps that are zeros; positions 0: they are not */
  bool a_signed, b_signed;
  unsigned b_bits; /* 8, or 16 */
  bool bf16;       /* a and b are bf16, accumulators f32; b_bits is 16, b_signed set, there are no zero points */
  bool split;      /* b is constant, and split; again: how many groups of k of a matrix may come again */
  int64_t again;
  bool winograd;                /* by F(4x4,3x3) in 16 bits, which b is known to allow */
  int a_zero_slot, b_zero_slot; /* -1: none. With a b_zero, b is packed at run time */
  int64_t b_zero_step;          /* 1: one per column, 0: one for all */
  bool started;                 /* accumulators begin with an i32 per column, which lie at start_slot; see cy_int_gemm_starts */
  int start_slot;
} cy_int_gemm_desc;

/* In which order the columns of a panel go through k, by runs: see int_order.c. */
typedef struct cy_int_gemm_order {
  int64_t n, nr, c, taps[3];
  unsigned step, together;    /* k of a group; a run has a multiple of so many */
  bool rows;                  /* runs are rows of the kernel, those at the same height following each other */
  cy_shuffle_fill shuffle[3]; /* positions 0: all columns have all taps */
} cy_int_gemm_order;
typedef struct cy_int_gemm_runs { /* of a panel: so many, each of so many taps side by side, in so many groups of k */
  int64_t runs, taps, groups;
  int64_t first[3], count[3]; /* along the axes */
} cy_int_gemm_runs;
static inline bool cy_int_gemm_order_shuffles(const cy_int_gemm_order *o) { return o->shuffle[0].positions != 0; }
cy_int_gemm_runs cy_int_gemm_runs_of(const cy_int_gemm_order *order, int64_t panel);
/* The tap with which a run begins. */
int64_t cy_int_gemm_run_tap(const cy_int_gemm_order *order, const cy_int_gemm_runs *runs, int64_t run);
int64_t cy_int_gemm_groups_before(const cy_int_gemm_order *order, int64_t panel);

/* ---- packed b: a cy_pack_layout with an order, or of Winograd's algorithm or depthwise. A split matrix begins with i32
 * first[panels + 1]: how many groups come again in the panels before; i32 offset[again]: their places in a row of a, in
 * bytes; up to a whole cache line. ---- */

/* The generator of a descriptor. */
const cy_generator *cy_int_generator(const cy_int_gemm_desc *desc);
/* ---- int_split.c: split weights ---- */
/* Bytes in front of a matrix; groups of k that come again in the matrix with most of them; cy_pack_run of such a layout. */
int64_t cy_int_gemm_head_bytes(int64_t panels, int64_t again);
int64_t cy_int_gemm_again(const cy_pack_layout *layout, const cy_pack_source *source);
void cy_int_split_run(const cy_pack_layout *layout, const cy_pack_source *source, int64_t begin, int64_t end, void *out);
/* Could they be split; is that faster when so many groups come again? */
bool cy_int_gemm_split_possible(const cy_cg *cg, const cy_int_gemm_desc *desc);
bool cy_int_gemm_split_pays(const cy_pack_layout *layout, int64_t again);
/* May accumulators begin with numbers that are given? Then the epilogue need not add them. */
bool cy_int_gemm_starts(const cy_int_gemm_desc *desc);
/* Of what all taps would take, where some are left out. */
double cy_int_gemm_share(const cy_cg *cg, const cy_int_gemm_desc *desc);

/* ---- int_choose.c ---- */
/* Cycles on one core: of its plain, direct or depthwise form. */
double cy_int_cost(const cy_cg *cg, const cy_int_gemm_desc *desc);
/* All that could do it; nothing is chosen. may_winograd: is that form among them; exact: do its weights allow it? */
void cy_int_candidates(const cy_cg *cg, const cy_int_gemm_desc *desc, bool may_winograd, bool exact, cy_candidates *out);

/* The larger of two sums, over the column of b for which it is the largest: that of what is positive, and that of what is
 * negative. */
int64_t cy_int_gemm_largest_sum(const cy_pack_layout *layout, const cy_pack_source *source);

/* ---- int_winograd.c ---- */
bool cy_int_winograd_possible(const cy_cg *cg, const cy_int_gemm_desc *desc); /* if it is exact */
/* What it takes, and what the direct algorithm's products do, in cycles on one core; false: it is not possible. */
bool cy_int_winograd_weigh(const cy_cg *cg, const cy_int_gemm_desc *desc, double *with, double *without);
bool cy_int_winograd_exact(int64_t largest_sum);

/* ---- int_depthwise.c ---- */
bool cy_int_depthwise_possible(const cy_int_gemm_desc *desc);
bool cy_int_depthwise_dot4(const cy_cg *cg, const cy_int_gemm_desc *desc); /* .. by dot4, else by dot2 */
/* An epilogue for accumulators that lie in memory as bits of floats, which calls that of integers, ctx; see int_gemm.c. */
void cy_int_gemm_as_integers(void *ctx, cy_cg *cg, LLVMValueRef acc, unsigned lanes, const LLVMValueRef *idx);

/* Vectors of accumulators of bytes that an epilogue takes at once, where there are n columns. */
enum { CY_INT_GEMM_WIDE = 4 };
static inline unsigned cy_int_gemm_wide(const cy_cg *cg, int64_t n) {
  return n >= CY_INT_GEMM_WIDE * (int64_t)cg->W              ? CY_INT_GEMM_WIDE
         : cg->model.lone_vectors && n >= 2 * (int64_t)cg->W ? 2
                                                             : 0;
}

/* ---- int_kernel.c ---- */

typedef struct cy_int_gemm_variant {
  bool dot4, wide, split, bf16; /* wide: b is packed in 16 bits; split: dot4, too; bf16: wide, too */
  bool amx;                     /* dot4 or bf16 */
  bool far;                     /* amx: b lies beyond the first-level cache */
  bool starts;                  /* accumulators begin with numbers in memory, else with 0 */
  bool row_block;               /* k goes through several runs, one kernel row each */
  bool shuffled;                /* .. or those that a table tells of each panel */
  bool prefetch;                /* not amx: other memory is prefetched meanwhile */
  unsigned step, together;      /* k of a group; groups come by so many */
} cy_int_gemm_variant;

/* The rows of microkernels.def. */
typedef enum cy_group_kernel {
#define CY_GROUP_KERNEL(id, symbol, text, step, wide, dot4, split, bf16) CY_GROUP_##id,
#include "codegen/cpu/microkernels.def"
} cy_group_kernel;
cy_int_gemm_variant cy_group_kernel_of(cy_group_kernel kernel);
cy_group_kernel cy_group_kernel_id(cy_int_gemm_variant variant);

/* Lanes that a column has: each takes four k of a group. */
static inline unsigned cy_int_gemm_each(cy_int_gemm_variant variant) { return variant.dot4 ? variant.step / 4 : 1; }
/* Bytes of a row's group in scratch. */
static inline unsigned cy_int_gemm_row_group(cy_int_gemm_variant variant) { return 4 * cy_int_gemm_each(variant); }

/* Rows of n columns that an epilogue takes together, if inner, the one that it is handed to, has all columns; 0: it does
 * not. */
enum { CY_INT_LANE_REDUCE_ROWS = 8 };
static inline unsigned cy_int_gemm_together(const cy_cg *cg, cy_int_gemm_variant variant, const cy_epilogue *inner,
                                            int64_t n) {
  unsigned lanes = CY_INT_GEMM_WIDE * cg->W;
  bool fills = n > 0 && (n % cg->W == 0 || cy_int_gemm_each(variant) > 1) && lanes % n == 0 && lanes > n;
  if (!cg->avx2 || !fills || inner->flat != n)
    return 0;
  return cy_int_gemm_each(variant) > 1 && lanes / n > CY_INT_LANE_REDUCE_ROWS ? CY_INT_LANE_REDUCE_ROWS
                                                                              : (unsigned)(lanes / n);
}

/* void (ptr a, ptr row_offsets, ptr b, ptr c, i64 ldc, i64 groups, i64 panels, ptr start, ptr first, ptr again,
 * i64 runs, i64 pitch [, ptr ahead, i64 step] [, ptr panels, ptr runs]): for each of so many panels of nr columns, c[mr][nv vectors of i32] = a's mr
 * rows times its first columns; of lanes beyond nr, whatever. start: what the accumulators begin with, where variant.starts; or, onto,
 * with what c holds; first, again: of split weights, from the first of the panels on, and from the beginning; runs,
 * pitch: of a row block, groups being those of a run, how many runs there are and the bytes from one to the next;
 * ahead, step: with every group a line is prefetched, so many bytes behind the one before; panels, runs:
 * cy_int_gemm_tables from the first panel on, where variant.shuffled. */
enum { CY_INT_GEMM_ARGS = 12, CY_INT_GEMM_MAX_ARGS = 16 };
static inline unsigned cy_int_gemm_args(cy_int_gemm_variant variant) {
  return CY_INT_GEMM_ARGS + (variant.prefetch ? 2 : 0) + (variant.shuffled ? 2 : 0);
}
V cy_int_gemm_kernel(cy_cg *cg, cy_int_gemm_variant variant, unsigned mr, unsigned nv, int64_t nr, bool onto);
/* The same for a variant that is amx: mr is 16 or 32, and mr / 16 * nv at most 4; rows follow each other at the distance of
 * the second one, and there are 16 or 32, of whatever content; groups is a multiple of 16; start is not read, accumulators begin
 * with 0 or, onto, with what c holds. A thread calls it between cy_int_gemm_amx_begin and cy_int_gemm_amx_end. */
V cy_int_gemm_amx_kernel(cy_cg *cg, cy_int_gemm_variant variant, unsigned mr, unsigned nv, int64_t nr, bool onto);
void cy_int_gemm_amx_begin(cy_cg *cg);
void cy_int_gemm_amx_end(cy_cg *cg);
enum { CY_AMX_ROWS = 16, CY_AMX_GROUPS = CY_AMX_STEP }; /* of a tile */
/* What its tasks are made of; as for cy_tile_choose and cy_blocks_choose. row_bytes: a row's k; copied: to scratch. */
cy_tile cy_int_gemm_amx_tile(int64_t rows, int64_t n);
cy_blocks cy_int_gemm_amx_blocks(const cy_cg *cg, cy_tile tile, int64_t outer, int64_t rows, int64_t panels,
                                 int64_t row_bytes, bool copied);
V cy_int_gemm_kernel_begin(cy_cg *cg, const char *name, cy_int_gemm_variant variant); /* begins one of either kind */
LLVMTypeRef cy_int_gemm_kernel_type(cy_cg *cg, cy_int_gemm_variant variant);
/* Bytes of a panel's NR columns for one group of `step` k. */
int64_t cy_int_gemm_group_bytes(cy_int_gemm_variant variant, int64_t nr);
/* acc + dot2 or dot4 of a and b in each lane, all as <W x i32>; of bf16, acc are the bits of floats. */
V cy_int_gemm_add(cy_cg *cg, cy_int_gemm_variant variant, V acc, V a, V b);
/* Sums of two products: of i16, in i32; of u8 and s8, in i16, where they must fit. Any vectors of W * 4 bytes. */
V cy_int_gemm_dot2_times(cy_cg *cg, V a, V b);
V cy_int_gemm_bytes_times(cy_cg *cg, V a, V b);

/* Groups of k, all of them or those of a run; of a row block, how many runs there are, and bytes between them, or where
 * each begins. */
typedef struct cy_int_gemm_depth {
  V groups, runs, pitch, places;
} cy_int_gemm_depth;

/* Accumulators of mr rows and nv vectors of columns, those of a panel at b, in out[mr * nv], from where the caller builds. */
void cy_int_gemm_accumulate(cy_cg *cg, cy_int_gemm_variant variant, unsigned mr, unsigned nv, int64_t nr, const V *row,
                            V b, V start, const cy_int_gemm_depth *depth, V *out);

/* ---- int_product.c ---- */

/* The kernel for a tile of which `left` rows remain: where these are at most `few`, if that is not 0, one of so many. */
V cy_int_gemm_kernel_for(cy_cg *cg, cy_int_gemm_variant variant, cy_tile tile, int64_t nr, bool onto, unsigned few, V left);
/* c[rows] (+)= rows of a times panels at b, side by side. */
typedef struct cy_int_product {
  cy_int_gemm_variant variant; /* without starts, split, row_block, shuffled, prefetch */
  cy_tile tile;
  int64_t nr, row_bytes, ldc; /* bytes between rows of a, which tab has, too, and of c */
  V rows, a, tab, b, c, groups, panels;
  V onto; /* i1: onto what c holds; NULL: no */
} cy_int_product;
void cy_int_product_emit(cy_cg *cg, const cy_int_product *product);

/* ---- int_order.c: what code reads of panels whose runs differ, where variant.shuffled ---- */

typedef struct cy_int_gemm_tables { /* addresses */
  V panels, runs;
} cy_int_gemm_tables;
cy_int_gemm_tables cy_int_gemm_tables_from(cy_cg *cg, const cy_int_gemm_tables *tables, V panel);
/* Groups of k in the panels before. */
V cy_int_gemm_tables_before(cy_cg *cg, const cy_int_gemm_tables *tables, V panel);
cy_int_gemm_depth cy_int_gemm_tables_depth(cy_cg *cg, const cy_int_gemm_tables *tables, V panel);
/* The last two arguments of a kernel. */
static inline cy_int_gemm_tables cy_int_gemm_tables_given(V fn, cy_int_gemm_variant variant) {
  if (!variant.shuffled)
    return (cy_int_gemm_tables){NULL, NULL};
  return (cy_int_gemm_tables){LLVMGetParam(fn, cy_int_gemm_args(variant) - 2),
                              LLVMGetParam(fn, cy_int_gemm_args(variant) - 1)};
}

/* ---- int_lane_reduce.c ---- */

static inline unsigned cy_int_gemm_max_each(const cy_cg *cg) { return cg->W >= 8 ? 8 : 1; }
/* Lanes from memory, `lanes` of them again and again. */
V cy_int_lane_reduce_load(cy_cg *cg, V at, unsigned lanes);
/* Of mr vectors of accumulators in which each column has so many lanes: mr / each vectors, in which rows follow each other; start
 * is added, if it is not NULL. */
void cy_int_lane_reduce_fold(cy_cg *cg, unsigned each, unsigned mr, V start, V *v);
/* A row of those, `lanes` columns. */
V cy_int_lane_reduce_row(cy_cg *cg, unsigned each, const V *v, unsigned row, unsigned lanes);

/* ---- int_blocks.c ---- */

/* Can weights in integers, in blocks of so many rows, become bf16 for AMX? */
bool cy_int_gemm_blocks_possible(const cy_cg *cg, int64_t block, int64_t k);

/* ---- quantised_rows.c ---- */

/* Can such weights, stored in tiles of so many columns, be multiplied by rows in 8 bits? */
bool cy_quantised_rows_possible(const cy_cg *cg, int bits, int64_t block, int64_t tile, int64_t n);

/* ---- int_few_rows.c ---- */

enum { CY_INT_GEMM_FEW = 4 }; /* rows, at most */
/* Can up to so many rows be multiplied as integers of 24 bits? The weights as above. */
bool cy_int_gemm_few_possible(const cy_cg *cg, int bits, int64_t block, int64_t tile, int64_t n);

/* ---- int_pack_b.c ---- */

typedef struct cy_int_pack_b {
  const cy_int_gemm_desc *d;
  cy_int_gemm_variant variant;
  int b_slot;
  int64_t n, k, nr;              /* n, k: 0 when not known */
  V columns, depth, panel_bytes; /* n and k as they are, bytes of a packed panel */
} cy_int_pack_b;
/* Packs panels [p0, p1) of the matrix of this number to dst. */
void cy_int_pack_b_emit(cy_cg *cg, const cy_int_pack_b *pack_b, V matrix, V p0, V p1, V dst);
/* dot4. sums: of the columns of packed panels [p0, p1), i32. */
void cy_int_pack_b_sums(cy_cg *cg, const cy_int_pack_b *pack_b, V p0, V p1, V panels, V sums);
/* Those of `count` rows in scratch, less a's zero point k times. */
void cy_int_pack_b_rows(cy_cg *cg, const cy_int_pack_b *pack_b, V zero, V rows, V row_bytes, V count, V sums);
/* Accumulators of a row, from column col on, without what b's zero points have added. */
V cy_int_pack_b_less(cy_cg *cg, const cy_int_pack_b *pack_b, V acc, V row_sum, V col, unsigned lanes);

/* ---- int_copy.c: a's elements on their way to scratch ---- */

typedef struct cy_int_gemm_rows {
  cy_elements elements; /* dot2: i16, less the zero point; dot4: perhaps shifted */
  V zero, byte;         /* i16 (dot2), i8 perhaps shifted (dot4); the zero point as it is */
} cy_int_gemm_rows;
cy_int_gemm_rows cy_int_gemm_rows_begin(cy_cg *cg, cy_int_gemm_variant variant, const cy_int_gemm_desc *desc);
/* A byte of a as dot4 have it, as i32. */
static inline V cy_int_gemm_widened(cy_cg *cg, V byte) {
  return cg->sdot ? LLVMBuildSExt(cg->b, byte, cg->i32, "") : LLVMBuildZExt(cg->b, byte, cg->i32, "");
}

#endif
