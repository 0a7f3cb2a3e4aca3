/* SPDX-License-Identifier: Apache-2.0 */
/* copy_rows_test.c - rows of feature maps on their way to scratch (copy_rows.h) against plain loops: elements of every kind,
 * dense, strided and dilated positions, sizes that are constants or not, rows that begin and end anywhere beside the feature
 * map or do not exist. Source rows end at a page that must not be read; nothing around the destination may change. */
#include "tests/check.h"
#include "tests/codegen/jit.h"

#include "codegen/cpu/copy_rows.h"

#include <sys/mman.h>
#include <unistd.h>

enum { BLANK = 7, MINUS = -3, ROOM = 4096, GUARDS = 64 };

typedef enum kind { FLOATS, HALVES, BYTES, SHIFTED, WIDENED, WIDENED_UNSIGNED, KINDS } kind;
/* EXISTS .. : of the arguments below, which are constants. */
typedef enum known { NOTHING, COUNT = 1 << 4, ALL = 31 } known;
enum { EXISTS, POSITIONS, STRIDE, FIRST, NUMBER, SIZES };

typedef void copier(uint8_t *dst, const uint8_t *src, int64_t exists, int64_t positions, int64_t stride, int64_t first,
                    int64_t n);

static cy_elements elements_of(cy_cg *cg, kind k) {
  cy_elements e = cy_elements_plain(cg, k == FLOATS ? 4 : k == HALVES ? 2 : 1);
  e.shifted = k == SHIFTED;
  if (k == BYTES || k == SHIFTED)
    e.blank = LLVMConstInt(cg->i8, BLANK, 0);
  if (k >= WIDENED) {
    e.to = 2;
    e.is_signed = k == WIDENED;
    e.minus = LLVMConstInt(cg->i16, (unsigned long long)MINUS, 1);
  }
  return e;
}

static copier *compile(jit *j, kind k, const int64_t size[SIZES], int64_t c, int64_t inc, known known) {
  cy_cg *cg = j->cg;
  char name[40];
  snprintf(name, sizeof name, "copier%d", j->serial++);
  cy_cg_module(cg, name);
  LLVMTypeRef params[] = {cg->ptr, cg->ptr, cg->i64, cg->i64, cg->i64, cg->i64, cg->i64};
  LLVMValueRef fn = cy_fn_begin(cg, name, cg->voidt, params, 7, 0), v[SIZES];
  for (unsigned i = 0; i < SIZES; i++)
    v[i] = known >> i & 1 ? cy_i64(cg, size[i]) : LLVMGetParam(fn, 2 + i);
  LLVMValueRef exists = cy_icmp(cg, LLVMIntNE, v[EXISTS], cy_i64(cg, 0));
  cy_elements e = elements_of(cg, k);
  cy_map_row row = {LLVMGetParam(fn, 1), exists, v[POSITIONS], v[STRIDE], c, inc};
  cy_copy_row(cg, &e, LLVMGetParam(fn, 0), &row, v[FIRST], v[NUMBER]);
  cy_fn_end(cg, NULL);
  return (copier *)(uintptr_t)jit_load(j, name);
}

/* What stands in scratch for the element at `at`, or for one that counts as zero. */
static void element(kind k, const uint8_t *at, uint8_t *to) {
  int16_t word = at ? (int16_t)((k == WIDENED ? (int8_t)*at : *at) - MINUS) : 0;
  size_t bytes = k == FLOATS ? 4 : k == HALVES ? 2 : 1;
  if (k >= WIDENED)
    memcpy(to, &word, 2);
  else if (at)
    memcpy(to, at, bytes);
  else
    memset(to, k == BYTES || k == SHIFTED ? BLANK : 0, bytes);
  if (at && k == SHIFTED)
    *to ^= 0x80;
}

