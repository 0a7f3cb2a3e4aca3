/* SPDX-License-Identifier: Apache-2.0 */
/* cytoc_whole.c - what quantising does to the outputs of the whole model, and which layers stay in float for them.
 *
 * In:  a cy_quant whose layers have been measured, each by itself, and the outputs that the float model had on samples.
 * Out: the signal-to-noise ratio of every output of floats, and, where one is under the limit, layers in float.
 *
 * Errors of many layers add up, though each is under its own limit. So the quantised model runs once. If that is not
 * good enough, a library that quantises one layer at a time shows what each layer does to the outputs. Rounding errors of
 * different layers are independent, so the error of the whole is modelled as the sum of theirs, times a factor. The
 * layers that do most harm for the time they gain stay in float until the sum is small enough; then the model runs
 * again, which corrects the factor.
 *
 * If the user set no limit, time counts as well: only a share of what was gained is given up, and the time that is left
 * grows by a share of itself at most, since labels rarely suffer from errors that would show in a image. If that is too
 * little to reach the limit, all layers stay as they were, unless that is below the floor: this holds at any cost, in the
 * end with all layers in float.
 */
#include "cytoc_whole.h"
#include "tools/values/errors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How far above the limit layers are chosen for: on samples other than those that ranges were chosen by, the ratio is a
 * little lower. */
static const double MARGIN_DB = 1;
static const double MAX_LOST = 0.4, MAX_ADDED = 0.5; /* of the time that integers gain; of that which they take */
static const double SINGLES_CYCLES = 1e10;           /* for what layers do one at a time, as estimated, on one core */
static const double ESTIMATED_SINGLES = 4e9;         /* the same, to estimate: about a second */
static const double NEAR_DB = 1;                     /* so much more than was asked for is near enough */
enum { MAX_ROUNDS = 4, MAX_CLOSER = 7, MAX_WORST = 3, MIN_VALUES = 16 };
enum { MAX_BYTES = 1 << 28 }; /* of outputs that are remembered */

typedef struct values {
  float *value;
  uint64_t count;
} values;

struct cytoc_whole {
  uint32_t noutputs, nlayers;
  cy_quant_output *output; /* [noutputs] */
  values *reference;       /* [sample][noutputs]: the float model's */
  int nsamples;
  uint64_t bytes;
  bool full;             /* there were more samples than MAX_BYTES hold */
  cy_quant_layer *layer; /* [nlayers]: as they were measured, with those in float for outputs */
  cy_quant_tensor *tensor;
  uint32_t ntensors;
  bool *ints;    /* [nlayers]: in integers, when the model ran last */
  double *alone; /* [nlayers][noutputs]: noise over signal of a layer by itself */
  double *times; /* [noutputs]: the noise of the whole over the sum of those */
  struct {
    uint32_t layer, output;
  } * given; /* [ngiven]: layers that went back to float, in their order, and for which output */
  uint32_t ngiven;
  bool *chosen; /* what the library that is open reads to choose layers; NULL: one is compiled for every choice */
};

/* ---- outputs ---------------------------------------------------------------------------------------------------- */

static bool is_float(int32_t dtype) {
  return dtype == CYTO_F32 || dtype == CYTO_F64 || dtype == CYTO_F16 || dtype == CYTO_BF16;
}

/* Outputs of the model itself, which come before those that measure. */
static uint32_t own_outputs(const recorder *r) {
  uint32_t n = (uint32_t)cyto_model_output_count(r->model);
  for (uint32_t i = 0; i < r->q->nlayers && !cy_quant_is_single(r->q->mode); i++)
    if (!r->q->layer[i].keep && r->q->layer[i].output < n)
      n = r->q->layer[i].output;
  return n;
}

