/* SPDX-License-Identifier: Apache-2.0 */
/* contract_cases.h - the cases of contract_test.c: one line each, columns named in the structs. */
#ifndef CONTRACT_CASES_H
#define CONTRACT_CASES_H

#include <stddef.h>
#include <stdint.h>

/* How A and B are stored. GEMM_PACKED_TN: A[k][m]; GEMM_NN: B[k][n]; GEMM_NT: B[n][k]; GEMM_TN: A[k][m], B[k][n];
 * GEMM_TT both turned. */
typedef enum gemm_variant { GEMM_PACKED, GEMM_PACKED_TN, GEMM_NN, GEMM_NT, GEMM_TN, GEMM_TT } gemm_variant;

typedef struct gemm_case {
  gemm_variant variant;
  int64_t b0, b1, m, n, k;
  int dynamic;                  /* 0: all sizes constant; 1: batch and m from slots; 2: everything */
  int a_broadcast, b_broadcast; /* bit i: along batch axis i */
} gemm_case;

static inline int gemm_packed(const gemm_case *c) { return c->variant == GEMM_PACKED || c->variant == GEMM_PACKED_TN; }

typedef struct gemm_strides {
  int64_t a[2], b[2], am, ak, bk, bn;
} gemm_strides;

static inline gemm_strides gemm_strides_of(const gemm_case *c) {
  int a_transposed = c->variant == GEMM_TN || c->variant == GEMM_TT || c->variant == GEMM_PACKED_TN,
      b_transposed = c->variant == GEMM_NT || c->variant == GEMM_TT;
  int64_t as = c->m * c->k, bs = c->k * c->n;
  gemm_strides s = {.am = a_transposed ? 1 : c->k,
                    .ak = a_transposed ? c->m : 1,
                    .bk = b_transposed ? 1 : c->n,
                    .bn = b_transposed ? c->k : 1};
  s.a[1] = c->a_broadcast & 2 ? 0 : as;
  s.a[0] = c->a_broadcast & 1 ? 0 : c->a_broadcast & 2 ? as : as * c->b1;
  s.b[1] = c->b_broadcast & 2 ? 0 : bs;
  s.b[0] = c->b_broadcast & 1 ? 0 : c->b_broadcast & 2 ? bs : bs * c->b1;
  return s;
}

static inline const char *gemm_variant_name(const gemm_case *c) {
  static const char *const names[] = {"packed", "packed tn", "nn", "nt", "tn", "tt"};
  return names[c->variant];
}

static const gemm_case gemm_cases[] = {
    {GEMM_PACKED, 1, 1, 1, 1, 1, 0, 0, 0},
    {GEMM_PACKED, 1, 1, 1, 1000, 512, 0, 0, 0},
    {GEMM_PACKED, 1, 1, 1, 128, 1700, 0, 0, 0}, /* panels shared out, as below */
    {GEMM_PACKED, 1, 1, 3, 90, 1000, 0, 0, 0},
    {GEMM_PACKED, 1, 1, 2, 37, 19, 0, 0, 0},
    {GEMM_PACKED, 1, 1, 3, 24, 700, 0, 0, 0},
    {GEMM_PACKED, 1, 1, 4, 50, 64, 0, 0, 0},
    {GEMM_PACKED, 1, 1, 5, 33, 64, 0, 0, 0},
    {GEMM_PACKED, 1, 1, 6, 16, 1025, 0, 0, 0},
    {GEMM_PACKED, 1, 1, 7, 17, 1, 0, 0, 0},
    {GEMM_PACKED, 1, 1, 49, 65, 2048, 0, 0, 0},
    {GEMM_PACKED, 1, 1, 131, 96, 900, 0, 0, 0},
    {GEMM_PACKED, 1, 1, 128, 129, 1536, 0, 0, 0},
    {GEMM_PACKED, 2, 3, 13, 21, 40, 0, 0, 0},
    {GEMM_PACKED, 2, 3, 13, 21, 40, 0, 0, 1},
    {GEMM_PACKED, 2, 3, 13, 21, 40, 1, 0, 3},
    {GEMM_PACKED, 1, 1, 100, 70, 1100, 1, 0, 3},
    {GEMM_PACKED, 1, 1, 1, 70, 300, 1, 0, 3},
    {GEMM_PACKED, 2, 2, 3, 4, 5, 0, 3, 0},
    {GEMM_PACKED, 1, 1, 5, 7, 1600, 1, 0, 3},
    /* sums that stay in registers: depth unrolled and not, whole and partial last panels, many weights */
    {GEMM_PACKED, 1, 1, 64, 24, 16, 0, 0, 0},
    {GEMM_PACKED, 1, 1, 50, 144, 24, 0, 0, 0},
    {GEMM_PACKED, 2, 1, 37, 35, 200, 0, 0, 0},
    {GEMM_PACKED, 1, 2, 25, 7, 33, 0, 0, 0},
    {GEMM_PACKED, 1, 1, 150, 300, 256, 0, 0, 0},
    {GEMM_PACKED, 1, 1, 200, 70, 96, 1, 0, 0},
    /* Strassen: rows and panels with and without a partner, blocks of K and of rows, a last panel of few columns, A
     * turned once, sums of A for each task (many rows, or rows known only at run time), batches */
    {GEMM_PACKED, 1, 1, 96, 128, 768, 0, 0, 0},
    {GEMM_PACKED, 1, 1, 197, 272, 768, 0, 0, 0},
    {GEMM_PACKED, 1, 1, 131, 200, 1538, 0, 0, 0},
    {GEMM_PACKED, 1, 1, 128, 771, 386, 0, 0, 0},
    {GEMM_PACKED, 1, 1, 392, 64, 2060, 0, 0, 0},
    {GEMM_PACKED, 1, 1, 601, 137, 900, 0, 0, 0},
    {GEMM_PACKED, 2, 2, 100, 256, 768, 0, 0, 3},
    {GEMM_PACKED, 2, 1, 97, 256, 512, 0, 0, 0},
    {GEMM_PACKED, 1, 1, 300, 130, 770, 1, 0, 3},
    {GEMM_PACKED, 1, 1, 95, 130, 770, 1, 0, 3},
    {GEMM_PACKED, 1, 1, 96, 130, 770, 1, 0, 3},
    {GEMM_PACKED, 2, 1, 205, 256, 1600, 1, 0, 3},
    {GEMM_PACKED, 1, 1, 197, 256, 769, 0, 0, 0},
    /* weights read as streams: whole and partial last panels, depths that no four streams share evenly, rows known only
     * at run time */
    {GEMM_PACKED, 1, 1, 1, 400, 301, 0, 0, 0},
    {GEMM_PACKED, 1, 1, 2, 256, 1030, 0, 0, 0},
    {GEMM_PACKED, 1, 1, 5, 300, 515, 0, 0, 0},
    {GEMM_PACKED, 2, 1, 1, 310, 770, 1, 0, 3},
    {GEMM_PACKED, 1, 1, 8, 310, 771, 1, 0, 3},
    {GEMM_PACKED_TN, 1, 1, 197, 272, 768, 0, 0, 0},
    {GEMM_PACKED_TN, 1, 1, 121, 320, 1602, 0, 0, 0},
    {GEMM_PACKED_TN, 1, 1, 197, 400, 37, 0, 0, 0},
    {GEMM_PACKED_TN, 1, 1, 5, 300, 300, 0, 0, 0},
    {GEMM_PACKED_TN, 2, 1, 30, 40, 50, 1, 0, 3},
    {GEMM_NN, 1, 1, 1, 1, 1, 0, 0, 0},
    {GEMM_NN, 2, 2, 40, 64, 50, 0, 0, 0},
    {GEMM_NN, 2, 2, 40, 24, 900, 0, 0, 2},
    {GEMM_NN, 2, 2, 70, 200, 300, 0, 1, 2},
    {GEMM_NN, 2, 3, 33, 41, 29, 1, 0, 1},
    {GEMM_NN, 2, 3, 33, 41, 29, 2, 0, 0},
    {GEMM_NN, 1, 2, 100, 200, 1300, 2, 2, 0},
    {GEMM_NN, 1, 1, 4, 64, 777, 0, 0, 0},
    {GEMM_NT, 1, 1, 1, 1, 1, 0, 0, 0},
    {GEMM_NT, 2, 2, 1, 77, 45, 0, 0, 0},
    {GEMM_NT, 2, 2, 3, 64, 64, 0, 0, 0},
    {GEMM_NT, 2, 2, 50, 50, 64, 0, 0, 0},
    {GEMM_NT, 2, 2, 50, 51, 67, 2, 0, 0},
    {GEMM_NT, 1, 2, 4, 131, 900, 1, 0, 0},
    {GEMM_NT, 1, 2, 4, 9, 3, 0, 0, 2},
    {GEMM_TN, 1, 1, 64, 64, 64, 0, 0, 0},
    {GEMM_TN, 2, 2, 37, 45, 53, 0, 0, 0},
    {GEMM_TN, 2, 2, 37, 45, 530, 2, 0, 0},
    {GEMM_TN, 1, 1, 100, 33, 1200, 1, 0, 0},
    {GEMM_TT, 1, 2, 19, 21, 23, 0, 0, 0},
    {GEMM_TT, 1, 2, 99, 61, 83, 2, 0, 0},
    {GEMM_TN, 1, 1, 1, 64, 100, 0, 0, 0},
};

