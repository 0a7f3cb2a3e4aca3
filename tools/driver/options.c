/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - the command line of cytoc: one table row per option (tools/options.h). */
#include "options.h"

#include "codegen/codegen.h"
#include "passes/passes.h"

#include <stddef.h>
#include <string.h>

/* Numbers of the commands below; what of them takes an option. */
enum { COMPILE, QUANTIZE, PREDICT, REPORT, VERIFY };
#define OPTION_COMPILE .commands = 1u << COMPILE | 1u << VERIFY
#define OPTION_VERIFY .commands = 1u << VERIFY

#define AT(field) offsetof(cytoc_options, field)
static const option_row rows[] = {
    {"-o", OPTION_TEXT, AT(output), "FILE",
     "write FILE: x.so, x.a (both with the runtime), x.o (Windows: .dll, .lib, .obj); x.h beside it. -: a text to "
     "stdout",
     OPTION_ALL},
    {"--target", OPTION_TEXT, AT(target), "T",
     "native (default), x86-64-v3, aarch64, windows, a CPU name, a triple; sm_75 .. sm_121 (several by commas), cuda",
     OPTION_COMPILE},
    {"-O", OPTION_NUMBER, AT(opt_level), "0..3",
     "0: every op its own kernel, nothing is rewritten; 1: no choice of layouts; 2, 3 (default): everything",
     OPTION_RANGE(0, 3), OPTION_ALL},
    {"--dim", OPTION_PAIRS, AT(dims), "NAME=N",
     "fix a symbolic dimension ('*=1': all that are left); NAME=?: its axes may differ", OPTION_ALL},
    {"--shape", OPTION_PAIRS, AT(shapes), "INPUT=1x3x224x224", "fix an input's shape ('?': keep that dimension)",
     OPTION_ALL},
    {"--last-logits", OPTION_TEXT, AT(last_logits), "OUTPUT",
     "of this output compute the last position only: [.., positions, vocabulary] becomes [.., 1, vocabulary]",
     OPTION_COMPILE},
    {"--accuracy", OPTION_TEXT, AT(accuracy), "DB|top1:P%",
     "choose a fast precision for every layer, with every output so close to f32 on the samples of --calibrate: 30dB, "
     "or top1:0.5% of right answers lost; docs/quantisation.md",
     OPTION_COMPILE},
    {"--labels", OPTION_TEXT, AT(labels), "FILE",
     "with --accuracy=top1: the class of every sample, as .npy, .npz, .txt or .csv", OPTION_COMPILE},
    {"--int8", OPTION_OPTIONAL, AT(int8), "static|dynamic", "compute in 8-bit integers; static needs --calibrate",
     OPTION_COMPILE},
    {"--fp8", OPTION_OPTIONAL, AT(fp8), "static|dynamic",
     "CUDA, from sm_89 on: products in floats of 8 bits (e4m3), f32 sums; the --int8-.. options hold for it, too",
     OPTION_COMPILE},
    {"--calibrate", OPTION_TEXT, AT(calibrate), "DIR|FILE.npz",
     "samples of the inputs: folders of .npy or .pb, or stacked arrays", OPTION_ALL},
    {"--calibration", OPTION_TEXT, AT(calibration), "minmax|percentile|entropy|mse",
     "ranges (default: mse; of --fp8: minmax)", OPTION_ALL},
    {"--int8-skip", OPTION_TEXT, AT(int8_skip), "NAME,..", "layers of these names or types stay in float ('*', '?')",
     OPTION_ALL},
    {"--int8-max-error", OPTION_TEXT, AT(int8_max_error), "P%",
     "layers whose output changes by more (RMS) stay in float", OPTION_ALL},
    {"--int8-min-snr", OPTION_TEXT, AT(int8_min_snr), "DB|off",
     "layers stay in float until outputs have this signal-to-noise ratio (static: 25, if that is cheap, 20 in any "
     "case)",
     OPTION_ALL},
    {"--int8-prefer", OPTION_TEXT, AT(int8_prefer), "speed|size",
     "speed (default): layers that would be slower stay in float", OPTION_COMPILE},
    {"--weights", OPTION_TEXT, AT(weights), "int8|int4[,..]",
     "store weights of products so: ,block=32 (default 32), ,asymmetric", OPTION_COMPILE},
    {"--fp16", OPTION_FLAG, AT(fp16), NULL,
     "operands of products in f16, sums and all else in f32; on CPUs the weights", OPTION_COMPILE},
    {"--bf16", OPTION_FLAG, AT(bf16), NULL, "the same in bf16", OPTION_COMPILE},
    {"--half-max-error", OPTION_TEXT, AT(half_max_error), "P%",
     "products whose output changes by more (RMS) stay in f32", OPTION_COMPILE},
    {"--half-io", OPTION_FLAG, AT(half_io), NULL,
     "with --fp16 or --bf16: inputs and outputs of f32 in half precision, too", OPTION_COMPILE},
    {"--cudnn", OPTION_TEXT, AT(cudnn), "auto|off|require",
     "CUDA: cuDNN for convolutions and attention where found and faster (default: auto)", OPTION_COMPILE},
    {"--cublaslt", OPTION_TEXT, AT(cublaslt), "auto|off|require",
     "CUDA: cuBLASLt for products where found and faster (default: auto)", OPTION_COMPILE},
    {"--unchecked", OPTION_FLAG, AT(unchecked), NULL,
     "do not check indices at run time; those out of range read or write another element (never memory outside)",
     OPTION_COMPILE},
    {"--tf32", OPTION_FLAG, AT(tf32), NULL,
     "CUDA: products of f32 may round their factors to TF32 (10 bits of mantissa)", OPTION_COMPILE},
    {"--emit", OPTION_TEXT, AT(emit), "KIND,..",
     "so dll o a h ll asm cu ptx cubin graph loops; several are written side by side", OPTION_MAIN},
    {"--name", OPTION_TEXT, AT(name), "ID", "prefix of the C names in the header (default: from the file name)",
     OPTION_MAIN},
    {"--fast-algorithms", OPTION_TEXT, AT(fast_algorithms), "auto|off",
     "CPU: f32 by fewer multiplications where faster: Strassen's products, Winograd's convolutions (default: auto); "
     "off also keeps the digits of GELU far below 0",
     OPTION_COMPILE},
    {"--strict", OPTION_FLAG, AT(strict), NULL,
     "round where ONNX Runtime does: the state of DynamicQuantizeLSTM to 8 bits in every step (slower)", OPTION_ALL},
    {"--attention", OPTION_TEXT, AT(attention), "fused|plain",
     "plain: attention as products and softmax, always so at -O0", OPTION_COMPILE},
    {"--choice", OPTION_TEXT, AT(choice), "FILE", NULL, OPTION_COMPILE}, /* for tests and calibration */
    {"--tune", OPTION_OPTIONAL, AT(tune), "FILE",
     "measure on this CPU by which algorithm and layout each layer is fastest, and keep it in FILE (default: in the "
     "user's cache), which later compilations read; docs/tuning.md",
     OPTION_MAIN},
    {"--tune-seconds", OPTION_NUMBER, AT(tune_seconds), "N",
     "with --tune: begin no measurement after N seconds; what is left goes by estimates", OPTION_RANGE(1, 1000000),
     OPTION_MAIN},
    {"--explain", OPTION_OPTIONAL, AT(explain), "memory|costs|json",
     "print a table of kernels: ops, algorithm, work, floor; =memory: of the memory that a run takes, and what for; "
     "=costs: what each layer was chosen of, with estimates; =json: kernels and memory, for programs",
     OPTION_ALL},
    {"--profile", OPTION_FLAG, AT(profile), NULL,
     "a library that can record the time of its kernels, for cyto-run --profile and --trace", OPTION_COMPILE},
    {"--stats", OPTION_OPTIONAL, AT(stats_file), "FILE", "print time per pass, sizes, peak memory; with =FILE as JSON",
     OPTION_MAIN},
    {"--dump", OPTION_TEXT, AT(dump), "PASS,..|all", "write the graph after these passes to NN-PASS.txt", OPTION_MAIN},
    {"--dump-dir", OPTION_TEXT, AT(dump_dir), "DIR", "where --dump writes (default: here)", OPTION_MAIN},
    {"--passes", OPTION_TEXT, AT(passes), "PASS,..", "run exactly these passes ('help': list them)", OPTION_MAIN},
    {"--stop-after", OPTION_TEXT, AT(stop_after), "PASS", "run no pass behind this one; print the graph", OPTION_MAIN},
    {"--disable", OPTION_TEXT, AT(disable), "PASS,..", "skip these passes", OPTION_ALL},
    {"--verify", OPTION_FLAG, AT(verify), NULL, "check the graph after every pass, and the program", OPTION_COMPILE},
    {"--save-temps", OPTION_OPTIONAL, AT(save_temps), "DIR", "keep intermediate files in DIR (default: here)",
     OPTION_MAIN},
    {"-j", OPTION_NUMBER, AT(jobs), "N", "compile with N processes (default: all CPUs)", OPTION_RANGE(0, 1024),
     OPTION_ALL},
    {"-v", OPTION_FLAG, AT(verbose), NULL, "say what is being done", OPTION_ALL},
    {"--batch", OPTION_TEXT, AT(batch), "LIST", "run every line of the file LIST as a command line of its own",
     OPTION_MAIN},
    {"--inputs", OPTION_TEXT, AT(inputs), "DIR|FILE.npz",
     "samples: folders with in_K_*.npy, .json or input_K.pb, and expected outputs beside them if there are any",
     OPTION_VERIFY},
    {"--random", OPTION_NUMBER, AT(random), "N",
     "so many random samples (default: 2; 3 of different sizes where the model leaves some open)",
     OPTION_RANGE(1, 1000), OPTION_VERIFY},
    {"--seed", OPTION_NUMBER, AT(seed), "N", "of the random samples (default: 1)", OPTION_VERIFY},
    {"--range", OPTION_PAIRS, AT(ranges), "INPUT=LO:HI", "values of a random input", OPTION_VERIFY},
    {"--against", OPTION_TEXT, AT(against), "eager|ort|reference",
     "-O0 (default), ONNX Runtime, or what lies beside the inputs, else onnx.reference; the last two in Python",
     OPTION_VERIFY},
    {"--tolerance", OPTION_TEXT, AT(tolerance), "LIMIT,..",
     "30dB: signal-to-noise ratio; 1e-3: largest error over the greatest value; 99%: equal integers (default: by "
     "precision)",
     OPTION_VERIFY},
    {"--bisect", OPTION_OPTIONAL, AT(bisect), "DIR",
     "when beyond: find the first layer that leaves the reference, and write it as a small model with its inputs",
     OPTION_VERIFY},
    {"--library", OPTION_TEXT, AT(library), "FILE", "check this library of the model in place of compiling it",
     OPTION_VERIFY},
    {"--threads", OPTION_NUMBER, AT(threads), "N", "how many threads (0: all CPUs, the default)", OPTION_RANGE(0, 4096),
     OPTION_VERIFY},
    {"--json", OPTION_TEXT, AT(json), "FILE", "write errors and verdicts as JSON (-: to stdout)", OPTION_VERIFY},
    OPTIONS_COMMON,
};

