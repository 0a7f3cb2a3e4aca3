/* SPDX-License-Identifier: Apache-2.0 */
/* matrix_load.c - how tiles of both factors of a product or convolution come to shared memory (matrix.c).
 *
 * In:  how the operands lie. Out: functions of the kernel: <symbol>_load copies a tile of each, <symbol>_table, _gather and
 * _place those of A whose elements have to be collected.
 *
 * A tile lies in shared memory in the direction in which the operand is contiguous: rows of k (as mma wants), or rows
 * of m or n, transposed while they are loaded. It comes by the first of these ways that can be:
 *
 *   chunks    asynchronous copies of 16 bytes, which strides and pointers must be multiples of
 *   words     where strides are constants that are no such multiples: neighbouring threads have neighbours of a run.
 *             Asynchronous copies of 4 bytes, if strides are multiples of these (odd sizes of f32, even ones of halves);
 *             else put together from elements
 *   elements  chunks put together from elements; of B without runs by threads that have neighbouring rows of the tile, if
 *             these are neighbours in memory
 *   halves    of A that is rounded as it is read: through registers as what is gathered, 32 bytes at once
 *   gathered  (of A without runs: windows of three channels, images whose channels lie outermost) the same through
 *             registers, while products of the tiles before are computed
 *
 * Pointers that are not aligned, and strides that only the run tells, take single elements where they must.
 */
#include "contract_int.h"

enum { CHUNK = CY_CU_CHUNK, WORD = 4, MAX_TAP_BYTES = 32, ROW_BYTES = 24 }; /* ROW_BYTES: of a <symbol>_row */

/* ---- how the operands lie ---- */

/* Rows of m or n to be transposed, of the operand with this stride along them and that along k. */
static bool is_transposed(cy_graph *g, cy_dim along_k, cy_dim other, int64_t chunk) {
  return chunk == 8 && !cy_dim_is(g, along_k, 1) && cy_dim_is(g, other, 1);
}

static void add_stride(cy_cu_operand *o, cy_dim d) {
  if (d)
    o->strides[o->nstrides++] = d;
}

/* Are all strides constants and multiples of so many elements? */
static bool are_multiples(cy_graph *g, const cy_cu_operand *o, int64_t of) {
  for (int i = 0; i < o->nstrides; i++)
    if (!cy_cu_multiple(g, o->strides[i], of))
      return false;
  return true;
}

/* Is one of the strides a constant that is no multiple? */
static bool has_odd(cy_graph *g, const cy_cu_operand *o, int64_t of) {
  int64_t v;
  for (int i = 0; i < o->nstrides; i++)
    if (cy_dim_is_const(g, o->strides[i], &v) && v % of)
      return true;
  return false;
}

/* Of an operand whose words have neighbours. */
static void set_words(cy_graph *g, cy_cu_operand *o, int64_t chunk) {
  o->words = has_odd(g, o, chunk);
  o->aligned = are_multiples(g, o, chunk * WORD / CHUNK);
}

static cy_cu_operand matrix_operand(cy_kernel *k, int64_t chunk, cy_dim along_k, cy_dim other, const cy_dim *batch) {
  cy_graph *g = cy_kernel_graph(k);
  cy_cu_operand o = {.transposed = is_transposed(g, along_k, other, chunk)};
  o.runs = o.transposed || cy_dim_is(g, along_k, 1);
  o.down = !o.runs && cy_dim_is(g, other, 1);
  add_stride(&o, o.transposed ? along_k : other);
  for (int i = 0; i < cy_kernel_contraction(k)->nbatch; i++)
    add_stride(&o, batch[i]);
  if (o.runs)
    set_words(g, &o, chunk);
  return o;
}

/* Images with few channels, or with channels outermost, have rows of the tile closer to each other than chunks. */
static cy_cu_operand image_operand(cy_kernel *k, int64_t chunk) {
  const cy_contraction *c = cy_kernel_contraction(k);
  cy_graph *g = cy_kernel_graph(k);
  cy_dim depth = cy_cu_per_group(g, c, c->channels_in);
  int64_t channels;
  bool inner = cy_dim_is(g, c->x_channel, 1);
  cy_cu_operand o = {.runs = inner && (cy_cu_taps(c) == 1 || cy_cu_multiple(g, depth, chunk))};
  o.down = !o.runs && (!inner || (cy_dim_is_const(g, c->channels_in, &channels) && channels < CHUNK / 2));
  add_stride(&o, c->x_image);
  if (c->group > 1)
    add_stride(&o, depth);
  for (int i = 0; i < c->nspatial; i++)
    add_stride(&o, c->x_spatial[i]);
  if (c->a_rounded) {
    o.runs = o.down = false;
    return o;
  }
  if (inner && !o.down && (cy_cu_taps(c) == 1 || cy_cu_multiple(g, depth, chunk * WORD / CHUNK)))
    set_words(g, &o, chunk);
  o.runs |= o.words;
  return o;
}

