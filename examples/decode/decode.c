/* SPDX-License-Identifier: Apache-2.0 */
/* decode.c - writes a text by a language model, token by token, with caches that do not move.
 *
 *   decode MODEL.so ROOM PROMPT      tokens are bytes
 *
 * Every cache is one piece of memory, bound twice: as the model's input "past" and as its output "present". A run writes
 * the rows of its tokens into it, and leaves all else where it is.
 */
#include "cyto.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CACHES = 64 };

typedef struct decoder {
  cyto_model *model;
  cyto_context *context;
  cyto_error error;
  void *caches[MAX_CACHES];
  int32_t ids, lengths, total, scores; /* numbers of inputs and of the output */
} decoder;

static int open_decoder(decoder *d, const char *path) {
  if (cyto_model_load(path, &d->model, &d->error) || cyto_context_create(d->model, NULL, &d->context, &d->error))
    return 1;
  d->ids = cyto_model_find_input(d->model, "ids");
  d->lengths = cyto_model_find_input(d->model, "seqlens_k");
  d->total = cyto_model_find_input(d->model, "total_sequence_length");
  d->scores = cyto_model_find_output(d->model, "logits");
  return 0;
}

/* Memory for `room` tokens of one sequence: for every output that may be made in the memory of an input. */
static int bind_caches(decoder *d, int64_t room) {
  for (int32_t i = 0; i < cyto_model_output_count(d->model) && i < MAX_CACHES; i++) {
    cyto_port output, input;
    cyto_model_output(d->model, i, &output);
    if (output.shared_input < 0)
      continue;
    cyto_model_input(d->model, output.shared_input, &input);
    int64_t dims[] = {1, input.dims[1], room, input.dims[3]}; /* batch, heads, tokens, size */
    uint64_t bytes = (uint64_t)cyto_tensor_bytes(input.dtype, 4, dims);
    d->caches[i] = calloc(1, bytes);
    if (!d->caches[i] ||
        cyto_bind_input(d->context, output.shared_input, input.dtype, 4, dims, d->caches[i], &d->error) ||
        cyto_bind_output(d->context, i, d->caches[i], bytes, &d->error))
      return 1;
  }
  return 0;
}

/* The model reads `count` tokens behind the `before` ones; the likeliest next one, or -1. */
static int64_t step(decoder *d, const int64_t *ids, int64_t count, int64_t before) {
  int32_t total = (int32_t)(before + count), last = total - 1;
  int64_t dims[] = {1, count}, one = 1, best = 0;
  cyto_tensor scores;
  if (cyto_bind_input(d->context, d->ids, CYTO_I64, 2, dims, ids, &d->error) ||
      cyto_bind_input(d->context, d->lengths, CYTO_I32, 1, &one, &last, &d->error) ||
      cyto_bind_input(d->context, d->total, CYTO_I32, 0, NULL, &total, &d->error) || cyto_run(d->context, &d->error) ||
      cyto_output(d->context, d->scores, &scores, &d->error))
    return -1;
  const float *row = (const float *)scores.data + (count - 1) * scores.dims[2];
  for (int64_t i = 1; i < scores.dims[2]; i++)
    if (row[i] > row[best])
      best = i;
  return best;
}

static int write_text(decoder *d, const char *prompt, int64_t room) {
  int64_t ids[256], count = (int64_t)strlen(prompt), next;
  if (count < 1 || count > 256 || count > room)
    return 1;
  for (int64_t i = 0; i < count; i++)
    ids[i] = (unsigned char)prompt[i];
  fputs(prompt, stdout);
  for (int64_t used = 0; used + count <= room; used += count, count = 1, ids[0] = next) {
    if ((next = step(d, ids, count, used)) < 0)
      return 1;
    putchar((int)next);
  }
  return 0;
}

int main(int argc, char **argv) {
  decoder d = {0};
  if (argc != 4) {
    fprintf(stderr, "usage: decode MODEL.so ROOM PROMPT\n");
    return 1;
  }
  int64_t room = atoll(argv[2]);
  int failed = open_decoder(&d, argv[1]) || bind_caches(&d, room) || write_text(&d, argv[3], room);
  if (failed)
    fprintf(stderr, "decode: %s\n", *d.error.message ? d.error.message : "no memory, or no prompt that fits");
  cyto_context_destroy(d.context);
  cyto_model_unload(d.model);
  for (int i = 0; i < MAX_CACHES; i++)
    free(d.caches[i]);
  return failed;
}
