/* SPDX-License-Identifier: Apache-2.0 */
/* contract_test.c - checks the CPU target's contractions against plain loops in double, and measures them.
 *
 * contract_test            every case on this machine's CPU. Without AVX-512: with its tiles, too, whose vectors LLVM
 *                          splits, and emitted (not run) for x86-64-v4. With it: for x86-64-v3 and, f32 alone, for
 *                          x86-64-v4, whose code differs from the CPU's own in what fits a cache
 * contract_test --bench    GFLOP/s and share of the measured peak for layers of known models; --bench-f16,
 *                          --bench-bf16: with packed weights stored so, as the cases are checked, too
 * contract_test FILTER     only cases whose line contains FILTER
 *
 * Each case prints its line when it fails; results must be within 1e-5 relative RMS (Winograd 1e-4), every output
 * written exactly, nothing around the buffers touched.
 */
#include "contract_jit.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "contract_cases.h"

static int n_failed, n_run;
static const char *filter;
static int emit_only, wide, f32_only, heavy; /* heavy: so is the epilogue, they say */
static cy_weights stored; /* packed weights, as .. */
static const char *const stored_names[] = {"", " f16", " bf16"};
static const char *cpu_name = "native";
static unsigned fmas; /* 0: as many as the CPU has */

static void report(const char *line, double error, double limit, int guards, double ms) {
  n_run++;
  int bad = !(error <= limit) || !guards;
  n_failed += bad;
  if (bad || getenv("VERBOSE"))
    printf("%s %s%s%s: relative rms %.2e (limit %.0e)%s, compiled in %.1f ms\n", bad ? "FAIL" : "ok  ", line,
           stored_names[stored], wide ? " wide" : "", error, limit, guards ? "" : ", memory around a buffer touched",
           ms);
}

static int skip(const char *line) { return filter && !strstr(line, filter); }

static job job_begin(const char *name) {
  char *error = NULL;
  job j = {.cg = cy_cg_create(cpu_name, &error)};
  if (!j.cg)
    die("cpu", error);
  if (wide) {
    j.cg->avx512 = true;
    j.cg->W = 16;
    j.cg->vf = LLVMVectorType(j.cg->f32, 16);
    j.cg->vi = LLVMVectorType(j.cg->i32, 16);
  }
  if (wide || fmas) /* the CPU whose vectors do as many fmas */
    cy_cpu_model_of(j.cg->W < 16 ? "x86-64-v3"
                    : fmas == 1  ? "icelake-client"
                                 : "x86-64-v4",
                    j.cg->has, j.cg->W, &j.cg->model);
  j.cg->model.streams = j.cg->model.prefetch; /* right wherever they may be fast */
  cy_cg_module(j.cg, name);
  return j;
}

/* Sizes are constants, or slots filled in j. */
static cy_csize size_of(job *j, int *slot, int dynamic, int64_t v) {
  if (!dynamic)
    return cy_cconst(v);
  j->args[*slot].size = v;
  return cy_cslot((*slot)++);
}

static double relative_rms(const float *got, const double *want, int64_t n) {
  double e = 0, s = 1e-30;
  for (int64_t i = 0; i < n; i++) {
    double d = got[i] - want[i];
    e += d * d;
    s += want[i] * want[i];
  }
  return sqrt(e / s);
}

static void job_finish(job *j) {
  if (emit_only)
    LLVMDisposeMemoryBuffer(job_object(j->cg));
  else
    job_link(j);
}

/* ---- weights in half precision ---- */

/* Cut off to 11 bits. */
static uint16_t f16_bits(float *x) {
  int exponent;
  float m = frexpf(fabsf(*x), &exponent);
  if (exponent < -13) {
    *x = 0;
    return 0;
  }
  int digits = (int)(m * 2048);
  uint16_t sign = *x < 0 ? 0x8000 : 0;
  *x = copysignf(ldexpf((float)digits, exponent - 11), *x);
  return (uint16_t)(sign | (exponent + 14) << 10 | (digits - 1024));
}

static uint16_t bf16_bits(float *x) {
  uint32_t bits;
  memcpy(&bits, x, 4);
  bits &= 0xffff0000;
  memcpy(x, &bits, 4);
  return (uint16_t)(bits >> 16);
}

