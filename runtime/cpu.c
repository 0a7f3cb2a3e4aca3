/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cpu.c - what the processor can do and how much of it this process may use.
 *
 * Features carry LLVM's names, which is what the compiler writes into cyrt_model.features. A feature counts only when
 * the operating system also saves its registers (XCR0), those of AMX if the process asks for it, as is done here. A
 * name that is not in the table counts as lacking: refusing to load is better than an illegal instruction in the middle
 * of a run.
 */
#include "cyrt.h"
#include "os/os.h"

#include <stdio.h>
#include <string.h>

/* ---- features ---- */

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

enum { EAX, EBX, ECX, EDX };
enum { SSE_STATE = 0x2, AVX_STATE = 0x6, AVX512_STATE = 0xe6, AMX_STATE = 0x60000 };

/* The name is part of the row: pointers in a library would each take a relocation. */
typedef struct feature_row {
  char name[19];
  uint8_t reg, bit, subleaf;
  uint32_t leaf, state; /* state: XCR0 bits needed */
} feature_row;

static const feature_row features_known[] = {
    {"x87", EDX, 0, 0, 1, 0},
    {"cx8", EDX, 8, 0, 1, 0},
    {"cmov", EDX, 15, 0, 1, 0},
    {"mmx", EDX, 23, 0, 1, 0},
    {"fxsr", EDX, 24, 0, 1, 0},
    {"sse", EDX, 25, 0, 1, 0},
    {"sse2", EDX, 26, 0, 1, 0},
    {"sse3", ECX, 0, 0, 1, 0},
    {"pclmul", ECX, 1, 0, 1, 0},
    {"ssse3", ECX, 9, 0, 1, 0},
    {"fma", ECX, 12, 0, 1, AVX_STATE},
    {"cx16", ECX, 13, 0, 1, 0},
    {"sse4.1", ECX, 19, 0, 1, 0},
    {"sse4.2", ECX, 20, 0, 1, 0},
    {"movbe", ECX, 22, 0, 1, 0},
    {"popcnt", ECX, 23, 0, 1, 0},
    {"aes", ECX, 25, 0, 1, 0},
    {"xsave", ECX, 27, 0, 1, SSE_STATE},
    {"avx", ECX, 28, 0, 1, AVX_STATE},
    {"f16c", ECX, 29, 0, 1, AVX_STATE},
    {"rdrnd", ECX, 30, 0, 1, 0},
    {"fsgsbase", EBX, 0, 0, 7, 0},
    {"bmi", EBX, 3, 0, 7, 0},
    {"avx2", EBX, 5, 0, 7, AVX_STATE},
    {"bmi2", EBX, 8, 0, 7, 0},
    {"invpcid", EBX, 10, 0, 7, 0},
    {"avx512f", EBX, 16, 0, 7, AVX512_STATE},
    {"avx512dq", EBX, 17, 0, 7, AVX512_STATE},
    {"rdseed", EBX, 18, 0, 7, 0},
    {"adx", EBX, 19, 0, 7, 0},
    {"avx512ifma", EBX, 21, 0, 7, AVX512_STATE},
    {"clflushopt", EBX, 23, 0, 7, 0},
    {"clwb", EBX, 24, 0, 7, 0},
    {"avx512cd", EBX, 28, 0, 7, AVX512_STATE},
    {"sha", EBX, 29, 0, 7, 0},
    {"avx512bw", EBX, 30, 0, 7, AVX512_STATE},
    {"avx512vl", EBX, 31, 0, 7, AVX512_STATE},
    {"avx512vbmi", ECX, 1, 0, 7, AVX512_STATE},
    {"pku", ECX, 4, 0, 7, 0},
    {"avx512vbmi2", ECX, 6, 0, 7, AVX512_STATE},
    {"shstk", ECX, 7, 0, 7, 0},
    {"gfni", ECX, 8, 0, 7, 0},
    {"vaes", ECX, 9, 0, 7, AVX_STATE},
    {"vpclmulqdq", ECX, 10, 0, 7, AVX_STATE},
    {"avx512vnni", ECX, 11, 0, 7, AVX512_STATE},
    {"avx512bitalg", ECX, 12, 0, 7, AVX512_STATE},
    {"avx512vpopcntdq", ECX, 14, 0, 7, AVX512_STATE},
    {"rdpid", ECX, 22, 0, 7, 0},
    {"movdiri", ECX, 27, 0, 7, 0},
    {"movdir64b", ECX, 28, 0, 7, 0},
    {"avx512vp2intersect", EDX, 8, 0, 7, AVX512_STATE},
    {"serialize", EDX, 14, 0, 7, 0},
    {"amx-bf16", EDX, 22, 0, 7, AMX_STATE},
    {"avx512fp16", EDX, 23, 0, 7, AVX512_STATE},
    {"amx-tile", EDX, 24, 0, 7, AMX_STATE},
    {"amx-int8", EDX, 25, 0, 7, AMX_STATE},
    {"sha512", EAX, 0, 1, 7, AVX_STATE},
    {"avxvnni", EAX, 4, 1, 7, AVX_STATE},
    {"avx512bf16", EAX, 5, 1, 7, AVX512_STATE},
    {"amx-fp16", EAX, 21, 1, 7, AMX_STATE},
    {"avxifma", EAX, 23, 1, 7, AVX_STATE},
    {"avxvnniint8", EDX, 4, 1, 7, AVX_STATE},
    {"avxneconvert", EDX, 5, 1, 7, AVX_STATE},
    {"avxvnniint16", EDX, 10, 1, 7, AVX_STATE},
    {"xsaveopt", EAX, 0, 1, 0xd, SSE_STATE},
    {"xsavec", EAX, 1, 1, 0xd, SSE_STATE},
    {"xsaves", EAX, 3, 1, 0xd, SSE_STATE},
    {"sahf", ECX, 0, 0, 0x80000001u, 0},
    {"lzcnt", ECX, 5, 0, 0x80000001u, 0},
    {"sse4a", ECX, 6, 0, 0x80000001u, 0},
    {"prfchw", ECX, 8, 0, 0x80000001u, 0},
    {"xop", ECX, 11, 0, 0x80000001u, AVX_STATE},
    {"fma4", ECX, 16, 0, 0x80000001u, AVX_STATE},
    {"tbm", ECX, 21, 0, 0x80000001u, 0},
    {"mwaitx", ECX, 29, 0, 0x80000001u, 0},
    {"64bit", EDX, 29, 0, 0x80000001u, 0},
    {"clzero", EBX, 0, 0, 0x80000008u, 0},
    {"wbnoinvd", EBX, 9, 0, 0x80000008u, 0},
};

