/* SPDX-License-Identifier: Apache-2.0 */
/* cyto-tune.c - how many threads, which batch and how many contexts side by side suit a model on this machine.
 *
 * In:  a library, or a model, which cytoc beside this program compiles; limits of memory and latency.
 * Out: tuned.json, which cyto-run, cyto-bench, cytoc.load() and cyto_tuned_read() take; a table on stdout. It is written
 *      after each measurement: Ctrl-C and kill keep what there is, and the next call goes on from there. Exit code 0: there is
 *      a choice; 1: there is none; 2: the command line is wrong.
 *
 * A measured process is this program again (--child, see settings/settings_child.c).
 */
#define _GNU_SOURCE
#include "tools/settings/settings.h"

#include "ir/clock.h"
#include "tools/options.h"
#include "tools/process.h"
#include "tools/sizes.h"
#include "tools/values/value_file.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct tune_options {
  const char *output, *memory_text, *latency_text, *seed, *words, *symbol, *inputs;
  bool throughput;
  int tune_seconds;
  double seconds;
  options_list dims, shapes, ranges;
} tune_options;

#define AT(field) offsetof(tune_options, field)
static const option_row rows[] = {
    {"-o", OPTION_TEXT, AT(output), "FILE.json",
     "where to (default: tuned.json); what it has of this library on this machine is not measured again", OPTION_MAIN},
    {"--throughput", OPTION_FLAG, AT(throughput), NULL, "as many samples per second as can be had (the default)",
     OPTION_MAIN},
    {"--latency", OPTION_TEXT, AT(latency_text), "20ms",
     "as many samples per second as can be had while 95 % of runs end within this time (us, ms or s)", OPTION_MAIN},
    {"--memory", OPTION_TEXT, AT(memory_text), "4G",
     "no more memory than this for all contexts together: in RAM at the peak, or on the device", OPTION_MAIN},
    {"--batch", OPTION_TEXT, AT(symbol), "SYMBOL",
     "the dim to be varied (default: the first one of the first input of rank 2 and more, if the model leaves it open)",
     OPTION_MAIN},
    {"--dim", OPTION_PAIRS, AT(dims), "SYMBOL=N", "a size that the model leaves open ('*': any), which stays fixed",
     OPTION_MAIN},
    {"--shape", OPTION_PAIRS, AT(shapes), "INPUT=AxBxC", "the shape of an input", OPTION_MAIN},
    {"--range", OPTION_PAIRS, AT(ranges), "INPUT=LO:HI", "values of a random input", OPTION_MAIN},
    {"--inputs", OPTION_TEXT, AT(inputs), "DIR", "takes in_K_*.npy, .json or .pb for input number K; others are random",
     OPTION_MAIN},
    {"--seed", OPTION_TEXT, AT(seed), "N", "of the random inputs", OPTION_MAIN},
    {"--options", OPTION_TEXT, AT(words), "'--int8 ..'", "of cytoc, for a model.onnx", OPTION_MAIN},
    {"--seconds", OPTION_REAL, AT(seconds), "S", "running time of each measurement (default: 0.5)", OPTION_MAIN},
    {"--tune-seconds", OPTION_NUMBER, AT(tune_seconds), "N",
     "begins no measurement after this time, and takes the best by then", OPTION_RANGE(1, 0), OPTION_MAIN},
    OPTIONS_COMMON,
};

static const options_command commands[] = {
    {NULL, "MODEL.so|MODEL.onnx [-o tuned.json] [--memory=4G] [--latency=20ms|--throughput] [OPTION..]",
     "Measures how many threads, which batch size and how many contexts side by side suit a model on this machine, and "
     "writes them for cyto-run, cyto-bench, cytoc.load() and cyto_tuned_read()."}};

static const options_program program = {.name = "cyto-tune",
                                        .title = "finds threads, batch and contexts for a model",
                                        .endings = "so onnx",
                                        .commands = commands,
                                        .n_commands = 1,
                                        .rows = rows,
                                        .n_rows = sizeof rows / sizeof *rows};

