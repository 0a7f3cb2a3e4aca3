/* main.c - the command line of cytoc: parses argv, runs the pipeline in this process, prints what it has to say.
 *
 * Exit code 0, or 1 after diagnostics; nothing is written then.
 */
#include "options.h"
#include "pipeline.h"
#include "tools/batch.h"

#include <signal.h>
#include <stdlib.h>

static int compile(const cytoc_options *o) {
  cytoc_session s = {.o = o, .diag = cy_diag_create()};
  int status = cytoc_session_run(&s);
  cy_diag_print(s.diag, stderr);
  cy_diag_destroy(s.diag);
  free(s.written);
  return status;
}

static int compile_main(int argc, char **argv) {
  cytoc_options o;
  int status = cytoc_options_parse(argc, argv, &o);
  if (!status && o.batch && !o.done)
    status = cy_batch_run(o.batch, o.jobs > 0 ? o.jobs : 1, compile_main);
  else if (!status && !o.done)
    status = compile(&o);
  cytoc_options_free(&o);
  return status ? 1 : 0;
}

int main(int argc, char **argv) {
  signal(SIGXFSZ, SIG_IGN); /* a file beyond the limit is an error of write(), here and in the linker */
  return compile_main(argc, argv);
}
