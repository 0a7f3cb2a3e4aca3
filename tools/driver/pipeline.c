/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.c - the compiler's pipeline: reads a model, runs the passes, lowers, generates code, links.
 *
 * In: options and a model. Out: files, or diagnostics; nothing is written then. The whole pipeline stands in compile(), in
 * order. What it prints (--explain, --stats, texts without a file) goes to standard output.
 */
#define _GNU_SOURCE
#include "pipeline.h"

#include "choices.h"
#include "codegen/codegen.h"
#include "codegen/temps.h"
#include "ir/loop/loop.h"
#include "last_logits.h"
#include "passes/lower/lower.h"
#include "passes/lower/memplan.h"
#include "passes/passes.h"
#include "tools/calibrate/cytoc_budget.h"
#include "tools/calibrate/cytoc_quantise.h"
#include "tools/calibrate/cytoc_whole.h"
#include "tools/qdq/qdq.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef cytoc_session session;

/* The whole file, with a 0 behind it; NULL after a diagnostic. */
static char *read_text(const char *path, size_t *out_len, cy_diag_sink *diag) {
  FILE *f = fopen(path, "rb");
  char *text = NULL;
  size_t len = 0, got;
  for (size_t room = 0; f; len += got) {
    if (len + 4096 > room)
      text = realloc(text, (room = room * 2 + 65536) + 1);
    if (!text)
      cy_no_memory();
    got = fread(text + len, 1, 4096, f);
    if (!got)
      break;
  }
  if (!f || ferror(f)) {
    cy_location where = {.file = path, .node_index = -1};
    cy_diag_add(diag, CY_ERROR, &where, "cannot read the file: %s", strerror(errno));
    free(text);
    text = NULL;
  }
  if (f)
    fclose(f);
  if (text)
    text[len] = 0;
  *out_len = len;
  return text;
}

static cy_graph *read_whole_model(session *s) {
  const cytoc_options *o = s->o;
  cy_import_options import = {o->dims.items,
                              (uint32_t)o->dims.count,
                              o->shapes.items,
                              (uint32_t)o->shapes.count,
                              s->model_dir,
                              s->ask,
                              s->ask_ctx,
                              o->strict,
                              .unchecked = o->unchecked};
  if (s->make)
    return s->make(s->make_ctx, s->diag);
  if (s->model)
    return cy_import_memory(s->model, s->model_size, o->input, &import, s->diag);
  if (!file_ends_with(o->input, ".txt"))
    return cy_import_file(o->input, &import, s->diag);
  size_t len;
  char *text = read_text(o->input, &len, s->diag);
  cy_graph *g = text ? cy_graph_parse(text, len, o->input, s->diag) : NULL;
  free(text);
  return g;
}

static cy_graph *read_model(session *s) {
  cy_graph *g = read_whole_model(s);
  if (!g || !s->o->last_logits || !cytoc_last_logits(g, s->o->last_logits))
    return g;
  cy_graph_destroy(g);
  return NULL;
}

/* ---- outputs ---- */

/* Does the comma separated list name `kind`? */
static bool listed(const char *list, const char *kind) {
  size_t n = strlen(kind);
  for (const char *p = list; p; p = strchr(p, ','), p = p ? p + 1 : NULL)
    if (!strncmp(p, kind, n) && (p[n] == ',' || !p[n]))
      return true;
  return false;
}

/* Does --explain ask for this? "": for the kernels. */
static bool explains(const cytoc_options *o, const char *what) { return o->explain && !strcmp(o->explain, what); }

/* For what --int8 and --weights did to layers, too? */
static bool explains_layers(const cytoc_options *o) { return explains(o, "") || explains(o, "json"); }

static bool to_stdout(const session *s) { return s->o->output && !strcmp(s->o->output, "-"); }

static FILE *open_text(session *s, const char *path) {
  FILE *f = fopen(path, "w");
  if (!f) {
    cy_location where = {.file = path, .node_index = -1};
    cy_diag_add(s->diag, CY_ERROR, &where, "cannot write the file: %s", strerror(errno));
    cy_diag_blame(s->diag, CY_CAUSE_FILE);
  }
  return f;
}

static int print_text(session *s, FILE *f, const char *path, cy_graph *g, cy_program *p) {
  if (p)
    cy_program_print(p, f);
  else
    cy_graph_print(g, f);
  bool bad = fflush(f) || ferror(f);
  if (f != stdout && fclose(f))
    bad = true;
  if (!bad)
    return 0;
  cy_location where = {.file = path, .node_index = -1};
  cy_diag_add(s->diag, CY_ERROR, &where, "cannot write: %s", strerror(errno));
  cy_diag_blame(s->diag, CY_CAUSE_FILE);
  return -1;
}

