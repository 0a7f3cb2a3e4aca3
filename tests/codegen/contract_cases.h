/* contract_cases.h - the cases of contract_test.c: one line each, columns named in the structs. */
#ifndef CONTRACT_CASES_H
#define CONTRACT_CASES_H

#include <stddef.h>
#include <stdint.h>

/* How A and B are stored. GEMM_NN: B[k][n]; GEMM_NT: B[n][k]; GEMM_TN: A[k][m], B[k][n]; GEMM_TT both turned. */
typedef enum gemm_form { GEMM_PACKED, GEMM_NN, GEMM_NT, GEMM_TN, GEMM_TT } gemm_form;

typedef struct gemm_case {
  gemm_form form;
  int64_t b0, b1, m, n, k;
  int dynamic;                  /* 0: all sizes constant; 1: batch and m from slots; 2: everything */
  int a_broadcast, b_broadcast; /* bit i: along batch axis i */
} gemm_case;

typedef struct gemm_strides {
  int64_t a[2], b[2], am, ak, bk, bn;
} gemm_strides;

static inline gemm_strides gemm_strides_of(const gemm_case *c) {
  int a_turned = c->form == GEMM_TN || c->form == GEMM_TT, b_turned = c->form == GEMM_NT || c->form == GEMM_TT;
  int64_t as = c->m * c->k, bs = c->k * c->n;
  gemm_strides s = {.am = a_turned ? 1 : c->k, .ak = a_turned ? c->m : 1, .bk = b_turned ? 1 : c->n,
                    .bn = b_turned ? c->k : 1};
  s.a[1] = c->a_broadcast & 2 ? 0 : as;
  s.a[0] = c->a_broadcast & 1 ? 0 : c->a_broadcast & 2 ? as : as * c->b1;
  s.b[1] = c->b_broadcast & 2 ? 0 : bs;
  s.b[0] = c->b_broadcast & 1 ? 0 : c->b_broadcast & 2 ? bs : bs * c->b1;
  return s;
}

static inline const char *gemm_form_name(const gemm_case *c) {
  static const char *const names[] = {"packed", "nn", "nt", "tn", "tt"};
  return names[c->form];
}

static const gemm_case gemm_cases[] = {
    {GEMM_PACKED, 1, 1, 1, 1, 1, 0, 0, 0},     {GEMM_PACKED, 1, 1, 1, 1000, 512, 0, 0, 0},
    {GEMM_PACKED, 1, 1, 2, 37, 19, 0, 0, 0},   {GEMM_PACKED, 1, 1, 3, 24, 700, 0, 0, 0},
    {GEMM_PACKED, 1, 1, 4, 50, 64, 0, 0, 0},   {GEMM_PACKED, 1, 1, 5, 33, 64, 0, 0, 0},
    {GEMM_PACKED, 1, 1, 6, 16, 1025, 0, 0, 0}, {GEMM_PACKED, 1, 1, 7, 17, 1, 0, 0, 0},
    {GEMM_PACKED, 1, 1, 49, 65, 2048, 0, 0, 0}, {GEMM_PACKED, 1, 1, 131, 96, 900, 0, 0, 0},
    {GEMM_PACKED, 1, 1, 128, 129, 1536, 0, 0, 0}, {GEMM_PACKED, 2, 3, 13, 21, 40, 0, 0, 0},
    {GEMM_PACKED, 2, 3, 13, 21, 40, 0, 0, 1},  {GEMM_PACKED, 2, 3, 13, 21, 40, 1, 0, 3},
    {GEMM_PACKED, 1, 1, 100, 70, 1100, 1, 0, 3}, {GEMM_PACKED, 1, 1, 1, 70, 300, 1, 0, 3},
    {GEMM_PACKED, 2, 2, 3, 4, 5, 0, 3, 0},     {GEMM_PACKED, 1, 1, 5, 7, 1600, 1, 0, 3},
    {GEMM_NN, 1, 1, 1, 1, 1, 0, 0, 0},         {GEMM_NN, 2, 2, 40, 64, 50, 0, 0, 0},
    {GEMM_NN, 2, 2, 40, 24, 900, 0, 0, 2},     {GEMM_NN, 2, 2, 70, 200, 300, 0, 1, 2},
    {GEMM_NN, 2, 3, 33, 41, 29, 1, 0, 1},      {GEMM_NN, 2, 3, 33, 41, 29, 2, 0, 0},
    {GEMM_NN, 1, 2, 100, 200, 1300, 2, 2, 0},  {GEMM_NN, 1, 1, 4, 64, 777, 0, 0, 0},
    {GEMM_NT, 1, 1, 1, 1, 1, 0, 0, 0},         {GEMM_NT, 2, 2, 1, 77, 45, 0, 0, 0},
    {GEMM_NT, 2, 2, 3, 64, 64, 0, 0, 0},       {GEMM_NT, 2, 2, 50, 50, 64, 0, 0, 0},
    {GEMM_NT, 2, 2, 50, 51, 67, 2, 0, 0},      {GEMM_NT, 1, 2, 4, 131, 900, 1, 0, 0},
    {GEMM_NT, 1, 2, 4, 9, 3, 0, 0, 2},         {GEMM_TN, 1, 1, 64, 64, 64, 0, 0, 0},
    {GEMM_TN, 2, 2, 37, 45, 53, 0, 0, 0},      {GEMM_TN, 2, 2, 37, 45, 530, 2, 0, 0},
    {GEMM_TN, 1, 1, 100, 33, 1200, 1, 0, 0},   {GEMM_TT, 1, 2, 19, 21, 23, 0, 0, 0},
    {GEMM_TT, 1, 2, 99, 61, 83, 2, 0, 0},      {GEMM_TN, 1, 1, 1, 64, 100, 0, 0, 0},
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
    {"vgg fc", {GEMM_PACKED, 1, 1, 1, 4096, 4096, 0, 0, 0}},
    {"resnet fc", {GEMM_PACKED, 1, 1, 1, 1000, 2048, 0, 0, 0}},
    {"resnet fc", {GEMM_NT, 1, 1, 1, 1000, 2048, 0, 0, 0}},
    {"batch 2", {GEMM_PACKED, 1, 1, 2, 1000, 2048, 0, 0, 0}},
    {"batch 4", {GEMM_PACKED, 1, 1, 4, 1000, 2048, 0, 0, 0}},
    {"transposed A", {GEMM_TN, 1, 1, 512, 512, 512, 0, 0, 0}},
    {"small", {GEMM_PACKED, 1, 1, 16, 16, 16, 0, 0, 0}},
};

#endif
