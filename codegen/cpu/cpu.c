/* cpu.c - the row of the x86-64 CPU target: which --target specs are ours, and kernels to machine code.
 *
 * Plain loop kernels go to loops.c; contraction kernels to the generators, through cpu_contract.c. Code for a CPU may
 * use whatever that CPU has, so a model carries a list of features that the loader checks before anything runs: the
 * level of the architecture a CPU implements plus what it has beyond; for `native`, those of this machine that LLVM
 * makes use of.
 */
#define _GNU_SOURCE
#include "codegen/cpu/cpu.h"
#include "codegen/host_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <llvm-c/Target.h>

/* ---- CPUs ---- */

#define LEVEL2 "cx16,popcnt,sahf,sse3,ssse3,sse4.1,sse4.2"
#define LEVEL3 LEVEL2 ",avx,avx2,bmi,bmi2,f16c,fma,lzcnt,movbe,xsave"
#define LEVEL4 LEVEL3 ",avx512f,avx512bw,avx512cd,avx512dq,avx512vl"
#define ICELAKE LEVEL4 ",avx512vnni,avx512vbmi,avx512vbmi2,avx512ifma,avx512bitalg,avx512vpopcntdq,gfni"

typedef struct cpu_row {
  const char *name, *needs;
} cpu_row;
static const cpu_row cpus[] = {
    {"x86-64", ""},
    {"x86-64-v2", LEVEL2},
    {"x86-64-v3", LEVEL3},
    {"x86-64-v4", LEVEL4},
    {"nehalem", LEVEL2},
    {"sandybridge", LEVEL2 ",avx,xsave"},
    {"haswell", LEVEL3},
    {"broadwell", LEVEL3 ",adx"},
    {"skylake", LEVEL3 ",adx"},
    {"alderlake", LEVEL3 ",adx,avxvnni,gfni"},
    {"skylake-avx512", LEVEL4 ",adx"},
    {"cascadelake", LEVEL4 ",adx,avx512vnni"},
    {"cooperlake", LEVEL4 ",adx,avx512vnni,avx512bf16"},
    {"icelake-client", ICELAKE ",adx"},
    {"icelake-server", ICELAKE ",adx"},
    {"tigerlake", ICELAKE ",adx"},
    {"sapphirerapids", ICELAKE ",adx,avx512bf16,avx512fp16,avxvnni"},
    {"emeraldrapids", ICELAKE ",adx,avx512bf16,avx512fp16,avxvnni"},
    {"graniterapids", ICELAKE ",adx,avx512bf16,avx512fp16,avxvnni"},
    {"znver1", LEVEL3 ",adx"},
    {"znver2", LEVEL3 ",adx"},
    {"znver3", LEVEL3 ",adx"},
    {"znver4", ICELAKE ",adx,avx512bf16"},
    {"znver5", ICELAKE ",adx,avx512bf16,avxvnni"},
};

/* Of all that this machine has, the features that LLVM uses by itself in code like ours. */
static const char *const used_features[] = {
    "cx16",       "popcnt",     "sahf",        "sse3",       "ssse3",        "sse4.1",
    "sse4.2",     "avx",        "avx2",        "bmi",        "bmi2",         "f16c",
    "fma",        "lzcnt",      "movbe",       "xsave",      "adx",          "gfni",
    "avxvnni",    "avx512f",    "avx512bw",    "avx512cd",   "avx512dq",     "avx512vl",
    "avx512vnni", "avx512vbmi", "avx512vbmi2", "avx512ifma", "avx512bitalg", "avx512vpopcntdq",
    "avx512bf16", "avx512fp16", "fma4",        "xop",        "tbm"};

static bool has_feature(const char *list, const char *name) {
  size_t n = strlen(name);
  for (const char *p = list; (p = strstr(p, name)); p += n)
    if (p > list && p[-1] == '+' && (p[n] == ',' || p[n] == 0))
      return true;
  return false;
}

static void describe_native(cy_machine *m, const cy_cg *cg) {
  char needs[1024] = "", text[128];
  size_t n = 0;
  for (size_t i = 0; i < sizeof used_features / sizeof used_features[0]; i++)
    if (has_feature(cg->features, used_features[i]))
      n += (size_t)snprintf(needs + n, sizeof needs - n, "%s%s", n ? "," : "", used_features[i]);
  snprintf(text, sizeof text, "native (%s)", cg->cpu);
  m->needs = strdup(needs);
  m->text = strdup(text);
}

static void describe_row(cy_machine *m, const cpu_row *row) {
  m->needs = strdup(row->needs);
  m->text = strdup(row->name);
}

static const cpu_row *find_cpu(const char *name) {
  for (size_t i = 0; i < sizeof cpus / sizeof cpus[0]; i++)
    if (strcmp(cpus[i].name, name) == 0)
      return &cpus[i];
  return NULL;
}

