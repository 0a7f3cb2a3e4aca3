/* SPDX-License-Identifier: Apache-2.0 */
/* batch.c - `cytoc --batch LIST`: many compilations out of one process.
 *
 * In:  a list file, one command line per line: fields separated by tabs, the first one a file that receives what this
 *      compilation prints (stdout and stderr), the others its arguments after the program's name. Empty lines are skipped.
 * Out: on stdout, one line for each finished command, in the order of finishing: "INDEX STATUS MILLISECONDS", STATUS
 *      being the exit code, or minus the signal that ended it. INDEX counts the non-empty lines from 0.
 *
 * Every command runs in a forked child, so that a crash or a time-out costs one test and not the run, and so that the
 * start-up cost of the compiler (loading and relocating LLVM) is paid once. The parent must have no threads. The test
 * suites compile thousands of tiny models this way; nothing else depends on it.
 */
#include "tools/batch.h"

#include "ir/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_JOBS = 64, MAX_ARGS = 256, TIME_LIMIT_S = 300 };

typedef struct job {
  pid_t pid; /* 0: free */
  long index;
  double start_ms;
} job;

/* Splits a line at tabs, in place. Returns the number of fields, the first one of which is the log file; -1: too many. */
static int split_line(char *line, char **fields) {
  int n = 0;
  for (char *rest = line, *field; (field = strsep(&rest, "\t")) != NULL;) {
    if (n == MAX_ARGS)
      return -1;
    fields[n++] = field;
  }
  fields[n] = NULL;
  return n;
}

/* In the child: never returns. */
static void run_child(char *line, int (*compile_main)(int argc, char **argv)) {
  char *fields[MAX_ARGS + 1];
  int n = split_line(line, fields);
  if (n < 2) {
    fprintf(stderr, "cytoc: --batch: a line needs a log file and 1 to %d arguments, separated by tabs\n", MAX_ARGS - 1);
    _exit(2);
  }
  int log = open(fields[0], O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (log < 0) {
    fprintf(stderr, "cytoc: --batch: cannot write '%s': %s\n", fields[0], strerror(errno));
    _exit(2);
  }
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  close(log);
  signal(SIGALRM, SIG_DFL);
  alarm(TIME_LIMIT_S);
  fields[0] = (char *)"cytoc";
  exit(compile_main(n, fields));
}

/* Waits for one child, prints its line, frees its place. Returns 1 when it failed. */
static int reap_one(job *jobs, int n_jobs) {
  int status = 0;
  pid_t pid;
  do {
    pid = waitpid(-1, &status, 0);
  } while (pid < 0 && errno == EINTR);
  for (int i = 0; i < n_jobs; i++) {
    if (jobs[i].pid != pid)
      continue;
    jobs[i].pid = 0;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    printf("%ld %d %.1f\n", jobs[i].index, code, cy_clock_ms() - jobs[i].start_ms);
    fflush(stdout);
    return code != 0;
  }
  return 0;
}

static int busy_count(const job *jobs, int n_jobs) {
  int n = 0;
  for (int i = 0; i < n_jobs; i++)
    n += jobs[i].pid != 0;
  return n;
}

static int start_one(job *jobs, long index, char *line, int (*compile_main)(int argc, char **argv)) {
  job *place = jobs;
  while (place->pid)
    place++;
  fflush(NULL);
  *place = (job){.pid = fork(), .index = index, .start_ms = cy_clock_ms()};
  if (place->pid == 0)
    run_child(line, compile_main);
  if (place->pid > 0)
    return 0;
  fprintf(stderr, "cytoc: --batch: cannot fork: %s\n", strerror(errno));
  place->pid = 0;
  return 1;
}

/* The whole list as one string. It is read before the first fork: children that exit would otherwise move the shared
 * read position of a list still open. */
static char *read_list(const char *path) {
  FILE *in = fopen(path, "re");
  char *text = NULL;
  size_t room = 0;
  ssize_t len = in ? getdelim(&text, &room, 0, in) : -1;
  if (len < 0 && (!in || ferror(in)))
    fprintf(stderr, "cytoc: cannot read the batch list '%s': %s\n", path, strerror(errno));
  else if (len < 0 && text)
    text[0] = 0;
  if (in)
    fclose(in);
  return text;
}

int cy_batch_run(const char *list, int n_jobs, int (*compile_main)(int argc, char **argv)) {
  job jobs[MAX_JOBS] = {0};
  n_jobs = n_jobs < 1 ? 1 : n_jobs > MAX_JOBS ? MAX_JOBS : n_jobs;
  char *text = read_list(list);
  if (!text)
    return 1;
  long index = 0;
  int failed = 0;
  for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL;) {
    if (!line[0])
      continue;
    if (busy_count(jobs, n_jobs) == n_jobs)
      failed |= reap_one(jobs, n_jobs);
    failed |= start_one(jobs, index++, line, compile_main);
  }
  while (busy_count(jobs, n_jobs))
    failed |= reap_one(jobs, n_jobs);
  free(text);
  return failed;
}
