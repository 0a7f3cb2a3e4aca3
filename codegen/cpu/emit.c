/* SPDX-License-Identifier: Apache-2.0 */
/* emit.c - the LLVM helper layer of the CPU target; the contract is in emit.h.
 *
 * Comes in: a CPU name, then calls of the generators. Goes out: an object file, assembly or IR text in memory.
 * To know before editing: every llvm-c header used must be included (an implicit prototype truncates pointers).
 * Function attributes carry the CPU, because the optimizer reads them there and not from the target machine. The vector
 * width is chosen here and `min-legal-vector-width` is left out, so that 512-bit vectors stay whole.
 */
#include "emit.h"
#include "ir/ir.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <llvm-c/Analysis.h>
#include <llvm-c/Comdat.h>
#include <llvm-c/DebugInfo.h>
#include <llvm-c/Error.h>
#include <llvm-c/Target.h>
#include <llvm-c/Transforms/PassBuilder.h>

static pthread_once_t targets_once = PTHREAD_ONCE_INIT;

/* That of other architectures is weak: an LLVM without them, or a program that leaves them out, makes no code for them. */
#define TARGET_INIT(name, weak)                                                                                        \
  weak void LLVMInitialize##name##TargetInfo(void);                                                                    \
  weak void LLVMInitialize##name##Target(void);                                                                        \
  weak void LLVMInitialize##name##TargetMC(void);                                                                      \
  weak void LLVMInitialize##name##AsmPrinter(void);                                                                    \
  weak void LLVMInitialize##name##AsmParser(void);                                                                     \
  static void init_##name(void) {                                                                                      \
    void (*const init[])(void) = {LLVMInitialize##name##TargetInfo, LLVMInitialize##name##Target,                      \
                                  LLVMInitialize##name##TargetMC, LLVMInitialize##name##AsmPrinter,                    \
                                  LLVMInitialize##name##AsmParser};                                                    \
    for (int i = 0; i < 5 && init[i]; i++)                                                                             \
      init[i]();                                                                                                       \
  }
#define WEAK __attribute__((weak))
#ifdef __aarch64__
TARGET_INIT(X86, WEAK)
TARGET_INIT(AArch64, )
#else
TARGET_INIT(X86, )
TARGET_INIT(AArch64, WEAK)
#endif

/* What LLVM and the library of C++ do without memory is to abort; both take a function that is called instead, of which
 * LLVM's interface for C says nothing. */
#define WEAK_AS(symbol) __asm__(symbol) __attribute__((weak))
extern void (*new_handler_set(void (*handler)(void)))(void) WEAK_AS("_ZSt15set_new_handlerPFvvE");
extern void llvm_no_memory_set(void (*handler)(void *, const char *, bool), void *data)
    WEAK_AS("_ZN4llvm31install_bad_alloc_error_handlerEPFvPvPKcbES0_");

static void llvm_no_memory(void *data, const char *reason, bool diagnose) {
  (void)data, (void)reason, (void)diagnose;
  cy_no_memory();
}

static void targets_init(void) {
  if (new_handler_set)
    new_handler_set(cy_no_memory);
  if (llvm_no_memory_set)
    llvm_no_memory_set(llvm_no_memory, NULL);
  init_X86();
  init_AArch64();
}

static void set_error(char **out_error, const char *text) {
  if (out_error)
    *out_error = strdup(text);
}

/* What LLVM says where it failed; -1. */
static int take_message(char **out_error, char *message) {
  set_error(out_error, message);
  LLVMDisposeMessage(message);
  return -1;
}

/* ---- the CPU ---- */

static void cpu_describe(cy_cg *cg) {
  cg->avx512 = cy_cg_has(cg, "avx512f") && cy_cg_has(cg, "avx512vl");
  cg->avx2 = cg->avx512 || cy_cg_has(cg, "avx2");
  cg->vnni = cy_cg_has(cg, cg->avx512 ? "avx512vnni" : "avxvnni") || cy_cg_has(cg, "dotprod");
  cg->sdot = cg->vnni && cy_cg_has(cg, "dotprod") && !cy_cg_has(cg, "i8mm");
  bool tiles = cg->avx512 && cy_cg_has(cg, "amx-tile");
  cg->amx_int8 = tiles && cg->vnni && cy_cg_has(cg, "amx-int8");
  cg->amx_bf16 = tiles && cy_cg_has(cg, "amx-bf16");
  cg->fma = cy_cg_has(cg, "fma") || cy_cg_has(cg, "neon");
  cg->W = cy_cpu_lanes(cg->has);
  cg->registers = cg->avx512 || cy_cg_has(cg, "neon") ? 32 : 16;
  cy_cpu_model_of(cg->cpu, cg->has, cg->W, &cg->model);
  cg->bf16_dot = cg->avx512 && cy_cg_has(cg, "avx512bf16") && cg->model.bf16_dot;
  cg->gathers = cg->avx512 && cg->model.gathers;
}

