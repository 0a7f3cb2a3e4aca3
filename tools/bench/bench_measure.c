/* SPDX-License-Identifier: Apache-2.0 */
/* bench_measure.c - measures one task: compiles it, and starts the processes of all contenders by turns.
 *
 * In:  a task, and how everything is measured. cytoc lies beside this program, other frameworks are those of build/venv or
 *      $CYTO_PYTHON.
 * Out: a cy_bench_result for each contender and number of threads.
 */
#define _GNU_SOURCE
#include "bench.h"

#include "ir/clock.h"
#include "tools/process.h"

#include <errno.h>
#include <libgen.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- starting processes ---- */

static void pairs_add(process_args *a, const cy_bench_pairs *pairs) {
  for (int i = 0; i < pairs->n; i++) {
    process_arg(a, pairs->option[i]);
    process_arg(a, pairs->text[i]);
  }
}

/* ---- a busy neighbour ---- */

/* A process that computes without end on the last of the CPUs that this one may use, and ends with it at the latest. <= 0:
 * there is none. */
static pid_t neighbour_start(void) {
  cpu_set_t all, last;
  int cpu = CPU_SETSIZE - 1;
  if (sched_getaffinity(0, sizeof all, &all))
    return -1;
  while (cpu > 0 && !CPU_ISSET(cpu, &all))
    cpu--;
  pid_t parent = getpid(), pid = fork();
  if (pid)
    return pid;
  CPU_ZERO(&last);
  CPU_SET(cpu, &last);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (sched_setaffinity(0, sizeof last, &last) || getppid() != parent)
    _exit(1);
  for (volatile unsigned n = 0;; n++)
    ;
}

static void neighbour_stop(pid_t pid) {
  if (pid <= 0)
    return;
  kill(pid, SIGKILL);
  while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
    ;
}

/* ---- contenders ---- */

/* Its name in --against, what measures it besides ourselves, which of several ways that is asked for, and whether it
 * runs on a CPU and on a device. */
static const struct {
  const char *name, *script, *mode;
  cy_bench_when on_cpu, on_device;
} contenders[CY_BENCH_N_CONTENDERS] = {
    [CY_BENCH_COMPILED] = {NULL, NULL, NULL, CY_BENCH_BY_DEFAULT, CY_BENCH_BY_DEFAULT},
    [CY_BENCH_EAGER] = {"eager", NULL, NULL, CY_BENCH_BY_DEFAULT, CY_BENCH_BY_DEFAULT},
    [CY_BENCH_ORT] = {"ort", "bench_ort.py", NULL, CY_BENCH_BY_DEFAULT, CY_BENCH_NEVER},
    [CY_BENCH_OPENVINO] = {"openvino", "bench_openvino.py", NULL, CY_BENCH_ON_REQUEST, CY_BENCH_NEVER},
    [CY_BENCH_TORCH] = {"torch", "bench_torch.py", "eager", CY_BENCH_ON_REQUEST, CY_BENCH_BY_DEFAULT},
    [CY_BENCH_TORCH_COMPILED] = {"torch-compile", "bench_torch.py", "compile", CY_BENCH_ON_REQUEST,
                                 CY_BENCH_BY_DEFAULT},
    [CY_BENCH_TORCH_GRAPHED] = {"torch-graph", "bench_torch.py", "graphed", CY_BENCH_NEVER, CY_BENCH_BY_DEFAULT},
};

const char *cy_bench_contender_word(cy_bench_contender c) { return contenders[c].name; }

cy_bench_when cy_bench_contender_when(cy_bench_contender c, bool on_device) {
  return on_device ? contenders[c].on_device : contenders[c].on_cpu;
}

bool cy_bench_contender_is_foreign(cy_bench_contender c) { return contenders[c].script != NULL; }

/* A library, compiled elsewhere? */
static int is_carried(const char *model) {
  size_t n = strlen(model);
  return n > 3 && !strcmp(model + n - 3, ".so");
}

static void library_path(const cy_bench_setup *o, const char *model, cy_bench_contender c, char *out, size_t room) {
  if (is_carried(model))
    snprintf(out, room, "%s%s", strchr(model, '/') ? "" : "./", model);
  else
    snprintf(out, room, "%s/model-%s.so", o->work, c == CY_BENCH_COMPILED ? "O3" : "O0");
}

/* The ONNX file for other frameworks; 0: there is none. */
static int source_path(const char *model, char *out, size_t room) {
  snprintf(out, room, "%s", model);
  if (is_carried(model))
    snprintf(out, room, "%.*s.onnx", (int)strlen(model) - 3, model);
  return !is_carried(model) || access(out, R_OK) == 0;
}

static int can_measure(const char *model, cy_bench_contender c) {
  char source[PATH_MAX];
  return contenders[c].script ? source_path(model, source, sizeof source)
                              : c == CY_BENCH_COMPILED || !is_carried(model);
}

