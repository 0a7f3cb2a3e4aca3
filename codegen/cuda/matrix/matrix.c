/* SPDX-License-Identifier: Apache-2.0 */
/* matrix.c - products and convolutions by matrix instructions: of f16, bf16, (when allowed) TF32, and floats of 8 bits with
 * accumulators in f32, of 8-bit integers with accumulators in i32; and of f32 by ordinary FMAs, in the same tiles.
 *
 * A block computes a tile of m x n results, its warps parts of it. Tiles of A and B come to shared memory by
 * asynchronous copies of 16 bytes, several tiles ahead; ldmatrix and mma.sync do the rest, and the results go through
 * shared memory once more, so that the epilogue runs along contiguous rows of the output. The same text serves sm_75
 * (prelude_matrix.cuh).
 *
 * On sm_90a tiles of 64 rows or more are multiplied by warpgroups (wgmma), which read both factors from shared memory;
 * a warp then has 16 rows of the results and all columns, in the same fragments. Where they are TF32, whose lower bits
 * wgmma leaves out, each thread rounds what it brought before the others see it, as mma.sync's path does in registers:
 * without, results would shrink by some 0.07 % from layer to layer.
 *
 * For FMAs a warp is 4 x 8 threads, a thread has every fourth row and every eighth column of the warp's results, and
 * reads four k of a row at once. Matrices that do not run along k are left to plain.c.
 *
 * How tiles come to shared memory, where 16 bytes cannot be copied at once (odd strides, windows of three channels), too,
 * is described in matrix_load.c.
 *
 * Weights in integers become halves or floats on their way to shared memory (blocks.c); A's tile has k in their order.
 *
 * Zero points of integers: zeros.c.
 */
#include "contract_int.h"

#include <math.h>
#include <string.h>

enum {
  ROW_BYTES = CY_CU_TILE_ROW_BYTES,
  CHUNK = CY_CU_CHUNK,
  RASTER = 8,
  MIN_SINGLE_COLUMNS = 8,
  TILES_BYTES = 49 << 10, /* of shared memory for tiles in flight */
  GROUP_TILES_BYTES = 81 << 10,
  PAIRED_TILES_BYTES = 97 << 10, /* two blocks of a multiprocessor of sm_90a have room for so many, too */
  MIN_STAGES = 3,
  MAX_STAGES = 8,
  MIN_PAIRED_STAGES = 6, /* a pair that is multiplied, one that others still read, one on its way */
  MAX_GATHERED_STAGES = 4
};

/* m, n, k (set by type), and of a warp; the first ones for few columns */
static const cy_cuda_tile shapes[] = {{128, 16, 0, 16, 16}, {64, 16, 0, 16, 16}, {128, 32, 0, 32, 16},
                                      {64, 32, 0, 32, 16},  {32, 32, 0, 16, 16}, {128, 128, 0, 64, 32},
                                      {128, 64, 0, 32, 32}, {64, 64, 0, 32, 32}, {32, 64, 0, 16, 32}};
static const cy_cuda_tile large_single = {128, 128, 0, 32, 64}; /* 8 x 8 results for a thread */
enum { LARGEST = 5, NSHAPES = sizeof shapes / sizeof *shapes };

/* Of so many columns: the first and last shape. */
static const struct {
  int columns, first, last;
} widths[] = {{16, 0, 1}, {32, 2, 4}, {INT32_MAX, LARGEST, NSHAPES - 1}};

/* ---- choosing ---- */

static bool supports(const cy_machine *m, cy_kernel *k) {
  const cy_contraction *c = cy_kernel_contraction(k);
  cy_graph *g = cy_kernel_graph(k);
  const cy_karg_info *args;
  cy_kernel_args(k, &args);
  cy_dtype t = cy_cu_factor_type(k);
  int64_t columns;
  if (c->a_rounded && (args[c->a].dtype != CY_F16 || c->kind != CY_CONTRACT_CONV || c->group != 1 ||
                       !cy_dim_is(g, c->x_channel, 1) || !cy_cu_multiple(g, c->channels_in, CY_CU_ROUNDED_RUN)))
    return false;
  if (c->b_bits)
    return (t == CY_F16 || t == CY_BF16 || (t == CY_F32 && m->tf32)) && cy_cu_blocks_fit(k, cy_cu_chunk_of(t));
  if (cy_dtype_is_byte(t)     ? !cy_dtype_is_byte(args[c->b].dtype)
      : cy_dtype_is_float8(t) ? !cy_dtype_is_float8(args[c->b].dtype) || !cy_cuda_has_float8(m)
                              : args[c->b].dtype != t)
    return false;
  if (!cy_cu_is_narrow(t) && t != CY_F16 && t != CY_BF16 && !(t == CY_F32 && m->tf32))
    return false;
  if (cy_kernel_local_dtype(k, c->acc) != (cy_dtype_is_byte(t) ? CY_I32 : CY_F32))
    return false;
  return !cy_cu_is_conv(c) || c->group == 1 || !cy_dim_is_const(g, cy_cu_per_group(g, c, c->channels_out), &columns) ||
         columns >= 8;
}

