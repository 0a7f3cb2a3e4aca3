/* SPDX-License-Identifier: Apache-2.0 */
/* cudnn_test.c - cuDNN's share of CUDA models, without a GPU: a mock of the library (mock_cudnn.c) computes
 * convolutions and attention, results are compared with the CPU target.
 *
 * Which of them it is given and which engines, that timing decides, that choices are kept and survive damage, and
 * every way in which the library can be missing or wrong. Where the real library is installed, it checks our graphs, and
 * makes plans of convolutions for devices that it is told about.
 */
#define _GNU_SOURCE
#include "runtime/cuda/cudnn_numbers.h"
#include "runtime/cuda/cyrt_choose.h"
#include "tests/cuda/choose.h"
#include "tests/cuda/mock/mock_cudnn.h"

static char folder[PATH_MAX + 40]; /* of the mock library */
static mock_cudnn_state *cudnn_mock;

/* Two axes: bias, residual and ReLU in all combinations, strides, groups, dilation, one-sided padding, 1x1. The last
 * is of a kind that cuDNN is not given. */
static const char plane[] =
    "graph @g(%x: f32[batch,8,9,11]) {\n"
    "  @w1 = const f32[8,8,3,3] data(1)\n  @w2 = const f32[8,8,3,3] data(2)\n  @w3 = const f32[16,8,3,2] data(3)\n"
    "  @w4 = const f32[32,8,3,3] data(4)\n  @w5 = const f32[8,32,1,1] data(5)\n  @w6 = const f32[8,8,3,3] data(9)\n"
    "  @b1 = const f32[8,1,1] data(6)\n  @b2 = const f32[8,1,1] data(7)\n  @b4 = const f32[32,1,1] data(8)\n"
    "  @zero = const f32[] {0}\n  @part = const f32[] {0.125}\n"
    "  %c1 = conv %x, @w1 {strides=[1,1], pads=[1,1,1,1], dilations=[1,1], group=1} : f32[batch,8,9,11]\n"
    "  %a1 = add %c1, @b1\n  %m1 = mul %a1, @part\n  %r1 = max %m1, @zero\n"
    "  %c2 = conv %r1, @w2 {strides=[1,1], pads=[1,1,1,1], dilations=[1,1], group=1} : f32[batch,8,9,11]\n"
    "  %a2 = add %c2, @b2\n  %s2 = add %a2, %r1\n  %r2 = max %s2, @zero\n"
    "  %c3 = conv %r2, @w3 {strides=[2,2], pads=[0,1,1,0], dilations=[1,1], group=1} : f32[batch,16,4,6]\n"
    "  %c4 = conv %c3, @w4 {strides=[1,1], pads=[2,2,2,2], dilations=[2,2], group=2} : f32[batch,32,4,6]\n"
    "  %a4 = add %c4, @b4\n  %r4 = max %a4, @zero\n"
    "  %c5 = conv %r4, @w5 {strides=[1,1], pads=[0,0,0,0], dilations=[1,1], group=1} : f32[batch,8,4,6]\n"
    "  %t = abs %c5\n"
    "  return %t, %r2\n}\n";
static const char line[] =
    "graph @g(%x: f32[batch,8,20]) {\n"
    "  @w1 = const f32[16,8,5] data(1)\n  @b1 = const f32[16,1] data(2)\n  @zero = const f32[] {0}\n"
    "  %c1 = conv %x, @w1 {strides=[3], pads=[2,2], dilations=[1], group=1} : f32[batch,16,7]\n"
    "  %a1 = add %c1, @b1\n  %r1 = max %a1, @zero\n  return %r1\n}\n";
static const char space[] =
    "graph @g(%x: f32[batch,4,5,6,7]) {\n"
    "  @w1 = const f32[8,4,2,3,2] data(1)\n  @b1 = const f32[8,1,1,1] data(2)\n"
    "  %c1 = conv %x, @w1 {strides=[1,2,1], pads=[1,1,0,0,1,1], dilations=[1,1,1], group=1} : f32[batch,8,5,3,7]\n"
    "  %a1 = add %c1, @b1\n  return %a1\n}\n";

/* Plain; causal with a past and fewer heads of keys; with a bias per head; all heads sharing one of keys; causal with a
 * window; a bias and a mask; a window to one side alone and two batch axes. The last three are attentions that cuDNN is
 * not given: a mask of -inf, a softcap, heads of a size that is no multiple of 8. */
static const char attentions[] =
    "graph @g(%x: f32[batch,4,16,16]) {\n"
    "  @half = const f32[] {0.5}\n  @bias = const f32[1,4,16,16] data(1)\n  @more = const f32[1,1,8,16] data(2)\n"
    "  %k = tanh %x\n  %v = mul %x, @half\n"
    "  %a = attention %x, %k, %v {scale=0.25}\n"
    "  %k2 = slice %k {starts=[0,0,0,0], steps=[1,1,1,1]} : f32[batch,2,16,16]\n"
    "  %v2 = slice %v {starts=[0,2,0,0], steps=[1,1,1,1]} : f32[batch,2,16,16]\n"
    "  %q2 = slice %a {starts=[0,0,0,0], steps=[1,1,1,1]} : f32[batch,4,8,16]\n"
    "  %b = attention %q2, %k2, %v2 {scale=0.5, causal=1, past=[8]}\n"
    "  %c = attention %a, %k, %v, @bias {scale=0.25}\n"
    "  %k1 = slice %k {starts=[0,1,0,0], steps=[1,1,1,1]} : f32[batch,1,16,16]\n"
    "  %v1 = slice %v {starts=[0,3,0,0], steps=[1,1,1,1]} : f32[batch,1,16,16]\n"
    "  %d = attention %c, %k1, %v1 {scale=0.25, causal=1}\n"
    "  %e = attention %d, %k, %v {scale=0.25, causal=1, window=5}\n"
    "  @zero = const f32[] {0}\n  @m = const f32[1,1,16,16] data(4)\n  %mask = gt @m, @zero\n"
    "  %g = attention %e, %k, %v, @bias, %mask {scale=0.25, fill=-30000}\n"
    "  %x5 = reshape %g : f32[batch,2,2,16,16]\n  %k5 = reshape %k : f32[batch,2,2,16,16]\n"
    "  %v5 = reshape %v : f32[batch,2,2,16,16]\n  %h5 = attention %x5, %k5, %v5 {scale=0.25, window=7}\n"
    "  %h = reshape %h5 : f32[batch,4,16,16]\n  %i = attention %h, %k, %v, @bias, %mask {scale=0.25}\n"
    "  %j = attention %i, %k, %v {scale=0.25, softcap=2}\n"
    "  %q4 = slice %x {starts=[0,0,0,0], steps=[1,1,1,1]} : f32[batch,4,16,12]\n"
    "  %k4 = slice %k {starts=[0,0,0,4], steps=[1,1,1,1]} : f32[batch,4,16,12]\n"
    "  %f = attention %q4, %k4, %j {scale=0.25}\n"
    "  return %b, %f\n}\n";
