/* SPDX-License-Identifier: Apache-2.0 */
/* nvrtc_test.c - kernels compiled for every architecture where NVRTC is installed, and their machine code looked
 * through.
 *
 * Compiling already fails on spills and stack frames (nvrtc.c reads the log). The cubins are read once more without
 * that log: an instruction has 16 bytes, its low 12 bits are the opcode; loads and stores of local memory must not
 * occur, products must be made of fused multiply-adds or of the matrix instructions that the architecture has, and
 * neighbouring elements of global memory must be moved 16 bytes at a time.
 * Kernels by tensor maps must have the registers that their warpgroups redistribute. The main loops of
 * large products are found, and must not have more other instructions than were once enough.
 * `make check` compiles a fourth of the kernels for each of four architectures, others for each; `make check-long` compiles all for all,
 * but for architectures whose code is that of another one, which get a part. Architectures are compiled by a process each, as many at
 * once as there are processors. Without NVRTC the tests are skipped, with cytoc's own words.
 */
#define _GNU_SOURCE
#include "tests/cuda/cases/kernel_cases.h"

#include <sys/wait.h>
#include <unistd.h>

static cy_nvrtc *nvrtc;
static char *missing;

/* ---- reading cubins ---- */

/* The flow of control in a function, by instruction. */
typedef struct flow {
  int n, *jump; /* to which an instruction may lead besides the next one; -1: to none */
  bool *ends;   /* .. and it does not lead to the next one */
  bool *in;     /* of the loop at hand */
} flow;

enum { BRA = 0x947, BRA_UNIFORM = 0x547, EXIT = 0x94d, RET = 0x950, ALWAYS = 7 };

/* How far from the next instruction a branch leads, in instructions. Since sm_90 the low byte stands apart. */
static int distance_of(uint64_t word, int arch) {
  int high = (int)(int32_t)(word >> 32);
  return (arch < 90 ? high : (high >> 2) * 1024 + (int)(word >> 16 & 0xff) * 4) / 16;
}

static void read_flow(const char *code, uint64_t bytes, int arch, flow *f) {
  f->n = (int)(bytes / 16);
  f->jump = malloc((size_t)f->n * sizeof *f->jump);
  f->ends = calloc((size_t)f->n, sizeof *f->ends);
  f->in = malloc((size_t)f->n * sizeof *f->in);
  for (int i = 0; i < f->n; i++) {
    uint64_t word[2];
    memcpy(word, code + i * 16, sizeof word);
    int opcode = (int)(word[0] & 0xfff);
    bool branch = opcode == BRA || opcode == BRA_UNIFORM, always = (word[0] >> 12 & 15) == ALWAYS;
    int to = branch ? i + 1 + distance_of(word[0], arch) : -1;
    f->jump[i] = to >= 0 && to < f->n ? to : -1;
    f->ends[i] = always && (opcode == EXIT || opcode == RET || (opcode == BRA && (word[1] >> 23 & 15) == ALWAYS));
  }
}

static void free_flow(flow *f) {
  free(f->jump);
  free(f->ends);
  free(f->in);
}

/* The loop that a jump from `last` back to `first` closes: from where `last` can be reached without `first`. False: it
 * can be entered elsewhere, and so is none. */
static bool find_loop(flow *f, int first, int last) {
  bool more = true;
  memset(f->in, 0, (size_t)f->n * sizeof *f->in);
  f->in[first] = f->in[last] = true;
  while (more) {
    more = false;
    for (int i = f->n - 1; i >= 0; i--)
      if (!f->in[i] && ((f->jump[i] >= 0 && f->jump[i] != first && f->in[f->jump[i]]) ||
                        (!f->ends[i] && i + 1 < f->n && i + 1 != first && f->in[i + 1])))
        f->in[i] = more = true;
  }
  return first == 0 || !f->in[0];
}

/* What a loop multiplies by: matrix instructions; fused multiply-adds in a function that has none. */
static unsigned products_of(const unsigned counts[CY_CUDA_OPCODES], bool matrix) {
  return matrix ? counts[CY_CUDA_HMMA] + counts[CY_CUDA_IMMA] + counts[CY_CUDA_HGMMA] + counts[CY_CUDA_IGMMA] +
                      counts[CY_CUDA_QMMA] + counts[CY_CUDA_QGMMA]
                : counts[CY_CUDA_FFMA] + counts[CY_CUDA_FFMA_CONSTANT];
}

/* The loop in which a function spends its time: of those with at least half as many products as any, the one with the
 * fewest other instructions for each. No products: there is none. */
typedef struct main_loop {
  unsigned products, others;
} main_loop;

static main_loop find_main_loop(const char *code, uint64_t bytes, int arch) {
  main_loop best = {0, 0};
  unsigned total[CY_CUDA_OPCODES] = {0};
  flow f;
  read_flow(code, bytes, arch, &f);
  cy_cubin_count(code, bytes, total);
  bool matrix = products_of(total, true) > 0;
  for (int i = 0; i < f.n; i++) {
    unsigned counts[CY_CUDA_OPCODES] = {0}, all = 0;
    if (f.jump[i] < 0 || f.jump[i] >= i || !find_loop(&f, f.jump[i], i))
      continue;
    for (int k = 0; k < f.n; k++)
      if (f.in[k]) {
        cy_cubin_count(code + k * 16, 16, counts);
        all++;
      }
    unsigned n = products_of(counts, matrix);
    if (n > best.products * 2 || (n * 2 >= best.products && n && (all - n) * best.products < best.others * n))
      best = (main_loop){n, all - n};
  }
  free_flow(&f);
  return best;
}

