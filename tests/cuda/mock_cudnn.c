/* mock_cudnn.c - a libcudnn.so.9 without a GPU: checks descriptors as cuDNN documents them, and computes by plain
 * loops.
 *
 * A descriptor keeps its attributes as they were set. Every type's attributes, their types and counts are rows of a
 * table; finishing checks that what is required is there, that what it refers to is finished, and that shapes follow
 * from each other. A plan evaluates its graph backwards, element by element, from the tensor that is not virtual. Five
 * engines differ in their notes and in the time they take on the mock driver's clock. Whatever is wrong fails with the
 * code of a bad parameter, and mock_cudnn()->fault says why.
 */
#define _GNU_SOURCE
#include "tests/cuda/mock_cudnn.h"
#include "runtime/half.h"
#include "tests/cuda/mock_cuda.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, BAD = 2000, UNSUPPORTED = 3000 };

/* ---- the table of attributes ---- */

enum {
  POINTWISE = 0,
  CONVOLUTION = 1,
  ENGINE = 2,
  CONFIG = 3,
  HEURISTICS = 4,
  PLAN = 5,
  OP_CONV = 10,
  OP_POINTWISE = 13,
  GRAPH = 15,
  PACK = 16,
  TENSOR = 17
};
enum {
  HANDLE = 0,
  DATA_TYPE = 1,
  BOOLEAN = 2,
  INT64 = 3,
  FLOAT = 4,
  POINTER = 6,
  CONV_MODE = 7,
  HEUR_MODE = 8,
  NOTE = 11,
  PW_MODE = 14,
  DESCRIPTOR = 15
};

static const struct attribute {
  int of, name, type, least, most, refers; /* least 0: optional; refers: type of the descriptors, -1: any operation */
} attributes[] = {
    {POINTWISE, 0, PW_MODE, 1, 1, 0},
    {POINTWISE, 1, DATA_TYPE, 1, 1, 0},
    {CONVOLUTION, 100, DATA_TYPE, 1, 1, 0},
    {CONVOLUTION, 101, CONV_MODE, 1, 1, 0},
    {CONVOLUTION, 102, INT64, 1, 6, 0},
    {CONVOLUTION, 103, INT64, 1, 6, 0},
    {CONVOLUTION, 104, INT64, 1, 6, 0},
    {CONVOLUTION, 105, INT64, 1, 6, 0},
    {CONVOLUTION, 106, INT64, 1, 1, 0},
    {HEURISTICS, 200, HEUR_MODE, 1, 1, 0},
    {HEURISTICS, 201, DESCRIPTOR, 1, 1, GRAPH},
    {CONFIG, 300, DESCRIPTOR, 1, 1, ENGINE},
    {PLAN, 400, HANDLE, 1, 1, 0},
    {PLAN, 401, DESCRIPTOR, 1, 1, CONFIG},
    {OP_CONV, 700, FLOAT, 1, 1, 0},
    {OP_CONV, 701, FLOAT, 1, 1, 0},
    {OP_CONV, 702, DESCRIPTOR, 1, 1, CONVOLUTION},
    {OP_CONV, 703, DESCRIPTOR, 1, 1, TENSOR},
    {OP_CONV, 704, DESCRIPTOR, 1, 1, TENSOR},
    {OP_CONV, 705, DESCRIPTOR, 1, 1, TENSOR},
    {OP_POINTWISE, 750, DESCRIPTOR, 1, 1, POINTWISE},
    {OP_POINTWISE, 751, DESCRIPTOR, 1, 1, TENSOR},
    {OP_POINTWISE, 752, DESCRIPTOR, 0, 1, TENSOR},
    {OP_POINTWISE, 753, DESCRIPTOR, 1, 1, TENSOR},
    {GRAPH, 800, HANDLE, 1, 1, 0},
    {GRAPH, 801, DESCRIPTOR, 1, 20, -1},
    {PACK, 1000, INT64, 1, 20, 0},
    {PACK, 1001, POINTER, 1, 20, 0},
    {PACK, 1003, POINTER, 1, 1, 0},
    {TENSOR, 900, INT64, 1, 1, 0},
    {TENSOR, 901, DATA_TYPE, 1, 1, 0},
    {TENSOR, 902, INT64, 3, 8, 0},
    {TENSOR, 903, INT64, 3, 8, 0},
    {TENSOR, 906, INT64, 1, 1, 0},
    {TENSOR, 907, BOOLEAN, 0, 1, 0},
};
enum { ATTRIBUTES = sizeof attributes / sizeof *attributes };

