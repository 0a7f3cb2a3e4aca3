/* SPDX-License-Identifier: Apache-2.0 */
/* bench_inputs.c - see bench_inputs.h. */
#include "bench_inputs.h"

#include "tools/sizes.h"
#include "tools/values/value_file.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

double cy_bench_resident_kb(void) {
  long pages = 0, resident = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  if (f) {
    if (fscanf(f, "%ld %ld", &pages, &resident) != 2)
      resident = 0;
    fclose(f);
  }
  return resident * 4.0;
}

double cy_bench_peak_kb(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (double)usage.ru_maxrss;
}

int cy_bench_given_read(const cy_bench_pairs *pairs, cy_bench_given *out) {
  const struct {
    const char *option;
    options_list *list;
  } lists[] = {{"--dim", &out->dims}, {"--shape", &out->shapes}, {"--range", &out->ranges}};
  int failed = 0;
  for (int i = 0; i < pairs->n; i++) {
    if (!strcmp(pairs->option[i], "--inputs"))
      out->inputs = pairs->text[i];
    if (!strcmp(pairs->option[i], "--outputs"))
      out->outputs = pairs->text[i];
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
      if (!strcmp(pairs->option[i], lists[k].option))
        failed |= options_list_add(lists[k].list, pairs->text[i], 0);
  }
  return failed;
}

void cy_bench_given_free(cy_bench_given *g) {
  options_list_free(&g->dims);
  options_list_free(&g->shapes);
  options_list_free(&g->ranges);
}

static void shapes_add(cy_bench_shapes *s, const char *name, int32_t rank, const int64_t *dims) {
  char text[100];
  size_t n = strlen(s->text);
  snprintf(s->text + n, sizeof s->text - n, "%s%s %s", n ? ", " : "", name, sizes_text(rank, dims, text, sizeof text));
  if (!s->samples)
    s->samples = sizes_samples(rank, dims);
}

/* splitmix64: a well mixed number for each index. */
static uint64_t hash(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

static int is_float(int32_t dtype) {
  return dtype == CYTO_F32 || dtype == CYTO_F64 || dtype == CYTO_F16 || dtype == CYTO_BF16;
}

static int random_tensor(const cyto_port *port, uint64_t seed, const cy_bench_given *g, cyto_value *out) {
  host_tensor t = {.dtype = port->dtype};
  char why[TENSOR_ERROR_SIZE];
  if (port->type->kind != CYTO_TENSOR || port->dtype == CYTO_STRING || cyto_dtype_bits(port->dtype) < 8) {
    fprintf(stderr, "no random values for input '%s' of type %s; give a folder of inputs\n", port->name,
            cyto_dtype_name(port->dtype));
    return 1;
  }
  if (sizes_choose(port, &(sizes_given){&g->dims, &g->shapes, 0}, &t.rank, t.dims, why) || host_tensor_alloc(&t, why)) {
    fprintf(stderr, "%s\n", why);
    return 1;
  }
  double low = is_float(port->dtype) ? -1 : 0, high = is_float(port->dtype) ? 1 : 2;
  const char *range = options_value(&g->ranges, port->name, -1);
  if (range && sscanf(range, "%lf:%lf", &low, &high) == 2 && !is_float(port->dtype))
    high += 1;
  for (int64_t i = 0, n = host_tensor_count(&t); i < n; i++)
    host_tensor_set(&t, i, low + (high - low) * (double)(hash(seed + (uint64_t)i) >> 11) * 0x1p-53);
  host_value_take(out, &t);
  return 0;
}

/* Of the folder of inputs if it has one of this number, else random. What fails without a text in *error is printed. */
static int input_bind(cyto_context *context, int index, const cyto_port *port, uint64_t seed, const cy_bench_given *g,
                      cyto_value *out, cy_bench_shapes *out_shapes, cyto_error *error) {
  char path[PATH_MAX], why[TENSOR_ERROR_SIZE];
  if (g->inputs && value_folder_find(g->inputs, false, index, path, sizeof path)) {
    if (value_file_read(path, port, out, why)) {
      fprintf(stderr, "input '%s': %s\n", port->name, why);
      return 1;
    }
  } else if (port->is_optional) {
    return 0;
  } else if (random_tensor(port, seed, g, out)) {
    return 1;
  }
  if (out->kind == CYTO_TENSOR)
    shapes_add(out_shapes, port->name, out->tensor.rank, out->tensor.dims);
  return cyto_bind_value(context, index, out, error) != CYTO_OK;
}

int cy_bench_inputs_bind(cyto_context *context, const cyto_model *model, uint64_t seed, const cy_bench_given *g,
                         cyto_value *values, cy_bench_shapes *out_shapes, cyto_error *error) {
  cyto_port port;
  int failed = values == NULL;
  for (int i = 0; !failed && i < cyto_model_input_count(model); i++) {
    cyto_model_input(model, i, &port);
    failed = input_bind(context, i, &port, seed + (uint64_t)i, g, &values[i], out_shapes, error);
  }
  return failed;
}