/* Compiles for one of our own contenders. Returns 0, or 1 with the result's failure set. */
static int library_build(const cy_bench_setup *o, const cy_bench_task *task, cy_bench_result *r) {
  const char *model = task->model;
  const cy_bench_pairs *pairs = &task->pairs;
  char library[PATH_MAX + 32], cytoc[PATH_MAX + 8], target[256], text[4096];
  process_args a = {0};
  library_path(o, model, r->contender, library, sizeof library);
  if (is_carried(model)) {
    r->size_kb = cy_bench_model_kb(library);
    return 0;
  }
  snprintf(cytoc, sizeof cytoc, "%s/cytoc", o->bin);
  process_arg(&a, cytoc);
  process_arg(&a, model);
  process_arg(&a, "-o");
  process_arg(&a, library);
  process_arg(&a, r->contender == CY_BENCH_COMPILED ? "-O3" : "-O0");
  if (o->target) {
    snprintf(target, sizeof target, "--target=%s", o->target);
    process_arg(&a, target);
  }
  for (int i = 0; i < task->n_words; i++)
    process_arg(&a, task->words[i]);
  for (int i = 0; i < pairs->n; i++) {
    if (!strcmp(pairs->option[i], "--dim") || !strcmp(pairs->option[i], "--shape")) {
      process_arg(&a, pairs->option[i]);
      process_arg(&a, pairs->text[i]);
    }
  }
  double start = cy_clock_ms();
  int status = process_run(&a, text, sizeof text);
  r->compile_s = (cy_clock_ms() - start) * 1e-3;
  r->size_kb = cy_bench_model_kb(library);
  if (status)
    process_failure(r->failure, sizeof r->failure, "not compiled", status, text, false);
  return status != 0;
}

/* The line of a process, and of ours the one behind it. */
static int sample_read(cy_bench_result *r, const char *text) {
  cy_bench_sample s = {0};
  char line[512];
  int n = 0, read = 0;
  snprintf(line, sizeof line, "%.*s", (int)strcspn(text, "\n"), text);
#define X(name)                                                                                                        \
  if (sscanf(line + n, "%lf%n", &s.name, &read) == 1)                                                                  \
    n += read;                                                                                                         \
  else                                                                                                                 \
    s.name = -1;
  CY_BENCH_SAMPLE_FIELDS(X)
#undef X
  if (s.peak_kb < 0) /* the first six must be there; other frameworks leave out the last two */
    return 1;
  const char *next = strchr(text, '\n');
  if (!next || sscanf(next, " %lf %511[^\n]", &r->per_run, r->shapes) < 1)
    r->per_run = 0;
  r->samples[r->n_samples++] = s;
  return 0;
}

static const char *outputs_folder(const cy_bench_setup *o, char *out, size_t room) {
  snprintf(out, room, "%s/outputs", o->work);
  return out;
}

/* What the task does with the outputs of its model. Returns 0, or 1 with the result's failure set. */
static int post_time(const cy_bench_setup *o, const cy_bench_task *task, cy_bench_result *r) {
  char folder[PATH_MAX + 16], text[4096];
  process_args a = {0};
  process_arg(&a, "sh");
  process_arg(&a, "-c");
  process_arg(&a, task->post);
  setenv("CYTO_OUTPUTS", outputs_folder(o, folder, sizeof folder), 1);
  double start = cy_clock_ms();
  int status = process_run(&a, text, sizeof text);
  r->post_ms = cy_clock_ms() - start;
  if (status)
    process_failure(r->failure, sizeof r->failure, "post", status, text, true);
  return status != 0;
}

/* One measured process. Returns 0, or 1 with the result's failure set. */
static int sample_take(const cy_bench_setup *o, const cy_bench_task *task, cy_bench_result *r) {
  const char *model = task->model;
  char library[PATH_MAX + 32], python[PROCESS_PATH], script[PROCESS_PATH], threads[16], seconds[32], text[4096];
  char source[PATH_MAX], folder[PATH_MAX + 16];
  process_args a = {0};
  snprintf(threads, sizeof threads, "%d", r->threads);
  snprintf(seconds, sizeof seconds, "%g", o->seconds);
  if (contenders[r->contender].script) {
    process_python(o->bin, python);
    process_script(o->bin, contenders[r->contender].script, script);
    process_arg(&a, python);
    process_arg(&a, script);
    if (contenders[r->contender].mode) {
      process_arg(&a, r->device ? "cuda" : "cpu");
      process_arg(&a, contenders[r->contender].mode);
    }
    source_path(model, source, sizeof source);
    process_arg(&a, source);
  } else {
    library_path(o, model, r->contender, library, sizeof library);
    process_arg(&a, o->self);
    process_arg(&a, "--child");
    process_arg(&a, library);
  }
  process_arg(&a, threads);
  process_arg(&a, seconds);
  process_arg(&a, o->seed);
  pairs_add(&a, &task->pairs);
  if (r->contender == CY_BENCH_COMPILED && task->post && !r->n_samples) {
    process_arg(&a, "--outputs");
    process_arg(&a, outputs_folder(o, folder, sizeof folder));
  }
  a.data_kb = o->limit_kb;
  int status = process_run(&a, text, sizeof text);
  if (status == 0 && sample_read(r, text) == 0)
    return 0;
  process_failure(r->failure, sizeof r->failure, "not run", status, text, true);
  r->n_samples = 0;
  return 1;
}

