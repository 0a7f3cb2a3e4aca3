/* SPDX-License-Identifier: Apache-2.0 */
/* int_gemm.c - matrix products and convolutions of 8-bit integers and bf16: the plan and the tasks; the algorithms are described
 * in int_gemm.h.
 *
 * Comes in: a cy_int_gemm_desc. Goes out: one phase, or two where b has to be packed at run time first. A task is
 * (matrix or group of channels, block of rows, block of panels): it copies its rows of a to scratch (int_copy.c), then,
 * by groups of panels that stay in cache, tile by tile (int_tile.c), runs micro-kernels over all of k and the epilogue
 * over long runs of each row, or both on accumulators in registers (int_inline.c). A row of a convolution is an output
 * position; its k are the taps, padding included. Sums of integers are exact, those of bf16 run over all of k in order:
 * neither depends on blocks or threads.
 */
#include "codegen/cpu/variants.h"
#include "int_gemm_int.h"

#include <stdio.h>
#include <string.h>

enum { TOGETHER = 4 }; /* panels that a task of the first phase packs */
enum { UNKNOWN_K = 512 };
enum { WIDE = CY_INT_GEMM_WIDE };

typedef cy_int_gemm_plan plan;
typedef cy_int_gemm_frame frame;

/* ---- the plan ---- */

/* Does the output of a convolution of one tap lie on the input position by position? */
static bool positions_coincide(const plan *p) {
  int64_t stride = p->c;
  for (int i = 2; i >= 0; i--) {
    const cy_axis *a = &p->axis[i];
    int64_t in = cy_csize_known(a->in);
    if (a->count != 1 || a->step != 1 || a->start != 0 || !in || in != cy_csize_known(a->out) ||
        (in > 1 && !cy_csize_is(a->in_stride, stride)))
      return false;
    stride *= in;
  }
  return p->groups == 1 && (cy_csize_is(p->d->window.batch, 1) || cy_csize_is(p->d->window.in_n, stride));
}

static void plan_conv(plan *p) {
  const cy_conv_desc *w = &p->d->window;
  cy_conv_axes(w, 0, p->axis);
  p->groups = w->groups;
  p->c = w->cin / w->groups;
  p->n = w->cout / w->groups;
  p->taps = p->axis[0].count * p->axis[1].count * p->axis[2].count;
  p->k = p->taps * p->c;
  p->image = cy_csize_known(p->axis[0].out) * cy_csize_known(p->axis[1].out) * cy_csize_known(p->axis[2].out);
  p->rows = cy_csize_known(w->batch) * p->image;
  p->dense = positions_coincide(p);
}

static void plan_gemm(plan *p) {
  const cy_gemm_desc *g = &p->d->gemm;
  p->groups = cy_batch_known(g);
  p->n = cy_csize_known(g->n);
  p->k = p->c = cy_csize_known(g->k);
  p->taps = 1;
  p->rows = cy_csize_known(g->m);
  p->dense = p->k && cy_csize_is(g->ak, 1) && cy_csize_is(g->am, p->k);
}

/* The tile's rows that take the least time, those of the last tile that idle included. */
static unsigned tile_rows(const cy_cg *cg, const plan *p) {
  unsigned best = p->tile.mr;
  double min = 0;
  for (unsigned mr = p->tile.mr; mr + 2 >= p->tile.mr && mr > 1; mr--) {
    double tiles = p->rows ? (double)cy_ceil(p->rows, mr) : 1.0 / mr;
    double cost = tiles * cy_cost_int_step(cg, mr, p->tile.nv, p->variant.dot4, p->variant.split);
    if (min == 0 || cost < min * 0.98) {
      min = cost;
      best = mr;
    }
  }
  return best;
}

/* Columns of the last panel as packed: by dot4, which loads want, or by whole tiles. A last panel of as many vectors as
 * all others is like them, so that they share code. */
static int64_t last_columns(const cy_cg *cg, const plan *p) {
  int64_t rest = p->n % p->nr, vectors = cy_ceil(rest, cg->W);
  if (!p->packed || p->variant.split || !rest || (vectors == p->tile.nv && p->n > p->nr) ||
      cy_int_gemm_each(p->variant) > 1)
    return p->nr;
  return cy_round_up(rest, p->variant.amx ? cg->W : 4);
}

/* Does no other task read the panels of a block of b? */
static bool read_once(const plan *p) {
  const cy_gemm_desc *g = &p->d->gemm;
  for (int i = 0; i < g->n_batch; i++)
    if (cy_csize_is(g->b_batch[i], 0) && !cy_csize_is(g->batch[i], 1))
      return false;
  return !p->packed && p->rows && p->rows <= p->mb;
}

static int64_t likely_k(const plan *p) { return p->k ? p->k : UNKNOWN_K; }

/* Panels done for a tile of rows before the next: their weights stay in the second-level cache. */
static int64_t group_choose(const cy_cg *cg, const plan *p) {
  int64_t bytes = likely_k(p) * p->nr * (p->variant.wide ? 2 : 1), group = (int64_t)cg->model.panel_group / bytes;
  int64_t max = (p->variant.amx ? 128 : 256) / p->nr; /* accumulators of a tile's rows stay in the first-level cache */
  group = group < max ? group : max;
  group = group < p->nb ? group : p->nb;
  return group < 1 ? 1 : group / p->unit * p->unit;
}

