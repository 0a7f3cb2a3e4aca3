/* SPDX-License-Identifier: Apache-2.0 */
/* test_values.c - strings, sequences, maps and optional values through the public interface, by models written by hand,
 * and the operators on them.
 *
 * The model's ports are of every kind. Its run() is what a test sets: it sees numbers where the application sees
 * strings and trees, as generated code does, and calls operators as that does.
 */
#include "../check.h"
#include "values.h"

#include <stdlib.h>
#include <time.h>

/* ---- the model ---- */

enum { IN_WORDS, IN_LIST, IN_MAYBE, IN_MAP };
enum { OUT_WORDS, OUT_ANY, OUT_LIST, OUT_MAYBE, OUT_MAP };

static const cyto_type f32_type = {CYTO_TENSOR, CYTO_F32, NULL}, string_type = {CYTO_TENSOR, CYTO_STRING, NULL};
static const cyto_type list_type = {CYTO_SEQUENCE, 0, &string_type}, maybe_type = {CYTO_OPTIONAL, 0, &f32_type},
                       map_type = {CYTO_MAP, CYTO_STRING, &f32_type};
static const int64_t symbol_dims[] = {-1}, any_dims[] = {-1};
static const cyrt_port inputs[] = {{"words", CYTO_STRING, 1, symbol_dims, 0, NULL, 0, NULL, 0, 0},
                                   {"list", CYRT_REF, 0, NULL, 0, &list_type, 0, NULL, 0, 0},
                                   {"maybe", CYRT_REF, 0, NULL, 0, &maybe_type, 0, NULL, 0, 0},
                                   {"map", CYRT_REF, 0, NULL, 0, &map_type, 0, NULL, 0, 0}};
static const cyrt_port outputs[] = {{"words", CYTO_STRING, 1, symbol_dims, 0, NULL, 0, NULL, 0, 0},
                                    {"any", CYTO_STRING, 1, any_dims, CYRT_PORT_DYNAMIC, NULL, 0, NULL, 0, 0},
                                    {"list", CYRT_REF, 0, NULL, 0, &list_type, 0, NULL, 0, 0},
                                    {"maybe", CYRT_REF, 0, NULL, 0, &maybe_type, 0, NULL, 0, 0},
                                    {"map", CYRT_REF, 0, NULL, 0, &map_type, 0, NULL, 0, 0}};
static const char *const symbols[] = {"n"};

/* Texts of the model: "", "one", "t\0wo" */
static const uint64_t starts[] = {0, 1, 5, 10};
static const cyrt_texts texts = {3, starts, "\0one\0t\0wo"};

static int32_t (*body)(cyrt_frame *frame); /* of the running test; NULL: inputs are handed through */

static int32_t plan(cyrt_frame *frame) {
  frame->arena_bytes = 0;
  frame->outputs[OUT_WORDS].dims[0] = frame->syms[0];
  return 0;
}

static int32_t *output_ref(cyrt_frame *frame, int output) { return frame->outputs[output].ptr; }

static int32_t run(cyrt_frame *frame) {
  int64_t none = 0;
  memcpy(frame->outputs[OUT_WORDS].ptr, frame->inputs[IN_WORDS], (size_t)frame->syms[0] * sizeof(int32_t));
  *output_ref(frame, OUT_LIST) = *(const int32_t *)frame->inputs[IN_LIST];
  *output_ref(frame, OUT_MAYBE) = *(const int32_t *)frame->inputs[IN_MAYBE];
  *output_ref(frame, OUT_MAP) = *(const int32_t *)frame->inputs[IN_MAP];
  return body ? body(frame) : cyrt_output_alloc(frame, OUT_ANY, &none, 1, sizeof(int32_t));
}

static const cyrt_model model_code = {.abi = CYTO_ABI_VERSION,
                                      .name = "values",
                                      .target = "x86-64",
                                      .features = "",
                                      .compiler = "none",
                                      .n_inputs = 4,
                                      .n_outputs = 5,
                                      .inputs = inputs,
                                      .outputs = outputs,
                                      .n_syms = 1,
                                      .n_input_syms = 1,
                                      .sym_names = symbols,
                                      .plan = plan,
                                      .run = run,
                                      .texts = &texts};

/* ---- making values ---- */

