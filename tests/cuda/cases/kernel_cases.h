/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_cases.h - kernels that the CUDA tests print: every op and cast, loops, reductions, scratch, contractions.
 *
 * The loops are those of every target (tests/kernels.h). kernels_test.c runs them behind the shim, nvrtc_test.c compiles
 * them for devices. Test programs are single files, so everything is here.
 */
#ifndef KERNEL_CASES_H
#define KERNEL_CASES_H

#include "codegen/cuda/matrix/contract_int.h"
#include "passes/lower/lower.h"
#include "tests/check.h"
#include "tests/kernels.h"

#include <stdarg.h>
#include <stdlib.h>

enum { MAX_CASES = 3000, MAX_ARGS = 8 };

typedef struct kernel_case {
  char what[64];
  cy_kernel *k;
  int64_t elems[MAX_ARGS]; /* of every argument but scratch */
  int64_t *syms;
  double lo, hi, rtol, atol; /* lo == hi: -2 .. 2 */
  bool ints;                 /* lo and hi bound integers too */
  unsigned char before;      /* each byte of what is written; 0: all ones */
  cy_machine machine;        /* what the kernel may be made for */
  const cy_cuda_schedule *schedule;
} kernel_case;

static cy_cuda_machine one_block = {.wanted_blocks = 1};
static cy_cuda_machine three_blocks = {.wanted_blocks = 3};
static cy_cuda_machine four_blocks_90a = {.arch = {{90, 'a'}}, .narch = 1, .wanted_blocks = 4};
static cy_cuda_machine one_block_89 = {.arch = {{89, 0}}, .narch = 1, .wanted_blocks = 1};
static cy_cuda_machine one_block_90a = {.arch = {{90, 'a'}}, .narch = 1, .wanted_blocks = 1, .pingpong = -1};
static cy_cuda_machine one_block_in_turns = {.arch = {{90, 'a'}}, .narch = 1, .wanted_blocks = 1, .pingpong = 1};
static kernel_case cases[MAX_CASES];
static int ncases;

/* Ceilings of what is counted in compiled kernels hold for NVRTC 13.0. Another one, which may make a third more of some, gets
 * half as much again. */
static inline int ceiling_with(const cy_nvrtc *nvrtc, int max) {
  return cy_nvrtc_version(nvrtc) == 13000 ? max : max + max / 2;
}

/* ---- loops ---- */

static kernel_case *add_case(cy_kernel *k, const char *format, ...) __attribute__((format(printf, 2, 3)));
static kernel_case *add_case(cy_kernel *k, const char *format, ...) {
  kernel_case *c = &cases[ncases++];
  va_list args;
  if (ncases >= MAX_CASES)
    abort();
  va_start(args, format);
  vsnprintf(c->what, sizeof c->what, format, args);
  va_end(args);
  c->k = k;
  c->rtol = 2e-6;
  return c;
}

static void set_elems(kernel_case *c, int64_t a, int64_t b, int64_t e, int64_t f) {
  c->elems[0] = a;
  c->elems[1] = b;
  c->elems[2] = e;
  c->elems[3] = f;
}

static kernel_case *add_flat(cy_op op, cy_dtype in, cy_dtype out, int64_t n) {
  kernel_case *c = add_case(flat_kernel(op, in, out, n), "%s %s %s", cy_op_of(op)->name, cy_dtype_of(in)->name,
                            cy_dtype_of(out)->name);
  set_elems(c, n, n, n, n);
  return c;
}

static void add_ops(void) {
  static const cy_dtype types[] = {CY_F32, CY_F64, CY_I8,  CY_U8,   CY_I16, CY_U16, CY_I32,
                                   CY_U32, CY_I64, CY_U64, CY_BOOL, CY_F16, CY_BF16};
  for (int t = 0; t < CHECK_COUNT(types); t++)
    for (cy_op op = CY_OP_neg; op < CY_OP_COUNT; op++) {
      if (!op_applies(op, types[t]))
        continue;
      kernel_case *c = add_flat(op, types[t], op_result(op, types[t]), op % 4 ? 80 : 77);
      c->atol = types[t] == CY_F64 ? 1e-12 : 2e-6;
      c->rtol = types[t] == CY_F16 ? 2e-3 : types[t] == CY_BF16 ? 1.6e-2 : types[t] == CY_F64 ? 1e-12 : 4e-6;
      c->ints = op_range(op, &c->lo, &c->hi);
    }
}

/* As arithmetic; one element in three is an angle of many iterations. */
static void add_angles(void) {
  for (cy_op op = CY_OP_sin; op <= CY_OP_tan; op++) {
    cy_kernel *k = cy_kernel_create(g, "angles");
    cy_karg from = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0), to = cy_kernel_add_arg(k, CY_ARG_WRITE, CY_F32, 0);
    cy_var i = cy_kernel_add_var(k, d(90));
    cy_kernel_add_grid(k, i);
    cy_kernel_set_grid_lanes(k, true);
    cy_expr x = cy_x_load(k, from, var(k, i)), third = cy_x_bin(k, CY_OP_mod, var(k, i), cy_x_index(k, 3));
    cy_expr is_far = cy_x_bin(k, CY_OP_eq, third, cy_x_index(k, 0)), far = cy_x_bin(k, CY_OP_mul, x, f32(k, 1e30));
    cy_kernel_store(k, to, var(k, i), cy_x_un(k, op, cy_x_select(k, is_far, far, x)));
    cy_kernel_expand_math(k);
    set_elems(add_case(k, "%s of many iterations", cy_op_of(op)->name), 90, 90, 0, 0);
  }
}

static void add_casts(void) {
  for (int a = 0; a < CHECK_COUNT(cast_types); a++)
    for (int b = 0; b < CHECK_COUNT(cast_types); b++) {
      if (a == b)
        continue;
      kernel_case *c = add_flat(CY_OP_cast, cast_types[a], cast_types[b], b % 3 ? 72 : 70);
      c->lo = -600;
      c->hi = 600;
      c->rtol = cast_rtol(cast_types[a], cast_types[b]);
    }
}

static void add_strides(void) {
  for (int s = 0; s < CHECK_COUNT(strides); s++)
    set_elems(add_case(strides_kernel(&strides[s]), "strides %d", s), 9 * 80, strides[s].columns,
              9 * strides[s].columns, 0);
}

static void add_crossings(void) {
  for (int i = 0; i < CHECK_COUNT(crossings); i++) {
    const crossing *c = &crossings[i];
    set_elems(add_case(crossing_kernel(c), "crossing %d", i), 3 * c->iterations * c->columns * c->load,
              3 * c->columns * c->step, 0, 0);
  }
}

