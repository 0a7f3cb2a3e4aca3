/* SPDX-License-Identifier: Apache-2.0 */
/* attention_tma.c - sm_90a: attention whose keys and values the tensor memory accelerator brings.
 *
 * Beside the kernel of attention.c stands <symbol>_tma where there are many rows and scores stay as they are multiplied,
 * but for causality. A block has two warpgroups of 64 rows each and a third one that loads: one thread orders tiles of
 * keys and values, three warps fetch the next queries. There are at most as many blocks as multiprocessors, and each goes
 * through tiles of rows; so that causality leaves all blocks alike much to do, every other round of tiles is distributed
 * backwards, and heads are taken some at a time, whose keys and values the second-level cache holds.
 *
 * A warpgroup orders the scores of the next keys and then the product of the last weights with their values, and turns
 * scores into weights while the latter goes on. While it does, the other one multiplies: `turn` tells them apart.
 */
#include "codegen/cuda/matrix/contract_int.h"

enum {
  ROWS = 128,
  KEYS = 128,
  MAX_AXES = CY_CUDA_TMA_RANK - 2,
  CACHED = 24 << 20, /* bytes of keys and values that are in use at a time */
  STAGING = ROWS * CY_CUDA_TMA_PART * 4
};

static const cy_contraction *of(cy_kernel *k) { return cy_kernel_contraction(k); }

static int64_t size_of(cy_kernel *k) {
  int64_t size = 0;
  return cy_dim_is_const(cy_kernel_graph(k), of(k)->k, &size) ? size : 0;
}

/* `shared`: trailing batch axes of one key head; `blocks`: tiles of rows, 0 where blocks share keys. */
void cy_cu_attention_tma_schedule(const cy_machine *m, cy_kernel *k, int shared, cy_dim blocks, cy_cuda_schedule *schedule) {
  cy_graph *g = cy_kernel_graph(k);
  const cy_contraction *c = of(k);
  int64_t size = size_of(k);
  if (!cy_cuda_has_warpgroups(m) || !schedule->warpgroups || cy_dim_is(g, blocks, 0) || schedule->tile.m != ROWS ||
      !cy_dim_is(g, c->n, size) || (size != 64 && size != 128) || !cy_dim_is(g, c->b_k, 1) ||
      !cy_dim_is(g, c->v_n, 1) || c->nbatch - shared > MAX_AXES)
    return;
  schedule->tma_blocks = blocks;
  schedule->tma_n = KEYS;
  cy_var last = c->out_var[c->nout_vars - 1];
  for (int vector = 8; vector >= 4 && !schedule->vector; vector /= 2)
    cy_cuda_vectorise_body(k, schedule, cy_cu_epilogue(k), last, vector, 16);
}

/* [batch axes..][keys][columns], a box of 64 columns. */
void cy_cu_attention_tma_tensor(cy_kernel *k, bool values, cy_cuda_tensor *out) {
  cy_graph *g = cy_kernel_graph(k);
  const cy_contraction *c = of(k);
  const cy_dim *batch = values ? c->v_batch : c->b_batch;
  int axes = c->nbatch - cy_cu_attention_shared(k);
  *out = cy_cu_tma_tensor_of(k, values ? c->v : c->b, CY_CUDA_TMA_RANK);
  out->extent[0] = values ? c->n : c->k;
  out->extent[1] = c->keys;
  out->stride[0] = values ? c->v_k : c->b_n;
  for (int i = 0; i < MAX_AXES; i++) { /* the last one first */
    bool there = i < axes;
    out->extent[2 + i] = there ? c->batch[axes - 1 - i] : cy_dim_const(g, 1);
    out->stride[1 + i] = there ? batch[axes - 1 - i] : out->stride[0];
  }
  out->box[0] = 64;
  out->box[1] = KEYS;
}

/* ---- printing ---- */

