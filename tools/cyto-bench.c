/* SPDX-License-Identifier: Apache-2.0 */
/* cyto-bench.c - measures compiled models against our own eager mode and against other frameworks.
 *
 * In:  models and options (the table below), or a table of tasks; cytoc beside this program, other frameworks through
 *      build/venv or $CYTO_PYTHON. A library that was compiled elsewhere is measured as it is, without cytoc; other
 *      frameworks run the model beside it, NAME.onnx, if there is one.
 * Out: a table on stdout; JSON, CSV and a section appended to a Markdown file where asked; what got slower since an older run.
 *
 * Every number comes from processes of their own. For each model, batch size and number of threads the contenders take
 * turns, process by process, so that a machine that changes speed changes it for all of them. A measured process is
 * this program again (--child, see bench_child.c) or one of tools/bench_*.py; it prints one line of numbers.
 */
#define _GNU_SOURCE
#include "tools/bench/bench.h"

#include "runtime/cyto.h"
#include "tools/options.h"
#include "tools/process.h"
#include "tools/sizes.h"
#include "tools/terminal.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
  const char *const *models;
  int n_models;
  const char *threads_text, *batch_text, *against_text, *search_text, *tuned;
  char tuned_dim[SIZES_DIM];
  int threads[CY_BENCH_MAX_LIST], n_threads;
  int batches[CY_BENCH_MAX_LIST], n_batches;
  int random_dims;
  bool skip_failed;
  double memory; /* of --batch-search, in bytes */
  const char *json, *csv, *results, *tasks_path, *compare;
  options_list dims, shapes, ranges; /* NAME=VALUE, with the number of models that stand before */
  char command[4096];                /* the command line, for the record */
  cy_bench_setup setup;
  cy_bench_tasks table; /* of --tasks */
} options;

#define AT(field) offsetof(options, field)
static const option_row rows[] = {
    {"--threads", OPTION_TEXT, AT(threads_text), "1,2", "numbers of threads (default: 1)", OPTION_MAIN},
    {"--batch", OPTION_TEXT, AT(batch_text), "1,8", "sizes for the dim named 'batch'", OPTION_MAIN},
    {"--tuned", OPTION_TEXT, AT(tuned), "FILE.json",
     "threads and batch as cyto-tune has chosen them, of one context; --threads, --batch and --dim count more",
     OPTION_MAIN},
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
    {"--processes", OPTION_NUMBER, AT(setup.processes), "N", "processes for each number, at least 5 (default: 5)",
     OPTION_RANGE(5, CY_BENCH_MAX_PROCESSES), OPTION_MAIN},
    {"--seconds", OPTION_REAL, AT(setup.seconds), "S", "running time of each process (default: 0.5)", OPTION_MAIN},
    {"--neighbour", OPTION_FLAG, AT(setup.neighbour), NULL,
     "while all of this is measured, another process keeps one CPU busy, and stays on it", OPTION_MAIN},
    {"--seed", OPTION_TEXT, AT(setup.seed), "N", "of the random inputs", OPTION_MAIN},
    {"--target", OPTION_TEXT, AT(setup.target), "T", "of the compiler (cuda: the device that is present)", OPTION_MAIN},
    {"--tasks", OPTION_TEXT, AT(tasks_path), "FILE.csv",
     "one row a task in place of models: columns model, name, options (of cytoc), shapes, dims, ranges, threads, "
     "batch, "
     "inputs (a folder), post (a command that gets the outputs' folder as $CYTO_OUTPUTS)",
     OPTION_MAIN},
    {"--skip-failed", OPTION_FLAG, AT(skip_failed), NULL,
     "a task that fails is a row that says why; otherwise the first one ends it", OPTION_MAIN},
    {"--batch-search", OPTION_TEXT, AT(search_text), "MEMORY",
     "samples per second by size of the dim named 'batch', and the best below so much memory (2G, 500M)", OPTION_MAIN},
    {"--compare", OPTION_TEXT, AT(compare), "FILE.json",
     "says what got slower than in an earlier --json by more than the noise of both; exit code 1 if anything did",
     OPTION_MAIN},
    {"--json", OPTION_TEXT, AT(json), "FILE", "all measurements, and where they were made", OPTION_MAIN},
    {"--csv", OPTION_TEXT, AT(csv), "FILE", "one row a process", OPTION_MAIN},
    {"--results", OPTION_TEXT, AT(results), "FILE.md", "append a section", OPTION_MAIN},
    OPTIONS_COMMON,
};

