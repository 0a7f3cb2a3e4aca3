/* SPDX-License-Identifier: Apache-2.0 */
/* gemv.c - products of a few rows (up to four) with a matrix: every weight is read once, 16 bytes at a time.
 *
 * Such a product costs the bytes of its matrix; a tile would have few blocks and mostly empty rows. Three schedules, by the
 * direction in which the matrix is contiguous:
 *
 *   along n   a thread has the V columns of a chunk, `lanes` neighbouring threads a run of memory, the others share k
 *   integers  (blocks.c) the same, but V = 4 columns: a warp still reads whole sectors, and a matrix of 4096 columns has
 *             a block for every multiprocessor; a thread has U rows of bytes on their way at a time
 *   along k   a warp goes along k for R columns, the warps of a block take different columns and share k; also constant
 *             matrices that lie along n and have too few columns for a block on every multiprocessor: they are packed
 *
 * The accumulators meet by shuffles, then in shared memory, and are added in the order of the warps.
 */
#include "contract_int.h"

enum {
  THREADS = 256,
  WARPS = THREADS / 32,
  MIN_K = 64,
  MIN_N = 8,
  CHUNK = 16,     /* bytes */
  COLUMNS = 4,    /* of a warp, along k */
  ITERATIONS = 8, /* rows of a step, along n */
  INT_COLUMNS = 4,
  INT_ITERATIONS = 8, /* .. rows of bytes */
  MIN_LANES = 8       /* of a run: 128 bytes, what memory moves at once; of 64 where rows begin at multiples of them */
};

static bool half_or_single(cy_dtype t) { return t == CY_F32 || t == CY_F16 || t == CY_BF16; }

static bool lies_along_k(cy_kernel *k) {
  const cy_contraction *c = cy_kernel_contraction(k);
  if (c->b_bits)
    return false;
  return cy_cu_is_conv(c) || cy_dim_is(cy_kernel_graph(k), c->b_k, 1);
}

/* How many rows there are at most. */
static int64_t max_rows(cy_kernel *k) {
  int64_t min, max;
  cy_dim_range(cy_kernel_graph(k), cy_cu_sizes_of(k).m, &min, &max);
  return max;
}

static bool supports(const cy_machine *m, cy_kernel *k) {
  (void)m;
  cy_graph *g = cy_kernel_graph(k);
  const cy_contraction *c = cy_kernel_contraction(k);
  const cy_karg_info *args;
  cy_cu_sizes s = cy_cu_sizes_of(k);
  cy_kernel_args(k, &args);
  if (!half_or_single(args[c->a].dtype) ||
      (c->b_bits ? !cy_cu_blocks_fit(k, INT_ITERATIONS) : !half_or_single(args[c->b].dtype)) ||
      cy_kernel_local_dtype(k, c->acc) != CY_F32 || c->kind == CY_CONTRACT_CONV_TRANSPOSE ||
      (cy_cu_is_conv(c) && (c->group != 1 || cy_cu_taps(c) != 1)))
    return false;
  if (!lies_along_k(k) && !cy_dim_is(g, c->b_n, 1))
    return false;
  return max_rows(k) <= CY_CUDA_FEW_ROWS && cy_cu_estimate(g, s.k, MIN_K) >= MIN_K &&
         cy_cu_estimate(g, s.n, MIN_N) >= MIN_N;
}

/* Lanes of the shortest run along n. */
static int min_lanes(cy_kernel *k, int chunk) {
  const cy_contraction *c = cy_kernel_contraction(k);
  return !c->b_bits && cy_cu_multiple(cy_kernel_graph(k), c->b_k, MIN_LANES / 2 * chunk) ? MIN_LANES / 2 : MIN_LANES;
}

static int chunk_of(cy_kernel *k) {
  const cy_contraction *c = cy_kernel_contraction(k);
  const cy_karg_info *args;
  cy_kernel_args(k, &args);
  return c->b_bits ? INT_COLUMNS : CHUNK * 8 / cy_dtype_of(args[c->b].dtype)->bits;
}

