/* SPDX-License-Identifier: Apache-2.0 */
/* cytoc_quantise.c - calibration: the model with more outputs is run on samples (recorder.h).
 *
 * In:  how to read the model, and samples. Out: a cy_quant with the range of every tensor and the error of every layer.
 *
 *   1. observe   a library whose further outputs are the tensors; every sample runs once for extremes and, unless the
 *                range is just these, once more for histograms between them
 *   2. measure   a library that computes each layer twice, in float and quantised, and puts out their differences:
 *                errors decide which layers stay in float, mean differences per channel become corrections of the bias
 *   3. compare   the quantised library as a whole, beside what the second one's outputs are (cytoc_whole.c)
 *
 * Dynamic quantisation and half precision have no ranges to choose: the first step is left out, and the others are for
 * limits that were asked for, on random numbers where there are no samples. Plain dynamic quantisation is estimated only:
 * one library, by fast codegen, in which layers are in float or in integers as it is set when it runs, does it all.
 */
#define _GNU_SOURCE
#include "cytoc_quantise.h"

#include "cytoc_whole.h"
#include "recorder.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* A tensor as [outer][channels][inner]; calls visit for each run of `inner` values. */
static int each_run(recorder *r, uint32_t t, void (*visit)(void *ctx, uint32_t channel, const float *x, uint64_t n),
                    void *ctx) {
  const cy_quant_tensor *x = &r->q->tensor[t];
  cyto_tensor data;
  uint64_t inner = 1;
  if (recorder_output(r, x->output, &data))
    return -1;
  uint64_t count = data.bytes / sizeof(float);
  for (int32_t i = x->axis + 1; x->axis >= 0 && i < data.rank; i++)
    inner *= (uint64_t)data.dims[i];
  if (x->axis < 0)
    inner = count;
  for (uint64_t at = 0, run = 0; at < count; at += inner, run++)
    visit(ctx, (uint32_t)(run % x->channels), (const float *)data.data + at, inner);
  return 0;
}

/* ---- ranges ----------------------------------------------------------------------------------------------------- */

typedef struct observed {
  range_stats **channel; /* [tensor][channel]: extremes */
  range_stats *whole;    /* [tensor]: of the balanced values */
  bool *odd;             /* had NaN or infinity */
  uint32_t now;          /* tensor being looked at */
  const cy_quant *q;
} observed;

static void extend(void *ctx, uint32_t c, const float *x, uint64_t n) {
  observed *o = ctx;
  o->odd[o->now] |= !range_extend(&o->channel[o->now][c], x, n);
}

static int see_extremes(recorder *r, int sample, void *ctx) {
  (void)sample;
  observed *o = ctx;
  for (o->now = 0; o->now < r->q->ntensors; o->now++) {
    if (each_run(r, o->now, extend, o))
      return -1;
    for (uint32_t c = 0; c < r->q->tensor[o->now].channels; c++)
      range_end_sample(&o->channel[o->now][c]);
  }
  return 0;
}

static double balance_of(const observed *o, uint32_t c) {
  const float *b = o->q->tensor[o->now].balance;
  return b ? b[c] : 1;
}

static void count(void *ctx, uint32_t c, const float *x, uint64_t n) {
  observed *o = ctx;
  range_count(&o->whole[o->now], x, n, 1 / balance_of(o, c));
}

static int see_histograms(recorder *r, int sample, void *ctx) {
  (void)sample;
  observed *o = ctx;
  for (o->now = 0; o->now < r->q->ntensors; o->now++) {
    if (!o->odd[o->now] && each_run(r, o->now, count, o))
      return -1;
    range_end_sample(&o->whole[o->now]);
  }
  return 0;
}

/* Are its channels images, so that each has many values in a sample? */
static bool has_feature_maps(recorder *r, const cy_quant_tensor *x) {
  cyto_tensor data;
  return x->axis >= 0 && !recorder_output(r, x->output, &data) && x->axis + 1 < data.rank;
}

