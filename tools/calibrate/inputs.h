/* SPDX-License-Identifier: Apache-2.0 */
/* inputs.h - samples to run a model on: those of files, or random ones that the model can take. See inputs.c. */
#ifndef CY_INPUTS_H
#define CY_INPUTS_H

#include "tools/options.h"
#include "tools/values/value_file.h"

typedef struct input_sample {
  char *label;        /* "random sample 0", or its folder */
  cyto_value *inputs; /* [n]; those that stay out have no dtype */
  int32_t n;
  char *folder; /* with files of expected outputs; NULL: none */
} input_sample;

typedef struct input_samples {
  input_sample *list;
  int n;
} input_samples;

/* What random samples shall be. */
typedef struct inputs_wanted {
  int seed;
  const options_list *ranges; /* INPUT=LO:HI */
  /* Elements of an integer input are in [0, bound); 0: not known. NULL: never. */
  int64_t (*bound)(const void *ctx, const char *input);
  const void *ctx;
} inputs_wanted;

/* Of a folder for each sample, the folder of one, or what --calibrate takes. -1 with a text; free it in any case. */
int input_samples_read(const char *path, const cyto_model *model, input_samples *out, char error[TENSOR_ERROR_SIZE]);
/* Random sample i by a seed. Sizes that are open and integers whose range is not known may be wrong for the model: every
 * `attempt` from 0 to inputs_attempts() - 1 has others. -1 with a text; free it in any case. */
int input_sample_random(const inputs_wanted *o, const cyto_model *model, int i, int attempt, input_sample *out,
                        char error[TENSOR_ERROR_SIZE]);
int inputs_attempts(const inputs_wanted *o, const cyto_model *model);
bool inputs_have_open_sizes(const cyto_model *model);
/* "image 1x3x224x224, mask 1x7" */
const char *input_shapes_text(const cyto_model *model, const input_sample *s, char *text, size_t room);
void input_sample_free(input_sample *s);
void input_samples_free(input_samples *s);

#endif
