/* SPDX-License-Identifier: Apache-2.0 */
/* codegen.h - from a program of host steps to a library, archive, object, header or text on disk.
 *
 * Used by tools/driver/pipeline.c, in this order:
 *
 *   cy_machine *m = cy_machine_open("native", diag);      the --target option
 *   ... passes and lowering ask cy_machine_caps(m) ...
 *   cy_codegen(program, &options);                        writes the file(s)
 *   cy_machine_close(m);
 *
 * A program is compiled once: targets append arguments (packed weights, scratch) to its kernels and buffers to the
 * program. Nothing is left behind after an error or a signal: temporaries live in a private directory, outputs are
 * renamed into place. Equal programs, options and tools give equal bytes, whatever `jobs` is.
 */
#ifndef CY_CODEGEN_H
#define CY_CODEGEN_H

#include "codegen/candidates.h"
#include "ir/loop/loop.h"
#include "ir/target_caps.h"

typedef struct cy_machine cy_machine;

/* spec: what --target says. NULL after a diagnostic that lists what there is. */
cy_machine *cy_machine_open(const char *spec, cy_diag_sink *diag);
void cy_machine_close(cy_machine *m);
/* "native (znver3)"; for people. */
const char *cy_machine_text(const cy_machine *m);
/* What its target can do and what work costs there. Lives as long as the machine. */
const cy_target_caps *cy_machine_caps(const cy_machine *m);
/* f32 products may round their factors to TF32 from now on. False: the target has no TF32. */
bool cy_machine_allow_tf32(cy_machine *m);
/* May models use NVIDIA's libraries, where they are found when they are loaded and are faster? REQUIRE: no load without. */
typedef enum cy_library { CY_LIBRARY_CUDNN, CY_LIBRARY_CUBLASLT, CY_LIBRARIES } cy_library;
typedef enum cy_library_use { CY_LIBRARY_AUTO, CY_LIBRARY_OFF, CY_LIBRARY_REQUIRE } cy_library_use;
bool cy_machine_set_library(cy_machine *m, cy_library library, cy_library_use use); /* false: the target has none */
/* Multiplies f32 as written from now on, without the algorithms that take fewer multiplications and round a little more
 * (Strassen's for products, Winograd's for convolutions). False: the target has none. */
bool cy_machine_strict_fp(cy_machine *m);
/* From now on takes these candidates of layers (candidates.h); the list must live as long as the machine. False: the target
 * has none. */
bool cy_machine_choose(cy_machine *m, cy_choices *choices);
/* Among layouts of equal results takes the smaller from now on, where the faster one is larger. */
void cy_machine_prefer_size(cy_machine *m);
/* One line per target: what --target accepts; and one for what `native` is here. */
void cy_machine_list(FILE *out);

/* What can be written: X(kind, its name in --emit and as the ending of a file, class, code of the kernels). A LIBRARY
 * comes with its header; DEVICE shows the kernels of a CUDA device without the host program. */
#define CY_EMIT_TABLE(X)                                                                                               \
  X(SO, "so", LIBRARY, OBJECT)                                                                                         \
  X(DLL, "dll", LIBRARY, OBJECT) /* the same for Windows */                                                            \
  X(A, "a", LIBRARY, OBJECT)     /* archive with the runtime; an application links it with -lm -lpthread */            \
  X(O, "o", LIBRARY, OBJECT)     /* one relocatable object without the runtime (link libcyto.a) */                     \
  X(H, "h", HEADER, OBJECT)      /* the header alone: no code is made */                                               \
  X(LL, "ll", TEXT, LL)          /* LLVM IR */                                                                         \
  X(ASM, "asm", TEXT, ASM)                                                                                             \
  X(CU, "cu", DEVICE, LL) /* CUDA C */                                                                                 \
  X(PTX, "ptx", DEVICE, ASM)                                                                                           \
  X(CUBIN, "cubin", DEVICE, CUBIN) /* machine code of the first architecture */
#define CY_EMIT_ENUM(kind, name, class, code) CY_EMIT_##kind,
typedef enum cy_emit_kind { CY_EMIT_TABLE(CY_EMIT_ENUM) CY_EMIT_KINDS } cy_emit_kind;
#undef CY_EMIT_ENUM
/* By the ending of a file name ("x.so"; "x.s" for assembly, "x.lib" and "x.obj" for a and o); CY_EMIT_KINDS when
 * unknown. */
cy_emit_kind cy_emit_kind_of(const char *path);
cy_emit_kind cy_emit_kind_shared(const cy_machine *m); /* SO or DLL */
const char *cy_emit_kind_name(cy_emit_kind kind);

/* What compiled the kernels, where that is no part of cytoc: "NVRTC 13.0" and its file. Both "": cytoc itself, or
 * nothing did. Plain data: it crosses a process boundary. */
typedef struct cy_kernel_compiler {
  char name[32], path[480];
} cy_kernel_compiler;

/* A constant of the model that the library has more than once, in different layouts or rounded differently. */
typedef struct cy_stored_often {
  const char *name; /* lives as long as the graph */
  uint32_t times;
  uint64_t model_bytes, library_bytes;
} cy_stored_often;

typedef struct cy_codegen_stats {
  uint32_t kernels, steps, constants;
  uint64_t weights_bytes, output_bytes;
  int64_t arena_bytes;    /* with one worker; -1: depends on the inputs' sizes */
  cy_stored_often *often; /* in the graph's arena, the largest first */
  uint32_t noften;
  cy_kernel_compiler compiled_by;
} cy_codegen_stats;

typedef struct cy_codegen_options {
  cy_machine *machine;
  cy_emit_kind emit;
  const char *output;     /* path; "-" for text kinds: standard output */
  const char *header;     /* path of the header beside a library; NULL: output with the ending .h; "": none */
  const char *name;       /* C identifier and prefix of the symbols; NULL: made of the output's file name */
  bool share_kernels;     /* those that differ in parameters alone become one: not at -O0 */
  int jobs;               /* processes at once; 0: as many as there are CPUs */
  const char *save_temps; /* directory that keeps the intermediate files; NULL: none are kept */
  int64_t (*plan_memory)(cy_program *p); /* cy_plan_memory of passes/ */
  cy_diag_sink *diag;
  cy_codegen_stats *stats; /* may be NULL */
  bool fast_codegen;       /* code that has little to do is made fast, whatever it takes to run: -O0 */
  bool few_runs;           /* so is any: the library runs a few times and is thrown away */
  bool profile;            /* the library can record when its steps begin and end */
  FILE *explain;           /* a table of kernels goes here; may be NULL */
  FILE *explain_costs;     /* what each layer was chosen of, with estimates; may be NULL */
  cy_layer_visit *visit;   /* told of layers with candidates; may be NULL */
  void *visit_ctx;
  bool plan_only;       /* nothing is generated, and nothing written */
  FILE *explain_memory; /* and of the memory that a run takes; may be NULL */
  FILE *explain_json;   /* and both and more for programs; may be NULL */
  /* Told as it goes, stage "kernels" or "link": so many parts of so many are done, 0 of 0: not known. May be NULL. */
  void (*progress)(void *ctx, const char *stage, int64_t done, int64_t total);
  void *progress_ctx;
} cy_codegen_options;

/* 0, or -1 after a diagnostic. */
int cy_codegen(cy_program *p, const cy_codegen_options *options);

/* A C identifier made of any text: other bytes become '_', a digit in front gets one, keywords too. free() it. */
char *cy_c_identifier(const char *text, size_t len);

#endif