static void version(FILE *out) { cy_machine_list(out); }

static const options_command commands[] = {
    {NULL, "MODEL.onnx [-o LIBRARY] [OPTION..]",
     "Compiles an ONNX model into a native library. MODEL may also be a graph in text form, as --dump and --emit=graph "
     "write it."},
    {"quantize", "MODEL.onnx -o OUT.onnx --calibrate=DIR|FILE.npz [OPTION..]",
     "Writes the model with QuantizeLinear and DequantizeLinear around what can be computed in integers; its options "
     "mean "
     "what they mean with --int8=static."},
    {"predict", "MODEL INPUT.. -o FOLDER [--tile ZxYxX] [--overlap PART] [--resume] [OPTION..]",
     "Runs a model over files: images, volumes, recordings, videos, larger than the network's input or than memory. "
     "Needs "
     "the Python package: docs/predict.md."},
    {"report", "MODEL.onnx [-o PAGE.html] [--inputs DIR] [--against ort] [OPTION..]",
     "Compiles the model, runs it, and writes a page that shows where time and memory go, with advice; options are "
     "those of "
     "compiling. Needs the Python package: docs/report.md."},
    {"verify", "MODEL.onnx [--inputs DIR|--random N] [--against eager|ort|reference] [OPTION..]",
     "Compiles the model, has the library and a reference compute the same inputs, and says how far their outputs are "
     "apart. Exit code 0: right; 1: beyond the limits; 2: it cannot be said. docs/verify.md has the limits."},
};

