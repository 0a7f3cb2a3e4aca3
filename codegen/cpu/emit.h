/* SPDX-License-Identifier: Apache-2.0 */
/* emit.h - the one layer between this target's code generators and the LLVM C API.
 *
 * A `cy_cg` is everything needed to emit machine code for one CPU: an LLVM context of its own, the module being filled,
 * a builder, the target machine, the types, and what the CPU can do. There is no global state: one cy_cg belongs to one
 * thread at a time, and any number of them emit modules in parallel.
 *
 * Sizes are LLVM i64 values everywhere. cy_add, cy_mul and friends fold constants and identities, so a generator writes
 * one formula for static and dynamic sizes; cy_is_const() tells whether the outcome is known now. Vectors: `cg->W`
 * floats fill one register. Emit vectors of W lanes (or fewer in tails): wider ones are split badly. Loops:
 * cy_loop_begin/end emit a rotated counted loop with carried values and switch LLVM's unroller off. Kernels:
 * cy_kernel_begin opens a function of type cyrt_kernel (cyto_abi.h) and sets cg->args, begin, end, worker.
 */
#ifndef CY_CPU_EMIT_H
#define CY_CPU_EMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <llvm-c/Core.h>
#include <llvm-c/TargetMachine.h>

#include "codegen/arch.h"
#include "codegen/candidates.h"
#include "ir/nearest.h"
#include "ir/order.h"
#include "ir/round.h"

/* A CPU as machine.def has it: cost.c makes times of it. */
typedef struct cy_cpu_model {
#define COLUMN(name, unit, usual, meaning) double name;
#include "machine.def"
  unsigned fmas;              /* of vectors of cy_cg.W floats, in a cycle */
  int64_t l1_bytes, l2_bytes; /* per core */
} cy_cpu_model;

/* Forms that may be switched off. */
typedef enum cy_form {
#define FORM(id, name, what) CY_FORM_##id,
#include "codegen/cpu/forms.def"
} cy_form;

typedef struct cy_cg {
  LLVMContextRef ctx;
  LLVMModuleRef module; /* being filled, see cy_cg_module() */
  LLVMBuilderRef b;
  LLVMTargetRef target;
  LLVMTargetMachineRef tm; /* NULL before the first module */
  LLVMTypeRef i1, i8, i16, i32, i64, f16, bf16, f32, f64, ptr, voidt;
  LLVMTypeRef vf;     /* <W x float> */
  LLVMTypeRef vi;     /* <W x i32> */
  unsigned W;         /* f32 lanes of a vector register */
  unsigned registers; /* vector registers */
  bool fma, avx2, avx512;
  cy_cpu_model model;
  bool vnni;               /* sums of four products of bytes in one instruction: u8 by s8 .. */
  bool sdot;               /* .. or, as this says, s8 by s8 */
  bool bf16_dot;           /* vdpbf16ps on vectors of 512 bits, where nothing is faster */
  bool gathers;            /* floats from anywhere by an instruction, where that is faster than one by one */
  bool amx_int8, amx_bf16; /* products of tiles, see int_amx.c */
  bool vnni_spelled;       /* tests: what vpdpbusd does, in plain instructions */
  bool fast_codegen;       /* takes a fraction of the time to make code, which runs for some times as long */
  bool straight;       /* long code without loops, run once a call: spares LLVM's scheduler behind register allocation,
                        whose time grows with the square of a block */
  bool strict_fp;      /* algorithms of fewer multiplications are not wanted: see cy_machine_strict_fp */
  cy_choices *choices; /* NULL: estimates choose */
  uint32_t forms_off;  /* bits: see cy_form_on */
  unsigned tile_rows, tile_vectors; /* the tile that products and direct convolutions have; 0: what suits their sizes */
  const cy_arch *arch;
  char *cpu, *features; /* as LLVM wants them; features may be "" */
  char *has;            /* what code for the CPU may use, comma separated */
  const char *prefix;   /* of names that objects share: the caller's. NULL: they share nothing, there is one module */
  /* the function being emitted */
  LLVMValueRef fn;
  LLVMValueRef args, begin, end, worker; /* of a kernel; NULL in other functions */
} cy_cg;

