/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - attention without its matrix of scores: a block takes some rows of one head and goes through the keys.
 *
 * In: a contraction kernel of kind ATTENTION (ir/loop/loop.h). Out: its schedule and its C text. Neighbouring batch axes along
 * which keys and values stand still are counted as one run of rows, so heads that share keys share what is loaded.
 * For each tile of keys: scores = q k^T, changed and weighed by the kernel's loop IR, then result += weights v. The
 * greatest score of a row and the sum of its weights are kept; where a greater score turns up, sum and result so far
 * are scaled down. Keys that causality or a window hide from all rows of a block are not looked at. Memory does not
 * depend on the number of keys. Where there are too few rows to fill a device, as when a model writes token by token,
 * blocks share the keys, and a second kernel puts together what they found (see split.c). How many do is decided when the
 * kernel runs, by the host and the kernel alike, if rows or keys are symbols. What a block does with the tiles is text of
 * attention_text.c.
 *
 *   f16, bf16   by matrix instructions: a warp has 16 rows and all keys of a tile, or, where there are few rows, a part
 *               of the keys, and the warps' results are put together in the end. Weights become halves between the
 *               products, as results of a half-precision softmax are. On sm_90a the four warps of a tile of 64 rows
 *               multiply as a warpgroup (wgmma) where heads have 64 or 128 columns (queries and keys: a multiple of
 *               64): in the same fragments, with weights in registers and all else in shared memory.
 *   f32, TF32   the same, where TF32 is allowed
 *   f32         by ordinary FMAs: a thread has a few rows, every 16th key and every 16th quad of columns
 *
 * Tiles lie in shared memory in rows of an odd number of 16-byte chunks, so that the same chunk of eight rows is in
 * eight different banks; for warpgroups in blocks of 64 columns, swizzled, which takes less. What is loaded of keys and
 * values serves all rows of a block, and the second-level cache gives a multiprocessor some 40 bytes per cycle: so a
 * block has 128 rows where that still fills the device.
 */
#include "codegen/cuda/matrix/contract_int.h"

#include <math.h>
#include <string.h>

#define LOG2_E 1.4426950408889634

enum {
  CHUNK = 16,
  MAX_SIZE = 256,
  THREADS = 256,
  MANY_ROWS = 64, /* and keys, of most shapes */
  MAX_SHARES = 32,
  MIN_TILES = 2, /* of keys, for each share */
  FEW_EACH = 2   /* blocks of a multiprocessor, where they have few rows: those wait for memory, others multiply */
};

/* ---- the kernel as rows and keys ---- */

typedef struct view {
  int64_t size, columns; /* of a head: of q and k, of v */
  int shared;            /* trailing batch axes of one key head */
  cy_dim rows, heads;    /* of a run; runs */
  cy_dtype type;
  bool matrix; /* by matrix instructions */
} view;

/* False: none that is supported. */
static bool view_of(cy_kernel *k, bool tf32, view *out) {
  const cy_contraction *c = cy_kernel_contraction(k);
  cy_graph *g = cy_kernel_graph(k);
  const cy_karg_info *args;
  cy_kernel_args(k, &args);
  *out = (view){.rows = c->m, .heads = cy_dim_const(g, 1), .type = c->rounded ? c->rounded : args[c->a].dtype};
  out->matrix = tf32 || out->type != CY_F32;
  out->shared = cy_cu_attention_shared(k);
  for (int i = 0; i < c->nbatch; i++) {
    cy_dim *of = i < c->nbatch - out->shared ? &out->heads : &out->rows;
    *of = cy_dim_mul(g, *of, c->batch[i]);
  }
  bool rounds = c->rounded && args[c->a].dtype == CY_F32;
  return (out->type == CY_F16 || out->type == CY_BF16 || out->type == CY_F32) &&
         (rounds || args[c->a].dtype == out->type) &&
         (args[c->b].dtype == out->type || (c->rounded && args[c->b].dtype == CY_F32)) &&
         args[c->v].dtype == args[c->b].dtype && cy_kernel_local_dtype(k, c->acc) == CY_F32 &&
         cy_dim_is_const(g, c->k, &out->size) && cy_dim_is_const(g, c->n, &out->columns) && out->size > 0 &&
         out->size <= MAX_SIZE && out->columns > 0 && out->columns <= MAX_SIZE;
}

static bool supports(const cy_machine *m, cy_kernel *k) {
  view v;
  return cy_kernel_contraction(k)->kind == CY_CONTRACT_ATTENTION && view_of(k, m->tf32, &v);
}

