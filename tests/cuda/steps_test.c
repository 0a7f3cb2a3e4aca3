/* SPDX-License-Identifier: Apache-2.0 */
/* steps_test.c - decoding on CUDA: steps whose lengths differ replay one graph, with at most five calls of the driver each;
 * without a GPU, by the mock driver, which counts calls and runs the kernels.
 *
 * decoder.onnx is a decoder of two layers whose caches grow (tests/grown/llama.py made it: hidden=16, heads=2, kept=1, wide=16,
 * words=20). The CPU target's results are what is expected.
 */
#define _GNU_SOURCE
#include "tests/cuda/models.h"

#include <math.h>

enum { CACHES = 4, SIZE = 8, WORDS = 20, LONGEST = 160, CALLS = 5, FIRST = 50 };
enum { IDS, MASK, POSITIONS, PAST };

typedef struct sequence {
  cyto_model *model;
  cyto_context *context;
  int64_t ids[LONGEST], mask[LONGEST], positions[LONGEST], length;
  float cache[CACHES][LONGEST * SIZE], longer[CACHES][LONGEST * SIZE], logits[LONGEST * WORDS];
  int keeps;
} sequence;

/* What an application does with the driver itself. */
static struct {
  int (*push)(void *), (*pop)(void **), (*alloc)(uint64_t *, size_t), (*release)(uint64_t);
  int (*stream_create)(void **, unsigned), (*stream_destroy)(void *), (*wait)(void *);
} cu;

static void open_driver(void) {
  static const char *const names[] = {"cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuMemAlloc_v2",      "cuMemFree_v2",
                                      "cuStreamCreate",      "cuStreamDestroy_v2", "cuStreamSynchronize"};
  for (int i = 0; i < CHECK_COUNT(names); i++) {
    void *symbol = dlsym(driver, names[i]);
    memcpy((void **)&cu + i, &symbol, sizeof symbol);
  }
}

static void leave_driver(void) {
  void *context;
  cu.pop(&context);
  CHECK_INT_EQ(mock->blocks + mock->pinned + mock->streams + mock->modules + mock->graphs, 0);
}

/* Several contexts may have one model. room: kept caches have this at first; 0: they are bound for each step. */
static int sequence_open(sequence *s, const char *library, int64_t room, const cyto_options *options) {
  cyto_error error;
  memset(s, 0, sizeof *s);
  s->keeps = room > 0;
  if ((s->model = load(library)) && !cyto_context_create(s->model, options, &s->context, &error) &&
      (!room || !cyto_context_keep(s->context, room, &error)))
    return 1;
  CHECK_FAIL("%s: %s", library, error.message);
  return 0;
}

static void sequence_close(sequence *s) {
  cyto_context_destroy(s->context);
  cyto_model_unload(s->model);
}

static int bind_all(sequence *s, int64_t fresh, cyto_error *error) {
  const int64_t rows[2] = {1, fresh}, all[2] = {1, s->length + fresh}, past[4] = {1, 1, s->length, SIZE};
  int64_t first = s->length;
  for (int64_t i = 0; i < fresh; i++) {
    s->ids[first + i] = (first + i) * 7 % WORDS;
    s->positions[first + i] = first + i;
    s->mask[first + i] = 1;
  }
  if (cyto_bind_input(s->context, IDS, CYTO_I64, 2, rows, s->ids + first, error) ||
      cyto_bind_input(s->context, MASK, CYTO_I64, 2, all, s->mask, error) ||
      cyto_bind_input(s->context, POSITIONS, CYTO_I64, 2, rows, s->positions + first, error))
    return 1;
  for (int i = 0; i < CACHES && (!s->keeps || !first); i++)
    if (cyto_bind_input(s->context, PAST + i, CYTO_F32, 4, past, first ? s->cache[i] : NULL, error))
      return 1;
  for (int i = 0; i < CACHES && !s->keeps; i++)
    if (cyto_bind_output(s->context, 1 + i, s->longer[i], sizeof s->longer[i], error))
      return 1;
  return 0;
}

/* `fresh` more words; the logits of the last one. */
static const float *step(sequence *s, int64_t fresh) {
  cyto_error error;
  cyto_tensor out;
  if (bind_all(s, fresh, &error) || cyto_run(s->context, &error) || cyto_output(s->context, 0, &out, &error)) {
    CHECK_FAIL("behind %d: %s", (int)s->length, error.message);
    return NULL;
  }
  memcpy(s->logits, out.data, out.bytes);
  for (int i = 0; i < CACHES && !s->keeps; i++)
    if (!cyto_output(s->context, 1 + i, &out, &error))
      memcpy(s->cache[i], out.data, out.bytes);
  s->length += fresh;
  return s->logits + (fresh - 1) * WORDS;
}