/* Is that form allowed? Lines of the choices may switch it off: forms.def. */
static inline bool cy_form_on(const cy_cg *cg, cy_form form) { return !(cg->forms_off >> form & 1); }

/* cpu: "native" or a name of machine.def, with the system's suffix. On failure returns NULL and, when out_error is not NULL, a
 * malloc'ed text. */
cy_cg *cy_cg_create(const char *cpu, char **out_error);
void cy_cg_destroy(cy_cg *cg);
bool cy_cg_has(const cy_cg *cg, const char *feature);
/* Starts an empty module; the one before, if any, is disposed of. */
void cy_cg_module(cy_cg *cg, const char *name);

/* ---- cpus.c ---- */
/* Names are "native", or a CPU's, and the suffix of the system (arch.h). */
void cy_cpu_try_names(cy_nearest *nearest);    /* all of them, for a name that is none */
const cy_arch *cy_cpu_arch(const char *name);  /* NULL: it is no such name */
unsigned cy_cpu_lanes(const char *features);   /* floats of their widest vectors */
const char *cy_cpu_base(const char *name);     /* without the suffix; NULL: native, or no such name */
const char *cy_cpu_features(const char *name); /* that code for this CPU may use, comma separated; NULL: the same */
/* The model of the CPU of that name, whose features and vectors of W floats are known; of one without a row, or with other
 * vectors than its row's, that of the nearest, with the caches that this machine reports, if it is this one. Returns the name
 * of the row. */
const char *cy_cpu_model_of(const char *name, const char *features, unsigned W, cy_cpu_model *out);
/* The same by features and caches alone, 0: not known. */
const char *cy_cpu_nearest(const char *isa, const char *features, unsigned W, int64_t l1_bytes, int64_t l2_bytes,
                           cy_cpu_model *out);
char *cy_cpu_features_on(const char *list); /* the same of a machine with "+a,-b,.."; free() it */

/* ---- finishing a module (all return 0, or -1 with a malloc'ed text in *out_error) ---- */
#define CY_PASSES_LIGHT                                                                                                \
  "function(early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg,loop-mssa(licm),early-cse)"
int cy_cg_verify(cy_cg *cg, char **out_error);
/* passes: an LLVM pipeline; NULL means CY_PASSES_LIGHT, "" none. */
int cy_cg_optimize(cy_cg *cg, const char *passes, char **out_error);
void cy_share_splats(cy_cg *cg); /* splats.c; behind cy_cg_optimize */
/* type: LLVMObjectFile or LLVMAssemblyFile. The buffer is the caller's. */
int cy_cg_emit(cy_cg *cg, LLVMCodeGenFileType type, LLVMMemoryBufferRef *out_buffer, char **out_error);
char *cy_cg_ir_text(cy_cg *cg); /* free with LLVMDisposeMessage */

/* ---- functions ---- */
enum {
  CY_FN_INTERNAL = 1, /* visible in this module only */
  CY_FN_NOINLINE = 2,
  CY_FN_NOALIAS = 4, /* no two pointer parameters overlap */
  CY_FN_SHARED = 8,  /* one for all objects of a model: see cy_shared_find */
  CY_FN_SMALL = 16   /* short code, which takes no time worth mentioning */
};
/* Declares and opens: the builder stands in its entry block, cg->fn is set and the kernel fields are cleared. */
LLVMValueRef cy_fn_begin(cy_cg *cg, const char *name, LLVMTypeRef ret, const LLVMTypeRef *params, unsigned n,
                         int flags);
/* What any kernel of a model may need: helper functions (CY_FN_SHARED) and constants made by cy_shared_constant. Names
 * tell all of the contents; the linker keeps one of those that several objects have. NULL: this module has none yet. */
