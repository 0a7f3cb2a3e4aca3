/* SPDX-License-Identifier: Apache-2.0 */
/* fold.c - computes what depends on constants only, at any size: scaled, transposed, sliced, dequantised weights.
 *
 * In:  a swept graph. Out: no element-wise op, view, reduction, quantisation, gather, softmax or matrix product of
 * f32 (up to MAX_PRODUCTS multiplications) that depends on constants alone; nor top-k, running sum or picked elements of
 * constants (fold_search.c). Left alone are results much larger than
 * their inputs, as an expanded constant is cheaper to expand again than to store (but the weights of a convolution are
 * computed), and large biases of attention, made of masks and tables. Tables are computed up to TABLE_BYTES: sines,
 * powers and the like of constants and indices (the waves of a Fourier transform, positions, a resampler's filters) are
 * cheaper to read than to compute.
 *
 * Pass `fold_quantised` computes only what stands in front of quantize and dequantize: scales, and weights in floats
 * with both ops behind them, as quantisation-aware training exports them. `fold` would make floats of these weights.
 *
 * Small ones are folded while building (cy_fold_small); here sizes matter. Results are split into rows along the last
 * axis, and rows among threads. Common cases (f32 arithmetic, views of whole elements) run as plain loops, the rest
 * through cy_scalar_eval(), so that every dtype rounds as the interpreter does. Results live as long as the graph, but
 * for those of which only other results are made (a weight normalisation, spelled out, makes four of each weight). A
 * reshape shares its bytes.
 */
#include "pass_int.h"
#include "passes/quantise/quantise_int.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum {
  MAX_THREADS = 16,
  WORK_PER_THREAD = 1 << 16,
  GROWTH_FREE = 1 << 16,
  LARGE_BIAS = 1 << 20,
  TABLE_BYTES = 1 << 25,
  LARGE_WEIGHTS = 1 << 24,
  MAX_PRODUCTS = 1 << 28,
  COSTLY = 8 /* operations per element */
};
static const uint64_t max_bytes = (uint64_t)4 << 30;

/* An operand as seen from the output: element = offset + sum of index * stride. */
typedef struct operand {
  const unsigned char *bytes;
  cy_dtype dtype;
  int64_t offset, stride[CY_MAX_RANK];
} operand;

typedef struct job {
  cy_op op;
  int rank;                      /* of the output */
  int64_t dim[CY_MAX_RANK], row; /* row: elements along the last axis */
  uint64_t rows;
  int nin;
  operand in[3];
  unsigned char *out;
  cy_dtype dtype;
  int nred; /* reductions: extents and strides of what is combined */
  int64_t red_dim[CY_MAX_RANK], red_stride[CY_MAX_RANK], red_count;
  void (*run_row)(const struct job *j, uint64_t first, const int64_t *at); /* at: element offset of each operand */
} job;

/* ---- threads ---------------------------------------------------------------------------------------------------- */

static void run_rows(const job *j, uint64_t begin, uint64_t end) {
  for (uint64_t r = begin; r < end; r++) {
    int64_t at[3];
    for (int k = 0; k < j->nin; k++) {
      uint64_t rest = r;
      at[k] = j->in[k].offset;
      for (int i = j->rank - 2; i >= 0; i--) {
        at[k] += (int64_t)(rest % (uint64_t)j->dim[i]) * j->in[k].stride[i];
        rest /= (uint64_t)j->dim[i];
      }
    }
    j->run_row(j, r * (uint64_t)j->row, at);
  }
}

typedef struct share {
  const job *j;
  uint64_t begin, end;
} share;

static void *thread_main(void *arg) {
  const share *s = arg;
  run_rows(s->j, s->begin, s->end);
  return NULL;
}

static void run_job(const job *j) {
  uint64_t work = j->rows * (uint64_t)j->row * (uint64_t)(j->nred ? j->red_count : 1);
  long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  uint64_t n = work / WORK_PER_THREAD;
  if (n > (uint64_t)cpus)
    n = (uint64_t)cpus;
  if (n > MAX_THREADS)
    n = MAX_THREADS;
  if (n > j->rows)
    n = j->rows;
  if (cy_dtype_of(j->dtype)->bits < 8) /* rows may share a byte */
    n = 1;
  pthread_t thread[MAX_THREADS];
  bool started[MAX_THREADS] = {false};
  share s[MAX_THREADS];
  for (uint64_t t = 1; t < n; t++) {
    s[t] = (share){j, j->rows * t / n, j->rows * (t + 1) / n};
    started[t] = !pthread_create(&thread[t], NULL, thread_main, &s[t]);
  }
  run_rows(j, 0, n > 1 ? j->rows / n : j->rows);
  for (uint64_t t = 1; t < n; t++) {
    if (started[t])
      pthread_join(thread[t], NULL);
    else
      run_rows(j, s[t].begin, s[t].end);
  }
}

/* ---- rows ------------------------------------------------------------------------------------------------------- */