static void types_init(cy_cg *cg) {
  LLVMContextRef c = cg->ctx;
  cg->i1 = LLVMInt1TypeInContext(c);
  cg->i8 = LLVMInt8TypeInContext(c);
  cg->i16 = LLVMInt16TypeInContext(c);
  cg->i32 = LLVMInt32TypeInContext(c);
  cg->i64 = LLVMInt64TypeInContext(c);
  cg->f16 = LLVMHalfTypeInContext(c);
  cg->bf16 = LLVMBFloatTypeInContext(c);
  cg->f32 = LLVMFloatTypeInContext(c);
  cg->f64 = LLVMDoubleTypeInContext(c);
  cg->ptr = LLVMPointerTypeInContext(c, 0);
  cg->voidt = LLVMVoidTypeInContext(c);
  cg->vf = LLVMVectorType(cg->f32, cg->W);
  cg->vi = LLVMVectorType(cg->i32, cg->W);
}

/* "a,b" as "+a,+b"; free() it. */
static char *with_plus(const char *list) {
  char *text = malloc(2 * strlen(list) + 2), *to = text;
  if (!text)
    cy_no_memory();
  for (bool first = true; *list; first = *list++ == ',') {
    if (first)
      *to++ = '+';
    *to++ = *list;
  }
  *to = 0;
  return text;
}

/* "native" becomes the name of this CPU and its full feature list: names alone do not tell what a hypervisor masks. */
static void cpu_resolve(cy_cg *cg, const char *cpu) {
  const char *listed = cy_cpu_features(cpu);
  char *name = listed ? NULL : LLVMGetHostCPUName(), *own = listed ? NULL : LLVMGetHostCPUFeatures();
  cg->arch = cy_cpu_arch(cpu);
  cg->cpu = strdup(name ? name : cy_cpu_base(cpu));
  cg->has = listed ? strdup(listed) : cy_cpu_features_on(own);
  cg->features = cg->arch->lists_features ? with_plus(cg->has) : strdup(own ? own : "");
  LLVMDisposeMessage(name);
  LLVMDisposeMessage(own);
}

cy_cg *cy_cg_create(const char *cpu, char **out_error) {
  if (!cy_cpu_arch(cpu)) {
    set_error(out_error, "unknown CPU");
    return NULL;
  }
  pthread_once(&targets_once, targets_init);
  char *message = NULL;
  LLVMTargetRef target;
  if (LLVMGetTargetFromTriple(cy_cpu_arch(cpu)->triple, &target, &message)) {
    take_message(out_error, message);
    return NULL;
  }
  cy_cg *cg = calloc(1, sizeof *cg);
  cg->target = target;
  cpu_resolve(cg, cpu);
  cpu_describe(cg);
  cg->ctx = LLVMContextCreate();
  cg->b = LLVMCreateBuilderInContext(cg->ctx);
  types_init(cg);
  return cg;
}

/* Where features are listed, the CPU's name would bring others that nobody checks. */
static const char *llvm_cpu(const cy_cg *cg) { return cg->arch->lists_features ? "generic" : cg->cpu; }

/* Takes as long as code for a small kernel: made when there will be code. */
static void machine_create(cy_cg *cg) {
  LLVMCodeGenOptLevel level = cg->fast_codegen ? LLVMCodeGenLevelNone
                              : cg->straight   ? LLVMCodeGenLevelLess
                                               : LLVMCodeGenLevelDefault;
  cg->tm = LLVMCreateTargetMachine(cg->target, cg->arch->triple, llvm_cpu(cg), cg->features, level, LLVMRelocPIC,
                                   LLVMCodeModelDefault);
}

void cy_cg_destroy(cy_cg *cg) {
  if (!cg)
    return;
  LLVMDisposeBuilder(cg->b);
  if (cg->module)
    LLVMDisposeModule(cg->module);
  LLVMContextDispose(cg->ctx);
  if (cg->tm)
    LLVMDisposeTargetMachine(cg->tm);
  free(cg->cpu);
  free(cg->features);
  free(cg->has);
  free(cg);
}

void cy_cg_module(cy_cg *cg, const char *name) {
  if (!cg->tm)
    machine_create(cg);
  if (cg->module)
    LLVMDisposeModule(cg->module);
  cg->module = LLVMModuleCreateWithNameInContext(name, cg->ctx);
  char *triple = LLVMGetTargetMachineTriple(cg->tm);
  LLVMSetTarget(cg->module, triple);
  LLVMDisposeMessage(triple);
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(cg->tm);
  LLVMSetModuleDataLayout(cg->module, layout);
  LLVMDisposeTargetData(layout);
}

int cy_cg_verify(cy_cg *cg, char **out_error) {
  char *message = NULL;
  if (LLVMVerifyModule(cg->module, LLVMReturnStatusAction, &message))
    return take_message(out_error, message);
  LLVMDisposeMessage(message);
  return 0;
}

