/* attention_amx.c - attention of bf16 by AMX: how keys, values and queries lie in scratch, and the products.
 *
 * Comes in: the plan and place of attention.c, which calls these in place of what it does for floats. Goes out: packed
 * keys and values, scores, outputs. The first product's b are keys by panels of 32, pairs of their elements in the order
 * of dot.h: a transposition of 32-bit words; the second one's are values by panels of columns, rows of two keys woven
 * into each other. Keys are filled up to whole tiles with values of 0, whose weights are 0, too.
 */
#include "attention_int.h"
#include "dot.h"

enum { PANEL_KEYS = 32, BLOCK_ROWS = 2 * CY_AMX_ROWS, TILE_ELEMENTS = 2 * CY_AMX_GROUPS, LANES = 16 };

void cy_attention_amx_plan(att *a) {
  bool narrow = a->d->columns <= LANES;
  a->amx = a->many = true;
  a->few = false;
  a->qk = (cy_tile){BLOCK_ROWS, PANEL_KEYS / LANES};
  a->pv = (cy_tile){BLOCK_ROWS, narrow ? 1 : 2};
  a->block = BLOCK_ROWS;
  a->chunk = cy_round_up(a->chunk, a->block);
  a->filled = cy_round_up(a->d->size, TILE_ELEMENTS);
}

static cy_dot_form form(void) {
  return (cy_dot_form){.wide = true, .bf16 = true, .amx = true, .step = 2, .together = CY_AMX_GROUPS};
}

static V round_keys(cy_cg *cg, V n) { return cy_mulc(cg, cy_ceil_div(cg, n, cy_i64(cg, PANEL_KEYS)), PANEL_KEYS); }
static V all_keys(cy_cg *cg, const att *a) { return round_keys(cg, cy_size(cg, a->d->keys)); }

V cy_attention_amx_keys_bytes(cy_cg *cg, const att *a) { return cy_mulc(cg, all_keys(cg, a), a->filled * 2); }
V cy_attention_amx_values_bytes(cy_cg *cg, const att *a) {
  return cy_mulc(cg, all_keys(cg, a), a->panels_v * a->nr_v * 2);
}

/* bf16 number `at` behind p. */
static V element(cy_cg *cg, V p, V at) { return cy_gep(cg, p, cy_mulc(cg, at, 2)); }

static void move_element(cy_cg *cg, V to, V from) { cy_store(cg, cy_load(cg, cg->i16, from, 2), to, 2); }

static void zero_bytes(cy_cg *cg, V p, V n) { LLVMBuildMemSet(cg->b, p, LLVMConstNull(cg->i8), n, 2); }

/* ---- packing ---- */

/* A panel of up to 32 keys at `to`, whose first lies at `from`. */
static void pack_panel(cy_cg *cg, const att *a, V to, V from, V valid) {
  const cy_attention_desc *d = a->d;
  int64_t stride = cy_csize_known(d->kj);
  if (cy_csize_is(d->kd, 1) && d->size % 2 == 0 && stride && stride % 2 == 0) { /* two elements at a time */
    V one = cy_i64(cg, 1), pairs = cy_i64(cg, d->size / 2), next = cy_i64(cg, stride / 2);
    cy_emit_gather2(cg, to, cy_i64(cg, PANEL_KEYS), from, one, next, pairs, valid);
    return;
  }
  cy_loop j, e;
  V size = cy_i64(cg, d->size), kj = cy_size(cg, d->kj), kd = cy_size(cg, d->kd);
  cy_loop_begin(cg, &j, cy_i64(cg, 0), valid, cy_i64(cg, 1), NULL, 0);
  V key = cy_mul(cg, j.iv, kj);
  cy_loop_begin(cg, &e, cy_i64(cg, 0), size, cy_i64(cg, 1), NULL, 0);
  V pair = cy_div(cg, e.iv, cy_i64(cg, 2)), odd = cy_mod(cg, e.iv, cy_i64(cg, 2));
  V at = cy_add(cg, cy_mulc(cg, cy_add(cg, cy_mulc(cg, pair, PANEL_KEYS), j.iv), 2), odd);
  V source = element(cg, from, cy_add(cg, key, cy_mul(cg, e.iv, kd)));
  move_element(cg, element(cg, to, at), source);
  cy_loop_end(cg, &e, NULL);
  cy_loop_end(cg, &j, NULL);
}

