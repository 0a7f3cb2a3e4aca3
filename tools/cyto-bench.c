/* SPDX-License-Identifier: Apache-2.0 */
/* cyto-bench.c - measures compiled models against our own eager mode and against other frameworks.
 *
 * In:  models and options (the table below); cytoc beside this program, other frameworks through build/venv or $CYTO_PYTHON.
 *      A library that was compiled elsewhere is measured as it is, without cytoc; other frameworks run the model beside
 *      it, NAME.onnx, if there is one.
 * Out: a table on stdout; JSON, CSV and a section appended to a Markdown file where asked.
 *
 * Every number comes from processes of their own. For each model, batch size and number of threads the contenders take
 * turns, process by process, so that a machine that changes speed changes it for all of them. A measured process is
 * this program again (--child, see bench_child.c) or one of tools/bench_*.py; it prints one line of numbers.
 */
#define _GNU_SOURCE
#include "tools/bench/bench.h"

#include "ir/clock.h"
#include "tools/options.h"
#include "tools/process.h"
#include "tools/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct options {
  const char *const *models;
  int n_models;
  const char *threads_text, *batch_text, *against_text;
  int threads[CY_BENCH_MAX_LIST], n_threads;
  int batches[CY_BENCH_MAX_LIST], n_batches;
  int against[CY_BENCH_N_CONTENDERS]; /* which contenders */
  int processes, random_dims;
  bool neighbour;
  double seconds;
  const char *seed, *target, *json, *csv, *results;
  options_list dims, shapes, ranges; /* NAME=VALUE, with the number of models that stand before */
  char bin[PATH_MAX];                /* the folder of this program */
  char self[PATH_MAX];
  char work[PATH_MAX];        /* a temporary folder for libraries */
  char command[4096];         /* the command line, for the record */
  char arch[16], device[200]; /* of CUDA; "": the CPU is measured */
} options;

#define AT(field) offsetof(options, field)
static const option_row rows[] = {
    {"--threads", OPTION_TEXT, AT(threads_text), "1,2", "numbers of threads (default: 1)", OPTION_MAIN},
    {"--batch", OPTION_TEXT, AT(batch_text), "1,8", "sizes for the dim named 'batch'", OPTION_MAIN},
    {"--against", OPTION_TEXT, AT(against_text), "LIST",
     "contenders beside compiled -O3: eager (-O0), ort, openvino, torch, torch-compile (default eager,ort; 'none'); "
     "CUDA: eager, torch, torch-compile, torch-graph (all)",
     OPTION_MAIN},
    {"--dim", OPTION_PAIRS, AT(dims), "NAME=N",
     "a size that the model leaves open ('*': any). Before the first model it holds for all of them, behind one for "
     "that "
     "one; so do --shape and --range",
     OPTION_MAIN},
    {"--shape", OPTION_PAIRS, AT(shapes), "INPUT=AxBxC", "the shape of an input", OPTION_MAIN},
    {"--random-dims", OPTION_NUMBER, AT(random_dims), "N", "all sizes that are open and not given", OPTION_RANGE(1, 0),
     OPTION_MAIN},
    {"--range", OPTION_PAIRS, AT(ranges), "INPUT=LO:HI", "values of an input", OPTION_MAIN},
    {"--processes", OPTION_NUMBER, AT(processes), "N", "processes for each number, at least 5 (default: 5)",
     OPTION_RANGE(5, CY_BENCH_MAX_PROCESSES), OPTION_MAIN},
    {"--seconds", OPTION_REAL, AT(seconds), "S", "running time of each process (default: 0.5)", OPTION_MAIN},
    {"--neighbour", OPTION_FLAG, AT(neighbour), NULL,
     "while all of this is measured, another process keeps one CPU busy, and stays on it", OPTION_MAIN},
    {"--seed", OPTION_TEXT, AT(seed), "N", "of the random inputs", OPTION_MAIN},
    {"--target", OPTION_TEXT, AT(target), "T", "of the compiler (cuda: the device that is present)", OPTION_MAIN},
    {"--json", OPTION_TEXT, AT(json), "FILE", "all measurements", OPTION_MAIN},
    {"--csv", OPTION_TEXT, AT(csv), "FILE", "one row a process", OPTION_MAIN},
    {"--results", OPTION_TEXT, AT(results), "FILE.md", "append a section", OPTION_MAIN},
    OPTIONS_COMMON,
};

static const options_command commands[] = {
    {NULL, "MODEL.onnx|MODEL.so.. [OPTION..]",
     "Measures compiled models against -O0 and against other frameworks, process by process in turns. A library that "
     "was "
     "compiled elsewhere is measured as it is; other frameworks run NAME.onnx beside it, if there is one."}};