enum { ATTENTIONS = 7 };

/* Activations as importers spell them, one with the residual behind it; what is left over is no activation of cuDNN's. */
static const char activations[] =
    "graph @g(%x: f32[batch,8,9,11]) {\n"
    "  @w = const f32[8,8,3,3] data(1)\n  @b = const f32[8,1,1] data(2)\n  @zero = const f32[] {0}\n"
    "  @one = const f32[] {1}\n  @half = const f32[] {0.5}\n  @low = const f32[] {-0.25}\n  @high = const f32[] {1.5}\n"
    "  @root = const f32[] {0.70710678}\n  @slope = const f32[] {0.125}\n  @cube = const f32[] {0.044715}\n"
    "  @turn = const f32[] {0.7978846}\n  @steep = const f32[] {1.702}\n"
#define CONV(to, from)                                                                                                 \
  "  %c" to " = conv %" from ", @w {strides=[1,1], pads=[1,1,1,1], dilations=[1,1], group=1} : f32[batch,8,9,11]\n"    \
  "  %a" to " = add %c" to ", @b\n"
    CONV("1", "x") "  %y1 = sigmoid %a1\n" CONV("2", "y1") "  %y2 = tanh %a2\n"
    CONV("3", "y2") "  %s3 = sigmoid %a3\n  %y3 = mul %a3, %s3\n"
    CONV("4", "y3") "  %k4 = mul %a4, @steep\n  %s4 = sigmoid %k4\n  %y4 = mul %a4, %s4\n"
    CONV("5", "y4") "  %g5 = mul %a5, @root\n  %e5 = erf %g5\n  %f5 = add %e5, @one\n  %h5 = mul %a5, @half\n  %y5 = mul %h5, %f5\n"
    CONV("6", "y5") "  %q6 = mul %a6, %a6\n  %r6 = mul %q6, %a6\n  %t6 = mul %r6, @cube\n  %u6 = add %a6, %t6\n"
    "  %v6 = mul %u6, @turn\n  %e6 = tanh %v6\n  %f6 = add %e6, @one\n  %h6 = mul %a6, @half\n  %y6 = mul %h6, %f6\n"
    CONV("7", "y6") "  %m7 = min %a7, @zero\n  %e7 = exp %m7\n  %f7 = sub %e7, @one\n  %l7 = lt %a7, @zero\n  %y7 = select %l7, %f7, %a7\n"
    CONV("8", "y7") "  %m8 = max %a8, @low\n  %y8 = min %m8, @high\n"
    CONV("9", "y8") "  %m9 = mul %a9, @slope\n  %l9 = lt %a9, @zero\n  %y9 = select %l9, %m9, %a9\n"
    CONV("10", "y9") "  %s10 = sigmoid %a10\n  %z10 = mul %a10, %s10\n  %y10 = add %z10, %y9\n"
    CONV("11", "y10") "  %y11 = abs %a11\n  return %y11\n}\n";
enum { ACTIVATIONS = 10 };

/* What is spelled like an activation of cuDNN's and is none: a slope above 1, bounds that cross; the first is one. */
static const char no_activations[] =
    "graph @g(%x: f32[batch,8,9,11]) {\n"
    "  @w = const f32[8,8,3,3] data(1)\n  @b = const f32[8,1,1] data(2)\n  @slope = const f32[] {0.125}\n"
    "  @steep = const f32[] {1.5}\n  @low = const f32[] {0.0625}\n  @high = const f32[] {0.03125}\n"
    CONV("1", "x") "  %m1 = mul %a1, @slope\n  %y1 = max %a1, %m1\n"
    CONV("2", "y1") "  %m2 = mul %a2, @steep\n  %y2 = max %a2, %m2\n"
    CONV("3", "y2") "  %m3 = max %a3, @low\n  %y3 = min %m3, @high\n  %y = add %y3, %y2\n  return %y, %y1\n}\n";

/* Transposed: strides, groups, dilation, padding of one side alone, a longer end; one axis, three. */
static const char transposed[] =
    "graph @g(%x: f32[batch,8,5,6]) {\n"
    "  @w1 = const f32[8,16,3,3] data(1)\n  @w2 = const f32[16,4,4,2] data(2)\n  @w3 = const f32[8,8,3,3] data(3)\n"
    "  @b1 = const f32[16,1,1] data(4)\n  @b3 = const f32[8,1,1] data(5)\n  @zero = const f32[] {0}\n"
    "  %c1 = conv_transpose %x, @w1 {strides=[2,2], pads=[1,1,1,1], dilations=[1,1], group=1} : "
    "f32[batch,16,10,11]\n"
    "  %a1 = add %c1, @b1\n  %r1 = max %a1, @zero\n"
    "  %c2 = conv_transpose %r1, @w2 {strides=[2,1], pads=[1,0,1,0], dilations=[1,1], group=2} : "
    "f32[batch,8,20,12]\n"
    "  %c3 = conv_transpose %c2, @w3 {strides=[1,3], pads=[0,2,1,0], dilations=[2,1], group=1} : "
    "f32[batch,8,23,34]\n"
    "  %a3 = add %c3, @b3\n  return %a3\n}\n";
static const char transposed_line[] =
    "graph @g(%x: f32[batch,8,20]) {\n"
    "  @w1 = const f32[8,16,5] data(1)\n"
    "  %c1 = conv_transpose %x, @w1 {strides=[3], pads=[2,2], dilations=[1], group=1} : f32[batch,16,58]\n"
    "  return %c1\n}\n";