/* Where columns fill wide vectors, tasks take panels by as many as make one: the epilogue needs no other code then. */
static int64_t unit_choose(const cy_cg *cg, const plan *p) {
  int64_t wide = WIDE * (int64_t)cg->W, unit = wide / p->nr;
  bool fills = p->packed && !p->pack_b && !p->variant.bf16 && p->n && p->n % wide == 0 && wide % p->nr == 0;
  return fills && group_choose(cg, p) >= unit ? unit : 1;
}

/* Products of bytes by one instruction, outside of tiles; split ones need so much more time that they gain nothing. */
static bool bytes_at_once(const plan *p) { return p->variant.dot4 && !p->variant.amx && !p->variant.split; }

/* Are sums of rows needed? Zero points of b take them away, and so does making u8 signed while packing them. */
static bool rows_summed(const plan *p) {
  return p->variant.dot4 && (p->d->b_zero_slot >= 0 || (!p->packed && !p->d->b_signed));
}

static bool dot4_plain(const plan *p) { return bytes_at_once(p) && !rows_summed(p); }

/* .. and of columns? */
static bool columns_summed(const plan *p) { return p->variant.dot4 && (p->d->a_zero_slot >= 0 || p->shifted); }

/* Rows of bytes and bf16 are read where they lie, except for a last tile that is not full, or would reach too far; so are
 * those of AMX, which may lie at any distance. */
static bool rows_in_place(const plan *p) {
  bool as_stored = p->variant.amx || p->variant.bf16 || bytes_at_once(p);
  return as_stored && cy_int_gemm_rows_as_wanted(p) && !p->shifted && !rows_summed(p);
}
static int64_t reach_bytes(const plan *p) {
  return cy_int_gemm_rows_reach(p) ? cy_round_up(p->k, cy_int_gemm_tile_k(p)) - p->k : 0;
}

enum { WORTH_A_TILE = 24 }; /* k: less of it would leave most of a tile of k empty */

static bool amx_fits(const cy_cg *cg, const plan *p) {
  bool worth = !p->k || p->k >= WORTH_A_TILE;
  return p->variant.bf16 ? cg->amx_bf16 : p->variant.dot4 && cg->amx_int8 && worth;
}

/* Is only the last tile of a task copied, if it is not full? Scratch has no room for others then. */
static bool only_last_copied(const cy_cg *cg, const plan *p) { return cy_int_gemm_rows_stay(cg) && rows_in_place(p); }

/* Does scratch have room for the copies of all rows, whatever columns come in between? */
static bool keeps_rows(const cy_cg *cg, const plan *p) {
  const cy_gemm_desc *g = &p->d->gemm;
  bool copied = cy_int_gemm_rows_stay(cg) && !p->d->conv && p->packed && !rows_in_place(p), single = true;
  for (int i = 0; i < g->n_batch; i++)
    single = single && cy_csize_is(g->batch[i], 1);
  return copied && single && bytes_at_once(p) && cy_int_gemm_rows_as_wanted(p) && !rows_summed(p) && p->rows > p->mb &&
         p->rows * p->k <= (int64_t)cg->model.int_kept_rows;
}

/* Of a task: copies stay in the second-level cache beside weights; without, the more rows share weights the better. */
static int64_t rows_at_most(const cy_cg *cg, const plan *p, int64_t k) {
  int64_t fit = bytes_at_once(p) ? (int64_t)cg->model.int_copied_rows / k : (int64_t)cg->model.int_widened_rows / (k * 2);
  return only_last_copied(cg, p) ? INT64_MAX : fit / p->tile.mr * p->tile.mr;
}

/* For so many columns. */
static void tile_choose(const cy_cg *cg, plan *p, int64_t n) {
  p->tile = p->variant.amx ? cy_int_gemm_amx_tile(p->rows, n) : cy_tile_choose(cg, p->rows, n);
  if (cg->tile_rows && !p->variant.amx)
    p->tile = (cy_tile){cg->tile_rows, cg->tile_vectors};
  else if (p->rows != 1 && !p->variant.amx)
    p->tile.mr = tile_rows(cg, p);
}

static cy_int_gemm_variant variant_of(const cy_cg *cg, const plan *p) {
  const cy_int_gemm_desc *d = p->d;
  bool bytes = d->b_bits == 8, narrow = p->packed && bytes && d->b_signed, fits = narrow || (!p->packed && bytes);
  return cy_group_kernel_of(d->bf16                                  ? CY_GROUP_BF16
                            : d->split                               ? CY_GROUP_SPLIT
                            : fits && (cg->vnni || cg->vnni_spelled) ? CY_GROUP_DOT4
                            : narrow                                 ? CY_GROUP_DOT2_S8
                                                                     : CY_GROUP_DOT2);
}

