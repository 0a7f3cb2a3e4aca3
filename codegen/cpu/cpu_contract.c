/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_contract.c - contraction kernels of the IR in the terms of the generators (contract.h).
 *
 * In: cy_contraction, whose sizes are dims. Out: descriptors whose sizes are constants or slots, packed layouts of
 * constant weights, and after emission the phases. What is not covered here (see supports) becomes plain loops during
 * lowering: other types than f32, f32 with packed weights in half precision, bf16 where there is an instruction for it,
 * and 8-bit integers with i32 sums, empty products, convolutions whose weights are computed at run time (with enough
 * channels they are products by then, see passes/lower/lower_unfold.c) or whose channels are not dense.
 *
 * Appended arguments, in this order: packed weights, scratch per worker, shared scratch.
 */
#include "codegen/cpu/cpu.h"
#include "codegen/cpu/int8/int_gemm.h"
#include "codegen/cpu/variants.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PARTS = 64, MAX_BLOCK = 256 };

/* A constant's packed layout: what write_packed() needs, without the generators. */
typedef struct packed_weights {
  cy_packing packing;
  cy_pack_source source; /* strides; w is set when packing */
  int64_t w_offset;      /* bytes from the start of the constant */
} packed_weights;

/* What prepare() decided, cy_kernel_plan.schedule: which generator, and what it planned for which descriptor. Made once, read
 * by packing, naming and emission. */
typedef struct contraction_plan {
  const cy_generator *by;
  const void *plan; /* the generator's own, of .. */
  union {
    cy_gemm_desc gemm;
    cy_conv_desc conv;
    cy_int_gemm_desc ints;
    cy_attention_desc attention;
  } desc;
  bool packed, ints;
  bool split, winograd; /* of weights in integers, as the descriptor has them: see int_gemm.h */
  int64_t again;
  int64_t matrices;              /* of the constant */
  int64_t b_batch[CY_MAX_BATCH]; /* matrices per step of a batch axis of packed weights */
  packed_weights weights;
} contraction_plan;

/* ---- sizes ---- */

static bool known(cy_kernel *k, cy_dim d, int64_t *out) { return d && cy_dim_is_const(cy_kernel_graph(k), d, out); }

typedef struct range {
  int64_t min, max;
} range;

static range range_of(cy_kernel *k, cy_dim d) {
  range r;
  cy_dim_range(cy_kernel_graph(k), d, &r.min, &r.max);
  return r;
}

static cy_csize size_of(cy_kernel *k, cy_dim d) {
  int64_t v;
  if (!d || known(k, d, &v))
    return cy_cconst(d ? v : 0);
  const cy_dim *dims;
  uint32_t n = cy_kernel_dims(k, &dims);
  for (uint32_t i = 0; i < n; i++)
    if (dims[i] == d)
      return cy_cslot((int32_t)(cy_kernel_args(k, NULL) + i));
  cy_bug("kernel '%s': a size of the contraction is not among its dims", cy_kernel_name(k));
}

/* ---- what is supported ---- */

static bool positive_or_symbolic(cy_kernel *k, cy_dim d) {
  int64_t v;
  return !known(k, d, &v) || v > 0;
}

static bool matmul_supported(cy_kernel *k, const cy_contraction *c) {
  for (int i = 0; i < c->nbatch; i++)
    if (!positive_or_symbolic(k, c->batch[i]))
      return false;
  return c->nbatch <= CY_GEMM_BATCH && positive_or_symbolic(k, c->m) && positive_or_symbolic(k, c->n) &&
         positive_or_symbolic(k, c->k);
}

static bool conv_supported(cy_kernel *k, const cy_contraction *c) {
  int64_t v, cin, cout, parts = 1;
  if (!c->b_const || !known(k, c->channels_in, &cin) || !known(k, c->channels_out, &cout) || cin <= 0 || cout <= 0)
    return false;
  if (c->group <= 0 || cin % c->group || cout % c->group)
    return false;
  if (c->planar ? c->kind != CY_CONTRACT_CONV || cy_kernel_arg_dtype(k, c->b) != CY_F32
                : cin != 1 && (!known(k, c->x_channel, &v) || v != 1))
    return false;
  for (int i = 0; i < c->nspatial; i++) {
    if (!known(k, c->pad[i], &v) || v < 0 || c->kernel[i] <= 0 || !positive_or_symbolic(k, c->in[i]))
      return false;
    if (!positive_or_symbolic(k, c->out[i]))
      return false;
    parts *= c->kind == CY_CONTRACT_CONV_TRANSPOSE ? c->stride[i] : 1;
  }
  return c->nspatial >= 1 && c->nspatial <= 3 && parts <= MAX_PARTS && positive_or_symbolic(k, c->images);
}

static bool dot_supported(cy_kernel *k, const cy_contraction *c, cy_dtype a, cy_dtype b) {
  if (cy_kernel_local_dtype(k, c->acc) != CY_I32 || !cy_dtype_is_byte(a) || (!cy_dtype_is_byte(b) && b != CY_I16))
    return false;
  return c->kind == CY_CONTRACT_MATMUL || (c->kind == CY_CONTRACT_CONV && !c->has_b_zero);
}

