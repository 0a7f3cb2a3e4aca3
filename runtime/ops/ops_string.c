/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ops_string.c - operators that make or read texts: normalising, joining, splitting, converting, ordering. See
 * rt_ops.def.
 *
 * Elements are numbers of texts (values.h): equal texts have equal numbers, so work done for a text need not be
 * repeated for the next element with the same number. Case mapping is the operating system's.
 */
#include "runtime/values.h"

#include "runtime/half.h"
#include "runtime/numbers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int32_t *numbers_of(const cyrt_tensor *t) { return t->data; }

static int64_t count_of(const cyrt_tensor *t) { return cyrt_count(t->rank, t->dims); }

/* ---- letters ---- */

/* The code point at *text, whose length is *length; an invalid byte stands for itself, as 0xfffd. */
static uint32_t utf8_next(const uint8_t **text, uint64_t *length, int *out_bytes) {
  const uint8_t *p = *text;
  int more = *p < 0x80                 ? 0
             : *p >= 0xf0 && *p < 0xf8 ? 3
             : *p >= 0xe0 && *p < 0xf0 ? 2
             : *p >= 0xc2 && *p < 0xe0 ? 1
                                       : -1;
  uint32_t ch = more < 0 ? 0xfffd : more ? *p & (0x3fu >> more) : *p;
  for (int i = 1; i <= more; i++) {
    if ((uint64_t)i >= *length || (p[i] & 0xc0) != 0x80) {
      more = -1;
      ch = 0xfffd;
      break;
    }
    ch = ch << 6 | (p[i] & 0x3fu);
  }
  *out_bytes = more < 0 ? 1 : more + 1;
  *text += *out_bytes;
  *length -= (uint64_t)*out_bytes;
  return ch;
}

static size_t utf8_put(uint32_t ch, char *out) {
  if (ch < 0x80) {
    out[0] = (char)ch;
    return 1;
  }
  int more = ch < 0x800 ? 1 : ch < 0x10000 ? 2 : 3;
  for (int i = more; i > 0; i--, ch >>= 6)
    out[i] = (char)(0x80 | (ch & 0x3f));
  out[0] = (char)(0xff00 >> (more + 1) | ch);
  return (size_t)more + 1;
}

/* `text` in the given case: its number. A letter may take one byte more or less than before, never twice as many. */
static int32_t in_case(cyrt_frame *frame, void *letters, cyto_string text, int to, int32_t *out_number) {
  uint64_t room = text.length * 2 + 4, left = text.length;
  char *changed = cyrt_scratch_alloc(frame, room);
  size_t used = 0;
  if (!changed)
    return cyrt_fail(frame, CYTO_OUT_OF_MEMORY, "string_normalize: no memory for a string");
  for (const uint8_t *p = (const uint8_t *)text.text; left;) {
    const uint8_t *from = p;
    int bytes;
    uint32_t ch = utf8_next(&p, &left, &bytes), other = cyrt_os_letter(letters, ch, to == CYRT_CASE_LOWER);
    if (other == ch || used + 4 > room) {
      memcpy(changed + used, from, (size_t)bytes);
      used += (size_t)bytes;
    } else {
      used += utf8_put(other, changed + used);
    }
  }
  int32_t status = cyrt_text_add(frame, changed, used, out_number);
  cyrt_scratch_free(frame, changed, room);
  return status;
}

/* ---- normalising ---- */

/* The elements of X that are no stop words, to `kept`; their number. Folded: both in lower case. -1 after an error. */
static int64_t without_stop_words(cyrt_frame *frame, void *letters, const cyrt_tensor *x, const cyrt_tensor *stop,
                                  int folded, int32_t *kept) {
  int64_t n = count_of(x), words = count_of(stop), used = 0;
  int32_t *list = cyrt_scratch_alloc(frame, (uint64_t)words * sizeof *list),
          status = list ? CYTO_OK : CYTO_OUT_OF_MEMORY;
  for (int64_t i = 0; i < words && !status; i++) {
    list[i] = numbers_of(stop)[i];
    if (folded)
      status = in_case(frame, letters, cyrt_text(frame, list[i]), CYRT_CASE_LOWER, &list[i]);
  }
  for (int64_t i = 0; i < n && !status; i++) {
    int32_t number = numbers_of(x)[i];
    int64_t k = 0;
    if (folded && words)
      status = in_case(frame, letters, cyrt_text(frame, number), CYRT_CASE_LOWER, &number);
    while (k < words && list[k] != number)
      k++;
    if (k == words)
      kept[used++] = numbers_of(x)[i];
  }
  cyrt_scratch_free(frame, list, (uint64_t)words * sizeof *list);
  return status ? -1 : used;
}

