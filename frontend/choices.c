/* SPDX-License-Identifier: Apache-2.0 */
/* choices.c - what only the rest of the model can decide.
 *
 * Ranks are fixed when compiling. Where a node could give several (an If whose branches differ in rank, a Squeeze that
 * names no axes), an importer asks for a choice; what is built behind it must then fit together: an LSTM takes three
 * dimensions, not four. The model is imported once for each choice, as if it were the only one, until one fits; of
 * several that fit, the one wins that leaves out the fewest branches of Ifs, then the one whose ranks differ least often
 * from those that the model declares, then the first.
 *
 * In:  an attempt: a function that imports the model once and asks for choices in the same order as long as it is given the
 * same answers. Out: the answers to import it with for good. Search is depth first: the last choice is changed first, those
 * behind it begin anew. An attempt ends at its first error, so that wrong answers are cheap.
 */
#include "frontend/choices.h"

#include <string.h>

enum { MAX_CHOICES = 64, MAX_ATTEMPTS = 256, MAX_NODES = 300000 };

typedef struct choice {
  uint32_t options, taken;
  bool single; /* two options that fit alike are an error, not a matter of taste */
  bool undecided;
} choice;

struct cy_choices {
  choice list[MAX_CHOICES];
  uint32_t n, asked; /* answers that are given; how many were asked for in this attempt */
  uint32_t misfits;  /* what did not turn out as the model has it, in this attempt */
  bool replay, abandoned;
};

cy_choices *cy_choices_create(cy_arena *arena) { return CY_NEW(arena, cy_choices); }

int cy_choose(cy_choices *c, uint32_t options, bool single) {
  if (c->asked == MAX_CHOICES || options < 2)
    return options < 2 ? 0 : CY_UNDECIDED;
  choice *at = &c->list[c->asked++];
  if (c->asked > c->n) {
    *at = (choice){.options = options, .single = single};
    c->n = c->asked;
  }
  return at->undecided ? CY_UNDECIDED : (int)at->taken;
}

uint32_t cy_choices_asked(const cy_choices *c) { return c->asked; }

void cy_choices_misfit(cy_choices *c, uint32_t weight) { c->misfits += c->asked ? weight : 0; }

bool cy_choices_abandon(cy_choices *c, uint32_t from) {
  for (uint32_t i = from; i < c->asked && !c->replay && !c->abandoned; i++)
    c->abandoned = c->list[i].taken + 1 < c->list[i].options;
  return c->abandoned;
}

bool cy_choices_abandoned(const cy_choices *c) { return c->abandoned; }

static void begin(cy_choices *c) {
  c->asked = c->misfits = 0;
  c->abandoned = false;
}

/* The next answers to try: false: there are none. `found`: something fits, perfectly; now others are tried only to see
 * whether that was the only one. */
static bool advance(cy_choices *c, bool found) {
  c->n = c->asked;
  while (c->n) {
    choice *last = &c->list[c->n - 1];
    if (last->taken + 1 < last->options && (!found || last->single)) {
      last->taken++;
      return true;
    }
    c->n--;
  }
  return false;
}

/* Where two lists of answers part; CY_UNDECIDED: nowhere, or where that does not matter. */
static int parting(const cy_choices *a, const cy_choices *b) {
  for (uint32_t i = 0; i < a->n && i < b->n; i++)
    if (a->list[i].taken != b->list[i].taken)
      return a->list[i].single ? (int)i : CY_UNDECIDED;
  return CY_UNDECIDED;
}

bool cy_choices_decide(cy_choices *c, cy_attempt attempt, void *context) {
  cy_choices best = {0}, furthest = {0};
  bool found = false;
  int rival = CY_UNDECIDED;
  uint64_t max = 0, all = 0, nodes;
  for (uint32_t i = 0; i < MAX_ATTEMPTS && all < MAX_NODES; i++) {
    begin(c);
    bool ok = attempt(context, &nodes) && !c->abandoned;
    all += nodes;
    if (i == 0 && !c->asked)
      return ok;
    c->n = c->asked;
    if (!ok && nodes > max) {
      furthest = *c;
      max = nodes;
    }
    if (ok && (!found || c->misfits < best.misfits)) {
      best = *c;
      found = true;
      rival = CY_UNDECIDED;
    } else if (ok && c->misfits == best.misfits && rival == CY_UNDECIDED) {
      rival = parting(&best, c);
    }
    if (!advance(c, found && !best.misfits))
      break;
  }
  *c = found ? best : furthest;
  if (found && rival != CY_UNDECIDED) {
    c->list[rival].undecided = true;
    c->n = (uint32_t)rival + 1;
  }
  return cy_choices_repeat(c, attempt, context);
}

bool cy_choices_repeat(cy_choices *c, cy_attempt attempt, void *context) {
  uint64_t nodes;
  begin(c);
  c->replay = true;
  return attempt(context, &nodes);
}
