/* SPDX-License-Identifier: Apache-2.0 */
/* loops_cross.c - stores that run across the lanes: a vector holds what belongs to different rows of memory.
 *
 * In: a short loop inside a lane loop, around one store of elements that moves by one element per iteration of the
 * loop, and by something else per lane (a transpose, an interleaving of channels). Out: as many iterations at once as
 * fill what a lane stores (32 bytes, or 16 of elements below 32 bits), whose vectors exchange their elements, so that
 * every lane stores its iterations as one piece. What is exchanged stays within groups of 16 bytes until the pieces are
 * put together: crossing these groups costs more. Small elements of 2 to 4 iterations that are all there is between one
 * lane and the next (a feature map's channels) become one vector instead.
 */
#include "loops_int.h"

enum { GROUP_BYTES = 16, GROUP = 4, MAX_ITERATIONS = 16, MAX_LANES = 64, MAX_JOINED = 4 };

static int bits_of(const cy_lp *p, const cy_stmt *s) { return cy_dtype_of(p->args[s->arg].dtype)->bits; }

/* Do the pieces of neighbouring lanes, `iterations` small elements each, follow each other? */
static bool joins_small(int bits, int64_t iterations, V step) {
  int64_t by;
  return bits < 32 && iterations >= 2 && iterations <= MAX_JOINED && cy_is_const(step, &by) && by == iterations;
}

bool cy_lp_crosses(cy_lp *p, const cy_stmt *loop) {
  const cy_stmt *s = loop->body;
  int64_t by, iterations = 0;
  V step;
  if (!cy_form_on(p->cg, CY_FORM_CROSS) || p->lanes < GROUP || !s || s->next || s->kind != CY_S_STORE ||
      bits_of(p, s) < 8 || !cy_lp_coefficient(p->k, s->offset, loop->var, &by) || by != 1 ||
      !cy_lp_affine(p, s->offset, &step) || !step)
    return false;
  if (cy_is_const(cy_lp_dim(p, cy_kernel_var(p->k, loop->var)->extent), &iterations) &&
      joins_small(bits_of(p, s), iterations, step))
    return true;
  return p->lanes * (unsigned)bits_of(p, s) >= 8 * GROUP_BYTES && bits_of(p, s) <= 32 &&
         !(cy_is_const(step, &by) && by >= -1 && by <= 1);
}