static const char transposed_space[] =
    "graph @g(%x: f32[batch,8,3,4,5]) {\n"
    "  @w1 = const f32[8,8,2,3,2] data(1)\n  @b1 = const f32[8,1,1,1] data(2)\n"
    "  %c1 = conv_transpose %x, @w1 {strides=[2,2,2], pads=[0,1,0,0,1,0], dilations=[1,1,1], group=1} : f32[batch,8,6,7,10]\n"
    "  %a1 = add %c1, @b1\n  return %a1\n}\n";

/* The same weights in two. */
static const char transposed_twice[] =
    "graph @g(%x: f32[batch,8,5,6]) {\n"
    "  @w = const f32[8,8,3,3] data(1)\n"
    "  %y = conv_transpose %x, @w {strides=[2,2], pads=[1,1,1,1], dilations=[1,1], group=1} : f32[batch,8,9,11]\n"
    "  %z = conv_transpose %x, @w {strides=[1,3], pads=[0,0,0,0], dilations=[2,1], group=1} : f32[batch,8,9,18]\n"
    "  return %y, %z\n}\n";

/* A convolution of one tap, which our kernels do as a product, by tensor maps on sm_90a. */
static const char product[] =
    "graph @g(%x: f32[1,128,batch]) {\n"
    "  @w = const f32[4864,128,1] data(1)\n"
    "  %y = conv %x, @w {strides=[1], pads=[0,0], dilations=[1], group=1} : f32[1,4864,batch]\n"
    "  return %y\n}\n";

/* ---- helpers ---- */

static int alive(void) { return cudnn_mock ? cudnn_mock->descriptors + cudnn_mock->handles : 0; }

static void forget_counts(void) {
  cudnn_mock->graphs = cudnn_mock->plans = 0;
  memset(cudnn_mock->ran, 0, sizeof cudnn_mock->ran);
}

/* ---- what is computed ---- */

static void test_results(void) {
  char said[1000];
  compile(plane, "--target=sm_80");
  forget_counts();
  both(4, 2e-6f, said);
  CHECK_STR_HAS(said, "device 0 'Mock GPU' (sm_89), driver for CUDA 13.0, kernels: sm_80; cuDNN 9.19.0 (");
  CHECK_STR_HAS(said, "faster for 8 of 8 convolutions so far"); /* four at two batch sizes */
  /* f32 is never rounded, and results are the same at every run */
  CHECK_INT_EQ(cudnn_mock->ran[0] + cudnn_mock->ran[1] + cudnn_mock->ran[3] + cudnn_mock->ran[4], 0);
  /* timed nine times each; then the eager run and the recording: replays are not cuDNN's calls */
  CHECK_INT_EQ(cudnn_mock->ran[2], 8 * (9 + 2));
}

/* On the default stream: what cuDNN does is recorded on another one like the rest, and replayed with other inputs. */
static void test_stream(void) {
  char said[1000];
  int recordings = mock->recordings;
  compile(line, "--target=sm_80");
  stream = (void *)1;
  both(4, 2e-6f, said);
  stream = NULL;
  CHECK_STR_HAS(said, "faster for 2 of 2 convolutions so far");
  CHECK_INT_EQ(mock->recordings - recordings, 2 * 2 + 2); /* both ways of each, to time them; the runs */
}

static void test_axes(void) {
  char said[1000];
  const char *texts[] = {line, space};
  for (int i = 0; i < 2; i++) {
    compile(texts[i], "--target=sm_80");
    both(3, 2e-6f, said);
    CHECK_STR_HAS(said, "faster for 2 of 2 convolutions so far");
  }
}

/* With fixed sizes a convolution of one tap is a product of matrices; it is given to cuDNN all the same. */
static void test_fixed(void) {
  static const char *const options[] = {"--target=sm_80 --dim batch=1", "--target=sm_80 --dim batch=1 --fp16"};
  batches = 1;
  for (int i = 0; i < 2; i++) {
    char said[1000];
    compile(plane, options[i]);
    both(3, i ? 3e-3f : 2e-6f, said);
    CHECK_STR_HAS(said, "faster for 4 of 4 convolutions so far");
  }
  batches = 2;
}

static void test_half(void) {
  static const char *const options[] = {"--target=sm_80 --fp16", "--target=sm_80 --bf16", "--target=sm_80 --tf32"};
  for (int i = 0; i < 3; i++) {
    char said[1000];
    compile(plane, options[i]);
    forget_counts();
    both(3, i == 1 ? 3e-2f : 3e-3f, said);
    CHECK_STR_HAS(said, "faster for 8 of 8 convolutions so far");
    /* where engines differ in more than their settings, both were timed; the faster one is used */
    CHECK(cudnn_mock->ran[0] > cudnn_mock->ran[2] && (i == 2 || cudnn_mock->ran[2]));
    CHECK_INT_EQ(cudnn_mock->ran[1] + cudnn_mock->ran[3], 0);
  }
}

/* Engines for them are compiled when they are needed: of f32 only in TF32. */
static void test_activations(void) {
  static const char *const options[] = {"--target=sm_80 --tf32", "--target=sm_80 --fp16", "--target=sm_80 --bf16"};
  for (int i = 0; i < 3; i++) {
    char said[1000], faster[60];
    compile(activations, options[i]);
    forget_choices();
    both(3, i == 2 ? 2e-1f : i ? 5e-2f : 1e-3f, said); /* halves are rounded eleven times */
    snprintf(faster, sizeof faster, "faster for %d of %d convolutions so far", 2 * ACTIVATIONS, 2 * ACTIVATIONS);
    CHECK_STR_HAS(said, faster);
  }
  forget_choices();
}

static void test_no_activations(void) {
  char said[1000];
  compile(no_activations, "--target=sm_80 --tf32");
  forget_choices();
  both(3, 1e-3f, said);
  CHECK_STR_HAS(said, "faster for 2 of 2 convolutions so far"); /* the first, at two batch sizes */
  forget_choices();
}

