/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* sequences.c - the elements of sequences: versions of one list that share its memory.
 *
 * A sequence never changes: inserting and erasing make another one. Loops do so thousands of times and look at the
 * newest only, so a list is changed in place and keeps what was done to it, in the order of time. A sequence is the
 * list as it was at its time, cut to its count: the newest ones are read directly, an older one by following what
 * happened since to the place that is asked for. Appending is not kept, since it moves nothing that was there. So
 * memory grows by a fixed amount per operation, whatever the length. An old sequence that is far behind gets a list of
 * its own when it is used; one that is near is brought back in place, by undoing what happened since, as further
 * changes, before it is changed.
 *
 * Memory is the store's, see values.h. All results are -1, 0 or NULL when there is none.
 */
#include "runtime/values.h"

#include <string.h>

enum { NEAR = 4, READABLE = 64 }; /* changes: how many are undone before a change, followed for reading */

/* A copy of `used` items of `size` bytes with more room; what it replaces stays until the run's end. */
static void *larger(struct cyrt_values *v, const void *items, int64_t used, int64_t capacity, size_t size) {
  void *grown = v->api->alloc(v, (uint64_t)capacity * size);
  if (grown && used)
    memcpy(grown, items, (size_t)used * size);
  return grown;
}

cyrt_list *cyrt_list_create(struct cyrt_values *v, int64_t capacity) {
  cyrt_list *list = v->api->alloc(v, sizeof *list);
  int32_t *items = list ? v->api->alloc(v, (uint64_t)capacity * sizeof *items) : NULL;
  if (!items)
    return NULL;
  *list = (cyrt_list){.capacity = capacity, .items = items};
  return list;
}

/* Item i of the list as it was when `time` changes had been made. */
static int32_t item_then(const cyrt_list *list, int64_t time, int64_t i) {
  for (; time < list->n_edits; time++) {
    const cyrt_edit *e = &list->edits[time];
    if (e->inserted)
      i += e->at <= i;
    else if (e->at == i)
      return e->item;
    else
      i -= e->at < i;
  }
  return list->items[i];
}

/* Gives a sequence a list of its own. */
static int detach(struct cyrt_values *v, cyrt_object *s, int64_t room) {
  cyrt_list *list = cyrt_list_create(v, s->count + room);
  if (!list)
    return 0;
  for (int64_t i = 0; i < s->count; i++)
    list->items[i] = item_then(s->list, s->time, i);
  list->used = s->count;
  s->list = list;
  s->time = 0;
  return 1;
}

static int64_t age_of(const cyrt_object *s) { return s->list->n_edits - s->time; }

/* Inserts the item at a place, or erases what is there. */
static int change(struct cyrt_values *v, cyrt_list *list, int64_t at, int32_t item, int inserted) {
  if (list->used == list->capacity && inserted) {
    int32_t *items = larger(v, list->items, list->used, list->capacity * 2 + 4, sizeof *items);
    if (!items)
      return 0;
    list->items = items;
    list->capacity = list->capacity * 2 + 4;
  }
  if (list->n_edits == list->edits_capacity) {
    cyrt_edit *edits = larger(v, list->edits, list->n_edits, list->edits_capacity * 2 + 4, sizeof *edits);
    if (!edits)
      return 0;
    list->edits = edits;
    list->edits_capacity = list->edits_capacity * 2 + 4;
  }
  int32_t *place = list->items + at;
  if (!inserted || at < list->used)
    list->edits[list->n_edits++] = (cyrt_edit){at, inserted ? item : *place, inserted};
  if (inserted) {
    memmove(place + 1, place, (size_t)(list->used++ - at) * sizeof *place);
    *place = item;
  } else {
    memmove(place, place + 1, (size_t)(--list->used - at) * sizeof *place);
  }
  return 1;
}

/* Makes a sequence all of its list as it is now. */
static int bring_back(struct cyrt_values *v, cyrt_object *s) {
  if (age_of(s) + (s->list->used - s->count) > NEAR)
    return detach(v, s, s->count + 4);
  for (int64_t last = s->list->n_edits; last-- > s->time;) {
    cyrt_edit e = s->list->edits[last];
    if (!change(v, s->list, e.at, e.item, !e.inserted))
      return 0;
  }
  while (s->list->used > s->count)
    if (!change(v, s->list, s->list->used - 1, 0, 0))
      return 0;
  s->time = s->list->n_edits;
  return 1;
}

const int32_t *cyrt_list_items(struct cyrt_values *v, int32_t number) {
  static const int32_t none;
  cyrt_object *s = v->api->object(v, number);
  if (!s->list)
    return &none;
  return age_of(s) == 0 || detach(v, s, 0) ? s->list->items : NULL;
}

int32_t cyrt_list_at(struct cyrt_values *v, int32_t number, int64_t i) {
  cyrt_object *s = v->api->object(v, number);
  if (age_of(s) > READABLE && !detach(v, s, 0))
    return -1;
  return item_then(s->list, s->time, i);
}

int32_t cyrt_list_edit(struct cyrt_values *v, int32_t number, int64_t at, int32_t item, int insert) {
  cyrt_object *s = v->api->object(v, number);
  if (!s->list && !(s->list = cyrt_list_create(v, 4)))
    return -1;
  if (!bring_back(v, s) || !change(v, s->list, at, item, insert))
    return -1;
  cyrt_object next = {.kind = CYTO_SEQUENCE, .list = s->list, .count = s->list->used, .time = s->list->n_edits};
  return v->api->object_add(v, &next);
}