static bool bf16_supported(const cy_machine *m, cy_kernel *k, const cy_contraction *c, cy_dtype a, cy_dtype b) {
  const cy_cg *cg = m->state;
  return (cg->bf16_dot || cg->amx_bf16) && a == CY_BF16 && b == CY_BF16 && cy_kernel_local_dtype(k, c->acc) == CY_F32 &&
         (c->kind == CY_CONTRACT_MATMUL || c->kind == CY_CONTRACT_CONV || c->kind == CY_CONTRACT_ATTENTION);
}

/* Heads of a known size, up to what a block's scratch is planned for. */
static bool attention_supported(const cy_machine *m, cy_kernel *k, const cy_contraction *c) {
  int64_t size, columns, max = m->caps.max_head;
  return known(k, c->k, &size) && known(k, c->n, &columns) && size > 0 && size <= max && columns > 0 &&
         columns <= max && cy_kernel_arg_dtype(k, c->v) == cy_kernel_arg_dtype(k, c->a) &&
         positive_or_symbolic(k, c->keys) && matmul_supported(k, c);
}

static bool packs(cy_kernel *k, const cy_contraction *c, contraction_plan *f);

/* Weights in half precision become floats in the micro-kernels: only packed ones, where one instruction does it. */
static bool half_supported(const cy_machine *m, cy_kernel *k, const cy_contraction *c, cy_dtype b) {
  contraction_plan f = {0};
  if (c->kind == CY_CONTRACT_ATTENTION || !cy_caps_half_weights(&m->caps, b) || !c->b_const)
    return false;
  return c->kind != CY_CONTRACT_MATMUL || packs(k, c, &f);
}

/* Weights in integers with scales; what a panel has of them begins and ends with a block. */
static bool blocks_supported(const cy_machine *m, cy_kernel *k, const cy_contraction *c, cy_dtype a, cy_dtype b) {
  int64_t n, rows, tile;
  if (a != CY_F32 || !cy_dtype_is_byte(b) || !known(k, c->n, &n) || !known(k, c->k, &rows) ||
      !known(k, c->b_k, &tile) || c->b_block > MAX_BLOCK || !matmul_supported(k, c))
    return false;
  if (c->rounded == CY_I8)
    return cy_quantised_rows_possible(m->state, c->b_bits, c->b_block, tile, n);
  if (c->rounded == CY_I32)
    return range_of(k, c->m).max <= CY_INT_GEMM_FEW &&
           cy_int_gemm_few_possible(m->state, c->b_bits, c->b_block, tile, n);
  return !c->rounded || (c->rounded == CY_BF16 && cy_int_gemm_blocks_possible(m->state, c->b_block, rows));
}

bool cy_cpu_int_rows(const cy_machine *m, int bits, int64_t block, int64_t n) {
  return cy_quantised_rows_possible(m->state, bits, block, n, n);
}

bool cy_cpu_contract_supports(const cy_machine *m, cy_kernel *k) {
  const cy_contraction *c = cy_kernel_contraction(k);
  cy_dtype a = cy_kernel_arg_dtype(k, c->a), b = cy_kernel_arg_dtype(k, c->b);
  if (c->b_bits && (c->b_codes || cy_dtype_is_float(cy_kernel_arg_dtype(k, c->b))))
    return false;
  if (c->b_bits)
    return blocks_supported(m, k, c, a, b);
  if (c->rounded)
    return false;
  bool floats =
      a == CY_F32 && cy_kernel_local_dtype(k, c->acc) == CY_F32 && (b == CY_F32 || half_supported(m, k, c, b));
  if (!floats && !bf16_supported(m, k, c, a, b) && !dot_supported(k, c, a, b))
    return false;
  if (c->kind == CY_CONTRACT_ATTENTION)
    return attention_supported(m, k, c);
  return c->kind == CY_CONTRACT_MATMUL ? matmul_supported(k, c) : conv_supported(k, c);
}

/* ---- descriptors ---- */

static void set_slots(const cy_kernel_plan *plan, int *a, int *b, int *scratch, int *shared) {
  const cy_contraction *c = cy_kernel_contraction(plan->kernel);
  *a = (int)c->a;
  *b = plan->packed_arg >= 0 ? plan->packed_arg : (int)c->b;
  *scratch = plan->scratch_arg;
  *shared = plan->shared_arg;
}

/* How the constant operand of floats is stored. */
static cy_weights weights_of(cy_kernel *k) {
  cy_dtype b = cy_kernel_arg_dtype(k, cy_kernel_contraction(k)->b);
  return b == CY_F16 ? CY_WEIGHTS_F16 : b == CY_BF16 ? CY_WEIGHTS_BF16 : CY_WEIGHTS_F32;
}

