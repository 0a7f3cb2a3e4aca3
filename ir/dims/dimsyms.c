/* SPDX-License-Identifier: Apache-2.0 */
/* dimsyms.c - the symbols that dims are made of: their table and their names.
 *
 * In: a name, a kind. Out: a symbol; its entry, which may be changed. Of a name that is taken, or none, one is made up; a
 * name that the model gives goes before one that was made up.
 */
#include "dims_int.h"

uint32_t cy_sym_count(const cy_graph *g) { return g->syms.count; }

cy_sym_info *cy_sym_of(const cy_graph *g, cy_sym s) {
  if (s == 0 || s > g->syms.count)
    cy_bug("symbol %u of %u", s, g->syms.count);
  return cy_chunks_at(&g->syms, s);
}

/* The slot that says which symbol a string names. */
static uint32_t *sym_slot(cy_graph *g, cy_str name) {
  if (name >= g->sym_of_str_size) {
    uint32_t size = g->strs.count * 2 + 64;
    uint32_t *grown = CY_NEW_ARRAY(g->arena, uint32_t, size);
    if (g->sym_of_str_size)
      memcpy(grown, g->sym_of_str, sizeof *grown * g->sym_of_str_size);
    g->sym_of_str = grown;
    g->sym_of_str_size = size;
  }
  return &g->sym_of_str[name];
}

static cy_str fresh_name(cy_graph *g, cy_sym id) {
  char text[48];
  for (uint32_t n = id;; n++) {
    snprintf(text, sizeof text, "s%u", n);
    cy_str name = cy_intern(g, text);
    if (!*sym_slot(g, name))
      return name;
  }
}

cy_sym cy_sym_new(cy_graph *g, const char *name, cy_sym_kind kind) {
  cy_sym s = cy_chunks_add(&g->syms, g->arena);
  cy_str str = name && *name ? cy_intern(g, name) : 0;
  if (!str || *sym_slot(g, str))
    str = fresh_name(g, s);
  *sym_slot(g, str) = s;
  bool counts = kind == CY_SYM_INPUT || kind == CY_SYM_COUNT || kind == CY_SYM_ROOM;
  *cy_sym_of(g, s) = (cy_sym_info){.name = str, .kind = kind, .min = counts ? 0 : INT64_MIN, .max = INT64_MAX};
  return s;
}

cy_sym cy_sym_find(const cy_graph *g, const char *name, size_t len) {
  cy_str str = cy_intern_n((cy_graph *)g, name, len);
  return str < g->sym_of_str_size ? g->sym_of_str[str] : 0;
}

cy_sym cy_sym_by_name(cy_graph *g, const char *name) {
  cy_sym s = cy_sym_find(g, name, strlen(name));
  if (s && cy_sym_of(g, s)->kind != CY_SYM_INPUT) { /* a made-up name was taken: the model's own comes first */
    *sym_slot(g, cy_sym_of(g, s)->name) = 0;
    cy_sym t = cy_sym_new(g, name, CY_SYM_INPUT);
    cy_sym_of(g, s)->name = fresh_name(g, s);
    *sym_slot(g, cy_sym_of(g, s)->name) = s;
    return t;
  }
  return s ? s : cy_sym_new(g, name, CY_SYM_INPUT);
}