/* ---- choosing ---- */

/* Rows and keys of a tile; warps along rows and along keys, and tiles in flight: of matrix instructions. */
typedef struct shape {
  int rows, keys, warps_m, warps_n, stages;
} shape;
static const shape matrix_many[] = {{128, 64, 8, 1, 2}, {128, 32, 8, 1, 2}},
                   matrix_shapes[] = {{64, 64, 4, 1, 2},
                                      {64, 32, 4, 1, 2},
                                      {64, 32, 4, 1, 1},
                                      {32, 32, 2, 1, 1},
                                      {16, 16, 1, 1, 1}},
                   matrix_few[] = {{16, 64, 1, 4, 2}, {16, 64, 1, 4, 1}, {16, 32, 1, 2, 1}, {16, 16, 1, 1, 1}},
                   plain_shapes[] = {{64, 64, 0, 0, 0}, {64, 32, 0, 0, 0}, {32, 32, 0, 0, 0}, {32, 16, 0, 0, 0}},
                   plain_few[] = {{16, 64, 0, 0, 0}, {16, 32, 0, 0, 0}};

static int up(int64_t n, int to) { return (int)cy_round_up(n, to); }
static int elements(cy_dtype t) { return CHUNK * 8 / cy_dtype_of(t)->bits; } /* of a chunk */

/* Chunks from row to row of a tile whose rows have `size` elements. */
static int row_chunks(const view *v, int64_t size) {
  int chunk = elements(v->type);
  return up(size, v->matrix ? 16 : chunk) / chunk | 1;
}

/* Floats from row to row of the results in shared memory: the warp that stores them meets few banks twice. */
static int results_row(const view *v) { return up(v->columns, 16) + 8; }

static int shared_bytes(const view *v, const shape *s) {
  int q = row_chunks(v, v->size), r = row_chunks(v, v->columns);
  if (!v->matrix)
    return CHUNK * (s->rows * q + s->keys * (q > r ? q : r) + s->rows * (s->keys / 4 | 1));
  int tiles = CHUNK * (s->rows * q + s->stages * s->keys * (q + r));
  int results = 4 * s->warps_n * s->rows * (results_row(v) + 2); /* and the greatest score and the sum of each */
  return tiles > results ? tiles : results;
}

/* KB of shared memory that a block may take from an architecture on: half of what a multiprocessor has, or what a block
 * can have. */
static const struct {
  int arch, shared;
} memories[] = {{75, 64}, {80, 81}, {86, 99}, {87, 81}, {88, 99}, {90, 113}, {120, 99}};

static int max_shared(const cy_machine *m) {
  const cy_cuda_machine *c = m->state;
  int max = c && c->narch ? INT32_MAX : memories[0].shared;
  for (int i = 0; c && i < c->narch; i++) {
    int own = memories[0].shared;
    for (size_t r = 0; r < sizeof memories / sizeof *memories; r++)
      own = c->arch[i].number >= memories[r].arch ? memories[r].shared : own;
    max = own < max ? own : max;
  }
  return max << 10;
}

/* The first shape of those with many rows that fits, or NULL: it does not, or leaves multiprocessors idle. */
static const shape *choose_many(const cy_machine *m, cy_kernel *k, const view *v) {
  cy_graph *g = cy_kernel_graph(k);
  double rows = cy_cu_estimate(g, v->rows, 512), heads = cy_cu_estimate(g, v->heads, 8);
  for (size_t i = 0; v->matrix && i < sizeof matrix_many / sizeof *matrix_many; i++)
    if (shared_bytes(v, &matrix_many[i]) <= max_shared(m) &&
        heads * floor(rows / matrix_many[i].rows) >= cy_cu_wanted_blocks(m))
      return &matrix_many[i];
  return NULL;
}

/* Are shapes of few rows better? They take twice as long for a row; so where four times as many blocks all have a
 * multiprocessor to themselves, although other shapes would share keys. */
static bool few_rows(const cy_machine *m, cy_kernel *k, const view *v) {
  cy_graph *g = cy_kernel_graph(k);
  int64_t rows, heads, keys;
  if (cy_cu_estimate(g, v->rows, 512) <= CY_CUDA_FEW_QUERIES)
    return true;
  return cy_dim_is_const(g, v->rows, &rows) && cy_dim_is_const(g, v->heads, &heads) &&
         cy_dim_is_const(g, cy_kernel_contraction(k)->keys, &keys) &&
         heads * cy_ceil(rows, MANY_ROWS) * (1 + keys / (2 * MANY_ROWS * MIN_TILES)) * 4 <= cy_cu_wanted_blocks(m);
}

