/* SPDX-License-Identifier: Apache-2.0 */
/* loop_print.c - kernels as text, and checked.
 *
 * Text: `kernel name(a0: read f32, ..)`, one line per statement, expressions as nested terms. An expression that one
 * statement uses more than once gets a name (`%n = ..`) before it. Nothing parses this text: lowering makes kernels,
 * people read them.
 */
#include "loop_int.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- text ---- */

typedef struct printer {
  cy_kernel *k;
  FILE *out;
  uint8_t *uses;  /* within the statement, saturating at 2 */
  uint32_t *name; /* of a shared expression, 0: none yet */
  uint32_t names;
} printer;

static void indent(FILE *out, int depth) { fprintf(out, "%*s", depth * 2, ""); }

static void print_const(FILE *out, const cy_expr_info *x) {
  switch (cy_dtype_of(x->dtype)->cls) {
  case 'F': fprintf(out, "%.9g", x->c.f); break;
  case 'U': fprintf(out, "%llu", (unsigned long long)x->c.u); break;
  default: fprintf(out, "%lld", (long long)x->c.i);
  }
  if (x->dtype != CY_I64)
    fprintf(out, ":%s", cy_dtype_of(x->dtype)->name);
}

static void print_expr(printer *p, cy_expr e);

static void print_node(printer *p, cy_expr e) {
  const cy_expr_info *x = cy_expr_of(p->k, e);
  switch (x->op) {
  case CY_X_CONST: print_const(p->out, x); return;
  case CY_X_VAR: fprintf(p->out, "i%u", x->id); return;
  case CY_X_DIM: fprintf(p->out, "{%s}", cy_dim_text(p->k->g, x->id)); return;
  case CY_X_LOCAL: fprintf(p->out, "t%u", x->id); return;
  case CY_X_LOAD:
    fprintf(p->out, "a%u[", x->id);
    print_expr(p, x->arg[0]);
    fputc(']', p->out);
    return;
  }
  fprintf(p->out, "%s", cy_op_of(x->op)->name);
  if (x->op == CY_OP_cast || x->op == CY_OP_bitcast)
    fprintf(p->out, ".%s", cy_dtype_of(x->dtype)->name);
  for (int i = 0; i < x->n; i++) {
    fputs(i ? ", " : "(", p->out);
    print_expr(p, x->arg[i]);
  }
  fputc(')', p->out);
}

static void print_expr(printer *p, cy_expr e) {
  if (p->name[e])
    fprintf(p->out, "%%%u", p->name[e]);
  else
    print_node(p, e);
}

static void count_uses(printer *p, cy_expr e) {
  if (!e || ++p->uses[e] > 1) {
    if (e)
      p->uses[e] = 2;
    return;
  }
  const cy_expr_info *x = cy_expr_of(p->k, e);
  for (int i = 0; i < x->n; i++)
    count_uses(p, x->arg[i]);
}

/* Names the shared expressions of a statement, operands first. */
static void print_shared(printer *p, cy_expr e, int depth) {
  if (!e || p->name[e])
    return;
  const cy_expr_info *x = cy_expr_of(p->k, e);
  for (int i = 0; i < x->n; i++)
    print_shared(p, x->arg[i], depth);
  if (x->n && p->uses[e] > 1 && !p->name[e]) {
    indent(p->out, depth);
    fprintf(p->out, "%%%u = ", p->names + 1);
    print_node(p, e);
    fputc('\n', p->out);
    p->name[e] = ++p->names;
  }
}

static void print_list(printer *p, const cy_stmt *s, int depth);

static void print_stmt(printer *p, const cy_stmt *s, int depth) {
  uint32_t n = cy_expr_count(p->k) + 1;
  memset(p->uses, 0, n);
  memset(p->name, 0, n * sizeof *p->name);
  count_uses(p, s->offset);
  count_uses(p, s->value);
  print_shared(p, s->offset, depth);
  print_shared(p, s->value, depth);
  indent(p->out, depth);
  switch (s->kind) {
  case CY_S_FOR:
    fprintf(p->out, "for%s i%u < %s:\n", s->lanes ? " lanes" : "", s->var,
            cy_dim_text(p->k->g, cy_kernel_var(p->k, s->var)->extent));
    print_list(p, s->body, depth + 1);
    return;
  case CY_S_STORE:
    fprintf(p->out, "a%u[", s->arg);
    print_expr(p, s->offset);
    fputs(s->op == CY_OP_max ? "] max= " : "] = ", p->out);
    break;
  case CY_S_SET: fprintf(p->out, "t%u = ", s->local); break;
  case CY_S_ACCUM: fprintf(p->out, "t%u %s= ", s->local, cy_op_of(s->op)->name); break;
  }
  print_expr(p, s->value);
  fputc('\n', p->out);
}

