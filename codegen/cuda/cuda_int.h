/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_int.h - what the files of the CUDA target share.
 *
 * A kernel becomes one CUDA function whose parameters are its slots: a pointer per argument, then an i64 per size.
 * Which thread does what is a cy_cuda_schedule, chosen once (schedule.c) and used by the printer and by the launch:
 *
 *   items   a thread per item; an item is a task, one iteration of the lane loop that is the kernel's whole body, or,
 * of a
 *           copy that crosses axes, some iterations of that loop for one of a loop inside
 *   groups  32 threads or a whole block per task: lane loops are distributed over neighbouring threads, reductions are
 *           combined by shuffles, statements outside of lane loops are done by all threads alike, their stores by one
 *   rows    a group of threads per row that the body passes over, which they hold in registers (rows.c)
 *   columns an item per few threads, which share its serial loops (columns.c)
 *   scatter some blocks per item or few, which share serial loops that store where data says (scatter.c)
 *   tiles   a block per tile of a contraction's result (contract.c)
 *
 * A further generator of contractions is a row in `generators` of contract.c.
 */
#ifndef CY_CUDA_INT_H
#define CY_CUDA_INT_H

#include "codegen/target.h"

typedef enum cy_cuda_schedule_kind {
  CY_CUDA_ITEMS,
  CY_CUDA_GROUPS,
  CY_CUDA_ROWS,
  CY_CUDA_COLUMNS,
  CY_CUDA_SCATTER,
  CY_CUDA_TILES
} cy_cuda_schedule_kind;

typedef struct cy_cuda_tile {
  int m, n, k;            /* of the block */
  int thread_m, thread_n; /* results per thread; of matrix instructions: per warp */
} cy_cuda_tile;

typedef struct cy_cuda_schedule {
  cy_cuda_schedule_kind kind;
  int threads;          /* per block */
  int group;            /* GROUPS, ROWS: threads per task; 0: known when it runs; COLUMNS, SCATTER: per item */
  int columns;          /* COLUMNS, SCATTER: items of a block */
  cy_dim blocks;        /* how many the launch wants */
  int64_t max_blocks;   /* how many it may want; 0: as many as a grid can have */
  const cy_stmt *lanes; /* ITEMS, COLUMNS, SCATTER: the loop whose iterations are items, or NULL */
  const cy_stmt *strip; /* ITEMS: a loop around `lanes`, of which an item has `vector` iterations, or NULL */
  int vector;           /* ITEMS, TILES: neighbouring elements that are done at once, 0: one; along vector_var */
  cy_var vector_var;
  const uint8_t *vector_load; /* [vector_exprs] loads that are done for all of them at once */
  uint32_t vector_exprs;
  uint32_t in_shared;    /* GROUPS: bit i: argument i is scratch that fits in shared memory */
  const struct cy_cuda_rows *rows; /* ROWS */
  int stripes;           /* GROUPS: groups of a block that need their own piece of scratch; 0: none is needed */
  cy_cuda_tile tile;     /* TILES */
  const void *generator; /* TILES: a cy_cu_generator */
  const char *
      weights; /* TILES: for --explain: of what type those are that are made floats of (blocks.c); NULL: there are none */
  int shared_bytes;      /* TILES: dynamic shared memory of a block, */
  int group_shared_bytes; /* .. of one of warpgroups; 0: the same */
  int min_arch;           /* TILES: older ones lack the instruction; 0: all have it */
  int stages;            /* TILES by matrix instructions: tiles in flight */
  bool warpgroups;       /* .. which sm_90a has for warpgroups: wgmma */
  cy_dim tma_blocks; /* TILES: of the kernel that stands beside for sm_90a (matrix_tma.c), any number up to which do;
                            0: there is no such kernel */
  int tma_n, tma_patch[3]; /* .. columns of its tiles; of convolutions: images, lines and columns of the output */
  bool tma_pingpong;       /* .. whether its warpgroups have tiles of their own, and multiply in turns */
  bool transposed;         /* TILES of few rows: B lies along n, but is packed along k (gemv.c) */
  cy_karg packed_arg;    /* TILES: where B lies packed, */
  int shares;            /* TILES: blocks that share k (split.c), at most; 0: none do; */
  int share_blocks;      /* .. as many as make this many in all, */
  bool shares_vary;      /* .. which is known when it runs; */
  cy_karg share_arg;     /* .. where their accumulators lie, */
  int64_t share_elems;   /* .. how many those are, */
  cy_dim combine_blocks; /* .. and the blocks of CY_CUDA_COMBINE_THREADS that add them */
  int64_t packed_k;      /* .. with rows of this many elements; 0: it is read as the model has it */
  const cy_dim *offer;    /* [CY_CUDA_PROBLEM_FIELDS] what other libraries are told of it (offers.c); NULL: it is ours */
  const uint8_t *varying; /* [symbols + 1] those that may change from step to step of a sequence, which the kernel reads
                             from memory; NULL: it depends on none (lengths.c) */
  uint64_t varying_args;  /* bit i: argument i begins at a place that may change */
} cy_cuda_schedule;