static void test_transposed(void) {
  static const char *const texts[] = {transposed, transposed_line, transposed_space, transposed_twice};
  static const int counts[] = {3, 1, 1, 2};
  static const char *const options[] = {"--target=sm_80", "--target=sm_80 --fp16", "--target=sm_80 --fp16 --dim batch=1"};
  for (int i = 0; i < 4 * 3; i++) {
    char said[1000], faster[80];
    batches = i % 3 == 2 ? 1 : 2;
    compile(texts[i / 3], options[i % 3]);
    forget_choices();
    both(3, i % 3 ? 4e-3f : 4e-6f, said);
    snprintf(faster, sizeof faster, "faster for %d of %d transposed convolutions so far", counts[i / 3] * batches,
             counts[i / 3] * batches);
    CHECK_STR_HAS(said, faster);
  }
  batches = 2;
  forget_choices();
}

static void test_own_is_faster(void) {
  char said[1000];
  compile(plane, "--target=sm_80");
  forget_choices();
  forget_counts();
  mock->kernel_us = 1;
  both(3, 2e-6f, said);
  mock->kernel_us = 10;
  CHECK_STR_HAS(said, "faster for 0 of 8 convolutions so far");
  CHECK_INT_EQ(cudnn_mock->ran[2], 8 * 9);
  forget_choices();
}

/* Calls of cuDNN's cost the host much; recorded runs do not pay that, so it does not count. */
static void test_host_time(void) {
  char said[1000];
  compile(plane, "--target=sm_80");
  forget_choices();
  cudnn_mock->host_us = 1000;
  both(3, 2e-6f, said);
  cudnn_mock->host_us = 0;
  CHECK_STR_HAS(said, "faster for 8 of 8 convolutions so far");
  forget_choices();
}

/* An engine that cannot be recorded is not used in runs that are, however fast it is. */
static void test_not_recorded(void) {
  char said[1000];
  compile(plane, "--target=sm_80");
  forget_choices();
  int recordings = mock->recordings;
  cudnn_mock->not_recorded = 1 + 2;
  both(3, 2e-6f, said);
  cudnn_mock->not_recorded = 0;
  CHECK_STR_HAS(said, "faster for 0 of 8 convolutions so far");
  CHECK(!strstr(said, "kernel by kernel"));
  CHECK(mock->recordings > recordings);
  forget_choices();
}

/* Where it is ours after all, it is done as it would be without cuDNN. */
static void test_own_by_tensor_maps(void) {
  char said[1000];
  int before = mock->maps;
  compile(product, "--target=sm_90a --fp16");
  batches = 1;
  mock->capability = 90;
  cudnn_mock->graph_code = 3001;
  both(1, 3e-3f, said);
  CHECK_STR_HAS(said, "faster for 0 of 1 products");
  CHECK_INT_EQ(mock->maps - before, 2); /* of two factors */
  cudnn_mock->graph_code = 0;
  mock->capability = 89;
  batches = 2;
  forget_choices();
}

/* ---- attention ---- */

static void test_attention(void) {
  static const char *const options[] = {"--target=sm_80 --fp16", "--target=sm_80 --bf16",
                                        "--target=sm_80 --fp16 --dim batch=1"};
  char said[1000], faster[60];
  for (int i = 0; i < 3; i++) {
    batches = i == 2 ? 1 : 2;
    compile(attentions, options[i]);
    forget_choices();
    forget_counts();
    both(3, i == 1 ? 3e-2f : 3e-3f, said);
    snprintf(faster, sizeof faster, "faster for %d of %d attentions so far", ATTENTIONS * batches,
             ATTENTIONS * batches);
    CHECK_STR_HAS(said, faster);
    /* timed ten times each, the fastest runs once more and is recorded; two are not the same at every run */
    CHECK_INT_EQ(cudnn_mock->ran[0], ATTENTIONS * batches * (9 + 2));
    CHECK_INT_EQ(cudnn_mock->ran[4], ATTENTIONS * batches * 9);
    CHECK_INT_EQ(cudnn_mock->ran[1] + cudnn_mock->ran[3], 0);
  }
  batches = 2;
}

/* What it does not take, or computes otherwise than our kernel does, is ours. */
static void test_attention_refused(void) {
  char said[1000], none[60];
  int *const codes[] = {&cudnn_mock->graph_code, &cudnn_mock->plan_code, &cudnn_mock->execute_code};
  compile(attentions, "--target=sm_80 --fp16");
  for (int i = 0; i < CHECK_COUNT(codes); i++) {
    forget_choices();
    *codes[i] = i < 2 ? 3001 : 5000;
    both(2, 3e-3f, said);
    snprintf(none, sizeof none, "faster for 0 of %d attentions", 2 * ATTENTIONS);
    CHECK_STR_HAS(said, none);
    *codes[i] = 0;
  }
  forget_choices();
}

static void test_wrong_results(void) {
  static const char *const texts[] = {attentions, plane}, *const kinds[] = {"attentions", "convolutions"};
  static const int counts[] = {2 * ATTENTIONS, 8}, right[] = {2 * ATTENTIONS, 6}; /* two have no other engine */
  for (int i = 0; i < 2; i++) {
    char said[1000], faster[60];
    compile(texts[i], "--target=sm_80 --fp16");
    forget_choices();
    cudnn_mock->wrong = 0; /* the fastest */
    forget_counts();
    both(2, 3e-3f, said);
    snprintf(faster, sizeof faster, "faster for %d of %d %s so far", right[i], counts[i], kinds[i]);
    CHECK_STR_HAS(said, faster);
    CHECK_INT_EQ(cudnn_mock->ran[0], counts[i] * 9);
    CHECK(cudnn_mock->ran[2] + cudnn_mock->ran[4] > right[i] * 18);
    cudnn_mock->wrong = -1;
  }
  forget_choices();
}

/* ---- what is remembered ---- */

/* Runs that time nothing but `timed` convolutions. */
static void expect_timed(int timed) {
  char said[1000];
  forget_counts();
  both(2, 2e-6f, said);
  CHECK_STR_HAS(said, "faster for 8 of 8 convolutions so far");
  CHECK_INT_EQ(cudnn_mock->ran[2], 8 * 2 + timed * 9);
}

