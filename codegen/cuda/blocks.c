/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.c - B in integers or floats of 8 or 4 bits, with a scale for each column of a block of rows (cy_contraction.b_bits).
 *
 * Weights are read as they are stored, once for all rows of a tile, and become floats on the way: products of few rows
 * hold a piece of them in registers (gemv.c); tiles of many rows get them into shared memory as halves or floats, where
 * they lie like any other B (matrix.c). A thread fetches what it will convert an iteration ahead, so that it need not
 * wait.
 *
 * A byte of 4-bit weights holds rows i and i + half a block. A tile takes neighbouring bytes, and so its rows of k are
 * those of the lower halves of CH bytes, of the next CH, then of their upper halves: a sum over k may be in any order,
 * if A's tile has the same.
 *
 * A code becomes a float by putting it below the exponent of 2^23 and subtracting 2^23 and the zero point, which is
 * exact, and an instruction less than a conversion, of which a multiprocessor does few at a time. Codes that are floats are
 * moved to the place of f32's exponent and mantissa, and multiplied by what their biases differ by: exact as well.
 */
#include "codegen/cuda/matrix/contract_int.h"

static int64_t bytes_of_block(const cy_contraction *c) { return c->b_block * c->b_bits / 8; }

bool cy_cu_blocks_fit(cy_kernel *k, int run) {
  const cy_contraction *c = cy_kernel_contraction(k);
  return bytes_of_block(c) % run == 0;
}

/* Where a row of bytes of a block is in column n. */
static const char place_function[] =
    "CY_INLINE i64 $S_code_at(int N, int block, int row, int n) {\n"
    "  return (i64)block * N * W_ROWS + ((i64)(n / W_TILE) * W_ROWS + row) * W_TILE + n % W_TILE;\n"
    "}\n\n";

/* Types of floats whose codes are weights: where the sign is, how far an exponent is from that of f32, 2 to how much the bias. */
static const struct {
  cy_dtype type;
  int sign, shift;
  const char *unit;
} float_codes[] = {{CY_F4E2M1, 3, 22, "0x1p126f"}, {CY_F8E4M3FN, 7, 20, "0x1p120f"}, {CY_F8E5M2, 7, 21, "0x1p112f"}};

/* Macros W_FLOATS (are codes floats?), W_FLOAT(code), W_SCALE(at), W_SINGLES (are scales f32?). */
static void print_floats(cy_cu_contract *q) {
  const cy_contraction *c = q->c;
  cy_dtype code = c->b_codes ? c->b_codes : q->p->args[c->b].dtype, scale = q->p->args[c->b_scale].dtype;
  char raw[40], value[160];
  size_t i = 0;
  while (i < sizeof float_codes / sizeof *float_codes && float_codes[i].type != code)
    i++;
  bool floats = i < sizeof float_codes / sizeof *float_codes;
  fprintf(q->p->out, "#define W_FLOATS %d\n", floats);
  if (floats)
    fprintf(q->p->out, "#define W_FLOAT(code) cy_float_code(code, %d, %d, %s)\n", float_codes[i].sign,
            float_codes[i].shift, float_codes[i].unit);
  else
    fputs("#define W_FLOAT(code) 0.f\n", q->p->out);
  snprintf(raw, sizeof raw, "a%u[at]", c->b_scale);
  cy_cu_decode(scale, raw, value, sizeof value);
  fprintf(q->p->out, "#define W_SCALE(at) %s\n#define W_SINGLES %d\n", value, scale == CY_F32);
}

void cy_cu_blocks_begin(cy_cu_contract *q) {
  const cy_contraction *c = q->c;
  FILE *f = q->p->out;
  int64_t tile = 0, n = 1, sign = q->p->args[c->b].dtype == CY_I8 ? 128 : 0;
  if (!cy_dim_is_const(q->p->g, c->b_k, &tile) || !cy_dim_is_const(q->p->g, c->n, &n))
    cy_bug("kernel '%s': columns of weights in integers are not known", q->symbol);
  fprintf(f, "#define W_BITS %d\n#define W_ROWS %lld\n#define W_TILE %lld\n#define W_SIGN %lldu\n", c->b_bits,
          (long long)bytes_of_block(c), (long long)tile, (long long)sign);
  fprintf(f, "#define W_FOURS %d\n#define W_SCALES a%u\n#define W_EACH %d\n", tile % 4 == 0 && n % 4 == 0, c->b_scale,
          c->has_b_zero);
  if (c->has_b_zero)
    fprintf(f, "#define W_ZEROS a%u\n#define W_ZERO(at) ((f32)a%u[at])\n\n", c->b_zero, c->b_zero);
  else
    fprintf(f, "#define W_ZEROS (const u8 *)0\n#define W_ZERO(at) %lld.f\n\n", (long long)(c->b_middle + sign));
  print_floats(q);
  cy_cu_contract_text(q, place_function);
}

void cy_cu_blocks_end(const cy_cu_contract *q) {
  fputs("#undef W_BITS\n#undef W_ROWS\n#undef W_TILE\n#undef W_SIGN\n#undef W_FOURS\n#undef W_SCALES\n#undef "
        "W_EACH\n#undef W_ZEROS\n#undef W_FLOATS\n#undef W_FLOAT\n#undef W_SCALE\n#undef W_SINGLES\n"
        "#undef W_ZERO\n#undef W_GROUPS\n#undef W_ITEMS\n\n",
        q->p->out);
}

