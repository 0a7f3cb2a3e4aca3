/* SPDX-License-Identifier: Apache-2.0 */
/* microkernel_run.c - the inner loops of micro-kernels: one tap, all its k.
 *
 * Comes in: pointers to mr rows of A and to packed B, accumulators as values. Goes out: code that adds, for every k, mr
 * broadcasts times nv vectors; v (see microkernel.h) holds the next values then.
 */
#include "microkernel.h"

#include <stdio.h>
#include <string.h>

/* What puts eight halves, twice side by side, into the high halves of lanes, and zeros below. */
static V shuffle_of_bf16(cy_cg *cg) {
  static const char name[] = "cyk_bf16_bytes";
  V byte[32], found = cy_shared_find(cg, name);
  if (found)
    return found;
  for (int i = 0; i < 32; i++)
    byte[i] = LLVMConstInt(cg->i8, i % 4 < 2 ? 0x80 : (unsigned)(i / 4 * 2 + i % 2), 0);
  return cy_shared_opaque(cg, name, LLVMConstVector(byte, 32));
}

/* AVX2: a shuffle of bytes. LLVM would make of it what widens them and a shift: two instructions on the ports that fma
 * shares. */
static V load_bf16(cy_cg *cg, V at) {
  V once = cy_load(cg, LLVMVectorType(cg->i8, 16), at, 2);
  V bytes = cy_load_invariant(cg, LLVMVectorType(cg->i8, 32), shuffle_of_bf16(cg), 64);
  V args[2] = {cy_repeated(cg, once, 16, 32), bytes};
  V halves = cy_intrinsic_of(cg, "llvm.x86.avx2.pshuf.b", NULL, 0, args, 2);
  return LLVMBuildBitCast(cg->b, halves, cg->vf, "");
}

/* spare: is there a register for what the shuffle takes? */
static V load_weights(cy_cg *cg, cy_weights weights, V at, bool spare) {
  if (weights == CY_WEIGHTS_F32)
    return cy_load(cg, cg->vf, at, 4);
  if (weights == CY_WEIGHTS_F16)
    return LLVMBuildFPExt(cg->b, cy_load(cg, LLVMVectorType(cg->f16, cg->W), at, 2), cg->vf, "");
  if (spare && cg->avx2 && cg->W == 8)
    return load_bf16(cg, at);
  V bits = LLVMBuildZExt(cg->b, cy_load(cg, LLVMVectorType(cg->i16, cg->W), at, 2), cg->vi, ""), sixteen[16];
  for (unsigned i = 0; i < cg->W; i++)
    sixteen[i] = cy_i32(cg, 16);
  return LLVMBuildBitCast(cg->b, LLVMBuildShl(cg->b, bits, LLVMConstVector(sixteen, cg->W), ""), cg->vf, "");
}

V cy_weights_load(cy_cg *cg, cy_weights weights, V at) { return load_weights(cg, weights, at, true); }

/* One k: rows are read `k` floats behind their pointers. */
static void add_products(cy_cg *cg, unsigned mr, unsigned nv, cy_weights weights, V at, const V *row, V k, V *acc) {
  V b[16];
  bool spare = mr * nv + nv + 2 <= cg->registers;
  for (unsigned j = 0; j < nv; j++)
    b[j] = load_weights(cg, weights, cy_gepc(cg, at, (int64_t)j * cg->W * cy_weight_bytes(weights)), spare);
  for (unsigned i = 0; i < mr; i++) {
    V a = cy_splat(cg, cy_load(cg, cg->f32, cy_gepf(cg, row[i], k), 4), cg->W);
    for (unsigned j = 0; j < nv; j++)
      acc[i * nv + j] = cy_fma(cg, a, b[j], acc[i * nv + j]);
  }
}

/* Lines that are prefetched with every step: few tiles share the four of a step of weights. gpt2_small, 12, 16 and 18
 * rows: 34.8, 56.0 and 60.1 ms with one line, 29.1, 37.0 and 41.5 with two (Zen 4); many rows take the same time. Not
 * known where two fma run in a cycle. */
static int lines_to_prefetch(const cy_cg *cg, unsigned mr, unsigned nv, cy_weights weights) {
  return mr >= 3 && nv * cg->W * (unsigned)cy_weight_bytes(weights) > 128 ? (int)cg->model.prefetch_lines : 1;
}

