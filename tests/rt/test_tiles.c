/* SPDX-License-Identifier: Apache-2.0 */
/* test_tiles.c - tiles that become an image, beside means that are taken voxel by voxel; bad input. */
#include "../check.h"
#include "cyto_pipeline.h"

#include <math.h>
#include <stdint.h>

enum {
  CHANNELS = 3,
  TILE_Y = 4,
  TILE_X = 600,
  IMAGE_Y = 7,
  IMAGE_X = 900
}; /* lines longer than what is done at once */

/* What a region of the image ought to be, voxel by voxel; NaN where no tile lies. */
static float mean_at(const cyto_blend *how, const cyto_tile *tiles, int64_t n, int64_t channel, int64_t y, int64_t x) {
  volatile float sum = 0, count = 0, product;
  for (int64_t k = 0; k < n; k++) {
    int64_t row = y - tiles[k].origin[0], column = x - tiles[k].origin[1];
    if (row < 0 || row >= TILE_Y || column < 0 || column >= TILE_X)
      continue;
    int64_t at = row * TILE_X + column;
    product = tiles[k].values[channel * TILE_Y * TILE_X + at] * how->weights[at];
    sum = sum + product;
    count = count + how->weights[at];
  }
  return count > 0 ? sum / count : how->fill;
}

static int label_at(const cyto_blend *how, const cyto_tile *tiles, int64_t n, int64_t y, int64_t x) {
  int label = 0;
  float best = mean_at(how, tiles, n, 0, y, x);
  for (int c = 1; c < CHANNELS; c++) {
    float mean = mean_at(how, tiles, n, c, y, x);
    if (mean > best || (mean != mean && best == best)) {
      label = c;
      best = mean;
    }
  }
  return label;
}

static int64_t differences(const cyto_blend *how, const cyto_tile *tiles, int64_t n, const int64_t start[2],
                           const int64_t stop[2], const void *out) {
  int64_t wrong = 0, rows = stop[0] - start[0], columns = stop[1] - start[1];
  for (int64_t y = 0; y < rows; y++)
    for (int64_t x = 0; x < columns; x++)
      for (int64_t c = 0; c < (how->kind == CYTO_BLEND_ARGMAX ? 1 : CHANNELS); c++) {
        int64_t at = (c * rows + y) * columns + x;
        float mean = mean_at(how, tiles, n, c, start[0] + y, start[1] + x);
        if (how->kind == CYTO_BLEND_MEANS)
          wrong += memcmp(&mean, (const float *)out + at, sizeof mean) != 0 && mean == mean;
        else if (how->kind == CYTO_BLEND_ABOVE)
          wrong += ((const uint8_t *)out)[at] != (mean > how->threshold);
        else
          wrong += ((const uint8_t *)out)[at] != label_at(how, tiles, n, start[0] + y, start[1] + x);
      }
  return wrong;
}

/* Overlapping tiles, one beyond the border, a gap between two; some values are NaN, infinite or equal. */
static void test_tiles(void) {
  enum { SIZE = TILE_Y * TILE_X };
  static const int64_t origins[][2] = {{0, -20}, {0, 300}, {3, -20}, {3, 350}};
  static float values[4][CHANNELS * SIZE], weights[SIZE], out[CHANNELS * IMAGE_Y * IMAGE_X];
  cyto_blend how = {
      .rank = 2, .lead = CHANNELS, .tile = {TILE_Y, TILE_X}, .weights = weights, .fill = 0.5f, .threshold = 0.25f};
  cyto_tile tiles[4] = {{0}};
  uint32_t seed = 1;
  for (int k = 0; k < SIZE; k++)
    weights[k] = 0.001f + (float)((seed = seed * 1664525u + 1013904223u) >> 8) / (1 << 24);
  for (int t = 0; t < 4; t++) {
    for (int k = 0; k < CHANNELS * SIZE; k++)
      values[t][k] = (float)((int)((seed = seed * 1664525u + 1013904223u) >> 24) - 128) / 64;
    values[t][17] = NAN;
    values[t][SIZE + 90] = INFINITY;
    tiles[t] = (cyto_tile){values[t], {origins[t][0], origins[t][1]}};
  }
  static const int64_t regions[][4] = {
      {0, 0, IMAGE_Y, IMAGE_X}, {2, 5, 3, 6}, {1, 290, 6, 899}, {3, 0, 3, 10}, {0, 570, 7, 600}};
  for (int kind = CYTO_BLEND_MEANS; kind <= CYTO_BLEND_ABOVE; kind++)
    for (size_t r = 0; r < CHECK_COUNT(regions); r++)
      for (int64_t n = 0; n <= 4; n++) {
        cyto_error error;
        how.kind = kind;
        memset(out, 0x55, sizeof out);
        CHECK_INT_EQ(cyto_tiles_blend(&how, tiles, n, regions[r], regions[r] + 2, out, &error), CYTO_OK);
        CHECK_INT_EQ(differences(&how, tiles, n, regions[r], regions[r] + 2, out), 0);
      }
}

/* Weights as products of each axis' are those of the tile's voxels; tiles one after the other make what all of them make at
 * once, and leave alone where none lies, or a later one. */
