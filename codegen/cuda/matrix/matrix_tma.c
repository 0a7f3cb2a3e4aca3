/* SPDX-License-Identifier: Apache-2.0 */
/* matrix_tma.c - sm_90a: products of f16, bf16, TF32, integers and floats of 8 bits whose tiles the tensor memory accelerator
 * brings.
 *
 * Beside the kernel of matrix.c stands <symbol>_tma, in the images of sm_90a alone: tiles of 128 rows and schedule->tma_n
 * columns of results, two warpgroups of 64 rows each that multiply, and a third one, of which one thread orders the
 * tiles of both factors and which leaves most of its registers to the others, STAGES of them ahead. `full` and `empty`
 * barriers tell when a stage has arrived and when all warps are done with it. There are at most as many blocks as
 * multiprocessors; each goes through tiles of results, so that factors of the next tile come while one is stored, which
 * every warp does on its own, through shared memory behind the stages: whichever warpgroup is ahead stores while the
 * other one multiplies, up to STAGES steps of k ahead. The runtime makes the tensor maps from a cyrt_cuda_box each
 * (cuda_tensor.c) and takes the other kernel when a pointer or a stride is no multiple of 16 bytes.
 *
 * Where results take longer, and there are several tiles for each multiprocessor (pingpong.c), each warpgroup has every
 * second tile of the block for itself, all 128 rows and up to 128 columns: one multiplies while the other ends its tile.
 * Barriers `turn` have them multiply one after the other, as tiles come. Nothing else keeps a warpgroup from waiting for a
 * stage that the other one has not even begun to use: barriers tell phases by parity, and it would take the wrong one.
 *
 * What comes out of the second-level cache is more than it gives in the time of the products, so blocks run in pairs
 * (clusters of two) which have tiles one below the other or side by side: each orders one half of the factor that both
 * need, and the copy goes to both. A stage is free when the consumers of both blocks are done with it; `empty` of each
 * counts them all. Where tiles do not go up in pairs, blocks of a cluster work each for itself.
 *
 * A factor lies in shared memory in its own direction: rows of 128 bytes of k, or, of halves, blocks of 64 m (n) with
 * rows of k, which wgmma transposes. Copies of TF32 round (cuda_tensor.c). For zero points each thread adds up rows of
 * both factors while products are on their way; the padding of a convolution is 0, so those of its first factor stay
 * with matrix.c. Where the rows of a convolution's tiles come from is described in conv_tma.c.
 */
#include "contract_int.h"

#include <math.h>

/* RASTER: rows of tiles in a strip, so that the tiles that a device has at a time make a square */
enum {
  BM = CY_CU_TMA_M,
  BN = 256, /* at most */
  CONSUMERS = 256,
  MIN_ITERATIONS = 2,
  RASTER = 16
};

/* Columns of the widest tile of which there are enough; 0: of none. Wider ones move fewer bytes for their products; of the
 * narrowest, fewer will do: half of the multiprocessors multiply faster by them than all do by other instructions. */
static int columns_of(const cy_machine *m, cy_kernel *k, const cy_cu_sizes *s) {
  for (int n = BN; n >= CY_CU_TMA_MIN_COLUMNS; n /= 2) {
    if (cy_cu_tiles_estimate(k, s, BM, n) >= cy_cu_tma_min_tiles(m, n) && cy_cu_estimate(cy_kernel_graph(k), s->n, BN) > n / 2)
      return n;
  }
  return 0;
}