#define W(text)                                                                                                        \
  { text, sizeof text - 1 }

static cyto_value strings_value(const cyto_string *words, int64_t n) {
  cyto_value v = {.kind = CYTO_TENSOR, .tensor = {.data = (void *)words, .dtype = CYTO_STRING, .rank = 1}};
  v.tensor.dims[0] = n;
  return v;
}

static cyto_value floats_value(const float *numbers, int64_t n) {
  cyto_value v = {.kind = CYTO_TENSOR, .tensor = {.data = (void *)numbers, .dtype = CYTO_F32, .rank = 1}};
  v.tensor.dims[0] = n;
  return v;
}

static cyto_value tree(int32_t kind, const cyto_value *items, uint64_t count) {
  return (cyto_value){.kind = kind, .items = items, .count = count};
}

typedef struct fixture {
  cyto_model *model;
  cyto_context *context;
  cyto_error error;
  cyto_string words[3];
  float numbers[2];
  cyto_value list[2], pair[2], held;
} fixture;

/* A context with all inputs bound. */
static int open_fixture(fixture *f, const cyto_options *options) {
  *f = (fixture){.words = {W("b"), W("one"), W("t\0wo")}, .numbers = {1.5f, -2}};
  if (cyto_model_from_linked(&model_code, &f->model, &f->error) ||
      cyto_context_create(f->model, options, &f->context, &f->error)) {
    cyto_model_unload(f->model);
    return 0;
  }
  f->list[0] = strings_value(f->words, 3);
  f->list[1] = strings_value(f->words + 1, 1);
  f->pair[0] = strings_value(f->words, 2);
  f->pair[1] = floats_value(f->numbers, 2);
  f->held = floats_value(f->numbers, 2);
  cyto_value list = tree(CYTO_SEQUENCE, f->list, 2), maybe = tree(CYTO_OPTIONAL, &f->held, 1),
             map = tree(CYTO_MAP, f->pair, 2);
  const int64_t n = 3;
  CHECK_INT_EQ(cyto_bind_input(f->context, IN_WORDS, CYTO_STRING, 1, &n, f->words, &f->error), CYTO_OK);
  CHECK_INT_EQ(cyto_bind_value(f->context, IN_LIST, &list, &f->error), CYTO_OK);
  CHECK_INT_EQ(cyto_bind_value(f->context, IN_MAYBE, &maybe, &f->error), CYTO_OK);
  CHECK_INT_EQ(cyto_bind_value(f->context, IN_MAP, &map, &f->error), CYTO_OK);
  return 1;
}

static void close_fixture(fixture *f) {
  cyto_context_destroy(f->context);
  cyto_model_unload(f->model);
  body = NULL;
}

#define CHECK_TEXT(found, wanted)                                                                                      \
  CHECK((found).length == sizeof(wanted) - 1 && !memcmp((found).text, wanted, sizeof(wanted)))

static cyto_string string_at(const cyto_value *v, int64_t i) { return ((const cyto_string *)v->tensor.data)[i]; }

/* ---- the interface ---- */

static void test_inspect(void) {
  cyto_model *model;
  cyto_port port;
  CHECK_REQUIRE(!cyto_model_from_linked(&model_code, &model, NULL));
  cyto_model_input(model, IN_WORDS, &port);
  CHECK(port.dtype == CYTO_STRING && port.type->kind == CYTO_TENSOR && port.type->dtype == CYTO_STRING &&
        !port.type->of);
  cyto_model_input(model, IN_LIST, &port);
  CHECK(port.dtype == 0 && port.rank == 0 && port.type->kind == CYTO_SEQUENCE && port.type->of->dtype == CYTO_STRING);
  cyto_model_output(model, OUT_MAP, &port);
  CHECK(port.type->kind == CYTO_MAP && port.type->dtype == CYTO_STRING && port.type->of->dtype == CYTO_F32);
  CHECK_INT_EQ(cyto_dtype_bits(CYTO_STRING), 8 * sizeof(cyto_string));
  cyto_model_unload(model);
}

