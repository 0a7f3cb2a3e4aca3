/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.c - runs the passes of passes.def, and gives each of them timing, statistics, dumps and checks.
 *
 * In:  a graph and options. Out: the graph after the chosen passes, statistics.
 *
 * A pass states what it requires, establishes and breaks as facts; why two passes stand in their order is a row, too. Both
 * are checked before anything runs.
 */
#include "pass_int.h"
#include "passes/quantise/quantise.h"

#include "ir/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum {
  SWEPT = 1,  /* no node without users */
  UNIQUE = 2, /* no two equal nodes where one would do */
  FOLDED = 4, /* nothing is left that depends on constants only */
  PLACED = 8, /* layouts are chosen, conversions are nodes */
  FUSED = 16  /* `inlined` is decided */
};
enum { BY_NAME = 9 }; /* the level of what only --passes=NAME runs: there is no such -O */
static const char *const fact_names[] = {"swept", "unique", "folded", "placed", "fused"};

typedef struct row {
  const char *name;
  int (*run)(cy_pass *p);
  bool required; /* can't be disabled */
  int level;     /* least -O */
  unsigned needs, makes, breaks;
  const char *what;
} row;

/* What a pass that changes ops breaks; rewriting ones leave the graph swept. */
#define EDITS (UNIQUE | FOLDED | PLACED | FUSED)
static const row table[] = {
#define PASS(name, function, required, level, needs, makes, breaks, what)                                              \
  {#name, cy_pass_##function, required, level, needs, makes, breaks, what},
#include "passes.def"
};
enum { NROWS = sizeof table / sizeof table[0] };

static const struct {
  const char *first, *then, *why;
} orders[] = {
#define ORDER(first, then, why) {#first, #then, why},
#include "passes.def"
};

/* ---- checks at start-up ---- */

static const row *find_row(const char *name, size_t len) {
  for (int i = 0; i < NROWS; i++)
    if (strlen(table[i].name) == len && !memcmp(table[i].name, name, len))
      return &table[i];
  return NULL;
}

static const char *fact_name(unsigned fact) { return fact_names[__builtin_ctz(fact)]; }

static void check_table(void) {
  for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
    const row *a = find_row(orders[i].first, strlen(orders[i].first)),
              *b = find_row(orders[i].then, strlen(orders[i].then));
    if (!a || !b)
      cy_bug("order constraint names no pass: '%s' before '%s'", orders[i].first, orders[i].then);
    if (a >= b)
      cy_bug("pass '%s' must stand before '%s': %s", orders[i].first, orders[i].then, orders[i].why);
  }
  for (int level = 0; level <= BY_NAME; level++) {
    unsigned facts = 0;
    for (int i = 0; i < NROWS; i++) {
      if (table[i].level > level)
        continue;
      if (table[i].needs & ~facts)
        cy_bug("pass '%s' requires '%s', which nothing before it establishes at level %d", table[i].name,
               fact_name(table[i].needs & ~facts), level);
      facts = (facts & ~table[i].breaks) | table[i].makes;
    }
  }
}

/* ---- comma lists ---- */

/* Steps through "a,b,c": the next item, NULL at the end. */
static const char *next_item(const char **list, size_t *out_len) {
  if (!*list || !**list)
    return NULL;
  const char *item = *list;
  *out_len = strcspn(item, ",");
  *list = item[*out_len] ? item + *out_len + 1 : NULL;
  return item;
}

static bool in_list(const char *list, const char *name) {
  size_t len;
  for (const char *item; (item = next_item(&list, &len));)
    if (len == strlen(name) && !memcmp(item, name, len))
      return true;
  return false;
}