/* By ordinary FMAs: matrices run along k, as they are or packed, and there are columns for most of a tile. */
static bool supports_singles(const cy_machine *m, cy_kernel *k) {
  const cy_contraction *c = cy_kernel_contraction(k);
  cy_graph *g = cy_kernel_graph(k);
  const cy_karg_info *args;
  cy_kernel_args(k, &args);
  (void)m;
  if (args[c->a].dtype != CY_F32 || (!c->b_bits && args[c->b].dtype != CY_F32) ||
      cy_kernel_local_dtype(k, c->acc) != CY_F32 ||
      cy_cu_estimate(g, cy_cu_sizes_of(k).n, MIN_SINGLE_COLUMNS) < MIN_SINGLE_COLUMNS)
    return false;
  if (c->b_bits)
    return cy_dim_is(g, c->a_k, 1) && cy_cu_blocks_fit(k, cy_cu_chunk_of(CY_F32));
  if (!cy_cu_is_conv(c))
    return cy_dim_is(g, c->a_k, 1) && (c->b_const || cy_dim_is(g, c->b_k, 1));
  return c->b_const;
}

/* Stages that warpgroups multiply in an iteration: two have one fence, one barrier and one wait for copies together. What goes
 * through registers, and what zero points add up, goes stage by stage. */
static int at_once(cy_kernel *k) {
  const cy_contraction *c = cy_kernel_contraction(k);
  return cy_cu_operand_a(k).runs && !c->b_bits && !cy_cu_has_zeros(c) ? 2 : 1;
}

/* .. no more than it takes to have all of k on its way, so that more blocks find room. */
static int paired_stages(cy_kernel *k, const cy_cuda_tile *t) {
  int n = (PAIRED_TILES_BYTES - cy_cu_load_bytes(k, t)) / ((t->m + t->n) * ROW_BYTES) / 2 * 2;
  double all = ceil(cy_cu_estimate(cy_kernel_graph(k), cy_cu_sizes_of(k).k, 4096) / t->k);
  n = n < MAX_STAGES ? n : MAX_STAGES;
  n = all + MIN_PAIRED_STAGES - 2 < n ? ((int)all + MIN_PAIRED_STAGES - 1) / 2 * 2 : n;
  return n < MIN_PAIRED_STAGES ? MIN_PAIRED_STAGES : n;
}

/* Tiles of both factors in flight. TILES_BYTES of them are what two blocks find room for wherever a multiprocessor has 100
 * KB: one multiplies while the other begins, ends or waits. Small tiles are those of small products, which wait for memory:
 * the more of them in flight, the better. Warpgroups, which are one tile behind, are only where there are 228 KB. What
 * goes through registers is fetched one iteration ahead, and what comes in front of the first iteration is not hidden
 * at all. */
static int stages_of(cy_kernel *k, const cy_cuda_tile *t, bool by_groups) {
  if (by_groups && at_once(k) > 1)
    return paired_stages(k, t);
  int n = ((by_groups ? GROUP_TILES_BYTES : TILES_BYTES) - cy_cu_load_bytes(k, t)) / ((t->m + t->n) * ROW_BYTES);
  int max = cy_cu_operand_a(k).runs && !cy_kernel_contraction(k)->b_bits ? MAX_STAGES : MAX_GATHERED_STAGES;
  return n < MIN_STAGES ? MIN_STAGES : n < max ? n : max;
}

/* .. and of what a block needs in all. */
static int shared_bytes(cy_kernel *k, const cy_cuda_tile *t, bool by_groups) {
  return stages_of(k, t, by_groups) * (t->m + t->n) * ROW_BYTES + cy_cu_load_bytes(k, t);
}

static int threads_of(const cy_cuda_tile *t) { return t->m / t->thread_m * (t->n / t->thread_n) * 32; }

/* Would most of a tile be empty, and of a later shape, up to `last`, less? */
static bool mostly_empty(int shape, int last, double rows, double columns) {
  const cy_cuda_tile *t = &shapes[shape], *smallest = &shapes[last];
  return (rows <= t->m / 2 && smallest->m < t->m) || (columns <= t->n / 2 && smallest->n < t->n);
}

/* The largest tile that still gives most multiprocessors of a GPU a block. */
static int shape_of(const cy_machine *machine, cy_kernel *k) {
  cy_graph *g = cy_kernel_graph(k);
  cy_cu_sizes s = cy_cu_sizes_of(k);
  double rows = cy_cu_estimate(g, s.m, 512), columns = cy_cu_estimate(g, s.n, 512);
  int width = 0, wanted = cy_cu_wanted_blocks(machine);
  while (columns > widths[width].columns)
    width++;
  /* the largest leaves sm_75 no shared memory for tables */
  int best = widths[width].first, last = widths[width].last;
  best += best == LARGEST && cy_cu_load_bytes(k, &shapes[best]) > 0;
  while (best < last && (cy_cu_tiles_estimate(k, &s, shapes[best].m, shapes[best].n) < wanted ||
                         mostly_empty(best, last, rows, columns)))
    best++;
  return best;
}

/* The oldest architecture that has the instructions; 0: all have. */
static int min_arch(cy_dtype factor) {
  bool all = factor == CY_F16 || cy_dtype_is_byte(factor);
  return all ? 0 : cy_dtype_is_float8(factor) ? CY_CUDA_FLOAT8_ARCH : 80;
}