int cy_cg_optimize(cy_cg *cg, const char *passes, char **out_error) {
  if (!passes)
    passes = CY_PASSES_LIGHT;
  if (!*passes)
    return 0;
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  LLVMPassBuilderOptionsSetLoopUnrolling(options, 0);
  LLVMErrorRef error = LLVMRunPasses(cg->module, passes, cg->tm, options);
  LLVMDisposePassBuilderOptions(options);
  if (!error)
    return 0;
  char *message = LLVMGetErrorMessage(error);
  set_error(out_error, message);
  LLVMDisposeErrorMessage(message);
  return -1;
}

int cy_cg_emit(cy_cg *cg, LLVMCodeGenFileType type, LLVMMemoryBufferRef *out_buffer, char **out_error) {
  char *message = NULL;
  bool failed = LLVMTargetMachineEmitToMemoryBuffer(cg->tm, cg->module, type, &message, out_buffer);
  return failed ? take_message(out_error, message) : 0;
}

char *cy_cg_ir_text(cy_cg *cg) { return LLVMPrintModuleToString(cg->module); }

/* ---- functions ---- */

static void attr_text(cy_cg *cg, LLVMValueRef fn, const char *key, const char *value) {
  LLVMAttributeRef a = LLVMCreateStringAttribute(cg->ctx, key, (unsigned)strlen(key), value, (unsigned)strlen(value));
  LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex, a);
}

static void attr_number(cy_cg *cg, LLVMValueRef fn, unsigned index, const char *name, uint64_t value) {
  unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
  LLVMAddAttributeAtIndex(fn, index, LLVMCreateEnumAttribute(cg->ctx, kind, value));
}

static void attr_enum(cy_cg *cg, LLVMValueRef fn, unsigned index, const char *name) {
  attr_number(cg, fn, index, name, 0);
}

/* Two models in one link may be for different CPUs: their names differ. */
static void shared_name(const cy_cg *cg, const char *name, char out[256]) {
  snprintf(out, 256, "%s%s%s", cg->prefix ? cg->prefix : "", cg->prefix ? "_" : "", name);
}

LLVMValueRef cy_shared_find(cy_cg *cg, const char *name) {
  char full[256];
  shared_name(cg, name, full);
  LLVMValueRef fn = LLVMGetNamedFunction(cg->module, full);
  return fn ? fn : LLVMGetNamedGlobal(cg->module, full);
}

static void share(cy_cg *cg, LLVMValueRef global) {
  size_t n;
  if (!cg->prefix) {
    LLVMSetLinkage(global, LLVMInternalLinkage);
    return;
  }
  LLVMSetLinkage(global, LLVMLinkOnceODRLinkage);
  LLVMSetVisibility(global, LLVMHiddenVisibility);
  LLVMSetComdat(global, LLVMGetOrInsertComdat(cg->module, LLVMGetValueName2(global, &n)));
}

LLVMValueRef cy_shared_constant(cy_cg *cg, const char *name, LLVMValueRef contents) {
  char full[256];
  shared_name(cg, name, full);
  LLVMValueRef g = LLVMAddGlobal(cg->module, LLVMTypeOf(contents), full);
  LLVMSetInitializer(g, contents);
  LLVMSetGlobalConstant(g, 1);
  LLVMSetAlignment(g, 64);
  share(cg, g);
  return g;
}

LLVMValueRef cy_shared_opaque(cy_cg *cg, const char *name, LLVMValueRef contents) {
  LLVMValueRef g = cy_shared_constant(cg, name, contents);
  if (LLVMGetLinkage(g) == LLVMLinkOnceODRLinkage)
    LLVMSetLinkage(g, LLVMLinkOnceAnyLinkage);
  return g;
}

LLVMValueRef cy_fn_begin(cy_cg *cg, const char *name, LLVMTypeRef ret, const LLVMTypeRef *params, unsigned n,
                         int flags) {
  LLVMTypeRef type = LLVMFunctionType(ret, (LLVMTypeRef *)params, n, 0);
  char full[256];
  if (flags & CY_FN_SHARED)
    shared_name(cg, name, full);
  LLVMValueRef fn = LLVMAddFunction(cg->module, flags & CY_FN_SHARED ? full : name, type);
  attr_text(cg, fn, "target-cpu", llvm_cpu(cg));
  attr_text(cg, fn, "target-features", cg->features);
  if (cg->arch->lists_features && strcmp(cg->cpu, cg->arch->base_cpu))
    attr_text(cg, fn, "tune-cpu", cg->cpu);
  if (cg->avx512)
    attr_text(cg, fn, "prefer-vector-width", "512");
  attr_enum(cg, fn, LLVMAttributeFunctionIndex, "nounwind");
  if (cg->arch->unwinds)
    attr_number(cg, fn, LLVMAttributeFunctionIndex, "uwtable", 1);
  /* Frames beyond a page touch each of theirs, the guard page, too; on Windows by a function of the runtime. */
  attr_text(cg, fn, "probe-stack", cg->arch->format == CY_COFF ? "___chkstk_ms" : "inline-asm");
  if (flags & CY_FN_SHARED)
    share(cg, fn);
  else if (flags & CY_FN_INTERNAL)
    LLVMSetLinkage(fn, LLVMInternalLinkage);
  else
    LLVMSetVisibility(fn, LLVMHiddenVisibility);
  if (flags & CY_FN_NOINLINE)
    attr_enum(cg, fn, LLVMAttributeFunctionIndex, "noinline");
  for (int i = 0; i < 2 && flags & CY_FN_SMALL; i++)
    attr_enum(cg, fn, LLVMAttributeFunctionIndex, i ? "minsize" : "optsize");
  if (flags & CY_FN_NOALIAS)
    for (unsigned i = 0; i < n; i++)
      if (params[i] == cg->ptr)
        attr_enum(cg, fn, i + 1, "noalias");
  LLVMPositionBuilderAtEnd(cg->b, LLVMAppendBasicBlockInContext(cg->ctx, fn, ""));
  cg->fn = fn;
  cg->args = cg->begin = cg->end = cg->worker = NULL;
  return fn;
}

