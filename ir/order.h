/* SPDX-License-Identifier: Apache-2.0 */
/* order.h - the arguments of nested builder calls, evaluated in one order.
 *
 * C leaves open which argument of a call is evaluated first. Where arguments are calls that make something (nodes,
 * expressions, instructions), that order is part of what is made: ids, names, the order of instructions. A builder F
 * whose calls are nested is therefore a macro of its own name besides, which evaluates from the last argument to the
 * first; so the same model becomes the same bytes whichever compiler built cytoc:
 *
 *   cy_expr F(cy_kernel *k, cy_expr a, cy_expr b);
 *   #define F(k, a, b) CY_LAST_FIRST(cy_expr, a, b, F(k, x_, y_))
 *
 * Its definition, and a use of its address, are written (F). Calls of other functions that have two arguments of this
 * kind give them names first: tests/order.py finds those that do not.
 */
#ifndef CY_ORDER_H
#define CY_ORDER_H

#define CY_LAST_FIRST(type, a, b, call)                                                                                \
  __extension__({                                                                                                      \
    type y_ = (b), x_ = (a);                                                                                           \
    call;                                                                                                              \
  })

#define CY_LAST_FIRST3(type, a, b, c, call)                                                                            \
  __extension__({                                                                                                      \
    type z_ = (c), y_ = (b), x_ = (a);                                                                                 \
    call;                                                                                                              \
  })

#endif
