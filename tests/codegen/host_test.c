/* SPDX-License-Identifier: Apache-2.0 */
/* host_test.c - programs made by hand, compiled to libraries, loaded and run.
 *
 * Kernels are built by the loop.h API, so that neither importer nor passes are needed. Results are compared with plain
 * C. A library is used the way an application does it: through <name>_run, which contains the runtime. Archives and
 * headers are tried by the C compiler of the machine ("cc", "c++"); without one those parts are skipped.
 */
#define _GNU_SOURCE
#include "codegen/codegen.h"
#include "passes/lower/memplan.h"
#include "tests/check.h"

#include <dlfcn.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

typedef int32_t run_fn(void **cache, const void *inputs, const void *sizes, const void *outputs, void *error);
typedef int32_t run_fixed_fn(void **cache, const void *inputs, const void *outputs, void *error);
typedef struct error_text {
  int32_t code;
  char message[1024];
} error_text;

static char dir[CHECK_PATH];
static cy_machine *machine;

/* ---- building ---- */

typedef struct model {
  cy_diag_sink *diag;
  cy_graph *g;
  cy_program *p;
  cy_step **tail;
} model;

static model model_create(const char *name) {
  model m = {.diag = cy_diag_create()};
  m.g = cy_graph_create(m.diag, "hand-made");
  cy_graph_set_name(m.g, name);
  m.p = cy_program_create(m.g);
  return m;
}

static void model_destroy(model *m) {
  cy_graph_destroy(m->g);
  cy_diag_destroy(m->diag);
}

static cy_dim num(model *m, int64_t v) { return cy_dim_const(m->g, v); }
static cy_dim sym(model *m, const char *name) { return cy_dim_sym(m->g, cy_sym_by_name(m->g, name)); }

static cy_val input(model *m, const char *name, cy_dtype t, cy_dim a, cy_dim b) {
  cy_dim d[2] = {a, b};
  cy_type type = cy_type_make(t, b ? 2 : 1, d);
  return cy_graph_add_input(m->g, name, &type);
}

/* An output's value only serves as its type. */
static void output(model *m, const char *name, cy_dtype t, cy_dim a, cy_dim b) {
  cy_dim d[2] = {a, b};
  cy_type type = cy_type_make(t, b ? 2 : 1, d);
  cy_val v = cy_block_add_param(m->g, cy_block_create(m->g, 1), &type, name);
  cy_graph_add_output(m->g, name, v);
}

static cy_step *step(model *m, cy_step_kind kind) {
  cy_step *s = CY_NEW(cy_graph_arena(m->g), cy_step);
  s->kind = kind;
  if (!m->tail)
    m->tail = &m->p->steps;
  *m->tail = s;
  m->tail = &s->next;
  return s;
}

static uint32_t buffer(model *m, cy_buffer_kind kind, uint32_t index, cy_dim elems, int elem_bytes) {
  return cy_program_add_buffer(m->p, kind, index, cy_dim_muli(m->g, elems, elem_bytes));
}

static void launch(model *m, cy_kernel *k, const uint32_t *buffers, uint32_t n) {
  cy_step *s = step(m, CY_STEP_LAUNCH);
  s->kernel = cy_program_intern_kernel(m->p, k);
  s->bind = CY_NEW_ARRAY(cy_graph_arena(m->g), cy_bind, n);
  s->nbind = n;
  for (uint32_t i = 0; i < n; i++)
    s->bind[i] = (cy_bind){buffers[i], num(m, 0)};
}

/* y[i] = x[i] * scale + shift over `elems` elements. */
static cy_kernel *affine_kernel(model *m, cy_dim elems, double scale, double shift) {
  cy_kernel *k = cy_kernel_create(m->g, "affine");
  cy_karg x = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0), y = cy_kernel_add_arg(k, CY_ARG_WRITE, CY_F32, 0);
  cy_var v = cy_kernel_add_var(k, elems);
  cy_kernel_add_grid(k, v);
  cy_kernel_set_grid_lanes(k, true);
  cy_expr i = cy_x_var(k, v), e = cy_x_load(k, x, i);
  e = cy_x_bin(k, CY_OP_mul, e, cy_x_const(k, CY_F32, scale));
  cy_kernel_store(k, y, i, cy_x_bin(k, CY_OP_add, e, cy_x_const(k, CY_F32, shift)));
  return k;
}

