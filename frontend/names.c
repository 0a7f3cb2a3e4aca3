/* SPDX-License-Identifier: Apache-2.0 */
/* names.c - a hash table from names to 32-bit numbers, for scopes and functions; keys are not copied. */
#include "frontend/import_int.h"

#include <string.h>

struct cy_names {
  cy_arena *arena;
  const char **keys;
  uint32_t *values;
  uint32_t count, capacity; /* a power of two */
};

static uint32_t hash(const char *s) {
  uint32_t h = 2166136261u;
  for (; *s; s++)
    h = (h ^ (uint8_t)*s) * 16777619u;
  return h ^ h >> 15;
}

cy_names *cy_names_create(cy_arena *arena) {
  cy_names *t = CY_NEW(arena, cy_names);
  t->arena = arena;
  return t;
}

static uint32_t slot_of(const cy_names *t, const char *key) {
  uint32_t i = hash(key) & (t->capacity - 1);
  while (t->keys[i] && strcmp(t->keys[i], key) != 0)
    i = (i + 1) & (t->capacity - 1);
  return i;
}

bool cy_names_find(const cy_names *t, const char *key, uint32_t *out_value) {
  if (!t->capacity)
    return false;
  uint32_t i = slot_of(t, key);
  if (!t->keys[i])
    return false;
  *out_value = t->values[i];
  return true;
}

static void grow(cy_names *t) {
  cy_names old = *t;
  t->capacity = old.capacity ? old.capacity * 2 : 32;
  t->keys = CY_NEW_ARRAY(t->arena, const char *, t->capacity);
  t->values = CY_NEW_ARRAY(t->arena, uint32_t, t->capacity);
  for (uint32_t k = 0; k < old.capacity; k++) {
    if (!old.keys[k])
      continue;
    uint32_t i = slot_of(t, old.keys[k]);
    t->keys[i] = old.keys[k];
    t->values[i] = old.values[k];
  }
}

void cy_names_set(cy_names *t, const char *key, uint32_t value) {
  if ((t->count + 1) * 4 > t->capacity * 3)
    grow(t);
  uint32_t i = slot_of(t, key);
  if (!t->keys[i]) {
    t->keys[i] = key;
    t->count++;
  }
  t->values[i] = value;
}