static const size_t size_of[] = {
    [HANDLE] = 8,    [DATA_TYPE] = 4, [BOOLEAN] = 1, [INT64] = 8,   [FLOAT] = 4,     [POINTER] = 8,
    [CONV_MODE] = 4, [HEUR_MODE] = 4, [NOTE] = 4,    [PW_MODE] = 4, [DESCRIPTOR] = 8};

typedef struct descriptor {
  int type, finished, engine; /* engine: of engines and what comes of them */
  int64_t count[ATTRIBUTES];
  union {
    int64_t i[20];
    int32_t e[40];
    uint8_t b[160];
    float f[40];
    void *p[20];
  } value[ATTRIBUTES];
} descriptor;

static mock_cudnn_state mock = {.version = 91900, .cudart = 13000, .engine_us = {5, 4, 6, 3, 7}, .workspace = 1000};
/* tensor cores, not the same at every run, none, sums of less precision, inputs made smaller; -1: none */
static const int notes[MOCK_ENGINES] = {0, 4, -1, 2, 1};

mock_cudnn_state *mock_cudnn(void) { return &mock; }

static int fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int fail(int code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(mock.fault, sizeof mock.fault, format, args);
  va_end(args);
  return code;
}

static int row_of(int type, int name) {
  for (int i = 0; i < ATTRIBUTES; i++)
    if (attributes[i].of == type && attributes[i].name == name)
      return i;
  return -1;
}

/* An attribute that must be there. */
static const int64_t *ints(const descriptor *d, int name) { return d->value[row_of(d->type, name)].i; }
static int count(const descriptor *d, int name) { return (int)d->count[row_of(d->type, name)]; }
static int word(const descriptor *d, int name) { return d->value[row_of(d->type, name)].e[0]; }
static descriptor *ref(const descriptor *d, int name, int i) { return d->value[row_of(d->type, name)].p[i]; }

/* ---- library, handles ---- */

size_t cudnnGetVersion(void) { return mock.version; }
size_t cudnnGetCudartVersion(void) { return mock.cudart; }

const char *cudnnGetErrorString(int code) {
  return code == BAD        ? "CUDNN_STATUS_BAD_PARAM"
         : code / 1000 == 3 ? "CUDNN_STATUS_NOT_SUPPORTED"
                            : "CUDNN_STATUS_OTHER";
}

void cudnnGetLastErrorString(char *text, size_t capacity) { snprintf(text, capacity, "%s", mock.fault); }

typedef struct handle {
  void *stream;
} handle;

int cudnnCreate(void **out) {
  if (mock.create_code)
    return fail(mock.create_code, "the test wants it");
  *out = calloc(1, sizeof(handle));
  mock.handles++;
  return OK;
}

int cudnnDestroy(void *h) {
  free(h);
  mock.handles--;
  return OK;
}

int cudnnSetStream(void *h, void *stream) {
  ((handle *)h)->stream = stream;
  return OK;
}

/* ---- descriptors ---- */

int cudnnBackendCreateDescriptor(int type, void **out) {
  descriptor *d = calloc(1, sizeof *d);
  d->type = type;
  *out = d;
  mock.descriptors++;
  return OK;
}

int cudnnBackendDestroyDescriptor(void *d) {
  free(d);
  mock.descriptors--;
  return OK;
}

