/* SPDX-License-Identifier: Apache-2.0 */
/* ranges.c - which range of a tensor's values the 256 steps of u8 shall span.
 *
 * In:  all values of the tensor on the samples, twice: first for their extremes, then (unless those are the range) for
 * a histogram between them. Out: low and high, values outside of which saturate.
 *
 *   minmax       everything that was seen
 *   percentile   all but one value in 20,000 at either end
 *   mse          the least mean squared difference between values and their rounded ones, future samples included
 *   entropy      the least Kullback-Leibler divergence of the distribution of rounded values from that of values
 *
 * The last two try candidates that shrink both ends towards 0, by 1/64 of the range at a time; 0 stays inside. mse
 * starts from extremes that future samples may have: a tensor of few values, seen on few samples, has not shown all of
 * its range.
 */
#include "calibrate.h"

#include <math.h>
#include <string.h>

enum { STEPS = 255, CANDIDATES = 56, GRAIN = 64 };
static const double tail = 1.0 / 20000;

range_method range_method_of(const char *name) {
  static const char *const names[RANGE_METHODS] = {"minmax", "percentile", "entropy", "mse"};
  for (int i = 0; i < RANGE_METHODS; i++)
    if (!strcmp(name, names[i]))
      return (range_method)i;
  return RANGE_METHODS;
}

bool range_extend(range_stats *r, const float *x, uint64_t n) {
  if (!n)
    return true;
  float low = x[0], high = x[0], odd = 0;
  for (uint64_t i = 0; i < n; i++) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
    odd += x[i] - x[i]; /* NaN for NaN and infinities */
  }
  if (odd != 0)
    return false;
  r->low = !r->seen || low < r->low ? low : r->low;
  r->high = !r->seen || high > r->high ? high : r->high;
  r->now[0] = low < r->now[0] ? low : r->now[0];
  r->now[1] = high > r->now[1] ? high : r->now[1];
  r->seen += n;
  return true;
}

static double bin_width(const range_stats *r) { return (r->high - r->low) / RANGE_BINS; }

void range_count(range_stats *r, const float *x, uint64_t n, double factor) {
  double w = bin_width(r), scale = w > 0 ? 1 / w : 0;
  for (uint64_t i = 0; i < n; i++) {
    double v = x[i] * factor;
    int64_t b = (int64_t)((v - r->low) * scale);
    r->bins[b < 0 ? 0 : b >= RANGE_BINS ? RANGE_BINS - 1 : b]++;
    r->now[0] = v < r->now[0] ? v : r->now[0];
    r->now[1] = v > r->now[1] ? v : r->now[1];
  }
}

void range_end_sample(range_stats *r) {
  for (int i = 0; i < 2; i++) {
    r->sum[i] += r->now[i];
    r->squares[i] += r->now[i] * r->now[i];
    r->now[i] = 0;
  }
  r->samples++;
}

/* The extremes to expect: those seen, widened by HEADROOM standard deviations of the extremes of single samples. Few
 * samples of few values say little about the extremes; those of many samples, or of large images, differ little. */
void range_expect(const range_stats *r, double out[2]) {
  static const double HEADROOM = 2;
  for (int i = 0; i < 2; i++) {
    double mean = r->samples ? r->sum[i] / r->samples : 0;
    double variance = r->samples > 1 ? (r->squares[i] - mean * r->sum[i]) / (r->samples - 1) : 0;
    double beyond = variance > 0 ? HEADROOM * sqrt(variance) : 0;
    out[i] = i ? fmax(r->high, 0) + beyond : fmin(r->low, 0) - beyond;
  }
}

static void percentile(const range_stats *r, double *low, double *high) {
  uint64_t cut = (uint64_t)((double)r->seen * tail), below = 0, above = 0;
  int first = 0, last = RANGE_BINS - 1;
  while (first < last && (below += r->bins[first]) <= cut)
    first++;
  while (last > first && (above += r->bins[last]) <= cut)
    last--;
  *low = r->low + first * bin_width(r);
  *high = r->low + (last + 1) * bin_width(r);
}

/* Mean squared error of rounding: s^2/12 inside, the distance to the end outside, once for extremes to be expected. */
static double squared_error(const range_stats *r, double low, double high) {
  double step = (high - low) / STEPS, inside = step * step / 12, w = bin_width(r), end[2];
  range_expect(r, end);
  double below = fmax(low - end[0], 0), above = fmax(end[1] - high, 0), sum = below * below + above * above;
  for (int b = 0; b < RANGE_BINS; b++) {
    double x = r->low + (b + 0.5) * w, d = x < low ? low - x : x > high ? x - high : 0;
    sum += (double)r->bins[b] * (d > 0 ? d * d : inside);
  }
  return sum;
}

/* sum p log(p / q) over cells. Every level has equally many, however wide it is: otherwise narrow levels would look better
 * for lack of detail. p: the values seen, those outside the range put into the outermost levels; q: the values inside,
 * those of each level spread evenly over its cells that are not empty. 0 is left out of both: many tensors hold it
 * often, and a level stands for it exactly. */
static double divergence(const range_stats *r, double low, double high) {
  enum { CELLS = 8, ALL = (STEPS + 1) * CELLS };
  double w = bin_width(r), step = (high - low) / STEPS, p[ALL] = {0}, level[STEPS + 1] = {0};
  double total = 0, inside = 0, sum = 0;
  bool full[ALL] = {0};
  int filled[STEPS + 1] = {0}, none = (int)(-r->low / w);
  for (int b = 0; b < RANGE_BINS; b++) {
    double x = r->low + (b + 0.5) * w, n = (double)r->bins[b], at = x < low ? low : x > high ? high : x;
    int cell = (int)(((at - low) / step + 0.5) * CELLS);
    cell = cell < ALL ? cell : ALL - 1;
    if (b == none || n == 0)
      continue;
    total += n;
    p[cell] += n;
    if (at != x)
      continue;
    inside += n;
    level[cell / CELLS] += n;
    filled[cell / CELLS] += !full[cell];
    full[cell] = true;
  }
  for (int c = 0; c < ALL && inside > 0; c++)
    if (p[c] > 0) {
      double q = full[c] ? level[c / CELLS] / filled[c / CELLS] : 0.5;
      sum += p[c] / total * log(p[c] / total * inside / q);
    }
  return inside > 0 ? sum : INFINITY;
}

static void search(const range_stats *r, double (*cost)(const range_stats *, double, double), double l, double h,
                   double *low, double *high) {
  double best = INFINITY;
  for (int i = 0; i < CANDIDATES; i++) {
    double shrink = 1 - (double)i / GRAIN, c = cost(r, l * shrink, h * shrink);
    if (c < best) {
      best = c;
      *low = l * shrink;
      *high = h * shrink;
    }
  }
}

void range_choose(const range_stats *r, range_method method, double *out_low, double *out_high) {
  *out_low = r->low;
  *out_high = r->high;
  if (!r->seen || !r->bins || !(bin_width(r) > 0))
    return;
  double end[2];
  range_expect(r, end);
  if (method == RANGE_PERCENTILE)
    percentile(r, out_low, out_high);
  else if (method == RANGE_MSE)
    search(r, squared_error, end[0], end[1], out_low, out_high);
  else if (method == RANGE_ENTROPY)
    search(r, divergence, fmin(r->low, 0), fmax(r->high, 0), out_low, out_high);
}