/* "89" is {89, 0}, "90a" is {90, 'a'}. */
typedef struct cy_cuda_arch {
  int number;
  char suffix;
} cy_cuda_arch;

enum {
  CY_CUDA_FEW_ROWS = 4,     /* of a product that reads the matrix once (gemv.c) */
  CY_CUDA_FEW_QUERIES = 16, /* of attention, for tiles of so many rows (attention.c) */
  CY_CUDA_COMBINE_THREADS = 64,
  CY_CUDA_TMA_THREADS = 384,
  CY_CUDA_TMA_TILES = 4 * (128 + 256) * 128, /* bytes of shared memory for factors, */
  CY_CUDA_TMA_PART = 64,                     /* .. and for so many columns of a tile's results */
  CY_CUDA_TMA_SHARED = CY_CUDA_TMA_TILES + 128 * CY_CUDA_TMA_PART * 4,
  CY_CUDA_TMA_RANK = 5
};

/* How a factor lies, for a tensor map: sizes from the contiguous one outwards, strides of the others in elements. */
typedef struct cy_cuda_tensor {
  cy_karg arg;
  cy_dtype type;
  bool transposed; /* rows of k */
  int rank;
  cy_dim extent[CY_CUDA_TMA_RANK], stride[CY_CUDA_TMA_RANK - 1];
  int box[CY_CUDA_TMA_RANK], step[CY_CUDA_TMA_RANK]; /* elements that one copy brings, and how far they are apart */
} cy_cuda_tensor;

/* What kernels are made for: the state of a cy_machine. */
typedef struct cy_cuda_machine {
  cy_cuda_arch arch[16];
  bool optional[16]; /* left out of kernels that it cannot run */
  int narch;
  int wanted_blocks; /* a kernel should have this many, so that no multiprocessor stands idle; 0: WANTED_BLOCKS */
  int pingpong;      /* warpgroups multiply in turns: 1 wherever they can, -1 nowhere; 0: where it is estimated to be faster */
} cy_cuda_machine;

/* Of the kernel itself: dynamic shared memory of a block. */
static inline int cy_cuda_shared_bytes(const cy_cuda_schedule *schedule, cy_cuda_arch arch) {
  bool groups = arch.number == 90 && arch.suffix && schedule->group_shared_bytes;
  return groups ? schedule->group_shared_bytes : schedule->shared_bytes;
}

/* ---- schedule.c ---- */
cy_cuda_schedule *cy_cuda_schedule_make(const cy_machine *m, cy_kernel *k); /* in the graph's arena */

/* ---- print_expr.c: expressions as C text ---- */

