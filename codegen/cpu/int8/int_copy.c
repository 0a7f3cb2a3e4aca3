/* SPDX-License-Identifier: Apache-2.0 */
/* int_copy.c - copies a task's rows of a to scratch: those of a matrix, or the taps of output positions.
 *
 * Comes in: a frame of int_gemm.c, whose task is known. Goes out: [row][k] in the layout that micro-kernels read, made by
 * copy_rows.c. Positions whose taps all lie in the feature map take whole kernel rows at a time, without a check.
 */
#include "int_gemm_int.h"

typedef cy_int_gemm_plan plan;
typedef cy_int_gemm_frame frame;

/* ---- elements of a ---- */

/* dot2: i16, less the zero point, so that nothing is left to correct; dot4: u8, s8 being shifted by 128 (s8, where the
 * instruction takes these, u8 being shifted), what stands for zero being the (shifted) zero point. This takes one vector
 * operation for 16 or more elements, each of which then meets all columns of a task. bf16 stay as they are. */
cy_int_gemm_rows cy_int_gemm_rows_begin(cy_cg *cg, cy_int_gemm_variant variant, const cy_int_gemm_desc *d) {
  V byte = d->a_zero_slot < 0 ? LLVMConstNull(cg->i8) : cy_load(cg, cg->i8, cy_arg_ptr(cg, d->a_zero_slot), 1);
  cy_elements e = cy_elements_plain(cg, variant.bf16 ? 2 : 1);
  V zero = byte;
  e.is_signed = d->a_signed;
  e.shifted = variant.dot4 && d->a_signed != cg->sdot;
  if (variant.dot4) {
    e.blank = zero = e.shifted ? LLVMBuildXor(cg->b, zero, LLVMConstInt(cg->i8, 0x80, 0), "") : zero;
  } else {
    e.to = 2;
    e.minus = zero = d->a_signed ? LLVMBuildSExt(cg->b, zero, cg->i16, "") : LLVMBuildZExt(cg->b, zero, cg->i16, "");
  }
  return (cy_int_gemm_rows){e, zero, byte};
}

/* ---- rows of a ---- */

/* What stands behind the last k meets zeros of b, but NaN times zero is none. Called before the rest of the row is
 * written. */
static void emit_row_end(cy_cg *cg, const frame *f, V dst) {
  const plan *p = f->p;
  if (!p->variant.bf16 || (p->k && p->k % (p->variant.step * p->variant.together) == 0))
    return;
  V last = p->k ? cy_i64(cg, p->k / 2 * 4) : cy_mulc(cg, cy_div(cg, cy_int_gemm_k_size(cg, p), cy_i64(cg, 2)), 4);
  V end = cy_mulc(cg, cy_int_gemm_k_groups(cg, p), 4), to = cy_gep(cg, dst, last), bytes = cy_sub(cg, end, last);
  LLVMBuildMemSet(cg->b, to, LLVMConstNull(cg->i8), bytes, 4);
}

static void emit_gemm_row(cy_cg *cg, const frame *f, V row, V dst) {
  const cy_gemm_desc *g = &f->p->d->gemm;
  emit_row_end(cg, f, dst);
  V src = cy_int_gemm_elements_on(cg, f->p, f->a, cy_mul(cg, cy_add(cg, f->row0, row), cy_size(cg, g->am)));
  V k = cy_int_gemm_k_size(cg, f->p), stride = cy_size(cg, g->ak);
  cy_copy_positions(cg, &f->convert.elements, dst, src, k, 1, stride);
}

