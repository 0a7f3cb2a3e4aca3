/* SPDX-License-Identifier: Apache-2.0 */
/* quantise_int.h - what the files of the quantise passes share: which contractions can be quantised, and their weights.
 */
#ifndef CY_QUANTISE_INT_H
#define CY_QUANTISE_INT_H

#include "passes/pass_int.h"
#include "quantise.h"

/* ---- quantise_layers.c ---- */
/* Is n an f32 contraction of computed values with constant weights? */
bool cy_quant_eligible(cy_graph *g, const cy_node_info *n);
static inline bool cy_quant_is_conv(const cy_node_info *n) {
  return n->op == CY_OP_conv || n->op == CY_OP_conv_transpose;
}
bool cy_quant_is_recurrence(const cy_graph *g, const cy_node_info *n); /* f32 with constant weights that can be s8 */
/* f32 attention that the target multiplies as bf16, and knows the time of. sizes: cy_quant_sizes(). */
bool cy_quant_is_attention(const cy_pass *p, const cy_quant *q, const cy_node_info *n, const int64_t *sizes);
/* What attention n puts out when it reads its q, k and v as bf16; built here. */
cy_val cy_quant_attention(cy_pass *p, const cy_node_info *n);
/* Replaces the recurrence `id` by that of s8 weights with a scale per row, built here; with `keep` only builds it. Its
 * first output. */
cy_val cy_quant_recurrence(cy_pass *p, cy_node id, bool keep);
/* Is the logarithm taken of what becomes of v, so that small errors in it show? Layers that make such v stay in float.
 */
bool cy_quant_feeds_log(const cy_graph *g, const cy_uses *uses, cy_val v);
bool cy_quant_skipped(const cy_quant *q, const cy_graph *g, const cy_node_info *n);
bool cy_quant_finite(const cy_data *weights); /* of f32 */
/* What n becomes; F32 unless a plan says otherwise. */
cy_precision cy_quant_planned(const cy_pass *p, const cy_node_info *n, cy_node id);
int cy_quant_weight_axis(const cy_graph *g, const cy_node_info *n); /* of the weights: output channels */
void cy_quant_more_layers(cy_quant *q, uint32_t n); /* makes room for so many behind those that there are */
void cy_quant_describe(cy_quant *q, cy_graph *g, cy_node id, cy_quant_layer *out);
/* Takes over what was measured of layer l, which lies in block b; why it stays in float, or NULL. */
const char *cy_quant_judged(const cy_quant *q, cy_quant_layer *l, cy_block b);
/* Why layer n cannot be one of floats of 8 bits; NULL: it can. */
const char *cy_quant_float8_keeps(const cy_graph *g, const cy_node_info *n);
/* n's product or convolution of x by w, floats of 8 bits, in f32; built here: of f32 where the target does not multiply
 * them. */
cy_val cy_quant_float8_product(cy_pass *p, const cy_node_info *n, cy_val x, cy_val w);
/* The weights of n, times balance[input channel] unless NULL, as constant of s8 (or f8e4m3fn) and a scale per output
 * channel. */
cy_val cy_quant_weights(cy_pass *p, const cy_node_info *n, const float *balance, cy_val *out_scale);
/* c[channels] shaped to broadcast against n's output. */
cy_val cy_quant_along_channels(cy_graph *g, const cy_node_info *n, cy_val c);
/* A further output of the model, called after `what` and `number`; which one it is. */
uint32_t cy_quant_add_output(cy_graph *g, const char *what, uint32_t number, cy_val v);
/* An output of the model: as it is, and as it would be. */
typedef struct cy_quant_end {
  const char *name;
  cy_val is, would_be;
} cy_quant_end;
/* Adds the two outputs of layer i (cy_quant_layer.output) that tell how y differs from what it puts out, and how the
 * ends differ; built here. */
void cy_quant_compare(cy_graph *g, cy_quant *q, uint32_t i, cy_val y, const cy_quant_end *ends, uint32_t nends);

/* What n takes in float ([0]) and in integers, in cycles; 0: not known. sizes: cy_quant_sizes(). */
void cy_quant_cycles(const cy_quant *q, const cy_graph *g, const cy_node_info *n, const int64_t *sizes, double out[2]);
#define CY_QUANT_NO_GAIN "no gain"

