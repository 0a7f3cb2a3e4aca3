/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ops.c - operators that are no loop nests: top-k, non-zero, unique. rt_ops.def documents them, ops_nms.c has one more.
 *
 * Searching and sorting work on keys: a 64-bit unsigned number per element that orders like the elements do, whatever
 * their type (NaN above everything, -0 equal to 0). So each operator is written once, and ties are broken by index,
 * which makes every result deterministic.
 *
 * Operators with outputs of data-dependent size are called twice. The first call does the work and leaves the result in
 * the context's stash; the second takes it from there, or does the work again when there is no context.
 */
#include "runtime/cyrt.h"

#include "runtime/half.h"

#include <string.h>

/* ---- keys ---- */

static uint64_t key_of_float(float value) {
  if (isnan(value))
    return UINT64_MAX;
  uint32_t bits = cyrt_f32_bits(value == 0 ? 0.0f : value);
  return bits ^ (-(bits >> 31) | 0x80000000u); /* all bits of a negative number, else the sign; no branch to guess */
}

static uint64_t key_of_double(double value) {
  uint64_t bits;
  if (isnan(value))
    return UINT64_MAX;
  value = value == 0 ? 0.0 : value;
  memcpy(&bits, &value, sizeof bits);
  return bits ^ (-(bits >> 63) | (uint64_t)1 << 63);
}

static uint64_t key_of_signed(int64_t value) { return (uint64_t)value ^ (uint64_t)1 << 63; }

/* dtype, its C type, the key of a value v, whether v is not zero. */
#define KEY_ROWS(X)                                                                                                    \
  X(CYTO_F32, float, key_of_float(v), v != 0)                                                                          \
  X(CYTO_F64, double, key_of_double(v), v != 0)                                                                        \
  X(CYTO_F16, uint16_t, key_of_float(cyrt_f16_to_f32(v)), (v & 0x7fff) != 0)                                           \
  X(CYTO_BF16, uint16_t, key_of_float(cyrt_bf16_to_f32(v)), (v & 0x7fff) != 0)                                         \
  X(CYTO_I8, int8_t, key_of_signed(v), v != 0)                                                                         \
  X(CYTO_I16, int16_t, key_of_signed(v), v != 0)                                                                       \
  X(CYTO_I32, int32_t, key_of_signed(v), v != 0)                                                                       \
  X(CYTO_I64, int64_t, key_of_signed(v), v != 0)                                                                       \
  X(CYTO_U8, uint8_t, v, v != 0)                                                                                       \
  X(CYTO_BOOL, uint8_t, v, v != 0)                                                                                     \
  X(CYTO_U16, uint16_t, v, v != 0)                                                                                     \
  X(CYTO_U32, uint32_t, v, v != 0)                                                                                     \
  X(CYTO_U64, uint64_t, v, v != 0)

/* A row of the switch below: out[i] = value of element base + i * stride. */
#define EACH(dtype_, type, value)                                                                                      \
  case dtype_:                                                                                                         \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
      type v = ((const type *)in->data)[base + i * stride];                                                            \
      out[i] = (value);                                                                                                \
    }                                                                                                                  \
    break;
#define EACH_KEY(dtype_, type, key, some) EACH(dtype_, type, key)
#define EACH_SOME(dtype_, type, key, some) EACH(dtype_, type, some)

/* The keys of n elements from `base` on, `stride` apart: one switch for all of them. */
static void keys_read(const cyrt_tensor *in, int64_t base, int64_t stride, int64_t n, uint64_t *out) {
  switch (in->dtype) {
    KEY_ROWS(EACH_KEY)
  default:
    break; /* check_dtype() came before */
  }
}

/* 1 for each of n elements from `base` on that is not zero, else 0. */
static void flags_read(const cyrt_tensor *in, int64_t base, int64_t n, uint8_t *out) {
  enum { stride = 1 };
  switch (in->dtype) {
    KEY_ROWS(EACH_SOME)
  default:
    break; /* check_dtype() came before */
  }
}

static uint64_t key_at(const cyrt_tensor *in, int64_t i) {
  uint64_t key = 0;
  keys_read(in, i, 1, 1, &key);
  return key;
}

static int32_t check_dtype(cyrt_frame *frame, const char *op, int32_t dtype) {
  switch (dtype) {
#define X(dtype_, type, key, some) case dtype_:
    KEY_ROWS(X)
#undef X
    return CYTO_OK;
  default:
    return cyrt_fail(frame, CYTO_DTYPE_MISMATCH, "%s: element type %s is not supported", op, cyto_dtype_name(dtype));
  }
}

