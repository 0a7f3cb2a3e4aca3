/* SPDX-License-Identifier: Apache-2.0 */
/* test_ops.c - the runtime's operators against straightforward references, with fixed cases for the corners of the
 * standard.
 *
 * Operators are called as generated code does: twice where sizes depend on data, with a frame whose workers are
 * several, and with and without a context (without one there is no stash, so the second call must do the work again).
 */
#include "../check.h"
#include "tools/values/tensor_file.h"
#include "cyrt.h"
#include "half.h"

#include <stdint.h>
#include <stdlib.h>

static uint64_t random_state = 1;

static uint32_t random_next(void) {
  random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)(random_state >> 33);
}

static cyto_error error;

static cyrt_frame make_frame(int64_t workers) {
  cyrt_frame frame = {.workers = workers, .pool = cyrt_pool_shared(), .error = &error};
  return frame;
}

/* Elements are drawn from few values, so that ties are common. */
static void fill(void *data, int32_t dtype, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    int value = (int)(random_next() % 23) - (dtype == CYTO_U8 || dtype == CYTO_BOOL ? 0 : 11);
    switch (dtype) {
    case CYTO_F32:
      ((float *)data)[i] = value == 7 ? NAN : value == -3 ? -0.0f : value == -4 ? -INFINITY : (float)value / 4;
      break;
    case CYTO_F64:
      ((double *)data)[i] = value * 1e200;
      break;
    case CYTO_F16:
      ((uint16_t *)data)[i] = cyrt_f32_to_f16((float)value / 8);
      break;
    case CYTO_BF16:
      ((uint16_t *)data)[i] = cyrt_f32_to_bf16((float)value / 8);
      break;
    case CYTO_I64:
      ((int64_t *)data)[i] = value * ((int64_t)1 << 58);
      break;
    case CYTO_U64:
      ((uint64_t *)data)[i] = (uint64_t)value << 50;
      break;
    case CYTO_I32:
      ((int32_t *)data)[i] = value;
      break;
    case CYTO_U32:
      ((uint32_t *)data)[i] = (uint32_t)value;
      break;
    case CYTO_I16:
    case CYTO_U16:
      ((int16_t *)data)[i] = (int16_t)value;
      break;
    case CYTO_BOOL:
      ((uint8_t *)data)[i] = value & 1;
      break;
    default:
      ((int8_t *)data)[i] = (int8_t)value;
    }
  }
}

static const int32_t dtypes[] = {CYTO_F32, CYTO_F64, CYTO_F16, CYTO_BF16, CYTO_I8,  CYTO_U8,  CYTO_I16,
                                 CYTO_U16, CYTO_I32, CYTO_U32, CYTO_I64,  CYTO_U64, CYTO_BOOL};

/* As the standard compares, NaN above all; doubles hold every value that fill() draws. */
static double value_at(const void *data, int32_t dtype, int64_t i) {
  host_tensor tensor = {.dtype = dtype, .data = (void *)data};
  double value = host_tensor_get(&tensor, i);
  return isnan(value) ? INFINITY : value;
}

/* ---- topk ---- */

/* The rank of an element among its lane is how many come before it: checks all positions at once. */
static void topk_check(const cyrt_tensor *in, const cyrt_tensor *values, const cyrt_tensor *indices, int axis,
                       int largest) {
  int64_t n = in->dims[axis], k = values->dims[axis], inner = cyrt_count(in->rank - axis - 1, in->dims + axis + 1);
  int64_t outer = cyrt_count(axis, in->dims), bad = 0;
  size_t unit = (size_t)cyto_dtype_bits(in->dtype) / 8;
  for (int64_t lane = 0; lane < outer * inner; lane++)
    for (int64_t i = 0; i < n; i++) {
      int64_t base = lane / inner * n * inner + lane % inner, before = 0;
      double value = value_at(in->data, in->dtype, base + i * inner);
      for (int64_t j = 0; j < n; j++) {
        double other = value_at(in->data, in->dtype, base + j * inner);
        before += (largest ? other > value : other < value) || (other == value && j < i);
      }
      if (before >= k)
        continue;
      int64_t at = lane / inner * k * inner + lane % inner + before * inner;
      bad += ((int64_t *)indices->data)[at] != i;
      bad += memcmp((char *)values->data + (size_t)at * unit, (char *)in->data + (size_t)(base + i * inner) * unit,
                    unit) != 0;
    }
  if (bad)
    CHECK_FAIL("topk %s axis %d n %lld k %lld largest %d: %lld wrong", cyto_dtype_name(in->dtype), axis, (long long)n,
               (long long)k, largest, (long long)bad);
}

