/* SPDX-License-Identifier: Apache-2.0 */
/* model.c - a model written by hand, as the compiler would emit it: what the runtime's tests run.
 *
 *   left [batch,4], right [batch,4], bias [4] (optional, default 0)   all float32
 *   sum = left + right + bias              [batch,4]
 *   positive = the flat indices where sum > 0   [n], of data-dependent size
 *   tag = TAG                              [] int32, tells one copy of this file from another
 *
 * sum goes through an intermediate in the arena and is computed by a parallel kernel that also adds up in its worker's
 * stripe of scratch, so that wrong worker numbers or missing tasks show. -DMODEL_FAULT=FAULT_.. makes variants that
 * must be refused.
 */
#include "cyto.h"

#include <stddef.h>

#ifndef TAG
#define TAG 1
#endif
#define FAULT_NONE 0
#define FAULT_ABI 1
#define FAULT_CPU 2
#define FAULT_QUERY 3
#define FAULT_WEIGHTS 4
#ifndef MODEL_FAULT
#define MODEL_FAULT FAULT_NONE
#endif
#ifndef MODEL_SYMBOL
#define MODEL_SYMBOL rt_model
#endif

enum { STRIPE = 64 };

static void add_kernel(const cyrt_slot *args, int64_t begin, int64_t end, int64_t worker) {
  const float *left = args[0].ptr, *right = args[1].ptr, *bias = args[2].ptr;
  float *out = args[3].ptr;
  int64_t *done = (int64_t *)args[4].ptr + worker * STRIPE;
  for (int64_t row = begin; row < end; row++) {
    for (int64_t i = row * 4; i < row * 4 + 4; i++)
      out[i] = left[i] + right[i] + (bias ? bias[i % 4] : 0);
    *done += 1;
  }
}

static void copy_kernel(const cyrt_slot *args, int64_t begin, int64_t end, int64_t worker) {
  const float *in = args[0].ptr;
  float *out = args[1].ptr;
  (void)worker;
  for (int64_t i = begin * 4; i < end * 4; i++)
    out[i] = in[i];
}

/* As of a library compiled with --profile. */
static const cyrt_profile_row add_row = {"add_kernel", "by hand", "add", "Add_0", 8, 64, 10, "batch=1", 0, 0},
                              copy_row = {"copy_kernel", "by hand", "copy", "Copy_1", 0, 32, 10, "batch=1", 1, 1};
static const cyrt_profile_row *const rows[] = {&add_row, &copy_row};
static const cyrt_profile_buffer buffers[] = {{0, 1}, {0, 0}};
static int32_t sizes(cyrt_frame *frame) {
  frame->sizes[0] = frame->syms[0] * 16;
  frame->sizes[1] = frame->workers * STRIPE * 8;
  return CYTO_OK;
}
static const cyrt_profile profile = {2, rows, 2, buffers, sizes};

static void launch(cyrt_frame *frame, const cyrt_profile_row *row, cyrt_kernel kernel, const cyrt_slot *args, int64_t n,
                   int64_t grain) {
  int64_t start = cyrt_profile_start(frame, row);
  cyrt_profile_parallel_for(frame, kernel, args, n, grain, row);
  if (start)
    cyrt_profile_stop(frame, row, start, n != 1);
}

static int32_t plan(cyrt_frame *frame) {
  int64_t batch = frame->syms[0];
  if (batch == 13)
    return CYTO_RUNTIME_FAILURE; /* without a text: the runtime must give one */
  if (batch > (int64_t)1 << 44)
    return cyrt_fail(frame, CYTO_OUT_OF_MEMORY, "batch %lld is too large", (long long)batch);
  frame->offsets[0] = 0;
  frame->offsets[1] = ((uint64_t)batch * 16 + 63) / 64 * 64;
  frame->arena_bytes = frame->offsets[1] + (uint64_t)frame->workers * STRIPE * 8;
  frame->outputs[0].dims[0] = batch;
  frame->outputs[0].dims[1] = 4;
  return CYTO_OK;
}

static int32_t find_positive(cyrt_frame *frame, const float *sum, int64_t count) {
  int64_t found = 0;
  int32_t status = cyrt_slot_alloc(frame, 0, count * 8);
  if (status)
    return status;
  int64_t *list = frame->dynamic[0].ptr;
  for (int64_t i = 0; i < count; i++)
    if (sum[i] > 0)
      list[found++] = i;
  frame->syms[1] = found;
  if ((status = cyrt_output_alloc(frame, 1, &found, 1, 8)))
    return status;
  for (int64_t i = 0; i < found; i++)
    ((int64_t *)frame->outputs[1].ptr)[i] = list[i];
  return CYTO_OK;
}

