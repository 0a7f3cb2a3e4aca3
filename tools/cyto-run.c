/* cyto-run.c - runs a compiled model from the command line: values in files in, values in files (or a summary) out.
 *
 * Inputs come from --input NAME=FILE, from --inputs-dir (files in_K_NAME.npy or .json of a reference run, or input_K.pb
 * of an ONNX test case), or are filled by --random. Outputs are written as out_K_NAME.npy in output order, as .json
 * those that are sequences, maps or optional values, and strings unless --output-format says otherwise. Everything that goes wrong is one line on stderr and exit
 * code 1.
 */
#define _GNU_SOURCE
#include "ir/clock.h"
#include "profile.h"
#include "value_file.h"

#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_ARGUMENTS = 256 };

typedef struct arguments {
  const char *names[MAX_ARGUMENTS]; /* NAME=VALUE */
  int count;
} arguments;

typedef struct run_options {
  const char *model, *inputs_dir, *output_dir;
  arguments inputs, shapes, dims;
  enum { UNSAID, NPY, PB, JSON } format; /* UNSAID: npy, but for strings json */
  long seed; /* -1: inputs without a file are an error */
  long repeat, threads, device;
  bool share, about, info, profile, help;
} run_options;

typedef enum option_kind { LIST, TEXT, NUMBER, FORMAT, FLAG } option_kind;