static void topk_case(int32_t dtype, const int64_t *dims, int axis, int64_t k, int largest, int64_t workers) {
  cyrt_frame frame = make_frame(workers);
  cyrt_tensor in = {.dtype = dtype, .rank = 3}, out[2];
  memcpy(in.dims, dims, 3 * sizeof *dims);
  int64_t n = cyrt_count(3, dims);
  in.data = calloc((size_t)n + 1, 8);
  fill(in.data, dtype, n);
  out[0] = in;
  out[0].dims[axis] = k;
  out[1] = out[0];
  out[1].dtype = CYTO_I64;
  out[0].data = calloc((size_t)n + 1, 8);
  out[1].data = calloc((size_t)n + 1, 8);
  cyrt_attr attr[] = {{.i = axis - 3}, {.i = largest}, {.i = 1}};
  CHECK_INT_EQ(cyrt_op_topk(&frame, &in, 1, out, 2, attr), CYTO_OK);
  topk_check(&in, &out[0], &out[1], axis, largest);
  free(in.data);
  free(out[0].data);
  free(out[1].data);
}

static void test_topk(void) {
  static const int64_t shapes[][3] = {{3, 40, 2}, {1, 1, 700}, {2, 5, 3}, {64, 9, 1}};
  for (int d = 0; d < CHECK_COUNT(dtypes); d++)
    for (int s = 0; s < CHECK_COUNT(shapes); s++)
      for (int axis = 0; axis < 3; axis++)
        for (int largest = 0; largest < 2; largest++) {
          int64_t n = shapes[s][axis];
          topk_case(dtypes[d], shapes[s], axis, n, largest, 1);
          topk_case(dtypes[d], shapes[s], axis, n / 9, largest, 2);
          topk_case(dtypes[d], shapes[s], axis, (n + 1) / 2, largest, 2);
        }
  static const int64_t large[] = {2, 3000, 1}, wide[] = {4000, 20, 1};
  topk_case(CYTO_F32, large, 1, 100, 1, 2);
  topk_case(CYTO_F32, large, 1, 100, 0, 2);
  topk_case(CYTO_F32, large, 1, 2999, 0, 2);
  topk_case(CYTO_F32, wide, 1, 5, 1, 3);
}

static void test_topk_errors(void) {
  cyrt_frame frame = make_frame(1);
  float data[4] = {0};
  cyrt_tensor in = {data, CYTO_F32, 1, {4}}, out[2] = {{data, CYTO_F32, 1, {5}}, {NULL, CYTO_I64, 1, {5}}};
  cyrt_attr attr[] = {{.i = 0}, {.i = 1}, {.i = 1}};
  CHECK_INT_EQ(cyrt_op_topk(&frame, &in, 1, out, 2, attr), CYTO_INVALID_ARGUMENT);
  CHECK_STR_HAS(error.message, "k is 5");
  attr[0].i = 1;
  CHECK_INT_EQ(cyrt_op_topk(&frame, &in, 1, out, 2, attr), CYTO_INVALID_ARGUMENT);
  in.dtype = CYTO_C64;
  CHECK_INT_EQ(cyrt_op_topk(&frame, &in, 1, out, 2, attr), CYTO_DTYPE_MISMATCH);
}

/* ---- nonzero ---- */

static void test_nonzero(void) {
  cyrt_frame frame = make_frame(1);
  for (int d = 0; d < CHECK_COUNT(dtypes); d++) {
    int64_t data[60], result[200], seen = 0;
    cyrt_tensor in = {data, dtypes[d], 3, {3, 4, 5}}, out = {0};
    fill(data, dtypes[d], 60);
    CHECK_INT_EQ(cyrt_op_nonzero(&frame, &in, 1, &out, 1, NULL), CYTO_OK);
    CHECK_INT_EQ(out.dims[0], 3);
    out.data = result;
    CHECK_INT_EQ(cyrt_op_nonzero(&frame, &in, 1, &out, 1, NULL), CYTO_OK);
    int64_t count = out.dims[1];
    for (int64_t i = 0; i < 60; i++)
      if (value_at(data, dtypes[d], i) != 0) {
        CHECK_INT_EQ(result[seen], i / 20);
        CHECK_INT_EQ(result[count + seen], i / 5 % 4);
        CHECK_INT_EQ(result[2 * count + seen], i % 5);
        seen++;
      }
    CHECK_INT_EQ(seen, count);
  }
  float one = 1;
  cyrt_tensor scalar = {&one, CYTO_F32, 0, {0}}, out = {0};
  CHECK_INT_EQ(cyrt_op_nonzero(&frame, &scalar, 1, &out, 1, NULL), CYTO_OK);
  CHECK_INT_EQ(out.dims[0], 0); /* the standard: (0, N), unlike numpy */
  CHECK_INT_EQ(out.dims[1], 1);
}

