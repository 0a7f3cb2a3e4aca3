/* SPDX-License-Identifier: Apache-2.0 */
/* cytoc_budget.c - --accuracy: which precision every layer gets, so that the whole is as fast as a budget of error allows.
 *
 * In:  the graph, samples, the target's estimates of time, and a budget: decibels that every output keeps beside f32, or
 * right answers that may be lost. Out: the plan of a cy_quant, which was verified on the samples.
 *
 *   1. observe   ranges of tensors, where there are samples (cytoc_quantise.c)
 *   2. offer     one library that computes every layer in every precision that gains time, and puts out how each differs;
 *                which is used is chosen when it runs. With nothing chosen it is the reference: f32, no fast algorithms
 *   3. measure   what each layer alone, in the coarsest of its precisions, does to the outputs. Those of its other
 *                precisions do as much less as its own output differs less
 *   4. order     from all layers at their fastest to all in f32. Each step gives one layer a more exact precision; first
 *                come the steps that take most error off for the time they cost. This order is the same for every budget,
 *                so that a looser one never makes a slower library by the estimates
 *   5. search    along that order by bisection, with the library of step 2; then what is found is compiled as it will be,
 *                run on all samples, and moved along the order until it holds the budget, and not by far more
 *   6. contest   estimates err: where the target is this CPU, the same with each precision alone beside f32, as far as estimates
 *                have it near; what holds the budget is timed, and the plan of step 5 makes way for what is clearly faster
 *
 * But for the contest, nothing depends on a clock: the same inputs make the same plan.
 */
#include "cytoc_budget.h"

#include "cytoc_whole.h"
#include "ir/clock.h"
#include "tools/values/errors.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* So much above the budget is near enough, and so much more than needed is aimed at when what was found did not hold. */
static const double NEAR_DB = 1, SPARE_DB = 0.2;
/* Estimated cycles, on one core, of measuring layers one by one, and of the search. */
static const double SINGLES_CYCLES = 2e10, SEARCH_CYCLES = 2e10;
enum { MAX_VERIFIED = 7, MAX_SAMPLES = 32, RANDOM_SIZE = 64, NONE = -1 };
/* Of the contest. What is estimated to take so many times as long does not take part; what wins does so by that share;
 * rounds, and libraries that are compiled to find a contender. */
static const double NEAR_CYCLES = 1.3, CLEARLY = 0.98, CONTEST_MS = 4000;
enum { MIN_ROUNDS = 5, MAX_ROUNDS = 31, MAX_CONTENDER_VERIFIED = 3 };

/* Entries of the offer that are about the same layer, and the one that counts now. */
typedef struct group {
  uint32_t first, count;
  int fastest;
} group;

/* From one precision of a layer to a more exact one; NONE: f32. */
typedef struct step {
  uint32_t group, number;
  int to;
  double ratio; /* error that it takes off, for a cycle */
} step;

/* A layer that may go without a fast algorithm, by that choice; cycles that it loses. */
typedef struct fast_layer {
  cy_choice choice;
  double loss;
} fast_layer;
enum { MAX_FAST = 64 };

/* What a run over samples is compared by. */
typedef struct score {
  cy_quant_output *sums; /* [noutputs] */
  int64_t right, rows;
  double value; /* dB, or right answers */
  uint32_t worst;
} score;

typedef struct search {
  const cytoc_quantise *how;
  cytoc_budget *b;
  cy_quant *q;
  recorder offer, real;
  cytoc_whole *whole;
  uint32_t noutputs;
  cy_quant_layer *entry, *fixed; /* of the offer; and those that may be static */
  uint32_t nentries, nfixed, nnodes;
  group *group;
  uint32_t ngroups;
  double *noise; /* [nentries]: see cytoc_budget_layer */
  step *step;
  uint32_t nsteps;
  unsigned allowed; /* precisions of these steps, as bits */
  double *seen; /* [nsteps + 1]: values by the library of the offer; NAN: not known */
  bool *chosen; /* what that reads .. */
  float *correction;
  double *difference;                  /* [.. as many]: of static layers, sums over samples */
  double *signal, *elements;           /* [nentries]: of a layer's own output; elements of a channel */
  int64_t *label, nlabels, *first_row; /* first_row[sample] */
  uint32_t classes;                    /* output whose classes count */
  fast_layer *fast; /* [nfast]: are collected from what is compiled; NULL: they are not */
  uint32_t nfast;
  int nsearched;                       /* samples that the search runs on */
  double needed;
  score *now;
} search;

static bool by_classes(const search *s) { return s->b->db <= 0; }

static void progress(const search *s, const char *what, int64_t done, int64_t total) {
  if (s->how->progress)
    s->how->progress(s->how->progress_ctx, what, done, total);
}

/* ---- scores ----------------------------------------------------------------------------------------------------- */

