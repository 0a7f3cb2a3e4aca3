/* SPDX-License-Identifier: Apache-2.0 */
/* search_test.c - top-k, NonZero, Unique and non-maximum suppression as kernels, elements scattered by many blocks, running
 * sums by parts, and sizes that only the run tells, of rows, of attention and of products with weights in integers: CUDA
 * models on the mock driver.
 *
 * The reference is the same model for a CPU, where functions of the runtime search: results must be equal byte for
 * byte, under each schedule of threads. Inputs have many equal elements, zeros of both signs and NaN; sizes are such
 * that rows are one part, several parts, and parts that are merged twice. What does not depend on data is recorded.
 */
#include "tests/cuda/models.h"

#include <math.h>
#include <stdbool.h>

enum { RUNS = 3, MAX_INPUTS = 2, MAX_SIZES = 4 };

static unsigned seed = 1;

static unsigned next_random(void) {
  seed = seed * 1664525u + 1013904223u;
  return seed >> 8;
}

typedef struct search {
  const char *what;
  int64_t sizes[MAX_SIZES]; /* of dims that are not known; 0: no more */
  const char *graph;
} search;

typedef struct expected {
  bool recorded;
  float tolerance;                  /* 0: all bytes are compared; else f32 without NaN */
  const int (*launches)[MAX_SIZES]; /* of each row and size; NULL: any number */
  const char *options;              /* of the device's library; NULL: none */
} expected;

static void fill(float *x, int64_t n, bool numbers) {
  for (int64_t i = 0; i < n; i++) {
    unsigned r = next_random() % 400;
    x[i] = r < 8 && !numbers ? NAN : r < 40 ? 0.f : r < 60 ? -0.f : (float)(int)(next_random() % 64) / 8.f - 3.f;
  }
}

/* Binds the inputs, dims that are not known having `size` elements, and runs. */
static cyto_status run(cyto_context *context, const cyto_model *model, int64_t size, float *const *data,
                       cyto_error *error) {
  cyto_status status = CYTO_OK;
  for (int32_t i = 0; i < cyto_model_input_count(model) && !status; i++) {
    cyto_port port;
    int64_t dims[CYTO_MAX_RANK];
    cyto_model_input(model, i, &port);
    for (int k = 0; k < port.rank; k++)
      dims[k] = port.dims[k] < 0 ? size : port.dims[k];
    status = cyto_bind_input(context, i, CYTO_F32, port.rank, dims, data[i], error);
  }
  return status ? status : cyto_run(context, error);
}

static int64_t elements(const cyto_model *model, int32_t input, int64_t size) {
  cyto_port port;
  int64_t n = 1;
  cyto_model_input(model, input, &port);
  for (int k = 0; k < port.rank; k++)
    n *= port.dims[k] < 0 ? size : port.dims[k];
  return n;
}

static bool equal(const cyto_tensor *a, const cyto_tensor *b, float tolerance) {
  if (a->bytes != b->bytes || !tolerance)
    return a->bytes == b->bytes && !memcmp(a->data, b->data, a->bytes);
  const float *x = a->data, *y = b->data;
  for (uint64_t i = 0; i < a->bytes / 4; i++)
    if (!(fabsf(x[i] - y[i]) <= tolerance * (1 + fabsf(y[i]))))
      return false;
  return true;
}

static void compare_outputs(cyto_context *const *context, const cyto_model *model, const search *s, float tolerance,
                            int64_t size) {
  for (int32_t i = 0; i < cyto_model_output_count(model); i++) {
    cyto_tensor a, b;
    cyto_error error;
    CHECK_REQUIRE(!cyto_output(context[0], i, &a, &error) && !cyto_output(context[1], i, &b, &error));
    if (!equal(&a, &b, tolerance))
      CHECK_FAIL("%s, size %d: output %d differs (%d bytes, expected %d)", s->what, (int)size, (int)i, (int)a.bytes,
                 (int)b.bytes);
  }
}