cytoc_whole *cytoc_whole_create(const recorder *r) {
  cytoc_whole *w = calloc(1, sizeof *w);
  bool any = false;
  if (!w)
    return NULL;
  w->noutputs = own_outputs(r);
  w->output = CY_NEW_ARRAY(r->q->arena, cy_quant_output, w->noutputs + 1);
  for (uint32_t k = 0; k < w->noutputs; k++) {
    cyto_port port;
    cyto_model_output(r->model, (int32_t)k, &port);
    w->output[k].name = cy_arena_printf(r->q->arena, "%s", port.name);
    w->output[k].odd = !is_float(port.dtype)             ? "no floats"
                       : r->q->chosen && r->q->chosen[k] ? "small errors change its order"
                                                         : NULL;
    any |= !w->output[k].odd;
  }
  w->reference = any ? calloc((size_t)samples_count(r->samples) * w->noutputs + 1, sizeof *w->reference) : NULL;
  if (w->reference)
    return w;
  cytoc_whole_destroy(w);
  return NULL;
}

void cytoc_whole_destroy(cytoc_whole *w) {
  for (int i = 0; w && w->reference && i < w->nsamples; i++)
    for (uint32_t k = 0; k < w->noutputs; k++)
      free(w->reference[(size_t)i * w->noutputs + k].value);
  if (w)
    free(w->reference);
  free(w);
}

static double value_at(const cyto_tensor *t, uint64_t i) {
  host_tensor h = {.dtype = t->dtype, .rank = 0, .data = t->data, .bytes = t->bytes};
  return t->dtype == CYTO_F32 ? (double)((const float *)t->data)[i] : host_tensor_get(&h, (int64_t)i);
}

static uint64_t count_of(const cyto_tensor *t) {
  uint64_t n = 1;
  for (int32_t i = 0; i < t->rank; i++)
    n *= (uint64_t)t->dims[i];
  return n;
}

int cytoc_whole_remember(cytoc_whole *w, recorder *r, int sample) {
  if (sample != w->nsamples)
    return 0;
  if (w->bytes > MAX_BYTES)
    return w->full = true, 0;
  w->nsamples++;
  for (uint32_t k = 0; k < w->noutputs; k++) {
    values *v = &w->reference[(size_t)sample * w->noutputs + k];
    cyto_tensor t;
    if (w->output[k].odd)
      continue;
    if (recorder_output(r, k, &t))
      return -1;
    v->count = count_of(&t);
    v->value = malloc((v->count + 1) * sizeof *v->value);
    if (!v->value)
      return recorder_fail(r, "no memory");
    for (uint64_t i = 0; i < v->count; i++)
      v->value[i] = (float)value_at(&t, i);
    w->bytes += v->count * sizeof *v->value;
  }
  return 0;
}

int cytoc_whole_samples(const cytoc_whole *w) { return w->nsamples; }

void cytoc_whole_warn(const cytoc_whole *w, const recorder *r) {
  int all = samples_count(r->samples);
  if (w->full)
    cy_diag_add(
        r->how->diag, CY_WARNING, NULL,
        "outputs are compared on the first %d of %d samples: those of f32 are kept in memory, and there is room for "
        "%d MB of them; what is said of outputs holds for these samples",
        w->nsamples, all, MAX_BYTES >> 20);
}

static int remember(recorder *r, int sample, void *ctx) { return cytoc_whole_remember(ctx, r, sample); }

/* Adds how output k of the model that has just run differs from what float had on the sample. Values that are not finite
 * there, such as a mask's, tell nothing. */
static int add_difference(recorder *r, const cytoc_whole *w, int sample, uint32_t k, cy_quant_output *out) {
  const values *v = &w->reference[(size_t)sample * w->noutputs + k];
  cyto_tensor t;
  if (out->odd)
    return 0;
  if (recorder_output(r, k, &t))
    return -1;
  if (count_of(&t) != v->count)
    out->odd = "its size follows from values";
  for (uint64_t i = 0; i < v->count && !out->odd; i++) {
    double x = v->value[i], y = value_at(&t, i);
    if (!isfinite(x))
      continue;
    out->signal += x * x;
    out->noise += isfinite(y) ? (y - x) * (y - x) : INFINITY;
  }
  return 0;
}

int cytoc_whole_add(const cytoc_whole *w, recorder *r, int sample, cy_quant_output *sums) {
  for (uint32_t k = 0; k < w->noutputs && sample < w->nsamples; k++)
    if (add_difference(r, w, sample, k, &sums[k]))
      return -1;
  return 0;
}

