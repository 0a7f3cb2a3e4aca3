/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* tuned.c - reads the file that cyto-tune writes: how many threads, contexts, and which batch suit a model on this machine.
 *
 * In:  JSON (RFC 8259), of which the strings "model", "target" and "symbol", the number "cpus", and the numbers of the object
 *      "choice" matter; all else is passed over.
 * Out: a cyto_tuned, or what is wrong with the file and on which line.
 */
#include "cyrt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 24, MAX_DEPTH = 32 };

typedef struct reader {
  const char *at, *text, *wrong; /* wrong: what was expected at `at`; NULL: nothing is wrong */
  int depth;
} reader;

static int fail(reader *r, const char *expected) {
  if (!r->wrong)
    r->wrong = expected;
  return -1;
}

static void skip_space(reader *r) { r->at += strspn(r->at, " \t\r\n"); }

/* Is this the next character? Then it is passed. */
static int passes(reader *r, char c) {
  skip_space(r);
  int is = *r->at == c;
  r->at += is;
  return is;
}

/* A string; out gets as much of it as fits, without its escapes, which names of ours do not need. */
static int read_string(reader *r, char *out, size_t room) {
  size_t n = 0;
  skip_space(r);
  if (*r->at != '"')
    return fail(r, "a string");
  for (r->at++; *r->at && *r->at != '"'; r->at++) {
    if (*r->at == '\\' && r->at[1])
      r->at++;
    if (n + 1 < room)
      out[n++] = *r->at;
  }
  if (room)
    out[n] = 0;
  if (*r->at != '"')
    return fail(r, "the end of a string");
  r->at++;
  return 0;
}

/* How long the number is that begins here; 0: there is none. Not strtod(), which wants the locale's decimal point. */
static size_t number_length(reader *r) {
  skip_space(r);
  size_t n = strspn(r->at, "+-.0123456789eE");
  return strcspn(r->at, "0123456789") < n ? n : 0;
}

static int skip_number(reader *r) {
  size_t n = number_length(r);
  r->at += n;
  return n ? 0 : fail(r, "a number");
}

/* The whole part of a number without an exponent. */
static int read_number(reader *r, int64_t *out) {
  static const long long max = 1000000000000000;
  size_t n = number_length(r);
  char *end = NULL;
  long long value = n ? strtoll(r->at, &end, 10) : 0;
  if (!n || end == r->at || memchr(r->at, 'e', n) || memchr(r->at, 'E', n) || value < -max || value > max)
    return fail(r, "a number");
  r->at += n;
  *out = value;
  return 0;
}

/* ---- objects ---- */

typedef struct found {
  cyto_tuned *tuned;
  char model[256], target[64];
  int64_t version, cpus, threads, contexts, batch;
  int chosen; /* there is a "choice" */
} found;

/* One member: 1 it was read, 0 it is none of ours, -1 it is wrong. */
typedef int member(reader *r, const char *key, found *f);

static int skip_value(reader *r);

static int read_object(reader *r, member *take, found *f) {
  char key[64];
  if (!passes(r, '{'))
    return fail(r, "an object");
  if (passes(r, '}'))
    return 0;
  do {
    if (read_string(r, key, sizeof key) || (!passes(r, ':') && fail(r, "':'")))
      return -1;
    int taken = take ? take(r, key, f) : 0;
    if (taken < 0 || (!taken && skip_value(r)))
      return -1;
  } while (passes(r, ','));
  return passes(r, '}') ? 0 : fail(r, "',' or '}'");
}

static int skip_array(reader *r) {
  if (!passes(r, '[') || passes(r, ']'))
    return 0;
  do
    if (skip_value(r))
      return -1;
  while (passes(r, ','));
  return passes(r, ']') ? 0 : fail(r, "',' or ']'");
}