static void emit_position(cy_cg *cg, const frame *f, V row, V dst) {
  const plan *p = f->p;
  const cy_axis *w = &p->axis[2];
  cy_kernel_rows r;
  V n, o[3];
  emit_row_end(cg, f, dst);
  cy_int_gemm_split_position(cg, p, cy_add(cg, f->row0, row), &n, o);
  V map = cy_int_gemm_elements_on(cg, p, f->a, cy_mul(cg, n, cy_size(cg, p->d->window.in_n)));
  cy_kernel_rows_begin(cg, &r, p->axis, o, NULL);
  V to = cy_gep(cg, dst, cy_mulc(cg, r.number, w->count * p->c * f->convert.elements.to));
  V line = cy_int_gemm_elements_on(cg, p, map, r.offset), x = cy_addc(cg, cy_mulc(cg, o[2], w->step), w->start);
  cy_map_row taps = {line, r.exists, cy_size(cg, w->in), cy_size(cg, w->in_stride), p->c, w->inc};
  cy_copy_row(cg, &f->convert.elements, to, &taps, x, cy_i64(cg, w->count));
  cy_kernel_rows_end(cg, &r);
}

/* ---- positions whose taps all lie in the feature map ---- */

enum { MAX_KERNEL_ROWS = 9 };

/* Do the taps of a kernel row lie side by side in the input? */
static bool taps_dense(const plan *p) {
  const cy_axis *w = &p->axis[2];
  return p->d->conv && w->count > 1 && w->inc == 1 && cy_csize_is(w->in_stride, p->c) &&
         p->axis[0].count * p->axis[1].count <= MAX_KERNEL_ROWS;
}

/* An output row, and which of its positions a task has. */
typedef struct stretch {
  V n, o[2], first; /* first: row of the scratch for position 0 */
  V x0, x1;
} stretch;

/* Positions [a, b) of a stretch, with no more checks. */
static void emit_inner_positions(cy_cg *cg, const frame *f, const stretch *s, V a, V b) {
  const plan *p = f->p;
  const cy_axis *w = &p->axis[2];
  V line[MAX_KERNEL_ROWS], map = cy_int_gemm_elements_on(cg, p, f->a, cy_mul(cg, s->n, cy_size(cg, p->d->window.in_n)));
  int n = 0;
  for (int64_t y = 0; y < p->axis[0].count; y++)
    for (int64_t z = 0; z < p->axis[1].count; z++, n++) {
      V at = cy_mul(cg, cy_addc(cg, cy_mulc(cg, s->o[0], p->axis[0].step), y * p->axis[0].inc + p->axis[0].start),
                    cy_size(cg, p->axis[0].in_stride));
      V low = cy_addc(cg, cy_mulc(cg, s->o[1], p->axis[1].step), z * p->axis[1].inc + p->axis[1].start);
      line[n] = cy_int_gemm_elements_on(cg, p, map, cy_add(cg, at, cy_mul(cg, low, cy_size(cg, p->axis[1].in_stride))));
    }
  cy_loop x;
  cy_loop_begin(cg, &x, a, b, cy_i64(cg, 1), NULL, 0);
  V column = cy_mulc(cg, cy_addc(cg, cy_mulc(cg, x.iv, w->step), w->start), p->c);
  V dst = cy_gep(cg, f->scratch, cy_mul(cg, cy_add(cg, s->first, x.iv), f->row_bytes));
  emit_row_end(cg, f, dst);
  int64_t run = w->count * p->c;
  for (int i = 0; i < n; i++) {
    V to = cy_gepc(cg, dst, i * run * f->convert.elements.to), from = cy_int_gemm_elements_on(cg, p, line[i], column);
    if (!cy_copy_run_over(cg, &f->convert.elements, to, from, run, (n - i) * run))
      cy_copy_run(cg, &f->convert.elements, to, from, cy_i64(cg, run));
  }
  cy_loop_end(cg, &x, NULL);
}

/* i1: do all taps along the axis lie inside for output o? */
static V reaches_inside(cy_cg *cg, const cy_axis *a, V o) {
  V first = cy_addc(cg, cy_mulc(cg, o, a->step), a->start), last = cy_addc(cg, first, (a->count - 1) * a->inc);
  V begins = cy_icmp(cg, LLVMIntULT, first, cy_size(cg, a->in)),
    ends = cy_icmp(cg, LLVMIntULT, last, cy_size(cg, a->in));
  return LLVMBuildAnd(cg->b, begins, ends, "");
}

