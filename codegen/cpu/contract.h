/* SPDX-License-Identifier: Apache-2.0 */
/* contract.h - generators of contractions for the CPU target: matrix product, convolution and their relatives.
 *
 * A generator takes a descriptor and emits into cg's module one or more *phases*: functions of type cyrt_kernel that
 * run one after the other, each over its own number of tasks. The generator chooses tiles, blocks and algorithm; what
 * becomes of a finished value (bias, activation, residual, rounding, layout of the store) is the caller's epilogue.
 *
 *   descriptor --plan--> plan --pack--> cy_packing --cy_pack_run--> packed weights   (data, at compile time)
 *            --cy_generator_emit--> cy_contract_info: phases, tasks, scratch     (code)
 *
 * A plan is made once and stored; packing, naming and emission read it, so they agree. All data is float, but packed
 * weights may be stored as halves (cy_weights), which become floats as they are loaded; strides count elements.
 * Scratch: slot `scratch_slot` holds worker_bytes for each worker, one stripe after the other; slot `shared_slot` holds
 * shared_bytes once. Both 64-byte aligned, contents undefined, alive during the phases of one launch.
 * Generators do not read the compiler's IR: the descriptors speak of sizes, strides and argument slots only.
 */
#ifndef CY_CPU_CONTRACT_H
#define CY_CPU_CONTRACT_H

#include "cost.h"
#include "ir/ir.h"

/* A size or stride in elements: a compile-time constant (slot < 0), or what args[slot].size holds. */
typedef struct cy_csize {
  int64_t value;
  int32_t slot;
} cy_csize;
static inline cy_csize cy_cconst(int64_t v) { return (cy_csize){v, -1}; }
static inline cy_csize cy_cslot(int32_t slot) { return (cy_csize){0, slot}; }
static inline int64_t cy_csize_known(cy_csize s) { return s.slot < 0 ? s.value : 0; } /* its value, or 0 */
static inline int64_t cy_csize_or(cy_csize s, int64_t unknown) { return cy_csize_known(s) ? cy_csize_known(s) : unknown; }
static inline bool cy_csize_is(cy_csize s, int64_t v) { return s.slot < 0 && s.value == v; }

/* What happens to finished values. `emit` gets acc, a vector of 1 .. W valid lanes, and the output index of its first
 * lane; the last index is the vector axis. It must store the result itself. `begin` (optional) is called at the entry
 * of every function that will call `emit`: the place to load what does not change (cg->args is set). A function may be
 * opened several times. `prefetch` (optional) prefetches what `emit` will load from a cache line at that index, but
 * what all rows share, and with `stores` the line that it will write. */
typedef struct cy_epilogue {
  void (*begin)(void *ctx, cy_cg *cg);
  void (*emit)(void *ctx, cy_cg *cg, LLVMValueRef acc, unsigned lanes, const LLVMValueRef *idx);
  void (*prefetch)(void *ctx, cy_cg *cg, const LLVMValueRef *idx, bool stores);
  void *ctx;
  bool reads;     /* is there anything for `prefetch` but what is written? */
  bool heavy;     /* so much arithmetic that it is better done in a loop of its own than for accumulators in registers */
  unsigned steps; /* operations for a lane */
  unsigned wide;  /* vectors of wide * W lanes suit `emit` better, where that many remain; 0: W */
  bool all_wide;  /* columns always come in multiples of that */
  /* Rows have so many columns, and `emit` takes several of them at once, as lanes from column 0 of the first one on; 0: it
   * does not. */
  unsigned flat;
  bool
      positions_join; /* of a convolution: the last index but one may count all positions, if those in front of it are 0 */
  unsigned together; /* cy_epilogue_tile: so many rows, whose accumulators lie without gaps, go at once; 0: one */
} cy_epilogue;

/* At the entry of a function that will call `emit`. */
static inline void cy_epilogue_open(const cy_epilogue *e, cy_cg *cg) {
  if (e->begin)
    e->begin(e->ctx, cg);
}

#define CY_CONTRACT_PHASES 4
typedef struct cy_phase {
  char name[120];
  int64_t tasks; /* -1: known at run time only; call i64 <phase name>_tasks(args) */
} cy_phase;

