/* kernels_test.c - CUDA kernels run without a GPU: the printed text through the shim (shim.h) against the interpreter.
 *
 * All cases are printed into one file, compiled once by the machine's C compiler and loaded; then every case runs under
 * each schedule of threads, groups with several seeds. Without a C compiler everything is skipped. CY_TEST_KEEP=DIR keeps the
 * text there.
 */
#define _GNU_SOURCE
#include "tests/cuda/case_run.h"
#include "tests/cuda/shim_map.h"

#include <dlfcn.h>
#include <unistd.h>

typedef int launch_fn(void (*kernel)(void), int threads, long long blocks, int shared, const uint64_t *slots,
                      int nslots, int schedule, unsigned seed);

static char dir[CHECK_PATH];
/* The kernels as most architectures have them; those with matrix instructions as sm_90a has them, the ones that read by
 * tensor maps among them. */
enum { COMMON, WARPGROUPS, TENSORS, VARIANTS };
static void *library[VARIANTS];
static int ran[VARIANTS]; /* kernels */
static launch_fn *launch[VARIANTS];

/* ---- printing and compiling ---- */

/* Convolutions that read by tensor maps are there for those alone: others run in the other variants. */
static bool in_variant(int i, int variant) {
  if (cases[i].form->packed_k && variant != TENSORS)
    return false;
  return variant == COMMON || (variant == TENSORS ? cases[i].form->tma_blocks > 0 : cases[i].form->stages > 0);
}

static bool compile_cases(int variant) {
  char path[300], command[1200];
  snprintf(path, sizeof path, "%s/kernels%d.c", dir, variant);
  FILE *f = fopen(path, "w");
  if (!f)
    return false;
  fprintf(f, "%s%s", cy_cuda_prelude, cy_cuda_prelude_matrix);
  for (int i = 0; i < ncases; i++)
    if (in_variant(i, variant) || (variant == WARPGROUPS && in_variant(i, TENSORS)))
      print_case(f, i);
  fclose(f);
  const char *cc = getenv("CC") ? getenv("CC") : "cc";
  snprintf(command, sizeof command,
           "%s " CY_SHIM_FLAGS " -DCY_WARPGROUPS=%d -o %s/kernels%d.so %s " CY_SHIM_OBJECT " -lm", cc, variant, dir,
           variant, path);
  if (system(command))
    return false;
  snprintf(path, sizeof path, "%s/kernels%d.so", dir, variant);
  library[variant] = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void *entry = library[variant] ? dlsym(library[variant], "cy_shim_launch") : NULL;
  memcpy(&launch[variant], &entry, sizeof entry);
  return entry != NULL;
}

static bool share_library(void) {
  library[TENSORS] = library[WARPGROUPS];
  launch[TENSORS] = launch[WARPGROUPS];
  return true;
}

/* ---- running ---- */

static struct {
  int variant, schedule;
  unsigned seed;
} how;

/* Each turn has a schedule of its own, later ones the random ones again. */
static void choose_schedule(const kernel_case *c, int turn) {
  how.schedule = turn < 3 ? turn : turn - 2;
  how.seed = (unsigned)(turn + 7 * (c - cases));
}

static bool shim_launch(const char *symbol, int threads, int64_t blocks, int shared, const uint64_t *slots, int n) {
  void (*kernel)(void);
  void *entry = dlsym(library[how.variant], symbol);
  memcpy(&kernel, &entry, sizeof kernel);
  return !launch[how.variant](kernel, threads, blocks, shared, slots, n, how.schedule, how.seed);
}

static bool launch_tensors(const kernel_case *c, const char *symbol, case_memory *memory, uint64_t *slots, int n) {
  shim_map maps[2];
  char name[64];
  snprintf(name, sizeof name, "%s_tma", symbol);
  for (int b = 0; b < 2; b++) {
    cy_cuda_tensor t;
    shim_map *m = &maps[b];
    uint64_t stride[CY_CUDA_TMA_RANK];
    case_tensor(c, b, &t, m->extent, stride);
    m->address = (uint64_t)(uintptr_t)memory->got[t.arg];
    m->bytes = (uint8_t)(cy_dtype_of(t.type)->bits / 8);
    for (int i = 0; i < CY_CUDA_TMA_RANK; i++) {
      m->stride[i] = i ? stride[i - 1] : m->bytes;
      m->box[i] = (uint16_t)t.box[i];
      m->step[i] = (uint8_t)t.step[i];
    }
    slots[n + b] = (uint64_t)(uintptr_t)m;
    if (!shim_map_valid(m, t.rank)) {
      fprintf(stderr, "%s: no driver makes such a tensor map of its factor %d\n", c->what, b);
      return false;
    }
  }
  return shim_launch(name, CY_CUDA_TMA_THREADS, cy_dim_eval(g, c->form->tma_blocks, c->syms), CY_CUDA_TMA_SHARED, slots,
                     n + 2);
}

