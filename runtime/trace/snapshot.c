/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* snapshot.c - cyto_memory_snapshot(): what a context holds, by name. */
#include "runtime/context.h"

typedef struct rows {
  cyto_memory_use *uses;
  int32_t room, n;
} rows;

/* What there never was has no row. */
static void add(rows *r, const char *name, uint64_t in_use, uint64_t peak) {
  if (!in_use && !peak)
    return;
  if (r->n < r->room)
    r->uses[r->n] = (cyto_memory_use){name, in_use, peak > in_use ? peak : in_use};
  r->n++;
}

static void add_outputs(rows *r, const cyto_context *context) {
  const cyrt_model *code = context->model->code;
  uint64_t own = 0, own_peak = 0, kept = 0;
  for (uint32_t i = 0; i < code->n_outputs; i++) {
    const cyrt_output_state *state = &context->outputs[i];
    int in_use = state->own && context->frame.outputs[i].ptr == state->own;
    own += in_use ? state->own_bytes : 0;
    own_peak += state->own_bytes;
    kept += state->kept_bytes + state->next_bytes;
  }
  add(r, "outputs", own, own_peak);
  add(r, "kept outputs", kept, kept);
}

int32_t cyto_memory_snapshot(const cyto_context *context, cyto_memory_use *uses, int32_t room) {
  if (!context || (room > 0 && !uses))
    return 0;
  const cyrt_model *code = context->model->code;
  rows r = {uses, room, 0};
  uint64_t dynamic = 0, dynamic_peak = 0;
  for (uint32_t i = 0; i < code->n_dynamic; i++) {
    dynamic += context->frame.dynamic[i].bytes;
    dynamic_peak += context->frame.dynamic[i].capacity;
  }
  add(&r, "weights", code->weights_bytes, code->weights_bytes);
  if (!context->device && !context->spread)
    add(&r, "arena", context->planned ? context->frame.arena_bytes : 0, context->arena_capacity);
  add(&r, "tensors of data-dependent size", dynamic, dynamic_peak);
  add_outputs(&r, context);
  add(&r, "operators", context->head.stash ? context->head.stash_bytes : 0, context->head.stash_bytes);
  if (context->device && code->device->memory)
    r.n += code->device->memory(context->device, r.n < room ? uses + r.n : NULL, r.n < room ? room - r.n : 0);
  add(&r, "tables", context->block_bytes, context->block_bytes);
  add(&r, "all of the context", context->in_use, context->peak);
  return r.n;
}