static void pack_keys(cy_cg *cg, const work *w, V lo, V hi) {
  const att *a = w->a;
  V NR = cy_i64(cg, PANEL_KEYS), stride = cy_size(cg, a->d->kj);
  cy_loop j;
  cy_loop_begin(cg, &j, lo, hi, NR, NULL, 0);
  V to = element(cg, w->keys_at, cy_mulc(cg, j.iv, a->filled)), valid = cy_imin(cg, NR, cy_sub(cg, hi, j.iv));
  V partial = cy_icmp(cg, LLVMIntSLT, valid, NR);
  cy_if fill;
  cy_if_begin(cg, &fill, a->filled == a->d->size ? partial : LLVMConstInt(cg->i1, 1, 0));
  zero_bytes(cg, to, cy_i64(cg, PANEL_KEYS * a->filled * 2));
  cy_if_end(cg, &fill);
  pack_panel(cg, a, to, element(cg, w->k, cy_mul(cg, j.iv, stride)), valid);
  cy_loop_end(cg, &j, NULL);
}

/* Where the pair of keys that begins with `key` lies in panel p of values. */
static V pair_at(cy_cg *cg, const work *w, int64_t p, V key) {
  V panel = cy_mulc(cg, all_keys(cg, w->a), p);
  return element(cg, w->values_at, cy_mulc(cg, cy_add(cg, panel, key), w->a->nr_v));
}

/* 16 columns of two rows of values, woven. */
static void weave(cy_cg *cg, V to, V even, V odd) {
  int mix[2 * LANES];
  for (int i = 0; i < LANES; i++) {
    mix[2 * i] = i;
    mix[2 * i + 1] = LANES + i;
  }
  cy_store(cg, cy_shuffle(cg, even, odd, mix, 2 * LANES), to, 2);
}

/* Values of keys `key` and the one behind it, which is not there when `alone`: i1. */
static void pack_pair(cy_cg *cg, const work *w, V key, V alone) {
  const att *a = w->a;
  const cy_attention_desc *d = a->d;
  LLVMTypeRef lanes = LLVMVectorType(cg->i16, LANES);
  V stride = cy_size(cg, d->vj), even = element(cg, w->v, cy_mul(cg, key, stride));
  V odd = cy_select(cg, alone, even, element(cg, even, stride));
  for (int64_t p = 0; p < a->panels_v; p++) {
    V to = pair_at(cg, w, p, key);
    for (int64_t at = 0; at < a->nr_v; at += LANES) {
      int64_t column = p * a->nr_v + at, valid = d->columns - column;
      if (valid >= LANES && cy_csize_is(d->vn, 1)) {
        V x = cy_load(cg, lanes, cy_gepc(cg, even, column * 2), 2),
          y = cy_load(cg, lanes, cy_gepc(cg, odd, column * 2), 2);
        y = cy_select(cg, alone, LLVMConstNull(lanes), y);
        weave(cg, cy_gepc(cg, to, at * 4), x, y);
        continue;
      }
      for (int64_t i = 0; i < LANES && i < valid; i++) {
        V from = cy_mulc(cg, cy_size(cg, d->vn), column + i), cell = cy_gepc(cg, to, (at + i) * 4);
        V x = cy_load(cg, cg->i16, element(cg, even, from), 2), y = cy_load(cg, cg->i16, element(cg, odd, from), 2);
        cy_store(cg, x, cell, 2);
        cy_store(cg, cy_select(cg, alone, LLVMConstNull(cg->i16), y), cy_gepc(cg, cell, 2), 2);
      }
    }
  }
}

static void pack_values(cy_cg *cg, const work *w, V lo, V hi) {
  const att *a = w->a;
  cy_loop j;
  cy_loop_begin(cg, &j, lo, hi, cy_i64(cg, 2), NULL, 0);
  pack_pair(cg, w, j.iv, cy_icmp(cg, LLVMIntEQ, cy_addc(cg, j.iv, 1), hi));
  cy_loop_end(cg, &j, NULL);
  V end = cy_mulc(cg, cy_ceil_div(cg, hi, cy_i64(cg, 2)), 2), rest = cy_sub(cg, round_keys(cg, hi), end);
  for (int64_t p = 0; p < a->panels_v; p++) {
    V at = pair_at(cg, w, p, end);
    zero_bytes(cg, at, cy_mulc(cg, rest, a->nr_v * 2));
  }
}

void cy_attention_amx_pack(cy_cg *cg, const work *w, V lo, V hi) {
  pack_keys(cg, w, lo, hi);
  pack_values(cg, w, lo, hi);
}