static void print_list(printer *p, const cy_stmt *s, int depth) {
  for (; s; s = s->next)
    print_stmt(p, s, depth);
}

static void print_dims(cy_graph *g, FILE *out, const char *label, const cy_dim *d, int n) {
  fprintf(out, " %s", label);
  for (int i = 0; i < n; i++)
    fprintf(out, "%c%s", i ? ',' : '=', d[i] ? cy_dim_text(g, d[i]) : "-");
}

static void print_ints(FILE *out, const char *label, const int64_t *v, int n) {
  fprintf(out, " %s", label);
  for (int i = 0; i < n; i++)
    fprintf(out, "%c%lld", i ? ',' : '=', (long long)v[i]);
}

/* Positions of a place, and the zeros around its kernel's elements. */
static void print_shuffle(FILE *out, const cy_contraction *c) {
  for (int i = 0; i < c->nspatial; i++)
    fprintf(out, "%s%lld+%lld+%lld", i ? "," : " shuffle=", (long long)c->shuffle[i].positions,
            (long long)c->shuffle[i].before, (long long)c->shuffle[i].behind);
}

static void print_attention(cy_kernel *k, FILE *out) {
  const cy_contraction *c = &k->contraction;
  const cy_dim keys[] = {c->keys}, strides[] = {c->v_k, c->v_n}, past[] = {c->past};
  fprintf(out, " v=a%u score=t%u top=t%u key=i%u scale=%.9g", c->v, c->score, c->top, c->key, c->scale);
  print_dims(k->g, out, "keys", keys, 1);
  print_dims(k->g, out, "v_strides", strides, 2);
  print_dims(k->g, out, "v_batch", c->v_batch, c->nbatch);
  if (c->causal)
    fputs(" causal", out);
  if (c->window)
    print_ints(out, "window", &c->window, 1);
  if (c->causal || c->window)
    print_dims(k->g, out, "past", past, 1);
  if (c->zero_hidden)
    fputs(" zero_hidden", out);
}

static void print_contraction(cy_kernel *k, FILE *out) {
  const cy_contraction *c = &k->contraction;
  static const char *const names[] = {"", "matmul", "conv", "conv_transpose", "attention"};
  if (c->kind == CY_CONTRACT_NONE)
    return;
  fprintf(out, "  %s a%u a%u%s -> t%u at", names[c->kind], c->a, c->b, c->b_const ? " (constant)" : "", c->acc);
  for (int i = 0; i < c->nout_vars; i++)
    fprintf(out, " i%u", c->out_var[i]);
  if (c->has_a_zero)
    fprintf(out, " a_zero=a%u", c->a_zero);
  if (c->has_b_zero)
    fprintf(out, " b_zero=a%u%s", c->b_zero, c->b_zero_step ? "[]" : "");
  if (c->has_start)
    fprintf(out, " start=a%u[]", c->start);
  if (c->a_rounded)
    fprintf(out, " a_rounded=%s steps=%g most=a%u[%s]", cy_dtype_of(c->a_rounded)->name, c->a_steps, c->a_max,
            c->a_max_step ? "image" : "");
  if (c->b_bits)
    fprintf(out, " b_bits=%d block=%lld middle=%lld scale=a%u", c->b_bits, (long long)c->b_block,
            (long long)c->b_middle, c->b_scale);
  if (c->b_codes)
    fprintf(out, " codes=%s", cy_dtype_of(c->b_codes)->name);
  if (c->rounded)
    fprintf(out, " %s", cy_dtype_of(c->rounded)->name);
  if (c->kind == CY_CONTRACT_MATMUL || c->kind == CY_CONTRACT_ATTENTION) {
    const cy_dim mnk[] = {c->m, c->n, c->k}, strides[] = {c->a_m, c->a_k, c->b_k, c->b_n};
    print_dims(k->g, out, "mnk", mnk, 3);
    print_dims(k->g, out, "strides", strides, 4);
    print_dims(k->g, out, "batch", c->batch, c->nbatch);
    print_dims(k->g, out, "a_batch", c->a_batch, c->nbatch);
    print_dims(k->g, out, "b_batch", c->b_batch, c->nbatch);
    if (c->kind == CY_CONTRACT_ATTENTION)
      print_attention(k, out);
  } else {
    const cy_dim sizes[] = {c->images, c->channels_in, c->channels_out, c->x_image, c->x_channel};
    if (c->planar)
      fputs(" planar", out);
    print_dims(k->g, out, "nco", sizes, 3);
    print_dims(k->g, out, "x_image,x_channel", sizes + 3, 2);
    print_dims(k->g, out, "x", c->x_spatial, c->nspatial);
    print_dims(k->g, out, "in", c->in, c->nspatial);
    print_dims(k->g, out, "out", c->out, c->nspatial);
    print_dims(k->g, out, "pad", c->pad, c->nspatial);
    print_ints(out, "kernel", c->kernel, c->nspatial);
    print_ints(out, "stride", c->stride, c->nspatial);
    print_ints(out, "dilation", c->dilation, c->nspatial);
    print_ints(out, "group", &c->group, 1);
    if (c->shuffle[0].positions)
      print_shuffle(out, c);
  }
  fputc('\n', out);
}