int cudnnBackendSetAttribute(void *where, int name, int type, int64_t n, const void *values) {
  descriptor *d = where;
  int row = row_of(d->type, name);
  const struct attribute *a = &attributes[row];
  if (d->finished)
    return fail(BAD, "attribute %d is set after the descriptor was finished", name);
  if (row < 0)
    return fail(BAD, "descriptors of type %d have no attribute %d", d->type, name);
  if (type != a->type || n < 1 || n > a->most || !values)
    return fail(BAD, "attribute %d: type %d, %lld elements", name, type, (long long)n);
  d->count[row] = n;
  memcpy(&d->value[row], values, size_of[type] * (size_t)n);
  for (int i = 0; i < n && type == DESCRIPTOR; i++) {
    const descriptor *to = ref(d, name, i);
    int fits = to && (a->refers < 0 ? to->type == OP_CONV || to->type == OP_POINTWISE : to->type == a->refers);
    if (!fits || !to->finished)
      return fail(BAD, "attribute %d refers to a descriptor of the wrong type, or to one that is not finished", name);
  }
  return OK;
}

/* ---- finishing ---- */

static int finish_tensor(const descriptor *d) {
  const int64_t *dims = ints(d, 902), *strides = ints(d, 903), alignment = ints(d, 900)[0];
  int type = word(d, 901);
  if (count(d, 902) != count(d, 903))
    return fail(BAD, "a tensor has %d dims and %d strides", count(d, 902), count(d, 903));
  for (int i = 0; i < count(d, 902); i++)
    if (dims[i] < 1 || strides[i] < 1)
      return fail(BAD, "a tensor's dim %d is %lld, its stride %lld", i, (long long)dims[i], (long long)strides[i]);
  if (alignment < 1 || (alignment & (alignment - 1)) || (type != 0 && type != 2 && type != 9))
    return fail(BAD, "a tensor of type %d, aligned to %lld", type, (long long)alignment);
  return OK;
}

static int finish_convolution(const descriptor *d) {
  for (int name = 102; name <= 105; name++)
    if (count(d, name) != ints(d, 106)[0])
      return fail(BAD, "attribute %d has %d elements for %lld axes", name, count(d, name), (long long)ints(d, 106)[0]);
  return word(d, 101) == 1 && word(d, 100) == 0 ? OK : fail(BAD, "mode %d, precision %d", word(d, 101), word(d, 100));
}

static int finish_op_conv(const descriptor *d) {
  const descriptor *c = ref(d, 702, 0), *w = ref(d, 703, 0), *x = ref(d, 704, 0), *y = ref(d, 705, 0);
  const int64_t *xd = ints(x, 902), *wd = ints(w, 902), *yd = ints(y, 902);
  int rank = (int)ints(c, 106)[0];
  if (count(x, 902) != rank + 2 || count(w, 902) != rank + 2 || count(y, 902) != rank + 2)
    return fail(BAD, "a convolution of %d axes has tensors of another rank", rank);
  if (xd[0] != yd[0] || wd[0] != yd[1] || xd[1] % wd[1] || wd[0] % (xd[1] / wd[1]))
    return fail(BAD, "a convolution's images, channels or groups do not fit");
  for (int i = 0; i < rank; i++) {
    int64_t reach = (wd[2 + i] - 1) * ints(c, 102)[i] + 1, padded = xd[2 + i] + ints(c, 105)[i] + ints(c, 104)[i];
    if (ints(c, 105)[i] < 0 || ints(c, 104)[i] < 0 || (padded - reach) / ints(c, 103)[i] + 1 != yd[2 + i])
      return fail(BAD, "a convolution's axis %d: %lld cannot become %lld", i, (long long)xd[2 + i],
                  (long long)yd[2 + i]);
  }
  return OK;
}

static int finish_op_pointwise(const descriptor *d) {
  const descriptor *x = ref(d, 751, 0), *b = ref(d, 752, 0), *y = ref(d, 753, 0);
  int mode = word(ref(d, 750, 0), 0), rank = count(y, 902);
  if ((mode != 0 && mode != 100) || (mode == 0) != (b != NULL))
    return fail(BAD, "a pointwise operation of mode %d %s a second operand", mode, b ? "with" : "without");
  for (int i = 0; i < rank; i++) {
    int64_t n = ints(y, 902)[i];
    if (ints(x, 902)[i] != n || (b && ints(b, 902)[i] != n && ints(b, 902)[i] != 1))
      return fail(BAD, "a pointwise operation's axis %d does not fit", i);
  }
  return OK;
}

