/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.c - the row of the CUDA target: which --target specs are ours, and kernels to device code.
 *
 * In: prepared kernels of a shard. Out: an object with one read-only symbol (images.c): a cubin for every architecture
 * asked for, and PTX that drivers translate for devices which have none. Shards are compiled by processes of their own;
 * where there are fewer of them than jobs, several architectures of one are compiled at a time. For text kinds: the
 * CUDA C source, or its PTX.
 */
#define _GNU_SOURCE
#include "codegen/cpu/cost.h"
#include "codegen/cuda/cuda_int.h"
#include "codegen/host_int.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- architectures ---- */

#define ARCHITECTURES(X)                                                                                               \
  X(75, 0, "")                                                                                                         \
  X(80, 0, "")                                                                                                         \
  X(86, 0, "")                                                                                                         \
  X(87, 0, "")                                                                                                         \
  X(89, 0, "")                                                                                                         \
  X(90, 0, "")                                                                                                         \
  X(90, 'a', "a")                                                                                                      \
  X(100, 0, "")                                                                                                        \
  X(100, 'a', "a")                                                                                                     \
  X(103, 0, "")                                                                                                        \
  X(110, 0, "")                                                                                                        \
  X(120, 0, "")                                                                                                        \
  X(120, 'a', "a")                                                                                                     \
  X(121, 0, "")
#define AS_ROW(number, suffix, text) {number, suffix},
#define AS_TEXT(number, suffix, text) "sm_" #number text ", "
static const cy_cuda_arch known[] = {ARCHITECTURES(AS_ROW)};
static const cy_cuda_arch common[] = {{75, 0}, {80, 0}, {89, 0}, {90, 'a'}, {120, 0}};
enum { PTX_ARCH = 80 };

#define SPECS "cuda, or " ARCHITECTURES(AS_TEXT) "several separated by commas, aarch64 among them where the host is one"

static void add_arch(cy_cuda_machine *c, cy_cuda_arch arch, bool optional) {
  for (int i = 0; i < c->narch; i++)
    if (c->arch[i].number == arch.number && c->arch[i].suffix == arch.suffix) {
      c->optional[i] &= optional;
      return;
    }
  if (c->narch < (int)(sizeof c->arch / sizeof *c->arch)) {
    c->optional[c->narch] = optional;
    c->arch[c->narch++] = arch;
  }
}

static bool add_named(cy_cuda_machine *c, const char *name, size_t len) {
  char text[16];
  if (len == 4 && strncmp(name, "cuda", 4) == 0) {
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
      add_arch(c, common[i], true);
    return true;
  }
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    char suffix[2] = {known[i].suffix, 0};
    snprintf(text, sizeof text, "sm_%d%s", known[i].number, suffix);
    if (strlen(text) == len && strncmp(text, name, len) == 0) {
      add_arch(c, known[i], false);
      return true;
    }
  }
  return false;
}

/* The architecture of the host program, if that is what the name is. */
static const cy_arch *host_named(const char *name, size_t len) {
  for (const cy_arch *const *a = cy_arches; *a; a++)
    if ((*a)->format == CY_ELF && cy_arch_named(*a, name, len) && cy_arch_carried(*a))
      return *a;
  return NULL;
}

static void try_names(cy_nearest *nearest) { cy_nearest_try(nearest, "cuda", 4); }

static bool match(const char *spec, cy_machine *m, char **out_error) {
  if (strncmp(spec, "sm_", 3) && strncmp(spec, "cuda", 4))
    return false;
  cy_cuda_machine *c = calloc(1, sizeof *c);
  if (!c)
    cy_no_memory();
  m->arch = cy_arch_here();
  cy_cost_caps(NULL, &m->caps);
  for (const char *p = spec, *end = NULL; !end || *end; p = end + 1) {
    size_t len = strcspn(p, ",");
    const cy_arch *host = host_named(p, len);
    end = p + len;
    if (host)
      m->arch = host;
    else if (!add_named(c, p, len)) {
      bool windows = memmem(p, len, "windows", strlen("windows"));
      if (asprintf(out_error,
                   windows
                       ? "'%.*s': models for CUDA run on Linux (also in WSL 2); for Windows, compile for a CPU alone"
                       : "'%.*s' is no architecture that is supported",
                   (int)len, p) < 0)
        cy_no_memory();
      free(c);
      return false;
    }
  }
  m->state = c;
  m->caps.float8 = cy_cuda_has_float8(m);
  m->cpu = strdup(m->arch->base_cpu); /* of the host program */
  m->needs = strdup("");
  m->text = strdup(spec);
  return true;
}