static const char functions[] =
    "CY_INLINE void $S_tma_place(i64 tile, int down, int heads, int group, int *head, int *r0) {\n"
    "  const i64 per = (i64)group * down;\n"
    "  const int first = (int)(tile / per) * group, inside = (int)(tile % per);\n"
    "  const int n = heads - first < group ? heads - first : group;\n"
    "  *head = first + inside % n;\n"
    "  *r0 = (down - 1 - inside / n) * BM; /* with causality the longest come first */\n"
    "}\n\n"
    "CY_INLINE void $S_tma_scores(u64 queries, u64 keys, f32 s[BN / 2]) {\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < BN / 2; i++)\n"
    "    s[i] = 0;\n"
    "  cy_keep(s, BN / 2);\n"
    "  cy_warpgroup_begin();\n"
    "  CY_UNROLL\n"
    "  for (int d = 0; d < D / 16; d++)\n"
    "    CY_WGMMA(WGMMA, 0, 0, s, queries + d / 4 * (BM * 8) + d % 4 * 2, keys + d / 4 * (BN * 8) + d % 4 * 2);\n"
    "  cy_warpgroup_commit();\n"
    "}\n\n"
    "CY_INLINE void $S_tma_values(u64 values, u32 w[BN / 16][4], f32 o[D / 2]) {\n"
    "  cy_keep(&w[0][0], BN / 4);\n"
    "  cy_keep(o, D / 2);\n"
    "  cy_warpgroup_begin();\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < BN / 16; i++)\n"
    "    WGMMA_HELD(o, w[i], values + i * 128);\n"
    "  cy_warpgroup_commit();\n"
    "}\n\n"
    /* Scores become weights; `down`: what results so far are scaled by. */
    "CY_INLINE void $S_tma_weights(int key0, int keys, i64 past, const int rm[2], f32 s[BN / 2], f32 top[2],\n"
    "                              f32 sum[2], f32 down[2]) {\n"
    "  const int end = key0 + BN, column = key0 + CY_TID % 4 * 2;\n"
    "  const f32 none = cy_f32_bits(0xff800000u);\n"
    "  if (end > keys || (HIDES && end > (rm[0] < rm[1] ? rm[0] : rm[1]) + past + 1)) {\n"
    "    CY_UNROLL\n"
    "    for (int i = 0; i < BN / 2; i++) {\n"
    "      const int key = column + i / 4 * 8 + i % 2;\n"
    "      s[i] = key < keys ? CHANGED(0, rm[i / 2 % 2], key, s[i]) : none;\n"
    "    }\n"
    "  }\n"
    "  CY_UNROLL\n"
    "  for (int h = 0; h < 2; h++) {\n"
    "    f32 best = top[h];\n"
    "    CY_UNROLL\n"
    "    for (int i = 0; i < BN / 4; i++)\n"
    "      best = cy_greater(best, s[i / 2 * 4 + h * 2 + i % 2]);\n"
    "    CY_UNROLL\n"
    "    for (int mask = 1; mask < 4; mask *= 2)\n"
    "      best = cy_greater(best, cy_shfl_f32(best, mask));\n"
    "    const f32 safe = best == none ? 0 : best;\n"
    "    down[h] = WEIGH(0, 0, 0, top[h], safe);\n"
    "    top[h] = best;\n"
    "    sum[h] *= down[h];\n"
    "    CY_UNROLL\n"
    "    for (int i = 0; i < BN / 4; i++) {\n"
    "      f32 *const at = &s[i / 2 * 4 + h * 2 + i % 2];\n"
    "      *at = WEIGH(0, 0, 0, *at, safe);\n"
    "      sum[h] += *at;\n"
    "    }\n"
    "  }\n"
    "}\n\n"
    "CY_INLINE void $S_tma_pack(const f32 s[BN / 2], u32 w[BN / 16][4]) {\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < BN / 4; i++)\n"
    "    w[i / 4][i % 4] = PACK(s[i * 2], s[i * 2 + 1]);\n"
    "}\n\n";

