/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cudnn.c - NVIDIA's cuDNN: whether the library fits, its errors in words. cuda_find.c finds it; one that is there but cannot
 * be used is an error: it is what the user means to use.
 */
#include "runtime/cuda/cyrt_choose.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"libcudnn.so.9", NULL};
static const char *const packages[] = {"cudnn", NULL};
static const cuda_sought sought = {"CYTO_CUDNN", names, packages, "nvidia-cudnn-cu12 or -cu13", "--cudnn"};
enum { MAJOR = 9 };

cyto_status cyrt_cudnn_check(const cudnn *lib, cudnn_code code, const char *call, cyto_error *error) {
  char more[300] = "";
  if (!code)
    return CYTO_OK;
  lib->last_error(more, sizeof more);
  more[sizeof more - 1] = 0;
  return cyrt_error_set(error, CYTO_RUNTIME_FAILURE,
                        "cuDNN %u.%u.%u: %s: %s (%d)%s%s; compile with --cudnn=off to do without", lib->version / 10000,
                        lib->version / 100 % 100, lib->version % 100, call, lib->error_name(code), code,
                        *more ? ": " : "", more);
}

/* ---- does it fit? ---- */

static cyto_status resolve(cudnn *lib, cyto_error *error) {
  void *symbol;
#define X(name, member, result, params)                                                                                \
  symbol = dlsym(lib->library, #name);                                                                                 \
  if (!symbol)                                                                                                         \
    return cyrt_sought_unusable(&sought, lib->path, "it has no '" #name "'", error);                                   \
  memcpy(&lib->member, &symbol, sizeof symbol);
  CUDNN_FUNCTIONS(X)
#undef X
  return CYTO_OK;
}

static cyto_status check_versions(cudnn *lib, int32_t driver, cyto_error *error) {
  char why[300];
  size_t version = lib->get_version(), cudart = lib->get_cudart();
  lib->version = (uint32_t)version;
  size_t major = version < 10000 ? version / 1000 : version / 10000; /* older ones counted otherwise */
  if (major != MAJOR) {
    snprintf(why, sizeof why, "it is cuDNN %zu, but %d is expected", major, MAJOR);
    return cyrt_sought_unusable(&sought, lib->path, why, error);
  }
  if (cudart / 1000 > (size_t)driver / 1000) {
    snprintf(why, sizeof why, "cuDNN %u.%u.%u is built for CUDA %zu, but the driver supports CUDA %d.%d",
             lib->version / 10000, lib->version / 100 % 100, lib->version % 100, cudart / 1000, driver / 1000,
             driver % 1000 / 10);
    return cyrt_sought_unusable(&sought, lib->path, why, error);
  }
  return CYTO_OK;
}

cyto_status cyrt_cudnn_find(int32_t driver_version, cudnn **out, char where[400], cyto_error *error) {
  cuda_found found;
  *out = NULL;
  cyto_status status = cyrt_cuda_find(&sought, 0, &found, where, error);
  if (status || !found.library)
    return status;
  cudnn *lib = calloc(1, sizeof *lib);
  if (!lib)
    return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for cuDNN's tables");
  lib->library = found.library;
  memcpy(lib->path, found.path, sizeof lib->path);
  status = resolve(lib, error);
  if (!status)
    status = check_versions(lib, driver_version, error);
  if (!status)
    *out = lib;
  else
    cyrt_cudnn_close(lib);
  return status;
}

void cyrt_cudnn_close(cudnn *lib) {
  if (lib && lib->library)
    dlclose(lib->library);
  free(lib);
}
