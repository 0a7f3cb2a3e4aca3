/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - a compiled model as a static library: one header, one call.
 *
 *   cytoc ../digits/digits.onnx -o digits.a --shape image=1x1x8x8
 *   cc main.c digits.a -lm -lpthread
 */
#include "digits.h"

#include <stdio.h>

int main(void) {
  float image[64] = {0}, probability[10];
  for (int y = 0; y < 8; y++) image[y * 8 + 3] = image[y * 8 + 4] = 1; /* a bar: a one */
  digits_inputs in = {image};
  digits_outputs out = {probability};
  if (digits_run(NULL, &in, &out, NULL)) return 1;
  int best = 0;
  for (int k = 1; k < 10; k++)
    if (probability[k] > probability[best]) best = k;
  printf("a vertical bar is a %d (%.0f %%)\n", best, 100 * probability[best]);
  return best != 1;
}
