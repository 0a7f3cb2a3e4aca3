/* SPDX-License-Identifier: Apache-2.0 */
/* samples.c - the inputs to calibrate with: folders of tensor files, .npz archives, or random numbers.
 *
 * In:  a path and the model that will run on it. Out: samples by number, each a set of tensors that fits the model's
 * inputs; how files are named is said in calibrate.h. Everything is checked against the model before it runs: a file
 * that fits no input, an input without a file, other ranks, dims and element types are errors that name the file and
 * the input.
 *
 * Archives are read by npz.c; their arrays hold all samples of an input, which are cut apart here.
 */
#define _GNU_SOURCE
#include "calibrate.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct sample_set {
  const cyto_model *model;
  int32_t ninputs;
  int64_t open_size; /* of random samples: along axes that are not fixed */
  char *path;
  char **names; /* folder: of each sample's file or folder, relative to path */
  int count;
  bool each_is_file;
  host_tensor *stacked; /* .npz: by input */
  int64_t *pieces;      /* .npz: rows along the first axis of one sample; 0: the first axis goes */
  uint64_t random;      /* random: seed, 0 otherwise */
  char label[64];
} sample_set;

/* Folders of test cases hold what is expected, too: out_0_NAME.npy, output_0.pb. */
static bool is_input_file(const char *name) {
  return (file_ends_with(name, ".npy") || file_ends_with(name, ".pb")) && strncmp(name, "out_", 4) &&
         strncmp(name, "output_", 7);
}

static cyto_port port_of(const sample_set *s, int32_t k) {
  cyto_port p = {.name = ""};
  cyto_model_input(s->model, k, &p);
  return p;
}

/* ---- checking --------------------------------------------------------------------------------------------------- */

static void dims_text(int32_t rank, const int64_t *dims, char *out, size_t size) {
  size_t used = (size_t)snprintf(out, size, "[");
  for (int32_t i = 0; i < rank && used < size; i++)
    used += (size_t)(dims[i] < 0 ? snprintf(out + used, size - used, "%s?", i ? "," : "")
                                 : snprintf(out + used, size - used, "%s%lld", i ? "," : "", (long long)dims[i]));
  if (used < size)
    snprintf(out + used, size - used, "]");
}

/* The first element that is neither a number nor finite: its index; -1: there is none. */
static int64_t not_finite(const host_tensor *t) {
  bool floats = t->dtype == CYTO_F32 || t->dtype == CYTO_F64 || t->dtype == CYTO_F16 || t->dtype == CYTO_BF16;
  int64_t n = floats ? host_tensor_count(t) : 0;
  for (int64_t i = 0; i < n; i++)
    if (!isfinite(t->dtype == CYTO_F32 ? (double)((const float *)t->data)[i] : host_tensor_get(t, i)))
      return i;
  return -1;
}

/* Ranges and errors of values that are not finite are none. `where` says which array of the file, or is empty. */
static int check_finite(const char *file, const char *where, const cyto_port *port, const host_tensor *t,
                        char error[TENSOR_ERROR_SIZE]) {
  int64_t i = not_finite(t);
  if (i < 0)
    return 0;
  double v = host_tensor_get(t, i);
  return tensor_fail(error, "'%s'%s: input '%s' has %s at element %lld: samples must be finite%s", file, where,
                     port->name,
                     isnan(v) ? "NaN"
                     : v > 0  ? "infinity"
                              : "-infinity",
                     (long long)i, isnan(v) ? "" : "; in masks, a large number such as 1e4 does the same");
}

static int check(const char *file, const cyto_port *port, const host_tensor *t, char error[TENSOR_ERROR_SIZE]) {
  bool fits = t->rank == port->rank;
  for (int32_t i = 0; fits && i < t->rank; i++)
    fits = port->dims[i] < 0 || port->dims[i] == t->dims[i];
  if (fits && t->dtype == port->dtype)
    return 0;
  char want[128], have[128];
  dims_text(port->rank, port->dims, want, sizeof want);
  dims_text(t->rank, t->dims, have, sizeof have);
  return tensor_fail(error, "'%s': input '%s' expects %s%s, found %s%s", file, port->name, cyto_dtype_name(port->dtype),
                     want, cyto_dtype_name(t->dtype), have);
}

