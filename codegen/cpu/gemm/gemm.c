/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.c - batched matrix product with sizes and strides known now or at run time.
 *
 * Comes in: a cy_gemm_desc. Goes out: one phase, or two when B has to be packed at run time first. Where B is packed
 * before, phases may make once what all tasks want of A: A dense along k, and sums of A for strassen.c, which does
 * blocked products by fewer multiplications where that is faster.
 * Three algorithms, chosen from what is constant:
 *   blocked     tasks are (matrix, block of rows, block of panels) around the micro-kernels of microkernel.c; B is
 * packed (at
 *               compile time, or by the first phase), or read in place when its columns are dense and too few rows
 *               would pay for packing;
 *   streaming   the same with all rows in one tile: few rows, many columns, B at memory speed, parallel over columns;
 *   dots        few rows and B dense along k: dot products, eight columns at a time.
 * A is read in place when dense along k, else each task copies its rows into its worker's scratch.
 */
#include "codegen/cpu/variants.h"

#include <stdio.h>
#include <string.h>

/* Tiles of rows, where only running tells how many there are. MIN: no fewer are known to come, and tasks are made for
 * these. WIDENED: for fewer, weights become floats tile by
 * tile. */
enum { MIN_TILES = 4, WIDENED_TILES = 4 };

typedef enum kind { GEMM_PACKED, GEMM_RUNTIME_PACK, GEMM_IN_PLACE, GEMM_DOTS, GEMM_INTS } kind;

typedef struct gemm {
  const cy_gemm_desc *d;
  kind kind;
  cy_tile tile;
  cy_blocks blocks;
  int64_t nr, last, k_block; /* last: columns of the last panel, as cy_last_columns tells */
  bool copy_a, columns_outer;
  bool transposed;  /* A is made dense along k once, by a phase of its own, in shared scratch */
  bool direct;      /* halves become floats tile by tile */
  bool widened;     /* .. or panel by panel, where these are not too large */
  bool strassen;    /* blocks of rows and panels go to strassen.c, as .. */
  cy_strassen fast; /* .. this says */
  cy_blocks plain;  /* tasks of the product without it */
} gemm;

/* Products; 0: it is not known how many. */
static int64_t products_of(const cy_gemm_desc *d) { return cy_batch_all_known(d) ? cy_batch_known(d) : 0; }

static kind kind_choose(const cy_cg *cg, const cy_gemm_desc *d) {
  int64_t m = cy_csize_known(d->m), n = cy_csize_known(d->n);
  if (d->ints.bits)
    return GEMM_INTS;
  if (d->b_packed)
    return GEMM_PACKED;
  double few = cg->model.in_place_rows;
  if (cy_csize_is(d->bn, 1) && n && n % cg->W == 0 && ((m && (double)m <= few) || (double)n <= 2 * few))
    return GEMM_IN_PLACE;
  if (cy_form_on(cg, CY_FORM_GEMM_DOTS) && cy_csize_is(d->bk, 1) && m && m <= 4 && cy_csize_is(d->ak, 1))
    return GEMM_DOTS;
  return GEMM_RUNTIME_PACK;
}

/* Panels of a task whose weights are integers. Its rows come by short runs, a block of k at a time, and had better not come
 * from beyond the second-level cache for one or two panels; what is prefetched comes in longer runs, too. */
static int64_t share_ints(int64_t panels, int64_t nb) {
  const int64_t enough = 8; /* tasks, and panels of each */
  int64_t more = panels / enough < enough ? panels / enough : enough;
  return more > nb ? more : nb;
}

/* What would be one task, and takes some 5 us, becomes two of narrower panels: two workers find more of B in their caches,
 * and one is about as fast, as long as rows of panels are some cache lines. */
static void share_columns(cy_tile *tile, int64_t batches, int64_t m, int64_t n, int64_t k, int64_t width) {
  const int64_t worth = 200000; /* multiplications */
  bool one_task = m && n && m <= tile->mr && n <= tile->nv * width && batches == 1;
  if (one_task && tile->nv > 4 && m * n * k >= worth)
    tile->nv = (tile->nv + 1) / 2;
}

/* What tasks are made for. 0: not known. A feature map or more of an unknown number of them is known to be that. */
static int64_t rows_likely(const cy_gemm_desc *d, cy_tile t) {
  int64_t m = cy_csize_known(d->m);
  return m ? m : d->m_min >= MIN_TILES * t.mr ? d->m_min : 0;
}

