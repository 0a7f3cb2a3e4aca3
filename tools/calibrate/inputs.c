/* SPDX-License-Identifier: Apache-2.0 */
/* inputs.c - the samples that `cytoc verify` and cyto-compare run models on: see inputs.h.
 *
 * In:  folders of files, an archive, or a seed; the model that takes them. Out: values for its inputs.
 *
 * Random samples must be ones that the model can take. Floats are uniform in [-1, 1); integers that index something lie within
 * it, as the caller knows; masks are mostly ones; sizes that are open are small, others for each sample, the
 * same for the same symbol, and sums of symbols where they are called so. What the model does not say is tried: an attempt
 * that the reference refuses is followed by one with other sizes and other integers.
 */
#define _GNU_SOURCE
#include "inputs.h"

#include "calibrate.h"
#include "tools/sizes.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { MAX_SYMBOLS = 64 };

void input_sample_free(input_sample *s) {
  for (int32_t k = 0; k < s->n; k++)
    host_value_free(&s->inputs[k]);
  free(s->inputs);
  free(s->label);
  free(s->folder);
  *s = (input_sample){0};
}

void input_samples_free(input_samples *s) {
  for (int i = 0; i < s->n; i++)
    input_sample_free(&s->list[i]);
  free(s->list);
  *s = (input_samples){0};
}

static int no_memory(char error[TENSOR_ERROR_SIZE]) { return tensor_fail(error, "no memory for samples"); }

static int sample_new(const cyto_model *model, const char *label, input_sample *out, char error[TENSOR_ERROR_SIZE]) {
  *out = (input_sample){.label = strdup(label)};
  out->inputs = calloc((size_t)cyto_model_input_count(model) + 1, sizeof *out->inputs);
  out->n = out->inputs ? cyto_model_input_count(model) : 0;
  return out->label && out->inputs ? 0 : no_memory(error);
}

/* NULL with a text. */
static input_sample *sample_add(input_samples *list, const cyto_model *model, const char *label,
                                char error[TENSOR_ERROR_SIZE]) {
  input_sample *grown = realloc(list->list, sizeof *list->list * (size_t)(list->n + 1));
  if (!grown)
    return no_memory(error), NULL;
  list->list = grown;
  return sample_new(model, label, &list->list[list->n++], error) ? NULL : &list->list[list->n - 1];
}

static cyto_port input_of(const cyto_model *model, int32_t k) {
  cyto_port port = {.name = ""};
  cyto_model_input(model, k, &port);
  return port;
}

const char *input_shapes_text(const cyto_model *model, const input_sample *s, char *text, size_t room) {
  size_t n = 0;
  *text = 0;
  for (int32_t k = 0; k < s->n && n < room; k++) {
    const cyto_tensor *t = &s->inputs[k].tensor;
    char sizes[100];
    if (s->inputs[k].kind == CYTO_TENSOR && t->dtype)
      n += (size_t)snprintf(text + n, room - n, "%s%s %s", n ? ", " : "", input_of(model, k).name,
                            sizes_text(t->rank, t->dims, sizes, sizeof sizes));
  }
  return text;
}

/* ---- of files --------------------------------------------------------------------------------------------------- */

/* Does the folder have values by number? */
static bool is_numbered(const char *folder, int32_t ninputs) {
  char path[PATH_MAX];
  for (int32_t k = 0; k < ninputs; k++)
    if (value_folder_find(folder, false, k, path, sizeof path))
      return true;
  return !ninputs && value_folder_find(folder, true, 0, path, sizeof path);
}