static const shape *choose(const cy_machine *m, cy_kernel *k, const view *v) {
  bool few = few_rows(m, k, v);
  const shape *s = choose_many(m, k, v);
  if (s)
    return s;
  s = v->matrix ? few ? matrix_few : matrix_shapes : few ? plain_few : plain_shapes;
  while (shared_bytes(v, s) > memories[0].shared << 10) /* the last one fits always */
    s++;
  return s;
}

/* May the block be warpgroups on sm_90a? Its tiles then lie in blocks of 64 columns. */
static bool by_warpgroup(const view *v, const cy_cuda_tile *t) {
  int size = up(v->size, 16), columns = up(v->columns, 16);
  return v->type != CY_F32 && t->m % 64 == 0 && t->thread_n == 1 && size % 64 == 0 && (columns == 64 || columns == 128);
}

static int share_blocks(const cy_machine *m, const cy_cuda_schedule *schedule) {
  return cy_cu_wanted_blocks(m) * (schedule->tile.m <= CY_CUDA_FEW_QUERIES ? FEW_EACH : 1);
}

/* How many blocks share the keys of a tile of rows: no more than fill the device, each with some tiles of keys. The kernel
 * counts alike (shares_function). */
static cy_dim shares_of(const cy_machine *m, cy_kernel *k, const cy_cuda_schedule *schedule) {
  cy_graph *g = cy_kernel_graph(k);
  const cy_contraction *c = cy_kernel_contraction(k);
  cy_dim one = cy_dim_const(g, 1), blocks = cy_dim_const(g, share_blocks(m, schedule));
  cy_dim seen = c->window ? cy_dim_min(g, c->keys, cy_dim_const(g, c->window + schedule->tile.m)) : c->keys;
  cy_dim max = cy_dim_div(g, seen, cy_dim_const(g, (int64_t)schedule->tile.n * MIN_TILES));
  cy_dim wanted = cy_dim_div(g, blocks, cy_dim_max(g, schedule->blocks, one));
  return cy_dim_max(g, cy_dim_min(g, cy_dim_min(g, wanted, max), cy_dim_const(g, MAX_SHARES)), one);
}

/* Has blocks share keys; how many there are where they need not: those the kernel by tensor maps may do. */
static cy_dim share(const cy_machine *m, cy_kernel *k, const view *v, cy_cuda_schedule *schedule) {
  cy_graph *g = cy_kernel_graph(k);
  cy_dim one = cy_dim_const(g, 1), rows = cy_dim_mul(g, v->heads, v->rows), shares = shares_of(m, k, schedule);
  int64_t min, max, known;
  cy_dim_range(g, shares, &min, &max);
  if (max < 2)
    return schedule->blocks;
  schedule->shares = (int)max;
  schedule->share_blocks = share_blocks(m, schedule);
  schedule->shares_vary = min != max;
  schedule->share_elems = (int64_t)schedule->share_blocks * schedule->tile.m * (v->columns + 2);
  if (!schedule->shares_vary && cy_dim_is_const(g, rows, &known))
    schedule->share_elems = schedule->shares * known * (v->columns + 2);
  cy_dim more = cy_dim_min(g, cy_dim_sub(g, shares, one), one), results = cy_dim_muli(g, rows, v->columns);
  cy_dim alone = cy_dim_mul(g, schedule->blocks, cy_dim_sub(g, one, more));
  schedule->blocks = cy_dim_mul(g, schedule->blocks, shares);
  schedule->combine_blocks = cy_dim_mul(g, more, cy_dim_cdiv(g, results, cy_dim_const(g, CY_CUDA_COMBINE_THREADS)));
  return alone;
}

/* ---- what the kernel says of scores ---- */

/* Is a weight e^(score - top), written as lowering writes it? Equal expressions have one number. */
static bool weighs_by_exp(cy_kernel *k) {
  const cy_contraction *c = cy_kernel_contraction(k);
  const cy_stmt *set = cy_kernel_body(k)->next->body;
  cy_expr below = cy_x_bin(k, CY_OP_sub, cy_x_local(k, c->score), cy_x_local(k, c->top));
  return set && !set->next && set->kind == CY_S_SET && set->value == cy_x_exp_below(k, below);
}

