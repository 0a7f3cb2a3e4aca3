/* strassen.c - products of many rows and constant columns by seven multiplications of quarters in place of eight.
 *
 * Comes in: a cy_core of f32 with one tap, as cy_core_emit takes it. Goes out: code for one task that computes the same
 * sums; for some, a phase before it. The algorithm is Strassen's (Gaussian elimination is not optimal, 1969) with the
 * fifteen additions of Winograd (On multiplication of 2x2 matrices, 1971), one level of it. Quarters are not those of
 * the whole matrices: A is two tiles of rows by the halves of a block of K, B a pair of panels by these halves.
 *
 *   left    S1 = A21+A22  S2 = S1-A11  S3 = A11-A21  S4 = A12-S2
 *   right   T1 = B12-B11  T2 = B22-T1  T3 = B22-B12  T4 = B21-T2
 *   C11 += P1 + A12 B21,  C12 += P1+P6+P5 + S4 B22,  C21 += P1+P6+P7 + A22 T4,  C22 += P1+P6+P7+P5
 *           P1 = A11 B11, P5 = S1 T1, P6 = S2 T2, P7 = S3 T3
 *
 *   1. Sums of the left factor: where they are few bytes, once for all tasks by a phase of their own, in shared
 *      scratch; else by the task for its rows, block of K by block of K.
 *   2. Pair of panels by pair of panels: the right factor's sums, which all rows of the task share; then for each pair
 *      of tiles the seven products by the micro-kernels of core.c, three of them straight onto C. Rows that fill no
 *      pair of tiles are multiplied plainly while the panels are near; a panel without a partner by cy_core_emit.
 *   3. The epilogue, over several pairs of panels at once, so that it meets long runs of each row.
 * The micro-kernels find neither factor in the first-level cache, and prefetch what comes next: left sums of the next
 * pair of tiles, and the next pair of panels.
 *
 * A sum mixes two rows: NaN, infinities and rounding errors of one would get into the other. Pairs of tiles with rows
 * that are not finite or of very different magnitude are therefore multiplied plainly; the left sums come with a flag
 * that says so.
 *
 * Rounding: with factors of random normal data, relative RMS error against double, here and plainly: 9.3e-7, 5.0e-7
 * (rows, k, columns 197, 768, 768), 1.07e-6, 0.99e-6 (197, 3072, 768), 8.0e-7, 5.7e-7 (512, 1024, 512).
 */
#include "core.h"

#include <string.h>

enum { LEFT_SUMS = 4, RIGHT_SUMS = 4, PRODUCTS = 7, TEMPS = 4 };
enum {
  GROUP = 4,           /* pairs of panels between epilogues */
  MOST_ROWS = 384,     /* of a task */
  MOST_PANELS = 48,    /* of a task; half, where K has several blocks and sums wait in memory */
  MOST_SUMS = 3 << 20, /* bytes of shared left sums */
  MOST_APART = 6,      /* binary orders of magnitude between two rows of a pair of tiles */
  PAD = 320            /* bytes between right sums, which else fell into the same sets of the first-level cache */
};

/* ---- sizes ---- */

static int64_t half_of(int64_t k, int64_t k_block) { return (k < k_block ? k : k_block) / 2; }
static int64_t blocks_of(int64_t k, int64_t k_block) { return (k + k_block - 1) / k_block; }
static int64_t sum_bytes(cy_tile t, int64_t half) { return t.mr * half * 4; }
/* Of a pair of tiles: its sums, and a flag in a cache line of its own. */
static int64_t left_bytes(cy_tile t, int64_t half) { return LEFT_SUMS * sum_bytes(t, half) + 64; }
static int64_t right_bytes(const cy_cg *cg, cy_tile t, int64_t half) { return half * t.nv * cg->W * 4 + PAD; }
static int64_t group_of(int64_t nb) { return 2 * GROUP < nb ? 2 * GROUP : nb; } /* panels */

int64_t cy_strassen_sums_bytes(cy_tile t, int64_t k, int64_t k_block) {
  return blocks_of(k, k_block) * left_bytes(t, half_of(k, k_block));
}

