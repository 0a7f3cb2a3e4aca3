/* SPDX-License-Identifier: Apache-2.0 */
/* math_test.c - accuracy of the expanded f32 functions, compiled, against libm in double. CY_MATH_PRINT=1 prints what
 * was measured. */
#include "tests/check.h"
#include "tests/codegen/jit.h"
#include "tests/kernels.h"

static jit *j;

typedef struct range {
  cy_op op;
  double lo, hi;   /* of x */
  double ulp, abs; /* allowed: either suffices */
} range;

static const range ranges[] = {
    {CY_OP_exp, -103, 88.7, 2, 0},    {CY_OP_exp, -1, 1, 2, 0},
    {CY_OP_log, 1e-38, 1e-30, 3, 0},  {CY_OP_log, 0.5, 2, 3, 0},
    {CY_OP_log, 1, 1e30, 3, 0},       {CY_OP_sigmoid, -80, 20, 4, 0},
    {CY_OP_tanh, -0.7, 0.7, 5, 0},    {CY_OP_tanh, -12, 12, 5, 0},
    {CY_OP_erf, -0.7, 0.7, 6, 0},     {CY_OP_erf, -5, 5, 8, 0},
    {CY_OP_erfc, -9.2, 9.2, 5, 0},    {CY_OP_erfc, -1e-3, 1e-3, 5, 0},
    {CY_OP_log1p, -0.99, 3, 4, 0},    {CY_OP_log1p, 1e-38, 1e38, 4, 0},
    {CY_OP_sin, -3.2, 3.2, 3, 0},     {CY_OP_sin, -1e5, 1e5, 3, 1e-7},
    {CY_OP_cos, -3.2, 3.2, 3, 1e-7},  {CY_OP_cos, -1e5, 1e5, 3, 1e-7},
    {CY_OP_sin, -1e8, 1e8, 3, 1e-4},  {CY_OP_tan, -1.5, 1.5, 5, 0},
    {CY_OP_asin, -1, 1, 5, 0},        {CY_OP_acos, -1, 1, 5, 2e-7},
    {CY_OP_atan, -3, 3, 5, 0},        {CY_OP_atan, -1e6, 1e6, 5, 0},
    {CY_OP_sinh, -1.5, 1.5, 8, 0},    {CY_OP_sinh, -89, 89, 8, 0},
    {CY_OP_cosh, -89, 89, 8, 0},      {CY_OP_asinh, -3, 3, 6, 0},
    {CY_OP_asinh, -1e20, 1e20, 6, 0}, {CY_OP_acosh, 1, 3, 6, 0},
    {CY_OP_acosh, 1, 1e20, 6, 0},     {CY_OP_atanh, -0.9999, 0.9999, 6, 0},
};

static cyrt_kernel compile(cy_op op) {
  cy_kernel *k = flat_kernel(op, CY_F32, CY_F32, 4096);
  cy_kernel_expand_math(k);
  char text[200];
  if (!cy_kernel_verify(k, text, sizeof text))
    CHECK_FAIL("%s", text);
  return jit_kernel(j, k);
}

static double truth(cy_op op, double x, double y) {
  cy_scalar v[2] = {{.f = x}, {.f = y}};
  return cy_scalar_eval(op, CY_F64, CY_F64, v).f;
}

static double ulps(float got, double want) {
  float w = (float)want;
  if (isnan(got) || isnan(w))
    return isnan(got) && isnan(w) ? 0 : INFINITY;
  if (isinf(got) || isinf(w))
    return got == w ? 0 : INFINITY;
  double unit = nextafterf(fabsf(w), INFINITY) - fabsf(w);
  return fabs(got - want) / unit;
}

