/* SPDX-License-Identifier: Apache-2.0 */
/* attention_sizes.c - sizes of attention, and how its operands lie, as the texts of its kernels name them.
 *
 * In:  attention that is being printed. Out: M, keys, past, S, all; of an operand wide_<name>, <name>_row, <name>_step.
 */
#include "codegen/cuda/matrix/contract_int.h"

#include <string.h>

static bool stands_still(cy_kernel *k, int axis) {
  const cy_contraction *c = cy_kernel_contraction(k);
  return cy_dim_is(cy_kernel_graph(k), c->b_batch[axis], 0) && cy_dim_is(cy_kernel_graph(k), c->v_batch[axis], 0);
}

int cy_cu_attention_shared(cy_kernel *k) {
  int nbatch = cy_kernel_contraction(k)->nbatch, n = 0;
  while (n < nbatch && stands_still(k, nbatch - 1 - n))
    n++;
  return n;
}

void cy_cu_attention_sizes(cy_cu_contract *q) {
  cy_cu *p = q->p;
  const cy_contraction *c = q->c;
  cy_cu_line(p, "const int M = (int)%s, keys = (int)%s;", cy_cu_dim(p, c->m), cy_cu_dim(p, c->keys));
  cy_cu_line(p, "const i64 past = %s;", cy_cu_dim(p, c->past));
  fprintf(p->out, "  const int S = 1");
  for (int i = c->nbatch - cy_cu_attention_shared(p->k); i < c->nbatch; i++)
    fprintf(p->out, " * (int)%s", cy_cu_dim(p, c->batch[i]));
  fprintf(p->out, ", all = M");
  for (int i = 0; i < c->nbatch; i++)
    fprintf(p->out, " * (int)%s", cy_cu_dim(p, c->batch[i]));
  fprintf(p->out, "; /* rows of all runs */\n");
}

void cy_cu_attention_operand(cy_cu_contract *q, const char *name, cy_karg arg, cy_dim row, cy_dim step,
                             const cy_dim *batch) {
  cy_cu *p = q->p;
  cy_dim strides[CY_MAX_BATCH + 1] = {row};
  char wide[16];
  snprintf(wide, sizeof wide, "wide_%s", name);
  memcpy(strides + 1, batch, (size_t)q->c->nbatch * sizeof *batch);
  cy_cu_print_wide(p, wide, cy_dim_is(p->g, step, 1), strides, q->c->nbatch + 1, arg,
                   cy_cu_chunk_of(p->args[arg].dtype));
  cy_cu_line(p, "const i64 %s_row = %s, %s_step = %s;", name, cy_cu_dim(p, row), name, cy_cu_dim(p, step));
}
