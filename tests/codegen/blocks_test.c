/* SPDX-License-Identifier: Apache-2.0 */
/* blocks_test.c - products with weights in integers (microkernel_widen.c) against sums in double precision, in the code
 * for this CPU and for AVX2, and of factors rounded to bf16 (int_blocks.c) for one with AMX, functions being in the
 * place of instructions (tile_functions.h), and of rows in 8 bits (quantised_rows.c) and in 24 (int_few_rows.c), whose
 * results are the same bytes everywhere: 4 and 8 bits, signed, with a zero for all and with zero points, panels that
 * are not full, and rows that only running tells. Weights, scales and zero points end where a page ends behind which
 * nothing may be read.
 */
#include "tile_functions.h"

#include "codegen/cpu/int8/int_gemm.h"

#include <sys/mman.h>
#include <unistd.h>

typedef struct blocks_case {
  int bits, is_signed, zeros;
  int64_t middle, block, m, n, k;
  int dynamic;    /* m comes from a slot */
  int transposed; /* A is [k][m] */
} blocks_case;

static const blocks_case cases[] = {
    {4, 0, 0, 8, 32, 3, 64, 64, 0, 0},      {4, 0, 1, 0, 32, 17, 96, 320, 0, 0},
    {4, 0, 1, 0, 32, 7, 192, 320, 0, 0},    {8, 1, 0, 0, 16, 2, 640, 320, 0, 0},
    {4, 0, 0, 0, 128, 1, 517, 256, 0, 0},   {4, 0, 1, 0, 50, 40, 131, 250, 1, 0},
    {4, 0, 0, 8, 2, 5, 33, 6, 0, 0},        {4, 0, 0, 3, 256, 150, 1030, 512, 1, 0},
    {8, 1, 0, 0, 64, 2, 80, 192, 0, 0},     {8, 0, 0, 128, 32, 130, 47, 96, 0, 0},
    {8, 0, 1, 0, 128, 200, 300, 384, 1, 0}, {8, 1, 0, 0, 1, 9, 16, 7, 0, 0},
    {8, 0, 1, 0, 97, 33, 7, 194, 0, 1},     {4, 0, 1, 0, 32, 70, 200, 160, 1, 1},
    {8, 1, 0, 0, 64, 17, 128, 512, 0, 0},   {4, 0, 1, 0, 16, 600, 40, 64, 1, 0},
    {4, 0, 0, 8, 32, 1, 256, 352, 0, 0},    {4, 0, 1, 0, 16, 4, 64, 48, 1, 0},
    {4, 0, 1, 0, 64, 1, 4224, 128, 0, 0},   {4, 0, 0, 5, 128, 3, 8269, 128, 0, 0},
    {4, 0, 1, 0, 128, 2, 129, 384, 1, 1},   {4, 0, 0, 0, 24, 4, 127, 72, 0, 0},
};

#define TILES "sapphirerapids"

/* The last bytes of a page, in front of one that cannot be read. */
static void *before_hole(size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
  char *p = mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED || mprotect(p + whole, page, PROT_NONE))
    die("mmap", "no memory");
  return p + whole - bytes;
}

static void free_before_hole(void *p, size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
  munmap((char *)p + bytes - whole, whole + page);
}

/* What a product does with its factors, on which CPU. */
typedef enum rounding { AS_THEY_ARE, BF16, QUANTISED_ROWS, ROWS24 } rounding;
typedef struct variant {
  const char *cpu;
  rounding rounding;
  bool spelled; /* vpdpbusd, in plain instructions */
} variant;
static const char *const rounding_names[] = {"", ", bf16", ", rows in 8 bits", ", rows in 24 bits"};

typedef struct setup {
  job j;
  rounding rounding;
  cy_gemm_desc d;
  store epilogue;
  float *a, *bias, *out, *scale;
  uint8_t *q, *zero;
  size_t n_q, n_scale;
} setup;

static int64_t tile_of(const blocks_case *c) { return c->n % 64 ? c->n : 64; }

