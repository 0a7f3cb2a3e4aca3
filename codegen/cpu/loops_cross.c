/* loops_cross.c - stores that run across the lanes: a vector holds what belongs to different rows of memory.
 *
 * In: a short loop inside a lane loop, around one store of 32-bit elements that moves by one element per turn of the
 * loop, and by something else per lane (a transpose, an interleaving of channels). Out: up to eight turns at once,
 * whose vectors exchange their elements, so that every lane stores its turns as one piece. What is exchanged stays
 * within groups of four lanes until the pieces are put together: crossing these groups costs more. Bytes are taken,
 * too, where 2 to 4 turns are all there are between one lane and the next (a picture's channels).
 */
#include "codegen/cpu/loops_int.h"

enum { GROUP = 4, TURNS = 8, MOST_LANES = 64, MOST_BYTES = 4 };

/* How far e moves with variable v, where that is a constant. */
static bool coefficient(const cy_kernel *k, cy_expr e, cy_var v, int64_t *out) {
  const cy_expr_info *x = cy_expr_of(k, e);
  int64_t a, b;
  *out = x->op == CY_X_VAR && x->id == v;
  if (!cy_expr_uses_var(k, e, v) || x->op == CY_X_VAR)
    return true;
  if ((x->op != CY_OP_add && x->op != CY_OP_sub && x->op != CY_OP_mul) || !coefficient(k, x->arg[0], v, &a) ||
      !coefficient(k, x->arg[1], v, &b))
    return false;
  if (x->op != CY_OP_mul) {
    *out = x->op == CY_OP_add ? a + b : a - b;
    return true;
  }
  const cy_expr_info *factor = cy_expr_of(k, x->arg[a ? 1 : 0]);
  *out = (a ? a : b) * factor->c.i;
  return factor->op == CY_X_CONST;
}

bool cy_lp_crosses(cy_lp *p, const cy_stmt *loop) {
  const cy_stmt *s = loop->body;
  int64_t by, turns;
  V step;
  if (p->lanes < GROUP || !s || s->next || s->kind != CY_S_STORE)
    return false;
  if (cy_dtype_of(p->args[s->arg].dtype)->bits == 8) {
    return cy_is_const(cy_lp_dim(p, cy_kernel_var(p->k, loop->var)->extent), &turns) && turns >= 2 &&
           turns <= MOST_BYTES && coefficient(p->k, s->offset, loop->var, &by) && by == 1 &&
           cy_lp_affine(p, s->offset, &step) && step && cy_is_const(step, &by) && by == turns;
  }
  return cy_dtype_of(p->args[s->arg].dtype)->bits == 32 && coefficient(p->k, s->offset, loop->var, &by) && by == 1 &&
         cy_lp_affine(p, s->offset, &step) && step && !(cy_is_const(step, &by) && by >= -1 && by <= 1);
}

/* Elements e[0 .. n) of a and b (b's count from p->lanes on) in every group of four. */
static V in_groups(cy_lp *p, V a, V b, const int *e) {
  int order[MOST_LANES], lanes = (int)p->lanes;
  for (int i = 0; i < lanes; i++) {
    int from = e[i % GROUP];
    order[i] = i / GROUP * GROUP + from % GROUP + (from >= GROUP ? lanes : 0);
  }
  return cy_shuffle(p->cg, a, b, order, p->lanes);
}

/* Group ga of a, then group gb of b. */
static V two_groups(cy_lp *p, V a, int ga, V b, int gb) {
  int order[2 * GROUP];
  for (int i = 0; i < GROUP; i++) {
    order[i] = ga * GROUP + i;
    order[GROUP + i] = (int)p->lanes + gb * GROUP + i;
  }
  return cy_shuffle(p->cg, a, b, order, 2 * GROUP);
}

/* out[i], group g: v[0 .. 4) of lane 4 * g + i. */
static void exchange(cy_lp *p, const V *v, V *out) {
  static const int low[] = {0, 4, 1, 5}, high[] = {2, 6, 3, 7}, first[] = {0, 1, 4, 5}, second[] = {2, 3, 6, 7};
  V ab_low = in_groups(p, v[0], v[1], low), ab_high = in_groups(p, v[0], v[1], high);
  V cd_low = in_groups(p, v[2], v[3], low), cd_high = in_groups(p, v[2], v[3], high);
  out[0] = in_groups(p, ab_low, cd_low, first);
  out[1] = in_groups(p, ab_low, cd_low, second);
  out[2] = in_groups(p, ab_high, cd_high, first);
  out[3] = in_groups(p, ab_high, cd_high, second);
}

/* Lane by lane `turns` elements, a step apart. */
static void store_pieces(cy_lp *p, V *v, unsigned turns, V at, V step) {
  static const int order[TURNS] = {0, 1, 2, 3, 4, 5, 6, 7};
  V rows[TURNS];
  for (unsigned i = turns; i < TURNS; i++)
    v[i] = LLVMGetPoison(LLVMTypeOf(v[0]));
  exchange(p, v, rows);
  if (turns > GROUP)
    exchange(p, v + GROUP, rows + GROUP);
  for (unsigned lane = 0; lane < p->lanes; lane++) {
    int i = (int)(lane % GROUP), g = (int)(lane / GROUP);
    V piece = two_groups(p, rows[i], g, turns > GROUP ? rows[GROUP + i] : rows[i], g);
    if (turns < TURNS)
      piece = cy_shuffle(p->cg, piece, piece, order, turns);
    cy_store(p->cg, piece, cy_gep(p->cg, at, cy_mulc(p->cg, step, 4 * (int64_t)lane)), 4);
  }
}