/* y[i] = y[i] + x[i] */
static cy_kernel *add_kernel(model *m, cy_dim elems) {
  cy_kernel *k = cy_kernel_create(m->g, "add");
  cy_karg x = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0), y = cy_kernel_add_arg(k, CY_ARG_WRITE, CY_F32, 0);
  cy_var v = cy_kernel_add_var(k, elems);
  cy_kernel_add_grid(k, v);
  cy_expr i = cy_x_var(k, v);
  cy_kernel_store(k, y, i, cy_x_bin(k, CY_OP_add, cy_x_load(k, y, i), cy_x_load(k, x, i)));
  return k;
}

/* relu(x[m][kk] * w[kk][n]) */
static cy_kernel *matmul_kernel(model *m, cy_dim rows, int64_t kk, int64_t n, cy_val w) {
  cy_kernel *k = cy_kernel_create(m->g, "matmul");
  cy_contraction *c = cy_kernel_contraction(k);
  c->kind = CY_CONTRACT_MATMUL;
  c->a = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0);
  c->b = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0);
  cy_karg y = cy_kernel_add_arg(k, CY_ARG_WRITE, CY_F32, 0);
  c->b_const = w;
  c->acc = cy_kernel_add_local(k, CY_F32);
  c->m = rows;
  c->n = c->b_k = num(m, n);
  c->k = c->a_m = num(m, kk);
  c->a_k = c->b_n = num(m, 1);
  c->nout_vars = 2;
  c->out_var[0] = cy_kernel_add_var(k, rows);
  c->out_var[1] = cy_kernel_add_var(k, c->n);
  cy_expr at = cy_x_bin(k, CY_OP_mul, cy_x_var(k, c->out_var[0]), cy_x_index(k, n));
  at = cy_x_bin(k, CY_OP_add, at, cy_x_var(k, c->out_var[1]));
  cy_kernel_store(k, y, at, cy_x_bin(k, CY_OP_max, cy_x_local(k, c->acc), cy_x_const(k, CY_F32, 0)));
  return k;
}

/* ---- compiling and loading ---- */

static const char *path_of(const char *file) {
  static char paths[8][512];
  static int next;
  char *p = paths[next++ % 8];
  snprintf(p, sizeof paths[0], "%s/%s", dir, file);
  return p;
}

static int compile(model *m, const char *file, int jobs) {
  cy_codegen_options o = {.machine = machine, .emit = cy_emit_kind_of(file), .output = path_of(file), .jobs = jobs,
                          .plan_memory = cy_plan_memory, .diag = m->diag};
  int rc = cy_codegen(m->p, &o);
  if (rc)
    cy_diag_print(m->diag, stderr);
  return rc;
}