void cy_gemm_text(const cy_gemm_desc *d, const char *type, cy_candidates *c) {
  const int64_t m = cy_csize_known(d->m), batches = products_of(d);
  int64_t sizes[] = {m ? m : -1, cy_csize_known(d->n) ? cy_csize_known(d->n) : -1,
                     cy_csize_known(d->k) ? cy_csize_known(d->k) : -1, batches ? batches : -1};
  cy_layer_text(c, "matmul%s%s", type, d->b_packed ? "" : "_ab");
  cy_layer_sizes(c, " m", sizes, 1);
  cy_layer_sizes(c, " n", sizes + 1, 1);
  cy_layer_sizes(c, " k", sizes + 2, 1);
  cy_layer_sizes(c, " b", sizes + 3, 1);
}

/* g: planned up to this choice. */
static void weigh(const cy_cg *cg, const gemm *g, bool possible, cy_candidates *c) {
  const cy_gemm_desc *d = g->d;
  double worth = d->weights == CY_WEIGHTS_F32 ? cg->model.strassen_worth : cg->model.strassen_worth_half;
  *c = (cy_candidates){.n = 0};
  cy_gemm_text(d, cy_weights_suffix(d->weights), c);
  double plain = cy_gemm_cost(cg, d);
  cy_candidates_add(c, (cy_candidate){"plain", plain, 1, true, false});
  if (possible)
    cy_candidates_add(c, (cy_candidate){"strassen", plain * g->fast.share, cg->model.strassen ? 1 / worth : CY_IF_ASKED,
                                        !cg->strict_fp, cg->strict_fp});
  cy_candidates_choose(cg, c);
}

static int64_t known_panels(const gemm *g) { return cy_ceil(cy_csize_known(g->d->n), g->nr); }

static bool strassen_possible(const cy_cg *cg, gemm *g) {
  int64_t m = cy_csize_known(g->d->m), k = cy_csize_known(g->d->k), outer = products_of(g->d);
  return cy_form_on(cg, CY_FORM_STRASSEN) && !cg->tile_rows && g->kind == GEMM_PACKED && !g->copy_a &&
         ((cg->model.strassen && !cg->strict_fp) || cg->choices) &&
         cy_strassen_choose(cg, g->tile, g->d->weights, outer, m, known_panels(g), k, g->blocks, &g->fast);
}

static bool strassen_chosen(const cy_cg *cg, gemm *g) {
  cy_candidates c;
  if (!strassen_possible(cg, g))
    return false;
  weigh(cg, g, true, &c);
  return !strcmp(c.of[c.chosen].name, "strassen");
}

enum { UNKNOWN_K = 512 };

static void plan_tile(const cy_cg *cg, gemm *g) {
  const cy_gemm_desc *d = g->d;
  int64_t m = cy_csize_known(d->m), n = cy_csize_known(d->n);
  g->tile = d->ints.bits || !d->b_packed ? cy_tile_choose(cg, m, n) : cy_tile_choose_floats(cg, m, n);
  if (cg->tile_rows)
    g->tile = (cy_tile){cg->tile_rows, cg->tile_vectors};
  else if (g->kind == GEMM_PACKED && products_of(d))
    share_columns(&g->tile, products_of(d), m, n, cy_csize_known(d->k), cg->W);
  g->nr = (int64_t)g->tile.nv * cg->W;
}

static int64_t k_block_choose(const cy_cg *cg, const gemm *g) {
  const cy_gemm_desc *d = g->d;
  int64_t m = cy_csize_known(d->m), k = cy_csize_known(d->k), taps, block;
  if (!k)
    return UNKNOWN_K;
  if (g->kind == GEMM_INTS)
    return d->ints.block < CY_INTS_ROWS ? CY_INTS_ROWS / d->ints.block * d->ints.block : d->ints.block;
  if (m && m <= g->tile.mr)
    return k; /* nothing to keep in cache: no row reads B a second time */
  cy_kblock_choose(cg, d->weights, 1, k, &taps, &block);
  return block;
}

static void plan_blocks(const cy_cg *cg, gemm *g) {
  const cy_gemm_desc *d = g->d;
  int64_t k = cy_csize_known(d->k), min = (int64_t)cg->model.conversion_tiles * g->tile.mr;
  g->blocks = cy_blocks_choose(cg, g->tile, cy_batch_known(d), rows_likely(d, g->tile), known_panels(g), k ? k : UNKNOWN_K);
  if (!cy_csize_known(d->m) && (d->weights != CY_WEIGHTS_F32 || g->kind == GEMM_INTS))
    g->blocks.mb = g->blocks.mb < min ? min : g->blocks.mb;
  if (g->kind == GEMM_INTS && cg->model.int_panels)
    g->blocks.nb = share_ints(known_panels(g), g->blocks.nb);
}

