/* SPDX-License-Identifier: Apache-2.0 */
/* mock_library.h - what the mocks of cuBLASLt and cuDNN share: faults, elements of three types, the mock driver.
 *
 * In:  `mock`, the state of the mock that includes this, with a `fault`. Out: its fail(); numbers in memory; its work on a
 *      stream of the mock driver, which lies in another library and is found by its name.
 */
#ifndef MOCK_LIBRARY_H
#define MOCK_LIBRARY_H

#include "runtime/half.h"
#include "tests/cuda/mock/mock_cuda.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The code of a call that is refused, and why. */
#define fail(code, ...) mock_fail(mock.fault, sizeof mock.fault, code, __VA_ARGS__)
static int mock_fail(char *fault, size_t size, int code, const char *format, ...) __attribute__((format(printf, 4, 5)));
static int mock_fail(char *fault, size_t size, int code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(fault, size, format, args);
  va_end(args);
  return code;
}

/* ---- elements ---- */

typedef enum mock_type { MOCK_F32, MOCK_F16, MOCK_BF16 } mock_type;

static float mock_load(mock_type type, const void *at, int64_t i) {
  float f;
  uint16_t half;
  if (type == MOCK_F32) {
    memcpy(&f, (const char *)at + 4 * i, 4);
    return f;
  }
  memcpy(&half, (const char *)at + 2 * i, 2);
  return type == MOCK_F16 ? cyrt_f16_to_f32(half) : cyrt_bf16_to_f32(half);
}

static void mock_store(mock_type type, void *at, int64_t i, float f) {
  uint16_t half = type == MOCK_F16 ? cyrt_f32_to_f16(f) : cyrt_f32_to_bf16(f);
  if (type == MOCK_F32)
    memcpy((char *)at + 4 * i, &f, 4);
  else
    memcpy((char *)at + 2 * i, &half, 2);
}

/* ---- the mock driver ---- */

static void *mock_symbol(const char *name) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *symbol = dlsym(library, name);
  dlclose(library);
  return symbol;
}

static int mock_is_captured(void *stream) {
  void *symbol = mock_symbol("cuStreamIsCapturing");
  int (*ask)(void *, int *), status = 0;
  memcpy(&ask, &symbol, sizeof symbol);
  ask(stream, &status);
  return status;
}

static double *mock_clock(void) {
  void *symbol = mock_symbol("mock_cuda");
  mock_cuda_state *(*state)(void);
  memcpy(&state, &symbol, sizeof symbol);
  return &state()->clock_us;
}

/* Does work(data) on the stream, see mock_cuda_submit(). */
static int mock_give(void *stream, int (*work)(const void *data), const void *data, size_t bytes) {
  void *symbol = mock_symbol("mock_cuda_submit");
  int (*give)(void *, int (*)(const void *), const void *, size_t);
  memcpy(&give, &symbol, sizeof symbol);
  return give(stream, work, data, bytes);
}

#endif