/* Compiles to a library and returns its <name>_run. */
static void *build(model *m, const char *name) {
  char text[128];
  snprintf(text, sizeof text, "%s.so", name);
  if (compile(m, text, 2))
    return NULL;
  void *library = dlopen(path_of(text), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    fprintf(stderr, "%s\n", dlerror());
  snprintf(text, sizeof text, "%s_run", name);
  return library ? dlsym(library, text) : NULL;
}

static bool near(const float *a, const float *b, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (!(fabsf(a[i] - b[i]) <= 1e-4f * (1 + fabsf(b[i]))))
      return fprintf(stderr, "element %lld is %g, not %g\n", (long long)i, (double)a[i], (double)b[i]), false;
  return true;
}

static float *numbers(int64_t n) {
  float *v = malloc((size_t)n * sizeof *v);
  for (int64_t i = 0; i < n; i++)
    v[i] = (float)((i * 37 + 11) % 101) / 50.f - 1.f;
  return v;
}

/* ---- tests ---- */

/* Two kernels in a row over [batch, 3]; the value between them lies in the arena. */
static model chain_model(const char *name) {
  model m = model_create(name);
  cy_dim batch = sym(&m, "batch"), elems = cy_dim_muli(m.g, batch, 3);
  input(&m, "x:0", CY_F32, batch, num(&m, 3));
  output(&m, "y", CY_F32, batch, num(&m, 3));
  uint32_t x = buffer(&m, CY_BUF_INPUT, 0, elems, 4), t = buffer(&m, CY_BUF_ARENA, 0, elems, 4),
           y = buffer(&m, CY_BUF_OUTPUT, 0, elems, 4);
  launch(&m, affine_kernel(&m, elems, 2, 1), (uint32_t[]){x, t}, 2);
  launch(&m, affine_kernel(&m, elems, -1, 0.5), (uint32_t[]){t, y}, 2);
  return m;
}

static void test_chain(void) {
  model m = chain_model("chain");
  run_fn *run = build(&m, "chain");
  CHECK(run != NULL);
  static void *cache; /* kept for good: destroying it is not among a library's functions */
  const int64_t sizes[] = {1, 7, 0, 300000, 2};
  for (int s = 0; s < 5 && run; s++) {
    int64_t n = sizes[s] * 3;
    float *x = numbers(n + 1), *y = calloc((size_t)n + 1, 4), *want = calloc((size_t)n + 1, 4);
    for (int64_t i = 0; i < n; i++)
      want[i] = -(x[i] * 2 + 1) + 0.5f;
    y[n] = 42;
    error_text error = {0};
    CHECK_INT_EQ(run(&cache, &x, &sizes[s], &y, &error), 0);
    CHECK(near(y, want, n) && y[n] == 42);
    free(x), free(y), free(want);
  }
  model_destroy(&m);
}

static model matmul_model(const char *name, cy_dim (*rows_of)(model *m), const float *w, int64_t kk, int64_t n) {
  model m = model_create(name);
  cy_dim rows = rows_of(&m), d[2] = {num(&m, kk), num(&m, n)};
  cy_type type = cy_type_make(CY_F32, 2, d);
  cy_val wv = cy_build_const(m.g, &type, w, (uint64_t)(kk * n) * 4);
  input(&m, "x", CY_F32, rows, num(&m, kk));
  output(&m, "y", CY_F32, rows, num(&m, n));
  uint32_t x = buffer(&m, CY_BUF_INPUT, 0, cy_dim_muli(m.g, rows, kk), 4);
  uint32_t wc = cy_program_add_constant(m.p, wv, (uint64_t)(kk * n) * 4, "", NULL, NULL, 1);
  uint32_t wb = buffer(&m, CY_BUF_CONST, wc, num(&m, kk * n), 4);
  uint32_t y = buffer(&m, CY_BUF_OUTPUT, 0, cy_dim_muli(m.g, rows, n), 4);
  launch(&m, matmul_kernel(&m, rows, kk, n, wv), (uint32_t[]){x, wb, y}, 3);
  return m;
}

static cy_dim rows_symbolic(model *m) { return sym(m, "rows"); }
static cy_dim rows_fixed(model *m) { return num(m, 5); }

static void check_matmul(run_fn *run, run_fixed_fn *fixed, int64_t rows, int64_t kk, int64_t n, const float *w) {
  float *x = numbers(rows * kk), *y = calloc((size_t)(rows * n), 4), *want = calloc((size_t)(rows * n), 4);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < n; j++) {
      double sum = 0;
      for (int64_t l = 0; l < kk; l++)
        sum += (double)x[i * kk + l] * (double)w[l * n + j];
      want[i * n + j] = sum > 0 ? (float)sum : 0;
    }
  CHECK_INT_EQ(run ? run(NULL, &x, &rows, &y, NULL) : fixed(NULL, &x, &y, NULL), 0);
  CHECK(near(y, want, rows * n));
  free(x), free(y), free(want);
}