static void add_reductions(void) {
  static const int64_t lengths[] = {7, 123, 2000};
  for (int n = 0; n < 6 * 6 * 2 * 3; n++) {
    cy_op op = reduce_ops[n % 6];
    cy_dtype t = reduce_types[n / 6 % 6];
    bool columns = n / 36 % 2;
    int64_t len = lengths[n / 72];
    if (!reduce_applies(op, t))
      continue;
    kernel_case *q = add_case(reduce_kernel(op, t, len, columns), "reduce %s %s %d %s", cy_op_of(op)->name,
                              cy_dtype_of(t)->name, (int)len, columns ? "columns" : "rows");
    set_elems(q, 11 * len, 11, 0, 0);
    q->rtol = 1e-4;
    q->atol = t == CY_F64 ? 1e-9 : 2e-4;
    if (op == CY_OP_mul) {
      q->lo = 0.9;
      q->hi = 1.1;
    }
  }
}

/* Of a symbolic length (scratch is a stripe of global memory) or a fixed one (shared memory). */
static void add_softmax(void) {
  cy_sym cols = cy_sym_by_name(g, "cols"), rows = cy_sym_by_name(g, "rows");
  static const int64_t sizes[] = {1, 3, 31, 64, 197, 1500};
  for (int s = 0; s < 12; s++) {
    int64_t n = sizes[s % 6];
    cy_kernel *k = softmax_kernel(cy_dim_sym(g, rows), s < 6 ? cy_dim_sym(g, cols) : d(n), true);
    kernel_case *q = add_case(k, "softmax %s %lld", s < 6 ? "symbolic" : "fixed", (long long)n);
    q->syms = calloc(64, sizeof *q->syms);
    q->syms[cols] = n;
    q->syms[rows] = 13;
    set_elems(q, 13 * n, 13 * n, 0, 0);
    q->rtol = 2e-5;
  }
}

/* y = (x - mean) * rsqrt(variance + 1e-5) * weight, and the mean on its own: passes over rows that registers hold. */
static cy_kernel *normalize_kernel(cy_dim rows, cy_dim n, cy_dtype type, double inverse) {
  cy_kernel *k = cy_kernel_create(g, "normalize");
  cy_karg x = cy_kernel_add_arg(k, CY_ARG_READ, type, 0), w = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0);
  cy_karg y = cy_kernel_add_arg(k, CY_ARG_WRITE, type, 0), m = cy_kernel_add_arg(k, CY_ARG_WRITE, CY_F32, 0);
  cy_var i = cy_kernel_add_var(k, rows), c[3];
  cy_local mean = cy_kernel_add_local(k, CY_F32), spread = cy_kernel_add_local(k, CY_F32);
  cy_expr xs[3], at[3];
  for (int p = 0; p < 3; p++) {
    c[p] = cy_kernel_add_var(k, n);
    at[p] = sum(k, cy_x_bin(k, CY_OP_mul, var(k, i), cy_x_dim(k, n)), var(k, c[p]));
    xs[p] = cy_x_cast(k, cy_x_load(k, x, at[p]), CY_F32);
  }
  cy_kernel_add_grid(k, i);
  cy_kernel_set(k, mean, f32(k, 0));
  cy_kernel_for(k, c[0], true);
  cy_kernel_accum(k, mean, CY_OP_add, xs[0]);
  cy_kernel_end(k);
  cy_kernel_set(k, mean, cy_x_bin(k, CY_OP_mul, cy_x_local(k, mean), f32(k, inverse)));
  cy_kernel_store(k, m, var(k, i), cy_x_local(k, mean));
  cy_kernel_set(k, spread, f32(k, 0));
  cy_kernel_for(k, c[1], true);
  cy_expr d1 = cy_x_bin(k, CY_OP_sub, xs[1], cy_x_local(k, mean));
  cy_kernel_accum(k, spread, CY_OP_add, cy_x_bin(k, CY_OP_mul, d1, d1));
  cy_kernel_end(k);
  cy_expr variance = cy_x_bin(k, CY_OP_mul, cy_x_local(k, spread), f32(k, inverse));
  cy_kernel_set(k, spread, cy_x_un(k, CY_OP_sqrt, sum(k, variance, f32(k, 1e-5))));
  cy_kernel_for(k, c[2], true);
  cy_expr d2 = cy_x_bin(k, CY_OP_sub, xs[2], cy_x_local(k, mean));
  cy_expr v = cy_x_bin(k, CY_OP_mul, cy_x_bin(k, CY_OP_div, d2, cy_x_local(k, spread)), cy_x_load(k, w, var(k, c[2])));
  cy_kernel_store(k, y, at[2], v);
  cy_kernel_end(k);
  return k;
}

/* Rows that a part of a warp, a warp, a block hold, and that nobody holds; of fixed and of symbolic length. */
static void add_rows(void) {
  cy_sym cols = cy_sym_by_name(g, "cols"), rows = cy_sym_by_name(g, "rows");
  static const struct {
    int64_t rows, n;
    bool symbolic;
    cy_dtype type;
  } norms[] = {{37, 5, false, CY_F32},   {37, 24, false, CY_F16},  {9, 197, false, CY_F32},  {6, 768, false, CY_BF16},
               {300, 96, false, CY_F32}, {3, 1000, false, CY_F32}, {3, 4096, false, CY_F16}, {2, 40001, false, CY_F32},
               {13, 64, true, CY_F32},   {11, 333, true, CY_F16},  {3, 5000, true, CY_F32},  {2, 9001, true, CY_F32},
               {2, 40002, true, CY_BF16}};
  static const struct {
    int64_t rows, n;
    bool symbolic;
  } softmaxes[] = {{13, 1, false},    {13, 31, false}, {50, 64, false}, {13, 197, false}, {3, 3000, false},
                   {2, 50000, false}, {13, 128, true}, {7, 77, true},   {3, 4099, true},  {2, 20000, true}};
  for (size_t i = 0; i < CHECK_COUNT(norms) + CHECK_COUNT(softmaxes); i++) {
    bool norm = i < CHECK_COUNT(norms), symbolic;
    size_t s = i - CHECK_COUNT(norms);
    int64_t count = norm ? norms[i].rows : softmaxes[s].rows, n = norm ? norms[i].n : softmaxes[s].n;
    symbolic = norm ? norms[i].symbolic : softmaxes[s].symbolic;
    cy_dtype type = norm ? norms[i].type : CY_F32;
    cy_dim extent = symbolic ? cy_dim_sym(g, cols) : d(n), tasks = symbolic ? cy_dim_sym(g, rows) : d(count);
    cy_kernel *k = norm ? normalize_kernel(tasks, extent, type, 1.0 / (double)n) : softmax_kernel(tasks, extent, false);
    kernel_case *q = add_case(k, "rows %s %s %lld %s", norm ? "norm" : "softmax", symbolic ? "symbolic" : "fixed",
                              (long long)n, cy_dtype_of(type)->name);
    q->syms = calloc(64, sizeof *q->syms);
    q->syms[cols] = n;
    q->syms[rows] = count;
    set_elems(q, count * n, norm ? n : count * n, norm ? count * n : 0, norm ? count : 0);
    q->rtol = type == CY_F32 ? 2e-5 : type == CY_F16 ? 2e-3 : 1.6e-2;
    q->atol = norm ? 1e-4 : 1e-7;
  }
}