static void copy_row(const job *j, uint64_t first, const int64_t *at) {
  size_t size = (size_t)cy_dtype_of(j->dtype)->bits / 8;
  int64_t step = j->in[0].stride[j->rank - 1];
  const unsigned char *from = j->in[0].bytes + at[0] * (int64_t)size;
  unsigned char *to = j->out + first * size;
  if (step == 1) {
    memcpy(to, from, (size_t)j->row * size);
  } else if (size == 4) {
    for (int64_t i = 0; i < j->row; i++)
      memcpy(to + i * 4, from + i * step * 4, 4);
  } else {
    for (int64_t i = 0; i < j->row; i++)
      memcpy(to + (size_t)i * size, from + i * step * (int64_t)size, size);
  }
}

/* f32 sums, differences, products, quotients */
static void arith_row(const job *j, uint64_t first, const int64_t *at) {
  const cy_data_f32 *a = (const cy_data_f32 *)(const void *)j->in[0].bytes + at[0],
                    *b = (const cy_data_f32 *)(const void *)j->in[1].bytes + at[1];
  int64_t sa = j->in[0].stride[j->rank - 1], sb = j->in[1].stride[j->rank - 1];
  float *out = (float *)(void *)j->out + first;
  for (int64_t i = 0; i < j->row; i++) {
    float x = a[i * sa], y = b[i * sb];
    out[i] = j->op == CY_OP_add ? x + y : j->op == CY_OP_sub ? x - y : j->op == CY_OP_mul ? x * y : x / y;
  }
}

static void scalar_row(const job *j, uint64_t first, const int64_t *at) {
  cy_dtype in_dtype = j->in[j->op == CY_OP_select ? 1 : 0].dtype;
  for (int64_t i = 0; i < j->row; i++) {
    cy_scalar args[3];
    for (int k = 0; k < j->nin; k++)
      args[k] = cy_scalar_load(j->in[k].bytes, j->in[k].dtype, (uint64_t)(at[k] + i * j->in[k].stride[j->rank - 1]));
    cy_scalar_store(j->out, j->dtype, first + (uint64_t)i, cy_scalar_eval(j->op, in_dtype, j->dtype, args));
  }
}

/* Operand 0 counts along the axis: its stride is 1 there and 0 elsewhere, and it has no bytes. */
static void iota_row(const job *j, uint64_t first, const int64_t *at) {
  for (int64_t i = 0; i < j->row; i++) {
    int64_t v = at[0] + i * j->in[0].stride[j->rank - 1];
    cy_scalar s = {.i = v};
    if (cy_dtype_is_float(j->dtype))
      s.f = (double)v;
    cy_scalar_store(j->out, j->dtype, first + (uint64_t)i, s);
  }
}

static double as_double(cy_dtype t, cy_scalar s) {
  return cy_dtype_is_float(t) ? s.f : cy_dtype_of(t)->cls == 'U' ? (double)s.u : (double)s.i;
}

/* (x - zero point) * scale: the difference is exact, the product rounds once to the output type */
static void dequantize_row(const job *j, uint64_t first, const int64_t *at) {
  for (int64_t i = 0; i < j->row; i++) {
    double v[3] = {0};
    for (int k = 0; k < j->nin; k++) {
      uint64_t index = (uint64_t)(at[k] + i * j->in[k].stride[j->rank - 1]);
      v[k] = as_double(j->in[k].dtype, cy_scalar_load(j->in[k].bytes, j->in[k].dtype, index));
    }
    cy_scalar r = {.f = (double)((float)(v[0] - v[2]) * (float)v[1])};
    cy_scalar_store(j->out, j->dtype, first + (uint64_t)i, r);
  }
}

/* round(x / scale) + zero point, clamped to the range of the output's type; a bound stands for NaN */
static void quantize_row(const job *j, uint64_t first, const int64_t *at) {
  double low, high;
  cy_dtype_int_range(j->dtype, &low, &high);
  for (int64_t i = 0; i < j->row; i++) {
    double v[3] = {0};
    for (int k = 0; k < j->nin; k++) {
      uint64_t index = (uint64_t)(at[k] + i * j->in[k].stride[j->rank - 1]);
      v[k] = as_double(j->in[k].dtype, cy_scalar_load(j->in[k].bytes, j->in[k].dtype, index));
    }
    double q = (double)rintf((float)v[0] / (float)v[1]) + v[2];
    q = q > low ? fmin(q, high) : low;
    cy_scalar_store(j->out, j->dtype, first + (uint64_t)i, (cy_scalar){.i = (int64_t)q});
  }
}

static double combine(cy_op op, double a, double b) {
  switch (op) {
  case CY_OP_add:
    return a + b;
  case CY_OP_mul:
    return a * b;
  case CY_OP_min:
    return isnan(a) || a < b ? a : b;
  default:
    return isnan(a) || a > b ? a : b;
  }
}

enum { STRIP = 256 };

static double load_float(const operand *x, int64_t at) {
  return x->dtype == CY_F32 ? ((const cy_data_f32 *)(const void *)x->bytes)[at]
                            : cy_scalar_load(x->bytes, x->dtype, (uint64_t)at).f;
}