static const char head_text[] =
    "  CY_DYNAMIC(memory);\n"
    "  CY_SHARED u64 full_k[STAGES], full_v[STAGES], empty_k[STAGES], empty_v[STAGES], full_q[2], empty_q[2], "
    "turn[2];\n"
    "  const int R = M * S, down = (R + BM - 1) / BM, heads = all / R;\n"
    "  const i64 cached = CACHED / ((i64)keys * D * 4), tiles = (i64)heads * down;\n"
    "  const int group = cached < 1 ? 1 : cached < heads ? (int)cached : heads;\n"
    "  unsigned char *const tiles_k = memory + 2 * QUERIES, *const tiles_v = tiles_k + STAGES * TILE;\n"
    "  if (CY_TID == 0) {\n"
    "    CY_EXPECT_MAP(map_a);\n"
    "    CY_EXPECT_MAP(map_b);\n"
    "    for (int s = 0; s < STAGES; s++) {\n"
    "      cy_barrier_init(&full_k[s], 1);\n"
    "      cy_barrier_init(&full_v[s], 1);\n"
    "      cy_barrier_init(&empty_k[s], CONSUMERS / 32);\n"
    "      cy_barrier_init(&empty_v[s], CONSUMERS / 32);\n"
    "    }\n"
    "    for (int s = 0; s < 2; s++) {\n"
    "      cy_barrier_init(&full_q[s], FETCHERS);\n"
    "      cy_barrier_init(&empty_q[s], CONSUMERS / 32);\n"
    "      cy_barrier_init(&turn[s], 4);\n"
    "    }\n"
    "    cy_barrier_publish();\n"
    "  }\n"
    "  CY_SYNC();\n";

/* Around what is done for each tile of rows. */
static const char tiles_begin[] =
    "    CY_UNROLL_BY(1)\n"
    "    for (int round = 0; round * CY_BLOCKS < tiles; round++) {\n"
    "      const i64 tile = round * CY_BLOCKS + (round % 2 ? CY_BLOCKS - 1 - CY_BLOCK : CY_BLOCK);\n"
    "      if (tile >= tiles)\n"
    "        continue;\n"
    "      int head, r0, lo, hi;\n"
    "      $S_tma_place(tile, down, heads, group, &head, &r0);\n"
    "      $S_range(1, 0, r0, M, R, keys, past, &lo, &hi);\n"
    "      const int iterations = hi > lo ? (hi - lo + BN - 1) / BN : 0, z = head * S;\n";
static const char tiles_end[] = "    }\n";

static const char bring_text[] =
    "      int axis[3];\n"
    "      $S_tma_axes($N, head, axis);\n"
    "      CY_UNROLL_BY(1)\n"
    "      for (int t = 0; t < iterations; t++, step++) {\n"
    "        const int stage = step % STAGES, key = lo + t * BN;\n"
    "        if (step >= STAGES)\n"
    "          cy_barrier_wait(&empty_k[stage], step / STAGES - 1);\n"
    "        cy_barrier_expect(&full_k[stage], TILE);\n"
    "        for (int i = 0; i < D / 64; i++)\n"
    "          CY_TENSOR_LOAD_5(tiles_k + stage * TILE + i * BN * 128, map_a, i * 64, key, axis[0], axis[1], axis[2],\n"
    "                           &full_k[stage]);\n"
    "        if (step >= STAGES)\n"
    "          cy_barrier_wait(&empty_v[stage], step / STAGES - 1);\n"
    "        cy_barrier_expect(&full_v[stage], TILE);\n"
    "        for (int i = 0; i < D / 64; i++)\n"
    "          CY_TENSOR_LOAD_5(tiles_v + stage * TILE + i * BN * 128, map_b, i * 64, key, axis[0], axis[1], axis[2],\n"
    "                           &full_v[stage]);\n"
    "      }\n";