static const options_program program = {.name = "cyto-bench",
                                        .title = "measures compiled models against other frameworks",
                                        .endings = "onnx so",
                                        .commands = commands,
                                        .n_commands = 1,
                                        .rows = rows,
                                        .n_rows = sizeof rows / sizeof *rows};

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
enum { NEVER, ON_REQUEST, BY_DEFAULT };
static const struct {
  const char *name, *script, *mode;
  int on_cpu, on_device;
} contenders[CY_BENCH_N_CONTENDERS] = {
    [CY_BENCH_COMPILED] = {NULL, NULL, NULL, BY_DEFAULT, BY_DEFAULT},
    [CY_BENCH_EAGER] = {"eager", NULL, NULL, BY_DEFAULT, BY_DEFAULT},
    [CY_BENCH_ORT] = {"ort", "bench_ort.py", NULL, BY_DEFAULT, NEVER},
    [CY_BENCH_OPENVINO] = {"openvino", "bench_openvino.py", NULL, ON_REQUEST, NEVER},
    [CY_BENCH_TORCH] = {"torch", "bench_torch.py", "eager", ON_REQUEST, BY_DEFAULT},
    [CY_BENCH_TORCH_COMPILED] = {"torch-compile", "bench_torch.py", "compile", ON_REQUEST, BY_DEFAULT},
    [CY_BENCH_TORCH_GRAPHED] = {"torch-graph", "bench_torch.py", "graphed", NEVER, BY_DEFAULT},
};

/* A library, compiled elsewhere? */
static int is_carried(const char *model) {
  size_t n = strlen(model);
  return n > 3 && !strcmp(model + n - 3, ".so");
}

