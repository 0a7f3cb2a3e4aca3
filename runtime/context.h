/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* context.h - a context, for the files that make (context.c), bind (context_bind.c) and run one (context_run.c).
 *
 * It goes through three states, each kept until something it rests on changes:
 *   planned  the symbols are read off the bound shapes, plan() has set arena offsets and output dims, the arena is
 *            there. Lost when an input is bound with other dims.
 *   placed   every output that is not dynamic has its buffer. Lost with planned, or when an output is bound.
 *   ran      outputs hold results. Lost with placed, or when a run fails.
 * Memory only grows; a failed attempt leaves the state unset and everything else whole, so the caller can repair and
 * call again. One thread at a time uses a context.
 */
#ifndef CYRT_CONTEXT_H
#define CYRT_CONTEXT_H

#include "values.h"

typedef struct cyrt_input_state {
  int64_t dims[CYTO_MAX_RANK];
  int32_t has_shape;
} cyrt_input_state;

typedef struct cyrt_output_state {
  void *bound, *own; /* bound by the caller, or NULL; the context's memory, kept also while another is bound */
  uint64_t bound_bytes, own_bytes;
  void *kept; /* where a kept output and the input that it continues lie, or NULL */
  uint64_t kept_bytes;
  void *next; /* while it is being moved: where to */
  uint64_t next_bytes;
} cyrt_output_state;

/* A context over several devices. By pointers, so that only those who may need it are linked with context_spread.c. */
typedef struct cyrt_spread {
  cyto_status (*run)(cyto_context *context, cyto_error *error); /* outputs are placed */
  void (*close)(struct cyrt_spread *spread);
  void (*describe)(const struct cyrt_spread *spread, char *text, uint64_t capacity);
} cyrt_spread;

struct cyrt_context {
  cyrt_context_head head;
  cyrt_frame frame;
  cyto_model *model;
  cyto_allocator allocator;
  uint64_t block_bytes; /* of this struct and its tables */
  void *own_pool;       /* memory of a custom pool, or NULL */
  uint64_t arena_capacity;
  cyrt_input_state *inputs;
  const void **pointers; /* frame.inputs */
  cyto_value *given;     /* inputs that are strings or no tensors, as bound; none where the model has numbers only */
  cyrt_output_state *outputs;
  int32_t *symbol_input, *symbol_axis; /* where each input symbol's value came from; input -1: from nowhere yet */
  int32_t planned, placed, ran;
  int64_t wanted_room; /* of cyto_context_keep(); 0: outputs are not kept. frame.room: how much there is */
  int32_t apart; /* outputs overlap neither inputs nor each other; lost when other memory is bound */
  void *device; /* state of the model's device, or NULL */
  cyrt_spread *spread; /* NULL: not over several devices */
  uint64_t in_use, peak; /* bytes of the allocator's, with this block */
  void *recorder;        /* what it had in its model's recording number `recording`; 0: in none */
  uint64_t recording;
};

static inline int cyrt_output_is_kept(const cyto_context *context, uint32_t index) {
  return context->wanted_room && context->model->code->outputs[index].continues;
}

/* ---- context_memory.c ---- */
/* Makes *ptr hold `bytes` at least; contents are lost when it grows. 0: no memory, *ptr is then NULL. */
int cyrt_memory_grow(cyto_context *context, void **ptr, uint64_t *capacity, uint64_t bytes);
void *cyrt_memory_get(cyto_context *context, uint64_t bytes); /* or NULL */
void cyrt_memory_give(cyto_context *context, void *ptr, uint64_t bytes);
/* The same of an allocator, for what is not counted */
void *cyrt_allocator_get(const cyto_allocator *allocator, uint64_t bytes);
void cyrt_allocator_give(const cyto_allocator *allocator, void *ptr, uint64_t bytes);

/* ---- context.c ---- */
void cyrt_context_free(cyto_context *context); /* of this runtime; not NULL */

/* ---- context_keep.c ---- */
/* Makes room for kept outputs, whose dims are known: what is in it stays. */
cyto_status cyrt_keep_place(cyto_context *context, cyto_error *error);
/* Before a run: inputs that were bound are copied to where kept outputs continue them. */
cyto_status cyrt_keep_enter(cyto_context *context, cyto_error *error);
/* After a run: kept outputs are the inputs of the next one. */
void cyrt_keep_leave(cyto_context *context);
/* A kept output as a dense tensor of the host, once it `ran`; NULL: no memory, or an error of the device's. */
void *cyrt_keep_dense(cyto_context *context, uint32_t index, cyto_error *error);
void cyrt_keep_end(cyto_context *context); /* the context ends: what is kept is given back */

/* ---- context_spread.c ---- */
/* Fills context->spread, of options->devices. */
cyto_status cyrt_spread_open(cyto_context *context, const cyto_options *options, cyto_error *error);

/* ---- context_run.c ---- */
/* The first half of cyto_context_prepare(): the outputs' dims (but of dynamic ones) are in frame.outputs afterwards, and they
 * have no memory yet. */
cyto_status cyrt_context_plan(cyto_context *context, cyto_error *error);

/* ---- context_bind.c ---- */
cyto_status cyrt_input_check_shape(const cyto_context *context, const cyrt_port *port, int32_t rank,
                                   const int64_t *dims, cyto_error *error);
/* Remembers the shape of an input; the plan holds while shapes stay the same. */
void cyrt_input_set_shape(cyto_context *context, int32_t index, int32_t rank, const int64_t *dims);
/* Output `index` will be `bytes` bytes at ptr, in memory of `extent` bytes. Refuses what overlaps it, but for the input
 * that it may share memory with. */
cyto_status cyrt_output_check_apart(const cyto_context *context, uint32_t index, const void *ptr, uint64_t extent,
                                    uint64_t bytes, cyto_error *error);
/* Clears `error`; *out_port is NULL after one. */
cyto_status cyrt_output_find(cyto_context *context, int32_t index, const cyrt_port **out_port, cyto_error *error);

#endif
