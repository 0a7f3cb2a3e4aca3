/* SPDX-License-Identifier: Apache-2.0 */
/* product.c - which products of matrices may be another library's when the model runs: of floats, whose batch axes lie like
 * one, with epilogues that epilogue.c finds.
 *
 * In: a contraction kernel and its schedule. Out: the fields of a cyrt_cuda_problem as sizes. cuBLASLt takes them as they are,
 * cuDNN those that are convolutions of one tap (runtime/cuda/cudnn/cudnn_conv.c).
 */
#include "contract_int.h"
#include "runtime/cuda/cuda_problem.h"

/* Batches, rows and columns as strides of a tensor. False: batch axes do not lie like one. */
static bool joined(const cy_cu_offer *o, const cy_dim *batch, cy_dim row, cy_dim column, cy_dim out[4]) {
  const cy_contraction *c = o->c;
  cy_dim zero = cy_dim_const(o->g, 0);
  for (int i = 0; i + 1 < c->nbatch; i++)
    if (batch[i] != cy_dim_mul(o->g, batch[i + 1], c->batch[i + 1]))
      return false;
  out[0] = c->nbatch ? batch[c->nbatch - 1] : zero;
  out[1] = row;
  out[2] = column;
  out[3] = zero;
  return true;
}

/* Coordinates that are always 0 have no stride: a dense one will do. */
static bool like_output(cy_cu_offer *o, int which, cy_karg arg, cy_expr offset) {
  const cy_contraction *c = o->c;
  cy_dim base, strides[CY_MAX_BATCH + 2], out[4], running = c->n;
  if (!cy_cu_strides_of(o, offset, c->nbatch + 2, &base, strides))
    return false;
  for (int i = c->nbatch; i >= 0; i--) {
    cy_dim extent = i == c->nbatch ? c->m : c->batch[i];
    if (!strides[i] && !cy_dim_is(o->g, extent, 1))
      return false;
    strides[i] = strides[i] ? strides[i] : running;
    running = cy_dim_mul(o->g, strides[i], extent);
  }
  if (!joined(o, strides, strides[c->nbatch], cy_dim_const(o->g, 1), out))
    return false;
  cy_cu_problem_tensor(o->k, o->field, which, arg, base, out);
  return true;
}

static bool like_columns(cy_cu_offer *o, cy_karg arg, cy_expr offset) {
  const cy_contraction *c = o->c;
  cy_dim base, strides[CY_MAX_BATCH + 2], zero = cy_dim_const(o->g, 0), out[4] = {zero, zero, zero, zero};
  if (!cy_cu_strides_of(o, offset, c->nbatch + 2, &base, strides))
    return false;
  for (int i = 0; i <= c->nbatch; i++)
    if (strides[i])
      return false;
  cy_cu_problem_tensor(o->k, o->field, CYRT_PROBLEM_BIAS, arg, base, out);
  return true;
}

/* The factors. Of a packed one columns lie apart by rows of k. */
static bool put_factors(cy_cu_offer *o, const cy_cuda_schedule *schedule) {
  const cy_contraction *c = o->c;
  cy_dim a[4], b[4], zero = cy_dim_const(o->g, 0), one = cy_dim_const(o->g, 1);
  bool packed = schedule->packed_k != 0;
  if (!joined(o, c->a_batch, c->a_m, c->a_k, a) || !joined(o, c->b_batch, c->b_k, c->b_n, b))
    return false;
  if (packed) {
    b[1] = one;
    b[2] = cy_dim_const(o->g, schedule->packed_k);
  }
  if ((a[1] != one && a[2] != one) || (b[1] != one && b[2] != one))
    return false;
  cy_cu_problem_tensor(o->k, o->field, CYRT_MATMUL_A, c->a, zero, a);
  cy_cu_problem_tensor(o->k, o->field, CYRT_MATMUL_B, cy_cu_b_arg(schedule, c), zero, b);
  return true;
}

static void put_sizes(cy_cu_offer *o, bool exact) {
  const cy_contraction *c = o->c;
  cy_dim batch = cy_dim_const(o->g, 1);
  for (int i = 0; i < c->nbatch; i++)
    batch = cy_dim_mul(o->g, batch, c->batch[i]);
  o->field[CY_CU_FIELD(matmul.batch)] = batch;
  o->field[CY_CU_FIELD(matmul.m)] = c->m;
  o->field[CY_CU_FIELD(matmul.n)] = c->n;
  o->field[CY_CU_FIELD(matmul.k)] = c->k;
  o->field[CY_CU_FIELD(flags)] =
      cy_dim_const(o->g, (exact ? CYRT_PROBLEM_EXACT : 0) | (o->after ? CYRT_PROBLEM_AFTER : 0));
}

bool cy_cu_is_like_conv(const cy_contraction *c, cy_graph *g) {
  return !c->nbatch && cy_dim_is(g, c->a_k, 1) && cy_dim_is(g, c->b_k, 1) && c->b_n == c->k;
}

bool cy_cu_product_match(const cy_machine *m, cy_kernel *k, const cy_cuda_schedule *schedule,
                         cy_dim out_field[CY_CUDA_PROBLEM_FIELDS]) {
  const cy_contraction *c = cy_kernel_contraction(k);
  cy_cu_offer o = {.k = k, .g = cy_kernel_graph(k), .c = c, .field = out_field};
  cy_kernel_args(k, &o.args);
  cy_dtype t = o.args[c->a].dtype;
  o.like_output = like_output;
  o.like_columns = like_columns;
  o.libraries = (unsigned)cy_cu_library_on(m, CY_LIBRARY_CUBLASLT) << CY_LIBRARY_CUBLASLT |
                (unsigned)(cy_cu_library_on(m, CY_LIBRARY_CUDNN) && cy_cu_is_like_conv(c, o.g)) << CY_LIBRARY_CUDNN;
  if (!o.libraries || c->b_bits || c->rounded || !cy_cu_is_float(t) || o.args[c->b].dtype != t ||
      cy_kernel_local_dtype(k, c->acc) != CY_F32)
    return false;
  cy_cu_problem_init(o.g, CYRT_PROBLEM_MATMUL, o.field);
  if (!cy_cu_epilogue_match(&o) || !put_factors(&o, schedule))
    return false;
  put_sizes(&o, t == CY_F32 && !m->tf32);
  return true;
}