void cy_cu_tma_schedule(const cy_machine *m, cy_kernel *k, cy_cuda_schedule *schedule) {
  cy_graph *g = cy_kernel_graph(k);
  const cy_contraction *c = cy_kernel_contraction(k);
  const cy_karg_info *args;
  cy_cu_sizes s = cy_cu_sizes_of(k);
  cy_kernel_args(k, &args);
  cy_dtype t = args[c->a].dtype;
  if (!cy_cuda_has_warpgroups(m) || !schedule->stages || (schedule->shares && !schedule->shares_vary) || c->b_bits ||
      c->a_rounded || cy_cu_operand_a(k).words)
    return;
  if (c->kind == CY_CONTRACT_CONV && !c->has_a_zero)
    cy_cu_conv_tma_schedule(m, k, schedule);
  if (c->kind != CY_CONTRACT_MATMUL || c->nbatch > 1 ||
      !(cy_dim_is(g, c->a_k, 1) || (cy_cu_tma_transposes(t) && cy_dim_is(g, c->a_m, 1))))
    return;
  int columns = columns_of(m, k, &s);
  if (!columns || cy_cu_estimate(g, s.m, BM) <= BM / 2 ||
      cy_cu_estimate(g, s.k, 4096) < MIN_ITERATIONS * cy_cu_tma_depth(t))
    return;
  double rows = cy_cu_estimate(g, s.z, 8) * ceil(cy_cu_estimate(g, s.m, 512) / BM);
  cy_cu_pingpong(m, k, rows, columns, schedule);
  schedule->tma_blocks = cy_cu_tma_enough(m, g, cy_cu_tiles(g, &s, BM, schedule->tma_n), schedule);
}

void cy_cu_matrix_tma_tensor(cy_kernel *k, const cy_cuda_schedule *schedule, bool b, cy_cuda_tensor *out) {
  cy_graph *g = cy_kernel_graph(k);
  const cy_contraction *c = cy_kernel_contraction(k);
  if (cy_cu_is_conv(c)) {
    cy_cu_conv_tma_tensor(k, schedule, b, out);
    return;
  }
  bool packed = b && schedule->packed_k, transposed = !cy_dim_is(g, b ? c->b_k : c->a_k, 1) && !packed;
  cy_dim rows = b ? c->n : c->m, one = cy_dim_const(g, 1);
  cy_dim row = packed ? cy_dim_const(g, schedule->packed_k) : transposed ? (b ? c->b_k : c->a_k) : (b ? c->b_n : c->a_m);
  cy_dim step = c->nbatch && !packed ? (b ? c->b_batch[0] : c->a_batch[0]) : cy_dim_const(g, 0);
  bool batched = c->nbatch && !cy_dim_is(g, step, 0);
  *out = cy_cu_tma_tensor_of(k, b ? cy_cu_b_arg(schedule, c) : c->a, batched ? 3 : 2);
  out->transposed = transposed;
  out->extent[0] = transposed ? rows : c->k;
  out->extent[1] = transposed ? c->k : rows;
  out->extent[2] = batched ? c->batch[0] : one;
  out->stride[0] = row;
  out->stride[1] = step;
  out->box[0] = cy_cu_tma_depth(out->type); /* as many of m or n as of k */
  out->box[1] = transposed ? out->box[0] : (b ? schedule->tma_n : BM) / 2; /* halves: of a pair, each block brings one */
}

/* ---- printing ---- */

/* A row of either factor, whatever the order of its chunks; neighbouring threads begin with different ones. */
static const char sums_text[] = "CY_INLINE i32 $S_tma_row(const unsigned char *row, b1 of_a, i32 sum) {\n"
                                "  CY_UNROLL\n"
                                "  for (int c = 0; c < 8; c++) {\n"
                                "    const cy_chunk v = cy_chunk_load((const cy_chunk *)row + (c + CY_TID) % 8);\n"
                                "    CY_UNROLL\n"
                                "    for (int w = 0; w < 4; w++)\n"
                                "      sum = of_a ? ADD_A(v.word[w], sum) : ADD_B(v.word[w], sum);\n"
                                "  }\n"
                                "  return sum;\n"
                                "}\n\n";

