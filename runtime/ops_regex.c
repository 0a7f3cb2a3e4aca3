/* ops_regex.c - string_match: does a regular expression match whole strings?
 *
 * The program (CYRT_RX_* of cyto_abi.h) is run on all its branches at once, a character of the string after the other:
 * a list holds every instruction that waits for the next character, each once. So time is at most the product of the
 * lengths of string and program, whatever the expression.
 */
#include "values.h"

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

static int matches(matcher *m, cyto_string s) {
  const uint8_t *p = (const uint8_t *)s.text, *end = p + s.length;
  int bytes, matched = 0;
  int32_t position = 0;
  place here = {-1, char_at(p, end, &bytes)};
  memset(m->visited, 0xff, (size_t)m->n / 3 * sizeof *m->visited);
  m->n_now = 0;
  reach(m, 0, here, position, m->now, &m->n_now);
  while (here.after >= 0 && m->n_now) {
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
  for (int32_t k = 0; k < m->n_now && here.after < 0; k++)
    matched |= m->program[3 * m->now[k]] == CYRT_RX_MATCH;
  return matched;
}

int32_t cyrt_op_string_match(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,
                             const cyrt_attr *attr) {
  (void)n_in, (void)n_out, (void)attr;
  matcher m = {.program = in[1].data, .n = in[1].dims[0]};
  int64_t count = cyrt_count(in[0].rank, in[0].dims), instructions = m.n / 3;
  uint64_t room = (uint64_t)(instructions * 5 + 2) * sizeof(int32_t);
  int32_t *memory = cyrt_scratch_alloc(frame, room); /* an instruction is put on the list `todo` twice at most */
  if (!memory)
    return cyrt_fail(frame, CYTO_OUT_OF_MEMORY, "string_match: no memory for scratch");
  m.now = memory;
  m.next = m.now + instructions;
  m.visited = m.next + instructions;
  m.todo = m.visited + instructions;
  for (int64_t i = 0; i < count; i++)
    ((uint8_t *)out[0].data)[i] = (uint8_t)matches(&m, cyrt_text(frame, ((const int32_t *)in[0].data)[i]));
  cyrt_scratch_free(frame, memory, room);
  return CYTO_OK;
}
