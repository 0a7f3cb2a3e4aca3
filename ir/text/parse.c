/* SPDX-License-Identifier: Apache-2.0 */
/* parse.c - a graph from its text. Grammar: TEXT.md.
 *
 * Nodes are made as they are written: nothing is simplified or folded, so that a test sees what it says. Types are
 * inferred and compared with the written ones, and the whole is verified. Elided constants (`data(0x..)`) get
 * pseudo-random numbers from that seed: floats in -1 .. 1, integers 0 .. 3. Errors name the line; the first one ends
 * the reading.
 */
#include "ir/ir_int.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

#define MAX_NESTING 32
#define MAX_LIST (1u << 20)
#define MAX_BYTES ((uint64_t)1 << 31)
#define MAX_RANDOM ((uint64_t)1 << 28) /* elements of data(..) in a graph: seconds */

typedef struct pending { /* a symbol that reads a value not yet seen */
  const char *name;
  cy_sym sym;
  struct pending *next;
} pending;

typedef struct parser {
  cy_graph *g;
  cy_arena *scratch;
  const char *start, *p;
  const char *from; /* the comment `; from ".."` of the line being read */
  bool failed;
  int nesting;
  uint64_t random; /* elements made by data(..) */
  cy_val *by_name; /* value by interned string */
  uint32_t by_name_size;
  pending *pendings;
} parser;

static int line_number(const parser *r) {
  int line = 1;
  for (const char *q = r->start; q < r->p; q++)
    line += *q == '\n';
  return line;
}

