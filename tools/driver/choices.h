/* SPDX-License-Identifier: Apache-2.0 */
/* choices.h - the file of --choice: which candidate each layer is computed by. */
#ifndef CYTOC_CHOICES_H
#define CYTOC_CHOICES_H

#include "codegen/codegen.h"

/* Reads lines "LAYER<tab>CANDIDATE", layers as --explain=costs prints them or "*", '#' beginning a comment. 0, or -1 after
 * diagnostics. Free with cytoc_choices_free, also behind an error. */
int cytoc_choices_read(const char *path, cy_choices *out, cy_diag_sink *diag);
/* Warns of lines that no layer was found for. */
void cytoc_choices_check(const cy_choices *c, const char *path, cy_diag_sink *diag);
void cytoc_choices_free(cy_choices *c);

#endif