/* --emit=graph and --emit=loops: "<output>.graph.txt" beside the others, or standard output where nothing else is asked
 * for. */
static int write_text(session *s, const char *kind, cy_graph *g, cy_program *p) {
  char *beside = NULL;
  const char *path = to_stdout(s) ? NULL : s->o->output;
  if (path && strcmp(s->o->emit, kind))
    path = beside = cy_path_with_ending(path, p ? "loops.txt" : "graph.txt");
  FILE *f = path ? open_text(s, path) : stdout;
  int status = f ? print_text(s, f, path ? path : "standard output", g, p) : -1;
  free(beside);
  return status;
}

/* Where code of this kind goes; free() it. */
static char *output_path(const session *s, cy_emit_kind kind) {
  const cytoc_options *o = s->o;
  bool alone = !o->emit || !strchr(o->emit, ',');
  char *beside = cy_path_with_ending(o->output ? o->output : o->input, cy_emit_kind_name(kind)), *path = NULL;
  const char *folder = s->folder && !o->output ? s->folder : "", *slash = *folder ? "/" : "";
  const char *file = o->output ? (alone ? o->output : beside) : cy_path_base(beside);
  if (asprintf(&path, "%s%s%s", folder, slash, file) < 0)
    cy_no_memory();
  free(beside);
  return path;
}

static void codegen_progress(void *ctx, const char *stage, int64_t done, int64_t total) {
  session *s = ctx;
  cytoc_report_progress(&s->report, stage, done, total);
}

static int generate(session *s, cy_machine *machine, cy_program *p, cy_emit_kind kind) {
  const cytoc_options *o = s->o;
  free(s->written);
  s->written = output_path(s, kind);
  cy_codegen_options c = {.machine = machine,
                          .emit = kind,
                          .output = s->written,
                          .name = o->name,
                          .share_kernels = o->opt_level > 0,
                          .fast_codegen = o->opt_level == 0,
                          .jobs = o->jobs,
                          .save_temps = o->save_temps && !*o->save_temps ? "." : o->save_temps,
                          .plan_memory = cy_plan_memory,
                          .diag = s->diag,
                          .stats = &s->report.code,
                          .profile = o->profile,
                          .explain = explains(o, "") ? stdout : NULL,
                          .explain_costs = explains(o, "costs") ? stdout : NULL,
                          .visit = s->visit,
                          .visit_ctx = s->visit_ctx,
                          .plan_only = s->plan_only,
                          .explain_memory = explains(o, "memory") ? stdout : NULL,
                          .explain_json = explains(o, "json") ? stdout : NULL,
                          .progress = codegen_progress,
                          .progress_ctx = s};
  int status = cy_codegen(p, &c);
  const cy_kernel_compiler *by = &s->report.code.compiled_by;
  if (o->verbose && *by->name)
    fprintf(stderr, "cytoc: kernels are compiled by %s, %s\n", by->name, by->path);
  return status;
}

/* What is emitted when --emit is not given: what the output's ending says. */
static const char *default_kind(session *s, const cy_machine *machine) {
  if (!s->o->output)
    return cy_emit_kind_name(cy_emit_kind_shared(machine));
  cy_emit_kind kind = cy_emit_kind_of(s->o->output);
  if (kind != CY_EMIT_KINDS)
    return cy_emit_kind_name(kind);
  cy_location where = {.file = s->o->output, .node_index = -1};
  cy_diag_add(s->diag, CY_ERROR, &where,
              "what to write is not clear from the file's name: expected an ending of .so, .dll, .a, .o, .h, .ll "
              "or .asm, or --emit=KIND");
  cy_diag_blame(s->diag, CY_CAUSE_OPTION);
  return NULL;
}

/* ---- the pipeline ---- */

static cy_program *lower(session *s, cy_graph *g, cy_machine *machine) {
  cy_lower_options o = {.level = s->o->opt_level, .caps = cy_machine_caps(machine), .verify = s->o->verify};
  cytoc_report_stage(&s->report, "lower");
  return cy_lower(g, &o);
}

