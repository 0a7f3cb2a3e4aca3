/* SPDX-License-Identifier: Apache-2.0 */
/* quantise_test.c - the pass `quantise` on a residual block given as text: which tensors and layers it finds, what it
 * inserts when their ranges are known, what it leaves alone; and the numbers that scales are made of.
 */
#include "passes/passes.h"
#include "passes/quantise/quantise_int.h"
#include "tests/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char block_text[] =
    "graph @g(%x: f32[1,4,8,8]) {\n"
    "  @w = const f32[4,4,3,3] data(1)\n"
    "  @v = const f32[4,4,1,1] data(2)\n"
    "  @u = const f32[256,8] data(3)\n"
    "  @zero = const f32[] {0}\n"
    "  %a = conv %x, @w {strides=[1,1], pads=[1,1,1,1], dilations=[1,1], group=1} : f32[1,4,8,8]  ; from \"first\"\n"
    "  %b = max %a, @zero : f32[1,4,8,8]\n"
    "  %c = conv %b, @v {strides=[1,1], pads=[0,0,0,0], dilations=[1,1], group=1} : f32[1,4,8,8]  ; from \"second\"\n"
    "  %d = add %c, %x : f32[1,4,8,8]\n"
    "  %e, %i = pool_max %d {kernel=[1,1], strides=[1,1], pads=[0,0,0,0], dilations=[1,1], storage_order=0} : "
    "f32[1,4,8,8], "
    "i64[1,4,8,8]\n"
    "  %f = reshape %e : f32[1,256]\n"
    "  %y = matmul %f, @u : f32[1,8]  ; from \"third\"\n"
    "  return %y, %d\n"
    "}\n";

static cy_diag_sink *diag;

/* The graph of a text, the same one in all modes of the pass; NULL: no more. */
static cy_graph *graph_of(const char *text) {
  static cy_graph *known;
  static char *of;
  if (of && text && !strcmp(text, of))
    return known;
  if (known)
    cy_graph_destroy(known);
  free(of);
  of = text ? strdup(text) : NULL;
  return known = text ? cy_graph_parse(text, strlen(text), "block.txt", diag) : NULL;
}

static const cy_target_caps caps = {.max_head = 512};

/* The graph after the pass in q's mode, as text: free(). */
static char *run(cy_quant *q, const char *text) {
  char *out = NULL;
  size_t size;
  cy_graph *from = graph_of(text), *g = from ? cy_graph_clone(from) : NULL;
  cy_pass_options o = {.opt_level = 2, .caps = &caps, .only = "quantise", .verify = true, .quant = q};
  if (!g || cy_passes_run(g, &o, NULL))
    return NULL;
  FILE *f = open_memstream(&out, &size);
  cy_graph_print(g, f);
  fclose(f);
  cy_graph_destroy(g);
  return out;
}

static int count(const char *text, const char *what) {
  int n = 0;
  for (; text && (text = strstr(text, what)); text += strlen(what))
    n++;
  return n;
}

static const cy_quant_tensor *named(const cy_quant *q, const char *name) {
  for (uint32_t t = 0; t < q->ntensors; t++)
    if (!strcmp(q->tensor[t].name, name))
      return &q->tensor[t];
  return NULL;
}

static void give_ranges(cy_quant *q) {
  for (uint32_t t = 0; t < q->ntensors; t++) {
    cy_quant_tensor *x = &q->tensor[t];
    x->max = calloc(x->channels, sizeof *x->max);
    for (uint32_t c = 0; c < x->channels; c++)
      x->max[c] = c + 1;
  }
  cy_quant_balance(q);
  for (uint32_t t = 0; t < q->ntensors; t++) {
    free(q->tensor[t].max);
    q->tensor[t].low = -1;
    q->tensor[t].high = 2;
  }
}

