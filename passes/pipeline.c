/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.c - the passes in one table, and the runner that gives each of them timing, statistics, dumps and checks.
 *
 * In:  a graph and options. Out: the graph after the chosen passes, statistics.
 *
 * Read the table from top to bottom: that is the order. A pass states what it requires, establishes and breaks as
 * facts; why two passes stand in their order is said in `orders`. Both are checked before anything runs, so a row put
 * in the wrong place fails on every model, not on one in a thousand. To add a pass: a row here, a prototype in
 * pass_int.h, a file like TEMPLATE.c, goldens in tests/passes/NAME/.
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
static const char *const fact_names[] = {"swept", "unique", "folded", "placed", "fused"};

typedef struct row {
  const char *name;
  int (*run)(cy_pass *p);
  bool required; /* can't be disabled */
  int level;     /* least -O */
  unsigned needs, makes, breaks;
  const char *what;
} row;

#define EDITS                                                                                                          \
  (UNIQUE | FOLDED | PLACED | FUSED) /* what a pass that changes ops breaks; rewriting ones leave the graph swept */
static const row table[] = {
    {"sweep", cy_pass_sweep, true, 0, 0, SWEPT, 0, "remove what nobody uses"},
    {"half", cy_pass_half, false, 0, SWEPT, SWEPT, EDITS, "compute half-precision graphs in f32"},
    {"simplify", cy_pass_simplify, false, 1, SWEPT, SWEPT, EDITS, "local algebra on arithmetic and views"},
    {"fold_quantised", cy_pass_fold_quantised, false, 1, SWEPT, SWEPT, UNIQUE | PLACED | FUSED,
     "compute the constants that a graph quantises, and scales"},
    {"quantised", cy_pass_quantised, false, 1, SWEPT, SWEPT, EDITS, "compute quantised models in integers"},
    {"fold", cy_pass_fold, false, 1, SWEPT, SWEPT | FOLDED, UNIQUE | PLACED | FUSED,
     "compute what depends on constants only"},
    {"requantise", cy_pass_requantise, false, 1, SWEPT, SWEPT, UNIQUE | PLACED | FUSED,
     "again, biases and scales being constants now"},
    {"cse", cy_pass_cse, false, 1, SWEPT, SWEPT | UNIQUE, PLACED | FUSED, "make equal nodes and constants one"},
    {"recognise", cy_pass_recognise, false, 1, SWEPT, SWEPT, EDITS,
     "find normalisations and softmax that exporters spelled out"},
    {"attention", cy_pass_attention, false, 1, SWEPT, SWEPT, EDITS, "find attention that exporters spelled out"},
    {"attention_plain", cy_pass_attention_plain, true, 0, SWEPT, SWEPT, EDITS,
     "write attention as products and softmax where no kernel does it"},
    {"contractions", cy_pass_contractions, false, 1, SWEPT, SWEPT, EDITS,
     "shape matrix products into fewer, larger ones"},
    {"space_to_depth", cy_pass_space_to_depth, false, 1, SWEPT, SWEPT, EDITS, "convolve feature maps instead of their space-to-depth"},
    {"fold_affine", cy_pass_fold_affine, false, 1, SWEPT, SWEPT, EDITS, "move scales and shifts into weights"},
    {"simplify_late", cy_pass_simplify, false, 1, SWEPT, SWEPT, EDITS, "simplify again what the passes above left"},
    {"fold_late", cy_pass_fold, false, 1, SWEPT, SWEPT | FOLDED, UNIQUE | PLACED | FUSED,
     "fold the weights they changed"},
    {"cse_late", cy_pass_cse, false, 1, SWEPT, SWEPT | UNIQUE, PLACED | FUSED, "make equal again"},
    {"quantise", cy_pass_quantise, false, 1, SWEPT, SWEPT, EDITS,
     "insert quantize and dequantize into a float model, where asked"},
    {"quantised_late", cy_pass_quantised, false, 1, SWEPT, SWEPT, EDITS, "compute in integers what it quantised"},
    {"fold_rest", cy_pass_fold, false, 1, SWEPT, SWEPT | FOLDED, UNIQUE | PLACED | FUSED,
     "compute the integer weights that no integer kernel took"},
    {"requantise_late", cy_pass_requantise, false, 1, SWEPT, SWEPT, UNIQUE | PLACED | FUSED,
     "again, biases and scales being constants now"},
    {"weights", cy_pass_weights, false, 1, SWEPT, SWEPT, UNIQUE | PLACED | FUSED,
     "store weights of products in 8 or 4 bits, where asked"},
    {"to_half", cy_pass_to_half, false, 1, SWEPT, SWEPT, EDITS,
     "round operands of products to half precision, where asked"},
    {"tables", cy_pass_tables, false, 1, SWEPT, SWEPT, EDITS, "store large constants that are read as they are in less"},
    {"long_sums", cy_pass_long_sums, false, 1, SWEPT, SWEPT, EDITS, "reduce long rows in two steps"},
    {"resize_axes", cy_pass_resize_axes, false, 1, SWEPT, SWEPT, EDITS,
     "resize with antialias along one axis after the other"},
    {"layout", cy_pass_layout, false, 2, SWEPT, SWEPT | PLACED, FUSED,
     "channels innermost where convolutions want it, free transposes"},
    {"fuse", cy_pass_fuse, false, 1, SWEPT, FUSED, 0, "decide what is computed inside the kernels of its users"},
    {"template", cy_pass_template, false, 9, SWEPT, SWEPT, EDITS,
     "the example for new passes; only by --passes=template"},
};
enum { NROWS = sizeof table / sizeof table[0] };

