/* SPDX-License-Identifier: Apache-2.0 */
/* regex.c - regular expressions in RE2's syntax to programs for the runtime's string_match (cy_rx of ir.h).
 *
 * In:  a pattern as RegexFullMatch has it. Out: int32 words: instructions of three, then the ranges of the classes; or
 * a text about what is wrong. The whole string must match and only whether it does is asked, so groups capture nothing
 * and lazy repetition means the same as greedy one. Supported: literals, . [..] [^..] [[:alpha:]], \d \D \w \W \s \S
 * (ASCII, as in RE2), \b \B \A \z ^ $, \t \n \r \f \v \a \xHH \x{..} \0 octal \Q..\E, ( ) (?: ) (?P<n> ) (?<n> ), |, *
 * + ? {n} {n,} {n,m} (1000 at most) each with ?, the flags i m s U in (?i) and (?i: ). Not: \p{..} classes, \C, and i
 * for letters beyond ASCII; RE2 itself has neither back-references nor looking around.
 */
#include "regex.h"

#include <ctype.h>
#include <string.h>

enum {
  MAX_WORDS = 300000,
  MAX_REPEAT = 1000,
  MAX_DEPTH = 200,
  MAX_LENGTH = 20000,
  MAX_RANGES = 512,
  LAST_CHAR = 0x10ffff
};
enum { FLAG_I = 1, FLAG_M = 2, FLAG_S = 4 };
static const char NO_FOLDING[] = "the flag i is supported for ASCII letters only; write both cases of others in [ ]";

typedef enum node_kind { EMPTY, CLASS, ASSERT, CAT, ALT, REPEAT } node_kind;

typedef struct node {
  node_kind kind;
  int32_t low, high;  /* REPEAT: high -1: no end. ASSERT: low is the kind */
  struct node *a, *b; /* CAT, ALT; REPEAT: a */
  int32_t *ranges, n; /* CLASS: pairs, and how many */
  bool negated;
} node;

typedef struct regex {
  cy_arena *arena;
  const char *p, *end;
  const char *error;
  int flags, depth;
  int32_t *words;
  uint32_t nwords, capacity;
} regex;

static node *parse_alternatives(regex *r);

static node *wrong(regex *r, const char *text) {
  if (!r->error)
    r->error = text;
  return NULL;
}

static node *make(regex *r, node_kind kind, node *a, node *b) {
  node *n = CY_NEW(r->arena, node);
  n->kind = kind;
  n->a = a;
  n->b = b;
  return n;
}

/* ---- classes ----------------------------------------------------------------------------------------------------- */

typedef struct ranges {
  int32_t pair[2 * MAX_RANGES], n;
} ranges;

static void add_range(regex *r, ranges *c, int32_t low, int32_t high) {
  if (c->n == MAX_RANGES) {
    wrong(r, "a class has too many ranges");
    return;
  }
  c->pair[2 * c->n] = low;
  c->pair[2 * c->n + 1] = high;
  c->n++;
}

/* The parts between the ranges, which are in order and do not touch. */
static void add_others(regex *r, ranges *c, const int32_t *pairs, int n) {
  int32_t from = 0;
  for (int i = 0; i < n; i++) {
    if (pairs[2 * i] > from)
      add_range(r, c, from, pairs[2 * i] - 1);
    from = pairs[2 * i + 1] + 1;
  }
  add_range(r, c, from, LAST_CHAR);
}

static const struct {
  const char *name;
  int n;
  int32_t pairs[8];
} named[] = {
    {"d", 1, {'0', '9'}},
    {"s", 3, {'\t', '\n', '\f', '\r', ' ', ' '}},
    {"w", 4, {'0', '9', 'A', 'Z', '_', '_', 'a', 'z'}},
    {"[:alnum:]", 3, {'0', '9', 'A', 'Z', 'a', 'z'}},
    {"[:alpha:]", 2, {'A', 'Z', 'a', 'z'}},
    {"[:ascii:]", 1, {0, 127}},
    {"[:blank:]", 2, {'\t', '\t', ' ', ' '}},
    {"[:cntrl:]", 2, {0, 31, 127, 127}},
    {"[:digit:]", 1, {'0', '9'}},
    {"[:graph:]", 1, {33, 126}},
    {"[:lower:]", 1, {'a', 'z'}},
    {"[:print:]", 1, {32, 126}},
    {"[:punct:]", 4, {33, 47, 58, 64, 91, 96, 123, 126}},
    {"[:space:]", 2, {'\t', '\r', ' ', ' '}},
    {"[:upper:]", 1, {'A', 'Z'}},
    {"[:word:]", 4, {'0', '9', 'A', 'Z', '_', '_', 'a', 'z'}},
    {"[:xdigit:]", 3, {'0', '9', 'A', 'F', 'a', 'f'}},
};