static void test_matmul(void) {
  float *w = numbers(96 * 50);
  model m = matmul_model("mm", rows_symbolic, w, 96, 50);
  run_fn *run = build(&m, "mm");
  CHECK(run != NULL);
  const int64_t rows[] = {1, 6, 33, 400};
  for (int i = 0; i < 4 && run; i++)
    check_matmul(run, NULL, rows[i], 96, 50, w);
  model_destroy(&m);
  m = matmul_model("mmf", rows_fixed, w, 96, 50);
  run_fixed_fn *fixed = build(&m, "mmf");
  CHECK(fixed != NULL);
  if (fixed)
    check_matmul(NULL, fixed, 5, 96, 50, w);
  model_destroy(&m);
  free(w);
}

/* Both factors come in at run time, every size is a symbol: scratch is sized while running. */
static void test_product(void) {
  model m = model_create("product");
  cy_dim d[3] = {sym(&m, "m"), sym(&m, "k"), sym(&m, "n")};
  input(&m, "a", CY_F32, d[0], d[1]);
  input(&m, "b", CY_F32, d[1], d[2]);
  output(&m, "y", CY_F32, d[0], d[2]);
  cy_kernel *k = matmul_kernel(&m, d[0], 1, 1, 0);
  cy_contraction *c = cy_kernel_contraction(k);
  c->n = c->b_k = d[2];
  c->k = c->a_m = d[1];
  cy_kernel_var(k, c->out_var[1])->extent = d[2];
  cy_kernel_body(k)->offset = cy_x_bin(k, CY_OP_add, cy_x_bin(k, CY_OP_mul, cy_x_var(k, c->out_var[0]), cy_x_dim(k, d[2])),
                                       cy_x_var(k, c->out_var[1]));
  uint32_t buffers[3] = {buffer(&m, CY_BUF_INPUT, 0, cy_dim_mul(m.g, d[0], d[1]), 4),
                         buffer(&m, CY_BUF_INPUT, 1, cy_dim_mul(m.g, d[1], d[2]), 4),
                         buffer(&m, CY_BUF_OUTPUT, 0, cy_dim_mul(m.g, d[0], d[2]), 4)};
  launch(&m, k, buffers, 3);
  run_fn *run = build(&m, "product");
  CHECK_REQUIRE(run != NULL);
  const int64_t sizes[][3] = {{1, 1, 1}, {3, 40, 17}, {64, 130, 70}, {200, 64, 9}};
  for (int s = 0; s < 4; s++) {
    int64_t mm = sizes[s][0], kk = sizes[s][1], n = sizes[s][2];
    float *a = numbers(mm * kk), *b = numbers(kk * n), *y = calloc((size_t)(mm * n), 4),
          *want = calloc((size_t)(mm * n), 4);
    for (int64_t i = 0; i < mm * n; i++) {
      double sum = 0;
      for (int64_t l = 0; l < kk; l++)
        sum += (double)a[i / n * kk + l] * (double)b[l * n + i % n];
      want[i] = sum > 0 ? (float)sum : 0;
    }
    const void *in[2] = {a, b};
    CHECK_INT_EQ(run(NULL, in, sizes[s], &y, NULL), 0);
    CHECK(near(y, want, mm * n));
    free(a), free(b), free(y), free(want);
  }
  model_destroy(&m);
}

