/* SPDX-License-Identifier: Apache-2.0 */
/* explain.c - the table that --explain prints: what every kernel computes, how, and how fast it could be.
 *
 * In: a program whose kernels have their plans. Out: a row per distinct kernel in the order of first launch: how often
 * it is launched, algorithm, layout of its result, arithmetic, bytes, floor, and the ops fused into it, with the ONNX
 * node of the first launch; then the sum over all launches.
 *
 * The floor is the longer of arithmetic over the peak of one core and bytes over bandwidth. The clock is measured here,
 * the bandwidths are round figures; both are printed above the table. Devices have peaks of their own. The floors of
 * Winograd's and Strassen's algorithms count the multiplications they have left. Sizes that are known only at run time are
 * given values, printed too; a library that counts times (host_profile.c) is told which of them a floor hangs on.
 */
#define _GNU_SOURCE
#include "codegen/explain/explain_int.h"
#include "ir/clock.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT = 200, TYPICAL_SIZE = 64 };
typedef struct row {
  const cy_kernel_plan *plan;
  const cy_step *launch;
  uint32_t launches;
  cy_cost cost;
  double floor_cycles;
  bool by_bytes;
} row;

/* ---- sizes that are not known ---- */

/* The first dimension of an input is taken for the batch. */
static bool is_batch(cy_graph *g, cy_sym s) {
  const cy_port_info *ports;
  uint32_t n = cy_graph_inputs(g, &ports);
  for (uint32_t i = 0; i < n; i++) {
    const cy_type *t = &cy_value_of(g, ports[i].value)->type;
    if (t->rank && t->dim[0] == cy_dim_sym(g, s))
      return true;
  }
  return false;
}

int64_t cy_size_assumed(const cy_work *b, cy_sym s) {
  if (s == b->p->room)
    return 0;
  return s == b->p->workers || is_batch(b->g, s) ? 1 : TYPICAL_SIZE;
}

int64_t *cy_sizes_assumed(cy_work *b) {
  int64_t *syms = calloc(cy_sym_count(b->g) + 1, sizeof *syms);
  if (!syms)
    cy_no_memory();
  for (uint32_t s = 1; s <= cy_sym_count(b->g); s++)
    syms[s] = cy_size_assumed(b, s);
  return syms;
}

void cy_sizes_print(cy_work *b, const int64_t *syms, FILE *out) {
  cy_sym *inputs;
  uint32_t n = cy_input_symbols(b->g, &inputs);
  for (uint32_t i = 0; i < n; i++)
    fprintf(out, "%s%s=%lld", i ? ", " : "sizes assumed: ", cy_str_text(b->g, cy_sym_of(b->g, inputs[i])->name),
            (long long)syms[inputs[i]]);
  if (n)
    fputs(" (fix them by --dim)\n", out);
  bool by_data = false;
  for (cy_sym s = 1; s <= cy_sym_count(b->g); s++)
    by_data |= s != b->p->workers && cy_sym_of(b->g, s)->kind != CY_SYM_INPUT;
  if (by_data)
    fprintf(out, "sizes that depend on data are assumed to be %d\n", TYPICAL_SIZE);
}

/* ---- rows ---- */

typedef struct row_list {
  const cy_work *b;
  const int64_t *syms;
  row *rows;
  uint32_t n;
  uint8_t *by_sizes; /* [symbols] what a branch on it does: 0 is not known, 1 the first way, 2 the other one */
} row_list;

static void note_launch(row_list *l, const cy_step *s, bool runs) {
  uint32_t i = 0;
  while (i < l->n && l->rows[i].plan->kernel != s->kernel)
    i++;
  if (i == l->n)
    l->rows[l->n++] = (row){.plan = cy_kernels_plan(l->b, s->kernel), .launch = s};
  l->rows[i].launches += runs;
}

/* Branches by sizes go the way of the sizes assumed, of others both ways count. */
static void note_steps(row_list *l, const cy_step *s, bool runs) {
  for (; s; s = s->next) {
    int way = s->kind == CY_STEP_IF ? l->by_sizes[s->sym] : 0;
    if (s->kind == CY_STEP_LAUNCH)
      note_launch(l, s, runs);
    if (s->kind == CY_STEP_SHARED || s->kind == CY_STEP_ROOM) /* what would be copied counts */
      l->by_sizes[s->sym] = 2;
    if (s->kind == CY_STEP_SET)
      l->by_sizes[s->sym] = cy_dim_eval(l->b->g, s->limit, l->syms) ? 1 : 2;
    note_steps(l, s->then_steps, runs && way != 2);
    note_steps(l, s->else_steps, runs && way != 1);
  }
}

/* How many of the operations counted an algorithm does in the time of one in f32: by saving some, by doing two products
 * of 16 bits or four of 8 in a lane, or, AMX, 16 rows of them at half the rate. */
