/* SPDX-License-Identifier: Apache-2.0 */
/* int_gemm_test.c - checks the CPU target's contractions of 8-bit integers and bf16 against plain integer sums: every
 * output must be equal.
 *
 * dot_test            every case by dot2, as dot4 with vpdpbusd spelled out, so that packing, corrections and
 *                      padding of that code run on machines without it, and with split weights, where the machine has
 *                      no vpdpbusd; by Winograd's algorithm, where it is possible and exact; as bf16, all numbers and sums being small integers, in the code for a CPU that
 *                      has vdpbf16ps, put in its place a function that does the same; bytes and bf16 once more for a
 *                      CPU with AMX, with functions in the place of its instructions (tile_functions.h); with sums
 *                      that begin with given numbers, where they may; the
 *                      instructions chosen for several CPUs, and how many weights of shuffled channels are packed
 * dot_test --bench    Gop/s of products and convolutions
 * dot_test FILTER     only cases whose line contains FILTER
 * Weights and inputs take the extreme values often: that is where 16-bit sums would overflow or saturate.
 */
#include "tile_functions.h"

#include "codegen/cpu/int8/int_gemm.h"

#include <sys/syscall.h>
#include <unistd.h>

typedef struct dot_case {
  char kind;          /* 'p' product, packed b; 'r' product, b packed at run time; 'c' convolution */
  char a, b;          /* 's', 'u'; b: 'w' s16; both: 'f' bf16 */
  int dynamic;        /* 1: m or image sizes and their strides from slots; 2: all sizes of a product */
  int a_zero, b_zero; /* a_zero: a value, 0: none; b_zero: 0 none, 1 one, 2 per column */
  int transposed;     /* bit 0: a is [k][m]; bit 1: b is [n][k] */
  int64_t m, n, k;    /* product: of b0 = 2 matrices when `transposed` & 4. Convolution: images, cout, cin */
  int64_t h, w, kh, kw, stride, pad, dilation, groups;
  int64_t depth,
      deep; /* of the input and of the kernel, where there is such an axis; padded where the kernel is deeper than 1 */
  cy_shuffle_fill shuffle[3]; /* of the axes, where channels become positions: weights that fill up are 0 */
  bool largest;         /* products, all of them */
  bool started;         /* sums begin with numbers where they may */
} dot_case;

/* A convolution: types and a's zero point; images, channels out and in; the input's size, the kernel's, stride,
 * padding; further members by name. */
#define CONV(a_type, b_type, zero, images, out, in, height, width, tall, broad, step, border, ...)                     \
  {                                                                                                                    \
    .kind = 'c', .a = a_type, .b = b_type, .a_zero = zero, .m = images, .n = out, .k = in, .h = height, .w = width,    \
    .kh = tall, .kw = broad, .stride = step, .pad = border, __VA_ARGS__                                                \
  }

