/* SPDX-License-Identifier: Apache-2.0 */
/* host_steps.c - run(): the program's steps as straight code with branches and loops.
 *
 * A launch fills an array of slots on the stack and calls the kernel: directly when the estimated work is under some 5
 * microseconds, else through the thread pool with pieces of some 2. Where sizes are symbols, the estimate is an
 * expression and the choice is made while running. Long lists of steps become functions of their own (CHUNK steps
 * each), so that the time LLVM takes grows linearly. Every call that can fail is checked; the first code ends the run.
 */
#include "codegen/host_int.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 200 };

static const cy_host_costs *costs_of(const cy_host *h) { return &h->build->machine->caps.host; }

static void emit_list(cy_host *h, const cy_step *s);

static void slot_alloc(cy_host *h, uint32_t slot, LLVMValueRef bytes) {
  cy_cg *cg = h->cg;
  LLVMTypeRef params[3] = {cg->ptr, cg->i32, cg->i64};
  LLVMValueRef fn = cy_host_declare(h, "cyrt_slot_alloc", cg->i32, params, 3, false);
  LLVMValueRef args[3] = {h->fn.frame, cy_host_i32(h, slot), bytes};
  cy_host_check(h, cy_call(cg, fn, args, 3));
}

/* ---- launches ---- */

static void fill_pointers(cy_host *h, const cy_step *s, const cy_kernel_plan *plan) {
  cy_cg *cg = h->cg;
  LLVMValueRef slots = cy_host_slots(h);
  for (uint32_t i = 0; i < s->nbind; i++) {
    if ((int32_t)i == plan->dead_arg && !plan->reads_dead)
      continue;
    cy_store(cg, cy_host_pointer(h, s->bind[i].buffer, s->bind[i].offset), cy_gepc(cg, slots, 8 * (int64_t)i), 8);
  }
}

static LLVMValueRef phase_function(cy_host *h, const char *symbol) {
  cy_cg *cg = h->cg;
  LLVMTypeRef params[4] = {cg->ptr, cg->i64, cg->i64, cg->i64};
  return cy_host_declare(h, symbol, cg->voidt, params, 4, false);
}

static void call_direct(cy_host *h, LLVMValueRef fn, LLVMValueRef n) {
  LLVMValueRef zero = cy_i64(h->cg, 0), args[4] = {h->fn.slots, zero, n, zero};
  cy_call(h->cg, fn, args, 4);
}

static void call_parallel(cy_host *h, LLVMValueRef fn, LLVMValueRef n, LLVMValueRef grain) {
  cy_cg *cg = h->cg;
  LLVMTypeRef params[6] = {cg->ptr, cg->ptr, cg->ptr, cg->i64, cg->i64, cg->ptr};
  unsigned count = 5 + (h->profile_row != NULL);
  const char *name = h->profile_row ? "cyrt_profile_parallel_for" : "cyrt_parallel_for";
  LLVMValueRef parallel = cy_host_declare(h, name, cg->voidt, params, count, false);
  LLVMValueRef args[6] = {h->fn.frame, fn, h->fn.slots, n, grain, h->profile_row};
  cy_call(cg, parallel, args, count);
}

/* Tasks in a piece: n * piece / work, at least 1; whole vectors where a task is one element. Both are positive. */
static LLVMValueRef grain_of(cy_host *h, LLVMValueRef n, LLVMValueRef work, bool lanes) {
  cy_cg *cg = h->cg;
  LLVMValueRef per_task = cy_imax(cg, cy_div(cg, work, n), cy_i64(cg, 1));
  LLVMValueRef grain = cy_addc(cg, cy_div(cg, cy_i64(cg, costs_of(h)->piece), per_task), 1);
  return lanes ? cy_mulc(cg, cy_div(cg, cy_addc(cg, grain, 63), cy_i64(cg, 64)), 64) : grain;
}

/* n > 0 tasks of `work` in all, in thousandths of a cycle. */
static void call_by_work(cy_host *h, LLVMValueRef fn, LLVMValueRef n, LLVMValueRef work, bool lanes) {
  cy_cg *cg = h->cg;
  int64_t n_const, work_const;
  bool known = cy_is_const(work, &work_const);
  if ((known && work_const < costs_of(h)->direct) || (cy_is_const(n, &n_const) && n_const == 1)) {
    call_direct(h, fn, n);
    return;
  }
  if (known) {
    call_parallel(h, fn, n, grain_of(h, n, cy_i64(cg, work_const), lanes));
    return;
  }
  cy_if branch;
  cy_if_begin(cg, &branch, cy_icmp(cg, LLVMIntSLT, work, cy_i64(cg, costs_of(h)->direct)));
  call_direct(h, fn, n);
  cy_if_else(cg, &branch);
  call_parallel(h, fn, n, grain_of(h, n, work, lanes));
  cy_if_end(cg, &branch);
}

