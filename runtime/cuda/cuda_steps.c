/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cuda_steps.c - steps of a sequence whose lengths differ, replayed by one recorded graph.
 *
 * In: a model with caches (cyrt_cuda_model.lengths) whose run differs from the one before by lengths that moved alike, as
 * each decoded token moves them. Out: a recording that serves a range of lengths. Memory is laid out and grids are made
 * for the end of the range, so that pointers stay. Kernels that depend on lengths read from a table in the device's memory
 * how many blocks have work and what to add to their slots (codegen/cuda/lengths.c). The table comes first in the graph.
 *
 * Each run walks the generated code without launching anything: that checks sizes as ever, and notes all launches with
 * their slots. A recording is replayed if they are those that it was made of but for what the table can say. What does not
 * fit is recorded anew, and after MAX_ANEW times launched one by one.
 *
 * Where nobody waits for a run, the host cannot know when the graph has read the table: it is then copied from memory that
 * is not pinned, which the driver reads before it returns, and ahead of the graph.
 *
 * What makes recordings is cuda_record.c; they are forgotten here, as some serve such ranges.
 */
#include "cyrt_cuda.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ANEW = 8, FINEST = 64, PARTS = 4, MAX_SYMS = 64 };

/* A launch that generated code wants. */
typedef struct noted {
  uint32_t kernel;
  int32_t varies;       /* its slots or blocks do in the range: they come from the table */
  int64_t blocks, grid; /* that have work, and that are launched */
  uint64_t slots, maps; /* where its slots are among the words; of tensor maps: a hash */
} noted;

typedef struct walk {
  noted *launches;
  uint64_t n, room;
  uint64_t *words;
  uint64_t n_words, words_room;
  int32_t no_memory;
} walk;

struct cuda_served {
  walk made_of;
  cuda_block table;
  int64_t *host; /* what it is copied from */
  int32_t pinned, anew;
  uint64_t words, next; /* next: the launch to come, while it is recorded */
};

struct cuda_steps {
  int64_t *last, *syms;     /* [n_input_syms], [n_syms]: of the last run; of the end of the range */
  uint64_t *offsets;        /* [n_offsets] of the end of the range */
  cyrt_output *outputs;     /* [n_outputs], their sizes there */
  cyrt_frame layout;        /* the context's frame with these */
  uint64_t grown, moving;   /* bit i: symbol i is the length of a cache; moves from run to run */
  int32_t known, fits, off; /* is there a last run; do they fit; no memory for it */
  walk now, top;
  walk *noting;               /* launches are noted there, not done */
  struct cuda_served *taking; /* a recording is being made */
};

/* ---- what a run is made of ---- */

static void *grown_to(void *ptr, uint64_t n, uint64_t *room, size_t each) {
  if (n <= *room)
    return ptr;
  uint64_t wanted = 2 * n + 64;
  void *more = realloc(ptr, wanted * each);
  *room = more ? wanted : *room;
  return more;
}

static void walk_free(walk *w) {
  free(w->launches);
  free(w->words);
  *w = (walk){.n = 0};
}

static uint64_t hash_numbers(uint64_t hash, const int64_t *numbers, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    hash = cyrt_hash_add(hash, (uint64_t)numbers[i]);
  return hash;
}

/* Generated code stores as many extents, strides, .. as the tensor has axes: the rest of the arrays is undefined. */
static uint64_t hash_box(uint64_t hash, const cyrt_cuda_box *t) {
  hash = hash_numbers(hash, (const int64_t[]){t->slot, t->dtype, t->rank}, 3);
  hash = hash_numbers(hash, t->extent, t->rank);
  hash = hash_numbers(hash, t->stride, t->rank - 1);
  hash = hash_numbers(hash, t->box, t->rank);
  return hash_numbers(hash, t->step, t->rank);
}

static uint64_t hash_of(const cyrt_cuda_tma *tma) {
  if (!tma)
    return CYRT_HASH;
  uint64_t hash = hash_numbers(CYRT_HASH, (const int64_t[]){tma->kernel, tma->blocks, tma->cluster}, 3);
  return hash_box(hash_box(hash, &tma->tensor[0]), &tma->tensor[1]);
}