static bool launch_shim(const kernel_case *c, const char *symbol, int turn, case_memory *memory, int64_t blocks,
                        const uint64_t *sizes, int nsizes) {
  uint64_t slots[48];
  char combine[64];
  snprintf(combine, sizeof combine, "%s_combine", symbol);
  for (int i = 0; i < memory->n; i++)
    slots[i] = (uint64_t)(uintptr_t)memory->got[i];
  memcpy(slots + memory->n, sizes, (size_t)nsizes * sizeof *sizes);
  int n = memory->n + nsizes;
  choose_schedule(c, turn);
  if (how.variant == TENSORS)
    return launch_tensors(c, symbol, memory, slots, n);
  if (shim_launch(symbol, c->form->threads, blocks, c->form->shared_bytes, slots, n) &&
      (!c->form->shares || shim_launch(combine, CY_CUDA_COMBINE_THREADS, c->form->combine_blocks, 0, slots, n)))
    return true;
  fprintf(stderr, "%s: a barrier that not all threads reach\n", c->what);
  return false;
}

static void run_variant(const char *prefix, int variant) {
  for (int i = 0; i < ncases; i++) {
    if (strncmp(cases[i].what, prefix, strlen(prefix)) || !in_variant(i, variant))
      continue;
    char symbol[32];
    snprintf(symbol, sizeof symbol, "case%d", i);
    cy_cuda_form_kind kind = cases[i].form->kind;
    how.variant = variant;
    int bad = case_run(&cases[i], symbol, kind == CY_CUDA_ITEMS ? 1 : kind == CY_CUDA_GROUPS ? 5 : 3, launch_shim);
    ran[variant]++;
    if (bad)
      CHECK_FAIL("%s (kernel %s%s): %d wrong", cases[i].what, symbol,
                 variant == TENSORS ? ", tensors"
                 : variant          ? ", warpgroups"
                                    : "",
                 bad);
  }
}

static void run_cases(const char *prefix) {
  for (int variant = 0; variant < VARIANTS; variant++)
    run_variant(prefix, variant);
}

static void test_ops(void) {
  for (cy_op op = CY_OP_neg; op <= CY_OP_fma; op++) {
    char prefix[32];
    snprintf(prefix, sizeof prefix, "%s ", cy_op_of(op)->name);
    run_cases(prefix);
  }
}
static void test_loops(void) {
  run_cases("strides");
  run_cases("crossing");
  run_cases("index");
  run_cases("window");
}
static void test_reductions(void) { run_cases("reduce"); }
static void test_scratch(void) { run_cases("softmax"); }
static void test_rows(void) { run_cases("rows"); }
static void test_matmul(void) { run_cases("matmul"); }
static void test_conv(void) { run_cases("conv"); }
static void test_attention(void) { run_cases("attention"); }

static const check_test tests[] = {
    {"ops", test_ops},         {"loops", test_loops},         {"reductions", test_reductions},
    {"scratch", test_scratch}, {"rows", test_rows},           {"matmul", test_matmul},
    {"conv", test_conv},       {"attention", test_attention},
};

int main(int argc, char **argv) {
  cy_diag_sink *diag = cy_diag_create();
  const char *keep = getenv("CY_TEST_KEEP");
  g = cy_graph_create(diag, "test");
  if (keep)
    snprintf(dir, sizeof dir, "%s", keep);
  else if (!check_folder("cyto-cuda", dir))
    return 1;
  add_all_cases();
  schedule_cases();
  if (system("cc --version >/dev/null 2>&1")) {
    printf("no C compiler to run kernels with\n0 passed, 0 failed, %d skipped\n", CHECK_COUNT(tests));
    return 0;
  }
  int rc = compile_cases(COMMON) && compile_cases(WARPGROUPS) && share_library()
               ? check_main(argc, argv, tests, CHECK_COUNT(tests))
               : 1;
  fprintf(stderr, "  %d kernels ran, %d as sm_90a has them, %d by tensor maps\n", ran[COMMON], ran[WARPGROUPS],
          ran[TENSORS]);
  char command[320];
  snprintf(command, sizeof command, "rm -rf '%s'", dir);
  if (!keep && system(command))
    rc = 1;
  free_cases();
  cy_graph_destroy(g);
  cy_diag_destroy(diag);
  return rc;
}
