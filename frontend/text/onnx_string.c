/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_string.c - operators on strings: StringNormalizer, StringConcat, StringSplit, RegexFullMatch, Tokenizer,
 * TfIdfVectorizer, casts.
 *
 * A string tensor holds numbers of texts (ir/values.c), so what only moves or compares elements is imported as for
 * numbers elsewhere. What makes or reads texts is a runtime call; here its attributes become constants.
 */
#include "frontend/import_int.h"
#include "regex.h"

#define X (n->in[0])
#define SET(v) cy_importer_set(im, n, 0, (v))

/* ---- constants --------------------------------------------------------------------------------------------------- */

cy_val cy_onnx_text(cy_importer *im, const void *bytes, size_t length) {
  uint32_t *text = CY_NEW(cy_graph_arena(im->g), uint32_t);
  cy_type t = cy_type_make(CY_STRING, 0, NULL);
  *text = cy_text_add(im->g, bytes, length);
  return cy_build_const(im->g, &t, text, sizeof *text);
}

cy_val cy_onnx_texts(cy_importer *im, const cy_onnx_node *n, const char *name, uint32_t *out_count) {
  const Onnx__AttributeProto *a = cy_onnx_attr(im, n, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS);
  *out_count = a ? (uint32_t)a->n_strings : 0;
  uint32_t *texts = CY_NEW_ARRAY(cy_graph_arena(im->g), uint32_t, *out_count + 1);
  for (uint32_t i = 0; i < *out_count; i++)
    texts[i] = cy_text_add(im->g, a->strings[i].data, a->strings[i].len);
  cy_dim d = cy_dim_const(im->g, *out_count);
  cy_type t = cy_type_make(CY_STRING, 1, &d);
  return cy_build_const(im->g, &t, texts, *out_count * sizeof *texts);
}

cy_val cy_onnx_int_list(cy_importer *im, const int64_t *v, uint32_t n) {
  cy_dim d = cy_dim_const(im->g, n);
  cy_type t = cy_type_make(CY_I64, 1, &d);
  return cy_build_const(im->g, &t, cy_arena_copy(cy_graph_arena(im->g), v, n * sizeof *v + 1 - (n > 0)), n * sizeof *v);
}

static cy_dim fresh_count(cy_importer *im) {
  cy_sym s = cy_sym_new(im->g, NULL, CY_SYM_COUNT);
  cy_sym_of(im->g, s)->min = 0;
  return cy_dim_sym(im->g, s);
}

static bool check_strings(cy_importer *im, cy_val v) {
  const cy_type *t = cy_onnx_type(im, v);
  if (t->dtype != CY_STRING)
    cy_build_error(im->g, NULL, "expected strings, found %s", cy_type_text(im->g, t));
  return t->dtype == CY_STRING;
}

/* ---- casts ------------------------------------------------------------------------------------------------------- */

cy_val cy_onnx_cast_string(cy_importer *im, cy_val x, cy_dtype to) {
  const cy_type *t = cy_onnx_type(im, x);
  if (to == t->dtype)
    return x;
  if (to == CY_STRING) { /* the runtime knows the usual types */
    const cy_dtype_info *from = cy_dtype_of((cy_dtype)t->dtype);
    bool small = from->bits < 16 && t->dtype != CY_BOOL;
    if (small && from->cls != 0)
      x = CAST(x, from->cls == 'F' ? CY_F32 : CY_I32);
    return cy_build(im->g, CY_OP_string_from, &x, 1, NULL, 0, NULL, 1);
  }
  const cy_dtype_info *info = cy_dtype_of(to);
  cy_type wide = cy_type_make(info->cls == 'F' ? CY_F64 : to == CY_U64 ? CY_U64 : CY_I64, t->rank, t->dim);
  if (info->cls == 'C')
    return cy_build_error(im->g, "attribute 'to'", "casts from string to %s are not supported", info->name);
  return CAST(cy_build(im->g, CY_OP_string_to, &x, 1, NULL, 0, &wide, 1), to);
}

/* ---- normalising, joining, splitting, matching ------------------------------------------------------------------- */