static const options_command commands[] = {
    {NULL, "MODEL.onnx|MODEL.so..|--tasks=FILE.csv [OPTION..]",
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
    while (c < CY_BENCH_N_CONTENDERS && strcmp(word, cy_bench_contender_word((cy_bench_contender)c)))
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

/* "2G", "500M", "65536K", "1000000": bytes; < 0: neither. */
static double memory_read(const char *text) {
  static const char units[] = "KMGT";
  char *end;
  double bytes = strtod(text, &end);
  const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
  for (const char *u = units; unit && u <= unit; u++)
    bytes *= 1024;
  end += unit != NULL;
  end += unit && (*end == 'B' || *end == 'b');
  return end == text || *end || !(bytes > 0) ? -1 : bytes;
}

/* Which of the options go together. */
static int options_agree(const options *o) {
  if (o->tasks_path && (o->n_models || o->tuned || o->threads_text || o->batch_text || o->search_text ||
                        o->dims.count || o->shapes.count || o->ranges.count))
    return options_complain(&program, "--tasks has models, threads, batch, dims, shapes and ranges in its file: they "
                                      "can't be given beside it");
  if (o->dims.count + o->shapes.count + o->ranges.count > CY_BENCH_MAX_PAIRS - 2)
    return options_complain(&program, "more than %d of --dim, --shape and --range together", CY_BENCH_MAX_PAIRS - 2);
  if (o->search_text && (o->batch_text || o->n_threads > 1))
    return options_complain(&program, "--batch-search takes one number of threads and no --batch");
  if (!o->n_models && !o->tasks_path)
    return options_complain(&program, "no model given; cyto-bench --help lists the options");
  return 0;
}

/* Is it of each of the libraries? Of a model.onnx that is not known yet. */
static int tuned_check(const options *o) {
  for (int i = 0; i < o->n_models; i++) {
    cyto_model *model;
    cyto_tuned tuned;
    cyto_error error;
    char path[PATH_MAX + 2]; /* without a folder the system would look elsewhere */
    snprintf(path, sizeof path, "%s%s", strchr(o->models[i], '/') ? "" : "./", o->models[i]);
    if (!file_ends_with(path, ".so") || cyto_model_load(path, &model, NULL))
      continue; /* what does not load is said where it is measured */
    cyto_status status = cyto_tuned_read(o->tuned, model, &tuned, &error);
    cyto_model_unload(model);
    if (status)
      return options_complain(&program, "%s", error.message);
  }
  return 0;
}

/* Of --tuned: what the command line does not say. */
static int tuned_take(options *o) {
  cyto_tuned tuned;
  char error[TENSOR_ERROR_SIZE];
  sizes_given given = {&o->dims, &o->shapes, o->random_dims};
  if (tuned_check(o))
    return -1;
  if (sizes_tuned(program.name, o->tuned, NULL, &tuned, error))
    return options_complain(&program, "%s", error);
  if (!o->threads_text)
    o->threads[0] = tuned.threads;
  if (!o->batch_text && !o->search_text && sizes_take_tuned(&tuned, &given, o->tuned_dim))
    return options_list_add(&o->dims, o->tuned_dim, 0);
  return 0;
}

/* What the table of options cannot check. */
static int options_check(options *o) {
  char error[CY_BENCH_ERROR];
  if (o->threads_text && list_read(o->threads_text, o->threads, &o->n_threads))
    return bad_value("--threads", "numbers with commas between them", o->threads_text);
  if (o->batch_text && list_read(o->batch_text, o->batches, &o->n_batches))
    return bad_value("--batch", "numbers with commas between them", o->batch_text);
  if (o->against_text && against_read(o->against_text, o->setup.against))
    return bad_value("--against", "some of eager,ort,openvino,torch,torch-compile,torch-graph, or none",
                     o->against_text);
  if (o->search_text && (o->memory = memory_read(o->search_text)) < 0)
    return bad_value("--batch-search", "memory such as 500M or 2G", o->search_text);
  if (options_agree(o) || (o->tuned && tuned_take(o)))
    return 1;
  if (o->tasks_path && cy_bench_tasks_read(o->tasks_path, &o->table, error)) {
    options_complain(&program, "%s", error);
    return 1;
  }
  return 0;
}

/* --target=cuda is the device that is present. Contenders that do not run there, or here, are left out, and, unless
 * --against names them, those that nobody asked for. Returns 1 after a message. */
static int device_choose(options *o) {
  char missing[1024];
  cy_bench_setup *s = &o->setup;
  bool device = s->target && (!strncmp(s->target, "cuda", 4) || !strncmp(s->target, "sm_", 3));
  for (int c = 0; c < CY_BENCH_N_CONTENDERS; c++) {
    cy_bench_when runs = cy_bench_contender_when((cy_bench_contender)c, device);
    s->against[c] = o->against_text && c != CY_BENCH_COMPILED ? s->against[c] && runs != CY_BENCH_NEVER
                                                              : runs == CY_BENCH_BY_DEFAULT;
  }
  if (!device)
    return 0;
  if (cy_bench_device(s->arch, s->device, missing)) {
    options_complain(&program, "there is nothing to measure on: %s", missing);
    return 1;
  }
  if (!strcmp(s->target, "cuda"))
    s->target = s->arch;
  return 0;
}

static int child_main(int argc, char **argv) {
  cy_bench_pairs pairs = {0};
  for (int i = 6; i + 1 < argc; i += 2)
    cy_bench_pair_add(&pairs, argv[i], argv[i + 1]);
  return cy_bench_child(argv[2], atoi(argv[3]), atof(argv[4]), strtoull(argv[5], NULL, 10), &pairs);
}

static int folders_find(cy_bench_setup *o) {
  const char *tmp = getenv("TMPDIR");
  if (process_self(o->self, o->bin))
    return 1;
  snprintf(o->work, sizeof o->work, "%s/cyto-bench.XXXXXX", tmp ? tmp : "/tmp");
  if (mkdtemp(o->work))
    return 0;
  options_complain(&program, "cannot make a temporary folder '%s': %s", o->work, strerror(errno));
  return 1;
}

static void work_remove(void *ctx) {
  const cy_bench_setup *o = &((options *)ctx)->setup;
  process_args a = {0};
  char text[64];
  process_arg(&a, "rm");
  process_arg(&a, "-rf");
  process_arg(&a, o->work);
  process_run(&a, text, sizeof text);
}

static bool ours_failed(const cy_bench_result *results, int n) {
  for (int i = 0; i < n; i++)
    if (!cy_bench_contender_is_foreign(results[i].contender) && !results[i].n_samples)
      return true;
  return false;
}

static int results_write(const options *o, const cy_bench_result *results, int n) {
  int failed = !o->skip_failed && !o->search_text && ours_failed(results, n);
  cy_bench_write_shapes(stdout, results, n);
  cy_bench_write_table(stdout, results, n, 0);
  if (o->json)
    failed |= cy_bench_write_json(o->json, results, n, o->command);
  if (o->csv)
    failed |= cy_bench_write_csv(o->csv, results, n);
  if (o->results)
    failed |= cy_bench_append_results(o->results, results, n, o->command);
  if (o->compare)
    failed |= cy_bench_compare(o->compare, results, n) != 0;
  return failed;
}

/* ---- what is measured ---- */

/* Those of all models, then those that stand behind this one, which come before them. */
static void pairs_append(cy_bench_pairs *pairs, const char *option, const options_list *list, int index) {
  for (int own = 0; own < 2; own++)
    for (int i = 0; i < list->count; i++)
      if (list->after[i] == (own ? index + 1 : 0))
        cy_bench_pair_add(pairs, option, list->items[i]);
}

/* A model of the command line as a task; dim and rest are room for texts that it points to. */
static cy_bench_task model_task(const options *o, int index, int batch, char dim[32], char rest[32]) {
  cy_bench_task task = {.model = o->models[index], .batch = batch, .n_threads = o->n_threads};
  memcpy(task.threads, o->threads, sizeof task.threads);
  cy_bench_model_name(task.model, task.name, sizeof task.name);
  snprintf(dim, 32, "batch=%d", batch);
  snprintf(rest, 32, "*=%d", o->random_dims);
  if (batch)
    cy_bench_pair_add(&task.pairs, "--dim", dim);
  if (o->random_dims)
    cy_bench_pair_add(&task.pairs, "--dim", rest);
  pairs_append(&task.pairs, "--dim", &o->dims, index);
  pairs_append(&task.pairs, "--shape", &o->shapes, index);
  pairs_append(&task.pairs, "--range", &o->ranges, index);
  return task;
}

static int models_measure(options *o, cy_bench_result *results, terminal_progress *progress) {
  int n = 0;
  for (int m = 0; m < o->n_models; m++) {
    for (int b = 0; b < o->n_batches; b++) {
      char dim[32], rest[32];
      cy_bench_task task = model_task(o, m, o->batches[b], dim, rest);
      progress->what = task.model;
      terminal_progress_show(progress, "model", m * o->n_batches + b, o->n_models * o->n_batches);
      n += cy_bench_measure(&o->setup, &task, results + n, progress);
    }
  }
  return n;
}

/* Up to the first that fails, unless such are skipped. */
static int tasks_measure(options *o, cy_bench_result *results, terminal_progress *progress) {
  int n = 0;
  for (int i = 0; i < o->table.n; i++) {
    const cy_bench_task *task = &o->table.list[i];
    progress->what = task->name;
    terminal_progress_show(progress, "task", i, o->table.n);
    int added = cy_bench_measure(&o->setup, task, results + n, progress);
    bool failed = ours_failed(results + n, added);
    n += added;
    if (failed && !o->skip_failed) {
      terminal_progress_end(progress);
      options_complain(&program, "%s:%d: task '%s' failed; --skip-failed goes on to the others", o->tasks_path,
                       task->line, task->name);
      break;
    }
  }
  return n;
}

static int search_measure(options *o, cy_bench_result *results, terminal_progress *progress, char *said, size_t room) {
  int n = 0;
  *said = 0;
  for (int m = 0; m < o->n_models; m++) {
    char dim[32], rest[32];
    int best, before = n;
    cy_bench_task task = model_task(o, m, 0, dim, rest);
    progress->what = task.model;
    n += cy_bench_search(&o->setup, &task, o->memory, results + n, &best, progress);
    const cy_bench_result *r = &results[before + best];
    size_t used = strlen(said);
    if (best < 0)
      snprintf(said + used, room - used, "%s: no batch fits into %s\n", task.name, o->search_text);
    else
      snprintf(said + used, room - used, "%s: best below %s: batch %d, %.1f samples/s, %.1f MB\n", task.name,
               o->search_text, r->batch, r->batch * 1e3 / cy_bench_median(r).median_ms,
               cy_bench_median(r).peak_kb / 1024);
  }
  return n;
}

static int results_room(const options *o) {
  if (o->search_text)
    return o->n_models * CY_BENCH_MAX_SEARCH;
  return o->table.n ? o->table.n * CY_BENCH_N_CONTENDERS
                    : o->n_models * o->n_batches * o->n_threads * CY_BENCH_N_CONTENDERS;
}

static int measure_in_folder(void *ctx) {
  options *o = ctx;
  char said[4096] = "";
  cy_bench_result *results = calloc((size_t)results_room(o), sizeof *results);
  if (!results)
    return 1;
  terminal_progress progress;
  terminal_progress_begin(&progress, NULL);
  int n = o->search_text ? search_measure(o, results, &progress, said, sizeof said)
          : o->table.n   ? tasks_measure(o, results, &progress)
                         : models_measure(o, results, &progress);
  terminal_progress_end(&progress);
  int failed = results_write(o, results, n);
  fputs(said, stdout);
  if (strstr(said, "no batch fits"))
    failed = 1;
  free(results);
  return failed;
}

/* Everything of a command line that has been read. */
static int measure(options *o) {
  if (device_choose(o) || folders_find(&o->setup))
    return 1;
  int failed = process_guarded(measure_in_folder, work_remove, o);
  if (failed < 0)
    options_complain(&program, "cannot start a process: %s", strerror(errno));
  return failed < 0 ? 1 : failed;
}

int main(int argc, char **argv) {
  static options o = {.threads = {1},
                      .n_threads = 1,
                      .n_batches = 1,
                      .setup = {.processes = 5, .seconds = 0.5, .seed = "1"},
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
  cy_bench_tasks_free(&o.table);
  options_free(&program, &o, &parsed);
  options_words_free(&words);
  return failed;
}
