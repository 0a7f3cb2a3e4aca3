/* SPDX-License-Identifier: Apache-2.0 */
/* host_cuda.c - what the host program of a CUDA model does otherwise than that of a CPU model.
 *
 * Launches, reads of single elements and runtime operators go through runtime/cuda*.c; the model carries a table of its
 * kernels (cyrt_cuda_model). Everything else, sizes, offsets, control flow, is the same code: pointers are only added
 * to.
 */
#include "codegen/cuda/cuda_int.h"
#include "codegen/host_int.h"

#include <stdlib.h>
#include <string.h>

/* Further kernels stand behind the plans' own, in the order of these: one that adds shares of k, one for sm_90a. */
static uint32_t further(const cy_kernel_plan *plan) {
  const cy_cuda_schedule *schedule = cy_cuda_schedule_of(plan);
  return (schedule->shares > 0) + (schedule->kind == CY_CUDA_TILES && cy_cuda_tma(plan->kernel, schedule));
}

static int64_t first_further(const cy_host *h, const cy_kernel_plan *plan) {
  int64_t n = h->build->nplans;
  for (const cy_kernel_plan *p = h->build->plans; p < plan; p++)
    n += further(p);
  return n;
}

/* A cyrt_cuda_box. */
static void store_tensor(cy_host *h, const cy_cuda_tensor *t, LLVMValueRef to) {
  cy_cg *cg = h->cg;
  const int64_t head[3] = {t->arg, cy_dtype_of(t->type)->onnx, t->rank};
  _Static_assert(offsetof(cyrt_cuda_box, extent) == sizeof head, "what stands in front");
  _Static_assert((int)CYRT_CUDA_BOX_RANK == (int)CY_CUDA_TMA_RANK, "equal ranks");
  for (int i = 0; i < 3; i++)
    cy_store(cg, cy_i64(cg, head[i]), cy_gepc(cg, to, 8 * i), 8);
  for (int i = 0; i < t->rank; i++) {
    const size_t at[3] = {offsetof(cyrt_cuda_box, extent), offsetof(cyrt_cuda_box, box), offsetof(cyrt_cuda_box, step)};
    LLVMValueRef values[3] = {cy_host_dim(h, t->extent[i]), cy_i64(cg, t->box[i]), cy_i64(cg, t->step[i])};
    for (int n = 0; n < 3; n++)
      cy_store(cg, values[n], cy_gepc(cg, to, (int64_t)at[n] + 8 * i), 8);
    if (i + 1 < t->rank)
      cy_store(cg, cy_host_dim(h, t->stride[i]), cy_gepc(cg, to, (int64_t)offsetof(cyrt_cuda_box, stride) + 8 * i), 8);
  }
}

/* A cyrt_cuda_tma in memory of the function; a null pointer where no kernel stands beside for sm_90a. */
static LLVMValueRef tma_kernel(cy_host *h, const cy_kernel_plan *plan) {
  cy_cg *cg = h->cg;
  const cy_cuda_schedule *schedule = cy_cuda_schedule_of(plan);
  if (schedule->kind != CY_CUDA_TILES || !cy_cuda_tma(plan->kernel, schedule))
    return LLVMConstNull(cg->ptr);
  LLVMValueRef to = cy_alloca(cg, sizeof(cyrt_cuda_tma));
  cy_store(cg, cy_i64(cg, first_further(h, plan) + (schedule->shares > 0)), to, 8);
  cy_store(cg, cy_host_dim(h, schedule->tma_blocks), cy_gepc(cg, to, offsetof(cyrt_cuda_tma, blocks)), 8);
  cy_store(cg, cy_i64(cg, cy_cuda_tma_cluster(plan->kernel, schedule)), cy_gepc(cg, to, offsetof(cyrt_cuda_tma, cluster)),
           8);
  for (int b = 0; b < 2; b++) {
    cy_cuda_tensor t;
    cy_cuda_tma_tensor(plan->kernel, schedule, b, &t);
    store_tensor(h, &t,
                 cy_gepc(cg, to, (int64_t)(offsetof(cyrt_cuda_tma, tensor) + (size_t)b * sizeof(cyrt_cuda_box))));
  }
  return to;
}

