/* SPDX-License-Identifier: Apache-2.0 */
/* conv.c - which convolutions may be cuDNN's when the model runs: those of the form relu(conv(x, w) + bias + residual).
 *
 * Convolutions of one tap may have become products of matrices, whose weights lie as those of convolutions do: such a
 * product is one image of one row.
 *
 * In: a contraction kernel and its form. Out: the fields of a cyrt_cuda_problem as sizes. Sums may be rounded between the
 * steps where the model says so and are not by cuDNN: it is as precise or more.
 */
#include "contract_int.h"
#include "runtime/cyto_abi.h"

#include <string.h>

typedef struct matcher {
  cy_kernel *k;
  cy_graph *g;
  const cy_contraction *c;
  const cy_karg_info *args;
  cy_dim *field; /* [CY_CUDA_PROBLEM_FIELDS] */
  int nspatial;  /* axes; of a product: one */
  cy_dim images, channels_in, channels_out;
  cy_dim in[CY_MAX_SPATIAL], out[CY_MAX_SPATIAL], pad[CY_MAX_SPATIAL];
  cy_dim x_image, x_spatial[CY_MAX_SPATIAL];
  int first_var; /* which axis c->out_var begins with: 0 is the image; of a product: 1 */
  bool bias, residual, relu;
} matcher;

static void put(matcher *m, size_t at, cy_dim d) { m->field[at] = d; }
static void put_int(matcher *m, size_t at, int64_t v) { m->field[at] = cy_dim_const(m->g, v); }

/* ---- tensors ---- */

static void put_tensor(matcher *m, int which, cy_karg arg, cy_dim offset, cy_dim image, const cy_dim *spatial) {
  int n = m->nspatial, lead = n == 1; /* one axis: a second of extent 1 in front of it */
  cy_dim strides[1 + CY_MAX_SPATIAL] = {image};
  for (int i = 0; i < CY_MAX_SPATIAL; i++)
    strides[1 + i] = i >= lead && i - lead < n ? spatial[i - lead] : image;
  cy_cu_problem_tensor(m->k, m->field, which, arg, offset, strides);
}

/* Strides of output coordinates in an element offset; 0 where it does not depend on one. False: it has another form. */
static bool strides_of(matcher *m, cy_expr offset, cy_dim *out_base, cy_dim strides[CY_MAX_SPATIAL + 2]) {
  cy_affine a;
  int n = m->nspatial + 2;
  memset(strides, 0, sizeof *strides * (CY_MAX_SPATIAL + 2));
  if (!cy_expr_affine(m->k, offset, &a) || a.rest)
    return false;
  for (int i = 0; i < a.n; i++) {
    int j = m->first_var;
    while (j < n && m->c->out_var[j - m->first_var] != a.var[i])
      j++;
    if (j == n)
      return false;
    strides[j] = a.coef[i];
  }
  *out_base = a.base;
  return strides[n - 1] && cy_dim_is(m->g, strides[n - 1], 1);
}

/* An image whose channels are neighbours. Coordinates that are always 0 have no stride: a dense one will do. */
static bool image_tensor(matcher *m, int which, cy_karg arg, cy_expr offset) {
  cy_dim base, strides[CY_MAX_SPATIAL + 2], running = m->channels_out;
  if (!cy_cu_is_float(m->args[arg].dtype) || !strides_of(m, offset, &base, strides))
    return false;
  for (int i = m->nspatial; i >= 0; i--) {
    cy_dim extent = i ? m->out[i - 1] : m->images;
    if (!strides[i] && !cy_dim_is(m->g, extent, 1))
      return false;
    strides[i] = strides[i] ? strides[i] : running;
    running = cy_dim_mul(m->g, strides[i], extent);
  }
  put_tensor(m, which, arg, base, strides[0], strides + 1);
  return true;
}

static bool bias_tensor(matcher *m, cy_karg arg, cy_expr offset) {
  cy_dim base, strides[CY_MAX_SPATIAL + 2], none[CY_MAX_SPATIAL];
  if (m->bias || !cy_cu_is_float(m->args[arg].dtype) || !strides_of(m, offset, &base, strides))
    return false;
  for (int i = 0; i <= m->nspatial; i++)
    if (strides[i])
      return false;
  for (int i = 0; i < CY_MAX_SPATIAL; i++)
    none[i] = cy_dim_const(m->g, 0);
  put_tensor(m, CYRT_CONV_BIAS, arg, base, none[0], none);
  return m->bias = true;
}

/* ---- the epilogue ---- */

static bool addend(matcher *m, const cy_expr_info *x) {
  if (bias_tensor(m, x->id, x->arg[0]))
    return true;
  if (m->residual || !image_tensor(m, CYRT_CONV_RESIDUAL, x->id, x->arg[0]))
    return false;
  return m->residual = true;
}

static bool is_zero(const cy_expr_info *x) { return x->op == CY_X_CONST && x->c.f == 0; }

/* The sum from `e` inwards to the convolution. */
static bool sum(matcher *m, cy_expr e) {
  const cy_expr_info *x = cy_cu_without_casts(m->k, e);
  if (x->op == CY_X_LOCAL)
    return x->id == m->c->acc;
  if (x->op != CY_OP_add)
    return false;
  for (int i = 0; i < 2; i++) {
    const cy_expr_info *term = cy_cu_without_casts(m->k, x->arg[i]);
    if (term->op == CY_X_LOAD)
      return addend(m, term) && sum(m, x->arg[1 - i]);
  }
  return false;
}