/* Scratch, in this order: left sums, right sums, sums of a group. */
int64_t cy_strassen_bytes(const cy_cg *cg, cy_tile t, const cy_strassen *s, int64_t k) {
  int64_t half = half_of(k, s->k_block), left = s->shared ? 0 : s->blocks.mb / (2 * t.mr) * left_bytes(t, half);
  int64_t c = k <= s->k_block ? s->blocks.mb * group_of(s->blocks.nb) * t.nv * cg->W * 4 : 0;
  return left + RIGHT_SUMS * right_bytes(cg, t, half) + c;
}

cy_share cy_strassen_rows(cy_cg *cg, cy_tile t, V rows, int64_t mb, V i) {
  return cy_share_rows(cg, (cy_tile){2 * t.mr, t.nv}, rows, mb, i);
}

cy_share cy_strassen_panels(cy_cg *cg, V panels, V parts, V i) {
  cy_share s = cy_share_of(cg, cy_ceil_div(cg, panels, cy_i64(cg, 2)), parts, i);
  return (cy_share){cy_mulc(cg, s.begin, 2), cy_imin(cg, panels, cy_mulc(cg, s.end, 2))};
}

unsigned cy_strassen_tails(cy_tile t, int64_t rows, int64_t panels) {
  int64_t pair = 2 * t.mr, rest = rows % pair;
  if (!rows)
    return (1u << t.mr) - 1;
  return cy_tails(t, rest, pair) | (panels % 2 ? cy_tails(t, pair + rest, 2 * pair) : 0);
}

/* ---- code for one task ---- */

typedef struct frame {
  const cy_core *k;
  int64_t nr, half, blocks; /* columns of a panel; floats of a row of left sums; of K */
  V pairs;                  /* of tiles */
  V left, right, temps, left_tab;
  int64_t left_pair; /* bytes between the left sums of pairs of tiles */
  V c0, kc, h;       /* the block of K: where, how long, half of that */
  V accumulate, last, b, panel_bytes;
  V c; /* of panel p0, or of the group's first one */
  int64_t ldc;
  V ahead; /* bytes per k to prefetch of the next pair of panels, or NULL */
} frame;

static V add(cy_cg *cg, V a, V b) { return LLVMBuildFAdd(cg->b, a, b, ""); }
static V sub(cy_cg *cg, V a, V b) { return LLVMBuildFSub(cg->b, a, b, ""); }
static V address(cy_cg *cg, V p) { return LLVMBuildPtrToInt(cg->b, p, cg->i64, ""); }
static V pointer(cy_cg *cg, V p) { return LLVMBuildIntToPtr(cg->b, p, cg->ptr, ""); }

/* A left sum; behind the last one: the flag. */
static V left_at(cy_cg *cg, const frame *f, V pair, int sum) {
  V first = cy_gep(cg, f->left, cy_mulc(cg, pair, f->left_pair));
  return cy_gepc(cg, first, sum * sum_bytes(f->k->tile, f->half));
}

static V right_at(cy_cg *cg, const frame *f, int sum) {
  return cy_gepc(cg, f->right, sum * right_bytes(cg, f->k->tile, f->half));
}

static V panel_at(cy_cg *cg, const frame *f, V q) { return cy_gep(cg, f->b, cy_mul(cg, q, f->panel_bytes)); }
static V lower_half(cy_cg *cg, const frame *f, V panel) { return cy_gep(cg, panel, cy_mulc(cg, f->h, f->nr * 4)); }

/* The address of the block's first element in a row. */
static V row_at(cy_cg *cg, const frame *f, V row) {
  V entry = cy_load(cg, cg->i64, cy_gep(cg, f->k->tab, cy_mulc(cg, row, 8)), 8);
  return pointer(cg, cy_add(cg, cy_add(cg, f->k->base, cy_mulc(cg, f->c0, 4)), entry));
}

/* Elements [at, at + lanes) of both halves of two rows into their sums; most: the largest magnitudes so far of each row,
 * as bits, among which infinities and NaN are larger than numbers. */
