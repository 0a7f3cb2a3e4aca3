/* SPDX-License-Identifier: Apache-2.0 */
/* problem.c - what files that match kernels for libraries of NVIDIA share: a cyrt_cuda_problem as sizes (offers.c).
 *
 * In:  tensors of a kernel, expressions of its epilogue. Out: fields of the problem, each one size.
 */
#include "codegen/cuda/matrix/contract_int.h"
#include "runtime/cuda/cuda_problem.h"

#include <stddef.h>

_Static_assert(CY_CUDA_PROBLEM_FIELDS == sizeof(cyrt_cuda_problem) / sizeof(int64_t), "every field is one size");

void cy_cu_problem_init(cy_graph *g, int kind, cy_dim field[CY_CUDA_PROBLEM_FIELDS]) {
  for (size_t i = 0; i < CY_CUDA_PROBLEM_FIELDS; i++)
    field[i] = cy_dim_const(g, 0);
  for (int i = 0; i < CYRT_PROBLEM_TENSORS; i++)
    field[CY_CU_FIELD(tensor[i].slot)] = cy_dim_const(g, -1);
  field[CY_CU_FIELD(kind)] = cy_dim_const(g, kind);
}

void cy_cu_problem_tensor(cy_kernel *k, cy_dim *field, int which, cy_karg arg, cy_dim offset, const cy_dim stride[4]) {
  cy_graph *g = cy_kernel_graph(k);
  const cy_karg_info *args;
  cy_kernel_args(k, &args);
  cy_dim *at = field + CY_CU_FIELD(tensor) + (size_t)which * (sizeof(cyrt_cuda_tensor) / sizeof(int64_t));
  *at++ = cy_dim_const(g, arg);
  *at++ = cy_dim_const(g, cy_dtype_of(args[arg].dtype)->onnx);
  *at++ = offset;
  for (int i = 0; i < 4; i++)
    *at++ = stride[i];
}

const cy_expr_info *cy_cu_without_casts(const cy_kernel *k, cy_expr e) {
  const cy_expr_info *x = cy_expr_of(k, e);
  while (x->op == CY_OP_cast && cy_cu_is_float(x->dtype) && cy_cu_is_float(cy_expr_of(k, x->arg[0])->dtype))
    x = cy_expr_of(k, x->arg[0]);
  return x;
}
