/* SPDX-License-Identifier: Apache-2.0 */
/* contract_jit.h - compiles what the contraction generators emit and runs it in this process; for contract_test.c.
 *
 * A `job` is one kernel: a cy_cg, its phases and arguments. job_run() runs the phases in uneven pieces as several
 * workers would, with guarded scratch. LLVM's JIT is used in tests only; the compiler itself writes objects.
 */
#ifndef CONTRACT_JIT_H
#define CONTRACT_JIT_H

#include "codegen/cpu/contract.h"
#include "runtime/cyto_abi.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <llvm-c/Error.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>

#define JOB_SLOTS 64
#define GUARD 64 /* floats around buffers */

typedef struct job {
  cy_cg *cg;
  LLVMOrcLLJITRef jit;
  cy_contract_info info;
  cy_arena *arena; /* of plans */
  cyrt_slot args[JOB_SLOTS];
  int scratch_slot, shared_slot;
  char *scratch, *shared;
  int64_t worker_bytes, shared_bytes;
  int workers;
  cyrt_kernel kernel[CY_CONTRACT_PHASES];
  int64_t tasks[CY_CONTRACT_PHASES];
  double compile_ms;
} job;

/* What a generator plans for a descriptor; how it packs the constant operand, of so many matrices. */
static inline const void *job_plan(job *j, const cy_generator *by, const void *desc) {
  j->arena = j->arena ? j->arena : cy_arena_create();
  return by->plan(j->cg, desc, j->arena);
}
static inline cy_packing job_packing(job *j, const cy_generator *by, const void *desc, int64_t matrices) {
  cy_packing p = {0};
  const void *plan = job_plan(j, by, desc);
  by->pack(j->cg, plan, matrices, j->arena, &p);
  return p;
}
static inline void job_generate(job *j, const cy_generator *by, const void *desc, const char *name) {
  cy_generator_emit(j->cg, by, job_plan(j, by, desc), name, &j->info);
}

/* Of this thread alone: what else runs on the machine does not count. */
static double cpu_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void die(const char *what, const char *text) {
  fprintf(stderr, "%s: %s\n", what, text ? text : "");
  exit(1);
}

static void must(LLVMErrorRef e, const char *what) {
  if (e)
    die(what, LLVMGetErrorMessage(e));
}

static void *job_symbol(job *j, const char *name) {
  LLVMOrcExecutorAddress address = 0;
  must(LLVMOrcLLJITLookup(j->jit, &address, name), name);
  return (void *)(uintptr_t)address;
}

/* Verifies, optimizes and emits cg's module. */
static LLVMMemoryBufferRef job_object(cy_cg *cg) {
  char *error = NULL;
  LLVMMemoryBufferRef object;
  if (cy_cg_verify(cg, &error)) {
    fputs(cy_cg_ir_text(cg), stderr);
    die("verify", error);
  }
  double t0 = cpu_seconds();
  if (cy_cg_optimize(cg, getenv("PASSES"), &error))
    die("optimize", error);
  double t1 = cpu_seconds();
  if (cy_cg_emit(cg, LLVMObjectFile, &object, &error))
    die("emit", error);
  if (getenv("TIMES"))
    printf("  optimize %.1f ms, emit %.1f ms, %zu bytes\n", (t1 - t0) * 1e3, (cpu_seconds() - t1) * 1e3,
           LLVMGetBufferSize(object));
  const char *dump = getenv("CONTRACT_ASM");
  if (dump) {
    LLVMMemoryBufferRef text;
    if (cy_cg_emit(cg, LLVMAssemblyFile, &text, &error))
      die("emit", error);
    char path[512];
    snprintf(path, sizeof path, "%s.%u.ll", dump, cg->W);
    LLVMPrintModuleToFile(cg->module, path, &error);
    snprintf(path, sizeof path, "%s.%u.s", dump, cg->W);
    FILE *f = fopen(path, "w");
    if (f) {
      fwrite(LLVMGetBufferStart(text), 1, LLVMGetBufferSize(text), f);
      fclose(f);
    }
    LLVMDisposeMemoryBuffer(text);
  }
  return object;
}

static void job_link(job *j) {
  LLVMMemoryBufferRef object = job_object(j->cg);
  must(LLVMOrcCreateLLJIT(&j->jit, NULL), "jit");
  must(LLVMOrcLLJITAddObjectFile(j->jit, LLVMOrcLLJITGetMainJITDylib(j->jit), object), "add object");
}

static int64_t job_size(job *j, int64_t known, const char *name, const char *suffix) {
  char full[200];
  if (known >= 0)
    return known;
  snprintf(full, sizeof full, "%s%s", name, suffix);
  return ((int64_t(*)(const cyrt_slot *))job_symbol(j, full))(j->args);
}

static char *guarded(int64_t bytes) {
  char *p = aligned_alloc(64, (size_t)(bytes + GUARD * 8 + 63) / 64 * 64);
  memset(p, 0x7b, (size_t)bytes + GUARD * 8);
  return p + GUARD * 4;
}