/* Slots, sizes, and micro-kernels that fit the operands. */
static plan plan_begin(const cy_cg *cg, const cy_int_gemm_desc *d) {
  plan p = {.d = d, .name = d->conv ? d->window.name : d->gemm.name, .packed = d->conv || d->gemm.b_packed, .unit = 1};
  p.a_slot = d->conv ? d->window.a_slot : d->gemm.a_slot;
  p.b_slot = d->conv ? d->window.b_slot : d->gemm.b_slot;
  p.scratch_slot = d->conv ? d->window.scratch_slot : d->gemm.scratch_slot;
  p.shared_slot = d->conv ? d->window.shared_slot : d->gemm.shared_slot;
  if (d->conv)
    plan_conv(&p);
  else
    plan_gemm(&p);
  p.variant = variant_of(cg, &p);
  p.shifted = p.variant.dot4 && d->a_signed != cg->sdot;
  p.variant.starts = columns_summed(&p) || d->started;
  p.variant.amx = amx_fits(cg, &p);
  p.variant.far = p.variant.amx && p.packed && p.n * p.k * (d->bf16 ? 2 : 1) >= (int64_t)cg->model.amx_near_weights;
  p.variant.together = p.variant.amx ? CY_AMX_GROUPS : 1;
  return p;
}

/* Tile and panels; where columns are few, or taps of zeros are left out, narrower ones than usual. */
static void plan_tile(const cy_cg *cg, plan *p) {
  tile_choose(cg, p, p->n);
  unsigned each = dot4_plain(p) ? cy_int_lane_reduce_choose(cg, p) : 1;
  unsigned shuffled = each == 1 ? cy_int_gemm_order_vectors(cg, p) : 0;
  if (each > 1)
    p->tile = cy_int_lane_reduce_tile();
  else if (shuffled && shuffled < p->tile.nv)
    tile_choose(cg, p, (int64_t)shuffled * cg->W);
  p->variant.step *= each;
  p->variant.shuffled = shuffled > 0;
  p->nr = (int64_t)p->tile.nv * cg->W / each;
  p->last = last_columns(cg, p);
}

/* Rows and panels of a task. */
static void plan_blocks(const cy_cg *cg, plan *p) {
  int64_t k = likely_k(p), rows = p->rows ? p->rows : p->image, panels = p->n ? cy_ceil(p->n, p->nr) : 0;
  cy_blocks b;
  if (p->variant.amx) {
    b = cy_int_gemm_amx_blocks(cg, p->tile, p->groups, rows, panels, cy_ceil(k, p->variant.step) * 4, !rows_in_place(p));
  } else {
    int64_t max = rows_at_most(cg, p, k);
    b = cy_blocks_choose(cg, p->tile, p->groups, rows, panels, (k + 1) / 2);
    b.mb = b.mb <= max ? b.mb : max > p->tile.mr ? max : p->tile.mr;
  }
  p->mb = b.mb;
  p->nb = b.nb;
}

/* Panels of a task that packs them. */
static void plan_packing(const cy_cg *cg, plan *p) {
  p->pack_b = read_once(p);
  if (!p->pack_b)
    return;
  int64_t fit = (int64_t)cg->model.int_packed_panels / (likely_k(p) * p->nr * (p->variant.dot4 ? 1 : 2));
  p->nb = fit < p->nb ? fit : p->nb;
  p->nb = p->nb > TOGETHER ? p->nb / TOGETHER * TOGETHER : p->nb < 1 ? 1 : p->nb;
}

/* Do tiles of rows ask for weights ahead? */
static bool prefetch_pays(const cy_cg *cg, const plan *p) {
  int64_t weights = p->n * p->k * (p->variant.wide ? 2 : 1);
  bool many_rows = !p->rows || p->rows > p->tile.mr;
  return cy_int_gemm_rows_stay(cg) && p->packed && cy_cost_many_weights(cg, weights) && many_rows;
}

static plan plan_of(const cy_cg *cg, const cy_int_gemm_desc *d) {
  plan p = plan_begin(cg, d);
  plan_tile(cg, &p);
  plan_blocks(cg, &p);
  plan_packing(cg, &p);
  p.unit = unit_choose(cg, &p);
  p.nb = p.nb / p.unit * p.unit;
  p.variant.prefetch = prefetch_pays(cg, &p);
  if (cy_form_on(cg, CY_FORM_INT_ROW_BLOCK) && dot4_plain(&p))
    cy_int_row_block_plan(&p);
  cy_int_gemm_order_plan(&p);
  return p;
}

/* What a group of k of the last panel lacks to the bytes of the others'. */
static int64_t gap_bytes(const plan *p) {
  return cy_int_gemm_group_bytes(p->variant, p->nr) - cy_int_gemm_group_bytes(p->variant, p->last);
}
/* Sums of a matrix' columns, n being known: whole vectors. */
static int64_t sum_columns(const cy_cg *cg, const plan *p) {
  return cy_round_up(cy_ceil(p->n, p->nr) * p->nr - (p->nr - p->last) / cg->W * cg->W, cg->W);
}

static int64_t head_bytes(const plan *p) {
  return p->variant.split ? cy_int_gemm_head_bytes(cy_ceil(p->n, p->nr), p->d->again) : 0;
}

/* Of a matrix, n and k being known. */
static int64_t packed_bytes(const plan *p) {
  cy_int_gemm_runs last = cy_int_gemm_runs_of(&p->order, cy_ceil(p->n, p->nr) - 1);
  int64_t groups = p->groups_of_k + p->d->again;
  return head_bytes(p) + groups * cy_int_gemm_group_bytes(p->variant, p->nr) - gap_bytes(p) * last.runs * last.groups;
}

