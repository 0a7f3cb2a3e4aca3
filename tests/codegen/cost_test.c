/* SPDX-License-Identifier: Apache-2.0 */
/* cost_test.c - machine.def and what is made of it: rows are whole, CPUs without a row get the nearest, times have the order
 * that work has; passes and generators have one estimate of a layer. */
#include "codegen/codegen.h"
#include "codegen/cpu/cost.h"
#include "passes/lower/lower.h"
#include "passes/lower/memplan.h"
#include "passes/passes.h"
#include "tests/check.h"

#include <math.h>
#include <stdlib.h>

static const char *const names[] = {
#define CPU(name, arch, features, l1_kb, l2_kb, fmas, core) name,
#include "codegen/cpu/machine.def"
};
static const char *const arches[] = {
#define CPU(name, arch, features, l1_kb, l2_kb, fmas, core) arch,
#include "codegen/cpu/machine.def"
};
static const char *const features_of[] = {
#define CPU(name, arch, features, l1_kb, l2_kb, fmas, core) features,
#include "codegen/cpu/machine.def"
};
static const int64_t l2_kb[] = {
#define CPU(name, arch, features, l1_kb, l2_kb, fmas, core) l2_kb,
#include "codegen/cpu/machine.def"
};
enum { CPUS = sizeof names / sizeof names[0] };

static void rows(void) {
  for (int i = 0; i < CPUS; i++) {
    cy_cpu_model m;
    memset(&m, 0xff, sizeof m); /* every column is filled in */
    const char *found = cy_cpu_nearest(arches[i], features_of[i], cy_cpu_lanes(features_of[i]), 0, l2_kb[i] << 10, &m);
    CHECK(found != NULL && m.fmas >= 1 && m.fmas <= 4 && m.l1_bytes >= 1 << 14 && m.l2_bytes == l2_kb[i] << 10);
#define COLUMN(name, unit, usual, meaning) CHECK(isfinite(m.name) && m.name >= 0);
#include "codegen/cpu/machine.def"
    CHECK(m.fma_share > 0 && m.memory_bytes > 0 && m.dot4 > 0 && m.dot2 > 0 && m.task_products > 0);
  }
}

static const char *nearest(const char *isa, const char *features, int64_t l1_kb, int64_t l2_size_kb) {
  cy_cpu_model m;
  return cy_cpu_nearest(isa, features, cy_cpu_lanes(features), l1_kb << 10, l2_size_kb << 10, &m);
}

/* Features that no row has, or a row without some of them: what remains decides, then the caches. */
static void unknown_cpus(void) {
  static const char level3[] = "cx16,popcnt,sahf,sse3,ssse3,sse4.1,sse4.2,avx,avx2,bmi,bmi2,f16c,fma,lzcnt,movbe,xsave,adx";
  char text[512];
  CHECK_STR_EQ(nearest("x86_64", level3, 32, 512), "broadwell");
  snprintf(text, sizeof text, "%s,gfni,avxvnni", level3);
  CHECK_STR_EQ(nearest("x86_64", text, 48, 1280), "alderlake");
  snprintf(text, sizeof text, "%s,avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni", level3);
  CHECK_STR_EQ(nearest("x86_64", text, 32, 1024), "cascadelake");
  snprintf(text, sizeof text,
           "%s,avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx512vbmi2,avx512ifma,avx512bitalg,"
           "avx512vpopcntdq,gfni,avx512bf16,avxvnni,avx512fp16",
           level3); /* such as a Sapphire Rapids whose AMX a virtual machine hides */
  CHECK_STR_EQ(nearest("x86_64", text, 48, 2048), "sapphirerapids");
  CHECK_STR_EQ(nearest("x86_64", "", 0, 0), "x86-64");
  CHECK_STR_EQ(nearest("aarch64", "neon,fullfp16,dotprod,i8mm,bf16", 64, 2048), "neoverse-v2");
  CHECK_STR_EQ(nearest("aarch64", "neon", 32, 0), "aarch64");
  cy_cpu_model m;
  cy_cpu_nearest("aarch64", "neon,fullfp16,dotprod", 4, 0, 3 << 20, &m);
  CHECK(m.l2_bytes == 3 << 20); /* what it reports, not the row's */
}