/* What to pack: w, or halves, to which w is changed. The caller frees *out_halves. */
static const void *weights_source(float *w, int64_t n, uint16_t **out_halves) {
  *out_halves = NULL;
  if (stored == CY_WEIGHTS_F32)
    return w;
  *out_halves = malloc((size_t)n * sizeof **out_halves);
  for (int64_t i = 0; i < n; i++)
    (*out_halves)[i] = stored == CY_WEIGHTS_F16 ? f16_bits(&w[i]) : bf16_bits(&w[i]);
  return *out_halves;
}

/* ---- matrix products ---- */

static void gemm_reference(const gemm_case *c, const float *a, const float *b, const float *bias, const gemm_strides *s,
                           double *out) {
  for (int64_t i = 0; i < c->b0 * c->b1; i++)
    for (int64_t m = 0; m < c->m; m++, out += c->n) {
      const float *pa = a + i / c->b1 * s->a[0] + i % c->b1 * s->a[1] + m * s->am;
      const float *pb = b + i / c->b1 * s->b[0] + i % c->b1 * s->b[1];
      for (int64_t n = 0; n < c->n; n++)
        out[n] = bias[n];
      for (int64_t k = 0; k < c->k; k++) { /* sums side by side: none waits for itself */
        double x = pa[k * s->ak];
        for (int64_t n = 0; n < c->n; n++)
          out[n] += x * pb[n * s->bn + k * s->bk];
      }
    }
}

typedef struct gemm_setup {
  job j;
  cy_gemm_desc d;
  store epilogue;
  gemm_strides s;
  float *a, *b, *packed, *bias, *out;
  int64_t n_a, n_b, n_out, matrices;
} gemm_setup;

static void gemm_pack(gemm_setup *g, const gemm_case *c) {
  cy_pack_layout l = job_packing(&g->j, &cy_gemm_generator, &g->d, g->matrices).part->layout;
  uint16_t *halves;
  cy_pack_source source = {.w = weights_source(g->b, g->n_b, &halves), .gs = c->k * c->n, .ns = g->s.bn, .cs = g->s.bk};
  g->packed = nan_floats((l.bytes + 3) / 4);
  int64_t units = cy_pack_units(&l), half = units / 2;
  cy_pack_run(&l, &source, half, units, g->packed);
  cy_pack_run(&l, &source, 0, half, g->packed);
  free(halves);
  g->j.args[1].ptr = g->packed;
}

