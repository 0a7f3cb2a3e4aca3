/* SPDX-License-Identifier: Apache-2.0 */
/* tune_file.c - the file of --tune: what was measured, for which CPU, by which version of cytoc.
 *
 * In: a path, or the user's cache folder ($XDG_CACHE_HOME/cytoc, else ~/.cache/cytoc). Out: choices. Below three lines of
 * head, which name version and CPU, stand lines of choices.h. Estimates and generators change from version to version, and
 * so does what is worth measuring: files of other versions are not used.
 */
#define _GNU_SOURCE
#include "choices.h"
#include "tune.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD "# cytoc tuning"
#define VERSION "# version: "
#define CPU "# cpu: "

static int complain(cy_diag_sink *diag, const tune_file *f, const char *what, const char *why) {
  cy_location where = {.file = f->path, .node_index = -1};
  cy_diag_add(diag, CY_ERROR, &where, "%s%s", what, why);
  cy_diag_blame(diag, CY_CAUSE_FILE);
  return -1;
}

int cytoc_tune_file_open(tune_file *f, const char *given, cy_diag_sink *diag) {
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  bool has_cache = cache && *cache == '/';
  if (*given) {
    if (!(f->path = strdup(given)))
      cy_no_memory();
    return 0;
  }
  if (!has_cache && !(home && *home)) {
    cy_diag_add(diag, CY_ERROR, NULL,
                "--tune: there is no folder for the user's file, as neither XDG_CACHE_HOME nor HOME is set; expected "
                "--tune=FILE");
    cy_diag_blame(diag, CY_CAUSE_OPTION);
    return -1;
  }
  char *folder;
  if (asprintf(&folder, "%s%s", has_cache ? cache : home, has_cache ? "" : "/.cache") < 0)
    cy_no_memory();
  mkdir(folder, 0755);
  if (asprintf(&f->path, "%s/cytoc/tune-%s.txt", folder, f->cpu) < 0)
    cy_no_memory();
  char *slash = strrchr(f->path, '/');
  *slash = 0;
  mkdir(f->path, 0755);
  *slash = '/';
  free(folder);
  return 0;
}

/* The rest of a line that begins so; NULL: it does not. */
static const char *behind(char *line, const char *head) {
  line[strcspn(line, "\r\n")] = 0;
  return strncmp(line, head, strlen(head)) ? NULL : line + strlen(head);
}

typedef struct reading {
  const tune_file *f;
  cy_diag_sink *diag;
  FILE *in;
  char *text;
  size_t room;
} reading;

/* What the line of the head says; "": there is no such line. */
static const char *head_line(reading *r, const char *head) {
  const char *value = getline(&r->text, &r->room, r->in) >= 0 ? behind(r->text, head) : NULL;
  return value ? value : "";
}

static void warn(const reading *r, int line, const char *format, const char *what) {
  cy_location where = {.file = r->f->path, .node_index = -1};
  char text[400];
  snprintf(text, sizeof text, format, what);
  if (line)
    cy_diag_add(r->diag, CY_WARNING, &where, "line %d is ignored: %s; the layer is measured again", line, text);
  else
    cy_diag_add(r->diag, CY_WARNING, &where, "%s", text);
}

/* 1: its lines count; 0: they do not; -1 after a diagnostic. */
static int read_head(reading *r) {
  if (getline(&r->text, &r->room, r->in) < 0 && !ferror(r->in))
    return 0; /* empty: a file that was made for this */
  if (ferror(r->in))
    return complain(r->diag, r->f, "cannot read the file: ", strerror(errno));
  if (!behind(r->text, HEAD))
    return complain(r->diag, r->f, "this is no file of --tune: its first line is not '" HEAD "'; name another", "");
  const char *version = head_line(r, VERSION);
  if (strcmp(version, r->f->version)) {
    warn(r, 0,
         *version ? "all of it is ignored and measured again: it was made by '%s', which is another version"
                  : "all of it is ignored and measured again: it does not say which version made it%s",
         version);
    return 0;
  }
  const char *cpu = head_line(r, CPU);
  if (!strcmp(cpu, r->f->cpu))
    return 1;
  cy_location where = {.file = r->f->path, .node_index = -1};
  cy_diag_add(
      r->diag, CY_ERROR, &where,
      "it was measured on '%s', and the target is '%s'; expected --tune=FILE with a file of this CPU's, or a new "
      "one",
      cpu, r->f->cpu);
  cy_diag_blame(r->diag, CY_CAUSE_FILE);
  return -1;
}

static void read_lines(reading *r, cy_choices *out) {
  ssize_t n;
  for (int line = 4; (n = getline(&r->text, &r->room, r->in)) >= 0; line++) {
    bool whole = n && r->text[n - 1] == '\n';
    const char *wrong = whole ? cytoc_choices_add(out, r->text, line) : "it is cut off";
    if (wrong)
      warn(r, line, "%s", wrong);
  }
}

int cytoc_tune_file_read(const tune_file *f, cy_choices *out, cy_diag_sink *diag) {
  reading r = {.f = f, .diag = diag, .in = fopen(f->path, "r")};
  if (!r.in && errno == ENOENT)
    return 0;
  if (!r.in)
    return complain(diag, f, "cannot read the file: ", strerror(errno));
  int status = read_head(&r);
  if (status > 0)
    read_lines(&r, out);
  free(r.text);
  fclose(r.in);
  return status < 0 ? -1 : 0;
}

int cytoc_tune_file_write(const tune_file *f, const cy_choices *c, cy_diag_sink *diag) {
  char *beside;
  if (asprintf(&beside, "%s.%ld.tmp", f->path, (long)getpid()) < 0)
    cy_no_memory();
  FILE *out = fopen(beside, "w");
  if (out) {
    fprintf(out, HEAD " 1\n" VERSION "%s\n" CPU "%s\n", f->version, f->cpu);
    cytoc_choices_write(c, out);
  }
  bool bad = !out || ferror(out);
  bad = (out && fclose(out)) || bad || rename(beside, f->path);
  int status = bad ? complain(diag, f, "cannot write what was measured: ", strerror(errno)) : 0;
  if (bad)
    unlink(beside);
  free(beside);
  return status;
}
