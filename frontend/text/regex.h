/* SPDX-License-Identifier: Apache-2.0 */
/* regex.h - regular expressions to programs for the runtime; see regex.c for the syntax. */
#ifndef CY_FRONTEND_REGEX_H
#define CY_FRONTEND_REGEX_H

#include "ir/ir.h"

/* The program in `arena`, and how many words it has; NULL with a text about what is wrong. */
const int32_t *cy_regex_compile(cy_arena *arena, const char *pattern, size_t length, uint32_t *out_words,
                                const char **out_error);

#endif