LLVMValueRef cy_host_writes_some(cy_host *h, const cy_step *s) {
  const cy_karg_info *args;
  LLVMValueRef some = NULL;
  uint32_t n = cy_kernel_args(s->kernel, &args);
  for (uint32_t i = 0; i < n && i < s->nbind; i++) {
    int64_t min, max;
    cy_dim bytes = args[i].kind == CY_ARG_WRITE ? h->p->buffers[s->bind[i].buffer].bytes : 0;
    if (!bytes)
      continue;
    cy_dim_range(h->g, bytes, &min, &max);
    if (min > 0)
      return NULL;
    LLVMValueRef here = cy_icmp(h->cg, LLVMIntNE, cy_host_dim(h, bytes), cy_i64(h->cg, 0));
    some = some ? LLVMBuildOr(h->cg->b, some, here, "") : here;
  }
  return some;
}

static void emit_phase(cy_host *h, const cy_kernel_plan *plan, const cy_phase_code *phase, LLVMValueRef work,
                       LLVMValueRef written) {
  cy_cg *cg = h->cg;
  LLVMValueRef n = phase->tasks == -2   ? cy_host_dim(h, cy_kernel_tasks(plan->kernel))
                   : phase->tasks == -1 ? cy_host_call_size(h, phase->symbol, "_tasks")
                                        : cy_i64(cg, phase->tasks);
  LLVMValueRef fn = phase_function(h, phase->symbol);
  bool lanes = phase->tasks == -2 && cy_kernel_grid_lanes(plan->kernel);
  if (written)
    n = cy_select(cg, written, n, cy_i64(cg, 0));
  int64_t n_const;
  if (cy_is_const(n, &n_const)) {
    if (n_const > 0)
      call_by_work(h, fn, n, work, lanes);
    return;
  }
  cy_if some;
  cy_if_begin(cg, &some, cy_icmp(cg, LLVMIntSGT, n, cy_i64(cg, 0)));
  call_by_work(h, fn, n, work, lanes);
  cy_if_end(cg, &some);
}

/* Scratch whose size hangs on data is got right before the launch. */
static void alloc_scratch(cy_host *h, const cy_step *s, const cy_kernel_plan *plan) {
  int32_t args[2] = {plan->scratch_arg, plan->shared_arg};
  bool sized = false;
  for (int i = 0; i < 2; i++) {
    if (args[i] < 0)
      continue;
    const cy_buffer *b = &h->p->buffers[s->bind[args[i]].buffer];
    if (b->kind != CY_BUF_DYNAMIC)
      continue;
    if (!sized)
      cy_host_scratch_syms(h, plan);
    sized = true;
    slot_alloc(h, b->index, cy_host_size(h, b->bytes));
  }
}

static const cy_host_device *device_of(const cy_host *h) { return h->build->machine->target->host; }

static void emit_launch(cy_host *h, const cy_step *s) {
  const cy_kernel_plan *plan = cy_kernels_plan(h->build, s->kernel);
  if (plan->code.nphases == 0)
    return;
  alloc_scratch(h, s, plan);
  fill_pointers(h, s, plan);
  cy_host_size_slots(h, plan);
  cy_host_timed timed = cy_host_profile_start(h, s, plan);
  h->profile_row = timed.row;
  device_of(h)->launch(h, s, plan);
  h->profile_row = NULL;
  cy_host_profile_stop(h, &timed);
}

/* ---- kernels that are functions of this program ---- */

static void launch_phases(cy_host *h, const cy_step *s, const cy_kernel_plan *plan) {
  LLVMValueRef work = cy_host_dim(h, cy_kernel_work(costs_of(h), h->g, plan->kernel)), written = cy_host_writes_some(h, s);
  for (int i = 0; i < plan->code.nphases; i++)
    emit_phase(h, plan, &plan->code.phase[i], work, written);
}