/* Do scores stay as they are multiplied, but for the scale, which a weight's exponent can take in, and but for those that
 * causality hides, as lowering writes that? */
static bool scores_raw(cy_kernel *k, bool *out_hides) {
  const cy_contraction *c = cy_kernel_contraction(k);
  const cy_stmt *set = cy_kernel_body(k)->body;
  cy_expr score = cy_x_local(k, c->score);
  *out_hides = set && c->causal;
  if (c->scale <= 0 || !set)
    return c->scale > 0;
  cy_expr last = cy_x_bin(k, CY_OP_add, cy_x_var(k, c->out_var[c->nbatch]), cy_x_dim(k, c->past));
  cy_expr seen = cy_x_bin(k, CY_OP_le, cy_x_var(k, c->key), last);
  return *out_hides && !set->next && set->kind == CY_S_SET &&
         set->value == cy_x_select(k, seen, score, cy_x_const(k, CY_F32, -__builtin_inf()));
}

static void make_schedule(const cy_machine *m, cy_kernel *k, cy_cuda_schedule *schedule) {
  cy_graph *g = cy_kernel_graph(k);
  view v;
  view_of(k, m->tf32, &v);
  const shape *s = choose(m, k, &v);
  schedule->kind = CY_CUDA_TILES;
  schedule->tile = (cy_cuda_tile){s->rows, s->keys, (int)v.size, s->warps_m, s->warps_n};
  schedule->threads = v.matrix ? s->warps_m * s->warps_n * 32 : THREADS;
  schedule->stages = s->stages;
  schedule->warpgroups = by_warpgroup(&v, &schedule->tile);
  schedule->min_arch = v.matrix && v.type != CY_F16 ? 80 : 0;
  schedule->shared_bytes = shared_bytes(&v, s);
  schedule->max_blocks = INT32_MAX / 128;
  schedule->blocks = cy_dim_mul(g, v.heads, cy_dim_cdiv(g, v.rows, cy_dim_const(g, s->rows)));
  cy_dim alone = share(m, k, &v, schedule);
  bool hides;
  if (v.matrix && !cy_kernel_contraction(k)->rounded && weighs_by_exp(k) && scores_raw(k, &hides))
    cy_cu_attention_tma_schedule(m, k, v.shared, alone, schedule);
}

/* ---- printing: what the kernel says of scores, where operands are ---- */

static void print_index(cy_cu_contract *q) {
  cy_cu *p = q->p;
  const cy_contraction *c = q->c;
  cy_var m = c->out_var[c->nbatch];
  cy_cu_locals(p);
  cy_cu_unravel(p, c->out_var, (uint32_t)c->nbatch, "z");
  cy_cu_line(p, "const %s v%u = m;", cy_cu_var_type(p, m), m);
  cy_cu_line(p, "const %s v%u = key;", cy_cu_var_type(p, c->key), c->key);
}

/* f32 <symbol>_change(.., score), <symbol>_weigh(.., score, top) */
static void print_scores(cy_cu_contract *q) {
  const cy_contraction *c = q->c;
  const cy_stmt *change = cy_kernel_body(q->p->k), *weigh = change->next;
  cy_cu_function_open(q, "CY_INLINE f32 $S_change($P, int z, int m, int key, f32 score) {\n");
  print_index(q);
  cy_cu_line(q->p, "l%u = score;", c->score);
  cy_cu_list(q->p, change->body);
  cy_cu_line(q->p, "return l%u;", c->score);
  cy_cu_function_close(q);
  cy_cu_function_open(q, "CY_INLINE f32 $S_weigh($P, int z, int m, int key, f32 score, f32 top) {\n");
  print_index(q);
  cy_cu_line(q->p, "l%u = score;", c->score);
  cy_cu_line(q->p, "l%u = top;", c->top);
  cy_cu_list(q->p, weigh->body);
  cy_cu_line(q->p, "return l%u;", c->score);
  cy_cu_function_close(q);
}

/* i64 <symbol>_<name>_at(.., z, row): where a row of an operand begins. */
static void print_place(cy_cu_contract *q, const char *head, cy_dim row, const cy_dim *batch) {
  cy_cu *p = q->p;
  cy_cu_function_open(q, head);
  cy_cu_line(p, "i64 at = (i64)row * %s;", cy_cu_dim(p, row));
  cy_cu_print_batch(q, batch);
  cy_cu_line(p, "return at;");
  cy_cu_function_close(q);
}

