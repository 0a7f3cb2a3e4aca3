/* SPDX-License-Identifier: Apache-2.0 */
/* int_choose.c - which generator a contraction of integers or bf16 has, by what the candidates take.
 *
 * In: a cy_int_gemm_desc, whose weights are known to allow what it asks for (split, winograd). Out: its candidates with their
 * cycles, the row of its generator, what that can do for the caller, and of which kinds of variants it is.
 */
#include "codegen/cpu/variants.h"
#include "int_gemm.h"

const cy_generator *cy_int_generator(const cy_int_gemm_desc *d) {
  if (d->winograd)
    return &cy_int_winograd_generator;
  return cy_int_depthwise_possible(d) ? &cy_int_depthwise_generator : &cy_int_gemm_generator;
}

/* ---- what it takes ---- */

static cy_factor_type factors_of(const cy_int_gemm_desc *d) { return d->bf16 ? CY_FACTORS_BF16 : CY_FACTORS_BYTES; }

/* With those that idle in vectors. Few columns share one (int_lane_reduce.c). */
static double filled_columns(const cy_cg *cg, cy_factor_type f, double n) {
  unsigned min = f == CY_FACTORS_BYTES && cg->vnni && !cg->amx_int8 ? cg->W / cy_int_gemm_max_each(cg) : cg->W,
           columns = cg->W;
  while (columns > min && columns / 2 >= n)
    columns /= 2;
  return (double)cy_round_up((int64_t)n, columns);
}

static double product_cost(const cy_cg *cg, const cy_int_gemm_desc *d) {
  cy_gemm_work w = cy_gemm_work_of(&d->gemm);
  return w.matrices * cy_cost_grouped(cg, factors_of(d), w.rows, w.k, w.n, filled_columns(cg, factors_of(d), w.n), 0, 1);
}

static double window_cost(const cy_cg *cg, const cy_int_gemm_desc *d) {
  const cy_conv_desc *w = &d->window;
  int64_t taps = cy_conv_taps(w);
  double n = (double)(w->cout / w->groups), depth = (double)(taps * (w->cin / w->groups));
  double runs = taps > 1 ? (double)(taps / w->kernel[w->n_spatial - 1]) : 0; /* of a row, side by side in the feature map */
  return (double)w->groups * cy_cost_grouped(cg, factors_of(d), cy_conv_outputs(w) / (double)w->cout, depth, n,
                                             filled_columns(cg, factors_of(d), n), runs, cy_int_gemm_share(cg, d));
}

double cy_int_cost(const cy_cg *cg, const cy_int_gemm_desc *d) {
  if (!d->conv)
    return product_cost(cg, d);
  if (cy_int_depthwise_possible(d))
    return cy_depthwise_cost(cg, cy_int_depthwise_dot4(cg, d) ? CY_DEPTHWISE_DOT4 : CY_DEPTHWISE_DOT2, &d->window);
  return window_cost(cg, d);
}

static const char *name_of(const cy_int_gemm_desc *d) {
  return !d->conv ? "plain" : cy_conv_name(cy_int_depthwise_possible(d) ? CY_CONV_DEPTHWISE : CY_CONV_DIRECT);
}

void cy_int_candidates(const cy_cg *cg, const cy_int_gemm_desc *d, bool may_winograd, bool exact, cy_candidates *c) {
  double with, without, cost = cy_int_cost(cg, d);
  const char *type = d->bf16 ? "_bf16_dot" : "_int8";
  *c = (cy_candidates){.n = 0};
  if (d->conv)
    cy_conv_text(&d->window, type, c);
  else
    cy_gemm_text(&d->gemm, type, c);
  cy_candidates_add(c, (cy_candidate){name_of(d), cost, 1, true, false});
  /* It is held against the direct algorithm's products alone, without copies and accumulators that are stored. */
  if (may_winograd && cy_int_winograd_weigh(cg, d, &with, &without))
    cy_candidates_add(c, (cy_candidate){cy_conv_name(CY_CONV_WINOGRAD), with,
                                        cost / (without * cg->model.int_winograd_worth), exact, !exact});
}

/* ---- what it can do ---- */

bool cy_int_gemm_starts(const cy_int_gemm_desc *d) {
  return !d->bf16 && !d->winograd && (d->conv || d->gemm.b_packed);
}

cy_variants cy_int_variants(const cy_cg *cg, const cy_int_gemm_desc *d) {
  cy_variants v = {.kinds = CY_OF_INT_DEPTHWISE, .base = CY_BASE_DEPTHWISE, .by = cy_int_generator(d), .desc = d};
  if (!cy_int_depthwise_possible(d))
    cy_int_gemm_variants(cg, d, &v);
  return v;
}
