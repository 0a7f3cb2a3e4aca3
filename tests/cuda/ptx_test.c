/* SPDX-License-Identifier: Apache-2.0 */
/* ptx_test.c - kernels run without a GPU as NVRTC compiles them: its PTX, translated into C (ptx.py), through the shim
 * against the interpreter.
 *
 * The text that kernels_test.c runs has C in place of what stands in the prelude for devices: inline assembly, builtin
 * functions, branches by architecture. Here these run, operands as the PTX ISA defines them. `make check` takes a case for
 * every kind of instruction and of kernel; further ones by arguments:
 *
 *   ptx_test --all ARCH [NAME]   every case whose name begins so, for sm_ARCH
 *
 * What the accesses cost the device's memories is counted as well (shim_traffic.c), and must not exceed `ceilings`.
 *
 * Without NVRTC or a C compiler the tests are skipped. CY_TEST_KEEP=DIR keeps PTX and C there.
 */
#define _GNU_SOURCE
#include "tests/cuda/shim/shim_run.h"

#include <sys/wait.h>
#include <unistd.h>

enum { SM_75 = 1, SM_80 = 2, SM_90A = 4, SM_120 = 8, CHUNK = 40 };
/* .. and the shared memory of a block. */
static const struct {
  cy_cuda_arch arch;
  int shared;
} archs[] = {{{75, 0}, 64 << 10},  {{80, 0}, 163 << 10}, {{90, 'a'}, 227 << 10},
             {{120, 0}, 99 << 10}, {{86, 0}, 99 << 10},  {{100, 0}, 227 << 10}};

/* The first case whose name begins so, on these architectures. */
static const struct {
  const char *what;
  unsigned on;
} picks[] = {
    /* arithmetic, the functions behind it with tables, arrays and calls, conversions, bits in words */
    {"exp f32", SM_75},
    {"sin f32", SM_75 | SM_120},
    {"tan of many iterations", SM_80},
    {"cos f64", SM_75},
    {"pow f64", SM_120},
    {"log f16", SM_80},
    {"tanh f32", SM_120},
    {"div i64", SM_75},
    {"mod i8", SM_120},
    {"shr i16", SM_75},
    {"cast f64 i64", SM_75},
    {"cast f32 u8", SM_120},
    {"cast f32 bf16", SM_80},
    {"cast f16 u4", SM_75},
    {"cast f32 f8e4m3fn", SM_120},
    {"crossing 0", SM_80},
    {"crossing 22", SM_75},
    {"crossing 23", SM_80},
    {"index", SM_120},
    /* threads that share a task: shuffles, shared memory */
    {"reduce mul f64 123 rows", SM_75},
    {"reduce min i64 123 columns", SM_120},
    {"softmax symbolic 31", SM_80},
    {"rows norm fixed 24 f16", SM_75},
    {"rows norm fixed 197 f32", SM_120},
    {"rows softmax fixed 31", SM_80},
    {"scatter mul f32 1028", SM_75},
    {"scatter add f16 3", SM_80},
    {"scatter identity i32 2", SM_120},
    /* products on the ordinary units, by blocks that share k, of few rows; convolutions */
    {"matmul 1x5x7x9 f32", SM_75},
    {"matmul 1x34x30x300 f32", SM_80},
    {"matmul 1x1x100x300 f32", SM_120},
    {"matmul 1x3x64x256 f16 4 by 128", SM_120},
    {"matmul 1x1x1030x96 f32", SM_80},
    {"matmul 1x3x128x256 f16 symbolic 4", SM_75},
    {"conv 2d 3 -> 20 group 1 f32", SM_120},
    {"conv 2d 8 -> 8 group 8 bf16", SM_80},
    /* by matrix instructions: both ways round, single elements, copies of parts */
    {"matmul 1x37x41x50 f16", SM_75 | SM_80},
    {"matmul 1x200x136x256 f16", SM_75},
    {"matmul 1x72x64x40 f16 A transposed", SM_75 | SM_120},
    {"matmul 1x136x200x72 f16 B transposed", SM_80},
    {"matmul 1x136x80x200 bf16 A transposed B transposed symbolic", SM_80},
    {"matmul 3x50x72x24 bf16", SM_120},
    {"matmul 1x70x72x60 tf32", SM_80},
    {"matmul 1x37x41x50 i8", SM_75},
    {"matmul 3x33x66x48 i8", SM_80},
    {"matmul 1x70x72x131 u8", SM_120},
    {"conv 2d 3 -> 20 group 1 u8", SM_75},
    {"conv 2d 3 -> 33 group 1 f16 planar", SM_75 | SM_90A},
    {"conv 2d 3 -> 40 group 1 u8 planar", SM_120},
    {"conv 2d 3 -> 40 group 1 f32 planar", SM_80},
    {"conv 2d 20 -> 33 group 1 f16", SM_80},
    {"conv 2d 20 -> 24 group 1 u8", SM_75 | SM_90A},
    {"matmul 3x130x70x51 tf32", SM_120},
    {"conv 2d 16 -> 40 group 1 f16", SM_80},
    {"matmul 1x34x40x80 f16 4 by 16 zeros", SM_80},
    {"matmul 1x37x41x50 f8e4m3fn", SM_120},
    {"matmul 1x3x64x256 f16 4 by 32 f4e2m1", SM_75},
    {"matmul 1x130x72x160 f16 4 by 32 f4e2m1", SM_80},
    {"matmul 1x2x130x256 bf16 symbolic 8 by 32 f8e4m3fn", SM_120},
    {"matmul 1x130x136x96 f8e5m2", SM_120},
    {"matmul 1x136x136x272 f8e4m3fn", SM_90A},
    {"matmul 2x128x136x256 f8e5m2", SM_90A},
    {"conv 2d 3 -> 40 group 1 f8e4m3fn planar", SM_120},
    {"attention f16 1x1/1 30x10", SM_75},
    {"attention bf16 1x2/1 17x64", SM_80},
    {"attention f32 1x1/1 30x10", SM_120},
    {"attention f32 1x4/2 2x70", SM_120},
    /* of warpgroups, also by tensor maps: more steps than stages, both ways round, bytes */
    {"matmul 1x72x264x328 bf16", SM_90A},
    {"matmul 1x72x136x136 f16 A transposed", SM_90A},
    {"matmul 2x192x264x128 f16", SM_90A},
    {"matmul 1x80x136x288 u8", SM_90A},
    {"conv 2d 64 -> 33 group 1 f16", SM_90A},
    {"matmul 1x136x136x136 tf32 B transposed", SM_90A},
    {"matmul 2x200x304x136 bf16", SM_90A}, /* warpgroups in turns */
    {"matmul 2x136x144x1040 f8e4m3fn", SM_90A},
    {"attention f16 1x2/1 200x130", SM_90A},
    {"attention f16 1x1/1 130x270", SM_90A}, /* .. heads of 128, causality, by tensor maps */
};

