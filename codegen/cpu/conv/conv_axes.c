/* SPDX-License-Identifier: Apache-2.0 */
/* conv_axes.c - a convolution along its axes: what all generators of convolutions begin with.
 *
 * In: a cy_conv_desc, and which part of it. Out: three axes (cy_axis), the taps of the source that the part has, and the loop
 * over rows of the kernel.
 */
#include "conv_int.h"

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }
static int64_t floor_mod(int64_t a, int64_t b) { return (a % b + b) % b; }

static cy_axis plain_axis(const cy_conv_desc *d, int i) {
  return (cy_axis){.count = d->kernel[i],
                   .step = d->stride[i],
                   .start = -d->pad[i],
                   .inc = d->dilation[i],
                   .scale = 1,
                   .kernel = d->kernel[i],
                   .tap_inc = 1,
                   .in = d->in[i],
                   .out = d->out[i],
                   .in_stride = d->in_s[i]};
}

/* Output o = o' * s + residue gets input i through tap k when i * s = o + pad - k * dilation. */
static cy_axis residue_axis(const cy_conv_desc *d, int i, int64_t residue) {
  int64_t s = d->stride[i], dil = d->dilation[i], every = s / gcd(s, dil), k0 = 0;
  while (k0 < every && floor_mod(residue + d->pad[i] - k0 * dil, s))
    k0++;
  cy_axis a = {.step = 1,
               .scale = s,
               .residue = residue,
               .kernel = d->kernel[i],
               .tap0 = k0,
               .tap_inc = every,
               .in = d->in[i],
               .out = d->out[i],
               .in_stride = d->in_s[i]};
  if (k0 < every && k0 < d->kernel[i]) {
    a.count = cy_ceil(d->kernel[i] - k0, every);
    a.start = (residue + d->pad[i] - k0 * dil) / s;
    a.inc = -every * dil / s;
  }
  return a;
}

void cy_conv_axes(const cy_conv_desc *d, int part, cy_axis axis[3]) {
  int missing = 3 - d->n_spatial;
  for (int i = 2; i >= 0; i--) {
    int at = i - missing;
    if (at < 0) {
      axis[i] = (cy_axis){.count = 1,
                          .step = 1,
                          .inc = 1,
                          .scale = 1,
                          .kernel = 1,
                          .tap_inc = 1,
                          .in = cy_cconst(1),
                          .out = cy_cconst(1),
                          .in_stride = cy_cconst(0)};
    } else if (d->transposed) {
      axis[i] = residue_axis(d, at, part % d->stride[at]);
      part /= (int)d->stride[at];
    } else {
      axis[i] = plain_axis(d, at);
    }
  }
}

const int32_t *cy_conv_tap_map(const cy_conv_desc *d, int part, cy_arena *arena) {
  int32_t *first = CY_NEW_ARRAY(arena, int32_t, cy_conv_taps(d)), *map = first;
  cy_axis a[3];
  cy_conv_axes(d, part, a);
  for (int64_t i = 0; i < a[0].count; i++)
    for (int64_t j = 0; j < a[1].count; j++)
      for (int64_t k = 0; k < a[2].count; k++)
        *map++ = (int32_t)(((a[0].tap0 + i * a[0].tap_inc) * a[1].kernel + a[1].tap0 + j * a[1].tap_inc) * a[2].kernel +
                           a[2].tap0 + k * a[2].tap_inc);
  return first;
}

void cy_kernel_rows_begin(cy_cg *cg, cy_kernel_rows *r, const cy_axis axis[2], const V o[2], V count) {
  r->offset = r->number = cy_i64(cg, 0);
  r->exists = LLVMConstInt(cg->i1, 1, 0);
  for (int i = 0; i < 2; i++) {
    const cy_axis *a = &axis[i];
    cy_loop_begin(cg, &r->loop[i], cy_i64(cg, 0), i && count ? count : cy_i64(cg, a->count), cy_i64(cg, 1), NULL, 0);
    V tap = r->loop[i].iv, at = cy_add(cg, cy_mulc(cg, o[i], a->step), cy_addc(cg, cy_mulc(cg, tap, a->inc), a->start));
    r->offset = cy_add(cg, r->offset, cy_mul(cg, at, cy_size(cg, a->in_stride)));
    r->exists = LLVMBuildAnd(cg->b, r->exists, cy_icmp(cg, LLVMIntULT, at, cy_size(cg, a->in)), "");
    r->number = cy_add(cg, cy_mulc(cg, r->number, a->count), tap);
  }
}

void cy_kernel_rows_end(cy_cg *cg, cy_kernel_rows *r) {
  cy_loop_end(cg, &r->loop[1], NULL);
  cy_loop_end(cg, &r->loop[0], NULL);
}
