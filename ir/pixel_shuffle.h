/* SPDX-License-Identifier: Apache-2.0 */
/* pixel_shuffle.h - a transposed convolution as a convolution whose channels become spatial positions.
 *
 * Along an axis of stride s, position s * i + r of the output reads the inputs around i by every s-th tap, those of
 * residue r. So the s positions of place i are channels of one convolution of stride 1, its kernel being the taps of a
 * residue, backwards. Kernels are filled up with zeros: in front, so that the first position of a place is that of residue
 * 0, and behind, so that all residues have as many taps. Generators may leave out the taps that a residue has only zeros
 * in.
 */
#ifndef CY_PIXEL_SHUFFLE_H
#define CY_PIXEL_SHUFFLE_H

#include <stdint.h>

typedef struct cy_shuffle_axis {
  int64_t before, behind; /* zeros that the kernel is filled up with */
  int64_t taps;           /* of the convolution */
  int64_t edge;           /* its padding in front; negative: it would have to begin inside of the input */
} cy_shuffle_axis;

/* kernel, stride >= 1; pad >= 0: what the transposed convolution cuts off in front. */
static inline cy_shuffle_axis cy_shuffle_axis_of(int64_t kernel, int64_t stride, int64_t pad) {
  cy_shuffle_axis a = {.before = (stride - pad % stride) % stride};
  a.taps = (a.before + kernel + stride - 1) / stride;
  a.behind = a.taps * stride - kernel - a.before;
  a.edge = a.taps - 1 - (pad + a.before) / stride;
  return a;
}

/* What is left of that in a convolution whose channels become positions: along an axis, the positions of a place, and
 * the zeros in front of and behind the elements of its kernel. positions 0: it shuffles nothing. */
typedef struct cy_shuffle_fill {
  int64_t positions, before, behind;
} cy_shuffle_fill;

/* Taps [first, first + count) of so many: the others of position r of a place are zeros that fill up. */
typedef struct cy_shuffle_taps {
  int64_t first, count;
} cy_shuffle_taps;

static inline cy_shuffle_taps cy_shuffle_taps_of(const cy_shuffle_fill *f, int64_t taps, int64_t r) {
  /* from behind, as kernels run: element r of the kernel's t-th stride is what tap taps - 1 - t meets */
  int64_t from = f->before > r ? (f->before - r + f->positions - 1) / f->positions : 0;
  int64_t there = taps * f->positions - f->behind - r, end = there > 0 ? (there + f->positions - 1) / f->positions : 0;
  end = end < taps ? end : taps;
  return (cy_shuffle_taps){taps - end, end > from ? end - from : 0};
}

#endif
