/* SPDX-License-Identifier: Apache-2.0 */
/* sizes.h - which sizes inputs get that a tool fills itself: what the model fixes, and for what it leaves open, what the
 * command line gives. Nothing is guessed: open sizes without a value are refused. */
#ifndef CY_TOOLS_SIZES_H
#define CY_TOOLS_SIZES_H

#include "tools/options.h"
#include "tools/values/tensor_file.h"

typedef struct sizes_given {
  const options_list *dims, *shapes; /* --dim SYMBOL=N ('*': any), --shape INPUT=1x3x224 */
  int random_dims;                   /* --random-dims=N: of all that are still open; 0: they are refused */
} sizes_given;

enum { SIZES_DIM = 100 };

/* Whole shape of an input. Functions return 0, or -1 with a text in error. */
int sizes_choose(const cyto_port *port, const sizes_given *given, int32_t *out_rank, int64_t *out_dims,
                 char error[TENSOR_ERROR_SIZE]);
/* Names of options must be names of the model: of inputs, and of symbols in their shapes. */
int sizes_check(const cyto_model *model, const sizes_given *given, char error[TENSOR_ERROR_SIZE]);
/* NAME=.. must name an input; `option` is for the text. */
int sizes_check_inputs(const cyto_model *model, const options_list *list, const char *option,
                       char error[TENSOR_ERROR_SIZE]);
/* What cyto-tune chose (cyto_tuned_read()), with a warning of `tool` on stderr if it was with another number of CPUs. */
int sizes_tuned(const char *tool, const char *path, const cyto_model *model, cyto_tuned *out,
                char error[TENSOR_ERROR_SIZE]);
/* Does the command line leave the batch to it? dim: "SYMBOL=N" for the list of --dim. */
bool sizes_take_tuned(const cyto_tuned *tuned, const sizes_given *given, char dim[SIZES_DIM]);
/* "2x3x224", "scalar" */
const char *sizes_text(int32_t rank, const int64_t *dims, char *text, size_t room);
/* Does it count samples of a run? The first dimension of inputs of rank 2 and more does. */
int64_t sizes_samples(int32_t rank, const int64_t *dims);

#endif