static double advantage(const char *algorithm) {
  static const struct {
    const char *name;
    double times;
  } known[] = {{"int8 winograd", 8},   /* F(4x4,3x3): 36 multiplications for 144, two of 16 bits in a lane */
               {"winograd f2x4x4", 6}, /* along three axes: 144 for 864 */
               {"winograd", 4},        {"strassen", 8.0 / 7}, {"int8 amx", 32}, {"bf16 amx", 16},
               {"int8 dot4", 4},       {"int8", 2},           {"bf16 dot2", 2}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strstr(algorithm, known[i].name))
      return known[i].times;
  return 1;
}

static double cycles_per_second(const cy_work *b) { return b->machine->target->peak ? 1e9 : cy_clock_rate(); }

cy_rates cy_explain_rates(const cy_work *b) {
  const cy_target_caps *c = &b->machine->caps;
  cy_rates r = {cycles_per_second(b), c->flops_per_cycle, c->cached_bytes, c->bytes_per_cycle_cached,
                c->bytes_per_cycle_memory};
  if (b->machine->target->peak) {
    cy_peak peak = b->machine->target->peak(b->machine, NULL);
    r = (cy_rates){1e9, peak.flops / 1e9, 0, peak.bytes / 1e9, peak.bytes / 1e9};
  }
  return r;
}

static void find_floor(const cy_work *b, row *r, const int64_t *syms) {
  r->cost = cy_kernel_cost(r->plan->kernel, syms);
  double bytes = r->cost.read_bytes + r->cost.write_bytes;
  if (b->machine->target->peak) {
    cy_peak peak = b->machine->target->peak(b->machine, r->plan);
    r->by_bytes = bytes / peak.bytes > r->cost.flops / peak.flops;
    r->floor_cycles = 1e9 * (r->by_bytes ? bytes / peak.bytes : r->cost.flops / peak.flops);
    return;
  }
  const cy_target_caps *c = &b->machine->caps;
  double work = r->cost.flops / advantage(r->plan->algorithm) / c->flops_per_cycle;
  double cached = bytes < c->cached_bytes ? bytes : c->cached_bytes;
  double moves = cached / c->bytes_per_cycle_cached + (bytes - cached) / c->bytes_per_cycle_memory;
  r->by_bytes = moves > work;
  r->floor_cycles = r->by_bytes ? moves : work;
}

typedef struct order {
  cy_node node;
  uint32_t place; /* in its block */
} order;

static int by_place(const void *a, const void *b) {
  const order *x = a, *y = b;
  return x->place != y->place ? (x->place < y->place ? -1 : 1) : 0;
}

/* The nodes of a launch in the order of data. */
static void sort_fused(cy_work *b, const row *r) {
  uint32_t n = r->launch->nfused;
  order *list = calloc(n + 1, sizeof *list);
  if (!list)
    cy_no_memory();
  for (uint32_t i = 0; i < n; i++) {
    list[i].node = r->launch->fused[i];
    const cy_block_info *block = cy_block_of(b->g, cy_node_of(b->g, list[i].node)->block);
    while (list[i].place < block->nnodes && block->nodes[list[i].place] != list[i].node)
      list[i].place++;
  }
  qsort(list, n, sizeof *list, by_place);
  for (uint32_t i = 0; i < n; i++)
    r->launch->fused[i] = list[i].node;
  free(list);
}

/* "conv mul sigmoid*2": neighbours of one op together. */
static void ops_text(cy_work *b, const row *r, char *text) {
  size_t n = 0;
  text[0] = 0;
  for (uint32_t i = 0, same; i < r->launch->nfused && n < TEXT; i += same) {
    uint16_t op = cy_node_of(b->g, r->launch->fused[i])->op;
    for (same = 1; i + same < r->launch->nfused && cy_node_of(b->g, r->launch->fused[i + same])->op == op; same++)
      ;
    n += (size_t)snprintf(text + n, TEXT - n, "%s%s", i ? " " : "", cy_op_of((cy_op)op)->name);
    if (same > 1 && n < TEXT)
      n += (size_t)snprintf(text + n, TEXT - n, "*%u", same);
  }
  if (!r->launch->nfused)
    snprintf(text, TEXT, "%s", cy_kernel_name(r->plan->kernel));
}