static void test_residual_block(void) {
  cy_quant q;
  cy_quant_init(&q, CY_QUANT_OBSERVE);
  char *text = run(&q, block_text);
  CHECK(text && q.nlayers == 3 && q.ntensors == 5);
  CHECK(named(&q, "x") && named(&q, "b") && named(&q, "d") && named(&q, "e") && named(&q, "f"));
  CHECK(!named(&q, "a") && !named(&q, "c"));
  CHECK(named(&q, "x") && named(&q, "x")->axis == 1 && named(&q, "x")->channels == 4);
  CHECK(named(&q, "f") && named(&q, "f")->axis == -1 && named(&q, "d")->axis == -1); /* a view mixes channels */
  CHECK(count(text, "cytoc.quantise.tensor") == 5);
  free(text);
  give_ranges(&q);
  CHECK(named(&q, "x")->balance && fabsf(named(&q, "x")->balance[0] - 0.5f) < 1e-6f && !named(&q, "f")->balance);

  q.mode = CY_QUANT_MEASURE;
  text = run(&q, block_text);
  CHECK(count(text, "cytoc.quantise.sums") == 3 && count(text, "cytoc.quantise.differences") == 3);
  free(text);

  q.mode = CY_QUANT_SINGLE;
  text = run(&q, block_text);
  CHECK(count(text, "cytoc.quantise.layers: bool[3])") == 1 && count(text, "= select ") == 3 &&
        count(text, "= slice ") == 3);
  CHECK(count(text, "= conv ") == 4 && count(text, "= matmul ") == 2); /* each once more */
  free(text);

  q.mode = CY_QUANT_STATIC;
  text = run(&q, block_text);
  CHECK(count(text, "= quantize") == 3); /* x, b, d: what e and f hold moves as integers */
  CHECK(count(text, "= pool_max %") == 1 && count(text, ": u8[1,4,8,8], i64") == 1);
  CHECK(count(text, "= reshape %") == 1 && count(text, ": u8[1,256]") == 1);
  CHECK(count(text, "const i8[4,4,3,3]") == 1 && count(text, "const i8[256,8]") == 1);
  CHECK(count(text, ", %d\n}") == 1); /* outputs stay float */
  free(text);

  q.layer[2].keep = "no reason";
  text = run(&q, block_text);
  CHECK(count(text, "= quantize") == 2 && count(text, "const f32[256,8]") == 1 && count(text, "const i8") == 2);
  free(text);
  cy_quant_deinit(&q);
}

/* A layer that is in float for its precision reads what is pooled in float, though another reads it pooled in integers. */
static void test_precise_beside_moved(void) {
  static const char text[] =
      "graph @g(%x: f32[1,4,8,8]) {\n"
      "  @w = const f32[4,4,1,1] data(1)\n"
      "  @v = const f32[4,4,1,1] data(2)\n"
      "  %p, %i = pool_max %x {kernel=[2,2], strides=[2,2], pads=[0,0,0,0], dilations=[1,1], storage_order=0} : "
      "f32[1,4,4,4], i64[1,4,4,4]\n"
      "  %a = conv %p, @w {strides=[1,1], pads=[0,0,0,0], dilations=[1,1], group=1} : f32[1,4,4,4]  ; from \"rough\"\n"
      "  %b = conv %p, @v {strides=[1,1], pads=[0,0,0,0], dilations=[1,1], group=1} : f32[1,4,4,4]  ; from \"exact\"\n"
      "  return %a, %b\n"
      "}\n";
  cy_quant q;
  cy_quant_init(&q, CY_QUANT_OBSERVE);
  free(run(&q, text));
  CHECK_REQUIRE(q.nlayers == 2);
  give_ranges(&q);
  q.mode = CY_QUANT_STATIC;
  q.layer[1].keep = "its error";
  q.layer[1].precise = true;
  char *out = run(&q, text);
  CHECK(count(out, "= pool_max %x ") == 1 && count(out, ": u8[1,4,4,4], i64") == 1 && count(out, "const i8") == 1);
  free(out);
  cy_quant_deinit(&q);
}

/* Factors per channel pass through a slice that leaves channels where they are, not through one that turns them round. */
static void test_transposed_channels(void) {
  static const struct {
    const char *starts, *steps;
    int axis;
  } cases[] = {{"[0,0,2,0]", "[1,1,1,1]", 1}, {"[0,3,2,0]", "[1,-1,1,1]", -1}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char text[512];
    snprintf(text, sizeof text,
             "graph @g(%%x: f32[1,4,8,8]) {\n  @w = const f32[4,4,1,1] data(1)\n"
             "  %%s = slice %%x {starts=%s, steps=%s} : f32[1,4,6,8]\n"
             "  %%a = conv %%s, @w {strides=[1,1], pads=[0,0,0,0], dilations=[1,1], group=1} : f32[1,4,6,8]\n"
             "  return %%a\n}\n",
             cases[i].starts, cases[i].steps);
    cy_quant q;
    cy_quant_init(&q, CY_QUANT_OBSERVE);
    free(run(&q, text));
    CHECK_REQUIRE(named(&q, "s") && named(&q, "x"));
    CHECK(named(&q, "s")->axis == cases[i].axis && named(&q, "x")->axis == cases[i].axis);
    cy_quant_deinit(&q);
  }
}

