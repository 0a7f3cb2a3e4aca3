/* SPDX-License-Identifier: Apache-2.0 */
/* cost.h - what work takes on the CPU of a cy_cg: the questions that generators, passes and --explain ask of machine.def.
 *
 * In: counts of work (products, vectors, tiles, bytes). Out: cycles of one core, or a size that suits its caches. Nobody
 * else looks at cg->model.fmas or the caches' sizes; choices that are yes or no for a kind of core are columns of cg->model.
 */
#ifndef CY_CPU_COST_H
#define CY_CPU_COST_H

#include "emit.h"
#include "ir/target_caps.h"

/* Groups of k that a tile of AMX holds. */
enum { CY_AMX_STEP = 16 };

/* ---- caches ---- */

/* So much of the second-level cache, in bytes: parts / of. */
int64_t cy_l2_part(const cy_cg *cg, int64_t parts, int64_t of);
/* Do so many bytes of weights come from beyond the second-level cache, each time that a block of rows reads them? */
bool cy_cost_many_weights(const cy_cg *cg, int64_t bytes);
/* To read so many bytes: from memory. */
double cy_cost_loads(const cy_cg *cg, double bytes);
/* .. that are read again and again: from where they stay if `beside` times as many fit the second-level cache. */
double cy_cost_reloads(const cy_cg *cg, double bytes, double beside);

/* ---- f32 ---- */

double cy_cost_fmas(const cy_cg *cg, double products); /* whose factors are near */
/* The same at another share of the peak, of `fmas` instructions. */
double cy_cost_instructions(const cy_cg *cg, double fmas, double share);
/* A product, or a convolution of the direct convolution: fmas or weights from memory, whichever take longer; and `outputs`
 * accumulators that are stored. */
double cy_cost_plain(const cy_cg *cg, double fma_cycles, double weight_bytes, double outputs);
/* A product whose weights are stored in `bits`, 16 or at most 8, and become f32 as they are read. */
double cy_cost_narrow_weights(const cy_cg *cg, double products, double weights, int bits, double outputs);
double cy_cost_sums(const cy_cg *cg, double outputs); /* to store them */
typedef enum cy_depthwise_by { CY_DEPTHWISE_FMA, CY_DEPTHWISE_DOT2, CY_DEPTHWISE_DOT4 } cy_depthwise_by;
/* taps: products of an output. */
double cy_cost_depthwise(const cy_cg *cg, cy_depthwise_by by, double outputs, double taps, double inputs_per_output);
/* Few channels in lanes, in products of vectors for each input channel: outputs of their own, of so many lanes, or as many in a vector
 * as leave `lanes` for each. channels: of the input. */
double cy_cost_lanes_single(const cy_cg *cg, double outputs, double taps, double lanes, double channels);
double cy_cost_lanes_shared(const cy_cg *cg, double positions, double taps, double lanes, double channels);
/* A convolution whose weights come at run time. */
void cy_cost_looped(const cy_cg *cg, double products, double *out_rows, double *out_channels);
/* A feature map that changes its layout. */
double cy_cost_transpose(const cy_cg *cg, double elements);

/* ---- Winograd's algorithm: its tiles, of vectors of channels; see machine.def ---- */

double cy_cost_winograd_input(const cy_cg *cg, double tiles, int64_t channels, bool planes);
double cy_cost_winograd_output(const cy_cg *cg, double tiles, int64_t columns, bool planes);
/* The products of so many rows of points, and the filters' transform, of `channels` by `columns`. */
double cy_cost_winograd_points(const cy_cg *cg, double rows, double points, int64_t channels, int64_t columns);
/* The same of few tiles; weight_bytes: of a vector's nine taps. */
double cy_cost_winograd_few(const cy_cg *cg, int64_t tiles, int64_t channels, int64_t columns, double weight_bytes);

/* ---- Strassen's algorithm ---- */

/* Of a task. Neither factor is in the first-level cache, so that micro-kernels reach less of the peak. */
typedef struct cy_strassen_work {
  double fmas, plain; /* instructions of its rows in pairs of tiles, 8 for 7; of others */
  double left, right; /* vectors of factors that are added up */
  bool halves;        /* the right one is stored so */
  double pairs;       /* of tiles and panels */
} cy_strassen_work;
double cy_cost_strassen(const cy_cg *cg, const cy_strassen_work *w);
double cy_cost_strassen_left(const cy_cg *cg, double vectors);
double cy_cost_strassen_plain(const cy_cg *cg, double fmas); /* a product in place of it */

/* ---- planar convolutions ---- */

