/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* queue.c - bounded queues between stages, whose items come out in order.
 *
 * A queue has room for `capacity` items whose turn it is. Those that came before their turn have room for as many again: who
 * has the iteration can therefore always go on, however many others wait for it.
 */
#include "pipeline_int.h"

/* ---- queues ---- */

void cyrt_pipe_state(worker *w, worker_state state) {
  int64_t now = cyrt_os_now_ns();
  w->spent[w->state] += now - w->since;
  w->since = now;
  w->state = state;
}

queue *cyrt_pipe_queue_after(stage *s) {
  cyto_pipeline *p = s->pipeline;
  return s->number + 1 < p->count ? &p->stages[s->number + 1].in : &p->results;
}

static int has_room(const queue *q, int64_t ticket) {
  return ticket <= q->turn ? q->ready < q->capacity : q->length < q->capacity;
}

static void insert(queue *q, item *i) {
  item **at = &q->first;
  while (*at && (*at)->ticket <= i->ticket)
    at = &(*at)->next;
  i->next = *at;
  *at = i;
  q->length++;
  q->ready += i->ticket <= q->turn;
  q->max = q->length > q->max ? q->length : q->max;
}

int cyrt_pipe_put(worker *w, item *i) {
  cyto_pipeline *p = i->pipeline;
  queue *q = w ? cyrt_pipe_queue_after(w->stage) : &p->stages[0].in;
  i->ticket = w && !p->options.unordered ? w->ticket : 0;
  worker_state before = w ? w->state : WORKER_BUSY;
  if (w && !has_room(q, i->ticket) && !p->cancelled)
    cyrt_pipe_state(w, WORKER_WAITS_OUT);
  while (!has_room(q, i->ticket) && !p->cancelled)
    cyrt_pipe_wait(p, &q->emptied, -1);
  if (w && w->state != before)
    cyrt_pipe_state(w, before);
  if (p->cancelled) {
    cyrt_pipe_item_free(i);
    return 0;
  }
  insert(q, i);
  cyrt_pipe_signal(&q->filled);
  return 1;
}

item *cyrt_pipe_peek(queue *q) { return q->ready ? q->first : NULL; }

item *cyrt_pipe_pop(queue *q) {
  item *i = q->first;
  q->first = i->next;
  i->next = NULL;
  q->length--;
  q->ready--;
  cyrt_pipe_signal(&q->emptied);
  return i;
}

int cyrt_pipe_is_over(const queue *q) { return q->ended && !q->length; }

/* ---- turns ---- */

static void turn_set(queue *q, int64_t turn) {
  if (turn <= q->turn)
    return;
  q->turn = turn;
  q->ready = 0;
  for (item *i = q->first; i && i->ticket <= turn; i = i->next)
    q->ready++;
  cyrt_pipe_signal(&q->filled);
  cyrt_pipe_signal(&q->emptied);
}

void cyrt_pipe_ticket_take(worker *w) { w->ticket = w->stage->next_ticket++; }

void cyrt_pipe_ticket_give(worker *w) {
  stage *s = w->stage;
  int64_t turn = s->next_ticket;
  w->ticket = NO_TICKET;
  for (int32_t k = 0; k < s->threads; k++)
    if (s->workers[k].ticket != NO_TICKET && s->workers[k].ticket < turn)
      turn = s->workers[k].ticket;
  turn_set(cyrt_pipe_queue_after(s), turn);
}

void cyrt_pipe_end(stage *s) {
  queue *q = cyrt_pipe_queue_after(s);
  turn_set(q, INT64_MAX);
  q->ended = 1;
  cyrt_pipe_signal(&q->filled);
}
