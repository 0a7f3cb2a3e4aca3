/* arch.c - the table of architectures. See arch.h. */
#include "codegen/arch.h"

#include <elf.h>
#include <stddef.h>
#include <string.h>

/* Of link_files.S, assembled once for each. */
#define DECLARE(a, name, file) extern const char cy_##name##_##a[], cy_##name##_##a##_end[];
CY_CARRIED_ROWS(DECLARE, x86_64)
CY_CARRIED_ROWS(DECLARE, aarch64)

#define NAMES(a)                                                                                                       \
  .name = #a, .triple = #a "-linux-gnu", .tools = #a "-linux-gnu-", .package = "binutils-" #a "-linux-gnu"
#define BYTES(a, name, file) {cy_##name##_##a, cy_##name##_##a##_end},
#define CARRIED(a) .carried = {CY_CARRIED_ROWS(BYTES, a)}

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
  return a->carried[CY_CARRIED_runtime].end > a->carried[CY_CARRIED_runtime].bytes;
}