LLVMValueRef cy_kernel_begin(cy_cg *cg, const char *name, int flags) {
  LLVMTypeRef params[4] = {cg->ptr, cg->i64, cg->i64, cg->i64};
  LLVMValueRef fn = cy_fn_begin(cg, name, cg->voidt, params, 4, flags);
  attr_enum(cg, fn, 1, "noalias");
  attr_enum(cg, fn, 1, "readonly");
  cg->args = LLVMGetParam(fn, 0);
  cg->begin = LLVMGetParam(fn, 1);
  cg->end = LLVMGetParam(fn, 2);
  cg->worker = LLVMGetParam(fn, 3);
  return fn;
}

void cy_fn_end(cy_cg *cg, LLVMValueRef ret) {
  if (ret)
    LLVMBuildRet(cg->b, ret);
  else
    LLVMBuildRetVoid(cg->b);
}

cy_fn_state cy_fn_save(cy_cg *cg) {
  return (cy_fn_state){LLVMGetInsertBlock(cg->b), cg->fn, cg->args, cg->begin, cg->end, cg->worker};
}

void cy_fn_restore(cy_cg *cg, cy_fn_state s) {
  if (s.block)
    LLVMPositionBuilderAtEnd(cg->b, s.block);
  cg->fn = s.fn;
  cg->args = s.args;
  cg->begin = s.begin;
  cg->end = s.end;
  cg->worker = s.worker;
}

LLVMValueRef cy_call(cy_cg *cg, LLVMValueRef fn, LLVMValueRef *args, unsigned n) {
  return LLVMBuildCall2(cg->b, LLVMGlobalGetValueType(fn), fn, args, n, "");
}

LLVMValueRef cy_intrinsic_of(cy_cg *cg, const char *name, LLVMTypeRef *types, unsigned ntypes, LLVMValueRef *args,
                             unsigned n) {
  unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  LLVMTypeRef fn_type = LLVMIntrinsicGetType(cg->ctx, id, types, ntypes);
  return LLVMBuildCall2(cg->b, fn_type, LLVMGetIntrinsicDeclaration(cg->module, id, types, ntypes), args, n, "");
}

LLVMValueRef cy_intrinsic(cy_cg *cg, const char *name, LLVMTypeRef type, LLVMValueRef *args, unsigned n) {
  return cy_intrinsic_of(cg, name, &type, 1, args, n);
}

LLVMValueRef cy_alloca_of(cy_cg *cg, LLVMTypeRef type) {
  LLVMBasicBlockRef here = LLVMGetInsertBlock(cg->b), entry = LLVMGetEntryBasicBlock(cg->fn);
  LLVMValueRef first = LLVMGetFirstInstruction(entry);
  if (first)
    LLVMPositionBuilderBefore(cg->b, first);
  else
    LLVMPositionBuilderAtEnd(cg->b, entry);
  LLVMValueRef p = LLVMBuildAlloca(cg->b, type, "");
  LLVMPositionBuilderAtEnd(cg->b, here);
  return p;
}

LLVMValueRef cy_alloca(cy_cg *cg, int64_t bytes) {
  LLVMValueRef p = cy_alloca_of(cg, LLVMArrayType2(cg->i8, (uint64_t)bytes));
  LLVMSetAlignment(p, 64);
  return p;
}

LLVMValueRef cy_zeros(cy_cg *cg, int64_t bytes) {
  char name[40];
  int64_t size = 1024; /* a few sizes only, so that kernels share them */
  while (size < bytes)
    size *= 4;
  snprintf(name, sizeof name, "cyk_zeros_%lld", (long long)size);
  LLVMValueRef g = cy_shared_find(cg, name);
  if (g)
    return g;
  g = cy_shared_constant(cg, name, LLVMConstNull(LLVMArrayType2(cg->i8, (uint64_t)size)));
  LLVMSetGlobalConstant(g, 0); /* takes no bytes of the library then */
  return g;
}

