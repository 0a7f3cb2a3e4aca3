/* SPDX-License-Identifier: Apache-2.0 */
/* contract.c - contraction kernels: which generator takes which.
 *
 * In: a kernel with a contraction. Out: its schedule and its C text, and whether weights are packed for it. The generators are
 * tried in order: a further one is a row of `generators` and a file like plain.c.
 */
#include "contract_int.h"

/* ---- packed weights ---- */

static void prepare_packed(const cy_machine *m, cy_kernel_plan *plan, cy_cuda_schedule *schedule) {
  const cy_cu_generator *generator = schedule->generator;
  cy_kernel *k = plan->kernel;
  const cy_karg_info *args;
  cy_dim conv[CY_CUDA_PROBLEM_FIELDS];
  int64_t row = cy_cu_packed_row(k);
  /* cuDNN wants channels innermost, too; of a transposed convolution the runtime makes them so */
  bool for_cudnn = cy_kernel_contraction(k)->kind == CY_CONTRACT_CONV && cy_cu_taps(cy_kernel_contraction(k)) > 1 &&
                   cy_cu_conv_match(m, k, schedule, true, conv);
  bool wanted = generator->wants_packed && generator->wants_packed(schedule, k);
  if ((!wanted && !for_cudnn) || !row)
    return;
  cy_kernel_args(k, &args);
  plan->dead_arg = (int32_t)cy_kernel_contraction(k)->b;
  plan->reads_dead = cy_kernel_rereads_b(k);
  schedule->packed_k = row;
  schedule->packed_arg = cy_kernel_add_arg(k, CY_ARG_READ, args[plan->dead_arg].dtype, 0);
  plan->packed_arg = (int32_t)schedule->packed_arg;
}

void cy_cuda_contract_prepare(const cy_machine *m, cy_kernel_plan *plan, cy_cuda_schedule *schedule) {
  prepare_packed(m, plan, schedule);
  if (!cy_cuda_tma(plan->kernel, schedule))
    schedule->tma_blocks = 0;
  cy_cuda_split_prepare(plan->kernel, schedule);
  plan->shared_arg = schedule->shares ? (int32_t)schedule->share_arg : -1;
}

/* ---- the generators ---- */

static const cy_cu_generator *const generators[] = {&cy_cu_depthwise, &cy_cu_gemv,    &cy_cu_narrow,
                                                    &cy_cu_matrix,    &cy_cu_singles, &cy_cu_plain};

static const cy_cu_generator *generator_of(const cy_machine *m, cy_kernel *k) {
  if (cy_kernel_contraction(k)->kind == CY_CONTRACT_ATTENTION)
    return cy_cu_attention.supports(m, k) ? &cy_cu_attention : NULL;
  if (cy_kernel_contraction(k)->a_rounded)
    return cy_cu_matrix.supports(m, k) ? &cy_cu_matrix : NULL;
  for (size_t i = 0; i < sizeof generators / sizeof *generators; i++)
    if (generators[i]->supports(m, k))
      return generators[i];
  return NULL;
}

bool cy_cuda_contract_finds_maxima(const cy_machine *m, cy_kernel *k) {
  const cy_cu_generator *generator = generator_of(m, k);
  return generator == &cy_cu_matrix || generator == &cy_cu_singles;
}

/* What products of integers are rounded to, comes rounded; attention rounds itself. */
bool cy_cuda_contract_supports(const cy_machine *m, cy_kernel *k) {
  const cy_contraction *c = cy_kernel_contraction(k);
  return (!c->rounded || c->kind == CY_CONTRACT_ATTENTION) && generator_of(m, k) != NULL;
}

/* Of weights in blocks. */
static const char *weights_of(cy_kernel *k) {
  const cy_contraction *c = cy_kernel_contraction(k);
  cy_dtype b = c->b_bits ? cy_kernel_arg_dtype(k, c->b) : CY_NONE;
  if (!b)
    return NULL;
  b = c->b_codes ? c->b_codes : b;
  return cy_dtype_is_float(b) ? cy_dtype_of(b)->name : c->b_bits == 4 ? "int4" : "int8";
}

void cy_cuda_contract_schedule(const cy_machine *m, cy_kernel *k, cy_cuda_schedule *schedule) {
  const cy_cu_generator *generator = generator_of(m, k);
  schedule->generator = generator;
  schedule->weights = weights_of(k);
  generator->schedule(m, k, schedule);
}

void cy_cuda_contract_print(cy_cu *p, const char *symbol) {
  ((const cy_cu_generator *)p->schedule->generator)->print(p, symbol);
}

void cy_cuda_tma_tensor(cy_kernel *k, const cy_cuda_schedule *schedule, bool b, cy_cuda_tensor *out) {
  if (cy_kernel_contraction(k)->kind == CY_CONTRACT_ATTENTION)
    cy_cu_attention_tma_tensor(k, b, out);
  else
    cy_cu_matrix_tma_tensor(k, schedule, b, out);
}

const char *cy_cuda_contract_name(const cy_machine *m, const cy_cuda_schedule *schedule, cy_arena *arena) {
  const cy_cu_generator *generator = schedule->generator;
  const char *kind = generator->name;
  if (schedule->weights)
    kind = cy_arena_printf(arena, "%s %s weights", kind, schedule->weights);
  const char *name = cy_arena_printf(arena, "%s %dx%dx%d", kind, schedule->tile.m, schedule->tile.n, schedule->tile.k);
  if (schedule->tma_blocks)
    name = cy_arena_printf(arena, "%s, tma 128x%d%s on sm_90a", name, schedule->tma_n, schedule->tma_pingpong ? " ping-pong" : "");
  else if (schedule->warpgroups && cy_cuda_has_warpgroups(m))
    name = cy_arena_printf(arena, "%s, wgmma on sm_90a", name);
  const char *shared = generator == &cy_cu_attention ? "keys" : "k", *max = schedule->shares_vary ? "up to " : "";
  return schedule->shares ? cy_arena_printf(arena, "%s, %s in %s%d", name, shared, max, schedule->shares) : name;
}