/* The pieces of 2 or 3 elements follow each other: m[0 .. turns) have them in order, four elements at a time. */
static void store_joined(cy_lp *p, const V *v, unsigned turns, V at) {
  V m[3];
  if (turns == 2) {
    m[0] = in_groups(p, v[0], v[1], (const int[]){0, 4, 1, 5});
    m[1] = in_groups(p, v[0], v[1], (const int[]){2, 6, 3, 7});
  } else {
    V ab = in_groups(p, v[0], v[1], (const int[]){0, 2, 4, 6}),
      bc = in_groups(p, v[1], v[2], (const int[]){1, 3, 5, 7});
    V ca = in_groups(p, v[2], v[0], (const int[]){0, 2, 5, 7});
    m[0] = in_groups(p, ab, ca, (const int[]){0, 2, 4, 6});
    m[1] = in_groups(p, bc, ab, (const int[]){0, 2, 5, 7});
    m[2] = in_groups(p, ca, bc, (const int[]){1, 3, 5, 7});
  }
  unsigned groups = turns * p->lanes / GROUP;
  if (p->lanes == GROUP) {
    for (unsigned i = 0; i < groups; i++)
      cy_store(p->cg, m[i], cy_gepc(p->cg, at, i * GROUP * 4), 4);
    return;
  }
  for (unsigned i = 0; i < groups; i += 2) {
    V both = two_groups(p, m[i % turns], (int)(i / turns), m[(i + 1) % turns], (int)((i + 1) / turns));
    cy_store(p->cg, both, cy_gepc(p->cg, at, i * GROUP * 4), 4);
  }
}

/* The same of bytes: one shuffle, which LLVM knows how to take apart. */
static void store_bytes(cy_lp *p, const V *v, unsigned turns, V at) {
  int order[MOST_BYTES * MOST_LANES];
  V half[2];
  for (unsigned i = 0; i < 2 * p->lanes; i++)
    order[i] = (int)i;
  for (unsigned i = 0; i < 2; i++) {
    V second = 2 * i + 1 < turns ? v[2 * i + 1] : LLVMGetPoison(LLVMTypeOf(v[0]));
    half[i] = 2 * i < turns ? cy_shuffle(p->cg, v[2 * i], second, order, 2 * p->lanes) : half[0];
  }
  for (unsigned i = 0; i < turns * p->lanes; i++)
    order[i] = (int)(i % turns * p->lanes + i / turns);
  cy_store(p->cg, cy_shuffle(p->cg, half[0], half[1], order, turns * p->lanes), at, 1);
}

/* `turns` turns from `first` on. */
static void emit_turns(cy_lp *p, const cy_stmt *loop, V first, unsigned turns) {
  const cy_stmt *s = loop->body;
  cy_dtype t = p->args[s->arg].dtype;
  V v[TURNS], step;
  int64_t by;
  for (unsigned i = 0; i < turns; i++) {
    p->var[loop->var] = cy_addc(p->cg, first, i);
    cy_lp_statement(p);
    v[i] = cy_lp_to_mem(p->cg, cy_lp_value(p, s->value), t, p->lanes);
  }
  p->var[loop->var] = first;
  cy_lp_statement(p);
  cy_lp_affine(p, s->offset, &step);
  V at = cy_gep(p->cg, p->arg[s->arg], cy_mulc(p->cg, cy_lp_uniform(p, s->offset), cy_lp_bytes(t)));
  if (cy_lp_bytes(t) == 1)
    store_bytes(p, v, turns, at);
  else if ((turns == 2 || turns == 3) && cy_is_const(step, &by) && by == turns)
    store_joined(p, v, turns, at);
  else
    store_pieces(p, v, turns, at, step);
}

void cy_lp_cross(cy_lp *p, const cy_stmt *loop, V n) {
  cy_cg *cg = p->cg;
  V eight = cy_i64(cg, TURNS), whole = cy_mul(cg, cy_div(cg, n, eight), eight);
  int64_t known, end;
  bool fixed = cy_is_const(n, &known) && cy_is_const(whole, &end);
  cy_loop l;
  if (!fixed || end > 0) {
    cy_loop_begin(cg, &l, cy_i64(cg, 0), whole, eight, NULL, 0);
    emit_turns(p, loop, l.iv, TURNS);
    cy_loop_end(cg, &l, NULL);
  }
  if (fixed) {
    if (known > end)
      emit_turns(p, loop, whole, (unsigned)(known - end));
    return;
  }
  cy_loop_begin(cg, &l, whole, n, cy_i64(cg, 1), NULL, 0);
  emit_turns(p, loop, l.iv, 1);
  cy_loop_end(cg, &l, NULL);
}