/* What a row lists counts where a machine reports it; of other features only those of CPUs without a row. */
static void reported(void) {
  for (int i = 0; i < CPUS; i++) {
    char on[2048] = "-nosuch,+64bit", name[64];
    for (const char *p = features_of[i]; *p; p += *p == ',') {
      size_t n = strcspn(p, ","), at = strlen(on);
      snprintf(on + at, sizeof on - at, ",+%.*s", (int)n, p);
      p += n;
    }
    char *found = cy_cpu_features_on(on);
    CHECK(strlen(found) == strlen(features_of[i]));
    for (const char *p = found; *p; p += *p == ',') {
      size_t n = strcspn(p, ",");
      snprintf(name, sizeof name, "%.*s", (int)n, p);
      CHECK(strstr(features_of[i], name) != NULL);
      p += n;
    }
    free(found);
  }
  char *old = cy_cpu_features_on("+xop,+sse4a,-avx2,+avx512fp16,+avx,+prfchw");
  CHECK_STR_EQ(old, "avx,avx512fp16,xop");
  free(old);
}

/* A virtual machine that hides AVX-512 has no use for a core that is described with it. */
static void hidden_vectors(void) {
  cy_cpu_model whole, hidden, avx2;
  const char *found = cy_cpu_model_of("znver4", "avx512f,avx512vl", 16, &whole);
  CHECK_STR_EQ(found, "znver4");
  cy_cpu_model_of("znver3", "avx2", 8, &avx2);
  found = cy_cpu_model_of("znver4", "cx16,popcnt,sse3,avx,avx2,fma,f16c,adx,xsave,bmi,bmi2", 8, &hidden);
  CHECK(strcmp(found, "znver4") != 0 && hidden.fmas == 2 && hidden.k_block == avx2.k_block && whole.k_block != avx2.k_block);
}

/* More work takes longer, and cached bytes less than others, on every CPU. */
static void order(void) {
  static const char *const some[] = {"x86-64-v3", "znver4", "sapphirerapids", "cortex-a76"};
  for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
    char *error = NULL;
    cy_cg *cg = cy_cg_create(some[i], &error);
    CHECK(cg != NULL);
    if (!cg) {
      free(error);
      continue;
    }
    CHECK(cy_cost_fmas(cg, 2e6) > cy_cost_fmas(cg, 1e6));
    CHECK(cy_cost_plain(cg, 10, 1e6, 0) > cy_cost_plain(cg, 10, 1e5, 0));
    CHECK(cy_cost_plain(cg, 10, 0, 1e6) > cy_cost_plain(cg, 10, 0, 1e5));
    CHECK(cy_cost_reloads(cg, 1e4, 1) < cy_cost_loads(cg, 1e4) && cy_cost_reloads(cg, 1e9, 1) == cy_cost_loads(cg, 1e9));
    for (cy_depthwise_by by = CY_DEPTHWISE_FMA; by <= CY_DEPTHWISE_DOT4; by++) {
      CHECK(cy_cost_depthwise(cg, by, 1e4, 25, 1) > cy_cost_depthwise(cg, by, 1e4, 9, 1));
      CHECK(cy_cost_depthwise_task(cg, 1e4, 0, by) > 1 && cy_cost_depthwise_task(cg, 1e7, 0, by) == 1);
      CHECK(cy_cost_depthwise_task(cg, 2e4, 7, by) == 4); /* as equal ones as can be */
      CHECK(cy_cost_depthwise_task(cg, 1e2, 7, by) == 7);
    }
    CHECK(cy_cost_task(cg, 12, 2, 1000) > cy_cost_task(cg, 6, 2, 1000));
    CHECK(cy_cost_transpose(cg, 1e8) >= 1e4 * cy_cost_transpose(cg, 1e4));
    CHECK(cy_l2_part(cg, 1, 2) * 2 == cy_l2_part(cg, 1, 1));
    cy_cg_destroy(cg);
  }
}

/* ---- one estimate of a layer ---- */

static const char *const layers[] = {
    "conv f32[1,64,28,28] f32[96,64,3,3] [1,96,28,28] strides=[1,1], pads=[1,1,1,1], dilations=[1,1], group=1",
    "conv f32[1,64,28,28] f32[96,64,1,1] [1,96,28,28] strides=[1,1], pads=[0,0,0,0], dilations=[1,1], group=1",
    "conv f32[1,96,61,61] f32[96,1,3,3] [1,96,31,31] strides=[2,2], pads=[1,1,1,1], dilations=[1,1], group=96",
    "conv f32[1,64,28,28] f32[64,16,3,3] [1,64,28,28] strides=[1,1], pads=[1,1,1,1], dilations=[1,1], group=4",
    "conv f32[2,96,9,33] f32[24,96,1,5] [2,24,9,33] strides=[1,1], pads=[0,2,0,2], dilations=[1,1], group=1",
    "matmul f32[196,384] f32[384,200] [196,200]",
    "matmul f32[3,50,96] f32[96,64] [3,50,64]",
    "matmul f32[3,50,96] f32[3,96,64] [3,50,64]",
};

