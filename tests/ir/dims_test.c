/* SPDX-License-Identifier: Apache-2.0 */
/* dims_test.c - the normal form of dims: simplification, bounds, evaluation against plain arithmetic, text. */
#include "../check.h"
#include "../../ir/ir.h"

#include <stdlib.h>

static cy_graph *g;

static cy_dim dim(const char *text) {
  const char *end;
  cy_dim d = cy_dim_parse(g, text, &end);
  if (!d || *end)
    CHECK_FAIL("cannot read \"%s\"", text);
  return d ? d : cy_dim_const(g, 0);
}

static void simplifies(void) {
  static const char *const cases[][2] = {
      {"s+s", "2*s"},
      {"s-s", "0"},
      {"b*s-s*b", "0"},
      {"(4*b)/2", "2*b"},
      {"(12*64*s)/768", "s"},
      {"(b*s*768)/(b*s)", "768"},
      {"(b*s*768)%(b*s)", "0"},
      {"(b*s)/(768*b)", "s/768"},
      {"(s*s+2*s+1)/(s+1)", "s+1"},
      {"(b*s+b)/b", "s+1"},
      {"(2*s+1)/2", "s"},
      {"(2*s+3)/2", "s+1"},
      {"(4*s+6)/8", "(s+1)/2"},
      {"(s/2)/3", "s/6"},
      {"(s/2+1)/2", "(s+2)/4"},
      {"(6*s)%3", "0"},
      {"(6*s+5)%3", "2"},
      {"(s%12)%4", "s%4"},
      {"(4*s)%6", "2*((2*s)%3)"},
      {"(8-s%8)%8", "(-s)%8"},
      {"(b+2*(s%8))%4", "(b+2*s)%4"},
      {"s+(-s)%8", "8*((s+7)/8)"},
      {"(s+(8-s%8)%8)/8", "(s+7)/8"},
      {"b+3*s+3*((-s)%8)", "b+24*((s+7)/8)"},
      {"s+(-s)%8-(-s)%8", "s"},
      {"8*((s+7)/8)-(-s)%8", "s"},
      {"s-s%8", "8*(s/8)"},
      {"8*(s/8)+s%8", "s"},
      {"2*s+(-s)%8", "2*s+(-s)%8"},
      {"min(s,8*((s+(-s)%8)/8))", "s"},
      {"min(s,s+1)", "s"},
      {"max(s,s+1)", "s+1"},
      {"max(0,s)", "s"},
      {"max(s,-3)", "s"},
      {"min(s,9223372036854775807)", "s"},
      {"min(min(s,b),s)", "min(b,s)"},
      {"min(s,min(b,s+2))", "min(b,s)"},
      {"max(min(s,5),5)", "5"},
      {"min(max(s-5,0),s)", "max(0,s-5)"},
      {"max(s,1)", "max(s,1)"},
      {"min(s,4)+max(0,s-4)", "s"},
      {"3*max(0,s-4)+b+3*min(s,4)", "b+3*s"},
      {"min(b,s)+max(b,s)", "b+s"},
      {"min(s,4)+max(0,s-3)", "min(s,4)+max(0,s-3)"},
      {"max(0,s-4)-min(s,4)", "-min(s,4)+max(0,s-4)"},
      {"join(s,min(s,1))", "s"},
      {"join(s-max(0,s-2),s)", "s"},
      {"join((s+31)/32,(s+31)/32-max(0,(s+31)/32-1))", "(s+31)/32"},
      {"join(s,min(b,s))", "join(s,min(b,s))"},
      {"join(s,s-max(0,s-b))", "join(s,s-max(0,-b+s))"},
      {"join(s-4,min(s-4,1))", "join(s-4,min(s-4,1))"},
      {"min(s/2,s)", "s/2"},
      {"join(s,min(s,4))", "s"},
      {"join(min(min(b,s),s+1),b)", "join(b,min(b,s))"},
      {"7/2", "3"},
      {"-7/2", "-4"},
      {"-7%2", "1"},
      {"s/0", "0"},
      {"s/-2", "(-s)/2"},
      {"(s+2*1-3)/2+1", "(s+1)/2"},
      {"\"odd name\"*2", "2*\"odd name\""},
  };
  for (int i = 0; i < CHECK_COUNT(cases); i++) {
    dim("b+s");
    CHECK_STR_EQ(cy_dim_text(g, dim(cases[i][0])), cases[i][1]);
    CHECK(dim(cases[i][0]) == dim(cases[i][1]));
  }
}