static void test_hand_through(void) {
  fixture f;
  cyto_value out;
  cyto_string own[3];
  CHECK_REQUIRE(open_fixture(&f, NULL));
  for (int turn = 0; turn < 3; turn++) { /* the store starts anew with every run */
    CHECK_INT_EQ(cyto_bind_output(f.context, OUT_WORDS, turn ? own : NULL, sizeof own, &f.error), CYTO_OK);
    CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_OK);
    CHECK_INT_EQ(cyto_output_value(f.context, OUT_WORDS, &out, &f.error), CYTO_OK);
    CHECK(out.kind == CYTO_TENSOR && out.tensor.dims[0] == 3 && out.tensor.bytes == 3 * sizeof(cyto_string));
    CHECK(turn == 0 || out.tensor.data == (void *)own);
    CHECK_TEXT(string_at(&out, 0), "b");
    CHECK_TEXT(string_at(&out, 1), "one");
    CHECK_TEXT(string_at(&out, 2), "t\0wo");
    CHECK_INT_EQ(cyto_output_value(f.context, OUT_LIST, &out, &f.error), CYTO_OK);
    CHECK_REQUIRE(out.kind == CYTO_SEQUENCE && out.count == 2 && out.items[1].tensor.dims[0] == 1);
    CHECK_TEXT(string_at(&out.items[0], 2), "t\0wo");
    CHECK_TEXT(string_at(&out.items[1], 0), "one");
    CHECK_INT_EQ(cyto_output_value(f.context, OUT_MAYBE, &out, &f.error), CYTO_OK);
    CHECK_REQUIRE(out.kind == CYTO_OPTIONAL && out.count == 1);
    CHECK(((float *)out.items->tensor.data)[1] == -2);
    CHECK_INT_EQ(cyto_output_value(f.context, OUT_MAP, &out, &f.error), CYTO_OK);
    CHECK_REQUIRE(out.kind == CYTO_MAP && out.count == 2);
    CHECK_TEXT(string_at(&out.items[0], 0), "b");
    CHECK(((float *)out.items[1].tensor.data)[0] == 1.5f);
  }
  cyto_value none = tree(CYTO_OPTIONAL, NULL, 0), empty = tree(CYTO_SEQUENCE, NULL, 0);
  CHECK_INT_EQ(cyto_bind_value(f.context, IN_MAYBE, &none, &f.error), CYTO_OK);
  CHECK_INT_EQ(cyto_bind_value(f.context, IN_LIST, &empty, &f.error), CYTO_OK);
  CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_OK);
  CHECK_INT_EQ(cyto_output_value(f.context, OUT_MAYBE, &out, &f.error), CYTO_OK);
  CHECK(out.kind == CYTO_OPTIONAL && out.count == 0);
  CHECK_INT_EQ(cyto_output_value(f.context, OUT_LIST, &out, &f.error), CYTO_OK);
  CHECK(out.kind == CYTO_SEQUENCE && out.count == 0);
  close_fixture(&f);
}

static void expect(fixture *f, cyto_status found, cyto_status wanted, const char *text) {
  CHECK_INT_EQ(found, wanted);
  CHECK_STR_HAS(f->error.message, text);
}

