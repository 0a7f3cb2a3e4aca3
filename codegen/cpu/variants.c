/* SPDX-License-Identifier: Apache-2.0 */
/* variants.c - candidates that do what an algorithm does in another way: which of variants.def a layer has, and what they change.
 *
 * In: an algorithm's candidate, its descriptor and generator. Out: further candidates; a cy_cg that plans by the chosen one.
 * Variants are for --tune to measure: estimates do not tell them well enough to choose one. A variant is a candidate if the plan
 * that it makes differs in words from those before it.
 */
#include "variants.h"

#include <string.h>

static const double IDLE = 1.1;  /* a tile that takes so many times as long by its idle rows and columns is not tried */
enum { NO_COLUMN = -1, NO_FORM = -1, PLAN_TEXT = 160 };

typedef struct variant {
  unsigned kinds, registers;
  const char *name[CY_BASES]; /* of each algorithm's candidate */
  cy_tile tile;
  int form;   /* off */
  int column; /* of cy_cpu_model, in bytes from its beginning, is .. */
  double value;
} variant;

/* "direct-8x3" */
#define NAMES(name) {"plain-" name, "direct-" name, "winograd-" name, "depthwise-" name}
static const char *const bases[CY_BASES] = {"plain", "direct", "winograd", "depthwise"};

#define COLUMN_AT(column) ((int)offsetof(cy_cpu_model, column))
static const variant all[] = {
#define TILE(kinds, registers, mr, nv) {kinds, registers, NAMES(#mr "x" #nv), {mr, nv}, NO_FORM, NO_COLUMN, 0},
#define SET(kinds, name, column, value, what) {kinds, 0, NAMES(name), {0, 0}, NO_FORM, COLUMN_AT(column), value},
#define OFF(kinds, name, form, what) {kinds, 0, NAMES(name), {0, 0}, CY_FORM_##form, NO_COLUMN, 0},
#include "variants.def"
};
enum { COUNT = sizeof all / sizeof *all };

static void take(cy_cg *cg, const variant *v) {
  if (v->tile.mr) {
    cg->tile_rows = v->tile.mr;
    cg->tile_vectors = v->tile.nv;
  }
  if (v->form != NO_FORM)
    cg->forms_off |= 1u << v->form;
  if (v->column != NO_COLUMN)
    memcpy((char *)&cg->model + v->column, &v->value, sizeof v->value);
}

/* Times the cycles of the usual plan; 0: it is not tried. */
static double share_of(const cy_cg *cg, const cy_variants *v, const variant *x) {
  if (!x->tile.mr)
    return 1;
  unsigned registers = cg->registers == 32 ? 32 : 16;
  if (x->registers != registers || v->rows <= 1 || !v->n || x->tile.mr > v->rows ||
      (x->tile.nv > 1 && (x->tile.nv - 1) * cg->W >= v->n) || (x->tile.mr == v->tile.mr && x->tile.nv == v->tile.nv))
    return 0;
  double share = cy_tile_cycles(cg, x->tile, v->rows, v->n) / cy_tile_cycles(cg, v->tile, v->rows, v->n);
  return share <= IDLE ? share : 0;
}

/* The plan in words. */
static const char *plan_text(const cy_cg *cg, const cy_variants *v, cy_arena *arena) {
  char text[PLAN_TEXT];
  v->by->describe(v->by->plan(cg, v->desc, arena), text, sizeof text);
  return cy_arena_printf(arena, "%s: %s", v->by->text ? v->by->text : "", text);
}

static bool is_new(const char *const *texts, int n, const char *text) {
  for (int i = 0; i < n; i++)
    if (!strcmp(texts[i], text))
      return false;
  return true;
}

void cy_variants_add(const cy_cg *cg, const cy_variants *v, cy_candidates *c) {
  cy_arena *plans = cy_arena_create();
  const char *texts[COUNT + 1] = {plan_text(cg, v, plans)};
  int n = 1, base = 0;
  while (base < c->n && strcmp(c->of[base].name, bases[v->base]))
    base++;
  for (const variant *x = all; x < all + COUNT && base < c->n; x++) {
    double share = x->kinds & v->kinds ? share_of(cg, v, x) : 0;
    if (share <= 0)
      continue;
    cy_cg with = *cg;
    take(&with, x);
    texts[n] = plan_text(&with, v, plans);
    if (!is_new(texts, n, texts[n]))
      continue;
    n++;
    cy_candidate one = c->of[base];
    one.name = x->name[v->base];
    one.cycles *= share;
    one.margin = CY_IF_ASKED;
    cy_candidates_add(c, one);
  }
  cy_arena_destroy(plans);
}

void cy_variant_take(cy_cg *cg, const cy_candidates *c) {
  for (const variant *x = all; c && c->chosen >= 0 && x < all + COUNT; x++)
    for (int base = 0; base < CY_BASES; base++)
      if (c->of[c->chosen].name == x->name[base]) {
        take(cg, x);
        return;
      }
}