LLVMValueRef cy_load_invariant(cy_cg *cg, LLVMTypeRef type, LLVMValueRef p, unsigned align) {
  LLVMValueRef v = cy_load(cg, type, p, align);
  LLVMMetadataRef node = LLVMMDNodeInContext2(cg->ctx, NULL, 0);
  LLVMSetMetadata(v, LLVMGetMDKindIDInContext(cg->ctx, "invariant.load", 14), LLVMMetadataAsValue(cg->ctx, node));
  return v;
}

static LLVMValueRef arg_load(cy_cg *cg, LLVMTypeRef type, int slot) {
  return cy_load_invariant(cg, type, cy_gepc(cg, cg->args, slot * 8), 8);
}

LLVMValueRef cy_arg_ptr(cy_cg *cg, int slot) { return arg_load(cg, cg->ptr, slot); }
LLVMValueRef cy_arg_size(cy_cg *cg, int slot) { return arg_load(cg, cg->i64, slot); }

/* ---- control flow ---- */

static LLVMBasicBlockRef new_block(cy_cg *cg) { return LLVMAppendBasicBlockInContext(cg->ctx, cg->fn, ""); }

/* llvm.loop metadata: a distinct node whose first operand is itself, then the property. */
static void unroll_off(cy_cg *cg, LLVMValueRef branch) {
  LLVMMetadataRef text = LLVMMDStringInContext2(cg->ctx, "llvm.loop.unroll.disable", 24);
  LLVMMetadataRef property = LLVMMDNodeInContext2(cg->ctx, &text, 1);
  LLVMMetadataRef self = LLVMTemporaryMDNode(cg->ctx, NULL, 0);
  LLVMMetadataRef ops[2] = {self, property};
  LLVMMetadataRef node = LLVMMDNodeInContext2(cg->ctx, ops, 2);
  LLVMMetadataReplaceAllUsesWith(self, node);
  LLVMSetMetadata(branch, LLVMGetMDKindIDInContext(cg->ctx, "llvm.loop", 9), LLVMMetadataAsValue(cg->ctx, node));
}

void cy_loop_begin(cy_cg *cg, cy_loop *l, LLVMValueRef lo, LLVMValueRef hi, LLVMValueRef step, const LLVMValueRef *init,
                   unsigned n) {
  l->n = n;
  l->hi = hi;
  l->step = step;
  l->head = new_block(cg);
  l->exit = new_block(cg);
  l->guard = LLVMGetInsertBlock(cg->b);
  LLVMValueRef some = cy_icmp(cg, LLVMIntSLT, lo, hi);
  int64_t known;
  if (cy_is_const(some, &known) && known) {
    LLVMBuildBr(cg->b, l->head);
    l->guard = NULL;
  } else {
    LLVMBuildCondBr(cg->b, some, l->head, l->exit);
  }
  LLVMBasicBlockRef before = l->guard ? l->guard : LLVMGetInsertBlock(cg->b);
  LLVMPositionBuilderAtEnd(cg->b, l->head);
  l->iv = LLVMBuildPhi(cg->b, cg->i64, "");
  LLVMAddIncoming(l->iv, &lo, &before, 1);
  for (unsigned i = 0; i < n; i++) {
    l->init[i] = init[i];
    l->v[i] = LLVMBuildPhi(cg->b, LLVMTypeOf(init[i]), "");
    LLVMAddIncoming(l->v[i], &l->init[i], &before, 1);
  }
}

void cy_loop_end(cy_cg *cg, cy_loop *l, const LLVMValueRef *next) {
  LLVMBasicBlockRef latch = LLVMGetInsertBlock(cg->b);
  LLVMValueRef iv = LLVMBuildNSWAdd(cg->b, l->iv, l->step, "");
  unroll_off(cg, LLVMBuildCondBr(cg->b, LLVMBuildICmp(cg->b, LLVMIntSLT, iv, l->hi, ""), l->head, l->exit));
  LLVMAddIncoming(l->iv, &iv, &latch, 1);
  LLVMMoveBasicBlockAfter(l->exit, latch);
  LLVMPositionBuilderAtEnd(cg->b, l->exit);
  for (unsigned i = 0; i < l->n; i++) {
    LLVMValueRef v = next[i];
    LLVMAddIncoming(l->v[i], &v, &latch, 1);
    l->out[i] = v;
    if (l->guard) {
      l->out[i] = LLVMBuildPhi(cg->b, LLVMTypeOf(v), "");
      LLVMAddIncoming(l->out[i], &v, &latch, 1);
      LLVMAddIncoming(l->out[i], &l->init[i], &l->guard, 1);
    }
  }
}

void cy_if_begin(cy_cg *cg, cy_if *s, LLVMValueRef cond) {
  LLVMBasicBlockRef then = new_block(cg);
  s->otherwise = s->join = new_block(cg);
  s->branch = LLVMBuildCondBr(cg->b, cond, then, s->otherwise);
  LLVMPositionBuilderAtEnd(cg->b, then);
}