static void pack(const cy_cg *cg, const void *of, int64_t matrices, cy_arena *arena, cy_packing *out) {
  const plan *p = of;
  const cy_int_gemm_desc *d = p->d;
  cy_pack_layout l = {.groups = matrices,
                      .n = p->n,
                      .taps = p->taps,
                      .c = p->c,
                      .nr = (unsigned)p->nr,
                      .last = (unsigned)p->last,
                      .step = p->variant.step,
                      .order = &p->order,
                      .weights = p->variant.wide ? CY_WEIGHTS_S16 : CY_WEIGHTS_S8,
                      .sum_columns = columns_summed(p) ? sum_columns(cg, p) : 0,
                      .split = d->split,
                      .again = d->again,
                      .group_bytes = packed_bytes(p)};
  l.bytes = matrices * (l.group_bytes + l.sum_columns * 4);
  cy_packing_single(out, arena, l, NULL);
}

bool cy_int_gemm_split_possible(const cy_cg *cg, const cy_int_gemm_desc *d) {
  if (!cy_form_on(cg, CY_FORM_INT_SPLIT) || d->bf16 || !cg->avx2 || cg->vnni || cg->vnni_spelled ||
      cy_int_depthwise_possible(d))
    return false;
  plan p = plan_of(cg, d);
  return p.packed && p.rows != 1; /* one row waits for its weights either way */
}

double cy_int_gemm_share(const cy_cg *cg, const cy_int_gemm_desc *d) {
  plan p = plan_of(cg, d);
  return cy_int_gemm_order_share(cg, &p);
}

/* ---- sizes ---- */

/* Between rows in scratch. Those of a tile do not all fall into the same sets of the first-level cache, except where
 * they lie as wanted anyway. */
static V row_bytes(cy_cg *cg, const plan *p) {
  V bytes = cy_mulc(cg, cy_int_gemm_k_groups(cg, p), cy_int_gemm_row_group(p->variant));
  if (cy_int_gemm_rows_reach(p))
    return cy_i64(cg, p->k);
  if (!p->variant.amx || cy_int_gemm_rows_as_wanted(p))
    return bytes;
  V together = cy_icmp(cg, LLVMIntEQ, cy_mod(cg, bytes, cy_i64(cg, 1024)), cy_i64(cg, 0));
  return cy_select(cg, together, cy_addc(cg, bytes, 64), bytes);
}
static V columns(cy_cg *cg, const plan *p) { return p->d->conv ? cy_i64(cg, p->n) : cy_size(cg, p->d->gemm.n); }
static V panels(cy_cg *cg, const plan *p) { return cy_ceil_div(cg, columns(cg, p), cy_i64(cg, p->nr)); }

static V rows(cy_cg *cg, const plan *p) {
  if (!p->d->conv)
    return cy_size(cg, p->d->gemm.m);
  V n = cy_size(cg, p->d->window.batch);
  for (int i = 0; i < 3; i++)
    n = cy_mul(cg, n, cy_size(cg, p->axis[i].out));
  return n;
}

/* How many products there are, of all batch axes or groups. */
static V products(cy_cg *cg, const plan *p) {
  return p->d->conv ? cy_i64(cg, p->groups) : cy_batch_count(cg, p->d->gemm.batch, p->d->gemm.n_batch);
}

static V panel_bytes(cy_cg *cg, const plan *p) {
  return cy_mulc(cg, cy_int_gemm_k_groups(cg, p), cy_int_gemm_group_bytes(p->variant, p->nr));
}
static V matrix_bytes(cy_cg *cg, const plan *p) {
  return p->packed ? cy_i64(cg, packed_bytes(p)) : cy_mul(cg, panels(cg, p), panel_bytes(cg, p));
}

/* Do tasks that follow each other have the same columns? Else they have the same rows, which is better where copying
 * these takes longer than reading weights again. */
static bool weights_outer(const cy_cg *cg, const plan *p) {
  if (bytes_at_once(p) && p->taps > 1 && p->n * p->k <= (int64_t)cg->model.int_near_weights)
    return false;
  return p->n && p->rows ? p->n > p->rows : p->n >= 256;
}

