/* SPDX-License-Identifier: Apache-2.0 */
/* choices.h - ranks that what follows decides; see choices.c. */
#ifndef CY_FRONTEND_CHOICES_H
#define CY_FRONTEND_CHOICES_H

#include "ir/ir.h"

#define CY_UNDECIDED (-1)

typedef struct cy_choices cy_choices;

cy_choices *cy_choices_create(cy_arena *arena);

/* Which of the options, 0 being the preferred one, the node at hand shall take in this attempt. CY_UNDECIDED: several would
 * do, and `single` says that this is for the user to settle. */
int cy_choose(cy_choices *c, uint32_t options, bool single);
uint32_t cy_choices_asked(const cy_choices *c); /* how many were asked for so far */
/* Something is not what the model says, which may be due to a choice. */
enum { CY_MISFIT_RANK = 1, CY_MISFIT_BRANCH = 1 << 12 };
void cy_choices_misfit(cy_choices *c, uint32_t weight);
/* Something failed that may be due to choices asked for since there were `from`: true: another attempt will tell. Everything
 * returns false then until the attempt has ended. */
bool cy_choices_abandon(cy_choices *c, uint32_t from);
bool cy_choices_abandoned(const cy_choices *c);

/* Imports the model once: its answer, and how many nodes that took. */
typedef bool (*cy_attempt)(void *context, uint64_t *out_nodes);
/* Attempts until the choices are made; the last attempt is the one that counts, and its answer. */
bool cy_choices_decide(cy_choices *c, cy_attempt attempt, void *context);

/* Imports once more, with the same answers. */
bool cy_choices_repeat(cy_choices *c, cy_attempt attempt, void *context);

#endif
