/* SPDX-License-Identifier: Apache-2.0 */
/* print.c - a graph as text. Grammar: TEXT.md; parse.c reads it back, and printing that yields the same text.
 *
 * Values are called by their ONNX names where these are unique, others "v" and the id. Constants stand first, those of
 * more than MAX_INLINE elements only as a checksum (of at most 4 KiB of their bytes: weights are mapped, a dump should
 * not read them all). Only what is reachable from the blocks is printed: dead values and unused symbols are not.
 */
#include "ir/ir_int.h"

#include <inttypes.h>
#include <stdlib.h>

#define MAX_INLINE 32

typedef struct printer {
  cy_graph *g;
  FILE *out;
  const char **name; /* by value */
  bool *used;        /* by value */
  bool *sym;         /* by symbol */
  bool *taken;       /* by interned string */
} printer;

/* ---- what is used ------------------------------------------------------------------------------------------------ */

static void use_value(printer *p, cy_val v);

static void use_sym(void *ctx, cy_sym s) {
  printer *p = ctx;
  if (p->sym[s])
    return;
  p->sym[s] = true;
  use_value(p, cy_sym_of(p->g, s)->value);
}

static void use_dims(printer *p, const cy_dim *d, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (d[i])
      cy_dim_symbols(p->g, d[i], use_sym, p);
}

static void use_value(printer *p, cy_val v) {
  if (!v || p->used[v])
    return;
  p->used[v] = true;
  const cy_type *t = &cy_value_of(p->g, v)->type;
  use_dims(p, t->dim, t->rank);
}

static void use_values(printer *p, const cy_val *v, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    use_value(p, v[i]);
}

static void use_block(printer *p, cy_block b) {
  const cy_block_info *block = cy_block_of(p->g, b);
  use_values(p, block->params, block->nparams);
  for (uint32_t i = 0; i < block->nnodes; i++) {
    const cy_node_info *n = &cy_node_slot_of(p->g, block->nodes[i])->n;
    use_values(p, n->in, n->nin);
    use_values(p, n->out, n->nout);
    for (int k = 0; k < n->nattrs; k++) {
      if (n->attrs[k].kind == CY_KIND_DIMS)
        use_dims(p, n->attrs[k].dims, n->attrs[k].n);
      if (n->attrs[k].kind == CY_KIND_BLOCK)
        use_block(p, n->attrs[k].block);
    }
  }
  use_values(p, block->results, block->nresults);
}

static void name_values(printer *p) {
  uint32_t n = p->g->values.count;
  for (cy_val v = 1; v <= n; v++) {
    cy_str name = cy_value_of(p->g, v)->name;
    if (!p->used[v] || !name || p->taken[name])
      continue;
    p->taken[name] = true;
    p->name[v] = cy_str_text(p->g, name);
  }
  for (cy_val v = 1; v <= n; v++) {
    if (!p->used[v] || p->name[v])
      continue;
    char text[32];
    int len = snprintf(text, sizeof text, "v%u", v);
    cy_str s = cy_intern(p->g, text);
    for (; p->taken[s] && len < 30; s = cy_intern(p->g, text)) {
      text[len++] = '_';
      text[len] = 0;
    }
    p->taken[s] = true;
    p->name[v] = cy_str_text(p->g, s);
  }
}

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

static void print_value(printer *p, cy_val v) {
  if (!v) {
    fputc('_', p->out);
    return;
  }
  fputc(cy_value_is_const(p->g, v) ? '@' : '%', p->out);
  cy_text_name(p->out, p->name[v]);
}

static void print_values(printer *p, const cy_val *v, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    fputs(i ? ", " : "", p->out);
    print_value(p, v[i]);
  }
}

static void print_dims(printer *p, const cy_dim *d, uint32_t n) {
  fputc('[', p->out);
  for (uint32_t i = 0; i < n; i++) {
    fputs(i ? "," : "", p->out);
    cy_dim_print(p->g, p->out, d[i]);
  }
  fputc(']', p->out);
}

static void print_type(printer *p, cy_val v) {
  const cy_value *info = cy_value_of(p->g, v);
  fputs(info->type.content ? cy_content_text(p->g, info->type.content) : cy_dtype_of((cy_dtype)info->type.dtype)->name,
        p->out);
  if (!info->type.content)
    print_dims(p, info->type.dim, info->type.rank);
  bool identity = true;
  for (int i = 0; i < info->type.rank; i++)
    identity &= info->layout[i] == i;
  for (int i = 0; i < info->type.rank && !identity; i++)
    fprintf(p->out, "%s%d%s", i ? "," : " layout=[", info->layout[i], i + 1 == info->type.rank ? "]" : "");
  fputs(info->inlined ? " inlined" : "", p->out);
}