const options_program cytoc_program = {.name = "cytoc",
                                       .title = "compiles ONNX models into native libraries",
                                       .endings = "onnx txt",
                                       .commands = commands,
                                       .n_commands = sizeof commands / sizeof *commands,
                                       .rows = rows,
                                       .n_rows = sizeof rows / sizeof *rows,
                                       .version = version};

static const cytoc_options defaults = {.target = "native", .opt_level = 3, .seed = 1};

/* What one row cannot say. */
static int check(cytoc_options *out, char error[OPTIONS_ERROR]) {
  const options_list *operands = &out->parsed.operands;
  out->quantize = out->parsed.command == &commands[QUANTIZE];
  out->verifies = out->parsed.command == &commands[VERIFY];
  out->input = operands->count ? operands->items[0] : NULL;
  *error = 0;
  if (out->parsed.command == &commands[REPORT] || out->parsed.command == &commands[PREDICT])
    snprintf(error, OPTIONS_ERROR, "'%s' is the first word of its command line, and none of libcytoc",
             out->parsed.command->name);
  else if (operands->count > 1)
    snprintf(error, OPTIONS_ERROR, "one model at a time: unexpected '%s'", operands->items[1]);
  else if (out->quantize && out->explain && *out->explain)
    snprintf(error, OPTIONS_ERROR, "option '--explain' takes no value here, found '%s'", out->explain);
  else if (out->tune && out->choice)
    snprintf(error, OPTIONS_ERROR, "options '--tune' and '--choice' exclude each other: both say what layers do");
  else if (out->tune_seconds && !out->tune)
    snprintf(error, OPTIONS_ERROR, "option '--tune-seconds' belongs to '--tune'");
  else if (out->tune && !out->opt_level)
    snprintf(error, OPTIONS_ERROR, "option '--tune' needs -O1 or more: at -O0 there is nothing to choose");
  return *error ? -1 : 0;
}

