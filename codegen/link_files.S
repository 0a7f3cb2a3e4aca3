/* What the compiler gives the linker, as bytes of its own, so that an installed cytoc needs no path to it: for the
 * architecture CY_ARCH, the runtime library (CY_RUNTIME_ARCHIVE: its file), what shared libraries have besides
 * (CY_QUERY_OBJECT: runtime/shared), and the names of libc and libm (CY_STUB_libc, CY_STUB_libm: tools/stub.sh). Nothing,
 * of an architecture that there was no C compiler for: see the Makefile. */
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#ifndef CY_RUNTIME_ARCHIVE
#define CY_RUNTIME_ARCHIVE
#define CY_QUERY_OBJECT
#define CY_STUB_libc
#define CY_STUB_libm
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
  carry JOIN(cy_runtime_, CY_ARCH) CY_RUNTIME_ARCHIVE
  carry JOIN(cy_query_, CY_ARCH) CY_QUERY_OBJECT
  carry JOIN(cy_libc_, CY_ARCH) CY_STUB_libc
  carry JOIN(cy_libm_, CY_ARCH) CY_STUB_libm
  .section .note.GNU-stack, "", %progbits
