/* SPDX-License-Identifier: Apache-2.0 */
/* candidates.h - the ways in which a layer may be computed: one list, from which the generators choose, which
 * --explain=costs prints, and which --choice overrules.
 *
 * A generator adds what it could do, with an estimate, and asks for the choice. Texts are static or live as long as the list.
 */
#ifndef CY_CANDIDATES_H
#define CY_CANDIDATES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct cy_candidate {
  const char *name;
  double cycles; /* estimate, for one core */
  double margin; /* it has to be so many times as fast as another */
  bool applies;  /* false: with its operands in another layout, which passes have decided; or it is not allowed */
  bool refused;  /* it is not allowed: by --fast-algorithms=off, or as it would not be exact */
} cy_candidate;

/* A margin: it is not chosen by estimates, but by --tune and --choice. */
#define CY_IF_ASKED 100.0

enum { CY_MAX_CANDIDATES = 24, CY_LAYER_TEXT = 160 };
typedef struct cy_candidates {
  char layer[CY_LAYER_TEXT]; /* what is computed: "conv 64->128 k3x3 s1x1 .."; layers of one text have one choice */
  cy_candidate of[CY_MAX_CANDIDATES];
  int n, chosen;
} cy_candidates;

/* What it took on the machine at hand; cycles 0: it cannot be measured. */
typedef struct cy_measured {
  const char *name;
  double cycles; /* on one core */
} cy_measured;

/* Lines of a file of choices: the candidate for a layer, or for "*", all layers that have it. With measured candidates,
 * these take the place of estimates, also where layouts are chosen; without, the candidate is forced. */
typedef struct cy_choice {
  const char *layer, *candidate;
  int line;
  bool found; /* some layer has that text; is set while layers are prepared */
  cy_measured of[CY_MAX_CANDIDATES];
  int n;
} cy_choice;
typedef struct cy_choices {
  cy_choice *list;
  int n;
} cy_choices;

/* Told of each layer with candidates before code is generated. launches: how often a run does it. */
typedef void cy_layer_visit(void *ctx, const cy_candidates *layer, uint32_t launches);

/* Is it the candidate `base`, or a variant of that: "direct", "direct-8x3"? */
static inline bool cy_candidate_is(const char *name, const char *base) {
  size_t n = strlen(base);
  return !strncmp(name, base, n) && (!name[n] || name[n] == '-');
}

/* A variant's cycles are those of its algorithm, as estimates do not tell variants apart. */
static inline bool cy_candidate_is_variant(const cy_candidate *one) { return strchr(one->name, '-'); }

static inline void cy_candidates_add(cy_candidates *c, cy_candidate one) {
  if (c->n < CY_MAX_CANDIDATES)
    c->of[c->n++] = one;
}

/* The least estimate of those that apply; -1: none does. */
static inline int cy_candidates_best(const cy_candidates *c) {
  int best = -1;
  for (int i = 0; i < c->n; i++)
    if (c->of[i].applies && (best < 0 || c->of[i].cycles * c->of[i].margin < c->of[best].cycles * c->of[best].margin))
      best = i;
  return best;
}

#endif