/* How often the branch goes either way. */
void cy_if_rare(cy_cg *cg, cy_if *s) {
  LLVMMetadataRef ops[3] = {LLVMMDStringInContext2(cg->ctx, "branch_weights", 14), LLVMValueAsMetadata(cy_i32(cg, 1)),
                            LLVMValueAsMetadata(cy_i32(cg, 2000))};
  LLVMMetadataRef node = LLVMMDNodeInContext2(cg->ctx, ops, 3);
  LLVMSetMetadata(s->branch, LLVMGetMDKindIDInContext(cg->ctx, "prof", 4), LLVMMetadataAsValue(cg->ctx, node));
}

void cy_if_else(cy_cg *cg, cy_if *s) {
  s->join = new_block(cg);
  LLVMBuildBr(cg->b, s->join);
  LLVMPositionBuilderAtEnd(cg->b, s->otherwise);
}

void cy_if_end(cy_cg *cg, cy_if *s) {
  LLVMBuildBr(cg->b, s->join);
  LLVMPositionBuilderAtEnd(cg->b, s->join);
}

void cy_either_begin(cy_cg *cg, cy_either *e, LLVMValueRef cond, LLVMValueRef otherwise) {
  *e = (cy_either){.v = {NULL, otherwise}, .from = {NULL, LLVMGetInsertBlock(cg->b)}};
  cy_if_begin(cg, &e->s, cond);
}

void cy_either_else(cy_cg *cg, cy_either *e, LLVMValueRef v) {
  e->v[0] = v;
  e->from[0] = LLVMGetInsertBlock(cg->b);
  cy_if_else(cg, &e->s);
}

LLVMValueRef cy_either_end(cy_cg *cg, cy_either *e, LLVMValueRef v) {
  bool has_else = e->v[0] != NULL;
  e->v[has_else] = v;
  e->from[has_else] = LLVMGetInsertBlock(cg->b);
  if (!e->v[1])
    e->v[1] = LLVMConstNull(LLVMTypeOf(v));
  cy_if_end(cg, &e->s);
  LLVMValueRef phi = LLVMBuildPhi(cg->b, LLVMTypeOf(v), "");
  LLVMAddIncoming(phi, e->v, e->from, 2);
  return phi;
}

/* ---- integers ---- */

LLVMValueRef cy_i64(cy_cg *cg, int64_t v) { return LLVMConstInt(cg->i64, (unsigned long long)v, 1); }
LLVMValueRef cy_i32(cy_cg *cg, int32_t v) { return LLVMConstInt(cg->i32, (unsigned long long)v, 1); }

bool cy_is_const(LLVMValueRef v, int64_t *out) {
  if (!LLVMIsAConstantInt(v))
    return false;
  bool bit = LLVMGetIntTypeWidth(LLVMTypeOf(v)) == 1;
  int64_t value = bit ? (int64_t)LLVMConstIntGetZExtValue(v) : (int64_t)LLVMConstIntGetSExtValue(v);
  if (out)
    *out = value;
  return true;
}

static bool is(LLVMValueRef v, int64_t c) {
  int64_t x;
  return cy_is_const(v, &x) && x == c;
}

LLVMValueRef (cy_add)(cy_cg *cg, LLVMValueRef a, LLVMValueRef b) {
  return is(a, 0) ? b : is(b, 0) ? a : LLVMBuildNSWAdd(cg->b, a, b, "");
}
LLVMValueRef (cy_sub)(cy_cg *cg, LLVMValueRef a, LLVMValueRef b) {
  return is(b, 0) ? a : LLVMBuildNSWSub(cg->b, a, b, "");
}
LLVMValueRef (cy_mul)(cy_cg *cg, LLVMValueRef a, LLVMValueRef b) {
  if (is(a, 0) || is(b, 1))
    return a;
  return is(b, 0) || is(a, 1) ? b : LLVMBuildNSWMul(cg->b, a, b, "");
}
LLVMValueRef cy_addc(cy_cg *cg, LLVMValueRef a, int64_t c) { return cy_add(cg, a, cy_i64(cg, c)); }
LLVMValueRef cy_mulc(cy_cg *cg, LLVMValueRef a, int64_t c) { return cy_mul(cg, a, cy_i64(cg, c)); }
LLVMValueRef (cy_div)(cy_cg *cg, LLVMValueRef a, LLVMValueRef b) { return is(b, 1) ? a : LLVMBuildUDiv(cg->b, a, b, ""); }
LLVMValueRef (cy_mod)(cy_cg *cg, LLVMValueRef a, LLVMValueRef b) {
  return is(b, 1) ? cy_i64(cg, 0) : LLVMBuildURem(cg->b, a, b, "");
}
LLVMValueRef (cy_ceil_div)(cy_cg *cg, LLVMValueRef a, LLVMValueRef b) {
  return is(b, 1) ? a : cy_div(cg, cy_add(cg, a, cy_addc(cg, b, -1)), b);
}
LLVMValueRef (cy_icmp)(cy_cg *cg, LLVMIntPredicate p, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildICmp(cg->b, p, a, b, "");
}
LLVMValueRef (cy_select)(cy_cg *cg, LLVMValueRef cond, LLVMValueRef a, LLVMValueRef b) {
  int64_t c;
  if (cy_is_const(cond, &c))
    return c ? a : b;
  return a == b ? a : LLVMBuildSelect(cg->b, cond, a, b, "");
}
LLVMValueRef (cy_imin)(cy_cg *cg, LLVMValueRef a, LLVMValueRef b) {
  return cy_select(cg, cy_icmp(cg, LLVMIntSLT, a, b), a, b);
}
LLVMValueRef (cy_imax)(cy_cg *cg, LLVMValueRef a, LLVMValueRef b) {
  return cy_select(cg, cy_icmp(cg, LLVMIntSGT, a, b), a, b);
}