static void test_wrong_values(void) {
  fixture f;
  cyto_value out;
  cyto_tensor tensor;
  const int64_t n = 3;
  CHECK_REQUIRE(open_fixture(&f, NULL));
  cyto_value nested[1] = {tree(CYTO_SEQUENCE, f.list, 2)}, numbers[1] = {f.held}, odd[2] = {f.pair[0], f.pair[1]};
  cyto_value bad = tree(CYTO_SEQUENCE, numbers, 1);
  expect(&f, cyto_bind_value(f.context, IN_LIST, &bad, &f.error), CYTO_DTYPE_MISMATCH,
         "input 'list': expected a tensor of string, found float32");
  bad = tree(CYTO_SEQUENCE, nested, 1);
  expect(&f, cyto_bind_value(f.context, IN_LIST, &bad, &f.error), CYTO_DTYPE_MISMATCH,
         "expected a tensor, found a sequence");
  bad = tree(CYTO_MAP, f.pair, 2);
  expect(&f, cyto_bind_value(f.context, IN_LIST, &bad, &f.error), CYTO_DTYPE_MISMATCH,
         "expected a sequence, found a map");
  bad = tree(CYTO_OPTIONAL, f.list, 2);
  expect(&f, cyto_bind_value(f.context, IN_MAYBE, &bad, &f.error), CYTO_INVALID_ARGUMENT, "optional with 2 items");
  bad = tree(CYTO_SEQUENCE, NULL, 2);
  expect(&f, cyto_bind_value(f.context, IN_LIST, &bad, &f.error), CYTO_INVALID_ARGUMENT, "no pointer");
  odd[1].tensor.dims[0] = 1;
  bad = tree(CYTO_MAP, odd, 2);
  expect(&f, cyto_bind_value(f.context, IN_MAP, &bad, &f.error), CYTO_SHAPE_MISMATCH, "lists of one length");
  bad = tree(CYTO_MAP, odd, 1);
  expect(&f, cyto_bind_value(f.context, IN_MAP, &bad, &f.error), CYTO_INVALID_ARGUMENT, "keys and values");
  cyto_string null[1] = {{NULL, 4}};
  numbers[0] = strings_value(null, 1);
  bad = tree(CYTO_SEQUENCE, numbers, 1);
  expect(&f, cyto_bind_value(f.context, IN_LIST, &bad, &f.error), CYTO_INVALID_ARGUMENT, "string 0 is NULL");
  expect(&f, cyto_bind_value(f.context, IN_LIST, NULL, &f.error), CYTO_INVALID_ARGUMENT, "not optional");
  expect(&f, cyto_bind_input(f.context, IN_LIST, CYTO_STRING, 1, &n, f.words, &f.error), CYTO_DTYPE_MISMATCH,
         "cyto_bind_value");
  expect(&f, cyto_bind_input(f.context, IN_WORDS, CYTO_F32, 1, &n, f.numbers, &f.error), CYTO_DTYPE_MISMATCH,
         "expected string");
  expect(&f, cyto_bind_output(f.context, OUT_LIST, f.numbers, 8, &f.error), CYTO_INVALID_ARGUMENT, "no tensor");
  expect(&f, cyto_output_value(f.context, OUT_LIST, &out, &f.error), CYTO_NOT_READY, "before cyto_run");
  CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_OK); /* what was bound before is still there */
  expect(&f, cyto_output(f.context, OUT_LIST, &tensor, &f.error), CYTO_DTYPE_MISMATCH, "cyto_output_value");
  expect(&f, cyto_output_value(f.context, 9, &out, &f.error), CYTO_INDEX_OUT_OF_RANGE, "output 9");
  close_fixture(&f);
}

static void test_run_simple(void) {
  fixture f;
  CHECK_REQUIRE(open_fixture(&f, NULL));
  cyto_value list = tree(CYTO_SEQUENCE, f.list, 2), maybe = tree(CYTO_OPTIONAL, &f.held, 1),
             map = tree(CYTO_MAP, f.pair, 2), got;
  const void *in[] = {f.words, &list, &maybe, &map};
  void *out[] = {NULL, NULL, &got, NULL, NULL};
  const int64_t sizes[] = {3};
  cyto_context *cache = NULL;
  CHECK_INT_EQ(cyto_run_simple(&model_code, &cache, in, sizes, out, &f.error), CYTO_OK);
  CHECK_REQUIRE(got.kind == CYTO_SEQUENCE && got.count == 2);
  CHECK_TEXT(string_at(&got.items[1], 0), "one");
  cyto_context_destroy(cache);
  expect(&f, cyto_run_simple(&model_code, NULL, in, sizes, out, &f.error), CYTO_INVALID_ARGUMENT, "give a cache");
  close_fixture(&f);
}

/* ---- memory ---- */

static int allocations_left;

static void *failing_alloc(void *user, size_t bytes, size_t alignment) {
  void *ptr;
  (void)user;
  return allocations_left-- <= 0 || posix_memalign(&ptr, alignment, bytes) ? NULL : ptr;
}

static void failing_release(void *user, void *ptr, size_t bytes) {
  (void)user, (void)bytes;
  free(ptr);
}

static void test_failing_allocator(void) {
  cyto_options options = {.threads = 1, .allocator = {failing_alloc, failing_release, NULL}};
  int worked = 0;
  for (int n = 0; n < 60 && !worked; n++) { /* the n-th allocation fails, for every n */
    fixture f;
    cyto_value out;
    allocations_left = n;
    if (!open_fixture(&f, &options))
      continue;
    int status = cyto_run(f.context, &f.error);
    worked = !status && !cyto_output_value(f.context, OUT_MAP, &out, &f.error);
    CHECK(worked || f.error.code == CYTO_OUT_OF_MEMORY);
    close_fixture(&f);
  }
  CHECK(worked);
}