static cy_task_grid grid_of(cy_cg *cg, const void *of) {
  const plan *p = of;
  return (cy_task_grid){.products = products(cg, p),
                        .rows = cy_axis_shares(cg, rows(cg, p), p->tile.mr, p->mb),
                        .columns = cy_axis_shares(cg, panels(cg, p), p->unit, p->nb),
                        .columns_outer = weights_outer(cg, p)};
}
static V rows_bytes(cy_cg *cg, const plan *p) {
  if (p->row_block)
    return cy_i64(cg, p->row_block_bytes + cy_round_up((p->mb + p->tile.mr) * 8, 64));
  int64_t copied = only_last_copied(cg, p) ? p->tile.mr : keeps_rows(cg, p) ? p->rows + p->tile.mr : p->mb;
  int64_t behind = p->variant.shuffled ? cy_int_gemm_tile_k(p) * 2 : reach_bytes(p); /* the last run's last tile of k */
  return cy_round64(cg, cy_addc(cg, cy_mulc(cg, row_bytes(cg, p), copied), behind));
}
static V packed_b_bytes(cy_cg *cg, const plan *p) { return cy_round64(cg, cy_mulc(cg, panel_bytes(cg, p), p->nb)); }
/* Of a panel's columns, where they are needed. */
static int64_t sums_bytes(const plan *p) { return columns_summed(p) ? p->nr * 4 : 0; }
static V worker_bytes(cy_cg *cg, const void *ctx) {
  const plan *p = ctx;
  V pack_b = p->pack_b ? cy_addc(cg, packed_b_bytes(cg, p), sums_bytes(p) * p->nb) : cy_i64(cg, 0);
  return cy_add(cg, rows_bytes(cg, p), pack_b);
}
static cy_task_grid pack_grid(cy_cg *cg, const void *of) {
  const plan *p = of;
  return (cy_task_grid){.products = cy_gemm_b_count(cg, &p->d->gemm), .columns = cy_axis_pieces(cg, panels(cg, p), TOGETHER)};
}
static V shared_bytes(cy_cg *cg, const void *ctx) {
  const plan *p = ctx;
  V bytes = cy_add(cg, matrix_bytes(cg, p), cy_mulc(cg, panels(cg, p), sums_bytes(p)));
  return p->packed || p->pack_b ? cy_i64(cg, 0) : cy_mul(cg, cy_gemm_b_count(cg, &p->d->gemm), bytes);
}

/* ---- packing b at run time ---- */

static cy_int_pack_b pack_b_of(cy_cg *cg, const plan *p) {
  return (cy_int_pack_b){.d = p->d,
                         .variant = p->variant,
                         .b_slot = p->b_slot,
                         .n = p->n,
                         .k = p->k,
                         .nr = p->nr,
                         .columns = columns(cg, p),
                         .depth = cy_int_gemm_k_size(cg, p),
                         .panel_bytes = panel_bytes(cg, p)};
}

/* Where a matrix' sums of columns begin behind all matrices. */
static V column_sums_at(cy_cg *cg, const plan *p, V all, V matrix) {
  V matrices = p->d->conv ? cy_i64(cg, p->groups) : cy_gemm_b_count(cg, &p->d->gemm);
  V sums = p->packed ? cy_i64(cg, sum_columns(cg, p)) : cy_mulc(cg, panels(cg, p), p->nr);
  V before = cy_mulc(cg, cy_mul(cg, matrix, sums), 4);
  return cy_gep(cg, all, cy_add(cg, cy_mul(cg, matrices, matrix_bytes(cg, p)), before));
}

static void pack_task(cy_cg *cg, void *of, const cy_task *t) {
  const plan *p = of;
  cy_int_pack_b pack_b = pack_b_of(cg, p);
  V matrix = t->product, p0 = t->columns.begin, p1 = t->columns.end;
  V at = cy_add(cg, cy_mul(cg, matrix, matrix_bytes(cg, p)), cy_mul(cg, p0, panel_bytes(cg, p)));
  V shared = cy_arg_ptr(cg, p->shared_slot), to = cy_gep(cg, shared, at);
  cy_int_pack_b_emit(cg, &pack_b, matrix, p0, p1, to);
  if (columns_summed(p))
    cy_int_pack_b_sums(cg, &pack_b, p0, p1, to,
                       cy_gep(cg, column_sums_at(cg, p, shared, matrix), cy_mulc(cg, p0, sums_bytes(p))));
}

/* ---- one task's place ---- */

static void position_index(void *ctx, cy_cg *cg, V row, V *idx) {
  const frame *f = ctx;
  int n = f->p->d->window.n_spatial;
  V position = cy_add(cg, f->row0, row), o[3];
  if (!cy_int_gemm_epilogue(f->p)->positions_join) {
    cy_int_gemm_split_position(cg, f->p, position, &idx[0], o);
    memcpy(idx + 1, o + 3 - n, (size_t)n * sizeof *o);
    return;
  }
  for (int i = 0; i < n; i++)
    idx[i] = cy_i64(cg, 0);
  idx[n] = position;
}

static cy_rows rows_of(const frame *f) {
  return f->p->d->conv ? (cy_rows){position_index, (void *)f, 1 + (unsigned)f->p->d->window.n_spatial}
                       : cy_matrix_rows_index(&f->at);
}

static void find_operands(cy_cg *cg, frame *f) {
  const plan *p = f->p;
  const cy_gemm_desc *g = &p->d->gemm;
  V a = cy_arg_ptr(cg, p->a_slot);
  if (!p->d->conv)
    f->at = cy_matrix_rows_at(cg, g, f->product, f->row0);
  V first = p->d->conv ? cy_mulc(cg, f->product, p->c) : cy_batch_offset(cg, f->at.idx, g->a_batch, g->n_batch);
  f->a = cy_int_gemm_elements_on(cg, p, a, first);
  V number = p->d->conv ? f->product : cy_gemm_b_number(cg, g, f->at.idx);
  V all = cy_arg_ptr(cg, p->packed ? p->b_slot : p->shared_slot);
  f->matrix = number;
  f->first = cy_gep(cg, all, cy_mul(cg, number, matrix_bytes(cg, p)));
  f->again = cy_gep(cg, f->first, cy_mulc(cg, cy_addc(cg, panels(cg, p), 1), 4));
  f->b = cy_gepc(cg, f->first, head_bytes(p));
  f->col0 = p->d->conv ? cy_mulc(cg, f->product, p->n) : cy_i64(cg, 0);
  f->column_sums = column_sums_at(cg, p, all, number);
}

