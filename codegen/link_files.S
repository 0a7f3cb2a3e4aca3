/* What the compiler gives the linker, as bytes of its own, so that an installed cytoc needs no path to it: the runtime
 * library (CY_RUNTIME_ARCHIVE: its file), what shared libraries have besides (CY_QUERY_OBJECT: runtime/shared), and the
 * names of libc and libm (CY_STUB_libc, CY_STUB_libm: tools/stub.sh). */
  .macro carry name file
  .balign 16
  .globl \name
  .hidden \name
  .globl \name\()_end
  .hidden \name\()_end
\name:
  .incbin "\file"
\name\()_end:
  .byte 0
  .endm

  .section .rodata
  carry cy_runtime_archive CY_RUNTIME_ARCHIVE
  carry cy_query_object CY_QUERY_OBJECT
  carry cy_libc_stub CY_STUB_libc
  carry cy_libm_stub CY_STUB_libm
  .section .note.GNU-stack, "", %progbits