/* Reductions of floats, accumulated in double: strips of a row at a time, so that memory is read in its own order. */
static void reduce_row(const job *j, uint64_t first, const int64_t *at) {
  const operand *x = &j->in[0];
  cy_op op = cy_op_combines_by(j->op);
  double acc[STRIP];
  for (int64_t begin = 0; begin < j->row; begin += STRIP) {
    int64_t n = j->row - begin < STRIP ? j->row - begin : STRIP, step = x->stride[j->rank - 1];
    for (int64_t r = 0; r < j->red_count; r++) {
      int64_t rest = r, o = at[0] + begin * step;
      for (int k = j->nred - 1; k >= 0; k--) {
        o += rest % j->red_dim[k] * j->red_stride[k];
        rest /= j->red_dim[k];
      }
      for (int64_t i = 0; i < n; i++) {
        double v = load_float(x, o + i * step);
        acc[i] = r ? combine(op, acc[i], v) : v;
      }
    }
    for (int64_t i = 0; i < n; i++)
      cy_scalar_store(j->out, j->dtype, first + (uint64_t)(begin + i), (cy_scalar){.f = acc[i]});
  }
}

/* Operand 1 is the matrix on the right; red_stride[k] is operand k's step along the axis that is summed over. */
static void product_row(const job *j, uint64_t first, const int64_t *at) {
  const cy_data_f32 *a = (const cy_data_f32 *)(const void *)j->in[0].bytes + at[0],
                    *b = (const cy_data_f32 *)(const void *)j->in[1].bytes + at[1];
  float *out = (float *)(void *)j->out + first;
  for (int64_t begin = 0; begin < j->row; begin += STRIP) {
    int64_t n = j->row - begin < STRIP ? j->row - begin : STRIP;
    double acc[STRIP] = {0};
    for (int64_t k = 0; k < j->red_count; k++) {
      double x = a[k * j->red_stride[0]];
      const cy_data_f32 *row = b + k * j->red_stride[1] + begin;
      for (int64_t i = 0; i < n; i++)
        acc[i] += x * (double)row[i];
    }
    for (int64_t i = 0; i < n; i++)
      out[begin + i] = (float)acc[i];
  }
}

/* Rows run along the axis of the softmax, wherever it stands; operand 1 is where they are written. */
static void softmax_row(const job *j, uint64_t first, const int64_t *at) {
  (void)first;
  int64_t step = j->in[0].stride[j->rank - 1];
  double greatest = load_float(&j->in[0], at[0]), sum = 0;
  for (int64_t i = 1; i < j->row; i++)
    greatest = combine(CY_OP_max, greatest, load_float(&j->in[0], at[0] + i * step));
  for (int64_t i = 0; i < j->row; i++)
    sum += exp(load_float(&j->in[0], at[0] + i * step) - greatest);
  for (int64_t i = 0; i < j->row; i++) {
    double e = exp(load_float(&j->in[0], at[0] + i * step) - greatest);
    cy_scalar_store(j->out, j->dtype, (uint64_t)(at[1] + i * step), (cy_scalar){.f = e / sum});
  }
}

/* ---- what to compute -------------------------------------------------------------------------------------------- */

static void dense_strides(const int64_t *dim, int rank, int64_t *out) {
  int64_t s = 1;
  for (int i = rank - 1; i >= 0; i--) {
    out[i] = s;
    s *= dim[i];
  }
}

/* Operand v, broadcast to the output the numpy way. */
static bool broadcast(const cy_graph *g, cy_val v, const job *j, operand *out) {
  const cy_value *value = cy_value_of(g, v);
  int64_t dim[CY_MAX_RANK], stride[CY_MAX_RANK];
  *out = (operand){.bytes = value->data.bytes, .dtype = (cy_dtype)value->type.dtype};
  if (!cy_type_static(g, &value->type, dim) || value->type.rank > j->rank)
    return false;
  dense_strides(dim, value->type.rank, stride);
  for (int i = 0, skip = j->rank - value->type.rank; i < value->type.rank; i++)
    out->stride[skip + i] = dim[i] == 1 ? 0 : stride[i];
  return true;
}

static bool set_elementwise(const cy_graph *g, const cy_node_info *n, job *j) {
  for (uint32_t k = 0; k < n->nin; k++)
    if (!broadcast(g, n->in[k], j, &j->in[k]))
      return false;
  if (n->op == CY_OP_pow && j->in[1].dtype != j->in[0].dtype)
    return false;
  bool f32 = n->nin == 2 && j->in[0].dtype == CY_F32 && j->in[1].dtype == CY_F32;
  bool arith = n->op == CY_OP_add || n->op == CY_OP_sub || n->op == CY_OP_mul || n->op == CY_OP_div;
  j->run_row = f32 && arith ? arith_row : scalar_row;
  return true;
}

