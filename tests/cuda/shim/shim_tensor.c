/* SPDX-License-Identifier: Apache-2.0 */
/* shim_tensor.c - barriers in shared memory and copies by tensor maps behind the shim (shim.h).
 *
 * A copy poisons its target when it is ordered (NaN) and lands when somebody waits for its barrier and all arrivals are
 * there: reading too early, or ordering a copy over a tile that is still read, gives NaN. Landed bytes need no fence to
 * be seen by products; but what was written before where they land has to be published. A barrier counts as PTX tells: a
 * phase ends with its last arrival and its last byte; a phase that waits for more or fewer bytes than come never ends,
 * which the launch reports.
 *
 * Blocks of a cluster arrive at each other's barriers and copy into each other's memory, where the same places are meant.
 * All of its threads have to meet in between when a barrier is made and when another block uses it, and again before a
 * block ends: a device shows only now and then that they do not, so meetings are counted.
 */
#include "tests/cuda/shim/shim.h"

#include <stdlib.h>

enum { SHIM_BARRIERS = 96, SHIM_TENSORS = 256 };
static struct shim_barrier {
  int rank; /* of its block */
  u64 at;
  int arrivals, left, phase, made; /* made: when so many meetings had been */
  i64 bytes;                       /* expected and not yet ordered to land */
} shim_barriers[SHIM_BARRIERS];
static struct shim_tensor {
  struct shim_barrier *barrier; /* of the block where it lands */
  u64 to;
  const shim_map *map;
  int at[5];
} shim_tensors[SHIM_TENSORS];
static int shim_nbarriers, shim_ntensors;
static int
    shim_touched[SHIM_RANKS]; /* so many meetings there must be after what other blocks did in this one's memory */

void shim_forget_barriers(void) {
  shim_nbarriers = shim_ntensors = shim_syncs = 0;
  memset(shim_touched, 0, sizeof shim_touched);
}
void shim_check_barriers(void) {
  if (shim_ntensors)
    shim_fault("a block ends before its copies by tensor maps, of which are left", (u64)shim_ntensors);
  for (int rank = 0; rank < shim_ranks; rank++)
    if (shim_touched[rank] > shim_syncs)
      shim_fault("a block may end while others use its shared memory: block", (u64)rank);
}

/* The barrier of that block at the place that has this address in the block at hand. */
static struct shim_barrier *shim_barrier_of(const u64 *address, int rank) {
  u64 offset = (u64)address - (u64)shim_dynamic, at = offset < SHIM_MAX_SHARED ? offset : (u64)address;
  for (int i = 0; i < shim_nbarriers; i++)
    if (shim_barriers[i].at == at && shim_barriers[i].rank == rank)
      return &shim_barriers[i];
  shim_fault("no barrier at that place of shared memory, of the block", (u64)rank);
}
static struct shim_barrier *shim_own_barrier(const u64 *address) { return shim_barrier_of(address, shim_now->rank); }
/* .. that the block at hand uses as one of the cluster. */
static struct shim_barrier *shim_cluster_barrier(const u64 *address, int rank) {
  struct shim_barrier *b = shim_barrier_of(address, rank);
  if (rank != shim_now->rank) {
    if (b->made >= shim_syncs)
      shim_fault("a barrier that its block may not have made yet", (u64)rank);
    shim_touched[rank] = shim_syncs + 1;
  }
  return b;
}

void cy_barrier_init(u64 *barrier, int arrivals) {
  u64 offset = (u64)barrier - (u64)shim_dynamic;
  if (shim_nbarriers == SHIM_BARRIERS || (uintptr_t)barrier % 8)
    abort();
  shim_barriers[shim_nbarriers++] = (struct shim_barrier){.rank = shim_now->rank,
                                                          .at = offset < SHIM_MAX_SHARED ? offset : (u64)barrier,
                                                          .arrivals = arrivals,
                                                          .left = arrivals,
                                                          .made = shim_syncs};
}

static i64 shim_box_bytes(const shim_map *m) {
  i64 n = m->bytes;
  for (int i = 0; i < 5; i++)
    n *= m->box[i];
  return n;
}

static void shim_round(unsigned char *at) {
  u32 word;
  memcpy(&word, at, 4);
  word = cy_tf32(word);
  memcpy(at, &word, 4);
}

