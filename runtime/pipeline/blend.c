/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* blend.c - results of overlapping tiles become a region of one image: weighted means, or what is decided by them.
 *
 * In:  tiles, float32 [lead, tile..], each with its origin; the weights of a tile's voxels; a region.
 * Out: the region. Sums are made in the order of the tiles, and rounded after every product and sum (-ffp-contract=off),
 *      so that they are NumPy's, which blends where there is no memory for all tiles.
 *
 * The region is cut at the borders of tiles into boxes that have the same tiles everywhere; of a box a line of the last axis
 * is done at once, in arrays that stay in the first cache. So a tile's result is read once, and nothing but the region is
 * written.
 */
#include "pipeline_int.h"

enum { LINE = 512 }; /* voxels of a line that are done at once */

typedef struct blending {
  const cyto_blend *how;
  const int64_t *start, *stop; /* the region */
  int64_t box_start[CYTO_MAX_RANK], box_stop[CYTO_MAX_RANK];
  int64_t strides[CYTO_MAX_RANK]; /* of a tile */
  int64_t region[CYTO_MAX_RANK];  /* strides of the region */
  int64_t tile_size, region_size;
  const cyto_tile **lists; /* [rank + 1][count]: the tiles that lie in the box, by the axes so far */
  int64_t *offsets;        /* [count] of the line in each of them */
  void *out;
  void (*line)(const struct blending *b, const cyto_tile *const *tiles, int64_t n, int64_t to, int64_t length);
} blending;

/* ---- a line ---- */

/* Loops over voxels are compiled for the vectors of newer CPUs as well, and always become part of who calls them. */
#if defined(__x86_64__) && defined(__GNUC__)
#define WIDER __attribute__((target("avx2")))
#define WIDER_FEATURES "avx2"
#else
#define WIDER
#define WIDER_FEATURES ""
#endif
#define INLINE static inline __attribute__((always_inline))

INLINE void sums_begin(float *restrict sums, const float *restrict values, const float *restrict weights, int64_t n) {
  for (int64_t x = 0; x < n; x++)
    sums[x] = 0.0f + values[x] * weights[x];
}

INLINE void sums_add(float *restrict sums, const float *restrict values, const float *restrict weights, int64_t n) {
  for (int64_t x = 0; x < n; x++)
    sums[x] += values[x] * weights[x];
}

INLINE void counts_begin(float *restrict counts, const float *restrict a, const float *restrict b, int64_t n) {
  for (int64_t x = 0; x < n; x++)
    counts[x] = a[x] + b[x];
}

INLINE void counts_add(float *restrict counts, const float *restrict weights, int64_t n) {
  for (int64_t x = 0; x < n; x++)
    counts[x] += weights[x];
}

/* Where one tile lies, its weights are the counts. */
INLINE void means_of_one(float *restrict means, const float *restrict values, const float *restrict weights,
                         int64_t n) {
  for (int64_t x = 0; x < n; x++)
    means[x] = (0.0f + values[x] * weights[x]) / weights[x];
}

INLINE void divide(float *restrict sums, const float *restrict counts, int64_t n) {
  for (int64_t x = 0; x < n; x++)
    sums[x] /= counts[x];
}

/* NaN is the highest, as for NumPy. */
INLINE void keep_best(float *restrict best, int32_t *restrict label, const float *restrict means, int32_t channel,
                      int64_t n) {
  for (int64_t x = 0; x < n; x++) {
    int32_t higher = (means[x] > best[x]) | ((means[x] != means[x]) & (best[x] == best[x]));
    best[x] = higher ? means[x] : best[x];
    label[x] = higher ? channel : label[x];
  }
}

INLINE void write_labels(uint8_t *restrict to, const int32_t *restrict label, int64_t n) {
  for (int64_t x = 0; x < n; x++)
    to[x] = (uint8_t)label[x];
}

INLINE void write_above(uint8_t *restrict to, const float *restrict means, float threshold, int64_t n) {
  for (int64_t x = 0; x < n; x++)
    to[x] = means[x] > threshold;
}

