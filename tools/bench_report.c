/* bench_report.c - writes what cyto-bench measured: a table as text or Markdown, JSON, CSV, a section of RESULTS.md.
 *
 * In:  results grouped by model, batch and threads, in the order of measuring.
 * Out: files and lines. Ratios are the contender's median time over the compiled model's: above 1, compiled is faster.
 *
 * The table has the median of the processes' medians; JSON and CSV also have every process.
 */
#include "tools/bench.h"

#include "ir/clock.h"

#include <errno.h>
#include <jansson.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const contender_names[CY_BENCH_N_CONTENDERS] = {
    "compiled -O3", "eager -O0", "ONNX Runtime", "OpenVINO", "PyTorch eager", "torch.compile", "PyTorch graphed"};

/* name, offset: the numbers of a sample */
#define SAMPLE_FIELDS(X) X(load_ms) X(first_ms) X(median_ms) X(min_ms) X(runs) X(peak_kb)

typedef struct field {
  const char *name;
  size_t offset;
} field;

static const field fields[] = {
#define X(name) {#name, offsetof(cy_bench_sample, name)},
    SAMPLE_FIELDS(X)
#undef X
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static double *field_of(cy_bench_sample *s, int f) {
  return (double *)((char *)s + fields[f].offset);
}

/* The median process of a result, field by field. */
static cy_bench_sample median_sample(const cy_bench_result *result) {
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
        !strcmp(results[i].model, r->model) && results[i].n_samples)
      return &results[i];
  return NULL;
}

static double ratio_of(const cy_bench_result *results, int n, const cy_bench_result *r) {
  const cy_bench_result *base = base_of(results, n, r);
  return base && r->n_samples ? median_sample(r).median_ms / median_sample(base).median_ms : 0;
}

void cy_bench_write_table(FILE *out, const cy_bench_result *results, int n, int as_markdown) {
  const char *bar = as_markdown ? "| " : "";
  const char *end = as_markdown ? " |" : "";
  const char *sep = as_markdown ? " | " : "  ";
  fprintf(out, "%s%-24s%s%5s%s%7s%s%-15s%s%10s%s%10s%s%7s%s%8s%s%8s%s%8s%s%9s%s\n", bar, "model", sep, "batch", sep,
          "threads", sep, "contender", sep, "median ms", sep, "min ms", sep, "ratio", sep, "load ms", sep, "first ms",
          sep, "peak MB", sep, "size KB", end);
  if (as_markdown)
    fprintf(out, "|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (int i = 0; i < n; i++) {
    const cy_bench_result *r = &results[i];
    char batch[16];
    snprintf(batch, sizeof batch, "%d", r->batch);
    fprintf(out, "%s%-24s%s%5s%s%7d%s%-15s%s", bar, r->model, sep, r->batch ? batch : "-", sep, r->threads, sep,
            contender_names[r->contender], sep);
    if (!r->n_samples) {
      fprintf(out, "%s%s%s\n", r->failure, as_markdown ? " | | | | | |" : "", end);
      continue;
    }
    cy_bench_sample s = median_sample(r);
    fprintf(out, "%10.4f%s%10.4f%s%6.2fx%s%8.2f%s%8.2f%s%8.1f%s%9.0f%s\n", s.median_ms, sep, s.min_ms, sep,
            ratio_of(results, n, r), sep, s.load_ms, sep, s.first_ms, sep, s.peak_kb / 1024, sep, r->size_kb, end);
  }
}

static json_t *sample_json(cy_bench_sample s) {
  json_t *object = json_object();
  for (int f = 0; f < N_FIELDS; f++)
    json_object_set_new(object, fields[f].name, json_real(*field_of(&s, f)));
  return object;
}

int cy_bench_write_json(const char *path, const cy_bench_result *results, int n) {
  json_t *rows = json_array();
  for (int i = 0; i < n; i++) {
    const cy_bench_result *r = &results[i];
    json_t *row =
        json_pack("{s:s, s:i, s:i, s:s, s:f, s:f}", "model", r->model, "batch", r->batch, "threads", r->threads,
                  "contender", contender_names[r->contender], "size_kb", r->size_kb, "compile_s", r->compile_s);
    if (r->device)
      json_object_set_new(row, "device", json_string(r->device));
    json_t *processes = json_array();
    for (int k = 0; k < r->n_samples; k++)
      json_array_append_new(processes, sample_json(r->samples[k]));
    json_object_set_new(row, "processes", processes);
    if (r->n_samples) {
      json_object_set_new(row, "median", sample_json(median_sample(r)));
      json_object_set_new(row, "ratio", json_real(ratio_of(results, n, r)));
    } else {
      json_object_set_new(row, "failure", json_string(r->failure));
    }
    json_array_append_new(rows, row);
  }
  int failed = json_dump_file(rows, path, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) != 0;
  json_decref(rows);
  if (failed)
    fprintf(stderr, "cyto-bench: cannot write '%s'\n", path);
  return failed;
}

static FILE *file_open(const char *path, const char *mode) {
  FILE *f = fopen(path, mode);
  if (!f)
    fprintf(stderr, "cyto-bench: cannot write '%s': %s\n", path, strerror(errno));
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

/* The processor's name and how many of it there are. */
static void cpu_describe(char *out, size_t room) {
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

int cy_bench_append_results(const char *path, const cy_bench_result *results, int n, const char *command) {
  char cpu[300], date[64];
  time_t now = time(NULL);
  FILE *out = file_open(path, "a");
  if (!out)
    return 1;
  cpu_describe(cpu, sizeof cpu);
  strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", gmtime(&now));
  fprintf(out, "\n## %s\n\n%s%s%s. `%s`\n\n", date, n && results[0].device ? results[0].device : "",
          n && results[0].device ? "; " : "", cpu, command);
  fprintf(out, "Medians of %d processes each, contenders interleaved; ratio: time over that of compiled -O3.\n\n",
          n ? results[0].n_samples : 0);
  cy_bench_write_table(out, results, n, 1);
  return fclose(out) != 0;
}