static void test_skip(void) {
  cy_quant q;
  cy_quant_init(&q, CY_QUANT_OBSERVE);
  q.skip = "sec*,third";
  free(run(&q, block_text));
  CHECK(q.nlayers == 3 && !q.layer[0].keep && q.layer[1].keep && q.layer[2].keep && q.ntensors == 1);
  cy_quant_deinit(&q);
}

/* What products read is rounded, not the sum that runs beside them, also when only element-wise ops lie between. */
static void test_stream(void) {
  static const char text[] =
      "graph @g(%x: f32[n,64]) {\n  @w = const f32[64,64] data(1)\n  @v = const f32[64,64] data(2)\n"
      "  @s = const f32[64] data(3)\n  %a = mul %x, @s : f32[n,64]\n  %b = matmul %a, @w : f32[n,64]\n"
      "  %c = add %b, %x : f32[n,64]  ; from \"sum\"\n  %d = mul %c, @s : f32[n,64]\n"
      "  %e = matmul %d, @v : f32[n,64]\n  %f = add %e, %c : f32[n,64]\n  return %f\n}\n";
  cy_quant q;
  cy_quant_init(&q, CY_QUANT_OBSERVE);
  free(run(&q, text));
  CHECK(q.nlayers == 2 && q.ntensors == 2 && named(&q, "a") && named(&q, "d"));
  cy_quant_deinit(&q);
}

static void test_nothing(void) {
  cy_quant q;
  cy_quant_init(&q, CY_QUANT_OBSERVE);
  char *text = run(&q, "graph @g(%x: f32[4,4]) {\n  %y = matmul %x, %x : f32[4,4]\n  return %y\n}\n");
  CHECK(text && q.nlayers == 0 && q.ntensors == 0 && count(text, "cytoc.quantise") == 0);
  free(text);
  cy_quant_deinit(&q);
}

static void test_dynamic(void) {
  static const char text[] =
      "graph @g(%x: f32[n,64]) {\n  @w = const f32[64,128] data(1)\n  @v = const f32[64,128] data(2)\n"
      "  @s = const f32[64,8] data(3)\n  %a = matmul %x, @w : f32[n,128]\n  %b = matmul %x, @v : f32[n,128]\n"
      "  %c = matmul %x, @s : f32[n,8]\n  return %a, %b, %c\n}\n";
  cy_quant q;
  cy_quant_init(&q, CY_QUANT_DYNAMIC);
  char *out = run(&q, text);
  CHECK(count(out, "= quantize_rows") == 1 && count(out, ": i32[n,128]") == 2 && count(out, "const i8[64,128]") == 2);
  CHECK(q.nlayers == 3 && q.layer[2].keep && count(out, "const f32[64,8]") == 1);
  free(out);
  cy_quant_deinit(&q);
}

static const char convolutions_text[] =
    "sym n\nsym w\n"
    "graph @g(%x: f32[n,32,8,w], %z: f32[1,1,3,3,3,3]) {\n"
    "  @w = const f32[32,32,3,3] data(1)\n  @d = const f32[32,1,3,3] data(2)\n  @v = const f32[8,1,3,3,3,3] data(3)\n"
    "  @zero = const f32[] {0}\n"
    "  %a = conv %x, @w {strides=[1,1], pads=[1,1,1,1], dilations=[1,1], group=1} : f32[n,32,8,w]  ; from \"first\"\n"
    "  %b = conv %x, @d {strides=[1,1], pads=[1,1,1,1], dilations=[1,1], group=32} : f32[n,32,8,w]  ; from \"deep\"\n"
    "  %c = max %b, @zero : f32[n,32,8,w]\n"
    "  %e = conv %c, @w {strides=[1,1], pads=[1,1,1,1], dilations=[1,1], group=1} : f32[n,32,8,w]  ; from \"third\"\n"
    "  %f = conv %z, @v {strides=[1,1,1,1], pads=[0,0,0,0,0,0,0,0], dilations=[1,1,1,1], group=1} : f32[1,8,1,1,1,1]"
    "  ; from \"fourth\"\n"
    "  return %a, %e, %f\n}\n";

