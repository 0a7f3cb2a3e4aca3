/* SPDX-License-Identifier: Apache-2.0 */
/* case_run.h - one run of a kernel of kernel_cases.h: arguments, who launches it, comparison with the interpreter.
 *
 * kernels_test.c and ptx_test.c launch behind the shim (shim_run.h), device_test.c on a device.
 */
#ifndef CASE_RUN_H
#define CASE_RUN_H

#include "tests/cuda/cases/kernel_cases.h"

/* The arguments of a launch in the host's memory. */
typedef struct case_memory {
  int n;
  void *got[MAX_ARGS], *want[MAX_ARGS];
  size_t bytes[MAX_ARGS];
} case_memory;
/* Runs the kernel on memory->got, for the iteration'th time; false after a message. */
typedef bool case_launch(const kernel_case *c, const char *symbol, int turn, case_memory *memory, int64_t blocks,
                         const uint64_t *sizes, int nsizes);

/* Blocks of what combines shares of k; 0: there is one. */
static int64_t case_combine_blocks(const kernel_case *c) {
  return c->schedule->shares ? cy_dim_eval(g, c->schedule->combine_blocks, c->syms) : 0;
}

static bool case_quiet; /* results are to be wrong */
static uint64_t seed = 1;

static uint64_t next_random(void) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return seed >> 33;
}

static size_t bytes_of(cy_dtype t, int64_t elems) { return ((size_t)elems * (size_t)cy_dtype_of(t)->bits + 7) / 8; }

static void fill(void *at, cy_dtype t, int64_t n, const kernel_case *c) {
  double lo = c->lo, hi = c->hi;
  if (lo == hi) {
    lo = -2;
    hi = 2;
  }
  for (int64_t i = 0; i < n; i++) {
    cy_scalar s = {.u = next_random() << 33 ^ next_random()};
    double r = lo + (hi - lo) * (double)next_random() / 2147483648.0;
    if (t == CY_BOOL)
      s.u &= 1;
    else if (cy_dtype_is_float(t))
      s.f = r;
    else if (c->ints)
      s.i = (int64_t)r;
    cy_scalar_store(at, t, (uint64_t)i, s);
  }
}

static bool same(cy_dtype t, cy_scalar a, cy_scalar b, const kernel_case *c) {
  if (!cy_dtype_is_float(t))
    return a.u == b.u;
  if (isnan(a.f) || isnan(b.f))
    return isnan(a.f) && isnan(b.f);
  return a.f == b.f || fabs(a.f - b.f) <= c->atol + c->rtol * fabs(b.f);
}

static int compare(const kernel_case *c, uint32_t arg, cy_dtype t, const void *got, const void *want) {
  int bad = 0;
  for (int64_t i = 0; i < c->elems[arg]; i++) {
    cy_scalar a = cy_scalar_load(got, t, (uint64_t)i), b = cy_scalar_load(want, t, (uint64_t)i);
    if (same(t, a, b, c) || bad++ >= 3 || case_quiet)
      continue;
    if (cy_dtype_is_float(t))
      fprintf(stderr, "%s: a%u[%lld] is %.9g, not %.9g\n", c->what, arg, (long long)i, a.f, b.f);
    else
      fprintf(stderr, "%s: a%u[%lld] is %lld, not %lld\n", c->what, arg, (long long)i, (long long)a.i, (long long)b.i);
  }
  return bad;
}

static int64_t scratch_bytes(const kernel_case *c, const cy_karg_info *arg, int64_t blocks) {
  int64_t elems = cy_dim_eval(g, arg->elems, c->syms);
  return blocks * (c->schedule->stripes ? c->schedule->stripes : 1) * (int64_t)bytes_of(arg->dtype, elems);
}

/* Fewer blocks than wanted, for groups: they must go on with further tasks. */
static int64_t blocks_for(const kernel_case *c) {
  int64_t n = cy_dim_eval(g, c->schedule->blocks, c->syms);
  return c->schedule->kind == CY_CUDA_GROUPS && n > 2 ? n - 1 : n;
}