/* Between the two passes: magnitudes of channels, their balance, the extremes of the balanced values. Future samples are
 * allowed for: a channel that is hardly ever active would be scaled up until the few values seen of it fill the range,
 * and larger ones would be cut off. Channels of products have few values in a sample, so they get only half of what the
 * samples differ by. */
static void balance(recorder *r, observed *o) {
  for (uint32_t t = 0; t < r->q->ntensors; t++) {
    cy_quant_tensor *x = &r->q->tensor[t];
    x->max = CY_NEW_ARRAY(r->q->arena, double, x->channels + 1);
    bool images = has_feature_maps(r, x);
    for (uint32_t c = 0; c < x->channels; c++) {
      const range_stats *seen = &o->channel[t][c];
      double end[2] = {fmin(seen->low, 0), fmax(seen->high, 0)};
      if (images)
        range_expect(seen, end);
      x->max[c] = fmax(-end[0], end[1]);
    }
  }
  if (!r->q->float8)
    cy_quant_balance(r->q);
  for (o->now = 0; o->now < r->q->ntensors; o->now++) {
    range_stats *whole = &o->whole[o->now];
    for (uint32_t c = 0; c < r->q->tensor[o->now].channels; c++) {
      const range_stats *x = &o->channel[o->now][c];
      double b = balance_of(o, c);
      whole->low = fmin(whole->low, x->low / b);
      whole->high = fmax(whole->high, x->high / b);
      whole->seen += x->seen;
    }
  }
}

static int observe(recorder *r, observed *o) {
  uint32_t n = r->q->ntensors;
  if (recorder_run(r, "calibrating", INT_MAX, see_extremes, o))
    return -1;
  balance(r, o);
  if (r->how->method == RANGE_MINMAX)
    return 0;
  for (uint32_t t = 0; t < n; t++)
    o->whole[t].bins = CY_NEW_ARRAY(r->q->arena, uint64_t, RANGE_BINS);
  return recorder_run(r, "counting", INT_MAX, see_histograms, o);
}

/* Layers whose input can't be quantised stay in float. */
static void keep_odd(const recorder *r, const observed *o) {
  cy_quant *q = r->q;
  for (uint32_t t = 0; t < q->ntensors; t++) {
    bool zero = o->whole[t].low == 0 && o->whole[t].high == 0;
    if (!zero && !o->odd[t])
      continue;
    for (uint32_t i = 0; i < q->nlayers; i++)
      if (q->layer[i].input == q->tensor[t].value && !q->layer[i].keep) {
        q->layer[i].keep = o->odd[t] ? "its input has NaN or infinity" : "its input is always 0";
        cy_diag_add(r->how->diag, CY_WARNING, NULL, "calibration: layer '%s' stays in float: %s on the samples",
                    q->layer[i].name, q->layer[i].keep);
      }
  }
}

static int choose_ranges(recorder *r) {
  cy_quant *q = r->q;
  observed o = {.channel = CY_NEW_ARRAY(q->arena, range_stats *, q->ntensors + 1),
                .whole = CY_NEW_ARRAY(q->arena, range_stats, q->ntensors + 1),
                .odd = CY_NEW_ARRAY(q->arena, bool, q->ntensors + 1),
                .q = q};
  for (uint32_t t = 0; t < q->ntensors; t++)
    o.channel[t] = CY_NEW_ARRAY(q->arena, range_stats, q->tensor[t].channels);
  if (observe(r, &o))
    return -1;
  for (uint32_t t = 0; t < q->ntensors; t++)
    range_choose(&o.whole[t], r->how->method, &q->tensor[t].low, &q->tensor[t].high);
  keep_odd(r, &o);
  return 0;
}

/* ---- errors ----------------------------------------------------------------------------------------------------- */

typedef struct measured {
  double error, reference, count; /* of a layer, summed over samples */
  double *difference;             /* [channels] */
  double (*end)[2];               /* [nends]: error and reference of outputs of the model */
} measured;

/* A layer that makes outputs of the model all by itself stays in float if one of them would lose more than this: a
 * signal-to-noise ratio of 26 dB. */