/* Is A made dense along k once for all tasks, else by each for its rows? */
static void plan_copies(const cy_cg *cg, gemm *g) {
  const cy_gemm_desc *d = g->d;
  int64_t m = cy_csize_known(d->m), bytes = m * cy_csize_known(d->k) * 4;
  g->copy_a = !cy_csize_is(d->ak, 1) && !cy_csize_is(d->k, 1);
  g->transposed = g->copy_a && g->kind == GEMM_PACKED && m > g->tile.mr && bytes <= (int64_t)cg->model.dense_rows &&
                  products_of(d) == 1 && known_panels(g) > g->blocks.nb;
  g->copy_a = g->copy_a && !g->transposed;
}

static gemm plan_of(const cy_cg *cg, const cy_gemm_desc *d) {
  gemm g = {.d = d, .kind = kind_choose(cg, d)};
  int64_t m = cy_csize_known(d->m), n = cy_csize_known(d->n), k = cy_csize_known(d->k);
  plan_tile(cg, &g);
  g.k_block = k_block_choose(cg, &g);
  plan_blocks(cg, &g);
  plan_copies(cg, &g);
  if (strassen_chosen(cg, &g)) {
    g.strassen = true;
    g.plain = g.blocks;
    g.blocks = g.fast.blocks;
    g.k_block = g.fast.k_block;
  }
  g.widened = d->weights != CY_WEIGHTS_F32 && cg->model.widens;
  if (g.kind == GEMM_PACKED && !g.strassen)
    g.last = cy_last_columns(n, g.nr);
  g.columns_outer = n && (m ? n > m : n >= 256) && n * (k ? k : UNKNOWN_K) * 4 > (int64_t)cg->model.shared_weights;
  return g;
}

void cy_gemm_candidates(const cy_cg *cg, const cy_gemm_desc *d, cy_candidates *out) {
  gemm g = plan_of(cg, d);
  if (g.strassen)
    g.blocks = g.plain;
  weigh(cg, &g, strassen_possible(cg, &g), out);
}

cy_variants cy_gemm_variants(const cy_cg *cg, const cy_gemm_desc *d) {
  gemm g = plan_of(cg, d);
  bool tiles = g.kind == GEMM_PACKED && d->weights == CY_WEIGHTS_F32;
  return (cy_variants){.kinds = tiles ? CY_OF_PLAIN : d->b_packed ? CY_OF_HALVES : CY_OF_PAIR,
                       .base = CY_BASE_PLAIN,
                       .tile = g.tile,
                       .rows = tiles ? cy_csize_known(d->m) : 0,
                       .n = cy_csize_known(d->n),
                       .by = &cy_gemm_generator,
                       .desc = d};
}

static void pack(const cy_cg *cg, const void *of, int64_t matrices, cy_arena *arena, cy_packing *out) {
  const gemm *g = of;
  const cy_gemm_desc *d = g->d;
  cy_pack_layout l = {.groups = matrices,
                      .n = d->n.value,
                      .taps = 1,
                      .c = d->k.value,
                      .tap_block = 1,
                      .c_block = g->k_block,
                      .nr = (unsigned)g->nr,
                      .last = (unsigned)g->last,
                      .merged = 1,
                      .weights = d->weights};
  l.bytes = matrices * cy_pack_columns(&l) * l.c * cy_weight_bytes(d->weights);
  l.bytes += cy_last_room(cg, g->last, d->weights);
  cy_packing_single(out, arena, l, NULL);
}

/* ---- sizes ---- */

static V panels(cy_cg *cg, const gemm *g) { return cy_ceil_div(cg, cy_size(cg, g->d->n), cy_i64(cg, g->nr)); }

static V batches(cy_cg *cg, const gemm *g) { return cy_batch_count(cg, g->d->batch, g->d->n_batch); }

static V matrix_bytes(cy_cg *cg, const gemm *g) {
  int64_t bytes = cy_weight_bytes(g->d->weights), gap = g->last ? (g->nr - g->last) * bytes : 0;
  return cy_mul(cg, cy_addc(cg, cy_mulc(cg, panels(cg, g), g->nr * bytes), -gap), cy_size(cg, g->d->k));
}

/* What decides how many bytes a task's weights take as floats. */
static cy_microkernel micro_shape(cy_cg *cg, const gemm *g) {
  return (cy_microkernel){.tile = g->tile,
                          .weights = g->d->weights,
                          .direct = g->direct,
                          .ints.bits = g->kind == GEMM_INTS ? g->d->ints.bits : 0,
                          .in_place = g->kind == GEMM_IN_PLACE,
                          .taps = cy_i64(cg, 1),
                          .c = cy_size(cg, g->d->k),
                          .tap_block = 1,
                          .c_block = g->k_block,
                          .cbuf_panels = g->blocks.nb};
}

