/* SPDX-License-Identifier: Apache-2.0 */
/* guard_run.c - runs a library on inputs of any size with nothing but forbidden pages around every tensor.
 *
 * In:  on stdin one case a line, tab-separated: name, library, file with the inputs, file for the outputs, seconds.
 * Out: on stdout one line a case: "DONE name", "REFUSED name reason" where the library refuses the run with an error, or
 *      "FAULT name reason" where it ends by a signal, takes too long, or gives other values in its second run.
 *
 * Both files: i32 count; for each tensor i32 dtype (0: absent), i32 rank, i64 dims[rank], then its bytes.
 *
 * The seconds are the case's own on a core, whatever else runs; ten times as many may pass. Cases of one library stand one
 * after the other: a child loads it once, and each case is a fork of that child.
 *
 * A case runs twice. First inputs, outputs and the context's memory end where a PROT_NONE page
 * begins (memory of the context is aligned, so that it ends up to 63 bytes before); then they begin where one ends. Both
 * runs must give the same bytes. Tensors without elements lie on a forbidden page altogether.
 *
 * A case may use 6 GB. Sanitizers reserve more than a limit of the process could allow; with them tensors may take 2 GB and
 * one allocation of anything else 2 GB. What a case may not have is what a machine does not have: the library's error.
 */
#define _GNU_SOURCE
#include "runtime/cyto.h"

#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_PORTS = 64, PAGE = 4096, DONE = 0, REFUSED = 1, FAULT = 2 };

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { SANITIZED = 1 };
static const size_t MAX_BYTES = (size_t)2 << 30; /* between forbidden pages */

/* A report ends the child by a signal: an exit code could be taken for the library's refusal. */
const char *__asan_default_options(void) {
  return "abort_on_error=1:allocator_may_return_null=1:max_allocation_size_mb=2048:detect_leaks=0";
}
const char *__ubsan_default_options(void) { return "abort_on_error=1:print_stacktrace=1"; }
const char *__tsan_default_options(void) { return "abort_on_error=1:allocator_may_return_null=1"; }
#else
enum { SANITIZED = 0 };
static const size_t MAX_BYTES = (size_t)1 << 40;
#endif

typedef struct test_case {
  char *name, *library, *inputs, *outputs;
  int seconds;
} test_case;

typedef struct tensor {
  int32_t dtype, rank;
  int64_t dims[CYTO_MAX_RANK];
  size_t bytes;
  void *data;
} tensor;

/* In the child: the reason goes up the pipe, which is its stdout. */
static _Noreturn void end(int how, const char *format, ...) __attribute__((format(printf, 2, 3)));
static _Noreturn void end(int how, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vprintf(format, args);
  va_end(args);
  fflush(stdout);
  _exit(how);
}

/* ---- memory between forbidden pages ---- */

static size_t in_use;

/* `bytes` of memory that end where a forbidden page begins (in_front false: but for what the alignment costs), or begin
 * where one ends. NULL when there is no memory. */
static void *guarded(size_t bytes, size_t alignment, bool in_front) {
  if (bytes > MAX_BYTES - in_use)
    return NULL;
  size_t room = (bytes + PAGE - 1) / PAGE * PAGE;
  char *base = mmap(NULL, room + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED)
    return NULL;
  if (room && mprotect(base + PAGE, room, PROT_READ | PROT_WRITE)) {
    munmap(base, room + 2 * PAGE);
    return NULL;
  }
  in_use += bytes;
  if (room && room <= (size_t)1 << 24)
    memset(base + PAGE, 0xa5, room); /* what nobody wrote is no zero */
  size_t at = in_front ? 0 : (room - bytes) / alignment * alignment;
  return base + PAGE + at;
}

static void *context_alloc(void *in_front, size_t bytes, size_t alignment) {
  return guarded(bytes, alignment, *(bool *)in_front);
}

static void context_free(void *user, void *data, size_t bytes) { /* nor may it be used from now on */
  (void)user;
  uintptr_t from = (uintptr_t)data / PAGE * PAGE, to = ((uintptr_t)data + bytes + PAGE - 1) / PAGE * PAGE;
  in_use -= bytes;
  if (bytes) {
    madvise((void *)from, to - from, MADV_DONTNEED);
    mprotect((void *)from, to - from, PROT_NONE);
  }
}

/* ---- files ---- */

static void read_all(FILE *f, void *to, size_t bytes) {
  if (bytes && fread(to, 1, bytes, f) != bytes)
    end(FAULT, "the file of inputs is too short");
}

