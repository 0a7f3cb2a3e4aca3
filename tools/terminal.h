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

/* A line on stderr that says what is being done, if stderr is a terminal; it appears after a second and is wiped out in
 * the end, and before anything else is printed. */
typedef struct terminal_progress {
  const char *what; /* of the whole: "m.onnx"; NULL: nothing */
  double began_ms, stage_ms, shown_ms;
  char stage[32];
  bool on, visible;
} terminal_progress;

void terminal_progress_begin(terminal_progress *p, const char *what);
/* done of total parts of the stage; total 0: not known. */
void terminal_progress_show(terminal_progress *p, const char *stage, int64_t done, int64_t total);
void terminal_progress_wipe(terminal_progress *p);

#endif
