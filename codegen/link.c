/* SPDX-License-Identifier: Apache-2.0 */
/* link.c - objects to the file that was asked for.
 *
 * In: object files of the host program, kernels and weights; the runtime archive, what shared libraries have besides
 * and the names of the C library's functions for the architecture, embedded in this binary (carried.h), so no
 * development files are needed. Out: a shared library or DLL by `ld -shared`, an archive by `ar`, an object by `ld -r`, or
 * texts put together.
 * No build ids and no timestamps: equal inputs give equal bytes.
 */
#define _GNU_SOURCE
#include "codegen/work.h"
#include "runtime/cyto_abi.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* ---- running tools ---- */

typedef struct command {
  const char *argv[600];
  int n;
} command;

static void add(command *c, const char *arg) {
  if (c->n + 1 >= (int)(sizeof c->argv / sizeof c->argv[0]))
    cy_bug("too many arguments for the linker");
  c->argv[c->n++] = arg;
}

/* Puts the first lines of a tool's complaints into a diagnostic. */
static void report_failure(cy_work *b, const char *tool, int status, const char *log) {
  char text[1500] = "";
  FILE *f = fopen(log, "r");
  size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
  if (f)
    fclose(f);
  while (n > 0 && text[n - 1] == '\n')
    n--;
  text[n] = 0;
  if (WIFSIGNALED(status))
    cy_diag_add(b->diag, CY_ERROR, NULL, "'%s' was ended by signal %d: not enough memory?", tool, WTERMSIG(status));
  else
    cy_diag_add(b->diag, CY_ERROR, NULL, "'%s' failed: %s", tool, n ? text : "no message");
  cy_diag_blame(b->diag, WIFSIGNALED(status) ? CY_CAUSE_MEMORY : CY_CAUSE_LINKER);
}

/* Status of the command as of waitpid(), -1 when it cannot be started (errno says why). */
static int run(command *c, const char *log) {
  posix_spawn_file_actions_t actions;
  pid_t pid;
  c->argv[c->n] = NULL;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  int error = cy_temps_spawn(&pid, c->argv[0], &actions, (char **)c->argv);
  posix_spawn_file_actions_destroy(&actions);
  if (error) {
    errno = error;
    return -1;
  }
  return cy_temps_wait(pid);
}

/* Tries the names of a tool in turn until one exists: binutils' are for one architecture, LLVM's for all. */
static int run_tool(cy_work *b, const char *const *names, command *c) {
  const char *log = cy_temps_file(b->temps, "log");
  const cy_arch *arch = b->machine->arch;
  char first[64];
  snprintf(first, sizeof first, "%s%s", arch == cy_arch_here() ? "" : arch->tools, names[0]);
  for (const char *name = first; name; name = *++names) {
    c->argv[0] = name;
    int status = run(c, log);
    if (status == 0)
      return 0;
    if (status > 0) {
      report_failure(b, name, status, log);
      return -1;
    }
    if (errno != ENOENT) {
      cy_diag_add(b->diag, CY_ERROR, NULL, "cannot run '%s': %s", name, strerror(errno));
      cy_diag_blame(b->diag, CY_CAUSE_LINKER);
      return -1;
    }
  }
  cy_diag_add(b->diag, CY_ERROR, NULL, "'%s' was not found in PATH: install the package '%s'", first,
              arch == cy_arch_here() ? "binutils" : arch->package);
  cy_diag_blame(b->diag, CY_CAUSE_LINKER);
  return -1;
}

static const char *const linkers[] = {"ld", "ld.lld", "ld.lld-19", NULL};
static const char *const windows_linkers[] = {"ld", NULL}; /* lld knows no --defsym there */
static const char *const archivers[] = {"ar", "llvm-ar", "llvm-ar-19", NULL};

/* ---- pieces ---- */

static int write_file(cy_work *b, const char *path, const char *data, size_t n) {
  return cy_file_write(path, data, n) ? 0 : cy_cannot_write(b->diag, path);
}

static int write_carried(cy_work *b, int which, const char *path) {
  const cy_arch *a = b->machine->arch;
  return write_file(b, path, a->carried[which].bytes, (size_t)(a->carried[which].end - a->carried[which].bytes));
}

static int add_carried(cy_work *b, command *c) {
  const cy_carried *carried = b->machine->arch->carried;
  for (int i = 0; carried[i].name; i++) {
    const char *path = cy_temps_file(b->temps, carried[i].name);
    if (write_carried(b, i, path))
      return -1;
    add(c, path);
  }
  return 0;
}

static void add_objects(cy_work *b, command *c) {
  for (uint32_t i = 0; i < b->nobjects; i++)
    add(c, b->objects[i]);
}

