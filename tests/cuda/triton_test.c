/* SPDX-License-Identifier: Apache-2.0 */
/* triton_test.c - the backend for Triton on GPUs: instances by device, requests, devices that fail, what is refused.
 *
 * Triton's server sees real GPUs only. Here this program is the server, as far as it is needed: it has the functions of triton_abi.h
 * that the backend calls for a model without sequences and metrics. The driver is the mock's, with two devices.
 */
#define _GNU_SOURCE
#pragma GCC visibility push(default) /* the backend looks for the server's functions in this program */
#include "integrations/triton/triton_abi.h"
#pragma GCC visibility pop
#include "tests/cuda/models.h"

#include <stdarg.h>

enum { PIXELS = 8 * 8, CLASSES = 10, MAX_ROWS = 6, MAX_REQUESTS = 4 };
static float images[MAX_ROWS * PIXELS], expected[MAX_ROWS * CLASSES];
static int output_memory; /* where clients want their outputs */
static char said[8192];   /* the log */

/* ---- the server ---- */

struct triton_error {
  int code;
  char text[2048];
};
struct triton_message {
  char *text;
};
struct triton_backend {
  void *state;
};
struct triton_model {
  const char *config;
  char completed[8192];
  void *state;
};
struct triton_instance {
  triton_model *model;
  int kind;
  int32_t device;
  void *state;
};
struct triton_output {
  float data[MAX_ROWS * CLASSES];
  int64_t dims[2];
};
struct triton_response {
  triton_output output;
  char error[2048]; /* "": there is none */
};
struct triton_request {
  int64_t dims[4];
  const float *data;
  int memory, released, succeeded;
  triton_response response;
};
static triton_backend backend;

triton_error *TRITONSERVER_ErrorNew(int code, const char *text) {
  triton_error *e = malloc(sizeof *e);
  if (e)
    e->code = code, snprintf(e->text, sizeof e->text, "%s", text);
  return e;
}

void TRITONSERVER_ErrorDelete(triton_error *error) { free(error); }
int TRITONSERVER_ErrorCode(triton_error *error) { return error->code; }
const char *TRITONSERVER_ErrorMessage(triton_error *error) { return error->text; }

triton_error *TRITONSERVER_LogMessage(int level, const char *file, const int line, const char *text) {
  (void)level, (void)file, (void)line;
  size_t n = strlen(said);
  snprintf(said + n, sizeof said - n, "%s\n", text);
  return NULL;
}

static triton_message *message_of(const char *text) {
  triton_message *m = malloc(sizeof *m);
  if (m)
    m->text = strdup(text);
  return m;
}

triton_error *TRITONSERVER_MessageNewFromSerializedJson(triton_message **message, const char *text, size_t bytes) {
  *message = message_of("");
  free((*message)->text);
  (*message)->text = strndup(text, bytes);
  return NULL;
}

triton_error *TRITONSERVER_MessageSerializeToJson(triton_message *message, const char **text, size_t *bytes) {
  *text = message->text;
  *bytes = strlen(message->text);
  return NULL;
}

triton_error *TRITONSERVER_MessageDelete(triton_message *message) {
  free(message->text);
  free(message);
  return NULL;
}

triton_error *TRITONBACKEND_ApiVersion(uint32_t *major, uint32_t *minor) {
  *major = TRITON_MAJOR;
  *minor = TRITON_OLDEST_MINOR;
  return NULL;
}

triton_error *TRITONBACKEND_BackendConfig(triton_backend *b, triton_message **config) {
  static triton_message empty = {(char *)(uintptr_t) "{}"};
  (void)b;
  *config = &empty;
  return NULL;
}

/* Where the backend keeps what is its own, by kind of handle. */
#define STATE(what, type)                                                                                              \
  triton_error *TRITONBACKEND_##what##State(type *of, void **state) {                                                  \
    *state = of->state;                                                                                                \
    return NULL;                                                                                                       \
  }                                                                                                                    \
  triton_error *TRITONBACKEND_##what##SetState(type *of, void *state) {                                                \
    of->state = state;                                                                                                 \
    return NULL;                                                                                                       \
  }
