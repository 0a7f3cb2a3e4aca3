/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cublaslt.c - NVIDIA's cuBLASLt: finding the library, and products as it wants them described.
 *
 * In:  a product with its epilogue (cuda_problem.h).
 * Out: descriptors, the algorithms that its heuristics propose within a bounded workspace, a call for one of them.
 *
 * It counts matrices by columns: its A is our second factor, its B our first, and what it writes are our rows. Partial sums
 * are added up in f32, in an order of their own, never by atomic operations. A library that is missing or does not fit is
 * no error, nor is a call that fails: our own kernel is there.
 */
#include "cublaslt_numbers.h"
#include "cyrt_choose.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKSPACE = 32 << 20, ALIGNMENT = 16 };

/* ---- the library ---- */

static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", NULL};
static const char *const packages[] = {"cu13", "cublas", NULL};
static const cuda_sought sought = {"CYTO_CUBLASLT", names, packages, "nvidia-cublas or nvidia-cublas-cu12",
                                   "--cublaslt"};
enum { NEWEST = 13, OLDEST = 11 };

static cyto_status resolve(cublaslt *lib, cyto_error *error) {
  char why[120];
  void *symbol;
#define X(name, member, result, params)                                                                                \
  symbol = dlsym(lib->library, #name);                                                                                 \
  if (!symbol) {                                                                                                       \
    snprintf(why, sizeof why, "it has no '%s'", #name);                                                                \
    return cyrt_sought_unusable(&sought, lib->path, why, error);                                                       \
  }                                                                                                                    \
  memcpy(&lib->member, &symbol, sizeof symbol);
  CUBLASLT_FUNCTIONS(X)
#undef X
  return CYTO_OK;
}

static cyto_status check_version(cublaslt *lib, int32_t driver, cyto_error *error) {
  char why[120];
  size_t cudart = lib->get_cudart();
  lib->version = lib->get_version();
  if (cudart / 1000 <= (size_t)driver / 1000)
    return CYTO_OK;
  snprintf(why, sizeof why, "it is built for CUDA %zu, but the driver supports CUDA %d.%d", cudart / 1000,
           driver / 1000, driver % 1000 / 10);
  return cyrt_sought_unusable(&sought, lib->path, why, error);
}

cublaslt *cyrt_cublaslt_find(int32_t driver, char why_not[400]) {
  cyto_error error = {0};
  cuda_found found;
  int major = driver / 1000, first = major >= NEWEST ? 0 : NEWEST - (major < OLDEST ? OLDEST : major);
  cyto_status status = cyrt_cuda_find(&sought, first, &found, why_not, &error);
  cublaslt *lib = !status && found.library ? calloc(1, sizeof *lib) : NULL;
  if (lib) {
    lib->library = found.library;
    memcpy(lib->path, found.path, sizeof lib->path);
    status = resolve(lib, &error);
  }
  if (lib && !status)
    status = check_version(lib, driver, &error);
  if (status) {
    snprintf(why_not, 400, "%.390s", error.message);
    cyrt_cublaslt_close(lib);
    lib = NULL;
  }
  cyrt_error_clear(&error);
  return lib;
}

void cyrt_cublaslt_close(cublaslt *lib) {
  if (lib)
    dlclose(lib->library);
  free(lib);
}

void *cyrt_cublaslt_open(const cublaslt *lib, char why_not[300]) {
  void *handle = NULL;
  cublaslt_code code = lib->create(&handle);
  if (!code)
    return handle;
  snprintf(why_not, 300, "cublasLtCreate: %s (%d)", lib->error_name(code), code);
  return NULL;
}

/* ---- problems as products ---- */

static const struct {
  int32_t dtype, cublaslt;
} types[] = {{CYTO_F32, LT_R_32F}, {CYTO_F16, LT_R_16F}, {CYTO_BF16, LT_R_16BF}};

static int32_t type_of(int64_t dtype) {
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (types[i].dtype == dtype)
      return types[i].cublaslt;
  return -1;
}

static const int32_t epilogues[CYRT_ACTIVATIONS] = {
#define ACTIVATION(name, mode, p, q, epilogue, ours) LT_EPILOGUE_##epilogue,
#include "activations.def"
#undef ACTIVATION
};

/* Rows and columns, one of which lies side by side, as a matrix by columns whose columns are our rows, or the other way
 * round; 0: neither does. */
static int lay(const cyrt_cuda_tensor *t, int64_t rows, int64_t columns, cublaslt_matrix *out) {
  int64_t down = t->stride[1], along = t->stride[2];
  *out = (cublaslt_matrix){columns, rows, down, t->stride[0], type_of(t->dtype), 0};
  if (along != 1 || (rows > 1 && down < columns)) {
    *out = (cublaslt_matrix){rows, columns, along, t->stride[0], type_of(t->dtype), 1};
    if (down != 1 || (columns > 1 && along < rows))
      return 0;
  }
  if (out->columns == 1)
    out->lead = out->lead < out->rows ? out->rows : out->lead;
  return out->type >= 0;
}

typedef struct view {
  cublaslt_matrix matrix[CUBLASLT_MATRICES];
  int64_t batch;
  int32_t epilogue, compute;
  float alpha, beta;
} view;

static int is_output(const cublaslt_matrix *m) { return !m->transposed && m->lead <= INT32_MAX; }

/* `strict`: constants are as they will be. */
static int see(const cyrt_cuda_problem *p, int strict, view *out) {
  const cyrt_cuda_matmul *s = &p->matmul;
  const cyrt_cuda_tensor *t = p->tensor, *bias = &t[CYRT_PROBLEM_BIAS], *residual = &t[CYRT_PROBLEM_RESIDUAL],
                         *d = &t[CYRT_PROBLEM_OUT];
  int32_t bits = (int32_t)p->epilogue.alpha;
  if (p->kind != CYRT_PROBLEM_MATMUL || s->batch < 1 || s->m < 1 || s->n < 1 || s->k < 1 || s->batch > INT32_MAX ||
      s->m > INT32_MAX || s->n > INT32_MAX || s->k > INT32_MAX || p->flags & CYRT_PROBLEM_AFTER ||
      !epilogues[p->epilogue.activation])
    return 0;
  if (!lay(&t[CYRT_MATMUL_B], s->k, s->n, &out->matrix[CUBLASLT_A]) ||
      !lay(&t[CYRT_MATMUL_A], s->m, s->k, &out->matrix[CUBLASLT_B]) ||
      !lay(residual->slot >= 0 ? residual : d, s->m, s->n, &out->matrix[CUBLASLT_C]) ||
      !lay(d, s->m, s->n, &out->matrix[CUBLASLT_D]) || !is_output(&out->matrix[CUBLASLT_C]) ||
      !is_output(&out->matrix[CUBLASLT_D]))
    return 0;
  out->batch = s->batch;
  out->beta = residual->slot >= 0;
  out->epilogue = epilogues[p->epilogue.activation] | (bias->slot >= 0 ? LT_EPILOGUE_BIAS : 0);
  if (out->epilogue == (LT_EPILOGUE_DEFAULT | LT_EPILOGUE_BIAS))
    out->epilogue = LT_EPILOGUE_BIAS;
  out->compute =
      t[CYRT_MATMUL_A].dtype == CYTO_F32 && !(p->flags & CYRT_PROBLEM_EXACT) ? LT_COMPUTE_TF32 : LT_COMPUTE_32F;
  memcpy(&out->alpha, &bits, sizeof bits);
  return (d->dtype == t[CYRT_MATMUL_A].dtype || d->dtype == CYTO_F32) &&
         (residual->slot < 0 || residual->dtype == d->dtype) &&
         (bias->slot < 0 || bias->dtype == d->dtype || (!strict && bias->dtype == CYTO_F32));
}

static int takes(const cyrt_cuda_problem *p) {
  view v;
  return see(p, 0, &v);
}

/* ---- descriptors ---- */

/* Calls of the library, until one fails. */
typedef struct asking {
  cuda_state *state;
  const cublaslt *lib;
  cublaslt_code code;
  const char *call;
} asking;

static int note(asking *a, cublaslt_code code, const char *call) {
  if (code && !a->code) {
    a->code = code;
    a->call = call;
  }
  return !a->code;
}

/* What a context's first failing call was, for people; that a product is not supported is an answer. */
static void remember(cuda_state *state, cublaslt_code code, const char *call) {
  char *text = state->plans->failed[CYRT_CUDA_CUBLASLT];
  if (code && code != LT_NOT_SUPPORTED && !*text)
    snprintf(text, sizeof state->plans->failed[0], "%s: %s (%d)", call, state->shared->cublaslt->error_name(code),
             code);
}

static void *make_layout(asking *a, const cublaslt_matrix *m, int64_t batches) {
  void *layout = NULL;
  int32_t count = (int32_t)batches;
  if (a->code || !note(a, a->lib->layout_make(&layout, m->type, (uint64_t)m->rows, (uint64_t)m->columns, m->lead),
                       "cublasLtMatrixLayoutCreate"))
    return NULL;
  if (batches > 1) {
    note(a, a->lib->layout_set(layout, LT_LAYOUT_BATCHES, &count, sizeof count), "cublasLtMatrixLayoutSetAttribute");
    note(a, a->lib->layout_set(layout, LT_LAYOUT_BATCH_STRIDE, &m->batch_stride, sizeof m->batch_stride),
         "cublasLtMatrixLayoutSetAttribute");
  }
  return layout;
}

static void set_op(asking *a, void *op, int32_t what, const void *from, size_t bytes) {
  if (!a->code)
    note(a, a->lib->op_set(op, what, from, bytes), "cublasLtMatmulDescSetAttribute");
}

static void make_op(asking *a, const view *v, void *bias, cublaslt_product *out) {
  int32_t transa = v->matrix[CUBLASLT_A].transposed ? LT_OP_T : LT_OP_N,
          transb = v->matrix[CUBLASLT_B].transposed ? LT_OP_T : LT_OP_N;
  note(a, a->lib->op_make(&out->op, v->compute, LT_R_32F), "cublasLtMatmulDescCreate");
  set_op(a, out->op, LT_DESC_TRANSA, &transa, sizeof transa);
  set_op(a, out->op, LT_DESC_TRANSB, &transb, sizeof transb);
  set_op(a, out->op, LT_DESC_EPILOGUE, &v->epilogue, sizeof v->epilogue);
  if (v->epilogue & LT_EPILOGUE_BIAS)
    set_op(a, out->op, LT_DESC_BIAS_POINTER, &bias, sizeof bias);
}

static void *make_preference(asking *a) {
  void *p = NULL;
  const uint64_t workspace = WORKSPACE;
  const uint32_t reductions = LT_REDUCTION_COMPUTE_TYPE, alignment = ALIGNMENT;
  if (a->code || !note(a, a->lib->preference_make(&p), "cublasLtMatmulPreferenceCreate"))
    return NULL;
  static const char call[] = "cublasLtMatmulPreferenceSetAttribute";
  note(a, a->lib->preference_set(p, LT_PREF_WORKSPACE, &workspace, sizeof workspace), call);
  note(a, a->lib->preference_set(p, LT_PREF_REDUCTIONS, &reductions, sizeof reductions), call);
  for (int32_t what = LT_PREF_ALIGN_A; what <= LT_PREF_ALIGN_D; what++)
    note(a, a->lib->preference_set(p, what, &alignment, sizeof alignment), call);
  return p;
}

static void find_algorithms(asking *a, cuda_offer *out) {
  cublaslt_product *p = &out->product;
  void *preference = make_preference(a);
  int32_t n = 0;
  if (!a->code)
    note(a,
         a->lib->heuristic(a->state->plans->cublaslt, p->op, p->layout[CUBLASLT_A], p->layout[CUBLASLT_B],
                           p->layout[CUBLASLT_C], p->layout[CUBLASLT_D], preference, CUBLASLT_CANDIDATES, p->found, &n),
         "cublasLtMatmulAlgoGetHeuristic");
  for (int32_t i = 0; i < n && !a->code; i++)
    if (!p->found[i].state && p->found[i].workspace <= WORKSPACE)
      p->found[out->n++] = p->found[i];
  if (preference)
    a->lib->preference_free(preference);
}

static int32_t ask(cuda_state *state, const cyrt_cuda_problem *p, void *const pointers[CYRT_PROBLEM_TENSORS],
                   cuda_offer *out, cyto_error *error) {
  view v;
  asking a = {.state = state, .lib = state->shared->cublaslt};
  (void)error;
  out->by = &cyrt_cublaslt_solver;
  out->n = 0;
  memset(&out->product, 0, sizeof out->product);
  if (!see(p, 1, &v))
    return CYTO_OK;
  make_op(&a, &v, pointers[CYRT_PROBLEM_BIAS], &out->product);
  for (int i = 0; i < CUBLASLT_MATRICES; i++)
    out->product.layout[i] = make_layout(&a, &v.matrix[i], v.batch);
  find_algorithms(&a, out);
  remember(state, a.code, a.call);
  return CYTO_OK;
}

static void forget(cuda_state *state, cuda_offer *offer) {
  const cublaslt *lib = state->shared->cublaslt;
  cublaslt_product *p = &offer->product;
  for (int i = 0; i < CUBLASLT_MATRICES; i++)
    if (p->layout[i])
      lib->layout_free(p->layout[i]);
  if (p->op)
    lib->op_free(p->op);
  memset(p, 0, sizeof *p);
}

/* ---- running ---- */

static int make(cuda_state *state, const cuda_offer *offer, int32_t candidate, cuda_plan *out) {
  (void)state;
  *out = (cuda_plan){.by = &cyrt_cublaslt_solver,
                     .workspace = (int64_t)offer->product.found[candidate].workspace,
                     .weight = 1,
                     .candidate = candidate};
  return 1;
}

static void unmake(cuda_state *state, cuda_plan *plan) {
  (void)state;
  (void)plan;
}

static int32_t run(cuda_state *state, const cuda_plan *plan, const cuda_offer *offer, const cyrt_cuda_problem *p,
                   void *const pointers[CYRT_PROBLEM_TENSORS], void *workspace, cyto_error *error) {
  const cublaslt_product *x = &offer->product;
  asking a = {.state = state, .lib = state->shared->cublaslt};
  view v;
  see(p, 1, &v);
  void *d = pointers[CYRT_PROBLEM_OUT], *bias = pointers[CYRT_PROBLEM_BIAS];
  if (v.epilogue & LT_EPILOGUE_BIAS)
    set_op(&a, x->op, LT_DESC_BIAS_POINTER, &bias, sizeof bias);
  if (!a.code)
    note(&a,
         a.lib->matmul(state->plans->cublaslt, x->op, &v.alpha, pointers[CYRT_MATMUL_B], x->layout[CUBLASLT_A],
                       pointers[CYRT_MATMUL_A], x->layout[CUBLASLT_B], &v.beta,
                       v.beta != 0 ? pointers[CYRT_PROBLEM_RESIDUAL] : d, x->layout[CUBLASLT_C], d,
                       x->layout[CUBLASLT_D], x->found[plan->candidate].algorithm, workspace, (size_t)plan->workspace,
                       state->stream),
         "cublasLtMatmul");
  if (!a.code)
    return CYTO_OK;
  remember(state, a.code, a.call);
  return cyrt_error_set(error, CYTO_RUNTIME_FAILURE, "cuBLASLt: %s: %s (%d)", a.call, a.lib->error_name(a.code),
                        a.code);
}

static int ready(const cuda_state *state) { return state->plans->cublaslt != NULL; }

const cuda_solver cyrt_cublaslt_solver = {"cuBLASLt", 0, ready, takes, ask, forget, make, unmake, run};
