/* SPDX-License-Identifier: Apache-2.0 */
/* bench_tasks.c - a table of what is to be measured: one row a task.
 *
 * In:  a CSV file by RFC 4180 (commas, "quotes", CRLF or LF). Its first line names the columns, in any order: those of the
 *      table below. Empty lines, and lines that begin with #, say nothing. Paths are relative to the file's folder.
 * Out: a cy_bench_task for each row, whose texts are the table's.
 */
#define _GNU_SOURCE
#include "bench.h"

#include "ir/nearest.h"
#include "tools/options.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_COLUMNS = 16 };

/* Where a row is being read. */
typedef struct reader {
  const char *path;
  cy_bench_tasks *out;
  char *error;
  int line;
} reader;

static int fail(reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int fail(reader *r, const char *format, ...) {
  va_list args;
  int n = snprintf(r->error, CY_BENCH_ERROR, "%s:%d: ", r->path, r->line);
  va_start(args, format);
  vsnprintf(r->error + n, (size_t)(CY_BENCH_ERROR - n), format, args);
  va_end(args);
  return -1;
}

/* A text that lives as long as the tasks. NULL: no memory. */
static char *keep(cy_bench_tasks *tasks, char *text) {
  char **grown = text ? realloc(tasks->texts, (size_t)(tasks->n_texts + 1) * sizeof *grown) : NULL;
  if (!grown) {
    free(text);
    return NULL;
  }
  tasks->texts = grown;
  return tasks->texts[tasks->n_texts++] = text;
}

/* ---- what a cell means ---- */

/* A path as it is to be opened. */
static char *path_of(reader *r, const char *cell) {
  const char *slash = strrchr(r->path, '/');
  char *text = NULL;
  if (asprintf(&text, "%.*s%s", cell[0] == '/' || !slash ? 0 : (int)(slash - r->path + 1), r->path, cell) < 0)
    text = NULL;
  return keep(r->out, text);
}

static int read_model(reader *r, cy_bench_task *task, char *cell) {
  task->model = path_of(r, cell);
  if (!task->model)
    return fail(r, "out of memory");
  if (access(task->model, R_OK))
    return fail(r, "cannot read the model '%s': %s", task->model, strerror(errno));
  return 0;
}

static int read_name(reader *r, cy_bench_task *task, char *cell) {
  (void)r;
  snprintf(task->name, sizeof task->name, "%s", cell);
  return 0;
}

/* Words as in an options file; the cell itself stays as it was written. */
static int read_options(reader *r, cy_bench_task *task, char *cell) {
  char *words = keep(r->out, strdup(cell)), *list;
  bool bad = false;
  task->options = cell;
  task->words = words ? calloc(strlen(cell) / 2 + 2, sizeof *task->words) : NULL;
  list = keep(r->out, (char *)task->words);
  if (!list)
    return fail(r, "out of memory");
  for (char *word; (word = options_next_word(&words, &bad));)
    task->words[task->n_words++] = word;
  return bad ? fail(r, "a quote has no end in the column 'options': %s", cell) : 0;
}

/* NAME=VALUE;NAME=VALUE */
static int read_pairs(reader *r, cy_bench_task *task, char *cell, const char *option) {
  for (char *pair; (pair = strsep(&cell, ";"));) {
    pair += strspn(pair, " ");
    if (!*pair)
      continue;
    if (!strchr(pair, '='))
      return fail(r, "column '%ss': expected NAME=VALUE with ';' between several, found '%s'", option + 2, pair);
    cy_bench_pair_add(&task->pairs, option, pair);
  }
  return 0;
}

static int read_shapes(reader *r, cy_bench_task *task, char *cell) { return read_pairs(r, task, cell, "--shape"); }
static int read_dims(reader *r, cy_bench_task *task, char *cell) { return read_pairs(r, task, cell, "--dim"); }
static int read_ranges(reader *r, cy_bench_task *task, char *cell) { return read_pairs(r, task, cell, "--range"); }

static int read_number(reader *r, const char *column, const char *cell, int *out) {
  char *end;
  errno = 0;
  long v = strtol(cell, &end, 10);
  if (errno || *end || v < 1 || v > 100000)
    return fail(r, "column '%s': expected a number from 1 to 100000, found '%s'", column, cell);
  *out = (int)v;
  return 0;
}

static int read_threads(reader *r, cy_bench_task *task, char *cell) {
  return read_number(r, "threads", cell, &task->threads[0]);
}

static int read_batch(reader *r, cy_bench_task *task, char *cell) {
  char *text = NULL;
  if (read_number(r, "batch", cell, &task->batch))
    return -1;
  if (asprintf(&text, "batch=%d", task->batch) < 0 || !keep(r->out, text))
    return fail(r, "out of memory");
  cy_bench_pair_add(&task->pairs, "--dim", text);
  return 0;
}

static int read_inputs(reader *r, cy_bench_task *task, char *cell) {
  const char *folder = path_of(r, cell);
  if (!folder)
    return fail(r, "out of memory");
  if (access(folder, R_OK | X_OK))
    return fail(r, "cannot read the folder of inputs '%s': %s", folder, strerror(errno));
  cy_bench_pair_add(&task->pairs, "--inputs", folder);
  return 0;
}

static int read_post(reader *r, cy_bench_task *task, char *cell) {
  (void)r;
  task->post = cell;
  return 0;
}

static const struct {
  const char *name;
  int (*read)(reader *r, cy_bench_task *task, char *cell);
} columns[] = {{"model", read_model},   {"name", read_name},     {"options", read_options}, {"shapes", read_shapes},
               {"dims", read_dims},     {"ranges", read_ranges}, {"threads", read_threads}, {"batch", read_batch},
               {"inputs", read_inputs}, {"post", read_post}};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

void cy_bench_tasks_columns(char *text, size_t room) {
  *text = 0;
  for (size_t i = 0, n = 0; i < N_COLUMNS && n < room; i++)
    n += (size_t)snprintf(text + n, room - n, "%s%s", i ? ", " : "", columns[i].name);
}

/* ---- cells ---- */

/* The next cell of a record, in place. *more: another one follows in it. */
static int cell_next(reader *r, char **at, char **out, bool *more) {
  char *p = *at, *to = p;
  bool quoted = *p == '"';
  *out = to;
  for (p += quoted; *p; p++) {
    if (quoted && *p == '"' && p[1] == '"')
      *to++ = *p++;
    else if (quoted && *p == '"') {
      quoted = false;
    } else if (!quoted && (*p == ',' || *p == '\n' || (*p == '\r' && p[1] == '\n'))) {
      break;
    } else {
      r->line += *p == '\n';
      *to++ = *p;
    }
  }
  if (quoted)
    return fail(r, "a quote has no end");
  *more = *p == ',';
  if (*p == '\r')
    p++;
  *at = p + (*p != 0);
  *to = 0;
  return 0;
}

/* The cells of a record, which begin and end without blanks. Returns how many, or -1. */
static int record_next(reader *r, char **at, char *cells[MAX_COLUMNS]) {
  bool more = true;
  int n = 0;
  for (; more; n++) {
    if (n == MAX_COLUMNS)
      return fail(r, "more than %d columns", MAX_COLUMNS);
    if (cell_next(r, at, &cells[n], &more))
      return -1;
    cells[n] += strspn(cells[n], " \t");
    size_t length = strlen(cells[n]);
    while (length && strchr(" \t", cells[n][length - 1]))
      cells[n][--length] = 0;
  }
  return n;
}

/* Which of our columns stands where. Returns how many there are, or -1. */
static int heading_read(reader *r, char **at, int places[MAX_COLUMNS]) {
  char *cells[MAX_COLUMNS], known[200], hint[CY_NEAREST_TEXT];
  int n = record_next(r, at, cells);
  bool has_model = false;
  for (int i = 0; i < n; i++) {
    cy_nearest nearest = cy_nearest_of(cells[i], strlen(cells[i]));
    places[i] = -1;
    for (int k = 0; k < N_COLUMNS; k++) {
      cy_nearest_try(&nearest, columns[k].name, strlen(columns[k].name));
      if (!strcmp(cells[i], columns[k].name))
        places[i] = k;
    }
    cy_bench_tasks_columns(known, sizeof known);
    if (places[i] < 0)
      return fail(r, "no column is called '%s'%s (there are %s)", cells[i], cy_nearest_say(&nearest, hint), known);
    for (int k = 0; k < i; k++)
      if (places[k] == places[i])
        return fail(r, "the column '%s' stands there twice", cells[i]);
    has_model |= places[i] == 0;
  }
  return n < 0 || has_model ? n : fail(r, "the first line must name the columns, 'model' among them");
}

static int task_read(reader *r, char *cells[MAX_COLUMNS], const int places[MAX_COLUMNS], int n) {
  cy_bench_task *grown = realloc(r->out->list, (size_t)(r->out->n + 1) * sizeof *grown);
  if (!grown)
    return fail(r, "out of memory");
  r->out->list = grown;
  cy_bench_task *task = &grown[r->out->n++];
  *task = (cy_bench_task){.threads = {1}, .n_threads = 1, .line = r->line};
  for (int i = 0; i < n; i++)
    if (*cells[i] && columns[places[i]].read(r, task, cells[i]))
      return -1;
  if (!task->model)
    return fail(r, "the column 'model' is empty");
  if (!*task->name)
    cy_bench_model_name(task->model, task->name, sizeof task->name);
  return 0;
}

static bool says_nothing(const char *line) { return *line == '#' || strspn(line, " \t\r") == strcspn(line, "\n"); }

static int records_read(reader *r, char *at) {
  int places[MAX_COLUMNS], n_columns = -1;
  for (r->line = 1; *at; r->line++) {
    char *cells[MAX_COLUMNS];
    if (says_nothing(at)) {
      at += strcspn(at, "\n");
      at += *at != 0;
      continue;
    }
    if (n_columns < 0) {
      n_columns = heading_read(r, &at, places);
      if (n_columns < 0)
        return -1;
      continue;
    }
    int line = r->line, n = record_next(r, &at, cells);
    if (n < 0)
      return -1;
    if (n != n_columns)
      return fail(r, "expected %d cells, as in the first line, found %d", n_columns, n);
    int end = r->line;
    r->line = line;
    if (task_read(r, cells, places, n))
      return -1;
    r->line = end;
  }
  return r->out->n ? 0 : fail(r, "no task: the first line names the columns, each further one is a task");
}

int cy_bench_tasks_read(const char *path, cy_bench_tasks *out, char error[CY_BENCH_ERROR]) {
  reader r = {.path = path, .out = out, .error = error, .line = 0};
  char *text = NULL;
  size_t room = 0;
  ssize_t n = -1;
  *out = (cy_bench_tasks){0};
  errno = 0;
  FILE *f = fopen(path, "re");
  if (f)
    n = getdelim(&text, &room, 0, f);
  int failed = !f || (n < 0 && errno);
  if (failed)
    snprintf(error, CY_BENCH_ERROR, "cannot read '%s': %s", path, strerror(errno));
  if (f)
    fclose(f);
  if (n < 0 && text)
    *text = 0;
  if (!keep(out, text) && !failed)
    failed = fail(&r, "out of memory");
  if (!failed && n >= 0 && strlen(text) != (size_t)n)
    failed = fail(&r, "this is no text");
  return failed ? -1 : records_read(&r, text);
}

void cy_bench_tasks_free(cy_bench_tasks *tasks) {
  for (int i = 0; i < tasks->n_texts; i++)
    free(tasks->texts[i]);
  free(tasks->texts);
  free(tasks->list);
  *tasks = (cy_bench_tasks){0};
}
