/* SPDX-License-Identifier: Apache-2.0 */
/* choices.c - which candidate of a layer is taken: the one with the least estimate, or what a file of choices says.
 *
 * In: lists of candidates, from the generators; lines "layer <tab> candidate [<tab> times]", "* <tab> -form". Out: the number of
 * the chosen one; the forms that are switched off.
 */
#include "cost.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

uint32_t cy_forms_off(cy_choices *choices) {
  static const char *const names[] = {
#define FORM(id, name, what) name,
#include "codegen/cpu/forms.def"
  };
  _Static_assert(sizeof names / sizeof *names <= 32, "cy_cg.forms_off has a bit for each");
  uint32_t off = 0;
  for (cy_choice *x = choices->list; x < choices->list + choices->n; x++)
    for (unsigned i = 0; i < sizeof names / sizeof *names && *x->candidate == '-'; i++)
      if (!strcmp(x->layer, "*") && !strcmp(x->candidate + 1, names[i])) {
        x->found = true;
        off |= 1u << i;
      }
  return off;
}

/* Passes ask before variants are known: there a line of the layer that names one is about the algorithm. */
static bool names(const cy_choice *x, const char *candidate, bool *exactly) {
  *exactly = !strcmp(candidate, x->candidate);
  return *exactly || (strcmp(x->layer, "*") && cy_candidate_is(x->candidate, candidate));
}

/* The line for this layer that names a candidate of it; lines for all layers come last. */
static const cy_choice *line_of(const cy_cg *cg, const cy_candidates *c, int *out_candidate) {
  cy_choices *choices = cg->choices;
  const cy_choice *found = NULL;
  for (int pass = 0; pass < 2 && !found && choices; pass++)
    for (cy_choice *x = choices->list; x < choices->list + choices->n; x++) {
      if (strcmp(x->layer, pass ? "*" : c->layer))
        continue;
      bool exactly = false;
      for (int i = 0; i < c->n && !exactly; i++)
        if (names(x, c->of[i].name, &exactly)) {
          x->found |= exactly;
          found = x;
          *out_candidate = i;
        }
    }
  return found;
}

static double measured_cycles(const cy_choice *x, const char *name) {
  for (const cy_measured *m = x->of; m < x->of + x->n; m++)
    if (!strcmp(m->name, name))
      return m->cycles;
  return 0;
}

static bool is_allowed(const cy_candidates *c, const char *name) {
  for (int i = 0; i < c->n; i++)
    if (!c->of[i].refused && cy_candidate_is(name, c->of[i].name))
      return true;
  return false;
}

double cy_candidates_measured(const cy_cg *cg, const cy_candidates *c, bool (*wanted)(const char *name)) {
  int asked;
  const cy_choice *x = line_of(cg, c, &asked);
  double min = 0;
  for (const cy_measured *m = x ? x->of : NULL; x && m < x->of + x->n; m++)
    if (wanted(m->name) && is_allowed(c, m->name) && m->cycles > 0 && (min <= 0 || m->cycles < min))
      min = m->cycles;
  return min;
}

int cy_candidates_asked(const cy_cg *cg, const cy_candidates *c) {
  int asked = -1;
  const cy_choice *x = line_of(cg, c, &asked);
  return x && !x->n ? asked : -1;
}

/* Of those that apply and were measured; -1: none was. */
static int best_measured(const cy_choice *x, const cy_candidates *c) {
  int best = -1;
  double min = 0;
  for (int i = 0; i < c->n; i++) {
    double cycles = c->of[i].applies ? measured_cycles(x, c->of[i].name) : 0;
    if (cycles > 0 && (best < 0 || cycles < min)) {
      best = i;
      min = cycles;
    }
  }
  return best;
}

int cy_candidates_choose(const cy_cg *cg, cy_candidates *c) {
  int asked = -1;
  const cy_choice *x = line_of(cg, c, &asked);
  if (!x || !c->of[asked].applies)
    asked = x && x->n ? best_measured(x, c) : -1;
  return c->chosen = asked >= 0 ? asked : cy_candidates_best(c);
}

void cy_layer_text(cy_candidates *c, const char *format, ...) {
  size_t n = strlen(c->layer);
  va_list args;
  va_start(args, format);
  vsnprintf(c->layer + n, sizeof c->layer - n, format, args);
  va_end(args);
}

void cy_layer_sizes(cy_candidates *c, const char *before, const int64_t *sizes, int n) {
  for (int i = 0; i < n; i++)
    if (sizes[i] < 0) /* not known */
      cy_layer_text(c, "%s?", i ? "x" : before);
    else
      cy_layer_text(c, "%s%lld", i ? "x" : before, (long long)sizes[i]);
}