const cy_quant_output *cytoc_whole_outputs(const cytoc_whole *w, uint32_t *out_count) {
  *out_count = w->noutputs;
  return w->output;
}

static int see_outputs(recorder *r, int sample, void *ctx) {
  cytoc_whole *w = ctx;
  return cytoc_whole_add(w, r, sample, w->output);
}

/* Does this noise over the signal hold the ratio? */
static bool holds(const cy_quant_output *o, double noise, double db) { return o->odd || noise <= pow(10, -db / 10); }

static double noise_of(const cy_quant_output *o) { return o->noise > 0 ? o->noise / o->signal : 0; }

static double decibels(const cy_quant_output *o) { return errors_decibels(1, noise_of(o)); }

static bool all_hold(const cytoc_whole *w, double db) {
  for (uint32_t k = 0; k < w->noutputs; k++)
    if (!holds(&w->output[k], noise_of(&w->output[k]), db))
      return false;
  return true;
}

/* ---- running ---------------------------------------------------------------------------------------------------- */

/* Everything as it was measured, for a further time through the passes, which change it. */
static void restore(const cytoc_whole *w, cy_quant *q, cy_quant_mode mode) {
  cy_quant_layer *layer = cy_arena_copy(q->arena, w->layer, (w->nlayers + 1) * sizeof *layer);
  q->mode = mode;
  q->layer = cy_quant_is_static(mode) ? layer : NULL;
  q->nlayers = cy_quant_is_static(mode) ? w->nlayers : 0;
  q->measured = cy_quant_is_static(mode) ? NULL : layer;
  q->nmeasured = cy_quant_is_static(mode) ? 0 : w->nlayers;
  q->tensor = cy_arena_copy(q->arena, w->tensor, (w->ntensors + 1) * sizeof *q->tensor);
  q->ntensors = w->ntensors;
}

static void save(cytoc_whole *w, cy_quant *q) {
  const cy_quant_layer *layer = cy_quant_is_static(q->mode) ? q->layer : q->measured;
  w->nlayers = cy_quant_is_static(q->mode) ? q->nlayers : q->nmeasured;
  w->layer = CY_NEW_ARRAY(q->arena, cy_quant_layer, w->nlayers + 1);
  if (w->nlayers)
    memcpy(w->layer, layer, w->nlayers * sizeof *layer);
  w->ntensors = q->ntensors;
  w->tensor = CY_NEW_ARRAY(q->arena, cy_quant_tensor, w->ntensors + 1);
  if (w->ntensors)
    memcpy(w->tensor, q->tensor, w->ntensors * sizeof *w->tensor);
  w->ints = CY_NEW_ARRAY(q->arena, bool, w->nlayers + 1);
  w->alone = CY_NEW_ARRAY(q->arena, double, (size_t)w->nlayers * w->noutputs + 1);
  w->times = CY_NEW_ARRAY(q->arena, double, w->noutputs + 1);
  w->given = cy_arena_alloc(q->arena, (w->nlayers + 1) * sizeof *w->given);
}

/* .. in a library of its own. */
static int run_compiled(cytoc_whole *w, recorder *r, cy_quant_mode mode) {
  restore(w, r->q, mode);
  int status = recorder_start(r);
  for (uint32_t i = 0; i < w->nlayers && !status; i++)
    w->ints[i] = !r->q->layer[i].keep;
  if (!status && r->model)
    status = recorder_run(r, "comparing", w->nsamples, see_outputs, w);
  recorder_stop(r);
  return status;
}

/* .. by the library that is open. */
static int run_chosen(cytoc_whole *w, recorder *r) {
  for (uint32_t i = 0; i < w->nlayers; i++)
    w->ints[i] = w->chosen[i] = !w->layer[i].keep;
  return recorder_run(r, "comparing", w->nsamples, see_outputs, w);
}