static int read_numbered(const char *folder, const cyto_model *model, input_samples *out,
                         char error[TENSOR_ERROR_SIZE]) {
  input_sample *s = sample_add(out, model, folder, error);
  char path[PATH_MAX], why[TENSOR_ERROR_SIZE];
  if (!s || !(s->folder = strdup(folder)))
    return s ? no_memory(error) : -1;
  for (int32_t k = 0; k < s->n; k++) {
    cyto_port port = input_of(model, k);
    if (!value_folder_find(folder, false, k, path, sizeof path)) {
      if (port.is_optional)
        continue;
      return tensor_fail(error,
                         "'%.200s' has no file for input '%.100s': expected in_%d_*.npy, .json or .pb, or input_%d.pb",
                         folder, port.name, k, k);
    }
    if (value_file_read(path, &port, &s->inputs[k], why))
      return tensor_fail(error, "input '%.100s': %.400s", port.name, why);
  }
  return 0;
}

static int by_version(const struct dirent **a, const struct dirent **b) {
  return strverscmp((*a)->d_name, (*b)->d_name);
}

static int is_shown(const struct dirent *e) { return e->d_name[0] != '.'; }

/* Folders in the folder that are samples. */
static int read_folders(const char *path, const cyto_model *model, input_samples *out, char error[TENSOR_ERROR_SIZE]) {
  struct dirent **entries = NULL;
  int n = scandir(path, &entries, is_shown, by_version), status = 0;
  for (int i = 0; i < n; i++) {
    char folder[PATH_MAX];
    if (!status && snprintf(folder, sizeof folder, "%s/%s", path, entries[i]->d_name) < (int)sizeof folder &&
        is_numbered(folder, cyto_model_input_count(model)))
      status = read_numbered(folder, model, out, error);
    free(entries[i]);
  }
  free(entries);
  return status;
}

/* What calibration takes, too: an archive, files called after inputs. */
static int read_set(const char *path, const cyto_model *model, input_samples *out, char error[TENSOR_ERROR_SIZE]) {
  int32_t n = cyto_model_input_count(model);
  sample_set *set = samples_open(path, model, n, error);
  host_tensor *tensors = calloc((size_t)n + 1, sizeof *tensors);
  int status = set && tensors ? 0 : -1;
  for (int i = 0; !status && i < samples_count(set); i++) {
    input_sample *s = sample_add(out, model, samples_name(set, i), error);
    memset(tensors, 0, sizeof *tensors * (size_t)n);
    status = s ? samples_read(set, i, tensors, error) : -1;
    for (int32_t k = 0; k < n; k++)
      if (tensors[k].data && !status)
        host_value_take(&s->inputs[k], &tensors[k]);
      else
        host_tensor_free(&tensors[k]);
  }
  free(tensors);
  samples_close(set);
  return status;
}

int input_samples_read(const char *path, const cyto_model *model, input_samples *out, char error[TENSOR_ERROR_SIZE]) {
  struct stat st;
  if (stat(path, &st))
    return tensor_fail(error, "'%s': %s", path, strerror(errno));
  if (S_ISDIR(st.st_mode) && is_numbered(path, cyto_model_input_count(model)))
    return read_numbered(path, model, out, error);
  int status = S_ISDIR(st.st_mode) ? read_folders(path, model, out, error) : 0;
  return status || out->n ? status : read_set(path, model, out, error);
}

/* ---- sizes ------------------------------------------------------------------------------------------------------ */

bool inputs_have_open_sizes(const cyto_model *model) {
  for (int32_t k = 0; k < cyto_model_input_count(model); k++) {
    cyto_port port = input_of(model, k);
    for (int32_t i = 0; port.type->kind == CYTO_TENSOR && i < port.rank; i++)
      if (port.dims[i] < 0)
        return true;
  }
  return false;
}

typedef struct symbols {
  struct {
    const char *name;
    int64_t size;
  } of[MAX_SYMBOLS];
  int n;
} symbols;

static int64_t find_symbol(const symbols *s, const char *name, size_t length) {
  for (int i = 0; i < s->n; i++)
    if (strlen(s->of[i].name) == length && !strncasecmp(s->of[i].name, name, length))
      return s->of[i].size;
  return -1;
}