static const struct {
  gemm_case c;
  int used; /* is it by Strassen's algorithm? */
} strassen_cases[] = {
    {{GEMM_PACKED, 1, 1, 197, 3072, 768, 0, 0, 0}, 1}, {{GEMM_PACKED_TN, 1, 1, 197, 3072, 768, 0, 0, 0}, 1},
    {{GEMM_PACKED, 1, 1, 128, 3072, 768, 0, 0, 0}, 1}, {{GEMM_PACKED, 1, 1, 1500, 384, 1536, 0, 0, 0}, 1},
    {{GEMM_PACKED, 1, 1, 300, 3072, 768, 1, 0, 3}, 1}, {{GEMM_PACKED, 1, 1, 784, 128, 256, 0, 0, 0}, 0},
    {{GEMM_PACKED, 1, 1, 197, 3072, 767, 0, 0, 0}, 0}, {{GEMM_PACKED, 1, 1, 16, 3072, 768, 0, 0, 0}, 0},
    {{GEMM_PACKED, 1, 1, 3136, 256, 64, 0, 0, 0}, 0},  {{GEMM_PACKED, 1, 1, 1024, 32, 1024, 0, 0, 0}, 0},
    {{GEMM_NN, 1, 1, 512, 512, 512, 0, 0, 0}, 0},      {{GEMM_PACKED, 1, 1, 1, 4096, 4096, 0, 0, 0}, 0},
    {{GEMM_PACKED, 1, 1, 1500, 384, 384, 0, 0, 0}, 1}, {{GEMM_PACKED, 1, 1, 128, 768, 3072, 0, 0, 0}, 1},
};

