/* SPDX-License-Identifier: Apache-2.0 */
/* run_json.c - see run_json.h. The form:
 *
 *   {"model": .., "target": .., "compiler": .., "ran_on": .., "inputs": [{"name", "dtype", "shape"}..], "outputs": [..],
 *    "first_ms": .., "runs": N, "min_ms": .., "mean_ms" .., "samples": .., "samples_per_second": ..,
 *    "memory": [{"name", "in_use", "peak"}..], "resident_bytes": .., "resident_growth": bytes,
 *    "kernels": [{"step", "node", "ops", "algorithm", "kernel", "runs", "us", "flops", "bytes", "first_us", "floor_us": of one core,
 *                 "floor_of": sizes that it is for, "floor_fits": whether these were run}..]}
 *
 * Statistics are of the runs behind the first one, and stand there only if there were any; kernels only with --profile.
 */
#include "run_json.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

/* Names of models may be any bytes; JSON has text only. */
static json_t *text_json(const char *text) {
  json_t *string = json_string(text);
  return string ? string : json_string("?");
}

static json_t *tensor_json(const char *name, int32_t dtype, int32_t rank, const int64_t *dims) {
  json_t *shape = json_array();
  for (int32_t i = 0; i < rank; i++)
    json_array_append_new(shape, json_integer(dims[i]));
  return json_pack("{s:o, s:s, s:o}", "name", text_json(name), "dtype", cyto_dtype_name(dtype), "shape", shape);
}

static json_t *ports_json(const run_report *r, bool outputs) {
  json_t *list = json_array();
  int32_t n = outputs ? cyto_model_output_count(r->model) : cyto_model_input_count(r->model);
  for (int32_t i = 0; i < n; i++) {
    cyto_port port;
    cyto_value value = {0};
    cyto_error error;
    if (outputs ? cyto_model_output(r->model, i, &port) || cyto_output_value(r->context, i, &value, &error)
                : cyto_model_input(r->model, i, &port))
      continue;
    if (!outputs)
      value = r->inputs[i];
    if (value.kind == CYTO_TENSOR && value.tensor.dtype)
      json_array_append_new(list, tensor_json(port.name, port.dtype, value.tensor.rank, value.tensor.dims));
    else
      json_array_append_new(list, json_pack("{s:o}", "name", text_json(port.name)));
  }
  return list;
}

static json_t *kernels_json(const profile *p) {
  json_t *list = json_array();
  for (int64_t i = 0; i < p->n; i++) {
    cyto_trace_sums step;
    int64_t runs, ns;
    profile_step(p, i, &step, &runs, &ns);
    if (!runs)
      continue;
    json_t *kernel =
        json_pack("{s:I, s:o, s:s, s:s, s:s, s:I, s:f, s:f, s:f}", "step", (json_int_t)step.position, "node",
                  text_json(step.node), "ops", step.ops, "algorithm", step.algorithm, "kernel", step.kernel, "runs",
                  (json_int_t)runs, "us", (double)ns / (double)runs / 1e3, "flops", step.flops, "bytes", step.bytes);
    if (step.floor_ns > 0)
      json_object_set_new(kernel, "floor_us", json_real(step.floor_ns / 1e3));
    json_object_set_new(kernel, "floor_of", text_json(step.assumed));
    json_object_set_new(kernel, "floor_fits", json_boolean(!step.other_sizes));
    if (step.first_runs)
      json_object_set_new(kernel, "first_us", json_real((double)step.first_ns / (double)step.first_runs / 1e3));
    json_array_append_new(list, kernel);
  }
  return list;
}

static json_t *memory_json(const cyto_context *context) {
  cyto_memory_use uses[CYTO_MEMORY_USES];
  json_t *list = json_array();
  int32_t n = cyto_memory_snapshot(context, uses, CYTO_MEMORY_USES);
  for (int32_t i = 0; i < n && i < CYTO_MEMORY_USES; i++)
    json_array_append_new(list, json_pack("{s:s, s:I, s:I}", "name", uses[i].name, "in_use", (json_int_t)uses[i].in_use,
                                          "peak", (json_int_t)uses[i].peak));
  return list;
}

static json_t *report_json(const run_report *r) {
  char where[1000];
  cyto_context_describe(r->context, where, sizeof where);
  const statistics *s = &r->times->again;
  json_t *all =
      json_pack("{s:o, s:s, s:s, s:s, s:o, s:o, s:f, s:I, s:f}", "model", text_json(cyto_model_name(r->model)),
                "target", cyto_model_target(r->model), "compiler", cyto_model_compiler(r->model), "ran_on", where,
                "inputs", ports_json(r, false), "outputs", ports_json(r, true), "first_ms", r->times->first_ms, "runs",
                (json_int_t)s->runs, "samples", r->times->samples);
  if (s->runs) {
#define X(name) json_object_set_new(all, #name "_ms", json_real(s->name));
    STATISTICS_FIELDS(X)
#undef X
    json_object_set_new(all, "samples_per_second", json_real(r->times->samples * 1e3 / s->mean));
  }
  if (s->runs && r->times->growth.after >= 0) {
    json_object_set_new(all, "resident_bytes", json_integer(r->times->growth.after));
    json_object_set_new(all, "resident_growth", json_integer(resident_grown(&r->times->growth)));
  }
  json_object_set_new(all, "memory", memory_json(r->context));
  if (r->launches)
    json_object_set_new(all, "kernels", kernels_json(r->launches));
  return all;
}

int run_json_write(const char *path, const run_report *report, char error[TENSOR_ERROR_SIZE]) {
  bool to_stdout = !strcmp(path, "-");
  FILE *out = to_stdout ? stdout : fopen(path, "w");
  json_t *all = out ? report_json(report) : NULL;
  int failed = !all || json_dumpf(all, out, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) || fputc('\n', out) < 0;
  int why = errno;
  json_decref(all);
  if (out && (to_stdout ? fflush(out) : fclose(out))) {
    why = errno;
    failed = 1;
  }
  if (failed)
    snprintf(error, TENSOR_ERROR_SIZE, "cannot write '%s': %s", path, strerror(why));
  return failed ? -1 : 0;
}
