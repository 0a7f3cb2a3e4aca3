/* nvrtc_test.c - kernels compiled for every architecture where NVRTC is installed, and their machine code looked
 * through.
 *
 * Compiling already fails on spills and stack frames (nvrtc.c reads the log). The cubins are read once more without
 * that log: an instruction has 16 bytes, its low 12 bits are the opcode; loads and stores of local memory must not
 * occur, products must be made of fused multiply-adds. Without NVRTC the tests are skipped, with cytoc's own words.
 */
#define _GNU_SOURCE
#include "tests/cuda/kernel_cases.h"

static cy_nvrtc *nvrtc;
static char *missing;

/* ---- reading cubins ---- */

/* Adds up the opcodes of all functions: a cy_cubin_visitor. */
static void add_up(void *ctx, const char *function, const unsigned counts[CY_CUDA_OPCODES]) {
  unsigned *sums = ctx;
  (void)function;
  for (int i = 0; i < CY_CUDA_OPCODES; i++)
    sums[i] += counts[i];
}

/* ---- compiling ---- */

static bool stack_allowed(void *ctx, const char *function) {
  (void)ctx;
  (void)function;
  return false;
}

static bool wanted(const kernel_case *c, int i, const char *what, cy_cuda_arch arch) {
  static const char *const loops[] = {"strides", "crossing", "reduce", "softmax", "index", "window", "rows"};
  bool contraction = !strncmp(c->what, "matmul", 6) || !strncmp(c->what, "conv", 4), loop = false;
  if (!strncmp(c->what, "attention", 9))
    return *what == 'a' && c->form->least_arch <= arch.number;
  if (*what == 'a')
    return false;
  for (int n = 0; n < CHECK_COUNT(loops); n++)
    loop |= !strncmp(c->what, loops[n], strlen(loops[n]));
  if (*what == 'c')
    return contraction && !c->form->stages;
  if (*what == 'm' || *what == 'i')
    return c->form->stages && c->form->least_arch <= arch.number && c->ints == (*what == 'i');
  if (*what == 'l')
    return loop && (strncmp(c->what, "rows", 4) ? i % 7 == 0 : i % 3 == 0);
  bool angle = !strncmp(c->what, "sin ", 4) || !strncmp(c->what, "cos ", 4) || !strncmp(c->what, "tan ", 4);
  return !contraction && !loop && !angle && i % 32 == 0;
}

static void compile_for(const char *what, cy_cuda_arch arch, unsigned counts[CY_CUDA_OPCODES]) {
  char *text = NULL, *error = NULL;
  size_t size = 0;
  int printed = 0;
  FILE *f = open_memstream(&text, &size);
  cy_cuda_image image;
  cy_nvrtc_check check = {stack_allowed, NULL, NULL};
  fprintf(f, "%s%s", cy_cuda_prelude, strchr("mia", *what) ? cy_cuda_prelude_matrix : "");
  for (int i = 0; i < ncases; i++)
    if (wanted(&cases[i], i, what, arch)) {
      print_case(f, i);
      printed += cases[i].form->shares || (arch.suffix && cases[i].form->tma_blocks) ? 2 : 1;
    }
  fclose(f);
  if (cy_nvrtc_compile(nvrtc, text, arch, false, &check, &image, &error)) {
    CHECK_FAIL("sm_%d%c: %s", arch.number, arch.suffix ? arch.suffix : ' ', error);
  } else {
    CHECK_INT_EQ(cy_cubin_visit(image.bytes, image.size, add_up, counts), printed);
    CHECK_INT_EQ(counts[CY_CUDA_LDL] + counts[CY_CUDA_STL], 0);
  }
  free(error);
  free(text);
  free(image.bytes);
}