static void release(cy_machine *m) { free(m->state); }

/* ---- kernels ---- */

/* For --explain. */
static const char *algorithm(const cy_machine *m, const cy_cuda_schedule *schedule, cy_arena *arena) {
  switch (schedule->kind) {
  case CY_CUDA_GROUPS:
    return "groups";
  case CY_CUDA_ROWS:
    return cy_cuda_rows_name(schedule, arena);
  case CY_CUDA_COLUMNS:
    return cy_arena_printf(arena, "columns by %d threads", schedule->group);
  case CY_CUDA_SCATTER:
    return cy_arena_printf(arena, "scatter by %d threads", schedule->group);
  case CY_CUDA_TILES:
    return cy_cuda_contract_name(m, schedule, arena);
  default:
    return "items";
  }
}

static const struct {
  const char *name, *option, *kernels;
} libraries[CY_LIBRARIES] = {[CY_LIBRARY_CUDNN] = {"cuDNN", "--cudnn", "convolution and no attention"},
                             [CY_LIBRARY_CUBLASLT] = {"cuBLASLt", "--cublaslt", "product"}};

static void prepare(const cy_machine *m, cy_program *p, cy_kernel_plan *plan) {
  const cy_cuda_machine *c = m->state;
  cy_cuda_schedule *schedule = cy_cuda_schedule_make(m, plan->kernel);
  plan->schedule = schedule;
  cy_arena *arena = cy_graph_arena(cy_kernel_graph(plan->kernel));
  if (schedule->kind == CY_CUDA_TILES)
    cy_cuda_contract_prepare(m, plan, schedule);
  cy_cuda_offer_match(m, plan->kernel, schedule);
  cy_cuda_lengths_prepare(p, plan->kernel, schedule);
  plan->algorithm = algorithm(m, schedule, arena);
  for (int i = 0; i < CY_LIBRARIES; i++)
    if (cy_cuda_offered_to(m, plan->kernel, schedule, i))
      plan->algorithm = cy_arena_printf(arena, "%s or %s", plan->algorithm, libraries[i].name);
  plan->weight += (uint64_t)(schedule->kind == CY_CUDA_TILES ? 400 : 40) * (uint64_t)c->narch;
}

/* ---- sources and images ---- */

typedef struct shard {
  cy_kernel_plan **plans;
  uint32_t n;
  cy_cuda_arch first; /* the architecture that --explain tells of */
  bool offered;       /* another library may compute one of them: results are compared */
} shard;

static char *print_source(const shard *s) {
  char *text = NULL;
  size_t size = 0;
  FILE *f = open_memstream(&text, &size);
  if (!f)
    cy_no_memory();
  bool matrix = false;
  for (uint32_t i = 0; i < s->n; i++)
    matrix |= cy_cuda_schedule_of(s->plans[i])->shared_bytes > 0;
  fprintf(f, "%s%s", cy_cuda_prelude, matrix ? cy_cuda_prelude_matrix : "");
  for (uint32_t i = 0; i < s->n; i++) {
    cy_bug_context = s->plans[i]->symbol;
    cy_cuda_print(f, s->plans[i]->kernel, cy_cuda_schedule_of(s->plans[i]), s->plans[i]->symbol);
  }
  if (s->offered)
    cy_cuda_agree_print(f, s->plans[0]->symbol);
  if (fclose(f))
    cy_no_memory();
  return text;
}

/* Reducing a large angle takes a table on the stack, which is the C library's business. */
static bool may_use_stack(void *ctx, const char *function) {
  const shard *s = ctx;
  for (uint32_t i = 0; i < s->n; i++) {
    cy_kernel *k = s->plans[i]->kernel;
    size_t length = strlen(s->plans[i]->symbol);
    if (strncmp(s->plans[i]->symbol, function, length) ||
        (function[length] && strcmp(function + length, "_combine") && strcmp(function + length, "_tma")))
      continue;
    for (cy_expr e = 1; e <= cy_expr_count(k); e++) {
      uint16_t op = cy_expr_of(k, e)->op;
      if (op == CY_OP_sin || op == CY_OP_cos || op == CY_OP_tan)
        return true;
    }
  }
  return false;
}

