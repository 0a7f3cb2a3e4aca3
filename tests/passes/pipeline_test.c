/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline_test.c - the runner: order of passes per level, options, dumps, statistics, diagnostics for wrong names. */
#include "passes/passes.h"
#include "passes/quantise/quantise.h"
#include "tests/check.h"

#include <unistd.h>

static const char source[] =
    "graph @g(%x: f32[4]) {\n  @zero = const f32[] {0}\n  %a = add %x, @zero\n  %b = exp %a\n  return %b\n}\n";

static cy_diag_sink *diag;
static cy_pass_stats stats;

static int run(cy_pass_options o) {
  diag = cy_diag_create();
  cy_graph *g = cy_graph_parse(source, sizeof source - 1, "test", diag);
  CHECK(g != NULL);
  o.verify = true;
  int rc = g ? cy_passes_run(g, &o, &stats) : -1;
  CHECK_INT_EQ(cy_diag_errors(diag) != 0, rc != 0);
  if (g)
    cy_graph_destroy(g);
  cy_diag_destroy(diag);
  return rc;
}

static bool ran(const char *name) {
  for (uint32_t i = 0; i < stats.nruns; i++)
    if (!strcmp(stats.run[i].name, name))
      return true;
  return false;
}

static void levels(void) {
  CHECK_INT_EQ(run((cy_pass_options){.opt_level = 0}), 0);
  CHECK(stats.nruns == 3 && ran("sweep") && ran("half") && ran("attention_plain"));
  CHECK_INT_EQ(run((cy_pass_options){.opt_level = 1}), 0);
  CHECK(ran("simplify") && ran("fuse") && !ran("layout"));
  CHECK_INT_EQ(run((cy_pass_options){.opt_level = 2}), 0);
  CHECK(ran("layout") && !ran("template"));
}

static void options(void) {
  CHECK_INT_EQ(run((cy_pass_options){.opt_level = 2, .stop_after = "cse"}), 0);
  CHECK_STR_EQ(stats.run[stats.nruns - 1].name, "cse");
  CHECK_INT_EQ(run((cy_pass_options){.opt_level = 2, .disable = "simplify,fuse"}), 0);
  CHECK(!ran("simplify") && !ran("fuse") && ran("simplify_late"));
  CHECK_INT_EQ(run((cy_pass_options){.only = "fuse,simplify"}), 0);
  CHECK_STR_EQ(stats.run[1].name, "fuse");
  CHECK_STR_EQ(stats.run[2].name, "simplify");
  CHECK_STR_EQ(stats.run[2].counter[0].name, "x+0");
}

static void wrong_names(void) {
  CHECK_INT_EQ(run((cy_pass_options){.only = "fuse,nosuch"}), -1);
  CHECK_INT_EQ(run((cy_pass_options){.opt_level = 2, .disable = "nosuch"}), -1);
  CHECK_INT_EQ(run((cy_pass_options){.opt_level = 2, .stop_after = "nosuch"}), -1);
  CHECK_INT_EQ(run((cy_pass_options){.opt_level = 2, .disable = "sweep"}), -1);
}

static void check_dump(const char *dir, const char *file, const char *part) {
  char path[512], text[4096] = "";
  snprintf(path, sizeof path, "%s/%s", dir, file);
  FILE *f = fopen(path, "r");
  CHECK_REQUIRE(f != NULL);
  text[fread(text, 1, sizeof text - 1, f)] = 0;
  fclose(f);
  CHECK_STR_HAS(text, part);
  unlink(path);
}

static void dumps(void) {
  char dir[CHECK_PATH];
  CHECK_REQUIRE(check_folder("cytoc-dump", dir));
  CHECK_INT_EQ(run((cy_pass_options){.only = "simplify,cse", .dump = "all", .dump_dir = dir}), 0);
  check_dump(dir, "00-start.txt", "= add");
  check_dump(dir, "01-sweep.txt", "(unchanged)");
  check_dump(dir, "02-simplify.txt", "= exp %x");
  check_dump(dir, "03-cse.txt", "(unchanged)");
  CHECK_INT_EQ(rmdir(dir), 0);
}

typedef struct seen {
  cy_quant *q;
  int calls, status;
} seen;

/* A clone goes on where the graph stands, by the pass that learning is for and those behind it. */
static int learn(void *ctx, cy_graph *g) {
  seen *s = ctx;
  cy_pass_stats of_clone;
  cy_graph *clone = cy_graph_clone(g);
  cy_pass_options o = {.opt_level = 2, .verify = true, .from = cy_quant_pass(s->q->mode), .quant = s->q};
  s->calls++;
  CHECK_INT_EQ(cy_passes_run(clone, &o, &of_clone), 0);
  CHECK_STR_EQ(of_clone.run[0].name, cy_quant_pass(s->q->mode));
  CHECK_STR_EQ(of_clone.run[of_clone.nruns - 1].name, "fuse");
  cy_graph_destroy(clone);
  CHECK(!cy_quant_is_half(s->q->mode) || ran("quantise")); /* of the graph itself, that is in front */
  return s->status;
}

static void learning(void) {
  static const struct {
    cy_quant_mode mode;
    const char *stop_after, *disable, *only;
    int calls;
  } cases[] = {{CY_QUANT_DYNAMIC, NULL, NULL, NULL, 1},    {CY_QUANT_STATIC, NULL, NULL, NULL, 1},
               {CY_QUANT_HALF, NULL, NULL, NULL, 1},       {CY_QUANT_DYNAMIC, "cse", NULL, NULL, 0},
               {CY_QUANT_HALF, "quantise", NULL, NULL, 0}, {CY_QUANT_DYNAMIC, NULL, "quantise", NULL, 0},
               {CY_QUANT_DYNAMIC, NULL, NULL, "cse", 0},   {CY_QUANT_DYNAMIC, NULL, NULL, "quantise,quantise", 1}};
  for (int i = 0; i < CHECK_COUNT(cases); i++) {
    cy_quant q;
    cy_quant_init(&q, cases[i].mode);
    seen s = {.q = &q};
    cy_pass_options o = {.opt_level = 2,
                         .stop_after = cases[i].stop_after,
                         .disable = cases[i].disable,
                         .only = cases[i].only,
                         .quant = &q,
                         .learn = learn,
                         .learn_ctx = &s};
    CHECK_INT_EQ(run(o), 0);
    CHECK_INT_EQ(s.calls, cases[i].calls);
    cy_quant_deinit(&q);
  }
}

int main(int argc, char **argv) {
  static const check_test tests[] = {
      {"learning", learning}, {"levels", levels}, {"options", options}, {"wrong names", wrong_names}, {"dumps", dumps}};
  return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
