/* SPDX-License-Identifier: Apache-2.0 */
/* cublaslt_test.c - cuBLASLt's share of CUDA models, without a GPU: a mock of the library (mock_cublaslt.c) computes products,
 * results are compared with the CPU target.
 *
 * Which products it is given and with which epilogue, that timing decides, that choices are kept, and every way in which the
 * library can be missing or fail: our own kernel is taken then. Where the real library or its header is installed, its
 * numbers and the calls that need no device are checked.
 */
#define _GNU_SOURCE
#if __has_include(<cublasLt.h>) && __has_include(<cuda_runtime_api.h>)
#include <cublasLt.h>
#define HAS_HEADER 1
#else
#define HAS_HEADER 0
#endif
#include "runtime/cuda/cublaslt_numbers.h"
#include "runtime/cuda/cyrt_choose.h"
#include "tests/cuda/choose.h"
#include "tests/cuda/mock/mock_cublaslt.h"

static char folder[PATH_MAX + 40]; /* of the mock library */
static mock_cublaslt_state *lt;
static int alive(void) { return lt ? lt->descriptors + lt->handles : 0; }

/* Plain; with the weights transposed, a bias and a ReLU; a bias and GELU by tanh; a residual; both factors computed, the second one
 * transposed, batches, scaled. The last two have epilogues that cuBLASLt lacks. */
static const char products[] =
    "graph @g(%x: f32[batch,16,24]) {\n"
    "  @w1 = const f32[24,32] data(1)\n  @w2 = const f32[40,32] data(2)\n  @w3 = const f32[40,32] data(3)\n"
    "  @w4 = const f32[32,32] data(4)\n  @w5 = const f32[32,40] data(5)\n  @w6 = const f32[16,16] data(6)\n"
    "  @b2 = const f32[40] data(7)\n  @b3 = const f32[32] data(8)\n  @b4 = const f32[32] data(9)\n"
    "  @zero = const f32[] {0}\n  @half = const f32[] {0.5}\n  @one = const f32[] {1}\n  @part = const f32[] {0.125}\n"
    "  @cube = const f32[] {0.044715}\n  @root = const f32[] {0.7978846}\n"
    "  %p1 = matmul %x, @w1 : f32[batch,16,32]\n"
    "  %t2 = transpose @w2 {perm=[1,0]} : f32[32,40]\n"
    "  %p2 = matmul %p1, %t2 : f32[batch,16,40]\n  %a2 = add %p2, @b2\n  %r2 = max %a2, @zero\n"
    "  %p3 = matmul %r2, @w3 : f32[batch,16,32]\n  %a3 = add %p3, @b3\n  %s3 = mul %a3, %a3\n  %c3 = mul %s3, %a3\n"
    "  %d3 = mul %c3, @cube\n  %e3 = add %a3, %d3\n  %f3 = mul %e3, @root\n  %h3 = tanh %f3\n  %i3 = add %h3, @one\n"
    "  %j3 = mul %a3, @half\n  %g3 = mul %j3, %i3\n"
    "  %p4 = matmul %g3, @w4 : f32[batch,16,32]\n  %a4 = add %p4, @b4\n  %r4 = add %a4, %g3\n"
    "  %q = tanh %r4\n  %kt = transpose %q {perm=[0,2,1]} : f32[batch,32,16]\n"
    "  %p5 = matmul %r4, %kt : f32[batch,16,16]\n  %v5 = mul %p5, @part\n"
    "  %p6 = matmul @w6, %r4 : f32[batch,16,32]\n  %y6 = add %p6, %q\n  %z6 = sigmoid %y6\n"
    "  %p7 = matmul %z6, @w5 : f32[batch,16,40]\n  %y7 = abs %p7\n"
    "  return %y7, %v5, %p1\n}\n";
enum { PRODUCTS = 5 };
static const char *const plain = "--target=sm_80 --cudnn=off";

/* Nothing here lies in steps of 16 bytes. */
static const char odd[] = "graph @g(%x: f32[batch,7,13]) {\n"
                          "  @w1 = const f32[13,11] data(1)\n  @b1 = const f32[11] data(2)\n"
                          "  %p1 = matmul %x, @w1 : f32[batch,7,11]\n  %a1 = add %p1, @b1\n  return %a1\n}\n";