static void emit_left_piece(cy_cg *cg, const frame *f, const V row[2], V to, V at, unsigned lanes, V most[2]) {
  LLVMTypeRef type = cy_vecf(cg, lanes), bits = LLVMVectorType(cg->i32, lanes);
  V a[2][2], sum = cy_i64(cg, sum_bytes(f->k->tile, f->half));
  V magnitude = cy_splat(cg, cy_i32(cg, INT32_MAX), lanes);
  for (int i = 0; i < 4; i++) {
    a[i / 2][i % 2] = cy_load(cg, type, cy_gepf(cg, row[i / 2], i % 2 ? cy_add(cg, at, f->h) : at), 4);
    V v[2] = {most[i / 2], LLVMBuildAnd(cg->b, LLVMBuildBitCast(cg->b, a[i / 2][i % 2], bits, ""), magnitude, "")};
    most[i / 2] = cy_intrinsic(cg, "llvm.umax", bits, v, 2);
  }
  V s1 = add(cg, a[1][0], a[1][1]), s2 = sub(cg, s1, a[0][0]);
  V sums[LEFT_SUMS] = {s1, s2, sub(cg, a[0][0], a[1][0]), sub(cg, a[0][1], s2)};
  for (int i = 0; i < LEFT_SUMS; i++, to = cy_gep(cg, to, sum))
    cy_store(cg, sums[i], cy_gepf(cg, to, at), 4);
}

/* i32, 1: what rounds away beside the larger of these rows' magnitudes (bits) would be felt in the other row. */
static V too_far_apart(cy_cg *cg, V most[2]) {
  V high = cy_intrinsic(cg, "llvm.umax", cg->i32, most, 2), low = cy_intrinsic(cg, "llvm.umin", cg->i32, most, 2);
  V far = cy_icmp(cg, LLVMIntUGT, cy_sub(cg, high, low), cy_i32(cg, MOST_APART << 23));
  V infinite = cy_icmp(cg, LLVMIntUGE, high, cy_i32(cg, 0x7f800000));
  return LLVMBuildZExt(cg->b, LLVMBuildOr(cg->b, far, infinite, ""), cg->i32, "");
}

/* The left sums of row i of a pair of tiles and of the row below it, `next` being prefetched; their flag. */
static V emit_left_rows(cy_cg *cg, const frame *f, const V row[2], const V next[2], V to) {
  V whole = cy_mulc(cg, cy_div(cg, f->h, cy_i64(cg, cg->W)), cg->W),
    most[2] = {LLVMConstNull(cg->vi), LLVMConstNull(cg->vi)};
  cy_loop j, rest;
  cy_loop_begin(cg, &j, cy_i64(cg, 0), whole, cy_i64(cg, cg->W), most, 2);
  for (int p = 0; p < 4; p++)
    cy_prefetch(cg, cy_gepf(cg, next[p / 2], p % 2 ? cy_add(cg, j.iv, f->h) : j.iv));
  memcpy(most, j.v, sizeof most);
  emit_left_piece(cg, f, row, to, j.iv, cg->W, most);
  cy_loop_end(cg, &j, most);
  for (int r = 0; r < 2; r++)
    most[r] = cy_splat(cg, cy_intrinsic(cg, "llvm.vector.reduce.umax", cg->vi, &j.out[r], 1), 1);
  cy_loop_begin(cg, &rest, whole, f->h, cy_i64(cg, 1), most, 2);
  memcpy(most, rest.v, sizeof most);
  emit_left_piece(cg, f, row, to, rest.iv, 1, most);
  cy_loop_end(cg, &rest, most);
  for (int r = 0; r < 2; r++)
    most[r] = LLVMBuildExtractElement(cg->b, rest.out[r], cy_i32(cg, 0), "");
  return too_far_apart(cg, most);
}