static int emit_all(session *s, cy_graph *g, cy_machine *machine) {
  const char *emit = s->o->emit ? s->o->emit : default_kind(s, machine);
  if (!emit)
    return -1;
  if (listed(emit, "graph") && write_text(s, "graph", g, NULL))
    return -1;
  if (!strcmp(emit, "graph"))
    return 0;
  cy_program *p = lower(s, g, machine);
  if (!p)
    return -1;
  if (listed(emit, "loops") && write_text(s, "loops", g, p))
    return -1;
  bool first = true;
  for (int i = 0; i < CY_EMIT_KINDS; i++) {
    const char *name = cy_emit_kind_name((cy_emit_kind)i);
    if (!listed(emit, name))
      continue;
    if (!first && !(p = lower(s, g, machine)))
      return -1; /* code generation uses a program up */
    first = false;
    cytoc_report_stage(&s->report, name);
    if (generate(s, machine, p, (cy_emit_kind)i))
      return -1;
  }
  return 0;
}

static int bad_option(session *s, const char *format, const char *found) {
  cy_diag_add(s->diag, CY_ERROR, NULL, format, found);
  return -1;
}

static int check_emit(session *s) {
#define NAME(kind, name, class, code) name ","
  static const char known[] = CY_EMIT_TABLE(NAME) "graph,loops";
#undef NAME
  for (const char *p = s->o->emit; p; p = strchr(p, ','), p = p ? p + 1 : NULL) {
    char kind[16] = "";
    size_t n = strcspn(p, ",");
    if (n < sizeof kind)
      memcpy(kind, p, n);
    if (*kind && listed(known, kind))
      continue;
    cy_diag_add(s->diag, CY_ERROR, NULL, "unknown kind '%.*s' in --emit: expected some of %s", (int)n, p, known);
    return -1;
  }
  const char *emit = s->o->emit;
  if (!to_stdout(s) || (emit && !strchr(emit, ',') && listed("h,ll,asm,cu,ptx,graph,loops", emit)))
    return 0;
  return bad_option(s,
                    "option '-o -' writes one text to standard output: expected --emit=h, ll, asm, cu, ptx, graph or "
                    "loops, found '%s'",
                    emit ? emit : "no --emit");
}

/* Signal-to-noise ratio of outputs, in dB: the default where there are samples; and more than integers can give. */
static const double MIN_DECIBELS = 25, MAX_DECIBELS = 200;
/* .. and below which no default goes. */
static const double FLOOR_DECIBELS = 20;

/* "1%" or "1": percent; < 0 when it is not a number. */
static double percent(const char *text) {
  char *end;
  double v = strtod(text, &end);
  return end == text || !(v >= 0) || (*end && strcmp(end, "%")) ? -1 : v / 100;
}

/* "25", "25dB"; 0 for "off", < 0 when it is neither. */
static double decibels(const char *text) {
  char *end;
  double v = strtod(text, &end);
  return !strcmp(text, "off")                                                           ? 0
         : end == text || !(v >= 0 && v <= MAX_DECIBELS) || (*end && strcmp(end, "dB")) ? -1
                                                                                        : v;
}

/* How layers are computed in 8 bits: what --int8 or --fp8 says; NULL: they are not. */
static const char *eight_bits(const cytoc_options *o) { return o->fp8 ? o->fp8 : o->int8; }
static const char *eight_bits_name(const cytoc_options *o) { return o->fp8 ? "--fp8" : "--int8"; }

static bool is_static(const cytoc_options *o) {
  const char *how = eight_bits(o);
  return how && (!strcmp(how, "static") || (!*how && o->calibrate));
}

/* Plain --int8=dynamic or --fp8=dynamic: accuracy is estimated, as nobody limited it or turned that off. */
static bool is_estimated(const cytoc_options *o) {
  return eight_bits(o) && !is_static(o) && !o->quantize && !o->int8_max_error && !o->int8_min_snr;
}

static cytoc_quantise calibration(session *s) {
  const cytoc_options *o = s->o;
  const char *limit = o->half_max_error ? o->half_max_error : o->int8_max_error;
  return (cytoc_quantise){.passes = {.opt_level = o->opt_level, .disable = o->disable, .verify = o->verify},
                          .diag = s->diag,
                          .samples = o->calibrate,
                          .method = range_method_of(o->calibration ? o->calibration
                                                    : o->fp8       ? "minmax"
                                                                   : "mse"),
                          .max_error = limit ? percent(limit) : 0,
                          .min_snr = o->int8_min_snr                    ? decibels(o->int8_min_snr)
                                     : o->calibrate && !is_estimated(o) ? MIN_DECIBELS
                                                                        : 0,
                          .firm_snr = o->int8_min_snr,
                          .floor_snr = o->int8_min_snr ? 0 : FLOOR_DECIBELS,
                          .jobs = o->jobs,
                          .runs_here = !strcmp(o->target, "native"),
                          .progress = codegen_progress,
                          .progress_ctx = s};
}