/* A constant matrix whose shortest runs along n make fewer blocks than there are multiprocessors. */
static bool is_transposed(const cy_machine *m, cy_kernel *k) {
  cy_cu_sizes s = cy_cu_sizes_of(k);
  return !cy_kernel_contraction(k)->b_bits && !lies_along_k(k) && cy_cu_packed_row(k) &&
         cy_cu_tiles_estimate(k, &s, CY_CUDA_FEW_ROWS, min_lanes(k, chunk_of(k)) * chunk_of(k)) <
             cy_cuda_multiprocessors(m);
}

/* As wide a piece of the result per block as leaves every multiprocessor two: along n longer runs of memory, along k
 * fewer accumulators to exchange. What is on its way from memory at a time decides how fast it comes, and a block has 16 or
 * 32 KB. The second one is not worth warps without anything of k, of which a block has no more than it can give some. */
static void make_schedule(const cy_machine *m, cy_kernel *k, cy_cuda_schedule *schedule) {
  cy_graph *g = cy_kernel_graph(k);
  cy_cu_sizes s = cy_cu_sizes_of(k);
  bool along = lies_along_k(k) || is_transposed(m, k);
  int bits = cy_kernel_contraction(k)->b_bits, wanted = along ? cy_cuda_multiprocessors(m) : cy_cu_wanted_blocks(m);
  int chunk = chunk_of(k), parts = along ? WARPS : 32, min = along ? 1 : min_lanes(k, chunk);
  int each = along ? COLUMNS : chunk, iterations = bits ? INT_ITERATIONS * 8 / bits : ITERATIONS;
  int run = along ? 32 * chunk : iterations; /* of k, for each part */
  double deep = cy_cu_estimate(g, s.k, MIN_K);
  cy_cu_sizes one = {cy_dim_const(g, 1), cy_dim_const(g, 1), s.n, s.k}; /* row, where symbols are bounded together */
  for (; parts > min; parts /= 2) {
    double blocks = cy_cu_tiles_estimate(k, bits ? &one : &s, CY_CUDA_FEW_ROWS, parts * each);
    int shares = (along ? WARPS : THREADS) / (parts / 2); /* of k, with half as many parts */
    if (blocks >= wanted * (deep >= (double)shares * run ? 2 : 1))
      break;
  }
  schedule->kind = CY_CUDA_TILES;
  schedule->threads = THREADS;
  schedule->transposed = along && !lies_along_k(k);
  bool few = bits && cy_cu_tiles_estimate(k, &one, CY_CUDA_FEW_ROWS, parts * each) < 2 * wanted;
  if (few && deep * bits / 8 >= 2 * THREADS / parts * INT_ITERATIONS)
    schedule->threads = 2 * THREADS; /* whose rows are of single bytes: a block has 8 KB on their way */
  while (schedule->transposed && schedule->threads / 64 >= parts && schedule->threads / 64 / parts * run >= deep)
    schedule->threads /= 2;
  schedule->tile = (cy_cuda_tile){.m = (int)max_rows(k), .n = parts * each, .thread_n = parts};
  schedule->tile.k = along ? schedule->threads / 32 / parts * run : schedule->threads / parts * iterations;
  schedule->blocks = cy_cu_tiles(g, &s, schedule->tile.m, schedule->tile.n);
}

static bool wants_packed(const cy_cuda_schedule *schedule, cy_kernel *k) {
  (void)k;
  return schedule->transposed;
}

/* ---- printing ---- */

/* Both schedules along n: V accumulators of each row for a thread, which meet. Of what a thread has the first lie together, then the
 * second, an odd number of 32 / V further: neither lanes nor columns share banks. */
static const char accumulate_columns[] =
    "  CY_SHARED f32 partial[NT / 32][GM][V][(L * V / 32 | 1) * (32 / V)];\n"
    "  const int across = (N + L * V - 1) / (L * V), z = (int)(CY_BLOCK / across), n0 = (int)(CY_BLOCK % across) * (L "
    "* "
    "V);\n"
    "  const int lane = CY_TID % L, n = n0 + lane * V;\n"
    "  $S_row rows[GM];\n"
    "  f32 acc[GM][V];\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < GM; i++) {\n"
    "    $S_at($N, z, i, &rows[i]);\n"
    "    CY_UNROLL\n"
    "    for (int e = 0; e < V; e++)\n"
    "      acc[i][e] = 0;\n"
    "  }\n";