static int is_virtual(const descriptor *tensor) { return tensor->value[row_of(TENSOR, 907)].b[0]; }
static const descriptor *output(const descriptor *op) { return ref(op, op->type == OP_CONV ? 705 : 753, 0); }
static int reads(const descriptor *op, const descriptor *t) {
  return op->type == OP_CONV ? ref(op, 703, 0) == t || ref(op, 704, 0) == t
                             : ref(op, 751, 0) == t || ref(op, 752, 0) == t;
}

/* Virtual tensors are written once and read; one that is not virtual is the graph's output. */
static int finish_graph(const descriptor *d) {
  int n = count(d, 801), outputs = 0;
  if (mock.graph_code)
    return fail(mock.graph_code, "the test wants it");
  for (int i = 0; i < n; i++) {
    int readers = 0, writers = 0;
    const descriptor *t = output(ref(d, 801, i));
    for (int j = 0; j < n; j++) {
      readers += reads(ref(d, 801, j), t);
      writers += output(ref(d, 801, j)) == t;
      if (j > i && ints(output(ref(d, 801, j)), 906)[0] == ints(t, 906)[0])
        return fail(BAD, "two tensors have the id %lld", (long long)ints(t, 906)[0]);
    }
    outputs += !is_virtual(t);
    if (writers != 1 || (is_virtual(t) ? !readers : readers))
      return fail(BAD, "operation %d: %d write its output, %d read it", i, writers, readers);
  }
  mock.graphs++;
  return outputs == 1 ? OK : fail(BAD, "a graph has %d outputs", outputs);
}

int cudnnBackendFinalize(void *where) {
  descriptor *d = where;
  if (d->finished)
    return fail(BAD, "a descriptor of type %d is finished twice", d->type);
  for (int i = 0; i < ATTRIBUTES; i++)
    if (attributes[i].of == d->type && d->count[i] < attributes[i].least)
      return fail(BAD, "a descriptor of type %d lacks attribute %d", d->type, attributes[i].name);
  int code = OK;
  switch (d->type) {
  case TENSOR:
    code = finish_tensor(d);
    break;
  case CONVOLUTION:
    code = finish_convolution(d);
    break;
  case OP_CONV:
    code = finish_op_conv(d);
    break;
  case OP_POINTWISE:
    code = finish_op_pointwise(d);
    break;
  case GRAPH:
    code = finish_graph(d);
    break;
  case HEURISTICS:
    code = word(d, 200) == 3 ? OK : fail(UNSUPPORTED, "heuristics of mode %d", word(d, 200));
    break;
  case PLAN:
    d->engine = ref(d, 401, 0)->engine;
    mock.plans++;
    code = mock.plan_code ? fail(mock.plan_code, "the test wants it") : OK;
    break;
  case PACK:
    code = count(d, 1000) == count(d, 1001) ? OK : fail(BAD, "ids and pointers differ in number");
    break;
  }
  d->finished = !code;
  return code;
}

/* ---- what finished descriptors tell ---- */

/* Fills the engine configurations that were passed in. */
static int results(descriptor *h, int64_t capacity, int64_t *n, void **out) {
  *n = MOCK_ENGINES;
  for (int i = 0; i < MOCK_ENGINES && i < capacity; i++) {
    descriptor *config = out[i];
    if (!config || config->type != CONFIG)
      return fail(BAD, "results want engine configurations to be filled");
    config->finished = 1;
    config->engine = i;
    config->value[row_of(CONFIG, 300)].p[0] = ref(h, 201, 0); /* kept for the plan: the graph */
  }
  return OK;
}

