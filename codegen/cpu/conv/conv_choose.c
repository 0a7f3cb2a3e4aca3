/* SPDX-License-Identifier: Apache-2.0 */
/* conv_choose.c - which generator a convolution of floats has, by what the candidates take.
 *
 * In: a cy_conv_desc. Out: the algorithm, its cycles, and the row of its generator.
 */
#include "conv_int.h"

double cy_depthwise_cost(const cy_cg *cg, cy_depthwise_by by, const cy_conv_desc *d) {
  double strides = 1;
  for (int i = 0; i < d->n_spatial; i++)
    strides *= (double)d->stride[i];
  return cy_cost_depthwise(cg, by, cy_conv_outputs(d), (double)(cy_conv_taps(d) * (d->cin / d->groups)), strides);
}

/* ---- what the rows of algorithms.def say ---- */

static bool always(const cy_cg *cg, const cy_conv_desc *d) {
  (void)cg;
  (void)d;
  return true;
}

static double no_margin(const cy_cg *cg, const cy_conv_desc *d) {
  (void)cg;
  (void)d;
  return 1;
}

static bool depthwise_possible(const cy_cg *cg, const cy_conv_desc *d) {
  return d->weights == CY_WEIGHTS_F32 && cy_depthwise_possible(cg, d);
}

static double depthwise_cost(const cy_cg *cg, const cy_conv_desc *d) { return cy_depthwise_cost(cg, CY_DEPTHWISE_FMA, d); }

/* Of groups, vectors hold columns of one of them; others idle. */
static double direct_cost(const cy_cg *cg, const cy_conv_desc *d) {
  int64_t columns = d->cout / d->groups;
  double idle = d->groups > 1 ? (double)cy_round_up(columns, cg->W) / (double)columns : 1;
  return cy_direct_cost(cg, d) * idle;
}

/* The direct algorithm for what has a generator of its own was never faster; its estimate is a rough one. */
static double direct_margin(const cy_cg *cg, const cy_conv_desc *d) { return depthwise_possible(cg, d) ? 2 : 1; }

static bool winograd_possible(const cy_cg *cg, const cy_conv_desc *d) {
  return !depthwise_possible(cg, d) && cy_winograd_possible(d) && cy_form_on(cg, CY_FORM_WINOGRAD);
}

static double winograd_cost(const cy_cg *cg, const cy_conv_desc *d) {
  return cy_winograd_cost(cg, d, CY_UNKNOWN_POSITIONS) * cg->model.winograd + cy_cost_sums(cg, cy_conv_outputs(d));
}

static double winograd_margin(const cy_cg *cg, const cy_conv_desc *d) {
  (void)d;
  return cg->model.winograd_margin;
}

static bool planar_possible(const cy_cg *cg, const cy_conv_desc *d) {
  (void)cg;
  return d->weights == CY_WEIGHTS_F32 && !d->transposed;
}

static const struct algorithm {
  const char *name;
  const cy_generator *by;
  bool (*possible)(const cy_cg *cg, const cy_conv_desc *d);
  double (*cost)(const cy_cg *cg, const cy_conv_desc *d);
  double (*margin)(const cy_cg *cg, const cy_conv_desc *d);
  bool planes, rounds;
} all[] = {
#define CONV(id, name, generator, possible, cost, margin, planes, rounds)                                              \
  {name, &generator, possible, cost, margin, planes, rounds},
#include "algorithms.def"
};
enum { COUNT = sizeof all / sizeof *all };

const char *cy_conv_name(cy_conv_algo algo) { return all[algo].name; }
const cy_generator *cy_conv_generator(cy_conv_algo algo) { return all[algo].by; }

/* ---- the choice ---- */

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

void cy_conv_candidates(const cy_cg *cg, const cy_conv_desc *d, cy_candidates *c) {
  *c = (cy_candidates){.n = 0};
  cy_conv_text(d, cy_weights_suffix(d->weights), c);
  for (const struct algorithm *a = all; a < all + COUNT; a++) {
    bool refused = a->rounds && cg->strict_fp;
    if (a->possible(cg, d))
      cy_candidates_add(
          c, (cy_candidate){a->name, a->cost(cg, d), a->margin(cg, d), a->planes == d->planar && !refused, refused});
  }
  cy_candidates_choose(cg, c);
}

cy_conv_algo cy_conv_chosen(const cy_candidates *c) {
  for (int algo = 0; algo < COUNT && c->chosen >= 0; algo++)
    if (cy_candidate_is(c->of[c->chosen].name, all[algo].name))
      return (cy_conv_algo)algo;
  return CY_CONV_DIRECT;
}

cy_conv_algo cy_conv_choose(const cy_cg *cg, const cy_conv_desc *d) {
  cy_candidates c;
  cy_conv_candidates(cg, d, &c);
  return cy_conv_chosen(&c);
}

double cy_conv_cost(const cy_cg *cg, const cy_conv_desc *d) { return all[cy_conv_choose(cg, d)].cost(cg, d); }