/* Products as large as a network has them, which only this test compiles, and how many other instructions their main loops
 * may have for 100 products: on sm_80, on sm_120, and on sm_90a, where one product of a warpgroup is dozens of others'; the
 * kernel that reads by tensor maps apart: a tenth more than they had when this was written. An address more for each
 * product is seen here and nowhere else without a GPU. */
enum { LARGE_80, LARGE_120, LARGE_90A, LARGE_TMA, LARGE_COLUMNS };
static const struct {
  matmul_row product;
  conv_row conv; /* where it has images */
  integers ints;
  int max[LARGE_COLUMNS]; /* 0: there is no such kernel */
} large[] = {
    {{1, 2048, 2048, 2048, false, true, false, CY_F16, CY_F32, false, false}, {0}, {0}, {240, 257, 3135, 1870}},
    {{1, 2048, 2048, 2048, false, false, false, CY_BF16, CY_F32, false, false}, {0}, {0}, {278, 340, 4125, 2035}},
    {{1, 2048, 2048, 2048, false, true, false, CY_F32, CY_F32, true, false}, {0}, {0}, {570, 580, 7260, 1870}},
    {{1, 2048, 2048, 2048, false, true, false, CY_F32, CY_F32, false, false}, {0}, {0}, {20, 15, 25, 0}},
    {{1, 2048, 2048, 2048, false, true, false, CY_I8, CY_I32, false, false},
     {0},
     {CY_I8, false, 0},
     {257, 254, 3685, 1790}},
    {{0},
     {CY_CONTRACT_CONV, 8, 64, 64, 1, 2, {56, 56}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false, CY_F16},
     {0},
     {620, 670, 5900, 1650}},
    {{0},
     {CY_CONTRACT_CONV, 8, 3, 64, 1, 2, {224, 224}, {7, 7}, {2, 2}, {1, 1}, {3, 3}, false, CY_F16},
     {0},
     {1720, 1800, 14400, 0}},
    {{0},
     {CY_CONTRACT_CONV, 8, 3, 64, 1, 2, {224, 224}, {7, 7}, {2, 2}, {1, 1}, {3, 3}, true, CY_F16},
     {0},
     {1750, 1990, 14700, 0}},
    {{0},
     {CY_CONTRACT_CONV, 8, 3, 64, 1, 2, {224, 224}, {7, 7}, {2, 2}, {1, 1}, {3, 3}, true, CY_F32},
     {0},
     {49, 50, 61, 0}},
    {{0},
     {CY_CONTRACT_CONV, 8, 64, 64, 1, 2, {56, 56}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false, CY_F32},
     {0},
     {80, 65, 95, 0}},
    {{0},
     {CY_CONTRACT_CONV, 8, 20, 64, 1, 2, {56, 56}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false, CY_F16},
     {0},
     {3390, 2125, 27400, 0}},
    {{1, 2048, 2048, 2046, false, true, false, CY_F16, CY_F32, false, false}, {0}, {0}, {1749, 1532, 27445, 0}},
    {{1, 2048, 2048, 2047, false, true, false, CY_F16, CY_F32, false, false}, {0}, {0}, {1285, 860, 20300, 0}},
    {{1, 2048, 2047, 2048, true, false, false, CY_I8, CY_I32, false, false},
     {0},
     {CY_I8, false, 0},
     {2770, 2575, 25200, 0}},
    {{1, 2048, 2048, 2047, false, true, false, CY_F32, CY_F32, false, false}, {0}, {0}, {69, 40, 77, 0}},
    {{1, 1, 4096, 4096, false, false, false, CY_F32, CY_F32, false, false}, {0}, {0}, {615, 185, 620, 0}},
    {{1, 2, 4096, 4096, false, true, false, CY_F16, CY_F32, false, false}, {0}, {0}, {600, 230, 605, 0}},
};
/* The same with weights in integers. */
static const struct {
  block_row product;
  int max[LARGE_COLUMNS];
} large_weights[] = {
    {{{1, 2048, 4096, 4096, false, false, false, CY_F16, CY_F32, false, false}, 4, 32, 64, CY_U8, true},
     {697, 738, 10835, 0}},
    {{{1, 2048, 4096, 4096, false, false, false, CY_F32, CY_F32, false, false}, 4, 32, 64, CY_U8, false},
     {26, 20, 34, 0}},
    {{{1, 1, 4096, 4096, false, false, false, CY_F32, CY_F32, false, false}, 4, 32, 64, CY_U8, true},
     {335, 290, 335, 0}},
};

/* Attention of as many rows and keys, behind them. For 16 rows and 8 keys a thread has four scores, for each of which an
 * ideal loop needs a maximum, an FMA, an exponential and a sum, and half a conversion: 18 instructions for 8 products
 * with heads of 64 columns, and half a matrix load for each product. What is not run in most iterations (tiles that are
 * cut, copies of single elements) is counted, too. */
