/* SPDX-License-Identifier: Apache-2.0 */
/* scalar_test.c - element arithmetic: conversions and rounding of every type, NaN and infinities, integer corner cases. */
#include "irtest.h"

#include <math.h>

static double cast(cy_dtype from, cy_dtype to, double v) {
  cy_scalar s = {.f = v};
  s = cy_scalar_eval(CY_OP_cast, CY_F64, from, &s);
  s = cy_scalar_eval(CY_OP_cast, from, to, &s);
  char cls = cy_dtype_of(to)->cls;
  return cls == 'F' ? s.f : cls == 'U' ? (double)s.u : (double)s.i;
}

static double ints(cy_op op, cy_dtype t, int64_t a, int64_t b) {
  cy_scalar v[2] = {{.i = a}, {.i = b}}, r = cy_scalar_eval(op, t, t, v);
  return cy_dtype_of(t)->cls == 'U' ? (double)r.u : (double)r.i;
}

static double floats(cy_op op, cy_dtype t, double a, double b) {
  cy_scalar v[2] = {{.f = a}, {.f = b}};
  return cy_scalar_eval(op, t, t, v).f;
}

static void conversions(void) {
  static const struct {
    cy_dtype from, to;
    double in, out;
  } cases[] = {
      {CY_F32, CY_I32, -1.9, -1},          {CY_F32, CY_I8, 300, 127},          {CY_F32, CY_U8, -5, 0},
      {CY_F32, CY_I64, NAN, 0},            {CY_F64, CY_I64, 1e30, 0x1p63},     {CY_F64, CY_U64, 1e30, 0x1p64},
      {CY_F64, CY_I32, -1e30, -0x1p31},    {CY_I32, CY_I8, 300, 44},           {CY_I32, CY_U8, -1, 255},
      {CY_I32, CY_BOOL, 2, 1},             {CY_F32, CY_BOOL, NAN, 1},          {CY_F32, CY_F16, 65519, 65504},
      {CY_F32, CY_F16, 65520, INFINITY},   {CY_F32, CY_F16, 0x1p-25, 0},       {CY_F32, CY_F16, 0x1.8p-25, 0x1p-24},
      {CY_F32, CY_F16, 1 + 0x1p-11, 1},    {CY_F32, CY_F16, 1 + 0x1.8p-10, 1 + 0x1p-9},
      {CY_F32, CY_BF16, 1 + 0x1p-8, 1},    {CY_F32, CY_BF16, 3.4e38, INFINITY}, {CY_F32, CY_F8E4M3FN, 1000, 448},
      {CY_F32, CY_F8E4M3FN, INFINITY, 448}, {CY_F32, CY_F8E4M3FN, 0x1p-9, 0x1p-9}, {CY_F32, CY_F8E4M3FN, 17, 16},
      {CY_F32, CY_F8E4M3FNUZ, 1000, 240},  {CY_F32, CY_F8E5M2, 1e6, 57344},    {CY_F32, CY_F8E5M2FNUZ, -1e6, -57344},
      {CY_F32, CY_F4E2M1, 2.4, 2},         {CY_F32, CY_F4E2M1, 100, 6},
      {CY_F32, CY_F6E2M3, 7.3, 7.5},       {CY_F32, CY_F6E2M3, -100, -7.5},    {CY_F32, CY_F6E2M3, 0.19, 0.25},
      {CY_F32, CY_F6E3M2, 7.25, 7},        {CY_F32, CY_F6E3M2, 1e9, 28},       {CY_F32, CY_F6E3M2, 0.1, 0.125},
      {CY_F32, CY_F8E8M0, 3, 4},
      /* 4 bits wrap, as the node tests do */
      {CY_F32, CY_I4, 9, -7},              {CY_F32, CY_U4, 20, 4},             {CY_I32, CY_I4, 9, -7},
  };
  for (int i = 0; i < CHECK_COUNT(cases); i++) {
    double got = cast(cases[i].from, cases[i].to, cases[i].in);
    if (got != cases[i].out)
      CHECK_FAIL("%s %g to %s: expected %.9g, found %.9g", cy_dtype_of(cases[i].from)->name, cases[i].in,
                 cy_dtype_of(cases[i].to)->name, cases[i].out, got);
  }
  CHECK(isnan(cast(CY_F32, CY_F8E4M3FN, NAN)) && isnan(cast(CY_F32, CY_BF16, NAN)));
  cy_scalar big = {.i = 16777217};
  CHECK(cy_scalar_eval(CY_OP_cast, CY_I64, CY_F32, &big).f == 16777216);
}