/* The sums of weights of voxels x .. of a line, in `room` or where they lie already. */
INLINE const float *counts_of(const blending *b, int64_t n, int64_t x, float *room, int64_t length) {
  const float *first = n ? b->how->weights + b->offsets[0] + x : NULL;
  if (n < 2)
    return first;
  counts_begin(room, first, b->how->weights + b->offsets[1] + x, length);
  for (int64_t k = 2; k < n; k++)
    counts_add(room, b->how->weights + b->offsets[k] + x, length);
  return room;
}

INLINE void means_of(const blending *b, const cyto_tile *const *tiles, int64_t n, int64_t channel, int64_t x,
                     const float *counts, float *means, int64_t length) {
  for (int64_t k = 0; k < n; k++) {
    int64_t at = b->offsets[k] + x;
    const float *values = tiles[k]->values + channel * b->tile_size + at;
    if (n == 1)
      means_of_one(means, values, counts, length);
    else if (k)
      sums_add(means, values, b->how->weights + at, length);
    else
      sums_begin(means, values, b->how->weights + at, length);
  }
  if (n > 1)
    divide(means, counts, length);
  for (int64_t k = 0; !n && k < length; k++)
    means[k] = b->how->fill;
}

/* Up to LINE voxels from x on of a line, which begins at `to` in the region. No tiles: means are `fill`. */
INLINE void part_of_line(const blending *b, const cyto_tile *const *tiles, int64_t n, int64_t to, int64_t x,
                         int64_t length) {
  float room[LINE], means[LINE], best[LINE];
  int32_t label[LINE];
  const cyto_blend *how = b->how;
  const float *counts = counts_of(b, n, x, room, length);
  for (int64_t channel = 0; channel < how->lead; channel++) {
    int64_t at = to + x + (how->kind == CYTO_BLEND_ARGMAX ? 0 : channel * b->region_size);
    if (how->kind == CYTO_BLEND_MEANS) {
      means_of(b, tiles, n, channel, x, counts, (float *)b->out + at, length);
    } else if (how->kind == CYTO_BLEND_ABOVE) {
      means_of(b, tiles, n, channel, x, counts, means, length);
      write_above((uint8_t *)b->out + at, means, how->threshold, length);
    } else if (!channel) {
      means_of(b, tiles, n, channel, x, counts, best, length);
      memset(label, 0, (size_t)length * sizeof *label);
    } else {
      means_of(b, tiles, n, channel, x, counts, means, length);
      keep_best(best, label, means, (int32_t)channel, length);
    }
  }
  if (how->kind == CYTO_BLEND_ARGMAX)
    write_labels((uint8_t *)b->out + to + x, label, length);
}

INLINE void line(const blending *b, const cyto_tile *const *tiles, int64_t n, int64_t to, int64_t length) {
  for (int64_t x = 0; x < length; x += LINE)
    part_of_line(b, tiles, n, to, x, length - x < LINE ? length - x : LINE);
}

static void line_any(const blending *b, const cyto_tile *const *tiles, int64_t n, int64_t to, int64_t length) {
  line(b, tiles, n, to, length);
}

WIDER static void line_wider(const blending *b, const cyto_tile *const *tiles, int64_t n, int64_t to, int64_t length) {
  line(b, tiles, n, to, length);
}

/* ---- boxes ---- */

/* All lines of a box: the place in the region and the offsets in the tiles go along. */
static void box(blending *b, const cyto_tile *const *tiles, int64_t n) {
  int32_t last = b->how->rank - 1;
  int64_t place[CYTO_MAX_RANK] = {0}, to = 0;
  for (int32_t axis = 0; axis <= last; axis++)
    to += (b->box_start[axis] - b->start[axis]) * b->region[axis];
  for (int64_t k = 0; k < n; k++) {
    b->offsets[k] = 0;
    for (int32_t axis = 0; axis <= last; axis++)
      b->offsets[k] += (b->box_start[axis] - tiles[k]->origin[axis]) * b->strides[axis];
  }
  for (int32_t axis = 0; axis >= 0;) {
    b->line(b, tiles, n, to, b->box_stop[last] - b->box_start[last]);
    for (axis = last - 1; axis >= 0; axis--) {
      int64_t extent = b->box_stop[axis] - b->box_start[axis];
      int64_t step = ++place[axis] < extent ? 1 : 1 - extent;
      to += step * b->region[axis];
      for (int64_t k = 0; k < n; k++)
        b->offsets[k] += step * b->strides[axis];
      if (step == 1 && place[axis] < extent)
        break;
      place[axis] = 0;
    }
  }
}

