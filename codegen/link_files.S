/* What the compiler gives the linker, as bytes of its own, so that an installed cytoc needs no path to it: the runtime
 * library (CY_RUNTIME_ARCHIVE: its file) and the names of libc (CY_LIBC_STUB, tools/libc_stub.sh). */
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
  carry cy_libc_stub CY_LIBC_STUB
  .section .note.GNU-stack, "", %progbits