static LLVMValueRef fetch_in_place(cy_host *h, LLVMValueRef at, int64_t bytes) {
  (void)h;
  (void)bytes;
  return at;
}

static LLVMValueRef call_in_place(cy_host *h, LLVMValueRef op, LLVMValueRef *args) {
  return cy_call(h->cg, op, args, 6);
}

const cy_host_device cy_host_cpu = {launch_phases, fetch_in_place, call_in_place, NULL};

/* ---- symbols and memory ---- */

static void emit_read(cy_host *h, const cy_step *s) {
  cy_cg *cg = h->cg;
  const cy_dtype_info *t = cy_dtype_of(s->dtype);
  LLVMValueRef at = cy_host_pointer(h, s->bind[0].buffer, s->bind[0].offset), v;
  unsigned align = (unsigned)t->bits / 8;
  at = device_of(h)->fetch(h, at, align);
  if (t->cls == 'F') {
    LLVMTypeRef type = s->dtype == CY_F32   ? cg->f32
                       : s->dtype == CY_F64 ? cg->f64
                       : s->dtype == CY_F16 ? cg->f16
                                            : cg->bf16;
    v = cy_load(cg, type, at, align);
    v = cy_intrinsic(cg, "llvm.trunc", type, &v, 1);
    v = LLVMBuildFPToSI(cg->b, v, cg->i64, "");
  } else {
    v = cy_load(cg, LLVMIntTypeInContext(cg->ctx, (unsigned)t->bits), at, align);
    v = LLVMBuildIntCast2(cg->b, v, cg->i64, t->cls == 'I', "");
    if (t->cls == 'B')
      v = LLVMBuildZExt(cg->b, cy_icmp(cg, LLVMIntNE, v, cy_i64(cg, 0)), cg->i64, "");
  }
  cy_host_set_sym(h, s->sym, v);
}

static void emit_alloc(cy_host *h, const cy_step *s) {
  const cy_buffer *b = &h->p->buffers[s->bind[0].buffer];
  slot_alloc(h, b->index, cy_host_size(h, b->bytes));
}

static void emit_swap(cy_host *h, const cy_step *s) {
  cy_cg *cg = h->cg;
  LLVMValueRef at[2], slot[2];
  LLVMTypeRef type = LLVMArrayType2(cg->i64, sizeof(cyrt_dynamic) / 8);
  for (int i = 0; i < 2; i++) {
    at[i] = cy_gepc(cg, h->fn.dynamic, h->p->buffers[s->bind[i].buffer].index * (int64_t)sizeof(cyrt_dynamic));
    slot[i] = cy_load(cg, type, at[i], 8);
  }
  cy_store(cg, slot[1], at[0], 8);
  cy_store(cg, slot[0], at[1], 8);
}

static void output_alloc(cy_host *h, uint32_t index, const cy_type *type) {
  cy_cg *cg = h->cg;
  if (!h->fn.dims)
    h->fn.dims = cy_alloca(cg, 8 * CYTO_MAX_RANK);
  for (int i = 0; i < type->rank; i++)
    cy_store(cg, cy_host_size(h, type->dim[i]), cy_gepc(cg, h->fn.dims, 8 * i), 8);
  LLVMTypeRef params[5] = {cg->ptr, cg->i32, cg->ptr, cg->i64, cg->i64};
  LLVMValueRef fn = cy_host_declare(h, "cyrt_output_alloc", cg->i32, params, 5, false);
  int64_t elem = (cy_dtype_of((cy_dtype)type->dtype)->bits + 7) / 8;
  LLVMValueRef args[5] = {h->fn.frame, cy_host_i32(h, index), h->fn.dims, cy_i64(cg, type->rank), cy_i64(cg, elem)};
  cy_host_check(h, cy_call(cg, fn, args, 5));
}

static void emit_output(cy_host *h, const cy_step *s) {
  const cy_port_info *ports;
  cy_graph_outputs(h->g, &ports);
  output_alloc(h, s->index, &cy_value_of(h->g, ports[s->index].value)->type);
}