/* The left sums and flags of all pairs of tiles. */
static void emit_left(cy_cg *cg, const frame *f) {
  int64_t mr = f->k->tile.mr;
  cy_loop t, i;
  V last = cy_addc(cg, cy_mulc(cg, f->pairs, 2 * mr), -1), flag = cy_i32(cg, 0), row[2], next[2];
  cy_loop_begin(cg, &t, cy_i64(cg, 0), f->pairs, cy_i64(cg, 1), NULL, 0);
  cy_loop_begin(cg, &i, cy_i64(cg, 0), cy_i64(cg, mr), cy_i64(cg, 1), &flag, 1);
  V number = cy_add(cg, cy_mulc(cg, t.iv, 2 * mr), i.iv);
  for (int r = 0; r < 2; r++) {
    row[r] = row_at(cg, f, cy_addc(cg, number, r * mr));
    next[r] = row_at(cg, f, cy_imin(cg, last, cy_addc(cg, number, r * mr + 1)));
  }
  V to = cy_gep(cg, left_at(cg, f, t.iv, 0), cy_mulc(cg, i.iv, f->half * 4));
  flag = LLVMBuildOr(cg->b, i.v[0], emit_left_rows(cg, f, row, next, to), "");
  cy_loop_end(cg, &i, &flag);
  cy_store(cg, i.out[0], left_at(cg, f, t.iv, LEFT_SUMS), 4);
  cy_loop_end(cg, &t, NULL);
}

/* The right sums of panels q and q + 1. */
static void emit_right(cy_cg *cg, const frame *f, V q) {
  V b[4] = {panel_at(cg, f, q), panel_at(cg, f, cy_addc(cg, q, 1))};
  b[2] = lower_half(cg, f, b[0]);
  b[3] = lower_half(cg, f, b[1]);
  cy_loop i;
  cy_loop_begin(cg, &i, cy_i64(cg, 0), cy_mulc(cg, f->h, f->nr), cy_i64(cg, f->nr), NULL, 0);
  for (unsigned j = 0; j < f->k->tile.nv; j++) {
    V x[4], at = cy_addc(cg, i.iv, j * cg->W);
    for (int p = 0; p < 4; p++)
      x[p] = cy_load(cg, cg->vf, cy_gepf(cg, b[p], at), 4);
    V t1 = sub(cg, x[1], x[0]), t2 = sub(cg, x[3], t1);
    V sums[RIGHT_SUMS] = {t1, t2, sub(cg, x[3], x[1]), sub(cg, x[2], t2)};
    for (int s = 0; s < RIGHT_SUMS; s++)
      cy_store(cg, sums[s], cy_gepf(cg, right_at(cg, f, s), at), 4);
  }
  cy_loop_end(cg, &i, NULL);
}

/* ---- the products of a pair of tiles and a pair of panels ---- */

/* What P1, P5, P6, P7 in temps make of C at c. */
static void emit_combine(cy_cg *cg, const frame *f, V c) {
  int64_t mr = f->k->tile.mr, temp = mr * f->nr * 4;
  cy_loop i;
  cy_loop_begin(cg, &i, cy_i64(cg, 0), cy_i64(cg, mr), cy_i64(cg, 1), NULL, 0);
  V from = cy_gep(cg, f->temps, cy_mulc(cg, i.iv, f->nr * 4)), to = cy_gep(cg, c, cy_mulc(cg, i.iv, f->ldc));
  for (unsigned j = 0; j < f->k->tile.nv; j++) {
    V p[TEMPS], at[4], x[4];
    for (int t = 0; t < 4; t++) {
      p[t] = cy_load(cg, cg->vf, cy_gepc(cg, from, t * temp + j * cg->W * 4), 4);
      at[t] = cy_gepc(cg, to, t / 2 * mr * f->ldc + (t % 2 * f->nr + j * cg->W) * 4);
      x[t] = cy_load(cg, cg->vf, at[t], 4);
    }
    x[3] = cy_select(cg, f->accumulate, x[3], LLVMConstNull(cg->vf)); /* no product went there */
    V p16 = add(cg, p[0], p[2]), p167 = add(cg, p16, p[3]);
    V more[4] = {p[0], add(cg, p16, p[1]), p167, add(cg, p167, p[1])};
    for (int t = 0; t < 4; t++)
      cy_store(cg, add(cg, x[t], more[t]), at[t], 4);
  }
  cy_loop_end(cg, &i, NULL);
}

