/* SPDX-License-Identifier: Apache-2.0 */
/* intern.c - interned strings, and the hash and chunk tables that strings, dims and atoms are interned with.
 *
 * In: bytes. Out: dense ids, equal for equal contents; id 0 is "". Texts live in the graph's arena, zero-terminated.
 * The hash table holds ids only; who owns the ids compares and rehashes by callback. It doubles at a load of one half
 * and leaves its old slots to the arena.
 */
#include "ir_int.h"

void cy_chunks_init(cy_chunks *c, cy_arena *a, size_t item) {
  *c = (cy_chunks){.item = item};
  c->chunk[0] = cy_arena_alloc(a, item * 256);
}

uint32_t cy_chunks_add(cy_chunks *c, cy_arena *a) {
  uint32_t id = ++c->count, x = id + 256, k = 23 - (uint32_t)__builtin_clz(x);
  if (id == UINT32_MAX - 256 || k >= 24)
    cy_bug("more than 2^31 items in one table");
  if (!c->chunk[k])
    c->chunk[k] = cy_arena_alloc(a, c->item * (256u << k));
  void *item = cy_chunks_at(c, id);
  memset(item, 0, c->item);
  return id;
}

uint32_t cy_hash_bytes(uint32_t seed, const void *bytes, size_t n) {
  const unsigned char *p = bytes;
  uint64_t h = seed ^ 0xcbf29ce484222325u;
  for (size_t i = 0; i < n; i++)
    h = (h ^ p[i]) * 0x100000001b3u;
  return (uint32_t)(h ^ (h >> 32));
}

uint32_t *cy_id_table_find(cy_id_table *t, uint32_t hash, bool (*same)(void *ctx, uint32_t id), void *ctx) {
  uint32_t mask = t->size - 1, i = hash & mask;
  while (t->slot[i] && !same(ctx, t->slot[i]))
    i = (i + 1) & mask;
  return &t->slot[i];
}

void cy_id_table_room(cy_id_table *t, cy_arena *a, uint32_t (*hash_of)(void *ctx, uint32_t id), void *ctx) {
  if (t->used * 2 < t->size)
    return;
  cy_id_table old = *t;
  t->size = old.size ? old.size * 2 : 256;
  t->slot = CY_NEW_ARRAY(a, uint32_t, t->size);
  for (uint32_t i = 0; i < old.size; i++) {
    if (!old.slot[i])
      continue;
    uint32_t j = hash_of(ctx, old.slot[i]) & (t->size - 1);
    while (t->slot[j])
      j = (j + 1) & (t->size - 1);
    t->slot[j] = old.slot[i];
  }
}

typedef struct str_key {
  const cy_graph *g;
  const char *text;
  uint32_t len, hash;
} str_key;

static bool str_same(void *ctx, uint32_t id) {
  const str_key *k = ctx;
  const cy_str_slot *s = cy_chunks_at(&k->g->strs, id);
  return s->hash == k->hash && s->len == k->len && memcmp(s->text, k->text, k->len) == 0;
}

static uint32_t str_hash(void *ctx, uint32_t id) {
  return ((const cy_str_slot *)cy_chunks_at(&((const cy_graph *)ctx)->strs, id))->hash;
}

cy_str cy_intern_n(cy_graph *g, const char *text, size_t len) {
  if (!text || len == 0)
    return 0;
  if (len > UINT32_MAX / 2)
    len = UINT32_MAX / 2;
  cy_id_table_room(&g->str_table, g->arena, str_hash, g);
  str_key key = {g, text, (uint32_t)len, cy_hash_bytes(1, text, len)};
  uint32_t *slot = cy_id_table_find(&g->str_table, key.hash, str_same, &key);
  if (*slot)
    return *slot;
  *slot = cy_chunks_add(&g->strs, g->arena);
  g->str_table.used++;
  cy_str_slot *s = cy_chunks_at(&g->strs, *slot);
  char *copy = cy_arena_alloc(g->arena, len + 1);
  memcpy(copy, text, len);
  *s = (cy_str_slot){copy, (uint32_t)len, key.hash};
  return *slot;
}

cy_str cy_intern(cy_graph *g, const char *text) { return text ? cy_intern_n(g, text, strlen(text)) : 0; }

const char *cy_str_text(const cy_graph *g, cy_str s) {
  if (s == 0)
    return "";
  if (s > g->strs.count)
    cy_bug("string %u of %u", s, g->strs.count);
  return ((const cy_str_slot *)cy_chunks_at(&g->strs, s))->text;
}
