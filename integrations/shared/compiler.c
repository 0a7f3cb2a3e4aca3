/* SPDX-License-Identifier: Apache-2.0 */
/* compiler.c - libcytoc, opened when there is something to compile: who has compiled libraries does without.
 *
 * In:  libcytoc.so beside the plugin, or where `make` and `make install` put it from there, or where the system looks.
 * Out: its functions, or why they cannot be used. It has LLVM in it, and stays open.
 */
#define _GNU_SOURCE
#include "integrations/shared/shared.h"

#include "version.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Written once, before anybody reads it. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static compiler opened;

/* below: a folder as seen from this plugin's. */
static void *open_beside(const char *below, const char *name) {
  Dl_info self;
  char path[CACHE_PATH];
  const char *slash = dladdr(&once, &self) && self.dli_fname ? strrchr(self.dli_fname, '/') : NULL;
  if (!slash)
    return NULL;
  int n = snprintf(path, sizeof path, "%.*s/%s%s", (int)(slash - self.dli_fname), self.dli_fname, below, name);
  return n > 0 && n < (int)sizeof path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

static void *open_library(void) {
  static const char *const names[] = {"libcytoc.so.0", "libcytoc.so"};
  /* beside; build/backends/cytoc; PREFIX/lib/tritonserver/backends/cytoc */
  static const char *const folders[] = {"", "../../", "../../../"};
  void *library = NULL;
  for (int i = 0; !library && i < 6; i++)
    library = open_beside(folders[i / 2], names[i % 2]);
  return library ? library : dlopen(names[0], RTLD_NOW | RTLD_LOCAL);
}

static void open_once(void) {
  void *library = open_library();
  if (!library) {
    snprintf(opened.why, sizeof opened.why, "the compiler cannot be opened: %.400s; it belongs beside this plugin",
             dlerror());
    return;
  }
#define X(name)                                                                                                        \
  if (!(opened.name = (__typeof__(name) *)dlsym(library, #name)))                                                      \
    snprintf(opened.why, sizeof opened.why, "libcytoc.so has no %s: it is of another version", #name);
  COMPILER_ROWS(X)
#undef X
  if (!*opened.why && strcmp(opened.cytoc_version(), CYTO_VERSION))
    snprintf(opened.why, sizeof opened.why, "libcytoc.so is of version %.40s, this plugin of %s",
             opened.cytoc_version(), CYTO_VERSION);
}

const compiler *compiler_open(void) {
  pthread_once(&once, open_once);
  return &opened;
}

/* FNV-1a */
uint64_t compiler_hash(const compiler *c) {
  const char *const texts[] = {c->cytoc_build_id(), c->cytoc_native_target()};
  uint64_t h = 14695981039346656037u;
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
    for (const char *p = texts[i];; p++) {
      h = (h ^ (unsigned char)*p) * 1099511628211u;
      if (!*p)
        break;
    }
  return h;
}

/* ---- options ---- */

/* Options are checked by compiling the smallest model there is, y = Identity(x). */
static const uint8_t smallest[] = "\x08\x08"                                   /* IR version 8 */
                                  "\x3a\x34"                                   /* graph */
                                  "\x0a\x10\x0a\x01x\x12\x01y\x22\x08Identity" /* node */
                                  "\x12\x02"
                                  "io"                                                        /* name */
                                  "\x5a\x0d\x0a\x01x\x12\x08\x0a\x06\x08\x01\x12\x02\x0a\x00" /* input: f32[?] */
                                  "\x62\x0d\x0a\x01y\x12\x08\x0a\x06\x08\x01\x12\x02\x0a\x00" /* output */
                                  "\x42\x02\x10\x11";                                         /* opset 17 */

cytoc_status compiler_check(const compiler *c, const char *const *options, size_t n, cytoc_result *result) {
  cytoc_job job = {.struct_size = sizeof job,
                   .model = smallest,
                   .model_size = sizeof smallest - 1,
                   .model_path = "options",
                   .options = options,
                   .option_count = n};
  return c->cytoc_compile(&job, result);
}
