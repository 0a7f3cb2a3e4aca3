/* SPDX-License-Identifier: Apache-2.0 */
/* quantise.h - what quantising a float model needs to know and tells: the mode, the tensors and their ranges, the
 * layers.
 *
 * Static quantisation compiles a model several times. All of them are made of one graph, the one that reaches the pass
 * `quantise`: each but the last of a clone of it, whose ids are the same, so that what is learnt of a node or value holds in
 * the next one (cy_pass_options.learn):
 *
 *   OBSERVE   lists the tensors and layers that could be quantised; adds each tensor to the model's outputs. The caller
 *             compiles and runs that model on samples and fills in the ranges.
 *   MEASURE   adds, per layer, what quantising it alone does: the sum of squared differences, that of squared values,
 *             and per output channel the sum of differences. The caller runs it and fills in errors and corrections.
 *   SINGLE    adds an input, the last: a bool for each number of a layer (and perhaps more). Where it is true the layer is
 *             quantised, the others are in float, so that one library tells what each does to the model's outputs, and any
 *             choice of them.
 *   STATIC    inserts quantize and dequantize around the layers that are not kept in float.
 *   DYNAMIC   needs none of these: weights become integers now, activations when the model runs. MEASURE_DYNAMIC and
 *             SINGLE_DYNAMIC do what MEASURE and SINGLE do for the layers of DYNAMIC.
 *
 * With cy_quant.float8 all of these make floats of 8 bits where they would make integers.
 *
 * HALF and MEASURE_HALF are the same for products in half precision, which the pass `to_half` makes.
 *
 * A budget of accuracy (--accuracy) has layers in several precisions:
 *
 *   OFFER         lists every layer in each precision that gains time on the target, an entry of `layer` each, adds what
 *                 MEASURE adds for each, SINGLE's input, a bool for each entry, and one more: what is added to the
 *                 channels of statically quantised layers.
 *   PLAN          makes of every layer what `plan` says: statically quantised ones need the ranges of OBSERVE.
 *
 * Everything in a cy_quant lives in its arena.
 */
#ifndef CY_QUANTISE_H
#define CY_QUANTISE_H

#include "ir/ir.h"
#include "ir/target_caps.h"

typedef enum cy_quant_mode {
  CY_QUANT_OBSERVE,
  CY_QUANT_MEASURE,
  CY_QUANT_SINGLE,
  CY_QUANT_STATIC,
  CY_QUANT_DYNAMIC,
  CY_QUANT_MEASURE_DYNAMIC,
  CY_QUANT_SINGLE_DYNAMIC,
  CY_QUANT_OFFER,
  CY_QUANT_PLAN,
  CY_QUANT_HALF,
  CY_QUANT_MEASURE_HALF
} cy_quant_mode;

/* What a layer computes with: name, as tables and options have it; what it is. */
#define CY_PRECISION_TABLE(X)                                                                                          \
  X(F32, "f32")                                                                                                        \
  X(F16, "fp16")        /* weights; f32 as they are read */                                                            \
  X(BF16, "bf16")       /* both factors, sums in f32 */                                                                \
  X(STATIC, "int8 static")                                                                                             \
  X(DYNAMIC, "int8 dynamic")                                                                                           \
  X(INT4, "int4") /* weights by blocks of 32 rows; f32 as they are read */
typedef enum cy_precision {
#define CY_PRECISION(id, name) CY_PRECISION_##id,
  CY_PRECISION_TABLE(CY_PRECISION)
#undef CY_PRECISION
      CY_PRECISIONS
} cy_precision;
const char *cy_precision_name(cy_precision p);

static inline bool cy_quant_is_static(cy_quant_mode mode) { return mode <= CY_QUANT_STATIC; }
static inline bool cy_quant_is_single(cy_quant_mode mode) {
  return mode == CY_QUANT_SINGLE || mode == CY_QUANT_SINGLE_DYNAMIC;
}
/* Has the model an input that chooses layers? */
static inline bool cy_quant_has_choice(cy_quant_mode mode) {
  return cy_quant_is_single(mode) || mode == CY_QUANT_OFFER;
}
static inline bool cy_quant_is_half(cy_quant_mode mode) { return mode >= CY_QUANT_HALF; }
/* The pass that does it. */
static inline const char *cy_quant_pass(cy_quant_mode mode) { return cy_quant_is_half(mode) ? "to_half" : "quantise"; }