static float as_bf16(float v) {
  uint32_t u;
  memcpy(&u, &v, sizeof u);
  u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
  memcpy(&v, &u, sizeof v);
  return v;
}

static double weight(const setup *s, const blocks_case *c, int64_t k, int64_t n) {
  int64_t rows = c->block * c->bits / 8, b = k / c->block, i = k % c->block;
  int64_t tile = tile_of(c);
  uint8_t byte = s->q[b * rows * c->n + (n / tile * rows + i % rows) * tile + n % tile];
  int code = c->is_signed ? (int8_t)byte : byte;
  if (c->bits == 4)
    code = i < rows ? byte & 15 : byte >> 4;
  int64_t zero = c->zeros ? s->zero[b * c->n + n] : c->middle;
  float scale = s->scale[b * c->n + n];
  return s->rounding == BF16 ? as_bf16(fmaf((float)code, scale, -((float)zero * scale)))
                             : (double)(code - zero) * scale;
}

static float element(const setup *s, const blocks_case *c, int64_t m, int64_t k) {
  return s->a[c->transposed ? k * c->m + m : m * c->k + k];
}

static double factor(const setup *s, const blocks_case *c, int64_t m, int64_t k) {
  float a = element(s, c, m, k), max = 0;
  if (s->rounding != QUANTISED_ROWS)
    return s->rounding == BF16 ? as_bf16(a) : a;
  for (int64_t i = k / c->block * c->block; i < (k / c->block + 1) * c->block; i++)
    max = fmaxf(max, fabsf(element(s, c, m, i)));
  return rint((double)a * (127 / max)) * (double)(max / 127);
}

static double error_of(const setup *s, const blocks_case *c) {
  double e = 0, all = 1e-30, *w = malloc((size_t)(c->k * (c->n + 1)) * sizeof *w), *a = w + c->k * c->n;
  if (!w)
    die("malloc", "no memory");
  for (int64_t i = 0; i < c->k * c->n; i++)
    w[i] = weight(s, c, i % c->k, i / c->k);
  for (int64_t m = 0; m < c->m; m++) {
    for (int64_t k = 0; k < c->k; k++)
      a[k] = factor(s, c, m, k);
    for (int64_t n = 0; n < c->n; n++) {
      double sum = s->bias[n];
      for (int64_t k = 0; k < c->k; k++)
        sum += a[k] * w[n * c->k + k];
      double d = s->out[m * c->n + n] - sum;
      e += d * d;
      all += sum * sum;
    }
  }
  free(w);
  return sqrt(e / all);
}

static void begin(setup *s, const blocks_case *c, const variant *v) {
  char *error = NULL;
  *s = (setup){.rounding = v->rounding, .j = {.cg = cy_cg_create(v->cpu, &error), .scratch_slot = 5, .shared_slot = 6}};
  if (!s->j.cg)
    die(v->cpu, error);
  s->j.cg->vnni_spelled = v->spelled;
  cy_cg_module(s->j.cg, "blocks");
  s->n_q = (size_t)(c->k * c->n * c->bits / 8);
  s->n_scale = (size_t)(c->k / c->block * c->n);
  s->a = random_floats(c->m * c->k);
  s->bias = random_floats(c->n);
  s->out = nan_floats(c->m * c->n);
  s->q = before_hole(s->n_q);
  s->scale = before_hole(s->n_scale * sizeof(float));
  s->zero = before_hole(s->n_scale);
  for (size_t i = 0; i < s->n_q; i++)
    s->q[i] = (uint8_t)(random_float() * 127 + 128);
  for (size_t i = 0; i < s->n_scale; i++) {
    s->scale[i] = random_float() + 1.5f;
    s->zero[i] = (uint8_t)((random_float() + 1) * (c->bits == 4 ? 7 : 127));
  }
  void *const ptr[] = {s->a, s->q, s->out, s->bias, s->scale};
  for (int i = 0; i < 5; i++)
    s->j.args[i].ptr = ptr[i];
  s->j.args[7].ptr = s->zero;
  s->j.args[8].size = c->m;
  s->epilogue = (store){.n_idx = 2, .stride = {cy_cconst(c->n), cy_cconst(1)}, .out_slot = 2, .bias_slot = 3};
  s->d = (cy_gemm_desc){.name = "blocks",
                        .m = c->dynamic ? cy_cslot(8) : cy_cconst(c->m),
                        .n = cy_cconst(c->n),
                        .k = cy_cconst(c->k),
                        .am = cy_cconst(c->transposed ? 1 : c->k),
                        .ak = c->transposed && c->dynamic ? cy_cslot(8) : cy_cconst(c->transposed ? c->m : 1),
                        .bk = cy_cconst(tile_of(c)),
                        .bn = cy_cconst(1),
                        .a_slot = 0,
                        .b_slot = 1,
                        .scratch_slot = 5,
                        .shared_slot = 6,
                        .ints = {c->bits, c->is_signed, s->rounding == BF16, s->rounding == QUANTISED_ROWS,
                                 s->rounding == ROWS24, tile_of(c), c->block, c->middle, 4, c->zeros ? 7 : -1},
                        .epilogue = store_epilogue(&s->epilogue)};
}