/* 3x3, padded, channels innermost, relu: weights are packed (and transformed) while compiling. */
static void test_conv(void) {
  enum { SIZE = 12, CIN = 16, COUT = 24 };
  float *w = numbers(COUT * CIN * 9), *x = numbers(SIZE * SIZE * CIN), *want = calloc(SIZE * SIZE * COUT, 4),
        *y = calloc(SIZE * SIZE * COUT, 4);
  model m = model_create("conv");
  cy_dim wd[4] = {num(&m, COUT), num(&m, CIN), num(&m, 3), num(&m, 3)};
  cy_type type = cy_type_make(CY_F32, 4, wd);
  cy_val wv = cy_build_const(m.g, &type, w, COUT * CIN * 9 * 4);
  input(&m, "x", CY_F32, num(&m, SIZE * SIZE), num(&m, CIN));
  output(&m, "y", CY_F32, num(&m, SIZE * SIZE), num(&m, COUT));
  cy_kernel *k = cy_kernel_create(m.g, "conv");
  cy_contraction *c = cy_kernel_contraction(k);
  *c = (cy_contraction){.kind = CY_CONTRACT_CONV, .b_const = wv, .nspatial = 2,
                        .group = 1, .images = num(&m, 1), .channels_in = num(&m, CIN), .channels_out = num(&m, COUT),
                        .x_image = num(&m, SIZE * SIZE * CIN), .x_channel = num(&m, 1)};
  c->a = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0);
  c->b = cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0);
  cy_karg out = cy_kernel_add_arg(k, CY_ARG_WRITE, CY_F32, 0);
  c->acc = cy_kernel_add_local(k, CY_F32);
  for (int i = 0; i < 2; i++) {
    c->in[i] = c->out[i] = num(&m, SIZE);
    c->pad[i] = num(&m, 1);
    c->kernel[i] = 3;
    c->stride[i] = c->dilation[i] = 1;
    c->x_spatial[i] = num(&m, i ? CIN : SIZE * CIN);
  }
  const int64_t extents[4] = {1, SIZE, SIZE, COUT}, strides[4] = {0, SIZE * COUT, COUT, 1};
  cy_expr at = cy_x_index(k, 0);
  for (int i = 0; i < 4; i++) {
    c->out_var[c->nout_vars++] = cy_kernel_add_var(k, num(&m, extents[i]));
    at = cy_x_bin(k, CY_OP_add, at, cy_x_bin(k, CY_OP_mul, cy_x_var(k, c->out_var[i]), cy_x_index(k, strides[i])));
  }
  cy_kernel_store(k, out, at, cy_x_bin(k, CY_OP_max, cy_x_local(k, c->acc), cy_x_const(k, CY_F32, 0)));
  CHECK(cy_caps_supports(cy_machine_caps(machine), k));
  uint32_t wc = cy_program_add_constant(m.p, wv, COUT * CIN * 9 * 4, "", NULL, NULL, 1);
  uint32_t buffers[3] = {buffer(&m, CY_BUF_INPUT, 0, num(&m, SIZE * SIZE * CIN), 4),
                         buffer(&m, CY_BUF_CONST, wc, num(&m, COUT * CIN * 9), 4),
                         buffer(&m, CY_BUF_OUTPUT, 0, num(&m, SIZE * SIZE * COUT), 4)};
  launch(&m, k, buffers, 3);
  run_fixed_fn *run = build(&m, "conv");
  CHECK_REQUIRE(run != NULL);
  for (int i = 0; i < SIZE * SIZE * COUT; i++) {
    double sum = 0;
    for (int t = 0; t < 9 * CIN; t++) {
      int yy = i / COUT / SIZE + t / 3 % 3 - 1, xx = i / COUT % SIZE + t % 3 - 1;
      if (yy >= 0 && yy < SIZE && xx >= 0 && xx < SIZE)
        sum += (double)x[(yy * SIZE + xx) * CIN + t / 9] * (double)w[(i % COUT * CIN + t / 9) * 9 + t % 9];
    }
    want[i] = sum > 0 ? (float)sum : 0;
  }
  CHECK_INT_EQ(run(NULL, &x, &y, NULL), 0);
  CHECK(near(y, want, SIZE * SIZE * COUT));
  model_destroy(&m);
  free(w), free(x), free(y), free(want);
}

