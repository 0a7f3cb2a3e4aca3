/* SPDX-License-Identifier: Apache-2.0 */
/* worker.c - does a job in a process of its own, forked from the caller's.
 *
 * In:  a job, in the caller's memory as it was. Out: messages (channel.h), and files in memory that both processes have.
 * What the pipeline takes for granted in a process of its own is so here: it may end when memory does, print (standard
 * output is the report, standard error a log that is shown when something went badly wrong), have handlers of signals, and
 * leak; whatever becomes of it, the caller's process is as it was.
 * Before editing: the caller may have threads, and any of their locks may be held here for ever: those of the C library's
 * malloc, streams and loader are set free by fork(), but nothing else of the caller's may be called: no callback, above
 * all. What is open and not ours is closed first, lest pipes of the caller's stay open.
 */
#define _GNU_SOURCE
#include "worker.h"

#include "channel.h"
#include "codegen/codegen.h"
#include "codegen/temps.h"
#include "pipeline.h"
#include "runtime/os/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <limits.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* A piece of external data that came. */
typedef struct piece {
  struct piece *next;
  char *location;
  uint64_t offset, length;
  const void *data;
} piece;

enum { STACK_BYTES = 16 << 20 };

typedef struct worker {
  const cytoc_job *job;
  const char *folder;
  int file[WORKER_FILES];
  piece *pieces;
} worker;

static int done_socket; /* of this process, for done_at_last */

/* ---- the surroundings ---- */

static bool is_ours(int fd, const int files[WORKER_FILES]) {
  for (int i = 0; i < WORKER_FILES; i++)
    if (files[i] == fd)
      return true;
  return fd <= STDERR_FILENO;
}

/* What others wait on by epoll(). Libraries such as gRPC start threads anew in a process that was forked, and end the process
 * when that is closed. */
static bool is_waited_on(int fd) {
  static const char anonymous[] = "anon_inode:";
  char path[64], what[sizeof anonymous];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  return readlink(path, what, sizeof what) >= (ssize_t)sizeof anonymous - 1 &&
         !memcmp(what, anonymous, sizeof anonymous - 1);
}

/* Where there is no /proc: closes all but ours. */
static void close_ranges(const int files[WORKER_FILES]) {
  unsigned from = STDERR_FILENO + 1;
  for (unsigned next; from != ~0u; from = next == ~0u ? next : next + 1) {
    next = ~0u;
    for (int i = 0; i < WORKER_FILES; i++)
      if (files[i] >= (int)from && (unsigned)files[i] < next)
        next = (unsigned)files[i];
    if (next > from)
      close_range(from, next == ~0u ? next : next - 1, 0);
  }
}

static void close_others(const int files[WORKER_FILES]) {
  DIR *all = opendir("/proc/self/fd");
  if (!all) {
    close_ranges(files);
    return;
  }
  for (struct dirent *entry; (entry = readdir(all));) {
    int fd = atoi(entry->d_name);
    if (fd != dirfd(all) && !is_ours(fd, files) && !is_waited_on(fd))
      close(fd);
  }
  closedir(all);
}

static void take_files(worker *w, const int files[WORKER_FILES]) {
  close_others(files);
  memcpy(w->file, files, sizeof w->file);
  int null = open("/dev/null", O_RDONLY);
  dup2(null, STDIN_FILENO);
  if (null > STDERR_FILENO)
    close(null);
  __fpurge(stdout); /* what the caller printed and has not written yet */
  dup2(w->file[WORKER_REPORT], STDOUT_FILENO);
  dup2(w->file[WORKER_LOG], STDERR_FILENO);
}

/* setenv() may wait for a lock of the caller's. */
static void set_folder(const char *folder) {
  size_t n = 0, m = 0;
  while (environ[n])
    n++;
  char **copy = calloc(n + 2, sizeof *copy), *setting = NULL;
  if (!copy || asprintf(&setting, "TMPDIR=%s", folder) < 0)
    cy_no_memory();
  copy[m++] = setting;
  for (size_t i = 0; i < n; i++)
    if (strncmp(environ[i], "TMPDIR=", 7))
      copy[m++] = environ[i];
  environ = copy;
}

static void reset_signals(void) {
  for (int i = 1; i < NSIG; i++)
    signal(i, SIG_DFL);
  signal(SIGXFSZ, SIG_IGN); /* a file beyond the limit is an error of write(), here and in the linker */
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
}

static const cytoc_status status_of[] = {
    [CY_CAUSE_MODEL] = CYTOC_INVALID_MODEL,  [CY_CAUSE_OPTION] = CYTOC_INVALID_OPTION,
    [CY_CAUSE_FILE] = CYTOC_IO_FAILURE,      [CY_CAUSE_LINKER] = CYTOC_NO_LINKER,
    [CY_CAUSE_MEMORY] = CYTOC_OUT_OF_MEMORY, [CY_CAUSE_BUG] = CYTOC_INTERNAL_ERROR};

static void send_done(int socket, cytoc_status status) {
  channel_send(socket, CHANNEL_DONE, (const int64_t[CHANNEL_NUMBERS]){status}, NULL, 0);
}