/* The outer positions one by one, the inner ones [a, b) faster. */
static void emit_stretch(cy_cg *cg, const frame *f, const stretch *s) {
  const plan *p = f->p;
  const cy_axis *w = &p->axis[2];
  V ok = reaches_inside(cg, &p->axis[1], s->o[1]);
  ok = LLVMBuildAnd(cg->b, reaches_inside(cg, &p->axis[0], s->o[0]), ok, "");
  V fit = cy_addc(cg, cy_size(cg, w->in), -w->start - w->count), step = cy_i64(cg, w->step), zero = cy_i64(cg, 0);
  V end = cy_select(cg, cy_icmp(cg, LLVMIntSGE, fit, zero), cy_addc(cg, cy_div(cg, fit, step), 1), zero);
  V a = cy_imin(cg, cy_imax(cg, s->x0, cy_i64(cg, (-w->start + w->step - 1) / w->step)), s->x1);
  V b = cy_imax(cg, a, cy_imin(cg, s->x1, end));
  a = cy_select(cg, ok, a, s->x1);
  b = cy_select(cg, ok, b, s->x1);
  V before = cy_sub(cg, a, s->x0), skipped = cy_sub(cg, b, a);
  cy_loop l;
  cy_loop_begin(cg, &l, zero, cy_add(cg, before, cy_sub(cg, s->x1, b)), cy_i64(cg, 1), NULL, 0);
  V x = cy_add(cg, cy_add(cg, s->x0, l.iv), cy_select(cg, cy_icmp(cg, LLVMIntSLT, l.iv, before), zero, skipped));
  V row = cy_add(cg, s->first, x);
  emit_position(cg, f, row, cy_gep(cg, f->scratch, cy_mul(cg, row, f->row_bytes)));
  cy_loop_end(cg, &l, NULL);
  emit_inner_positions(cg, f, s, a, b);
}

static void emit_stretches(cy_cg *cg, const frame *f, V count) {
  const plan *p = f->p;
  V width = cy_size(cg, p->axis[2].out), end = cy_add(cg, f->row0, count), n, o[3];
  cy_loop l;
  V last = cy_ceil_div(cg, end, width);
  cy_loop_begin(cg, &l, cy_div(cg, f->row0, width), last, cy_i64(cg, 1), NULL, 0);
  V from = cy_mul(cg, l.iv, width);
  cy_int_gemm_split_position(cg, p, from, &n, o);
  stretch s = {n, {o[0], o[1]}, cy_sub(cg, from, f->row0), NULL, NULL};
  s.x0 = cy_sub(cg, cy_imax(cg, f->row0, from), from);
  s.x1 = cy_imin(cg, width, cy_sub(cg, end, from));
  emit_stretch(cg, f, &s);
  cy_loop_end(cg, &l, NULL);
}

void cy_int_gemm_copy_rows(cy_cg *cg, const cy_int_gemm_frame *f, V count) {
  const plan *p = f->p;
  if (p->row_block) {
    cy_int_row_block_copy(cg, f, count);
    return;
  }
  if (cy_int_gemm_rows_as_wanted(p)) {
    V src = cy_int_gemm_elements_on(cg, p, f->a, cy_mulc(cg, cy_add(cg, f->row0, f->stay), p->k));
    V dst = cy_gep(cg, f->rows, cy_mul(cg, f->stay, f->row_bytes)), rows = cy_sub(cg, count, f->stay);
    cy_copy_positions(cg, &f->convert.elements, dst, src, rows, p->k, cy_i64(cg, p->k));
    return;
  }
  if (taps_dense(p)) {
    emit_stretches(cg, f, count);
    return;
  }
  cy_loop r;
  cy_loop_begin(cg, &r, cy_i64(cg, 0), count, cy_i64(cg, 1), NULL, 0);
  V dst = cy_gep(cg, f->scratch, cy_mul(cg, r.iv, f->row_bytes));
  if (p->d->conv)
    emit_position(cg, f, r.iv, dst);
  else
    emit_gemm_row(cg, f, r.iv, dst);
  cy_loop_end(cg, &r, NULL);
}
