/* SPDX-License-Identifier: Apache-2.0 */
/* cells.c - finds cells in a volume that is larger than what the network sees at once.
 *
 *   cells --samples FOLDER    writes tiles to calibrate with, for cytoc --int8=static --calibrate=FOLDER
 *   cells MODEL.so ..         marks the cells of one volume by each model, and shows a slice of it; fails where brightness
 *                             alone would tell as much
 *
 * The volume is cut into tiles that overlap. Near the edge of a tile the network knows less of what is around; so where
 * tiles overlap, the mean of what it finds counts, weighted by the distance to the edge.
 */
#include "volume.h"

#include "cyto.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { Z, Y, X, AXES };

static const int SIZE[AXES] = {48, 192, 192}, TILE[AXES] = {24, 64, 64}, OVERLAP[AXES] = {8, 16, 16};
static const uint32_t SEED = 7; /* train.py uses those from 1000 on */

typedef struct volume {
  float *seen;   /* SIZE */
  uint8_t *cell; /* SIZE: the truth */
  float *found;  /* SIZE: a model's opinion, 0 to 1 */
} volume;

typedef struct tile {
  int begin[AXES];
  float *seen, *found; /* TILE */
} tile;

static size_t voxels(const int size[AXES]) { return (size_t)size[Z] * (size_t)size[Y] * (size_t)size[X]; }

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- tiles ---- */

/* How many tiles cover an axis, and where tile i begins: the last ends where the volume does. */
static int tile_count(int axis) {
  int step = TILE[axis] - OVERLAP[axis];
  return 1 + (SIZE[axis] - TILE[axis] + step - 1) / step;
}

static int tile_begin(int axis, int i) {
  int begin = i * (TILE[axis] - OVERLAP[axis]), last = SIZE[axis] - TILE[axis];
  return begin < last ? begin : last;
}

static void tile_place(tile *t, int i) {
  for (int axis = X; axis >= Z; i /= tile_count(axis--))
    t->begin[axis] = tile_begin(axis, i % tile_count(axis));
}

/* Where a row of the tile lies in the volume. */
static size_t row_at(const tile *t, int z, int y) {
  return ((size_t)(t->begin[Z] + z) * (size_t)SIZE[Y] + (size_t)(t->begin[Y] + y)) * (size_t)SIZE[X] +
         (size_t)t->begin[X];
}

static void tile_read(tile *t, const float *seen) {
  for (int z = 0; z < TILE[Z]; z++)
    for (int y = 0; y < TILE[Y]; y++)
      memcpy(t->seen + (z * TILE[Y] + y) * TILE[X], seen + row_at(t, z, y), (size_t)TILE[X] * sizeof(float));
}

/* Grows from the tile's edge to as far as tiles overlap. */
static float trust(int axis, int at) {
  int edge = at < TILE[axis] - 1 - at ? at : TILE[axis] - 1 - at;
  return (float)(edge < OVERLAP[axis] ? edge + 1 : OVERLAP[axis] + 1);
}

static void tile_add(const tile *t, float *found, float *weight) {
  const float *from = t->found;
  for (int z = 0; z < TILE[Z]; z++)
    for (int y = 0; y < TILE[Y]; y++) {
      size_t to = row_at(t, z, y);
      float row = trust(Z, z) * trust(Y, y);
      for (int x = 0; x < TILE[X]; x++, to++) {
        float w = row * trust(X, x);
        found[to] += w * *from++;
        weight[to] += w;
      }
    }
}

/* ---- the network ---- */

/* Marks cells tile by tile; the seconds that it took, or -1. One context serves all tiles: it keeps its memory. */
static double find_cells(cyto_context *context, volume *v, cyto_error *error) {
  int64_t dims[] = {1, 1, TILE[Z], TILE[Y], TILE[X]}; /* batch, channels */
  size_t bytes = voxels(TILE) * sizeof(float);
  tile t = {.seen = malloc(bytes), .found = malloc(bytes)};
  float *weight = calloc(voxels(SIZE), sizeof(float));
  double start = now();
  int failed = !t.seen || !t.found || !weight || cyto_bind_input(context, 0, CYTO_F32, 5, dims, t.seen, error) ||
               cyto_bind_output(context, 0, t.found, bytes, error);
  memset(v->found, 0, voxels(SIZE) * sizeof(float));
  for (int i = 0; !failed && i < tile_count(Z) * tile_count(Y) * tile_count(X); i++) {
    tile_place(&t, i);
    tile_read(&t, v->seen);
    failed = cyto_run(context, error);
    if (!failed)
      tile_add(&t, v->found, weight);
  }
  for (size_t i = 0; !failed && i < voxels(SIZE); i++)
    v->found[i] /= weight[i];
  free(t.seen);
  free(t.found);
  free(weight);
  return failed ? -1 : now() - start;
}

/* ---- what comes out ---- */

