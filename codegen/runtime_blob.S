/* The runtime library as bytes of the compiler, so that an installed cytoc needs no path to it. CY_RUNTIME_ARCHIVE: its file. */
  .section .rodata
  .balign 16
  .globl cy_runtime_archive
  .hidden cy_runtime_archive
  .globl cy_runtime_archive_end
  .hidden cy_runtime_archive_end
cy_runtime_archive:
  .incbin CY_RUNTIME_ARCHIVE
cy_runtime_archive_end:
  .byte 0
  .section .note.GNU-stack, "", %progbits
