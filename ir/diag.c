/* diag.c - collects what is wrong with a model and prints it; cy_bug() for what is wrong with cytoc,
 * cy_no_memory() for neither.
 *
 * In: severity, location, text. Out: lines such as
 *   model.onnx: error: graph 'main': node 'Conv_3' (#3, Conv): input 'w': expected 4 dims, found f32[64,3]
 * The same line is printed once. Diagnostics are never printed as they come, so that all unsupported ops can be
 * reported in one go.
 */
#include "ir_int.h"

#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#define SHOWN 20

const char *cy_bug_context;
void (*cy_at_sudden_end)(void);

typedef struct entry {
  cy_severity severity;
  uint32_t hash;
  const char *file, *text; /* text: location and message */
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

void cy_diag_add(cy_diag_sink *sink, cy_severity severity, const cy_location *where, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *text = cy_arena_vprintf(sink->arena, format, args);
  va_end(args);
  char *file = cy_arena_printf(sink->arena, "%s", where && given(where->file) ? where->file : "cytoc");
  char *line = cy_arena_printf(sink->arena, "%s%s", location_text(sink->arena, where), text);
  uint32_t hash = cy_hash_bytes(cy_hash_bytes((uint32_t)severity, file, strlen(file)), line, strlen(line));
  for (size_t i = 0; i < sink->n; i++)
    if (sink->entries[i].hash == hash && sink->entries[i].severity == severity &&
        strcmp(sink->entries[i].text, line) == 0 && strcmp(sink->entries[i].file, file) == 0)
      return;
  if (sink->n == sink->capacity) {
    size_t capacity = sink->capacity ? sink->capacity * 2 : 16;
    entry *grown = CY_NEW_ARRAY(sink->arena, entry, capacity);
    if (sink->n)
      memcpy(grown, sink->entries, sink->n * sizeof *grown);
    sink->entries = grown;
    sink->capacity = capacity;
  }
  sink->entries[sink->n++] = (entry){severity, hash, file, line};
  sink->errors += severity == CY_ERROR;
}

int cy_diag_errors(const cy_diag_sink *sink) { return sink->errors; }

size_t cy_diag_count(const cy_diag_sink *sink) { return sink->n; }

void cy_diag_soften(cy_diag_sink *sink, size_t from, size_t to) {
  for (size_t i = from; i < to; i++) {
    sink->errors -= sink->entries[i].severity == CY_ERROR;
    if (sink->entries[i].severity == CY_ERROR)
      sink->entries[i].severity = CY_WARNING;
  }
}

void cy_diag_forget(cy_diag_sink *sink, size_t from) {
  for (size_t i = from; i < sink->n; i++)
    sink->errors -= sink->entries[i].severity == CY_ERROR;
  sink->n = from < sink->n ? from : sink->n;
}

void cy_diag_print(const cy_diag_sink *sink, FILE *out) {
  size_t shown = sink->n < SHOWN ? sink->n : SHOWN;
  for (size_t i = 0; i < shown; i++)
    fprintf(out, "%s: %s: %s\n", sink->entries[i].file, severity_words[sink->entries[i].severity], sink->entries[i].text);
  if (sink->n > shown)
    fprintf(out, "cytoc: %zu more not shown\n", sink->n - shown);
}

_Noreturn void cy_bug(const char *format, ...) {
  va_list args;
  fflush(stdout);
  fprintf(stderr, "cytoc: bug%s%s: ", cy_bug_context ? " in " : "", cy_bug_context ? cy_bug_context : "");
  va_start(args, format);
  vfprintf(stderr, format, args);
  va_end(args);
  fprintf(stderr, "\nThis is a mistake in cytoc, not in the model; please report it with the model.\n");
  if (cy_at_sudden_end)
    cy_at_sudden_end();
  abort();
}

/* Nothing here may allocate. */
_Noreturn void cy_no_memory(void) {
  static const char text[] = "cytoc: error: out of memory\n";
  ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
  (void)written;
  if (cy_at_sudden_end)
    cy_at_sudden_end();
  _exit(1);
}