/* "past+seq", "length + 1": the sum, when all of it is known. -1: not, or it is no sum. */
static int64_t sum_of(const symbols *s, const char *name) {
  int64_t sum = 0;
  if (!strchr(name, '+'))
    return -1;
  for (const char *at = name; *at;) {
    at += strspn(at, " +");
    size_t length = strcspn(at, "+"), used = length;
    while (used && at[used - 1] == ' ')
      used--;
    int64_t part = isdigit((unsigned char)*at) ? atoll(at) : find_symbol(s, at, used);
    if (part < 0)
      return -1;
    sum += part;
    at += length;
  }
  return sum;
}

static bool has(const char *name, const char *part) { return strcasestr(name, part) != NULL; }

/* "total_sequence_length" is the past one and the one that comes. */
static int64_t total_of(const symbols *s, const char *name) {
  int64_t past = -1, now = -1;
  if (!has(name, "total"))
    return -1;
  for (int i = 0; i < s->n; i++) {
    if (has(s->of[i].name, "past"))
      past = s->of[i].size;
    else if (has(s->of[i].name, "seq"))
      now = s->of[i].size;
  }
  return past >= 0 && now >= 0 ? past + now : -1;
}

/* Sizes to try: the first ones are small, feature maps want multiples of 32 as a rule. */
static int64_t size_for(const char *name, int32_t axis, int32_t rank, int sample, int attempt) {
  static const int64_t batches[] = {1, 2, 3}, rows[] = {16, 7, 32, 13, 64, 512, 16000, 1},
                       maps[] = {64, 96, 128, 224, 256, 320, 32, 48};
  bool batch = has(name, "batch") && !has(name, "seq") && !has(name, "len");
  if (batch || !strcmp(name, "N") || axis == 0)
    return attempt < 6 ? batches[sample % 3] : 1; /* some models have one sample in fact */
  return rank >= 4 && axis >= 2 ? maps[(sample + attempt) % 8] : rows[(sample + attempt) % 8];
}

/* Symbols of all inputs; sums of them in the second round. */
static void choose_symbols(const cyto_model *model, int sample, int attempt, symbols *out) {
  for (int round = 0; round < 2; round++)
    for (int32_t k = 0; k < cyto_model_input_count(model); k++) {
      cyto_port port = input_of(model, k);
      for (int32_t i = 0; port.type->kind == CYTO_TENSOR && i < port.rank; i++) {
        const char *name = port.dim_names[i];
        bool sum = strchr(name, '+') || has(name, "total");
        if (port.dims[i] >= 0 || !*name || sum != (round == 1) || out->n == MAX_SYMBOLS ||
            find_symbol(out, name, strlen(name)) >= 0)
          continue;
        int64_t size = sum_of(out, name);
        size = size >= 0 ? size : total_of(out, name);
        out->of[out->n].name = name;
        out->of[out->n++].size = size >= 0 ? size : size_for(name, i, port.rank, sample, attempt);
      }
    }
}

/* ---- random values ---------------------------------------------------------------------------------------------- */

static bool is_wide_int(int32_t dtype) {
  return dtype == CYTO_I64 || dtype == CYTO_I32 || dtype == CYTO_U64 || dtype == CYTO_U32 || dtype == CYTO_I16 ||
         dtype == CYTO_U16;
}

enum { INT_WAYS = 3 }; /* of integers that nothing is known of: 0 and 1; 1; 0 */

static int64_t bound_of(const inputs_wanted *o, const char *name) { return o->bound ? o->bound(o->ctx, name) : 0; }

static bool has_unknown_ints(const inputs_wanted *o, const cyto_model *model) {
  for (int32_t k = 0; k < cyto_model_input_count(model); k++) {
    cyto_port port = input_of(model, k);
    if (port.type->kind == CYTO_TENSOR && is_wide_int(port.dtype) && !bound_of(o, port.name))
      return true;
  }
  return false;
}

int inputs_attempts(const inputs_wanted *o, const cyto_model *model) {
  return (has_unknown_ints(o, model) ? INT_WAYS : 1) * (inputs_have_open_sizes(model) ? 8 : 1);
}

