/* SPDX-License-Identifier: Apache-2.0 */
/* dims_int.h - shared by dims.c (normal form), dimrange.c (bounds, evaluation, symbols) and dimtext.c (text); arithmetic
 * for loop_index.c, too. */
#ifndef CY_DIMS_INT_H
#define CY_DIMS_INT_H

#include "ir/ir_int.h"

/* dims.c */
cy_dim cy_dim_of_atom(cy_graph *g, uint32_t atom); /* the dim that consists of this atom alone */
cy_dim cy_dim_binary(cy_graph *g, cy_atom_kind kind, cy_dim a, cy_dim b);
int64_t cy_floor_div(int64_t a, int64_t b); /* x / 0 is 0 */
int64_t cy_floor_mod(int64_t a, int64_t b);
int64_t cy_gcd(int64_t a, int64_t b); /* of their magnitudes */

/* dimrange.c */
void cy_atom_range(const cy_graph *g, const cy_atom *a, int64_t *out_min, int64_t *out_max);

#endif
