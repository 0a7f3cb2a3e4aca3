/* SPDX-License-Identifier: Apache-2.0 */
/* cpus.c - looks rows of machine.def up, or the nearest.
 *
 * In: the name of a CPU, or what this machine reports. Out: what code for it may use and what work takes on it. The same
 * list decides which instructions the generators choose (cy_cg_has), and is checked when a model is loaded. Of 64-bit
 * ARM's many extensions, LLVM is told of those listed here only, and of the CPU for the order of instructions.
 */
#include "emit.h"
#include "ir/ir.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void core_usual(cy_cpu_model *m) {
#define COLUMN(name, unit, usual, meaning) m->name = usual;
#include "machine.def"
}
#define V(column, number) m->column = number;
#define CORE(name, base, ...)                                                                                          \
  static void core_##name(cy_cpu_model *m) {                                                                           \
    core_##base(m);                                                                                                    \
    __VA_ARGS__                                                                                                        \
  }
#include "machine.def"
#undef V

/* See machine.def. */
typedef struct cpu_row {
  const char *name, *arch, *features;
  int64_t l1_kb, l2_kb;
  unsigned fmas;
  void (*core)(cy_cpu_model *m);
} cpu_row;

static const cpu_row cpus[] = {
#define CPU(name, arch, features, l1_kb, l2_kb, fmas, core) {name, arch, features, l1_kb, l2_kb, fmas, core_##core},
#include "machine.def"
};
enum { CPUS = sizeof cpus / sizeof cpus[0] };

/* The row of a name's first n bytes, on that architecture. */
static const cpu_row *row_of(const cy_arch *a, const char *name, size_t n) {
  for (size_t i = 0; i < CPUS; i++)
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
  for (size_t i = 0; i < CPUS; i++)
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

/* The words of a comma separated list, one after the other: where the next one of n bytes begins; NULL: there is none. */
static const char *next_word(const char **list, size_t *n) {
  const char *word = *list;
  *n = strcspn(word, ",");
  *list = word + *n + (word[*n] == ',');
  return *word ? word : NULL;
}

static bool lists(const char *list, const char *feature, size_t n) {
  size_t length;
  for (const char *word; (word = next_word(&list, &length));)
    if (length == n && strncmp(word, feature, n) == 0)
      return true;
  return false;
}

/* How many of `list` are not in `other`. */
static unsigned missing(const char *list, const char *other) {
  unsigned count = 0;
  size_t n;
  for (const char *word; (word = next_word(&list, &n));)
    count += n && !lists(other, word, n);
  return count;
}

static bool has_one(const char *list, const char *feature) { return lists(list, feature, strlen(feature)); }

unsigned cy_cpu_lanes(const char *features) {
  bool avx512 = has_one(features, "avx512f") && has_one(features, "avx512vl");
  return avx512 ? 16 : has_one(features, "avx2") ? 8 : 4;
}

static void fill(const cpu_row *row, cy_cpu_model *out) {
  row->core(out);
  out->fmas = row->fmas;
  out->l1_bytes = row->l1_kb << 10;
  out->l2_bytes = row->l2_kb << 10;
}

/* Features that one has and the other lacks; a cache of twice or half the size counts as two of them. */
static double distance(const cpu_row *row, const char *features, int64_t l1_bytes, int64_t l2_bytes) {
  double d = missing(row->features, features) + missing(features, row->features);
  if (l1_bytes > 0)
    d += 2 * fabs(log2((double)l1_bytes / (double)(row->l1_kb << 10)));
  return l2_bytes > 0 ? d + 2 * fabs(log2((double)l2_bytes / (double)(row->l2_kb << 10))) : d;
}

const char *cy_cpu_nearest(const char *isa, const char *features, unsigned W, int64_t l1_bytes, int64_t l2_bytes,
                           cy_cpu_model *out) {
  const cpu_row *best = NULL;
  double min = 0;
  for (size_t i = 0; i < CPUS; i++) {
    double d = distance(&cpus[i], features, l1_bytes, l2_bytes);
    if (strcmp(cpus[i].arch, isa) || cy_cpu_lanes(cpus[i].features) != W || (best && d >= min))
      continue;
    best = &cpus[i];
    min = d;
  }
  if (!best)
    cy_bug("machine.def has no CPU of %s with vectors of %u floats", isa, W);
  fill(best, out);
  if (l1_bytes > 0)
    out->l1_bytes = l1_bytes;
  if (l2_bytes > 0)
    out->l2_bytes = l2_bytes;
  return best->name;
}

const char *cy_cpu_model_of(const char *name, const char *features, unsigned W, cy_cpu_model *out) {
  const cpu_row *row;
  const cy_arch *arch = find(name, &row);
  if (arch && row && cy_cpu_lanes(row->features) == W) {
    fill(row, out);
    return row->name;
  }
  long l1 = sysconf(_SC_LEVEL1_DCACHE_SIZE), l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return cy_cpu_nearest((arch ? arch : cy_arch_here())->isa, features, W, l1, l2, out);
}

/* In a list of features that are on and off, "+a,-b": is `name` on? */
static bool is_on(const char *list, const char *name) {
  size_t n = strlen(name);
  for (const char *p = list; (p = strstr(p, name)); p += n)
    if (p > list && p[-1] == '+' && (p[n] == ',' || p[n] == 0))
      return true;
  return false;
}

/* Adds those of `features` to the list in `text` that are on and not yet there. */
static void add_those_on(char *text, const char *features, const char *on) {
  char name[64];
  size_t n;
  for (const char *word; (word = next_word(&features, &n));) {
    snprintf(name, sizeof name, "%.*s", (int)n, word);
    if (n && !has_one(text, name) && is_on(on, name))
      sprintf(text + strlen(text), "%s%s", *text ? "," : "", name);
  }
}

/* Of all that a machine may have, what some row lists: LLVM uses it by itself in code like ours, or generators do. */
char *cy_cpu_features_on(const char *list) {
  char *text = calloc(strlen(list) + 1, 1);
  if (!text)
    cy_no_memory();
  for (size_t i = 0; i < CPUS; i++)
    add_those_on(text, cpus[i].features, list);
  add_those_on(text, "fma4,xop,tbm", list); /* of CPUs without a row */
  return text;
}

bool cy_cg_has(const cy_cg *cg, const char *feature) {
  return has_one(cg->has, feature);
}