/* An activation: u8, one scale and zero point. Where channels differ much in range, they are brought closer together
 * first: the tensor holds x / balance[channel], and the weights of its readers are multiplied by balance[channel]. */
typedef struct cy_quant_tensor {
  cy_val value;
  const char *name;      /* for people; ONNX's where it has one */
  uint32_t output;       /* OBSERVE: number of the model output that carries it */
  int axis;              /* of its channels; -1: its channels can't be balanced */
  uint32_t channels;     /* along axis; 1 where that is -1 */
  uint32_t *from, nfrom; /* tensors (by index) whose integers it is made of by moving them */
  bool joins;            /* .. by putting their channels behind one another */
  bool passes_channels;  /* .. and along axis 1 each channel is one of theirs, in their order */
  double *max;          /* [channels], the caller's: largest magnitude to expect of each */
  const float *balance;  /* [channels]; NULL: all 1 */
  double low, high;      /* the range of x / balance, chosen by the caller; 0 is always inside when used */
} cy_quant_tensor;

typedef struct cy_quant_layer {
  cy_node node;
  const char *name, *op; /* of the ONNX node */
  const char *shape;     /* for people: "3x3 64->128" */
  cy_val input;          /* the tensor that it reads */
  uint32_t channels;     /* of its output */
  double macs;           /* multiplications per run; 0: depends on the inputs' sizes */
  double cycles[2];      /* on one core of the target, in float and in integers; 0: not known */
  bool product;          /* of rows: the channels that it reads are its input's last axis, else axis 1 */
  bool depthwise;        /* a filter per channel */
  bool amplified;        /* SINGLE_DYNAMIC: something is chosen further on by what comes of it, which small errors change */
  cy_precision precision; /* OFFER: which this entry is about */
  uint32_t correction;    /* OFFER, static: where its corrections begin, one a channel */
  const char *instead;   /* what it becomes in the place of 8-bit integers; NULL: it becomes these */
  uint32_t output; /* MEASURE: number of the first of two model outputs, f32: [3 + 2 * nends] the sum of squared
                      differences, that of squared values, elements per channel, and both sums for every end;
                      [channels] the sums of differences */
  const char **end; /* [nends]: outputs of the model that no other layer lies in front of, by name */
  uint32_t nends;
  double error;    /* of its output when quantised alone, relative RMS; < 0: not measured */
  const float *correct; /* per channel, added to the output; NULL: none */
  const char *keep;     /* why it stays in float; NULL: it is quantised */
  bool precise;         /* its error is why: so what it reads is not rounded either, even if others have it so */
} cy_quant_layer;

/* An output of the model on samples, as it is and as the quantised model has it. */
typedef struct cy_quant_output {
  const char *name;
  double signal, noise; /* sums of squares: of its values, of the differences */
  const char *odd;      /* why these tell nothing; NULL: they do */
  double before;        /* noise over signal before layers were left in float for outputs; 0: none were */
  const char *worst;    /* "'conv1' 14.2 dB, ..": the layers that cost it most, each by itself; NULL: not known */
} cy_quant_output;

typedef struct cy_quant {
  cy_quant_mode mode;
  const cy_target_caps *caps; /* tells what layers take; NULL: nothing is known of time */
  uint32_t ninner;  /* CY_QUANT_OFFER: layers in bodies of control flow, which are not offered, .. */
  const char *inner; /* .. the first one's name */
  bool smallest;    /* layers that gain no time are quantised all the same */
  bool float8;      /* to f8e4m3fn in the place of integers: no zero points, nor balance */
  const char *skip; /* "conv1,head.*": layers of these names stay in float; '*' and '?' as in file names */
  cy_arena *arena;
  cy_quant_tensor *tensor;
  cy_quant_layer *layer;
  uint32_t ntensors, nlayers;
  const cy_quant_layer *measured; /* DYNAMIC, HALF: the layers that were measured, whose `keep` and `error` hold */
  uint32_t nmeasured;
  const cy_quant_output *output; /* of the quantised model, if it was run */
  uint32_t noutputs;
  const bool *chosen; /* SINGLE_DYNAMIC: [output of the model]: it was chosen by what layers make, so that errors change its order */
  const char *unseen; /* why outputs were not compared with those of float; NULL: they were, or nobody asked */
  /* PLAN: [nplan]: what each node becomes, those behind nothing; and statically quantised ones whose conversions cost more
   * than they gain. OFFER: which precisions may be offered, as bits. */
  cy_precision *plan, *fallback;
  uint32_t nplan;
  uint32_t ncorrections; /* OFFER: of all entries; the input behind the choice has one more */
  unsigned offered;
  bool shares_halves; /* PLAN: what computes with a value that a product reads as halves may read them, too */
  double table_error; /* the greatest that tables of 8 bits may have, relative RMS */
  bool limited; /* errors are limited: layers that can't be measured, those in control flow, stay in float */
} cy_quant;