/* A cyrt_cuda_problem in memory of the function. */
static LLVMValueRef problem(cy_host *h, const cy_dim *field) {
  cy_cg *cg = h->cg;
  if (!h->fn.problem)
    h->fn.problem = cy_alloca(cg, CY_CUDA_PROBLEM_FIELDS * 8);
  for (int i = 0; i < CY_CUDA_PROBLEM_FIELDS; i++)
    cy_store(cg, cy_host_dim(h, field[i]), cy_gepc(cg, h->fn.problem, 8 * (int64_t)i), 8);
  return h->fn.problem;
}

static void launch(cy_host *h, const cy_step *s, const cy_kernel_plan *plan) {
  cy_cg *cg = h->cg;
  const cy_cuda_schedule *schedule = cy_cuda_schedule_of(plan);
  LLVMTypeRef params[7] = {cg->ptr, cg->i32, cg->ptr, cg->i64, cg->i64, cg->ptr, cg->ptr};
  LLVMValueRef blocks = cy_host_dim(h, schedule->blocks), written = cy_host_writes_some(h, s);
  if (written)
    blocks = cy_select(cg, written, blocks, cy_i64(cg, 0));
  LLVMValueRef then_blocks = schedule->shares ? cy_host_dim(h, schedule->combine_blocks) : cy_i64(cg, 0);
  LLVMValueRef args[7] = {h->fn.frame, cy_host_i32(h, plan - h->build->plans), cy_host_slots(h), blocks, then_blocks};
  args[5] = tma_kernel(h, plan);
  if (plan->dead_arg >= 0 && !plan->reads_dead) /* launches are compared slot by slot */
    cy_store(cg, LLVMConstNull(cg->ptr), cy_gepc(cg, args[2], (int64_t)sizeof(cyrt_slot) * plan->dead_arg), 8);
  bool offered = schedule->offer != NULL;
  if (offered)
    args[6] = problem(h, schedule->offer);
  const char *name = offered ? "cyrt_cuda_choose_launch" : "cyrt_cuda_launch";
  cy_host_check(h, cy_call(cg, cy_host_declare(h, name, cg->i32, params, 6 + offered, false), args, 6 + offered));
}

static LLVMValueRef fetch(cy_host *h, LLVMValueRef at, int64_t bytes) {
  cy_cg *cg = h->cg;
  LLVMTypeRef params[4] = {cg->ptr, cg->ptr, cg->i64, cg->ptr};
  LLVMValueRef fn = cy_host_declare(h, "cyrt_cuda_fetch", cg->i32, params, 4, false);
  LLVMValueRef here = cy_alloca(cg, 16), args[4] = {h->fn.frame, at, cy_i64(cg, bytes), here};
  cy_host_check(h, cy_call(cg, fn, args, 4));
  return here;
}

static LLVMValueRef call(cy_host *h, LLVMValueRef op, LLVMValueRef *a) {
  cy_cg *cg = h->cg;
  LLVMTypeRef params[7] = {cg->ptr, cg->ptr, cg->ptr, cg->i32, cg->ptr, cg->i32, cg->ptr};
  LLVMValueRef fn = cy_host_declare(h, "cyrt_cuda_call", cg->i32, params, 7, false);
  LLVMValueRef args[7] = {a[0], op, a[1], a[2], a[3], a[4], a[5]};
  return cy_call(cg, fn, args, 7);
}

/* ---- tables ---- */

/* A byte for each slot: may it change from step to step? A null pointer where none may. */
static LLVMValueRef varying_slots(cy_host *h, const cy_kernel_plan *plan, uint32_t slots) {
  const cy_cuda_schedule *schedule = cy_cuda_schedule_of(plan);
  char *bytes = calloc(slots + 1, 1);
  if (!bytes)
    cy_no_memory();
  for (uint32_t i = 0; i < slots; i++)
    bytes[i] = (char)cy_cuda_slot_varies(plan->kernel, schedule, i);
  LLVMValueRef data = LLVMConstStringInContext2(h->cg->ctx, bytes, slots, 1);
  free(bytes);
  return schedule->varying ? cy_host_constant(h, data) : LLVMConstNull(h->cg->ptr);
}

