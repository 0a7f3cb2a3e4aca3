/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_test.c - CUDA kernels run without a GPU: the printed text through the shim (shim.h) against the interpreter.
 *
 * All cases are printed into one file, compiled once by the machine's C compiler and loaded; then every case runs under
 * each schedule of threads, groups with several seeds. `make check` makes the launch with shifted tensors and one or two others,
 * which differ from case to case; `make check-long` makes all. Without a C compiler everything is skipped. CY_TEST_KEEP=DIR keeps
 * the text there.
 */
#define _GNU_SOURCE
#include "tests/cuda/shim/shim_run.h"

#include <sys/wait.h>
#include <unistd.h>

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
  if (cases[i].schedule->packed_k && cases[i].schedule->tma_blocks && variant != TENSORS)
    return false;
  return variant == COMMON || (variant == TENSORS ? cases[i].schedule->tma_blocks > 0 : cases[i].schedule->stages > 0);
}

/* Makes a library of DIR/NAME.c. */
static void *compile_file(const char *name, int variant, launch_fn **out_launch) {
  char path[300], command[1200];
  const char *cc = getenv("CC") ? getenv("CC") : "cc";
  snprintf(path, sizeof path, "%s/%s.so", dir, name);
  snprintf(command, sizeof command, "%s " CY_SHIM_FLAGS " -DCY_WARPGROUPS=%d -o %s %s/%s.c " CY_SHIM_OBJECT " -lm", cc,
           variant != COMMON, path, dir, name);
  return system(command) ? NULL : open_library(path, "cy_shim_launch", out_launch);
}

static bool compile_cases(int variant) {
  char path[300], name[20];
  snprintf(name, sizeof name, "kernels%d", variant);
  snprintf(path, sizeof path, "%s/%s.c", dir, name);
  FILE *f = fopen(path, "w");
  if (!f)
    return false;
  fprintf(f, "%s%s", cy_cuda_prelude, cy_cuda_prelude_matrix);
  for (int i = 0; i < ncases; i++)
    if (in_variant(i, variant) || (variant == WARPGROUPS && in_variant(i, TENSORS)))
      print_case(f, i);
  fclose(f);
  library[variant] = compile_file(name, variant, &launch[variant]);
  return library[variant] != NULL;
}

static bool share_library(void) {
  library[TENSORS] = library[WARPGROUPS];
  launch[TENSORS] = launch[WARPGROUPS];
  return true;
}

/* ---- running ---- */

static void choose_variant(int variant) {
  how.library = library[variant];
  how.launch = launch[variant];
  how.arch = variant == COMMON ? (cy_cuda_arch){80, 0} : (cy_cuda_arch){90, 'a'};
  how.tensors = variant == TENSORS;
}

static void run_variant(int i, int variant, case_memory *memory) {
  char symbol[32];
  snprintf(symbol, sizeof symbol, "case%d", i);
  cy_cuda_schedule_kind kind = cases[i].schedule->kind;
  int iterations = kind == CY_CUDA_ITEMS ? 1 : kind == CY_CUDA_GROUPS ? 5 : 3;
  unsigned turns = (1u << (iterations + 1)) - 1;
  choose_variant(variant);
  how.shifted = iterations; /* once more */
  if (kind != CY_CUDA_ITEMS && !check_long()) {
    int first = i / 2 + variant;
    turns = 1u << iterations | 1u << first % iterations;
    if (kind == CY_CUDA_GROUPS)
      turns |= 1u << (first + 2) % iterations;
  }
  int bad = case_launches(&cases[i], symbol, turns, launch_shim, memory);
  ran[variant]++;
  if (bad)
    CHECK_FAIL("%s (kernel %s%s): %d wrong", cases[i].what, symbol,
               variant == TENSORS ? ", tensors"
               : variant          ? ", warpgroups"
                                  : "",
               bad);
}

/* All variants of a kernel beside one run of the interpreter. */
static void run_cases(const char *prefix) {
  for (int i = 0; i < ncases; i++) {
    case_memory memory;
    if (strncmp(cases[i].what, prefix, strlen(prefix)))
      continue;
    case_begin(&cases[i], &memory);
    for (int variant = 0; variant < VARIANTS; variant++)
      if (in_variant(i, variant))
        run_variant(i, variant, &memory);
    case_end(&memory);
  }
}

