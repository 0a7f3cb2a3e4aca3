/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - the command line of cytoc: parses argv, runs the pipeline in this process, prints what it has to say. Commands
 * that are no compilation are rows of a table.
 *
 * Exit code 0, or 1 after diagnostics; nothing is written then.
 */
#define _GNU_SOURCE
#include "codegen/temps.h"
#include "options.h"
#include "pipeline.h"
#include "tools/batch.h"
#include "tools/process.h"
#include "tools/terminal.h"
#include "tools/verify/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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
    status = o.verifies ? cytoc_verify(&o) : compile(&o);
  status = status < 0 ? o.verifies ? 2 : 1 : status; /* verify has more to say than yes or no */
  cytoc_options_free(&o);
  return status;
}

/* ---- commands that are part of the Python package ---- */

/* Can this Python import the package's module of the command? */
static bool has_package(const char *python, const char *command) {
  char statement[64];
  snprintf(statement, sizeof statement, "import cytoc.%s", command);
  int status = -1;
  pid_t child = fork();
  if (child == 0) {
    int nowhere = open("/dev/null", O_RDWR);
    if (nowhere >= 0 && dup2(nowhere, 1) == 1 && dup2(nowhere, 2) == 2)
      execlp(python, python, "-c", statement, (char *)NULL);
    _exit(127);
  }
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
    ;
  return child > 0 && WIFEXITED(status) && !WEXITSTATUS(status);
}

static int package_main(int argc, char **argv) {
  char self[PROCESS_PATH], folder[PROCESS_PATH] = ".", python[PROCESS_PATH];
  char **words = calloc((size_t)argc + 3, sizeof *words);
  process_self(self, folder);
  process_python(folder, python);
  bool found = has_package(python, argv[1]), named = getenv("CYTO_PYTHON") != NULL;
  const char *other = "python3"; /* that of PATH may have the package where the one beside cytoc has not */
  if (words && (found || (!named && has_package(other, argv[1])))) {
    words[0] = found ? python : (char *)other;
    words[1] = "-m";
    words[2] = "cytoc";
    memcpy(words + 3, argv + 1, (size_t)(argc - 1) * sizeof *words);
    execvp(words[0], words);
  }
  options_complain(&cytoc_program,
                   "cytoc %s is part of the Python package, which '%s' does not find: install it by "
                   "'%s -m pip install .' in cytoc's folder, or name the Python that has it by CYTO_PYTHON",
                   argv[1], python, python);
  free(words);
  return 1;
}

static const struct {
  const char *name;
  int (*main)(int argc, char **argv); /* argv[1] is the name */
} commands[] = {{"predict", package_main}, {"report", package_main}};

int main(int argc, char **argv) {
  signal(SIGXFSZ, SIG_IGN); /* a file beyond the limit is an error of write(), here and in the linker */
  for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++)
    if (!strcmp(argv[1], commands[i].name))
      return commands[i].main(argc, argv);
  return compile_main(argc, argv);
}
