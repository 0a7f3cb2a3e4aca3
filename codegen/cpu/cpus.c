/* SPDX-License-Identifier: Apache-2.0 */
/* cpus.c - looks the rows of machine.def up.
 *
 * In: the name of a CPU, or what this machine reports. Out: what code for it may use and what work takes on it. The same
 * list decides which instructions the generators choose (cy_cg_has), and is checked when a model is loaded. Of 64-bit
 * ARM's many extensions, LLVM is told of those listed here only, and of the CPU for the order of instructions.
 */
#include "emit.h"
#include "ir/ir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CORE(name, ...) static const cy_cpu_rates name = {__VA_ARGS__};
#include "machine.def"

/* See machine.def. */
typedef struct cpu_row {
  const char *name, *arch, *features;
  int64_t l2_kb;
  unsigned fmas;
  const cy_cpu_rates *rates;
} cpu_row;

static const cpu_row cpus[] = {
#define CPU(name, arch, features, l2_kb, fmas, core) {name, arch, features, l2_kb, fmas, &core},
#include "machine.def"
};

/* Of all that a machine may have, the features that LLVM uses by itself in code like ours, and those that generators
 * use. */
static const char *const used[] = {"cx16",       "popcnt",      "sahf",       "sse3",         "ssse3",
                                   "sse4.1",     "sse4.2",      "avx",        "avx2",         "bmi",
                                   "bmi2",       "f16c",        "fma",        "lzcnt",        "movbe",
                                   "xsave",      "adx",         "gfni",       "avxvnni",      "avx512f",
                                   "avx512bw",   "avx512cd",    "avx512dq",   "avx512vl",     "avx512vnni",
                                   "avx512vbmi", "avx512vbmi2", "avx512ifma", "avx512bitalg", "avx512vpopcntdq",
                                   "avx512bf16", "avx512fp16",  "amx-tile",   "amx-int8",     "amx-bf16",
                                   "fma4",       "xop",         "tbm",        "neon",         "fullfp16",
                                   "dotprod",    "i8mm",        "bf16"};

/* The row of a name's first n bytes, on that architecture. */
static const cpu_row *row_of(const cy_arch *a, const char *name, size_t n) {
  for (size_t i = 0; i < sizeof cpus / sizeof cpus[0]; i++)
    if (strlen(cpus[i].name) == n && strncmp(cpus[i].name, name, n) == 0 && strcmp(cpus[i].arch, a->isa) == 0)
      return &cpus[i];
  return NULL;
}

/* A name is a CPU's, or "native", and the system's suffix. NULL: it is neither; *out_row is NULL: "native". */
static const cy_arch *find(const char *name, const cpu_row **out_row) {
  for (const cy_arch *const *a = cy_arches; *a; a++) {
    size_t all = strlen(name), n = all - strlen((*a)->suffix);
    if (n > all || strcmp(name + n, (*a)->suffix))
      continue;
    bool native = n == strlen("native") && strncmp(name, "native", n) == 0;
    if ((*out_row = row_of(*a, name, n)) || (native && strcmp((*a)->isa, cy_arch_here()->isa) == 0))
      return *a;
  }
  return NULL;
}

void cy_cpu_try_names(cy_nearest *nearest) {
  for (size_t i = 0; i < sizeof cpus / sizeof cpus[0]; i++)
    cy_nearest_try(nearest, cpus[i].name, strlen(cpus[i].name));
  static const char *const words[] = {"native", "windows", "x86_64-linux-gnu", "aarch64-linux-gnu", "x86_64-windows"};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    cy_nearest_try(nearest, words[i], strlen(words[i]));
}

const cy_arch *cy_cpu_arch(const char *name) {
  const cpu_row *row;
  return find(name, &row);
}

const char *cy_cpu_base(const char *name) {
  const cpu_row *row;
  return find(name, &row) && row ? row->name : NULL;
}

const char *cy_cpu_features(const char *name) {
  const cpu_row *row;
  return find(name, &row) && row ? row->features : NULL;
}

int64_t cy_cpu_l2_bytes(const char *name, bool avx512) {
  const cpu_row *row;
  return find(name, &row) && row && row->l2_kb ? row->l2_kb << 10 : avx512 ? 1 << 20 : 512 << 10;
}

unsigned cy_cpu_fmas(const char *name) {
  const cpu_row *row;
  return find(name, &row) && row ? row->fmas : 2;
}

const cy_cpu_rates *cy_cpu_rates_of(const char *name, bool avx512) {
  const cpu_row *row;
  return !avx512 ? &vectors_of_8 : find(name, &row) && row ? row->rates : &vectors_of_16;
}

/* In a list of features that are on and off, "+a,-b": is `name` on? */
static bool is_on(const char *list, const char *name) {
  size_t n = strlen(name);
  for (const char *p = list; (p = strstr(p, name)); p += n)
    if (p > list && p[-1] == '+' && (p[n] == ',' || p[n] == 0))
      return true;
  return false;
}

char *cy_cpu_features_on(const char *list) {
  size_t room = 1, n = 0;
  for (size_t i = 0; i < sizeof used / sizeof used[0]; i++)
    room += strlen(used[i]) + 1;
  char *text = calloc(room, 1);
  if (!text)
    cy_no_memory();
  for (size_t i = 0; i < sizeof used / sizeof used[0]; i++)
    if (is_on(list, used[i]))
      n += (size_t)snprintf(text + n, room - n, "%s%s", n ? "," : "", used[i]);
  return text;
}

bool cy_cg_has(const cy_cg *cg, const char *feature) {
  size_t n = strlen(feature);
  for (const char *p = cg->has; *p; p += *p == ',') {
    size_t length = strcspn(p, ",");
    if (length == n && strncmp(p, feature, n) == 0)
      return true;
    p += length;
  }
  return false;
}
