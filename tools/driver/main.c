/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - the command line of cytoc: parses argv, runs the pipeline in this process, prints what it has to say.
 *
 * Exit code 0, or 1 after diagnostics; nothing is written then.
 */
#include "options.h"
#include "pipeline.h"
#include "codegen/temps.h"
#include "tools/batch.h"
#include "tools/terminal.h"

#include <signal.h>
#include <stdlib.h>

static void show_progress(void *ctx, const char *stage, int64_t done, int64_t total) {
  terminal_progress_show(ctx, stage, done, total);
}

static void print_line(void *out, const char *line) { terminal_line(out, line); }

static void print_diagnostics(const cy_diag_sink *diag) { cy_diag_each(diag, print_line, stderr); }

static int compile(const cytoc_options *o) {
  cytoc_session s = {.o = o, .diag = cy_diag_create()};
  terminal_progress progress = {0};
  if (!o->verbose) {
    terminal_progress_begin(&progress, cy_path_base(o->input));
    s.report.progress = show_progress;
    s.report.progress_ctx = &progress;
  }
  int status = cytoc_session_run(&s);
  terminal_progress_end(&progress);
  print_diagnostics(s.diag);
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
