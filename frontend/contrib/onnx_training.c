/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_training.c - ai.onnx.preview.training: one step of an optimiser.
 *
 * Inputs are R (learning rate), T (number of updates so far), then the tensors X_1 .. X_n, their gradients, and one or two
 * lists of moments, each n long; outputs are the new X_1 .. X_n and the new moments in the same order. Every tensor is
 * updated for itself.
 */
#include "frontend/import_int.h"

#define RATE (n->in[0])
#define TIMES (n->in[1])

typedef struct step {
  cy_val x, gradient, moment[2]; /* in: old, out: new */
  cy_val rate, times;            /* scalars of x's type */
} step;

static cy_val number(cy_importer *im, const cy_onnx_node *n, const step *s, const char *name, double otherwise) {
  return LIKE(s->x, cy_onnx_float(im, n, name, otherwise));
}

static void adagrad(cy_importer *im, const cy_onnx_node *n, step *s) {
  cy_val one = LIKE(s->x, 1);
  cy_val rate = DIV(s->rate, ADD(one, MUL(s->times, number(im, n, s, "decay_factor", 0))));
  s->moment[0] = ADD(s->moment[0], MUL(s->gradient, s->gradient));
  cy_val adaptive = ADD(UNARY(sqrt, s->moment[0]), number(im, n, s, "epsilon", 1e-6f));
  s->x = SUB(s->x, DIV(MUL(rate, s->gradient), adaptive));
}

/* old * decay + next * (1 - decay) */
static cy_val decayed(cy_importer *im, cy_val old, cy_val next, cy_val decay) {
  return ADD(MUL(old, decay), MUL(next, SUB(LIKE(decay, 1), decay)));
}

static void adam(cy_importer *im, const cy_onnx_node *n, step *s) {
  cy_val alpha = number(im, n, s, "alpha", 0.9f), beta = number(im, n, s, "beta", 0.999f), one = LIKE(s->x, 1);
  s->moment[0] = decayed(im, s->moment[0], s->gradient, alpha);
  s->moment[1] = decayed(im, s->moment[1], MUL(s->gradient, s->gradient), beta);
  cy_val root = ADD(UNARY(sqrt, s->moment[1]), number(im, n, s, "epsilon", 1e-6f));
  cy_val grown = SUB(one, BINARY(pow, alpha, s->times)), spread = UNARY(sqrt, SUB(one, BINARY(pow, beta, s->times)));
  cy_val started = BINARY(gt, s->times, LIKE(s->times, 0));
  cy_val rate = SELECT(started, DIV(MUL(s->rate, spread), grown), s->rate);
  s->x = MUL(SUB(s->x, DIV(MUL(rate, s->moment[0]), root)), SUB(one, number(im, n, s, "norm_coefficient_post", 0)));
}

static void momentum(cy_importer *im, const cy_onnx_node *n, step *s, bool nesterov) {
  cy_val alpha = number(im, n, s, "alpha", 0), started = BINARY(gt, s->times, LIKE(s->times, 0));
  cy_val beta = SELECT(started, number(im, n, s, "beta", 0), LIKE(s->x, 1));
  s->moment[0] = ADD(MUL(alpha, s->moment[0]), MUL(beta, s->gradient));
  cy_val direction = nesterov ? ADD(s->gradient, MUL(alpha, s->moment[0])) : s->moment[0];
  s->x = SUB(s->x, MUL(s->rate, direction));
}

IMPORT(optimizer) {
  uint32_t moments = n->arg == OPTIMIZER_ADAM ? 2 : 1, lists = 2 + moments, count = (n->nin - 2) / lists;
  int nesterov = n->arg == OPTIMIZER_MOMENTUM ? cy_onnx_word(im, n, "mode", "", "standard|nesterov") : 0;
  if (nesterov < 0)
    return false;
  if (n->nin < 2 + lists || (n->nin - 2) % lists || n->nout != count * (1 + moments))
    return cy_build_error(im->g, NULL, "expected R, T and %u inputs per tensor, and %u outputs, found %u and %u", lists,
                          1 + moments, n->nin, n->nout);
  for (uint32_t i = 0; i < count; i++) {
    step s = {.x = n->in[2 + i], .gradient = n->in[2 + count + i]};
    for (uint32_t k = 0; k < moments; k++)
      s.moment[k] = n->in[2 + (2 + k) * count + i];
    if (!s.x || !s.gradient || !s.moment[0] || (moments > 1 && !s.moment[1]))
      return cy_build_error(im->g, NULL, "an input of tensor %u is missing", i);
    cy_dtype dtype = (cy_dtype)cy_onnx_type(im, s.x)->dtype;
    s.rate = CAST(RATE, dtype);
    s.times = CAST(TIMES, dtype);
    s.gradient = ADD(MUL(number(im, n, &s, "norm_coefficient", 0), s.x), s.gradient);
    if (n->arg == OPTIMIZER_ADAGRAD)
      adagrad(im, n, &s);
    else if (n->arg == OPTIMIZER_ADAM)
      adam(im, n, &s);
    else
      momentum(im, n, &s, nesterov == 1);
    bool ok = cy_importer_set(im, n, i, s.x);
    for (uint32_t k = 0; ok && k < moments; k++)
      ok = cy_importer_set(im, n, (1 + k) * count + i, s.moment[k]);
    if (!ok)
      return false;
  }
  return true;
}