STATE(Backend, triton_backend)
STATE(Model, triton_model)
STATE(ModelInstance, triton_instance)

triton_error *TRITONBACKEND_ModelName(triton_model *m, const char **name) {
  (void)m;
  *name = "digits";
  return NULL;
}

triton_error *TRITONBACKEND_ModelVersion(triton_model *m, uint64_t *version) {
  (void)m;
  *version = 1;
  return NULL;
}

triton_error *TRITONBACKEND_ModelRepository(triton_model *m, int *kind, const char **folder) {
  (void)m;
  *kind = 0;
  *folder = dir;
  return NULL;
}

triton_error *TRITONBACKEND_ModelConfig(triton_model *m, const uint32_t version, triton_message **config) {
  (void)version;
  *config = message_of(m->config);
  return NULL;
}

triton_error *TRITONBACKEND_ModelAutoCompleteConfig(triton_model *m, bool *wanted) {
  (void)m;
  *wanted = true;
  return NULL;
}

triton_error *TRITONBACKEND_ModelSetConfig(triton_model *m, const uint32_t version, triton_message *config) {
  (void)version;
  snprintf(m->completed, sizeof m->completed, "%s", config->text);
  return NULL;
}

triton_error *TRITONBACKEND_ModelBackend(triton_model *m, triton_backend **b) {
  (void)m;
  *b = &backend;
  return NULL;
}

triton_error *TRITONBACKEND_ModelInstanceName(triton_instance *i, const char **name) {
  *name = i->device ? "digits_0_1" : "digits_0_0";
  return NULL;
}

triton_error *TRITONBACKEND_ModelInstanceKind(triton_instance *i, int *kind) {
  *kind = i->kind;
  return NULL;
}

triton_error *TRITONBACKEND_ModelInstanceDeviceId(triton_instance *i, int32_t *device) {
  *device = i->device;
  return NULL;
}

triton_error *TRITONBACKEND_ModelInstanceModel(triton_instance *i, triton_model **m) {
  *m = i->model;
  return NULL;
}

triton_error *TRITONBACKEND_RequestInput(triton_request *r, const char *name, triton_input **input) {
  (void)name;
  *input = (triton_input *)r;
  return NULL;
}

triton_error *TRITONBACKEND_RequestFlags(triton_request *r, uint32_t *flags) {
  (void)r;
  *flags = 0;
  return NULL;
}

triton_error *TRITONBACKEND_RequestIsCancelled(triton_request *r, bool *answer) {
  (void)r;
  *answer = false;
  return NULL;
}

triton_error *TRITONBACKEND_RequestOutputCount(triton_request *r, uint32_t *n) {
  (void)r;
  *n = 1;
  return NULL;
}

triton_error *TRITONBACKEND_RequestOutputName(triton_request *r, const uint32_t index, const char **name) {
  (void)r, (void)index;
  *name = "probability";
  return NULL;
}

triton_error *TRITONBACKEND_RequestRelease(triton_request *r, uint32_t flags) {
  (void)flags;
  r->released++;
  return NULL;
}

triton_error *TRITONBACKEND_InputProperties(triton_input *input, const char **name, int *type, const int64_t **dims,
                                            uint32_t *rank, uint64_t *bytes, uint32_t *buffers) {
  enum { FP32 = 11 };
  triton_request *r = (triton_request *)input;
  (void)name;
  *type = FP32;
  *dims = r->dims;
  *rank = 4;
  *bytes = (uint64_t)r->dims[0] * PIXELS * sizeof(float);
  *buffers = 1;
  return NULL;
}

triton_error *TRITONBACKEND_InputBuffer(triton_input *input, const uint32_t index, const void **data, uint64_t *bytes,
                                        int *memory, int64_t *device) {
  triton_request *r = (triton_request *)input;
  (void)index;
  *data = r->data;
  *bytes = (uint64_t)r->dims[0] * PIXELS * sizeof(float);
  *memory = r->memory;
  *device = 0;
  return NULL;
}

