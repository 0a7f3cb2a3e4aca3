/* SPDX-License-Identifier: Apache-2.0 */
/* variants.h - candidates that do what an algorithm does in another way: tiles, blocks, packing, forms (variants.def). */
#ifndef CY_CPU_VARIANTS_H
#define CY_CPU_VARIANTS_H

#include "contract.h"
#include "gemm/microkernel.h"

/* What a variant may be one of; an algorithm is of some kinds. */
enum {
  CY_OF_PLAIN = 1,      /* product of f32 by constant weights */
  CY_OF_PAIR = 2,       /* product of two factors that come at run time */
  CY_OF_DIRECT = 4,     /* convolution of f32 */
  CY_OF_WINOGRAD = 8,
  CY_OF_HALVES = 16,    /* by weights in halves */
  CY_OF_INT_PLAIN = 32, /* by groups of k: integers, bf16 */
  CY_OF_INT_DIRECT = 64,
  CY_OF_INT_DEPTHWISE = 128
};

/* Algorithms that have variants, by the names of their candidates. */
typedef enum cy_variants_base {
  CY_BASE_PLAIN,
  CY_BASE_DIRECT,
  CY_BASE_WINOGRAD,
  CY_BASE_DEPTHWISE,
  CY_BASES
} cy_variants_base;

/* A candidate of a layer that has variants. */
typedef struct cy_variants {
  unsigned kinds;
  cy_variants_base base;
  cy_tile tile;     /* the usual one, of that product; rows 0: tiles are not tried */
  int64_t rows, n;
  const cy_generator *by;
  const void *desc;
} cy_variants;

/* Adds those of v's variants that make another plan to c, which has v's own candidate. */
void cy_variants_add(const cy_cg *cg, const cy_variants *v, cy_candidates *c);
/* Those of the generators, whose candidate is "plain", "direct" or "winograd". */
cy_variants cy_gemm_variants(const cy_cg *cg, const cy_gemm_desc *desc);
cy_variants cy_direct_variants(const cy_cg *cg, const cy_conv_desc *desc);
cy_variants cy_winograd_variants(const cy_conv_desc *desc);
struct cy_int_gemm_desc;
/* "plain", "direct" or "depthwise". */
cy_variants cy_int_variants(const cy_cg *cg, const struct cy_int_gemm_desc *desc);
/* Of one that is not depthwise: kinds, base, tile, rows, n. */
void cy_int_gemm_variants(const cy_cg *cg, const struct cy_int_gemm_desc *desc, cy_variants *out);

/* Has cg plan by the variant that was chosen, if it is one. */
void cy_variant_take(cy_cg *cg, const cy_candidates *c);

#endif
