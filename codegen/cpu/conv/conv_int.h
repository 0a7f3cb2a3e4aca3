/* SPDX-License-Identifier: Apache-2.0 */
/* conv_int.h - what conv.c, winograd*.c and depthwise*.c share.
 *
 * A convolution is seen with three spatial axes, absent outer ones having size 1. A transposed convolution with strides
 * falls into parts, one per residue of the strides, each of which is a plain convolution of stride 1 over a subset of the
 * taps writing every stride-th output; a plain convolution is one part.
 */
#ifndef CY_CPU_CONV_INT_H
#define CY_CPU_CONV_INT_H

#include "codegen/cpu/gemm/microkernel.h"

/* Along one axis, output o' reads input o' * step + start + t * inc for its taps t < count, and is output o' * scale +
 * residue. */
typedef struct cy_axis {
  int64_t count, step, start, inc;
  int64_t scale, residue;
  int64_t kernel, tap0, tap_inc; /* tap t is tap0 + t * tap_inc of the kernel's */
  cy_csize in, out, in_stride;
} cy_axis;

/* ---- conv_axes.c ---- */

void cy_conv_axes(const cy_conv_desc *desc, int part, cy_axis axis[3]);
/* cy_pack_source.tap_map of a part: as many as it has taps. */
const int32_t *cy_conv_tap_map(const cy_conv_desc *desc, int part, cy_arena *arena);

/* A loop over the kernel's rows, those of its outer axes, for an output at o[0], o[1] of them. */
typedef struct cy_kernel_rows {
  cy_loop loop[2];
  V offset;         /* of the row that is read, in elements behind the feature map's first one */
  V exists, number; /* i1: is there such a row; which one of the kernel's */
} cy_kernel_rows;
/* count: of axis 1, NULL: all of the axis */
void cy_kernel_rows_begin(cy_cg *cg, cy_kernel_rows *rows, const cy_axis axis[2], const V o[2], V count);
void cy_kernel_rows_end(cy_cg *cg, cy_kernel_rows *rows);

/* ---- conv.c ---- */

#define CY_UNKNOWN_POSITIONS 1600 /* what a feature map of unknown size is taken for */

/* Outputs of all channels, where their number is known; else as many as estimates take for it. */
double cy_conv_outputs(const cy_conv_desc *desc);
/* Cycles on one core. */
double cy_direct_cost(const cy_cg *cg, const cy_conv_desc *desc);

/* ---- conv_lane_reduce.c ---- */

/* Vectors that hold input channels: so many lanes, shared by so many outputs; 0: none. */
typedef struct cy_lane_reduce {
  unsigned lanes, outputs;
} cy_lane_reduce;
/* The best plan, if there is one, and what it takes: products of vectors for each input channel. outputs: single ones, each
 * of so many taps, all channels of which are computed. */
cy_lane_reduce cy_lane_reduce_choose(const cy_cg *cg, const cy_conv_desc *desc, double outputs, double taps,
                                     double *out_products);
int64_t cy_lane_reduce_weights(const cy_lane_reduce *lane_reduce, const cy_conv_desc *desc, int64_t taps); /* bytes */
unsigned cy_lane_reduce_rows(const cy_cg *cg, const cy_lane_reduce *lane_reduce, int64_t n); /* of a tile */

/* ---- conv_output_block.c ---- */

/* A block of neighbouring outputs whose channels are columns of one row. */
typedef struct cy_output_block {
  int64_t along[3]; /* outputs, by the axes of the desc */
  int64_t count;    /* of all axes together; 1: rows are single outputs */
  cy_lane_reduce lane_reduce; /* these, summed up in vectors that hold input channels, too; no lanes: not so */
  double products;  /* of vectors for each input channel, for all outputs of an image; 0: rows are plain ones */
} cy_output_block;
cy_output_block cy_output_block_choose(const cy_cg *cg, const cy_conv_desc *desc);
/* The axes that desc has, along which such blocks are outputs. */
void cy_output_block_axes(const cy_conv_desc *desc, const cy_output_block *output_block, cy_axis axis[3]);
/* cy_pack_source.tap_map of such rows. */
const int32_t *cy_output_block_map(const cy_conv_desc *desc, const cy_output_block *output_block, cy_arena *arena);
/* Hands rows on to the epilogue of d. */
typedef struct cy_output_block_outputs {
  const cy_conv_desc *d;
  cy_output_block output_block;
} cy_output_block_outputs;
cy_epilogue cy_output_block_epilogue(const cy_output_block_outputs *outputs);

/* cy_microkernel_emit of a core with weights by groups of k of that many lanes, single, and constant n and c. */
void cy_lane_reduce_emit(cy_cg *cg, const cy_microkernel *micro, const cy_lane_reduce *lane_reduce);

/* ---- conv_planar.c ---- */

/* Of a desc that is, or might be, planar. */
double cy_planar_cost(const cy_cg *cg, const cy_conv_desc *desc); /* cycles on one core */

/* ---- costs ---- */

/* How many images costs are compared for: one, when their number is unknown. */
static inline int64_t cy_conv_images(const cy_conv_desc *desc) {
  return cy_csize_or(desc->batch, 1);
}

/* ---- winograd_plan.c ---- */

/* Cycles on one core. unknown_positions: what to take for outputs of unknown size. */
double cy_winograd_cost(const cy_cg *cg, const cy_conv_desc *desc, double unknown_positions);
bool cy_winograd_possible(const cy_conv_desc *desc);

/* ---- winograd_transform.c: one axis, of floats or integers ---- */

void cy_winograd_input(cy_cg *cg, const LLVMValueRef d[6], LLVMValueRef out[6]);
void cy_winograd_filter(cy_cg *cg, const LLVMValueRef g[3], LLVMValueRef out[6]);
void cy_winograd_output(cy_cg *cg, const LLVMValueRef m[6], LLVMValueRef out[4]);

/* ---- winograd_rows.c ---- */

/* M[36][tile][W] of a vector of output channels, of a block of up to CY_ROWS_CHANNELS channels, of filters
 * [channel][9][W], of V[36][tile][CY_ROWS_CHANNELS]. At a time, CY_ROWS_TILES tiles. */
enum { CY_ROWS_CHANNELS = 32, CY_ROWS_TILES = 4 };
typedef struct cy_winograd_rows {
  cy_weights weights;
  int64_t tiles;
  LLVMValueRef v, filters, m;
  int64_t v_point, m_point; /* bytes from point to point */
  LLVMValueRef channels;
  LLVMValueRef accumulate; /* i1 */
  LLVMValueRef prefetch;   /* the filters behind these */
} cy_winograd_rows;
void cy_winograd_rows_emit(cy_cg *cg, const cy_winograd_rows *p);

/* ---- depthwise_float.c ---- */

bool cy_depthwise_possible(const cy_cg *cg, const cy_conv_desc *desc);

#endif