/* y = 2x + 1, then y += x as often as `count` says, but not at all where it is 7. */
static void test_control(void) {
  model m = model_create("control");
  cy_dim four = num(&m, 4);
  input(&m, "count", CY_I64, num(&m, 1), 0);
  input(&m, "x", CY_F32, four, 0);
  output(&m, "y", CY_F32, four, 0);
  uint32_t count = buffer(&m, CY_BUF_INPUT, 0, num(&m, 1), 8), x = buffer(&m, CY_BUF_INPUT, 1, four, 4),
           y = buffer(&m, CY_BUF_OUTPUT, 0, four, 4);
  cy_sym n = cy_sym_new(m.g, "n", CY_SYM_FREE), i = cy_sym_new(m.g, "i", CY_SYM_FREE),
         go = cy_sym_new(m.g, "go", CY_SYM_FREE);
  launch(&m, affine_kernel(&m, four, 2, 1), (uint32_t[]){x, y}, 2);
  cy_step *s = step(&m, CY_STEP_READ);
  s->sym = n;
  s->dtype = CY_I64;
  s->nbind = 1;
  s->bind = CY_NEW(cy_graph_arena(m.g), cy_bind);
  s->bind[0] = (cy_bind){count, num(&m, 0)};
  s = step(&m, CY_STEP_SET);
  s->sym = go;
  s->limit = cy_dim_addi(m.g, cy_dim_sym(m.g, n), -7);
  s = step(&m, CY_STEP_SET);
  s->sym = i;
  s->limit = num(&m, 0);
  cy_step *branch = step(&m, CY_STEP_IF);
  branch->sym = go;
  cy_step **after = m.tail;
  m.tail = &branch->then_steps;
  s = step(&m, CY_STEP_LOOP);
  s->sym = i;
  s->limit = cy_dim_sym(m.g, n);
  s->cond = go;
  m.tail = &s->then_steps;
  launch(&m, add_kernel(&m, four), (uint32_t[]){x, y}, 2);
  m.tail = after;
  run_fixed_fn *run = build(&m, "control");
  CHECK(run != NULL);
  for (int64_t iterations = -1; iterations < 9 && run; iterations++) {
    float x4[4] = {1, -2, 3, 0.5f}, y4[4], want[4];
    for (int e = 0; e < 4; e++)
      want[e] = x4[e] * 2 + 1 + x4[e] * (float)(iterations == 7 || iterations < 0 ? 0 : iterations);
    const void *in[2] = {&iterations, x4}, *out[1] = {y4};
    CHECK_INT_EQ(run(NULL, in, out, NULL), 0);
    CHECK(near(y4, want, 4));
  }
  model_destroy(&m);
}

/* More steps than one function holds. */
static void test_many_steps(void) {
  model m = model_create("many");
  cy_dim n = sym(&m, "n");
  input(&m, "x", CY_F32, n, 0);
  output(&m, "y", CY_F32, n, 0);
  uint32_t last = buffer(&m, CY_BUF_INPUT, 0, n, 4), y = buffer(&m, CY_BUF_OUTPUT, 0, n, 4);
  for (int i = 0; i < 650; i++) {
    uint32_t to = i == 649 ? y : buffer(&m, CY_BUF_ARENA, 0, n, 4);
    launch(&m, affine_kernel(&m, n, i % 2 ? 1 : 0.5, 1), (uint32_t[]){last, to}, 2);
    last = to;
  }
  run_fn *run = build(&m, "many");
  CHECK(run != NULL);
  int64_t size = 20;
  float *x = numbers(size), want[20], out[20], *outputs[1] = {out};
  for (int e = 0; e < 20; e++) {
    want[e] = x[e];
    for (int i = 0; i < 650; i++)
      want[e] = want[e] * (i % 2 ? 1.f : 0.5f) + 1;
  }
  CHECK_INT_EQ(run ? run(NULL, &x, &size, outputs, NULL) : -1, 0);
  CHECK(near(out, want, 20));
  free(x);
  model_destroy(&m);
}

