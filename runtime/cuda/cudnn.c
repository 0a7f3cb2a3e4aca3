/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cudnn.c - NVIDIA's cuDNN: finding the library, whether it fits, its errors in words.
 *
 * Looked for in this order, and the first that is there is taken: the folder that CYTO_CUDNN names, and then nowhere
 * else (empty: nowhere at all); where the loader looks (LD_LIBRARY_PATH, ldconfig); the Python environment that is
 * active; CUDA_HOME and the toolkit's usual places; Python packages of the user and of the system. One that is there
 * but cannot be used is an error: it is what the user means to use.
 */
#define _GNU_SOURCE
#include "cyrt_cudnn.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "libcudnn.so.9"
enum { MAJOR = 9 };

/* Variable with a root ("": none), and the folder below it; '*' allowed. */
static const struct {
  const char *variable, *folder;
} places[] = {
    {"VIRTUAL_ENV", "/lib/python3*/site-packages/nvidia/cudnn/lib"},
    {"CUDA_HOME", "/lib64"},
    {"", "/usr/local/cuda/lib64"},
    {"", "/usr/lib/" CYRT_ARCH "-linux-gnu"},
    {"HOME", "/.local/lib/python3*/site-packages/nvidia/cudnn/lib"},
    {"", "/usr/local/lib/python3*/dist-packages/nvidia/cudnn/lib"},
    {"", "/usr/local/lib/python3*/site-packages/nvidia/cudnn/lib"},
    {"", "/usr/lib/python3*/dist-packages/nvidia/cudnn/lib"},
};

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

/* ---- opening ---- */

static cyto_status unusable(const char *path, const char *why, cyto_error *error) {
  return cyrt_error_set(error, CYTO_NO_DEVICE,
                        "%s cannot be used: %s; install another (pip: nvidia-cudnn-cu12 or -cu13, as the driver), name "
                        "its folder in CYTO_CUDNN, or compile the model with --cudnn=off",
                        path, why);
}

static cyto_status open_path(cudnn *lib, const char *path, cyto_error *error) {
  snprintf(lib->path, sizeof lib->path, "%s", path);
  lib->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  return lib->library ? CYTO_OK : unusable(path, dlerror(), error);
}

/* Opens the last match (the newest of several Pythons) of a folder's pattern, if there is one. */
static cyto_status open_in(cudnn *lib, const char *folder, cyto_error *error) {
  char pattern[500];
  glob_t found = {0};
  cyto_status status = CYTO_OK;
  snprintf(pattern, sizeof pattern, "%s/" NAME, folder);
  if (glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc)
    status = open_path(lib, found.gl_pathv[found.gl_pathc - 1], error);
  globfree(&found);
  return status;
}

/* The loader's own search; a library that is not there is no error, one that lacks something is. */
static cyto_status open_by_loader(cudnn *lib, cyto_error *error) {
  static const char absent[] = NAME ": cannot open shared object file: No such file";
  lib->library = dlopen(NAME, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  const char *why = lib->library ? NULL : dlerror();
  snprintf(lib->path, sizeof lib->path, NAME);
  return !why || !strncmp(why, absent, sizeof absent - 1) ? CYTO_OK : unusable(NAME, why, error);
}

static cyto_status open_library(cudnn *lib, char where[400], cyto_error *error) {
  const char *named = getenv("CYTO_CUDNN");
  char folder[400];
  snprintf(where, 400,
           named ? "no " NAME " because CYTO_CUDNN is empty"
                 : "no " NAME " where the loader looks, in the active Python environment, CUDA_HOME, the "
                   "toolkit or the system's Python packages");
  if (named && !*named)
    return CYTO_OK;
  if (named) {
    cyto_status status = open_in(lib, named, error);
    return status || lib->library
               ? status
               : cyrt_error_set(error, CYTO_NO_DEVICE, "CYTO_CUDNN names '%s', where there is no " NAME, named);
  }
  cyto_status status = open_by_loader(lib, error);
  for (size_t i = 0; i < sizeof places / sizeof *places && !status && !lib->library; i++) {
    const char *root = *places[i].variable ? getenv(places[i].variable) : "";
    if (!root || (*places[i].variable && !*root))
      continue;
    snprintf(folder, sizeof folder, "%s%s", root, places[i].folder);
    status = open_in(lib, folder, error);
  }
  return status;
}

/* ---- does it fit? ---- */

static cyto_status resolve(cudnn *lib, cyto_error *error) {
  void *symbol;
#define X(name, member, result, params)                                                                                \
  symbol = dlsym(lib->library, #name);                                                                                 \
  if (!symbol)                                                                                                         \
    return unusable(lib->path, "it has no '" #name "'", error);                                                        \
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
    return unusable(lib->path, why, error);
  }
  if (cudart / 1000 > (size_t)driver / 1000) {
    snprintf(why, sizeof why, "cuDNN %u.%u.%u is built for CUDA %zu, but the driver supports CUDA %d.%d",
             lib->version / 10000, lib->version / 100 % 100, lib->version % 100, cudart / 1000, driver / 1000,
             driver % 1000 / 10);
    return unusable(lib->path, why, error);
  }
  return CYTO_OK;
}

cyto_status cyrt_cudnn_find(int32_t driver_version, cudnn **out, char where[400], cyto_error *error) {
  cudnn *lib = calloc(1, sizeof *lib);
  *out = NULL;
  if (!lib)
    return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for cuDNN's tables");
  cyto_status status = open_library(lib, where, error);
  if (!status && lib->library)
    status = resolve(lib, error);
  if (!status && lib->library)
    status = check_versions(lib, driver_version, error);
  if (!status && lib->library)
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
