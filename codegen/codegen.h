/* SPDX-License-Identifier: Apache-2.0 */
/* codegen.h - from a program of host steps to a library, archive, object, header or text on disk.
 *
 * Used by tools/driver/pipeline.c, in this order:
 *
 *   cy_machine *m = cy_machine_open("native", diag);      the --target option
 *   ... lowering asks cy_machine_supports(m, kernel) before it makes a contraction kernel ...
 *   cy_codegen(program, &options);                        writes the file(s)
 *   cy_machine_close(m);
 *
 * A program is compiled once: targets append arguments (packed weights, scratch) to its kernels and buffers to the
 * program. Nothing is left behind after an error or a signal: temporaries live in a private directory, outputs are
 * renamed into place. Equal programs, options and tools give equal bytes, whatever `jobs` is.
 */
#ifndef CY_CODEGEN_H
#define CY_CODEGEN_H

#include "ir/loop/loop.h"

typedef struct cy_machine cy_machine;

/* spec: what --target says. NULL after a diagnostic that lists what there is. */
cy_machine *cy_machine_open(const char *spec, cy_diag_sink *diag);
void cy_machine_close(cy_machine *m);
/* "native (znver3)"; for people. */
const char *cy_machine_text(const cy_machine *m);
/* Can the target's generators compile this contraction kernel? If not, lowering makes plain loops of it. */
bool cy_machine_supports(const cy_machine *m, cy_kernel *k);
/* Are products of f16 or bf16 (`half`) multiplied as they are, summed in f32: n, and faster than those of f32? n NULL:
 * is any? sizes: the value of every symbol. */
bool cy_machine_half_factors(const cy_machine *m, cy_dtype half, const cy_graph *g, const cy_node_info *n,
                             const int64_t *sizes);
bool cy_machine_half_weights(const cy_machine *m, cy_dtype half); /* products of f32 take weights of this dtype */
bool cy_machine_blocks_round(const cy_machine *m);                /* see cy_target.blocks_round */
bool cy_machine_words(const cy_machine *m);                       /* see cy_target.words */
bool cy_machine_mixed_bytes(const cy_machine *m);                 /* see cy_target.mixed_bytes */
bool cy_machine_int_rows(const cy_machine *m, int bits, int64_t block, int64_t n); /* see cy_target.int_rows */
int64_t cy_machine_few_rows(const cy_machine *m);                 /* see cy_target.few_rows */
int64_t cy_machine_few_queries(const cy_machine *m);              /* see cy_target.few_queries */
/* f32 products may round their factors to TF32 from now on. False: the target has no TF32. */
bool cy_machine_allow_tf32(cy_machine *m);
/* May libraries use cuDNN, where it is found when they are loaded and is faster? REQUIRE: no load without it. */
typedef enum cy_cudnn_use { CY_CUDNN_AUTO, CY_CUDNN_OFF, CY_CUDNN_REQUIRE } cy_cudnn_use;
bool cy_machine_set_cudnn(cy_machine *m, cy_cudnn_use use); /* false: the target has no cuDNN */
int64_t cy_machine_busy_parts(const cy_machine *m); /* see cy_pass_options */
bool cy_machine_cuts_rows(const cy_machine *m);     /* see cy_target */
bool cy_machine_has_device(const cy_machine *m);    /* see cy_target.device */
/* Multiplies f32 as written from now on, without the algorithms that take fewer multiplications and round a little more
 * (Strassen's for products, Winograd's for convolutions). False: the target has none. */
bool cy_machine_forgo_fast(cy_machine *m);
/* Among forms of equal results takes the smaller from now on, where the faster one is larger. */
void cy_machine_prefer_size(cy_machine *m);
int64_t cy_machine_most_head(const cy_machine *m); /* attention of heads up to this size may stay one op; 0: none */
/* Columns of a tile of sums, two vectors, of which a core's registers hold some beside each other; 0: lanes are threads
 * of a device. */
int64_t cy_machine_tile_columns(const cy_machine *m);
/* What node n, a conv or matmul of f32 with constant weights, takes on one core: as it is, in 8-bit integers with
 * 32-bit sums, or to round what it reads. sizes: the value of every symbol. Cycles; 0: not known. */
double cy_machine_layer_cycles(const cy_machine *m, const cy_graph *g, const cy_node_info *n, const int64_t *sizes,
                               cy_layer_form form);
/* How many times as fast as in floats a convolution or attention has to be by these estimates where it rounds what it
 * reads, as they are no better; 0: not known. */
double cy_machine_rounding_margin(const cy_machine *m);
bool cy_machine_has_planar(const cy_machine *m); /* are there planar convolutions? */
/* What conv n takes in either form, and what it takes to turn its pictures from one to the other. False: it has no
 * planar form. */
bool cy_machine_conv_cycles(const cy_machine *m, const cy_graph *g, const cy_node_info *n, const int64_t *sizes,
                            cy_conv_cycles *out);
/* One line per target: what --target accepts; and one for what `native` is here. */
void cy_machine_list(FILE *out);

/* What can be written: X(kind, its name in --emit and as the ending of a file, form, code of the kernels). A LIBRARY
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
#define CY_EMIT_ENUM(kind, name, form, code) CY_EMIT_##kind,
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

/* A constant of the model that the library has more than once, in different forms or rounded differently. */
typedef struct cy_stored_often {
  const char *name; /* lives as long as the graph */
  uint32_t times;
  uint64_t model_bytes, library_bytes;
} cy_stored_often;

typedef struct cy_codegen_stats {
  uint32_t kernels, steps, constants;
  uint64_t weights_bytes, output_bytes;
  int64_t arena_bytes; /* with one worker; -1: depends on the inputs' sizes */
  cy_stored_often *often; /* in the graph's arena, the largest first */
  uint32_t noften;
  cy_kernel_compiler compiled_by;
} cy_codegen_stats;

typedef struct cy_codegen_options {
  cy_machine *machine;
  cy_emit_kind emit;
  const char *output;      /* path; "-" for text kinds: standard output */
  const char *header;      /* path of the header beside a library; NULL: output with the ending .h; "": none */
  const char *name;        /* C identifier and prefix of the symbols; NULL: made of the output's file name */
  bool share_kernels;      /* those that differ in parameters alone become one: not at -O0 */
  int jobs;                /* processes at once; 0: as many as there are CPUs */
  const char *save_temps;  /* directory that keeps the intermediate files; NULL: none are kept */
  int64_t (*plan_memory)(cy_program *p); /* cy_plan_memory of passes/ */
  cy_diag_sink *diag;
  cy_codegen_stats *stats; /* may be NULL */
  bool hurry;              /* code that has little to do is made fast, whatever it takes to run: -O0 */
  bool few_runs;           /* so is any: the library runs a few times and is thrown away */
  bool profile;            /* the library can record when its steps begin and end */
  FILE *explain;           /* a table of kernels goes here; may be NULL */
  FILE *explain_memory;    /* and of the memory that a run takes; may be NULL */
  FILE *explain_json;      /* and both and more for programs; may be NULL */
  /* Told as it goes, stage "kernels" or "link": so many parts of so many are done, 0 of 0: not known. May be NULL. */
  void (*progress)(void *ctx, const char *stage, int64_t done, int64_t total);
  void *progress_ctx;
} cy_codegen_options;

/* 0, or -1 after a diagnostic. */
int cy_codegen(cy_program *p, const cy_codegen_options *options);

/* A C identifier made of any text: other bytes become '_', a digit in front gets one, keywords too. free() it. */
char *cy_c_identifier(const char *text, size_t len);

#endif