static cy_dtype factor_type(const cy_kernel_plan *plan) {
  const cy_karg_info *args;
  cy_kernel_args(plan->kernel, &args);
  const cy_contraction *c = cy_kernel_contraction(plan->kernel);
  return c->a_rounded ? c->a_rounded : c->rounded ? c->rounded : args[c->a].dtype;
}

static int wants_matrix(void *ctx, const char *function, cy_cuda_arch arch) {
  const shard *s = ctx;
  for (uint32_t i = 0; i < s->n; i++) {
    size_t length = strlen(s->plans[i]->symbol);
    if (strncmp(s->plans[i]->symbol, function, length) || !cy_cuda_schedule_of(s->plans[i])->stages)
      continue;
    bool groups = !strcmp(function + length, "_tma");
    if (groups || !function[length])
      return cy_cuda_matrix_opcode(cy_cuda_schedule_of(s->plans[i]), factor_type(s->plans[i]), groups, arch);
  }
  return 0;
}

/* The kernel whose instructions need the newest architecture. */
static const cy_kernel_plan *most_demanding(const shard *s) {
  const cy_kernel_plan *max = s->plans[0];
  for (uint32_t i = 1; i < s->n; i++)
    if (cy_cuda_schedule_of(s->plans[i])->min_arch > cy_cuda_schedule_of(max)->min_arch)
      max = s->plans[i];
  return max;
}

/* Does `arch` lack what the kernel multiplies by? Then a malloc'ed text. */
static char *lacks(const cy_kernel_plan *plan, cy_cuda_arch arch) {
  int min = cy_cuda_schedule_of(plan)->min_arch;
  char *text = NULL;
  if (arch.number >= min)
    return NULL;
  bool tf32 = factor_type(plan) == CY_F32;
  if (asprintf(&text, "kernel '%s' multiplies matrices of %s, which sm_%d lacks; sm_%d and newer have it: %s",
               plan->symbol, tf32 ? "tf32" : cy_dtype_of(factor_type(plan))->name, arch.number, min,
               tf32 ? "leave out --tf32" : "convert the model to f16") < 0)
    cy_no_memory();
  return text;
}

static bool any_offered(const cy_machine *m, const cy_kernel_plan *plans, uint32_t n, int library) {
  for (uint32_t i = 0; i < n; i++)
    if (cy_cuda_offered_to(m, plans[i].kernel, cy_cuda_schedule_of(&plans[i]), library))
      return true;
  return false;
}

/* Architectures whose matrix units our kernels reach by mma.sync alone: the share of the data sheet's rate that this has at
 * most (H100: published figures; B200: Ampere's rate per multiprocessor and cycle), and what to do. */
static const struct {
  cy_cuda_arch arch;
  double part;
  const char *advice;
} synchronous[] = {
    {{90, 0}, .62, "sm_90a has products of warpgroups (wgmma): name it, too, or instead"},
    {{100, 0}, .25, "there are no kernels for its tensor memory (tcgen05) yet"},
    {{100, 'a'}, .25, "there are no kernels for its tensor memory (tcgen05) yet"},
    {{103, 0}, .25, "there are no kernels for its tensor memory (tcgen05) yet"},
    {{110, 0}, .25, "there are no kernels for its tensor memory (tcgen05) yet"},
};

/* The row of an architecture, or -1. */
static int synchronous_row(cy_cuda_arch arch) {
  for (size_t i = 0; i < sizeof synchronous / sizeof *synchronous; i++)
    if (synchronous[i].arch.number == arch.number && synchronous[i].arch.suffix == arch.suffix)
      return (int)i;
  return -1;
}

static bool multiplies_matrices(const cy_kernel_plan *plans, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (cy_cuda_schedule_of(&plans[i])->stages)
      return true;
  return false;
}

/* Where warps have no products of floats of 8 bits (sm_90a: warpgroups have). */
static void warn_float8(cy_cuda_arch arch, const cy_kernel_plan *plans, uint32_t n, cy_diag_sink *diag) {
  bool any = false;
  for (uint32_t i = 0; i < n; i++)
    any |= cy_cuda_schedule_of(&plans[i])->stages && cy_dtype_is_float8(factor_type(&plans[i]));
  if (any && arch.number >= CY_CUDA_FLOAT8_ARCH && !cy_cuda_has_qmma(arch) && !(arch.number == 90 && arch.suffix))
    cy_diag_add(diag, CY_WARNING, NULL,
                "on sm_%d%.1s mma.sync makes halves of floats of 8 bits before it multiplies them: expect the time of "
                "--fp16, with "
                "weights half as large",
                arch.number, &arch.suffix);
}

