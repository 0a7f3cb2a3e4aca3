/* SPDX-License-Identifier: Apache-2.0 */
/* interp.c - runs kernels on host memory, one scalar at a time: the oracle of every numeric test.
 *
 * In: a kernel, a pointer per argument, a value per symbol. Out: what the kernel stores. Slow and plain on purpose:
 * statements are walked as they stand, lanes mean nothing, an expression is computed at most once per execution of its
 * statement, and a select computes only the side it takes (so the other may load from outside). Arithmetic is
 * cy_scalar_eval()'s. A contraction's task is one output element: the sum is formed in double (or wrapping integers),
 * rounded to the accumulator's type, and the body runs as the epilogue.
 */
#include "ir/ir_int.h"
#include "loop_int.h"

#include <math.h>
#include <stdlib.h>

typedef struct machine {
  cy_kernel *k;
  void *const *args;
  const int64_t *syms;
  int64_t *var;
  cy_scalar *local;
  cy_scalar *value; /* of expressions, valid where stamp[e] == now */
  uint64_t *stamp, now;
} machine;

static cy_scalar eval(machine *m, cy_expr e);

static cy_scalar eval_op(machine *m, const cy_expr_info *x) {
  cy_scalar v[3];
  if (x->op == CY_OP_select)
    return eval(m, x->arg[eval(m, x->arg[0]).i ? 1 : 2]);
  for (int i = 0; i < x->n; i++)
    v[i] = eval(m, x->arg[i]);
  if (x->op == CY_OP_cast && x->id)
    return cy_scalar_convert(cy_expr_of(m->k, x->arg[0])->dtype, x->dtype, v[0], false);
  return cy_scalar_eval(x->op, cy_expr_of(m->k, x->arg[0])->dtype, x->dtype, v);
}

static cy_scalar eval(machine *m, cy_expr e) {
  if (m->stamp[e] == m->now)
    return m->value[e];
  const cy_expr_info *x = cy_expr_of(m->k, e);
  cy_scalar v;
  switch (x->op) {
  case CY_X_CONST: v = x->c; break;
  case CY_X_VAR: v.i = m->var[x->id]; break;
  case CY_X_DIM: v.i = cy_dim_eval(m->k->g, x->id, m->syms); break;
  case CY_X_LOCAL: v = m->local[x->id]; break;
  case CY_X_LOAD: v = cy_scalar_load(m->args[x->id], x->dtype, (uint64_t)eval(m, x->arg[0]).i); break;
  default: v = eval_op(m, x);
  }
  m->value[e] = v;
  m->stamp[e] = m->now;
  return v;
}

static void run_list(machine *m, const cy_stmt *s) {
  for (; s; s = s->next) {
    m->now++;
    switch (s->kind) {
    case CY_S_FOR: {
      int64_t n = cy_dim_eval(m->k->g, cy_kernel_var(m->k, s->var)->extent, m->syms);
      for (int64_t i = 0; i < n; i++) {
        m->var[s->var] = i;
        run_list(m, s->body);
      }
      break;
    }
    case CY_S_STORE: {
      uint64_t offset = (uint64_t)eval(m, s->offset).i;
      cy_dtype t = m->k->args[s->arg].dtype;
      if (!s->op || cy_scalar_load(m->args[s->arg], t, offset).i < eval(m, s->value).i)
        cy_scalar_store(m->args[s->arg], t, offset, eval(m, s->value));
      break;
    }
    case CY_S_SET: m->local[s->local] = eval(m, s->value); break;
    case CY_S_ACCUM: {
      cy_dtype t = m->k->locals[s->local];
      cy_scalar v[2] = {m->local[s->local], eval(m, s->value)};
      m->local[s->local] = cy_scalar_eval(s->op, t, t, v);
      break;
    }
    }
  }
}

/* ---- contractions ---- */

typedef struct dot { /* one accumulator while it is summed */
  machine *m;
  cy_dtype ta, tb;
  bool real;
  double f;
  uint64_t i, a_zero, b_zero;
  double up; /* of a that is rounded */
} dot;

static int64_t size(machine *m, cy_dim d) { return d ? cy_dim_eval(m->k->g, d, m->syms) : 0; }

static double as_real(cy_scalar v, cy_dtype t) {
  char cls = cy_dtype_of(t)->cls;
  return cls == 'F' ? v.f : cls == 'U' ? (double)v.u : (double)v.i;
}

