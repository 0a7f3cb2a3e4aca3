/* options.c - the command line of cytoc: one table row per option.
 *
 * In: argv. Out: cytoc_options. A value follows as `--name=value` or `--name value`; short options as `-o value`.
 */
#include "options.h"

#include "codegen/codegen.h"
#include "passes/passes.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef enum option_kind { TEXT, OPTIONAL_TEXT, FLAG, NUMBER, DIM, SHAPE, HELP, VERSION } option_kind;

typedef struct option {
  const char *name;
  option_kind kind;
  size_t at; /* of the field that it sets */
  const char *value, *help;
} option;

#define AT(field) offsetof(cytoc_options, field)
static const option options[] = {
    {"-o", TEXT, AT(output), "FILE",
     "write FILE: x.so, x.a (both with the runtime), x.o (Windows: .dll, .lib, .obj); x.h beside it. -: a text to "
     "stdout"},
    {"--target", TEXT, AT(target), "T",
     "native (default), x86-64-v3, aarch64, windows, a CPU name, a triple; sm_75 .. sm_121 (several by commas), cuda"},
    {"-O", NUMBER, AT(opt_level), "0..3", "0: eager, every op by itself; 3 (default): everything"},
    {"--dim", DIM, 0, "NAME=N", "fix a symbolic dimension ('*=1': all that are left)"},
    {"--shape", SHAPE, 0, "INPUT=1x3x224x224", "fix an input's shape ('?': keep that dimension)"},
    {"--int8", OPTIONAL_TEXT, AT(int8), "static|dynamic", "compute in 8-bit integers; static needs --calibrate"},
    {"--calibrate", TEXT, AT(calibrate), "DIR|FILE.npz",
     "samples of the inputs: folders of .npy or .pb, or stacked arrays"},
    {"--calibration", TEXT, AT(calibration), "HOW", "ranges: mse (default), minmax, percentile or entropy"},
    {"--int8-skip", TEXT, AT(int8_skip), "NAME,..", "layers of these names or types stay in float ('*', '?')"},
    {"--int8-max-error", TEXT, AT(int8_max_error), "P%", "layers whose output changes by more (RMS) stay in float"},
    {"--int8-min-snr", TEXT, AT(int8_min_snr), "DB|off",
     "layers stay in float until outputs have this signal-to-noise ratio (static: 25, if that is cheap)"},
    {"--int8-prefer", TEXT, AT(int8_prefer), "speed|size",
     "speed (default): layers that would be slower stay in float"},
    {"--weights", TEXT, AT(weights), "int8|int4[,..]",
     "store weights of products so: ,block=32 (default 32), ,asymmetric"},
    {"--fp16", FLAG, AT(fp16), NULL, "operands of products in f16, sums and all else in f32; on CPUs the weights"},
    {"--bf16", FLAG, AT(bf16), NULL, "the same in bf16"},
    {"--half-max-error", TEXT, AT(half_max_error), "P%", "products whose output changes by more (RMS) stay in f32"},
    {"--half-io", FLAG, AT(half_io), NULL, "with --fp16 or --bf16: inputs and outputs of f32 in half precision, too"},
    {"--cudnn", TEXT, AT(cudnn), "auto|off|require",
     "CUDA: cuDNN for convolutions where found and faster (default: auto)"},
    {"--tf32", FLAG, AT(tf32), NULL, "CUDA: products of f32 may round their factors to TF32 (10 bits of mantissa)"},
    {"--unchecked", FLAG, AT(unchecked), NULL,
     "CPU: do not check indices at run time; those out of range read or write another element (never memory outside)"},
    {"--emit", TEXT, AT(emit), "KIND,..",
     "so dll o a h ll asm cu ptx cubin graph loops; several are written side by side"},
    {"--name", TEXT, AT(name), "ID", "prefix of the C names in the header (default: from the file name)"},
    {"--fast-algorithms", TEXT, AT(fast_algorithms), "auto|off",
     "CPU: f32 by fewer multiplications where faster: Strassen's products, Winograd's convolutions (default: auto); "
     "off also keeps the digits of GELU far below 0"},
    {"--attention", TEXT, AT(attention), "fused|plain", "plain: attention as products and softmax, always so at -O0"},
    {"--explain", FLAG, AT(explain), NULL, "print a table of kernels: ops, algorithm, work, floor"},
    {"--profile", FLAG, AT(profile), NULL, "a library that counts the time of its kernels, for cyto-run --profile"},
    {"--stats", OPTIONAL_TEXT, AT(stats_file), "FILE", "print time per pass, sizes, peak memory; with =FILE as JSON"},
    {"--dump", TEXT, AT(dump), "PASS,..|all", "write the graph after these passes to NN-PASS.txt"},
    {"--dump-dir", TEXT, AT(dump_dir), "DIR", "where --dump writes (default: here)"},
    {"--passes", TEXT, AT(passes), "PASS,..", "run exactly these passes ('help': list them)"},
    {"--stop-after", TEXT, AT(stop_after), "PASS", "run no pass behind this one; print the graph"},
    {"--disable", TEXT, AT(disable), "PASS,..", "skip these passes"},
    {"--verify", FLAG, AT(verify), NULL, "check the graph after every pass, and the program"},
    {"--save-temps", OPTIONAL_TEXT, AT(save_temps), "DIR", "keep intermediate files in DIR (default: here)"},
    {"-j", NUMBER, AT(jobs), "N", "compile with N processes (default: all CPUs)"},
    {"-v", FLAG, AT(verbose), NULL, "say what is being done"},
    {"--batch", TEXT, AT(batch), "LIST", "run every line of the file LIST as a command line of its own"},
    {"--help", HELP, 0, NULL, "this text"},
    {"--version", VERSION, 0, NULL, "version, and the targets of this build"},
};
enum { NOPTIONS = sizeof options / sizeof options[0] };

