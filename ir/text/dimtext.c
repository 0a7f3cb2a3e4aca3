/* SPDX-License-Identifier: Apache-2.0 */
/* dimtext.c - dims and names as text, both ways.
 *
 *   dim    := term (("+" | "-") term)*
 *   term   := factor (("*" | "/" | "%") factor)*         / and % round down
 *   factor := number | name | "-" factor | "(" dim ")" | ("min" | "max") "(" dim "," dim ")"
 *   name   := [A-Za-z_][A-Za-z0-9_.]* | '"' (any | \" | \\ | \xHH)* '"'
 *
 * Reading simplifies as the arithmetic does, so printing what was read yields the same text. Unknown names become input
 * symbols.
 */
#include "ir/dims/dims_int.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>

#define MAX_DEPTH 200

bool cy_name_is_plain(const char *name) {
  if (!isalpha((unsigned char)*name) && *name != '_')
    return false;
  for (; *name; name++)
    if (!isalnum((unsigned char)*name) && *name != '_' && *name != '.')
      return false;
  return true;
}

void cy_text_quote(FILE *out, const char *text, size_t bytes) {
  fputc('"', out);
  for (; bytes > 0; bytes--, text++) {
    unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\')
      fprintf(out, "\\%c", c);
    else if (c < 32 || c == 127)
      fprintf(out, "\\x%02x", c);
    else
      fputc(c, out);
  }
  fputc('"', out);
}

void cy_text_name(FILE *out, const char *name) {
  if (cy_name_is_plain(name))
    fputs(name, out);
  else
    cy_text_quote(out, name, strlen(name));
}

static const char *read_quoted(cy_arena *a, const char *p, const char **out_end) {
  char *text = cy_arena_alloc(a, strlen(p) + 1);
  size_t n = 0;
  while (*p && *p != '"') {
    if (*p == '\\' && p[1] == 'x' && isxdigit((unsigned char)p[2]) && isxdigit((unsigned char)p[3])) {
      char hex[3] = {p[2], p[3], 0};
      text[n++] = (char)strtol(hex, NULL, 16);
      p += 4;
    } else {
      p += *p == '\\' && p[1];
      text[n++] = *p++;
    }
  }
  if (*p != '"')
    return NULL;
  *out_end = p + 1;
  return text;
}

const char *cy_text_read_name(cy_arena *a, const char *text, const char **out_end) {
  const char *p = text;
  if (*p == '"')
    return read_quoted(a, p + 1, out_end);
  if (!isalpha((unsigned char)*p) && *p != '_')
    return NULL;
  while (isalnum((unsigned char)*p) || *p == '_' || *p == '.')
    p++;
  char *name = cy_arena_alloc(a, (size_t)(p - text) + 1);
  memcpy(name, text, (size_t)(p - text));
  *out_end = p;
  return name;
}

/* ---- out --------------------------------------------------------------------------------------------------------- */

static void print_symbol(const cy_graph *g, FILE *out, cy_sym s) {
  const char *name = cy_str_text(g, cy_sym_of(g, s)->name);
  if (strcmp(name, "min") == 0 || strcmp(name, "max") == 0)
    fprintf(out, "\"%s\"", name);
  else
    cy_text_name(out, name);
}

static bool is_simple(const cy_graph *g, cy_dim d) { /* needs no parentheses under * and / */
  const cy_term *t;
  int n = cy_dim_terms(g, d, &t);
  if (n == 0)
    return true;
  if (n > 1 || t[0].coef < 0)
    return false;
  return t[0].natoms == 0 || (t[0].natoms == 1 && t[0].coef == 1 && cy_dim_atom(g, t[0].atoms[0])->kind == CY_ATOM_SYM);
}

static void print_operand(const cy_graph *g, FILE *out, cy_dim d) {
  bool bare = is_simple(g, d);
  fputs(bare ? "" : "(", out);
  cy_dim_print(g, out, d);
  fputs(bare ? "" : ")", out);
}

static void print_atom(const cy_graph *g, FILE *out, uint32_t id, bool alone) {
  const cy_atom *a = cy_dim_atom(g, id);
  switch (a->kind) {
  case CY_ATOM_SYM: print_symbol(g, out, a->sym); break;
  case CY_ATOM_MIN:
  case CY_ATOM_MAX:
  case CY_ATOM_JOIN:
    fputs(a->kind == CY_ATOM_MIN ? "min(" : a->kind == CY_ATOM_MAX ? "max(" : "join(", out);
    cy_dim_print(g, out, a->a);
    fputc(',', out);
    cy_dim_print(g, out, a->b);
    fputc(')', out);
    break;
  case CY_ATOM_DIV:
  case CY_ATOM_MOD:
    fputs(alone ? "" : "(", out);
    print_operand(g, out, a->a);
    fputc(a->kind == CY_ATOM_DIV ? '/' : '%', out);
    print_operand(g, out, a->b);
    fputs(alone ? "" : ")", out);
    break;
  }
}