cy_cu_operand cy_cu_operand_a(cy_kernel *k) {
  const cy_contraction *c = cy_kernel_contraction(k);
  int64_t chunk = cy_cu_chunk_of(cy_cu_factor_type(k));
  return cy_cu_is_conv(c) ? image_operand(k, chunk) : matrix_operand(k, chunk, c->a_k, c->a_m, c->a_batch);
}

cy_cu_operand cy_cu_operand_b(cy_kernel *k, const cy_cuda_schedule *schedule) {
  const cy_contraction *c = cy_kernel_contraction(k);
  if (schedule->packed_k || c->b_bits) /* of integers codes are converted, not copied */
    return (cy_cu_operand){.runs = true};
  if (!cy_cu_is_conv(c))
    return matrix_operand(k, cy_cu_chunk_of(cy_cu_factor_type(k)), c->b_k, c->b_n, c->b_batch);
  cy_cu_operand o = {.runs = c->kind == CY_CONTRACT_CONV && cy_cu_taps(c) == 1};
  add_stride(&o, cy_cu_per_group(cy_kernel_graph(k), c, c->channels_in));
  return o;
}

/* Rows of images in words have a table, collected elements two of k, which take turns. */
int cy_cu_load_bytes(cy_kernel *k, const cy_cuda_tile *tile) {
  cy_cu_operand a = cy_cu_operand_a(k);
  if (a.words)
    return cy_cu_is_conv(cy_kernel_contraction(k)) ? tile->m * ROW_BYTES : 0;
  return a.runs ? 0 : 2 * (tile->k + CY_CU_TILE_ROW_BYTES / CHUNK) * MAX_TAP_BYTES;
}

/* ---- printing ---- */

/* One chunk of each operand into its place of a tile. */
static const char chunk_functions[] =
    "#if A_RUNS && !A_WORDS\n"
    "CY_INLINE void $S_chunk_a($P, b1 wide, int z, int m, int M, const $S_row *r, const $S_tap *tap, int k, int K, "
    "cy_chunk *to) {\n"
    "  b1 inside = 1;\n"
    "  const i64 at = $S_a_tap($N, r, tap, &inside);\n"
    "  const int left = A_WHOLE ? CH : A_TRANSPOSED ? M - m : K - k, n = !inside ? 0 : left < CH ? left : CH;\n"
    "  cy_chunk v = {{0, 0, 0, 0}};\n"
    "  if (A_FILLED && !inside) {\n"
    "    CY_UNROLL\n"
    "    for (int e = 0; e < CH; e++)\n"
    "      PUT(&v, e, k + e < K ? BITS(A_ZERO) : 0);\n"
    "    cy_chunk_store(to, v);\n"
    "    return;\n"
    "  }\n"
    "  if (wide) {\n"
    "    if (A_WHOLE)\n"
    "      cy_copy_async_if(to, $A + at, inside);\n"
    "    else\n"
    "      cy_copy_async(to, inside ? $A + at : $A, n * EB);\n"
    "    return;\n"
    "  }\n"
    "  CY_UNROLL\n"
    "  for (int e = 0; e < CH; e++) {\n"
    "    if (e < n && (inside || A_FILLED))\n"
    "      PUT(&v, e, inside ? BITS($A[at + e]) : BITS(A_ZERO));\n"
    "  }\n"
    "  cy_chunk_store(to, v);\n"
    "}\n"
    "#endif\n\n"
    "#if !W_BITS && !B_WORDS\n"
    "CY_INLINE void $S_chunk_b($P, b1 wide, int z, int n, int N, int k, int K, cy_chunk *to) {\n"
    "  const b1 inside = (FULL_K || k < K) && n < N;\n"
    "  const i64 at = B_RUNS ? $S_b_inside($N, z, k, n) : 0;\n"
    "  const int left = B_WHOLE ? CH : B_TRANSPOSED ? N - n : K - k, count = !inside ? 0 : left < CH ? left : CH;\n"
    "  if (wide) {\n"
    "    if (B_WHOLE)\n"
    "      cy_copy_async_if(to, $B + at, inside);\n"
    "    else\n"
    "      cy_copy_async(to, inside ? $B + at : $B, count * EB);\n"
    "    return;\n"
    "  }\n"
    "  cy_chunk v = {{0, 0, 0, 0}};\n"
    "  CY_UNROLL\n"
    "  for (int e = 0; e < CH; e++) {\n"
    "    const i64 own = B_RUNS ? at + e : $S_b_at($N, z, k + e, n);\n"
    "    if (own >= 0 && e < count)\n"
    "      PUT(&v, e, BITS($B[own]));\n"
    "  }\n"
    "  cy_chunk_store(to, v);\n"
    "}\n"
    "#endif\n\n";