static const double MAX_AT_END = 0.05;

typedef struct measuring {
  measured *layer;    /* [nlayers] */
  cytoc_whole *whole; /* NULL: the whole is not compared */
} measuring;

static int see_errors(recorder *r, int sample, void *ctx) {
  const measuring *now = ctx;
  if (now->whole && cytoc_whole_remember(now->whole, r, sample))
    return -1;
  for (uint32_t i = 0; i < r->q->nlayers; i++) {
    measured *m = &now->layer[i];
    const cy_quant_layer *l = &r->q->layer[i];
    cyto_tensor sums, differences;
    if (l->keep)
      continue;
    if (recorder_output(r, l->output, &sums) || recorder_output(r, l->output + 1, &differences))
      return -1;
    m->error += ((const float *)sums.data)[0];
    m->reference += ((const float *)sums.data)[1];
    m->count += ((const float *)sums.data)[2];
    for (uint32_t k = 0; k < 2 * l->nends; k++)
      m->end[k / 2][k % 2] += ((const float *)sums.data)[3 + k];
    for (uint32_t c = 0; c < l->channels; c++)
      m->difference[c] += ((const float *)differences.data)[c];
  }
  return 0;
}

static double relative(double error, double reference) {
  return reference > 0 ? sqrt(error / reference) : error > 0 ? INFINITY : 0;
}

static void judge_ends(const recorder *r, cy_quant_layer *l, const measured *m) {
  for (uint32_t k = 0; k < l->nends && !l->keep; k++) {
    double error = relative(m->end[k][0], m->end[k][1]);
    if (!(error <= MAX_AT_END))
      l->keep = cy_arena_printf(r->q->arena, "alone it changes output '%s' by %.1f %%", l->end[k], error * 100);
  }
}

static void judge(const recorder *r, cy_quant_layer *l, const measured *m) {
  double limit = r->how->max_error;
  l->error = relative(m->error, m->reference);
  if (r->q->mode == CY_QUANT_MEASURE_HALF && !isfinite(m->error) && isfinite(m->reference))
    l->keep = "its values are beyond half precision";
  else if (limit > 0 && !(l->error <= limit))
    l->keep = cy_arena_printf(r->q->arena, "its error is over %g %%", limit * 100);
  judge_ends(r, l, m);
  l->precise = l->keep != NULL;
  float *correct = CY_NEW_ARRAY(r->q->arena, float, l->channels);
  for (uint32_t c = 0; c < l->channels; c++)
    correct[c] = (float)(m->count > 0 && isfinite(m->difference[c]) ? -m->difference[c] / m->count : 0);
  l->correct = correct;
}

/* Runs the model that measures, which is open. */
static int find_errors(recorder *r, cytoc_whole *whole) {
  cy_quant *q = r->q;
  measured *m = CY_NEW_ARRAY(q->arena, measured, q->nlayers + 1);
  for (uint32_t i = 0; i < q->nlayers; i++) {
    m[i].difference = CY_NEW_ARRAY(q->arena, double, q->layer[i].channels + 1);
    m[i].end = cy_arena_alloc(q->arena, (q->layer[i].nends + 1) * sizeof *m[i].end);
    memset(m[i].end, 0, (q->layer[i].nends + 1) * sizeof *m[i].end);
  }
  measuring now = {.layer = m, .whole = whole};
  if (recorder_run(r, "measuring", INT_MAX, see_errors, &now))
    return -1;
  for (uint32_t i = 0; i < q->nlayers; i++)
    if (!q->layer[i].keep)
      judge(r, &q->layer[i], &m[i]);
  return 0;
}

/* ---- all of it -------------------------------------------------------------------------------------------------- */