#define complain(...) options_complain(&program, __VA_ARGS__)

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number) {
  (void)number;
  interrupted = 1;
  process_stop();
}

/* Of what is ignored here, such as SIGHUP below nohup, nothing changes. A second signal ends the program at once. */
static void catch_signals(void) {
  static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction on = {.sa_handler = on_interrupt, .sa_flags = SA_RESETHAND}, before;
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (!sigaction(numbers[i], NULL, &before) && before.sa_handler != SIG_IGN)
      sigaction(numbers[i], &on, NULL);
}

typedef struct tuner {
  const tune_options *o;
  const char *model, *output;
  char self[PROCESS_PATH], folder[PROCESS_PATH], library[PROCESS_PATH + 300],
      work[300]; /* work "": no temporary folder */
  cy_setting_about about;
  cy_setting_task task;
  cy_setting_points points;
  terminal_progress progress;
} tuner;

/* ---- the command line ---- */

static int bad_value(const char *name, const char *expected, const char *found) {
  return complain("option '%s' expects %s, found '%s'", name, expected, found);
}

/* "4G", "500M": kilobytes; < 0: neither. */
static double memory_kb(const char *text) {
  static const char units[] = "KMGTkmgt";
  char *end;
  double kb = strtod(text, &end) / 1024;
  const char *unit = *end ? strchr(units, *end) : NULL;
  for (long i = unit ? (unit - units) % 4 : -1; i >= 0; i--)
    kb *= 1024;
  end += unit != NULL;
  end += unit && (*end == 'B' || *end == 'b');
  return end == text || *end || !(kb > 0) ? -1 : kb;
}

/* "20ms", "1.5 s", "20": milliseconds; < 0: neither. */
static double latency_ms(const char *text) {
  static const struct {
    const char *unit;
    double ms;
  } units[] = {{"", 1}, {"ms", 1}, {"us", 1e-3}, {"s", 1e3}};
  char *end;
  double value = strtod(text, &end);
  end += strspn(end, " ");
  for (size_t i = 0; end != text && value > 0 && i < sizeof units / sizeof *units; i++)
    if (!strcmp(end, units[i].unit))
      return value * units[i].ms;
  return -1;
}

static bool ends_with(const char *text, const char *ending) {
  size_t n = strlen(text), e = strlen(ending);
  return n > e && !strcmp(text + n - e, ending);
}

static int read_limits(const tune_options *o, cy_setting_limits *out) {
  if (o->memory_text && (out->memory_kb = memory_kb(o->memory_text)) < 0)
    return bad_value("--memory", "memory such as 500M or 4G", o->memory_text);
  if (o->latency_text && (out->latency_ms = latency_ms(o->latency_text)) < 0)
    return bad_value("--latency", "a time such as 20ms or 1.5s", o->latency_text);
  if (o->latency_text && o->throughput)
    return complain("options '--latency' and '--throughput' exclude each other");
  return 0;
}

/* ---- the library ---- */

static int work_make(tuner *t) {
  const char *tmp = getenv("TMPDIR");
  snprintf(t->work, sizeof t->work, "%.250s/cyto-tune.XXXXXX", tmp && *tmp ? tmp : "/tmp");
  if (mkdtemp(t->work))
    return 0;
  complain("cannot make a temporary folder '%s': %s", t->work, strerror(errno));
  *t->work = 0;
  return -1;
}

static void work_remove(const tuner *t) {
  process_args a = {0};
  char text[64];
  const char *words[] = {"rm", "-rf", t->work};
  for (int i = 0; i < 3; i++)
    process_arg(&a, words[i]);
  if (*t->work)
    process_run(&a, text, sizeof text);
}

