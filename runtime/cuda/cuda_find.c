/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cuda_find.c - where libraries of NVIDIA are that do without being linked: cuDNN, cuBLASLt.
 *
 * Looked for in this order, and the first that is there is taken: the folder that a variable names, and then nowhere else
 * (empty: nowhere at all); where the loader looks (LD_LIBRARY_PATH, ldconfig); the Python environment that is active;
 * CUDA_HOME and the toolkit's usual places; Python packages of the user and of the system. Of several names the first is
 * looked for everywhere before the next is.
 */
#define _GNU_SOURCE
#include "cyrt_choose.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Variable with a root ("": none), and the folder below it; '*' allowed, %s: a package of NVIDIA's. */
static const struct {
  const char *variable, *folder;
} places[] = {
    {"VIRTUAL_ENV", "/lib/python3*/site-packages/nvidia/%s/lib"},
    {"CUDA_HOME", "/lib64"},
    {"", "/usr/local/cuda/lib64"},
    {"", "/usr/lib/" CYRT_ARCH "-linux-gnu"},
    {"HOME", "/.local/lib/python3*/site-packages/nvidia/%s/lib"},
    {"", "/usr/local/lib/python3*/dist-packages/nvidia/%s/lib"},
    {"", "/usr/local/lib/python3*/site-packages/nvidia/%s/lib"},
    {"", "/usr/lib/python3*/dist-packages/nvidia/%s/lib"},
};

cyto_status cyrt_sought_unusable(const cuda_sought *what, const char *path, const char *why, cyto_error *error) {
  return cyrt_error_set(error, CYTO_NO_DEVICE,
                        "%s cannot be used: %s; install another (pip: %s, as the driver), name its folder in %s, or "
                        "compile the model with %s=off",
                        path, why, what->pip, what->variable, what->option);
}

static cyto_status open_path(const cuda_sought *what, cuda_found *found, const char *path, cyto_error *error) {
  snprintf(found->path, sizeof found->path, "%s", path);
  found->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  return found->library ? CYTO_OK : cyrt_sought_unusable(what, path, dlerror(), error);
}

/* Opens the last match (the newest of several Pythons) of a folder's pattern, if there is one. */
static cyto_status open_in(const cuda_sought *what, const char *name, cuda_found *out, const char *folder,
                           cyto_error *error) {
  char pattern[600];
  glob_t found = {0};
  cyto_status status = CYTO_OK;
  snprintf(pattern, sizeof pattern, "%s/%s", folder, name);
  if (glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc)
    status = open_path(what, out, found.gl_pathv[found.gl_pathc - 1], error);
  globfree(&found);
  return status;
}

/* The loader's own search; a library that is not there is no error, one that lacks something is. */
static cyto_status open_by_loader(const cuda_sought *what, const char *name, cuda_found *found, cyto_error *error) {
  char absent[120];
  int n = snprintf(absent, sizeof absent, "%s: cannot open shared object file: No such file", name);
  found->library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  const char *why = found->library ? NULL : dlerror();
  snprintf(found->path, sizeof found->path, "%s", name);
  return !why || !strncmp(why, absent, (size_t)n) ? CYTO_OK : cyrt_sought_unusable(what, name, why, error);
}

static cyto_status open_at(const cuda_sought *what, const char *name, size_t place, cuda_found *out,
                           cyto_error *error) {
  const char *root = *places[place].variable ? getenv(places[place].variable) : "";
  cyto_status status = CYTO_OK;
  int packages = strchr(places[place].folder, '%') != NULL;
  if (!root || (*places[place].variable && !*root))
    return CYTO_OK;
  for (int i = 0; (packages ? what->packages[i] != NULL : !i) && !status && !out->library; i++) {
    char folder[500];
    int n = snprintf(folder, sizeof folder, "%s", root);
    if (n < (int)sizeof folder) /* one argument more than some of the formats take */
      snprintf(folder + n, sizeof folder - (size_t)n, places[place].folder, what->packages[i]);
    status = open_in(what, name, out, folder, error);
  }
  return status;
}

static cyto_status look_for(const cuda_sought *what, const char *name, cuda_found *out, cyto_error *error) {
  cyto_status status = open_by_loader(what, name, out, error);
  for (size_t i = 0; i < sizeof places / sizeof *places && !status && !out->library; i++)
    status = open_at(what, name, i, out, error);
  return status;
}

cyto_status cyrt_cuda_find(const cuda_sought *what, int first, cuda_found *out, char where[400], cyto_error *error) {
  const char *named = getenv(what->variable), *const *names = what->names + first;
  cyto_status status = CYTO_OK;
  *out = (cuda_found){.library = NULL};
  if (named)
    snprintf(where, 400, "no %s because %s is empty", names[0], what->variable);
  else
    snprintf(where, 400,
             "no %s where the loader looks, in the active Python environment, CUDA_HOME, the toolkit or the system's "
             "Python packages",
             names[0]);
  if (named && !*named)
    return CYTO_OK;
  for (int i = 0; names[i] && !status && !out->library; i++)
    status = named ? open_in(what, names[i], out, named, error) : look_for(what, names[i], out, error);
  return named && !status && !out->library
             ? cyrt_error_set(error, CYTO_NO_DEVICE, "%s names '%s', where there is no %s", what->variable, named,
                              names[0])
             : status;
}
