/* SPDX-License-Identifier: Apache-2.0 */
/* narrow.c - products and convolutions with few result columns: a tile of matrix instructions would be mostly empty.
 *
 * In: factors of f32, f16 or bf16, accumulators in f32, the first one along k. Out: ordinary FMAs, none in vain. A thread has
 * schedule->tile.thread_m rows with all of their columns; it reads its rows itself, 16 bytes at a time, while the weights of the
 * block's tile of k lie in shared memory, as floats, of which all threads read the same.
 */
#include "contract_int.h"

enum {
  THREADS = 128,
  COLUMNS = 8,
  HALF_COLUMNS = 4, /* of halves, which matrix instructions multiply far faster; transposed convolutions: COLUMNS */
  MAX_ROWS = 4,
  DEEP = 256 /* k of a tile, at most */
};

static int64_t columns_of(cy_kernel *k) {
  int64_t n;
  return cy_dim_is_const(cy_kernel_graph(k), cy_cu_sizes_of(k).n, &n) ? n : INT64_MAX;
}

static bool supports(const cy_machine *m, cy_kernel *k) {
  const cy_contraction *c = cy_kernel_contraction(k);
  const cy_karg_info *args;
  cy_kernel_args(k, &args);
  (void)m;
  if (c->b_bits || c->has_a_zero || c->has_b_zero || !cy_cu_is_float(args[c->a].dtype) ||
      !cy_cu_is_float(args[c->b].dtype) || cy_kernel_local_dtype(k, c->acc) != CY_F32)
    return false;
  bool half = args[c->a].dtype != CY_F32 && !cy_cu_has_residues(c);
  cy_cu_operand a = cy_cu_operand_a(k);
  return columns_of(k) <= (half ? HALF_COLUMNS : COLUMNS) && columns_of(k) > 0 && a.runs && !a.transposed && !a.words;
}

static void make_schedule(const cy_machine *m, cy_kernel *k, cy_cuda_schedule *schedule) {
  cy_graph *g = cy_kernel_graph(k);
  cy_cu_sizes s = cy_cu_sizes_of(k);
  int64_t deep;
  int rows = MAX_ROWS, columns = (int)columns_of(k);
  while (rows > 1 && cy_cu_tiles_estimate(k, &s, THREADS * rows, columns) < cy_cu_wanted_blocks(m))
    rows /= 2;
  schedule->kind = CY_CUDA_TILES;
  schedule->threads = THREADS;
  schedule->tile = (cy_cuda_tile){THREADS * rows, columns, DEEP, rows, columns};
  if (cy_dim_is_const(g, s.k, &deep) && deep > 0 && deep < DEEP)
    schedule->tile.k = (int)cy_round_up(deep, cy_cu_chunk_of(cy_cu_factor_type(k)));
  schedule->max_blocks = INT32_MAX / 128; /* rows and columns are counted in 32 bits */
  schedule->blocks = cy_cu_tiles(g, &s, schedule->tile.m, schedule->tile.n);
  cy_cu_split_schedule(m, k, schedule);
}

static bool wants_packed(const cy_cuda_schedule *schedule, cy_kernel *k) {
  (void)schedule;
  const cy_contraction *c = cy_kernel_contraction(k);
  return cy_cu_is_conv(c) && cy_cu_taps(c) > 1;
}

/* ---- printing ---- */

/* The elements of a row from k on, or zeros. */
static const char row_function[] =
    "CY_INLINE void $S_elements($P, b1 wide, const $S_row *row, const $S_tap *tap, int k, int K, f32 *to) {\n"
    "  b1 inside = 1;\n"
    "  const i64 at = $S_a_tap($N, row, tap, &inside);\n"
    "  $X x[CH] CY_ALIGNED(16);\n"
    "  CY_UNROLL\n"
    "  for (int e = 0; e < CH; e++)\n"
    "    x[e] = 0;\n"
    "  if (wide && inside && k + CH <= K)\n"
    "    cy_move16(x, $A + at);\n"
    "  else if (inside)\n"
    "    CY_UNROLL\n"
    "    for (int e = 0; e < CH; e++)\n"
    "      if (k + e < K)\n"
    "        x[e] = $A[at + e];\n"
    "  CY_UNROLL\n"
    "  for (int e = 0; e < CH; e++)\n"
    "    to[e] = DECODE_A(x[e]);\n"
    "}\n\n";

