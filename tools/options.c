/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - reads command lines by a table of rows: see options.h. */
#define _GNU_SOURCE
#include "tools/options.h"

#include "ir/nearest.h"
#include "tools/terminal.h"
#include "version.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 8 }; /* of files that name files */

static int fail(char error[OPTIONS_ERROR], const char *format, ...) __attribute__((format(printf, 2, 3)));
static int fail(char error[OPTIONS_ERROR], const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(error, OPTIONS_ERROR, format, args);
  va_end(args);
  return -1;
}

static int no_memory(char error[OPTIONS_ERROR]) { return fail(error, "out of memory"); }

int options_complain(const options_program *p, const char *format, ...) {
  char text[2000];
  int n = snprintf(text, sizeof text, "%s: error: ", p->name);
  va_list args;
  va_start(args, format);
  vsnprintf(text + n, sizeof text - (size_t)n, format, args);
  va_end(args);
  terminal_line(stderr, text);
  return -1;
}

/* ---- @FILE ---- */

/* array: of *count things of `size` bytes; room for one more. */
static int grow(void *array, int count, int *room, size_t size) {
  if (count < *room)
    return 0;
  void *grown = realloc(*(void **)array, (size_t)(*room + 16) * 2 * size);
  if (!grown)
    return -1;
  *(void **)array = grown;
  *room = (*room + 16) * 2;
  return 0;
}

static int word_add(options_words *out, const char *word, char error[OPTIONS_ERROR]) {
  if (grow(&out->words, out->count, &out->room, sizeof *out->words))
    return no_memory(error);
  out->words[out->count++] = word;
  return 0;
}

/* The whole file with a zero behind it, which belongs to out. */
static char *file_text(options_words *out, const char *path, char error[OPTIONS_ERROR]) {
  FILE *f = fopen(path, "re");
  char *text = NULL, **files = f ? realloc(out->files, (size_t)(out->n_files + 1) * sizeof *files) : NULL;
  size_t room = 0;
  ssize_t n = -1;
  if (files) {
    out->files = files;
    errno = 0;
    n = getdelim(&text, &room, 0, f);
    out->files[out->n_files++] = text;
  }
  if (n >= 0 && strlen(text) != (size_t)n)
    fail(error, "the options file '%s' is no text", path);
  else if (n < 0 && f && !ferror(f) && !errno && text)
    *text = 0, n = 0; /* empty */
  else if (n < 0)
    fail(error, "cannot read the options file '%s': %s", path, strerror(errno));
  if (f)
    fclose(f);
  return n >= 0 && strlen(text) == (size_t)n ? text : NULL;
}

char *options_next_word(char **at, bool *bad) {
  char *p = *at, *to, *word, quote = 0;
  for (;; p++) {
    if (*p == '#')
      p += strcspn(p, "\n");
    if (!*p || !strchr(" \t\r\n", *p))
      break;
  }
  if (!*p)
    return NULL;
  for (word = to = p; *p && (quote || !strchr(" \t\r\n", *p)); p++) {
    if (quote ? *p == quote : *p == '"' || *p == '\'')
      quote = quote ? 0 : *p;
    else if (*p == '\\' && quote != '\'' && p[1])
      *to++ = *++p;
    else
      *to++ = *p;
  }
  *bad = quote;
  *at = p + (*p != 0);
  *to = 0;
  return word;
}

static int expand(const char *word, int depth, options_words *out, char error[OPTIONS_ERROR]) {
  if (word[0] != '@' || !word[1])
    return word_add(out, word, error);
  if (depth == MAX_DEPTH)
    return fail(error, "options files name each other more than %d deep: '%s'", MAX_DEPTH, word);
  char *text = file_text(out, word + 1, error);
  bool bad = false;
  for (char *next; text && (next = options_next_word(&text, &bad));)
    if (bad)
      return fail(error, "a quote has no end in the options file '%s'", word + 1);
    else if (expand(next, depth + 1, out, error))
      return -1;
  return text ? 0 : -1;
}

int options_expand(const char *const *words, int n, options_words *out, char error[OPTIONS_ERROR]) {
  *out = (options_words){0};
  *error = 0;
  for (int i = 0; i < n; i++)
    if (expand(words[i], 0, out, error))
      return -1;
  return 0;
}

void options_words_free(options_words *words) {
  for (int i = 0; i < words->n_files; i++)
    free(words->files[i]);
  free(words->files);
  free(words->words);
  *words = (options_words){0};
}

/* ---- lists ---- */