int cudnnBackendGetAttribute(void *where, int name, int type, int64_t capacity, int64_t *n, void *out) {
  descriptor *d = where;
  if (!d->finished)
    return fail(BAD, "attribute %d is asked of a descriptor that is not finished", name);
  if (d->type == HEURISTICS && name == 202 && type == DESCRIPTOR)
    return results(d, capacity, n, out);
  *n = 1;
  if (d->type == CONFIG && name == 300 && type == DESCRIPTOR && capacity == 1) {
    descriptor *engine = *(void **)out;
    if (!engine || engine->type != ENGINE)
      return fail(BAD, "an engine is asked for without one to be filled");
    engine->finished = 1;
    engine->engine = d->engine;
    return OK;
  }
  if (d->type == ENGINE && name == 1303 && type == NOTE) {
    *n = notes[d->engine] >= 0;
    if (*n)
      *(int32_t *)out = notes[d->engine];
    return OK;
  }
  if (d->type == PLAN && name == 402 && type == INT64 && capacity == 1) {
    *(int64_t *)out = (int64_t)mock.workspace;
    return OK;
  }
  return fail(BAD, "attribute %d of a descriptor of type %d cannot be read as type %d", name, d->type, type);
}

/* ---- running ---- */

/* What a run reads and writes, apart from descriptors that may be gone when a captured graph is launched. */
typedef struct tensor {
  int rank, type;
  int64_t dims[8], strides[8];
  void *data; /* NULL: virtual */
} tensor;

enum { MAX_OPS = 4 };
typedef struct job {
  int engine, nops;
  struct step {
    int mode;       /* of a pointwise operation; -1: a convolution */
    tensor x, b, y; /* b: weights, or second operand */
    int64_t dilation[3], stride[3], pad[3];
  } op[MAX_OPS];
} job;

static float load(const tensor *t, int64_t at) {
  uint16_t half;
  float f;
  if (t->type == 0) {
    memcpy(&f, (char *)t->data + 4 * at, 4);
    return f;
  }
  memcpy(&half, (char *)t->data + 2 * at, 2);
  return t->type == 2 ? cyrt_f16_to_f32(half) : cyrt_bf16_to_f32(half);
}

static void store(const tensor *t, int64_t at, float f) {
  uint16_t half = t->type == 2 ? cyrt_f32_to_f16(f) : cyrt_f32_to_bf16(f);
  if (t->type == 0)
    memcpy((char *)t->data + 4 * at, &f, 4);
  else
    memcpy((char *)t->data + 2 * at, &half, 2);
}

/* Offset of the element at these coordinates; axes of extent 1 are broadcast. */
static int64_t offset(const tensor *t, const int64_t *at) {
  int64_t n = 0;
  for (int i = 0; i < t->rank; i++)
    n += t->dims[i] == 1 ? 0 : at[i] * t->strides[i];
  return n;
}

/* The next coordinates in row-major order; 0 behind the last. */
static int next(const int64_t *dims, int rank, int64_t *at) {
  for (int i = rank; i-- > 0; at[i] = 0)
    if (++at[i] < dims[i])
      return 1;
  return 0;
}

static float convolve(const struct step *s, const int64_t *at) {
  int rank = s->x.rank, spatial = rank - 2;
  int64_t per_group = s->b.dims[0] / (s->x.dims[1] / s->b.dims[1]), tap[8] = {0}, from[8] = {at[0]};
  double total = 0;
  do {
    int inside = 1;
    int64_t w[8] = {at[1], tap[0]};
    from[1] = at[1] / per_group * s->b.dims[1] + tap[0];
    for (int i = 0; i < spatial; i++) {
      w[2 + i] = tap[1 + i];
      from[2 + i] = at[2 + i] * s->stride[i] - s->pad[i] + tap[1 + i] * s->dilation[i];
      inside &= from[2 + i] >= 0 && from[2 + i] < s->x.dims[2 + i];
    }
    if (inside)
      total += (double)load(&s->x, offset(&s->x, from)) * (double)load(&s->b, offset(&s->b, w));
  } while (next(s->b.dims + 1, rank - 1, tap));
  return (float)total;
}