static void note(cuda_state *state, uint32_t kernel, const cyrt_slot *slots, int64_t blocks, const cyrt_cuda_tma *tma) {
  const cyrt_cuda_kernel *k = &state->code->kernels[kernel];
  walk *w = state->steps->noting;
  if (w->no_memory)
    return;
  void *launches = grown_to(w->launches, w->n + 1, &w->room, sizeof *w->launches);
  void *words = grown_to(w->words, w->n_words + k->slots, &w->words_room, sizeof *w->words);
  w->launches = launches ? launches : w->launches;
  w->words = words ? words : w->words;
  if ((w->no_memory = !launches || !words))
    return;
  w->launches[w->n++] = (noted){kernel, k->varying != NULL, blocks, blocks, w->n_words, hash_of(tma)};
  memcpy(w->words + w->n_words, slots, k->slots * sizeof *slots);
  w->n_words += k->slots;
}

int cyrt_cuda_steps_note(cyrt_frame *frame, uint32_t kernel, const cyrt_slot *slots, int64_t blocks,
                         int64_t then_blocks, const cyrt_cuda_tma *tma) {
  cuda_state *state = cuda_state_of(frame);
  const cyrt_cuda_kernel *k = &state->code->kernels[kernel];
  if (!state->steps || !state->steps->noting)
    return 0;
  blocks = cyrt_cuda_blocks(frame, k, blocks);
  if (blocks > 0 || k->varying)
    note(state, kernel, slots, blocks > 0 ? blocks : 0, tma);
  if (k->then && (then_blocks > 0 || k->varying))
    note(state, k->then, slots, then_blocks > 0 && blocks > 0 ? then_blocks : 0, NULL);
  return 1;
}

static int32_t take_walk(cuda_state *state, walk *w, cyrt_frame *frame) {
  w->n = w->n_words = 0;
  w->no_memory = 0;
  state->steps->noting = w;
  int32_t status = state->model->run(frame);
  state->steps->noting = NULL;
  if (!status && w->no_memory)
    status = cyrt_fail(frame, CYTO_OUT_OF_MEMORY, "no memory for the launches of a run");
  return status;
}

/* ---- ranges ---- */

/* The end of the range that the length `n` lies in: the next multiple of FINEST, or of a quarter of the power of two below n
 * where that is more. */
static int64_t end_of_range(int64_t n) {
  int64_t step = FINEST;
  while (step * 2 * PARTS <= n)
    step *= 2;
  return (n / step + 1) * step;
}

/* How much longer kept outputs may become where they lie. */
static int64_t headroom(const cuda_state *state, const cyrt_frame *frame) {
  int64_t min = INT64_MAX;
  for (uint32_t i = 0; frame->room && i < state->model->n_outputs; i++) {
    const cyrt_port *port = &state->model->outputs[i];
    int64_t left = port->continues ? frame->room - frame->outputs[i].dims[port->axis] : INT64_MAX;
    min = left < min ? left : min;
  }
  return min;
}

/* Lengths that changed since the last run, all by the same number; 0: another kind of change, or none. */
static uint64_t moved(const cuda_state *state, const int64_t *syms) {
  const struct cuda_steps *s = state->steps;
  uint64_t changed = 0;
  int64_t by = 0;
  for (uint32_t i = 0; i < state->model->n_input_syms; i++) {
    int64_t difference = syms[i] - s->last[i];
    if (!difference)
      continue;
    if (i >= MAX_SYMS || !(state->code->lengths >> i & 1) || (by && difference != by))
      return 0;
    by = difference;
    changed |= (uint64_t)1 << i;
  }
  return changed & s->grown ? changed : 0;
}

static int unchanged(const cuda_state *state, const int64_t *syms) {
  return !memcmp(syms, state->steps->last, state->model->n_input_syms * sizeof *syms);
}

/* Symbols at the end of the range; 0: they are those of the last run. */
static int set_end(cuda_state *state, const cyrt_frame *frame) {
  struct cuda_steps *s = state->steps;
  uint32_t first = (uint32_t)__builtin_ctzll(s->moving & s->grown);
  int64_t more = end_of_range(frame->syms[first]) - frame->syms[first], left = headroom(state, frame);
  int differ = frame->room != s->layout.room;
  more = more < left ? more : left;
  for (uint32_t i = 0; i < state->model->n_input_syms; i++) {
    int64_t v = frame->syms[i] + (i < MAX_SYMS && s->moving >> i & 1 ? more : 0);
    differ |= s->syms[i] != v;
    s->syms[i] = v;
  }
  return differ;
}