static void check_range(const range *r) {
  enum { N = 4096 };
  static float x[N], y[N];
  cyrt_slot slots[2] = {{x}, {y}};
  cyrt_kernel run = compile(r->op);
  double worst = 0, worst_abs = 0, bad = 0, at = 0;
  for (int i = 0; i < N; i++) {
    double t = (double)i / (N - 1);
    bool wide = r->lo > 0 && r->hi / r->lo > 1e3;
    x[i] = (float)(wide ? r->lo * pow(r->hi / r->lo, t) : r->lo + (r->hi - r->lo) * t);
  }
  run(slots, 0, N, 0);
  for (int i = 0; i < N; i++) {
    double want = truth(r->op, x[i], 0), u = ulps(y[i], want), e = fabs(y[i] - want);
    if (u > r->ulp && !(e <= r->abs))
      bad++;
    if (u > worst) {
      worst = u;
      at = x[i];
    }
    worst_abs = e > worst_abs ? e : worst_abs;
  }
  if (getenv("CY_MATH_PRINT"))
    printf("%-8s [%g, %g]: %.2f ulp at %.9g, %.2g abs\n", cy_op_of(r->op)->name, r->lo, r->hi, worst, at, worst_abs);
  if (bad > 0)
    CHECK_FAIL("%s [%g, %g]: %.2f ulp at %.9g", cy_op_of(r->op)->name, r->lo, r->hi, worst, at);
}

static void test_accuracy(void) {
  for (int i = 0; i < CHECK_COUNT(ranges); i++)
    check_range(&ranges[i]);
}

static bool takes_one_float(cy_op op) {
  const cy_op_info *o = cy_op_of(op);
  return cy_op_is_ew(op) && o->max_in == 1 && !o->of_integers && !o->gives_bool && !o->typed;
}

/* Corners give what libm gives, zeros with their signs; but 0 where sigmoid and erfc would be denormal. */
static void test_corners(void) {
  float x[] = {0,       -0.0f, INFINITY, -INFINITY, NAN,  1, -1, 0x1p-149f, 1e-40f,     -0x1p-149f, 0x1p-126f, 1e-30f,
               -1e-40f, 3e38f, -3e38f,   88.8f,     -110, 2, -2, -2e9f,     -0x1p-126f, -1e-30f,    9.8f,      -89};
  float y[CHECK_COUNT(x)];
  cyrt_slot slots[2] = {{x}, {y}};
  for (cy_op op = CY_OP_neg; op < CY_OP_COUNT; op++) {
    if (!takes_one_float(op))
      continue;
    cyrt_kernel run = compile(op);
    run(slots, 0, CHECK_COUNT(x), 0);
    for (int i = 0; i < CHECK_COUNT(x); i++) {
      double want = truth(op, x[i], 0);
      bool none = (op == CY_OP_sigmoid || op == CY_OP_erfc) && fabs(want) < 0x1p-126;
      if (none ? y[i] != 0 : ulps(y[i], want) > 8 || (y[i] == 0 && !signbit(y[i]) != !signbit(want)))
        CHECK_FAIL("%s(%g) is %.9g, not %.9g", cy_op_of(op)->name, x[i], y[i], want);
    }
  }
}

/* Angles of many iterations, among them those that come nearest to a multiple of pi/2; beside others that have few of
 * them, as lanes of one vector. */
static void test_far(void) {
  enum { N = 4096 };
  static const cy_op ops[] = {CY_OP_sin, CY_OP_cos, CY_OP_tan};
  static const float hard[] = {16367173 * 0x1p72f, 14198879 * 0x1p-17f, 0x1p28f, 0x1.fffffep27f, 0x1.fffffep127f};
  static float x[N], y[N];
  cyrt_slot slots[2] = {{x}, {y}};
  for (int n = 0; n < N; n++) {
    x[n] = n < CHECK_COUNT(hard) ? hard[n] : n % 33 == 0 ? (float)n : (float)pow(10, 4 + 34.5 * n / N);
    x[n] = n % 2 ? -x[n] : x[n];
  }
  for (int sign = 0; sign < 2; sign++)
    for (int o = 0; o < CHECK_COUNT(ops); o++) {
      compile(ops[o])(slots, 0, N, 0);
      for (int n = 0; n < N; n++) {
        double want = truth(ops[o], x[n], 0);
        if (ulps(y[n], want) > (ops[o] == CY_OP_tan ? 4 : 2))
          CHECK_FAIL("%s(%a) is %.9g, not %.9g", cy_op_of(ops[o])->name, x[n], y[n], want);
        x[n] = -x[n];
      }
    }
}