/* ---- memory ---- */

LLVMValueRef (cy_gep)(cy_cg *cg, LLVMValueRef p, LLVMValueRef bytes) {
  return is(bytes, 0) ? p : LLVMBuildGEP2(cg->b, cg->i8, p, &bytes, 1, "");
}
LLVMValueRef cy_gepc(cy_cg *cg, LLVMValueRef p, int64_t bytes) { return cy_gep(cg, p, cy_i64(cg, bytes)); }
LLVMValueRef (cy_gepf)(cy_cg *cg, LLVMValueRef p, LLVMValueRef floats) {
  return is(floats, 0) ? p : LLVMBuildGEP2(cg->b, cg->f32, p, &floats, 1, "");
}
void cy_prefetch(cy_cg *cg, LLVMValueRef p, bool write, cy_cache cache) {
  LLVMValueRef args[4] = {p, cy_i32(cg, write), cy_i32(cg, (int)cache), cy_i32(cg, 1)}; /* 1: data */
  unsigned id = LLVMLookupIntrinsicID("llvm.prefetch", strlen("llvm.prefetch"));
  cy_call(cg, LLVMGetIntrinsicDeclaration(cg->module, id, &cg->ptr, 1), args, 4);
}

LLVMValueRef cy_load(cy_cg *cg, LLVMTypeRef type, LLVMValueRef p, unsigned align) {
  LLVMValueRef v = LLVMBuildLoad2(cg->b, type, p, "");
  LLVMSetAlignment(v, align);
  return v;
}
void (cy_store)(cy_cg *cg, LLVMValueRef v, LLVMValueRef p, unsigned align) {
  LLVMSetAlignment(LLVMBuildStore(cg->b, v, p), align);
}
LLVMTypeRef cy_vecf(cy_cg *cg, unsigned lanes) { return LLVMVectorType(cg->f32, lanes); }

/* ---- vectors ---- */

LLVMValueRef cy_shuffle(cy_cg *cg, LLVMValueRef a, LLVMValueRef b, const int *lanes, unsigned n) {
  LLVMValueRef m[256];
  for (unsigned i = 0; i < n; i++)
    m[i] = cy_i32(cg, lanes[i]);
  return LLVMBuildShuffleVector(cg->b, a, b, LLVMConstVector(m, n), "");
}

LLVMValueRef cy_some_lanes(cy_cg *cg, LLVMValueRef v, unsigned first, unsigned n) {
  return cy_strided_lanes(cg, v, v, first, 1, n);
}

LLVMValueRef (cy_joined)(cy_cg *cg, LLVMValueRef a, LLVMValueRef b) {
  return cy_strided_lanes(cg, a, b, 0, 1, 2 * LLVMGetVectorSize(LLVMTypeOf(a)));
}

LLVMValueRef cy_repeated(cy_cg *cg, LLVMValueRef v, unsigned n, unsigned lanes) {
  int order[256];
  for (unsigned i = 0; i < lanes; i++)
    order[i] = (int)(i % n);
  return cy_shuffle(cg, v, v, order, lanes);
}

LLVMValueRef cy_joined_all(cy_cg *cg, LLVMValueRef *v, unsigned n) {
  for (; n > 1; n /= 2)
    for (unsigned i = 0; i < n / 2; i++)
      v[i] = cy_joined(cg, v[2 * i], v[2 * i + 1]);
  return v[0];
}

bool cy_is_vector(LLVMValueRef v) { return LLVMGetTypeKind(LLVMTypeOf(v)) == LLVMVectorTypeKind; }

LLVMValueRef cy_splat(cy_cg *cg, LLVMValueRef scalar, unsigned lanes) {
  static const int zero[64];
  LLVMValueRef poison = LLVMGetPoison(LLVMVectorType(LLVMTypeOf(scalar), lanes));
  LLVMValueRef one = LLVMBuildInsertElement(cg->b, poison, scalar, cy_i32(cg, 0), "");
  return cy_shuffle(cg, one, poison, zero, lanes);
}

LLVMValueRef cy_splatf(cy_cg *cg, double v, unsigned lanes) {
  LLVMValueRef e[64];
  for (unsigned i = 0; i < lanes; i++)
    e[i] = LLVMConstReal(cg->f32, v);
  return LLVMConstVector(e, lanes);
}

