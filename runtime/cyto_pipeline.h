/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cyto_pipeline.h - items through a chain of stages, each in threads of its own: read, preprocess, run a model, write.
 *
 *   cyto_stage stages[] = {{.kind = CYTO_STAGE_MAP, .name = "read", .threads = 2, .map = read_image},
 *                          {.kind = CYTO_STAGE_MODEL, .name = "run", .model = model, .batch = 8},
 *                          {.kind = CYTO_STAGE_MAP, .name = "write", .map = write_image}};
 *   cyto_pipeline_create(stages, 3, NULL, &pipeline, &error);
 *   cyto_pipeline_put(pipeline, path, path, 0, NULL, &error);         from one thread, for each item; then
 *   cyto_pipeline_close(pipeline);
 *   while (!cyto_pipeline_take(pipeline, -1, &item, &error) && item)  from another
 *     cyto_item_free(item);
 *   cyto_pipeline_destroy(pipeline);
 *
 * docs/pipeline.md explains the concepts; examples are in tests/rt/test_pipeline*.c.
 *
 * Items.  What goes from stage to stage: a pointer of yours (data), and tensors. A model's stage takes the tensors as inputs and
 *   leaves its outputs in their place; items without tensors pass it as they are. Stages of yours find both and leave others.
 * Ownership.  Data that a stage leaves is the pipeline's until the next stage, or cyto_pipeline_take(), gets it. Data that
 *   goes no further (a part that was joined, an item that failed and was freed, what waits when a run is cancelled) is given to
 *   cyto_pipeline_options.release, on any thread. Memory of tensors that you give must live as long as the data beside
 *   them. Outputs of models live as long as their item, or what cyto_tensors_keep() gave.
 * Threads.  put, take, close, cancel and statistics may be called by any thread at any time before destroy. Callbacks of a
 *   stage with several threads are called by all of them at once. A callback must not call destroy or take.
 * Errors.  As in cyto.h. An item whose callback or run fails is `failed`: it passes the stages behind untouched, and
 *   cyto_pipeline_take() gives it, in its place, with status and message.
 */
#ifndef CYTO_PIPELINE_H
#define CYTO_PIPELINE_H

#include "cyto.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cyto_pipeline cyto_pipeline;
typedef struct cyto_emitter cyto_emitter;

typedef struct cyto_item {
  int64_t number;             /* in the order of cyto_pipeline_put(), from 0; parts have that of their whole */
  int64_t part;               /* its number among the parts of the innermost split, from 0; -1: it is none */
  const char *name;           /* as put; never NULL */
  void *data;                 /* yours; a callback may change it */
  int32_t count, input_count; /* of tensors; of inputs that a model's stage with keep_inputs has kept */
  const cyto_tensor *tensors, *inputs;
  int32_t status;      /* cyto_status; not CYTO_OK: it failed, */
  int32_t stage;       /* .. in the stage of this number */
  const char *message; /* .. and this is why; "" */
} cyto_item;

/* Gives the item new tensors; their memory belongs to item->data. Descriptors are copied. CYTO_OUT_OF_MEMORY. */
CYTO_API cyto_status cyto_item_set_tensors(cyto_item *item, int32_t count, const cyto_tensor *tensors);
/* Keeps the memory of the item's tensors, where they are a model's outputs, beyond its life; NULL: they are yours. */
CYTO_API void *cyto_tensors_keep(const cyto_item *item);
CYTO_API void
cyto_tensors_release(void *kept); /* NULL is allowed; from any thread, also after cyto_pipeline_destroy() */
/* Ends an item that cyto_pipeline_take() gave; its data is given to `release` unless you set it NULL. */
CYTO_API void cyto_item_free(cyto_item *item);

/* Callbacks answer a cyto_status; where that is not CYTO_OK they may fill `error` with a text. */

/* One item in, the same out. */
typedef int32_t (*cyto_stage_map)(void *user, cyto_item *item, cyto_error *error);
/* One in, any number out, by cyto_emit(). The item itself, with the data left in it, comes to the join's finish(). */
typedef int32_t (*cyto_stage_split)(void *user, cyto_item *item, cyto_emitter *to, cyto_error *error);
/* A part of a whole; *state is the join's for this whole, NULL at first. What is finished may be emitted at once. */
typedef int32_t (*cyto_stage_add)(void *user, void **state, cyto_item *part, cyto_emitter *to, cyto_error *error);
/* All parts were added. `whole` goes on, with the data and tensors that it is given here. */
typedef int32_t (*cyto_stage_finish)(void *user, void **state, cyto_item *whole, cyto_error *error);
/* Gives *state back where finish() is not called: a part failed, or the run was cancelled. Called when there is a state. */
typedef void (*cyto_stage_abandon)(void *user, void **state);
/* Does this item need the model? 1: yes; 0: it passes as it is; negative: it fails, with the text that `error` was given. */
typedef int32_t (*cyto_stage_needs)(void *user, const cyto_item *item, cyto_error *error);