static void library_path(const options *o, const char *model, cy_bench_contender c, char *out, size_t room) {
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
static int library_build(const options *o, const char *model, const cy_bench_pairs *pairs, cy_bench_result *r) {
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
  for (int i = 0; i < pairs->n; i++) {
    if (strcmp(pairs->option[i], "--range") != 0) {
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
  int n = 0, read = 0;
#define X(name)                                                                                                        \
  if (sscanf(text + n, "%lf%n", &s.name, &read) == 1)                                                                  \
    n += read;                                                                                                         \
  else                                                                                                                 \
    s.name = -1;
  CY_BENCH_SAMPLE_FIELDS(X)
#undef X
  if (s.peak_kb < 0) /* the first six must be there */
    return 1;
  if (sscanf(text + n, " %lf %511[^\n]", &r->per_run, r->shapes) < 1)
    r->per_run = 0;
  r->samples[r->n_samples++] = s;
  return 0;
}

/* One measured process. Returns 0, or 1 with the result's failure set. */
static int sample_take(const options *o, const char *model, const cy_bench_pairs *pairs, cy_bench_result *r) {
  char library[PATH_MAX + 32], python[PROCESS_PATH], script[PROCESS_PATH], threads[16], seconds[32], text[4096];
  char source[PATH_MAX];
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
  pairs_add(&a, pairs);
  int status = process_run(&a, text, sizeof text);
  if (status == 0 && sample_read(r, text) == 0)
    return 0;
  process_failure(r->failure, sizeof r->failure, "not run", status, text, true);
  r->n_samples = 0;
  return 1;
}

/* A name for the table: the file's, or its folder's when the file is called model.onnx. */
static void model_name(const char *path, char *out, size_t room) {
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

static void pair_append(cy_bench_pairs *pairs, const char *option, const char *text) {
  if (pairs->n == CY_BENCH_MAX_PAIRS)
    return;
  pairs->option[pairs->n] = option;
  pairs->text[pairs->n++] = text;
}

/* Those of all models, then those that stand behind this one, which come before them. */
static void pairs_append(cy_bench_pairs *pairs, const char *option, const options_list *list, int index) {
  for (int own = 0; own < 2; own++)
    for (int i = 0; i < list->count; i++)
      if (list->after[i] == (own ? index + 1 : 0))
        pair_append(pairs, option, list->items[i]);
}

/* All contenders of one model and batch size, for every number of threads. Returns how many results it added. */
static int model_measure(const options *o, int index, int batch, cy_bench_result *results,
                         terminal_progress *progress) {
  const char *model = o->models[index];
  cy_bench_pairs pairs = {0};
  char dim[32], rest[32], source[PATH_MAX];
  int n = 0, done = 0, broken[CY_BENCH_N_CONTENDERS] = {0};
  snprintf(dim, sizeof dim, "batch=%d", batch);
  if (batch)
    pair_append(&pairs, "--dim", dim);
  snprintf(rest, sizeof rest, "*=%d", o->random_dims);
  if (o->random_dims)
    pair_append(&pairs, "--dim", rest);
  pairs_append(&pairs, "--dim", &o->dims, index);
  pairs_append(&pairs, "--shape", &o->shapes, index);
  pairs_append(&pairs, "--range", &o->ranges, index);
  for (int t = 0; t < o->n_threads; t++) {
    for (int c = 0; c < CY_BENCH_N_CONTENDERS; c++) {
      if (!o->against[c] || !can_measure(model, (cy_bench_contender)c))
        continue;
      cy_bench_result *r = &results[n++];
      *r = (cy_bench_result){.batch = batch,
                             .threads = o->threads[t],
                             .contender = (cy_bench_contender)c,
                             .device = *o->device ? o->device : NULL};
      model_name(model, r->model, sizeof r->model);
      if (contenders[c].script)
        r->size_kb = cy_bench_model_kb(source_path(model, source, sizeof source) ? source : model);
      else if (t == 0)
        broken[c] = library_build(o, model, &pairs, r);
    }
  }
  int per_thread = n / o->n_threads;
  for (int i = per_thread; i < n; i++) { /* the libraries are the same for every number of threads */
    results[i].size_kb = results[i % per_thread].size_kb;
    results[i].compile_s = results[i % per_thread].compile_s;
    memcpy(results[i].failure, results[i % per_thread].failure, sizeof results[i].failure);
  }
  pid_t neighbour = o->neighbour ? neighbour_start() : 0;
  if (neighbour < 0)
    options_complain(&program, "--neighbour: cannot start a process: %s", strerror(errno));
  for (int t = 0; t < o->n_threads; t++)
    for (int k = 0; k < o->processes; k++)
      for (int i = t * per_thread; i < (t + 1) * per_thread; i++)
        if (!broken[results[i].contender]) {
          terminal_progress_show(progress, "measurement", done++, o->processes * n);
          broken[results[i].contender] = sample_take(o, model, &pairs, &results[i]);
        }
  neighbour_stop(neighbour);
  for (int i = 0; i < n; i++) /* ours know the shapes, and they are the same for all */
    for (int k = 0; k < n && !*results[i].shapes; k++) {
      snprintf(results[i].shapes, sizeof results[i].shapes, "%s", results[k].shapes);
      results[i].per_run = results[k].per_run;
    }
  return n;
}

/* ---- the command line ---- */

static int list_read(const char *text, int *out, int *out_n) {
  char *end;
  *out_n = 0;
  do {
    long v = strtol(text, &end, 10);
    if (end == text || v < 1 || v > 100000 || *out_n == CY_BENCH_MAX_LIST || (*end && *end != ','))
      return 1;
    out[(*out_n)++] = (int)v;
    text = end + 1;
  } while (*end);
  return 0;
}

static int against_read(const char *text, int *out) {
  char copy[64];
  snprintf(copy, sizeof copy, "%s", text);
  for (int c = CY_BENCH_EAGER; c < CY_BENCH_N_CONTENDERS; c++)
    out[c] = 0;
  for (char *rest = copy, *word; (word = strsep(&rest, ",")) != NULL;) {
    int c = CY_BENCH_EAGER;
    while (c < CY_BENCH_N_CONTENDERS && strcmp(word, contenders[c].name))
      c++;
    if (c < CY_BENCH_N_CONTENDERS)
      out[c] = 1;
    else if (strcmp(word, "none") != 0)
      return 1;
  }
  return 0;
}

/* The command line, for the record. */
static void command_write(options *o, int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    size_t used = strlen(o->command);
    snprintf(o->command + used, sizeof o->command - used, " %s", argv[i]);
  }
}

static int bad_value(const char *name, const char *expected, const char *found) {
  options_complain(&program, "bad value of '%s': expected %s, found '%s'", name, expected, found);
  return 1;
}

/* What the table of options cannot check. */
static int options_check(options *o) {
  if (o->threads_text && list_read(o->threads_text, o->threads, &o->n_threads))
    return bad_value("--threads", "numbers with commas between them", o->threads_text);
  if (o->batch_text && list_read(o->batch_text, o->batches, &o->n_batches))
    return bad_value("--batch", "numbers with commas between them", o->batch_text);
  if (o->against_text && against_read(o->against_text, o->against))
    return bad_value("--against", "some of eager,ort,openvino,torch,torch-compile,torch-graph, or none",
                     o->against_text);
  if (!o->n_models)
    options_complain(&program, "no model given; cyto-bench --help lists the options");
  return !o->n_models;
}

/* --target=cuda is the device that is present. Contenders that do not run there, or here, are left out, and, unless
 * --against names them, those that nobody asked for. Returns 1 after a message. */
static int device_choose(options *o) {
  char missing[1024];
  int device = o->target && (!strncmp(o->target, "cuda", 4) || !strncmp(o->target, "sm_", 3));
  for (int c = 0; c < CY_BENCH_N_CONTENDERS; c++) {
    int runs = device ? contenders[c].on_device : contenders[c].on_cpu;
    o->against[c] = o->against_text && c != CY_BENCH_COMPILED ? o->against[c] && runs != NEVER : runs == BY_DEFAULT;
  }
  if (!device)
    return 0;
  if (cy_bench_device(o->arch, o->device, missing)) {
    options_complain(&program, "there is nothing to measure on: %s", missing);
    return 1;
  }
  if (!strcmp(o->target, "cuda"))
    o->target = o->arch;
  return 0;
}

static int child_main(int argc, char **argv) {
  cy_bench_pairs pairs = {0};
  for (int i = 6; i + 1 < argc && pairs.n < CY_BENCH_MAX_PAIRS; i += 2) {
    pairs.option[pairs.n] = argv[i];
    pairs.text[pairs.n++] = argv[i + 1];
  }
  return cy_bench_child(argv[2], atoi(argv[3]), atof(argv[4]), strtoull(argv[5], NULL, 10), &pairs);
}

static int folders_find(options *o) {
  const char *tmp = getenv("TMPDIR");
  if (process_self(o->self, o->bin))
    return 1;
  snprintf(o->work, sizeof o->work, "%s/cyto-bench.XXXXXX", tmp ? tmp : "/tmp");
  if (mkdtemp(o->work))
    return 0;
  options_complain(&program, "cannot make a temporary folder '%s': %s", o->work, strerror(errno));
  return 1;
}

static void work_remove(const options *o) {
  process_args a = {0};
  char text[64];
  process_arg(&a, "rm");
  process_arg(&a, "-rf");
  process_arg(&a, o->work);
  process_run(&a, text, sizeof text);
}

static int results_write(const options *o, const cy_bench_result *results, int n) {
  int failed = 0;
  cy_bench_write_shapes(stdout, results, n);
  cy_bench_write_table(stdout, results, n, 0);
  if (o->json)
    failed |= cy_bench_write_json(o->json, results, n);
  if (o->csv)
    failed |= cy_bench_write_csv(o->csv, results, n);
  if (o->results)
    failed |= cy_bench_append_results(o->results, results, n, o->command);
  for (int i = 0; i < n; i++)
    failed |= !contenders[results[i].contender].script && !results[i].n_samples;
  return failed;
}

/* Everything of a command line that has been read. */
static int measure(options *o) {
  if (device_choose(o))
    return 1;
  int most = o->n_models * o->n_batches * o->n_threads * CY_BENCH_N_CONTENDERS, n = 0;
  cy_bench_result *results = calloc((size_t)most, sizeof *results);
  if (!results || folders_find(o)) {
    free(results);
    return 1;
  }
  terminal_progress progress;
  terminal_progress_begin(&progress, NULL);
  for (int m = 0; m < o->n_models; m++) {
    for (int b = 0; b < o->n_batches; b++) {
      progress.what = o->models[m];
      terminal_progress_show(&progress, "model", m * o->n_batches + b, o->n_models * o->n_batches);
      n += model_measure(o, m, o->batches[b], results + n, &progress);
    }
  }
  terminal_progress_end(&progress);
  work_remove(o);
  int failed = results_write(o, results, n);
  free(results);
  return failed;
}

int main(int argc, char **argv) {
  static options o = {.threads = {1},
                      .n_threads = 1,
                      .n_batches = 1,
                      .processes = 5,
                      .seconds = 0.5,
                      .seed = "1",
                      .command = "cyto-bench"};
  if (argc >= 6 && !strcmp(argv[1], "--child"))
    return child_main(argc, argv);
  options_words words;
  options_parsed parsed;
  int status = options_read(&program, argc, argv, &o, &words, &parsed), failed = status < 0 ? 2 : 0;
  if (!status) {
    o.models = parsed.operands.items;
    o.n_models = parsed.operands.count;
    command_write(&o, argc, argv);
    failed = options_check(&o) ? 2 : measure(&o);
  }
  options_free(&program, &o, &parsed);
  options_words_free(&words);
  return failed;
}