static const char fetch_text[] =
    "      cy_chunk *const to = (cy_chunk *)(memory + step % 2 * QUERIES);\n"
    "      if (step >= 2)\n"
    "        cy_barrier_wait(&empty_q[step % 2], step / 2 - 1);\n"
    "      CY_UNROLL_BY(1)\n"
    "      for (int q = CY_TID - (CONSUMERS + 32); q < BM * (D / CH); q += FETCHERS) {\n"
    "        const int row = q / (D / CH), r = r0 + row < R ? r0 + row : R - 1;\n"
    "        $S_chunk(wide_q, $A + $S_q_at($N, z + r / M, r % M), q_step, q % (D / CH), D, r0 + row < R,\n"
    "                 &to[cy_place(row, q % (D / CH), 8, BM)]);\n"
    "      }\n"
    "      cy_copy_commit();\n"
    "      CY_COPY_WAIT(0);\n"
    "      cy_publish();\n"
    "      cy_barrier_arrive(&full_q[step % 2]);\n"
    "      step++;\n";

static const char multiply_text[] =
    "      const u64 queries = q_first + (u64)(passed % 2 * (QUERIES / 16));\n"
    "      int rm[2];\n"
    "      f32 top[2] = {none, none}, sum[2] = {0, 0}, down_by[2], s[BN / 2], o[D / 2];\n"
    "      u32 w[BN / 16][4];\n"
    "      CY_UNROLL\n"
    "      for (int h = 0; h < 2; h++) {\n"
    "        const int r = r0 + warp * 16 + lane / 4 + h * 8;\n"
    "        rm[h] = (r < R ? r : R - 1) % M;\n"
    "      }\n"
    "      CY_UNROLL\n"
    "      for (int i = 0; i < D / 2; i++)\n"
    "        o[i] = 0;\n"
    "      cy_barrier_wait(&full_q[passed % 2], passed / 2);\n"
    "      if (iterations > 0) {\n"
    "        cy_barrier_wait(&full_k[step % STAGES], step / STAGES);\n"
    "        cy_barrier_wait(&turn[me], mine++);\n"
    "        $S_tma_scores(queries, k_first + (u64)(step % STAGES * (TILE / 16)), s);\n"
    "        if (lane == 0)\n"
    "          cy_barrier_arrive(&turn[1 - me]);\n"
    "        cy_warpgroup_wait();\n"
    "        cy_keep(s, BN / 2);\n"
    "        if (lane == 0)\n"
    "          cy_barrier_arrive(&empty_k[step % STAGES]);\n"
    "        $S_tma_weights(lo, keys, past, rm, s, top, sum, down_by);\n"
    "        $S_tma_pack(s, w);\n"
    "        if (iterations > 1)\n"
    "          cy_barrier_wait(&full_k[(step + 1) % STAGES], (step + 1) / STAGES);\n"
    "        CY_UNROLL_BY(1)\n"
    "        for (int t = 1; t < iterations; t++, step++) {\n"
    "          const int stage = step % STAGES, next = (step + 1) % STAGES;\n"
    "          cy_barrier_wait(&turn[me], mine++);\n"
    "          $S_tma_scores(queries, k_first + (u64)(next * (TILE / 16)), s);\n"
    "          cy_barrier_wait(&full_v[stage], step / STAGES);\n"
    "          $S_tma_values(v_first + (u64)(stage * (TILE / 16)), w, o);\n"
    "          if (lane == 0)\n"
    "            cy_barrier_arrive(&turn[1 - me]);\n"
    "          cy_warpgroup_wait_previous();\n"
    "          cy_keep(s, BN / 2);\n"
    "          if (lane == 0)\n"
    "            cy_barrier_arrive(&empty_k[next]);\n"
    "          $S_tma_weights(lo + t * BN, keys, past, rm, s, top, sum, down_by);\n"
    "          cy_keep(s, BN / 2);\n"
    "          if (t + 1 < iterations) /* the compiler keeps what stands in front of this jump in front of the next "
    "wait "
    "*/\n"
    "            cy_barrier_wait(&full_k[(step + 2) % STAGES], (step + 2) / STAGES);\n"
    "          cy_warpgroup_wait();\n"
    "          cy_keep(o, D / 2);\n"
    "          cy_keep(&w[0][0], BN / 4);\n"
    "          if (lane == 0)\n"
    "            cy_barrier_arrive(&empty_v[stage]);\n"
    "          CY_UNROLL\n"
    "          for (int i = 0; i < D / 2; i++)\n"
    "            o[i] *= down_by[i / 2 % 2];\n"
    "          $S_tma_pack(s, w);\n"
    "        }\n"
    "        cy_barrier_wait(&full_v[step % STAGES], step / STAGES);\n"
    "        $S_tma_values(v_first + (u64)(step % STAGES * (TILE / 16)), w, o);\n"
    "        cy_warpgroup_wait();\n"
    "        cy_keep(o, D / 2);\n"
    "        if (lane == 0)\n"
    "          cy_barrier_arrive(&empty_v[step % STAGES]);\n"
    "        step++;\n"
    "      }\n"
    "      if (lane == 0)\n"
    "        cy_barrier_arrive(&empty_q[passed % 2]);\n"
    "      passed++;\n";

