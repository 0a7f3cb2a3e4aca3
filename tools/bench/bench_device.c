/* SPDX-License-Identifier: Apache-2.0 */
/* bench_device.c - which CUDA device cyto-bench compiles for: the one that a context without options uses. */
#include "bench.h"

#include "runtime/cuda/cyrt_cuda.h"

#include <stdio.h>

/* The architecture with special features where our kernels have a use for them. */
static void arch_name(uint32_t capability, char arch[16]) {
  snprintf(arch, 16, "sm_%u%s", capability, capability == 90 ? "a" : "");
}

static cyto_status ask(const cuda_driver *driver, char arch[16], char text[200], cyto_error *error) {
  int32_t count = 0, handle = 0, version = 0;
  char name[100] = "?";
  cyto_status status = cyrt_cuda_check(driver, driver->device_count(&count), "cuDeviceGetCount", error);
  if (!status)
    status = cyrt_cuda_check(driver, count ? driver->device_get(&handle, 0) : 100, "cuDeviceGet", error);
  if (status)
    return status;
  uint32_t capability = cyrt_cuda_capability(driver, handle);
  driver->device_name(name, sizeof name, handle);
  driver->driver_version(&version);
  arch_name(capability, arch);
  snprintf(text, 200, "%s (sm_%u), driver for CUDA %d.%d", name, capability, version / 1000, version % 1000 / 10);
  return CYTO_OK;
}

int cy_bench_device(char arch[16], char text[200], char missing[1024]) {
  const cyrt_model wanted = {.target = "cuda"};
  cuda_driver driver = {.library = NULL};
  cyto_error error = {0};
  cyto_status status = cyrt_cuda_driver_open(&driver, &wanted, &error);
  if (!status)
    status = ask(&driver, arch, text, &error);
  cyrt_cuda_driver_close(&driver);
  snprintf(missing, 1024, "%s", error.message);
  return status != CYTO_OK;
}
