/* SPDX-License-Identifier: Apache-2.0 */
/* split.c - contractions whose results are too few tiles to fill a device: blocks share k.
 *
 * A share accumulates its part of k and stores what it has in scratch, [share][z][m][n]; a second kernel, <symbol>_combine,
 * adds the shares in their order and runs the epilogue. So the result does not depend on which block came first.
 *
 * Where the number of rows or of products is a symbol, as that of images or words is in most models, how many share k
 * is decided when the kernel runs, by the host and the kernel alike; if it is one, there is no second kernel.
 */
#include "contract_int.h"

enum {
  MIN_ITERATIONS = 4, /* of k, for each share: fewer would not hide the way to memory */
  MAX_SHARES = 16,
  BLOCKS_EACH = 2 /* of a multiprocessor */
};

static int64_t const_of(cy_graph *g, cy_dim d) {
  int64_t v;
  return cy_dim_is_const(g, d, &v) ? v : 0;
}

static int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }

/* Form: of `max` shares at most, which of `iterations` iterations each has some. */
static void set_shares(cy_graph *g, const cy_cu_sizes *s, int64_t blocks, int64_t iterations, int64_t max,
                       cy_cuda_schedule *schedule) {
  cy_dim one = cy_dim_const(g, 1), all = cy_dim_const(g, iterations);
  cy_dim shares = cy_dim_div(g, cy_dim_const(g, blocks), cy_dim_max(g, schedule->blocks, one));
  shares = cy_dim_max(g, cy_dim_min(g, shares, cy_dim_const(g, max)), one);
  shares = cy_dim_cdiv(g, all, cy_dim_cdiv(g, all, shares));
  cy_dim results = cy_dim_mul(g, s->z, cy_dim_mul(g, s->m, s->n));
  int64_t each = (int64_t)CY_CUDA_COMBINE_THREADS * (schedule->vector ? schedule->vector : 1), n;
  schedule->share_blocks = (int)blocks;
  schedule->shares_vary = !cy_dim_is_const(g, shares, &n);
  schedule->shares = (int)(schedule->shares_vary ? max : n);
  schedule->share_elems = blocks * schedule->tile.m * schedule->tile.n;
  if (!schedule->shares_vary && cy_dim_is_const(g, results, &n))
    schedule->share_elems = n * schedule->shares;
  schedule->blocks = cy_dim_mul(g, schedule->blocks, shares);
  schedule->combine_blocks =
      cy_dim_mul(g, cy_dim_min(g, cy_dim_sub(g, shares, one), one), cy_dim_cdiv(g, results, cy_dim_const(g, each)));
}

/* As many shares as give each multiprocessor blocks that can wait for memory side by side, if what they write and read
 * again is less than the operands. */
void cy_cu_split_schedule(const cy_machine *m, cy_kernel *k, cy_cuda_schedule *schedule) {
  cy_graph *g = cy_kernel_graph(k);
  const cy_contraction *c = cy_kernel_contraction(k);
  cy_cu_sizes s = cy_cu_sizes_of(k);
  int64_t tiles, max_tiles, wanted = cy_cu_wanted_blocks(m), iterations = cy_ceil(const_of(g, s.k), schedule->tile.k);
  cy_dim_range(g, schedule->blocks, &tiles, &max_tiles);
  bool known = tiles == max_tiles; /* else the least operands are those of one tile's rows */
  int64_t rows = known ? const_of(g, s.m) : schedule->tile.m, columns = const_of(g, s.n), z = known ? const_of(g, s.z) : 1;
  int64_t bits = cy_dtype_of(cy_cu_factor_type(k))->bits,
          acc_bits = cy_dtype_of(cy_kernel_local_dtype(k, c->acc))->bits;
  int64_t operands = (rows + columns) * const_of(g, s.k) * z * bits / 8, results = rows * columns * z;
  tiles = tiles > 0 || known ? tiles : 1;
  if (!tiles || !iterations || !results || results > INT32_MAX || tiles > wanted || cy_cu_has_zeros(c))
    return;
  int64_t shares = min_of(wanted * BLOCKS_EACH / tiles, operands / (2 * results * acc_bits / 8));
  shares = min_of(min_of(shares, iterations / MIN_ITERATIONS), MAX_SHARES);
  if (shares >= 2)
    set_shares(g, &s, wanted * BLOCKS_EACH, iterations, shares, schedule);
}

void cy_cuda_split_prepare(cy_kernel *k, cy_cuda_schedule *schedule) {
  if (schedule->shares)
    schedule->share_arg = cy_kernel_add_arg(k, CY_ARG_WRITE, cy_kernel_local_dtype(k, cy_kernel_contraction(k)->acc), 0);
}

static const char shares_text[] =
    "/* Blocks that share k, of so many tiles. */\n"
    "CY_INLINE int $S_shares(i64 tiles, int iterations) {\n"
    "  const i64 n = SHARE_BLOCKS / tiles;\n"
    "  const int some = n > SHARES ? SHARES : n < 1 ? 1 : (int)n, each = (iterations + some - 1) / some;\n"
    "  return (iterations + each - 1) / each;\n"
    "}\n\n";