/* Allocates nothing. */
static void done_at_last(cy_cause cause) {
  send_done(done_socket, status_of[cause]);
  _exit(1);
}

/* ---- messages ---- */

/* Of the pipeline's stages those that are reported to a caller. */
static void report_progress(void *ctx, const char *stage, int64_t done, int64_t total) {
  static const char *const reported[] = {"calibrate", "import", "passes", "kernels", "link", NULL};
  const worker *w = ctx;
  int i = 0;
  while (reported[i] && strcmp(reported[i], stage))
    i++;
  if (reported[i])
    channel_send(w->file[WORKER_SOCKET], CHANNEL_PROGRESS, (const int64_t[CHANNEL_NUMBERS]){done, total}, &stage, 1);
}

static void tell_diagnostics(const worker *w, const cy_diag_sink *diag) {
  for (size_t i = 0; i < cy_diag_count(diag); i++) {
    const cy_diagnostic *d = cy_diag_at(diag, i);
    const char *text[] = {d->where.file, d->where.graph, d->where.node, d->where.op, d->where.item, d->text, d->line};
    channel_send(w->file[WORKER_SOCKET], CHANNEL_DIAGNOSTIC,
                 (const int64_t[CHANNEL_NUMBERS]){d->severity, d->where.node_index}, text, CHANNEL_TEXTS);
  }
}

static const piece *ask(worker *w, const char *location, uint64_t offset, uint64_t length, char *why) {
  channel_message m;
  bool no_memory;
  const int64_t place[CHANNEL_NUMBERS] = {(int64_t)offset, (int64_t)length};
  if (!channel_send(w->file[WORKER_SOCKET], CHANNEL_EXTERNAL, place, &location, 1) ||
      !channel_receive(w->file[WORKER_SOCKET], &m, &no_memory))
    cy_no_memory();
  free(m.bytes);
  const int64_t *answer = m.head.number;
  if (answer[0])
    snprintf(why, CY_EXTERNAL_WHY, "external data '%s' could not be had: error %lld of the callback", location,
             (long long)answer[0]);
  else if ((uint64_t)answer[2] < length)
    snprintf(why, CY_EXTERNAL_WHY, "external data '%s' ends too early: expected %llu bytes from %llu on, found %lld",
             location, (unsigned long long)length, (unsigned long long)offset, (long long)answer[2]);
  if (answer[0] || (uint64_t)answer[2] < length)
    return NULL;
  piece *p = calloc(1, sizeof *p);
  char *copy = strdup(location);
  void *data = mmap(NULL, length, PROT_READ, MAP_PRIVATE, w->file[WORKER_EXTERNAL], (off_t)answer[1]);
  if (!p || !copy || data == MAP_FAILED)
    cy_no_memory();
  *p = (piece){w->pieces, copy, offset, length, data};
  return w->pieces = p;
}

/* Models are read more than once where they are calibrated: pieces stay. */
static const void *external(void *ctx, const char *location, uint64_t offset, uint64_t length, char *why) {
  worker *w = ctx;
  const piece *p = w->pieces;
  while (p && (p->offset != offset || p->length != length || strcmp(p->location, location)))
    p = p->next;
  p = p ? p : ask(w, location, offset, length, why);
  return p ? p->data : NULL;
}

/* ---- the job ---- */

static void copy_file(const char *path, int to, cy_diag_sink *diag) {
  int from = open(path, O_RDONLY | O_CLOEXEC);
  char bytes[1 << 16];
  ssize_t n;
  while ((n = read(from, bytes, sizeof bytes)) > 0)
    for (ssize_t done = 0, wrote; done < n; done += wrote)
      if ((wrote = write(to, bytes + done, (size_t)(n - done))) < 0) {
        cy_diag_add(diag, CY_ERROR, NULL, "no memory for the library: %s", strerror(errno));
        cy_diag_blame(diag, CY_CAUSE_MEMORY);
        close(from);
        return;
      }
  if (n < 0) {
    cy_diag_add(diag, CY_ERROR, NULL, "cannot read '%s': %s", path, strerror(errno));
    cy_diag_blame(diag, CY_CAUSE_FILE);
  }
  if (from >= 0)
    close(from);
}

/* Whatever of these the pipeline writes into the worker's folder goes with it. */
static void expect_files(cy_temps *temps, const char *input) {
  static const char *const endings[] = {"so", "dll", "h", "so.weights", "dll.weights"};
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
    char *path = cy_path_with_ending(input, endings[i]);
    cy_temps_file(temps, cy_path_base(path));
    free(path);
  }
}

static bool refused(cy_diag_sink *diag, const char *text) {
  cy_diag_add(diag, CY_ERROR, NULL, "%s", text);
  cy_diag_blame(diag, CY_CAUSE_OPTION);
  return true;
}

