/* SPDX-License-Identifier: Apache-2.0 */
/* session.c - one compilation as it is asked for: what --tune chooses by measuring first, then the pipeline by that.
 *
 * In: a session. Out: as the pipeline's. Measuring compiles, too, by the pipeline alone.
 */
#include "choices.h"
#include "tune.h"

int cytoc_session_run(cytoc_session *s) {
  cy_choices tuned = {0};
  bool tunes = s->o->tune && !s->o->quantize;
  s->report.verbose = s->o->verbose;
  int status = tunes ? cytoc_tune(s, &tuned) : 0;
  if (tunes)
    s->choices = &tuned;
  status = status ? status : cytoc_session_compile(s);
  if (tunes)
    s->choices = NULL;
  cytoc_choices_free(&tuned);
  return status;
}