static void compare_at(cyto_context *const *context, cyto_model *const *model, const search *s, int64_t size,
                       const expected *e, int wanted_launches) {
  float *data[MAX_INPUTS];
  int recordings = mock->recordings, replays = mock->replays, launches = mock->launches;
  cyto_error error;
  for (int32_t i = 0; i < cyto_model_input_count(model[0]); i++)
    data[i] = malloc((size_t)elements(model[0], i, size) * sizeof(float) + 1);
  for (int n = 0; n < RUNS; n++) {
    for (int32_t i = 0; i < cyto_model_input_count(model[0]); i++)
      fill(data[i], elements(model[0], i, size), e->tolerance > 0);
    mock->schedule = n;
    for (int side = 0; side < 2; side++)
      if (run(context[side], model[side], size, data, &error))
        CHECK_FAIL("%s, size %d: %s", s->what, (int)size, error.message);
    compare_outputs(context, model[0], s, e->tolerance, size);
    if (n == 0 && wanted_launches)
      CHECK_INT_EQ(mock->launches - launches, wanted_launches);
  }
  mock->schedule = 0;
  CHECK_INT_EQ(mock->recordings - recordings, e->recorded);
  CHECK_INT_EQ(mock->replays - replays, e->recorded * (RUNS - 1));
  for (int32_t i = 0; i < cyto_model_input_count(model[0]); i++)
    free(data[i]);
}

static bool open_both(const char *graph, const char *more, cyto_model **model, cyto_context **context) {
  static const char *const options[] = {"--target=sm_89", "--target=native -O0"}, *const names[] = {"p.so", "q.so"};
  char command[200];
  cyto_error error;
  write_file("graph.txt", graph, strlen(graph));
  for (int i = 0; i < 2; i++) {
    snprintf(command, sizeof command, "%%s/cytoc %%s -o %%s %s %s", options[i], i || !more ? "" : more);
    if (run_command(command, build, path_of("graph.txt"), path_of(names[i])))
      return false;
    model[i] = load(names[i]);
    if (!model[i] || cyto_context_create(model[i], NULL, &context[i], &error))
      return false;
  }
  return true;
}

static void close_both(cyto_model *const *model, cyto_context *const *context) {
  for (int i = 0; i < 2; i++) {
    cyto_context_destroy(context[i]);
    cyto_model_unload(model[i]);
  }
}

static void compare_all(const search *rows, int n, const expected *e) {
  for (int i = 0; i < n; i++) {
    cyto_model *model[2] = {NULL, NULL};
    cyto_context *context[2] = {NULL, NULL};
    if (!open_both(rows[i].graph, e->options, model, context))
      CHECK_FAIL("%s: not compiled or not loaded", rows[i].what);
    for (int k = 0; k < MAX_SIZES && rows[i].sizes[k] && context[1]; k++)
      compare_at(context, model, &rows[i], rows[i].sizes[k], e, e->launches ? e->launches[i][k] : 0);
    close_both(model, context);
  }
}