/* Where only running tells the rows, the kernel for fewer of them than are returned; 0: there is none. */
static int64_t few_rows_plan(cy_cg *cg, const gemm *g, gemm *out) {
  *out = *g;
  if (cy_csize_known(g->d->m))
    return 0;
  if (g->strassen) {
    out->strassen = false;
    out->blocks = g->plain;
    return CY_STRASSEN_ROWS;
  }
  cy_microkernel micro = micro_shape(cg, g);
  if (g->kind != GEMM_PACKED || !cy_widens(cg, &micro))
    return 0;
  out->direct = true;
  out->blocks.mb = WIDENED_TILES * g->tile.mr;
  return out->blocks.mb;
}

/* i1: fewer rows than that? */
static V has_fewer(cy_cg *cg, const gemm *g, int64_t rows) {
  return cy_icmp(cg, LLVMIntSLT, cy_size(cg, g->d->m), cy_i64(cg, rows));
}

enum { DOT_COLUMNS = 64 }; /* of a task of dot products */

/* Strassen's algorithm takes pairs of tiles and of panels. */
static cy_task_grid grid_of(cy_cg *cg, const void *of) {
  const gemm *g = of;
  int64_t unit = g->strassen ? 2 : 1;
  cy_task_grid grid = {.products = batches(cg, g), .rows.count = cy_size(cg, g->d->m), .columns_outer = g->columns_outer};
  if (g->kind == GEMM_DOTS) {
    grid.columns = cy_axis_pieces(cg, cy_size(cg, g->d->n), DOT_COLUMNS);
    return grid;
  }
  grid.rows = cy_axis_shares(cg, grid.rows.count, unit * g->tile.mr, g->blocks.mb);
  grid.columns = cy_axis_shares(cg, panels(cg, g), unit, g->blocks.nb);
  return grid;
}

static V task_count(cy_cg *cg, const void *ctx) {
  const gemm *g = ctx;
  gemm few;
  int64_t enough = few_rows_plan(cg, g, &few);
  V count = cy_task_count(cg, grid_of, g);
  return enough ? cy_select(cg, has_fewer(cg, g, enough), task_count(cg, &few), count) : count;
}

/* Of A, in front of what else is shared. */
static int64_t transposed_bytes(const gemm *g) {
  return g->transposed ? cy_round_up(cy_csize_known(g->d->m) * cy_csize_known(g->d->k) * 4, 64) : 0;
}

static bool shares_sums(const void *of) {
  const gemm *g = of;
  return g->strassen && g->fast.shared;
}
static int64_t sums_bytes(const gemm *g) {
  return cy_strassen_sums_bytes(g->tile, cy_csize_known(g->d->k), g->k_block);
}

/* Pairs of tiles in a matrix; in all. */
static V pairs_of(cy_cg *cg, const gemm *g) { return cy_div(cg, cy_size(cg, g->d->m), cy_i64(cg, 2 * g->tile.mr)); }
static cy_task_grid pair_grid(cy_cg *cg, const void *of) {
  return (cy_task_grid){.products = batches(cg, of), .rows = cy_axis_pieces(cg, pairs_of(cg, of), 1)};
}
static cy_task_grid pack_grid(cy_cg *cg, const void *of) {
  const gemm *g = of;
  return (cy_task_grid){.products = cy_gemm_b_count(cg, g->d), .columns = cy_axis_pieces(cg, panels(cg, g), 1)};
}
static V shared_bytes(cy_cg *cg, const void *ctx) {
  const gemm *g = ctx;
  if (g->kind == GEMM_RUNTIME_PACK)
    return cy_mul(cg, cy_gemm_b_count(cg, g->d), matrix_bytes(cg, g));
  V pairs = cy_task_count(cg, pair_grid, g);
  return cy_addc(cg, cy_mulc(cg, pairs, shares_sums(g) ? sums_bytes(g) : 0), transposed_bytes(g));
}

static bool single_block(const gemm *g) { return cy_csize_known(g->d->k) && cy_csize_known(g->d->k) <= g->k_block; }
static int64_t cbuf_bytes(const gemm *g) { return single_block(g) ? 0 : g->blocks.mb * g->blocks.nb * g->nr * 4; }

/* Scratch: partial sums, weights as floats, then a task's rows of A, or Strassen's sums. */
static int64_t copy_at(cy_cg *cg, const gemm *g) {
  cy_microkernel micro = micro_shape(cg, g);
  return cbuf_bytes(g) + cy_widened_bytes(cg, &micro);
}