/* A matrix of rows along n as columns. */
static void pack_matrix(const kernel_case *c, const case_memory *m) {
  const cy_contraction *t = cy_kernel_contraction(c->k);
  size_t bytes = m->bytes[t->b] / (size_t)c->elems[t->b];
  int64_t n = cy_dim_eval(g, t->n, c->syms);
  memset(m->got[c->schedule->packed_arg], 0, m->bytes[c->schedule->packed_arg]);
  for (int64_t i = 0; i < c->elems[t->b]; i++)
    memcpy((char *)m->got[c->schedule->packed_arg] + (size_t)(i % n * c->schedule->packed_k + i / n) * bytes,
           (const char *)m->got[t->b] + (size_t)i * bytes, bytes);
}

static void pack(const kernel_case *c, const case_memory *m) {
  const cy_contraction *t = cy_kernel_contraction(c->k);
  const cy_karg_info *args;
  if (t->kind == CY_CONTRACT_MATMUL) {
    pack_matrix(c, m);
    return;
  }
  int64_t channels = cy_dim_eval(g, t->channels_in, c->syms), filters = cy_dim_eval(g, t->channels_out, c->syms);
  int64_t taps = cy_cu_taps(t);
  cy_kernel_args(c->k, &args);
  size_t bytes = (size_t)cy_dtype_of(args[t->b].dtype)->bits / 8;
  memset(m->got[c->schedule->packed_arg], 0, m->bytes[c->schedule->packed_arg]);
  for (int64_t i = 0; i < c->elems[t->b]; i++) {
    int64_t at = i / taps / channels * c->schedule->packed_k + i % taps * channels + i / taps % channels;
    if (t->kind == CY_CONTRACT_CONV_TRANSPOSE) { /* [channel][filter of the group][tap] */
      int64_t depth = channels / t->group, columns = filters / t->group, row = i / taps / columns;
      at = (row / depth * columns + i / taps % columns) * c->schedule->packed_k +
           cy_cu_residue_place(t, i % taps, depth, (int64_t)(16 / bytes)) + row % depth;
    }
    memcpy((char *)m->got[c->schedule->packed_arg] + (size_t)at * bytes, (const char *)m->got[t->b] + (size_t)i * bytes,
           bytes);
  }
}

static int bytes_before(const kernel_case *c) { return c->before ? c->before : 0xff; }

static void fill_memory(const kernel_case *c, int64_t blocks, case_memory *m) {
  const cy_karg_info *args;
  m->n = (int)cy_kernel_args(c->k, &args);
  for (int i = 0; i < m->n; i++) {
    bool scratch = args[i].kind == CY_ARG_SCRATCH;
    m->bytes[i] = scratch ? (size_t)scratch_bytes(c, &args[i], blocks) : bytes_of(args[i].dtype, c->elems[i]);
    size_t room = (m->bytes[i] + 127) / 64 * 64;
    m->got[i] = aligned_alloc(64, room);
    m->want[i] = aligned_alloc(64, room);
    memset(m->got[i], bytes_before(c), room);
    bool most = cy_kernel_contraction(c->k)->a_rounded && i == (int)cy_kernel_contraction(c->k)->a_max;
    if (most) /* of all elements */
      fill(m->got[i], CY_F32, c->elems[i], &(kernel_case){.lo = 2, .hi = 3});
    else if (args[i].kind == CY_ARG_READ)
      fill(m->got[i], args[i].dtype, c->elems[i], c);
    memcpy(m->want[i], m->got[i], m->bytes[i]);
  }
  if (c->schedule->packed_k)
    pack(c, m);
}

