/* SPDX-License-Identifier: Apache-2.0 */
/* tma.c - sm_90a: what all kernels by tensor maps have to know: is there one, of how many tiles, in pairs of blocks?
 *
 * In:  a contraction and its schedule. Out: answers for the files that choose and print them (matrix_tma.c, conv_tma.c,
 *      attention_tma.c) and for the launch.
 */
#include "contract_int.h"

#include <math.h>

enum { MIN_SHARED = 128 };

double cy_cu_tma_min_tiles(const cy_machine *m, int columns) {
  return cy_cu_wanted_blocks(m) * (columns > CY_CU_TMA_MIN_COLUMNS ? 0.75 : 0.4);
}

/* Where only the run tells how many tiles there are, too few of them are left to blocks that share k. */
cy_dim cy_cu_tma_enough(const cy_machine *m, cy_graph *g, cy_dim tiles, const cy_cuda_schedule *schedule) {
  int64_t min = (int64_t)ceil(cy_cu_tma_min_tiles(m, schedule->tma_n));
  if (!schedule->shares_vary)
    return tiles;
  return cy_dim_mul(g, tiles, cy_dim_min(g, cy_dim_div(g, tiles, cy_dim_const(g, min)), cy_dim_const(g, 1)));
}

cy_cuda_tensor cy_cu_tma_tensor_of(cy_kernel *k, cy_karg arg, int rank) {
  cy_cuda_tensor t = {.arg = arg, .type = cy_kernel_arg_dtype(k, arg), .rank = rank};
  for (int i = 0; i < CY_CUDA_TMA_RANK; i++)
    t.box[i] = t.step[i] = 1;
  return t;
}

bool cy_cu_tma_transposes(cy_dtype t) { return t == CY_F16 || t == CY_BF16; }

/* Once B's place is known: can a tensor map tell how it lies? */
static bool b_fits(cy_kernel *k, const cy_cuda_schedule *schedule) {
  cy_graph *g = cy_kernel_graph(k);
  const cy_contraction *c = cy_kernel_contraction(k);
  const cy_karg_info *args;
  cy_kernel_args(k, &args);
  if (c->kind == CY_CONTRACT_ATTENTION)
    return true;
  if (cy_cu_is_conv(c))
    return schedule->packed_k || cy_cu_taps(c) == 1;
  return schedule->packed_k ||
         ((cy_dim_is(g, c->b_k, 1) || (cy_cu_tma_transposes(args[c->b].dtype) && cy_dim_is(g, c->b_n, 1))) &&
          !cy_cu_operand_b(k, schedule).words);
}

/* A copy for two instead of two copies saves little where the shared factor is narrow. */
int cy_cuda_tma_cluster(cy_kernel *k, const cy_cuda_schedule *schedule) {
  return cy_kernel_contraction(k)->kind != CY_CONTRACT_ATTENTION && schedule->tma_n >= MIN_SHARED ? 2 : 1;
}

bool cy_cuda_tma(cy_kernel *k, const cy_cuda_schedule *schedule) { return schedule->tma_blocks && b_fits(k, schedule); }