static void print_functions(cy_cu_contract *q) {
  const cy_contraction *c = q->c;
  print_scores(q);
  print_place(q, "CY_INLINE i64 $S_q_at($P, int z, int row) {\n", c->a_m, c->a_batch);
  print_place(q, "CY_INLINE i64 $S_k_at($P, int z, int row) {\n", c->b_n, c->b_batch);
  print_place(q, "CY_INLINE i64 $S_v_at($P, int z, int row) {\n", c->v_k, c->v_batch);
  cy_cu_contract_put(q);
}

/* Blocks that share the keys of a tile of rows. */
static const char shares_function[] =
    "CY_INLINE int $S_shares(i64 tiles, int keys) {\n"
    "  const int seen = WINDOW && keys > WINDOW + BM ? WINDOW + BM : keys, most = seen / SHARE_KEYS;\n"
    "  const i64 n = SHARE_BLOCKS / tiles < most ? SHARE_BLOCKS / tiles : most;\n"
    "  return n < 1 ? 1 : n < SHARES ? (int)n : SHARES;\n"
    "}\n\n";

/* Rows [r0, r0 + BM) of a run may see keys [*lo, *hi), of which this is the part of a share. */
static const char range_function[] =
    "CY_INLINE void $S_range(int shares, int share, int r0, int M, int R, i64 keys, i64 past, int *lo, int *hi) {\n"
    "  const int r1 = (r0 + BM < R ? r0 + BM : R) - 1;\n"
    "  const b1 same = r0 / M == r1 / M;\n"
    "  const i64 end = (same ? r1 % M : M - 1) + past + 1, begin = (same ? r0 % M : 0) + past + 1 - WINDOW;\n"
    "  *hi = (int)(!CAUSAL || end > keys ? keys : end < 0 ? 0 : end);\n"
    "  *lo = (int)(!WINDOW || begin < 0 ? 0 : begin);\n"
    "  if (shares > 1) {\n"
    "    const int part = ((*hi - *lo + BN - 1) / BN + shares - 1) / shares * BN;\n"
    "    *lo += share * part;\n"
    "    *hi = *lo + part < *hi ? *lo + part : *hi;\n"
    "  }\n"
    "}\n\n";

/* The end of one result of row r of a run: what weights and values add up to, the greatest score, the sum of weights. A
 * share's lie in scratch as [share][row of all runs][DV + 2]. */
static const char end_function[] =
    "CY_INLINE void $S_end($P, int shares, int share, int all, int R, int M, int S, i64 keys, int z, int r, int n,\n"
    "                      f32 value, f32 top, f32 sum) {\n"
    "#if SHARES > 1\n"
    "  if (shares > 1) {\n"
    "    f32 *const to = PARTS + ((i64)share * all + (i64)(z / S) * R + r) * (DV + 2);\n"
    "    to[n] = value;\n"
    "    if (n == 0) {\n"
    "      to[DV] = top;\n"
    "      to[DV + 1] = sum;\n"
    "    }\n"
    "    return;\n"
    "  }\n"
    "#endif\n"
    "  $S_put($N, z + r / M, r % M, n, top == cy_f32_bits(0xff800000u) ? EMPTY : value / sum);\n"
    "}\n\n";

/* What combines shares: a thread per result. */
static const char combine_body[] =
    "  const int R = M * S, shares = $S_shares((i64)(all / R) * ((R + BM - 1) / BM), keys);\n"
    "  const i64 at = CY_BLOCK * NT + CY_TID, row = at / DV;\n"
    "  const int n = (int)(at % DV), r = (int)(row % R), z = (int)(row / R) * S + r / M;\n"
    "  const f32 none = cy_f32_bits(0xff800000u);\n"
    "  if (row >= all)\n"
    "    return;\n"
    "  f32 top = none, value = 0, sum = 0;\n"
    "  CY_UNROLL_BY(8)\n"
    "  for (int s = 0; s < shares; s++) {\n"
    "    const f32 own = PARTS[(s * (i64)all + row) * (DV + 2) + DV];\n"
    "    top = own > top ? own : top;\n"
    "  }\n"
    "  CY_UNROLL_BY(8)\n"
    "  for (int s = 0; s < shares; s++) {\n"
    "    const f32 *const part = PARTS + (s * (i64)all + row) * (DV + 2);\n"
    "    const f32 share = WEIGH(z, r % M, 0, part[DV], top == none ? 0 : top);\n"
    "    value += part[n] * share;\n"
    "    sum += part[DV + 1] * share;\n"
    "  }\n"
    "  $S_put($N, z, r % M, n, top == none ? EMPTY : value / sum);\n";