static V worker_bytes(cy_cg *cg, const void *ctx) {
  const gemm *g = ctx;
  if (g->kind == GEMM_DOTS)
    return cy_i64(cg, 0);
  V a = g->copy_a ? cy_mulc(cg, cy_size(cg, g->d->k), g->blocks.mb * 4) : cy_i64(cg, 0);
  int64_t sums = g->strassen ? cy_strassen_bytes(cg, g->tile, &g->fast, cy_csize_known(g->d->k)) : 0;
  V bytes = cy_round64(cg, cy_addc(cg, a, copy_at(cg, g) + sums));
  gemm few;
  return few_rows_plan(cg, g, &few) ? cy_imax(cg, bytes, worker_bytes(cg, &few)) : bytes;
}

/* ---- one task's place ---- */

typedef cy_matrix_rows place;

static V offset_of(cy_cg *cg, const gemm *g, const place *p, const cy_csize *strides) {
  return cy_batch_offset(cg, p->idx, strides, g->d->n_batch);
}

/* ---- packing B at run time ---- */

static void pack_task(cy_cg *cg, void *of, const cy_task *t) {
  const gemm *g = of;
  const cy_gemm_desc *d = g->d;
  V k = cy_size(cg, d->k), np = panels(cg, g), bk = cy_size(cg, d->bk), bn = cy_size(cg, d->bn);
  V panel = t->columns.begin, col = cy_mulc(cg, panel, g->nr), step = cy_i64(cg, g->k_block);
  V src = cy_gepf(cg, cy_arg_ptr(cg, d->b_slot), cy_gemm_b_offset(cg, d, t->product));
  src = cy_gepf(cg, src, cy_mul(cg, col, bn));
  V dst = cy_gep(cg, cy_arg_ptr(cg, d->shared_slot), cy_mul(cg, t->product, matrix_bytes(cg, g)));
  V valid = cy_imin(cg, cy_i64(cg, g->nr), cy_sub(cg, cy_size(cg, d->n), col));
  cy_loop b;
  cy_loop_begin(cg, &b, cy_i64(cg, 0), k, step, NULL, 0);
  V kc = cy_imin(cg, step, cy_sub(cg, k, b.iv));
  V at = cy_add(cg, cy_mul(cg, b.iv, np), cy_mul(cg, panel, kc));
  V to = cy_gepf(cg, dst, cy_mulc(cg, at, g->nr));
  cy_emit_panel(cg, to, g->nr, cy_gepf(cg, src, cy_mul(cg, b.iv, bk)), bk, bn, kc, valid, 1);
  cy_loop_end(cg, &b, NULL);
}

static V emit_b_base(cy_cg *cg, const gemm *g, const place *p) {
  const cy_gemm_desc *d = g->d;
  if (g->kind == GEMM_INTS)
    return cy_arg_ptr(cg, d->b_slot);
  if (g->kind == GEMM_IN_PLACE)
    return cy_gepf(cg, cy_arg_ptr(cg, d->b_slot), offset_of(cg, g, p, d->b_batch));
  V all = cy_arg_ptr(cg, g->kind == GEMM_PACKED ? d->b_slot : d->shared_slot);
  return cy_gep(cg, all, cy_mul(cg, cy_gemm_b_number(cg, g->d, p->idx), matrix_bytes(cg, g)));
}

/* ---- A, made dense along k once for all tasks ---- */

enum { TRANSPOSED_ROWS = 8 }; /* of a task: what a square of vectors has */

static V transpose_count(cy_cg *cg, const void *ctx) {
  const gemm *g = ctx;
  return cy_i64(cg, cy_ceil(cy_csize_known(g->d->m), TRANSPOSED_ROWS));
}

static void emit_transpose(cy_cg *cg, const void *of, const char *name) {
  const gemm *g = of;
  const cy_gemm_desc *d = g->d;
  cy_kernel_begin(cg, name, 0);
  V rows = cy_i64(cg, TRANSPOSED_ROWS), row = cy_mul(cg, cg->begin, rows), end = cy_mul(cg, cg->end, rows);
  V m = cy_size(cg, d->m), k = cy_size(cg, d->k), am = cy_size(cg, d->am);
  V to = cy_gepf(cg, cy_arg_ptr(cg, d->shared_slot), cy_mul(cg, row, k));
  V from = cy_gepf(cg, cy_arg_ptr(cg, d->a_slot), cy_mul(cg, row, am));
  V count = cy_sub(cg, cy_imin(cg, m, end), row);
  cy_emit_gather2(cg, to, k, from, am, cy_size(cg, d->ak), count, k, 1);
  cy_fn_end(cg, NULL);
}

