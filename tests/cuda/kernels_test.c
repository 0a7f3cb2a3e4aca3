/* kernels_test.c - CUDA kernels run without a GPU: the printed text through the shim (shim.h) against the interpreter.
 *
 * All cases are printed into one file, compiled once by the machine's C compiler and loaded; then every case runs under
 * each schedule of threads, groups with several seeds. Without a C compiler everything is skipped. CY_TEST_KEEP=DIR
 * keeps the text there.
 */
#define _GNU_SOURCE
#include "tests/cuda/shim_run.h"

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
  if (cases[i].form->packed_k && cases[i].form->tma_blocks && variant != TENSORS)
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
  library[variant] = open_library(path, "cy_shim_launch", &launch[variant]);
  return library[variant] != NULL;
}

static bool share_library(void) {
  library[TENSORS] = library[WARPGROUPS];
  launch[TENSORS] = launch[WARPGROUPS];
  return true;
}

/* ---- running ---- */

static void run_variant(const char *prefix, int variant) {
  how.library = library[variant];
  how.launch = launch[variant];
  how.arch = variant == COMMON ? (cy_cuda_arch){80, 0} : (cy_cuda_arch){90, 'a'};
  how.tensors = variant == TENSORS;
  for (int i = 0; i < ncases; i++) {
    if (strncmp(cases[i].what, prefix, strlen(prefix)) || !in_variant(i, variant))
      continue;
    char symbol[32];
    snprintf(symbol, sizeof symbol, "case%d", i);
    cy_cuda_form_kind kind = cases[i].form->kind;
    int turns = kind == CY_CUDA_ITEMS ? 1 : kind == CY_CUDA_GROUPS ? 5 : 3;
    how.shifted = turns; /* once more */
    int bad = case_run(&cases[i], symbol, turns + 1, launch_shim);
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