static const char results_text[] =
    "      CY_UNROLL\n"
    "      for (int h = 0; h < 2; h++) {\n"
    "        sum[h] += cy_shfl_f32(sum[h], 1);\n"
    "        sum[h] += cy_shfl_f32(sum[h], 2);\n"
    "        sum[h] = 1 / sum[h];\n"
    "      }\n"
    "      CY_UNROLL\n"
    "      for (int part = 0; part < D / PART; part++) {\n"
    "        CY_UNROLL\n"
    "        for (int i = 0; i < PART / 2; i += 2) {\n"
    "          const int h = i / 2 % 2, m = lane / 4 + h * 8, n = i / 4 * 8 + lane % 4 * 2;\n"
    "          f32 two[2] CY_ALIGNED(8);\n"
    "          CY_UNROLL\n"
    "          for (int u = 0; u < 2; u++)\n"
    "            two[u] = top[h] == none ? EMPTY : o[part * (PART / 2) + i + u] * sum[h];\n"
    "          cy_move8(&own[STAGED(m, n)], two);\n"
    "        }\n"
    "        CY_SYNC_WARP();\n"
    "        CY_UNROLL_BY(1)\n"
    "        for (int q = lane * VECTOR; q < 16 * PART; q += 32 * VECTOR) {\n"
    "          const int m = q / PART, r = r0 + warp * 16 + m;\n"
    "          f32 values[VECTOR] CY_ALIGNED(16);\n"
    "#if VECTOR > 1\n"
    "          CY_UNROLL\n"
    "          for (int u = 0; u < VECTOR; u += 4)\n"
    "            cy_move16(values + u, (const cy_chunk *)own + STAGED(m, q % PART + u) / 4);\n"
    "          if (r < R)\n"
    "            $S_put_chunk($N, z + r / M, r % M, part * PART + q % PART, values);\n"
    "#else\n"
    "          values[0] = own[STAGED(m, q % PART)];\n"
    "          if (r < R)\n"
    "            $S_put($N, z + r / M, r % M, part * PART + q % PART, values[0]);\n"
    "#endif\n"
    "        }\n"
    "        CY_SYNC_WARP();\n"
    "      }\n";

/* One branch for each role of a warpgroup: the compiler must know how many registers it has where. */
static const char fetcher_begin[] = "  int step = 0; /* of tiles of keys; of who fetches queries: of rows */\n"
                                    "  if (CY_TID >= CONSUMERS) {\n"
                                    "    CY_REGISTERS(dec, 40);\n"
                                    "    if (CY_TID >= CONSUMERS + 32) {\n";
static const char bringer_begin[] = "    } else if (CY_TID == CONSUMERS) {\n";
static const char consumer_begin[] = "    }\n"
                                     "  } else {\n"
                                     "    CY_REGISTERS(inc, 232);\n";
