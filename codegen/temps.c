/* SPDX-License-Identifier: Apache-2.0 */
/* temps.c - temporary files and child processes that are gone in the end, whatever the end was.
 *
 * One private directory under TMPDIR holds intermediate files; outputs are written under a temporary name beside their
 * place and renamed into it, so nobody ever sees half a library; to devices and pipes they are copied.
 * cy_temps_destroy() removes what is left; so do the handler of SIGINT, SIGTERM and SIGHUP, cy_bug() and
 * cy_no_memory(), which is why paths and children stand in fixed tables reachable from static variables. A child would
 * write files again after they were removed: children are ended and reaped first. Whatever changes the world and the
 * tables (a directory or child made, a child reaped) does both with the signals blocked.
 */
#define _GNU_SOURCE
#include "codegen/temps.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_FILES = 512 };

struct cy_temps {
  struct cy_temps *outer; /* made before this one */
  char dir[512];
  char *files[MAX_FILES];
  volatile int nfiles;
};

static const int signals[3] = {SIGINT, SIGTERM, SIGHUP};
static struct sigaction before[3];           /* without any set */
static cy_temps *volatile active;            /* the innermost set of this process */
static volatile pid_t children[CY_CHILDREN]; /* 0: a free place */
static pid_t owner;

/* ---- the handler ---- */

static void remove_all(cy_temps *t) {
  for (int i = 0; i < t->nfiles; i++)
    unlink(t->files[i]);
  rmdir(t->dir);
}

/* Only calls that a signal handler may make. */
static void leave_nothing(void) {
  if (owner != getpid())
    return;
  for (int i = 0; i < CY_CHILDREN; i++)
    if (children[i])
      kill(children[i], SIGKILL);
  for (int i = 0; i < CY_CHILDREN; i++)
    while (children[i] && waitpid(children[i], NULL, 0) < 0 && errno == EINTR)
      ;
  for (cy_temps *t = active; t; t = t->outer)
    remove_all(t);
}

/* The signal is blocked until this returns, and so are the two others. */
static void on_signal(int number) {
  leave_nothing();
  signal(number, SIG_DFL);
  raise(number);
}

static void block(sigset_t *out_before) {
  sigset_t set;
  sigemptyset(&set);
  for (int i = 0; i < 3; i++)
    sigaddset(&set, signals[i]);
  pthread_sigmask(SIG_BLOCK, &set, out_before);
}

static void unblock(const sigset_t *before_block) { pthread_sigmask(SIG_SETMASK, before_block, NULL); }

static void install(void) {
  struct sigaction act = {.sa_handler = on_signal};
  for (int i = 0; i < 3; i++)
    sigaddset(&act.sa_mask, signals[i]);
  for (int i = 0; i < 3; i++) {
    sigaction(signals[i], NULL, &before[i]);
    if (before[i].sa_handler != SIG_IGN)
      sigaction(signals[i], &act, NULL);
  }
  owner = getpid();
  cy_at_sudden_end = leave_nothing;
}

static void uninstall(void) {
  cy_at_sudden_end = NULL;
  for (int i = 0; i < 3; i++)
    sigaction(signals[i], &before[i], NULL);
}

/* ---- files ---- */

/* make: it is the pattern of a new one. */
static bool take_directory(cy_temps *t, bool make) {
  sigset_t mask;
  block(&mask);
  bool made = !make || mkdtemp(t->dir) != NULL;
  int error = errno;
  if (made) {
    t->outer = active;
    active = t;
    if (!t->outer)
      install();
  }
  unblock(&mask);
  errno = error;
  return made;
}

cy_temps *cy_temps_create(cy_diag_sink *diag) {
  cy_temps *t = calloc(1, sizeof *t);
  if (!t)
    cy_no_memory();
  const char *base = getenv("TMPDIR");
  base = base && *base ? base : "/tmp";
  snprintf(t->dir, sizeof t->dir, "%s/cytoc-XXXXXX", base);
  if (take_directory(t, true))
    return t;
  cy_diag_add(diag, CY_ERROR, NULL, "cannot make a temporary directory in '%s': %s; set TMPDIR to a writable one", base,
              strerror(errno));
  cy_diag_blame(diag, CY_CAUSE_FILE);
  free(t);
  return NULL;
}

cy_temps *cy_temps_adopt(const char *dir) {
  cy_temps *t = calloc(1, sizeof *t);
  if (!t)
    cy_no_memory();
  snprintf(t->dir, sizeof t->dir, "%s", dir);
  take_directory(t, false);
  return t;
}

void cy_temps_destroy(cy_temps *t) {
  sigset_t mask;
  if (!t)
    return;
  remove_all(t);
  block(&mask);
  active = t->outer;
  if (!active)
    uninstall();
  unblock(&mask);
  for (int i = 0; i < t->nfiles; i++)
    free(t->files[i]);
  free(t);
}

static const char *add_file(cy_temps *t, char *path) {
  for (int i = 0; i < t->nfiles; i++)
    if (strcmp(t->files[i], path) == 0) {
      free(path);
      return t->files[i];
    }
  if (t->nfiles == MAX_FILES)
    cy_bug("too many temporary files");
  t->files[t->nfiles] = path;
  t->nfiles = t->nfiles + 1;
  return path;
}

const char *cy_temps_file(cy_temps *t, const char *base_name) {
  char *path = NULL;
  if (asprintf(&path, "%s/%s", t->dir, base_name) < 0)
    cy_no_memory();
  return add_file(t, path);
}

