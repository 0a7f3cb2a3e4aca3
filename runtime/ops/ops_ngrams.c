/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ops_ngrams.c - count_ngrams: how often the n-grams of a pool occur in rows of words. See rt_ops.def.
 *
 * An n-gram of length k may skip the same number of words, 0 to max_skip, between all its members. Words are compared
 * as numbers (of texts, or themselves). The pool is hashed by its members' first and last word and length: pools of
 * many thousand n-grams are usual.
 */
#include "runtime/values.h"

#include <string.h>

typedef struct pool {
  const cyrt_tensor *words, *starts, *columns, *weights;
  int64_t n;      /* n-grams */
  int64_t *first; /* [n + 1] word of each; its length is the distance to the next */
  int32_t *slots; /* -1: free */
  uint64_t mask;
} pool;

static int64_t word_at(const cyrt_tensor *t, int64_t i) {
  return t->dtype == CYTO_STRING ? ((const int32_t *)t->data)[i] : ((const int64_t *)t->data)[i];
}

static int64_t start_at(const pool *p, int64_t length) { /* of the n-grams of this length, in words */
  return length <= p->starts->dims[0] ? ((const int64_t *)p->starts->data)[length - 1] : p->words->dims[0];
}

/* Same words, from `at` on, `step` apart? */
static uint64_t hash_words(const cyrt_tensor *t, int64_t at, int64_t step, int64_t length) {
  uint64_t h = (uint64_t)length * 0x9e3779b97f4a7c15u;
  for (int64_t i = 0; i < length; i++)
    h = (h ^ (uint64_t)word_at(t, at + i * step)) * 0x100000001b3u;
  return h ^ h >> 29;
}

static int32_t *find_slot(const pool *p, const cyrt_tensor *t, int64_t at, int64_t step, int64_t length) {
  for (uint64_t k = hash_words(t, at, step, length) & p->mask;; k = (k + 1) & p->mask) {
    int32_t g = p->slots[k];
    if (g < 0)
      return &p->slots[k];
    int64_t i = 0, have = p->first[g + 1] - p->first[g];
    while (have == length && i < length && word_at(p->words, p->first[g] + i) == word_at(t, at + i * step))
      i++;
    if (have == length && i == length)
      return &p->slots[k];
  }
}

/* Lists the n-grams; 0: the lists do not fit together. */
static int list_ngrams(pool *p) {
  int64_t longest = p->starts->dims[0], words = p->words->dims[0], g = 0;
  for (int64_t length = 1; length <= longest; length++) {
    int64_t from = start_at(p, length), to = start_at(p, length + 1);
    if (from < 0 || to < from || to > words || (to - from) % length)
      return 0;
    for (int64_t at = from; at < to; at += length) {
      if (g == p->n)
        return 0;
      p->first[g++] = at;
    }
  }
  p->first[p->n] = words;
  return g == p->n;
}

static void count_row(const pool *p, const cyrt_tensor *x, int64_t row, int64_t n, const cyrt_attr *attr, float *out) {
  for (int64_t length = attr[1].i; length <= attr[2].i; length++) {
    int64_t skips = length == 1 ? 0 : attr[3].i; /* single words have nothing between them */
    for (int64_t skip = 0; skip <= skips; skip++)
      for (int64_t at = 0; at + (length - 1) * (skip + 1) < n; at++) {
        int32_t g = *find_slot(p, x, row * n + at, skip + 1, length);
        if (g >= 0)
          out[((const int64_t *)p->columns->data)[g]] += 1;
      }
  }
}

static void weigh(const pool *p, int64_t mode, float *row) {
  for (int64_t g = 0; g < p->n && mode != CYRT_TERM_COUNT; g++) {
    float *cell = &row[((const int64_t *)p->columns->data)[g]], weight = ((const float *)p->weights->data)[g];
    *cell = mode == CYRT_TERM_INVERSE ? (*cell > 0 ? weight : 0) : *cell * weight;
  }
}

int32_t cyrt_op_count_ngrams(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,
                             const cyrt_attr *attr) {
  (void)n_in, (void)n_out;
  pool p = {&in[1], &in[2], &in[3], &in[4], in[3].dims[0], NULL, NULL, 63};
  int64_t n = in[0].dims[in[0].rank - 1], rows = in[0].rank == 2 ? in[0].dims[0] : 1,
          columns = out[0].dims[out[0].rank - 1];
  while (p.mask < (uint64_t)p.n * 2)
    p.mask = p.mask * 2 + 1;
  uint64_t firsts = (uint64_t)(p.n + 1) * sizeof *p.first, slots = (p.mask + 1) * sizeof *p.slots;
  if (!(p.first = cyrt_scratch_alloc(frame, firsts + slots)))
    return cyrt_fail(frame, CYTO_OUT_OF_MEMORY, "count_ngrams: no memory for scratch");
  p.slots = (int32_t *)(p.first + p.n + 1);
  memset(p.slots, 0xff, slots);
  int fits = list_ngrams(&p);
  for (int64_t g = 0; g < p.n && fits; g++)
    *find_slot(&p, p.words, p.first[g], 1, p.first[g + 1] - p.first[g]) = (int32_t)g;
  memset(out[0].data, 0, (size_t)(rows * columns) * sizeof(float));
  for (int64_t row = 0; row < rows && fits; row++) {
    count_row(&p, &in[0], row, n, attr, (float *)out[0].data + row * columns);
    weigh(&p, attr[0].i, (float *)out[0].data + row * columns);
  }
  cyrt_scratch_free(frame, p.first, firsts + slots);
  return fits ? CYTO_OK
              : cyrt_fail(frame, CYTO_INVALID_ARGUMENT, "count_ngrams: the pool and its index do not fit together");
}