/* One product: rows, weights, where to. */
typedef struct product {
  V base, tab, b;
  int64_t to; /* bytes from the tile of C; or temporary -1 - to */
  int ahead;  /* the left sum of the next pair of tiles to prefetch; -1: weights */
} product;

static void emit_product(cy_cg *cg, const frame *f, const product *p, V c, V ahead, V step) {
  const cy_core *k = f->k;
  int64_t temp = k->tile.mr * f->nr * 4;
  bool direct = p->to >= 0;
  V args[12] = {p->base,
                p->tab,
                cy_i64(cg, 0),
                p->b,
                k->ldb,
                direct ? cy_gepc(cg, c, p->to) : cy_gepc(cg, f->temps, (-1 - p->to) * temp),
                cy_i64(cg, direct ? f->ldc : f->nr * 4),
                cy_i64(cg, 1),
                f->h,
                direct ? f->accumulate : LLVMConstInt(cg->i1, 0, 0),
                ahead,
                step};
  V fn = cy_ukernel(cg, k->tile.mr, k->tile.nv, CY_UK_AHEAD);
  LLVMBuildCall2(cg->b, LLVMGlobalGetValueType(fn), fn, args, 12, "");
}

/* Pair of tiles t, panels q and q + 1. */
static void emit_products(cy_cg *cg, const frame *f, V t, V q, V c) {
  const cy_core *k = f->k;
  int64_t mr = k->tile.mr;
  V panel[2] = {panel_at(cg, f, q), panel_at(cg, f, cy_addc(cg, q, 1))}, s[LEFT_SUMS];
  V top = cy_gep(cg, k->tab, cy_mulc(cg, t, 2 * mr * 8)), bottom = cy_gepc(cg, top, mr * 8);
  V first = cy_add(cg, k->base, cy_mulc(cg, f->c0, 4)), second = cy_add(cg, first, cy_mulc(cg, f->h, 4));
  for (int i = 0; i < LEFT_SUMS; i++)
    s[i] = address(cg, left_at(cg, f, t, i));
  product all[PRODUCTS] = {{first, top, panel[0], -1, -1},
                           {second, top, lower_half(cg, f, panel[0]), 0, -1},
                           {s[3], f->left_tab, lower_half(cg, f, panel[1]), f->nr * 4, 3},
                           {second, bottom, right_at(cg, f, 3), mr * f->ldc, -1},
                           {s[0], f->left_tab, right_at(cg, f, 0), -2, 0},
                           {s[1], f->left_tab, right_at(cg, f, 1), -3, 1},
                           {s[2], f->left_tab, right_at(cg, f, 2), -4, 2}};
  V weights = panel_at(cg, f, cy_addc(cg, q, 2)), slice = NULL;
  if (f->ahead) {
    slice = cy_mul(cg, f->h, f->ahead);
    weights = cy_gep(cg, weights, cy_mul(cg, cy_mulc(cg, t, PRODUCTS - LEFT_SUMS), slice));
  }
  for (int i = 0; i < PRODUCTS; i++) {
    if (all[i].ahead >= 0) {
      emit_product(cg, f, &all[i], c, left_at(cg, f, cy_addc(cg, t, 1), all[i].ahead), cy_i64(cg, mr * 4));
      continue;
    }
    emit_product(cg, f, &all[i], c, weights, f->ahead ? f->ahead : cy_i64(cg, 0));
    weights = f->ahead ? cy_gep(cg, weights, slice) : weights;
  }
  emit_combine(cg, f, c);
}

/* `rows` rows from row0 on, of panels q and q + 1, without the sums; c: of row 0. */
static void emit_plain(cy_cg *cg, const frame *f, V row0, V rows, unsigned tails, V q, V c) {
  const cy_core *k = f->k;
  int64_t none;
  if (cy_is_const(rows, &none) && !none)
    return;
  for (int i = 0; i < 2; i++) {
    cy_product p = {.tile = k->tile,
                    .rows = rows,
                    .a = pointer(cg, cy_add(cg, k->base, cy_mulc(cg, f->c0, 4))),
                    .b = panel_at(cg, f, cy_addc(cg, q, i)),
                    .c = cy_gepc(cg, cy_gep(cg, c, cy_mulc(cg, row0, f->ldc)), i * f->nr * 4),
                    .tab = cy_gep(cg, k->tab, cy_mulc(cg, row0, 8)),
                    .whole_tab = true,
                    .k = f->kc,
                    .accumulate = f->accumulate,
                    .tails = tails,
                    .ldc = f->ldc};
    cy_product_emit(cg, &p);
  }
}