/* Most iterations of shared memory for each that is needed, and least share of the sectors that are moved which would
 * do, in percent, of cases whose names begin so: the first row counts. Ends of rows that are shorter than a sector cost
 * some. */
static const struct {
  const char *what;
  int iterations, sectors;
} ceilings[] = {
    /* odd strides: copies of words, or words put together from single elements */
    {"matmul 1x37x41x50", 105, 62},
    {"matmul 1x70x72x131 u8", 105, 29},
    {"matmul 1x1x1030x96 f32", 105, 80},
    /* few rows by bytes in columns that four does not divide: a thread reads its four one by one, so that each instruction of a
       warp finds a quarter of what it wants in a sector; the other three find the sectors in the cache */
    {"matmul 1x2x130x256", 105, 15},
    {"matmul 3x33x66x48 i8", 105, 74},
    {"conv 2d 64 -> 33 group 1 f16", 100, 90},
    {"attention f16 1x1/1 30x10", 125, 95},
    {"attention f32 1x1/1 30x10", 105, 45},
    /* as one by one they are fetched: what a warp wants of a line of the picture lies apart where channels are few */
    {"conv 2d 3 -> 20 group 1 u8", 105, 70},
    {"conv 2d 3 -> 33 group 1 f16 planar", 105, 84},
    {"conv 2d 3 -> 40 group 1 u8 planar", 105, 88},
    {"conv 2d 3 -> 40 group 1 f32 planar", 105, 64},
    {"conv 2d 20 -> 33 group 1 f16", 105, 82},
    {"conv 2d 20 -> 24 group 1 u8", 105, 70},
    /* copies across axes: a thread reads halves of sectors one behind the other */
    {"crossing 22", 100, 60},
    {"crossing 23", 100, 60},
    /* a thread has neighbouring turns, one behind the other; places in lists and in memory are data */
    {"scatter", 125, 25},
    /* whole chunks */
    {"matmul 1x200x136x256 f16", 105, 88},
    /* families */
    {"matmul", 105, 75},
    {"conv", 105, 60},
    {"attention", 105, 95},
    {"", 100, 50},
};

static char dir[CHECK_PATH];
static cy_nvrtc *nvrtc;
static const char *python, *skipped;
static bool compiles; /* is there a C compiler? */
static int ran;       /* kernels */
static bool verbose;  /* of any case that is asked for traffic is printed, and not judged */

/* ---- PTX as a library ---- */

/* The ptx_traffic of shim_ptx.h. */
typedef struct traffic {
  uint64_t shared_iterations, shared_min, sectors, sectors_min;
} traffic;
static const traffic *(*read_traffic)(void);

static bool has_stack(void *ctx, const char *function) {
  (void)ctx;
  (void)function;
  return true;
}

/* Those of searches want contents that fit each other (search_test.c). */
static bool fits(const kernel_case *c, cy_cuda_arch arch) {
  return c->schedule->min_arch <= arch.number && strncmp(c->what, "search", 6);
}
static bool has_tensors(const kernel_case *c, cy_cuda_arch arch) { return arch.suffix && c->schedule->tma_blocks; }

static bool write_ptx(const char *path, cy_cuda_arch arch, const int *chosen, int n) {
  char *text = NULL, *error = NULL;
  size_t size = 0;
  FILE *f = open_memstream(&text, &size);
  fprintf(f, "%s%s", cy_cuda_prelude, cy_cuda_prelude_matrix);
  for (int i = 0; i < n; i++)
    print_case(f, chosen[i]);
  fclose(f);
  cy_cuda_image image = {.bytes = NULL};
  cy_nvrtc_check check = {has_stack, NULL, NULL, NULL};
  bool ok = !cy_nvrtc_compile(nvrtc, text, arch, true, &check, &image, &error);
  if (!ok)
    CHECK_FAIL("sm_%d: %s", arch.number, error);
  f = ok ? fopen(path, "w") : NULL;
  ok = f && fputs(image.bytes, f) >= 0; /* the size counts a NUL */
  if (f)
    ok &= !fclose(f);
  free(image.bytes);
  free(text);
  free(error);
  return ok;
}

