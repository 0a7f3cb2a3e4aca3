/* SPDX-License-Identifier: Apache-2.0 */
/* job.c - cytoc.h: a job done by a process of its own, and what comes of it.
 *
 * In:  a job. Out: a result; callbacks while it is made. The worker (worker.c) is forked from here and says what it does
 * over a pair of sockets; what is larger lies in files in memory that both have. Whatever becomes of the worker, out of
 * memory, a mistake of ours, a crash in LLVM, here it is a status: nothing of the compiler runs in the caller's process.
 * Before editing: there may be any number of jobs at once, in threads of an application that is none of ours. Nothing here
 * is static but constants, nothing waits for processes that are not our own, and every failure of an allocation has a way
 * out.
 */
#define _GNU_SOURCE
#include "cytoc.h"

#include "channel.h"
#include "worker.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
  ASK_MS = 100,       /* how often on_progress is asked whether to go on */
  PATIENCE_MS = 5000, /* how long a worker may take to tidy up */
  LOG_SHOWN = 4000,
  FOLDER_BYTES = 512
};

/* What a result owns. */
typedef struct owned {
  char *message, *header, *report;
  void *library;
  size_t library_size;
} owned;

typedef struct run {
  cytoc_job job;
  owned *owned;
  int file[WORKER_FILES], worker_socket;
  char folder[FOLDER_BYTES];
  pid_t pid;
  cytoc_status status;
  bool finished, cancelled, killed, no_memory;
  char *message; /* lines so far */
  size_t message_size;
  uint64_t external_size;
  char stage[32];
  int64_t done, total;
  double cancelled_ms;
} run;

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* ---- the message ---- */

static void add_line(run *r, const char *line) {
  size_t n = strlen(line), before = r->message_size;
  char *grown = realloc(r->message, before + n + 2);
  if (!grown) {
    r->no_memory = true;
    return;
  }
  if (before)
    grown[before++] = '\n';
  memcpy(grown + before, line, n + 1);
  r->message = grown;
  r->message_size = before + n;
}

static void diagnose(run *r, const cytoc_diagnostic *d) {
  if (d->severity == CYTOC_ERROR)
    add_line(r, d->line);
  if (r->job.on_diagnostic)
    r->job.on_diagnostic(r->job.ctx, d);
}

/* An error that is not the model's. */
static void fail(run *r, cytoc_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void fail(run *r, cytoc_status status, const char *format, ...) {
  char line[LOG_SHOWN + 600] = "cytoc: error: ";
  size_t n = strlen(line);
  va_list args;
  va_start(args, format);
  vsnprintf(line + n, sizeof line - n, format, args);
  va_end(args);
  r->status = status;
  diagnose(r, &(cytoc_diagnostic){.struct_size = sizeof(cytoc_diagnostic),
                                  .severity = CYTOC_ERROR,
                                  .file = "cytoc",
                                  .graph = "",
                                  .node = "",
                                  .op = "",
                                  .node_index = -1,
                                  .item = "",
                                  .text = line + n,
                                  .line = line});
}

/* ---- files in memory ---- */

/* All of it, with a 0 behind; NULL: no memory. */
static char *text_of(int fd) {
  struct stat st;
  if (fstat(fd, &st))
    return NULL;
  char *text = malloc((size_t)st.st_size + 1);
  size_t n = 0;
  for (ssize_t got = 1; text && n < (size_t)st.st_size && got > 0; n += got > 0 ? (size_t)got : 0)
    got = pread(fd, text + n, (size_t)st.st_size - n, (off_t)n);
  if (text)
    text[n] = 0;
  return text;
}

static bool write_at(int fd, const char *bytes, uint64_t n, uint64_t at) {
  while (n) {
    ssize_t wrote = pwrite(fd, bytes, n, (off_t)at);
    if (wrote < 0 && errno != EINTR)
      return false;
    bytes += wrote > 0 ? wrote : 0;
    at += wrote > 0 ? (uint64_t)wrote : 0;
    n -= wrote > 0 ? (uint64_t)wrote : 0;
  }
  return true;
}

/* Not one of the standard ones, which a caller may have closed. */
static int above_standard(int fd) {
  if (fd < 0 || fd > STDERR_FILENO)
    return fd;
  int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  close(fd);
  return moved;
}

static void close_file(int *fd) {
  if (*fd >= 0)
    close(*fd);
  *fd = -1;
}

static bool open_files(run *r) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
    return false;
  r->worker_socket = above_standard(pair[0]);
  r->file[WORKER_SOCKET] = above_standard(pair[1]);
  bool ok = r->worker_socket >= 0 && r->file[WORKER_SOCKET] >= 0;
  for (int i = WORKER_SOCKET + 1; ok && i < WORKER_FILES; i++) {
    if ((i == WORKER_LIBRARY || i == WORKER_HEADER) && r->job.output_path)
      continue;
    if (i == WORKER_EXTERNAL && !r->job.external)
      continue;
    r->file[i] = above_standard(memfd_create("cytoc", MFD_CLOEXEC));
    ok = r->file[i] >= 0;
  }
  return ok;
}