static const char add_columns[] = "  CY_UNROLL\n"
                                  "  for (int i = 0; i < GM; i++)\n"
                                  "    CY_UNROLL\n"
                                  "    for (int e = 0; e < V; e++) {\n"
                                  "      CY_UNROLL\n"
                                  "      for (int m = L; m < 32; m *= 2)\n"
                                  "        acc[i][e] += cy_shfl_f32(acc[i][e], m);\n"
                                  "      if (CY_TID % 32 < L)\n"
                                  "        partial[CY_TID / 32][i][e][lane] = acc[i][e];\n"
                                  "    }\n"
                                  "  CY_SYNC();\n"
                                  "  for (int q = CY_TID; q < GM * L * V; q += NT) {\n"
                                  "    const int i = q / (L * V), c = q % (L * V);\n"
                                  "    f32 sum = 0;\n"
                                  "    CY_UNROLL\n"
                                  "    for (int w = 0; w < NT / 32; w++)\n"
                                  "      sum += partial[w][i][APART ? c / L : c % V][APART ? c % L : c / V];\n"
                                  "    if (i < M && n0 + c < N)\n"
                                  "      $S_put($N, z, i, n0 + c, sum);\n"
                                  "  }\n";

/* Where rows do not begin at multiples of 16 bytes, a thread's columns lie APART, so that those of neighbours meet. */
static const char along_n_text[] =
    "  const $Y *const b = $B + (n0 < N ? $S_b_at($N, z, 0, n0) : 0) + (APART ? lane : lane * V);\n"
    "  const b1 wide = !APART && n + V <= N && (u64)b % 16 == 0 && stride * sizeof($Y) % 16 == 0;\n"
    "  for (int k = CY_TID / L * U; k < K; k += NT / L * U) {\n"
    "    $Y w[U][V] CY_ALIGNED(16);\n"
    "    CY_UNROLL\n"
    "    for (int u = 0; u < U; u++)\n"
    "      if (wide && k + u < K)\n"
    "        cy_move16(w[u], b + (k + u) * stride);\n"
    "      else\n"
    "        CY_UNROLL\n"
    "        for (int e = 0; e < V; e++)\n"
    "          w[u][e] = k + u < K && (APART ? n0 + lane + e * L : n + e) < N ? b[(k + u) * stride + e * (APART ? L : "
    "1)] : 0;\n"
    "    CY_UNROLL\n"
    "    for (int i = 0; i < GM; i++)\n"
    "      CY_UNROLL\n"
    "      for (int u = 0; u < U; u++) {\n"
    "        const i64 at = $S_a_at($N, &rows[i], k + u);\n"
    "        const f32 x = at < 0 ? 0 : DECODE_A($A[at]);\n"
    "        CY_UNROLL\n"
    "        for (int e = 0; e < V; e++)\n"
    "          acc[i][e] += x * DECODE(w[u][e]);\n"
    "      }\n"
    "  }\n";

/* RUN elements of a row of A, as far from each other as those of B are. */
static const char run_function[] = "CY_INLINE void $S_run($P, const $S_row *r, int k, int K, $X *x) {\n"
                                   "  const i64 at = $S_a_at($N, r, k);\n"
                                   "  if (!APART && A_RUNS && at >= 0 && k + RUN <= K && (u64)($A + at) % 16 == 0)\n"
                                   "    cy_move16(x, $A + at);\n"
                                   "  else\n"
                                   "    CY_UNROLL\n"
                                   "    for (int e = 0; e < RUN; e++) {\n"
                                   "      const i64 own = $S_a_at($N, r, k + e * STEP);\n"
                                   "      x[e] = own < 0 ? 0 : $A[own];\n"
                                   "    }\n"
                                   "}\n\n";