/* Memory for the end of the range is enough for every tensor of this run. */
static int covers(const cuda_state *state, const cyrt_frame *frame) {
  const struct cuda_steps *s = state->steps;
  uint64_t n = state->model->n_offsets / CYRT_PLAN_WORDS;
  const uint64_t *sizes = frame->offsets + (CYRT_PLAN_WORDS - 1) * n, *at_end = s->offsets + (CYRT_PLAN_WORDS - 1) * n;
  for (uint64_t i = 0; i < n; i++)
    if (sizes[i] > at_end[i])
      return 0;
  for (uint32_t i = 0; i < state->model->n_outputs; i++)
    for (int32_t axis = 0; axis < state->model->outputs[i].rank; axis++)
      if (frame->outputs[i].dims[axis] > s->outputs[i].dims[axis])
        return 0;
  return 1;
}

static int lay_out(cuda_state *state, const cyrt_frame *frame) {
  struct cuda_steps *s = state->steps;
  if (set_end(state, frame) || !s->fits) {
    s->layout = *frame;
    s->layout.syms = s->syms;
    s->layout.offsets = s->offsets;
    s->layout.outputs = s->outputs;
    s->layout.error = NULL;
    memcpy(s->outputs, frame->outputs, state->model->n_outputs * sizeof *s->outputs);
    s->fits = !state->model->plan(&s->layout);
  }
  s->layout.inputs = frame->inputs;
  for (uint32_t i = 0; i < state->model->n_outputs; i++)
    s->outputs[i].ptr = frame->outputs[i].ptr;
  return s->fits && covers(state, frame);
}

const cyrt_frame *cyrt_cuda_steps_layout(cuda_state *state, const cyrt_frame *frame) {
  struct cuda_steps *s = state->steps;
  if (!s || s->off || state->captured || !(state->code->flags & CYRT_CUDA_REPLAY) ||
      state->failed_recordings >= CUDA_MAX_FAILED)
    return NULL;
  if (!s->known || !unchanged(state, frame->syms))
    s->moving = s->known ? moved(state, frame->syms) : 0;
  memcpy(s->last, frame->syms, state->model->n_input_syms * sizeof *s->last);
  s->known = 1;
  return s->moving && lay_out(state, frame) ? &s->layout : NULL;
}

void cyrt_cuda_steps_stop(cuda_state *state) { state->steps->off = 1; }

/* ---- recordings that serve a range ---- */

void cyrt_cuda_served_free(cuda_state *state, struct cuda_served *r) {
  if (!r)
    return;
  cyrt_cuda_block_free(state, &r->table);
  if (r->pinned)
    state->shared->driver.host_free(r->host);
  else
    free(r->host);
  walk_free(&r->made_of);
  free(r);
}

void cyrt_cuda_forget_recording(cuda_state *state, cuda_recording *r) {
  if (r->graph || r->served)
    cyrt_cuda_relax(state->shared, state->entry);
  if (r->graph)
    state->shared->driver.graph_exec_destroy(r->graph);
  cyrt_cuda_served_free(state, r->served);
  r->graph = NULL;
  r->served = NULL;
  r->seen = r->eager = 0;
}

void cyrt_cuda_forget_recordings(cuda_state *state) {
  for (int i = 0; i < CUDA_RECORDINGS; i++)
    cyrt_cuda_forget_recording(state, &state->recordings[i]);
}

/* Do its launches do for this run? */
static int serves(const cuda_state *state, const struct cuda_served *r) {
  const walk *now = &state->steps->now, *then = &r->made_of;
  if (now->n != then->n || now->n_words != then->n_words)
    return 0;
  for (uint64_t i = 0; i < now->n; i++) {
    const noted *a = &now->launches[i], *b = &then->launches[i];
    const cyrt_cuda_kernel *k = &state->code->kernels[a->kernel];
    if (a->kernel != b->kernel || (b->varies ? a->blocks > b->grid : a->blocks != b->blocks || a->maps != b->maps))
      return 0;
    for (uint32_t slot = 0; slot < k->slots; slot++)
      if (now->words[a->slots + slot] != then->words[b->slots + slot] && !(b->varies && k->varying[slot]))
        return 0;
  }
  return 1;
}