/* Cuts the region along an axis where a tile begins or ends. */
static void cut(blending *b, int32_t axis, const cyto_tile **tiles, int64_t n, int64_t count) {
  const cyto_tile **inside = tiles + count;
  for (int64_t at = b->start[axis], next; at < b->stop[axis]; at = next) {
    int64_t m = 0;
    next = b->stop[axis];
    for (int64_t k = 0; k < n; k++) {
      int64_t begin = tiles[k]->origin[axis], end = begin + b->how->tile[axis];
      int64_t border = begin > at ? begin : end;
      if (begin <= at && at < end)
        inside[m++] = tiles[k];
      if (border > at && border < next)
        next = border;
    }
    b->box_start[axis] = at;
    b->box_stop[axis] = next;
    if (axis + 1 < b->how->rank)
      cut(b, axis + 1, inside, m, count);
    else
      box(b, inside, m);
  }
}

static int is_valid(const cyto_blend *how, const cyto_tile *tiles, int64_t count, const int64_t *start,
                    const int64_t *stop, const void *out) {
  if (!how || count < 0 || (count && !tiles) || !start || !stop || !out || how->rank < 1 || how->rank > CYTO_MAX_RANK ||
      how->lead < 1 || !how->weights)
    return 0;
  for (int32_t axis = 0; axis < how->rank; axis++)
    if (how->tile[axis] < 1)
      return 0;
  return how->kind == CYTO_BLEND_MEANS || how->kind == CYTO_BLEND_ABOVE ||
         (how->kind == CYTO_BLEND_ARGMAX && how->lead <= 256);
}

cyto_status cyto_tiles_blend(const cyto_blend *how, const cyto_tile *tiles, int64_t count, const int64_t *start,
                             const int64_t *stop, void *out, cyto_error *error) {
  cyrt_error_clear(error);
  if (!is_valid(how, tiles, count, start, stop, out))
    return cyrt_error_set(
        error, CYTO_INVALID_ARGUMENT,
        "cyto_tiles_blend: expected a rank of 1 to %d, tiles of one voxel or more, weights, 1 channel "
        "or more (up to 256 for labels), a region and where it goes",
        CYTO_MAX_RANK);
  char lacked[64];
  blending b = {.how = how,
                .start = start,
                .stop = stop,
                .tile_size = 1,
                .region_size = 1,
                .out = out,
                .line = cyrt_cpu_lacks(WIDER_FEATURES, lacked) ? line_any : line_wider};
  for (int32_t axis = how->rank - 1; axis >= 0; axis--) {
    b.strides[axis] = b.tile_size;
    b.region[axis] = b.region_size;
    b.tile_size *= how->tile[axis];
    b.region_size *= stop[axis] > start[axis] ? stop[axis] - start[axis] : 0;
  }
  b.lists = malloc(((size_t)count * ((size_t)how->rank + 1) + 1) * sizeof *b.lists);
  b.offsets = malloc(((size_t)count + 1) * sizeof *b.offsets);
  cyto_status status = b.lists && b.offsets ? CYTO_OK : CYTO_OUT_OF_MEMORY;
  for (int64_t k = 0; k < count && !status; k++)
    b.lists[k] = &tiles[k];
  if (!status && b.region_size)
    cut(&b, 0, b.lists, count, count);
  free(b.lists);
  free(b.offsets);
  return status ? cyrt_error_set(error, status, "no memory for the list of %lld tiles", (long long)count) : CYTO_OK;
}