static int32_t no_memory(cyrt_frame *frame, const char *op) {
  return cyrt_fail(frame, CYTO_OUT_OF_MEMORY, "%s: no memory for scratch", op);
}

/* ---- sorting pairs: no two are equal, since indices differ ---- */

typedef struct pair {
  uint64_t key;
  int64_t index;
} pair;

static int pair_less(pair a, pair b) { return a.key != b.key ? a.key < b.key : a.index < b.index; }

/* Restores the heap (largest on top) below `at`. */
static void sift_down(pair *pairs, int64_t at, int64_t n) {
  pair moving = pairs[at];
  for (int64_t child; (child = 2 * at + 1) < n; at = child) {
    child += child + 1 < n && pair_less(pairs[child], pairs[child + 1]);
    if (!pair_less(moving, pairs[child]))
      break;
    pairs[at] = pairs[child];
  }
  pairs[at] = moving;
}

static void make_heap(pair *pairs, int64_t n) {
  for (int64_t i = n / 2; i-- > 0;)
    sift_down(pairs, i, n);
}

static void sort_heap(pair *pairs, int64_t n) {
  while (n > 1) {
    pair top = pairs[0];
    pairs[0] = pairs[--n];
    pairs[n] = top;
    sift_down(pairs, 0, n);
  }
}

static void sort_small(pair *pairs, int64_t n) {
  for (int64_t i = 1; i < n; i++) {
    pair moving = pairs[i];
    int64_t at = i;
    for (; at > 0 && pair_less(moving, pairs[at - 1]); at--)
      pairs[at] = pairs[at - 1];
    pairs[at] = moving;
  }
}

/* Splits around the median of three; returns how many stand in the lower part (at least one, at most n - 1). */
static int64_t partition(pair *pairs, int64_t n) {
  pair a = pairs[0], b = pairs[n / 2], c = pairs[n - 1];
  pair pivot = pair_less(a, b) ? (pair_less(b, c)   ? b
                                  : pair_less(a, c) ? c
                                                    : a)
                               : (pair_less(a, c)   ? a
                                  : pair_less(b, c) ? c
                                                    : b);
  int64_t low = -1, high = n;
  for (;;) {
    while (pair_less(pairs[++low], pivot))
      ;
    while (pair_less(pivot, pairs[--high]))
      ;
    if (low >= high)
      return low;
    pair swapped = pairs[low];
    pairs[low] = pairs[high];
    pairs[high] = swapped;
  }
}

/* Puts the k smallest first, in order. Quicksort that leaves parts beyond k alone, and heapsort where it goes too deep.
 */
static void sort_first(pair *pairs, int64_t n, int64_t k) {
  for (int depth = 0; n > 1 && k > 0; depth++) {
    if (n <= 16) {
      sort_small(pairs, n);
      return;
    }
    if (depth == 96) {
      make_heap(pairs, n);
      sort_heap(pairs, n);
      return;
    }
    int64_t lower = partition(pairs, n);
    if (k <= lower) {
      n = lower;
      continue;
    }
    /* The lower part is wanted whole: recurse into the smaller side, so that the stack stays short. */
    if (lower <= n - lower) {
      sort_first(pairs, lower, lower);
      pairs += lower;
      n -= lower;
      k -= lower;
    } else {
      sort_first(pairs + lower, n - lower, k - lower);
      n = k = lower;
    }
  }
}

/* ---- topk ---- */

typedef struct topk_task {
  const cyrt_tensor *in;
  cyrt_tensor *values, *indices;
  int64_t n, k, inner; /* elements along the axis, wanted ones, elements between neighbours of the axis */
  uint64_t flip;       /* xor'ed to keys, so that the smallest key is the first wanted */
  int64_t pairs;       /* scratch of a worker */
  pair *scratch;
} topk_task;

enum { KEY_BLOCK = 256, KEY_SKIP = 16 };

/* May one of KEY_SKIP elements be better than `worst`? Compares without branches: most blocks hold none. */
static int any_better(const float *x, float worst, int greatest) {
  int better = 0;
  if (greatest)
    for (int i = 0; i < KEY_SKIP; i++)
      better |= !(x[i] <= worst);
  else
    for (int i = 0; i < KEY_SKIP; i++)
      better |= !(x[i] >= worst);
  return better;
}