static const dot_case cases[] = {
    {.kind = 'p', .a = 'u', .b = 's', .m = 1, .n = 1, .k = 1},
    {.kind = 'p', .a = 'u', .b = 's', .a_zero = 128, .m = 7, .n = 17, .k = 33},
    {.kind = 'p', .a = 's', .b = 's', .a_zero = -3, .m = 49, .n = 24, .k = 64},
    {.kind = 'p', .a = 's', .b = 's', .m = 130, .n = 300, .k = 100},
    {.kind = 'p', .a = 'u', .b = 'w', .a_zero = 7, .m = 20, .n = 40, .k = 51},
    {.kind = 'p', .a = 'u', .b = 'u', .a_zero = 255, .m = 33, .n = 20, .k = 19},
    {.kind = 'p', .a = 's', .b = 's', .dynamic = 1, .a_zero = -128, .m = 100, .n = 70, .k = 600},
    {.kind = 'p', .a = 'u', .b = 's', .a_zero = 3, .m = 13, .n = 500, .k = 4608},
    {.kind = 'p', .a = 'u', .b = 's', .transposed = 3, .a_zero = 9, .m = 37, .n = 21, .k = 45},
    {.kind = 'p', .a = 's', .b = 's', .transposed = 4, .a_zero = 9, .m = 9, .n = 21, .k = 45},
    {.kind = 'p', .a = 'u', .b = 's', .a_zero = 9, .m = 1, .n = 1000, .k = 1280},
    {.kind = 'p', .a = 'u', .b = 's', .a_zero = 9, .m = 50, .n = 40, .k = 2048},
    /* rows that stay where they lie; sums that stay in registers */
    {.kind = 'p', .a = 'u', .b = 's', .a_zero = 9, .m = 61, .n = 96, .k = 64},
    {.kind = 'p', .a = 'u', .b = 's', .transposed = 4, .a_zero = 5, .m = 29, .n = 100, .k = 128},
    {.kind = 'p', .a = 'u', .b = 's', .dynamic = 1, .a_zero = 2, .m = 23, .n = 200, .k = 16},
    {.kind = 'p', .a = 'u', .b = 's', .m = 6, .n = 320, .k = 256},
    {.kind = 'r', .a = 'u', .b = 's', .a_zero = 1, .b_zero = 1, .m = 3, .n = 5, .k = 7},
    {.kind = 'r', .a = 'u', .b = 'u', .a_zero = 128, .b_zero = 2, .m = 40, .n = 77, .k = 65},
    {.kind = 'r', .a = 's', .b = 'u', .m = 21, .n = 40, .k = 70},
    {.kind = 'r', .a = 'u', .b = 'u', .a_zero = 9, .dynamic = 1, .m = 1, .n = 35, .k = 29},
    {.kind = 'r', .a = 's', .b = 's', .transposed = 2, .b_zero = 2, .m = 19, .n = 64, .k = 64},
    {.kind = 'r', .a = 's', .b = 'u', .transposed = 7, .b_zero = 1, .dynamic = 2, .m = 19, .n = 35, .k = 29},
    {.kind = 'r',
     .a = 'u',
     .b = 's',
     .transposed = 4,
     .dynamic = 2,
     .a_zero = 5,
     .b_zero = 2,
     .m = 70,
     .n = 50,
     .k = 130},
    CONV('u', 's', 3, 1, 32, 3, 17, 19, 3, 3, 2, 1),
    CONV('s', 's', -7, 2, 24, 16, 9, 8, 1, 1, 1, 0),
    CONV('u', 's', 130, 1, 40, 32, 14, 14, 3, 3, 1, 1),
    CONV('u', 's', 4, 2, 272, 8, 15, 13, 3, 3, 1, 1), /* tasks of the same rows follow each other */
    CONV('u', 's', 4, 3, 48, 32, 7, 9, 1, 1, 1, 0),
    CONV('u', 'w', 77, 1, 20, 17, 10, 11, 5, 3, 1, 2),
    CONV('u', 's', 9, 2, 20, 24, 10, 11, 3, 3, 2, 1, .dynamic = 1),
    CONV('s', 's', 5, 1, 12, 8, 12, 12, 3, 3, 1, 2, .dilation = 2),
    CONV('u', 's', 11, 1, 32, 64, 8, 8, 3, 3, 1, 1, .groups = 4),
    CONV('u', 's', 0, 1, 13, 5, 5, 5, 5, 5, 1, 0),
    CONV('u', 's', 130, 1, 32, 32, 20, 21, 3, 3, 1, 1, .groups = 32),
    CONV('s', 's', -128, 2, 24, 24, 11, 9, 3, 3, 2, 1, .groups = 24),
    CONV('u', 'w', 3, 1, 19, 19, 9, 9, 5, 5, 1, 2, .groups = 19),
    CONV('u', 's', 99, 2, 40, 40, 13, 10, 3, 3, 1, 1, .dynamic = 1, .groups = 40),
    CONV('u', 's', 130, 1, 160, 160, 15, 14, 3, 3, 1, 1, .groups = 160),
    CONV('s', 's', -7, 1, 71, 71, 13, 12, 5, 5, 1, 2, .groups = 71),
    CONV('u', 's', 5, 1, 48, 48, 17, 9, 5, 3, 2, 1, .groups = 48),
    CONV('u', 's', 200, 1, 34, 34, 12, 12, 3, 3, 1, 2, .dilation = 2, .groups = 34),
    CONV('u', 's', 200, 1, 20, 20, 3, 2, 7, 7, 1, 3, .groups = 20),
    CONV('s', 's', 9, 2, 66, 66, 9, 40, 3, 3, 2, 0, .dynamic = 1, .groups = 66),
    CONV('u', 's', 1, 1, 16, 16, 20, 5, 17, 2, 1, 0, .groups = 16),
    /* .. of one row: rows and columns change places */
    CONV('u', 's', 9, 2, 40, 40, 1, 70, 1, 31, 1, 0, .groups = 40),
    CONV('s', 's', -5, 1, 70, 70, 6, 23, 1, 5, 2, 2, .groups = 70),
    CONV('u', 'w', 3, 1, 19, 19, 5, 40, 1, 7, 1, 0, .groups = 19),
    CONV('u', 's', 9, 2, 33, 33, 9, 40, 1, 3, 1, 1, .dynamic = 1, .groups = 33),
    CONV('u', 's', 1, 1, 16, 16, 1, 90, 1, 64, 1, 0, .groups = 16),
    CONV('u', 's', 1, 1, 24, 24, 2, 90, 1, 9, 1, 4, .dilation = 3, .groups = 24),
    /* .. tasks of several images, three axes, strides over what is not read, rows that are far apart */
    CONV('u', 's', 9, 5, 24, 24, 3, 4, 3, 3, 1, 1, .groups = 24),
    CONV('s', 's', -9, 3, 200, 200, 5, 11, 3, 3, 1, 1, .dynamic = 1, .groups = 200),
    CONV('u', 's', 77, 2, 130, 130, 7, 6, 3, 3, 1, 1, .depth = 3, .deep = 1, .groups = 130),
    CONV('s', 'w', -3, 2, 65, 65, 7, 6, 3, 3, 1, 1, .depth = 4, .deep = 1, .dynamic = 1, .groups = 65),
    CONV('u', 's', 5, 2, 40, 40, 1, 30, 1, 5, 1, 2, .depth = 2, .deep = 1, .groups = 40),
    CONV('u', 's', 130, 1, 72, 72, 21, 23, 2, 2, 4, 0, .groups = 72),
    CONV('s', 's', 1, 1, 72, 72, 21, 23, 3, 3, 2, 3, .dilation = 3, .groups = 72),
    CONV('u', 's', 3, 1, 33, 33, 40, 9, 3, 3, 1, 15, .dilation = 15, .groups = 33),
    CONV('u', 's', 255, 1, 16, 16, 2, 2, 8, 8, 1, 4, .dynamic = 1, .groups = 16),
    /* few columns: lanes are k, too; sums that stay in registers, and others */
    {.kind = 'p', .a = 'u', .b = 's', .a_zero = 9, .m = 61, .n = 8, .k = 64},
    {.kind = 'p', .a = 's', .b = 's', .a_zero = -3, .m = 64, .n = 4, .k = 100},
    {.kind = 'p', .a = 'u', .b = 's', .transposed = 4, .m = 40, .n = 7, .k = 250},
    {.kind = 'p', .a = 'u', .b = 's', .a_zero = 2, .m = 30, .n = 1, .k = 1500},
    {.kind = 'p', .a = 'u', .b = 's', .dynamic = 1, .a_zero = 5, .m = 23, .n = 3, .k = 96},
    {.kind = 'p', .a = 'u', .b = 's', .transposed = 1, .a_zero = 5, .m = 16, .n = 2, .k = 2000},
    CONV('u', 's', 9, 1, 8, 16, 14, 13, 3, 3, 1, 1),
    CONV('s', 's', 9, 3, 8, 160, 9, 8, 3, 3, 1, 1),
    CONV('u', 's', 0, 1, 4, 24, 16, 16, 3, 3, 1, 0),
    CONV('u', 's', 7, 2, 6, 64, 10, 12, 1, 1, 1, 0),
    CONV('s', 's', 7, 1, 5, 10, 11, 12, 5, 5, 2, 2),
    CONV('u', 's', 7, 1, 2, 32, 12, 12, 3, 3, 1, 2, .dilation = 2),
    CONV('u', 's', 11, 1, 16, 64, 8, 8, 3, 3, 1, 1, .groups = 4),
    CONV('u', 's', 3, 2, 3, 20, 9, 10, 3, 3, 1, 1, .dynamic = 1),
    /* three axes */
    CONV('u', 's', 7, 1, 8, 16, 9, 12, 3, 3, 1, 1, .depth = 7, .deep = 3),
    CONV('s', 's', -5, 2, 40, 6, 10, 7, 3, 3, 1, 1, .depth = 5, .deep = 3),
    CONV('u', 's', 0, 2, 16, 3, 11, 13, 3, 5, 2, 1, .depth = 8, .deep = 2),
    CONV('u', 's', 9, 1, 20, 8, 16, 11, 3, 1, 1, 1, .depth = 6, .deep = 4),
    CONV('u', 's', 9, 1, 12, 8, 9, 9, 3, 3, 1, 2, .dilation = 2, .depth = 6, .deep = 3),
    CONV('u', 's', 9, 2, 12, 8, 9, 9, 3, 3, 1, 1, .depth = 3, .deep = 1),
    CONV('u', 's', 9, 1, 8, 8, 9, 9, 3, 3, 1, 0, .depth = 3, .deep = 3),
    CONV('u', 's', 9, 2, 9, 8, 9, 9, 3, 3, 1, 1, .dynamic = 1, .depth = 5, .deep = 3),
    /* channels that become positions: residues that are whole panels, or reach over several; narrower panels for them; of one tap each;
     * without any; runs that fill no group of k, or a tile of them; with three taps along an axis, not side by side */
    CONV('u', 's', 9, 1, 128, 24, 5, 6, 2, 2, 1, 1, .depth = 4, .deep = 2,
         .shuffle = {{2, 1, 0}, {2, 1, 0}, {2, 1, 0}}),
    CONV('s', 's', -5, 2, 96, 20, 5, 4, 2, 2, 1, 1, .depth = 3, .deep = 2,
         .shuffle = {{2, 0, 1}, {2, 1, 0}, {2, 0, 1}}),
    CONV('u', 's', 130, 2, 256, 64, 9, 8, 2, 2, 1, 1, .shuffle = {{2, 1, 0}, {2, 0, 1}}),
    CONV('u', 's', 3, 1, 80, 33, 7, 9, 2, 2, 1, 1, .shuffle = {{2, 1, 0}, {2, 1, 0}}),
    CONV('s', 's', 7, 1, 160, 10, 8, 7, 3, 3, 1, 1, .shuffle = {{2, 1, 0}, {2, 0, 1}}),
    CONV('u', 's', 5, 2, 144, 17, 9, 9, 2, 2, 1, 1, .shuffle = {{3, 2, 1}, {3, 1, 2}}),
    CONV('u', 's', 5, 1, 128, 32, 9, 9, 1, 2, 1, 1, .shuffle = {{2, 0, 1}, {2, 1, 0}}),
    CONV('u', 's', 0, 1, 64, 12, 1, 40, 1, 2, 1, 0, .shuffle = {{1, 0, 0}, {4, 1, 2}}),
    CONV('s', 's', -5, 1, 256, 6, 6, 7, 3, 3, 1, 1, .depth = 5, .deep = 3,
         .shuffle = {{2, 1, 0}, {2, 0, 1}, {2, 1, 0}}),
    CONV('u', 's', 9, 2, 192, 40, 9, 10, 2, 2, 1, 1, .dynamic = 1, .shuffle = {{2, 1, 0}, {2, 1, 0}}),
    CONV('u', 'w', 9, 1, 128, 9, 9, 10, 2, 2, 1, 1, .shuffle = {{2, 1, 0}, {2, 1, 0}}),
    CONV('u', 's', 9, 1, 16, 24, 6, 5, 2, 2, 1, 1, .shuffle = {{2, 1, 0}, {2, 1, 0}}),
    CONV('s', 's', 5, 1, 132, 16, 9, 7, 2, 2, 1, 1, .shuffle = {{2, 1, 0}, {2, 1, 0}}),
    CONV('u', 's', 9, 1, 512, 128, 9, 10, 2, 2, 1, 1, .shuffle = {{2, 1, 0}, {2, 1, 0}}), /* prefetched */
    CONV('u', 's', 9, 1, 128, 24, 6, 5, 2, 2, 1, 0, .shuffle = {{2, 1, 0}, {2, 0, 1}}),   /* where the picture lies */
    /* by Winograd's algorithm: points of all tiles made first; those of all filters; neither; sums as large as may be */
    CONV('u', 's', 9, 2, 80, 64, 17, 22, 3, 3, 1, 1),
    CONV('s', 's', -7, 1, 48, 256, 14, 13, 3, 3, 1, 0),
    CONV('s', 's', 127, 1, 23, 32, 86, 89, 3, 3, 1, 1),
    CONV('u', 's', 255, 121, 34, 128, 5, 5, 3, 3, 1, 1),
    CONV('u', 's', 0, 1, 16, 96, 9, 12, 3, 3, 1, 1, .largest = true),
    CONV('u', 's', 255, 1, 16, 96, 9, 12, 3, 3, 1, 2, .largest = true),
};

