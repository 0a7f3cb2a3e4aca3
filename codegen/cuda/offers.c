/* SPDX-License-Identifier: Apache-2.0 */
/* offers.c - which kernels cuDNN and cuBLASLt may stand in for when the model runs, and what they are told of them.
 *
 * In: a contraction kernel and its schedule. Out: the fields of a cyrt_cuda_problem (runtime/cuda/cuda_problem.h) as sizes, which
 * the host program fills in and hands to the runtime with the launch of the kernel. Each kind is matched in a file of its
 * own: matrix/conv.c, matrix/product.c, attention/attention_cudnn.c.
 */
#include "codegen/cuda/matrix/contract_int.h"
#include "runtime/cuda/cuda_problem.h"
#include "runtime/cyto_abi.h"

#include <string.h>

_Static_assert((int)CY_LIBRARY_CUDNN == CYRT_CUDA_CUDNN && (int)CY_LIBRARY_CUBLASLT == CYRT_CUDA_CUBLASLT &&
                   (int)CY_LIBRARIES == CYRT_CUDA_LIBRARIES,
               "equal numbers");

/* Two results of `n` elements (kind: CYTO_F32, F16, BF16): the bits of the largest number of the first one go to most[0], of the
 * largest difference to most[1], both at least what stands there; infinite where the second one has no number. What is no
 * number in the first one was not written. */
static const char agree_text[] =
    "CY_KERNEL(256) %s" CY_CUDA_AGREE "(const void *own, const void *other, u32 *most, i64 n, i64 kind) {\n"
    "  f32 largest = 0, apart = 0;\n"
    "  for (i64 i = CY_BLOCK * 256 + CY_TID; i < n; i += CY_BLOCKS * 256) {\n"
    "    f32 two[2];\n"
    "    for (int k = 0; k < 2; k++) {\n"
    "      const void *const at = k ? other : own;\n"
    "      two[k] = kind == %d ? ((const f32 *)at)[i] : kind == %d ? cy_dec_f16(((const u16 *)at)[i]) : \n"
    "          cy_dec_bf16(((const u16 *)at)[i]);\n"
    "    }\n"
    "    const f32 size = fabsf(two[0]), d = two[0] - two[1], way = d == d ? fabsf(d) : cy_f32_bits(0x7f800000u);\n"
    "    if (size < cy_f32_bits(0x7f800000u)) {\n"
    "      largest = size > largest ? size : largest;\n"
    "      apart = way > apart ? way : apart;\n"
    "    }\n"
    "  }\n"
    "  cy_put_max(most, cy_bits_f32(largest));\n"
    "  cy_put_max(most + 1, cy_bits_f32(apart));\n"
    "}\n";

void cy_cuda_agree_print(FILE *out, const char *symbol) { fprintf(out, agree_text, symbol, CYTO_F32, CYTO_F16); }

static bool match(const cy_machine *m, cy_kernel *k, const cy_cuda_schedule *schedule, cy_dim field[CY_CUDA_PROBLEM_FIELDS]) {
  switch (cy_kernel_contraction(k)->kind) {
  case CY_CONTRACT_ATTENTION:
    return cy_cu_library_on(m, CYRT_CUDA_CUDNN) && cy_cu_attention_match(k, field);
  case CY_CONTRACT_MATMUL:
    return cy_cu_product_match(m, k, schedule, field);
  default:
    return cy_cu_conv_match(m, k, schedule, false, field);
  }
}

void cy_cuda_offer_match(const cy_machine *m, cy_kernel *k, cy_cuda_schedule *schedule) {
  cy_dim field[CY_CUDA_PROBLEM_FIELDS];
  if (schedule->kind != CY_CUDA_TILES || !match(m, k, schedule, field))
    return;
  cy_dim *kept = CY_NEW_ARRAY(cy_graph_arena(cy_kernel_graph(k)), cy_dim, CY_CUDA_PROBLEM_FIELDS);
  memcpy(kept, field, sizeof field);
  schedule->offer = kept;
}

/* Convolutions of several taps, transposed ones and attention are cuDNN's, products both libraries' unless they cannot be
 * convolutions. */
bool cy_cuda_offered_to(const cy_machine *m, cy_kernel *k, const cy_cuda_schedule *schedule, int library) {
  const cy_contraction *c = cy_kernel_contraction(k);
  if (!schedule->offer || !cy_cu_library_on(m, library))
    return false;
  if (library == CYRT_CUDA_CUBLASLT)
    return c->kind == CY_CONTRACT_MATMUL;
  return c->kind != CY_CONTRACT_MATMUL || cy_cu_is_like_conv(c, cy_kernel_graph(k));
}