static void gemm_setup_begin(gemm_setup *g, const gemm_case *c) {
  *g = (gemm_setup){.j = job_begin("gemm"), .s = gemm_strides_of(c)};
  job *j = &g->j;
  int slot = 6, dyn = c->dynamic;
  const gemm_strides *s = &g->s;
  j->scratch_slot = 4;
  j->shared_slot = 5;
  int64_t as = c->m * c->k, bs = c->k * c->n;
  g->n_a = as * (c->a_broadcast & 1 ? 1 : c->b0) * (c->a_broadcast & 2 ? 1 : c->b1);
  g->matrices = (c->b_broadcast & 1 ? 1 : c->b0) * (c->b_broadcast & 2 ? 1 : c->b1);
  g->n_b = bs * g->matrices;
  g->n_out = c->b0 * c->b1 * c->m * c->n;
  g->a = random_floats(g->n_a);
  g->b = random_floats(g->n_b);
  g->bias = random_floats(c->n);
  g->out = nan_floats(g->n_out);
  j->args[0].ptr = g->a;
  j->args[1].ptr = g->b;
  j->args[2].ptr = g->out;
  j->args[3].ptr = g->bias;
  int nk_dyn = dyn == 2;
  cy_csize n = size_of(j, &slot, nk_dyn, c->n), m = size_of(j, &slot, dyn > 0, c->m);
  g->epilogue = (store){.n_idx = 4, .out_slot = 2, .bias_slot = 3};
  int64_t strides[4] = {c->b1 * c->m * c->n, c->m * c->n, c->n, 1};
  for (int i = 0; i < 4; i++)
    g->epilogue.stride[i] = i == 3 ? cy_cconst(1) : size_of(j, &slot, dyn > 0, strides[i]);
  int packed = gemm_packed(c);
  int64_t number[2] = {c->b_broadcast & 1 ? 0 : c->b_broadcast & 2 ? 1 : c->b1, c->b_broadcast & 2 ? 0 : 1};
  g->d = (cy_gemm_desc){.name = "gemm",
                        .n_batch = 2,
                        .m = m,
                        .n = n,
                        .k = size_of(j, &slot, nk_dyn, c->k),
                        .am = s->am == 1 ? cy_cconst(1) : size_of(j, &slot, nk_dyn, s->am),
                        .ak = s->ak == 1 ? cy_cconst(1) : size_of(j, &slot, dyn > 0, s->ak),
                        .bk = s->bk == 1 ? cy_cconst(1) : size_of(j, &slot, nk_dyn, s->bk),
                        .bn = s->bn == 1 ? cy_cconst(1) : size_of(j, &slot, nk_dyn, s->bn),
                        .a_slot = 0,
                        .b_slot = 1,
                        .scratch_slot = 4,
                        .shared_slot = 5,
                        .b_packed = packed,
                        .weights = packed ? stored : CY_WEIGHTS_F32,
                        .epilogue = store_epilogue(&g->epilogue)};
  for (int i = 0; i < 2; i++) {
    g->d.batch[i] = size_of(j, &slot, dyn > 0, i ? c->b1 : c->b0);
    g->d.a_batch[i] = s->a[i] ? size_of(j, &slot, dyn > 0, s->a[i]) : cy_cconst(0);
    g->d.b_batch[i] = packed ? cy_cconst(number[i]) : s->b[i] ? size_of(j, &slot, nk_dyn, s->b[i]) : cy_cconst(0);
  }
}

static void gemm_setup_end(gemm_setup *g) {
  float *all[] = {g->a, g->b, g->bias, g->out, g->packed};
  for (int i = 0; i < 5; i++)
    guarded_free((char *)all[i]);
  job_end(&g->j);
}

static void gemm_compile(gemm_setup *g, const gemm_case *c) {
  if (gemm_packed(c))
    gemm_pack(g, c);
  double t = cpu_seconds();
  job_generate(&g->j, &cy_gemm_generator, &g->d, g->d.name);
  job_finish(&g->j);
  g->j.compile_ms = (cpu_seconds() - t) * 1e3;
}

static void gemm_check(const gemm_case *c) {
  char line[200];
  snprintf(line, sizeof line, "gemm %s batch %lldx%lld m %lld n %lld k %lld dynamic %d broadcast a %d b %d",
           gemm_variant_name(c), (long long)c->b0, (long long)c->b1, (long long)c->m, (long long)c->n, (long long)c->k,
           c->dynamic, c->a_broadcast, c->b_broadcast);
  if (skip(line) || (stored && !gemm_packed(c)))
    return;
  gemm_setup g;
  gemm_setup_begin(&g, c);
  gemm_compile(&g, c);
  if (!emit_only) {
    job_prepare(&g.j, "gemm", 3);
    job_run(&g.j);
    double *want = malloc((size_t)g.n_out * sizeof *want);
    gemm_reference(c, g.a, g.b, g.bias, &g.s, want);
    int ok = guard_ok((char *)g.out, g.n_out * 4) && guard_ok(g.j.scratch, g.j.worker_bytes * 3) &&
             guard_ok(g.j.shared, g.j.shared_bytes);
    report(line, relative_rms(g.out, want, g.n_out), 1e-5, ok, g.j.compile_ms);
    free(want);
  }
  gemm_setup_end(&g);
}

static bool by_strassen(gemm_setup *g) {
  const void *plan = job_plan(&g->j, &cy_gemm_generator, &g->d);
  return !strcmp(cy_gemm_generator.name(plan), "gemm strassen");
}

static bool uses_strassen(const cy_cg *cg) { return cg->model.strassen; }