static void check_row(jit *j, copier *run, kind k, const int64_t s[SIZES], int64_t c, int64_t inc, uint8_t *page_end) {
  static uint8_t found[ROOM + 2 * GUARDS], wanted[ROOM + 2 * GUARDS];
  int64_t from = k == FLOATS ? 4 : k == HALVES ? 2 : 1, to = k >= WIDENED ? 2 : from;
  uint8_t *src = page_end - ((s[POSITIONS] - 1) * s[STRIDE] + c) * from;
  memset(found, 0xa5, sizeof found);
  memset(wanted, 0xa5, sizeof wanted);
  for (uint8_t *p = src; p < page_end; p++)
    *p = (uint8_t)jit_random(j);
  for (int64_t i = 0; i < s[NUMBER] * c; i++) {
    int64_t at = s[FIRST] + i / c * inc;
    bool inside = s[EXISTS] && at >= 0 && at < s[POSITIONS];
    element(k, inside ? src + (at * s[STRIDE] + i % c) * from : NULL, wanted + GUARDS + i * to);
  }
  run(found + GUARDS, src, s[EXISTS], s[POSITIONS], s[STRIDE], s[FIRST], s[NUMBER]);
  if (memcmp(found, wanted, sizeof found))
    CHECK_FAIL("kind %d, %lld of %lld positions from %lld on, %lld elements each, %lld apart, every %lld., exists %lld",
               (int)k, (long long)s[NUMBER], (long long)s[POSITIONS], (long long)s[FIRST], (long long)c,
               (long long)s[STRIDE], (long long)inc, (long long)s[EXISTS]);
}

/* A function for one case, which runs with other sizes, too, as far as these are no constants. */
static void check_case(jit *j, kind k, int64_t c, int64_t inc, known known, int64_t n, uint8_t *page_end) {
  static const int64_t firsts[] = {0, -1, -7, 2, 60}, counts[] = {1, 3, 17, 70};
  int64_t base[SIZES] = {1, 33, known == ALL && inc == 1 ? c : c + (int64_t)(jit_random(j) % 2) * 3, -2, n};
  copier *run = compile(j, k, base, c, inc, known);
  check_row(j, run, k, base, c, inc, page_end);
  for (int i = 0; known != ALL && i < 40; i++) {
    int64_t s[SIZES] = {i % 8 != 7, 1 + (int64_t)(jit_random(j) % 40), base[STRIDE], firsts[i % 5], n};
    s[NUMBER] = known == COUNT ? n : counts[i % 4];
    check_row(j, run, k, s, c, inc, page_end);
  }
}

static void check_cpu(const char *cpu) {
  static const int64_t channels[] = {1, 3, 8}, numbers[] = {1, 5, 90};
  static const known what[] = {NOTHING, COUNT, ALL};
  size_t page = (size_t)sysconf(_SC_PAGESIZE), room = cy_round_up(ROOM * 4, (int64_t)page);
  uint8_t *src = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK_REQUIRE(src != MAP_FAILED && !mprotect(src + room, page, PROT_NONE));
  jit *j = jit_create(cpu);
  for (kind k = FLOATS; k < KINDS; k++)
    for (int i = 0; i < CHECK_COUNT(channels); i++)
      for (int64_t inc = 1; inc <= 2; inc++)
        for (int w = 0; w < CHECK_COUNT(what); w++)
          for (int n = what[w] == NOTHING ? CHECK_COUNT(numbers) - 1 : 0; n < CHECK_COUNT(numbers); n++)
            check_case(j, k, channels[i], inc, what[w], numbers[n], src + room);
  jit_destroy(j);
  munmap(src, room + page);
}

static void test_native(void) { check_cpu("native"); }
static void test_narrow(void) { check_cpu("x86-64"); }

static const check_test tests[] = {{"rows with the CPU's vectors", test_native},
                                   {"rows with vectors of 128 bits", test_narrow}};

int main(int argc, char **argv) { return check_main(argc, argv, tests, CHECK_COUNT(tests)); }