double cy_cost_planar_step(const cy_cg *cg, unsigned mr, unsigned nv); /* of k, for a tile */
/* All steps of a row of tiles, and those in full: copies, weights, outputs. */
typedef struct cy_planar_work {
  double sums;         /* cycles of the tiles of all rows, by cy_cost_planar_step */
  double pieces;       /* of a row */
  double weight_bytes; /* of all taps */
  double kept;         /* rows that are copied for a row of outputs */
  double vectors;      /* of such a row, in all residues */
  int64_t residues;
  bool vector_residues; /* can vectors be parted into residues by shuffles? */
  double rows;        /* of a task */
  double output_vectors, tile_rows;
} cy_planar_work;
double cy_cost_planar(const cy_cg *cg, const cy_planar_work *w);

/* ---- tasks of products: to compare blocks ---- */

/* A task of so many rows and columns of panels, a panel having `panel` products for a row. */
double cy_cost_task(const cy_cg *cg, double rows, double panels, double panel);
/* Is a task worth being split? columns: of all its panels. */
bool cy_cost_task_splits(const cy_cg *cg, double rows, double columns, double k);
/* A task by AMX: rows that it copies, bytes of a row, columns, pairs of tiles, sums. */
typedef struct cy_amx_work {
  double copied_rows, row_bytes, columns, tiles, sums;
} cy_amx_work;
double cy_cost_amx_task(const cy_cg *cg, const cy_amx_work *w);
/* Row blocks of a depthwise convolution's task, of `all` (0: not known): a row block has so many products by fma, or outputs. */
int64_t cy_cost_depthwise_task(const cy_cg *cg, double work, int64_t all, cy_depthwise_by by);

/* ---- integers and bf16 ---- */

typedef enum cy_factor_type { CY_FACTORS_F32, CY_FACTORS_BYTES, CY_FACTORS_BF16 } cy_factor_type;
/* A product of `rows` rows of `depth` with weights of `n` columns, whose rows are copied in `runs` pieces; share: of the
 * products, others are left out. filled: columns with those that idle in vectors. */
double cy_cost_grouped(const cy_cg *cg, cy_factor_type f, double rows, double depth, double n, double filled,
                       double runs, double share);
/* Products by dot2 or dot4 alone, without accumulators. group: 2 or 4. */
double cy_cost_groups(const cy_cg *cg, double products, int group);
/* A step of k for a tile of mr rows by nv vectors; split: of dot4 that are split against saturation. */
double cy_cost_int_step(const cy_cg *cg, unsigned mr, unsigned nv, bool dot4, bool split);
/* The transforms of F(4x4,3x3): vectors of patches, of filters, of outputs. */
double cy_cost_int_winograd(const cy_cg *cg, double inputs, double filters, double outputs);
/* Of a row block of integers: columns that are interleaved, and their products, for a block of channels. */
double cy_cost_int_depthwise_rows(const cy_cg *cg, double columns, double products);
/* Rows as integers of 24 bits by weights of so many bits with scales: three products by dot4 for one, or weights from memory. */
double cy_cost_rows24(const cy_cg *cg, double products, double weights, int bits);
double cy_cost_rounding(const cy_cg *cg, double elements, bool image);

/* ---- attention, recurrences ---- */

/* rows and keys with those that fill up tiles where AMX multiplies; factors: elements of q, k and v. */
double cy_cost_attention(const cy_cg *cg, bool bf16, double scores, double products, double factors);
double cy_cost_recurrent(const cy_cg *cg, bool ints, double steps, double weights, double units, bool batched);

/* ---- for passes and the host program ---- */

/* Fills in caps.ints and caps.host. cg NULL: of usual cores. */
void cy_cost_caps(const cy_cg *cg, cy_target_caps *caps);

/* ---- choices.c ---- */
/* Of the lines "*, tab, -NAME" that name forms: cy_cg.forms_off. */
uint32_t cy_forms_off(cy_choices *choices);

/* The least measured cycles of those that are wanted, in whatever layout; 0: none was measured. */
double cy_candidates_measured(const cy_cg *cg, const cy_candidates *c, bool (*wanted)(const char *name));
/* The one that a line of the choices forces, whether it applies or not; -1: none does. */
int cy_candidates_asked(const cy_cg *cg, const cy_candidates *c);
/* Sets and returns c->chosen: what a line asks for, if it applies, else the least of what was measured, else the least
 * estimate. */
int cy_candidates_choose(const cy_cg *cg, cy_candidates *c);
/* Appends to the layer's text; sizes as "56x56", -1: "?". */
void cy_layer_text(cy_candidates *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
void cy_layer_sizes(cy_candidates *c, const char *before, const int64_t *sizes, int n);

#endif
