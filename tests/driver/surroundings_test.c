/* SPDX-License-Identifier: Apache-2.0 */
/* surroundings_test.c - cytoc_compile() in a process that is not its own: other threads, other settings, failures.
 *
 * Whatever the caller's process is like, equal jobs give equal bytes; whatever happens to a compilation, the process is as
 * before: its files, its children, its folder for temporary files, its handlers of signals.
 */
#define _GNU_SOURCE
#include "jobs.h"

#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define DIGITS "examples/digits/digits.onnx"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1 /* takes address space and signals for itself */
#else
#define SANITIZED 0
#endif

static const char *program; /* argv[0] */

static cytoc_status compile(heard *h, const char *output, cytoc_result *out) {
  cytoc_job job = job_of(h);
  job.model_path = DIGITS;
  job.output_path = output;
  return cytoc_compile(&job, out);
}

/* What every compilation of DIGITS must give. */
static bytes expected(void) {
  static bytes b;
  heard h = {0};
  cytoc_result r;
  if (b.data)
    return b;
  if (!compile(&h, NULL, &r)) {
    b.data = malloc(r.library_size);
    b.size = r.library_size;
    memcpy(b.data, r.library, r.library_size);
  }
  cytoc_result_free(&r);
  return b;
}

static void check_same(void) {
  heard h = {0};
  cytoc_result r;
  bytes wanted = expected();
  CHECK_INT_EQ(compile(&h, NULL, &r), CYTOC_OK);
  CHECK_STR_EQ(r.message, "");
  CHECK(same_bytes(wanted, r.library, r.library_size));
  cytoc_result_free(&r);
}

/* ---- threads ---- */

enum { THREADS = 4, TURNS = 2 };

static void *compile_turns(void *data) {
  (void)data;
  for (int i = 0; i < TURNS; i++)
    check_same();
  return NULL;
}

static bool stop;

/* What a library could be in the middle of when another thread forks. */
static void *be_busy(void *data) {
  (void)data;
  while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
    char text[64];
    void *p = malloc(1000);
    FILE *f = fopen("/dev/null", "w");
    if (f) {
      fprintf(f, "%g", 1.5);
      fclose(f);
    }
    snprintf(text, sizeof text, "%s", strerror(ENOENT));
    free(p);
  }
  return NULL;
}

static void threads(void) {
  pthread_t thread[THREADS], busy;
  expected();
  int files = open_files();
  CHECK_REQUIRE(!pthread_create(&busy, NULL, be_busy, NULL));
  for (int i = 0; i < THREADS; i++)
    CHECK(!pthread_create(&thread[i], NULL, compile_turns, NULL));
  for (int i = 0; i < THREADS; i++)
    pthread_join(thread[i], NULL);
  __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
  pthread_join(busy, NULL);
  CHECK_INT_EQ(open_files(), files);
  CHECK(!has_children());
}

static void *compile_once(void *data) {
  (void)data;
  check_same();
  return NULL;
}

static void small_stack(void) {
  pthread_t thread;
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setstacksize(&attr, SANITIZED ? 1 << 20 : 64 << 10);
  expected();
  CHECK_REQUIRE(!pthread_create(&thread, &attr, compile_once, NULL));
  pthread_join(thread, NULL);
}

/* ---- settings of the process ---- */

static void numbers(void) {
  expected();
  fesetround(FE_UPWARD);
#ifdef __x86_64__
  unsigned before = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(before | 0x8040); /* denormal numbers are 0 */
#endif
  heard h = {0};
  cytoc_result r;
  cytoc_status status = compile(&h, NULL, &r);
#ifdef __x86_64__
  __builtin_ia32_ldmxcsr(before);
#endif
  fesetround(FE_TONEAREST);
  CHECK_INT_EQ(status, CYTOC_OK);
  CHECK(same_bytes(expected(), r.library, r.library_size));
  cytoc_result_free(&r);
  if (!setlocale(LC_ALL, "de_DE.UTF-8"))
    setlocale(LC_ALL, "C.UTF-8");
  check_same();
  setlocale(LC_ALL, "C");
}

static void on_signal(int number) { (void)number; }

