/* SPDX-License-Identifier: Apache-2.0 */
/* int_kernel.c - micro-kernels of contractions by groups of k: mr rows by nv vectors of accumulators in registers over all of
 * k.
 *
 * Comes in: rows of a in scratch, a packed panel of b. Goes out: a tile of accumulators in memory, for the epilogue. Every
 * step broadcasts 32 bits of each row, two i16 or bf16 or four u8, and multiplies them with as many of every column.
 * vpmaddwd does twice as many products as an fma in the same time, vpdpbusd four times as many. vpmaddubsw and the
 * vpmaddwd that adds up two of its sums do twice as many, too, but need half the additions and loads, which keep dot2 from
 * it.
 */
#include "int_gemm.h"

#include <stdio.h>
#include <string.h>

/* ---- the table ---- */

#define CY_GROUP_KERNEL(id, symbol, text, step_, wide_, dot4_, split_, bf16_)                                          \
  {symbol, {.dot4 = dot4_, .wide = wide_, .split = split_, .bf16 = bf16_, .step = step_}},
static const struct {
  const char *symbol;
  cy_int_gemm_variant variant;
} kernels[] = {
#include "codegen/cpu/microkernels.def"
};

cy_int_gemm_variant cy_group_kernel_of(cy_group_kernel kernel) { return kernels[kernel].variant; }

cy_group_kernel cy_group_kernel_id(cy_int_gemm_variant v) {
  unsigned i = 0;
  for (unsigned n = sizeof kernels / sizeof *kernels; i + 1 < n; i++) {
    const cy_int_gemm_variant *k = &kernels[i].variant;
    if (k->dot4 == v.dot4 && k->wide == v.wide && k->split == v.split && k->bf16 == v.bf16)
      break;
  }
  return (cy_group_kernel)i;
}

int64_t cy_int_gemm_group_bytes(cy_int_gemm_variant f, int64_t nr) { return nr * f.step * (f.wide ? 2 : 1); }

/* Every `every`-th lane of v from `first` on, as i32. */
static V part(cy_cg *cg, V v, unsigned first, unsigned every, bool is_signed) {
  V some = cy_strided_lanes(cg, v, v, first, every, cg->W);
  return is_signed ? LLVMBuildSExt(cg->b, some, cg->vi, "") : LLVMBuildZExt(cg->b, some, cg->vi, "");
}

/* The products spelled out: for CPUs without the instruction, and to run its kernels in tests where there is none. */
static V dot_spelled(cy_cg *cg, unsigned n, V acc, V a, V b, bool a_signed) {
  for (unsigned i = 0; i < n; i++) {
    V factor = part(cg, b, i, n, true);
    acc = LLVMBuildAdd(cg->b, acc, LLVMBuildMul(cg->b, part(cg, a, i, n, a_signed), factor, ""), "");
  }
  return acc;
}

V cy_int_gemm_dot2_times(cy_cg *cg, V a, V b) {
  LLVMTypeRef pairs = LLVMVectorType(cg->i16, 2 * cg->W);
  V args[2] = {LLVMBuildBitCast(cg->b, a, pairs, ""), LLVMBuildBitCast(cg->b, b, pairs, "")};
  if (!cg->avx2)
    return dot_spelled(cg, 2, LLVMConstNull(cg->vi), args[0], args[1], true);
  const char *name = cg->W == 16 ? "llvm.x86.avx512.pmaddw.d.512" : "llvm.x86.avx2.pmadd.wd";
  return cy_intrinsic_of(cg, name, NULL, 0, args, 2);
}

V cy_int_gemm_bytes_times(cy_cg *cg, V a, V b) {
  LLVMTypeRef bytes = LLVMVectorType(cg->i8, 4 * cg->W);
  V args[2] = {LLVMBuildBitCast(cg->b, a, bytes, ""), LLVMBuildBitCast(cg->b, b, bytes, "")};
  const char *name = cg->W == 16 ? "llvm.x86.avx512.pmaddubs.w.512" : "llvm.x86.avx2.pmadd.ub.sw";
  return cy_intrinsic_of(cg, name, NULL, 0, args, 2);
}