/* Row `row` of A as tasks find it, but in a copy of their own; floats between rows, there too. */
static V a_at(cy_cg *cg, const gemm *g, const place *p, V row) {
  const cy_gemm_desc *d = g->d;
  if (g->transposed)
    return cy_gepf(cg, cy_arg_ptr(cg, d->shared_slot), cy_mul(cg, row, cy_size(cg, d->k)));
  V at = cy_add(cg, offset_of(cg, g, p, d->a_batch), cy_mul(cg, row, cy_size(cg, d->am)));
  return cy_gepf(cg, cy_arg_ptr(cg, d->a_slot), at);
}
static cy_csize row_stride(const gemm *g) { return g->transposed || g->copy_a ? g->d->k : g->d->am; }

/* What tasks share. */
typedef struct frame {
  const gemm *g;
  V tab, scratch; /* tab: where rows begin */
  V dots;         /* a tile of dot products */
} frame;
static V row_table(cy_cg *cg, const gemm *g, int64_t rows) {
  return cy_row_table(cg, rows, cy_mulc(cg, cy_size(cg, row_stride(g)), 4));
}

/* ---- Strassen's sums of A, shared ---- */

static V sums_at(cy_cg *cg, const gemm *g, V matrix, V row) {
  V pair = cy_add(cg, cy_mul(cg, matrix, pairs_of(cg, g)), cy_div(cg, row, cy_i64(cg, 2 * g->tile.mr)));
  V first = cy_gepc(cg, cy_arg_ptr(cg, g->d->shared_slot), transposed_bytes(g));
  return cy_gep(cg, first, cy_mulc(cg, pair, sums_bytes(g)));
}

static void sums_task(cy_cg *cg, void *of, const cy_task *t) {
  const frame *f = of;
  const gemm *g = f->g;
  V row = cy_mulc(cg, t->rows.begin, 2 * g->tile.mr);
  place p = cy_matrix_rows_at(cg, g->d, t->product, NULL);
  V a = a_at(cg, g, &p, row);
  cy_microkernel micro = {.tile = g->tile,
                          .tab = f->tab,
                          .base = LLVMBuildPtrToInt(cg->b, a, cg->i64, ""),
                          .c = cy_size(cg, g->d->k),
                          .c_block = g->k_block};
  cy_strassen_sums_emit(cg, &micro, sums_at(cg, g, t->product, row));
}

static void emit_sums(cy_cg *cg, const void *of, const char *name) {
  const gemm *g = of;
  cy_kernel_begin(cg, name, 0);
  frame f = {.g = g, .tab = row_table(cg, g, 2 * g->tile.mr)};
  cy_tasks_emit(cg, pair_grid, g, sums_task, &f);
  cy_fn_end(cg, NULL);
}

/* ---- the blocked product ---- */

cy_int_weights cy_gemm_ints(cy_cg *cg, const cy_gemm_desc *d) {
  return (cy_int_weights){.bits = d->ints.bits,
                          .is_signed = d->ints.is_signed,
                          .bf16 = d->ints.bf16,
                          .tile = d->ints.tile,
                          .block = d->ints.block,
                          .middle = d->ints.middle,
                          .scales = cy_arg_ptr(cg, d->ints.scale_slot),
                          .zeros = d->ints.zero_slot < 0 ? NULL : cy_arg_ptr(cg, d->ints.zero_slot)};
}

/* Does a worker that goes from block to block of rows find the weights of the task before in its second-level cache? */
static bool weights_stay(const cy_cg *cg, const gemm *g) {
  int64_t panel = g->nr * cy_csize_known(g->d->k) * cy_weight_bytes(g->d->weights);
  int64_t bytes = (g->columns_outer ? g->blocks.nb : known_panels(g)) * panel;
  return bytes > 0 && bytes <= cy_l2_part(cg, 1, 2);
}

/* The task's rows of A, dense along k. */
static V rows_of_a(cy_cg *cg, const frame *f, const place *p, V rows) {
  const gemm *g = f->g;
  V a = a_at(cg, g, p, p->row0), k = cy_size(cg, g->d->k);
  if (!g->copy_a)
    return a;
  V copy = cy_gepc(cg, f->scratch, copy_at(cg, g)), ak = cy_size(cg, g->d->ak);
  cy_emit_gather2(cg, copy, k, a, cy_size(cg, g->d->am), ak, rows, k, 1);
  return copy;
}

