/* mock_nvrtc.c - a libnvrtc.so.13 whose "cubins" and "PTX" are the source text, for the mock driver (mock_cuda.c) to
 * compile.
 *
 * So whole CUDA models are made and run without any CUDA installed. CUDA_HOME leads cytoc here.
 */
#include <stdlib.h>
#include <string.h>

typedef struct _nvrtcProgram {
  char *source;
} * program;

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
  return 0;
}

int nvrtcDestroyProgram(program *p) {
  free((*p)->source);
  free(*p);
  return 0;
}

int nvrtcCompileProgram(program p, int n, const char *const *options) {
  const char *code = getenv("CY_MOCK_NVRTC_CODE");
  (void)p, (void)n, (void)options;
  return code ? atoi(code) : 0;
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

/* What CY_MOCK_NVRTC_LOG says. */
static const char *log_text(void) {
  const char *text = getenv("CY_MOCK_NVRTC_LOG");
  return text ? text : "";
}

int nvrtcGetProgramLogSize(program p, size_t *size) {
  (void)p;
  *size = strlen(log_text()) + 1;
  return 0;
}

int nvrtcGetProgramLog(program p, char *out) {
  (void)p;
  strcpy(out, log_text());
  return 0;
}