/* Writes the choices with one byte changed, or the end missing. */
static void damage(const char *text, size_t n, size_t at) {
  FILE *f = fopen(choices_file(), "w");
  CHECK_REQUIRE(f);
  fwrite(text, 1, at, f);
  if (at < n) {
    fputc(text[at] == '7' ? '8' : '7', f);
    fwrite(text + at + 1, 1, n - at - 1, f);
  }
  fclose(f);
}

static void test_choices(void) {
  static char text[4000], again[4000];
  compile(plane, "--target=sm_80");
  forget_choices();
  expect_timed(8);
  expect_timed(0);
  FILE *f = fopen(choices_file(), "r");
  CHECK_REQUIRE(f);
  size_t n = fread(text, 1, sizeof text - 1, f);
  fclose(f);
  CHECK_STR_HAS(text, "Mock GPU, sm_89, 58 multiprocessors, driver 13000, cuDNN 91900\n");
  char *second = strchr(text, '\n') + 1;
  static const int places[] = {0, 12, 17, 20, 30, 45}; /* in the key, the choice, the times, the checksum */
  for (int i = 0; i < CHECK_COUNT(places); i++) {
    damage(text, n, (size_t)(second - text) + (size_t)places[i]);
    expect_timed(1);
    expect_timed(0);
  }
  damage(text, n, 3); /* the first line */
  expect_timed(8);
  damage(text, n / 2, n / 2);
  forget_counts();
  char said[1000];
  both(1, 2e-6f, said);
  CHECK(cudnn_mock->ran[2] > 8 + 9 && cudnn_mock->ran[2] < 8 + 80);
  expect_timed(0);
  f = fopen(choices_file(), "r");
  CHECK_REQUIRE(f);
  CHECK_INT_EQ(fread(again, 1, sizeof again - 1, f), n);
  fclose(f);
  cudnn_mock->version = 92000; /* another version, another file */
  expect_timed(8);
  cudnn_mock->version = 91900;
  CHECK_STR_EQ(choices_file(), "");
  forget_choices();
}

/* Results that are all 0 are equal, but say little: the choice holds for the context, and is not kept. */
static void test_zeros(void) {
  char said[1000] = "";
  cyto_error error = {0};
  compile(transposed_line, "--target=sm_80");
  forget_choices();
  memset(input, 0, sizeof input);
  for (int i = 0; i < 2; i++) {
    cyto_model *model = load("net.so");
    cyto_context *context = NULL;
    CHECK_REQUIRE(model && !cyto_context_create(model, NULL, &context, &error));
    CHECK_INT_EQ(run(context, model, 1, &error), CYTO_OK);
    cyto_context_describe(context, said, sizeof said);
    CHECK_STR_HAS(said, "faster for 1 of 1 transposed convolutions so far");
    CHECK_INT_EQ(*choices_file() != 0, i);
    cyto_context_destroy(context);
    cyto_model_unload(model);
    new_input(1);
  }
  forget_choices();
}

/* A kernel decides for so many sizes; at others it runs itself, and those that were decided stay. */
enum { DECIDED = 64 };
static void test_many_sizes(void) {
  char said[1000] = "";
  cyto_error error = {0};
  cyto_model *model;
  cyto_context *context = NULL;
  compile(line, "--target=sm_80");
  forget_choices();
  new_input(1);
  model = load("net.so");
  CHECK_REQUIRE(model && !cyto_context_create(model, NULL, &context, &error));
  for (int batch = 1; batch <= DECIDED + 6; batch++)
    CHECK_INT_EQ(run(context, model, batch, &error), CYTO_OK);
  cyto_context_describe(context, said, sizeof said);
  CHECK_STR_HAS(said, "faster for 64 of 64 convolutions so far");
  int before = cudnn_mock->ran[2];
  CHECK_INT_EQ(run(context, model, DECIDED + 3, &error), CYTO_OK);
  CHECK_INT_EQ(cudnn_mock->ran[2], before);
  CHECK_INT_EQ(run(context, model, 2, &error), CYTO_OK);
  CHECK_INT_EQ(cudnn_mock->ran[2], before + 1);
  cyto_context_destroy(context);
  cyto_model_unload(model);
  CHECK_INT_EQ(alive(), 0);
  forget_choices();
}

/* Without a folder that can be written, everything works but remembering. */
static void test_no_cache(void) {
  compile(plane, "--target=sm_80");
  setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
  expect_timed(8);
  expect_timed(8);
  setenv("XDG_CACHE_HOME", cache, 1);
}

/* A plan that was chosen once and cannot be made any more: everything is timed again. */
static void test_stale_plan(void) {
  char said[1000];
  compile(line, "--target=sm_80");
  forget_choices();
  both(1, 2e-6f, said);
  cudnn_mock->plan_code = 3000;
  both(1, 2e-6f, said);
  CHECK_STR_HAS(said, "faster for 0 of 2 convolutions so far");
  cudnn_mock->plan_code = 0;
  forget_choices();
  both(1, 2e-6f, said);
  cudnn_mock->workspace = (size_t)1 << 40; /* more than there is by now */
  both(1, 2e-6f, said);
  CHECK_STR_HAS(said, "faster for 0 of 2 convolutions so far");
  cudnn_mock->workspace = 1000;
  forget_choices();
}

/* ---- what can be wrong ---- */

static void test_absent(void) {
  compile(plane, "--target=sm_80 --cudnn=require");
  setenv("CYTO_CUDNN", "", 1);
  fails(CYTO_NO_DEVICE,
        "the model is compiled with --cudnn=require, but there is no libcudnn.so.9 because CYTO_CUDNN is "
        "empty: install it (pip: nvidia-cudnn-cu13");
  compile(plane, "--target=sm_80");
  char said[1000];
  both(2, 2e-6f, said);
  CHECK_STR_HAS(said, "; cuDNN is not used: no libcudnn.so.9 because CYTO_CUDNN is empty");
  setenv("CYTO_CUDNN", dir, 1);
  fails(CYTO_NO_DEVICE, "where there is no libcudnn.so.9");
  setenv("CYTO_CUDNN", folder, 1);
}

