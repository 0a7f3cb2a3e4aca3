/* kernels_test.c - CUDA kernels run without a GPU: the printed text through the shim (shim.h) against the interpreter.
 *
 * All cases are printed into one file, compiled once by the machine's C compiler and loaded; then every case runs under
 * each schedule of threads with several seeds. Without a C compiler everything is skipped. CY_TEST_KEEP=DIR keeps the
 * text there.
 */
#define _GNU_SOURCE
#include "tests/cuda/kernel_cases.h"

#include <dlfcn.h>
#include <unistd.h>

typedef int launch_fn(void (*kernel)(void), int threads, long long blocks, int shared, const uint64_t *slots,
                      int nslots, int schedule, unsigned seed);

static char dir[256];
/* The kernels as most architectures have them, and those with matrix instructions as sm_90a has them. */
enum { COMMON, WARPGROUPS, VARIANTS };
static void *library[VARIANTS];
static launch_fn *launch[VARIANTS];
static uint64_t seed = 1;

/* ---- printing and compiling ---- */

#ifdef __SANITIZE_ADDRESS__
#define SANITIZE "-fsanitize=address"
#else
#define SANITIZE ""
#endif

static bool in_variant(int i, int variant) { return variant == COMMON || cases[i].form->stages; }

static bool compile_cases(int variant) {
  char path[300], command[1200];
  snprintf(path, sizeof path, "%s/kernels%d.c", dir, variant);
  FILE *f = fopen(path, "w");
  if (!f)
    return false;
  fprintf(f, "%s%s", cy_cuda_prelude, cy_cuda_prelude_matrix);
  for (int i = 0; i < ncases; i++)
    if (in_variant(i, variant))
      print_case(f, i);
  fclose(f);
  const char *cc = getenv("CC") ? getenv("CC") : "cc";
  snprintf(
      command, sizeof command,
      "%s -std=gnu11 -O1 -w -fno-strict-aliasing %s -DCY_WARPGROUPS=%d -shared -fPIC -I. -include tests/cuda/shim.h "
      "-o %s/kernels%d.so %s -lm",
      cc, SANITIZE, variant, dir, variant, path);
  if (system(command))
    return false;
  snprintf(path, sizeof path, "%s/kernels%d.so", dir, variant);
  library[variant] = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void *entry = library[variant] ? dlsym(library[variant], "cy_shim_launch") : NULL;
  memcpy(&launch[variant], &entry, sizeof entry);
  return entry != NULL;
}

/* ---- running ---- */

static uint64_t next_random(void) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return seed >> 33;
}

static size_t bytes_of(cy_dtype t, int64_t elems) { return ((size_t)elems * (size_t)cy_dtype_of(t)->bits + 7) / 8; }

static void fill(void *at, cy_dtype t, int64_t n, const kernel_case *c) {
  double lo = c->lo, hi = c->hi;
  if (lo == hi) {
    lo = -2;
    hi = 2;
  }
  for (int64_t i = 0; i < n; i++) {
    cy_scalar s = {.u = next_random() << 33 ^ next_random()};
    double r = lo + (hi - lo) * (double)next_random() / 2147483648.0;
    if (t == CY_BOOL)
      s.u &= 1;
    else if (cy_dtype_is_float(t))
      s.f = r;
    else if (c->ints)
      s.i = (int64_t)r;
    cy_scalar_store(at, t, (uint64_t)i, s);
  }
}

static bool same(cy_dtype t, cy_scalar a, cy_scalar b, const kernel_case *c) {
  if (!cy_dtype_is_float(t))
    return a.u == b.u;
  if (isnan(a.f) || isnan(b.f))
    return isnan(a.f) && isnan(b.f);
  return a.f == b.f || fabs(a.f - b.f) <= c->atol + c->rtol * fabs(b.f);
}

static int compare(const kernel_case *c, uint32_t arg, cy_dtype t, const void *got, const void *want) {
  int bad = 0;
  for (int64_t i = 0; i < c->elems[arg]; i++) {
    cy_scalar a = cy_scalar_load(got, t, (uint64_t)i), b = cy_scalar_load(want, t, (uint64_t)i);
    if (same(t, a, b, c) || bad++ >= 3)
      continue;
    if (cy_dtype_is_float(t))
      fprintf(stderr, "%s: a%u[%lld] is %.9g, not %.9g\n", c->what, arg, (long long)i, a.f, b.f);
    else
      fprintf(stderr, "%s: a%u[%lld] is %lld, not %lld\n", c->what, arg, (long long)i, (long long)a.i, (long long)b.i);
  }
  return bad;
}

static int64_t scratch_bytes(const kernel_case *c, const cy_karg_info *arg, int64_t blocks) {
  int64_t elems = cy_dim_eval(g, arg->elems, c->syms);
  return blocks * (c->form->stripes ? c->form->stripes : 1) * (int64_t)bytes_of(arg->dtype, elems);
}