/* Chunks of A whose elements are not all neighbours: of images with few channels, or with channels outermost, neighbouring
 * threads have neighbouring rows of the tile, so that an element of all of them is a run of memory where positions of a
 * line are; of images with many channels, but no whole chunks of them, they have the chunks of a row. Which tap and
 * channel a k is, all rows share: it is looked up in a table of the tile's k, which a few threads fill an iteration
 * ahead (two tables take turns; a place between chunks keeps them in different banks). What is fetched in front of the
 * products of an iteration waits in registers until these are done. */
static const char gather_functions[] =
    "#if !A_RUNS\n"
    "CY_INLINE void $S_table($P, int k0, $S_tap *taps) {\n"
    "  if (CY_TID < BK)\n"
    "    $S_tap_at($N, k0, A_ORDER(k0, CY_TID), &taps[k0 / BK % 2 * (BK + A_CHUNKS) + CY_TID + CY_TID / CH]);\n"
    "}\n\n"
    "#if !A_HALVES\n"
    "CY_INLINE void $S_gather($P, b1 wide, const $S_row *rows, int k0, const $S_tap *taps, cy_chunk *held) {\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < A_TILE / NT; i++) {\n"
    "    const int q = CY_TID + i * NT;\n"
    "    const $S_row *const r = &rows[A_DOWN ? 0 : i];\n"
    "    const $S_tap *const tap = taps + k0 / BK % 2 * (BK + A_CHUNKS) + (A_DOWN ? q / BM : q % A_CHUNKS) * (CH + "
    "1);\n"
    "    const u64 row = (u64)($A + r->base);\n" /* one for all of them: else compilers add up whole addresses */
    "    cy_chunk v = {{0, 0, 0, 0}};\n"
    "    CY_UNROLL\n"
    "    for (int e = 0; e < CH; e++) {\n"
    "      $S_tap own = tap[e];\n"
    "      b1 inside = 1;\n"
    "      if (FULL_K)\n"
    "        own.inside = 1;\n"
    "      const i64 at = $S_a_tap($N, r, &own, &inside);\n"
    "      PUT(&v, e, FETCH(row + (u64)((at - r->base) * EB), inside));\n"
    "      if (A_FILLED && !inside && own.inside)\n"
    "        PUT(&v, e, BITS(A_ZERO));\n"
    "    }\n"
    "    held[i] = v;\n"
    "  }\n"
    "}\n\n"
    "CY_INLINE void $S_place(const $S_row *rows, const cy_chunk *held, cy_chunk *sa) {\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < A_TILE / NT; i++) {\n"
    "    const int q = CY_TID + i * NT, row = A_DOWN ? q % BM : q / A_CHUNKS, c = A_DOWN ? q / BM : q % A_CHUNKS;\n"
    "    cy_chunk_store(&sa[cy_place(row, c, A_CHUNKS, BM)], held[i]);\n"
    "  }\n"
    "}\n"
    "#endif\n"
    "#endif\n\n";