/* Of the last node's result. */
const char *cy_launch_layout(cy_work *b, const cy_step *launch, char text[CY_MAX_RANK + 1]) {
  if (!launch->nfused)
    return "-";
  const cy_node_info *node = cy_node_of(b->g, launch->fused[launch->nfused - 1]);
  const cy_value *v = cy_value_of(b->g, node->out[0]);
  const char *names = v->type.rank == 4 ? "nchw" : v->type.rank == 5 ? "ncdhw" : v->type.rank == 3 ? "ncw" : NULL;
  bool plain = true;
  for (int i = 0; i < v->type.rank; i++) {
    text[i] = names ? names[v->layout[i]] : (char)('0' + v->layout[i] % 10);
    plain = plain && v->layout[i] == i;
  }
  text[v->type.rank] = 0;
  return plain ? "rows" : text;
}

static const char *origin_text(cy_work *b, const row *r) {
  return r->launch->nfused ? cy_str_text(b->g, cy_node_of(b->g, r->launch->fused[0])->origin.name) : "";
}

static void print_row(cy_work *b, const row *r, double rate, const int64_t *syms, FILE *out) {
  const cy_target *target = b->machine->target;
  char occupancy[TEXT], ops[TEXT], layout[CY_MAX_RANK + 1], floor[32] = "-";
  if (b->machine->caps.flops_per_cycle > 0 || b->machine->target->peak)
    snprintf(floor, sizeof floor, "%.2f %s", r->floor_cycles / rate * 1e6, r->by_bytes ? "mem" : "fma");
  sort_fused(b, r);
  ops_text(b, r, ops);
  fprintf(out, "%-34s %4u  %-24s %-6s %10.3f %9.3f %12s  %s", r->plan->symbol, r->launches, r->plan->algorithm,
          cy_launch_layout(b, r->launch, layout), r->cost.flops / 1e6, (r->cost.read_bytes + r->cost.write_bytes) / 1e6,
          floor, ops);
  const char *origin = origin_text(b, r);
  fprintf(out, *origin ? "  from '%s'\n" : "%s\n", origin);
  if (target->occupancy && target->occupancy(b->machine, r->plan, syms, occupancy, sizeof occupancy))
    fprintf(out, "  %s\n", occupancy);
}

/* Would the floor be another one if symbol s were another number? */
static bool floor_hangs_on(const cy_work *b, const row *r, int64_t *syms, cy_sym s) {
  row other = *r;
  syms[s] += TYPICAL_SIZE;
  find_floor(b, &other, syms);
  syms[s] -= TYPICAL_SIZE;
  return other.cost.flops != r->cost.flops || other.cost.read_bytes != r->cost.read_bytes ||
         other.cost.write_bytes != r->cost.write_bytes;
}

cy_launch_facts cy_launch_explain(cy_work *b, const cy_step *launch, const cy_kernel_plan *plan) {
  char ops[TEXT];
  row r = {.plan = plan, .launch = launch};
  cy_arena *arena = cy_graph_arena(b->g);
  cy_launch_facts facts = {.assumed = CY_NEW_ARRAY(arena, cy_sym, cy_sym_count(b->g) + 1)};
  int64_t *syms = cy_sizes_assumed(b);
  find_floor(b, &r, syms);
  facts.floor = b->machine->caps.flops_per_cycle > 0 || b->machine->target->peak ? r.floor_cycles : 0;
  facts.by_bytes = r.by_bytes;
  facts.flops = r.cost.flops;
  facts.bytes = r.cost.read_bytes + r.cost.write_bytes;
  for (cy_sym s = 1; s <= cy_sym_count(b->g); s++)
    if (s != b->p->workers && floor_hangs_on(b, &r, syms, s))
      facts.assumed[facts.n_assumed++] = s;
  free(syms);
  sort_fused(b, &r);
  ops_text(b, &r, ops);
  facts.ops = cy_arena_printf(arena, "%s", ops);
  facts.node = origin_text(b, &r);
  return facts;
}

static void print_peak(const cy_work *b, double rate, FILE *out) {
  const cy_target_caps *c = &b->machine->caps;
  if (b->machine->target->peak) {
    cy_peak peak = b->machine->target->peak(b->machine, NULL);
    fprintf(out, "target %s; floors by the data sheet of %s: %.1f TFLOP/s in f32 (products of f16: more), %.0f GB/s\n",
            b->machine->text, peak.device, peak.flops / 1e12, peak.bytes / 1e9);
    return;
  }
  fprintf(out, "target %s, one core: %.2f GHz, %.0f flop a cycle; %.0f bytes a cycle up to %.0f MB, %.0f beyond\n",
          b->machine->text, rate / 1e9, c->flops_per_cycle, c->bytes_per_cycle_cached, c->cached_bytes / 1e6,
          c->bytes_per_cycle_memory);
}