void cy_attention_amx_queries(cy_cg *cg, const work *w) {
  const att *a = w->a;
  const cy_attention_desc *d = a->d;
  V base = cy_arg_ptr(cg, d->q_slot), idx[CY_GEMM_BATCH + 1], step = cy_size(cg, d->qd);
  cy_loop r, e;
  cy_loop_begin(cg, &r, cy_i64(cg, 0), w->rows, cy_i64(cg, 1), NULL, 0);
  cy_attention_row_indices(cg, w, cy_add(cg, w->row0, r.iv), idx);
  V at = cy_add(cg, cy_batch_offset(cg, idx, d->q_batch, d->n_batch), cy_mul(cg, idx[d->n_batch], cy_size(cg, d->qm)));
  V from = element(cg, base, at), to = element(cg, w->queries, cy_mulc(cg, r.iv, a->filled));
  if (cy_csize_is(d->qd, 1)) {
    LLVMBuildMemCpy(cg->b, to, 2, from, 2, cy_i64(cg, d->size * 2));
  } else {
    cy_loop_begin(cg, &e, cy_i64(cg, 0), cy_i64(cg, d->size), cy_i64(cg, 1), NULL, 0);
    V source = element(cg, from, cy_mul(cg, e.iv, step));
    move_element(cg, element(cg, to, e.iv), source);
    cy_loop_end(cg, &e, NULL);
  }
  if (a->filled > d->size)
    zero_bytes(cg, cy_gepc(cg, to, d->size * 2), cy_i64(cg, (a->filled - d->size) * 2));
  cy_loop_end(cg, &r, NULL);
}

/* ---- the products ---- */

/* c (+)= rows of a, which tab tells, times so many panels at b; onto: i1. */
typedef struct product {
  V a, tab, b, c, groups, panels, onto;
  int64_t ldc, nr;
} product;

static void multiply(cy_cg *cg, const work *w, const product *x) {
  unsigned nv = (unsigned)(x->nr / LANES);
  V few = cy_icmp(cg, LLVMIntSLE, w->rows, cy_i64(cg, CY_AMX_ROWS)), fn[2];
  V none = LLVMConstNull(cg->ptr);
  for (int onto = 0; onto < 2; onto++) {
    V less = cy_dot_amx_kernel(cg, form(), CY_AMX_ROWS, nv, x->nr, onto);
    fn[onto] = cy_select(cg, few, less, cy_dot_amx_kernel(cg, form(), BLOCK_ROWS, nv, x->nr, onto));
    if (!x->onto)
      break;
  }
  V args[] = {x->a, x->tab, x->b, x->c, cy_i64(cg, x->ldc * 4), x->groups, x->panels, none, none, none};
  LLVMTypeRef type = LLVMGlobalGetValueType(cy_dot_amx_kernel(cg, form(), BLOCK_ROWS, nv, x->nr, false));
  V chosen = x->onto ? cy_select(cg, x->onto, fn[1], fn[0]) : fn[0];
  LLVMBuildCall2(cg->b, type, chosen, args, sizeof args / sizeof *args, "");
}

void cy_attention_amx_scores(cy_cg *cg, const work *w, V j0, V n) {
  const att *a = w->a;
  product x = {.a = w->queries,
               .tab = w->tab_q,
               .b = element(cg, w->keys_at, cy_mulc(cg, j0, a->filled)),
               .c = w->scores,
               .groups = cy_i64(cg, a->filled / 2),
               .panels = cy_ceil_div(cg, n, cy_i64(cg, PANEL_KEYS)),
               .ldc = a->ld_s,
               .nr = PANEL_KEYS};
  multiply(cg, w, &x);
}

void cy_attention_amx_outputs(cy_cg *cg, const work *w, V j0, V n, V accumulate) {
  const att *a = w->a;
  V groups = cy_div(cg, round_keys(cg, n), cy_i64(cg, 2));
  for (int64_t p = 0; p < a->panels_v; p++) {
    product x = {.a = w->weights,
                 .tab = w->tab_s,
                 .b = pair_at(cg, w, p, j0),
                 .c = cy_gepc(cg, w->outputs, p * a->nr_v * 4),
                 .groups = groups,
                 .panels = cy_i64(cg, 1),
                 .onto = a->tiled ? accumulate : NULL,
                 .ldc = a->ld_o,
                 .nr = a->nr_v};
    multiply(cg, w, &x);
  }
}

/* ---- weights ---- */

void cy_attention_amx_weights(cy_cg *cg, V row, V at, V v) {
  V halves = LLVMBuildFPTrunc(cg->b, v, LLVMVectorType(cg->bf16, LANES), "");
  cy_store(cg, halves, element(cg, row, at), 2);
}

void cy_attention_amx_weights_end(cy_cg *cg, V row, V n) {
  V end = cy_mulc(cg, cy_ceil_div(cg, n, cy_i64(cg, LANES)), LANES);
  cy_store(cg, LLVMConstNull(LLVMVectorType(cg->i16, LANES)), element(cg, row, end), 2);
}
