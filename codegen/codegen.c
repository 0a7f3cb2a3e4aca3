/* SPDX-License-Identifier: Apache-2.0 */
/* codegen.c - one compilation from program to file; the order of events, and nothing else.
 *
 *   prepare kernels -> lay out weights -> compile kernels (children) while writing weights -> scratch -> plan memory
 *   -> host program -> link -> header
 *
 * Whatever goes wrong: a diagnostic, temporaries removed, no output touched.
 */
#define _GNU_SOURCE
#include "codegen/work.h"

#include <stdlib.h>
#include <string.h>

enum { SMALL_SIZE = 8 };

/* The prefix of all symbols: asked for, or the output's file name up to its first dot. */
static char *model_name(const cy_codegen_options *o) {
  bool named = o->name && *o->name;
  const char *text = named ? o->name : cy_path_base(o->output);
  size_t n = named ? strlen(text) : strcspn(text, ".");
  if (n == 0 || (!named && strcmp(text, "-") == 0))
    return cy_c_identifier("model", strlen("model"));
  return cy_c_identifier(text, n < 100 ? n : 100);
}

/* Where the header goes: what was asked for, or the output with the ending .h; malloc'ed. NULL: nowhere, as beside
 * /dev/null. */
static char *header_path(const cy_work *b) {
  const cy_codegen_options *o = b->o;
  if (o->header)
    return *o->header ? strdup(o->header) : NULL;
  switch (cy_emit_class_of(b)) {
  case CY_EMIT_CLASS_HEADER:
    return strdup(o->output);
  case CY_EMIT_CLASS_LIBRARY:
    return cy_path_is_device(o->output) ? NULL : cy_path_with_ending(o->output, "h");
  default:
    return NULL;
  }
}

static void count_step(void *count, cy_step *s) {
  (void)s;
  ++*(uint32_t *)count;
}

static void fill_stats(cy_work *b, cy_codegen_stats *st) {
  st->kernels = b->nplans;
  cy_steps_visit(b->p->steps, count_step, &st->steps);
  for (uint32_t i = 0; i < b->p->nconstants; i++)
    st->constants += b->constant_used[i];
  st->weights_bytes = b->p->weights_bytes;
  st->compiled_by = b->compiled_by;
  cy_stored_often_find(b, st);
}

static int check_kind(cy_work *b) {
  cy_emit_kind shared = cy_emit_kind_shared(b->machine);
  if ((b->o->emit == CY_EMIT_SO || b->o->emit == CY_EMIT_DLL) && b->o->emit != shared) {
    cy_diag_add(b->diag, CY_ERROR, NULL, "a shared library for target '%s' is a .%s, found .%s%s", b->machine->text,
                cy_emit_kind_name(shared), cy_emit_kind_name(b->o->emit),
                shared == CY_EMIT_SO ? "; DLLs are for Windows: --target=windows" : "");
    cy_diag_blame(b->diag, CY_CAUSE_OPTION);
    return -1;
  }
  if (cy_emit_class_of(b) != CY_EMIT_CLASS_DEVICE || b->machine->caps.device)
    return 0;
  cy_diag_add(b->diag, CY_ERROR, NULL, "cu, ptx and cubin are code of CUDA devices: target '%s' has ll and asm",
              b->machine->target->name);
  cy_diag_blame(b->diag, CY_CAUSE_OPTION);
  return -1;
}

/* Is less time lost when the model runs, by code that takes some times as long, than LLVM takes for better code? Kernels
 * are counted once, however often loops launch them. What only the run tells counts as a small size: what is large in
 * networks are sizes of weights, which are known, and most of the kernels of such sizes compute other sizes. */
static bool little_to_do(const cy_work *b) {
  const cy_host_costs *costs = &b->machine->caps.host;
  const int64_t max = 20 * costs->direct;
  int64_t sum = 0, *syms = calloc(cy_sym_count(b->g) + 1, sizeof *syms);
  if (!syms)
    cy_no_memory();
  for (uint32_t s = 1; s <= cy_sym_count(b->g); s++)
    syms[s] = s == b->p->workers ? 1 : SMALL_SIZE;
  for (uint32_t i = 0; i < b->nplans && sum <= max; i++) {
    int64_t work = cy_dim_eval(b->g, cy_kernel_work(costs, b->g, b->plans[i].kernel), syms);
    sum += work < 0 || work > max ? max + 1 : work;
  }
  free(syms);
  return sum <= max;
}

