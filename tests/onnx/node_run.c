/* SPDX-License-Identifier: Apache-2.0 */
/* node_run.c - runs compiled node tests and judges their results, without a process start for each.
 *
 * In:  on stdin one case a line, tab-separated: name, library, folder with input_K.pb and output_K.pb, rtol, atol, kinds
 *      of the inputs, kinds of the outputs (one letter each, t for a tensor; see list_tests.py).
 * Out: on stdout one line a case: "PASS name" or "FAIL name reason".
 *
 * Each case runs in a forked child with a time limit, so that a crash fails that case only. Tolerance is that of the
 * standard's own runner: |got - want| <= atol + rtol * |want|, for bf16 with an rtol of two units in the last place at
 * least, NaN equal to NaN; integers, bools and strings exactly.
 * The child reports through its exit code and a pipe; the runtime is used only by its public header.
 */
#include "onnx.pb-c.h"
#include "tools/values/value_file.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TIME_LIMIT_S = 60, MAX_PORTS = 64 };

typedef struct test_case {
  char *name, *library, *folder, *in_kinds, *out_kinds;
  double rtol, atol;
} test_case;

/* What f16 may be off at least, relative to the value: more than the index says where factors of products are rounded to it,
 * as tensor cores do, and references that round at other places are as far off. */
static double half_rtol;

/* In the child: the reason goes up the pipe, which is its stdout. */
static _Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
static _Noreturn void fail(const char *format, ...) {
  va_list args;
  va_start(args, format);
  vprintf(format, args);
  va_end(args);
  fflush(stdout);
  _exit(1);
}

/* ---- reading a TensorProto ---- */

typedef struct tensor {
  int32_t dtype, rank;
  int64_t dims[CYTO_MAX_RANK];
  int64_t count, bytes;
  void *data; /* dense, sub-byte elements packed; strings: cyto_string elements */
} tensor;

static uint8_t *bytes_read(const char *path, size_t *out_size) {
  FILE *f = fopen(path, "rb");
  if (!f)
    fail("cannot read %s", path);
  size_t room = 1 << 16, size = 0;
  uint8_t *bytes = malloc(room);
  for (size_t n; bytes && (n = fread(bytes + size, 1, room - size, f)) > 0;)
    if ((size += n) == room)
      bytes = realloc(bytes, room *= 2);
  fclose(f);
  if (!bytes)
    fail("no memory for %s", path);
  *out_size = size;
  return bytes;
}

/* Copies the low bytes of a repeated field of wide integers. */
static void narrow_copy(void *to, int64_t bytes, size_t width, const void *from, size_t n, size_t from_width) {
  for (size_t i = 0; i < n && (int64_t)((i + 1) * width) <= bytes; i++)
    memcpy((char *)to + i * width, (const char *)from + i * from_width, width);
}

static void strings_fill(tensor *t, const Onnx__TensorProto *p) {
  cyto_string *to = calloc((size_t)t->count + 1, sizeof *to);
  for (int64_t i = 0; to && i < t->count && (size_t)i < p->n_string_data; i++) {
    const ProtobufCBinaryData *text = &p->string_data[i];
    to[i] = (cyto_string){text->len ? strndup((const char *)text->data, text->len) : "", text->len};
  }
  t->data = to;
  t->bytes = t->count * (int64_t)sizeof *to;
}

static void data_fill(tensor *t, const Onnx__TensorProto *p) {
  t->data = aligned_alloc(64, ((size_t)t->bytes + 127) / 64 * 64);
  if (!t->data)
    fail("no memory for %" PRId64 " bytes", t->bytes);
  memset(t->data, 0, (size_t)t->bytes);
  size_t width = (size_t)(cyto_dtype_bits(t->dtype) + 7) / 8;
  if (p->has_raw_data && p->raw_data.len)
    memcpy(t->data, p->raw_data.data, p->raw_data.len < (size_t)t->bytes ? p->raw_data.len : (size_t)t->bytes);
  else if (p->n_float_data)
    memcpy(t->data, p->float_data, p->n_float_data * 4 < (size_t)t->bytes ? p->n_float_data * 4 : (size_t)t->bytes);
  else if (p->n_double_data)
    memcpy(t->data, p->double_data, p->n_double_data * 8 < (size_t)t->bytes ? p->n_double_data * 8 : (size_t)t->bytes);
  else if (p->n_int64_data)
    narrow_copy(t->data, t->bytes, width, p->int64_data, p->n_int64_data, 8);
  else if (p->n_uint64_data)
    narrow_copy(t->data, t->bytes, width, p->uint64_data, p->n_uint64_data, 8);
  else
    narrow_copy(t->data, t->bytes, width, p->int32_data, p->n_int32_data, 4);
}