static const struct {
  const char *what;
  gemm_case c;
} gemm_benches[] = {
    {"square", {GEMM_PACKED, 1, 1, 512, 512, 512, 0, 0, 0}},
    {"square", {GEMM_PACKED, 1, 1, 1024, 1024, 1024, 0, 0, 0}},
    {"square", {GEMM_NN, 1, 1, 512, 512, 512, 0, 0, 0}},
    {"bert ffn up", {GEMM_PACKED, 1, 1, 128, 3072, 768, 0, 0, 0}},
    {"bert ffn up", {GEMM_PACKED, 1, 1, 128, 3072, 768, 1, 0, 0}},
    {"bert ffn down", {GEMM_PACKED, 1, 1, 128, 768, 3072, 0, 0, 0}},
    {"bert scores", {GEMM_NT, 1, 12, 128, 128, 64, 0, 0, 0}},
    {"bert values", {GEMM_NN, 1, 12, 128, 64, 128, 0, 0, 0}},
    {"resnet 1x1", {GEMM_PACKED, 1, 1, 3136, 64, 64, 0, 0, 0}},
    {"resnet 1x1", {GEMM_PACKED, 1, 1, 3136, 256, 64, 0, 0, 0}},
    {"resnet 1x1", {GEMM_PACKED, 1, 1, 196, 256, 1024, 0, 0, 0}},
    {"resnet 1x1", {GEMM_PACKED, 1, 1, 49, 512, 2048, 0, 0, 0}},
    {"resnet 1x1", {GEMM_PACKED, 1, 1, 784, 128, 512, 0, 0, 0}},
    {"resnet 1x1", {GEMM_PACKED, 1, 1, 784, 512, 256, 0, 0, 0}},
    {"resnet 1x1", {GEMM_PACKED, 1, 1, 196, 1024, 256, 0, 0, 0}},
    {"resnet 1x1", {GEMM_PACKED, 1, 1, 49, 2048, 512, 0, 0, 0}},
    {"vit qkv", {GEMM_PACKED, 1, 1, 197, 2304, 768, 0, 0, 0}},
    {"vit out", {GEMM_PACKED, 1, 1, 197, 768, 768, 0, 0, 0}},
    {"vit mlp up", {GEMM_PACKED, 1, 1, 197, 3072, 768, 0, 0, 0}},
    {"vit mlp down", {GEMM_PACKED, 1, 1, 197, 768, 3072, 0, 0, 0}},
    {"bert out", {GEMM_PACKED, 1, 1, 128, 768, 768, 0, 0, 0}},
    {"whisper out", {GEMM_PACKED, 1, 1, 1500, 384, 384, 0, 0, 0}},
    {"whisper mlp up", {GEMM_PACKED, 1, 1, 1500, 1536, 384, 0, 0, 0}},
    {"whisper mlp down", {GEMM_PACKED, 1, 1, 1500, 384, 1536, 0, 0, 0}},
    {"convnext up", {GEMM_PACKED, 1, 1, 784, 768, 192, 0, 0, 0}},
    {"convnext down", {GEMM_PACKED, 1, 1, 784, 192, 768, 0, 0, 0}},
    {"convnext up", {GEMM_PACKED, 1, 1, 196, 1536, 384, 0, 0, 0}},
    {"convnext down", {GEMM_PACKED, 1, 1, 196, 384, 1536, 0, 0, 0}},
    {"convnext down", {GEMM_PACKED, 1, 1, 49, 768, 3072, 0, 0, 0}},
    {"vgg fc", {GEMM_PACKED, 1, 1, 1, 4096, 4096, 0, 0, 0}},
    {"resnet fc", {GEMM_PACKED, 1, 1, 1, 1000, 2048, 0, 0, 0}},
    {"resnet fc", {GEMM_NT, 1, 1, 1, 1000, 2048, 0, 0, 0}},
    {"batch 2", {GEMM_PACKED, 1, 1, 2, 1000, 2048, 0, 0, 0}},
    {"batch 3", {GEMM_PACKED, 1, 1, 3, 1000, 2048, 0, 0, 0}},
    {"batch 4", {GEMM_PACKED, 1, 1, 4, 1000, 2048, 0, 0, 0}},
    {"transposed A", {GEMM_TN, 1, 1, 512, 512, 512, 0, 0, 0}},
    {"small", {GEMM_PACKED, 1, 1, 16, 16, 16, 0, 0, 0}},
};

/* Convolutions: spatial axes outermost first. The channel stride of a pixel is cin + gap. */
typedef struct conv_case {
  cy_conv_algo algo;
  int n_spatial, transposed;
  int64_t batch, in[3], kernel[3], stride[3], dilation[3], pad[3], pad_end[3], groups, cin, cout;
  int dynamic; /* batch and spatial sizes from slots */
  int64_t gap;
} conv_case;

#define D1(n) {n}
#define D2(a, b) {a, b}
#define D3(a, b, c) {a, b, c}
#define S2(v) {v, v}
#define S3(v)                                                                                                          \
  { v, v, v }
#define DIRECT CY_CONV_DIRECT
#define WINOGRAD CY_CONV_WINOGRAD
#define DEPTHWISE CY_CONV_DEPTHWISE
#define PLANAR CY_CONV_PLANAR