static cy_gemm_desc gemm_desc(const cy_kernel_plan *plan, const contraction_plan *f) {
  cy_kernel *k = plan->kernel;
  const cy_contraction *c = cy_kernel_contraction(k);
  cy_gemm_desc d = {.name = plan->symbol, .n_batch = c->nbatch, .b_packed = f->packed, .weights = weights_of(k)};
  for (int i = 0; i < c->nbatch; i++) {
    d.batch[i] = size_of(k, c->batch[i]);
    d.a_batch[i] = size_of(k, c->a_batch[i]);
    d.b_batch[i] = f->packed ? cy_cconst(f->b_batch[i]) : size_of(k, c->b_batch[i]);
  }
  d.m = size_of(k, c->m);
  d.m_min = range_of(k, c->m).min;
  d.n = size_of(k, c->n);
  d.k = size_of(k, c->k);
  d.am = size_of(k, c->a_m);
  d.ak = size_of(k, c->a_k);
  d.bk = size_of(k, c->b_k);
  d.bn = size_of(k, c->b_n);
  set_slots(plan, &d.a_slot, &d.b_slot, &d.scratch_slot, &d.shared_slot);
  d.ints.bits = c->b_bits;
  d.ints.is_signed = cy_kernel_arg_dtype(k, c->b) == CY_I8;
  d.ints.bf16 = c->rounded == CY_BF16;
  d.ints.quantised_rows = c->rounded == CY_I8;
  d.ints.rows24 = c->rounded == CY_I32;
  d.ints.tile = cy_csize_known(d.bk);
  d.ints.block = c->b_block;
  d.ints.middle = c->b_middle;
  d.ints.scale_slot = (int)c->b_scale;
  d.ints.zero_slot = c->has_b_zero ? (int)c->b_zero : -1;
  return d;
}

static cy_attention_desc attention_desc(const cy_kernel_plan *plan) {
  cy_kernel *k = plan->kernel;
  const cy_contraction *c = cy_kernel_contraction(k);
  cy_attention_desc d = {.name = plan->symbol,
                         .n_batch = c->nbatch,
                         .m = size_of(k, c->m),
                         .keys = size_of(k, c->keys),
                         .qm = size_of(k, c->a_m),
                         .qd = size_of(k, c->a_k),
                         .kj = size_of(k, c->b_n),
                         .kd = size_of(k, c->b_k),
                         .vj = size_of(k, c->v_k),
                         .vn = size_of(k, c->v_n),
                         .q_slot = (int)c->a,
                         .k_slot = (int)c->b,
                         .v_slot = (int)c->v,
                         .scratch_slot = plan->scratch_arg,
                         .scale = c->scale,
                         .bf16 = cy_kernel_arg_dtype(k, c->a) == CY_BF16,
                         .causal = c->causal,
                         .window = c->window,
                         .past = size_of(k, c->past),
                         .zero_hidden = c->zero_hidden,
                         .changes_scores = cy_cpu_changes_scores(k)};
  for (int i = 0; i < c->nbatch; i++) {
    d.batch[i] = size_of(k, c->batch[i]);
    d.q_batch[i] = size_of(k, c->a_batch[i]);
    d.k_batch[i] = size_of(k, c->b_batch[i]);
    d.v_batch[i] = size_of(k, c->v_batch[i]);
  }
  known(k, c->k, &d.size);
  known(k, c->n, &d.columns);
  return d;
}

static cy_conv_desc conv_desc(const cy_kernel_plan *plan) {
  cy_kernel *k = plan->kernel;
  const cy_contraction *c = cy_kernel_contraction(k);
  cy_conv_desc d = {.name = plan->symbol,
                    .n_spatial = c->nspatial,
                    .weights = weights_of(k),
                    .transposed = c->kind == CY_CONTRACT_CONV_TRANSPOSE,
                    .groups = c->group,
                    .batch = size_of(k, c->images),
                    .in_n = size_of(k, c->x_image),
                    .planar = c->planar,
                    .in_c = size_of(k, c->x_channel)};
  for (int i = 0; i < c->nspatial; i++) {
    d.in[i] = size_of(k, c->in[i]);
    d.out[i] = size_of(k, c->out[i]);
    d.in_s[i] = size_of(k, c->x_spatial[i]);
    d.kernel[i] = c->kernel[i];
    d.stride[i] = c->stride[i];
    d.dilation[i] = c->dilation[i];
    known(k, c->pad[i], &d.pad[i]);
  }
  known(k, c->channels_in, &d.cin);
  known(k, c->channels_out, &d.cout);
  set_slots(plan, &d.a_slot, &d.b_slot, &d.scratch_slot, &d.shared_slot);
  return d;
}

