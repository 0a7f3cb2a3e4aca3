/* SPDX-License-Identifier: Apache-2.0 */
/* conv.c - which convolutions, transposed ones included, may be cuDNN's when the model runs: of floats, with constant
 * weights, channels innermost, and epilogues that epilogue.c finds.
 *
 * In: a contraction kernel and its schedule. Out: the fields of a cyrt_cuda_problem as sizes. One axis becomes two, of which the
 * first has extent 1.
 */
#include "contract_int.h"
#include "runtime/cuda/cuda_problem.h"

/* ---- tensors ---- */

static void put_tensor(cy_cu_offer *o, int which, cy_karg arg, cy_dim offset, cy_dim image, const cy_dim *spatial) {
  int n = o->c->nspatial, lead = n == 1; /* one axis: a second of extent 1 in front of it */
  cy_dim strides[1 + CY_MAX_SPATIAL] = {image};
  for (int i = 0; i < CY_MAX_SPATIAL; i++)
    strides[1 + i] = i >= lead && i - lead < n ? spatial[i - lead] : image;
  cy_cu_problem_tensor(o->k, o->field, which, arg, offset, strides);
}

/* An image whose channels are neighbours. Coordinates that are always 0 have no stride: a dense one will do. */
static bool like_output(cy_cu_offer *o, int which, cy_karg arg, cy_expr offset) {
  const cy_contraction *c = o->c;
  cy_dim base, strides[CY_MAX_SPATIAL + 2], running = c->channels_out;
  if (!cy_cu_strides_of(o, offset, c->nspatial + 2, &base, strides))
    return false;
  for (int i = c->nspatial; i >= 0; i--) {
    cy_dim extent = i ? c->out[i - 1] : c->images;
    if (!strides[i] && !cy_dim_is(o->g, extent, 1))
      return false;
    strides[i] = strides[i] ? strides[i] : running;
    running = cy_dim_mul(o->g, strides[i], extent);
  }
  put_tensor(o, which, arg, base, strides[0], strides + 1);
  return true;
}

static void no_strides(const cy_cu_offer *o, cy_dim none[CY_MAX_SPATIAL]) {
  for (int i = 0; i < CY_MAX_SPATIAL; i++)
    none[i] = cy_dim_const(o->g, 0);
}

static bool like_columns(cy_cu_offer *o, cy_karg arg, cy_expr offset) {
  cy_dim base, strides[CY_MAX_SPATIAL + 2], none[CY_MAX_SPATIAL];
  if (!cy_cu_strides_of(o, offset, o->c->nspatial + 2, &base, strides))
    return false;
  for (int i = 0; i <= o->c->nspatial; i++)
    if (strides[i])
      return false;
  no_strides(o, none);
  put_tensor(o, CYRT_PROBLEM_BIAS, arg, base, none[0], none);
  return true;
}

/* ---- the whole ---- */

/* The weights' argument must be dense rows of [kernel..][channels_in / group]; of a transposed convolution as they come or as
 * they are packed. */
static bool weights_fit(const cy_cu_offer *o, const cy_cuda_schedule *schedule, bool repack) {
  const cy_contraction *c = o->c;
  int64_t depth, taps = cy_cu_taps(c), chunk = 128 / cy_dtype_of(o->args[c->b].dtype)->bits;
  if (!c->b_const || !cy_dim_is_const(o->g, cy_cu_per_group(o->g, c, c->channels_in), &depth))
    return false;
  if (cy_cu_has_residues(c))
    return cy_dim_is_const(o->g, cy_cu_per_group(o->g, c, c->channels_out), &depth);
  if (schedule->packed_k)
    return schedule->packed_k == taps * depth;
  return taps == 1 || (repack && taps * depth % chunk == 0);
}

static void put_axes(cy_cu_offer *o, size_t at, const cy_dim *of, int64_t otherwise) {
  int lead = o->c->nspatial == 1;
  for (int i = 0; i < CY_MAX_SPATIAL; i++) {
    bool real = i >= lead && i - lead < o->c->nspatial;
    o->field[at + (size_t)i] = real ? of[i - lead] : cy_dim_const(o->g, otherwise);
  }
}

static void put_numbers(cy_cu_offer *o, size_t at, const int64_t *of) {
  cy_dim dims[CY_MAX_SPATIAL];
  for (int i = 0; i < o->c->nspatial; i++)
    dims[i] = cy_dim_const(o->g, of[i]);
  put_axes(o, at, dims, 1);
}

static void put_sizes(cy_cu_offer *o, bool exact) {
  const cy_contraction *c = o->c;
  const cy_dim sizes[5] = {cy_dim_const(o->g, c->nspatial == 1 ? 2 : c->nspatial), cy_dim_const(o->g, c->group),
                           c->images, c->channels_in, c->channels_out};
  for (size_t i = 0; i < 5; i++)
    o->field[CY_CU_FIELD(conv) + i] = sizes[i];
  o->field[CY_CU_FIELD(flags)] =
      cy_dim_const(o->g, (exact ? CYRT_PROBLEM_EXACT : 0) | (o->after ? CYRT_PROBLEM_AFTER : 0));
  put_axes(o, CY_CU_FIELD(conv.in), c->in, 1);
  put_axes(o, CY_CU_FIELD(conv.out), c->out, 1);
  put_axes(o, CY_CU_FIELD(conv.pad), c->pad, 0);
  put_numbers(o, CY_CU_FIELD(conv.kernel), c->kernel);
  put_numbers(o, CY_CU_FIELD(conv.stride), c->stride);
  put_numbers(o, CY_CU_FIELD(conv.dilation), c->dilation);
}

bool cy_cu_conv_match(const cy_machine *m, cy_kernel *k, const cy_cuda_schedule *schedule, bool repack,
                      cy_dim out_field[CY_CUDA_PROBLEM_FIELDS]) {
  const cy_contraction *c = cy_kernel_contraction(k);
  cy_cu_offer o = {.k = k, .g = cy_kernel_graph(k), .c = c, .field = out_field};
  cy_kernel_args(k, &o.args);
  cy_dtype t = o.args[c->a].dtype;
  o.like_output = like_output;
  o.like_columns = like_columns;
  o.libraries = (unsigned)cy_cu_library_on(m, CY_LIBRARY_CUDNN) << CY_LIBRARY_CUDNN;
  if (!o.libraries || !cy_dim_is(o.g, c->x_channel, 1) || !cy_cu_is_float(t) || o.args[c->b].dtype != t ||
      cy_kernel_local_dtype(k, c->acc) != CY_F32 || !weights_fit(&o, schedule, repack))
    return false;
  cy_cu_problem_init(o.g, cy_cu_has_residues(c) ? CYRT_PROBLEM_CONV_TRANSPOSE : CYRT_PROBLEM_CONV, o.field);
  if (!cy_cu_epilogue_match(&o))
    return false;
  cy_dim none[CY_MAX_SPATIAL];
  no_strides(&o, none);
  put_tensor(&o, CYRT_CONV_X, c->a, none[0], c->x_image, c->x_spatial);
  cy_cu_problem_tensor(
      k, o.field, CYRT_CONV_W, cy_cu_b_arg(schedule, c), none[0],
      (cy_dim[4]){cy_dim_const(o.g, cy_cu_has_residues(c) ? schedule->packed_k : 0), none[0], none[0], none[0]});
  put_sizes(&o, t == CY_F32 && !m->tf32);
  return true;
}