/* The quantised model on all samples. */
static int run_whole(cytoc_whole *w, recorder *r, cy_quant_mode mode) {
  for (uint32_t k = 0; k < w->noutputs; k++)
    w->output[k].signal = w->output[k].noise = 0;
  int status = w->chosen ? run_chosen(w, r) : run_compiled(w, r, mode);
  for (uint32_t k = 0; k < w->noutputs; k++)
    if (!w->output[k].odd && w->output[k].noise > 0 && !(w->output[k].signal > 0))
      w->output[k].odd = "always 0 in float";
  return status;
}

/* ---- each layer by itself --------------------------------------------------------------------------------------- */

typedef struct singles {
  cytoc_whole *w;
  bool *chosen;          /* the library's further input: which layers are quantised */
  cy_quant_output *sums; /* [nlayers][noutputs] */
} singles;

static int see_singles(recorder *r, int sample, void *ctx) {
  singles *s = ctx;
  const cytoc_whole *w = s->w;
  cyto_error error;
  for (uint32_t i = 0; i < w->nlayers; i++) {
    if (!w->ints[i])
      continue;
    s->chosen[i] = true;
    if (cyto_run(r->context, &error))
      return recorder_fail(r, "%s", error.message);
    for (uint32_t k = 0; k < w->noutputs; k++)
      if (add_difference(r, w, sample, k, &s->sums[(size_t)i * w->noutputs + k]))
        return -1;
    s->chosen[i] = false;
  }
  return 0;
}

/* What counts for time: estimated cycles, where there is an estimate, for layer l in both precisions, or that gained. */
static double cycles_of(const cy_quant_layer *l) {
  return l->cycles[0] > 0 ? l->cycles[0] + l->cycles[1] : l->macs / 8;
}

static double gain_of(const cy_quant_layer *l) {
  double gain = l->cycles[0] > 0 ? l->cycles[0] - l->cycles[1] : l->macs;
  return gain > 1 ? gain : 1;
}

/* The most time that may be given up, as gain_of() has it. */
static double max_lost(const cytoc_whole *w) {
  double gained = 0, taken = 0;
  for (uint32_t i = 0; i < w->nlayers; i++) {
    gained += w->ints[i] ? gain_of(&w->layer[i]) : 0;
    taken += w->layer[i].cycles[w->ints[i]];
  }
  return taken > 0 ? fmin(gained * MAX_LOST, taken * MAX_ADDED) : gained * MAX_LOST;
}

static int few_samples(const cytoc_whole *w) {
  double once = 1, runs = 0;
  for (uint32_t i = 0; i < w->nlayers; i++) {
    once += cycles_of(&w->layer[i]);
    runs += w->ints[i];
  }
  double max = SINGLES_CYCLES / (once * (runs + 1));
  return max < 1 ? 1 : max < w->nsamples ? (int)max : w->nsamples;
}

/* Finds w->alone. */
static int run_singles(cytoc_whole *w, recorder *r, cy_quant_mode mode) {
  size_t n = (size_t)w->nlayers * w->noutputs;
  singles s = {.w = w, .chosen = w->chosen, .sums = CY_NEW_ARRAY(r->q->arena, cy_quant_output, n + 1)};
  for (size_t i = 0; i < n; i++)
    s.sums[i].odd = w->output[i % w->noutputs].odd;
  int status = 0;
  if (!w->chosen) {
    restore(w, r->q, cy_quant_is_static(mode) ? CY_QUANT_SINGLE : CY_QUANT_SINGLE_DYNAMIC);
    status = recorder_start(r);
    s.chosen = status ? NULL : recorder_choice(r);
  }
  if (s.chosen)
    memset(s.chosen, 0, w->nlayers);
  if (s.chosen)
    status = recorder_run(r, "comparing layers", few_samples(w), see_singles, &s);
  else
    status = -1;
  if (!w->chosen)
    recorder_stop(r);
  for (size_t i = 0; i < n; i++)
    w->alone[i] = s.sums[i].odd || !(s.sums[i].signal > 0) ? 0 : noise_of(&s.sums[i]);
  return status;
}

/* ---- which layers ----------------------------------------------------------------------------------------------- */

