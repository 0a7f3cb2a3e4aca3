/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.c - as much of Linux as a program needs that reads files, computes in one thread and writes files.
 *
 * For tests on CPUs that this machine is not: the ROM of an emulated PC (machine.py) that loads a tar archive from the
 * disk, runs the programs that its file "commands" lists, and writes a tar archive of the files they made.
 *
 * In:  disk: sector 0 holds three numbers of 64 bits: the archive's length in bytes, the sector where output goes, and
 *      how many bytes of RAM there are; the archive follows. commands: one a line, arguments separated by tabs. A
 *      program is a position-independent ELF file; its loader and all that it opens must be in the archive.
 * Out: the archive of files made; of command K (from 0) also K.log, what it wrote to its standard output and error,
 *      which ends with a line "exit CODE", or with what is known of the fault that ended it.
 *
 * One address space, everything in ring 0, no interrupts. A program may use the memory between the archive, which stays
 * until the end, and the files that were made, which grow from the end of RAM downwards; it is taken in order and all
 * given back at its end. What is not here fails with ENOSYS.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define RAM_BASE 0x80000000ull /* of addresses; boot.S */
#define PAGE 4096ull
#define BREAK_ROOM (1ull << 20) /* for brk(); what malloc() wants beyond it comes from mmap() */
#define STACK_ROOM (1ull << 20)

enum { MAX_FILES = 6000, MAX_HANDLES = 64, MAX_ARGUMENTS = 64, MAX_MAPPINGS = 128 };

#pragma GCC visibility push(hidden)
extern uint8_t fault_entries[];
void system_call_entry(void);
_Noreturn void program_start(uint64_t entry, uint64_t stack);
_Noreturn void stack_reset(void (*next)(void));
#pragma GCC visibility pop

/* ---- the machine ---- */

static void out8(uint16_t port, uint8_t v) { __asm__ volatile("outb %0, %1" : : "a"(v), "Nd"(port)); }
static uint8_t in8(uint16_t port) {
  uint8_t v;
  __asm__ volatile("inb %1, %0" : "=a"(v) : "Nd"(port));
  return v;
}

static void msr_write(uint32_t number, uint64_t v) {
  __asm__ volatile("wrmsr" : : "c"(number), "a"((uint32_t)v), "d"((uint32_t)(v >> 32)));
}

void *memcpy(void *to, const void *from, size_t n) {
  void *start = to;
  size_t words = n / 8;
  n %= 8;
  __asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
  __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
  return start;
}

void *memset(void *to, int v, size_t n) {
  void *start = to;
  size_t words = n / 8;
  n %= 8;
  __asm__ volatile("rep stosq" : "+D"(to), "+c"(words) : "a"(0x0101010101010101u * (uint8_t)v) : "memory");
  __asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(v) : "memory");
  return start;
}

static _Noreturn void power_off(void) {
  for (const char *p = "Shutdown"; *p; p++)
    out8(0x8900, (uint8_t)*p);
  for (;;)
    __asm__ volatile("hlt");
}

/* Only for what leaves nothing to go on with: the emulator prints what is written to this port. */
static _Noreturn void panic(const char *text) {
  for (const char *p = "kernel: "; *p; p++)
    out8(0xe9, (uint8_t)*p);
  for (; *text; text++)
    out8(0xe9, (uint8_t)*text);
  out8(0xe9, '\n');
  power_off();
}

/* ---- disk: the first one of an ATA controller, polled ---- */

enum { ATA = 0x1f0, ATA_READ = 0x20, ATA_WRITE = 0x30, SECTOR = 512 };

static void disk_wait(void) {
  uint8_t status;
  while ((status = in8(ATA + 7)) & 0x80) {
  }
  if (status & 0x21)
    panic("the disk reports an error");
}

