/* SPDX-License-Identifier: Apache-2.0 */
/* elf.c - an ELF64 object around a block of bytes.
 *
 * Weights never pass through LLVM or an assembler: the file is this head, the bytes as the writers put them, and this
 * tail.
 *   head: ELF header | padding | data | tail: symbol table, strings, section headers
 * Sections: null, the data (read-only), .symtab, .strtab (also the section names), .note.GNU-stack.
 */
#include "codegen/work.h"

#include <elf.h>
#include <string.h>

enum { S_NULL, S_DATA, S_SYMTAB, S_STRTAB, S_STACK, S_COUNT };

static size_t put(cy_data_image *e, const void *src, size_t n, size_t align) {
  while (e->tail_bytes % align)
    e->tail[e->tail_bytes++] = 0;
  size_t at = e->tail_bytes;
  if (at + n > sizeof e->tail)
    cy_bug("an ELF symbol is too long: '%zu' bytes", n);
  memcpy(e->tail + at, src, n);
  e->tail_bytes += n;
  return at;
}

/* Appends a string to a string table; returns its offset there. */
static uint32_t add_string(char *table, size_t capacity, size_t *n, const char *text) {
  size_t len = strlen(text) + 1, at = *n;
  if (at + len > capacity)
    cy_bug("an ELF symbol is too long: '%s'", text);
  memcpy(table + at, text, len);
  *n += len;
  return (uint32_t)at;
}

void cy_elf_data_object(uint16_t machine, const char *section, const char *symbol, uint64_t bytes, cy_data_image *out) {
  memset(out, 0, sizeof *out);
  out->data_offset = sizeof out->head;
  out->tail_offset = (out->data_offset + bytes + 63) / 64 * 64;
  char strings[512] = "";
  size_t nstrings = 1;
  Elf64_Sym symbols[2] = {0};
  symbols[1].st_name = add_string(strings, sizeof strings, &nstrings, symbol);
  symbols[1].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT);
  symbols[1].st_other = STV_HIDDEN;
  symbols[1].st_shndx = S_DATA;
  symbols[1].st_size = bytes;

  Elf64_Shdr h[S_COUNT] = {0};
  h[S_DATA] = (Elf64_Shdr){.sh_type = SHT_PROGBITS, .sh_flags = SHF_ALLOC, .sh_offset = out->data_offset,
                           .sh_size = bytes, .sh_addralign = 64};
  h[S_DATA].sh_name = add_string(strings, sizeof strings, &nstrings, section);
  h[S_SYMTAB] = (Elf64_Shdr){.sh_type = SHT_SYMTAB, .sh_size = sizeof symbols, .sh_link = S_STRTAB, .sh_info = 1,
                             .sh_addralign = 8, .sh_entsize = sizeof(Elf64_Sym)};
  h[S_SYMTAB].sh_name = add_string(strings, sizeof strings, &nstrings, ".symtab");
  h[S_SYMTAB].sh_offset = out->tail_offset + put(out, symbols, sizeof symbols, 8);
  h[S_STRTAB] = (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_addralign = 1};
  h[S_STRTAB].sh_name = add_string(strings, sizeof strings, &nstrings, ".strtab");
  h[S_STACK] = (Elf64_Shdr){.sh_type = SHT_PROGBITS, .sh_addralign = 1};
  h[S_STACK].sh_name = add_string(strings, sizeof strings, &nstrings, ".note.GNU-stack");
  h[S_STRTAB].sh_size = nstrings;
  h[S_STRTAB].sh_offset = h[S_STACK].sh_offset = out->tail_offset + put(out, strings, nstrings, 1);

  Elf64_Ehdr e = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT, ELFOSABI_NONE},
                  .e_type = ET_REL,
                  .e_machine = machine,
                  .e_version = EV_CURRENT,
                  .e_ehsize = sizeof e,
                  .e_shentsize = sizeof(Elf64_Shdr),
                  .e_shnum = S_COUNT,
                  .e_shstrndx = S_STRTAB};
  e.e_shoff = out->tail_offset + put(out, h, sizeof h, 8);
  memcpy(out->head, &e, sizeof e);
}