enum { A_SLOT, B_SLOT, OUT_SLOT, SCRATCH_SLOT, SHARED_SLOT, A_ZERO_SLOT, B_ZERO_SLOT, START_SLOT, FIRST_SIZE };

typedef struct setup {
  job j;
  cy_int_gemm_desc d;
  cy_pack_layout layout;
  int64_t n_out, n_a, n_b, out_stride[6];
  int n_idx, slot;
  uint8_t *a;
  void *b, *packed;
  int32_t *out, *start;
  int8_t a_zero, b_zero[4096];
} setup;

static int n_failed, n_run;
static bool mild; /* weights as networks have them */

static const char *line_of(const dot_case *c) {
  static char text[200];
  snprintf(text, sizeof text,
           "%c %c%c dynamic=%d zeros=%d,%d turned=%d m=%lld n=%lld k=%lld h=%lld w=%lld kernel=%lldx%lld stride=%lld "
           "pad=%lld dilation=%lld groups=%lld depth=%lld,%lld%s%s",
           c->kind, c->a, c->b, c->dynamic, c->a_zero, c->b_zero, c->transposed, (long long)c->m, (long long)c->n,
           (long long)c->k, (long long)c->h, (long long)c->w, (long long)c->kh, (long long)c->kw, (long long)c->stride,
           (long long)c->pad, (long long)c->dilation, (long long)c->groups, (long long)c->depth, (long long)c->deep,
           c->shuffle[0].positions ? " shuffled" : "", c->started ? " started" : "");
  return text;
}