static int differ(const float *got, const float *want, int64_t behind) {
  for (int i = 0; got && want && i < WORDS; i++)
    if (!(fabsf(got[i] - want[i]) < 1e-4f)) {
      CHECK_FAIL("logit %d behind %d words: %g, not %g", i, (int)behind, (double)got[i], (double)want[i]);
      return 1;
    }
  return !got || !want;
}

/* n words by both; calls that the steps took at most from the `from`-th on. */
static int decode(sequence *cuda, sequence *cpu, int n, int from) {
  int max = 0;
  for (int i = 0; i < n; i++) {
    int before = mock->calls;
    const float *got = step(cuda, 1);
    max = i >= from && mock->calls - before > max ? mock->calls - before : max;
    if (differ(got, step(cpu, 1), cuda->length - 1))
      return -1;
  }
  return max;
}

/* Caches that the context keeps: from 50 words to 90, through the ends of two ranges (64, 128) and of their room. */
static void test_kept(void) {
  static sequence cuda, cpu;
  open_driver();
  cu.push((void *)40);
  CHECK_REQUIRE(sequence_open(&cuda, "cuda.so", 100, NULL) && sequence_open(&cpu, "cpu.so", 100, NULL));
  CHECK(!differ(step(&cuda, FIRST), step(&cpu, FIRST), 0) || 1);
  int recordings = mock->recordings, replays = mock->replays;
  CHECK(decode(&cuda, &cpu, 2, 2) == 0); /* one by one, then recorded */
  CHECK_INT_EQ(mock->recordings - recordings, 1);
  CHECK_INT_EQ(decode(&cuda, &cpu, 12, 0), CALLS); /* up to 63 words before */
  CHECK_INT_EQ(mock->recordings - recordings, 1);
  CHECK_INT_EQ(decode(&cuda, &cpu, 20, 1), CALLS);
  CHECK_INT_EQ(mock->recordings - recordings, 2);
  CHECK_INT_EQ(mock->replays - replays, 33);
  decode(&cuda, &cpu, 40, 40);                    /* room for 100 was too little */
  CHECK_INT_EQ(mock->recordings - recordings, 3); /* (room for 100 ends the second range) */
  cyto_error error;
  CHECK_INT_EQ(cyto_context_rewind(cuda.context, 70, &error) + cyto_context_rewind(cpu.context, 70, &error), 0);
  cuda.length = cpu.length = 70;
  decode(&cuda, &cpu, 20, 20);
  CHECK(mock->recordings - recordings <= 5);
  sequence_close(&cuda);
  sequence_close(&cpu);
  leave_driver();
}

/* Steps of fixed sizes, as models with StaticCache have them: the second is recorded, those behind it are replayed. */
static void test_fixed(void) {
  enum { ROWS = 5, COLUMNS = 3, LOOKUPS = 4 };
  static float table[ROWS * COLUMNS];
  static int64_t rows[LOOKUPS] = {1, 2, 3, 4};
  const int64_t table_dims[2] = {ROWS, COLUMNS}, rows_dims[1] = {LOOKUPS};
  cyto_context *context = NULL;
  cyto_error error;
  cyto_tensor out;
  open_driver();
  cu.push((void *)40);
  cyto_model *model = load("lookups.so");
  CHECK_REQUIRE(model && !cyto_context_create(model, NULL, &context, &error));
  for (int i = 0; i < 4; i++)
    CHECK_INT_EQ(i % 3 ? cyto_bind_input(context, i, CYTO_I64, 1, rows_dims, rows, &error)
                       : cyto_bind_input(context, i, CYTO_F32, 2, table_dims, table, &error),
                 0);
  for (int i = 0; i < 20; i++) {
    int before = mock->calls;
    table[3] = (float)i;
    if (cyto_run(context, &error) || cyto_output(context, 0, &out, &error))
      CHECK_FAIL("%s", error.message);
    else
      CHECK(*(float *)out.data == 2 * (float)i);
    CHECK(i < 2 || mock->calls - before <= CALLS);
  }
  cyto_context_destroy(context);
  cyto_model_unload(model);
  leave_driver();
}

/* Caches that are inputs and outputs in memory of the host. */
static void test_bound(void) {
  static sequence cuda, cpu;
  open_driver();
  cu.push((void *)40);
  CHECK_REQUIRE(sequence_open(&cuda, "cuda.so", 0, NULL) && sequence_open(&cpu, "cpu.so", 0, NULL));
  CHECK(!differ(step(&cuda, 3), step(&cpu, 3), 0) || 1);
  int recordings = mock->recordings;
  decode(&cuda, &cpu, 2, 2);
  CHECK_INT_EQ(decode(&cuda, &cpu, 20, 0), CALLS);
  CHECK_INT_EQ(mock->recordings - recordings, 1);
  sequence_close(&cuda);
  sequence_close(&cpu);
  leave_driver();
}