static cy_int_gemm_desc int_gemm_desc(const cy_kernel_plan *plan, const contraction_plan *f) {
  const cy_contraction *c = cy_kernel_contraction(plan->kernel);
  cy_dtype a = cy_kernel_arg_dtype(plan->kernel, c->a), b = cy_kernel_arg_dtype(plan->kernel, c->b);
  cy_int_gemm_desc d = {.conv = c->kind != CY_CONTRACT_MATMUL,
                        .a_signed = a == CY_I8,
                        .b_signed = b != CY_U8,
                        .b_bits = (unsigned)cy_dtype_of(b)->bits,
                        .bf16 = a == CY_BF16,
                        .a_zero_slot = c->has_a_zero ? (int)c->a_zero : -1,
                        .b_zero_slot = c->has_b_zero ? (int)c->b_zero : -1,
                        .b_zero_step = c->b_zero_step,
                        .started = c->has_start,
                        .start_slot = (int)c->start,
                        .split = f->split,
                        .again = f->again,
                        .winograd = f->winograd};
  if (d.conv)
    memcpy(d.shuffle, c->shuffle, sizeof d.shuffle);
  if (d.conv)
    d.window = conv_desc(plan);
  else
    d.gemm = gemm_desc(plan, f);
  return d;
}

/* ---- packed weights ---- */

/* May B, a constant, be packed? Needs constant sizes, and matrices at equal distances in the order of the batch axes.
 */
static bool packs(cy_kernel *k, const cy_contraction *c, contraction_plan *f) {
  int64_t n, kk, bn, bk, distance = 0, matrices = 1;
  if (!known(k, c->n, &n) || !known(k, c->k, &kk) || !known(k, c->b_n, &bn) || !known(k, c->b_k, &bk))
    return false;
  for (int i = c->nbatch - 1; i >= 0; i--) {
    int64_t extent, stride;
    if (!known(k, c->b_batch[i], &stride))
      return false;
    f->b_batch[i] = 0;
    if (stride == 0)
      continue;
    if (!known(k, c->batch[i], &extent))
      return false;
    if (!distance)
      distance = stride;
    if (stride != distance * matrices)
      return false;
    f->b_batch[i] = matrices;
    matrices *= extent;
  }
  f->weights.source = (cy_pack_source){.gs = distance, .ns = bn, .cs = bk};
  f->matrices = matrices;
  return true;
}

static cy_pack_source conv_source(const cy_conv_desc *d) {
  int64_t taps = cy_conv_taps(d), cin = d->cin / d->groups, cout = d->cout / d->groups;
  return (cy_pack_source){.gs = cin * cout * taps,
                          .ns = d->transposed ? taps : cin * taps,
                          .ts = 1,
                          .cs = d->transposed ? cout * taps : taps};
}

/* Plans by the generator that is chosen, for the descriptor that is set; packs b as that wants it. */
static void plan_by(const cy_cg *cg, contraction_plan *f, const cy_generator *by, cy_arena *arena) {
  f->by = by;
  f->plan = by->plan(cg, &f->desc, arena);
  if (f->packed)
    by->pack(cg, f->plan, f->matrices, arena, &f->weights.packing);
}

static void plan_ints(const cy_cg *cg, const cy_kernel_plan *plan, contraction_plan *f, cy_arena *arena) {
  cy_int_gemm_desc *d = &f->desc.ints;
  *d = int_gemm_desc(plan, f);
  if (d->conv) {
    f->weights.source = conv_source(&d->window);
    f->matrices = d->window.groups;
  }
  f->weights.source.bits = d->b_bits;
  f->weights.source.is_signed = d->b_signed;
  plan_by(cg, f, cy_int_generator(d), arena);
}

/* That of the constant's bytes. */
static cy_pack_source source_at(const packed_weights *f, const void *bytes) {
  cy_pack_source s = f->source;
  s.w = (const char *)bytes + f->w_offset;
  return s;
}

typedef int64_t measure(const cy_pack_layout *layout, const cy_pack_source *source);

typedef struct measuring {
  cy_program *p;
  const cy_kernel_plan *plan;
  const packed_weights *weights;
  measure *measure;
  int64_t max;
} measuring;

static void measure_step(void *ctx, cy_step *s) {
  measuring *c = ctx;
  int64_t offset = 0;
  if (s->kind != CY_STEP_LAUNCH || s->kernel != c->plan->kernel)
    return;
  const cy_bind *b = &s->bind[c->plan->dead_arg];
  const cy_value *v = cy_value_of(c->p->g, c->p->constants[c->p->buffers[b->buffer].index].value);
  if (b->offset && !cy_dim_is_const(c->p->g, b->offset, &offset))
    cy_bug("kernel '%s': weights begin at a place that is not known", cy_kernel_name(s->kernel));
  cy_pack_source source = source_at(c->weights, (const char *)v->data.bytes + offset);
  int64_t here = c->measure(&c->weights->packing.part->layout, &source);
  c->max = here > c->max ? here : c->max;
}

/* The most that `measure` finds in the constants that launches of the kernel bind. */
static int64_t max_of(cy_program *p, const cy_kernel_plan *plan, const packed_weights *weights, measure *by) {
  measuring c = {p, plan, weights, by, 0};
  cy_steps_visit(p->steps, measure_step, &c);
  return c.max;
}

/* Of constant weights. */
static void int_candidates(const cy_cg *cg, cy_program *p, const cy_kernel_plan *plan, const contraction_plan *f,
                           const cy_int_gemm_desc *d, cy_candidates *c) {
  bool winograd = f->weights.packing.part->layout.groups == 1 && cy_int_winograd_possible(cg, d);
  bool exact = winograd && cy_int_winograd_exact(max_of(p, plan, &f->weights, cy_int_gemm_largest_sum));
  cy_int_candidates(cg, d, winograd, exact, c);
  cy_candidates_choose(cg, c);
}