/* Rows that are not finite, or far larger or smaller than the others, leave these as exact as they would be alone. */
static void strassen_rows_check(const gemm_case *c) {
  static const struct {
    int64_t row;
    float by;
  } odd[] = {{7, NAN}, {20, INFINITY}, {40, 1e6f}, {60, 1e-6f}, {101, 0}};
  if (skip("strassen rows") || emit_only)
    return;
  gemm_setup g;
  gemm_setup_begin(&g, c);
  if (!uses_strassen(g.j.cg)) {
    gemm_setup_end(&g);
    return;
  }
  for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
    for (int64_t k = 0; k < c->k; k++)
      g.a[odd[i].row * c->k + k] *= odd[i].by;
  gemm_compile(&g, c);
  job_prepare(&g.j, "gemm", 1);
  job_run(&g.j);
  double *want = malloc((size_t)g.n_out * sizeof *want), worst = by_strassen(&g) ? 0 : INFINITY;
  gemm_reference(c, g.a, g.b, g.bias, &g.s, want);
  for (int64_t m = 0; m < c->m; m++)
    if (isfinite(want[m * c->n])) {
      double error = relative_rms(g.out + m * c->n, want + m * c->n, c->n);
      worst = error <= worst ? worst : error;
    }
  report("strassen rows", worst, 1e-5, 1, g.j.compile_ms);
  free(want);
  gemm_setup_end(&g);
}

/* Is the product computed by Strassen's algorithm where that is faster, and nowhere else? */
static void strassen_check(const gemm_case *c, int allowed, int want) {
  char line[200];
  snprintf(line, sizeof line, "strassen for %s m %lld n %lld k %lld dynamic %d allowed %d", gemm_variant_name(c),
           (long long)c->m, (long long)c->n, (long long)c->k, c->dynamic, allowed);
  if (skip(line))
    return;
  gemm_setup g;
  gemm_setup_begin(&g, c);
  g.j.cg->strict_fp = !allowed;
  report(line, by_strassen(&g) != (want && uses_strassen(g.j.cg)), 0, 1, 0);
  gemm_setup_end(&g);
}

/* ---- convolutions ---- */

typedef struct conv_shape {
  int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad[3]; /* three axes, absent outer ones 1 */
  int64_t taps, position, channel, image;                           /* floats of the input from one to the next */
} conv_shape;

static conv_shape shape_of(const conv_case *c) {
  conv_shape s = {.taps = 1, .position = c->algo == PLANAR ? 1 : c->cin + c->gap, .channel = 1};
  for (int i = 0, missing = 3 - c->n_spatial; i < 3; i++) {
    int j = i - missing, there = j >= 0;
    s.in[i] = there ? c->in[j] : 1;
    s.kernel[i] = there ? c->kernel[j] : 1;
    s.stride[i] = there ? c->stride[j] : 1;
    s.dilation[i] = there ? c->dilation[j] : 1;
    s.pad[i] = there ? c->pad[j] : 0;
    int64_t both = s.pad[i] + (there ? c->pad_end[j] : 0), span = (s.kernel[i] - 1) * s.dilation[i] + 1;
    s.out[i] = c->transposed ? (s.in[i] - 1) * s.stride[i] + span - both : (s.in[i] + both - span) / s.stride[i] + 1;
    s.taps *= s.kernel[i];
  }
  int64_t area = s.in[0] * s.in[1] * s.in[2];
  s.image = area * (c->cin + c->gap);
  if (c->algo == PLANAR)
    s.channel = area;
  return s;
}

/* The input position that output o meets through tap k, or -1. */
static int64_t input_at(const conv_case *c, const conv_shape *s, int axis, int64_t o, int64_t k) {
  int64_t i = c->transposed ? o + s->pad[axis] - k * s->dilation[axis]
                            : o * s->stride[axis] + k * s->dilation[axis] - s->pad[axis];
  if (c->transposed) {
    if (i < 0 || i % s->stride[axis])
      return -1;
    i /= s->stride[axis];
  }
  return i >= 0 && i < s->in[axis] ? i : -1;
}

