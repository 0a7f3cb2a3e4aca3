/* SPDX-License-Identifier: Apache-2.0 */
/* values.c - what values other than tensors of numbers need at compile time: texts of strings, and descriptions of what
 * a sequence, map or optional value holds.
 *
 * In: bytes, descriptions. Out: small numbers, equal for equal contents. Elements of a string tensor are numbers of
 * texts, so that every op that only moves or compares elements works on strings as on integers. A sequence, map or
 * optional value is a scalar of type ref whatever it holds; cy_type.content is the number of its description. Text form
 * of a description: seq(f32[?,3])  opt(seq(i64[*]))  seq(map(string,f32)); ? is any size, [*] any rank, [-] is of a
 * sequence into which nothing was put.
 */
#include "ir_int.h"

#include <ctype.h>
#include <stdlib.h>

#define MAX_NESTING 8
#define MAX_CONTENTS 60000

/* ---- texts ------------------------------------------------------------------------------------------------------- */

typedef struct text_key {
  const cy_graph *g;
  const void *bytes;
  size_t length;
  uint32_t hash;
} text_key;

static cy_text_slot *text_slot(const cy_graph *g, uint32_t text) { return cy_chunks_at(&g->texts, text); }

static bool text_same(void *ctx, uint32_t id) {
  const text_key *k = ctx;
  const cy_text_slot *s = text_slot(k->g, id);
  return s->hash == k->hash && s->length == k->length && memcmp(s->text, k->bytes, k->length) == 0;
}

static uint32_t text_hash(void *ctx, uint32_t id) { return text_slot(ctx, id)->hash; }

uint32_t cy_text_add(cy_graph *g, const void *bytes, size_t length) {
  if (length == 0)
    return 0;
  cy_id_table_room(&g->text_table, g->arena, text_hash, g);
  text_key key = {g, bytes, length, cy_hash_bytes(2, bytes, length)};
  uint32_t *slot = cy_id_table_find(&g->text_table, key.hash, text_same, &key);
  if (*slot)
    return *slot;
  *slot = cy_chunks_add(&g->texts, g->arena);
  g->text_table.used++;
  char *copy = cy_arena_alloc(g->arena, length + 1);
  memcpy(copy, bytes, length);
  *text_slot(g, *slot) = (cy_text_slot){copy, length, key.hash};
  return *slot;
}

const char *cy_text_of(const cy_graph *g, uint32_t text, size_t *out_length) {
  if (text > g->texts.count)
    cy_bug("text %u of %u", text, g->texts.count);
  const cy_text_slot *s = text_slot(g, text);
  *out_length = s->length;
  return s->text ? s->text : "";
}

uint32_t cy_text_count(const cy_graph *g) { return g->texts.count + 1; }

void cy_text_print(const cy_graph *g, FILE *out, uint32_t text) {
  size_t n;
  const char *p = cy_text_of(g, text, &n);
  cy_text_quote(out, p, n);
}

bool cy_text_parse(cy_graph *g, const char *text, const char **out_end, uint32_t *out_text) {
  if (*text != '"')
    return false;
  const char *end = text + 1;
  while (*end && *end != '"')
    end += *end == '\\' && end[1] ? 2 : 1;
  if (*end != '"')
    return false;
  char *bytes = malloc((size_t)(end - text) + 1);
  size_t n = 0;
  if (!bytes)
    cy_no_memory();
  for (const char *p = text + 1; p < end;) {
    if (*p == '\\' && p[1] == 'x' && isxdigit((unsigned char)p[2]) && isxdigit((unsigned char)p[3])) {
      char hex[3] = {p[2], p[3], 0};
      bytes[n++] = (char)strtol(hex, NULL, 16);
      p += 4;
    } else {
      p += *p == '\\';
      bytes[n++] = *p++;
    }
  }
  *out_text = cy_text_add(g, bytes, n);
  *out_end = end + 1;
  free(bytes);
  return true;
}

/* ---- descriptions ------------------------------------------------------------------------------------------------ */

static cy_content_info *content_slot(const cy_graph *g, cy_content c) {
  return &((cy_content_slot *)cy_chunks_at(&g->contents, c))->info;
}

cy_content cy_content_add(cy_graph *g, const cy_content_info *info) {
  cy_content_info want; /* padding and dims behind the rank do not count */
  memset(&want, 0, sizeof want);
  want.kind = info->kind;
  want.key = info->kind == CY_CONTENT_MAP ? info->key : 0;
  want.item = info->item;
  want.dtype = info->item ? 0 : info->dtype;
  want.rank = info->item ? 0 : info->rank;
  for (int i = 0; i < want.rank && want.rank <= CY_MAX_RANK; i++)
    want.dim[i] = info->dim[i];
  for (uint32_t c = 1; c <= g->contents.count; c++)
    if (memcmp(content_slot(g, (cy_content)c), &want, sizeof want) == 0)
      return (cy_content)c;
  if (g->contents.count == MAX_CONTENTS)
    cy_bug("more than %d kinds of sequences, maps and optional values", MAX_CONTENTS);
  cy_content c = (cy_content)cy_chunks_add(&g->contents, g->arena);
  memcpy(content_slot(g, c), &want, sizeof want);
  return c;
}

