/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.c - the row of the CPU target: which --target specs are ours, and kernels to machine code.
 *
 * Plain loop kernels go to loops.c; contraction kernels to the generators, through cpu_contract.c. Code for a CPU may
 * use whatever that CPU has (machine.def), so a model carries a list of features that the loader checks before anything
 * runs; for `native`, those of this machine that LLVM makes use of.
 */
#define _GNU_SOURCE
#include "codegen/cpu/cpu.h"
#include "codegen/host_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <llvm-c/Support.h>
#include <llvm-c/Target.h>

/* ---- CPUs ---- */

/* A triple such as x86_64-linux-gnu stands for the least CPU of its architecture that is worth compiling for, and so does
 * the name of a system that there is only one architecture of. A word such as arm64 is the architecture's least CPU. */
static const char *cpu_of_words(const char *spec, char **out_error) {
  bool known = false;
  for (const cy_arch *const *a = cy_arches; *a; a++) {
    size_t all = strlen(spec), n = all > strlen((*a)->suffix) ? all - strlen((*a)->suffix) : 0;
    if (cy_arch_is_triple(*a, spec) || (*(*a)->suffix && strcmp(spec, (*a)->suffix + 1) == 0))
      return (*a)->default_cpu;
    if (strcmp(spec + n, (*a)->suffix) == 0 && cy_arch_named(*a, spec, n))
      return (*a)->base_cpu;
    known |= cy_arch_named(*a, spec, strcspn(spec, "-"));
  }
  static const char *const systems[] = {"android", "macos", "darwin", "apple", "ios", "ohos", "freebsd", "wasm"};
  static const char *const arches[] = {"arm", "riscv", "ppc", "powerpc", "s390", "mips", "loongarch", "i386", "i686"};
  for (size_t i = 0; i < sizeof systems / sizeof *systems; i++)
    known |= strstr(spec, systems[i]) != NULL;
  if (known)
    *out_error = strdup("only Linux with glibc or musl and, on x86-64, Windows are supported");
  for (size_t i = 0; i < sizeof arches / sizeof *arches && !*out_error; i++)
    if (strncmp(spec, arches[i], strlen(arches[i])) == 0)
      *out_error = strdup("this architecture is not supported");
  return NULL;
}

static bool match(const char *spec, cy_machine *m, char **out_error) {
  const char *cpu = cy_cpu_arch(spec) ? spec : cpu_of_words(spec, out_error);
  if (!cpu)
    return false;
  const cy_arch *arch = cy_cpu_arch(cpu);
  if (!cy_arch_carried(arch)) {
    if (asprintf(out_error, "this cytoc was built without a C compiler for %s: install %s, build it again", arch->name,
                 arch->compiler) < 0)
      cy_no_memory();
    return false;
  }
  cy_cg *cg = cy_cg_create(cpu, out_error);
  if (!cg)
    return false;
  m->cpu = strdup(cpu);
  m->arch = arch;
  m->state = cg;
  m->caps.flops_per_cycle = 2.0 * cg->W * (cg->fma ? cg->model.fmas : 1);
  m->caps.cached_bytes = cg->model.last_level;
  m->caps.bytes_per_cycle_cached = cg->model.l2_bytes_rate;
  m->caps.bytes_per_cycle_memory = cg->model.floor_bytes;
  m->caps.tile_columns = 2 * cg->W;
  m->caps.rounding_margin = cg->model.rounding_margin;
  cy_cost_caps(cg, &m->caps);
  m->caps.f16_weights = cy_cg_has(cg, "f16c") || cy_cg_has(cg, "neon"); /* widened by an instruction or two a vector */
  m->caps.bf16_weights = true;
  m->needs = strdup(cg->has);
  if (asprintf(&m->text, cy_cpu_base(cpu) ? "%s%s" : "native (%s%s)", cg->cpu, arch->suffix) < 0)
    cy_no_memory();
  return true;
}

static void release(cy_machine *m) { cy_cg_destroy(m->state); }

static void choose(cy_machine *m, cy_choices *choices) {
  cy_cg *cg = m->state;
  cg->choices = choices;
  cg->forms_off = choices ? cy_forms_off(choices) : 0;
}

static void strict_fp(cy_machine *m) { ((cy_cg *)m->state)->strict_fp = true; }

/* ---- code ---- */

