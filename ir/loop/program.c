/* SPDX-License-Identifier: Apache-2.0 */
/* program.c - the program of host steps as a container: buffers, constants, distinct kernels; text and checking.
 *
 * In: what lowering adds. Out: the structure that memory planning completes and every target's host emitter walks.
 * Kernels that are equal but for their name are kept once; constants that are the same value in the same layout too. All
 * of it lives in the graph's arena. Running a program on the oracle is in program_run.c.
 */
#include "loop_int.h"

#include <stdarg.h>
#include <string.h>

cy_program *cy_program_create(cy_graph *g) {
  cy_program *p = CY_NEW(cy_graph_arena(g), cy_program);
  p->g = g;
  p->workers = cy_sym_new(g, "workers", CY_SYM_FREE);
  cy_sym_of(g, p->workers)->min = 1;
  return p;
}

void cy_steps_visit(cy_step *s, void (*visit)(void *ctx, cy_step *s), void *ctx) {
  for (; s; s = s->next) {
    visit(ctx, s);
    cy_steps_visit(s->then_steps, visit, ctx);
    cy_steps_visit(s->else_steps, visit, ctx);
  }
}

uint32_t cy_program_add_buffer(cy_program *p, cy_buffer_kind kind, uint32_t index, cy_dim bytes) {
  p->buffers = cy_arena_grow(cy_graph_arena(p->g), p->buffers, p->nbuffers, &p->buffers_cap, sizeof *p->buffers);
  p->buffers[p->nbuffers] = (cy_buffer){.kind = kind, .index = index, .bytes = bytes, .first = -1, .last = -1};
  return p->nbuffers++;
}

uint32_t cy_program_add_constant(cy_program *p, cy_val value, uint64_t size, const char *key,
                                 cy_constant_write *write, const void *layout, uint32_t pieces) {
  for (uint32_t i = 0; i < p->nconstants; i++)
    if (p->constants[i].value == value && strcmp(p->constants[i].key, key) == 0)
      return i;
  p->constants =
      cy_arena_grow(cy_graph_arena(p->g), p->constants, p->nconstants, &p->constants_cap, sizeof *p->constants);
  p->constants[p->nconstants] = (cy_constant){.value = value,
                                              .size = size,
                                              .key = cy_arena_printf(cy_graph_arena(p->g), "%s", key),
                                              .write = write,
                                              .layout = layout,
                                              .pieces = pieces};
  return p->nconstants++;
}

cy_kernel *cy_program_intern_kernel(cy_program *p, cy_kernel *k) {
  k->hash = cy_kernel_hash(k) | 1;
  for (uint32_t i = 0; i < p->nkernels; i++)
    if (p->kernels[i]->hash == k->hash && cy_kernel_equal(p->kernels[i], k))
      return p->kernels[i];
  p->kernels = cy_arena_grow(cy_graph_arena(p->g), p->kernels, p->nkernels, &p->kernels_cap, sizeof *p->kernels);
  p->kernels[p->nkernels++] = k;
  return k;
}

/* ---- text ---- */

static const char *dim_text(cy_program *p, cy_dim d) { return d ? cy_dim_text(p->g, d) : "-"; }

static void print_bind(cy_program *p, FILE *out, const cy_bind *b) {
  fprintf(out, "b%u", b->buffer);
  if (b->offset && !cy_dim_is(p->g, b->offset, 0))
    fprintf(out, "+%s", cy_dim_text(p->g, b->offset));
}

static void print_tensors(cy_program *p, FILE *out, const cy_call_tensor *t, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    fputs(i ? ", " : "", out);
    print_bind(p, out, &t[i].at);
    fprintf(out, ": %s", cy_type_text(p->g, &t[i].type));
  }
}

static const char *sym_text(cy_program *p, cy_sym s) { return s ? cy_str_text(p->g, cy_sym_of(p->g, s)->name) : "-"; }

static void print_steps(cy_program *p, FILE *out, const cy_step *s, int depth);