static void test_topk(void) {
  static const search rows[] = {
      {"rows of one part",
       {1},
       "graph @g(%x: f32[3,40]) {\n  %v, %i = topk %x {axis=1, largest=1, sorted=1} : "
       "f32[3,7], i64[3,7]\n  return %v, %i\n}\n"},
      {"many of several parts",
       {1},
       "graph @g(%x: f32[2,1400]) {\n  %v, %i = topk %x {axis=1, largest=0, sorted=1} : "
       "f32[2,1390], i64[2,1390]\n  return %v, %i\n}\n"},
      {"halves, another axis",
       {1},
       "graph @g(%x: f32[700,3]) {\n  %h = cast %x : f16[700,3]\n"
       "  %v, %i = topk %h {axis=0, largest=1, sorted=1} : f16[5,3], i64[5,3]\n"
       "  return %v, %i\n}\n"},
      {"u64",
       {1},
       "graph @g(%x: f32[600]) {\n  @many = const f32[] {1e15}\n  %m = mul %x, @many\n"
       "  %l = cast %m : i64[600]\n  %u = bitcast %l : u64[600]\n"
       "  %v, %i = topk %u {axis=0, largest=1, sorted=1} : u64[600], i64[600]\n  return %v, %i\n}\n"},
      {"merged twice",
       {1},
       "graph @g(%x: f32[33000]) {\n  %d = cast %x : f64[33000]\n"
       "  %v, %i = topk %d {axis=0, largest=1, sorted=1} : f64[600], i64[600]\n"
       "  return %v, %i\n}\n"},
      {"rows of any length",
       {40, 600, 33000},
       "graph @g(%x: f32[2,n]) {\n  %v, %i = topk %x {axis=1, largest=1, "
       "sorted=1} : f32[2,9], i64[2,9]\n  return %v, %i\n}\n"},
      {"all of rows of any length",
       {9, 1300},
       "graph @g(%x: f32[2,n]) {\n  %v, %i = topk %x {axis=1, largest=0, "
       "sorted=1} : f32[2,n], i64[2,n]\n  return %i\n}\n"},
  };
  compare_all(rows, CHECK_COUNT(rows), &(expected){true, 0, NULL, NULL});
}

static void test_nonzero(void) {
  static const search rows[] = {
      {"a few", {1}, "sym s = count(%y, 1)\ngraph @g(%x: f32[3,40]) {\n  %y = nonzero %x : i64[2,s]\n  return %y\n}\n"},
      {"any number, transposed",
       {1, 30, 20000},
       "sym s = count(%y, 1)\ngraph @g(%x: f32[n,7]) {\n"
       "  %t = transpose %x {perm=[1,0]}\n  %y = nonzero %t : i64[2,s]\n"
       "  %f = cast %y : f32[2,s]\n  return %y, %f\n}\n"},
  };
  compare_all(rows, CHECK_COUNT(rows), &(expected){false, 0, NULL, NULL});
}

static void test_unique(void) {
  static const search rows[] = {
      {"sorted",
       {1},
       "sym s = count(%y, 0)\ngraph @g(%x: f32[3,400]) {\n  %y, %i, %v, %c = unique %x {sorted=1} : "
       "f32[s], i64[s], i64[1200], i64[s]\n  return %y, %i, %v, %c\n}\n"},
      {"as they come",
       {1, 600, 5000},
       "sym s = count(%y, 0)\ngraph @g(%x: f32[n]) {\n  @ten = const f32[] {10}\n"
       "  %m = mul %x, @ten\n  %l = cast %m : i32[n]\n"
       "  %y, %i, %v, %c = unique %l {sorted=0} : i32[s], i64[s], i64[n], i64[s]\n"
       "  return %y, %i, %v, %c\n}\n"},
      {"along an axis",
       {1},
       "sym s = count(%y, 0)\ngraph @g(%x: f32[30,1]) {\n  %y, %i, %v, %c = unique %x {axis=0, "
       "sorted=1} : f32[s,1], i64[s], i64[30], i64[s]\n  return %y, %i, %v, %c\n}\n"},
  };
  compare_all(rows, CHECK_COUNT(rows), &(expected){false, 0, NULL, NULL});
}

