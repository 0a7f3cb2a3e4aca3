/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - time per stage and pass, sizes and peak memory, for people (text) and for programs (JSON).
 */
#include "report.h"

#include "ir/clock.h"
#include "version.h"

#include <jansson.h>
#include <string.h>
#include <sys/resource.h>

static double peak_mb(void) {
  struct rusage u, c;
  getrusage(RUSAGE_SELF, &u);
  getrusage(RUSAGE_CHILDREN, &c);
  return (double)(u.ru_maxrss > c.ru_maxrss ? u.ru_maxrss : c.ru_maxrss) / 1024;
}

/* Ends the stage at hand. */
static void end_stage(cytoc_report *r, double now) {
  if (!r->at)
    return;
  double ms = now - r->start;
  r->stage[r->at - 1].ms += ms;
  if (r->verbose)
    fprintf(stderr, "cytoc: %s took %.3f s\n", r->stage[r->at - 1].name, ms * 1e-3);
  r->at = 0;
}

void cytoc_report_progress(cytoc_report *r, const char *stage, int64_t done, int64_t total) {
  if (r->progress)
    r->progress(r->progress_ctx, stage, done, total);
}

void cytoc_report_stage(cytoc_report *r, const char *name) {
  double t = cy_clock_ms();
  end_stage(r, t);
  if (!name)
    return;
  int i = 0;
  while (i < r->nstages && strcmp(r->stage[i].name, name))
    i++;
  if (i == CYTOC_MAX_STAGES)
    return;
  if (i == r->nstages)
    r->nstages++;
  r->stage[i].name = name;
  r->start = t;
  r->at = i + 1;
  cytoc_report_progress(r, name, 0, 0);
}

static void write_text(const cytoc_report *r) {
  printf("%-12s %10s\n", "stage", "ms");
  for (int i = 0; i < r->nstages; i++)
    printf("%-12s %10.2f\n", r->stage[i].name, r->stage[i].ms);
  cy_pass_stats_print(&r->passes, stdout);
  printf("kernels %u, steps %u, constants %u\n", r->code.kernels, r->code.steps, r->code.constants);
  if (*r->code.compiled_by.name)
    printf("kernels compiled by %s, %s\n", r->code.compiled_by.name, r->code.compiled_by.path);
  printf("weights %.2f MB, output %.2f MB, arena ", (double)r->code.weights_bytes / 1e6,
         (double)r->code.output_bytes / 1e6);
  if (r->code.arena_bytes >= 0)
    printf("%.2f MB\n", (double)r->code.arena_bytes / 1e6);
  else
    printf("depends on the inputs' sizes\n");
  for (uint32_t i = 0; i < r->code.noften; i++) {
    const cy_stored_often *s = &r->code.often[i];
    printf("'%s' is stored %u times: %.2f MB of the model, %.2f MB of the library\n", s->name, s->times,
           (double)s->model_bytes / 1e6, (double)s->library_bytes / 1e6);
  }
  printf("peak memory %.1f MB\n", peak_mb());
}

static json_t *often_json(const cy_codegen_stats *code) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < code->noften; i++) {
    const cy_stored_often *s = &code->often[i];
    json_array_append_new(list, json_pack("{s:s%, s:i, s:I, s:I}", "name", s->name, strlen(s->name), "times",
                                          (int)s->times, "model_bytes", (json_int_t)s->model_bytes, "library_bytes",
                                          (json_int_t)s->library_bytes));
  }
  return list;
}

static json_t *passes_json(const cy_pass_stats *s) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < s->nruns; i++) {
    const cy_pass_stat *p = &s->run[i];
    json_t *counters = json_object();
    for (uint32_t c = 0; c < p->ncounters; c++)
      json_object_set_new(counters, p->counter[c].name, json_integer((json_int_t)p->counter[c].count));
    json_array_append_new(list,
                          json_pack("{s:s, s:f, s:i, s:i, s:o}", "name", p->name, "ms", p->ms, "nodes_before",
                                    (int)p->nodes_before, "nodes_after", (int)p->nodes_after, "counters", counters));
  }
  return list;
}

static int write_json(const cytoc_report *r, const char *model, const char *file) {
  json_t *stages = json_object();
  for (int i = 0; i < r->nstages; i++)
    json_object_set_new(stages, r->stage[i].name, json_real(r->stage[i].ms));
  json_t *root =
      json_pack("{s:s, s:s, s:o, s:o, s:i, s:i, s:i, s:I, s:I, s:I, s:o, s:f}", "compiler", "cytoc " CYTO_VERSION,
                "model", model, "stages_ms", stages, "passes", passes_json(&r->passes), "kernels", (int)r->code.kernels,
                "steps", (int)r->code.steps, "constants", (int)r->code.constants, "weights_bytes",
                (json_int_t)r->code.weights_bytes, "output_bytes", (json_int_t)r->code.output_bytes, "arena_bytes",
                (json_int_t)r->code.arena_bytes, "stored_more_than_once", often_json(&r->code), "peak_mb", peak_mb());
  if (root && *r->code.compiled_by.name)
    json_object_set_new(root, "kernels_compiled_by",
                        json_pack("{s:s, s:s}", "name", r->code.compiled_by.name, "path", r->code.compiled_by.path));
  int status = root ? json_dump_file(root, file, JSON_INDENT(2)) : -1;
  json_decref(root);
  return status;
}

int cytoc_report_write(const cytoc_report *r, const char *model, const char *file, cy_diag_sink *diag) {
  if (!*file) {
    write_text(r);
    return 0;
  }
  if (!write_json(r, model, file))
    return 0;
  cy_location where = {.file = file, .node_index = -1};
  cy_diag_add(diag, CY_ERROR, &where, "cannot write the statistics");
  cy_diag_blame(diag, CY_CAUSE_FILE);
  return -1;
}