static void emit_epilogue(cy_cg *cg, const frame *f, V q0, V end, V c) {
  const cy_core *k = f->k;
  V col = cy_mulc(cg, q0, f->nr), cols = cy_sub(cg, cy_imin(cg, k->n, cy_mulc(cg, end, f->nr)), col);
  int64_t always;
  cy_if s;
  bool branch = !cy_is_const(f->last, &always);
  if (branch)
    cy_if_begin(cg, &s, f->last);
  cy_epilogue_tile(cg, k->epilogue, k->index, c, cy_i64(cg, f->ldc), k->rows, cy_i64(cg, 0), cols,
                   cy_add(cg, k->col0, col), k->tail_lanes);
  if (branch)
    cy_if_end(cg, &s);
}

/* Panels [q0, end), an even number of them. */
static void emit_group(cy_cg *cg, const frame *f, V q0, V end) {
  const cy_core *k = f->k;
  int64_t pair = 2 * k->tile.mr;
  V c = cy_core_single(k) ? f->c : cy_gep(cg, f->c, cy_mulc(cg, cy_sub(cg, q0, k->p0), f->nr * 4));
  cy_loop q, t;
  cy_loop_begin(cg, &q, q0, end, cy_i64(cg, 2), NULL, 0);
  V here = cy_gep(cg, c, cy_mulc(cg, cy_sub(cg, q.iv, q0), f->nr * 4));
  emit_right(cg, f, q.iv);
  cy_loop_begin(cg, &t, cy_i64(cg, 0), f->pairs, cy_i64(cg, 1), NULL, 0);
  cy_if apart;
  V flag = cy_load(cg, cg->i32, left_at(cg, f, t.iv, LEFT_SUMS), 4), row0 = cy_mulc(cg, t.iv, pair);
  cy_if_begin(cg, &apart, cy_icmp(cg, LLVMIntNE, flag, cy_i32(cg, 0)));
  emit_plain(cg, f, row0, cy_i64(cg, pair), 1u << k->tile.mr, q.iv, here);
  cy_if_else(cg, &apart);
  emit_products(cg, f, t.iv, q.iv, cy_gep(cg, here, cy_mulc(cg, row0, f->ldc)));
  cy_if_end(cg, &apart);
  cy_loop_end(cg, &t, NULL);
  row0 = cy_mulc(cg, f->pairs, pair);
  emit_plain(cg, f, row0, cy_sub(cg, k->rows, row0), k->tails, q.iv, here);
  cy_loop_end(cg, &q, NULL);
  emit_epilogue(cg, f, q0, end, c);
}

/* ---- blocks of K ---- */

static frame frame_of(const cy_cg *cg, const cy_core *k) {
  int64_t c = 0;
  cy_is_const(k->c, &c);
  int64_t half = half_of(c, k->c_block);
  return (frame){.k = k,
                 .nr = (int64_t)k->tile.nv * cg->W,
                 .half = half,
                 .blocks = blocks_of(c, k->c_block),
                 .left_pair = left_bytes(k->tile, half)};
}

/* A loop over them; none where there is but one. left: sums of the first of them. */
static void blocks_begin(cy_cg *cg, frame *f, cy_loop *l, V left) {
  const cy_core *k = f->k;
  V zero = cy_i64(cg, 0), step = cy_i64(cg, k->c_block);
  if (f->blocks > 1)
    cy_loop_begin(cg, l, zero, k->c, step, NULL, 0);
  f->c0 = f->blocks > 1 ? l->iv : zero;
  f->kc = cy_imin(cg, step, cy_sub(cg, k->c, f->c0));
  f->h = cy_div(cg, f->kc, cy_i64(cg, 2));
  f->accumulate = cy_icmp(cg, LLVMIntNE, f->c0, zero);
  f->last = cy_icmp(cg, LLVMIntEQ, cy_add(cg, f->c0, f->kc), k->c);
  f->left = cy_gep(cg, left, cy_mulc(cg, cy_div(cg, f->c0, step), left_bytes(k->tile, f->half)));
}