static void end(setup *s) {
  guarded_free((char *)s->a);
  guarded_free((char *)s->bias);
  guarded_free((char *)s->out);
  free_before_hole(s->q, s->n_q);
  free_before_hole(s->scale, s->n_scale * sizeof(float));
  free_before_hole(s->zero, s->n_scale);
  job_end(&s->j);
}

/* Puts a function in the place of the instruction that rounds two vectors of floats. */
static void replace_rounding(cy_cg *cg) {
  LLVMValueRef fn = LLVMGetNamedFunction(cg->module, "llvm.x86.avx512bf16.cvtne2ps2bf16.512"), half[2];
  LLVMTypeRef ints = LLVMVectorType(cg->i32, 16), halves = LLVMVectorType(cg->i16, 16);
  if (!fn)
    die("bf16", "the code rounds nothing");
  LLVMSetValueName2(fn, "round_bf16", 10);
  LLVMSetLinkage(fn, LLVMInternalLinkage);
  LLVMPositionBuilderAtEnd(cg->b, LLVMAppendBasicBlockInContext(cg->ctx, fn, ""));
  for (unsigned i = 0; i < 2; i++) {
    LLVMValueRef bits = LLVMBuildBitCast(cg->b, LLVMGetParam(fn, 1 - i), ints, ""),
                 by = cy_splat(cg, cy_i32(cg, 16), 16);
    LLVMValueRef odd = LLVMBuildAnd(cg->b, LLVMBuildLShr(cg->b, bits, by, ""), cy_splat(cg, cy_i32(cg, 1), 16), "");
    bits = LLVMBuildAdd(cg->b, LLVMBuildAdd(cg->b, bits, odd, ""), cy_splat(cg, cy_i32(cg, 0x7fff), 16), "");
    half[i] = LLVMBuildTrunc(cg->b, LLVMBuildLShr(cg->b, bits, by, ""), halves, "");
  }
  LLVMBuildRet(cg->b, LLVMBuildBitCast(cg->b, cy_joined(cg, half[0], half[1]), LLVMVectorType(cg->bf16, 32), ""));
}

static void emit(setup *s) {
  if (s->rounding != BF16) {
    const cy_generator *by = s->rounding == QUANTISED_ROWS ? &cy_quantised_rows_generator
                             : s->rounding == ROWS24       ? &cy_few_rows_generator
                                                           : &cy_gemm_generator;
    job_generate(&s->j, by, &s->d, s->d.name);
    return;
  }
  job_generate(&s->j, &cy_int_blocks_generator, &s->d, s->d.name);
  replace_rounding(s->j.cg);
  if (!tile_functions_replace(s->j.cg->module))
    die("bf16", "the code has no tiles");
  code_for_this_cpu(s->j.cg);
}