static bool has_arch(const cy_cuda_machine *c, int number, char suffix) {
  for (int i = 0; i < c->narch; i++)
    if (c->arch[i].number == number && c->arch[i].suffix == suffix)
      return true;
  return false;
}

static void warn_synchronous(const cy_cuda_machine *c, cy_cuda_arch arch, cy_diag_sink *diag) {
  int row = synchronous_row(arch);
  if (row < 0 || (arch.number == 90 && has_arch(c, 90, 'a')))
    return;
  cy_diag_add(diag, CY_WARNING, NULL,
              "on sm_%d%.1s matrices are multiplied by mma.sync, at %.0f %% of the device's rate at most: %s",
              arch.number, &arch.suffix, 100 * synchronous[row].part, synchronous[row].advice);
}

/* Architectures that were not asked for by name are left out of what they lack; a model that needs all of its kernels
 * then does not run there, which its users would learn only when they load it. */
static void warn(const cy_machine *m, const cy_kernel_plan *plans, uint32_t n, cy_diag_sink *diag) {
  const cy_cuda_machine *c = m->state;
  for (int i = 0; i < CY_LIBRARIES; i++)
    if (m->libraries[i] == CY_LIBRARY_REQUIRE && !any_offered(m, plans, n, i))
      cy_diag_add(diag, CY_WARNING, NULL, "%s=require asks for nothing: no %s is of a kind that %s is given",
                  libraries[i].option, libraries[i].kernels, libraries[i].name);
  for (int i = 0; i < c->narch && multiplies_matrices(plans, n); i++)
    warn_synchronous(c, c->arch[i], diag);
  for (int i = 0; i < c->narch; i++)
    warn_float8(c->arch[i], plans, n, diag);
  for (int i = 0; i < c->narch; i++) {
    char *lack = NULL;
    for (uint32_t k = 0; k < n && !lack && c->optional[i]; k++)
      lack = lacks(&plans[k], c->arch[i]);
    if (lack)
      cy_diag_add(diag, CY_WARNING, NULL,
                  "the library will not run on sm_%d: %s, or name the architectures in --target", c->arch[i].number,
                  lack);
    free(lack);
  }
}

/* The fallback: PTX of the oldest architecture that has the instructions of arch `min`, but not older than PTX_ARCH unless
 * nothing newer was asked for. */
static cy_cuda_arch ptx_arch(const cy_cuda_machine *c, int min) {
  int newest = 0, oldest = min > PTX_ARCH ? min : PTX_ARCH;
  for (int i = 0; i < c->narch; i++)
    newest = c->arch[i].number > newest ? c->arch[i].number : newest;
  return (cy_cuda_arch){newest < oldest ? newest : oldest, 0};
}

/* The source for one architecture, and what became of it. */
typedef struct job {
  cy_cuda_arch arch;
  bool ptx, optional;
  cy_cuda_image image;
  char *error;
  int rc;
} job;

enum { MAX_JOBS = 17 }; /* architectures, and PTX */
typedef struct jobs {
  cy_nvrtc *nvrtc;
  const char *source;
  const cy_nvrtc_check *check;
  job job[MAX_JOBS];
  int n;
  atomic_int next;
  _Atomic int64_t *parts; /* of the machine */
} jobs;

static void *work(void *data) {
  jobs *all = data;
  for (int i; (i = atomic_fetch_add(&all->next, 1)) < all->n;) {
    job *j = &all->job[i];
    j->rc = cy_nvrtc_compile(all->nvrtc, all->source, j->arch, j->ptx, all->check, &j->image, &j->error);
    if (all->parts)
      all->parts[0]++;
  }
  return NULL;
}

/* By this thread and others beside it: NVRTC compiles several programs at a time. */
static void run_jobs(jobs *all, int threads) {
  pthread_t beside[MAX_JOBS];
  int n = 0;
  while (n + 1 < threads && n + 1 < all->n && pthread_create(&beside[n], NULL, work, all) == 0)
    n++;
  work(all);
  while (n > 0)
    pthread_join(beside[--n], NULL);
}