/* From a split or add: an item goes on. Waits for room in the queue. The data is the pipeline's in any case. Not CYTO_OK
 * (CYTO_CANCELLED, CYTO_OUT_OF_MEMORY): the callback should return this. */
CYTO_API cyto_status cyto_emit(cyto_emitter *to, void *data, int32_t count, const cyto_tensor *tensors);

typedef enum cyto_stage_kind { CYTO_STAGE_MAP, CYTO_STAGE_SPLIT, CYTO_STAGE_JOIN, CYTO_STAGE_MODEL } cyto_stage_kind;

/* All zero is the default of whatever the kind does not need. Copied, the name as well; what `options` points to must live as
 * long as the pipeline.
 *
 * threads       0: one. Of a model: contexts, which share its weights; 0: as many as CPUs on up to 4 of them, else two. A join
 *               has one
 * options       of the contexts; NULL: the default. Its threads 0: one where there are as many contexts as CPUs, else all CPUs.
 *               Its allocator is called by the threads of all contexts
 * batch         rows that are run at once, at most; 0: the size that the model has fixed, or 1
 * wait_ns       how long the first item of a batch waits for others
 * reuse         mean absolute difference of the first input to that of the last item that was computed, below which that one's
 *               outputs are given again; 0: never
 * keep_inputs   items keep their inputs, for a second model behind this one
 * needs, sure   which items need the model: by the callback, or if sure is not 0, those whose first tensor, a float32, has no
 *               element of that much or more. They get back the inputs that were kept; the others pass as they are
 */
typedef struct cyto_stage {
  int32_t kind; /* cyto_stage_kind */
  int32_t threads;
  int64_t queue;    /* items that may wait before it; 0: the pipeline's */
  const char *name; /* for messages and statistics; NULL: what the kind is called */
  void *user;       /* the callbacks' */
  cyto_stage_map map;
  cyto_stage_split split;
  cyto_stage_add add;
  cyto_stage_finish finish;
  cyto_stage_abandon abandon; /* may be NULL */
  /* CYTO_STAGE_MODEL */
  cyto_model *model;
  const cyto_options *options;
  int64_t batch;
  int64_t wait_ns;
  double reuse;
  int32_t keep_inputs;
  cyto_stage_needs needs; /* may be NULL */
  double sure;
} cyto_stage;

/* STOP: the first item that fails ends the run, when it is taken; items before it come first, and none is put any more. */
typedef enum cyto_on_error { CYTO_ERRORS_STOP, CYTO_ERRORS_SKIP } cyto_on_error;

typedef struct cyto_pipeline_options {
  int64_t queue;     /* items that may wait before each stage, and at the end; 0: 4 */
  int64_t in_flight; /* items between put and free, at most; 0: what the queues hold */
  int32_t unordered; /* 1: results as they come, not in the order of the items */
  int32_t on_error;  /* cyto_on_error */
  /* Data that goes no further; NULL: it is forgotten. */
  void (*release)(void *user, void *data);
  void *user;
  /* Threads for stages with callbacks, for languages whose threads must be their own: calls main(data) once in a new
   * thread, and answers 1; 0: there is none. NULL: threads of the system's. */
  int32_t (*spawn)(void *user, void (*main)(void *data), void *data);
} cyto_pipeline_options;

/* Checks the stages, makes the contexts and starts the threads. options NULL: the default. */
CYTO_API cyto_status cyto_pipeline_create(const cyto_stage *stages, int32_t count, const cyto_pipeline_options *options,
                                          cyto_pipeline **out_pipeline, cyto_error *error);
/* Cancels what is still running, waits for all threads, and gives back everything. Items that were taken are freed before.
 * NULL is allowed. */
CYTO_API void cyto_pipeline_destroy(cyto_pipeline *pipeline);

/* Hands in an item; waits for room. name may be NULL, and is copied. CYTO_CANCELLED: cancelled, or stopped by an error;
 * CYTO_NOT_READY: closed. After an error the data is yours. */
CYTO_API cyto_status cyto_pipeline_put(cyto_pipeline *pipeline, const char *name, void *data, int32_t count,
                                       const cyto_tensor *tensors, cyto_error *error);