/* One kernel being printed. Temporaries are numbered; what was computed in a C block is forgotten at its end. */
typedef struct cy_cu {
  FILE *out;
  cy_kernel *k;
  cy_graph *g;
  const cy_cuda_schedule *schedule;
  const cy_karg_info *args;
  uint32_t nargs;
  const cy_dim *dims;
  uint32_t ndims, nexprs;
  uint32_t *temp; /* [nexprs] number of the temporary that holds the value, 0: none */
  uint32_t ntemps;
  cy_expr *log; /* what temp[] was set for, in order */
  uint32_t nlog;
  struct cy_cu_range *range; /* [nexprs] of i64 expressions */
  uint8_t *has_load;         /* [nexprs] 0: not known, 1: no, 2: yes */
  int indent;
  bool wide;          /* numbers of items and tasks need 64 bits */
  int group;          /* threads that share the statements being printed; 1: each thread on its own */
  int apart;          /* .. how far those are from each other; 0: they are neighbours */
  uint8_t *reduced;   /* [locals + 1] accumulated across the threads of a group: goes to a partial p<i> */
  bool holds_maxima;    /* maxima that are stored are held in `maxima` until the kernel ends (matrix.c) */
  bool in_vector;     /* stores go to arrays, from which several elements are written at once */
  /* While elements of several are being computed: the text of a load whose element is in a register. */
  bool (*element)(struct cy_cu *p, cy_expr e, char *out, size_t cap);
  const void *element_ctx;
  const char *item_head; /* .. a statement in front of each */
  uint32_t nstored;   /* .. stores so far */
  uint8_t *exchanged; /* [args] written and read: groups synchronise around stores */
} cy_cu;