/* Tables of 8 bits may be off by so much where nothing else is said, and lie so far below the noise that outputs may have. */
static const double TABLE_ERROR = 0.02, TABLE_DECIBELS = 10;

static double table_error(const cytoc_quantise *how) {
  double max = how->max_error > 0 ? how->max_error : TABLE_ERROR;
  return how->min_snr > 0 ? fmin(max, pow(10, -(how->min_snr + TABLE_DECIBELS) / 20)) : max;
}

static bool prefers_size(const cytoc_options *o) { return o->int8_prefer && !strcmp(o->int8_prefer, "size"); }

/* What --int8, --fp8 and --half-max-error say of themselves. */
static void ask_quant(session *s, const cy_machine *machine, cy_quant *q) {
  const cytoc_options *o = s->o;
  cytoc_quantise how = calibration(s);
  q->caps = cy_machine_caps(machine);
  q->smallest = prefers_size(o);
  q->float8 = o->fp8;
  q->skip = o->int8_skip;
  q->limited = o->int8_max_error || o->half_max_error;
  q->table_error = table_error(&how);
}

typedef struct learning {
  session *s;
  cy_machine *machine;
  cytoc_budget *budget; /* NULL: none is given */
  const cy_pass_options *passes;
  cy_choices *given; /* of --choice or --tune; NULL: none */
  bool begun;        /* the passes have come to the one that quantises */
  cy_choices exact;  /* see take_exact */
} learning;

/* Layers that --accuracy computes without fast algorithms, beside what is chosen otherwise. */
static void take_exact(learning *l) {
  for (int i = 0; l->given && i < l->given->n; i++)
    cytoc_choices_put(&l->exact, &l->given->list[i]);
  for (int i = 0; i < l->budget->exact.n; i++)
    cytoc_choices_put(&l->exact, &l->budget->exact.list[i]);
  cy_machine_choose(l->machine, &l->exact);
}

/* What was given says which of its lines some layer has, though layers looked at the copy: its lines come first there. */
static void give_back_exact(learning *l) {
  for (int i = 0; l->exact.n && l->given && i < l->given->n; i++)
    l->given->list[i].found |= l->exact.list[i].found;
  if (l->exact.n)
    cy_machine_choose(l->machine, NULL);
  cytoc_choices_free(&l->exact);
}

/* --accuracy: finds the plan. */
static int learn_plan(learning *l, const cytoc_quantise *how) {
  session *s = l->s;
  if (!s->o->calibrate)
    cy_diag_add(s->diag, CY_WARNING, NULL,
                "--accuracy=%s goes by random inputs, which may have little in common with yours, and leaves out int8 "
                "with fixed ranges: name samples by --calibrate=DIR|FILE.npz",
                s->o->accuracy);
  cytoc_report_stage(&s->report, "accuracy");
  int status = cytoc_budget_find(how, l->budget, l->passes->quant);
  if (!status && l->budget->strict)
    cy_machine_strict_fp(l->machine);
  if (!status && l->budget->exact.n)
    take_exact(l);
  cytoc_report_stage(&s->report, "passes");
  return status;
}

static cy_graph *clone_graph(void *g) { return cy_graph_clone(g); }

/* Runs clones of the graph that is about to be quantised on samples, where that is asked for (cy_pass_options.learn). */
static int learn(void *ctx, cy_graph *g) {
  learning *l = ctx;
  session *s = l->s;
  cy_quant *q = l->passes->quant;
  cytoc_quantise how = calibration(s);
  l->begun = true;
  bool plain = is_estimated(s->o);
  if (!l->budget &&
      (plain ? l->passes->weights->bits != 0 : q->mode == CY_QUANT_DYNAMIC && !q->limited && how.min_snr <= 0))
    return 0; /* weights in blocks are most of what there is, and no business of the estimate */
  how.graph = clone_graph;
  how.ctx = g;
  how.passes = *l->passes;
  if (l->budget)
    return learn_plan(l, &how);
  cytoc_report_stage(&s->report, "calibrate");
  int status = q->mode == CY_QUANT_STATIC ? cytoc_calibrate(&how, q)
               : plain                    ? cytoc_estimate(&how, q)
                                          : cytoc_measure(&how, q);
  cytoc_report_stage(&s->report, "passes");
  return status;
}