LLVMValueRef (cy_fma)(cy_cg *cg, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c) {
  LLVMValueRef v[3] = {a, b, c};
  if (cg->fma)
    return cy_intrinsic(cg, "llvm.fma", LLVMTypeOf(a), v, 3);
  return LLVMBuildFAdd(cg->b, LLVMBuildFMul(cg->b, a, b, ""), c, "");
}
LLVMValueRef (cy_fmax)(cy_cg *cg, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildSelect(cg->b, LLVMBuildFCmp(cg->b, LLVMRealOGT, a, b, ""), a, b, "");
}

void cy_transpose8(cy_cg *cg, LLVMValueRef v[8]) {
  static const int lo[8] = {0, 8, 1, 9, 4, 12, 5, 13}, hi[8] = {2, 10, 3, 11, 6, 14, 7, 15};
  static const int even[8] = {0, 1, 8, 9, 4, 5, 12, 13}, odd[8] = {2, 3, 10, 11, 6, 7, 14, 15};
  static const int low[8] = {0, 1, 2, 3, 8, 9, 10, 11}, high[8] = {4, 5, 6, 7, 12, 13, 14, 15};
  LLVMValueRef t[8], u[8];
  for (int i = 0; i < 4; i++) {
    t[2 * i] = cy_shuffle(cg, v[2 * i], v[2 * i + 1], lo, 8);
    t[2 * i + 1] = cy_shuffle(cg, v[2 * i], v[2 * i + 1], hi, 8);
  }
  for (int i = 0; i < 2; i++) {
    LLVMValueRef *p = t + 4 * i, *q = u + 4 * i;
    q[0] = cy_shuffle(cg, p[0], p[2], even, 8);
    q[1] = cy_shuffle(cg, p[0], p[2], odd, 8);
    q[2] = cy_shuffle(cg, p[1], p[3], even, 8);
    q[3] = cy_shuffle(cg, p[1], p[3], odd, 8);
  }
  for (int i = 0; i < 4; i++) {
    v[i] = cy_shuffle(cg, u[i], u[i + 4], low, 8);
    v[i + 4] = cy_shuffle(cg, u[i], u[i + 4], high, 8);
  }
}

LLVMValueRef cy_strided_lanes(cy_cg *cg, LLVMValueRef a, LLVMValueRef b, unsigned first, unsigned step, unsigned n) {
  int lanes[256];
  for (unsigned i = 0; i < n; i++)
    lanes[i] = (int)(first + i * step);
  return cy_shuffle(cg, a, b, lanes, n);
}

LLVMValueRef cy_interleaved(cy_cg *cg, LLVMValueRef a, LLVMValueRef b) {
  int lanes[256];
  unsigned n = LLVMGetVectorSize(LLVMTypeOf(a));
  for (unsigned i = 0; i < 2 * n; i++)
    lanes[i] = (int)(i / 2 + i % 2 * n);
  return cy_shuffle(cg, a, b, lanes, 2 * n);
}

LLVMValueRef cy_interleaved_halves(cy_cg *cg, LLVMValueRef a, LLVMValueRef b, unsigned group, bool high) {
  int lanes[256];
  unsigned n = LLVMGetVectorSize(LLVMTypeOf(a));
  for (unsigned i = 0; i < n; i++)
    lanes[i] = (int)(i / group * group + (high ? group / 2 : 0) + i % group / 2 + i % 2 * n);
  return cy_shuffle(cg, a, b, lanes, n);
}

LLVMValueRef cy_unpacked(cy_cg *cg, LLVMValueRef a, LLVMValueRef b, unsigned bytes, bool high) {
  LLVMTypeRef type = LLVMVectorType(bytes == 1 ? cg->i8 : cg->i16, 4 * cg->W / bytes);
  a = LLVMBuildBitCast(cg->b, a, type, "");
  return cy_interleaved_halves(cg, a, LLVMBuildBitCast(cg->b, b, type, ""), 16 / bytes, high);
}

LLVMValueRef cy_load_masked(cy_cg *cg, LLVMTypeRef vector, LLVMValueRef p, LLVMValueRef there, unsigned align) {
  LLVMTypeRef types[2] = {vector, cg->ptr};
  LLVMValueRef args[4] = {p, cy_i32(cg, (int)align), there, LLVMConstNull(vector)};
  return cy_intrinsic_of(cg, "llvm.masked.load", types, 2, args, 4);
}

LLVMValueRef cy_load_first(cy_cg *cg, LLVMTypeRef vector, LLVMValueRef p, unsigned n, unsigned align) {
  LLVMValueRef there[64];
  unsigned lanes = LLVMGetVectorSize(vector);
  for (unsigned i = 0; i < lanes; i++)
    there[i] = LLVMConstInt(cg->i1, i < n, 0);
  return cy_load_masked(cg, vector, p, LLVMConstVector(there, lanes), align);
}

LLVMValueRef cy_lanes_sum(cy_cg *cg, LLVMValueRef v) {
  return cy_intrinsic(cg, "llvm.vector.reduce.add", LLVMTypeOf(v), &v, 1);
}