static const struct {
  attention_row attention;
  int max[LARGE_COLUMNS];
} large_attentions[] = {
    {{CY_F16, 8, 16, 1, 2048, 2048, 64, 64, 0, 0, 0}, {780, 640, 12850, 17000}},
    {{CY_BF16, 8, 16, 4, 2048, 2048, 128, 128, CAUSAL | TOKENS, 0, 0}, {820, 680, 8100, 10400}},
    {{CY_F32, 8, 16, 1, 2048, 2048, 64, 64, 0, 0, 0}, {490, 335, 500, 0}},
};
enum {
  WITH_INTEGERS = CHECK_COUNT(large),
  ATTENTIONS = WITH_INTEGERS + CHECK_COUNT(large_weights),
  LARGE = ATTENTIONS + CHECK_COUNT(large_attentions)
};
static int first_large = MAX_CASES;

static const int *max_of(int i) {
  return i < WITH_INTEGERS ? large[i].max
         : i < ATTENTIONS  ? large_weights[i - WITH_INTEGERS].max
                           : large_attentions[i - ATTENTIONS].max;
}

static void add_large(void) {
  static cy_cuda_machine machine = {.arch = {{80, 0}, {90, 'a'}, {120, 0}}, .narch = 3, .wanted_blocks = 64};
  first_large = ncases;
  for (int i = 0; i < CHECK_COUNT(large); i++) {
    bool conv = large[i].conv.images, ints = !cy_dtype_is_float(conv ? large[i].conv.dtype : large[i].product.in);
    if (conv)
      add_conv(&large[i].conv, ints ? &large[i].ints : NULL);
    else
      add_matmul(&large[i].product, ints ? &large[i].ints : NULL);
    cases[ncases - 1].machine.state = &machine;
  }
  for (int i = 0; i < CHECK_COUNT(large_weights); i++) {
    add_blocks(&large_weights[i].product, CY_F32);
    cases[ncases - 1].machine.state = &machine;
  }
  for (int i = 0; i < CHECK_COUNT(large_attentions); i++) {
    add_attention(&large_attentions[i].attention);
    cases[ncases - 1].machine.state = &machine;
  }
}

/* What is added up over all functions, and the main loops of the large products: a cy_cubin_visitor's. */
typedef struct all_functions {
  unsigned counts[CY_CUDA_OPCODES];
  main_loop loop[LARGE][2]; /* of the kernel, of the one by tensor maps */
  int arch;
} all_functions;

static void add_up(void *ctx, const char *function, const char *code, uint64_t bytes) {
  all_functions *all = ctx;
  int i = atoi(function + strlen("case")) - first_large;
  cy_cubin_count(code, bytes, all->counts);
  if (i >= 0 && !strstr(function, "_combine"))
    all->loop[i][strstr(function, "_tma") != NULL] = find_main_loop(code, bytes, all->arch);
}

/* ---- compiling ---- */

static bool stack_allowed(void *ctx, const char *function) {
  (void)ctx;
  (void)function;
  return false;
}

static bool wanted(const kernel_case *c, int i, const char *what, cy_cuda_arch arch) {
  static const char *const loops[] = {"strides", "crossing", "reduce", "softmax", "index",
                                      "window",  "rows",     "search", "scatter"};
  bool contraction = !strncmp(c->what, "matmul", 6) || !strncmp(c->what, "conv", 4), loop = false;
  if (i >= first_large || *what == 'p')
    return i >= first_large && *what == 'p';
  if (!strncmp(c->what, "attention", 9))
    return *what == 'a' && c->schedule->min_arch <= arch.number;
  if (*what == 'a')
    return false;
  for (int n = 0; n < CHECK_COUNT(loops); n++)
    loop |= !strncmp(c->what, loops[n], strlen(loops[n]));
  if (*what == 'c')
    return contraction && !c->schedule->stages;
  if (*what == 'm' || *what == 'i' || *what == 'f')
    return c->schedule->stages && c->schedule->min_arch <= arch.number &&
           cy_dtype_is_byte(cy_cu_factor_type(c->k)) == (*what == 'i') &&
           cy_dtype_is_float8(cy_cu_factor_type(c->k)) == (*what == 'f');
  if (*what == 'l')
    return loop && i % (!strncmp(c->what, "scatter", 7)  ? 1
                        : !strncmp(c->what, "search", 6) ? 2
                        : !strncmp(c->what, "rows", 4)   ? 3
                                                         : 7) ==
                       0;
  bool angle = !strncmp(c->what, "sin ", 4) || !strncmp(c->what, "cos ", 4) || !strncmp(c->what, "tan ", 4);
  return !contraction && !loop && !angle && i % 31 == 0; /* odd: sizes take turns by fours */
}

/* The matrix instruction that a kernel must have: <case>, <case>_tma, <case>_combine. */
static int wants_matrix(void *ctx, const char *function, cy_cuda_arch arch) {
  const char *what = ctx, *tail = function + strcspn(function, "_");
  int i = atoi(function + strlen("case"));
  const cy_contraction *c = cy_kernel_contraction(cases[i].k);
  if (!strchr("miaf", *what) || !strcmp(tail, "_combine") || !cases[i].schedule->stages)
    return 0;
  return cy_cuda_matrix_opcode(cases[i].schedule, c->rounded ? c->rounded : cy_cu_factor_type(cases[i].k),
                               !strcmp(tail, "_tma"), arch);
}