static void choose(const cy_machine *machine, cy_kernel *k, cy_cuda_schedule *schedule, bool singles) {
  cy_graph *g = cy_kernel_graph(k);
  const cy_contraction *c = cy_kernel_contraction(k);
  cy_cu_sizes s = cy_cu_sizes_of(k);
  int best = shape_of(machine, k);
  schedule->kind = CY_CUDA_TILES;
  schedule->tile = singles && best == LARGEST ? large_single : shapes[best];
  schedule->tile.k = ROW_BYTES * 8 / cy_dtype_of(cy_cu_factor_type(k))->bits;
  schedule->threads = threads_of(&schedule->tile);
  schedule->warpgroups = !singles && schedule->tile.m == schedule->threads / 2; /* 16 rows for every warp */
  schedule->stages = singles ? 0 : stages_of(k, &schedule->tile, false);
  schedule->min_arch = singles ? 0 : min_arch(cy_cu_factor_type(k));
  schedule->shared_bytes = shared_bytes(k, &schedule->tile, false);
  schedule->group_shared_bytes = schedule->warpgroups ? shared_bytes(k, &schedule->tile, true) : 0;
  schedule->max_blocks = INT32_MAX / 128;
  schedule->blocks = cy_cu_tiles(g, &s, schedule->tile.m, schedule->tile.n);
  for (int vector = 8; vector >= 4 && !schedule->vector; vector /= 2) /* whole sectors of memory by each store */
    cy_cuda_vectorise_body(k, schedule, cy_cu_epilogue(k), c->out_var[c->nout_vars - 1], vector, CHUNK);
  cy_cu_split_schedule(machine, k, schedule);
  cy_cu_tma_schedule(machine, k, schedule);
}

static void make_schedule(const cy_machine *machine, cy_kernel *k, cy_cuda_schedule *schedule) { choose(machine, k, schedule, false); }
static void schedule_singles(const cy_machine *machine, cy_kernel *k, cy_cuda_schedule *schedule) {
  choose(machine, k, schedule, true);
}

/* Constant weights that cannot be copied in chunks as they lie. */
static bool wants_packed(const cy_cuda_schedule *schedule, cy_kernel *k) {
  (void)schedule;
  const cy_contraction *c = cy_kernel_contraction(k);
  cy_graph *g = cy_kernel_graph(k);
  int64_t chunk = cy_cu_chunk_of(cy_cu_factor_type(k));
  if (c->b_bits)
    return false;
  if (cy_cu_is_conv(c))
    return c->kind == CY_CONTRACT_CONV_TRANSPOSE || cy_cu_taps(c) > 1 ||
           !cy_cu_multiple(g, cy_cu_per_group(g, c, c->channels_in), chunk);
  if (cy_dim_is(g, c->b_k, 1))
    return !cy_cu_multiple(g, c->b_n, chunk);
  return chunk != 8 || !cy_dim_is(g, c->b_n, 1) || !cy_cu_multiple(g, c->b_k, chunk);
}

/* ---- printing ---- */

/* Of what zero points take (zeros.c): sums of rows of A and columns of B. */
static const char sums_type[] = "typedef struct $S_sums {\n"
                                "  i32 a[WM / 16][2], b[WN / 8];\n"
                                "} $S_sums;\n\n";

/* The fragments of one step of 32 bytes of k, and their products. */
static const char multiply_function[] =
    "CY_INLINE void $S_multiply(const cy_chunk *sa, int wm, int wn, $T acc[WM / 16][WN / 8][4], $S_sums *sums) {\n"
    "  const cy_chunk *sb = sa + A_TILE;\n"
    "  const int lane = CY_TID % 32, low = lane % 8, mid = lane / 8 % 2, high = lane / 16;\n"
    "  CY_UNROLL\n"
    "  for (int s = 0; s < STEPS; s++) {\n"
    "    u32 a[WM / 16][4], b[WN / 16][4];\n"
    "    CY_UNROLL\n"
    "    for (int i = 0; i < WM / 16; i++) {\n"
    "      const int m = wm + i * 16 + mid * 8;\n"
    "      if (A_TRANSPOSED)\n"
    "        cy_load_matrix_transposed(a[i], &sa[cy_place(s * 2 * CH + low + high * 8, m / 8, A_CHUNKS, BK)]);\n"
    "      else\n"
    "        cy_load_matrix(a[i], &sa[cy_place(m + low, s * 2 + high, A_CHUNKS, BM)]);\n"
    "    }\n"
    "    CY_UNROLL\n"
    "    for (int j = 0; j < WN / 16; j++) {\n"
    "      const int n = wn + j * 16 + high * 8;\n"
    "      if (B_TRANSPOSED)\n"
    "        cy_load_matrix_transposed(b[j], &sb[cy_place(s * 2 * CH + low + mid * 8, n / 8, B_CHUNKS, BK)]);\n"
    "      else\n"
    "        cy_load_matrix(b[j], &sb[cy_place(n + low, s * 2 + mid, B_CHUNKS, BN)]);\n"
    "    }\n"
    "    CY_UNROLL\n"
    "    for (int i = 0; i < WM / 16; i++)\n"
    "      CY_UNROLL\n"
    "      for (int j = 0; j < WN / 8; j++)\n"
    "        MMA(acc[i][j], a[i], &b[j / 2][j % 2 * 2]);\n"
    "#if ZEROS\n"
    "    if (wn == 0)\n"
    "      CY_UNROLL\n"
    "      for (int i = 0; i < WM / 4; i++)\n"
    "        sums->a[i / 4][i % 2] = ADD_A(a[i / 4][i % 4], sums->a[i / 4][i % 2]);\n"
    "    if (wm == 0)\n"
    "      CY_UNROLL\n"
    "      for (int j = 0; j < WN / 4; j++)\n"
    "        sums->b[j / 2] = ADD_B(b[j / 4][j % 4], sums->b[j / 2]);\n"
    "#endif\n"
    "  }\n"
    "}\n\n";

