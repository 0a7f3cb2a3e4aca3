/* SPDX-License-Identifier: Apache-2.0 */
/* arch.c - the table of architectures and systems. See arch.h. */
#include "codegen/arch.h"

#include <elf.h>
#include <stddef.h>
#include <string.h>

/* Of link_files.S, assembled once for each. */
#define DECLARE(a, name, file) extern const char cy_##name##_##a[], cy_##name##_##a##_end[];
CY_CARRIED_linux(DECLARE, x86_64)
CY_CARRIED_linux(DECLARE, aarch64)
CY_CARRIED_windows(DECLARE, x86_64_windows)

#define FILE_OF(a, name, file) {file, cy_##name##_##a, cy_##name##_##a##_end},
#define ON_LINUX(a)                                                                                                    \
  .name = #a, .isa = #a, .suffix = "", .systems = " linux linux-gnu linux-musl ", .triple = #a "-linux-gnu",                        \
  .tools = #a "-linux-gnu-", .package = "binutils-" #a "-linux-gnu", .compiler = "gcc-" #a "-linux-gnu",               \
  .carried = {CY_CARRIED_linux(FILE_OF, a)}

#define AMD64 " amd64 x64 "
static const cy_arch x86_64 = {ON_LINUX(x86_64), .aliases = AMD64, .base_cpu = "x86-64", .default_cpu = "x86-64-v3", .machine = EM_X86_64};
static const cy_arch aarch64 = {ON_LINUX(aarch64), .aliases = " arm64 ", .base_cpu = "aarch64", .default_cpu = "aarch64", .machine = EM_AARCH64,
                                .lists_features = true};

/* Objects are to be linked by MinGW and by Microsoft's tools. LLVM's environment "itanium" is what both have in common: no
 * functions of MinGW's libraries, and no symbols that Microsoft's linker alone knows. */
static const cy_arch x86_64_windows = {.name = "x86_64_windows",
                                       .isa = "x86_64",
                                       .suffix = "-windows",
                                       .aliases = AMD64,
                                       .systems = " windows windows-msvc windows-gnu windows-itanium mingw32 ",
                                       .triple = "x86_64-pc-windows-itanium",
                                       .base_cpu = "x86-64-windows",
                                       .default_cpu = "x86-64-v3-windows",
                                       .format = CY_COFF,
                                       .machine = 0x8664,
                                       .unwinds = true,
                                       .tools = "x86_64-w64-mingw32-",
                                       .package = "binutils-mingw-w64-x86-64",
                                       .compiler = "gcc-mingw-w64-x86-64",
                                       .carried = {CY_CARRIED_windows(FILE_OF, x86_64_windows)}};

const cy_arch *const cy_arches[] = {&x86_64, &aarch64, &x86_64_windows, NULL};

const cy_arch *cy_arch_here(void) {
  const cy_arch *const *a = cy_arches;
  while (strcmp((*a)->name, CY_ARCH_HERE))
    a++;
  return *a;
}

/* Is the word one of the list's, whose words have a blank on both sides? */
static bool listed(const char *list, const char *word, size_t n) {
  for (const char *at = strchr(list, ' '); at && at[1]; at = strchr(at + 1, ' '))
    if (strncmp(at + 1, word, n) == 0 && at[1 + n] == ' ' && !memchr(word, ' ', n))
      return n > 0;
  return false;
}

bool cy_arch_named(const cy_arch *a, const char *name, size_t n) {
  return (strlen(a->isa) == n && strncmp(a->isa, name, n) == 0) || listed(a->aliases, name, n);
}

bool cy_arch_is_triple(const cy_arch *a, const char *spec) {
  size_t n = strcspn(spec, "-");
  if (!spec[n] || !cy_arch_named(a, spec, n))
    return false;
  const char *system = spec + n + 1, *behind_vendor = strchr(system, '-');
  return listed(a->systems, system, strlen(system)) ||
         (behind_vendor && listed(a->systems, behind_vendor + 1, strlen(behind_vendor + 1)));
}

bool cy_arch_carried(const cy_arch *a) {
  return a->carried[CY_CARRIED_runtime].end > a->carried[CY_CARRIED_runtime].bytes;
}