/* Every name of an option must be a pass; reports the first that is not. */
static int check_list(cy_graph *g, const char *option, const char *list) {
  size_t len;
  for (const char *item; (item = next_item(&list, &len));) {
    const row *r = find_row(item, len);
    if (!r) {
      cy_diag_add(cy_graph_diag(g), CY_ERROR, NULL,
                  "option '--%s': no pass is called '%.*s'; 'cytoc --passes=help' lists all", option, (int)len, item);
      cy_diag_blame(cy_graph_diag(g), CY_CAUSE_OPTION);
      return -1;
    }
    if (r->required && !strcmp(option, "disable")) {
      cy_diag_add(cy_graph_diag(g), CY_ERROR, NULL, "option '--disable': pass '%s' is required and can't be disabled",
                  r->name);
      cy_diag_blame(cy_graph_diag(g), CY_CAUSE_OPTION);
      return -1;
    }
  }
  return 0;
}

/* ---- dumps ---- */

typedef struct dumper {
  cy_graph *g;
  const cy_pass_options *o;
  char *last; /* text of the graph at the last dump */
  int number;
} dumper;

static char *graph_text(cy_graph *g) {
  char *text = NULL;
  size_t size = 0;
  FILE *f = open_memstream(&text, &size);
  if (!f)
    return NULL;
  cy_graph_print(g, f);
  if (fclose(f)) {
    free(text);
    return NULL;
  }
  return text;
}

static int write_file(cy_graph *g, const char *dir, const char *file, const char *text) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", dir ? dir : ".", file);
  FILE *f = fopen(path, "w");
  bool bad = !f || fputs(text, f) < 0;
  if (f && fclose(f))
    bad = true;
  if (!bad)
    return 0;
  cy_diag_add(cy_graph_diag(g), CY_ERROR, NULL, "cannot write dump '%s': %s", path, strerror(errno));
  cy_diag_blame(cy_graph_diag(g), CY_CAUSE_FILE);
  return -1;
}

static int dump(dumper *d, const char *pass) {
  d->number++;
  if (!d->o->dump || (strcmp(d->o->dump, "all") && pass[0] != '(' && !in_list(d->o->dump, pass)))
    return 0;
  char *text = graph_text(d->g);
  if (!text)
    return 0;
  char file[128];
  bool start = pass[0] == '(';
  snprintf(file, sizeof file, "%02d-%s.txt", d->number - 1, start ? "start" : pass);
  int rc = write_file(d->g, d->o->dump_dir, file, d->last && !strcmp(d->last, text) ? "(unchanged)\n" : text);
  free(d->last);
  d->last = text;
  return rc;
}

static void verify(cy_graph *g, const cy_pass_options *o, const char *pass) {
  char why[1024] = "";
  if (cy_graph_verify(g, why, sizeof why))
    return;
  char file[128];
  snprintf(file, sizeof file, "cytoc-bug-%s.txt", pass);
  char *text = graph_text(g);
  bool written = text && !write_file(g, o->dump_dir, file, text);
  free(text);
  cy_bug("after pass '%s': %s%s%s", pass, why, written ? "; the graph is in " : "", written ? file : "");
}

/* ---- the runner ---- */

static int run_row(const row *r, cy_graph *g, const cy_pass_options *o, cy_arena *scratch, cy_pass_stat *stat) {
  memset(stat, 0, sizeof *stat);
  stat->name = r->name;
  stat->nodes_before = cy_pass_nodes(g);
  cy_pass p = {.g = g, .options = o, .scratch = scratch, .name = r->name, .stat = stat};
  cy_bug_context = r->name;
  double start = cy_clock_ms();
  int rc = r->run(&p);
  stat->ms = cy_clock_ms() - start;
  cy_arena_reset(scratch);
  stat->nodes_after = cy_pass_nodes(g);
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  stat->peak_bytes = (uint64_t)usage.ru_maxrss * 1024;
  if (!rc && o->verify)
    verify(g, o, r->name);
  cy_bug_context = NULL;
  return rc;
}

/* Does row r stand in front of the one called `from`, if there is such? */
static bool is_before(const row *r, const char *from) { return from && r < find_row(from, strlen(from)); }

