/* SPDX-License-Identifier: Apache-2.0 */
/* quantise_ops.c - what operators do to values that matters to quantisation, for those who see the graph (the pass
 * `quantise`) and those who see ONNX (`cytoc quantize`).
 *
 * A row per operator of the graph, with the operator types of ONNX that become it; CY_OP_NONE: these become several.
 */
#include "quantise_int.h"

#include <fnmatch.h>
#include <string.h>

enum { ARITHMETIC = CY_QUANT_SMALL, VIEW = CY_QUANT_MOVES | CY_QUANT_SMALL, FILES = CY_QUANT_FILES };

static const struct row {
  cy_op op;
  const char *onnx; /* with a space between them */
  unsigned does;
} rows[] = {
    {CY_OP_conv, "Conv", CY_QUANT_LAYER | CY_QUANT_HEAVY},
    {CY_OP_matmul, "MatMul Gemm", CY_QUANT_LAYER | CY_QUANT_HEAVY},
    {CY_OP_conv_transpose, "ConvTranspose", CY_QUANT_LAYER | CY_QUANT_HEAVY},
    {CY_OP_attention, "Attention", CY_QUANT_HEAVY},
    {CY_OP_recurrent, "RNN GRU LSTM", CY_QUANT_HEAVY},
    {CY_OP_NONE, "DeformConv Einsum NonMaxSuppression NonZero TopK Unique", CY_QUANT_HEAVY},

    {CY_OP_reshape, "Reshape Flatten Squeeze Unsqueeze", VIEW | FILES},
    {CY_OP_transpose, "Transpose", VIEW | FILES},
    {CY_OP_slice, "Slice", VIEW | FILES},
    {CY_OP_slice, "Split", VIEW},
    {CY_OP_concat, "Concat", VIEW | FILES},
    {CY_OP_expand, "Expand", VIEW},
    {CY_OP_identity, "Identity", VIEW},
    {CY_OP_gather, "Gather", VIEW},
    {CY_OP_pad, "Pad", VIEW},
    {CY_OP_pool_max, "MaxPool", CY_QUANT_MOVES | FILES}, /* commutes with rounding */
    {CY_OP_resize, "Resize", CY_QUANT_MOVES_NEAREST | CY_QUANT_READS | FILES},
    {CY_OP_pool_avg, "AveragePool", CY_QUANT_READS | FILES},
    {CY_OP_NONE, "GlobalAveragePool", CY_QUANT_READS | FILES},

    {CY_OP_add, "Add", ARITHMETIC},
    {CY_OP_sub, "Sub", ARITHMETIC},
    {CY_OP_mul, "Mul", ARITHMETIC},
    {CY_OP_div, "Div", ARITHMETIC},
    {CY_OP_max, "Max", ARITHMETIC},
    {CY_OP_min, "Min", ARITHMETIC},
    {CY_OP_pow, "Pow", ARITHMETIC},
    {CY_OP_sqrt, "Sqrt", ARITHMETIC},
    {CY_OP_abs, "Abs", ARITHMETIC},
    {CY_OP_reduce_sum, "ReduceSum", ARITHMETIC},

    {CY_OP_neg, "Neg", 0},
    {CY_OP_exp, "Exp", 0},
    {CY_OP_erf, "Erf", 0},
    {CY_OP_tanh, "Tanh", 0},
    {CY_OP_sigmoid, "Sigmoid", 0},
    {CY_OP_select, "Where", 0},
    {CY_OP_NONE,
     "Clip Elu Gelu HardSigmoid HardSwish LeakyRelu Mish PRelu Reciprocal Relu Selu Softplus Softsign ThresholdedRelu",
     CY_QUANT_EW},
};

enum { NROWS = sizeof rows / sizeof rows[0] };

unsigned cy_quant_op_does(cy_op op) {
  for (size_t i = 0; i < NROWS; i++)
    if (rows[i].op == op)
      return rows[i].does;
  return 0;
}

static bool has_word(const char *list, const char *word) {
  size_t n = strlen(word);
  for (const char *at = list; n && (at = strstr(at, word)); at += n)
    if ((at == list || at[-1] == ' ') && (at[n] == ' ' || !at[n]))
      return true;
  return false;
}

unsigned cy_quant_onnx_does(const char *op_type) {
  for (size_t i = 0; i < NROWS; i++)
    if (has_word(rows[i].onnx, op_type)) {
      bool ew = rows[i].op != CY_OP_NONE && cy_op_is_ew(rows[i].op);
      unsigned does = rows[i].does | (ew ? CY_QUANT_EW : 0), ints = CY_QUANT_MOVES | CY_QUANT_MOVES_NEAREST;
      return does & CY_QUANT_FILES ? does : does & ~(ints | CY_QUANT_READS);
    }
  return 0;
}

bool cy_quant_adds_powers(const void *weights, uint64_t count) {
  const cy_data_f32 *w = weights;
  bool positive = w != NULL;
  for (uint64_t i = 0; positive && i < count; i++)
    positive = w[i] >= 0;
  return positive;
}

bool cy_quant_skips(const char *skip, const char *name, const char *op) {
  char pattern[512];
  for (const char *p = skip; p && *p;) {
    size_t len = strcspn(p, ",");
    snprintf(pattern, sizeof pattern, "%.*s", (int)len, p);
    if (!fnmatch(pattern, name, 0) || !fnmatch(pattern, op, 0))
      return true;
    p += len + (p[len] == ',');
  }
  return false;
}

bool cy_quant_may_share(const double low[2], const double high[2]) {
  static const double LIMIT = 4; /* times as wide */
  double width[2];
  for (int i = 0; i < 2; i++)
    width[i] = (high[i] > 0 ? high[i] : 0) - (low[i] < 0 ? low[i] : 0);
  return width[0] <= width[1] * LIMIT && width[1] <= width[0] * LIMIT;
}