int32_t cyrt_op_string_normalize(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out,
                                 int32_t n_out, const cyrt_attr *attr) {
  (void)n_in, (void)n_out;
  uint64_t room = (uint64_t)(count_of(&in[0]) + 1) * sizeof(int32_t);
  int32_t *kept = cyrt_scratch_alloc(frame, room), status = CYTO_OK;
  if (!kept)
    return cyrt_fail(frame, CYTO_OUT_OF_MEMORY, "string_normalize: no memory for scratch");
  void *letters = cyrt_os_letters_begin();
  int64_t n = without_stop_words(frame, letters, &in[0], &in[1], !attr[1].i, kept);
  if (n == 0)
    kept[n++] = 0;
  for (int64_t i = 0; i < n && out[0].data && !status; i++) {
    int32_t *to = (int32_t *)out[0].data + i;
    *to = kept[i];
    if (attr[0].i != CYRT_CASE_KEEP)
      status = in_case(frame, letters, cyrt_text(frame, kept[i]), (int)attr[0].i, to);
  }
  cyrt_os_letters_end(letters);
  cyrt_scratch_free(frame, kept, room);
  if (n < 0 || status)
    return status ? status : cyrt_fail(frame, CYTO_OUT_OF_MEMORY, "string_normalize: no memory for strings");
  if (out[0].rank == 2)
    out[0].dims[0] = 1;
  out[0].dims[out[0].rank - 1] = n;
  return CYTO_OK;
}

/* ---- joining, splitting ---- */

int32_t cyrt_op_string_concat(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,
                              const cyrt_attr *attr) {
  (void)n_in, (void)n_out, (void)attr;
  char *joined = NULL;
  uint64_t room = 0;
  int32_t status = CYTO_OK;
  for (int64_t i = 0, n = count_of(&in[0]); i < n && !status; i++) {
    cyto_string a = cyrt_text(frame, numbers_of(&in[0])[i]), b = cyrt_text(frame, numbers_of(&in[1])[i]);
    if (a.length + b.length > room || !joined) {
      cyrt_scratch_free(frame, joined, room);
      room = (a.length + b.length) * 2 + 64;
      if (!(joined = cyrt_scratch_alloc(frame, room)))
        return cyrt_fail(frame, CYTO_OUT_OF_MEMORY, "string_concat: no memory for a string");
    }
    memcpy(joined, a.text, a.length);
    memcpy(joined + a.length, b.text, b.length);
    status = cyrt_text_add(frame, joined, a.length + b.length, (int32_t *)out[0].data + i);
  }
  cyrt_scratch_free(frame, joined, room);
  return status;
}

static int is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static cyto_string without_spaces(cyto_string s) {
  while (s.length && is_space(*s.text))
    s.text++, s.length--;
  return s;
}

/* Where a text that is not empty stands in another; NULL: nowhere. */
static const char *find(cyto_string in, cyto_string text) {
  const char *at = in.text, *end = in.text + in.length;
  while (text.length <= (uint64_t)(end - at) && (at = memchr(at, *text.text, (size_t)(end - at) - text.length + 1))) {
    if (!memcmp(at, text.text, text.length))
      return at;
    at++;
  }
  return NULL;
}