static score new_score(const search *s) {
  score c = {.sums = CY_NEW_ARRAY(s->q->arena, cy_quant_output, s->noutputs + 1)};
  uint32_t n;
  const cy_quant_output *outputs = cytoc_whole_outputs(s->whole, &n);
  for (uint32_t k = 0; k < s->noutputs; k++)
    c.sums[k] = (cy_quant_output){.name = outputs[k].name, .odd = outputs[k].odd};
  return c;
}

/* Rows and classes of an output: [rows, classes], with nothing else but axes of 1; false: it has none. */
static bool class_rows(const cyto_tensor *t, int64_t *rows, int64_t *classes) {
  int64_t count = 1;
  for (int32_t i = 0; i < t->rank; i++)
    count *= t->dims[i];
  *rows = t->rank > 1 ? t->dims[0] : 1;
  *classes = t->rank > 1 ? t->dims[1] : t->rank ? t->dims[0] : 0;
  return t->dtype == CYTO_F32 && *classes > 1 && *rows * *classes == count;
}

/* Is the answer of a row the label? Not where one of its numbers is NaN, which is no largest one. */
static bool is_right(const float *row, int64_t classes, int64_t label) {
  int64_t top = 0;
  for (int64_t k = 0; k < classes; k++) {
    if (isnan(row[k]))
      return false;
    top = row[k] > row[top] ? k : top;
  }
  return top == label;
}

/* Counts the right answers of a sample. Where the number of rows follows from values, others than in f32 may come out: then
 * nobody knows whose they are, and none is right. */
static int add_answers(const search *s, recorder *r, int sample, score *c) {
  cyto_tensor t;
  int64_t rows, classes;
  if (recorder_output(r, s->classes, &t))
    return -1;
  if (!class_rows(&t, &rows, &classes))
    return recorder_fail(r, "the classes of output '%s' differ between samples", c->sums[s->classes].name);
  int64_t first = s->first_row[sample], labelled = s->first_row[sample + 1] - first;
  for (int64_t i = 0; i < rows && rows == labelled; i++)
    c->right += is_right((const float *)t.data + i * classes, classes, s->label[first + i]);
  c->rows += labelled;
  return 0;
}

static int see(recorder *r, int sample, void *ctx) {
  search *s = ctx;
  if (cytoc_whole_add(s->whole, r, sample, s->now->sums))
    return -1;
  return by_classes(s) ? add_answers(s, r, sample, s->now) : 0;
}

static double decibels_of(const cy_quant_output *o) {
  bool tells = !o->odd && (o->signal > 0 || !(o->noise > 0));
  return !tells ? INFINITY : isnan(o->noise) ? -INFINITY : errors_decibels(o->signal, o->noise);
}

/* Of sums that are complete. */
static void finish(const search *s, score *c) {
  c->value = INFINITY;
  for (uint32_t k = 0; k < s->noutputs; k++)
    if (decibels_of(&c->sums[k]) < c->value)
      c->value = decibels_of(&c->sums[k]), c->worst = k;
  if (by_classes(s))
    c->value = (double)c->right, c->worst = s->classes;
}

/* Of a layer that is computed by a fast algorithm: the same without, and what it loses. */
static void note_fast(void *ctx, const cy_candidates *c, uint32_t launches) {
  search *s = ctx;
  const char *chosen = c->chosen < 0 ? "" : c->of[c->chosen].name, *other = NULL;
  double cycles = 0;
  if (!cy_candidate_is(chosen, "winograd") && !cy_candidate_is(chosen, "strassen"))
    return;
  for (int i = 0; i < c->n && !other; i++)
    if (!strcmp(c->of[i].name, "direct") || !strcmp(c->of[i].name, "plain"))
      other = c->of[i].name, cycles = c->of[i].cycles;
  for (uint32_t i = 0; i < s->nfast; i++)
    if (!strcmp(s->fast[i].choice.layer, c->layer))
      return;
  if (!other || s->nfast == MAX_FAST)
    return;
  const char *layer = cy_arena_printf(s->q->arena, "%s", c->layer);
  s->fast[s->nfast++] = (fast_layer){{.layer = layer, .candidate = other},
                                     (cycles - c->of[c->chosen].cycles) * (launches ? launches : 1)};
}

static int run_score(search *s, recorder *r, const char *what, int samples, score *out) {
  *out = new_score(s);
  s->now = out;
  int status = recorder_run(r, what, samples, see, s);
  finish(s, out);
  return status;
}

/* ---- the reference, and layers alone ---------------------------------------------------------------------------- */

static int see_reference(recorder *r, int sample, void *ctx) {
  search *s = ctx;
  if (cytoc_whole_remember(s->whole, r, sample))
    return -1;
  for (uint32_t i = 0; i < s->nentries; i++) {
    const cy_quant_layer *l = &s->entry[i];
    cyto_tensor sums, differences;
    if (recorder_output(r, l->output, &sums) || recorder_output(r, l->output + 1, &differences))
      return -1;
    const float *x = sums.data;
    s->noise[i] += x[0];
    s->signal[i] += x[1];
    s->elements[i] += x[2];
    for (uint32_t c = 0; c < l->channels && l->precision == CY_PRECISION_STATIC; c++)
      s->difference[l->correction + c] += ((const float *)differences.data)[c];
  }
  return 0;
}