static int read_file(const char *path, const cyto_port *port, host_tensor *out, char error[TENSOR_ERROR_SIZE]) {
  int status = file_ends_with(path, ".pb") ? tensor_pb_read(path, out, error) : npy_read(path, out, error);
  if (!status)
    status = host_tensor_adapt(out, port->dtype, error);
  if (!status)
    status = check(path, port, out, error);
  return status ? status : check_finite(path, "", port, out, error);
}

/* ---- folders ---------------------------------------------------------------------------------------------------- */

static int by_version(const void *a, const void *b) {
  return strverscmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names in folder `path` that are folders (or tensor files), sorted. -1: it can't be read. */
static int list_folder(const char *path, bool folders, char ***out_names) {
  DIR *dir = opendir(path);
  int n = 0;
  *out_names = NULL;
  if (!dir)
    return -1;
  for (struct dirent *e; (e = readdir(dir));) {
    char full[PATH_MAX];
    struct stat st;
    if (e->d_name[0] == '.' || snprintf(full, sizeof full, "%s/%s", path, e->d_name) >= PATH_MAX || stat(full, &st) ||
        (folders ? !S_ISDIR(st.st_mode) : !S_ISREG(st.st_mode) || !is_input_file(e->d_name)))
      continue;
    char **grown = realloc(*out_names, sizeof **out_names * (size_t)(n + 1));
    if (!grown)
      break;
    *out_names = grown;
    (*out_names)[n++] = strdup(e->d_name);
  }
  closedir(dir);
  if (n)
    qsort(*out_names, (size_t)n, sizeof **out_names, by_version);
  return n;
}

static void free_names(char **names, int n) {
  for (int i = 0; i < n; i++)
    free(names[i]);
  free(names);
}

/* Is `file`, without its ending, a name for input k? */
static bool names_input(const char *file, int32_t k, const char *name) {
  char stem[NAME_MAX + 1], safe[NAME_MAX + 1], numbered[32], plain[32];
  snprintf(stem, sizeof stem, "%s", file);
  *strrchr(stem, '.') = 0;
  file_name_of(name, safe, sizeof safe);
  snprintf(numbered, sizeof numbered, "in_%d_", k);
  snprintf(plain, sizeof plain, "input_%d", k);
  return !strcmp(stem, safe) || !strcmp(stem, plain) || !strncmp(stem, numbered, strlen(numbered));
}

static int32_t input_named(const sample_set *s, const char *file) {
  for (int32_t k = 0; k < s->ninputs; k++)
    if (names_input(file, k, port_of(s, k).name))
      return k;
  return -1;
}

/* One sample from the files of a folder: all of them must be for an input, all inputs that need one must have one. */
static int read_folder(const sample_set *s, const char *folder, host_tensor *out, char error[TENSOR_ERROR_SIZE]) {
  char **files, path[PATH_MAX];
  int n = list_folder(folder, false, &files), status = 0;
  for (int i = 0; i < n && !status; i++) {
    int32_t k = input_named(s, files[i]);
    if (k < 0) {
      status = tensor_fail(error, "'%s/%s': the model has no input of that name; expected e.g. '%s.npy' or in_0_*.npy",
                           folder, files[i], s->ninputs ? port_of(s, 0).name : "");
      break;
    }
    cyto_port port = port_of(s, k);
    if (out[k].data)
      status = tensor_fail(error, "'%s/%s': a second file for input '%s'", folder, files[i], port.name);
    else if (snprintf(path, sizeof path, "%s/%s", folder, files[i]) < PATH_MAX)
      status = read_file(path, &port, &out[k], error);
  }
  free_names(files, n < 0 ? 0 : n);
  for (int32_t k = 0; k < s->ninputs && !status; k++)
    if (!out[k].data && !port_of(s, k).is_optional)
      status = tensor_fail(error, "'%s': no file for input '%s'; expected '%s.npy' or in_%d_*.npy", folder,
                           port_of(s, k).name, port_of(s, k).name, k);
  return status;
}

static int open_folder(sample_set *s, char error[TENSOR_ERROR_SIZE]) {
  s->count = list_folder(s->path, true, &s->names);
  if (s->count < 0)
    return tensor_fail(error, "'%s': cannot read the folder: %s", s->path, strerror(errno));
  if (s->count)
    return 0;
  char **files;
  int n = list_folder(s->path, false, &files);
  if (n <= 0)
    return tensor_fail(error, "'%s': the folder has no .npy or .pb files and no folders with such", s->path);
  if (s->ninputs == 1 && (n > 1 || input_named(s, files[0]) < 0)) {
    s->names = files;
    s->count = n;
    s->each_is_file = true;
    return 0;
  }
  free_names(files, n);
  s->names = calloc(1, sizeof *s->names);
  s->count = s->names && (s->names[0] = strdup(".")) ? 1 : 0;
  return 0;
}

/* ---- .npz ------------------------------------------------------------------------------------------------------- */

/* How many rows of a stacked tensor are one sample of the input: 0 if it has one axis more. -1: it does not fit. */
static int64_t piece_of(const cyto_port *port, const host_tensor *t) {
  if (t->rank == port->rank + 1)
    return 0;
  if (t->rank != port->rank || !t->rank)
    return -1;
  int64_t rows = port->dims[0] > 0 ? port->dims[0] : 1;
  return t->dims[0] % rows ? -1 : rows;
}

/* Sets the dims of one sample of input k, and where its data is. */
static host_tensor slice_of(const sample_set *s, int32_t k, int i) {
  const host_tensor *all = &s->stacked[k];
  host_tensor t = *all;
  int64_t rows = s->pieces[k], each = rows ? rows : 1;
  if (rows)
    t.dims[0] = rows;
  else
    memmove(t.dims, t.dims + 1, sizeof t.dims[0] * (size_t)--t.rank);
  t.bytes = all->dims[0] ? all->bytes / (size_t)all->dims[0] * (size_t)each : 0;
  t.data = (char *)all->data + t.bytes * (size_t)i;
  return t;
}

static int take_array(void *ctx, const char *entry, uint8_t *bytes, size_t size, char error[TENSOR_ERROR_SIZE]) {
  sample_set *s = ctx;
  char stem[NAME_MAX + 1];
  snprintf(stem, sizeof stem, "%s", entry);
  if (file_ends_with(stem, ".npy"))
    stem[strlen(stem) - 4] = 0;
  int32_t k = 0;
  for (char plain[24], in[24]; k < s->ninputs; k++) {
    snprintf(plain, sizeof plain, "arr_%d", k);
    snprintf(in, sizeof in, "in_%d", k);
    if (!strcmp(stem, port_of(s, k).name) || !strcmp(stem, plain) || !strcmp(stem, in))
      break;
  }
  if (k == s->ninputs)
    return tensor_fail(error, "'%s': the model has no input for array '%s'; expected e.g. '%s'", s->path, stem,
                       s->ninputs ? port_of(s, 0).name : "");
  cyto_port port = port_of(s, k);
  host_tensor_free(&s->stacked[k]);
  if (npy_parse(entry, bytes, size, &s->stacked[k], error) || host_tensor_adapt(&s->stacked[k], port.dtype, error))
    return -1;
  s->pieces[k] = piece_of(&port, &s->stacked[k]);
  if (s->pieces[k] < 0 || s->stacked[k].dims[0] == 0)
    return tensor_fail(error,
                       "'%s': array '%s' of rank %d does not stack samples of input '%s': expected rank %d or %d",
                       s->path, stem, s->stacked[k].rank, port.name, port.rank, port.rank + 1);
  host_tensor one = slice_of(s, k, 0);
  int64_t n = s->stacked[k].dims[0] / (s->pieces[k] ? s->pieces[k] : 1);
  if (s->count && n != s->count)
    return tensor_fail(error, "'%s': array '%s' has %lld samples, another one %d", s->path, stem, (long long)n,
                       s->count);
  if (n > INT_MAX)
    return tensor_fail(error, "'%s': array '%s' has too many samples", s->path, stem);
  s->count = (int)n;
  char where[NAME_MAX + 16];
  snprintf(where, sizeof where, ", array '%s'", stem);
  return check(s->path, &port, &one, error) || check_finite(s->path, where, &port, &s->stacked[k], error) ? -1 : 0;
}

static int open_npz(sample_set *s, char error[TENSOR_ERROR_SIZE]) {
  s->stacked = calloc((size_t)s->ninputs + 1, sizeof *s->stacked);
  s->pieces = calloc((size_t)s->ninputs + 1, sizeof *s->pieces);
  if (!s->stacked || !s->pieces)
    return tensor_fail(error, "no memory");
  if (npz_each(s->path, take_array, s, error))
    return -1;
  for (int32_t k = 0; k < s->ninputs; k++)
    if (!s->stacked[k].data && !port_of(s, k).is_optional)
      return tensor_fail(error, "'%s': no array for input '%s'", s->path, port_of(s, k).name);
  return 0;
}

/* ---- the set ---------------------------------------------------------------------------------------------------- */

static sample_set *new_set(const cyto_model *model, int32_t ninputs, const char *path) {
  sample_set *s = calloc(1, sizeof *s);
  if (s)
    *s = (sample_set){.model = model, .ninputs = ninputs, .path = strdup(path)};
  return s;
}

sample_set *samples_open(const char *path, const cyto_model *model, int32_t ninputs, char error[TENSOR_ERROR_SIZE]) {
  sample_set *s = new_set(model, ninputs, path);
  struct stat st;
  int status = -1;
  if (!s)
    tensor_fail(error, "no memory");
  else if (stat(path, &st))
    tensor_fail(error, "'%s': %s", path, strerror(errno));
  else
    status = S_ISDIR(st.st_mode) ? open_folder(s, error) : open_npz(s, error);
  if (!status && !s->count)
    status = tensor_fail(error, "'%s': no samples", path);
  if (status) {
    samples_close(s);
    return NULL;
  }
  return s;
}

sample_set *samples_random(const cyto_model *model, int32_t ninputs, int n, int64_t size,
                           char error[TENSOR_ERROR_SIZE]) {
  sample_set *s = new_set(model, ninputs, "random numbers");
  if (!s)
    tensor_fail(error, "no memory");
  else {
    s->count = n;
    s->random = 1;
    s->open_size = size;
  }
  return s;
}

void samples_close(sample_set *s) {
  if (!s)
    return;
  free_names(s->names, s->names ? s->count : 0);
  for (int32_t k = 0; s->stacked && k < s->ninputs; k++)
    host_tensor_free(&s->stacked[k]);
  free(s->stacked);
  free(s->pieces);
  free(s->path);
  free(s);
}

int samples_count(const sample_set *s) { return s->count; }

const char *samples_name(const sample_set *s, int i) {
  sample_set *labelled = (sample_set *)s;
  if (s->names && !strcmp(s->names[i], "."))
    return s->path;
  if (s->names)
    return s->names[i];
  snprintf(labelled->label, sizeof labelled->label, "sample %d", i);
  return s->label;
}

static int random_sample(const sample_set *s, int i, host_tensor *out, char error[TENSOR_ERROR_SIZE]) {
  for (int32_t k = 0; k < s->ninputs; k++) {
    cyto_port port = port_of(s, k);
    uint64_t state = s->random + (uint64_t)i * 1000003u + (uint64_t)k;
    if (port.is_optional)
      continue;
    out[k] = (host_tensor){.dtype = port.dtype, .rank = port.rank};
    for (int32_t a = 0; a < port.rank; a++)
      out[k].dims[a] = port.dims[a] >= 0 ? port.dims[a] : a || port.rank == 1 ? s->open_size : 1;
    if (host_tensor_alloc(&out[k], error))
      return -1;
    host_tensor_randomize(&out[k], &state);
  }
  return 0;
}

int samples_read(sample_set *s, int i, host_tensor *out, char error[TENSOR_ERROR_SIZE]) {
  char path[PATH_MAX];
  memset(out, 0, sizeof *out * (size_t)s->ninputs);
  if (s->random)
    return random_sample(s, i, out, error);
  for (int32_t k = 0; s->stacked && k < s->ninputs; k++) {
    if (!s->stacked[k].data)
      continue;
    host_tensor from = slice_of(s, k, i);
    out[k] = from;
    if (host_tensor_alloc(&out[k], error))
      return -1;
    memcpy(out[k].data, from.data, from.bytes);
  }
  if (s->stacked)
    return 0;
  if (snprintf(path, sizeof path, "%s/%s", s->path, s->names[i]) >= PATH_MAX)
    return tensor_fail(error, "'%s': the path is too long", s->path);
  if (!s->each_is_file)
    return read_folder(s, path, out, error);
  cyto_port port = port_of(s, 0);
  return read_file(path, &port, &out[0], error);
}