/* The same on the ordinary units. */
static const char multiply_singles[] =
    "CY_INLINE void $S_multiply(const cy_chunk *sa, int wm, int wn, $T acc[WM / FM][WN / 8][FE], $S_sums *sums) {\n"
    "  const cy_chunk *sb = sa + A_TILE;\n"
    "  const int down = CY_TID % 32 / 8, across = CY_TID % 8;\n"
    "  CY_UNROLL\n"
    "  for (int c = 0; c < BK / CH; c++) {\n"
    "    cy_chunk b[WN / 8];\n"
    "    CY_UNROLL\n"
    "    for (int j = 0; j < WN / 8; j++)\n"
    "      b[j] = sb[cy_place(wn + j * 8 + across, c, B_CHUNKS, BN)];\n"
    "    CY_UNROLL\n"
    "    for (int i = 0; i < WM / FM; i++) {\n"
    "      const cy_chunk a = sa[cy_place(wm + i * FM + down, c, A_CHUNKS, BM)];\n"
    "      CY_UNROLL\n"
    "      for (int e = 0; e < CH; e++)\n"
    "        CY_UNROLL\n"
    "        for (int j = 0; j < WN / 8; j++)\n"
    "          acc[i][j][0] += cy_f32_bits(a.word[e]) * cy_f32_bits(b[j].word[e]);\n"
    "    }\n"
    "  }\n"
    "}\n\n";

/* The same by the warpgroup of the thread: begins here, ends where cy_warpgroup_wait() returns. A's rows are 64 of the
 * tile, all columns of B are multiplied. */
static const char warpgroup_function[] =
    "#if WARPGROUPS\n"
    "CY_INLINE void $S_multiply_begin(const cy_chunk *sa, int stages, $T acc[WM / 16][WN / 8][4]) {\n"
    "  const int group = cy_uniform(CY_TID / 128);\n"
    "  const unsigned char *const a = (const unsigned char *)sa + group * (A_TRANSPOSED ? BK * 128 : 64 * BK * EB);\n"
    "  const unsigned char *const b = (const unsigned char *)(sa + A_TILE);\n"
    "  cy_keep(&acc[0][0][0], WN / 2);\n"
    "  cy_warpgroup_begin();\n"
    "  CY_UNROLL\n"
    "  for (int s = 0; s < stages * STEPS; s++) {\n"
    "    const int step = s % STEPS, from = s / STEPS * TILE * 16;\n"
    "    const u64 at_a = A_TRANSPOSED ? cy_matrix_at(a + from + step * 16 * 128, 128, 1024, BK * 128)\n"
    "                              : cy_matrix_at(a + from + step * 32, BK * EB, 8 * BK * EB, 0);\n"
    "    const u64 at_b = B_TRANSPOSED ? cy_matrix_at(b + from + step * 16 * 128, 128, 1024, BK * 128)\n"
    "                              : cy_matrix_at(b + from + step * 32, BK * EB, 8 * BK * EB, 0);\n"
    "    CY_WGMMA(WGMMA, A_TRANSPOSED, B_TRANSPOSED, &acc[0][0][0], at_a, at_b);\n"
    "  }\n"
    "  cy_warpgroup_commit();\n"
    "}\n"
    "#endif\n\n";

/* All steps of k. The kernel has it twice: copying by 16 bytes alone needs a third of the instructions. Unrolled, which
 * a compiler does where it knows how many there are, the addresses of all steps take up all registers.
 *
 * Warpgroups begin an iteration's products before they wait for those of the iteration before. Behind the barrier of an
 * iteration, all are done with the iteration before the last one: its tile is the next that may be filled. AT_ONCE stages
 * lie side by side and are multiplied in one iteration; of odd numbers the last one is multiplied behind the loop. */
