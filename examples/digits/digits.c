/* SPDX-License-Identifier: Apache-2.0 */
/* digits.c - reads handwritten digits by a compiled network that is linked into this program.
 *
 * In: digits.bin, records of a label and 8x8 pixels (0..16). Out: the first few as text with what the network saw in them,
 * how many of all are right, and the time of the compiled network against the same one compiled without optimisation (-O0).
 */
#include "digits.h"
#include "digits_eager.h"

#include "cyto.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SIDE = 8, PIXELS = SIDE * SIDE, RECORD = PIXELS + 1, CLASSES = 10, SHOWN = 5, REPEATS = 200 };

typedef struct test_set {
  int count;
  unsigned char *records;
  float *images, *probability;
} test_set;

static int read_set(const char *path, test_set *out) {
  FILE *f = fopen(path, "rb");
  if (!f) return -1;
  out->records = malloc(RECORD * 4096);
  size_t count = out->records ? fread(out->records, RECORD, 4096, f) : 0;
  fclose(f);
  out->count = (int)count;
  out->images = malloc(count * PIXELS * sizeof(float));
  out->probability = malloc(count * CLASSES * sizeof(float));
  if (!count || !out->images || !out->probability) return -1;
  for (size_t i = 0; i < count; i++)
    for (int k = 0; k < PIXELS; k++) out->images[i * PIXELS + k] = (float)out->records[i * RECORD + 1 + k] / 16;
  return 0;
}

static int best_class(const float *p) {
  int best = 0;
  for (int k = 1; k < CLASSES; k++)
    if (p[k] > p[best]) best = k;
  return best;
}

static void show(const test_set *s, int from) {
  for (int y = 0; y < SIDE; y++) {
    for (int i = from; i < from + SHOWN; i++) {
      for (int x = 0; x < SIDE; x++) {
        int v = s->records[i * RECORD + 1 + y * SIDE + x];
        char c = " .:-=+*#%@"[v * 9 / 16];
        putchar(c);
        putchar(c);
      }
      printf("  ");
    }
    putchar('\n');
  }
  for (int i = from; i < from + SHOWN; i++) {
    const float *p = s->probability + i * CLASSES;
    printf("a %d (%3.0f %%)%9s", best_class(p), 100 * p[best_class(p)], "");
  }
  printf("\n\n");
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* One image at a time, as an application that reads digits as they come. Best of a few rounds, in microseconds. */
static double time_images(const test_set *s, int eager) {
  cyto_context *cache = NULL;
  double best = 1e9;
  for (int round = 0; round < 5; round++) {
    double start = now();
    for (int i = 0; i < REPEATS; i++) {
      const float *image = s->images + i % s->count * PIXELS;
      float probability[CLASSES];
      int status;
      if (eager) {
        status = digits_eager_run(&cache, &(digits_eager_inputs){image}, &(digits_eager_sizes){1},
                                  &(digits_eager_outputs){probability}, NULL);
      } else {
        status = digits_run(&cache, &(digits_inputs){image}, &(digits_sizes){1}, &(digits_outputs){probability}, NULL);
      }
      if (status) return -1;
    }
    double t = (now() - start) / REPEATS * 1e6;
    if (t < best) best = t;
  }
  cyto_context_destroy(cache);
  return best;
}

int main(int argc, char **argv) {
  test_set set;
  cyto_error error = {0};
  if (read_set(argc > 1 ? argv[1] : "digits.bin", &set)) {
    fprintf(stderr, "digits: cannot read '%s'\n", argc > 1 ? argv[1] : "digits.bin");
    return 1;
  }
  digits_inputs in = {.image = set.images};
  digits_outputs out = {.probability = set.probability};
  digits_sizes sizes = {.batch = set.count};
  if (digits_run(NULL, &in, &sizes, &out, &error)) {
    fprintf(stderr, "digits: %s\n", error.message);
    return 1;
  }
  int right = 0;
  for (int i = 0; i < set.count; i++) right += best_class(set.probability + i * CLASSES) == set.records[i * RECORD];
  show(&set, 0);
  show(&set, SHOWN);
  printf("%d of %d test images right\n", right, set.count);
  double compiled = time_images(&set, 0), eager = time_images(&set, 1);
  if (compiled < 0 || eager < 0) return 1;
  printf("one image: compiled %.1f us, eager (-O0) %.1f us: %.1fx faster\n", compiled, eager, eager / compiled);
  free(set.records);
  free(set.images);
  free(set.probability);
  return right * 100 >= set.count * 97 ? 0 : 1;
}
