/* SPDX-License-Identifier: Apache-2.0 */
/* choices.c - files of choices, of --choice and --tune: reads and writes them.
 *
 * In: a text of lines, a layer, a candidate and measured times with tabs between them. Out: a list, or diagnostics that
 * name the line; and the other way round.
 */
#define _GNU_SOURCE
#include "choices.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int complain(cy_diag_sink *diag, const char *path, int line, const char *what) {
  cy_location where = {.file = path, .node_index = -1};
  cy_diag_add(diag, CY_ERROR, &where, "line %d: %s", line, what);
  cy_diag_blame(diag, CY_CAUSE_FILE);
  return -1;
}

static char *copied(const char *text) {
  char *copy = strdup(text);
  if (!copy)
    cy_no_memory();
  return copy;
}

static void free_texts(cy_choice *x) {
  free((char *)x->layer);
  free((char *)x->candidate);
  for (int i = 0; i < x->n; i++)
    free((char *)x->of[i].name);
}

cy_choice *cytoc_choices_find(const cy_choices *c, const char *layer) {
  for (int i = 0; i < c->n; i++)
    if (!strcmp(c->list[i].layer, layer))
      return &c->list[i];
  return NULL;
}

static cy_choice *append(cy_choices *c) {
  c->list = realloc(c->list, ((size_t)c->n + 1) * sizeof *c->list);
  if (!c->list)
    cy_no_memory();
  return &c->list[c->n++];
}

void cytoc_choices_put(cy_choices *c, const cy_choice *x) {
  cy_choice copy = *x, *at = strcmp(x->layer, "*") ? cytoc_choices_find(c, x->layer) : NULL;
  copy.layer = copied(x->layer);
  copy.candidate = copied(x->candidate);
  for (int i = 0; i < x->n; i++)
    copy.of[i].name = copied(x->of[i].name);
  if (at)
    free_texts(at);
  *(at ? at : append(c)) = copy;
}

/* "direct=264.6 planar=-"; false: it is something else. */
static bool read_times(char *text, cy_choice *out) {
  char *rest = NULL;
  for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    char *sign = strchr(word, '='), *end = NULL;
    if (!sign || sign == word || out->n == CY_MAX_CANDIDATES)
      return false;
    double kilocycles = strcmp(sign + 1, "-") ? strtod(sign + 1, &end) : 0;
    if (end && (end == sign + 1 || *end || !(kilocycles > 0) || !isfinite(kilocycles)))
      return false;
    *sign = 0;
    out->of[out->n++] = (cy_measured){word, kilocycles * 1e3};
  }
  return out->n > 0;
}

const char *cytoc_choices_add(cy_choices *c, char *text, int line) {
  text[strcspn(text, "\r\n")] = 0;
  if (!*text || *text == '#')
    return NULL;
  char *tab = strchr(text, '\t'), *times = tab ? strchr(tab + 1, '\t') : NULL;
  if (!tab || tab == text || !tab[1] || times == tab + 1)
    return "expected a layer, a tab and the name of a candidate, as --explain=costs prints them";
  *tab = 0;
  if (times)
    *times = 0;
  cy_choice one = {.layer = text, .candidate = tab + 1, .line = line, .n = 0};
  if (times && !read_times(times + 1, &one))
    return "expected measured times, 'NAME=KCYCLES ..', behind the second tab";
  if (strcmp(text, "*") && cytoc_choices_find(c, text))
    return "this layer has a candidate already";
  cytoc_choices_put(c, &one);
  return NULL;
}

void cytoc_choices_write(const cy_choices *c, FILE *out) {
  for (const cy_choice *x = c->list; x < c->list + c->n; x++) {
    fprintf(out, "%s\t%s", x->layer, x->candidate);
    for (int i = 0; i < x->n; i++)
      if (x->of[i].cycles > 0)
        fprintf(out, "%c%s=%.1f", i ? ' ' : '\t', x->of[i].name, x->of[i].cycles / 1e3);
      else
        fprintf(out, "%c%s=-", i ? ' ' : '\t', x->of[i].name);
    fputc('\n', out);
  }
}

int cytoc_choices_read(const char *path, cy_choices *out, cy_diag_sink *diag) {
  *out = (cy_choices){0};
  FILE *f = fopen(path, "r");
  if (!f) {
    cy_location where = {.file = path, .node_index = -1};
    cy_diag_add(diag, CY_ERROR, &where, "cannot read the file: %s", strerror(errno));
    cy_diag_blame(diag, CY_CAUSE_FILE);
    return -1;
  }
  char *text = NULL;
  size_t room = 0;
  int line = 0, status = 0;
  while (getline(&text, &room, f) >= 0) {
    const char *wrong = cytoc_choices_add(out, text, ++line);
    if (wrong)
      status = complain(diag, path, line, wrong);
  }
  free(text);
  fclose(f);
  return status;
}

void cytoc_choices_check(const cy_choices *c, const char *path, cy_diag_sink *diag) {
  cy_location where = {.file = path, .node_index = -1};
  for (int i = 0; i < c->n; i++)
    if (!c->list[i].found)
      cy_diag_add(diag, CY_WARNING, &where, "line %d: no layer '%s' that '%s' could compute; see --explain=costs",
                  c->list[i].line, c->list[i].layer, c->list[i].candidate);
}

void cytoc_choices_free(cy_choices *c) {
  for (int i = 0; i < c->n; i++)
    free_texts(&c->list[i]);
  free(c->list);
  *c = (cy_choices){0};
}