/* One pixel: its cout sums, onto sums[0], sums[step], ... Weights are w[cout][taps][cin / groups]. */
static void conv_position(const conv_case *c, const conv_shape *s, const float *image, const float *w,
                          const int64_t o[3], double *sums, int64_t step) {
  int64_t cg = c->cin / c->groups, ng = c->cout / c->groups;
  for (int64_t t = 0; t < s->taps; t++) {
    int64_t i0 = input_at(c, s, 0, o[0], t / (s->kernel[1] * s->kernel[2]));
    int64_t i1 = input_at(c, s, 1, o[1], t / s->kernel[2] % s->kernel[1]),
            i2 = input_at(c, s, 2, o[2], t % s->kernel[2]);
    if (i0 < 0 || i1 < 0 || i2 < 0)
      continue;
    const float *x = image + ((i0 * s->in[1] + i1) * s->in[2] + i2) * s->position;
    for (int64_t n = 0; n < c->cout; n++) {
      const float *from = x + n / ng * cg * s->channel, *by = w + (n * s->taps + t) * cg;
      double sum = 0;
      for (int64_t k = 0; k < cg; k++)
        sum += (double)from[k * s->channel] * by[k];
      sums[n * step] += sum;
    }
  }
}

static void conv_reference(const conv_case *c, const conv_shape *s, const float *a, const float *w, const float *bias,
                           double *out) {
  int64_t o[3], area = s->out[0] * s->out[1] * s->out[2];
  bool planar = c->algo == PLANAR;
  int64_t position = planar ? 1 : c->cout, channel = planar ? area : 1;
  for (int64_t b = 0; b < c->batch; b++, out += planar ? (c->cout - 1) * area : 0)
    for (o[0] = 0; o[0] < s->out[0]; o[0]++)
      for (o[1] = 0; o[1] < s->out[1]; o[1]++)
        for (o[2] = 0; o[2] < s->out[2]; o[2]++, out += position) {
          for (int64_t n = 0; n < c->cout; n++)
            out[n * channel] = bias[n];
          conv_position(c, s, a + b * s->image, w, o, out, channel);
        }
}

typedef struct conv_setup {
  job j;
  cy_conv_desc d;
  conv_shape s;
  store epilogue;
  float *a, *w, *bias, *out, *packed;
  int64_t n_a, n_out;
} conv_setup;

static void conv_pack(conv_setup *g, const conv_case *c) {
  int64_t cgroup = c->cin / c->groups;
  cy_packing p = job_packing(&g->j, cy_conv_generator(c->algo), &g->d, 1);
  int64_t total = p.bytes;
  g->packed = nan_floats((total + 3) / 4);
  uint16_t *halves;
  const void *w = weights_source(g->w, c->cout * g->s.taps * cgroup, &halves);
  for (int i = 0; i < p.n_parts; i++) {
    const cy_pack_layout *l = &p.part[i].layout;
    int64_t group = g->s.taps * cgroup * (c->cout / c->groups);
    cy_pack_source source = {.w = w,
                             .gs = group,
                             .ns = g->s.taps * cgroup,
                             .ts = cgroup,
                             .cs = 1,
                             .tap_map = p.part[i].tap_map};
    cy_pack_run(l, &source, 0, cy_pack_units(l), g->packed + p.part[i].offset / 4);
  }
  free(halves);
  if (!guard_ok((char *)g->packed, (total + 3) / 4 * 4))
    die("pack", "wrote outside of its layout");
  g->j.args[1].ptr = g->packed;
}