/* What is to be compiled; -1 with a text when an architecture that was asked for lacks an instruction. */
static int list_jobs(const cy_cuda_machine *c, shard *s, bool only_ptx, jobs *all, char **out_error) {
  const cy_kernel_plan *demanding = most_demanding(s);
  int rc = 0;
  for (int i = 0; rc == 0 && i < c->narch; i++) {
    char *lack = lacks(demanding, c->arch[i]);
    if (!lack && !only_ptx)
      all->job[all->n++] = (job){.arch = c->arch[i], .optional = c->optional[i]};
    if (lack && !c->optional[i]) {
      if (asprintf(out_error, "%s, or leave sm_%d out of --target", lack, c->arch[i].number) < 0)
        cy_no_memory();
      rc = -1;
    }
    free(lack);
  }
  all->job[all->n++] = (job){.arch = ptx_arch(c, cy_cuda_schedule_of(demanding)->min_arch), .ptx = true};
  return rc;
}

/* What the first architecture's compiler says goes to the plan; of two kernels that of the one by tensor maps. */
static void note_resources(void *ctx, const char *function, cy_cuda_arch arch, int registers, int shared) {
  const shard *s = ctx;
  for (uint32_t i = 0; i < s->n; i++) {
    size_t length = strlen(s->plans[i]->symbol);
    cy_kernel_code *code = &s->plans[i]->code;
    bool own = !strncmp(s->plans[i]->symbol, function, length), tma = own && !strcmp(function + length, "_tma");
    if (arch.number != s->first.number || arch.suffix != s->first.suffix || !own || (function[length] && !tma) ||
        (code->tma && !tma))
      continue;
    code->registers = registers;
    code->static_shared = shared;
    code->tma = tma;
  }
}

static int compile_all(const cy_machine *m, shard *s, bool only_ptx, cy_cuda_image *images, int *out_n,
                       char **out_error) {
  cy_nvrtc_check check = {may_use_stack, wants_matrix, s, note_resources};
  jobs all = {.nvrtc = cy_nvrtc_open(out_error), .check = &check};
  int rc = all.nvrtc ? list_jobs(m->state, s, only_ptx, &all, out_error) : -1;
  if (all.nvrtc)
    cy_nvrtc_describe(all.nvrtc, m->compiled_by);
  if (rc == 0) {
    char *source = print_source(s);
    all.source = source;
    all.parts = m->parts;
    if (all.parts)
      all.parts[1] = all.n;
    run_jobs(&all, m->threads);
    free(source);
    for (int i = 0; i < all.n; i++) {
      job *j = &all.job[i];
      bool left_out = j->rc == CY_NVRTC_NO_ARCH && j->optional; /* devices of it take the PTX */
      if (j->rc == 0)
        images[(*out_n)++] = j->image;
      if (rc == 0 && j->rc && !left_out)
        *out_error = j->error;
      else
        free(j->error);
      rc = rc || left_out ? rc : j->rc;
    }
  }
  cy_nvrtc_close(all.nvrtc);
  return rc;
}

/* ---- files ---- */

/* Of what blocks that share k hand on. */
static int64_t shared_bytes(const cy_kernel_plan *plan) {
  const cy_cuda_schedule *schedule = cy_cuda_schedule_of(plan);
  const cy_karg_info *args;
  cy_kernel_args(plan->kernel, &args);
  return schedule->shares ? schedule->share_elems * cy_dtype_of(args[schedule->share_arg].dtype)->bits / 8 : 0;
}

static void describe_kernels(shard *s, const char *symbol) {
  for (uint32_t i = 0; i < s->n; i++) {
    cy_kernel_code *code = &s->plans[i]->code;
    code->nphases = 1;
    code->shared_bytes = shared_bytes(s->plans[i]);
    snprintf(code->phase[0].symbol, sizeof code->phase[0].symbol, "%s", s->plans[i]->symbol);
    snprintf(code->images, sizeof code->images, "%s", symbol);
  }
}