/* Checks --calibration, --int8-max-error and --int8-min-snr. */
static int check_limits(session *s) {
  const cytoc_options *o = s->o;
  if (o->calibration && range_method_of(o->calibration) == RANGE_METHODS)
    return bad_option(s, "option '--calibration' expects minmax, percentile, entropy or mse, found '%s'",
                      o->calibration);
  if (o->int8_max_error && percent(o->int8_max_error) < 0)
    return bad_option(s, "option '--int8-max-error' expects a percentage such as 1%%, found '%s'", o->int8_max_error);
  return o->int8_min_snr && decibels(o->int8_min_snr) < 0
             ? bad_option(s, "option '--int8-min-snr' expects decibels such as 25, or off, found '%s'", o->int8_min_snr)
             : 0;
}

/* --accuracy against the others, and its budget. */
static int check_accuracy(session *s, cytoc_budget *b) {
  const cytoc_options *o = s->o;
  if (!o->accuracy)
    return o->labels ? bad_option(s, "option '--labels' belongs to '--accuracy=top1:P%%'%s", "") : 0;
  const char *other = o->int8             ? "--int8"
                      : o->fp8            ? "--fp8"
                      : o->fp16           ? "--fp16"
                      : o->bf16           ? "--bf16"
                      : o->weights        ? "--weights"
                      : o->int8_min_snr   ? "--int8-min-snr"
                      : o->int8_max_error ? "--int8-max-error"
                      : o->int8_prefer    ? "--int8-prefer"
                                          : NULL;
  if (other)
    return bad_option(s,
                      "options '--accuracy' and '%s' exclude each other: --accuracy chooses the precision of every "
                      "layer by itself; leave the other out",
                      other);
  const char *expected = cytoc_budget_parse(o->accuracy, b);
  if (expected) {
    cy_diag_add(s->diag, CY_ERROR, NULL, "option '--accuracy' expects %s; found '%s'", expected, o->accuracy);
    return -1;
  }
  bool top = b->db <= 0;
  b->labels = o->labels;
  if (!o->opt_level)
    return bad_option(s, "option '--accuracy' needs -O1 or more: at -O0 no pass changes the graph%s", "");
  if (top && (!o->labels || !o->calibrate))
    return bad_option(s, "option '--accuracy=top1' counts right answers: '%s' is missing",
                      o->labels ? "--calibrate=DIR|FILE.npz" : "--labels=FILE");
  if (!top && o->labels)
    return bad_option(s, "option '--labels' belongs to '--accuracy=top1:P%%', found '--accuracy=%s'", o->accuracy);
  return check_limits(s);
}

/* --fp8 against the others. */
static int check_fp8(session *s) {
  const cytoc_options *o = s->o;
  const char *other = o->int8 ? "--int8" : o->weights ? "--weights" : NULL;
  return o->fp8 && other
             ? bad_option(s,
                          "options '--fp8' and '%s' exclude each other: both are about the same layers; leave one out",
                          other)
             : 0;
}

/* Options about layers in 8 bits against each other; sets *out_mode when there is something to quantise. */
static int check_int8(session *s, cy_quant_mode *out_mode) {
  const cytoc_options *o = s->o;
  const char *how = eight_bits(o), *name = eight_bits_name(o);
  *out_mode = o->accuracy ? CY_QUANT_PLAN : is_static(o) ? CY_QUANT_STATIC : CY_QUANT_DYNAMIC;
  if (o->accuracy)
    return 0;
  if (!how && o->half_max_error) {
    *out_mode = CY_QUANT_HALF;
    return o->calibration || o->int8_skip || o->int8_max_error || o->int8_min_snr || o->int8_prefer
               ? bad_option(s,
                            "options '--calibration', '--int8-skip', '--int8-max-error', '--int8-min-snr' and "
                            "'--int8-prefer' belong to '--int8' or '--fp8'%s",
                            "")
               : 0;
  }
  if (!how)
    return o->calibrate || o->calibration || o->int8_skip || o->int8_max_error || o->int8_min_snr || o->int8_prefer
               ? bad_option(s,
                            "options '--calibrate', '--calibration', '--int8-skip', '--int8-max-error', "
                            "'--int8-min-snr' and '--int8-prefer' belong to '--int8' or '--fp8'%s",
                            "")
               : 0;
  if (!is_static(o) && *how && strcmp(how, "dynamic"))
    return bad_option(s,
                      o->fp8 ? "option '--fp8' expects static or dynamic, found '%s'"
                             : "option '--int8' expects static or dynamic, found '%s'",
                      how);
  if (is_static(o) && !o->calibrate)
    return bad_option(s, "option '%s=static' needs '--calibrate=DIR|FILE.npz': samples of the model's inputs", name);
  if (check_fp8(s) || check_limits(s))
    return -1;
  if (o->int8_prefer && strcmp(o->int8_prefer, "speed") && strcmp(o->int8_prefer, "size"))
    return bad_option(s, "option '--int8-prefer' expects speed or size, found '%s'", o->int8_prefer);
  if (!o->opt_level)
    return bad_option(s, "option '%s' needs -O1 or more: at -O0 no pass changes the graph", name);
  return 0;
}