/* A kernel whose warpgroups redistribute registers has as many as they take, and its shared memory fits a block. */
enum { TAKEN = 40 * 128 + 232 * 256, MAX_REGISTERS = 64 << 10, MAX_SHARED = 227 << 10 };
static char unfit[200];
static void check_resources(void *ctx, const char *function, cy_cuda_arch arch, int registers, int shared) {
  int all = registers * CY_CUDA_TMA_THREADS;
  (void)ctx, (void)arch;
  if (strstr(function, "_tma") && (all < TAKEN || all > MAX_REGISTERS || shared + CY_CUDA_TMA_SHARED > MAX_SHARED))
    snprintf(unfit, sizeof unfit, "%s has %d registers and %d bytes of shared memory of its own", function, registers,
             shared);
}

typedef struct compiled {
  all_functions all;
  int functions, printed, tensors; /* in the cubin; kernels in its source, those that read by tensor maps */
  char error[600];
} compiled;

/* Which kernels an architecture compiles: all, or one of each `every`, in the first round the one at `first`. */
typedef struct share {
  int every, first;
} share;

typedef struct target_arch {
  cy_cuda_arch arch;
  share matrix, common; /* of kernels with matrix instructions, which architectures have of their own; of others */
} target_arch;

static share share_of(const target_arch *t, const char *what) {
  return *what == 'f' ? (share){1, 0} : strchr("miap", *what) ? t->matrix : t->common;
}

/* From round to round the next one: cases repeat themselves after a few. */
static bool in_share(share part, int i) { return (i + i / part.every) % part.every == part.first; }

static void compile_for(const char *what, const target_arch *t, compiled *out) {
  char *text = NULL, *error = NULL;
  size_t size = 0;
  int count = 0;
  share part = share_of(t, what);
  FILE *f = open_memstream(&text, &size);
  cy_cuda_image image;
  cy_nvrtc_check check = {stack_allowed, wants_matrix, (void *)what, check_resources};
  out->all.arch = t->arch.number;
  fprintf(f, "%s%s", cy_cuda_prelude, strchr("mciapf", *what) ? cy_cuda_prelude_matrix : "");
  for (int i = 0; i < ncases; i++)
    if (wanted(&cases[i], i, what, t->arch) && in_share(part, count++)) {
      print_case(f, i);
      bool tensors = t->arch.suffix && cases[i].schedule->tma_blocks;
      out->tensors += tensors;
      out->printed += 1 + (cases[i].schedule->shares > 0) + tensors;
    }
  fclose(f);
  if (cy_nvrtc_compile(nvrtc, text, t->arch, false, &check, &image, &error))
    snprintf(out->error, sizeof out->error, "%s", error);
  else if (*unfit)
    snprintf(out->error, sizeof out->error, "%s", unfit);
  else
    out->functions = cy_cubin_visit(image.bytes, image.size, add_up, &out->all);
  free(error);
  free(text);
  free(image.bytes);
}

/* A process that compiles; where its result can be read, or -1. */
static int compile_apart(const char *what, const target_arch *t) {
  static compiled result;
  int ends[2];
  if (pipe(ends))
    return -1;
  pid_t child = fork();
  if (child == 0) {
    memset(&result, 0, sizeof result);
    compile_for(what, t, &result);
    _exit(write(ends[1], &result, sizeof result) != sizeof result); /* fits in the pipe */
  }
  close(ends[1]);
  return child < 0 ? -1 : ends[0];
}

static bool read_result(int from, compiled *out) {
  size_t n = 0;
  ssize_t got = 1;
  while (from >= 0 && n < sizeof *out && (got = read(from, (char *)out + n, sizeof *out - n)) > 0)
    n += (size_t)got;
  if (from >= 0)
    close(from);
  wait(NULL);
  return n == sizeof *out;
}

/* Kernels without matrix instructions have one text for all: the oldest and the newest architecture compile each, of
 * those between one or another. */
static const target_arch archs[] = {
    {{75, 0}, {1, 0}, {1, 0}}, {{80, 0}, {1, 0}, {2, 0}}, {{90, 'a'}, {1, 0}, {2, 1}}, {{120, 0}, {1, 0}, {1, 0}},
    {{86, 0}, {3, 0}, {4, 0}}, {{89, 0}, {3, 0}, {4, 1}}, {{90, 0}, {3, 0}, {4, 2}},   {{100, 0}, {3, 0}, {4, 3}},
};

/* What `make check` has. */
static const target_arch fourths[] = {
    {{75, 0}, {4, 0}, {4, 0}}, {{80, 0}, {4, 1}, {4, 1}}, {{90, 'a'}, {4, 2}, {4, 2}}, {{120, 0}, {4, 3}, {4, 3}}};

static int arch_count(void) { return check_long() ? CHECK_COUNT(archs) : CHECK_COUNT(fourths); }
static const target_arch *arch_of(int i) { return check_long() ? &archs[i] : &fourths[i]; }

static int compiled_for[CHECK_COUNT(archs)]; /* kernels */