/* Of the static entry i and the layer that it will be: the mean of its error is taken off its bias. */
static void correct(search *s, uint32_t i) {
  const cy_quant_layer *l = &s->entry[i];
  float *correct = CY_NEW_ARRAY(s->q->arena, float, l->channels + 1);
  for (uint32_t c = 0; c < l->channels; c++) {
    double mean = s->elements[i] > 0 ? s->difference[l->correction + c] / s->elements[i] : 0;
    correct[c] = isfinite(mean) ? (float)-mean : 0;
    s->correction[l->correction + c] = correct[c];
    s->noise[i] -= isfinite(mean) ? mean * mean * s->elements[i] : 0;
  }
  for (uint32_t k = 0; k < s->nfixed; k++)
    if (s->fixed[k].node == l->node)
      s->fixed[k].correct = correct;
}

/* Finds the output with classes, and which labels belong to each sample. */
static int see_classes(recorder *r, int sample, void *ctx) {
  search *s = ctx;
  for (uint32_t k = s->classes; k < s->noutputs; k++) {
    cyto_tensor t;
    int64_t rows, classes;
    if (recorder_output(r, k, &t))
      return -1;
    if (!class_rows(&t, &rows, &classes))
      continue;
    s->classes = k;
    s->first_row[sample + 1] = s->first_row[sample] + rows;
    for (int64_t i = s->first_row[sample]; i < s->first_row[sample + 1] && i < s->nlabels; i++)
      if (s->label[i] >= classes)
        return recorder_fail(r, "'%s': label %lld is %lld, but output '%s' has %lld classes, from 0", s->b->labels,
                             (long long)i, (long long)s->label[i], s->now->sums[k].name, (long long)classes);
    return 0;
  }
  return recorder_fail(r,
                       "--accuracy=%s counts right classes, but no output of the model has classes: expected f32 of "
                       "[rows, classes]; --accuracy=30dB limits the error of any output",
                       s->b->text);
}

static int find_classes(search *s, recorder *r) {
  char error[TENSOR_ERROR_SIZE];
  int n = samples_count(r->samples);
  score names = new_score(s);
  if (cytoc_labels_read(s->b->labels, &s->label, &s->nlabels, error))
    return recorder_fail(r, "%s", error);
  s->first_row = CY_NEW_ARRAY(s->q->arena, int64_t, n + 2);
  s->now = &names;
  if (recorder_run(r, "classes", INT_MAX, see_classes, s))
    return -1;
  if (s->first_row[n] != s->nlabels)
    return recorder_fail(r, "'%s' has %lld labels, but the samples '%s' have %lld rows: expected a label for each",
                         s->b->labels, (long long)s->nlabels, s->how->samples, (long long)s->first_row[n]);
  score all;
  if (run_score(s, r, "classes", INT_MAX, &all))
    return -1;
  s->b->right = all.rows ? (double)all.right / (double)all.rows : 0;
  s->needed = (double)all.right - floor(s->b->loss * (double)all.rows + 1e-9);
  return 0;
}

/* An error if no output can be compared. */
static int check_outputs(const search *s, recorder *r) {
  const char *why = "they are of no floats";
  uint32_t n;
  const cy_quant_output *outputs = cytoc_whole_outputs(s->whole, &n);
  for (uint32_t k = 0; k < n; k++) {
    if (!outputs[k].odd)
      return 0;
    why = outputs[k].odd;
  }
  return recorder_fail(r, "--accuracy=%s compares outputs with those of f32, but none can be: %s", s->b->text, why);
}

static int find_reference(search *s, recorder *r) {
  s->noise = CY_NEW_ARRAY(s->q->arena, double, s->nentries + 1);
  s->signal = CY_NEW_ARRAY(s->q->arena, double, s->nentries + 1);
  s->elements = CY_NEW_ARRAY(s->q->arena, double, s->nentries + 1);
  s->difference = CY_NEW_ARRAY(s->q->arena, double, s->q->ncorrections + 1);
  if (check_outputs(s, r) || recorder_run(r, "reference", INT_MAX, see_reference, s))
    return -1;
  for (uint32_t i = 0; i < s->nentries; i++) {
    if (s->entry[i].precision == CY_PRECISION_STATIC)
      correct(s, i);
    s->noise[i] = s->signal[i] > 0 ? fmax(s->noise[i], 0) / s->signal[i] : s->noise[i] > 0 ? INFINITY : 0;
  }
  s->needed = s->b->db;
  return by_classes(s) ? find_classes(s, r) : 0;
}

