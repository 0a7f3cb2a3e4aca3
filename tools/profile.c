/* SPDX-License-Identifier: Apache-2.0 */
/* profile.c - the table of cyto-run --profile: the mean time of every step beside its floor.
 *
 * In: a model that was compiled by cytoc --profile and was recorded. Out: a row per step in the order of the program:
 * times run, microseconds, share of all, those of the first run, floor, floor as a part of the time, algorithm,
 * ops and node; then the sum. The first run reads weights from the file and gets memory from the system: it is no part
 * of times and shares where there are others. Floors are those of --explain, divided by the number of threads; of
 * steps with other sizes than --explain assumes, the floor stands in parentheses, and counts in the sum.
 */
#include "profile.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* other: it is for other sizes than these. */
static void print_floor(double floor_us, double us, bool other) {
  char text[32] = "-";
  if (floor_us > 0)
    snprintf(text, sizeof text, other ? "(%.2f)" : "%.2f", floor_us);
  printf(" %10s", text);
  if (floor_us > 0 && us > 0 && !other)
    printf(" %6.1f", 100 * floor_us / us);
  else
    printf(" %6s", "-");
}

void profile_step(const profile *p, int64_t i, cyto_trace_sums *out, int64_t *out_runs, int64_t *out_ns) {
  memset(out, 0, sizeof *out);
  cyto_trace_step(p->model, i, out);
  *out_runs = out->runs ? out->runs : out->first_runs;
  *out_ns = out->runs ? out->ns : out->first_ns;
}

/* "12.00", or "-" where there is no such number; to `width` columns. */
static void print_us(double ns, int64_t runs, int width) {
  if (runs)
    printf(" %*.2f", width, ns / (double)runs / 1e3);
  else
    printf(" %*s", width, "-");
}

static void print_row(const cyto_trace_sums *r, int64_t runs, int64_t ns, double all_ns, double min) {
  double us = (double)ns / (double)runs / 1e3;
  printf("%8lld %10.2f %6.2f", (long long)runs, us, 100 * (double)ns / all_ns);
  print_us((double)r->first_ns, r->first_runs, 10);
  print_floor(min, us, r->other_sizes);
  printf("  %-18s %s", r->algorithm, r->ops);
  printf(*r->node ? " from '%s'\n" : "%s\n", r->node);
}

void profile_print(const profile *p, int threads, long runs) {
  double all_ns = 0, first_ns = 0, floor_us = 0;
  const char *assumed = NULL;
  cyto_trace_sums r;
  int64_t n, ns;
  for (int64_t i = 0; i < p->n; i++) {
    profile_step(p, i, &r, &n, &ns);
    all_ns += (double)ns;
    first_ns += (double)r.first_ns;
  }
  printf("%8s %10s %6s %10s %10s %6s  %-18s %s\n", "runs", "us", "%", "first us", "floor us", "floor%", "algorithm",
         "ops fused");
  for (int64_t i = 0; i < p->n; i++) {
    profile_step(p, i, &r, &n, &ns);
    double min = r.floor_ns / 1e3 / (threads > 1 ? threads : 1);
    if (!n)
      continue;
    print_row(&r, n, ns, all_ns, min);
    floor_us += min * (double)n;
    if (r.other_sizes && (!assumed || strlen(r.assumed) > strlen(assumed)))
      assumed = r.assumed;
  }
  long counted = runs ? runs : 1;
  printf("%8ld %10.2f %6.2f", counted, all_ns / 1e3 / (double)counted, 100.0);
  print_us(first_ns, 1, 10);
  print_floor(floor_us / (double)counted, all_ns / 1e3 / (double)counted, assumed);
  printf(runs ? "  all launches of a run\n"
              : "  all launches of the first run, which is cold: --repeat=N for others\n");
  if (assumed)
    printf("(floors) are for %s: for these sizes fix them by cytoc --dim\n", assumed);
}
