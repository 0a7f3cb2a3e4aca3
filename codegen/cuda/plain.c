/* SPDX-License-Identifier: Apache-2.0 */
/* plain.c - contractions of any element types on the ordinary FMA units: a tiled product through shared memory.
 *
 * Elements are converted to the accumulator's type when they are fetched. One text serves all kinds and types; the tile
 * is chosen so that most multiprocessors of a GPU get a block.
 */
#include "codegen/cuda/matrix/contract_int.h"

enum { THREADS = 256 };

static const cy_cuda_tile large = {128, 128, 8, 8, 8}, middle = {64, 64, 16, 4, 4}, small = {32, 32, 16, 2, 2};

/* ---- choosing ---- */

/* The largest tile that still gives most multiprocessors of a GPU a block. */
static const cy_cuda_tile *choose_tile(cy_kernel *k, const cy_cu_sizes *s, int wanted) {
  cy_graph *g = cy_kernel_graph(k);
  double m = cy_cu_estimate(g, s->m, 512), n = cy_cu_estimate(g, s->n, 512);
  bool wide = cy_dtype_of(cy_kernel_local_dtype(k, cy_kernel_contraction(k)->acc))->bits > 32;
  if (!wide && m > 64 && n > 64 && cy_cu_tiles_estimate(k, s, large.m, large.n) >= wanted)
    return &large;
  return m > 32 && n > 32 && cy_cu_tiles_estimate(k, s, middle.m, middle.n) * 5 >= wanted * 3 ? &middle : &small;
}

static bool number(cy_dtype t) {
  char c = cy_dtype_of(t)->cls;
  return c == 'F' || c == 'I' || c == 'U';
}

static bool supports(const cy_machine *m, cy_kernel *k) {
  (void)m;
  const cy_contraction *c = cy_kernel_contraction(k);
  cy_graph *g = cy_kernel_graph(k);
  const cy_karg_info *args;
  cy_kernel_args(k, &args);
  int64_t n;
  if (!number(args[c->a].dtype) || !number(args[c->b].dtype) || (c->has_a_zero && cy_cu_packed(args[c->a].dtype)) ||
      (c->has_b_zero && cy_cu_packed(args[c->b].dtype)))
    return false;
  /* depthwise: a column per group would leave the tile empty; plain loops do better */
  return !cy_cu_is_conv(c) || c->group == 1 || !cy_dim_is_const(g, cy_cu_per_group(g, c, c->channels_out), &n) ||
         n >= 8;
}

static void make_schedule(const cy_machine *m, cy_kernel *k, cy_cuda_schedule *schedule) {
  cy_cu_sizes s = cy_cu_sizes_of(k);
  schedule->kind = CY_CUDA_TILES;
  schedule->threads = THREADS;
  schedule->max_blocks = INT32_MAX / 128; /* rows and columns are counted in 32 bits */
  schedule->tile = *choose_tile(k, &s, cy_cu_wanted_blocks(m));
  schedule->blocks = cy_cu_tiles(cy_kernel_graph(k), &s, schedule->tile.m, schedule->tile.n);
  cy_cu_split_schedule(m, k, schedule);
}

/* ---- printing: elements ---- */

/* `zero`: text of the zero point's place, or "". */
static void print_element(cy_cu_contract *q, const char *head, const char *offset, cy_karg arg, const char *zero) {
  cy_dtype t = q->p->args[arg].dtype;
  char raw[128], value[256];
  if (cy_cu_packed(t))
    snprintf(raw, sizeof raw, "cy_load_packed(a%u, at, %d)", arg, cy_dtype_of(t)->bits);
  else
    snprintf(raw, sizeof raw, "a%u[at]", arg);
  cy_cu_decode(t, raw, value, sizeof value);
  cy_cu_function_open(q, head);
  cy_cu_contract_text(q, offset);
  if (*zero)
    cy_cu_line(q->p, "return at < 0 ? (%s)0 : (%s)(%s) - (%s)%s;", q->type, q->type, value, q->type, zero);
  else
    cy_cu_line(q->p, "return at < 0 ? (%s)0 : (%s)(%s);", q->type, q->type, value);
  cy_cu_function_close(q);
}

/* ---- printing: the tile loop ---- */

/* Which index of an operand neighbouring threads should walk along: the contiguous one. */
static bool a_along_k(cy_graph *g, const cy_contraction *c) {
  return cy_dim_is(g, cy_cu_is_conv(c) ? c->x_channel : c->a_k, 1) || (!cy_cu_is_conv(c) && !cy_dim_is(g, c->a_m, 1));
}
static bool b_along_k(cy_graph *g, const cy_contraction *c) {
  return c->kind == CY_CONTRACT_CONV || (c->kind == CY_CONTRACT_MATMUL && !cy_dim_is(g, c->b_n, 1));
}