static void disk_transfer(uint8_t command, uint64_t sector, uint64_t count, void *data) {
  for (uint64_t n; count; count -= n, sector += n) {
    n = count < 128 ? count : 128;
    disk_wait();
    out8(ATA + 2, (uint8_t)n);
    for (int i = 0; i < 3; i++)
      out8(ATA + 3 + i, (uint8_t)(sector >> 8 * i));
    out8(ATA + 6, (uint8_t)(0xe0 | (sector >> 24 & 15)));
    out8(ATA + 7, command);
    for (uint64_t i = 0; i < n; i++) {
      uint64_t words = SECTOR / 2;
      do
        disk_wait();
      while (!(in8(ATA + 7) & 8));
      if (command == ATA_READ)
        __asm__ volatile("rep insw" : "+D"(data), "+c"(words) : "d"(ATA) : "memory");
      else
        __asm__ volatile("rep outsw" : "+S"(data), "+c"(words) : "d"(ATA) : "memory");
    }
  }
}

/* ---- memory ---- */

static uint64_t low, high;         /* free: what the archive left, below the files that were made */
static uint64_t next_map;          /* of the program: free from here on */
static uint64_t break_begin, break_now;

static uint64_t page_up(uint64_t n) { return (n + PAGE - 1) & -PAGE; }

/* Zeroed memory for the program; 0 when there is none. */
static uint64_t map_pages(uint64_t bytes) {
  uint64_t at = next_map;
  if (bytes > high - at)
    return 0;
  next_map += page_up(bytes);
  memset((void *)at, 0, page_up(bytes));
  return at;
}

/* Memory that stays. */
static void *keep_bytes(uint64_t bytes) {
  if (page_up(bytes) > high - next_map)
    panic("the files that were made do not fit into memory");
  high -= page_up(bytes);
  return (void *)high;
}

/* ---- texts ---- */

static size_t length_of(const char *s) {
  size_t n = 0;
  while (s[n])
    n++;
  return n;
}

static bool starts_with(const char *s, const char *with, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (s[i] != with[i])
      return false;
  return true;
}

static bool same(const char *a, const char *b) { return starts_with(a, b, length_of(b) + 1); }

static char *print_number(char *to, uint64_t v, unsigned base, int digits) {
  char text[24];
  int n = 0;
  do
    text[n++] = "0123456789abcdef"[v % base];
  while ((v /= base) || n < digits);
  while (n)
    *to++ = text[--n];
  return to;
}

static char *print_text(char *to, const char *s) {
  size_t n = length_of(s);
  memcpy(to, s, n);
  return to + n;
}

/* ---- files: a list; a folder is what begins the name of one ---- */

typedef struct file {
  const char *name; /* as in an archive, without a '/' in front */
  uint8_t *data;
  uint64_t size, room; /* room: of those made by a program */
  bool made;
} file;
static file files[MAX_FILES];
static int n_files;

typedef struct handle {
  file *file;
  const char *folder; /* opened to be listed: its name with a '/' behind it */
  uint64_t at;        /* bytes, in a folder the number of the file to look at next */
  bool open;
} handle;
static handle handles[MAX_HANDLES]; /* 0: nothing to read; 1, 2: the log */

static const char *plain_path(const char *path) {
  while (*path == '/' || (path[0] == '.' && path[1] == '/'))
    path++;
  return path;
}

static file *file_find(const char *path) {
  path = plain_path(path);
  for (int i = 0; i < n_files; i++)
    if (same(files[i].name, path))
      return &files[i];
  return NULL;
}

static file *file_add(const char *name, void *data, uint64_t size) {
  if (n_files == MAX_FILES)
    panic("too many files");
  files[n_files] = (file){name, data, size, 0, data == NULL};
  return &files[n_files++];
}

static file *file_make(const char *path) {
  path = plain_path(path);
  char *name = keep_bytes(length_of(path) + 1);
  memcpy(name, path, length_of(path) + 1);
  return file_add(name, NULL, 0);
}

static void file_write(file *f, uint64_t at, const void *data, uint64_t n) {
  if (!f->made)
    panic("a file of the archive would be written to");
  if (at + n > f->room) {
    uint64_t room = page_up(2 * (at + n));
    uint8_t *grown = keep_bytes(room);
    memcpy(grown, f->data, f->size);
    f->data = grown;
    f->room = room;
  }
  memcpy(f->data + at, data, n);
  if (at + n > f->size)
    f->size = at + n;
}