/* The noise that output k would have with what is in integers now. */
static double expected(const cytoc_whole *w, uint32_t k) {
  double sum = 0;
  for (uint32_t i = 0; i < w->nlayers; i++)
    sum += w->ints[i] ? w->alone[(size_t)i * w->noutputs + k] : 0;
  return sum * w->times[k];
}

/* Makes the expected noise that which was measured. */
static void correct(cytoc_whole *w) {
  for (uint32_t k = 0; k < w->noutputs; k++) {
    w->times[k] = 1;
    double sum = expected(w, k);
    w->times[k] = sum > 0 && isfinite(noise_of(&w->output[k])) ? noise_of(&w->output[k]) / sum : 1;
  }
}

/* The layer that does most harm, to the outputs that are expected to have less than db, for the time it gains. Returns
 * nlayers when all outputs have it, or no layer does harm. */
static uint32_t worst(const cytoc_whole *w, double db, bool *bad, uint32_t *out_for) {
  uint32_t best = w->nlayers;
  double max = 0;
  for (uint32_t k = 0; k < w->noutputs; k++)
    bad[k] = !holds(&w->output[k], expected(w, k), db);
  for (uint32_t i = 0; i < w->nlayers; i++) {
    double harm = 0, largest = 0;
    uint32_t where = 0;
    for (uint32_t k = 0; k < w->noutputs && w->ints[i]; k++) {
      double own = bad[k] ? w->alone[(size_t)i * w->noutputs + k] * w->times[k] : 0;
      harm += own;
      if (own > largest)
        largest = own, where = k;
    }
    if (harm / gain_of(&w->layer[i]) > max) {
      max = harm / gain_of(&w->layer[i]);
      best = i;
      *out_for = where;
    }
  }
  return best;
}

/* Layer i, for output k. */
static void leave_in_float(cytoc_whole *w, const recorder *r, uint32_t i, uint32_t k) {
  cy_quant_layer *l = &w->layer[i];
  l->keep = cy_arena_printf(r->q->arena, CY_QUANT_FOR_OUTPUT "'%s', which had %.1f dB", w->output[k].name,
                            decibels(&w->output[k]));
  l->precise = true;
  w->ints[i] = false;
}

/* Leaves `count` of the layers that were given up in float, the others not. */
static void give_up_first(cytoc_whole *w, const recorder *r, uint32_t count) {
  for (uint32_t i = 0; i < w->ngiven; i++) {
    cy_quant_layer *l = &w->layer[w->given[i].layer];
    l->keep = NULL;
    l->precise = false;
    if (i < count)
      leave_in_float(w, r, w->given[i].layer, w->given[i].output);
  }
}

/* Chooses further layers to be in float. False: it would cost more time than `max`. */
static bool give_up_layers(cytoc_whole *w, const recorder *r, double db, double *lost, double max) {
  bool *bad = CY_NEW_ARRAY(r->q->arena, bool, w->noutputs + 1);
  for (uint32_t k = 0, i; (i = worst(w, db, bad, &k)) < w->nlayers;) {
    *lost += gain_of(&w->layer[i]);
    if (*lost > max)
      return false;
    w->given[w->ngiven].layer = i;
    w->given[w->ngiven++].output = k;
    leave_in_float(w, r, i, k);
  }
  return true;
}

/* Puts layers back until all outputs have db, for `max` of the time that is gained. */
static int reach(cytoc_whole *w, recorder *r, cy_quant_mode mode, double db, double max) {
  double lost = 0;
  for (int round = 0; round < MAX_ROUNDS && !all_hold(w, db); round++) {
    double until_now = lost;
    correct(w);
    if (!give_up_layers(w, r, db + MARGIN_DB, &lost, max) || lost == until_now)
      break;
    if (run_whole(w, r, mode))
      return -1;
  }
  return 0;
}

/* The least ratio of all outputs. */
static double min_decibels(const cytoc_whole *w) {
  double min = INFINITY;
  for (uint32_t k = 0; k < w->noutputs; k++)
    min = w->output[k].odd ? min : fmin(min, decibels(&w->output[k]));
  return min;
}

