/* SPDX-License-Identifier: Apache-2.0 */
/* conv_choose.c - which generator a convolution of floats has, by what the candidates take.
 *
 * In: a cy_conv_desc. Out: the algorithm, its cycles, and the row of its generator.
 */
#include "conv_int.h"

/* Direct convolution of what has a generator of its own was never faster; its estimate is a rough one. */
static const double UNTRIED = 2;

static double winograd_cost(const cy_cg *cg, const cy_conv_desc *d) {
  return cy_winograd_cost(cg, d, CY_UNKNOWN_POSITIONS) * cg->model.winograd + cy_cost_sums(cg, cy_conv_outputs(d));
}

const char *cy_conv_name(cy_conv_algo algo) {
  static const char *const names[] = {[CY_CONV_DIRECT] = "direct",
                                      [CY_CONV_WINOGRAD] = "winograd",
                                      [CY_CONV_DEPTHWISE] = "depthwise",
                                      [CY_CONV_PLANAR] = "planar"};
  return names[algo];
}

/* The layout is not in it: which one is better is a question about the layer. */
void cy_conv_text(const cy_conv_desc *d, const char *type, cy_candidates *c) {
  int64_t out[3];
  for (int i = 0; i < d->n_spatial; i++)
    out[i] = cy_csize_known(d->out[i]) ? cy_csize_known(d->out[i]) : -1;
  int64_t batch = cy_csize_known(d->batch) ? cy_csize_known(d->batch) : -1;
  cy_layer_text(c, "conv%s%s %lld->%lld", d->transposed ? "_transpose" : "", type, (long long)d->cin,
                (long long)d->cout);
  cy_layer_sizes(c, " k", d->kernel, d->n_spatial);
  cy_layer_sizes(c, " s", d->stride, d->n_spatial);
  cy_layer_sizes(c, " d", d->dilation, d->n_spatial);
  cy_layer_sizes(c, " p", d->pad, d->n_spatial);
  cy_layer_text(c, " g%lld", (long long)d->groups);
  cy_layer_sizes(c, " to ", out, d->n_spatial);
  cy_layer_sizes(c, " n", &batch, 1);
}

double cy_depthwise_cost(const cy_cg *cg, cy_depthwise_by by, const cy_conv_desc *d) {
  double strides = 1;
  for (int i = 0; i < d->n_spatial; i++)
    strides *= (double)d->stride[i];
  return cy_cost_depthwise(cg, by, cy_conv_outputs(d), (double)(cy_conv_taps(d) * (d->cin / d->groups)), strides);
}

/* Of groups: vectors hold columns of one of them. */
static double idle_share(const cy_cg *cg, const cy_conv_desc *d) {
  int64_t columns = d->cout / d->groups;
  return d->groups > 1 ? (double)cy_round_up(columns, cg->W) / (double)columns : 1;
}

void cy_conv_candidates(const cy_cg *cg, const cy_conv_desc *d, cy_candidates *c) {
  bool floats = d->weights == CY_WEIGHTS_F32, channels = !d->planar, depthwise = floats && cy_depthwise_possible(cg, d);
  *c = (cy_candidates){.n = 0};
  cy_conv_text(d, cy_weights_suffix(d->weights), c);
  if (depthwise)
    cy_candidates_add(c, (cy_candidate){cy_conv_name(CY_CONV_DEPTHWISE), cy_depthwise_cost(cg, CY_DEPTHWISE_FMA, d), 1,
                                        channels, false});
  double direct = cy_direct_cost(cg, d) * idle_share(cg, d);
  cy_candidates_add(c, (cy_candidate){cy_conv_name(CY_CONV_DIRECT), direct, depthwise ? UNTRIED : 1, channels, false});
  if (!depthwise && cy_winograd_possible(d) && cy_form_on(cg, CY_FORM_WINOGRAD))
    cy_candidates_add(c, (cy_candidate){cy_conv_name(CY_CONV_WINOGRAD), winograd_cost(cg, d), cg->model.winograd_margin,
                                        channels && !cg->strict_fp, cg->strict_fp});
  if (floats && !d->transposed)
    cy_candidates_add(c, (cy_candidate){cy_conv_name(CY_CONV_PLANAR), cy_planar_cost(cg, d), 1, d->planar, false});
  cy_candidates_choose(cg, c);
}

cy_conv_algo cy_conv_chosen(const cy_candidates *c) {
  for (int algo = 0; algo <= CY_CONV_PLANAR && c->chosen >= 0; algo++)
    if (cy_candidate_is(c->of[c->chosen].name, cy_conv_name((cy_conv_algo)algo)))
      return (cy_conv_algo)algo;
  return CY_CONV_DIRECT;
}

cy_conv_algo cy_conv_choose(const cy_cg *cg, const cy_conv_desc *d) {
  cy_candidates c;
  cy_conv_candidates(cg, d, &c);
  return cy_conv_chosen(&c);
}

double cy_conv_cost(const cy_cg *cg, const cy_conv_desc *d) {
  cy_conv_algo algo = cy_conv_choose(cg, d);
  return algo == CY_CONV_DEPTHWISE  ? cy_depthwise_cost(cg, CY_DEPTHWISE_FMA, d)
         : algo == CY_CONV_WINOGRAD ? winograd_cost(cg, d)
                                    : cy_direct_cost(cg, d);
}

const cy_generator *cy_conv_generator(cy_conv_algo algo) {
  static const cy_generator *const all[] = {[CY_CONV_DIRECT] = &cy_direct_generator,
                                            [CY_CONV_WINOGRAD] = &cy_winograd_generator,
                                            [CY_CONV_DEPTHWISE] = &cy_depthwise_generator,
                                            [CY_CONV_PLANAR] = &cy_planar_generator};
  return all[algo];
}
