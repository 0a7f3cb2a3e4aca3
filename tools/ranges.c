/* ranges.c - which range of a tensor's values the 256 steps of u8 shall span.
 *
 * In:  all values of the tensor on the samples, twice: first for their extremes, then (unless those are the range) for
 * a histogram between them. Out: low and high, values outside of which saturate.
 *
 *   minmax       everything that was seen
 *   percentile   all but one value in 20,000 at either end
 *   mse          the least mean squared difference between values and their rounded ones
 *   entropy      the least Kullback-Leibler divergence of the distribution of rounded values from that of values
 *
 * The last two try candidates that shrink both ends towards 0, by 1/64 of the range at a time; 0 stays inside.
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
  r->seen += n;
  return true;
}

static double bin_width(const range_stats *r) { return (r->high - r->low) / RANGE_BINS; }

void range_count(range_stats *r, const float *x, uint64_t n, double factor) {
  double w = bin_width(r), scale = w > 0 ? 1 / w : 0;
  for (uint64_t i = 0; i < n; i++) {
    int64_t b = (int64_t)((x[i] * factor - r->low) * scale);
    r->bins[b < 0 ? 0 : b >= RANGE_BINS ? RANGE_BINS - 1 : b]++;
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

/* Mean squared error of rounding: s^2/12 inside, the distance to the end outside. */
static double squared_error(const range_stats *r, double low, double high) {
  double step = (high - low) / STEPS, inside = step * step / 12, sum = 0, w = bin_width(r);
  for (int b = 0; b < RANGE_BINS; b++) {
    double x = r->low + (b + 0.5) * w, d = x < low ? low - x : x > high ? x - high : 0;
    sum += (double)r->bins[b] * (d > 0 ? d * d : inside);
  }
  return sum;
}

/* sum p log(p / q): p the histogram with what lies outside put into the outermost bins, q the same made of 256 levels,
 * each spread evenly over those of its bins that are not empty. */
static double divergence(const range_stats *r, double low, double high) {
  double w = bin_width(r), level[STEPS + 1] = {0}, total = 0, sum = 0;
  uint32_t filled[STEPS + 1] = {0};
  int first = (int)((low - r->low) / w), last = (int)((high - r->low) / w) - 1;
  first = first < 0 ? 0 : first;
  last = last >= RANGE_BINS ? RANGE_BINS - 1 : last < first ? first : last;
  double p[RANGE_BINS] = {0};
  for (int b = 0; b < RANGE_BINS; b++) {
    int at = b < first ? first : b > last ? last : b, l = (at - first) * (STEPS + 1) / (last - first + 1);
    p[at] += (double)r->bins[b];
    total += (double)r->bins[b];
    if (b == at && r->bins[b]) {
      level[l] += (double)r->bins[b];
      filled[l]++;
    }
  }
  for (int b = first; b <= last; b++) {
    int l = (b - first) * (STEPS + 1) / (last - first + 1);
    if (p[b] <= 0)
      continue;
    double q = r->bins[b] && filled[l] ? level[l] / filled[l] : 0.5;
    sum += p[b] / total * log(p[b] / q);
  }
  return sum;
}

static void search(const range_stats *r, double (*cost)(const range_stats *, double, double), double *low,
                   double *high) {
  double l = r->low < 0 ? r->low : 0, h = r->high > 0 ? r->high : 0, best = INFINITY;
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
  if (method == RANGE_PERCENTILE)
    percentile(r, out_low, out_high);
  else if (method == RANGE_MSE)
    search(r, squared_error, out_low, out_high);
  else if (method == RANGE_ENTROPY)
    search(r, divergence, out_low, out_high);
}