static const conv_case conv_cases[] = {
    /* direct, pixels */
    {DIRECT, 2, 0, 1, D2(7, 7), S2(1), S2(1), S2(1), S2(0), S2(0), 1, 16, 16, 0, 0},
    {DIRECT, 2, 0, 2, D2(9, 7), S2(1), S2(1), S2(1), S2(0), S2(0), 1, 40, 21, 0, 0},
    {DIRECT, 2, 0, 1, D2(5, 6), S2(1), S2(2), S2(1), S2(0), S2(0), 1, 900, 24, 0, 0},
    {DIRECT, 2, 0, 1, D2(14, 14), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 64, 48, 0, 0},
    {DIRECT, 2, 0, 2, D2(14, 13), S2(3), S2(2), S2(1), S2(1), D2(0, 1), 1, 96, 40, 1, 5},
    {DIRECT, 2, 0, 1, D2(12, 11), D2(3, 5), D2(1, 2), D2(2, 3), D2(2, 4), D2(1, 3), 1, 24, 20, 0, 0},
    {DIRECT, 2, 0, 1, D2(9, 9), S2(3), S2(1), S2(6), S2(6), S2(6), 1, 16, 24, 0, 0},
    {DIRECT, 2, 0, 1, D2(6, 6), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 700, 17, 0, 0},
    {DIRECT, 2, 0, 1, D2(6, 6), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 800, 33, 1, 0},
    {DIRECT, 2, 0, 1, D2(4, 4), S2(7), S2(1), S2(1), S2(3), S2(3), 1, 16, 16, 0, 0},
    {DIRECT, 2, 0, 1, D2(1, 1), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 17, 5, 0, 0},
    {DIRECT, 2, 0, 3, D2(3, 2), D2(2, 2), S2(2), S2(1), D2(1, 0), D2(0, 1), 1, 19, 9, 1, 3},
    /* direct, runs */
    {DIRECT, 2, 0, 1, D2(30, 34), S2(7), S2(2), S2(1), S2(3), S2(3), 1, 3, 64, 0, 0},
    {DIRECT, 2, 0, 2, D2(23, 29), S2(7), S2(2), S2(1), S2(3), D2(2, 3), 1, 3, 20, 1, 0},
    {DIRECT, 2, 0, 1, D2(11, 12), S2(3), S2(1), S2(1), S2(0), S2(0), 1, 4, 30, 0, 0},
    {DIRECT, 2, 0, 1, D2(11, 12), S2(3), S2(1), S2(1), D2(1, 0), D2(1, 0), 1, 4, 30, 0, 0},
    {DIRECT, 2, 0, 1, D2(11, 12), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 1, 8, 0, 2},
    {DIRECT, 2, 0, 1, D2(8, 150), S2(5), D2(1, 2), S2(1), S2(2), S2(2), 1, 6, 30, 1, 0},
    {DIRECT, 2, 0, 1, D2(3, 3), S2(7), S2(1), S2(1), S2(5), S2(5), 1, 2, 9, 0, 0},
    {DIRECT, 2, 0, 1, D2(9, 9), S2(3), S2(1), S2(2), S2(2), S2(2), 1, 3, 12, 0, 0},
    {DIRECT, 2, 0, 2, D2(5, 611), S2(6), S2(2), S2(1), S2(2), S2(2), 1, 3, 20, 0, 4}, /* rows in pieces */
    {DIRECT, 1, 0, 2, D1(1100), D1(7), D1(1), D1(1), D1(3), D1(3), 1, 2, 20, 1, 0},
    /* one and three axes */
    {DIRECT, 1, 0, 2, D1(100), D1(10), D1(5), D1(1), D1(0), D1(0), 1, 1, 64, 0, 0},
    {DIRECT, 1, 0, 2, D1(64), D1(3), D1(1), D1(2), D1(2), D1(2), 1, 32, 24, 1, 0},
    {DIRECT, 1, 0, 1, D1(600), D1(400), D1(160), D1(1), D1(200), D1(200), 1, 1, 40, 0, 0},
    {DIRECT, 3, 0, 1, D3(5, 6, 7), D3(3, 3, 3), D3(1, 1, 1), D3(1, 1, 1), D3(1, 1, 1), D3(1, 1, 1), 1, 16, 20, 0, 0},
    {DIRECT, 3, 0, 2, D3(5, 6, 7), D3(2, 3, 1), D3(2, 1, 2), D3(1, 2, 1), D3(1, 2, 0), D3(0, 2, 0), 1, 18, 9, 1, 0},
    {DIRECT, 3, 0, 1, D3(5, 6, 7), D3(3, 3, 3), D3(1, 2, 2), D3(1, 1, 1), D3(1, 1, 1), D3(1, 1, 1), 1, 3, 20, 0, 0},
    /* groups */
    {DIRECT, 2, 0, 1, D2(7, 7), S2(3), S2(1), S2(1), S2(1), S2(1), 2, 64, 64, 0, 0},
    {DIRECT, 2, 0, 2, D2(7, 5), S2(3), S2(2), S2(1), S2(1), S2(1), 8, 32, 32, 0, 0},
    {DIRECT, 2, 0, 1, D2(7, 5), S2(3), S2(1), S2(1), S2(1), S2(1), 12, 36, 24, 1, 0},
    {DIRECT, 2, 0, 1, D2(7, 5), S2(3), S2(1), S2(1), S2(1), S2(1), 5, 15, 35, 0, 0},
    {DIRECT, 2, 0, 1, D2(6, 6), S2(3), S2(1), S2(1), S2(1), S2(1), 16, 16, 32, 0, 0},
    {DIRECT, 1, 0, 1, D1(50), D1(12), D1(1), D1(1), D1(6), D1(5), 4, 48, 48, 0, 0},
    /* transposed */
    {DIRECT, 2, 1, 1, D2(5, 6), S2(2), S2(2), S2(1), S2(0), S2(0), 1, 16, 24, 0, 0},
    {DIRECT, 2, 1, 2, D2(5, 6), S2(4), S2(2), S2(1), S2(1), S2(1), 1, 20, 17, 1, 0},
    {DIRECT, 2, 1, 1, D2(5, 4), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 16, 16, 0, 0},
    {DIRECT, 2, 1, 1, D2(5, 4), S2(3), S2(2), S2(1), S2(1), S2(0), 1, 3, 5, 0, 0},
    {DIRECT, 2, 1, 1, D2(4, 4), S2(2), S2(3), S2(1), S2(0), S2(0), 2, 8, 12, 0, 0},
    {DIRECT, 2, 1, 1, D2(6, 5), S2(3), D2(3, 2), S2(2), S2(1), D2(1, 0), 1, 24, 9, 0, 0},
    {DIRECT, 1, 1, 1, D1(20), D1(16), D1(8), D1(1), D1(4), D1(4), 1, 32, 16, 1, 0},
    {DIRECT, 3, 1, 1, D3(3, 4, 3), D3(2, 3, 2), D3(2, 2, 1), D3(1, 1, 1), D3(0, 1, 0), D3(0, 0, 0), 1, 8, 8, 0, 0},
    /* few output channels: rows are several outputs */
    {DIRECT, 3, 0, 1, D3(5, 6, 9), D3(3, 3, 3), D3(1, 1, 1), D3(1, 1, 1), D3(1, 1, 1), D3(1, 1, 1), 1, 2, 2, 0, 0},
    {DIRECT, 2, 0, 2, D2(9, 11), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 20, 3, 1, 2},
    {DIRECT, 2, 0, 1, D2(19, 34), S2(3), S2(1), S2(1), D2(0, 1), D2(0, 1), 1, 4, 1, 0, 0},
    {DIRECT, 2, 0, 1, D2(12, 13), S2(5), S2(2), S2(1), S2(2), S2(2), 1, 24, 1, 0, 0},
    {DIRECT, 2, 0, 1, D2(12, 13), S2(3), S2(1), D2(2, 1), S2(2), S2(2), 1, 24, 2, 1, 0},
    {DIRECT, 1, 0, 2, D1(50), D1(12), D1(1), D1(1), D1(6), D1(5), 1, 48, 7, 0, 0},
    {DIRECT, 2, 0, 1, D2(8, 8), S2(3), S2(1), S2(1), S2(0), S2(0), 1, 300, 2, 0, 0}, /* two blocks of K */
    {DIRECT, 3, 1, 1, D3(3, 4, 5), D3(3, 3, 3), D3(2, 2, 2), D3(1, 1, 1), D3(1, 1, 1), D3(0, 0, 0), 1, 24, 2, 0, 0},
    {DIRECT, 2, 1, 2, D2(5, 6), S2(4), S2(2), S2(1), S2(1), S2(1), 1, 20, 3, 1, 0},
    {DIRECT, 2, 1, 1, D2(6, 5), S2(3), D2(3, 2), S2(2), S2(1), D2(1, 0), 1, 24, 2, 0, 0},
    {DIRECT, 1, 1, 1, D1(20), D1(16), D1(8), D1(1), D1(4), D1(4), 1, 32, 2, 0, 0},
    /* .. or vectors of input channels */
    {DIRECT, 2, 0, 2, D2(9, 11), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 64, 3, 1, 2},
    {DIRECT, 2, 0, 1, D2(7, 9), S2(3), S2(2), S2(1), S2(1), S2(1), 1, 24, 1, 0, 0}, /* vectors of 8 */
    {DIRECT, 2, 0, 1, D2(8, 8), S2(5), S2(1), S2(2), S2(4), S2(4), 1, 112, 8, 0, 0},
    {DIRECT, 2, 0, 1, D2(8, 9), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 48, 5, 0, 0},
    {DIRECT, 3, 0, 1, D3(4, 5, 7), D3(3, 3, 3), D3(1, 1, 1), D3(1, 1, 1), D3(1, 1, 1), D3(1, 1, 1), 1, 16, 4, 0, 0},
    {DIRECT, 1, 0, 1, D1(3), D1(7), D1(1), D1(1), D1(3), D1(3), 1, 32, 2, 1, 0}, /* less than a tile */
    {DIRECT, 2, 1, 2, D2(5, 6), S2(4), S2(2), S2(1), S2(1), S2(1), 1, 128, 3, 1, 0},
    {DIRECT, 2, 1, 1, D2(4, 4), S2(2), S2(3), S2(1), S2(0), S2(0), 1, 64, 1, 0, 0}, /* parts without taps */
    /* .. which outputs share */
    {DIRECT, 3, 0, 2, D3(4, 5, 7), S3(3), S3(1), S3(1), S3(1), S3(1), 1, 10, 8, 0, 0},
    {DIRECT, 2, 0, 1, D2(12, 13), S2(3), S2(2), S2(1), S2(1), S2(1), 1, 12, 7, 1, 0},
    {DIRECT, 2, 0, 2, D2(9, 11), S2(5), S2(1), S2(2), S2(4), S2(4), 1, 20, 3, 0, 3},
    {DIRECT, 2, 0, 1, D2(8, 9), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 90, 6, 0, 0},
    {DIRECT, 2, 0, 1, D2(6, 7), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 200, 5, 0, 0},
    {DIRECT, 1, 0, 1, D1(3), D1(7), D1(1), D1(1), D1(3), D1(3), 1, 36, 4, 1, 0}, /* less than a tile */
    {DIRECT, 2, 1, 2, D2(5, 6), S2(4), S2(2), S2(1), S2(1), S2(1), 1, 44, 6, 1, 0},
    /* winograd */
    {WINOGRAD, 2, 0, 1, D2(8, 8), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 16, 16, 0, 0},
    {WINOGRAD, 2, 0, 2, D2(13, 9), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 32, 40, 0, 0},
    {WINOGRAD, 2, 0, 1, D2(7, 7), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 64, 150, 0, 0},
    {WINOGRAD, 2, 0, 3, D2(17, 22), S2(3), S2(1), S2(1), D2(0, 2), D2(1, 0), 1, 24, 35, 1, 7},
    {WINOGRAD, 2, 0, 1, D2(56, 56), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 64, 64, 0, 0},
    {WINOGRAD, 2, 0, 1, D2(197, 199), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 24, 17, 0, 0},
    {WINOGRAD, 2, 0, 2, D2(13, 9), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 72, 40, 0, 0},
    {WINOGRAD, 2, 0, 3, D2(13, 29), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 200, 24, 1, 0},
    {WINOGRAD, 2, 0, 1, D2(2, 3), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 16, 16, 0, 0},
    {WINOGRAD, 2, 0, 1, D2(17, 4), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 40, 24, 0, 0}, /* few tiles: 5, 6, 8 */
    {WINOGRAD, 2, 0, 1, D2(9, 8), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 16, 40, 0, 0},
    {WINOGRAD, 2, 0, 2, D2(7, 5), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 72, 35, 0, 0},
    {WINOGRAD, 2, 0, 1, D2(49, 3), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 40, 24, 0, 0}, /* small caches: 13, 16 */
    {WINOGRAD, 2, 0, 1, D2(14, 15), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 72, 35, 1, 3},
    {WINOGRAD, 2, 0, 2, D2(17, 13), S2(3), S2(1), D2(2, 3), D2(2, 3), D2(2, 3), 1, 16, 24, 0, 0},
    {WINOGRAD, 2, 0, 1, D2(10, 11), S2(3), S2(1), S2(4), S2(4), S2(4), 1, 24, 16, 1, 0},
    {WINOGRAD, 2, 0, 2, D2(5, 7), S2(3), S2(1), S2(6), S2(6), S2(6), 1, 16, 24, 0, 0}, /* fewer outputs than dilation */
    {WINOGRAD, 2, 0, 1, D2(3, 30), S2(3), S2(1), D2(12, 4), D2(12, 4), D2(12, 4), 1, 16, 24, 1, 0},
    /* few outputs, which is known only at run time */
    {WINOGRAD, 2, 0, 1, D2(2, 3), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 96, 40, 1, 0},
    {WINOGRAD, 2, 0, 2, D2(3, 3), S2(3), S2(1), S2(1), D2(1, 0), D2(1, 2), 1, 72, 35, 1, 7},
    {WINOGRAD, 2, 0, 1, D2(4, 5), S2(3), S2(1), S2(2), S2(2), S2(2), 1, 40, 24, 1, 0},
    {WINOGRAD, 2, 0, 16, D2(2, 2), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 24, 24, 1, 0},
    /* three axes */
    {WINOGRAD, 3, 0, 2, D3(3, 9, 10), D3(3, 3, 3), D3(1, 1, 1), D3(1, 1, 1), D3(1, 1, 1), D3(1, 1, 1), 1, 16, 20, 0, 0},
    {WINOGRAD, 3, 0, 1, D3(6, 7, 6), D3(2, 3, 3), D3(1, 1, 1), D3(2, 1, 2), D3(0, 1, 2), D3(1, 0, 2), 1, 48, 16, 0, 3},
    {WINOGRAD, 3, 0, 1, D3(2, 4, 4), D3(3, 3, 3), D3(1, 1, 1), D3(1, 1, 1), D3(1, 1, 1), D3(1, 1, 1), 1, 32, 40, 0, 0},
    {WINOGRAD, 3, 0, 1, D3(6, 17, 9), D3(3, 3, 3), D3(1, 1, 1), D3(1, 1, 1), D3(1, 1, 1), D3(1, 1, 1), 1, 160, 80, 0,
     0},
    {WINOGRAD, 3, 0, 2, D3(5, 9, 10), S3(3), S3(1), S3(1), S3(1), S3(1), 1, 16, 20, 1, 0},
    /* pairs of planes: the last one alone, one panel and several, V of its own and of all tiles, blocks of channels */
    {WINOGRAD, 3, 0, 1, D3(7, 13, 18), S3(3), S3(1), S3(1), S3(1), S3(1), 1, 48, 24, 0, 0},
    {WINOGRAD, 3, 0, 1, D3(8, 30, 33), S3(3), S3(1), D3(1, 2, 1), D3(0, 2, 1), D3(2, 2, 1), 1, 112, 100, 0, 0},
    {WINOGRAD, 3, 0, 1, D3(9, 12, 9), S3(3), S3(1), S3(1), D3(2, 1, 1), D3(2, 1, 1), 1, 80, 48, 1, 2},
    {WINOGRAD, 3, 0, 3, D3(1, 20, 20), S3(3), S3(1), S3(1), S3(1), S3(1), 1, 32, 32, 0, 0},
    {WINOGRAD, 3, 0, 2, D3(6, 13, 6), D3(2, 3, 3), S3(1), D3(2, 1, 2), D3(0, 1, 2), D3(1, 0, 2), 1, 64, 40, 1, 3},
    {WINOGRAD, 3, 0, 1, D3(4, 9, 11), D3(1, 3, 3), S3(1), S3(1), D3(0, 1, 1), D3(0, 1, 1), 1, 48, 24, 1, 0},
    /* .. of which there turn out to be few */
    {WINOGRAD, 3, 0, 1, D3(2, 2, 2), S3(3), S3(1), S3(1), S3(1), S3(1), 1, 32, 40, 1, 0},
    {WINOGRAD, 3, 0, 2, D3(2, 2, 3), D3(2, 3, 3), S3(1), D3(2, 1, 1), D3(0, 1, 1), D3(1, 1, 0), 1, 96, 35, 1, 5},
    {WINOGRAD, 3, 0, 2, D3(2, 1, 3), D3(1, 3, 3), S3(1), S3(1), D3(0, 1, 1), D3(0, 1, 1), 1, 72, 24, 1, 0},
    /* several groups in a vector */
    {DEPTHWISE, 2, 0, 1, D2(9, 11), S2(3), S2(1), S2(1), S2(1), S2(1), 8, 32, 32, 0, 0},
    {DEPTHWISE, 2, 0, 2, D2(9, 21), S2(3), S2(2), S2(1), S2(1), S2(1), 11, 44, 44, 1, 3},
    {DEPTHWISE, 2, 0, 1, D2(12, 13), D2(5, 3), S2(1), S2(2), S2(2), S2(2), 7, 7, 14, 0, 0},
    {DEPTHWISE, 2, 0, 1, D2(7, 9), S2(3), S2(1), S2(1), S2(1), D2(0, 2), 9, 27, 36, 0, 0},
    {DEPTHWISE, 1, 0, 2, D1(40), D1(7), D1(1), D1(1), D1(3), D1(3), 10, 20, 20, 1, 0},
    {DEPTHWISE, 3, 0, 1, D3(5, 6, 9), D3(3, 3, 3), D3(1, 1, 1), D3(1, 1, 1), D3(1, 1, 1), D3(1, 1, 1), 4, 24, 32, 0, 0},
    {DEPTHWISE, 2, 0, 2, D2(10, 20), S2(3), S2(1), S2(1), S2(1), S2(1), 5, 40, 40, 0, 0},
    /* depthwise */
    {DEPTHWISE, 2, 0, 1, D2(14, 14), S2(3), S2(1), S2(1), S2(1), S2(1), 32, 32, 32, 0, 0},
    {DEPTHWISE, 2, 0, 2, D2(15, 13), S2(3), S2(2), S2(1), S2(1), D2(1, 0), 70, 70, 70, 0, 0},
    {DEPTHWISE, 2, 0, 1, D2(15, 23), S2(5), D2(1, 2), S2(1), S2(2), S2(2), 13, 13, 13, 1, 0},
    {DEPTHWISE, 2, 0, 1, D2(9, 9), S2(3), S2(1), D2(2, 3), D2(2, 3), D2(2, 3), 8, 8, 8, 0, 9},
    {DEPTHWISE, 2, 0, 1, D2(3, 2), S2(7), S2(1), S2(1), S2(3), S2(3), 24, 24, 24, 0, 0},
    {DEPTHWISE, 2, 0, 1, D2(20, 20), S2(7), S2(1), S2(1), S2(3), S2(3), 96, 96, 96, 0, 0},
    {DEPTHWISE, 1, 0, 2, D1(40), D1(31), D1(1), D1(1), D1(15), D1(15), 20, 20, 20, 0, 0},
    {DEPTHWISE, 3, 0, 1, D3(4, 5, 6), D3(3, 2, 3), D3(1, 2, 1), D3(1, 1, 2), D3(1, 1, 2), D3(1, 0, 2), 17, 17, 17, 0,
     0},
    {DEPTHWISE, 2, 0, 1, D2(6, 7), S2(2), S2(1), S2(1), S2(0), S2(0), 3, 3, 3, 0, 0},
    /* .. several blocks of channels: equal ones, a smaller one at the end, with groups; tasks of several images */
    {DEPTHWISE, 2, 0, 1, D2(9, 17), S2(3), S2(1), S2(1), S2(1), S2(1), 192, 192, 192, 0, 0},
    {DEPTHWISE, 2, 0, 2, D2(9, 16), S2(3), S2(2), S2(1), S2(1), S2(1), 200, 200, 200, 1, 0},
    {DEPTHWISE, 2, 0, 5, D2(2, 3), S2(3), S2(1), S2(1), S2(1), S2(1), 131, 131, 131, 0, 5},
    {DEPTHWISE, 2, 0, 1, D2(6, 9), S2(3), S2(1), S2(2), S2(2), S2(2), 67, 67, 134, 0, 0},
    {DEPTHWISE, 2, 0, 2, D2(5, 9), S2(3), S2(1), S2(1), S2(1), S2(1), 40, 160, 160, 1, 0},
    /* .. borders: wider than tiles, on one side, of maps that are narrower than the kernel; strides over what is not read */
    {DEPTHWISE, 1, 0, 1, D1(75), D1(31), D1(1), D1(3), D1(45), D1(45), 20, 20, 20, 0, 0},
    {DEPTHWISE, 1, 0, 1, D1(75), D1(31), D1(1), D1(3), D1(45), D1(45), 20, 20, 20, 1, 0},
    {DEPTHWISE, 2, 0, 1, D2(5, 40), D2(3, 5), S2(1), S2(1), D2(2, 4), D2(0, 0), 24, 24, 24, 0, 0},
    {DEPTHWISE, 2, 0, 1, D2(5, 40), D2(3, 5), S2(1), S2(1), D2(0, 0), D2(2, 4), 24, 24, 24, 1, 0},
    {DEPTHWISE, 2, 0, 2, D2(2, 2), S2(7), S2(1), S2(1), S2(3), S2(3), 19, 19, 19, 1, 0},
    {DEPTHWISE, 2, 0, 1, D2(4, 3), S2(3), S2(1), S2(3), S2(3), S2(3), 33, 33, 33, 1, 0},
    {DEPTHWISE, 2, 0, 1, D2(13, 50), S2(2), D2(3, 4), S2(1), S2(0), S2(0), 16, 16, 16, 1, 0},
    {DEPTHWISE, 2, 0, 1, D2(13, 50), S2(2), D2(3, 4), S2(1), S2(0), S2(0), 16, 16, 16, 0, 0},
    {DEPTHWISE, 3, 0, 2, D3(3, 4, 20), D3(2, 3, 3), D3(2, 1, 2), D3(1, 2, 1), D3(1, 2, 1), D3(0, 2, 1), 70, 70, 70, 1, 0},
    /* planar: strides of powers of two and others, few and many sums, pieces of rows, groups, one to three axes */
    {PLANAR, 1, 0, 1, D1(700), D1(16), D1(8), D1(1), D1(3), D1(0), 1, 1, 40, 0, 0},
    {PLANAR, 1, 0, 2, D1(5000), D1(5), D1(3), D1(2), D1(4), D1(4), 1, 3, 7, 1, 0},
    {PLANAR, 1, 0, 1, D1(301), D1(3), D1(1), D1(4), D1(4), D1(4), 6, 6, 6, 1, 0},
    {PLANAR, 1, 0, 1, D1(400), D1(8), D1(4), D1(1), D1(2), D1(2), 1, 40, 33, 0, 0},
    {PLANAR, 1, 0, 1, D1(90), D1(1), D1(2), D1(1), D1(0), D1(0), 1, 20, 5, 1, 0},
    {PLANAR, 2, 0, 2, D2(13, 45), S2(3), D2(1, 2), D2(2, 1), S2(1), D2(1, 2), 1, 3, 18, 0, 0},
    {PLANAR, 2, 0, 1, D2(9, 30), D2(1, 3), S2(1), D2(1, 20), D2(0, 20), D2(0, 20), 2, 8, 6, 1, 0},
    {PLANAR, 3, 0, 1, D3(4, 5, 17), S3(3), S3(1), S3(1), S3(1), S3(1), 1, 2, 9, 1, 0},
    /* .. whose tasks have several rows, the last ones fewer, with rows between them that no tap reads */
    {PLANAR, 2, 0, 2, D2(37, 40), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 2, 2, 1, 0},
    {PLANAR, 3, 0, 1, D3(4, 37, 20), S3(3), D3(1, 2, 2), D3(2, 1, 3), S3(2), S3(2), 1, 2, 2, 1, 0},
    {PLANAR, 3, 0, 1, D3(3, 41, 12), D3(2, 2, 3), D3(2, 3, 1), D3(1, 5, 1), D3(0, 4, 1), D3(1, 0, 1), 2, 4, 6, 0, 0},
};

