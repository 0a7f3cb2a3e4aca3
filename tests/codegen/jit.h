/* SPDX-License-Identifier: Apache-2.0 */
/* jit.h - runs emitted kernels inside a test, and compares them with the interpreter.
 *
 * A harness owns a cy_cg and an LLJIT. jit_check() fills the kernel's arguments with random numbers, runs it compiled
 * (its tasks in uneven pieces, by two workers) and interpreted, and compares every written argument and the sentinels
 * around it. Test programs are single files, so everything is here.
 */
#ifndef CY_TESTS_JIT_H
#define CY_TESTS_JIT_H

#include "codegen/cpu/loops/loops.h"
#include "runtime/cyto_abi.h"
#include "tests/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>

enum { JIT_MAX_ARGS = 12, JIT_GUARD = 64, JIT_WORKERS = 2 };

typedef struct jit {
  cy_cg *cg;
  LLVMOrcLLJITRef lljit;
  int serial;
  uint64_t seed;
} jit;

static inline void jit_die(const char *what, char *message) {
  fprintf(stderr, "%s: %s\n", what, message ? message : "?");
  exit(2);
}

static inline void jit_ok(const char *what, LLVMErrorRef e) {
  if (e)
    jit_die(what, LLVMGetErrorMessage(e));
}

static inline jit *jit_create(const char *cpu) {
  jit *j = calloc(1, sizeof *j);
  char *error = NULL;
  j->cg = cy_cg_create(cpu, &error);
  if (!j->cg)
    jit_die("cpu", error);
  j->seed = 1;
  jit_ok("lljit", LLVMOrcCreateLLJIT(&j->lljit, NULL));
  LLVMOrcDefinitionGeneratorRef process;
  char prefix = LLVMOrcLLJITGetGlobalPrefix(j->lljit);
  jit_ok("process symbols", LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess(&process, prefix, NULL, NULL));
  LLVMOrcJITDylibAddGenerator(LLVMOrcLLJITGetMainJITDylib(j->lljit), process);
  return j;
}

static inline void jit_destroy(jit *j) {
  cy_cg_destroy(j->cg);
  jit_ok("dispose", LLVMOrcDisposeLLJIT(j->lljit));
  free(j);
}

/* Verifies, optimises and loads the module in j->cg; the address of `symbol`. CY_JIT_DUMP=1 prints the IR. */
static inline void *jit_load(jit *j, const char *symbol) {
  char *error = NULL;
  LLVMMemoryBufferRef object;
  if (cy_cg_verify(j->cg, &error)) {
    fputs(cy_cg_ir_text(j->cg), stderr);
    jit_die("verify", error);
  }
  if (cy_cg_optimize(j->cg, CY_PASSES_LOOPS, &error))
    jit_die("optimize", error);
  if (getenv("CY_JIT_DUMP"))
    fputs(cy_cg_ir_text(j->cg), stderr);
  /* hidden symbols cannot be looked up */
  LLVMSetVisibility(LLVMGetNamedFunction(j->cg->module, symbol), LLVMDefaultVisibility);
  if (getenv("CY_JIT_ASM") && !cy_cg_emit(j->cg, LLVMAssemblyFile, &object, &error))
    fwrite(LLVMGetBufferStart(object), 1, LLVMGetBufferSize(object), stderr);
  if (cy_cg_emit(j->cg, LLVMObjectFile, &object, &error))
    jit_die("emit", error);
  jit_ok("add", LLVMOrcLLJITAddObjectFile(j->lljit, LLVMOrcLLJITGetMainJITDylib(j->lljit), object));
  LLVMOrcExecutorAddress address;
  jit_ok("lookup", LLVMOrcLLJITLookup(j->lljit, &address, symbol));
  return (void *)(uintptr_t)address;
}

static inline cyrt_kernel jit_kernel(jit *j, cy_kernel *k) {
  char symbol[80];
  snprintf(symbol, sizeof symbol, "kernel%d", j->serial++);
  cy_cg_module(j->cg, symbol);
  cy_cpu_emit_loops(j->cg, k, symbol);
  return (cyrt_kernel)(uintptr_t)jit_load(j, symbol);
}

/* ---- data ---- */

static inline uint64_t jit_random(jit *j) {
  j->seed = j->seed * 6364136223846793005u + 1442695040888963407u;
  return j->seed >> 33;
}

typedef struct jit_case {
  const char *what;
  int64_t elems[JIT_MAX_ARGS]; /* of every argument but scratch */
  const int64_t *syms;
  double lo, hi; /* range of random floats; both 0: -2 .. 2. Of integers too when `ints` */
  bool ints;
  double rtol, atol;
} jit_case;

static inline size_t jit_bytes(cy_dtype t, int64_t elems) {
  return ((size_t)elems * (size_t)cy_dtype_of(t)->bits + 7) / 8;
}

static inline void jit_fill(jit *j, void *at, cy_dtype t, int64_t n, const jit_case *c) {
  double lo = c->lo, hi = c->hi;
  if (lo == 0 && hi == 0) {
    lo = -2;
    hi = 2;
  }
  for (int64_t i = 0; i < n; i++) {
    cy_scalar s = {.u = jit_random(j) << 33 ^ jit_random(j)};
    if (t == CY_BOOL)
      s.u &= 1;
    else if (cy_dtype_is_float(t))
      s.f = lo + (hi - lo) * (double)jit_random(j) / 2147483648.0;
    else if (c->ints)
      s.i = (int64_t)(lo + (hi - lo) * (double)jit_random(j) / 2147483648.0);
    cy_scalar_store(at, t, (uint64_t)i, s);
  }
}

