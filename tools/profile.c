/* profile.c - the table of cyto-run --profile: the mean time of every launch beside its floor.
 *
 * In: a library that was compiled by cytoc --profile, is loaded and has run. Out: a row per launch in the order of the
 * program: times run, microseconds, share of all, floor, floor as a part of the time, algorithm, ops and node; then the
 * sum. Floors are those of --explain, divided by the number of threads; of launches whose sizes were not the ones that
 * --explain assumes none is known, and the sum has those of the others.
 */
#define _GNU_SOURCE
#include "profile.h"

#include "ir/clock.h"
#include "runtime/cyto_abi.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
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

static void print_floor(double floor_us, double us) {
  if (floor_us > 0 && us > 0)
    printf(" %10.2f %6.1f", floor_us, 100 * floor_us / us);
  else
    printf(" %10s %6s", "-", "-");
}

int profile_print(const char *library, int threads, long runs) {
  int64_t n = 0, sized = 0;
  double cycles_us = cy_clock_rate() / 1e6 * (threads > 1 ? threads : 1), ns = 0, floor_us = 0;
  cyrt_profile_row *const *rows = rows_of(library, &n);
  if (!rows)
    return -1;
  for (int64_t i = 0; i < n; i++)
    ns += (double)rows[i]->ns;
  printf("%8s %10s %6s %10s %6s  %-18s %s\n", "runs", "us", "%", "floor us", "floor%", "algorithm", "ops fused");
  for (int64_t i = 0; i < n; i++) {
    const cyrt_profile_row *r = rows[i];
    if (!r->runs)
      continue;
    double us = (double)r->ns / (double)r->runs / 1e3, least = r->floor_cycles / cycles_us;
    floor_us += least * (double)r->runs;
    sized += r->floor_cycles <= 0;
    printf("%8lld %10.2f %6.2f", (long long)r->runs, us, 100 * (double)r->ns / ns);
    print_floor(least, us);
    printf("  %-18s %s", r->algorithm, r->ops);
    printf(*r->node ? " from '%s'\n" : "%s\n", r->node);
  }
  printf("%8ld %10.2f %6.2f", runs, ns / 1e3 / (double)runs, 100.0);
  print_floor(floor_us / (double)runs, ns / 1e3 / (double)runs);
  printf("  all launches of a run\n");
  if (sized)
    printf("no floor: other sizes than --explain assumes, fix them by cytoc --dim\n");
  return 0;
}
