/* SPDX-License-Identifier: Apache-2.0 */
/* resident.c - see resident.h. */
#include "resident.h"

#include <stdio.h>
#include <unistd.h>

int64_t resident_bytes(void) {
  long long all, pages = -1;
  FILE *f = fopen("/proc/self/statm", "r");
  if (f && fscanf(f, "%lld %lld", &all, &pages) != 2)
    pages = -1;
  if (f)
    fclose(f);
  return pages < 0 ? -1 : pages * sysconf(_SC_PAGESIZE);
}

static int64_t warm_runs(const resident_growth *g) { return g->runs / 10; }

void resident_note(resident_growth *g, int64_t i) {
  if (i == warm_runs(g) || !i)
    g->before = resident_bytes();
  if (i == g->runs - 1)
    g->after = resident_bytes();
}

void resident_print(const resident_growth *g) {
  if (g->after >= 0)
    printf("resident memory %.1f MB, grew by %lld kB in %lld runs\n", (double)g->after / 1e6,
           (long long)(resident_grown(g) / 1000), (long long)(g->runs - 1 - warm_runs(g)));
}
