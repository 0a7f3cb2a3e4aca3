/* SPDX-License-Identifier: Apache-2.0 */
/* microkernel.h - what the contraction generators share; private to codegen/cpu's contractions.
 *
 * Everything is one scheme. A *row* is one output position (a row m of a product, a position of a convolution); where
 * its inputs lie is described by a table of i64 entries, one per (tap, row): the address minus a base. A micro-kernel takes
 * MR rows and NV vectors of packed weights and keeps MR*NV accumulators in registers over all taps. Because the table hides
 * strides, padding, dilation and batch, micro-kernels depend on (MR, NV) only and are emitted once per module. Their
 * result goes to a tile in L1, whence the epilogue takes it, emitted once. Where K is small and the epilogue short,
 * that detour costs more than it saves: full tiles are then emitted in place, the epilogue MR*NV times behind them.
 */
#ifndef CY_CPU_MICROKERNEL_H
#define CY_CPU_MICROKERNEL_H

#include "codegen/cpu/contract.h"
#include "codegen/cpu/copy_rows.h"

typedef LLVMValueRef V;

typedef struct cy_tile {
  unsigned mr, nv;
} cy_tile;

/* ---- microkernel_tiles.c ---- */

/* The tile for about `rows` rows (0: unknown, many) and `n` columns (0: unknown). */
cy_tile cy_tile_choose(const cy_cg *cg, int64_t rows, int64_t n);
/* The same for floats, whose rows and columns are known more often than not. */
cy_tile cy_tile_choose_floats(const cy_cg *cg, int64_t rows, int64_t n);
/* Cycles of a step of k of a whole product, tiles at the end of rows and columns being as small as they can be. */
double cy_tile_cycles(const cy_cg *cg, cy_tile tile, int64_t rows, int64_t n);
/* Columns that the last panel of nr has in memory, where weights are packed: by dot4; 0: all of them. Bytes that may be
 * read behind it. */
int64_t cy_last_columns(int64_t n, int64_t nr);
int64_t cy_last_room(const cy_cg *cg, int64_t last, cy_weights weights);
/* Task shapes: mb rows (a multiple of tile.mr) by nb panels. rows, panels: 0 when unknown; outer: how many such
 * products there are. */
typedef struct cy_blocks {
  int64_t mb, nb;
} cy_blocks;
cy_blocks cy_blocks_choose(const cy_cg *cg, cy_tile tile, int64_t outer, int64_t rows, int64_t panels, int64_t k);
/* The set for cy_microkernel.tails: for equal shares of up to mb rows (rows: 0 when unknown); for blocks of mb, the last one
 * what remains. */
unsigned cy_share_tails(const cy_cg *cg, cy_tile tile, int64_t rows, int64_t mb);
unsigned cy_tails(const cy_cg *cg, cy_tile tile, int64_t rows, int64_t mb);
/* K blocks of about 512 values, or 1024. */
void cy_kblock_choose(const cy_cg *cg, cy_weights weights, int64_t taps, int64_t c, int64_t *out_tap_block,
                      int64_t *out_c_block);
/* Rows of the next tile when `left` remain. */
V cy_next_rows(cy_cg *cg, cy_tile tile, V left);

/* ---- microkernel_run.c ---- */

/* Of a micro-kernel: one tap. For each k, mr broadcasts times nv vectors. v: accumulators, B's pointer, and with `prefetch`,
 * the bytes from one prefetch to the next, where that is; they are replaced by their next values. */
void cy_run_emit(cy_cg *cg, unsigned mr, unsigned nv, cy_weights weights, const V *row, V klen, V ldb, V prefetch,
                 V *v);
/* The same where rows are dense, and the micro-kernel's next call is known: its rows and accumulators are brought into the
 * first-level cache meanwhile. step: bytes of accumulators for CY_RUN_STEPS of k, up to CY_NEXT_LINES cache lines. */