/* ---- unique ---- */

typedef struct unique_out {
  cyrt_tensor t[4];
  int64_t space[4][1000];
} unique_out;

/* Both calls; `frame` may have a context. */
static void unique_run(cyrt_frame *frame, const cyrt_tensor *in, int has_axis, int axis, int sorted, unique_out *o) {
  cyrt_attr attr[] = {{.i = has_axis}, {.i = axis}, {.i = sorted}};
  memset(o, 0, sizeof *o);
  CHECK_INT_EQ(cyrt_op_unique(frame, in, 1, o->t, 4, attr), CYTO_OK);
  for (int i = 0; i < 4; i++)
    o->t[i].data = o->space[i];
  CHECK_INT_EQ(cyrt_op_unique(frame, in, 1, o->t, 4, attr), CYTO_OK);
}

static void test_unique_flat(void) {
  cyrt_frame frame = make_frame(1);
  for (int d = 0; d < CHECK_COUNT(dtypes); d++)
    for (int sorted = 0; sorted < 2; sorted++) {
      static unique_out o;
      int64_t data[90];
      cyrt_tensor in = {data, dtypes[d], 2, {9, 10}};
      fill(data, dtypes[d], 90);
      unique_run(&frame, &in, 0, 0, sorted, &o);
      int64_t groups = o.t[0].dims[0], total = 0;
      CHECK_INT_EQ(o.t[2].dims[0], 90);
      for (int64_t g = 0; g < groups; g++) {
        int64_t first = o.space[1][g];
        total += o.space[3][g];
        CHECK(value_at(o.space[0], dtypes[d], g) == value_at(data, dtypes[d], first));
        if (g)
          CHECK(sorted ? value_at(o.space[0], dtypes[d], g - 1) < value_at(o.space[0], dtypes[d], g)
                       : o.space[1][g - 1] < first);
        for (int64_t i = 0; i < first; i++)
          CHECK(value_at(data, dtypes[d], i) != value_at(data, dtypes[d], first));
      }
      CHECK_INT_EQ(total, 90);
      for (int64_t i = 0; i < 90; i++)
        CHECK(value_at(o.space[0], dtypes[d], o.space[2][i]) == value_at(data, dtypes[d], i));
    }
}

/* Numbers that differ in all their bytes, of both signs, each four times. */
static void test_unique_wide(void) {
  enum { N = 1000, GROUPS = 250 };
  cyrt_frame frame = make_frame(1);
  static unique_out o;
  static int64_t data[N];
  cyrt_tensor in = {data, CYTO_I64, 1, {N}};
  for (int64_t i = 0; i < N; i++)
    data[i] = (int64_t)((uint64_t)(i % GROUPS + 1) * 0x9e3779b97f4a7c15u);
  unique_run(&frame, &in, 0, 0, 1, &o);
  CHECK_INT_EQ(o.t[0].dims[0], GROUPS);
  for (int64_t g = 0; g < GROUPS; g++) {
    CHECK(!g || o.space[0][g - 1] < o.space[0][g]);
    CHECK_INT_EQ(o.space[3][g], N / GROUPS);
    CHECK(o.space[1][g] < GROUPS && data[o.space[1][g]] == o.space[0][g]);
  }
  for (int64_t i = 0; i < N; i++)
    CHECK(o.space[0][o.space[2][i]] == data[i]);
}