static const char consumer_head[] = "    const int warp = CY_TID / 32, lane = CY_TID % 32;\n"
                                    "    const int me = cy_uniform(CY_TID / 128);\n"
                                    "    const f32 none = cy_f32_bits(0xff800000u);\n"
                                    "    const u64 q_first = cy_matrix_at(memory + me * 64 * 128, 128, 1024, 0);\n"
                                    "    const u64 k_first = cy_matrix_at(tiles_k, 128, 1024, 0), v_first = "
                                    "cy_matrix_at(tiles_v, 128, 1024, BN * 128);\n"
                                    "    f32 *const own = (f32 *)(tiles_v + STAGES * TILE) + warp * 16 * PART;\n"
                                    "    int passed = 0, mine = 0; /* tiles of rows; iterations */\n"
                                    "    if (me == 1 && lane == 0)\n"
                                    "      cy_barrier_arrive(&turn[0]);\n";

/* Where on the maps' axes a head is. */
static void print_axes(cy_cu_contract *q) {
  cy_cu *p = q->p;
  cy_cu_function_open(q, "CY_INLINE void $S_tma_axes($P, int head, int axis[3]) {\n");
  int axes = q->c->nbatch - cy_cu_attention_shared(p->k);
  for (int i = 0; i < MAX_AXES; i++) {
    const char *n = i < axes ? cy_cu_dim(p, q->c->batch[axes - 1 - i]) : "1";
    cy_cu_line(p, "axis[%d] = head %% (int)%s;", i, n);
    cy_cu_line(p, "head /= (int)%s;", n);
  }
  cy_cu_function_close(q);
}

static void print_constants(const cy_cu_contract *q) {
  FILE *f = q->p->out;
  int size = (int)size_of(q->p->k), tile = KEYS * size * 2, queries = ROWS * size * 2;
  const char *type = cy_dtype_of(q->p->args[q->c->a].dtype)->name;
  const cy_cu_number rows[] = {{"BN", KEYS},
                               {"PART", CY_CUDA_TMA_PART},
                               {"CONSUMERS", 256},
                               {"FETCHERS", 96},
                               {"QUERIES", queries},
                               {"STAGES", (CY_CUDA_TMA_SHARED - STAGING - 2 * queries) / (2 * tile)},
                               {"TILE", tile},
                               {"CACHED", CACHED},
                               {"VECTOR", q->p->schedule->vector ? q->p->schedule->vector : 1}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    fprintf(f, "#undef %s\n#define %s %lld\n", rows[i].name, rows[i].name, (long long)rows[i].value);
  fprintf(f, "#undef WGMMA\n#define WGMMA cy_wgmma_%s_%d\n", type, KEYS);
  fputs(CY_CU_STAGED, f);
}

void cy_cu_attention_tma_print(cy_cu_contract *q) {
  const char *const text[] = {head_text,     fetcher_begin, tiles_begin,   fetch_text,   tiles_end,
                              bringer_begin, tiles_begin,   bring_text,    tiles_end,    consumer_begin,
                              consumer_head, tiles_begin,   multiply_text, results_text, tiles_end};
  fputs("#if CY_WARPGROUPS\n", q->p->out);
  print_constants(q);
  cy_cu_contract_text(q, functions);
  print_axes(q);
  fprintf(q->p->out, "CY_KERNEL(%d) ", CY_CUDA_TMA_THREADS);
  cy_cu_function_open(q, "$S_tma($P, CY_MAP map_a, CY_MAP map_b) {\n");
  cy_cu_attention_sizes(q);
  cy_cu_attention_operand(q, "q", q->c->a, q->c->a_m, q->c->a_k, q->c->a_batch);
  for (size_t i = 0; i < sizeof text / sizeof *text; i++)
    cy_cu_contract_text(q, text[i]);
  fputs("  }\n", q->p->out);
  cy_cu_function_close(q);
  fputs("#undef PART\n#undef CONSUMERS\n#undef FETCHERS\n#undef QUERIES\n#undef CACHED\n#undef VECTOR\n#undef STAGED\n"
        "#endif\n",
        q->p->out);
}