static const char iterations_function[] =
    "CY_INLINE void $S_iterations($P, b1 wide_a, b1 wide_b, int z, int m0, int n0, int M, int N, int K, const $S_row "
    "*rows, "
    "int begin, int iterations, int wm, int wn, cy_chunk *tiles, $T acc[WM / FM][WN / 8][FE], $S_sums *sums) {\n"
    "#if W_BITS\n"
    "  $S_codes codes;\n"
    "  if (iterations > 0)\n"
    "    $S_fetch($N, n0, N, K, begin * BK, &codes);\n"
    "#endif\n"
    "#if !A_RUNS\n"
    "  cy_chunk held[A_TILE / NT * (1 + A_HALVES)];\n"
    "  $S_tap *const taps = ($S_tap *)(tiles + STAGES * TILE);\n"
    "#endif\n"
    "  for (int t = 0; t < AHEAD; t += AT_ONCE) {\n"
    "#if !A_RUNS\n"
    "    $S_table($N, (begin + t) * BK, taps);\n"
    "    CY_SYNC();\n"
    "    if (t < iterations) {\n"
    "      $S_gather($N, wide_a, rows, (begin + t) * BK, taps, held);\n"
    "      $S_place(rows, held, tiles + t * TILE);\n"
    "    }\n"
    "#endif\n"
    "    CY_UNROLL\n"
    "    for (int u = 0; u < AT_ONCE; u++)\n"
    "      if (t + u < iterations)\n"
    "        $S_load($N, wide_a, wide_b, z, m0, n0, M, N, K, rows, (begin + t + u) * BK, tiles + (t + u) * TILE);\n"
    "    cy_copy_commit();\n"
    "#if W_BITS\n"
    "    $S_step($N, n0, N, K, begin, t, iterations, tiles + t * TILE, &codes);\n"
    "#endif\n"
    "  }\n"
    "  int full = 0, before = (STAGES - AT_ONCE) * TILE, empty = AHEAD * TILE; /* tiles */\n"
    "  CY_UNROLL_BY(1)\n"
    "  for (int t = 0; t + AT_ONCE <= iterations; t += AT_ONCE) {\n"
    "    const int next = t + AHEAD;\n"
    "#if !A_RUNS\n"
    "    if (next < iterations)\n"
    "      $S_table($N, (begin + next) * BK, taps);\n"
    "#endif\n"
    "    CY_COPY_WAIT(AHEAD / AT_ONCE - 1);\n"
    "#if ROUNDED\n"
    "    CY_UNROLL\n"
    "    for (int u = 0; u < AT_ONCE; u++)\n"
    "      $S_round(tiles + full + u * TILE);\n"
    "#endif\n"
    "#if WARPGROUPS\n"
    "    cy_publish();\n"
    "    CY_SYNC();\n"
    "    $S_multiply_begin(tiles + full, AT_ONCE, acc);\n"
    "#else\n"
    "    CY_SYNC();\n"
    "#endif\n"
    "#if !A_RUNS\n"
    "    if (next < iterations)\n"
    "      $S_gather($N, wide_a, rows, (begin + next) * BK, taps, held);\n"
    "#endif\n"
    "    CY_UNROLL\n"
    "    for (int u = 0; u < AT_ONCE; u++)\n"
    "      if (next + u < iterations)\n"
    "        $S_load($N, wide_a, wide_b, z, m0, n0, M, N, K, rows, (begin + next + u) * BK, tiles + empty + u * TILE);\n"
    "    cy_copy_commit();\n"
    "#if W_BITS\n"
    "    $S_step($N, n0, N, K, begin, next, iterations, tiles + empty, &codes);\n"
    "#endif\n"
    "#if WARPGROUPS\n"
    "#if ZEROS\n"
    "    if (CY_TID < BM + BN)\n"
    "      sums->a[0][0] = $S_add_row(tiles + full, sums->a[0][0]);\n"
    "#endif\n"
    "    cy_warpgroup_wait_previous();\n"
    "#else\n"
    "    $S_multiply(tiles + full, wm, wn, acc, sums);\n"
    "#endif\n"
    "#if !A_RUNS\n"
    "    if (next < iterations)\n"
    "      $S_place(rows, held, tiles + empty);\n"
    "#endif\n"
    "    empty = WARPGROUPS ? before : full;\n"
    "    before = full;\n"
    "    full = full == (STAGES - AT_ONCE) * TILE ? 0 : full + AT_ONCE * TILE;\n"
    "  }\n"
    "#if WARPGROUPS\n"
    "  cy_warpgroup_wait();\n"
    "  cy_keep(&acc[0][0][0], WN / 2);\n"
    "  if (iterations % AT_ONCE > 0) { /* shares of residues with few taps may begin behind the last one */\n"
    "    CY_COPY_WAIT(0);\n"
    "#if ROUNDED\n"
    "    $S_round(tiles + full);\n"
    "#endif\n"
    "    cy_publish();\n"
    "    CY_SYNC();\n"
    "    $S_multiply_begin(tiles + full, 1, acc);\n"
    "    cy_warpgroup_wait();\n"
    "    cy_keep(&acc[0][0][0], WN / 2);\n"
    "  }\n"
    "#endif\n"
    "}\n\n";

