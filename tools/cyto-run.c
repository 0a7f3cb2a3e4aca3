/* SPDX-License-Identifier: Apache-2.0 */
/* cyto-run.c - runs a compiled model from the command line: values in files in, values in files (or a summary) out.
 *
 * Inputs come from --input NAME=FILE, from --inputs-dir (files in_K_NAME.npy or .json of a reference run, or input_K.pb
 * of an ONNX test case), or are filled by --random. Outputs are written as out_K_NAME.npy in output order, as .json
 * those that are sequences, maps or optional values, and strings unless --output-format says otherwise. Everything that
 * goes wrong is one line on stderr and exit
 * code 1.
 */
#define _GNU_SOURCE
#include "ir/clock.h"
#include "options.h"
#include "resident.h"
#include "run_json.h"
#include "sizes.h"
#include "tools/values/value_file.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct run_options {
  const char *model, *inputs_dir, *output_dir, *format, *json, *trace, *tuned;
  options_list inputs, shapes, dims; /* NAME=VALUE */
  int seed;                          /* -1: inputs without a file are an error */
  int random_dims;                   /* 0: sizes without a value are one, too */
  int repeat, threads, device;
  bool share, about, info, profile;
} run_options;

#define AT(field) offsetof(run_options, field)
static const option_row rows[] = {
    {"--input", OPTION_PAIRS, AT(inputs), "NAME=FILE",
     "value of an input: .npy, .pb (ONNX TensorProto, SequenceProto ..) or .json", OPTION_MAIN},
    {"--inputs-dir", OPTION_TEXT, AT(inputs_dir), "DIR",
     "takes in_K_*.npy, .json or .pb, or input_K.pb, of DIR for input number K", OPTION_MAIN},
    {"--random", OPTION_NUMBER, AT(seed), "SEED", "fills all other tensors of numbers with random ones", OPTION_MAIN},
    {"--shape", OPTION_PAIRS, AT(shapes), "NAME=1x3x224", "shape of a random input (NAME= for a scalar)", OPTION_MAIN},
    {"--dim", OPTION_PAIRS, AT(dims), "SYMBOL=N", "value of a named dim of random inputs ('*': of any that is open)",
     OPTION_MAIN},
    {"--random-dims", OPTION_NUMBER, AT(random_dims), "N",
     "value of all sizes of random inputs that are open and not given", OPTION_RANGE(1, 0), OPTION_MAIN},
    {"--output-dir", OPTION_TEXT, AT(output_dir), "DIR",
     "writes out_K_NAME.npy for every output, .json for strings, sequences, maps and optional values; otherwise a "
     "summary is printed",
     OPTION_MAIN},
    {"--output-format", OPTION_TEXT, AT(format), "npy|pb|json",
     "of all tensors, strings too (without it: npy, and json for strings)", OPTION_MAIN},
    {"--share", OPTION_FLAG, AT(share), NULL,
     "has outputs written in the memory of the inputs that they may share it with (cyto.h)", OPTION_MAIN},
    {"--repeat", OPTION_NUMBER, AT(repeat), "N",
     "runs N times more and prints statistics of their times and by how much memory grew; the first run, which is "
     "cold, is listed separately",
     OPTION_RANGE(1, 0), OPTION_MAIN},
    {"--profile", OPTION_FLAG, AT(profile), NULL,
     "prints the time of every kernel of a library compiled by cytoc --profile", OPTION_MAIN},
    {"--trace", OPTION_TEXT, AT(trace), "FILE",
     "records when each step ran and on which thread or stream, of a library compiled by cytoc --profile; writes it "
     "for "
     "ui.perfetto.dev",
     OPTION_MAIN},
    {"--json", OPTION_TEXT, AT(json), "FILE", "writes sizes, times and, with --profile, kernels as JSON (-: to stdout)",
     OPTION_MAIN},
    {"--threads", OPTION_NUMBER, AT(threads), "N", "how many threads (0: all CPUs, the default)", OPTION_MAIN},
    {"--tuned", OPTION_TEXT, AT(tuned), "FILE.json",
     "takes threads, and the batch of random inputs, as cyto-tune has chosen them; what is given beside it counts more",
     OPTION_MAIN},
    {"--device", OPTION_NUMBER, AT(device), "N", "models for CUDA: the device's number (0, the default)", OPTION_MAIN},
    {"--about", OPTION_FLAG, AT(about), NULL,
     "prints what it ran on: threads, or the device, its driver and cuDNN's share", OPTION_MAIN},
    {"--info", OPTION_FLAG, AT(info), NULL, "prints inputs and outputs and stops", OPTION_MAIN},
    OPTIONS_COMMON,
};

