/* SPDX-License-Identifier: Apache-2.0 */
/* host.c - what code of the host program is built of: functions of a frame, errors, pointers to buffers, slots of kernels,
 * checks of sizes and values.
 *
 * In: the module being filled (cy_host). Out: instructions in the open function. All of it works on a cyrt_frame
 * (runtime/cyto_abi.h) and keeps no state of its own. Layouts of the ABI's structs are taken by offsetof: host and target
 * are both of 64 bits, little-endian.
 */
#include "codegen/host_int.h"

#include <string.h>

enum { STATUS_SHAPE_MISMATCH = 2 }; /* CYTO_SHAPE_MISMATCH of cyto.h */

/* ---- small helpers ---- */

LLVMValueRef cy_host_declare(cy_host *h, const char *name, LLVMTypeRef ret, const LLVMTypeRef *params, unsigned n,
                             bool variadic) {
  LLVMValueRef fn = LLVMGetNamedFunction(h->cg->module, name);
  if (fn)
    return fn;
  fn = LLVMAddFunction(h->cg->module, name, LLVMFunctionType(ret, (LLVMTypeRef *)params, n, variadic));
  LLVMSetVisibility(fn, LLVMHiddenVisibility);
  return fn;
}

LLVMValueRef cy_host_constant(cy_host *h, LLVMValueRef data) {
  LLVMValueRef g = LLVMAddGlobal(h->cg->module, LLVMTypeOf(data), "");
  LLVMSetInitializer(g, data);
  LLVMSetGlobalConstant(g, 1);
  LLVMSetLinkage(g, LLVMPrivateLinkage);
  return g;
}

LLVMValueRef cy_host_text(cy_host *h, const char *text) {
  LLVMValueRef g = cy_host_constant(h, LLVMConstStringInContext(h->cg->ctx, text, (unsigned)strlen(text), 0));
  LLVMSetUnnamedAddress(g, LLVMGlobalUnnamedAddr);
  return g;
}

LLVMValueRef cy_host_external(cy_host *h, const char *symbol) {
  LLVMValueRef g = LLVMGetNamedGlobal(h->cg->module, symbol);
  if (g)
    return g;
  g = LLVMAddGlobal(h->cg->module, h->cg->i8, symbol);
  LLVMSetVisibility(g, LLVMHiddenVisibility);
  return g;
}

const char *cy_host_symbol(const cy_host *h, const char *suffix) {
  return cy_arena_printf(cy_graph_arena(h->g), "%s%s", h->build->name, suffix);
}

LLVMValueRef cy_host_table(cy_host *h, LLVMValueRef *words, uint32_t n) {
  return cy_host_constant(h, LLVMConstArray2(h->cg->i64, words, n));
}

/* ---- functions ---- */

static void load_bases(cy_host *h) {
  LLVMTypeRef ptr = h->cg->ptr;
  cy_host_fn *f = &h->fn;
  f->frame = LLVMGetParam(h->cg->fn, 0);
  f->inputs = cy_host_field(h, ptr, f->frame, offsetof(cyrt_frame, inputs));
  f->outputs = cy_host_field(h, ptr, f->frame, offsetof(cyrt_frame, outputs));
  f->weights = cy_host_field(h, ptr, f->frame, offsetof(cyrt_frame, weights));
  f->arena = cy_host_field(h, ptr, f->frame, offsetof(cyrt_frame, arena));
  f->syms = cy_host_field(h, ptr, f->frame, offsetof(cyrt_frame, syms));
  f->offsets = cy_host_field(h, ptr, f->frame, offsetof(cyrt_frame, offsets));
  f->dynamic = cy_host_field(h, ptr, f->frame, offsetof(cyrt_frame, dynamic));
}

cy_host_state cy_host_enter(cy_host *h, const char *name) {
  cy_host_state state = {cy_fn_save(h->cg), h->fn};
  cy_fn_begin(h->cg, name, h->cg->i32, &h->cg->ptr, 1, CY_FN_INTERNAL | CY_FN_NOINLINE | CY_FN_SMALL);
  memset(&h->fn, 0, sizeof h->fn);
  cy_host_forget(h);
  load_bases(h);
  return state;
}

