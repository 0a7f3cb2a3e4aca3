/* SPDX-License-Identifier: Apache-2.0 */
/* choices.c - reads the file of --choice.
 *
 * In: a text of lines, a layer and a candidate with a tab between them. Out: a list, or diagnostics that name the line.
 */
#define _GNU_SOURCE
#include "choices.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int complain(cy_diag_sink *diag, const char *path, int line, const char *what) {
  cy_location where = {.file = path, .node_index = -1};
  cy_diag_add(diag, CY_ERROR, &where, "line %d: %s", line, what);
  cy_diag_blame(diag, CY_CAUSE_FILE);
  return -1;
}

static void append(cy_choices *c, const char *layer, const char *candidate, int line) {
  c->list = realloc(c->list, ((size_t)c->n + 1) * sizeof *c->list);
  cy_choice one = {strdup(layer), strdup(candidate), line, false};
  if (!c->list || !one.layer || !one.candidate)
    cy_no_memory();
  c->list[c->n++] = one;
}

static int add_line(cy_choices *c, char *text, const char *path, int line, cy_diag_sink *diag) {
  text[strcspn(text, "\r\n")] = 0;
  if (!*text || *text == '#')
    return 0;
  char *tab = strchr(text, '\t');
  if (!tab || tab == text || !tab[1] || strchr(tab + 1, '\t'))
    return complain(diag, path, line,
                    "expected a layer, a tab and the name of a candidate, as --explain=costs prints them");
  *tab = 0;
  for (int i = 0; i < c->n; i++)
    if (!strcmp(c->list[i].layer, text) && strcmp(text, "*"))
      return complain(diag, path, line, "this layer has a candidate already");
  append(c, text, tab + 1, line);
  return 0;
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
  while (getline(&text, &room, f) >= 0)
    status |= add_line(out, text, path, ++line, diag);
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
  for (int i = 0; i < c->n; i++) {
    free((char *)c->list[i].layer);
    free((char *)c->list[i].candidate);
  }
  free(c->list);
  *c = (cy_choices){0};
}
