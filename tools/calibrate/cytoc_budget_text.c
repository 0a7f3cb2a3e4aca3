/* SPDX-License-Identifier: Apache-2.0 */
/* cytoc_budget_text.c - budgets of accuracy as text: what the option says, and what was chosen for it. */
#include "cytoc_budget.h"

#include "tools/values/errors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* f32 has 24 bits: 144 dB. */
static const double MAX_DECIBELS = 140;

const char *cytoc_budget_parse(const char *text, cytoc_budget *out) {
  char *end;
  bool top = !strncmp(text, "top1:", 5);
  const char *number = top ? text + 5 : text;
  double v = strtod(number, &end);
  bool any = end != number && isfinite(v);
  *out = (cytoc_budget){.text = text, .offered = (1u << CY_PRECISIONS) - 1};
  if (top || !strcmp(text, "top1")) {
    out->loss = v / 100;
    return any && !strcmp(end, "%") && v >= 0 && v <= 100
               ? NULL
               : "top1:P%, right answers that may be lost, such as top1:0.5%";
  }
  out->db = v;
  if (!any || v <= 0 || (*end && strcmp(end, "dB") != 0 && strcmp(end, "db") != 0))
    return "decibels above 0 that every output keeps, such as 30dB, or top1:0.5%";
  return v > MAX_DECIBELS ? "140 dB at most, as f32 itself is no more exact" : NULL;
}

typedef struct sum {
  uint32_t layers;
  double gained;
} sum;

/* Sums by precision; cycles of all layers in f32 and as they are. */
static void add_up(const cytoc_budget *b, sum by[CY_PRECISIONS], double cycles[2]) {
  for (uint32_t i = 0; i < b->nlayers; i++) {
    const cytoc_budget_layer *l = &b->layer[i];
    by[l->precision].layers++;
    by[l->precision].gained += l->cycles[0] - l->cycles[1];
    cycles[0] += l->cycles[0];
    cycles[1] += l->cycles[1];
  }
}

static const char *floats_text(const cytoc_budget *b) {
  return b->strict ? " without fast algorithms" : b->exact.n ? " (some without fast algorithms)" : "";
}

static double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

static void reached_text(const cytoc_budget *b, char *text, size_t room) {
  char db[32];
  if (b->db > 0)
    snprintf(text, room, "output '%s' has %s dB", b->output, errors_decibels_text(b->reached, db, sizeof db));
  else
    snprintf(text, room, "%.2f %% of the answers of output '%s' are right, %.2f %% in f32", 100 * b->reached, b->output,
             100 * b->right);
}

void cytoc_budget_tell(const cytoc_budget *b, cy_diag_sink *diag) {
  sum by[CY_PRECISIONS] = {{0}};
  double cycles[2] = {0, 0};
  char parts[512] = "", reached[256];
  size_t used = 0;
  if (!b->output)
    return;
  add_up(b, by, cycles);
  for (int as = CY_PRECISIONS - 1; as >= 0; as--)
    if (by[as].layers && used < sizeof parts - 1)
      used += (size_t)snprintf(parts + used, sizeof parts - used, "%s%u %s%s", used ? ", " : "", by[as].layers,
                               cy_precision_name((cy_precision)as),
                               as ? "" : floats_text(b));
  reached_text(b, reached, sizeof reached);
  cy_diag_add(diag, CY_NOTE, NULL,
              "--accuracy=%s: %s on %d sample%s; estimated %.2f times as fast as f32%s%s, of layers: %s", b->text, reached,
              b->samples, b->samples == 1 ? "" : "s", cycles[1] > 0 ? cycles[0] / cycles[1] : 1, b->timed ? "; measured: " : "", b->timed ? b->timed : "", parts);
}

void cytoc_budget_table(const cytoc_budget *b, FILE *out) {
  sum by[CY_PRECISIONS] = {{0}};
  double cycles[2] = {0, 0};
  add_up(b, by, cycles);
  fprintf(out, "%-40s %-20s %8s %9s %9s %7s %9s  %s\n", "layer", "shape", "MFLOP", "f32 kcyc", "kcyc", "gain %",
          "alone dB", "precision");
  for (uint32_t i = 0; i < b->nlayers; i++) {
    const cytoc_budget_layer *l = &b->layer[i];
    char alone[32] = "-";
    if (l->precision)
      errors_decibels_text(errors_decibels(1, l->noise), alone, sizeof alone);
    char work[32] = "-";
    if (l->macs > 0)
      snprintf(work, sizeof work, "%.2f", l->macs * 2e-6);
    fprintf(out, "%-40.40s %-20s %8s %9.1f %9.1f %7.1f %9s  %s\n", l->name, l->shape, work, l->cycles[0] / 1e3,
            l->cycles[1] / 1e3, percent(l->cycles[0] - l->cycles[1], cycles[0]), alone,
            cy_precision_name(l->precision));
  }
  for (int as = 1; as < CY_PRECISIONS; as++)
    if (by[as].layers)
      fprintf(out, "%s: %u layers, %.1f %% of the time of all in f32 gained\n", cy_precision_name((cy_precision)as),
              by[as].layers, percent(by[as].gained, cycles[0]));
  fprintf(out, "f32%s: %u layers\n", floats_text(b), by[CY_PRECISION_F32].layers);
  for (int i = 0; i < b->exact.n; i++)
    fprintf(out, "without fast algorithms: %s\n", b->exact.list[i].layer);
  fprintf(out, "estimated %.2f times as fast as in f32\n", cycles[1] > 0 ? cycles[0] / cycles[1] : 1);
}