/* How well `found`, above a threshold, covers the cells: twice what both have over what each has (Dice); 1 is best. */
static double dice(const float *found, float threshold, const uint8_t *cell) {
  size_t both = 0, each = 0;
  for (size_t i = 0; i < voxels(SIZE); i++) {
    int marked = found[i] > threshold;
    both += (size_t)(marked & cell[i]);
    each += (size_t)(marked + cell[i]);
  }
  return each ? 2 * (double)both / (double)each : 1;
}

/* The same for brightness alone, with the threshold that suits it best. */
static double dice_of_threshold(const volume *v) {
  double best = 0;
  for (float threshold = 0; threshold < 1; threshold += 0.02f) {
    double d = dice(v->seen, threshold, v->cell);
    best = d > best ? d : best;
  }
  return best;
}

/* A part of the middle slice, every second row: what is seen, what is found, what is there. */
static void show(const volume *v) {
  enum { ROWS = 48, COLUMNS = 36 };
  static const char shades[] = " .:-=+*#%@";
  printf("\n%-*s  %-*s  %s\n", COLUMNS, "seen", COLUMNS, "found", "there");
  for (int y = 0; y < ROWS; y += 2) {
    size_t row = ((size_t)(SIZE[Z] / 2) * (size_t)SIZE[Y] + (size_t)y) * (size_t)SIZE[X];
    for (int x = 0; x < COLUMNS; x++) {
      float light = v->seen[row + (size_t)x] * 9;
      putchar(shades[light < 0 ? 0 : light > 9 ? 9 : (int)light]);
    }
    printf("  ");
    for (int x = 0; x < COLUMNS; x++)
      putchar(v->found[row + (size_t)x] > 0.5f ? '#' : '.');
    printf("  ");
    for (int x = 0; x < COLUMNS; x++)
      putchar(v->cell[row + (size_t)x] ? '#' : '.');
    putchar('\n');
  }
}

/* By a model, which must do better than `min`; 1 if it fails. */
static int use_model(const char *path, volume *v, double min) {
  cyto_error error = {0};
  cyto_model *model = NULL;
  cyto_context *context = NULL;
  double seconds = -1, right = 0;
  if (!cyto_model_load(path, &model, &error) && !cyto_context_create(model, NULL, &context, &error))
    seconds = find_cells(context, v, &error);
  if (seconds < 0) {
    fprintf(stderr, "cells: %s: %s\n", path, *error.message ? error.message : "out of memory");
  } else {
    right = dice(v->found, 0.5f, v->cell);
    printf("%-24s %.3f right (Dice), %.2f s\n", path, right, seconds);
  }
  cyto_context_destroy(context);
  cyto_model_unload(model);
  return right <= min;
}

/* ---- samples ---- */

/* NumPy's format: magic, version, length of the header, the header padded to 128 bytes, the data. */
static int write_npy(const char *path, const float *data) {
  char header[119];
  FILE *f = fopen(path, "wb");
  if (!f)
    return 1;
  int n = snprintf(header, sizeof header, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, %d, %d, %d), }",
                   TILE[Z], TILE[Y], TILE[X]);
  memset(header + n, ' ', sizeof header - 2 - (size_t)n);
  header[sizeof header - 2] = '\n';
  int failed = fwrite("\x93NUMPY\1\0\x76\0", 1, 10, f) != 10 || fwrite(header, 1, 118, f) != 118 ||
               fwrite(data, sizeof(float), voxels(TILE), f) != voxels(TILE);
  return fclose(f) || failed;
}

/* Tiles of another volume. */
static int write_samples(const char *folder) {
  enum { SAMPLES = 8 };
  float *seen = malloc(voxels(TILE) * sizeof(float));
  uint8_t *cell = malloc(voxels(TILE));
  int failed = !seen || !cell;
  for (uint32_t i = 0; !failed && i < SAMPLES; i++) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%u.npy", folder, i);
    volume_make(TILE[Z], TILE[Y], TILE[X], SEED + 1 + i, seen, cell);
    failed = write_npy(path, seen);
    if (failed)
      fprintf(stderr, "cells: cannot write '%s'\n", path);
  }
  free(seen);
  free(cell);
  return failed;
}

int main(int argc, char **argv) {
  if (argc == 3 && !strcmp(argv[1], "--samples"))
    return write_samples(argv[2]);
  if (argc < 2) {
    fprintf(stderr, "usage: cells --samples FOLDER, or cells MODEL.so ..\n");
    return 1;
  }
  size_t n = voxels(SIZE);
  volume v = {malloc(n * sizeof(float)), malloc(n), malloc(n * sizeof(float))};
  if (!v.seen || !v.cell || !v.found)
    return 1;
  volume_make(SIZE[Z], SIZE[Y], SIZE[X], SEED, v.seen, v.cell);
  double threshold = dice_of_threshold(&v);
  int failed = 0;
  printf("%-24s %.3f right (Dice)\n", "the best threshold", threshold);
  for (int i = 1; !failed && i < argc; i++)
    failed = use_model(argv[i], &v, threshold);
  if (!failed)
    show(&v);
  free(v.seen);
  free(v.cell);
  free(v.found);
  return failed;
}