enum { CY_RUN_STEPS = 4, CY_NEXT_LINES = 2 };
typedef struct cy_next {
  V rows, accumulators, step;
} cy_next;
void cy_run_next(cy_cg *cg, unsigned mr, unsigned nv, cy_weights weights, const V *row, V klen, V ldb,
                 const cy_next *next, V *v);
/* The same without prefetching, for rows that read weights from memory and have no others to share them with: from
 * several places of a panel at once. The hardware prefetches each of some streams as far ahead as it does a single one:
 * 19 GB/s instead of 12 on a core of Sapphire Rapids. */
void cy_run_streams(cy_cg *cg, unsigned mr, unsigned nv, cy_weights weights, const V *row, V klen, V ldb, V *v);
/* The same for a known number of steps, unrolled. */
void cy_run_steps(cy_cg *cg, unsigned mr, unsigned nv, cy_weights weights, const V *row, int64_t depth, V ldb, V *v);
/* Loads are not moved across it. Without, LLVM's scheduler spreads the loads of many steps over more registers than
 * there are. */
void cy_emit_fence(cy_cg *cg);
/* Neither loads nor what makes these n accumulators are moved across it. For Zen 4 and 5, LLVM would put loads of many
 * steps, and the fences between them, in front of all accumulators: a convolution of 8x8, 4 to 32 channels, took 34 us instead of 26. */
void cy_accumulators_fence(cy_cg *cg, unsigned n, V *v);
/* p, of which LLVM knows nothing more. */
V cy_opaque(cy_cg *cg, V p);
/* A vector of weights stored so, as floats. */
V cy_weights_load(cy_cg *cg, cy_weights weights, V at);

/* ---- microkernel_weigh.c ---- */

/* Rows of A are scores that become weights on the way, 2^(score - shift), or e^.. when `natural`; shifts: a float for each
 * row, finite; sums: [row][16], the weights' in each lane. Their numbers are rounded up to whole vectors by scores of
 * -infinity. Denormal results are to be flushed. */
typedef struct cy_weighing {
  V shifts, sums;
  bool natural;
} cy_weighing;
/* cy_run_emit of such rows, with AVX512-DQ. */
void cy_run_weigh(cy_cg *cg, unsigned mr, unsigned nv, const V *row, V klen, V ldb, const cy_weighing *weighing, V *v);

/* ---- microkernel.c ---- */

/* Pointers to mr rows, whose entries begin at `tab`. */
void cy_rows_of_table(cy_cg *cg, V base, V tab, unsigned mr, V *row);

/* Kinds of micro-kernels. */
enum {
  CY_UK_SKIP = 1,     /* a tap whose entries all equal `skip` (the address of zeros) is not computed */
  CY_UK_PREFETCH = 2, /* with every k, `prefetch` is prefetched and moves on by prefetch_step */
  CY_UK_F16 = 4,      /* B is stored as halves */
  CY_UK_BF16 = 8,
  CY_UK_STREAMS = 16, /* weights come from memory, for few rows */
  CY_UK_NEXT = 32,    /* of one tap: `next` is prefetched, see cy_run_next */
  CY_UK_MAXIMA = 64,  /* the maxima of each row; none of the other kinds */
  CY_UK_WEIGH = 128,  /* of one tap: rows are scores, see cy_run_weigh; none of the other kinds but .. */
  CY_UK_NATURAL = 256
};
/* The accumulators of mr rows of nv vectors, rows ldc bytes apart: zero at first, or what C holds when accumulating; and their
 * way back to C. */
void cy_accumulators_begin(cy_cg *cg, unsigned mr, unsigned nv, V c, V ldc, V accumulate, V *v);
void cy_accumulators_store(cy_cg *cg, unsigned mr, unsigned nv, V c, V ldc, const V *v);

/* Where the epilogue's indices come from: fills idx[0 .. n_idx) for one row; the vector axis is added behind them. */
typedef struct cy_rows {
  void (*index)(void *ctx, cy_cg *cg, V row, V *idx);
  void *ctx;
  unsigned n_idx;
} cy_rows;

