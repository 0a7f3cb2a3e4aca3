/* SPDX-License-Identifier: Apache-2.0 */
/* cubin.c - which instructions a cubin has: an ELF file with a section for each function.
 *
 * An instruction has 16 bytes, its low 12 bits are the opcode, of accesses to memory bits 73 to 75 the size. Compiling
 * looks for matrix instructions in kernels that were written to have them, tests count others.
 */
#include "codegen/cuda/cuda_int.h"

#include <elf.h>
#include <string.h>

enum { LDG = 0x981, STG = 0x986, LDG_75 = 0x381, STG_75 = 0x386, SIZE_16 = 6 };
static const char code_prefix[] = ".text.";

void cy_cubin_count(const char *code, uint64_t bytes, unsigned counts[CY_CUDA_OPCODES]) {
  for (uint64_t at = 0; at + 16 <= bytes; at += 16) {
    uint64_t word[2];
    memcpy(word, code + at, sizeof word);
    int opcode = (int)(word[0] & 0xfff);
    bool wide = (word[1] >> 9 & 7) >= SIZE_16;
    counts[opcode]++;
    counts[CY_CUDA_WIDE_LOAD] += wide && (opcode == LDG || opcode == LDG_75);
    counts[CY_CUDA_WIDE_STORE] += wide && (opcode == STG || opcode == STG_75);
  }
}

int cy_cubin_visit(const char *bytes, size_t size, cy_cubin_visitor *visit, void *ctx) {
  Elf64_Ehdr head;
  if (size < sizeof head || memcmp(bytes, ELFMAG, SELFMAG))
    return 0;
  memcpy(&head, bytes, sizeof head);
  if (head.e_shoff > size || (size - head.e_shoff) / sizeof(Elf64_Shdr) < head.e_shnum)
    return 0;
  const Elf64_Shdr *sections = (const Elf64_Shdr *)(bytes + head.e_shoff);
  const char *names = bytes + sections[head.e_shstrndx].sh_offset;
  int functions = 0;
  for (int i = 0; i < head.e_shnum; i++) {
    const char *name = names + sections[i].sh_name;
    if (strncmp(name, code_prefix, sizeof code_prefix - 1))
      continue;
    visit(ctx, name + sizeof code_prefix - 1, bytes + sections[i].sh_offset, sections[i].sh_size);
    functions++;
  }
  return functions;
}
