/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate.h - samples for calibration, and the ranges of tensors seen on them. */
#ifndef CALIBRATE_H
#define CALIBRATE_H

#include "tools/values/tensor_file.h"

#include <stdbool.h>

/* ---- samples.c: --calibrate=DIR|FILE.npz ----
 *
 * A folder holds either a folder for each sample, or the files of one sample, or (for models with one input) a file for
 * each sample. Files are .npy or .pb; in the folder of a sample that of input K, called NAME, is NAME.npy, in_K_*.npy
 * or input_K.pb (characters other than letters, digits, '.', '-' and '_' in NAME are written as '_'); out_* and
 * output_* are left alone. Samples are taken in the
 * order of their names, numbers in them by value.
 * A .npz (numpy.savez, numpy.savez_compressed) holds an array for each input, called NAME or in_K or arr_K: either with
 * one axis more than the input, the first, that counts samples, or of the input's rank, cut along its first axis into
 * pieces of the input's size (1 where that is not fixed).
 */
typedef struct sample_set sample_set;
/* `model`: for the names, types and ranks of its first `ninputs` inputs. NULL with a text in `error`. */
sample_set *samples_open(const char *path, const cyto_model *model, int32_t ninputs, char error[TENSOR_ERROR_SIZE]);
/* A set of n samples of random numbers (host_tensor_randomize); dims that are not fixed are `size`, batches 1. */
sample_set *samples_random(const cyto_model *model, int32_t ninputs, int n, int64_t size,
                           char error[TENSOR_ERROR_SIZE]);
void samples_close(sample_set *s);
int samples_count(const sample_set *s);
const char *samples_name(const sample_set *s, int i); /* for messages */
/* Reads sample i: a tensor for each input (those of optional inputs that it lacks have no data). host_tensor_free each.
 */
int samples_read(sample_set *s, int i, host_tensor *out_tensors, char error[TENSOR_ERROR_SIZE]);

/* ---- npz.c --------------------------------------------------------------------------------------------------------- */

/* Sees the checked contents of one entry, which it may write to. 0, or -1 with a text in `error`. */
typedef int npz_visit(void *ctx, const char *entry, uint8_t *bytes, size_t size, char error[TENSOR_ERROR_SIZE]);
/* Every entry of the archive at `path`, in the order of its directory, until one fails. */
int npz_each(const char *path, npz_visit *visit, void *ctx, char error[TENSOR_ERROR_SIZE]);

/* ---- ranges.c: what was seen of a tensor ---- */

enum { RANGE_BINS = 16384 };
typedef enum range_method { RANGE_MINMAX, RANGE_PERCENTILE, RANGE_ENTROPY, RANGE_MSE, RANGE_METHODS } range_method;

typedef struct range_stats {
  double low, high; /* first pass */
  uint64_t seen;
  uint64_t *bins; /* second pass: RANGE_BINS of them between low and high; NULL for min-max */
  double now[2];  /* least and greatest value of the sample at hand, or 0 */
  double sum[2], squares[2]; /* of these, over `samples` samples of one of the passes */
  uint32_t samples;
} range_stats;

/* By the name that --calibration takes; RANGE_METHODS when unknown. */
range_method range_method_of(const char *name);
/* First pass. False when there is a NaN or infinity. */
bool range_extend(range_stats *r, const float *x, uint64_t n);
/* Second pass, with low and high known, of values times `factor`. */
void range_count(range_stats *r, const float *x, uint64_t n, double factor);
/* All values of a sample have been seen: in the pass whose samples are to be told apart, after each. */
void range_end_sample(range_stats *r);
/* The extremes that a further sample may have. */
void range_expect(const range_stats *r, double out[2]);
/* What u8 shall span. */
void range_choose(const range_stats *r, range_method method, double *out_low, double *out_high);

#endif