static tensor tensor_read(const test_case *c, const char *what, int index) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s_%d.pb", c->folder, what, index);
  size_t size;
  uint8_t *bytes = bytes_read(path, &size);
  Onnx__TensorProto *p = onnx__tensor_proto__unpack(NULL, size, bytes);
  if (!p)
    fail("%s is no TensorProto", path);
  if (p->n_dims > CYTO_MAX_RANK)
    fail("%s has rank %zu", path, p->n_dims);
  tensor t = {.dtype = p->data_type, .rank = (int32_t)p->n_dims, .count = 1};
  for (size_t i = 0; i < p->n_dims; i++)
    t.count *= t.dims[i] = p->dims[i];
  t.bytes = t.dtype == CYTO_STRING ? 0 : cyto_tensor_bytes(t.dtype, t.rank, t.dims);
  if (t.bytes < 0)
    fail("%s has impossible dims", path);
  if (t.dtype == CYTO_STRING)
    strings_fill(&t, p);
  else
    data_fill(&t, p);
  onnx__tensor_proto__free_unpacked(p, NULL);
  free(bytes);
  return t;
}

/* ---- comparing ---- */

/* The small float formats: where the exponent starts, its bias, and how NaN and infinity are written. */
typedef enum specials { IEEE, NAN_ALL_ONES, NAN_MINUS_ZERO, NONE } specials;

static double small_float(unsigned bits, int exp_bits, int man_bits, int bias, specials kind) {
  unsigned man = bits & ((1u << man_bits) - 1), exp = bits >> man_bits & ((1u << exp_bits) - 1);
  unsigned sign = bits >> (exp_bits + man_bits) & 1, top = (1u << exp_bits) - 1;
  if (kind == NAN_MINUS_ZERO && sign && !exp && !man)
    return NAN;
  if (kind == NAN_ALL_ONES && exp == top && man == (1u << man_bits) - 1)
    return NAN;
  if (kind == IEEE && exp == top)
    return man ? NAN : sign ? -INFINITY : INFINITY;
  double v = exp ? ldexp(1.0 + ldexp(man, -man_bits), (int)exp - bias) : ldexp(man, 1 - bias - man_bits);
  return sign ? -v : v;
}

static double float_at(const tensor *t, int64_t i) {
  const uint8_t *b = t->data;
  uint16_t h;
  uint32_t w;
  float f;
  switch (t->dtype) {
  case CYTO_F32: case CYTO_C64: return ((const float *)t->data)[i];
  case CYTO_F64: case CYTO_C128: return ((const double *)t->data)[i];
  case CYTO_F16: memcpy(&h, b + 2 * i, 2); return small_float(h, 5, 10, 15, IEEE);
  case CYTO_BF16: memcpy(&h, b + 2 * i, 2); w = (uint32_t)h << 16; memcpy(&f, &w, 4); return f;
  case CYTO_F8E4M3FN: return small_float(b[i], 4, 3, 7, NAN_ALL_ONES);
  case CYTO_F8E4M3FNUZ: return small_float(b[i], 4, 3, 8, NAN_MINUS_ZERO);
  case CYTO_F8E5M2: return small_float(b[i], 5, 2, 15, IEEE);
  case CYTO_F8E5M2FNUZ: return small_float(b[i], 5, 2, 16, NAN_MINUS_ZERO);
  case CYTO_F8E8M0: return b[i] == 255 ? NAN : ldexp(1, b[i] - 127);
  case CYTO_F6E2M3: return small_float(b[i] & 63, 2, 3, 1, NONE);
  case CYTO_F6E3M2: return small_float(b[i] & 63, 3, 2, 3, NONE);
  case CYTO_F4E2M1: return small_float(b[i / 2] >> (i % 2 * 4) & 15, 2, 1, 1, NONE);
  default: return NAN;
  }
}

static int is_float(int32_t dtype) {
  switch (dtype) {
  case CYTO_F32: case CYTO_F64: case CYTO_C64: case CYTO_C128: case CYTO_F16: case CYTO_BF16: case CYTO_F8E4M3FN:
  case CYTO_F8E4M3FNUZ: case CYTO_F8E5M2: case CYTO_F8E5M2FNUZ: case CYTO_F8E8M0: case CYTO_F4E2M1:
  case CYTO_F6E2M3: case CYTO_F6E3M2: return 1;
  default: return 0;
  }
}