static uint64_t os_saved_state(void) {
  uint32_t a, b, c, d, low, high;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1))
    return 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

static int feature_present(const char *name, size_t length) {
  for (size_t i = 0; i < sizeof features_known / sizeof features_known[0]; i++) {
    const feature_row *row = &features_known[i];
    uint32_t regs[4];
    if (strlen(row->name) != length || memcmp(row->name, name, length))
      continue;
    if (!__get_cpuid_count(row->leaf, row->subleaf, &regs[EAX], &regs[EBX], &regs[ECX], &regs[EDX]))
      return 0;
    return (regs[row->reg] >> row->bit & 1) && (os_saved_state() & row->state) == row->state &&
           (row->state != AMX_STATE || cyrt_os_amx_granted());
  }
  return 0;
}
#elif defined(__aarch64__)
#include <sys/auxv.h>

/* Bits of Linux's AT_HWCAP, and from 64 on of AT_HWCAP2 (arch/arm64/include/uapi/asm/hwcap.h). */
static const struct {
  char name[10];
  uint8_t bit;
} features_known[] = {{"neon", 1}, {"fullfp16", 10},  {"dotprod", 20},
                      {"i8mm", 64 + 13}, {"bf16", 64 + 14}};

static int feature_present(const char *name, size_t length) {
  for (size_t i = 0; i < sizeof features_known / sizeof features_known[0]; i++)
    if (strlen(features_known[i].name) == length && !memcmp(features_known[i].name, name, length))
      return getauxval(features_known[i].bit < 64 ? AT_HWCAP : AT_HWCAP2) >> (features_known[i].bit & 63) & 1;
  return 0;
}
#else
#error "what this architecture's CPUs have is not known: see feature_present()"
#endif

int cyrt_cpu_lacks(const char *features, char name[64]) {
  for (const char *at = features; at && *at;) {
    size_t length = strcspn(at, ",");
    const char *word = *at == '+' ? at + 1 : at; /* LLVM's own notation */
    size_t word_length = length - (size_t)(word - at);
    if (word_length && !feature_present(word, word_length)) {
      snprintf(name, 64, "%.*s", (int)(word_length < 63 ? word_length : 63), word);
      return 1;
    }
    at += length + (at[length] == ',');
  }
  return 0;
}

int32_t cyto_cpu_count(void) { return cyrt_os_cpus(); }