/* The entry of a layer whose output differs most, and does not fail. */
static int coarsest(const search *s, const group *g) {
  int best = NONE;
  for (uint32_t i = g->first; i < g->first + g->count; i++)
    if (isfinite(s->noise[i]) && (best < 0 || s->noise[i] > s->noise[best]))
      best = (int)i;
  return best;
}

/* Estimated cycles of a run of the offer's library. */
static double offer_cycles(const search *s) {
  double sum = 1;
  for (uint32_t g = 0; g < s->ngroups; g++)
    sum += s->entry[s->group[g].first].cycles[0];
  for (uint32_t i = 0; i < s->nentries; i++)
    sum += s->entry[i].cycles[1];
  return sum * 2; /* it is not laid out for speed */
}

static int within(double max, int samples) {
  int n = samples < MAX_SAMPLES ? samples : MAX_SAMPLES;
  return max < 1 ? 1 : max < n ? (int)max : n;
}

/* Makes s->noise, which is of layers' own outputs until now, that of the model's. */
static int measure_layers(search *s, recorder *r) {
  int samples = within(SINGLES_CYCLES / (offer_cycles(s) * (s->ngroups + 1)), samples_count(r->samples));
  for (uint32_t g = 0; g < s->ngroups; g++) {
    int at = coarsest(s, &s->group[g]);
    score c;
    progress(s, "layers", g, s->ngroups);
    if (at < 0)
      continue;
    s->chosen[at] = true;
    int status = run_score(s, r, NULL, samples, &c);
    s->chosen[at] = false;
    if (status)
      return -1;
    double max = 0, own = s->noise[at];
    for (uint32_t k = 0; k < s->noutputs; k++)
      if (c.sums[k].signal > 0 && !c.sums[k].odd)
        max = fmax(max, c.sums[k].noise / c.sums[k].signal);
    for (uint32_t i = s->group[g].first; i < s->group[g].first + s->group[g].count; i++)
      s->noise[i] = own > 0 ? max * (s->noise[i] / own) : 0;
  }
  return 0;
}

/* ---- the order -------------------------------------------------------------------------------------------------- */

static double cycles_of(const search *s, const group *g, int entry) {
  return entry < 0 ? s->entry[g->first].cycles[0] : s->entry[entry].cycles[1];
}

static double noise_of(const search *s, int entry) { return entry < 0 ? 0 : s->noise[entry]; }

static bool is_allowed(const search *s, unsigned allowed, int entry) {
  return entry < 0 || allowed >> s->entry[entry].precision & 1;
}

/* The next precision of a layer behind `at`: the one that takes most error off for a cycle. False: there is none. */
static bool next_of(const search *s, const group *g, int at, int *out, double *ratio) {
  bool any = false;
  for (int i = NONE; i < (int)g->count; i++) {
    int to = i < 0 ? NONE : (int)g->first + i;
    double less = noise_of(s, at) - noise_of(s, to), more = cycles_of(s, g, to) - cycles_of(s, g, at);
    if (at == to || at == NONE || !is_allowed(s, s->allowed, to) || (to >= 0 && !(less > 0)) || more < 0)
      continue;
    double each = fmax(less, 0) / fmax(more, 1);
    if (!any || each > *ratio)
      *ratio = each, *out = to, any = true;
  }
  return any;
}

static int by_ratio(const void *a, const void *b) {
  const step *x = a, *y = b;
  return x->ratio != y->ratio ? (x->ratio < y->ratio ? 1 : -1) : x->number < y->number ? -1 : x->number > y->number;
}

static void find_order(search *s, unsigned allowed) {
  s->allowed = allowed;
  s->nsteps = 0;
  s->step = CY_NEW_ARRAY(s->q->arena, step, s->nentries + 1);
  for (uint32_t k = 0; k < s->ngroups; k++) {
    group *g = &s->group[k];
    g->fastest = NONE;
    for (uint32_t i = g->first; i < g->first + g->count; i++)
      if (is_allowed(s, s->allowed, (int)i) && isfinite(s->noise[i]) && cycles_of(s, g, (int)i) < cycles_of(s, g, g->fastest))
        g->fastest = (int)i;
    double ratio = 0, last = INFINITY;
    for (int at = g->fastest, to; next_of(s, g, at, &to, &ratio); at = to, last = ratio)
      s->step[s->nsteps] = (step){k, s->nsteps, to, ratio = fmin(ratio, last)}, s->nsteps++;
  }
  qsort(s->step, s->nsteps, sizeof *s->step, by_ratio);
  s->seen = CY_NEW_ARRAY(s->q->arena, double, s->nsteps + 2);
  for (uint32_t i = 0; i <= s->nsteps; i++)
    s->seen[i] = NAN;
}

/* Each layer's entry with so many steps taken, in the arena. */
static int *entries_at(const search *s, uint32_t steps) {
  int *at = CY_NEW_ARRAY(s->q->arena, int, s->ngroups + 1);
  for (uint32_t k = 0; k < s->ngroups; k++)
    at[k] = s->group[k].fastest;
  for (uint32_t i = 0; i < steps; i++)
    at[s->step[i].group] = s->step[i].to;
  return at;
}