static int emit(const cy_machine *m, cy_kernel_plan **plans, uint32_t n, cy_code_kind kind, const char *path,
                char **out_error) {
  shard s = {plans, n, ((const cy_cuda_machine *)m->state)->arch[0], false};
  for (uint32_t i = 0; i < n; i++)
    s.offered |= cy_cuda_schedule_of(plans[i])->offer != NULL;
  cy_cuda_image images[18] = {{.bytes = NULL}};
  char symbol[128];
  int nimages = 0, rc = 0;
  snprintf(symbol, sizeof symbol, "%s" CY_CUDA_IMAGES, plans[0]->symbol);
  if (kind == CY_CODE_LL) {
    images[nimages++].bytes = print_source(&s);
    images[0].size = strlen(images[0].bytes);
  } else {
    rc = compile_all(m, &s, kind == CY_CODE_ASM, images, &nimages, out_error);
  }
  FILE *f = rc == 0 ? fopen(path, "wb") : NULL;
  size_t bytes = kind == CY_CODE_CUBIN ? images[0].size : images[0].bytes ? strlen(images[0].bytes) : 0;
  bool ok = f && (kind == CY_CODE_OBJECT ? cy_cuda_images_write(f, m->arch, images, nimages, symbol)
                                         : fwrite(images[0].bytes, 1, bytes, f) == bytes);
  if (f && fclose(f))
    ok = false;
  if (rc == 0 && !ok) {
    if (asprintf(out_error, CY_CANNOT_WRITE "'%s': %s", path, strerror(errno)) < 0)
      cy_no_memory();
    rc = -1;
  }
  for (int i = 0; i < nimages; i++)
    free(images[i].bytes);
  describe_kernels(&s, symbol);
  return rc;
}

/* ---- peaks ---- */

/* Dense products of 8-bit integers in TOP/s, of f16 with accumulators in f32, of TF32 and of ordinary f32 in TFLOP/s, and GB/s:
 * a well known device of each architecture, by NVIDIA's data sheets. */
static const struct {
  int arch;
  const char *device;
  double byte, half, tf32, plain, bytes;
} peaks[] = {
    {75, "T4", 130, 65, 8.1, 8.1, 320},
    {80, "A100 40 GB", 624, 312, 156, 19.5, 1555},
    {86, "A10", 250, 125, 62.5, 31.2, 600},
    {89, "L4", 242, 121, 60, 30.3, 300},
    {90, "H100 SXM", 1979, 989, 494, 67, 3350},
    {100, "B200", 4500, 2250, 1125, 75, 8000},
    {120, "RTX 5090", 838, 209.5, 104.8, 104.8, 1792},
};

static cy_peak peak(const cy_machine *m, const cy_kernel_plan *plan) {
  const cy_cuda_machine *c = m->state;
  size_t row = 0;
  for (size_t i = 0; i < sizeof peaks / sizeof *peaks; i++)
    if (peaks[i].arch <= c->arch[0].number)
      row = i;
  double flops = peaks[row].plain;
  if (plan && cy_cuda_schedule_of(plan)->stages) {
    cy_dtype t = factor_type(plan);
    int slower = synchronous_row(c->arch[0]);
    bool wide = cy_dtype_is_float(t) && !cy_dtype_is_float8(t); /* floats of 8 bits are as fast as integers */
    flops = t == CY_F32 ? peaks[row].tf32 : wide ? peaks[row].half : peaks[row].byte;
    flops *= slower < 0 ? 1 : synchronous[slower].part;
    flops *= cy_dtype_is_float8(t) && slower >= 0 ? 0.5 : 1; /* there they become halves first */
  }
  return (cy_peak){peaks[row].device, flops * 1e12, peaks[row].bytes * 1e9};
}

/* Tensor cores multiply every half. */
static bool half_factors(const cy_machine *m, cy_dtype half, const cy_graph *g, const cy_node_info *n,
                         const int64_t *sizes) {
  (void)m, (void)half, (void)g, (void)n, (void)sizes;
  return true;
}

const cy_target cy_target_cuda = {
    .name = "cuda",
    .tf32 = true,
    .libraries = true,
    .caps = {.device = true,
             .max_head = 256,
             .busy_parts = 256,
             .mixed_bytes = true,
             .float_codes = true,
             .few_rows = CY_CUDA_FEW_ROWS,
             .few_queries = CY_CUDA_FEW_QUERIES,
             .attention_rounds = true,
             .scales_per_place = true,
             .finds_maxima = 16,
             .maxima_of = cy_cuda_contract_finds_maxima,
             .supports = cy_cuda_contract_supports,
             .half_factors = half_factors},
    .peak = peak,
    .occupancy = cy_cuda_occupancy,
    .specs = SPECS,
    .match = match,
    .try_names = try_names,
    .release = release,
    .prepare = prepare,
    .warn = warn,
    .pack = cy_cuda_contract_pack,
    .emit = emit,
    .host = &cy_host_cuda,
};