static void bounds(void) {
  int64_t lo, hi;
  cy_dim s = dim("s"), two = cy_dim_const(g, 2);
  cy_dim_range(g, dim("s%8+1"), &lo, &hi);
  CHECK_INT_EQ(lo, 1);
  CHECK_INT_EQ(hi, 8);
  CHECK(cy_dim_le(g, dim("s/2*2"), s));
  CHECK(cy_dim_le(g, dim("2*((s+1)/4)"), dim("(s+1)/2")) && !cy_dim_le(g, dim("2*((s+1)/4)"), dim("s/2")));
  CHECK(cy_dim_le(g, dim("6*(s/12)+b"), dim("s/2+b")) && !cy_dim_le(g, dim("4*(s/6)"), dim("s/2")));
  CHECK(cy_dim_le(g, dim("s/3"), dim("2*(s/6)+1")) && !cy_dim_le(g, dim("s/3"), dim("2*(s/6)")));
  CHECK(cy_dim_le(g, dim("min(s,b)"), s));
  CHECK(!cy_dim_le(g, s, dim("b")));
  CHECK(cy_dim_lt(g, s, dim("s+1")) && !cy_dim_lt(g, s, s) && !cy_dim_lt(g, s, dim("max(s,b)")));
  CHECK(!cy_dim_lt(g, cy_dim_const(g, INT64_MAX), s));
  CHECK(cy_dim_le(g, s, dim("max(s,b)")));
  CHECK(cy_dim_is(g, cy_dim_sub(g, s, s), 0));
  CHECK(cy_dim_cdiv(g, s, two) == dim("(s+1)/2"));
  cy_dim_range(g, cy_dim_mul(g, dim("s"), dim("s")), &lo, &hi);
  CHECK(lo == 0 && hi == INT64_MAX);
}

static void text_is_stable(void) {
  static const char *const cases[] = {"2*b*s+1", "(s+1)/2", "3*((s+1)/2)-1", "max(b,s)", "min(max(s-5,0),b)", "-s", "s%7",
                                      "b*s/(s+1)", "(s/(b+1))*b", "-9223372036854775807"};
  for (int i = 0; i < CHECK_COUNT(cases); i++) {
    dim("b+s");
    const char *once = cy_dim_text(g, dim(cases[i]));
    CHECK_STR_EQ(cy_dim_text(g, dim(once)), once);
    CHECK(dim(once) == dim(cases[i]));
  }
  const char *end;
  CHECK(cy_dim_parse(g, "s+", &end) == 0);
  CHECK(cy_dim_parse(g, "99999999999999999999", &end) == 0);
}

static void substitutes(void) {
  cy_sym s = cy_sym_by_name(g, "s");
  CHECK(cy_dim_subst(g, dim("(s+3)/2*s"), s, dim("2*b")) == dim("(2*b+3)/2*2*b"));
  CHECK(cy_dim_subst(g, dim("max(s,b)"), s, cy_dim_const(g, 0)) == dim("b"));
  CHECK(!cy_dim_has_data_sym(g, dim("s+b")));
  cy_sym d = cy_sym_new(g, NULL, CY_SYM_DATA);
  CHECK(cy_dim_has_data_sym(g, cy_dim_add(g, dim("s/3"), cy_dim_sym(g, d))));
  cy_sym taken = cy_sym_by_name(g, cy_str_text(g, cy_sym_of(g, d)->name));
  CHECK(taken != d && cy_sym_of(g, taken)->kind == CY_SYM_INPUT);
}

/* An expression and, beside it, its value computed directly. */
typedef struct pair {
  cy_dim d;
  int64_t v;
} pair;

static int64_t fdiv(int64_t a, int64_t b) { return b == 0 ? 0 : a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }

static pair grow(int depth, const int64_t *syms) {
  if (depth == 0) {
    if (rand() % 3 == 0) {
      int64_t c = rand() % 9 - 2;
      return (pair){cy_dim_const(g, c), c};
    }
    cy_sym s = rand() % 2 ? cy_sym_by_name(g, "s") : cy_sym_by_name(g, "b");
    return (pair){cy_dim_sym(g, s), syms[s]};
  }
  pair a = grow(depth - 1, syms), b = grow(rand() % depth, syms);
  switch (rand() % 8) {
  case 0: return (pair){cy_dim_add(g, a.d, b.d), a.v + b.v};
  case 1: return (pair){cy_dim_sub(g, a.d, b.d), a.v - b.v};
  case 2: return (pair){cy_dim_mul(g, a.d, b.d), a.v * b.v};
  case 3: return (pair){cy_dim_min(g, a.d, b.d), a.v < b.v ? a.v : b.v};
  case 4: return (pair){cy_dim_max(g, a.d, b.d), a.v > b.v ? a.v : b.v};
  case 7:
    return (pair){cy_dim_join(g, a.d, b.d), !a.v || !b.v ? 0 : a.v > b.v ? a.v : b.v};
  case 5:
    if (b.v == 0) /* quotients cancel as if divisors were not zero */
      return a;
    return (pair){cy_dim_div(g, a.d, b.d), fdiv(a.v, b.v)};
  default:
    if (b.v == 0)
      return a;
    return (pair){cy_dim_mod(g, a.d, b.d), a.v - b.v * fdiv(a.v, b.v)};
  }
}

static void agrees_with_arithmetic(void) {
  srand(1);
  cy_sym s = cy_sym_by_name(g, "s"), b = cy_sym_by_name(g, "b");
  int64_t syms[64] = {0};
  CHECK_REQUIRE(s < 64 && b < 64);
  for (int i = 0; i < 20000; i++) {
    syms[s] = 1 + rand() % 20;
    syms[b] = 1 + rand() % 5;
    pair p = grow(1 + rand() % 4, syms);
    int64_t got = cy_dim_eval(g, p.d, syms), lo, hi;
    cy_dim_range(g, p.d, &lo, &hi);
    if (got != p.v || got < lo || got > hi) {
      CHECK_FAIL("%s with s=%lld b=%lld: expected %lld, found %lld in [%lld,%lld]", cy_dim_text(g, p.d), (long long)syms[s],
                 (long long)syms[b], (long long)p.v, (long long)got, (long long)lo, (long long)hi);
      break;
    }
  }
}

/* What padding and cropping to sizes of sizes gives, seven layers deep: the search for what is known about such dims
 * must not start again within itself. (It took minutes for the sixth layer.) */
static void layers(void) {
  cy_dim x = dim("s"), d = x;
  int64_t syms[64] = {0}, v = 37;
  for (int i = 0; i < 64; i++)
    syms[i] = v;
  for (int i = 0; i < 7; i++) {
    cy_dim half = cy_dim_cdiv(g, d, cy_dim_const(g, 2));
    cy_dim pad = cy_dim_max(g, cy_dim_const(g, 0), cy_dim_sub(g, cy_dim_muli(g, half, 2), d));
    d = cy_dim_max(g, cy_dim_const(g, 0), cy_dim_min(g, cy_dim_add(g, d, pad), cy_dim_sub(g, x, half)));
    int64_t h = (v + 1) / 2;
    v = 2 * h < 37 - h ? 2 * h : 37 - h;
    CHECK_INT_EQ(cy_dim_eval(g, d, syms), v);
  }
}

static void hostile(void) {
  cy_dim d = cy_dim_add(g, dim("s"), dim("b"));
  for (int i = 0; i < 40; i++) /* would have 2^40 terms */
    d = cy_dim_mul(g, d, cy_dim_addi(g, d, i));
  int64_t syms[64] = {0};
  cy_dim_eval(g, cy_dim_const(g, INT64_MIN), syms);
  CHECK(cy_dim_terms(g, d, &(const cy_term *){0}) < 200);
  CHECK(cy_dim_div(g, cy_dim_const(g, INT64_MIN), cy_dim_const(g, -1)) == cy_dim_const(g, INT64_MIN));
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"simplifies", simplifies},
                                     {"bounds", bounds},
                                     {"text_is_stable", text_is_stable},
                                     {"substitutes", substitutes},
                                     {"agrees_with_arithmetic", agrees_with_arithmetic},
                                     {"layers", layers},
                                     {"hostile", hostile}};
  cy_diag_sink *diag = cy_diag_create();
  g = cy_graph_create(diag, "dims_test");
  int rc = check_main(argc, argv, tests, CHECK_COUNT(tests));
  cy_graph_destroy(g);
  cy_diag_destroy(diag);
  return rc;
}