/* A cyrt_cuda_kernel. suffix: "" for the plan's own, else of a further one. */
static LLVMValueRef kernel_row(cy_host *h, const cy_kernel_plan *plan, const char *suffix) {
  const cy_cuda_schedule *schedule = cy_cuda_schedule_of(plan);
  const cy_dim *dims;
  char symbol[sizeof plan->symbol + 16];
  uint32_t slots = cy_plan_first_dim(plan) + cy_kernel_dims(plan->kernel, &dims);
  bool own = !*suffix, tma = !strcmp(suffix, "_tma");
  snprintf(symbol, sizeof symbol, "%s%s", plan->symbol, suffix);
  LLVMValueRef row[11] = {cy_host_text(h, symbol),
                          cy_host_external(h, plan->code.images),
                          cy_host_i32(h, slots),
                          cy_host_i32(h, own   ? schedule->threads
                                         : tma ? CY_CUDA_TMA_THREADS
                                               : CY_CUDA_COMBINE_THREADS),
                          cy_host_i32(h, schedule->stripes),
                          cy_host_i32(h, schedule->max_blocks ? schedule->max_blocks : INT32_MAX),
                          cy_host_i32(h, own   ? schedule->shared_bytes
                                         : tma ? CY_CUDA_TMA_SHARED
                                               : 0),
                          cy_host_i32(h, own ? schedule->group_shared_bytes : 0),
                          cy_host_i32(h, tma),
                          cy_host_i32(h, own && schedule->shares ? first_further(h, plan) : 0),
                          tma ? LLVMConstNull(h->cg->ptr) : varying_slots(h, plan, slots)};
  return LLVMConstStructInContext(h->cg->ctx, row, 11, 0);
}

/* The kernel that compares results, of the images of a plan that may be another library's. */
static LLVMValueRef agree_row(cy_host *h, const cy_kernel_plan *plan) {
  char symbol[sizeof plan->code.images + sizeof CY_CUDA_AGREE];
  int length = (int)(strlen(plan->code.images) - strlen(CY_CUDA_IMAGES));
  snprintf(symbol, sizeof symbol, "%.*s" CY_CUDA_AGREE, length, plan->code.images);
  LLVMValueRef row[11] = {cy_host_text(h, symbol), cy_host_external(h, plan->code.images)};
  const int64_t numbers[8] = {5, 256, 0, INT32_MAX, 0, 0, 0, 0}; /* slots, threads, .. as above */
  for (int i = 0; i < 8; i++)
    row[2 + i] = cy_host_i32(h, numbers[i]);
  row[10] = LLVMConstNull(h->cg->ptr);
  return LLVMConstStructInContext(h->cg->ctx, row, 11, 0);
}

/* Do equal input sizes and pointers always mean the same launches? Symbols are set from these as long as none is read. */
static bool replayable(const cy_step *s) {
  for (; s; s = s->next) {
    bool loop = s->kind == CY_STEP_LOOP && !s->cond;
    bool by_sizes =
        s->kind == CY_STEP_SET || s->kind == CY_STEP_IF || s->kind == CY_STEP_SHARED || s->kind == CY_STEP_ROOM || loop;
    if ((s->kind != CY_STEP_LAUNCH && !by_sizes) || !replayable(s->then_steps) || !replayable(s->else_steps))
      return false;
  }
  return true;
}

/* cyrt_cuda_bound rows of what kernels check, or a null pointer. */
static LLVMValueRef checks(cy_host *h) {
  const cy_requirement *list;
  uint32_t n = h->p->nchecks;
  cy_graph_requirements(h->g, &list);
  LLVMValueRef *rows = calloc((size_t)n + 1, sizeof *rows), table = LLVMConstNull(h->cg->ptr);
  if (!rows)
    cy_no_memory();
  for (uint32_t i = 0; i < n; i++) {
    const cy_requirement *r = &list[h->p->checks[i]];
    LLVMValueRef row[2] = {cy_host_text(h, cy_host_node_text(h, &r->origin)), cy_host_text(h, cy_host_demand(r))};
    rows[i] = LLVMConstStructInContext(h->cg->ctx, row, 2, 0);
  }
  if (n)
    table = cy_host_constant(h, LLVMConstArray2(LLVMTypeOf(rows[0]), rows, n));
  free(rows);
  return table;
}

static int by_offset(const void *a, const void *b) {
  const cy_constant *const *x = a, *const *y = b;
  return ((*x)->offset > (*y)->offset) - ((*x)->offset < (*y)->offset);
}

