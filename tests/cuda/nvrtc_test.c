/* nvrtc_test.c - kernels compiled for every architecture where NVRTC is installed, and their machine code looked
 * through.
 *
 * Compiling already fails on spills and stack frames (nvrtc.c reads the log). The cubins are read once more without
 * that log: an instruction has 16 bytes, its low 12 bits are the opcode; loads and stores of local memory must not
 * occur, products must be made of fused multiply-adds. Without NVRTC the tests are skipped, with cytoc's own words.
 */
#define _GNU_SOURCE
#include "tests/cuda/kernel_cases.h"

#include <elf.h>

enum {
  LDL = 0x983,
  STL = 0x387,
  FFMA = 0x223,
  FFMA_CONSTANT = 0xa23,
  HMMA = 0x23c,
  LDSM = 0x83b,
  LDGSTS = 0xfae,
  HGMMA = 0x9f0,
  OPCODES = 4096
};

static cy_nvrtc *nvrtc;
static char *missing;

/* ---- reading cubins ---- */

/* Adds up the opcodes of the functions whose names begin with `prefix`; the number of functions. */
static int count_opcodes(const cy_cuda_image *image, const char *prefix, unsigned counts[OPCODES]) {
  const char *base = image->bytes;
  Elf64_Ehdr head;
  int functions = 0;
  char section[64];
  memcpy(&head, base, sizeof head);
  snprintf(section, sizeof section, ".text.%s", prefix);
  const Elf64_Shdr *sections = (const Elf64_Shdr *)(base + head.e_shoff);
  const char *names = base + sections[head.e_shstrndx].sh_offset;
  for (int i = 0; i < head.e_shnum; i++) {
    if (strncmp(names + sections[i].sh_name, section, strlen(section)))
      continue;
    functions++;
    for (uint64_t at = 0; at + 16 <= sections[i].sh_size; at += 16) {
      uint16_t low;
      memcpy(&low, base + sections[i].sh_offset + at, 2);
      counts[low & 0xfff]++;
    }
  }
  return functions;
}

/* ---- compiling ---- */

static bool stack_allowed(void *ctx, const char *function) {
  (void)ctx;
  (void)function;
  return false;
}

static bool wanted(const kernel_case *c, int i, const char *what, cy_cuda_arch arch) {
  static const char *const loops[] = {"strides", "reduce", "softmax", "index", "window"};
  bool contraction = !strncmp(c->what, "matmul", 6) || !strncmp(c->what, "conv", 4), loop = false;
  for (int n = 0; n < CHECK_COUNT(loops); n++)
    loop |= !strncmp(c->what, loops[n], strlen(loops[n]));
  if (*what == 'c')
    return contraction && !c->form->stages;
  if (*what == 'm')
    return c->form->stages && c->form->least_arch <= arch.number;
  if (*what == 'l')
    return loop && i % 7 == 0;
  bool angle = !strncmp(c->what, "sin ", 4) || !strncmp(c->what, "cos ", 4) || !strncmp(c->what, "tan ", 4);
  return !contraction && !loop && !angle && i % 32 == 0;
}

static void compile_for(const char *what, cy_cuda_arch arch, unsigned counts[OPCODES]) {
  char *text = NULL, *error = NULL;
  size_t size = 0;
  int printed = 0;
  FILE *f = open_memstream(&text, &size);
  cy_cuda_image image;
  cy_nvrtc_check check = {stack_allowed, NULL};
  fprintf(f, "%s%s", cy_cuda_prelude, *what == 'm' ? cy_cuda_prelude_matrix : "");
  for (int i = 0; i < ncases; i++)
    if (wanted(&cases[i], i, what, arch)) {
      print_case(f, i);
      printed++;
    }
  fclose(f);
  if (cy_nvrtc_compile(nvrtc, text, arch, false, &check, &image, &error)) {
    CHECK_FAIL("sm_%d%c: %s", arch.number, arch.suffix ? arch.suffix : ' ', error);
  } else {
    CHECK_INT_EQ(count_opcodes(&image, "case", counts), printed);
    CHECK_INT_EQ(counts[LDL] + counts[STL], 0);
  }
  free(error);
  free(text);
  free(image.bytes);
}

static void compile_all(const char *what) {
  static const cy_cuda_arch archs[] = {{75, 0}, {80, 0}, {89, 0}, {90, 'a'}, {120, 0}};
  if (!nvrtc)
    CHECK_SKIP(missing);
  for (int a = 0; a < CHECK_COUNT(archs); a++) {
    unsigned counts[OPCODES] = {0};
    compile_for(what, archs[a], counts);
    if (*what == 'c')
      CHECK(counts[FFMA] + counts[FFMA_CONSTANT] > 1000);
    if (*what == 'm') {
      CHECK(counts[HMMA] + 8 * counts[HGMMA] > 200 && (counts[LDSM] > 80 || archs[a].suffix));
      CHECK(archs[a].suffix ? counts[HGMMA] > 20 : !counts[HGMMA]);
      CHECK(archs[a].number < 80 ? !counts[LDGSTS] : counts[LDGSTS] > 30);
      CHECK_INT_EQ(counts[FFMA] + counts[FFMA_CONSTANT], 0); /* nothing is left to the ordinary units */
    }
  }
}

static void test_ops(void) { compile_all("ops"); }
static void test_loops(void) { compile_all("loops"); }
static void test_contractions(void) { compile_all("contractions"); }
static void test_matrix(void) { compile_all("matrix"); }

/* Equal source, equal bytes. */
static void test_reproducible(void) {
  cy_cuda_image a, b;
  char *error = NULL;
  cy_nvrtc_check check = {stack_allowed, NULL};
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
  cy_nvrtc_check check = {stack_allowed, NULL};
  if (!nvrtc)
    CHECK_SKIP(missing);
  CHECK_INT_EQ(cy_nvrtc_compile(nvrtc, cy_cuda_prelude, (cy_cuda_arch){70, 0}, false, &check, &image, &error), -1);
  CHECK_STR_HAS(error, "does not know 'sm_70'");
  free(error);
}

static const check_test tests[] = {
    {"ops", test_ops},
    {"loops", test_loops},
    {"contractions", test_contractions},
    {"matrix", test_matrix},
    {"reproducible", test_reproducible},
    {"refusal", test_refusal},
};

int main(int argc, char **argv) {
  cy_diag_sink *diag = cy_diag_create();
  g = cy_graph_create(diag, "test");
  nvrtc = cy_nvrtc_open(&missing);
  add_all_cases();
  schedule_cases();
  int rc = check_main(argc, argv, tests, CHECK_COUNT(tests));
  free_cases();
  free(missing);
  cy_nvrtc_close(nvrtc);
  cy_graph_destroy(g);
  cy_diag_destroy(diag);
  return rc;
}