/* Extremes every third time. */
static int random_value(char kind) {
  random_state = random_state * 1664525u + 1013904223u;
  int v = (int)(random_state >> 24), pick = (int)(random_state >> 8 & 7);
  if (kind == 'f')
    return v % 31 - 15;
  v = pick == 0 ? 255 : pick == 1 ? 0 : v;
  return kind == 'u' ? v : kind == 's' ? v - 128 : pick & 1 ? v : -v;
}

/* Small integers as bf16 and back. */
static uint16_t bf16_of(int v) {
  float f = (float)v;
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  return (uint16_t)(u >> 16);
}

static int bf16_value(uint16_t bits) {
  uint32_t u = (uint32_t)bits << 16;
  float f;
  memcpy(&f, &u, sizeof f);
  return (int)f;
}

static int value_at(const void *p, char kind, int64_t i) {
  if (kind == 'f')
    return bf16_value(((const uint16_t *)p)[i]);
  return kind == 'u' ? ((const uint8_t *)p)[i] : kind == 's' ? ((const int8_t *)p)[i] : ((const int16_t *)p)[i];
}

static void *random_bytes(char kind, int64_t n) {
  char *p = guarded(n * 2);
  for (int64_t i = 0; i < n; i++) {
    int v = random_value(kind);
    if (kind == 'w' || kind == 'f')
      ((uint16_t *)(void *)p)[i] = kind == 'f' ? bf16_of(v) : (uint16_t)v;
    else
      p[i] = (char)v;
  }
  return p;
}

/* Bytes of this value, or random ones. */
static void *bytes_of(char kind, int64_t n, bool same, int value) {
  void *p = random_bytes(kind, n);
  if (same)
    memset(p, value, (size_t)n);
  return p;
}

static cy_csize size_of(setup *s, int dynamic, int64_t v) {
  if (!dynamic)
    return cy_cconst(v);
  s->j.args[s->slot].size = v;
  return cy_cslot(s->slot++);
}

static void keep_emit(void *ctx, cy_cg *cg, LLVMValueRef acc, unsigned lanes, const LLVMValueRef *idx) {
  setup *s = ctx;
  LLVMValueRef at = cy_i64(cg, 0);
  (void)lanes;
  for (int i = 0; i < s->n_idx; i++)
    at = cy_add(cg, at, cy_mulc(cg, idx[i], s->out_stride[i]));
  cy_store(cg, acc, cy_gepf(cg, cy_arg_ptr(cg, OUT_SLOT), at), 4);
}

static int group_of(const dot_case *c) { return c->groups ? (int)c->groups : 1; }
static int dilation_of(const dot_case *c) { return c->dilation ? (int)c->dilation : 1; }

/* Rows lie without gaps: several may be stored at once, and pixels be counted. */
static cy_epilogue epilogue_of(setup *s, const dot_case *c) {
  unsigned flat = c->n > 1 && c->n <= 64 ? (unsigned)c->n : 0;
  return (cy_epilogue){.emit = keep_emit, .ctx = s, .flat = flat, .positions_join = c->m % 2 == 1};
}

static cy_pack_source product_setup(setup *s, const dot_case *c) {
  int64_t b0 = c->transposed & 4 ? 2 : 1;
  int m = c->dynamic >= 1, all = c->dynamic == 2;
  s->n_a = b0 * c->m * c->k;
  s->n_b = b0 * c->n * c->k;
  s->n_out = b0 * c->m * c->n;
  s->n_idx = 3;
  s->out_stride[0] = c->m * c->n;
  s->out_stride[1] = c->n;
  s->out_stride[2] = 1;
  int64_t am = c->transposed & 1 ? 1 : c->k, ak = c->transposed & 1 ? c->m : 1, bk = c->transposed & 2 ? 1 : c->n,
          bn = c->transposed & 2 ? c->k : 1;
  s->d.gemm = (cy_gemm_desc){.name = "product",
                             .n_batch = 1,
                             .a_slot = A_SLOT,
                             .b_slot = B_SLOT,
                             .scratch_slot = SCRATCH_SLOT,
                             .shared_slot = SHARED_SLOT,
                             .b_packed = c->kind == 'p',
                             .epilogue = epilogue_of(s, c)};
  cy_gemm_desc *g = &s->d.gemm;
  g->batch[0] = size_of(s, m, b0);
  g->a_batch[0] = size_of(s, m, c->m * c->k);
  g->b_batch[0] = c->kind == 'p' ? cy_cconst(b0 > 1) : size_of(s, all, c->n * c->k);
  g->m = size_of(s, m, c->m);
  g->n = size_of(s, all, c->n);
  g->k = size_of(s, all, c->k);
  g->am = am == 1 ? cy_cconst(1) : size_of(s, all, am);
  g->ak = ak == 1 ? cy_cconst(1) : size_of(s, m, ak);
  g->bk = bk == 1 ? cy_cconst(1) : size_of(s, all, bk);
  g->bn = bn == 1 ? cy_cconst(1) : size_of(s, all, bn);
  return (cy_pack_source){.gs = c->n * c->k, .ns = bn, .cs = bk};
}