/* Views of whole elements as strides of the input. */
static bool set_view(cy_graph *g, const cy_node_info *n, job *j) {
  const cy_type *t = cy_type_of(g, n->in[0]);
  int64_t dim[CY_MAX_RANK], stride[CY_MAX_RANK], v;
  uint32_t count;
  operand *x = &j->in[0];
  j->run_row = copy_row;
  if (!broadcast(g, n->in[0], j, x) || !cy_type_static(g, t, dim) || cy_dtype_of(j->dtype)->bits < 8)
    return false;
  dense_strides(dim, t->rank, stride);
  if (n->op == CY_OP_transpose) {
    const int64_t *perm = cy_attr_list(n, CY_ATTR_perm, &count);
    for (uint32_t i = 0; i < count; i++)
      x->stride[i] = stride[perm[i]];
  } else if (n->op == CY_OP_slice) {
    const cy_dim *starts = cy_attr_dim_list(n, CY_ATTR_starts, &count);
    const int64_t *steps = cy_attr_list(n, CY_ATTR_steps, &count);
    for (uint32_t i = 0; i < count; i++) {
      if (!cy_dim_is_const(g, starts[i], &v))
        return false;
      x->offset += v * stride[i];
      x->stride[i] = steps[i] * stride[i];
    }
  }
  return true;
}

static bool set_reduce(const cy_graph *g, const cy_node_info *n, job *j) {
  const cy_type *t = cy_type_of(g, n->in[0]);
  int64_t dim[CY_MAX_RANK], stride[CY_MAX_RANK];
  bool reduced[CY_MAX_RANK];
  if (!cy_dtype_is_float(j->dtype) || !cy_type_static(g, t, dim) || !cy_axes_of(n, t->rank, reduced))
    return false;
  bool keep = cy_attr_get_int(n, CY_ATTR_keepdims, 1) != 0;
  dense_strides(dim, t->rank, stride);
  j->in[0] = (operand){.bytes = cy_value_of(g, n->in[0])->data.bytes, .dtype = (cy_dtype)t->dtype};
  j->red_count = 1;
  for (int i = 0, o = 0; i < t->rank; i++) {
    if (reduced[i]) {
      j->red_dim[j->nred] = dim[i];
      j->red_stride[j->nred++] = stride[i];
      j->red_count *= dim[i];
      o += keep;
    } else {
      j->in[0].stride[o++] = stride[i];
    }
  }
  j->run_row = reduce_row;
  return j->red_count > 0;
}

/* quantize, dequantize, between f32 or f16 and integers of at most 16 bits. Scale and zero point: scalars, or along an
 * axis. Blocked ones stay. */
static bool set_rescale(const cy_graph *g, const cy_node_info *n, job *j) {
  int64_t axis = cy_attr_get_int(n, CY_ATTR_axis, 1);
  axis += axis < 0 ? j->rank : 0;
  if (cy_attr_get_int(n, CY_ATTR_block_size, 0) || !broadcast(g, n->in[0], j, &j->in[0]))
    return false;
  bool down = n->op == CY_OP_quantize;
  cy_dtype real = down ? j->in[0].dtype : j->dtype, whole = down ? j->dtype : j->in[0].dtype;
  if ((real != CY_F32 && real != CY_F16) || !cy_dtype_is_int(whole) || cy_dtype_of(whole)->bits > 16)
    return false;
  for (uint32_t k = 1; k < n->nin; k++) {
    const cy_value *v = cy_value_of(g, n->in[k]);
    bool one = cy_type_count(g, &v->type) == 1;
    if (!one && (v->type.rank != 1 || axis >= j->rank || !cy_dim_is(g, v->type.dim[0], j->dim[axis])))
      return false;
    j->in[k] = (operand){.bytes = v->data.bytes, .dtype = (cy_dtype)v->type.dtype};
    if (!one)
      j->in[k].stride[axis] = 1;
  }
  j->run_row = down ? quantize_row : dequantize_row;
  return true;
}

static bool set_product(const cy_graph *g, const cy_node_info *n, job *j) {
  int64_t dim[CY_MAX_RANK];
  for (uint32_t k = 0; k < 2; k++)
    if (!broadcast(g, n->in[k], j, &j->in[k]) || j->in[k].dtype != CY_F32)
      return false;
  const cy_type *t = cy_type_of(g, n->in[0]);
  if (n->nin != 2 || j->dtype != CY_F32 || !cy_type_static(g, t, dim))
    return false;
  j->nred = 1;
  j->red_count = dim[t->rank - 1];
  j->red_stride[0] = 1;
  j->red_stride[1] = j->row;
  j->in[0].stride[j->rank - 1] = j->in[1].stride[j->rank - 2] = 0;
  j->in[0].stride[j->rank - 2] = j->red_count;
  j->in[1].stride[j->rank - 1] = 1;
  j->run_row = product_row;
  return j->rows * (uint64_t)j->row <= MAX_PRODUCTS / (uint64_t)(j->red_count ? j->red_count : 1);
}

