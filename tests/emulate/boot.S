/* SPDX-License-Identifier: Apache-2.0 */
/* boot.S - from reset to kernel.c in 64-bit mode with the vector registers switched on, and the ways back into it.
 *
 * The page tables lie in the ROM, complete, so that the CPU never writes to them: addresses 2 to 3 GB are the first GB
 * of RAM, 3 to 4 GB are themselves, and all others fault, null pointers among them. Everything runs in ring 0.
 */
ROM = 0xffff0000

  .section .tables, "a"
  .balign 4096
page_map:                 /* one entry for each 512 GB; present, writable, accessed */
  .quad ROM + 0x1000 + 0x23
  .fill 511, 8, 0
page_directory:           /* one entry for each GB; a page by itself, dirty, too */
  .quad 0, 0, 0x00000000 + 0xe3, 0xc0000000 + 0xe3
  .fill 508, 8, 0
segments:
  .quad 0
  .quad 0x00cf9b000000ffff /*  8: code, 32 bits */
  .quad 0x00cf93000000ffff /* 16: data */
  .quad 0x00af9b000000ffff /* 24: code, 64 bits */
  .quad 0x00cf93000000ffff /* 32: data, where SYSCALL expects it */
segments_end:
segments_pointer:
  .word segments_end - segments - 1
  .long segments

  .section .reset, "ax"
  .code16
  jmp start16

  .section .first, "ax"
  .globl start16
start16:
  cli
  lgdtl %cs:segments_pointer - page_map
  movl %cr0, %eax
  orb $1, %al
  movl %eax, %cr0
  ljmpl $8, $start32

  .text
  .code32
start32:
  movw $16, %ax
  movw %ax, %ds
  movw %ax, %es
  movw %ax, %ss
  movl $0x40620, %eax       /* PAE, OSFXSR, OSXMMEXCPT, OSXSAVE */
  movl %eax, %cr4
  movl $page_map, %eax
  movl %eax, %cr3
  movl $0xc0000080, %ecx    /* EFER: SYSCALL, long mode */
  rdmsr
  orl $0x101, %eax
  wrmsr
  movl $0x80000033, %eax    /* paging, native FPU errors, protection */
  movl %eax, %cr0
  ljmp $24, $start64

  .code64
start64:
  movl $13, %eax            /* of what this CPU has: x87, SSE, AVX, AVX-512 */
  xorl %ecx, %ecx
  cpuid
  andl $0xe7, %eax
  xorl %ecx, %ecx
  xorl %edx, %edx
  xsetbv
  fninit
  movl $bss_begin, %edi
  movl $bss_end, %ecx
  subl %edi, %ecx
  xorl %eax, %eax
  rep stosb
  leaq stack_end(%rip), %rsp
  call kernel_main
  hlt

/* void program_start(uint64_t entry, uint64_t stack): into a program, whose registers are 0; it never comes back. */
  .globl program_start
program_start:
  movq %rsi, %rsp
  pushq %rdi
  xorl %eax, %eax
  .irp r, ebx, ecx, edx, esi, edi, ebp, r8d, r9d, r10d, r11d, r12d, r13d, r14d, r15d
  xorl %\r, %\r
  .endr
  ret

/* void stack_reset(void (*next)(void)): next() on the kernel's own stack, empty. */
  .globl stack_reset
stack_reset:
  leaq stack_end(%rip), %rsp
  call *%rdi
  hlt

/* SYSCALL comes here with the return address in rcx, the flags in r11 and the program's stack, which may not be touched
 * below its pointer. kernel.c uses neither vector registers nor the FPU. */
  .globl system_call_entry
system_call_entry:
  movq %rsp, program_stack(%rip)
  leaq stack_end(%rip), %rsp
  .irp r, rcx, rdi, rsi, rdx, r10, r8, r9, r11
  pushq %\r
  .endr
  movq %r10, %rcx
  pushq %rax
  pushq %rax
  call system_call          /* (arguments 1 to 6, number) */
  addq $16, %rsp
  popfq
  .irp r, r9, r8, r10, rdx, rsi, rdi, rcx
  popq %\r
  .endr
  movq program_stack(%rip), %rsp
  jmp *%rcx

/* One entry of 16 bytes for each exception: fault(vector, error code or 0, address, the program's stack). */
  .balign 16
  .globl fault_entries
fault_entries:
  .set vector, 0
  .rept 32
  .balign 16
  .if !(vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21)
  pushq $0
  .endif
  pushq $vector
  jmp fault_common
  .set vector, vector + 1
  .endr
fault_common:
  popq %rdi
  popq %rsi
  movq (%rsp), %rdx
  movq %cr2, %rcx
  leaq stack_end(%rip), %rsp
  call fault
  hlt

  .bss
  .balign 16
program_stack:
  .skip 16
  .skip 32768
stack_end:

  .section .note.GNU-stack, "", @progbits
