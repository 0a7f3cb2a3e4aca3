/* SPDX-License-Identifier: Apache-2.0 */
/* choices.c - which candidate of a layer is taken: the one with the least estimate, or what a file of choices says.
 *
 * In: lists of candidates, from the generators; lines "layer <tab> candidate". Out: the number of the chosen one.
 */
#include "cost.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The line for this layer that names a candidate of it; lines for all layers come last. */
int cy_candidates_asked(const cy_cg *cg, const cy_candidates *c) {
  cy_choices *choices = cg->choices;
  int found = -1;
  for (int pass = 0; pass < 2 && found < 0 && choices; pass++)
    for (cy_choice *x = choices->list; x < choices->list + choices->n; x++) {
      if (strcmp(x->layer, pass ? "*" : c->layer))
        continue;
      for (int i = 0; i < c->n; i++)
        if (!strcmp(c->of[i].name, x->candidate)) {
          x->found = true;
          found = i;
        }
    }
  return found;
}

int cy_candidates_choose(const cy_cg *cg, cy_candidates *c) {
  int asked = cy_candidates_asked(cg, c);
  return c->chosen = asked >= 0 && c->of[asked].applies ? asked : cy_candidates_best(c);
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