int options_list_add(options_list *list, const char *item, int after) {
  int room = list->room;
  if (grow(&list->items, list->count, &room, sizeof *list->items) ||
      grow(&list->after, list->count, &list->room, sizeof *list->after))
    return -1;
  list->items[list->count] = item;
  list->after[list->count++] = after;
  return 0;
}

void options_list_free(options_list *list) {
  free(list->items);
  free(list->after);
  *list = (options_list){0};
}

const char *options_value(const options_list *list, const char *name, int operand) {
  size_t length = strlen(name);
  const char *found = NULL;
  int from = -1;
  for (int i = 0; i < list->count; i++) {
    const char *item = list->items[i];
    int after = operand < 0 ? 0 : list->after[i]; /* 0: in front of all, else the operand's number + 1 */
    if (strncmp(item, name, length) || item[length] != '=' || (after && after != operand + 1) || after < from)
      continue;
    found = item + length + 1;
    from = after;
  }
  return found;
}

/* ---- rows ---- */

/* Is `word` one of "a|b|c"? */
static bool is_choice(const char *choices, const char *word) {
  size_t n = strlen(word);
  for (const char *p = choices; *p; p += strcspn(p, "|"), p += *p == '|')
    if (strcspn(p, "|") == n && !strncmp(p, word, n))
      return true;
  return false;
}

/* "a, b or c" */
static const char *choices_text(const char *choices, char *text, size_t room) {
  size_t n = 0;
  for (const char *p = choices; *p && n < room; p += strcspn(p, "|"), p += *p == '|') {
    size_t length = strcspn(p, "|");
    n += (size_t)snprintf(text + n, room - n, "%s%.*s", p == choices ? "" : p[length] ? ", " : " or ", (int)length, p);
  }
  return text;
}

static int check_choice(const option_row *o, const char *value, char error[OPTIONS_ERROR]) {
  char choices[200], near[CY_NEAREST_TEXT];
  if (!options_has_choices(o) || is_choice(o->value, value))
    return 0;
  cy_nearest n = cy_nearest_of(value, strlen(value));
  for (const char *p = o->value; *p; p += strcspn(p, "|"), p += *p == '|')
    cy_nearest_try(&n, p, strcspn(p, "|"));
  return fail(error, "option '%s' expects %s, found '%s'%s", o->name, choices_text(o->value, choices, sizeof choices),
              value, cy_nearest_say(&n, near));
}

static int set_number(const option_row *o, const char *value, int *field, char error[OPTIONS_ERROR]) {
  char *end;
  errno = 0;
  long n = strtol(value, &end, 10), max = o->high ? o->high : INT_MAX;
  if (errno || end == value || *end || n < o->low || n > max)
    return o->high
               ? fail(error, "option '%s' expects a number from %ld to %ld, found '%s'", o->name, o->low, max, value)
               : fail(error, "option '%s' expects a whole number from %ld, found '%s'", o->name, o->low, value);
  *field = (int)n;
  return 0;
}

static int set_real(const option_row *o, const char *value, double *field, char error[OPTIONS_ERROR]) {
  char *end;
  *field = strtod(value, &end);
  if (end == value || *end || !(*field > 0 && *field < 1e9))
    return fail(error, "option '%s' expects a number above 0, found '%s'", o->name, value);
  return 0;
}

static int set_pair(const option_row *o, const char *value, options_list *field, int after, char error[OPTIONS_ERROR]) {
  if (!strchr(value, '=') || value[0] == '=')
    return fail(error, "option '%s' expects %s, found '%s'", o->name, o->value, value);
  return options_list_add(field, value, after) ? no_memory(error) : 0;
}

static int apply(const option_row *o, const char *value, void *out, options_parsed *parsed) {
  void *field = (char *)out + o->at;
  if (value && check_choice(o, value, parsed->error))
    return -1;
  switch (o->kind) {
  case OPTION_TEXT:
    *(const char **)field = value;
    return 0;
  case OPTION_OPTIONAL:
    *(const char **)field = value ? value : "";
    return 0;
  case OPTION_FLAG:
    *(bool *)field = true;
    return 0;
  case OPTION_NUMBER:
    return set_number(o, value, field, parsed->error);
  case OPTION_REAL:
    return set_real(o, value, field, parsed->error);
  case OPTION_PAIRS:
    return set_pair(o, value, field, parsed->operands.count, parsed->error);
  case OPTION_ACTION:
    break;
  }
  if (parsed->action == OPTIONS_WORK) {
    parsed->action = (options_action)o->low;
    parsed->value = value;
  }
  return 0;
}

