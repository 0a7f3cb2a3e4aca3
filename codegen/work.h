/* SPDX-License-Identifier: Apache-2.0 */
/* work.h - the state of one cy_codegen() call, shared by the files of this folder.
 *
 * codegen.c drives: prepare (kernels.c, stored_once.c) -> kernels in shards (shards.c), weights meanwhile (weights.c) -> memory plan
 * -> host program (host*.c) -> link (link.c), header (header.c). Temporaries are known to temps.c, which removes them.
 */
#ifndef CY_WORK_H
#define CY_WORK_H

#include "codegen/target.h"
#include "codegen/temps.h"

typedef struct cy_work {
  cy_program *p;
  cy_graph *g;
  const cy_codegen_options *o;
  const cy_machine *machine;
  cy_diag_sink *diag;
  cy_temps *temps;
  char *name;             /* C identifier, prefix of every symbol */
  cy_kernel_plan *plans;  /* one per distinct kernel that is launched */
  uint32_t nplans;
  cy_kernel_plan **plan_of; /* open hash of the plans by kernel */
  uint32_t plan_mask;
  cy_sym *scratch_sym;    /* [2 * nplans] scratch sizes (per worker, shared) that hang on data: a symbol each, or 0 */
  cy_sym common_scratch[2]; /* those that plan() can compute share one symbol each, the largest of them; or 0 */
  bool *constant_used;    /* [constants] */
  char **objects;         /* files to link, in order */
  uint32_t nobjects;
  char *weights_file;     /* base name of the side file, or NULL */
  bool has_weights;
  bool fast_codegen;              /* see cy_codegen_options */
  cy_kernel_compiler compiled_by; /* after emit */
} cy_work;

/* ---- work.c ---- */
/* The classes in CY_EMIT_TABLE. */
typedef enum cy_emit_class { CY_EMIT_CLASS_LIBRARY, CY_EMIT_CLASS_HEADER, CY_EMIT_CLASS_TEXT, CY_EMIT_CLASS_DEVICE } cy_emit_class;
cy_emit_class cy_emit_class_of(const cy_work *b);
cy_code_kind cy_emit_code_of(const cy_work *b);
void cy_work_add_object(cy_work *b, const char *path); /* to what is linked, as the last */
/* What is to blame for an error of cy_target.emit(). */
cy_cause cy_code_cause(const char *error);
void cy_work_progress(cy_work *b, const char *stage, int64_t done, int64_t total);

/* ---- kernels.c ---- */
void cy_kernels_prepare(cy_work *b);      /* plans, appended arguments and their buffers */
void cy_kernels_constants(cy_work *b);    /* then, after cy_stored_once(): which constants are used */
void cy_kernels_bind_scratch(cy_work *b); /* after emit: sizes of the scratch buffers */
cy_kernel_plan *cy_kernels_plan(const cy_work *b, const cy_kernel *k); /* of a kernel that some step launches */

cy_bind cy_kernels_constant(cy_work *b, uint32_t constant);            /* where it begins */

/* ---- stored_once.c: tables whose numbers a product has packed are read there ---- */
void cy_stored_once(cy_work *b);
void cy_stored_often_find(cy_work *b, cy_codegen_stats *out); /* what is left, once there are offsets */

/* ---- host_dims.c ---- */
/* The estimated time of a launch on one core, in thousandths of a cycle, as an expression of the program's symbols. */
cy_dim cy_kernel_work(const cy_host_costs *costs, cy_graph *g, cy_kernel *k);

/* ---- explain/explain.c: the table of kernels ---- */
void cy_explain(cy_work *b, FILE *out);
void cy_explain_costs(cy_work *b, FILE *out); /* layers with their candidates */
/* What is told of one launch; texts live as long as the graph. */
typedef struct cy_launch_facts {
  const char *ops, *node; /* fused ops; the ONNX node of the first of them, "" when there is none */
  double flops, bytes;
  bool by_bytes;          /* the floor is that of the bytes */
  double floor;           /* cycles of one core, nanoseconds of a device; 0: not known */
  cy_sym *assumed;        /* it holds where these have the values of cy_size_assumed() */
  uint32_t n_assumed;
} cy_launch_facts;
int64_t cy_size_assumed(const cy_work *b, cy_sym s);
int64_t *cy_sizes_assumed(cy_work *b); /* of all symbols; free() it */
void cy_sizes_print(cy_work *b, const int64_t *syms, FILE *out); /* what of that is an assumption, if any */
cy_launch_facts cy_launch_explain(cy_work *b, const cy_step *launch, const cy_kernel_plan *plan);

/* ---- explain/explain_memory.c, explain/explain_json.c ---- */
void cy_explain_memory(cy_work *b, FILE *out);
void cy_explain_json(cy_work *b, FILE *out);

/* ---- shards.c: machine code for all kernels; appends to b->objects. 0, or -1 after a diagnostic ---- */
int cy_shards_emit(cy_work *b, cy_code_kind kind, int (*meanwhile)(cy_work *b));

/* ---- weights.c, elf.c, coff.c ---- */
void cy_weights_layout(cy_work *b);           /* offsets of constants, p->weights_bytes; decides for a side file */
int cy_weights_write(cy_work *b);             /* an object in b->objects, or the side file */
#define CY_WEIGHTS_SIDE_FILE (1500ull << 20)   /* more does not go into the library: code must reach over it */
/* A relocatable file of an architecture (e_machine, COFF's number) with one read-only section of `bytes` at a returned
 * file offset, and a symbol for it, hidden where there is such a thing. `head` gets everything in front of the section,
 * `tail` what follows it. */
typedef struct cy_data_image {
  unsigned char head[64];
  uint64_t data_offset, tail_offset;
  unsigned char tail[1024];
  size_t tail_bytes;
} cy_data_image;
void cy_elf_data_object(uint16_t machine, const char *section, const char *symbol, uint64_t bytes, cy_data_image *out);
void cy_coff_data_object(uint16_t machine, const char *symbol, uint64_t bytes, cy_data_image *out);

/* ---- host_emit.c: the host module to files. 0, or -1 after a diagnostic ---- */
int cy_host_emit(cy_work *b, cy_code_kind kind);
/* The first value that is a string, sequence, map or optional value, or 0 (host_model.c). */
cy_val cy_graph_first_stored(const cy_graph *g);

/* ---- link.c ---- */
int cy_link(cy_work *b);

/* ---- header.c ---- */
int cy_header_write(cy_work *b, const char *path);
/* The input symbols in the order of frame->syms. */
uint32_t cy_input_symbols(cy_graph *g, cy_sym **out_syms);

#endif