void cy_host_leave(cy_host *h, cy_host_state state) {
  cy_fn_end(h->cg, LLVMConstInt(h->cg->i32, 0, 0));
  if (h->fn.fail) {
    LLVMPositionBuilderAtEnd(h->cg->b, h->fn.fail);
    cy_fn_end(h->cg, h->fn.fail_code);
  }
  h->fn = state.fn;
  cy_fn_restore(h->cg, state.cg);
  cy_host_forget(h);
}

void cy_host_check(cy_host *h, LLVMValueRef code) {
  cy_cg *cg = h->cg;
  LLVMBasicBlockRef here = LLVMGetInsertBlock(cg->b);
  if (!h->fn.fail) {
    h->fn.fail = LLVMAppendBasicBlockInContext(cg->ctx, cg->fn, "fail");
    LLVMPositionBuilderAtEnd(cg->b, h->fn.fail);
    h->fn.fail_code = LLVMBuildPhi(cg->b, cg->i32, "");
    LLVMPositionBuilderAtEnd(cg->b, here);
  }
  LLVMBasicBlockRef next = LLVMAppendBasicBlockInContext(cg->ctx, cg->fn, "");
  LLVMValueRef bad = LLVMBuildICmp(cg->b, LLVMIntNE, code, LLVMConstInt(cg->i32, 0, 0), "");
  LLVMBuildCondBr(cg->b, bad, h->fn.fail, next);
  LLVMAddIncoming(h->fn.fail_code, &code, &here, 1);
  LLVMPositionBuilderAtEnd(cg->b, next);
}

/* ---- buffers and slots ---- */

/* An input that has a default: the caller's data, or the default among the weights. */
static LLVMValueRef input_or_default(cy_host *h, uint32_t index, LLVMValueRef given) {
  const cy_port_info *ports;
  cy_graph_inputs(h->g, &ports);
  if (!cy_value_of(h->g, ports[index].value)->data.bytes)
    return given;
  for (uint32_t c = 0; c < h->p->nconstants; c++)
    if (h->p->constants[c].value == ports[index].value && !h->p->constants[c].write) {
      LLVMValueRef otherwise = cy_gepc(h->cg, h->fn.weights, (int64_t)h->p->constants[c].offset);
      LLVMValueRef none = LLVMBuildIsNull(h->cg->b, given, "");
      return cy_select(h->cg, none, otherwise, given);
    }
  return given;
}

static LLVMValueRef buffer_base(cy_host *h, uint32_t id) {
  cy_cg *cg = h->cg;
  const cy_buffer *b = &h->p->buffers[id];
  int64_t offset;
  switch (b->kind) {
  case CY_BUF_ARENA:
    if (h->offset_index[id] >= 0)
      return cy_gep(cg, h->fn.arena, cy_host_field(h, cg->i64, h->fn.offsets, 8 * (size_t)h->offset_index[id]));
    if (!cy_dim_is_const(h->g, b->offset, &offset))
      cy_bug("buffer %u has no planned offset", id);
    return cy_gepc(cg, h->fn.arena, offset);
  case CY_BUF_INPUT:
    return input_or_default(h, b->index, cy_host_field(h, cg->ptr, h->fn.inputs, 8 * (size_t)b->index));
  case CY_BUF_OUTPUT:
    return cy_host_field(h, cg->ptr, h->fn.outputs, b->index * sizeof(cyrt_output) + offsetof(cyrt_output, ptr));
  case CY_BUF_CONST:
    return cy_gepc(cg, h->fn.weights, (int64_t)h->p->constants[b->index].offset);
  case CY_BUF_DYNAMIC:
    return cy_host_field(h, cg->ptr, h->fn.dynamic, b->index * sizeof(cyrt_dynamic) + offsetof(cyrt_dynamic, ptr));
  case CY_BUF_CHECKS:
    return cy_host_field(h, cg->ptr, h->fn.frame, offsetof(cyrt_frame, checks));
  }
  cy_bug("unknown kind of buffer");
}