void cy_kernel_print(cy_kernel *k, FILE *out) {
  static const char *const kinds[] = {"read", "write", "scratch"};
  uint32_t n = cy_expr_count(k) + 1;
  printer p = {k, out, malloc(n), malloc(n * sizeof(uint32_t)), 0};
  if (!p.uses || !p.name)
    cy_no_memory();
  fprintf(out, "kernel %s(", k->name);
  for (uint32_t i = 0; i < k->nargs; i++) {
    const char *kind = k->args[i].param ? "param" : kinds[k->args[i].kind];
    fprintf(out, "%sa%u: %s %s", i ? ", " : "", i, kind, cy_dtype_of(k->args[i].dtype)->name);
    if (k->args[i].kind == CY_ARG_SCRATCH)
      fprintf(out, "[%s]", cy_dim_text(k->g, k->args[i].elems));
  }
  fputs(") grid", out);
  if (cy_kernel_grid_lanes(k))
    fputs(" lanes", out);
  for (uint32_t i = 0; i < k->ngrid; i++)
    fprintf(out, "%s i%u < %s", i ? "," : "", k->grid[i], cy_dim_text(k->g, cy_kernel_var(k, k->grid[i])->extent));
  fputc('\n', out);
  for (uint32_t i = 1; i <= k->nlocals; i++)
    fprintf(out, "  t%u: %s\n", i, cy_dtype_of(k->locals[i])->name);
  print_contraction(k, out);
  print_list(&p, k->body, 1);
  free(p.uses);
  free(p.name);
}

/* ---- checking ---- */

typedef struct checker {
  cy_kernel *k;
  bool *var;  /* in scope */
  bool *seen; /* expressions checked in the current scope */
  bool in_lanes;
  char *text;
  size_t capacity;
  bool bad;
} checker;