/* Floats of 8 bits are multiplied as they are, by warps and by warpgroups; sm_90 and sm_100 make halves of them for warps. */
static void check_float8(const target_arch *t, const unsigned *counts) {
  bool groups = t->arch.suffix, direct = cy_cuda_has_qmma(t->arch);
  CHECK(groups ? counts[CY_CUDA_QGMMA] > 20 && !counts[CY_CUDA_HGMMA] : !counts[CY_CUDA_QGMMA]);
  CHECK(direct ? counts[CY_CUDA_QMMA] > 20 && !counts[CY_CUDA_HMMA] : !counts[CY_CUDA_QMMA]);
  CHECK_INT_EQ(counts[CY_CUDA_IMMA] + counts[CY_CUDA_IGMMA], 0);
  CHECK(groups ? counts[CY_CUDA_UTMALDG] > 0 : !counts[CY_CUDA_UTMALDG]);
}

static void check_result(const char *what, const target_arch *t, const compiled *c) {
  const unsigned *counts = c->all.counts;
  bool groups = t->arch.suffix, copies = t->arch.number >= 80, part = share_of(t, what).every > 1;
  unsigned ffma = counts[CY_CUDA_FFMA] + counts[CY_CUDA_FFMA_CONSTANT];
  /* how many there must be: of the largest number that any architecture is fine with, and of parts */
  unsigned few = part ? 1 : 20, some = part ? 10 : 50, many = part ? 50 : 200, max = part ? 300 : 1000;
  if (*c->error) {
    CHECK_FAIL("sm_%d%.1s: %s", t->arch.number, &t->arch.suffix, c->error);
    return;
  }
  CHECK_INT_EQ(c->functions, c->printed);
  if (*what == 'f' && t->arch.number < CY_CUDA_FLOAT8_ARCH) {
    CHECK_INT_EQ(c->printed, 0); /* nothing to count in */
    return;
  }
  CHECK(c->printed > 0);
  CHECK_INT_EQ(counts[CY_CUDA_LDL] + counts[CY_CUDA_STL], 0);
  if (*what == 'o' || *what == 'l') /* items of several elements, rows */
    CHECK(counts[CY_CUDA_WIDE_LOAD] && counts[CY_CUDA_WIDE_LOAD] >= few / 2 && counts[CY_CUDA_WIDE_STORE] &&
          counts[CY_CUDA_WIDE_STORE] >= few / 2);
  if (*what == 'c') /* products of few rows, depthwise convolutions */
    CHECK(counts[CY_CUDA_WIDE_LOAD] > some);
  if (strchr("mif", *what)) /* results */
    CHECK(counts[CY_CUDA_WIDE_STORE] > few / 2);
  if (*what == 'c')
    CHECK(ffma > max);
  if (*what == 'c' || *what == 'l') /* rows, and products of few rows */
    CHECK(counts[CY_CUDA_SHFL] > some);
  if (*what == 'f')
    check_float8(t, counts);
  if (!strchr("mia", *what))
    return;
  /* where warpgroups multiply from shared memory, a warp loads and multiplies what has few rows only: a part may have none */
  unsigned by_warps = groups ? few : some;
  bool rare = groups && part;
  CHECK(rare || counts[CY_CUDA_LDSM] > by_warps);
  CHECK(copies ? counts[CY_CUDA_LDGSTS] > few : !counts[CY_CUDA_LDGSTS]);
  if (*what == 'm' || *what == 'a') {
    CHECK(counts[CY_CUDA_HMMA] > many && !counts[CY_CUDA_IMMA]);
    CHECK(groups ? counts[CY_CUDA_HGMMA] > few : !counts[CY_CUDA_HGMMA]);
  }
  if (*what != 'a')
    CHECK(groups ? c->tensors && counts[CY_CUDA_UTMALDG] >= 2 * (unsigned)c->tensors : !counts[CY_CUDA_UTMALDG]);
  if (*what == 'm') {
    CHECK_INT_EQ(ffma, 0); /* nothing is left to the ordinary units */
  }
  if (*what == 'i') {
    CHECK((rare || counts[CY_CUDA_IMMA] > by_warps) && !counts[CY_CUDA_HMMA]);
    CHECK(groups ? counts[CY_CUDA_IGMMA] > some : !counts[CY_CUDA_IGMMA]);
  }
}

static void check_loop(const target_arch *t, int i, bool tma, const main_loop *loop) {
  int column = tma ? LARGE_TMA : t->arch.suffix ? LARGE_90A : t->arch.number >= 100 ? LARGE_120 : LARGE_80;
  int max = ceiling_with(nvrtc, max_of(i)[column]);
  int others = loop->products ? (int)(loop->others * 100 / loop->products) : 0;
  if (!max)
    CHECK_INT_EQ(loop->products, 0);
  else if (!loop->products || others > max)
    CHECK_FAIL("sm_%d%.1s: %s%s has %u other instructions for %u products in its main loop: %d for 100, not %d at most",
               t->arch.number, &t->arch.suffix, cases[first_large + i].what, tma ? " (tensors)" : "", loop->others,
               loop->products, others, max);
}

