/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* library.c - looks at a shared library before the dynamic linker maps it.
 *
 * The linker believes what a file says: what lies behind the end of a truncated one ends the program by SIGBUS, tables
 * that point nowhere by SIGSEGV. So the headers are read here, and must describe segments that the file has, and a
 * dynamic section whose tables lie in them. What the tables hold, and code, is not looked at.
 */
#define _GNU_SOURCE
#include "cyrt.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_SEGMENTS = 64, MAX_ENTRIES = 128 };
static const uint64_t MAX_SPAN = (uint64_t)1 << 46, PAGE = 4096; /* the least there is */

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#else
#define MACHINE EM_NONE /* not known: the linker will tell */
#endif

typedef struct file {
  int fd;
  uint64_t bytes;
  ElfW(Phdr) segment[MAX_SEGMENTS];
  unsigned n;
} file;

static int read_at(const file *f, uint64_t offset, void *out, uint64_t bytes) {
  return offset <= f->bytes && bytes <= f->bytes - offset && pread(f->fd, out, bytes, (off_t)offset) == (ssize_t)bytes;
}

/* Does a segment that is loaded have these bytes? Those that the file does not hold are zero. */
static int is_loaded(const file *f, uint64_t address, uint64_t bytes, int in_file) {
  for (unsigned i = 0; i < f->n; i++) {
    const ElfW(Phdr) *s = &f->segment[i];
    uint64_t size = in_file ? s->p_filesz : s->p_memsz;
    if (s->p_type == PT_LOAD && address >= s->p_vaddr && address - s->p_vaddr <= size &&
        bytes <= size - (address - s->p_vaddr))
      return 1;
  }
  return 0;
}

/* Do the bytes of a segment that describes others lie in one of these, as it says they do in the file? The linker rounds
 * its end up to whole pages. */
static int is_inside(const file *f, const ElfW(Phdr) * inner) {
  for (unsigned i = 0; i < f->n; i++) {
    const ElfW(Phdr) *s = &f->segment[i];
    uint64_t from = inner->p_vaddr - s->p_vaddr, size = (s->p_memsz + PAGE - 1) / PAGE * PAGE;
    if (s->p_type == PT_LOAD && from == inner->p_offset - s->p_offset && from <= size && inner->p_memsz <= size - from)
      return 1;
  }
  return 0;
}

static const char *segments_fault(const file *f) {
  static const char damaged[] = "its segments are damaged";
  uint64_t end = 0;
  uint32_t rights = 0;
  for (unsigned i = 0; i < f->n; i++) {
    const ElfW(Phdr) *s = &f->segment[i];
    if (s->p_offset > f->bytes || s->p_filesz > f->bytes - s->p_offset)
      return "the file is truncated";
    if ((s->p_type == PT_PHDR || s->p_type == PT_DYNAMIC || s->p_type == PT_GNU_RELRO) && !is_inside(f, s))
      return damaged;
    if (s->p_type != PT_LOAD)
      continue;
    if (!(s->p_flags & PF_R) || s->p_memsz < s->p_filesz || s->p_vaddr < end || s->p_vaddr > MAX_SPAN ||
        s->p_memsz > MAX_SPAN || (s->p_vaddr - s->p_offset) % PAGE)
      return damaged;
    end = s->p_vaddr + s->p_memsz;
    rights |= s->p_flags;
  }
  return (rights & (PF_R | PF_W | PF_X)) == (PF_R | PF_W | PF_X) ? NULL
                                                                 : damaged; /* constants, code, and what is relocated */
}

/* Tables by their address, and the entry that has their size (0: of unknown size). */
static const struct {
  int64_t at, size;
} tables[] = {{DT_STRTAB, DT_STRSZ}, {DT_SYMTAB, 0},
              {DT_GNU_HASH, 0},      {DT_HASH, 0},
              {DT_RELA, DT_RELASZ},  {DT_JMPREL, DT_PLTRELSZ},
              {DT_VERSYM, 0},        {DT_VERNEED, 0},
              {DT_VERDEF, 0},        {DT_INIT, 0},
              {DT_FINI, 0},          {DT_INIT_ARRAY, DT_INIT_ARRAYSZ},
              {DT_PLTGOT, 0},        {DT_FINI_ARRAY, DT_FINI_ARRAYSZ}};

static const ElfW(Dyn) * entry_of(const ElfW(Dyn) * list, unsigned n, int64_t tag) {
  for (unsigned i = 0; i < n; i++)
    if (list[i].d_tag == tag)
      return &list[i];
  return NULL;
}

static const char *dynamic_fault(const file *f) {
  static const char damaged[] = "its dynamic section is damaged";
  ElfW(Dyn) list[MAX_ENTRIES];
  const ElfW(Phdr) *dynamic = NULL;
  for (unsigned i = 0; i < f->n; i++)
    if (f->segment[i].p_type == PT_DYNAMIC)
      dynamic = &f->segment[i];
  if (!dynamic)
    return "it has no dynamic section";
  unsigned n = 0, max = (unsigned)(dynamic->p_filesz / sizeof *list < MAX_ENTRIES ? dynamic->p_filesz / sizeof *list
                                                                                   : MAX_ENTRIES);
  if (!is_loaded(f, dynamic->p_vaddr, dynamic->p_filesz, 1) ||
      !read_at(f, dynamic->p_offset, list, max * sizeof *list))
    return damaged;
  while (n < max && list[n].d_tag != DT_NULL)
    n++;
  if (n == max || !entry_of(list, n, DT_STRTAB) || !entry_of(list, n, DT_SYMTAB))
    return damaged;
  for (unsigned i = 0; i < sizeof tables / sizeof tables[0]; i++) {
    const ElfW(Dyn) *at = entry_of(list, n, tables[i].at), *size = entry_of(list, n, tables[i].size);
    if (at && !is_loaded(f, at->d_un.d_ptr, tables[i].size && size ? size->d_un.d_val : 1, 0))
      return damaged;
  }
  return NULL;
}

static const char *file_fault(file *f) {
  ElfW(Ehdr) head;
  int64_t bytes = cyrt_file_bytes(f->fd);
  if (bytes < 0)
    return "it is no regular file";
  f->bytes = (uint64_t)bytes;
  int is_read = read_at(f, 0, &head, sizeof head);
  if (is_read && !memcmp(head.e_ident, "MZ", 2))
    return "it is a library for Windows";
  if (!is_read || memcmp(head.e_ident, ELFMAG, SELFMAG))
    return "it is no shared library";
  if (head.e_ident[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32) || head.e_type != ET_DYN ||
      (MACHINE != EM_NONE && head.e_machine != MACHINE))
    return "it is no shared library for this kind of machine";
  if (head.e_phentsize != sizeof *f->segment || head.e_phnum > MAX_SEGMENTS ||
      !read_at(f, head.e_phoff, f->segment, head.e_phnum * sizeof *f->segment))
    return "its headers are damaged, or it is truncated";
  f->n = head.e_phnum;
  const char *fault = segments_fault(f);
  return fault ? fault : dynamic_fault(f);
}

int64_t cyrt_file_bytes(int file) {
  struct stat info; /* the C library's is the kernel's; its fstat() is a function since glibc 2.33 only */
  return syscall(SYS_fstat, file, &info) || !S_ISREG(info.st_mode) ? -1 : (int64_t)info.st_size;
}

const char *cyrt_library_fault(const char *path) {
  file f = {.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)}; /* a pipe is not waited for */
  if (f.fd < 0)
    return "it cannot be opened";
  const char *fault = file_fault(&f);
  close(f.fd);
  return fault;
}