#define AT(field) offsetof(run_options, field)
static const struct {
  const char *name;
  option_kind kind;
  size_t at; /* of the field that it sets */
  long low;  /* NUMBER: the least that is allowed */
  const char *value, *help;
} rows[] = {
    {"input", LIST, AT(inputs), 0, "NAME=FILE",
     "value of an input: .npy, .pb (ONNX TensorProto, SequenceProto ..) or .json"},
    {"inputs-dir", TEXT, AT(inputs_dir), 0, "DIR",
     "takes in_K_*.npy, .json or .pb, or input_K.pb, of DIR for input number K"},
    {"random", NUMBER, AT(seed), 0, "SEED", "fills all other tensors of numbers with random ones"},
    {"shape", LIST, AT(shapes), 0, "NAME=1x3x224", "shape of a random input (NAME= for a scalar)"},
    {"dim", LIST, AT(dims), 0, "SYMBOL=N", "value of a named dim of random inputs (others are 1)"},
    {"output-dir", TEXT, AT(output_dir), 0, "DIR",
     "writes out_K_NAME.npy for every output, .json for strings, sequences, maps and optional values;\n"
     "                         otherwise a summary is printed"},
    {"output-format", FORMAT, AT(format), 0, "FORMAT", "npy, pb or json for all tensors, strings too (the default: npy, and json for strings)"},
    {"share", FLAG, AT(share), 0, NULL,
     "has outputs written in the memory of the inputs that they may share it with (cyto.h)"},
    {"repeat", NUMBER, AT(repeat), 1, "N", "runs N times more and prints the fastest and the median time"},
    {"profile", FLAG, AT(profile), 0, NULL, "prints the time of every kernel of a library compiled by cytoc --profile"},
    {"threads", NUMBER, AT(threads), 0, "N", "how many threads (0: all CPUs, the default)"},
    {"device", NUMBER, AT(device), 0, "N", "models for CUDA: the device's number (0, the default)"},
    {"about", FLAG, AT(about), 0, NULL, "prints what it ran on: threads, or the device, its driver and cuDNN's share"},
    {"info", FLAG, AT(info), 0, NULL, "prints inputs and outputs and stops"},
    {"help", FLAG, AT(help), 0, NULL, "this text"},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static int complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints a line of error; -1, so that callers can return it. */
static int complain(const char *format, ...) {
  va_list args;
  fputs("cyto-run: ", stderr);
  va_start(args, format);
  vfprintf(stderr, format, args);
  va_end(args);
  fputc('\n', stderr);
  return -1;
}

/* ---- arguments ---- */

static int add_argument(arguments *list, const char *option, const char *text) {
  if (!strchr(text, '='))
    return complain("%s '%s': expected NAME=VALUE", option, text);
  if (list->count == MAX_ARGUMENTS)
    return complain("%s: more than %d of them", option, MAX_ARGUMENTS);
  list->names[list->count++] = text;
  return 0;
}

static int parse_number(const char *option, const char *text, long low, long *out_value) {
  char *end;
  errno = 0;
  *out_value = strtol(text, &end, 10);
  if (errno || end == text || *end || *out_value < low || *out_value > INT_MAX)
    return complain("%s '%s': expected a whole number from %ld", option, text, low);
  return 0;
}

/* The value of NAME=VALUE for exactly this name (which may itself hold '='), or NULL. */
static const char *argument_find(const arguments *list, const char *name) {
  size_t length = strlen(name);
  for (int i = 0; i < list->count; i++)
    if (!strncmp(list->names[i], name, length) && list->names[i][length] == '=')
      return list->names[i] + length + 1;
  return NULL;
}

static int parse_format(const char *text, int *out_format) {
  static const char *const names[] = {[NPY] = "npy", [PB] = "pb", [JSON] = "json"};
  for (int i = NPY; i <= JSON; i++)
    if (!strcmp(text, names[i])) {
      *out_format = i;
      return 0;
    }
  return complain("--output-format '%s': expected npy, pb or json", text);
}

static int set_option(int row, const char *text, run_options *options) {
  char name[32];
  void *field = (char *)options + rows[row].at;
  snprintf(name, sizeof name, "--%s", rows[row].name);
  switch (rows[row].kind) {
  case LIST: return add_argument(field, name, text);
  case TEXT: *(const char **)field = text; return 0;
  case NUMBER: return parse_number(name, text, rows[row].low, field);
  case FORMAT: return parse_format(text, field);
  case FLAG: *(bool *)field = true; return 0;
  }
  return -1;
}

static void print_help(void) {
  puts("usage: cyto-run MODEL.so [options]");
  for (int i = 0; i < N_ROWS; i++) {
    char head[32];
    snprintf(head, sizeof head, "%s %s", rows[i].name, rows[i].value ? rows[i].value : "");
    printf("  --%-20s %s\n", head, rows[i].help);
  }
}

static int parse_options(int argc, char **argv, run_options *options) {
  struct option known[N_ROWS + 1] = {{0}};
  for (int i = 0; i < N_ROWS; i++)
    known[i] = (struct option){rows[i].name, rows[i].value != NULL, NULL, i};
  *options = (run_options){.seed = -1};
  for (int row; (row = getopt_long(argc, argv, "h", known, NULL)) != -1;)
    if (row == 'h')
      options->help = true;
    else if (row == '?' || set_option(row, optarg, options))
      return -1; /* getopt has said why, or set_option() */
  if (options->help) {
    print_help();
    exit(0);
  }
  if (optind + 1 != argc)
    return complain("expected one model library, found %d; see --help", argc - optind);
  options->model = argv[optind];
  return 0;
}

/* ---- inputs ---- */

static int read_value(const char *path, const cyto_port *port, cyto_value *value) {
  char error[TENSOR_ERROR_SIZE];
  host_tensor tensor = {0};
  if (file_ends_with(path, ".json") || port->type->kind != CYTO_TENSOR) {
    int failed = file_ends_with(path, ".json") ? value_json_read(path, port->type, value, error)
                                               : value_pb_read(path, port->type, value, error);
    return failed ? complain("input '%s': %s", port->name, error) : 0;
  }
  int failed = file_ends_with(path, ".pb") ? tensor_pb_read(path, &tensor, error) : npy_read(path, &tensor, error);
  if (!failed && !(failed = host_tensor_adapt(&tensor, port->dtype, error)))
    host_value_take(value, &tensor);
  return failed ? complain("input '%s': %s", port->name, error) : 0;
}

/* The file of the folder that holds input number k; 0 when there is none. */
static int find_in_folder(const char *folder, int32_t k, char path[PATH_MAX]) {
  char numbered[32], plain[32];
  DIR *dir = opendir(folder);
  int found = 0;
  snprintf(numbered, sizeof numbered, "in_%d_", k);
  snprintf(plain, sizeof plain, "input_%d.pb", k);
  for (struct dirent *entry; dir && !found && (entry = readdir(dir));) {
    const char *name = entry->d_name;
    int is_value = file_ends_with(name, ".npy") || file_ends_with(name, ".pb") || file_ends_with(name, ".json");
    if ((is_value && !strncmp(name, numbered, strlen(numbered))) || !strcmp(name, plain))
      found = snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX;
  }
  if (dir)
    closedir(dir);
  return found;
}

static int parse_shape(const char *text, const cyto_port *port, host_tensor *tensor) {
  const char *at = text;
  tensor->rank = 0;
  while (*at) {
    char *end;
    errno = 0;
    long long dim = strtoll(at, &end, 10);
    if (errno || end == at || dim < 0 || (*end && *end != 'x' && *end != ',') || tensor->rank == CYTO_MAX_RANK)
      return complain("--shape %s=%s: expected sizes such as 1x3x224x224", port->name, text);
    tensor->dims[tensor->rank++] = dim;
    at = end + (*end != 0);
  }
  return 0;
}

static int random_tensor(const run_options *options, const cyto_port *port, int32_t index, host_tensor *tensor) {
  if (port->type->kind != CYTO_TENSOR || port->dtype == CYTO_STRING)
    return complain("input '%s': only tensors of numbers can be random; give --input '%s=FILE.json'", port->name,
                    port->name);
  char error[TENSOR_ERROR_SIZE];
  const char *shape = argument_find(&options->shapes, port->name);
  uint64_t state = (uint64_t)options->seed * 1000003u + (uint64_t)index;
  tensor->dtype = port->dtype;
  tensor->rank = port->rank;
  for (int32_t i = 0; i < port->rank; i++) {
    const char *value = port->dims[i] < 0 ? argument_find(&options->dims, port->dim_names[i]) : NULL;
    long dim = 1;
    if (value && parse_number("--dim", value, 0, &dim))
      return -1;
    tensor->dims[i] = port->dims[i] >= 0 ? port->dims[i] : dim;
  }
  if (shape && parse_shape(shape, port, tensor))
    return -1;
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
  const char *file = argument_find(&options->inputs, port->name), *from = file;
  host_tensor tensor = {0};
  int status;
  if (file)
    status = read_value(file, port, value);
  else if (options->inputs_dir && find_in_folder(options->inputs_dir, index, path))
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

/* "'image', 'mask'", as far as `size` goes. */
static const char *input_names(const cyto_model *model, char *text, size_t size) {
  size_t n = 0;
  for (int32_t k = 0; k < cyto_model_input_count(model) && n < size; k++) {
    cyto_port port;
    cyto_model_input(model, k, &port);
    n += (size_t)snprintf(text + n, size - n, "%s'%s'", k ? ", " : "", port.name);
  }
  return n ? text : "none";
}

/* Names given on the command line must exist in the model. */
static int check_names(const cyto_model *model, const arguments *list, const char *option) {
  int32_t count = cyto_model_input_count(model);
  char names[1000];
  for (int i = 0; i < list->count; i++) {
    int known = 0;
    for (int32_t k = 0; k < count && !known; k++) {
      cyto_port port;
      cyto_model_input(model, k, &port);
      size_t length = strlen(port.name);
      known = !strncmp(list->names[i], port.name, length) && list->names[i][length] == '=';
    }
    if (!known)
      return complain("%s '%s': the model has no input of that name; it has %s", option, list->names[i],
                      input_names(model, names, sizeof names));
  }
  return 0;
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
  static const char *const suffixes[] = {[NPY] = "npy", [PB] = "pb", [JSON] = "json"};
  int format = value->kind != CYTO_TENSOR           ? JSON
               : options->format != UNSAID          ? (int)options->format
               : value->tensor.dtype == CYTO_STRING ? JSON
                                                    : NPY;
  host_tensor tensor = tensor_of(value);
  char path[PATH_MAX], safe[NAME_MAX - 24], error[TENSOR_ERROR_SIZE];
  file_name_of(name, safe, sizeof safe);
  snprintf(path, sizeof path, "%s/out_%d_%s.%s", options->output_dir, index, safe, suffixes[format]);
  int failed = format == PB     ? tensor_pb_write(path, name, &tensor, error)
               : format == JSON ? value_json_write(path, value, error)
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
    putchar('\n');
  }
}

/* ---- running ---- */

static int run_timed(cyto_context *context, long repeat) {
  cyto_error error;
  double start = cy_clock_ms();
  if (cyto_run(context, &error))
    return complain("%s", error.message);
  if (!repeat)
    return 0;
  double first = cy_clock_ms() - start, *times = malloc((size_t)repeat * sizeof *times);
  if (!times)
    return complain("no memory for the times of %ld runs", repeat);
  for (long i = 0; i < repeat; i++) {
    start = cy_clock_ms();
    if (cyto_run(context, &error)) {
      free(times);
      return complain("%s", error.message);
    }
    times[i] = cy_clock_ms() - start;
  }
  cy_numbers_sort(times, (size_t)repeat);
  printf("first %.3f ms, then %ld runs: min %.3f ms, median %.3f ms\n", first, repeat, times[0], times[repeat / 2]);
  free(times);
  return 0;
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

static int run_model(const run_options *options, cyto_model *model) {
  int32_t count = cyto_model_input_count(model);
  cyto_options how = {.threads = (int32_t)options->threads, .device = (int32_t)options->device};
  cyto_context *context = NULL;
  cyto_error error;
  int status = 0;
  if (check_names(model, &options->inputs, "--input") || check_names(model, &options->shapes, "--shape"))
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
    status = run_timed(context, options->repeat);
  if (!status && options->profile && profile_print(options->model, (int)options->threads, 1 + options->repeat))
    status = complain("'%s' does not count the time of its kernels: compile it by cytoc --profile", options->model);
  if (!status && options->about)
    print_about(context);
  if (!status)
    status = show_outputs(options, model, context);
  cyto_context_destroy(context);
  for (int32_t i = 0; i < count; i++)
    host_value_free(&values[i]);
  free(values);
  return status;
}

int main(int argc, char **argv) {
  run_options options;
  cyto_model *model = NULL;
  cyto_error error;
  int status = parse_options(argc, argv, &options);
  if (status)
    return 1;
  if (cyto_model_load(options.model, &model, &error)) {
    complain("%s", error.message);
    return 1;
  }
  if (options.info)
    print_info(model);
  else
    status = run_model(&options, model);
  cyto_model_unload(model);
  if (fflush(stdout))
    status = complain("cannot write to the standard output: %s", strerror(errno));
  return status ? 1 : 0;
}