static void append_weights(worker *w, off_t at, const char *path, cy_diag_sink *diag) {
  static const char mark[] = CYRT_WEIGHTS_MARK;
  struct stat st = {0};
  stat(path, &st);
  uint64_t bytes = (uint64_t)st.st_size;
  int to = w->file[WORKER_LIBRARY];
  if (pwrite(to, mark, sizeof mark, at) < 0 || pwrite(to, &bytes, sizeof bytes, at + (off_t)sizeof mark) < 0 ||
      lseek(to, at + CYRT_MAP_ALIGN, SEEK_SET) < 0)
    cy_no_memory();
  copy_file(path, to, diag);
}

static void hand_over(worker *w, const cytoc_session *s) {
  char *header = cy_path_with_ending(s->written, "h"), *weights = NULL;
  if (asprintf(&weights, "%s.weights", s->written) < 0)
    cy_no_memory();
  copy_file(s->written, w->file[WORKER_LIBRARY], s->diag);
  if (access(weights, F_OK) == 0) { /* where runtime/load.c looks for them if there is no file beside the library */
    off_t end = lseek(w->file[WORKER_LIBRARY], 0, SEEK_END);
    append_weights(w, (end + CYRT_MAP_ALIGN - 1) / CYRT_MAP_ALIGN * CYRT_MAP_ALIGN, weights, s->diag);
  }
  copy_file(header, w->file[WORKER_HEADER], s->diag);
  free(header);
  free(weights);
}

static bool refuses(const cytoc_job *job, const cytoc_options *o, cy_diag_sink *diag) {
  if (o->input || o->output || o->quantize)
    return refused(diag, "expected options alone: the model and the output are fields of the job");
  if (o->batch || (o->passes && !strcmp(o->passes, "help")))
    return refused(diag, "options '--batch' and '--passes=help' belong to the command line: a job cannot have them");
  if (!job->model && !job->model_path)
    return refused(diag, "the job has no model: expected model_path, or model and model_size");
  if (job->model && !job->model_size)
    return refused(diag, "the model in memory has 0 bytes");
  if (job->output_path && (!*job->output_path || !strcmp(job->output_path, "-")))
    return refused(diag, "output_path expects a file, or NULL for a library in memory");
  if (!job->output_path && o->emit)
    return refused(diag, "option '--emit' needs output_path: in memory there is a shared library and its header");
  if (!o->emit && (o->stop_after || o->passes))
    return refused(diag, "options '--passes' and '--stop-after' print a graph where there is no '--emit=graph'");
  return false;
}

static void compile(worker *w, const cytoc_options *o, cy_diag_sink *diag) {
  const cytoc_job *job = w->job;
  cytoc_session s = {.o = o,
                     .diag = diag,
                     .model = job->model,
                     .model_size = job->model_size,
                     .model_dir = job->model ? job->model_dir : NULL,
                     .ask = job->external ? external : NULL,
                     .ask_ctx = w,
                     .folder = w->folder};
  s.report.progress = report_progress;
  s.report.progress_ctx = w;
  if (!cytoc_session_run(&s) && !o->output)
    hand_over(w, &s);
}

static void run(worker *w, cy_temps *temps, cy_diag_sink *diag) {
  const cytoc_job *job = w->job;
  cytoc_options o;
  if (job->option_count > INT_MAX / 2) {
    refused(diag, "too many options");
    return;
  }
  if (cytoc_options_read(job->options, (int)job->option_count, &o)) {
    refused(diag, o.parsed.error);
    return;
  }
  if (refuses(job, &o, diag))
    return;
  o.input = job->model_path ? job->model_path : "model";
  o.output = job->output_path;
  expect_files(temps, o.input);
  compile(w, &o, diag);
}

static cytoc_status status_by(const cy_diag_sink *diag) {
  for (size_t i = 0; i < cy_diag_count(diag); i++)
    if (cy_diag_at(diag, i)->severity == CY_ERROR)
      return status_of[cy_diag_at(diag, i)->cause];
  return CYTOC_OK;
}

/* In a thread of its own: the caller's may have a small stack. */
static void *work(void *data) {
  worker *w = data;
  uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
  cy_temps *temps = cy_temps_adopt(w->folder);
  cy_diag_sink *diag = cy_diag_create();
  run(w, temps, diag);
  fflush(stdout);
  cy_temps_destroy(temps);
  tell_diagnostics(w, diag);
  send_done(done_socket, status_by(diag));
  _exit(0);
}

_Noreturn void worker_main(const cytoc_job *job, const int files[WORKER_FILES], const char *folder, long parent) {
  worker w = {.job = job, .folder = folder};
  setpgid(0, 0); /* all of its children can be ended with it; what a terminal sends is the caller's to decide about */
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  reset_signals();
  if (getppid() != parent)
    _exit(1);
  take_files(&w, files);
  done_socket = w.file[WORKER_SOCKET];
  cy_at_last = done_at_last;
  setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
  fesetenv(FE_DFL_ENV);
  set_folder(folder);
  pthread_t thread;
  pthread_attr_t attr;
  sigset_t all;
  if (pthread_attr_init(&attr) || pthread_attr_setstacksize(&attr, STACK_BYTES) ||
      pthread_create(&thread, &attr, work, &w))
    cy_no_memory();
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  for (;;)
    pause();
}