static void bad(checker *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void bad(checker *c, const char *format, ...) {
  if (!c->bad && c->text && c->capacity) {
    int n = snprintf(c->text, c->capacity, "kernel '%s': ", c->k->name);
    va_list ap;
    va_start(ap, format);
    if (n > 0 && (size_t)n < c->capacity)
      vsnprintf(c->text + n, c->capacity - (size_t)n, format, ap);
    va_end(ap);
  }
  c->bad = true;
}

static void check_types(checker *c, cy_expr e, const cy_expr_info *x) {
  const cy_op_info *o = cy_op_of(x->op);
  int from = x->op == CY_OP_select;
  cy_dtype t = cy_expr_of(c->k, x->arg[from])->dtype;
  if (x->n < o->min_in || x->n > o->max_in)
    bad(c, "expression %u: '%s' has %d operands", e, o->name, x->n);
  if (from && cy_expr_of(c->k, x->arg[0])->dtype != CY_BOOL)
    bad(c, "expression %u: condition of select is no bool", e);
  for (int i = from + 1; i < x->n; i++)
    if (cy_expr_of(c->k, x->arg[i])->dtype != t)
      bad(c, "expression %u: '%s' of %s and %s", e, o->name, cy_dtype_of(t)->name,
          cy_dtype_of(cy_expr_of(c->k, x->arg[i])->dtype)->name);
  bool given = x->op == CY_OP_cast || x->op == CY_OP_bitcast;
  if (!given && x->dtype != (o->gives_bool ? CY_BOOL : t))
    bad(c, "expression %u: '%s' of %s yields %s", e, o->name, cy_dtype_of(t)->name, cy_dtype_of(x->dtype)->name);
}

static void check_expr(checker *c, cy_expr e) {
  if (c->bad || c->seen[e])
    return;
  c->seen[e] = true;
  const cy_expr_info *x = cy_expr_of(c->k, e);
  for (int i = 0; i < x->n; i++) {
    if (x->arg[i] == 0 || x->arg[i] >= e) {
      bad(c, "expression %u: operand %d is %u", e, i, x->arg[i]);
      return;
    }
    check_expr(c, x->arg[i]);
  }
  switch (x->op) {
  case CY_X_CONST:
  case CY_X_DIM: break;
  case CY_X_VAR:
    if (x->id == 0 || x->id > c->k->nvars || !c->var[x->id])
      bad(c, "variable i%u is used outside its loop", x->id);
    break;
  case CY_X_LOCAL:
    if (x->id == 0 || x->id > c->k->nlocals)
      bad(c, "there is no local t%u", x->id);
    break;
  case CY_X_LOAD:
    if (x->id >= c->k->nargs)
      bad(c, "there is no argument a%u", x->id);
    else if (x->dtype != c->k->args[x->id].dtype || cy_expr_of(c->k, x->arg[0])->dtype != CY_I64)
      bad(c, "expression %u: load from a%u has the wrong dtype or an offset that is no i64", e, x->id);
    break;
  default:
    if (!cy_op_is_ew(x->op))
      bad(c, "expression %u: op %u is not element-wise", e, x->op);
    else
      check_types(c, e, x);
  }
}

static void check_value(checker *c, cy_expr e, cy_dtype want) {
  if (e == 0 || e > c->k->nexprs) {
    bad(c, "a statement has no value");
    return;
  }
  check_expr(c, e);
  if (!c->bad && cy_expr_of(c->k, e)->dtype != want)
    bad(c, "expression %u is %s, expected %s", e, cy_dtype_of(cy_expr_of(c->k, e)->dtype)->name,
        cy_dtype_of(want)->name);
}

static void check_list(checker *c, const cy_stmt *s);

static void check_for(checker *c, const cy_stmt *s) {
  bool outer = c->in_lanes;
  if (s->var == 0 || s->var > c->k->nvars || c->var[s->var]) {
    bad(c, "loop over i%u, which does not exist or is in use", s->var);
    return;
  }
  if (s->lanes && outer)
    bad(c, "lane loop i%u inside a lane loop", s->var);
  c->in_lanes |= s->lanes;
  c->var[s->var] = true;
  check_list(c, s->body);
  c->var[s->var] = false;
  c->in_lanes = outer;
  memset(c->seen, 0, c->k->nexprs + 1);
}

static void check_list(checker *c, const cy_stmt *s) {
  for (; s && !c->bad; s = s->next) {
    switch (s->kind) {
    case CY_S_FOR:
      check_for(c, s);
      break;
    case CY_S_STORE:
      if (s->arg >= c->k->nargs || c->k->args[s->arg].kind == CY_ARG_READ) {
        bad(c, "store to a%u, which is not writable", s->arg);
        break;
      }
      if (s->op && (s->op != CY_OP_max || c->k->args[s->arg].dtype != CY_I32))
        bad(c, "a%u is no i32, whose maxima could be stored", s->arg);
      check_value(c, s->offset, CY_I64);
      check_value(c, s->value, c->k->args[s->arg].dtype);
      break;
    case CY_S_SET:
    case CY_S_ACCUM:
      if (s->local == 0 || s->local > c->k->nlocals)
        bad(c, "there is no local t%u", s->local);
      else
        check_value(c, s->value, c->k->locals[s->local]);
      break;
    }
  }
}

bool cy_kernel_verify(cy_kernel *k, char *out_text, size_t capacity) {
  checker c = {k,    calloc(k->nvars + 1, 1), calloc(k->nexprs + 1, 1), cy_kernel_grid_lanes(k), out_text, capacity,
               false};
  if (!c.var || !c.seen)
    cy_no_memory();
  for (uint32_t i = 0; i < k->ngrid; i++)
    c.var[k->grid[i]] = true;
  for (int i = 0; k->contraction.kind != CY_CONTRACT_NONE && i < k->contraction.nout_vars; i++)
    c.var[k->contraction.out_var[i]] = true;
  if (k->depth)
    bad(&c, "%d loops or conditions are still open", k->depth);
  check_list(&c, k->body);
  free(c.var);
  free(c.seen);
  return !c.bad;
}