/* Of `count` rows of a task: those of whole tiles with what they reach behind them. */
static V rows_to_stay(cy_cg *cg, const frame *f, V count) {
  const plan *p = f->p;
  if (!rows_in_place(p))
    return cy_i64(cg, 0);
  V behind = cy_sub(cg, rows(cg, p), f->row0), max = behind;
  if (reach_bytes(p))
    max = cy_imax(cg, cy_i64(cg, 0), cy_addc(cg, behind, -cy_ceil(reach_bytes(p), p->k)));
  return cy_mulc(cg, cy_div(cg, cy_imin(cg, count, max), cy_i64(cg, p->tile.mr)), p->tile.mr);
}

/* ---- the product of a task ---- */

/* The epilogue of dot4 and dot2. */
typedef struct finish {
  const cy_epilogue *inner;
  unsigned column; /* which of the indices */
  V start;         /* what is still to be added to accumulators, from output index 0 on; NULL: nothing */
  V row_sums;      /* .. and what zero points of b have added, from row 0 on; NULL: nothing */
  cy_int_pack_b pack_b;
} finish;

/* The epilogue on i32 accumulators, which come as bits of floats; those of bf16 are floats. */
static void finish_emit(void *ctx, cy_cg *cg, V acc, unsigned lanes, const V *idx) {
  const finish *f = ctx;
  LLVMTypeRef type = LLVMVectorType(cg->i32, lanes);
  acc = LLVMBuildBitCast(cg->b, acc, type, "");
  if (f->start)
    acc = LLVMBuildAdd(cg->b, acc, cy_load(cg, type, cy_gep(cg, f->start, cy_mulc(cg, idx[f->column], 4)), 4), "");
  if (f->row_sums) {
    V row_sum = cy_gep(cg, f->row_sums, cy_mulc(cg, idx[f->column - 1], 4));
    acc = cy_int_pack_b_less(cg, &f->pack_b, acc, row_sum, idx[f->column], lanes);
  }
  f->inner->emit(f->inner->ctx, cg, acc, lanes, idx);
}

/* A vector of the numbers that the descriptor gives, from column `first` of the task's matrix on. */
static V given_start(cy_cg *cg, const frame *f, V first) {
  const plan *p = f->p;
  V from = cy_gep(cg, cy_arg_ptr(cg, p->d->start_slot), cy_mulc(cg, cy_add(cg, f->col0, first), 4)), lane[16];
  if (p->n % p->nr == 0 && p->nr >= cg->W)
    return cy_load(cg, cg->vi, from, 4);
  for (unsigned i = 0; i < cg->W; i++)
    lane[i] = cy_i32(cg, i);
  V left = LLVMBuildTrunc(cg->b, cy_sub(cg, cy_i64(cg, p->n), first), cg->i32, "");
  V there = cy_icmp(cg, LLVMIntSLT, LLVMConstVector(lane, cg->W), cy_splat(cg, left, cg->W));
  return cy_load_masked(cg, cg->vi, from, there, 4);
}

/* What the accumulators of panels [p0, p1) begin with: what is given, less what zero point and shift will add. */
static void emit_start(cy_cg *cg, const frame *f, V p1) {
  const plan *p = f->p;
  V zero = NULL, p0 = f->p0;
  if (columns_summed(p))
    zero = cy_splat(cg, LLVMBuildNeg(cg->b, cy_int_gemm_widened(cg, f->convert.zero), ""), cg->W);
  V sums = cy_gep(cg, f->column_sums, cy_mulc(cg, p0, p->nr * 4));
  V first = cy_mulc(cg, p0, p->nr), end = cy_mulc(cg, p1, p->nr);
  if (p->last < p->nr)
    end = cy_imin(cg, end, cy_i64(cg, sum_columns(cg, p)));
  cy_loop l;
  cy_loop_begin(cg, &l, cy_i64(cg, 0), cy_mulc(cg, cy_sub(cg, end, first), 4), cy_i64(cg, cg->W * 4), NULL, 0);
  V v = LLVMConstNull(cg->vi);
  if (columns_summed(p))
    v = LLVMBuildMul(cg->b, zero, cy_load(cg, cg->vi, cy_gep(cg, sums, l.iv), 4), "");
  if (p->d->started)
    v = LLVMBuildAdd(cg->b, v, given_start(cg, f, cy_add(cg, first, cy_div(cg, l.iv, cy_i64(cg, 4)))), "");
  cy_store(cg, v, cy_gep(cg, f->start, l.iv), 4);
  cy_loop_end(cg, &l, NULL);
}