/* The packed layout of 8-bit weights: split, where what they are makes that faster, or as small; for Winograd's algorithm,
 * where they are so small that it is exact. */
static void choose_ints(const cy_machine *m, cy_program *p, cy_kernel_plan *plan, contraction_plan *f,
                        cy_candidates *candidates, cy_arena *arena) {
  const cy_cg *cg = m->state;
  cy_int_gemm_desc d = int_gemm_desc(plan, f);
  f->split = cy_int_gemm_split_possible(cg, &d);
  plan_ints(cg, plan, f, arena);
  int_candidates(cg, p, plan, f, &d, candidates);
  f->winograd = candidates->of[candidates->chosen].name == cy_conv_name(CY_CONV_WINOGRAD);
  if (!f->split && !f->winograd)
    return;
  if (f->split) {
    f->again = max_of(p, plan, &f->weights, cy_int_gemm_again);
    f->split = m->smallest ? f->again == 0 : cy_int_gemm_split_pays(&f->weights.packing.part->layout, f->again);
    f->again = f->split ? f->again : 0;
  }
  plan_ints(cg, plan, f, arena);
}

/* Large weights are packed in pieces, by several threads and without all of them in memory. */
static uint32_t piece_count(const packed_weights *f) {
  const int64_t piece_bytes = 8 << 20;
  int64_t units = INT64_MAX, pieces = f->packing.bytes / piece_bytes + 1;
  for (int i = 0; i < f->packing.n_parts; i++)
    units = cy_pack_units(&f->packing.part[i].layout) < units ? cy_pack_units(&f->packing.part[i].layout) : units;
  return (uint32_t)(pieces < units ? pieces : units > 0 ? units : 1);
}

/* The constant's writer: runs on any thread, needs nothing but the packed layout. */
static void write_packed(const cy_graph *g, cy_val v, const void *arg, uint32_t piece, void *out) {
  const packed_weights *f = arg;
  cy_pack_source s = source_at(f, cy_value_of(g, v)->data.bytes);
  for (int i = 0; i < f->packing.n_parts; i++) {
    const cy_pack_part *p = &f->packing.part[i];
    int64_t units = cy_pack_units(&p->layout), pieces = piece_count(f);
    s.tap_map = p->tap_map;
    (p->layout.split ? cy_int_split_run : cy_pack_run)(&p->layout, &s, units * piece / pieces,
                                                       units * (piece + 1) / pieces, (char *)out + p->offset);
  }
}

/* Runs of the panels of integers. */
static const char *order_key(cy_arena *arena, const char *key, const cy_int_gemm_order *o) {
  key = cy_arena_printf(arena, "%s|%u%s", key, o->together, o->rows ? "r" : "");
  for (int i = 0; i < 3; i++)
    key = cy_arena_printf(arena, "%s %lld:%lld+%lld+%lld", key, (long long)o->taps[i], (long long)o->shuffle[i].positions,
                          (long long)o->shuffle[i].before, (long long)o->shuffle[i].behind);
  return key;
}

static const char *part_key(cy_arena *arena, const char *key, const cy_pack_part *p) {
  const cy_pack_layout *l = &p->layout;
  key = cy_arena_printf(arena, "%s|%lld %lld %lld %lld %lld %lld %u %u %u %d %d %d %d %d %lld %lld", key, (long long)l->groups,
                        (long long)l->n, (long long)l->taps, (long long)l->c, (long long)l->tap_block, (long long)l->c_block,
                        l->nr, l->last, l->step, l->merged, l->winograd, l->depthwise, l->weights, l->split, (long long)l->again,
                        (long long)l->sum_columns);
  int64_t maps = l->places ? l->places : l->depth ? l->depth : 1;
  for (int64_t t = 0; p->tap_map && t < l->taps * maps; t++)
    key = cy_arena_printf(arena, "%s,%d", key, p->tap_map[t]);
  return l->order ? order_key(arena, key, l->order) : key;
}

/* Equal texts mean equal packed bytes for the same constant. */
static const char *pack_key(cy_arena *arena, const packed_weights *f) {
  const cy_pack_source *s = &f->source;
  const char *key = cy_arena_printf(arena, "packed %lld %lld %lld %lld %lld %u%c", (long long)f->w_offset, (long long)s->gs,
                                    (long long)s->ns, (long long)s->ts, (long long)s->cs, s->bits, s->is_signed ? 's' : 'u');
  for (int i = 0; i < f->packing.n_parts; i++)
    key = part_key(arena, key, &f->packing.part[i]);
  return key;
}

uint32_t cy_cpu_contract_pack(cy_program *p, cy_kernel_plan *plan, cy_val v, int64_t offset) {
  cy_arena *arena = cy_graph_arena(p->g);
  const contraction_plan *f = plan->schedule;
  packed_weights *mine = CY_NEW(arena, packed_weights);
  *mine = f->weights;
  mine->w_offset = offset;
  return cy_program_add_constant(p, v, (uint64_t)mine->packing.bytes, pack_key(arena, mine), write_packed, mine,
                                 piece_count(mine));
}