/* ---- contractions ---- */

/* y[..] = max(acc + bias[last], 0), y dense in the order of the output variables. */
static void epilogue(cy_kernel *k, cy_contraction *c, cy_karg bias, cy_karg y, const cy_karg *residual) {
  cy_expr at = cy_x_index(k, 0);
  for (int i = 0; i < c->nout_vars; i++)
    at =
        sum(k, cy_x_bin(k, CY_OP_mul, at, cy_x_dim(k, cy_kernel_var(k, c->out_var[i])->extent)), var(k, c->out_var[i]));
  cy_dtype t = cy_kernel_local_dtype(k, c->acc);
  cy_expr v = sum(k, cy_x_local(k, c->acc), cy_x_load(k, bias, var(k, c->out_var[c->nout_vars - 1])));
  v = cy_x_bin(k, CY_OP_max, v, cy_x_int(k, t, 0));
  cy_kernel_store(k, y, at, residual ? sum(k, v, cy_x_load(k, *residual, at)) : v);
}

static void out_var(cy_kernel *k, cy_contraction *c, cy_dim extent) {
  c->out_var[c->nout_vars++] = cy_kernel_add_var(k, extent);
}

enum { ROWS = 2, RESIDUAL = 2 };
typedef struct matmul_row {
  int64_t batch, m, n, k;
  bool a_transposed, b_transposed;
  int symbolic; /* true: rows and k; ROWS: these alone */
  cy_dtype in, acc;
  bool tf32;
  int large; /* the largest tile that is not mostly empty; RESIDUAL: and one is added behind the activation */
} matmul_row;

static cy_dim named(const char *name, int64_t value, bool symbolic, kernel_case *c) {
  if (!symbolic)
    return d(value);
  cy_sym s = cy_sym_by_name(g, name);
  c->syms[s] = value;
  return cy_dim_sym(g, s);
}

/* Integers: B's type, and which zero points there are (of B: 1 one, 2 one per column). */
typedef struct integers {
  cy_dtype b;
  bool a_zero;
  int b_zero;
} integers;

/* Behind set_elems(). */
static void add_zeros(kernel_case *q, cy_dtype a, const integers *i, int64_t columns) {
  cy_contraction *c = cy_kernel_contraction(q->k);
  q->rtol = q->atol = 0;
  q->ints = true;
  q->lo = -128;
  q->hi = 127.9;
  c->has_a_zero = i->a_zero;
  c->has_b_zero = i->b_zero > 0;
  c->b_zero_step = i->b_zero > 1;
  if (c->has_a_zero)
    q->elems[c->a_zero = cy_kernel_add_arg(q->k, CY_ARG_READ, a, 0)] = 1;
  if (c->has_b_zero)
    q->elems[c->b_zero = cy_kernel_add_arg(q->k, CY_ARG_READ, i->b, 0)] = c->b_zero_step ? columns : 1;
}

/* Of positive factors, sums of k products that are cut off to TF32 instead of rounded are too small by 7e-4. */
static void allow_tf32(kernel_case *q, int64_t k) {
  q->machine.tf32 = true;
  q->lo = 0.5;
  q->hi = 2;
  q->rtol = 2e-3 / sqrt((double)k);
  q->atol = 0;
}

static void add_matmul(const matmul_row *r, const integers *i) {
  cy_kernel *k = cy_kernel_create(g, "matmul");
  kernel_case *q =
      add_case(k, "matmul %dx%dx%dx%d %s%s%s%s%s", (int)r->batch, (int)r->m, (int)r->n, (int)r->k, r->tf32 ? "t" : "",
               cy_dtype_of(r->in)->name, r->a_transposed ? " A transposed" : "", r->b_transposed ? " B transposed" : "",
               r->symbolic == ROWS ? " rows symbolic"
               : r->symbolic       ? " symbolic"
                                   : "");
  q->machine.state = r->large ? &one_block : NULL;
  q->syms = calloc(64, sizeof *q->syms);
  cy_contraction *c = cy_kernel_contraction(k);
  c->kind = CY_CONTRACT_MATMUL;
  c->a = cy_kernel_add_arg(k, CY_ARG_READ, r->in, 0);
  c->b = cy_kernel_add_arg(k, CY_ARG_READ, i ? i->b : r->in, 0);
  cy_karg bias = cy_kernel_add_arg(k, CY_ARG_READ, r->acc, 0), y = cy_kernel_add_arg(k, CY_ARG_WRITE, r->acc, 0);
  bool few = r->symbolic && r->m <= CY_CUDA_FEW_ROWS; /* the compiler's kernel for few rows: never more than these */
  c->m = named("m", r->m, r->symbolic, q);
  c->m = few ? cy_dim_min(g, c->m, d(CY_CUDA_FEW_ROWS)) : c->m;
  c->n = d(r->n);
  c->k = named("k", r->k, r->symbolic == true && !few, q);
  c->nbatch = r->batch > 1;
  c->batch[0] = d(r->batch);
  c->a_batch[0] = cy_dim_mul(g, c->m, c->k);
  c->b_batch[0] = d(0);
  c->a_m = r->a_transposed ? d(1) : c->k;
  c->a_k = r->a_transposed ? c->m : d(1);
  c->b_k = r->b_transposed ? d(1) : c->n;
  c->b_n = r->b_transposed ? c->k : d(1);
  c->acc = cy_kernel_add_local(k, r->acc);
  if (c->nbatch)
    out_var(k, c, d(r->batch));
  out_var(k, c, c->m);
  out_var(k, c, c->n);
  bool adds = r->large == RESIDUAL;
  cy_karg residual = adds ? cy_kernel_add_arg(k, CY_ARG_READ, r->acc, 0) : 0;
  if (adds)
    q->elems[residual] = r->batch * r->m * r->n;
  epilogue(k, c, bias, y, adds ? &residual : NULL);
  set_elems(q, r->batch * r->m * r->k, r->k * r->n, r->n, r->batch * r->m * r->n);
  q->rtol = q->atol = r->acc == CY_F64 ? 1e-10 : 1e-3;
  if (r->tf32)
    allow_tf32(q, r->k);
  if (i)
    add_zeros(q, r->in, i, r->n);
}

/* B in integers with scales by blocks. */
typedef struct block_row {
  matmul_row row; /* b_transposed means nothing */
  int bits;
  int64_t block, tile; /* columns that lie together, 0: all */
  cy_dtype b;
  bool zeros;
} block_row;