int cytoc_options_read(const char *const *words, int n, cytoc_options *out) {
  *out = defaults;
  if (options_parse(&cytoc_program, words, n, out, &out->parsed) || check(out, out->parsed.error))
    return -1;
  if (out->parsed.action == OPTIONS_WORK && !out->verifies)
    return 0;
  snprintf(out->parsed.error, OPTIONS_ERROR, "options that print in place of compiling are for the command line");
  return -1;
}

int cytoc_options_parse(int argc, char **argv, cytoc_options *out) {
  *out = defaults;
  int status = options_read(&cytoc_program, argc, argv, out, &out->words, &out->parsed);
  out->done = status > 0;
  out->verifies = out->parsed.command == &commands[VERIFY]; /* for the exit code, even of what is wrong */
  if (status)
    return status < 0 ? -1 : 0;
  bool listed = out->passes && !strcmp(out->passes, "help");
  if (check(out, out->parsed.error))
    options_complain(&cytoc_program, "%s", out->parsed.error);
  else if (!listed && !out->input && !out->batch)
    options_complain(&cytoc_program, "no model given; cytoc --help lists the options");
  else {
    if (listed)
      cy_passes_list(stdout);
    out->done = listed;
    return 0;
  }
  return -1;
}

void cytoc_options_free(cytoc_options *out) {
  options_free(&cytoc_program, out, &out->parsed);
  options_words_free(&out->words);
}
