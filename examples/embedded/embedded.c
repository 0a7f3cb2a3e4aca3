/* SPDX-License-Identifier: Apache-2.0 */
/* embedded.c - compiles a network when the program runs, and runs it: no command line, no file of its own.
 *
 * In:  an ONNX model of handwritten digits, digits.bin (records of a label and 8x8 pixels 0..16), options as cytoc has them.
 * Out: how far the compilation is, how many digits the compiled network reads right. The model comes as bytes, as from a
 * network or a database; the library that is made of it stays in memory.
 */
#include "cyto.h"
#include "cytoc.h"

#include <stdio.h>
#include <stdlib.h>

enum { PIXELS = 64, RECORD = PIXELS + 1, CLASSES = 10, LIMIT = 4096 };

/* All of a file; NULL: it cannot be read. */
static unsigned char *read_file(const char *path, size_t *out_size) {
  FILE *f = fopen(path, "rb");
  if (!f) return NULL;
  fseek(f, 0, SEEK_END);
  *out_size = (size_t)ftell(f);
  rewind(f);
  unsigned char *bytes = malloc(*out_size + 1);
  if (bytes && fread(bytes, 1, *out_size, f) != *out_size) *out_size = 0;
  fclose(f);
  return bytes;
}

static int show_progress(void *ctx, const char *stage, int64_t done, int64_t total) {
  (void)ctx;
  if (total)
    printf("%s: %lld of %lld\n", stage, (long long)done, (long long)total);
  else
    printf("%s\n", stage);
  return 0; /* go on */
}

static void show_diagnostic(void *ctx, const cytoc_diagnostic *d) {
  (void)ctx;
  fprintf(stderr, "%s\n", d->line);
}

/* The model, compiled for this machine; NULL after a message. */
static cyto_model *compile(const char *name, const void *bytes, size_t size, const char *const *options, int count) {
  cytoc_job job = {.struct_size = sizeof job,
                   .model_path = name,
                   .model = bytes,
                   .model_size = size,
                   .options = options,
                   .option_count = (size_t)count,
                   .on_progress = show_progress,
                   .on_diagnostic = show_diagnostic};
  cytoc_result result;
  cyto_model *model = NULL;
  cyto_error error;
  if (!cytoc_compile(&job, &result) && cyto_model_load_memory(result.library, result.library_size, &model, &error))
    fprintf(stderr, "embedded: %s\n", error.message);
  cytoc_result_free(&result); /* the model has a copy of the library */
  return model;
}

/* Digits that the model reads right; -1 after a message. */
static int count_right(cyto_model *model, const unsigned char *records, int count) {
  static float images[LIMIT * PIXELS];
  const int64_t dims[] = {count, 1, 8, 8};
  cyto_context *context;
  cyto_tensor probability;
  cyto_error error;
  int right = -1;
  for (int i = 0; i < count * PIXELS; i++) images[i] = (float)records[i / PIXELS * RECORD + 1 + i % PIXELS] / 16;
  if (cyto_context_create(model, NULL, &context, &error) ||
      cyto_bind_input(context, cyto_model_find_input(model, "image"), CYTO_F32, 4, dims, images, &error) ||
      cyto_run(context, &error) ||
      cyto_output(context, cyto_model_find_output(model, "probability"), &probability, &error)) {
    fprintf(stderr, "embedded: %s\n", error.message);
  } else {
    right = 0;
    for (int i = 0; i < count; i++) {
      const float *p = (const float *)probability.data + i * CLASSES;
      int best = 0;
      for (int k = 1; k < CLASSES; k++)
        if (p[k] > p[best]) best = k;
      right += best == records[i * RECORD];
    }
  }
  cyto_context_destroy(context);
  return right;
}

int main(int argc, char **argv) {
  size_t model_size, set_size;
  if (argc < 3) {
    fprintf(stderr, "usage: embedded digits.onnx digits.bin [OPTION..]\n");
    return 1;
  }
  unsigned char *onnx = read_file(argv[1], &model_size), *set = read_file(argv[2], &set_size);
  if (!onnx || !set) {
    fprintf(stderr, "embedded: cannot read '%s'\n", onnx ? argv[2] : argv[1]);
    return 1;
  }
  int count = (int)(set_size / RECORD < LIMIT ? set_size / RECORD : LIMIT), right = -1;
  printf("%s, for %s\n", cytoc_build_id(), cytoc_native_target());
  cyto_model *model = compile(argv[1], onnx, model_size, (const char *const *)argv + 3, argc - 3);
  if (model) right = count_right(model, set, count);
  if (right >= 0) printf("%d of %d digits right\n", right, count);
  cyto_model_unload(model);
  free(onnx);
  free(set);
  return right * 100 >= count * 97 ? 0 : 1;
}
