/* SPDX-License-Identifier: Apache-2.0 */
/* packed.c - constant weights, packed while compiling: [z][n][k], each row of k filled up to whole 16 bytes.
 *
 * In:  a kernel whose B is constant and shared by all batches. Out: elements of a packed row; the packed bytes, as a constant
 *      of the program. Of transposed convolutions the taps of a residue lie together, and each residue begins where 16 bytes do.
 */
#include "contract_int.h"
#include "runtime/cuda/cuda_problem.h"

#include <string.h>

/* Where each weight lies, in elements, and what its packed rows are. */
typedef struct packing {
  int64_t groups, columns, taps, depth;      /* extents; */
  int64_t group_s, column_s, tap_s, depth_s; /* strides of the model's layout */
  int64_t row, offset, bytes;                /* elements of a packed row; of the first weight; bytes of an element */
  int64_t *place;                            /* [taps] where a tap begins in a packed row; NULL: one behind the other */
} packing;

static void write_packed(const cy_graph *g, cy_val value, const void *layout, uint32_t piece, void *out) {
  (void)piece;
  const packing *f = layout;
  const uint8_t *from = cy_value_of(g, value)->data.bytes;
  uint8_t *to = out;
  memset(out, 0, (size_t)(f->groups * f->columns * f->row * f->bytes));
  for (int64_t z = 0; z < f->groups; z++)
    for (int64_t n = 0; n < f->columns; n++, to += f->row * f->bytes)
      for (int64_t t = 0; t < f->taps; t++)
        for (int64_t c = 0; c < f->depth; c++) {
          int64_t at = f->offset + z * f->group_s + n * f->column_s + t * f->tap_s + c * f->depth_s;
          memcpy(to + ((f->place ? f->place[t] : t * f->depth) + c) * f->bytes, from + at * f->bytes, (size_t)f->bytes);
        }
}

static bool fill_packing(cy_kernel *k, packing *f) {
  cy_graph *g = cy_kernel_graph(k);
  const cy_contraction *c = cy_kernel_contraction(k);
  const cy_karg_info *args;
  cy_cu_sizes s = cy_cu_sizes_of(k);
  cy_kernel_args(k, &args);
  int64_t bits = cy_dtype_of(args[c->b].dtype)->bits, deep;
  *f = (packing){.groups = 1, .taps = 1, .bytes = bits / 8, .tap_s = 1};
  if (!c->b_const || bits < 8 || !cy_dim_is_const(g, s.n, &f->columns) || !cy_dim_is_const(g, s.k, &deep))
    return false;
  if (!cy_cu_is_conv(c)) {
    for (int i = 0; i < c->nbatch; i++)
      if (!cy_dim_is(g, c->b_batch[i], 0))
        return false;
    f->depth = deep;
    return cy_dim_is_const(g, c->b_k, &f->depth_s) && cy_dim_is_const(g, c->b_n, &f->column_s);
  }
  if (cy_cu_is_depthwise(g, c)) { /* [tap][channel] */
    f->columns = f->depth_s = deep;
    f->column_s = 1;
    f->depth = c->group;
    return true;
  }
  f->groups = c->group;
  f->taps = cy_cu_taps(c);
  if (!cy_dim_is_const(g, cy_cu_per_group(g, c, c->channels_in), &f->depth))
    return false;
  deep = f->depth * f->taps;
  f->group_s = f->columns * deep;
  f->column_s = c->kind == CY_CONTRACT_CONV ? deep : f->taps;
  f->depth_s = c->kind == CY_CONTRACT_CONV ? f->taps : f->columns * f->taps;
  return true;
}

/* Between residues a chunk may stay free: none does where taps are whole chunks. */
int64_t cy_cu_residue_row(const cy_contraction *c, int64_t depth, int64_t chunk) {
  return cy_round_up(cy_cu_taps(c) * depth, chunk) + cy_cu_residues(c) * cyrt_residue_slack(depth, chunk);
}

int64_t cy_cu_residue_place(const cy_contraction *c, int64_t tap, int64_t depth, int64_t chunk) {
  return cyrt_residue_place(c->nspatial, c->kernel, c->stride, c->dilation, tap, depth, chunk);
}

static int64_t packed_row(const cy_contraction *c, const packing *f) {
  int64_t chunk = 16 / f->bytes;
  return cy_cu_has_residues(c) ? cy_cu_residue_row(c, f->depth, chunk) : cy_round_up(f->taps * f->depth, chunk);
}

int64_t cy_cu_packed_row(cy_kernel *k) {
  packing f;
  return fill_packing(k, &f) ? packed_row(cy_kernel_contraction(k), &f) : 0;
}

/* Where taps of a transposed convolution begin; the key with what this depends on. */
static const char *place_taps(const cy_contraction *c, packing *f, cy_arena *arena, const char *key) {
  if (!cy_cu_has_residues(c))
    return key;
  f->place = CY_NEW_ARRAY(arena, int64_t, f->taps);
  for (int64_t t = 0; t < f->taps; t++)
    f->place[t] = cy_cu_residue_place(c, t, f->depth, 16 / f->bytes);
  for (int i = 0; i < c->nspatial; i++)
    key = cy_arena_printf(arena, "%s %lld/%lld/%lld", key, (long long)c->kernel[i], (long long)c->stride[i],
                          (long long)c->dilation[i]);
  return key;
}

uint32_t cy_cuda_contract_pack(cy_program *p, cy_kernel_plan *plan, cy_val v, int64_t offset) {
  const cy_cuda_schedule *schedule = cy_cuda_schedule_of(plan);
  cy_arena *arena = cy_graph_arena(p->g);
  packing *f = CY_NEW(arena, packing);
  if (!fill_packing(plan->kernel, f))
    cy_bug("kernel '%s': weights cannot be packed", plan->symbol);
  f->row = schedule->packed_k;
  f->offset += offset / f->bytes;
  const char *key = cy_arena_printf(
      arena, "cuda %lld,%lld,%lld,%lld %lld,%lld,%lld,%lld %lld,%lld", (long long)f->groups, (long long)f->columns,
      (long long)f->taps, (long long)f->depth, (long long)f->group_s, (long long)f->column_s, (long long)f->tap_s,
      (long long)f->depth_s, (long long)f->row, (long long)f->offset);
  key = place_taps(cy_kernel_contraction(plan->kernel), f, arena, key);
  return cy_program_add_constant(p, v, (uint64_t)(f->groups * f->columns * f->row * f->bytes), key, write_packed, f, 1);
}