static void signals(void) {
  static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ, SIGUSR1};
  struct sigaction mine = {.sa_handler = on_signal}, found, before[6];
  sigset_t all, mask;
  expected();
  for (int i = 0; i < 6; i++)
    sigaction(numbers[i], &mine, &before[i]);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &mask);
  check_same();
  pthread_sigmask(SIG_SETMASK, &mask, NULL);
  for (int i = 0; i < 6; i++) {
    sigaction(numbers[i], NULL, &found);
    CHECK(found.sa_handler == on_signal);
    sigaction(numbers[i], &before[i], NULL);
  }
  /* Children that end are not waited for by anybody. */
  signal(SIGCHLD, SIG_IGN);
  check_same();
  signal(SIGCHLD, SIG_DFL);
}

/* What waits in the caller's streams is the caller's to write, once. */
static void streams(void) {
  char path[CHECK_PATH + 20], text[200] = "";
  snprintf(path, sizeof path, "%s/out", own_tmpdir());
  expected();
  fflush(stdout);
  int saved = dup(STDOUT_FILENO), file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  dup2(file, STDOUT_FILENO);
  printf("pending");
  FILE *other = fopen(path, "a");
  fprintf(other, "!");
  heard h = {0};
  cytoc_result r;
  cytoc_status status = compile(&h, NULL, &r);
  fflush(stdout);
  fclose(other);
  dup2(saved, STDOUT_FILENO);
  close(saved);
  CHECK_INT_EQ(status, CYTOC_OK);
  CHECK_STR_EQ(r.report, "");
  cytoc_result_free(&r);
  ssize_t n = pread(file, text, sizeof text - 1, 0);
  close(file);
  CHECK_INT_EQ(n, 8);
  CHECK_STR_EQ(text, "pending!");
  remove(path);
}

/* A pipe of the caller's ends when the caller closes it, whatever is being compiled. */
static int pipe_end[2];

static void close_pipe(heard *h, const char *stage) {
  (void)h;
  char byte;
  if (strcmp(stage, "kernels") || pipe_end[1] < 0)
    return;
  close(pipe_end[1]);
  pipe_end[1] = -1;
  CHECK_INT_EQ(read(pipe_end[0], &byte, 1), 0);
}

static void descriptors(void) {
  heard h = {.meanwhile = close_pipe};
  cytoc_result r;
  CHECK_REQUIRE(!pipe(pipe_end));
  CHECK_INT_EQ(compile(&h, NULL, &r), CYTOC_OK);
  CHECK_INT_EQ(pipe_end[1], -1);
  close(pipe_end[0]);
  cytoc_result_free(&r);
}

/* In a process of its own, as nothing can be said without these. */
static void no_standard_files(void) {
  expected();
  pid_t child = fork();
  if (!child) {
    for (int i = 0; i < 3; i++)
      close(i);
    heard h = {0};
    cytoc_result r;
    cytoc_status status = compile(&h, NULL, &r);
    _exit(status || !same_bytes(expected(), r.library, r.library_size));
  }
  int status;
  waitpid(child, &status, 0);
  CHECK_INT_EQ(status, 0);
}

/* ---- the linker ---- */

static void check_linker(const char *path, const char *script, cytoc_status wanted, const char *text) {
  char file[CHECK_PATH + 20], *before = strdup(getenv("PATH"));
  snprintf(file, sizeof file, "%s/ld", own_tmpdir());
  FILE *f = script ? fopen(file, "w") : NULL;
  if (f) {
    fputs(script, f);
    fclose(f);
    chmod(file, 0700);
  }
  setenv("PATH", path, 1);
  heard h = {0};
  cytoc_result r;
  CHECK_INT_EQ(compile(&h, NULL, &r), wanted);
  CHECK_STR_HAS(r.message, text);
  cytoc_result_free(&r);
  setenv("PATH", before, 1);
  free(before);
  if (f)
    remove(file);
}

static void linker(void) {
  expected();
  check_linker("/no/such/folder", NULL, CYTOC_NO_LINKER, "install the package 'binutils'");
  check_linker(own_tmpdir(), "#!/bin/sh\necho the disk is made of cheese\nexit 3\n", CYTOC_NO_LINKER, "made of cheese");
  check_linker(own_tmpdir(), "#!/bin/sh\nkill -9 $$\n", CYTOC_OUT_OF_MEMORY, "signal 9");
}

/* ---- what ends a worker ---- */

static int killing;
static const char *killing_at;

