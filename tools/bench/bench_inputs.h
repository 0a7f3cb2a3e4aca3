/* SPDX-License-Identifier: Apache-2.0 */
/* bench_inputs.h - what the measured processes of cyto-bench and cyto-tune have in common: their inputs, and their memory.
 *
 * Inputs are made from a hash of the element's index, so that bench_ort.py can make the very same ones: floats uniform in
 * [-1, 1), integers 0 or 1 (valid as indices and masks), or within --range NAME=LO:HI; --inputs FOLDER has those that are
 * not random.
 */
#ifndef CY_TOOLS_BENCH_INPUTS_H
#define CY_TOOLS_BENCH_INPUTS_H

#include "bench.h"
#include "runtime/cyto.h"
#include "tools/options.h"

/* Pairs by their options. */
typedef struct cy_bench_given {
  options_list dims, shapes, ranges;
  const char *inputs, *outputs; /* folders; NULL: none */
} cy_bench_given;

/* 0, or 1: no memory. Free it in any case. */
int cy_bench_given_read(const cy_bench_pairs *pairs, cy_bench_given *out);
void cy_bench_given_free(cy_bench_given *g);

/* "image 2x1x8x8, mask 2x8", and how many samples a run has; 0: not known. */
typedef struct cy_bench_shapes {
  char text[400];
  int64_t samples;
} cy_bench_shapes;

/* Makes and binds all inputs of a context; values: zeros, one for each input, to be freed by host_value_free() after the
 * context. 0, or 1: with a text in *error, or after one on stderr. */
int cy_bench_inputs_bind(cyto_context *context, const cyto_model *model, uint64_t seed, const cy_bench_given *g,
                         cyto_value *values, cy_bench_shapes *out_shapes, cyto_error *error);

/* Memory of this process in RAM, now and at its most. */
double cy_bench_resident_kb(void);
double cy_bench_peak_kb(void);

#endif
