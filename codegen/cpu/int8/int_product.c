/* SPDX-License-Identifier: Apache-2.0 */
/* int_product.c - products without epilogue by the micro-kernels for groups of k, for generators that have rows and packed
 * panels in scratch: Winograd's points, attention of bf16, weights that become bf16.
 *
 * Comes in: a cy_int_product. Goes out: code that leaves its accumulators in memory.
 */
#include "int_gemm.h"

V cy_int_gemm_kernel_for(cy_cg *cg, cy_int_gemm_variant variant, cy_tile tile, int64_t nr, bool onto, unsigned few, V left) {
  V (*of)(cy_cg *, cy_int_gemm_variant, unsigned, unsigned, int64_t, bool) =
      variant.amx ? cy_int_gemm_amx_kernel : cy_int_gemm_kernel;
  V fn = of(cg, variant, tile.mr, tile.nv, nr, onto);
  if (!few)
    return fn;
  V fits = cy_icmp(cg, LLVMIntSLE, left, cy_i64(cg, few));
  return cy_select(cg, fits, of(cg, variant, few, tile.nv, nr, onto), fn);
}

static V kernel_for(cy_cg *cg, const cy_int_product *x, V left) {
  unsigned few = x->variant.amx && x->tile.mr > CY_AMX_ROWS ? CY_AMX_ROWS : 0;
  int64_t onto = 0;
  if (!x->onto || cy_is_const(x->onto, &onto))
    return cy_int_gemm_kernel_for(cg, x->variant, x->tile, x->nr, onto, few, left);
  V first = cy_int_gemm_kernel_for(cg, x->variant, x->tile, x->nr, false, few, left);
  V later = cy_int_gemm_kernel_for(cg, x->variant, x->tile, x->nr, true, few, left);
  return cy_select(cg, x->onto, later, first);
}

void cy_int_product_emit(cy_cg *cg, const cy_int_product *x) {
  LLVMTypeRef type = cy_int_gemm_kernel_type(cg, x->variant);
  V none = LLVMConstNull(cg->ptr), one = cy_i64(cg, 1);
  cy_loop r;
  cy_loop_begin(cg, &r, cy_i64(cg, 0), x->rows, cy_i64(cg, x->tile.mr), NULL, 0);
  V fn = kernel_for(cg, x, cy_sub(cg, x->rows, r.iv));
  V a = cy_gep(cg, x->a, cy_mulc(cg, r.iv, x->row_bytes)), c = cy_gep(cg, x->c, cy_mulc(cg, r.iv, x->ldc));
  V args[] = {a, x->tab, x->b, c, cy_i64(cg, x->ldc), x->groups, x->panels, none, none, none, one, cy_i64(cg, 0)};
  LLVMBuildCall2(cg->b, type, fn, args, sizeof args / sizeof *args, "");
  cy_loop_end(cg, &r, NULL);
}