/* Cuts the first part off *rest. The last part allowed, `last`, is all that is left. 0: there is none. */
static int next_part(cyto_string *rest, cyto_string separator, int last, cyto_string *out_part) {
  uint64_t n = 0, skip = separator.length;
  if (!rest->text)
    return 0;
  if (!separator.length) {
    *rest = without_spaces(*rest);
    if (!rest->length)
      return 0;
    while (n < rest->length && (last || !is_space(rest->text[n])))
      n++;
    while (last && n && is_space(rest->text[n - 1]))
      n--;
    *out_part = (cyto_string){rest->text, n};
    *rest = (cyto_string){rest->text + n, last ? 0 : rest->length - n};
    return 1;
  }
  const char *at = last ? NULL : find(*rest, separator);
  *out_part = (cyto_string){rest->text, at ? (uint64_t)(at - rest->text) : rest->length};
  *rest = at ? (cyto_string){at + skip, rest->length - out_part->length - skip} : (cyto_string){NULL, 0};
  return 1;
}

int32_t cyrt_op_string_split(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,
                             const cyrt_attr *attr) {
  (void)n_in, (void)n_out;
  int64_t n = count_of(&in[0]), limit = attr[0].i, max = 0, width = out[0].dims[out[0].rank - 1];
  cyto_string separator = cyrt_text(frame, numbers_of(&in[1])[0]), part;
  int32_t status = CYTO_OK, *parts = out[0].data;
  for (int64_t i = 0; i < n && !status; i++) {
    cyto_string rest = cyrt_text(frame, numbers_of(&in[0])[i]);
    int64_t k = 0;
    for (; !status && next_part(&rest, separator, k == limit, &part); k++)
      if (parts)
        status = cyrt_text_add(frame, part.text, part.length, &parts[i * width + k]);
    max = k > max ? k : max;
    for (int64_t j = k; parts && j < width; j++)
      parts[i * width + j] = 0;
    if (out[1].data)
      ((int64_t *)out[1].data)[i] = k;
  }
  if (!parts)
    out[0].dims[out[0].rank - 1] = max;
  return status;
}

/* ---- numbers ---- */

#define NUMBER_ROWS(X)                                                                                                 \
  X(CYTO_F32, float, 'f', v)                                                                                           \
  X(CYTO_F64, double, 'd', v)                                                                                          \
  X(CYTO_F16, uint16_t, 'f', cyrt_f16_to_f32(v))                                                                       \
  X(CYTO_BF16, uint16_t, 'f', cyrt_bf16_to_f32(v))                                                                     \
  X(CYTO_I8, int8_t, 'i', v)                                                                                           \
  X(CYTO_I16, int16_t, 'i', v)                                                                                         \
  X(CYTO_I32, int32_t, 'i', v)                                                                                         \
  X(CYTO_I64, int64_t, 'i', (double)0)                                                                                 \
  X(CYTO_U8, uint8_t, 'i', v)                                                                                          \
  X(CYTO_BOOL, uint8_t, 'i', v)                                                                                        \
  X(CYTO_U16, uint16_t, 'i', v)                                                                                        \
  X(CYTO_U32, uint32_t, 'i', v)                                                                                        \
  X(CYTO_U64, uint64_t, 'i', (double)0)

/* Element i as a number; how it is written: f float, d double, i integer (which i64 and u64 are apart from `out`). */
static char number_at(const cyrt_tensor *t, int64_t i, double *out) {
  switch (t->dtype) {
#define X(dtype_, type, how, value)                                                                                    \
  case dtype_: {                                                                                                       \
    type v = ((const type *)t->data)[i];                                                                               \
    (void)v;                                                                                                           \
    *out = (double)(value);                                                                                            \
    return how;                                                                                                        \
  }
    NUMBER_ROWS(X)
#undef X
  default:
    return 0;
  }
}

/* As few digits as read back to the same number. */
static int float_text(double v, int narrow, char text[40]) {
  if (isnan(v))
    return snprintf(text, 40, "NaN");
  if (isinf(v))
    return snprintf(text, 40, v < 0 ? "-INF" : "INF");
  int n = 0;
  for (int digits = narrow ? 6 : 15; digits <= 17; digits++) {
    n = cyrt_number_put(text, 40, digits, v);
    if (narrow ? cyrt_number_get_float(text) == (float)v : cyrt_number_get(text, NULL) == v)
      break;
  }
  return n;
}