/* A triple such as x86_64-linux-gnu stands for the least CPU of its architecture that is worth compiling for. */
static const char *cpu_of_triple(const char *spec, char **out_error) {
  if (strncmp(spec, "x86_64-", 7) == 0)
    return strstr(spec, "linux") ? "x86-64-v3" : (*out_error = strdup("only Linux is supported"), NULL);
  if (strncmp(spec, "aarch64", 7) == 0 || strncmp(spec, "arm", 3) == 0 || strncmp(spec, "riscv", 5) == 0)
    *out_error = strdup("this architecture is not supported");
  return NULL;
}

static bool match(const char *spec, cy_machine *m, char **out_error) {
  const char *cpu = spec;
  if (strcmp(spec, "native") && !find_cpu(spec) && !(cpu = cpu_of_triple(spec, out_error)))
    return false;
  cy_cg *cg = cy_cg_create(cpu, out_error);
  if (!cg)
    return false;
  m->cpu = strdup(cpu);
  m->state = cg;
  m->flops_per_cycle = cg->fma ? 4.0 * cg->W : 2.0 * cg->W; /* two pipes */
  if (strcmp(cpu, "native") == 0)
    describe_native(m, cg);
  else
    describe_row(m, find_cpu(cpu));
  return true;
}

static void release(cy_machine *m) { cy_cg_destroy(m->state); }

static void forgo_fast(cy_machine *m) { ((cy_cg *)m->state)->no_fast = true; }

/* ---- code ---- */

static void prepare(const cy_machine *m, cy_program *p, cy_kernel_plan *plan) {
  if (cy_kernel_contraction(plan->kernel)->kind != CY_CONTRACT_NONE)
    cy_cpu_contract_prepare(m->state, p, plan);
}

static void emit_kernel(cy_cg *cg, cy_kernel_plan *plan) {
  if (cy_kernel_contraction(plan->kernel)->kind != CY_CONTRACT_NONE) {
    cy_cpu_contract_emit(cg, plan);
    return;
  }
  cy_cpu_emit_loops(cg, plan->kernel, plan->symbol);
  plan->code.nphases = 1;
  snprintf(plan->code.phase[0].symbol, sizeof plan->code.phase[0].symbol, "%s", plan->symbol);
  plan->code.phase[0].tasks = -2;
}

int cy_cpu_finish(cy_cg *cg, const char *passes, cy_code_kind kind, const char *path, char **out_error) {
  LLVMMemoryBufferRef buffer = NULL;
  char *text = NULL;
  if (cy_cg_optimize(cg, passes, out_error))
    return -1;
  if (kind == CY_CODE_LL)
    text = cy_cg_ir_text(cg);
  else if (cy_cg_emit(cg, kind == CY_CODE_ASM ? LLVMAssemblyFile : LLVMObjectFile, &buffer, out_error))
    return -1;
  bool ok =
      cy_file_write(path, text ? text : LLVMGetBufferStart(buffer), text ? strlen(text) : LLVMGetBufferSize(buffer));
  if (!ok && asprintf(out_error, "cannot write '%s': %s", path, strerror(errno)) < 0)
    abort();
  if (buffer)
    LLVMDisposeMemoryBuffer(buffer);
  LLVMDisposeMessage(text);
  return ok ? 0 : -1;
}

static int emit(const cy_machine *m, cy_kernel_plan **plans, uint32_t n, cy_code_kind kind, const char *path,
                char **out_error) {
  cy_cg *cg = cy_cg_create(m->cpu, out_error);
  if (!cg)
    return -1;
  cg->no_fast = ((const cy_cg *)m->state)->no_fast;
  cy_cg_module(cg, plans[0]->symbol);
  for (uint32_t i = 0; i < n; i++) {
    cy_bug_context = plans[i]->symbol;
    emit_kernel(cg, plans[i]);
  }
  int rc = cy_cg_verify(cg, out_error);
  if (rc == 0)
    rc = cy_cpu_finish(cg, CY_PASSES_LOOPS, kind, path, out_error);
  cy_cg_destroy(cg);
  return rc;
}

/* By one or two instructions a vector: conversions from f16 need F16C. */
static bool half_weights(const cy_machine *m, cy_dtype half) {
  return half == CY_BF16 || (half == CY_F16 && m->needs && strstr(m->needs, "f16c"));
}

const cy_target cy_target_cpu = {
    .name = "cpu",
    .specs =
        "native, x86-64-v3, x86-64-v4, a CPU name such as haswell, skylake-avx512, sapphirerapids, znver3, or a triple "
        "such as x86_64-linux-gnu",
    .most_head = 512,
    .half_factors = cy_cpu_half_factors,
    .half_weights = half_weights,
    .match = match,
    .release = release,
    .forgo_fast = forgo_fast,
    .supports = cy_cpu_contract_supports,
    .prepare = prepare,
    .pack = cy_cpu_contract_pack,
    .emit = emit,
    .layer_cycles = cy_cpu_layer_cycles,
    .host = &cy_host_cpu,
};