/* What tiles are handed to: the epilogue of bf16, or `ints` around that of integers. */
static cy_epilogue tile_epilogue(cy_cg *cg, const frame *f, finish *ints) {
  const plan *p = f->p;
  cy_epilogue e = *cy_int_gemm_epilogue(p);
  *ints = (finish){cy_int_gemm_epilogue(p), rows_of(f).n_idx, NULL, NULL, pack_b_of(cg, p)};
  if (p->variant.amx && p->variant.starts) {
    V before = cy_add(cg, f->col0, cy_mulc(cg, f->p0, p->nr));
    ints->start = cy_gep(cg, f->start, cy_mulc(cg, before, -4));
  }
  if (rows_summed(p))
    ints->row_sums = cy_gep(cg, f->row_sums, cy_mulc(cg, f->row0, -4));
  if (!p->variant.bf16)
    e = (cy_epilogue){.emit = finish_emit, .ctx = ints, .wide = cy_int_gemm_wide(cg, p->n)};
  if (!p->variant.bf16 && !p->variant.amx && p->nr == p->n && !ints->row_sums) {
    e.flat = ints->inner->flat;
    e.together = cy_int_gemm_together(cg, p->variant, ints->inner, p->n);
  }
  e.all_wide = e.wide && p->unit * p->nr % (WIDE * cg->W) == 0 && p->n % (WIDE * cg->W) == 0;
  return e;
}

/* Rows of the task from `row` on, of `count`, where they lie. */
static void place_tile(cy_cg *cg, const frame *f, V row, V count, cy_int_gemm_tile *t) {
  const plan *p = f->p;
  V MR = cy_i64(cg, p->tile.mr);
  t->row0 = row;
  t->table = f->row_table;
  t->rows = cy_imin(cg, MR, cy_sub(cg, count, row));
  if (p->variant.prefetch) {
    t->number = cy_div(cg, row, MR);
    t->tiles = cy_ceil_div(cg, count, MR);
  }
  if (p->row_block) {
    t->a = p->in_input ? f->a : f->scratch;
    t->table = cy_gep(cg, f->offsets, cy_mulc(cg, row, 8));
  } else {
    t->a = cy_gep(cg, f->rows, cy_mul(cg, row, f->row_bytes));
  }
  if (rows_in_place(p)) {
    V there = cy_int_gemm_elements_on(cg, p, f->a, cy_mulc(cg, cy_add(cg, f->row0, row), p->k));
    t->a = cy_select(cg, cy_icmp(cg, LLVMIntSLT, row, f->stay), there, t->a);
  }
}

static void emit_product(cy_cg *cg, const frame *f, V count, V end_panel) {
  const plan *p = f->p;
  int64_t group = group_choose(cg, p);
  V ldc = cy_i64(cg, group * p->nr * 4), acc = cy_alloca(cg, p->tile.mr * group * p->nr * 4);
  cy_rows index = rows_of(f);
  finish ints;
  cy_epilogue epilogue = tile_epilogue(cg, f, &ints);
  cy_loop g, r;
  cy_loop_begin(cg, &g, f->p0, end_panel, cy_i64(cg, group), NULL, 0);
  V end = cy_imin(cg, end_panel, cy_addc(cg, g.iv, group)), col = cy_mulc(cg, g.iv, p->nr), col0 = cy_add(cg, f->col0, col);
  V cols = cy_sub(cg, cy_imin(cg, columns(cg, p), cy_mulc(cg, end, p->nr)), col);
  cy_loop_begin(cg, &r, cy_i64(cg, 0), count, cy_i64(cg, p->tile.mr), NULL, 0);
  cy_int_gemm_tile t = {.acc = acc, .ldc = ldc, .end = end};
  place_tile(cg, f, r.iv, count, &t);
  if (cy_int_gemm_inline_pays(cg, p)) {
    cy_int_gemm_inline_emit(cg, f, &t, &index, epilogue.together, g.iv, end);
  } else {
    cy_int_gemm_tile_emit(cg, f, &t, g.iv, end);
    cy_epilogue_tile(cg, &epilogue, &index, acc, ldc, t.rows, r.iv, cols, col0,
                     p->n ? (unsigned)(p->n % cg->W) : cg->W);
  }
  cy_loop_end(cg, &r, NULL);
  cy_loop_end(cg, &g, NULL);
}

/* Packs panels [p0, p1) behind the rows. */
static void emit_pack_b(cy_cg *cg, frame *f, V p1) {
  const plan *p = f->p;
  V p0 = f->p0, to = cy_gep(cg, f->scratch, rows_bytes(cg, p));
  cy_int_pack_b pack_b = pack_b_of(cg, p);
  cy_int_pack_b_emit(cg, &pack_b, f->matrix, p0, p1, to);
  if (columns_summed(p)) {
    V sums = cy_gep(cg, to, packed_b_bytes(cg, p));
    cy_int_pack_b_sums(cg, &pack_b, p0, p1, to, sums);
    f->column_sums = cy_gep(cg, sums, cy_mulc(cg, p0, -sums_bytes(p)));
  }
  f->b = cy_gep(cg, to, cy_sub(cg, cy_i64(cg, 0), cy_mul(cg, p0, f->panel_bytes)));
}

/* Copies the task's rows, those of this number, unless the task before had the same, or they are kept. */
static void emit_copy(cy_cg *cg, const frame *f, V number, V count) {
  cy_if s;
  V last = keeps_rows(cg, f->p) ? cy_gep(cg, f->copied, cy_mulc(cg, number, 8)) : f->copied;
  cy_if_begin(cg, &s, cy_icmp(cg, LLVMIntNE, cy_load(cg, cg->i64, last, 8), number));
  cy_int_gemm_copy_rows(cg, f, count);
  cy_store(cg, number, last, 8);
  cy_if_end(cg, &s);
}