/* Where Python's packages lie; before the mock is in the process, where the loader would find it by its name. */
static void test_places(void) {
  static char venv[PATH_MAX];
  int found = 1;
  pid_t child = fork(); /* what is opened once by this name is found again */
  if (!child)
    _exit(dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL) != NULL);
  CHECK_REQUIRE(child > 0 && waitpid(child, &found, 0) == child);
  if (found) {
    check_skipped = "the loader finds cuDNN before that";
    return;
  }
  compile(plane, "--target=sm_80");
  unsetenv("CYTO_CUDNN");
  snprintf(venv, sizeof venv, "%s/venv", dir);
  setenv("VIRTUAL_ENV", venv, 1);
  run_command("mkdir -p %s/lib/python3.9/site-packages/nvidia/cudnn/lib && "
              "echo no library > %s/lib/python3.9/site-packages/nvidia/cudnn/lib/libcudnn.so.9%s",
              venv, venv, "");
  fails(CYTO_NO_DEVICE, "venv/lib/python3.9/site-packages/nvidia/cudnn/lib/libcudnn.so.9 cannot be used: ");
  unsetenv("VIRTUAL_ENV");
  setenv("CYTO_CUDNN", folder, 1);
}

/* The loader finds what the process has already opened. */
static void test_loader(void) {
  char said[1000];
  compile(plane, "--target=sm_80 --cudnn=require");
  unsetenv("CYTO_CUDNN");
  both(1, 2e-6f, said);
  CHECK_STR_HAS(said, "; cuDNN 9.19.0 (libcudnn.so.9): faster for 8 of 8");
  setenv("CYTO_CUDNN", folder, 1);
}

static void test_wrong(void) {
  compile(plane, "--target=sm_80");
  cudnn_mock->version = 8907;
  fails(CYTO_NO_DEVICE, "it is cuDNN 8, but 9 is expected");
  cudnn_mock->version = 100100;
  fails(CYTO_NO_DEVICE, "it is cuDNN 10, but 9 is expected");
  cudnn_mock->version = 91900;
  mock->driver_version = 12040;
  fails(CYTO_NO_DEVICE, "cuDNN 9.19.0 is built for CUDA 13, but the driver supports CUDA 12.4; install another (pip: "
                        "nvidia-cudnn-cu12");
  mock->driver_version = 13000;
  cudnn_mock->create_code = 1001;
  fails(CYTO_RUNTIME_FAILURE, "cudnnCreate: CUDNN_STATUS_OTHER (1001): the test wants it; compile with --cudnn=off");
  cudnn_mock->create_code = 0;
  cudnn_mock->graph_code = 4000;
  fails(CYTO_RUNTIME_FAILURE, "a graph's cudnnBackendFinalize: CUDNN_STATUS_OTHER (4000): the test wants it");
  cudnn_mock->graph_code = 0;
  write_file("libcudnn.so.9", "no library", 10);
  setenv("CYTO_CUDNN", dir, 1);
  fails(CYTO_NO_DEVICE, "libcudnn.so.9 cannot be used: ");
  unlink(path_of("libcudnn.so.9"));
  setenv("CYTO_CUDNN", folder, 1);
}

/* Convolutions that it does not take are ours. */
static void test_unsupported(void) {
  int *const codes[] = {&cudnn_mock->graph_code, &cudnn_mock->plan_code, &cudnn_mock->execute_code};
  compile(plane, "--target=sm_80");
  for (int i = 0; i < CHECK_COUNT(codes); i++) {
    char said[1000];
    forget_choices();
    *codes[i] = i < 2 ? 3001 : 5000;
    both(3, 2e-6f, said);
    CHECK_STR_HAS(said, "faster for 0 of 8");
    *codes[i] = 0;
  }
  forget_choices();
}

/* Nor what it calls wrong, which is told. */
static void test_called_wrong(void) {
  char said[1000];
  compile(plane, "--target=sm_80");
  forget_choices();
  cudnn_mock->graph_code = 2000;
  both(3, 2e-6f, said);
  CHECK_STR_HAS(said, "faster for 0 of 8 convolutions so far; a call failed: a graph's cudnnBackendFinalize: "
                      "CUDNN_STATUS_BAD_PARAM (2000)");
  cudnn_mock->graph_code = 0;
  forget_choices();
}

/* One that was chosen and then fails is an error, not another kernel. */
static void test_fails_later(void) {
  char said[1000];
  compile(plane, "--target=sm_80");
  forget_choices();
  both(1, 2e-6f, said);
  cudnn_mock->execute_code = 5001;
  fails(CYTO_RUNTIME_FAILURE, "cudnnBackendExecute: CUDNN_STATUS_OTHER (5001)");
  cudnn_mock->execute_code = 0;
}

static void test_memory(void) {
  char said[1000];
  compile(plane, "--target=sm_80");
  forget_choices();
  cudnn_mock->workspace = (size_t)1 << 40; /* too much: another engine, or ours */
  both(2, 2e-6f, said);
  CHECK_STR_HAS(said, "faster for 0 of 8");
  cudnn_mock->workspace = 1000;
  forget_choices();
}

static void test_off(void) {
  char said[1000];
  compile(plane, "--target=sm_80 --cudnn=off");
  cudnn_mock->version = 8907;
  both(2, 2e-6f, said);
  CHECK(!strstr(said, "cuDNN"));
  cudnn_mock->version = 91900;
}

static void test_options(void) {
  static const char *const rows[][2] = {
      {"--target=native --cudnn=auto", "--cudnn is for CUDA"},
      {"--target=sm_80 --cudnn=maybe", "--cudnn' expects auto, off or require, found 'maybe'"}};
  for (int i = 0; i < CHECK_COUNT(rows); i++) {
    char command[3 * PATH_MAX], said[4000] = "";
    write_file("net.txt", line, strlen(line));
    snprintf(command, sizeof command, "%s/cytoc %s -o %s/bad.so %s 2>&1", build, path_of("net.txt"), dir, rows[i][0]);
    FILE *f = popen(command, "r");
    CHECK_REQUIRE(f);
    said[fread(said, 1, sizeof said - 1, f)] = 0;
    CHECK(pclose(f) != 0);
    CHECK_STR_HAS(said, rows[i][1]);
  }
}

/* ---- the real library, where there is one ---- */