/* Runs it; with `out`, what it gave goes there. */
static bool check(const blocks_case *c, const variant *v, float *out) {
  setup s;
  begin(&s, c, v);
  emit(&s);
  job_link(&s.j);
  tile_functions_define(s.j.jit);
  job_prepare(&s.j, "blocks", 3);
  memset(s.j.scratch, 0xff, (size_t)(s.j.worker_bytes * 3));
  memset(s.j.shared, 0xff, (size_t)s.j.shared_bytes);
  job_run(&s.j);
  double error = error_of(&s, c);
  bool ok = error < 2e-6 && guard_ok((char *)s.out, c->m * c->n * 4) && guard_ok(s.j.scratch, s.j.worker_bytes * 3) &&
            guard_ok(s.j.shared, s.j.shared_bytes);
  if (!ok)
    printf("FAILED %s%s: %d bits, signed %d, zeros %d, block %lld, m %lld, n %lld, k %lld, dynamic %d: error %g\n",
           v->cpu, rounding_names[v->rounding], c->bits, c->is_signed, c->zeros, (long long)c->block, (long long)c->m,
           (long long)c->n, (long long)c->k, c->dynamic, error);
  if (out)
    memcpy(out, s.out, (size_t)(c->m * c->n) * sizeof *out);
  end(&s);
  return ok;
}

/* Rows in integers: every CPU gives the same bytes. Spelled out, the kernels take long to make: only those of few rows. */
enum { FEW = 3 };
static bool check_ints(const blocks_case *c, rounding rows) {
  const variant all[] = {{"x86-64-v3", rows, false}, {"native", rows, false}, {"x86-64-v3", rows, true}};
  size_t bytes = (size_t)(c->m * c->n) * sizeof(float);
  float *out[2] = {malloc(bytes), malloc(bytes)};
  bool ok = out[0] && out[1];
  int variants = c->m < FEW ? 3 : 2;
  for (int i = 0; ok && i < variants; i++) {
    random_state = 1;
    ok = check(c, &all[i], out[i > 0]);
    if (ok && i && memcmp(out[0], out[1], bytes)) {
      printf("FAILED %s: not the bytes of %s\n", all[i].cpu, all[0].cpu);
      ok = false;
    }
  }
  free(out[0]);
  free(out[1]);
  return ok;
}

/* Does code for a CPU with AMX round weights in such blocks? */
static bool rounds_blocks(const blocks_case *c) {
  cy_cg *cg = cy_cg_create(TILES, NULL);
  bool yes = cg && cy_int_gemm_blocks_possible(cg, c->block, c->k);
  cy_cg_destroy(cg);
  return yes;
}

static bool takes_ints(const blocks_case *c, rounding rows) {
  cy_cg *cg = cy_cg_create("x86-64-v3", NULL);
  bool yes = cg && (rows == QUANTISED_ROWS
                        ? cy_quantised_rows_possible(cg, c->bits, c->block, tile_of(c), c->n)
                        : c->m <= CY_INT_GEMM_FEW && cy_int_gemm_few_possible(cg, c->bits, c->block, tile_of(c), c->n));
  cy_cg_destroy(cg);
  return yes;
}

int main(void) {
  static const variant floats[] = {{"native", AS_THEY_ARE, false}, {"x86-64-v3", AS_THEY_ARE, false}};
  static const variant tiles = {TILES, BF16, false};
  int run = 0, passed = 0;
  for (int v = 0; v < 2; v++)
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++, run++)
      passed += check(&cases[i], &floats[v], NULL);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (rounds_blocks(&cases[i])) {
      run++;
      passed += check(&cases[i], &tiles, NULL);
    }
    for (rounding rows = QUANTISED_ROWS; rows <= ROWS24; rows++)
      if (takes_ints(&cases[i], rows)) {
        run++;
        passed += check_ints(&cases[i], rows);
      }
  }
  printf("%d passed, %d failed, 0 skipped\n", passed, run - passed);
  return passed != run;
}