/* --weights=int8|int4[,block=N][,asymmetric] */
static int parse_weights(session *s, cy_weight_options *out) {
  const char *p = s->o->weights;
  *out = (cy_weight_options){.block = 32};
  for (size_t len; p && *p; p += len + (p[len] == ',')) {
    char item[32], *end = item;
    len = strcspn(p, ",");
    snprintf(item, sizeof item, "%.*s", (int)len, p);
    if (!strncmp(item, "block=", 6))
      out->block = (int)strtol(item + 6, &end, 10);
    if (!strcmp(item, "int8") || !strcmp(item, "int4"))
      out->bits = item[3] - '0';
    else if (!strcmp(item, "asymmetric"))
      out->asymmetric = true;
    else if (end == item || *end || out->block < 0)
      return bad_option(s, "option '--weights' expects int8 or int4, block=N and asymmetric, found '%s'", item);
  }
  if (s->o->weights && !out->bits)
    return bad_option(s, "option '--weights' expects int8 or int4, found '%s'", s->o->weights);
  return s->o->weights && !s->o->opt_level ? bad_option(s, "option '--weights' needs -O1 or more%s", "") : 0;
}

/* --fp16, --bf16, --half-io against the others, and against the target. */
static int check_half(session *s) {
  const cytoc_options *o = s->o;
  if (!o->fp16 && !o->bf16)
    return o->half_io || o->half_max_error ? bad_option(s, "option '%s' belongs to '--fp16' or '--bf16'",
                                                        o->half_io ? "--half-io" : "--half-max-error")
                                           : 0;
  if (o->half_max_error && percent(o->half_max_error) < 0)
    return bad_option(s, "option '--half-max-error' expects a percentage such as 1%%, found '%s'", o->half_max_error);
  const char *name = o->fp16 ? "--fp16" : "--bf16";
  if (o->fp16 && o->bf16)
    return bad_option(s, "options '--fp16' and '--bf16' exclude each other%s", "");
  if (o->weights && o->half_max_error)
    return bad_option(
        s, "option '--half-max-error' cannot be combined with '--weights': '%s' then is for what that leaves in float",
        name);
  if (eight_bits(o) && o->half_max_error)
    return bad_option(
        s,
        o->fp8 ? "option '--half-max-error' cannot be combined with '--fp8': '%s' then is for what 8 bits leave"
               : "option '--half-max-error' cannot be combined with '--int8': '%s' then is for what integers "
                 "leave in float",
        name);
  return o->opt_level ? 0 : bad_option(s, "option '%s' needs -O1 or more: at -O0 no pass changes the graph", name);
}

static cy_dtype half_of(const cytoc_options *o) { return o->fp16 ? CY_F16 : o->bf16 ? CY_BF16 : (cy_dtype)0; }

/* 0, or -1 where the target has no use for halves. */
static int check_half_target(session *s, const cy_machine *machine) {
  const cy_target_caps *caps = cy_machine_caps(machine);
  cy_dtype half = half_of(s->o);
  if (!half || cy_caps_half_factors(caps, half, NULL, NULL, NULL) || cy_caps_half_weights(caps, half))
    return 0;
  cy_diag_add(s->diag, CY_ERROR, NULL,
              "--fp16 needs a CPU with F16C, expected x86-64-v3 or newer, found '%s'; --bf16 works on any",
              cy_machine_text(machine));
  return -1;
}

/* 0, or -1 where the target does not multiply floats of 8 bits. */
static int check_float8_target(session *s, const cy_machine *machine) {
  const cy_target_caps *caps = cy_machine_caps(machine);
  if (!s->o->fp8 || caps->float8)
    return 0;
  cy_diag_add(s->diag, CY_ERROR, NULL,
              "--fp8 needs GPUs that multiply floats of 8 bits: expected --target=sm_89, sm_90a, sm_100, sm_110, "
              "sm_120 or others "
              "from sm_89 on, found '%s'%s. Elsewhere --int8 computes in 8 bits, --fp16 and --bf16 in halves",
              cy_machine_text(machine), caps->device ? ", which has an older one among them" : "");
  return -1;
}