/* Elements e[0 .. n) of a and b (b's count from p->lanes on) in every group of four. */
static V in_groups(cy_lp *p, V a, V b, const int *e) {
  int order[MAX_LANES], lanes = (int)p->lanes;
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

/* out[i], group g: v[0 .. group) of lane group * g + i. */
static void exchange(cy_lp *p, const V *v, unsigned group, V *out) {
  V from[MAX_ITERATIONS];
  for (unsigned i = 0; i < group; i++)
    out[i] = v[i];
  for (unsigned n = group; n > 1; n /= 2) {
    for (unsigned i = 0; i < group; i++)
      from[i] = out[i];
    for (unsigned i = 0; i < group; i++)
      out[i] = cy_interleaved_halves(p->cg, from[i / 2], from[i / 2 + group / 2], group, i % 2);
  }
}

/* How many iterations fill a piece. */
static unsigned iterations_of_piece(unsigned bytes) { return (bytes < 4 ? 1 : 2) * GROUP_BYTES / bytes; }

/* Lane by lane `iterations` elements, a step apart. */
static void store_pieces(cy_lp *p, V *v, unsigned iterations, V at, V step, unsigned bytes) {
  unsigned group = GROUP_BYTES / bytes;
  V rows[MAX_ITERATIONS];
  int order[MAX_ITERATIONS];
  for (unsigned i = iterations; i < iterations_of_piece(bytes); i++)
    v[i] = LLVMGetPoison(LLVMTypeOf(v[0]));
  for (unsigned i = 0; i < iterations; i += group)
    exchange(p, v + i, group, rows + i);
  for (unsigned lane = 0; lane < p->lanes; lane++) {
    unsigned row = lane % group, first = lane / group * group;
    for (unsigned i = 0; i < iterations; i++)
      order[i] = (int)(i < group ? first + i : p->lanes + first + i - group);
    V piece = cy_shuffle(p->cg, rows[row], iterations > group ? rows[group + row] : rows[row], order, iterations);
    cy_store(p->cg, piece, cy_gep(p->cg, at, cy_mulc(p->cg, step, (int64_t)bytes * lane)), bytes);
  }
}

/* The pieces of 2 or 3 elements follow each other: m[0 .. iterations) have them in order, four elements at a time. */
static void store_joined(cy_lp *p, const V *v, unsigned iterations, V at) {
  V m[3];
  if (iterations == 2) {
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
  unsigned groups = iterations * p->lanes / GROUP;
  if (p->lanes == GROUP) {
    for (unsigned i = 0; i < groups; i++)
      cy_store(p->cg, m[i], cy_gepc(p->cg, at, i * GROUP * 4), 4);
    return;
  }
  for (unsigned i = 0; i < groups; i += 2) {
    V both =
        two_groups(p, m[i % iterations], (int)(i / iterations), m[(i + 1) % iterations], (int)((i + 1) / iterations));
    cy_store(p->cg, both, cy_gepc(p->cg, at, i * GROUP * 4), 4);
  }
}

/* The same of small elements: one shuffle, which LLVM knows how to take apart. */
static void store_small(cy_lp *p, const V *v, unsigned iterations, V at, unsigned bytes) {
  int order[MAX_JOINED * MAX_LANES];
  V half[2];
  for (unsigned i = 0; i < 2; i++) {
    V second = 2 * i + 1 < iterations ? v[2 * i + 1] : LLVMGetPoison(LLVMTypeOf(v[0]));
    half[i] = 2 * i < iterations ? cy_joined(p->cg, v[2 * i], second) : half[0];
  }
  for (unsigned i = 0; i < iterations * p->lanes; i++)
    order[i] = (int)(i % iterations * p->lanes + i / iterations);
  cy_store(p->cg, cy_shuffle(p->cg, half[0], half[1], order, iterations * p->lanes), at, bytes);
}

/* Halves as integers: LLVM knows more ways to exchange those. */
static V as_stored(cy_lp *p, V v, cy_dtype t) {
  return t == CY_F16 ? LLVMBuildBitCast(p->cg->b, v, LLVMVectorType(p->cg->i16, p->lanes), "") : v;
}

/* `iterations` turns from `first` on. */
static void emit_iterations(cy_lp *p, const cy_stmt *loop, V first, unsigned iterations) {
  const cy_stmt *s = loop->body;
  cy_dtype t = p->args[s->arg].dtype;
  unsigned bytes = cy_lp_bytes(t);
  V v[MAX_ITERATIONS], step;
  int64_t by;
  for (unsigned i = 0; i < iterations; i++) {
    p->var[loop->var] = cy_addc(p->cg, first, i);
    cy_lp_statement(p);
    v[i] = as_stored(p, cy_lp_to_mem(p->cg, cy_lp_value(p, s->value), t, p->lanes), t);
  }
  p->var[loop->var] = first;
  cy_lp_statement(p);
  cy_lp_affine(p, s->offset, &step);
  V at = cy_gep(p->cg, p->arg[s->arg], cy_mulc(p->cg, cy_lp_uniform(p, s->offset), bytes));
  if (joins_small((int)bytes * 8, iterations, step))
    store_small(p, v, iterations, at, bytes);
  else if ((iterations == 2 || iterations == 3) && cy_is_const(step, &by) && by == iterations)
    store_joined(p, v, iterations, at);
  else
    store_pieces(p, v, iterations, at, step, bytes);
}

void cy_lp_cross(cy_lp *p, const cy_stmt *loop, V n) {
  cy_cg *cg = p->cg;
  unsigned at_once = iterations_of_piece(cy_lp_bytes(p->args[loop->body->arg].dtype));
  V step = cy_i64(cg, at_once), whole = cy_mul(cg, cy_div(cg, n, step), step);
  int64_t known, end;
  bool fixed = cy_is_const(n, &known) && cy_is_const(whole, &end);
  cy_loop l;
  if (!fixed || end > 0) {
    cy_loop_begin(cg, &l, cy_i64(cg, 0), whole, step, NULL, 0);
    emit_iterations(p, loop, l.iv, at_once);
    cy_loop_end(cg, &l, NULL);
  }
  if (fixed) {
    if (known > end)
      emit_iterations(p, loop, whole, (unsigned)(known - end));
    return;
  }
  cy_loop_begin(cg, &l, whole, n, cy_i64(cg, 1), NULL, 0);
  emit_iterations(p, loop, l.iv, 1);
  cy_loop_end(cg, &l, NULL);
}