/* As few digits as read back to the same number; `narrow`: to the same f32. */
static void print_double(FILE *out, double v, bool narrow) {
  static const int digits[] = {6, 9, 17};
  char text[40];
  for (int i = 0; i < 3; i++) {
    snprintf(text, sizeof text, "%.*g", digits[i], v);
    double back = strtod(text, NULL);
    if (back == v || v != v || (narrow && (float)back == (float)v))
      break;
  }
  fputs(text, out);
}

static void print_block(printer *p, cy_block b, int indent);

static void print_attr(printer *p, const cy_attr *a, int indent) {
  fprintf(p->out, "%s=", cy_attr_name((cy_attr_key)a->key));
  switch ((cy_attr_kind)a->kind) {
  case CY_KIND_INT: fprintf(p->out, "%" PRId64, a->i); break;
  case CY_KIND_FLOAT: print_double(p->out, a->f, false); break;
  case CY_KIND_DIMS: print_dims(p, a->dims, a->n); break;
  case CY_KIND_BLOCK: print_block(p, a->block, indent + 2); break;
  case CY_KIND_INTS:
  case CY_KIND_FLOATS:
    fputc('[', p->out);
    for (uint32_t i = 0; i < a->n; i++) {
      fputs(i ? "," : "", p->out);
      if (a->kind == CY_KIND_INTS)
        fprintf(p->out, "%" PRId64, a->ints[i]);
      else
        print_double(p->out, a->floats[i], false);
    }
    fputc(']', p->out);
    break;
  }
}

static void print_node(printer *p, cy_node id, int indent) {
  const cy_node_info *n = &cy_node_slot_of(p->g, id)->n;
  fprintf(p->out, "%*s", indent, "");
  print_values(p, n->out, n->nout);
  fprintf(p->out, "%s%s%s", n->nout ? " = " : "", cy_op_of((cy_op)n->op)->name, n->nin ? " " : "");
  print_values(p, n->in, n->nin);
  fputs(n->nattrs ? " {" : "", p->out);
  for (int k = 0; k < n->nattrs; k++) {
    fputs(k ? ", " : "", p->out);
    print_attr(p, &n->attrs[k], indent);
  }
  fputs(n->nattrs ? "}" : "", p->out);
  for (uint32_t k = 0; k < n->nout; k++) {
    fputs(k ? ", " : " : ", p->out);
    print_type(p, n->out[k]);
  }
  if (n->origin.name) {
    fputs("  ; from ", p->out);
    const char *name = cy_str_text(p->g, n->origin.name);
    fputs(cy_name_is_plain(name) ? "\"" : "", p->out);
    cy_text_name(p->out, name);
    fputs(cy_name_is_plain(name) ? "\"" : "", p->out);
  }
  fputc('\n', p->out);
}

/* ---- constants --------------------------------------------------------------------------------------------------- */

static uint64_t checksum(const cy_data *d) {
  uint64_t h = 0xcbf29ce484222325u ^ d->size, step = d->size > 4096 ? d->size / 4096 : 1;
  for (uint64_t i = 0; i < d->size; i += step)
    h = (h ^ ((const unsigned char *)d->bytes)[i]) * 0x100000001b3u;
  return h ? h : 1;
}

static void print_element(printer *p, cy_dtype t, cy_scalar s) {
  char cls = cy_dtype_of(t)->cls;
  if (cls == 'F')
    print_double(p->out, s.f, t != CY_F64);
  else if (cls == 'S')
    cy_text_print(p->g, p->out, (uint32_t)s.u);
  else if (cls == 'U')
    fprintf(p->out, "%" PRIu64, s.u);
  else
    fprintf(p->out, "%" PRId64, s.i);
}