/* Chunk c of a row of `size` elements, which lie `step` apart. */
static const char chunk_body[] =
    "i64 step, int c, int size, b1 inside, cy_chunk *to) {\n"
    "  const int left = inside ? size - c * CH : 0, n = left < 0 ? 0 : left < CH ? left : CH;\n"
    "  if (wide) {\n"
    "    if (size % CH == 0)\n"
    "      cy_copy_async_if(to, row + c * CH, n > 0);\n"
    "    else\n"
    "      cy_copy_async(to, n ? row + c * CH : row, n * EB);\n"
    "    return;\n"
    "  }\n"
    "  cy_chunk v = {{0, 0, 0, 0}};\n"
    "  CY_UNROLL\n"
    "  for (int e = 0; e < CH; e++)\n"
    "    if (e < n)\n"
    "      PUT(&v, e, BITS(row[(c * CH + e) * step]));\n"
    "  cy_chunk_store(to, v);\n"
    "}\n\n";

/* The same of floats that are rounded to halves: CH of those are two chunks here. */
static const char rounded_chunk_body[] =
    "i64 step, int c, int size, b1 inside, cy_chunk *to) {\n"
    "  const int left = inside ? size - c * CH : 0, n = left < 0 ? 0 : left < CH ? left : CH;\n"
    "  cy_chunk v = {{0, 0, 0, 0}};\n"
    "  if (wide && n == CH) {\n"
    "    const cy_chunk a = cy_chunk_load((const cy_chunk *)(row + c * CH)),\n"
    "                   b = cy_chunk_load((const cy_chunk *)(row + c * CH + 4));\n"
    "    CY_UNROLL\n"
    "    for (int i = 0; i < 2; i++) {\n"
    "      v.word[i] = PACK(cy_f32_bits(a.word[i * 2]), cy_f32_bits(a.word[i * 2 + 1]));\n"
    "      v.word[i + 2] = PACK(cy_f32_bits(b.word[i * 2]), cy_f32_bits(b.word[i * 2 + 1]));\n"
    "    }\n"
    "  } else {\n"
    "    CY_UNROLL\n"
    "    for (int e = 0; e < CH; e += 2)\n"
    "      if (e < n)\n"
    "        v.word[e / 2] = PACK(row[(c * CH + e) * step], e + 1 < n ? row[(c * CH + e + 1) * step] : 0.0f);\n"
    "  }\n"
    "  cy_chunk_store(to, v);\n"
    "}\n\n";

/* What both schedules begin with: the block's rows, and its queries on their way. */
static const char block_head[] =
    "  CY_DYNAMIC(memory);\n"
    "  cy_chunk *const queries = (cy_chunk *)memory, *const tiles = queries + BM * QC;\n"
    "  const int R = M * S, down = (R + BM - 1) / BM;\n"
    "#if SHARES > 1\n"
    "  const int shares = $S_shares((i64)(all / R) * down, keys), share = (int)(CY_BLOCK % shares);\n"
    "#else\n"
    "  const int shares = 1, share = 0;\n"
    "#endif\n"
    "  const int tile = (int)(CY_BLOCK / shares), z = tile / down * S;\n"
    "  const int r0 = (down - 1 - tile % down) * BM; /* with causality the longest come first */\n"
    "  const $Y *const k = $B + $S_k_at($N, z, 0), *const v = $V + $S_v_at($N, z, 0);\n"
    "  int lo, hi;\n"
    "  $S_range(shares, share, r0, M, R, keys, past, &lo, &hi);\n"
    "  for (int q = CY_TID; q < BM * (DP / CH); q += NT) {\n"
    "    const int row = q / (DP / CH), r = r0 + row < R ? r0 + row : R - 1;\n"
    "    Q_CHUNK(wide_q, $A + $S_q_at($N, z + r / M, r % M), q_step, q % (DP / CH), D, r0 + row < R,\n"
    "             &queries[PLACE(row, q % (DP / CH), QC, BM)]);\n"
    "  }\n";

/* ---- printing: the kernel ---- */