/* Convolutions of one tap are products. */
static const char point[] =
    "graph @g(%x: f32[batch,16,5,8]) {\n"
    "  @w1 = const f32[32,16,1,1] data(1)\n  @w2 = const f32[32,32,1,1] data(2)\n  @b1 = const f32[32,1,1] data(3)\n"
    "  @b2 = const f32[32,1,1] data(4)\n  @zero = const f32[] {0}\n"
    "  %c1 = conv %x, @w1 {strides=[1,1], pads=[0,0,0,0], dilations=[1,1], group=1} : f32[batch,32,5,8]\n"
    "  %a1 = add %c1, @b1\n  %r1 = max %a1, @zero\n"
    "  %c2 = conv %r1, @w2 {strides=[1,1], pads=[0,0,0,0], dilations=[1,1], group=1} : f32[batch,32,5,8]\n"
    "  %a2 = add %c2, @b2\n  %s2 = add %a2, %r1\n  return %s2\n}\n";

/* ---- what is computed ---- */

static void forget_counts(void) {
  lt->asked = 0;
  memset(lt->ran, 0, sizeof lt->ran);
  memset(lt->with_epilogue, 0, sizeof lt->with_epilogue);
}

static void expect_share(const char *said, int won, int of) {
  char text[80];
  snprintf(text, sizeof text, "faster for %d of %d products so far", won, of);
  CHECK_STR_HAS(said, text);
}

static void test_results(void) {
  static const char *const options[] = {"", "--tf32", "--fp16", "--bf16", "--dim batch=2", "--fp16 --dim batch=1"};
  for (int i = 0; i < CHECK_COUNT(options); i++) {
    char said[1000], with[200];
    snprintf(with, sizeof with, "%s %s", plain, options[i]);
    batches = strstr(with, "--dim") ? 1 : 2;
    compile(products, with);
    forget_choices();
    forget_counts();
    both(3, !i || i == 4 ? 2e-5f : i == 3 ? 3e-2f : 4e-3f, said);
    CHECK_STR_HAS(said, "; cuBLASLt 13.1.0 (");
    expect_share(said, PRODUCTS * batches, PRODUCTS * batches);
    /* sums are never added up in place, nor is more workspace asked for than there may be */
    CHECK(!lt->ran[1] && !lt->ran[2]);
    /* timed nine times each; the fastest runs once more and is recorded */
    CHECK_INT_EQ(lt->ran[0], PRODUCTS * batches * (9 + 2));
    CHECK_INT_EQ(lt->ran[3], PRODUCTS * batches * 9);
    CHECK(lt->with_epilogue[LT_EPILOGUE_DEFAULT] && lt->with_epilogue[LT_EPILOGUE_BIAS] &&
          lt->with_epilogue[LT_EPILOGUE_BIAS | LT_EPILOGUE_RELU] &&
          lt->with_epilogue[LT_EPILOGUE_BIAS | LT_EPILOGUE_GELU]);
  }
  batches = 2;
  forget_choices();
}

static void test_odd_sizes(void) {
  static const char *const options[] = {"", "--fp16"};
  for (int i = 0; i < 2; i++) {
    char said[1000], with[200];
    snprintf(with, sizeof with, "%s %s", plain, options[i]);
    compile(odd, with);
    forget_counts();
    both(3, i ? 3e-3f : 5e-6f, said);
    expect_share(said, 2, 2);
    CHECK_INT_EQ(lt->ran[4], 2 * (9 + 2));
    CHECK_INT_EQ(lt->ran[0] + lt->ran[3], 0);
  }
  forget_choices();
}