/* Makes a library of the PTX in `path`, and `how` that one. */
static bool open_ptx(const char *path) {
  char command[2000], library[400];
  const char *cc = getenv("CC") ? getenv("CC") : "cc";
  snprintf(library, sizeof library, "%s.so", path);
  snprintf(command, sizeof command,
           "%s tests/cuda/shim/ptx.py %s %s.c && %s " CY_SHIM_FLAGS
           " -DPTX_TRAFFIC -march=native -ffp-contract=off -O0 -o %s %s.c " CY_SHIM_OBJECT " " CY_SHIM_PTX_OBJECT
           " -lm",
           python, path, path, cc, library, path);
  if (system(command)) {
    CHECK_FAIL("failed: %s", command);
    return false;
  }
  how.library = open_library(library, "ptx_launch", &how.launch);
  if (!how.library)
    CHECK_FAIL("cannot open %s", library);
  void *symbol = how.library ? dlsym(how.library, "ptx_traffic_read") : NULL;
  memcpy(&read_traffic, &symbol, sizeof symbol);
  return symbol != NULL;
}

/* ---- instructions one by one ---- */

/* %r1 to %r3 (%d1 to %d3 of 64 bits) are a, b, c; %p1: is c not 0; %r5 the thread. The result is %r4, %d4 or %p4, in the
 * first thread of a warp. What is wanted follows from the ISA. */