void cy_cu_init(cy_cu *p, FILE *out, cy_kernel *k, const cy_cuda_schedule *schedule);
void cy_cu_deinit(cy_cu *p);
void cy_cu_line(cy_cu *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
void cy_cu_open(cy_cu *p);                 /* { : what is computed from here on ... */
void cy_cu_close(cy_cu *p, uint32_t mark); /* ... is forgotten: mark is p->nlog before cy_cu_open() */
/* Types: in registers, in memory; of loop variables and sizes ("int" where 32 bits do). */
const char *cy_cu_type(cy_dtype t);
const char *cy_cu_storage(cy_dtype t);
const char *cy_cu_var_type(cy_cu *p, cy_var v);
const char *cy_cu_dim_type(cy_cu *p, cy_dim d);
/* A size as text: a number or the parameter d<i>. The buffer is one of a few that take turns. */
const char *cy_cu_dim(cy_cu *p, cy_dim d);
/* Prints what it takes to compute e; the text of its value (a temporary or a leaf). */
const char *cy_cu_value(cy_cu *p, cy_expr e);
void cy_cu_store(cy_cu *p, cy_karg arg, const char *offset, const char *value);
/* Text of `a op b` for values of dtype t in registers. */
void cy_cu_combine(cy_cu *p, cy_op op, cy_dtype t, const char *a, const char *b, char *out, size_t cap);
void cy_cu_identity(cy_op op, cy_dtype t, char *out, size_t cap);
/* What the printing of e gives from here on: a temporary that is made of this text. */
void cy_cu_bind(cy_cu *p, cy_expr e, const char *value);
/* Storage text of the value `v` in a register. */
const char *cy_cu_encoded(cy_dtype t, const char *v);
/* The value of storage text `raw` in a register. */
void cy_cu_decode(cy_dtype t, const char *raw, char *out, size_t cap);
bool cy_cu_packed(cy_dtype t);
void cy_cu_forget(cy_cu *p, uint32_t mark);

/* ---- machine.c ---- */
/* Of a multiprocessor, by the data sheet of an architecture's largest device: KB of shared memory, threads, blocks. */
typedef struct cy_cuda_limits {
  int arch, shared, threads, blocks;
  int count; /* multiprocessors */
} cy_cuda_limits;
const cy_cuda_limits *cy_cuda_limits_of(int arch);
int cy_cu_wanted_blocks(const cy_machine *m); /* how many a kernel should have */
int cy_cuda_multiprocessors(const cy_machine *m); /* of the largest device by the data sheets, or what tests want */
int cy_cuda_multiprocessors_of(const cy_machine *m, int arch); /* .. of the one of this architecture */
bool cy_cuda_has_warpgroups(const cy_machine *m); /* is sm_90a among the architectures? */
enum { CY_CUDA_FLOAT8_ARCH = 89 };                /* and newer multiply floats of 8 bits */
bool cy_cuda_has_float8(const cy_machine *m);     /* do all architectures? */
bool cy_cu_library_on(const cy_machine *m, int library); /* does a cy_library take part? */

/* ---- print_bounds.c ---- */
/* Is the f32 divisor always such that its approximate inverse is precise? */
bool cy_cu_inverse_is_near(cy_kernel *k, cy_expr divisor);

/* ---- lengths.c ---- */
/* Bit i: the i-th symbol of the inputs may change from step to step of a sequence. */
uint64_t cy_cuda_lengths(cy_program *p);
void cy_cuda_lengths_prepare(cy_program *p, cy_kernel *k, cy_cuda_schedule *schedule);
bool cy_cuda_slot_varies(cy_kernel *k, const cy_cuda_schedule *schedule, uint32_t slot);
/* The parameter behind the slots, and statements that begin the kernel with what it says: nothing for most kernels. */
void cy_cu_lengths_param(cy_cu *p, FILE *out);
void cy_cu_lengths_read(cy_cu *p);

/* ---- print.c ---- */
void cy_cuda_print(FILE *out, cy_kernel *k, const cy_cuda_schedule *schedule, const char *symbol);

/* ---- print_stmt.c ---- */
void cy_cu_params(cy_cu *p, FILE *out, bool names_only); /* the slots as a parameter list, without parentheses */
void cy_cu_narrow_dims(cy_cu *p);                        /* int d0 = ..: sizes under the names that statements use */
void cy_cu_list(cy_cu *p, const cy_stmt *s);
void cy_cu_stmt(cy_cu *p, const cy_stmt *s); /* one statement, without barriers */
/* Around a loop that threads share: what it accumulates goes to partials; then those of p->group threads are combined. */
uint8_t *cy_cu_partials_open(cy_cu *p, const cy_stmt *loop);
void cy_cu_partials_close(cy_cu *p, uint8_t *ops);
/* const i64 <name> = elements of the box of these variables and the lane loop; sets p->wide: do numbers in it need 64
 * bits. */
void cy_cu_count(cy_cu *p, const char *name, const cy_var *vars, uint32_t n, const cy_stmt *lanes);
void cy_cu_locals(cy_cu *p);
/* Coordinates of a number: v<a>, v<b>, .. = number in the row-major box of these variables; `number` names a variable.
 */
void cy_cu_unravel(cy_cu *p, const cy_var *vars, uint32_t n, const char *number);

/* ---- vector.c ---- */
/* Makes the items of a schedule larger where that can be. */
void cy_cuda_vectorise(cy_kernel *k, cy_cuda_schedule *schedule);
/* The same where lanes are a copy that crosses axes; false: they are none. */
bool cy_cuda_vectorise_crossing(cy_kernel *k, cy_cuda_schedule *schedule);
/* The same for `body`, the epilogue of a contraction, along `var`: `vector` elements, of 32 bytes together at most, of
 * `max_stored` where they are stored; false: it cannot be. */
bool cy_cuda_vectorise_body(cy_kernel *k, cy_cuda_schedule *schedule, const cy_stmt *body, cy_var var, int vector,
                            int max_stored);
/* i64 <name> = the offset where the variable is `at`. */
void cy_cu_offset_at(cy_cu *p, const char *name, cy_expr offset, cy_var var, const char *at);
/* The elements of an item from `first` on. */
void cy_cu_vector_items(cy_cu *p, const cy_stmt *body);
/* The same of an item that is iterations of schedule->strip. */
void cy_cu_strip_items(cy_cu *p);

/* ---- rows.c ---- */
/* Makes the schedule that of rows; false: the kernel is none. Its loops may have one variable then. */
bool cy_cuda_rows_schedule(const cy_machine *m, cy_kernel *k, cy_dim tasks, cy_cuda_schedule *schedule);
void cy_cuda_rows_print(cy_cu *p);
const char *cy_cuda_rows_name(const cy_cuda_schedule *schedule, cy_arena *arena); /* for --explain */

/* ---- columns.c ---- */
/* Makes the schedule that of columns, for a kernel whose items have this body; false: they do well alone. */
bool cy_cuda_columns_schedule(const cy_machine *m, cy_kernel *k, cy_dim items, const cy_stmt *body, cy_cuda_schedule *schedule);
/* The body of one item, whose variables are there, and `live`: is there such an item. */
void cy_cuda_columns_print(cy_cu *p, const cy_stmt *body);

/* ---- scatter.c ---- */
/* Makes the schedule that of scatter, for a kernel whose items have this body; false: it is none, or they do well alone. */
bool cy_cuda_scatter_schedule(const cy_machine *m, cy_kernel *k, cy_dim items, const cy_stmt *body, cy_cuda_schedule *schedule);
/* const i64 number = that of this thread's item, of `count`; and which part of it is the block's. */
void cy_cuda_scatter_items(cy_cu *p);
void cy_cuda_scatter_print(cy_cu *p, const cy_stmt *body);

/* ---- tma.c ---- */
/* Does <symbol>_tma stand beside the kernel? Known once contractions are prepared. */
bool cy_cuda_tma(cy_kernel *k, const cy_cuda_schedule *schedule);
/* Blocks of a cluster of it; launched are a multiple of them. */
int cy_cuda_tma_cluster(cy_kernel *k, const cy_cuda_schedule *schedule);

/* ---- split.c ---- */
/* Appends the argument that shares of k are bound to, if there are any. */
void cy_cuda_split_prepare(cy_kernel *k, cy_cuda_schedule *schedule);

/* ---- contract.c ---- */
/* Of the kernel by tensor maps: the map of its first or (b) second factor; of attention that of keys or values. */
void cy_cuda_tma_tensor(cy_kernel *k, const cy_cuda_schedule *schedule, bool b, cy_cuda_tensor *out);
bool cy_cuda_contract_supports(const cy_machine *m, cy_kernel *k);
bool cy_cuda_contract_finds_maxima(const cy_machine *m, cy_kernel *k); /* may its epilogue store maxima? */
void cy_cuda_contract_schedule(const cy_machine *m, cy_kernel *k, cy_cuda_schedule *schedule);
void cy_cuda_contract_print(cy_cu *p, const char *symbol);
const char *cy_cuda_contract_name(const cy_machine *m, const cy_cuda_schedule *schedule, cy_arena *arena); /* for --explain */
/* Has B packed where the generator wants that: appends the argument that the packed layout is bound to. */
void cy_cuda_contract_prepare(const cy_machine *m, cy_kernel_plan *plan, cy_cuda_schedule *schedule);

/* ---- packed.c ---- */
uint32_t cy_cuda_contract_pack(cy_program *p, cy_kernel_plan *plan, cy_val v, int64_t offset);

/* ---- offers.c ---- */
#define CY_CUDA_IMAGES "_images" /* ends the symbol of the images of some kernels, which begins as the first one's name */
#define CY_CUDA_AGREE "_agree" /* ends the name of the kernel that compares two results (offers.c) */
void cy_cuda_agree_print(FILE *out, const char *symbol);
enum { CY_CUDA_PROBLEM_FIELDS = 71 };
/* Sets schedule->offer if another library may compute this kernel. */
void cy_cuda_offer_match(const cy_machine *m, cy_kernel *k, cy_cuda_schedule *schedule);
bool cy_cuda_offered_to(const cy_machine *m, cy_kernel *k, const cy_cuda_schedule *schedule, int library);

/* ---- nvrtc.c ---- */

typedef struct cy_nvrtc cy_nvrtc;
typedef struct cy_cuda_image {
  cy_cuda_arch arch;
  bool ptx;
  char *bytes;
  size_t size;
} cy_cuda_image;
/* NULL with a malloc'ed text that says what to install. */
cy_nvrtc *cy_nvrtc_open(char **out_error);
void cy_nvrtc_close(cy_nvrtc *n);
int cy_nvrtc_version(const cy_nvrtc *n); /* 1000 * major + minor */
void cy_nvrtc_describe(const cy_nvrtc *n, cy_kernel_compiler *out);
/* A stack frame of a kernel is a fault, unless this says that it comes with the functions that the kernel calls. */
typedef struct cy_nvrtc_check {
  bool (*may_use_stack)(void *ctx, const char *function);
  /* Matrix instruction that it must have, or 0; may be NULL. */
  int (*wants_matrix)(void *ctx, const char *function, cy_cuda_arch arch);
  void *ctx;
  /* Is told the registers of a thread and the static shared memory of a block of each function; may be NULL. */
  void (*resources)(void *ctx, const char *function, cy_cuda_arch arch, int registers, int shared);
} cy_nvrtc_check;
/* Compiles the source: cubin (or PTX) in out->bytes, malloc'ed. 0, or -1 (NO_ARCH: this NVRTC does not know the
 * architecture) with a malloc'ed text; *out_error must be NULL before. */
enum { CY_NVRTC_NO_ARCH = 1 };
int cy_nvrtc_compile(cy_nvrtc *n, const char *source, cy_cuda_arch arch, bool ptx, const cy_nvrtc_check *check,
                     cy_cuda_image *out, char **out_error);

/* ---- images.c ---- */
/* Writes an object with a cyrt_cuda_images under the name `symbol`: the images, each packed. */
bool cy_cuda_images_write(FILE *f, const cy_arch *host, const cy_cuda_image *images, int n, const char *symbol);
/* The bytes as an LZ4 block, malloc'ed. */
char *cy_cuda_pack(const char *bytes, size_t size, size_t *out_size);

/* ---- cubin.c ---- */

/* Opcodes of all architectures since sm_70. */
enum {
  CY_CUDA_FFMA = 0x223,
  CY_CUDA_IMMA = 0x237,
  CY_CUDA_HMMA = 0x23c,
  CY_CUDA_QMMA = 0x27a, /* of floats of 8 bits */
  CY_CUDA_STL = 0x387,
  CY_CUDA_LDSM = 0x83b,
  CY_CUDA_LDL = 0x983,
  CY_CUDA_HGMMA = 0x9f0,
  CY_CUDA_IGMMA = 0x9f1,
  CY_CUDA_QGMMA = 0x9f3,
  CY_CUDA_FFMA_CONSTANT = 0xa23,
  CY_CUDA_SHFL = 0xf89, /* by a constant */
  CY_CUDA_UTMALDG = 0x5b4,
  CY_CUDA_LDGSTS = 0xfae,
  CY_CUDA_WIDE_LOAD = 4096, /* no opcodes: loads and stores of global memory, those of 16 bytes or more */
  CY_CUDA_WIDE_STORE,
  CY_CUDA_OPCODES
};
/* Has mma.sync floats of 8 bits as they are? On sm_90 to sm_110 ptxas widens them to halves first. */
static inline bool cy_cuda_has_qmma(cy_cuda_arch arch) { return arch.number == 89 || arch.number >= 120; }
/* What the kernel of a schedule by matrix instructions multiplies factors of this type by; `groups`: the one by tensor maps. */
static inline int cy_cuda_matrix_opcode(const cy_cuda_schedule *schedule, cy_dtype factor, bool groups, cy_cuda_arch arch) {
  bool integers = !cy_dtype_is_float(factor), float8 = cy_dtype_is_float8(factor);
  if (groups || (schedule->warpgroups && arch.number == 90 && arch.suffix))
    return integers ? CY_CUDA_IGMMA : float8 ? CY_CUDA_QGMMA : CY_CUDA_HGMMA;
  return integers ? CY_CUDA_IMMA : float8 && cy_cuda_has_qmma(arch) ? CY_CUDA_QMMA : CY_CUDA_HMMA;
}
typedef void cy_cubin_visitor(void *ctx, const char *function, const char *code, uint64_t bytes);
/* Calls `visit` for each function with its instructions; how many functions there are. Other files have none. */
int cy_cubin_visit(const char *bytes, size_t size, cy_cubin_visitor *visit, void *ctx);
/* Adds how often each opcode occurs. */
void cy_cubin_count(const char *code, uint64_t bytes, unsigned counts[CY_CUDA_OPCODES]);

/* ---- occupancy.c ---- */
bool cy_cuda_occupancy(const cy_machine *m, const cy_kernel_plan *plan, const int64_t *syms, char *text, size_t size);

/* ---- cuda.c ---- */
/* prelude.S: in front of all kernels; behind it in front of those with matrix instructions */
extern const char cy_cuda_prelude[], cy_cuda_prelude_matrix[];
static inline const cy_cuda_schedule *cy_cuda_schedule_of(const cy_kernel_plan *plan) { return plan->schedule; }

#endif