/* A convolution of `rank` axes with `flags` tensors and dtype. */
static cyrt_cuda_problem convolution(int64_t rank, int64_t dtype, int bias, int residual, int relu, int64_t group) {
  cyrt_cuda_problem p = {.kind = CYRT_PROBLEM_CONV,
                         .epilogue = {relu ? CYRT_ACTIVATION_RELU : CYRT_ACTIVATION_NONE, 0x3f800000, 0, 0}};
  cyrt_cuda_conv *c = &p.conv;
  int64_t x = 16, y = 32;
  *c = (cyrt_cuda_conv){.nspatial = rank, .group = group, .images = 2, .channels_in = 16, .channels_out = 32};
  for (int64_t i = rank - 1; i >= 0; i--) {
    c->in[i] = c->out[i] = 9 + i;
    c->pad[i] = 1;
    c->kernel[i] = 3;
    c->stride[i] = c->dilation[i] = 1;
    p.tensor[CYRT_CONV_X].stride[1 + i] = x;
    p.tensor[CYRT_CONV_Y].stride[1 + i] = p.tensor[CYRT_PROBLEM_RESIDUAL].stride[1 + i] = y;
    x *= c->in[i];
    y *= c->out[i];
  }
  for (int i = 0; i < CYRT_PROBLEM_TENSORS; i++) {
    p.tensor[i].slot = i;
    p.tensor[i].dtype = dtype;
    p.tensor[i].stride[0] = i == CYRT_CONV_X ? x : y;
  }
  p.tensor[CYRT_PROBLEM_BIAS].dtype = CYTO_F32;
  if (!bias)
    p.tensor[CYRT_PROBLEM_BIAS].slot = -1;
  if (!residual)
    p.tensor[CYRT_PROBLEM_RESIDUAL].slot = -1;
  return p;
}

static cyrt_cuda_problem attention(int64_t dtype, int bias, int causal, int64_t past, int64_t key_heads, int mask,
                                   int64_t window) {
  cyrt_cuda_problem p = {.kind = CYRT_PROBLEM_ATTENTION, .flags = causal ? CYRT_ATTENTION_CAUSAL : 0};
  const int64_t extents[CYRT_PROBLEM_TENSORS][3] = {{4, 24, 64}, {key_heads, 40, 64}, {key_heads, 40, 32},
                                                    {4, 24, 40}, {4, 24, 40},         {4, 24, 32}};
  p.attention = (cyrt_cuda_attention){2, 4, key_heads, 24, 40, 64, 32, past, window, 0x3e000000, (int32_t)0xc7000000};
  for (int i = 0; i < CYRT_PROBLEM_TENSORS; i++) {
    const int64_t *e = extents[i];
    p.tensor[i] = (cyrt_cuda_tensor){i, dtype, 0, {e[0] * e[1] * e[2], e[1] * e[2], e[2], 1}};
  }
  if (bias == 1) /* the same for all heads and rows */
    p.tensor[CYRT_ATTENTION_BIAS] = (cyrt_cuda_tensor){CYRT_ATTENTION_BIAS, CYTO_F32, 0, {40, 0, 0, 1}};
  if (!bias)
    p.tensor[CYRT_ATTENTION_BIAS].slot = -1;
  p.tensor[CYRT_ATTENTION_MASK].dtype = CYTO_BOOL;
  if (!mask)
    p.tensor[CYRT_ATTENTION_MASK].slot = -1;
  return p;
}

/* Sizes known only at run time, which no engine is asked about. */
static void test_refused_attention(void) {
  cyrt_cuda_problem p = attention(CYTO_F16, 1, 0, 0, 4, 0, 0);
  CHECK(cyrt_cudnn_kind(&p)->takes(&p));
  p.tensor[CYRT_ATTENTION_BIAS].stride[3] = 0; /* one number for all keys */
  CHECK(!cyrt_cudnn_kind(&p)->takes(&p));
  p = attention(CYTO_F16, 1, 0, 0, 4, 0, 0);
  p.attention.keys = 41;
  CHECK(!cyrt_cudnn_kind(&p)->takes(&p));
  p = attention(CYTO_F16, 0, 1, -1, 4, 0, 0);
  CHECK(!cyrt_cudnn_kind(&p)->takes(&p));
}

static void check_graph(const cudnn *lib, const cyrt_cuda_problem *p, int wrong) {
  cudnn_graph graph;
  cyto_error error = {0};
  const char *call = NULL;
  CHECK(wrong || cyrt_cudnn_kind(p)->takes(p));
  cudnn_code code = cyrt_cudnn_graph_init(lib, NULL, p, &graph, &call);
  if (wrong)
    CHECK(code != 0);
  else if (cyrt_cudnn_check(lib, code, call, &error))
    CHECK_FAIL("%s", error.message);
  cyrt_cudnn_graph_deinit(lib, &graph);
}

/* What cuDNN says of a device to itself: H200, A100 and RTX 5090. */
static const char device_text[] =
    "{\"deviceVer\":%d,\"multiProcessorCount\":%d,\"maxSharedMemoryPerBlockOptin\":%d,\"l2CacheSize\":%d,"
    "\"maxThreadsPerSM\":%d,\"maxCtasPerSM\":%d,\"cudaDeviceId\":0,\"driverVer\":13000,\"totalGlobalMem\":85899345920,"
    "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,\"warpSize\":32,"
    "\"maxSharedMemoryPerBlock\":49152,\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,"
    "\"maxThreadsPerBlock\":1024,\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,"
    "\"smClockRateKHz\":1800000,\"memClockRateKHz\":1215000,\"deviceName\":\"none\"}";
static const int devices[][6] = {{900, 132, 232448, 62914560, 2048, 32},
                                 {800, 108, 166912, 41943040, 2048, 32},
                                 {1200, 170, 101376, 100663296, 1536, 24}};

static cudnn_descriptor make_device(const cudnn *lib, const int of[6]) {
  cudnn_descriptor d = NULL;
  char text[1000];
  int n = snprintf(text, sizeof text, device_text, of[0], of[1], of[2], of[3], of[4], of[5]);
  if (lib->make(CUDNN_DEVICE, &d) || lib->set(d, CUDNN_DEVICE_JSON, CUDNN_T_CHAR, n, text) || lib->finish(d))
    CHECK_FAIL("cuDNN does not take the description of a device");
  return d;
}