static const struct {
  const char *text;
  uint64_t a, b, c, want;
} instructions[] = {
    {"shf.l.wrap.b32 %r4, %r1, %r2, %r3;", 0x80000001, 3, 33, 7},
    {"shf.r.clamp.b32 %r4, %r1, %r2, %r3;", 0x12345678, 0x9abcdef0, 40, 0x9abcdef0},
    {"shf.r.wrap.b32 %r4, %r1, %r2, %r3;", 0x12345678, 0x9abcdef0, 36, 0x01234567},
    {"shl.b32 %r4, %r1, %r2;", 1, 32, 0, 0},
    {"shr.s32 %r4, %r1, %r2;", 0x80000000, 40, 0, 0xffffffff},
    {"shr.u64 %d4, %d1, %r2;", 1ull << 63, 63, 0, 1},
    {"lop3.b32 %r4, %r1, %r2, %r3, 0x96;", 0xf0f0, 0xff00, 1, 0x0ff1},
    {"lop3.b32 %r4, %r1, %r2, %r3, 0xCA;", 0xff00, 0x1234, 0x5678, 0x1278},
    {"bfe.s32 %r4, %r1, %r2, %r3;", 0xf00, 8, 4, 0xffffffff},
    {"bfe.s32 %r4, %r1, %r2, %r3;", 0x80000000, 28, 8, 0xfffffff8},
    {"bfe.u32 %r4, %r1, %r2, %r3;", 0xabcd1234, 16, 8, 0xcd},
    {"bfi.b32 %r4, %r1, %r2, %r3, 8;", 0xff, 0x12345678, 4, 0x12345ff8},
    {"prmt.b32 %r4, %r1, %r2, %r3;", 0x33221100, 0x77665544, 0x7531, 0x77553311},
    {"prmt.b32 %r4, %r1, %r2, %r3;", 0x80, 0, 8, 0x808080ff},
    {"slct.b32.s32 %r4, %r1, %r2, %r3;", 1, 2, 0xffffffff, 2},
    {"selp.b32 %r4, %r1, %r2, %p1;", 1, 2, 0, 2},
    {"popc.b32 %r4, %r1;", 0xf0f1, 0, 0, 9},
    {"clz.b32 %r4, %r1;", 0x10000, 0, 0, 15},
    {"bfind.u32 %r4, %r1;", 0x10000, 0, 0, 16},
    {"brev.b32 %r4, %r1;", 1, 0, 0, 0x80000000},
    {"mul.hi.s32 %r4, %r1, %r2;", 0xfffffffe, 0x40000000, 0, 0xffffffff},
    {"mul.hi.u64 %d4, %d1, %d2;", 1ull << 63, 6, 0, 3},
    {"mad.wide.s32 %d4, %r1, %r2, %d3;", 0xfffffffd, 5, 100, 85},
    {"mul.wide.u32 %d4, %r1, %r2;", 0xffffffff, 2, 0, 0x1fffffffe},
    {"add.cc.u32 %r4, %r1, %r2; addc.u32 %r4, %r3, 0;", 0xffffffff, 1, 5, 6},
    {"sub.cc.u32 %r4, %r1, %r2; subc.u32 %r4, %r3, 0;", 0, 1, 5, 4},
    {"mad.lo.cc.u32 %r4, %r1, %r2, %r3; madc.hi.u32 %r4, %r1, %r2, 0;", 0xffffffff, 2, 4, 2},
    {"dp4a.s32.s32 %r4, %r1, %r2, %r3;", 0xff020304, 0x01010101, 10, 18},
    {"dp2a.lo.u32.u32 %r4, %r1, %r2, %r3;", 0x00030002, 0x0504, 1, 24},
    {"div.s32 %r4, %r1, %r2;", 0xfffffff9, 2, 0, 0xfffffffd},
    {"rem.s32 %r4, %r1, %r2;", 0xfffffff9, 2, 0, 0xffffffff},
    {"cvt.s32.s8 %r4, %r1;", 0x180, 0, 0, 0xffffff80},
    {"cvt.rni.s32.f32 %r4, %r1;", 0x40200000, 0, 0, 2},
    {"cvt.rmi.s32.f32 %r4, %r1;", 0xbfc00000, 0, 0, 0xfffffffe},
    {"cvt.rzi.u32.f32 %r4, %r1;", 0xbf800000, 0, 0, 0},
    {"cvt.rzi.s32.f32 %r4, %r1;", 0x7fc00000, 0, 0, 0},
    {"cvt.rzi.s64.f32 %d4, %r1;", 0x5f800000, 0, 0, 0x7fffffffffffffff},
    {"cvt.rn.f16x2.f32 %r4, %r1, %r2;", 0x3f800000, 0x40000000, 0, 0x3c004000},
    {"cvt.rn.bf16x2.f32 %r4, %r1, %r2;", 0x3f808000, 0x3f818000, 0, 0x3f803f82},
    {"cvt.rna.tf32.f32 %r4, %r1;", 0x3f801000, 0, 0, 0x3f802000},
    {"cvt.sat.f32.f32 %r4, %r1;", 0x7fc00000, 0, 0, 0},
    {"copysign.f32 %r4, %r1, %r2;", 0x80000000, 0x3f800000, 0, 0xbf800000},
    {"max.f32 %r4, %r1, %r2;", 0x7fc00000, 0x3f800000, 0, 0x3f800000},
    {"ex2.approx.ftz.f32 %r4, %r1;", 0xc3020000, 0, 0, 0},
    {"fma.rp.f32 %r4, %r1, %r1, %r2;", 0x3f800000, 0x30800000, 0, 0x3f800001},
    {"fma.rm.f32 %r4, %r1, %r1, %r2;", 0x3f800000, 0x30800000, 0, 0x3f800000},
    {"add.rz.f32 %r4, %r1, %r2;", 0x3f800000, 0xb0800000, 0, 0x3f7fffff},
    {"setp.ne.f32 %p4, %r1, %r1;", 0x7fc00000, 0, 0, 0},
    {"setp.neu.f32 %p4, %r1, %r1;", 0x7fc00000, 0, 0, 1},
    {"setp.lt.and.s32 %p4, %r1, %r2, %p1;", 0xffffffff, 0, 1, 1},
    {"setp.lt.and.s32 %p5|%p4, %r1, %r2, %p1;", 0xffffffff, 0, 1, 0},
    {"setp.lo.u32 %p4, %r1, %r2;", 0xffffffff, 0, 0, 0},
    {"testp.infinite.f32 %p4, %r1;", 0xff800000, 0, 0, 1},
    {"@!%p1 mov.b32 %r4, %r2; @%p1 mov.b32 %r4, %r1;", 1, 2, 3, 1},
    {"mov.b64 {%r4, %r6}, %d1; mov.b64 %d4, {%r6, %r4};", 0x0000000100000002, 0, 0, 0x0000000200000001},
    {"shfl.sync.bfly.b32 %r4, %r5, 3, 31, -1;", 0, 0, 0, 3},
    {"shfl.sync.down.b32 %r4, %r5, 2, 31, -1;", 0, 0, 0, 2},
    {"shfl.sync.up.b32 %r4|%p4, %r5, 1, 0, -1;", 0, 0, 0, 0},
    {"shfl.sync.idx.b32 %r4, %r5, 15, 0x181f, -1;", 0, 0, 0, 7},
    {"setp.gt.u32 %p5, %r5, 29; vote.sync.ballot.b32 %r4, %p5, -1;", 0, 0, 0, 0xc0000000},
};