static void test_loops_of_products(void) {
  static const target_arch where[] = {
      {{80, 0}, {1, 0}, {1, 0}}, {{120, 0}, {1, 0}, {1, 0}}, {{90, 'a'}, {1, 0}, {1, 0}}};
  static compiled result;
  if (!nvrtc)
    CHECK_SKIP(missing);
  for (int a = 0; a < CHECK_COUNT(where); a++) {
    memset(&result, 0, sizeof result);
    compile_for("products", &where[a], &result);
    if (*result.error)
      CHECK_FAIL("sm_%d: %s", where[a].arch.number, result.error);
    for (int i = 0; !*result.error && i < LARGE; i++)
      for (int tma = 0; tma < (where[a].arch.suffix ? 2 : 1); tma++)
        check_loop(&where[a], i, tma, &result.all.loop[i][tma]);
  }
}

static void compile_all(const char *what) {
  static compiled result;
  int from[CHECK_COUNT(archs)], started = 0, jobs = (int)sysconf(_SC_NPROCESSORS_ONLN);
  if (!nvrtc)
    CHECK_SKIP(missing);
  for (int a = 0; a < arch_count(); a++) {
    for (; started < arch_count() && started < a + jobs; started++)
      from[started] = compile_apart(what, arch_of(started));
    if (read_result(from[a], &result)) {
      check_result(what, arch_of(a), &result);
      compiled_for[a] += result.functions;
    } else {
      CHECK_FAIL("sm_%d: compiling ended without a result", arch_of(a)->arch.number);
    }
  }
}

static void test_ops(void) { compile_all("ops"); }
static void test_loops(void) { compile_all("loops"); }
static void test_contractions(void) { compile_all("contractions"); }
static void test_matrix(void) { compile_all("matrix"); }
static void test_attention(void) { compile_all("attention"); }
static void test_integers(void) { compile_all("integers"); }
static void test_float8(void) { compile_all("float8"); }

static int all_wanted(void *ctx, const char *function, cy_cuda_arch arch) {
  (void)function, (void)arch;
  return *(const int *)ctx;
}

/* A kernel that should have matrix instructions and has none, or others. */
static void test_missing_matrix(void) {
  cy_cuda_image image;
  char *error = NULL, text[100];
  int wanted = CY_CUDA_HMMA;
  cy_nvrtc_check check = {stack_allowed, all_wanted, &wanted, NULL};
  if (!nvrtc)
    CHECK_SKIP(missing);
  snprintf(text, sizeof text, "extern \"C\" __global__ void none(int *p) { *p = 3; }");
  CHECK_INT_EQ(cy_nvrtc_compile(nvrtc, text, (cy_cuda_arch){80, 0}, false, &check, &image, &error), -1);
  CHECK_STR_HAS(error, "kernel 'none' was compiled without matrix instructions");
  free(error);
  error = NULL;
  snprintf(text, sizeof text, "extern \"C\" __global__ void half(f32 *c, u32 *a) { cy_mma_f16(c, a, a + 4); }");
  char *source = malloc(strlen(cy_cuda_prelude) + strlen(cy_cuda_prelude_matrix) + sizeof text);
  sprintf(source, "%s%s%s", cy_cuda_prelude, cy_cuda_prelude_matrix, text);
  CHECK_INT_EQ(cy_nvrtc_compile(nvrtc, source, (cy_cuda_arch){80, 0}, false, &check, &image, &error), 0);
  free(image.bytes);
  wanted = CY_CUDA_IMMA;
  CHECK_INT_EQ(cy_nvrtc_compile(nvrtc, source, (cy_cuda_arch){80, 0}, false, &check, &image, &error), -1);
  CHECK_STR_HAS(error, "kernel 'half' was compiled without matrix instructions");
  free(source);
  free(error);
}

static bool stacked_allowed(void *ctx, const char *function) {
  (void)ctx;
  return !strcmp(function, "stacked");
}

/* An array that registers cannot hold is refused, unless the kernel may have it; registers that do not suffice always.
 */
static void test_stack(void) {
  static const char stacked[] = "extern \"C\" __global__ void stacked(float *x, const int *at, int n) {\n"
                                "  float a[64];\n  for (int i = 0; i < n; i++)\n    a[at[i] & 63] = x[i];\n"
                                "  x[0] = a[at[n] & 63];\n}\n";
  static const char spilled[] =
      "extern \"C\" __global__ __launch_bounds__(1024) void spilled(float *x) {\n"
      "  float a[128];\n#pragma unroll\n  for (int i = 0; i < 128; i++)\n    a[i] = x[i * 7];\n"
      "  __syncthreads();\n#pragma unroll\n  for (int i = 0; i < 128; i++)\n"
      "    x[i] = a[127 - i] * x[i + 999];\n}\n";
  cy_cuda_image image;
  char *error = NULL;
  cy_nvrtc_check none = {stack_allowed, NULL, NULL, NULL}, some = {stacked_allowed, NULL, NULL, NULL};
  if (!nvrtc)
    CHECK_SKIP(missing);
  CHECK_INT_EQ(cy_nvrtc_compile(nvrtc, stacked, (cy_cuda_arch){80, 0}, false, &none, &image, &error), -1);
  CHECK_STR_HAS(error, "kernel 'stacked' was compiled with 256 bytes of stack and 0 bytes of spills: a bug in cytoc");
  free(error);
  error = NULL;
  CHECK_INT_EQ(cy_nvrtc_compile(nvrtc, stacked, (cy_cuda_arch){80, 0}, false, &some, &image, &error), 0);
  free(image.bytes);
  CHECK_INT_EQ(cy_nvrtc_compile(nvrtc, spilled, (cy_cuda_arch){80, 0}, false, &some, &image, &error), -1);
  CHECK_STR_HAS(error, "kernel 'spilled' was compiled with ");
  CHECK(error && !strstr(error, " 0 bytes of spills"));
  free(error);
}