IMPORT(string_normalizer) {
  const cy_type t = *cy_onnx_type(im, X);
  int letter_case = cy_onnx_word(im, n, "case_change_action", "NONE", "NONE|LOWER|UPPER");
  uint32_t count;
  cy_val in[2] = {X, cy_onnx_texts(im, n, "stopwords", &count)};
  if (letter_case < 0 || !in[1] || !check_strings(im, X))
    return false;
  if (t.rank < 1 || t.rank > 2 || (t.rank == 2 && !cy_dim_is(im->g, t.dim[0], 1)))
    return cy_build_error(im->g, "input 'X'", "expected strings of shape [n] or [1,n], found %s",
                          cy_type_text(im->g, &t));
  cy_dim d[2] = {t.dim[0], t.dim[0]};
  d[t.rank - 1] = fresh_count(im);
  cy_type out = cy_type_make(CY_STRING, t.rank, d);
  cy_attr a[2] = {cy_attr_int(CY_ATTR_letter_case, letter_case),
                  cy_attr_int(CY_ATTR_case_sensitive, cy_onnx_int(im, n, "is_case_sensitive", 0) != 0)};
  return SET(cy_build(im->g, CY_OP_string_normalize, in, 2, a, 2, &out, 1));
}

IMPORT(string_concat) {
  cy_val in[2] = {X, n->in[1]};
  cy_dim dims[CY_MAX_RANK];
  if (!check_strings(im, X) || !check_strings(im, in[1]))
    return false;
  int rank = cy_build_broadcast(im->g, cy_onnx_type(im, X), cy_onnx_type(im, in[1]), dims);
  if (rank < 0)
    return false;
  for (int k = 0; k < 2; k++)
    in[k] = cy_build_expand(im->g, in[k], dims, rank);
  return SET(cy_build(im->g, CY_OP_string_concat, in, 2, NULL, 0, NULL, 1));
}

