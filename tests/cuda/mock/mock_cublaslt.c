/* SPDX-License-Identifier: Apache-2.0 */
/* mock_cublaslt.c - a libcublasLt.so.13 without a GPU: checks descriptors as cublasLt.h documents them, and computes by
 * plain loops.
 *
 * Attributes are refused in another size than theirs. Layouts need leading dimensions of a column at least; heuristics and
 * products need matrices that fit each other, one type of both factors, the result's type for C, equal batches, results that
 * do not overlap, a bias where the epilogue has one, and types that the epilogue comes with. Five algorithms differ in what
 * they ask for and in the time they take on the mock driver's clock: two need a workspace, one of which is larger than is
 * allowed, one adds partial sums in place, and all but one want leading dimensions of 16 bytes. An algorithm serves the
 * problem that it was proposed for alone. Products of TF32 round their factors. Whatever is wrong fails with the code that
 * the library has for it, and mock_cublaslt()->fault says why.
 */
#define _GNU_SOURCE
#include "tests/cuda/mock/mock_cublaslt.h"
#include "runtime/cuda/cublaslt_numbers.h"
#include "tests/cuda/mock/mock_library.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, NOT_INITIALISED = 1, INVALID = 7, FAILED = 13, ALIGNED = 16, DEFAULT_ALIGNMENT = 256 };

static mock_cublaslt_state mock = {.version = 130100, .cudart = 13000, .algorithm_us = {5, 4, 3, 6, 7}, .wrong = -1};

/* In the order of the heuristics. */
static const struct {
  size_t workspace;
  uint32_t reduction; /* bit of cublasLtReductionScheme_t; 0: none */
  int any_lead;       /* leading dimensions need no alignment */
} algorithms[MOCK_ALGORITHMS] = {{1 << 20, 2, 0}, {(size_t)1 << 30, 2, 0}, {0, 1, 0}, {0, 0, 0}, {0, 0, 1}};

mock_cublaslt_state *mock_cublaslt(void) { return &mock; }

/* ---- the library ---- */

size_t cublasLtGetVersion(void) { return mock.version; }
size_t cublasLtGetCudartVersion(void) { return mock.cudart; }
const char *cublasLtGetStatusName(int code) {
  return code == INVALID            ? "CUBLAS_STATUS_INVALID_VALUE"
         : code == LT_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                    : "CUBLAS_STATUS_OTHER";
}

int cublasLtCreate(void **out) {
  if (mock.create_code)
    return fail(mock.create_code, "the test wants it");
  *out = calloc(1, 1);
  mock.handles++;
  return OK;
}

int cublasLtDestroy(void *h) {
  free(h);
  mock.handles--;
  return OK;
}

/* ---- descriptors ---- */

typedef struct operation {
  int compute, scale, transa, transb;
  uint32_t epilogue;
  void *bias;
} operation;
typedef struct layout {
  int type;
  uint64_t rows, columns;
  int64_t lead, batch_stride;
  int32_t batches;
} layout;
typedef struct preference {
  uint64_t workspace;
  uint32_t reductions, alignment[4];
} preference;

static void *made(size_t bytes, const void *from) {
  void *d = malloc(bytes);
  memcpy(d, from, bytes);
  mock.descriptors++;
  return d;
}

static int freed(void *d) {
  free(d);
  mock.descriptors--;
  return OK;
}

/* One attribute, of a size that must be right. */
static int put(void *to, size_t bytes, const void *from, size_t given, int what) {
  if (!from || given != bytes)
    return fail(INVALID, "attribute %d has %zu bytes, not %zu", what, bytes, given);
  memcpy(to, from, bytes);
  return OK;
}

int cublasLtMatmulDescCreate(void **out, int compute, int scale) {
  operation op = {compute, scale, LT_OP_N, LT_OP_N, LT_EPILOGUE_DEFAULT, NULL};
  if ((compute != LT_COMPUTE_32F && compute != LT_COMPUTE_TF32) || scale != LT_R_32F)
    return fail(INVALID, "sums of type %d, scaled by type %d", compute, scale);
  *out = made(sizeof op, &op);
  return OK;
}
int cublasLtMatmulDescDestroy(void *d) { return freed(d); }

