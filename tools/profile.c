/* SPDX-License-Identifier: Apache-2.0 */
/* profile.c - the table of cyto-run --profile: the mean time of every launch beside its floor.
 *
 * In: a library that was compiled by cytoc --profile, is loaded and has run. Out: a row per launch in the order of the
 * program: times run, microseconds, share of all, those of the first run, floor, floor as a part of the time, algorithm,
 * ops and node; then the sum. The first run reads weights from the file and gets memory from the system: it is no part
 * of times and shares where there are others. Floors are those of --explain, divided by the number of threads; of
 * launches with other sizes than --explain assumes, the floor stands in parentheses, and counts in the sum.
 */
#define _GNU_SOURCE
#include "profile.h"

#include "ir/clock.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cyrt_profile_row *const *rows_of(const char *library, int64_t *out_n) {
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s%s", strchr(library, '/') ? "" : "./", library);
  void *handle = dlopen(path, RTLD_NOW | RTLD_NOLOAD), *symbol = handle ? dlsym(handle, CYTO_MODEL_PROFILE) : NULL;
  cyto_model_profile_fn rows;
  if (handle)
    dlclose(handle); /* the model's own handle stays */
  if (!symbol)
    return NULL;
  memcpy(&rows, &symbol, sizeof rows);
  return rows(CYTO_ABI_VERSION, out_n);
}

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

int profile_begin(const char *library, profile *out) {
  *out = (profile){0};
  out->rows = rows_of(library, &out->n);
  out->rate = cy_clock_rate();
  out->first = out->rows ? malloc(((size_t)out->n + 1) * sizeof *out->first) : NULL;
  for (int64_t i = 0; out->first && i < out->n; i++)
    out->first[i] = *out->rows[i];
  return out->first ? 0 : -1;
}

void profile_end(profile *p) {
  free(p->first);
  *p = (profile){0};
}

void profile_launch(const profile *p, int64_t i, int64_t *out_runs, int64_t *out_ns) {
  bool more = p->rows[i]->runs > p->first[i].runs;
  *out_runs = p->rows[i]->runs - (more ? p->first[i].runs : 0);
  *out_ns = p->rows[i]->ns - (more ? p->first[i].ns : 0);
}

/* "12.00", or "-" where there is no such number; to `width` columns. */
static void print_us(double ns, int64_t runs, int width) {
  if (runs)
    printf(" %*.2f", width, ns / (double)runs / 1e3);
  else
    printf(" %*s", width, "-");
}

static void print_row(const profile *p, int64_t i, double all_ns, double least) {
  const cyrt_profile_row *r = p->rows[i];
  int64_t runs, ns;
  profile_launch(p, i, &runs, &ns);
  double us = (double)ns / (double)runs / 1e3;
  printf("%8lld %10.2f %6.2f", (long long)runs, us, 100 * (double)ns / all_ns);
  print_us((double)p->first[i].ns, p->first[i].runs, 10);
  print_floor(least, us, r->other);
  printf("  %-18s %s", r->algorithm, r->ops);
  printf(*r->node ? " from '%s'\n" : "%s\n", r->node);
}

void profile_print(const profile *p, int threads, long runs) {
  double cycles_us = p->rate / 1e6 * (threads > 1 ? threads : 1), all_ns = 0, first_ns = 0, floor_us = 0;
  const cyrt_profile_row *other = NULL;
  int64_t n, ns;
  for (int64_t i = 0; i < p->n; i++) {
    profile_launch(p, i, &n, &ns);
    all_ns += (double)ns;
    first_ns += (double)p->first[i].ns;
  }
  printf("%8s %10s %6s %10s %10s %6s  %-18s %s\n", "runs", "us", "%", "first us", "floor us", "floor%", "algorithm",
         "ops fused");
  for (int64_t i = 0; i < p->n; i++) {
    double least = p->rows[i]->floor_cycles / cycles_us;
    profile_launch(p, i, &n, &ns);
    if (!n)
      continue;
    print_row(p, i, all_ns, least);
    floor_us += least * (double)n;
    if (p->rows[i]->other && (!other || strlen(p->rows[i]->assumed) > strlen(other->assumed)))
      other = p->rows[i];
  }
  long counted = runs ? runs : 1;
  printf("%8ld %10.2f %6.2f", counted, all_ns / 1e3 / (double)counted, 100.0);
  print_us(first_ns, 1, 10);
  print_floor(floor_us / (double)counted, all_ns / 1e3 / (double)counted, other);
  printf(runs ? "  all launches of a run\n"
              : "  all launches of the first run, which is cold: --repeat=N for others\n");
  if (other)
    printf("(floors) are for %s: for these sizes fix them by cytoc --dim\n", other->assumed);
}