static void print_const(printer *p, cy_val v) {
  const cy_value_slot *slot = cy_chunks_at(&p->g->values, v);
  const cy_value *info = &slot->v;
  cy_dtype t = (cy_dtype)info->type.dtype;
  char cls = cy_dtype_of(t)->cls;
  uint64_t n;
  fputs("  ", p->out);
  print_value(p, v);
  fputs(" = const ", p->out);
  print_type(p, v);
  bool whole = cy_type_static_count(p->g, &info->type, &n) && n <= MAX_INLINE && cls != 'C' &&
               !slot->seed && info->data.size >= cy_dtype_bytes(t, n);
  if (!whole) {
    fprintf(p->out, " data(0x%016" PRIx64 ")\n", slot->seed ? slot->seed : checksum(&info->data));
    return;
  }
  fputs(" {", p->out);
  for (uint64_t i = 0; i < n; i++) {
    fputs(i ? ", " : "", p->out);
    print_element(p, t, cy_scalar_load(info->data.bytes, t, i));
  }
  fputs("}\n", p->out);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void print_params(printer *p, const cy_block_info *block) {
  fputc('(', p->out);
  for (uint32_t i = 0; i < block->nparams; i++) {
    fputs(i ? ", " : "", p->out);
    print_value(p, block->params[i]);
    fputs(": ", p->out);
    print_type(p, block->params[i]);
  }
  fputc(')', p->out);
}

static void print_results(printer *p, const cy_block_info *block, const cy_port_info *ports, int indent) {
  fprintf(p->out, "%*sreturn", indent, "");
  for (uint32_t i = 0; i < block->nresults; i++) {
    fputs(i ? ", " : " ", p->out);
    if (ports && strcmp(cy_str_text(p->g, ports[i].name), p->name[block->results[i]]) != 0) {
      cy_text_name(p->out, cy_str_text(p->g, ports[i].name));
      fputc('=', p->out);
    }
    print_value(p, block->results[i]);
  }
  fputc('\n', p->out);
}

static void print_block(printer *p, cy_block b, int indent) {
  const cy_block_info *block = cy_block_of(p->g, b);
  print_params(p, block);
  fputs(" {\n", p->out);
  for (uint32_t i = 0; i < block->nnodes; i++)
    print_node(p, block->nodes[i], indent + 2);
  print_results(p, block, NULL, indent + 2);
  fprintf(p->out, "%*s}", indent, "");
}

static void print_sym(printer *p, cy_sym s) {
  static const char *const kinds[] = {"", "data", "count", "free", "room"};
  const cy_sym_info *info = cy_sym_of(p->g, s);
  bool counts = info->kind == CY_SYM_INPUT || info->kind == CY_SYM_COUNT || info->kind == CY_SYM_ROOM;
  fputs("sym ", p->out);
  cy_text_name(p->out, cy_str_text(p->g, info->name));
  if (info->kind != CY_SYM_INPUT)
    fprintf(p->out, " = %s", kinds[info->kind]);
  if (info->value) {
    fputc('(', p->out);
    print_value(p, info->value);
    fprintf(p->out, ", %" PRId64 ")", info->index);
  }
  if (info->min != (counts ? 0 : INT64_MIN))
    fprintf(p->out, " >= %" PRId64, info->min);
  if (info->max != INT64_MAX)
    fprintf(p->out, " <= %" PRId64, info->max);
  fputc('\n', p->out);
}

static void print_graph(printer *p) {
  cy_graph *g = p->g;
  const cy_block_info *top = cy_block_of(g, 1);
  for (uint32_t i = 0; i < g->nmetadata; i++) {
    fputs("meta ", p->out);
    cy_text_name(p->out, cy_str_text(g, g->metadata[i].key));
    fputs(" = ", p->out);
    cy_text_name(p->out, cy_str_text(g, g->metadata[i].value));
    fputc('\n', p->out);
  }
  for (cy_sym s = 1; s <= g->syms.count; s++)
    if (p->sym[s])
      print_sym(p, s);
  fputs("graph @", p->out);
  cy_text_name(p->out, cy_graph_name(g));
  print_params(p, top);
  fputs(" {\n", p->out);
  for (cy_val v = 1; v <= g->values.count; v++)
    if (p->used[v] && cy_value_is_const(g, v))
      print_const(p, v);
  for (uint32_t i = 0; i < top->nnodes; i++)
    print_node(p, top->nodes[i], 2);
  print_results(p, top, g->noutputs == top->nresults ? g->outputs : NULL, 2);
  fputs("}\n", p->out);
}

void cy_graph_print(cy_graph *g, FILE *out) {
  cy_arena *scratch = cy_arena_create();
  uint32_t values = g->values.count + 1;
  printer p = {.g = g,
               .out = out,
               .name = CY_NEW_ARRAY(scratch, const char *, values),
               .used = CY_NEW_ARRAY(scratch, bool, values),
               .sym = CY_NEW_ARRAY(scratch, bool, g->syms.count + 1),
               /* what name_values() interns: at most 30 tries a value */
               .taken = CY_NEW_ARRAY(scratch, bool, g->strs.count + 30 * (size_t)values + 1)};
  use_block(&p, 1);
  name_values(&p);
  print_graph(&p);
  cy_arena_destroy(scratch);
}