/* ---- kinds of libraries ---- */

/* Where sections go: what is only read, code, and what is written lie side by side in the file, each mapped with its
 * own rights; a page that has the end of one and the start of the next is mapped twice. Left alone, the linker fills
 * the file up to whole pages instead: 8 to 12 KB of a library. What becomes read-only once it is relocated (relro) has
 * to end with a page: zeros of memory alone fill it up, where DATA_SEGMENT_ALIGN with pages would fill up the file. */
static const char layout[] =
    "PHDRS {\n"
    "  headers PT_PHDR PHDRS;\n"
    "  rodata PT_LOAD FILEHDR PHDRS FLAGS(4);\n"
    "  text PT_LOAD FLAGS(5);\n"
    "  data PT_LOAD FLAGS(6);\n"
    "  dynamic PT_DYNAMIC FLAGS(6);\n"
    "  stack PT_GNU_STACK FLAGS(6);\n"
    "  relro PT_GNU_RELRO FLAGS(4);\n"
    "}\n"
    "SECTIONS {\n"
    "  . = SIZEOF_HEADERS;\n"
    "  .gnu.hash : { *(.gnu.hash) } :rodata\n"
    "  .dynsym : { *(.dynsym) }\n"
    "  .dynstr : { *(.dynstr) }\n"
    "  .gnu.version : { *(.gnu.version) }\n"
    "  .gnu.version_d : { *(.gnu.version_d) }\n"
    "  .gnu.version_r : { *(.gnu.version_r) }\n"
    "  .rela.dyn : { *(.rela.dyn .rela.data* .rela.got .rela.init_array) }\n"
    "  .rela.plt : { *(.rela.plt) }\n"
    "  .rodata : { *(.rodata .rodata.*) }\n"
    "  .cyto_cuda : { *(.cyto_cuda) }\n"
    "  .cyto_weights : { *(.cyto_weights) }\n"
    "  . = ALIGN(CONSTANT(MAXPAGESIZE)) + (. & (CONSTANT(MAXPAGESIZE) - 1));\n"
    "  .plt : { *(.plt) } :text\n"
    "  .plt.got : { *(.plt.got) }\n"
    "  .text : { *(.text .text.*) }\n"
    "  . = ALIGN(CONSTANT(MAXPAGESIZE)) + (. & (CONSTANT(MAXPAGESIZE) - 1));\n"
    "  . = DATA_SEGMENT_ALIGN(1, 1);\n"
    "  .init_array : { KEEP(*(.init_array .init_array.*)) } :data :relro\n"
    "  .data.rel.ro : { *(.data.rel.ro .data.rel.ro.*) } :data :relro\n"
    "  .dynamic : { *(.dynamic) } :data :relro :dynamic\n"
    "  .got : { *(.got .got.plt) } :data :relro\n"
    "  .relro_end (NOLOAD) : { . = ALIGN(CONSTANT(MAXPAGESIZE)); } :data :relro\n"
    "  . = DATA_SEGMENT_RELRO_END(0, .);\n"
    "  .data : { *(.data .data.*) } :data\n"
    "  .bss : { *(.bss .bss.* COMMON) }\n"
    "  . = DATA_SEGMENT_END(.);\n"
    "  /DISCARD/ : { *(.comment .note.GNU-stack) }\n"
    "}\n";

static void add_all(command *c, const char *const *flags) {
  for (; *flags; flags++)
    add(c, *flags);
}

/* What all shared libraries are linked of. */
static int link_rest(cy_work *b, command *c, const char *near) {
  char linked_model[200]; /* of query.o */
  snprintf(linked_model, sizeof linked_model, "--defsym=cyrt_linked_model=%s_cyrt_model", b->name);
  if (!b->o->profile)
    add(c, "-s"); /* names of functions that nobody calls by name: a tenth of a small library */
  add(c, "--gc-sections");
  add(c, "-o");
  add(c, near);
  add(c, linked_model);
  add_objects(b, c);
  bool windows = b->machine->arch->format == CY_COFF;
  return add_carried(b, c) ? -1 : run_tool(b, windows ? windows_linkers : linkers, c);
}