/* Done with a stage, as far as this warp is concerned. */
static const char left_text[] = "CY_INLINE void $S_tma_left(u64 *empty, int pair) {\n"
                                "  const int lane = CY_TID % 32;\n"
                                "#if PAIRS\n"
                                "  if (lane < (pair ? 2 : 1))\n"
                                "    cy_barrier_arrive_at(empty, (int)(CY_BLOCK % 2) ^ lane);\n"
                                "#else\n"
                                "  if (lane == 0)\n"
                                "    cy_barrier_arrive(empty);\n"
                                "#endif\n"
                                "}\n\n";

/* Where tile number `tile` is; tiles of a pair have one number, and RASTER rows of tiles are a strip. */
static const char place_text[] =
    "      const int block = (int)(tile % ((i64)wide * high)), z = (int)(tile / ((i64)wide * high));\n"
    "      const int strip = block / (raster * wide) * raster, inside = block - strip * wide;\n"
    "      const int height = high - strip < raster ? high - strip : raster;\n"
    "      const int row = (strip + inside % height) * (pair == COLUMN ? 2 : 1) + (pair == COLUMN ? rank : 0);\n"
    "      const int n0 = (inside / height * (pair == ROW ? 2 : 1) + (pair == ROW ? rank : 0)) * BN;\n"
    "#if PATCHES\n"
    "      const int x0 = row % left * TX, y0 = row / left % up * TY, z0 = row / left / up % OZ;\n"
    "      const int i0 = row / left / up / OZ * TI;\n"
    "#else\n"
    "      const int m0 = row * BM;\n"
    "#endif\n";

static const char head_text[] =
    "  CY_DYNAMIC(memory);\n"
    "  CY_SHARED u64 full[STAGES], empty[STAGES];\n"
    "#if PINGPONG\n"
    "  CY_SHARED u64 turn[2];\n"
    "#endif\n"
    "#if ZEROS\n"
    "  CY_SHARED u64 met;\n"
    "  CY_SHARED i32 all[BM + BN];\n"
    "#endif\n"
    "  const int across = (N + BN - 1) / BN;\n"
    "  const int rank = PAIRS ? (int)(CY_BLOCK % 2) : 0;\n"
    "  const int pair = !PAIRS                          ? ALONE\n"
    "                   : down % 2 == 0                 ? COLUMN\n"
    "                   : across % 2 == 0 && !PATCHES   ? ROW\n"
    "                   : down > FEW                    ? COLUMN\n"
    "                   : across > FEW && !PATCHES      ? ROW\n"
    "                                                   : ALONE;\n"
    "  const int high = pair == COLUMN ? (down + 1) / 2 : down, raster = pair == COLUMN ? RASTER / 2 : RASTER;\n"
    "  const int wide = pair == ROW ? (across + 1) / 2 : across;\n"
    "  const i64 tiles = (i64)wide * high * Z, first = pair ? CY_BLOCK / 2 : CY_BLOCK;\n"
    "  const i64 step_of_tiles = pair ? CY_BLOCKS / 2 : CY_BLOCKS;\n"
    "  if (CY_TID == 0) {\n"
    "    CY_EXPECT_MAP(map_a);\n"
    "    CY_EXPECT_MAP(map_b);\n"
    "    for (int s = 0; s < STAGES; s++) {\n"
    "      cy_barrier_init(&full[s], 1);\n"
    "      cy_barrier_init(&empty[s], CONSUMERS / 32 / HALVES * (pair ? 2 : 1));\n"
    "    }\n"
    "#if PINGPONG\n"
    "    for (int s = 0; s < 2; s++)\n"
    "      cy_barrier_init(&turn[s], CONSUMERS / 32 / 2);\n"
    "#endif\n"
    "#if ZEROS\n"
    "    cy_barrier_init(&met, CONSUMERS / 32);\n"
    "#endif\n"
    "    cy_barrier_publish();\n"
    "  }\n"
    "#if PAIRS\n"
    "  CY_SYNC_CLUSTER();\n"
    "#else\n"
    "  CY_SYNC();\n"
    "#endif\n"
    "  if (CY_TID >= CONSUMERS) {\n"
    "    CY_REGISTERS(dec, 40);\n"
    "    int step = 0; /* of all tiles of the block */\n"
    "    CY_UNROLL_BY(1)\n"
    "    for (i64 tile = first; CY_TID == CONSUMERS && tile < tiles; tile += step_of_tiles) {\n";

