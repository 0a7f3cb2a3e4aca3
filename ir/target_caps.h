/* SPDX-License-Identifier: Apache-2.0 */
/* target_caps.h - what a target can do and what work costs there, as passes, lowering and code generation see it.
 *
 * codegen fills one in when a target is opened (cy_machine_caps); nothing changes in it after that. Everybody else reads it
 * through a const pointer that lives as long as the machine. NULL stands for a target without any of it, of which nothing
 * is known: then every question below is answered by false or 0.
 *
 * A further capability is one field here, its value in a row of codegen (cpu/cpu.c, cuda/cuda.c), and its user.
 */
#ifndef CY_TARGET_CAPS_H
#define CY_TARGET_CAPS_H

#include "ir/ir.h"

struct cy_kernel;
struct cy_machine; /* codegen's; the functions' first argument */

/* What --int8 counts beside layer_cycles, in cycles per element; see the columns int_.. of codegen/cpu/machine.def. */
typedef struct cy_int_costs {
  double round, stored, moved, back;
  double margin; /* how many times as fast as floats another precision must be */
} cy_int_costs;

/* What the host program counts when it shares a launch between threads, in thousandths of a cycle; see the columns host_... */
typedef struct cy_host_costs {
  int64_t lane, scalar, product; /* an operation for an element, by vectors or not; a product of a contraction */
  int64_t direct, piece;         /* of a launch that is shared; of a piece of it */
} cy_host_costs;

typedef struct cy_target_caps {
  const struct cy_machine *machine;

  bool device;      /* kernels run on a device with memory of its own */
  int64_t max_head; /* attention of heads up to this size may stay one op; 0: none */
  int64_t
      busy_parts; /* so many tasks are wanted at work: reductions to fewer results take two steps, softmax of long rows
                         as many tasks as are useful; 0: a row is a task, only reductions of images take two steps */
  bool splits_rows; /* is a task better a row, its ends apart, than an element that looks for itself where it lies? */
  /* Products of up to so many rows with weights in integers (cy_contraction.b_bits) have a generator of their own; 0:
   * plain kernels are as good. */
  int64_t few_rows;
  /* The same of attention: of up to so many rows of queries that have the same keys; 0: there is one generator. */
  int64_t few_queries;
  /* Columns of a tile of accumulators, two vectors, of which a core's registers hold some beside each other; 0: lanes are
   * threads of a device. */
  int64_t tile_columns;
  bool f16_weights, bf16_weights; /* may weights be stored so, for products of f32? */
  bool
      blocks_round; /* products by weights in blocks take rows of f32 only, which they round where the node allows it */
  bool attention_rounds; /* attention takes factors of f32 that it rounds to halves, where the node says so */
  /* In dynamic quantisation, convolutions of one tap are better given a scale for each place, by one kernel, than for each
   * image, by several. */
  bool scales_per_place;
  /* .. but where images come from a contraction whose kernel finds their largest elements (maxima_of says so of each); then
   * convolutions round as they read, if there are whole runs of so many channels. 0: neither is so. */
  int64_t finds_maxima;
  bool mixed_bytes; /* products of bytes cost the same whatever the signs of both, and little more with a zero point */
  bool
      float_codes; /* products by weights in blocks take f4e2m1 and floats of 8 bits for these, scales of any type of floats */
  bool float8;      /* products of f8e4m3fn and f8e5m2, also of one by the other, with accumulators in f32 */
  bool words;       /* vectors hold twice as many 16-bit integers as floats, and multiply them as fast */

  double flops_per_cycle; /* f32 peak of one core; 0: not known */
  /* What a core reads at best in a cycle, of as many bytes as its caches hold, and from memory; 0: not known. */
  double cached_bytes, bytes_per_cycle_cached, bytes_per_cycle_memory;
  /* How many times as fast as in floats a convolution or attention has to be by layer_cycles where it rounds what it
   * reads, as the estimates are no better; 0: not known. */
  double rounding_margin;

  cy_int_costs ints;
  cy_host_costs host;

  /* Functions; NULL: the answer is always no. sizes: the value of every symbol. */

  /* Is there a generator for this contraction kernel? If not, lowering makes plain loops of it. */
  bool (*supports)(const struct cy_machine *m, struct cy_kernel *k);
  /* May this contraction's epilogue store maxima (cy_kernel_store_max)? */
  bool (*maxima_of)(const struct cy_machine *m, struct cy_kernel *k);
  /* Are operands of f16 or bf16 (`half`) multiplied as they are and summed in f32: in product n, and faster than f32? n
   * NULL: in any? */
  bool (*half_factors)(const struct cy_machine *m, cy_dtype half, const cy_graph *g, const cy_node_info *n,
                       const int64_t *sizes);
  /* Does it multiply weights of so many bits in n columns, whose scales hold for `block` rows, by rows of f32 that it
   * rounds to 8 bits by the same blocks? */
  bool (*int_rows)(const struct cy_machine *m, int bits, int64_t block, int64_t n);
  /* What node n, a conv, matmul, recurrent or attention with constant weights, takes on one core in that arithmetic. Cycles; 0:
   * not known. */
  double (*layer_cycles)(const struct cy_machine *m, const cy_graph *g, const cy_node_info *n, const int64_t *sizes,
                         cy_layer_arithmetic arithmetic);
  /* What conv n takes in either layout. False: it has no planar layout. NULL: there are no planar convolutions. */
  bool (*conv_cycles)(const struct cy_machine *m, const cy_graph *g, const cy_node_info *n, const int64_t *sizes,
                      cy_conv_cycles *out);
} cy_target_caps;

/* NULL: the target without anything. */
static inline const cy_target_caps *cy_caps_of(const cy_target_caps *caps) {
  static const cy_target_caps none = {0};
  return caps ? caps : &none;
}

static inline bool cy_caps_supports(const cy_target_caps *c, struct cy_kernel *k) {
  return c && c->supports && c->supports(c->machine, k);
}

static inline bool cy_caps_half_factors(const cy_target_caps *c, cy_dtype half, const cy_graph *g,
                                        const cy_node_info *n, const int64_t *sizes) {
  return c && c->half_factors && c->half_factors(c->machine, half, g, n, sizes);
}

static inline bool cy_caps_half_weights(const cy_target_caps *c, cy_dtype half) {
  return c && (half == CY_F16 ? c->f16_weights : half == CY_BF16 && c->bf16_weights);
}

/* May constants be f16? Widening then takes an instruction. */
static inline bool cy_caps_stores_f16(const cy_target_caps *c) {
  return cy_caps_half_weights(c, CY_F16) || cy_caps_half_factors(c, CY_F16, NULL, NULL, NULL);
}

static inline bool cy_caps_int_rows(const cy_target_caps *c, int bits, int64_t block, int64_t n) {
  return c && c->int_rows && c->int_rows(c->machine, bits, block, n);
}

static inline double cy_caps_layer_cycles(const cy_target_caps *c, const cy_graph *g, const cy_node_info *n,
                                          const int64_t *sizes, cy_layer_arithmetic arithmetic) {
  return c && c->layer_cycles ? c->layer_cycles(c->machine, g, n, sizes, arithmetic) : 0;
}

static inline bool cy_caps_conv_cycles(const cy_target_caps *c, const cy_graph *g, const cy_node_info *n,
                                       const int64_t *sizes, cy_conv_cycles *out) {
  return c && c->conv_cycles && c->conv_cycles(c->machine, g, n, sizes, out);
}

#endif