void cy_quant_init(cy_quant *q, cy_quant_mode mode);
void cy_quant_deinit(cy_quant *q);

/* Why a layer stays in float. */
#define CY_QUANT_LOG "its logarithm is taken, which shows small errors"
#define CY_QUANT_BLOCKS "weights by blocks, rows in 8 bits" /* and no float */
#define CY_QUANT_SKIPPED "skipped as asked"
#define CY_QUANT_DECIDES "what is chosen by its numbers (TopK or the like) hangs on small errors"
#define CY_QUANT_FOR_OUTPUT "for output " /* begins with it */

/* What operators do. */
enum {
  CY_QUANT_LAYER = 1,         /* multiplies by weights */
  CY_QUANT_MOVES = 2,         /* nothing but move elements: its integers are those of its inputs */
  CY_QUANT_MOVES_NEAREST = 4, /* .. in the mode "nearest" */
  CY_QUANT_READS = 8,         /* computes, but with integers in front of it less memory is read */
  CY_QUANT_SMALL = 16,        /* hands on what is small beside the rest as such, so that a logarithm would show it */
  CY_QUANT_EW = 32,           /* element-wise: of ONNX only, as the graph's operators tell that themselves */
  CY_QUANT_FILES = 64,        /* other runtimes have it for integers, too; without it ONNX's neither moves nor reads */
  CY_QUANT_HEAVY = 128        /* not computed again to see what a layer in front of it does to the model's outputs */
};
unsigned cy_quant_op_does(cy_op op);
unsigned cy_quant_onnx_does(const char *op_type); /* of ONNX's own domain */
/* A logarithm is looked for behind so many operators. */
enum { CY_QUANT_LOG_DEPTH = 10 };
/* Are weights those of a bank of filters, which adds up powers? So many f32; such a product is CY_QUANT_SMALL, too. */
bool cy_quant_adds_powers(const void *weights, uint64_t count);
/* Does `skip` (as in cy_quant) name a layer, or its type? */
bool cy_quant_skips(const char *skip, const char *name, const char *op);
/* Are ranges near enough for tensors that are joined to have one scale? */
bool cy_quant_may_share(const double low[2], const double high[2]);

/* cy_quant_tensor.passes_channels of what n, which moves elements, makes. */
bool cy_quant_passes_channels(const cy_graph *g, const cy_node_info *n);
/* Sets `axis` and `channels` of all tensors: of those that share integers all have an axis, or none. types[tensor]; NULL:
 * not known. */
void cy_quant_balance_axes(cy_quant *q, const cy_graph *g, const cy_type *const *types);
/* Sets `balance` of all tensors from `max`. */
void cy_quant_balance(cy_quant *q);
/* A value for every symbol, to estimate with: batches count as 1, everything else as a middling size. */
const int64_t *cy_quant_sizes(const cy_graph *g, cy_arena *arena);
double cy_quant_elements(const cy_graph *g, cy_val v, const int64_t *sizes);
/* Scale and zero point of a u8 tensor of this range. */
void cy_quant_u8(double low, double high, float *out_scale, int *out_zero);
/* Scale of an f8e4m3fn tensor whose largest magnitude is `max`. */
enum { CY_QUANT_FLOAT8_MAX = 448 };
float cy_quant_float8_scale(double max);
/* Symmetric s8 by channel: `values` is [outer][channels][inner]; out_scale[channels], out has as many elements as
 * values. Of a convolution, inner is a multiple of its taps, whose sums are kept; else `taps` is 1. */
void cy_quant_s8(const void *values, uint64_t outer, uint64_t channels, uint64_t inner, uint64_t taps, float *out_scale,
                 int8_t *out);

#endif