/* No more items come. */
CYTO_API void cyto_pipeline_close(cyto_pipeline *pipeline);
/* The next item that has passed all stages, which is yours to free; NULL: there are no more. Waits up to timeout_ns, without
 * end if that is negative. CYTO_NOT_READY: there was none in time; CYTO_CANCELLED. */
CYTO_API cyto_status cyto_pipeline_take(cyto_pipeline *pipeline, int64_t timeout_ns, cyto_item **out_item,
                                        cyto_error *error);
/* Nothing more is begun. Callbacks and runs that have begun end as usual, and their items with them. */
CYTO_API void cyto_pipeline_cancel(cyto_pipeline *pipeline);

/* What a stage has done so far. Times are sums over its threads, up to this moment. */
typedef struct cyto_stage_statistics {
  const char *name; /* lives as long as the pipeline */
  int32_t kind, threads;
  int64_t items, failed;                          /* that it has done; .. of which failed */
  int64_t busy_ns, waiting_in_ns, waiting_out_ns; /* at work; for an item; for room behind it, or for its turn */
  int64_t waiting, max_waiting;                  /* items in the queue before it: now, and at most so far */
  /* CYTO_STAGE_MODEL */
  int64_t batches, rows;   /* runs, and rows in them without padding */
  int64_t batch;           /* rows at most, as memory allows now */
  int64_t short_of_memory; /* runs that were done again in halves */
  int64_t reused, passed;  /* items that got others' outputs; that did not need the model */
} cyto_stage_statistics;

typedef struct cyto_pipeline_statistics {
  int64_t items, failed; /* taken */
  int64_t ns;            /* from the first put to the last take, or until now */
  int32_t stages;
  int32_t bottleneck; /* the stage whose threads were busy for the largest part of the time; -1: nothing was done */
} cyto_pipeline_statistics;

CYTO_API void cyto_pipeline_statistics_get(cyto_pipeline *pipeline, cyto_pipeline_statistics *out_statistics);
/* CYTO_INDEX_OUT_OF_RANGE leaves *out_statistics alone. */
CYTO_API cyto_status cyto_stage_statistics_get(cyto_pipeline *pipeline, int32_t stage,
                                               cyto_stage_statistics *out_statistics);

/* ---- tiles: what a join makes of a network's results for windows that overlap. Any thread, also without a pipeline. ---- */

typedef enum cyto_blend_kind {
  CYTO_BLEND_MEANS, /* float32 [lead, region..] */
  CYTO_BLEND_ARGMAX, /* uint8 [region..]: the channel with the highest mean, the first of equal ones; NaN is the highest */
  CYTO_BLEND_ABOVE /* uint8 [lead, region..]: 1 where the mean is above `threshold` */
} cyto_blend_kind;

typedef struct cyto_blend {
  int32_t rank; /* spatial axes */
  int32_t kind; /* cyto_blend_kind */
  int64_t lead; /* channels; up to 256 for ARGMAX */
  int64_t tile[CYTO_MAX_RANK];
  const float *weights; /* [tile..], above 0; NULL: see lines */
  float fill;           /* the mean where no tile lies */
  float threshold;
  /* The same as products of each axis' weights, [tile[axis]], multiplied in the order of axes, and not below `least`. */
  const float *lines[CYTO_MAX_RANK];
  float least;
} cyto_blend;

/* The result of a window. values: [lead, tile..], aligned as a float is. origin: its first voxel's place in the image, which may be
 * negative. */
typedef struct cyto_tile {
  const float *values;
  int64_t origin[CYTO_MAX_RANK];
} cyto_tile;

/* Blends the tiles over the region from start to before stop: sum of weight * value / sum of weights, added up in the order of
 * the tiles. `out` has room for what the kind says. The same numbers on every machine. */
CYTO_API cyto_status cyto_tiles_blend(const cyto_blend *how, const cyto_tile *tiles, int64_t count,
                                      const int64_t *start, const int64_t *stop, void *out, cyto_error *error);

/* As cyto_tiles_blend(), of those voxels alone whose last tile in the list is tiles[last]; the others in `out` stay as they are. Called
 * for a tile as soon as it has its values, in their order, it blends the same numbers while these are in the caches. Tiles behind
 * `last` need no values yet. */
CYTO_API cyto_status cyto_tiles_blend_last(const cyto_blend *how, const cyto_tile *tiles, int64_t count, int64_t last,
                                           const int64_t *start, const int64_t *stop, void *out, cyto_error *error);

#ifdef __cplusplus
}
#endif
#endif