/* ---- operators ---- */

static cyrt_tensor words_in(cyrt_frame *frame) {
  return (cyrt_tensor){(void *)frame->inputs[IN_WORDS], CYTO_STRING, 1, {frame->syms[0]}};
}

static cyrt_tensor ref_of(int32_t *number) { return (cyrt_tensor){number, CYRT_REF, 0, {0}}; }

static cyrt_tensor position_of(int64_t *at) { return (cyrt_tensor){at, CYTO_I64, 0, {0}}; }

static int32_t texts_body(cyrt_frame *frame) {
  int32_t same[3], number;
  cyrt_text_add(frame, "one", 3, &same[0]);
  cyrt_text_add(frame, "new", 3, &same[1]);
  cyrt_text_add(frame, "new", 3, &same[2]);
  CHECK(same[0] == 1 && same[1] == same[2] && same[1] > 2); /* texts of the model come first; each is there once */
  CHECK(((const int32_t *)frame->inputs[IN_WORDS])[2] == 2);
  CHECK_INT_EQ(cyrt_text_add(frame, NULL, 0, &number), CYTO_OK);
  CHECK_INT_EQ(number, 0);
  CHECK_TEXT(cyrt_text(frame, same[1]), "new");
  int64_t n = 2;
  int32_t status = cyrt_output_alloc(frame, OUT_ANY, &n, 1, sizeof(int32_t));
  memcpy(frame->outputs[OUT_ANY].ptr, same, 2 * sizeof *same);
  return status;
}

static void test_texts(void) {
  fixture f;
  cyto_value out;
  CHECK_REQUIRE(open_fixture(&f, NULL));
  body = texts_body;
  CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_OK);
  CHECK_INT_EQ(cyto_output_value(f.context, OUT_ANY, &out, &f.error), CYTO_OK);
  CHECK_REQUIRE(out.tensor.dims[0] == 2);
  CHECK_TEXT(string_at(&out, 0), "one");
  CHECK_TEXT(string_at(&out, 1), "new");
  close_fixture(&f);
}

/* The list, appended to twice from the same sequence, then shortened: values do not disturb each other. */
static int32_t sequence_body(cyrt_frame *frame) {
  int32_t a = *output_ref(frame, OUT_LIST), b, c, d, last;
  int64_t minus_one = -1, ten = 10, length = 0, zero = 0;
  cyrt_tensor in[3] = {ref_of(&a), words_in(frame), position_of(&zero)}, out = ref_of(&b), n = position_of(&length);
  CHECK_INT_EQ(cyrt_op_seq_insert(frame, in, 2, &out, 1, NULL), CYTO_OK);
  out = ref_of(&c);
  in[1].dims[0] = 1;
  CHECK_INT_EQ(cyrt_op_seq_insert(frame, in, 3, &out, 1, NULL), CYTO_OK);
  out = ref_of(&d);
  in[0] = ref_of(&b);
  CHECK_INT_EQ(cyrt_op_seq_insert(frame, in, 2, &out, 1, NULL), CYTO_OK);
  in[0] = ref_of(&d);
  in[1] = position_of(&minus_one);
  out = ref_of(&last);
  CHECK_INT_EQ(cyrt_op_seq_erase(frame, in, 2, &out, 1, NULL), CYTO_OK);
  const int32_t numbers[] = {a, b, c, d, last};
  static const int lengths[] = {2, 3, 3, 4, 3};
  for (int i = 0; i < 5; i++) {
    int32_t number = numbers[i];
    in[0] = ref_of(&number);
    CHECK_INT_EQ(cyrt_op_seq_length(frame, in, 1, &n, 1, NULL), CYTO_OK);
    CHECK_INT_EQ(length, lengths[i]);
  }
  in[0] = ref_of(&a);
  in[1] = position_of(&ten);
  CHECK_INT_EQ(cyrt_op_seq_erase(frame, in, 2, &out, 1, NULL), CYTO_INDEX_OUT_OF_RANGE);
  *output_ref(frame, OUT_LIST) = c;
  cyrt_tensor found = {NULL, CYTO_STRING, 1, {0}};
  in[0] = ref_of(&d);
  in[1] = position_of(&minus_one);
  CHECK_INT_EQ(cyrt_op_seq_at(frame, in, 2, &found, 1, NULL), CYTO_OK);
  CHECK_INT_EQ(found.dims[0], 1);
  found.dtype = CYTO_F32;
  CHECK_INT_EQ(cyrt_op_seq_at(frame, in, 2, &found, 1, NULL), CYTO_SHAPE_MISMATCH);
  return cyrt_output_alloc(frame, OUT_ANY, &zero, 1, sizeof(int32_t));
}