static void print_step(cy_program *p, FILE *out, const cy_step *s, int depth) {
  fprintf(out, "%*s", depth * 2, "");
  switch (s->kind) {
  case CY_STEP_LAUNCH:
    fprintf(out, "launch %s(", cy_kernel_name(s->kernel));
    for (uint32_t i = 0; i < s->nbind; i++) {
      fputs(i ? ", " : "", out);
      print_bind(p, out, &s->bind[i]);
    }
    fputs(")\n", out);
    return;
  case CY_STEP_CALL:
    fprintf(out, "call %s(", s->call);
    print_tensors(p, out, s->in, s->nin);
    fputs(") -> ", out);
    print_tensors(p, out, s->out, s->nout);
    fputc('\n', out);
    return;
  case CY_STEP_READ:
  case CY_STEP_ALLOC:
    fprintf(out, s->kind == CY_STEP_READ ? "read %s = " : "alloc ", sym_text(p, s->sym));
    print_bind(p, out, s->bind);
    if (s->kind == CY_STEP_READ)
      fprintf(out, ": %s", cy_dtype_of(s->dtype)->name);
    fputc('\n', out);
    return;
  case CY_STEP_OUTPUT:
    fprintf(out, "output %u\n", s->index);
    return;
  case CY_STEP_SET:
    fprintf(out, "set %s = %s\n", sym_text(p, s->sym), dim_text(p, s->limit));
    return;
  case CY_STEP_SWAP:
    fputs("swap ", out);
    print_bind(p, out, &s->bind[0]);
    fputs(", ", out);
    print_bind(p, out, &s->bind[1]);
    fputc('\n', out);
    return;
  case CY_STEP_SHARED:
    fprintf(out, "shared %s = output %u, %s bytes, ", sym_text(p, s->sym), s->index, dim_text(p, s->limit));
    print_bind(p, out, s->bind);
    fputc('\n', out);
    return;
  case CY_STEP_ROOM:
    fprintf(out, "room %s\n", sym_text(p, s->sym));
    return;
  case CY_STEP_IF:
    fprintf(out, "if %s:\n", sym_text(p, s->sym));
    break;
  case CY_STEP_LOOP:
    fprintf(out, "loop %s < %s while %s:\n", sym_text(p, s->sym), dim_text(p, s->limit),
            s->cond ? sym_text(p, s->cond) : "true");
    break;
  }
  print_steps(p, out, s->then_steps, depth + 1);
  if (s->else_steps) {
    fprintf(out, "%*selse:\n", depth * 2, "");
    print_steps(p, out, s->else_steps, depth + 1);
  }
}

static void print_steps(cy_program *p, FILE *out, const cy_step *s, int depth) {
  for (; s; s = s->next)
    print_step(p, out, s, depth);
}

void cy_program_print(cy_program *p, FILE *out) {
  static const char *const kinds[] = {"arena", "input", "output", "const", "dynamic", "checks"};
  fprintf(out, "program %s: arena %s bytes, weights %llu bytes, workers {%s}\n", cy_graph_name(p->g),
          dim_text(p, p->arena_bytes), (unsigned long long)p->weights_bytes, sym_text(p, p->workers));
  for (uint32_t i = 0; i < p->nbuffers; i++) {
    const cy_buffer *b = &p->buffers[i];
    fprintf(out, "b%u: %s %u, %s bytes", i, kinds[b->kind], b->index, dim_text(p, b->bytes));
    if (b->kind == CY_BUF_ARENA)
      fprintf(out, " at %s, steps %d .. %d", dim_text(p, b->offset), b->first, b->last);
    fputc('\n', out);
  }
  for (uint32_t i = 0; i < p->nconstants; i++) {
    const cy_constant *c = &p->constants[i];
    fprintf(out, "constant %u: value %%%u, %llu bytes%s%s\n", i, c->value, (unsigned long long)c->size,
            *c->key ? ", " : "", c->key);
  }
  for (uint32_t i = 0; i < p->nkernels; i++)
    cy_kernel_print(p->kernels[i], out);
  print_steps(p, out, p->steps, 0);
}

/* ---- checking ---- */

static uint32_t count_ports(const cy_graph *g, uint32_t (*ports)(const cy_graph *g, const cy_port_info **out_ports)) {
  const cy_port_info *unused;
  return ports(g, &unused);
}

typedef struct checker {
  cy_program *p;
  char *text;
  size_t capacity;
  bool bad;
} checker;