/* Records of the launches that vary, one after the other: the blocks with work, what is added to each slot. */
static void fill_table(const cuda_state *state, struct cuda_served *r) {
  const walk *now = &state->steps->now;
  int64_t *at = r->host;
  for (uint64_t i = 0; i < now->n; i++) {
    const noted *a = &now->launches[i];
    if (!r->made_of.launches[i].varies)
      continue;
    *at++ = a->blocks;
    for (uint32_t slot = 0; slot < state->code->kernels[a->kernel].slots; slot++)
      *at++ = (int64_t)(now->words[a->slots + slot] - r->made_of.words[r->made_of.launches[i].slots + slot]);
  }
}

static int equal_launches(const cuda_state *state, const walk *a, const walk *b, uint64_t i) {
  const noted *p = &a->launches[i], *q = &b->launches[i];
  uint64_t bytes = state->code->kernels[p->kernel].slots * sizeof *a->words;
  return p->blocks == q->blocks && p->maps == q->maps && !memcmp(a->words + p->slots, b->words + q->slots, bytes);
}

/* Blocks for all lengths of the range: as many as its end has, where that is made of the same launches. A launch that is the
 * same there needs no table, unless it turned out to vary all the same. */
static void set_grids(cuda_state *state, int anew) {
  struct cuda_steps *s = state->steps;
  cyrt_frame end = state->frame;
  end.syms = s->syms;
  end.error = NULL;
  walk *now = &s->now, *top = &s->top;
  int same = !take_walk(state, top, &end) && top->n == now->n;
  for (uint64_t i = 0; i < now->n && same; i++)
    same = top->launches[i].kernel == now->launches[i].kernel;
  for (uint64_t i = 0; i < now->n; i++) {
    noted *a = &now->launches[i];
    int64_t max = state->code->kernels[a->kernel].max_blocks;
    a->varies = a->varies && (anew || !same || !equal_launches(state, now, top, i));
    int64_t at_end = same ? top->launches[i].blocks : a->blocks + a->blocks / PARTS + 1;
    a->grid = !a->varies || at_end <= a->blocks ? a->blocks : at_end;
    if (a->grid > max && a->blocks <= max)
      a->grid = max; /* a run that itself has too many is refused when it is launched */
    a->grid = a->grid < 1 ? 1 : a->grid;
  }
}

static uint64_t table_words(const cuda_state *state, const walk *w) {
  uint64_t n = 0;
  for (uint64_t i = 0; i < w->n; i++)
    n += w->launches[i].varies ? 1 + state->code->kernels[w->launches[i].kernel].slots : 0;
  return n;
}

static struct cuda_served *served_new(cuda_state *state, int waits, cyto_error *error) {
  struct cuda_served *r = calloc(1, sizeof *r);
  void *host = NULL;
  if (!r)
    return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for a recording"), NULL;
  r->words = table_words(state, &state->steps->now);
  r->pinned = waits;
  uint64_t bytes = (r->words + 1) * sizeof *r->host;
  cyto_status status = cyrt_cuda_block_grow(state, &r->table, bytes, "the sizes of a step", error);
  if (!status && waits)
    status = cyrt_cuda_get_pinned(&state->shared->driver, &host, bytes, "the sizes of a step", error);
  else if (!status && !(host = malloc(bytes)))
    status = cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for the sizes of a step");
  r->host = host;
  r->pinned = waits && host;
  if (!status)
    return r;
  cyrt_cuda_served_free(state, r);
  return NULL;
}

static cyto_status copy_table(cuda_state *state, const struct cuda_served *r) {
  const cuda_driver *driver = &state->shared->driver;
  uint64_t bytes = r->words * sizeof *r->host;
  return bytes ? cyrt_cuda_check(driver, driver->copy_in_async(r->table.ptr, r->host, bytes, state->stream),
                                 "cuMemcpyHtoDAsync", state->frame.error)
               : CYTO_OK;
}

int32_t cyrt_cuda_steps_issue(cuda_state *state) {
  const struct cuda_served *r = state->steps ? state->steps->taking : NULL;
  return r && r->pinned ? copy_table(state, r) : CYTO_OK;
}

int cyrt_cuda_steps_taking(const cuda_state *state, uint32_t kernel) {
  return state->steps && state->steps->taking && state->code->kernels[kernel].varying;
}