/* ---- the worker ---- */

static bool make_folder(run *r) {
  const char *base = getenv("TMPDIR");
  base = base && *base ? base : "/tmp";
  int n = snprintf(r->folder, sizeof r->folder, "%s/cytoc-XXXXXX", base);
  if (n < (int)sizeof r->folder && mkdtemp(r->folder))
    return true;
  fail(r, CYTOC_IO_FAILURE, "cannot make a temporary directory in '%s': %s; set TMPDIR to a writable one", base,
       n < (int)sizeof r->folder ? strerror(errno) : "the path is too long");
  r->folder[0] = 0;
  return false;
}

static bool start(run *r) {
  if (!open_files(r)) {
    fail(r, CYTOC_OUT_OF_MEMORY, "no files for a worker process: %s", strerror(errno));
    return false;
  }
  if (!make_folder(r))
    return false;
  pid_t parent = getpid();
  int files[WORKER_FILES];
  memcpy(files, r->file, sizeof files);
  files[WORKER_SOCKET] = r->worker_socket;
  r->pid = fork();
  if (r->pid == 0)
    worker_main(&r->job, files, r->folder, parent);
  close_file(&r->worker_socket);
  if (r->pid > 0)
    return true;
  fail(r, CYTOC_OUT_OF_MEMORY, "cannot start a worker process: %s", strerror(errno));
  return false;
}

static void cancel(run *r) {
  if (r->cancelled)
    return;
  r->cancelled = true;
  r->cancelled_ms = now_ms();
  kill(r->pid, SIGTERM);
}

static void ask_progress(run *r) {
  if (!r->cancelled && *r->stage && r->job.on_progress && r->job.on_progress(r->job.ctx, r->stage, r->done, r->total))
    cancel(r);
}

static void set_progress(run *r, const channel_message *m) {
  snprintf(r->stage, sizeof r->stage, "%s", m->text[0]);
  r->done = m->head.number[0];
  r->total = m->head.number[1];
  ask_progress(r);
}

/* Puts what the callback has into the file, at a page. */
static void give_external(run *r, const channel_message *m) {
  const void *data = NULL;
  uint64_t size = 0, length = (uint64_t)m->head.number[1];
  int code = r->job.external(r->job.ctx, m->text[0], (uint64_t)m->head.number[0], length, &data, &size);
  uint64_t at = (r->external_size + 65535) / 65536 * 65536;
  size = size < length ? size : length;
  if (!code && size && (!data || !write_at(r->file[WORKER_EXTERNAL], data, size, at))) {
    r->no_memory = data;
    code = data ? ENOMEM : EFAULT;
  }
  r->external_size = at + size;
  channel_send(r->file[WORKER_SOCKET], CHANNEL_DATA, (const int64_t[CHANNEL_NUMBERS]){code, (int64_t)at, (int64_t)size},
               NULL, 0);
}

static void hear(run *r, const channel_message *m) {
  const char *const *t = m->text;
  switch (m->head.kind) {
  case CHANNEL_PROGRESS:
    set_progress(r, m);
    break;
  case CHANNEL_DIAGNOSTIC:
    diagnose(r, &(cytoc_diagnostic){sizeof(cytoc_diagnostic), (cytoc_severity)m->head.number[0], t[0], t[1], t[2], t[3],
                                    m->head.number[1], t[4], t[5], t[6]});
    break;
  case CHANNEL_EXTERNAL:
    give_external(r, m);
    break;
  case CHANNEL_DONE:
    r->finished = true;
    r->status = (cytoc_status)m->head.number[0];
    break;
  default:
    break;
  }
}