static void add_blocks(const block_row *r, cy_dtype scale) {
  integers ints = {.b = r->b};
  add_matmul(&r->row, &ints);
  kernel_case *q = &cases[ncases - 1];
  cy_contraction *c = cy_kernel_contraction(q->k);
  size_t at = strlen(q->what);
  snprintf(q->what + at, sizeof q->what - at, " %d by %d%s", r->bits, (int)r->block, r->zeros ? " zeros" : "");
  c->b_bits = r->bits;
  c->b_block = r->block;
  c->b_middle = r->zeros || r->b == CY_I8 ? 0 : 1 << (r->bits - 1);
  c->b_k = d(r->tile ? r->tile : r->row.n);
  c->b_n = d(1);
  q->ints = false;
  q->lo = q->hi = 0;
  q->elems[c->b] = r->row.k * r->row.n * r->bits / 8;
  q->elems[c->b_scale = cy_kernel_add_arg(q->k, CY_ARG_READ, scale, 0)] = r->row.k / r->block * r->row.n;
  c->has_b_zero = r->zeros;
  if (r->zeros)
    q->elems[c->b_zero = cy_kernel_add_arg(q->k, CY_ARG_READ, CY_U8, 0)] = r->row.k / r->block * r->row.n;
  /* results are some 100, with zero points some 10000; weights are rounded */
  double unit = r->row.in == CY_BF16 ? 3 : r->row.in == CY_F16 || r->row.tf32 ? 0.4 : 2e-3;
  q->rtol = 0;
  q->atol = r->bits == 8 || r->zeros ? 16 * unit : unit;
}

#define TRANSPOSED CY_CONTRACT_CONV_TRANSPOSE
typedef struct conv_row {
  cy_contraction_kind kind;
  int64_t images, channels_in, channels_out, group;
  int nspatial;
  int64_t in[3], kernel[3], stride[3], dilation[3], pad[3];
  bool planar; /* channels outermost instead of innermost */
  cy_dtype dtype;
} conv_row;

static void conv_strides(cy_contraction *c, const conv_row *r, const int64_t *in) {
  int64_t area = 1, step = r->planar ? 1 : r->channels_in;
  for (int i = r->nspatial; i-- > 0; step *= in[i], area *= in[i])
    c->x_spatial[i] = d(step);
  c->x_channel = d(r->planar ? area : 1);
  c->x_image = d(area * r->channels_in);
}

static void add_conv(const conv_row *r, const integers *ints) {
  cy_kernel *k = cy_kernel_create(g, "conv");
  cy_contraction *c = cy_kernel_contraction(k);
  int64_t x = r->images * r->channels_in, w = r->channels_in * r->channels_out / r->group,
          out = r->images * r->channels_out;
  c->kind = r->kind;
  cy_dtype in = r->dtype, acc = ints && !cy_dtype_is_float(in) ? CY_I32 : CY_F32;
  c->a = cy_kernel_add_arg(k, CY_ARG_READ, in, 0);
  c->b = cy_kernel_add_arg(k, CY_ARG_READ, ints ? ints->b : in, 0);
  cy_karg bias = cy_kernel_add_arg(k, CY_ARG_READ, acc, 0), y = cy_kernel_add_arg(k, CY_ARG_WRITE, acc, 0);
  c->nspatial = r->nspatial;
  c->images = d(r->images);
  c->group = r->group;
  c->channels_in = d(r->channels_in);
  c->channels_out = d(r->channels_out);
  c->acc = cy_kernel_add_local(k, acc);
  c->b_const = true;
  out_var(k, c, c->images);
  for (int i = 0; i < r->nspatial; i++) {
    int64_t reach = (r->kernel[i] - 1) * r->dilation[i];
    int64_t n = r->kind == CY_CONTRACT_CONV ? (r->in[i] + 2 * r->pad[i] - reach - 1) / r->stride[i] + 1
                                            : (r->in[i] - 1) * r->stride[i] + reach + 1 - 2 * r->pad[i];
    c->in[i] = d(r->in[i]);
    c->out[i] = d(n);
    c->pad[i] = d(r->pad[i]);
    c->kernel[i] = r->kernel[i];
    c->stride[i] = r->stride[i];
    c->dilation[i] = r->dilation[i];
    x *= r->in[i];
    w *= r->kernel[i];
    out *= n;
    out_var(k, c, c->out[i]);
  }
  conv_strides(c, r, r->in);
  out_var(k, c, c->channels_out);
  epilogue(k, c, bias, y, NULL);
  kernel_case *q = add_case(k, "%s %dd %d -> %d group %d %s%s", r->kind == CY_CONTRACT_CONV ? "conv" : "conv_transpose",
                            r->nspatial, (int)r->channels_in, (int)r->channels_out, (int)r->group,
                            cy_dtype_of(in)->name, r->planar ? " planar" : "");
  q->machine.state = (in != CY_F32 && c->group == 1) || r->group == r->channels_in ? &one_block : NULL;
  set_elems(q, x, w, r->channels_out, out);
  q->rtol = q->atol = 1e-3;
  if (ints)
    add_zeros(q, in, ints, r->channels_out);
}

#include "tests/cuda/cases/matrix_cases.h"

/* Filters by the tap: [filter][tap][channel], as tensor maps and most tiles want them (packed.c packs those of
 * models); of transposed convolutions taps of a residue together. */
static void add_packed(kernel_case *q, cy_cuda_schedule *schedule) {
  const cy_contraction *c = cy_kernel_contraction(q->k);
  const cy_karg_info *args;
  const cy_cu_generator *generator = schedule->generator;
  int64_t channels, filters;
  if (schedule->transposed) {
    cy_kernel_args(q->k, &args);
    cy_dtype b = args[c->b].dtype;
    schedule->packed_k = cy_round_up(cy_dim_eval(g, c->k, q->syms), 128 / cy_dtype_of(b)->bits);
    schedule->packed_arg = cy_kernel_add_arg(q->k, CY_ARG_READ, b, 0);
    q->elems[schedule->packed_arg] = cy_dim_eval(g, c->n, q->syms) * schedule->packed_k;
    return;
  }
  bool transposed = c->kind == CY_CONTRACT_CONV_TRANSPOSE;
  if (!cy_cu_is_conv(c) ||
      (!schedule->tma_blocks &&
       ((c->group > 1 && !transposed) || !generator->wants_packed || !generator->wants_packed(schedule, q->k))) ||
      !cy_dim_is_const(g, c->channels_in, &channels) || !cy_dim_is_const(g, c->channels_out, &filters))
    return;
  cy_kernel_args(q->k, &args);
  int64_t taps = 1, chunk = 128 / cy_dtype_of(args[c->b].dtype)->bits;
  for (int i = 0; i < c->nspatial; i++)
    taps *= c->kernel[i];
  schedule->packed_k =
      transposed ? cy_cu_residue_row(c, channels / c->group, chunk) : (taps * channels + chunk - 1) / chunk * chunk;
  schedule->packed_arg = cy_kernel_add_arg(q->k, CY_ARG_READ, args[c->b].dtype, 0);
  q->elems[schedule->packed_arg] = filters * schedule->packed_k;
}

