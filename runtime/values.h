/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* values.h - the store of a context: texts and objects that live for one run.
 *
 * Generated code and operators know a string as the number of its text and a sequence, map or optional value as the
 * number of an object. Texts are unique: equal strings have equal numbers, those of the model come first (cyrt_texts).
 * What an object stands for never changes once it is made; an optional without a value is number 0. What they consist
 * of lies in memory of the store, which is given back all at once when the next run starts. Sequences that come from
 * one another share a list, see sequences.c.
 *
 * The store may belong to another copy of the runtime (see cyrt.h): its functions are called through its table, which
 * cyrt_text() and the others below do.
 */
#ifndef CYRT_VALUES_H
#define CYRT_VALUES_H

#include "cyrt.h"

typedef struct cyrt_edit { /* a change of a list; appending is none */
  int64_t at;
  int32_t item, inserted; /* what was inserted, or erased */
} cyrt_edit;

/* Elements of sequences: the newest, and what has been done to them. */
typedef struct cyrt_list {
  int64_t used, capacity;
  int32_t *items; /* objects */
  int64_t n_edits, edits_capacity;
  cyrt_edit *edits;
} cyrt_list;

typedef struct cyrt_object {
  int32_t kind;       /* cyto_kind */
  int32_t keys, vals; /* CYTO_MAP: objects, tensors of rank 1 */
  cyrt_tensor tensor; /* CYTO_TENSOR; strings as numbers of texts */
  cyrt_list *list;    /* CYTO_SEQUENCE: the first `count` items after `time` edits; NULL: nobody made a list for none */
  int64_t count, time;
} cyrt_object;

typedef struct cyrt_values_api {
  int32_t (*text_add)(struct cyrt_values *v, const char *text, uint64_t length); /* its number; -1: no memory */
  cyto_string (*text)(const struct cyrt_values *v, int32_t number);
  void *(*alloc)(struct cyrt_values *v, uint64_t bytes); /* 64-byte aligned, until the next run; NULL: no memory */
  int32_t (*object_add)(struct cyrt_values *v, const cyrt_object *object);   /* its number; -1: no memory */
  cyrt_object *(*object)(const struct cyrt_values *v, int32_t number);       /* NULL for 0 and numbers of no object */
} cyrt_values_api;

/* The head of a store; what follows is private to values.c. */
struct cyrt_values {
  const cyrt_values_api *api;
};

/* For operators; a frame without a store (an operator called outside of a model) fails. Codes as those of cyrt_op. */
int32_t cyrt_text_add(cyrt_frame *frame, const char *text, uint64_t length, int32_t *out_number);
cyto_string cyrt_text(const cyrt_frame *frame, int32_t number);
int32_t cyrt_values_alloc(cyrt_frame *frame, uint64_t bytes, void **out_memory);
int32_t cyrt_object_add(cyrt_frame *frame, const cyrt_object *object, int32_t *out_number);
const cyrt_object *cyrt_object_at(const cyrt_frame *frame, int32_t number);

/* sequences.c: `number` is that of a sequence, positions are those of its items. NULL, -1: no memory. */
cyrt_list *cyrt_list_create(struct cyrt_values *v, int64_t capacity);
const int32_t *cyrt_list_items(struct cyrt_values *v, int32_t number); /* all `count` of them */
int32_t cyrt_list_at(struct cyrt_values *v, int32_t number, int64_t i);
/* The sequence with an item put in at a position, or without the one there: its number. */
int32_t cyrt_list_edit(struct cyrt_values *v, int32_t number, int64_t at, int32_t item, int insert);
struct cyrt_values *cyrt_values_of(const cyrt_frame *frame); /* NULL: a frame without a store */
int32_t cyrt_values_full(cyrt_frame *frame);                 /* fails for want of memory */

/* For context.c: the store's life, and what crosses its border. */
struct cyrt_values *cyrt_values_create(cyto_context *context, const cyrt_texts *texts); /* NULL: no memory */
void cyrt_values_destroy(struct cyrt_values *v);
void cyrt_values_reset(struct cyrt_values *v); /* a run starts */
/* Numbers of `count` strings, in memory of the store; NULL: no memory. */
int32_t *cyrt_strings_enter(struct cyrt_values *v, const cyto_string *strings, int64_t count);
/* Turns `count` numbers into strings, in place: `data` has room for the strings. */
void cyrt_strings_leave(const struct cyrt_values *v, void *data, int64_t count);
/* Does every string of some length have a text? */
cyto_status cyrt_strings_check(const cyto_string *strings, int64_t count, const char *where, cyto_error *error);
/* Is the value of this type? Text about the first thing that is wrong, naming `where`. */
cyto_status cyrt_value_check(const cyto_value *value, const cyto_type *type, const char *where, cyto_error *error);
/* A checked value as an object: its number, 0 for an optional without a value; -1: no memory. */
int32_t cyrt_value_enter(struct cyrt_values *v, const cyto_value *value);
cyto_status cyrt_value_leave(struct cyrt_values *v, int32_t number, const cyto_type *type, cyto_value *out_value);

#endif
