/* The prelude of generated CUDA kernels as bytes of the compiler. */
  .section .rodata
  .globl cy_cuda_prelude
  .hidden cy_cuda_prelude
cy_cuda_prelude:
  .incbin "codegen/cuda/prelude.cuh"
  .byte 0
  .section .note.GNU-stack, "", %progbits
