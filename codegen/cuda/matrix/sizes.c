/* SPDX-License-Identifier: Apache-2.0 */
/* sizes.c - a contraction as sizes: the view of contract_int.h, of which generators choose their tiles.
 *
 * In:  a contraction. Out: its z, m, n, k; how many tiles that makes, as a size and as an estimate; its taps, and of
 *      transposed convolutions those of a residue (residues.c).
 */
#include "contract_int.h"

#include <math.h>
#include <stdlib.h>

int64_t cy_cu_taps(const cy_contraction *c) {
  int64_t n = 1;
  for (int i = 0; i < c->nspatial; i++)
    n *= c->kernel[i];
  return n;
}

cy_dim cy_cu_per_group(cy_graph *g, const cy_contraction *c, cy_dim channels) {
  return cy_dim_div(g, channels, cy_dim_const(g, c->group));
}

bool cy_cu_is_depthwise(cy_graph *g, const cy_contraction *c) {
  return c->kind == CY_CONTRACT_CONV && c->group > 1 && cy_dim_is(g, c->channels_in, c->group) &&
         cy_dim_is(g, c->channels_out, c->group);
}

/* ---- residues of transposed convolutions ---- */

static int64_t common_divisor(int64_t a, int64_t b) { return b ? common_divisor(b, a % b) : a; }

int64_t cy_cu_residue_tap_step(const cy_contraction *c, int i) {
  return c->stride[i] / common_divisor(c->stride[i], c->dilation[i]);
}
int64_t cy_cu_residue_input_step(const cy_contraction *c, int i) {
  return c->dilation[i] / common_divisor(c->stride[i], c->dilation[i]);
}
int64_t cy_cu_residue_axis_taps(const cy_contraction *c, int i) {
  return cy_ceil(c->kernel[i], cy_cu_residue_tap_step(c, i));
}

int64_t cy_cu_residues(const cy_contraction *c) {
  int64_t n = 1;
  for (int i = 0; i < c->nspatial && cy_cu_has_residues(c); i++)
    n *= c->stride[i];
  return n;
}

int64_t cy_cu_residue_taps(const cy_contraction *c) {
  int64_t n = 1;
  for (int i = 0; i < c->nspatial; i++)
    n *= cy_cu_has_residues(c) ? cy_cu_residue_axis_taps(c, i) : c->kernel[i];
  return n;
}

cy_dim cy_cu_residue_rows(cy_graph *g, const cy_contraction *c) {
  cy_dim m = c->images;
  for (int i = 0; i < c->nspatial; i++)
    m = cy_dim_mul(g, m, cy_cu_has_residues(c) ? cy_dim_cdiv(g, c->out[i], cy_dim_const(g, c->stride[i])) : c->out[i]);
  return m;
}

/* ---- z, m, n, k ---- */

cy_cu_sizes cy_cu_sizes_of(cy_kernel *k) {
  cy_graph *g = cy_kernel_graph(k);
  const cy_contraction *c = cy_kernel_contraction(k);
  cy_cu_sizes s = {cy_dim_const(g, 1), c->m, c->n, c->k};
  if (!cy_cu_is_conv(c)) {
    for (int i = 0; i < c->nbatch; i++)
      s.z = cy_dim_mul(g, s.z, c->batch[i]);
    return s;
  }
  s.z = cy_dim_const(g, c->group * cy_cu_residues(c));
  s.m = cy_cu_residue_rows(g, c);
  s.n = cy_cu_per_group(g, c, c->channels_out);
  s.k = cy_dim_muli(g, cy_cu_per_group(g, c, c->channels_in), cy_cu_residue_taps(c));
  return s;
}

cy_dim cy_cu_depth(cy_kernel *k) {
  const cy_contraction *c = cy_kernel_contraction(k);
  cy_graph *g = cy_kernel_graph(k);
  return cy_cu_has_residues(c) ? cy_cu_per_group(g, c, c->channels_in) : cy_cu_sizes_of(k).k;
}

double cy_cu_estimate(cy_graph *g, cy_dim d, double otherwise) {
  int64_t v, min, max;
  if (cy_dim_is_const(g, d, &v))
    return (double)v;
  int64_t *ones = calloc(cy_sym_count(g) + 1, sizeof *ones);
  if (!ones)
    cy_no_memory();
  for (uint32_t s = 1; s <= cy_sym_count(g); s++)
    ones[s] = 1;
  cy_dim_range(g, d, &min, &max);
  double at_one = (double)cy_dim_eval(g, d, ones), guess = otherwise < at_one ? at_one : otherwise;
  free(ones);
  return guess > (double)max ? (double)max : guess;
}

double cy_cu_tiles_estimate(cy_kernel *k, const cy_cu_sizes *s, int m, int n) {
  cy_graph *g = cy_kernel_graph(k);
  double rows = (cy_cu_estimate(g, s->m, 512) + m - 1) / m, columns = (cy_cu_estimate(g, s->n, 512) + n - 1) / n;
  return cy_cu_estimate(g, s->z, 8) * floor(rows) * floor(columns);
}

cy_dim cy_cu_tiles(cy_graph *g, const cy_cu_sizes *s, int m, int n) {
  return cy_dim_mul(g, s->z,
                    cy_dim_mul(g, cy_dim_cdiv(g, s->m, cy_dim_const(g, m)), cy_dim_cdiv(g, s->n, cy_dim_const(g, n))));
}

/* ---- factors and results ---- */

cy_dtype cy_cu_factor_type(cy_kernel *k) {
  const cy_karg_info *args;
  cy_kernel_args(k, &args);
  const cy_contraction *c = cy_kernel_contraction(k);
  return c->a_rounded ? c->a_rounded : args[c->a].dtype;
}

const cy_stmt *cy_cu_epilogue(cy_kernel *k) {
  const cy_stmt *body = cy_kernel_body(k);
  return cy_kernel_contraction(k)->kind == CY_CONTRACT_ATTENTION ? body->next->next : body;
}
