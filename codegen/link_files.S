/* SPDX-License-Identifier: Apache-2.0 */
/* What the compiler gives the linker, as bytes of its own, so that an installed cytoc needs no path to it: for the
 * architecture CY_ARCH, the files CY_FILE_name of the names in CY_ROWS, a list of carried.h. Nothing, of an architecture
 * that there was no C compiler for (CY_ABSENT): see the Makefile. */
#include "codegen/carried.h"

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#ifdef CY_ABSENT
#define FILE_OF(name)
#else
#define FILE_OF(name) JOIN(CY_FILE_, name)
#endif
  .macro carry name file
  .balign 16
  .globl \name
  .hidden \name
  .globl \name\()_end
  .hidden \name\()_end
\name:
  .ifnb \file
  .incbin "\file"
  .endif
\name\()_end:
  .byte 0
  .endm

  .section .rodata
#define CARRY(a, name, file) carry JOIN(JOIN(JOIN(cy_, name), _), a) FILE_OF(name) ;
  CY_ROWS(CARRY, CY_ARCH)
  .section .note.GNU-stack, "", %progbits