/* Macros that a generator's text has while its kernel lasts: how many blocks share k, the end of VECTOR results. */
void cy_cu_split_begin(cy_cu_contract *q) {
  const cy_cuda_schedule *f = q->p->schedule;
  FILE *out = q->p->out;
  fprintf(out, "#define SHARES %d\n#define SHARE_BLOCKS %d\n#define VECTOR %d\n#define MAXIMA %d\n",
          f->shares ? f->shares : 1, f->share_blocks, f->vector ? f->vector : 1, q->p->holds_maxima);
  if (f->shares)
    cy_cu_contract_text(q, shares_text);
  cy_cu_contract_text(q,
                      "CY_INLINE void $S_end($P, int shares, i64 share_z, int z, int m, int n, const $T *sums, int M, "
                      "int N) {\n");
  if (f->shares) {
    cy_cu_contract_text(q, "  if (shares > 1) {\n    $T *const to = ");
    fprintf(out, "a%u + (share_z * M + m) * N + n;\n", f->share_arg);
    fputs(f->vector ? "    CY_UNROLL\n    for (int u = 0; u < VECTOR; u += 4)\n      cy_move16(to + u, sums + u);\n"
                    : "    *to = sums[0];\n",
          out);
    fputs("    return;\n  }\n", out);
  }
  cy_cu_contract_text(q, f->vector ? "  $S_put_chunk($N, z, m, n, sums);\n" : "  $S_put($N, z, m, n, sums[0]);\n");
  fputs("}\n\n", out);
}

void cy_cu_split_results(cy_cu_contract *q) {
  cy_cu_contract_text(q, "    for (int q = CY_TID * VECTOR; q < BM / PARTS * BN; q += NT * VECTOR) {\n"
                         "      const int m = q / BN, n = q % BN, row = m0 + above + m;\n"
                         "      const $T *const from = &results[m * BN + (n ^ SWIZZLE(m))];\n"
                         "      $T sums[VECTOR] CY_ALIGNED(16);\n"
                         "#if VECTOR > 1\n"
                         "      CY_UNROLL\n"
                         "      for (int u = 0; u < VECTOR; u += 4)\n"
                         "        cy_move16(sums + u, from + u);\n"
                         "#else\n"
                         "      sums[0] = *from;\n"
                         "#endif\n"
                         "      if ((u32)row < (u32)M && n0 + n < N)\n"
                         "        $S_end($N, shares, share_z, z, row, n0 + n, sums, M, N);\n"
                         "    }\n");
}

static const char combine_text[] = "  const i64 at = (CY_BLOCK * NT + CY_TID) * VECTOR, all = Z * M * N;\n"
                                   "  const i64 tiles = Z * ((M + BM - 1) / BM) * ((N + BN - 1) / BN);\n"
                                   "  const int n_shares = $S_shares(tiles, (ALL_K + BK - 1) / BK);\n"
                                   "  $T sums[VECTOR] CY_ALIGNED(16), more[VECTOR] CY_ALIGNED(16);\n"
                                   "  if (at < all) {\n"
                                   "  CY_UNROLL\n"
                                   "  for (int u = 0; u < VECTOR; u++)\n"
                                   "    sums[u] = 0;\n"
                                   "  CY_UNROLL_BY(4)\n"
                                   "  for (int s = 0; s < n_shares; s++) {\n"
                                   "#if VECTOR > 1\n"
                                   "    CY_UNROLL\n"
                                   "    for (int u = 0; u < VECTOR; u += 4)\n"
                                   "      cy_move16(more + u, shares + s * all + at + u);\n"
                                   "#else\n"
                                   "    more[0] = shares[s * all + at];\n"
                                   "#endif\n"
                                   "    CY_UNROLL\n"
                                   "    for (int u = 0; u < VECTOR; u++)\n"
                                   "      sums[u] += more[u];\n"
                                   "  }\n"
                                   "  const int z = (int)(at / N / M), m = (int)(at / N % M), n = (int)(at % N);\n"
                                   "$F"
                                   "  (void)K;\n"
                                   "#if VECTOR > 1\n"
                                   "  $S_put_chunk($N, z, m, n, sums);\n"
                                   "#else\n"
                                   "  $S_put($N, z, m, n, sums[0]);\n"
                                   "#endif\n"
                                   "  }\n"
                                   "#if MAXIMA\n"
                                   "  cy_held_max_end(maxima);\n"
                                   "#endif\n";

void cy_cu_split_end(cy_cu_contract *q) {
  cy_cu *p = q->p;
  const cy_cuda_schedule *f = p->schedule;
  if (f->shares) {
    fprintf(p->out, "CY_KERNEL(%d) ", CY_CUDA_COMBINE_THREADS);
    cy_cu_function_open(q, "$S_combine($Q$L) {\n");
    cy_cu_line(p, "enum { NT = %d, BM = %d, BN = %d, BK = %d };", CY_CUDA_COMBINE_THREADS, f->tile.m, f->tile.n,
               f->tile.k);
    cy_cu_line(p, "const int M = (int)%s, N = (int)%s, ALL_K = (int)%s;", q->m, q->n, q->k);
    cy_cu_line(p, "const i64 Z = %s;", q->z);
    cy_cu_line(p, "const %s *const shares = a%u;", q->type, f->share_arg);
    cy_cu_contract_text(q, combine_text);
    cy_cu_function_close(q);
  }
  fputs("#undef SHARES\n#undef SHARE_BLOCKS\n#undef VECTOR\n#undef MAXIMA\n\n", p->out);
}