/* "" for the root; else the name with a '/' behind it if some file's name begins so. */
static const char *folder_find(const char *path) {
  path = plain_path(path);
  size_t n = length_of(path);
  while (n && path[n - 1] == '/')
    n--;
  if (n == 0 || (n == 1 && *path == '.'))
    return "";
  for (int i = 0; i < n_files; i++)
    if (starts_with(files[i].name, path, n) && files[i].name[n] == '/') {
      char *name = keep_bytes(n + 2);
      memcpy(name, files[i].name, n + 1);
      name[n + 1] = 0;
      return name;
    }
  return NULL;
}

/* ---- archives ---- */

typedef struct tar_header {
  char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100], magic[8], rest[247];
} tar_header;
_Static_assert(sizeof(tar_header) == SECTOR, "a header is one sector");

static void archive_read(uint8_t *at, const uint8_t *end) {
  while (at < end && *at) {
    tar_header *h = (tar_header *)at;
    uint64_t size = 0;
    for (int i = 0; i < 11; i++)
      size = size * 8 + (uint64_t)(h->size[i] - '0');
    at += SECTOR;
    if (h->name[99])
      panic("a name in the archive is too long");
    file_add(h->name, at, size);
    at += (size + SECTOR - 1) & -(uint64_t)SECTOR;
  }
}

static void octal(char *field, int digits, uint64_t v) {
  for (; digits--; v /= 8)
    field[digits] = (char)('0' + v % 8);
}

static void archive_write(uint64_t sector) {
  static tar_header h;
  for (file *f = files; f < files + n_files; f++) {
    if (!f->made)
      continue;
    memset(&h, 0, sizeof h);
    if (length_of(f->name) >= sizeof h.name)
      panic("the name of a file that was made is too long");
    print_text(h.name, f->name);
    octal(h.mode, 7, 0644);
    octal(h.uid, 7, 0);
    octal(h.gid, 7, 0);
    octal(h.size, 11, f->size);
    octal(h.mtime, 11, 0);
    h.type = '0';
    print_text(h.magic, "ustar  ");
    memset(h.checksum, ' ', sizeof h.checksum);
    uint64_t sum = 0;
    for (int i = 0; i < SECTOR; i++)
      sum += ((uint8_t *)&h)[i];
    octal(h.checksum, 6, sum);
    h.checksum[6] = 0;
    disk_transfer(ATA_WRITE, sector++, 1, &h);
    uint64_t sectors = (f->size + SECTOR - 1) / SECTOR;
    disk_transfer(ATA_WRITE, sector, sectors, f->data);
    sector += sectors;
  }
  memset(&h, 0, sizeof h);
  disk_transfer(ATA_WRITE, sector, 1, &h);
  disk_transfer(ATA_WRITE, sector + 1, 1, &h);
}

/* ---- programs ---- */

typedef struct mapping {
  uint64_t begin, end, offset;
  const char *name;
} mapping;
static mapping mappings[MAX_MAPPINGS]; /* of files, for messages */
static int n_mappings;

static char *commands, *commands_end; /* what is left of them */
static int command_number;
static file *log_file;
static uint64_t output_sector;

static void note_mapping(uint64_t begin, uint64_t bytes, uint64_t offset, const char *name) {
  if (n_mappings < MAX_MAPPINGS)
    mappings[n_mappings++] = (mapping){begin, begin + bytes, offset, name};
}

static void log_write(const char *text, uint64_t n) { file_write(log_file, log_file->size, text, n); }

static void command_next(void);
static _Noreturn void command_end(const char *text, uint64_t n) {
  if (log_file->size && log_file->data[log_file->size - 1] != '\n')
    log_write("\n", 1);
  log_write(text, n);
  stack_reset(command_next);
}

static _Noreturn void command_exit(uint64_t code) {
  char text[40];
  command_end(text, (uint64_t)(print_number(print_text(text, "exit "), code, 10, 1) - text));
}