LLVMValueRef cy_shared_find(cy_cg *cg, const char *name);
LLVMValueRef cy_shared_constant(cy_cg *cg, const char *name, LLVMValueRef contents); /* 64-byte aligned */
/* Of a linkage that keeps LLVM from looking into it, so that it stays a load. */
LLVMValueRef cy_shared_opaque(cy_cg *cg, const char *name, LLVMValueRef contents);
/* Opens a function of type cyrt_kernel and sets cg->args, begin, end, worker. */
LLVMValueRef cy_kernel_begin(cy_cg *cg, const char *name, int flags);
/* Ends the open function: `ret` or, with NULL, no value. */
void cy_fn_end(cy_cg *cg, LLVMValueRef ret);
/* Where a function was left to emit another one in between. */
typedef struct cy_fn_state {
  LLVMBasicBlockRef block;
  LLVMValueRef fn, args, begin, end, worker;
} cy_fn_state;
cy_fn_state cy_fn_save(cy_cg *cg);
void cy_fn_restore(cy_cg *cg, cy_fn_state state);
LLVMValueRef cy_call(cy_cg *cg, LLVMValueRef fn, LLVMValueRef *args, unsigned n);
/* Calls an LLVM intrinsic that is overloaded for one type, or for several. */
LLVMValueRef cy_intrinsic(cy_cg *cg, const char *name, LLVMTypeRef type, LLVMValueRef *args, unsigned n);
LLVMValueRef cy_intrinsic_of(cy_cg *cg, const char *name, LLVMTypeRef *types, unsigned ntypes, LLVMValueRef *args,
                             unsigned n);
/* Stack memory, allocated in the entry block: bytes, 64-byte aligned, or one value. */
LLVMValueRef cy_alloca(cy_cg *cg, int64_t bytes);
LLVMValueRef cy_alloca_of(cy_cg *cg, LLVMTypeRef type);
/* Read-only zeros of at least `bytes`, 64-byte aligned, shared in the module. */
LLVMValueRef cy_zeros(cy_cg *cg, int64_t bytes);
/* Slot `slot` of cg->args, as a pointer or as a size. The loads are marked invariant. */
LLVMValueRef cy_arg_ptr(cy_cg *cg, int slot);
LLVMValueRef cy_arg_size(cy_cg *cg, int slot);

/* ---- control flow ---- */
#define CY_LOOP_MAX 80
typedef struct cy_loop {
  LLVMValueRef iv;               /* the counter */
  LLVMValueRef v[CY_LOOP_MAX];   /* carried values inside the body */
  LLVMValueRef out[CY_LOOP_MAX]; /* after cy_loop_end: their values behind the loop */
  unsigned n;
  LLVMValueRef hi, step, init[CY_LOOP_MAX];
  LLVMBasicBlockRef guard, head, exit;
} cy_loop;
/* for (iv = lo; iv < hi; iv += step), zero trips allowed; n carried values starting as init[]. The body may replace
 * loop->step. */
void cy_loop_begin(cy_cg *cg, cy_loop *loop, LLVMValueRef lo, LLVMValueRef hi, LLVMValueRef step,
                   const LLVMValueRef *init, unsigned n);
void cy_loop_end(cy_cg *cg, cy_loop *loop, const LLVMValueRef *next);

typedef struct cy_if {
  LLVMValueRef branch;
  LLVMBasicBlockRef otherwise, join;
} cy_if;
void cy_if_begin(cy_cg *cg, cy_if *s, LLVMValueRef cond);
void cy_if_rare(cy_cg *cg, cy_if *s); /* optional: the condition hardly ever holds */
void cy_if_else(cy_cg *cg, cy_if *s); /* optional */
void cy_if_end(cy_cg *cg, cy_if *s);

/* An `if` that gives a value. begin: `otherwise` is what it gives where cond is false; NULL: zeros, or what an else says. */
typedef struct cy_either {
  cy_if s;
  LLVMValueRef v[2]; /* where cond is true, where it is false */
  LLVMBasicBlockRef from[2];
} cy_either;
void cy_either_begin(cy_cg *cg, cy_either *e, LLVMValueRef cond, LLVMValueRef otherwise);
void cy_either_else(cy_cg *cg, cy_either *e, LLVMValueRef v); /* optional; v: what it gives where cond is true */
LLVMValueRef cy_either_end(cy_cg *cg, cy_either *e, LLVMValueRef v);