static inline bool jit_same(cy_dtype t, cy_scalar a, cy_scalar b, const jit_case *c) {
  if (!cy_dtype_is_float(t))
    return a.u == b.u;
  if (isnan(a.f) || isnan(b.f))
    return isnan(a.f) && isnan(b.f);
  double rtol = c->rtol        ? c->rtol
                : t == CY_F64  ? 1e-13
                : t == CY_F32  ? 2e-6
                : t == CY_F16  ? 1e-3
                : t == CY_BF16 ? 8e-3
                               : 0.13;
  return a.f == b.f || fabs(a.f - b.f) <= c->atol + rtol * fabs(b.f);
}

static inline int jit_compare(const jit_case *c, uint32_t arg, cy_dtype t, const void *got, const void *want) {
  int bad = 0;
  for (int64_t i = 0; i < c->elems[arg]; i++) {
    cy_scalar a = cy_scalar_load(got, t, (uint64_t)i), b = cy_scalar_load(want, t, (uint64_t)i);
    if (!jit_same(t, a, b, c) && bad++ < 3) {
      if (cy_dtype_is_float(t))
        fprintf(stderr, "%s: a%u[%lld] is %.9g, not %.9g\n", c->what, arg, (long long)i, a.f, b.f);
      else
        fprintf(stderr, "%s: a%u[%lld] is %lld, not %lld\n", c->what, arg, (long long)i, (long long)a.i,
                (long long)b.i);
    }
  }
  return bad;
}

/* Wrong elements of the compiled kernel, broken sentinels included. */
static inline int jit_check(jit *j, cy_kernel *k, const jit_case *c) {
  const cy_karg_info *args;
  const cy_dim *dims;
  cy_graph *g = cy_kernel_graph(k);
  uint32_t n = cy_kernel_args(k, &args), nd = cy_kernel_dims(k, &dims);
  uint8_t *got[JIT_MAX_ARGS], *want[JIT_MAX_ARGS];
  cyrt_slot slots[JIT_MAX_ARGS + 32];
  void *oracle[JIT_MAX_ARGS];
  char text[200] = "";
  int bad = 0;
  if (!cy_kernel_verify(k, text, sizeof text)) {
    fprintf(stderr, "%s: %s\n", c->what, text);
    return 1;
  }
  size_t size[JIT_MAX_ARGS];
  for (uint32_t i = 0; i < n; i++) {
    bool scratch = args[i].kind == CY_ARG_SCRATCH;
    int64_t elems = scratch ? JIT_WORKERS * cy_dim_eval(g, args[i].elems, c->syms) : c->elems[i];
    size[i] = jit_bytes(args[i].dtype, elems);
    got[i] = malloc(size[i] + 2 * JIT_GUARD);
    want[i] = malloc(size[i] + 2 * JIT_GUARD);
    memset(got[i], 0x5a, size[i] + 2 * JIT_GUARD);
    jit_fill(j, got[i] + JIT_GUARD, args[i].dtype, elems, c);
    memcpy(want[i], got[i], size[i] + 2 * JIT_GUARD);
    slots[i].ptr = got[i] + JIT_GUARD;
    oracle[i] = want[i] + JIT_GUARD;
  }
  for (uint32_t i = 0; i < nd; i++)
    slots[n + i].size = cy_dim_eval(g, dims[i], c->syms);
  int64_t tasks = cy_kernel_tasks_eval(k, c->syms), a = tasks / 3, b = tasks - tasks / 5;
  cyrt_kernel run = jit_kernel(j, k);
  run(slots, 0, a, 0);
  run(slots, b, tasks, 1);
  run(slots, a, b, 1);
  cy_kernel_interpret(k, oracle, c->syms, 0, tasks);
  for (uint32_t i = 0; i < n; i++) {
    if (args[i].kind == CY_ARG_WRITE)
      bad += jit_compare(c, i, args[i].dtype, got[i] + JIT_GUARD, want[i] + JIT_GUARD);
    if (memcmp(got[i], want[i], JIT_GUARD) ||
        memcmp(got[i] + JIT_GUARD + size[i], want[i] + JIT_GUARD + size[i], JIT_GUARD)) {
      fprintf(stderr, "%s: wrote outside of a%u\n", c->what, i);
      bad++;
    }
    free(got[i]);
    free(want[i]);
  }
  if (bad)
    cy_kernel_print(k, stderr);
  return bad;
}

/* Makes the graph and the harness that the tests share, and runs the tests. */
static inline int jit_main(int argc, char **argv, const check_test *tests, int count, cy_graph **out_g, jit **out_j) {
  cy_diag_sink *diag = cy_diag_create();
  *out_g = cy_graph_create(diag, "test");
  *out_j = jit_create("native");
  int failed = check_main(argc, argv, tests, count);
  jit_destroy(*out_j);
  cy_graph_destroy(*out_g);
  cy_diag_destroy(diag);
  return failed;
}

#endif