/* What cy_conv_choose must say. Where sizes are known only at run time, tiles of pictures that dilation cuts finely are
 * taken for mostly empty. */
static const struct {
  const char *what;
  conv_case c;
  cy_conv_algo want;
} conv_choices[] = {
    {"unknown sizes", {DIRECT, 2, 0, 1, S2(64), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 64, 64, 1, 0}, WINOGRAD},
    {"dilation 2", {DIRECT, 2, 0, 1, S2(64), S2(3), S2(1), S2(2), S2(2), S2(2), 1, 64, 64, 1, 0}, WINOGRAD},
    {"dilation 12", {DIRECT, 2, 0, 1, S2(64), S2(3), S2(1), S2(12), S2(12), S2(12), 1, 64, 64, 1, 0}, DIRECT},
    {"three axes", {DIRECT, 3, 0, 1, S3(16), S3(3), S3(1), S3(1), S3(1), S3(1), 1, 16, 16, 0, 0}, WINOGRAD},
    {"three axes of unknown size",
     {DIRECT, 3, 0, 1, S3(16), S3(3), S3(1), S3(1), S3(1), S3(1), 1, 16, 16, 1, 0},
     WINOGRAD},
    {"deep layers of unknown size",
     {DIRECT, 3, 0, 1, S3(2), S3(3), S3(1), S3(1), S3(1), S3(1), 1, 320, 320, 1, 0},
     WINOGRAD},
};

