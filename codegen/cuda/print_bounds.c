/* SPDX-License-Identifier: Apache-2.0 */
/* print_bounds.c - which divisors of f32 are neither small nor huge, so that their approximate inverse is precise.
 *
 * In: an expression. Out: whether interval arithmetic shows it to lie between 1 and max, or to be NaN. So are the
 * denominators of tanh and erf (ir/loop/loop_math.c), which gelu has in the epilogue of a product: a division that is right
 * for all operands takes ten instructions and a branch there, this one two, for an error of 2 ulp.
 */
#include "codegen/cuda/cuda_int.h"

#include <math.h>

enum { MAX_STEPS = 400 };
static const double max = 1e30; /* whose inverse is no denormal number */

typedef struct bounds {
  double low, high;
} bounds;
static const bounds unknown = {-INFINITY, INFINITY};

static bounds of(double low, double high) { return low <= high ? (bounds){low, high} : unknown; /* NaN, too */ }

static bounds product(bounds a, bounds b) {
  const double corners[4] = {a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high};
  double low = corners[0], high = corners[0];
  for (int i = 0; i < 4; i++) {
    if (isnan(corners[i]))
      return unknown;
    low = fmin(low, corners[i]);
    high = fmax(high, corners[i]);
  }
  return of(low, high);
}

static bounds square(bounds a) {
  double high = fmax(a.low * a.low, a.high * a.high);
  return of(a.low <= 0 && a.high >= 0 ? 0 : fmin(a.low * a.low, a.high * a.high), high);
}

static bounds sum(bounds a, bounds b) { return of(a.low + b.low, a.high + b.high); }

static bounds bounds_of(cy_kernel *k, cy_expr e, int *steps) {
  const cy_expr_info *x = cy_expr_of(k, e);
  bounds a[3] = {unknown, unknown, unknown};
  if (x->dtype != CY_F32 || ++*steps > MAX_STEPS)
    return unknown;
  if (x->op == CY_X_CONST)
    return of(x->c.f, x->c.f);
  bool known =
      x->op == CY_OP_min || x->op == CY_OP_max || x->op == CY_OP_mul || x->op == CY_OP_add || x->op == CY_OP_fma;
  for (int i = 0; known && i < x->n; i++)
    a[i] = bounds_of(k, x->arg[i], steps);
  bounds times = known && x->arg[0] == x->arg[1] ? square(a[0]) : product(a[0], a[1]);
  switch (x->op) {
  case CY_OP_min: return of(fmin(a[0].low, a[1].low), fmin(a[0].high, a[1].high));
  case CY_OP_max: return of(fmax(a[0].low, a[1].low), fmax(a[0].high, a[1].high));
  case CY_OP_add: return sum(a[0], a[1]);
  case CY_OP_mul: return times;
  case CY_OP_fma: return sum(times, a[2]);
  default: return unknown;
  }
}

bool cy_cu_inverse_is_near(cy_kernel *k, cy_expr divisor) {
  int steps = 0;
  bounds b = bounds_of(k, divisor, &steps);
  return b.low >= 1 && b.high <= max;
}
