/* shim_tensor.c - barriers in shared memory and copies by tensor maps behind the shim (shim.h).
 *
 * A copy poisons its target when it is ordered (NaN) and lands when somebody waits for its barrier and all arrivals are
 * there: reading too early, or ordering a copy over a tile that is still read, gives NaN. Landed bytes need no fence to
 * be seen by products; but what was written before where they land has to be published. A barrier counts as PTX tells: a
 * phase ends with its last arrival and its last byte; a phase that waits for more or fewer bytes than come never ends,
 * which the launch reports.
 */
#include "tests/cuda/shim.h"

#include <stdlib.h>

enum { SHIM_BARRIERS = 32, SHIM_TENSORS = 64 };
static struct shim_barrier {
  const u64 *at;
  int arrivals, left, phase;
  i64 bytes; /* expected and not yet ordered to land */
} shim_barriers[SHIM_BARRIERS];
static struct shim_tensor {
  struct shim_barrier *barrier;
  unsigned char *to;
  const shim_map *map;
  int at[5];
} shim_tensors[SHIM_TENSORS];
static int shim_nbarriers, shim_ntensors;

void shim_forget_barriers(void) { shim_nbarriers = shim_ntensors = 0; }
void shim_check_barriers(void) {
  if (shim_ntensors)
    shim_fault("a block ends before its copies by tensor maps, of which are left", (u64)shim_ntensors);
}

static struct shim_barrier *shim_barrier_of(const u64 *at) {
  for (int i = 0; i < shim_nbarriers; i++)
    if (shim_barriers[i].at == at)
      return &shim_barriers[i];
  abort();
}

void cy_barrier_init(u64 *barrier, int arrivals) {
  if (shim_nbarriers == SHIM_BARRIERS || (uintptr_t)barrier % 8)
    abort();
  shim_barriers[shim_nbarriers++] = (struct shim_barrier){.at = barrier, .arrivals = arrivals, .left = arrivals};
}

static i64 shim_box_bytes(const shim_map *m) {
  i64 n = m->bytes;
  for (int i = 0; i < 5; i++)
    n *= m->box[i];
  return n;
}

static void shim_land(const struct shim_tensor *t) {
  const shim_map *m = t->map;
  i64 elements = shim_box_bytes(m) / m->bytes;
  for (i64 e = 0; e < elements; e++) {
    i64 rest = e, from = 0;
    u64 to = (u64)(t->to - shim_dynamic) + (u64)e * m->bytes;
    int inside = 1;
    for (int i = 0; i < 5; rest /= m->box[i++]) {
      i64 at = t->at[i] + rest % m->box[i] * m->step[i];
      inside &= at >= 0 && (u64)at < m->extent[i];
      from += at * (i64)m->stride[i];
    }
    to ^= (to >> 7 & 7) << 4;
    if (inside)
      memcpy(shim_dynamic + to, (const char *)(uintptr_t)m->address + from, m->bytes);
    else
      memset(shim_dynamic + to, 0, m->bytes);
    shim_landed(shim_dynamic + to);
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
void cy_barrier_arrive(u64 *barrier) {
  struct shim_barrier *b = shim_barrier_of(barrier);
  if (--b->left < 0)
    abort();
  if (!b->bytes)
    shim_advance(b);
}
void cy_barrier_expect(u64 *barrier, int bytes) {
  shim_barrier_of(barrier)->bytes += bytes;
  cy_barrier_arrive(barrier);
}

int shim_barrier_done(const shim_fiber *f) {
  struct shim_barrier *b = shim_barrier_of(f->barrier);
  if (b->phase == f->phase)
    shim_advance(b);
  return b->phase != f->phase;
}
/* By parity a device knows the current phase and the one before; for any other it waits for the wrong one, or not. */
void cy_barrier_wait(u64 *barrier, int phase) {
  int current = shim_barrier_of(barrier)->phase;
  if (phase != current && phase != current - 1)
    shim_fault("wait for a phase that is neither the current one nor the one before", (u64)phase);
  shim_barrier_wait(barrier, phase & 1);
}
void shim_barrier_wait(u64 *barrier, int parity) {
  struct shim_barrier *b = shim_barrier_of(barrier);
  if ((b->phase & 1) != parity)
    return;
  shim_now->barrier = barrier;
  shim_now->phase = b->phase;
  shim_to_main(SHIM_BARRIER);
}

void cy_tensor_load(void *to, const cy_tensor_map *map, int c, int x, int y, int z, int i, u64 *barrier) {
  if (shim_ntensors == SHIM_TENSORS || (uintptr_t)((unsigned char *)to - shim_dynamic) % 1024)
    abort();
  for (i64 at = 0; at < shim_box_bytes(map); at += 16)
    if (shim_unpublished((unsigned char *)to + at))
      shim_fault("copy by a tensor map over what was written and not published",
                 (u64)((unsigned char *)to - shim_dynamic + at));
  memset(to, 0xff, (size_t)shim_box_bytes(map));
  shim_tensors[shim_ntensors++] = (struct shim_tensor){shim_barrier_of(barrier), to, map, {c, x, y, z, i}};
}