static void emit_task(cy_cg *cg, void *frame_of, const cy_task *t) {
  frame *f = frame_of;
  const plan *p = f->p;
  f->product = t->product;
  f->p0 = t->columns.begin;
  f->row0 = t->rows.begin;
  find_operands(cg, f);
  V count = cy_sub(cg, t->rows.end, f->row0);
  f->stay = rows_to_stay(cg, f, count);
  f->rows = f->scratch;
  if (only_last_copied(cg, p))
    f->rows = cy_gep(cg, f->scratch, cy_mul(cg, f->stay, LLVMBuildNeg(cg->b, f->row_bytes, "")));
  else if (keeps_rows(cg, p))
    f->rows = cy_gep(cg, f->scratch, cy_mul(cg, f->row0, f->row_bytes));
  emit_copy(cg, f, cy_add(cg, cy_mul(cg, f->product, grid_of(cg, p).rows.blocks), t->row_block), count);
  if (p->pack_b)
    emit_pack_b(cg, f, t->columns.end);
  if (p->variant.starts)
    emit_start(cg, f, t->columns.end);
  if (rows_summed(p)) {
    cy_int_pack_b pack_b = pack_b_of(cg, p);
    cy_int_pack_b_rows(cg, &pack_b, f->convert.zero, f->scratch, f->row_bytes, count, f->row_sums);
  }
  emit_product(cg, f, count, t->columns.end);
}

/* ---- the generator ---- */

static bool packs_b(const void *of) { return !((const plan *)of)->packed && !((const plan *)of)->pack_b; }

CY_PLAN_MAKE(plan)

static const char *name_of(const void *of) {
#define CY_GROUP_KERNEL(id, symbol, text, ...) {"gemm " text, "conv " text},
  static const char *const names[][2] = {
#include "codegen/cpu/microkernels.def"
  };
  const plan *p = of;
  bool conv = p->d->conv, bf16 = p->variant.bf16;
  if (p->variant.amx)
    return bf16 ? (conv ? "conv bf16 amx" : "gemm bf16 amx") : conv ? "conv int8 amx" : "gemm int8 amx";
  if (!conv && !p->packed && !bf16 && !p->variant.dot4)
    return "gemm int8";
  return names[cy_group_kernel_id(p->variant)][conv];
}

static void emit(cy_cg *cg, const void *of, const char *name) {
  const plan *p = of;
  V scratch = cy_phase_begin(cg, name, 0, cy_int_gemm_epilogue(p), p->scratch_slot, worker_bytes, p);
  frame f = {.p = p, .convert = cy_int_gemm_rows_begin(cg, p->variant, p->d), .scratch = scratch, .row_bytes = row_bytes(cg, p)};
  f.row_table = cy_row_table(cg, p->tile.mr, f.row_bytes);
  f.offsets = cy_gepc(cg, f.scratch, p->row_block_bytes);
  f.panel_bytes = panel_bytes(cg, p);
  f.tables = cy_int_gemm_tables_of(cg, p);
  f.start = cy_alloca(cg, p->variant.starts ? cy_round_up(p->nb * p->nr, cg->W) * 4 : 4);
  f.row_sums = cy_alloca(cg, rows_summed(p) ? p->mb * 4 : 4);
  int64_t kept = keeps_rows(cg, p) ? cy_ceil(p->rows, p->mb) : 1;
  f.copied = cy_alloca(cg, kept * 8);
  for (int64_t i = 0; i < kept; i++)
    cy_store(cg, cy_i64(cg, -1), cy_gepc(cg, f.copied, i * 8), 8);
  if (p->variant.amx)
    cy_int_gemm_amx_begin(cg);
  cy_tasks_emit(cg, grid_of, p, emit_task, &f);
  if (p->variant.amx)
    cy_int_gemm_amx_end(cg);
  cy_fn_end(cg, NULL);
}

static void describe(const void *of, char *text, size_t size) {
  const plan *p = of;
  snprintf(text, size, "tile %ux%lld, tasks of %lld rows and %lld panels%s%s%s", p->tile.mr, (long long)p->nr,
           (long long)p->mb, (long long)p->nb, p->row_block ? ", taps by rows of the feature map" : "",
           cy_int_gemm_each(p->variant) > 1 ? ", lanes are k, too" : "", p->variant.shuffled ? ", taps of zeros left out" : "");
}

void cy_int_gemm_variants(const cy_cg *cg, const cy_int_gemm_desc *d, cy_variants *v) {
  plan p = plan_of(cg, d);
  v->kinds = d->conv ? CY_OF_INT_DIRECT : CY_OF_INT_PLAIN;
  v->base = d->conv ? CY_BASE_DIRECT : CY_BASE_PLAIN;
  v->tile = p.tile;
  v->rows = p.variant.amx || cy_int_gemm_each(p.variant) > 1 || p.variant.shuffled ? 0 : p.rows;
  v->n = p.n;
}

const cy_generator cy_int_gemm_generator = {
    .plan = plan_make,
    .pack = pack,
    .name = name_of,
    .describe = describe,
    .phase = {{"_pack", packs_b, .grid = pack_grid, .body = pack_task}, {"", NULL, emit, .grid = grid_of}},
    .worker_bytes = worker_bytes,
    .shared_bytes = shared_bytes};
