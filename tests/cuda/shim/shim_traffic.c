/* SPDX-License-Identifier: Apache-2.0 */
/* shim_traffic.c - what accesses of a kernel from PTX cost the device's memories: conflicts of banks, sectors.
 *
 * C that ptx.py wrote and that is compiled with PTX_TRAFFIC notes each access, line by line (shim_ptx.h). The n-th time
 * that threads of a warp come to a line is taken for one request; where some come more often than others (predicated
 * bodies of loops), those who have gone round loops equally often until then are. The first blocks of a launch are counted.
 *
 * Shared memory has 32 banks of 4 bytes; a request of 8 bytes a thread goes by half a warp, of 16 by a quarter, and each
 * such part takes as many iterations as the bank that most different words are wanted of. Global memory moves sectors
 * of 32 bytes.
 */
#include "tests/cuda/shim/shim_ptx.h"

#include <stdlib.h>

enum { BLOCKS = 2, BANKS = 32, SECTOR = 32, WARP = 32, MAX_NOTES = 1 << 21 };

typedef struct note {
  u64 at;
  u32 line, turn; /* turn: of all notes, then the how manieth of its thread and line, or its round */
  u32 round;
  u16 thread;
  u8 bytes, shared;
} note;

static ptx_traffic traffic;
static note *notes;
static u32 nnotes, capacity;
static i64 noted_first;
static struct {
  i64 block;
  u32 n;
} rounds[SHIM_THREADS]; /* of loops, in this block */

__attribute__((visibility("default"))) const ptx_traffic *ptx_traffic_read(void) { return &traffic; }

#define ORDER(x, y) (((x) > (y)) - ((x) < (y)))
static int by_thread(const void *a, const void *b) {
  const note *x = a, *y = b;
  int order = ORDER(x->thread / WARP, y->thread / WARP);
  order = order ? order : ORDER(x->line, y->line);
  order = order ? order : ORDER(x->thread, y->thread);
  return order ? order : ORDER(x->turn, y->turn);
}

static int by_request(const void *a, const void *b) {
  const note *x = a, *y = b;
  int order = ORDER(x->thread / WARP, y->thread / WARP);
  order = order ? order : ORDER(x->line, y->line);
  order = order ? order : ORDER(x->turn, y->turn);
  return order ? order : ORDER(x->thread, y->thread);
}

static int by_address(const void *a, const void *b) { return ORDER(((const note *)a)->at, ((const note *)b)->at); }

/* Turns that the threads of one part of a warp take; n of them. */
static u32 part_iterations(const note *part, int n) {
  u64 words[BANKS][BANKS];
  u32 count[BANKS] = {0}, max = 0;
  for (int i = 0; i < n; i++)
    for (u64 word = part[i].at / 4; word <= (part[i].at + part[i].bytes - 1) / 4; word++) {
      u32 bank = word % BANKS, k = 0;
      while (k < count[bank] && words[bank][k] != word)
        k++;
      if (k == count[bank])
        words[bank][count[bank]++] = word;
      max = count[bank] > max ? count[bank] : max;
    }
  return max;
}

static void count_shared(const note *request, int n) {
  int threads = request->bytes > 8 ? 8 : request->bytes > 4 ? 16 : 32;
  for (int i = 0, end; i < n; i = end) {
    for (end = i + 1; end < n && request[end].thread / threads == request[i].thread / threads;)
      end++;
    traffic.shared_iterations += part_iterations(request + i, end - i);
    traffic.shared_min++;
  }
}

/* Sectors, and how few could hold the same bytes. */
static void count_global(note *request, int n) {
  u64 behind = 0, last = ~0ull, bytes = 0;
  qsort(request, (size_t)n, sizeof *request, by_address);
  for (int i = 0; i < n; i++) {
    u64 end = request[i].at + request[i].bytes;
    for (u64 s = request[i].at / SECTOR; s <= (end - 1) / SECTOR; s++)
      if (last == ~0ull || s > last) {
        traffic.sectors++;
        last = s;
      }
    if (end > behind)
      bytes += end - (request[i].at > behind ? request[i].at : behind);
    behind = end > behind ? end : behind;
  }
  traffic.sectors_min += (bytes + SECTOR - 1) / SECTOR;
}

/* Numbers the notes [from, to) of a warp and a line. */
static void number_notes(u32 from, u32 to) {
  u32 turn = 0, min = ~0u, max = 0;
  for (u32 i = from; i < to; i++) {
    notes[i].turn = turn++;
    if (i + 1 == to || notes[i + 1].thread != notes[i].thread) {
      min = turn < min ? turn : min;
      max = turn > max ? turn : max;
      turn = 0;
    }
  }
  for (u32 i = from; min < max && i < to; i++)
    notes[i].turn = notes[i].round;
}

/* Those of a thread and line are numbered; those of a warp, a line and a number are a request. */
static void count_notes(void) {
  if (!nnotes)
    return; /* and there is no list of them */
  qsort(notes, nnotes, sizeof *notes, by_thread);
  for (u32 i = 0, end; i < nnotes; i = end) {
    for (end = i + 1;
         end < nnotes && notes[end].line == notes[i].line && notes[end].thread / WARP == notes[i].thread / WARP;)
      end++;
    number_notes(i, end);
  }
  qsort(notes, nnotes, sizeof *notes, by_request);
  for (u32 i = 0, end; i < nnotes; i = end) {
    for (end = i + 1; end < nnotes && notes[end].line == notes[i].line && notes[end].turn == notes[i].turn &&
                      notes[end].thread / WARP == notes[i].thread / WARP;)
      end++;
    if (notes[i].shared)
      count_shared(notes + i, (int)(end - i));
    else
      count_global(notes + i, (int)(end - i));
  }
  nnotes = 0;
}

static u32 *round_of_thread(void) {
  if (rounds[SHIM_SELF].block != shim_first)
    rounds[SHIM_SELF].n = 0;
  rounds[SHIM_SELF].block = shim_first;
  return &rounds[SHIM_SELF].n;
}
void ptx_round(void) { ++*round_of_thread(); }

void ptx_note(u32 line, b1 shared, u64 at, u32 bytes) {
  if (shim_block >= BLOCKS || !bytes)
    return;
  if (shim_first != noted_first)
    count_notes();
  noted_first = shim_first;
  if (nnotes == MAX_NOTES)
    return;
  if (nnotes == capacity) {
    capacity = capacity ? 2 * capacity : 1 << 12;
    notes = realloc(notes, capacity * sizeof *notes);
  }
  notes[nnotes] = (note){at, line, nnotes, *round_of_thread(), (u16)SHIM_SELF, (u8)bytes, shared};
  nnotes++;
}

void ptx_traffic_begin(void) {
  traffic = (ptx_traffic){0, 0, 0, 0};
  noted_first = -1;
  memset(rounds, 0, sizeof rounds);
}
void ptx_traffic_end(void) {
  count_notes();
  free(notes);
  notes = NULL;
  capacity = 0;
}
