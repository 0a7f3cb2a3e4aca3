/* int8_kernel.c - micro-kernels of 8-bit contractions: mr rows by nv vectors of i32 sums in registers over all of k.
 *
 * Comes in: rows of a in scratch, a packed panel of b. Goes out: a tile of i32 sums in memory, for the epilogue. Every
 * step broadcasts 32 bits of each row, two i16 or four u8, and multiplies them with as many of every column. vpmaddwd
 * does twice as many products as an fma in the same time, vpdpbusd four times as many. vpmaddubsw is not used: its
 * 16-bit sums saturate, and where it could be proven not to, it saves memory but no time.
 */
#include "int8.h"

#include <stdio.h>
#include <string.h>

int64_t cy_int8_group_bytes(cy_int8_form f, int64_t nr) { return nr * f.step * (f.wide ? 2 : 1); }

static V intrinsic(cy_cg *cg, const char *name, LLVMTypeRef ret, LLVMTypeRef *params, V *args, unsigned n) {
  V fn = LLVMGetNamedFunction(cg->module, name);
  LLVMTypeRef type = LLVMFunctionType(ret, params, n, 0);
  if (!fn)
    fn = LLVMAddFunction(cg->module, name, type);
  return LLVMBuildCall2(cg->b, type, fn, args, n, "");
}

/* Every `every`-th lane of v from `first` on, as i32. */
static V part(cy_cg *cg, V v, unsigned first, unsigned every, bool is_signed) {
  int lanes[64];
  for (unsigned i = 0; i < cg->W; i++)
    lanes[i] = (int)(i * every + first);
  V some = cy_shuffle(cg, v, v, lanes, cg->W);
  return is_signed ? LLVMBuildSExt(cg->b, some, cg->vi, "") : LLVMBuildZExt(cg->b, some, cg->vi, "");
}

/* The products spelled out: for CPUs without the instruction, and to run its kernels in tests where there is none. */
static V dot_spelled(cy_cg *cg, unsigned n, V acc, V a, V b, bool a_signed) {
  for (unsigned i = 0; i < n; i++) {
    V product = LLVMBuildMul(cg->b, part(cg, a, i, n, a_signed), part(cg, b, i, n, true), "");
    acc = LLVMBuildAdd(cg->b, acc, product, "");
  }
  return acc;
}

V cy_int8_dot(cy_cg *cg, cy_int8_form form, V acc, V a, V b) {
  LLVMTypeRef vb = LLVMVectorType(cg->i8, 4 * cg->W), vh = LLVMVectorType(cg->i16, 2 * cg->W), vi = cg->vi;
  if (form.fours) {
    if (cg->vnni_spelled)
      return dot_spelled(cg, 4, acc, LLVMBuildBitCast(cg->b, a, vb, ""), LLVMBuildBitCast(cg->b, b, vb, ""), false);
    V args[3] = {acc, a, b};
    LLVMTypeRef params[3] = {vi, vi, vi};
    const char *name = cg->W == 16 ? "llvm.x86.avx512.vpdpbusd.512" : "llvm.x86.avx512.vpdpbusd.256";
    return intrinsic(cg, name, vi, params, args, 3);
  }
  V args[2] = {LLVMBuildBitCast(cg->b, a, vh, ""), LLVMBuildBitCast(cg->b, b, vh, "")};
  if (!cg->avx2)
    return dot_spelled(cg, 2, acc, args[0], args[1], true);
  LLVMTypeRef params[2] = {vh, vh};
  const char *name = cg->W == 16 ? "llvm.x86.avx512.pmaddw.d.512" : "llvm.x86.avx2.pmadd.wd";
  return LLVMBuildAdd(cg->b, acc, intrinsic(cg, name, vi, params, args, 2), "");
}

/* One vector of b's columns, as <W x i32>. */
static V load_b(cy_cg *cg, cy_int8_form form, V p) {
  if (form.fours || form.wide)
    return cy_load(cg, cg->vi, p, 4);
  V v = cy_load(cg, LLVMVectorType(cg->i8, 2 * cg->W), p, 1);
  v = LLVMBuildSExt(cg->b, v, LLVMVectorType(cg->i16, 2 * cg->W), "");
  return LLVMBuildBitCast(cg->b, v, cg->vi, "");
}

/* The loop over k. sums: replaced by their final values. */
static void emit_loop(cy_cg *cg, cy_int8_form form, unsigned mr, unsigned nv, int64_t nr, V fn, V *sums) {
  unsigned n = mr * nv;
  V row[16], b[16], next[CY_LOOP_MAX];
  sums[n] = LLVMGetParam(fn, 2);
  for (unsigned i = 0; i < mr;
       i++) /* from memory: else LLVM makes one address of the one before, six additions a step */
    row[i] = cy_gep(cg, LLVMGetParam(fn, 0), cy_load(cg, cg->i64, cy_gepc(cg, LLVMGetParam(fn, 1), 8 * i), 8));
  int64_t step = cy_int8_group_bytes(form, nr), vector = cy_int8_group_bytes(form, cg->W);
  cy_loop l;
  cy_loop_begin(cg, &l, cy_i64(cg, 0), cy_mulc(cg, LLVMGetParam(fn, 5), 4), cy_i64(cg, 4), sums, n + 1);
  for (unsigned j = 0; j < nv; j++)
    b[j] = load_b(cg, form, cy_gepc(cg, l.v[n], (int64_t)j * vector));
  for (unsigned i = 0; i < mr; i++) {
    V a = cy_splat(cg, cy_load(cg, cg->i32, cy_gep(cg, row[i], l.iv), 4), cg->W);
    for (unsigned j = 0; j < nv; j++)
      next[i * nv + j] = cy_int8_dot(cg, form, l.v[i * nv + j], a, b[j]);
  }
  next[n] = cy_gepc(cg, l.v[n], step);
  cy_loop_end(cg, &l, next);
  memcpy(sums, l.out, n * sizeof *sums);
}

V cy_int8_kernel(cy_cg *cg, cy_int8_form form, unsigned mr, unsigned nv, int64_t nr) {
  char name[64];
  snprintf(name, sizeof name, "cyk_%s_%ux%u_%lld",
           form.fours  ? "u8s8"
           : form.wide ? "i16"
                       : "i16s8",
           mr, nv * cg->W, (long long)nr);
  V fn = LLVMGetNamedFunction(cg->module, name);
  if (fn)
    return fn;
  cy_fn_state state = cy_fn_save(cg);
  LLVMTypeRef params[6] = {cg->ptr, cg->ptr, cg->ptr, cg->ptr, cg->i64, cg->i64};
  fn = cy_fn_begin(cg, name, cg->voidt, params, 6, CY_FN_INTERNAL | CY_FN_NOINLINE | CY_FN_NOALIAS);
  V sums[CY_LOOP_MAX], c = LLVMGetParam(fn, 3);
  for (unsigned i = 0; i < mr * nv; i++)
    sums[i] = LLVMConstNull(cg->vi);
  emit_loop(cg, form, mr, nv, nr, fn, sums);
  for (unsigned i = 0; i < mr; i++, c = cy_gep(cg, c, LLVMGetParam(fn, 4)))
    for (unsigned j = 0; j < nv; j++)
      cy_store(cg, sums[i * nv + j], cy_gepc(cg, c, (int64_t)j * cg->W * 4), 4);
  cy_fn_end(cg, NULL);
  cy_fn_restore(cg, state);
  return fn;
}