/* A graph of that layer, in f32 or with bytes. */
static cy_graph *graph_of(const char *layer, bool ints, cy_diag_sink *diag) {
  char op[16], x[32], w[32], y[32], text[512];
  int end = 0;
  CHECK(sscanf(layer, "%15s f32%31s f32%31s %31s %n", op, x, w, y, &end) == 4);
  const char *attributes = layer + end;
  snprintf(text, sizeof text, "graph @g(%%x: %s%s) {\n  @w = const %s%s data(1)\n  %%y = %s %%x, @w %s%s%s : %s%s\n  return %%y\n}\n",
           ints ? "u8" : "f32", x, ints ? "i8" : "f32", w, op, *attributes ? "{" : "", attributes, *attributes ? "}" : "",
           ints ? "i32" : "f32", y);
  return cy_graph_parse(text, strlen(text), "layer", diag);
}

/* By passes; planar: of a convolution in that layout. */
static double estimated(const cy_machine *m, const char *layer, cy_layer_arithmetic as, bool planar, cy_diag_sink *diag) {
  const cy_target_caps *caps = cy_machine_caps(m);
  cy_graph *g = graph_of(layer, false, diag);
  double cycles = 0;
  for (cy_node n = 1; g && n <= cy_node_count(g) && cycles <= 0; n++) {
    cy_conv_cycles conv;
    cycles = cy_caps_layer_cycles(caps, g, cy_node_of(g, n), NULL, as);
    if (planar)
      cycles = cy_caps_conv_cycles(caps, g, cy_node_of(g, n), NULL, &conv) ? conv.planar : 0;
  }
  cy_graph_destroy(g);
  return cycles;
}

static void take_chosen(void *ctx, const cy_candidates *layer, uint32_t launches) {
  (void)launches;
  *(cy_candidate *)ctx = layer->of[layer->chosen];
}

/* The candidate that code is made by. */
static cy_candidate chosen(cy_machine *m, const char *layer, bool ints, cy_diag_sink *diag) {
  cy_candidate found = {.name = "none"};
  cy_graph *g = graph_of(layer, ints, diag);
  cy_pass_options passes = {.opt_level = 2, .caps = cy_machine_caps(m)};
  cy_lower_options lower = {.level = 2, .caps = cy_machine_caps(m)};
  cy_program *p = g && !cy_passes_run(g, &passes, NULL) ? cy_lower(g, &lower) : NULL;
  cy_codegen_options o = {.machine = m, .emit = CY_EMIT_SO, .output = "layer.so", .plan_memory = cy_plan_memory, .diag = diag,
                          .visit = take_chosen, .visit_ctx = &found, .plan_only = true};
  CHECK(p && cy_codegen(p, &o) == 0);
  cy_graph_destroy(g);
  return found;
}

static void layer_agrees(cy_machine *m, const char *layer, bool ints, cy_diag_sink *diag) {
  cy_candidate by = chosen(m, layer, ints, diag);
  bool planar = !strcmp(by.name, "planar");
  double cycles = estimated(m, layer, ints ? CY_LAYER_INTS : CY_LAYER_FLOATS, planar, diag);
  bool agrees = cycles > 0 && fabs(cycles - by.cycles) <= 1e-9 * cycles;
  CHECK(agrees);
  if (!agrees)
    fprintf(stderr, "%s, %s, %s: passes %.0f cycles, generators %.0f (%s)\n", cy_machine_text(m), layer, ints ? "bytes" : "floats",
            cycles, by.cycles, by.name);
}

static void one_estimate(void) {
  static const char *const some[] = {"x86-64-v3", "znver4", "znver5", "sapphirerapids", "cortex-a76"};
  cy_diag_sink *diag = cy_diag_create();
  for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
    cy_machine *m = cy_machine_open(some[i], diag);
    for (size_t l = 0; m && l < sizeof layers / sizeof *layers; l++) {
      layer_agrees(m, layers[l], false, diag);
      layer_agrees(m, layers[l], true, diag);
    }
    cy_machine_close(m);
  }
  cy_diag_destroy(diag);
}

static const check_test tests[] = {{"rows", rows}, {"unknown_cpus", unknown_cpus}, {"reported", reported}, {"hidden_vectors", hidden_vectors}, {"order", order},
                                   {"one_estimate", one_estimate}};

int main(int argc, char **argv) { return check_main(argc, argv, tests, CHECK_COUNT(tests)); }