const cy_content_info *cy_content_of(const cy_graph *g, cy_content c) {
  if (c == 0 || c > g->contents.count)
    cy_bug("content %u of %u", c, g->contents.count);
  return content_slot(g, c);
}

bool cy_content_join(cy_graph *g, cy_content a, cy_content b, cy_content *out) {
  *out = a;
  if (a == b)
    return true;
  const cy_content_info *x = cy_content_of(g, a), *y = cy_content_of(g, b);
  cy_content_info both = *x;
  if (x->kind != y->kind || x->key != y->key || !x->item != !y->item || x->dtype != y->dtype)
    return false;
  if (x->item && !cy_content_join(g, x->item, y->item, &both.item))
    return false;
  if (y->rank != CY_NO_RANK && x->rank != CY_NO_RANK) {
    both.rank = x->rank == y->rank ? x->rank : CY_ANY_RANK;
    for (int i = 0; i < CY_MAX_RANK; i++)
      both.dim[i] = x->dim[i] == y->dim[i] ? x->dim[i] : -1;
  } else if (x->rank == CY_NO_RANK && !x->item) {
    both = *y;
  }
  *out = cy_content_add(g, &both);
  return true;
}

static const char *const kind_names[] = {"seq", "opt", "map"};

static char *tensor_text(const cy_graph *g, const cy_content_info *info) {
  char *s = cy_arena_printf(g->arena, "%s[%s", cy_dtype_of((cy_dtype)info->dtype)->name,
                            info->rank == CY_ANY_RANK  ? "*"
                            : info->rank == CY_NO_RANK ? "-"
                                                       : "");
  for (int i = 0; i < info->rank && info->rank <= CY_MAX_RANK; i++)
    s = info->dim[i] < 0 ? cy_arena_printf(g->arena, "%s%s?", s, i ? "," : "")
                         : cy_arena_printf(g->arena, "%s%s%lld", s, i ? "," : "", (long long)info->dim[i]);
  return cy_arena_printf(g->arena, "%s]", s);
}

const char *cy_content_text(const cy_graph *g, cy_content c) {
  const cy_content_info *info = cy_content_of(g, c);
  const char *item = info->item ? cy_content_text(g, info->item) : tensor_text(g, info);
  if (info->kind == CY_CONTENT_MAP)
    return cy_arena_printf(g->arena, "map(%s,%s)", cy_dtype_of((cy_dtype)info->key)->name,
                           info->item ? item : cy_dtype_of((cy_dtype)info->dtype)->name);
  return cy_arena_printf(g->arena, "%s(%s)", kind_names[info->kind], item);
}

/* ---- reading them ------------------------------------------------------------------------------------------------ */

static cy_dtype parse_dtype(const char **p) {
  size_t n = 0;
  while (isalnum((unsigned char)(*p)[n]))
    n++;
  cy_dtype t = cy_dtype_by_name(*p, n);
  *p += n;
  return t == CY_REF ? CY_NONE : t;
}

static bool parse_char(const char **p, char c) {
  *p += strspn(*p, " \t\r\n");
  bool there = **p == c;
  *p += there;
  return there;
}

/* "[2,?]", "[*]" */
static bool parse_dims(const char **p, cy_content_info *info) {
  if (!parse_char(p, '['))
    return false;
  if (**p == '*' || **p == '-') {
    info->rank = **p == '*' ? CY_ANY_RANK : CY_NO_RANK;
    ++*p;
    return parse_char(p, ']');
  }
  while (**p != ']') {
    if (info->rank == CY_MAX_RANK || (info->rank && !parse_char(p, ',')))
      return false;
    bool any = parse_char(p, '?');
    char *end = (char *)*p;
    int64_t size = any ? -1 : strtoll(*p, &end, 10);
    if (!any && (end == *p || size < 0))
      return false;
    info->dim[info->rank++] = size;
    *p = end;
  }
  return parse_char(p, ']');
}

/* "seq(", "opt(", "map(": which; 3: none of them */
static int parse_kind(const char *p) {
  int kind = 0;
  while (kind < 3 && (strncmp(p, kind_names[kind], 3) != 0 || p[3] != '('))
    kind++;
  return kind;
}

static cy_content parse_content(cy_graph *g, const char **p, int depth) {
  cy_content_info info = {0};
  int kind = parse_kind(*p);
  if (kind == 3 || depth == MAX_NESTING)
    return 0;
  info.kind = (uint8_t)kind;
  *p += 4;
  if (kind == CY_CONTENT_MAP && (!(info.key = (uint8_t)parse_dtype(p)) || !parse_char(p, ',')))
    return 0;
  *p += strspn(*p, " ");
  if (parse_kind(*p) < 3) {
    if (!(info.item = parse_content(g, p, depth + 1)))
      return 0;
  } else if (!(info.dtype = (uint8_t)parse_dtype(p)) || (kind != CY_CONTENT_MAP && !parse_dims(p, &info))) {
    return 0;
  }
  return parse_char(p, ')') ? cy_content_add(g, &info) : 0;
}

cy_content cy_content_parse(cy_graph *g, const char *text, const char **out_end) {
  *out_end = text;
  return parse_content(g, out_end, 0);
}