static void test_one_by_one(void) {
  enum { SIZE = TILE_Y * TILE_X, ROOM = CHANNELS * IMAGE_Y * IMAGE_X * 4 };
  static const int64_t origins[][2] = {{0, -20}, {0, 300}, {2, 350}}, start[2] = {0, 0}, stop[2] = {IMAGE_Y, IMAGE_X};
  static float values[3][CHANNELS * SIZE], weights[SIZE], y_line[TILE_Y], x_line[TILE_X];
  static uint8_t whole[ROOM], parts[ROOM], empty[ROOM];
  cyto_blend by_voxel = {.rank = 2, .lead = CHANNELS, .tile = {TILE_Y, TILE_X}, .weights = weights, .threshold = 0.25f};
  cyto_tile tiles[3] = {{0}}, late[3];
  uint32_t seed = 1;
  for (int k = 0; k < TILE_X; k++)
    x_line[k] = (float)((seed = seed * 1664525u + 1013904223u) >> 8) / (1 << 24);
  for (int k = 0; k < TILE_Y; k++)
    y_line[k] = 0.3f + 0.1f * (float)k;
  for (int k = 0; k < SIZE; k++) {
    volatile float product = y_line[k / TILE_X] * x_line[k % TILE_X];
    weights[k] = product < 0.01f ? 0.01f : product;
  }
  for (int t = 0; t < 3; t++) {
    for (int k = 0; k < CHANNELS * SIZE; k++)
      values[t][k] = (float)((int)((seed = seed * 1664525u + 1013904223u) >> 24) - 128) / 64;
    tiles[t] = (cyto_tile){values[t], {origins[t][0], origins[t][1]}};
  }
  for (int kind = CYTO_BLEND_MEANS; kind <= CYTO_BLEND_ABOVE; kind++) {
    cyto_error error;
    by_voxel.kind = kind;
    cyto_blend by_axis = by_voxel;
    by_axis.weights = NULL;
    by_axis.lines[0] = y_line;
    by_axis.lines[1] = x_line;
    by_axis.least = 0.01f;
    memset(whole, 0x55, ROOM);
    memset(parts, 0x55, ROOM);
    memset(empty, 0, ROOM);
    CHECK_INT_EQ(cyto_tiles_blend(&by_voxel, tiles, 3, start, stop, whole, &error), CYTO_OK);
    CHECK_INT_EQ(differences(&by_voxel, tiles, 3, start, stop, whole), 0);
    for (int64_t t = 0; t < 3; t++) {
      memcpy(late, tiles, sizeof late);
      for (int64_t k = t + 1; k < 3; k++)
        late[k].values = NULL;
      CHECK_INT_EQ(cyto_tiles_blend_last(&by_axis, late, 3, t, start, stop, parts, &error), CYTO_OK);
      CHECK_INT_EQ(cyto_tiles_blend_last(&by_axis, late, 3, t, start, stop, empty, &error), CYTO_OK);
    }
    CHECK_INT_EQ(parts[ROOM - 1], 0x55);
    for (int64_t k = 0, wrong = 0; k < ROOM; k++) { /* what was left alone has both fillings */
      wrong += parts[k] != whole[k] && !(parts[k] == 0x55 && empty[k] == 0);
      if (k == ROOM - 1)
        CHECK_INT_EQ(wrong, 0);
    }
  }
  cyto_error error;
  CHECK_INT_EQ(cyto_tiles_blend_last(&by_voxel, tiles, 3, 3, start, stop, parts, &error), CYTO_INVALID_ARGUMENT);
  CHECK_STR_HAS(error.message, "one of the 3 tiles, found 3");
  by_voxel.weights = NULL;
  by_voxel.lines[0] = y_line;
  CHECK_INT_EQ(cyto_tiles_blend(&by_voxel, tiles, 3, start, stop, parts, &error), CYTO_INVALID_ARGUMENT);
}

static void test_bad_tiles(void) {
  float one = 1, out = 0;
  int64_t start[CYTO_MAX_RANK] = {0}, stop[CYTO_MAX_RANK] = {1};
  cyto_tile tile = {&one, {0}};
  cyto_error error;
  cyto_blend good = {.rank = 1, .lead = 1, .tile = {1}, .weights = &one}, bad[6];
  CHECK_INT_EQ(cyto_tiles_blend(&good, &tile, 1, start, stop, &out, &error), CYTO_OK);
  CHECK(out == 1);
  for (int k = 0; k < 6; k++)
    bad[k] = good;
  bad[0].rank = 0;
  bad[1].rank = CYTO_MAX_RANK + 1;
  bad[2].lead = 0;
  bad[3].tile[0] = 0;
  bad[4].weights = NULL;
  bad[5].kind = CYTO_BLEND_ARGMAX;
  bad[5].lead = 257;
  for (int k = 0; k < 6; k++)
    CHECK_INT_EQ(cyto_tiles_blend(&bad[k], &tile, 1, start, stop, &out, &error), CYTO_INVALID_ARGUMENT);
  CHECK_INT_EQ(cyto_tiles_blend(&good, NULL, 1, start, stop, &out, &error), CYTO_INVALID_ARGUMENT);
  CHECK_STR_HAS(error.message, "cyto_tiles_blend");
}

int main(int argc, char **argv) {
  static const check_test tests[] = {
      {"tiles", test_tiles},
      {"one_by_one", test_one_by_one},
      {"bad_tiles", test_bad_tiles},
  };
  return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