static void test_sequences(void) {
  fixture f;
  cyto_value out;
  CHECK_REQUIRE(open_fixture(&f, NULL));
  body = sequence_body;
  CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_OK);
  CHECK_INT_EQ(cyto_output_value(f.context, OUT_LIST, &out, &f.error), CYTO_OK);
  CHECK_REQUIRE(out.count == 3);
  CHECK_INT_EQ(out.items[0].tensor.dims[0], 1);
  CHECK_INT_EQ(out.items[1].tensor.dims[0], 3);
  close_fixture(&f);
}

/* ---- versions of sequences ---- */

enum { VERSIONS = 400, LONGEST = 64, LOOPS = 10000 };

/* Versions made from any earlier one by inserting or erasing anywhere: each stays what it was. */
static int32_t versions_body(cyrt_frame *frame) {
  static struct {
    int32_t number, items[LONGEST];
    int64_t count;
  } made[VERSIONS], *from, *to;
  struct cyrt_values *v = cyrt_values_of(frame);
  const cyrt_object empty = {.kind = CYTO_SEQUENCE};
  uint32_t seed = 1;
  int64_t zero = 0;
  int wrong = 0;
  made[0].number = v->api->object_add(v, &empty);
  made[0].count = 0;
  for (int32_t n = 1; n < VERSIONS; n++) {
    uint32_t r = (seed = seed * 1664525 + 1013904223) >> 8;
    from = &made[r % 4 == 0 ? (int32_t)(r / 4) % n : r % 4 == 1 && n > 3 ? n - 3 : n - 1];
    to = &made[n];
    int insert = from->count == 0 || (from->count < LONGEST && r / 8 % 3 != 0);
    int64_t at = r / 32 % 2 && insert ? from->count : (int64_t)(r / 64) % (from->count + insert), rest = from->count - at;
    *to = *from;
    memmove(to->items + at + insert, from->items + at + !insert, (size_t)(rest - !insert) * sizeof *to->items);
    to->items[at] = insert ? n : to->items[at];
    to->count += insert ? 1 : -1;
    to->number = cyrt_list_edit(v, from->number, at, n, insert);
    for (int32_t k = n % 7; k <= n; k += 7) {
      const int32_t *all = k % 3 ? NULL : cyrt_list_items(v, made[k].number);
      for (int64_t i = 0; i < made[k].count; i++)
        wrong += (all ? all[i] : cyrt_list_at(v, made[k].number, i)) != made[k].items[i];
      wrong += v->api->object(v, made[k].number)->count != made[k].count;
    }
  }
  CHECK_INT_EQ(wrong, 0);
  return cyrt_output_alloc(frame, OUT_ANY, &zero, 1, sizeof(int32_t));
}

static int64_t bytes_held, max_bytes;

static void *counting_alloc(void *user, size_t bytes, size_t alignment) {
  void *ptr;
  (void)user;
  bytes_held += (int64_t)bytes;
  max_bytes = bytes_held > max_bytes ? bytes_held : max_bytes;
  return posix_memalign(&ptr, alignment, bytes) ? NULL : ptr;
}

static void counting_release(void *user, void *ptr, size_t bytes) {
  (void)user;
  bytes_held -= ptr ? (int64_t)bytes : 0;
  free(ptr);
}

