/* SPDX-License-Identifier: Apache-2.0 */
/* diag.c - collects what is wrong with a model and prints it.
 *
 * In: severity, location, text. Out: lines such as
 *   model.onnx: error: graph 'main': node 'Conv_3' (#3, Conv): input 'w': expected 4 dims, found f32[64,3]
 * The same line is printed once. Diagnostics are never printed as they come, so that all unsupported ops can be
 * reported in one go.
 */
#include "ir_int.h"

#include <stdarg.h>

#define SHOWN 20

typedef struct entry {
  cy_diagnostic d;
  uint32_t hash;
} entry;

struct cy_diag_sink {
  cy_arena *arena;
  entry *entries;
  size_t n, capacity;
  int errors;
};

cy_diag_sink *cy_diag_create(void) {
  cy_arena *a = cy_arena_create();
  cy_diag_sink *sink = CY_NEW(a, cy_diag_sink);
  sink->arena = a;
  return sink;
}

void cy_diag_destroy(cy_diag_sink *sink) {
  if (sink)
    cy_arena_destroy(sink->arena);
}

static const char *const severity_words[] = {"error", "warning", "note"};

static bool given(const char *text) { return text && *text; }

static char *location_text(cy_arena *a, const cy_location *w) {
  char *s = cy_arena_printf(a, "%s", "");
  if (!w)
    return s;
  if (given(w->graph))
    s = cy_arena_printf(a, "%sgraph '%s': ", s, w->graph);
  if (given(w->node) || given(w->op)) {
    s = given(w->node) ? cy_arena_printf(a, "%snode '%s' (", s, w->node) : cy_arena_printf(a, "%snode (", s);
    if (w->node_index >= 0)
      s = cy_arena_printf(a, "%s#%lld%s", s, (long long)w->node_index, given(w->op) ? ", " : "");
    s = cy_arena_printf(a, "%s%s): ", s, given(w->op) ? w->op : "");
  }
  if (given(w->item))
    s = cy_arena_printf(a, "%s%s: ", s, w->item);
  return s;
}

static const char *copy(cy_arena *a, const char *text) { return given(text) ? cy_arena_printf(a, "%s", text) : ""; }

static cy_location location_copy(cy_arena *a, const cy_location *w) {
  static const cy_location nowhere = {.node_index = -1};
  w = w ? w : &nowhere;
  return (cy_location){.file = given(w->file) ? copy(a, w->file) : "cytoc",
                       .graph = copy(a, w->graph),
                       .node = copy(a, w->node),
                       .op = copy(a, w->op),
                       .node_index = w->node_index,
                       .item = copy(a, w->item)};
}

/* The line has the severity in it, which may change. */
static void spell(cy_arena *a, entry *e) {
  cy_diagnostic *d = &e->d;
  d->line = cy_arena_printf(a, "%s: %s: %s%s", d->where.file, severity_words[d->severity], location_text(a, &d->where),
                            d->text);
  e->hash = cy_hash_bytes(0, d->line, strlen(d->line));
}

static bool listed(const cy_diag_sink *sink, const entry *e) {
  for (size_t i = 0; i < sink->n; i++)
    if (sink->entries[i].hash == e->hash && strcmp(sink->entries[i].d.line, e->d.line) == 0)
      return true;
  return false;
}

void cy_diag_add(cy_diag_sink *sink, cy_severity severity, const cy_location *where, const char *format, ...) {
  va_list args;
  va_start(args, format);
  entry e = {.d = {severity, .where = location_copy(sink->arena, where)}};
  e.d.text = cy_arena_vprintf(sink->arena, format, args);
  va_end(args);
  spell(sink->arena, &e);
  if (listed(sink, &e))
    return;
  if (sink->n == sink->capacity) {
    size_t capacity = sink->capacity ? sink->capacity * 2 : 16;
    entry *grown = CY_NEW_ARRAY(sink->arena, entry, capacity);
    if (sink->n)
      memcpy(grown, sink->entries, sink->n * sizeof *grown);
    sink->entries = grown;
    sink->capacity = capacity;
  }
  sink->entries[sink->n++] = e;
  sink->errors += severity == CY_ERROR;
}

void cy_diag_blame(cy_diag_sink *sink, cy_cause cause) {
  if (sink->n)
    sink->entries[sink->n - 1].d.cause = cause;
}

const cy_diagnostic *cy_diag_at(const cy_diag_sink *sink, size_t i) { return &sink->entries[i].d; }

int cy_diag_errors(const cy_diag_sink *sink) { return sink->errors; }

size_t cy_diag_count(const cy_diag_sink *sink) { return sink->n; }

void cy_diag_soften(cy_diag_sink *sink, size_t from, size_t to) {
  for (size_t i = from; i < to; i++) {
    cy_diagnostic *d = &sink->entries[i].d;
    if (d->severity != CY_ERROR)
      continue;
    sink->errors--;
    d->severity = CY_WARNING;
    spell(sink->arena, &sink->entries[i]);
  }
}

void cy_diag_forget(cy_diag_sink *sink, size_t from) {
  for (size_t i = from; i < sink->n; i++)
    sink->errors -= sink->entries[i].d.severity == CY_ERROR;
  sink->n = from < sink->n ? from : sink->n;
}

void cy_diag_each(const cy_diag_sink *sink, void (*print)(void *ctx, const char *line), void *ctx) {
  char more[60];
  size_t shown = sink->n < SHOWN ? sink->n : SHOWN, errors = (size_t)sink->errors < shown ? (size_t)sink->errors : shown;
  size_t others = shown - errors; /* errors are shown first of all, but in their places */
  for (size_t i = 0; i < sink->n; i++) {
    size_t *left = sink->entries[i].d.severity == CY_ERROR ? &errors : &others;
    if (*left) {
      --*left;
      print(ctx, sink->entries[i].d.line);
    }
  }
  snprintf(more, sizeof more, "cytoc: %zu more not shown", sink->n - shown);
  if (sink->n > shown)
    print(ctx, more);
}

static void print_line(void *out, const char *line) { fprintf(out, "%s\n", line); }

void cy_diag_print(const cy_diag_sink *sink, FILE *out) { cy_diag_each(sink, print_line, out); }
