/* SPDX-License-Identifier: Apache-2.0 */
/* quantise_choose.c - the best choice among things that need each other: which layers and tensors become integers.
 *
 * In:  items with what each gains (or costs), and needs: who chooses one must choose the other too, or pay. Out: the
 * choice of greatest gain. Gains alone decide nothing: a layer that gains may need tensors rounded that nobody else
 * reads, a layer that loses may save its neighbours two conversions.
 *
 * Method: a minimal cut. Items that gain hang on the source by what is lost without them, those that cost on the sink
 * by what they cost; needs are edges of their price. What the source still reaches when the flow is greatest is the
 * choice; among equals, the smallest. Flows are whole numbers, so that the result depends on nothing but the input.
 */
#include "quantise_int.h"

#include <string.h>

typedef struct arc {
  uint32_t to, next; /* next: 1 + the next arc of the same node */
  int64_t room;      /* arc a ^ 1 is its reverse */
} arc;

typedef struct net {
  arc *arcs;
  uint32_t narcs, nnodes;
  uint32_t *first, *depth, *at, *queue; /* [node] */
} net;

static void connect(net *n, uint32_t from, uint32_t to, int64_t room) {
  n->arcs[n->narcs] = (arc){to, n->first[from], room};
  n->first[from] = ++n->narcs;
  n->arcs[n->narcs] = (arc){from, n->first[to], 0};
  n->first[to] = ++n->narcs;
}

/* Distances from `source` along arcs with room, + 1; 0: out of reach. */
static bool reach(net *n, uint32_t source, uint32_t sink) {
  uint32_t head = 0, tail = 0;
  memset(n->depth, 0, n->nnodes * sizeof *n->depth);
  n->depth[source] = 1;
  n->queue[tail++] = source;
  while (head < tail) {
    uint32_t v = n->queue[head++];
    for (uint32_t a = n->first[v]; a; a = n->arcs[a - 1].next) {
      const arc *x = &n->arcs[a - 1];
      if (x->room > 0 && !n->depth[x->to]) {
        n->depth[x->to] = n->depth[v] + 1;
        n->queue[tail++] = x->to;
      }
    }
  }
  return n->depth[sink] != 0;
}

/* One way from source to sink by growing depth, filled up; the arcs of the way are kept in n->queue. */
static bool push(net *n, uint32_t source, uint32_t sink) {
  uint32_t *way = n->queue, len = 0, v = source;
  while (v != sink) {
    while (n->at[v]) {
      const arc *x = &n->arcs[n->at[v] - 1];
      if (x->room > 0 && n->depth[x->to] == n->depth[v] + 1)
        break;
      n->at[v] = x->next;
    }
    if (n->at[v]) {
      way[len++] = n->at[v] - 1;
      v = n->arcs[n->at[v] - 1].to;
    } else if (len) { /* a dead end: back, and not here again */
      uint32_t a = way[--len];
      v = n->arcs[a ^ 1].to;
      n->at[v] = n->arcs[a].next;
    } else {
      return false;
    }
  }
  int64_t room = INT64_MAX;
  for (uint32_t i = 0; i < len; i++)
    room = n->arcs[way[i]].room < room ? n->arcs[way[i]].room : room;
  for (uint32_t i = 0; i < len; i++) {
    n->arcs[way[i]].room -= room;
    n->arcs[way[i] ^ 1].room += room;
  }
  return true;
}

void cy_quant_choose(cy_arena *scratch, const int64_t *gain, uint32_t nitems, const cy_quant_need *needs,
                     uint32_t nneeds, bool *out_chosen) {
  uint32_t source = nitems, sink = nitems + 1, nodes = nitems + 2;
  net n = {.arcs = CY_NEW_ARRAY(scratch, arc, 2 * ((size_t)nitems + nneeds) + 1),
           .nnodes = nodes,
           .first = CY_NEW_ARRAY(scratch, uint32_t, nodes),
           .depth = CY_NEW_ARRAY(scratch, uint32_t, nodes),
           .at = CY_NEW_ARRAY(scratch, uint32_t, nodes),
           .queue = CY_NEW_ARRAY(scratch, uint32_t, nodes)};
  for (uint32_t i = 0; i < nitems; i++)
    if (gain[i])
      connect(&n, gain[i] > 0 ? source : i, gain[i] > 0 ? i : sink, gain[i] > 0 ? gain[i] : -gain[i]);
  for (uint32_t i = 0; i < nneeds; i++)
    connect(&n, needs[i].item, needs[i].other, needs[i].price);
  while (reach(&n, source, sink)) {
    memcpy(n.at, n.first, nodes * sizeof *n.at);
    while (push(&n, source, sink))
      ;
  }
  for (uint32_t i = 0; i < nitems; i++)
    out_chosen[i] = n.depth[i] != 0;
}