static const options_command commands[] = {
    {NULL, "MODEL.so [OPTION..]",
     "Runs a compiled model: values in files in, values in files or a summary out. Inputs come from files, or are "
     "random."}};

static const options_program program = {.name = "cyto-run",
                                        .title = "runs models compiled by cytoc",
                                        .endings = "so",
                                        .commands = commands,
                                        .n_commands = 1,
                                        .rows = rows,
                                        .n_rows = sizeof rows / sizeof *rows};

/* Prints a line of error; -1, so that callers can return it. */
#define complain(...) options_complain(&program, __VA_ARGS__)

/* ---- inputs ---- */

static int read_value(const char *path, const cyto_port *port, cyto_value *value) {
  char error[TENSOR_ERROR_SIZE];
  return value_file_read(path, port, value, error) ? complain("input '%s': %s", port->name, error) : 0;
}

static int random_tensor(const run_options *options, const cyto_port *port, int32_t index, host_tensor *tensor) {
  if (port->type->kind != CYTO_TENSOR || port->dtype == CYTO_STRING)
    return complain("input '%s': only tensors of numbers can be random; give --input '%s=FILE.json'", port->name,
                    port->name);
  char error[TENSOR_ERROR_SIZE];
  sizes_given given = {&options->dims, &options->shapes, options->random_dims};
  uint64_t state = (uint64_t)options->seed * 1000003u + (uint64_t)index;
  tensor->dtype = port->dtype;
  if (sizes_choose(port, &given, &tensor->rank, tensor->dims, error))
    return complain("%s", error);
  if (host_tensor_alloc(tensor, error))
    return complain("input '%s': %s", port->name, error);
  host_tensor_randomize(tensor, &state);
  return 0;
}

/* Gets and binds input number `index`; an optional one may stay out. */
static int load_input(const run_options *options, const cyto_port *port, int32_t index, cyto_context *context,
                      cyto_value *value) {
  char path[PATH_MAX];
  cyto_error error;
  const char *file = options_value(&options->inputs, port->name, -1), *from = file;
  host_tensor tensor = {0};
  int status;
  if (file)
    status = read_value(file, port, value);
  else if (options->inputs_dir && value_folder_find(options->inputs_dir, false, index, path, sizeof path))
    status = read_value(from = path, port, value);
  else if (port->is_optional)
    return 0;
  else if (options->seed >= 0)
    status = random_tensor(options, port, index, &tensor);
  else
    return complain("input '%s' (number %d): no tensor for it; give --input '%s=FILE' or --random SEED", port->name,
                    index, port->name);
  if (tensor.data)
    host_value_take(value, &tensor);
  if (!status && cyto_bind_value(context, index, value, &error))
    status = from ? complain("'%s': %s", from, error.message) : complain("%s", error.message);
  return status;
}

static int check_names(const run_options *options, const cyto_model *model) {
  char error[TENSOR_ERROR_SIZE];
  sizes_given given = {&options->dims, &options->shapes, 0};
  return sizes_check_inputs(model, &options->inputs, "--input", error) || sizes_check(model, &given, error)
             ? complain("%s", error)
             : 0;
}

/* ---- outputs ---- */

static host_tensor tensor_of(const cyto_value *value) {
  host_tensor tensor = {.dtype = value->tensor.dtype,
                        .rank = value->tensor.rank,
                        .data = value->tensor.data,
                        .bytes = (size_t)value->tensor.bytes};
  memcpy(tensor.dims, value->tensor.dims, sizeof tensor.dims);
  return tensor;
}