/* Adds the named class, or all but it. */
static bool add_named(regex *r, ranges *c, const char *name, size_t length, bool others) {
  for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
    if (strlen(named[i].name) != length || memcmp(named[i].name, name, length) != 0)
      continue;
    if (others)
      add_others(r, c, named[i].pairs, named[i].n);
    for (int k = 0; k < named[i].n && !others; k++)
      add_range(r, c, named[i].pairs[2 * k], named[i].pairs[2 * k + 1]);
    return true;
  }
  return false;
}

static node *class_node(regex *r, ranges *c, bool negated) {
  bool fold = r->flags & FLAG_I;
  for (int32_t i = 0, n = c->n; i < n && fold; i++) { /* letters bring their other case along */
    int32_t low = c->pair[2 * i], high = c->pair[2 * i + 1];
    if (low == high && low > 127)
      return wrong(r, NO_FOLDING);
    for (int32_t ch = low < 'A' ? 'A' : low; ch <= high && ch <= 'z'; ch++)
      if (isalpha(ch))
        add_range(r, c, ch ^ 32, ch ^ 32);
  }
  node *n = make(r, CLASS, NULL, NULL);
  n->ranges = cy_arena_copy(r->arena, c->pair, sizeof *c->pair * 2 * (size_t)(c->n ? c->n : 1));
  n->n = c->n;
  n->negated = negated;
  return r->error ? NULL : n;
}

static node *char_node(regex *r, int32_t ch) {
  ranges c = {{ch, ch}, 1};
  return class_node(r, &c, false);
}

/* ---- characters -------------------------------------------------------------------------------------------------- */

static int32_t next_char(regex *r) {
  const unsigned char *p = (const unsigned char *)r->p;
  int more = *p < 0x80 ? 0 : *p >= 0xf0 ? 3 : *p >= 0xe0 ? 2 : *p >= 0xc0 ? 1 : -1;
  int32_t ch = more <= 0 ? *p : *p & (0x3f >> more);
  if (more < 0 || r->end - r->p <= more) {
    wrong(r, "the pattern is no valid UTF-8");
    r->p = r->end;
    return 0;
  }
  for (int i = 1; i <= more; i++)
    ch = ch << 6 | (p[i] & 0x3f);
  r->p += 1 + more;
  return ch;
}

static bool at(const regex *r, const char *text) {
  size_t n = strlen(text);
  return (size_t)(r->end - r->p) >= n && memcmp(r->p, text, n) == 0;
}

static bool eat(regex *r, const char *text) {
  bool there = at(r, text);
  r->p += there ? strlen(text) : 0;
  return there;
}

static int hex_digit(char c) { return isdigit((unsigned char)c) ? c - '0' : (c | 32) - 'a' + 10; }

static int32_t hex_char(regex *r) {
  bool braces = eat(r, "{");
  int32_t ch = 0;
  int n = 0;
  for (; r->p < r->end && isxdigit((unsigned char)*r->p) && n < (braces ? 6 : 2); n++)
    ch = ch * 16 + hex_digit(*r->p++);
  if (n < (braces ? 1 : 2) || (braces && !eat(r, "}")) || ch > LAST_CHAR)
    wrong(r, "\\x needs two hexadecimal digits, or up to six in braces");
  return ch;
}

/* The character behind a backslash that stands for one character. */
static int32_t escaped_char(regex *r) {
  static const char letters[] = "tnrfva", codes[] = "\t\n\r\f\v\a";
  char c = *r->p;
  const char *known = c ? strchr(letters, c) : NULL;
  if (known) {
    r->p++;
    return codes[known - letters];
  }
  if (eat(r, "x"))
    return hex_char(r);
  if (c == '0') {
    int32_t ch = 0;
    for (int n = 0; n < 3 && r->p < r->end && *r->p >= '0' && *r->p <= '7'; n++)
      ch = ch * 8 + (*r->p++ - '0');
    return ch;
  }
  if (isdigit((unsigned char)c))
    wrong(r, "back-references are not supported");
  else if (c == 'p' || c == 'P')
    wrong(r, "classes of Unicode properties (\\p) are not supported; write the ranges in [ ], or a class of ASCII as "
             "\\w or [:alpha:]");
  else if (isalpha((unsigned char)c))
    wrong(r, "unknown or unsupported escape");
  return next_char(r);
}

