/* SPDX-License-Identifier: Apache-2.0 */
/* tune.c - --tune: measures the candidates of a model's layers that its file does not know, and takes the fastest.
 *
 * In: a session with a model. Out: choices, and the file, which is written after each layer.
 *
 *   1. plan      the model as far as code generation lists the candidates of layers
 *   2. prune     candidates whose estimate is far from the best one's; a layer with one left is settled
 *   3. measure   the layers that take most first, each as a library of its own, equal layers once (tune_measure.c)
 *   4. judge     the fastest is taken if it wins by more than the noise, else the one that estimates prefer
 *
 * Layouts are chosen behind that, over the whole graph, with the measured times (layer_cost.c).
 */
#define _GNU_SOURCE
#include "tune.h"

#include "choices.h"
#include "cytoc.h"
#include "ir/clock.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* So many times the best estimate is not measured. */
static const double PRUNED = 3;
/* What wins by less may lose the next time: a part of the median, and of the distance of quartiles, which is about two
 * standard errors of the difference of two medians of 15. */
static const double NOISE_SHARE = 0.02, NOISE_SPREAD = 0.7;

typedef struct tuned_layer {
  cy_candidates c;
  double weight; /* estimated cycles of a run */
} tuned_layer;

typedef struct tuning {
  cytoc_session *s;
  cy_choices *choices;
  tune_file file;
  tune_clock clock;
  tuned_layer *layer;                    /* to be measured */
  int n, known, open, measured, changed; /* open: with sizes that are not fixed, or of types that cannot be cut out */
} tuning;

/* ---- which layers ---- */

static double best_estimate(const cy_candidates *c) {
  double best = 0;
  for (int i = 0; i < c->n; i++)
    if (!c->of[i].refused && (best <= 0 || c->of[i].cycles < best))
      best = c->of[i].cycles;
  return best;
}

static bool is_worth_it(const cy_candidates *c, int i) {
  return !c->of[i].refused && (i == c->chosen || c->of[i].cycles <= PRUNED * best_estimate(c));
}

static int contenders_of(const cy_candidates *c) {
  int n = 0;
  for (int i = 0; i < c->n; i++)
    n += is_worth_it(c, i);
  return n;
}

static bool is_known(const cy_choice *x, const cy_candidates *c) {
  for (int i = 0, k; x && i < c->n; i++) {
    for (k = 0; k < x->n && strcmp(x->of[k].name, c->of[i].name); k++)
      ;
    if (is_worth_it(c, i) && k == x->n)
      return false;
  }
  return x;
}

static void note_layer(void *ctx, const cy_candidates *c, uint32_t launches) {
  tuning *t = ctx;
  if (contenders_of(c) < 2 || c->chosen < 0)
    return;
  double weight = c->of[c->chosen].cycles * (launches ? launches : 1);
  for (int i = 0; i < t->n; i++)
    if (!strcmp(t->layer[i].c.layer, c->layer)) {
      t->layer[i].weight += weight;
      return;
    }
  bool known = is_known(cytoc_choices_find(t->choices, c->layer), c), open = !cytoc_tune_layer_known(c->layer);
  t->known += known;
  t->open += open && !known;
  if (known || open)
    return;
  t->layer = realloc(t->layer, ((size_t)t->n + 1) * sizeof *t->layer);
  if (!t->layer)
    cy_no_memory();
  t->layer[t->n++] = (tuned_layer){*c, weight};
}

static int by_weight(const void *a, const void *b) {
  const tuned_layer *x = a, *y = b;
  return x->weight != y->weight ? (x->weight < y->weight ? 1 : -1) : strcmp(x->c.layer, y->c.layer);
}

/* What is wrong with the model is reported when it is compiled. */
static void plan(tuning *t) {
  cytoc_options o = *t->s->o;
  o.tune = o.explain = o.stats_file = o.dump = o.stop_after = o.passes = o.save_temps = NULL;
  o.tune_seconds = 0;
  if (o.accuracy) /* what it chooses by is of layers in f32 */
    o.accuracy = o.labels = o.calibrate = o.calibration = o.int8_skip = NULL;
  o.emit = "so";
  o.output = "layers.so"; /* nothing is written */
  o.verbose = false;
  cy_choices none = {0}; /* candidates that must be asked for are listed, too */
  cytoc_session s = *t->s;
  s.o = &o;
  s.diag = cy_diag_create();
  s.report = (cytoc_report){.progress = t->s->report.progress, .progress_ctx = t->s->report.progress_ctx};
  s.written = NULL;
  s.choices = &none;
  s.visit = note_layer;
  s.visit_ctx = t;
  s.plan_only = true;
  if (cytoc_session_compile(&s))
    t->n = 0;
  free(s.written);
  cy_diag_destroy(s.diag);
  qsort(t->layer, (size_t)t->n, sizeof *t->layer, by_weight);
}

/* ---- measuring ---- */

static double larger(double a, double b) { return a > b ? a : b; }

/* The winner; NULL: nothing could be compared. */
static const tune_contender *judge(const tune_contender *list, int n, const char *preferred) {
  const tune_contender *best = NULL, *base = NULL;
  int measured = 0;
  for (const tune_contender *c = list; c < list + n; c++) {
    measured += c->median > 0;
    if (c->median > 0 && (!best || c->median < best->median))
      best = c;
    if (c->median > 0 && !strcmp(c->name, preferred))
      base = c;
  }
  if (measured < 2 || !base)
    return NULL;
  double noise = larger(NOISE_SHARE * base->median, NOISE_SPREAD * larger(base->spread, best->spread));
  return base->median - best->median > noise ? best : base;
}

