/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* values.c - the store of texts and objects of a context, and the border that strings, sequences, maps and optional
 * values cross: cyto_string and cyto_value outside, numbers inside.
 *
 * Memory is taken in chunks that grow, cut from the front, and reused run after run. Two hash tables find texts: one of
 * the model's, made once, one of the run's, emptied when a run starts. Values are copied on their way in where strings
 * become numbers; tensors of numbers are pointed to, in and out. See values.h.
 */
#include "values.h"

#include <string.h>

enum { CHUNK_BYTES = 1 << 16, MAX_TEXTS = INT32_MAX };

typedef struct chunk {
  struct chunk *next;
  uint64_t bytes, used; /* of the whole, this head included */
} chunk;

typedef struct text_entry {
  cyto_string text;
  uint64_t hash;
} text_entry;

typedef struct text_table {
  int32_t *slots; /* -1: free */
  uint32_t size;  /* a power of two, or 0 */
  uint32_t used;
} text_table;

typedef struct store {
  struct cyrt_values head;
  cyto_context *context;
  chunk *chunks; /* the one in use first */
  text_entry *texts;
  uint32_t n_texts, texts_capacity, n_own; /* own: those of the model */
  text_table own, made;
  cyrt_object *objects; /* number 0 is none */
  uint32_t n_objects, objects_capacity;
} store;

/* ---- memory ---- */

static const cyrt_context_head *head_of(const store *s) { return (const cyrt_context_head *)s->context; }

/* Makes room for one more item; contents are kept. */
static int grow(store *s, void **list, uint32_t n, uint32_t *capacity, size_t item) {
  if (n < *capacity)
    return 1;
  uint32_t larger = *capacity ? *capacity * 2 : 64;
  void *grown = larger < *capacity ? NULL : head_of(s)->alloc(s->context, larger * (uint64_t)item);
  if (!grown)
    return 0;
  if (*list) {
    memcpy(grown, *list, n * item);
    head_of(s)->release(s->context, *list, *capacity * (uint64_t)item);
  }
  *list = grown;
  *capacity = larger;
  return 1;
}

static uint64_t round_up(uint64_t bytes) { return (bytes + CYRT_ALIGN - 1) / CYRT_ALIGN * CYRT_ALIGN; }

static void *store_alloc(struct cyrt_values *v, uint64_t bytes) {
  store *s = (store *)v;
  const uint64_t head = round_up(sizeof(chunk));
  if (bytes > (uint64_t)1 << 46)
    return NULL;
  bytes = round_up(bytes ? bytes : 1);
  if (!s->chunks || s->chunks->bytes - s->chunks->used < bytes) {
    uint64_t size = s->chunks ? s->chunks->bytes * 2 : CHUNK_BYTES;
    size = size < head + bytes ? head + bytes : size;
    chunk *c = head_of(s)->alloc(s->context, size);
    if (!c)
      return NULL;
    *c = (chunk){s->chunks, size, head};
    s->chunks = c;
  }
  void *memory = (uint8_t *)s->chunks + s->chunks->used;
  s->chunks->used += bytes;
  return memory;
}

static void release_chunks(store *s, chunk *c) {
  while (c) {
    chunk *next = c->next;
    head_of(s)->release(s->context, c, c->bytes);
    c = next;
  }
}

/* ---- texts ---- */

static uint64_t hash_of(const char *text, uint64_t length) {
  uint64_t h = 0xcbf29ce484222325u;
  for (uint64_t i = 0; i < length; i++)
    h = (h ^ (uint8_t)text[i]) * 0x100000001b3u;
  return h ^ h >> 32;
}

/* Where a text stands in the table or belongs; the table has a free slot. */
static int32_t *table_slot(const store *s, const text_table *t, uint64_t hash, const char *text, uint64_t length) {
  for (uint32_t at = (uint32_t)hash & (t->size - 1);; at = (at + 1) & (t->size - 1)) {
    int32_t number = t->slots[at];
    const text_entry *e = number < 0 ? NULL : &s->texts[number];
    if (!e || (e->hash == hash && e->text.length == length && memcmp(e->text.text, text, length) == 0))
      return &t->slots[at];
  }
}