static bool set_softmax(const cy_graph *g, const cy_node_info *n, job *j) {
  int64_t axis = cy_attr_get_int(n, CY_ATTR_axis, 0), stride[CY_MAX_RANK];
  if (!cy_dtype_is_float(j->dtype) || !cy_type_of(g, n->in[0])->rank)
    return false;
  dense_strides(j->dim, j->rank, stride);
  j->in[0] = (operand){.bytes = cy_value_of(g, n->in[0])->data.bytes, .dtype = j->dtype};
  memcpy(j->in[0].stride, stride, sizeof stride);
  int last = j->rank - 1;
  int64_t extent = j->dim[axis];
  j->in[0].stride[axis] = stride[last];
  j->in[0].stride[last] = stride[axis];
  j->dim[axis] = j->dim[last];
  j->dim[last] = extent;
  j->rows = j->rows * (uint64_t)j->row / (uint64_t)extent;
  j->row = extent;
  j->nin = 2;
  j->in[1] = j->in[0];
  j->run_row = softmax_row;
  return true;
}

static bool set_job(cy_graph *g, const cy_node_info *n, job *j) {
  switch (n->op) {
  case CY_OP_transpose:
  case CY_OP_slice:
  case CY_OP_expand:
    return set_view(g, n, j);
  case CY_OP_reduce_sum:
  case CY_OP_reduce_prod:
  case CY_OP_reduce_min:
  case CY_OP_reduce_max:
    return set_reduce(g, n, j);
  case CY_OP_quantize:
  case CY_OP_dequantize:
    return set_rescale(g, n, j);
  case CY_OP_matmul:
    return set_product(g, n, j);
  case CY_OP_softmax:
    return set_softmax(g, n, j);
  case CY_OP_iota:
    j->nin = 1;
    j->in[0] = (operand){.dtype = j->dtype};
    j->in[0].stride[cy_attr_get_int(n, CY_ATTR_axis, 0)] = 1;
    j->run_row = iota_row;
    return true;
  default:
    return cy_op_is_ew((cy_op)n->op) && set_elementwise(g, n, j);
  }
}

/* ---- one node --------------------------------------------------------------------------------------------------- */

static bool all_const(const cy_graph *g, const cy_node_info *n, uint64_t *out_bytes) {
  *out_bytes = 0;
  for (uint32_t k = 0; k < n->nin; k++) {
    if (!n->in[k])
      continue;
    const cy_value *v = cy_value_of(g, n->in[k]);
    if (!v->data.bytes || cy_dtype_of((cy_dtype)v->type.dtype)->cls == 'S' ||
        cy_dtype_of((cy_dtype)v->type.dtype)->cls == 'C')
      return false;
    *out_bytes += v->data.size;
  }
  return n->nout == 1 && (n->nin > 0 || n->op == CY_OP_iota);
}

/* [value] */
typedef struct tables {
  bool *pure;   /* made of constants and indices alone, and not too large */
  bool *costly; /* .. with an operation in it that is expensive for each element */
  bool *needed; /* .. without one, but read by what is costly */
} tables;

static bool can_be_table(const cy_graph *g, const cy_node_info *n, const bool *pure) {
  bool element = cy_op_is_ew((cy_op)n->op) || cy_op_is_pure_view((cy_op)n->op) || n->op == CY_OP_iota || n->op == CY_OP_concat;
  for (uint32_t k = 0; k < n->nin; k++)
    element = element && n->in[k] && (pure[n->in[k]] || cy_value_of(g, n->in[k])->data.bytes);
  const cy_type *t = element && n->nout == 1 ? cy_type_of(g, n->out[0]) : NULL;
  return t && cy_type_static(g, t, NULL) &&
         cy_type_count(g, t) <= (uint64_t)TABLE_BYTES * 8 / cy_dtype_of((cy_dtype)t->dtype)->bits;
}

static tables find_tables(cy_pass *p) {
  cy_graph *g = p->g;
  uint32_t count = cy_value_count(g) + 1;
  tables t = {CY_NEW_ARRAY(p->scratch, bool, count), CY_NEW_ARRAY(p->scratch, bool, count),
              CY_NEW_ARRAY(p->scratch, bool, count)};
  for (cy_block b = 1; b <= cy_block_count(g); b++)
    for (uint32_t i = 0; i < cy_block_of(g, b)->nnodes; i++) {
      const cy_node_info *n = cy_node_of(g, cy_block_of(g, b)->nodes[i]);
      if (!can_be_table(g, n, t.pure))
        continue;
      t.pure[n->out[0]] = true;
      t.costly[n->out[0]] = cy_node_op(n)->cost >= COSTLY;
      for (uint32_t k = 0; k < n->nin; k++)
        t.costly[n->out[0]] |= t.costly[n->in[k]];
    }
  for (cy_block b = cy_block_count(g); b >= 1; b--)
    for (uint32_t i = cy_block_of(g, b)->nnodes; i-- > 0;) {
      const cy_node_info *n = cy_node_of(g, cy_block_of(g, b)->nodes[i]);
      for (uint32_t k = 0; k < n->nin && n->nout == 1 && (t.costly[n->out[0]] || t.needed[n->out[0]]); k++)
        t.needed[n->in[k]] = !t.costly[n->in[k]];
    }
  return t;
}

/* Other readers of v compute it, as ever. */
static void feed_tables(cy_graph *g, const cy_uses *uses, const tables *t, cy_val v, cy_val by) {
  for (uint32_t i = uses->start[v]; i < uses->start[v + 1]; i++) {
    cy_node_info *user = uses->list[i] ? cy_node_of(g, uses->list[i]) : NULL;
    for (uint32_t k = 0; user && k < user->nin && user->nout == 1 && (t->costly[user->out[0]] || t->needed[user->out[0]]);
         k++)
      if (user->in[k] == v)
        user->in[k] = by;
  }
}

