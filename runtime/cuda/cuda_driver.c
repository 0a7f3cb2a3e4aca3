/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cuda_driver.c - the NVIDIA driver's library: opening it by name, and its errors in words.
 *
 * libcuda.so.1 comes with the driver and with nothing else; a model for CUDA must load (and say what is wrong) on
 * machines without it. Whatever fails is reported by the driver's own name of the error and what to do about it.
 */
#define _GNU_SOURCE
#include "cyrt_cuda.h"

#include <dlfcn.h>
#include <string.h>

/* The driver's codes that a person can do something about. */
#define OLD_DRIVER                                                                                                     \
  "the model's kernels are of a newer CUDA than the driver's: update the driver, or compile with an older NVRTC, "     \
  "as pip install nvidia-cuda-nvrtc-cu12 has it"
#define BROKEN                                                                                                         \
  "a kernel, of this model or of another part of the process, failed: from here on this process cannot use the "       \
  "device; compute-sanitizer tells which kernel it was"
#define CAPTURE "the application captures a stream meanwhile: run the model before or after that"
static const struct {
  cuda_code code;
  cyto_status status;
  const char *advice;
} known[] = {
    {3, CYTO_NO_DEVICE,
     "a process that was forked by one that had used CUDA cannot use it: fork earlier, or start a new program"},
    {34, CYTO_NO_DEVICE, "this libcuda.so.1 is the stub that serves linking: remove its folder from LD_LIBRARY_PATH"},
    {100, CYTO_NO_DEVICE,
     "no CUDA device is visible: check `nvidia-smi`, CUDA_VISIBLE_DEVICES, and that a container was given a GPU"},
    {101, CYTO_INVALID_ARGUMENT, "there is no device of this number"},
    {46, CYTO_NO_DEVICE,
     "the device is in use by another process, or its compute mode forbids it: check `nvidia-smi -q -d COMPUTE`"},
    {200, CYTO_BAD_LIBRARY, OLD_DRIVER},
    {209, CYTO_BAD_LIBRARY, OLD_DRIVER}, /* the image was chosen to fit the device */
    {214, CYTO_RUNTIME_FAILURE,
     "the device's memory had an error that cannot be corrected: see `nvidia-smi -q -d ECC`"},
    {218, CYTO_BAD_LIBRARY, "the driver cannot translate the model's PTX"},
    {221, CYTO_BAD_LIBRARY,
     "libnvidia-ptxjitcompiler.so.1 of the driver is missing, which translates PTX: install it, or compile the model "
     "with the device's --target=sm_.."},
    {222, CYTO_BAD_LIBRARY,
     "the model's PTX is newer than the driver: update the driver, or compile with the device's --target=sm_.."},
    {700, CYTO_RUNTIME_FAILURE, BROKEN},
    {702, CYTO_RUNTIME_FAILURE,
     "a kernel ran longer than a device that has a display allows: use one without, or smaller inputs"},
    {715, CYTO_RUNTIME_FAILURE, BROKEN},
    {716, CYTO_RUNTIME_FAILURE, BROKEN},
    {717, CYTO_RUNTIME_FAILURE, BROKEN},
    {718, CYTO_RUNTIME_FAILURE, BROKEN},
    {719, CYTO_RUNTIME_FAILURE, BROKEN},
    {802, CYTO_NO_DEVICE,
     "the devices are not ready: where NVSwitch joins them, start nvidia-fabricmanager, of the driver's version"},
    {803, CYTO_NO_DEVICE, "the driver's library does not fit its kernel module: reboot after a driver update"},
    {804, CYTO_NO_DEVICE,
     "compatibility libraries in use do not support this device: remove them from LD_LIBRARY_PATH"},
    {900, CYTO_RUNTIME_FAILURE, CAPTURE},
    {901, CYTO_RUNTIME_FAILURE, CAPTURE},
    {906, CYTO_RUNTIME_FAILURE, CAPTURE},
    {999, CYTO_RUNTIME_FAILURE,
     "the driver does not say what failed: check `nvidia-smi`, and that the kernel module nvidia_uvm is loaded"},
};

cyto_status cyrt_cuda_check(const cuda_driver *driver, cuda_code code, const char *call, cyto_error *error) {
  const char *name = NULL;
  if (!code)
    return CYTO_OK;
  if (!driver->error_name || driver->error_name(code, &name) || !name)
    name = "unknown error";
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (known[i].code == code)
      return cyrt_error_set(error, known[i].status, "%s: %s (%d): %s", call, name, code, known[i].advice);
  size_t available, total;
  if (code == CUDA_OUT_OF_MEMORY && !driver->mem_info(&available, &total))
    return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "%s: %s (%d): %llu bytes of the device are free, of %llu", call,
                          name, code, (unsigned long long)available, (unsigned long long)total);
  return cyrt_error_set(error, code == CUDA_OUT_OF_MEMORY ? CYTO_OUT_OF_MEMORY : CYTO_RUNTIME_FAILURE, "%s: %s (%d)",
                        call, name, code);
}

static cyto_status resolve(cuda_driver *driver, cyto_error *error) {
  void *symbol;
#define X(name, member, params)                                                                                        \
  symbol = dlsym(driver->library, #name);                                                                              \
  if (!symbol)                                                                                                         \
    return cyrt_error_set(error, CYTO_NO_DEVICE, "libcuda.so.1 has no '%s': update the NVIDIA driver to 525 or newer", \
                          #name);                                                                                      \
  memcpy(&driver->member, &symbol, sizeof symbol);
  CUDA_FUNCTIONS(X)
#undef X
  return CYTO_OK;
}

cyto_status cyrt_cuda_driver_open(cuda_driver *driver, const cyrt_model *model, cyto_error *error) {
  driver->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE); /* it has threads of its own */
  if (!driver->library)
    return cyrt_error_set(error, CYTO_NO_DEVICE,
                          "the model is compiled for CUDA (%s), but the NVIDIA driver was not found (%s): install it "
                          "(Debian: 'nvidia-driver', Ubuntu: 'nvidia-driver-580'), or compile with --target=native",
                          model->target, dlerror());
  cyto_status status = resolve(driver, error);
  return status ? status : cyrt_cuda_check(driver, driver->init(0), "cuInit", error);
}

void cyrt_cuda_driver_close(cuda_driver *driver) {
  if (driver->library)
    dlclose(driver->library);
}

cyto_status cyrt_cuda_get(const cuda_driver *driver, cuda_ptr *out_ptr, uint64_t bytes, const char *what,
                          cyto_error *error) {
  size_t available = 0, total = 0;
  *out_ptr = 0;
  cuda_code code = driver->mem_alloc(out_ptr, bytes ? bytes : 1);
  if (code != CUDA_OUT_OF_MEMORY)
    return cyrt_cuda_check(driver, code, "cuMemAlloc", error);
  driver->mem_info(&available, &total);
  return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no device memory for %s: %llu bytes needed, %llu free of %llu",
                        what, (unsigned long long)bytes, (unsigned long long)available, (unsigned long long)total);
}

cyto_status cyrt_cuda_get_pinned(const cuda_driver *driver, void **out_ptr, uint64_t bytes, const char *what,
                                 cyto_error *error) {
  *out_ptr = NULL;
  cuda_code code = driver->host_alloc(out_ptr, bytes ? bytes : 1, 0);
  if (code != CUDA_OUT_OF_MEMORY)
    return cyrt_cuda_check(driver, code, "cuMemHostAlloc", error);
  return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no pinned host memory for %s: %llu bytes needed", what,
                        (unsigned long long)bytes);
}
