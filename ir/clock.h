/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - times of the compiler and the tools and their medians; how fast this machine's clock ticks, for floors of time.
 *
 * A floor is counted in cycles, which hang on the program and on the kind of CPU only; whoever shows it beside a time
 * (--explain, cyto-run --profile) measures the clock there and then. No library gives the rate a core runs at under
 * load: what the system reports is the nominal rate or that of an idle core.
 */
#ifndef CY_CLOCK_H
#define CY_CLOCK_H

#include <stdint.h>
#include <stdlib.h>
#include <time.h>

/* Milliseconds since some moment. */
static inline double cy_clock_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static inline int cy_numbers_compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The least first; the median is then numbers[n / 2]. */
static inline void cy_numbers_sort(double *numbers, size_t n) {
  qsort(numbers, n, sizeof *numbers, cy_numbers_compare);
}

/* Hertz: the time of a chain of multiplications and additions, four cycles a link on every x86-64 of this century. */
static inline double cy_clock_rate(void) {
  enum { LINKS = 100000, ROUNDS = 9 };
  double min = 1;
  for (int round = 0; round < ROUNDS; round++) {
    volatile uint64_t sink;
    double start = cy_clock_ms();
    uint64_t x = (uint64_t)start;
    for (int i = 0; i < LINKS; i++) {
      x = x * 6364136223846793005u + 1442695040888963407u;
      __asm__ volatile("" : "+r"(x)); /* no link may be computed ahead */
    }
    sink = x;
    (void)sink;
    double seconds = (cy_clock_ms() - start) * 1e-3;
    min = seconds < min ? seconds : min;
  }
  return 4.0 * LINKS / min;
}

#endif