triton_error *TRITONBACKEND_ResponseNew(triton_response **response, triton_request *r) {
  *response = &r->response;
  return NULL;
}

triton_error *TRITONBACKEND_ResponseOutput(triton_response *response, triton_output **output, const char *name,
                                           const int type, const int64_t *dims, const uint32_t rank) {
  (void)name, (void)type;
  CHECK_INT_EQ(rank, 2);
  memcpy(response->output.dims, dims, sizeof response->output.dims);
  *output = &response->output;
  return NULL;
}

triton_error *TRITONBACKEND_OutputBuffer(triton_output *output, void **data, const uint64_t bytes, int *memory,
                                         int64_t *device) {
  CHECK(bytes <= sizeof output->data);
  *data = output->data;
  *memory = output_memory;
  *device = 0;
  return NULL;
}

triton_error *TRITONBACKEND_ResponseSend(triton_response *response, const uint32_t flags, triton_error *error) {
  (void)flags;
  snprintf(response->error, sizeof response->error, "%s", error ? error->text : "");
  return NULL;
}

triton_error *TRITONBACKEND_ModelInstanceReportStatistics(triton_instance *i, triton_request *r, const bool success,
                                                          const uint64_t begin, const uint64_t start,
                                                          const uint64_t stop, const uint64_t end) {
  (void)i;
  CHECK(begin <= start && start <= stop && stop <= end);
  r->succeeded = success;
  return NULL;
}

triton_error *TRITONBACKEND_ModelInstanceReportBatchStatistics(triton_instance *i, const uint64_t rows,
                                                               const uint64_t begin, const uint64_t start,
                                                               const uint64_t stop, const uint64_t end) {
  (void)i, (void)begin, (void)start, (void)stop, (void)end;
  CHECK(rows > 0);
  return NULL;
}

/* ---- the backend ---- */

static struct {
  triton_error *(*begin)(triton_backend *), *(*end)(triton_backend *);
  triton_error *(*model_begin)(triton_model *), *(*model_end)(triton_model *);
  triton_error *(*instance_begin)(triton_instance *), *(*instance_end)(triton_instance *);
  triton_error *(*execute)(triton_instance *, triton_request **, const uint32_t);
} call;

static void open_backend(void) {
  static const char *const names[] = {"Initialize",
                                      "Finalize",
                                      "ModelInitialize",
                                      "ModelFinalize",
                                      "ModelInstanceInitialize",
                                      "ModelInstanceFinalize",
                                      "ModelInstanceExecute"};
  char path[PATH_MAX + 60], name[80];
  snprintf(path, sizeof path, "%s/backends/cytoc/libtriton_cytoc.so", build);
  void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL), *found[CHECK_COUNT(names)];
  if (!library)
    CHECK_FAIL("%s", dlerror());
  for (int k = 0; library && k < CHECK_COUNT(names); k++) {
    snprintf(name, sizeof name, "TRITONBACKEND_%s", names[k]);
    found[k] = dlsym(library, name);
    CHECK(found[k]);
  }
  CHECK_REQUIRE(library);
  memcpy(&call, found, sizeof call);
  CHECK(!call.begin(&backend));
}

/* "": there was none */
static const char *text_of(triton_error *error) {
  static char text[2048];
  snprintf(text, sizeof text, "%s", error ? error->text : "");
  free(error);
  return text;
}

static const char *config_of(const char *group, const char *parameters) {
  static char text[PATH_MAX + 400];
  snprintf(text, sizeof text,
           "{\"name\": \"digits\", \"backend\": \"cytoc\", \"input\": [], \"output\": [], \"max_batch_size\": 0, "
           "\"instance_group\": [%s], \"parameters\": {%s \"cache\": {\"string_value\": \"%s/cache\"}}}",
           group, parameters, dir);
  return text;
}

static void mock_reset(void) {
  mock->devices = 2;
  mock->capability = 80;
  mock->fail_device = -1;
  memset(mock->device_waits, 0, sizeof mock->device_waits);
  output_memory = TRITON_CPU;
}

#define GPUS "{\"kind\": \"KIND_GPU\", \"count\": 1, \"gpus\": [0, 1]}"