static int tensors_read(const char *path, tensor *out) {
  FILE *f = fopen(path, "rb");
  int32_t n;
  if (!f)
    end(FAULT, "cannot read %s", path);
  read_all(f, &n, sizeof n);
  if (n < 0 || n > MAX_PORTS)
    end(FAULT, "%d inputs are too many", n);
  for (int32_t i = 0; i < n; i++) {
    tensor *t = &out[i];
    read_all(f, &t->dtype, sizeof t->dtype);
    read_all(f, &t->rank, sizeof t->rank);
    read_all(f, t->dims, sizeof *t->dims * (size_t)t->rank);
    int64_t bytes = t->dtype ? cyto_tensor_bytes(t->dtype, t->rank, t->dims) : 0;
    t->bytes = bytes > 0 ? (size_t)bytes : 0;
    t->data = malloc(t->bytes + 1);
    if (!t->data)
      end(FAULT, "no memory for an input");
    read_all(f, t->data, t->bytes);
  }
  fclose(f);
  return n;
}

static void tensors_write(const char *path, const tensor *t, int32_t n) {
  FILE *f = fopen(path, "wb");
  if (!f)
    end(FAULT, "cannot write %s", path);
  fwrite(&n, sizeof n, 1, f);
  for (int32_t i = 0; i < n; i++) {
    fwrite(&t[i].dtype, sizeof t[i].dtype, 1, f);
    fwrite(&t[i].rank, sizeof t[i].rank, 1, f);
    fwrite(t[i].dims, sizeof *t[i].dims, (size_t)t[i].rank, f);
    fwrite(t[i].data, 1, t[i].bytes, f);
  }
  fclose(f);
}

/* ---- one case ---- */

#define RUN(call)                                                                                                      \
  do {                                                                                                                 \
    if ((call) != CYTO_OK)                                                                                             \
      end(REFUSED, "%s", error.message);                                                                               \
  } while (0)

static void inputs_bind(cyto_context *context, const tensor *in, int n, bool in_front) {
  cyto_error error = {0};
  for (int k = 0; k < n; k++) {
    if (!in[k].dtype)
      continue;
    char *data = guarded(in[k].bytes, 1, in_front);
    if (!data)
      end(FAULT, "no memory for an input");
    if (in[k].bytes)
      memcpy(data, in[k].data, in[k].bytes);
    RUN(cyto_bind_input(context, k, in[k].dtype, in[k].rank, in[k].dims, data, &error));
  }
}

/* Outputs whose size is known before the run get memory of exactly that size. */
static void outputs_bind(cyto_context *context, int n, bool in_front) {
  cyto_error error = {0};
  cyto_tensor t;
  RUN(cyto_context_prepare(context, &error));
  for (int k = 0; k < n; k++)
    if (cyto_output(context, k, &t, &error) == CYTO_OK) {
      void *data = guarded(t.bytes, 1, in_front);
      if (!data)
        end(REFUSED, "no memory for an output");
      RUN(cyto_bind_output(context, k, data, t.bytes, &error));
    }
}

static int run_once(cyto_model *model, const tensor *in, int n_in, bool in_front, tensor *out) {
  cyto_error error = {0};
  cyto_context *context = NULL;
  cyto_options options = {.threads = 1, .allocator = {context_alloc, context_free, &in_front}};
  int n = cyto_model_output_count(model);
  RUN(cyto_context_create(model, &options, &context, &error));
  inputs_bind(context, in, n_in, in_front);
  outputs_bind(context, n, in_front);
  RUN(cyto_run(context, &error));
  for (int k = 0; k < n; k++) {
    cyto_tensor t;
    RUN(cyto_output(context, k, &t, &error));
    out[k] = (tensor){.dtype = t.dtype, .rank = t.rank, .bytes = t.bytes, .data = malloc(t.bytes + 1)};
    memcpy(out[k].dims, t.dims, sizeof out[k].dims);
    if (!out[k].data)
      end(REFUSED, "no memory for an output");
    if (t.bytes)
      memcpy(out[k].data, t.data, t.bytes);
  }
  cyto_context_destroy(context);
  return n;
}

static void case_run(const test_case *c, cyto_model *model) {
  static tensor in[MAX_PORTS], out[2][MAX_PORTS];
  int n_in = tensors_read(c->inputs, in), n = 0;
  if (cyto_model_input_count(model) != n_in || cyto_model_output_count(model) > MAX_PORTS)
    end(FAULT, "the library has %d inputs, the model %d", cyto_model_input_count(model), n_in);
  for (int side = 0; side < 2; side++)
    n = run_once(model, in, n_in, side, out[side]);
  for (int k = 0; k < n; k++)
    if (out[0][k].bytes != out[1][k].bytes || memcmp(out[0][k].data, out[1][k].data, out[0][k].bytes))
      end(FAULT, "output %d differs from run to run", k);
  tensors_write(c->outputs, out[0], n);
}

/* Of what the child said: what a sanitizer found, or the first line. */
static const char *first_line(char *text) {
  static const char *const marks[] = {"ERROR: AddressSanitizer", "runtime error", "WARNING: ThreadSanitizer"};
  char *line = text;
  for (size_t i = 0; SANITIZED && i < sizeof marks / sizeof marks[0]; i++) {
    char *found = strstr(text, marks[i]);
    while (found && found > text && found[-1] != '\n')
      found--;
    line = found ? found : line;
  }
  line[strcspn(line, "\n")] = 0;
  return line;
}

