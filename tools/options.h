/* SPDX-License-Identifier: Apache-2.0 */
/* options.h - the command lines of all tools: one table of rows a program, from which come the parser, --help, the man
 * page and the completion of bash, zsh and fish.
 *
 * In:  words of a command line, `@FILE` among them being replaced by the words of that file, and an options_program.
 * Out: the fields of the program's own struct that its rows name, and an options_parsed: the subcommand, the operands,
 *      what is to be printed in place of work.
 *
 * A value follows as `--name=value` or `--name value`, of short options as `-o value` or `-ovalue`. `--` ends options.
 * A subcommand is a row of the program's commands; each option says which of them take it.
 */
#ifndef CY_TOOLS_OPTIONS_H
#define CY_TOOLS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef enum option_kind {
  OPTION_TEXT,     /* const char * */
  OPTION_OPTIONAL, /* const char *, "" where no value is given; a value follows by '=' only */
  OPTION_FLAG,     /* bool */
  OPTION_NUMBER,   /* int, from low to high */
  OPTION_REAL,     /* double, above 0 */
  OPTION_PAIRS,    /* options_list of NAME=VALUE */
  OPTION_ACTION    /* options_parsed.action: the row's `low` */
} option_kind;

typedef enum options_action { OPTIONS_WORK, OPTIONS_HELP, OPTIONS_VERSION, OPTIONS_GENERATE } options_action;

/* The end of a row: which commands take the option, the first or all. OPTION_RANGE before it, of numbers. */
#define OPTION_MAIN .commands = 1
#define OPTION_ALL .commands = ~0u
#define OPTION_RANGE(min, max) .low = min, .high = max

typedef struct option_row {
  const char *name; /* "--int8", "-o" */
  option_kind kind;
  size_t at;         /* of the field that it sets */
  const char *value; /* what it is called in texts; "a|b": it is one of these, and others are refused; NULL: takes none.
                         FILE and DIR are completed as such */
  const char *help;  /* a phrase; NULL: the option is not shown */
  long low, high;    /* of OPTION_NUMBER; high 0: no limit but that of int */
  const char *alias; /* "-h"; NULL: none */
  unsigned commands; /* bits by the numbers of the commands that take it */
} option_row;

typedef struct options_command {
  const char *name;  /* NULL: none, the first */
  const char *usage; /* of it, behind the program's name: "MODEL.onnx [-o LIBRARY] [OPTION..]" */
  const char *text;  /* what it does: sentences */
} options_command;

typedef struct options_program {
  const char *name;    /* "cytoc" */
  const char *title;   /* for the man page: "compiles ONNX models into native libraries" */
  const char *endings; /* of operands, for completion: "onnx txt" */
  const options_command *commands;
  int n_commands;
  const option_row *rows;
  int n_rows;
  void (*version)(FILE *out); /* more lines for --version; NULL: none */
} options_program;

/* Words in the order given. */
typedef struct options_list {
  const char **items;
  int *after; /* how many operands stood before each */
  int count, room;
} options_list;

enum { OPTIONS_ERROR = 600 };

typedef struct options_parsed {
  const options_command *command;
  options_list operands;
  options_action action;
  const char *value; /* of the action */
  char error[OPTIONS_ERROR];
} options_parsed;

/* A command line with the files in it read. Words of the arguments are theirs, those of files the struct's. */
typedef struct options_words {
  const char **words;
  int count, room;
  char **files;
  int n_files;
} options_words;

/* Each 0, or -1 with a text in error; what was got by then is to be freed all the same. */
int options_expand(const char *const *words, int n, options_words *out, char error[OPTIONS_ERROR]);
int options_parse(const options_program *p, const char *const *words, int n, void *out, options_parsed *parsed);
/* Cuts the next word of an options file off, in place: blanks divide, '..' and ".." keep them, \ takes the next character
 * as it is, # begins a comment where a word would. NULL: there is none; *bad: a quote has no end. */
char *options_next_word(char **at, bool *bad);
void options_words_free(options_words *words);
void options_free(const options_program *p, void *out, options_parsed *parsed); /* its lists */

/* A whole command line of a program: 0; 1 when it has been answered (--help, --version, ..); -1 after an error on stderr. */
int options_read(const options_program *p, int argc, char **argv, void *out, options_words *words,
                 options_parsed *parsed);

/* "program: error: text", the word in colour on a terminal. -1, so that callers can return it. */
int options_complain(const options_program *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

int options_list_add(options_list *list, const char *item, int after); /* -1: no memory */
void options_list_free(options_list *list);
/* The value of NAME=VALUE for exactly this name (which may itself hold '='), the last one given for the operand of that
 * number: those behind it come before those in front of all, and those that stand behind another are not its. operand
 * -1: all are. NULL: none. */
const char *options_value(const options_list *list, const char *name, int operand);

/* options_text.c. "a|b": the value is one of a few words. */
bool options_has_choices(const option_row *o);
/* Help, man page, completion, by the value of --generate: "man", "bash", "zsh", "fish". */
void options_help(const options_program *p, const options_command *command, FILE *out);
int options_generate(const options_program *p, const char *what, FILE *out); /* -1: not one of these */

/* Rows that every program has. */
#define OPTIONS_COMMON                                                                                                 \
  {"--help", OPTION_ACTION, 0, NULL, "this text", .low = OPTIONS_HELP, .alias = "-h", OPTION_ALL},                     \
      {"--version", OPTION_ACTION, 0, NULL, "version, and what this build has", .low = OPTIONS_VERSION, OPTION_ALL}, { \
    "--generate", OPTION_ACTION, 0, "man|bash|zsh|fish", NULL, .low = OPTIONS_GENERATE, OPTION_ALL                     \
  }

#endif