static const char bring_text[] =
    "      CY_UNROLL_BY(1)\n"
    "      for (int t = 0; t < iterations; t++, step++) {\n"
    "        unsigned char *const to_a = memory + step % STAGES * STAGE, *const to_b = to_a + BM * 128;\n"
    "        u64 *const ready = &full[step % STAGES];\n"
    "        if (step >= STAGES)\n"
    "          cy_barrier_wait(&empty[step % STAGES], step / STAGES - 1);\n"
    "        cy_barrier_expect(ready, STAGE);\n"
    "#if PATCHES\n"
    "        const int tap = t / deep, c = t % deep * BK;\n"
    "        CY_TENSOR_LOAD_5(to_a, map_a, c, x0 * SX + tap % KX * DX - PX, y0 * SY + tap / KX % KY * DY - PY,\n"
    "                         z0 * SZ + tap / KX / KY * DZ - PZ, i0, ready);\n"
    "        CY_UNROLL\n"
    "        for (int i = 0; i < B_PARTS; i++)\n"
    "          if (pair != COLUMN || i == rank)\n"
    "            CY_TENSOR_LOAD(pair == COLUMN, 1, to_b + i * B_PART * 128, map_b, c, tap, n0 + i * B_PART, ready);\n"
    "#else\n"
    "        CY_UNROLL\n"
    "        for (int i = 0; i < A_PARTS; i++)\n"
    "          if (pair != ROW || i * 2 / A_PARTS == rank)\n"
    "            CY_TENSOR_LOAD(pair == ROW, A_BATCHED, to_a + i * A_PART * 128, map_a,\n"
    "                           A_TRANSPOSED ? m0 + i * A_PART : t * BK, A_TRANSPOSED ? t * BK : m0 + i * A_PART, z, "
    "ready);\n"
    "        CY_UNROLL\n"
    "        for (int i = 0; i < B_PARTS; i++)\n"
    "          if (pair != COLUMN || i * 2 / B_PARTS == rank)\n"
    "            CY_TENSOR_LOAD(pair == COLUMN, B_BATCHED, to_b + i * B_PART * 128, map_b,\n"
    "                           B_TRANSPOSED ? n0 + i * B_PART : t * BK, B_TRANSPOSED ? t * BK : n0 + i * B_PART, z, "
    "ready);\n"
    "#endif\n"
    "      }\n"
    "    }\n"
    "    CY_SYNC_WARP();\n"
    "  } else {\n"
    "    CY_REGISTERS(inc, 232);\n"
    "    const int warp = CY_TID / 32, lane = CY_TID % 32, group = cy_uniform(CY_TID / 128);\n"
    "    const u64 first_a = cy_matrix_at(memory + (PINGPONG ? 0 : group) * HALF, 128, 1024, A_TRANSPOSED ? BK * 128 : 0);\n"
    "    const u64 first_b = cy_matrix_at(memory + BM * 128, 128, 1024, B_TRANSPOSED ? BK * 128 : 0);\n"
    "    $T *const own = ($T *)(memory + STAGES * STAGE) + warp * 16 * PART; /* 16 rows of a part of the columns */\n"
    "    $T acc[HALVES * (BN / 2)] CY_ALIGNED(8);\n"
    "    int step = PINGPONG ? group * iterations : 0; /* of all tiles of the block */\n"
    "#if PINGPONG\n"
    "    int turns = 0;\n"
    "    if (group == 1 && lane == 0)\n"
    "      cy_barrier_arrive(&turn[0]);\n"
    "#endif\n"
    "#if ZEROS\n"
    "    int meeting = 0;\n"
    "#endif\n"
    "    CY_UNROLL_BY(1)\n"
    "    for (i64 tile = first + (PINGPONG ? group : 0) * step_of_tiles; tile < tiles; tile += HALVES * step_of_tiles) {\n";

