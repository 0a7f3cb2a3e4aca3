/* SPDX-License-Identifier: Apache-2.0 */
/* process.c - see process.h. */
#define _GNU_SOURCE
#include "tools/process.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void process_arg(process_args *a, const char *text) {
  a->over |= a->n == PROCESS_ARGS;
  if (!a->over)
    a->v[a->n++] = text;
  a->v[a->n] = NULL;
}

static volatile sig_atomic_t running; /* pid of what process_run() waits for */

void process_stop(void) {
  if (running > 0)
    kill((pid_t)running, SIGTERM);
}

static void run_child(const process_args *a, FILE *const files[2]) {
  dup2(fileno(files[0]), STDOUT_FILENO);
  dup2(fileno(files[1]), STDERR_FILENO);
  if (a->data_kb > 0)
    setrlimit(RLIMIT_DATA, &(struct rlimit){(rlim_t)(a->data_kb * 1024), (rlim_t)(a->data_kb * 1024)});
  execvp(a->v[0], (char **)a->v);
  fprintf(stderr, "cannot run '%s': %s\n", a->v[0], strerror(errno));
  fflush(stderr);
  _exit(127);
}

/* No handler runs between fork() and the note of the pid, so that process_stop() never misses it. */
static pid_t start(const process_args *a, FILE *const files[2]) {
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  pid_t pid = fork();
  running = pid;
  for (int number = 1; pid == 0 && number < NSIG; number++) { /* exec does so as well, but later */
    struct sigaction now;
    if (!sigaction(number, NULL, &now) && now.sa_handler != SIG_IGN)
      signal(number, SIG_DFL);
  }
  sigprocmask(SIG_SETMASK, &before, NULL);
  if (pid == 0)
    run_child(a, files);
  return pid;
}

int process_run(const process_args *a, char *out, size_t room) {
  if (a->over) {
    snprintf(out, room, "a command line of more than %d words, which begins with '%s'\n", PROCESS_ARGS, a->v[0]);
    return 127 << 8;
  }
  FILE *files[2] = {tmpfile(), tmpfile()};
  int status = -1;
  fflush(NULL);
  pid_t pid = files[0] && files[1] ? start(a, files) : -1;
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
    ;
  running = 0;
  FILE *from = status == 0 ? files[0] : files[1];
  size_t n = 0;
  if (from) {
    if (status == 0 || fseek(from, -(long)(room - 1), SEEK_END) != 0)
      rewind(from);
    n = fread(out, 1, room - 1, from);
  }
  out[n] = 0;
  for (int i = 0; i < 2; i++)
    if (files[i])
      fclose(files[i]);
  return status;
}

const char *process_last_line(const char *text, int *out_length) {
  const char *best = text;
  for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line != 0)
    if (strspn(line, " \t\r\n") < strcspn(line, "\n"))
      best = line;
  *out_length = (int)strcspn(best, "\r\n");
  return best;
}

void process_failure(char *out, size_t room, const char *what, int status, const char *text, int last) {
  int len = (int)strcspn(text, "\n");
  if (last)
    text = process_last_line(text, &len);
  if (status == -1)
    snprintf(out, room, "%s: cannot start a process", what);
  else if (WIFSIGNALED(status))
    snprintf(out, room, "%s: %s", what, strsignal(WTERMSIG(status)));
  else
    snprintf(out, room, "%s: %.*s", what, len, text);
}

int process_self(char self[PROCESS_PATH], char folder[PROCESS_PATH]) {
  ssize_t len = readlink("/proc/self/exe", self, PROCESS_PATH - 1);
  if (len < 0)
    return -1;
  self[len] = 0;
  memcpy(folder, self, (size_t)len + 1);
  *strrchr(folder, '/') = 0;
  return 0;
}

/* "FOLDER/BELOW/NAME" in `out`; is it there? */
static int found(char out[PROCESS_PATH], const char *folder, const char *below, const char *name, int mode) {
  int n = snprintf(out, PROCESS_PATH, "%s/%s%s", folder, below, name);
  return n > 0 && n < PROCESS_PATH && access(out, mode) == 0;
}