static uint32_t launches_of(const cy_step *s, const cy_kernel *k) {
  uint32_t n = 0;
  for (; s; s = s->next)
    n += (s->kind == CY_STEP_LAUNCH && s->kernel == k) + launches_of(s->then_steps, k) + launches_of(s->else_steps, k);
  return n;
}

static void visit_layers(const cy_work *b) {
  for (uint32_t i = 0; b->o->visit && i < b->nplans; i++)
    if (b->plans[i].candidates)
      b->o->visit(b->o->visit_ctx, b->plans[i].candidates, launches_of(b->p->steps, b->plans[i].kernel));
}

static int build_objects(cy_work *b, cy_codegen_stats *st) {
  cy_code_kind code = cy_emit_code_of(b);
  bool library = cy_emit_class_of(b) == CY_EMIT_CLASS_LIBRARY;
  cy_kernels_prepare(b);
  cy_stored_once(b);
  cy_kernels_constants(b);
  visit_layers(b);
  if (b->o->plan_only)
    return 0;
  if (b->machine->target->warn)
    b->machine->target->warn(b->machine, b->plans, b->nplans, b->diag);
  b->fast_codegen = b->o->few_runs || (b->o->fast_codegen && little_to_do(b));
  cy_weights_layout(b);
  if (cy_shards_emit(b, code, library ? cy_weights_write : NULL))
    return -1;
  cy_kernels_bind_scratch(b);
  st->arena_bytes = b->o->plan_memory(b->p);
  if (cy_emit_class_of(b) != CY_EMIT_CLASS_DEVICE && cy_host_emit(b, code))
    return -1;
  fill_stats(b, st);
  if (b->o->explain)
    cy_explain(b, b->o->explain);
  if (b->o->explain_costs)
    cy_explain_costs(b, b->o->explain_costs);
  if (b->o->explain_memory)
    cy_explain_memory(b, b->o->explain_memory);
  if (b->o->explain_json)
    cy_explain_json(b, b->o->explain_json);
  return 0;
}

/* Better said now than after minutes of compiling. */
static int check_output(cy_work *b) {
  if (strcmp(b->o->output, "-") == 0)
    return 0;
  const char *near = cy_temps_near(b->temps, b->o->output);
  FILE *f = fopen(near, "wb");
  if (!f)
    return cy_cannot_write(b->diag, b->o->output);
  fclose(f);
  return 0;
}

/* The runtime's store is in host memory, which kernels of a device do not see. */
static int check_values(cy_work *b) {
  cy_val v = b->machine->caps.device ? cy_graph_first_stored(b->g) : 0;
  if (!v)
    return 0;
  const cy_value *value = cy_value_of(b->g, v);
  cy_diag_add(b->diag, CY_ERROR, NULL,
              "'%s' is %s: models with strings, sequences, maps or optional values cannot be compiled for target "
              "'%s'; compile for a CPU",
              value->name ? cy_str_text(b->g, value->name) : "a value",
              value->type.dtype == CY_STRING ? "a tensor of strings" : "a sequence, a map or an optional value",
              b->machine->target->name);
  return -1;
}

static int build(cy_work *b) {
  cy_codegen_stats none = {0}, *st = b->o->stats ? b->o->stats : &none;
  memset(st, 0, sizeof *st);
  if (check_kind(b) || check_values(b))
    return -1;
  if (b->o->plan_only)
    return build_objects(b, st);
  if (check_output(b))
    return -1;
  if (b->o->emit != CY_EMIT_H) {
    if (build_objects(b, st))
      return -1;
    cy_work_progress(b, "link", 0, 1);
    if (cy_link(b))
      return -1;
    cy_work_progress(b, "link", 1, 1);
  }
  char *header = header_path(b);
  int rc = header ? cy_header_write(b, header) : 0;
  free(header);
  return rc;
}

static void work_deinit(cy_work *b) {
  for (uint32_t i = 0; i < b->nobjects; i++)
    free(b->objects[i]);
  free(b->objects);
  free(b->weights_file);
  free(b->constant_used);
  free(b->plans);
  free(b->plan_of);
  free(b->scratch_sym);
  free(b->name);
  cy_temps_destroy(b->temps);
}

int cy_codegen(cy_program *p, const cy_codegen_options *o) {
  cy_work b = {.p = p, .g = p->g, .o = o, .machine = o->machine, .diag = o->diag};
  b.temps = cy_temps_create(o->diag);
  if (!b.temps)
    return -1;
  b.name = model_name(o);
  int rc = build(&b);
  work_deinit(&b);
  return rc;
}
