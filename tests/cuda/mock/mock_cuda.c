/* SPDX-License-Identifier: Apache-2.0 */
/* mock_cuda.c - a libcuda.so.1 without a GPU: the driver itself, devices and contexts; see mock_internal.h.
 *
 * In:  what the test sets by mock_cuda(). Out: a driver of as many devices as it wants, one context each.
 */
#include "tests/cuda/mock/mock_internal.h"

#include <stdio.h>
#include <stdlib.h>

mock_cuda_state mock_state = {.fail_device = -1,
                              .capability = 89,
                              .devices = 1,
                              .memory = (size_t)1 << 32,
                              .driver_version = 13000,
                              .kernel_us = 10};
pthread_mutex_t mock_mutex = PTHREAD_MUTEX_INITIALIZER;
MOCK_OF_THREAD int mock_stack[MAX_DEPTH], mock_depth;

int mock_unlock(int code) {
  pthread_mutex_unlock(&mock_mutex);
  return code;
}

void mock_count(void) { __atomic_add_fetch(&mock_state.calls, 1, __ATOMIC_RELAXED); }

mock_cuda_state *mock_cuda(void) { return &mock_state; }
int mock_cuda_calls(void) { return mock_state.calls; }
int mock_cuda_launches(void) { return mock_state.launches; }
void mock_cuda_set_devices(int n) { mock_state.devices = n; }
void mock_cuda_set_pools(int has) { mock_state.pools = has; }
int mock_cuda_pool_allocs(void) { return mock_state.pool_allocs; }

int mock_device(void) { return mock_depth ? mock_stack[mock_depth - 1] : 0; }

int mock_failure(void) { return mock_state.fail_nth && ++mock_state.tried == mock_state.fail_nth ? LAUNCH_FAILED : OK; }

/* ---- driver, devices, contexts ---- */

int cuInit(unsigned flags) {
  mock_count();
  (void)flags;
  if (getenv("CY_MOCK_CAPABILITY"))
    mock_state.capability = atoi(getenv("CY_MOCK_CAPABILITY"));
  return mock_state.init_code;
}

int cuDriverGetVersion(int *version) {
  mock_count();
  *version = mock_state.driver_version;
  return OK;
}

int cuGetErrorName(int code, const char **name) {
  mock_count();
  *name = code == 100             ? "CUDA_ERROR_NO_DEVICE"
          : code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
                                  : "CUDA_ERROR_OTHER";
  return OK;
}

int cuDeviceGetCount(int *count) {
  mock_count();
  *count = mock_state.devices;
  return OK;
}

int cuDeviceGet(int *device, int number) {
  mock_count();
  *device = number + FIRST_DEVICE;
  return number < mock_state.devices ? OK : INVALID_DEVICE;
}

int cuDeviceGetName(char *name, int length, int device) {
  mock_count();
  (void)device;
  snprintf(name, (size_t)length, "Mock GPU");
  return OK;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
  mock_count();
  (void)device;
  *value = attribute == 75    ? mock_state.capability / 10
           : attribute == 76  ? mock_state.capability % 10
           : attribute == 16  ? 58
           : attribute == 115 ? mock_state.pools
                              : 0;
  return OK;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
  mock_count();
  *context = (void *)(uintptr_t)device;
  mock_state.retained++;
  return OK;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
  mock_count();
  (void)device;
  mock_state.retained--;
  return OK;
}

int cuCtxPushCurrent_v2(void *context) {
  mock_count();
  if (mock_state.push_code)
    return mock_state.push_code;
  if (!context || mock_depth == MAX_DEPTH)
    return INVALID_VALUE;
  mock_stack[mock_depth++] = (int)(uintptr_t)context;
  return OK;
}

int cuCtxGetCurrent(void **context) {
  mock_count();
  *context = mock_depth ? (void *)(uintptr_t)mock_stack[mock_depth - 1] : NULL;
  return OK;
}

int cuCtxPopCurrent_v2(void **context) {
  mock_count();
  if (!mock_depth)
    return INVALID_VALUE;
  *context = (void *)(uintptr_t)mock_stack[--mock_depth];
  return OK;
}