/* Blocks that run at the same time share rows of A and columns of B: they are numbered in strips of RASTER rows. */
static const char tile_loop[] =
    "  CY_DYNAMIC(memory);\n"
    "  cy_chunk *const tiles = (cy_chunk *)memory;\n"
    "  const int across = (N + BN - 1) / BN, down = (M + BM - 1) / BM, block = (int)(CY_BLOCK % ((i64)across * "
    "down));\n"
    "  const int zs = (int)(CY_BLOCK / ((i64)across * down)), all_iterations = (ALL_K + BK - 1) / "
    "BK;\n" CY_CU_SHARE_OF_BLOCK "  const int strip = block / (RASTER * across) * RASTER;\n"
    "  const int height = down - strip < RASTER ? down - strip : RASTER, inside = block - strip * across;\n"
    "  const int m0 = (strip + inside % height) * BM, n0 = inside / height * BN;\n"
    "  const int warp = CY_TID / 32, wm = warp / (BN / WN) * WM, wn = warp % (BN / WN) * WN;\n"
    "  const int begin = share * share_iterations;\n"
    "  const int iterations = own_turns - begin > share_iterations ? share_iterations : own_turns - begin;\n"
    "  $T acc[WM / FM][WN / 8][FE] CY_ALIGNED(8);\n"
    "  $S_sums sums = {{{0}}, {0}};\n"
    "#if A_TABLE\n"
    "  $S_row *const rows = ($S_row *)(tiles + STAGES * TILE);\n"
    "  for (int i = CY_TID; i < BM; i += NT)\n"
    "    $S_at($N, z, m0 + i, &rows[i]);\n"
    "  CY_SYNC();\n"
    "#else\n"
    "  $S_row rows[A_ROWS];\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < A_ROWS; i++)\n"
    "    $S_at($N, z, m0 + (A_WORDS ? 0 : A_TRANSPOSED ? CY_TID % A_CHUNKS * CH : A_DOWN ? CY_TID % BM : CY_TID / "
    "A_CHUNKS + i * (NT / A_CHUNKS)), &rows[i]);\n"
    "#endif\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < WM / FM; i++)\n"
    "    CY_UNROLL\n"
    "    for (int j = 0; j < WN / 8; j++)\n"
    "      CY_UNROLL\n"
    "      for (int e = 0; e < FE; e++)\n"
    "        acc[i][j][e] = 0;\n"
    "  if ((wide_a || (!A_RUNS && !A_HALVES)) && wide_b)\n"
    "    $S_iterations($N, 1, 1, z, m0, n0, M, N, K, rows, begin, iterations, wm, wn, tiles, acc, &sums);\n"
    "  else\n"
    "    $S_iterations($N, wide_a, wide_b, z, m0, n0, M, N, K, rows, begin, iterations, wm, wn, tiles, acc, &sums);\n"
    "  CY_COPY_WAIT(0);\n"
    "  CY_SYNC();\n"
    "#if ZEROS\n"
    "  $S_subtract($N, z, n0, N, K, wm, wn, acc, &sums, (i32 *)memory);\n"
    "#endif\n"
    "  $T *const results = ($T *)memory;\n"
    "  CY_UNROLL_BY(1)\n"
    "  for (int part = 0; part < PARTS; part++) {\n"
    "    const int above = part * (BM / PARTS);\n"
    "    if (PARTS == 1 || wm / (BM / PARTS) == part)\n"
    "      CY_UNROLL\n"
    "      for (int i = 0; i < WM / FM; i++)\n"
    "        CY_UNROLL\n"
    "        for (int j = 0; j < WN / 8; j++)\n"
    "#if FE == 1\n"
    "        {\n"
    "          const int m = wm - above + i * FM + CY_TID % 32 / 8, n = wn + j * 8 + CY_TID % 8;\n"
    "          results[m * BN + (n ^ SWIZZLE(m))] = acc[i][j][0];\n"
    "        }\n"
    "#else\n"
    "          CY_UNROLL\n"
    "          for (int e = 0; e < FE; e += 2) {\n"
    "            const int m = wm - above + i * FM + CY_TID % 32 / 4 + e * 4, n = wn + j * 8 + CY_TID % 4 * 2;\n"
    "            cy_move8(&results[m * BN + (n ^ SWIZZLE(m))], &acc[i][j][e]);\n"
    "          }\n"
    "#endif\n"
    "    CY_SYNC();\n";

/* The next part's results may come where these were. */
static const char end_of_part[] = "    if (part + 1 < PARTS)\n"
                                  "      CY_SYNC();\n"
                                  "  }\n";

/* What differs from kernel to kernel are macros while the kernel lasts. */
static void print_tile_numbers(const cy_cu_contract *q, int bytes) {
  const cy_cuda_schedule *schedule = q->p->schedule;
  const cy_cuda_tile *t = &schedule->tile;
  const cy_cu_number rows[] = {{"BM", t->m},
                               {"BN", t->n},
                               {"BK", t->k},
                               {"NT", schedule->threads},
                               {"EB", bytes},
                               {"CH", CHUNK / bytes},
                               {"STEPS", t->k * bytes / 32},
                               {"FM", schedule->stages ? 16 : 4}, /* rows of a fragment of results, and its elements in a thread */
                               {"FE", schedule->stages ? 4 : 1},
                               {"RASTER", RASTER},
                               {"SWIZZLED", t->n / 8 < 4 ? t->n / 8 - 1 : 3}};
  cy_cu_print_numbers(q->p->out, rows, sizeof rows / sizeof *rows);
}