/* The same of halves, which are rounded when they are placed: a chunk of bytes is two of halves, all of one tap. */
static const char halves_functions[] =
    "#if A_HALVES\n"
    "CY_INLINE void $S_gather($P, b1 wide, const $S_row *rows, int k0, const $S_tap *taps, cy_chunk *held) {\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < A_TILE / NT; i++) {\n"
    "    $S_tap own = taps[k0 / BK % 2 * (BK + A_CHUNKS) + (CY_TID + i * NT) % A_CHUNKS * (CH + 1)];\n"
    "    b1 inside = 1;\n"
    "    if (FULL_K)\n"
    "      own.inside = 1;\n"
    "    const i64 at = $S_a_tap($N, &rows[i], &own, &inside);\n"
    "    const cy_chunk none = {{0, 0, 0, 0}};\n"
    "    held[2 * i] = held[2 * i + 1] = none;\n"
    "    if (inside && wide)\n"
    "      cy_move32(&held[2 * i], $A + at);\n"
    "    else if (inside)\n"
    "      CY_UNROLL\n"
    "      for (int e = 0; e < CH; e++)\n"
    "        cy_chunk_put16(&held[2 * i + e / 8], e % 8, $A[at + e]);\n"
    "  }\n"
    "}\n\n"
    "CY_INLINE void $S_place(const $S_row *rows, const cy_chunk *held, cy_chunk *sa) {\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < A_TILE / NT; i++) {\n"
    "    const int q = CY_TID + i * NT;\n"
    "    cy_chunk v = {{0, 0, 0, 0}};\n"
    "    CY_UNROLL\n"
    "    for (int e = 0; e < CH; e++) {\n"
    "      const u16 half = (u16)(held[2 * i + e / 8].word[e % 8 / 2] >> e % 2 * 16);\n"
    "      cy_chunk_put8(&v, e, (u32)cy_nearest(cy_dec_f16(half) * rows[i].up));\n"
    "    }\n"
    "    cy_chunk_store(&sa[cy_place(q / A_CHUNKS, q % A_CHUNKS, A_CHUNKS, BM)], v);\n"
    "  }\n"
    "}\n"
    "#endif\n\n";

/* The same tiles by words of 4 bytes; the i'th of a thread. What all rows of the tile are to a convolution stands in a
 * table beside the tiles; those of a matrix lie A_STEP apart. Words that are put together are so a few at a time: all of
 * them would take more registers than there are. */
static const char word_functions[] =
    "#if A_WORDS\n"
    "CY_INLINE void $S_word_a($P, b1 copy, int i, int m0, int M, int K, const $S_row *rows, int k0, cy_chunk *sa) {\n"
    "  const int q = CY_TID + i * NT, row = q / (A_CHUNKS * 4), w = q % (A_CHUNKS * 4);\n"
    "  const int m = A_TRANSPOSED ? w * WE : row, k = A_ORDER(k0, A_TRANSPOSED ? row : w * WE);\n"
    "  const int left = A_EVEN ? WE : A_TRANSPOSED ? M - m0 - m : K - k, n = left < WE ? left : WE;\n"
    "  u32 *const to = (u32 *)&sa[cy_place(row, w / 4, A_CHUNKS, A_TILE / A_CHUNKS)] + w % 4;\n"
    "  $S_row own = rows[A_TABLE ? m : 0];\n"
    "  $S_tap tap;\n"
    "  b1 inside = 1;\n"
    "  if (!A_TABLE) {\n"
    "    own.base += (i64)m * A_STEP;\n"
    "    own.inside = m0 + m < M;\n"
    "  }\n"
    "  $S_tap_at($N, k0, k, &tap);\n"
    "  if (FULL_K)\n"
    "    tap.inside = 1;\n"
    "  const i64 at = $S_a_tap($N, &own, &tap, &inside);\n"
    "  cy_chunk v = {{0, 0, 0, 0}};\n"
    "  if (copy && (inside || !A_FILLED)) {\n"
    "    if (A_EVEN)\n"
    "      cy_copy_word_if(to, $A + at, inside);\n"
    "    else\n"
    "      cy_copy_word(to, inside ? $A + at : $A, inside ? n * EB : 0);\n"
    "    return;\n"
    "  }\n"
    "  CY_UNROLL\n"
    "  for (int e = 0; e < WE; e++)\n"
    "    if (e < n)\n"
    "      PUT(&v, e, inside ? BITS($A[at + e]) : A_FILLED && k + e < K ? BITS(A_ZERO) : 0);\n"
    "  cy_word_store(to, v.word[0]);\n"
    "}\n\n"
    "CY_INLINE void $S_words_a($P, int m0, int M, int K, const $S_row *rows, int k0, cy_chunk *sa) {\n"
    "  if (A_ALIGNED && (u64)$A % 4 == 0)\n"
    "    CY_UNROLL\n"
    "    for (int i = 0; i < A_TILE * 4 / NT; i++)\n"
    "      $S_word_a($N, 1, i, m0, M, K, rows, k0, sa);\n"
    "  else\n"
    "    CY_UNROLL_BY(4)\n"
    "    for (int i = 0; i < A_TILE * 4 / NT; i++)\n"
    "      $S_word_a($N, 0, i, m0, M, K, rows, k0, sa);\n"
    "}\n"
    "#endif\n\n"
    "#if B_WORDS\n"
    "CY_INLINE void $S_word_b($P, b1 copy, int i, int z, int n0, int N, int K, int k0, cy_chunk *sb) {\n"
    "  const int q = CY_TID + i * NT, row = q / (B_CHUNKS * 4), w = q % (B_CHUNKS * 4);\n"
    "  const int n = n0 + (B_TRANSPOSED ? w * WE : row), k = k0 + (B_TRANSPOSED ? row : w * WE);\n"
    "  const b1 inside = (FULL_K || k < K) && n < N;\n"
    "  const int left = B_EVEN ? WE : B_TRANSPOSED ? N - n : K - k, count = !inside ? 0 : left < WE ? left : WE;\n"
    "  const i64 at = $S_b_inside($N, z, k, n);\n"
    "  u32 *const to = (u32 *)&sb[cy_place(row, w / 4, B_CHUNKS, B_TILE / B_CHUNKS)] + w % 4;\n"
    "  cy_chunk v = {{0, 0, 0, 0}};\n"
    "  if (copy) {\n"
    "    if (B_EVEN)\n"
    "      cy_copy_word_if(to, $B + at, inside);\n"
    "    else\n"
    "      cy_copy_word(to, inside ? $B + at : $B, count * EB);\n"
    "    return;\n"
    "  }\n"
    "  CY_UNROLL\n"
    "  for (int e = 0; e < WE; e++)\n"
    "    if (e < count)\n"
    "      PUT(&v, e, BITS($B[at + e]));\n"
    "  cy_word_store(to, v.word[0]);\n"
    "}\n\n"
    "CY_INLINE void $S_words_b($P, int z, int n0, int N, int K, int k0, cy_chunk *sb) {\n"
    "  if (B_ALIGNED && (u64)$B % 4 == 0)\n"
    "    CY_UNROLL\n"
    "    for (int i = 0; i < B_TILE * 4 / NT; i++)\n"
    "      $S_word_b($N, 1, i, z, n0, N, K, k0, sb);\n"
    "  else\n"
    "    CY_UNROLL_BY(4)\n"
    "    for (int i = 0; i < B_TILE * 4 / NT; i++)\n"
    "      $S_word_b($N, 0, i, z, n0, N, K, k0, sb);\n"
    "}\n"
    "#endif\n\n";