void cy_dim_print(const cy_graph *g, FILE *out, cy_dim d) {
  const cy_term *t;
  int n = cy_dim_terms(g, d, &t);
  if (n == 0)
    fputc('0', out);
  for (int i = 0; i < n; i++) {
    uint64_t size = t[i].coef < 0 ? 0 - (uint64_t)t[i].coef : (uint64_t)t[i].coef;
    fputs(t[i].coef < 0 ? "-" : i ? "+" : "", out);
    bool number = size != 1 || t[i].natoms == 0;
    if (number)
      fprintf(out, "%" PRIu64, size);
    for (int k = 0; k < t[i].natoms; k++) {
      if (k || number)
        fputc('*', out);
      print_atom(g, out, t[i].atoms[k], !number && t[i].natoms == 1 && t[i].coef == 1);
    }
  }
}

const char *cy_dim_text(cy_graph *g, cy_dim d) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  if (!out)
    cy_no_memory();
  cy_dim_print(g, out, d);
  fclose(out);
  const char *copy = cy_arena_copy(g->arena, text, size + 1);
  free(text);
  return copy;
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */

typedef struct reader {
  cy_graph *g;
  const char *p;
  int depth;
  bool failed;
} reader;

static cy_dim read_dim(reader *r);

static bool accept(reader *r, char c) {
  while (*r->p == ' ')
    r->p++;
  if (*r->p != c)
    return false;
  r->p++;
  return true;
}

static cy_dim fail(reader *r) {
  r->failed = true;
  return cy_dim_const(r->g, 0);
}

static cy_dim read_number(reader *r) {
  uint64_t v = 0;
  for (; isdigit((unsigned char)*r->p); r->p++)
    if (!cy_mul_size(v, 10, &v) || !cy_add_size(v, (uint64_t)(*r->p - '0'), &v))
      return fail(r);
  return v > (uint64_t)INT64_MAX + 1 ? fail(r) : cy_dim_const(r->g, (int64_t)v);
}

static cy_dim read_call(reader *r, cy_atom_kind kind) {
  cy_dim a = read_dim(r);
  if (!accept(r, ','))
    return fail(r);
  cy_dim b = read_dim(r);
  return accept(r, ')') && !r->failed ? cy_dim_binary(r->g, kind, a, b) : fail(r);
}

static cy_dim read_name(reader *r) {
  bool quoted = *r->p == '"';
  const char *name = cy_text_read_name(r->g->arena, r->p, &r->p);
  if (!name)
    return fail(r);
  static const struct {
    const char *name;
    cy_atom_kind kind;
  } calls[] = {{"min", CY_ATOM_MIN}, {"max", CY_ATOM_MAX}, {"join", CY_ATOM_JOIN}};
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
    if (!quoted && strcmp(name, calls[i].name) == 0 && accept(r, '('))
      return read_call(r, calls[i].kind);
  cy_sym s = cy_sym_find(r->g, name, strlen(name));
  return cy_dim_sym(r->g, s ? s : cy_sym_new(r->g, name, CY_SYM_INPUT));
}

static cy_dim read_factor(reader *r) {
  cy_dim d;
  if (r->failed || r->depth > MAX_DEPTH)
    return fail(r);
  r->depth++;
  if (accept(r, '-'))
    d = cy_dim_muli(r->g, read_factor(r), -1);
  else if (accept(r, '('))
    d = read_dim(r), d = accept(r, ')') ? d : fail(r);
  else if (isdigit((unsigned char)*r->p))
    d = read_number(r);
  else
    d = read_name(r);
  r->depth--;
  return d;
}

static cy_dim read_term(reader *r) {
  cy_dim d = read_factor(r);
  for (;;) {
    if (accept(r, '*'))
      d = cy_dim_mul(r->g, d, read_factor(r));
    else if (accept(r, '/'))
      d = cy_dim_div(r->g, d, read_factor(r));
    else if (accept(r, '%'))
      d = cy_dim_mod(r->g, d, read_factor(r));
    else
      return d;
  }
}

static cy_dim read_dim(reader *r) {
  cy_dim d = read_term(r);
  while (!r->failed) {
    if (accept(r, '+'))
      d = cy_dim_add(r->g, d, read_term(r));
    else if (accept(r, '-'))
      d = cy_dim_sub(r->g, d, read_term(r));
    else
      break;
  }
  return d;
}

cy_dim cy_dim_parse(cy_graph *g, const char *text, const char **out_end) {
  reader r = {g, text, 0, false};
  cy_dim d = read_dim(&r);
  if (out_end)
    *out_end = r.p;
  return r.failed ? 0 : d;
}