/* acc + the sums of two products of i16. */
static V add_dot2(cy_cg *cg, V acc, V a, V b) {
  V args[3] = {acc, LLVMBuildBitCast(cg->b, a, cg->vi, ""), LLVMBuildBitCast(cg->b, b, cg->vi, "")};
  if (cg->avx512 && cg->vnni && !cg->vnni_spelled)
    return cy_intrinsic_of(cg, "llvm.x86.avx512.vpdpwssd.512", NULL, 0, args, 3);
  return LLVMBuildAdd(cg->b, acc, cy_int_gemm_dot2_times(cg, a, b), "");
}

/* acc + a * b, no sum of a pair of products being more than 16 bits hold. */
static V add_split(cy_cg *cg, V acc, V a, V b) {
  V ones = cy_splat(cg, LLVMConstInt(cg->i16, 1, 0), 2 * cg->W);
  return add_dot2(cg, acc, cy_int_gemm_bytes_times(cg, a, b), ones);
}

static V add_bf16(cy_cg *cg, V acc, V a, V b) {
  LLVMTypeRef pairs = LLVMVectorType(cg->bf16, 2 * cg->W);
  V args[3] = {LLVMBuildBitCast(cg->b, acc, cg->vf, ""), LLVMBuildBitCast(cg->b, a, pairs, ""),
               LLVMBuildBitCast(cg->b, b, pairs, "")};
  V sum = cy_intrinsic_of(cg, "llvm.x86.avx512bf16.dpbf16ps.512", NULL, 0, args, 3);
  return LLVMBuildBitCast(cg->b, sum, cg->vi, "");
}

V cy_int_gemm_add(cy_cg *cg, cy_int_gemm_variant variant, V acc, V a, V b) {
  LLVMTypeRef vb = LLVMVectorType(cg->i8, 4 * cg->W), vh = LLVMVectorType(cg->i16, 2 * cg->W);
  if (variant.bf16)
    return add_bf16(cg, acc, a, b);
  if (variant.split)
    return add_split(cg, acc, a, b);
  if (variant.dot4) {
    if (cg->vnni_spelled) {
      b = LLVMBuildBitCast(cg->b, b, vb, "");
      return dot_spelled(cg, 4, acc, LLVMBuildBitCast(cg->b, a, vb, ""), b, false);
    }
    V args[3] = {acc, a, b};
    if (cy_cg_has(cg, "neon")) {
      LLVMTypeRef types[2] = {cg->vi, vb};
      args[1] = LLVMBuildBitCast(cg->b, a, vb, "");
      args[2] = LLVMBuildBitCast(cg->b, b, vb, "");
      return cy_intrinsic_of(cg, cg->sdot ? "llvm.aarch64.neon.sdot" : "llvm.aarch64.neon.usdot", types, 2, args, 3);
    }
    const char *name = cg->W == 16 ? "llvm.x86.avx512.vpdpbusd.512" : "llvm.x86.avx512.vpdpbusd.256";
    return cy_intrinsic_of(cg, name, NULL, 0, args, 3);
  }
  V args[2] = {LLVMBuildBitCast(cg->b, a, vh, ""), LLVMBuildBitCast(cg->b, b, vh, "")};
  return add_dot2(cg, acc, args[0], args[1]);
}

/* So many of b's columns, at most a vector, as <W x i32>; nothing behind them is read. */
static V load_b(cy_cg *cg, cy_int_gemm_variant variant, V p, unsigned lanes) {
  int order[16];
  V v;
  if (variant.dot4 || variant.wide) {
    if (lanes & (lanes - 1)) /* in one piece */
      return cy_load_first(cg, cg->vi, p, lanes, 4);
    v = cy_load(cg, LLVMVectorType(cg->i32, lanes), p, 4);
  } else {
    v = cy_load(cg, LLVMVectorType(cg->i8, 2 * lanes), p, 1);
    v = LLVMBuildSExt(cg->b, v, LLVMVectorType(cg->i16, 2 * lanes), "");
    v = LLVMBuildBitCast(cg->b, v, LLVMVectorType(cg->i32, lanes), "");
  }
  for (unsigned i = 0; i < cg->W; i++)
    order[i] = (int)(i < lanes ? i : lanes);
  return lanes == cg->W ? v : cy_shuffle(cg, v, LLVMConstNull(LLVMTypeOf(v)), order, cg->W);
}

