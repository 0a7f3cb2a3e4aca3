/* SPDX-License-Identifier: Apache-2.0 */
/* cost.c - how much work a kernel is: arithmetic operations and distinct bytes, for fusion decisions and --explain.
 *
 * In: a kernel and a value per symbol. Operations: every arithmetic node of a statement counts once per execution of
 * the statement (index arithmetic and casts are free, divisions and functions count as one). Bytes: of every argument
 * the elements between the lowest and the highest that affine accesses reach, but never more than there are accesses;
 * where an access is not affine (a gather), one element per execution.
 */
#include "ir/loop/loop_int.h"

#include <stdlib.h>
#include <string.h>

typedef struct counter {
  cy_kernel *k;
  const int64_t *syms;
  cy_cost cost;
  double *read, *write; /* elements of each argument */
  uint8_t *seen;        /* expressions of the current statement */
  size_t nseen;
} counter;

static double extent(const counter *c, cy_var v) {
  int64_t n = cy_dim_eval(c->k->g, cy_kernel_var(c->k, v)->extent, c->syms);
  return n > 0 ? (double)n : 0;
}

/* Distinct elements an access touches in `iterations` executions. */
static double touched(counter *c, cy_expr offset, double iterations) {
  cy_affine a;
  if (!cy_expr_affine(c->k, offset, &a) || a.rest)
    return iterations;
  double span = 1;
  for (int i = 0; i < a.n; i++) {
    double coef = (double)cy_dim_eval(c->k->g, a.coef[i], c->syms);
    span += (coef < 0 ? -coef : coef) * (extent(c, a.var[i]) - 1);
  }
  return span < iterations ? span : iterations;
}

static void note(double *elems, double n) {
  if (n > *elems)
    *elems = n;
}

static void count_expr(counter *c, cy_expr e, double iterations, bool index) {
  if (c->seen[e])
    return;
  c->seen[e] = 1;
  const cy_expr_info *x = cy_expr_of(c->k, e);
  if (x->op == CY_X_LOAD)
    note(&c->read[x->id], touched(c, x->arg[0], iterations));
  else if (x->n && !index && x->op != CY_OP_cast && x->op != CY_OP_bitcast && x->op != CY_OP_select)
    c->cost.flops += x->op == CY_OP_fma ? 2 * iterations : iterations;
  for (int i = 0; i < x->n; i++)
    count_expr(c, x->arg[i], iterations, index || x->op == CY_X_LOAD);
}

static void forget(counter *c) { memset(c->seen, 0, c->nseen); }

static void count_list(counter *c, const cy_stmt *s, double iterations) {
  for (; s; s = s->next) {
    if (s->value || s->offset)
      forget(c);
    if (s->kind == CY_S_STORE) {
      note(&c->write[s->arg], touched(c, s->offset, iterations));
      count_expr(c, s->offset, iterations, true);
    }
    if (s->value)
      count_expr(c, s->value, iterations, false);
    if (s->kind == CY_S_ACCUM)
      c->cost.flops += iterations;
    count_list(c, s->body, s->kind == CY_S_FOR ? iterations * extent(c, s->var) : iterations);
  }
}

static double eval(const counter *c, cy_dim d) { return d ? (double)cy_dim_eval(c->k->g, d, c->syms) : 1; }

/* Multiply-adds, and both operands read once. Batch strides of 0 read one matrix for the whole batch. */
static void count_contraction(counter *c, double outputs) {
  const cy_contraction *t = &c->k->contraction;
  double a, b, depth;
  if (t->kind == CY_CONTRACT_ATTENTION) {
    double keys = eval(c, t->keys), size = eval(c, t->k), columns = eval(c, t->n), v = keys * columns;
    depth = keys * (1 + size / (columns > 0 ? columns : 1));
    a = eval(c, t->m) * size;
    b = keys * size;
    for (int i = 0; i < t->nbatch; i++) {
      a *= cy_dim_is(c->k->g, t->a_batch[i], 0) ? 1 : eval(c, t->batch[i]);
      b *= cy_dim_is(c->k->g, t->b_batch[i], 0) ? 1 : eval(c, t->batch[i]);
      v *= cy_dim_is(c->k->g, t->v_batch[i], 0) ? 1 : eval(c, t->batch[i]);
    }
    note(&c->read[t->v], v);
  } else if (t->kind == CY_CONTRACT_MATMUL) {
    depth = eval(c, t->k);
    a = eval(c, t->m) * depth;
    b = eval(c, t->n) * depth;
    if (t->b_bits) {
      note(&c->read[t->b_scale], b / (double)t->b_block);
      b *= t->b_bits / 8.0;
    }
    for (int i = 0; i < t->nbatch; i++) {
      a *= cy_dim_is(c->k->g, t->a_batch[i], 0) ? 1 : eval(c, t->batch[i]);
      b *= cy_dim_is(c->k->g, t->b_batch[i], 0) ? 1 : eval(c, t->batch[i]);
    }
  } else {
    double taps = 1, in = 1, out = 1;
    for (int i = 0; i < t->nspatial; i++) {
      const cy_shuffle_fill *f = &t->shuffle[i];
      taps *= (double)t->kernel[i];
      taps -= f->positions ? taps * (double)(f->before + f->behind) / (double)(t->kernel[i] * f->positions) : 0;
      in *= eval(c, t->in[i]);
      out *= eval(c, t->out[i]);
    }
    depth = eval(c, t->channels_in) / (double)t->group * taps;
    if (t->kind == CY_CONTRACT_CONV_TRANSPOSE && out > 0)
      depth *= in / out;
    a = eval(c, t->images) * in * eval(c, t->channels_in);
    b = eval(c, t->channels_in) / (double)t->group * taps * eval(c, t->channels_out);
  }
  c->cost.flops += 2 * outputs * depth;
  note(&c->read[t->a], a);
  note(&c->read[t->b], b);
}

cy_cost cy_kernel_cost(cy_kernel *k, const int64_t *syms) {
  counter c = {.k = k, .syms = syms};
  double iterations = (double)cy_kernel_tasks_eval(k, syms);
  c.read = calloc(k->nargs + 1, sizeof(double));
  c.write = calloc(k->nargs + 1, sizeof(double));
  if (!c.read || !c.write)
    cy_no_memory();
  if (k->contraction.kind != CY_CONTRACT_NONE)
    count_contraction(&c, iterations);
  c.nseen = cy_expr_count(k) + 1; /* what cy_expr_affine makes meanwhile is in no statement */
  c.seen = calloc(c.nseen, 1);
  if (!c.seen)
    cy_no_memory();
  const cy_stmt *body = k->body;
  if (k->contraction.kind == CY_CONTRACT_ATTENTION) { /* its loops over the keys run once per row, not per output */
    double columns = eval(&c, k->contraction.n), rows = columns > 0 ? iterations / columns : 0;
    for (const cy_stmt *s = body; s && s->kind == CY_S_FOR && s->var == k->contraction.key; s = s->next)
      count_list(&c, s->body, rows * eval(&c, k->contraction.keys));
    while (body && body->kind == CY_S_FOR && body->var == k->contraction.key)
      body = body->next;
  }
  count_list(&c, body, iterations);
  for (uint32_t i = 0; i < k->nargs; i++) {
    if (k->args[i].kind == CY_ARG_SCRATCH)
      continue;
    double bytes = cy_dtype_of(k->args[i].dtype)->bits / 8.0;
    c.cost.read_bytes += c.read[i] * bytes;
    c.cost.write_bytes += c.write[i] * bytes;
  }
  free(c.read);
  free(c.write);
  free(c.seen);
  return c.cost;
}
