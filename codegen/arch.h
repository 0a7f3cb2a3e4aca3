/* SPDX-License-Identifier: Apache-2.0 */
/* arch.h - what libraries can be made for: architectures of CPUs, all of them little-endian and 64-bit, and the operating
 * systems on them.
 *
 * A further one is a row in arch.c and a name in the Makefile's ARCHES; its CPUs are rows in cpu/machine.def, what they have is
 * asked in runtime/cpu.c, and what the runtime asks of the system is in runtime/os/os.h.
 */
#ifndef CY_ARCH_H
#define CY_ARCH_H

#include "codegen/carried.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* This cytoc's own. */
#ifdef __aarch64__
#define CY_ARCH_HERE "aarch64"
#else
#define CY_ARCH_HERE "x86_64"
#endif

/* What cytoc carries for the linker: file name and bytes. The first two are those of all systems. */
enum { CY_CARRIED_query, CY_CARRIED_runtime, CY_CARRIED_MAX = 6 };
typedef struct cy_carried {
  const char *name, *bytes, *end;
} cy_carried;

/* ELF's libraries are linked as such, COFF's as DLLs. */
typedef enum cy_object_format { CY_ELF, CY_COFF } cy_object_format;

typedef struct cy_arch {
  const char *name;
  const char *isa;       /* first word of its triples: what its CPUs are rows of in machine.def */
  const char *aliases;   /* other words for it, each with a blank on both sides */
  const char *suffix;    /* of CPUs' names: "-windows"; "": of Linux */
  const char *systems;   /* the rest of its triples, but for the vendor, in the same notation */
  const char *triple;    /* for LLVM */
  const char *base_cpu; /* code for it runs on every CPU of the architecture */
  const char *default_cpu; /* what --target=TRIPLE stands for: the least CPU that is worth compiling for */
  cy_object_format format;
  uint16_t machine;     /* of an object: e_machine, or COFF's */
  bool lists_features;  /* LLVM is told features, and a CPU's name for the order of instructions only */
  bool unwinds;         /* the system wants to find its way up the stack from every function */
  const char *tools;    /* prefix of binutils for it where it is another, package of these, and of its C compiler */
  const char *package, *compiler;
  cy_carried carried[CY_CARRIED_MAX + 1];
} cy_arch;

extern const cy_arch *const cy_arches[]; /* up to NULL */
const cy_arch *cy_arch_here(void);
/* Do the n bytes name this instruction set, by its name or by an alias? */
bool cy_arch_named(const cy_arch *a, const char *name, size_t n);
/* Is it a triple of the architecture: ISA-SYSTEM or ISA-VENDOR-SYSTEM? */
bool cy_arch_is_triple(const cy_arch *a, const char *spec);
/* Was this cytoc built with what libraries for the architecture are linked with? */
bool cy_arch_carried(const cy_arch *a);

#endif