static void blocks_end(cy_cg *cg, frame *f, cy_loop *l) {
  if (f->blocks > 1)
    cy_loop_end(cg, l, NULL);
}

void cy_strassen_sums_emit(cy_cg *cg, const cy_core *k, V to) {
  frame f = frame_of(cg, k);
  cy_loop l;
  f.pairs = cy_i64(cg, 1);
  blocks_begin(cg, &f, &l, to);
  emit_left(cg, &f);
  blocks_end(cg, &f, &l);
}

/* Bytes per k to prefetch, where weights come from beyond the second-level cache: a pair of panels, by the products
 * that do not prefetch left sums. */
static V ahead_choose(cy_cg *cg, const frame *f) {
  int64_t c = 0, panels = 0;
  cy_is_const(f->k->c, &c);
  cy_is_const(f->k->panels, &panels);
  if (c * panels * f->nr * 4 < CY_MANY_WEIGHTS)
    return NULL;
  V products = cy_mulc(cg, cy_imax(cg, f->pairs, cy_i64(cg, 1)), PRODUCTS - LEFT_SUMS);
  return cy_addc(cg, cy_div(cg, cy_i64(cg, 4 * f->nr * 4 - 1), products), 1);
}

void cy_strassen_emit(cy_cg *cg, const cy_core *k, const cy_strassen *s, V scratch, V sums) {
  int64_t mr = k->tile.mr, group = group_of(k->cbuf_panels), panels = 0;
  frame f = frame_of(cg, k);
  f.right = cy_gepc(cg, scratch, s->shared ? 0 : s->blocks.mb / (2 * mr) * f.left_pair);
  f.temps = cy_alloca(cg, TEMPS * mr * f.nr * 4);
  f.left_tab = cy_row_table(cg, mr, cy_i64(cg, f.half * 4));
  f.pairs = cy_div(cg, k->rows, cy_i64(cg, 2 * mr));
  f.ldc = (f.blocks > 1 ? k->cbuf_panels : group) * f.nr * 4;
  f.c = f.blocks > 1 ? k->cbuf : cy_gepc(cg, f.right, RIGHT_SUMS * right_bytes(cg, k->tile, f.half));
  f.ahead = ahead_choose(cg, &f);
  V two = cy_i64(cg, 2), end = cy_add(cg, k->p0, cy_mul(cg, cy_div(cg, cy_sub(cg, k->p1, k->p0), two), two));
  cy_loop l, g;
  blocks_begin(cg, &f, &l, s->shared ? sums : scratch);
  f.b = cy_gep(cg, k->b, cy_mul(cg, f.c0, cy_mulc(cg, k->panels, f.nr * 4)));
  f.panel_bytes = cy_mulc(cg, f.kc, f.nr * 4);
  if (s->shared) {
    f.left_pair *= f.blocks;
  } else {
    f.left = scratch;
    emit_left(cg, &f);
  }
  cy_loop_begin(cg, &g, k->p0, end, cy_i64(cg, group), NULL, 0);
  emit_group(cg, &f, g.iv, cy_imin(cg, end, cy_addc(cg, g.iv, group)));
  cy_loop_end(cg, &g, NULL);
  blocks_end(cg, &f, &l);
  cy_is_const(k->panels, &panels);
  if (panels % 2 == 0)
    return;
  cy_core odd = *k;
  odd.p0 = end;
  cy_core_emit(cg, &odd);
}

/* ---- the choice ---- */

/* Cycles on one core, of vectors of W floats, measured on Zen 3. The share of the peak that the micro-kernels reach is
 * less here, where they find neither factor in the first-level cache. Sums are counted by vectors stored; a pair of
 * tiles and of panels takes three calls more than plainly, and combining. */