/* ---- the search ------------------------------------------------------------------------------------------------- */

/* The value that the offer's library has after so many steps; NAN: it failed. */
static double value_at(search *s, uint32_t steps) {
  if (!isnan(s->seen[steps]))
    return s->seen[steps];
  const int *at = entries_at(s, steps);
  score c;
  memset(s->chosen, 0, s->nentries);
  for (uint32_t k = 0; k < s->ngroups; k++)
    if (at[k] >= 0)
      s->chosen[at[k]] = true;
  progress(s, "search", 0, 0);
  if (run_score(s, &s->offer, NULL, s->nsearched, &c))
    return NAN;
  return s->seen[steps] = c.value;
}

/* The fewest steps that have it. -1: the model failed. */
static int64_t min_steps(search *s, double value) {
  int64_t low = -1, high = s->nsteps;
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    double is = value_at(s, (uint32_t)middle);
    if (isnan(is))
      return -1;
    *(is >= value ? &high : &low) = middle;
  }
  return high;
}

/* What a layer becomes if integers of fixed ranges gain nothing beside their conversions: the fastest that is as exact. */
static int other_than_static(const search *s, unsigned allowed, const group *g, int entry) {
  int best = NONE;
  for (uint32_t i = g->first; i < g->first + g->count; i++)
    if ((int)i != entry && is_allowed(s, allowed, (int)i) && s->entry[i].precision != CY_PRECISION_STATIC &&
        s->noise[i] <= s->noise[entry] && cycles_of(s, g, (int)i) < cycles_of(s, g, best))
      best = (int)i;
  return best;
}

static cy_precision precision_of(const search *s, int entry) {
  return entry < 0 ? CY_PRECISION_F32 : s->entry[entry].precision;
}

/* Each layer's entry, and the precisions, as bits, of the order that it was found in: what is not static after all has one. */
typedef struct selection {
  const int *at;
  unsigned allowed;
} selection;

/* Makes q->plan and q->layer those of the selection. */
static void plan(const search *s, cy_quant *q, selection c) {
  const int *at = c.at;
  q->mode = CY_QUANT_PLAN;
  q->nplan = s->nnodes;
  q->plan = CY_NEW_ARRAY(q->arena, cy_precision, s->nnodes + 1);
  q->fallback = CY_NEW_ARRAY(q->arena, cy_precision, s->nnodes + 1);
  q->layer = CY_NEW_ARRAY(q->arena, cy_quant_layer, s->nfixed + 1);
  if (s->nfixed)
    memcpy(q->layer, s->fixed, s->nfixed * sizeof *s->fixed);
  q->nlayers = s->nfixed;
  q->shares_halves = true;
  for (uint32_t k = 0; k < s->ngroups; k++) {
    const group *g = &s->group[k];
    cy_node id = s->entry[g->first].node;
    q->plan[id] = precision_of(s, at[k]);
    q->shares_halves &= at[k] >= 0;
    if (q->plan[id] != CY_PRECISION_STATIC)
      continue;
    int other = other_than_static(s, c.allowed, g, at[k]);
    q->fallback[id] = precision_of(s, other);
    for (uint32_t i = 0; i < q->nlayers; i++)
      if (q->layer[i].node == id)
        q->layer[i].cycles[0] = cycles_of(s, g, other);
  }
}

typedef struct found {
  int64_t low, high; /* steps that do not hold it; that do */
  selection of;      /* of `high` */
  cy_quant q;        /* .. its plan */
  score score;
  bool any;
  const char *name; /* of the contest */
  recorder r;
  int n;
  double ms[MAX_ROUNDS];
} found;

/* A recorder of the selection's plan, which goes to *q; nothing is open. */
static recorder recorder_for(search *s, selection c, cy_quant *q) {
  *q = *s->q;
  plan(s, q, c);
  recorder r = s->offer;
  r.q = q;
  r.model = NULL;
  r.context = NULL;
  r.plain = s->b->strict;
  return r;
}

/* Compiles and runs that; *out is what it has. */
static int verify(search *s, selection c, cy_quant *q, score *out) {
  s->real = recorder_for(s, c, q);
  s->real.choices = s->b->exact.n ? &s->b->exact : NULL;
  s->real.visit = s->fast ? note_fast : NULL;
  s->real.visit_ctx = s;
  int status = recorder_start(&s->real) || run_score(s, &s->real, "verifying", INT_MAX, out) ? -1 : 0;
  recorder_stop(&s->real);
  return status;
}

/* How many steps are tried next, after `at` of them gave c: between those that do not hold the budget and those that do. */
static int64_t next_steps(search *s, const found *f, int64_t at, const score *c) {
  int64_t middle = f->low + (f->high - f->low) / 2, next = middle;
  if (!by_classes(s) && isfinite(c->value)) {
    double more = value_at(s, (uint32_t)at) - c->value;
    next = isfinite(more) ? min_steps(s, s->needed + more + SPARE_DB) : middle;
    next = c->value < s->needed && next <= at ? at + 1 : next;
  }
  return next <= f->low || next >= f->high ? middle : next;
}

