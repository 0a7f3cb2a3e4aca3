/* SPDX-License-Identifier: Apache-2.0 */
/* target.h - what a target is: a row of data and functions, looked up by what --target says.
 *
 * The host program (plan, run, tables; host.c) is the same LLVM module for every target. A target compiles *kernels*,
 * each of which becomes one or more phases: C functions of type cyrt_kernel that run one after the other. The order of
 * events:
 *
 *   prepare   once per kernel, sequentially: chooses the algorithm, appends arguments to the kernel (packed weights,
 *             scratch) and tells what is bound to them
 *   emit      in a process of its own per shard (the IR's tables grow while being read, so threads would not do): machine
 *             code for some kernels into one module, and for each kernel its phases and scratch sizes
 *
 * Slots of a phase: a pointer for every argument of the kernel, then the values of cy_kernel_dims(), in that order.
 */
#ifndef CY_TARGET_H
#define CY_TARGET_H

#include "codegen/arch.h"
#include "codegen/candidates.h"
#include "codegen/codegen.h"
#include "ir/nearest.h"

typedef struct cy_target cy_target;
struct cy_kernel_plan;

/* What a device can do at most, from its data sheet. */
typedef struct cy_peak {
  const char *device;
  double flops, bytes; /* a second */
} cy_peak;

/* A target with its options: what cy_machine_open() made of the spec. */
struct cy_machine {
  const cy_target *target;
  char *cpu;           /* that runs the host program: LLVM's name */
  const cy_arch *arch; /* of that CPU */
  char *text;          /* for people, and cyrt_model.target */
  char *needs;         /* comma separated CPU features that the code needs, checked when a model is loaded */
  cy_target_caps caps; /* the target's, and what match() found of this machine */
  bool tf32;           /* f32 products may round their factors to TF32 */
  cy_library_use libraries[CY_LIBRARIES];
  bool smallest;                   /* size before speed, among layouts of equal results */
  const char *prefix;              /* of the model's symbols, during emit() */
  bool fast_codegen;               /* emit() makes code fast, not fast code: see cy_codegen_options.fast_codegen */
  int threads;                     /* that emit() may have at work at a time, 0: one */
  _Atomic int64_t *parts;          /* emit() counts here what it has done, [0], of all, [1]; NULL: nobody asks */
  cy_kernel_compiler *compiled_by; /* emit() says so here; never NULL then */
  void *state;                     /* the target's own */
};

/* What a kernel became. Plain data: it crosses a process boundary. */
#define CY_MAX_PHASES 4
typedef struct cy_phase_code {
  char symbol[128];
  int64_t tasks; /* -1: i64 <symbol>_tasks(args) tells; -2: the product of the kernel's grid */
} cy_phase_code;
typedef struct cy_kernel_code {
  int32_t nphases;
  cy_phase_code phase[CY_MAX_PHASES];
  int64_t worker_bytes;         /* scratch per worker; -1: i64 <kernel symbol>_worker_bytes(args) tells */
  int64_t shared_bytes;         /* scratch once; -1: i64 <kernel symbol>_shared_bytes(args) tells */
  char images[128];             /* CUDA: symbol of the device code that has the kernel */
  int registers, static_shared; /* CUDA: of a thread, of a block, by the first architecture's compiler; 0: not known */
  bool tma;                     /* .. of the kernel beside it that reads by tensor maps */
} cy_kernel_code;

/* A kernel on its way to code. */
typedef struct cy_kernel_plan {
  cy_kernel *kernel;
  char symbol[80];                 /* unique in the model, with the model's prefix */
  const cy_step *launch;           /* the first step that launches it */
  int32_t dead_arg;                /* argument that was replaced by its packed layout, or -1 */
  bool reads_dead;                 /* ... but is read elsewhere in the kernel, too */
  int32_t packed_arg;              /* appended: packed layout of dead_arg's constant, or -1 */
  int32_t scratch_arg, shared_arg; /* appended: see cy_kernel_code, or -1 */
  void *schedule;                  /* how the target computes it: its own, in the graph's arena */
  const char *algorithm;           /* for --explain */
  const char *blocks;              /* .. tiles and tasks in words; NULL: of plain loops */
  const cy_candidates *candidates; /* what it was chosen of, in the graph's arena; NULL: there is nothing to choose */
  const char *why;     /* .. and why it and not the next best, in a sentence; NULL: there is nothing to choose */
  uint64_t weight;     /* estimate of the work to compile it */
  cy_kernel_code code; /* after emit */
} cy_kernel_plan;