/* The rows to run, in order. Returns how many, -1 after a diagnostic. */
static int choose(cy_graph *g, const cy_pass_options *o, const row **out_rows) {
  if (check_list(g, "passes", o->only) || check_list(g, "stop-after", o->stop_after) ||
      check_list(g, "disable", o->disable) || (o->dump && strcmp(o->dump, "all") && check_list(g, "dump", o->dump)))
    return -1;
  int n = 0;
  if (o->only) {
    const char *list = o->only;
    size_t len;
    out_rows[n++] = &table[0]; /* every pass relies on a swept graph */
    for (const char *item; n < CY_PASS_MAX_RUNS && (item = next_item(&list, &len));)
      out_rows[n++] = find_row(item, len);
    return n;
  }
  for (int i = 0; i < NROWS; i++)
    if (table[i].level <= o->opt_level && !in_list(o->disable, table[i].name) && !is_before(&table[i], o->from)) {
      out_rows[n++] = &table[i];
      if (o->stop_after && !strcmp(o->stop_after, table[i].name))
        break;
    }
  return n;
}

/* The row in front of which something is to be learnt of the graph; NULL: none. */
static const row *learning_row(const cy_pass_options *o) {
  const char *name = o->learn && o->quant ? cy_quant_pass(o->quant->mode) : NULL;
  return name ? find_row(name, strlen(name)) : NULL;
}

int cy_passes_run(cy_graph *g, const cy_pass_options *o, cy_pass_stats *out) {
  check_table();
  const row *rows[CY_PASS_MAX_RUNS], *learning = learning_row(o);
  cy_pass_stats *stats = out ? out : malloc(sizeof *stats);
  cy_arena *scratch = cy_arena_create();
  dumper d = {.g = g, .o = o};
  int rc = stats ? 0 : -1, n = stats ? choose(g, o, rows) : -1;
  if (n < 0)
    rc = -1;
  if (stats)
    stats->nruns = 0;
  if (!rc && o->dump && o->dump_dir && mkdir(o->dump_dir, 0777) && errno != EEXIST) {
    cy_diag_add(cy_graph_diag(g), CY_ERROR, NULL, "cannot make dump directory '%s': %s", o->dump_dir, strerror(errno));
    cy_diag_blame(cy_graph_diag(g), CY_CAUSE_FILE);
    rc = -1;
  }
  if (!rc)
    rc = dump(&d, "(start)");
  for (int i = 0; i < n && !rc; i++) {
    if (rows[i] == learning) {
      learning = NULL;
      rc = o->learn(o->learn_ctx, g);
    }
    if (!rc)
      rc = run_row(rows[i], g, o, scratch, &stats->run[stats->nruns++]);
    if (!rc)
      rc = dump(&d, rows[i]->name);
  }
  free(d.last);
  cy_arena_destroy(scratch);
  if (!out)
    free(stats);
  return rc;
}

/* ---- reports ---- */

void cy_pass_stats_print(const cy_pass_stats *s, FILE *out) {
  fprintf(out, "%-14s %9s %14s %10s\n", "pass", "ms", "nodes", "peak MB");
  for (uint32_t i = 0; i < s->nruns; i++) {
    const cy_pass_stat *r = &s->run[i];
    fprintf(out, "%-14s %9.2f %6u ->%5u %10.1f", r->name, r->ms, r->nodes_before, r->nodes_after,
            (double)r->peak_bytes / 1e6);
    for (uint32_t k = 0; k < r->ncounters; k++)
      fprintf(out, "%s%s %llu", k ? ", " : "  ", r->counter[k].name, (unsigned long long)r->counter[k].count);
    fputc('\n', out);
  }
}

void cy_passes_list(FILE *out) {
  for (int i = 0; i < NROWS; i++)
    if (table[i].level < BY_NAME)
      fprintf(out, "%-15s -O%d%-9s  %s\n", table[i].name, table[i].level, table[i].required ? " required" : "",
              table[i].what);
}