static int repair(search *s, found *f, int rounds) {
  int64_t at = min_steps(s, s->needed);
  for (int round = 0; at >= 0 && round < rounds; round++) {
    selection of = {entries_at(s, (uint32_t)at), s->allowed};
    cy_quant q;
    score c;
    if (verify(s, of, &q, &c))
      return -1;
    if (c.value >= s->needed)
      f->high = at, f->of = of, f->q = q, f->score = c, f->any = true;
    else
      f->low = at;
    bool near = f->any && f->high == at && !by_classes(s) && c.value - s->needed <= NEAR_DB;
    if (f->high - f->low <= 1 || near)
      break;
    at = next_steps(s, f, at, &c);
  }
  return at < 0 ? -1 : 0;
}

static const int *all_floats(const search *s) {
  int *at = CY_NEW_ARRAY(s->q->arena, int, s->ngroups + 1);
  for (uint32_t k = 0; k < s->ngroups; k++)
    at[k] = NONE;
  return at;
}

static int verify_floats(search *s, found *f) {
  f->of = (selection){all_floats(s), 0};
  if (verify(s, f->of, &f->q, &f->score))
    return -1;
  f->any = f->score.value >= s->needed;
  return 0;
}

static int by_loss(const void *a, const void *b) {
  const fast_layer *x = a, *y = b;
  return x->loss != y->loss ? (x->loss < y->loss ? -1 : 1) : strcmp(x->choice.layer, y->choice.layer);
}

/* Has the first n of the layers with fast algorithms computed without. */
static void make_exact(search *s, uint32_t n) {
  s->b->exact = (cy_choices){CY_NEW_ARRAY(s->q->arena, cy_choice, n + 1), (int)n};
  for (uint32_t i = 0; i < n; i++)
    s->b->exact.list[i] = s->fast[i].choice;
}

/* Which layers go without fast algorithms: of those that lose least by it as few as do, by bisection. */
static int give_up_fast(search *s, found *f) {
  uint32_t low = 0, high = s->nfast, n = s->nfast;
  qsort(s->fast, s->nfast, sizeof *s->fast, by_loss);
  while (n && high > low) {
    found at = {.low = -1};
    make_exact(s, n);
    if (verify_floats(s, &at))
      return -1;
    if (at.any)
      *f = at, high = n;
    else if (n == s->nfast)
      break;
    else
      low = n;
    n = low + (high - low) / 2;
    if (n == low)
      break;
  }
  make_exact(s, f->any ? high : 0);
  return 0;
}

/* All layers in f32; if that does not do, some without fast algorithms, then the whole model, whose other loops go without
 * them, too. */
static int take_floats(search *s, found *f) {
  fast_layer list[MAX_FAST];
  s->fast = list;
  int status = verify_floats(s, f);
  if (!status && !f->any)
    status = give_up_fast(s, f);
  s->fast = NULL;
  if (!status && !f->any) {
    s->b->strict = true;
    status = verify_floats(s, f);
  }
  if (status)
    return -1;
  if (f->any)
    return 0;
  if (by_classes(s))
    return recorder_fail(&s->offer, "--accuracy=%s cannot be met: %lld of %lld answers are right in f32, %g are needed",
                         s->b->text, (long long)f->score.right, (long long)f->score.rows, s->needed);
  char can[64] = "No ratio above 0 dB can be had";
  if (f->score.value >= 1)
    snprintf(can, sizeof can, "--accuracy=%.0fdB can be had", floor(f->score.value));
  return recorder_fail(&s->offer,
                       "--accuracy=%s cannot be met: output '%s' has %.1f dB with every layer in f32 and without fast "
                       "algorithms, as sums in another order differ so much. %s",
                       s->b->text, f->score.sums[f->score.worst].name, f->score.value, can);
}

/* ---- the contest ------------------------------------------------------------------------------------------------ */

static double cycles_at(const search *s, const int *at) {
  double sum = 0;
  for (uint32_t k = 0; k < s->ngroups; k++)
    sum += cycles_of(s, &s->group[k], at[k]);
  return sum;
}

static bool same(const search *s, const int *a, const int *b) { return !memcmp(a, b, s->ngroups * sizeof *a); }

/* One precision beside f32. -1: the model failed. */
static int find_contender(search *s, cy_precision only, const found *best, found *out) {
  *out = (found){.low = -1, .name = cy_precision_name(only)};
  if (only == CY_PRECISION_F32)
    return cycles_at(s, all_floats(s)) <= NEAR_CYCLES * cycles_at(s, best->of.at) ? verify_floats(s, out) : 0;
  find_order(s, 1u << only);
  out->high = (int64_t)s->nsteps + 1;
  if (!s->nsteps || cycles_at(s, entries_at(s, 0)) > NEAR_CYCLES * cycles_at(s, best->of.at))
    return 0;
  if (repair(s, out, MAX_CONTENDER_VERIFIED))
    return -1;
  out->any = out->any && cycles_at(s, out->of.at) <= NEAR_CYCLES * cycles_at(s, best->of.at);
  return 0;
}

