/* SPDX-License-Identifier: Apache-2.0 */
/* lower_rnn_weights.c - where the kernels of a recurrent node find R.
 *
 * In: R as the graph has it. Out: r->weights, r->panel and, of a constant R of 8-bit integers, what tells of pairs. A
 * constant R lies in panels of neighbouring gates: every step reads all of it, and streams run fast only where they are
 * dense. For a target that keeps accumulators of several rows in registers, a panel is a tile of these, so that every
 * form of the recurrence reads the same panels, products included.
 */
#include "lower_rnn.h"

#include <stdlib.h>

/* [gates * h / panel, h, panel]; one panel of gates * h columns is R transposed. */
static void write_panels(const cy_graph *g, cy_val v, const void *layout, uint32_t piece, void *out) {
  (void)piece;
  const int64_t *dims = layout, wide = dims[0], hidden = dims[1], panel = dims[2];
  const cy_data_f32 *in = cy_value_of(g, v)->data.bytes;
  float *to = out;
  for (int64_t j = 0; j < wide; j++)
    for (int64_t i = 0; i < hidden; i++)
      to[(j / panel * hidden + i) * panel + j % panel] = in[j * hidden + i];
}

/* The widest panel of those that suit the target and divide a gate, which kernels per step need, or at least what one
 * pass over the gates covers; 0: none. A walk on a device has a thread for every column. */
static int64_t panel_width(const cy_lowering *l, const cy_rnn *r, int64_t hidden) {
  int64_t tile = l->caps->tile_columns, widest = tile ? tile : 64, min = tile ? tile / 2 : 16;
  bool steps = r->large && (r->cell != CY_CELL_GRU || cy_rnn_resets_after(r));
  if (l->busy_parts && !steps)
    return 0;
  for (int64_t panel = widest; r->large && panel >= min; panel /= 2)
    if (hidden % panel == 0)
      return panel;
  for (int64_t panel = widest; panel >= min; panel /= 2)
    if ((r->cell == CY_CELL_LSTM ? 4 * hidden : hidden) % panel == 0)
      return panel;
  return 0;
}

/* The same of 8-bit integers, columns i and h / 2 + i being neighbours. */
static void write_pairs(const cy_graph *g, cy_val v, const void *layout, uint32_t piece, void *out) {
  (void)piece;
  const int64_t *dims = layout, wide = dims[0], half = dims[1] / 2, panel = dims[2];
  const uint8_t *in = cy_value_of(g, v)->data.bytes, flip = (uint8_t)dims[3];
  uint8_t *to = out;
  for (int64_t j = 0; j < wide; j++)
    for (int64_t i = 0; i < 2 * half; i++)
      to[((j / panel * half + i % half) * panel + j % panel) * 2 + i / half] = in[j * 2 * half + i] ^ flip;
}

/* The largest magnitude of a sum over k of R[j, k] - zero[j]. */
static int64_t largest_sum(const cy_graph *g, const cy_rnn *r, const int64_t *dims) {
  cy_val given = cy_rnn_input(r, CY_RNN_ZERO);
  const cy_value *v = cy_value_of(g, r->n->in[CY_RNN_R]), *zero = given ? cy_value_of(g, given) : NULL;
  cy_dtype t = (cy_dtype)v->type.dtype;
  int64_t max = 1;
  for (int64_t j = 0; j < dims[0]; j++) {
    int64_t sum = 0, z = zero ? cy_scalar_load(zero->data.bytes, t, zero->type.rank ? (uint64_t)j : 0).i : 0;
    for (int64_t i = 0; i < dims[1]; i++)
      sum += llabs(cy_scalar_load(v->data.bytes, t, (uint64_t)(j * dims[1] + i)).i - z);
    max = sum > max ? sum : max;
  }
  return max;
}

/* Is R, of which dims are known, one of pairs? */
static void choose_pairs(cy_graph *g, cy_rnn *r, const int64_t *dims) {
  cy_dtype t = (cy_dtype)cy_value_of(g, r->n->in[CY_RNN_R])->type.dtype;
  cy_val zero = cy_rnn_input(r, CY_RNN_ZERO);
  double all = 0;
  if ((t != CY_I8 && t != CY_U8) || dims[1] % 2 || (zero && !cy_value_of(g, zero)->data.bytes))
    return;
  r->pairs = true;
  r->shift = t == CY_U8 ? 128 : 0;
  r->has_zero = zero ? !cy_value_is_splat(g, zero, &all) || all != (double)r->shift : r->shift != 0;
  r->top = INT32_MAX / largest_sum(g, r, dims);
  r->top = r->top < INT16_MAX ? r->top : INT16_MAX;
}

void cy_rnn_place_weights(cy_lowering *l, cy_rnn *r) {
  cy_graph *g = l->g;
  cy_val v = r->n->in[CY_RNN_R];
  const cy_type *t = cy_lower_type(l, v);
  cy_place p = *cy_lower_place(l, v);
  r->weights = p;
  r->weights.stride[0] = cy_dim_const(g, 0);
  r->weights.stride[1] = p.stride[1];
  r->weights.stride[2] = p.stride[0];
  r->panel = r->wide;
  int64_t *dims = CY_NEW_ARRAY(cy_graph_arena(g), int64_t, 4);
  bool fixed = cy_dim_is_const(g, t->dim[0], &dims[0]) && cy_dim_is_const(g, t->dim[1], &dims[1]);
  const cy_value *val = cy_value_of(g, v);
  if (!val->data.bytes || !fixed)
    return;
  choose_pairs(g, r, dims);
  if (!r->pairs && t->dtype != CY_F32)
    return;
  int64_t panel = panel_width(l, r, dims[1]), rows = r->pairs ? dims[1] / 2 : dims[1];
  dims[2] = panel ? panel : dims[0];
  dims[3] = r->shift;
  uint32_t c = cy_program_add_constant(l->p, v, val->data.size,
                                       r->pairs ? "pairs"
                                       : panel  ? "panels"
                                                : "transposed",
                                       r->pairs ? write_pairs : write_panels, dims, 1);
  r->weights.buffer = cy_program_add_buffer(l->p, CY_BUF_CONST, c, cy_dim_const(g, (int64_t)val->data.size));
  r->weights.offset = cy_dim_const(g, 0);
  r->weights.stride[0] = cy_dim_const(g, rows * dims[2]);
  r->weights.stride[1] = cy_dim_const(g, dims[2]);
  r->weights.stride[2] = cy_dim_const(g, 1);
  if (panel)
    r->panel = cy_dim_const(g, panel);
}