static long long int_at(const tensor *t, int64_t i) {
  int bits = cyto_dtype_bits(t->dtype), is_signed = t->dtype == CYTO_I8 || t->dtype == CYTO_I16 ||
      t->dtype == CYTO_I32 || t->dtype == CYTO_I64 || t->dtype == CYTO_I4 || t->dtype == CYTO_I2;
  uint64_t v = 0;
  if (bits >= 8)
    memcpy(&v, (const char *)t->data + i * (bits / 8), (size_t)bits / 8);
  else
    v = ((const uint8_t *)t->data)[i * bits / 8] >> (i * bits % 8) & ((1u << bits) - 1);
  return is_signed ? (int64_t)(v << (64 - bits)) >> (64 - bits) : (long long)v;
}

static void floats_compare(const test_case *c, int k, const tensor *got, const tensor *want) {
  int64_t count = want->count * (want->dtype == CYTO_C64 || want->dtype == CYTO_C128 ? 2 : 1);
  int64_t wrong = 0, first = 0;
  double min = want->dtype == CYTO_BF16 ? 0x1p-6 : want->dtype == CYTO_F16 ? half_rtol : 0, rtol = fmax(c->rtol, min);
  for (int64_t i = 0; i < count; i++) {
    double g = float_at(got, i), w = float_at(want, i);
    if (!(g == w || (isnan(g) && isnan(w)) || fabs(g - w) <= c->atol + rtol * fabs(w)) && wrong++ == 0)
      first = i;
  }
  if (wrong)
    fail("output %d: %" PRId64 " of %" PRId64 " elements differ, first [%" PRId64 "]: %.9g, expected %.9g", k, wrong,
         count, first, float_at(got, first), float_at(want, first));
}

static void tensors_compare(const test_case *c, int k, const tensor *got, const tensor *want) {
  if (got->dtype != want->dtype)
    fail("output %d: dtype %s, expected %s", k, cyto_dtype_name(got->dtype), cyto_dtype_name(want->dtype));
  if (got->rank != want->rank)
    fail("output %d: rank %d, expected %d", k, got->rank, want->rank);
  for (int d = 0; d < want->rank; d++)
    if (got->dims[d] != want->dims[d])
      fail("output %d: dim %d is %" PRId64 ", expected %" PRId64, k, d, got->dims[d], want->dims[d]);
  if (c->out_kinds[k] == 'r') /* random numbers */
    return;
  if (is_float(want->dtype)) {
    floats_compare(c, k, got, want);
    return;
  }
  for (int64_t i = 0; i < want->count; i++) {
    if (want->dtype == CYTO_STRING) {
      cyto_string g = ((const cyto_string *)got->data)[i], w = ((const cyto_string *)want->data)[i];
      if (g.length != w.length || memcmp(g.text, w.text, g.length) || g.text[g.length])
        fail("output %d [%" PRId64 "]: '%s', expected '%s'", k, i, g.text, w.text);
    } else if (int_at(got, i) != int_at(want, i)) {
      fail("output %d [%" PRId64 "]: %lld, expected %lld", k, i, int_at(got, i), int_at(want, i));
    }
  }
}

/* ---- values that are no tensors ---- */

static tensor tensor_of(const cyto_tensor *from) {
  tensor t = {.dtype = from->dtype, .rank = from->rank, .data = from->data, .count = 1};
  memcpy(t.dims, from->dims, sizeof t.dims);
  for (int i = 0; i < t.rank; i++)
    t.count *= t.dims[i];
  return t;
}

static void values_compare(const test_case *c, int k, const cyto_value *got, const cyto_value *want) {
  if (got->kind != want->kind || got->count != want->count)
    fail("output %d: kind %d with %" PRIu64 " items, expected kind %d with %" PRIu64, k, got->kind, got->count, want->kind,
         want->count);
  if (want->kind == CYTO_TENSOR) {
    tensor g = tensor_of(&got->tensor), w = tensor_of(&want->tensor);
    tensors_compare(c, k, &g, &w);
  }
  for (uint64_t i = 0; i < want->count; i++)
    values_compare(c, k, &got->items[i], &want->items[i]);
}