static void conv_setup_begin(conv_setup *g, const conv_case *c) {
  *g = (conv_setup){.j = job_begin("conv"), .s = shape_of(c)};
  job *j = &g->j;
  const conv_shape *s = &g->s;
  int slot = 6, missing = 3 - c->n_spatial, dyn = c->dynamic;
  j->scratch_slot = 4;
  j->shared_slot = 5;
  g->n_a = c->batch * s->image - c->gap;
  g->n_out = c->batch * s->out[0] * s->out[1] * s->out[2] * c->cout;
  g->a = random_floats(g->n_a);
  g->w = random_floats(c->cout * s->taps * (c->cin / c->groups));
  g->bias = random_floats(c->cout);
  g->out = nan_floats(g->n_out);
  j->args[0].ptr = g->a;
  j->args[1].ptr = g->w;
  j->args[2].ptr = g->out;
  j->args[3].ptr = g->bias;
  cy_conv_desc *d = &g->d;
  *d = (cy_conv_desc){.name = "conv",
                      .n_spatial = c->n_spatial,
                      .transposed = c->transposed,
                      .weights = stored,
                      .groups = c->groups,
                      .cin = c->cin,
                      .cout = c->cout,
                      .a_slot = 0,
                      .b_slot = 1,
                      .scratch_slot = 4,
                      .shared_slot = 5,
                      .batch = size_of(j, &slot, dyn, c->batch),
                      .in_n = size_of(j, &slot, dyn, s->image),
                      .planar = c->algo == PLANAR,
                      .in_c = size_of(j, &slot, dyn, s->channel),
                      .epilogue = store_epilogue(&g->epilogue)};
  d->epilogue.heavy = heavy;
  g->epilogue = (store){.n_idx = c->n_spatial + 2, .out_slot = 2, .bias_slot = 3};
  int64_t in_stride = s->position, out_stride = c->algo == PLANAR ? 1 : c->cout;
  int first = c->algo == PLANAR ? 2 : 1; /* index of the first spatial axis */
  for (int i = c->n_spatial - 1; i >= 0; i--) {
    int k = i + missing;
    d->kernel[i] = s->kernel[k];
    d->stride[i] = s->stride[k];
    d->dilation[i] = s->dilation[k];
    d->pad[i] = s->pad[k];
    d->in[i] = size_of(j, &slot, dyn, s->in[k]);
    d->out[i] = size_of(j, &slot, dyn, s->out[k]);
    d->in_s[i] = i == c->n_spatial - 1 ? cy_cconst(in_stride) : size_of(j, &slot, dyn, in_stride);
    g->epilogue.stride[first + i] = i == c->n_spatial - 1 ? cy_cconst(out_stride) : size_of(j, &slot, dyn, out_stride);
    in_stride *= s->in[k];
    out_stride *= s->out[k];
  }
  g->epilogue.stride[0] = size_of(j, &slot, dyn, c->algo == PLANAR ? out_stride * c->cout : out_stride);
  g->epilogue.stride[c->algo == PLANAR ? 1 : c->n_spatial + 1] =
      c->algo == PLANAR ? size_of(j, &slot, dyn, out_stride) : cy_cconst(1);
  g->epilogue.planar = c->algo == PLANAR;
}

static void conv_setup_end(conv_setup *g) {
  float *all[] = {g->a, g->w, g->bias, g->out, g->packed};
  for (int i = 0; i < 5; i++)
    guarded_free((char *)all[i]);
  job_end(&g->j);
}

static void conv_compile(conv_setup *g, const conv_case *c) {
  conv_pack(g, c);
  double t = cpu_seconds();
  job_generate(&g->j, cy_conv_generator(c->algo), &g->d, g->d.name);
  job_finish(&g->j);
  g->j.compile_ms = (cpu_seconds() - t) * 1e3;
}

static void conv_line(const conv_case *c, const conv_shape *s, char *line, size_t size) {
  static const char *const names[] = {"direct", "winograd", "depthwise", "planar"};
  snprintf(
      line, size,
      "conv%dd%s %s batch %lld in %lldx%lldx%lld kernel %lldx%lldx%lld stride %lld,%lld,%lld dilation %lld pad %lld "
      "groups %lld channels %lld to %lld%s%s",
      c->n_spatial, c->transposed ? " transposed" : "", names[c->algo], (long long)c->batch, (long long)s->in[0],
      (long long)s->in[1], (long long)s->in[2], (long long)s->kernel[0], (long long)s->kernel[1],
      (long long)s->kernel[2], (long long)s->stride[0], (long long)s->stride[1], (long long)s->stride[2],
      (long long)s->dilation[2], (long long)s->pad[2], (long long)c->groups, (long long)c->cin, (long long)c->cout,
      c->dynamic ? " dynamic" : "", heavy ? " heavy" : "");
}

static double conv_tolerance(const conv_case *c) { return c->algo == CY_CONV_WINOGRAD ? 1e-4 : 1e-5; }

