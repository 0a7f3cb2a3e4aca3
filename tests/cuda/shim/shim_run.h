/* SPDX-License-Identifier: Apache-2.0 */
/* shim_run.h - launches the kernels of kernel_cases.h in a library that the shim is linked into.
 *
 * kernels_test.c fills it with the text of the kernels, ptx_test.c with what NVRTC makes of them.
 */
#ifndef SHIM_RUN_H
#define SHIM_RUN_H

#include "tests/cuda/cases/case_run.h"
#include "tests/cuda/shim/shim_map.h"

#include <dlfcn.h>

typedef int launch_fn(void (*kernel)(void), int threads, long long blocks, int cluster, int shared,
                      const uint64_t *slots, int nslots, int schedule, unsigned seed);

static struct {
  void *library;
  launch_fn *launch;
  cy_cuda_arch arch; /* that the kernels are made for */
  bool tensors;    /* the kernels with tensor maps run in place of those beside them */
  int max_shared;  /* bytes that a block may have; 0: any number */
  int schedule;
  unsigned seed;
  int shifted; /* the iteration from which on tensors begin at multiples of an element alone; 0: none */
} how;

/* Opens a library, which has a launch_fn of this name; NULL after a message. */
static void *open_library(const char *path, const char *name, launch_fn **out_launch) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *entry = library ? dlsym(library, name) : NULL;
  memcpy(out_launch, &entry, sizeof entry);
  if (!entry)
    fprintf(stderr, "%s\n", dlerror());
  return entry ? library : NULL;
}

/* Each iteration has a schedule of its own, later ones the random ones again. */
static void choose_schedule(const kernel_case *c, int turn) {
  how.schedule = turn < 3 ? turn : turn - 2;
  how.seed = (unsigned)(turn + 7 * (c - cases));
}

/* What a library says of a kernel; else: what is so where it says nothing. */
static int kernel_number(const char *symbol, const char *what, int otherwise) {
  char name[80];
  snprintf(name, sizeof name, "%s_%s", symbol, what);
  const int *number = dlsym(how.library, name);
  return number ? *number : otherwise;
}

/* The kernel's own variables in shared memory are among those of the launch where the library says how many bytes. */
static bool shim_launch(const char *symbol, int threads, int64_t blocks, int shared, const uint64_t *slots, int n) {
  void (*kernel)(void);
  void *entry = dlsym(how.library, symbol);
  memcpy(&kernel, &entry, sizeof kernel);
  shared += kernel_number(symbol, "shared", 0);
  if (!entry || threads > kernel_number(symbol, "threads", threads) || (how.max_shared && shared > how.max_shared)) {
    fprintf(stderr, "no device launches %s with %d threads and %d bytes of shared memory\n", symbol, threads, shared);
    return false;
  }
  if (!how.launch(kernel, threads, blocks, kernel_number(symbol, "cluster", 1), shared, slots, n, how.schedule,
                  how.seed))
    return true;
  fprintf(stderr, "%s: a barrier that not all threads reach\n", symbol);
  return false;
}

static bool launch_tensors(const kernel_case *c, const char *symbol, case_memory *memory, uint64_t *slots, int n) {
  shim_map maps[2];
  char name[64];
  snprintf(name, sizeof name, "%s_tma", symbol);
  for (int b = 0; b < 2; b++) {
    cy_cuda_tensor t;
    shim_map *m = &maps[b];
    uint64_t stride[CY_CUDA_TMA_RANK];
    case_tensor(c, b, &t, m->extent, stride);
    m->address = (uint64_t)(uintptr_t)memory->got[t.arg];
    m->bytes = (uint8_t)(cy_dtype_of(t.type)->bits / 8);
    for (int i = 0; i < CY_CUDA_TMA_RANK; i++) {
      m->stride[i] = i ? stride[i - 1] : m->bytes;
      m->box[i] = (uint16_t)t.box[i];
      m->step[i] = (uint8_t)t.step[i];
    }
    slots[n + b] = (uint64_t)(uintptr_t)m;
    if (!shim_map_valid(m, t.rank)) {
      fprintf(stderr, "%s: no driver makes such a tensor map of its factor %d\n", c->what, b);
      return false;
    }
  }
  return shim_launch(name, CY_CUDA_TMA_THREADS, case_tensor_blocks(c, how.schedule), CY_CUDA_TMA_SHARED, slots, n + 2);
}

/* By how many bytes a tensor is moved: one element, if the application could have bound it there. */
static size_t shift_of(const kernel_case *c, const cy_karg_info *args, int i) {
  const cy_contraction *t = cy_kernel_contraction(c->k);
  int bits = cy_dtype_of(args[i].dtype)->bits, weights = t->b_bits; /* in integers: passes make them, as constants */
  bool ours = (weights && (i == (int)t->b || i == (int)t->b_scale)) || args[i].kind == CY_ARG_SCRATCH ||
              (c->schedule->packed_k && i == (int)c->schedule->packed_arg) || (c->schedule->shares && i == (int)c->schedule->share_arg);
  return ours || bits < 8 ? 0 : (size_t)bits / 8;
}

/* Has the tensors lie further on by that, or back again; there is room behind them. */
static void shift_memory(const kernel_case *c, case_memory *memory, bool back) {
  const cy_karg_info *args;
  cy_kernel_args(c->k, &args);
  for (int i = 0; i < memory->n; i++) {
    char *first = memory->got[i], *further = first + shift_of(c, args, i);
    memmove(back ? first : further, back ? further : first, memory->bytes[i]);
  }
}

/* A case_launch. */
static bool launch_shim(const kernel_case *c, const char *symbol, int turn, case_memory *memory, int64_t blocks,
                        const uint64_t *sizes, int nsizes) {
  uint64_t slots[48];
  char combine[64];
  snprintf(combine, sizeof combine, "%s_combine", symbol);
  const cy_karg_info *args;
  cy_kernel_args(c->k, &args);
  bool shifted = how.shifted && turn >= how.shifted && !how.tensors;
  if (shifted)
    shift_memory(c, memory, false);
  for (int i = 0; i < memory->n; i++)
    slots[i] = (uint64_t)(uintptr_t)memory->got[i] + (shifted ? shift_of(c, args, i) : 0);
  memcpy(slots + memory->n, sizes, (size_t)nsizes * sizeof *sizes);
  int n = memory->n + nsizes;
  choose_schedule(c, turn);
  if (how.tensors && case_by_tensors(c))
    return launch_tensors(c, symbol, memory, slots, n);
  int shared = cy_cuda_shared_bytes(c->schedule, how.arch);
  int64_t combined = case_combine_blocks(c);
  bool ok = shim_launch(symbol, c->schedule->threads, blocks, shared, slots, n) &&
            (!combined || shim_launch(combine, CY_CUDA_COMBINE_THREADS, combined, 0, slots, n));
  if (shifted)
    shift_memory(c, memory, true);
  return ok;
}

#endif