static int table_room(store *s, text_table *t) {
  if ((t->used + 1) * (uint64_t)2 <= t->size)
    return 1;
  uint32_t size = t->size ? t->size * 2 : 256;
  int32_t *slots = size > t->size ? head_of(s)->alloc(s->context, size * sizeof *slots) : NULL;
  if (!slots)
    return 0;
  memset(slots, 0xff, size * sizeof *slots);
  for (uint32_t i = 0; i < t->size; i++) {
    uint32_t at = t->slots[i] < 0 ? 0 : (uint32_t)s->texts[t->slots[i]].hash & (size - 1);
    while (t->slots[i] >= 0 && slots[at] >= 0)
      at = (at + 1) & (size - 1);
    if (t->slots[i] >= 0)
      slots[at] = t->slots[i];
  }
  head_of(s)->release(s->context, t->slots, t->size * sizeof *slots);
  t->slots = slots;
  t->size = size;
  return 1;
}

/* Puts a text that is in no table into one; it is not copied. */
static int32_t text_put(store *s, text_table *t, cyto_string text, uint64_t hash) {
  if (s->n_texts == MAX_TEXTS || !table_room(s, t) ||
      !grow(s, (void **)&s->texts, s->n_texts, &s->texts_capacity, sizeof *s->texts))
    return -1;
  s->texts[s->n_texts] = (text_entry){text, hash};
  *table_slot(s, t, hash, text.text, text.length) = (int32_t)s->n_texts;
  t->used++;
  return (int32_t)s->n_texts++;
}

static int32_t store_text_add(struct cyrt_values *v, const char *text, uint64_t length) {
  store *s = (store *)v;
  if (length == 0)
    return 0;
  uint64_t hash = hash_of(text, length);
  int32_t number = *table_slot(s, &s->own, hash, text, length);
  if (number < 0 && s->made.size)
    number = *table_slot(s, &s->made, hash, text, length);
  if (number >= 0)
    return number;
  char *copy = store_alloc(v, length + 1);
  if (!copy)
    return -1;
  memcpy(copy, text, length);
  copy[length] = 0;
  return text_put(s, &s->made, (cyto_string){copy, length}, hash);
}

static cyto_string store_text(const struct cyrt_values *v, int32_t number) {
  const store *s = (const store *)v;
  return number >= 0 && (uint32_t)number < s->n_texts ? s->texts[number].text : s->texts[0].text;
}

/* ---- objects ---- */

static int32_t store_object_add(struct cyrt_values *v, const cyrt_object *object) {
  store *s = (store *)v;
  if (s->n_objects == INT32_MAX ||
      !grow(s, (void **)&s->objects, s->n_objects, &s->objects_capacity, sizeof *s->objects))
    return -1;
  s->objects[s->n_objects] = *object;
  return (int32_t)s->n_objects++;
}

static cyrt_object *store_object(const struct cyrt_values *v, int32_t number) {
  const store *s = (const store *)v;
  return number > 0 && (uint32_t)number < s->n_objects ? &s->objects[number] : NULL;
}

/* ---- life ---- */

static const cyrt_values_api api = {store_text_add, store_text, store_alloc, store_object_add, store_object};

struct cyrt_values *cyrt_values_create(cyto_context *context, const cyrt_texts *texts) {
  const cyrt_context_head *head = (const cyrt_context_head *)context;
  store *s = head->alloc(context, sizeof *s);
  if (!s)
    return NULL;
  memset(s, 0, sizeof *s);
  s->head.api = &api;
  s->context = context;
  static const cyrt_object none;
  int complete = store_object_add(&s->head, &none) == 0;
  for (uint64_t i = 0; i < texts->count && complete; i++) {
    const char *text = texts->bytes + texts->starts[i];
    uint64_t length = texts->starts[i + 1] - texts->starts[i] - 1;
    complete = text_put(s, &s->own, (cyto_string){text, length}, hash_of(text, length)) >= 0;
  }
  s->n_own = s->n_texts;
  if (complete)
    return &s->head;
  cyrt_values_destroy(&s->head);
  return NULL;
}