/* Compiles a model as the options say; sizes other than the batch are given to cytoc, too. */
static int compile(tuner *t) {
  char cytoc[PROCESS_PATH + 8], text[4096], *copy = strdup(t->o->words ? t->o->words : ""), *at = copy, *word;
  process_args a = {0};
  bool bad = false;
  if (!copy || work_make(t)) {
    free(copy);
    return -1;
  }
  snprintf(cytoc, sizeof cytoc, "%s/cytoc", t->folder);
  snprintf(t->library, sizeof t->library, "%s/model.so", t->work);
  const char *words[] = {cytoc, t->model, "-o", t->library};
  for (int i = 0; i < 4; i++)
    process_arg(&a, words[i]);
  while (!bad && (word = options_next_word(&at, &bad)))
    process_arg(&a, word);
  for (int i = 0; i < t->o->dims.count; i++) {
    process_arg(&a, "--dim");
    process_arg(&a, t->o->dims.items[i]);
  }
  terminal_progress_show(&t->progress, "compile", 0, 0);
  int status = bad || interrupted ? 0 : process_run(&a, text, sizeof text);
  free(copy);
  terminal_progress_end(&t->progress);
  if (bad)
    return complain("a quote has no end in --options");
  if (interrupted)
    return complain("interrupted while '%s' was compiled", t->model);
  if (status) { /* cytoc has said what is wrong, in its own words */
    fputs(text, stderr);
    return complain("'%s' is not compiled", t->model);
  }
  return 0;
}

/* ---- what is known of it ---- */

static bool is_given(const options_list *list, const char *name) { return options_value(list, name, -1) != NULL; }

static bool has_symbol(const cyto_port *port, const char *symbol) {
  for (int32_t k = 0; k < port->rank; k++)
    if (port->dims[k] < 0 && !strcmp(port->dim_names[k], symbol))
      return true;
  return false;
}

static bool has_file(const tune_options *o, int32_t input) {
  char path[PROCESS_PATH];
  return o->inputs && value_folder_find(o->inputs, false, input, path, sizeof path);
}

/* Which option fixes the symbol; NULL: none does. `of`: the name that it has there. */
static const char *fixed_by(const tune_options *o, const cyto_model *model, const char *symbol, char of[100]) {
  snprintf(of, 100, "%s", symbol);
  if (is_given(&o->dims, symbol))
    return "--dim";
  for (int32_t i = 0; i < cyto_model_input_count(model); i++) {
    cyto_port port;
    cyto_model_input(model, i, &port);
    const char *option = !has_symbol(&port, symbol)        ? NULL
                         : is_given(&o->shapes, port.name) ? "--shape"
                         : has_file(o, i)                  ? "--inputs"
                                                           : NULL;
    snprintf(of, 100, "%s", port.name);
    if (option)
      return option;
  }
  return NULL;
}

/* The symbol of the first dim of the first input of rank 2 and more; NULL: it is fixed, here or there, or has no name. */
static const char *batch_of(const tune_options *o, const cyto_model *model) {
  char of[100];
  for (int32_t i = 0; i < cyto_model_input_count(model); i++) {
    cyto_port port;
    cyto_model_input(model, i, &port);
    if (port.rank < 2)
      continue;
    bool open = port.dims[0] < 0 && *port.dim_names[0] && !is_given(&o->dims, "*");
    return open && !fixed_by(o, model, port.dim_names[0], of) ? port.dim_names[0] : NULL;
  }
  return NULL;
}

/* What is varied must be free wherever it stands: a run would have other samples than are counted. */
static int check_batch(const tuner *t, const cyto_model *model) {
  char of[100];
  const char *symbol = t->about.symbol, *option = *symbol ? fixed_by(t->o, model, symbol, of) : NULL;
  return option
             ? complain("--batch=%s varies a size that %s fixes, of '%s': leave one of the two out", symbol, option, of)
             : 0;
}

static int check_inputs(const tuner *t, const cyto_model *model) {
  char error[TENSOR_ERROR_SIZE];
  return t->o->inputs && value_folder_check(t->o->inputs, model, error) ? complain("--inputs: %s", error) : 0;
}