/* Applies the epilogue to rows [0, mr) and columns [0, cols) of the floats at c; row0 + i is the row, col0 + j the
 * column's output index; with e->together, col0 is 0, ldc and cols are those of e->flat columns. tail_lanes: of the last
 * vector, where the number of columns is constant, or W when unknown. */
void cy_epilogue_tile(cy_cg *cg, const cy_epilogue *e, const cy_rows *rows, V c, V ldc, V mr, V row0, V cols, V col0,
                      unsigned tail_lanes);

/* Floats that are made of weights in integers at a time: panels of so many rows, about, that together stay in the
 * first-level cache (converted_group of machine.def). Blocks of scales are whole in them, whatever the cache. */
enum { CY_INTS_ROWS = 128 };
/* Weights in integers, [blocks][n / tile][rows of bytes][tile]: 4 bits have rows i and i + block / 2 of a block in one
 * byte. */
typedef struct cy_int_weights {
  int bits;                    /* 8 or 4; 0: there are none */
  bool is_signed, bf16;        /* bf16: they become that: see cy_widen_emit */
  int64_t tile, block, middle; /* columns; rows that share a scale; what stands for zero, but where .. */
  V scales, zeros;             /* .. zeros are not NULL; both [blocks][n] */
} cy_int_weights;
cy_int_weights cy_gemm_ints(cy_cg *cg, const cy_gemm_desc *desc); /* gemm.c: those of a product, where it has some */

typedef struct cy_microkernel {
  cy_tile tile;
  V b;                 /* packed weights of this group, or B in place */
  V ldb;               /* bytes between k of B; those of NR weights when packed */
  int64_t last;        /* columns that the last packed panel has in memory; 0: NR */
  cy_weights weights;  /* of packed B */
  bool direct;         /* halves do not become floats for a whole group of panels */
  cy_int_weights ints; /* .. or of one that is not packed, and becomes panels of floats block by block */
  bool in_place;
  V n, panels;       /* columns and their panels */
  V p0, p1;          /* the panels to do */
  V rows;            /* rows to do */
  unsigned tails;    /* bit i: a tile may have i rows */
  V tab, tab_stride; /* entry of (tap, row): tab + tap*tab_stride + 8*row */
  V base;            /* i64 added to every entry */
  int64_t row_bytes; /* entries are rows * row_bytes, the last of the epilogue's indices counts the rows; 0: not so */
  int64_t a_bytes;   /* of A, the rows of all tasks; 0: unknown */
  bool b_stays;      /* the second-level cache has B from the task before */
  V skip;            /* the entry of rows that are zero, to skip taps outside a feature map; NULL: there are none */
  V taps, c;         /* K is taps runs of c floats */
  int64_t tap_block, c_block;
  V cbuf;              /* partial sums, rows x (p1-p0)*NR; used when K has several blocks */
  int64_t cbuf_panels; /* row length of cbuf in panels */
  V widened;           /* cy_widened_bytes() of scratch */
  V col0;              /* output index of column 0 */
  unsigned tail_lanes; /* columns % W when constant; W when unknown */
  const cy_epilogue *epilogue;
  const cy_rows *index;
} cy_microkernel;
void cy_microkernel_emit(cy_cg *cg, const cy_microkernel *micro);
/* What a group of panels takes as floats, in whole cache lines; 0 where weights are used as they are stored. Looks at tile,
 * weights, ints, in_place, taps, c, their blocks and cbuf_panels. */
int64_t cy_widened_bytes(cy_cg *cg, const cy_microkernel *micro);
/* Does K fit one block for sure? Then cbuf may be NULL. */
bool cy_microkernel_single(const cy_microkernel *micro);

/* ---- microkernel_widen.c ---- */

/* Rows of weights in a panel of a K block, at most. */
int64_t cy_block_depth(const cy_microkernel *micro);
/* Are weights made floats for a whole group of panels? */
bool cy_widens(const cy_cg *cg, const cy_microkernel *micro);
/* Panels [q0, end) of `taps` of c rows from c0 on, whose packed halves lie at `from`: as floats to `to`, one behind the
 * other. Of integers, those so many columns and rows ahead are prefetched, which come next. They become bf16, where so
 * wanted, in pairs: those of rows i and i + block / 2 of a block lie side by side. Of the core, it takes tile, b, ints and
 * n then. */