void cyrt_values_destroy(struct cyrt_values *v) {
  store *s = (store *)v;
  if (!s)
    return;
  const cyrt_context_head *head = head_of(s);
  cyto_context *context = s->context;
  release_chunks(s, s->chunks);
  head->release(context, s->texts, s->texts_capacity * sizeof *s->texts);
  head->release(context, s->own.slots, s->own.size * sizeof *s->own.slots);
  head->release(context, s->made.slots, s->made.size * sizeof *s->made.slots);
  head->release(context, s->objects, s->objects_capacity * sizeof *s->objects);
  head->release(context, s, sizeof *s);
}

void cyrt_values_reset(struct cyrt_values *v) {
  store *s = (store *)v;
  if (s->chunks) { /* the newest is the largest: enough, or nearly so, for the next run */
    release_chunks(s, s->chunks->next);
    s->chunks->next = NULL;
    s->chunks->used = round_up(sizeof(chunk));
  }
  if (s->made.used)
    memset(s->made.slots, 0xff, s->made.size * sizeof *s->made.slots);
  s->made.used = 0;
  s->n_texts = s->n_own;
  s->n_objects = 1;
}

/* ---- for operators ---- */

struct cyrt_values *cyrt_values_of(const cyrt_frame *frame) {
  return frame->context ? ((const cyrt_context_head *)frame->context)->values : NULL;
}

int32_t cyrt_values_full(cyrt_frame *frame) {
  return cyrt_fail(frame, CYTO_OUT_OF_MEMORY, "no memory for strings, sequences, maps or optional values");
}

int32_t cyrt_text_add(cyrt_frame *frame, const char *text, uint64_t length, int32_t *out_number) {
  struct cyrt_values *v = cyrt_values_of(frame);
  *out_number = v ? v->api->text_add(v, text, length) : -1;
  return *out_number < 0 ? cyrt_values_full(frame) : CYTO_OK;
}

cyto_string cyrt_text(const cyrt_frame *frame, int32_t number) {
  const struct cyrt_values *v = cyrt_values_of(frame);
  return v ? v->api->text(v, number) : (cyto_string){"", 0};
}

int32_t cyrt_values_alloc(cyrt_frame *frame, uint64_t bytes, void **out_memory) {
  struct cyrt_values *v = cyrt_values_of(frame);
  *out_memory = v ? v->api->alloc(v, bytes) : NULL;
  return *out_memory ? CYTO_OK : cyrt_values_full(frame);
}

int32_t cyrt_object_add(cyrt_frame *frame, const cyrt_object *object, int32_t *out_number) {
  struct cyrt_values *v = cyrt_values_of(frame);
  *out_number = v ? v->api->object_add(v, object) : -1;
  return *out_number < 0 ? cyrt_values_full(frame) : CYTO_OK;
}

const cyrt_object *cyrt_object_at(const cyrt_frame *frame, int32_t number) {
  const struct cyrt_values *v = cyrt_values_of(frame);
  return v ? v->api->object(v, number) : NULL;
}

/* ---- in ---- */

int32_t *cyrt_strings_enter(struct cyrt_values *v, const cyto_string *strings, int64_t count) {
  int32_t *numbers = v->api->alloc(v, (uint64_t)count * sizeof *numbers);
  for (int64_t i = 0; i < count && numbers; i++)
    if ((numbers[i] = v->api->text_add(v, strings[i].text, strings[i].length)) < 0)
      return NULL;
  return numbers;
}

static int32_t tensor_enter(struct cyrt_values *v, const cyto_tensor *t) {
  static const _Alignas(64) uint8_t no_elements[64];
  cyrt_object object = {.kind = CYTO_TENSOR};
  int64_t count = cyrt_count(t->rank, t->dims);
  object.tensor = (cyrt_tensor){.data = t->data ? t->data : (void *)no_elements, .dtype = t->dtype, .rank = t->rank};
  memcpy(object.tensor.dims, t->dims, sizeof object.tensor.dims);
  if (t->dtype == CYTO_STRING && !(object.tensor.data = cyrt_strings_enter(v, t->data, count)))
    return -1;
  return v->api->object_add(v, &object);
}