LLVMTypeRef cy_int_gemm_kernel_type(cy_cg *cg, cy_int_gemm_variant variant) {
  LLVMTypeRef params[CY_INT_GEMM_MAX_ARGS] = {cg->ptr, cg->ptr, cg->ptr, cg->ptr, cg->i64, cg->i64, cg->i64, cg->ptr,
                                              cg->ptr, cg->ptr, cg->i64, cg->i64, cg->ptr, cg->i64, cg->ptr, cg->ptr};
  if (!variant.prefetch)
    params[CY_INT_GEMM_ARGS + 1] = cg->ptr;
  return LLVMFunctionType(cg->voidt, params, cy_int_gemm_args(variant), 0);
}

V cy_int_gemm_kernel_begin(cy_cg *cg, const char *name, cy_int_gemm_variant variant) {
  LLVMTypeRef params[CY_INT_GEMM_MAX_ARGS];
  LLVMGetParamTypes(cy_int_gemm_kernel_type(cg, variant), params);
  return cy_fn_begin(cg, name, cg->voidt, params, cy_int_gemm_args(variant),
                     CY_FN_SHARED | CY_FN_NOINLINE | CY_FN_NOALIAS);
}

enum { MAX_AT_ONCE = 8 }; /* groups of a run, where code is in line */

/* What a loop over groups of k goes through. */
typedef struct kernel {
  cy_int_gemm_variant variant;
  unsigned mr, nv;
  int64_t nr;
  bool onto;
  V row[16];
  V step; /* between what is prefetched, or NULL */
} kernel;

/* What is carried from group to group: accumulators, b's pointer, and where to prefetch. */
static unsigned carried(const kernel *k) { return k->mr * k->nv + 1 + (k->step != NULL); }

/* On to the next group. */
static void move_on(cy_cg *cg, const kernel *k, V *v) {
  V *b = &v[k->mr * k->nv];
  b[0] = cy_gepc(cg, b[0], cy_int_gemm_group_bytes(k->variant, k->nr));
  if (k->step) {
    cy_prefetch(cg, b[1], false, CY_SECOND_LEVEL);
    b[1] = cy_gep(cg, b[1], k->step);
  }
}

/* Of vector j of a panel's columns: how many there are. */
static unsigned lanes_of(const cy_cg *cg, const kernel *k, unsigned j) {
  int64_t left = k->nr * cy_int_gemm_each(k->variant) - (int64_t)j * cg->W;
  return left < cg->W ? (unsigned)left : cg->W;
}

/* A group: column vectors at b, elements of rows `at` bytes from where they begin; accumulators become the next ones. */
static void emit_group(cy_cg *cg, const kernel *k, V b, V at, V *acc) {
  V column[16];
  int64_t vector = cy_int_gemm_group_bytes(k->variant, cg->W / cy_int_gemm_each(k->variant));
  for (unsigned j = 0; j < k->nv; j++)
    column[j] = load_b(cg, k->variant, cy_gepc(cg, b, (int64_t)j * vector), lanes_of(cg, k, j));
  for (unsigned i = 0; i < k->mr; i++) {
    V a = cy_int_lane_reduce_load(cg, cy_gep(cg, k->row[i], at), cy_int_gemm_each(k->variant));
    for (unsigned j = 0; j < k->nv; j++)
      acc[i * k->nv + j] = cy_int_gemm_add(cg, k->variant, acc[i * k->nv + j], a, column[j]);
  }
}

/* `count` groups: those in order from where rows begin and `from` bytes on, or those at the offsets in `again`. v: what is
 * carried; replaced by its final values. */
static void emit_loop(cy_cg *cg, const kernel *k, V count, V from, V again, V *v) {
  unsigned n = carried(k);
  V next[CY_LOOP_MAX];
  cy_loop l;
  unsigned group = cy_int_gemm_row_group(k->variant);
  cy_loop_begin(cg, &l, cy_i64(cg, 0), cy_mulc(cg, count, group), cy_i64(cg, group), v, n);
  memcpy(next, l.v, n * sizeof *next);
  V at = again  ? LLVMBuildZExt(cg->b, cy_load(cg, cg->i32, cy_gep(cg, again, l.iv), 4), cg->i64, "")
         : from ? cy_add(cg, from, l.iv)
                : l.iv;
  emit_group(cg, k, next[k->mr * k->nv], at, next);
  move_on(cg, k, next);
  cy_loop_end(cg, &l, next);
  memcpy(v, l.out, n * sizeof *v);
}