static void print_factor_numbers(const cy_cu_contract *q, const cy_cu_operand *a, const cy_cu_operand *b, int chunk) {
  const cy_cuda_tile *t = &q->p->schedule->tile;
  int a_tile = t->m * t->k / chunk, b_tile = t->n * t->k / chunk;
  cy_cu_sizes s = cy_cu_sizes_of(q->p->k);
  cy_dim depth = cy_cu_depth(q->p->k);
  cy_graph *g = q->p->g;
  const cy_cu_number rows[] = {
      {"A_TRANSPOSED", a->transposed},
      {"B_TRANSPOSED", b->transposed},
      {"A_RUNS", a->runs},
      {"B_RUNS", b->runs},
      {"A_CHUNKS", a->transposed ? t->m / chunk : t->k / chunk},
      {"B_CHUNKS", b->transposed ? t->n / chunk : t->k / chunk},
      {"A_TILE", a_tile},
      {"B_TILE", b_tile},
      {"TILE", a_tile + b_tile},
      {"ZEROS", cy_cu_has_zeros(q->c)},
      {"FULL_K", cy_cu_multiple(g, depth, t->k)},
      {"A_WHOLE", cy_cu_multiple(g, a->transposed ? s.m : depth, chunk)}, /* no chunk has an end of its rows inside */
      {"B_WHOLE", q->p->schedule->packed_k || cy_cu_multiple(g, b->transposed ? s.n : depth, chunk)}, /* packed: filled up */
      {"A_FILLED", q->c->has_a_zero && cy_cu_is_conv(q->c)},
      {"A_DOWN", a->down},
      {"A_HALVES", q->c->a_rounded != CY_NONE},
      {"A_ROWS", a->transposed || a->down || a->words ? 1 : a_tile / q->p->schedule->threads}};
  cy_cu_print_numbers(q->p->out, rows, sizeof rows / sizeof *rows);
}

/* Which instructions multiply, of how many stages and by which part of a tile each warp. */
static void print_instructions(cy_cu_contract *q, cy_dtype type) {
  const cy_cuda_schedule *schedule = q->p->schedule;
  const cy_cuda_tile *t = &schedule->tile;
  const char *name = type == CY_F32 ? "tf32" : cy_dtype_of(type)->name;
  const char *b_name = cy_cu_factor_b_name(type, q->p->args[q->c->b].dtype);
  /* results of so many parts of the rows fit where the tiles were */
  fprintf(q->p->out,
          "#define STAGES (WARPGROUPS ? %d : %d)\n#define AT_ONCE (WARPGROUPS ? %d : 1)\n"
          "#define AHEAD (STAGES - AT_ONCE * (1 + WARPGROUPS))\n"
          "#define PARTS (STAGES * TILE * 16 < BM * BN * 4 ? 2 : 1)\n",
          stages_of(q->p->k, t, true), stages_of(q->p->k, t, false), at_once(q->p->k));
  fprintf(q->p->out, "#define WARPGROUPS %s\n#define WM (WARPGROUPS ? 16 : %d)\n#define WN (WARPGROUPS ? BN : %d)\n",
          schedule->warpgroups ? "CY_WARPGROUPS" : "0", t->thread_m, t->thread_n);
  fprintf(q->p->out, "#define MMA cy_mma_%s%s\n#define WGMMA cy_wgmma_%s%s_%d\n", name, b_name, name, b_name, t->n);
}

/* How elements are fetched, rounded and put into chunks. */
static void print_accesses(const cy_cu_contract *q, cy_dtype type, int bytes) {
  bool rounded = type == CY_F32 && q->p->schedule->warpgroups;
  fputs("#define SWIZZLE(m) (((m) & SWIZZLED) << 3)\n", q->p->out);
  fprintf(q->p->out, "#define FETCH cy_fetch%d\n#define BITS(v) %s\n", bytes * 8,
          type == CY_F32 ? "cy_bits_f32(v)" : "(v)");
  fprintf(q->p->out, "#define PUT(v, e, bits) cy_chunk_put%d(v, e, ROUND(bits))\n", bytes * 8);
  fprintf(q->p->out, "#define ROUNDED %s\n#define ROUND(bits) %s\n\n", rounded ? "WARPGROUPS" : "0",
          rounded ? "(ROUNDED ? cy_tf32(bits) : (bits))" : "(bits)");
}

static void print_constants(cy_cu_contract *q, const cy_cu_operand *a, const cy_cu_operand *b) {
  cy_dtype type = cy_cu_factor_type(q->p->k);
  int bytes = cy_dtype_of(type)->bits / 8;
  print_tile_numbers(q, bytes);
  print_factor_numbers(q, a, b, CHUNK / bytes);
  print_instructions(q, type);
  if (cy_dtype_is_byte(type))
    cy_cu_byte_constants(q);
  else
    fprintf(q->p->out, "#define A_ZERO 0\n");
  print_accesses(q, type, bytes);
}

static const char end_of_constants[] =
    "#undef BM\n#undef BN\n#undef BK\n#undef WM\n#undef WN\n#undef NT\n#undef EB\n"
    "#undef CH\n#undef STEPS\n#undef STAGES\n#undef KERNEL\n#undef AHEAD\n#undef AT_ONCE\n#undef PARTS\n#undef RASTER\n#undef "
    "A_TRANSPOSED\n"
    "#undef B_TRANSPOSED\n#undef A_RUNS\n#undef B_RUNS\n#undef A_CHUNKS\n"
    "#undef B_CHUNKS\n#undef A_TILE\n#undef B_TILE\n#undef TILE\n#undef A_ROWS\n"
    "#undef SWIZZLE\n#undef SWIZZLED\n"
    "#undef MMA\n#undef ROUND\n#undef ROUNDED\n#undef PUT\n#undef A_DOWN\n#undef A_HALVES\n#undef FETCH\n#undef "
    "BITS\n#undef WARPGROUPS\n#undef WGMMA\n"
    "#undef ZEROS\n#undef FULL_K\n#undef A_WHOLE\n#undef B_WHOLE\n#undef FM\n#undef FE\n#undef "
    "A_FILLED\n#undef A_ZERO\n#undef B_ZERO\n#undef ADD_A\n"
    "#undef ADD_B\n#undef W_BITS\n#undef A_ORDER\n#undef WE\n#undef A_WORDS\n#undef "
    "A_TABLE\n#undef A_STEP\n#undef B_WORDS\n#undef A_ALIGNED\n#undef B_ALIGNED\n#undef A_EVEN\n#undef B_EVEN\n#undef "
    "B_DOWN\n\n";