static int32_t list_enter(struct cyrt_values *v, const cyto_value *value) {
  cyrt_object object = {.kind = CYTO_SEQUENCE, .count = (int64_t)value->count};
  object.list = cyrt_list_create(v, object.count);
  if (!object.list)
    return -1;
  object.list->used = object.count;
  for (uint64_t i = 0; i < value->count; i++)
    if ((object.list->items[i] = cyrt_value_enter(v, &value->items[i])) < 0)
      return -1;
  return v->api->object_add(v, &object);
}

int32_t cyrt_value_enter(struct cyrt_values *v, const cyto_value *value) {
  switch (value->kind) {
  case CYTO_SEQUENCE:
    return list_enter(v, value);
  case CYTO_OPTIONAL:
    return value->count ? cyrt_value_enter(v, value->items) : 0;
  case CYTO_MAP: {
    cyrt_object object = {.kind = CYTO_MAP, .keys = cyrt_value_enter(v, &value->items[0])};
    object.vals = object.keys < 0 ? -1 : cyrt_value_enter(v, &value->items[1]);
    return object.vals < 0 ? -1 : v->api->object_add(v, &object);
  }
  default:
    return tensor_enter(v, &value->tensor);
  }
}

/* ---- checking ---- */

static const char *kind_name(int32_t kind) {
  static const char *const names[] = {"tensor", "sequence", "optional", "map"};
  return kind >= 0 && kind < 4 ? names[kind] : "value of no known kind";
}

cyto_status cyrt_strings_check(const cyto_string *strings, int64_t count, const char *where, cyto_error *error) {
  for (int64_t i = 0; i < count; i++)
    if (!strings[i].text && strings[i].length)
      return cyrt_error_set(error, CYTO_INVALID_ARGUMENT, "%s: string %lld is NULL", where, (long long)i);
  return CYTO_OK;
}

static cyto_status tensor_check(const cyto_tensor *t, int32_t dtype, const char *where, cyto_error *error) {
  if (t->dtype != dtype)
    return cyrt_error_set(error, CYTO_DTYPE_MISMATCH, "%s: expected a tensor of %s, found %s", where,
                          cyto_dtype_name(dtype), cyto_dtype_name(t->dtype));
  if (t->rank < 0 || t->rank > CYTO_MAX_RANK || cyto_tensor_bytes(dtype, t->rank, t->dims) < 0)
    return cyrt_error_set(error, CYTO_SHAPE_MISMATCH, "%s: a tensor's dims are negative or too large", where);
  int64_t count = cyrt_count(t->rank, t->dims);
  if (count > 0 && (!t->data || (uintptr_t)t->data % cyrt_dtype_align(dtype)))
    return cyrt_error_set(error, CYTO_INVALID_ARGUMENT, "%s: a tensor's pointer is NULL or not aligned", where);
  return dtype == CYTO_STRING ? cyrt_strings_check(t->data, count, where, error) : CYTO_OK;
}

static cyto_status map_check(const cyto_value *value, const cyto_type *type, const char *where, cyto_error *error) {
  if (value->count != 2 || !value->items || value->items[0].kind != CYTO_TENSOR || value->items[1].kind != CYTO_TENSOR)
    return cyrt_error_set(error, CYTO_INVALID_ARGUMENT, "%s: a map needs two tensors, keys and values", where);
  const cyto_tensor *keys = &value->items[0].tensor, *values = &value->items[1].tensor;
  cyto_status status = tensor_check(keys, type->dtype, where, error);
  if (!status)
    status = tensor_check(values, type->of->dtype, where, error);
  if (status)
    return status;
  if (keys->rank != 1 || values->rank != 1 || keys->dims[0] != values->dims[0])
    return cyrt_error_set(error, CYTO_SHAPE_MISMATCH, "%s: keys and values of a map are lists of one length", where);
  return CYTO_OK;
}