bool cy_path_is_device(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

const char *cy_temps_near(cy_temps *t, const char *output) {
  if (cy_path_is_device(output))
    return cy_temps_file(t, cy_path_base(output));
  int dir = (int)(cy_path_base(output) - output);
  char *path = NULL;
  if (asprintf(&path, "%.*s.%s.%ld.tmp", dir, output, output + dir, (long)getpid()) < 0)
    cy_no_memory();
  return add_file(t, path);
}

static bool copy_file(const char *from, const char *to) {
  static const size_t room = 1 << 16;
  char *bytes = malloc(room);
  FILE *in = fopen(from, "rb"), *out = in && bytes ? fopen(to, "wb") : NULL;
  bool ok = out != NULL;
  for (size_t n; ok && (n = fread(bytes, 1, room, in)) > 0;)
    ok = fwrite(bytes, 1, n, out) == n;
  ok = ok && !ferror(in);
  free(bytes);
  if (in)
    fclose(in);
  return !(out && fclose(out)) && ok;
}

/* The name stays in the table: unlinking it again does no harm. A device stays what it is, /dev/null above all. */
int cy_temps_commit(const char *near, const char *output, cy_diag_sink *diag) {
  bool done = cy_path_is_device(output) ? copy_file(near, output) : rename(near, output) == 0;
  return done ? 0 : cy_cannot_write(diag, output);
}

bool cy_file_write(const char *path, const void *data, size_t bytes) {
  FILE *f = fopen(path, "wb");
  bool ok = f && fwrite(data, 1, bytes, f) == bytes;
  return !(f && fclose(f)) && ok;
}

int cy_cannot_write(cy_diag_sink *diag, const char *path) {
  cy_diag_add(diag, CY_ERROR, NULL, "cannot write '%s': %s", path, strerror(errno));
  cy_diag_blame(diag, CY_CAUSE_FILE);
  return -1;
}

const char *cy_path_base(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* A dot in front is no ending's. */
char *cy_path_with_ending(const char *path, const char *ending) {
  const char *base = cy_path_base(path), *dot = strrchr(base, '.');
  char *out = NULL;
  if (asprintf(&out, "%.*s.%s", (int)(dot && dot > base ? dot - path : (ptrdiff_t)strlen(path)), path, ending) < 0)
    cy_no_memory();
  return out;
}

/* ---- children and threads ---- */

/* The entry of a child, or a free one for 0. */
static volatile pid_t *place_of(pid_t child) {
  for (int i = 0; i < CY_CHILDREN; i++)
    if (children[i] == child)
      return &children[i];
  cy_bug("more than %d children", CY_CHILDREN);
}

static void end_child(cy_cause cause) {
  if (cause == CY_CAUSE_MEMORY)
    _exit(CY_EXIT_NO_MEMORY);
  abort();
}

/* In the child: files and brothers are the parent's, and nobody may write into its directory once it is gone. */
static void forget_parent(pid_t parent) {
  active = NULL;
  cy_at_last = end_child;
  memset((void *)children, 0, sizeof children);
  for (int i = 0; i < 3; i++)
    signal(signals[i], SIG_DFL);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent)
    _exit(1);
}

pid_t cy_temps_fork(void) {
  sigset_t mask;
  pid_t parent = getpid();
  volatile pid_t *place = place_of(0);
  block(&mask);
  pid_t child = fork();
  int error = errno;
  if (child == 0)
    forget_parent(parent);
  else if (child > 0)
    *place = child;
  unblock(&mask);
  errno = error;
  return child;
}

int cy_temps_spawn(pid_t *out_pid, const char *file, const posix_spawn_file_actions_t *actions, char *const argv[]) {
  sigset_t mask;
  posix_spawnattr_t attr;
  volatile pid_t *place = place_of(0);
  block(&mask);
  posix_spawnattr_init(&attr);
  posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setsigmask(&attr, &mask);
  int error = posix_spawnp(out_pid, file, actions, &attr, argv, environ);
  posix_spawnattr_destroy(&attr);
  if (!error)
    *place = *out_pid;
  unblock(&mask);
  return error;
}

int cy_temps_ended(const pid_t *list, int n) {
  for (;;) {
    siginfo_t info;
    for (int i = 0; i < n; i++) {
      info.si_pid = 0;
      if (waitid(P_PID, (id_t)list[i], &info, WEXITED | WNOWAIT | WNOHANG) < 0 || info.si_pid)
        return i;
    }
    if (waitid(P_ALL, 0, &info, WEXITED | WNOWAIT) < 0)
      continue;
    for (int i = 0; i < n; i++)
      if (list[i] == info.si_pid)
        return i;
    return 0; /* a child that is none of ours has ended, and nobody waits for it: by order, then */
  }
}

int cy_temps_wait(pid_t child) {
  sigset_t mask;
  siginfo_t info;
  int status = 0;
  /* While this waits, the handler may run, which must not find a number that belongs to nobody any more. */
  while (waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) < 0 && errno == EINTR)
    ;
  block(&mask);
  waitpid(child, &status, 0);
  *place_of(child) = 0;
  unblock(&mask);
  return status;
}

int cy_temps_thread(pthread_t *out_thread, void *(*run)(void *), void *data) {
  sigset_t mask;
  block(&mask);
  int error = pthread_create(out_thread, NULL, run, data);
  unblock(&mask);
  return error;
}