/* ---- parsing ----------------------------------------------------------------------------------------------------- */

static int32_t class_char(regex *r) {
  if (!eat(r, "\\"))
    return next_char(r);
  if (r->p == r->end) {
    wrong(r, "a class ends in a backslash");
    return 0;
  }
  return escaped_char(r);
}

static bool class_escape(regex *r, ranges *c) { /* \d and the like */
  char low = r->end - r->p > 1 && *r->p == '\\' ? (char)(r->p[1] | 32) : 0;
  if ((low != 'd' && low != 's' && low != 'w') || !add_named(r, c, &low, 1, r->p[1] != low))
    return false;
  r->p += 2;
  return true;
}

static node *parse_class(regex *r) {
  ranges c = {{0}, 0};
  bool negated = eat(r, "^");
  for (bool first = true; !r->error; first = false) {
    if (r->p == r->end)
      return wrong(r, "a class '[' has no ']'");
    if (*r->p == ']' && !first)
      break;
    if (class_escape(r, &c))
      continue;
    if (at(r, "[:")) {
      const char *close = memchr(r->p, ']', (size_t)(r->end - r->p));
      size_t n = close ? (size_t)(close - r->p) + 1 : 0;
      bool others = n > 3 && r->p[2] == '^';
      char name[16] = "[:";
      if (n < sizeof name && n > 3 + (size_t)others)
        memcpy(name + 2, r->p + 2 + others, n - 2 - (size_t)others);
      if (n - (size_t)others >= sizeof name || !add_named(r, &c, name, n - (size_t)others, others))
        return wrong(r, "unknown class in '[: :]'");
      r->p += n;
      continue;
    }
    int32_t low = class_char(r), high = low;
    if (r->end - r->p > 1 && *r->p == '-' && r->p[1] != ']') {
      r->p++;
      high = class_char(r);
    }
    if (high < low)
      return wrong(r, "a range of a class ends before it starts");
    if ((r->flags & FLAG_I) && high > 127)
      return wrong(r, NO_FOLDING);
    add_range(r, &c, low, high);
  }
  r->p += r->p < r->end;
  return class_node(r, &c, negated);
}

static node *assertion(regex *r, int32_t kind) {
  node *n = make(r, ASSERT, NULL, NULL);
  n->low = kind;
  return n;
}

static node *parse_quoted(regex *r) { /* \Q..\E */
  node *all = make(r, EMPTY, NULL, NULL);
  while (r->p < r->end && !eat(r, "\\E") && !r->error)
    all = make(r, CAT, all, char_node(r, next_char(r)));
  return r->error ? NULL : all;
}

static node *parse_escape(regex *r) {
  ranges c = {{0}, 0};
  if (class_escape(r, &c))
    return class_node(r, &c, false);
  r->p++;
  if (r->p == r->end)
    return wrong(r, "the pattern ends in a backslash");
  if (eat(r, "b"))
    return assertion(r, CY_RX_AT_WORD_EDGE);
  if (eat(r, "B"))
    return assertion(r, CY_RX_NOT_AT_WORD_EDGE);
  if (eat(r, "A"))
    return assertion(r, CY_RX_AT_BEGIN);
  if (eat(r, "z"))
    return assertion(r, CY_RX_AT_END);
  if (eat(r, "Q"))
    return parse_quoted(r);
  int32_t ch = escaped_char(r);
  return r->error ? NULL : char_node(r, ch);
}

/* Behind "(?": flags, then ')' or ':'. Returns the flags to go on with; *out_group: a group begins. */
static int parse_flags(regex *r, bool *out_group) {
  int flags = r->flags;
  bool on = true;
  for (; r->p < r->end && *r->p != ')' && *r->p != ':'; r->p++) {
    int flag = *r->p == 'i' ? FLAG_I : *r->p == 'm' ? FLAG_M : *r->p == 's' ? FLAG_S : 0;
    if (*r->p == '-')
      on = false;
    else if (!flag && *r->p != 'U')
      wrong(r, "unknown or unsupported group '(?'");
    flags = on ? flags | flag : flags & ~flag;
  }
  *out_group = r->p < r->end && *r->p == ':';
  if (r->p == r->end)
    wrong(r, "a group '(' has no ')'");
  else
    r->p++;
  return flags;
}

