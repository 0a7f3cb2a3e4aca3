/* SPDX-License-Identifier: Apache-2.0 */
/* mock_nvrtc.c - a libnvrtc.so.13 whose "cubins" and "PTX" are the source text, for the mock driver (mock_cuda.c) to
 * compile.
 *
 * So whole CUDA models are made and run without any CUDA installed. CUDA_HOME leads cytoc here. Where CY_MOCK_NVRTC names
 * the folder of a real NVRTC, both are the PTX that it makes of the text.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct _nvrtcProgram {
  char *source;
  int one_block; /* the option CY_ONE_BLOCK_k was given */
} * program;

/* ---- the real one ---- */

/* A function of the library in CY_MOCK_NVRTC; ends the process where there is none. */
static void find(const char *name, void *out_function) {
  static void *library;
  char path[PATH_MAX];
  glob_t found = {0};
  snprintf(path, sizeof path, "%s/libnvrtc-builtins.so.1*", getenv("CY_MOCK_NVRTC"));
  if (!library && !glob(path, 0, NULL, &found))
    dlopen(found.gl_pathv[0], RTLD_NOW | RTLD_GLOBAL);
  globfree(&found);
  snprintf(path, sizeof path, "%s/libnvrtc.so.13", getenv("CY_MOCK_NVRTC"));
  library = library ? library : dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  void *symbol = library ? dlsym(library, name) : NULL;
  if (!symbol) {
    fprintf(stderr, "CY_MOCK_NVRTC: %s\n", dlerror());
    exit(1);
  }
  memcpy(out_function, &symbol, sizeof symbol);
}

/* Replaces the source by its PTX for the virtual architecture that belongs to the one asked for. */
static int make_ptx(program p, int n, const char *const *options) {
  int (*create)(program *, const char *, const char *, int, const char *const *, const char *const *);
  int (*compile)(program, int, const char *const *);
  int (*size_of)(program, size_t *), (*get)(program, char *), (*destroy)(program *);
  const char *kept[16];
  char arch[40] = "";
  size_t size = 0;
  program real = NULL;
  int count = 0;
  find("nvrtcCreateProgram", &create);
  find("nvrtcCompileProgram", &compile);
  find("nvrtcGetPTXSize", &size_of);
  find("nvrtcGetPTX", &get);
  find("nvrtcDestroyProgram", &destroy);
  for (int i = 0; i < n && i < 16; i++)
    if (!strncmp(options[i], "-arch=", 6)) {
      snprintf(arch, sizeof arch, "-arch=compute%s", strchr(options[i], '_'));
      kept[count++] = arch;
    } else if (strncmp(options[i], "--ptxas", 7)) {
      kept[count++] = options[i];
    }
  int code = create(&real, p->source, "kernels.cu", 0, NULL, NULL);
  if (!code)
    code = compile(real, count, kept);
  if (!code)
    code = size_of(real, &size);
  char *text = code ? NULL : malloc(size);
  if (text)
    code = get(real, text);
  if (text) {
    free(p->source);
    p->source = text;
  }
  destroy(&real);
  return code;
}

/* ---- what cytoc calls ---- */

int nvrtcVersion(int *major, int *minor) {
  const char *older = getenv("CY_MOCK_NVRTC_MAJOR");
  *major = older ? atoi(older) : 13;
  *minor = 0;
  return 0;
}

int nvrtcCreateProgram(program *p, const char *source, const char *name, int headers, const char *const *texts,
                       const char *const *names) {
  (void)name, (void)headers, (void)texts, (void)names;
  *p = malloc(sizeof **p);
  (*p)->source = strdup(source);
  (*p)->one_block = 0;
  return 0;
}

int nvrtcDestroyProgram(program *p) {
  free((*p)->source);
  free(*p);
  return 0;
}

int nvrtcCompileProgram(program p, int n, const char *const *options) {
  const char *code = getenv("CY_MOCK_NVRTC_CODE"), *lacks = getenv("CY_MOCK_NVRTC_LACKS");
  for (int i = 0; i < n; i++) {
    if (lacks && !strncmp(options[i], "-arch=", 6) && !strcmp(options[i] + 6, lacks))
      return 5;
    p->one_block |= !strcmp(options[i], "-DCY_ONE_BLOCK_k");
  }
  return code ? atoi(code) : getenv("CY_MOCK_NVRTC") ? make_ptx(p, n, options) : 0;
}

static int text_size(program p, size_t *size) {
  *size = strlen(p->source) + 1;
  return 0;
}

static int text(program p, char *out) {
  strcpy(out, p->source);
  return 0;
}

int nvrtcGetPTXSize(program p, size_t *size) { return text_size(p, size); }
int nvrtcGetPTX(program p, char *out) { return text(p, out); }
int nvrtcGetCUBINSize(program p, size_t *size) { return text_size(p, size); }
int nvrtcGetCUBIN(program p, char *out) { return text(p, out); }

/* What CY_MOCK_NVRTC_LOG says; CY_MOCK_NVRTC_TWO, of programs whose kernels are to run by two. */
static const char *log_text(program p) {
  const char *text = getenv("CY_MOCK_NVRTC_LOG"), *two = getenv("CY_MOCK_NVRTC_TWO");
  return two && !p->one_block ? two : text ? text : "";
}

int nvrtcGetProgramLogSize(program p, size_t *size) {
  *size = strlen(log_text(p)) + 1;
  return 0;
}

int nvrtcGetProgramLog(program p, char *out) {
  strcpy(out, log_text(p));
  return 0;
}