/* Convolutions as our kernels' models have them get several plans that need no compiling, on a device that is not there. */
static void check_candidates(const cudnn *lib, cudnn_descriptor device, const cyrt_cuda_problem *p) {
  cudnn_graph graph;
  cudnn_plan plan = {.plan = NULL};
  const char *call = NULL;
  CHECK_INT_EQ(cyrt_cudnn_graph_init(lib, NULL, p, &graph, &call), 0);
  CHECK_INT_EQ(cyrt_cudnn_graph_candidates(lib, p, device, &graph, &call), 0);
  CHECK(graph.n_candidates > 0);
  for (int i = 0; i < graph.n_candidates; i++)
    CHECK(!graph.compiles[i]);
  if (graph.n_candidates)
    CHECK_INT_EQ(cyrt_cudnn_plan_init(lib, NULL, &graph, 0, &plan), 0);
  if (plan.plan)
    lib->free(plan.plan);
  cyrt_cudnn_graph_deinit(lib, &graph);
}

static void check_real_candidates(const cudnn *lib) {
  static const int64_t dtypes[] = {CYTO_F32, CYTO_F16, CYTO_BF16};
  for (int d = 0; d < CHECK_COUNT(devices) && lib->version >= 90800; d++) {
    cudnn_descriptor device = make_device(lib, devices[d]);
    for (int i = 0; i < 3 * 4; i++) { /* with and without residual, ReLU */
      cyrt_cuda_problem p = convolution(2, dtypes[i % 3], 1, i / 3 & 1, i / 3 & 2, 1);
      p.tensor[CYRT_PROBLEM_BIAS].dtype = dtypes[i % 3];
      p.flags |= dtypes[i % 3] == CYTO_F32 ? CYRT_PROBLEM_EXACT : 0;
      check_candidates(lib, device, &p);
    }
    lib->free(device);
  }
}

static int check_real_graphs(void) {
  static const int64_t dtypes[] = {CYTO_F16, CYTO_BF16, CYTO_F32};
  char where[400];
  cyto_error error = {0};
  cudnn *real = NULL;
  unsetenv("CYTO_CUDNN");
  if (cyrt_cudnn_find(13000, &real, where, &error) || !real)
    return ABSENT;
  for (int i = 0; i < 3 * 2 * 8 * 2; i++) {
    cyrt_cuda_problem p = convolution(2 + i / 3 % 2, dtypes[i % 3], i / 6 & 1, i / 6 & 2, i / 6 & 4, i / 48 ? 4 : 1);
    check_graph(real, &p, 0);
  }
  for (int i = 0; i < CYRT_ACTIVATIONS * 3 * 4; i++) { /* of convolutions, transposed or not, with a residual behind them or none */
    cyrt_cuda_problem p = convolution(2, dtypes[i % 3], 1, i / 3 & 1, 0, 1);
    p.kind = i / 3 & 2 ? CYRT_PROBLEM_CONV_TRANSPOSE : CYRT_PROBLEM_CONV;
    p.flags = i / 3 & 1 ? CYRT_PROBLEM_AFTER : 0;
    p.epilogue = (cyrt_cuda_epilogue){i / 12, 0x3f000000, 0x3e800000, 0x40000000};
    check_graph(real, &p, 0);
  }
  cyrt_cuda_problem bad = convolution(2, CYTO_F32, 1, 1, 1, 3); /* 3 groups of 16 channels */
  check_graph(real, &bad, 1);
  for (int i = 0; i < 2 * 3 * 2 * 2 * 3; i++) {
    for (int extra = 0; extra < 4; extra++) {
      cyrt_cuda_problem p = attention(dtypes[i % 2], i / 2 % 3, i / 6 & 1, i / 12 & 1 ? 16 : 0, 1 << i / 24, extra & 1,
                                      extra & 2 ? 9 : 0);
      check_graph(real, &p, 0);
    }
  }
  bad = attention(CYTO_F16, 0, 0, 0, 3, 0, 0); /* 4 heads that share 3 */
  check_graph(real, &bad, 1);
  check_real_candidates(real);
  return check_failures ? FAILED : PASSED;
}

/* Needs no device. */
static void test_real_graphs(void) { check_apart(check_real_graphs, "cuDNN is not installed"); }

static void open_mock_cudnn(void) {
  char path[PATH_MAX + 80];
  snprintf(path, sizeof path, "%s/libcudnn.so.9", folder);
  cudnn_mock = mock_state(path, "mock_cudnn");
}

static const check_test tests[] = {
    {"*open mock", open_mock},
    {"places", test_places},
    {"attention of refused sizes", test_refused_attention},
    {"graphs of the real library", test_real_graphs},
    {"*open mock of cuDNN", open_mock_cudnn},
    {"results", test_results},
    {"stream", test_stream},
    {"one and three axes", test_axes},
    {"fixed sizes", test_fixed},
    {"half precision", test_half},
    {"activations", test_activations},
    {"no activations", test_no_activations},
    {"transposed", test_transposed},
    {"own is faster", test_own_is_faster},
    {"host time", test_host_time},
    {"not recorded", test_not_recorded},
    {"own by tensor maps", test_own_by_tensor_maps},
    {"attention", test_attention},
    {"attention refused", test_attention_refused},
    {"wrong results", test_wrong_results},
    {"choices", test_choices},
    {"zeros", test_zeros},
    {"many sizes", test_many_sizes},
    {"no cache", test_no_cache},
    {"stale plan", test_stale_plan},
    {"absent", test_absent},
    {"by the loader", test_loader},
    {"wrong", test_wrong},
    {"unsupported", test_unsupported},
    {"called wrong", test_called_wrong},
    {"fails later", test_fails_later},
    {"memory", test_memory},
    {"off", test_off},
    {"options", test_options},
};

static int prepare(void) {
  snprintf(folder, sizeof folder, "%s/tests/cuda/mock/cudnn", build);
  snprintf(cache, sizeof cache, "%s/choices", dir);
  setenv("CYTO_CUDNN", folder, 1);
  setenv("XDG_CACHE_HOME", cache, 1);
  return 0;
}

int main(int argc, char **argv) { return models_main(argc, argv, tests, CHECK_COUNT(tests), prepare); }
