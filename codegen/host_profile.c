/* SPDX-License-Identifier: Apache-2.0 */
/* host_profile.c - code that records the time of every step, for cytoc --profile.
 *
 * A launch, or a call of an operator of the runtime, gets a row (cyrt_profile_row of cyto_abi.h): a constant of the host
 * module with what --explain says of it. The code asks the runtime for the time in front of the step and hands it over
 * behind it, both only while the model is recorded. cyrt_model refers to the table of rows, to the lifetimes of the
 * arena's parts, and to a function that computes their sizes. Floors are counted in cycles, so the library is the same
 * wherever it is compiled. A step with other sizes than those that it was computed for says so.
 */
#include "codegen/host_int.h"
#include "runtime/cyrt.h"

#include <stdlib.h>

/* "batch=1, seq=64" */
static const char *assumed_text(cy_host *h, cy_launch_facts facts) {
  const char *text = "";
  for (uint32_t i = 0; i < facts.n_assumed; i++) {
    const cy_sym_info *s = cy_sym_of(h->g, facts.assumed[i]);
    const char *name = s->kind == CY_SYM_INPUT ? cy_str_text(h->g, s->name) : "a size that depends on data";
    text = cy_arena_printf(cy_graph_arena(h->g), "%s%s%s=%lld", text, *text ? ", " : "", name,
                           (long long)cy_size_assumed(h->build, facts.assumed[i]));
  }
  return text;
}

static LLVMValueRef row_create(cy_host *h, cy_launch_facts facts, const cy_step *s, const cy_kernel_plan *plan) {
  cy_cg *cg = h->cg;
  LLVMValueRef fields[] = {cy_host_text(h, plan ? plan->symbol : s->call),
                           cy_host_text(h, plan ? plan->algorithm : "runtime"),
                           cy_host_text(h, facts.ops),
                           cy_host_text(h, facts.node),
                           LLVMConstReal(cg->f64, facts.flops),
                           LLVMConstReal(cg->f64, facts.bytes),
                           LLVMConstReal(cg->f64, facts.floor),
                           cy_host_text(h, assumed_text(h, facts)),
                           cy_i64(cg, h->n_profile),
                           cy_i64(cg, s->position)};
  return cy_host_constant(h, LLVMConstStructInContext(cg->ctx, fields, sizeof fields / sizeof fields[0], 0));
}

/* Not 0 where a size is not the one that the row is for. */
static LLVMValueRef other_sizes(cy_host *h, cy_launch_facts facts) {
  cy_cg *cg = h->cg;
  LLVMValueRef other = NULL;
  for (uint32_t i = 0; i < facts.n_assumed; i++) {
    LLVMValueRef assumed = cy_i64(cg, cy_size_assumed(h->build, facts.assumed[i]));
    LLVMValueRef differs = cy_icmp(cg, LLVMIntNE, cy_host_sym(h, facts.assumed[i]), assumed);
    other = other ? LLVMBuildOr(cg->b, other, differs, "") : differs;
  }
  return other ? LLVMBuildZExt(cg->b, other, cg->i64, "") : cy_i64(cg, 0);
}

/* A call has no kernel whose work could be counted. */
static cy_launch_facts call_facts(cy_host *h, const cy_step *s) {
  const char *node = s->node ? cy_str_text(h->g, cy_node_of(h->g, s->node)->origin.name) : "";
  return (cy_launch_facts){.ops = s->call, .node = node};
}

static LLVMValueRef call_start(cy_host *h, const char *name, LLVMValueRef row) {
  LLVMTypeRef params[2] = {h->cg->ptr, h->cg->ptr};
  LLVMValueRef args[2] = {h->fn.frame, row};
  return cy_call(h->cg, cy_host_declare(h, name, h->cg->i64, params, 2, false), args, 2);
}

/* The same where there is a recorder, else 0: steps are not to pay for a call while nothing is recorded. */
static LLVMValueRef start_if_recorded(cy_host *h, LLVMValueRef row) {
  cy_cg *cg = h->cg;
  LLVMValueRef context = cy_host_field(h, cg->ptr, h->fn.frame, offsetof(cyrt_frame, context));
  LLVMValueRef recorder = cy_host_field(h, cg->ptr, context, offsetof(cyrt_context_head, recorder));
  LLVMBasicBlockRef from[2] = {LLVMGetInsertBlock(cg->b)};
  LLVMValueRef value[2] = {cy_i64(cg, 0)}, recorded = LLVMBuildIsNotNull(cg->b, recorder, "");
  cy_if branch;
  cy_if_begin(cg, &branch, recorded);
  cy_if_rare(cg, &branch);
  value[1] = call_start(h, "cyrt_profile_start", row);
  from[1] = LLVMGetInsertBlock(cg->b);
  cy_if_end(cg, &branch);
  LLVMValueRef start = LLVMBuildPhi(cg->b, cg->i64, "");
  LLVMAddIncoming(start, value, from, 2);
  return start;
}

