/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cuda_choices.c - which of several ways to compute something was the fastest on a device, kept between processes.
 *
 * A file of text in the user's cache folder ($XDG_CACHE_HOME/cytoc, else ~/.cache/cytoc), one per everything that
 * choices rest on, which its name hashes and its first line says. A line is a key, a choice, the times of our own and
 * of the best way in microseconds, and a checksum of these. A file of another first line is not used; lines that are
 * damaged are not either. Both are rewritten when the next choice is saved. Files are replaced as a whole; what another
 * process wrote meanwhile is taken over.
 */
#include "cyrt_choose.h"

#include "runtime/numbers.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct row {
  uint64_t key;
  int32_t choice;
  double own_us, best_us;
} row;

struct cuda_choices {
  pthread_mutex_t mutex;
  row *rows;
  uint32_t n, capacity;
  int changed;
  char about[300], path[600]; /* path "": nowhere */
};

enum { LINE = 400, MAX_ROWS = 1 << 16 };
#define HEAD "cytoc choices 3: "

/* ---- rows ---- */

static const row *find(const cuda_choices *c, uint64_t key) {
  for (uint32_t i = 0; i < c->n; i++)
    if (c->rows[i].key == key)
      return &c->rows[i];
  return NULL;
}

static int add(cuda_choices *c, row r) {
  if (find(c, r.key) || c->n == MAX_ROWS)
    return 0;
  if (c->n == c->capacity) {
    uint32_t capacity = c->capacity ? 2 * c->capacity : 64;
    row *rows = realloc(c->rows, capacity * sizeof *rows);
    if (!rows)
      return 0;
    c->rows = rows;
    c->capacity = capacity;
  }
  c->rows[c->n++] = r;
  return 1;
}

/* ---- the file ---- */

static int print_row(char text[LINE], const row *r) {
  return snprintf(text, LINE, "%016llx %d %.1f %.1f", (unsigned long long)r->key, r->choice, r->own_us, r->best_us);
}

static void read_row(cuda_choices *c, const char *line) {
  row r;
  unsigned long long key, sum;
  char again[LINE];
  if (sscanf(line, "%llx %d %lf %lf %llx", &key, &r.choice, &r.own_us, &r.best_us, &sum) != 5)
    return;
  r.key = key;
  int n = print_row(again, &r);
  if (n > 0 && !strncmp(line, again, (size_t)n) && sum == cyrt_cuda_checksum(again, (uint64_t)n))
    add(c, r);
}

/* Takes over the rows of the file that are not known yet. */
static void read_file(cuda_choices *c) {
  char line[LINE];
  FILE *f = *c->path ? fopen(c->path, "re") : NULL;
  cyrt_numbers theirs = cyrt_numbers_begin();
  int right = f && fgets(line, sizeof line, f) && !strncmp(line, HEAD, sizeof HEAD - 1);
  line[strcspn(right ? line : "\n", "\n")] = 0;
  if (right && !strcmp(line + sizeof HEAD - 1, c->about))
    while (fgets(line, sizeof line, f))
      read_row(c, line);
  cyrt_numbers_end(theirs);
  if (f)
    fclose(f);
}

static void write_file(const cuda_choices *c) {
  char temporary[700], text[LINE];
  snprintf(temporary, sizeof temporary, "%s.%ld", c->path, (long)getpid());
  FILE *f = fopen(temporary, "we");
  if (!f)
    return;
  cyrt_numbers theirs = cyrt_numbers_begin();
  fprintf(f, HEAD "%s\n", c->about);
  for (uint32_t i = 0; i < c->n; i++) {
    int n = print_row(text, &c->rows[i]);
    fprintf(f, "%s %016llx\n", text, (unsigned long long)cyrt_cuda_checksum(text, (uint64_t)n));
  }
  cyrt_numbers_end(theirs);
  int failed = ferror(f);
  if (fclose(f) || failed || rename(temporary, c->path))
    unlink(temporary);
}

static void make_path(cuda_choices *c) {
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  char folder[500];
  int n = cache && *cache == '/' ? snprintf(folder, sizeof folder, "%s", cache)
          : home && *home        ? snprintf(folder, sizeof folder, "%s/.cache", home)
                                 : -1;
  if (n < 0 || n > (int)sizeof folder - 10)
    return;
  mkdir(folder, 0755);
  strcat(folder, "/cytoc");
  mkdir(folder, 0755);
  snprintf(c->path, sizeof c->path, "%s/cuda-%016llx.txt", folder,
           (unsigned long long)cyrt_cuda_checksum(c->about, strlen(c->about)));
}

/* ---- the interface ---- */

cuda_choices *cyrt_choices_open(const char *about) {
  cuda_choices *c = calloc(1, sizeof *c);
  if (!c || pthread_mutex_init(&c->mutex, NULL)) {
    free(c);
    return NULL;
  }
  snprintf(c->about, sizeof c->about, "%s", about);
  make_path(c);
  read_file(c);
  return c;
}

void cyrt_choices_close(cuda_choices *c) {
  if (!c)
    return;
  pthread_mutex_destroy(&c->mutex);
  free(c->rows);
  free(c);
}

int cyrt_choices_find(cuda_choices *c, uint64_t key, int32_t *out_choice) {
  pthread_mutex_lock(&c->mutex);
  const row *r = find(c, key);
  if (r)
    *out_choice = r->choice;
  pthread_mutex_unlock(&c->mutex);
  return r != NULL;
}

void cyrt_choices_add(cuda_choices *c, uint64_t key, int32_t choice, double own_us, double best_us) {
  pthread_mutex_lock(&c->mutex);
  row *known = (row *)find(c, key);
  const row r = {key, choice, own_us, best_us};
  if (known)
    *known = r;
  c->changed |= known || add(c, r);
  pthread_mutex_unlock(&c->mutex);
}

void cyrt_choices_save(cuda_choices *c) {
  pthread_mutex_lock(&c->mutex);
  if (c->changed && *c->path) {
    read_file(c);
    write_file(c);
  }
  c->changed = 0;
  pthread_mutex_unlock(&c->mutex);
}