/* A convolution's axes, outermost first; without depth the first one is 1. */
typedef struct solid {
  int64_t size[3], kernel[3], pad[3], out[3], taps;
} solid;

static solid solid_of(const dot_case *c) {
  solid s = {{c->depth ? c->depth : 1, c->h, c->w}, {c->deep ? c->deep : 1, c->kh, c->kw}, {0, c->pad, c->pad}, {1}, 1};
  s.pad[0] = s.kernel[0] > 1 ? c->pad : 0;
  for (int i = c->depth ? 0 : 1; i < 3; i++)
    s.out[i] = (s.size[i] + 2 * s.pad[i] - (s.kernel[i] - 1) * dilation_of(c) - 1) / c->stride + 1;
  for (int i = 0; i < 3; i++)
    s.taps *= s.kernel[i];
  return s;
}

static cy_pack_source conv_setup(setup *s, const dot_case *c) {
  solid in = solid_of(c);
  int64_t cin = c->k / group_of(c), taps = in.taps;
  s->n_a = c->m * in.size[0] * c->h * c->w * c->k;
  s->n_b = c->n * cin * taps;
  s->n_out = c->m * in.out[0] * in.out[1] * in.out[2] * c->n;
  int first = c->depth ? 0 : 1;
  s->n_idx = 5 - first;
  s->out_stride[s->n_idx - 1] = 1;
  for (int i = s->n_idx - 2, axis = 2; i >= 0; i--, axis--)
    s->out_stride[i] = s->out_stride[i + 1] * (axis == 2 ? c->n : in.out[axis + 1]);
  s->d.conv = true;
  s->d.window = (cy_conv_desc){.name = "conv",
                               .n_spatial = 3 - first,
                               .groups = group_of(c),
                               .cin = c->k,
                               .cout = c->n,
                               .a_slot = A_SLOT,
                               .b_slot = B_SLOT,
                               .scratch_slot = SCRATCH_SLOT,
                               .shared_slot = SHARED_SLOT,
                               .epilogue = epilogue_of(s, c)};
  cy_conv_desc *w = &s->d.window;
  w->batch = size_of(s, c->dynamic, c->m);
  int64_t bytes = c->k;
  for (int axis = 2; axis >= first; bytes *= in.size[axis--]) {
    int i = axis - first;
    w->kernel[i] = in.kernel[axis];
    w->stride[i] = c->stride;
    w->dilation[i] = dilation_of(c);
    w->pad[i] = in.pad[axis];
    w->in[i] = size_of(s, c->dynamic, in.size[axis]);
    w->out[i] = size_of(s, c->dynamic, in.out[axis]);
    w->in_s[i] = axis == 2 ? cy_cconst(c->k) : size_of(s, c->dynamic, bytes);
  }
  w->in_n = size_of(s, c->dynamic, bytes);
  memcpy(s->d.shuffle, c->shuffle, sizeof c->shuffle);
  return (cy_pack_source){.gs = c->n / group_of(c) * cin * taps, .ns = cin * taps, .ts = 1, .cs = taps};
}

/* Is tap t of output n one of those that fill up? */
static bool fills_up(const dot_case *c, int64_t n, int64_t t) {
  solid in = solid_of(c);
  int64_t all = 1;
  int axes = c->depth ? 3 : 2;
  for (int i = 0; i < axes; i++)
    all *= c->shuffle[i].positions;
  for (int i = axes - 1, part = (int)(n / (c->n / all)); i >= 0; i--) {
    const cy_shuffle_fill *f = &c->shuffle[i];
    int64_t taps = in.kernel[i + 3 - axes], element = (taps - 1 - t % taps) * f->positions + part % f->positions;
    if (element < f->before || element >= taps * f->positions - f->behind)
      return true;
    t /= taps;
    part /= (int)f->positions;
  }
  return false;
}

static void fill_up(const dot_case *c, char *weights, int64_t count, int64_t size) {
  int64_t taps = c->shuffle[0].positions ? solid_of(c).taps : 0;
  for (int64_t i = 0; taps && i < count; i++)
    if (fills_up(c, i / taps / c->k, i % taps))
      memset(weights + i * size, 0, (size_t)size);
}

static int32_t product_at(const setup *s, const dot_case *c, int64_t i) {
  int64_t b = i / (c->m * c->n), m = i / c->n % c->m, n = i % c->n;
  int64_t am = c->transposed & 1 ? 1 : c->k, ak = c->transposed & 1 ? c->m : 1, bk = c->transposed & 2 ? 1 : c->n,
          bn = c->transposed & 2 ? c->k : 1;
  int zb = c->b_zero ? value_at(s->b_zero, c->b, c->b_zero == 2 ? n : 0) : 0,
      za = c->a_zero ? value_at(&s->a_zero, c->a, 0) : 0;
  int32_t sum = s->d.started ? s->start[n] : 0;
  for (int64_t k = 0; k < c->k; k++)
    sum += (value_at(s->a, c->a, b * c->m * c->k + m * am + k * ak) - za) *
           (value_at(s->b, c->b, b * c->n * c->k + n * bn + k * bk) - zb);
  return sum;
}

static int32_t conv_at(const setup *s, const dot_case *c, int64_t i) {
  solid in = solid_of(c);
  int64_t n = i % c->n, at[3], cin = c->k / group_of(c), first = n / (c->n / group_of(c)) * cin, rest = i / c->n;
  for (int axis = 2; axis >= 0; rest /= in.out[axis--])
    at[axis] = rest % in.out[axis] * c->stride - in.pad[axis];
  int za = c->a_zero ? value_at(&s->a_zero, c->a, 0) : 0;
  int32_t sum = s->d.started ? s->start[n] : 0;
  for (int64_t t = 0; t < in.taps; t++) {
    int64_t position = 0, tap = t, place[3];
    bool there = true;
    for (int axis = 2; axis >= 0; tap /= in.kernel[axis--])
      place[axis] = at[axis] + tap % in.kernel[axis] * dilation_of(c);
    for (int axis = 0; axis < 3; axis++) {
      there = there && place[axis] >= 0 && place[axis] < in.size[axis];
      position = position * in.size[axis] + place[axis];
    }
    for (int64_t k = 0; there && k < cin; k++)
      sum += (value_at(s->a, c->a, (rest * in.size[0] * c->h * c->w + position) * c->k + first + k) - za) *
             value_at(s->b, c->b, (n * cin + k) * in.taps + t);
  }
  return sum;
}