/* What is ahead by noise alone counts as much as the winner, so that it decides no layout either. */
static double settled_cycles(const tune_contender *c, const tune_contender *winner) {
  return c->median > 0 && winner ? larger(c->median, winner->median) : c->median;
}

/* 0; -1: it is over. */
static int tune_layer(tuning *t, const tuned_layer *l) {
  tune_contender list[CY_MAX_CANDIDATES] = {0};
  const char *preferred = l->c.of[l->c.chosen].name;
  int n = 0;
  for (int i = 0; i < l->c.n; i++)
    if (is_worth_it(&l->c, i))
      list[n++].name = l->c.of[i].name;
  if (cytoc_tune_measure(t->s, &t->clock, l->c.layer, list, n))
    return -1;
  const tune_contender *winner = judge(list, n, preferred);
  cy_choice x = {.layer = l->c.layer, .candidate = winner ? winner->name : "-", .n = n};
  for (int i = 0; i < n; i++)
    x.of[i] = (cy_measured){list[i].name, settled_cycles(&list[i], winner)};
  cytoc_choices_put(t->choices, &x);
  t->measured++;
  t->changed += winner && strcmp(winner->name, preferred);
  return 0;
}

/* SIGINT ends tuning, not the compilation: it waits meanwhile, and is forgotten. */
static int tune_layers(tuning *t) {
  sigset_t interrupt, before;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  sigprocmask(SIG_BLOCK, &interrupt, &before);
  int status = 0;
  for (int i = 0; i < t->n && !status && !cytoc_tune_over(&t->clock); i++) {
    cytoc_report_progress(&t->s->report, "tune", i, t->n);
    if (tune_layer(t, &t->layer[i]))
      break;
    status = cytoc_tune_file_write(&t->file, t->choices, t->s->diag);
  }
  while (sigtimedwait(&interrupt, NULL, &(struct timespec){0}) == SIGINT)
    ;
  sigprocmask(SIG_SETMASK, &before, NULL);
  return status;
}

static void tell(const tuning *t) {
  cy_location where = {.file = t->file.path, .node_index = -1};
  if (t->measured < t->n)
    cy_diag_add(t->s->diag, CY_WARNING, &where,
                "tuning ended with %d of %d layers measured; the others go by estimates until --tune is run again",
                t->measured, t->n);
  else if (t->n)
    cy_diag_add(t->s->diag, CY_NOTE, &where, "%d layers measured, %d known before; %d are faster than by estimates",
                t->measured, t->known, t->changed);
  if (!t->n && !t->known && !t->open)
    cy_diag_add(t->s->diag, CY_NOTE, NULL, "--tune: no layer has several candidates that are worth measuring");
  if (t->open)
    cy_diag_add(t->s->diag, CY_WARNING, &where,
                "%d layers go by estimates: their sizes are not fixed (--dim), or they cannot be run alone", t->open);
}

/* ---- the target ---- */

static int refuse(tuning *t, const char *machine, const char *why) {
  cy_diag_add(
      t->s->diag, CY_ERROR, NULL,
      "--tune measures on this machine, which is '%s' and does not run code for '%s': %s; tune on a machine that "
      "does, and name its file here",
      cytoc_native_target(), machine, why);
  cy_diag_blame(t->s->diag, CY_CAUSE_OPTION);
  return -1;
}

/* What the file is for: the CPU by its name. */
static int find_target(tuning *t) {
  const char *asked = t->s->o->target;
  cy_machine *m = cy_machine_open(asked, t->s->diag);
  if (!m) {
    cy_diag_blame(t->s->diag, CY_CAUSE_OPTION);
    return -1;
  }
  bool device = cy_machine_caps(m)->device;
  t->file = (tune_file){.cpu = strcmp(asked, "native") ? asked : cytoc_native_target(), .version = cytoc_build_id()};
  cy_machine_close(m);
  return device ? refuse(t, asked, "it is a device, whose kernels have no candidates") : 0;
}

static int measure(tuning *t) {
  char *why = t->n ? cytoc_tune_refused(t->s) : NULL;
  int status = why ? refuse(t, t->s->o->target, why) : t->n ? tune_layers(t) : 0;
  if (!status)
    tell(t);
  free(why);
  return status;
}

int cytoc_tune(cytoc_session *s, cy_choices *out) {
  tuning t = {.s = s, .choices = out};
  t.clock.end_ms = s->o->tune_seconds ? cy_clock_ms() + s->o->tune_seconds * 1e3 : 0;
  t.clock.cycles_ns = cy_clock_rate() / 1e9;
  int status = find_target(&t) || cytoc_tune_file_open(&t.file, s->o->tune, s->diag) ||
                       cytoc_tune_file_read(&t.file, out, s->diag)
                   ? -1
                   : 0;
  if (!status) {
    cytoc_report_stage(&s->report, "tune");
    plan(&t);
    status = measure(&t);
  }
  free(t.layer);
  free(t.file.path);
  return status;
}