/* What became of the layers of --int8 or --fp8, and of the products of --weights; NULL: not asked for. */
static void report_quantised(session *s, const cy_quant *quant, const cy_quant *small) {
  if (quant) {
    cytoc_quantise how = calibration(s);
    cytoc_quantise_check(quant, s->diag);
    cytoc_whole_check(&how, quant);
  }
  if (quant && explains_layers(s->o)) {
    cytoc_quantise_table(quant, eight_bits(s->o) ? eight_bits_name(s->o) + 2 : cy_dtype_of(half_of(s->o))->name,
                         stdout);
    cytoc_whole_table(quant, stdout);
  }
  if (small)
    cytoc_weights_check(small, s->diag);
  if (small && explains_layers(s->o))
    cytoc_weights_table(small, stdout);
}

static void report_budget(session *s, const cytoc_budget *b) {
  cytoc_budget_tell(b, s->diag);
  if (explains_layers(s->o))
    cytoc_budget_table(b, stdout);
}

static cy_pass_options pass_options(const cytoc_options *o, const cy_machine *machine, cy_weight_options *weights,
                                    cy_quant *quant) {
  return (cy_pass_options){.opt_level = o->opt_level,
                           .only = o->passes,
                           .stop_after = o->stop_after,
                           .disable = o->disable,
                           .dump = o->dump,
                           .dump_dir = o->dump_dir,
                           .caps = cy_machine_caps(machine),
                           .plain_attention = o->attention && !strcmp(o->attention, "plain"),
                           .strict_fp = o->fast_algorithms && !strcmp(o->fast_algorithms, "off"),
                           .half = half_of(o),
                           .half_io = o->half_io,
                           .weights = weights,
                           .quant = quant,
                           .learn = learn,
                           .verify = o->verify};
}

static int check_library(session *s, cy_machine *machine, cy_library library, const char *option, const char *word) {
  static const char *const words[] = {
      [CY_LIBRARY_AUTO] = "auto", [CY_LIBRARY_OFF] = "off", [CY_LIBRARY_REQUIRE] = "require"};
  for (int i = 0; i < 3 && word; i++)
    if (!strcmp(word, words[i])) {
      if (cy_machine_set_library(machine, library, (cy_library_use)i))
        return 0;
      cy_diag_add(s->diag, CY_ERROR, NULL, "%s is for CUDA: '%s' has no such library; leave it out", option,
                  cy_machine_text(machine));
      return -1;
    }
  if (word)
    cy_diag_add(s->diag, CY_ERROR, NULL, "%s expects auto, off or require, found '%s'", option, word);
  return word ? -1 : 0;
}

static int check_libraries(session *s, cy_machine *machine) {
  return check_library(s, machine, CY_LIBRARY_CUDNN, "--cudnn", s->o->cudnn) ||
         check_library(s, machine, CY_LIBRARY_CUBLASLT, "--cublaslt", s->o->cublaslt);
}

static int check_fast(session *s, cy_machine *machine) {
  const char *word = s->o->fast_algorithms;
  if (!word || !strcmp(word, "auto"))
    return 0;
  if (strcmp(word, "off"))
    return bad_option(s, "option '--fast-algorithms' expects auto or off, found '%s'", word);
  if (cy_machine_strict_fp(machine))
    return 0;
  return bad_option(s,
                    "option '--fast-algorithms' is for CPUs: the kernels of '%s' have none to turn off (cuDNN has: "
                    "--cudnn=off); leave it out",
                    cy_machine_text(machine));
}

/* Tells the machine what the options say of it. */
static int set_machine(session *s, cy_machine *machine) {
  if (s->o->tf32 && !cy_machine_allow_tf32(machine))
    return bad_option(s, "--tf32 is for CUDA: '%s' multiplies f32 as it is; leave it out", cy_machine_text(machine));
  if (prefers_size(s->o))
    cy_machine_prefer_size(machine);
  return check_libraries(s, machine) || check_fast(s, machine) || check_half_target(s, machine) ||
                 check_float8_target(s, machine)
             ? -1
             : 0;
}

