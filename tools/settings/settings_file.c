/* SPDX-License-Identifier: Apache-2.0 */
/* settings_file.c - tuned.json: what was measured of a library, and what was chosen, which cyto_tuned_read() reads.
 *
 * In: a path. Out: points, or a file that is written beside its name and then renamed, so that it is always whole.
 */
#define _GNU_SOURCE
#include "settings.h"

#include "runtime/cyto.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEY "cyto-tune"

static int fail(char error[CY_SETTING_ERROR], const char *format, ...) __attribute__((format(printf, 2, 3)));
static int fail(char error[CY_SETTING_ERROR], const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(error, CY_SETTING_ERROR, format, args);
  va_end(args);
  return -1;
}

/* FNV-1a over a file's bytes. False: it cannot be read. */
static bool hash_add(uint64_t *h, const char *path) {
  unsigned char block[1 << 16];
  size_t n;
  FILE *f = fopen(path, "rb");
  while (f && (n = fread(block, 1, sizeof block, f)) > 0)
    for (size_t i = 0; i < n; i++)
      *h = (*h ^ block[i]) * 1099511628211u;
  bool ok = f && !ferror(f);
  if (f)
    fclose(f);
  return ok;
}

int cy_setting_hash(const char *path, char out[20], char error[CY_SETTING_ERROR]) {
  uint64_t h = 14695981039346656037u;
  char weights[PATH_MAX];
  errno = 0;
  if (!hash_add(&h, path))
    return fail(error, "cannot read the library '%s': %s", path, strerror(errno));
  snprintf(weights, sizeof weights, "%s.weights", path);
  if (!access(weights, F_OK) && !hash_add(&h, weights))
    return fail(error, "cannot read '%s': %s", weights, strerror(errno));
  snprintf(out, 20, "%016llx", (unsigned long long)h);
  return 0;
}

/* ---- reading ---- */

static const char *text_of(const json_t *file, const char *key) {
  const char *text = json_string_value(json_object_get(file, key));
  return text ? text : "";
}

/* What makes its measurements those of something else; NULL: nothing does. */
static const char *other(const json_t *file, const cy_setting_about *a) {
  if (strcmp(text_of(file, "library"), a->library) != 0)
    return "another library";
  if (strcmp(text_of(file, "cpu"), a->cpu) != 0 || json_integer_value(json_object_get(file, "cpus")) != a->cpus)
    return "another machine, or other CPUs of this one";
  if (strcmp(text_of(file, "sizes"), a->sizes) != 0 || strcmp(text_of(file, "symbol"), a->symbol) != 0)
    return "other sizes of inputs";
  return json_number_value(json_object_get(file, "seconds")) != a->seconds ? "another --seconds" : NULL;
}