static void shim_land(const struct shim_tensor *t) {
  const shim_map *m = t->map;
  i64 elements = shim_box_bytes(m) / m->bytes;
  unsigned char *memory = shim_memory[t->barrier->rank];
  for (i64 e = 0; e < elements; e++) {
    i64 rest = e, from = 0;
    u64 to = t->to + (u64)e * m->bytes;
    int inside = 1;
    for (int i = 0; i < 5; rest /= m->box[i++]) {
      i64 at = t->at[i] + rest % m->box[i] * m->step[i];
      inside &= at >= 0 && (u64)at < m->extent[i];
      from += at * (i64)m->stride[i];
    }
    to ^= (to >> 7 & 7) << 4;
    if (inside)
      memcpy(memory + to, (const char *)(uintptr_t)m->address + from, m->bytes);
    else
      memset(memory + to, 0, m->bytes);
    if (m->bytes == 4) /* maps of TF32 alone have such */
      shim_round(memory + to);
    shim_landed(t->barrier->rank, to);
  }
}

/* Ends the phase if everything for it has come. */
static void shim_advance(struct shim_barrier *b) {
  if (b->left > 0)
    return;
  for (int i = 0; i < shim_ntensors; i++)
    if (shim_tensors[i].barrier == b) {
      shim_land(&shim_tensors[i]);
      b->bytes -= shim_box_bytes(shim_tensors[i].map);
      shim_tensors[i--] = shim_tensors[--shim_ntensors];
    }
  if (b->bytes)
    return;
  b->left = b->arrivals;
  b->phase++;
}
static void shim_arrive(struct shim_barrier *b) {
  if (--b->left < 0)
    shim_fault("more arrivals than a phase of the barrier has, of the block", (u64)b->rank);
  if (!b->bytes)
    shim_advance(b);
}
void cy_barrier_arrive(u64 *barrier) { shim_arrive(shim_own_barrier(barrier)); }
void cy_barrier_arrive_at(u64 *barrier, int rank) { shim_arrive(shim_cluster_barrier(barrier, rank)); }
void cy_barrier_expect(u64 *barrier, int bytes) {
  shim_own_barrier(barrier)->bytes += bytes;
  cy_barrier_arrive(barrier);
}

int shim_barrier_done(const shim_fiber *f) {
  if (f->barrier->phase == f->phase)
    shim_advance(&shim_barriers[f->barrier - shim_barriers]);
  return f->barrier->phase != f->phase;
}
/* By parity a device knows the current phase and the one before; for any other it waits for the wrong one, or not. */
void cy_barrier_wait(u64 *barrier, int phase) {
  int current = shim_own_barrier(barrier)->phase;
  if (phase != current && phase != current - 1)
    shim_fault("wait for a phase that is neither the current one nor the one before", (u64)phase);
  shim_barrier_wait(barrier, phase & 1);
}
void shim_barrier_wait(u64 *barrier, int parity) {
  struct shim_barrier *b = shim_own_barrier(barrier);
  if ((b->phase & 1) != parity)
    return;
  shim_now->barrier = b;
  shim_now->phase = b->phase;
  shim_to_main(SHIM_BARRIER);
}

void shim_tensor_load(u32 blocks, void *to, const cy_tensor_map *map, const int at[5], u64 *barrier) {
  u64 offset = (u64)((unsigned char *)to - shim_dynamic);
  if (offset % 1024 || !blocks || blocks >> shim_ranks)
    shim_fault("copy by a tensor map to blocks", blocks);
  for (int rank = 0; rank < shim_ranks; rank++) {
    if (!(blocks >> rank & 1))
      continue;
    struct shim_tensor *t = &shim_tensors[shim_ntensors++];
    if (shim_ntensors == SHIM_TENSORS)
      abort();
    for (i64 i = 0; i < shim_box_bytes(map); i += 16)
      if (shim_unpublished(rank, offset + (u64)i))
        shim_fault("copy by a tensor map over what was written and not published", offset + (u64)i);
    memset(shim_memory[rank] + offset, 0xff, (size_t)shim_box_bytes(map));
    *t = (struct shim_tensor){.barrier = shim_cluster_barrier(barrier, rank), .to = offset, .map = map};
    memcpy(t->at, at, sizeof t->at);
  }
}
void cy_tensor_load(void *to, const cy_tensor_map *map, int c, int x, int y, int z, int i, u64 *barrier) {
  shim_tensor_load(1u << shim_now->rank, to, map, (int[]){c, x, y, z, i}, barrier);
}