/* Fewer blocks than wanted, for groups: they must go on with further tasks. */
static int64_t blocks_for(const kernel_case *c) {
  int64_t n = cy_dim_eval(g, c->form->blocks, c->syms);
  return c->form->kind == CY_CUDA_GROUPS && n > 2 ? n - 1 : n;
}

static int run_once(const kernel_case *c, int variant, void (*kernel)(void), int schedule, unsigned s) {
  const cy_karg_info *args;
  const cy_dim *dims;
  uint32_t n = cy_kernel_args(c->k, &args), ndims = cy_kernel_dims(c->k, &dims);
  int64_t blocks = blocks_for(c);
  void *got[MAX_ARGS], *want[MAX_ARGS];
  uint64_t slots[48];
  int bad = 0;
  for (uint32_t i = 0; i < n; i++) {
    bool scratch = args[i].kind == CY_ARG_SCRATCH;
    size_t bytes = scratch ? (size_t)scratch_bytes(c, &args[i], blocks) : bytes_of(args[i].dtype, c->elems[i]);
    got[i] = aligned_alloc(64, (bytes + 127) / 64 * 64);
    want[i] = aligned_alloc(64, (bytes + 127) / 64 * 64);
    memset(got[i], 0xff, (bytes + 127) / 64 * 64);
    if (args[i].kind == CY_ARG_READ)
      fill(got[i], args[i].dtype, c->elems[i], c);
    memcpy(want[i], got[i], bytes);
    slots[i] = (uint64_t)(uintptr_t)got[i];
  }
  for (uint32_t i = 0; i < ndims; i++)
    slots[n + i] = (uint64_t)cy_dim_eval(g, dims[i], c->syms);
  if (launch[variant](kernel, c->form->threads, blocks, c->form->shared_bytes, slots, (int)(n + ndims), schedule, s)) {
    fprintf(stderr, "%s: a barrier that not all threads reach\n", c->what);
    bad++;
  }
  cy_kernel_interpret(c->k, want, c->syms, 0, cy_kernel_tasks_eval(c->k, c->syms));
  for (uint32_t i = 0; i < n; i++) {
    if (args[i].kind == CY_ARG_WRITE)
      bad += compare(c, i, args[i].dtype, got[i], want[i]);
    free(got[i]);
    free(want[i]);
  }
  return bad;
}

static void run_variant(const char *prefix, int variant) {
  for (int i = 0; i < ncases; i++) {
    if (strncmp(cases[i].what, prefix, strlen(prefix)) || !in_variant(i, variant))
      continue;
    char symbol[32];
    void (*kernel)(void);
    snprintf(symbol, sizeof symbol, "case%d", i);
    void *entry = dlsym(library[variant], symbol);
    memcpy(&kernel, &entry, sizeof kernel);
    cy_cuda_form_kind kind = cases[i].form->kind;
    int schedules = kind == CY_CUDA_ITEMS ? 1 : kind == CY_CUDA_TILES ? 3 : 5, bad = 0;
    for (int s = 0; s < schedules && !bad; s++)
      bad = run_once(&cases[i], variant, kernel, s < 3 ? s : s - 2, (unsigned)(s + 7 * i));
    if (bad)
      CHECK_FAIL("%s (kernel %s%s): %d wrong", cases[i].what, symbol, variant ? ", warpgroups" : "", bad);
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
  run_cases("index");
  run_cases("window");
}
static void test_reductions(void) { run_cases("reduce"); }
static void test_scratch(void) { run_cases("softmax"); }
static void test_matmul(void) { run_cases("matmul"); }
static void test_conv(void) { run_cases("conv"); }

static const check_test tests[] = {
    {"ops", test_ops},         {"loops", test_loops},   {"reductions", test_reductions},
    {"scratch", test_scratch}, {"matmul", test_matmul}, {"conv", test_conv},
};

int main(int argc, char **argv) {
  cy_diag_sink *diag = cy_diag_create();
  const char *keep = getenv("CY_TEST_KEEP");
  g = cy_graph_create(diag, "test");
  snprintf(dir, sizeof dir, "%s", keep ? keep : "/tmp/cyto-cuda-XXXXXX");
  if (!keep && !mkdtemp(dir))
    return 1;
  add_all_cases();
  schedule_cases();
  if (system("cc --version >/dev/null 2>&1")) {
    printf("no C compiler to run kernels with\n0 passed, 0 failed, %d skipped\n", CHECK_COUNT(tests));
    return 0;
  }
  int rc = compile_cases(COMMON) && compile_cases(WARPGROUPS) ? check_main(argc, argv, tests, CHECK_COUNT(tests)) : 1;
  char command[320];
  snprintf(command, sizeof command, "rm -rf '%s'", dir);
  if (!keep && system(command))
    rc = 1;
  free_cases();
  cy_graph_destroy(g);
  cy_diag_destroy(diag);
  return rc;
}