/* Outputs that may be bound to the memory of inputs; the table counts the copies that this saves. */
static void print_shares(const cy_work *b, FILE *out) {
  const cy_port_info *inputs, *outputs;
  cy_graph_inputs(b->g, &inputs);
  cy_graph_outputs(b->g, &outputs);
  for (const cy_memory_share *s = b->p->shares; s < b->p->shares + b->p->nshares; s++)
    fprintf(out, "output '%s' may be written in the memory of input '%s'\n", cy_str_text(b->g, outputs[s->output].name),
            cy_str_text(b->g, inputs[s->input].name));
  for (const cy_memory_growth *s = b->p->growths; s < b->p->growths + b->p->ngrowths; s++)
    fprintf(out, "output '%s' may continue input '%s' in its memory, along axis %d\n",
            cy_str_text(b->g, outputs[s->output].name), cy_str_text(b->g, inputs[s->input].name), s->axis);
}

/* What a device without room for the weights does with them. */
static void print_weights(const cy_work *b, FILE *out) {
  const double bus = 25e9; /* bytes a second of pinned memory over PCIe 4, 16 lanes */
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < b->p->nconstants; i++)
    bytes += b->constant_used[i] ? b->p->constants[i].size : 0;
  if (b->machine->target->peak && bytes)
    fprintf(out,
            "weights: %.1f MB. A device with less free memory streams them from pinned memory of the host in each run, "
            "which takes %.0f us at least at %.0f GB/s\n",
            (double)bytes / 1e6, (double)bytes / bus * 1e6, bus / 1e9);
}

void cy_explain(cy_work *b, FILE *out) {
  double rate = cycles_per_second(b), flops = 0, bytes = 0, floor_s = 0;
  print_peak(b, rate, out);
  int64_t *syms = cy_sizes_assumed(b);
  cy_sizes_print(b, syms, out);
  row_list list = {b, syms, calloc(b->nplans + 1, sizeof(row)), 0, calloc(cy_sym_count(b->g) + 1, 1)};
  if (!list.rows || !list.by_sizes)
    cy_no_memory();
  note_steps(&list, b->p->steps, true);
  fprintf(out, "%-34s %4s  %-24s %-6s %10s %9s %12s  %s\n", "kernel", "runs", "algorithm", "layout", "MFLOP", "MB",
          "floor us", "ops fused");
  for (row *r = list.rows; r < list.rows + list.n; r++) {
    find_floor(b, r, syms);
    print_row(b, r, rate, syms, out);
    flops += r->launches * r->cost.flops;
    bytes += r->launches * (r->cost.read_bytes + r->cost.write_bytes);
    floor_s += r->launches * r->floor_cycles / rate;
  }
  fprintf(out, "%-34s %4s  %-24s %-6s %10.3f %9.3f %12.2f\n", "all launches", "", "", "", flops / 1e6, bytes / 1e6,
          floor_s * 1e6);
  print_shares(b, out);
  print_weights(b, out);
  free(list.rows);
  free(list.by_sizes);
  free(syms);
}

static void print_estimate(const cy_candidate *one, FILE *out) {
  if (cy_candidate_is_variant(one))
    fprintf(out, "%20s", "not estimated");
  else
    fprintf(out, "%12.1f kcycles", one->cycles / 1e3);
  if (one->margin >= CY_IF_ASKED)
    fprintf(out, "  by --tune or --choice\n");
  else
    fprintf(out, one->margin != 1 ? "  x %.2f to be chosen\n" : "\n", one->margin);
}

/* A line for the layer, one for each candidate: the chosen one is marked and has its plan in the next line, one that does not
 * apply is in parentheses. */
static void print_candidates(cy_work *b, const cy_kernel_plan *plan, FILE *out) {
  const cy_candidates *c = plan->candidates;
  const row r = {.plan = plan, .launch = plan->launch};
  const char *node = plan->launch ? origin_text(b, &r) : "";
  fprintf(out, *node ? "%s  %s  from '%s'\n" : "%s  %s\n", c->layer, plan->symbol, node);
  for (int i = 0; i < c->n; i++) {
    const cy_candidate *one = &c->of[i];
    char name[32];
    snprintf(name, sizeof name, one->applies ? "%s" : "(%s)", one->name);
    fprintf(out, "  %c %-24s ", i == c->chosen ? '*' : ' ', name);
    print_estimate(one, out);
    if (i == c->chosen && plan->blocks)
      fprintf(out, "      %s\n", plan->blocks);
  }
}

void cy_explain_costs(cy_work *b, FILE *out) {
  uint32_t layers = 0;
  for (uint32_t i = 0; i < b->nplans; i++)
    if (b->plans[i].candidates) {
      print_candidates(b, &b->plans[i], out);
      layers++;
    }
  if (b->machine->caps.device)
    fprintf(out, "target '%s' has no candidates: sizes, and how many blocks they make, decide on tiles; --explain shows which\n",
            b->machine->text);
  else if (!layers)
    fprintf(out, "no layer has candidates: nothing is multiplied but by plain loops\n");
}