typedef struct cy_contract_info {
  int n_phases;
  cy_phase phase[CY_CONTRACT_PHASES];
  int64_t worker_bytes; /* -1: call i64 <name>_worker_bytes(args) */
  int64_t shared_bytes; /* -1: call i64 <name>_shared_bytes(args) */
} cy_contract_info;

/* ---- packed weights (pack.c) ---- */

/* How weights are stored: floats and halves before and after packing; of integers, after it. */
typedef enum cy_weights { CY_WEIGHTS_F32, CY_WEIGHTS_F16, CY_WEIGHTS_BF16, CY_WEIGHTS_S8, CY_WEIGHTS_S16 } cy_weights;
static inline int64_t cy_weight_bytes(cy_weights w) { return w == CY_WEIGHTS_F32 ? 4 : w == CY_WEIGHTS_S8 ? 1 : 2; }
/* Behind the names of code for such weights. */
static inline const char *cy_weights_suffix(cy_weights w) {
  return w == CY_WEIGHTS_F32 ? "" : w == CY_WEIGHTS_F16 ? "_f16" : "_bf16";
}

/* Panels of NR output columns, step k of a column side by side:
 *   [group][K block][panel][k / step in block][NR][step], or, with `winograd` or `order`, [group][panel][K block]..
 * Columns beyond n and k beyond a block's are zero. The last panel may have fewer columns than NR; vectors of them are
 * loaded whole, for which there is room behind the weights.
 * K runs over taps, then channels; its blocks are tap_block whole taps, or c_block channels of tap_block taps, or the
 * runs of an order, each filled up to whole groups of k. */
typedef struct cy_pack_layout {
  int64_t groups, n, taps, c; /* per group */
  int64_t tap_block, c_block;
  unsigned nr, last, step; /* last: NR of the last panel, 0: nr; step 0: 1 */
  int places;        /* so many outputs' columns lie side by side, each with taps of its own: tap_map; 0: one */
  int merged;        /* so many groups of the source are one group here, block-diagonally */
  int depth;         /* so many taps of an outer axis count as channels, [depth][c / depth]; 0: one */
  bool winograd;     /* floats are divided by 36, too */
  bool depthwise;    /* the columns of all groups lie side by side, each with the c of its own */
  cy_weights weights;
  /* Of integers, int8/int_gemm.h: the runs of each panel, NULL: blocks; behind all groups the sums of each one's columns, so
   * many i32; weights that are split, by int8/int_split.c, of which so many groups of k may come again. */
  const struct cy_int_gemm_order *order;
  int64_t sum_columns;
  bool split;
  int64_t again;
  int64_t group_bytes; /* of a group; 0: what follows from the above */
  int64_t bytes;
} cy_pack_layout;

/* Where a weight lies: w[group * gs + n * ns + tap * ts + c * cs], n and c within the source's group; tap_map, when
 * set, names the source's tap for each place and tap of the layout, or -1: zero. w is mapped from a file: at any
 * address. bits: of integers, which become S8 or S16; 0: weights are as the layout has them. */
typedef struct cy_pack_source {
  const void *w;
  int64_t gs, ns, ts, cs;
  const int32_t *tap_map;
  unsigned bits;
  bool is_signed;
} cy_pack_source;

static inline int64_t cy_pack_step(const cy_pack_layout *layout) { return layout->step ? layout->step : 1; }
/* Of a group; depthwise: of all. */
static inline int64_t cy_pack_panels(const cy_pack_layout *layout) {
  return cy_ceil(layout->depthwise ? layout->groups * layout->n : layout->n, layout->nr);
}
/* Columns of all panels together; last: of the last one, 0: nr. */
static inline int64_t cy_panel_columns(int64_t n, int64_t nr, int64_t last) {
  return cy_ceil(n, nr) * nr - (last ? nr - last : 0);
}
static inline int64_t cy_pack_columns(const cy_pack_layout *layout) {
  return cy_pack_panels(layout) * layout->nr - (layout->last ? layout->nr - layout->last : 0);
}
/* That a panel has in memory. */
static inline int64_t cy_pack_panel_columns(const cy_pack_layout *layout, int64_t panel) {
  return layout->last && panel == cy_pack_panels(layout) - 1 ? layout->last : layout->nr;
}