typedef struct cy_widening {
  const cy_microkernel *micro;
  V c0, taps, c, from, q0, end, prefetch_columns, prefetch_rows, to;
} cy_widening;
void cy_widen_emit(cy_cg *cg, const cy_widening *widening);
/* Lanes of two vectors of up to 16 floats in turn, as bf16, where the CPU has AVX512-BF16. */
V cy_bf16_pairs(cy_cg *cg, V first, V second, unsigned lanes);

/* ---- microkernel.c again ---- */

/* A product without epilogue: c[rows][nv vectors] = a[rows][k] * b, packed. tab: cy_row_table of tile.mr
 * rows. */
typedef struct cy_product {
  cy_tile tile;
  V rows, a, b, c, tab, k;
  V ldb;               /* bytes between k of b; NULL: a packed panel's */
  V accumulate;        /* i1: onto what c holds; NULL: no */
  bool whole_tab;      /* tab has an entry for every row, and row_bytes is 0 */
  V prefetch;          /* the a of the product that follows, of dense rows, prefetched meanwhile; NULL: nothing */
  V next_accumulators; /* its c; with AVX-512 they are prefetched tile by tile, its own first; NULL: not */
  V maxima; /* [rows][W] floats, of which each becomes the maximum of it and the accumulators in its lane; NULL: no */
  const cy_weighing *weighing; /* of a's rows; NULL: they are what is multiplied */
  unsigned tails;
  int64_t row_bytes, ldc; /* bytes between rows of a and of c */
} cy_product;
void cy_product_emit(cy_cg *cg, const cy_product *product);
/* gemm.c: dot products of k floats at a with eight others: <8 x float>. */
V cy_emit_dots8(cy_cg *cg, V a, V *col, V k);

/* ---- strassen.c ---- */

/* Fewer rows than this never pay, where only running tells them. */
enum { CY_STRASSEN_ROWS = 96 };
/* Tasks by Strassen's algorithm. */
typedef struct cy_strassen {
  cy_blocks blocks;
  int64_t k_block;
  bool shared; /* the left factor's sums are made once for all tasks, by a phase before */
  cy_weights weights;
  double share; /* of the plain product's time: estimate, the larger of one worker's and of several's */
} cy_strassen;
/* Can it be computed so? The plain product's tasks are `plain`. rows: 0 when unknown, then for CY_STRASSEN_ROWS and more.
 * outer: how many such products there are; 0 when unknown. */
bool cy_strassen_choose(const cy_cg *cg, cy_tile tile, cy_weights weights, int64_t outer, int64_t rows, int64_t panels,
                        int64_t k, cy_blocks plain, cy_strassen *out);
/* Scratch of a worker, beside cbuf. */
int64_t cy_strassen_bytes(const cy_cg *cg, cy_tile tile, const cy_strassen *s, int64_t k);
/* cy_share_tails of such tasks, which have pairs of tiles and of panels. */
unsigned cy_strassen_tails(const cy_cg *cg, cy_tile tile, int64_t rows, int64_t panels);
/* cy_microkernel_emit of a core with one tap, constant c, packed weights and a table of all rows. sums: the shared ones
 * of its rows. */
void cy_strassen_emit(cy_cg *cg, const cy_microkernel *micro, const cy_strassen *s, V scratch, V sums);
/* Shared sums: so many bytes for 2 * tile.mr rows; those of a core's rows to `to`. Of the core, what tells of A and K. */
int64_t cy_strassen_sums_bytes(cy_tile tile, int64_t k, int64_t k_block);
void cy_strassen_sums_emit(cy_cg *cg, const cy_microkernel *micro, V to);

/* ---- batch.c: `n` batch axes, outermost first ---- */