/* reach(), and then as few of these layers as do: by bisection of the order that they were given up in, as errors that are
 * estimated one by one do not add up to that of the whole. */
static int reach_closely(cytoc_whole *w, recorder *r, cy_quant_mode mode, double db) {
  if (reach(w, r, mode, db, INFINITY))
    return -1;
  uint32_t few = 0, enough = w->ngiven, now = enough;
  bool near = !all_hold(w, db) || min_decibels(w) <= db + NEAR_DB;
  for (int round = 0; round < MAX_CLOSER && !near && enough - few > 1; round++) {
    now = few + (enough - few) / 2;
    give_up_first(w, r, now);
    if (run_whole(w, r, mode))
      return -1;
    *(all_hold(w, db) ? &enough : &few) = now;
    near = now == enough && min_decibels(w) <= db + NEAR_DB;
  }
  if (now == enough)
    return 0;
  give_up_first(w, r, enough);
  return run_whole(w, r, mode);
}

/* All layers in float, as those that were found to do harm were not enough. */
static int give_up_all(cytoc_whole *w, recorder *r, cy_quant_mode mode) {
  uint32_t k = 0;
  while (k < w->noutputs && holds(&w->output[k], noise_of(&w->output[k]), r->how->floor_snr))
    k++;
  for (uint32_t i = 0; i < w->nlayers && k < w->noutputs; i++)
    if (w->ints[i])
      leave_in_float(w, r, i, k);
  return run_whole(w, r, mode);
}

/* What is known before layers go back to float: how bad each output is, and by which layers. */
static void note_worst(cytoc_whole *w, const recorder *r) {
  for (uint32_t k = 0; k < w->noutputs; k++) {
    char *text = NULL;
    double below = INFINITY;
    for (int n = 0; n < MAX_WORST; n++) {
      double max = 0;
      uint32_t at = w->nlayers;
      for (uint32_t i = 0; i < w->nlayers; i++) {
        double harm = w->ints[i] ? w->alone[(size_t)i * w->noutputs + k] : 0;
        if (harm > max && harm < below)
          max = harm, at = i;
      }
      if (at == w->nlayers)
        break;
      below = max;
      text = cy_arena_printf(r->q->arena, "%s%s'%s' %.1f dB", text ? text : "", text ? ", " : "", w->layer[at].name,
                             errors_decibels(1, max));
    }
    w->output[k].before = noise_of(&w->output[k]);
    w->output[k].worst = text;
  }
}

static cytoc_whole copy_of(const cytoc_whole *w, const recorder *r) {
  cytoc_whole copy = *w;
  copy.layer = cy_arena_copy(r->q->arena, w->layer, (w->nlayers + 1) * sizeof *w->layer);
  copy.output = cy_arena_copy(r->q->arena, w->output, (w->noutputs + 1) * sizeof *w->output);
  copy.ints = cy_arena_copy(r->q->arena, w->ints, (w->nlayers + 1) * sizeof *w->ints);
  return copy;
}

/* Puts layers back until all outputs hold. */
static int improve(cytoc_whole *w, recorder *r, cy_quant_mode mode) {
  const cytoc_quantise *how = r->how;
  if (run_singles(w, r, mode))
    return -1;
  note_worst(w, r);
  cytoc_whole before = copy_of(w, r);
  if (how->firm_snr)
    return reach_closely(w, r, mode, how->min_snr);
  if (reach(w, r, mode, how->min_snr, max_lost(w)))
    return -1;
  if (all_hold(w, how->min_snr))
    return 0;
  *w = before;
  if (!all_hold(w, how->floor_snr) && reach(w, r, mode, how->floor_snr, INFINITY))
    return -1;
  return all_hold(w, how->floor_snr) ? 0 : give_up_all(w, r, mode);
}

int cytoc_whole_compare(cytoc_whole *w, recorder *r) {
  cy_quant *q = r->q;
  cy_quant_mode mode = q->mode;
  save(w, q);
  int status = run_whole(w, r, mode);
  if (!status && !all_hold(w, r->how->min_snr))
    status = improve(w, r, mode);
  restore(w, q, mode);
  cytoc_whole_warn(w, r);
  q->output = w->output;
  q->noutputs = w->noutputs;
  return status;
}