/* So many groups without a loop. */
static void emit_groups(cy_cg *cg, const kernel *k, int64_t count, V from, V *v) {
  for (int64_t i = 0; i < count; i++) {
    emit_group(cg, k, v[k->mr * k->nv], cy_addc(cg, from, cy_int_gemm_row_group(k->variant) * i), v);
    move_on(cg, k, v);
  }
}

/* All of k. */
static void emit_depth(cy_cg *cg, const kernel *k, const cy_int_gemm_depth *depth, V *v) {
  unsigned n = carried(k);
  V next[CY_LOOP_MAX];
  if (!k->variant.row_block && !k->variant.shuffled) {
    emit_loop(cg, k, depth->groups, NULL, NULL, v);
    return;
  }
  cy_loop l;
  cy_loop_begin(cg, &l, cy_i64(cg, 0), depth->runs, cy_i64(cg, 1), v, n);
  memcpy(next, l.v, n * sizeof *next);
  V from = k->variant.shuffled ? cy_load(cg, cg->i64, cy_gep(cg, depth->places, cy_mulc(cg, l.iv, 8)), 8)
                               : cy_mul(cg, l.iv, depth->pitch);
  int64_t groups;
  if (cy_is_const(depth->groups, &groups) && groups <= MAX_AT_ONCE)
    emit_groups(cg, k, groups, from, next);
  else
    emit_loop(cg, k, depth->groups, from, NULL, next);
  cy_loop_end(cg, &l, next);
  memcpy(v, l.out, n * sizeof *v);
}

/* Where a column has several lanes: all of k, accumulators as rows that follow each other. start: memory. */
static void emit_lane_reduce(cy_cg *cg, const kernel *k, const cy_int_gemm_depth *depth, V start, V *v) {
  unsigned each = cy_int_gemm_each(k->variant);
  for (unsigned i = 0; i < k->mr; i++)
    v[i] = LLVMConstNull(cg->vi);
  emit_depth(cg, k, depth, v);
  cy_int_lane_reduce_fold(cg, each, k->mr, k->variant.starts ? cy_int_lane_reduce_load(cg, start, cg->W / each) : NULL,
                          v);
}

/* Panel q: b is replaced by where the next one begins, and what to prefetch behind it likewise. */
static void emit_panel(cy_cg *cg, const kernel *k, V fn, V q, V *b) {
  V start = cy_gep(cg, LLVMGetParam(fn, 7), cy_mulc(cg, q, k->nr * 4)), v[CY_LOOP_MAX];
  V c = cy_gep(cg, LLVMGetParam(fn, 3), cy_mulc(cg, q, k->nr * 4));
  cy_int_gemm_tables tables = cy_int_gemm_tables_given(fn, k->variant);
  cy_int_gemm_depth depth = {LLVMGetParam(fn, 5), LLVMGetParam(fn, 10), LLVMGetParam(fn, 11), NULL};
  if (k->variant.shuffled)
    depth = cy_int_gemm_tables_depth(cg, &tables, q);
  unsigned each = cy_int_gemm_each(k->variant), carried_on = k->step ? 2 : 1;
  if (each > 1) {
    memcpy(v + k->mr, b, carried_on * sizeof *b);
    emit_lane_reduce(cg, k, &depth, start, v);
    for (unsigned i = 0; i < k->mr / each; i++)
      cy_store(cg, v[i], cy_gepc(cg, c, (int64_t)i * cg->W * 4), 4);
    memcpy(b, v + k->mr, carried_on * sizeof *b);
    return;
  }
  for (unsigned j = 0; j < k->nv; j++) {
    int64_t at = (int64_t)j * cg->W * 4;
    V from = k->variant.starts ? cy_load(cg, cg->vi, cy_gepc(cg, start, at), 4) : LLVMConstNull(cg->vi), row = c;
    for (unsigned i = 0; i < k->mr; i++, row = cy_gep(cg, row, LLVMGetParam(fn, 4)))
      v[i * k->nv + j] = k->onto ? cy_load(cg, cg->vi, cy_gepc(cg, row, at), 4) : from;
  }
  memcpy(v + k->mr * k->nv, b, carried_on * sizeof *b);
  emit_depth(cg, k, &depth, v);
  if (k->variant.split) {
    V first = cy_gep(cg, LLVMGetParam(fn, 8), cy_mulc(cg, q, 4)), before = cy_load(cg, cg->i32, first, 4);
    V count = LLVMBuildSub(cg->b, cy_load(cg, cg->i32, cy_gepc(cg, first, 4), 4), before, "");
    V again = cy_gep(cg, LLVMGetParam(fn, 9), cy_mulc(cg, LLVMBuildZExt(cg->b, before, cg->i64, ""), 4));
    emit_loop(cg, k, LLVMBuildZExt(cg->b, count, cg->i64, ""), NULL, again, v);
  }
  for (unsigned i = 0; i < k->mr; i++, c = cy_gep(cg, c, LLVMGetParam(fn, 4)))
    for (unsigned j = 0; j < k->nv; j++)
      cy_store(cg, v[i * k->nv + j], cy_gepc(cg, c, (int64_t)j * cg->W * 4), 4);
  memcpy(b, v + k->mr * k->nv, carried_on * sizeof *b);
}

