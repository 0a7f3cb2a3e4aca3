/* dot_rows.c - copies elements of a into a worker's scratch in the form that the micro-kernels of dot_kernel.c read.
 *
 * Comes in: runs of s8 or u8 in memory. Goes out: pairs: i16, less the zero point, so that nothing is left to correct;
 * fours: u8, s8 being shifted by 128, what stands for zero being the (shifted) zero point. This takes one vector
 * operation for 16 or more elements, each of which then meets all columns of a task. bf16 stay as they are.
 */
#include "dot.h"

cy_dot_rows cy_dot_rows_begin(cy_cg *cg, cy_dot_form form, const cy_dot_desc *d) {
  cy_dot_rows r = {.form = form, .is_signed = d->a_signed};
  V zero = d->a_zero_slot < 0 ? LLVMConstNull(cg->i8) : cy_load(cg, cg->i8, cy_arg_ptr(cg, d->a_zero_slot), 1);
  if (form.fours)
    r.zero = d->a_signed ? LLVMBuildXor(cg->b, zero, LLVMConstInt(cg->i8, 0x80, 0), "") : zero;
  else
    r.zero = d->a_signed ? LLVMBuildSExt(cg->b, zero, cg->i16, "") : LLVMBuildZExt(cg->b, zero, cg->i16, "");
  return r;
}

V cy_dot_source_bytes(cy_cg *cg, cy_dot_form form, V n) { return cy_mulc(cg, n, form.bf16 ? 2 : 1); }
V cy_dot_bytes(cy_cg *cg, cy_dot_form form, V n) { return cy_mulc(cg, n, form.fours ? 1 : 2); }

static void emit_piece(cy_cg *cg, const cy_dot_rows *r, V dst, V src, unsigned lanes) {
  LLVMTypeRef bytes = LLVMVectorType(cg->i8, lanes), words = LLVMVectorType(cg->i16, lanes);
  V v = cy_load(cg, r->form.bf16 ? words : bytes, src, 1);
  if (r->form.bf16) {
    cy_store(cg, v, dst, 1);
    return;
  }
  if (r->form.fours) {
    if (r->is_signed)
      v = LLVMBuildXor(cg->b, v, cy_splat(cg, LLVMConstInt(cg->i8, 0x80, 0), lanes), "");
  } else {
    v = r->is_signed ? LLVMBuildSExt(cg->b, v, words, "") : LLVMBuildZExt(cg->b, v, words, "");
    v = LLVMBuildSub(cg->b, v, cy_splat(cg, r->zero, lanes), "");
  }
  cy_store(cg, v, dst, 1);
}

/* The piece that begins with element `at` of both. */
static void emit_piece_at(cy_cg *cg, const cy_dot_rows *r, V dst, V src, V at, unsigned lanes) {
  V from = cy_gep(cg, src, cy_dot_source_bytes(cg, r->form, at));
  emit_piece(cg, r, cy_gep(cg, dst, cy_dot_bytes(cg, r->form, at)), from, lanes);
}

/* Elements [from, to) in pieces of `lanes`, the last one ending at or before `to`. Returns where it ended. */
static V emit_pieces(cy_cg *cg, const cy_dot_rows *r, V dst, V src, V from, V to, unsigned lanes) {
  V whole = cy_mulc(cg, cy_div(cg, cy_sub(cg, to, from), cy_i64(cg, lanes)), lanes), end = cy_add(cg, from, whole);
  cy_loop l;
  cy_loop_begin(cg, &l, from, end, cy_i64(cg, lanes), NULL, 0);
  emit_piece_at(cg, r, dst, src, l.iv, lanes);
  cy_loop_end(cg, &l, NULL);
  return end;
}

void cy_dot_run(cy_cg *cg, const cy_dot_rows *r, V dst, V src, V n) {
  unsigned lanes = cg->W * (r->form.fours ? 4 : 2);
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
  while (at < count) {
    while (lanes > count - at)
      lanes /= 2;
    emit_piece_at(cg, r, dst, src, cy_i64(cg, at), lanes);
    at += lanes;
  }
}

void cy_dot_gather(cy_cg *cg, const cy_dot_rows *r, V dst, V src, V n, V stride) {
  cy_loop l;
  cy_loop_begin(cg, &l, cy_i64(cg, 0), n, cy_i64(cg, 1), NULL, 0);
  V from = cy_gep(cg, src, cy_mul(cg, l.iv, stride));
  emit_piece(cg, r, cy_gep(cg, dst, cy_dot_bytes(cg, r->form, l.iv)), from, 1);
  cy_loop_end(cg, &l, NULL);
}

void cy_dot_blank(cy_cg *cg, const cy_dot_rows *r, V dst, V n) {
  V byte = r->form.fours ? r->zero : LLVMConstNull(cg->i8);
  LLVMBuildMemSet(cg->b, dst, byte, cy_dot_bytes(cg, r->form, n), 1);
}