static void conv_check(const conv_case *c) {
  char line[300];
  conv_setup g;
  conv_shape s = shape_of(c);
  conv_line(c, &s, line, sizeof line);
  if (skip(line) || (stored && c->algo != CY_CONV_DIRECT && c->algo != CY_CONV_WINOGRAD))
    return;
  conv_setup_begin(&g, c);
  conv_compile(&g, c);
  if (!emit_only) {
    job_prepare(&g.j, "conv", 3);
    job_run(&g.j);
    double *want = malloc((size_t)g.n_out * sizeof *want);
    conv_reference(c, &s, g.a, g.w, g.bias, want);
    int ok = guard_ok((char *)g.out, g.n_out * 4) && guard_ok(g.j.scratch, g.j.worker_bytes * 3) &&
             guard_ok(g.j.shared, g.j.shared_bytes);
    report(line, relative_rms(g.out, want, g.n_out), conv_tolerance(c), ok, g.j.compile_ms);
    free(want);
  }
  conv_setup_end(&g);
}

static void choice_check(const char *what, const conv_case *c, cy_conv_algo want) {
  char line[100];
  conv_setup g;
  snprintf(line, sizeof line, "chosen for %s", what);
  if (skip(line))
    return;
  conv_setup_begin(&g, c);
  conv_compile(&g, c);
  report(line, cy_conv_choose(g.j.cg, &g.d) != want, 0, 1, g.j.compile_ms);
  conv_setup_end(&g);
}

/* ---- measuring ---- */

typedef struct timing {
  double seconds,
      cycles; /* of the run with the fewest cycles; 0 cycles when the processor's counter is not to be had */
} timing;

static int cycle_counter(void) {
  struct perf_event_attr a = {.type = PERF_TYPE_HARDWARE,
                              .size = sizeof a,
                              .config = PERF_COUNT_HW_CPU_CYCLES,
                              .exclude_kernel = 1,
                              .exclude_hv = 1};
  return (int)syscall(SYS_perf_event_open, &a, 0, -1, -1, 0);
}

static double cycles_now(int counter) {
  uint64_t n = 0;
  return read(counter, &n, sizeof n) == sizeof n ? (double)n : 0;
}

/* One thread. The best of many short runs: the machine may be busy with other things. */
static timing job_time(job *j) {
  int counter = cycle_counter();
  timing best = {1e9, 1e18};
  double first = cpu_seconds();
  job_run(j);
  first = cpu_seconds() - first;
  int repeat = first < 0.0005 ? (int)(0.0005 / (first + 1e-9)) + 1 : 1;
  for (int i = 0; i < 40; i++) {
    double start = cpu_seconds(), cycles = cycles_now(counter);
    for (int r = 0; r < repeat; r++)
      job_run(j);
    cycles = (cycles_now(counter) - cycles) / repeat;
    double t = (cpu_seconds() - start) / repeat;
    if (cycles < best.cycles || (cycles == 0 && t < best.seconds))
      best = (timing){t, cycles};
  }
  if (counter >= 0)
    close(counter);
  return best;
}

/* The peak is two vectors of fma a cycle. */
static void timing_print(const char *line, double flop, const job *j, timing t, double weights) {
  printf("%-52s %8.1f us %6.1f GFLOP/s %5.1f %% of peak, weights %5.1f GB/s, compiled in %.0f ms\n", line,
         t.seconds * 1e6, flop / t.seconds * 1e-9, t.cycles > 0 ? flop / (4 * j->cg->W * t.cycles) * 100 : 0,
         weights / t.seconds * 1e-9, j->compile_ms);
}

static void conv_bench(const conv_case *c, const char *what) {
  char line[300];
  conv_setup g;
  conv_shape s = shape_of(c);
  static const char *const names[] = {"direct", "winograd", "depthwise"};
  snprintf(line, sizeof line, "%s: %s %lldx%lld s%lld at %lld, %lld to %lld", what, names[c->algo],
           (long long)s.kernel[1], (long long)s.kernel[2], (long long)s.stride[2], (long long)s.in[2],
           (long long)c->cin, (long long)c->cout);
  if (skip(line) || (stored && c->algo != CY_CONV_DIRECT && c->algo != CY_CONV_WINOGRAD))
    return;
  conv_setup_begin(&g, c);
  conv_compile(&g, c);
  job_prepare(&g.j, "conv", 1);
  double macs =
      (double)(g.n_out * s.taps * (c->cin / c->groups)) / (c->transposed ? (double)(s.stride[1] * s.stride[2]) : 1);
  timing_print(line, 2 * macs, &g.j, job_time(&g.j),
               (double)(cy_weight_bytes(stored) * c->cout * s.taps * (c->cin / c->groups)));
  conv_setup_end(&g);
}

