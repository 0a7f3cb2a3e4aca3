/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cudnn_plan.c - operation graphs and plans of cuDNN's backend interface, for every kind of problem.
 *
 * In: a cyrt_cuda_problem, whose kind makes the operations (cudnn_conv.c, cudnn_attention.c) by those of cudnn_make.c.
 * Out: an operation graph (what lies between operations is virtual), the engine configurations that cuDNN proposes for
 * it, an execution plan of one of them.
 */
#include "runtime/cuda/cudnn_numbers.h"
#include "runtime/cuda/cyrt_choose.h"

/* FOUND: engine configurations asked for. On sm_90 the first 27 for a convolution of f32 multiply in TF32. */
enum { NOTES = 32, FOUND = 64, UNREAD_ALIGNMENT = 256 };

const cudnn_kind *cyrt_cudnn_kind(const cyrt_cuda_problem *problem) {
  static const cudnn_kind *const kinds[CYRT_PROBLEM_KINDS] = {
      [CYRT_PROBLEM_CONV] = &cyrt_cudnn_conv,
      [CYRT_PROBLEM_CONV_TRANSPOSE] = &cyrt_cudnn_conv,
      [CYRT_PROBLEM_MATMUL] = &cyrt_cudnn_product,
      [CYRT_PROBLEM_ATTENTION] = &cyrt_cudnn_attention};
  return kinds[problem->kind];
}

cudnn_code cyrt_cudnn_graph_init(const cudnn *lib, void *handle, const cyrt_cuda_problem *problem, cudnn_graph *graph,
                                 const char **out_call) {
  *graph = (cudnn_graph){.n = 0};
  cudnn_maker m = {.lib = lib, .graph = graph};
  cudnn_descriptor ops[CUDNN_OPERATIONS];
  int n = cyrt_cudnn_kind(problem)->operations(&m, problem, ops);
  cudnn_descriptor d = cyrt_cudnn_make(&m, CUDNN_GRAPH);
  if (handle)
    cyrt_cudnn_set(&m, d, CUDNN_GRAPH_HANDLE, CUDNN_T_HANDLE, 1, &handle);
  cyrt_cudnn_set(&m, d, CUDNN_GRAPH_OPS, CUDNN_T_DESCRIPTOR, n, ops);
  graph->graph = cyrt_cudnn_finish(&m, d, "a graph's cudnnBackendFinalize");
  *out_call = m.call;
  return m.code;
}

/* ---- engines ---- */

/* Fills `engine`, which is NULL, with a configuration's; 0: cuDNN does not give it. */
static int get_engine(const cudnn *lib, cudnn_descriptor config, cudnn_descriptor *engine) {
  int64_t n = 0;
  return !lib->make(CUDNN_ENGINE, engine) && !lib->get(config, CUDNN_CONFIG_ENGINE, CUDNN_T_DESCRIPTOR, 1, &n, engine);
}

static int is_precise(const cudnn *lib, cudnn_descriptor engine, int64_t flags) {
  int32_t notes[NOTES];
  int64_t n = 0;
  int ok = !lib->get(engine, CUDNN_ENGINE_NOTES, CUDNN_T_NOTE, NOTES, &n, notes);
  for (int64_t i = 0; ok && i < n; i++) {
    int rounds = notes[i] == CUDNN_NOTE_TENSOR_CORE || notes[i] == CUDNN_NOTE_DOWN_CONVERT;
    ok = notes[i] != CUDNN_NOTE_REDUCED && notes[i] != CUDNN_NOTE_NONDETERMINISTIC &&
         !(rounds && (flags & CYRT_PROBLEM_EXACT));
  }
  return ok;
}

static uint8_t compiles(const cudnn *lib, cudnn_descriptor engine) {
  int32_t notes[NOTES];
  int64_t n = 0;
  uint8_t found = 0;
  if (!lib->get(engine, CUDNN_ENGINE_BEHAVIOUR, CUDNN_T_BEHAVIOUR, NOTES, &n, notes))
    for (int64_t i = 0; i < n; i++)
      found |= notes[i] == CUDNN_BEHAVIOUR_COMPILES;
  return found;
}

/* Keeps a configuration as a candidate if its engine is fit; else it is the caller's. */
static int keep(const cudnn *lib, const cyrt_cuda_problem *problem, cudnn_graph *graph, cudnn_descriptor config) {
  cudnn_descriptor engine = NULL;
  int fit = graph->n_candidates < CUDNN_CANDIDATES && get_engine(lib, config, &engine) &&
            is_precise(lib, engine, problem->flags);
  if (fit) {
    graph->compiles[graph->n_candidates] = compiles(lib, engine);
    graph->candidate[graph->n_candidates++] = config;
  }
  if (engine)
    lib->free(engine);
  return fit;
}