/* Memory that both share is as large for both. */
static void emit_shared(cy_host *h, const cy_step *s) {
  cy_cg *cg = h->cg;
  const cy_port_info *ports;
  cy_graph_outputs(h->g, &ports);
  size_t at = s->index * sizeof(cyrt_output) + offsetof(cyrt_output, ptr);
  LLVMValueRef out = cy_host_field(h, cg->ptr, h->fn.outputs, at), in = cy_host_pointer(h, s->bind->buffer, 0);
  LLVMValueRef same = cy_icmp(cg, LLVMIntEQ, out, in);
  LLVMValueRef bytes = cy_host_size(h, s->limit), there = cy_host_size(h, h->p->buffers[s->bind->buffer].bytes);
  LLVMValueRef args[3] = {cy_host_text(h, cy_str_text(h->g, ports[s->index].name)), bytes, there};
  cy_host_fail_if(h, LLVMBuildAnd(cg->b, same, cy_icmp(cg, LLVMIntNE, bytes, there), ""),
                  "output '%s' is %lld bytes, but shares memory with an input of %lld bytes", args);
  cy_host_set_sym(h, s->sym, LLVMBuildZExt(cg->b, same, cg->i64, ""));
}

/* ---- runtime calls ---- */

/* Is d a size that this very step finds out? */
static cy_sym counted_by(cy_host *h, const cy_step *s, cy_dim d) {
  cy_sym sym = cy_dim_symbol(h->g, d);
  if (!sym)
    return 0;
  const cy_sym_info *info = cy_sym_of(h->g, sym);
  return info->kind == CY_SYM_COUNT && info->value && cy_value_of(h->g, info->value)->node == s->node ? sym : 0;
}

static bool has_sizes(cy_host *h, const cy_step *s) {
  for (uint32_t i = 0; i < s->nout; i++)
    for (int axis = 0; axis < s->out[i].type.rank; axis++)
      if (counted_by(h, s, s->out[i].type.dim[axis]))
        return true;
  return false;
}

static void fill_tensor(cy_host *h, const cy_step *s, LLVMValueRef at, const cy_call_tensor *t, bool first_pass) {
  cy_cg *cg = h->cg;
  LLVMValueRef data = first_pass || t->type.dtype == CY_NONE ? LLVMConstNull(cg->ptr)
                                                             : cy_host_pointer(h, t->at.buffer, t->at.offset);
  cy_store(cg, data, cy_gepc(cg, at, offsetof(cyrt_tensor, data)), 8);
  cy_store(cg, cy_host_i32(h, t->type.dtype), cy_gepc(cg, at, offsetof(cyrt_tensor, dtype)), 4);
  cy_store(cg, cy_host_i32(h, t->type.rank), cy_gepc(cg, at, offsetof(cyrt_tensor, rank)), 4);
  for (int i = 0; i < t->type.rank; i++) {
    LLVMValueRef dim = first_pass && counted_by(h, s, t->type.dim[i]) ? cy_i64(cg, 0) : cy_host_dim(h, t->type.dim[i]);
    cy_store(cg, dim, cy_gepc(cg, at, (int64_t)offsetof(cyrt_tensor, dims) + 8 * i), 8);
  }
}

static void fill_tensors(cy_host *h, const cy_step *s, LLVMValueRef base, const cy_call_tensor *t, uint32_t n,
                         bool first_pass) {
  for (uint32_t i = 0; i < n; i++)
    fill_tensor(h, s, cy_gepc(h->cg, base, (int64_t)(i * sizeof(cyrt_tensor))), &t[i], first_pass);
}

/* The attributes as a constant array of cyrt_attr. */
static LLVMValueRef call_attrs(cy_host *h, const cy_step *s) {
  cy_cg *cg = h->cg;
  LLVMValueRef v[32];
  uint32_t n = s->nattrs < 32 ? s->nattrs : 32;
  if (!n)
    return LLVMConstNull(cg->ptr);
  for (uint32_t i = 0; i < n; i++) {
    cyrt_attr a;
    if (s->attrs[i].kind == CY_KIND_FLOAT)
      a.f = s->attrs[i].f;
    else
      a.i = s->attrs[i].i;
    v[i] = cy_i64(cg, a.i);
  }
  return cy_host_table(h, v, n);
}

/* After the first call: sizes become symbols. */
static void take_sizes(cy_host *h, const cy_step *s) {
  for (uint32_t i = 0; i < s->nout; i++)
    for (int axis = 0; axis < s->out[i].type.rank; axis++) {
      cy_sym sym = counted_by(h, s, s->out[i].type.dim[axis]);
      size_t at = i * sizeof(cyrt_tensor) + offsetof(cyrt_tensor, dims) + 8 * (size_t)axis;
      if (sym)
        cy_host_set_sym(h, sym, cy_host_field(h, h->cg->i64, h->fn.tensors_out, at));
    }
}