static int write_output(const run_options *options, int32_t index, const char *name, const cyto_value *value) {
  bool numbers = value->kind == CYTO_TENSOR && value->tensor.dtype != CYTO_STRING;
  const char *format = options->format ? options->format : numbers ? "npy" : "json";
  if (value->kind != CYTO_TENSOR)
    format = "json";
  host_tensor tensor = tensor_of(value);
  char path[PATH_MAX], safe[NAME_MAX - 24], error[TENSOR_ERROR_SIZE];
  file_name_of(name, safe, sizeof safe);
  snprintf(path, sizeof path, "%s/out_%d_%s.%s", options->output_dir, index, safe, format);
  int failed = !strcmp(format, "pb")     ? tensor_pb_write(path, name, &tensor, error)
               : !strcmp(format, "json") ? value_json_write(path, value, error)
                                         : npy_write(path, &tensor, error);
  return failed ? complain("output '%s': %s", name, error) : 0;
}

static void print_dims(int32_t rank, const int64_t *dims, const char *const *names) {
  putchar('[');
  for (int32_t i = 0; i < rank; i++) {
    fputs(i ? "," : "", stdout);
    if (dims[i] >= 0)
      printf("%lld", (long long)dims[i]);
    else
      fputs(names && names[i][0] ? names[i] : "?", stdout);
  }
  putchar(']');
}

static void print_summary(int32_t index, const cyto_port *port, const cyto_value *value) {
  char text[200];
  host_tensor t = tensor_of(value), *tensor = &t;
  type_text(port->type, text, sizeof text);
  printf("output %d '%s' %s ", index, port->name, text);
  if (value->kind != CYTO_TENSOR) {
    printf("of %llu\n",
           (unsigned long long)(value->kind == CYTO_MAP ? value->items->tensor.dims[0] : (int64_t)value->count));
    return;
  }
  print_dims(tensor->rank, tensor->dims, NULL);
  if (tensor->dtype == CYTO_STRING) {
    putchar('\n');
    return;
  }
  int64_t count = host_tensor_count(tensor), odd = 0;
  double low = INFINITY, high = -INFINITY, sum = 0;
  for (int64_t i = 0; i < count; i++) {
    double x = host_tensor_get(tensor, i);
    if (!isfinite(x)) {
      odd++;
      continue;
    }
    low = x < low ? x : low;
    high = x > high ? x : high;
    sum += x;
  }
  if (count > odd)
    printf(" min %.6g mean %.6g max %.6g", low, sum / (double)(count - odd), high);
  if (odd)
    printf(" not finite %lld", (long long)odd);
  putchar('\n');
}

static int show_outputs(const run_options *options, const cyto_model *model, cyto_context *context) {
  if (options->output_dir && mkdir(options->output_dir, 0777) && errno != EEXIST)
    return complain("'%s': cannot create the folder: %s", options->output_dir, strerror(errno));
  for (int32_t i = 0; i < cyto_model_output_count(model); i++) {
    cyto_port port;
    cyto_value out;
    cyto_error error;
    cyto_model_output(model, i, &port);
    if (cyto_output_value(context, i, &out, &error))
      return complain("%s", error.message);
    if (!options->output_dir)
      print_summary(i, &port, &out);
    else if (write_output(options, i, port.name, &out))
      return -1;
  }
  return 0;
}

static void print_info(const cyto_model *model) {
  int32_t inputs = cyto_model_input_count(model), outputs = cyto_model_output_count(model);
  printf("model '%s' for %s by %s\n", cyto_model_name(model), cyto_model_target(model), cyto_model_compiler(model));
  for (int32_t i = 0; i < cyto_model_metadata_count(model); i++) {
    const char *key, *value;
    cyto_model_metadata(model, i, &key, &value);
    printf("metadata '%s': %s\n", key, value);
  }
  for (int32_t i = 0; i < inputs + outputs; i++) {
    cyto_port port;
    char text[200];
    int is_input = i < inputs;
    if (is_input)
      cyto_model_input(model, i, &port);
    else
      cyto_model_output(model, i - inputs, &port);
    type_text(port.type, text, sizeof text);
    printf("%s %d '%s' %s ", is_input ? "input" : "output", is_input ? i : i - inputs, port.name, text);
    if (port.type->kind == CYTO_TENSOR)
      print_dims(port.rank, port.dims, port.dim_names);
    fputs(port.is_optional ? " optional" : port.is_dynamic ? " of data-dependent size" : "", stdout);
    cyto_port shared;
    if (port.shared_input >= 0 && !cyto_model_input(model, port.shared_input, &shared))
      printf(", may share memory with '%s'", shared.name);
    if (port.grown_input >= 0 && !cyto_model_input(model, port.grown_input, &shared))
      printf(", continues '%s' along axis %d", shared.name, port.grown_axis);
    putchar('\n');
  }
}