/* ---- with one library that chooses ------------------------------------------------------------------------------ */

/* Layers that by themselves spoil an output, as something is chosen by what comes of them: they are not worth what they
 * gain, whatever that is. */
static bool leave_amplified(cytoc_whole *w, const recorder *r) {
  bool any = false;
  for (uint32_t i = 0; i < w->nlayers; i++)
    for (uint32_t k = 0; k < w->noutputs && w->ints[i] && w->layer[i].amplified; k++)
      if (!holds(&w->output[k], w->alone[(size_t)i * w->noutputs + k], r->how->floor_snr)) {
        leave_in_float(w, r, i, k);
        any = true;
      }
  return any;
}

static int improve_chosen(cytoc_whole *w, recorder *r) {
  double db = r->how->floor_snr;
  if (run_singles(w, r, r->q->mode))
    return -1;
  note_worst(w, r);
  if (leave_amplified(w, r) && run_whole(w, r, r->q->mode))
    return -1;
  cytoc_whole before = copy_of(w, r);
  if (reach(w, r, r->q->mode, db, max_lost(w)))
    return -1;
  if (!all_hold(w, db))
    *w = before;
  return 0;
}

/* A few numbers may well be near 0 on random inputs, so that their relative error tells nothing. */
static void pass_over_few(cytoc_whole *w) {
  for (uint32_t k = 0; k < w->noutputs; k++) {
    uint64_t count = 0;
    for (int i = 0; i < w->nsamples; i++)
      count += w->reference[(size_t)i * w->noutputs + k].count;
    if (!w->output[k].odd && count < MIN_VALUES)
      w->output[k].odd = "too few numbers to tell by random inputs";
  }
}

int cytoc_whole_estimate(cytoc_whole *w, recorder *r, int max) {
  cy_quant *q = r->q;
  q->measured = q->layer;
  q->nmeasured = q->nlayers;
  save(w, q);
  w->chosen = recorder_choice(r);
  int status = w->chosen ? recorder_run(r, "estimating", max, remember, w) : -1;
  if (!r->how->samples)
    pass_over_few(w);
  if (!status)
    status = run_whole(w, r, q->mode);
  double all = recorder_cycles(q) * RECORDER_FAST_CODEGEN * w->nlayers;
  if (!status && !all_hold(w, r->how->floor_snr) && all < ESTIMATED_SINGLES)
    status = improve_chosen(w, r);
  restore(w, q, CY_QUANT_DYNAMIC);
  q->output = status ? NULL : w->output;
  q->noutputs = status ? 0 : w->noutputs;
  return status;
}

/* ---- telling ---------------------------------------------------------------------------------------------------- */

static bool for_output(const cy_quant_layer *l) {
  return l->keep && !strncmp(l->keep, CY_QUANT_FOR_OUTPUT, strlen(CY_QUANT_FOR_OUTPUT));
}

/* What layers that are in float for outputs cost, where times are known: how many times as fast as in float the model is,
 * and would be. */
static const char *cost_text(const cy_quant *q) {
  double all = 0, now = 0, else_ = 0;
  for (uint32_t i = 0; i < q->nlayers; i++) {
    const cy_quant_layer *l = &q->layer[i];
    all += l->cycles[0];
    now += l->cycles[!l->keep];
    else_ += l->cycles[!l->keep || for_output(l)];
  }
  return now > 0 && else_ > 0 ? cy_arena_printf(q->arena, " (estimated %.2f times as fast as in float instead of %.2f)",
                                                all / now, all / else_)
                              : "";
}