static int compile_for(session *s, cy_machine *machine, cy_choices *given, cy_quant_mode mode, cy_weight_options weights,
                       cytoc_budget *budget) {
  const cytoc_options *o = s->o;
  bool measured = eight_bits(o) || o->half_max_error || budget;
  weights.quantised_rows = o->int8 && mode == CY_QUANT_DYNAMIC;
  weights.keeps_given = weights.quantised_rows && weights.bits;
  cy_quant quant = {0};
  if (measured) {
    cy_quant_init(&quant, mode);
    ask_quant(s, machine, &quant);
  }
  cy_quant small = {0};
  if (weights.bits) {
    cy_quant_init(&small, CY_QUANT_DYNAMIC);
    weights.report = &small;
  }
  cy_pass_options passes = pass_options(s->o, machine, &weights, measured ? &quant : NULL);
  learning learnt = {.s = s, .machine = machine, .budget = budget, .passes = &passes, .given = given};
  passes.learn_ctx = &learnt;
  cytoc_report_stage(&s->report, "import");
  cy_graph *g = read_model(s);
  if (g)
    cytoc_report_stage(&s->report, "passes");
  int status = g ? cy_passes_run(g, &passes, &s->report.passes) : -1;
  if (!status && (o->stop_after || o->passes) && !o->emit)
    status = print_text(s, stdout, "standard output", g, NULL);
  else if (!status)
    status = emit_all(s, g, machine);
  cytoc_report_stage(&s->report, NULL);
  if (!status && budget)
    report_budget(s, budget);
  else if (!status)
    report_quantised(s, learnt.begun ? &quant : NULL, weights.report);
  cy_quant_deinit(&quant);
  cy_quant_deinit(&small);
  give_back_exact(&learnt);
  if (!status && o->stats_file)
    status = cytoc_report_write(&s->report, o->input, o->stats_file, s->diag);
  if (g)
    cy_graph_destroy(g);
  return status;
}

/* -1, for options that are wrong. */
static int blame_options(session *s) {
  cy_diag_blame(s->diag, CY_CAUSE_OPTION);
  return -1;
}

/* *out_given: those of --tune, or *file, which are those of --choice; NULL: none are. */
static int take_choices(session *s, cy_machine *machine, cy_choices *file, cy_choices **out_given) {
  *out_given = s->choices ? s->choices : s->o->choice ? file : NULL;
  if (!*out_given)
    return 0;
  if (*out_given == file && cytoc_choices_read(s->o->choice, file, s->diag))
    return -1;
  if (cy_machine_choose(machine, *out_given))
    return 0;
  cy_diag_add(s->diag, CY_ERROR, NULL, "%s is for CPUs: the kernels of '%s' have no candidates; leave it out",
              s->choices ? "--tune" : "--choice", cy_machine_text(machine));
  return blame_options(s);
}

/* Without times there is nothing to weigh errors against. */
static int check_budget_target(session *s, const cy_machine *machine) {
  if (!s->o->accuracy || !cy_machine_caps(machine)->device)
    return 0;
  cy_diag_add(
      s->diag, CY_ERROR, NULL,
      "--accuracy is for CPUs: no times are known for '%s'; there, --fp16 or --bf16 with --half-max-error=1%%, or "
      "--int8=static with --int8-min-snr=30, limit errors",
      cy_machine_text(machine));
  return blame_options(s);
}

static int compile(session *s) {
  cy_quant_mode mode;
  cy_weight_options weights;
  cytoc_budget budget;
  if (check_emit(s) || check_accuracy(s, &budget) || check_int8(s, &mode) || parse_weights(s, &weights) ||
      check_half(s))
    return blame_options(s);
  cy_machine *machine = cy_machine_open(s->o->target, s->diag);
  if (!machine)
    return blame_options(s);
  cy_choices choices = {0}, *given = NULL;
  int status = set_machine(s, machine) ? blame_options(s) : take_choices(s, machine, &choices, &given);
  if (!status)
    status = check_budget_target(s, machine) ||
                     compile_for(s, machine, given, mode, weights, s->o->accuracy ? &budget : NULL)
                 ? -1
                 : 0;
  if (!status && s->o->choice)
    cytoc_choices_check(&choices, s->o->choice, s->diag);
  cy_machine_close(machine);
  cytoc_choices_free(&choices);
  return status;
}

/* cytoc quantize */
static int quantize(session *s) {
  const cytoc_options *o = s->o;
  if (!o->output || !file_ends_with(o->output, ".onnx"))
    return bad_option(s, "cytoc quantize writes ONNX: expected -o FILE.onnx, found '%s'",
                      o->output ? o->output : "nothing");
  if (!o->calibrate)
    return bad_option(s, "cytoc quantize needs '--calibrate=DIR|FILE.npz': samples of the model's inputs%s", "");
  if (check_limits(s))
    return -1;
  qdq_job job = {.input = o->input,
                 .output = o->output,
                 .skip = o->int8_skip,
                 .import = {o->dims.items, (uint32_t)o->dims.count, o->shapes.items, (uint32_t)o->shapes.count},
                 .calibrate = calibration(s),
                 .explain = o->explain != NULL};
  return qdq_write(&job);
}

int cytoc_session_compile(cytoc_session *s) {
  s->report.verbose = s->o->verbose;
  return s->o->quantize ? quantize(s) : compile(s);
}
