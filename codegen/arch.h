/* arch.h - the architectures of CPUs that libraries can be made for: all of them little-endian, 64-bit and Linux.
 *
 * A further one is a row in arch.c and a name in the Makefile's ARCHES; its CPUs are rows in cpu/cpus.c, what they have is
 * asked in runtime/cpu.c.
 */
#ifndef CY_ARCH_H
#define CY_ARCH_H

#include "codegen/carried.h"

#include <stdbool.h>
#include <stdint.h>

/* This cytoc's own. */
#ifdef __aarch64__
#define CY_ARCH_HERE "aarch64"
#else
#define CY_ARCH_HERE "x86_64"
#endif

/* What cytoc carries for the linker. */
enum {
#define X(a, name, file) CY_CARRIED_##name,
  CY_CARRIED_ROWS(X, )
#undef X
      CY_CARRIED_COUNT
};

typedef struct cy_arch {
  const char *name; /* first word of its triples */
  const char *triple;
  const char *base_cpu; /* code for it runs on every CPU of the architecture */
  const char *least;    /* what --target=TRIPLE stands for: the least CPU that is worth compiling for */
  uint16_t elf;         /* e_machine */
  bool lists_features;  /* LLVM is told features, and a CPU's name for the order of instructions only */
  const char *tools;    /* prefix of binutils for it where it is another, package of these */
  const char *package;
  struct {
    const char *bytes, *end;
  } carried[CY_CARRIED_COUNT];
} cy_arch;

extern const cy_arch *const cy_arches[]; /* up to NULL */
const cy_arch *cy_arch_here(void);
/* Was this cytoc built with what libraries for the architecture are linked with? */
bool cy_arch_carried(const cy_arch *a);

#endif