/* Of integers: all of k that is this thread's, by `max` rows, which are `wide`: RUN elements of them can be read at once;
 * both are constants of each call. The scale multiplies a weight that several rows read, else the accumulator. Columns that begin a
 * four lie in one tile with the others of it. */
static const char ints_functions[] =
    "CY_INLINE u32 $S_four(const u8 *from, int left) {\n"
    "  u32 four = 0;\n"
    "  if (W_FOURS)\n"
    "    return left > 0 ? *(const u32 *)from : 0;\n"
    "  CY_UNROLL\n"
    "  for (int e = 0; e < V; e++)\n"
    "    four |= e < left ? (u32)from[e] << 8 * e : 0;\n"
    "  return four;\n"
    "}\n\n"
    "CY_INLINE void $S_run($P, b1 wide, const $S_row *r, int k, $X *x) {\n"
    "  if (wide && r->inside)\n"
    "    cy_move16(x, $A + r->base + k);\n"
    "  else\n"
    "    CY_UNROLL\n"
    "    for (int e = 0; e < RUN; e++) {\n"
    "      const i64 at = wide ? -1 : $S_a_at($N, r, k + e);\n"
    "      x[e] = at < 0 ? 0 : $A[at];\n"
    "    }\n"
    "}\n\n"
    "CY_INLINE void $S_pieces($P, int most, b1 wide, int n, int N, int K, const $S_row *rows, f32 acc[GM][V]) {\n"
    "  for (int row = CY_TID / L * U; row < K * W_BITS / 8; row += NT / L * U) {\n"
    "    const int block = row / W_ROWS, first = row % W_ROWS, k = block * (W_ROWS * 8 / W_BITS) + first;\n"
    "    const i64 at = (i64)block * N + n;\n"
    "    u32 w[U];\n"
    "    f32 scale[V] CY_ALIGNED(16), less[V], part[V];\n"
    "    CY_UNROLL\n"
    "    for (int u = 0; u < U; u++)\n"
    "      w[u] = $S_four((const u8 *)$B + $S_code_at(N, block, first + u, n), N - n);\n"
    "    if (W_FOURS && W_SINGLES && n < N)\n"
    "      cy_move16(scale, (const void *)(W_SCALES + at));\n"
    "    else\n"
    "      CY_UNROLL\n"
    "      for (int e = 0; e < V; e++)\n"
    "        scale[e] = n + e < N ? W_SCALE(at + e) : 0;\n"
    "    const u32 zeros = W_EACH ? $S_four(W_ZEROS + at, N - n) : 0;\n"
    "    CY_UNROLL\n"
    "    for (int e = 0; e < V; e++)\n"
    "      less[e] = W_EACH ? cy_byte_f32(zeros, e) : 8388608.f + W_ZERO(0), part[e] = 0;\n"
    "    CY_UNROLL\n"
    "    for (int h = 0; h < 8 / W_BITS * U / RUN; h++) {\n"
    "      const int half = h * RUN / U, u0 = h * RUN % U;\n"
    "      $X x[GM][RUN] CY_ALIGNED(16);\n"
    "      CY_UNROLL\n"
    "      for (int i = 0; i < most; i++)\n"
    "        $S_run($N, wide, &rows[i], k + half * W_ROWS + u0, x[i]);\n"
    "      CY_UNROLL\n"
    "      for (int u = 0; u < RUN; u++) {\n"
    "        const u32 word = w[u0 + u];\n"
    "        const u32 codes = W_BITS == 8 ? word ^ W_SIGN * 0x01010101u : word >> 4 * half & 0x0f0f0f0fu;\n"
    "        CY_UNROLL\n"
    "        for (int e = 0; e < V; e++) {\n"
    "          const f32 b = W_FLOATS ? W_FLOAT(codes >> 8 * e & 255) : cy_byte_f32(codes, e) - less[e];\n"
    "          const f32 c = most > 1 ? b * scale[e] : b;\n"
    "          CY_UNROLL\n"
    "          for (int i = 0; i < most; i++)\n"
    "            if (most > 1)\n"
    "              acc[i][e] += DECODE_A(x[i][u]) * c;\n"
    "            else\n"
    "              part[e] += DECODE_A(x[i][u]) * c;\n"
    "        }\n"
    "      }\n"
    "    }\n"
    "    CY_UNROLL\n"
    "    for (int e = 0; e < V; e++)\n"
    "      acc[0][e] += part[e] * scale[e];\n"
    "  }\n"
    "}\n\n";