/* The weights of a softmax: accurate while they are normal numbers, 0 where they are none, NaN of NaN. */
static void test_below(void) {
  enum { N = 4096, ODD = 4 };
  static float x[N], y[N];
  static const float odd[ODD] = {NAN, -INFINITY, -3e38f, -88};
  cyrt_slot slots[2] = {{x}, {y}};
  cy_kernel *k = cy_kernel_create(g, "below");
  cy_karg from = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0), to = cy_kernel_add_arg(k, CY_ARG_WRITE, CY_F32, 0);
  cy_var i = cy_kernel_add_var(k, d(N));
  cy_kernel_add_grid(k, i);
  cy_kernel_set_grid_lanes(k, true);
  cy_kernel_store(k, to, cy_x_var(k, i), cy_x_exp_below(k, cy_x_load(k, from, cy_x_var(k, i))));
  for (int n = 0; n < N; n++)
    x[n] = n < ODD ? odd[n] : -87.3f * (float)(n - ODD) / (N - ODD);
  jit_kernel(j, k)(slots, 0, N, 0);
  CHECK(isnan(y[0]));
  for (int n = 1; n < ODD; n++)
    CHECK(y[n] == 0);
  CHECK(y[ODD] == 1);
  for (int n = ODD; n < N; n++)
    if (ulps(y[n], exp((double)x[n])) > 2)
      CHECK_FAIL("e^%.9g is %.9g", x[n], y[n]);
}

/* y = (sigmoid(x + b) - low) * scale as bytes; b: of dtype `with`. */
static void bytes_of(const char *name, cy_dtype with, const float *x, const void *b, double low, double scale, int n,
                     uint8_t *y) {
  cyrt_slot slots[3] = {{(void *)x}, {(void *)b}, {y}};
  cy_kernel *k = cy_kernel_create(g, name);
  cy_karg from = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0), plus = cy_kernel_add_arg(k, CY_ARG_READ, with, 0);
  cy_karg to = cy_kernel_add_arg(k, CY_ARG_WRITE, CY_U8, 0);
  cy_var i = cy_kernel_add_var(k, d(n));
  cy_kernel_add_grid(k, i);
  cy_kernel_set_grid_lanes(k, true);
  cy_expr added = cy_x_cast(k, cy_x_load(k, plus, cy_x_var(k, i)), CY_F32);
  cy_expr value = cy_x_un(k, CY_OP_sigmoid, cy_x_bin(k, CY_OP_add, cy_x_load(k, from, cy_x_var(k, i)), added));
  value = cy_x_bin(k, CY_OP_sub, value, cy_x_const(k, CY_F32, low));
  value = cy_x_un(k, CY_OP_round, cy_x_bin(k, CY_OP_mul, value, cy_x_const(k, CY_F32, scale)));
  cy_kernel_store(k, to, cy_x_var(k, i), cy_x_cast(k, value, CY_U8));
  cy_kernel_expand_math(k);
  jit_kernel(j, k)(slots, 0, n, 0);
}

/* Bytes of bytes are a rougher sigmoid's, within a twentieth of a step of the right one, at both ends, too; those of
 * floats are the right one's, and hundreds of times finer steps show it. */