static void print_help(void) {
  printf("usage: cytoc MODEL.onnx [-o LIBRARY] [OPTION..]\n\nCompiles an ONNX model into a native library.\n\n");
  for (int i = 0; i < NOPTIONS; i++) {
    const option *o = &options[i];
    bool is_long = o->name[1] == '-', optional = o->kind == OPTIONAL_TEXT;
    char head[48];
    snprintf(head, sizeof head, "%s%s%s%s%s", o->name, optional ? "[" : "",
             !o->value ? ""
             : is_long ? "="
                       : " ",
             o->value ? o->value : "", optional ? "]" : "");
    printf("  %-28s %s\n", head, o->help);
  }
  printf("\ncytoc quantize MODEL.onnx -o OUT.onnx --calibrate=DIR|FILE.npz writes the model with QuantizeLinear and\n"
         "DequantizeLinear around what can be computed in integers; it takes --calibration, --int8-skip,\n"
         "--int8-max-error, --int8-min-snr, --dim, --shape and --explain, as --int8=static does.\n");
  printf("\nMODEL may also be a graph in text form, as --dump and --emit=graph write it.\n");
}

static int bad(const char *format, const char *what) {
  fputs("cytoc: error: ", stderr);
  fprintf(stderr, format, what);
  fputs("; cytoc --help lists the options\n", stderr);
  return -1;
}

static int set_number(const option *o, const char *value, void *field) {
  char *end;
  long n = strtol(value, &end, 10);
  long most = o->at == AT(opt_level) ? 3 : 1024;
  if (end == value || *end || n < 0 || n > most) {
    fprintf(stderr, "cytoc: error: option '%s' expects a number from 0 to %ld, found '%s'\n", o->name, most, value);
    return -1;
  }
  *(int *)field = (int)n;
  return 0;
}

static int add_override(const option *o, const char *value, const char **list, uint32_t *n) {
  if (!strchr(value, '=') || value[0] == '=') {
    fprintf(stderr, "cytoc: error: option '%s' expects %s, found '%s'\n", o->name, o->value, value);
    return -1;
  }
  if (*n == CYTOC_MAX_OVERRIDES)
    return bad("too many options '%s'", o->name);
  list[(*n)++] = value;
  return 0;
}

static int apply(const option *o, const char *value, cytoc_options *out) {
  void *field = (char *)out + o->at;
  switch (o->kind) {
  case TEXT:
    *(const char **)field = value;
    return 0;
  case OPTIONAL_TEXT:
    *(const char **)field = value ? value : "";
    return 0;
  case FLAG:
    *(bool *)field = true;
    return 0;
  case NUMBER:
    return set_number(o, value, field);
  case DIM:
    return add_override(o, value, out->dims, &out->ndims);
  case SHAPE:
    return add_override(o, value, out->shapes, &out->nshapes);
  case HELP:
    print_help();
    break;
  case VERSION:
    printf("cytoc %s\n", CYTO_VERSION);
    cy_machine_list(stdout);
    break;
  }
  out->done = true;
  return 0;
}

/* The option that arg is, and the value glued to it (`--x=v`, `-Ov`), if any. */
static const option *find(const char *arg, const char **out_value) {
  *out_value = NULL;
  for (int i = 0; i < NOPTIONS; i++) {
    size_t len = strlen(options[i].name);
    if (strncmp(arg, options[i].name, len))
      continue;
    if (!arg[len])
      return &options[i];
    bool is_long = arg[1] == '-';
    if (is_long && arg[len] != '=')
      continue;
    if (!is_long && !options[i].value)
      continue;
    *out_value = arg + len + (is_long ? 1 : 0);
    return &options[i];
  }
  return NULL;
}

int cytoc_options_parse(int argc, char **argv, cytoc_options *out) {
  *out = (cytoc_options){.target = "native", .opt_level = 3};
  out->quantize = argc > 1 && !strcmp(argv[1], "quantize");
  for (int i = out->quantize ? 2 : 1; i < argc; i++) {
    if (argv[i][0] != '-' || !argv[i][1]) {
      if (out->input)
        return bad("one model at a time: unexpected '%s'", argv[i]);
      out->input = argv[i];
      continue;
    }
    const char *value;
    const option *o = find(argv[i], &value);
    if (!o)
      return bad("unknown option '%s'", argv[i]);
    bool needs_value = o->kind != FLAG && o->kind != HELP && o->kind != VERSION && o->kind != OPTIONAL_TEXT;
    if (value && !o->value)
      return bad("option '%s' takes no value", o->name);
    if (needs_value && !value) {
      if (i + 1 == argc)
        return bad("option '%s' needs a value", o->name);
      value = argv[++i];
    }
    if (needs_value && !*value)
      return bad("option '%s' needs a value", o->name);
    if (apply(o, value, out))
      return -1;
  }
  if (out->attention && strcmp(out->attention, "fused") && strcmp(out->attention, "plain"))
    return bad("option '--attention' expects fused or plain, found '%s'", out->attention);
  if (out->passes && !strcmp(out->passes, "help")) {
    cy_passes_list(stdout);
    out->done = true;
  }
  if (!out->done && !out->input && !out->batch)
    return bad("no model given%s", "");
  return 0;
}