static bool stores_maxima(cy_kernel *k) {
  for (const cy_stmt *s = cy_cu_epilogue(k); s; s = s->next)
    if (s->kind == CY_S_STORE && s->op)
      return true;
  return false;
}

/* What the kernel calls: how tiles come, how they are multiplied. */
static void print_functions(cy_cu_contract *q, const cy_cu_operand *a, const cy_cu_operand *b) {
  FILE *out = q->p->out;
  if (q->c->b_bits) {
    cy_cu_blocks_begin(q);
    cy_cu_blocks_tile(q);
  }
  cy_cu_contract_text(q, q->c->b_bits ? "#define A_ORDER $S_order\n\n"
                                      : "#define W_BITS 0\n#define A_ORDER(k0, j) (k0 + (j))\n\n");
  cy_cu_load_print(q, a, b);
  cy_cu_contract_text(q, sums_type);
  if (cy_cu_has_zeros(q->c))
    cy_cu_zeros_print(q);
  fputs("#if !WARPGROUPS\n", out);
  cy_cu_contract_text(q, q->p->schedule->stages ? multiply_function : multiply_singles);
  fputs("#endif\n", out);
  cy_cu_contract_text(q, warpgroup_function);
  cy_cu_contract_text(q, iterations_function);
}

/* KERNEL: of the largest tiles two blocks are to fit, unless that would make them spill. */
static void print_kernel_macro(const cy_cu_contract *q) {
  const cy_cuda_schedule *schedule = q->p->schedule;
  if (schedule->stages && schedule->tile.n == shapes[LARGEST].n)
    fprintf(q->p->out,
            "#ifndef CY_ONE_BLOCK_%s\n#define KERNEL CY_KERNEL_OF_TWO\n#else\n#define KERNEL CY_KERNEL\n#endif\n",
            q->symbol);
  else
    fputs("#define KERNEL CY_KERNEL\n", q->p->out);
  fprintf(q->p->out, "KERNEL(%d) ", schedule->threads);
}

/* wide_a, wide_b: can 16 bytes of a factor be copied at once? Where chunks are made of words, no other schedule is needed. */
static void print_wides(cy_cu_contract *q, const cy_cu_operand *a, const cy_cu_operand *b) {
  cy_cu *p = q->p;
  int64_t chunk = p->schedule->tile.k / (ROW_BYTES / CHUNK);
  if (a->words)
    cy_cu_line(p, "const b1 wide_a = 1;");
  else
    cy_cu_print_wide(p, "wide_a", a->runs || q->c->a_rounded, a->strides, a->nstrides, q->c->a,
                     q->c->a_rounded ? chunk / 2 : chunk);
  if (q->c->b_bits || b->words)
    cy_cu_line(p, "const b1 wide_b = 1;");
  else
    cy_cu_print_wide(p, "wide_b", b->runs, b->strides, b->nstrides, cy_cu_b_arg(p->schedule, q->c), chunk);
}

static void print_kernel(cy_cu_contract *q, const cy_cu_operand *a, const cy_cu_operand *b) {
  print_kernel_macro(q);
  cy_cu_function_open(q, "$S($Q$L) {\n");
  cy_cu_line(q->p, "const int M = (int)%s, N = (int)%s, ALL_K = (int)%s;", q->m, q->n, q->k);
  print_wides(q, a, b);
  cy_cu_contract_text(q, tile_loop);
  cy_cu_split_results(q);
  cy_cu_contract_text(q, end_of_part);
  if (q->p->holds_maxima)
    cy_cu_line(q->p, "cy_held_max_end(maxima);");
  cy_cu_function_close(q);
}

static void print(cy_cu *p, const char *symbol) {
  cy_cu_contract q;
  p->holds_maxima = stores_maxima(p->k);
  cy_cu_contract_begin(&q, p, symbol);
  cy_cu_split_begin(&q);
  cy_cu_operand a = cy_cu_operand_a(p->k), b = cy_cu_operand_b(p->k, p->schedule);
  print_constants(&q, &a, &b);
  print_functions(&q, &a, &b);
  print_kernel(&q, &a, &b);
  if (q.c->b_bits)
    cy_cu_blocks_end(&q);
  fputs(end_of_constants, p->out);
  cy_cu_tma_print(&q);
  cy_cu_split_end(&q);
}

const cy_cu_generator cy_cu_matrix = {"matrix", supports, make_schedule, print, wants_packed};
const cy_cu_generator cy_cu_singles = {"fma", supports_singles, schedule_singles, print, wants_packed};