int cublasLtMatmulDescSetAttribute(void *d, int what, const void *from, size_t bytes) {
  operation *op = d;
  switch (what) {
  case LT_DESC_TRANSA:
    return put(&op->transa, sizeof op->transa, from, bytes, what);
  case LT_DESC_TRANSB:
    return put(&op->transb, sizeof op->transb, from, bytes, what);
  case LT_DESC_EPILOGUE:
    return put(&op->epilogue, sizeof op->epilogue, from, bytes, what);
  case LT_DESC_BIAS_POINTER:
    return put(&op->bias, sizeof op->bias, from, bytes, what);
  default:
    return fail(INVALID, "operations have no attribute %d here", what);
  }
}

int cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows, uint64_t columns, int64_t lead) {
  layout l = {type, rows, columns, lead, 0, 1};
  if ((type != LT_R_32F && type != LT_R_16F && type != LT_R_16BF) || !rows || !columns || lead < (int64_t)rows)
    return fail(INVALID, "a matrix of type %d, %llu x %llu, with columns %lld apart", type, (unsigned long long)rows,
                (unsigned long long)columns, (long long)lead);
  *out = made(sizeof l, &l);
  return OK;
}
int cublasLtMatrixLayoutDestroy(void *d) { return freed(d); }

int cublasLtMatrixLayoutSetAttribute(void *d, int what, const void *from, size_t bytes) {
  layout *l = d;
  switch (what) {
  case LT_LAYOUT_BATCHES:
    return put(&l->batches, sizeof l->batches, from, bytes, what);
  case LT_LAYOUT_BATCH_STRIDE:
    return put(&l->batch_stride, sizeof l->batch_stride, from, bytes, what);
  default:
    return fail(INVALID, "layouts have no attribute %d here", what);
  }
}

int cublasLtMatmulPreferenceCreate(void **out) {
  preference p = {0, 7, {DEFAULT_ALIGNMENT, DEFAULT_ALIGNMENT, DEFAULT_ALIGNMENT, DEFAULT_ALIGNMENT}};
  *out = made(sizeof p, &p);
  return OK;
}
int cublasLtMatmulPreferenceDestroy(void *d) { return freed(d); }

int cublasLtMatmulPreferenceSetAttribute(void *d, int what, const void *from, size_t bytes) {
  preference *p = d;
  if (what == LT_PREF_WORKSPACE)
    return put(&p->workspace, sizeof p->workspace, from, bytes, what);
  if (what == LT_PREF_REDUCTIONS)
    return put(&p->reductions, sizeof p->reductions, from, bytes, what);
  if (what >= LT_PREF_ALIGN_A && what <= LT_PREF_ALIGN_D)
    return put(&p->alignment[what - LT_PREF_ALIGN_A], sizeof *p->alignment, from, bytes, what);
  return fail(INVALID, "preferences have no attribute %d here", what);
}

/* ---- what is wrong with a problem ---- */

typedef struct problem { /* by value: descriptors may be gone when a captured graph is launched */
  operation op;
  layout m[4]; /* A, B, C, D */
} problem;

static size_t bytes_of(int type) { return type == LT_R_32F ? 4 : 2; }

static int check_batches(const problem *p) {
  const layout *d = &p->m[3];
  for (int i = 0; i < 4; i++)
    if (p->m[i].batches != d->batches || p->m[i].batches < 1)
      return fail(INVALID, "matrix %d has %d batches, not %d", i, p->m[i].batches, d->batches);
  if (d->batches > 1 && d->batch_stride < (int64_t)d->rows)
    return fail(INVALID, "results of batches overlap: they are %lld apart", (long long)d->batch_stride);
  return OK;
}

static int check_types(const problem *p) {
  int a = p->m[0].type, d = p->m[3].type;
  if (p->m[1].type != a || p->m[2].type != d || (d != a && d != LT_R_32F))
    return fail(LT_NOT_SUPPORTED, "types %d, %d, %d, %d", a, p->m[1].type, p->m[2].type, d);
  if (p->op.compute == LT_COMPUTE_TF32 && a != LT_R_32F)
    return fail(LT_NOT_SUPPORTED, "TF32 of factors of type %d", a);
  switch (p->op.epilogue & ~(uint32_t)LT_EPILOGUE_BIAS) {
  case 0:
  case LT_EPILOGUE_RELU:
  case LT_EPILOGUE_GELU:
    break;
  case LT_EPILOGUE_DEFAULT:
    if (p->op.epilogue == LT_EPILOGUE_DEFAULT)
      break; /* fall through */
  default:
    return fail(INVALID, "epilogue %u", p->op.epilogue);
  }
  return p->op.epilogue ? OK : fail(INVALID, "no epilogue");
}