static uint64_t next(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}

/* Uniform in [low, high], of floats in [low, high). */
static void fill(host_tensor *t, uint64_t *state, double low, double high) {
  bool real = t->dtype == CYTO_F32 || t->dtype == CYTO_F64 || t->dtype == CYTO_F16 || t->dtype == CYTO_BF16;
  double width = real ? high - low : high - low + 1;
  for (int64_t i = 0, n = host_tensor_count(t); i < n; i++)
    host_tensor_set(t, i, low + width * (double)(next(state) >> 11) * 0x1p-53);
}

/* Mostly ones, and always the first. */
static void fill_mask(host_tensor *t, uint64_t *state) {
  int64_t n = host_tensor_count(t), row = t->rank && t->dims[t->rank - 1] ? t->dims[t->rank - 1] : 1;
  for (int64_t i = 0; i < n; i++)
    host_tensor_set(t, i, next(state) % 8 != 0 || i % row == 0);
}

static int fill_by_kind(const inputs_wanted *o, const cyto_port *port, int way, host_tensor *t, uint64_t *state,
                        char error[TENSOR_ERROR_SIZE]) {
  const char *range = options_value(o->ranges, port->name, -1);
  double low, high;
  char rest;
  if (range && (sscanf(range, "%lf:%lf%c", &low, &high, &rest) != 2 || !(low <= high)))
    return tensor_fail(error, "option '--range' expects INPUT=LO:HI, found '%.100s=%.100s'", port->name, range);
  int64_t bound = bound_of(o, port->name);
  if (range)
    fill(t, state, low, high);
  else if (!is_wide_int(port->dtype))
    host_tensor_randomize(t, state);
  else if (bound)
    fill(t, state, 0, (double)(bound < (1 << 15) || t->dtype != CYTO_I16 ? bound - 1 : (1 << 15) - 1));
  else if (!way && has(port->name, "mask"))
    fill_mask(t, state);
  else
    fill(t, state, way == 1, way != 2);
  return 0;
}

/* The sizes of input k: those that are fixed, and for others what its symbols got. */
static void choose_sizes(const cyto_port *port, const symbols *all, int sample, int attempt, host_tensor *t) {
  t->rank = port->rank;
  for (int32_t i = 0; i < port->rank; i++) {
    int64_t size = find_symbol(all, port->dim_names[i], strlen(port->dim_names[i]));
    t->dims[i] = port->dims[i] >= 0 ? port->dims[i] : size >= 0 ? size : size_for("", i, port->rank, sample, attempt);
  }
}

int input_sample_random(const inputs_wanted *o, const cyto_model *model, int i, int attempt, input_sample *out,
                        char error[TENSOR_ERROR_SIZE]) {
  char label[40];
  symbols all = {0};
  int ways = has_unknown_ints(o, model) ? INT_WAYS : 1;
  snprintf(label, sizeof label, "random sample %d", i);
  if (sample_new(model, label, out, error))
    return -1;
  choose_symbols(model, i, attempt / ways, &all);
  for (int32_t k = 0; k < out->n; k++) {
    cyto_port port = input_of(model, k);
    host_tensor t = {.dtype = port.dtype};
    uint64_t state = (uint64_t)o->seed * 0x2545f4914f6cdd1dull + (uint64_t)i * 1000003u + (uint64_t)k;
    if (port.is_optional)
      continue;
    if (port.type->kind != CYTO_TENSOR || port.dtype == CYTO_STRING)
      return tensor_fail(error, "input '%s': only tensors of numbers can be random; give --inputs=DIR", port.name);
    choose_sizes(&port, &all, i, attempt / ways, &t);
    if (host_tensor_alloc(&t, error))
      return -1;
    int status = fill_by_kind(o, &port, attempt % ways, &t, &state, error);
    host_value_take(&out->inputs[k], &t);
    if (status)
      return -1;
  }
  return 0;
}