/* nonzero: a size found while running, and a kernel over it. */
static void test_call(void) {
  model m = model_create("call");
  cy_dim six = num(&m, 6);
  input(&m, "x", CY_F32, six, 0);
  cy_sym count = cy_sym_new(m.g, "found", CY_SYM_COUNT);
  cy_sym_of(m.g, count)->min = 0;
  cy_dim found[2] = {num(&m, 1), cy_dim_sym(m.g, count)};
  cy_type type = cy_type_make(CY_I64, 2, found);
  const cy_port_info *ports;
  cy_graph_inputs(m.g, &ports);
  cy_val v = cy_build(m.g, CY_OP_nonzero, &ports[0].value, 1, NULL, 0, &type, 1);
  cy_sym_of(m.g, count)->value = v;
  cy_sym_of(m.g, count)->index = 1;
  cy_graph_add_output(m.g, "where", v);
  uint32_t x = buffer(&m, CY_BUF_INPUT, 0, six, 4), y = buffer(&m, CY_BUF_OUTPUT, 0, found[1], 8);
  cy_step *s = step(&m, CY_STEP_CALL);
  s->call = "nonzero";
  s->node = cy_value_of(m.g, v)->node;
  s->in = CY_NEW(cy_graph_arena(m.g), cy_call_tensor);
  s->out = CY_NEW(cy_graph_arena(m.g), cy_call_tensor);
  s->nin = s->nout = 1;
  cy_dim d[1] = {six};
  s->in[0] = (cy_call_tensor){{x, num(&m, 0)}, cy_type_make(CY_F32, 1, d)};
  s->out[0] = (cy_call_tensor){{y, num(&m, 0)}, type};
  run_fixed_fn *run = build(&m, "call");
  CHECK(run != NULL);
  float x6[6] = {0, 1, 0, -1, 2, 0};
  int64_t where[6] = {-1, -1, -1, -1, -1, -1};
  const void *in[1] = {x6}, *out[1] = {where};
  CHECK_INT_EQ(run ? run(NULL, in, out, NULL) : -1, 0);
  CHECK(where[0] == 1 && where[1] == 3 && where[2] == 4 && where[3] == -1);
  model_destroy(&m);
}

static bool same_files(const char *a, const char *b) {
  char command[1100];
  snprintf(command, sizeof command, "cmp -s '%s' '%s'", a, b);
  return system(command) == 0;
}

/* Equal programs give equal bytes, whatever the number of jobs. */
static void test_determinism(void) {
  const char *const files[] = {"same.so", "same.a", "same.o", "same.ll", "same.h"};
  for (int i = 0; i < 5; i++) {
    char kept[64];
    for (int round = 0; round < 2; round++) {
      model m = chain_model("same");
      CHECK_INT_EQ(compile(&m, files[i], round + 1), 0);
      model_destroy(&m);
      snprintf(kept, sizeof kept, "first_%s", files[i]);
      if (round == 0)
        CHECK_INT_EQ(rename(path_of(files[i]), path_of(kept)), 0);
    }
    CHECK(same_files(path_of(kept), path_of(files[i])));
  }
}

/* The archive holds the runtime of this build, sanitizers included. */
#if defined(__SANITIZE_ADDRESS__)
#define LINK_FLAGS "-fsanitize=address,undefined"
#elif defined(__SANITIZE_THREAD__)
#define LINK_FLAGS "-fsanitize=thread"
#else
#define LINK_FLAGS ""
#endif

static int shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int shell(const char *format, ...) {
  char command[2000];
  va_list args;
  va_start(args, format);
  vsnprintf(command, sizeof command, format, args);
  va_end(args);
  return system(command);
}

static void write_text(const char *file, const char *text) {
  FILE *f = fopen(path_of(file), "w");
  fputs(text, f);
  fclose(f);
}