static void bits_survive(void) { /* load and store are inverse for every bit pattern of the narrow types */
  for (int t = 1; t < CY_DTYPE_COUNT; t++) {
    const cy_dtype_info *info = cy_dtype_of((cy_dtype)t);
    if (info->bits > 16 || info->cls == 'S' || info->cls == 'B')
      continue;
    int used = t == CY_F6E2M3 || t == CY_F6E3M2 ? 6 : info->bits; /* of a byte */
    for (uint32_t bits = 0; bits < 1u << used; bits++) {
      unsigned char from[4] = {0}, to[4] = {0};
      uint64_t at = info->bits < 8 ? 1 : 0; /* not only the first of a byte */
      uint32_t shifted = bits << (at * (uint64_t)info->bits);
      memcpy(from, &shifted, 4);
      cy_scalar s = cy_scalar_load(from, (cy_dtype)t, at);
      cy_scalar_store(to, (cy_dtype)t, at, s);
      if (memcmp(from, to, 4) != 0 && !(info->cls == 'F' && isnan(s.f))) {
        CHECK_FAIL("%s: bits %x came back as %02x%02x (%g)", info->name, bits, to[1], to[0], s.f);
        break;
      }
    }
  }
}

static void integers(void) {
  CHECK(ints(CY_OP_add, CY_I8, 127, 1) == -128);
  CHECK(ints(CY_OP_mul, CY_U8, 16, 17) == 16);
  CHECK(ints(CY_OP_div, CY_I32, -7, 2) == -3);
  CHECK(ints(CY_OP_div, CY_I32, 5, 0) == 0);
  CHECK(ints(CY_OP_div, CY_I64, INT64_MIN, -1) == -0x1p63);
  CHECK(ints(CY_OP_mod, CY_I32, -7, 3) == 2);
  CHECK(ints(CY_OP_mod, CY_I32, 7, -3) == -2);
  CHECK(ints(CY_OP_fmod, CY_I32, -7, 3) == -1);
  CHECK(ints(CY_OP_mod, CY_I32, 7, 0) == 0);
  CHECK(ints(CY_OP_pow, CY_I32, -2, 3) == -8);
  CHECK(ints(CY_OP_pow, CY_I32, 2, -1) == 0);
  CHECK(ints(CY_OP_shl, CY_U8, 1, 8) == 0);
  CHECK(ints(CY_OP_shr, CY_I32, -8, 1) == -4);
  CHECK(ints(CY_OP_min, CY_I32, -1, 1) == -1);
  CHECK(ints(CY_OP_neg, CY_I8, -128, 0) == -128);
  CHECK(ints(CY_OP_not, CY_BOOL, 1, 0) == 0);
  CHECK(ints(CY_OP_not, CY_U8, 1, 0) == 254);
  CHECK(ints(CY_OP_mul_q15, CY_I16, -16384, 3) == -1 && ints(CY_OP_mul_q15, CY_I16, 16384, 3) == 2);
  CHECK(ints(CY_OP_mul_q15, CY_I16, -32768, -32768) == -32768);
  for (int x = 0; x < 32768; x++) { /* x times it, in multiples of 2^-12, as a sigmoid linear unit needs it */
    double wanted = x / (1 + exp(x / 4096.0)), error = x * ints(CY_OP_logistic_q15, CY_I16, x, 0) / 32768 - wanted;
    if (fabs(error) > 0.00065 * 4096)
      CHECK_FAIL("logistic_q15 of %d is off by %g", x, error);
  }
}

static void floating(void) {
  CHECK(isnan(floats(CY_OP_min, CY_F32, NAN, 1)) && isnan(floats(CY_OP_max, CY_F32, 1, NAN)));
  CHECK(isnan(floats(CY_OP_sign, CY_F32, NAN, 0)));
  CHECK(floats(CY_OP_round, CY_F32, 2.5, 0) == 2 && floats(CY_OP_round, CY_F32, -1.5, 0) == -2);
  CHECK(floats(CY_OP_mod, CY_F32, -5.5, 2) == 0.5 && floats(CY_OP_fmod, CY_F32, -5.5, 2) == -1.5);
  CHECK(floats(CY_OP_div, CY_F32, 1, 0) == INFINITY);
  CHECK(floats(CY_OP_add, CY_F32, 16777216, 1) == 16777216);
  CHECK(floats(CY_OP_mul, CY_F16, 300, 300) == INFINITY);
  CHECK(floats(CY_OP_sigmoid, CY_F32, -1000, 0) == 0);
  cy_scalar nan2[2] = {{.f = NAN}, {.f = NAN}}, one[3] = {{.i = 1}, {.f = 3}, {.f = 4}};
  CHECK(cy_scalar_eval(CY_OP_eq, CY_F32, CY_BOOL, nan2).i == 0 && cy_scalar_eval(CY_OP_ne, CY_F32, CY_BOOL, nan2).i == 1);
  CHECK(cy_scalar_eval(CY_OP_select, CY_F32, CY_F32, one).f == 3);
  CHECK(cy_scalar_eval(CY_OP_bitcast, CY_F32, CY_I32, &one[1]).i == 0x40400000);
}