static void emit_task(cy_cg *cg, void *of, const cy_task *t) {
  const frame *f = of;
  const gemm *g = f->g;
  const cy_gemm_desc *d = g->d;
  int64_t m = cy_csize_known(d->m);
  place p = cy_matrix_rows_at(cg, d, t->product, t->rows.begin);
  cy_rows index = cy_matrix_rows_index(&p);
  cy_microkernel micro = micro_shape(cg, g);
  cy_microkernel_task(cg, &micro, t, panels(cg, g), d->n, g->last);
  V a = rows_of_a(cg, f, &p, micro.rows);
  micro.b = emit_b_base(cg, g, &p);
  micro.tails = g->strassen ? cy_strassen_tails(cg, g->tile, m, known_panels(g)) : cy_share_tails(cg, g->tile, m, g->blocks.mb);
  micro.tab = f->tab;
  micro.tab_stride = cy_i64(cg, 0);
  micro.base = LLVMBuildPtrToInt(cg->b, a, cg->i64, "");
  micro.row_bytes = cy_csize_known(row_stride(g)) * 4;
  micro.a_bytes = m * cy_csize_known(row_stride(g)) * 4;
  micro.b_stays = weights_stay(cg, g);
  micro.cbuf = f->scratch;
  micro.widened = cy_widens(cg, &micro) ? cy_gepc(cg, f->scratch, cbuf_bytes(g)) : NULL;
  micro.col0 = cy_i64(cg, 0);
  micro.epilogue = &d->epilogue;
  micro.index = &index;
  if (g->kind == GEMM_INTS)
    micro.ints = cy_gemm_ints(cg, d);
  if (micro.in_place)
    micro.ldb = cy_mulc(cg, cy_size(cg, d->bk), 4);
  if (g->strassen) {
    V sums = shares_sums(g) ? sums_at(cg, g, t->product, p.row0) : NULL;
    cy_strassen_emit(cg, &micro, &g->fast, cy_gepc(cg, f->scratch, copy_at(cg, g)), sums);
  } else {
    cy_microkernel_emit(cg, &micro);
  }
}

static void emit_tasks(cy_cg *cg, const gemm *g, V scratch) {
  gemm few;
  int64_t enough = few_rows_plan(cg, g, &few);
  cy_if fewer;
  if (enough) {
    cy_if_begin(cg, &fewer, has_fewer(cg, g, enough));
    emit_tasks(cg, &few, scratch);
    cy_if_else(cg, &fewer);
  }
  frame f = {.g = g, .tab = row_table(cg, g, g->blocks.mb), .scratch = scratch};
  cy_tasks_emit(cg, grid_of, g, emit_task, &f);
  if (enough)
    cy_if_end(cg, &fewer);
}

/* ---- dot products ---- */

V cy_emit_dots8(cy_cg *cg, V a, V *col, V k) {
  unsigned lanes = cg->W > 8 ? cg->W : 8;
  LLVMTypeRef type = cy_vecf(cg, lanes);
  V v[8], sum = NULL, whole = cy_mulc(cg, cy_div(cg, k, cy_i64(cg, lanes)), lanes);
  for (int j = 0; j < 8; j++)
    v[j] = LLVMConstNull(type);
  cy_loop l, rest;
  cy_loop_begin(cg, &l, cy_i64(cg, 0), whole, cy_i64(cg, lanes), v, 8);
  V x = cy_load(cg, type, cy_gepf(cg, a, l.iv), 4);
  for (int j = 0; j < 8; j++)
    v[j] = cy_fma(cg, cy_load(cg, type, cy_gepf(cg, col[j], l.iv), 4), x, l.v[j]);
  cy_loop_end(cg, &l, v);
  for (int j = 0; j < 8; j++) {
    v[j] = l.out[j];
    if (lanes == 16) {
      V high = cy_some_lanes(cg, v[j], 8, 8);
      v[j] = LLVMBuildFAdd(cg->b, cy_some_lanes(cg, v[j], 0, 8), high, "");
    }
  }
  cy_transpose8(cg, v);
  for (int j = 0; j < 8; j++)
    sum = sum ? LLVMBuildFAdd(cg->b, sum, v[j], "") : v[j];
  cy_loop_begin(cg, &rest, whole, k, cy_i64(cg, 1), &sum, 1);
  V b = LLVMGetPoison(cy_vecf(cg, 8)), scalar = cy_load(cg, cg->f32, cy_gepf(cg, a, rest.iv), 4);
  for (int j = 0; j < 8; j++)
    b = LLVMBuildInsertElement(cg->b, b, cy_load(cg, cg->f32, cy_gepf(cg, col[j], rest.iv), 4), cy_i32(cg, j), "");
  sum = cy_fma(cg, cy_splat(cg, scalar, 8), b, rest.v[0]);
  cy_loop_end(cg, &rest, &sum);
  return rest.out[0];
}