/* Memory for the outputs that have no place in the arena. */
static void make_room(cy_host *h, const cy_step *s) {
  for (uint32_t i = 0; i < s->nout; i++) {
    if (s->out[i].type.dtype == CY_NONE)
      continue;
    const cy_buffer *b = &h->p->buffers[s->out[i].at.buffer];
    if (b->kind == CY_BUF_DYNAMIC)
      slot_alloc(h, b->index, cy_host_size(h, b->bytes));
    else if (b->kind == CY_BUF_OUTPUT && cy_host_output_dynamic(h, b->index))
      output_alloc(h, b->index, &s->out[i].type);
  }
}

/* Calls an operator of the runtime; its errors tell the node. */
static void call_operator(cy_host *h, const cy_step *s, LLVMValueRef fn, LLVMValueRef *args) {
  cy_cg *cg = h->cg;
  LLVMTypeRef params[3] = {cg->ptr, cg->i32, cg->ptr};
  const cy_origin *origin = &cy_node_of(h->g, s->node)->origin;
  LLVMValueRef told[3] = {h->fn.frame, device_of(h)->call(h, fn, args), cy_host_text(h, cy_host_node_text(h, origin))};
  cy_host_check(h, cy_call(cg, cy_host_declare(h, "cyrt_fail_at", cg->i32, params, 3, false), told, 3));
}

static void emit_call(cy_host *h, const cy_step *s) {
  cy_cg *cg = h->cg;
  char name[96];
  snprintf(name, sizeof name, "cyrt_op_%s", s->call);
  LLVMTypeRef params[6] = {cg->ptr, cg->ptr, cg->i32, cg->ptr, cg->i32, cg->ptr};
  LLVMValueRef fn = cy_host_declare(h, name, cg->i32, params, 6, false);
  if (!h->fn.tensors_in) {
    h->fn.tensors_in = cy_alloca(cg, (int64_t)((h->max_in + 1) * sizeof(cyrt_tensor)));
    h->fn.tensors_out = cy_alloca(cg, (int64_t)((h->max_out + 1) * sizeof(cyrt_tensor)));
  }
  LLVMValueRef args[6] = {h->fn.frame,       h->fn.tensors_in,        cy_host_i32(h, s->nin),
                          h->fn.tensors_out, cy_host_i32(h, s->nout), call_attrs(h, s)};
  cy_host_timed timed = cy_host_profile_start(h, s, NULL);
  fill_tensors(h, s, h->fn.tensors_in, s->in, s->nin, false);
  if (has_sizes(h, s)) {
    fill_tensors(h, s, h->fn.tensors_out, s->out, s->nout, true);
    call_operator(h, s, fn, args);
    take_sizes(h, s);
  }
  make_room(h, s);
  fill_tensors(h, s, h->fn.tensors_out, s->out, s->nout, false);
  call_operator(h, s, fn, args);
  cy_host_profile_stop(h, &timed);
}

/* ---- control flow ---- */

static LLVMValueRef sym_is_set(cy_host *h, cy_sym s) {
  return cy_icmp(h->cg, LLVMIntNE, cy_host_sym(h, s), cy_i64(h->cg, 0));
}

/* The body of a branch or loop. Afterwards h->known is as before; returns what it was at the body's end, malloc'ed. */
static bool *emit_body(cy_host *h, const cy_step *steps, cy_block block) {
  cy_block outer = h->block;
  size_t size = (cy_sym_count(h->g) + 1) * sizeof(bool);
  bool *before = h->known, *inside = malloc(size);
  if (!inside)
    cy_no_memory();
  h->known = memcpy(inside, before, size);
  h->block = block;
  cy_host_forget(h);
  cy_host_requirements(h);
  emit_list(h, steps);
  cy_host_forget(h);
  h->block = outer;
  h->known = before;
  return inside;
}

/* What both branches set is known behind them. */
static void emit_if(cy_host *h, const cy_step *s) {
  cy_if branch;
  cy_if_begin(h->cg, &branch, sym_is_set(h, s->sym));
  bool *one = emit_body(h, s->then_steps, s->then_block);
  cy_if_else(h->cg, &branch);
  bool *other = emit_body(h, s->else_steps, s->else_block);
  cy_if_end(h->cg, &branch);
  for (cy_sym i = 1; i <= cy_sym_count(h->g); i++)
    h->known[i] = one[i] && other[i];
  free(one);
  free(other);
}