static bool grows(const cy_graph *g, const cy_node_info *n, uint64_t in_bytes) {
  const cy_type *t = cy_type_of(g, n->out[0]);
  uint64_t bytes = cy_type_count(g, t) * (uint64_t)cy_dtype_of((cy_dtype)t->dtype)->bits / 8;
  return n->op == CY_OP_iota || (bytes > GROWTH_FREE && bytes / 8 > in_bytes);
}

/* A sum that only attention reads and whose parts are LARGE_BIAS smaller: masks of windows plus tables of heads would make
 * a library many times its model. Adding them up each time takes a few percent of the attention. What several sums read,
 * as all shifted windows of a size read their mask, is a share of each. known: how many values uses knows. */
static bool is_large_bias(const cy_graph *g, const cy_uses *uses, cy_val known, const cy_node_info *n) {
  cy_val v = n->out[0];
  const cy_type *t = cy_type_of(g, v);
  uint64_t bytes = cy_type_count(g, t) * (uint64_t)cy_dtype_of((cy_dtype)t->dtype)->bits / 8, parts = 0;
  if (n->op != CY_OP_add)
    return false;
  for (uint32_t k = 0; k < 2; k++) {
    cy_val in = n->in[k];
    uint32_t readers = in <= known ? uses->start[in + 1] - uses->start[in] : 0; /* 0: it came here by this pass */
    parts += cy_value_of(g, in)->data.size / (readers ? readers : 1);
  }
  if (bytes <= parts + LARGE_BIAS)
    return false;
  for (uint32_t i = uses->start[v]; i < uses->start[v + 1]; i++)
    if (!uses->list[i] || cy_node_of(g, uses->list[i])->op != CY_OP_attention)
      return false;
  return true;
}

static cy_val concat_bytes(cy_graph *g, const cy_node_info *n) {
  const cy_type *t = cy_type_of(g, n->out[0]);
  int axis = (int)cy_attr_get_int(n, CY_ATTR_axis, 0);
  uint64_t size = (uint64_t)cy_dtype_of((cy_dtype)t->dtype)->bits / 8, outer = 1, at = 0;
  int64_t dim[CY_MAX_RANK];
  cy_val out;
  if (!size || !cy_type_static(g, t, dim))
    return 0;
  for (int i = 0; i < axis; i++)
    outer *= (uint64_t)dim[i];
  unsigned char *to = cy_const_new(g, t, &out);
  uint64_t stride = cy_value_of(g, out)->data.size / outer;
  for (uint32_t k = 0; k < n->nin; k++) {
    const cy_value *v = cy_value_of(g, n->in[k]);
    uint64_t piece = v->data.size / outer;
    for (uint64_t o = 0; o < outer; o++)
      memcpy(to + o * stride + at, (const unsigned char *)v->data.bytes + o * piece, piece);
    at += piece;
  }
  return out;
}

/* Indices as the op has them: negative ones count from the end, what is outside is clamped. */
static cy_val gather_bytes(cy_graph *g, const cy_node_info *n) {
  const cy_value *x = cy_value_of(g, n->in[0]), *index = cy_value_of(g, n->in[1]);
  int64_t axis = cy_attr_get_int(n, CY_ATTR_axis, 0), dim[CY_MAX_RANK];
  uint64_t inner = (uint64_t)cy_dtype_of((cy_dtype)x->type.dtype)->bits / 8, outer = 1;
  uint64_t count = cy_type_count(g, &index->type);
  if (!inner || !cy_type_static(g, &x->type, dim) || !dim[axis])
    return 0;
  for (int i = 0; i < x->type.rank; i++)
    *(i < axis ? &outer : &inner) *= i == axis ? 1 : (uint64_t)dim[i];
  cy_val out;
  unsigned char *to = cy_const_new(g, cy_type_of(g, n->out[0]), &out);
  x = cy_value_of(g, n->in[0]);
  index = cy_value_of(g, n->in[1]);
  for (uint64_t o = 0; o < outer; o++)
    for (uint64_t i = 0; i < count; i++) {
      int64_t at = cy_scalar_load(index->data.bytes, (cy_dtype)index->type.dtype, i).i;
      at += at < 0 ? dim[axis] : 0;
      at = at < 0 ? 0 : at >= dim[axis] ? dim[axis] - 1 : at;
      memcpy(to + (o * count + i) * inner,
             (const unsigned char *)x->data.bytes + (o * (uint64_t)dim[axis] + (uint64_t)at) * inner, inner);
    }
  return out;
}

/* Will weights become integers, which are made of constants only? */
static bool makes_integers(const cy_pass_options *o) {
  bool layers = o->quant && !cy_quant_is_half(o->quant->mode);
  return layers || (o->weights && o->weights->bits);
}

