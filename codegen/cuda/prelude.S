/* SPDX-License-Identifier: Apache-2.0 */
/* The preludes of generated CUDA kernels as bytes of the compiler. */
  .macro text name, file
  .globl \name
  .hidden \name
\name:
  .incbin "\file"
  .byte 0
  .endm
  .section .rodata
  text cy_cuda_prelude, codegen/cuda/prelude.cuh
  text cy_cuda_prelude_matrix, codegen/cuda/prelude_matrix.cuh
  .section .note.GNU-stack, "", %progbits