/* Each goes to the fastest of three: cuDNN takes products as convolutions of one tap. */
static void test_beside_cudnn(void) {
  static const char *const options[] = {"", "--dim batch=1", "--tf32", "--tf32 --dim batch=1"};
  char cudnn[PATH_MAX + 80];
  snprintf(cudnn, sizeof cudnn, "%s/../cudnn", folder);
  setenv("CYTO_CUDNN", cudnn, 1);
  for (int i = 0; i < CHECK_COUNT(options); i++) {
    char said[1000], with[200], all[80], none[80];
    batches = i % 2 ? 1 : 2;
    snprintf(with, sizeof with, "--target=sm_80 %s", options[i]);
    snprintf(all, sizeof all, "): faster for %d of %d products so far", 2 * batches, 2 * batches);
    snprintf(none, sizeof none, "): faster for 0 of %d products so far", 2 * batches);
    compile(point, with);
    lt->algorithm_us[0] = 1;
    both(3, i < 2 ? 5e-6f : 4e-3f, said);
    CHECK_STR_HAS(said, "; cuDNN 9.19.0 (");
    CHECK_STR_HAS(strstr(said, "; cuDNN"), none);
    CHECK_STR_HAS(strstr(said, "; cuBLASLt"), all);
    lt->algorithm_us[0] = lt->algorithm_us[3] = lt->algorithm_us[4] = 9;
    forget_choices();
    both(3, i < 2 ? 5e-6f : 4e-3f, said);
    CHECK_STR_HAS(strstr(said, "; cuDNN"), all);
    CHECK_STR_HAS(strstr(said, "; cuBLASLt"), none);
    lt->algorithm_us[0] = 5;
    lt->algorithm_us[3] = 6;
    lt->algorithm_us[4] = 7;
    forget_choices();
  }
  batches = 2;
  setenv("CYTO_CUDNN", "", 1);
}

static void test_own_is_faster(void) {
  char said[1000];
  compile(products, plain);
  forget_choices();
  mock->kernel_us = 1;
  both(3, 2e-5f, said);
  mock->kernel_us = 10;
  expect_share(said, 0, PRODUCTS * 2);
  forget_choices();
}

/* Calls cost the host much; recorded runs do not pay that, so it does not count. */
static void test_host_time(void) {
  char said[1000];
  compile(products, plain);
  lt->host_us = 1000;
  both(3, 2e-5f, said);
  lt->host_us = 0;
  expect_share(said, PRODUCTS * 2, PRODUCTS * 2);
  forget_choices();
}

static void test_not_recorded(void) {
  char said[1000];
  compile(products, plain);
  forget_counts();
  lt->not_recorded = 1;
  both(3, 2e-5f, said);
  lt->not_recorded = 0;
  expect_share(said, PRODUCTS * 2, PRODUCTS * 2);
  CHECK_INT_EQ(lt->ran[3], PRODUCTS * 2 * (9 + 2)); /* the next best is */
  forget_choices();
}

static void test_wrong_results(void) {
  char said[1000];
  compile(products, plain);
  forget_counts();
  lt->wrong = 0;
  both(2, 2e-5f, said);
  lt->wrong = -1;
  expect_share(said, PRODUCTS * 2, PRODUCTS * 2);
  CHECK_INT_EQ(lt->ran[0], PRODUCTS * 2 * 9);
  forget_choices();
}

/* What is known is not timed again; another version of the library is another file. */
static void test_choices(void) {
  char said[1000], text[4000];
  compile(products, plain);
  both(2, 2e-5f, said);
  for (int i = 0; i < 2; i++) {
    forget_counts();
    both(2, 2e-5f, said);
    expect_share(said, PRODUCTS * 2, PRODUCTS * 2);
    CHECK_INT_EQ(lt->ran[0], PRODUCTS * 2 * 2);
    CHECK_INT_EQ(lt->ran[3], 0);
  }
  FILE *f = fopen(choices_file(), "r");
  CHECK_REQUIRE(f);
  text[fread(text, 1, sizeof text - 1, f)] = 0;
  fclose(f);
  CHECK_STR_HAS(text, "Mock GPU, sm_89, 58 multiprocessors, driver 13000, cuBLASLt 130100\n");
  lt->version = 130200;
  forget_counts();
  both(2, 2e-5f, said);
  CHECK_INT_EQ(lt->ran[3], PRODUCTS * 2 * 9);
  lt->version = 130100;
  forget_choices();
}