/* Packing reads weights by strides: transposing large ones first would cost their size in memory once more. */
static bool packs_as_view(const cy_pass *p, const cy_uses *uses, const cy_node_info *n) {
  const cy_graph *g = p->g;
  if (n->op != CY_OP_transpose || makes_integers(p->options) || cy_value_of(g, n->in[0])->data.size < LARGE_WEIGHTS)
    return false;
  cy_val v = n->out[0];
  for (uint32_t i = uses->start[v]; i < uses->start[v + 1]; i++) {
    const cy_node_info *user = uses->list[i] ? cy_node_of(g, uses->list[i]) : NULL;
    if (!user || user->op != CY_OP_matmul || user->in[1] != v || user->in[0] == v)
      return false;
  }
  return true;
}

/* Convolutions take weights as dense constants only, however little these are made of. */
static bool feeds_conv(const cy_graph *g, const cy_uses *uses, cy_val v) {
  for (uint32_t i = uses->start[v]; i < uses->start[v + 1]; i++) {
    const cy_node_info *n = uses->list[i] ? cy_node_of(g, uses->list[i]) : NULL;
    if (n && (n->op == CY_OP_conv || n->op == CY_OP_conv_transpose) && n->in[1] == v)
      return true;
  }
  return false;
}

/* The largest operand, or 0. */
static cy_val main_operand(const cy_graph *g, const cy_node_info *n) {
  cy_val max = 0;
  for (uint32_t k = 0; k < n->nin; k++)
    if (n->in[k] && (!max || cy_value_of(g, n->in[k])->data.size > cy_value_of(g, max)->data.size))
      max = n->in[k];
  return max;
}

/* The constant that n computes, or 0. */
static cy_val compute(cy_graph *g, const cy_node_info *n) {
  const cy_type *t = cy_type_of(g, n->out[0]);
  job j = {.op = (cy_op)n->op, .rank = t->rank, .dtype = (cy_dtype)t->dtype, .nin = (int)n->nin};
  uint64_t count = cy_type_count(g, t), bytes = count * (uint64_t)cy_dtype_of(j.dtype)->bits / 8;
  if (!count || bytes > max_bytes)
    return 0;
  if (n->op == CY_OP_reshape || n->op == CY_OP_identity) {
    const cy_data *d = &cy_value_of(g, n->in[0])->data;
    return cy_build_const(g, t, d->bytes, d->size);
  }
  if (n->op == CY_OP_concat)
    return concat_bytes(g, n);
  if (n->op == CY_OP_gather)
    return gather_bytes(g, n);
  if (n->op == CY_OP_gather_elements)
    return cy_fold_gather_elements(g, n);
  if (n->op == CY_OP_cumsum)
    return cy_fold_cumsum(g, n);
  cy_type_static(g, t, j.dim);
  if (!j.rank) { /* one row of one element */
    j.rank = 1;
    j.dim[0] = 1;
  }
  j.row = j.dim[j.rank - 1];
  j.rows = count / (uint64_t)j.row;
  if (n->nin > 3 || !set_job(g, n, &j))
    return 0;
  cy_val out;
  j.out = cy_const_new(g, t, &out);
  run_job(&j);
  return out;
}

static cy_val evaluate(cy_graph *g, const cy_node_info *n) {
  cy_val by = compute(g, n);
  cy_val from = by ? main_operand(g, n) : 0;
  if (from)
    cy_const_made_of(g, by, from);
  return by;
}

cy_val cy_fold_node(cy_graph *g, const cy_node_info *n) {
  uint64_t in_bytes;
  return all_const(g, n, &in_bytes) && !grows(g, n, in_bytes) ? evaluate(g, n) : 0;
}

/* ---- results that only others are made of ------------------------------------------------------------------------ */

enum { MIN_FREED = 1 << 18 };

/* A result, or (same: 1 + its number) another value with the bytes of one. */
typedef struct made {
  cy_val value;
  void *bytes;
  uint64_t readers; /* that are not computed yet, of all that have these bytes */
  uint32_t same;
} made;

typedef struct makings {
  cy_pass *p;
  const cy_uses *uses; /* from before */
  made *list;
  uint32_t n, cap;
} makings;

/* Results come in the order of their ids. */
static made *made_find(const makings *m, cy_val v) {
  uint32_t low = 0, high = m->n;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (m->list[middle].value < v)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == m->n || m->list[low].value != v)
    return NULL;
  return m->list[low].same ? &m->list[m->list[low].same - 1] : &m->list[low];
}

/* n, whose result was v, became constant `by`. */
static void made_note(makings *m, const cy_node_info *n, cy_val v, cy_val by) {
  const cy_data *d = &cy_value_of(m->p->g, by)->data;
  const uint64_t readers = m->uses->start[v + 1] - m->uses->start[v];
  made *from = n->nin == 1 ? made_find(m, n->in[0]) : NULL;
  made next = {.value = by, .readers = readers};
  if (from && from->bytes == d->bytes) {
    from->readers += readers;
    next.same = (uint32_t)(from - m->list) + 1;
  } else if (n->op == CY_OP_reshape || n->op == CY_OP_identity || d->size < MIN_FREED) {
    return;
  } else {
    next.bytes = (void *)(uintptr_t)d->bytes;
  }
  m->list = cy_arena_grow(m->p->scratch, m->list, m->n, &m->cap, sizeof *m->list);
  m->list[m->n++] = next;
}