int64_t cy_pack_units(const cy_pack_layout *layout);
/* Packs units [begin, end); different ranges may run on different threads. Not of a layout that is split. */
void cy_pack_run(const cy_pack_layout *layout, const cy_pack_source *source, int64_t begin, int64_t end,
                 void *out_packed);
/* A panel of weights in integers as i32, [k / step][NR][step], of the NR that it has in memory. Returns how many groups of k it
 * has. */
int64_t cy_pack_panel(const cy_pack_layout *layout, const cy_pack_source *source, int64_t group, int64_t panel,
                      int32_t *out);

/* A piece of a constant's packed weights: bytes from the beginning, and the taps of the source (cy_pack_source). */
typedef struct cy_pack_part {
  cy_pack_layout layout;
  int64_t offset;
  const int32_t *tap_map;
} cy_pack_part;

/* The packed layout of a constant operand; of integers, it has one part. */
typedef struct cy_packing {
  int64_t bytes;
  int n_parts;
  cy_pack_part *part;
} cy_packing;
/* That of one part at offset 0. */
void cy_packing_single(cy_packing *out, cy_arena *arena, cy_pack_layout layout, const int32_t *tap_map);

/* ---- generators ---- */

typedef LLVMValueRef cy_formula(cy_cg *cg, const void *plan); /* an i64, made of constants and args */

/* ---- tasks: each has a block of rows and a block of columns of a product (gemm/microkernel_tasks.c) ---- */

typedef struct cy_task_axis {
  LLVMValueRef count, blocks; /* rows, or panels of columns, and their blocks; NULL: there is one */
  int64_t unit;  /* blocks are equal shares, in multiples of so many but at the end; 0: they have .. */
  int64_t block; /* .. so many each, but the last one */
} cy_task_axis;
typedef struct cy_task_grid {
  LLVMValueRef products; /* matrices, or groups of channels; NULL: one */
  cy_task_axis rows, columns;
  bool columns_outer; /* tasks that follow each other have the same columns; else the same rows, .. */
  int64_t run;        /* .. and so many of those are done as one; 0: each by itself */
} cy_task_grid;
typedef cy_task_grid cy_task_cut(cy_cg *cg, const void *plan);

typedef struct cy_share {
  LLVMValueRef begin, end;
} cy_share;
typedef struct cy_task {
  LLVMValueRef number, product, row_block; /* which it is of all tasks; its product; which block of that product's rows */
  cy_share rows, columns;
} cy_task;
typedef void cy_task_body(cy_cg *cg, void *frame, const cy_task *task); /* frame: what tasks share */

/* ---- phases ---- */

/* One of a plan's phases: code that does tasks [cg->begin, cg->end), in a function of this name. */
typedef struct cy_phase_desc {
  const char *suffix;               /* of the name, behind the kernel's */
  bool (*wanted)(const void *plan); /* NULL: always */
  void (*emit)(cy_cg *cg, const void *plan, const char *name);
  cy_formula *tasks; /* how many; NULL: as the grid says */
  cy_task_cut *grid;
  cy_task_body *body; /* in place of emit, where tasks share nothing but the plan, which is their frame */
} cy_phase_desc;

/* What makes code of contractions of one kind. To add one: its file, its name below, and where it is chosen (README.md). desc:
 * of the type that the generator is for; it must live as long as the plan, and its epilogue be set before code is emitted. Plans
 * are in the arena. */
typedef struct cy_generator {
  void *(*plan)(const cy_cg *cg, const void *desc, cy_arena *arena);
  /* matrices: how many the constant holds. NULL: no operand is packed when compiling. */
  void (*pack)(const cy_cg *cg, const void *plan, int64_t matrices, cy_arena *arena, cy_packing *out);
  const char *text;                      /* for --explain, .. */
  const char *(*name)(const void *plan); /* .. where it is not one for all plans; as is .. */
  /* .. the plan in words, into text: tile, what a task does. */
  void (*describe)(const void *plan, char *text, size_t size);
  cy_phase_desc phase[CY_CONTRACT_PHASES];
  cy_formula *worker_bytes, *shared_bytes; /* NULL: 0 */
} cy_generator;