static int run_job(const void *data) {
  const job *j = data;
  const tensor *y = &j->op[j->nops - 1].y;
  int64_t at[8] = {0};
  do {
    float v = 0;
    for (int i = 0; i < j->nops; i++) {
      const struct step *s = &j->op[i];
      v = s->mode < 0    ? convolve(s, at)
          : s->mode == 0 ? v + load(&s->b, offset(&s->b, at))
          : v > 0        ? v
          : v != v       ? v
                         : 0;
    }
    store(y, offset(y, at), v);
  } while (next(y->dims, y->rank, at));
  return 0;
}

static int fill_tensor(const descriptor *d, const descriptor *pack, tensor *t) {
  *t = (tensor){.rank = count(d, 902), .type = word(d, 901)};
  memcpy(t->dims, ints(d, 902), sizeof *t->dims * (size_t)t->rank);
  memcpy(t->strides, ints(d, 903), sizeof *t->strides * (size_t)t->rank);
  for (int i = 0; i < count(pack, 1000) && !is_virtual(d); i++)
    if (ints(pack, 1000)[i] == ints(d, 906)[0])
      t->data = pack->value[row_of(PACK, 1001)].p[i];
  if (!is_virtual(d) && (!t->data || (uintptr_t)t->data % (size_t)ints(d, 900)[0]))
    return fail(BAD, "tensor %lld has no pointer, or one that is not aligned", (long long)ints(d, 906)[0]);
  return OK;
}

/* Operations must come in the order in which they read each other. */
static int fill_step(const descriptor *op, const descriptor *before, const descriptor *pack, struct step *s) {
  int conv = op->type == OP_CONV, code = fill_tensor(ref(op, conv ? 704 : 751, 0), pack, &s->x);
  const descriptor *b = ref(op, conv ? 703 : 752, 0);
  s->mode = conv ? -1 : word(ref(op, 750, 0), 0);
  if (conv != !before || (before && ref(op, 751, 0) != output(before)))
    return fail(BAD, "a graph is no chain from a convolution on");
  for (int i = 0; conv && i < ints(ref(op, 702, 0), 106)[0]; i++) {
    s->dilation[i] = ints(ref(op, 702, 0), 102)[i];
    s->stride[i] = ints(ref(op, 702, 0), 103)[i];
    s->pad[i] = ints(ref(op, 702, 0), 105)[i];
  }
  if (!code && b)
    code = fill_tensor(b, pack, &s->b);
  return code ? code : fill_tensor(output(op), pack, &s->y);
}

static mock_cuda_state *driver(int (**submit)(void *, int (*)(const void *), const void *, size_t)) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *symbol = dlsym(library, "mock_cuda_submit");
  mock_cuda_state *(*state)(void);
  memcpy(submit, &symbol, sizeof symbol);
  symbol = dlsym(library, "mock_cuda");
  memcpy(&state, &symbol, sizeof symbol);
  dlclose(library);
  return state();
}

int cudnnBackendExecute(void *where, void *plan_at, void *pack_at) {
  descriptor *plan = plan_at, *pack = pack_at, *graph;
  job j = {.nops = 0};
  int (*submit)(void *, int (*)(const void *), const void *, size_t);
  if (!plan->finished || plan->type != PLAN || !pack->finished || pack->type != PACK)
    return fail(BAD, "a plan and a pack, both finished, are expected");
  if (mock.execute_code)
    return fail(mock.execute_code, "the test wants it");
  if (mock.workspace && !pack->value[row_of(PACK, 1003)].p[0])
    return fail(BAD, "there is no workspace");
  graph = ref(ref(plan, 401, 0), 300, 0);
  j.engine = plan->engine;
  j.nops = count(graph, 801);
  for (int i = 0; i < j.nops; i++)
    if (i == MAX_OPS || fill_step(ref(graph, 801, i), i ? ref(graph, 801, i - 1) : NULL, pack, &j.op[i]))
      return BAD;
  mock.ran[j.engine]++;
  driver(&submit)->clock_us += mock.engine_us[j.engine];
  return submit(((handle *)where)->stream, run_job, &j, sizeof j) ? 5000 : OK;
}