static const struct {
  const char *what;
  conv_case c;
} conv_benches[] = {
    {"resnet stem", {DIRECT, 2, 0, 1, S2(224), S2(7), S2(2), S2(1), S2(3), S2(3), 1, 3, 64, 0, 0}},
    {"mobilenet stem", {DIRECT, 2, 0, 1, S2(224), S2(3), S2(2), S2(1), S2(1), S2(1), 1, 3, 32, 0, 0}},
    {"yolox stem", {DIRECT, 2, 0, 1, S2(208), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 12, 16, 0, 0}},
    {"vgg first", {DIRECT, 2, 0, 1, S2(224), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 3, 64, 0, 0}},
    {"resnet 1x1", {DIRECT, 2, 0, 1, S2(56), S2(1), S2(1), S2(1), S2(0), S2(0), 1, 64, 64, 0, 0}},
    {"resnet 1x1", {DIRECT, 2, 0, 1, S2(56), S2(1), S2(1), S2(1), S2(0), S2(0), 1, 64, 256, 0, 0}},
    {"resnet 1x1", {DIRECT, 2, 0, 1, S2(56), S2(1), S2(2), S2(1), S2(0), S2(0), 1, 256, 512, 0, 0}},
    {"resnet 1x1", {DIRECT, 2, 0, 1, S2(14), S2(1), S2(1), S2(1), S2(0), S2(0), 1, 1024, 256, 0, 0}},
    {"resnet 1x1", {DIRECT, 2, 0, 1, S2(7), S2(1), S2(1), S2(1), S2(0), S2(0), 1, 512, 2048, 0, 0}},
    {"resnet 3x3", {DIRECT, 2, 0, 1, S2(56), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 64, 64, 0, 0}},
    {"resnet 3x3", {WINOGRAD, 2, 0, 1, S2(56), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 64, 64, 0, 0}},
    {"resnet 3x3", {DIRECT, 2, 0, 1, S2(28), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 128, 128, 0, 0}},
    {"resnet 3x3", {WINOGRAD, 2, 0, 1, S2(28), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 128, 128, 0, 0}},
    {"resnet 3x3", {DIRECT, 2, 0, 1, S2(28), S2(3), S2(2), S2(1), S2(1), S2(1), 1, 128, 128, 0, 0}},
    {"resnet 3x3", {DIRECT, 2, 0, 1, S2(14), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 256, 256, 0, 0}},
    {"resnet 3x3", {WINOGRAD, 2, 0, 1, S2(14), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 256, 256, 0, 0}},
    {"resnet 3x3", {DIRECT, 2, 0, 1, S2(7), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 512, 512, 0, 0}},
    {"resnet 3x3", {WINOGRAD, 2, 0, 1, S2(7), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 512, 512, 0, 0}},
    {"vgg 3x3", {DIRECT, 2, 0, 1, S2(112), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 128, 128, 0, 0}},
    {"vgg 3x3", {WINOGRAD, 2, 0, 1, S2(112), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 128, 128, 0, 0}},
    {"vgg 3x3", {WINOGRAD, 2, 0, 1, S2(28), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 512, 512, 0, 0}},
    {"vgg 3x3", {WINOGRAD, 2, 0, 1, S2(224), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 64, 64, 0, 0}},
    {"vgg 3x3", {WINOGRAD, 2, 0, 1, S2(56), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 256, 256, 0, 0}},
    {"vgg 3x3", {WINOGRAD, 2, 0, 1, S2(14), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 512, 512, 0, 0}},
    {"ddpm 3x3", {WINOGRAD, 2, 0, 1, S2(32), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 128, 128, 0, 0}},
    {"ddpm 3x3", {WINOGRAD, 2, 0, 1, S2(16), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 256, 256, 0, 0}},
    {"ddpm 3x3", {WINOGRAD, 2, 0, 1, S2(8), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 512, 256, 0, 0}},
    {"ddpm 3x3", {WINOGRAD, 2, 0, 1, S2(4), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 256, 256, 0, 0}},
    {"unet 3x3", {WINOGRAD, 2, 0, 1, S2(256), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 32, 32, 0, 0}},
    {"unet 3x3", {WINOGRAD, 2, 0, 1, S2(32), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 256, 256, 0, 0}},
    {"unet 3x3", {WINOGRAD, 2, 0, 1, S2(16), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 1024, 512, 0, 0}},
    {"monai 3x3x3", {DIRECT, 3, 0, 1, S3(32), S3(3), S3(1), S3(1), S3(1), S3(1), 1, 16, 16, 0, 0}},
    {"monai 3x3x3", {WINOGRAD, 3, 0, 1, S3(32), S3(3), S3(1), S3(1), S3(1), S3(1), 1, 16, 16, 0, 0}},
    {"monai head", {DIRECT, 3, 0, 1, S3(64), S3(3), S3(1), S3(1), S3(1), S3(1), 1, 2, 2, 0, 0}},
    {"monai upsample", {DIRECT, 3, 1, 1, S3(32), S3(3), S3(2), S3(1), S3(1), S3(0), 1, 32, 2, 0, 0}},
    {"mobilenet dw", {DEPTHWISE, 2, 0, 1, S2(112), S2(3), S2(1), S2(1), S2(1), S2(1), 32, 32, 32, 0, 0}},
    {"mobilenet dw", {DEPTHWISE, 2, 0, 1, S2(112), S2(3), S2(2), S2(1), S2(1), S2(1), 96, 96, 96, 0, 0}},
    {"mobilenet dw", {DEPTHWISE, 2, 0, 1, S2(28), S2(3), S2(1), S2(1), S2(1), S2(1), 192, 192, 192, 0, 0}},
    {"mobilenet dw", {DEPTHWISE, 2, 0, 1, S2(14), S2(3), S2(1), S2(1), S2(1), S2(1), 384, 384, 384, 0, 0}},
    {"mobilenet dw", {DEPTHWISE, 2, 0, 1, S2(7), S2(3), S2(1), S2(1), S2(1), S2(1), 960, 960, 960, 0, 0}},
    {"efficientnet dw", {DEPTHWISE, 2, 0, 1, S2(28), S2(5), S2(1), S2(1), S2(2), S2(2), 240, 240, 240, 0, 0}},
    {"convnext dw", {DEPTHWISE, 2, 0, 1, S2(28), S2(7), S2(1), S2(1), S2(3), S2(3), 192, 192, 192, 0, 0}},
    {"resnext", {DIRECT, 2, 0, 1, S2(28), S2(3), S2(1), S2(1), S2(1), S2(1), 32, 256, 256, 0, 0}},
    {"upsample", {DIRECT, 2, 1, 1, S2(28), S2(4), S2(2), S2(1), S2(1), S2(1), 1, 128, 64, 0, 0}},
    {"resnet stem, dynamic", {DIRECT, 2, 0, 1, S2(224), S2(7), S2(2), S2(1), S2(3), S2(3), 1, 3, 64, 1, 0}},
    {"resnet 3x3, dynamic", {DIRECT, 2, 0, 1, S2(28), S2(3), S2(1), S2(1), S2(1), S2(1), 1, 128, 128, 1, 0}},
};

#endif
