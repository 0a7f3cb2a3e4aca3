/* SPDX-License-Identifier: Apache-2.0 */
/* passes.h - the graph passes as a caller sees them: one call with options in, statistics out.
 *
 * In:  a graph as the importer (or the text parser) made it.
 * Out: the same graph with fewer, better ops; at higher levels with layouts chosen and fusion decided, ready for
 * lowering.
 *
 * The passes, their order and the reasons for it stand in passes.def. How to write one: TEMPLATE.c.
 */
#ifndef CY_PASSES_H
#define CY_PASSES_H

#include "ir/ir.h"
#include "ir/target_caps.h"

enum { CY_PASS_MAX_RUNS = 48, CY_PASS_MAX_COUNTERS = 40 };

/* Weight-only quantisation. */
typedef struct cy_weight_options {
  int bits;        /* 8 or 4; 0: weights stay as they are */
  int block;       /* rows that share a scale; 0: all of a column */
  bool asymmetric; /* with zero points */
  /* Kernels may round the rows that meet weights in integers to 8 bits: with bits 0, those that the model itself has in 4
   * bits, where few rows meet them or nobody knows how many. */
  bool quantised_rows;
  /* With quantised_rows and quantisation: integer weights that the model itself has stay for products of any number of
   * rows. */
  bool keeps_given;
  struct cy_quant *report; /* quantise.h: gets a layer for every product, `keep` says why it stays; NULL: not wanted */
} cy_weight_options;

typedef struct cy_pass_options {
  int opt_level;              /* 0: every op its own kernel, nothing is rewritten; 1: no choice of layouts; 2 (default), 3: everything */
  const char *only;           /* "a,b": run exactly these, in this order, at any level; NULL: the table */
  const char *stop_after;     /* name of the last pass to run; NULL: all */
  const char *disable;        /* "a,b": skip these; required ones can't be skipped */
  const char *from;           /* of the table, the first to run: the graph has been through those in front; NULL: all */
  const char *dump;           /* "a,b" or "all": write the graph after these passes; NULL: none */
  const char *dump_dir;       /* where NN-PASS.txt go; NULL: the working directory */
  const cy_target_caps *caps; /* the target's; NULL: nothing is known of it */
  bool plain_attention;       /* attention becomes products and softmax, as at level 0 */
  bool few_runs; /* what is compiled runs a few times: nothing is done that only makes it faster by its layout or
                             spread, and no constant gets another type */
  const cy_weight_options *weights; /* NULL: as bits 0 */
  struct cy_quant *quant;           /* quantise.h; NULL: nothing is quantised */
  /* Called once, in front of the pass that reads `quant` (cy_quant_pass), with the graph as that will see it: to learn its
   * ranges and errors from clones of it, which go on `from` there. 0, or -1 after a diagnostic. NULL: nothing is learnt. */
  int (*learn)(void *ctx, cy_graph *g);
  void *learn_ctx;
  /* Nothing is multiplied by 0 that is not in the model: NaN times 0 is NaN. gelu takes erfc, which keeps its digits. */
  bool strict_fp;
  /* CY_F16 or CY_BF16: what operands of products become, where the target multiplies them so or takes weights so; 0: they
   * stay, but constant factors that f16 holds exactly are stored so. */
  cy_dtype half;
  bool half_io; /* inputs and outputs, too */
  bool verify;  /* check every invariant after every pass; a violation is a bug in the pass */
} cy_pass_options;

/* What one pass did. Strings are static. */
typedef struct cy_pass_stat {
  const char *name;
  double ms;
  uint32_t nodes_before, nodes_after;
  uint64_t peak_bytes; /* of the process, when the pass had run */
  uint32_t ncounters;
  struct {
    const char *name;
    uint64_t count;
  } counter[CY_PASS_MAX_COUNTERS];
} cy_pass_stat;

typedef struct cy_pass_stats {
  uint32_t nruns;
  cy_pass_stat run[CY_PASS_MAX_RUNS];
} cy_pass_stats;

/* 0, or -1 after diagnostics in the graph's sink. `out` may be NULL. */
CY_MUST_USE int cy_passes_run(cy_graph *g, const cy_pass_options *o, cy_pass_stats *out);
void cy_pass_stats_print(const cy_pass_stats *s, FILE *out);
/* The table for people: name, level, what it does. */
void cy_passes_list(FILE *out);

#endif