/* Without a least number of blocks no compiler knows how many registers there are to redistribute. */
static void test_registers(void) {
  static const char text[] = "extern \"C\" __global__ void %s ignored(int *p) {\n"
                             "  if (threadIdx.x >= 256)\n    asm volatile(\"setmaxnreg.dec.sync.aligned.u32 40;\");\n"
                             "  else\n    asm volatile(\"setmaxnreg.inc.sync.aligned.u32 232;\");\n"
                             "  p[threadIdx.x] = 3;\n}\n";
  cy_cuda_image image;
  cy_nvrtc_check check = {stack_allowed, NULL, NULL, NULL};
  char *error = NULL, source[sizeof text + 40];
  if (!nvrtc)
    CHECK_SKIP(missing);
  snprintf(source, sizeof source, text, "__launch_bounds__(384)");
  CHECK_INT_EQ(cy_nvrtc_compile(nvrtc, source, (cy_cuda_arch){90, 'a'}, false, &check, &image, &error), -1);
  CHECK_STR_HAS(error, "registers are not redistributed to warpgroups ('setmaxnreg' ignored");
  free(error);
  error = NULL;
  snprintf(source, sizeof source, text, "__launch_bounds__(384, 1)");
  CHECK_INT_EQ(cy_nvrtc_compile(nvrtc, source, (cy_cuda_arch){90, 'a'}, false, &check, &image, &error), 0);
  free(image.bytes);
}

typedef struct resources {
  int registers, shared, functions;
} resources;
static void note(void *ctx, const char *function, cy_cuda_arch arch, int registers, int shared) {
  resources *r = ctx;
  CHECK(arch.number == 90 && (!strcmp(function, "many") || !strcmp(function, "few")));
  if (!strcmp(function, "many"))
    *r = (resources){registers, shared, r->functions};
  r->functions++;
}

/* What the compiler says of each kernel is told, and what --explain makes of that. */
static void test_occupancy(void) {
  static const char source[] =
      "extern \"C\" __global__ void few(int *p) { *p = 3; }\n"
      "extern \"C\" __global__ void many(float *x) {\n  __shared__ float s[320];\n  float a[64];\n#pragma unroll\n"
      "  for (int i = 0; i < 64; i++)\n    a[i] = x[i * 7];\n  s[threadIdx.x] = a[0];\n  __syncthreads();\n"
      "#pragma unroll\n  for (int i = 0; i < 64; i++)\n    x[i] = a[63 - i] * s[i];\n}\n";
  cy_cuda_machine archs_90a = {.arch = {{90, 'a'}}, .narch = 1}, archs_80 = {.arch = {{80, 0}}, .narch = 1};
  cy_machine machine = {.state = &archs_90a};
  cy_cuda_schedule schedule = {.threads = 256, .shared_bytes = 64 << 10, .blocks = cy_dim_const(g, 528)};
  cy_kernel_plan plan = {.kernel = cases[0].k, .schedule = &schedule};
  resources told = {0, 0, 0};
  cy_nvrtc_check check = {stack_allowed, NULL, &told, note};
  cy_cuda_image image;
  char *error = NULL, text[200];
  CHECK(!cy_cuda_occupancy(&machine, &plan, NULL, text, sizeof text));
  plan.code.registers = 128;
  plan.code.static_shared = 512;
  CHECK(cy_cuda_occupancy(&machine, &plan, NULL, text, sizeof text));
  CHECK_STR_EQ(text, "128 registers, 64.5 KB shared, 2 blocks of 256 threads per multiprocessor; 528 blocks, 2.0 waves "
                     "of 264");
  plan.code.registers = 129; /* three warps for each quarter of the registers */
  CHECK(cy_cuda_occupancy(&machine, &plan, NULL, text, sizeof text));
  CHECK_STR_HAS(text, " 1 block of 256 threads per multiprocessor; 528 blocks, 4.0 waves of 132");
  machine.state = &archs_80;
  plan.code.registers = 64;
  schedule.shared_bytes = 81 << 10;
  CHECK(cy_cuda_occupancy(&machine, &plan, NULL, text, sizeof text));
  CHECK_STR_HAS(text, " 1 block of 256 threads per multiprocessor; 528 blocks, 4.9 waves of 108");
  if (!nvrtc)
    CHECK_SKIP(missing);
  CHECK_INT_EQ(cy_nvrtc_compile(nvrtc, source, (cy_cuda_arch){90, 'a'}, false, &check, &image, &error), 0);
  free(image.bytes);
  CHECK_INT_EQ(told.functions, 2);
  CHECK_INT_EQ(told.shared, 1280);
  CHECK(told.registers > 64 && told.registers < 128);
}