static void prepare(const cy_machine *m, cy_program *p, cy_kernel_plan *plan) {
  if (cy_kernel_contraction(plan->kernel)->kind != CY_CONTRACT_NONE)
    cy_cpu_contract_prepare(m, p, plan);
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
  cy_share_splats(cg);
  if (kind == CY_CODE_LL)
    text = cy_cg_ir_text(cg);
  else if (cy_cg_emit(cg, kind == CY_CODE_ASM ? LLVMAssemblyFile : LLVMObjectFile, &buffer, out_error))
    return -1;
  bool ok =
      cy_file_write(path, text ? text : LLVMGetBufferStart(buffer), text ? strlen(text) : LLVMGetBufferSize(buffer));
  if (!ok && asprintf(out_error, CY_CANNOT_WRITE "'%s': %s", path, strerror(errno)) < 0)
    cy_no_memory();
  if (buffer)
    LLVMDisposeMemoryBuffer(buffer);
  LLVMDisposeMessage(text);
  return ok ? 0 : -1;
}

/* LLVM says of every function how large its stack frame is when it has chosen its instructions and registers: that counts
 * functions, which nothing else in its C interface does. Errors are what they are without a handler. */
static void count_function(LLVMDiagnosticInfoRef info, void *parts) {
  LLVMDiagnosticSeverity severity = LLVMGetDiagInfoSeverity(info);
  if (severity != LLVMDSRemark && severity != LLVMDSError)
    return;
  char *text = LLVMGetDiagInfoDescription(info);
  if (!text)
    cy_no_memory();
  if (severity == LLVMDSError) {
    fprintf(stderr, "error: %s\n", text);
    exit(1);
  }
  if (strstr(text, "stack bytes in function"))
    ++*(_Atomic int64_t *)parts;
  LLVMDisposeMessage(text);
}

/* Once in a process: emit() is called in one of its own. */
static void count_functions(const cy_machine *m, cy_cg *cg) {
  static const char *const words[] = {"cytoc", "-pass-remarks-analysis=prologepilog"};
  int64_t n = 0;
  for (LLVMValueRef f = LLVMGetFirstFunction(cg->module); f; f = LLVMGetNextFunction(f))
    n += !LLVMIsDeclaration(f);
  LLVMParseCommandLineOptions(2, words, NULL);
  LLVMContextSetDiagnosticHandler(cg->ctx, count_function, m->parts);
  m->parts[1] = n;
}

static int emit(const cy_machine *m, cy_kernel_plan **plans, uint32_t n, cy_code_kind kind, const char *path,
                char **out_error) {
  cy_cg *cg = cy_cg_create(m->cpu, out_error);
  if (!cg)
    return -1;
  cg->strict_fp = ((const cy_cg *)m->state)->strict_fp;
  cg->choices = ((const cy_cg *)m->state)->choices;
  cg->forms_off = ((const cy_cg *)m->state)->forms_off;
  cg->prefix = m->prefix;
  cg->fast_codegen = m->fast_codegen;
  cy_cg_module(cg, plans[0]->symbol);
  for (uint32_t i = 0; i < n; i++) {
    cy_bug_context = plans[i]->symbol;
    emit_kernel(cg, plans[i]);
  }
  int rc = cy_cg_verify(cg, out_error);
  if (rc == 0 && m->parts)
    count_functions(m, cg);
  if (rc == 0)
    rc = cy_cpu_finish(cg, CY_PASSES_LOOPS, kind, path, out_error);
  cy_cg_destroy(cg);
  return rc;
}

static const char names[] =
#define CPU(name, ...) " " name
#include "machine.def"
    ;

const cy_target cy_target_cpu = {
    .name = "cpu",
    .specs = "native, x86-64-v3, x86-64-v4, aarch64 (arm64), a CPU name such as haswell, sapphirerapids, znver3, "
             "cortex-a76 (cytoc --version has all), "
             "each with -windows behind it for Windows on x86-64, or a triple such as x86_64-linux-gnu",
    .names = names,
    .caps = {.max_head = 512,
             .splits_rows = true,
             .blocks_round = true,
             .words = true,
             .supports = cy_cpu_contract_supports,
             .half_factors = cy_cpu_half_factors,
             .int_rows = cy_cpu_int_rows,
             .layer_cycles = cy_cpu_layer_cycles,
             .conv_cycles = cy_cpu_conv_cycles},
    .match = match,
    .try_names = cy_cpu_try_names,
    .release = release,
    .choose = choose,
    .strict_fp = strict_fp,
    .share_key = cy_cpu_contract_share_key,
    .prepare = prepare,
    .pack = cy_cpu_contract_pack,
    .panels_of = cy_cpu_panels_of,
    .emit = emit,
    .host = &cy_host_cpu,
};