static const char tile_loop[] =
    "  CY_SHARED $T sa[BK][BM + 1], sb[BK][BN + 1];\n"
    "  const int across = (N + BN - 1) / BN, down = (M + BM - 1) / BM, block = (int)CY_BLOCK;\n"
    "  const int n0 = block % across * BN, zs = block / across / down, all_iterations = (ALL_K + BK - 1) / "
    "BK;\n" CY_CU_SHARE_OF_BLOCK "  const int begin = share * share_iterations * BK;\n"
    "  const int end = begin + share_iterations * BK < K ? begin + share_iterations * BK : K;\n"
    "  const int m0 = block / across % down * BM;\n"
    "  const int tx = CY_TID % TX, ty = CY_TID / TX;\n"
    "  const int ak = A_ALONG_K ? CY_TID % BK : CY_TID / BM, am = A_ALONG_K ? CY_TID / BK : CY_TID % BM;\n"
    "  const int bk = B_ALONG_K ? CY_TID % BK : CY_TID / BN, bn = B_ALONG_K ? CY_TID / BK : CY_TID % BN;\n"
    "  $S_row rows[A_ROWS];\n"
    "  $T acc[TM][TN];\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < A_ROWS; i++)\n"
    "    $S_at($N, z, m0 + am + i * (NT / BK), &rows[i]);\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < TM; i++)\n"
    "    CY_UNROLL\n"
    "    for (int j = 0; j < TN; j++)\n"
    "      acc[i][j] = 0;\n"
    "  for (int k0 = begin; k0 < end; k0 += BK) {\n"
    "    CY_UNROLL\n"
    "    for (int i = 0; i < BM * BK / NT; i++)\n"
    "      if (A_ALONG_K)\n"
    "        sa[ak][am + i * (NT / BK)] = $S_a($N, &rows[A_ALONG_K ? i : 0], k0 + ak);\n"
    "      else\n"
    "        sa[ak + i * (NT / BM)][am] = $S_a($N, &rows[0], k0 + ak + i * (NT / BM));\n"
    "    CY_UNROLL\n"
    "    for (int i = 0; i < BN * BK / NT; i++)\n"
    "      if (B_ALONG_K)\n"
    "        sb[bk][bn + i * (NT / BK)] = $S_b($N, z, k0 + bk, n0 + bn + i * (NT / BK));\n"
    "      else\n"
    "        sb[bk + i * (NT / BN)][bn] = $S_b($N, z, k0 + bk + i * (NT / BN), n0 + bn);\n"
    "    CY_SYNC();\n"
    "    CY_UNROLL\n"
    "    for (int k = 0; k < BK; k++) {\n"
    "      $T a[TM], b[TN];\n"
    "      CY_UNROLL\n"
    "      for (int i = 0; i < TM; i++)\n"
    "        a[i] = sa[k][ty + i * TY];\n"
    "      CY_UNROLL\n"
    "      for (int j = 0; j < TN; j++)\n"
    "        b[j] = sb[k][tx + j * TX];\n"
    "      CY_UNROLL\n"
    "      for (int i = 0; i < TM; i++)\n"
    "        CY_UNROLL\n"
    "        for (int j = 0; j < TN; j++)\n"
    "          acc[i][j] += a[i] * b[j];\n"
    "    }\n"
    "    CY_SYNC();\n"
    "  }\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < TM; i++)\n"
    "    CY_UNROLL\n"
    "    for (int j = 0; j < TN; j++)\n"
    "      if (m0 + ty + i * TY < M && n0 + tx + j * TX < N)\n"
    "        $S_end($N, shares, share_z, z, m0 + ty + i * TY, n0 + tx + j * TX, &acc[i][j], M, N);\n";

static void print(cy_cu *p, const char *symbol) {
  cy_cu_contract q;
  const cy_cuda_tile *t = &p->schedule->tile;
  char zero_a[40] = "", zero_b[200] = "";
  cy_cu_contract_begin(&q, p, symbol);
  cy_cu_split_begin(&q);
  if (q.c->has_a_zero)
    snprintf(zero_a, sizeof zero_a, "a%u[0]", q.c->a_zero);
  if (q.c->has_b_zero && !q.c->b_bits) /* by output column, which is counted over all groups */
    snprintf(zero_b, sizeof zero_b, "a%u[(%s%s%sn) * %lld]", q.c->b_zero,
             cy_cu_has_residues(q.c) ? "residue->z * " : cy_cu_is_conv(q.c) ? "z * " : "",
             cy_cu_is_conv(q.c) ? q.n : "", cy_cu_is_conv(q.c) ? " + " : "", (long long)q.c->b_zero_step);
  print_element(&q, "CY_INLINE $T $S_a($P, const $S_row *r, int k) {\n", "  const i64 at = $S_a_at($N, r, k);\n",
                q.c->a, zero_a);
  if (q.c->b_bits) {
    cy_cu_blocks_begin(&q);
    cy_cu_blocks_element(&q);
    cy_cu_blocks_end(&q);
  } else {
    print_element(&q, "CY_INLINE $T $S_b($P, int z, int k, int n) {\n", "  const i64 at = $S_b_at($N, z, k, n);\n",
                  cy_cu_b_arg(p->schedule, q.c), zero_b);
  }
  bool along = a_along_k(p->g, q.c);
  fprintf(p->out, "CY_KERNEL(%d) ", p->schedule->threads);
  cy_cu_function_open(&q, "$S($Q$L) {\n");
  cy_cu_line(p, "enum { BM = %d, BN = %d, BK = %d, TM = %d, TN = %d, NT = %d, TX = BN / TN, TY = BM / TM };", t->m,
             t->n, t->k, t->thread_m, t->thread_n, p->schedule->threads);
  cy_cu_line(p, "enum { A_ALONG_K = %d, B_ALONG_K = %d, A_ROWS = %d };", along, b_along_k(p->g, q.c),
             along ? t->m * t->k / p->schedule->threads : 1);
  cy_cu_line(p, "const int M = (int)%s, N = (int)%s, ALL_K = (int)%s;", q.m, q.n, q.k);
  cy_cu_contract_text(&q, tile_loop);
  cy_cu_function_close(&q);
  cy_cu_split_end(&q);
}

const cy_cu_generator cy_cu_plain = {"tiles", supports, make_schedule, print, NULL};
