/* SPDX-License-Identifier: Apache-2.0 */
/* images_test.c - packing of device code (codegen/cuda/images.c) against unpacking (runtime/cuda/cuda_images.c), and damage.
 */
#include "codegen/cuda/cuda_int.h"
#include "runtime/cuda/cyrt_cuda.h"
#include "tests/check.h"

#include <stdlib.h>

enum { LIMIT = 200000 };
static uint8_t text[LIMIT], unpacked[LIMIT];

static unsigned next(unsigned *seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return *seed >> 8;
}

/* Random bytes, runs, and pieces from before, in shares that `kind` says. */
static void fill(size_t n, unsigned kind, unsigned seed) {
  for (size_t i = 0; i < n;) {
    size_t run = next(&seed) % (kind == 2 ? 9000 : 60) + 1, from = i ? next(&seed) % i : 0;
    unsigned what = kind ? next(&seed) % 3 : 0;
    for (uint8_t byte = (uint8_t)next(&seed); run && i < n; run--, i++)
      text[i] = what == 0 ? (uint8_t)next(&seed) : what == 1 ? byte : text[from++];
  }
}

static void test_round_trip(void) {
  static const size_t sizes[] = {0, 1, 4, 5, 11, 12, 13, 16, 17, 18, 19, 20, 100, 271, 285, 5000, 70000, LIMIT};
  for (int i = 0; i < CHECK_COUNT(sizes); i++)
    for (unsigned kind = 0; kind < 3; kind++) {
      size_t n = 0;
      fill(sizes[i], kind, (unsigned)i + 1);
      char *packed = cy_cuda_pack((char *)text, sizes[i], &n);
      memset(unpacked, 0xee, sizeof unpacked);
      uint64_t got = cyrt_cuda_unpack((uint8_t *)packed, n, unpacked, sizes[i]);
      if (got != sizes[i] || memcmp(text, unpacked, sizes[i]))
        CHECK_FAIL("%d bytes of kind %u come back as %lld, or differ", (int)sizes[i], kind, (long long)got);
      CHECK(n <= sizes[i] + sizes[i] / 255 + 2);
      CHECK(kind != 2 || sizes[i] < 70000 || n < sizes[i] / 2);
      free(packed);
    }
}

/* A block by the format's own description: 3 literals, 9 bytes from 3 back, 5 literals. */
static void test_format(void) {
  static const uint8_t block[] = {0x35, 'a', 'b', 'c', 3, 0, 0x50, '1', '2', '3', '4', '5'};
  static const char want[] = "abcabcabcabc12345";
  CHECK_INT_EQ(cyrt_cuda_unpack(block, sizeof block, unpacked, sizeof want - 1), sizeof want - 1);
  CHECK(!memcmp(unpacked, want, sizeof want - 1));
  size_t n = 0;
  char *packed = cy_cuda_pack(want, sizeof want - 1, &n);
  CHECK_INT_EQ(n, sizeof block);
  CHECK(n == sizeof block && !memcmp(packed, block, n));
  free(packed);
}

/* No damage may be read or written out of bounds (which ASan would tell) or give more than there is room for. */
static void test_damage(void) {
  size_t n = 0;
  unsigned seed = 9;
  fill(5000, 1, 3);
  char *packed = cy_cuda_pack((char *)text, 5000, &n);
  for (int i = 0; i < 20000; i++) {
    uint8_t *bad = malloc(n), *out = malloc(5000);
    memcpy(bad, packed, n);
    size_t kept = i % 3 ? n : next(&seed) % n;
    for (unsigned k = 0; k <= next(&seed) % 3; k++)
      bad[next(&seed) % n] = (uint8_t)next(&seed);
    uint64_t got = cyrt_cuda_unpack(bad, kept, out, 5000);
    CHECK(got == UINT64_MAX || got <= 5000);
    free(bad);
    free(out);
  }
  CHECK(cyrt_cuda_unpack((uint8_t *)packed, n, unpacked, 4999) == UINT64_MAX);
  CHECK(cyrt_cuda_unpack((uint8_t *)packed, 0, unpacked, 5000) == UINT64_MAX);
  free(packed);
}

static const check_test tests[] = {
    {"round trip", test_round_trip},
    {"format", test_format},
    {"damage", test_damage},
};

int main(int argc, char **argv) { return check_main(argc, argv, tests, CHECK_COUNT(tests)); }
