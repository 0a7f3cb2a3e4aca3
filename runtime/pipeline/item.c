/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* item.c - items, their tensors, the memory of models' outputs, and groups of parts. */
#include "pipeline_int.h"

#include <stdio.h>

/* ---- memory of outputs ---- */

block *cyrt_pipe_block_new(uint64_t bytes) {
  block *b = malloc(sizeof *b);
  void *memory = b && bytes <= (uint64_t)1 << 46 ? cyrt_os_alloc(bytes ? bytes : 1, CYRT_ALIGN) : NULL;
  if (!memory) {
    free(b);
    return NULL;
  }
  atomic_init(&b->refs, 1);
  b->bytes = bytes;
  b->memory = memory;
  return b;
}

void cyrt_pipe_block_give(block *b) {
  if (!b || atomic_fetch_sub(&b->refs, 1) != 1)
    return;
  cyrt_os_free(b->memory);
  free(b);
}

void *cyto_tensors_keep(const cyto_item *head) {
  block *b = head ? ((const item *)head)->block : NULL;
  if (b)
    atomic_fetch_add(&b->refs, 1);
  return b;
}

void cyto_tensors_release(void *kept) { cyrt_pipe_block_give(kept); }

/* ---- tensors ---- */

static cyto_tensor *tensors_copy(int32_t count, const cyto_tensor *tensors) {
  cyto_tensor *copy = malloc((size_t)(count ? count : 1) * sizeof *copy);
  if (copy && count)
    memcpy(copy, tensors, (size_t)count * sizeof *copy);
  return copy;
}

cyto_status cyto_item_set_tensors(cyto_item *head, int32_t count, const cyto_tensor *tensors) {
  item *i = (item *)head;
  if (!i || count < 0 || (count && !tensors))
    return CYTO_INVALID_ARGUMENT;
  cyto_tensor *copy = tensors_copy(count, tensors);
  if (!copy)
    return CYTO_OUT_OF_MEMORY;
  free(i->tensors);
  head->tensors = i->tensors = copy;
  head->count = count;
  cyrt_pipe_block_give(i->block);
  i->block = NULL;
  return CYTO_OK;
}

/* ---- items ---- */

item *cyrt_pipe_item_new(cyto_pipeline *p, origin *o, void *data, int32_t count, const cyto_tensor *tensors) {
  item *i = calloc(1, sizeof *i);
  cyto_tensor *copy = tensors_copy(count, tensors);
  if (!i || !copy) {
    free(i);
    free(copy);
    return NULL;
  }
  i->pipeline = p;
  i->origin = o;
  o->refs++;
  i->head = (cyto_item){
      .number = o->number, .part = -1, .name = o->name, .data = data, .count = count, .tensors = copy, .message = ""};
  i->tensors = copy;
  return i;
}

static void origin_give(cyto_pipeline *p, origin *o) {
  if (--o->refs)
    return;
  free(o);
  p->live--;
  cyrt_pipe_signal(&p->room);
}

void cyrt_pipe_group_give(group *g) {
  if (!g || --g->refs)
    return;
  group *outer = g->outer;
  free(g->message);
  free(g);
  cyrt_pipe_group_give(outer);
}

void cyrt_pipe_item_free(item *i) {
  cyto_pipeline *p = i->pipeline;
  if (i->head.data && p->options.release) {
    cyrt_pipe_unlock(p);
    p->options.release(p->options.user, i->head.data);
    cyrt_pipe_lock(p);
  }
  origin_give(p, i->origin);
  cyrt_pipe_group_give(i->group);
  cyrt_pipe_group_give(i->own);
  cyrt_pipe_block_give(i->block);
  cyrt_pipe_block_give(i->input_block);
  free(i->tensors);
  free(i->inputs);
  free(i->message);
  free(i);
}

void cyto_item_free(cyto_item *head) {
  item *i = (item *)head;
  if (!i)
    return;
  cyto_pipeline *p = i->pipeline;
  cyrt_pipe_lock(p);
  cyrt_pipe_item_free(i);
  cyrt_pipe_unlock(p);
}

/* ---- failing ---- */

static char *explain(const item *i, const stage *s, int32_t status, const char *text) {
  const char *name = i->origin->name;
  char part[40] = "";
  size_t room = sizeof((cyto_error *)0)->message + strlen(name) + sizeof s->name + 100;
  char *out = malloc(room);
  if (i->head.part >= 0)
    snprintf(part, sizeof part, ", part %lld", (long long)i->head.part);
  if (out)
    snprintf(out, room, "item %s%s%s(number %lld%s), stage '%s': %s", name[0] ? "'" : "", name, name[0] ? "' " : "",
             (long long)i->head.number, part, s->name, text && text[0] ? text : cyto_status_name(status));
  return out;
}

void cyrt_pipe_fail(item *i, stage *s, int32_t status, const char *text) {
  cyto_pipeline *p = s->pipeline;
  free(i->message);
  i->message = explain(i, s, status, text);
  i->head.status = status;
  i->head.stage = s->number;
  i->head.message = i->message ? i->message : cyto_status_name(status);
  s->sums.failed++;
  p->stopping |= p->options.on_error == CYTO_ERRORS_STOP;
  if (i->own)
    i->own->failed = 1;
  group *g = i->group;
  if (!g)
    return;
  if (!g->failed) {
    g->message = explain(i, s, status, text);
    g->status = status;
    g->stage = s->number;
  }
  g->failed = 1;
}

int cyrt_pipe_passes(const item *i) { return i->head.status || i->own || (i->group && i->group->failed); }