static const char multiply_text[] =
    "#if ZEROS\n"
    "      i32 sum_a = 0, sum_b = 0;\n"
    "#endif\n"
    "      CY_UNROLL\n"
    "      for (int i = 0; i < HALVES * (BN / 2); i++)\n"
    "        acc[i] = 0;\n"
    "#if PINGPONG\n"
    "      cy_barrier_wait(&turn[group], turns++);\n"
    "#endif\n"
    "      CY_UNROLL_BY(1)\n"
    "      for (int t = 0; t < iterations; t++, step++) {\n"
    "        const int at = step % STAGES * (STAGE / 16);\n"
    "        cy_barrier_wait(&full[step % STAGES], step / STAGES);\n"
    "        cy_keep(acc, HALVES * (BN / 2));\n"
    "        cy_warpgroup_begin();\n"
    "        CY_UNROLL\n"
    "        for (int s = 0; s < 4; s++) /* 32 bytes of each row */\n"
    "          CY_UNROLL\n"
    "          for (int h = 0; h < HALVES; h++)\n"
    "            CY_WGMMA(WGMMA, A_TRANSPOSED, B_TRANSPOSED, acc + h * (BN / 2),\n"
    "                     first_a + (u64)(at + h * (HALF / 16) + s * (A_TRANSPOSED ? 128 : 2)),\n"
    "                     first_b + (u64)(at + s * (B_TRANSPOSED ? 128 : 2)));\n"
    "        cy_warpgroup_commit();\n"
    "#if ZEROS\n"
    "        const unsigned char *const rows = memory + step % STAGES * STAGE;\n"
    "        if (CY_TID < BM)\n"
    "          sum_a = $S_tma_row(rows + CY_TID * 128, 1, sum_a);\n"
    "        if (CY_TID < BN)\n"
    "          sum_b = $S_tma_row(rows + (BM + CY_TID) * 128, 0, sum_b);\n"
    "        CY_SYNC_WARP();\n"
    "#endif\n"
    "        cy_warpgroup_wait_previous();\n"
    "        if (t > 0)\n"
    "          $S_tma_left(&empty[(step - 1) % STAGES], pair);\n"
    "      }\n"
    "#if PINGPONG\n"
    "      if (lane == 0) /* all products of this tile have begun */\n"
    "        cy_barrier_arrive(&turn[1 - group]);\n"
    "#endif\n"
    "      cy_warpgroup_wait();\n"
    "      cy_keep(acc, HALVES * (BN / 2));\n"
    "      $S_tma_left(&empty[(step - 1) % STAGES], pair);\n"
    "      step += PINGPONG ? iterations : 0; /* those of the other warpgroup */\n"
    "#if ZEROS\n"
    "      const u32 za = (u32)(A_ZERO);\n"
    "      if (CY_TID < BM)\n"
    "        all[CY_TID] = sum_a;\n"
    "      if (CY_TID < BN)\n"
    "        all[BM + CY_TID] = sum_b;\n"
    "      CY_SYNC_WARP();\n"
    "      if (lane == 0)\n"
    "        cy_barrier_arrive(&met);\n"
    "      cy_barrier_wait(&met, meeting++);\n"
    "#endif\n";