static const struct {
  const char *first, *then, *why;
} orders[] = {
    {"sweep", "simplify", "dead users would look like second uses and block rules"},
    {"half", "simplify", "what an exporter's casts hide from the rules are casts between f32 and f32 then"},
    {"half", "fold", "cast weights are constants only when folded"},
    {"simplify", "quantised", "identities and casts between scales and their users hide them"},
    {"fold_quantised", "quantised", "weights that come in floats are no integers before"},
    {"quantised", "fold", "dequantised weights would be float constants"},
    {"fold", "requantise", "scales move into constants only"},
    {"simplify", "fold", "identities on constants are cheaper to drop than to compute"},
    {"simplify", "recognise",
     "patterns are stated in the canonical spelling only (constant operand second, x*x for pow 2)"},
    {"fold", "recognise", "epsilons and scales must be constants to be seen"},
    {"cse", "recognise", "x - mean spelled twice must be one value to be seen"},
    {"recognise", "attention", "softmax must be one op to be seen"},
    {"attention", "contractions", "q, k and v may be slices of one product then"},
    {"attention", "attention_plain", "what no kernel does is written out again"},
    {"recognise", "attention_plain", "what it writes is already in its canonical form"},
    {"attention_plain", "contractions", "its products may be merged, its scale folded"},
    {"cse", "contractions", "products share an input only when that is one value"},
    {"recognise", "fold_affine", "a scale behind a normalisation belongs to it, not to the next product"},
    {"contractions", "fold_affine", "scales fold into weights in their final shape"},
    {"fold", "space_to_depth", "weights must be constants"},
    {"space_to_depth", "fold_late", "weights in other places are a composition until computed"},
    {"fold_affine", "fold_late", "folded weights are products of constants until computed"},
    {"simplify_late", "fold_late", "see simplify, fold"},
    {"fold_late", "layout", "a constant has no layout to choose; a node on constants would get one"},
    {"cse_late", "layout", "equal nodes may get different layouts and then can't be one"},
    {"fold_late", "quantise", "weights must be constants, with normalisations in them, to get their scales"},
    {"cse_late", "quantise", "equal values would be observed and rounded twice"},
    {"quantise", "quantised_late", "it is what makes integer kernels of its conversions"},
    {"quantised_late", "fold_rest", "dequantised weights would be float constants"},
    {"fold_rest", "requantise_late", "scales move into constants only"},
    {"quantise", "layout", "conversions to and from integers take part in the choice of layouts"},
    {"requantise_late", "weights", "it makes f32 of constants that are still dequantised"},
    {"weights", "layout", "a transposed constant would have to be read as one"},
    {"fold_rest", "to_half", "constants would become f32 again"},
    {"to_half", "tables", "constants that products still read in f32 would be stored twice"},
    {"tables", "fuse", "what widens them belongs into the kernels of their readers"},
    {"simplify_late", "long_sums", "reductions of reductions would become one again"},
    {"quantised_late", "resize_axes", "a resize between conversions is one of integers, rounded once"},
    {"resize_axes", "layout", "only the step along the axis closest in memory gains from channels there"},
    {"to_half", "layout", "a transposed constant would have to be read as one"},
    {"layout", "fuse", "conversions are nodes, and fusion must see them"},
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
  for (int level = 0; level <= 9; level++) {
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

void cy_pass_count(cy_pass *p, const char *what, uint64_t n) {
  if (!n)
    return;
  cy_pass_stat *s = p->stat;
  uint32_t i = 0;
  while (i < s->ncounters && strcmp(s->counter[i].name, what))
    i++;
  if (i == CY_PASS_MAX_COUNTERS)
    return;
  if (i == s->ncounters) {
    s->counter[i].name = what;
    s->counter[i].count = 0;
    s->ncounters++;
  }
  s->counter[i].count += n;
}

uint32_t cy_pass_nodes(const cy_graph *g) {
  uint32_t n = 0;
  for (cy_block b = 1; b <= cy_block_count(g); b++)
    n += cy_block_of(g, b)->nnodes;
  return n;
}

const cy_node *cy_pass_walk(cy_pass *p, cy_block b, uint32_t *out_count) {
  const cy_block_info *block = cy_block_of(p->g, b);
  cy_node *nodes = CY_NEW_ARRAY(p->scratch, cy_node, block->nnodes + 1);
  if (block->nnodes)
    memcpy(nodes, block->nodes, block->nnodes * sizeof *nodes);
  *out_count = block->nnodes;
  return nodes;
}

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
    fprintf(out, "%-14s -O%d%s  %s\n", table[i].name, table[i].level, table[i].required ? " required" : "",
            table[i].what);
}