static void emit_loop(cy_host *h, const cy_step *s) {
  cy_cg *cg = h->cg;
  LLVMBasicBlockRef head = LLVMAppendBasicBlockInContext(cg->ctx, cg->fn, "loop");
  LLVMBasicBlockRef body = LLVMAppendBasicBlockInContext(cg->ctx, cg->fn, "");
  LLVMBasicBlockRef exit = LLVMAppendBasicBlockInContext(cg->ctx, cg->fn, "");
  LLVMBuildBr(cg->b, head);
  LLVMPositionBuilderAtEnd(cg->b, head);
  cy_host_forget(h);
  LLVMValueRef go = cy_icmp(cg, LLVMIntSLT, cy_host_sym(h, s->sym), cy_host_dim(h, s->limit));
  if (s->cond)
    go = LLVMBuildAnd(cg->b, go, sym_is_set(h, s->cond), "");
  LLVMBuildCondBr(cg->b, go, body, exit);
  LLVMPositionBuilderAtEnd(cg->b, body);
  free(emit_body(h, s->then_steps, s->then_block));
  cy_host_set_sym(h, s->sym, cy_addc(cg, cy_host_sym(h, s->sym), 1));
  LLVMBuildBr(cg->b, head);
  LLVMPositionBuilderAtEnd(cg->b, exit);
  cy_host_forget(h);
}

static void emit_step(cy_host *h, const cy_step *s) {
  switch (s->kind) {
  case CY_STEP_LAUNCH: emit_launch(h, s); break;
  case CY_STEP_CALL: emit_call(h, s); break;
  case CY_STEP_READ: emit_read(h, s); break;
  case CY_STEP_ALLOC: emit_alloc(h, s); break;
  case CY_STEP_OUTPUT: emit_output(h, s); break;
  case CY_STEP_IF: emit_if(h, s); break;
  case CY_STEP_LOOP: emit_loop(h, s); break;
  case CY_STEP_SHARED: emit_shared(h, s); break;
  case CY_STEP_ROOM:
    cy_host_set_sym(h, s->sym, cy_host_field(h, h->cg->i64, h->fn.frame, offsetof(cyrt_frame, room)));
    break;
  case CY_STEP_SWAP: emit_swap(h, s); break;
  case CY_STEP_SET:
    cy_host_set_sym(h, s->sym, cy_host_dim(h, s->limit));
    h->known[s->sym] = !s->guess;
    break;
  }
  if (s->kind == CY_STEP_READ || s->kind == CY_STEP_CALL || s->kind == CY_STEP_SET || s->kind == CY_STEP_IF)
    cy_host_requirements(h);
}

/* ---- lists of steps ---- */

/* Steps from s up to `end` as a function of their own, and a call of it. */
static void emit_part(cy_host *h, const cy_step *s, const cy_step *end) {
  char name[32];
  snprintf(name, sizeof name, "part%d", h->nparts++);
  cy_host_state state = cy_host_enter(h, name);
  LLVMValueRef fn = h->cg->fn;
  for (; s != end; s = s->next)
    emit_step(h, s);
  cy_host_leave(h, state);
  cy_host_check(h, cy_call(h->cg, fn, &h->fn.frame, 1));
}

static void emit_list(cy_host *h, const cy_step *s) {
  uint32_t n = 0;
  for (const cy_step *t = s; t; t = t->next)
    n++;
  if (n <= CHUNK) {
    for (; s; s = s->next)
      emit_step(h, s);
    return;
  }
  while (s) {
    const cy_step *end = s;
    for (int i = 0; i < CHUNK && end; i++)
      end = end->next;
    emit_part(h, s, end);
    s = end;
  }
}

/* Only steps that call have tensors. */
static void count_tensors(void *ctx, cy_step *s) {
  cy_host *h = ctx;
  h->max_in = s->nin > h->max_in ? s->nin : h->max_in;
  h->max_out = s->nout > h->max_out ? s->nout : h->max_out;
}

void cy_host_emit_run(cy_host *h, const char *name) {
  cy_steps_visit(h->p->steps, count_tensors, h);
  cy_host_state state = cy_host_enter(h, name);
  emit_list(h, h->p->steps);
  cy_host_leave(h, state);
}