/* The standard's own example with an axis, and one along the second axis. */
static void test_unique_axis(void) {
  cyrt_frame frame = make_frame(1);
  static unique_out o;
  float rows[] = {1, 0, 0, 1, 0, 0, 2, 3, 4};
  cyrt_tensor in = {rows, CYTO_F32, 2, {3, 3}};
  unique_run(&frame, &in, 1, 0, 1, &o);
  CHECK_INT_EQ(o.t[0].dims[0], 2);
  CHECK_INT_EQ(o.t[0].dims[1], 3);
  CHECK_CLOSE(((float *)o.space[0])[3], 2, 0);
  CHECK_INT_EQ(o.space[1][1], 2);
  CHECK_INT_EQ(o.space[2][1], 0);
  CHECK_INT_EQ(o.space[2][2], 1);
  CHECK_INT_EQ(o.space[3][0], 2);
  float columns[] = {3, 1, 3, 1, 0, 2, 0, 2};
  cyrt_tensor wide = {columns, CYTO_F32, 2, {2, 4}};
  for (int sorted = 0; sorted < 2; sorted++) {
    unique_run(&frame, &wide, 1, -1, sorted, &o);
    const float *y = (float *)o.space[0];
    CHECK_INT_EQ(o.t[0].dims[0], 2);
    CHECK_INT_EQ(o.t[0].dims[1], 2);
    CHECK_CLOSE(y[0], sorted ? 1 : 3, 0);
    CHECK_CLOSE(y[1], sorted ? 3 : 1, 0);
    CHECK_CLOSE(y[2], sorted ? 2 : 0, 0);
    CHECK_INT_EQ(o.space[1][0], sorted ? 1 : 0);
    CHECK_INT_EQ(o.space[2][3], sorted ? 0 : 1);
  }
}

/* ---- nms ---- */

typedef struct nms_case {
  const float *boxes, *scores;
  int64_t batch, n, classes, limit;
  float iou, threshold;
  int centered;
} nms_case;

static int64_t nms_run(int64_t workers, const nms_case *c, int64_t *out_triples) {
  cyrt_frame frame = make_frame(workers);
  int64_t limit = c->limit;
  float iou = c->iou, threshold = c->threshold;
  cyrt_tensor in[] = {{(void *)c->boxes, CYTO_F32, 3, {c->batch, c->n, 4}},
                      {(void *)c->scores, CYTO_F32, 3, {c->batch, c->classes, c->n}},
                      {&limit, CYTO_I64, 0, {0}},
                      {&iou, CYTO_F32, 0, {0}},
                      {&threshold, CYTO_F32, 0, {0}}};
  cyrt_tensor out = {0};
  cyrt_attr attr[] = {{.i = c->centered}};
  CHECK_INT_EQ(cyrt_op_non_max_suppression(&frame, in, 5, &out, 1, attr), CYTO_OK);
  out.data = out_triples;
  CHECK_INT_EQ(cyrt_op_non_max_suppression(&frame, in, 5, &out, 1, attr), CYTO_OK);
  return out.dims[0];
}

/* The standard's examples: corners, flipped corners, centers. */
static void test_nms_fixed(void) {
  static const float corners[] = {0, 0,  1, 1,  0, .1f,   1, 1.1f,  0, -.1f, 1, .9f,
                                  0, 10, 1, 11, 0, 10.1f, 1, 11.1f, 0, 100,  1, 101};
  static const float flipped[] = {1, 1,  0, 0,  0, .1f,   1, 1.1f,  0, .9f, 1, -.1f,
                                  0, 10, 1, 11, 1, 10.1f, 0, 11.1f, 1, 101, 0, 100};
  static const float centers[] = {.5f, .5f,   1, 1, .5f, .6f,   1, 1, .5f, .4f,    1, 1,
                                  .5f, 10.5f, 1, 1, .5f, 10.6f, 1, 1, .5f, 100.5f, 1, 1};
  static const float scores[] = {.9f, .75f, .6f, .95f, .5f, .3f};
  static const int64_t expected[] = {3, 0, 5};
  nms_case cases[] = {{corners, scores, 1, 6, 1, 3, .5f, 0, 0},
                      {flipped, scores, 1, 6, 1, 3, .5f, 0, 0},
                      {centers, scores, 1, 6, 1, 3, .5f, 0, 1}};
  int64_t triples[60];
  for (int i = 0; i < 3; i++) {
    CHECK_INT_EQ(nms_run(1, &cases[i], triples), 3);
    for (int k = 0; k < 3; k++)
      CHECK_INT_EQ(triples[k * 3 + 2], expected[k]);
  }
  cases[0].threshold = .4f;
  CHECK_INT_EQ(nms_run(1, &cases[0], triples), 2);
  cases[0].limit = 0;
  CHECK_INT_EQ(nms_run(1, &cases[0], triples), 0);
}