static int check_sizes(const tuner *t, const cyto_model *model) {
  char error[TENSOR_ERROR_SIZE], one[TENSOR_ERROR_SIZE];
  options_list dims = {0};
  for (int i = 0; i < t->o->dims.count && !*t->work; i++) /* of a model that was compiled here, they are fixed in it */
    options_list_add(&dims, t->o->dims.items[i], 0);
  snprintf(one, sizeof one, "%s=1", t->about.symbol);
  if (*t->about.symbol)
    options_list_add(&dims, one, 0);
  sizes_given given = {&dims, &t->o->shapes, 0};
  int status = sizes_check(model, &given, error) || sizes_check_inputs(model, &t->o->ranges, "--range", error);
  for (int32_t i = 0; i < cyto_model_input_count(model) && !status; i++) {
    cyto_port port;
    int32_t rank;
    int64_t sizes[CYTO_MAX_RANK];
    cyto_model_input(model, i, &port);
    status = !port.is_optional && port.type->kind == CYTO_TENSOR && !has_file(t->o, i) &&
             sizes_choose(&port, &given, &rank, sizes, error);
  }
  options_list_free(&dims);
  return status ? complain("%s", error) : 0;
}

/* All sizes and values that were given, in one line. Returns its length, whatever the room. */
static size_t sizes_line(const tune_options *o, char *out, size_t room) {
  const options_list *lists[] = {&o->dims, &o->shapes, &o->ranges};
  size_t n = 0;
  *out = 0;
  for (int k = 0; k < 3; k++)
    for (int i = 0; i < lists[k]->count && n < room; i++)
      n += (size_t)snprintf(out + n, room - n, "%s%s", n ? " " : "", lists[k]->items[i]);
  if (o->inputs && n < room)
    n += (size_t)snprintf(out + n, room - n, "%s%s", n ? " " : "", o->inputs);
  return n;
}

/* Texts that measurements hold for are compared as a whole: what has no room is an error. */
static int hold(char *out, size_t room, const char *text, const char *what) {
  size_t n = strlen(text);
  if (n >= room)
    return complain("%s has %zu bytes, more than the %zu there is room for: make it shorter", what, n, room - 1);
  memcpy(out, text, n + 1);
  return 0;
}

static void goal_line(const tuner *t, char *out, size_t room) {
  const cy_setting_limits *l = &t->task.limits;
  int n =
      l->latency_ms > 0 ? snprintf(out, room, "--latency=%gms", l->latency_ms) : snprintf(out, room, "--throughput");
  if (l->memory_kb > 0)
    snprintf(out + n, room - (size_t)n, " --memory=%s", t->o->memory_text);
}

static int pairs_fill(const tune_options *o, cy_bench_pairs *pairs) {
  const struct {
    const char *option;
    const options_list *list;
  } lists[] = {{"--dim", &o->dims}, {"--shape", &o->shapes}, {"--range", &o->ranges}};
  bool full = false;
  for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
    for (int i = 0; i < lists[k].list->count; i++)
      full |= !cy_bench_pair_add(pairs, lists[k].option, lists[k].list->items[i]);
  if (o->inputs)
    full |= !cy_bench_pair_add(pairs, "--inputs", o->inputs);
  return full ? complain("more than %d of --dim, --shape, --range and --inputs together", CY_BENCH_MAX_PAIRS) : 0;
}