/* Errors of layers and of the whole, with the model open that measures. `mode`: what follows. */
static int find_all_errors(recorder *r, cy_quant_mode mode) {
  cytoc_whole *whole = r->how->min_snr > 0 && mode != CY_QUANT_HALF ? cytoc_whole_create(r) : NULL;
  int status = find_errors(r, whole);
  recorder_stop(r);
  r->q->mode = mode;
  if (!cy_quant_is_static(mode)) {
    r->q->measured = r->q->layer;
    r->q->nmeasured = r->q->nlayers;
    r->q->layer = NULL;
    r->q->nlayers = 0;
  }
  if (!status && whole)
    status = cytoc_whole_compare(whole, r);
  cytoc_whole_destroy(whole);
  return status;
}

int cytoc_observe(recorder *r) {
  r->q->mode = CY_QUANT_OBSERVE;
  int status = recorder_start(r);
  if (!status && r->model)
    status = recorder_open_samples(r, 1) || choose_ranges(r) ? -1 : 0;
  recorder_stop(r);
  return status;
}

static int run(recorder *r) {
  int status = cytoc_observe(r);
  if (!status && r->q->ntensors) {
    r->q->mode = CY_QUANT_MEASURE;
    status = recorder_start(r);
    if (!status && r->model)
      status = find_all_errors(r, CY_QUANT_STATIC);
  }
  recorder_close(r);
  return status;
}

int cytoc_calibrate(const cytoc_quantise *how, cy_quant *q) {
  recorder r = {.how = how, .q = q};
  int status = run(&r);
  q->mode = CY_QUANT_STATIC;
  return status;
}

int cytoc_measure(const cytoc_quantise *how, cy_quant *q) {
  recorder r = {.how = how, .q = q};
  cy_quant_mode mode = q->mode;
  q->mode = mode == CY_QUANT_HALF ? CY_QUANT_MEASURE_HALF : CY_QUANT_MEASURE_DYNAMIC;
  int status = recorder_start(&r);
  if (!status && r.model) {
    status = recorder_open_samples(&r, 1) || find_all_errors(&r, mode) ? -1 : 0;
    if (status && !how->samples)
      recorder_fail(&r, "layers cannot be measured on random numbers: give samples of the inputs by --calibrate");
  }
  recorder_close(&r);
  q->mode = mode;
  q->layer = NULL;
  q->nlayers = 0;
  return status;
}

/* What takes about half a second: runs in float and in integers. */
static const double ESTIMATE_CYCLES = 2e9;
enum { MAX_RANDOM = 4, MAX_GIVEN = 32 };

/* With the library open that chooses layers; random samples have axes of `size` where these are open. */
static int estimate(recorder *r, int64_t size) {
  double max = ESTIMATE_CYCLES / (2 * RECORDER_FAST_CODEGEN * recorder_cycles(r->q));
  int room = r->how->samples ? MAX_GIVEN : MAX_RANDOM;
  int status = recorder_open_samples(r, size);
  cytoc_whole *whole = status ? NULL : cytoc_whole_create(r);
  if (whole)
    status = cytoc_whole_estimate(whole, r, max < 1 ? 1 : max < room ? (int)max : room);
  cytoc_whole_destroy(whole);
  recorder_close_samples(r);
  return status;
}

int cytoc_estimate(const cytoc_quantise *how, cy_quant *q) {
  static const int64_t sizes[] = {64, 1};
  recorder r = {.how = how, .q = q, .brief = true};
  q->mode = CY_QUANT_SINGLE_DYNAMIC;
  size_t before = cy_diag_count(how->diag);
  int status = recorder_start(&r), tried = 0;
  bool open = !status && r.model;
  do {
    if (open)
      status = estimate(&r, sizes[tried++]);
    if (!status || how->samples)
      break;
    cy_diag_forget(how->diag, before); /* nobody asked for it to run, or on these numbers */
  } while (open && tried < 2);
  q->unseen = r.too_much                ? r.too_much
              : status && !open         ? "the model cannot be run here"
              : status && !how->samples ? "the model does not run on random numbers"
                                        : NULL;
  recorder_close(&r);
  if (status) {
    q->measured = NULL;
    q->nmeasured = 0;
  }
  q->mode = CY_QUANT_DYNAMIC;
  q->layer = NULL;
  q->nlayers = 0;
  return how->samples ? status : 0;
}

