/* SPDX-License-Identifier: Apache-2.0 */
/* int_order.c - in which order the columns of a panel go through k, and what they leave out.
 *
 * Comes in: a cy_int_gemm_order, which packing and code both make of the descriptor. Goes out: the runs of a panel,
 * taps side by side in the copied input whose channels its weights hold one after the other, each run from a new group
 * of k on; for code, tables of them. Without row blocks all of k is one run, with row blocks a run is a row of the
 * kernel. Where channels become spatial positions (ir/pixel_shuffle.h), kernels are filled up with zeros, whole taps of
 * a residue: a panel leaves out those that all its residues have only zeros in. So panels are as narrow as leaves out most,
 * for which residues need not be multiples of them: columns of two residues go through the taps of both.
 */
#include "int_gemm_int.h"
#include "ir/ir.h"

#include <stdio.h>
#include <stdlib.h>

typedef cy_int_gemm_plan plan;

/* ---- runs ---- */

/* Lets `runs` have the taps of residue `part`, too. */
static void join_residue(const cy_int_gemm_order *o, int64_t part, cy_int_gemm_runs *runs) {
  cy_shuffle_taps t[3];
  for (int i = 2; i >= 0; part /= o->shuffle[i--].positions) {
    t[i] = cy_shuffle_taps_of(&o->shuffle[i], o->taps[i], part % o->shuffle[i].positions);
    if (!t[i].count)
      return;
  }
  for (int i = 0; i < 3; i++) {
    int64_t end = t[i].first + t[i].count, before = runs->first[i] + runs->count[i];
    bool none = !runs->count[i];
    runs->first[i] = none || t[i].first < runs->first[i] ? t[i].first : runs->first[i];
    runs->count[i] = (none || end > before ? end : before) - runs->first[i];
  }
}

cy_int_gemm_runs cy_int_gemm_runs_of(const cy_int_gemm_order *o, int64_t panel) {
  cy_int_gemm_runs r = {.count = {o->taps[0], o->taps[1], o->taps[2]}};
  if (cy_int_gemm_order_shuffles(o)) {
    int64_t members = o->n / (o->shuffle[0].positions * o->shuffle[1].positions * o->shuffle[2].positions),
            first = panel * o->nr;
    int64_t last = (first + o->nr < o->n ? first + o->nr : o->n) - 1;
    r = (cy_int_gemm_runs){.runs = 0};
    for (int64_t part = first / members; part <= last / members; part++)
      join_residue(o, part, &r);
  }
  r.runs = r.count[0] * r.count[1];
  r.taps = r.runs ? r.count[2] : 0;
  for (int i = 1; i >= 0 && !o->rows && r.count[i + 1] == o->taps[i + 1]; i--) { /* side by side, too */
    r.taps *= r.count[i];
    r.runs = i ? r.count[0] : 1;
  }
  r.runs = r.taps ? r.runs : 0;
  r.groups = cy_round_up(cy_ceil(r.taps * o->c, o->step), o->together);
  return r;
}

int64_t cy_int_gemm_run_tap(const cy_int_gemm_order *o, const cy_int_gemm_runs *r, int64_t run) {
  int64_t inner = r->runs < r->count[0] * r->count[1] ? 1 : r->count[o->rows ? 0 : 1];
  int64_t slow = run / inner, fast = run % inner;
  int64_t z = r->first[0] + (o->rows ? fast : slow), y = r->first[1] + (o->rows ? slow : fast);
  return (z * o->taps[1] + y) * o->taps[2] + r->first[2];
}

int64_t cy_int_gemm_groups_before(const cy_int_gemm_order *o, int64_t panel) {
  int64_t sum = 0;
  for (int64_t q = 0; q < panel; q++) {
    cy_int_gemm_runs r = cy_int_gemm_runs_of(o, q);
    sum += r.runs * r.groups;
  }
  return sum;
}

/* ---- the plan ---- */

/* Where a tile is but one vector wide, there is a load of a row for each product: on Zen 4 this costs 2 %, more where a
 * core multiplies twice in a cycle. */
static const double SINGLE_VECTOR = 1.1;

/* What all panels take for a row, their columns being nv vectors of W. */
static double order_cost(const cy_cg *cg, const cy_int_gemm_order *order, unsigned nv) {
  cy_int_gemm_order o = *order;
  double cost = 0;
  o.nr = (int64_t)nv * cg->W;
  for (int64_t q = 0; q < cy_ceil(o.n, o.nr); q++) {
    int64_t left = cy_ceil(o.n - q * o.nr, cg->W);
    cy_int_gemm_runs r = cy_int_gemm_runs_of(&o, q);
    cost += (double)(r.runs * r.groups * (left < nv ? left : nv));
  }
  return nv == 1 ? cost * SINGLE_VECTOR : cost;
}

static cy_int_gemm_order order_of(const plan *p, bool rows) {
  cy_int_gemm_order o = {.n = p->n,
                         .nr = p->nr,
                         .c = p->c,
                         .taps = {1, 1, p->taps},
                         .step = p->variant.step,
                         .together = p->variant.together,
                         .rows = rows};
  for (int i = 0; i < 3 && p->d->conv; i++)
    o.taps[i] = p->axis[i].count;
  return o;
}

static void shuffle_axes(const cy_int_gemm_desc *d, cy_int_gemm_order *o) {
  int missing = 3 - d->window.n_spatial;
  for (int i = 0; i < 3; i++)
    o->shuffle[i] = i < missing ? (cy_shuffle_fill){1, 0, 0} : d->shuffle[i - missing];
}

