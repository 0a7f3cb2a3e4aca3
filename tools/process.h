/* SPDX-License-Identifier: Apache-2.0 */
/* process.h - programs that the tools start, and where they find what belongs to them: cytoc beside themselves, a Python with
 * other frameworks, the scripts that use these. */
#ifndef CY_TOOLS_PROCESS_H
#define CY_TOOLS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

enum { PROCESS_ARGS = 200, PROCESS_PATH = 4096 };

typedef struct process_args {
  const char *v[PROCESS_ARGS + 1];
  int n;
  bool over;      /* there were more words: it is not run */
  double data_kb; /* limit of its data (RLIMIT_DATA); 0: none */
} process_args;

/* Up to PROCESS_ARGS words; the text is not copied. */
void process_arg(process_args *a, const char *text);
/* Runs a command to its end. `out` gets the start of its stdout; the end of its stderr instead when it fails. The status of
 * waitpid(). */
int process_run(const process_args *a, char *out, size_t room);
/* Has run(ctx) done in a process of its own, and is what that returns. SIGINT, SIGTERM, SIGHUP and SIGQUIT, unless they were ignored
 * before, end it with all that it has started; then clean(ctx), and this process ends by the signal, too. -1: there can be no process. */
int process_guarded(int (*run)(void *ctx), void (*clean)(void *ctx), void *ctx);
/* For signal handlers: ends the command that process_run() waits for, if there is one. */
void process_stop(void);
/* The last line of a text that says something, without its newline: of Python's traces the error itself. */
const char *process_last_line(const char *text, int *out_length);
/* "what: why", by the status and text of process_run(); `last`: the text's last line, not its first. */
void process_failure(char *out, size_t room, const char *what, int status, const char *text, int last);

/* This program's own path, and its folder. 0, or -1. */
int process_self(char self[PROCESS_PATH], char folder[PROCESS_PATH]);
/* The interpreter of all tools: $CYTO_PYTHON, else venv/bin/python in this folder or the one above, else python3 of the search path. */
void process_python(const char *folder, char out[PROCESS_PATH]);
/* Our script of that name in tools/: where it was built, or as installed, without its folder. Where it is nowhere: the last path
 * that was tried, which opening it will name. */
void process_script(const char *folder, const char *name, char out[PROCESS_PATH]);

#endif