static void bad(checker *c, const cy_step *s, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void bad(checker *c, const cy_step *s, const char *format, ...) {
  if (!c->bad && c->text && c->capacity) {
    int n = s ? snprintf(c->text, c->capacity, "step %d: ", s->position) : 0;
    va_list ap;
    va_start(ap, format);
    if (n >= 0 && (size_t)n < c->capacity)
      vsnprintf(c->text + n, c->capacity - (size_t)n, format, ap);
    va_end(ap);
  }
  c->bad = true;
}

static void check_bind(checker *c, const cy_step *s, const cy_bind *b) {
  if (b->buffer >= c->p->nbuffers)
    bad(c, s, "there is no buffer b%u", b->buffer);
}

static void check_sym(checker *c, const cy_step *s, cy_sym sym) {
  if (sym == 0 || sym > cy_sym_count(c->p->g))
    bad(c, s, "there is no symbol %u", sym);
}

static bool known_kernel(const cy_program *p, const cy_kernel *k) {
  for (uint32_t i = 0; i < p->nkernels; i++)
    if (p->kernels[i] == k)
      return true;
  return false;
}

static void check_launch(checker *c, const cy_step *s) {
  const cy_karg_info *args;
  if (!s->kernel || !known_kernel(c->p, s->kernel)) {
    bad(c, s, "launches a kernel that is not the program's");
    return;
  }
  uint32_t n = cy_kernel_args(s->kernel, &args);
  if (s->nbind != n)
    bad(c, s, "kernel '%s' has %u arguments, %u are bound", cy_kernel_name(s->kernel), n, s->nbind);
  for (uint32_t i = 0; i < s->nbind && i < n && !c->bad; i++) {
    check_bind(c, s, &s->bind[i]);
    cy_buffer_kind kind = c->bad ? CY_BUF_ARENA : c->p->buffers[s->bind[i].buffer].kind;
    if (args[i].kind != CY_ARG_READ && (kind == CY_BUF_CONST || kind == CY_BUF_INPUT))
      bad(c, s, "kernel '%s' writes argument %u, bound to an input or constant", cy_kernel_name(s->kernel), i);
  }
}

static void check_steps(checker *c, const cy_step *s) {
  for (; s && !c->bad; s = s->next) {
    if (s->kind == CY_STEP_LAUNCH)
      check_launch(c, s);
    else
      for (uint32_t i = 0; i < s->nbind; i++)
        check_bind(c, s, &s->bind[i]);
    for (uint32_t i = 0; i < s->nin; i++)
      check_bind(c, s, &s->in[i].at);
    for (uint32_t i = 0; i < s->nout; i++)
      check_bind(c, s, &s->out[i].at);
    bool shared = s->kind == CY_STEP_SHARED;
    if ((s->kind == CY_STEP_READ || s->kind == CY_STEP_ALLOC || shared) && s->nbind != 1)
      bad(c, s, "binds %u buffers, not 1", s->nbind);
    for (uint32_t i = 0; i < s->nbind && s->kind == CY_STEP_SWAP && !c->bad; i++)
      if (s->nbind != 2 || c->p->buffers[s->bind[i].buffer].kind != CY_BUF_DYNAMIC)
        bad(c, s, "swaps what are no two dynamic slots");
    if (s->kind == CY_STEP_READ || s->kind == CY_STEP_IF || s->kind == CY_STEP_LOOP || s->kind == CY_STEP_SET ||
        s->kind == CY_STEP_ROOM || shared)
      check_sym(c, s, s->sym);
    if ((s->kind == CY_STEP_LOOP || s->kind == CY_STEP_SET || shared) && !s->limit)
      bad(c, s, "has no limit or value");
    if ((s->kind == CY_STEP_OUTPUT || shared) && s->index >= count_ports(c->p->g, cy_graph_outputs))
      bad(c, s, "there is no output %u", s->index);
    check_steps(c, s->then_steps);
    check_steps(c, s->else_steps);
  }
}

bool cy_program_verify(cy_program *p, char *out_text, size_t capacity) {
  checker c = {p, out_text, capacity, false};
  for (uint32_t i = 0; i < p->nkernels; i++)
    if (!cy_kernel_verify(p->kernels[i], out_text, capacity))
      return false;
  for (uint32_t i = 0; i < p->nbuffers && !c.bad; i++) {
    const cy_buffer *b = &p->buffers[i];
    const uint32_t limit[] = {UINT32_MAX, count_ports(p->g, cy_graph_inputs), count_ports(p->g, cy_graph_outputs),
                              p->nconstants, p->ndynamic, 1};
    if (b->kind > CY_BUF_CHECKS || b->index >= limit[b->kind])
      bad(&c, NULL, "buffer b%u: index %u is out of range", i, b->index);
    else if (!b->bytes && b->kind != CY_BUF_CONST)
      bad(&c, NULL, "buffer b%u has no size", i);
  }
  check_steps(&c, p->steps);
  return !c.bad;
}
