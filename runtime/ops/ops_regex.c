/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ops_regex.c - string_match: does a regular expression match whole strings? string_tokens: where in strings?
 *
 * The program (CYRT_RX_* of cyto_abi.h) is run on all its branches at once, a character of the string after the other:
 * a list holds every instruction that waits for the next character, each once. So time is at most the product of the
 * lengths of string and program, whatever the expression.
 */
#include "runtime/values.h"

#include <string.h>

typedef struct matcher {
  const int32_t *program;
  int64_t n;                            /* words */
  int32_t *now, *next, *todo, *visited; /* [instructions]; visited[i]: the last position where i was seen */
  int32_t n_now, n_next;
} matcher;

/* What the string looks like between two characters; -1: its border. */
typedef struct place {
  int32_t before, after;
} place;

static int is_word(int32_t ch) {
  return (ch >= '0' && ch <= '9') || (ch >= 'A' && ch <= 'Z') || (ch >= 'a' && ch <= 'z') || ch == '_';
}

static int holds(int32_t what, place p) {
  switch (what) {
  case CYRT_RX_AT_BEGIN:
    return p.before < 0;
  case CYRT_RX_AT_END:
    return p.after < 0;
  case CYRT_RX_AT_LINE_BEGIN:
    return p.before < 0 || p.before == '\n';
  case CYRT_RX_AT_LINE_END:
    return p.after < 0 || p.after == '\n';
  case CYRT_RX_AT_WORD_EDGE:
    return is_word(p.before) != is_word(p.after);
  default:
    return is_word(p.before) == is_word(p.after);
  }
}

/* Follows jumps from `at` to all instructions that wait for a character, or match. */
static void reach(matcher *m, int32_t at, place p, int32_t position, int32_t *list, int32_t *n) {
  int32_t todo = 0;
  m->todo[todo++] = at;
  while (todo) {
    at = m->todo[--todo];
    const int32_t *i = m->program + 3 * at;
    if (m->visited[at] == position)
      continue;
    m->visited[at] = position;
    switch (i[0]) {
    case CYRT_RX_JUMP:
      m->todo[todo++] = i[1];
      break;
    case CYRT_RX_SPLIT:
      m->todo[todo++] = i[1];
      m->todo[todo++] = i[2];
      break;
    case CYRT_RX_ASSERT:
      if (holds(i[1], p))
        m->todo[todo++] = at + 1;
      break;
    default:
      list[(*n)++] = at;
    }
  }
}

static int takes(const matcher *m, const int32_t *i, int32_t ch) {
  if (i[0] == CYRT_RX_MATCH)
    return 0;
  const int32_t *range = m->program + i[1];
  for (int32_t k = 0; k < i[2]; k++, range += 3)
    if (ch >= range[0] && ch <= range[1])
      return i[0] == CYRT_RX_IN;
  return i[0] == CYRT_RX_NOT_IN;
}

/* The code point at p, and how many bytes it takes; -1 at the end. */
static int32_t char_at(const uint8_t *p, const uint8_t *end, int *out_bytes) {
  *out_bytes = 1;
  if (p >= end)
    return -1;
  int more = *p < 0x80 ? 0 : *p >= 0xf0 ? 3 : *p >= 0xe0 ? 2 : *p >= 0xc2 ? 1 : -1;
  if (more < 0 || end - p <= more)
    return 0xfffd;
  int32_t ch = more ? *p & (0x3f >> more) : *p;
  for (int i = 1; i <= more; i++) {
    if ((p[i] & 0xc0) != 0x80)
      return 0xfffd;
    ch = ch << 6 | (p[i] & 0x3f);
  }
  *out_bytes = more + 1;
  return ch;
}

/* Where the longest match that starts at byte `from` ends; -1: there is none. before: the character in front of it. */
static int64_t longest(matcher *m, cyto_string s, uint64_t from, int32_t before) {
  const uint8_t *p = (const uint8_t *)s.text + from, *end = (const uint8_t *)s.text + s.length;
  int bytes;
  int64_t found = -1;
  int32_t position = 0;
  place here = {before, char_at(p, end, &bytes)};
  memset(m->visited, 0xff, (size_t)m->n / 3 * sizeof *m->visited);
  m->n_now = 0;
  reach(m, 0, here, position, m->now, &m->n_now);
  for (;;) {
    for (int32_t k = 0; k < m->n_now; k++)
      if (m->program[3 * m->now[k]] == CYRT_RX_MATCH)
        found = (int64_t)(p - (const uint8_t *)s.text);
    if (here.after < 0 || !m->n_now)
      return found;
    int32_t ch = here.after;
    p += bytes;
    here = (place){ch, char_at(p, end, &bytes)};
    position++;
    m->n_next = 0;
    for (int32_t k = 0; k < m->n_now; k++)
      if (takes(m, m->program + 3 * m->now[k], ch))
        reach(m, m->now[k] + 1, here, position, m->next, &m->n_next);
    int32_t *swap = m->now;
    m->now = m->next;
    m->next = swap;
    m->n_now = m->n_next;
  }
}

