/* SPDX-License-Identifier: Apache-2.0 */
/* about.c - what this compiler is: names and versions, for people and for keys of caches. */
#include "cytoc.h"

#include "codegen/cpu/emit.h"
#include "revision.h"
#include "version.h"

#include <llvm-c/Core.h>
#include <llvm-c/TargetMachine.h>

#include <pthread.h>
#include <stdio.h>

/* Written once, before anybody reads them. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char native[64], build_id[128];

static void find_out(void) {
  unsigned major, minor, patch;
  char *name = LLVMGetHostCPUName();
  snprintf(native, sizeof native, "%s", name && cy_cpu_arch(name) ? name : "native");
  LLVMDisposeMessage(name);
  LLVMGetVersion(&major, &minor, &patch);
  snprintf(build_id, sizeof build_id, "cytoc %s %s llvm %u.%u.%u", CYTO_VERSION, CYTOC_REVISION, major, minor, patch);
}

const char *cytoc_status_name(int32_t status) {
  switch (status) {
#define X(name, number, text)                                                                                          \
  case number:                                                                                                         \
    return text;
    CYTOC_STATUS_ROWS(X)
#undef X
  default:
    return "unknown status";
  }
}

const char *cytoc_version(void) { return CYTO_VERSION; }

const char *cytoc_native_target(void) {
  pthread_once(&once, find_out);
  return native;
}

const char *cytoc_build_id(void) {
  pthread_once(&once, find_out);
  return build_id;
}