static int skip_word(reader *r) {
  static const char words[][8] = {"true", "false", "null"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (!strncmp(r->at, words[i], strlen(words[i]))) {
      r->at += strlen(words[i]);
      return 0;
    }
  return skip_number(r) ? (r->wrong = "a value", -1) : 0;
}

static int skip_value(reader *r) {
  skip_space(r);
  if (++r->depth > MAX_DEPTH)
    return fail(r, "fewer objects within each other");
  int status = *r->at == '{'   ? read_object(r, NULL, NULL)
               : *r->at == '[' ? skip_array(r)
               : *r->at == '"' ? read_string(r, NULL, 0)
                               : skip_word(r);
  r->depth--;
  return status;
}

static int take_number(reader *r, int64_t *out) { return read_number(r, out) ? -1 : 1; }

static int choice_member(reader *r, const char *key, found *f) {
  return !strcmp(key, "threads")    ? take_number(r, &f->threads)
         : !strcmp(key, "contexts") ? take_number(r, &f->contexts)
         : !strcmp(key, "batch")    ? take_number(r, &f->batch)
                                    : 0;
}

static int top_member(reader *r, const char *key, found *f) {
  if (!strcmp(key, "cyto-tune"))
    return take_number(r, &f->version);
  if (!strcmp(key, "cpus"))
    return take_number(r, &f->cpus);
  if (!strcmp(key, "choice")) {
    f->chosen = 1;
    return read_object(r, choice_member, f) ? -1 : 1;
  }
  const struct {
    const char *key;
    char *out;
    size_t room;
  } texts[] = {{"model", f->model, sizeof f->model},
               {"target", f->target, sizeof f->target},
               {"symbol", f->tuned->symbol, sizeof f->tuned->symbol}};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    if (!strcmp(key, texts[i].key))
      return read_string(r, texts[i].out, texts[i].room) ? -1 : 1;
  return 0;
}

/* ---- the file ---- */

/* Its bytes with a zero behind them, to be freed. */
static char *file_text(const char *path, cyto_error *error) {
  FILE *f = fopen(path, "rb");
  char *text = f ? malloc(MAX_BYTES + 1) : NULL;
  if (!text) {
    cyrt_error_set(error, f ? CYTO_OUT_OF_MEMORY : CYTO_NOT_FOUND, "'%s': cannot read the file: %s", path,
                   strerror(errno));
    if (f)
      fclose(f);
    return NULL;
  }
  size_t n = fread(text, 1, MAX_BYTES + 1, f);
  int bad = ferror(f);
  fclose(f);
  if (!bad && n <= MAX_BYTES) {
    text[n] = 0;
    return text;
  }
  free(text);
  cyrt_error_set(error, bad ? CYTO_NOT_FOUND : CYTO_INVALID_ARGUMENT, "'%s': %s", path,
                 bad ? "cannot read the file" : "too large for a file of cyto-tune");
  return NULL;
}

static int line_of(const reader *r) {
  int line = 1;
  for (const char *p = r->text; p < r->at; p++)
    line += *p == '\n';
  return line;
}

static cyto_status check_model(const found *f, const cyto_model *model, const char *path, cyto_error *error) {
  const char *name = cyto_model_name(model), *target = cyto_model_target(model);
  if (strncmp(name, f->model, sizeof f->model - 1) || strcmp(target, f->target))
    return cyrt_error_set(
        error, CYTO_INVALID_ARGUMENT,
        "'%s': it is of the model '%s' for %s, and this one is '%s' for %s; run cyto-tune with this one", path,
        f->model, f->target, name, target);
  return CYTO_OK;
}

static cyto_status check_choice(const found *f, const char *path, cyto_error *error) {
  if (!f->chosen)
    return cyrt_error_set(
        error, CYTO_INVALID_ARGUMENT,
        "'%s': it has no choice, as nothing measured was within the limits; run cyto-tune with others", path);
  if (f->threads < 1 || f->threads > CYTO_MAX_THREADS || f->contexts < 1 || f->contexts > CYTO_MAX_THREADS ||
      f->batch < 0 || f->batch > INT32_MAX || f->cpus < 1 || f->cpus > INT32_MAX)
    return cyrt_error_set(error, CYTO_INVALID_ARGUMENT,
                          "'%s': expected threads and contexts from 1 to %d, a batch from 0, and a number of CPUs",
                          path, CYTO_MAX_THREADS);
  return CYTO_OK;
}

cyto_status cyto_tuned_read(const char *path, const cyto_model *model, cyto_tuned *out_tuned, cyto_error *error) {
  if (!path || !out_tuned)
    return cyrt_error_null(error, path ? "out_tuned is NULL" : "path is NULL");
  *out_tuned = (cyto_tuned){0};
  char *text = file_text(path, error);
  if (!text)
    return error ? (cyto_status)error->code : CYTO_NOT_FOUND;
  reader r = {.at = text, .text = text};
  found f = {.tuned = out_tuned};
  cyto_status status = CYTO_OK;
  if (read_object(&r, top_member, &f) || (skip_space(&r), *r.at && fail(&r, "the end of the file")))
    status = cyrt_error_set(error, CYTO_INVALID_ARGUMENT, "'%s', line %d: expected %s; run cyto-tune again", path,
                            line_of(&r), r.wrong);
  else if (f.version != CYTO_TUNED_VERSION)
    status = cyrt_error_set(error, CYTO_INVALID_ARGUMENT,
                            "'%s': no file of cyto-tune, or of another version; run cyto-tune again", path);
  free(text);
  if (!status && model)
    status = check_model(&f, model, path, error);
  if (!status)
    status = check_choice(&f, path, error);
  if (status)
    return *out_tuned = (cyto_tuned){0}, status;
  out_tuned->threads = (int32_t)f.threads;
  out_tuned->contexts = (int32_t)f.contexts;
  out_tuned->batch = f.batch;
  out_tuned->cpus = (int32_t)f.cpus;
  cyrt_error_clear(error);
  return CYTO_OK;
}
