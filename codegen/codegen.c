/* codegen.c - one compilation from program to file; the order of events, and nothing else.
 *
 *   prepare kernels -> lay out weights -> compile kernels (children) while writing weights -> scratch -> plan memory
 *   -> host program -> link -> header
 *
 * Whatever goes wrong: a diagnostic, temporaries removed, no output touched.
 */
#define _GNU_SOURCE
#include "codegen/work.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

cy_emit_kind cy_emit_kind_of(const char *name) {
  static const char *const names[CY_EMIT_KINDS] = {"so", "a", "o", "h", "ll", "asm", "cu", "ptx", "cubin"};
  const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name, *dot = strrchr(base, '.');
  const char *text = dot ? dot + 1 : base;
  for (int i = 0; i < CY_EMIT_KINDS; i++)
    if (strcmp(text, names[i]) == 0)
      return (cy_emit_kind)i;
  return dot && strcmp(text, "s") == 0 ? CY_EMIT_ASM : CY_EMIT_KINDS;
}

/* The prefix of all symbols: asked for, or the output's file name up to its first dot. */
static char *model_name(const cy_codegen_options *o) {
  const char *text = o->name;
  size_t n;
  if (text && *text) {
    n = strlen(text);
  } else {
    const char *slash = o->output ? strrchr(o->output, '/') : NULL;
    text = slash ? slash + 1 : o->output ? o->output : "model";
    n = strcspn(text, ".");
    if (n == 0 || strcmp(text, "-") == 0) {
      text = "model";
      n = 5;
    }
  }
  return cy_c_identifier(text, n < 100 ? n : 100);
}

/* Where the header goes: what was asked for, or the output with the ending .h. NULL: nowhere. The result is malloc'ed. */
static char *header_path(const cy_codegen_options *o) {
  bool library = o->emit == CY_EMIT_SO || o->emit == CY_EMIT_A || o->emit == CY_EMIT_O;
  char *path = NULL;
  if (o->header)
    return *o->header ? strdup(o->header) : NULL;
  if (o->emit == CY_EMIT_H)
    return strdup(o->output);
  if (!library)
    return NULL;
  const char *slash = strrchr(o->output, '/'), *dot = strrchr(slash ? slash : o->output, '.');
  int n = dot && dot > (slash ? slash + 1 : o->output) ? (int)(dot - o->output) : (int)strlen(o->output);
  if (asprintf(&path, "%.*s.h", n, o->output) < 0)
    abort();
  return path;
}

static uint32_t count_steps(const cy_step *s) {
  uint32_t n = 0;
  for (; s; s = s->next)
    n += 1 + count_steps(s->then_steps) + count_steps(s->else_steps);
  return n;
}

static void fill_stats(cy_work *b, cy_codegen_stats *st) {
  st->kernels = b->nplans;
  st->steps = count_steps(b->p->steps);
  for (uint32_t i = 0; i < b->p->nconstants; i++)
    st->constants += b->constant_used[i];
  st->weights_bytes = b->p->weights_bytes;
}

/* Kinds that show the code of a device, without the host program. */
static bool device_only(cy_emit_kind emit) {
  return emit == CY_EMIT_CU || emit == CY_EMIT_PTX || emit == CY_EMIT_CUBIN;
}

static int check_kind(cy_work *b) {
  if (!device_only(b->o->emit) || b->machine->target == &cy_target_cuda)
    return 0;
  cy_diag_add(b->diag, CY_ERROR, NULL, "cu, ptx and cubin are code of CUDA devices: target '%s' has ll and asm",
              b->machine->target->name);
  return -1;
}

static int build_objects(cy_work *b, cy_codegen_stats *st) {
  static const cy_code_kind kinds[CY_EMIT_KINDS] = {
      [CY_EMIT_LL] = CY_CODE_LL, [CY_EMIT_CU] = CY_CODE_LL,     [CY_EMIT_ASM] = CY_CODE_ASM,
      [CY_EMIT_PTX] = CY_CODE_ASM, [CY_EMIT_CUBIN] = CY_CODE_CUBIN};
  cy_code_kind kind = kinds[b->o->emit];
  bool text = kind != CY_CODE_OBJECT;
  cy_kernels_prepare(b);
  if (b->machine->target->warn)
    b->machine->target->warn(b->machine, b->plans, b->nplans, b->diag);
  cy_weights_layout(b);
  if (cy_shards_emit(b, kind, text ? NULL : cy_weights_write))
    return -1;
  cy_kernels_bind_scratch(b);
  st->arena_bytes = b->o->plan_memory(b->p);
  if (!device_only(b->o->emit) && cy_host_emit(b, kind))
    return -1;
  fill_stats(b, st);
  if (b->o->explain)
    cy_explain(b, b->o->explain);
  return 0;
}

/* Better said now than after minutes of compiling. */
static int check_output(cy_work *b) {
  if (strcmp(b->o->output, "-") == 0)
    return 0;
  const char *near = cy_temps_near(b->temps, b->o->output);
  FILE *f = fopen(near, "wb");
  if (!f) {
    cy_diag_add(b->diag, CY_ERROR, NULL, "cannot write '%s': %s", b->o->output, strerror(errno));
    return -1;
  }
  fclose(f);
  return 0;
}

/* The runtime's store is in host memory, which kernels of a device do not see. */
static int check_values(cy_work *b) {
  cy_val v = b->machine->target == &cy_target_cpu ? 0 : cy_graph_first_stored(b->g);
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
  if (check_kind(b) || check_values(b) || check_output(b))
    return -1;
  if (b->o->emit != CY_EMIT_H) {
    if (build_objects(b, st) || cy_link(b))
      return -1;
  }
  char *header = header_path(b->o);
  int rc = header ? cy_header_write(b, header) : 0;
  free(header);
  return rc;
}

static void build_deinit(cy_work *b) {
  for (uint32_t i = 0; i < b->nobjects; i++)
    free(b->objects[i]);
  free(b->objects);
  free(b->query_object);
  free(b->weights_file);
  free(b->constant_used);
  free(b->plans);
  free(b->scratch_sym);
  free(b->name);
  cy_temps_destroy(b->temps);
}

int cy_codegen(cy_program *p, const cy_codegen_options *o) {
  if (o->profile && o->machine->target != &cy_target_cpu) {
    cy_diag_add(o->diag, CY_ERROR, NULL, "option '--profile' expects a CPU as target, found '%s'", o->machine->text);
    return -1;
  }
  cy_work b = {.p = p, .g = p->g, .o = o, .machine = o->machine, .diag = o->diag};
  b.temps = cy_temps_create(o->diag);
  if (!b.temps)
    return -1;
  b.name = model_name(o);
  int rc = build(&b);
  build_deinit(&b);
  return rc;
}
