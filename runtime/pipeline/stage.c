/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* stage.c - workers of stages that call the application: maps, splits, joins. */
#include "pipeline_int.h"

/* An item's turn to be worked at; NULL: there are no more. */
static item *take(worker *w) {
  stage *s = w->stage;
  cyto_pipeline *p = s->pipeline;
  item *i = NULL;
  cyrt_pipe_state(w, WORKER_WAITS_IN);
  while (!p->cancelled && !(i = cyrt_pipe_peek(&s->in)) && !cyrt_pipe_is_over(&s->in))
    cyrt_pipe_wait(p, &s->in.filled, -1);
  cyrt_pipe_state(w, WORKER_BUSY);
  if (p->cancelled || !i)
    return NULL;
  cyrt_pipe_pop(&s->in);
  cyrt_pipe_ticket_take(w);
  return i;
}

/* What a callback answered; the lock is held again. */
static int settle(stage *s, item *i, int32_t status, const cyto_error *error) {
  s->sums.items++;
  if (status)
    cyrt_pipe_fail(i, s, status, error->message);
  return !status;
}

/* ---- maps ---- */

static void map_one(worker *w, item *i) {
  stage *s = w->stage;
  cyto_error error = {0};
  if (!cyrt_pipe_passes(i)) {
    cyrt_pipe_unlock(s->pipeline);
    int32_t status = s->given.map(s->given.user, &i->head, &error);
    cyrt_pipe_lock(s->pipeline);
    settle(s, i, status, &error);
  }
  cyrt_pipe_put(w, i);
}

/* ---- splits ---- */

static void split_one(worker *w, item *i) {
  stage *s = w->stage;
  cyto_error error = {0};
  group *g = cyrt_pipe_passes(i) ? NULL : calloc(1, sizeof *g);
  if (!g && !cyrt_pipe_passes(i))
    cyrt_pipe_fail(i, s, CYTO_OUT_OF_MEMORY, NULL);
  if (g) {
    g->refs = 1;
    g->level = s->level;
    g->outer = i->group;
    if (g->outer)
      g->outer->refs++;
    cyto_emitter to = {w, i, g};
    cyrt_pipe_unlock(s->pipeline);
    int32_t status = s->given.split(s->given.user, &i->head, &to, &error);
    cyrt_pipe_lock(s->pipeline);
    i->own = g;
    settle(s, i, status, &error);
  }
  cyrt_pipe_put(w, i);
}

cyto_status cyto_emit(cyto_emitter *to, void *data, int32_t count, const cyto_tensor *tensors) {
  worker *w = to->worker;
  cyto_pipeline *p = w->stage->pipeline;
  group *g = to->group;
  cyrt_pipe_lock(p);
  item *i = cyrt_pipe_item_new(p, to->from->origin, data, count, tensors);
  cyto_status status = !i ? CYTO_OUT_OF_MEMORY : CYTO_OK;
  if (i) {
    i->group = g ? g : to->from->group ? to->from->group->outer : NULL;
    i->head.part = g ? g->expected : -1;
    if (i->group)
      i->group->refs++;
    if (g)
      g->expected++;
    else if (i->group) /* one more of the whole's whole */
      i->group->expected++;
    if (!cyrt_pipe_put(w, i))
      status = CYTO_CANCELLED;
  }
  cyrt_pipe_unlock(p);
  if (!i && data && p->options.release)
    p->options.release(p->options.user, data);
  return status;
}

/* ---- joins ---- */

static void state_abandon(stage *s, group *g) {
  if (!g->state)
    return;
  cyrt_pipe_unlock(s->pipeline);
  if (s->given.abandon)
    s->given.abandon(s->given.user, &g->state);
  g->state = NULL;
  cyrt_pipe_lock(s->pipeline);
}

static void group_open(stage *s, group *g) {
  for (group *o = s->open; o; o = o->next)
    if (o == g)
      return;
  g->refs++;
  g->next = s->open;
  s->open = g;
}

static void group_leave(stage *s, group *g) {
  group **at = &s->open;
  while (*at != g)
    at = &(*at)->next;
  *at = g->next;
  cyrt_pipe_group_give(g);
}

/* All parts are there: the whole goes on. */
static void group_finish(worker *w, group *g) {
  stage *s = w->stage;
  item *whole = g->whole;
  cyto_error error = {0};
  g->whole = NULL;
  if (!g->failed) {
    cyrt_pipe_unlock(s->pipeline);
    int32_t status = s->given.finish(s->given.user, &g->state, &whole->head, &error);
    cyrt_pipe_lock(s->pipeline);
    g->failed = !settle(s, whole, status, &error);
  } else if (!whole->head.status) { /* a part did: its message is the whole's */
    whole->head.status = g->status ? g->status : CYTO_RUNTIME_FAILURE;
    whole->head.stage = g->stage;
    whole->message = g->message;
    whole->head.message = g->message ? g->message : cyto_status_name(g->status);
    g->message = NULL;
    if (whole->group && !whole->group->failed) {
      whole->group->failed = 1;
      whole->group->status = whole->head.status;
      whole->group->stage = g->stage;
    }
  }
  state_abandon(s, g);
  whole->own = NULL; /* it is one item again */
  group_leave(s, g);
  cyrt_pipe_group_give(g); /* the whole's */
  cyrt_pipe_put(w, whole);
}

static void part_add(worker *w, item *part) {
  stage *s = w->stage;
  group *g = part->group;
  cyto_error error = {0};
  if (!cyrt_pipe_passes(part)) {
    cyto_emitter to = {w, part, NULL};
    cyrt_pipe_unlock(s->pipeline);
    int32_t status = s->given.add(s->given.user, &g->state, &part->head, &to, &error);
    cyrt_pipe_lock(s->pipeline);
    settle(s, part, status, &error);
  }
  g->arrived++;
  cyrt_pipe_item_free(part);
}

static void join_one(worker *w, item *i) {
  stage *s = w->stage;
  int closes = i->own && i->own->level == s->level;
  group *g = closes ? i->own : i->group;
  if (!g || g->level != s->level) { /* it failed before it was split, or closes the group of another join */
    cyrt_pipe_put(w, i);
    return;
  }
  group_open(s, g);
  g->refs++;
  if (closes) {
    g->closed = 1;
    g->whole = i;
  } else {
    part_add(w, i);
  }
  if (g->closed && g->arrived == g->expected && g->whole)
    group_finish(w, g);
  cyrt_pipe_group_give(g);
}

void cyrt_pipe_join_abandon(stage *s) {
  while (s->open) {
    group *g = s->open;
    item *whole = g->whole;
    state_abandon(s, g);
    g->whole = NULL;
    group_leave(s, g);
    if (whole)
      cyrt_pipe_item_free(whole);
  }
}

/* ---- */

void cyrt_pipe_stage_work(worker *w) {
  static void (*const work[])(worker *, item *) = {
      [CYTO_STAGE_MAP] = map_one, [CYTO_STAGE_SPLIT] = split_one, [CYTO_STAGE_JOIN] = join_one};
  item *i;
  while ((i = take(w))) {
    work[w->stage->given.kind](w, i);
    cyrt_pipe_ticket_give(w);
  }
}