/* What loops do: fill from the front, from the end, from the middle; a queue and a stack. */
static int32_t loops_body(cyrt_frame *frame) {
  static const struct {
    int64_t insert, erase; /* positions; INT64_MAX: none */
  } loops[] = {{0, INT64_MAX}, {-1, INT64_MAX}, {-2, INT64_MAX}, {-1, 0}, {-1, -1}};
  int64_t zero = 0;
  float value = 0;
  for (int k = 0; k < CHECK_COUNT(loops); k++) {
    int32_t made, number;
    cyrt_tensor element = {&value, CYTO_F32, 0, {0}}, in[3] = {{0}}, out = ref_of(&made);
    CHECK_INT_EQ(cyrt_op_seq_make(frame, (cyrt_tensor[]){element, element}, 2, &out, 1, NULL), CYTO_OK);
    for (int i = 0; i < LOOPS; i++) {
      int64_t at = loops[k].insert, from = loops[k].erase;
      value = (float)i;
      number = made;
      in[0] = ref_of(&number);
      in[1] = element;
      in[2] = position_of(&at);
      if (cyrt_op_seq_insert(frame, in, at == -1 ? 2 : 3, &out, 1, NULL))
        return CYTO_RUNTIME_FAILURE;
      number = made;
      in[1] = position_of(&from);
      if (from != INT64_MAX && cyrt_op_seq_erase(frame, in, 2, &out, 1, NULL))
        return CYTO_RUNTIME_FAILURE;
    }
    int64_t length;
    number = made;
    cyrt_tensor n = position_of(&length);
    CHECK_INT_EQ(cyrt_op_seq_length(frame, in, 1, &n, 1, NULL), CYTO_OK);
    CHECK_INT_EQ(length, loops[k].erase == INT64_MAX ? LOOPS + 2 : 2);
  }
  return cyrt_output_alloc(frame, OUT_ANY, &zero, 1, sizeof(int32_t));
}

static void test_versions(void) {
  fixture f;
  CHECK_REQUIRE(open_fixture(&f, NULL));
  body = versions_body;
  CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_OK);
  close_fixture(&f);
}

/* 70,000 operations: a kilobyte for each is ample, a copy of the list for each would be gigabytes. */
static void test_long_loops(void) {
  cyto_options options = {.threads = 1, .allocator = {counting_alloc, counting_release, NULL}};
  fixture f;
  bytes_held = max_bytes = 0;
  CHECK_REQUIRE(open_fixture(&f, &options));
  body = loops_body;
  clock_t start = clock();
  CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_OK);
  CHECK((double)(clock() - start) / CLOCKS_PER_SEC < 5);
  CHECK(max_bytes < (int64_t)70000 * 1024);
  close_fixture(&f);
  CHECK_INT_EQ(bytes_held, 0);
}

static int32_t optional_body(cyrt_frame *frame) {
  int64_t zero = 0;
  cyrt_tensor none = ref_of((int32_t[]){0}), out = {NULL, CYTO_F32, 1, {0}};
  CHECK_INT_EQ(cyrt_op_unbox(frame, &none, 1, &out, 1, NULL), CYTO_INVALID_ARGUMENT);
  cyrt_tensor maybe = ref_of(output_ref(frame, OUT_MAYBE));
  CHECK_INT_EQ(cyrt_op_unbox(frame, &maybe, 1, &out, 1, NULL), CYTO_OK);
  CHECK_INT_EQ(out.dims[0], 2);
  *output_ref(frame, OUT_MAYBE) = 0;
  return cyrt_output_alloc(frame, OUT_ANY, &zero, 1, sizeof(int32_t));
}

static void test_optionals(void) {
  fixture f;
  cyto_value out;
  CHECK_REQUIRE(open_fixture(&f, NULL));
  body = optional_body;
  CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_OK);
  CHECK_INT_EQ(cyto_output_value(f.context, OUT_MAYBE, &out, &f.error), CYTO_OK);
  CHECK_INT_EQ(out.count, 0);
  close_fixture(&f);
}

static int32_t to_number_body(cyrt_frame *frame) {
  double numbers[3];
  cyrt_tensor in = words_in(frame), out = {numbers, CYTO_F64, 1, {3}};
  return cyrt_op_string_to(frame, &in, 1, &out, 1, NULL);
}

static void test_text_that_is_no_number(void) {
  fixture f;
  CHECK_REQUIRE(open_fixture(&f, NULL));
  body = to_number_body;
  expect(&f, cyto_run(f.context, &f.error), CYTO_INVALID_ARGUMENT, "'b' (element 0) is no number");
  close_fixture(&f);
}

