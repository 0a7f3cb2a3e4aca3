/* SPDX-License-Identifier: Apache-2.0 */
/* explain_int.h - what the files behind --explain share: explain.c, explain_memory.c, explain_json.c. */
#ifndef CY_EXPLAIN_INT_H
#define CY_EXPLAIN_INT_H

#include "codegen/work.h"

/* ---- explain.c ---- */

/* What floors are counted by. On a device "cycles" are nanoseconds; flops and bytes are then those of its data sheet. */
typedef struct cy_rates {
  double cycles_per_second, flops_per_cycle, cache_bytes, bytes_per_cycle_cached, bytes_per_cycle_memory;
} cy_rates;
cy_rates cy_explain_rates(const cy_work *b);
/* Layout of a launch's result: "nhwc", "rows", or digits where the axes have no such names. Returns `text` or a constant. */
const char *cy_launch_layout(cy_work *b, const cy_step *launch, char text[CY_MAX_RANK + 1]);

/* ---- explain_memory.c ---- */

typedef struct cy_memory {
  cy_work *b;
  int64_t *syms;                   /* the sizes that this is for */
  int64_t *bytes;                  /* [buffers] of the arena, else 0 */
  const cy_step **maker;           /* [buffers] the first step that writes it */
  const cy_step **steps;           /* [positions + 1] */
  int64_t *alive;                  /* [positions + 2] */
  bool *scratch;                   /* [buffers] */
  int32_t positions, peak;         /* the last position; that of the peak */
  int64_t one_thread, two_threads; /* bytes of the arena */
} cy_memory;
cy_memory cy_memory_measure(cy_work *b);
void cy_memory_free(cy_memory *m);

#endif