/* The tensor map of a case's first or second factor: strides in bytes. */
static void case_tensor(const kernel_case *c, bool b, cy_cuda_tensor *t, uint64_t extent[CY_CUDA_TMA_RANK],
                        uint64_t stride[CY_CUDA_TMA_RANK]) {
  cy_cuda_tma_tensor(c->k, c->schedule, b, t);
  for (int i = 0; i < CY_CUDA_TMA_RANK; i++)
    extent[i] = i < t->rank ? (uint64_t)cy_dim_eval(g, t->extent[i], c->syms) : 1;
  for (int i = 0; i < CY_CUDA_TMA_RANK; i++)
    stride[i] =
        i + 1 < t->rank ? (uint64_t)(cy_dim_eval(g, t->stride[i], c->syms) * cy_dtype_of(t->type)->bits / 8) : 0;
}

/* Does it run at these sizes? Where there is no such kernel, or blocks share what it has to go through, its own does. */
static bool case_by_tensors(const kernel_case *c) {
  return c->schedule->tma_blocks && cy_dim_eval(g, c->schedule->tma_blocks, c->syms) > 0;
}

/* How many blocks the kernel by tensor maps has: as many as there are tiles, or fewer, which go on to further tiles; now and
 * then more, which have none. */
static int64_t case_tensor_blocks(const kernel_case *c, int turn) {
  int64_t all = cy_dim_eval(g, c->schedule->tma_blocks, c->syms), few = (c - cases + turn) % 4 + 1;
  int cluster = cy_cuda_tma_cluster(c->k, c->schedule);
  return cy_round_up(few == 4 ? all + 1 : few < all ? few : all, cluster);
}

/* What the kernel writes is as it was before it ran. */
static void forget_results(const kernel_case *c, case_memory *m) {
  const cy_karg_info *args;
  cy_kernel_args(c->k, &args);
  for (int i = 0; i < m->n; i++)
    if (args[i].kind != CY_ARG_READ)
      memset(m->got[i], bytes_before(c), m->bytes[i]);
}

static int compare_results(const kernel_case *c, const case_memory *m) {
  const cy_karg_info *args;
  int bad = 0;
  cy_kernel_args(c->k, &args);
  for (int i = 0; i < m->n; i++) {
    bool between = c->schedule->shares && i == (int)c->schedule->share_arg; /* of two kernels: nobody's result */
    if (args[i].kind == CY_ARG_WRITE && !between)
      bad += compare(c, (uint32_t)i, args[i].dtype, m->got[i], m->want[i]);
  }
  return bad;
}

/* The arguments, and what the interpreter makes of them. */
static void case_begin(const kernel_case *c, case_memory *m) {
  fill_memory(c, blocks_for(c), m);
  cy_kernel_interpret(c->k, m->want, c->syms, 0, cy_kernel_tasks_eval(c->k, c->syms));
}

/* How many results are wrong, in the first iteration in which some are; `turns` has a bit for each that is made. */
static int case_launches(const kernel_case *c, const char *symbol, unsigned turns, case_launch *launch_case,
                         case_memory *m) {
  const cy_dim *dims;
  uint64_t sizes[48];
  int64_t blocks = blocks_for(c);
  uint32_t ndims = cy_kernel_dims(c->k, &dims);
  int bad = 0;
  for (uint32_t i = 0; i < ndims; i++)
    sizes[i] = (uint64_t)cy_dim_eval(g, dims[i], c->syms);
  for (int turn = 0; turns >> turn && !bad; turn++) {
    if (!(turns >> turn & 1))
      continue;
    forget_results(c, m);
    bad = !launch_case(c, symbol, turn, m, blocks, sizes, (int)ndims) + compare_results(c, m);
  }
  return bad;
}

static void case_end(case_memory *m) {
  for (int i = 0; i < m->n; i++) {
    free(m->got[i]);
    free(m->want[i]);
  }
}

static inline int case_run(const kernel_case *c, const char *symbol, int iterations, case_launch *launch_case) {
  case_memory m;
  case_begin(c, &m);
  int bad = case_launches(c, symbol, (1u << iterations) - 1, launch_case, &m);
  case_end(&m);
  return bad;
}

#endif
