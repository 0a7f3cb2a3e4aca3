/* SPDX-License-Identifier: Apache-2.0 */
/* dims_int.h - shared by dimsyms.c (symbols), dimstore.c (interning, bounds), dims.c (arithmetic, order), dimeval.c (values)
 * and dimtext.c (text), each of which calls those in front of it; arithmetic for loop_index.c, too. */
#ifndef CY_DIMS_INT_H
#define CY_DIMS_INT_H

#include "ir/ir_int.h"

enum { CY_MAX_TERMS = 96 }; /* of a dim */

/* dimstore.c */
typedef struct cy_poly {
  int n;
  cy_term t[CY_MAX_TERMS];
} cy_poly;
cy_dim cy_dim_intern(cy_graph *g, cy_poly *p); /* drops zero terms; p's terms are sorted */
const cy_dim_slot *cy_dim_slot_of(const cy_graph *g, cy_dim d);
/* The dim that consists of this atom, or this one, alone */
cy_dim cy_dim_atom_add(cy_graph *g, cy_atom_kind kind, cy_sym sym, cy_dim a, cy_dim b);
cy_dim cy_dim_of_atom(cy_graph *g, uint32_t atom);
int64_t cy_floor_div(int64_t a, int64_t b); /* x / 0 is 0 */
int64_t cy_floor_mod(int64_t a, int64_t b);
int64_t cy_gcd(int64_t a, int64_t b); /* of their magnitudes */

/* dims.c */
cy_dim cy_dim_binary(cy_graph *g, cy_atom_kind kind, cy_dim a, cy_dim b);

#endif