static void write_instructions(FILE *f) {
  fprintf(
      f,
      ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry one(.param .u64 one_param_0)\n.maxntid 32\n{\n"
      ".reg .b32 %%r<7>;\n.reg .b64 %%d<6>;\n.reg .pred %%p<7>;\nld.param.u64 %%d5, [one_param_0];\n"
      "mov.u32 %%r5, %%tid.x;\nsetp.eq.u32 %%p6, %%r5, 0;\n");
  for (int i = 0; i < CHECK_COUNT(instructions); i++) {
    const char *text = instructions[i].text;
    uint64_t in[3] = {instructions[i].a, instructions[i].b, instructions[i].c};
    for (int k = 0; k < 3; k++)
      fprintf(f, "mov.b64 %%d%d, %lld;\ncvt.u32.u64 %%r%d, %%d%d;\n", k + 1, (long long)in[k], k + 1, k + 1);
    fprintf(f, "setp.ne.s64 %%p1, %%d3, 0;\n%s\n", text);
    if (strstr(text, "%p4"))
      fprintf(f, "selp.b64 %%d4, 1, 0, %%p4;\n");
    else if (!strstr(text, "%d4"))
      fprintf(f, "cvt.u64.u32 %%d4, %%r4;\n");
    fprintf(f, "@%%p6 st.global.u64 [%%d5+%d], %%d4;\n", i * 8);
  }
  fprintf(f, "ret;\n}\n");
}

static void test_instructions(void) {
  uint64_t got[CHECK_COUNT(instructions)], slot = (uint64_t)(uintptr_t)got;
  char path[300];
  if (!compiles)
    CHECK_SKIP("no C compiler to run kernels with");
  snprintf(path, sizeof path, "%s/instructions.ptx", dir);
  FILE *f = fopen(path, "w");
  CHECK_REQUIRE(f);
  write_instructions(f);
  fclose(f);
  CHECK_REQUIRE(open_ptx(path));
  how.max_shared = 0;
  CHECK(shim_launch("one", 32, 1, 0, &slot, 1));
  for (int i = 0; i < CHECK_COUNT(instructions); i++)
    if (got[i] != instructions[i].want)
      CHECK_FAIL("%s gives 0x%llx, not 0x%llx", instructions[i].text, (unsigned long long)got[i],
                 (unsigned long long)instructions[i].want);
  dlclose(how.library);
}

/* Words 8 bytes apart are two to a bank, 16 bytes a thread go by quarters of a warp; words 64 bytes apart are in sectors
 * of their own. */
static void test_traffic(void) {
  char path[300];
  static _Alignas(64) char memory[32 * 64];
  uint64_t slot = (uint64_t)(uintptr_t)memory;
  if (!compiles)
    CHECK_SKIP("no C compiler to run kernels with");
  snprintf(path, sizeof path, "%s/traffic.ptx", dir);
  FILE *f = fopen(path, "w");
  CHECK_REQUIRE(f);
  fprintf(
      f,
      ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry one(.param .u64 one_param_0)\n.maxntid 32\n{\n"
      ".reg .b32 %%r<6>;\n.reg .b64 %%d<4>;\nld.param.u64 %%d1, [one_param_0];\nmov.u32 %%r1, %%tid.x;\n"
      "shl.b32 %%r2, %%r1, 3;\nst.shared.u32 [%%r2], %%r1;\n"
      "shl.b32 %%r3, %%r1, 4;\nst.shared.v4.b32 [%%r3], {%%r1, %%r1, %%r1, %%r1};\n"
      "shl.b32 %%r4, %%r1, 6;\ncvt.u64.u32 %%d2, %%r4;\nadd.s64 %%d3, %%d1, %%d2;\n"
      "ld.global.u32 %%r5, [%%d3];\nret;\n}\n");
  fclose(f);
  CHECK_REQUIRE(open_ptx(path));
  how.max_shared = 0;
  CHECK(shim_launch("one", 32, 1, 512, &slot, 1));
  const traffic *t = read_traffic();
  CHECK_INT_EQ(t->shared_iterations, 6);
  CHECK_INT_EQ(t->shared_min, 5);
  CHECK_INT_EQ(t->sectors, 32);
  CHECK_INT_EQ(t->sectors_min, 4);
  dlclose(how.library);
}

/* ---- what fails on a device fails here ---- */

/* Kernels of 128 threads with a tensor map of 8 rows of 128 bytes: %r1 is the thread, %p1 true in the first, %d1 describes
 * a matrix at the beginning of shared memory, %d2 the map; `barrier` waits for one arrival. %p4 is true in the first thread
 * of the first block, of a cluster of two where there is anything of clusters. */
#define PRODUCT(a)                                                                                                     \
  "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, " a ", %d1, %p2, 1, 1, 0, 0;\n"
#define ORDERED "wgmma.commit_group.sync.aligned;\n"
#define WAITED "wgmma.wait_group.sync.aligned 0;\n"
#define INIT "@%p1 mbarrier.init.shared::cta.b64 [barrier], 1;\n"
#define PUBLISHED "fence.mbarrier_init.release.cluster;\nbar.sync 0;\n"
#define EXPECT "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [barrier], 1024;\n"
#define COPY                                                                                                           \
  "@%p1 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [memory], [%d2, {%r2, "       \
  "%r2}], "                                                                                                            \
  "[barrier];\n"
#define COPY_TO(blocks)                                                                                                \
  "@%p4 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "          \
  "[memory], "                                                                                                         \
  "[%d2, {%r2, %r2}], [barrier], " blocks ";\n"
#define MET "barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait.acquire;\n"
#define LEFT "barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;\n"
#define MADE INIT "fence.mbarrier_init.release.cluster;\n" MET
#define ARRIVE_AT(block)                                                                                               \
  "mov.u32 %r3, barrier;\nmapa.shared::cluster.u32 %r3, %r3, " block ";\n"                                             \
  "@%p1 mbarrier.arrive.shared::cluster.b64 _, [%r3];\n"
#define ARRIVED "mbarrier.try_wait.parity.shared::cta.b64 %p3, [barrier], 0;\n"
static const struct {
  const char *text, *says; /* NULL: nothing, it is right */
} faults[] = {
    {"wgmma.fence.sync.aligned;\n" PRODUCT("%d1") ORDERED WAITED, NULL},
    {PRODUCT("%d1") ORDERED WAITED, "wgmma without a fence"},
    {"wgmma.fence.sync.aligned;\n" PRODUCT("%d1") ORDERED, "a block ends before products of its thread"},
    {"add.s64 %d3, %d1, 8;\nwgmma.fence.sync.aligned;\n" PRODUCT("%d3") ORDERED WAITED,
     "descriptor of a matrix whose swizzled rows begin elsewhere"},
    {"or.b64 %d3, %d1, 0x4000;\nwgmma.fence.sync.aligned;\n" PRODUCT("%d3") ORDERED WAITED, "descriptor of a matrix"},
    {"cvt.u64.u32 %d4, %r1;\nshr.u64 %d4, %d4, 6;\nshl.b64 %d4, %d4, 6;\nadd.s64 %d3, %d1, %d4;\n"
     "wgmma.fence.sync.aligned;\n" PRODUCT("%d3") ORDERED WAITED,
     "a product that is another one in other threads of the warpgroup"},
    {"setmaxnreg.dec.sync.aligned.u32 40;\nsetmaxnreg.inc.sync.aligned.u32 240;\n", NULL},
    {"setmaxnreg.inc.sync.aligned.u32 256;\n", "setmaxnreg: more registers than the block has"},
    {"setmaxnreg.inc.sync.aligned.u32 40;\n", "setmaxnreg: 0x28"},
    {"setmaxnreg.dec.sync.aligned.u32 100;\n", "setmaxnreg: 0x64"},
    {"cp.async.cg.shared.global [memory], [%d2], 16;\n", "a block ends before copies of its thread"},
    {INIT PUBLISHED EXPECT COPY ARRIVED, NULL},
    {INIT "bar.sync 0;\n" EXPECT COPY ARRIVED, "copy to a barrier that was not published"},
    {INIT PUBLISHED EXPECT COPY, "a block ends before its copies by tensor maps"},
    {INIT PUBLISHED "@%p1 st.shared.u32 [memory+64], %r1;\n" EXPECT COPY ARRIVED,
     "copy by a tensor map over what was written and not published: 0x40"},
    {INIT PUBLISHED "@%p1 st.shared.u32 [memory+64], %r1;\nfence.proxy.async.shared::cta;\n" EXPECT COPY ARRIVED, NULL},
    {INIT PUBLISHED "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [barrier], 2048;\n" COPY ARRIVED,
     "a barrier that not all threads reach"},
    {MADE EXPECT COPY_TO("3") ARRIVED MET, NULL},
    {MADE EXPECT COPY_TO("3") ARRIVED, "a block may end while others use its shared memory: block: 0x1"},
    {INIT PUBLISHED EXPECT COPY_TO("3") ARRIVED MET, "a barrier that its block may not have made yet: 0x1"},
    {MADE EXPECT COPY_TO("1") ARRIVED MET, "a barrier that not all threads reach"},
    {MADE EXPECT COPY_TO("7") ARRIVED MET, "copy by a tensor map to blocks: 0x7"},
    {MADE "@%p1 st.shared.u32 [memory+64], %r1;\n" MET EXPECT COPY_TO("3") ARRIVED MET,
     "copy by a tensor map over what was written and not published: 0x40"},
    {INIT MET EXPECT COPY_TO("3") ARRIVED MET, "copy to a barrier that was not published"},
    {MADE "xor.b32 %r4, %r5, 1;\n" ARRIVE_AT("%r4") ARRIVED LEFT, NULL},
    {MADE "xor.b32 %r4, %r5, 1;\n" ARRIVE_AT("%r4") ARRIVED MET,
     "arrival at another block's barrier that a relaxed one at the cluster's does not order"},
    {INIT MET "xor.b32 %r4, %r5, 1;\n" ARRIVE_AT("%r4") ARRIVED LEFT, "arrival at a barrier that was not published"},
    {MADE ARRIVE_AT("1") ARRIVED MET, "a barrier that not all threads reach"},
    {MADE ARRIVE_AT("2") ARRIVED MET, "a block that is not in the cluster: 0x2"},
    {MADE "xor.b32 %r4, %r5, 1;\n" ARRIVE_AT("%r4") ARRIVED, "a block may end while others use its shared memory"},
    {INIT "barrier.cluster.wait.acquire;\n", "wait at the cluster's barrier without an arrival"},
};

static bool in_cluster(int i) { return strstr(faults[i].text, "cluster.wait") || strstr(faults[i].text, "multicast"); }

static void write_faults(FILE *f) {
  fprintf(f, ".version 9.0\n.target sm_90a\n.address_size 64\n");
  for (int i = 0; i < CHECK_COUNT(faults); i++)
    fprintf(f,
            ".visible .entry fault%d(.param .align 64 .b8 map%d[128])\n.maxntid 128\n.minnctapersm 1\n%s{\n"
            ".reg .b32 %%r<6>;\n.reg .b64 %%d<5>;\n.reg .f32 %%f<5>;\n.reg .pred %%p<5>;\n"
            ".shared .align 1024 .b8 memory[8192];\n.shared .align 8 .b64 barrier;\n"
            "mov.u32 %%r1, %%tid.x;\nmov.u32 %%r2, 0;\nsetp.eq.u32 %%p1, %%r1, 0;\nsetp.eq.u32 %%p2, %%r2, 0;\n"
            "mov.u32 %%r5, %%ctaid.x;\nor.b32 %%r3, %%r1, %%r5;\nsetp.eq.u32 %%p4, %%r3, 0;\n"
            "mov.b64 %%d1, 0x4000004000000000;\nmov.b64 %%d2, map%d;\ncvta.param.u64 %%d2, %%d2;\n%sret;\n}\n",
            i, i, in_cluster(i) ? ".explicitcluster\n.reqnctapercluster 2, 1, 1\n" : "", i, faults[i].text);
}

/* In a process of its own, which a fault ends: did all go well? What it said goes to `path`. */
static bool fault_passes(int i, const char *path) {
  static _Alignas(64) char rows[8][128];
  shim_map map = {.address = (uint64_t)(uintptr_t)rows, .extent = {64, 8, 1, 1, 1}, .stride = {2, 128}, .bytes = 2};
  char symbol[32];
  uint64_t slot = (uint64_t)(uintptr_t)&map;
  int status = -1;
  for (int k = 0; k < 5; k++) {
    map.box[k] = k == 0 ? 64 : k == 1 ? 8 : 1;
    map.step[k] = 1;
  }
  snprintf(symbol, sizeof symbol, "fault%d", i);
  fflush(NULL);
  pid_t child = fork();
  if (child == 0)
    _exit(!freopen(path, "w", stderr) || setvbuf(stderr, NULL, _IONBF, 0) ||
          !shim_launch(symbol, 128, in_cluster(i) ? 2 : 1, 0, &slot, 1));
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static void test_faults(void) {
  char path[300], log[320], said[400];
  if (!compiles)
    CHECK_SKIP("no C compiler to run kernels with");
  snprintf(path, sizeof path, "%s/faults.ptx", dir);
  snprintf(log, sizeof log, "%s.txt", path);
  FILE *f = fopen(path, "w");
  CHECK_REQUIRE(f);
  write_faults(f);
  fclose(f);
  CHECK_REQUIRE(open_ptx(path));
  how.max_shared = 0;
  for (int i = 0; i < CHECK_COUNT(faults); i++) {
    bool passes = fault_passes(i, log);
    f = fopen(log, "r");
    CHECK_REQUIRE(f);
    said[fread(said, 1, sizeof said - 1, f)] = 0;
    fclose(f);
    if (passes != !faults[i].says || (faults[i].says && !strstr(said, faults[i].says)))
      CHECK_FAIL("%sgives '%s', not '%s'", faults[i].text, said, faults[i].says ? faults[i].says : "");
  }
  dlclose(how.library);
}

/* What is not known, or no kernel for a device, is named and refused. */
static const struct {
  const char *head, *text, *says;
} unknown[] = {
    {"()", "mul.rn.ftz.f32 %f1, %f2, %f2;", "one: mul.rn.ftz.f32 %f1, %f2, %f2: instruction mul.rn.ftz.f32"},
    {"()", "setmaxnreg.dec.sync.aligned.u32 40;", "a kernel without .minnctapersm or .maxnreg"},
    {"(.param .align 8 .b8 map[128])", "ret;", "parameter map is no tensor map"},
    {"()", "wgmma.fence.sync.aligned;\nmov.f32 %f2, %f1;\n" PRODUCT("%d1"), "%f2 is written behind the fence"},
};

static void test_unknown(void) {
  char path[300], command[1200], said[400];
  if (!compiles)
    CHECK_SKIP("no C compiler to run kernels with");
  snprintf(path, sizeof path, "%s/unknown.ptx", dir);
  snprintf(command, sizeof command, "%s tests/cuda/shim/ptx.py %s %s.c 2>&1", python, path, path);
  for (int i = 0; i < CHECK_COUNT(unknown); i++) {
    FILE *f = fopen(path, "w");
    CHECK_REQUIRE(f);
    fprintf(f,
            ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry one%s\n{\n.reg .f32 %%f<5>;\n"
            ".reg .b64 %%d<2>;\n.reg .pred %%p<3>;\n%s\nret;\n}\n",
            unknown[i].head, unknown[i].text);
    fclose(f);
    FILE *p = popen(command, "r");
    CHECK_REQUIRE(p);
    said[fread(said, 1, sizeof said - 1, p)] = 0;
    CHECK(pclose(p) != 0);
    CHECK_STR_HAS(said, unknown[i].says);
  }
}

/* ---- running ---- */

/* Shared memory that a block may have; any of a kernel that is made for other architectures. */
static int max_shared(const kernel_case *c, cy_cuda_arch arch) {
  const cy_cuda_machine *m = c->machine.state;
  bool own = !m || !m->narch;
  int max = 0;
  for (int i = 0; m && i < m->narch; i++)
    own |= m->arch[i].number == arch.number;
  for (int a = 0; own && a < CHECK_COUNT(archs); a++)
    if (archs[a].arch.number == arch.number)
      max = archs[a].shared;
  return max;
}

/* Of the first blocks of the last launch. */
static void check_traffic(const kernel_case *c, cy_cuda_arch arch) {
  const traffic *t = read_traffic();
  int row = 0, max, iterations = t->shared_min ? (int)(t->shared_iterations * 100 / t->shared_min) : 100,
      sectors = t->sectors ? (int)(t->sectors_min * 100 / t->sectors) : 100;
  while (strncmp(c->what, ceilings[row].what, strlen(ceilings[row].what)))
    row++;
  max = ceiling_with(nvrtc, ceilings[row].iterations);
  if (verbose)
    fprintf(stderr, "  sm_%d%.1s: %s: %d %% of the iterations of shared memory, %d %% of the sectors needed\n",
            arch.number, &arch.suffix, c->what, iterations, sectors);
  else if (iterations > max || sectors < ceilings[row].sectors)
    CHECK_FAIL(
        "sm_%d%.1s: %s: %d %% of the iterations of shared memory that are needed (at most %d), of all sectors %d %% "
        "are needed (at least %d)",
        arch.number, &arch.suffix, c->what, iterations, max, sectors, ceilings[row].sectors);
}

static void run_case(int i, cy_cuda_arch arch, bool tensors, int iterations) {
  char symbol[32];
  snprintf(symbol, sizeof symbol, "case%d", i);
  how.arch = arch;
  how.tensors = tensors;
  how.max_shared = max_shared(&cases[i], arch);
  int bad = case_run(&cases[i], symbol, iterations, launch_shim);
  ran++;
  check_traffic(&cases[i], arch);
  if (bad)
    CHECK_FAIL("sm_%d%.1s: %s (kernel %s%s): %d wrong", arch.number, &arch.suffix, cases[i].what, symbol,
               tensors ? ", tensors" : "", bad);
}

static void run_chosen(cy_cuda_arch arch, const int *chosen, int n, int iterations) {
  char path[300];
  snprintf(path, sizeof path, "%s/sm_%d_%d.ptx", dir, arch.number, n ? chosen[0] : 0);
  if (!write_ptx(path, arch, chosen, n) || !open_ptx(path))
    return;
  for (int i = 0; i < n; i++) {
    const kernel_case *c = &cases[chosen[i]];
    if (!c->schedule->packed_k || !c->schedule->tma_blocks)
      run_case(chosen[i], arch, false, c->schedule->kind == CY_CUDA_ITEMS ? 1 : iterations);
    if (has_tensors(c, arch))
      run_case(chosen[i], arch, true, iterations);
  }
  dlclose(how.library);
}

static void run_picks(int a) {
  int chosen[CHECK_COUNT(picks)], n = 0;
  if (skipped)
    CHECK_SKIP(skipped);
  for (int p = 0; p < CHECK_COUNT(picks); p++)
    for (int i = 0; picks[p].on >> a & 1 && i < ncases; i++)
      if (!strncmp(cases[i].what, picks[p].what, strlen(picks[p].what))) {
        CHECK(fits(&cases[i], archs[a].arch));
        chosen[n++] = i;
        break;
      }
  run_chosen(archs[a].arch, chosen, n, archs[a].arch.suffix ? 1 : 2); /* warpgroups take long */
}

static void test_75(void) { run_picks(0); }
static void test_80(void) { run_picks(1); }
static void test_90a(void) { run_picks(2); }
static void test_120(void) { run_picks(3); }

/* Every pick names a case. */
static void test_picks(void) {
  for (int p = 0; p < CHECK_COUNT(picks); p++) {
    int found = 0;
    for (int i = 0; i < ncases; i++)
      found += !strncmp(cases[i].what, picks[p].what, strlen(picks[p].what));
    if (!found)
      CHECK_FAIL("no case is called '%s'", picks[p].what);
  }
}

static cy_cuda_arch all_arch;
static const char *all_names = "";
static void test_all(void) {
  int chosen[CHUNK], n = 0;
  if (skipped)
    CHECK_SKIP(skipped);
  for (int i = 0; i < ncases; i++) {
    if (fits(&cases[i], all_arch) && !strncmp(cases[i].what, all_names, strlen(all_names)))
      chosen[n++] = i;
    if (n == CHUNK || (n && i == ncases - 1)) {
      run_chosen(all_arch, chosen, n, 3);
      n = 0;
    }
  }
}

static const check_test tests[] = {
    {"instructions", test_instructions},
    {"traffic", test_traffic},
    {"faults", test_faults},
    {"unknown", test_unknown},
    {"picks", test_picks},
    {"sm_75", test_75},
    {"sm_80", test_80},
    {"sm_90a", test_90a},
    {"sm_120", test_120},
};
static const check_test all_tests[] = {{"all", test_all}};

static void find_python(void) {
  static char path[500];
  const char *environment = getenv("VIRTUAL_ENV");
  snprintf(path, sizeof path, "%s/bin/python", environment ? environment : "");
  python = environment && !access(path, X_OK) ? path : "python3";
}

int main(int argc, char **argv) {
  cy_diag_sink *diag = cy_diag_create();
  const char *keep = getenv("CY_TEST_KEEP");
  bool all = argc > 2 && !strcmp(argv[1], "--all");
  char *missing = NULL, command[320];
  g = cy_graph_create(diag, "test");
  if (keep)
    snprintf(dir, sizeof dir, "%s", keep);
  else if (!check_folder("cyto-ptx", dir))
    return 1;
  add_all_cases();
  schedule_cases();
  find_python();
  nvrtc = cy_nvrtc_open(&missing);
  compiles = !system("cc --version >/dev/null 2>&1");
  skipped = !nvrtc ? missing : compiles ? NULL : "no C compiler to run kernels with";
  verbose = all;
  if (all) {
    all_arch = (cy_cuda_arch){atoi(argv[2]), argv[2][strspn(argv[2], "0123456789")]};
    all_names = argc > 3 ? argv[3] : "";
  }
  int rc = all ? check_main(1, argv, all_tests, 1) : check_main(argc, argv, tests, CHECK_COUNT(tests));
  fprintf(stderr, "  %d kernels ran from PTX\n", ran);
  snprintf(command, sizeof command, "rm -rf '%s'", dir);
  if (!keep && system(command))
    rc = 1;
  free(missing);
  cy_nvrtc_close(nvrtc);
  free_cases();
  cy_graph_destroy(g);
  cy_diag_destroy(diag);
  return rc;
}
