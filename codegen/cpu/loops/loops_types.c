/* SPDX-License-Identifier: Apache-2.0 */
/* loops_types.c - LLVM types of loop IR's elements, in registers and in memory, constants and single lanes of them; memory that
 * is zeroed. */
#include "loops_int.h"

#include <stdlib.h>

void *cy_lp_zeroed(size_t n, size_t size) {
  void *v = calloc(n ? n : 1, size);
  if (!v)
    cy_no_memory();
  return v;
}

bool *cy_lp_marks(const cy_kernel *k) { return cy_lp_zeroed(cy_expr_count(k) + 1, sizeof(bool)); }

static int bits_of(cy_dtype t) { return cy_dtype_of(t)->bits; }

T cy_lp_reg(cy_cg *cg, cy_dtype t, unsigned n) {
  char cls = cy_dtype_of(t)->cls;
  if (cls == 'B')
    return lanes_of(cg->i1, n);
  if (cls == 'F')
    return lanes_of(t == CY_F64 ? cg->f64 : cg->f32, n);
  if (cls != 'I' && cls != 'U')
    cy_bug("elements of type %s in a kernel", cy_dtype_of(t)->name);
  return lanes_of(LLVMIntTypeInContext(cg->ctx, bits_of(t) < 8 ? 8 : (unsigned)bits_of(t)), n);
}

bool cy_lp_packed(cy_dtype t) { return bits_of(t) < 8; }
unsigned cy_lp_bytes(cy_dtype t) { return bits_of(t) < 8 ? 1 : (unsigned)bits_of(t) / 8; }

T cy_lp_mem(cy_cg *cg, cy_dtype t, unsigned n) {
  if (t == CY_BF16)
    return lanes_of(cg->i16, n);
  if (t == CY_F16)
    return lanes_of(cg->f16, n);
  if (t == CY_BOOL || small_float(t))
    return lanes_of(cg->i8, n);
  return cy_lp_reg(cg, t, n);
}

V cy_lp_in_lanes(T type, V one) {
  if (LLVMGetTypeKind(type) != LLVMVectorTypeKind)
    return one;
  V e[64];
  unsigned n = LLVMGetVectorSize(type);
  for (unsigned i = 0; i < n; i++)
    e[i] = one;
  return LLVMConstVector(e, n);
}

V cy_lp_const(cy_cg *cg, cy_dtype t, cy_scalar c, unsigned n) {
  T type = cy_lp_reg(cg, t, n), lane = lane_type(type);
  return cy_lp_in_lanes(type, cy_dtype_is_float(t) ? LLVMConstReal(lane, c.f) : LLVMConstInt(lane, c.u, 0));
}

V cy_lp_lane(cy_cg *cg, V v, unsigned i, unsigned n) {
  return n == 1 ? v : LLVMBuildExtractElement(cg->b, v, cy_i32(cg, (int)i), "");
}

V cy_lp_set_lane(cy_cg *cg, V v, V x, unsigned i) {
  return LLVMBuildInsertElement(cg->b, v, x, cy_i32(cg, (int)i), "");
}