static bool epilogue(matcher *m) {
  const cy_stmt *s = cy_kernel_body(m->k);
  if (!s || s->next || s->kind != CY_S_STORE || !image_tensor(m, CYRT_CONV_Y, s->arg, s->offset))
    return false;
  const cy_expr_info *x = cy_cu_without_casts(m->k, s->value);
  for (int i = 0; i < 2 && x->op == CY_OP_max; i++)
    if (is_zero(cy_cu_without_casts(m->k, x->arg[i]))) {
      m->relu = true;
      return sum(m, x->arg[1 - i]);
    }
  return sum(m, s->value);
}

/* ---- the whole ---- */

/* The weights' argument must be dense rows of [kernel..][channels_in / group]. */
static bool weights_fit(const matcher *m, const cy_cuda_form *form, bool repack) {
  int64_t depth, taps = cy_cu_is_conv(m->c) ? cy_cu_taps(m->c) : 1,
                 chunk = 128 / cy_dtype_of(m->args[m->c->b].dtype)->bits;
  if (!m->c->b_const)
    return false;
  if (!cy_cu_is_conv(m->c))
    return !form->packed_k && cy_dim_is(m->g, m->c->b_k, 1) && m->c->b_n == m->c->k;
  if (!cy_dim_is_const(m->g, cy_cu_per_group(m->g, m->c, m->c->channels_in), &depth))
    return false;
  if (form->packed_k)
    return form->packed_k == taps * depth;
  return taps == 1 || (repack && taps * depth % chunk == 0);
}

/* The problem's sizes, of a convolution or of a product. False: it is neither, or not in this layout. */
static bool fill_sizes(matcher *m) {
  const cy_contraction *c = m->c;
  if (c->kind == CY_CONTRACT_MATMUL) {
    m->first_var = m->nspatial = 1;
    m->images = cy_dim_const(m->g, 1);
    m->channels_in = c->k;
    m->channels_out = c->n;
    m->in[0] = m->out[0] = c->m;
    m->pad[0] = cy_dim_const(m->g, 0);
    m->x_spatial[0] = c->a_m;
    m->x_image = cy_dim_mul(m->g, c->a_m, c->m);
    return c->nbatch == 0 && cy_dim_is(m->g, c->a_k, 1);
  }
  m->nspatial = c->nspatial;
  m->images = c->images;
  m->channels_in = c->channels_in;
  m->channels_out = c->channels_out;
  m->x_image = c->x_image;
  for (int i = 0; i < c->nspatial; i++) {
    m->in[i] = c->in[i];
    m->out[i] = c->out[i];
    m->pad[i] = c->pad[i];
    m->x_spatial[i] = c->x_spatial[i];
  }
  return c->kind == CY_CONTRACT_CONV && cy_dim_is(m->g, c->x_channel, 1);
}

static void put_sizes(matcher *m, bool exact) {
  const cy_contraction *c = m->c;
  bool conv = cy_cu_is_conv(c);
  const cy_dim sizes[5] = {cy_dim_const(m->g, m->nspatial == 1 ? 2 : m->nspatial),
                           cy_dim_const(m->g, conv ? c->group : 1),
                           m->images,
                           m->channels_in,
                           m->channels_out};
  int lead = m->nspatial == 1;
  put_int(m, CY_CU_FIELD(flags), (m->relu ? CYRT_CONV_RELU : 0) | (exact ? CYRT_PROBLEM_EXACT : 0));
  for (size_t i = 0; i < 5; i++)
    put(m, CY_CU_FIELD(conv) + i, sizes[i]);
  for (int i = 0; i < CY_MAX_SPATIAL; i++) {
    int j = i - lead;
    bool real = j >= 0 && j < m->nspatial;
    size_t at = (size_t)i;
    put(m, CY_CU_FIELD(conv.in) + at, real ? m->in[j] : cy_dim_const(m->g, 1));
    put(m, CY_CU_FIELD(conv.out) + at, real ? m->out[j] : cy_dim_const(m->g, 1));
    put(m, CY_CU_FIELD(conv.pad) + at, real ? m->pad[j] : cy_dim_const(m->g, 0));
    put_int(m, CY_CU_FIELD(conv.kernel) + at, real && conv ? c->kernel[j] : 1);
    put_int(m, CY_CU_FIELD(conv.stride) + at, real && conv ? c->stride[j] : 1);
    put_int(m, CY_CU_FIELD(conv.dilation) + at, real && conv ? c->dilation[j] : 1);
  }
}

bool cy_cu_conv_match(const cy_machine *machine, cy_kernel *k, const cy_cuda_form *form, bool repack,
                      cy_dim out_field[CY_CUDA_PROBLEM_FIELDS]) {
  const cy_contraction *c = cy_kernel_contraction(k);
  matcher m = {.k = k, .g = cy_kernel_graph(k), .c = c, .field = out_field};
  if (!fill_sizes(&m))
    return false;
  cy_kernel_args(k, &m.args);
  cy_dtype t = m.args[c->a].dtype;
  if (!cy_cu_is_float(t) || m.args[c->b].dtype != t || cy_kernel_local_dtype(k, c->acc) != CY_F32 ||
      !weights_fit(&m, form, repack))
    return false;
  cy_cu_problem_init(m.g, CYRT_PROBLEM_CONV, m.field);
  if (!epilogue(&m))
    return false;
  cy_dim none[CY_MAX_SPATIAL];
  for (int i = 0; i < CY_MAX_SPATIAL; i++)
    none[i] = cy_dim_const(m.g, 0);
  put_tensor(&m, CYRT_CONV_X, c->a, none[0], m.x_image, m.x_spatial);
  put_tensor(&m, CYRT_CONV_W, cy_cu_b_arg(form, c), none[0], none[0], none);
  put_sizes(&m, t == CY_F32 && !machine->tf32);
  return true;
}