/* Small k: one pass with the k best so far in a heap, the worst of them on top. Later elements lose ties, so only a
 * smaller key can enter a full heap. */
static void topk_by_heap(const topk_task *t, int64_t base, pair *pairs) {
  uint64_t keys[KEY_BLOCK];
  const float *row = t->in->dtype == CYTO_F32 && t->inner == 1 ? (const float *)t->in->data + base : NULL;
  for (int64_t begin = 0, count; begin < t->n; begin += count) {
    count = t->n - begin < KEY_BLOCK ? t->n - begin : KEY_BLOCK;
    if (row && begin >= t->k && count >= KEY_SKIP) {
      count = KEY_SKIP;
      if (!any_better(row + begin, row[pairs[0].index], t->flip != 0))
        continue;
    }
    keys_read(t->in, base + begin * t->inner, t->inner, count, keys);
    for (int64_t i = 0; i < count; i++) {
      pair next = {keys[i] ^ t->flip, begin + i};
      if (begin + i < t->k) {
        pairs[begin + i] = next;
        if (begin + i == t->k - 1)
          make_heap(pairs, t->k);
      } else if (next.key < pairs[0].key) {
        pairs[0] = next;
        sift_down(pairs, 0, t->k);
      }
    }
  }
  sort_heap(pairs, t->k);
}

static void topk_by_sort(const topk_task *t, int64_t base, pair *pairs) {
  uint64_t keys[KEY_BLOCK];
  for (int64_t begin = 0; begin < t->n; begin += KEY_BLOCK) {
    int64_t count = t->n - begin < KEY_BLOCK ? t->n - begin : KEY_BLOCK;
    keys_read(t->in, base + begin * t->inner, t->inner, count, keys);
    for (int64_t i = 0; i < count; i++)
      pairs[begin + i] = (pair){keys[i] ^ t->flip, begin + i};
  }
  sort_first(pairs, t->n, t->k);
}

static void topk_kernel(const cyrt_slot *args, int64_t begin, int64_t end, int64_t worker) {
  const topk_task *t = args[0].ptr;
  pair *pairs = t->scratch + worker * t->pairs;
  size_t unit = (size_t)cyto_dtype_bits(t->in->dtype) / 8;
  for (int64_t row = begin; row < end; row++) {
    int64_t outer = row / t->inner, within = row % t->inner;
    int64_t from = outer * t->n * t->inner + within, to = outer * t->k * t->inner + within;
    if (t->pairs == t->n)
      topk_by_sort(t, from, pairs);
    else
      topk_by_heap(t, from, pairs);
    for (int64_t i = 0; i < t->k; i++) {
      int64_t at = to + i * t->inner, source = from + pairs[i].index * t->inner;
      if (t->values->data)
        memcpy((char *)t->values->data + (size_t)at * unit, (const char *)t->in->data + (size_t)source * unit, unit);
      if (t->indices->data)
        ((int64_t *)t->indices->data)[at] = pairs[i].index;
    }
  }
}

int32_t cyrt_op_topk(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,
                     const cyrt_attr *attr) {
  static cyrt_tensor nothing; /* never written: data is NULL */
  int64_t axis = attr[0].i < 0 ? attr[0].i + in->rank : attr[0].i;
  (void)n_in;
  int32_t status = check_dtype(frame, "TopK", in->dtype);
  if (status)
    return status;
  if (axis < 0 || axis >= in->rank || out->rank != in->rank)
    return cyrt_fail(frame, CYTO_INVALID_ARGUMENT, "TopK: axis %lld of a tensor of rank %lld", (long long)attr[0].i,
                     (long long)in->rank);
  topk_task t = {.in = in, .values = &out[0], .indices = n_out > 1 ? &out[1] : &nothing};
  t.n = in->dims[axis];
  t.k = out->dims[axis];
  t.inner = cyrt_count(in->rank - (int32_t)axis - 1, in->dims + axis + 1);
  t.flip = attr[1].i ? UINT64_MAX : 0;
  if (t.k < 0 || t.k > t.n)
    return cyrt_fail(frame, CYTO_INVALID_ARGUMENT, "TopK: k is %lld, expected 0 to the size of axis %lld, %lld",
                     (long long)t.k, (long long)axis, (long long)t.n);
  int64_t rows = cyrt_count((int32_t)axis, in->dims) * t.inner;
  if (!rows || !t.k)
    return CYTO_OK;
  t.pairs = t.k <= t.n / 8 && t.k <= 4096 ? t.k : t.n;
  int64_t grain = 16384 / t.n + 1, workers = rows <= grain ? 1 : frame->workers;
  uint64_t bytes = (uint64_t)workers * (uint64_t)t.pairs * sizeof(pair);
  if (!(t.scratch = cyrt_scratch_alloc(frame, bytes)))
    return no_memory(frame, "TopK");
  cyrt_slot args[] = {{.ptr = &t}};
  cyrt_parallel_for(frame, topk_kernel, args, rows, grain);
  cyrt_scratch_free(frame, t.scratch, bytes);
  return CYTO_OK;
}