static int describe(tuner *t) {
  cyto_error error;
  cyto_model *model;
  char why[CY_SETTING_ERROR];
  cy_setting_about *a = &t->about;
  if (cyto_model_load(t->library, &model, &error))
    return complain("%s", error.message);
  const char *symbol = t->o->symbol ? t->o->symbol : batch_of(t->o, model);
  int status = hold(a->model, sizeof a->model, cyto_model_name(model), "the model's name (cytoc --name)") ||
               hold(a->target, sizeof a->target, cyto_model_target(model), "the target's name") ||
               hold(a->compiler, sizeof a->compiler, cyto_model_compiler(model), "the compiler's name") ||
               hold(a->symbol, sizeof a->symbol, symbol ? symbol : "", "the name of the dim that is varied");
  size_t length = sizes_line(t->o, a->sizes, sizeof a->sizes);
  if (!status && length >= sizeof a->sizes)
    status = complain("--dim, --shape, --range and --inputs have %zu bytes or more together, and there is room for %zu",
                      length, sizeof a->sizes - 1);
  cy_bench_cpu(a->cpu, sizeof a->cpu);
  goal_line(t, a->goal, sizeof a->goal);
  a->cpus = cyto_cpu_count();
  a->seconds = t->o->seconds;
  t->task.device = !strncmp(a->target, "sm_", 3) || !strncmp(a->target, "cuda", 4);
  status = status || check_inputs(t, model) || check_batch(t, model) || check_sizes(t, model);
  cyto_model_unload(model);
  return status || cy_setting_hash(t->library, a->library, why) ? (status ? -1 : complain("%s", why)) : 0;
}

/* ---- measuring ---- */

static int keep(void *ctx, const cy_setting_points *points) {
  tuner *t = ctx;
  char error[CY_SETTING_ERROR];
  if (!cy_setting_file_write(t->output, &t->about, points, cy_setting_choose(points, &t->task.limits), error))
    return 0;
  terminal_progress_end(&t->progress);
  return complain("%s", error);
}

static int measure(tuner *t) {
  cy_setting_task *task = &t->task;
  task->self = t->self;
  task->library = t->library;
  task->seed = t->o->seed;
  task->seconds = t->o->seconds;
  task->end_ms = t->o->tune_seconds ? cy_clock_ms() + t->o->tune_seconds * 1e3 : 0;
  task->symbol = *t->about.symbol ? t->about.symbol : NULL;
  task->cpus = t->about.cpus;
  task->stop = &interrupted;
  task->keep = keep;
  task->ctx = t;
  task->progress = &t->progress;
  if (pairs_fill(t->o, &task->pairs))
    return -1;
  int status = cy_setting_search(task, &t->points);
  terminal_progress_end(&t->progress);
  return status < 0 ? -1 : keep(t, &t->points) ? -1 : status;
}

/* ---- what is said ---- */

static const char *batch_text(const tuner *t, const cy_setting_point *p, char text[100]) {
  snprintf(text, 100, "batch fixed");
  if (p->s.batch)
    snprintf(text, 100, "%s=%lld", t->about.symbol, (long long)p->s.batch);
  return text;
}

static void print_table(const tuner *t, const cy_setting_point *chosen) {
  char text[100];
  printf("threads contexts %14s  samples/s  median ms     p95 ms  memory MB\n", "batch");
  for (int i = 0; i < t->points.n; i++) {
    const cy_setting_point *p = &t->points.list[i];
    cy_setting_sample m = cy_setting_median(p);
    printf("%7d %8d %14s ", p->s.threads, p->s.contexts, batch_text(t, p, text));
    if (p->n)
      printf("%10.1f %10.3f %10.3f %10.1f%s\n", m.rate, m.median_ms, m.p95_ms, m.peak_kb / 1024,
             p == chosen                           ? "  <- chosen"
             : cy_setting_fits(p, &t->task.limits) ? ""
                                                   : "  beyond the limits");
    else
      printf("%s\n", p->why);
  }
}