static const char element_text[] = "  const int block = k / (W_ROWS * 8 / W_BITS), i = k % (W_ROWS * 8 / W_BITS);\n"
                                   "  if (k >= K || n >= N)\n"
                                   "    return 0;\n"
                                   "  const u32 code = (u8)$B[$S_code_at(N, block, i % W_ROWS, n)];\n"
                                   "  const i64 at = (i64)block * N + n;\n"
                                   "  const u32 own = W_BITS == 8 ? code ^ W_SIGN : code >> i / W_ROWS * 4 & 15;\n"
                                   "  return (W_FLOATS ? W_FLOAT(own) : cy_code_f32(own, W_ZERO(at))) * W_SCALE(at);\n";

void cy_cu_blocks_element(cy_cu_contract *q) {
  cy_cu_function_open(q, "CY_INLINE $T $S_b($P, int z, int k, int n) {\n");
  cy_cu_line(q->p, "const int N = (int)%s, K = (int)%s;", q->n, q->k);
  cy_cu_contract_text(q, element_text);
  cy_cu_function_close(q);
}

/* W_ITEMS of a thread, each CH bytes of a column; which k is the tile's j'th; codes of a tile to registers, and these to
 * shared memory; an iteration: the tile whose codes are there, then the codes of the next one. */
static const char tile_functions[] =
    "#define W_GROUPS (BK * W_BITS / 8 / CH)\n"
    "#define W_ITEMS ((W_GROUPS * BN + NT - 1) / NT)\n"
    "typedef struct $S_codes {\n"
    "  u8 code[W_ITEMS][CH];\n"
    "  f32 scale[W_ITEMS], zero[W_ITEMS];\n"
    "} $S_codes;\n\n"
    "CY_INLINE int $S_order(int k0, int j) {\n"
    "#if W_BITS == 4\n"
    "  const int row = k0 / 2 + j / CH % 2 * CH + j % CH;\n"
    "  return row / W_ROWS * (2 * W_ROWS) + row % W_ROWS + j / CH / 2 * W_ROWS;\n"
    "#else\n"
    "  return k0 + j;\n"
    "#endif\n"
    "}\n\n"
    "CY_INLINE void $S_fetch($P, int n0, int N, int K, int k0, $S_codes *to) {\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < W_ITEMS; i++) {\n"
    "    const int q = CY_TID + i * NT, n = n0 + q % BN, row = k0 * W_BITS / 8 + q / BN * CH, block = row / W_ROWS;\n"
    "    const b1 inside = n < N && (FULL_K || row < K * W_BITS / 8) && (W_GROUPS * BN % NT == 0 || q < W_GROUPS * "
    "BN);\n"
    "    const u8 *const from = (const u8 *)$B + (inside ? $S_code_at(N, block, row % W_ROWS, n) : 0);\n"
    "    const i64 at = inside ? (i64)block * N + n : 0;\n"
    "    CY_UNROLL\n"
    "    for (int e = 0; e < CH; e++)\n"
    "      to->code[i][e] = from[e * W_TILE];\n"
    "    to->scale[i] = inside ? W_SCALE(at) : 0;\n"
    "    to->zero[i] = W_ZERO(at);\n"
    "  }\n"
    "}\n\n"
    "CY_INLINE cy_chunk $S_floats(const u8 *code, int shift, f32 zero, f32 scale) {\n"
    "  cy_chunk v;\n"
    "  f32 w[CH];\n"
    "  CY_UNROLL\n"
    "  for (int e = 0; e < CH; e++) {\n"
    "    const u32 own = W_BITS == 8 ? code[e] ^ W_SIGN : (u32)code[e] >> shift & 15;\n"
    "    w[e] = (W_FLOATS ? W_FLOAT(own) : cy_code_f32(own, zero)) * scale;\n"
    "  }\n"
    "  CY_UNROLL\n"
    "  for (int e = 0; e < 4; e++)\n"
    "#if EB == 2\n"
    "    v.word[e] = W_PAIR(w[2 * e], w[2 * e + 1]);\n"
    "#else\n"
    "    v.word[e] = ROUND(cy_bits_f32(w[e]));\n"
    "#endif\n"
    "  return v;\n"
    "}\n\n"
    "CY_INLINE void $S_spread(const $S_codes *from, cy_chunk *sb) {\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < W_ITEMS; i++) {\n"
    "    const int q = CY_TID + i * NT, n = q % BN, c = q / BN;\n"
    "    if (W_GROUPS * BN % NT && q >= W_GROUPS * BN)\n"
    "      continue;\n"
    "    sb[cy_place(n, c, B_CHUNKS, BN)] = $S_floats(from->code[i], 0, from->zero[i], from->scale[i]);\n"
    "    if (W_BITS == 4)\n"
    "      sb[cy_place(n, c + W_GROUPS, B_CHUNKS, BN)] = $S_floats(from->code[i], 4, from->zero[i], from->scale[i]);\n"
    "  }\n"
    "}\n\n"
    "CY_INLINE void $S_step($P, int n0, int N, int K, int begin, int t, int iterations, cy_chunk *tile, $S_codes "
    "*codes) {\n"
    "  if (t < iterations)\n"
    "    $S_spread(codes, tile + A_TILE);\n"
    "  if (t + 1 < iterations)\n"
    "    $S_fetch($N, n0, N, K, (begin + t + 1) * BK, codes);\n"
    "}\n\n";

void cy_cu_blocks_tile(cy_cu_contract *q) {
  cy_dtype t = q->p->args[q->c->a].dtype;
  if (t != CY_F32)
    fprintf(q->p->out, "#define W_PAIR cy_pack_%s\n", cy_dtype_of(t)->name);
  cy_cu_contract_text(q, tile_functions);
  fputs("#undef W_PAIR\n", q->p->out);
}