static int32_t run(cyrt_frame *frame) {
  int64_t batch = frame->syms[0], rows = 0;
  int64_t *done = (int64_t *)(void *)(frame->arena + frame->offsets[1]);
  cyrt_slot add[] = {{.ptr = (void *)frame->inputs[0]},
                     {.ptr = (void *)frame->inputs[1]},
                     {.ptr = (void *)frame->inputs[2]},
                     {.ptr = frame->arena + frame->offsets[0]},
                     {.ptr = done}};
  cyrt_slot copy[] = {{.ptr = frame->arena + frame->offsets[0]}, {.ptr = frame->outputs[0].ptr}};
  for (int64_t w = 0; w < frame->workers; w++)
    done[w * STRIPE] = 0;
  launch(frame, &add_row, add_kernel, add, batch, 1);
  launch(frame, &copy_row, copy_kernel, copy, batch, 3);
  for (int64_t w = 0; w < frame->workers; w++)
    rows += done[w * STRIPE];
  if (rows != batch)
    return cyrt_fail(frame, CYTO_RUNTIME_FAILURE, "%lld rows of %lld computed", (long long)rows, (long long)batch);
  *(int32_t *)frame->outputs[2].ptr = TAG;
  return find_positive(frame, frame->outputs[0].ptr, batch * 4);
}

static const char *const sum_texts[] = {"batch", ""};
static const int64_t matrix_dims[] = {-1, 4}, bias_dims[] = {4}, out_dims[] = {-1, 4}, list_dims[] = {-1};
static const cyrt_port inputs[] = {{"left", CYTO_F32, 2, matrix_dims, 0, NULL, 0, NULL, 0, 0},
                                   {"right", CYTO_F32, 2, matrix_dims, 0, NULL, 0, NULL, 0, 0},
                                   {"bias", CYTO_F32, 1, bias_dims, CYRT_PORT_OPTIONAL, NULL, 0, NULL, 0, 0}};
static const cyrt_port outputs[] = {{"sum", CYTO_F32, 2, out_dims, 0, NULL, 1, sum_texts, 0, 0},
                                    {"positive", CYTO_I64, 1, list_dims, CYRT_PORT_DYNAMIC, NULL, 0, NULL, 0, 0},
                                    {"tag", CYTO_I32, 0, NULL, 0, NULL, 0, NULL, 0, 0}};
static const char *const symbols[] = {"batch", ""};
static const cyrt_metadata metadata[] = {{"labels", "cat"}, {"rate", "16000"}, {"labels", "cat,dog"}};

CYTO_API const cyrt_model MODEL_SYMBOL;
const cyrt_model MODEL_SYMBOL = {
    .abi = MODEL_FAULT == FAULT_ABI ? 999 : CYTO_ABI_VERSION,
    .name = "by hand",
    .target = "x86-64",
    .features = MODEL_FAULT == FAULT_CPU ? "sse2,avx9000" : "",
    .compiler = "none",
    .n_inputs = 3,
    .n_outputs = 3,
    .inputs = inputs,
    .outputs = outputs,
    .n_syms = 2,
    .n_input_syms = 1,
    .sym_names = symbols,
    .n_offsets = 2,
    .n_dynamic = 1,
    .weights_bytes = MODEL_FAULT == FAULT_WEIGHTS ? 100 : 0,
    .weights_file = MODEL_FAULT == FAULT_WEIGHTS ? "rt_no_such.weights" : NULL,
    .plan = plan,
    .run = run,
    .n_metadata = 3,
    .metadata = metadata,
    .profile = &profile,
};

#ifdef PLUGIN_RUN /* as generated code has it */
CYTO_API int32_t PLUGIN_RUN(cyto_context **cache, const void *const *inputs, const int64_t *symbols,
                            void *const *outputs, cyto_error *error);
int32_t PLUGIN_RUN(cyto_context **cache, const void *const *inputs, const int64_t *symbols, void *const *outputs,
                   cyto_error *error) {
  return (int32_t)cyto_run_simple(&MODEL_SYMBOL, cache, inputs, symbols, outputs, error);
}
#endif

#if MODEL_FAULT != FAULT_QUERY
CYTO_API const cyrt_model *cyto_model_query(uint32_t version);
const cyrt_model *cyto_model_query(uint32_t version) {
  return version == MODEL_SYMBOL.abi || MODEL_FAULT == FAULT_ABI ? &MODEL_SYMBOL : NULL;
}
#endif