/* ---- weights_given.c, quantise_weights.c ---- */
/* A matrix [k, n] of integers whose scales hold for `block` rows of a column. */
typedef struct cy_weight_blocks {
  int bits;                    /* 8 or 4 */
  bool zeros;                  /* every block has a zero point of its own */
  int zero;                    /* else: of all */
  cy_dtype codes;              /* floats that are stored in the place of integers, without zeros; CY_NONE: none are */
  uint64_t k, n, block, count; /* count: of blocks */
  uint64_t tile;               /* columns that lie together for all rows of a block */
  uint64_t split;              /* parts that each block is stored in, with the same scale */
} cy_weight_blocks;
/* Sets `split`; false: these cannot be stored. */
bool cy_weights_split(cy_weight_blocks *s);
/* Does dynamic quantisation leave product n, of f32 with a constant, to pass `weights`, which has it read integers by
 * blocks? */
bool cy_weights_take(cy_pass *p, const cy_node_info *n);
/* One column of a block. Codes are unsigned, of 8 bits without a zero point signed. */
typedef struct cy_weight_column {
  int *code; /* [block] */
  float scale;
  int zero;
} cy_weight_column;
typedef void (*cy_weight_reader)(const cy_weight_blocks *s, const void *from, uint64_t b, uint64_t c,
                                 cy_weight_column *out);
/* Integers that a model gives, as dequantize reads them: q is [k, n], or [n, k] where transposed. */
typedef struct cy_given_weights {
  cy_weight_blocks blocks;
  const cy_value *q, *scale, *zero; /* zero: NULL */
  bool transposed;
  uint64_t scale_step[2], zero_step[2]; /* elements from block to block, from column to column */
  int more;                             /* added to codes and zero points to make them unsigned */
} cy_given_weights;
/* Is n a product that reads such weights? They must stay as they are until pass `weights`. */
bool cy_weights_given(const cy_pass *p, const cy_node_info *n, const cy_uses *uses, cy_given_weights *out);
/* Do all readers of such a matrix in f32, or of its transpose, multiply it so? */
bool cy_weights_wanted(const cy_pass *p, cy_val v, const cy_uses *uses);
/* Is n a dequantize whose result is read so? */
bool cy_weights_stay(const cy_pass *p, const cy_node_info *n, const cy_uses *uses);
/* Does product n read what stays so? */
bool cy_weights_read(const cy_pass *p, const cy_node_info *n, const cy_uses *uses);
void cy_weights_given_column(const cy_weight_blocks *s, const void *given, uint64_t b, uint64_t c,
                             cy_weight_column *out);

/* ---- half_constant.c ---- */
enum { CY_HALF_BEYOND_F16 = 65520 }; /* what is less is rounded to 65504 at most */
double cy_half_largest(const cy_data *d);              /* the largest magnitude of f32 numbers */
bool cy_half_fits(cy_dtype half, const cy_data *d);    /* are they no larger than `half` can hold? */
/* The values of the constant v, of f32, as dtype `to`, rounded to half precision. */
cy_val cy_half_rounded(cy_graph *g, cy_val v, cy_dtype rounded, cy_dtype to);
/* The constant v of f32 as halves; 0: they do not hold its values, or with `exact` not each of them. */
cy_val cy_half_constant(cy_graph *g, cy_val v, cy_dtype half, bool exact);

/* ---- half_sink.c ---- */
/* Moves casts of f32 to `half` to what computes the values. share: where others compute with them, too, these
 * read the halves. */
void cy_half_sink(cy_pass *p, cy_dtype half, bool share);

/* ---- tables_rounded.c ---- */
/* For each value: does every way from it to an output round it to 8 bits, or normalise it? In scratch memory. */
const bool *cy_tables_rounded(cy_pass *p, const cy_uses *uses);

/* ---- weights_grid.c ---- */
/* The constant w of f32 as s8 times a scale for each of `axis`; 0: its elements are no multiples of such scales. */
cy_val cy_weights_on_grid(cy_graph *g, cy_val w, int axis, cy_val *out_scale);

/* ---- qdq_starts.c ---- */
/* Makes zero points and biases of integer contractions what their sums begin with. */
void cy_qdq_starts(cy_pass *p);

/* ---- quantise_choose.c ---- */
#define CY_QUANT_MUST ((int64_t)1 << 60)
typedef struct cy_quant_need {
  uint32_t item, other;
  int64_t price; /* of choosing item without other; CY_QUANT_MUST: not allowed */
} cy_quant_need;
/* The choice with the greatest sum of gains less prices. */
void cy_quant_choose(cy_arena *scratch, const int64_t *gain, uint32_t nitems, const cy_quant_need *needs,
                     uint32_t nneeds, bool *out_chosen);

