/* temps.c - temporary files that are gone in the end, whatever the end was.
 *
 * One private directory under TMPDIR holds intermediate files; outputs are written under a temporary name beside their place
 * and renamed into it, so nobody ever sees half a library. cy_temps_destroy() removes what is left; so does the handler of
 * SIGINT, SIGTERM and SIGHUP, which is why the paths stand in a fixed table reachable from a static pointer.
 */
#define _GNU_SOURCE
#include "codegen/work.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_FILES = 512 };

struct cy_temps {
  char dir[512];
  char *files[MAX_FILES];
  volatile int nfiles;
  pid_t owner;
  struct sigaction before[3];
};

static const int signals[3] = {SIGINT, SIGTERM, SIGHUP};
static cy_temps *volatile active; /* of the call that runs in this process */

static void remove_all(cy_temps *t) {
  for (int i = 0; i < t->nfiles; i++)
    unlink(t->files[i]);
  rmdir(t->dir);
}

static void on_signal(int number) {
  cy_temps *t = active;
  if (t && t->owner == getpid())
    remove_all(t);
  signal(number, SIG_DFL);
  raise(number);
}

bool cy_file_write(const char *path, const void *data, size_t bytes) {
  FILE *f = fopen(path, "wb");
  bool ok = f && fwrite(data, 1, bytes, f) == bytes;
  return !(f && fclose(f)) && ok;
}

cy_temps *cy_temps_create(cy_diag_sink *diag) {
  cy_temps *t = calloc(1, sizeof *t);
  if (!t)
    abort();
  const char *base = getenv("TMPDIR");
  snprintf(t->dir, sizeof t->dir, "%s/cytoc-XXXXXX", base && *base ? base : "/tmp");
  if (!mkdtemp(t->dir)) {
    cy_diag_add(diag, CY_ERROR, NULL, "cannot make a temporary directory in '%s': %s; set TMPDIR to a writable one",
                base && *base ? base : "/tmp", strerror(errno));
    free(t);
    return NULL;
  }
  t->owner = getpid();
  active = t;
  struct sigaction act = {.sa_handler = on_signal};
  for (int i = 0; i < 3; i++) {
    sigaction(signals[i], NULL, &t->before[i]);
    if (t->before[i].sa_handler != SIG_IGN)
      sigaction(signals[i], &act, NULL);
  }
  return t;
}

void cy_temps_destroy(cy_temps *t) {
  if (!t)
    return;
  for (int i = 0; i < 3; i++)
    sigaction(signals[i], &t->before[i], NULL);
  active = NULL;
  remove_all(t);
  for (int i = 0; i < t->nfiles; i++)
    free(t->files[i]);
  free(t);
}

static const char *add_file(cy_temps *t, char *path) {
  for (int i = 0; i < t->nfiles; i++)
    if (strcmp(t->files[i], path) == 0) {
      free(path);
      return t->files[i];
    }
  if (t->nfiles == MAX_FILES)
    cy_bug("too many temporary files");
  t->files[t->nfiles] = path;
  t->nfiles = t->nfiles + 1;
  return path;
}

const char *cy_temps_file(cy_temps *t, const char *base_name) {
  char *path = NULL;
  if (asprintf(&path, "%s/%s", t->dir, base_name) < 0)
    abort();
  return add_file(t, path);
}

const char *cy_temps_near(cy_temps *t, const char *output) {
  const char *slash = strrchr(output, '/');
  int dir = slash ? (int)(slash - output) + 1 : 0;
  char *path = NULL;
  if (asprintf(&path, "%.*s.%s.%ld.tmp", dir, output, output + dir, (long)getpid()) < 0)
    abort();
  return add_file(t, path);
}

int cy_temps_commit(cy_temps *t, const char *near, const char *output, cy_diag_sink *diag) {
  (void)t; /* the name stays in the table: unlinking it again does no harm */
  if (rename(near, output) == 0)
    return 0;
  cy_diag_add(diag, CY_ERROR, NULL, "cannot write '%s': %s", output, strerror(errno));
  return -1;
}

void cy_temps_fork_child(void) {
  active = NULL;
  for (int i = 0; i < 3; i++)
    signal(signals[i], SIG_DFL);
}