/* A model with an instance on each device. */
typedef struct served {
  triton_model model;
  triton_instance instances[2];
} served;

static int serve(served *s) {
  *s = (served){.model = {.config = config_of(GPUS, "")}};
  mock_reset();
  CHECK_STR_EQ(text_of(call.model_begin(&s->model)), "");
  for (int k = 0; k < 2; k++) {
    s->instances[k] = (triton_instance){.model = &s->model, .kind = TRITON_KIND_GPU, .device = k};
    CHECK_STR_EQ(text_of(call.instance_begin(&s->instances[k])), "");
  }
  return s->instances[1].state != NULL;
}

static void stop(served *s) {
  for (int k = 0; k < 2; k++)
    CHECK(!call.instance_end(&s->instances[k]));
  CHECK(!call.model_end(&s->model));
  CHECK_INT_EQ(mock->blocks + mock->pinned + mock->streams + mock->modules + mock->retained + mock->graphs, 0);
}

static triton_request request_of(int64_t first, int64_t rows) {
  return (triton_request){.dims = {rows, 1, 8, 8}, .data = images + first * PIXELS, .memory = TRITON_CPU};
}

static void check_answer(const triton_request *r) {
  CHECK_STR_EQ(r->response.error, "");
  CHECK_INT_EQ(r->released, 1);
  CHECK_INT_EQ(r->succeeded, 1);
  CHECK_INT_EQ(r->response.output.dims[0], r->dims[0]);
  const float *want = expected + (r->data - images) / PIXELS * CLASSES;
  for (int64_t k = 0; k < r->dims[0] * CLASSES; k++)
    CHECK_CLOSE(r->response.output.data[k], want[k], 1e-4);
}

/* ---- tests ---- */

static void expect_rows(void) {
  cyto_model *cpu = load("cpu.so");
  cyto_context *context = NULL;
  cyto_tensor found;
  for (int k = 0; k < MAX_ROWS * PIXELS; k++)
    images[k] = (float)((k * 7919 + k / PIXELS * 31) % 256) / 255;
  CHECK_REQUIRE(cpu && !cyto_context_create(cpu, NULL, &context, NULL));
  CHECK(!cyto_bind_input(context, 0, CYTO_F32, 4, (const int64_t[]){MAX_ROWS, 1, 8, 8}, images, NULL));
  CHECK_REQUIRE(!cyto_run(context, NULL) && !cyto_output(context, 0, &found, NULL));
  memcpy(expected, found.data, sizeof expected);
  cyto_context_destroy(context);
  cyto_model_unload(cpu);
}

/* Compiled for the GPU that there is; an instance for each device, several requests as one batch, each gets its rows. */
static void test_by_device(void) {
  served s;
  CHECK_REQUIRE(serve(&s));
  CHECK_STR_HAS(s.model.completed, "\"max_batch_size\":4");
  CHECK_STR_HAS(s.model.completed, "KIND_GPU");
  for (int turn = 0; turn < 4; turn++) {
    triton_request r[] = {request_of(0, 1), request_of(1, 3), request_of(4, 2)}, *all[] = {&r[0], &r[1], &r[2]};
    int waits = mock->device_waits[turn % 2], others = mock->device_waits[1 - turn % 2];
    CHECK(!call.execute(&s.instances[turn % 2], all, 3));
    for (int k = 0; k < 3; k++)
      check_answer(&r[k]);
    CHECK(mock->device_waits[turn % 2] > waits);
    CHECK_INT_EQ(mock->device_waits[1 - turn % 2], others);
  }
  stop(&s);
}

/* A device that fails: its requests say so, the other one's are answered. */
static void test_one_fails(void) {
  served s;
  CHECK_REQUIRE(serve(&s));
  mock->fail_device = 1;
  mock->fail_after = 0;
  mock->fail_code = 719;
  triton_request bad = request_of(0, 2), good = request_of(2, 2), *all[] = {&bad, &good};
  CHECK(!call.execute(&s.instances[1], all, 1));
  CHECK_STR_HAS(bad.response.error, "cytoc: ");
  CHECK_STR_HAS(bad.response.error, "719");
  CHECK_INT_EQ(bad.released, 1);
  CHECK_INT_EQ(bad.succeeded, 0);
  CHECK(!call.execute(&s.instances[0], all + 1, 1));
  check_answer(&good);
  mock_reset();
  stop(&s);
}

