/* SPDX-License-Identifier: Apache-2.0 */
/* simplify.h - the rule sets that make up the simplify pass: arithmetic (simplify.c), views (simplify_view.c), scatters
 * (simplify_scatter.c), rows of products (simplify_rows.c), transposed convolutions (simplify_shuffle.c),
 * dequantisation (weights_spelled.c). */
#ifndef CY_SIMPLIFY_H
#define CY_SIMPLIFY_H

#include "pass_int.h"

cy_rule_set cy_simplify_view_rules(void);
cy_rule_set cy_simplify_scatter_rules(void);
cy_rule_set cy_simplify_rows_rules(void);
cy_rule_set cy_simplify_shuffle_rules(void);
cy_rule_set cy_weights_spelled_rules(void);

#endif