cyto_status cyrt_value_check(const cyto_value *value, const cyto_type *type, const char *where, cyto_error *error) {
  if (value->kind != type->kind)
    return cyrt_error_set(error, CYTO_DTYPE_MISMATCH, "%s: expected a %s, found a %s", where, kind_name(type->kind),
                          kind_name(value->kind));
  if (value->kind == CYTO_TENSOR)
    return tensor_check(&value->tensor, type->dtype, where, error);
  if (value->kind == CYTO_MAP)
    return map_check(value, type, where, error);
  if ((value->count && !value->items) || (value->kind == CYTO_OPTIONAL && value->count > 1))
    return cyrt_error_set(error, CYTO_INVALID_ARGUMENT, "%s: %s with %llu items%s", where, kind_name(value->kind),
                          (unsigned long long)value->count, value->items ? "" : " and no pointer to them");
  for (uint64_t i = 0; i < value->count; i++) {
    cyto_status status = cyrt_value_check(&value->items[i], type->of, where, error);
    if (status)
      return status;
  }
  return CYTO_OK;
}

/* ---- out ---- */

void cyrt_strings_leave(const struct cyrt_values *v, void *data, int64_t count) {
  for (int64_t i = count; i-- > 0;) { /* from the end: a string takes the room of four numbers */
    int32_t number;
    memcpy(&number, (const uint8_t *)data + i * (int64_t)sizeof number, sizeof number);
    cyto_string text = v->api->text(v, number);
    memcpy((uint8_t *)data + i * (int64_t)sizeof text, &text, sizeof text);
  }
}

static cyto_status tensor_leave(struct cyrt_values *v, const cyrt_object *object, cyto_tensor *out) {
  const cyrt_tensor *t = &object->tensor;
  int64_t count = cyrt_count(t->rank, t->dims);
  *out = (cyto_tensor){.data = t->data, .dtype = t->dtype, .rank = t->rank};
  memcpy(out->dims, t->dims, sizeof out->dims);
  out->bytes = (uint64_t)cyto_tensor_bytes(t->dtype, t->rank, t->dims);
  if (t->dtype != CYTO_STRING)
    return CYTO_OK;
  if (!(out->data = v->api->alloc(v, out->bytes)))
    return CYTO_OUT_OF_MEMORY;
  memcpy(out->data, t->data, (size_t)count * sizeof(int32_t));
  cyrt_strings_leave(v, out->data, count);
  return CYTO_OK;
}

cyto_status cyrt_value_leave(struct cyrt_values *v, int32_t number, const cyto_type *type, cyto_value *out_value) {
  const cyrt_object *object = v->api->object(v, number);
  memset(out_value, 0, sizeof *out_value);
  out_value->kind = type->kind;
  if (!object)
    return type->kind == CYTO_OPTIONAL ? CYTO_OK : CYTO_RUNTIME_FAILURE;
  if (type->kind == CYTO_TENSOR)
    return tensor_leave(v, object, &out_value->tensor);
  cyrt_object held = *object; /* the table may move */
  const int32_t pair[2] = {held.keys, held.vals};
  const cyto_type keys = {CYTO_TENSOR, type->dtype, NULL};
  const int32_t *numbers = type->kind == CYTO_MAP ? pair : type->kind == CYTO_OPTIONAL ? &number : NULL;
  int64_t count = type->kind == CYTO_MAP ? 2 : type->kind == CYTO_OPTIONAL ? 1 : held.count;
  if (!numbers && !(numbers = cyrt_list_items(v, number)))
    return CYTO_OUT_OF_MEMORY;
  cyto_value *items = count ? v->api->alloc(v, (uint64_t)count * sizeof *items) : NULL;
  if (count && !items)
    return CYTO_OUT_OF_MEMORY;
  out_value->items = items;
  out_value->count = (uint64_t)count;
  for (int64_t i = 0; i < count; i++) {
    const cyto_type *of = type->kind == CYTO_MAP && i == 0 ? &keys : type->of;
    cyto_status status = cyrt_value_leave(v, numbers[i], of, &items[i]);
    if (status)
      return status;
  }
  return CYTO_OK;
}