static int link_so(cy_work *b, const char *near) {
  char script[800];
  const char *script_path = cy_temps_file(b->temps, "exports"), *layout_path = cy_temps_file(b->temps, "layout");
  int n = snprintf(script, sizeof script,
                   "{ global: cyto_model_query; %s_run; %s_create; %s_model; cyto_context_destroy; cyrt_process_pool; "
                   "local: *; };\n",
                   b->name, b->name, b->name);
  if (write_file(b, script_path, script, (size_t)n) || write_file(b, layout_path, layout, sizeof layout - 1))
    return -1;
  static const char *const flags[] = {
      "-shared", "--hash-style=gnu",       "--build-id=none", "-z", "noexecstack", "-z", "relro", "-z",
      "now",     "--no-undefined-version", "--as-needed",     NULL};
  command c = {.n = 1};
  add_all(&c, flags);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  add(&c, "-z"); /* what is missing is found now and not when the library is loaded */
  add(&c, "defs");
  add(&c, "-T"); /* sanitizers have sections of their own */
  add(&c, layout_path);
#endif
  add(&c, "-h");
  add(&c, cy_path_base(b->o->output));
  add(&c, "--version-script");
  add(&c, script_path);
  return link_rest(b, &c, near);
}

static int link_dll(cy_work *b, const char *near) {
  char exports[800];
  const char *path = cy_temps_file(b->temps, "exports.def");
  int n = snprintf(exports, sizeof exports, "LIBRARY \"%.200s\"\nEXPORTS\n cyto_model_query\n %s_run\n %s_create\n %s_model\n cyto_context_destroy\n",
                   cy_path_base(b->o->output), b->name, b->name, b->name);
  if (write_file(b, path, exports, (size_t)n))
    return -1;
  static const char *const flags[] = {"-shared", "--no-insert-timestamp", "-e", "cyrt_dll_main", NULL};
  command c = {.n = 1};
  add_all(&c, flags);
  add(&c, path);
  return link_rest(b, &c, near);
}

static int link_archive(cy_work *b, const char *near) {
  if (write_carried(b, CY_CARRIED_runtime, near))
    return -1;
  command c = {.n = 1};
  add(&c, "rcsD");
  add(&c, near);
  add_objects(b, &c);
  return run_tool(b, archivers, &c);
}

static int link_object(cy_work *b, const char *near) {
  command c = {.n = 1};
  bool windows = b->machine->arch->format == CY_COFF;
  add(&c, "-r");
  add(&c, "-o");
  add(&c, near);
  add_objects(b, &c);
  return run_tool(b, windows ? windows_linkers : linkers, &c);
}

/* Appends a file to an open stream. False: errno says why. */
static bool append_file(const char *path, FILE *out) {
  char chunk[1 << 14];
  FILE *in = fopen(path, "rb");
  if (!in)
    return false;
  for (size_t n; (n = fread(chunk, 1, sizeof chunk, in)) > 0;)
    fwrite(chunk, 1, n, out);
  bool ok = !ferror(in) && !ferror(out);
  fclose(in);
  return ok;
}

static bool copy_file(const char *from, const char *to) {
  FILE *out = fopen(to, "wb");
  bool ok = out && append_file(from, out);
  return !(out && fclose(out)) && ok;
}

/* The text files, one after the other. */
static bool join_text(cy_work *b, FILE *out) {
  bool ok = true;
  for (uint32_t i = 0; ok && i < b->nobjects; i++)
    ok = append_file(b->objects[i], out);
  return ok;
}

static int link_text(cy_work *b, const char *near) {
  FILE *out = fopen(near, "wb");
  bool ok = out && join_text(b, out);
  if ((out && fclose(out)) || !ok)
    return cy_cannot_write(b->diag, b->o->output);
  return 0;
}

/* ---- the output ---- */

/* Keeps what was linked in the directory that was asked for. */
static int keep_temps(cy_work *b) {
  if (!b->o->save_temps)
    return 0;
  for (uint32_t i = 0; i < b->nobjects; i++) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.%s", b->o->save_temps, b->name, cy_path_base(b->objects[i]));
    if (!copy_file(b->objects[i], path))
      return cy_cannot_write(b->diag, path);
  }
  return 0;
}

int cy_link(cy_work *b) {
  static int (*const libraries[])(cy_work *, const char *) = {
      [CY_EMIT_SO] = link_so, [CY_EMIT_DLL] = link_dll, [CY_EMIT_A] = link_archive, [CY_EMIT_O] = link_object};
  if (keep_temps(b))
    return -1;
  if (strcmp(b->o->output, "-") == 0)
    return join_text(b, stdout) && !fflush(stdout) ? 0 : cy_cannot_write(b->diag, "-");
  const char *near = cy_temps_near(b->temps, b->o->output);
  if (cy_emit_class_of(b) == CY_EMIT_CLASS_LIBRARY ? libraries[b->o->emit](b, near) : link_text(b, near))
    return -1;
  struct stat st;
  if (b->o->stats && stat(near, &st) == 0)
    b->o->stats->output_bytes = (uint64_t)st.st_size;
  return cy_temps_commit(near, b->o->output, b->diag);
}