/* Each warp on its own, while the other warpgroup multiplies and tiles of the next results come. */
static const char results_text[] =
    "      CY_UNROLL\n"
    "      for (int each = 0; each < HALVES * (BN / PART); each++) {\n"
    "        const int part = each % (BN / PART);\n"
    "        const int m_of_warp = PINGPONG ? each / (BN / PART) * 64 + warp % 4 * 16 : warp * 16;\n"
    "        CY_UNROLL\n"
    "        for (int i = 0; i < PART / 2; i += 2) {\n"
    "          const int m = lane / 4 + i % 4 * 4, n = i / 4 * 8 + lane % 4 * 2;\n"
    "          $T *const two = &acc[each * (PART / 2) + i];\n"
    "#if ZEROS\n"
    "          CY_UNROLL\n"
    "          for (int u = 0; u < 2; u++) {\n"
    "            const int column = part * PART + n + u;\n"
    "            const u32 zb = n0 + column < N ? (u32)(B_ZERO(z, n0 + column)) : 0;\n"
    "            two[u] -= (i32)(za * (u32)all[BM + column] + zb * ((u32)all[m_of_warp + m] - (u32)K * za));\n"
    "          }\n"
    "#endif\n"
    "          cy_move8(&own[STAGED(m, n)], two);\n"
    "        }\n"
    "        CY_SYNC_WARP();\n"
    "        CY_UNROLL_BY(1)\n"
    "        for (int q = lane * VECTOR; q < 16 * PART; q += 32 * VECTOR) {\n"
    "          const int m = q / PART, n = n0 + part * PART + q % PART, to = ROW_OF(m_of_warp + m);\n"
    "          $T sums[VECTOR] CY_ALIGNED(16);\n"
    "#if VECTOR > 1\n"
    "          CY_UNROLL\n"
    "          for (int u = 0; u < VECTOR; u += 4)\n"
    "            cy_move16(sums + u, (const cy_chunk *)own + STAGED(m, q % PART + u) / 4);\n"
    "#else\n"
    "          sums[0] = own[STAGED(m, q % PART)];\n"
    "#endif\n"
    "          if ((u32)to < (u32)M && n < N)\n"
    "            $S_end($N, 1, 0, z, to, n, sums, M, N);\n"
    "        }\n"
    "        CY_SYNC_WARP();\n"
    "      }\n"
    "#if ZEROS\n"
    "      if (lane == 0)\n"
    "        cy_barrier_arrive(&met); /* the sums may be overwritten */\n"
    "      cy_barrier_wait(&met, meeting++);\n"
    "#endif\n"
    "    }\n"
    "#if MAXIMA\n"
    "    cy_held_max_end(maxima);\n"
    "#endif\n"
    "  }\n"
    "#if PAIRS\n"
    "  CY_LEAVE_CLUSTER(); /* the other block may still copy here, or arrive */\n"
    "#endif\n";

/* Rows of a factor that a copy brings. */
static int part_of(const cy_cuda_tensor *t) { return t->transposed ? t->box[0] : t->box[1]; }

static void print_body(cy_cu_contract *q) {
  const char *const text[] = {head_text, place_text, bring_text, place_text, multiply_text, results_text};
  for (size_t i = 0; i < sizeof text / sizeof *text; i++)
    cy_cu_contract_text(q, text[i]);
}

/* Macros that the functions and the kernel have, until their end. */
static void print_macros(cy_cu_contract *q, const cy_cuda_tensor *a, const cy_cuda_tensor *b) {
  cy_cu *p = q->p;
  bool conv = cy_cu_is_conv(q->c);
  fprintf(p->out, "#define ZEROS %d\n#define PAIRS %d\n#define PINGPONG %d\n", cy_cu_has_zeros(q->c),
          cy_cuda_tma_cluster(p->k, p->schedule) > 1, p->schedule->tma_pingpong);
  fprintf(p->out, "#define WGMMA cy_wgmma_%s%s_%d\n#define PATCHES %d\n#define ROW_OF(m) ",
          a->type == CY_F32 ? "tf32" : cy_dtype_of(a->type)->name, cy_cu_factor_b_name(a->type, b->type),
          p->schedule->tma_n, conv);
  cy_cu_contract_text(q, conv ? "$S_row_of($N, x0, y0, z0, i0, m)\n" : "(m0 + (m))\n");
  fputs(CY_CU_STAGED, p->out);
}