/* ---- running ---- */

static int run_once(cyto_context *context, double *out_ms) {
  cyto_error error;
  double start = cy_clock_ms();
  if (cyto_run(context, &error))
    return complain("%s", error.message);
  *out_ms = cy_clock_ms() - start;
  return 0;
}

/* Runs `repeat` times behind the first one. */
static int run_again(cyto_context *context, int repeat, run_times *times) {
  double *taken = malloc((size_t)repeat * sizeof *taken);
  int status = taken ? 0 : complain("no memory for the times of %d runs", repeat);
  resident_growth *growth = &times->growth;
  growth->runs = repeat;
  if (!status)
    memset(taken, 0xff, (size_t)repeat * sizeof *taken); /* their pages are there from the beginning */
  for (int i = 0; i < repeat && !status; i++) {
    status = run_once(context, &taken[i]);
    resident_note(growth, i);
  }
  if (!status)
    times->again = statistics_of(taken, (size_t)repeat);
  free(taken);
  return status;
}

/* Binds outputs to the memory of the inputs that they may share it with. */
static int share_memory(const cyto_model *model, cyto_context *context, const cyto_value *values) {
  for (int32_t i = 0; i < cyto_model_output_count(model); i++) {
    cyto_port port;
    cyto_error error;
    cyto_model_output(model, i, &port);
    const cyto_tensor *t = port.shared_input >= 0 ? &values[port.shared_input].tensor : NULL;
    int64_t bytes = t ? cyto_tensor_bytes(t->dtype, t->rank, t->dims) : 0;
    if (bytes > 0 && cyto_bind_output(context, i, t->data, (uint64_t)bytes, &error))
      return complain("%s", error.message);
  }
  return 0;
}

static void print_about(const cyto_context *context) {
  char text[1000];
  cyto_context_describe(context, text, sizeof text);
  printf("ran on %s\n", text);
}

/* The sizes that inputs with open ones have got. */
static void print_sizes(const cyto_model *model, const cyto_value *values) {
  for (int32_t i = 0; i < cyto_model_input_count(model); i++) {
    cyto_port port;
    cyto_model_input(model, i, &port);
    const cyto_tensor *t = &values[i].tensor;
    bool open = false;
    for (int32_t k = 0; k < port.rank; k++)
      open |= port.dims[k] < 0;
    if (!open || !t->data)
      continue;
    printf("input %d '%s' %s ", i, port.name, cyto_dtype_name(port.dtype));
    print_dims(t->rank, t->dims, NULL);
    putchar('\n');
  }
}

static double samples_of(const cyto_model *model, const cyto_value *values) {
  for (int32_t i = 0; i < cyto_model_input_count(model); i++)
    if (values[i].kind == CYTO_TENSOR && sizes_samples(values[i].tensor.rank, values[i].tensor.dims))
      return (double)sizes_samples(values[i].tensor.rank, values[i].tensor.dims);
  return 1;
}

static void print_times(const run_times *times) {
  if (!times->again.runs)
    return;
  printf("first %.3f ms, then ", times->first_ms);
  statistics_print(&times->again, times->samples, stdout);
}

/* Ends a recording, and writes it where that was asked for: also one of a run that failed. */
static int end_recording(const run_options *options, cyto_model *model) {
  cyto_error error;
  if (cyto_trace_stop(model, &error) || (options->trace && cyto_trace_write(model, options->trace, &error)))
    return complain("%s", error.message);
  return 0;
}

/* All runs, recorded if that is asked for. */
static int run_all(const run_options *options, cyto_model *model, cyto_context *context, run_times *times) {
  bool recorded = options->profile || options->trace;
  cyto_error error;
  if (recorded && cyto_trace_start(model, options->trace ? 0 : -1, &error))
    return complain("'%s': %s", options->model, error.message);
  int status = run_once(context, &times->first_ms);
  if (!status && options->repeat)
    status = run_again(context, options->repeat, times);
  int recording = recorded ? end_recording(options, model) : 0;
  return status ? status : recording;
}