/* Reads what the child says until it ends, then its fate. What does not fit is read, too: the child must not wait. */
static void case_judge(const test_case *c, int from, pid_t pid) {
  char text[4096], more[4096];
  size_t used = 0;
  for (ssize_t n; used < sizeof text - 1 && (n = read(from, text + used, sizeof text - 1 - used)) > 0;)
    used += (size_t)n;
  while (read(from, more, sizeof more) > 0)
    ;
  text[used] = 0;
  const char *line = first_line(text);
  close(from);
  int status = 0;
  waitpid(pid, &status, 0);
  int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  if (WIFEXITED(status) && WEXITSTATUS(status) == DONE)
    printf("DONE %s\n", c->name);
  else if (WIFEXITED(status) && WEXITSTATUS(status) == REFUSED)
    printf("REFUSED %s %s\n", c->name, line);
  else if (signal == SIGALRM || signal == SIGPROF)
    printf("SLOW %s no end within %d s\n", c->name, c->seconds);
  else
    printf("FAULT %s %s %s\n", c->name, signal ? strsignal(signal) : "", line);
}

/* Limits of a child, whose output goes to the pipe. */
static void child_begin(const int *ends, int seconds) {
  struct rlimit none = {0, 0}, some = {(rlim_t)6 << 30, (rlim_t)6 << 30};
  struct itimerval on_a_core = {.it_value = {.tv_sec = seconds}};
  setrlimit(RLIMIT_CORE, &none);
  if (SANITIZED)
    dup2(ends[1], STDERR_FILENO);
  else
    setrlimit(RLIMIT_AS, &some);
  dup2(ends[1], STDOUT_FILENO);
  close(ends[0]);
  close(ends[1]);
  setitimer(ITIMER_PROF, &on_a_core, NULL);
  alarm((unsigned)seconds * 10);
}

/* model: NULL where its library was refused, and why. */
static void case_fork(const test_case *c, cyto_model *model, const char *refused) {
  int ends[2];
  fflush(stdout);
  if (pipe(ends) != 0) {
    printf("FAULT %s no pipe\n", c->name);
    return;
  }
  pid_t pid = fork();
  if (pid == 0) {
    child_begin(ends, c->seconds);
    if (!model)
      end(REFUSED, "%s", refused);
    case_run(c, model);
    _exit(DONE);
  }
  close(ends[1]);
  case_judge(c, ends[0], pid);
  fflush(stdout);
}

/* In a child: what loading says holds for each of the cases. */
static _Noreturn void library_run(const test_case *cases, size_t n) {
  cyto_error error = {0};
  cyto_model *model = NULL;
  alarm((unsigned)cases->seconds * 10);
  if (cyto_model_load(cases->library, &model, &error) != CYTO_OK)
    model = NULL;
  alarm(0);
  for (size_t i = 0; i < n; i++)
    case_fork(&cases[i], model, error.message);
  _exit(DONE);
}

/* All cases of one library. It ends by itself only while it is loaded: then no case has a verdict yet. */
static void library_fork(const test_case *cases, size_t n) {
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0)
    library_run(cases, n);
  int status = 0;
  waitpid(pid, &status, 0);
  for (size_t i = 0; (!WIFEXITED(status) || WEXITSTATUS(status) != DONE) && i < n; i++)
    printf("FAULT %s while it was loaded: %s\n", cases[i].name,
           WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "it exited");
}

/* Returns false where a line lacks a field. The case keeps the line. */
static bool case_read(char *line, test_case *c) {
  char *fields[5] = {0}, *rest = line;
  line[strcspn(line, "\n")] = 0;
  for (int n = 0; n < 5; n++)
    if ((fields[n] = strsep(&rest, "\t")) == NULL)
      return false;
  *c = (test_case){fields[0], fields[1], fields[2], fields[3], atoi(fields[4])};
  return c->seconds > 0;
}

/* All of stdin, before the first fork: children would move the place where it is read. */
static size_t cases_read(test_case **out) {
  size_t n = 0, max = 0, room = 0;
  char *line = NULL;
  for (; getline(&line, &room, stdin) > 0; line = NULL, room = 0) {
    if (n == max)
      *out = realloc(*out, (max = max * 2 + 64) * sizeof **out);
    if (!*out || !case_read(line, &(*out)[n++])) {
      fprintf(stderr, "guard_run: a line needs 5 fields, the last of which is a number of seconds: line %zu\n", n);
      exit(2);
    }
  }
  free(line);
  return n;
}

int main(void) {
  test_case *cases = NULL;
  size_t n = cases_read(&cases);
  for (size_t from = 0, to; from < n; from = to) {
    for (to = from + 1; to < n && !strcmp(cases[to].library, cases[from].library);)
      to++;
    library_fork(&cases[from], to - from);
  }
  free(cases);
  return 0;
}
