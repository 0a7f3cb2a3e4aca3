/* SPDX-License-Identifier: Apache-2.0 */
/* volume.c - see volume.h. For the example, and by train.py for the network. */
#include "volume.h"

#include <math.h>

typedef struct volume {
  int size[3]; /* depth, height, width */
  uint32_t random;
  float *seen;
  uint8_t *cell;
} volume;

/* What one thing adds at the distance r from its centre, in its radii; how far it reaches; and whether it is a cell. */
typedef struct kind {
  float (*light)(float r);
  float reach;
  int cell;
} kind;

/* An ellipsoid around at, turned by angle about z, or a tube if it is long in one direction. */
typedef struct thing {
  float at[3], radius[3], angle, brightness;
} thing;

static float uniform(volume *v, float low, float high) {
  v->random ^= v->random << 13;
  v->random ^= v->random >> 17;
  v->random ^= v->random << 5;
  return low + (high - low) * (float)(v->random >> 8) / (1 << 24);
}

/* Brighter inside, with a soft edge. */
static float cell_light(float r) { return r < 0.9f ? 1 - 0.3f * r * r : fmaxf(0, 0.757f * (1.3f - r) / 0.4f); }
static float dirt_light(float r) { return expf(-r * r); }

static const kind CELL = {cell_light, 1.3f, 1}, DIRT = {dirt_light, 2.5f, 0};

/* The box around t, within the volume. */
static void box_of(const volume *v, const thing *t, float reach, int low[3], int high[3]) {
  float flat = fmaxf(t->radius[1], t->radius[2]), half[3] = {t->radius[0], flat, flat};
  for (int i = 0; i < 3; i++) {
    low[i] = (int)fmaxf(0, t->at[i] - half[i] * reach);
    high[i] = (int)fminf((float)v->size[i], t->at[i] + half[i] * reach + 1);
  }
}

static void add(volume *v, const kind *k, const thing *t) {
  int low[3], high[3];
  box_of(v, t, k->reach, low, high);
  float c = cosf(t->angle), s = sinf(t->angle);
  for (int z = low[0]; z < high[0]; z++)
    for (int y = low[1]; y < high[1]; y++)
      for (int x = low[2]; x < high[2]; x++) {
        float dz = ((float)z - t->at[0]) / t->radius[0], dy = (float)y - t->at[1], dx = (float)x - t->at[2];
        float a = (c * dy - s * dx) / t->radius[1], b = (s * dy + c * dx) / t->radius[2];
        float r = sqrtf(dz * dz + a * a + b * b), light = t->brightness * k->light(r);
        int64_t i = ((int64_t)z * v->size[1] + y) * v->size[2] + x;
        v->seen[i] = fmaxf(v->seen[i], r < k->reach ? light : 0);
        v->cell[i] |= k->cell && r < 1;
      }
}

static thing any(volume *v, const float radius[3][2], float dark, float bright) {
  thing t;
  for (int i = 0; i < 3; i++) {
    t.at[i] = uniform(v, 0, (float)v->size[i]);
    t.radius[i] = uniform(v, radius[i][0], radius[i][1]);
  }
  t.angle = uniform(v, 0, 6.2832f);
  t.brightness = uniform(v, dark, bright);
  return t;
}

static void scatter(volume *v, const kind *k, int64_t count, const float radius[3][2], float dark, float bright) {
  while (count--) {
    thing t = any(v, radius, dark, bright);
    add(v, k, &t);
  }
}

/* Haze that grows to one corner, and noise that grows with the light. */
static void add_noise(volume *v) {
  for (int z = 0; z < v->size[0]; z++)
    for (int y = 0; y < v->size[1]; y++)
      for (int x = 0; x < v->size[2]; x++, v->seen++) {
        float light = *v->seen + 0.05f + 0.25f * ((float)z / v->size[0] + (float)x / v->size[2]);
        float noise = uniform(v, -1, 1) + uniform(v, -1, 1) + uniform(v, -1, 1);
        *v->seen = light + noise * 0.15f * sqrtf(light);
      }
}

void volume_make(int depth, int height, int width, uint32_t seed, float *seen, uint8_t *cell) {
  static const float cells[3][2] = {{3, 5}, {5, 8}, {6, 10}}, dirt[3][2] = {{0.8f, 1.6f}, {0.8f, 1.6f}, {0.8f, 1.6f}},
                     fibres[3][2] = {{1, 1.5f}, {1, 1.5f}, {15, 40}};
  int64_t voxels = (int64_t)depth * height * width;
  volume v = {{depth, height, width}, seed * 2654435761u | 1, seen, cell};
  for (int64_t i = 0; i < voxels; i++) {
    seen[i] = 0;
    cell[i] = 0;
  }
  scatter(&v, &CELL, voxels / 5000 + 1, cells, 0.3f, 0.7f);
  scatter(&v, &DIRT, voxels / 2000, dirt, 0.4f, 1);
  scatter(&v, &DIRT, voxels / 20000, fibres, 0.4f, 0.8f);
  add_noise(&v);
}