void cy_bench_model_name(const char *path, char *out, size_t room) {
  char copy[PATH_MAX];
  snprintf(copy, sizeof copy, "%s", path);
  char *base = basename(copy);
  snprintf(out, room, "%.100s", base);
  if (!strcmp(base, "model.onnx") && strchr(path, '/')) {
    snprintf(copy, sizeof copy, "%s", path);
    snprintf(out, room, "%.100s", basename(dirname(copy)));
  }
  char *dot = strrchr(out, '.');
  if (dot && (!strcmp(dot, ".onnx") || !strcmp(dot, ".so")))
    *dot = 0;
}

bool cy_bench_pair_add(cy_bench_pairs *pairs, const char *option, const char *text) {
  if (pairs->n == CY_BENCH_MAX_PAIRS)
    return false;
  pairs->option[pairs->n] = option;
  pairs->text[pairs->n++] = text;
  return true;
}

/* The contenders of one number of threads, compiled where `build` says so; ours that failed are broken. Returns how many
 * there are. */
static int results_begin(const cy_bench_setup *o, const cy_bench_task *task, int threads, bool build,
                         cy_bench_result *results, int *broken) {
  char source[PATH_MAX];
  int n = 0;
  for (int c = 0; c < CY_BENCH_N_CONTENDERS; c++) {
    if (!o->against[c] || !can_measure(task->model, (cy_bench_contender)c))
      continue;
    cy_bench_result *r = &results[n++];
    *r = (cy_bench_result){.batch = task->batch,
                           .threads = threads,
                           .contender = (cy_bench_contender)c,
                           .options = task->options,
                           .post_ms = -1,
                           .device = *o->device ? o->device : NULL};
    snprintf(r->model, sizeof r->model, "%s", task->name);
    if (contenders[c].script)
      r->size_kb = cy_bench_model_kb(source_path(task->model, source, sizeof source) ? source : task->model);
    else if (build)
      broken[c] = library_build(o, task, r);
  }
  return n;
}

/* The libraries are the same for every number of threads. */
static void results_copy(cy_bench_result *results, int per_thread, int n) {
  for (int i = per_thread; i < n; i++) {
    results[i].size_kb = results[i % per_thread].size_kb;
    results[i].compile_s = results[i % per_thread].compile_s;
    memcpy(results[i].failure, results[i % per_thread].failure, sizeof results[i].failure);
  }
}

/* What failed is not measured again with further numbers of threads, and has the reason there, too. */
static void failures_share(cy_bench_result *results, int per_thread, int n) {
  for (int i = per_thread; i < n; i++)
    if (!results[i].n_samples && !*results[i].failure)
      memcpy(results[i].failure, results[i - per_thread].failure, sizeof results[i].failure);
}

/* Ours know the shapes, and they are the same for all. */
static void shapes_share(cy_bench_result *results, int n) {
  const cy_bench_result *known = results;
  while (known < results + n && !*known->shapes)
    known++;
  for (int i = 0; i < n && known < results + n; i++)
    if (!*results[i].shapes) {
      memcpy(results[i].shapes, known->shapes, sizeof known->shapes);
      results[i].per_run = known->per_run;
    }
}

int cy_bench_measure(const cy_bench_setup *o, const cy_bench_task *task, cy_bench_result *results,
                     terminal_progress *progress) {
  int per_thread = 0, n = 0, done = 0, broken[CY_BENCH_N_CONTENDERS] = {0};
  for (int t = 0; t < task->n_threads; t++, n += per_thread)
    per_thread = results_begin(o, task, task->threads[t], t == 0, results + n, broken);
  if (!n)
    return 0;
  results_copy(results, per_thread, n);
  pid_t neighbour = o->neighbour ? neighbour_start() : 0;
  if (neighbour < 0)
    fprintf(stderr, "cyto-bench: --neighbour: cannot start a process: %s\n", strerror(errno));
  for (int t = 0; t < task->n_threads; t++)
    for (int k = 0; k < o->processes; k++)
      for (int i = t * per_thread; i < (t + 1) * per_thread; i++)
        if (!broken[results[i].contender]) {
          terminal_progress_show(progress, "measurement", done++, o->processes * n);
          broken[results[i].contender] = sample_take(o, task, &results[i]);
        }
  neighbour_stop(neighbour);
  failures_share(results, per_thread, n);
  for (int i = 0; i < n && task->post; i++)
    if (results[i].contender == CY_BENCH_COMPILED && results[i].n_samples && post_time(o, task, &results[i]))
      results[i].n_samples = 0;
  shapes_share(results, n);
  return n;
}
