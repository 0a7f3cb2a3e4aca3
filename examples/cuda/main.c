/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - a model on a CUDA device, among work of the application's: its tensors stay on the device, its memory comes from the
 * application, and runs are steps of the application's stream.
 *
 *   cytoc digits.onnx -o digits.so --target=sm_89
 *   cc main.c libcyto.a -lcuda -lm -lpthread -ldl
 */
#include "cyto.h"

#include <stdio.h>
#include <stdlib.h>

/* What <cuda.h> declares, so that this compiles without a toolkit. */
typedef unsigned long long CUdeviceptr;
int cuInit(unsigned flags);
int cuDeviceGet(int *device, int number);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxPushCurrent_v2(void *context);
int cuStreamCreate(void **stream, unsigned flags);
int cuStreamDestroy_v2(void *stream);
int cuStreamSynchronize(void *stream);
int cuMemAlloc_v2(CUdeviceptr *at, size_t bytes);
int cuMemFree_v2(CUdeviceptr at);
int cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, void *stream);
int cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, void *stream);

enum { BATCH = 3, SIDE = 8, PIXELS = SIDE * SIDE, CLASSES = 10, NON_BLOCKING = 1 };

static void check(int code, const char *what) {
  if (code) {
    fprintf(stderr, "cuda: %s: error %d\n", what, code);
    exit(1);
  }
}

static void check_cyto(cyto_status status, const cyto_error *error) {
  if (status) {
    fprintf(stderr, "cuda: %s\n", error->message);
    exit(1);
  }
}

/* An allocator of the application's: here it only counts. */
typedef struct counter {
  size_t bytes, max;
} counter;

static void *get(void *user, size_t bytes, void *stream) {
  counter *c = user;
  CUdeviceptr at = 0;
  (void)stream;
  if (cuMemAlloc_v2(&at, bytes))
    return NULL;
  c->bytes += bytes;
  c->max = c->bytes > c->max ? c->bytes : c->max;
  return (void *)(size_t)at;
}

static void give(void *user, void *ptr, size_t bytes, void *stream) {
  counter *c = user;
  (void)stream;
  c->bytes -= bytes;
  cuMemFree_v2((CUdeviceptr)(size_t)ptr);
}

int main(int argc, char **argv) {
  cyto_error error = {0};
  cyto_model *model;
  cyto_context *context;
  counter used = {0, 0};
  void *device, *stream;
  int number;
  CUdeviceptr images, scores;
  static float host[BATCH * PIXELS], out[BATCH * CLASSES];
  const int64_t dims[4] = {BATCH, 1, SIDE, SIDE};
  char about[1000];
  if (argc != 2) {
    fprintf(stderr, "usage: cuda DIGITS.so\n");
    return 1;
  }
  check(cuInit(0), "cuInit");
  check(cuDeviceGet(&number, 0), "cuDeviceGet");
  check(cuDevicePrimaryCtxRetain(&device, number), "cuDevicePrimaryCtxRetain");
  check(cuCtxPushCurrent_v2(device), "cuCtxPushCurrent");
  check(cuStreamCreate(&stream, NON_BLOCKING), "cuStreamCreate");
  check(cuMemAlloc_v2(&images, sizeof host), "cuMemAlloc");
  check(cuMemAlloc_v2(&scores, sizeof out), "cuMemAlloc");

  const cyto_options options = {.stream = stream, .device_memory = 1, .device_allocator = {get, give, &used}};
  check_cyto(cyto_model_load(argv[1], &model, &error), &error);
  check_cyto(cyto_context_create(model, &options, &context, &error), &error);
  check_cyto(cyto_bind_input(context, 0, CYTO_F32, 4, dims, (void *)(size_t)images, &error), &error);
  check_cyto(cyto_bind_output(context, 0, (void *)(size_t)scores, sizeof out, &error), &error);

  for (int i = 0; i < BATCH * PIXELS; i++)
    host[i] = (float)(i % 97) / 97;
  check(cuMemcpyHtoDAsync_v2(images, host, sizeof host, stream), "cuMemcpyHtoDAsync");
  check_cyto(cyto_run(context, &error), &error); /* only a step of the stream: nothing has been waited for */
  check(cuMemcpyDtoHAsync_v2(out, scores, sizeof out, stream), "cuMemcpyDtoHAsync");
  check(cuStreamSynchronize(stream), "cuStreamSynchronize");

  cyto_context_describe(context, about, sizeof about);
  printf("%s\n", about);
  for (int i = 0; i < BATCH; i++)
    printf("image %d: score of 0 is %g\n", i, (double)out[i * CLASSES]);
  printf("the context took at most %zu bytes of the device\n", used.max);
  cyto_context_destroy(context);
  cyto_model_unload(model);
  check(cuMemFree_v2(images) | cuMemFree_v2(scores) | cuStreamDestroy_v2(stream), "cleaning up");
  cuDevicePrimaryCtxRelease_v2(number);
  return used.bytes != 0;
}