/* plan_make, which a generator names as `plan`, by a plan_of that returns the plan: type. */
#define CY_PLAN_MAKE(type)                                                                                             \
  static void *plan_make(const cy_cg *cg, const void *desc, cy_arena *arena) {                                         \
    type p = plan_of(cg, desc);                                                                                        \
    return cy_arena_copy(arena, &p, sizeof p);                                                                         \
  }

/* Emits all phases of a kernel of that name. */
void cy_generator_emit(cy_cg *cg, const cy_generator *by, const void *plan, const char *kernel, cy_contract_info *out);

/* Of a cy_gemm_desc: floats, and B in integers with scales. */
extern const cy_generator cy_gemm_generator, cy_int_blocks_generator, cy_quantised_rows_generator,
    cy_few_rows_generator;
/* Of a cy_conv_desc. */
extern const cy_generator cy_direct_generator, cy_winograd_generator, cy_depthwise_generator, cy_planar_generator;
/* Of a cy_int_gemm_desc (int8/int_gemm.h). */
extern const cy_generator cy_int_gemm_generator, cy_int_winograd_generator, cy_int_depthwise_generator;
/* Of a cy_attention_desc. */
extern const cy_generator cy_attention_generator;

/* ---- matrix product (gemm.c): C[b..][m][n] = sum over k of A[b..][m][k] * B[b..][k][n]; epilogue index: b.., m, n
 * ---- */

#define CY_GEMM_BATCH 6
typedef struct cy_gemm_desc {
  const char *name;
  int n_batch;
  cy_csize batch[CY_GEMM_BATCH];
  cy_csize a_batch[CY_GEMM_BATCH]; /* strides, 0 broadcasts */
  cy_csize b_batch[CY_GEMM_BATCH]; /* strides; with packed B they count whole packed matrices */
  cy_csize m, n, k;
  int64_t m_min;         /* m is no less */
  cy_csize am, ak, bk, bn; /* strides of A and B; those of a packed B are ignored */
  int a_slot, b_slot, scratch_slot, shared_slot;
  bool b_packed;      /* args[b_slot] is what cy_pack_run wrote; n and k must be constant */
  cy_weights weights; /* of a packed B */
  /* B in integers with scales, as cy_int_weights in microkernel.h has them; n and k must be constant, one matrix for
   * all batches. bits 0: it is not. */
  struct {
    int bits;
    bool is_signed;
    bool bf16,
        quantised_rows; /* bf16: both factors are rounded so, see int_blocks.c; quantised_rows: a to 8 bits, see quantised_rows.c */
    bool rows24; /* a as integers of 24 bits, see int_few_rows.c */
    int64_t tile, block, middle;
    int scale_slot, zero_slot; /* zero_slot -1: middle */
  } ints;
  cy_epilogue epilogue;
} cy_gemm_desc;

/* Source strides of the constant B are ns = bn, cs = bk, gs = from matrix to matrix. */
/* Candidates: "plain" and, where it could be computed by Strassen's algorithm (strassen.c), "strassen". */
void cy_gemm_candidates(const cy_cg *cg, const cy_gemm_desc *desc, cy_candidates *out);
/* Its work: products of `matrices` second factors with `rows` rows each; sizes that are not known are taken for usual ones. */
typedef struct cy_gemm_work {
  double matrices, rows, k, n;
} cy_gemm_work;
cy_gemm_work cy_gemm_work_of(const cy_gemm_desc *desc);
/* Cycles on one core without Strassen's algorithm, whatever B is stored in. */
double cy_gemm_cost(const cy_cg *cg, const cy_gemm_desc *desc);
/* Appends what is computed to c->layer; type: "_int8" or the like, "": f32. */
void cy_gemm_text(const cy_gemm_desc *desc, const char *type, cy_candidates *c);

/* ---- convolution (conv.c, conv_planar.c, winograd.c, depthwise_float.c); epilogue index: n, [od, [oh,]] ow, oc; of planar
 * ones: n, oc, [od, [oh,]] ow ---- */

typedef enum cy_conv_algo {
#define CONV(id, ...) CY_CONV_##id,
#include "conv/algorithms.def"
} cy_conv_algo;

/* Spatial axes are listed outermost first; n_spatial is 1 to 3. Output sizes are those of the output, of a transposed
 * convolution too, where the weights' taps are scattered: out[i * stride + k * dilation - pad] += in[i] * w[k]. */