int cyrt_cuda_steps_take(cuda_state *state, const cyrt_cuda_kernel *k, int64_t *out_grid, cuda_ptr *out_record) {
  struct cuda_served *r = state->steps ? state->steps->taking : NULL;
  *out_record = 0;
  if (!k->varying || !r)
    return 0;
  uint64_t before = 0;
  for (uint64_t i = 0; i < r->made_of.n; i++) {
    const noted *a = &r->made_of.launches[i];
    if (i >= r->next && &state->code->kernels[a->kernel] == k) { /* not a `then` whose kernel was left out */
      r->next = i + 1;
      *out_grid = a->varies ? a->grid : *out_grid;
      *out_record = a->varies ? r->table.ptr + before * sizeof *r->host : 0;
      return a->varies;
    }
    before += a->varies ? 1 + state->code->kernels[a->kernel].slots : 0;
  }
  return 0;
}

static cyto_status record(cuda_state *state, cuda_recording *r, int32_t (*issue)(void *data), int waits) {
  struct cuda_steps *s = state->steps;
  int32_t anew = r->served ? r->served->anew + 1 : 0;
  cyrt_cuda_relax(state->shared, state->entry);
  cyrt_cuda_forget_recording(state, r);
  set_grids(state, anew);
  struct cuda_served *served = served_new(state, waits, state->host->error);
  if (!served)
    return CYTO_OUT_OF_MEMORY;
  served->anew = anew;
  r->served = served;
  r->seen = 1;
  walk made_of = served->made_of;
  served->made_of = s->now;
  s->now = made_of;
  s->taking = served;
  cyto_status status = cyrt_cuda_record(state, issue, state, &r->graph);
  s->taking = NULL;
  return status ? status : (cyto_status)take_walk(state, &s->now, &state->frame);
}

cyto_status cyrt_cuda_steps_run(cuda_state *state, cuda_recording *r, int32_t (*issue)(void *data), int waits,
                                int *out_launched) {
  const cuda_driver *driver = &state->shared->driver;
  *out_launched = 0;
  cyto_status status = (cyto_status)take_walk(state, &state->steps->now, &state->frame);
  if (status)
    return status;
  int fits = r->graph && serves(state, r->served);
  if (!fits && (state->steps->now.n > CUDA_MAX_RECORDED || (r->served && r->served->anew >= MAX_ANEW))) {
    cyrt_cuda_forget_recording(state, r);
    r->seen = r->eager = 1;
    return CYTO_OK;
  }
  if (!fits)
    status = record(state, r, issue, waits);
  if (status) {
    *out_launched = -1;
    return status;
  }
  *out_launched = 1;
  fill_table(state, r->served);
  if (!r->served->pinned && (status = copy_table(state, r->served)))
    return status;
  return cyrt_cuda_check(driver, driver->graph_launch(r->graph, state->stream), "cuGraphLaunch", state->host->error);
}

/* ---- contexts ---- */

int cyrt_cuda_steps_open(cuda_state *state) {
  const cyrt_model *model = state->model;
  if (!state->code->lengths)
    return 1;
  struct cuda_steps *s = state->steps = calloc(1, sizeof *s);
  if (!s)
    return 0;
  s->last = calloc(model->n_input_syms + 1, sizeof *s->last);
  s->syms = calloc(model->n_syms + 1, sizeof *s->syms);
  s->offsets = calloc(model->n_offsets + 1, sizeof *s->offsets);
  s->outputs = calloc(model->n_outputs + 1, sizeof *s->outputs);
  for (uint32_t i = 0; i < model->n_outputs; i++) {
    const cyrt_port *out = &model->outputs[i], *in = out->continues ? &model->inputs[out->continues - 1] : NULL;
    int64_t sym = in ? -1 - in->dims[out->axis] : -1;
    s->grown |= sym >= 0 && sym < MAX_SYMS ? (uint64_t)1 << sym : 0;
  }
  return s->last && s->syms && s->offsets && s->outputs;
}

void cyrt_cuda_steps_close(cuda_state *state) {
  struct cuda_steps *s = state->steps;
  if (!s)
    return;
  walk_free(&s->now);
  walk_free(&s->top);
  free(s->last);
  free(s->syms);
  free(s->offsets);
  free(s->outputs);
  free(s);
  state->steps = NULL;
}