/* The only child there is. */
static void kill_worker(heard *h, const char *stage) {
  char path[100], text[100] = "";
  (void)h;
  snprintf(path, sizeof path, "/proc/self/task/%ld/children", syscall(SYS_gettid));
  if (!killing || strcmp(stage, killing_at))
    return;
  int file = open(path, O_RDONLY);
  CHECK(read(file, text, sizeof text - 1) > 0);
  close(file);
  kill((pid_t)atol(text), killing);
  killing = 0;
}

static void killed(void) {
  static const struct {
    int number;
    cytoc_status status;
    const char *text;
  } rows[] = {{SIGKILL, CYTOC_OUT_OF_MEMORY, "not enough memory"},
              {SIGSEGV, CYTOC_INTERNAL_ERROR, "signal 11"},
              {SIGTERM, CYTOC_INTERNAL_ERROR, "signal 15"}};
  char path[CHECK_PATH + 20];
  snprintf(path, sizeof path, "%s/x.so", own_tmpdir());
  for (size_t i = 0; i < 4 * sizeof rows / sizeof rows[0]; i++) {
    heard h = {.meanwhile = kill_worker};
    cytoc_result r;
    killing = rows[i / 4].number;
    killing_at = i % 4 < 2 ? "kernels" : "link";
    if (SANITIZED && killing == SIGSEGV)
      continue; /* the sanitizer has the worker say so and exit */
    CHECK_INT_EQ(compile(&h, i % 2 ? path : NULL, &r), rows[i / 4].status);
    CHECK_STR_HAS(r.message, rows[i / 4].text);
    CHECK_INT_EQ(h.errors, 1);
    cytoc_result_free(&r);
    CHECK_INT_EQ(entries_of(own_tmpdir()), 0);
    CHECK(!has_children());
  }
}

static void no_address_space(void) {
  struct rlimit before, tight;
  if (SANITIZED)
    CHECK_SKIP("sanitizers take address space");
  expected();
  getrlimit(RLIMIT_AS, &before);
  tight = before;
  int seen = 0;
  for (rlim_t megabytes = 100; megabytes <= 1600; megabytes += 100) {
    heard h = {0};
    cytoc_result r;
    tight.rlim_cur = megabytes << 20;
    setrlimit(RLIMIT_AS, &tight);
    cytoc_status status = compile(&h, NULL, &r);
    setrlimit(RLIMIT_AS, &before);
    CHECK(status == CYTOC_OK || status == CYTOC_OUT_OF_MEMORY);
    if (status == CYTOC_OUT_OF_MEMORY)
      CHECK_STR_HAS(r.message, "memory");
    else
      CHECK_STR_EQ(r.message, "");
    seen |= 1 << status;
    cytoc_result_free(&r);
  }
  CHECK(seen & 1 << CYTOC_OUT_OF_MEMORY);
}

static void no_files_left(void) {
  struct rlimit before, tight;
  expected();
  getrlimit(RLIMIT_NOFILE, &before);
  for (int more = 0; more < 8; more++) {
    heard h = {0};
    cytoc_result r;
    tight = before;
    tight.rlim_cur = (rlim_t)(open_files() + more);
    setrlimit(RLIMIT_NOFILE, &tight);
    cytoc_status status = compile(&h, NULL, &r);
    setrlimit(RLIMIT_NOFILE, &before);
    CHECK(status == CYTOC_OUT_OF_MEMORY || status == CYTOC_IO_FAILURE || status == CYTOC_OK ||
          status == CYTOC_NO_LINKER);
    CHECK(!status == !*r.message);
    cytoc_result_free(&r);
  }
  CHECK_INT_EQ(entries_of(own_tmpdir()), 0);
}

/* The disk is full: files may not grow. */
static void no_space(void) {
  struct rlimit before, tight;
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  expected();
  getrlimit(RLIMIT_FSIZE, &before);
  for (rlim_t bytes = 1000; bytes < 200000; bytes *= 4) {
    heard h = {0};
    cytoc_result r;
    tight = before;
    tight.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &tight);
    cytoc_status status = compile(&h, NULL, &r);
    setrlimit(RLIMIT_FSIZE, &before);
    if (status == CYTOC_OK || status == CYTOC_INVALID_MODEL || status == CYTOC_INTERNAL_ERROR)
      CHECK_FAIL("files of at most %ld bytes: status %d, %s", (long)bytes, status, r.message);
    cytoc_result_free(&r);
  }
  signal(SIGXFSZ, handler);
  CHECK_INT_EQ(entries_of(own_tmpdir()), 0);
}