/* Adds the candidates that cuDNN finds in one of its ways. */
static void ask(cudnn_maker *m, const cyrt_cuda_problem *problem, cudnn_descriptor device, int32_t mode) {
  const cudnn *lib = m->lib;
  cudnn_descriptor h = cyrt_cudnn_make(m, CUDNN_HEURISTICS), found[FOUND];
  int64_t n = 0;
  cyrt_cudnn_set_descriptor(m, h, CUDNN_HEURISTICS_GRAPH, m->graph->graph);
  cyrt_cudnn_set_int(m, h, CUDNN_HEURISTICS_MODE, CUDNN_T_HEURISTICS_MODE, mode);
  if (device)
    cyrt_cudnn_set_descriptor(m, h, CUDNN_HEURISTICS_DEVICE, device);
  cyrt_cudnn_finish(m, h, "the heuristics' cudnnBackendFinalize");
  int made = 0;
  for (; made < FOUND && !m->code; made++) {
    found[made] = NULL;
    cyrt_cudnn_note(m, lib->make(CUDNN_ENGINE_CONFIG, &found[made]), "cudnnBackendCreateDescriptor");
  }
  if (!m->code)
    cyrt_cudnn_note(m, lib->get(h, CUDNN_HEURISTICS_RESULTS, CUDNN_T_DESCRIPTOR, FOUND, &n, found), "cudnnBackendGetAttribute");
  for (int i = 0; i < made; i++)
    if (found[i] && (m->code || i >= n || !keep(lib, problem, m->graph, found[i])))
      lib->free(found[i]);
}

cudnn_code cyrt_cudnn_graph_candidates(const cudnn *lib, const cyrt_cuda_problem *problem, cudnn_descriptor device,
                                       cudnn_graph *graph, const char **out_call) {
  static const int32_t modes[] = {CUDNN_MODE_A, CUDNN_MODE_FALLBACK};
  cudnn_maker m = {.lib = lib, .graph = graph};
  for (int i = 0; i < 2 && !graph->n_candidates && (!m.code || cyrt_cudnn_unsupported(m.code)); i++) {
    m.code = 0;
    ask(&m, problem, device, modes[i]);
  }
  *out_call = m.call;
  return m.code;
}

void cyrt_cudnn_graph_deinit(const cudnn *lib, cudnn_graph *graph) {
  for (int i = 0; i < graph->n_candidates; i++)
    lib->free(graph->candidate[i]);
  graph->n_candidates = 0;
  while (graph->n)
    lib->free(graph->made[--graph->n]);
}

/* ---- plans ---- */

cudnn_code cyrt_cudnn_plan_init(const cudnn *lib, void *handle, const cudnn_graph *graph, int32_t candidate,
                                cudnn_plan *plan) {
  int64_t n = 0;
  *plan = (cudnn_plan){.plan = NULL};
  cudnn_code code = lib->make(CUDNN_PLAN, &plan->plan);
  if (!code && handle)
    code = lib->set(plan->plan, CUDNN_PLAN_HANDLE, CUDNN_T_HANDLE, 1, &handle);
  if (!code)
    code = lib->set(plan->plan, CUDNN_PLAN_CONFIG, CUDNN_T_DESCRIPTOR, 1, &graph->candidate[candidate]);
  if (!code)
    code = lib->finish(plan->plan);
  if (!code)
    code = lib->get(plan->plan, CUDNN_PLAN_WORKSPACE, CUDNN_T_INT64, 1, &n, &plan->workspace);
  if (graph->unread) {
    plan->unread_at = (plan->workspace + UNREAD_ALIGNMENT - 1) / UNREAD_ALIGNMENT * UNREAD_ALIGNMENT;
    plan->workspace = plan->unread_at + graph->unread;
  }
  if (code && plan->plan) {
    lib->free(plan->plan);
    plan->plan = NULL;
  }
  return code;
}

cudnn_code cyrt_cudnn_plan_run(const cudnn *lib, void *handle, const cudnn_plan *plan, const cudnn_graph *graph,
                               const cyrt_cuda_problem *problem, void *const pointers[CYRT_PROBLEM_TENSORS],
                               void *workspace) {
  int64_t ids[CYRT_PROBLEM_TENSORS + CUDNN_VALUES + 1], n = 0;
  const void *used[CYRT_PROBLEM_TENSORS + CUDNN_VALUES + 1];
  cudnn_descriptor pack = NULL;
  for (int i = 0; i < CYRT_PROBLEM_TENSORS; i++)
    if (problem->tensor[i].slot >= 0) {
      ids[n] = CUDNN_FIRST_ID + i;
      used[n++] = pointers[i];
    }
  for (int i = 0; i < graph->n_values; i++) {
    ids[n] = CUDNN_FIRST_VALUE + i;
    used[n++] = &graph->value[i];
  }
  if (graph->unread) {
    ids[n] = CUDNN_UNREAD_ID;
    used[n++] = (char *)workspace + plan->unread_at;
  }
  cudnn_code code = lib->make(CUDNN_VARIANT_PACK, &pack);
  if (!code)
    code = lib->set(pack, CUDNN_PACK_IDS, CUDNN_T_INT64, n, ids);
  if (!code)
    code = lib->set(pack, CUDNN_PACK_POINTERS, CUDNN_T_POINTER, n, used);
  if (!code)
    code = lib->set(pack, CUDNN_PACK_WORKSPACE, CUDNN_T_POINTER, 1, &workspace);
  if (!code)
    code = lib->finish(pack);
  if (!code)
    code = lib->execute(handle, plan->plan, pack);
  if (pack)
    lib->free(pack);
  return code;
}
