/* SPDX-License-Identifier: Apache-2.0 */
/* int_rows.c - the form in which the micro-kernels of int_kernel.c read elements of a, for copy_rows.c to make it.
 *
 * Comes in: a descriptor of s8, u8 or bf16. Goes out: dot2: i16, less the zero point, so that nothing is left to correct;
 * dot4: u8, s8 being shifted by 128 (s8, where the instruction takes these, u8 being shifted), what stands for zero
 * being the (shifted) zero point. This takes one vector operation for 16 or more elements, each of which then meets all
 * columns of a task. bf16 stay as they are.
 */
#include "int_gemm.h"

cy_int_gemm_rows cy_int_gemm_rows_begin(cy_cg *cg, cy_int_gemm_variant variant, const cy_int_gemm_desc *d) {
  bool pairs = !variant.dot4 && !variant.bf16, shifted = variant.dot4 && d->a_signed != cg->sdot;
  V byte = d->a_zero_slot < 0 ? LLVMConstNull(cg->i8) : cy_load(cg, cg->i8, cy_arg_ptr(cg, d->a_zero_slot), 1),
    zero = byte;
  if (shifted)
    zero = LLVMBuildXor(cg->b, zero, LLVMConstInt(cg->i8, 0x80, 0), "");
  else if (!variant.dot4)
    zero = d->a_signed ? LLVMBuildSExt(cg->b, zero, cg->i16, "") : LLVMBuildZExt(cg->b, zero, cg->i16, "");
  cy_elements elements = cy_elements_plain(cg, variant.bf16 ? 2 : 1);
  elements.to = variant.dot4 ? 1 : 2;
  elements.is_signed = d->a_signed;
  elements.shifted = shifted;
  elements.minus = pairs ? zero : NULL;
  elements.blank = variant.dot4 ? zero : elements.blank;
  return (cy_int_gemm_rows){elements, d->a_signed, zero, byte};
}

V cy_int_gemm_source_bytes(cy_cg *cg, cy_int_gemm_variant variant, V n) { return cy_mulc(cg, n, variant.bf16 ? 2 : 1); }
V cy_int_gemm_bytes(cy_cg *cg, cy_int_gemm_variant variant, V n) { return cy_mulc(cg, n, variant.dot4 ? 1 : 2); }