static node *parse_group(regex *r) {
  int outer = r->flags, inner = r->flags;
  if (at(r, "?P<") || (at(r, "?<") && !at(r, "?<=") && !at(r, "?<!"))) {
    const char *close = memchr(r->p, '>', (size_t)(r->end - r->p));
    if (!close)
      return wrong(r, "a name of a group has no '>'");
    r->p = close + 1;
  } else if (eat(r, "?")) {
    bool group;
    inner = parse_flags(r, &group);
    if (!group) { /* for the rest of the enclosing group */
      r->flags = inner;
      return make(r, EMPTY, NULL, NULL);
    }
  }
  r->flags = inner;
  node *n = parse_alternatives(r);
  r->flags = outer;
  if (n && !eat(r, ")"))
    return wrong(r, "a group '(' has no ')'");
  return n;
}

static node *parse_atom(regex *r) {
  ranges c = {{'\n', '\n'}, 1};
  if (*r->p == '\\')
    return parse_escape(r);
  if (eat(r, "("))
    return parse_group(r);
  if (eat(r, "["))
    return parse_class(r);
  if (eat(r, "."))
    return (r->flags & FLAG_S) ? (c.n = 0, class_node(r, &c, true)) : class_node(r, &c, true);
  if (eat(r, "^"))
    return assertion(r, r->flags & FLAG_M ? CY_RX_AT_LINE_BEGIN : CY_RX_AT_BEGIN);
  if (eat(r, "$"))
    return assertion(r, r->flags & FLAG_M ? CY_RX_AT_LINE_END : CY_RX_AT_END);
  if (*r->p == '*' || *r->p == '+' || *r->p == '?')
    return wrong(r, "there is nothing to repeat before '*', '+' or '?'");
  int32_t ch = next_char(r);
  return r->error ? NULL : char_node(r, ch);
}

static int32_t parse_count(regex *r) {
  int32_t v = -1;
  for (; r->p < r->end && isdigit((unsigned char)*r->p); r->p++)
    v = (v < 0 ? 0 : v) * 10 + (*r->p - '0') > MAX_REPEAT ? MAX_REPEAT + 1 : (v < 0 ? 0 : v) * 10 + (*r->p - '0');
  return v;
}

/* {n} {n,} {n,m}; anything else in braces is literal. */
static bool parse_braces(regex *r, int32_t *low, int32_t *high) {
  const char *start = r->p;
  r->p++;
  *low = *high = parse_count(r);
  if (*low >= 0 && eat(r, ","))
    *high = parse_count(r);
  if (*low >= 0 && eat(r, "}"))
    return true;
  r->p = start;
  return false;
}

static node *parse_repeat(regex *r) {
  node *n = parse_atom(r);
  while (n && r->p < r->end) {
    int32_t low = 0, high = -1;
    if (eat(r, "+"))
      low = 1;
    else if (eat(r, "?"))
      high = 1;
    else if (!eat(r, "*") && (*r->p != '{' || !parse_braces(r, &low, &high)))
      break;
    eat(r, "?"); /* lazy: the same here */
    if (low > MAX_REPEAT || high > MAX_REPEAT || (high >= 0 && high < low))
      return wrong(r, "a repetition in braces is out of order or above 1000");
    n = make(r, REPEAT, n, NULL);
    n->low = low;
    n->high = high;
  }
  return n;
}