/* Until the worker has ended. */
static void listen_to(run *r) {
  struct pollfd p = {.fd = r->file[WORKER_SOCKET], .events = POLLIN};
  for (;;) {
    int ready = poll(&p, 1, r->job.on_progress || r->cancelled ? ASK_MS : -1);
    if (ready < 0 && errno != EINTR && errno != EAGAIN)
      r->no_memory = true;
    if (ready == 0)
      ask_progress(r);
    if (r->cancelled && !r->killed && now_ms() - r->cancelled_ms > PATIENCE_MS) {
      r->killed = true;
      kill(r->pid, SIGKILL);
    }
    channel_message m;
    bool no_memory = false;
    if (ready <= 0 && !r->no_memory)
      continue;
    if (r->no_memory || !channel_receive(p.fd, &m, &no_memory)) {
      if (r->no_memory |= no_memory)
        kill(r->pid, SIGTERM); /* what it says cannot be heard */
      return;
    }
    if (!r->cancelled)
      hear(r, &m);
    free(m.bytes);
  }
}

/* ---- the end ---- */

/* What is in a folder, and what is in folders in it; without memory of its own. */
static void empty_folder(int folder) {
  struct entry {
    uint64_t inode, offset;
    unsigned short size;
    unsigned char type;
    char name[];
  };
  union {
    struct entry first;
    char bytes[2048];
  } list;
  for (long n; (n = syscall(SYS_getdents64, folder, &list, sizeof list)) > 0;)
    for (long at = 0; at < n;) {
      const struct entry *e = (const struct entry *)(list.bytes + at);
      at += e->size;
      if (!strcmp(e->name, ".") || !strcmp(e->name, ".."))
        continue;
      int inner = openat(folder, e->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      if (inner >= 0)
        empty_folder(inner);
      unlinkat(folder, e->name, inner >= 0 ? AT_REMOVEDIR : 0);
      close_file(&inner);
    }
}

static void remove_folder(run *r) {
  int folder = open(r->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0)
    return;
  empty_folder(folder);
  close(folder);
  rmdir(r->folder);
}

/* Outputs are written under names of temps.c's first; only a worker that was killed leaves them. */
static void remove_half_written(const run *r) {
  const char *path = r->job.output_path, *base = path ? strrchr(path, '/') : NULL;
  if (!path)
    return;
  base = base ? base + 1 : path;
  const char *dot = strrchr(base, '.');
  int folder = (int)(base - path), all = (int)strlen(base), stem = dot ? (int)(dot - base) : all;
  const struct {
    int bytes;
    const char *ending;
  } files[] = {{all, ""}, {stem, ".h"}, {all, ".weights"}};
  for (int i = 0; i < 3; i++) {
    char name[PATH_MAX];
    int n = snprintf(name, sizeof name, "%.*s.%.*s%s.%ld.tmp", folder, path, files[i].bytes, base, files[i].ending,
                     (long)r->pid);
    if (n < (int)sizeof name)
      unlink(name);
  }
}

/* Of a worker that did not say how it ended. */
static void explain_end(run *r, int wait_status, bool known) {
  char *log = text_of(r->file[WORKER_LOG]);
  size_t n = log ? strlen(log) : 0;
  const char *tail = n > LOG_SHOWN ? log + n - LOG_SHOWN : log ? log : "";
  while (n && log[n - 1] == '\n')
    log[--n] = 0;
  const char *colon = n ? ": " : "";
  if (known && WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL)
    fail(r, CYTOC_OUT_OF_MEMORY, "the compilation was killed: not enough memory?%s%s", colon, tail);
  else if (known && WIFSIGNALED(wait_status))
    fail(r, CYTOC_INTERNAL_ERROR,
         "the compilation ended by signal %d%s%s; this is a bug in cytoc, not in the model; please report it with "
         "the "
         "model",
         WTERMSIG(wait_status), colon, tail);
  else
    fail(r, CYTOC_INTERNAL_ERROR, "the compilation ended without a result%s%s", colon, tail);
  free(log);
}

static void end_worker(run *r) {
  int wait_status = 0, there;
  pid_t got;
  siginfo_t info;
  while ((there = waitid(P_PID, (id_t)r->pid, &info, WEXITED | WNOWAIT)) < 0 && errno == EINTR)
    ;
  if (!r->finished && there == 0)
    kill(-r->pid, SIGKILL); /* children that it has not ended */
  while ((got = waitpid(r->pid, &wait_status, 0)) < 0 && errno == EINTR)
    ;
  bool known = got == r->pid, died = r->finished ? false : !known || WIFSIGNALED(wait_status);
  remove_folder(r);
  if (died)
    remove_half_written(r);
  if (r->cancelled)
    fail(r, CYTOC_CANCELLED, "cancelled");
  else if (r->no_memory)
    r->status = CYTOC_OUT_OF_MEMORY;
  else if (!r->finished)
    explain_end(r, wait_status, known);
  else if (r->status && !r->message) { /* ended by cy_bug() or cy_no_memory() */
    char *log = text_of(r->file[WORKER_LOG]);
    fail(r, r->status, "%s%s%s", cytoc_status_name(r->status), log && *log ? ": " : "", log ? log : "");
    free(log);
  }
}

static bool take_library(run *r) {
  struct stat st;
  if (r->job.output_path || fstat(r->file[WORKER_LIBRARY], &st))
    return r->job.output_path;
  void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, r->file[WORKER_LIBRARY], 0);
  if (p == MAP_FAILED)
    return false;
  r->owned->library = p;
  r->owned->library_size = (size_t)st.st_size;
  return (r->owned->header = text_of(r->file[WORKER_HEADER]));
}