static int check(const problem *p) {
  const layout *a = &p->m[0], *b = &p->m[1], *c = &p->m[2], *d = &p->m[3];
  uint64_t rows = p->op.transa ? a->columns : a->rows, deep = p->op.transa ? a->rows : a->columns;
  uint64_t deep_b = p->op.transb ? b->columns : b->rows, columns = p->op.transb ? b->rows : b->columns;
  if (rows != d->rows || columns != d->columns || deep != deep_b || c->rows != d->rows || c->columns != d->columns)
    return fail(INVALID, "%llu x %llu times %llu x %llu is not %llu x %llu", (unsigned long long)rows,
                (unsigned long long)deep, (unsigned long long)deep_b, (unsigned long long)columns,
                (unsigned long long)d->rows, (unsigned long long)d->columns);
  if ((p->op.epilogue & LT_EPILOGUE_BIAS) && (!p->op.bias || (uintptr_t)p->op.bias % ALIGNED))
    return fail(INVALID, "the bias is at %p", p->op.bias);
  int code = check_batches(p);
  return code ? code : check_types(p);
}

static problem problem_of(const void *op, const void *a, const void *b, const void *c, const void *d) {
  problem p = {.op = *(const operation *)op};
  const void *const from[4] = {a, b, c, d};
  for (int i = 0; i < 4; i++)
    p.m[i] = *(const layout *)from[i];
  return p;
}

static uint64_t hash_of(const problem *p) {
  uint64_t hash = 14695981039346656037u;
  const uint64_t words[] = {(uint64_t)p->op.compute, (uint64_t)p->op.transa, (uint64_t)p->op.transb, p->op.epilogue};
  for (int i = 0; i < 4; i++)
    hash = (hash ^ words[i]) * 1099511628211u;
  for (int i = 0; i < 4; i++) {
    const layout *l = &p->m[i];
    const uint64_t of[] = {(uint64_t)l->type,        l->rows, l->columns, (uint64_t)l->lead, (uint64_t)l->batches,
                           (uint64_t)l->batch_stride};
    for (int k = 0; k < 6; k++)
      hash = (hash ^ of[k]) * 1099511628211u;
  }
  return hash;
}

/* ---- algorithms ---- */

typedef struct algorithm { /* cublasLtMatmulAlgo_t */
  uint64_t number, problem, alignment, rest[5];
} algorithm;
typedef struct found { /* cublasLtMatmulHeuristicResult_t */
  algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
} found;
_Static_assert(sizeof(algorithm) == 64 && sizeof(found) == 96, "as the library has them");

static int leads_are_aligned(const problem *p) {
  for (int i = 0; i < 4; i++)
    if ((size_t)p->m[i].lead * bytes_of(p->m[i].type) % ALIGNED)
      return 0;
  return 1;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *op, void *a, void *b, void *c, void *d, void *preferred,
                                   int wanted, found *out, int *out_n) {
  const preference *want = preferred;
  problem p = problem_of(op, a, b, c, d);
  *out_n = 0;
  mock.asked++;
  if (!handle)
    return fail(NOT_INITIALISED, "there is no handle");
  if (mock.heuristic_code)
    return fail(mock.heuristic_code, "the test wants it");
  int code = wanted < 1 ? fail(INVALID, "%d algorithms are asked for", wanted) : check(&p);
  for (int i = 0; i < MOCK_ALGORITHMS && *out_n < wanted && !code; i++) {
    if (algorithms[i].workspace > want->workspace || (algorithms[i].reduction & ~want->reductions) ||
        (!algorithms[i].any_lead && !leads_are_aligned(&p)))
      continue;
    out[(*out_n)++] = (found){.algorithm = {(uint64_t)i, hash_of(&p), want->alignment[0], {0}},
                              .workspace = algorithms[i].workspace,
                              .waves = 1};
  }
  return code || *out_n ? code : fail(LT_NOT_SUPPORTED, "no algorithm is fit");
}

/* ---- computing ---- */

typedef struct job {
  problem p;
  float alpha, beta;
  const void *a, *b, *c, *bias;
  void *d;
  int wrong;
  double *clock, us;
} job;

static mock_type type_of(int type) { return type == LT_R_32F ? MOCK_F32 : type == LT_R_16F ? MOCK_F16 : MOCK_BF16; }
static float load(int type, const void *at, int64_t i) { return mock_load(type_of(type), at, i); }
static void store(int type, void *at, int64_t i, float f) { mock_store(type_of(type), at, i, f); }