/* ---- nonzero ---- */

static int64_t nonzero_count(const cyrt_tensor *in, int64_t n) {
  uint8_t flags[KEY_BLOCK];
  int64_t found = 0;
  for (int64_t begin = 0; begin < n; begin += KEY_BLOCK) {
    int64_t count = n - begin < KEY_BLOCK ? n - begin : KEY_BLOCK;
    uint32_t some = 0;
    flags_read(in, begin, count, flags);
    for (int64_t i = 0; i < count; i++)
      some += flags[i];
    found += some;
  }
  return found;
}

int32_t cyrt_op_nonzero(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,
                        const cyrt_attr *attr) {
  int64_t n = cyrt_count(in->rank, in->dims), index[CYTO_MAX_RANK] = {0}, seen = 0;
  (void)n_in, (void)n_out, (void)attr;
  int32_t status = check_dtype(frame, "NonZero", in->dtype);
  if (status)
    return status;
  if (!out->data) {
    out->rank = 2;
    out->dims[0] = in->rank;
    out->dims[1] = nonzero_count(in, n);
    return CYTO_OK;
  }
  if (!in->rank)
    return CYTO_OK;
  int32_t last = in->rank - 1;
  int64_t *to = out->data, count = out->dims[1];
  uint8_t flags[KEY_BLOCK];
  for (int64_t begin = 0; begin < n && seen < count; begin += KEY_BLOCK) {
    int64_t block = n - begin < KEY_BLOCK ? n - begin : KEY_BLOCK;
    flags_read(in, begin, block, flags);
    for (int64_t i = 0; i < block && seen < count;) { /* what the block has of a row */
      int64_t first = seen, at = index[last], rest = in->dims[last] - at, end = block - i < rest ? block : i + rest;
      int64_t *next = to + last * count;
      for (; i < end && seen < count; i++) { /* without a branch, which would be a guess */
        next[seen] = at++;
        seen += flags[i];
      }
      index[last] = at;
      for (int32_t axis = 0; axis < last; axis++)
        for (int64_t k = first; k < seen; k++)
          to[axis * count + k] = index[axis];
      for (int32_t axis = last; axis > 0 && index[axis] == in->dims[axis]; axis--) {
        index[axis] = 0;
        index[axis - 1]++;
      }
    }
  }
  return CYTO_OK;
}

int32_t cyrt_op_refuse(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,
                       const cyrt_attr *attr) {
  (void)in, (void)n_in, (void)out, (void)n_out, (void)attr;
  return cyrt_fail(frame, CYTO_INVALID_ARGUMENT,
                   "the inputs lead into a branch of this If that is not valid for the model (cytoc warned of it)");
}

int32_t cyrt_op_require_found(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,
                              const cyrt_attr *attr) {
  (void)n_in, (void)n_out;
  int64_t count = cyrt_count(in[0].rank, in[0].dims), *to = out[0].data;
  const int64_t *at = in[0].data;
  for (int64_t i = 0; i < count; i++) {
    if (at[i] >= attr[0].i)
      return cyrt_fail(frame, CYTO_INVALID_ARGUMENT,
                       "a look-up: element %lld of the input is none of the %lld values that the model knows", (long long)i,
                       (long long)attr[0].i);
    to[i] = at[i];
  }
  return CYTO_OK;
}

/* ---- unique ---- */

/* The items compared: `n` of them, each with `outer` runs of `inner` elements (one of one when flattened). */
typedef struct unique_view {
  const cyrt_tensor *in;
  int64_t n, outer, inner;
} unique_view;

/* What the first call finds: for each item its group, in the order of output; then per group its first item and its
 * size. */
typedef struct unique_result {
  int64_t groups, *inverse, *first, *counts;
  uint64_t bytes;
  int64_t *block; /* groups, then the three tables */
} unique_result;