static void dot_add(dot *d, int64_t at_a, int64_t at_b) {
  const cy_contraction *c = &d->m->k->contraction;
  cy_scalar a = cy_scalar_load(d->m->args[c->a], d->ta, (uint64_t)at_a);
  cy_scalar b = cy_scalar_load(d->m->args[c->b], d->tb, (uint64_t)at_b);
  if (c->a_rounded) {
    a.f = rint((float)a.f * (float)d->up);
    a = cy_scalar_eval(CY_OP_cast, CY_F32, c->a_rounded, &a);
  }
  if (d->real)
    d->f += as_real(a, d->ta) * as_real(b, d->tb);
  else
    d->i += (a.u - d->a_zero) * (b.u - d->b_zero);
}

/* Row k of b in column n, where b is in integers or narrow floats with scales. */
static double block_weight(machine *m, int64_t k, int64_t n) {
  const cy_contraction *c = &m->k->contraction;
  int64_t columns = size(m, c->n), block = k / c->b_block, i = k % c->b_block, rows = c->b_block * c->b_bits / 8,
          tile = size(m, c->b_k);
  cy_dtype t = m->k->args[c->b].dtype;
  cy_scalar q = cy_scalar_load(m->args[c->b], t,
                               (uint64_t)(block * rows * columns + (n / tile * rows + i % rows) * tile + n % tile));
  int64_t code = t == CY_I8 ? q.i : (int64_t)q.u, zero = c->b_middle;
  uint64_t at = (uint64_t)(block * columns + n);
  if (c->b_bits == 4)
    code = i < rows ? code & 15 : code >> 4;
  if (c->has_b_zero)
    zero = (int64_t)cy_scalar_load(m->args[c->b_zero], CY_U8, at).u;
  double scale = cy_scalar_load(m->args[c->b_scale], m->k->args[c->b_scale].dtype, at).f;
  uint8_t one = (uint8_t)code;
  if (c->b_codes)
    return cy_scalar_load(&one, c->b_codes, 0).f * scale;
  return (cy_dtype_is_float(t) ? q.f : (double)(code - zero)) * scale;
}

static double as_half(const cy_contraction *c, double v) {
  uint16_t half;
  if (!c->rounded || c->rounded == CY_I8 || c->rounded == CY_I32)
    return v;
  cy_scalar_store(&half, c->rounded, 0, (cy_scalar){.f = v});
  return cy_scalar_load(&half, c->rounded, 0).f;
}

/* Element i of a row of a that weights in integers meet, elements lying `step` apart from `first` on. */
static double block_factor(const dot *d, int64_t first, int64_t step, int64_t i) {
  const cy_contraction *c = &d->m->k->contraction;
  const void *a = d->m->args[c->a];
  double v = cy_scalar_load(a, d->ta, (uint64_t)(first + i * step)).f, max = 0;
  if (c->rounded != CY_I8)
    return as_half(c, v);
  int64_t block = i / c->b_block * c->b_block;
  for (int64_t j = block; j < block + c->b_block; j++)
    max = fmax(max, fabs(cy_scalar_load(a, d->ta, (uint64_t)(first + j * step)).f));
  return max > 0 ? rint(v * (127 / max)) * (max / 127) : 0;
}

static void dot_matmul(dot *d) {
  machine *m = d->m;
  const cy_contraction *c = &m->k->contraction;
  int64_t a = 0, b = 0, n = size(m, c->k);
  for (int i = 0; i < c->nbatch; i++) {
    a += m->var[c->out_var[i]] * size(m, c->a_batch[i]);
    b += m->var[c->out_var[i]] * size(m, c->b_batch[i]);
  }
  a += m->var[c->out_var[c->nbatch]] * size(m, c->a_m);
  b += m->var[c->out_var[c->nbatch + 1]] * size(m, c->b_n);
  int64_t step_a = size(m, c->a_k), step_b = size(m, c->b_k);
  for (int64_t i = 0; i < n; i++)
    if (c->b_bits)
      d->f += block_factor(d, a, step_a, i) * as_half(c, block_weight(m, i, m->var[c->out_var[c->nbatch + 1]]));
    else
      dot_add(d, a + i * step_a, b + i * step_b);
}

/* Where kernel position `tap` of an axis reads for output `o`: false outside of the input. */
static bool conv_tap(machine *m, int axis, int64_t o, int64_t tap, int64_t *out_at) {
  const cy_contraction *c = &m->k->contraction;
  int64_t reach = tap * c->dilation[axis], pad = size(m, c->pad[axis]), at;
  if (c->kind == CY_CONTRACT_CONV) {
    at = o * c->stride[axis] + reach - pad;
  } else {
    at = o + pad - reach;
    if (at % c->stride[axis])
      return false;
    at /= c->stride[axis];
  }
  *out_at = at;
  return at >= 0 && at < size(m, c->in[axis]);
}