/* How many blocks of large products a multiprocessor has at a time, by registers and shared memory. */
static const struct {
  int large;
  cy_cuda_arch arch;
  const char *blocks;
} residents[] = {
    {0, {80, 0}, ", 2 blocks"}, {1, {80, 0}, ", 2 blocks"}, {4, {80, 0}, ", 2 blocks"},
    {5, {80, 0}, ", 2 blocks"}, {6, {80, 0}, ", 2 blocks"}, {0, {89, 0}, ", 2 blocks"},
    {4, {89, 0}, ", 2 blocks"}, {5, {89, 0}, ", 2 blocks"}, {6, {89, 0}, ", 2 blocks"},
};

static void note_registers(void *ctx, const char *function, cy_cuda_arch arch, int registers, int shared) {
  resources *told = ctx;
  (void)arch;
  if (!strchr(function, '_'))
    *told = (resources){registers, shared, told->functions + 1};
}

static void test_blocks(void) {
  if (!nvrtc)
    CHECK_SKIP(missing);
  for (int r = 0; r < CHECK_COUNT(residents); r++) {
    int i = first_large + residents[r].large;
    cy_cuda_machine archs = {.arch = {residents[r].arch}, .narch = 1};
    cy_machine machine = {.state = &archs};
    resources told = {0, 0, 0};
    cy_nvrtc_check check = {stack_allowed, NULL, &told, note_registers};
    cy_cuda_image image;
    char *source = NULL, *error = NULL, text[200];
    size_t size = 0;
    FILE *f = open_memstream(&source, &size);
    fprintf(f, "%s%s", cy_cuda_prelude, cy_cuda_prelude_matrix);
    print_case(f, i);
    fclose(f);
    if (cy_nvrtc_compile(nvrtc, source, residents[r].arch, false, &check, &image, &error))
      CHECK_FAIL("%s", error);
    cy_kernel_plan plan = {.kernel = cases[i].k, .schedule = (void *)cases[i].schedule};
    plan.code.registers = told.registers;
    plan.code.static_shared = told.shared;
    CHECK_INT_EQ(told.functions, 1);
    CHECK(cy_cuda_occupancy(&machine, &plan, cases[i].syms, text, sizeof text));
    if (!strstr(text, residents[r].blocks))
      CHECK_FAIL("%s on sm_%d: %s", cases[i].what, residents[r].arch.number, text);
    free(image.bytes);
    free(source);
    free(error);
  }
}

/* Equal source, equal bytes. */
static void test_reproducible(void) {
  cy_cuda_image a, b;
  char *error = NULL;
  cy_nvrtc_check check = {stack_allowed, NULL, NULL, NULL};
  if (!nvrtc)
    CHECK_SKIP(missing);
  CHECK_REQUIRE(!cy_nvrtc_compile(nvrtc, cy_cuda_prelude, (cy_cuda_arch){80, 0}, true, &check, &a, &error));
  CHECK_REQUIRE(!cy_nvrtc_compile(nvrtc, cy_cuda_prelude, (cy_cuda_arch){80, 0}, true, &check, &b, &error));
  CHECK(a.size == b.size && !memcmp(a.bytes, b.bytes, a.size));
  free(a.bytes);
  free(b.bytes);
}

static void test_refusal(void) {
  cy_cuda_image image;
  char *error = NULL;
  cy_nvrtc_check check = {stack_allowed, NULL, NULL, NULL};
  if (!nvrtc)
    CHECK_SKIP(missing);
  CHECK_INT_EQ(cy_nvrtc_compile(nvrtc, cy_cuda_prelude, (cy_cuda_arch){70, 0}, false, &check, &image, &error),
               CY_NVRTC_NO_ARCH);
  CHECK_STR_HAS(error, "does not know 'sm_70'");
  free(error);
}

static const check_test tests[] = {
    {"ops", test_ops},
    {"loops", test_loops},
    {"contractions", test_contractions},
    {"matrix", test_matrix},
    {"integers", test_integers},
    {"float8", test_float8},
    {"attention", test_attention},
    {"large products", test_loops_of_products},
    {"missing matrix", test_missing_matrix},
    {"stack", test_stack},
    {"registers", test_registers},
    {"occupancy", test_occupancy},
    {"blocks", test_blocks},
    {"reproducible", test_reproducible},
    {"refusal", test_refusal},
};

int main(int argc, char **argv) {
  cy_diag_sink *diag = cy_diag_create();
  g = cy_graph_create(diag, "test");
  nvrtc = cy_nvrtc_open(&missing);
  add_all_cases();
  add_large();
  schedule_cases();
  int rc = check_main(argc, argv, tests, CHECK_COUNT(tests));
  for (int a = 0; nvrtc && a < arch_count(); a++)
    fprintf(stderr, "%s sm_%d%.1s %d%s", a ? "," : "  kernels compiled:", arch_of(a)->arch.number, &arch_of(a)->arch.suffix,
            compiled_for[a], a + 1 < arch_count() ? "" : "\n");
  free_cases();
  free(missing);
  cy_nvrtc_close(nvrtc);
  cy_graph_destroy(g);
  cy_diag_destroy(diag);
  return rc;
}