/* Where a thread's other chunks are: a tile is walked along its rows. */
static const char load_function[] =
    "CY_INLINE void $S_load($P, b1 wide_a, b1 wide_b, int z, int m0, int n0, int M, int N, int K, const $S_row *rows, "
    "int k0, cy_chunk *sa) {\n"
    "  cy_chunk *sb = sa + A_TILE;\n"
    "#if A_WORDS\n"
    "  $S_words_a($N, m0, M, K, rows, k0, sa);\n"
    "#elif A_RUNS\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < A_TILE / NT; i++) {\n"
    "    const int q = CY_TID + i * NT, row = q / A_CHUNKS, c = q % A_CHUNKS;\n"
    "    const int m = m0 + (A_TRANSPOSED ? c * CH : row), k = A_ORDER(k0, A_TRANSPOSED ? row : c * CH);\n"
    "    $S_tap tap;\n"
    "    $S_tap_at($N, k0, k, &tap);\n"
    "    if (FULL_K)\n"
    "      tap.inside = 1;\n"
    "    $S_chunk_a($N, wide_a, z, m, M, &rows[A_TRANSPOSED ? 0 : i], &tap, k, K, &sa[cy_place(row, c, A_CHUNKS, "
    "A_TILE / "
    "A_CHUNKS)]);\n"
    "  }\n"
    "#endif\n"
    "#if B_WORDS\n"
    "  $S_words_b($N, z, n0, N, K, k0, sb);\n"
    "#elif !W_BITS\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < (B_TILE + NT - 1) / NT; i++) {\n"
    "    if (B_TILE % NT && CY_TID + i * NT >= B_TILE)\n"
    "      break;\n"
    "    const int q = CY_TID + i * NT, row = B_DOWN ? q % BN : q / B_CHUNKS, c = B_DOWN ? q / BN : q % B_CHUNKS;\n"
    "    const int n = n0 + (B_TRANSPOSED ? c * CH : row), k = k0 + (B_TRANSPOSED ? row : c * CH);\n"
    "    $S_chunk_b($N, wide_b, z, n, N, k, K, &sb[cy_place(row, c, B_CHUNKS, B_TILE / B_CHUNKS)]);\n"
    "  }\n"
    "#endif\n"
    "}\n\n";

