/* SPDX-License-Identifier: Apache-2.0 */
/* loops_lookup.c - loads from short tables: the table stays in registers, and an instruction permutes it.
 *
 * In: a load whose offset is a base, one for all lanes, and an index that lowering clamped into a short axis, so that all
 * of the axis may be read. Out: vectors of its elements, some ten times as fast as lanes one by one or a gather (the
 * features that a tree looks at, columns of a narrow image that is resized).
 */
#include "loops_int.h"

enum { MAX_VECTORS = 4 };

/* e without casts that do not change an index. */
cy_expr cy_lp_lookup_index(const cy_lp *p, cy_expr e) {
  const cy_expr_info *x = cy_expr_of(p->k, e);
  while (x->op == CY_OP_cast && x->dtype == CY_I64 && cy_expr_of(p->k, x->arg[0])->dtype == CY_I32) {
    e = x->arg[0];
    x = cy_expr_of(p->k, e);
  }
  return e;
}

/* Constants stand on either side. */
static bool with_constant(const cy_lp *p, cy_expr e, cy_op op, int64_t *out_c, cy_expr *out_other) {
  const cy_expr_info *x = cy_expr_of(p->k, e);
  for (int i = 0; x->op == op && i < 2; i++) {
    const cy_expr_info *c = cy_expr_of(p->k, x->arg[i]);
    *out_c = c->op == CY_X_CONST ? c->c.i : -1;
    *out_other = x->arg[1 - i];
    if (*out_c >= 0 || (c->op == CY_X_DIM && cy_dim_is_const(cy_kernel_graph(p->k), c->id, out_c) && *out_c >= 0))
      return true;
  }
  return false;
}

/* Is e an index from 0 to the last element of a short axis? Adds nothing to what runs. */
static bool is_clamped(const cy_lp *p, cy_expr e, int64_t *out_last) {
  int64_t min;
  cy_expr inner, innermost;
  e = cy_lp_lookup_index(p, e);
  cy_dtype t = (cy_dtype)cy_expr_of(p->k, e)->dtype;
  if ((t != CY_I32 && t != CY_I64) || !with_constant(p, e, CY_OP_min, out_last, &inner))
    return false;
  inner = cy_lp_lookup_index(p, inner);
  return with_constant(p, inner, CY_OP_max, &min, &innermost) ||
         with_constant(p, inner, CY_OP_and, &min, &innermost);
}

/* `lanes` elements of a table of n vectors of so many, each at its index. */
static V permuted(cy_cg *cg, const V *table, unsigned n, V index, unsigned lanes) {
  if (lanes == 16 && n >= 2) {
    V both[3] = {table[0], index, table[1]};
    V low = cy_intrinsic_of(cg, "llvm.x86.avx512.vpermi2var.ps.512", NULL, 0, both, 3);
    if (n == 2)
      return low;
    V high = permuted(cg, table + 2, n - 2, index, lanes);
    V behind = cy_icmp(cg, LLVMIntUGE, index, cy_splat(cg, cy_i32(cg, 32), lanes));
    return cy_select(cg, behind, high, low);
  }
  V one[2] = {table[0], index};
  V low = cy_intrinsic_of(cg, lanes == 16 ? "llvm.x86.avx512.permvar.sf.512" : "llvm.x86.avx2.permps", NULL, 0, one, 2);
  for (unsigned i = 1; lanes == 8 && i < n; i++) {
    one[0] = table[i];
    V next = cy_intrinsic_of(cg, "llvm.x86.avx2.permps", NULL, 0, one, 2);
    V reached = cy_icmp(cg, LLVMIntUGE, index, cy_splat(cg, cy_i32(cg, (int)(8 * i)), lanes));
    low = cy_select(cg, reached, next, low);
  }
  return low;
}

/* The table's elements from `at` on, `count` of them, in floats. */
static void load_table(cy_cg *cg, V at, int64_t count, unsigned lanes, V *out) {
  T type = LLVMVectorType(cg->f32, lanes);
  for (int64_t i = 0, left = count; left > 0; i++, left -= lanes) {
    V from = cy_gepc(cg, at, i * lanes * 4);
    out[i] = left >= lanes ? cy_load(cg, type, from, 4) : cy_load_first(cg, type, from, (unsigned)left, 4);
  }
}

bool cy_lp_short_index(const cy_lp *p, cy_dtype t, cy_expr varying) {
  int64_t last;
  unsigned lanes = p->cg->W;
  return cy_form_on(p->cg, CY_FORM_LOOKUP) && p->cg->avx2 && !p->guard && !cy_lp_packed(t) && cy_lp_bytes(t) == 4 &&
         p->lanes % 8 == 0 && is_clamped(p, varying, &last) && last < (p->lanes % lanes ? 8 : lanes) * MAX_VECTORS;
}

V cy_lp_lookup(cy_lp *p, cy_dtype t, V at, cy_expr varying, V index) {
  cy_cg *cg = p->cg;
  unsigned lanes = p->lanes % cg->W ? 8 : cg->W;
  int64_t last = 0;
  V table[MAX_VECTORS];
  is_clamped(p, varying, &last);
  load_table(cg, at, last + 1, lanes, table);
  index = LLVMBuildTruncOrBitCast(cg->b, index, LLVMVectorType(cg->i32, p->lanes), "");
  V found[8];
  unsigned n = p->lanes / lanes;
  for (unsigned i = 0; i < n; i++)
    found[i] = permuted(cg, table, (unsigned)(last / lanes) + 1, cy_some_lanes(cg, index, i * lanes, lanes), lanes);
  return LLVMBuildBitCast(cg->b, cy_joined_all(cg, found, n), cy_lp_mem(cg, t, p->lanes), "");
}