static float naive_iou(const float *a, const float *b) {
  float top = fmaxf(a[0], b[0]), left = fmaxf(a[1], b[1]), bottom = fminf(a[2], b[2]), right = fminf(a[3], b[3]);
  float shared = fmaxf(0, bottom - top) * fmaxf(0, right - left);
  return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared);
}

/* Takes the best remaining box, drops what overlaps it, again and again. */
static int64_t naive_nms(const nms_case *c, int64_t *out) {
  int64_t found = 0;
  for (int64_t row = 0; row < c->batch * c->classes; row++) {
    const float *boxes = c->boxes + row / c->classes * c->n * 4, *scores = c->scores + row * c->n;
    char dropped[64] = {0};
    for (int64_t kept = 0; kept < c->limit; kept++) {
      int64_t best = -1;
      for (int64_t i = 0; i < c->n; i++)
        if (!dropped[i] && scores[i] > c->threshold && (best < 0 || scores[i] > scores[best]))
          best = i;
      if (best < 0)
        break;
      int64_t triple[] = {row / c->classes, row % c->classes, best};
      memcpy(out + found++ * 3, triple, sizeof triple);
      for (int64_t i = 0; i < c->n; i++)
        dropped[i] |= i == best || naive_iou(boxes + i * 4, boxes + best * 4) > c->iou;
    }
  }
  return found;
}

static void test_nms_random(void) {
  for (int round = 0; round < 20; round++) {
    static float boxes[3 * 64 * 4], scores[3 * 40 * 64];
    static int64_t found[3 * 40 * 64 * 3], expected[3 * 40 * 64 * 3];
    for (int i = 0; i < 3 * 64; i++) {
      boxes[i * 4] = (float)(random_next() % 20);
      boxes[i * 4 + 1] = (float)(random_next() % 20);
      boxes[i * 4 + 2] = boxes[i * 4] + 1 + (float)(random_next() % 10);
      boxes[i * 4 + 3] = boxes[i * 4 + 1] + 1 + (float)(random_next() % 10);
    }
    for (int i = 0; i < 3 * 40 * 64; i++)
      scores[i] = (float)(random_next() % 50) / 50;
    nms_case c = {boxes, scores, 3, 64, 40, 1 + round % 12, .3f, .2f, 0};
    int64_t count = naive_nms(&c, expected);
    CHECK_INT_EQ(nms_run(1 + round % 3, &c, found), count);
    CHECK(!memcmp(found, expected, (size_t)count * 24));
  }
}

/* ---- the stash of a context; scratch that fails ---- */

extern const cyrt_model rt_model;

typedef struct counting {
  int left, live;
} counting;

