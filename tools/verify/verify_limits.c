/* SPDX-License-Identifier: Apache-2.0 */
/* verify_limits.c - which differences `cytoc verify` allows.
 *
 * In:  the options of compiling, --tolerance, the model. Out: limits, and whether errors are within them.
 *
 * An output of floats is within when its signal-to-noise ratio over all samples and its largest error, over the greatest
 * magnitude that is expected, both are. One number would not do: a single wrong element hides in the ratio of a large output,
 * and the largest error of a long output at low precision says little.
 */
#include "verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The first row that applies: the coarsest precision there is. */
typedef enum precision {
  BUDGET,
  WEIGHTS4,
  INT8,
  WEIGHTS8,
  BF16,
  TF32,
  FP16,
  QUANTISED,
  HALF,
  F32,
  N_PRECISIONS
} precision;
static const verify_limits rows[N_PRECISIONS] = {
    [BUDGET] = {"--accuracy", 20, 0, 0.8, true},
    [WEIGHTS4] = {"weights of 4 bits", 10, 0, 0.5, true},
    [INT8] = {"int8", 20, 0, 0.8, true},
    [WEIGHTS8] = {"weights of 8 bits", 25, 0.25, 0.9, true},
    [BF16] = {"bf16", 25, 0.25, 0.9, true},
    [TF32] = {"tf32", 45, 0.03, 0.98, true},
    [FP16] = {"fp16", 45, 0.03, 0.98, true},
    [QUANTISED] = {"a quantised model", 25, 0.25, 0.98, true},
    [HALF] = {"a model of 16-bit floats", 40, 0.05, 0.98, true},
    [F32] = {"f32", 80, 1e-3, 0.999, false},
};

/* A budget holds on the samples that it was found with; on others the ratio may be so much lower. */
static const double OTHER_SAMPLES_DB = 6;

static bool applies(precision p, const cytoc_options *o, const verify_model *m) {
  switch (p) {
  case BUDGET:
    return o->accuracy;
  case WEIGHTS4:
    return o->weights && !strncmp(o->weights, "int4", 4);
  case INT8:
    return o->int8;
  case WEIGHTS8:
    return o->weights;
  case BF16:
    return o->bf16;
  case TF32:
    return o->tf32;
  case FP16:
    return o->fp16;
  case QUANTISED:
    return verify_model_is_quantised(m);
  case HALF:
    return verify_model_is_half(m);
  default:
    return true;
  }
}

/* "30dB", "99%" or "1e-3". */
static bool read_limit(const char *text, size_t length, verify_limits *out) {
  char word[40], *end;
  if (length >= sizeof word)
    return false;
  snprintf(word, sizeof word, "%.*s", (int)length, text);
  double v = strtod(word, &end);
  if (end == word || !isfinite(v))
    return false;
  if (!strcmp(end, "dB") && v != 0)
    out->snr = v;
  else if (!strcmp(end, "%") && v >= 0 && v <= 100)
    out->equal = v / 100;
  else if (!*end && v > 0)
    out->relative = v;
  else
    return false;
  return true;
}

int verify_limits_choose(const cytoc_options *o, const verify_model *model, verify_limits *out,
                         char error[TENSOR_ERROR_SIZE]) {
  precision p = 0;
  while (!applies(p, o, model))
    p++;
  *out = rows[p];
  if (p == BUDGET && strtod(o->accuracy, NULL) > OTHER_SAMPLES_DB)
    out->snr = strtod(o->accuracy, NULL) - OTHER_SAMPLES_DB;
  if (!o->tolerance)
    return 0;
  out->name = "--tolerance";
  out->snr = out->relative = 0;
  for (const char *at = o->tolerance; *at; at += strcspn(at, ","), at += *at == ',')
    if (!read_limit(at, strcspn(at, ","), out)) {
      snprintf(
          error, TENSOR_ERROR_SIZE,
          "option '--tolerance' expects some of 30dB (signal-to-noise ratio), 1e-3 (largest error over the greatest "
          "value) and 99%% (equal integers) with commas between them, found '%.100s'",
          o->tolerance);
      return -1;
    }
  return 0;
}

const char *verify_limits_beyond(const verify_limits *l, const value_errors *e, char *text, size_t room) {
  double equal = l->step && e->bytes ? errors_near(e) : errors_equal(e);
  if (*e->differ)
    snprintf(text, room, "%s", e->differ);
  else if (e->exact)
    return equal >= l->equal
               ? NULL
               : (snprintf(text, room, "%.4g %% equal, below %.4g %%", 100 * equal, 100 * l->equal), text);
  else if (e->odd)
    snprintf(text, room, "%llu not finite on one side", (unsigned long long)e->odd);
  else if (l->snr != 0 && errors_snr(e) < l->snr)
    snprintf(text, room, "%.1f dB, below %g", errors_snr(e), l->snr);
  else if (l->relative > 0 && errors_relative(e) > l->relative)
    snprintf(text, room, "largest error %.2g of the greatest value, above %g", errors_relative(e), l->relative);
  else
    return NULL;
  return text;
}

void verify_limits_text(const verify_limits *l, char *text, size_t room) {
  int n = snprintf(text, room, "%s:", l->name);
  if (l->snr != 0)
    n += snprintf(text + n, room - (size_t)n, " at least %g dB,", l->snr);
  if (l->relative > 0)
    n += snprintf(text + n, room - (size_t)n, " largest error at most %g of the greatest value,", l->relative);
  snprintf(text + n, room - (size_t)n, " %g %% of integers equal%s", 100 * l->equal,
           l->step ? " (those of 8 bits to one step)" : "");
}