/* What was printed: standard output, then what -v says. */
static char *report_of(const run *r) {
  char *out = text_of(r->file[WORKER_REPORT]), *log = text_of(r->file[WORKER_LOG]), *both = NULL;
  if (out && log && (both = realloc(out, strlen(out) + strlen(log) + 1))) {
    strcat(both, log);
    out = NULL;
  }
  free(out);
  free(log);
  return both;
}

static void take_result(run *r) {
  if (r->status == CYTOC_OK && !(take_library(r) && (r->owned->report = report_of(r))))
    r->no_memory = true;
  if (r->no_memory)
    r->status = CYTOC_OUT_OF_MEMORY;
}

static void do_job(run *r) {
  if (start(r)) {
    listen_to(r);
    end_worker(r);
    take_result(r);
  } else if (r->folder[0]) {
    rmdir(r->folder);
  }
  close_file(&r->worker_socket);
  for (int i = 0; i < WORKER_FILES; i++)
    close_file(&r->file[i]);
}

cytoc_status cytoc_compile(const cytoc_job *job, cytoc_result *out) {
  if (!out)
    return CYTOC_INVALID_OPTION;
  *out = (cytoc_result){.struct_size = sizeof *out, .message = "", .header = NULL, .report = ""};
  run r = {.worker_socket = -1};
  for (int i = 0; i < WORKER_FILES; i++)
    r.file[i] = -1;
  if (job)
    memcpy(&r.job, job, job->struct_size < sizeof r.job ? job->struct_size : sizeof r.job);
  r.owned = out->owner = calloc(1, sizeof *r.owned);
  if (!r.owned)
    r.status = CYTOC_OUT_OF_MEMORY;
  else if (!job || job->struct_size < sizeof(size_t) || (job->option_count && !job->options))
    fail(&r, CYTOC_INVALID_OPTION, "%s", job ? "the job's struct_size or options are not set" : "there is no job");
  else
    do_job(&r);
  out->status = r.status;
  if (r.status != CYTOC_OK)
    out->message = r.message ? r.message : cytoc_status_name(r.status);
  if (!r.owned)
    return r.status;
  r.owned->message = r.message;
  out->library = r.owned->library;
  out->library_size = r.owned->library_size;
  out->header = r.owned->header;
  out->report = r.owned->report ? r.owned->report : "";
  return r.status;
}

void cytoc_result_free(cytoc_result *result) {
  owned *o = result ? result->owner : NULL;
  if (o) {
    free(o->message);
    free(o->header);
    free(o->report);
    if (o->library)
      munmap(o->library, o->library_size);
    free(o);
  }
  if (result)
    *result = (cytoc_result){0};
}
