/* arch.c - the table of architectures. See arch.h. */
#include "codegen/arch.h"

#include <elf.h>
#include <stddef.h>
#include <string.h>

/* Of link_files.S, assembled once for each. */
#define DECLARE(arch)                                                                                                  \
  extern const char cy_query_##arch[], cy_query_##arch##_end[], cy_runtime_##arch[], cy_runtime_##arch##_end[],        \
      cy_libm_##arch[], cy_libm_##arch##_end[], cy_libc_##arch[], cy_libc_##arch##_end[];
#define NAMES(arch) .name = #arch, .triple = #arch "-linux-gnu", .tools = #arch "-linux-gnu-"
#define CARRIED(arch)                                                                                                  \
  .package = "binutils-" #arch "-linux-gnu", .carried = {{cy_query_##arch, cy_query_##arch##_end},                     \
                                                         {cy_runtime_##arch, cy_runtime_##arch##_end},                 \
                                                         {cy_libm_##arch, cy_libm_##arch##_end},                       \
                                                         {cy_libc_##arch, cy_libc_##arch##_end}}

DECLARE(x86_64)
DECLARE(aarch64)

static const cy_arch x86_64 = {NAMES(x86_64), .base_cpu = "x86-64", .least = "x86-64-v3", .elf = EM_X86_64,
                               CARRIED(x86_64)};
static const cy_arch aarch64 = {NAMES(aarch64),    .base_cpu = "aarch64",  .least = "aarch64",
                                .elf = EM_AARCH64, .lists_features = true, CARRIED(aarch64)};

const cy_arch *const cy_arches[] = {&x86_64, &aarch64, NULL};

const cy_arch *cy_arch_here(void) {
  const cy_arch *const *a = cy_arches;
  while (strcmp((*a)->name, CY_ARCH_HERE))
    a++;
  return *a;
}

bool cy_arch_carried(const cy_arch *a) {
  return a->carried[CY_CARRIED_RUNTIME].end > a->carried[CY_CARRIED_RUNTIME].bytes;
}