/* Is what lies around [p, p + bytes) untouched? */
static int guard_ok(const char *p, int64_t bytes) {
  for (int i = 1; i <= GUARD * 4; i++)
    if (p[-i] != 0x7b || p[bytes + i - 1] != 0x7b)
      return 0;
  return 1;
}

static void guarded_free(char *p) {
  if (p)
    free(p - GUARD * 4);
}

/* After args are set: kernels, tasks, scratch for `workers`. */
static void job_prepare(job *j, const char *name, int workers) {
  j->workers = workers;
  j->worker_bytes = job_size(j, j->info.worker_bytes, name, "_worker_bytes");
  j->shared_bytes = job_size(j, j->info.shared_bytes, name, "_shared_bytes");
  j->scratch = guarded(j->worker_bytes * workers);
  j->shared = guarded(j->shared_bytes);
  j->args[j->scratch_slot].ptr = j->scratch;
  j->args[j->shared_slot].ptr = j->shared;
  for (int p = 0; p < j->info.n_phases; p++) {
    j->kernel[p] = (cyrt_kernel)(uintptr_t)job_symbol(j, j->info.phase[p].name);
    j->tasks[p] = job_size(j, j->info.phase[p].tasks, j->info.phase[p].name, "_tasks");
  }
}

static void job_run(job *j) {
  for (int p = 0; p < j->info.n_phases; p++) {
    int64_t tasks = j->tasks[p], step = j->workers > 1 ? tasks / (j->workers + 2) + 1 : tasks;
    for (int64_t t = 0, w = 0; t < tasks; t += step, w++)
      j->kernel[p](j->args, t, t + step < tasks ? t + step : tasks, w % j->workers);
  }
}

static void job_end(job *j) {
  guarded_free(j->scratch);
  guarded_free(j->shared);
  if (j->jit)
    LLVMOrcDisposeLLJIT(j->jit);
  cy_cg_destroy(j->cg);
  if (j->arena)
    cy_arena_destroy(j->arena);
}

/* ---- the epilogue of all tests: out[sum idx * stride] = acc + bias[last idx] ---- */

typedef struct store {
  int n_idx;
  cy_csize stride[8];
  int out_slot, bias_slot;
  bool planar; /* biases belong to index 1, not to the last one */
  LLVMValueRef out, bias, s[8];
} store;

static inline void store_begin(void *ctx, cy_cg *cg) {
  store *s = ctx;
  s->out = cy_arg_ptr(cg, s->out_slot);
  s->bias = cy_arg_ptr(cg, s->bias_slot);
  for (int i = 0; i < s->n_idx; i++)
    s->s[i] = s->stride[i].slot < 0 ? cy_i64(cg, s->stride[i].value) : cy_arg_size(cg, s->stride[i].slot);
}

static inline LLVMValueRef store_at(const store *s, cy_cg *cg, const LLVMValueRef *idx) {
  LLVMValueRef at = cy_i64(cg, 0);
  for (int i = 0; i < s->n_idx; i++)
    at = cy_add(cg, at, cy_mul(cg, idx[i], s->s[i]));
  return cy_gepf(cg, s->out, at);
}

static inline void store_emit(void *ctx, cy_cg *cg, LLVMValueRef acc, unsigned lanes, const LLVMValueRef *idx) {
  store *s = ctx;
  LLVMValueRef bias = s->planar ? cy_splat(cg, cy_load(cg, cg->f32, cy_gepf(cg, s->bias, idx[1]), 4), lanes)
                                : cy_load(cg, cy_vecf(cg, lanes), cy_gepf(cg, s->bias, idx[s->n_idx - 1]), 4);
  cy_store(cg, LLVMBuildFAdd(cg->b, acc, bias, ""), store_at(s, cg, idx), 4);
}

static inline void store_prefetch(void *ctx, cy_cg *cg, const LLVMValueRef *idx, bool stores) {
  cy_prefetch(cg, store_at(ctx, cg, idx), stores, CY_FIRST_LEVEL);
}

static inline cy_epilogue store_epilogue(store *s) {
  return (cy_epilogue){.begin = store_begin, .emit = store_emit, .prefetch = store_prefetch, .ctx = s, .reads = true};
}

/* ---- buffers ---- */

static uint32_t random_state = 1;
static inline float random_float(void) {
  random_state = random_state * 1664525u + 1013904223u;
  return (float)(int32_t)random_state / 2147483648.0f;
}
static inline float *random_floats(int64_t n) {
  float *p = (float *)(void *)guarded(n * 4);
  for (int64_t i = 0; i < n; i++)
    p[i] = random_float();
  return p;
}
static inline float *nan_floats(int64_t n) {
  float *p = (float *)(void *)guarded(n * 4);
  for (int64_t i = 0; i < n; i++)
    p[i] = NAN;
  return p;
}

#endif