/* cyto-tune measures ours and theirs for each batch that it tries, and what runs afterwards takes the choice from the file. */
static void test_tune(void) {
  char said[1000];
  compile(odd, plain);
  forget_choices();
  batches = 1;
  setenv("TUNED", path_of("tuned.json"), 1);
  CHECK_INT_EQ(
      run_command("LD_LIBRARY_PATH=%s/tests/cuda/mock %s/cyto-tune %s -o $TUNED --tune-seconds=5 >/dev/null 2>&1",
                  build, build, path_of("net.so")),
      0);
  CHECK(*choices_file());
  forget_counts();
  both(2, 5e-6f, said);
  expect_share(said, 1, 1);
  CHECK_INT_EQ(lt->ran[4], 2); /* nothing is timed */
  batches = 2;
  forget_choices();
}

/* ---- what can be wrong ---- */

/* Runs that are all ours, and what the context says of it. */
static void expect_own(const char *text) {
  char said[1000];
  both(3, 2e-5f, said);
  CHECK_STR_HAS(said, text);
  const char *again = strstr(said, text);
  CHECK(again && !strstr(again + 1, text));
  forget_choices();
}

static void test_absent(void) {
  compile(products, "--target=sm_80 --cudnn=off --cublaslt=require");
  setenv("CYTO_CUBLASLT", "", 1);
  fails(CYTO_NO_DEVICE, "the model is compiled with --cublaslt=require, but there is no libcublasLt.so.13 because "
                        "CYTO_CUBLASLT is empty: install it (pip: nvidia-cublas-cu13");
  compile(products, plain);
  expect_own("; cuBLASLt is not used: no libcublasLt.so.13 because CYTO_CUBLASLT is empty");
  setenv("CYTO_CUBLASLT", dir, 1);
  expect_own("where there is no libcublasLt.so.13");
  setenv("CYTO_CUBLASLT", folder, 1);
}

static void test_wrong(void) {
  compile(products, plain);
  lt->cudart = 14000;
  expect_own("it is built for CUDA 14, but the driver supports CUDA 13.0");
  lt->cudart = 13000;
  lt->create_code = 3;
  expect_own("; cuBLASLt is not used: cublasLtCreate: CUBLAS_STATUS_OTHER (3)");
  compile(products, "--target=sm_80 --cudnn=off --cublaslt=require");
  fails(CYTO_RUNTIME_FAILURE, "--cublaslt=require, but cublasLtCreate: CUBLAS_STATUS_OTHER (3)");
  lt->create_code = 0;
  compile(products, plain);
  write_file("libcublasLt.so.13", "no library", 10);
  setenv("CYTO_CUBLASLT", dir, 1);
  expect_own("libcublasLt.so.13 cannot be used: ");
  run_command("cp %s/tests/cuda/mock/lib64/libnvrtc.so.13 %s/libcublasLt.so.13%s", build, dir, "");
  expect_own("it has no 'cublasLtGetVersion'; install another");
  unlink(path_of("libcublasLt.so.13"));
  setenv("CYTO_CUBLASLT", folder, 1);
}

static void test_unsupported(void) {
  char said[1000];
  compile(products, plain);
  lt->heuristic_code = LT_NOT_SUPPORTED;
  both(3, 2e-5f, said);
  expect_share(said, 0, PRODUCTS * 2);
  CHECK(!strstr(said, "failed")); /* that is an answer */
  forget_choices();
  lt->heuristic_code = 14;
  expect_own("a call failed: cublasLtMatmulAlgoGetHeuristic: CUBLAS_STATUS_OTHER (14)");
  lt->heuristic_code = 0;
  lt->matmul_code = 13;
  expect_own("a call failed: cublasLtMatmul: CUBLAS_STATUS_OTHER (13)");
  lt->matmul_code = 0;
}

/* One that was chosen and then fails is ours from then on. */
static void test_fails_later(void) {
  char said[1000];
  compile(products, plain);
  both(1, 2e-5f, said);
  lt->matmul_code = 13;
  both(3, 2e-5f, said);
  expect_share(said, 0, PRODUCTS * 2);
  CHECK_STR_HAS(said, "a call failed: cublasLtMatmul: CUBLAS_STATUS_OTHER (13)");
  lt->matmul_code = 0;
  forget_choices();
}