static void print_tile_numbers(const cy_cu_contract *q, const view *v) {
  const cy_cuda_schedule *schedule = q->p->schedule;
  const cy_cuda_tile *t = &schedule->tile;
  int chunk = elements(v->type), whole = v->matrix ? 16 : chunk;
  const cy_cu_number rows[] = {{"BM", t->m},
                               {"BN", t->n},
                               {"NT", schedule->threads},
                               {"CH", chunk},
                               {"EB", CHUNK / chunk},
                               {"D", v->size},
                               {"DP", up(v->size, whole)},
                               {"DV", v->columns},
                               {"DVP", up(v->columns, whole)},
                               {"RS", results_row(v)},
                               {"WC", t->n / 4 | 1},
                               {"CV", up(v->columns, 64) / 64},
                               {"TM", t->m / 16},
                               {"TN", t->n / 16},
                               {"STAGES", schedule->stages},
                               {"WARPS_N", t->thread_n},
                               {"WN", v->matrix ? t->n / t->thread_n : 0},
                               {"SHARES", schedule->shares ? schedule->shares : 1},
                               {"SHARE_BLOCKS", schedule->share_blocks},
                               {"SHARE_KEYS", (int64_t)t->n * MIN_TILES},
                               {"CAUSAL", q->c->causal},
                               {"WINDOW", q->c->window}};
  cy_cu_print_numbers(q->p->out, rows, sizeof rows / sizeof *rows);
}

/* How a tile lies in shared memory, and which instructions multiply. */
static void print_instructions(const cy_cu_contract *q, const view *v) {
  const cy_cuda_schedule *schedule = q->p->schedule;
  FILE *f = q->p->out;
  fprintf(f, "#define SCALE (%af)\n", (double)(float)q->c->scale);
  fprintf(f, "#define WARPGROUPS %s\n#define QC (WARPGROUPS ? DP / CH : %d)\n#define VC (WARPGROUPS ? DVP / CH : %d)\n",
          schedule->warpgroups ? "CY_WARPGROUPS" : "0", row_chunks(v, v->size), row_chunks(v, v->columns));
  fprintf(f, "#define TILE (BN * (QC + VC))\n"
             "#define PLACE(row, c, chunks, rows) (WARPGROUPS ? cy_place(row, c, 8, rows) : (row) * (chunks) + (c))\n");
  const char *name = cy_dtype_of(v->type)->name;
  if (v->type == CY_F32)
    fprintf(f, "#define MMA cy_mma_tf32\n#define PUT cy_chunk_put32\n#define BITS(v) cy_bits_f32(v)\n");
  else
    fprintf(f, "#define MMA cy_mma_%s\n#define PACK cy_pack_%s\n#define PUT cy_chunk_put16\n#define BITS(v) (v)\n",
            name, name);
  fprintf(f, "#define ROUNDS %d\n", q->p->args[q->c->b].dtype != v->type);
  fprintf(f, "#define WGMMA cy_wgmma_%s_%d\n#define WGMMA_HELD cy_wgmma_held_%s_%d\n", name, schedule->tile.n, name,
          up(v->columns, v->matrix ? 16 : elements(v->type)));
  if (schedule->shares)
    fprintf(f, "#define PARTS a%u\n", schedule->share_arg);
}

/* What becomes of scores: which are hidden, and the weights that they make. */
static void print_weights(cy_cu_contract *q, bool by_exp) {
  FILE *f = q->p->out;
  bool hides = false, raw = by_exp && scores_raw(q->p->k, &hides);
  fprintf(f, "#define RAW %d\n#define HIDES %d\n", raw, raw && hides);
  if (raw)
    fprintf(f, "#define CHANGED(z, m, key, score) (!HIDES || (key) <= (m) + past ? (score) : none)\n");
  else
    cy_cu_contract_text(q, "#define CHANGED(z, m, key, score) $S_change($N, z, m, key, (score) * SCALE)\n");
  if (by_exp) /* 2^(score log2 e - top log2 e) */
    fprintf(f,
            "#define UNIT (%af)\n#define WEIGH(z, m, key, score, top) cy_exp2_weight((score) * UNIT - (top) * UNIT)\n",
            (double)(float)(LOG2_E * (raw ? q->c->scale : 1)));
  else
    cy_cu_contract_text(q, "#define WEIGH(z, m, key, score, top) $S_weigh($N, z, m, key, score, top)\n");
  fprintf(f, "#define EMPTY %s /* of a row that sees no key */\n\n",
          q->c->zero_hidden ? "0" : "(keys ? cy_f32_bits(0x7fc00000u) : 0)");
}

static void print_constants(cy_cu_contract *q, const view *v, bool by_exp) {
  print_tile_numbers(q, v);
  print_instructions(q, v);
  print_weights(q, by_exp);
}

