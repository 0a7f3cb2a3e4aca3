/* SPDX-License-Identifier: Apache-2.0 */
/* counted.c - a library that stands between ONNX Runtime and the plugin, as a plugin itself.
 *
 * In:  the plugin's path; the version that the runtime shall seem to have.
 * Out: how often the plugin called each function that ort_abi.h declares. Any other place of the tables ends the process
 *      with its number, so that a function which is called is one that is declared.
 *
 * A function in between would need every type of parameter: a jump does not.
 */
#include "integrations/onnxruntime/ort_abi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))
#define ALL_ROWS(X) ORT_API_ROWS(X) ORT_EDITOR_ROWS(X) ORT_EP_ROWS(X)

#define THUNK(slot, since, name, result, parameters)                                                                   \
  __attribute__((visibility("hidden"), used)) void *real_##name;                                                       \
  __attribute__((visibility("hidden"), used)) long calls_##name;                                                       \
  void jump_##name(void) __attribute__((visibility("hidden")));                                                        \
  __asm__(".text\n.globl jump_" #name "\n.hidden jump_" #name "\n.type jump_" #name ",@function\njump_" #name ":\n"   \
          "  lock incq calls_" #name "(%rip)\n  jmp *real_" #name "(%rip)\n");
ALL_ROWS(THUNK)

enum { SLOTS = 512 };
static void *api[SLOTS], *editor[SLOTS], *ep[SLOTS];

static const struct row {
  int slot, since;
  const char *name;
  void (*jump)(void);
  void **real;
  long *calls;
} api_rows[] = {
#define ROW(slot, since, name, result, parameters) {slot, since, #name, jump_##name, &real_##name, &calls_##name},
    ORT_API_ROWS(ROW)},
  editor_rows[] = {ORT_EDITOR_ROWS(ROW)}, ep_rows[] = {ORT_EP_ROWS(ROW)};

static void not_declared(void) {
  fprintf(stderr, "counted: the plugin called a function that ort_abi.h does not declare\n");
  abort();
}

static void put(void **table, const void *real, const struct row *rows, size_t n, unsigned version) {
  for (int i = 0; i < SLOTS; i++)
    table[i] = (void *)not_declared;
  for (size_t i = 0; i < n; i++)
    if ((unsigned)rows[i].since <= version) {
      *rows[i].real = ((void *const *)real)[rows[i].slot];
      table[rows[i].slot] = (void *)rows[i].jump;
    }
}

/* ---- what the test sets ---- */

static char plugin_path[4096], version_text[32];
static unsigned version_number = 32;
static const ort_api_base *base;

EXPORTED void counted_set(const char *path, const char *version, unsigned number) {
  snprintf(plugin_path, sizeof plugin_path, "%s", path);
  snprintf(version_text, sizeof version_text, "%s", version);
  version_number = number;
}

/* Names and counts in order; NULL behind the last. */
EXPORTED const char *counted_name(int i, long *calls, int *since) {
  int n_api = sizeof api_rows / sizeof *api_rows, n_editor = sizeof editor_rows / sizeof *editor_rows;
  int n_ep = sizeof ep_rows / sizeof *ep_rows;
  const struct row *r = i < n_api                      ? &api_rows[i]
                        : i < n_api + n_editor         ? &editor_rows[i - n_api]
                        : i < n_api + n_editor + n_ep ? &ep_rows[i - n_api - n_editor]
                                                       : NULL;
  if (!r)
    return NULL;
  *calls = *r->calls;
  *since = r->since;
  return r->name;
}

/* ---- what the plugin sees ---- */

static const void *get_editor(void) { return editor; }
static const void *get_ep(void) { return ep; }

static const void *get_api(uint32_t version) {
  if (version > version_number)
    return NULL;
  const void *real = base->get_api(version);
  ort_calls calls = {0};
  put(api, real, api_rows, sizeof api_rows / sizeof *api_rows, version_number);
  memcpy(&calls.GetModelEditorApi, &real_GetModelEditorApi, sizeof(void *));
  memcpy(&calls.GetEpApi, &real_GetEpApi, sizeof(void *));
  if (version < 22)
    return api;
  put(editor, calls.GetModelEditorApi(), editor_rows, sizeof editor_rows / sizeof *editor_rows, version_number);
  put(ep, calls.GetEpApi(), ep_rows, sizeof ep_rows / sizeof *ep_rows, version_number);
  static void *answers[2];
  answers[0] = (void *)get_editor;
  answers[1] = (void *)get_ep;
  real_GetModelEditorApi = answers[0];
  real_GetEpApi = answers[1];
  return api;
}

static const char *get_version(void) { return version_text; }

typedef ort_status *create_fn(const char *name, const ort_api_base *base, const ort_logger *logger,
                              ort_factory **factories, size_t room, size_t *n);
typedef ort_status *release_fn(ort_factory *f);
static void *plugin;

EXPORTED create_fn CreateEpFactories;
EXPORTED release_fn ReleaseEpFactory;

ort_status *CreateEpFactories(const char *name, const ort_api_base *real, const ort_logger *logger,
                              ort_factory **factories, size_t room, size_t *n) {
  static const ort_api_base ours = {get_api, get_version};
  base = real;
  plugin = dlopen(plugin_path, RTLD_NOW | RTLD_LOCAL);
  create_fn *create = plugin ? (create_fn *)dlsym(plugin, "CreateEpFactories") : NULL;
  if (!create) {
    fprintf(stderr, "counted: %s\n", dlerror());
    abort();
  }
  return create(name, &ours, logger, factories, room, n);
}

ort_status *ReleaseEpFactory(ort_factory *f) {
  release_fn *release = (release_fn *)dlsym(plugin, "ReleaseEpFactory");
  return release(f);
}