static const char body[] =
    "  CY_SHARED f32 weights[BN][BK] CY_ALIGNED(16);\n"
    "  const int across = 1, down = (M + BM - 1) / BM, block = (int)CY_BLOCK;\n"
    "  const int zs = block / down, all_iterations = (ALL_K + BK - 1) / BK;\n" CY_CU_SHARE_OF_BLOCK
    "  const int begin = share * share_iterations * BK;\n"
    "  const int end = begin + share_iterations * BK < K ? begin + share_iterations * BK : K;\n"
    "  const int m0 = block % down * BM + CY_TID;\n"
    "  $S_row rows[R];\n"
    "  f32 acc[R][BN];\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < R; i++) {\n"
    "    $S_at($N, z, m0 + i * NT, &rows[i]);\n"
    "    CY_UNROLL\n"
    "    for (int n = 0; n < BN; n++)\n"
    "      acc[i][n] = 0;\n"
    "  }\n"
    "  for (int k0 = begin; k0 < end; k0 += BK) {\n"
    "    CY_SYNC();\n"
    "    for (int i = CY_TID; i < BN * BK; i += NT) {\n"
    "      const i64 at = $S_b_at($N, z, k0 + i % BK, i / BK);\n"
    "      weights[i / BK][i % BK] = at < 0 ? 0 : DECODE_B($B[at]);\n"
    "    }\n"
    "    CY_SYNC();\n"
    "    const int chunks = ((end - k0 < BK ? end - k0 : BK) + CH - 1) / CH;\n"
    "    CY_UNROLL_BY(2)\n"
    "    for (int c = 0; c < chunks; c++) {\n"
    "      $S_tap tap;\n"
    "      $S_tap_at($N, k0, k0 + c * CH, &tap);\n"
    "      f32 a[R][CH];\n"
    "      CY_UNROLL\n"
    "      for (int i = 0; i < R; i++)\n"
    "        $S_elements($N, wide, &rows[i], &tap, k0 + c * CH, K, a[i]);\n"
    "      CY_UNROLL\n"
    "      for (int n = 0; n < BN; n++)\n"
    "        CY_UNROLL\n"
    "        for (int e = 0; e < CH; e += 4) {\n"
    "          f32 w[4] CY_ALIGNED(16);\n"
    "          cy_move16(w, &weights[n][c * CH + e]);\n"
    "          CY_UNROLL\n"
    "          for (int i = 0; i < R; i++)\n"
    "            CY_UNROLL\n"
    "            for (int u = 0; u < 4; u++)\n"
    "              acc[i][n] += a[i][e + u] * w[u];\n"
    "        }\n"
    "    }\n"
    "  }\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < R; i++)\n"
    "    if (m0 + i * NT < M)\n"
    "      CY_UNROLL\n"
    "      for (int n = 0; n < BN; n++)\n"
    "        $S_end($N, shares, share_z, z, m0 + i * NT, n, &acc[i][n], M, N);\n";

static void print(cy_cu *p, const char *symbol) {
  cy_cu_contract q;
  const cy_cuda_tile *t = &p->schedule->tile;
  cy_cu_operand a = cy_cu_operand_a(p->k);
  int chunk = cy_cu_chunk_of(cy_cu_factor_type(p->k));
  cy_cu_contract_begin(&q, p, symbol);
  cy_cu_split_begin(&q);
  cy_cu_print_decoding(p, "DECODE_A", p->args[q.c->a].dtype);
  cy_cu_print_decoding(p, "DECODE_B", p->args[q.c->b].dtype);
  fprintf(p->out, "#define CH %d\n", chunk);
  cy_cu_contract_text(&q, row_function);
  fprintf(p->out, "CY_KERNEL(%d) ", p->schedule->threads);
  cy_cu_function_open(&q, "$S($Q$L) {\n");
  cy_cu_line(p, "enum { BM = %d, BN = %d, BK = %d, R = %d, NT = %d };", t->m, t->n, t->k, t->thread_m, p->schedule->threads);
  cy_cu_line(p, "const int M = (int)%s, N = (int)%s, ALL_K = (int)%s;", q.m, q.n, q.k);
  cy_cu_print_wide(p, "wide", true, a.strides, a.nstrides, q.c->a, chunk);
  cy_cu_contract_text(&q, body);
  cy_cu_function_close(&q);
  fputs("#undef DECODE_A\n#undef DECODE_B\n#undef CH\n\n", p->out);
  cy_cu_split_end(&q);
}

const cy_cu_generator cy_cu_narrow = {"narrow", supports, make_schedule, print, wants_packed};