static const double PLAIN_RATE = 0.945, RATE = 0.92, RIGHT_SUM = 2.5, LEFT_SUM = 4, PAIR = 450;
static const double WORTH = 0.975;

typedef struct shape {
  const cy_cg *cg;
  cy_tile tile;
  int64_t outer, rows, panels, k, k_block;
  bool shared;
} shape;

static double plain_cycles(const shape *s, double rows, double panels) {
  return rows * panels * s->tile.nv * (double)s->k / 2 / PLAIN_RATE;
}

/* Of a task of so many rows and panels. */
static double fast_cycles(const shape *s, int64_t rows, double panels) {
  int64_t pair = 2 * s->tile.mr, pairs = rows / pair, rest = rows % pair;
  double k = (double)s->k, columns = panels * s->tile.nv, blocks = (double)blocks_of(s->k, s->k_block);
  double products = plain_cycles(s, (double)(pairs * pair), panels) * PRODUCTS / 8 * PLAIN_RATE / RATE;
  double sums = k * columns * RIGHT_SUM + (s->shared ? 0 : (double)rows * k / s->cg->W * LEFT_SUM);
  double plain = plain_cycles(s, rest && rest < 4 ? 4 : (double)rest, panels);
  return products + plain + sums + (double)pairs * panels / 2 * blocks * PAIR;
}

/* What so many workers take, together, for tasks of these blocks. */
static double work_cycles(const shape *s, cy_blocks b, bool fast, int64_t workers) {
  int64_t rows = (s->rows + b.mb - 1) / b.mb, columns = (s->panels + b.nb - 1) / b.nb;
  int64_t tasks = s->outer * rows * columns;
  double panels = (double)s->panels / (double)columns;
  double task = fast ? fast_cycles(s, s->rows / rows, panels) : plain_cycles(s, (double)s->rows / (double)rows, panels);
  double once = fast && s->shared ? (double)(s->outer * s->rows) * (double)s->k / s->cg->W * LEFT_SUM : 0;
  return (double)((tasks + workers - 1) / workers * workers) * task + once;
}

/* The same for 1, 2, 4 and 8 workers. */
static double all_cycles(const shape *s, cy_blocks b, bool fast) {
  double sum = 0;
  for (int64_t workers = 1; workers <= 8; workers *= 2)
    sum += work_cycles(s, b, fast, workers);
  return sum;
}

static cy_blocks blocks_choose(const shape *s) {
  int64_t pair = 2 * s->tile.mr, most = MOST_ROWS / pair * pair;
  int64_t panels = s->k > s->k_block ? MOST_PANELS / 2 : MOST_PANELS;
  int64_t least = (s->rows + most - 1) / most;
  cy_blocks best = {0};
  for (int64_t blocks = least; blocks <= 2 * least; blocks++)
    for (int64_t nb = 2; nb <= panels && nb <= s->panels + 1; nb += 2) {
      cy_blocks b = {((s->rows + blocks - 1) / blocks + pair - 1) / pair * pair, nb};
      if (!best.mb || all_cycles(s, b, true) < all_cycles(s, best, true))
        best = b;
    }
  return best;
}

bool cy_strassen_choose(const cy_cg *cg, cy_tile t, int64_t outer, int64_t rows, int64_t panels, int64_t k,
                        cy_blocks plain, cy_strassen *out) {
  const int64_t most = 768;
  if (cg->no_fast || k % 2 || panels < 4 || (rows && rows < 4 * t.mr))
    return false;
  shape s = {cg, t, outer ? outer : 1, rows ? rows : MOST_ROWS, panels, k, k, false};
  s.k_block = ((k + blocks_of(k, most) - 1) / blocks_of(k, most) + 15) / 16 * 16;
  s.k_block = s.k_block < k ? s.k_block : k;
  s.shared = rows && outer && outer * rows * k * 4 <= MOST_SUMS;
  *out = (cy_strassen){blocks_choose(&s), s.k_block, s.shared};
  return out->blocks.mb && all_cycles(&s, out->blocks, true) < all_cycles(&s, plain, false) * WORTH &&
         work_cycles(&s, out->blocks, true, 1) < work_cycles(&s, plain, false, 1) * WORTH;
}