/* Memory for programs of so many words, which out_room is the size of; NULL: there is none. */
static int32_t *prepare(matcher *m, cyrt_frame *frame, int64_t words, uint64_t *out_room) {
  int64_t instructions = words / 3;
  *out_room = (uint64_t)(instructions * 5 + 2) * sizeof(int32_t);
  int32_t *memory = cyrt_scratch_alloc(frame, *out_room); /* an instruction is put on the list `todo` twice at most */
  m->now = memory;
  m->next = m->now + instructions;
  m->visited = m->next + instructions;
  m->todo = m->visited + instructions;
  return memory;
}

int32_t cyrt_op_string_match(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,
                             const cyrt_attr *attr) {
  (void)n_in, (void)n_out, (void)attr;
  matcher m = {.program = in[1].data, .n = in[1].dims[0]};
  int64_t count = cyrt_count(in[0].rank, in[0].dims);
  uint64_t room;
  int32_t *memory = prepare(&m, frame, m.n, &room);
  if (!memory)
    return cyrt_fail(frame, CYTO_OUT_OF_MEMORY, "string_match: no memory for scratch");
  for (int64_t i = 0; i < count; i++) {
    cyto_string s = cyrt_text(frame, ((const int32_t *)in[0].data)[i]);
    ((uint8_t *)out[0].data)[i] = longest(&m, s, 0, -1) == (int64_t)s.length;
  }
  cyrt_scratch_free(frame, memory, room);
  return CYTO_OK;
}

/* ---- tokens ---- */

typedef struct cutter {
  cyrt_frame *frame;
  const cyrt_tensor *programs;
  int32_t n; /* programs */
  int between;
  int64_t shortest, count; /* characters; tokens so far */
  int32_t *out;            /* where they go; NULL: they are counted */
  int32_t status;
  matcher m;
} cutter;

static void cut(cutter *c, cyto_string s, int32_t level);

/* What the program before `level` has cut out: the next one's string, or a token. */
static void take(cutter *c, cyto_string s, int32_t level) {
  int64_t chars = 0;
  for (uint64_t i = 0; i < s.length; i++)
    chars += ((uint8_t)s.text[i] & 0xc0) != 0x80;
  if (chars < c->shortest || c->status)
    return;
  if (level < c->n) {
    cut(c, s, level);
    return;
  }
  if (c->out)
    c->status = cyrt_text_add(c->frame, s.text, s.length, &c->out[c->count]);
  c->count++;
}

static void cut(cutter *c, cyto_string s, int32_t level) {
  uint64_t part = 0, at = 0;
  int32_t before = -1;
  while (at < s.length) {
    c->m.program = c->programs[level].data;
    c->m.n = c->programs[level].dims[0];
    int64_t end = longest(&c->m, s, at, before);
    uint64_t stop = end > (int64_t)at ? (uint64_t)end : at + 1;
    if (end > (int64_t)at) {
      uint64_t from = c->between ? part : at, to = c->between ? at : stop;
      take(c, (cyto_string){s.text + from, to - from}, level + 1);
      part = stop;
    }
    for (int bytes; at < stop; at += (uint64_t)bytes)
      before = char_at((const uint8_t *)s.text + at, (const uint8_t *)s.text + s.length, &bytes);
  }
  if (c->between)
    take(c, (cyto_string){s.text + part, s.length - part}, level + 1);
}

/* The tokens of a string into its row, between the two marks if there are any, the rest filled up. Returns how many. */
static int64_t fill_row(cutter *c, cyto_string s, const cyrt_tensor *texts, int32_t *row, int64_t width) {
  const int32_t *text = texts->data;
  int marked = texts->dims[0] == 3;
  c->out = row && width ? row + marked : NULL;
  c->count = 0;
  cut(c, s, 0);
  if (!c->out)
    return c->count;
  if (marked) {
    row[0] = text[1];
    row[c->count + 1] = text[2];
  }
  for (int64_t k = c->count + 2 * marked; k < width; k++)
    row[k] = text[0];
  return c->count;
}

int32_t cyrt_op_string_tokens(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,
                              const cyrt_attr *attr) {
  (void)n_out;
  cutter c = {.frame = frame, .programs = in + 2, .n = n_in - 2, .between = attr[0].i != 0, .shortest = attr[1].i};
  int64_t count = cyrt_count(in[0].rank, in[0].dims), width = out[0].dims[out[0].rank - 1], max = 0, words = 0;
  int32_t *rows = out[0].data;
  uint64_t room;
  for (int32_t k = 0; k < c.n; k++)
    words = c.programs[k].dims[0] > words ? c.programs[k].dims[0] : words;
  int32_t *memory = prepare(&c.m, frame, words, &room);
  if (!memory)
    return cyrt_fail(frame, CYTO_OUT_OF_MEMORY, "string_tokens: no memory for scratch");
  for (int64_t i = 0; i < count && !c.status; i++) {
    cyto_string s = cyrt_text(frame, ((const int32_t *)in[0].data)[i]);
    int64_t n = fill_row(&c, s, &in[1], rows ? rows + i * width : NULL, width);
    max = n > max ? n : max;
  }
  cyrt_scratch_free(frame, memory, room);
  if (!rows)
    out[0].dims[out[0].rank - 1] = max ? max + (in[1].dims[0] == 3 ? 2 : 0) : 0;
  return c.status;
}