static void test_off(void) {
  char said[1000];
  compile(products, "--target=sm_80 --cudnn=off --cublaslt=off");
  forget_counts();
  both(2, 2e-5f, said);
  CHECK(!strstr(said, "cuBLASLt") && !lt->asked);
}

/* Older libraries where the driver is older. */
static void test_older(void) {
  char said[1000];
  compile(products, plain);
  run_command("cp %s/libcublasLt.so.13 %s/libcublasLt.so.12%s", folder, dir, "");
  setenv("CYTO_CUBLASLT", dir, 1);
  both(1, 2e-5f, said);
  CHECK_STR_HAS(said, "libcublasLt.so.12): faster for 10 of 10 products so far");
  mock->driver_version = 12040;
  expect_own("libcublasLt.so.12 cannot be used: it is built for CUDA 13, but the driver supports CUDA 12.4");
  mock->driver_version = 13000;
  setenv("CYTO_CUBLASLT", folder, 1);
  unlink(path_of("libcublasLt.so.12"));
  forget_choices();
}

static void test_options(void) {
  static const char *const rows[][2] = {
      {"--target=native --cublaslt=auto", "--cublaslt is for CUDA"},
      {"--target=sm_80 --cublaslt=maybe", "expects auto, off or require, found 'maybe'"}};
  for (int i = 0; i < CHECK_COUNT(rows); i++) {
    char command[3 * PATH_MAX], said[4000] = "";
    write_file("net.txt", odd, strlen(odd));
    snprintf(command, sizeof command, "%s/cytoc %s -o %s/bad.so %s 2>&1", build, path_of("net.txt"), dir, rows[i][0]);
    FILE *f = popen(command, "r");
    CHECK_REQUIRE(f);
    said[fread(said, 1, sizeof said - 1, f)] = 0;
    CHECK(pclose(f) != 0);
    CHECK_STR_HAS(said, rows[i][1]);
  }
}

/* ---- the real library and its header, where there are any ---- */