typedef enum variant { DOT2, DOT4, SPLIT, WINOGRAD, BF16, TILES, BF16_TILES } variant;

static bool is_bf16(variant as) { return as == BF16 || as == BF16_TILES; }

/* ---- instructions on a CPU without them ---- */

/* vpmaddwd of 512 bits by two of 256. */
static void replace_pairs(cy_cg *cg) {
  LLVMValueRef fn = LLVMGetNamedFunction(cg->module, "llvm.x86.avx512.pmaddw.d.512"), sums[2];
  if (!fn)
    return;
  LLVMSetValueName2(fn, "dot_pairs", 9);
  LLVMSetLinkage(fn, LLVMInternalLinkage);
  LLVMPositionBuilderAtEnd(cg->b, LLVMAppendBasicBlockInContext(cg->ctx, fn, ""));
  for (unsigned i = 0; i < 2; i++) {
    LLVMValueRef half[2];
    for (unsigned k = 0; k < 2; k++)
      half[k] = cy_some_lanes(cg, LLVMGetParam(fn, k), 16 * i, 16);
    sums[i] = cy_intrinsic_of(cg, "llvm.x86.avx2.pmadd.wd", NULL, 0, half, 2);
  }
  static const int all[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  LLVMBuildRet(cg->b, cy_shuffle(cg, sums[0], sums[1], all, 16));
}

/* The operand's elements `first`, `first` + 2, .. as floats. */
static LLVMValueRef every_other(cy_cg *cg, LLVMValueRef v, int first) {
  int lanes[16];
  for (int i = 0; i < 16; i++)
    lanes[i] = 2 * i + first;
  return LLVMBuildFPExt(cg->b, cy_shuffle(cg, v, v, lanes, 16), cy_vecf(cg, 16), "");
}

/* The products of odd elements are added first, each sum rounded to nearest even. (That the instruction flushes
 * denormals does not show here.) */
static void replace_bf16(cy_cg *cg) {
  LLVMValueRef fn = LLVMGetNamedFunction(cg->module, "llvm.x86.avx512bf16.dpbf16ps.512");
  if (!fn)
    die("bf16", "the code has no vdpbf16ps");
  LLVMSetValueName2(fn, "dot_bf16", 8);
  LLVMSetLinkage(fn, LLVMInternalLinkage);
  LLVMPositionBuilderAtEnd(cg->b, LLVMAppendBasicBlockInContext(cg->ctx, fn, ""));
  LLVMValueRef sum = LLVMGetParam(fn, 0), a = LLVMGetParam(fn, 1), b = LLVMGetParam(fn, 2);
  for (int first = 1; first >= 0; first--)
    sum = cy_fma(cg, every_other(cg, a, first), every_other(cg, b, first), sum);
  LLVMBuildRet(cg->b, sum);
}

/* Makes a module that is for another CPU one for this machine, with functions for the instructions that it may lack. */
static void replace_instructions(cy_cg *cg, variant as) {
  if (as == BF16)
    replace_bf16(cg);
  else if (!tile_functions_replace(cg->module) && as == BF16_TILES)
    die("bf16", "the code has no tiles");
  replace_pairs(cg);
  code_for_this_cpu(cg);
}

static cy_pack_layout layout_of(setup *s, int64_t matrices) {
  return job_packing(&s->j, cy_int_generator(&s->d), &s->d, matrices).part->layout;
}

static setup *setup_begin(const dot_case *c, const char *cpu, variant as) {
  static setup all;
  setup *s = &all;
  memset(s, 0, sizeof *s);
  char *error = NULL;
  s->slot = FIRST_SIZE;
  s->j.scratch_slot = SCRATCH_SLOT;
  s->j.shared_slot = SHARED_SLOT;
  s->j.cg = cy_cg_create(cpu, &error);
  if (!s->j.cg)
    die("cpu", error);
  s->j.cg->vnni_spelled = as == DOT4 || as == TILES;
  s->j.cg->amx_int8 = s->j.cg->amx_int8 && as != DOT4;
  cy_cg_module(s->j.cg, "int8");
  s->d = (cy_int_gemm_desc){.a_signed = c->a == 's',
                            .b_signed = c->b != 'u',
                            .b_bits = c->b == 'w' || c->b == 'f' ? 16 : 8,
                            .bf16 = c->a == 'f',
                            .a_zero_slot = c->a_zero ? A_ZERO_SLOT : -1,
                            .b_zero_slot = c->b_zero ? B_ZERO_SLOT : -1,
                            .b_zero_step = c->b_zero == 2};
  cy_pack_source source = c->kind == 'c' ? conv_setup(s, c) : product_setup(s, c);
  s->a_zero = (int8_t)c->a_zero;
  for (int64_t i = 0; i < c->n && i < 4096; i++)
    s->b_zero[i] = (int8_t)random_value(c->b);
  s->d.start_slot = START_SLOT;
  s->start = (int32_t *)(void *)guarded(c->n * 4);
  for (int64_t i = 0; i < c->n; i++)
    s->start[i] = random_value('u') * 1000 - 100000;
  bool largest = c->largest && !is_bf16(as);
  s->a = bytes_of(c->a, s->n_a, largest, c->a_zero ? 0 : 255);
  s->b = bytes_of(c->b, s->n_b, largest, -128);
  for (int64_t i = 0; mild && c->b == 's' && i < s->n_b; i++)
    ((int8_t *)s->b)[i] /= 4;
  fill_up(c, s->b, s->n_b, s->d.b_bits / 8);
  s->out = (int32_t *)(void *)guarded(s->n_out * 4);
  if (c->kind != 'r') {
    int64_t matrices = c->kind == 'c' ? group_of(c) : c->transposed & 4 ? 2 : 1;
    source.w = s->b;
    source.is_signed = c->b != 'u';
    source.bits = s->d.b_bits;
    s->d.split = as == SPLIT && cy_int_gemm_split_possible(s->j.cg, &s->d);
    s->layout = layout_of(s, matrices);
    if (s->d.split) {
      s->d.again = cy_int_gemm_again(&s->layout, &source);
      s->layout = layout_of(s, matrices);
    }
    s->d.winograd = as == WINOGRAD && cy_int_winograd_possible(s->j.cg, &s->d) &&
                    cy_int_winograd_exact(cy_int_gemm_largest_sum(&s->layout, &source));
    if (s->d.winograd)
      s->layout = layout_of(s, matrices);
    s->packed = guarded(s->layout.bytes);
    (s->d.split ? cy_int_split_run : cy_pack_run)(&s->layout, &source, 0, cy_pack_units(&s->layout), s->packed);
  }
  s->j.args[A_SLOT].ptr = s->a;
  s->j.args[B_SLOT].ptr = s->packed ? s->packed : s->b;
  s->j.args[OUT_SLOT].ptr = s->out;
  s->j.args[A_ZERO_SLOT].ptr = &s->a_zero;
  s->j.args[B_ZERO_SLOT].ptr = s->b_zero;
  s->j.args[START_SLOT].ptr = s->start;
  s->d.started = c->started && cy_int_gemm_starts(&s->d);
  job_generate(&s->j, cy_int_generator(&s->d), &s->d, s->d.conv ? s->d.window.name : s->d.gemm.name);
  return s;
}

static void setup_end(setup *s) {
  guarded_free((char *)s->a);
  guarded_free(s->b);
  guarded_free(s->packed);
  guarded_free((char *)s->out);
  guarded_free((char *)s->start);
  job_end(&s->j);
}

/* Weights are cut for CPUs without vpdpbusd only. */
static const char *cpu_of(variant as) {
#ifdef __x86_64__
  if (as == SPLIT && __builtin_cpu_supports("avx2"))
    return "x86-64-v3";
#endif
  return as == BF16 ? "znver4" : as > BF16 ? "sapphirerapids" : "native";
}

static void run_case(const dot_case *c, variant as, int workers) {
  static const char *const names[] = {"dot2", "dot4", "split", "winograd", "bf16", "tiles", "bf16 tiles"};
  setup *s = setup_begin(c, cpu_of(as), as);
  if (as >= BF16)
    replace_instructions(s->j.cg, as);
  job_link(&s->j);
  tile_functions_define(s->j.jit);
  job_prepare(&s->j, c->kind == 'c' ? "conv" : "product", workers);
  memset(s->j.scratch, 0xff, (size_t)(s->j.worker_bytes * workers)); /* NaN, as bf16 */
  memset(s->j.shared, 0xff, (size_t)s->j.shared_bytes);
  job_run(&s->j);
  int64_t wrong = -1;
  for (int64_t i = 0; is_bf16(as) && i < s->n_out; i++) {
    float f;
    memcpy(&f, &s->out[i], sizeof f);
    s->out[i] = f == (float)(int32_t)f ? (int32_t)f : INT32_MAX;
  }
  for (int64_t i = 0; i < s->n_out && wrong < 0; i++)
    if (s->out[i] != (c->kind == 'c' ? conv_at(s, c, i) : product_at(s, c, i)))
      wrong = i;
  bool guards = guard_ok((char *)s->out, s->n_out * 4) && guard_ok(s->j.scratch, s->j.worker_bytes * workers) &&
                guard_ok(s->j.shared, s->j.shared_bytes) && (!s->packed || guard_ok(s->packed, s->layout.bytes));
  n_run++;
  if (wrong >= 0 || !guards) {
    n_failed++;
    printf("FAIL %s %s: ", line_of(c), names[as]);
    if (wrong >= 0)
      printf("output %lld is %d, expected %d\n", (long long)wrong, s->out[wrong],
             c->kind == 'c' ? conv_at(s, c, wrong) : product_at(s, c, wrong));
    else
      printf("memory around a buffer touched\n");
  }
  setup_end(s);
}

/* ---- instructions ---- */

/* kind: 'p'; 'r': a second factor of unsigned bytes that is computed at run time; 'c': a convolution. */
static void expect(const char *cpu, variant as, char kind, const char *want, const char *unwanted) {
  dot_case c = {.kind = kind, .a = 's', .b = kind == 'r' ? 'u' : 's', .a_zero = 3, .m = 64, .n = 64, .k = 64};
  if (is_bf16(as))
    c = (dot_case){.kind = 'p', .a = 'f', .b = 'f', .m = 64, .n = 64, .k = 64};
  if (kind == 'c')
    c = (dot_case)CONV('u', 's', 3, 1, 64, 64, 28, 28, 3, 3, 1, 1);
  setup *s = setup_begin(&c, cpu, as);
  char *error = NULL;
  LLVMMemoryBufferRef text;
  if (cy_cg_verify(s->j.cg, &error) || cy_cg_optimize(s->j.cg, NULL, &error) ||
      cy_cg_emit(s->j.cg, LLVMAssemblyFile, &text, &error))
    die(cpu, error);
  const char *code = LLVMGetBufferStart(text);
  n_run++;
  if (!strstr(code, want) || (unwanted && strstr(code, unwanted))) {
    n_failed++;
    printf("FAIL %s: expected %s and no %s in the code\n", cpu, want, unwanted ? unwanted : "-");
  }
  LLVMDisposeMemoryBuffer(text);
  setup_end(s);
}

/* Of 3x3 taps by 2, which are filled up to 4x4, weights are packed for 9 of 16. */
static void expect_left_out(const char *cpu) {
  dot_case c = CONV('u', 's', 0, 1, 256, 64, 28, 28, 2, 2, 1, 1), shuffled = c;
  shuffled.shuffle[0] = shuffled.shuffle[1] = (cy_shuffle_fill){2, 1, 0};
  setup *s = setup_begin(&c, cpu, DOT2);
  int64_t all = s->layout.bytes;
  setup_end(s);
  s = setup_begin(&shuffled, cpu, DOT2);
  n_run++;
  if (s->layout.bytes * 16 != all * 9) {
    n_failed++;
    printf("FAIL %s: %lld bytes of %lld are packed\n", cpu, (long long)s->layout.bytes, (long long)all);
  }
  setup_end(s);
}

/* ---- speed ---- */

static void bench(const dot_case *c, variant as) {
  setup *s = setup_begin(c, "native", as);
  job_link(&s->j);
  job_prepare(&s->j, c->kind == 'c' ? "conv" : "product", 1);
  double best = 1e9,
         ops = 2.0 * (double)s->n_out * (double)(c->kind == 'c' ? c->k / group_of(c) * solid_of(c).taps : c->k);
  for (int iteration = 0; iteration < 30; iteration++) {
    double t = cpu_seconds();
    job_run(&s->j);
    t = cpu_seconds() - t;
    best = t < best ? t : best;
  }
  printf("%-60s %s %8.1f us %7.1f Gop/s\n", line_of(c), s->d.split ? "split  " : "dot2", best * 1e6, ops / best * 1e-9);
  setup_end(s);
}

static const dot_case benches[] = {
    {.kind = 'p', .a = 'u', .b = 's', .a_zero = 3, .m = 512, .n = 512, .k = 512},
    {.kind = 'p', .a = 'u', .b = 's', .a_zero = 3, .m = 128, .n = 768, .k = 3072},
    {.kind = 'p', .a = 'u', .b = 's', .a_zero = 3, .m = 3136, .n = 64, .k = 64},
    {.kind = 'p', .a = 'u', .b = 'w', .a_zero = 3, .m = 512, .n = 512, .k = 512},
    {.kind = 'p', .a = 'u', .b = 's', .a_zero = 3, .m = 1, .n = 1000, .k = 1280},
    {.kind = 'r', .a = 'u', .b = 's', .a_zero = 3, .b_zero = 2, .m = 128, .n = 768, .k = 768},
    {.kind = 'r', .a = 'u', .b = 's', .a_zero = 3, .b_zero = 2, .m = 8, .n = 2304, .k = 768},
    {.kind = 'p', .a = 'f', .b = 'f', .m = 197, .n = 3072, .k = 768},
    CONV('u', 's', 3, 1, 64, 64, 56, 56, 3, 3, 1, 1),
    CONV('u', 's', 3, 1, 512, 512, 7, 7, 3, 3, 1, 1),
    CONV('u', 's', 3, 1, 32, 3, 244, 244, 3, 3, 2, 1),
    CONV('u', 's', 3, 1, 96, 16, 122, 122, 1, 1, 1, 0),
    CONV('u', 's', 3, 1, 24, 144, 61, 61, 1, 1, 1, 0),
    CONV('u', 's', 3, 1, 144, 144, 61, 61, 3, 3, 1, 1, .groups = 144),
    CONV('u', 's', 3, 1, 256, 128, 28, 28, 2, 2, 1, 1, .shuffle = {{2, 1, 0}, {2, 1, 0}}),
};

int main(int argc, char **argv) {
  syscall(SYS_arch_prctl, 0x1023, 18); /* ARCH_REQ_XCOMP_PERM, tiles: "native" uses them where there are any */
  if (argc > 1 && !strcmp(argv[1], "--bench")) {
    mild = true;
    for (size_t i = 0; i < sizeof benches / sizeof benches[0]; i++)
      if (argc < 3 || strstr(line_of(&benches[i]), argv[2]))
        for (variant as = DOT2; as <= (benches[i].kind == 'r' ? DOT2 : SPLIT); as += SPLIT)
          bench(&benches[i], as);
    return 0;
  }
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (variant as = DOT2; as <= BF16_TILES; as++) {
      dot_case c = cases[i];
      if (is_bf16(as)) {
        c.a = c.b = 'f';
        c.a_zero = c.b_zero = 0;
      }
      if (argc < 2 || strstr(line_of(&c), argv[1]))
        run_case(&c, as, as == DOT4 ? 1 : 3);
      c.started = !is_bf16(as);
      if (c.started && (argc < 2 || strstr(line_of(&c), argv[1])))
        run_case(&c, as, as == DOT4 ? 1 : 3);
    }
  if (argc < 2) {
    expect("x86-64-v3", DOT2, 'p', "vpmaddwd\t%ymm", "zmm");
    expect("x86-64-v3", SPLIT, 'p', "vpmaddubsw\t", "zmm");
    expect("x86-64-v4", DOT2, 'p', "vpmaddwd\t%zmm", "vpdpbusd");
    expect("icelake-server", DOT2, 'p', "vpdpbusd\t", "vpmaddwd");
    expect("icelake-server", SPLIT, 'p', "vpdpbusd\t", "vpmaddubsw");
    expect("sapphirerapids", TILES, 'p', "tdpbusd\t", "vpdpbusd");
    expect("sapphirerapids", BF16_TILES, 'p', "tdpbf16ps\t", "vdpbf16ps");
    expect("icelake-server", DOT2, 'r', "vpdpbusd\t", "vpmaddwd");
    expect("sapphirerapids", TILES, 'r', "tdpbusd\t", "vpmaddwd");
    expect("alderlake", DOT2, 'p', "vpdpbusd\t", "zmm");
    expect("icelake-server", WINOGRAD, 'c', "vpdpwssd\t", "vpdpbusd");
    expect("sapphirerapids", WINOGRAD, 'c', "tdpbusd\t", "vpdpwssd");
    expect("cooperlake", BF16, 'p', "vdpbf16ps\t", "vpmaddwd");
    expect("znver4", BF16, 'p', "vdpbf16ps\t", "vfmadd");
    expect("znver4", DOT2, 'p', "vpdpbusd\t", "vdpbf16ps");
    expect_left_out("x86-64-v3");
    expect_left_out("znver4");
    expect_left_out("sapphirerapids");
  }
  printf("%d passed, %d failed, 0 skipped\n", n_run - n_failed, n_failed);
  return n_failed != 0;
}
