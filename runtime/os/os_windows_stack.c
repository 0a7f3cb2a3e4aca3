/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* os_windows_stack.c - what compilers call where a function has a large frame. By itself, as programs that are linked by
 * MinGW have one, too.
 *
 * Windows gives a stack its pages one after the other: each of the frame's `rax` bytes' pages is touched in turn. All
 * registers stay as they are.
 */
void ___chkstk_ms(void);
__attribute__((naked)) void ___chkstk_ms(void) {
  __asm__("push %rcx\n\t"
          "push %rax\n\t"
          "lea 24(%rsp), %rcx\n"
          "1:\n\t"
          "cmp $0x1000, %rax\n\t"
          "jb 2f\n\t"
          "sub $0x1000, %rcx\n\t"
          "orq $0, (%rcx)\n\t"
          "sub $0x1000, %rax\n\t"
          "jmp 1b\n"
          "2:\n\t"
          "sub %rax, %rcx\n\t"
          "orq $0, (%rcx)\n\t"
          "pop %rax\n\t"
          "pop %rcx\n\t"
          "ret");
}