static void test_suppression(void) {
  static const search rows[] = {
      {"corners",
       {1},
       "sym s = count(%y, 0)\ngraph @g(%b: f32[2,60,4], %p: f32[2,3,60]) {\n  @most = const i64[1] {7}\n"
       "  @iou = const f32[1] {0.3}\n  %y = non_max_suppression %b, %p, @most, @iou "
       "{center_point_box=0} : i64[s,3]\n  return %y\n}\n"},
      {"centres, any number",
       {1, 40, 700},
       "sym s = count(%y, 0)\ngraph @g(%b: f32[1,n,4], %p: f32[1,2,n]) {\n"
       "  @most = const i64[] {1100}\n  @iou = const f32[] {0.5}\n"
       "  @low = const f32[] {0.25}\n  %y = non_max_suppression %b, %p, @most, "
       "@iou, @low {center_point_box=1} : i64[s,3]\n  return %y\n}\n"},
      {"no candidates",
       {1, 40},
       "sym s = count(%y, 0)\ngraph @g(%b: f32[1,n,4], %p: f32[1,2,n]) {\n  @most = const i64[] {9}\n"
       "  @iou = const f32[] {0.5}\n  @low = const f32[] {100}\n  %y = non_max_suppression %b, %p, @most, "
       "@iou, @low {center_point_box=0} : i64[s,3]\n  return %y\n}\n"},
      {"more pairs than there is room for",
       {12000},
       "sym s = count(%y, 0)\ngraph @g(%b: f32[1,n,4], %p: f32[1,1,n]) {\n  @most = const i64[1] {9}\n"
       "  @iou = const f32[1] {0.2}\n  %y = non_max_suppression %b, %p, @most, @iou "
       "{center_point_box=0} : i64[s,3]\n  return %y\n}\n"},
  };
  compare_all(rows, CHECK_COUNT(rows), &(expected){false, 0, NULL, NULL});
}

/* Of equal elements the first or the last one; rows that begin with NaN, of nothing but infinities, across columns. */
static void test_positions(void) {
  static const search rows[] = {
      {"f64",
       {1},
       "graph @g(%x: f32[60,300]) {\n  %d = cast %x : f64[60,300]\n"
       "  %y = argmax %d {axis=1, keepdims=1, select_last=0}\n  %z = argmin %d {axis=1, keepdims=0, select_last=1}\n"
       "  %v = argmax %d {axis=0, keepdims=0, select_last=1}\n  return %y, %z, %v\n}\n"},
      {"infinities",
       {1},
       "graph @g(%x: f32[60,3,300]) {\n  @zero = const f64[] {0}\n  %d = cast %x : f64[60,3,300]\n  %i = div %d, "
       "@zero\n"
       "  %y = argmax %i {axis=2, keepdims=1, select_last=0}\n  %z = argmin %i {axis=2, keepdims=0, select_last=1}\n"
       "  return %y, %z\n}\n"},
      {"i64",
       {1},
       "graph @g(%x: f32[3,140000]) {\n  @zero = const f32[] {0}\n  %m = max %x, @zero\n  %l = cast %m : "
       "i64[3,140000]\n"
       "  %y = argmax %l {axis=1, keepdims=0, select_last=0}\n  %z = argmin %l {axis=1, keepdims=0, select_last=1}\n"
       "  return %y, %z\n}\n"},
      {"f64 of any length",
       {5, 300, 140000},
       "graph @g(%x: f32[2,n]) {\n  %d = cast %x : f64[2,n]\n"
       "  %y = argmax %d {axis=1, keepdims=0, select_last=0}\n  return %y\n}\n"},
      {"f32",
       {1},
       "graph @g(%x: f32[60,300]) {\n  %y = argmax %x {axis=1, keepdims=1, select_last=1}\n"
       "  %z = argmin %x {axis=1, keepdims=0, select_last=0}\n  return %y, %z\n}\n"},
  };
  compare_all(rows, CHECK_COUNT(rows), &(expected){true, 0, NULL, NULL});
}

