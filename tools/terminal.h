/* SPDX-License-Identifier: Apache-2.0 */
/* terminal.h - what people see on a terminal and files do not: colours, and a line of progress. */
#ifndef CY_TOOLS_TERMINAL_H
#define CY_TOOLS_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* May colours be written there? It is a terminal that is not dumb, and NO_COLOR (https://no-color.org) is not set. */
bool terminal_has_colours(FILE *out);

/* Writes the line and a newline; of a diagnostic, "FILE: error: TEXT", the severity in colour. */
void terminal_line(FILE *out, const char *line);

/* A line on stderr that says what is being done, how far it is, and how long it may take: after a second, only if stderr
 * is a terminal, and drawn again ten times a second by a timer (SIGALRM), whatever the process waits for. There is one at
 * a time. Other things are printed when it has ended: what goes to stdout is kept until then. */
typedef struct terminal_progress {
  const char *what; /* "m.onnx"; NULL: nothing */
  double began_ms, stage_ms, done_ms; /* when the whole, the stage began, and the last of its parts was done */
  char stage[32];
  int64_t done, total; /* parts of the stage; total 0: not known */
  bool on, colours, visible;
} terminal_progress;

void terminal_progress_begin(terminal_progress *p, const char *what);
/* done of total parts of the stage; total 0: not known. */
void terminal_progress_show(terminal_progress *p, const char *stage, int64_t done, int64_t total);
void terminal_progress_end(terminal_progress *p);

#endif