static bool in_float(const cy_quant_layer *l) { return l->keep && strcmp(l->keep, CY_QUANT_BLOCKS); }

void cytoc_quantise_check(const cy_quant *q, cy_diag_sink *diag) {
  for (uint32_t i = 0; i < q->nlayers; i++)
    if (!in_float(&q->layer[i]))
      return;
  if (q->nlayers)
    cy_diag_add(diag, CY_WARNING, NULL, "nothing was %s: of %u layers the first, '%s', stays in float: %s",
                q->mode == CY_QUANT_HALF ? "put into half precision" : "quantised", q->nlayers, q->layer[0].name,
                q->layer[0].keep);
  else
    cy_diag_add(
        diag, CY_WARNING, NULL,
        "nothing to quantise: the model has no convolution or matrix product in f32 with constant weights; it stays "
        "in float");
}

static void kilocycles(double cycles, char out[32]) { snprintf(out, 32, cycles > 0 ? "%.1f" : "-", cycles / 1e3); }

void cytoc_quantise_table(const cy_quant *q, const char *what, FILE *out) {
  uint32_t kept = 0;
  const char *other = NULL;
  double all = 0, ints = 0, cycles[2] = {0, 0};
  fprintf(out, "%-40s %-20s %8s %11s %6s kcyc %9s  %s\n", "layer", "shape", "MFLOP", "float kcyc", what, "error %",
          "verdict");
  for (uint32_t i = 0; i < q->nlayers; i++) {
    const cy_quant_layer *l = &q->layer[i];
    char work[32] = "-", error[32] = "-", slow[32], fast[32];
    kilocycles(l->cycles[0], slow);
    kilocycles(l->cycles[1], fast);
    if (l->macs > 0)
      snprintf(work, sizeof work, "%.2f", l->macs * 2e-6);
    if (l->error >= 0)
      snprintf(error, sizeof error, "%.2f", l->error * 100);
    fprintf(out, "%-40.40s %-20s %8s %11s %11s %9s  %s%s\n", l->name, l->shape, work, slow, fast, error,
            in_float(l) ? "float: "
            : l->keep    ? ""
            : l->instead ? l->instead
                         : what,
            l->keep ? l->keep : "");
    other = l->instead && !l->keep ? l->instead : other;
    kept += in_float(l);
    all += l->macs;
    ints += in_float(l) ? 0 : l->macs;
    cycles[0] += l->cycles[0];
    cycles[1] += l->cycles[l->keep ? 0 : 1];
  }
  fprintf(out, "%u of %u layers in %s%s%s", q->nlayers - kept, q->nlayers, what, other ? " or " : "",
          other ? other : "");
  if (all > 0)
    fprintf(out, ", %.1f %% of their arithmetic", 100 * ints / all);
  if (cycles[0] > 0)
    fprintf(out, "; estimated %.2f times as fast as in float", cycles[0] / cycles[1]);
  fputc('\n', out);
}

void cytoc_weights_check(const cy_quant *q, cy_diag_sink *diag) {
  for (uint32_t i = 0; i < q->nlayers; i++)
    if (!q->layer[i].keep)
      return;
  if (q->nlayers)
    cy_diag_add(diag, CY_WARNING, NULL,
                "--weights changed nothing: of %u products with constant weights the first, '%s', stays as it is: %s",
                q->nlayers, q->layer[0].name, q->layer[0].keep);
  else
    cy_diag_add(diag, CY_WARNING, NULL,
                "--weights changed nothing: the model has no matrix product in f32 with constant weights");
}

void cytoc_weights_table(const cy_quant *q, FILE *out) {
  fprintf(out, "%-40s %-20s  %s\n", "product", "shape", "weights");
  for (uint32_t i = 0; i < q->nlayers; i++) {
    const cy_quant_layer *l = &q->layer[i];
    fprintf(out, "%-40.40s %-20s  %s%s\n", l->name, l->shape, l->keep ? "float: " : "integers", l->keep ? l->keep : "");
  }
}