LLVMValueRef cy_host_pointer(cy_host *h, uint32_t buffer, cy_dim offset) {
  LLVMValueRef base = buffer_base(h, buffer);
  return offset ? cy_gep(h->cg, base, cy_host_dim(h, offset)) : base;
}

LLVMValueRef cy_host_slots(cy_host *h) {
  if (!h->fn.slots)
    h->fn.slots = cy_alloca(h->cg, (int64_t)sizeof(cyrt_slot) * (h->max_slots ? h->max_slots : 1));
  return h->fn.slots;
}

void cy_host_size_slots(cy_host *h, const cy_kernel_plan *plan) {
  const cy_dim *dims;
  uint32_t n = cy_kernel_dims(plan->kernel, &dims), first = cy_plan_first_dim(plan);
  LLVMValueRef slots = cy_host_slots(h);
  for (uint32_t i = 0; i < n; i++)
    cy_store(h->cg, cy_host_dim(h, dims[i]), cy_gepc(h->cg, slots, (int64_t)sizeof(cyrt_slot) * (first + i)), 8);
}

LLVMValueRef cy_host_call_size(cy_host *h, const char *prefix, const char *suffix) {
  char name[192];
  snprintf(name, sizeof name, "%s%s", prefix, suffix);
  LLVMValueRef fn = cy_host_declare(h, name, h->cg->i64, &h->cg->ptr, 1, false), slots = cy_host_slots(h);
  return cy_call(h->cg, fn, &slots, 1);
}

void cy_host_scratch_syms(cy_host *h, const cy_kernel_plan *plan) {
  const cy_sym *syms = &h->build->scratch_sym[2 * (plan - h->build->plans)];
  cy_host_size_slots(h, plan);
  if (syms[0])
    cy_host_set_sym(h, syms[0], cy_host_call_size(h, plan->symbol, "_worker_bytes"));
  if (syms[1])
    cy_host_set_sym(h, syms[1], cy_host_call_size(h, plan->symbol, "_shared_bytes"));
}

void cy_host_fail_if(cy_host *h, LLVMValueRef bad, const char *format, LLVMValueRef what[3]) {
  cy_cg *cg = h->cg;
  LLVMTypeRef params[3] = {cg->ptr, cg->i32, cg->ptr};
  LLVMValueRef fail = cy_host_declare(h, "cyrt_fail", cg->i32, params, 3, true);
  LLVMBasicBlockRef then = LLVMAppendBasicBlockInContext(cg->ctx, cg->fn, "");
  LLVMBasicBlockRef good = LLVMAppendBasicBlockInContext(cg->ctx, cg->fn, "");
  LLVMBuildCondBr(cg->b, bad, then, good);
  LLVMPositionBuilderAtEnd(cg->b, then);
  LLVMValueRef args[6] = {
      h->fn.frame, LLVMConstInt(cg->i32, STATUS_SHAPE_MISMATCH, 0), cy_host_text(h, format), what[0], what[1], what[2]};
  cy_fn_end(cg, cy_call(cg, fail, args, 6));
  LLVMPositionBuilderAtEnd(cg->b, good);
}

/* ---- what is checked when the model runs ---- */

typedef struct sought {
  const bool *known;
  bool all;
} sought;

static void see_symbol(void *ctx, cy_sym s) {
  sought *k = ctx;
  k->all &= k->known[s];
}