static uint64_t item_key(const unique_view *v, int64_t item, int64_t part) {
  int64_t at = (part / v->inner * v->n + item) * v->inner + part % v->inner;
  return key_at(v->in, at);
}

static int item_compare(const unique_view *v, int64_t a, int64_t b) {
  for (int64_t part = 0; part < v->outer * v->inner; part++) {
    uint64_t x = item_key(v, a, part), y = item_key(v, b, part);
    if (x != y)
      return x < y ? -1 : 1;
  }
  return 0;
}

/* Sorts items stably: order[] from `from` merged into `to`, runs doubling. Returns the one that holds the result. */
static int64_t *sort_items(const unique_view *v, int64_t *from, int64_t *to) {
  for (int64_t run = 1; run < v->n; run *= 2) {
    for (int64_t begin = 0; begin < v->n; begin += 2 * run) {
      int64_t middle = begin + run < v->n ? begin + run : v->n, end = middle + run < v->n ? middle + run : v->n;
      int64_t left = begin, right = middle;
      for (int64_t at = begin; at < end; at++) {
        int take_left = right >= end || (left < middle && item_compare(v, from[left], from[right]) <= 0);
        to[at] = take_left ? from[left++] : from[right++];
      }
    }
    int64_t *swapped = from;
    from = to;
    to = swapped;
  }
  return from;
}

/* Sorts n pairs by their keys, stably: byte by byte, but for bytes that all keys have in common. Returns where they are
 * then, in `pairs` or in `other`. */
static pair *sort_bytes(pair *pairs, pair *other, int64_t n) {
  for (int shift = 0; shift < 64; shift += 8) {
    int64_t begin[256] = {0}, sum = 0;
    for (int64_t i = 0; i < n; i++)
      begin[pairs[i].key >> shift & 255]++;
    if (begin[pairs[0].key >> shift & 255] == n)
      continue;
    for (int byte = 0; byte < 256; byte++) {
      int64_t count = begin[byte];
      begin[byte] = sum;
      sum += count;
    }
    for (int64_t i = 0; i < n; i++)
      other[begin[pairs[i].key >> shift & 255]++] = pairs[i];
    pair *swapped = pairs;
    pairs = other;
    other = swapped;
  }
  return pairs;
}

/* The next item is `item`, and begins a group if `fresh`. */
static void group_item(unique_result *r, int64_t item, int fresh) {
  if (fresh) {
    r->first[r->groups] = item;
    r->counts[r->groups++] = 0;
  }
  r->inverse[item] = r->groups - 1;
  r->counts[r->groups - 1]++;
}

/* Numbers the groups of single elements; scratch has room for two pairs each. */
static void group_elements(const unique_view *v, pair *scratch, unique_result *r) {
  uint64_t keys[KEY_BLOCK];
  for (int64_t begin = 0; begin < v->n; begin += KEY_BLOCK) {
    int64_t count = v->n - begin < KEY_BLOCK ? v->n - begin : KEY_BLOCK;
    keys_read(v->in, begin, 1, count, keys);
    for (int64_t i = 0; i < count; i++)
      scratch[begin + i] = (pair){keys[i], begin + i};
  }
  const pair *sorted = v->n ? sort_bytes(scratch, scratch + v->n, v->n) : scratch;
  for (int64_t i = 0; i < v->n; i++)
    group_item(r, sorted[i].index, !i || sorted[i].key != sorted[i - 1].key);
}

/* The same of subtensors. Both orders are stable, so a group's first member comes first. */
static void group_items(const unique_view *v, int64_t *scratch, unique_result *r) {
  for (int64_t i = 0; i < v->n; i++)
    scratch[i] = i;
  const int64_t *order = sort_items(v, scratch, scratch + v->n);
  for (int64_t i = 0; i < v->n; i++)
    group_item(r, order[i], !i || item_compare(v, order[i - 1], order[i]));
}

/* Renumbers groups by their first item; scratch has room for two numbers per group. */
static void groups_by_occurrence(const unique_view *v, unique_result *r, int64_t *scratch) {
  int64_t *number = scratch, *counts = scratch + r->groups, seen = 0;
  for (int64_t g = 0; g < r->groups; g++) {
    number[g] = -1;
    counts[g] = r->counts[g];
  }
  for (int64_t i = 0; i < v->n; i++) {
    int64_t group = r->inverse[i];
    if (number[group] < 0) {
      number[group] = seen;
      r->first[seen] = i;
      r->counts[seen++] = counts[group];
    }
    r->inverse[i] = number[group];
  }
}

