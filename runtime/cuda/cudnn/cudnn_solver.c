/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cudnn_solver.c - cuDNN as one of the libraries that problems are offered to (cyrt_choose.h): graphs are what it is asked,
 * engine configurations its candidates, execution plans what is run. A graph that is not supported has no candidates; nor has
 * one that the library calls wrong, which the context notes. Calls that fail otherwise are errors.
 */
#include "runtime/cuda/cyrt_choose.h"

#include <stdio.h>

enum { COMPILED_PLAN = 2 }; /* as how many plans one counts that takes a second to make */

static int ready(const cuda_state *state) { return state->plans->cudnn != NULL; }

static int takes(const cyrt_cuda_problem *p) { return cyrt_cudnn_kind(p)->takes(p); }

/* Is it an answer about the graph? That a graph is wrong is remembered, for people. */
static int refused(cuda_state *state, cudnn_code code, const char *call) {
  char *text = state->plans->failed[CYRT_CUDA_CUDNN];
  if (code / 1000 != 2)
    return cyrt_cudnn_unsupported(code);
  if (!*text)
    snprintf(text, sizeof state->plans->failed[0], "%s: %s (%d)", call, state->shared->cudnn->error_name(code), code);
  return 1;
}

static int32_t ask(cuda_state *state, const cyrt_cuda_problem *p, void *const pointers[CYRT_PROBLEM_TENSORS],
                   cuda_offer *out, cyto_error *error) {
  const cudnn *lib = state->shared->cudnn;
  const char *call = NULL;
  (void)pointers;
  out->by = &cyrt_cudnn_solver;
  out->n = 0;
  out->graph = (cudnn_graph){.n = 0};
  if (p->kind == CYRT_PROBLEM_CONV_TRANSPOSE && !(p->flags & CYRT_PROBLEM_REARRANGED))
    return CYTO_OK;
  cudnn_code code = cyrt_cudnn_graph_init(lib, state->plans->cudnn, p, &out->graph, &call);
  if (!code)
    code = cyrt_cudnn_graph_candidates(lib, p, NULL, &out->graph, &call);
  out->n = code ? 0 : out->graph.n_candidates;
  return refused(state, code, call) ? CYTO_OK : (int32_t)cyrt_cudnn_check(lib, code, call, error);
}

static void forget(cuda_state *state, cuda_offer *offer) {
  cyrt_cudnn_graph_deinit(state->shared->cudnn, &offer->graph);
}

static int make(cuda_state *state, const cuda_offer *offer, int32_t candidate, cuda_plan *out) {
  *out = (cuda_plan){
      .by = &cyrt_cudnn_solver, .weight = offer->graph.compiles[candidate] ? COMPILED_PLAN : 1, .candidate = candidate};
  if (cyrt_cudnn_plan_init(state->shared->cudnn, state->plans->cudnn, &offer->graph, candidate, &out->cudnn))
    return 0;
  out->workspace = out->cudnn.workspace;
  return 1;
}

static void unmake(cuda_state *state, cuda_plan *plan) {
  if (plan->cudnn.plan)
    state->shared->cudnn->free(plan->cudnn.plan);
}

static int32_t run(cuda_state *state, const cuda_plan *plan, const cuda_offer *offer, const cyrt_cuda_problem *p,
                   void *const pointers[CYRT_PROBLEM_TENSORS], void *workspace, cyto_error *error) {
  const cudnn *lib = state->shared->cudnn;
  cudnn_code code = cyrt_cudnn_plan_run(lib, state->plans->cudnn, &plan->cudnn, &offer->graph, p, pointers, workspace);
  return (int32_t)cyrt_cudnn_check(lib, code, "cudnnBackendExecute", error);
}

const cuda_solver cyrt_cudnn_solver = {"cuDNN", 1, ready, takes, ask, forget, make, unmake, run};