static const char end_of_constants[] =
    "#undef BM\n#undef BN\n#undef NT\n#undef CH\n#undef EB\n#undef D\n#undef DP\n#undef DV\n#undef DVP\n"
    "#undef QC\n#undef VC\n#undef RS\n#undef WC\n#undef CV\n#undef TM\n#undef TN\n#undef STAGES\n"
    "#undef TILE\n#undef WARPS_N\n#undef WN\n#undef SHARES\n#undef SHARE_BLOCKS\n#undef SHARE_KEYS\n#undef "
    "PARTS\n#undef CAUSAL\n#undef WINDOW\n"
    "#undef WARPGROUPS\n#undef PLACE\n#undef WGMMA\n#undef WGMMA_HELD\n"
    "#undef RAW\n#undef HIDES\n#undef CHANGED\n#undef UNIT\n#undef SCALE\n#undef MMA\n#undef PACK\n#undef PUT\n#undef "
    "BITS\n#undef ROUNDS\n#undef Q_CHUNK\n#undef WEIGH\n#undef EMPTY\n\n";

static void print_operands(cy_cu_contract *q) {
  const cy_contraction *c = q->c;
  cy_cu_attention_operand(q, "q", c->a, c->a_m, c->a_k, c->a_batch);
  cy_cu_attention_operand(q, "k", c->b, c->b_n, c->b_k, c->b_batch);
  cy_cu_attention_operand(q, "v", c->v, c->v_k, c->v_n, c->v_batch);
}

static void print_chunk(cy_cu_contract *q, const view *v, const char *head, cy_karg arg) {
  cy_cu_contract_text(q, head);
  cy_cu_contract_text(q, q->p->args[arg].dtype == v->type ? chunk_body : rounded_chunk_body);
}

/* What puts chunks of keys, values and queries into shared memory. */
static void print_chunks(cy_cu_contract *q, const view *v) {
  bool same = q->p->args[q->c->a].dtype == q->p->args[q->c->b].dtype;
  print_chunk(q, v, "CY_INLINE void $S_chunk(b1 wide, const $Y *row, ", q->c->b);
  if (!same)
    print_chunk(q, v, "CY_INLINE void $S_q_chunk(b1 wide, const $X *row, ", q->c->a);
  cy_cu_contract_text(q, same ? "#define Q_CHUNK $S_chunk\n" : "#define Q_CHUNK $S_q_chunk\n");
}

static void print_combine(cy_cu_contract *q) {
  fprintf(q->p->out, "#undef NT\n#define NT %d\nCY_KERNEL(NT) ", CY_CUDA_COMBINE_THREADS);
  cy_cu_function_open(q, "$S_combine($P$L) {\n");
  cy_cu_attention_sizes(q);
  cy_cu_contract_text(q, combine_body);
  cy_cu_function_close(q);
}

static void print(cy_cu *p, const char *symbol) {
  cy_cu_contract q = {.p = p, .c = cy_kernel_contraction(p->k), .symbol = symbol, .type = "f32"};
  view v;
  view_of(p->k, p->schedule->stages > 0, &v);
  const cy_cu_attention_text *text = v.matrix ? &cy_cu_attention_matrix : &cy_cu_attention_plain;
  print_functions(&q);
  print_constants(&q, &v, v.matrix && weighs_by_exp(p->k));
  if (p->schedule->shares)
    cy_cu_contract_text(&q, shares_function);
  cy_cu_contract_text(&q, range_function);
  cy_cu_contract_text(&q, end_function);
  print_chunks(&q, &v);
  cy_cu_contract_text(&q, text->functions);
  if (text->warpgroup) {
    fputs("#if WARPGROUPS\n", p->out);
    cy_cu_contract_text(&q, text->warpgroup);
    fputs("#else\n", p->out);
  }
  cy_cu_contract_text(&q, text->products);
  if (text->warpgroup)
    fputs("#endif\n", p->out);
  fprintf(p->out, "CY_KERNEL(%d) ", p->schedule->threads);
  cy_cu_function_open(&q, "$S($P$L) {\n");
  cy_cu_attention_sizes(&q);
  print_operands(&q);
  cy_cu_contract_text(&q, block_head);
  cy_cu_contract_text(&q, text->body);
  cy_cu_function_close(&q);
  if (p->schedule->shares)
    print_combine(&q);
  if (p->schedule->tma_blocks)
    cy_cu_attention_tma_print(&q);
  fputs(end_of_constants, p->out);
}

const cy_cu_generator cy_cu_attention = {"attention", supports, make_schedule, print, NULL};
