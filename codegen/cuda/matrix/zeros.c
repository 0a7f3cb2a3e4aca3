/* SPDX-License-Identifier: Apache-2.0 */
/* zeros.c - zero points of 8-bit integers, as kernels by matrix instructions take them into account.
 *
 * In:  a contraction of integers. Out: macros and functions of its kernel. What the padding holds is A's zero point, so that
 *      every element counts, and
 *
 *   sum (a - za) (b - zb) = sum a b - za sum b - zb (sum a - k za),
 *
 * whose sums the first warp of each row or column of warps adds up from the fragments that it multiplies. Warpgroups
 * have no fragments of the factors: while they multiply, every thread adds up a row of either from shared memory.
 */
#include "contract_int.h"

void cy_cu_byte_constants(const cy_cu_contract *q) {
  const cy_contraction *c = q->c;
  FILE *f = q->p->out;
  const char *a = cy_dtype_of(cy_cu_factor_type(q->p->k))->name, *b = cy_dtype_of(q->p->args[c->b].dtype)->name;
  fprintf(f, "#define ADD_A cy_add_%s\n#define ADD_B cy_add_%s\n", a, b);
  if (c->has_a_zero)
    fprintf(f, "#define A_ZERO a%u[0]\n", c->a_zero);
  else
    fprintf(f, "#define A_ZERO 0\n");
  if (c->has_b_zero)
    fprintf(f, "#define B_ZERO(z, n) a%u[(%s(n)) * %lld]\n", c->b_zero,
            cy_cu_has_residues(c) ? "residue->z * N + "
            : cy_cu_is_conv(c)  ? "(z) * N + "
                                : "",
            (long long)c->b_zero_step);
  else
    fprintf(f, "#define B_ZERO(z, n) 0\n");
}

/* What zero points take from the sums of products. A thread has a quarter of a row of A or a column of B; where
 * warpgroups multiply, a whole one of either, which it reads from shared memory. */
static const char group_sums[] =
    "#if WARPGROUPS\n"
    "CY_INLINE i32 $S_add_row(const cy_chunk *sa, i32 sum) {\n"
    "  CY_UNROLL\n"
    "  for (int c = 0; c < A_CHUNKS; c++) {\n"
    "    const cy_chunk v = cy_chunk_load(sa + (CY_TID < BM ? 0 : A_TILE) +\n"
    "                                     cy_place(CY_TID < BM ? CY_TID : CY_TID - BM, c, A_CHUNKS, BM));\n"
    "    CY_UNROLL\n"
    "    for (int w = 0; w < 4; w++)\n"
    "      sum = CY_TID < BM ? ADD_A(v.word[w], sum) : ADD_B(v.word[w], sum);\n"
    "  }\n"
    "  return sum;\n"
    "}\n"
    "#endif\n\n";
static const char subtract_function[] =
    "CY_INLINE void $S_subtract($P, int z, int n0, int N, int K, int wm, int wn, $T acc[WM / 16][WN / 8][4], "
    "const $S_sums *sums, i32 *all) {\n"
    "  const int lane = CY_TID % 32;\n"
    "#if WARPGROUPS\n"
    "  if (CY_TID < BM + BN)\n"
    "    all[CY_TID] = sums->a[0][0];\n"
    "#else\n"
    "  CY_UNROLL\n"
    "  for (int i = 0; i < WM / 8; i++) {\n"
    "    i32 sum = sums->a[i / 2][i % 2];\n"
    "    sum += cy_shfl_i32(sum, 1);\n"
    "    sum += cy_shfl_i32(sum, 2);\n"
    "    if (wn == 0 && lane % 4 == 0)\n"
    "      all[wm + i * 8 + lane / 4] = sum;\n"
    "  }\n"
    "  CY_UNROLL\n"
    "  for (int j = 0; j < WN / 8; j++) {\n"
    "    i32 sum = sums->b[j];\n"
    "    sum += cy_shfl_i32(sum, 1);\n"
    "    sum += cy_shfl_i32(sum, 2);\n"
    "    if (wm == 0 && lane % 4 == 0)\n"
    "      all[BM + wn + j * 8 + lane / 4] = sum;\n"
    "  }\n"
    "#endif\n"
    "  CY_SYNC();\n"
    "  const u32 za = (u32)(A_ZERO);\n"
    "  CY_UNROLL\n"
    "  for (int j = 0; j < WN / 4; j++) {\n"
    "    const int column = wn + j / 2 * 8 + lane % 4 * 2 + j % 2;\n"
    "    const u32 zb = n0 + column < N ? (u32)(B_ZERO(z, n0 + column)) : 0;\n"
    "    CY_UNROLL\n"
    "    for (int i = 0; i < WM / 8; i++) {\n"
    "      const u32 sum = (u32)all[wm + i * 8 + lane / 4] - (u32)K * za;\n"
    "      acc[i / 2][j / 2][i % 2 * 2 + j % 2] -= (i32)(za * (u32)all[BM + column] + zb * sum);\n"
    "    }\n"
    "  }\n"
    "  CY_SYNC();\n"
    "}\n\n";

void cy_cu_zeros_print(cy_cu_contract *q) {
  cy_cu_contract_text(q, group_sums);
  cy_cu_contract_text(q, subtract_function);
}