static int read_sample(const json_t *j, cy_setting_sample *out) {
#define X(name)                                                                                                        \
  if (!json_is_number(json_object_get(j, #name)))                                                                      \
    return -1;                                                                                                         \
  out->name = json_number_value(json_object_get(j, #name));
  CY_SETTING_FIELDS(X)
#undef X
  return 0;
}

/* failures: settings that do not run are kept, too. */
static int read_point(const json_t *j, bool failures, cy_setting_points *out) {
  const json_t *samples = json_object_get(j, "samples");
  cy_setting s = {(int)json_integer_value(json_object_get(j, "threads")),
                  (int)json_integer_value(json_object_get(j, "contexts")),
                  json_integer_value(json_object_get(j, "batch"))};
  if (s.threads < 0 || s.contexts < 1 || s.batch < 0 || !json_is_array(samples) ||
      json_array_size(samples) > CY_SETTING_SAMPLES)
    return -1;
  if (!failures && !json_array_size(samples))
    return 0;
  cy_setting_point *p = cy_setting_put(out, s);
  p->n = 0;
  for (size_t i = 0; i < json_array_size(samples); i++)
    if (read_sample(json_array_get(samples, i), &p->samples[p->n++]))
      return -1;
  snprintf(p->why, sizeof p->why, "%s", text_of(j, "why"));
  return 0;
}

int cy_setting_file_read(const char *path, const cy_setting_about *about, cy_setting_points *out,
                         char error[CY_SETTING_ERROR]) {
  json_error_t why;
  *error = 0;
  if (access(path, F_OK) && errno == ENOENT)
    return 0;
  json_t *file = json_load_file(path, 0, &why);
  const json_t *points = json_object_get(file, "measured");
  int status = 1;
  size_t i;
  json_t *point;
  if (!file)
    status = fail(error, "'%s', line %d: %s; expected a file of cyto-tune: remove it, or name another by -o", path,
                  why.line, why.text);
  else if (!json_is_integer(json_object_get(file, KEY)) || !json_is_array(points))
    status = fail(error, "'%s': this is no file of cyto-tune; remove it, or name another by -o", path);
  else if (json_integer_value(json_object_get(file, KEY)) != CYTO_TUNED_VERSION)
    fail(error, "'%s' is of another version of cyto-tune: all of it is measured again", path), status = 0;
  else if (other(file, about))
    fail(error, "'%s' is of %s: all of it is measured again", path, other(file, about)), status = 0;
  /* what does not run within one limit of memory may run within another */
  bool failures = status > 0 && !strcmp(text_of(file, "goal"), about->goal);
  if (status > 0)
    json_array_foreach(points, i, point) if (status > 0 && read_point(point, failures, out)) status =
        fail(error, "'%s': number %zu of 'measured' is damaged; remove the file, or name another by -o", path, i + 1);
  json_decref(file);
  return status;
}

/* ---- writing ---- */

static json_t *sample_json(const cy_setting_sample *s) {
  json_t *j = json_object();
#define X(name) json_object_set_new(j, #name, json_real(s->name));
  CY_SETTING_FIELDS(X)
#undef X
  return j;
}

static json_t *point_json(const cy_setting_point *p) {
  json_t *samples = json_array();
  for (int i = 0; i < p->n; i++)
    json_array_append_new(samples, sample_json(&p->samples[i]));
  json_t *j = json_pack("{s:i, s:i, s:I, s:o}", "threads", p->s.threads, "contexts", p->s.contexts, "batch",
                        (json_int_t)p->s.batch, "samples", samples);
  if (!p->n)
    json_object_set_new(j, "why", json_string(p->why));
  return j;
}

/* threads 0, of devices, is 1 to those who read it. */
static json_t *choice_json(const cy_setting_point *p) {
  cy_setting_sample m = cy_setting_median(p);
  return json_pack("{s:i, s:i, s:I, s:f, s:f, s:f}", "threads", p->s.threads ? p->s.threads : 1, "contexts",
                   p->s.contexts, "batch", (json_int_t)p->s.batch, "samples_per_second", m.rate, "p95_ms", m.p95_ms,
                   "memory_mb", m.peak_kb / 1024);
}

static json_t *file_json(const cy_setting_about *a, const cy_setting_points *points, const cy_setting_point *chosen) {
  json_t *file =
      json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:i, s:s, s:s, s:s, s:f}", KEY, CYTO_TUNED_VERSION, "model", a->model,
                "target", a->target, "compiler", a->compiler, "library", a->library, "cpu", a->cpu, "cpus", a->cpus,
                "sizes", a->sizes, "symbol", a->symbol, "goal", a->goal, "seconds", a->seconds);
  json_t *list = json_array();
  for (int i = 0; i < points->n; i++)
    json_array_append_new(list, point_json(&points->list[i]));
  if (chosen)
    json_object_set_new(file, "choice", choice_json(chosen));
  json_object_set_new(file, "measured", list);
  return file;
}

int cy_setting_file_write(const char *path, const cy_setting_about *about, const cy_setting_points *points,
                          const cy_setting_point *chosen, char error[CY_SETTING_ERROR]) {
  char beside[PATH_MAX + 32];
  snprintf(beside, sizeof beside, "%s.%ld.tmp", path, (long)getpid());
  json_t *file = file_json(about, points, chosen);
  FILE *f = file ? fopen(beside, "w") : NULL;
  errno = f ? 0 : errno;
  bool bad = !f || json_dumpf(file, f, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) || fputc('\n', f) == EOF;
  bad = (f && fclose(f)) || bad || rename(beside, path);
  json_decref(file);
  if (!bad)
    return 0;
  int why = errno;
  unlink(beside);
  return fail(error, "'%s': cannot write what was measured: %s", path,
              why ? strerror(why) : "a name in it is no UTF-8");
}