/* Two archives in one application, used through their headers. */
static void test_archives(void) {
  if (system("cc --version >/dev/null 2>&1"))
    CHECK_SKIP("no C compiler for archives and headers");
  model m = chain_model("one");
  CHECK_INT_EQ(compile(&m, "one.a", 1), 0);
  model_destroy(&m);
  m = chain_model("two");
  CHECK_INT_EQ(compile(&m, "two.a", 1), 0);
  model_destroy(&m);
  write_text("app.c", "#include \"one.h\"\n#include \"two.h\"\n#include <stdio.h>\n"
                      "int main(void) {\n"
                      "  float x[6] = {1, 2, 3, 4, 5, 6}, y[6], z[6];\n"
                      "  one_inputs in = {x}; one_outputs out = {y}; one_sizes sizes = {2};\n"
                      "  two_inputs in2 = {y}; two_outputs out2 = {z}; two_sizes sizes2 = {.batch = 2};\n"
                      "  if (one_run(0, &in, &sizes, &out, 0) || two_run(0, &in2, &sizes2, &out2, 0)) return 2;\n"
                      "  for (int i = 0; i < 6; i++) if (z[i] != -(2 * (-(2 * x[i] + 1) + 0.5f) + 1) + 0.5f) return 3;\n"
                      "  return 0;\n}\n");
  CHECK_INT_EQ(
      shell("cd '%s' && cc -Wall -Wextra -Werror " LINK_FLAGS " app.c one.a two.a -lm -lpthread -o app && ./app", dir),
      0);
  write_text("use.cpp", "#include \"one.h\"\n#include \"two.h\"\nint main() { return one_model() == two_model(); }\n");
  if (system("c++ --version >/dev/null 2>&1"))
    CHECK_SKIP("no C++ compiler for headers");
  CHECK_INT_EQ(shell("cd '%s' && c++ -Wall -Wextra -Werror -c use.cpp", dir), 0);
}

static bool said(model *m, const char *text) {
  char *got = NULL;
  size_t n;
  FILE *f = open_memstream(&got, &n);
  cy_diag_print(m->diag, f);
  fclose(f);
  bool found = strstr(got, text) != NULL;
  if (!found)
    fprintf(stderr, "'%s' is not in: %s\n", text, got);
  free(got);
  return found;
}

static int compile_quietly(model *m, const char *path) {
  cy_codegen_options o = {
      .machine = machine, .emit = CY_EMIT_SO, .output = path, .plan_memory = cy_plan_memory, .diag = m->diag};
  return cy_codegen(m->p, &o);
}

static void test_errors(void) {
  model m = chain_model("bad");
  CHECK_INT_EQ(compile_quietly(&m, path_of("missing/bad.so")), -1);
  CHECK(said(&m, "missing/bad.so") && cy_diag_errors(m.diag) == 1);
  model_destroy(&m);

  char *before = strdup(getenv("PATH"));
  setenv("PATH", "/nonexistent", 1);
  m = chain_model("bad");
  CHECK_INT_EQ(compile_quietly(&m, path_of("bad.so")), -1);
  CHECK(said(&m, "binutils") && access(path_of("bad.so"), F_OK) != 0);
  setenv("PATH", before, 1);
  free(before);
  model_destroy(&m);

  cy_diag_sink *diag = cy_diag_create();
  CHECK(cy_machine_open("pentium-mmx", diag) == NULL && cy_diag_errors(diag) == 1);
  cy_diag_destroy(diag);
}

/* Nothing of ours stays in TMPDIR. */
static void test_leftovers(void) {
  CHECK(shell("test -z \"$(ls -d '%s'/cytoc-* '%s'/.*.tmp 2>/dev/null)\"", dir, dir) == 0);
}

static const check_test tests[] = {
    {"chain", test_chain},       {"matmul", test_matmul},           {"product", test_product}, {"conv", test_conv},
    {"control", test_control},   {"many steps", test_many_steps},
    {"call", test_call},         {"determinism", test_determinism}, {"archives", test_archives}, {"errors", test_errors},
    {"leftovers", test_leftovers},
};

int main(int argc, char **argv) {
  if (!check_folder("host_test", dir))
    return 1;
  setenv("TMPDIR", dir, 1);
  cy_diag_sink *diag = cy_diag_create();
  machine = cy_machine_open("native", diag);
  if (!machine)
    return 1;
  int rc = check_main(argc, argv, tests, CHECK_COUNT(tests));
  cy_machine_close(machine);
  cy_diag_destroy(diag);
  shell("rm -rf '%s'", dir);
  return rc;
}