/* ---- where packed elements lie ---- */

/* Of one matrix whose columns go through k in its order. */
static bool panels_of(const packed_weights *f, cy_panels *out) {
  const cy_pack_part *p = f->packing.part;
  const cy_pack_layout *l = &p->layout;
  int64_t step = cy_pack_step(l), size = cy_weight_bytes(l->weights), padded = l->c;
  if (f->packing.n_parts != 1 || p->offset || (p->tap_map && p->tap_map[0]) || l->groups != 1 || l->taps != 1 ||
      l->places || l->merged > 1 || l->depth > 1 || l->winograd || l->depthwise || l->split ||
      (f->source.bits && f->source.bits != size * 8))
    return false;
  if (!l->order && step > 1)
    return false;
  if (l->order) {
    cy_int_gemm_runs r = cy_int_gemm_runs_of(l->order, 0);
    if (r.runs != 1 || cy_int_gemm_order_shuffles(l->order))
      return false;
    padded = r.groups * step;
  }
  *out = (cy_panels){.n = l->n,
                     .k = l->c,
                     .k_padded = padded,
                     .k_block = l->order ? padded : l->c_block,
                     .nr = l->nr,
                     .last = l->last ? l->last : l->nr,
                     .step = step,
                     .element = size};
  return true;
}

bool cy_cpu_panels_of(const cy_constant *packed, cy_panels *out) {
  const packed_weights *f = packed->layout;
  if (packed->write != write_packed || !panels_of(f, out))
    return false;
  out->from = f->w_offset;
  out->from_n = f->source.ns;
  out->from_k = f->source.cs;
  return true;
}

/* ---- preparing ---- */

/* May b be packed when compiling? */
static bool is_packed(cy_kernel *k, contraction_plan *f) {
  const cy_contraction *c = cy_kernel_contraction(k);
  f->matrices = 1;
  return c->b_const && !c->has_b_zero && (c->kind != CY_CONTRACT_MATMUL || packs(k, c, f));
}

/* Is it multiplied by instructions that add up groups of k: integers, bf16? */
static bool by_groups(cy_kernel *k) {
  const cy_contraction *c = cy_kernel_contraction(k);
  return cy_kernel_local_dtype(k, c->acc) == CY_I32 || cy_kernel_arg_dtype(k, c->a) == CY_BF16;
}

/* Weights decide whether they are split, or for Winograd's algorithm; all that a kernel is launched with have to be packed
 * alike. */
uint64_t cy_cpu_contract_share_key(const cy_machine *m, cy_program *p, cy_kernel *k) {
  const cy_contraction *c = cy_kernel_contraction(k);
  contraction_plan f = {0};
  if (c->kind == CY_CONTRACT_NONE || c->kind == CY_CONTRACT_ATTENTION || !by_groups(k) || !is_packed(k, &f))
    return 0;
  cy_kernel_plan plan = {.kernel = k, .dead_arg = (int32_t)c->b, .packed_arg = -1};
  cy_arena *arena = cy_arena_create();
  f.packed = f.ints = true;
  cy_candidates candidates;
  choose_ints(m, p, &plan, &f, &candidates, arena);
  cy_arena_destroy(arena);
  return f.winograd ? UINT64_MAX : f.split ? 1 + (uint64_t)f.again : 0;
}

/* Appends what packed weights and scratch are bound to. */
static void append_arguments(cy_kernel_plan *plan, bool packed) {
  cy_kernel *k = plan->kernel;
  const cy_contraction *c = cy_kernel_contraction(k);
  if (packed) {
    plan->dead_arg = (int32_t)c->b;
    plan->reads_dead = cy_kernel_rereads_b(k);
    plan->packed_arg = (int32_t)cy_kernel_add_arg(k, CY_ARG_READ, CY_F32, 0);
  }
  plan->scratch_arg = (int32_t)cy_kernel_add_arg(k, CY_ARG_SCRATCH, CY_F32, cy_dim_const(cy_kernel_graph(k), 0));
  if (c->kind != CY_CONTRACT_ATTENTION)
    plan->shared_arg = (int32_t)cy_kernel_add_arg(k, CY_ARG_WRITE, CY_F32, 0);
}

/* Why it is the chosen candidate; NULL: there is no other. */
static const char *reason(const cy_cg *cg, cy_arena *arena, const cy_candidates *c) {
  const cy_candidate *chosen = &c->of[c->chosen], *next = NULL;
  for (const cy_candidate *x = c->of; x < c->of + c->n; x++)
    if (x != chosen && (x->applies || cg->strict_fp) && (!next || x->cycles * x->margin < next->cycles * next->margin))
      next = x;
  if (!strcmp(chosen->name, cy_conv_name(CY_CONV_DEPTHWISE)))
    return "each channel has a filter of its own, there are no sums over channels to share";
  if (!next)
    return NULL;
  const char *text = cy_arena_printf(arena, "%s %.0f kcycles, %s %.0f, estimated", chosen->name, chosen->cycles / 1e3,
                                     next->name, next->cycles / 1e3);
  if (!next->applies)
    return cy_arena_printf(arena, "%s; --fast-algorithms=off", text);
  return next->cycles < chosen->cycles ? cy_arena_printf(arena, "%s; less than %.2f times as fast", text, next->margin)
                                       : text;
}