/* Called from boot.S. */
_Noreturn void fault(uint64_t vector, uint64_t error, uint64_t at, uint64_t address) {
  char text[400], *p = print_number(print_text(text, "exception "), vector, 10, 1);
  p = print_number(print_text(p, ", error "), error, 16, 1);
  p = print_number(print_text(p, ", address "), address, 16, 1);
  p = print_number(print_text(p, ", at "), at, 16, 1);
  for (int i = n_mappings; i--;)
    if (at >= mappings[i].begin && at < mappings[i].end) {
      p = print_text(print_text(p, " = "), mappings[i].name);
      p = print_number(print_text(p, " + "), at - mappings[i].begin + mappings[i].offset, 16, 1);
      p = print_text(p, ":");
      for (int k = 0; k < 12; k++)
        p = print_number(print_text(p, " "), ((uint8_t *)at)[k], 16, 2);
      break;
    }
  *p = 0;
  if (!log_file)
    panic(text);
  command_end(text, (uint64_t)(p - text));
}

/* Loads an ELF file; returns what is added to its addresses. */
static uint64_t elf_load(const file *f, uint64_t *out_end) {
  const Elf64_Ehdr *head = (const Elf64_Ehdr *)f->data;
  const Elf64_Phdr *part = (const Elf64_Phdr *)(f->data + head->e_phoff);
  uint64_t bytes = 0;
  if (f->size < sizeof *head || !starts_with((const char *)head->e_ident, ELFMAG, SELFMAG) || head->e_type != ET_DYN)
    panic("not a position-independent ELF program");
  for (int i = 0; i < head->e_phnum; i++)
    if (part[i].p_type == PT_LOAD)
      bytes = part[i].p_vaddr + part[i].p_memsz;
  uint64_t base = map_pages(bytes);
  if (!base)
    panic("no memory for a program");
  for (int i = 0; i < head->e_phnum; i++)
    if (part[i].p_type == PT_LOAD)
      memcpy((void *)(base + part[i].p_vaddr), f->data + part[i].p_offset, part[i].p_filesz);
  note_mapping(base, bytes, 0, f->name);
  *out_end = base + bytes;
  return base;
}

static const char *interpreter_of(const file *f) {
  const Elf64_Ehdr *head = (const Elf64_Ehdr *)f->data;
  const Elf64_Phdr *part = (const Elf64_Phdr *)(f->data + head->e_phoff);
  for (int i = 0; i < head->e_phnum; i++)
    if (part[i].p_type == PT_INTERP)
      return (const char *)f->data + part[i].p_offset;
  return NULL;
}

