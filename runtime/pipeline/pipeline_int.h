/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* pipeline_int.h - a pipeline, for the files that wait (wait.c), move items (queue.c, item.c), call stages (stage.c), gather
 * and run batches (gather.c, batch.c, reuse.c) and answer the application (pipeline.c).
 *
 * Locks.  Everything but a callback, a run and the copying of tensors happens under the pipeline's one lock; functions expect
 *   it to be held unless their comment says otherwise. Who waits sleeps on the event of what has to change.
 * Order.  Whoever takes an item from a stage's queue gets a ticket, and what comes of it enters the next queue with
 *   that. `turn` of a queue is the lowest ticket that its producers still have: what has a higher one waits in the
 *   queue, sorted, until its iteration. With `unordered` every item's turn is when it comes.
 * Parts.  Behind the parts of a split comes the item that was split, closing its group. A join counts the parts, and is
 *   finished when the group is closed and all parts are there. Failed items go through all queues as others do, so
 *   that the count is right and results stay in order.
 */
#ifndef CYRT_PIPELINE_INT_H
#define CYRT_PIPELINE_INT_H

#include "runtime/context.h"
#include "runtime/cyto_pipeline.h"
#include "runtime/os/os.h"

#include <stdlib.h>
#include <string.h>

typedef struct event {
  atomic_uint epoch; /* slept on */
  int32_t sleepers;
} event;

/* Memory of a model's outputs, for all items of a batch. */
typedef struct block {
  atomic_int refs;
  uint64_t bytes;
  void *memory;
} block;

/* What was put: shared by all that comes of it. */
typedef struct origin {
  int64_t refs, number;
  char name[];
} origin;

typedef struct group {
  int64_t refs, expected, arrived;
  int32_t closed, failed;
  int32_t level;      /* of its split among splits that enclose it; that of the join as well */
  void *state;        /* the join's */
  struct item *whole; /* the item that was split, once it has come to the join */
  char *message;      /* of the first part that failed, or NULL */
  int32_t status, stage;
  struct group *next, *outer; /* of those that the join has open; that of the whole */
} group;

typedef struct item {
  cyto_item head;
  cyto_pipeline *pipeline;
  struct item *next;
  int64_t ticket;
  origin *origin;
  group *group; /* it is a part of; NULL: none */
  group *own;   /* its parts'; NULL: it was not split */
  block *block, *input_block;
  cyto_tensor *tensors, *inputs; /* owned */
  char *message;
  int32_t decided; /* by a stage that looks at it: 1: it needs the model, 2: it does not */
} item;

typedef struct queue {
  item *first;
  int64_t length, ready, max, capacity;
  int64_t turn;
  int32_t ended;
  event filled, emptied;
} queue;

typedef enum { WORKER_BUSY, WORKER_WAITS_IN, WORKER_WAITS_OUT, WORKER_STATES } worker_state;
enum { NO_TICKET = -1 };

struct stage;
typedef struct worker {
  struct stage *stage;
  int64_t ticket; /* of what it has; NO_TICKET */
  worker_state state;
  int64_t since, spent[WORKER_STATES];
  /* of models */
  cyto_context *context;
  void **gathered; /* [inputs] */
  uint64_t *gathered_bytes;
  struct entry *entries; /* [2 * MAX_ENTRIES]: of its batch, and those of them that are run */
} worker;

/* Outputs that other items may get as well. */
typedef struct result {
  int64_t refs;
  int32_t state; /* 0: not yet; 1: there; -1: it failed */
  block *block;
  cyto_tensor *tensors;
  int32_t count;
} result;

/* How a model's tensors are put together. */
typedef struct batching {
  cyto_port *inputs, *outputs;
  int32_t n_inputs, n_outputs;
  uint8_t *batched;   /* [n_inputs + n_outputs] has it the batch axis? */
  int64_t fixed;      /* rows that the model has fixed; 0: any number */
  int32_t alone;      /* items are run one by one */
  int32_t is_dynamic; /* sizes of outputs are known only after a run */
} batching;

typedef struct stage {
  cyto_stage given;
  cyto_pipeline *pipeline;
  int32_t number, alive; /* alive: workers */
  int32_t level;         /* of a split, or a join: see group */
  char name[64];
  queue in;
  int64_t next_ticket;
  worker *workers;
  int32_t threads;
  cyto_stage_statistics sums;
  group *open; /* of a join */
  /* of models */
  cyto_options options;
  batching batching;
  int32_t gathering;
  event gate, published;
  int64_t limit, max, good,
      patience; /* rows now, and asked for; runs since the limit was lowered, and until it rises */
  result *last; /* reuse: of the last item that was computed, whose first input is: */
  void *last_input;
  cyto_tensor last_tensor;
  int32_t has_risen; /* the limit, since it was lowered first */
  block *spare[8];   /* memory for outputs, to be used again */
  int32_t spare_next;
} stage;