static void test_bytes(void) {
  enum { N = 8192 };
  static float x[N], none[N];
  static int8_t zero[N];
  static uint8_t y[N];
  for (int n = 0; n < N; n++)
    x[n] = n == 0 ? -INFINITY : n == 1 ? INFINITY : n == 2 ? -1e30f : n == 3 ? 1e30f : (float)(n - N / 2) / 256;
  bytes_of("bytes", CY_I8, x, zero, 0, 255, N, y);
  for (int n = 0; n < N; n++)
    if (fabs(255 * truth(CY_OP_sigmoid, x[n], 0) - y[n]) > 0.55)
      CHECK_FAIL("the byte of sigmoid(%.9g) is %d", x[n], y[n]);
  for (int n = 0; n < N; n++)
    x[n] = (float)n / N / 100;
  bytes_of("floats", CY_F32, x, none, 0.5, 1e5, N, y);
  for (int n = 0; n < N; n++)
    if (fabs(1e5 * (truth(CY_OP_sigmoid, x[n], 0) - 0.5) - y[n]) > 0.55)
      CHECK_FAIL("of floats the byte of sigmoid(%.9g) is %d", x[n], y[n]);
}

/* What is divided by a constant first: gelu's erf(x / sqrt(2)). */
static void test_quotients(void) {
  enum { N = 4096 };
  static float x[N], y[N];
  static const cy_op ops[] = {CY_OP_erf, CY_OP_tanh};
  const float by = 1.41421356f;
  cyrt_slot slots[2] = {{x}, {y}};
  for (int n = 0; n < N; n++)
    x[n] = (float)(n - N / 2) / 256;
  for (int o = 0; o < CHECK_COUNT(ops); o++) {
    cy_kernel *k = cy_kernel_create(g, "quotient");
    cy_karg from = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0), to = cy_kernel_add_arg(k, CY_ARG_WRITE, CY_F32, 0);
    cy_var i = cy_kernel_add_var(k, d(N));
    cy_kernel_add_grid(k, i);
    cy_kernel_set_grid_lanes(k, true);
    cy_expr quotient = cy_x_bin(k, CY_OP_div, cy_x_load(k, from, cy_x_var(k, i)), cy_x_const(k, CY_F32, by));
    cy_kernel_store(k, to, cy_x_var(k, i), cy_x_un(k, ops[o], quotient));
    cy_kernel_expand_math(k);
    jit_kernel(j, k)(slots, 0, N, 0);
    for (int n = 0; n < N; n++)
      if (ulps(y[n], truth(ops[o], (double)x[n] / by, 0)) > 8)
        CHECK_FAIL("%s(%g / %g) is %.9g", cy_op_of(ops[o])->name, x[n], by, y[n]);
  }
}

static void test_pow(void) {
  static const float v[] = {0,      -0.0f,  1,      -1,       2,         -2,  0.5f,   -0.5f, 3,   -3,
                            10.25f, 1e-20f, -1e10f, INFINITY, -INFINITY, NAN, 1e-42f, 37,    -38, 0.9999f};
  enum { N = CHECK_COUNT(v) };
  static float x[N * N], y[N * N], z[N * N];
  cyrt_slot slots[3] = {{x}, {y}, {z}};
  for (int i = 0; i < N * N; i++) {
    x[i] = v[i / N];
    y[i] = v[i % N];
  }
  compile(CY_OP_pow)(slots, 0, N * N, 0);
  for (int i = 0; i < N * N; i++) {
    double want = pow(x[i], y[i]);
    if (ulps(z[i], want) > 3)
      CHECK_FAIL("pow(%g, %g) is %.9g, not %.9g", x[i], y[i], z[i], want);
  }
}

static const check_test tests[] = {
    {"accuracy", test_accuracy}, {"corners", test_corners},     {"far", test_far}, {"below", test_below},
    {"bytes", test_bytes},       {"quotients", test_quotients}, {"pow", test_pow}};

int main(int argc, char **argv) { return jit_main(argc, argv, tests, CHECK_COUNT(tests), &g, &j); }
