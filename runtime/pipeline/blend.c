/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* blend.c - results of overlapping tiles become a region of one image: weighted means, or what is decided by them.
 *
 * In:  tiles, float32 [lead, tile..], each with its origin; the weights of a tile's voxels, or of each axis; a region.
 * Out: the region. Sums are made in the order of the tiles, and rounded after every product and sum (-ffp-contract=off),
 *      so that they are NumPy's, which blends where there is no memory for all tiles.
 *
 * What a network has just written is in the caches still: cyto_tiles_blend_last() blends the voxels for which a tile is the
 * last one, so that all tiles one after the other make the whole region.
 *
 * The region is cut at the borders of tiles into boxes that have the same tiles everywhere, but for the last axis: its
 * lines are done one behind the other, as tiles lie in memory, in cells that have the same tiles. Sums stay in the first
 * cache: a tile's result is read once, nothing but the region is written, and weights that are products of each axis' are
 * made on the way.
 */
#include "pipeline_int.h"

enum {
  LINE = 512,      /* voxels of a line that are done at once */
  AHEAD = 16,      /* lines of a tile that are fetched ahead: they are too short for processors to see where it goes */
  CACHE_LINE = 16, /* floats */
};

/* A tile, at the line under work. offset: of the voxel at 0 of the last axis, in [tile..]. factor: the other axes' weights. */
typedef struct lane {
  const cyto_tile *tile;
  int64_t offset;
  float factor;
} lane;

/* A part of the last axis where the same tiles lie. */
typedef struct cell {
  int64_t start, stop, n;
  const lane **lanes;
} cell;