/* Where each weight begins that has bytes of its own: what lies within another one goes with it. */
static LLVMValueRef weights(cy_host *h, uint32_t *out_n) {
  const cy_program *p = h->p;
  const cy_constant **list = calloc((size_t)p->nconstants + 1, sizeof *list);
  LLVMValueRef *rows = calloc((size_t)p->nconstants + 1, sizeof *rows), table = LLVMConstNull(h->cg->ptr);
  uint32_t used = 0, n = 0;
  uint64_t end = 0;
  if (!list || !rows)
    cy_no_memory();
  for (uint32_t i = 0; i < p->nconstants; i++)
    if (h->build->constant_used[i] && p->constants[i].size)
      list[used++] = &p->constants[i];
  qsort(list, used, sizeof *list, by_offset);
  for (uint32_t i = 0; i < used; i++) {
    if (!n || list[i]->offset >= end)
      rows[n++] = cy_i64(h->cg, (int64_t)list[i]->offset);
    end = list[i]->offset + list[i]->size > end ? list[i]->offset + list[i]->size : end;
  }
  if (n)
    table = cy_host_table(h, rows, n);
  *out_n = n;
  free(list);
  free(rows);
  return table;
}

/* Which libraries the model looks for, and which it does not go without: of those that a kernel is offered to. */
static int library_flags(const cy_host *h) {
  const cy_machine *m = h->build->machine;
  int flags = 0;
  for (int i = 0; i < CY_LIBRARIES; i++) {
    bool any = false;
    for (uint32_t p = 0; p < h->build->nplans; p++)
      any |= cy_cuda_offered_to(m, h->build->plans[p].kernel, cy_cuda_schedule_of(&h->build->plans[p]), i);
    flags |= (any ? CYRT_CUDA_USE << i : 0) | (any && m->libraries[i] == CY_LIBRARY_REQUIRE ? CYRT_CUDA_REQUIRE << i : 0);
  }
  return flags;
}

static void describe(cy_host *h, LLVMValueRef *out_device, LLVMValueRef *out_data) {
  uint32_t nplans = h->build->nplans, n = nplans;
  LLVMValueRef *rows = calloc(3 * (size_t)n + 2, sizeof *rows), table = LLVMConstNull(h->cg->ptr);
  const cy_kernel_plan *compared = NULL;
  if (!rows)
    cy_no_memory();
  for (uint32_t i = 0; i < nplans; i++)
    rows[i] = kernel_row(h, &h->build->plans[i], "");
  for (uint32_t i = 0; i < nplans; i++) {
    const cy_kernel_plan *plan = &h->build->plans[i];
    compared = compared || !cy_cuda_schedule_of(plan)->offer ? compared : plan;
    if (cy_cuda_schedule_of(plan)->shares)
      rows[n++] = kernel_row(h, plan, "_combine");
    if (further(plan) > (cy_cuda_schedule_of(plan)->shares > 0))
      rows[n++] = kernel_row(h, plan, "_tma");
  }
  bool offered = compared != NULL;
  if (offered)
    rows[n++] = agree_row(h, compared);
  if (n)
    table = cy_host_constant(h, LLVMConstArray2(LLVMTypeOf(rows[0]), rows, n));
  free(rows);
  int flags = (replayable(h->p->steps) ? CYRT_CUDA_REPLAY : 0) | (offered ? library_flags(h) : 0);
  LLVMValueRef none = LLVMConstNull(h->cg->ptr);
  uint32_t nweights;
  LLVMValueRef weights_at = weights(h, &nweights);
  LLVMValueRef fields[11] = {cy_host_i32(h, n),
                             cy_host_i32(h, flags),
                             table,
                             offered ? cy_host_external(h, "cyrt_cuda_libraries") : none,
                             cy_i64(h->cg, h->p->nchecks),
                             cy_i64(h->cg, offered ? n - 1 : 0),
                             checks(h),
                             h->build->o->profile ? cy_host_external(h, "cyrt_cuda_trace") : none,
                             cy_i64(h->cg, (int64_t)cy_cuda_lengths(h->p)),
                             cy_i64(h->cg, nweights),
                             weights_at};
  *out_data = cy_host_constant(h, LLVMConstStructInContext(h->cg->ctx, fields, 11, 0));
  *out_device = cy_host_external(h, "cyrt_cuda_device");
}

const cy_host_device cy_host_cuda = {launch, fetch, call, describe};
