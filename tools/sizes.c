/* SPDX-License-Identifier: Apache-2.0 */
/* sizes.c - see sizes.h. */
#include "tools/sizes.h"

#include "ir/nearest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int parse_shape(const char *text, const cyto_port *port, int32_t *out_rank, int64_t *dims,
                       char error[TENSOR_ERROR_SIZE]) {
  *out_rank = 0;
  for (const char *at = text; *at;) {
    char *end;
    errno = 0;
    long long dim = strtoll(at, &end, 10);
    if (errno || end == at || dim < 0 || (*end && *end != 'x' && *end != ',') || *out_rank == CYTO_MAX_RANK)
      return tensor_fail(error, "--shape %s=%s: expected sizes such as 1x3x224x224", port->name, text);
    dims[(*out_rank)++] = dim;
    at = end + (*end != 0);
  }
  return 0;
}

/* "[batch,3,?]": as the model declares it. */
static const char *declared(const cyto_port *port, char *text, size_t room) {
  size_t n = 0;
  for (int32_t i = 0; i < port->rank && n < room; i++)
    n += port->dims[i] >= 0 ? (size_t)snprintf(text + n, room - n, "%s%lld", i ? "," : "", (long long)port->dims[i])
                            : (size_t)snprintf(text + n, room - n, "%s%s", i ? "," : "",
                                               *port->dim_names[i] ? port->dim_names[i] : "?");
  return text;
}

static int open_size(const cyto_port *port, int32_t axis, char error[TENSOR_ERROR_SIZE]) {
  char shape[200] = "";
  const char *symbol = port->dim_names[axis];
  declared(port, shape, sizeof shape);
  if (*symbol)
    return tensor_fail(error,
                       "input '%s' [%s]: the model leaves '%s' open; give --dim %s=N, --shape %s=.. or --random-dims=N",
                       port->name, shape, symbol, symbol, port->name);
  return tensor_fail(error,
                     "input '%s' [%s]: the model leaves dimension %d open; give --shape %s=.. or --random-dims=N",
                     port->name, shape, axis, port->name);
}

static int parse_dim(const char *symbol, const char *value, int64_t *out_dim, char error[TENSOR_ERROR_SIZE]) {
  char *end;
  errno = 0;
  *out_dim = strtoll(value, &end, 10);
  if (errno || end == value || *end || *out_dim < 0)
    return tensor_fail(error, "--dim '%s=%s': expected a whole number from 0", symbol, value);
  return 0;
}

int sizes_choose(const cyto_port *port, const sizes_given *given, int32_t *out_rank, int64_t *out_dims,
                 char error[TENSOR_ERROR_SIZE]) {
  const char *shape = options_value(given->shapes, port->name, -1);
  if (shape)
    return parse_shape(shape, port, out_rank, out_dims, error);
  *out_rank = port->rank;
  for (int32_t i = 0; i < port->rank; i++) {
    const char *symbol = port->dim_names[i], *value = NULL;
    out_dims[i] = port->dims[i];
    if (port->dims[i] >= 0)
      continue;
    if (*symbol)
      value = options_value(given->dims, symbol, -1);
    if (!value)
      value = options_value(given->dims, "*", -1);
    out_dims[i] = given->random_dims;
    if (value ? parse_dim(symbol, value, &out_dims[i], error) : !given->random_dims && open_size(port, i, error))
      return -1;
  }
  return 0;
}

/* "'image', 'mask'", as far as there is room. */
static void add_name(char *text, size_t room, const char *name) {
  size_t n = strlen(text);
  snprintf(text + n, room - n, "%s'%s'", n ? ", " : "", name);
}

