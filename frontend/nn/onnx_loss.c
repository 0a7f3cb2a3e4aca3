/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_loss.c - losses: NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss.
 *
 * Per element: minus the log probability of the target class, times the weight of that class, 0 where the target is
 * ignore_index. A mean divides by the sum of the weights that took part.
 */
#include "frontend/import_int.h"

#define X (n->in[0])
#define SET(v) cy_importer_set(im, n, 0, (v))

static cy_val sum_all(cy_importer *im, cy_val x) {
  int64_t axes[CY_MAX_RANK];
  if (!x)
    return 0;
  int rank = cy_onnx_type(im, x)->rank;
  for (int i = 0; i < rank; i++)
    axes[i] = i;
  return cy_build_reduce(im->g, CY_OP_reduce_sum, x, axes, (uint32_t)rank, false);
}

/* logp [n, c, d..], target [n, d..], weights [c] or 0. */
static cy_val loss_of(cy_importer *im, const cy_onnx_node *n, cy_val logp, cy_val target, cy_val weights) {
  int how = cy_onnx_word(im, n, "reduction", "mean", "none|sum|mean");
  const cy_type tx = *cy_onnx_type(im, logp), *tt = cy_onnx_type(im, target);
  if (how < 0 || tx.rank < 2 || tt->rank != tx.rank - 1)
    return how < 0 ? 0
                   : cy_build_error(im->g, NULL, "expected scores [n, c, d..] and targets [n, d..], found %s and %s",
                                    cy_type_text(im->g, &tx), cy_type_text(im->g, tt));
  const cy_type *tw = weights ? cy_onnx_type(im, weights) : NULL;
  if (tw && (tw->content || tw->rank != 1))
    return cy_build_error(im->g, "input 'weight'", "expected a weight for each class, found %s", cy_type_text(im->g, tw));
  cy_val at = CAST(target, CY_I64), ignored = 0, w = 0;
  if (cy_onnx_has(n, "ignore_index")) {
    ignored = BINARY(eq, at, cy_build_scalar_int(im->g, CY_I64, cy_onnx_int(im, n, "ignore_index", 0)));
    at = SELECT(ignored, LIKE(at, 0), at);
  }
  if (!at || !cy_onnx_check_indices(im, at, tx.dim[1], true) ||
      (tw && !cy_onnx_check_indices(im, at, tw->dim[0], true)))
    return 0;
  cy_val in[2] = {logp, at ? cy_build_unsqueeze(im->g, at, 1) : 0};
  cy_attr axis = cy_attr_int(CY_ATTR_axis, 1);
  cy_val picked = in[1] ? cy_build(im->g, CY_OP_gather_elements, in, 2, &axis, 1, NULL, 1) : 0;
  cy_val loss = picked ? UNARY(neg, cy_build_squeeze(im->g, picked, 1)) : 0;
  if (weights && at)
    w = cy_build_gather(im->g, weights, at, 0);
  if (ignored && loss)
    w = SELECT(ignored, LIKE(loss, 0), w ? w : LIKE(loss, 1));
  if (w && loss)
    loss = SELECT(BINARY(eq, w, LIKE(w, 0)), LIKE(loss, 0), MUL(loss, w));
  if (how == 0 || !loss)
    return loss;
  cy_val sum = sum_all(im, loss);
  if (how == 1)
    return sum;
  return DIV(sum, w ? sum_all(im, w)
                    : CAST(cy_build_dim_scalar(im->g, cy_type_elems(im->g, cy_onnx_type(im, loss))), tx.dtype));
}

IMPORT(nll_loss) { return SET(loss_of(im, n, X, n->in[1], n->in[2])); }

IMPORT(softmax_cross_entropy) {
  cy_attr axis = cy_attr_int(CY_ATTR_axis, 1);
  if (cy_onnx_type(im, X)->rank < 2)
    return cy_build_error(im->g, NULL, "expected scores [n, c, d..], found %s",
                          cy_type_text(im->g, cy_onnx_type(im, X)));
  cy_val logp = cy_build(im->g, CY_OP_log_softmax, &X, 1, &axis, 1, NULL, 1);
  return logp && cy_importer_set(im, n, 1, logp) && SET(loss_of(im, n, logp, n->in[1], n->in[2]));
}