static void no_tmpdir(void) {
  heard h = {0};
  cytoc_result r;
  char before[CHECK_PATH];
  snprintf(before, sizeof before, "%s", own_tmpdir());
  setenv("TMPDIR", "/no/such/folder", 1);
  CHECK_INT_EQ(compile(&h, NULL, &r), CYTOC_IO_FAILURE);
  CHECK_STR_HAS(r.message, "set TMPDIR to a writable one");
  setenv("TMPDIR", before, 1);
  cytoc_result_free(&r);
}

/* The n-th allocation fails, or all from the n-th on, in the caller or in the worker: tests/failing_alloc.c. */
static void allocations(void) {
  char preload[CHECK_PATH + 40], at[20];
  const char *slash = strrchr(program, '/');
  snprintf(preload, sizeof preload, "%.*s../failing_alloc.so", (int)(slash ? slash + 1 - program : 0), program);
  if (SANITIZED || access(preload, R_OK))
    CHECK_SKIP("there is no failing_alloc.so for this variant");
  char *absolute = realpath(preload, NULL);
  for (int n = 1; n < 20000; n += n < 60 ? 1 : n / 3) {
    int status;
    snprintf(at, sizeof at, "%d", n);
    pid_t child = fork();
    if (!child) {
      setenv("LD_PRELOAD", absolute, 1);
      setenv("CYTO_FAIL_AT", at, 1);
      if (n % 2)
        setenv("CYTO_FAIL_ALL", "1", 1);
      execl(program, program, "--once", (char *)NULL);
      _exit(99);
    }
    waitpid(child, &status, 0);
    if (status)
      CHECK_FAIL("allocation %d: status %d", n, status);
  }
  free(absolute);
  CHECK_INT_EQ(entries_of(own_tmpdir()), 0);
}

/* In a process that has failing allocations: exit code 0 when the answer is fit for that. */
static int once(void) {
  heard h = {0};
  cytoc_result r;
  cytoc_status status = compile(&h, NULL, &r);
  bool fit = status == CYTOC_OK ? r.library && !*r.message && r.header : status == CYTOC_OUT_OF_MEMORY && *r.message;
  if (!fit)
    fprintf(stderr, "status %d: %s\n", status, r.message);
  cytoc_result_free(&r);
  return !fit;
}

/* ---- again and again ---- */

static void no_growth(void) {
  int files = open_files(), descriptors_after = 0;
  for (int i = 0; i < 12; i++) {
    heard h = {.cancel_at = i % 4 == 3 ? "passes" : NULL};
    cytoc_result r;
    cytoc_job job = job_of(&h);
    bytes model = product_bytes((product){.columns_declared = JOBS_ROWS - (i % 4 == 1), .external = i % 4 >= 2});
    job.model = model.data;
    job.model_size = model.size;
    job.external = give_weights;
    cytoc_compile(&job, &r);
    CHECK_INT_EQ(r.status, i % 4 == 3 ? CYTOC_CANCELLED : i % 4 == 1 ? CYTOC_INVALID_MODEL : CYTOC_OK);
    cytoc_result_free(&r);
    free(model.data);
    descriptors_after = open_files();
  }
  CHECK_INT_EQ(descriptors_after, files);
  CHECK_INT_EQ(entries_of(own_tmpdir()), 0);
  CHECK(!has_children());
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"threads", threads},
                                     {"small_stack", small_stack},
                                     {"numbers", numbers},
                                     {"signals", signals},
                                     {"streams", streams},
                                     {"descriptors", descriptors},
                                     {"no_standard_files", no_standard_files},
                                     {"linker", linker},
                                     {"killed", killed},
                                     {"no_address_space", no_address_space},
                                     {"no_files_left", no_files_left},
                                     {"no_space", no_space},
                                     {"no_tmpdir", no_tmpdir},
                                     {"allocations", allocations},
                                     {"no_growth", no_growth}};
  if (argc == 2 && !strcmp(argv[1], "--once"))
    return once();
  program = argv[0];
  const char *folder = own_tmpdir();
  int failed = check_main(argc, argv, tests, CHECK_COUNT(tests));
  free(expected().data);
  return rmdir(folder) || failed;
}