/* Tensors are the host's. */
static void test_memory(void) {
  served s;
  CHECK_REQUIRE(serve(&s));
  triton_request in = request_of(0, 1), out = request_of(0, 1), *all[] = {&in, &out};
  in.memory = TRITON_GPU;
  CHECK(!call.execute(&s.instances[0], all, 1));
  CHECK_STR_HAS(in.response.error, "input 'image' lies on a GPU: expected memory of the host");
  output_memory = TRITON_GPU;
  CHECK(!call.execute(&s.instances[0], all + 1, 1));
  CHECK_STR_HAS(out.response.error, "output 'probability' is wanted on a GPU");
  stop(&s);
}

static void test_bad(void) {
  static const struct {
    const char *group, *parameters;
    int kind, device;
    const char *text;
  } cases[] = {
      {GPUS, "", TRITON_KIND_GPU, 7, "device 7 does not exist"},
      {GPUS, "", TRITON_KIND_CPU, 0, "the library is for sm_80: instance_group must ask for KIND_GPU"},
      {"{\"kind\": \"KIND_CPU\", \"count\": 1}", "", TRITON_KIND_GPU, 0, "instance_group must ask for KIND_CPU"},
      {GPUS, "\"target\": {\"string_value\": \"x86-64-v3\"},", TRITON_KIND_GPU, 0,
       "(parameter 'target', such as sm_89)"},
  };
  for (int k = 0; k < CHECK_COUNT(cases); k++) {
    mock_reset();
    triton_model m = {.config = config_of(cases[k].group, cases[k].parameters)};
    triton_instance i = {.model = &m, .kind = cases[k].kind, .device = cases[k].device};
    CHECK_STR_EQ(text_of(call.model_begin(&m)), "");
    CHECK_STR_HAS(text_of(call.instance_begin(&i)), cases[k].text);
    CHECK(!call.model_end(&m));
  }
  mock->init_code = 100; /* no device */
  triton_model none = {.config = config_of(GPUS, "")};
  CHECK_STR_HAS(text_of(call.model_begin(&none)), "asks for a GPU, and the driver tells of none");
  mock->init_code = 0;
}

/* A library that does not run here, and the model beside it: compiled for the GPU, as the instances are. */
static void test_compiled_instead(void) {
  run_command("cp %s %s%s", path_of("arm.so"), path_of("1/model.so"), "");
  said[0] = 0;
  served s;
  if (serve(&s)) {
    CHECK_STR_HAS(said, "model.onnx is compiled instead");
    triton_request r = request_of(1, 2), *all[] = {&r};
    CHECK(!call.execute(&s.instances[1], all, 1));
    check_answer(&r);
    stop(&s);
  }
  unlink(path_of("1/model.so"));
  CHECK(!call.end(&backend));
}

static const check_test tests[] = {{"*open mock", open_mock},
                                   {"*open backend", open_backend},
                                   {"*expected", expect_rows},
                                   {"by device", test_by_device},
                                   {"one fails", test_one_fails},
                                   {"memory", test_memory},
                                   {"bad", test_bad},
                                   {"compiled instead", test_compiled_instead}};

static int prepare(void) {
  int rc = run_command("mkdir %s && cp examples/digits/digits.onnx %s/model.onnx%s", path_of("1"), path_of("1"), "");
  if (!rc)
    rc = run_command("%s/cytoc examples/digits/digits.onnx -o %s%s", build, path_of("cpu.so"), "");
  return rc ? rc
            : run_command("%s/cytoc examples/digits/digits.onnx -o %s --target=%s", build, path_of("arm.so"),
                          "aarch64");
}

int main(int argc, char **argv) { return models_main(argc, argv, tests, CHECK_COUNT(tests), prepare); }