/* v[n] is B, and behind it may be what is prefetched: both move on. */
static void move_on(cy_cg *cg, unsigned n, V ldb, V prefetch, int lines, V *v) {
  v[n] = cy_gep(cg, v[n], ldb);
  if (prefetch) {
    for (int i = 0; i < lines; i++)
      cy_prefetch(cg, cy_gepc(cg, v[n + 1], i * 64), false, CY_SECOND_LEVEL);
    v[n + 1] = cy_gep(cg, v[n + 1], prefetch);
  }
}

static void emit_run(cy_cg *cg, unsigned mr, unsigned nv, cy_weights weights, const V *row, V klen, V ldb, V prefetch,
                     V *v) {
  unsigned n = mr * nv, carried = n + 1 + (prefetch != NULL);
  V next[CY_LOOP_MAX];
  cy_loop l;
  cy_loop_begin(cg, &l, cy_i64(cg, 0), klen, cy_i64(cg, 1), v, carried);
  memcpy(next, l.v, carried * sizeof *next);
  add_products(cg, mr, nv, weights, l.v[n], row, l.iv, next);
  move_on(cg, n, ldb, prefetch, lines_to_prefetch(cg, mr, nv, weights), next);
  cy_loop_end(cg, &l, next);
  memcpy(v, l.out, carried * sizeof *v);
}

V cy_opaque(cy_cg *cg, V p) {
  LLVMTypeRef type = LLVMFunctionType(cg->ptr, &cg->ptr, 1, 0);
  static const char constraints[] = "=r,0";
  V same = LLVMGetInlineAsm(type, "", 0, constraints, sizeof constraints - 1, 0, 0, LLVMInlineAsmDialectATT, 0);
  return LLVMBuildCall2(cg->b, type, same, &p, 1, "");
}

void cy_accumulators_fence(cy_cg *cg, unsigned n, V *v) {
  if (cg->avx512 && cg->registers < 32) { /* tests do so on a CPU that has no such vectors: no register takes one */
    cy_emit_fence(cg);
    return;
  }
  const char *registers = strcmp(cg->arch->isa, "aarch64") == 0 ? "=w," : "=v,";
  LLVMTypeRef types[CY_LOOP_MAX];
  char constraints[CY_LOOP_MAX * 8 + 16], *to = constraints;
  for (unsigned i = 0; i < n; i++)
    types[i] = cg->vf;
  for (unsigned i = 0; i < n; i++)
    to += sprintf(to, "%s", registers);
  for (unsigned i = 0; i < n; i++)
    to += sprintf(to, "%u,", i);
  to += sprintf(to, "~{memory}");
  LLVMTypeRef all = n == 1 ? cg->vf : LLVMStructTypeInContext(cg->ctx, types, n, 0);
  LLVMTypeRef type = LLVMFunctionType(all, types, n, 0);
  V nothing = LLVMGetInlineAsm(type, "", 0, constraints, (size_t)(to - constraints), 1, 0, LLVMInlineAsmDialectATT, 0);
  V same = LLVMBuildCall2(cg->b, type, nothing, v, n, "");
  for (unsigned i = 0; i < n; i++)
    v[i] = n == 1 ? same : LLVMBuildExtractValue(cg->b, same, i, "");
}

/* The cache lines of the next tile that fall to some steps: so many at most. */
static void emit_next(cy_cg *cg, const V *next) {
  for (int i = 0; i < 2; i++)
    for (int line = 0; line < CY_NEXT_LINES; line++)
      cy_prefetch(cg, cy_gepc(cg, next[i], line * 64), i == 1, CY_FIRST_LEVEL);
}

void cy_emit_fence(cy_cg *cg) {
  LLVMTypeRef type = LLVMFunctionType(cg->voidt, NULL, 0, 0);
  static const char clobbers[] = "~{memory}";
  V fence = LLVMGetInlineAsm(type, "", 0, clobbers, sizeof clobbers - 1, 1, 0, LLVMInlineAsmDialectATT, 0);
  LLVMBuildCall2(cg->b, type, fence, NULL, 0, "");
}

/* Some steps at a time, as long as there are enough. For a single vector, whose fma take broadcasts from memory: their
 * addresses had better be no sums of two registers, which LLVM would make of pointers that move on together (Sapphire
 * Rapids: 10 to 20 % of the time). next: as for cy_run_next, or NULL. */