/* Where it may have one row it mostly has. */
static const char ints_text[] = "  b1 wide = A_RUNS && (u64)$A % 16 == 0;\n"
                                "  CY_UNROLL\n"
                                "  for (int i = 0; i < GM; i++)\n"
                                "    wide &= !rows[i].inside || rows[i].base % RUN == 0;\n"
                                "  if (wide && M == 1)\n"
                                "    $S_pieces($N, 1, 1, n, N, K, rows, acc);\n"
                                "  else if (wide && GM > 1)\n"
                                "    $S_pieces($N, GM, 1, n, N, K, rows, acc);\n"
                                "  else\n"
                                "    $S_pieces($N, GM, 0, n, N, K, rows, acc);\n";

/* The same along k: columns that do not begin at multiples of 16 bytes. */
static const char along_k_text[] =
    "  CY_SHARED f32 partial[KW][GM][L * R];\n"
    "  const int across = (N + L * R - 1) / (L * R), z = (int)(CY_BLOCK / across), n0 = (int)(CY_BLOCK % across) * (L "
    "* "
    "R);\n"
    "  const int lane = CY_TID % 32, column = CY_TID / 32 % L * R, share = CY_TID / 32 / L;\n"
    "  $S_row rows[GM];\n"
    "  f32 acc[GM][R];\n"
    "  const $Y *b[R];\n"
    "  b1 wide = !APART;\n"
    "  CY_UNROLL\n"
    "  for (int j = 0; j < R; j++) {\n"
    "    b[j] = $B + (n0 + column + j < N ? $S_b_at($N, z, 0, n0 + column + j) : 0);\n"
    "    wide &= (u64)b[j] % 16 == 0;\n"
    "  }\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < GM; i++) {\n"
    "    $S_at($N, z, i, &rows[i]);\n"
    "    CY_UNROLL\n"
    "    for (int j = 0; j < R; j++)\n"
    "      acc[i][j] = 0;\n"
    "  }\n"
    "  for (int k = share * 32 * V + (APART ? lane : lane * V); k < K; k += KW * 32 * V) {\n"
    "    $Y w[R][V] CY_ALIGNED(16);\n"
    "    CY_UNROLL\n"
    "    for (int j = 0; j < R; j++)\n"
    "      if (wide && k + V <= K && n0 + column + j < N)\n"
    "        cy_move16(w[j], b[j] + k);\n"
    "      else\n"
    "        CY_UNROLL\n"
    "        for (int e = 0; e < V; e++)\n"
    "          w[j][e] = k + e * STEP < K && n0 + column + j < N ? b[j][k + e * STEP] : 0;\n"
    "    CY_UNROLL\n"
    "    for (int i = 0; i < GM; i++) {\n"
    "      $X x[V] CY_ALIGNED(16);\n"
    "      $S_run($N, &rows[i], k, K, x);\n"
    "      CY_UNROLL\n"
    "      for (int e = 0; e < V; e++)\n"
    "        CY_UNROLL\n"
    "        for (int j = 0; j < R; j++)\n"
    "          acc[i][j] += DECODE_A(x[e]) * DECODE(w[j][e]);\n"
    "    }\n"
    "  }\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < GM; i++)\n"
    "    CY_UNROLL\n"
    "    for (int j = 0; j < R; j++) {\n"
    "      CY_UNROLL\n"
    "      for (int m = 16; m > 0; m /= 2)\n"
    "        acc[i][j] += cy_shfl_f32(acc[i][j], m);\n"
    "      if (lane == 0)\n"
    "        partial[share][i][column + j] = acc[i][j];\n"
    "    }\n"
    "  CY_SYNC();\n"
    "  if (CY_TID < GM * L * R) {\n"
    "    const int i = CY_TID / (L * R), c = CY_TID % (L * R);\n"
    "    f32 sum = 0;\n"
    "    CY_UNROLL\n"
    "    for (int s = 0; s < KW; s++)\n"
    "      sum += partial[s][i][c];\n"
    "    if (i < M && n0 + c < N)\n"
    "      $S_put($N, z, i, n0 + c, sum);\n"
    "  }\n";