/* What is measured: the first run, the others, the table of kernels. */
static int measure(const run_options *options, cyto_model *model, cyto_context *context, const cyto_value *values) {
  run_times times = {.samples = samples_of(model, values)};
  profile launches = {model, cyto_trace_step_count(model)};
  bool to_stdout = options->json && !strcmp(options->json, "-");
  int status = run_all(options, model, context, &times);
  if (!status && !to_stdout) {
    if (options->repeat || options->seed >= 0)
      print_sizes(model, values);
    print_times(&times);
    if (options->repeat && !options->trace)
      resident_print(&times.growth);
    if (options->profile)
      profile_print(&launches, options->threads, options->repeat);
    if (options->about)
      print_about(context);
  }
  if (!status && options->json) {
    char error[TENSOR_ERROR_SIZE];
    run_report report = {model, context, values, &times, options->profile ? &launches : NULL};
    if (run_json_write(options->json, &report, error))
      status = complain("%s", error);
  }
  return status;
}

static int run_model(const run_options *options, cyto_model *model) {
  int32_t count = cyto_model_input_count(model);
  cyto_options how = {.threads = options->threads, .device = options->device};
  cyto_context *context = NULL;
  cyto_error error;
  int status = 0;
  if (check_names(options, model))
    return -1;
  cyto_value *values = calloc((size_t)count + 1, sizeof *values);
  if (!values || cyto_context_create(model, &how, &context, &error)) {
    free(values);
    return complain("%s", values ? error.message : "no memory");
  }
  for (int32_t i = 0; i < count && !status; i++) {
    cyto_port port;
    cyto_model_input(model, i, &port);
    status = load_input(options, &port, i, context, &values[i]);
  }
  if (!status && options->share)
    status = share_memory(model, context, values);
  if (!status)
    status = measure(options, model, context, values);
  if (!status && !(options->json && !strcmp(options->json, "-") && !options->output_dir))
    status = show_outputs(options, model, context);
  cyto_context_destroy(context);
  for (int32_t i = 0; i < count; i++)
    host_value_free(&values[i]);
  free(values);
  return status;
}

/* Of --tuned: what the command line does not say. dim: room for a text. */
static int take_tuned(run_options *options, const cyto_model *model, char dim[SIZES_DIM]) {
  cyto_tuned tuned;
  char error[TENSOR_ERROR_SIZE];
  sizes_given given = {&options->dims, &options->shapes, options->random_dims};
  if (sizes_tuned(program.name, options->tuned, model, &tuned, error))
    return complain("%s", error);
  if (!options->threads)
    options->threads = tuned.threads;
  return sizes_take_tuned(&tuned, &given, dim) && options_list_add(&options->dims, dim, 0) ? complain("no memory") : 0;
}

static int load_and_run(run_options *options) {
  cyto_model *model = NULL;
  cyto_error error;
  char dim[SIZES_DIM];
  int status = 0;
  if (cyto_model_load(options->model, &model, &error))
    return file_ends_with(options->model, ".onnx")
               ? complain("'%s' is an ONNX model: compile it by cytoc %s -o model.so, and run that", options->model,
                          options->model)
               : complain("%s", error.message);
  if (options->info)
    print_info(model);
  else if (!options->tuned || !(status = take_tuned(options, model, dim)))
    status = run_model(options, model);
  cyto_model_unload(model);
  if (fflush(stdout))
    status = complain("cannot write to the standard output: %s", strerror(errno));
  return status;
}

int main(int argc, char **argv) {
  run_options options = {.seed = -1};
  options_words words;
  options_parsed parsed;
  int status = options_read(&program, argc, argv, &options, &words, &parsed);
  if (!status && parsed.operands.count != 1)
    status = complain("expected one model library, found %d; cyto-run --help lists the options", parsed.operands.count);
  else if (!status) {
    options.model = parsed.operands.items[0];
    status = load_and_run(&options);
  }
  options_free(&program, &options, &parsed);
  options_words_free(&words);
  return status < 0 ? 1 : 0;
}