static void dot_conv(dot *d) {
  machine *m = d->m;
  const cy_contraction *c = &m->k->contraction;
  int64_t cin = size(m, c->channels_in) / c->group, cout = size(m, c->channels_out) / c->group;
  const cy_var *spatial = c->out_var + (c->planar ? 2 : 1), channel = c->out_var[c->planar ? 1 : c->nspatial + 1];
  int64_t o = m->var[channel], group = o / cout, taps = 1, ci = size(m, c->x_channel), at;
  for (int i = 0; i < c->nspatial; i++)
    taps *= c->kernel[i];
  int64_t base = m->var[c->out_var[0]] * size(m, c->x_image) + group * cin * ci;
  for (int64_t t = 0; t < taps; t++) {
    int64_t a = base, rest = t;
    bool inside = true;
    for (int i = c->nspatial - 1; i >= 0; i--) {
      if (!conv_tap(m, i, m->var[spatial[i]], rest % c->kernel[i], &at)) {
        inside = false;
        break;
      }
      a += at * size(m, c->x_spatial[i]);
      rest /= c->kernel[i];
    }
    for (int64_t j = 0; inside && j < cin; j++) {
      int64_t w = c->kind == CY_CONTRACT_CONV ? o * cin + j : (group * cin + j) * cout + o % cout;
      dot_add(d, a + j * ci, w * taps + t);
    }
  }
}

/* ---- attention ---- */

typedef struct row { /* the weights of one row, kept for its other columns */
  double *weight, sum;
  int64_t keys, number;
} row;

static double product(machine *m, cy_karg a, int64_t at_a, int64_t step_a, cy_karg b, int64_t at_b, int64_t step_b,
                      int64_t n) {
  cy_dtype ta = m->k->args[a].dtype, tb = m->k->args[b].dtype;
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += as_half(&m->k->contraction, cy_scalar_load(m->args[a], ta, (uint64_t)(at_a + i * step_a)).f) *
           as_half(&m->k->contraction, cy_scalar_load(m->args[b], tb, (uint64_t)(at_b + i * step_b)).f);
  return sum;
}

static int64_t at_batch(machine *m, const cy_dim *strides) {
  const cy_contraction *c = &m->k->contraction;
  int64_t at = 0;
  for (int i = 0; i < c->nbatch; i++)
    at += m->var[c->out_var[i]] * size(m, strides[i]);
  return at;
}

static cy_scalar rounded(machine *m, cy_local l, double v) {
  cy_scalar s = {.f = v};
  return cy_scalar_eval(CY_OP_cast, CY_F64, m->k->locals[l], &s);
}

static void row_weights(machine *m, row *r) {
  const cy_contraction *c = &m->k->contraction;
  const cy_stmt *change = m->k->body, *weigh = change->next;
  int64_t a = at_batch(m, c->a_batch) + m->var[c->out_var[c->nbatch]] * size(m, c->a_m);
  int64_t b = at_batch(m, c->b_batch), step_a = size(m, c->a_k), step_b = size(m, c->b_k), n = size(m, c->k);
  double top = -__builtin_inf();
  for (int64_t j = 0; j < r->keys; j++) {
    m->local[c->score] =
        rounded(m, c->score, c->scale * product(m, c->a, a, step_a, c->b, b + j * size(m, c->b_n), step_b, n));
    m->var[c->key] = j;
    run_list(m, change->body);
    r->weight[j] = m->local[c->score].f;
    top = r->weight[j] > top ? r->weight[j] : top;
  }
  m->local[c->top] = rounded(m, c->top, top);
  r->sum = 0;
  for (int64_t j = 0; j < r->keys; j++) {
    m->local[c->score].f = r->weight[j];
    m->var[c->key] = j;
    run_list(m, weigh->body);
    r->weight[j] = m->local[c->score].f;
    r->sum += r->weight[j];
  }
}