/* Integers take half as long as floats, where the kernel is not of one channel; rounding, next to nothing. */
static double half(const struct cy_machine *m, const cy_graph *g, const cy_node_info *n, const int64_t *sizes,
                   cy_layer_arithmetic arithmetic) {
  (void)m, (void)sizes;
  bool gains = arithmetic == CY_LAYER_INTS && !cy_dim_is(g, cy_value_of(g, n->in[1])->type.dim[1], 1);
  return arithmetic == CY_LAYER_ROUNDING ? 1e3 : gains ? 1e9 : 2e9;
}

/* A scale per image, bits reduced slice by slice; 255 steps behind a ReLU; layers of one x share what is rounded. */
static void test_dynamic_convolutions(void) {
  cy_quant q;
  cy_quant_init(&q, CY_QUANT_DYNAMIC);
  q.smallest = true;
  char *out = run(&q, convolutions_text);
  CHECK(q.nlayers == 4 && !q.layer[0].keep && !q.layer[1].keep && !q.layer[2].keep);
  CHECK(q.nlayers == 4 && q.layer[3].keep && strstr(q.layer[3].keep, "axes"));
  CHECK(count(out, "{axes=[1,2], keepdims=1} : i32[n,1,1,w]") == 2); /* w may be the longer */
  CHECK(count(out, "{axes=[3], keepdims=1} : i32[n,1,1,1]") == 2);
  CHECK(count(out, ": i8[n,32,8,w]") == 1 && count(out, ": u8[n,32,8,w]") == 1 &&
        count(out, ": i32[n,32,8,w]") == 3 + 2);
  free(out);
  q.smallest = false;
  out = run(&q, convolutions_text); /* nothing is known of time: dense ones only */
  CHECK(!q.layer[4].keep && q.layer[5].keep && !q.layer[6].keep);
  free(out);
  static const cy_target_caps halves = {.layer_cycles = half, .ints = {.margin = 1.03}};
  q.caps = &halves;
  out = run(&q, convolutions_text);
  CHECK(!q.layer[8].keep && q.layer[9].keep && !strcmp(q.layer[9].keep, CY_QUANT_NO_GAIN) && !q.layer[10].keep);
  CHECK(q.layer[8].cycles[0] == 2e9 && q.layer[8].cycles[1] > 1e9); /* rounding is in it */
  free(out);
  cy_quant_deinit(&q);
  cy_quant_init(&q, CY_QUANT_MEASURE_DYNAMIC);
  q.skip = "third";
  q.smallest = true;
  out = run(&q, convolutions_text);
  CHECK(count(out, "cytoc.quantise.sums") == 2 && q.layer[2].keep && count(out, "const f32[32,32,3,3]") == 1);
  free(out);
  cy_quant_deinit(&q);
}

/* 255 steps where the sign is sure: of bytes, of a sum of what a sigmoid and a clip give; not of a product of integers,
 * which may wrap, nor where one part may be negative. */
static void test_signs(void) {
  static const struct {
    const char *made, *type;
  } cases[] = {{"%y = cast %u : f32[1,8,4,4]", "u8"},
               {"%s = sigmoid %x\n  %m = max %x, @zero\n  %c = min %m, @six\n  %y = add %s, %c", "u8"},
               {"%y = mul %x, %x", "u8"},
               {"%q = mul %i, %i\n  %y = cast %q : f32[1,8,4,4]", "i8"},
               {"%m = max %x, @zero\n  %y = sub %m, @six", "i8"},
               {"%m = max %x, @zero\n  %y = concat %m, %x {axis=1}", "i8"}};
  for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
    char text[1024], wanted[32];
    int channels = strstr(cases[k].made, "concat") ? 16 : 8;
    snprintf(text, sizeof text,
             "graph @g(%%x: f32[1,8,4,4], %%u: u8[1,8,4,4], %%i: i32[1,8,4,4]) {\n  @w = const f32[8,%d,1,1] data(1)\n"
             "  @zero = const f32[] {0}\n  @six = const f32[] {6}\n  %s\n"
             "  %%z = conv %%y, @w {strides=[1,1], pads=[0,0,0,0], dilations=[1,1], group=1} : f32[1,8,4,4]\n"
             "  return %%z\n}\n",
             channels, cases[k].made);
    cy_quant q;
    cy_quant_init(&q, CY_QUANT_DYNAMIC);
    q.smallest = true;
    char *out = run(&q, text);
    snprintf(wanted, sizeof wanted, " : %s[1,%d,4,4]\n", cases[k].type, channels);
    CHECK(count(out, wanted) == 1);
    free(out);
    cy_quant_deinit(&q);
  }
}

