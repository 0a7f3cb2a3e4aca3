/* SPDX-License-Identifier: Apache-2.0 */
/* errors.h - how far the values of one computation are from those of another: the one place where largest and RMS error,
 * signal-to-noise ratio, cosine and arg-max agreement are computed, for cytoc verify, cyto-compare and --int8.
 *
 * In:  pairs of values, the second being what is expected. Out: sums over all pairs that were added, and figures of them.
 *
 * Element types may differ where both are numbers (f16 beside f32). Equal infinities and two NaN agree; of other pairs with a
 * value that is not finite there is no error, they count as `odd`.
 */
#ifndef VALUE_ERRORS_H
#define VALUE_ERRORS_H

#include "value_file.h"

typedef struct value_errors {
  uint64_t count, equal;                  /* elements; of these, to the last bit (strings: to the last byte) */
  uint64_t near;                          /* .. equal or one apart: of integers */
  uint64_t odd;                           /* not finite on one side, or differently so */
  double largest, peak;                   /* the greatest |error|, and |expected| */
  double error2, is2, expected2, product; /* sums of squares and of products */
  uint64_t rows, same_top; /* along the axis of classes; and how many have their greatest element at the same place */
  bool exact;              /* integers, bools, strings: no float among them */
  bool bytes;              /* .. integers of 8 bits or fewer */
  char differ[160];        /* "" or how shapes or kinds differ: nothing was added of that pair */
} value_errors;

void errors_add(value_errors *e, const cyto_value *is, const cyto_value *expected);
/* All pairs that were added to `more` are added to e. */
void errors_join(value_errors *e, const value_errors *more);

double errors_rms(const value_errors *e);
double errors_relative(const value_errors *e); /* the largest error over the greatest magnitude that is expected */
double errors_snr(const value_errors *e);      /* dB; INFINITY where there is no error */
double errors_cosine(const value_errors *e);   /* 1 where both are zero */
double errors_equal(const value_errors *e);    /* shares, from 0 to 1 */
double errors_near(const value_errors *e);
double errors_top(const value_errors *e); /* NAN: there are no rows */
/* Of sums of squares, or powers. */
double errors_decibels(double signal, double noise);

/* "123.4", "inf": a signal-to-noise ratio as tables have it. */
const char *errors_decibels_text(double decibels, char *text, size_t room);

#endif
