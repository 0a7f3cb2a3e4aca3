/* SPDX-License-Identifier: Apache-2.0 */
/* choices.h - files of choices: which candidate each layer is computed by, and what candidates were measured to take. */
#ifndef CYTOC_CHOICES_H
#define CYTOC_CHOICES_H

#include "codegen/codegen.h"

/* Reads lines "LAYER<tab>CANDIDATE", layers as --explain=costs prints them or "*", '#' beginning a comment. A third column
 * "NAME=KCYCLES .." ('-': cannot be measured) has measured times. 0, or -1 after diagnostics. Free with cytoc_choices_free,
 * also behind an error. */
int cytoc_choices_read(const char *path, cy_choices *out, cy_diag_sink *diag);
/* One such line, which is changed; blank ones and comments are left out. NULL, or what is wrong with it. */
const char *cytoc_choices_add(cy_choices *c, char *text, int line);
/* Adds, or replaces, a layer's line. x's texts are copied. */
void cytoc_choices_put(cy_choices *c, const cy_choice *x);
/* That layer's line, NULL: there is none. */
cy_choice *cytoc_choices_find(const cy_choices *c, const char *layer);
void cytoc_choices_write(const cy_choices *c, FILE *out);
/* Warns of lines that no layer was found for. */
void cytoc_choices_check(const cy_choices *c, const char *path, cy_diag_sink *diag);
void cytoc_choices_free(cy_choices *c);

#endif