static void test_numbers(void) {
  float scale, scales[2];
  int zero;
  int8_t out[6];
  cy_quant_u8(-1, 2, &scale, &zero);
  CHECK(fabsf(scale - 3.0f / 255) < 1e-9f && zero == 85);
  cy_quant_u8(1, 2, &scale, &zero); /* 0 is always inside: it pads */
  CHECK(fabsf(scale - 2.0f / 255) < 1e-9f && zero == 0);
  cy_quant_u8(-3, -1, &scale, &zero);
  CHECK(zero == 255);
  cy_quant_u8(0, 0, &scale, &zero);
  CHECK(scale == 1 && zero == 0);
  const float w[6] = {1, -2, 0.5f, 0, 0, 0};
  cy_quant_s8(w, 1, 2, 3, 1, scales, out);
  CHECK(out[0] == 64 && out[1] == -127 && out[2] == 32 && out[3] == 0 && scales[1] == 1);
  const float v[4] = {1, 10, -1, 5};
  cy_quant_s8(v, 2, 2, 1, 1, scales, out);
  CHECK(out[0] == 127 && out[1] == 127 && out[2] == -127 && out[3] == 64);
  /* of four taps with a scale of 1, all rounded up by 0.25 to 0.45, one goes down; a pair that is off by half a step stays */
  const float filters[6] = {127, 0.75f, 0.55f, 0.65f, 0, 0.5f};
  cy_quant_s8(filters, 1, 1, 4, 4, scales, out);
  CHECK(out[0] == 127 && out[1] == 1 && out[2] == 0 && out[3] == 1);
  cy_quant_s8(filters + 4, 1, 1, 2, 2, scales, out);
  CHECK(out[0] == 0 && out[1] == 127);
}

enum { ITEMS = 9, NEEDS = 14 };

/* What a choice, a bit per item, is worth; below every allowed one if it breaks a need. */
static int64_t worth(uint32_t chosen, const int64_t *gain, const cy_quant_need *needs) {
  int64_t sum = 0;
  for (int i = 0; i < ITEMS; i++)
    sum += chosen >> i & 1 ? gain[i] : 0;
  for (int i = 0; i < NEEDS; i++)
    if ((chosen >> needs[i].item & 1) && !(chosen >> needs[i].other & 1))
      sum -= needs[i].price == CY_QUANT_MUST ? 1000000 : needs[i].price;
  return sum;
}

/* Random gains and needs: no other choice is worth more. */
static void test_choose(void) {
  cy_arena *arena = cy_arena_create();
  uint32_t seed = 1;
  for (int round = 0; round < 300; round++) {
    int64_t gain[ITEMS], best = 0;
    cy_quant_need needs[NEEDS];
    bool chosen[ITEMS];
    uint32_t bits = 0;
#define RANDOM(n) ((int64_t)((seed = seed * 1664525 + 1013904223) >> 8) % (n))
    for (int i = 0; i < ITEMS; i++)
      gain[i] = RANDOM(41) - 22;
    for (int i = 0; i < NEEDS; i++)
      needs[i] = (cy_quant_need){(uint32_t)RANDOM(ITEMS), (uint32_t)RANDOM(ITEMS), i % 3 ? CY_QUANT_MUST : RANDOM(12)};
    cy_quant_choose(arena, gain, ITEMS, needs, NEEDS, chosen);
    for (int i = 0; i < ITEMS; i++)
      bits |= (uint32_t)chosen[i] << i;
    for (uint32_t other = 0; other < 1u << ITEMS; other++)
      best = worth(other, gain, needs) > best ? worth(other, gain, needs) : best;
    CHECK(worth(bits, gain, needs) == best);
  }
  cy_arena_destroy(arena);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"residual_block", test_residual_block},
                                     {"precise_beside_moved", test_precise_beside_moved},
                                     {"turned-channels", test_transposed_channels},
                                     {"skip", test_skip},
                                     {"stream", test_stream},
                                     {"nothing", test_nothing},
                                     {"dynamic", test_dynamic},
                                     {"dynamic_convolutions", test_dynamic_convolutions},
                                     {"signs", test_signs},
                                     {"numbers", test_numbers},
                                     {"choose", test_choose}};
  diag = cy_diag_create();
  int rc = check_main(argc, argv, tests, CHECK_COUNT(tests));
  graph_of(NULL);
  cy_diag_print(diag, stderr);
  cy_diag_destroy(diag);
  return rc;
}
