/* SPDX-License-Identifier: Apache-2.0 */
/* bug.c - sudden ends: cy_bug() for what is wrong with cytoc, cy_no_memory() for neither it nor the model.
 *
 * In: what was found. Out: a line on stderr, and the process ends; who has files open or a server to tell sets what is
 * called before. Needs nothing else of the compiler, as all of it may end here.
 */
#include "ir_int.h"

#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

const char *cy_bug_context;
void (*cy_at_sudden_end)(void);
void (*cy_at_last)(cy_cause cause);

_Noreturn void cy_bug(const char *format, ...) {
  va_list args;
  fflush(stdout);
  fprintf(stderr, "cytoc: bug%s%s: ", cy_bug_context ? " in " : "", cy_bug_context ? cy_bug_context : "");
  va_start(args, format);
  vfprintf(stderr, format, args);
  va_end(args);
  fprintf(stderr, "\nThis is a bug in cytoc, not in the model; please report it with the model.\n");
  if (cy_at_sudden_end)
    cy_at_sudden_end();
  if (cy_at_last)
    cy_at_last(CY_CAUSE_BUG);
  abort();
}

/* Nothing here may allocate. */
_Noreturn void cy_no_memory(void) {
  static const char text[] = "cytoc: error: out of memory\n";
  ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
  (void)written;
  if (cy_at_sudden_end)
    cy_at_sudden_end();
  if (cy_at_last)
    cy_at_last(CY_CAUSE_MEMORY);
  _exit(1);
}
