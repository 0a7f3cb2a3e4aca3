/* SPDX-License-Identifier: Apache-2.0 */
/* machine.c - what kernels are made for: the devices of the target's architectures, and the libraries that take part.
 *
 * In:  a cy_machine, whose state is a cy_cuda_machine. Out: numbers of its devices by their data sheets, and what all of its
 *      architectures, or one of them, can do.
 */
#include "codegen/cuda/cuda_int.h"

enum { WANTED_BLOCKS = 100 };

static const cy_cuda_limits limits[] = {
    {75, 64, 1024, 16, 40},   {80, 164, 2048, 32, 108},  {86, 100, 1536, 16, 72},   {89, 100, 1536, 24, 58},
    {90, 228, 2048, 32, 132}, {100, 228, 2048, 32, 148}, {120, 100, 1536, 24, 170},
};

const cy_cuda_limits *cy_cuda_limits_of(int arch) {
  size_t row = 0;
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
    row = limits[i].arch <= arch ? i : row;
  return &limits[row];
}

int cy_cu_wanted_blocks(const cy_machine *m) {
  const cy_cuda_machine *c = m->state;
  return c && c->wanted_blocks ? c->wanted_blocks : WANTED_BLOCKS;
}

int cy_cuda_multiprocessors(const cy_machine *m) {
  const cy_cuda_machine *c = m->state;
  int max = 0;
  for (int i = 0; c && i < c->narch; i++) {
    int count = cy_cuda_limits_of(c->arch[i].number)->count;
    max = count > max ? count : max;
  }
  return !max || c->wanted_blocks ? cy_cu_wanted_blocks(m) : max;
}

int cy_cuda_multiprocessors_of(const cy_machine *m, int arch) {
  const cy_cuda_machine *c = m->state;
  return c && c->wanted_blocks ? c->wanted_blocks : cy_cuda_limits_of(arch)->count;
}

bool cy_cuda_has_warpgroups(const cy_machine *m) {
  const cy_cuda_machine *c = m->state;
  for (int i = 0; c && i < c->narch; i++)
    if (c->arch[i].number == 90 && c->arch[i].suffix)
      return true;
  return false;
}

bool cy_cuda_has_float8(const cy_machine *m) {
  const cy_cuda_machine *c = m->state;
  for (int i = 0; c && i < c->narch; i++)
    if (c->arch[i].number < CY_CUDA_FLOAT8_ARCH)
      return false;
  return c && c->narch > 0;
}

bool cy_cu_library_on(const cy_machine *m, int library) { return m->libraries[library] != CY_LIBRARY_OFF; }