static void compile_all(const char *what) {
  static const cy_cuda_arch archs[] = {{75, 0}, {80, 0}, {89, 0}, {90, 'a'}, {120, 0}};
  if (!nvrtc)
    CHECK_SKIP(missing);
  for (int a = 0; a < CHECK_COUNT(archs); a++) {
    unsigned counts[CY_CUDA_OPCODES] = {0};
    compile_for(what, archs[a], counts);
    if (*what == 'c')
      CHECK(counts[CY_CUDA_FFMA] + counts[CY_CUDA_FFMA_CONSTANT] > 1000);
    if (*what == 'c' || *what == 'l') /* rows, and products of few rows */
      CHECK(counts[CY_CUDA_SHFL] > 50);
    if (*what == 'm') {
      CHECK(counts[CY_CUDA_HMMA] + 8 * counts[CY_CUDA_HGMMA] > 200 && (counts[CY_CUDA_LDSM] > 80 || archs[a].suffix));
      CHECK(!counts[CY_CUDA_UTMALDG] == !archs[a].suffix);
      CHECK(archs[a].suffix ? counts[CY_CUDA_HGMMA] > 20 : !counts[CY_CUDA_HGMMA]);
      CHECK(archs[a].number < 80 ? !counts[CY_CUDA_LDGSTS] : counts[CY_CUDA_LDGSTS] > 30);
      CHECK_INT_EQ(counts[CY_CUDA_FFMA] + counts[CY_CUDA_FFMA_CONSTANT], 0); /* nothing is left to the ordinary units */
    }
    if (*what == 'a')
      CHECK(counts[CY_CUDA_HMMA] > 500 && counts[CY_CUDA_LDSM] > 300 && counts[CY_CUDA_FFMA] > 2000);
    if (*what == 'i') {
      CHECK(counts[CY_CUDA_IMMA] > 150 && counts[CY_CUDA_LDSM] > 80 && !counts[CY_CUDA_HMMA]);
      CHECK(archs[a].number < 80 ? !counts[CY_CUDA_LDGSTS] : counts[CY_CUDA_LDGSTS] > 20);
    }
  }
}

static void test_ops(void) { compile_all("ops"); }
static void test_loops(void) { compile_all("loops"); }
static void test_contractions(void) { compile_all("contractions"); }
static void test_matrix(void) { compile_all("matrix"); }
static void test_attention(void) { compile_all("attention"); }
static void test_integers(void) { compile_all("integers"); }

static int all_wanted(void *ctx, const char *function) {
  (void)function;
  return *(const int *)ctx;
}

/* A kernel that should have matrix instructions and has none, or others. */
static void test_missing_matrix(void) {
  cy_cuda_image image;
  char *error = NULL, text[100];
  int wanted = CY_CUDA_HMMA;
  cy_nvrtc_check check = {stack_allowed, all_wanted, &wanted};
  if (!nvrtc)
    CHECK_SKIP(missing);
  snprintf(text, sizeof text, "extern \"C\" __global__ void none(int *p) { *p = 3; }");
  CHECK_INT_EQ(cy_nvrtc_compile(nvrtc, text, (cy_cuda_arch){80, 0}, false, &check, &image, &error), -1);
  CHECK_STR_HAS(error, "kernel 'none' was compiled without matrix instructions");
  free(error);
  error = NULL;
  snprintf(text, sizeof text, "extern \"C\" __global__ void half(f32 *c, u32 *a) { cy_mma_f16(c, a, a + 4); }");
  char *source = malloc(strlen(cy_cuda_prelude) + strlen(cy_cuda_prelude_matrix) + sizeof text);
  sprintf(source, "%s%s%s", cy_cuda_prelude, cy_cuda_prelude_matrix, text);
  CHECK_INT_EQ(cy_nvrtc_compile(nvrtc, source, (cy_cuda_arch){80, 0}, false, &check, &image, &error), 0);
  free(image.bytes);
  wanted = CY_CUDA_IMMA;
  CHECK_INT_EQ(cy_nvrtc_compile(nvrtc, source, (cy_cuda_arch){80, 0}, false, &check, &image, &error), -1);
  CHECK_STR_HAS(error, "kernel 'half' was compiled without matrix instructions");
  free(source);
  free(error);
}

static bool stacked_allowed(void *ctx, const char *function) {
  (void)ctx;
  return !strcmp(function, "stacked");
}

/* An array that registers cannot hold is refused, unless the kernel may have it; registers that do not suffice always.
 */