/* (a|b)*c\b as a program */
static int32_t match_body(cyrt_frame *frame) {
  static int32_t program[] = {CYRT_RX_SPLIT,
                              1,
                              3,
                              CYRT_RX_IN,
                              21,
                              1,
                              CYRT_RX_JUMP,
                              0,
                              0,
                              CYRT_RX_IN,
                              24,
                              1,
                              CYRT_RX_ASSERT,
                              CYRT_RX_AT_WORD_EDGE,
                              0,
                              CYRT_RX_ASSERT,
                              CYRT_RX_AT_END,
                              0,
                              CYRT_RX_MATCH,
                              0,
                              0,
                              'a',
                              'b',
                              0,
                              'c',
                              'c',
                              0};
  static const struct {
    const char *text;
    int matches;
  } cases[] = {{"c", 1}, {"abbac", 1}, {"", 0}, {"ab", 0}, {"abcc", 0}, {"xc", 0}, {"abc ", 0}};
  int64_t zero = 0;
  for (int i = 0; i < CHECK_COUNT(cases); i++) {
    int32_t number;
    uint8_t found = 2;
    cyrt_text_add(frame, cases[i].text, strlen(cases[i].text), &number);
    cyrt_tensor in[2] = {{&number, CYTO_STRING, 0, {0}}, {program, CYTO_I32, 1, {CHECK_COUNT(program)}}},
                out = {&found, CYTO_BOOL, 0, {0}};
    CHECK_INT_EQ(cyrt_op_string_match(frame, in, 2, &out, 1, NULL), CYTO_OK);
    if (found != cases[i].matches)
      CHECK_FAIL("'%s': expected %d, found %d", cases[i].text, cases[i].matches, found);
  }
  /* (a*)*b: a loop around what may be empty ends */
  static int32_t loops[] = {CYRT_RX_SPLIT, 1, 5, CYRT_RX_SPLIT, 2,   4, CYRT_RX_IN, 21,  1,
                            CYRT_RX_JUMP,  1, 0, CYRT_RX_JUMP,  0,   0, CYRT_RX_IN, 24,  1,
                            CYRT_RX_MATCH, 0, 0, 'a',           'a', 0, 'b',        'b', 0};
  int32_t number;
  uint8_t found = 2;
  char many[2001];
  memset(many, 'a', 2000);
  many[1999] = 'b';
  cyrt_text_add(frame, many, 2000, &number);
  cyrt_tensor in[2] = {{&number, CYTO_STRING, 0, {0}}, {loops, CYTO_I32, 1, {CHECK_COUNT(loops)}}},
              out = {&found, CYTO_BOOL, 0, {0}};
  CHECK_INT_EQ(cyrt_op_string_match(frame, in, 2, &out, 1, NULL), CYTO_OK);
  CHECK_INT_EQ(found, 1);
  return cyrt_output_alloc(frame, OUT_ANY, &zero, 1, sizeof(int32_t));
}

static void test_regular_expressions(void) {
  fixture f;
  CHECK_REQUIRE(open_fixture(&f, NULL));
  body = match_body;
  CHECK_INT_EQ(cyto_run(f.context, &f.error), CYTO_OK);
  close_fixture(&f);
}

static void test_without_a_store(void) { /* an operator called outside of a model says so */
  cyto_error error;
  cyrt_frame frame = {.workers = 1, .error = &error};
  int32_t number = 0;
  CHECK_INT_EQ(cyrt_text_add(&frame, "a", 1, &number), CYTO_OUT_OF_MEMORY);
  CHECK(cyrt_object_at(&frame, 1) == NULL);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {
      {"inspect", test_inspect},
      {"hand_through", test_hand_through},
      {"wrong_values", test_wrong_values},
      {"run_simple", test_run_simple},
      {"failing_allocator", test_failing_allocator},
      {"texts", test_texts},
      {"sequences", test_sequences},
      {"versions", test_versions},
      {"long_loops", test_long_loops},
      {"optionals", test_optionals},
      {"text_that_is_no_number", test_text_that_is_no_number},
      {"regular_expressions", test_regular_expressions},
      {"without_a_store", test_without_a_store},
  };
  return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