/* Kernels of sm_90 begin while those in front of them end, in recordings as well. */
static void test_programmatic(void) {
  static sequence cuda, cpu;
  int capability = mock->capability, programmatic = mock->programmatic, launches = mock->launches;
  open_driver();
  cu.push((void *)40);
  CHECK_INT_EQ(programmatic, 0); /* on none of the others */
  mock->capability = 90;
  CHECK_REQUIRE(sequence_open(&cuda, "cuda90.so", 100, NULL) && sequence_open(&cpu, "cpu.so", 100, NULL));
  CHECK(!differ(step(&cuda, 3), step(&cpu, 3), 0) || 1);
  CHECK(decode(&cuda, &cpu, 5, 3) <= CALLS);
  programmatic = mock->programmatic - programmatic;
  launches = (mock->launches - launches) / 6; /* the last 3 steps replayed what the second recorded */
  CHECK(programmatic >= 3 * (launches - 1) - 3);
  sequence_close(&cuda);
  sequence_close(&cpu);
  mock->capability = capability;
  leave_driver();
}

/* Other batches, several words at once and a driver that records nothing give the same; lengths that do not move alike. */
static void test_otherwise(void) {
  static sequence cuda, cpu;
  open_driver();
  cu.push((void *)40);
  CHECK_REQUIRE(sequence_open(&cuda, "cuda.so", 8, NULL) && sequence_open(&cpu, "cpu.so", 8, NULL));
  static const int64_t fresh[] = {3, 1, 1, 2, 2, 2, 5, 1, 1, 1, 30, 1, 1, 1, 20, 1, 1, 1};
  for (int i = 0; i < CHECK_COUNT(fresh); i++) {
    int64_t behind = cuda.length;
    const float *got = step(&cuda, fresh[i]), *want = step(&cpu, fresh[i]);
    CHECK(!differ(got, want, behind));
  }
  mock->capture_code[2] = 2; /* no memory for graphs */
  cyto_error error;
  CHECK_INT_EQ(cyto_context_rewind(cuda.context, 0, &error) + cyto_context_rewind(cpu.context, 0, &error), 0);
  cuda.length = cpu.length = 0;
  for (int i = 0; i < 6; i++) {
    const float *got = step(&cuda, i ? 1 : 7), *want = step(&cpu, i ? 1 : 7);
    CHECK(!differ(got, want, i));
  }
  mock->capture_code[2] = 0;
  sequence_close(&cuda);
  sequence_close(&cpu);
  leave_driver();
}

/* Steps on the application's stream and memory, which nobody waits for between them: each has sizes of its own. */
static void test_unwaited(void) {
  enum { STEPS = 8, BLOCK = 1 << 12, TENSORS = 4 };
  static sequence cuda, cpu;
  uint64_t at[TENSORS];
  void *stream;
  cyto_error error;
  open_driver();
  cu.push((void *)40);
  for (int i = 0; i < TENSORS; i++)
    cu.alloc(&at[i], BLOCK);
  cu.stream_create(&stream, 1);
  mock->unpoisoned = 1; /* else what is found looks like an error, which the next step waits for */
  CHECK_REQUIRE(sequence_open(&cpu, "cpu.so", 100, NULL) &&
                sequence_open(&cuda, "cuda.so", 100, &(cyto_options){.device_memory = 1, .stream = stream}));
  int64_t *ids = (int64_t *)at[IDS], *mask = (int64_t *)at[MASK], *positions = (int64_t *)at[POSITIONS];
  const int64_t none[4] = {1, 1, 0, SIZE};
  for (int i = 0; i < CACHES; i++)
    CHECK_INT_EQ(cyto_bind_input(cuda.context, PAST + i, CYTO_F32, 4, none, NULL, &error), 0);
  for (int i = 0; i < LONGEST; i++)
    ids[i] = i * 7 % WORDS, mask[i] = 1, positions[i] = i;
  for (int i = 0; i < STEPS; i++) {
    const int64_t one[2] = {1, 1}, all[2] = {1, i + 1};
    int before = mock->calls;
    if (cyto_bind_input(cuda.context, IDS, CYTO_I64, 2, one, ids, &error) ||
        cyto_bind_input(cuda.context, MASK, CYTO_I64, 2, all, mask, &error) ||
        cyto_bind_input(cuda.context, POSITIONS, CYTO_I64, 2, one, positions, &error) ||
        cyto_bind_output(cuda.context, 0, (void *)(at[3] + 1024 * (uint64_t)(i % 2)), BLOCK - 1024, &error) ||
        cyto_run(cuda.context, &error))
      CHECK_FAIL("step %d: %s", i, error.message);
    if (i >= 5)
      CHECK(mock->calls - before <= CALLS + 2 * TENSORS); /* current? captured? sizes, the graph; where they lie */
  }
  CHECK_INT_EQ(cu.wait(stream), 0);
  for (int i = 0; i < STEPS; i++) {
    cyto_tensor out;
    const int64_t one[2] = {1, 1}, all[2] = {1, i + 1};
    for (int k = 0; !i && k < CACHES; k++)
      cyto_bind_input(cpu.context, PAST + k, CYTO_F32, 4, none, NULL, &error);
    if (cyto_bind_input(cpu.context, IDS, CYTO_I64, 2, one, ids, &error) ||
        cyto_bind_input(cpu.context, MASK, CYTO_I64, 2, all, mask, &error) ||
        cyto_bind_input(cpu.context, POSITIONS, CYTO_I64, 2, one, positions, &error) || cyto_run(cpu.context, &error) ||
        cyto_output(cpu.context, 0, &out, &error))
      CHECK_FAIL("step %d: %s", i, error.message);
    else if (i >= STEPS - 2)
      differ((float *)(at[3] + 1024 * (uint64_t)(i % 2)), out.data, i);
  }
  mock->unpoisoned = 0;
  sequence_close(&cuda);
  sequence_close(&cpu);
  cu.stream_destroy(stream);
  for (int i = 0; i < TENSORS; i++)
    cu.release(at[i]);
  leave_driver();
}