/* What differs from kernel to kernel are macros while the kernel lasts. */
static void print_constants(const cy_cu_contract *q, bool k) {
  const cy_cu *p = q->p;
  const cy_cuda_tile *t = &p->schedule->tile;
  int a = cy_dtype_of(p->args[q->c->a].dtype)->bits, b = cy_dtype_of(p->args[q->c->b].dtype)->bits;
  bool ints = q->c->b_bits, runs = cy_dim_is(p->g, cy_cu_is_conv(q->c) ? q->c->x_channel : q->c->a_k, 1);
  int64_t stride;
  cy_dim step = cy_cu_is_conv(q->c) ? q->c->channels_in : k ? q->c->b_n : q->c->b_k;
  bool apart = !ints && !p->schedule->transposed && cy_dim_is_const(p->g, step, &stride) && stride * b % (8 * CHUNK);
  const cy_cu_number rows[] = {
      {"NT", p->schedule->threads},
      {"GM", t->m},
      {"L", t->thread_n},
      {"U", ints ? INT_ITERATIONS : ITERATIONS},
      {"R", COLUMNS},
      {"KW", k ? p->schedule->threads / 32 / t->thread_n : 1},
      {"V", ints ? INT_COLUMNS : CHUNK * 8 / b}, /* neighbours that a thread reads at once: of B, */
      {"RUN", CHUNK * 8 / (ints ? a : b)},       /* of A, if it may */
      {"APART", apart},
      {"STEP", apart ? 32 : 1}, /* of k */
      {"A_RUNS", runs && (ints || a == b)}};
  cy_cu_print_decoding(q->p, "DECODE_A", p->args[q->c->a].dtype);
  cy_cu_print_decoding(q->p, "DECODE", p->args[q->c->b].dtype);
  cy_cu_print_numbers(p->out, rows, sizeof rows / sizeof *rows);
  fputc('\n', p->out);
}

static void print(cy_cu *p, const char *symbol) {
  cy_cu_contract q;
  cy_cu_contract_begin(&q, p, symbol);
  bool k = lies_along_k(p->k) || p->schedule->transposed, ints = q.c->b_bits;
  print_constants(&q, k);
  if (k)
    cy_cu_contract_text(&q, run_function);
  if (ints) {
    cy_cu_blocks_begin(&q);
    cy_cu_contract_text(&q, ints_functions);
  }
  fprintf(p->out, "CY_KERNEL(%d) ", p->schedule->threads);
  cy_cu_function_open(&q, "$S($P$L) {\n");
  cy_cu_line(p, "const int M = (int)%s, N = (int)%s, K = (int)%s;", q.m, q.n, q.k);
  if (!k) {
    cy_cu_line(p, "const i64 stride = %s;", cy_cu_dim(p, q.c->b_k));
    cy_cu_contract_text(&q, accumulate_columns);
  }
  cy_cu_contract_text(&q, k ? along_k_text : ints ? ints_text : along_n_text);
  if (!k)
    cy_cu_contract_text(&q, add_columns);
  cy_cu_function_close(&q);
  fputs("#undef DECODE\n#undef DECODE_A\n#undef NT\n#undef GM\n#undef L\n#undef U\n#undef R\n#undef KW\n#undef V\n"
        "#undef RUN\n#undef APART\n#undef STEP\n#undef A_RUNS\n\n",
        p->out);
  if (ints)
    cy_cu_blocks_end(&q);
}

const cy_cu_generator cy_cu_gemv = {"gemv", supports, make_schedule, print, wants_packed};