int32_t cyrt_op_string_from(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,
                            const cyrt_attr *attr) {
  (void)n_in, (void)n_out, (void)attr;
  int32_t status = CYTO_OK;
  cyrt_numbers theirs = cyrt_numbers_begin();
  for (int64_t i = 0, n = count_of(&in[0]); i < n && !status; i++) {
    char text[40];
    double v = 0;
    char how = number_at(&in[0], i, &v);
    int length = in[0].dtype == CYTO_I64
                     ? snprintf(text, sizeof text, "%lld", (long long)((const int64_t *)in[0].data)[i])
                 : in[0].dtype == CYTO_U64
                     ? snprintf(text, sizeof text, "%llu", (unsigned long long)((const uint64_t *)in[0].data)[i])
                 : how == 'i' ? snprintf(text, sizeof text, "%lld", (long long)v)
                              : float_text(v, how == 'f', text);
    status = how ? cyrt_text_add(frame, text, (uint64_t)length, (int32_t *)out[0].data + i)
                 : cyrt_fail(frame, CYTO_DTYPE_MISMATCH, "a cast to strings: elements of type %s are not supported",
                             cyto_dtype_name(in[0].dtype));
  }
  cyrt_numbers_end(theirs);
  return status;
}

/* Reads the whole text as a number of dtype; 0: it is none. */
static int parse_number(const char *text, int32_t dtype, void *out) {
  char *end;
  while (is_space(*text))
    text++;
  if (!*text)
    return 0;
  errno = 0;
  if (dtype == CYTO_F64)
    *(double *)out = cyrt_number_get(text, &end); /* takes inf, INF, infinity and nan, too */
  else if (dtype == CYTO_U64)
    *(uint64_t *)out = strtoull(text, &end, 10);
  else
    *(int64_t *)out = strtoll(text, &end, 10);
  int in_range = errno != ERANGE || dtype == CYTO_F64;
  while (is_space(*end))
    end++;
  return in_range && !*end && !(dtype == CYTO_U64 && *text == '-');
}

int32_t cyrt_op_string_to(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,
                          const cyrt_attr *attr) {
  (void)n_in, (void)n_out, (void)attr;
  int32_t status = CYTO_OK;
  cyrt_numbers theirs = cyrt_numbers_begin();
  for (int64_t i = 0, n = count_of(&in[0]); i < n && !status; i++) {
    cyto_string s = cyrt_text(frame, numbers_of(&in[0])[i]);
    if (strlen(s.text) != s.length || !parse_number(s.text, out[0].dtype, (uint8_t *)out[0].data + 8 * i))
      status = cyrt_fail(frame, CYTO_INVALID_ARGUMENT,
                         "a cast from strings: '%s' (element %lld) is no number that %s can hold", s.text, (long long)i,
                         cyto_dtype_name(out[0].dtype));
  }
  cyrt_numbers_end(theirs);
  return status;
}

/* ---- order ---- */

typedef struct ranked {
  cyto_string text;
  int32_t number;
  int64_t index;
} ranked;

static int by_text(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  uint64_t n = x->text.length < y->text.length ? x->text.length : y->text.length;
  int order = memcmp(x->text.text, y->text.text, n);
  return order ? order : (x->text.length > y->text.length) - (x->text.length < y->text.length);
}

int32_t cyrt_op_string_rank(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,
                            const cyrt_attr *attr) {
  (void)n_in, (void)n_out, (void)attr;
  int64_t n = count_of(&in[0]), rank = 0;
  uint64_t room = (uint64_t)n * sizeof(ranked);
  ranked *list = cyrt_scratch_alloc(frame, room);
  if (!list)
    return cyrt_fail(frame, CYTO_OUT_OF_MEMORY, "string_rank: no memory for scratch");
  for (int64_t i = 0; i < n; i++)
    list[i] = (ranked){cyrt_text(frame, numbers_of(&in[0])[i]), numbers_of(&in[0])[i], i};
  qsort(list, (size_t)n, sizeof *list, by_text);
  for (int64_t i = 0; i < n; i++) {
    rank += i && list[i].number != list[i - 1].number;
    ((int64_t *)out[0].data)[list[i].index] = rank;
  }
  cyrt_scratch_free(frame, list, room);
  return CYTO_OK;
}
