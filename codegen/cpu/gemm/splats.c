/* SPDX-License-Identifier: Apache-2.0 */
/* splats.c - vectors of one number that several kernels add, once in a library.
 *
 * Comes in: an optimised module. Goes out: the same, but 64 bytes of 16-bit numbers that are all the same, as terms of
 * the polynomials of activations, are loaded from constants that all objects share. LLVM keeps constants function by
 * function; the linker merges them up to 32 bytes, and broadcasts take 4 and 8 bytes: only these would be in a library
 * as often as there are kernels, 25 KB in yolox_nano. Not of all operations: LLVM may know a better one for the number at
 * hand.
 */
#include "codegen/cpu/emit.h"

#include <stdio.h>
#include <string.h>

enum { LANES = 32 };

/* Is c such a vector, or several? */
static bool is_splat(cy_cg *cg, LLVMValueRef c) {
  LLVMTypeRef type = LLVMTypeOf(c);
  if (!LLVMIsAConstantDataVector(c) || LLVMGetElementType(type) != cg->i16 || LLVMGetVectorSize(type) % LANES)
    return false;
  for (unsigned i = 1; i < LLVMGetVectorSize(type); i++)
    if (LLVMGetAggregateElement(c, i) != LLVMGetAggregateElement(c, 0))
      return false;
  return true;
}

static LLVMValueRef shared(cy_cg *cg, LLVMValueRef number) {
  char name[40];
  LLVMValueRef lanes[LANES];
  snprintf(name, sizeof name, "cyk_splat_%04llx", LLVMConstIntGetZExtValue(number));
  LLVMValueRef found = cy_shared_find(cg, name);
  if (found)
    return found;
  for (int i = 0; i < LANES; i++)
    lanes[i] = number;
  return cy_shared_opaque(cg, name, LLVMConstVector(lanes, LANES));
}

/* The vector, loaded in front of `user`. */
static LLVMValueRef loaded(cy_cg *cg, LLVMValueRef c, LLVMValueRef user) {
  unsigned n = LLVMGetVectorSize(LLVMTypeOf(c));
  LLVMValueRef from = shared(cg, LLVMGetAggregateElement(c, 0));
  LLVMPositionBuilderBefore(cg->b, user);
  LLVMValueRef v = cy_load_invariant(cg, LLVMVectorType(cg->i16, LANES), from, 64);
  return n == LANES ? v : cy_repeated(cg, v, LANES, n);
}

/* Is it a sum, a difference, or a product of fractions? */
static bool is_term(LLVMValueRef user) {
  LLVMOpcode op = LLVMGetInstructionOpcode(user);
  if (op == LLVMAdd || op == LLVMSub)
    return true;
  static const char fractions[] = "llvm.x86.avx512.pmul.hr.sw";
  size_t n = 0;
  const char *name = op == LLVMCall ? LLVMGetValueName2(LLVMGetCalledValue(user), &n) : "";
  return n >= sizeof fractions - 1 && memcmp(name, fractions, sizeof fractions - 1) == 0;
}

static void share_operands(cy_cg *cg, LLVMValueRef user) {
  for (unsigned i = 0; i < 2 && is_term(user); i++) {
    LLVMValueRef c = LLVMGetOperand(user, i);
    if (LLVMGetTypeKind(LLVMTypeOf(c)) == LLVMVectorTypeKind && is_splat(cg, c))
      LLVMSetOperand(user, i, loaded(cg, c, user));
  }
}

void cy_share_splats(cy_cg *cg) {
  for (LLVMValueRef fn = LLVMGetFirstFunction(cg->module); fn && cg->avx512; fn = LLVMGetNextFunction(fn))
    for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(fn); b; b = LLVMGetNextBasicBlock(b))
      for (LLVMValueRef v = LLVMGetFirstInstruction(b); v; v = LLVMGetNextInstruction(v))
        share_operands(cg, v);
}