static void keep_candidates(const cy_cg *cg, cy_arena *arena, cy_kernel_plan *plan, const cy_candidates *c) {
  if (!c->n)
    return;
  cy_candidates *kept = CY_NEW(arena, cy_candidates);
  *kept = *c;
  plan->candidates = kept;
  plan->why = reason(cg, arena, kept);
}

/* The only candidate of a layer whose text is set. */
static void keep_only(const cy_cg *cg, cy_arena *arena, cy_kernel_plan *plan, cy_candidates *c, const char *name, double cycles) {
  cy_candidates_add(c, (cy_candidate){name, cycles, 1, true, false});
  cy_candidates_choose(cg, c);
  keep_candidates(cg, arena, plan, c);
}

/* Adds variants to an algorithm's candidates, chooses, and keeps them; returns what the choice has it planned by. */
static cy_cg with_variants(const cy_cg *cg, cy_arena *arena, cy_kernel_plan *plan, const cy_variants *v, int n,
                           cy_candidates *c) {
  for (int i = 0; i < n; i++)
    cy_variants_add(cg, &v[i], c);
  cy_candidates_choose(cg, c);
  keep_candidates(cg, arena, plan, c);
  cy_cg with = *cg;
  cy_variant_take(&with, c);
  return with;
}

/* Weights decide how they are packed; then what accumulators begin with becomes part of the descriptor. Where they are split,
 * there are no variants. */
static void prepare_ints(const cy_machine *m, cy_program *p, cy_kernel_plan *plan, contraction_plan *f,
                         cy_arena *arena) {
  cy_cg with = *(const cy_cg *)m->state;
  cy_candidates c = {.n = 0};
  if (f->packed)
    choose_ints(m, p, plan, f, &c, arena);
  cy_int_gemm_desc d = int_gemm_desc(plan, f);
  if (!f->packed) {
    cy_int_candidates(m->state, &d, false, false, &c);
    cy_candidates_choose(m->state, &c);
  }
  if (!f->packed || f->split)
    keep_candidates(m->state, arena, plan, &c);
  else {
    cy_int_gemm_desc direct = d;
    direct.winograd = false;
    cy_variants v = cy_int_variants(m->state, &direct);
    with = with_variants(m->state, arena, plan, &v, 1, &c);
  }
  if (cy_int_gemm_starts(&d))
    cy_kernel_fold_start(plan->kernel);
  plan_ints(&with, plan, f, arena);
}

static const cy_generator *gemm_generator(const cy_gemm_desc *d) {
  return d->ints.bf16             ? &cy_int_blocks_generator
         : d->ints.quantised_rows ? &cy_quantised_rows_generator
         : d->ints.rows24         ? &cy_few_rows_generator
                                  : &cy_gemm_generator;
}

static bool has(const cy_candidates *c, const char *name) {
  for (int i = 0; i < c->n; i++)
    if (!strcmp(c->of[i].name, name))
      return true;
  return false;
}

static void prepare_conv(const cy_cg *cg, cy_kernel_plan *plan, contraction_plan *f, cy_arena *arena) {
  cy_conv_desc *d = &f->desc.conv;
  *d = conv_desc(plan);
  cy_candidates c;
  cy_conv_candidates(cg, d, &c);
  cy_variants v[2];
  int n = 0;
  if (has(&c, cy_conv_name(CY_CONV_WINOGRAD)))
    v[n++] = cy_winograd_variants(d);
  if (!has(&c, cy_conv_name(CY_CONV_DEPTHWISE)))
    v[n++] = cy_direct_variants(cg, d);
  cy_cg with = with_variants(cg, arena, plan, v, n, &c);
  f->weights.source = conv_source(d);
  plan_by(&with, f, cy_conv_generator(cy_conv_chosen(&c)), arena);
}

static void prepare_gemm(const cy_cg *cg, cy_kernel_plan *plan, contraction_plan *f, cy_arena *arena) {
  cy_gemm_desc *d = &f->desc.gemm;
  *d = gemm_desc(plan, f);
  cy_candidates c;
  if (d->ints.bits) {
    const char *type = d->ints.bits == 4 ? "_int4" : d->ints.bits == 8 ? "_int8" : "_int";
    cy_gemm_desc constant = *d; /* as they are read where the model has them, but they do not come at run time */
    constant.b_packed = true;
    c = (cy_candidates){.n = 0};
    cy_gemm_text(&constant, cy_arena_printf(arena, "%s_weights", type), &c);
    keep_only(cg, arena, plan, &c, "plain", cy_gemm_cost(cg, d));
    plan_by(cg, f, gemm_generator(d), arena);
    return;
  }
  cy_gemm_candidates(cg, d, &c);
  cy_variants v = cy_gemm_variants(cg, d);
  cy_cg with = with_variants(cg, arena, plan, &v, 1, &c);
  plan_by(&with, f, gemm_generator(d), arena);
}

