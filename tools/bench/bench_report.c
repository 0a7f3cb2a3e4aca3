/* SPDX-License-Identifier: Apache-2.0 */
/* bench_report.c - writes what cyto-bench measured: a table as text or Markdown, JSON, CSV, a section of RESULTS.md.
 *
 * In:  results grouped by model, batch and threads, in the order of measuring.
 * Out: files and lines. Ratios are the contender's median time over the compiled model's: above 1, compiled is faster.
 *
 * The table has the median of the processes' medians; JSON and CSV also have every process.
 */
#include "bench.h"

#include "ir/clock.h"
#include "revision.h"
#include "version.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const contender_names[CY_BENCH_N_CONTENDERS] = {
    "compiled -O3", "eager -O0", "ONNX Runtime", "OpenVINO", "PyTorch eager", "torch.compile", "PyTorch graphed"};

const char *cy_bench_contender_name(cy_bench_contender c) { return contender_names[c]; }

typedef struct field {
  const char *name;
  size_t offset;
} field;

static const field fields[] = {
#define X(name) {#name, offsetof(cy_bench_sample, name)},
    CY_BENCH_SAMPLE_FIELDS(X)
#undef X
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static double *field_of(cy_bench_sample *s, int f) { return (double *)((char *)s + fields[f].offset); }

cy_bench_sample cy_bench_median(const cy_bench_result *result) {
  cy_bench_sample out = {0};
  for (int f = 0; f < N_FIELDS && result->n_samples; f++) {
    double values[CY_BENCH_MAX_PROCESSES];
    for (int i = 0; i < result->n_samples; i++) {
      cy_bench_sample s = result->samples[i];
      values[i] = *field_of(&s, f);
    }
    cy_numbers_sort(values, (size_t)result->n_samples);
    *field_of(&out, f) = values[result->n_samples / 2];
  }
  return out;
}

/* The compiled model's result of the same model, batch and threads. */
static const cy_bench_result *base_of(const cy_bench_result *results, int n, const cy_bench_result *r) {
  for (int i = 0; i < n; i++)
    if (results[i].contender == CY_BENCH_COMPILED && results[i].batch == r->batch && results[i].threads == r->threads &&
        !strcmp(results[i].model, r->model) && results[i].options == r->options && results[i].n_samples)
      return &results[i];
  return NULL;
}

static double ratio_of(const cy_bench_result *results, int n, const cy_bench_result *r) {
  const cy_bench_result *base = base_of(results, n, r);
  return base && r->n_samples ? cy_bench_median(r).median_ms / cy_bench_median(base).median_ms : 0;
}

/* Columns of the table behind `contender`; Markdown has those that RESULTS.md compares. */
static const struct {
  const char *name;
  int width;
  bool in_markdown;
} columns[] = {{"median ms", 10, true}, {"min ms", 10, true},  {"ratio", 7, true},    {"mean ms", 10, false},
               {"stddev", 8, false},    {"p95 ms", 10, false}, {"p99 ms", 10, false}, {"samples/s", 10, false},
               {"load ms", 8, true},    {"first ms", 8, true}, {"peak MB", 8, true},  {"size KB", 9, true}};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

static double per_second(const cy_bench_result *r, const cy_bench_sample *s) {
  return s->mean_ms > 0 ? (r->per_run > 0 ? r->per_run : 1) * 1e3 / s->mean_ms : 0;
}

static void write_cells(FILE *out, const cy_bench_result *r, double ratio, bool as_markdown) {
  cy_bench_sample s = cy_bench_median(r);
  char cells[N_COLUMNS][24];
  const double numbers[N_COLUMNS] = {
      s.median_ms, s.min_ms,          ratio,     s.mean_ms,  s.deviation_ms,   s.p95_ms,
      s.p99_ms,    per_second(r, &s), s.load_ms, s.first_ms, s.peak_kb / 1024, r->size_kb};
  static const char *const formats[N_COLUMNS] = {"%.4f", "%.4f", "%.2fx", "%.4f", "%.4f", "%.4f",
                                                 "%.4f", "%.1f", "%.2f",  "%.2f", "%.1f", "%.0f"};
  for (int c = 0; c < N_COLUMNS; c++) {
    bool known = c == 2 ? ratio > 0 : c < 2 || c > 7 || s.mean_ms > 0;
    snprintf(cells[c], sizeof cells[c], known ? formats[c] : "-", numbers[c]);
    if (!as_markdown || columns[c].in_markdown)
      fprintf(out, "%s%*s", as_markdown ? " | " : "  ", columns[c].width, cells[c]);
  }
}

void cy_bench_write_table(FILE *out, const cy_bench_result *results, int n, int as_markdown) {
  const char *bar = as_markdown ? "| " : "", *end = as_markdown ? " |" : "", *sep = as_markdown ? " | " : "  ";
  fprintf(out, "%s%-24s%s%5s%s%7s%s%-15s", bar, "model", sep, "batch", sep, "threads", sep, "contender");
  int shown = 0;
  for (int c = 0; c < N_COLUMNS; c++)
    if (!as_markdown || columns[c].in_markdown) {
      fprintf(out, "%s%*s", sep, columns[c].width, columns[c].name);
      shown++;
    }
  fprintf(out, "%s\n", end);
  for (int c = 0; as_markdown && c < 4 + shown; c++)
    fprintf(out, "|---%s", c + 1 == 4 + shown ? "|\n" : "");
  for (int i = 0; i < n; i++) {
    const cy_bench_result *r = &results[i];
    char batch[16];
    snprintf(batch, sizeof batch, "%d", r->batch);
    fprintf(out, "%s%-24s%s%5s%s%7d%s%-15s", bar, r->model, sep, r->batch ? batch : "-", sep, r->threads, sep,
            contender_names[r->contender]);
    if (r->n_samples)
      write_cells(out, r, ratio_of(results, n, r), as_markdown);
    else
      fprintf(out, "%s%s%s", sep, r->failure, as_markdown ? " | | | | | |" : "");
    fprintf(out, "%s\n", end);
  }
}

void cy_bench_write_shapes(FILE *out, const cy_bench_result *results, int n) {
  for (int i = 0; i < n; i++) {
    const cy_bench_result *r = &results[i], *before = i ? r - 1 : NULL;
    bool same = before && !strcmp(before->model, r->model) && before->batch == r->batch && *before->shapes;
    if (*r->shapes && !same)
      fprintf(out, "%s: %s\n", r->model, r->shapes);
  }
}

static json_t *sample_json(cy_bench_sample s) {
  json_t *object = json_object();
  for (int f = 0; f < N_FIELDS; f++)
    if (*field_of(&s, f) >= 0)
      json_object_set_new(object, fields[f].name, json_real(*field_of(&s, f)));
  return object;
}

void cy_bench_cpu(char *out, size_t room) {
  char line[512], name[256] = "unknown CPU";
  int count = 0;
  FILE *f = fopen("/proc/cpuinfo", "r");
  while (f && fgets(line, sizeof line, f)) {
    if (!strncmp(line, "model name", 10) && strchr(line, ':')) {
      snprintf(name, sizeof name, "%.250s", strchr(line, ':') + 2);
      name[strcspn(name, "\n")] = 0;
      count++;
    }
  }
  if (f)
    fclose(f);
  snprintf(out, room, "%s, %d CPUs", name, count);
}

/* Where and by what it was measured. */
static json_t *about_json(const cy_bench_result *results, int n, const char *command) {
  char cpu[300], date[64];
  time_t now = time(NULL);
  cy_bench_cpu(cpu, sizeof cpu);
  strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
  json_t *about = json_pack("{s:s, s:s, s:s, s:s, s:s}", "version", CYTO_VERSION, "sources", CYTOC_REVISION, "cpu", cpu,
                            "date", date, "command", command);
  if (n && results[0].device)
    json_object_set_new(about, "device", json_string(results[0].device));
  return about;
}

static json_t *row_json(const cy_bench_result *results, int n, const cy_bench_result *r) {
  json_t *row = json_pack("{s:s, s:i, s:i, s:s, s:f, s:f}", "model", r->model, "batch", r->batch, "threads", r->threads,
                          "contender", contender_names[r->contender], "size_kb", r->size_kb, "compile_s", r->compile_s);
  if (r->options)
    json_object_set_new(row, "options", json_string(r->options));
  if (r->device)
    json_object_set_new(row, "device", json_string(r->device));
  if (*r->shapes) {
    json_object_set_new(row, "shapes", json_string(r->shapes));
    json_object_set_new(row, "samples", json_real(r->per_run));
  }
  json_t *processes = json_array();
  for (int k = 0; k < r->n_samples; k++)
    json_array_append_new(processes, sample_json(r->samples[k]));
  json_object_set_new(row, "processes", processes);
  if (!r->n_samples) {
    json_object_set_new(row, "failure", json_string(r->failure));
    return row;
  }
  cy_bench_sample median = cy_bench_median(r);
  json_object_set_new(row, "median", sample_json(median));
  if (median.mean_ms > 0)
    json_object_set_new(row, "samples_per_second", json_real(per_second(r, &median)));
  if (r->post_ms >= 0)
    json_object_set_new(row, "post_ms", json_real(r->post_ms));
  if (ratio_of(results, n, r) > 0)
    json_object_set_new(row, "ratio", json_real(ratio_of(results, n, r)));
  return row;
}

int cy_bench_write_json(const char *path, const cy_bench_result *results, int n, const char *command) {
  json_t *rows = json_array(), *file = json_object();
  for (int i = 0; i < n; i++)
    json_array_append_new(rows, row_json(results, n, &results[i]));
  json_object_set_new(file, "about", about_json(results, n, command));
  json_object_set_new(file, "results", rows);
  errno = 0;
  int failed = json_dump_file(file, path, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) != 0;
  json_decref(file);
  if (failed)
    fprintf(stderr, "cyto-bench: error: cannot write '%s': %s\n", path, strerror(errno));
  return failed;
}

static FILE *file_open(const char *path, const char *mode) {
  FILE *f = fopen(path, mode);
  if (!f)
    fprintf(stderr, "cyto-bench: error: cannot write '%s': %s\n", path, strerror(errno));
  return f;
}

int cy_bench_write_csv(const char *path, const cy_bench_result *results, int n) {
  FILE *out = file_open(path, "w");
  if (!out)
    return 1;
  fprintf(out, "model,batch,threads,contender,process,size_kb,compile_s");
  for (int f = 0; f < N_FIELDS; f++)
    fprintf(out, ",%s", fields[f].name);
  fprintf(out, "\n");
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < results[i].n_samples; k++) {
      cy_bench_sample s = results[i].samples[k];
      fprintf(out, "%s,%d,%d,%s,%d,%.0f,%.3f", results[i].model, results[i].batch, results[i].threads,
              contender_names[results[i].contender], k, results[i].size_kb, results[i].compile_s);
      for (int f = 0; f < N_FIELDS; f++)
        fprintf(out, ",%.6g", *field_of(&s, f));
      fprintf(out, "\n");
    }
  }
  return fclose(out) != 0;
}

int cy_bench_append_results(const char *path, const cy_bench_result *results, int n, const char *command) {
  char cpu[300], date[64];
  time_t now = time(NULL);
  FILE *out = file_open(path, "a");
  if (!out)
    return 1;
  cy_bench_cpu(cpu, sizeof cpu);
  strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", gmtime(&now));
  fprintf(out, "\n## %s\n\n%s%s%s. `%s`\n\n", date, n && results[0].device ? results[0].device : "",
          n && results[0].device ? "; " : "", cpu, command);
  fprintf(out, "Medians of %d processes each, contenders interleaved; ratio: time over that of compiled -O3.\n\n",
          n ? results[0].n_samples : 0);
  cy_bench_write_shapes(out, results, n);
  fputc('\n', out);
  cy_bench_write_table(out, results, n, 1);
  return fclose(out) != 0;
}
