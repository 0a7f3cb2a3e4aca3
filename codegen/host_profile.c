/* SPDX-License-Identifier: Apache-2.0 */
/* host_profile.c - code that counts the time of every launch, for cytoc --profile.
 *
 * A launch gets a row (cyrt_profile_row of cyto_abi.h): a variable of the host module with what --explain says of the
 * launch, and two counters that the runtime adds to. cyto_model_profile() returns the table of rows; it is exported by
 * shared libraries, where cyto-run --profile finds it. The floor is counted in cycles, so the library is the same
 * wherever it is compiled. A launch with other sizes than those that it was computed for says so.
 */
#include "codegen/host_int.h"

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

static LLVMValueRef row_create(cy_host *h, cy_launch_facts facts, const cy_kernel_plan *plan) {
  cy_cg *cg = h->cg;
  LLVMValueRef fields[] = {cy_host_text(h, plan->symbol),
                           cy_host_text(h, plan->algorithm),
                           cy_host_text(h, facts.ops),
                           cy_host_text(h, facts.node),
                           LLVMConstReal(cg->f64, facts.floor_cycles),
                           cy_host_text(h, assumed_text(h, facts)),
                           cy_i64(cg, 0),
                           cy_i64(cg, 0),
                           cy_i64(cg, 0)};
  LLVMValueRef data = LLVMConstStructInContext(cg->ctx, fields, sizeof fields / sizeof fields[0], 0);
  LLVMValueRef row = LLVMAddGlobal(cg->module, LLVMTypeOf(data), "");
  LLVMSetInitializer(row, data);
  LLVMSetLinkage(row, LLVMPrivateLinkage);
  return row;
}

/* row->other = 1 where a size is not the one that the floor is for. */
static void check_floor(cy_host *h, cy_launch_facts facts, LLVMValueRef row) {
  cy_cg *cg = h->cg;
  LLVMValueRef other = NULL;
  for (uint32_t i = 0; i < facts.n_assumed; i++) {
    LLVMValueRef assumed = cy_i64(cg, cy_size_assumed(h->build, facts.assumed[i]));
    LLVMValueRef differs = cy_icmp(cg, LLVMIntNE, cy_host_sym(h, facts.assumed[i]), assumed);
    other = other ? LLVMBuildOr(cg->b, other, differs, "") : differs;
  }
  if (!other)
    return;
  cy_if branch;
  cy_if_begin(cg, &branch, other);
  cy_store(cg, cy_i64(cg, 1), cy_gepc(cg, row, offsetof(cyrt_profile_row, other)), 8);
  cy_if_end(cg, &branch);
}

LLVMValueRef cy_host_profile_start(cy_host *h, const cy_step *s, const cy_kernel_plan *plan, LLVMValueRef *out_row) {
  *out_row = NULL;
  if (!h->build->o->profile)
    return NULL;
  if (h->n_profile == h->profile_cap) {
    h->profile_cap = h->profile_cap * 2 + 64;
    h->profile = realloc(h->profile, h->profile_cap * sizeof *h->profile);
    if (!h->profile)
      cy_no_memory();
  }
  cy_launch_facts facts = cy_launch_explain(h->build, s, plan);
  *out_row = h->profile[h->n_profile++] = row_create(h, facts, plan);
  check_floor(h, facts, *out_row);
  return cy_call(h->cg, cy_host_declare(h, "cyrt_profile_start", h->cg->i64, NULL, 0, false), NULL, 0);
}

void cy_host_profile_stop(cy_host *h, LLVMValueRef row, LLVMValueRef start) {
  if (!row)
    return;
  LLVMTypeRef params[2] = {h->cg->ptr, h->cg->i64};
  LLVMValueRef args[2] = {row, start};
  cy_call(h->cg, cy_host_declare(h, "cyrt_profile_stop", h->cg->voidt, params, 2, false), args, 2);
}

void cy_host_profile_table(cy_host *h) {
  cy_cg *cg = h->cg;
  if (!h->build->o->profile || h->build->o->emit != cy_emit_kind_shared(h->build->machine))
    return;
  LLVMValueRef data = LLVMConstArray2(cg->ptr, h->profile, h->n_profile);
  LLVMValueRef table = LLVMAddGlobal(cg->module, LLVMTypeOf(data), "");
  LLVMSetInitializer(table, data);
  LLVMSetGlobalConstant(table, 1);
  LLVMSetLinkage(table, LLVMPrivateLinkage);
  LLVMTypeRef params[2] = {cg->i32, cg->ptr};
  LLVMValueRef fn = cy_fn_begin(cg, CYTO_MODEL_PROFILE, cg->ptr, params, 2, 0);
  LLVMSetVisibility(fn, LLVMDefaultVisibility);
  LLVMValueRef same =
      LLVMBuildICmp(cg->b, LLVMIntEQ, LLVMGetParam(fn, 0), LLVMConstInt(cg->i32, CYTO_ABI_VERSION, 0), "");
  cy_store(cg, cy_select(cg, same, cy_i64(cg, h->n_profile), cy_i64(cg, 0)), LLVMGetParam(fn, 1), 8);
  cy_fn_end(cg, cy_select(cg, same, table, LLVMConstNull(cg->ptr)));
}