/* What is left of a factor: 10 bits behind the point of TF32. */
static double factor(const problem *p, float f) {
  uint32_t bits;
  memcpy(&bits, &f, 4);
  bits = (bits + 0x1000) & ~UINT32_C(0x1fff);
  if (p->op.compute == LT_COMPUTE_TF32)
    memcpy(&f, &bits, 4);
  return (double)f;
}

static int64_t at(const layout *l, int64_t z, int64_t row, int64_t column) {
  return z * l->batch_stride + column * l->lead + row;
}

static double sum(const job *j, int64_t z, int64_t row, int64_t column) {
  const problem *p = &j->p;
  const layout *a = &p->m[0], *b = &p->m[1];
  int64_t deep = (int64_t)(p->op.transa ? a->rows : a->columns);
  double total = 0;
  for (int64_t k = 0; k < deep; k++)
    total += factor(p, load(a->type, j->a, p->op.transa ? at(a, z, k, row) : at(a, z, row, k))) *
             factor(p, load(b->type, j->b, p->op.transb ? at(b, z, column, k) : at(b, z, k, column)));
  return total;
}

static double activate(uint32_t epilogue, double x) {
  switch (epilogue & ~(uint32_t)LT_EPILOGUE_BIAS) {
  case LT_EPILOGUE_RELU:
    return x > 0 ? x : 0;
  case LT_EPILOGUE_GELU: /* by tanh */
    return x / 2 * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
  default:
    return x;
  }
}

static int run_job(const void *data) {
  const job *j = data;
  const problem *p = &j->p;
  const layout *c = &p->m[2], *d = &p->m[3];
  *j->clock += j->us;
  for (int64_t z = 0; z < d->batches; z++)
    for (int64_t column = 0; column < (int64_t)d->columns; column++)
      for (int64_t row = 0; row < (int64_t)d->rows; row++) {
        double x = (double)j->alpha * sum(j, z, row, column);
        if (j->beta != 0)
          x += (double)(j->beta * load(c->type, j->c, at(c, z, row, column)));
        if (p->op.epilogue & LT_EPILOGUE_BIAS)
          x += (double)load(d->type, j->bias, row);
        x = activate(p->op.epilogue, x);
        store(d->type, j->d, at(d, z, row, column), (float)(j->wrong ? 1.5 * x : x));
      }
  return 0;
}

/* ---- running ---- */

static int check_call(const job *j, const algorithm *chosen, const void *workspace, size_t bytes) {
  const void *const pointers[4] = {j->a, j->b, j->c, j->d};
  int code = check(&j->p);
  if (code)
    return code;
  if (!chosen || chosen->number >= MOCK_ALGORITHMS || chosen->problem != hash_of(&j->p))
    return fail(INVALID, "the algorithm is another problem's");
  for (int i = 0; i < 4; i++)
    if (!pointers[i] || (uintptr_t)pointers[i] % chosen->alignment)
      return fail(INVALID, "matrix %d is at %p", i, pointers[i]);
  if (bytes < algorithms[chosen->number].workspace || (bytes && (!workspace || (uintptr_t)workspace % ALIGNED)))
    return fail(INVALID, "the workspace has %zu bytes at %p", bytes, workspace);
  return OK;
}

int cublasLtMatmul(void *handle, void *op, const float *alpha, const void *a, void *la, const void *b, void *lb,
                   const float *beta, const void *c, void *lc, void *d, void *ld, const algorithm *chosen,
                   void *workspace, size_t bytes, void *stream) {
  job j = {problem_of(op, la, lb, lc, ld), *alpha, *beta, a, b, c, ((operation *)op)->bias, d, 0, NULL, 0};
  if (!handle)
    return fail(NOT_INITIALISED, "there is no handle");
  int code = check_call(&j, chosen, workspace, bytes);
  if (code)
    return code;
  if (mock.matmul_code)
    return fail(mock.matmul_code, "the test wants it");
  int number = (int)chosen->number, captured = mock_is_captured(stream);
  mock.ran[number]++;
  mock.with_epilogue[j.p.op.epilogue & 63]++;
  if (captured && mock.not_recorded == number + 1)
    return FAILED;
  *(captured ? &(double){0} : mock_clock()) += mock.host_us;
  j.wrong = number == mock.wrong;
  j.clock = mock_clock();
  j.us = mock.algorithm_us[number];
  return mock_give(stream, run_job, &j, sizeof j) ? FAILED : OK;
}