/* Few places that are hit many times, in the order of the updates: sums of floats are those of a CPU, bit by bit. */
static void test_scatter(void) {
  static const search rows[] = {
      {"sums of rows",
       {70, 3000},
       "graph @g(%x: f32[n], %u: f32[n,5]) {\n  @ten = const f32[] {10}\n  @w = const f32[9,5] data(3)\n"
       "  %m = mul %x, @ten\n  %i = cast %m : i64[n]\n  %j = reshape %i : i64[n,1]\n"
       "  %y = scatter_nd @w, %j, %u {combine=1}\n  return %y\n}\n"},
      {"the last of halves, along an axis",
       {1},
       "graph @g(%x: f32[4,500,3]) {\n  @ten = const f32[] {10}\n  @w = const f32[4,20,3] data(3)\n"
       "  %m = mul %x, @ten\n  %i = cast %m : i32[4,500,3]\n  %h = cast %x : f16[4,500,3]\n"
       "  %v = cast @w : f16[4,20,3]\n  %y = scatter_elements %v, %i, %h {axis=1, combine=0}\n  return %y\n}\n"},
      {"products at pairs of places",
       {200, 1500},
       "graph @g(%x: f32[n,2], %u: f32[n]) {\n  @ten = const f32[] {10}\n  @w = const f32[30,40] data(3)\n"
       "  @low = const f32[] {0.9}\n  @part = const f32[] {0.02}\n"
       "  %m = mul %x, @ten\n  %i = cast %m : i64[n,2]\n  %s = mul %u, @part\n  %f = add %s, @low\n"
       "  %y = scatter_nd @w, %i, %f {combine=2}\n  return %y\n}\n"},
  };
  compare_all(rows, CHECK_COUNT(rows), &(expected){true, 0, NULL, NULL});
}

/* Of rows that are one part, parts, and parts of parts. */
static void test_running(void) {
  static const search sums[] = {
      {"any length",
       {100, 300, 20000},
       "graph @g(%x: f32[2,n]) {\n  %y = cumsum %x {axis=1, exclusive=0, reverse=0}\n  return %y\n}\n"},
      {"of neighbouring rows, from behind",
       {255, 700},
       "graph @g(%x: f32[n,3]) {\n  %a = abs %x\n  %s = cumsum %a {axis=0, exclusive=1, reverse=1}\n  %y = sqrt %s\n"
       "  return %y\n}\n"},
  };
  static const search integers[] = {
      {"i32",
       {1},
       "graph @g(%x: f32[3,6001]) {\n  %i = cast %x : i32[3,6001]\n"
       "  %y = cumsum %i {axis=1, exclusive=1, reverse=0}\n  return %y\n}\n"},
      {"i64 from behind",
       {1},
       "graph @g(%x: f32[25600]) {\n  %i = cast %x : i64[25600]\n"
       "  %y = cumsum %i {axis=0, exclusive=0, reverse=1}\n  return %y\n}\n"},
      {"products of u32",
       {1},
       "graph @g(%x: f32[2,512]) {\n  @one = const u32[] {1}\n  %i = cast %x : u32[2,512]\n"
       "  %o = or %i, @one\n  %y = cumprod %o {axis=1, exclusive=0, reverse=0}\n  return %y\n}\n"},
  };
  static const int launches[][MAX_SIZES] = {{1, 4, 6}, {3, 6}};
  compare_all(sums, CHECK_COUNT(sums), &(expected){true, 1e-5f, launches, NULL});
  compare_all(integers, CHECK_COUNT(integers), &(expected){true, 0, NULL, NULL});
}

#define CELL(cell, hidden, acts, after)                                                                                \
  "{cell=" #cell ", hidden=" #hidden ", acts=" acts ", alphas=[0,0,0], betas=[0,0,0], clip=0, reverse=0, "             \
  "linear_before_reset=" #after ", input_forget=0}\n  return %y, %h\n}\n"

/* A large R: products of few and of many states per step; in integers, a block for some units; what has no kernel per
 * step, and a small one: a block for each sequence. */