static int by_ms(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* In turns, on one thread. */
static int time_both(search *s, found *a, found *b) {
  found *both[] = {a, b};
  int samples = samples_count(s->offer.samples);
  double began = cy_clock_ms();
  a->n = b->n = 0;
  for (int round = -1; round < MAX_ROUNDS && (round < MIN_ROUNDS || cy_clock_ms() - began < CONTEST_MS); round++) {
    progress(s, "timing", round + 1, MAX_ROUNDS + 1);
    for (int k = 0; k < 2; k++) {
      double ms = recorder_time(&both[k]->r, (round + 1) % samples);
      if (ms < 0)
        return -1;
      if (round >= 0) /* the first ones are cold */
        both[k]->ms[both[k]->n++] = ms;
    }
  }
  for (int k = 0; k < 2; k++)
    qsort(both[k]->ms, (size_t)both[k]->n, sizeof *both[k]->ms, by_ms);
  return 0;
}

static int open_found(search *s, found *f) {
  f->r = recorder_for(s, f->of, &f->q);
  f->r.threads = 1;
  return recorder_start(&f->r);
}

/* Lets the faster one be the champion. Two libraries are loaded at a time. */
static int challenge(search *s, found *champion, found *other) {
  int status = (champion->r.model ? 0 : open_found(s, champion)) || open_found(s, other) || time_both(s, champion, other) ? -1 : 0;
  bool wins = !status && other->ms[other->n / 2] < CLEARLY * champion->ms[champion->n / 2];
  if (!status)
    s->b->timed = cy_arena_printf(s->q->arena, "%s%s%s %.3f ms, %s %.3f", s->b->timed ? s->b->timed : "", s->b->timed ? "; " : "",
                                  champion->name, champion->ms[champion->n / 2], other->name, other->ms[other->n / 2]);
  recorder_stop(wins ? &champion->r : &other->r);
  if (wins)
    *champion = *other;
  return status;
}

/* Whether estimates were right: beside one precision alone. */
static int contest(search *s, found *best) {
  best->name = "mixed";
  int status = 0;
  for (int only = 0; only < CY_PRECISIONS && !status; only++) {
    found other;
    status = find_contender(s, (cy_precision)only, best, &other);
    if (!status && other.any && !same(s, other.of.at, best->of.at))
      status = challenge(s, best, &other);
  }
  if (best->r.model)
    recorder_stop(&best->r);
  return status;
}

/* ---- the answer ------------------------------------------------------------------------------------------------- */

static void note_layers(search *s, const found *f) {
  cytoc_budget *b = s->b;
  b->layer = CY_NEW_ARRAY(s->q->arena, cytoc_budget_layer, s->ngroups + 1);
  b->nlayers = s->ngroups;
  for (uint32_t k = 0; k < s->ngroups; k++) {
    const group *g = &s->group[k];
    const cy_quant_layer *l = &s->entry[g->first];
    int at = NONE;
    for (uint32_t i = g->first; i < g->first + g->count; i++)
      at = s->entry[i].precision == f->q.plan[l->node] ? (int)i : at;
    b->layer[k] = (cytoc_budget_layer){
        l->name, l->shape, l->macs, {l->cycles[0], cycles_of(s, g, at)}, precision_of(s, at), noise_of(s, at)};
  }
}

/* What is 0 in f32 has no ratio: decibels_of() lets it pass. */
static void warn_of_zeros(const search *s, const score *c) {
  for (uint32_t k = 0; k < s->noutputs && !by_classes(s); k++)
    if (!c->sums[k].odd && !(c->sums[k].signal > 0))
      cy_diag_add(
          s->how->diag, CY_WARNING, NULL,
          "--accuracy=%s: output '%s' is 0 in f32 on all samples, so its error has no ratio and is not limited; "
          "give samples (--calibrate) for which it is not 0",
          s->b->text, c->sums[k].name);
}

/* What the search has left out. */
static void note_inner(const search *s) {
  uint32_t n = s->q->ninner;
  if (n)
    cy_diag_add(s->how->diag, CY_NOTE, NULL,
                "--accuracy=%s: %u layer%s inside If, Loop or Scan, such as '%s', stay%s in f32: what an error there does to the "
                "outputs cannot be measured layer by layer. --int8=dynamic quantises them, too, and --int8=static those around them",
                s->b->text, n, n == 1 ? "" : "s", s->q->inner, n == 1 ? "s" : "");
}

static void note_answer(search *s, const found *f) {
  cytoc_budget *b = s->b;
  b->samples = by_classes(s) ? samples_count(s->offer.samples) : cytoc_whole_samples(s->whole);
  if (!by_classes(s))
    cytoc_whole_warn(s->whole, &s->offer);
  warn_of_zeros(s, &f->score);
  b->output = f->score.sums[f->score.worst].name;
  note_inner(s);
  b->reached = by_classes(s) ? (double)f->score.right / (double)(f->score.rows ? f->score.rows : 1) : f->score.value;
  note_layers(s, f);
}

static void list_groups(search *s) {
  s->group = CY_NEW_ARRAY(s->q->arena, group, s->nentries + 1);
  for (uint32_t i = 0; i < s->nentries; i++) {
    if (!i || s->entry[i].node != s->entry[i - 1].node)
      s->group[s->ngroups++] = (group){.first = i};
    s->group[s->ngroups - 1].count++;
  }
}

static int see_nothing(recorder *r, int sample, void *ctx) {
  (void)r, (void)sample, (void)ctx;
  return 0;
}

/* Opens samples for the library of the offer, and binds what it has behind its own inputs. */
static int open_samples(search *s, int64_t size) {
  recorder *r = &s->offer;
  if (!r->samples && recorder_open_samples(r, size))
    return -1;
  s->chosen = recorder_choice(r);
  s->correction = recorder_corrections(r);
  return s->chosen && s->correction ? 0 : -1;
}

/* Random samples have axes of a middling size where these are open, or of 1 if the model does not run so. */
static int find_samples(search *s) {
  recorder *r = &s->offer;
  size_t before = cy_diag_count(s->how->diag);
  if (s->how->samples || (!open_samples(s, RANDOM_SIZE) && !recorder_run(r, NULL, 1, see_nothing, NULL)))
    return s->how->samples ? open_samples(s, 1) : 0;
  cy_diag_forget(s->how->diag, before);
  recorder_close_samples(r);
  if (!open_samples(s, 1) && !recorder_run(r, NULL, 1, see_nothing, NULL))
    return 0;
  return recorder_fail(r, "--accuracy=%s: the model does not run on random inputs; name samples by --calibrate",
                       s->b->text);
}

/* With the library of the offer open. */
static int find_plan(search *s) {
  recorder *r = &s->offer;
  found f = {.low = -1};
  if (find_samples(s))
    return -1;
  s->whole = cytoc_whole_create(r);
  if (!s->whole)
    return recorder_fail(r, "--accuracy=%s compares outputs of floats, but the model has none", s->b->text);
  cytoc_whole_outputs(s->whole, &s->noutputs);
  if (find_reference(s, r) || measure_layers(s, r))
    return -1;
  find_order(s, UINT_MAX);
  s->nsearched = within(SEARCH_CYCLES / (10 * offer_cycles(s)), samples_count(r->samples));
  f.high = (int64_t)s->nsteps + 1;
  if (repair(s, &f, MAX_VERIFIED) || (f.any && s->how->runs_here && contest(s, &f)) || (!f.any && take_floats(s, &f)))
    return -1;
  plan(s, s->q, f.of);
  note_answer(s, &f);
  return 0;
}

/* Compiles the offer. */
static int open_offer(search *s) {
  recorder *r = &s->offer;
  s->fixed = s->q->layer;
  s->nfixed = s->q->nlayers;
  s->q->mode = CY_QUANT_OFFER;
  s->q->offered = s->b->offered & ~(s->how->samples ? 0 : 1u << CY_PRECISION_STATIC);
  r->plain = true;
  if (recorder_start(r))
    return -1;
  s->entry = s->q->layer;
  s->nentries = s->q->nlayers;
  s->nnodes = s->q->nplan;
  list_groups(s);
  return 0;
}

static void keep_f32(search *s) {
  note_inner(s);
  found f = {.q = {.plan = NULL}};
  plan(s, s->q, (selection){entries_at(s, 0), s->allowed});
  f.q.plan = s->q->plan;
  note_layers(s, &f);
  cy_diag_add(
      s->how->diag, CY_WARNING, NULL,
      "--accuracy=%s: no layer outside of loops and branches is faster in another precision on this target; the "
      "model stays in f32%s",
      s->b->text, s->how->samples ? "" : ". With samples (--calibrate), static int8 is tried as well");
}

int cytoc_budget_find(const cytoc_quantise *how, cytoc_budget *b, cy_quant *q) {
  search s = {.how = how, .b = b, .q = q, .offer = {.how = how, .q = q}};
  bool fixed = how->samples && b->offered >> CY_PRECISION_STATIC & 1;
  int status = fixed ? cytoc_observe(&s.offer) : 0;
  if (!status)
    status = open_offer(&s);
  if (!status && !s.nentries)
    keep_f32(&s);
  else if (!status)
    status = find_plan(&s);
  cytoc_whole_destroy(s.whole);
  recorder_close(&s.offer);
  free(s.label);
  return status;
}