static void add_contractions(void) {
  static const matmul_row products[] = {
      {1, 5, 7, 9, false, false, false, CY_F32, CY_F32, false, false},
      {1, 64, 64, 33, true, true, false, CY_F32, CY_F32, false, false},
      {3, 40, 50, 17, false, true, false, CY_F32, CY_F32, false, false},
      {1, 70, 66, 40, false, false, true, CY_F32, CY_F32, false, false},
      {2, 33, 65, 24, true, false, false, CY_F64, CY_F64, false, false},
      {1, 37, 41, 50, false, false, false, CY_F16, CY_F32, false, false},
      {1, 20, 30, 64, false, true, true, CY_BF16, CY_F32, false, false},
      {40, 130, 150, 12, false, false, false, CY_F32, CY_F32, false, false},
      {12, 100, 100, 20, true, false, false, CY_F32, CY_F32, false, false},
      {1, 1, 10, 64, false, false, false, CY_F32, CY_F32, false, false},
      /* on the ordinary units, both factors along k: whole chunks or not, several tiles, shares of k */
      {1, 130, 136, 72, false, true, false, CY_F32, CY_F32, false, true},
      {2, 136, 64, 50, false, true, false, CY_F32, CY_F32, false, true},
      {3, 70, 66, 33, false, true, true, CY_F32, CY_F32, false, false},
      {1, 60, 40, 300, false, true, false, CY_F32, CY_F32, false, false},
      /* few tiles: blocks share k */
      {1, 34, 30, 300, false, false, false, CY_F32, CY_F32, false, false},
      {2, 20, 31, 200, true, false, false, CY_F64, CY_F64, false, false},
      {1, 32, 40, 700, false, false, false, CY_F16, CY_F32, false, false},
      {1, 30, 64, 431, true, true, false, CY_BF16, CY_F32, false, false},
      /* .. as many as the run wants, several or one */
      {1, 34, 64, 700, false, true, ROWS, CY_F16, CY_F32, false, false},
      {1, 100, 100, 300, false, false, ROWS, CY_BF16, CY_F32, false, true},
      {1, 300, 100, 300, false, false, ROWS, CY_F16, CY_F32, false, true},
      {3, 40, 30, 300, false, true, ROWS, CY_F32, CY_F32, false, false},
      {2, 34, 30, 200, false, true, ROWS, CY_F64, CY_F64, false, false},
      /* few rows: the matrix contiguous along n and along k, whole chunks or not */
      {1, 1, 100, 300, false, false, false, CY_F32, CY_F32, false, false},
      {1, 4, 264, 129, false, false, false, CY_F16, CY_F32, false, false},
      {3, 2, 67, 70, false, false, true, CY_BF16, CY_F32, false, false},
      {1, 1, 1030, 96, false, false, false, CY_F32, CY_F32, false, true},
      {1, 1, 100, 300, false, true, false, CY_F32, CY_F32, false, false},
      {1, 3, 41, 1100, false, true, false, CY_F16, CY_F32, false, false},
      {2, 4, 70, 99, true, true, false, CY_BF16, CY_F32, false, false},
      {1, 1, 200, 512, false, true, false, CY_F16, CY_F32, false, true},
      /* by matrix instructions: whole chunks or not, both ways round, several tiles */
      {1, 200, 136, 256, false, false, false, CY_F16, CY_F32, false, false},
      {1, 136, 200, 72, false, true, false, CY_F16, CY_F32, false, false},
      {1, 72, 64, 40, true, false, false, CY_F16, CY_F32, false, false},
      {2, 33, 64, 100, true, true, true, CY_F16, CY_F32, false, false},
      {1, 65, 130, 33, false, false, true, CY_BF16, CY_F32, false, false},
      {1, 200, 136, 72, false, false, false, CY_BF16, CY_F32, false, true},
      {1, 130, 136, 40, false, true, false, CY_F16, CY_F32, false, true},
      {1, 136, 136, 200, true, false, false, CY_F16, CY_F32, false, true},
      {1, 136, 80, 200, true, true, true, CY_BF16, CY_F32, false, true},
      {2, 136, 64, 50, false, false, false, CY_F16, CY_F32, false, true},
      {1, 64, 64, 104, true, true, false, CY_BF16, CY_F32, false, true},
      {1, 60, 64, 37, false, false, false, CY_F16, CY_F32, false, true},
      {1, 130, 130, 100, false, true, false, CY_F32, CY_F32, true, true},
      {3, 50, 72, 24, false, true, false, CY_BF16, CY_F32, false, false},
      {1, 70, 72, 60, false, false, false, CY_F32, CY_F32, true, false},
      {2, 70, 66, 33, true, true, true, CY_F32, CY_F32, true, false},
      {1, 5, 7, 9, false, false, false, CY_F16, CY_F32, false, false},
      /* few columns: rows that end inside of a chunk, whole ones, columns of B, shares of k */
      {1, 300, 3, 50, false, true, false, CY_F32, CY_F32, false, false},
      {2, 140, 8, 64, false, false, true, CY_F32, CY_F32, false, false},
      {1, 600, 2, 90, false, true, false, CY_F16, CY_F32, false, false},
      {1, 40, 5, 2600, false, true, false, CY_F32, CY_F32, false, false},
      {1, 200, 12, 72, false, true, false, CY_F16, CY_F32, false, true},
      {1, 130, 30, 72, false, true, false, CY_BF16, CY_F32, false, true},
      {1, 200, 15, 72, false, true, false, CY_F32, CY_F32, false, true},
      /* tiles by words: of whole ones or not, both ways round */
      {1, 66, 70, 61, true, false, false, CY_F16, CY_F32, false, true},
      {1, 67, 71, 40, true, true, false, CY_BF16, CY_F32, false, false},
      {3, 130, 70, 51, false, true, false, CY_F32, CY_F32, true, true},
  };
  for (size_t i = 0; i < CHECK_COUNT(products); i++)
    add_matmul(&products[i], NULL);
  /* few rows and columns of constants: packed along k; whole chunks or not, warps without any, several rows, products */
  static const matmul_row transposed[] = {
      {1, 1, 40, 300, false, false, false, CY_F16, CY_F32, false, false},
      {1, 3, 33, 77, false, false, false, CY_BF16, CY_F32, false, false},
      {1, 4, 70, 2100, false, false, false, CY_F32, CY_F32, false, false},
      {3, 2, 24, 130, false, false, false, CY_F16, CY_F32, false, false},
  };
  for (size_t i = 0; i < CHECK_COUNT(transposed); i++) {
    add_matmul(&transposed[i], NULL);
    cy_kernel_contraction(cases[ncases - 1].k)->b_const = true;
  }
  static const conv_row convs[] = {
      {CY_CONTRACT_CONV, 2, 3, 20, 1, 2, {9, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false, CY_F32},
      {CY_CONTRACT_CONV, 1, 16, 24, 2, 2, {7, 7}, {3, 2}, {2, 1}, {1, 2}, {1, 0}, true, CY_F32},
      {CY_CONTRACT_CONV, 1, 8, 40, 1, 2, {12, 12}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, false, CY_F32},
      {CY_CONTRACT_CONV, 2, 8, 40, 1, 2, {12, 13}, {3, 3}, {2, 1}, {1, 2}, {1, 2}, false, CY_F32},
      {CY_CONTRACT_CONV, 1, 16, 72, 1, 3, {3, 5, 4}, {2, 3, 1}, {1, 2, 1}, {1, 1, 1}, {1, 1, 0}, false, CY_F32},
      {CY_CONTRACT_CONV_TRANSPOSE, 1, 8, 24, 1, 2, {5, 6}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, false, CY_F32},
      {CY_CONTRACT_CONV, 2, 5, 6, 1, 1, {20}, {5}, {2}, {1}, {2}, false, CY_F32},
      {CY_CONTRACT_CONV, 1, 2, 9, 1, 3, {4, 5, 6}, {2, 3, 2}, {1, 1, 2}, {1, 1, 1}, {0, 1, 0}, false, CY_F32},
      {CY_CONTRACT_CONV, 1, 72, 30, 1, 2, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, false, CY_F32},
      {CY_CONTRACT_CONV, 3, 65, 30, 1, 2, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, false, CY_F16},
      {CY_CONTRACT_CONV, 2, 3, 20, 1, 2, {9, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false, CY_F16},
      {CY_CONTRACT_CONV, 1, 16, 40, 1, 2, {14, 13}, {3, 3}, {2, 1}, {1, 2}, {1, 2}, false, CY_F16},
      {CY_CONTRACT_CONV, 1, 48, 72, 1, 2, {9, 9}, {1, 1}, {2, 1}, {1, 1}, {0, 0}, false, CY_BF16},
      {CY_CONTRACT_CONV, 1, 32, 48, 2, 1, {40}, {5}, {1}, {2}, {4}, false, CY_F16},
      {CY_CONTRACT_CONV, 2, 16, 24, 1, 2, {7, 7}, {3, 2}, {2, 1}, {1, 2}, {1, 0}, true, CY_BF16},
      {CY_CONTRACT_CONV, 1, 3, 33, 1, 2, {18, 40}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, true, CY_F16},
      {CY_CONTRACT_CONV, 1, 3, 40, 1, 2, {14, 77}, {5, 5}, {2, 2}, {1, 1}, {2, 2}, true, CY_F32},
      {CY_CONTRACT_CONV, 1, 20, 33, 1, 2, {9, 17}, {3, 3}, {2, 1}, {1, 1}, {1, 1}, false, CY_F16},
      {CY_CONTRACT_CONV_TRANSPOSE, 1, 16, 24, 1, 2, {5, 6}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, false, CY_F16},
      {CY_CONTRACT_CONV, 2, 40, 24, 2, 2, {9, 7}, {3, 3}, {1, 2}, {1, 1}, {1, 1}, false, CY_F16},
      {CY_CONTRACT_CONV, 1, 9, 24, 1, 3, {4, 5, 6}, {2, 3, 2}, {1, 1, 2}, {1, 1, 1}, {0, 1, 0}, false, CY_F32},
      {CY_CONTRACT_CONV_TRANSPOSE, 1, 18, 24, 1, 2, {5, 6}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, false, CY_BF16},
      {CY_CONTRACT_CONV_TRANSPOSE, 1, 6, 10, 1, 2, {5, 6}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, false, CY_F32},
      {CY_CONTRACT_CONV_TRANSPOSE, 2, 4, 16, 2, 2, {4, 4}, {2, 3}, {1, 3}, {2, 1}, {0, 1}, true, CY_F32},
      /* residues: sizes that strides divide or not, dilations with a divisor of the stride, strides beyond the kernel, residues
         without taps, as many taps in all, shares of k, several tiles */
      {CY_CONTRACT_CONV_TRANSPOSE, 2, 16, 40, 1, 2, {7, 9}, {4, 4}, {2, 2}, {1, 1}, {1, 1}, false, CY_F16},
      {CY_CONTRACT_CONV_TRANSPOSE, 1, 16, 24, 1, 2, {5, 6}, {3, 3}, {2, 4}, {2, 6}, {1, 3}, false, CY_F16},
      {CY_CONTRACT_CONV_TRANSPOSE, 1, 12, 33, 1, 2, {5, 4}, {2, 1}, {3, 2}, {1, 1}, {0, 0}, false, CY_BF16},
      {TRANSPOSED, 2, 32, 16, 1, 3, {3, 4, 5}, {3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}, false, CY_F16},
      {TRANSPOSED, 1, 8, 40, 1, 3, {3, 2, 5}, {3, 2, 3}, {2, 2, 1}, {1, 1, 2}, {1, 0, 2}, false, CY_F32},
      {CY_CONTRACT_CONV_TRANSPOSE, 1, 320, 24, 1, 1, {12}, {4}, {2}, {1}, {1}, false, CY_F32},
      {CY_CONTRACT_CONV_TRANSPOSE, 1, 20, 48, 2, 1, {40}, {5}, {3}, {2}, {4}, false, CY_F16},
      {CY_CONTRACT_CONV_TRANSPOSE, 1, 8, 16, 2, 2, {6, 5}, {5, 2}, {3, 2}, {1, 1}, {2, 0}, false, CY_F32},
      /* few result channels, on the ordinary units: of every type, all that is odd */
      {CY_CONTRACT_CONV, 2, 16, 3, 1, 2, {12, 13}, {3, 3}, {2, 1}, {1, 2}, {1, 2}, false, CY_F32},
      {CY_CONTRACT_CONV, 1, 16, 1, 1, 3, {9, 8, 10}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, false, CY_F16},
      {CY_CONTRACT_CONV, 1, 520, 4, 1, 1, {20}, {2}, {1}, {1}, {0}, false, CY_BF16},
      {TRANSPOSED, 1, 32, 2, 1, 3, {6, 5, 4}, {3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}, false, CY_F16},
      {CY_CONTRACT_CONV_TRANSPOSE, 2, 16, 12, 2, 2, {6, 5}, {4, 2}, {2, 2}, {1, 1}, {1, 0}, false, CY_F32},
      {CY_CONTRACT_CONV_TRANSPOSE, 1, 8, 7, 1, 2, {6, 5}, {2, 2}, {3, 2}, {1, 1}, {0, 0}, false, CY_BF16},
      /* .. and as many as small tiles of matrix instructions have */
      {CY_CONTRACT_CONV, 1, 32, 10, 1, 2, {14, 13}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false, CY_F16},
      {CY_CONTRACT_CONV, 1, 16, 30, 1, 2, {14, 13}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false, CY_BF16},
      {CY_CONTRACT_CONV, 2, 16, 16, 1, 2, {14, 13}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false, CY_F32},
      {CY_CONTRACT_CONV, 1, 20, 13, 1, 2, {14, 13}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false, CY_F32},
      /* a filter for every channel: whole chunks or not, pieces of several sizes */
      {CY_CONTRACT_CONV, 2, 24, 24, 24, 2, {9, 11}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false, CY_F32},
      {CY_CONTRACT_CONV, 1, 16, 16, 16, 2, {13, 12}, {5, 5}, {2, 2}, {1, 1}, {2, 2}, false, CY_F16},
      {CY_CONTRACT_CONV, 1, 21, 21, 21, 2, {8, 9}, {3, 2}, {2, 1}, {1, 1}, {1, 0}, false, CY_F32},
      {CY_CONTRACT_CONV, 1, 8, 8, 8, 2, {14, 13}, {3, 3}, {1, 1}, {3, 2}, {3, 2}, false, CY_BF16},
      {CY_CONTRACT_CONV, 2, 12, 12, 12, 1, {30}, {7}, {1}, {1}, {3}, false, CY_F32},
  };
  for (size_t i = 0; i < CHECK_COUNT(convs); i++)
    add_conv(&convs[i], NULL);
}

/* Weights in integers: few rows, tiles on the ordinary units and by matrix instructions, blocks that lie across two tiles
 * and such that no tile takes. */
static void add_integer_weights(void) {
  static const block_row rows[] = {
      {{1, 1, 100, 128, false, false, false, CY_F32, CY_F32, false, false}, 4, 32, 0, CY_U8, false},
      {{1, 3, 64, 256, false, false, false, CY_F16, CY_F32, false, false}, 4, 128, 64, CY_U8, true},
      {{1, 3, 128, 256, false, false, true, CY_F16, CY_F32, false, false}, 4, 32, 64, CY_U8, true},
      {{1, 2, 130, 256, false, false, true, CY_F32, CY_F32, false, false}, 8, 64, 0, CY_I8, false},
      {{1, 1, 67, 128, false, false, false, CY_F32, CY_F32, false, false}, 8, 128, 0, CY_I8, false},
      {{1, 4, 130, 320, true, false, false, CY_BF16, CY_F32, false, true}, 8, 32, 0, CY_U8, true},
      {{1, 130, 72, 128, false, false, false, CY_F32, CY_F32, false, true}, 4, 64, 0, CY_U8, true},
      {{2, 17, 33, 128, false, false, true, CY_F32, CY_F32, false, false}, 8, 128, 0, CY_I8, false},
      {{1, 17, 64, 256, false, false, false, CY_F32, CY_F32, false, false}, 4, 32, 64, CY_U8, false},
      {{1, 3, 30, 100, true, false, false, CY_F16, CY_F32, false, false}, 4, 100, 0, CY_U8, true},
      {{1, 66, 72, 96, false, false, false, CY_F32, CY_F32, true, true}, 4, 32, 0, CY_U8, false},
      {{1, 130, 72, 160, false, false, false, CY_F16, CY_F32, false, true}, 4, 32, 0, CY_U8, false},
      {{2, 66, 72, 128, true, false, true, CY_F16, CY_F32, false, true}, 4, 128, 0, CY_U8, true},
      {{1, 72, 66, 128, false, false, false, CY_BF16, CY_F32, false, true}, 8, 128, 0, CY_I8, false},
      {{1, 34, 40, 80, false, false, false, CY_F16, CY_F32, false, false}, 4, 16, 0, CY_U8, true},
      {{1, 3, 64, 1088, false, false, false, CY_F16, CY_F32, false, false}, 4, 32, 64, CY_U8, true},
  };
  for (size_t i = 0; i < CHECK_COUNT(rows); i++)
    add_blocks(&rows[i], CY_F32);
}

/* .. in floats: NVFP4, MXFP4, MXFP8, and by columns. Scales are positive, as those of f8e8m0 must be. */
static void add_float_weights(void) {
  static const struct {
    block_row row;
    cy_dtype codes, scale;
  } rows[] = {
      {{{1, 1, 100, 128, false, false, false, CY_F32, CY_F32, false, false}, 4, 16, 0, CY_U8, false},
       CY_F4E2M1,
       CY_F8E4M3FN},
      {{{1, 3, 64, 256, false, false, false, CY_F16, CY_F32, false, false}, 4, 32, 64, CY_U8, false},
       CY_F4E2M1,
       CY_F8E8M0},
      {{{1, 2, 130, 256, false, false, true, CY_BF16, CY_F32, false, false}, 8, 32, 0, CY_F8E4M3FN, false},
       CY_F8E4M3FN,
       CY_F8E8M0},
      {{{1, 130, 72, 128, false, false, false, CY_F32, CY_F32, false, true}, 4, 16, 0, CY_U8, false},
       CY_F4E2M1,
       CY_F32},
      {{{1, 130, 72, 160, false, false, false, CY_F16, CY_F32, false, true}, 4, 32, 0, CY_U8, false},
       CY_F4E2M1,
       CY_F8E8M0},
      {{{1, 72, 66, 128, false, false, false, CY_BF16, CY_F32, false, true}, 8, 128, 0, CY_F8E5M2, false},
       CY_F8E5M2,
       CY_F16},
      {{{1, 66, 72, 96, false, false, false, CY_F32, CY_F32, true, true}, 8, 32, 0, CY_F8E4M3FN, false},
       CY_F8E4M3FN,
       CY_BF16},
      {{{2, 17, 33, 128, false, false, true, CY_F32, CY_F32, false, false}, 4, 16, 0, CY_U8, false},
       CY_F4E2M1,
       CY_F8E4M3FN},
      {{{1, 17, 64, 256, false, false, false, CY_F32, CY_F32, false, false}, 8, 32, 64, CY_F8E5M2, false},
       CY_F8E5M2,
       CY_F32},
  };
  for (size_t i = 0; i < CHECK_COUNT(rows); i++) {
    add_blocks(&rows[i].row, rows[i].scale);
    kernel_case *q = &cases[ncases - 1];
    size_t at = strlen(q->what);
    snprintf(q->what + at, sizeof q->what - at, " %s", cy_dtype_of(rows[i].codes)->name);
    cy_contraction *c = cy_kernel_contraction(q->k);
    c->b_codes = rows[i].codes == CY_F4E2M1 ? CY_F4E2M1 : CY_NONE;
    c->b_middle = 0;
    q->lo = 0.25;
    q->hi = 2;
    q->rtol = rows[i].row.row.in == CY_F32 && !rows[i].row.row.tf32 ? 1e-4 : 1e-2;
  }
}

#include "tests/cuda/cases/attention_cases.h"

static cy_graph *searches;

/* What operators that sort and search become. They want contents that fit each other: search_test.c runs them. */
static void add_searches(void) {
  static const char text[] =
      "sym a = count(%n, 1)\nsym b = count(%u, 0)\nsym c = count(%p, 0)\ngraph @g(%x: f32[2,n], %y: f32[2,90000], "
      "%z: f64[900], %b: f32[2,700,4], %s: f32[2,3,700]) {\n  @most = const i64[1] {1100}\n"
      "  @iou = const f32[1] {0.5}\n  %v, %i = topk %x {axis=1, largest=1, sorted=1} : f32[2,9], i64[2,9]\n"
      "  %n = nonzero %y : i64[2,a]\n  %u, %f, %g, %h = unique %z {sorted=0} : f64[b], i64[b], i64[900], i64[b]\n"
      "  %p = non_max_suppression %b, %s, @most, @iou {center_point_box=1} : i64[c,3]\n"
      "  return %v, %i, %n, %u, %f, %g, %h, %p\n}\n";
  const cy_target_caps device = {.device = true};
  const cy_lower_options options = {.level = 2, .caps = &device, .verify = true};
  searches = cy_graph_parse(text, strlen(text), "searches", cy_graph_diag(g));
  cy_program *p = searches ? cy_lower(searches, &options) : NULL;
  if (!p)
    abort();
  for (uint32_t i = 0; i < p->nkernels; i++)
    add_case(p->kernels[i], "search %s", cy_kernel_name(p->kernels[i]));
}

/* y[clamp(at[e])] of an item's own column = u[e], or one operation of both (op; CY_OP_identity: none), turn after turn. */
static cy_kernel *scatter_kernel(cy_dim items, cy_dim outer, int64_t inner, int64_t places, cy_dtype type, cy_op op) {
  cy_kernel *k = cy_kernel_create(g, "scatter");
  cy_karg at = cy_kernel_add_arg(k, CY_ARG_READ, CY_I64, 0), u = cy_kernel_add_arg(k, CY_ARG_READ, type, 0);
  cy_karg y = cy_kernel_add_arg(k, CY_ARG_WRITE, type, 0);
  cy_var item = cy_kernel_add_var(k, items), e1 = cy_kernel_add_var(k, outer), e2 = cy_kernel_add_var(k, d(inner));
  cy_kernel_add_grid(k, item);
  cy_kernel_for(k, e1, false);
  cy_kernel_for(k, e2, false);
  cy_expr turn = sum(k, cy_x_bin(k, CY_OP_mul, var(k, e1), cy_x_index(k, inner)), var(k, e2));
  cy_expr place = cy_x_bin(k, CY_OP_max, cy_x_load(k, at, turn), cy_x_index(k, 0)), width = cy_x_dim(k, items);
  place = cy_x_bin(k, CY_OP_min, place, cy_x_index(k, places - 1));
  cy_expr to = sum(k, cy_x_bin(k, CY_OP_mul, place, width), var(k, item));
  cy_expr value = cy_x_load(k, u, sum(k, cy_x_bin(k, CY_OP_mul, turn, width), var(k, item)));
  cy_dtype wide = type == CY_F16 || type == CY_BF16 ? CY_F32 : type;
  value = cy_x_cast(k, value, wide);
  if (op != CY_OP_identity)
    value = cy_x_bin(k, op, cy_x_cast(k, cy_x_load(k, y, to), wide), value);
  cy_kernel_store(k, y, to, value);
  cy_kernel_end(k);
  cy_kernel_end(k);
  return k;
}

/* One item, few, and so many that neighbours share a block; every element hit once or so, many hit often, one only. Bits
 * are those of iterations in their order. */
static void add_scatters(void) {
  static const struct {
    int64_t items, outer, inner, places;
    bool symbolic;
    cy_dtype type;
    cy_op op;
  } rows[] = {{1, 70, 30, 40, false, CY_F32, CY_OP_add},    {3, 1100, 1, 1500, true, CY_F16, CY_OP_add},
              {2, 33, 5, 7, false, CY_I32, CY_OP_identity}, {1028, 45, 3, 9, false, CY_F32, CY_OP_mul},
              {1, 1, 1300, 1, true, CY_BF16, CY_OP_add},    {1030, 70, 1, 50, false, CY_U8, CY_OP_identity},
              {1, 200, 2, 90, false, CY_F64, CY_OP_max},    {5, 300, 1, 30, false, CY_I64, CY_OP_add}};
  cy_sym items = cy_sym_by_name(g, "rows"), iterations = cy_sym_by_name(g, "cols");
  for (size_t i = 0; i < CHECK_COUNT(rows); i++) {
    int64_t all = rows[i].outer * rows[i].inner;
    cy_dim tasks = rows[i].symbolic ? cy_dim_sym(g, items) : d(rows[i].items);
    cy_dim outer = rows[i].symbolic ? cy_dim_sym(g, iterations) : d(rows[i].outer);
    cy_kernel *k = scatter_kernel(tasks, outer, rows[i].inner, rows[i].places, rows[i].type, rows[i].op);
    kernel_case *q = add_case(k, "scatter %s %s %dx%d", cy_op_of(rows[i].op)->name, cy_dtype_of(rows[i].type)->name,
                              (int)rows[i].items, (int)all);
    q->syms = calloc(64, sizeof *q->syms);
    q->syms[items] = rows[i].items;
    q->syms[iterations] = rows[i].outer;
    set_elems(q, all, all * rows[i].items, rows[i].places * rows[i].items, 0);
    q->rtol = 0;
    q->ints = true;
    q->lo = -1;
    q->hi = (double)rows[i].places + 1;
    q->before = 0x3f;
  }
}

static void add_all_cases(void) {
  add_ops();
  add_casts();
  add_strides();
  add_crossings();
  add_reductions();
  add_softmax();
  add_rows();
  set_elems(add_case(index_kernel(), "index"), 150, 50, 250, 250);
  set_elems(add_case(window_kernel(), "window"), 120, 6 * 19, 0, 0);
  add_searches();
  add_contractions();
  add_tensors();
  add_pingpong();
  add_integers();
  add_rounded();
  add_float8();
  add_integer_weights();
  add_float_weights();
  add_attentions();
  add_scatters();
  add_angles();
  add_varying_attentions();
}

static void schedule_cases(void) {
  for (int i = 0; i < ncases; i++) {
    cy_cuda_schedule *schedule = cy_cuda_schedule_make(&cases[i].machine, cases[i].k);
    add_packed(&cases[i], schedule);
    cy_cuda_split_prepare(cases[i].k, schedule);
    if (schedule->shares)
      cases[i].elems[schedule->share_arg] = schedule->share_elems;
    cases[i].schedule = schedule;
  }
}

/* Prints case i as function case<i>. */
static void print_case(FILE *f, int i) {
  char symbol[32];
  snprintf(symbol, sizeof symbol, "case%d", i);
  cy_cuda_print(f, cases[i].k, cases[i].schedule, symbol);
}

static void free_cases(void) {
  for (int i = 0; i < ncases; i++)
    free(cases[i].syms);
  cy_graph_destroy(searches);
}

#endif