cy_host_timed cy_host_profile_start(cy_host *h, const cy_step *s, const cy_kernel_plan *plan) {
  cy_host_timed timed = {0};
  if (!h->build->o->profile)
    return timed;
  if (h->n_profile == h->profile_cap) {
    h->profile_cap = h->profile_cap * 2 + 64;
    h->profile = realloc(h->profile, h->profile_cap * sizeof *h->profile);
    if (!h->profile)
      cy_no_memory();
  }
  timed.facts = plan ? cy_launch_explain(h->build, s, plan) : call_facts(h, s);
  timed.on_device = plan && h->build->machine->caps.device;
  timed.row = row_create(h, timed.facts, s, plan);
  h->profile[h->n_profile++] = timed.row;
  timed.start = timed.on_device ? call_start(h, "cyrt_cuda_profile_start", timed.row) : start_if_recorded(h, timed.row);
  return timed;
}

void cy_host_profile_stop(cy_host *h, const cy_host_timed *timed) {
  cy_cg *cg = h->cg;
  if (!timed->row)
    return;
  LLVMTypeRef params[4] = {cg->ptr, cg->ptr, cg->i64, cg->i64};
  const char *name = timed->on_device ? "cyrt_cuda_profile_stop" : "cyrt_profile_stop";
  LLVMValueRef fn = cy_host_declare(h, name, cg->voidt, params, 4, false);
  cy_if branch;
  cy_if_begin(cg, &branch, cy_icmp(cg, LLVMIntNE, timed->start, cy_i64(cg, 0)));
  cy_if_rare(cg, &branch);
  LLVMValueRef args[4] = {h->fn.frame, timed->row, timed->start, other_sizes(h, timed->facts)};
  cy_call(cg, fn, args, 4);
  cy_if_end(cg, &branch);
}

/* ---- memory ---- */

static bool in_arena(const cy_buffer *b) { return b->kind == CY_BUF_ARENA && b->first >= 0; }

/* i32 sizes(frame): the bytes of the arena's parts to frame->sizes. */
static LLVMValueRef emit_sizes(cy_host *h) {
  cy_host_state state = cy_host_enter(h, "sizes");
  LLVMValueRef fn = h->cg->fn, to = cy_host_field(h, h->cg->ptr, h->fn.frame, offsetof(cyrt_frame, sizes));
  int64_t n = 0;
  for (const cy_buffer *b = h->p->buffers; b < h->p->buffers + h->p->nbuffers; b++)
    if (in_arena(b))
      cy_store(h->cg, cy_host_size(h, b->bytes), cy_gepc(h->cg, to, 8 * n++), 8);
  cy_host_leave(h, state);
  return fn;
}

static LLVMValueRef lifetimes(cy_host *h, int64_t *out_n) {
  LLVMValueRef *words = malloc((2 * (size_t)h->p->nbuffers + 1) * sizeof *words);
  uint32_t n = 0;
  if (!words)
    cy_no_memory();
  for (const cy_buffer *b = h->p->buffers; b < h->p->buffers + h->p->nbuffers; b++)
    if (in_arena(b)) {
      words[n++] = cy_i64(h->cg, b->first);
      words[n++] = cy_i64(h->cg, b->last);
    }
  LLVMValueRef table = cy_host_table(h, words, n);
  free(words);
  *out_n = n / 2;
  return table;
}

LLVMValueRef cy_host_profile_table(cy_host *h) {
  cy_cg *cg = h->cg;
  int64_t n;
  LLVMValueRef buffers = lifetimes(h, &n),
               rows = cy_host_constant(h, LLVMConstArray2(cg->ptr, h->profile, h->n_profile));
  LLVMValueRef fields[5] = {cy_i64(cg, h->n_profile), rows, cy_i64(cg, n), buffers, emit_sizes(h)};
  return cy_host_constant(h, LLVMConstStructInContext(cg->ctx, fields, 5, 0));
}