/* A packed matrix of which every element has a place of its own. Element (n, k), stored in panels of nr columns by blocks
 * of k, lies at
 *
 *   first * columns + panel * height * nr + (k - first) / step * width * step + n % nr * step + (k - first) % step
 *
 * with panel = n / nr, first = k / k_block * k_block, height = least of k_block and k_padded - first, width = nr, of the
 * last panel `last`, and columns = widths of all panels together. The constant that it was made of has the element at
 * from (bytes) + (n * from_n + k * from_k) elements. */
typedef struct cy_panels {
  int64_t n, k, k_padded, k_block, nr, last, step;
  int64_t element; /* bytes */
  int64_t from, from_n, from_k;
} cy_panels;

/* Slots of a kernel's sizes start behind its pointers. */
static inline uint32_t cy_plan_first_dim(const cy_kernel_plan *plan) { return cy_kernel_args(plan->kernel, NULL); }

/* CUDA prints CUDA C for LL and PTX for ASM. */
#define CY_CANNOT_WRITE "cannot write "
typedef enum cy_code_kind { CY_CODE_OBJECT, CY_CODE_ASM, CY_CODE_LL, CY_CODE_CUBIN } cy_code_kind;

struct cy_host_device; /* host_int.h */

/* name, specs, match, release, caps.supports, prepare, pack and emit must be there; a field left 0 means that the target
 * does without. Devices need `host` as well. */
struct cy_target {
  const char *name;
  const char *specs;   /* what --target accepts, for help and messages */
  const char *names;   /* what specs give examples of, each behind a space; NULL: specs have all */
  cy_target_caps caps; /* of all its machines; match() fills in what depends on the spec */
  bool tf32, libraries; /* has both, if asked: see cy_machine_allow_tf32, cy_machine_set_library */
  /* Fills m's cpu, text, needs and what is missing of caps if the spec is one of this target's. False: it is not; then
   * out_error may get a malloc'ed reason, when the spec looked like one. */
  bool (*match)(const char *spec, cy_machine *m, char **out_error);
  void (*try_names)(cy_nearest *nearest); /* what specs may be, for one that is not; NULL: none */
  void (*release)(cy_machine *m);
  void (*choose)(cy_machine *m, cy_choices *choices); /* see cy_machine_choose; NULL: there are no candidates */
  void (*strict_fp)(cy_machine *m);                   /* see cy_machine_strict_fp; NULL: nothing to switch off */
  /* Kernels with numbers in them may share code where this is there: only those for which it says the same, before they
   * are prepared. NULL: not worth it, numbers are cheaper in the code than in memory. */
  uint64_t (*share_key)(const cy_machine *m, cy_program *p, cy_kernel *k);
  void (*prepare)(const cy_machine *m, cy_program *p, cy_kernel_plan *plan);
  /* Files what people should know of all prepared kernels before they are compiled; NULL: nothing. */
  void (*warn)(const cy_machine *m, const cy_kernel_plan *plans, uint32_t n, cy_diag_sink *diag);
  /* The program's constant with the packed layout, for this kernel, of constant v from byte `offset` on. */
  uint32_t (*pack)(cy_program *p, cy_kernel_plan *plan, cy_val v, int64_t offset);
  /* Is a constant that pack() added such panels? NULL: none is. */
  bool (*panels_of)(const cy_constant *packed, cy_panels *out);
  /* Writes code for n kernels to the file `path`. 0, or -1 with a malloc'ed text, which begins with CY_CANNOT_WRITE if
   * nothing but the file is to blame. */
  int (*emit)(const cy_machine *m, cy_kernel_plan **plans, uint32_t n, cy_code_kind kind, const char *path,
              char **out_error);
  /* For --explain: the peak that a kernel is held against; NULL: that of a core of this CPU. */
  cy_peak (*peak)(const cy_machine *m, const struct cy_kernel_plan *plan);
  /* For --explain: how much of a device the compiled kernel takes, as a line of text. False or NULL: not known. */
  bool (*occupancy)(const cy_machine *m, const struct cy_kernel_plan *plan, const int64_t *syms, char *text,
                    size_t size);
  const struct cy_host_device *host; /* how the host program launches kernels and reaches their memory */
};

extern const cy_target cy_target_cpu;  /* cpu/cpu.c */
extern const cy_target cy_target_cuda; /* cuda/cuda.c */

#endif