/* Limits that cannot be met: what can be had. */
static int say_none(const tuner *t) {
  const cy_setting_point *quick = cy_setting_quickest(&t->points), *small = cy_setting_smallest(&t->points);
  char a[100], b[100];
  if (!quick || !small)
    return complain("nothing runs%s%s", t->points.n ? ": " : "", t->points.n ? t->points.list[0].why : " in that time");
  cy_setting_sample q = cy_setting_median(quick), s = cy_setting_median(small);
  return complain("nothing measured is within %s. The quickest runs take %.3f ms (95 %% of them; threads %d, contexts "
                  "%d, %s) "
                  "and %.1f MB; the least memory is %.1f MB (threads %d, contexts %d, %s), with %.3f ms",
                  t->about.goal, q.p95_ms, quick->s.threads, quick->s.contexts, batch_text(t, quick, a),
                  q.peak_kb / 1024, s.peak_kb / 1024, small->s.threads, small->s.contexts, batch_text(t, small, b),
                  s.p95_ms);
}

static int say(const tuner *t, bool stopped) {
  const cy_setting_point *chosen = cy_setting_choose(&t->points, &t->task.limits);
  char text[100];
  print_table(t, chosen);
  if (!chosen)
    return say_none(t);
  cy_setting_sample m = cy_setting_median(chosen);
  printf("%s: threads %d, contexts %d, %s: %.1f samples/s, %.3f ms, %.1f MB (%s)\n", t->output, chosen->s.threads,
         chosen->s.contexts, batch_text(t, chosen, text), m.rate, m.p95_ms, m.peak_kb / 1024, t->about.goal);
  if (stopped)
    fprintf(stderr, "cyto-tune: note: it ended before all was measured; the same command goes on from there\n");
  return fflush(stdout) ? complain("cannot write to the standard output: %s", strerror(errno)) : 0;
}

/* ---- all of it ---- */

static int tune(tuner *t) {
  char error[CY_SETTING_ERROR];
  if (ends_with(t->model, ".onnx") ? compile(t)
      : t->o->words                ? complain("--options are of cytoc, for a model.onnx")
                                   : 0)
    return -1;
  if (describe(t))
    return -1;
  int known = cy_setting_file_read(t->output, &t->about, &t->points, error);
  if (known < 0)
    return complain("%s", error);
  if (*error)
    fprintf(stderr, "cyto-tune: warning: %s\n", error);
  int status = measure(t);
  return status < 0 ? -1 : say(t, status > 0);
}

static int run(const tune_options *o, const options_parsed *parsed) {
  tuner t = {.o = o, .output = o->output ? o->output : "tuned.json"};
  if (parsed->operands.count != 1) {
    complain("expected one model, found %d; cyto-tune --help lists the options", parsed->operands.count);
    return 2;
  }
  t.model = parsed->operands.items[0];
  snprintf(t.library, sizeof t.library, "%s%s", strchr(t.model, '/') ? "" : "./", t.model);
  if (read_limits(o, &t.task.limits))
    return 2;
  if (process_self(t.self, t.folder)) {
    complain("cannot find this program: %s", strerror(errno));
    return 1;
  }
  catch_signals();
  terminal_progress_begin(&t.progress, t.model);
  int status = tune(&t);
  terminal_progress_end(&t.progress);
  work_remove(&t);
  free(t.points.list);
  return status != 0;
}

static int child(int argc, char **argv) {
  cy_bench_pairs pairs = {0};
  for (int i = 8; i + 1 < argc; i += 2)
    cy_bench_pair_add(&pairs, argv[i], argv[i + 1]);
  cy_setting s = {atoi(argv[3]), atoi(argv[4]), atoll(argv[5])};
  return cy_setting_child(argv[2], s, atof(argv[6]), strtoull(argv[7], NULL, 10), &pairs);
}

int main(int argc, char **argv) {
  static tune_options o = {.seconds = 0.5, .seed = "1"};
  if (argc >= 8 && !strcmp(argv[1], "--child"))
    return child(argc, argv);
  options_words words;
  options_parsed parsed;
  int status = options_read(&program, argc, argv, &o, &words, &parsed), failed = status < 0 ? 2 : 0;
  if (!status)
    failed = run(&o, &parsed);
  options_free(&program, &o, &parsed);
  options_words_free(&words);
  return failed;
}