void process_python(const char *folder, char out[PROCESS_PATH]) {
  const char *given = getenv("CYTO_PYTHON");
  if (given && *given)
    snprintf(out, PROCESS_PATH, "%s", given);
  else if (!found(out, folder, "", "venv/bin/python", X_OK) && !found(out, folder, "../", "venv/bin/python", X_OK))
    snprintf(out, PROCESS_PATH, "python3");
}

void process_script(const char *folder, const char *name, char out[PROCESS_PATH]) {
  /* a build; one of another variant, a folder below; what is installed; the Python package */
  static const struct {
    const char *below;
    int flat; /* without the folder in tools */
  } places[] = {{"../tools/", 0}, {"../../tools/", 0}, {"../share/cyto/", 1}, {"../share/", 1}};
  const char *base = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
  for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
    if (found(out, folder, places[i].below, places[i].flat ? base : name, R_OK))
      return;
}

/* ---- what is cleaned up behind, whatever its end ---- */

/* In a group of its own, so that all it starts can be ended at once. */
static int guarded_child(int (*run)(void *ctx), void *ctx, const sigset_t *mask, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  pthread_sigmask(SIG_SETMASK, mask, NULL);
  if (getppid() != parent)
    _exit(1);
  int status = run(ctx);
  fflush(NULL);
  _exit(status);
}

/* Ends all of the child's group by the signal, which lets compilers remove their own files; what does not end in time, at once. */
static void end_group(pid_t child, int number) {
  const struct timespec pause = {.tv_nsec = 10000000};
  const int max = 300; /* pauses */
  int left = max;
  kill(-child, number);
  for (pid_t ended; (ended = waitpid(-child, NULL, left ? WNOHANG : 0)) >= 0 || errno == EINTR;) {
    if (ended || !left)
      continue;
    nanosleep(&pause, NULL);
    if (!--left)
      kill(-child, SIGKILL);
  }
}

/* Stops with all of the child's group, and goes on with it. */
static void stop_group(pid_t child) {
  kill(-child, SIGSTOP);
  raise(SIGSTOP);
  kill(-child, SIGCONT);
}

/* Waits for the child's end or one of the signals, which are blocked; the signal, 0: it has ended. */
static int wait_for_end(pid_t child, const sigset_t *signals, int *out_status) {
  for (;;) {
    int number = sigwaitinfo(signals, NULL);
    if (number == SIGCHLD && waitpid(child, out_status, WNOHANG) == child)
      return 0;
    if (number == SIGTSTP)
      stop_group(child);
    else if (number > 0 && number != SIGCHLD) {
      end_group(child, number == SIGQUIT ? SIGTERM : number); /* which compilers clean up behind */
      return number;
    }
  }
}

/* What is waited for: signals that end a program or stop it, but for those that were ignored when it was started (nohup, a job
 * in the background of a script), and the child's end, of which whoever does not ignore it gets a signal. */
static void guarded_signals(sigset_t *out) {
  static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
  sigemptyset(out);
  sigaddset(out, SIGCHLD);
  signal(SIGCHLD, SIG_DFL);
  for (size_t i = 0; i < sizeof ending / sizeof *ending; i++) {
    struct sigaction now;
    if (!sigaction(ending[i], NULL, &now) && now.sa_handler != SIG_IGN)
      sigaddset(out, ending[i]);
  }
}

int process_guarded(int (*run)(void *ctx), void (*clean)(void *ctx), void *ctx) {
  sigset_t signals, before;
  guarded_signals(&signals);
  pthread_sigmask(SIG_BLOCK, &signals, &before);
  fflush(NULL);
  prctl(PR_SET_CHILD_SUBREAPER, 1); /* what it has started becomes our child when it has gone */
  pid_t parent = getpid(), child = fork();
  if (!child)
    guarded_child(run, ctx, &before, parent);
  int status = 0, number = 0;
  if (child > 0) {
    setpgid(child, child); /* as the child does itself: whoever is first */
    number = wait_for_end(child, &signals, &status);
  }
  clean(ctx);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (child < 0)
    return -1;
  number = !number && WIFSIGNALED(status) ? WTERMSIG(status) : number;
  if (number) {
    signal(number, SIG_DFL);
    raise(number);
  }
  return WEXITSTATUS(status);
}