static void test_recurrent(void) {
  static const search rows[] = {
      {"lstm, large",
       {1, 6},
       "graph @g(%x: f32[4,n,1536]) {\n  @w = const f32[1536,384] data(3)\n  @part = const f32[] {0.05}\n"
       "  %r = mul @w, @part\n  %y, %h, %c = recurrent %x, %r, _, _, _, _, _ " CELL(2, 384, "[0,1,1]", 0)},
      {"gru, large",
       {3, 5},
       "graph @g(%x: f32[4,n,1152]) {\n  @w = const f32[1152,384] data(3)\n  @part = const f32[] {0.05}\n"
       "  %r = mul @w, @part\n  %y, %h, %c = recurrent %x, %r, _, _, _, _, _ " CELL(1, 384, "[0,1]", 1)},
      {"gru, large, reset before",
       {1, 3},
       "graph @g(%x: f32[4,n,1152]) {\n  @w = const f32[1152,384] data(3)\n  @part = const f32[] {0.05}\n"
       "  %r = mul @w, @part\n  %y, %h, %c = recurrent %x, %r, _, _, _, _, _ " CELL(1, 384, "[0,1]", 0)},
      {"lstm, large, of integers",
       {1, 3},
       "graph @g(%x: f32[4,n,1536]) {\n  @r = const i8[1536,384] data(3)\n  @s = const f32[] {0.0005}\n"
       "  %y, %h, %c = recurrent %x, @r, _, _, _, _, _, @s " CELL(2, 384, "[0,1,1]", 0)},
      {"lstm, small",
       {1, 5},
       "graph @g(%x: f32[9,n,160]) {\n  @w = const f32[160,40] data(3)\n  @part = const f32[] {0.1}\n"
       "  %r = mul @w, @part\n  %y, %h, %c = recurrent %x, %r, _, _, _, _, _ " CELL(2, 40, "[0,1,1]", 0)},
  };
  compare_all(rows, CHECK_COUNT(rows), &(expected){true, 1e-3f, NULL, "--cudnn=off"});
}

/* Turns of a loop whose number follows from sizes are recorded like other launches, but not too many of them. */
static void test_steps(void) {
  static const char scan[] = "sym n\ngraph @g(%x: f32[n,8]) {\n  @on = const bool[] {1}\n  @w = const f32[8] data(3)\n"
                             "  %n = dims {elems=[n]} : i64[]\n"
                             "  %s, %y = loop %n, _, @w {body=(%i: i64[], %c: bool[], %h: f32[8]) {\n"
                             "      %e = gather %x, %i {axis=0} : f32[8]\n      %t = add %h, %e : f32[8]\n"
                             "      %u = tanh %t : f32[8]\n      return @on, %u, %u\n    }} : f32[8], f32[n,8]\n"
                             "  return %s, %y\n}\n";
  static const search few[] = {{"some steps", {1, 7}, scan}}, many[] = {{"many steps", {3000}, scan}};
  compare_all(few, 1, &(expected){true, 1e-5f, NULL, NULL});
  compare_all(many, 1, &(expected){false, 1e-5f, NULL, NULL});
}

/* Short rows by one kernel, long ones by parts. */
static void test_lengths(void) {
  static const search rows[] = {
      {"softmax", {300, 70000}, "graph @g(%x: f32[1,n]) {\n  %y = softmax %x {axis=1}\n  return %y\n}\n"},
      {"log of softmax", {300, 65536}, "graph @g(%x: f32[1,n]) {\n  %y = log_softmax %x {axis=1}\n  return %y\n}\n"},
      {"sum",
       {3000, 132000},
       "graph @g(%x: f32[n]) {\n  %a = abs %x\n  %s = reduce_sum %a {axes=[0], keepdims=1}\n  %y = sqrt %s\n"
       "  return %y\n}\n"},
      {"maximum across columns",
       {300, 132000},
       "graph @g(%x: f32[1,n,3]) {\n  %y = reduce_max %x {axes=[1], keepdims=0}\n  return %y\n}\n"},
      {"normalisation of pictures",
       {20, 140},
       "graph @g(%x: f32[1,2,n,130]) {\n  %y = normalize %x {axes=[2,3], epsilon=0.001, rms=0}\n  return %y\n}\n"},
      {"normalisation of few channels",
       {1},
       "graph @g(%x: f32[1,97,64,12]) {\n  %y = normalize %x {axes=[1,2], epsilon=0.001, rms=0}\n  return %y\n}\n"},
  };
  static const int launches[][MAX_SIZES] = {{1, 4}, {1, 4}, {1, 3}, {1, 3}, {1, 3}, {3}};
  compare_all(rows, CHECK_COUNT(rows), &(expected){true, 1e-4f, launches, NULL});
}