static void unique_tables(unique_result *r, int64_t n) {
  r->groups = r->block[0];
  r->inverse = r->block + 1;
  r->first = r->inverse + n;
  r->counts = r->first + n;
}

static int32_t unique_find(cyrt_frame *frame, const unique_view *v, int sorted, unique_result *r) {
  uint64_t scratch_bytes = (uint64_t)v->n * 2 * sizeof(pair);
  void *scratch = cyrt_scratch_alloc(frame, scratch_bytes);
  r->bytes = ((uint64_t)v->n * 3 + 1) * sizeof(int64_t);
  r->block = scratch ? cyrt_scratch_alloc(frame, r->bytes) : NULL;
  if (!r->block) {
    cyrt_scratch_free(frame, scratch, scratch_bytes);
    return no_memory(frame, "Unique");
  }
  r->block[0] = 0;
  unique_tables(r, v->n);
  if (v->outer * v->inner == 1)
    group_elements(v, scratch, r);
  else
    group_items(v, scratch, r);
  r->block[0] = r->groups;
  if (!sorted)
    groups_by_occurrence(v, r, scratch);
  cyrt_scratch_free(frame, scratch, scratch_bytes);
  return CYTO_OK;
}

static void unique_set_dims(const unique_view *v, int has_axis, int64_t axis, int64_t groups, cyrt_tensor *out,
                            int32_t n_out) {
  for (int32_t i = 0; i < n_out; i++) {
    out[i].rank = 1;
    out[i].dims[0] = i == 2 ? v->n : groups;
  }
  if (has_axis) {
    out[0].rank = v->in->rank;
    memcpy(out[0].dims, v->in->dims, sizeof out[0].dims);
    out[0].dims[axis] = groups;
  }
}

static void unique_emit(const unique_view *v, const unique_result *r, cyrt_tensor *out, int32_t n_out) {
  size_t unit = (size_t)cyto_dtype_bits(v->in->dtype) / 8, run = (size_t)v->inner * unit;
  char *to = out[0].data;
  const char *from = v->in->data;
  for (int64_t o = 0; to && run && r->groups && o < v->outer; o++)
    for (int64_t g = 0; g < r->groups; g++)
      memcpy(to + (size_t)(o * r->groups + g) * run, from + (size_t)(o * v->n + r->first[g]) * run, run);
  if (n_out > 1 && out[1].data)
    memcpy(out[1].data, r->first, (size_t)r->groups * sizeof(int64_t));
  if (n_out > 2 && out[2].data)
    memcpy(out[2].data, r->inverse, (size_t)v->n * sizeof(int64_t));
  if (n_out > 3 && out[3].data)
    memcpy(out[3].data, r->counts, (size_t)r->groups * sizeof(int64_t));
}

int32_t cyrt_op_unique(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,
                       const cyrt_attr *attr) {
  static const char tag;
  int64_t axis = attr[1].i < 0 ? attr[1].i + in->rank : attr[1].i;
  int has_axis = attr[0].i != 0, sizing = 1;
  unique_view v = {in, cyrt_count(in->rank, in->dims), 1, 1};
  unique_result r = {0};
  (void)n_in;
  int32_t status = check_dtype(frame, "Unique", in->dtype);
  if (status)
    return status;
  if (has_axis && (axis < 0 || axis >= in->rank))
    return cyrt_fail(frame, CYTO_INVALID_ARGUMENT, "Unique: axis %lld of a tensor of rank %lld", (long long)attr[1].i,
                     (long long)in->rank);
  if (has_axis)
    v = (unique_view){in, in->dims[axis], cyrt_count((int32_t)axis, in->dims),
                      cyrt_count(in->rank - (int32_t)axis - 1, in->dims + axis + 1)};
  for (int32_t i = 0; i < n_out; i++)
    sizing &= !out[i].data;
  r.block = sizing ? NULL : cyrt_stash_take(frame, &tag, &r.bytes);
  if (r.block)
    unique_tables(&r, v.n);
  else if ((status = unique_find(frame, &v, attr[2].i != 0, &r)))
    return status;
  if (sizing) {
    unique_set_dims(&v, has_axis, axis, r.groups, out, n_out);
    cyrt_stash_put(frame, &tag, r.block, r.bytes);
  } else {
    unique_emit(&v, &r, out, n_out);
    cyrt_scratch_free(frame, r.block, r.bytes);
  }
  return CYTO_OK;
}