static void prepare_attention(const cy_cg *cg, cy_kernel_plan *plan, const cy_attention_desc *d, cy_arena *arena) {
  cy_candidates c = {.n = 0};
  cy_attention_text(d, &c);
  keep_only(cg, arena, plan, &c, "blocks", cy_attention_cost(cg, d));
}

static void prepare_floats(const cy_cg *cg, cy_kernel_plan *plan, contraction_plan *f, cy_arena *arena) {
  switch (cy_kernel_contraction(plan->kernel)->kind) {
  case CY_CONTRACT_ATTENTION:
    f->desc.attention = attention_desc(plan);
    prepare_attention(cg, plan, &f->desc.attention, arena);
    plan_by(cg, f, &cy_attention_generator, arena);
    return;
  case CY_CONTRACT_MATMUL:
    prepare_gemm(cg, plan, f, arena);
    return;
  default:
    prepare_conv(cg, plan, f, arena);
  }
}

/* For --explain. */
static const char *algorithm_of(cy_kernel *k, const contraction_plan *f, cy_arena *arena) {
  const char *name = f->by->name ? f->by->name(f->plan) : f->by->text;
  cy_weights weights = weights_of(k);
  bool plain = f->ints || weights == CY_WEIGHTS_F32 || cy_kernel_contraction(k)->kind == CY_CONTRACT_ATTENTION;
  return plain ? name : cy_arena_printf(arena, "%s %s", name, cy_weights_suffix(weights) + 1);
}

void cy_cpu_contract_prepare(const cy_machine *m, cy_program *p, cy_kernel_plan *plan) {
  cy_kernel *k = plan->kernel;
  const cy_contraction *c = cy_kernel_contraction(k);
  bool attention = c->kind == CY_CONTRACT_ATTENTION;
  cy_arena *arena = cy_graph_arena(cy_kernel_graph(k));
  contraction_plan *f = CY_NEW(arena, contraction_plan);
  plan->schedule = f;
  plan->weight = attention ? 4000 : 1500;
  f->ints = !attention && by_groups(k);
  f->packed = !attention && is_packed(k, f);
  if (!attention && c->kind != CY_CONTRACT_MATMUL && !f->packed)
    cy_bug("kernel '%s': a convolution whose weights cannot be packed", cy_kernel_name(k));
  append_arguments(plan, f->packed);
  if (f->ints)
    prepare_ints(m, p, plan, f, arena);
  else
    prepare_floats(m->state, plan, f, arena);
  char text[160];
  f->by->describe(f->plan, text, sizeof text);
  plan->blocks = cy_arena_printf(arena, "%s", text);
  plan->algorithm = algorithm_of(k, f, arena);
}

/* ---- emission ---- */

_Static_assert(CY_CONTRACT_PHASES <= CY_MAX_PHASES, "every phase has a place in cy_kernel_code");

static void take_code(const cy_contract_info *info, cy_kernel_code *code) {
  code->nphases = info->n_phases;
  for (int i = 0; i < info->n_phases; i++) {
    snprintf(code->phase[i].symbol, sizeof code->phase[i].symbol, "%s", info->phase[i].name);
    code->phase[i].tasks = info->phase[i].tasks;
  }
  code->worker_bytes = info->worker_bytes;
  code->shared_bytes = info->shared_bytes;
}

static void set_epilogue(contraction_plan *f, cy_contraction_kind kind, const cy_epilogue *e) {
  if (f->ints) {
    cy_int_gemm_desc *d = &f->desc.ints;
    *(d->conv ? &d->window.epilogue : &d->gemm.epilogue) = *e;
  } else if (kind == CY_CONTRACT_ATTENTION) {
    f->desc.attention.epilogue = *e;
    f->desc.attention.scores = cy_cpu_scores_of(e);
  } else {
    *(kind == CY_CONTRACT_MATMUL ? &f->desc.gemm.epilogue : &f->desc.conv.epilogue) = *e;
  }
}

void cy_cpu_contract_emit(cy_cg *cg, cy_kernel_plan *plan) {
  contraction_plan *f = plan->schedule;
  cy_contract_info info = {0};
  const cy_cg before = *cg;
  cy_variant_take(cg, plan->candidates);
  cy_epilogue epilogue = cy_cpu_epilogue_create(cg, plan->kernel);
  set_epilogue(f, cy_kernel_contraction(plan->kernel)->kind, &epilogue);
  cy_generator_emit(cg, f->by, f->plan, plan->symbol, &info);
  cy_cpu_epilogue_destroy(&epilogue);
  cg->model = before.model;
  cg->forms_off = before.forms_off;
  cg->tile_rows = before.tile_rows;
  cg->tile_vectors = before.tile_vectors;
  take_code(&info, &plan->code);
}