/* n is computed: what it was the last to read is freed. */
static void made_drop(makings *m, const cy_node_info *n) {
  cy_graph *g = m->p->g;
  for (uint32_t k = 0; k < n->nin; k++) {
    made *from = made_find(m, n->in[k]);
    if (!from || --from->readers)
      continue;
    for (uint32_t i = 0; i < m->n; i++)
      if (&m->list[i] == from || m->list[i].same == (uint32_t)(from - m->list) + 1)
        cy_value_of(g, m->list[i].value)->data = (cy_data){0};
    cy_arena_give_back(cy_graph_arena(g), from->bytes);
  }
}

/* requires: swept   establishes: swept, folded   breaks: unique, placed, fused */
int cy_pass_fold(cy_pass *p) {
  cy_graph *g = p->g;
  uint64_t folded = 0, written = 0, in_bytes;
  cy_uses uses = cy_graph_uses(g, p->scratch);
  makings m = {.p = p, .uses = &uses};
  cy_val known = cy_value_count(g);
  tables t = find_tables(p);
  for (cy_block b = 1; b <= cy_block_count(g); b++)
    for (uint32_t i = 0; i < cy_block_of(g, b)->nnodes; i++) {
      const cy_node_info *n = cy_node_of(g, cy_block_of(g, b)->nodes[i]);
      if (n->op == CY_OP_topk) {
        folded += cy_fold_topk(p, n);
        continue;
      }
      if (!all_const(g, n, &in_bytes) || packs_as_view(p, &uses, n) || cy_weights_stay(p, n, &uses) ||
          is_large_bias(g, &uses, known, n))
        continue;
      cy_val v = n->out[0];
      bool everywhere = t.costly[v] || !grows(g, n, in_bytes) || feeds_conv(g, &uses, v);
      cy_val by = everywhere || t.needed[v] ? evaluate(g, n) : 0;
      if (!by)
        continue;
      folded++;
      written += cy_value_of(g, by)->data.size;
      if (everywhere) {
        n = cy_node_of(g, cy_block_of(g, b)->nodes[i]);
        made_note(&m, n, v, by);
        cy_graph_replace(g, v, by);
        made_drop(&m, n);
      } else {
        feed_tables(g, &uses, &t, v, by);
      }
    }
  cy_graph_sweep(g);
  cy_pass_count(p, "folded", folded);
  cy_pass_count(p, "bytes", written);
  return 0;
}

/* What is made of constants alone and read by a quantize or dequantize: weights, scales and zero points, and all that
 * these are made of. The result of such a quantize itself, too. */
static bool *find_quantised(cy_pass *p) {
  cy_graph *g = p->g;
  uint32_t count = cy_value_count(g) + 1;
  bool *known = CY_NEW_ARRAY(p->scratch, bool, count), *needed = CY_NEW_ARRAY(p->scratch, bool, count);
  for (cy_block b = 1; b <= cy_block_count(g); b++)
    for (uint32_t i = 0; i < cy_block_of(g, b)->nnodes; i++) {
      const cy_node_info *n = cy_node_of(g, cy_block_of(g, b)->nodes[i]);
      bool all = n->nin && n->nout == 1;
      for (uint32_t k = 0; k < n->nin; k++)
        all = all && (!n->in[k] || known[n->in[k]] || cy_value_of(g, n->in[k])->data.bytes);
      if (all)
        known[n->out[0]] = true;
    }
  for (cy_block b = cy_block_count(g); b >= 1; b--)
    for (uint32_t i = cy_block_of(g, b)->nnodes; i-- > 0;) {
      const cy_node_info *n = cy_node_of(g, cy_block_of(g, b)->nodes[i]);
      bool rescales = n->op == CY_OP_quantize || n->op == CY_OP_dequantize;
      if (n->op == CY_OP_quantize)
        needed[n->out[0]] = known[n->out[0]];
      for (uint32_t k = 0; k < n->nin && n->nout == 1 && (rescales || needed[n->out[0]]); k++)
        needed[n->in[k]] |= known[n->in[k]];
    }
  return needed;
}

/* requires: swept   establishes: swept   breaks: unique, placed, fused */
int cy_pass_fold_quantised(cy_pass *p) {
  cy_graph *g = p->g;
  uint64_t folded = 0;
  const bool *needed = find_quantised(p);
  for (cy_block b = 1; b <= cy_block_count(g); b++)
    for (uint32_t i = 0; i < cy_block_of(g, b)->nnodes; i++) {
      const cy_node_info *n = cy_node_of(g, cy_block_of(g, b)->nodes[i]);
      cy_val by = n->nout == 1 && needed[n->out[0]] ? cy_fold_node(g, n) : 0;
      if (!by)
        continue;
      cy_graph_replace(g, n->out[0], by);
      folded++;
    }
  cy_graph_sweep(g);
  cy_pass_count(p, "folded", folded);
  return 0;
}