static void run_attention(machine *m, row *r, int64_t task) {
  const cy_contraction *c = &m->k->contraction;
  int64_t columns = size(m, c->n), v = at_batch(m, c->v_batch) + m->var[c->out_var[c->nbatch + 1]] * size(m, c->v_n);
  if (!r->weight) {
    r->keys = size(m, c->keys);
    r->weight = calloc((size_t)r->keys + 1, sizeof *r->weight);
    r->number = -1;
    if (!r->weight)
      cy_no_memory();
  }
  if (r->number != task / columns)
    row_weights(m, r);
  r->number = task / columns;
  double sum = 0;
  for (int64_t j = 0; j < r->keys; j++)
    sum += r->weight[j] *
           as_half(c, cy_scalar_load(m->args[c->v], m->k->args[c->v].dtype, (uint64_t)(v + j * size(m, c->v_k))).f);
  bool hidden = c->zero_hidden && m->local[c->top].f == -__builtin_inf();
  m->local[c->acc] = rounded(m, c->acc, hidden ? 0 : sum / r->sum);
  run_list(m, m->k->body->next->next);
}

/* What a, which is rounded as it is read, is multiplied with. */
static double most_steps(machine *m) {
  const cy_contraction *c = &m->k->contraction;
  double most = cy_scalar_load(m->args[c->a_max], CY_F32, (uint64_t)(m->var[c->out_var[0]] * c->a_max_step)).f;
  return (float)c->a_steps / (most > 1e-30f || most != most ? (float)most : 1e-30f);
}

static void run_contraction(machine *m) {
  const cy_contraction *c = &m->k->contraction;
  cy_dtype t = m->k->locals[c->acc];
  dot d = {.m = m, .ta = m->k->args[c->a].dtype, .tb = m->k->args[c->b].dtype, .real = cy_dtype_is_float(t)};
  int64_t column = m->var[c->out_var[c->nout_vars - 1]];
  if (c->has_a_zero)
    d.a_zero = cy_scalar_load(m->args[c->a_zero], d.ta, 0).u;
  if (c->has_b_zero && !c->b_bits)
    d.b_zero = cy_scalar_load(m->args[c->b_zero], d.tb, (uint64_t)(column * c->b_zero_step)).u;
  if (c->has_start)
    d.i = cy_scalar_load(m->args[c->start], CY_I32, (uint64_t)column).u;
  if (c->a_rounded)
    d.up = most_steps(m);
  if (c->kind == CY_CONTRACT_MATMUL)
    dot_matmul(&d);
  else
    dot_conv(&d);
  cy_scalar sum = {.f = d.f};
  if (!d.real)
    sum.u = d.i;
  m->local[c->acc] = cy_scalar_eval(CY_OP_cast, d.real ? CY_F64 : CY_I64, t, &sum);
  run_list(m, m->k->body);
}

/* ---- tasks ---- */

static uint32_t task_vars(cy_kernel *k, const cy_var **out_vars) {
  if (k->contraction.kind == CY_CONTRACT_NONE)
    return cy_kernel_grid(k, out_vars);
  *out_vars = k->contraction.out_var;
  return (uint32_t)k->contraction.nout_vars;
}

int64_t cy_kernel_tasks_eval(cy_kernel *k, const int64_t *syms) {
  const cy_var *vars;
  uint32_t n = task_vars(k, &vars);
  int64_t tasks = 1;
  for (uint32_t i = 0; i < n; i++) {
    int64_t e = cy_dim_eval(k->g, cy_kernel_var(k, vars[i])->extent, syms);
    tasks = e > 0 ? tasks * e : 0;
  }
  return tasks;
}

void cy_kernel_interpret(cy_kernel *k, void *const *args, const int64_t *syms, int64_t begin, int64_t end) {
  const cy_var *vars;
  uint32_t n = task_vars(k, &vars), ne = cy_expr_count(k) + 1;
  row r = {0};
  machine m = {k, args, syms, calloc(k->nvars + 1, 8), calloc(k->nlocals + 1, 8), calloc(ne, 8), calloc(ne, 8), 0};
  if (!m.var || !m.local || !m.value || !m.stamp)
    cy_no_memory();
  for (int64_t t = begin; t < end; t++) {
    int64_t rest = t;
    for (uint32_t i = n; i-- > 0;) {
      int64_t e = cy_dim_eval(k->g, cy_kernel_var(k, vars[i])->extent, syms);
      m.var[vars[i]] = rest % e;
      rest /= e;
    }
    if (k->contraction.kind == CY_CONTRACT_NONE)
      run_list(&m, k->body);
    else if (k->contraction.kind == CY_CONTRACT_ATTENTION)
      run_attention(&m, &r, t);
    else
      run_contraction(&m);
  }
  free(r.weight);
  free(m.var);
  free(m.local);
  free(m.value);
  free(m.stamp);
}