void cy_int_gemm_accumulate(cy_cg *cg, cy_int_gemm_variant variant, unsigned mr, unsigned nv, int64_t nr, const V *row, V b,
                      V start, const cy_int_gemm_depth *depth, V *out) {
  kernel k = {variant, mr, nv, nr, false, {NULL}, NULL};
  V v[CY_LOOP_MAX];
  memcpy(k.row, row, mr * sizeof *row);
  if (cy_int_gemm_each(variant) > 1) {
    v[mr] = b;
    emit_lane_reduce(cg, &k, depth, start, v);
    memcpy(out, v, mr / cy_int_gemm_each(variant) * sizeof *v);
    return;
  }
  for (unsigned i = 0; i < mr * nv; i++)
    v[i] = variant.starts ? cy_load(cg, cg->vi, cy_gepc(cg, start, (int64_t)(i % nv) * cg->W * 4), 4)
                          : LLVMConstNull(cg->vi);
  v[mr * nv] = b;
  emit_depth(cg, &k, depth, v);
  memcpy(out, v, mr * nv * sizeof *v);
}

V cy_int_gemm_kernel(cy_cg *cg, cy_int_gemm_variant variant, unsigned mr, unsigned nv, int64_t nr, bool onto) {
  char name[64];
  char lanes[16] = "";
  if (cy_int_gemm_each(variant) > 1)
    snprintf(lanes, sizeof lanes, "_by%u", cy_int_gemm_each(variant));
  snprintf(name, sizeof name, "cyk_%s_%ux%u_%lld%s%s%s%s%s%s", kernels[cy_group_kernel_id(variant)].symbol, mr,
           nv * cg->W, (long long)nr, lanes, variant.row_block && !variant.shuffled ? "_row_block" : "",
           variant.shuffled ? "_shuffled" : "", variant.starts ? "_start" : "", variant.prefetch ? "_prefetch" : "",
           onto ? "_onto" : "");
  V fn = cy_shared_find(cg, name);
  if (fn)
    return fn;
  cy_fn_state state = cy_fn_save(cg);
  fn = cy_int_gemm_kernel_begin(cg, name, variant);
  kernel k = {variant, mr, nv, nr, onto, {NULL}, variant.prefetch ? LLVMGetParam(fn, CY_INT_GEMM_ARGS + 1) : NULL};
  for (unsigned i = 0; i < mr; i++) /* from memory: else LLVM makes one address of the one before, mr additions each */
    k.row[i] = cy_gep(cg, LLVMGetParam(fn, 0), cy_load(cg, cg->i64, cy_gepc(cg, LLVMGetParam(fn, 1), 8 * i), 8));
  V b[2] = {LLVMGetParam(fn, 2), variant.prefetch ? LLVMGetParam(fn, CY_INT_GEMM_ARGS) : NULL};
  cy_loop q;
  cy_loop_begin(cg, &q, cy_i64(cg, 0), LLVMGetParam(fn, 6), cy_i64(cg, 1), b, variant.prefetch ? 2 : 1);
  memcpy(b, q.v, (variant.prefetch ? 2 : 1) * sizeof *b);
  emit_panel(cg, &k, fn, q.iv, b);
  cy_loop_end(cg, &q, b);
  cy_fn_end(cg, NULL);
  cy_fn_restore(cg, state);
  return fn;
}
