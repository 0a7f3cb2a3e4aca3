/* arch.c - the table of architectures. See arch.h. */
#include "codegen/arch.h"

#include <elf.h>
#include <stddef.h>
#include <string.h>

#define CARRIED(arch, what) {cy_##what##_##arch, cy_##what##_##arch##_end}
#define DECLARE(arch, what) extern const char cy_##what##_##arch[], cy_##what##_##arch##_end[];
#define ARCH(arch, machine, base, least_cpu, lists)                                                                    \
  DECLARE(arch, query)                                                                                                 \
  DECLARE(arch, runtime) DECLARE(arch, libm) DECLARE(arch, libc) static const cy_arch arch = {                         \
      .name = #arch,                                                                                                   \
      .triple = #arch "-linux-gnu",                                                                                    \
      .base_cpu = base,                                                                                                \
      .least = least_cpu,                                                                                              \
      .elf = machine,                                                                                                  \
      .lists_features = lists,                                                                                         \
      .tools = #arch "-linux-gnu-",                                                                                    \
      .package = "binutils-" #arch "-linux-gnu",                                                                       \
      .carried = {CARRIED(arch, query), CARRIED(arch, runtime), CARRIED(arch, libm), CARRIED(arch, libc)}};

ARCH(x86_64, EM_X86_64, "x86-64", "x86-64-v3", false)
ARCH(aarch64, EM_AARCH64, "aarch64", "aarch64", true)

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