/* Leaves other bytes behind where the stack of a run will be. */
static __attribute__((noinline)) int spoil_stack(int with) {
  volatile char bytes[1 << 16];
  memset((char *)bytes, with, sizeof bytes);
  return bytes[with];
}

/* Products by tensor maps, whose descriptions lie on the stack and are not filled to their ends, are recorded once. */
static void test_tensor_maps(void) {
  enum { WIDE = 128 };
  static float row[WIDE];
  const int64_t one[2] = {1, WIDE}, none[2] = {0, WIDE};
  int capability = mock->capability, maps = mock->maps, recordings = mock->recordings;
  cyto_context *context = NULL;
  cyto_error error;
  open_driver();
  cu.push((void *)40);
  mock->capability = 90;
  cyto_model *model = load("maps.so");
  CHECK_REQUIRE(model && !cyto_context_create(model, NULL, &context, &error));
  CHECK_INT_EQ(cyto_context_keep(context, 40, &error), 0);
  CHECK_INT_EQ(cyto_bind_input(context, 1, CYTO_F32, 2, none, NULL, &error), 0);
  for (int i = 0; i < 14; i++) {
    spoil_stack(i + 1);
    if (cyto_bind_input(context, 0, CYTO_F32, 2, one, row, &error) || cyto_run(context, &error))
      CHECK_FAIL("step %d: %s", i, error.message);
  }
  CHECK(mock->maps - maps >= 2);
  CHECK_INT_EQ(mock->recordings - recordings, 1);
  cyto_context_destroy(context);
  cyto_model_unload(model);
  mock->capability = capability;
  leave_driver();
}

static const check_test tests[] = {{"*open mock", open_mock},           {"kept caches", test_kept},
                                   {"bound caches", test_bound},        {"fixed sizes", test_fixed},
                                   {"otherwise", test_otherwise},       {"unwaited", test_unwaited},
                                   {"programmatic", test_programmatic}, {"tensor maps", test_tensor_maps}};

static int compile(const char *model, const char *library, const char *options) {
  char command[3 * PATH_MAX];
  snprintf(command, sizeof command, "%s/cytoc tests/cuda/data/%s.onnx -o %s %s", build, model, path_of(library), options);
  return system(command);
}

static int compile_maps(void) {
  static const char text[] = "graph @step(%x: f32[n,128], %past: f32[p,128]) {\n  @w = const f16[128,4864] data(7)\n"
                             "  %h = cast %x : f16[n,128]\n  %m = matmul %h, @w : f16[n,4864]\n"
                             "  %y = cast %m : f32[n,4864]\n  %all = concat %past, %x {axis=0} : f32[p+n,128]\n"
                             "  return %y, %all\n}\n";
  write_file("maps.txt", text, sizeof text - 1);
  return run_command("%s/cytoc %s -o %s --target=sm_90a --cudnn=off", build, path_of("maps.txt"), path_of("maps.so"));
}

static int prepare(void) {
  return compile("decoder", "cuda.so", "--target=sm_80") || compile("decoder", "cuda90.so", "--target=sm_90") ||
         compile("decoder", "cpu.so", "") || compile("lookups", "lookups.so", "--target=sm_80") || compile_maps();
}

int main(int argc, char **argv) { return models_main(argc, argv, tests, CHECK_COUNT(tests), prepare); }