/* ---- integers (i64 unless said otherwise); constants and identities are folded ---- */
LLVMValueRef cy_i64(cy_cg *cg, int64_t v);
LLVMValueRef cy_i32(cy_cg *cg, int32_t v);
bool cy_is_const(LLVMValueRef v, int64_t *out);
LLVMValueRef cy_add(cy_cg *cg, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef cy_sub(cy_cg *cg, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef cy_mul(cy_cg *cg, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef cy_addc(cy_cg *cg, LLVMValueRef a, int64_t c);
LLVMValueRef cy_mulc(cy_cg *cg, LLVMValueRef a, int64_t c);
LLVMValueRef cy_div(cy_cg *cg, LLVMValueRef a, LLVMValueRef b);      /* a >= 0, b > 0, rounds down */
LLVMValueRef cy_mod(cy_cg *cg, LLVMValueRef a, LLVMValueRef b);      /* a >= 0, b > 0 */
LLVMValueRef cy_ceil_div(cy_cg *cg, LLVMValueRef a, LLVMValueRef b); /* a >= 0, b > 0 */
LLVMValueRef cy_imin(cy_cg *cg, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef cy_imax(cy_cg *cg, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef cy_icmp(cy_cg *cg, LLVMIntPredicate pred, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef cy_select(cy_cg *cg, LLVMValueRef cond, LLVMValueRef a, LLVMValueRef b);

/* ---- memory ---- */
LLVMValueRef cy_gep(cy_cg *cg, LLVMValueRef p, LLVMValueRef bytes);
LLVMValueRef cy_gepc(cy_cg *cg, LLVMValueRef p, int64_t bytes);
LLVMValueRef cy_gepf(cy_cg *cg, LLVMValueRef p, LLVMValueRef floats); /* p + 4 * floats */
LLVMValueRef cy_load(cy_cg *cg, LLVMTypeRef type, LLVMValueRef p, unsigned align);
LLVMValueRef cy_load_invariant(cy_cg *cg, LLVMTypeRef type, LLVMValueRef p, unsigned align); /* of what never changes */
/* Brings a cache line that will be read, or written, into a cache; p may be any address. */
typedef enum cy_cache { CY_SECOND_LEVEL = 2, CY_FIRST_LEVEL = 3 } cy_cache; /* numbers of llvm.prefetch */
void cy_prefetch(cy_cg *cg, LLVMValueRef p, bool write, cy_cache cache);
void cy_store(cy_cg *cg, LLVMValueRef v, LLVMValueRef p, unsigned align);
/* <lanes x float>; one lane is a vector too. */
LLVMTypeRef cy_vecf(cy_cg *cg, unsigned lanes);

/* ---- vectors ---- */
LLVMValueRef cy_splat(cy_cg *cg, LLVMValueRef scalar, unsigned lanes);
LLVMValueRef cy_splatf(cy_cg *cg, double v, unsigned lanes);
LLVMValueRef cy_fma(cy_cg *cg, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c); /* a * b + c */
LLVMValueRef cy_fmax(cy_cg *cg, LLVMValueRef a, LLVMValueRef b);                /* of non-NaN values */
LLVMValueRef cy_shuffle(cy_cg *cg, LLVMValueRef a, LLVMValueRef b, const int *lanes, unsigned n); /* n: at most 256 */
LLVMValueRef cy_some_lanes(cy_cg *cg, LLVMValueRef v, unsigned first, unsigned n); /* lanes [first, first + n) */
LLVMValueRef cy_joined(cy_cg *cg, LLVMValueRef a, LLVMValueRef b);                 /* the lanes of a, then those of b */
LLVMValueRef cy_repeated(cy_cg *cg, LLVMValueRef v, unsigned n, unsigned lanes); /* lanes [0, n) of v, again and again */
LLVMValueRef cy_joined_all(cy_cg *cg, LLVMValueRef *v, unsigned n); /* of n vectors, a power of two; v is overwritten */
bool cy_is_vector(LLVMValueRef v);
/* v[i] lane j <-> v[j] lane i, for a square of 8 x 8 floats. */
void cy_transpose8(cy_cg *cg, LLVMValueRef v[8]);

/* Lanes first, first + step, .. of a and b, which are behind each other: n of them. */
LLVMValueRef cy_strided_lanes(cy_cg *cg, LLVMValueRef a, LLVMValueRef b, unsigned first, unsigned step, unsigned n);
/* Lanes of a and b in turn. */
LLVMValueRef cy_interleaved(cy_cg *cg, LLVMValueRef a, LLVMValueRef b);
/* The same in every group of so many lanes, of the groups' lower or higher halves. */
LLVMValueRef cy_interleaved_halves(cy_cg *cg, LLVMValueRef a, LLVMValueRef b, unsigned group, bool high);
/* .. of elements of 1 or 2 bytes in each 128 bits: an unpack. Any vectors of 4 * W bytes. */
LLVMValueRef cy_unpacked(cy_cg *cg, LLVMValueRef a, LLVMValueRef b, unsigned bytes, bool high);
/* The first n lanes of a vector in memory, the others being 0; nothing behind them is read. */
LLVMValueRef cy_load_first(cy_cg *cg, LLVMTypeRef vector, LLVMValueRef p, unsigned n, unsigned align);
LLVMValueRef cy_load_masked(cy_cg *cg, LLVMTypeRef vector, LLVMValueRef p, LLVMValueRef there, unsigned align); /* .. those */
LLVMValueRef cy_lanes_sum(cy_cg *cg, LLVMValueRef v); /* of integers */

/* ---- nested calls of the above: see ir/order.h ---- */
#define CY_EMIT2(a, b, call) CY_LAST_FIRST(LLVMValueRef, a, b, call)
#define CY_EMIT3(a, b, c, call) CY_LAST_FIRST3(LLVMValueRef, a, b, c, call)
#define cy_add(cg, a, b) CY_EMIT2(a, b, cy_add(cg, x_, y_))
#define cy_sub(cg, a, b) CY_EMIT2(a, b, cy_sub(cg, x_, y_))
#define cy_mul(cg, a, b) CY_EMIT2(a, b, cy_mul(cg, x_, y_))
#define cy_div(cg, a, b) CY_EMIT2(a, b, cy_div(cg, x_, y_))
#define cy_mod(cg, a, b) CY_EMIT2(a, b, cy_mod(cg, x_, y_))
#define cy_ceil_div(cg, a, b) CY_EMIT2(a, b, cy_ceil_div(cg, x_, y_))
#define cy_imin(cg, a, b) CY_EMIT2(a, b, cy_imin(cg, x_, y_))
#define cy_imax(cg, a, b) CY_EMIT2(a, b, cy_imax(cg, x_, y_))
#define cy_icmp(cg, pred, a, b) CY_EMIT2(a, b, cy_icmp(cg, pred, x_, y_))
#define cy_select(cg, cond, a, b) CY_EMIT3(cond, a, b, cy_select(cg, x_, y_, z_))
#define cy_gep(cg, p, bytes) CY_EMIT2(p, bytes, cy_gep(cg, x_, y_))
#define cy_gepf(cg, p, floats) CY_EMIT2(p, floats, cy_gepf(cg, x_, y_))
#define cy_store(cg, v, p, align) CY_EMIT2(v, p, cy_store(cg, x_, y_, align))
#define cy_fma(cg, a, b, c) CY_EMIT3(a, b, c, cy_fma(cg, x_, y_, z_))
#define cy_fmax(cg, a, b) CY_EMIT2(a, b, cy_fmax(cg, x_, y_))
#define cy_joined(cg, a, b) CY_EMIT2(a, b, cy_joined(cg, x_, y_))

#endif