unsigned cy_int_gemm_order_vectors(const cy_cg *cg, const plan *p) {
  if (!cy_form_on(cg, CY_FORM_INT_ORDER) || !p->d->conv || !p->d->shuffle[0].positions || p->taps == 1 ||
      p->variant.bf16)
    return 0;
  cy_int_gemm_order o = order_of(p, p->variant.dot4 && !p->variant.amx);
  double min = order_cost(cg, &o, p->tile.nv) * 0.95;
  unsigned best = 0;
  shuffle_axes(p->d, &o);
  for (unsigned nv = p->tile.nv; nv > 0; nv--) {
    double cost = order_cost(cg, &o, nv);
    if (cost < min) {
      min = cost * 0.98;
      best = nv;
    }
  }
  return best;
}

void cy_int_gemm_order_plan(plan *p) {
  p->order = order_of(p, p->row_block);
  p->variant.shuffled &= !p->in_input || cy_csize_known(p->axis[1].in_stride);
  if (p->variant.shuffled)
    shuffle_axes(p->d, &p->order);
  if (p->n)
    p->groups_of_k = cy_int_gemm_groups_before(&p->order, cy_ceil(p->n, p->nr));
}

double cy_int_gemm_order_share(const cy_cg *cg, const plan *p) {
  cy_int_gemm_order all = order_of(p, p->row_block);
  return p->variant.shuffled ? order_cost(cg, &p->order, p->tile.nv) / order_cost(cg, &all, p->tile.nv) : 1;
}

/* ---- tables: of each panel four numbers, and those of one behind the last; of each run where it begins in a row ---- */

enum { GROUPS_BEFORE, FIRST_RUN, RUNS, RUN_GROUPS, PANEL_NUMBERS };

static int64_t place_of(const plan *p, int64_t tap) {
  const cy_int_gemm_order *o = &p->order;
  int64_t pitch = p->in_input ? cy_csize_known(p->axis[1].in_stride) : p->pitch, column = tap % o->taps[2];
  if (!p->row_block)
    return tap * p->c * (p->variant.dot4 ? 1 : 2);
  int64_t y = tap / o->taps[2] % o->taps[1], z = tap / o->taps[2] / o->taps[1];
  return (y * o->taps[0] + z) * pitch + column * p->c;
}

static V constant_table(cy_cg *cg, const plan *p, const char *what, V *number, int64_t n) {
  char name[160];
  snprintf(name, sizeof name, "%s_%s", p->name, what);
  return cy_shared_constant(cg, name, LLVMConstArray2(cg->i64, number, (uint64_t)n));
}

cy_int_gemm_tables cy_int_gemm_tables_of(cy_cg *cg, const plan *p) {
  const cy_int_gemm_order *o = &p->order;
  int64_t panels = cy_ceil(p->n, p->nr), runs = 0, before = 0;
  if (!p->variant.shuffled)
    return (cy_int_gemm_tables){NULL, NULL};
  V *panel = malloc((size_t)(panels + 1) * PANEL_NUMBERS * sizeof(V));
  V *run = malloc((size_t)(panels * o->taps[0] * o->taps[1] + 1) * sizeof(V));
  if (!panel || !run)
    cy_no_memory();
  for (int64_t q = 0; q <= panels; q++) {
    cy_int_gemm_runs r = q < panels ? cy_int_gemm_runs_of(o, q) : (cy_int_gemm_runs){.runs = 0};
    const int64_t numbers[PANEL_NUMBERS] = {before, runs, r.runs, r.groups};
    for (int i = 0; i < PANEL_NUMBERS; i++)
      panel[q * PANEL_NUMBERS + i] = cy_i64(cg, numbers[i]);
    for (int64_t i = 0; i < r.runs; i++)
      run[runs++] = cy_i64(cg, place_of(p, cy_int_gemm_run_tap(o, &r, i)));
    before += r.runs * r.groups;
  }
  cy_int_gemm_tables t = {constant_table(cg, p, "panels", panel, (panels + 1) * PANEL_NUMBERS), NULL};
  t.runs = constant_table(cg, p, "runs", run, runs);
  free(panel);
  free(run);
  return t;
}

cy_int_gemm_tables cy_int_gemm_tables_from(cy_cg *cg, const cy_int_gemm_tables *t, V panel) {
  return (cy_int_gemm_tables){cy_gep(cg, t->panels, cy_mulc(cg, panel, PANEL_NUMBERS * 8)), t->runs};
}

static V number_of(cy_cg *cg, const cy_int_gemm_tables *t, V panel, int which) {
  cy_int_gemm_tables at = cy_int_gemm_tables_from(cg, t, panel);
  return cy_load(cg, cg->i64, cy_gepc(cg, at.panels, which * 8), 8);
}

V cy_int_gemm_tables_before(cy_cg *cg, const cy_int_gemm_tables *t, V panel) {
  return number_of(cg, t, panel, GROUPS_BEFORE);
}

cy_int_gemm_depth cy_int_gemm_tables_depth(cy_cg *cg, const cy_int_gemm_tables *t, V panel) {
  return (cy_int_gemm_depth){.groups = number_of(cg, t, panel, RUN_GROUPS),
                             .runs = number_of(cg, t, panel, RUNS),
                             .places = cy_gep(cg, t->runs, cy_mulc(cg, number_of(cg, t, panel, FIRST_RUN), 8))};
}