struct cyto_pipeline {
  cyrt_lock lock;
  cyto_pipeline_options options;
  stage *stages;
  int32_t count, alive; /* stages; threads */
  int32_t cancelled, stopping, closed;
  int64_t next_number, live; /* live: origins */
  event settled, room;       /* a thread ended; an origin did */
  queue results;
  int64_t taken, failed, start, end;
};

struct cyto_emitter {
  worker *worker;
  item *from;
  group *group; /* of what is emitted, which becomes one of its parts; NULL: it goes on in from's place */
};

/* ---- wait.c ---- */
void cyrt_pipe_lock(cyto_pipeline *p);
void cyrt_pipe_unlock(cyto_pipeline *p);
void cyrt_pipe_signal(event *e);
/* Sleeps until the event, or `deadline` (by cyrt_os_now_ns(); -1: none). May return for no reason. */
void cyrt_pipe_wait(cyto_pipeline *p, event *e, int64_t deadline);

/* ---- queue.c ---- */
queue *cyrt_pipe_queue_after(stage *s);
/* Waits for room, and appends the item. 0: cancelled, the item was freed. worker NULL: the application. */
int cyrt_pipe_put(worker *w, item *i);
/* The first item whose turn it is, not taken; NULL: there is none. */
item *cyrt_pipe_peek(queue *q);
item *cyrt_pipe_pop(queue *q);
int cyrt_pipe_is_over(const queue *q); /* nothing is there and nothing will come */
void cyrt_pipe_ticket_take(worker *w);
void cyrt_pipe_ticket_give(worker *w);
void cyrt_pipe_end(stage *s); /* its last worker is gone */
void cyrt_pipe_state(worker *w, worker_state state);

/* ---- item.c ---- */
item *cyrt_pipe_item_new(cyto_pipeline *p, origin *o, void *data, int32_t count, const cyto_tensor *tensors);
void cyrt_pipe_item_free(item *i); /* gives its data to release(); the lock is held, and given up for that */
void cyrt_pipe_fail(item *i, stage *s, int32_t status, const char *text);
int cyrt_pipe_passes(const item *i);        /* it failed, or closes a group: no stage but a join looks at it */
block *cyrt_pipe_block_new(uint64_t bytes); /* NULL: no memory; without the lock */
void cyrt_pipe_block_give(block *b);
void cyrt_pipe_group_give(group *g);

/* ---- pipeline.c ---- */
void cyrt_pipe_spent(const stage *s, int64_t spent[WORKER_STATES]); /* by all of its workers, up to now */

/* ---- stage.c ---- */
void cyrt_pipe_stage_work(worker *w); /* until the queue has ended */
void cyrt_pipe_join_abandon(stage *s);

/* ---- gather.c ---- */
/* An item of a batch. */
typedef struct entry {
  item *item;
  int64_t rows; /* 0: nothing is to be run */
  int32_t bare; /* its tensors lack the batch axis */
  result *leads, *follows;
} entry;
enum { MAX_ENTRIES = 1024 };
/* Checks the model against what is asked of its stage, and makes the contexts. */
cyto_status cyrt_pipe_model_init(stage *s, cyto_error *error);
void cyrt_pipe_model_end(stage *s); /* without the lock, once all threads are gone */
void cyrt_pipe_model_work(worker *w);

/* ---- batch.c ---- */
/* Runs entries of equal shapes, without the lock; each gets its outputs, or fails. */
void cyrt_pipe_batch_run(worker *w, entry *entries, int64_t n);
int64_t cyrt_pipe_rows(const batching *b, const item *i, int32_t *out_bare); /* -1: it does not fit */
/* The item's tensors are these, in the block, which it has a part in from now on. */
void cyrt_pipe_outputs_set(const stage *s, item *i, int32_t count, const cyto_tensor *tensors, block *b);
void cyrt_pipe_inputs_restore(item *i); /* those that were kept become its tensors */

/* ---- reuse.c ---- */
/* Mean of |a - b| over elements of equal tensors; infinite if they are not comparable. Without the lock. */
double cyrt_pipe_difference(const cyto_tensor *a, const cyto_tensor *b);
double cyrt_pipe_highest(const cyto_tensor *t); /* of a float32 tensor; -infinite of others */
/* Decides whether the entry follows the last computed item or leads; the lock is given up meanwhile. */
void cyrt_pipe_reuse_decide(stage *s, entry *e);
void cyrt_pipe_result_publish(stage *s, entry *e);
void cyrt_pipe_result_follow(worker *w, entry *e);
void cyrt_pipe_result_give(result *r);

#endif