/* ---- quantise_decide.c ---- */
/* [value]: does it, with no other layer in between unless `through`, decide what is chosen? In scratch memory. */
const bool *cy_quant_deciding(cy_pass *p, const cy_uses *uses, bool through);
/* [output of the model]: was it chosen, with no layer since? */
const bool *cy_quant_chosen_outputs(cy_pass *p, cy_arena *arena);

/* ---- quantise_ends.c ---- */
/* The first `noutputs` outputs of the model, where no other layer lies between them and the value `from` of block 1,
 * whose nodes are given, with `to` in its place. What they take is built here. In scratch memory. */
cy_quant_end *cy_quant_ends(cy_pass *p, const cy_node *nodes, uint32_t nnodes, uint32_t noutputs, cy_val from,
                            cy_val to, uint32_t *out_count);

/* ---- quantise_round.c ---- */
typedef enum cy_quant_scales { CY_QUANT_PER_ROW, CY_QUANT_PER_IMAGE, CY_QUANT_PER_PLACE } cy_quant_scales;
typedef struct cy_quant_rounded {
  cy_val x, ints, scale;
  cy_block block;
  cy_quant_scales scales;
} cy_quant_rounded;
/* x, [.., k] per row, else [n, c, s..], rounded to 8 bits, of floats where float8, by what it holds when the model runs;
 * built here. Fills all but block and scales. */
cy_quant_rounded cy_quant_round(cy_graph *g, cy_val x, cy_quant_scales scales, const int64_t *sizes, bool float8);

/* ---- quantise_halves.c ---- */
/* Has what was rounded stored as halves, where the target gains by that; sweeps. */
void cy_quant_store_halves(cy_pass *p, const cy_quant_rounded *known, uint32_t n);

/* ---- quantise_single.c ---- */
enum { CY_QUANT_MAX_OUTPUTS = 3 }; /* of a layer: those of a recurrence */
typedef struct cy_quant_singles {
  cy_val which; /* the input */
  struct {
    cy_val old, now;
  } * made; /* [nmade]: what puts values in the place of others */
  uint32_t nmade;
} cy_quant_singles;
void cy_quant_singles_start(cy_pass *p, cy_quant_singles *s, uint32_t nlayers);
/* For node id: y[k] and what follows it if the node has more outputs, where layer i + k is chosen. Built here. */
void cy_quant_single(cy_pass *p, cy_quant_singles *s, uint32_t i, cy_node id, const cy_val *y, uint32_t count);
/* When all have been built: readers get the new values. */
void cy_quant_singles_end(cy_pass *p, const cy_quant_singles *s);

/* ---- quantise_offer.c ---- */
/* For mode OFFER: what makes layer l's output in its precision, behind it. */
typedef struct cy_quant_maker {
  cy_val (*make)(void *ctx, const cy_quant_layer *l); /* of static quantisation */
  void (*behind)(void *ctx, cy_val v); /* builds behind what makes v from now on */
  void *ctx;
} cy_quant_maker;
/* The layers of block 1 in all precisions, in the place of q->layer, which has those that may be static. */
void cy_quant_offer(cy_pass *p, cy_quant *q, const cy_quant_maker *m, const cy_node *nodes, uint32_t nnodes);

/* ---- round_to_half.c, quantise_weights.c ---- */
/* Does n gain by factors in bf16, or weights in f16, as products take them? */
bool cy_half_offered(cy_pass *p, const cy_node_info *n, cy_dtype half, const int64_t *sizes);
/* n's output from rounded factors, computed in f32; built here. */
cy_val cy_half_make(cy_pass *p, const cy_node_info *n, cy_dtype half, const int64_t *sizes);
bool cy_weights_offered(cy_pass *p, const cy_node_info *n);
cy_val cy_weights_make(cy_pass *p, const cy_node_info *n); /* n's output from weights of 4 bits, as f32; built here */

/* ---- quantise_dynamic.c ---- */
typedef struct cy_quant_dynamics cy_quant_dynamics;
cy_quant_dynamics *cy_quant_dynamics_open(cy_pass *p, cy_quant *q);
/* Sets l->cycles and l->keep of node id; false: it is no such layer. */
bool cy_quant_dynamics_offered(cy_quant_dynamics *s, cy_node id, cy_quant_layer *l);
cy_val cy_quant_dynamics_make(cy_quant_dynamics *s, cy_node id); /* its output from integers; built here */
void cy_quant_dynamic_planned(cy_pass *p, cy_quant *q);
void cy_quant_dynamic(cy_pass *p, cy_quant *q, cy_block first); /* blocks from `first` on; adds to q->layer */

#endif