#if HAS_HEADER
static void test_header(void) {
  static const int pairs[][2] = {{LT_R_32F, CUDA_R_32F},
                                 {LT_R_16F, CUDA_R_16F},
                                 {LT_R_16BF, CUDA_R_16BF},
                                 {LT_COMPUTE_32F, CUBLAS_COMPUTE_32F},
                                 {LT_COMPUTE_TF32, CUBLAS_COMPUTE_32F_FAST_TF32},
                                 {LT_OP_N, CUBLAS_OP_N},
                                 {LT_OP_T, CUBLAS_OP_T},
                                 {LT_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSA},
                                 {LT_DESC_TRANSB, CUBLASLT_MATMUL_DESC_TRANSB},
                                 {LT_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE},
                                 {LT_DESC_BIAS_POINTER, CUBLASLT_MATMUL_DESC_BIAS_POINTER},
                                 {LT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_DEFAULT},
                                 {LT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU},
                                 {LT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS},
                                 {LT_EPILOGUE_RELU | LT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS},
                                 {LT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU},
                                 {LT_EPILOGUE_GELU | LT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_BIAS},
                                 {LT_LAYOUT_BATCHES, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT},
                                 {LT_LAYOUT_BATCH_STRIDE, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET},
                                 {LT_PREF_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES},
                                 {LT_PREF_REDUCTIONS, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK},
                                 {LT_PREF_ALIGN_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES},
                                 {LT_PREF_ALIGN_D, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES},
                                 {LT_REDUCTION_COMPUTE_TYPE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE},
                                 {LT_NOT_SUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED}};
  for (int i = 0; i < CHECK_COUNT(pairs); i++)
    CHECK_INT_EQ(pairs[i][0], pairs[i][1]);
  CHECK_INT_EQ(sizeof(cublaslt_algorithm), sizeof(cublasLtMatmulHeuristicResult_t));
  CHECK_INT_EQ(offsetof(cublaslt_algorithm, workspace), offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
  CHECK_INT_EQ(offsetof(cublaslt_algorithm, state), offsetof(cublasLtMatmulHeuristicResult_t, state));
  CHECK_INT_EQ(sizeof(cublasLtMatmulAlgo_t), sizeof(uint64_t[8]));
}
#else
static void test_header(void) { check_skipped = "there is no cublasLt.h"; }
#endif

/* What needs no device: descriptors and their attributes. */
static int check_real(void) {
  char why[400];
  void *op = NULL, *layout = NULL, *preference = NULL, *bias = input;
  const int32_t transposed = LT_OP_T, batches_of = 3;
  const uint32_t epilogue = LT_EPILOGUE_GELU | LT_EPILOGUE_BIAS, alignment = 16, reductions = LT_REDUCTION_COMPUTE_TYPE;
  const int64_t apart = 640;
  const uint64_t workspace = 1 << 25;
  unsetenv("CYTO_CUBLASLT");
  cublaslt *real = cyrt_cublaslt_find(13000, why);
  if (!real)
    return ABSENT;
  CHECK_INT_EQ(real->op_make(&op, LT_COMPUTE_TF32, LT_R_32F), 0);
  CHECK_INT_EQ(real->op_set(op, LT_DESC_TRANSA, &transposed, sizeof transposed), 0);
  CHECK_INT_EQ(real->op_set(op, LT_DESC_EPILOGUE, &epilogue, sizeof epilogue), 0);
  CHECK_INT_EQ(real->op_set(op, LT_DESC_BIAS_POINTER, &bias, sizeof bias), 0);
  CHECK(real->op_set(op, LT_DESC_EPILOGUE, &epilogue, 1) != 0);
  CHECK_INT_EQ(real->layout_make(&layout, LT_R_16BF, 32, 20, 32), 0);
  CHECK_INT_EQ(real->layout_set(layout, LT_LAYOUT_BATCHES, &batches_of, sizeof batches_of), 0);
  CHECK_INT_EQ(real->layout_set(layout, LT_LAYOUT_BATCH_STRIDE, &apart, sizeof apart), 0);
  CHECK_INT_EQ(real->preference_make(&preference), 0);
  CHECK_INT_EQ(real->preference_set(preference, LT_PREF_WORKSPACE, &workspace, sizeof workspace), 0);
  CHECK_INT_EQ(real->preference_set(preference, LT_PREF_REDUCTIONS, &reductions, sizeof reductions), 0);
  for (int32_t i = LT_PREF_ALIGN_A; i <= LT_PREF_ALIGN_D; i++)
    CHECK_INT_EQ(real->preference_set(preference, i, &alignment, sizeof alignment), 0);
  real->preference_free(preference);
  real->layout_free(layout);
  real->op_free(op);
  CHECK(real->get_version() >= 110000 && real->error_name(15) != NULL);
  return check_failures ? FAILED : PASSED;
}

static void test_real(void) { check_apart(check_real, "cuBLASLt is not installed"); }

static void open_mock_cublaslt(void) {
  char path[PATH_MAX + 80];
  snprintf(path, sizeof path, "%s/libcublasLt.so.13", folder);
  lt = mock_state(path, "mock_cublaslt");
}

static const check_test tests[] = {
    {"*open mock", open_mock},
    {"header", test_header},
    {"the real library", test_real},
    {"*open mock of cuBLASLt", open_mock_cublaslt},
    {"results", test_results},
    {"odd sizes", test_odd_sizes},
    {"beside cuDNN", test_beside_cudnn},
    {"own is faster", test_own_is_faster},
    {"host time", test_host_time},
    {"not recorded", test_not_recorded},
    {"wrong results", test_wrong_results},
    {"choices", test_choices},
    {"tune", test_tune},
    {"absent", test_absent},
    {"wrong", test_wrong},
    {"unsupported", test_unsupported},
    {"fails later", test_fails_later},
    {"off", test_off},
    {"older", test_older},
    {"options", test_options},
};

static int prepare(void) {
  snprintf(folder, sizeof folder, "%s/tests/cuda/mock/cublas", build);
  snprintf(cache, sizeof cache, "%s/choices", dir);
  setenv("CYTO_CUBLASLT", folder, 1);
  setenv("XDG_CACHE_HOME", cache, 1);
  return 0;
}

int main(int argc, char **argv) { return models_main(argc, argv, tests, CHECK_COUNT(tests), prepare); }