static const char end_of_macros[] = "#undef WGMMA\n#undef PATCHES\n#undef PAIRS\n#undef PINGPONG\n#undef ROW_OF\n#undef STAGED\n"
                                    "#undef ZEROS\n#undef ADD_A\n#undef ADD_B\n#undef A_ZERO\n#undef B_ZERO\n";

/* Sizes of tiles and of what a copy brings, at the head of the kernel. */
static void print_numbers(cy_cu_contract *q, const cy_cuda_tensor *a, const cy_cuda_tensor *b) {
  cy_cu *p = q->p;
  int stage = (BM + p->schedule->tma_n) * CY_CU_TMA_ROW_BYTES;
  cy_cu_line(p, "enum { BM = %d, BN = %d, BK = %d, STAGES = %d, STAGE = %d, CONSUMERS = %d, RASTER = %d, PART = %d };",
             BM, p->schedule->tma_n, cy_cu_tma_depth(a->type), CY_CUDA_TMA_TILES / stage, stage, CONSUMERS, RASTER,
             CY_CUDA_TMA_PART);
  cy_cu_line(p, "enum { HALVES = PINGPONG ? 2 : 1, HALF = 64 * %d }; /* of a tile's rows, that a warpgroup multiplies */",
             CY_CU_TMA_ROW_BYTES);
  cy_cu_line(p, "enum { ALONE, COLUMN, ROW, FEW = %d }; /* what the tiles of a pair of blocks are of */", RASTER);
  cy_cu_line(p, "enum { A_PART = %d, B_PART = %d, A_PARTS = BM / A_PART, B_PARTS = BN / B_PART };", part_of(a),
             cy_cu_is_conv(q->c) ? b->box[2] : part_of(b));
  cy_cu_line(p, "enum { A_TRANSPOSED = %d, B_TRANSPOSED = %d, A_BATCHED = %d, B_BATCHED = %d };", a->transposed,
             b->transposed, a->rank == 3, b->rank == 3);
}

static void print_sizes(cy_cu_contract *q) {
  cy_cu *p = q->p;
  bool conv = cy_cu_is_conv(q->c);
  cy_cu_line(p, "const int M = (int)%s, N = (int)%s, K = (int)%s;", q->m, q->n, q->k);
  if (conv)
    cy_cu_conv_tma_places(q);
  else
    cy_cu_line(p, "const int down = (M + BM - 1) / BM, iterations = (K + BK - 1) / BK;");
  cy_cu_line(p, "const int Z = %s;", !conv && q->c->nbatch ? cy_cu_dim(p, q->c->batch[0]) : "1");
}

void cy_cu_tma_print(cy_cu_contract *q) {
  cy_cu *p = q->p;
  cy_cuda_tensor a, b;
  if (!cy_cuda_tma(p->k, p->schedule))
    return;
  cy_cu_matrix_tma_tensor(p->k, p->schedule, false, &a);
  cy_cu_matrix_tma_tensor(p->k, p->schedule, true, &b);
  fputs("#if CY_WARPGROUPS\n", p->out);
  print_macros(q, &a, &b);
  if (cy_cu_is_conv(q->c))
    cy_cu_conv_tma_functions(q);
  if (cy_cu_has_zeros(q->c)) {
    cy_cu_byte_constants(q);
    cy_cu_contract_text(q, sums_text);
  }
  cy_cu_contract_text(q, left_text);
  fprintf(p->out, cy_cuda_tma_cluster(p->k, p->schedule) > 1 ? "CY_KERNEL_OF_PAIRS(%d, %s_tma) " : "CY_KERNEL(%d) ",
          CY_CUDA_TMA_THREADS, q->symbol);
  cy_cu_function_open(q, "$S_tma($Q, CY_MAP map_a, CY_MAP map_b) {\n");
  print_numbers(q, &a, &b);
  print_sizes(q);
  print_body(q);
  cy_cu_function_close(q);
  fputs(end_of_macros, p->out);
  fputs("#endif\n\n", p->out);
}
