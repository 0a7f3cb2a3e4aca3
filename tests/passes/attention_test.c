/* SPDX-License-Identifier: Apache-2.0 */
/* attention_test.c - the attention op three ways through the interpreter: as the contraction kernel that targets print,
 * as the nest of loops for targets without one, and written out as products and softmax.
 *
 * In: graphs as text. All three must agree within what f32 rounding allows. The interpreter is the oracle of the CPU's
 * generator (tests/operators/attention.py holds that against numpy): here it is held against the composition.
 */
#include "passes/lower/lower.h"
#include "passes/passes.h"
#include "tests/check.h"

#include <stdlib.h>

enum { MAX_FLOATS = 4096, MAX_INPUTS = 6 };

static bool any_kernel(const struct cy_machine *m, cy_kernel *k) {
  (void)m;
  (void)k;
  return true;
}

static uint32_t noise(uint32_t *state) { return *state = *state * 1664525u + 1013904223u; }

/* The output of the graph by one of the three ways; allocated. */
static float *evaluate(const char *text, bool plain, bool contraction, uint64_t *out_count) {
  cy_diag_sink *diag = cy_diag_create();
  cy_graph *g = cy_graph_parse(text, strlen(text), "test", diag);
  const cy_target_caps caps = {.max_head = 512, .supports = contraction ? any_kernel : NULL};
  cy_pass_options passes = {.opt_level = 2, .caps = &caps, .plain_attention = plain, .verify = true};
  cy_lower_options lower = {.level = 2, .caps = &caps, .verify = true};
  cy_program *p = g && !cy_passes_run(g, &passes, NULL) ? cy_lower(g, &lower) : NULL;
  float *result = NULL;
  static float data[MAX_INPUTS][MAX_FLOATS];
  const void *inputs[MAX_INPUTS];
  void *out[1] = {NULL};
  cy_type type;
  if (p) {
    const cy_port_info *ports;
    uint32_t n = cy_graph_inputs(g, &ports), state = 1;
    for (uint32_t i = 0; i < n; i++) {
      cy_dtype dtype = (cy_dtype)cy_value_of(g, ports[i].value)->type.dtype;
      for (int k = 0; k < MAX_FLOATS; k++) {
        float v = (float)(noise(&state) >> 8) / 8388608 - 1;
        if (dtype == CY_F32)
          data[i][k] = v;
        else if (dtype == CY_BOOL)
          ((unsigned char *)data[i])[k] = k % 5 != 3;
        else
          ((int32_t *)data[i])[k] = 4 + k % 3;
      }
      inputs[i] = data[i];
    }
    int64_t syms[64] = {0};
    if (!cy_program_interpret(p, inputs, syms, out, &type)) {
      int64_t count = 0;
      cy_dim_is_const(g, cy_type_elems(g, &type), &count);
      *out_count = (uint64_t)count;
      result = out[0];
    }
  }
  cy_diag_print(diag, stderr);
  cy_diag_destroy(diag);
  if (g)
    cy_graph_destroy(g);
  return result;
}

static void compare(const char *what, const float *a, const float *b, uint64_t n) {
  double worst = 0;
  for (uint64_t i = 0; i < n; i++) {
    if (isnan(a[i]) != isnan(b[i]))
      worst = INFINITY;
    else if (!isnan(a[i]) && fabs((double)a[i] - (double)b[i]) > worst)
      worst = fabs((double)a[i] - (double)b[i]);
  }
  if (!(worst <= 2e-6))
    CHECK_FAIL("%s: off by %g", what, worst);
}

static void three_ways(const char *text) {
  uint64_t n[3] = {0, 0, 0};
  float *plain = evaluate(text, true, false, &n[0]), *nest = evaluate(text, false, false, &n[1]),
        *whole = evaluate(text, false, true, &n[2]);
  CHECK(plain && nest && whole);
  CHECK(n[0] > 0 && n[0] == n[1] && n[0] == n[2]);
  if (plain && nest && whole) {
    compare("loops", plain, nest, n[0]);
    compare("contraction", plain, whole, n[0]);
  }
  free(plain);
  free(nest);
  free(whole);
}

static void test_everything(void) {
  three_ways("graph @g(%q: f32[2,6,5,4], %k: f32[2,2,7,4], %v: f32[2,2,7,3], %b: f32[1,6,1,7], %m: bool[2,1,5,7], %n: "
             "i32[2]) {\n"
             "  %y = attention %q, %k, %v, %b, %m, %n {scale=0.5, softcap=2, fill=-3, causal=1, past=[2], window=5}\n"
             "  return %y\n}\n");
}

static void test_epilogue(void) {
  three_ways("graph @g(%q: f32[1,2,9,8], %k: f32[1,2,11,8], %v: f32[1,2,11,8], %r: f32[1,2,9,8]) {\n"
             "  %y = attention %q, %k, %v {scale=1}\n  %s = sigmoid %y\n  %t = mul %y, %s\n  %z = add %t, %r\n"
             "  return %z\n}\n");
}

static void test_broadcast(void) {
  three_ways("graph @g(%q: f32[3,2,4,5,4], %k: f32[1,2,1,6,4], %v: f32[1,2,1,6,4], %b: f32[6]) {\n"
             "  %y = attention %q, %k, %v, %b {scale=0.7}\n  return %y\n}\n");
}

static void test_hidden_rows(void) {
  three_ways("graph @g(%q: f32[1,1,6,4], %k: f32[1,1,4,4], %v: f32[1,1,4,4]) {\n"
             "  %y = attention %q, %k, %v {scale=0.5, causal=1, past=[-2]}\n  return %y\n}\n");
  three_ways("graph @g(%q: f32[1,1,6,4], %k: f32[1,1,4,4], %v: f32[1,1,4,4]) {\n"
             "  %y = attention %q, %k, %v {scale=0.5, causal=1, past=[-2], zero_hidden=1}\n  return %y\n}\n");
}

static void test_composed_mask(void) {
  three_ways("graph @g(%q: f32[2,2,6,4], %k: f32[2,2,6,4], %v: f32[2,2,6,4], %p: f32[2,1,1,6], %x: bool[2,1,1,6]) {\n"
             "  @far = const f32[] {-5}\n  %b = mul %p, @far\n  %h = not %x\n"
             "  %y = attention %q, %k, %v, %b, %h {scale=0.5}\n  return %y\n}\n");
}

int main(int argc, char **argv) {
  static const check_test tests[] = {
      {"everything", test_everything},   {"epilogue", test_epilogue},           {"broadcast", test_broadcast},
      {"hidden rows", test_hidden_rows}, {"composed mask", test_composed_mask},
  };
  return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