static node *parse_alternatives(regex *r) {
  node *all = NULL, *row = make(r, EMPTY, NULL, NULL);
  if (++r->depth > MAX_DEPTH)
    return wrong(r, "groups are nested more than 200 deep");
  while (!r->error && r->p < r->end && *r->p != ')') {
    if (eat(r, "|")) {
      all = all ? make(r, ALT, all, row) : row;
      row = make(r, EMPTY, NULL, NULL);
      continue;
    }
    node *item = parse_repeat(r);
    row = row->kind == EMPTY ? item : make(r, CAT, row, item);
    if (!row)
      return NULL;
  }
  r->depth--;
  return r->error ? NULL : all ? make(r, ALT, all, row) : row;
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

static uint32_t put(regex *r, int32_t op, int32_t a, int32_t b) {
  if (r->nwords + 3 > MAX_WORDS) {
    wrong(r, "the pattern is too large when its repetitions are written out");
    return 0;
  }
  if (r->nwords + 3 > r->capacity) {
    int32_t *grown = CY_NEW_ARRAY(r->arena, int32_t, r->capacity ? r->capacity * 2 : 384);
    if (r->nwords)
      memcpy(grown, r->words, sizeof *grown * r->nwords);
    r->capacity = r->capacity ? r->capacity * 2 : 384;
    r->words = grown;
  }
  int32_t *w = r->words + r->nwords;
  w[0] = op;
  w[1] = a;
  w[2] = b;
  r->nwords += 3;
  return r->nwords / 3 - 1;
}

static int32_t here(const regex *r) { return (int32_t)(r->nwords / 3); }

/* Classes stay node by node until all instructions are there: then their ranges follow. */
typedef struct pending {
  struct pending *next;
  uint32_t at;
  const node *n;
} pending;

static void emit(regex *r, const node *n, pending **classes);

static void emit_repeat(regex *r, const node *n, pending **classes) {
  for (int32_t i = 0; i < n->low && !r->error; i++)
    emit(r, n->a, classes);
  if (n->high < 0) {
    uint32_t split = put(r, CY_RX_SPLIT, here(r) + 1, 0);
    emit(r, n->a, classes);
    put(r, CY_RX_JUMP, (int32_t)split, 0);
    r->words[split * 3 + 2] = here(r);
    return;
  }
  pending *skips = NULL; /* every optional turn may leave to the end */
  for (int32_t i = n->low; i < n->high && !r->error; i++) {
    pending *skip = CY_NEW(r->arena, pending);
    *skip = (pending){skips, put(r, CY_RX_SPLIT, here(r) + 1, 0), NULL};
    skips = skip;
    emit(r, n->a, classes);
  }
  for (; skips; skips = skips->next)
    r->words[skips->at * 3 + 2] = here(r);
}

static void emit(regex *r, const node *n, pending **classes) {
  uint32_t split, jump;
  if (r->error)
    return;
  switch (n->kind) {
  case EMPTY:
    break;
  case ASSERT:
    put(r, CY_RX_ASSERT, n->low, 0);
    break;
  case REPEAT:
    emit_repeat(r, n, classes);
    break;
  case CLASS: {
    pending *c = CY_NEW(r->arena, pending);
    *c = (pending){*classes, put(r, n->negated ? CY_RX_NOT_IN : CY_RX_IN, 0, n->n), n};
    *classes = c;
    break;
  }
  case CAT:
    emit(r, n->a, classes);
    emit(r, n->b, classes);
    break;
  case ALT:
    split = put(r, CY_RX_SPLIT, here(r) + 1, 0);
    emit(r, n->a, classes);
    jump = put(r, CY_RX_JUMP, 0, 0);
    r->words[split * 3 + 2] = here(r);
    emit(r, n->b, classes);
    r->words[jump * 3 + 1] = here(r);
    break;
  }
}

const int32_t *cy_regex_compile(cy_arena *arena, const char *pattern, size_t length, uint32_t *out_words,
                                const char **out_error) {
  regex r = {.arena = arena, .p = pattern, .end = pattern + length};
  node *n = length > MAX_LENGTH ? wrong(&r, "the pattern is longer than 20000 bytes") : parse_alternatives(&r);
  pending *classes = NULL;
  if (n && r.p < r.end)
    n = wrong(&r, "a ')' has no group");
  if (n) {
    emit(&r, n, &classes);
    put(&r, CY_RX_MATCH, 0, 0);
  }
  const node *last = NULL;
  for (int32_t place = 0; classes && !r.error; classes = classes->next) {
    if (classes->n != last || place == 0) { /* copies of a repetition share their ranges where they follow each other */
      place = (int32_t)r.nwords;
      last = classes->n;
      for (int32_t i = 0; i < last->n; i++)
        put(&r, last->ranges[2 * i], last->ranges[2 * i + 1], 0);
    }
    r.words[classes->at * 3 + 1] = place;
  }
  *out_error = r.error;
  *out_words = r.nwords;
  return r.error ? NULL : r.words;
}