IMPORT(string_split) {
  const Onnx__AttributeProto *a = cy_onnx_attr(im, n, "delimiter", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
  cy_val in[2] = {X, cy_onnx_text(im, a ? a->s.data : NULL, a ? a->s.len : 0)};
  const cy_type *t = cy_onnx_type(im, X);
  if (!check_strings(im, X))
    return false;
  if (t->rank == CY_MAX_RANK)
    return cy_build_error(im->g, "input 'X'", "expected fewer than %d dims, found %s", CY_MAX_RANK,
                          cy_type_text(im->g, t));
  cy_type types[2] = {*t, cy_type_make(CY_I64, t->rank, t->dim)};
  types[0].dim[types[0].rank++] = fresh_count(im);
  cy_attr limit = cy_attr_int(CY_ATTR_limit, cy_onnx_int(im, n, "maxsplit", -1));
  cy_val parts = cy_build(im->g, CY_OP_string_split, in, 2, &limit, 1, types, 2);
  return SET(parts) && (n->nout < 2 || cy_importer_set(im, n, 1, cy_build_output(im->g, parts, 1)));
}

/* The program of a regular expression that an attribute has, as a constant. */
static cy_val regex_program(cy_importer *im, const char *attribute, const char *pattern, size_t length) {
  const char *why;
  uint32_t words = 0;
  const int32_t *program = cy_regex_compile(cy_graph_arena(im->g), length ? pattern : "", length, &words, &why);
  if (!program)
    return cy_build_error(im->g, attribute, "expected a regular expression in the syntax of RE2: %s", why);
  cy_dim d = cy_dim_const(im->g, words);
  cy_type t = cy_type_make(CY_I32, 1, &d);
  return cy_build_const(im->g, &t, program, words * sizeof *program);
}

IMPORT(regex_full_match) {
  const Onnx__AttributeProto *a = cy_onnx_attr(im, n, "pattern", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
  if (!a)
    return cy_build_error(im->g, "attribute 'pattern'", "expected a regular expression: there is none");
  cy_val in[2] = {X, regex_program(im, "attribute 'pattern'", (const char *)a->s.data, a->s.len)};
  return in[1] && check_strings(im, X) && SET(cy_build(im->g, CY_OP_string_match, in, 2, NULL, 0, NULL, 1));
}

/* What fills up rows and, with `mark`, what begins and ends each. */
static cy_val row_texts(cy_importer *im, const cy_onnx_node *n) {
  const Onnx__AttributeProto *pad = cy_onnx_attr(im, n, "pad_value", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
  size_t count = cy_onnx_int(im, n, "mark", 0) ? 3 : 1;
  cy_dim d = cy_dim_const(im->g, (int64_t)count);
  cy_type t = cy_type_make(CY_STRING, 1, &d);
  uint32_t *texts = CY_NEW_ARRAY(cy_graph_arena(im->g), uint32_t, 3);
  texts[0] = cy_text_add(im->g, pad ? pad->s.data : NULL, pad ? pad->s.len : 0);
  texts[1] = cy_text_add(im->g, "\2", 1);
  texts[2] = cy_text_add(im->g, "\3", 1);
  return cy_build_const(im->g, &t, texts, count * sizeof *texts);
}

/* com.microsoft's: tokens are what `tokenexp` matches, or what lies between the separators. One empty separator, or the
 * expression ".", makes a token of each character, a new line as well. */
IMPORT(tokenizer) {
  enum { MAX_SEPARATORS = 64 };
  const Onnx__AttributeProto *list = cy_onnx_attr(im, n, "separators", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS),
                             *token = cy_onnx_attr(im, n, "tokenexp", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
  bool between = list != NULL, chars = between ? list->n_strings == 1 && !list->strings[0].len
                                               : token && token->s.len == 1 && *token->s.data == '.';
  size_t count = between && !chars ? list->n_strings : 1;
  int64_t shortest = cy_onnx_int(im, n, "mincharnum", 1);
  if (!list && !token)
    return cy_build_error(im->g, NULL, "expected the attribute 'separators' or 'tokenexp'");
  if (count < 1 || count > MAX_SEPARATORS || shortest < 1)
    return cy_build_error(im->g, NULL, "expected 1 to %d separators, and mincharnum >= 1", MAX_SEPARATORS);
  cy_val in[2 + MAX_SEPARATORS] = {X, row_texts(im, n)};
  for (size_t k = 0; k < count; k++) {
    const ProtobufCBinaryData *text = between ? &list->strings[k] : &token->s;
    in[2 + k] = chars ? regex_program(im, NULL, "(?s:.)", 6)
                      : regex_program(im, between ? "attribute 'separators'" : "attribute 'tokenexp'",
                                      (const char *)text->data, text->len);
    if (!in[2 + k])
      return false;
  }
  cy_type t = *cy_onnx_type(im, X);
  if (!check_strings(im, X))
    return false;
  if (t.rank == CY_MAX_RANK)
    return cy_build_error(im->g, "input 'X'", "expected fewer than %d dims, found %s", CY_MAX_RANK,
                          cy_type_text(im->g, &t));
  t.dim[t.rank++] = fresh_count(im);
  cy_attr a[2] = {cy_attr_int(CY_ATTR_between, between && !chars), cy_attr_int(CY_ATTR_min_length, shortest)};
  return SET(cy_build(im->g, CY_OP_string_tokens, in, 2 + (uint32_t)count, a, 2, &t, 1));
}

/* ---- n-grams ----------------------------------------------------------------------------------------------------- */

/* The pool as a constant of X's type, which becomes i64 unless it is strings. */
static cy_val ngram_pool(cy_importer *im, const cy_onnx_node *n, cy_val *x, uint32_t *out_words) {
  bool strings = cy_onnx_type(im, *x)->dtype == CY_STRING;
  const char *name = strings ? "pool_strings" : "pool_int64s";
  const int64_t *ints = strings ? NULL : cy_onnx_ints(im, n, name, out_words);
  if (strings ? !cy_onnx_has(n, name) : !ints)
    return cy_build_error(im->g, NULL, "expected the attribute '%s' for an input of type %s", name,
                          cy_type_text(im->g, cy_onnx_type(im, *x)));
  *x = strings ? *x : CAST(*x, CY_I64);
  return strings ? cy_onnx_texts(im, n, name, out_words) : cy_onnx_int_list(im, ints, *out_words);
}

/* Are the n-grams that `starts` cuts the pool into as many as the columns? */
static bool check_pool(cy_importer *im, const int64_t *starts, uint32_t lengths, uint32_t words, uint32_t columns) {
  uint64_t found = 0;
  for (uint32_t k = 0; k < lengths; k++) {
    int64_t from = starts[k], to = k + 1 < lengths ? starts[k + 1] : words;
    if (from < 0 || to < from || to > words || (to - from) % (k + 1))
      return cy_build_error(im->g, "attribute 'ngram_counts'",
                            "the %lld words of the pool from number %lld on are no whole n-grams of length %u",
                            (long long)(to - from), (long long)from, k + 1);
    found += (uint64_t)(to - from) / (k + 1);
  }
  return found == columns || cy_build_error(im->g, "attribute 'ngram_indexes'",
                                            "expected %llu numbers, one for each n-gram of the pool, found %u",
                                            (unsigned long long)found, columns);
}

IMPORT(tfidf_vectorizer) {
  uint32_t words = 0, lengths, columns, count;
  int mode = cy_onnx_word(im, n, "mode", "", "TF|IDF|TFIDF");
  const int64_t *starts = cy_onnx_ints(im, n, "ngram_counts", &lengths),
                *index = cy_onnx_ints(im, n, "ngram_indexes", &columns);
  const double *weights = cy_onnx_floats(im, n, "weights", &count);
  int64_t shortest = cy_onnx_int(im, n, "min_gram_length", 1), longest = cy_onnx_int(im, n, "max_gram_length", 1);
  int64_t skip = cy_onnx_int(im, n, "max_skip_count", 0), width = 0;
  cy_val x = X, pool = mode < 0 ? 0 : ngram_pool(im, n, &x, &words);
  if (!x || !pool)
    return false;
  if (!starts || !index || (weights && count != columns) || shortest < 1 || longest < shortest || longest > lengths ||
      skip < 0)
    return cy_build_error(im->g, NULL,
                          "expected lists ngram_counts and ngram_indexes (and weights, as long as the latter), "
                          "1 <= min_gram_length <= max_gram_length <= %u and max_skip_count >= 0",
                          lengths);
  if (!check_pool(im, starts, lengths, words, columns))
    return false;
  float *factors = CY_NEW_ARRAY(cy_graph_arena(im->g), float, columns + 1);
  for (uint32_t i = 0; i < columns; i++) {
    if (index[i] < 0 || index[i] >= (int64_t)1 << 31)
      return cy_build_error(im->g, "attribute 'ngram_indexes'", "number %lld is out of range", (long long)index[i]);
    factors[i] = weights ? (float)weights[i] : 1;
    width = index[i] + 1 > width ? index[i] + 1 : width;
  }
  cy_type t = *cy_onnx_type(im, x), list;
  if (t.rank < 1 || t.rank > 2)
    return cy_build_error(im->g, "input 'X'", "expected shape [n] or [rows,n], found %s", cy_type_text(im->g, &t));
  cy_dim d = cy_dim_const(im->g, columns);
  list = cy_type_make(CY_F32, 1, &d);
  t.dtype = CY_F32;
  t.dim[t.rank - 1] = cy_dim_const(im->g, width);
  cy_val in[5] = {x, pool, cy_onnx_int_list(im, starts, lengths), cy_onnx_int_list(im, index, columns),
                  cy_build_const(im->g, &list, factors, columns * sizeof *factors)};
  cy_attr a[4] = {cy_attr_int(CY_ATTR_mode, mode), cy_attr_int(CY_ATTR_min_length, shortest),
                  cy_attr_int(CY_ATTR_max_length, longest), cy_attr_int(CY_ATTR_max_skip, skip)};
  return SET(cy_build(im->g, CY_OP_count_ngrams, in, 5, a, 4, &t, 1));
}