/* op(neutral, x) is x, for numbers at the ends of each type, too. */
static void neutral(void) {
  static const cy_dtype types[] = {CY_F32, CY_F64, CY_F16, CY_I8,  CY_I16, CY_I32, CY_I64,
                                   CY_U8,  CY_U16, CY_U32, CY_U64, CY_I4,  CY_U4,  CY_BOOL};
  static const cy_op ops[] = {CY_OP_add, CY_OP_mul, CY_OP_min, CY_OP_max, CY_OP_and, CY_OP_or};
  static const double numbers[] = {0, 1, -1, 7, 1e300, -1e300};
  for (size_t t = 0; t < sizeof types / sizeof *types; t++)
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
      for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        bool real = cy_dtype_is_float(types[t]), bitwise = ops[o] == CY_OP_and || ops[o] == CY_OP_or;
        if ((real && bitwise) || (types[t] == CY_BOOL && !bitwise))
          continue;
        cy_scalar x = {.f = numbers[i]};
        x = types[t] == CY_F64 ? x : cy_scalar_eval(CY_OP_cast, CY_F64, types[t], &x);
        cy_scalar v[2] = {cy_scalar_neutral(ops[o], types[t]), x}, y = cy_scalar_eval(ops[o], types[t], types[t], v);
        CHECK(real ? y.f == x.f : y.u == x.u);
      }
}

/* Arrays as element by element: every half, and floats between all neighbouring halves, at an odd address. */
static void arrays_of_halves(void) {
  static const cy_dtype halves[] = {CY_F16, CY_BF16};
  static const uint32_t tails[] = {0, 1, 0xfff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x3001, 0x7fff, 0x8000, 0x8001, 0xffff};
  enum { TAILS = CHECK_COUNT(tails), N = 37 * TAILS };
  static char wide[N * 4 + 1], narrow[N * 2 + 1], back[N * 4 + 1];
  for (int h = 0; h < 2; h++)
    for (uint32_t top = 0; top < 0x10000; top += 37) {
      for (uint32_t i = 0; i < N; i++) {
        uint32_t bits = (top + i / TAILS) << 16 | tails[i % TAILS];
        memcpy(wide + 1 + i * 4, &bits, 4);
      }
      cy_halves_store(narrow + 1, halves[h], wide + 1, N);
      cy_halves_load(back + 1, halves[h], narrow + 1, N);
      for (uint64_t i = 0; i < N; i++) {
        uint16_t half;
        uint32_t again;
        cy_scalar_store(&half, halves[h], 0, cy_scalar_load(wide + 1, CY_F32, i));
        cy_scalar_store(&again, CY_F32, 0, cy_scalar_load(&half, halves[h], 0));
        CHECK_REQUIRE(memcmp(&half, narrow + 1 + i * 2, 2) == 0 && memcmp(&again, back + 1 + i * 4, 4) == 0);
      }
      CHECK_REQUIRE(cy_halves_hold(halves[h], back + 1, N));
      CHECK_REQUIRE(!cy_halves_hold(halves[h], wide + 1, N));
    }
}

/* What a row of elementwise.def says of its operands' types agrees with the forms that it has. */
static void forms_fit_flags(void) {
  static const struct {
    cy_op op;
    const char *reals, *integers;
  } rows[] = {
#define EW_OP(name, inputs, flags, attributes, cost, reals, integers, ...) {CY_OP_##name, #reals, #integers},
#include "ir/elementwise.def"
#undef EW_OP
  };
  int some[2] = {0};
  for (int i = 0; i < CHECK_COUNT(rows); i++) {
    const cy_op_info *o = cy_op_of(rows[i].op);
    bool reals = strcmp(rows[i].reals, "NONE") != 0, integers = strcmp(rows[i].integers, "NONE") != 0;
    some[0] += o->of_floats;
    some[1] += o->of_integers;
    if ((reals || integers) && (o->of_floats == integers || o->of_integers == reals || o->gives_bool))
      CHECK_FAIL("%s: its flags are not those of its forms", o->name);
    CHECK(cy_op_is_ew(rows[i].op));
  }
  CHECK(some[0] > 15 && some[1] > 5 && !cy_op_is_ew(CY_OP_reshape) && !cy_op_is_ew(CY_OP_NONE));
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"conversions", conversions}, {"bits_survive", bits_survive}, {"integers", integers},
                                     {"floating", floating},       {"neutral", neutral},
                                     {"arrays_of_halves", arrays_of_halves}, {"forms_fit_flags", forms_fit_flags}};
  (void)open_graph, (void)close_graph, (void)input, (void)numbers;
  return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
