/* SPDX-License-Identifier: Apache-2.0 */
/* occupancy.c - for --explain: how much of a device a compiled kernel takes, and so how many of its blocks run at a time.
 *
 * In: registers and shared memory as the compiler tells them, and the launch. Out: a line like
 *
 *   128 registers, 96.0 KB shared, 2 blocks of 256 threads per multiprocessor; 512 blocks, 1.9 waves of 264;
 *   multiplies 537 MFLOP; 64 blocks add shares
 *
 * (multiplied: by products and convolutions in tiles, of which what is empty is multiplied all the same; added: by a second
 * launch, where blocks share k)
 * for the data-sheet device of the first architecture: what a first run on one can be compared with.
 */
#include "codegen/cuda/matrix/contract_int.h"

#include <stdio.h>
#include <string.h>

enum {
  REGISTERS = 65536 / 4, /* of a quarter of a multiprocessor; a warp takes them by 256 */
  REGISTER_UNIT = 8,
  SHARED_UNIT = 128,
  RESERVED = 1024 /* of a block's shared memory, by the system, since sm_80 */
};

static int min(int a, int b) { return a < b ? a : b; }

/* Blocks that a multiprocessor has at a time. */
static int resident(const cy_cuda_limits *row, int registers, int shared, int threads) {
  int warps = (threads + 31) / 32, per_warp = (int)cy_round_up(registers, REGISTER_UNIT) * 32;
  int taken = (int)cy_round_up(shared + (row->arch >= 80 ? RESERVED : 0), SHARED_UNIT);
  int by_registers = registers ? REGISTERS / per_warp * 4 / warps : row->blocks;
  int by_shared = taken ? row->shared * 1024 / taken : row->blocks;
  return min(min(by_registers, by_shared), min(row->threads / (warps * 32), row->blocks));
}

/* Of products by tiles: what all tiles multiply, empty or not; else 0. */
static double multiplied(const cy_kernel_plan *plan, const cy_cuda_schedule *schedule, const int64_t *syms) {
  cy_graph *g = cy_kernel_graph(plan->kernel);
  const cy_contraction *c = cy_kernel_contraction(plan->kernel);
  bool tma = plan->code.tma;
  int64_t m = tma ? 128 : schedule->tile.m, n = tma ? schedule->tma_n : schedule->tile.n;
  if (schedule->kind != CY_CUDA_TILES || c->kind == CY_CONTRACT_NONE || c->kind == CY_CONTRACT_ATTENTION || m < 1 || n < 1)
    return 0;
  cy_cu_sizes s = cy_cu_sizes_of(plan->kernel);
  double rows = (double)cy_round_up(cy_dim_eval(g, s.m, syms), m),
         columns = (double)cy_round_up(cy_dim_eval(g, s.n, syms), n);
  double k = (double)cy_dim_eval(g, s.k, syms);
  if (cy_cu_has_residues(c)) /* each tap is of one residue */
    k = (double)cy_dim_eval(g, cy_cu_depth(plan->kernel), syms) * (double)cy_cu_taps(c) / (double)cy_cu_residues(c);
  return 2 * (double)cy_dim_eval(g, s.z, syms) * rows * columns * k;
}

bool cy_cuda_occupancy(const cy_machine *m, const cy_kernel_plan *plan, const int64_t *syms, char *text, size_t size) {
  const cy_cuda_machine *c = m->state;
  const cy_cuda_schedule *schedule = cy_cuda_schedule_of(plan);
  const cy_kernel_code *code = &plan->code;
  cy_graph *g = cy_kernel_graph(plan->kernel);
  const cy_cuda_limits *row = cy_cuda_limits_of(c->arch[0].number);
  if (!code->registers)
    return false;
  int threads = code->tma ? CY_CUDA_TMA_THREADS : schedule->threads;
  int shared = code->static_shared + (code->tma ? CY_CUDA_TMA_SHARED : cy_cuda_shared_bytes(schedule, c->arch[0]));
  int per = resident(row, code->registers, shared, threads), at_once = per * row->count;
  double blocks = (double)cy_dim_eval(g, code->tma ? schedule->tma_blocks : schedule->blocks, syms);
  snprintf(text, size,
           "%d registers, %.1f KB shared, %d block%s of %d threads per multiprocessor; %.0f %s, %.1f waves of %d",
           code->registers, shared / 1024.0, per, per == 1 ? "" : "s", threads, blocks, code->tma ? "tiles" : "blocks",
           at_once ? blocks / at_once : 0, at_once);
  double flop = multiplied(plan, schedule, syms);
  size_t n = strlen(text);
  if (flop > 0)
    n += (size_t)snprintf(text + n, size - n, "; multiplies %.3f MFLOP", flop / 1e6);
  int64_t adding = schedule->shares && !code->tma ? cy_dim_eval(g, schedule->combine_blocks, syms) : 0;
  if (adding > 0 && n < size)
    snprintf(text + n, size - n, "; %lld block%s add%s shares", (long long)adding, adding == 1 ? "" : "s",
             adding == 1 ? "s" : "");
  return true;
}