typedef struct blending {
  const cyto_blend *how;
  const int64_t *start, *stop; /* the region */
  int64_t box_start[CYTO_MAX_RANK], box_stop[CYTO_MAX_RANK];
  int64_t strides[CYTO_MAX_RANK]; /* of a tile */
  int64_t region[CYTO_MAX_RANK];  /* strides of the region */
  int64_t tile_size, region_size;
  int64_t ahead;           /* bytes */
  const cyto_tile **lists; /* [rank + 1][count]: the tiles that lie in the box, by the axes so far */
  lane *lanes;             /* [count] */
  void *out;
  const cyto_tile *last; /* boxes where another tile is the last are left as they are; NULL: all are done */
  cyto_status status;
  void (*part)(const struct blending *b, const cell *c, int64_t to, int64_t x, int64_t length);
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

/* The weights of a line's voxels in one tile. */
typedef struct weights {
  const float *line;
  float factor, least;
} weights;

INLINE float weight_at(weights w, int64_t x) {
  float found = w.line[x] * w.factor;
  return found < w.least ? w.least : found;
}

INLINE void sums_begin(float *restrict sums, const float *restrict values, weights w, int64_t n) {
  for (int64_t x = 0; x < n; x++)
    sums[x] = 0.0f + values[x] * weight_at(w, x);
}

INLINE void sums_add(float *restrict sums, const float *restrict values, weights w, int64_t n) {
  for (int64_t x = 0; x < n; x++)
    sums[x] += values[x] * weight_at(w, x);
}

INLINE void counts_begin(float *restrict counts, weights w, int64_t n) {
  for (int64_t x = 0; x < n; x++)
    counts[x] = weight_at(w, x);
}

INLINE void counts_add(float *restrict counts, weights w, int64_t n) {
  for (int64_t x = 0; x < n; x++)
    counts[x] += weight_at(w, x);
}

/* What means are made of. sums: of one channel, or, where one tile alone lies (`one`), its values, which are weighted by the counts. */
typedef struct parts {
  const float *sums, *counts;
  int one;
} parts;

INLINE float mean_at(parts p, int one, int64_t x) {
  return (one ? 0.0f + p.sums[x] * p.counts[x] : p.sums[x]) / p.counts[x];
}

INLINE void means_write(float *restrict to, parts p, int one, int64_t n) {
  for (int64_t x = 0; x < n; x++)
    to[x] = mean_at(p, one, x);
}

INLINE void first_best(float *restrict best, int32_t *restrict label, parts p, int one, int64_t n) {
  for (int64_t x = 0; x < n; x++) {
    best[x] = mean_at(p, one, x);
    label[x] = 0;
  }
}

/* NaN is the highest, as for NumPy. */
INLINE void keep_best(float *restrict best, int32_t *restrict label, parts p, int one, int32_t channel, int64_t n) {
  for (int64_t x = 0; x < n; x++) {
    float mean = mean_at(p, one, x);
    int32_t higher = (mean > best[x]) | ((mean != mean) & (best[x] == best[x]));
    best[x] = higher ? mean : best[x];
    label[x] = higher ? channel : label[x];
  }
}

INLINE void labels_write(uint8_t *restrict to, const int32_t *restrict label, int64_t n) {
  for (int64_t x = 0; x < n; x++)
    to[x] = (uint8_t)label[x];
}

INLINE void above_write(uint8_t *restrict to, parts p, int one, float threshold, int64_t n) {
  for (int64_t x = 0; x < n; x++)
    to[x] = mean_at(p, one, x) > threshold;
}

/* Of voxels x .. */
INLINE weights weights_of(const blending *b, const lane *l, int64_t x) {
  int32_t last = b->how->rank - 1;
  if (b->how->weights)
    return (weights){b->how->weights + l->offset + x, 1.0f, 0.0f};
  return (weights){b->how->lines[last] + (x - l->tile->origin[last]), l->factor, b->how->least};
}

INLINE void counts_of(const blending *b, const cell *c, int64_t x, float *counts, int64_t length) {
  for (int64_t k = 0; !c->n && k < length; k++)
    counts[k] = 1;
  if (c->n)
    counts_begin(counts, weights_of(b, c->lanes[0], x), length);
  for (int64_t k = 1; k < c->n; k++)
    counts_add(counts, weights_of(b, c->lanes[k], x), length);
}

INLINE void fetch_ahead(const blending *b, const float *values, int64_t length) {
  for (int64_t x = 0; x < length; x += CACHE_LINE)
    __builtin_prefetch((const void *)((uintptr_t)values + (uintptr_t)(b->ahead + x * (int64_t)sizeof *values)));
}

/* Of a channel. room: for sums, if these lie nowhere yet. */
INLINE parts parts_of(const blending *b, const cell *c, int64_t channel, int64_t x, const float *counts, float *room,
                      int64_t length) {
  for (int64_t k = 0; k < c->n; k++) {
    const lane *l = c->lanes[k];
    const float *values = l->tile->values + (channel * b->tile_size + l->offset + x);
    fetch_ahead(b, values, length);
    if (c->n == 1)
      return (parts){values, counts, 1};
    if (k)
      sums_add(room, values, weights_of(b, l, x), length);
    else
      sums_begin(room, values, weights_of(b, l, x), length);
  }
  for (int64_t k = 0; !c->n && k < length; k++)
    room[k] = b->how->fill;
  return (parts){room, counts, 0};
}

typedef struct labels {
  float best[LINE];
  int32_t label[LINE];
} labels;

/* Makes of a channel what the kind says. at: in the region. */
INLINE void channel_done(const blending *b, parts p, int one, int64_t channel, int64_t at, labels *l, int64_t length) {
  const cyto_blend *how = b->how;
  if (how->kind == CYTO_BLEND_MEANS)
    means_write((float *)b->out + at + channel * b->region_size, p, one, length);
  else if (how->kind == CYTO_BLEND_ABOVE)
    above_write((uint8_t *)b->out + at + channel * b->region_size, p, one, how->threshold, length);
  else if (channel)
    keep_best(l->best, l->label, p, one, (int32_t)channel, length);
  else
    first_best(l->best, l->label, p, one, length);
}

/* Up to LINE voxels of a cell's line, from x on, which is `to` in the region. No tiles: means are `fill`. */
INLINE void part(const blending *b, const cell *c, int64_t to, int64_t x, int64_t length) {
  float counts[LINE], room[LINE];
  labels l;
  counts_of(b, c, x, counts, length);
  for (int64_t channel = 0; channel < b->how->lead; channel++) {
    parts p = parts_of(b, c, channel, x, counts, room, length);
    if (p.one)
      channel_done(b, p, 1, channel, to, &l, length);
    else
      channel_done(b, p, 0, channel, to, &l, length);
  }
  if (b->how->kind == CYTO_BLEND_ARGMAX)
    labels_write((uint8_t *)b->out + to, l.label, length);
}

static void part_any(const blending *b, const cell *c, int64_t to, int64_t x, int64_t length) {
  part(b, c, to, x, length);
}

WIDER static void part_wider(const blending *b, const cell *c, int64_t to, int64_t x, int64_t length) {
  part(b, c, to, x, length);
}

/* ---- boxes ---- */

/* Where the boxes lie along an axis: from the return value to *stop. */
static int64_t ends_of(const blending *b, int32_t axis, int64_t *stop) {
  int64_t start = b->start[axis];
  *stop = b->stop[axis];
  if (b->last) {
    int64_t begin = b->last->origin[axis], end = begin + b->how->tile[axis];
    start = begin > start ? begin : start;
    *stop = end < *stop ? end : *stop;
  }
  return start;
}

/* How many of the tiles lie at a place of an axis, and which; *next: up to where it is the same ones, `stop` at most. */
static int64_t inside_of(const blending *b, int32_t axis, const cyto_tile *const *tiles, int64_t n, int64_t at,
                         int64_t stop, int64_t *next, const cyto_tile **inside) {
  int64_t m = 0;
  *next = stop;
  for (int64_t k = 0; k < n; k++) {
    int64_t begin = tiles[k]->origin[axis], end = begin + b->how->tile[axis];
    int64_t border = begin > at ? begin : end;
    if (begin <= at && at < end)
      inside[m++] = tiles[k];
    if (border > at && border < *next)
      *next = border;
  }
  return m;
}

/* Cuts the last axis where a tile begins or ends. `cells` and `lanes` have room for them, or are NULL: they are counted. */
static int64_t cells_of(const blending *b, const cyto_tile **tiles, int64_t n, int64_t count, cell *cells,
                        const lane **lanes, int64_t *places) {
  const cyto_tile **inside = tiles + count;
  int32_t axis = b->how->rank - 1;
  int64_t stop, found = 0;
  *places = 0;
  for (int64_t next, at = ends_of(b, axis, &stop); at < stop; at = next) {
    int64_t m = inside_of(b, axis, tiles, n, at, stop, &next, inside);
    if (b->last && inside[m - 1] != b->last) /* which lies in each box of its own region */
      continue;
    for (int64_t k = 0, i = 0; lanes && i < m; k++)
      if (tiles[k] == inside[i]) {
        lanes[*places + i] = &b->lanes[k];
        i++;
      }
    if (cells)
      cells[found] = (cell){at, next, m, lanes + *places};
    found++;
    *places += m;
  }
  return found;
}

/* The line at `place` in the box. */
static void line(blending *b, const cell *cells, int64_t count, int64_t n, const int64_t *place) {
  int32_t last = b->how->rank - 1;
  int64_t to = 0;
  for (int32_t axis = 0; axis < last; axis++)
    to += (b->box_start[axis] - b->start[axis] + place[axis]) * b->region[axis];
  for (int64_t k = 0; k < n; k++) {
    lane *l = &b->lanes[k];
    l->offset = -l->tile->origin[last];
    l->factor = 1;
    for (int32_t axis = 0; axis < last; axis++) {
      int64_t at = b->box_start[axis] + place[axis] - l->tile->origin[axis];
      l->offset += at * b->strides[axis];
      l->factor *= b->how->weights ? 1 : b->how->lines[axis][at];
    }
  }
  for (const cell *c = cells; c < cells + count; c++)
    for (int64_t x = c->start; x < c->stop; x += LINE)
      b->part(b, c, to + x - b->start[last], x, c->stop - x < LINE ? c->stop - x : LINE);
}

/* All lines of a box, along the last axis: one behind the other, as they lie in the tiles. */
static void box(blending *b, const cyto_tile **tiles, int64_t n, int64_t count) {
  int64_t place[CYTO_MAX_RANK] = {0}, places, m = cells_of(b, tiles, n, count, NULL, NULL, &places);
  if (!m)
    return;
  cell *cells = malloc((size_t)m * sizeof *cells + (size_t)places * sizeof *cells->lanes);
  if (!cells) {
    b->status = CYTO_OUT_OF_MEMORY;
    return;
  }
  for (int64_t k = 0; k < n; k++)
    b->lanes[k].tile = tiles[k];
  cells_of(b, tiles, n, count, cells, (const lane **)(cells + m), &places);
  for (int32_t axis = 0; axis >= 0;) {
    line(b, cells, m, n, place);
    for (axis = b->how->rank - 2; axis >= 0; axis--) {
      if (++place[axis] < b->box_stop[axis] - b->box_start[axis])
        break;
      place[axis] = 0;
    }
  }
  free(cells);
}

/* Cuts the region along all axes but the last one. */
static void cut(blending *b, int32_t axis, const cyto_tile **tiles, int64_t n, int64_t count) {
  int64_t stop;
  if (axis + 1 == b->how->rank) {
    box(b, tiles, n, count);
    return;
  }
  for (int64_t at = ends_of(b, axis, &stop); at < stop && !b->status; at = b->box_stop[axis]) {
    int64_t m = inside_of(b, axis, tiles, n, at, stop, &b->box_stop[axis], tiles + count);
    b->box_start[axis] = at;
    cut(b, axis + 1, tiles + count, m, count);
  }
}

static int has_weights(const cyto_blend *how) {
  int has = 1;
  if (how->weights)
    return 1;
  for (int32_t axis = 0; axis < how->rank; axis++)
    has &= how->lines[axis] != NULL;
  return has;
}

static int is_valid(const cyto_blend *how, const cyto_tile *tiles, int64_t count, const int64_t *start,
                    const int64_t *stop, const void *out) {
  if (!how || count < 0 || (count && !tiles) || !start || !stop || !out || how->rank < 1 || how->rank > CYTO_MAX_RANK ||
      how->lead < 1 || !has_weights(how))
    return 0;
  for (int32_t axis = 0; axis < how->rank; axis++)
    if (how->tile[axis] < 1)
      return 0;
  return how->kind == CYTO_BLEND_MEANS || how->kind == CYTO_BLEND_ABOVE ||
         (how->kind == CYTO_BLEND_ARGMAX && how->lead <= 256);
}

static cyto_status blend(blending *b, const cyto_tile *tiles, int64_t count, cyto_error *error) {
  char lacked[64];
  const cyto_blend *how = b->how;
  b->part = cyrt_cpu_lacks(WIDER_FEATURES, lacked) ? part_any : part_wider;
  b->tile_size = b->region_size = 1;
  for (int32_t axis = how->rank - 1; axis >= 0; axis--) {
    b->strides[axis] = b->tile_size;
    b->region[axis] = b->region_size;
    b->tile_size *= how->tile[axis];
    b->region_size *= b->stop[axis] > b->start[axis] ? b->stop[axis] - b->start[axis] : 0;
  }
  b->ahead = how->rank > 1 ? AHEAD * b->strides[how->rank - 2] * (int64_t)sizeof(float) : 0;
  b->lists = malloc(((size_t)count * ((size_t)how->rank + 1) + 1) * sizeof *b->lists);
  b->lanes = malloc(((size_t)count + 1) * sizeof *b->lanes);
  b->status = b->lists && b->lanes ? CYTO_OK : CYTO_OUT_OF_MEMORY;
  for (int64_t k = 0; k < count && !b->status; k++)
    b->lists[k] = &tiles[k];
  if (!b->status && b->region_size)
    cut(b, 0, b->lists, count, count);
  free(b->lists);
  free(b->lanes);
  return b->status ? cyrt_error_set(error, b->status, "no memory for the list of %lld tiles", (long long)count)
                   : CYTO_OK;
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
  blending b = {.how = how, .start = start, .stop = stop, .out = out};
  return blend(&b, tiles, count, error);
}

cyto_status cyto_tiles_blend_last(const cyto_blend *how, const cyto_tile *tiles, int64_t count, int64_t last,
                                  const int64_t *start, const int64_t *stop, void *out, cyto_error *error) {
  cyrt_error_clear(error);
  if (last < 0 || last >= count || !is_valid(how, tiles, count, start, stop, out))
    return cyrt_error_set(error, CYTO_INVALID_ARGUMENT,
                          "cyto_tiles_blend_last: expected the arguments of cyto_tiles_blend and one of the %lld "
                          "tiles, found %lld",
                          (long long)count, (long long)last);
  blending b = {.how = how, .start = start, .stop = stop, .out = out, .last = &tiles[last]};
  return blend(&b, tiles, count, error);
}