static void emit_stepped_run(cy_cg *cg, unsigned mr, unsigned nv, cy_weights weights, const V *row, V klen, V ldb,
                             V prefetch, const cy_next *next, V *v) {
  unsigned n = mr * nv, carried = n + 1 + (prefetch != NULL), rows = nv == 1 ? mr : 0, all = carried + rows;
  V whole = cy_mulc(cg, cy_div(cg, klen, cy_i64(cg, CY_RUN_STEPS)), CY_RUN_STEPS), now[CY_LOOP_MAX], rest[16];
  cy_loop l;
  memcpy(now, v, carried * sizeof *v);
  memcpy(now + carried, row, rows * sizeof *v);
  if (next) {
    now[all] = next->rows;
    now[all + 1] = next->accumulators;
  }
  cy_loop_begin(cg, &l, cy_i64(cg, 0), whole, cy_i64(cg, CY_RUN_STEPS), now, all + (next ? 2 : 0));
  memcpy(now, l.v, carried * sizeof *v);
  for (int s = 0; s < CY_RUN_STEPS; s++) {
    add_products(cg, mr, nv, weights, now[n], rows ? l.v + carried : row, rows ? cy_i64(cg, s) : cy_addc(cg, l.iv, s),
                 now);
    move_on(cg, n, ldb, prefetch, lines_to_prefetch(cg, mr, nv, weights), now);
    if (!rows)
      cy_accumulators_fence(cg, n, now);
  }
  for (unsigned i = 0; i < rows; i++)
    now[carried + i] = cy_opaque(cg, cy_gepc(cg, l.v[carried + i], CY_RUN_STEPS * 4));
  if (next) {
    emit_next(cg, l.v + all);
    now[all] = cy_gepc(cg, l.v[all], mr * CY_RUN_STEPS * 4);
    now[all + 1] = cy_gep(cg, l.v[all + 1], next->step);
  }
  cy_loop_end(cg, &l, now);
  memcpy(v, l.out, carried * sizeof *v);
  for (unsigned i = 0; i < mr; i++)
    rest[i] = rows ? l.out[carried + i] : cy_gepf(cg, row[i], whole);
  emit_run(cg, mr, nv, weights, rest, cy_sub(cg, klen, whole), ldb, prefetch, v);
}

void cy_run_emit(cy_cg *cg, unsigned mr, unsigned nv, cy_weights weights, const V *row, V klen, V ldb, V prefetch,
                 V *v) {
  if (cg->model.stepped_runs && nv == 1 && mr > 1)
    emit_stepped_run(cg, mr, nv, weights, row, klen, ldb, prefetch, NULL, v);
  else
    emit_run(cg, mr, nv, weights, row, klen, ldb, prefetch, v);
}

void cy_run_next(cy_cg *cg, unsigned mr, unsigned nv, cy_weights weights, const V *row, V klen, V ldb,
                 const cy_next *next, V *v) {
  emit_stepped_run(cg, mr, nv, weights, row, klen, ldb, NULL, next, v);
}

void cy_run_streams(cy_cg *cg, unsigned mr, unsigned nv, cy_weights weights, const V *row, V klen, V ldb, V *v) {
  enum { STREAMS = 4 };
  unsigned n = mr * nv;
  V each = cy_div(cg, klen, cy_i64(cg, STREAMS)), done = cy_mulc(cg, each, STREAMS), rest[16];
  cy_loop l;
  cy_loop_begin(cg, &l, cy_i64(cg, 0), each, cy_i64(cg, 1), v, n + 1);
  memcpy(v, l.v, n * sizeof *v);
  for (int s = 0; s < STREAMS; s++) {
    V k = cy_add(cg, l.iv, cy_mulc(cg, each, s)), at = cy_gep(cg, l.v[n], cy_mul(cg, ldb, cy_mulc(cg, each, s)));
    add_products(cg, mr, nv, weights, at, row, k, v);
  }
  v[n] = cy_gep(cg, l.v[n], ldb);
  cy_loop_end(cg, &l, v);
  memcpy(v, l.out, n * sizeof *v);
  v[n] = cy_gep(cg, l.out[n], cy_mul(cg, ldb, cy_mulc(cg, each, STREAMS - 1)));
  for (unsigned i = 0; i < mr; i++)
    rest[i] = cy_gepf(cg, row[i], done);
  cy_run_emit(cg, mr, nv, weights, rest, cy_sub(cg, klen, done), ldb, NULL, v);
}

void cy_run_steps(cy_cg *cg, unsigned mr, unsigned nv, cy_weights weights, const V *row, int64_t depth, V ldb, V *v) {
  for (int64_t i = 0; i < depth; i++) {
    add_products(cg, mr, nv, weights, v[mr * nv], row, cy_i64(cg, i), v);
    move_on(cg, mr * nv, ldb, NULL, 0, v);
    cy_accumulators_fence(cg, mr * nv, v);
  }
}
