/* SPDX-License-Identifier: Apache-2.0 */
/* round.h - whole numbers rounded up: a >= 0, b > 0, and a + b does not overflow. */
#ifndef CY_ROUND_H
#define CY_ROUND_H

#include <stdint.h>

static inline int64_t cy_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }             /* a / b */
static inline int64_t cy_round_up(int64_t a, int64_t b) { return (a + b - 1) / b * b; } /* to a multiple of b */

#endif
