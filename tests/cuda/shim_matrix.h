/* shim_matrix.h - matrix instructions and asynchronous copies behind the shim (shim.h).
 *
 * A copy begins with its target poisoned (NaN in every format) and lands when its thread waits for its group: reading
 * too early, or overwriting a tile that is still read, gives NaN. Fragments are laid out as the PTX manual tells: a
 * matrix of 8 rows of 16 bytes has word l % 4 of row l / 4 in lane l. The lanes of a warp meet in every instruction.
 */
typedef struct shim_copy {
  void *to;
  u8 bytes[16];
} shim_copy;
enum { SHIM_COPIES = 512, SHIM_GROUPS = 8 };
typedef struct shim_queue {
  shim_copy copy[SHIM_COPIES];
  int n, group_end[SHIM_GROUPS], ngroups;
} shim_queue;
static shim_queue *shim_queues; /* [SHIM_THREADS], made when first needed */

#define CY_DYNAMIC(name) unsigned char *const name = shim_dynamic

static shim_queue *shim_my_queue(void) {
  if (!shim_queues)
    shim_queues = calloc(SHIM_THREADS, sizeof *shim_queues);
  return &shim_queues[CY_TID];
}

static void shim_forget_copies(void) {
  for (int i = 0; shim_queues && i < SHIM_THREADS; i++)
    shim_queues[i].n = shim_queues[i].ngroups = 0;
}

typedef struct cy_chunk cy_chunk;
static void cy_copy_async(cy_chunk *to, const void *from, int bytes) {
  shim_queue *q = shim_my_queue();
  if (q->n == SHIM_COPIES || ((uintptr_t)to | (bytes ? (uintptr_t)from : 0)) % 16 || bytes < 0 || bytes > 16)
    abort();
  shim_copy *c = &q->copy[q->n++];
  c->to = to;
  memset(c->bytes, 0, 16);
  memcpy(c->bytes, from, (size_t)bytes);
  memset(to, 0xff, 16);
}
static void cy_copy_commit(void) {
  shim_queue *q = shim_my_queue();
  if (q->ngroups == SHIM_GROUPS)
    abort();
  q->group_end[q->ngroups++] = q->n;
}
static void CY_COPY_WAIT(int n) {
  shim_queue *q = shim_my_queue();
  int landed = q->ngroups - n, end = landed > 0 ? q->group_end[landed - 1] : 0;
  if (landed <= 0)
    return;
  for (int i = 0; i < end; i++)
    memcpy(q->copy[i].to, q->copy[i].bytes, 16);
  memmove(q->copy, q->copy + end, (size_t)(q->n - end) * sizeof *q->copy);
  q->n -= end;
  q->ngroups -= landed;
  for (int i = 0; i < q->ngroups; i++)
    q->group_end[i] = q->group_end[i + landed] - end;
}

/* ---- fragments ---- */

static const u16 *shim_rows[SHIM_THREADS];
static u32 shim_a[SHIM_THREADS][4], shim_b[SHIM_THREADS][2];

static void shim_load_matrix(u32 *r, const void *row, int turned) {
  int lane = CY_TID % 32, warp = CY_TID - lane;
  if ((uintptr_t)row % 16)
    abort();
  shim_rows[CY_TID] = row;
  CY_SYNC_WARP();
  for (int j = 0; j < 4; j++) {
    const u16 *const *rows = &shim_rows[warp + j * 8];
    if (turned)
      r[j] = rows[lane % 4 * 2][lane / 4] | (u32)rows[lane % 4 * 2 + 1][lane / 4] << 16;
    else
      memcpy(&r[j], rows[lane / 4] + lane % 4 * 2, 4);
  }
  CY_SYNC_WARP();
}
static void cy_load_matrix(u32 *r, const cy_chunk *row) { shim_load_matrix(r, row, 0); }
static void cy_load_matrix_turned(u32 *r, const cy_chunk *row) { shim_load_matrix(r, row, 1); }

static f32 shim_f16(u32 word, int half) { return cy_dec_f16((u16)(word >> half * 16)); }
static f32 shim_bf16(u32 word, int half) { return cy_f32_bits(word >> half * 16 << 16); }
/* Rounded to 10 bits of mantissa, ties away from zero. */
static f32 shim_tf32(u32 word, int half) {
  (void)half;
  return cy_f32_bits((word & 0x7f800000u) == 0x7f800000u ? word : (word + 0x1000u) & ~0x1fffu);
}

static void shim_mma(f32 *c, const u32 *a, const u32 *b, int per_word, f32 (*value)(u32, int)) {
  int lane = CY_TID % 32, warp = CY_TID - lane;
  memcpy(shim_a[CY_TID], a, sizeof shim_a[0]);
  memcpy(shim_b[CY_TID], b, sizeof shim_b[0]);
  CY_SYNC_WARP();
  for (int i = 0; i < 4; i++) {
    int row = lane / 4, column = lane % 4 * 2 + i % 2;
    for (int w = 0; w < 8; w++) { /* words of a row */
      u32 x = shim_a[warp + row * 4 + w % 4][w / 4 * 2 + i / 2], y = shim_b[warp + column * 4 + w % 4][w / 4];
      for (int h = 0; h < per_word; h++)
        c[i] += value(x, h) * value(y, h);
    }
  }
  CY_SYNC_WARP();
}
static void cy_mma_f16(f32 *c, const u32 *a, const u32 *b) { shim_mma(c, a, b, 2, shim_f16); }
static void cy_mma_bf16(f32 *c, const u32 *a, const u32 *b) { shim_mma(c, a, b, 2, shim_bf16); }
static void cy_mma_tf32(f32 *c, const u32 *a, const u32 *b) { shim_mma(c, a, b, 1, shim_tf32); }