typedef struct cy_conv_desc {
  const char *name;
  int n_spatial;
  bool transposed;
  cy_weights weights; /* halves: CY_CONV_DIRECT or CY_CONV_WINOGRAD */
  cy_csize batch, in[3], out[3];
  int64_t kernel[3], stride[3], dilation[3];
  int64_t pad[3];            /* at the beginning of each axis; the end follows from the sizes */
  int64_t groups, cin, cout; /* channels of all groups together */
  cy_csize in_n, in_s[3];    /* strides of the input; channels are dense, or, .. */
  bool planar;               /* .. rows are, and in_c from channel to channel: CY_CONV_PLANAR */
  cy_csize in_c;
  int a_slot, b_slot, scratch_slot, shared_slot; /* b_slot: packed weights */
  cy_epilogue epilogue;
} cy_conv_desc;

/* Of a kernel, all axes together. */
static inline int64_t cy_conv_taps(const cy_conv_desc *desc) {
  int64_t taps = 1;
  for (int i = 0; i < desc->n_spatial; i++)
    taps *= desc->kernel[i];
  return taps;
}

/* The fastest algorithm by operations over peak and bytes over bandwidth. */
cy_conv_algo cy_conv_choose(const cy_cg *cg, const cy_conv_desc *desc);
/* All algorithms that could do it, and the choice; names are those of cy_conv_name. */
void cy_conv_candidates(const cy_cg *cg, const cy_conv_desc *desc, cy_candidates *out);
cy_conv_algo cy_conv_chosen(const cy_candidates *candidates);
const char *cy_conv_name(cy_conv_algo algo);
/* Appends what is computed to c->layer; type: "_int8" or the like, "": f32. */
void cy_conv_text(const cy_conv_desc *desc, const char *type, cy_candidates *c);
/* Cycles on one core: of that, and of a depthwise convolution, of integers, too. */
double cy_depthwise_cost(const cy_cg *cg, cy_depthwise_by by, const cy_conv_desc *desc);
double cy_conv_cost(const cy_cg *cg, const cy_conv_desc *desc);
const cy_generator *cy_conv_generator(cy_conv_algo algo);
/* Their source is w[group][n][taps][c], taps in row-major kernel order. */

/* ---- attention (attention.c; what it computes: CY_CONTRACT_ATTENTION in ir/loop/loop.h); epilogue index: b.., m, n ---- */

/* What happens to scores. Both get `lanes` of them along the keys; idx: b.., m, key of the first lane. They belong to
 * the epilogue, whose begin() opens them too. */
typedef struct cy_scores {
  /* change NULL: they stay as they are; top: a scalar */
  LLVMValueRef (*change)(void *ctx, cy_cg *cg, LLVMValueRef score, unsigned lanes, const LLVMValueRef *idx);
  LLVMValueRef (*weigh)(void *ctx, cy_cg *cg, LLVMValueRef score, LLVMValueRef top, unsigned lanes);
  void *ctx;
} cy_scores;

typedef struct cy_attention_desc {
  const char *name;
  int n_batch;
  cy_csize batch[CY_GEMM_BATCH], q_batch[CY_GEMM_BATCH], k_batch[CY_GEMM_BATCH], v_batch[CY_GEMM_BATCH];
  cy_csize m, keys;
  int64_t size, columns;           /* of a head: of q and k, of v */
  cy_csize qm, qd, kj, kd, vj, vn; /* strides: rows, elements */
  int q_slot, k_slot, v_slot, scratch_slot;
  double scale;
  bool bf16;   /* q, k and v, multiplied by AMX; else f32 */
  bool causal; /* keys beyond row + past may be left out */
  int64_t window;
  cy_csize past;
  bool zero_hidden;    /* rows whose scores are all -infinity are 0, else NaN */
  bool changes_scores; /* scores.change will be set */
  cy_scores scores;    /* set with the epilogue */
  cy_epilogue epilogue;
} cy_attention_desc;
/* Cycles on one core; sizes that are not known are taken for usual ones. */
double cy_attention_cost(const cy_cg *cg, const cy_attention_desc *desc);
void cy_attention_text(const cy_attention_desc *desc, cy_candidates *c);

#endif