static cyto_value value_read(const test_case *c, const char *what, int index, const cyto_type *type) {
  char path[4096], why[TENSOR_ERROR_SIZE];
  cyto_value value = {0};
  if (type->kind == CYTO_TENSOR) {
    tensor t = tensor_read(c, what, index);
    value.tensor = (cyto_tensor){.data = t.data, .dtype = t.dtype, .rank = t.rank};
    memcpy(value.tensor.dims, t.dims, sizeof t.dims);
    return value;
  }
  snprintf(path, sizeof path, "%s/%s_%d.pb", c->folder, what, index);
  if (value_pb_read(path, type, &value, why))
    fail("%s", why);
  return value;
}

/* ---- one case ---- */

#define RUN(call)                                                                                                      \
  do {                                                                                                                 \
    if ((call) != CYTO_OK)                                                                                             \
      fail("%s", error.message);                                                                                       \
  } while (0)

static void case_run(const test_case *c) {
  cyto_error error = {0};
  cyto_model *model = NULL;
  cyto_context *context = NULL;
  cyto_options options = {.threads = 1};
  int n_in = (int)strlen(c->in_kinds), n_out = (int)strlen(c->out_kinds);
  cyto_value inputs[MAX_PORTS];
  cyto_port port;
  RUN(cyto_model_load(c->library, &model, &error));
  if (cyto_model_input_count(model) != n_in || cyto_model_output_count(model) != n_out || n_in > MAX_PORTS)
    fail("the library has %d inputs and %d outputs, the model %d and %d", cyto_model_input_count(model),
         cyto_model_output_count(model), n_in, n_out);
  RUN(cyto_context_create(model, &options, &context, &error));
  for (int k = 0; k < n_in; k++) {
    cyto_model_input(model, k, &port);
    inputs[k] = value_read(c, "input", k, port.type);
    RUN(cyto_bind_value(context, k, &inputs[k], &error));
  }
  RUN(cyto_run(context, &error));
  for (int k = 0; k < n_out; k++) {
    cyto_value got, want;
    RUN(cyto_output_value(context, k, &got, &error));
    cyto_model_output(model, k, &port);
    want = value_read(c, "output", k, port.type);
    values_compare(c, k, &got, &want);
  }
  cyto_context_destroy(context);
  cyto_model_unload(model);
}

/* Reads what the child says until it ends, then its fate. */
static void case_judge(const test_case *c, int from, pid_t pid) {
  char text[4096];
  size_t used = 0;
  for (ssize_t n; used < sizeof text - 1 && (n = read(from, text + used, sizeof text - 1 - used)) > 0;)
    used += (size_t)n;
  text[used] = 0;
  text[strcspn(text, "\n")] = 0;
  close(from);
  int status = 0;
  waitpid(pid, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
    printf("PASS %s\n", c->name);
  else if (WIFSIGNALED(status))
    printf("FAIL %s %s\n", c->name, WTERMSIG(status) == SIGALRM ? "no end within the time limit" :
           strsignal(WTERMSIG(status)));
  else
    printf("FAIL %s %s\n", c->name, text[0] ? text : "ended without a reason");
  fflush(stdout);
}

static void case_fork(const test_case *c) {
  int ends[2];
  fflush(stdout);
  if (pipe(ends) != 0) {
    printf("FAIL %s no pipe\n", c->name);
    return;
  }
  pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    alarm(TIME_LIMIT_S);
    case_run(c);
    _exit(0);
  }
  close(ends[1]);
  case_judge(c, ends[0], pid);
}

/* --halves: f16 may be off by two units in the last place */
int main(int argc, char **argv) {
  half_rtol = argc > 1 && !strcmp(argv[1], "--halves") ? 0x1p-9 : 0;
  char *line = NULL;
  size_t room = 0;
  for (ssize_t len; (len = getline(&line, &room, stdin)) > 0;) {
    line[strcspn(line, "\n")] = 0;
    char *fields[7] = {0}, *rest = line;
    int n = 0;
    while (n < 7 && (fields[n] = strsep(&rest, "\t")) != NULL)
      n++;
    if (n < 7) {
      fprintf(stderr, "node_run: a line needs 7 fields, this one has %d\n", n);
      return 2;
    }
    test_case c = {fields[0], fields[1], fields[2], fields[5], fields[6], atof(fields[3]), atof(fields[4])};
    case_fork(&c);
  }
  free(line);
  return 0;
}