static void gemm_bench(const gemm_case *c, const char *what) {
  char line[200];
  snprintf(line, sizeof line, "%s: %s batch %lld m %lld n %lld k %lld", what, gemm_variant_name(c),
           (long long)(c->b0 * c->b1), (long long)c->m, (long long)c->n, (long long)c->k);
  if (skip(line) || (stored && !gemm_packed(c)))
    return;
  gemm_setup g;
  gemm_setup_begin(&g, c);
  gemm_compile(&g, c);
  job_prepare(&g.j, "gemm", 1);
  double flop = 2.0 * (double)(c->b0 * c->b1 * c->m * c->n) * (double)c->k;
  timing_print(line, flop, &g.j, job_time(&g.j), (double)(g.n_b * cy_weight_bytes(stored)));
  gemm_setup_end(&g);
}

static void bench(void) {
  for (size_t i = 0; i < sizeof gemm_benches / sizeof *gemm_benches; i++)
    gemm_bench(&gemm_benches[i].c, gemm_benches[i].what);
  for (size_t i = 0; i < sizeof conv_benches / sizeof *conv_benches; i++)
    conv_bench(&conv_benches[i].c, conv_benches[i].what);
}

static void check_strassen(void) {
  for (stored = CY_WEIGHTS_F32; stored <= (f32_only ? CY_WEIGHTS_F32 : CY_WEIGHTS_BF16); stored++) {
    for (size_t i = 0; i < sizeof strassen_cases / sizeof *strassen_cases; i++) {
      strassen_check(&strassen_cases[i].c, 1, strassen_cases[i].used);
      strassen_check(&strassen_cases[i].c, 0, 0);
    }
    strassen_rows_check(&(gemm_case){GEMM_PACKED, 1, 1, 197, 3072, 768, 0, 0, 0});
  }
  stored = CY_WEIGHTS_F32;
}

static void check_all(void) {
  for (stored = CY_WEIGHTS_F32; stored <= (f32_only ? CY_WEIGHTS_F32 : CY_WEIGHTS_BF16); stored++) {
    for (size_t i = 0; i < sizeof gemm_cases / sizeof *gemm_cases; i++)
      gemm_check(&gemm_cases[i]);
    for (size_t i = 0; i < sizeof conv_cases / sizeof *conv_cases; i++)
      for (heavy = conv_cases[i].algo == DEPTHWISE; heavy >= 0; heavy--)
        conv_check(&conv_cases[i]);
    heavy = 0;
  }
  check_strassen();
  for (size_t i = 0; i < sizeof conv_choices / sizeof *conv_choices; i++)
    choice_check(conv_choices[i].what, &conv_choices[i].c, conv_choices[i].want);
}

static bool native_avx512(void) {
  job j = job_begin("native");
  bool avx512 = j.cg->avx512;
  cy_cg_destroy(j.cg);
  return avx512;
}

int main(int argc, char **argv) {
  int measure = argc > 1 && !strncmp(argv[1], "--bench", 7);
  filter = argc > 1 + measure ? argv[1 + measure] : NULL;
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (measure) {
    stored = !strcmp(argv[1], "--bench-f16")    ? CY_WEIGHTS_F16
             : !strcmp(argv[1], "--bench-bf16") ? CY_WEIGHTS_BF16
                                                : CY_WEIGHTS_F32;
    bench();
    return 0;
  }
  check_all();
  if (native_avx512()) {
    for (fmas = 2; fmas; fmas--)
      check_strassen();
    cpu_name = "x86-64-v3";
    check_all();
  } else {
    wide = 1;
    check_all();
    wide = 0;
    emit_only = 1;
  }
  cpu_name = "x86-64-v4";
  f32_only = 1;
  check_all();
  printf("%d passed, %d failed, 0 skipped\n", n_run - n_failed, n_failed);
  return n_failed != 0;
}