/* Layers that went back to float although that costs more than a default does unasked. */
static void tell_floor(const cytoc_quantise *how, const cy_quant *q) {
  const cy_quant_output *worst = NULL;
  uint32_t back = 0;
  for (uint32_t k = 0; k < q->noutputs; k++)
    if (!q->output[k].odd && !holds(&q->output[k], q->output[k].before, how->floor_snr) &&
        (!worst || q->output[k].before > worst->before))
      worst = &q->output[k];
  for (uint32_t i = 0; i < q->nlayers; i++)
    back += for_output(&q->layer[i]);
  if (!worst || !back)
    return;
  cy_diag_add(
      how->diag, CY_WARNING, NULL,
      "output '%s' had a signal-to-noise ratio of %.1f dB on the samples; at least %g dB hold unless you ask for "
      "something else, so %u of %u layers are in float for that%s. Each by itself, these cost it most: %s. "
      "--int8-min-snr=off leaves all in integers",
      worst->name, errors_decibels(1, worst->before), how->floor_snr, back, q->nlayers, cost_text(q),
      worst->worst ? worst->worst : "none alone");
}

/* Plain dynamic quantisation: nothing was promised, but so much error is rarely wanted. */
static void tell_estimate(const cytoc_quantise *how, const cy_quant *q) {
  const char *option = q->float8 ? "--fp8" : "--int8";
  char on_samples[100];
  snprintf(on_samples, sizeof on_samples, "Estimate it on your own data by %s=dynamic --calibrate=SAMPLES. ", option);
  for (uint32_t k = 0; k < q->noutputs; k++) {
    const cy_quant_output *o = &q->output[k];
    if (!holds(o, noise_of(o), how->floor_snr))
      cy_diag_add(
          how->diag, CY_WARNING, NULL,
          "output '%s' has an estimated signal-to-noise ratio of %.1f dB on %s%s%s. %s--int8-min-snr=%g leaves "
          "layers in float until it has that, --int8-skip=NAME,.. those that you name; %s=static with samples "
          "may do better; --int8-min-snr=off leaves this unchecked",
          o->name, decibels(o), how->samples ? "the samples" : "random inputs",
          o->worst ? ". Each by itself, these layers cost it most: " : "", o->worst ? o->worst : "",
          how->samples ? "" : on_samples, how->floor_snr, option);
  }
}

void cytoc_whole_check(const cytoc_quantise *how, const cy_quant *q) {
  double db = how->min_snr;
  if (how->floor_snr > 0 && how->min_snr <= 0) {
    tell_estimate(how, q);
    return;
  }
  if (how->floor_snr > 0)
    tell_floor(how, q);
  for (uint32_t k = 0; k < q->noutputs; k++) {
    const cy_quant_output *o = &q->output[k];
    const char *layers =
        o->worst ? cy_arena_printf(q->arena, ". Each by itself, these layers cost it most: %s", o->worst) : "";
    if (holds(o, noise_of(o), db))
      continue;
    if (how->firm_snr)
      cy_diag_add(
          how->diag, CY_WARNING, NULL,
          "output '%s' has a signal-to-noise ratio of %.1f dB on the samples, less than --int8-min-snr=%g, with "
          "all the layers in float that were found to help: leave more of them in float by --int8-max-error or "
          "--int8-skip (--explain lists them), or be content with less%s",
          o->name, decibels(o), db, layers);
    else
      cy_diag_add(how->diag, CY_WARNING, NULL,
                  "output '%s' has a signal-to-noise ratio of %.1f dB on the samples; %g dB would cost much of what "
                  "integers gain. If it is labels that count, see how many are right; for an output more exact but "
                  "slower, give --int8-min-snr=%g; --int8-min-snr=off leaves this unchecked%s",
                  o->name, decibels(o), db, db, layers);
  }
}

void cytoc_whole_table(const cy_quant *q, FILE *out) {
  if (q->unseen)
    fprintf(out, "outputs are not compared with float: %s; --int8-min-snr=DB does it all the same\n", q->unseen);
  for (uint32_t k = 0; k < q->noutputs; k++) {
    const cy_quant_output *o = &q->output[k];
    if (o->odd)
      fprintf(out, "output '%s': not compared with float: %s\n", o->name, o->odd);
    else if (o->noise > 0)
      fprintf(out, "output '%s': signal-to-noise ratio %.1f dB\n", o->name, decibels(o));
    else
      fprintf(out, "output '%s': as in float\n", o->name);
  }
}