/* Arguments, environment and auxiliary vector, as a program finds them at its start. */
static uint64_t stack_fill(char **arguments, int n, uint64_t program, const Elf64_Ehdr *head, uint64_t base) {
  static const char *const environment[] = {"LD_BIND_NOW=1", "LD_LIBRARY_PATH=/lib", "HOME=/"};
  enum { N_ENVIRONMENT = sizeof environment / sizeof environment[0] };
  static const uint8_t random[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  const uint64_t auxiliary[][2] = {
      {AT_PHDR, program + head->e_phoff}, {AT_PHENT, head->e_phentsize}, {AT_PHNUM, head->e_phnum},
      {AT_ENTRY, program + head->e_entry}, {AT_BASE, base}, {AT_PAGESZ, PAGE}, {AT_UID, 0}, {AT_EUID, 0}, {AT_GID, 0},
      {AT_EGID, 0}, {AT_SECURE, 0}, {AT_CLKTCK, 100}, {AT_RANDOM, (uint64_t)random}, {AT_NULL, 0}};
  uint64_t top = map_pages(STACK_ROOM) + STACK_ROOM;
  uint64_t words = 1 + (uint64_t)n + 1 + N_ENVIRONMENT + 1 + sizeof auxiliary / 8;
  uint64_t *p = (uint64_t *)((top - 8 * words) & -16ull), *start = p;
  *p++ = (uint64_t)n;
  for (int i = 0; i < n; i++)
    *p++ = (uint64_t)arguments[i];
  *p++ = 0;
  for (int i = 0; i < N_ENVIRONMENT; i++)
    *p++ = (uint64_t)environment[i];
  *p++ = 0;
  memcpy(p, auxiliary, sizeof auxiliary);
  return (uint64_t)start;
}

static _Noreturn void command_start(char **arguments, int n) {
  uint64_t end, ignored, base = 0;
  const file *f = file_find(arguments[0]);
  if (!f)
    panic("a program is not in the archive");
  const Elf64_Ehdr *head = (const Elf64_Ehdr *)f->data;
  uint64_t program = elf_load(f, &end), entry = program + head->e_entry;
  break_begin = break_now = next_map;
  map_pages(BREAK_ROOM);
  const char *interpreter = interpreter_of(f);
  if (interpreter) {
    const file *loader = file_find(interpreter);
    if (!loader)
      panic("a program's loader is not in the archive");
    base = elf_load(loader, &ignored);
    entry = base + ((const Elf64_Ehdr *)loader->data)->e_entry;
  }
  program_start(entry, stack_fill(arguments, n, program, head, base));
}

static void command_next(void) {
  static char *arguments[MAX_ARGUMENTS + 1];
  int n = 0;
  if (commands >= commands_end) {
    archive_write(output_sector);
    power_off();
  }
  for (char *p = commands; n < MAX_ARGUMENTS;) {
    arguments[n++] = p;
    while (*p != '\t' && *p != '\n')
      p++;
    bool last = *p == '\n';
    *p++ = 0;
    commands = p;
    if (last)
      break;
  }
  next_map = low;
  n_mappings = 0;
  memset(handles, 0, sizeof handles);
  char name[40];
  *print_text(print_number(name, (uint64_t)command_number++, 10, 1), ".log") = 0;
  log_file = file_make(name);
  handles[0].open = true;
  handles[1] = handles[2] = (handle){log_file, NULL, 0, true};
  __asm__ volatile("fninit");
  command_start(arguments, n);
}

/* ---- system calls ---- */

static handle *handle_of(uint64_t number) {
  return number < MAX_HANDLES && handles[number].open ? &handles[number] : NULL;
}

static int64_t do_open(const char *path, uint64_t flags) {
  int number = 3;
  while (number < MAX_HANDLES && handles[number].open)
    number++;
  if (number == MAX_HANDLES)
    return -EMFILE;
  handle h = {.open = true, .file = file_find(path)};
  if (!h.file && !(flags & O_CREAT))
    h.folder = folder_find(path);
  if (!h.file && !h.folder) {
    if (!(flags & O_CREAT))
      return -ENOENT;
    h.file = file_make(path);
  }
  if (h.file && (flags & O_DIRECTORY))
    return -ENOTDIR;
  if (h.file && (flags & O_TRUNC))
    h.file->size = 0;
  handles[number] = h;
  return number;
}

static int64_t do_read(uint64_t number, void *to, uint64_t n, const uint64_t *at) {
  handle *h = handle_of(number);
  if (!h || h->folder)
    return -EBADF;
  uint64_t begin = at ? *at : h->at, size = h->file ? h->file->size : 0;
  n = begin >= size ? 0 : n < size - begin ? n : size - begin;
  if (n)
    memcpy(to, h->file->data + begin, n);
  if (!at)
    h->at = begin + n;
  return (int64_t)n;
}

static int64_t do_write(uint64_t number, const void *from, uint64_t n) {
  handle *h = handle_of(number);
  if (!h || !h->file)
    return -EBADF;
  if (h->file == log_file)
    h->at = log_file->size;
  file_write(h->file, h->at, from, n);
  h->at += n;
  return (int64_t)n;
}

static int64_t do_writev(uint64_t number, const uint64_t (*parts)[2], uint64_t n) {
  int64_t sum = 0;
  for (uint64_t i = 0; i < n; i++) {
    int64_t one = do_write(number, (const void *)parts[i][0], parts[i][1]);
    if (one < 0)
      return one;
    sum += one;
  }
  return sum;
}

static int64_t do_seek(uint64_t number, int64_t by, uint64_t from) {
  handle *h = handle_of(number);
  if (!h || (!h->file && !h->folder))
    return -ESPIPE;
  h->at = (uint64_t)by + (from == 0 ? 0 : from == 1 ? h->at : h->file ? h->file->size : 0);
  return (int64_t)h->at;
}

static int64_t stat_fill(const file *f, bool folder, struct stat *s) {
  if (!f && !folder)
    return -ENOENT;
  memset(s, 0, sizeof *s);
  s->st_ino = f ? (uint64_t)(f - files) + 2 : 1; /* the loader knows libraries by it */
  s->st_mode = folder ? S_IFDIR | 0755 : f == log_file ? S_IFCHR | 0644 : S_IFREG | 0755;
  s->st_nlink = 1;
  s->st_size = f ? (int64_t)f->size : 0;
  s->st_blksize = PAGE;
  return 0;
}

static int64_t do_stat(uint64_t number, const char *path, struct stat *s) {
  if (!path || !*path) {
    const handle *h = handle_of(number);
    return !h ? -EBADF : stat_fill(h->file ? h->file : log_file, h->folder != NULL, s);
  }
  const file *f = file_find(path);
  return stat_fill(f, !f && folder_find(path), s);
}

static int64_t do_list(uint64_t number, uint8_t *to, uint64_t room) {
  struct entry {
    uint64_t ino;
    int64_t next;
    uint16_t bytes;
    uint8_t type;
    char name[];
  };
  handle *h = handle_of(number);
  uint64_t used = 0;
  if (!h || !h->folder)
    return -ENOTDIR;
  for (size_t n = length_of(h->folder); h->at < (uint64_t)n_files; h->at++) {
    const char *name = files[h->at].name + n;
    if (!starts_with(files[h->at].name, h->folder, n))
      continue;
    size_t length = 0;
    while (name[length] && name[length] != '/')
      length++;
    uint64_t bytes = (offsetof(struct entry, name) + length + 1 + 7) & -8ull;
    if (name[length] || used + bytes > room) { /* folders in it are not listed */
      if (name[length])
        continue;
      break;
    }
    struct entry *e = (struct entry *)(to + used);
    *e = (struct entry){h->at + 2, (int64_t)h->at + 1, (uint16_t)bytes, 8};
    memcpy(e->name, name, length + 1);
    used += bytes;
  }
  return (int64_t)used;
}

static int64_t do_map(uint64_t at, uint64_t bytes, uint64_t flags, uint64_t number, uint64_t offset) {
  const handle *h = flags & MAP_ANONYMOUS ? NULL : handle_of(number);
  if (!bytes || (!(flags & MAP_ANONYMOUS) && (!h || !h->file)))
    return -EINVAL;
  if (flags & MAP_FIXED)
    memset((void *)at, 0, page_up(bytes));
  else if (!(at = map_pages(bytes)))
    return -ENOMEM;
  if (h && offset < h->file->size) {
    uint64_t left = h->file->size - offset;
    memcpy((void *)at, h->file->data + offset, left < bytes ? left : bytes);
    note_mapping(at, bytes, offset, h->file->name);
  }
  return (int64_t)at;
}

static int64_t do_unmap(uint64_t at, uint64_t bytes) {
  if (at + page_up(bytes) == next_map)
    next_map = at;
  return 0;
}

static int64_t do_break(uint64_t at) {
  if (at >= break_begin && at <= break_begin + BREAK_ROOM) {
    if (at > break_now)
      memset((void *)break_now, 0, at - break_now);
    break_now = at;
  }
  return (int64_t)break_now;
}

static int64_t do_clock(uint64_t *to) { /* counts instructions, as a clock of 1 GHz */
  uint32_t a, d;
  __asm__ volatile("rdtsc" : "=a"(a), "=d"(d));
  uint64_t now = (uint64_t)d << 32 | a;
  to[0] = now / 1000000000;
  to[1] = now % 1000000000;
  return 0;
}

static int64_t do_thread_pointer(uint64_t what, uint64_t v) {
  if (what != 0x1002) /* ARCH_SET_FS */
    return -EINVAL;
  msr_write(0xc0000100, v);
  return 0;
}

static int64_t do_affinity(uint64_t bytes, uint64_t *to) {
  if (bytes < 8)
    return -EINVAL;
  *to = 1;
  return 8;
}

/* Numbers as in the x86-64 table of Linux. Called from boot.S. */
int64_t system_call(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t number) {
  switch (number) {
  case 0: return do_read(a, (void *)b, c, NULL);
  case 1: return do_write(a, (const void *)b, c);
  case 2: return do_open((const char *)a, b);
  case 3: return handle_of(a) ? handles[a].open = false, 0 : -EBADF;
  case 4: return do_stat(0, (const char *)a, (struct stat *)b);
  case 5: return do_stat(a, NULL, (struct stat *)b);
  case 8: return do_seek(a, (int64_t)b, c);
  case 9: return do_map(a, b, d, e, f);
  case 11: return do_unmap(a, b);
  case 12: return do_break(a);
  case 16: return -ENOTTY; /* ioctl */
  case 17: return do_read(a, (void *)b, c, &d);
  case 20: return do_writev(a, (const void *)b, c);
  case 21: return file_find((const char *)a) || folder_find((const char *)a) ? 0 : -ENOENT; /* access */
  case 60: case 231: command_exit(a & 255);
  case 79: memcpy((void *)a, "/", 2); return 2; /* getcwd */
  case 158: return do_thread_pointer(a, b);
  case 204: return do_affinity(b, (uint64_t *)c);
  case 217: return do_list(a, (uint8_t *)b, c);
  case 228: return do_clock((uint64_t *)b);
  case 257: return do_open((const char *)b, c);
  case 262: return do_stat(a, (const char *)b, (struct stat *)c);
  case 318: memset((void *)a, 7, b); return (int64_t)b; /* getrandom */
  case 39: case 186: case 218: return 1; /* getpid, gettid, set_tid_address */
  case 10: case 13: case 14: case 28: case 83: case 202: case 258: case 273: return 0;
    /* mprotect, rt_sigaction, rt_sigprocmask, madvise, mkdir, futex, mkdirat, set_robust_list */
  default: return -ENOSYS;
  }
}

/* ---- start ---- */

static void vectors_set(void) {
  static uint64_t table[64];
  static struct __attribute__((packed)) {
    uint16_t limit;
    uint64_t base;
  } pointer;
  for (int i = 0; i < 32; i++) {
    uint64_t at = (uint64_t)fault_entries + 16 * (uint64_t)i;
    table[2 * i] = (at & 0xffff) | 24 << 16 | 0x8e00ull << 32 | (at >> 16 & 0xffff) << 48;
    table[2 * i + 1] = at >> 32;
  }
  pointer.limit = sizeof table - 1;
  pointer.base = (uint64_t)table;
  __asm__ volatile("lidt %0" : : "m"(pointer));
  msr_write(0xc0000081, 24ull << 32);                  /* STAR: the segment of SYSCALL */
  msr_write(0xc0000082, (uint64_t)system_call_entry); /* LSTAR */
  msr_write(0xc0000084, 0x700);                        /* flags that SYSCALL clears */
}

/* Called from boot.S. */
void kernel_main(void) {
  static uint64_t head[SECTOR / 8];
  vectors_set();
  disk_transfer(ATA_READ, 0, 1, head);
  uint8_t *archive = (uint8_t *)RAM_BASE + (1 << 20);
  if (head[0] > head[2] / 2)
    panic("the archive does not fit into memory");
  disk_transfer(ATA_READ, 1, head[0] / SECTOR, archive);
  output_sector = head[1];
  low = next_map = page_up((uint64_t)archive + head[0]);
  high = RAM_BASE + head[2];
  archive_read(archive, archive + head[0]);
  const file *list = file_find("commands");
  if (!list || !list->size || list->data[list->size - 1] != '\n')
    panic("no list of commands");
  commands = (char *)list->data;
  commands_end = commands + list->size;
  stack_reset(command_next);
}