/* Are a and b what the requirement forbids? */
static LLVMValueRef breaks(cy_host *h, cy_require kind, LLVMValueRef a, LLVMValueRef b) {
  cy_cg *cg = h->cg;
  LLVMValueRef one = cy_i64(cg, 1), zero = cy_i64(cg, 0);
  switch (kind) {
  case CY_REQUIRE_EQUAL:
    return cy_icmp(cg, LLVMIntNE, a, b);
  case CY_REQUIRE_BROADCAST: { /* different, and neither is 1 */
    LLVMValueRef not_a = cy_icmp(cg, LLVMIntNE, a, one), not_b = cy_icmp(cg, LLVMIntNE, b, one);
    LLVMValueRef differ = cy_icmp(cg, LLVMIntNE, a, b), neither = LLVMBuildAnd(cg->b, not_a, not_b, "");
    return LLVMBuildAnd(cg->b, differ, neither, "");
  }
  case CY_REQUIRE_SOURCE: {
    LLVMValueRef some = cy_icmp(cg, LLVMIntSGT, a, zero), none = cy_icmp(cg, LLVMIntSLE, b, zero);
    return LLVMBuildAnd(cg->b, some, none, "");
  }
  case CY_REQUIRE_SIZE:
    return cy_icmp(cg, LLVMIntSLT, a, zero);
  case CY_REQUIRE_INDEX:
  case CY_REQUIRE_CLAMPED:
    return cy_icmp(cg, LLVMIntSGE, a, b);
  case CY_REQUIRE_AT_MOST:
  case CY_REQUIRE_FITS:
    break;
  }
  return cy_icmp(cg, LLVMIntSGT, a, b);
}

#define OUT_OF_RANGE "node '%s': an index is out of range: %lld, or as far in front, of an axis of %lld elements"
const char *cy_host_node_text(const cy_host *h, const cy_origin *origin) {
  const char *name = cy_str_text(h->g, origin->name), *op = cy_str_text(h->g, origin->op);
  return *name ? name : cy_arena_printf(cy_graph_arena(h->g), "#%d, %s", (int)origin->index, op);
}

const char *cy_host_demand(const cy_requirement *r) {
  static const char *const text[] = {
      [CY_REQUIRE_EQUAL] =
          "node '%s': sizes %lld and %lld should be equal: the shapes of the inputs do not fit each other",
      [CY_REQUIRE_BROADCAST] =
          "node '%s': sizes %lld and %lld do not broadcast: the shapes of the inputs do not fit each other",
      [CY_REQUIRE_AT_MOST] =
          "node '%s': %lld of %lld elements are asked for: the shapes of the inputs do not fit each other",
      [CY_REQUIRE_SOURCE] = "node '%s': %lld of %lld elements are asked for: its output is not empty, but an axis of its "
                            "input is",
      [CY_REQUIRE_SIZE] = "node '%s': a size would be %lld: the sizes of the inputs do not fit this model",
      [CY_REQUIRE_FITS] = "node '%s': the size of a tensor overflows: %lld elements or more, where %lld are the most: "
                          "the sizes of the inputs are too large",
      [CY_REQUIRE_INDEX] = OUT_OF_RANGE,
      [CY_REQUIRE_CLAMPED] = OUT_OF_RANGE,
  };
  return r->text ? r->text : text[r->kind];
}

static void check_requirement(cy_host *h, const cy_requirement *r) {
  LLVMValueRef a = r->kind == CY_REQUIRE_FITS ? cy_host_size(h, r->a) : cy_host_dim(h, r->a);
  LLVMValueRef b = cy_host_dim(h, r->b), bad = breaks(h, r->kind, a, b);
  LLVMValueRef args[3] = {cy_host_text(h, cy_host_node_text(h, &r->origin)), a, b};
  cy_host_fail_if(h, bad, cy_host_demand(r), args);
}

static void check_known(cy_host *h, bool fits) {
  const cy_requirement *list;
  uint32_t n = cy_graph_requirements(h->g, &list);
  for (uint32_t i = 0; i < n; i++) {
    sought k = {h->known, true};
    if (h->checked[i] || list[i].block != h->block || (list[i].kind == CY_REQUIRE_FITS) != fits)
      continue;
    cy_dim_symbols(h->g, list[i].a, see_symbol, &k);
    cy_dim_symbols(h->g, list[i].b, see_symbol, &k);
    h->checked[i] = k.all;
    if (k.all)
      check_requirement(h, &list[i]);
  }
}

/* What overflows first: comparing products means something when they fit. */
void cy_host_requirements(cy_host *h) {
  check_known(h, true);
  check_known(h, false);
}