/* Where a thread's copies went, rounded to TF32 in place; what came through registers was rounded there. */
static const char round_function[] =
    "#if ROUNDED\n"
    "CY_INLINE void $S_round_chunk(cy_chunk *at) {\n"
    "  cy_chunk v = cy_chunk_load(at);\n"
    "  CY_UNROLL\n"
    "  for (int w = 0; w < 4; w++)\n"
    "    v.word[w] = cy_tf32(v.word[w]);\n"
    "  cy_chunk_store(at, v);\n"
    "}\n\n"
    "/* `chunks` in a row of the tile. */\n"
    "CY_INLINE void $S_round_words(int chunks, int tile, cy_chunk *to) {\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < tile * 4 / NT; i++) {\n"
    "    const int q = CY_TID + i * NT, row = q / (chunks * 4), w = q % (chunks * 4);\n"
    "    u32 *const at = (u32 *)&to[cy_place(row, w / 4, chunks, tile / chunks)] + w % 4;\n"
    "    cy_word_store(at, cy_tf32(*at));\n"
    "  }\n"
    "}\n\n"
    "CY_INLINE void $S_round(cy_chunk *sa) {\n"
    "#if A_WORDS\n"
    "  $S_round_words(A_CHUNKS, A_TILE, sa);\n"
    "#elif A_RUNS\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < A_TILE / NT; i++) {\n"
    "    const int q = CY_TID + i * NT;\n"
    "    $S_round_chunk(&sa[cy_place(q / A_CHUNKS, q % A_CHUNKS, A_CHUNKS, A_TILE / A_CHUNKS)]);\n"
    "  }\n"
    "#endif\n"
    "#if B_WORDS\n"
    "  $S_round_words(B_CHUNKS, B_TILE, sa + A_TILE);\n"
    "#elif B_RUNS && !W_BITS\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < (B_TILE + NT - 1) / NT; i++) {\n"
    "    const int q = CY_TID + i * NT;\n"
    "    if (B_TILE % NT == 0 || q < B_TILE)\n"
    "      $S_round_chunk(&sa[A_TILE + cy_place(q / B_CHUNKS, q % B_CHUNKS, B_CHUNKS, B_TILE / B_CHUNKS)]);\n"
    "  }\n"
    "#endif\n"
    "}\n"
    "#endif\n\n";

/* What differs from kernel to kernel, where words are concerned. */
static void print_constants(const cy_cu_contract *q, const cy_cu_operand *a, const cy_cu_operand *b) {
  cy_graph *g = q->p->g;
  cy_cu_sizes s = cy_cu_sizes_of(q->p->k);
  cy_dim depth = cy_cu_depth(q->p->k);
  bool conv = cy_cu_is_conv(q->c);
  int elements = WORD * 8 / cy_dtype_of(cy_cu_factor_type(q->p->k))->bits;
  int64_t step = 0;
  if (!conv)
    cy_dim_is_const(g, q->c->a_m, &step);
  const cy_cu_number rows[] = {
      {"WE", elements},
      {"A_TABLE", a->words && conv},
      {"A_STEP", step},
      {"A_WORDS", a->words},
      {"B_WORDS", b->words},
      {"A_ALIGNED", a->aligned},
      {"B_ALIGNED", b->aligned},
      {"A_EVEN", cy_cu_multiple(g, a->transposed ? s.m : depth, elements)}, /* no word has an end of a run inside */
      {"B_EVEN", cy_cu_multiple(g, b->transposed ? s.n : depth, elements)},
      {"B_DOWN", b->down}};
  cy_cu_print_numbers(q->p->out, rows, sizeof rows / sizeof *rows);
  fputc('\n', q->p->out);
}

void cy_cu_load_print(cy_cu_contract *q, const cy_cu_operand *a, const cy_cu_operand *b) {
  print_constants(q, a, b);
  cy_cu_contract_text(q, chunk_functions);
  cy_cu_contract_text(q, gather_functions);
  cy_cu_contract_text(q, halves_functions);
  cy_cu_contract_text(q, word_functions);
  cy_cu_contract_text(q, load_function);
  cy_cu_contract_text(q, round_function);
}