/* Attention of symbols: a kernel for few rows (16: 8 of each of two heads), one for many; blocks share long keys, and
 * another kernel puts together what they have. */
static void test_attention(void) {
  static const search rows[] = {
      {"queries",
       {1, 8, 9, 70},
       "graph @g(%q: f32[1,4,n,24], %k: f32[1,2,300,24]) {\n  %y = attention %q, %k, %k {scale=0.2}\n  return %y\n}\n"},
      {"keys",
       {5, 700},
       "graph @g(%q: f32[2,4,3,24], %k: f32[2,4,n,24]) {\n  %y = attention %q, %k, %k {scale=0.2, causal=1, "
       "past=[n]}\n  return %y\n}\n"},
  };
  static const int launches[][MAX_SIZES] = {{2, 2, 2, 2}, {1, 2}};
  compare_all(rows, 2, &(expected){true, 1e-4f, launches, "--cudnn=off"});
}

/* Products with weights in integers: a kernel for few rows, one for many, on one copy. Blocks of that one share k here, and
 * another kernel adds what they have. */
static void test_weights(void) {
  static const search rows[] = {
      {"4 bits by blocks of 32",
       {1, 3, 17, 130},
       "graph @g(%x: f32[n,512]) {\n  @q = const u4[512,512] data(1)\n  @s = const f32[16,512] data(2)\n"
       "  @z = const u4[16,512] data(3)\n  %w = dequantize @q, @s, @z {axis=0, block_size=32} : f32[512,512]\n"
       "  %y = matmul %x, %w : f32[n,512]\n  return %y\n}\n"},
      {"8 bits by channels, of a batch",
       {1, 2, 5},
       "graph @g(%x: f32[n,n,384]) {\n  @q = const i8[768,384] data(1)\n  @s = const f32[768] data(2)\n"
       "  %w = dequantize @q, @s {axis=0, block_size=0} : f32[768,384]\n"
       "  %t = transpose %w {perm=[1,0]} : f32[384,768]\n  %y = matmul %x, %t : f32[n,n,768]\n  return %y\n}\n"},
      {"4 bits, rows that a CPU rounds",
       {1, 17},
       "graph @g(%x: f32[n,512]) {\n  @q = const u4[512,512] data(1)\n  @s = const f32[16,512] data(2)\n"
       "  %w = dequantize @q, @s {axis=0, block_size=32} : f32[512,512]\n"
       "  %y = matmul %x, %w {round=3} : f32[n,512]\n  return %y\n}\n"},
  };
  static const int launches[][MAX_SIZES] = {{1, 1, 2, 2}, {1, 1, 2}, {1, 2}}, with_cast[][MAX_SIZES] = {{2, 2, 3}};
  compare_all(rows, 3, &(expected){true, 2e-3f, launches, NULL});
  compare_all(rows + 1, 1, &(expected){true, 0.2f, with_cast, "--fp16"});
}

static const check_test tests[] = {
    {"*open mock", open_mock},
    {"topk", test_topk},
    {"nonzero", test_nonzero},
    {"unique", test_unique},
    {"non-maximum suppression", test_suppression},
    {"scatter", test_scatter},
    {"positions", test_positions},
    {"running sums", test_running},
    {"recurrent", test_recurrent},
    {"steps", test_steps},
    {"lengths", test_lengths},
    {"weights in integers", test_weights},
    {"attention", test_attention},
};

int main(int argc, char **argv) { return models_main(argc, argv, tests, CHECK_COUNT(tests), NULL); }