int sizes_check_inputs(const cyto_model *model, const options_list *list, const char *option,
                       char error[TENSOR_ERROR_SIZE]) {
  for (int i = 0; i < list->count; i++) {
    char names[200] = "", near[CY_NEAREST_TEXT];
    cy_nearest n = cy_nearest_of(list->items[i], strcspn(list->items[i], "="));
    bool known = false;
    for (int32_t k = 0; k < cyto_model_input_count(model) && !known; k++) {
      cyto_port port;
      cyto_model_input(model, k, &port);
      size_t length = strlen(port.name);
      known = !strncmp(list->items[i], port.name, length) && list->items[i][length] == '=';
      cy_nearest_try(&n, port.name, length);
      add_name(names, sizeof names, port.name);
    }
    if (!known)
      return tensor_fail(error, "%s '%.100s': the model has no input of that name; it has %s%s", option, list->items[i],
                         *names ? names : "none", cy_nearest_say(&n, near));
  }
  return 0;
}

/* Is item "SYMBOL=.." of a symbol of the port? Adds its symbols to the names. */
static bool has_symbol(const cyto_port *port, const char *item, cy_nearest *n, char *names, size_t room) {
  for (int32_t i = 0; i < port->rank; i++) {
    const char *symbol = port->dim_names[i];
    if (port->dims[i] >= 0 || !*symbol)
      continue;
    size_t length = strlen(symbol);
    if (!strncmp(item, symbol, length) && item[length] == '=')
      return true;
    if (!n->best || n->best != symbol) {
      cy_nearest_try(n, symbol, length);
      if (!strstr(names, symbol))
        add_name(names, room, symbol);
    }
  }
  return false;
}

static int check_dims(const cyto_model *model, const options_list *list, char error[TENSOR_ERROR_SIZE]) {
  for (int i = 0; i < list->count; i++) {
    const char *item = list->items[i];
    char names[200] = "", near[CY_NEAREST_TEXT];
    cy_nearest n = cy_nearest_of(item, strcspn(item, "="));
    bool known = !strncmp(item, "*=", 2);
    for (int32_t k = 0; k < cyto_model_input_count(model) && !known; k++) {
      cyto_port port;
      cyto_model_input(model, k, &port);
      known = has_symbol(&port, item, &n, names, sizeof names);
    }
    if (!known)
      return tensor_fail(error, "--dim '%.100s': no input has a dimension of that name; there is %s%s", item,
                         *names ? names : "none", cy_nearest_say(&n, near));
  }
  return 0;
}

int sizes_check(const cyto_model *model, const sizes_given *given, char error[TENSOR_ERROR_SIZE]) {
  return sizes_check_inputs(model, given->shapes, "--shape", error) || check_dims(model, given->dims, error) ? -1 : 0;
}

int sizes_tuned(const char *tool, const char *path, const cyto_model *model, cyto_tuned *out,
                char error[TENSOR_ERROR_SIZE]) {
  cyto_error why;
  if (cyto_tuned_read(path, model, out, &why))
    return tensor_fail(error, "%s", why.message);
  if (out->cpus != cyto_cpu_count())
    fprintf(stderr, "%s: warning: '%s' was measured with %d CPUs, and here are %d: run cyto-tune again\n", tool, path,
            out->cpus, cyto_cpu_count());
  return 0;
}

bool sizes_take_tuned(const cyto_tuned *tuned, const sizes_given *given, char dim[SIZES_DIM]) {
  snprintf(dim, SIZES_DIM, "%s=%lld", tuned->symbol, (long long)tuned->batch);
  return tuned->batch && !given->random_dims && !options_value(given->dims, tuned->symbol, -1) &&
         !options_value(given->dims, "*", -1);
}

const char *sizes_text(int32_t rank, const int64_t *dims, char *text, size_t room) {
  size_t n = (size_t)snprintf(text, room, "%s", rank ? "" : "scalar");
  for (int32_t i = 0; i < rank && n < room; i++)
    n += (size_t)snprintf(text + n, room - n, "%s%lld", i ? "x" : "", (long long)dims[i]);
  return text;
}

int64_t sizes_samples(int32_t rank, const int64_t *dims) { return rank >= 2 && dims[0] > 0 ? dims[0] : 0; }
