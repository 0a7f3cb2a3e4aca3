/* SPDX-License-Identifier: Apache-2.0 */
/* int_rows.c - copies elements of a into a worker's scratch in the form that the micro-kernels of int_kernel.c read.
 *
 * Comes in: runs of s8 or u8 in memory. Goes out: pairs: i16, less the zero point, so that nothing is left to correct;
 * dot4: u8, s8 being shifted by 128 (s8, where the instruction takes these, u8 being shifted), what stands for zero
 * being the (shifted) zero point. This takes one vector
 * operation for 16 or more elements, each of which then meets all columns of a task. bf16 stay as they are.
 */
#include "int_gemm.h"

cy_int_gemm_rows cy_int_gemm_rows_begin(cy_cg *cg, cy_int_gemm_variant variant, const cy_int_gemm_desc *d) {
  cy_int_gemm_rows r = {
      .variant = variant, .is_signed = d->a_signed, .shifted = variant.dot4 && d->a_signed != cg->sdot};
  V zero = d->a_zero_slot < 0 ? LLVMConstNull(cg->i8) : cy_load(cg, cg->i8, cy_arg_ptr(cg, d->a_zero_slot), 1);
  r.byte = zero;
  if (variant.dot4)
    r.zero = r.shifted ? LLVMBuildXor(cg->b, zero, LLVMConstInt(cg->i8, 0x80, 0), "") : zero;
  else
    r.zero = d->a_signed ? LLVMBuildSExt(cg->b, zero, cg->i16, "") : LLVMBuildZExt(cg->b, zero, cg->i16, "");
  return r;
}

V cy_int_gemm_source_bytes(cy_cg *cg, cy_int_gemm_variant variant, V n) { return cy_mulc(cg, n, variant.bf16 ? 2 : 1); }
V cy_int_gemm_bytes(cy_cg *cg, cy_int_gemm_variant variant, V n) { return cy_mulc(cg, n, variant.dot4 ? 1 : 2); }

V cy_int_gemm_widen(cy_cg *cg, const cy_int_gemm_rows *r, V v, unsigned lanes) {
  LLVMTypeRef words = LLVMVectorType(cg->i16, lanes);
  v = LLVMBuildBitCast(cg->b, v, LLVMVectorType(cg->i8, lanes), "");
  v = r->is_signed ? LLVMBuildSExt(cg->b, v, words, "") : LLVMBuildZExt(cg->b, v, words, "");
  return LLVMBuildSub(cg->b, v, cy_splat(cg, r->zero, lanes), "");
}

static void store_piece(cy_cg *cg, const cy_int_gemm_rows *r, V dst, V v, unsigned lanes) {
  if (r->variant.bf16) {
    cy_store(cg, v, dst, 1);
    return;
  }
  if (!r->variant.dot4)
    v = cy_int_gemm_widen(cg, r, v, lanes);
  else if (r->shifted)
    v = LLVMBuildXor(cg->b, v, cy_splat(cg, LLVMConstInt(cg->i8, 0x80, 0), lanes), "");
  cy_store(cg, v, dst, 1);
}

static void emit_piece(cy_cg *cg, const cy_int_gemm_rows *r, V dst, V src, unsigned lanes) {
  LLVMTypeRef type = LLVMVectorType(r->variant.bf16 ? cg->i16 : cg->i8, lanes);
  store_piece(cg, r, dst, cy_load(cg, type, src, 1), lanes);
}

/* The piece that begins with element `at` of both. */
static void emit_piece_at(cy_cg *cg, const cy_int_gemm_rows *r, V dst, V src, V at, unsigned lanes) {
  V from = cy_gep(cg, src, cy_int_gemm_source_bytes(cg, r->variant, at));
  emit_piece(cg, r, cy_gep(cg, dst, cy_int_gemm_bytes(cg, r->variant, at)), from, lanes);
}

/* Elements [from, to) in pieces of `lanes`, the last one ending at or before `to`. Returns where it ended. */
static V emit_pieces(cy_cg *cg, const cy_int_gemm_rows *r, V dst, V src, V from, V to, unsigned lanes) {
  V whole = cy_mulc(cg, cy_div(cg, cy_sub(cg, to, from), cy_i64(cg, lanes)), lanes), end = cy_add(cg, from, whole);
  cy_loop l;
  cy_loop_begin(cg, &l, from, end, cy_i64(cg, lanes), NULL, 0);
  emit_piece_at(cg, r, dst, src, l.iv, lanes);
  cy_loop_end(cg, &l, NULL);
  return end;
}

void cy_int_gemm_run(cy_cg *cg, const cy_int_gemm_rows *r, V dst, V src, V n) {
  unsigned lanes = cg->W * (r->variant.dot4 ? 4 : 2);
  int64_t count, at = 0;
  if (!cy_is_const(n, &count)) {
    V end = emit_pieces(cg, r, dst, src, cy_i64(cg, 0), n, lanes);
    end = emit_pieces(cg, r, dst, src, end, n, 4);
    emit_pieces(cg, r, dst, src, end, n, 1);
    return;
  }
  if (count > 8 * lanes) {
    at = count / lanes * lanes;
    emit_pieces(cg, r, dst, src, cy_i64(cg, 0), cy_i64(cg, at), lanes);
  }
  while (at < count) { /* the last piece begins among the elements of the one before if that spares others */
    while (lanes > count || lanes / 2 >= count - at)
      lanes /= 2;
    at = at + lanes > count ? count - lanes : at;
    emit_piece_at(cg, r, dst, src, cy_i64(cg, at), lanes);
    at += lanes;
  }
}

bool cy_int_gemm_run_over(cy_cg *cg, const cy_int_gemm_rows *r, V dst, V src, int64_t n, int64_t room) {
  unsigned lanes = 16;
  while (lanes < n)
    lanes *= 2;
  if (!cg->avx512 || !r->variant.dot4 || lanes > 4 * cg->W || lanes == n || lanes > room)
    return false;
  store_piece(cg, r, dst, cy_load_first(cg, LLVMVectorType(cg->i8, lanes), src, (unsigned)n, 1), lanes);
  return true;
}

void cy_int_gemm_gather(cy_cg *cg, const cy_int_gemm_rows *r, V dst, V src, V n, V stride) {
  cy_loop l;
  cy_loop_begin(cg, &l, cy_i64(cg, 0), n, cy_i64(cg, 1), NULL, 0);
  V from = cy_gep(cg, src, cy_mul(cg, l.iv, stride));
  emit_piece(cg, r, cy_gep(cg, dst, cy_int_gemm_bytes(cg, r->variant, l.iv)), from, 1);
  cy_loop_end(cg, &l, NULL);
}

void cy_int_gemm_blank(cy_cg *cg, const cy_int_gemm_rows *r, V dst, V n) {
  V byte = r->variant.dot4 ? r->zero : LLVMConstNull(cg->i8);
  LLVMBuildMemSet(cg->b, dst, byte, cy_int_gemm_bytes(cg, r->variant, n), 1);
}