static void test_ops(void) {
  for (cy_op op = CY_OP_neg; op < CY_OP_COUNT; op++) {
    char prefix[32];
    if (!cy_op_is_ew(op))
      continue;
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
static void test_scatter(void) { run_cases("scatter"); }
static void test_matmul(void) { run_cases("matmul"); }
static void test_conv(void) { run_cases("conv"); }
static void test_attention(void) { run_cases("attention"); }

/* ---- what fails on a device fails here ---- */

/* Kernels with something else in place of `right`; the results are wrong under some schedule. */
static const struct {
  const char *what, *right, *wrong;
  int variant;
} faults[] = {
    {"matmul 1x200x136x72 bf16", "    if (part + 1 < PARTS)\n      CY_SYNC();\n", "", COMMON},
    {"matmul 1x200x136x256 f16", "CY_COPY_WAIT(AHEAD / AT_ONCE - 1)", "CY_COPY_WAIT(AHEAD / AT_ONCE)", COMMON},
    {"matmul 1x72x264x328 bf16", "AHEAD (STAGES - AT_ONCE * (1 + WARPGROUPS))", "AHEAD (STAGES - AT_ONCE)",
     WARPGROUPS},
    {"matmul 1x72x264x328 bf16", "CY_COPY_WAIT(AHEAD / AT_ONCE - 1)", "CY_COPY_WAIT(AHEAD / AT_ONCE)", WARPGROUPS},
    {"matmul 1x72x264x328 bf16", "if (iterations % AT_ONCE > 0)", "if (0)", WARPGROUPS},
    {"matmul 1x72x264x328 bf16", "next + u < iterations", "next < iterations && !u", WARPGROUPS},
    {"conv rounded u8 32", "cy_held_max_end(maxima);", "", COMMON},
    {"conv maxima f16 64 -> 136 of 3 in turns", "    cy_held_max_end(maxima);\n#endif\n  }\n", "#endif\n  }\n", TENSORS},
    {"scatter add f32 1x2100", "      if (j < i)\n        continue;\n", "", COMMON},
    {"scatter add f32 1x2100", "== owner ?", ">= owner ?", COMMON},
    {"scatter add f32 1x2100", "begin + strand * 8", "begin + (255 - strand) * 8", COMMON},
    {"matmul 1x34x64x700 f16 B transposed rows", "each = (iterations + some - 1) / some", "each = iterations / some",
     COMMON},
    {"attention f16 1x4/2 2x900", "*lo += share * part", "*lo += share * BN", COMMON},
    {"attention f16 1x4/2 2x900", "share = WEIGH(z, r % M, 0, part[DV], top == none ? 0 : top)", "share = 1", COMMON},
    /* warpgroups that multiply in turns */
    {"matmul 3x104x264x456 f16", "      cy_barrier_wait(&turn[group], turns++);\n", "", TENSORS},
    {"matmul 3x104x264x456 f16", "      cy_barrier_arrive(&turn[0]);\n", "      cy_barrier_arrive(&turn[1]);\n", TENSORS},
    {"matmul 3x104x264x456 f16", "&turn[1 - group]", "&turn[group]", TENSORS},
    {"matmul 3x104x264x456 f16", "step += PINGPONG ? iterations : 0", "step += 0", TENSORS},
    {"matmul 3x104x264x456 f16", "int step = PINGPONG ? group * iterations : 0", "int step = 0", TENSORS},
    {"matmul 3x104x264x456 f16", "CONSUMERS / 32 / HALVES *", "CONSUMERS / 32 *", TENSORS},
    {"matmul 3x104x264x456 f16", "tile += HALVES * step_of_tiles", "tile += step_of_tiles", TENSORS},
    {"matmul 3x104x264x456 f16", "&empty[(step - 1) % STAGES], pair);\n      }", "&empty[step % STAGES], pair);\n      }",
     TENSORS},
    {"matmul 2x200x304x136 bf16", "if (lane < (pair ? 2 : 1))", "if (lane < 1)", TENSORS},
};

static bool write_fault(int fault, int i) {
  char path[300], *text = NULL;
  size_t size = 0;
  FILE *f = open_memstream(&text, &size);
  print_case(f, i);
  fclose(f);
  char *at = strstr(text, faults[fault].right);
  snprintf(path, sizeof path, "%s/fault.c", dir);
  f = at ? fopen(path, "w") : NULL;
  if (f) {
    fprintf(f, "%s%s%.*s%s%s", cy_cuda_prelude, cy_cuda_prelude_matrix, (int)(at - text), text, faults[fault].wrong,
            at + strlen(faults[fault].right));
    fclose(f);
  }
  free(text);
  return f != NULL;
}

/* In a process of its own: the shim ends it at what no device does well. */
static bool runs_right(int i, const char *symbol, case_memory *memory) {
  fflush(NULL);
  pid_t child = fork();
  if (!child) {
    if (!freopen("/dev/null", "w", stderr))
      _exit(2);
    _exit(case_launches(&cases[i], symbol, 0x1f, launch_shim, memory) ? 1 : 0);
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status);
}

static int case_named(const char *what) {
  int i = 0;
  while (i < ncases && strncmp(cases[i].what, what, strlen(what)))
    i++;
  return i;
}

/* Faults of one kernel follow each other: the interpreter runs once for all of these. */
static void test_faults(void) {
  case_memory memory = {0};
  for (int n = 0, before = -1; n < CHECK_COUNT(faults); n++) {
    char symbol[32];
    int i = case_named(faults[n].what);
    CHECK_REQUIRE(i < ncases && write_fault(n, i));
    if (i != before) {
      case_end(&memory);
      case_begin(&cases[i], &memory);
    }
    before = i;
    choose_variant(faults[n].variant);
    how.library = compile_file("fault", faults[n].variant, &how.launch);
    CHECK_REQUIRE(how.library);
    how.shifted = 0;
    case_quiet = true;
    snprintf(symbol, sizeof symbol, "case%d", i);
    if (runs_right(i, symbol, &memory))
      CHECK_FAIL("%s is right with '%s' in place of '%s'", cases[i].what, faults[n].wrong, faults[n].right);
    case_quiet = false;
    dlclose(how.library);
  }
  case_end(&memory);
}

static const check_test tests[] = {
    {"ops", test_ops},         {"loops", test_loops}, {"reductions", test_reductions},
    {"scratch", test_scratch}, {"rows", test_rows},   {"scatter", test_scatter},
    {"matmul", test_matmul},   {"conv", test_conv},   {"attention", test_attention},
    {"faults", test_faults},
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