/* Is `arg` this name, alone or with a value glued to it (`--x=v`, `-Ov`)? */
static bool names(const option_row *o, const char *name, const char *arg, const char **out_value) {
  size_t length = name ? strlen(name) : 0;
  *out_value = NULL;
  if (!length || strncmp(arg, name, length))
    return false;
  if (!arg[length])
    return true;
  bool is_long = arg[1] == '-';
  if (is_long ? arg[length] != '=' : !o->value)
    return false;
  *out_value = arg + length + is_long;
  return true;
}

static bool takes(const options_program *p, const options_command *c, const option_row *o) {
  return o->commands >> (c - p->commands) & 1;
}

static const option_row *find(const options_program *p, const char *arg, const char **out_value) {
  for (int i = 0; i < p->n_rows; i++)
    if (names(&p->rows[i], p->rows[i].name, arg, out_value) || names(&p->rows[i], p->rows[i].alias, arg, out_value))
      return &p->rows[i];
  return NULL;
}

static int unknown(const options_program *p, const char *arg, options_parsed *parsed) {
  char near[CY_NEAREST_TEXT];
  cy_nearest n = cy_nearest_of(arg, strcspn(arg, "="));
  for (int i = 0; i < p->n_rows; i++)
    if (p->rows[i].help && takes(p, parsed->command, &p->rows[i]) && strlen(p->rows[i].name) > 2)
      cy_nearest_try(&n, p->rows[i].name, strlen(p->rows[i].name));
  return fail(parsed->error, "unknown option '%s'%s", arg, cy_nearest_say(&n, near));
}

/* words[*i] is an option; its value may be the next word. */
static int read_option(const options_program *p, const char *const *words, int n, int *i, void *out,
                       options_parsed *parsed) {
  const char *value, *word = words[*i];
  const option_row *o = find(p, word, &value);
  if (!o)
    return unknown(p, word, parsed);
  if (!takes(p, parsed->command, o))
    return fail(parsed->error, "option '%s' is not one of '%s%s%s'", o->name, p->name, parsed->command->name ? " " : "",
                parsed->command->name ? parsed->command->name : "");
  if (value && !o->value)
    return fail(parsed->error, "option '%s' takes no value", word);
  bool needs_value = o->value && o->kind != OPTION_OPTIONAL;
  if (needs_value && !value && *i + 1 < n)
    value = words[++*i];
  if (needs_value && (!value || !*value))
    return fail(parsed->error, "option '%s' needs a value: %s", o->name, o->value);
  return apply(o, value, out, parsed);
}

int options_parse(const options_program *p, const char *const *words, int n, void *out, options_parsed *parsed) {
  bool operands_only = false;
  int i = 0;
  *parsed = (options_parsed){.command = p->commands};
  for (int c = 1; c < p->n_commands && n; c++)
    if (!strcmp(words[0], p->commands[c].name)) {
      parsed->command = &p->commands[c];
      i = 1;
    }
  for (; i < n; i++) {
    bool is_option = !operands_only && words[i][0] == '-' && words[i][1];
    if (is_option && !strcmp(words[i], "--"))
      operands_only = true;
    else if (is_option
                 ? read_option(p, words, n, &i, out, parsed)
                 : options_list_add(&parsed->operands, words[i], parsed->operands.count) && no_memory(parsed->error))
      return -1;
  }
  return 0;
}

void options_free(const options_program *p, void *out, options_parsed *parsed) {
  for (int i = 0; i < p->n_rows; i++)
    if (p->rows[i].kind == OPTION_PAIRS)
      options_list_free((options_list *)(void *)((char *)out + p->rows[i].at));
  options_list_free(&parsed->operands);
}

static int answer(const options_program *p, const options_parsed *parsed) {
  if (parsed->action == OPTIONS_HELP)
    options_help(p, parsed->command, stdout);
  else if (parsed->action == OPTIONS_GENERATE)
    options_generate(p, parsed->value, stdout);
  else
    printf("%s %s\n", p->name, CYTO_VERSION);
  if (parsed->action == OPTIONS_VERSION && p->version)
    p->version(stdout);
  return fflush(stdout) ? options_complain(p, "cannot write to the standard output: %s", strerror(errno)) : 1;
}

int options_read(const options_program *p, int argc, char **argv, void *out, options_words *words,
                 options_parsed *parsed) {
  *parsed = (options_parsed){0};
  if (options_expand((const char *const *)argv + 1, argc > 0 ? argc - 1 : 0, words, parsed->error) ||
      options_parse(p, words->words, words->count, out, parsed))
    return options_complain(p, "%s (%s --help lists the options)", parsed->error, p->name);
  return parsed->action == OPTIONS_WORK ? 0 : answer(p, parsed);
}