static void *counting_alloc(void *user, size_t bytes, size_t alignment) {
  counting *c = user;
  if (c->left-- <= 0)
    return NULL;
  c->live++;
  return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void counting_release(void *user, void *ptr, size_t bytes) {
  (void)bytes;
  free(ptr);
  ((counting *)user)->live--;
}

static void test_stash(void) {
  int64_t data[] = {5, 3, 5, 1};
  cyrt_tensor in = {data, CYTO_I64, 1, {4}};
  cyrt_attr attr[] = {{.i = 0}, {.i = 0}, {.i = 1}};
  int status = CYTO_OUT_OF_MEMORY;
  for (int allowed = 1; status && allowed < 10; allowed++) {
    counting state = {allowed, 0};
    cyto_options options = {.threads = 1, .allocator = {counting_alloc, counting_release, &state}};
    cyto_model *model;
    cyto_context *context;
    static unique_out o;
    CHECK_REQUIRE(!cyto_model_from_linked(&rt_model, &model, &error));
    CHECK_REQUIRE(!cyto_context_create(model, &options, &context, &error));
    cyrt_frame frame = make_frame(1);
    frame.context = context;
    memset(&o, 0, sizeof o);
    status = cyrt_op_unique(&frame, &in, 1, o.t, 4, attr);
    CHECK(status == CYTO_OK || status == CYTO_OUT_OF_MEMORY);
    if (!status) {
      state.left = 0; /* the second call must need no memory */
      for (int i = 0; i < 4; i++)
        o.t[i].data = o.space[i];
      CHECK_INT_EQ(cyrt_op_unique(&frame, &in, 1, o.t, 4, attr), CYTO_OK);
      CHECK_INT_EQ(o.t[0].dims[0], 3);
      CHECK_INT_EQ(o.space[0][2], 5);
      CHECK_INT_EQ(o.space[3][2], 2);
      state.left = 10;
      for (int i = 0; i < 4; i++)
        o.t[i].data = NULL;
      CHECK_INT_EQ(cyrt_op_unique(&frame, &in, 1, o.t, 4, attr), CYTO_OK); /* left behind: the context frees it */
    }
    cyto_context_destroy(context);
    cyto_model_unload(model);
    CHECK_INT_EQ(state.live, 0);
  }
  CHECK_INT_EQ(status, CYTO_OK);
}

/* ---- small formats ---- */

static void test_half(void) {
  for (uint32_t bits = 0; bits < 65536; bits++) {
    float half = cyrt_f16_to_f32((uint16_t)bits), brain = cyrt_bf16_to_f32((uint16_t)bits);
    if (isnan(half) ? !isnan(cyrt_f16_to_f32(cyrt_f32_to_f16(half))) : cyrt_f32_to_f16(half) != bits)
      CHECK_FAIL("float16 %04x does not survive", bits);
    if (isnan(brain) ? !isnan(cyrt_bf16_to_f32(cyrt_f32_to_bf16(brain))) : cyrt_f32_to_bf16(brain) != bits)
      CHECK_FAIL("bfloat16 %04x does not survive", bits);
  }
  CHECK_INT_EQ(cyrt_f32_to_f16(65519.0f), 0x7bff);
  CHECK_INT_EQ(cyrt_f32_to_f16(65520.0f), 0x7c00);
  CHECK_INT_EQ(cyrt_f32_to_f16(0x1p-25f), 0); /* a tie, to even */
  CHECK_INT_EQ(cyrt_f32_to_f16(0x1.8p-24f), 2);
  CHECK_INT_EQ(cyrt_f32_to_f16(1 + 0x1p-11f), 0x3c00);
  CHECK_INT_EQ(cyrt_f32_to_f16(1 + 0x3p-11f), 0x3c02);
  CHECK_INT_EQ(cyrt_f32_to_bf16(1 + 0x1p-8f), 0x3f80);
  CHECK_INT_EQ(cyrt_f32_to_bf16(1 + 0x3p-8f), 0x3f82);
  CHECK_CLOSE(cyrt_f8e4m3fn_to_f32(0x7e), 448, 0);
  CHECK_CLOSE(cyrt_f8e4m3fn_to_f32(0x01), 0x1p-9, 0);
  CHECK(isnan(cyrt_f8e4m3fn_to_f32(0xff)));
  CHECK_CLOSE(cyrt_f8e4m3fnuz_to_f32(0x7f), 240, 0);
  CHECK(isnan(cyrt_f8e4m3fnuz_to_f32(0x80)));
  CHECK_CLOSE(cyrt_f8e5m2_to_f32(0x7b), 57344, 0);
  CHECK(isinf(cyrt_f8e5m2_to_f32(0xfc)));
  CHECK_CLOSE(cyrt_f8e5m2fnuz_to_f32(0x7f), 57344, 0);
  CHECK_CLOSE(cyrt_f4e2m1_to_f32(0xf), -6, 0);
  CHECK_CLOSE(cyrt_f8e8m0_to_f32(130), 8, 0);
  uint8_t packed[4] = {0};
  for (int i = 0; i < 8; i++)
    cyrt_packed_set(packed, i, 4, i - 4);
  CHECK_INT_EQ(packed[0], 0xdc);
  for (int i = 0; i < 8; i++)
    CHECK_INT_EQ(cyrt_packed_get(packed, i, 4, 1), i - 4);
  CHECK_INT_EQ(cyrt_packed_get(packed, 0, 2, 0), 0);
  CHECK_INT_EQ(cyrt_packed_get(packed, 1, 2, 1), -1);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {
      {"topk", test_topk},
      {"topk_errors", test_topk_errors},
      {"nonzero", test_nonzero},
      {"unique_flat", test_unique_flat},
      {"unique_wide", test_unique_wide},
      {"unique_axis", test_unique_axis},
      {"nms_fixed", test_nms_fixed},
      {"nms_random", test_nms_random},
      {"stash", test_stash},
      {"half", test_half},
  };
  return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