__attribute__((format(printf, 2, 3))) static bool fail(parser *r, const char *format, ...) {
  if (r->failed)
    return false;
  va_list args;
  char text[512], item[32];
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  snprintf(item, sizeof item, "line %d", line_number(r));
  cy_location where = {.file = r->g->file ? r->g->file : "graph", .node_index = -1, .item = item};
  cy_diag_add(r->g->diag, CY_ERROR, &where, "%s, found '%.*s'", text,
              (int)strcspn(r->p, "\n") > 24 ? 24 : (int)strcspn(r->p, "\n"), r->p);
  r->failed = true;
  return false;
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static void skip(parser *r) { /* blanks, line ends, comments */
  for (;;) {
    r->p += strspn(r->p, " \t\r\n");
    if (*r->p != ';')
      return;
    if (!r->from && strncmp(r->p, "; from \"", 8) == 0)
      r->from = r->p + 7;
    r->p += strcspn(r->p, "\n");
  }
}

static bool accept(parser *r, const char *word) {
  skip(r);
  size_t n = strlen(word);
  if (strncmp(r->p, word, n) != 0)
    return false;
  if (isalpha((unsigned char)word[n - 1]) && (isalnum((unsigned char)r->p[n]) || r->p[n] == '_' || r->p[n] == '.'))
    return false;
  r->p += n;
  return true;
}

static bool expect(parser *r, const char *word) { return accept(r, word) || fail(r, "expected '%s'", word); }

static const char *read_name(parser *r) {
  const char *name = cy_text_read_name(r->g->arena, r->p, &r->p);
  if (!name)
    fail(r, "expected a name");
  return name ? name : "";
}

static int64_t read_int(parser *r) {
  char *end;
  skip(r);
  errno = 0;
  int64_t v = strtoll(r->p, &end, 0);
  if (end == r->p || errno)
    fail(r, "expected an integer");
  r->p = end;
  return v;
}

static double read_double(parser *r) {
  char *end;
  skip(r);
  double v = strtod(r->p, &end);
  if (end == r->p)
    fail(r, "expected a number");
  r->p = end;
  return v;
}

static cy_dim read_dim(parser *r) {
  skip(r);
  const char *end;
  cy_dim d = cy_dim_parse(r->g, r->p, &end);
  if (!d) {
    r->p = end;
    fail(r, "expected a dim such as 2*seq+1");
    return cy_dim_const(r->g, 0);
  }
  r->p = end;
  return d;
}

/* Room for element n of a list that starts out NULL: doubles at powers of two. */
static void *room(parser *r, void *list, uint32_t n, size_t item) {
  if (n && (n < 4 || (n & (n - 1)) != 0))
    return list;
  void *grown = cy_arena_alloc(r->scratch, item * (n ? 2 * (size_t)n : 4));
  if (n)
    memcpy(grown, list, item * n);
  return grown;
}

/* ---- types and values -------------------------------------------------------------------------------------------- */

typedef struct typed { /* a type and what is written behind it */
  cy_type type;
  uint8_t layout[CY_MAX_RANK];
  bool inlined;
} typed;

static bool read_type(parser *r, typed *out) {
  *out = (typed){0};
  skip(r);
  const char *end;
  out->type.content = cy_content_parse(r->g, r->p, &end);
  if (out->type.content) {
    r->p = end;
    out->type = cy_type_ref(out->type.content);
    for (uint8_t i = 0; i < CY_MAX_RANK; i++)
      out->layout[i] = i;
    out->inlined = accept(r, "inlined");
    return true;
  }
  size_t n = 0;
  while (isalnum((unsigned char)r->p[n]))
    n++;
  out->type.dtype = (uint8_t)cy_dtype_by_name(r->p, n);
  if (!out->type.dtype || out->type.dtype == CY_REF)
    return fail(r, "expected a type such as f32[2,3] or seq(f32[*])");
  r->p += n;
  if (!expect(r, "["))
    return false;
  while (!accept(r, "]")) {
    if (out->type.rank == CY_MAX_RANK)
      return fail(r, "expected at most %d dims", CY_MAX_RANK);
    if (out->type.rank && !expect(r, ","))
      return false;
    out->type.dim[out->type.rank++] = read_dim(r);
    if (r->failed)
      return false;
  }
  for (uint8_t i = 0; i < CY_MAX_RANK; i++)
    out->layout[i] = i;
  if (accept(r, "layout")) {
    expect(r, "=");
    expect(r, "[");
    for (int i = 0; i < out->type.rank && !r->failed; i++) {
      out->layout[i] = (uint8_t)read_int(r);
      expect(r, i + 1 == out->type.rank ? "]" : ",");
    }
  }
  out->inlined = accept(r, "inlined");
  return !r->failed;
}

static cy_val *slot_of_name(parser *r, const char *name) {
  cy_str s = cy_intern(r->g, name);
  if (s >= r->by_name_size) {
    uint32_t size = s * 2 + 256;
    cy_val *grown = CY_NEW_ARRAY(r->scratch, cy_val, size);
    if (r->by_name_size)
      memcpy(grown, r->by_name, sizeof *grown * r->by_name_size);
    r->by_name = grown;
    r->by_name_size = size;
  }
  return &r->by_name[s];
}

/* A value whose contents symbols read: these are its elements, where all have one. */
static void bind_elems(parser *r, cy_val v) {
  cy_value *info = cy_value_of(r->g, v);
  uint64_t n;
  if (info->elems || info->data.bytes || !cy_type_static_count(r->g, &info->type, &n) || n > 64)
    return;
  cy_dim *elems = CY_NEW_ARRAY(r->g->arena, cy_dim, n + 1);
  for (cy_sym s = 1; s <= cy_sym_count(r->g); s++) {
    const cy_sym_info *sym = cy_sym_of(r->g, s);
    if (sym->kind == CY_SYM_DATA && sym->value == v && sym->index >= 0 && (uint64_t)sym->index < n)
      elems[sym->index] = cy_dim_sym(r->g, s);
  }
  for (uint64_t i = 0; i < n; i++)
    if (!elems[i])
      return;
  if (n)
    info->elems = elems;
}

static bool define(parser *r, const char *name, cy_val v, const typed *t) {
  cy_val *slot = slot_of_name(r, name);
  cy_value *info = cy_value_of(r->g, v);
  if (*slot)
    return fail(r, "value '%s' is defined twice", name);
  *slot = v;
  info->name = cy_intern(r->g, name);
  if (t) {
    memcpy(info->layout, t->layout, sizeof info->layout);
    info->inlined = t->inlined;
  }
  bool read = false;
  for (pending *q = r->pendings; q; q = q->next) {
    if (strcmp(q->name, name) == 0) {
      cy_sym_of(r->g, q->sym)->value = v;
      read |= cy_sym_of(r->g, q->sym)->kind == CY_SYM_DATA;
    }
  }
  if (read)
    bind_elems(r, v);
  return true;
}

static const char *read_value_name(parser *r) {
  skip(r);
  if (*r->p != '%' && *r->p != '@') {
    fail(r, "expected a value such as %%x");
    return "";
  }
  r->p++;
  return read_name(r);
}

static cy_val read_value(parser *r) {
  if (accept(r, "_"))
    return 0;
  const char *at = r->p, *name = read_value_name(r);
  cy_val v = *slot_of_name(r, name);
  if (!v && !r->failed) {
    r->p = at;
    fail(r, "value '%s' is not defined", name);
  }
  return v;
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

static cy_block read_block(parser *r);

static cy_attr read_list(parser *r, cy_attr_key key, cy_attr_kind kind) {
  int64_t *ints = NULL;
  double *floats = NULL;
  cy_dim *dims = NULL;
  uint32_t n = 0;
  expect(r, "[");
  while (!r->failed && !accept(r, "]")) {
    if (n == MAX_LIST)
      fail(r, "expected at most %u elements", MAX_LIST);
    if (r->failed || (n && !expect(r, ",")))
      break;
    if (kind == CY_KIND_INTS) {
      ints = room(r, ints, n, sizeof *ints);
      ints[n++] = read_int(r);
    } else if (kind == CY_KIND_FLOATS) {
      floats = room(r, floats, n, sizeof *floats);
      floats[n++] = read_double(r);
    } else {
      dims = room(r, dims, n, sizeof *dims);
      dims[n++] = read_dim(r);
    }
  }
  return kind == CY_KIND_INTS     ? cy_attr_ints(key, ints, n)
         : kind == CY_KIND_FLOATS ? cy_attr_floats(key, floats, n)
                                  : cy_attr_dims(key, dims, n);
}

static bool read_attr(parser *r, cy_op op, cy_attr *out) {
  skip(r);
  size_t n = 0;
  while (isalnum((unsigned char)r->p[n]) || r->p[n] == '_')
    n++;
  cy_attr_key key = cy_attr_by_name(r->p, n);
  if (!key)
    return fail(r, "expected an attribute");
  r->p += n;
  if (!expect(r, "="))
    return false;
  cy_attr_kind kind = cy_attr_kind_in(op, key);
  switch (kind) {
  case CY_KIND_INT: *out = cy_attr_int(key, read_int(r)); break;
  case CY_KIND_FLOAT: *out = cy_attr_float(key, read_double(r)); break;
  case CY_KIND_BLOCK: *out = cy_attr_block(key, read_block(r)); break;
  default: *out = read_list(r, key, kind); break;
  }
  return !r->failed;
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

static void fill_random(void *bytes, cy_dtype t, uint64_t n, uint64_t seed) {
  char cls = cy_dtype_of(t)->cls;
  for (uint64_t i = 0; i < n; i++) {
    uint64_t x = next_random(&seed);
    cy_scalar s = {.u = x >> 33 & (cls == 'B' || cy_dtype_of(t)->bits == 2 ? 1 : 3)};
    if (cls == 'F')
      s.f = (double)(int64_t)(x >> 11) * 0x1p-52 - 1;
    cy_scalar_store(bytes, t, i, s);
  }
}

static bool read_elements(parser *r, void *bytes, cy_dtype t, uint64_t n) {
  char cls = cy_dtype_of(t)->cls;
  for (uint64_t i = 0; i < n && !r->failed; i++) {
    cy_scalar s = {.u = 0};
    if (i && !expect(r, ","))
      return false;
    skip(r);
    if (cls == 'F') {
      s.f = read_double(r);
    } else if (cls == 'S') {
      uint32_t text = 0;
      if (!cy_text_parse(r->g, r->p, &r->p, &text))
        return fail(r, "expected a text in double quotes");
      s.u = text;
    } else if (cls == 'U') {
      char *end;
      s.u = strtoull(r->p, &end, 0);
      if (end == r->p)
        return fail(r, "expected a number");
      r->p = end;
    } else {
      s.i = read_int(r);
    }
    cy_scalar_store(bytes, t, i, s);
  }
  return expect(r, "}");
}

static bool read_const(parser *r, const char *name) {
  typed t;
  uint64_t n;
  if (!read_type(r, &t))
    return false;
  cy_dtype dtype = (cy_dtype)t.type.dtype;
  char cls = cy_dtype_of(dtype)->cls;
  if (!cy_type_static_count(r->g, &t.type, &n) || cy_dtype_bytes(dtype, n) > MAX_BYTES)
    return fail(r, "expected a constant of a known size below 2 GiB");
  uint64_t size = cy_dtype_bytes(dtype, n), seed = 0;
  void *bytes = cy_arena_alloc(r->g->arena, size + 8);
  if (accept(r, "data")) {
    char *end;
    expect(r, "(");
    seed = strtoull(r->p, &end, 0);
    if (end == r->p || seed == 0)
      return fail(r, "expected a number other than 0");
    r->p = end;
    expect(r, ")");
    if ((r->random += n) > MAX_RANDOM)
      return fail(r, "expected at most 268435456 elements by data(..) in a graph");
    if (cls != 'S' && cls != 'C' && cls != 'R')
      fill_random(bytes, dtype, n, seed);
  } else if (!expect(r, "{") || cls == 'C' || !read_elements(r, bytes, dtype, n)) {
    return fail(r, "expected elements or data(0x..)");
  }
  cy_val v = cy_build_const(r->g, &t.type, bytes, size);
  ((cy_value_slot *)cy_chunks_at(&r->g->values, v))->seed = seed;
  return define(r, name, v, &t);
}

/* `; from "Conv_3"` behind a node. */
static cy_str read_origin(parser *r) {
  const char *end, *name = r->from ? cy_text_read_name(r->g->arena, r->from, &end) : NULL;
  return name ? cy_intern(r->g, name) : 0;
}

typedef struct line {
  const char **names; /* of the outputs */
  cy_val *in;
  typed *types;
  cy_attr *attrs;
  uint32_t nout, nin, ntypes, nattrs;
  cy_op op;
  const char *start;
} line;

static bool read_operands(parser *r, line *l) {
  skip(r);
  if (*r->p != '%' && *r->p != '@' && *r->p != '_')
    return true;
  do {
    l->in = room(r, l->in, l->nin, sizeof *l->in);
    l->in[l->nin++] = read_value(r);
  } while (!r->failed && accept(r, ","));
  return !r->failed;
}

static bool read_attrs(parser *r, line *l) {
  if (!accept(r, "{"))
    return true;
  do {
    l->attrs = room(r, l->attrs, l->nattrs, sizeof *l->attrs);
    if (!read_attr(r, l->op, &l->attrs[l->nattrs++]))
      return false;
  } while (accept(r, ","));
  return expect(r, "}");
}

static bool read_types(parser *r, line *l) {
  if (!accept(r, ":"))
    return true;
  do {
    l->types = room(r, l->types, l->ntypes, sizeof *l->types);
    if (!read_type(r, &l->types[l->ntypes++]))
      return false;
  } while (accept(r, ","));
  return true;
}

static cy_origin line_origin(parser *r, const char *op) {
  return (cy_origin){.index = -1, .pass = cy_arena_printf(r->g->arena, "line %d: op '%s'", line_number(r), op)};
}

static bool make_node(parser *r, line *l) {
  cy_graph *g = r->g;
  const cy_op_info *info = cy_op_of(l->op);
  cy_type *types = CY_NEW_ARRAY(r->scratch, cy_type, l->ntypes);
  for (uint32_t k = 0; k < l->ntypes; k++)
    types[k] = l->types[k].type;
  if ((int)l->nin < info->min_in || (info->max_in >= 0 && (int)l->nin > info->max_in))
    return fail(r, "op '%s' cannot have %u inputs", info->name, l->nin);
  if ((info->outs >= 0 && (int)l->nout != info->outs) || (l->ntypes && l->ntypes != l->nout))
    return fail(r, "op '%s' has another number of outputs or types", info->name);
  if (l->ntypes == 0 && l->nout && info->typed)
    return fail(r, "op '%s' needs the types of its outputs", info->name);
  for (uint32_t k = 0; k < l->nin; k++)
    if (l->in[k] == 0 && !cy_op_input_optional(l->op, k))
      return fail(r, "op '%s' needs its input %u", info->name, k);
  g->origin = line_origin(r, info->name);
  cy_node n = cy_node_create(g, l->op, l->in, l->nin, l->attrs, l->nattrs, l->ntypes ? types : NULL, l->nout);
  g->origin = (cy_origin){.index = -1};
  if (!n) {
    r->failed = true;
    return false;
  }
  cy_node_info *node = &cy_node_slot_of(g, n)->n;
  node->origin = (cy_origin){.name = read_origin(r), .index = -1};
  for (uint32_t k = 0; k < l->nout; k++) {
    const cy_type *t = &cy_value_of(g, node->out[k])->type;
    if (l->ntypes && !cy_type_equal(t, &types[k]))
      return fail(r, "expected the type %s, not %s, of '%s'", cy_type_text(g, t), cy_type_text(g, &types[k]),
                  l->names[k]);
    if (!define(r, l->names[k], node->out[k], l->ntypes ? &l->types[k] : NULL))
      return false;
  }
  cy_fold_elems(g, n);
  cy_node_insert(g, n);
  return true;
}

static bool read_line(parser *r) {
  line *l = CY_NEW(r->scratch, line);
  skip(r);
  r->from = NULL;
  l->start = r->p;
  do {
    l->names = room(r, l->names, l->nout, sizeof *l->names);
    l->names[l->nout++] = read_value_name(r);
  } while (!r->failed && accept(r, ","));
  if (!expect(r, "="))
    return false;
  skip(r);
  if (l->nout == 1 && accept(r, "const"))
    return read_const(r, l->names[0]);
  size_t n = 0;
  while (isalnum((unsigned char)r->p[n]) || r->p[n] == '_')
    n++;
  l->op = cy_op_by_name(r->p, n);
  if (l->op == CY_OP_NONE)
    return fail(r, "expected an op");
  r->p += n;
  if (!read_operands(r, l) || !read_attrs(r, l) || !read_types(r, l))
    return false;
  const char *end = r->p;
  r->p = l->start; /* where errors are reported */
  bool ok = make_node(r, l);
  r->p = ok ? end : r->p;
  return ok;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static bool read_params(parser *r, cy_block b) {
  if (!expect(r, "("))
    return false;
  for (bool first = true; !accept(r, ")"); first = false) {
    if (!first && !expect(r, ","))
      return false;
    const char *name = read_value_name(r);
    typed t;
    if (r->failed || !expect(r, ":") || !read_type(r, &t))
      return false;
    cy_val v = b == 1 ? cy_graph_add_input(r->g, name, &t.type) : cy_block_add_param(r->g, b, &t.type, name);
    if (!define(r, name, v, &t))
      return false;
  }
  return true;
}

/* `return`'s operands; with port names for the model. */
static bool read_results(parser *r, cy_block b) {
  cy_val *list = NULL;
  uint32_t n = 0;
  while (!accept(r, "}")) {
    const char *port = NULL;
    if (n && !expect(r, ","))
      return false;
    list = room(r, list, n, sizeof *list);
    skip(r);
    if (b == 1 && *r->p != '%' && *r->p != '@') {
      port = read_name(r);
      expect(r, "=");
    }
    cy_val v = list[n++] = r->failed ? 0 : read_value(r);
    if (!v)
      return fail(r, "expected a value");
    if (b == 1)
      cy_graph_add_output(r->g, port ? port : cy_str_text(r->g, cy_value_of(r->g, v)->name), v);
  }
  if (b != 1)
    cy_block_set_results(r->g, b, list, n);
  return true;
}

static bool read_body(parser *r, cy_block b) {
  if (!read_params(r, b) || !expect(r, "{"))
    return false;
  while (!accept(r, "return"))
    if (!read_line(r))
      return false;
  return read_results(r, b);
}

static cy_block read_block(parser *r) {
  cy_block outer = cy_build_block(r->g), b = cy_block_create(r->g, outer);
  if (++r->nesting > MAX_NESTING) {
    fail(r, "expected blocks nested at most %d deep", MAX_NESTING);
    return b;
  }
  cy_build_in(r->g, b);
  read_body(r, b);
  cy_build_in(r->g, outer);
  r->from = NULL;
  r->nesting--;
  return b;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static bool read_sym(parser *r) {
  cy_sym_kind kind = CY_SYM_INPUT;
  skip(r);
  const char *name = read_name(r), *value = NULL;
  int64_t index = 0;
  if (accept(r, "=")) {
    kind = accept(r, "data") ? CY_SYM_DATA : accept(r, "count") ? CY_SYM_COUNT : CY_SYM_FREE;
    if (kind == CY_SYM_FREE && !expect(r, "free"))
      return false;
    if (kind != CY_SYM_FREE && accept(r, "(")) {
      value = read_value_name(r);
      expect(r, ",");
      index = read_int(r);
      expect(r, ")");
    }
  }
  if (r->failed)
    return false;
  if (cy_sym_find(r->g, name, strlen(name)))
    return fail(r, "symbol '%s' is declared twice", name);
  cy_sym s = cy_sym_new(r->g, name, kind);
  cy_sym_info *info = cy_sym_of(r->g, s);
  info->index = index;
  if (accept(r, ">="))
    info->min = read_int(r);
  if (accept(r, "<="))
    info->max = read_int(r);
  if (value) {
    pending *q = CY_NEW(r->scratch, pending);
    *q = (pending){value, s, r->pendings};
    r->pendings = q;
  }
  return !r->failed;
}

static bool read_metadata(parser *r) {
  skip(r);
  const char *key = read_name(r);
  if (!expect(r, "="))
    return false;
  skip(r);
  const char *value = read_name(r);
  if (!r->failed)
    cy_graph_add_metadata(r->g, key, value);
  return !r->failed;
}

static bool read_graph(parser *r) {
  while (accept(r, "meta"))
    if (!read_metadata(r))
      return false;
  while (accept(r, "sym"))
    if (!read_sym(r))
      return false;
  if (!expect(r, "graph") || !expect(r, "@"))
    return false;
  cy_graph_set_name(r->g, read_name(r));
  if (r->failed || !read_body(r, 1))
    return false;
  skip(r);
  return *r->p == 0 || fail(r, "expected the end");
}

cy_graph *cy_graph_parse(const char *text, size_t len, const char *file, cy_diag_sink *diag) {
  cy_graph *g = cy_graph_create(diag, file);
  cy_arena *scratch = cy_arena_create();
  char *copy = cy_arena_alloc(scratch, len + 1), why[512];
  memcpy(copy, text, len);
  parser r = {.g = g, .scratch = scratch, .start = copy, .p = copy};
  bool ok = read_graph(&r);
  if (ok && !cy_graph_verify(g, why, sizeof why)) {
    cy_location where = {.file = g->file ? g->file : "graph", .node_index = -1};
    cy_diag_add(diag, CY_ERROR, &where, "%s", why);
    ok = false;
  }
  cy_arena_destroy(scratch);
  if (ok)
    return g;
  cy_graph_destroy(g);
  return NULL;
}