V cy_batch_count(cy_cg *cg, const cy_csize *sizes, int n);
int64_t cy_batch_known(const cy_gemm_desc *desc); /* the same of those sizes that are known, .. */
bool cy_batch_all_known(const cy_gemm_desc *desc); /* .. as all may be */
void cy_batch_split(cy_cg *cg, const cy_csize *sizes, int n, V flat, V *idx); /* row-major number to indices */
V cy_batch_offset(cy_cg *cg, const V *idx, const cy_csize *strides, int n);
/* Rows from row0 on of the matrix with these batch indices, n of them, as the epilogue's rows. */
typedef struct cy_matrix_rows {
  V idx[CY_GEMM_BATCH], row0;
  unsigned n;
} cy_matrix_rows;
cy_matrix_rows cy_matrix_rows_at(cy_cg *cg, const cy_gemm_desc *desc, V matrix, V row0);
cy_rows cy_matrix_rows_index(const cy_matrix_rows *rows);
/* Matrices B of a product: how many there are to be packed at run time; the number of that for these batch indices;
 * where the one with a number begins, in elements. */
V cy_gemm_b_count(cy_cg *cg, const cy_gemm_desc *desc);
V cy_gemm_b_number(cy_cg *cg, const cy_gemm_desc *desc, const V *idx);
V cy_gemm_b_offset(cy_cg *cg, const cy_gemm_desc *desc, V number);

/* ---- microkernel_tasks.c ---- */

/* On the stack: entry r is r * stride. */
V cy_row_table(cy_cg *cg, int64_t rows, V stride_bytes);
V cy_size(cy_cg *cg, cy_csize s);
/* Emits `i64 <name><suffix>(ptr args)` returning formula(); returns the value when it is constant (no function then),
 * or -1. */
int64_t cy_size_fn(cy_cg *cg, const char *name, const char *suffix, V (*formula)(cy_cg *cg, const void *ctx),
                   const void *ctx);

/* An axis cut into equal shares of up to `block`, in multiples of `unit` but at the end; into pieces of `block`. */
cy_task_axis cy_axis_shares(cy_cg *cg, V count, int64_t unit, int64_t block);
cy_task_axis cy_axis_pieces(cy_cg *cg, V count, int64_t block);
/* What blocks [first, last] of an axis have. */
cy_share cy_axis_share(cy_cg *cg, const cy_task_axis *axis, V first, V last);

/* Begins the function of a phase: a kernel of that name whose tasks call the epilogue, NULL: none. Returns this worker's
 * stripe of scratch, NULL where the plan wants none. */
V cy_phase_begin(cy_cg *cg, const char *name, int flags, const cy_epilogue *epilogue, int scratch_slot,
                 cy_formula *worker_bytes, const void *plan);
/* The loop over the tasks of a phase. */
void cy_tasks_emit(cy_cg *cg, cy_task_cut *grid, const void *plan, cy_task_body *body, void *frame);
V cy_task_count(cy_cg *cg, cy_task_cut *grid, const void *plan);
/* Of a micro-kernel whose shape is set: the task's rows and panels, all of which there are so many; last: see cy_microkernel. */
void cy_microkernel_task(cy_cg *cg, cy_microkernel *micro, const cy_task *task, V panels, cy_csize n, int64_t last);
/* Bytes rounded up to whole cache lines. */
V cy_round64(cy_cg *cg, V bytes);

/* Transposed copy: dst[i][k] = factor * src[i*si + k*sk] (floats), i < ni, k < nk, ld floats between rows of dst. si == 1
 * or sk == 1 are fast. */
void cy_emit_gather2(cy_cg *cg, V dst, V ld, V src, V si, V sk, V ni, V nk, double factor);
/* A packed panel of floats, [depth][nr], at dst: factor * src[k * sk + j * sn] for its first `valid` columns j; the others are
 * zero. */
void cy_emit_panel(cy_cg *cg, V dst, int64_t nr, V src, V sk, V sn, V depth, V valid, double factor);

#endif