static void test_stack(void) {
  static const char stacked[] = "extern \"C\" __global__ void stacked(float *x, const int *at, int n) {\n"
                                "  float a[64];\n  for (int i = 0; i < n; i++)\n    a[at[i] & 63] = x[i];\n"
                                "  x[0] = a[at[n] & 63];\n}\n";
  static const char spilled[] =
      "extern \"C\" __global__ __launch_bounds__(1024) void spilled(float *x) {\n"
      "  float a[128];\n#pragma unroll\n  for (int i = 0; i < 128; i++)\n    a[i] = x[i * 7];\n"
      "  __syncthreads();\n#pragma unroll\n  for (int i = 0; i < 128; i++)\n"
      "    x[i] = a[127 - i] * x[i + 999];\n}\n";
  cy_cuda_image image;
  char *error = NULL;
  cy_nvrtc_check none = {stack_allowed, NULL, NULL}, some = {stacked_allowed, NULL, NULL};
  if (!nvrtc)
    CHECK_SKIP(missing);
  CHECK_INT_EQ(cy_nvrtc_compile(nvrtc, stacked, (cy_cuda_arch){80, 0}, false, &none, &image, &error), -1);
  CHECK_STR_HAS(error, "kernel 'stacked' was compiled with 256 bytes of stack and 0 bytes of spills: a bug in cytoc");
  free(error);
  error = NULL;
  CHECK_INT_EQ(cy_nvrtc_compile(nvrtc, stacked, (cy_cuda_arch){80, 0}, false, &some, &image, &error), 0);
  free(image.bytes);
  CHECK_INT_EQ(cy_nvrtc_compile(nvrtc, spilled, (cy_cuda_arch){80, 0}, false, &some, &image, &error), -1);
  CHECK_STR_HAS(error, "kernel 'spilled' was compiled with ");
  CHECK(error && !strstr(error, " 0 bytes of spills"));
  free(error);
}

/* Equal source, equal bytes. */
static void test_reproducible(void) {
  cy_cuda_image a, b;
  char *error = NULL;
  cy_nvrtc_check check = {stack_allowed, NULL, NULL};
  if (!nvrtc)
    CHECK_SKIP(missing);
  CHECK_REQUIRE(!cy_nvrtc_compile(nvrtc, cy_cuda_prelude, (cy_cuda_arch){80, 0}, true, &check, &a, &error));
  CHECK_REQUIRE(!cy_nvrtc_compile(nvrtc, cy_cuda_prelude, (cy_cuda_arch){80, 0}, true, &check, &b, &error));
  CHECK(a.size == b.size && !memcmp(a.bytes, b.bytes, a.size));
  free(a.bytes);
  free(b.bytes);
}

static void test_refusal(void) {
  cy_cuda_image image;
  char *error = NULL;
  cy_nvrtc_check check = {stack_allowed, NULL, NULL};
  if (!nvrtc)
    CHECK_SKIP(missing);
  CHECK_INT_EQ(cy_nvrtc_compile(nvrtc, cy_cuda_prelude, (cy_cuda_arch){70, 0}, false, &check, &image, &error), -1);
  CHECK_STR_HAS(error, "does not know 'sm_70'");
  free(error);
}

static const check_test tests[] = {
    {"ops", test_ops},
    {"loops", test_loops},
    {"contractions", test_contractions},
    {"matrix", test_matrix},
    {"integers", test_integers},
    {"attention", test_attention},
    {"missing matrix", test_missing_matrix},
    {"stack", test_stack},
    {"reproducible", test_reproducible},
    {"refusal", test_refusal},
};

int main(int argc, char **argv) {
  cy_diag_sink *diag = cy_diag_create();
  g = cy_graph_create(diag, "test");
  nvrtc = cy_nvrtc_open(&missing);
  add_all_cases();
  schedule_cases();
  int rc = check_main(argc, argv, tests, CHECK_COUNT(tests));
  free_cases();
  free(missing);
  cy_nvrtc_close(nvrtc);
  cy_graph_destroy(g);
  cy_diag_destroy(diag);
  return rc;
}