static void dots_task(cy_cg *cg, void *of, const cy_task *t) {
  const frame *f = of;
  const gemm *g = f->g;
  const cy_gemm_desc *d = g->d;
  V n = cy_size(cg, d->n), k = cy_size(cg, d->k), am = cy_size(cg, d->am), bn = cy_size(cg, d->bn);
  V col0 = t->columns.begin, cols = cy_sub(cg, t->columns.end, col0), ld = cy_i64(cg, DOT_COLUMNS * 4), col[8];
  place p = cy_matrix_rows_at(cg, d, t->product, cy_i64(cg, 0));
  V a = cy_gepf(cg, cy_arg_ptr(cg, d->a_slot), offset_of(cg, g, &p, d->a_batch));
  V b = cy_gepf(cg, cy_arg_ptr(cg, d->b_slot), offset_of(cg, g, &p, d->b_batch));
  cy_loop j, i;
  cy_loop_begin(cg, &j, cy_i64(cg, 0), cols, cy_i64(cg, 8), NULL, 0);
  for (int q = 0; q < 8; q++) { /* columns beyond the last repeat it */
    V number = cy_imin(cg, cy_add(cg, col0, cy_addc(cg, j.iv, q)), cy_addc(cg, n, -1));
    col[q] = cy_gepf(cg, b, cy_mul(cg, number, bn));
  }
  cy_loop_begin(cg, &i, cy_i64(cg, 0), cy_size(cg, d->m), cy_i64(cg, 1), NULL, 0);
  V sums = cy_emit_dots8(cg, cy_gepf(cg, a, cy_mul(cg, i.iv, am)), col, k);
  cy_store(cg, sums, cy_gepf(cg, cy_gep(cg, f->dots, cy_mul(cg, i.iv, ld)), j.iv), 4);
  cy_loop_end(cg, &i, NULL);
  cy_loop_end(cg, &j, NULL);
  cy_rows index = cy_matrix_rows_index(&p);
  int64_t known_n = cy_csize_known(d->n);
  cy_epilogue_tile(cg, &d->epilogue, &index, f->dots, ld, cy_size(cg, d->m), cy_i64(cg, 0), cols, col0,
                   known_n ? (unsigned)(known_n % cg->W) : cg->W);
}

static bool packs_b(const void *of) { return ((const gemm *)of)->kind == GEMM_RUNTIME_PACK; }
static bool transposes(const void *of) { return ((const gemm *)of)->transposed; }

CY_PLAN_MAKE(gemm)

static const char *name_of(const void *of) {
  const gemm *g = of;
  if (g->kind == GEMM_INTS)
    return g->d->ints.bits == 8 ? "gemm int8 weights" : "gemm int4 weights";
  return g->strassen ? "gemm strassen" : g->d->b_packed ? "gemm packed" : "gemm";
}

static void emit(cy_cg *cg, const void *of, const char *name) {
  const gemm *g = of;
  const cy_gemm_desc *d = g->d;
  V scratch = cy_phase_begin(cg, name, 0, &d->epilogue, d->scratch_slot, worker_bytes, g);
  if (g->kind == GEMM_DOTS) {
    frame f = {.g = g, .dots = cy_alloca(cg, cy_csize_known(d->m) * DOT_COLUMNS * 4)};
    cy_tasks_emit(cg, grid_of, g, dots_task, &f);
  } else {
    emit_tasks(cg, g, scratch);
  }
  cy_fn_end(cg, NULL);
}

static void describe(const void *of, char *text, size_t size) {
  const gemm *g = of;
  static const char *const kinds[] = {[GEMM_PACKED] = "",
                                      [GEMM_RUNTIME_PACK] = ", packs the second factor",
                                      [GEMM_IN_PLACE] = ", second factor in place",
                                      [GEMM_DOTS] = ", dot products",
                                      [GEMM_INTS] = ""};
  snprintf(text, size, "tile %ux%lld, tasks of %lld rows and %lld panels, k by %lld%s%s", g->tile.mr, (long long)g->nr,
           (long long)g->blocks.mb, (long long)g->blocks.nb, (long long)g->k_block, kinds[g->kind],
           g->widened ? ", weights widened by panels" : "");
}

const cy_generator cy_gemm_generator = {.plan = plan_make,
                                        .pack = pack,
                                        .name = name_of,
                                        .describe = describe,
                                        .phase = {{"_pack", packs_b, .grid = pack_grid, .body = pack_task},
                                                  {"_rows", transposes, emit_transpose, transpose_count},
                                                  {"_sums", shares_sums, emit_sums, .grid = pair_grid},
                                                  {"", NULL, emit, task_count}},
                                        .worker_bytes = worker_bytes,
                                        .shared_bytes = shared_bytes};
