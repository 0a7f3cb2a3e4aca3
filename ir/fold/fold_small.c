/* SPDX-License-Identifier: Apache-2.0 */
/* fold_small.c - evaluates a node while it is built, where that is cheap: all inputs constant and at most 4096 output
 * elements, or contents known as dims and at most 256.
 *
 * Out: constant bytes (the node is not needed), or elems (it is, in case somebody wants the tensor). Lists of which only
 * some elements are known have neither; who reads one asks for these (cy_fold_known_part). Reshaping a
 * constant of any size costs nothing and shares its bytes. Larger constants are folded by a pass that compiles the
 * kernels. The moves below are one index function each, used for bytes and for dims alike.
 */
#include "fold_int.h"

#define MAX_CONST 4096
#define MAX_CONST_IN ((uint64_t)1 << 28) /* of the operands: gathering from a table is cheap however large it is */
#define MAX_REDUCED ((uint64_t)1 << 18)
#define MAX_SYMBOLIC 256
#define MAX_PARTLY 64 /* nodes */

/* A negative index counts from the end; what is outside is clamped. */
static int64_t wrap_index(int64_t i, int64_t n) {
  i = i < 0 ? i + n : i;
  return i < 0 ? 0 : i >= n ? n - 1 : i;
}

static bool const_index(const fold *f, uint32_t k, uint64_t at, int64_t *out) {
  const fold_in *in = &f->in[k];
  if (in->elems)
    return in->elems[at] && cy_dim_is_const(f->g, in->elems[at], out);
  *out = cy_scalar_load(in->v->data.bytes, (cy_dtype)in->v->type.dtype, at).i;
  return true;
}

static uint64_t ravel(const fold_in *in, const int64_t *idx) {
  uint64_t at = 0;
  for (int k = 0; k < in->rank; k++)
    at = at * (uint64_t)in->dim[k] + (uint64_t)idx[k];
  return at;
}

/* ---- moves: which input element lands at output index idx; `which` FILL: a pad's zeros --------------------------- */

#define FILL UINT32_MAX
typedef struct source {
  uint32_t which;
  uint64_t at;
} source;

static bool from_transpose(fold *f, const int64_t *idx, source *s) {
  const int64_t *perm = cy_attr_find(f->n, CY_ATTR_perm)->ints;
  int64_t src[CY_MAX_RANK];
  for (int k = 0; k < f->rank; k++)
    src[perm[k]] = idx[k];
  s->at = ravel(&f->in[0], src);
  return true;
}

static bool from_slice(fold *f, const int64_t *idx, source *s) {
  const cy_dim *starts = cy_attr_find(f->n, CY_ATTR_starts)->dims;
  const int64_t *steps = cy_attr_find(f->n, CY_ATTR_steps)->ints;
  int64_t src[CY_MAX_RANK];
  for (int k = 0; k < f->rank; k++) {
    int64_t start;
    if (!cy_dim_is_const(f->g, starts[k], &start) || __builtin_mul_overflow(idx[k], steps[k], &src[k]) ||
        __builtin_add_overflow(src[k], start, &src[k]) || src[k] < 0 || src[k] >= f->in[0].dim[k])
      return false;
  }
  s->at = ravel(&f->in[0], src);
  return true;
}

/* Where position i before the start or behind the end of n elements reads; -1: the fill. */
static int64_t pad_index(int64_t i, int64_t n, int64_t mode) {
  if ((i >= 0 && i < n) || n == 0)
    return n == 0 ? -1 : i;
  if (mode == CY_PAD_CONSTANT)
    return -1;
  if (mode == CY_PAD_EDGE)
    return i < 0 ? 0 : n - 1;
  int64_t period = mode == CY_PAD_WRAP ? n : n > 1 ? 2 * (n - 1) : 1;
  i = (i % period + period) % period;
  return i < n ? i : period - i;
}

static bool from_pad(fold *f, const int64_t *idx, source *s) {
  const cy_dim *pads = cy_attr_find(f->n, CY_ATTR_pads)->dims;
  int64_t mode = cy_attr_get_int(f->n, CY_ATTR_mode, 0), src[CY_MAX_RANK], begin;
  for (int k = 0; k < f->rank; k++) {
    if (!cy_dim_is_const(f->g, pads[k], &begin))
      return false;
    src[k] = pad_index(idx[k] - begin, f->in[0].dim[k], mode);
    if (src[k] < 0) {
      *s = (source){f->n->nin > 1 && f->n->in[1] ? 1 : FILL, 0};
      return true;
    }
  }
  s->at = ravel(&f->in[0], src);
  return true;
}

static bool from_concat(fold *f, const int64_t *idx, source *s) {
  int64_t axis = cy_attr_get_int(f->n, CY_ATTR_axis, 0), src[CY_MAX_RANK];
  memcpy(src, idx, sizeof src);
  while (s->which < f->n->nin && src[axis] >= f->in[s->which].dim[axis])
    src[axis] -= f->in[s->which++].dim[axis];
  if (s->which == f->n->nin)
    return false;
  s->at = ravel(&f->in[s->which], src);
  return true;
}

static bool from_gather(fold *f, const int64_t *idx, source *s) {
  int64_t axis = cy_attr_get_int(f->n, CY_ATTR_axis, 0), src[CY_MAX_RANK], i;
  const fold_in *x = &f->in[0], *indices = &f->in[1];
  if (!const_index(f, 1, ravel(indices, idx + axis), &i) || x->dim[axis] == 0)
    return false;
  for (int k = 0; k < x->rank; k++)
    src[k] = k < axis ? idx[k] : k == axis ? wrap_index(i, x->dim[k]) : idx[k - 1 + indices->rank];
  s->at = ravel(x, src);
  return true;
}

static bool from_gather_elements(fold *f, const int64_t *idx, source *s) {
  int64_t axis = cy_attr_get_int(f->n, CY_ATTR_axis, 0), src[CY_MAX_RANK], i;
  if (!const_index(f, 1, ravel(&f->in[1], idx), &i))
    return false;
  for (int k = 0; k < f->rank; k++) {
    src[k] = k == axis ? wrap_index(i, f->in[0].dim[k]) : idx[k];
    if (src[k] < 0 || src[k] >= f->in[0].dim[k])
      return false;
  }
  s->at = ravel(&f->in[0], src);
  return true;
}

static bool from_gather_nd(fold *f, const int64_t *idx, source *s) {
  const fold_in *x = &f->in[0], *indices = &f->in[1];
  int64_t batch = cy_attr_get_int(f->n, CY_ATTR_batch_dims, 0), depth = indices->dim[indices->rank - 1],
          src[CY_MAX_RANK];
  uint64_t row = 0;
  for (int k = 0; k < indices->rank - 1; k++)
    row = row * (uint64_t)indices->dim[k] + (uint64_t)idx[k];
  for (int k = 0; k < x->rank; k++) {
    int64_t i = k < batch ? idx[k] : k < batch + depth ? 0 : idx[indices->rank - 1 + k - batch - depth];
    if (k >= batch && k < batch + depth) {
      if (!const_index(f, 1, row * (uint64_t)depth + (uint64_t)(k - batch), &i))
        return false;
      i = wrap_index(i, x->dim[k]);
    }
    if (i < 0 || i >= x->dim[k])
      return false;
    src[k] = i;
  }
  s->at = ravel(x, src);
  return true;
}

static bool find_source(fold *f, uint64_t o, const int64_t *idx, source *s) {
  *s = (source){0, o};
  switch ((cy_op)f->n->op) {
  case CY_OP_reshape:
  case CY_OP_identity: return true;
  case CY_OP_expand: s->at = cy_fold_broadcast(f, &f->in[0], idx); return true;
  case CY_OP_transpose: return from_transpose(f, idx, s);
  case CY_OP_slice: return from_slice(f, idx, s);
  case CY_OP_pad: return from_pad(f, idx, s);
  case CY_OP_concat: return from_concat(f, idx, s);
  case CY_OP_gather: return from_gather(f, idx, s);
  case CY_OP_gather_elements: return from_gather_elements(f, idx, s);
  case CY_OP_gather_nd: return from_gather_nd(f, idx, s);
  default: return false;
  }
}

static void copy_element(const fold *f, uint64_t to, const void *from, uint64_t at) {
  size_t width = (size_t)cy_dtype_of(f->dtype)->bits;
  if (width >= 8)
    memcpy((char *)f->bytes + to * (width / 8), (const char *)from + at * (width / 8), width / 8);
  else
    cy_scalar_store(f->bytes, f->dtype, to, cy_scalar_load(from, f->dtype, at));
}

static bool fold_move(fold *f, bool symbolic) {
  for (uint64_t o = 0; o < f->count; o++) {
    int64_t idx[CY_MAX_RANK] = {0};
    source s;
    cy_fold_unravel(o, f->rank, f->dim, idx);
    if (!find_source(f, o, idx, &s) || (s.which != FILL && s.at >= f->in[s.which].count)) {
      if (!f->partly)
        return false;
      continue;
    }
    if (symbolic)
      f->elems[o] = s.which == FILL ? cy_dim_const(f->g, 0) : f->in[s.which].elems[s.at];
    else if (s.which != FILL) /* the result is zeroed */
      copy_element(f, o, f->in[s.which].v->data.bytes, s.at);
  }
  return true;
}

static bool fold_iota(fold *f) {
  int64_t axis = cy_attr_get_int(f->n, CY_ATTR_axis, 0), idx[CY_MAX_RANK];
  for (uint64_t o = 0; o < f->count; o++) {
    cy_fold_unravel(o, f->rank, f->dim, idx);
    cy_scalar s = {.i = idx[axis]};
    cy_scalar_store(f->bytes, f->dtype, o, cy_scalar_convert(CY_I64, f->dtype, s, true));
  }
  return true;
}

static bool fold_dims(fold *f) {
  memcpy(f->elems, cy_attr_find(f->n, CY_ATTR_elems)->dims, sizeof(cy_dim) * f->count);
  return true;
}

/* ---- the driver -------------------------------------------------------------------------------------------------- */

static bool is_move(cy_op op) {
  return (op >= CY_OP_reshape && op <= CY_OP_identity) || (op >= CY_OP_gather && op <= CY_OP_gather_nd);
}

static bool is_reduce(cy_op op) { return op >= CY_OP_reduce_sum && op <= CY_OP_reduce_max; }

static bool is_number(cy_dtype t) {
  char cls = cy_dtype_of(t)->cls;
  return cls && cls != 'C';
}

static bool eval_const(fold *f) {
  cy_op op = (cy_op)f->n->op;
  bool reads_all = is_reduce(op) || op == CY_OP_argmin || op == CY_OP_argmax;
  for (uint32_t k = 0; k < f->n->nin; k++) {
    if (!f->n->in[k])
      continue;
    cy_dtype t = (cy_dtype)f->in[k].v->type.dtype;
    if (f->in[k].count > (reads_all ? MAX_REDUCED : MAX_CONST_IN) || (!is_move(op) && !is_number(t)) ||
        f->in[k].v->data.size < cy_dtype_bytes(t, f->in[k].count))
      return false;
  }
  f->bytes = cy_arena_alloc(f->g->arena, cy_dtype_bytes(f->dtype, f->count) + 1);
  if (is_move(op))
    return fold_move(f, false);
  if (cy_op_is_ew(op))
    return cy_fold_ew(f, false);
  if (is_reduce(op))
    return cy_fold_reduce(f, false);
  if (op == CY_OP_iota)
    return fold_iota(f);
  if (op == CY_OP_argmin || op == CY_OP_argmax)
    return cy_fold_arg(f);
  return (op == CY_OP_cumsum || op == CY_OP_cumprod) && cy_fold_cumulate(f);
}

static bool eval_symbolic(fold *f) {
  cy_op op = (cy_op)f->n->op;
  f->elems = CY_NEW_ARRAY(f->g->arena, cy_dim, f->count + 1);
  if (op == CY_OP_dims)
    return fold_dims(f);
  if (is_move(op))
    return fold_move(f, true);
  return cy_op_is_ew(op) ? cy_fold_ew(f, true) : cy_fold_reduce(f, true);
}

static bool set_up_input(cy_graph *g, fold_in *in, cy_val v) {
  in->v = cy_value_of(g, v);
  in->rank = in->v->type.rank;
  for (int k = 0; k < in->rank; k++)
    if (!cy_dim_is_const(g, in->v->type.dim[k], &in->dim[k]))
      return false;
  return cy_type_static_count(g, &in->v->type, &in->count);
}

static bool set_up(fold *f, cy_graph *g, cy_node n) {
  *f = (fold){.g = g, .n = &cy_node_slot_of(g, n)->n};
  if (f->n->nout != 1)
    return false;
  const cy_value *out = cy_value_of(g, f->n->out[0]);
  f->dtype = (cy_dtype)out->type.dtype;
  f->rank = out->type.rank;
  for (int k = 0; k < f->rank; k++)
    if (!cy_dim_is_const(g, out->type.dim[k], &f->dim[k]))
      return false;
  return cy_type_static_count(g, &out->type, &f->count) && f->count <= MAX_CONST;
}

static bool set_up_inputs(fold *f) {
  f->in = CY_NEW_ARRAY(f->g->arena, fold_in, f->n->nin + 1);
  for (uint32_t k = 0; k < f->n->nin; k++)
    if (f->n->in[k] && !set_up_input(f->g, &f->in[k], f->n->in[k]))
      return false;
  return true;
}

static bool all_const(const cy_graph *g, const cy_node_info *n) {
  for (uint32_t k = 0; k < n->nin; k++)
    if (n->in[k] && !cy_value_is_const(g, n->in[k]))
      return false;
  return n->op != CY_OP_dims;
}

/* Every input's integer contents; gives up on an unknown one before it looks into constants. */
static bool all_elems(fold *f) {
  uint32_t n;
  for (uint32_t k = 0; k < f->n->nin; k++)
    if (f->n->in[k] && !cy_value_is_const(f->g, f->n->in[k]) && !cy_value_of(f->g, f->n->in[k])->elems)
      return false;
  if (!set_up_inputs(f))
    return false;
  for (uint32_t k = 0; k < f->n->nin; k++) {
    if (!f->n->in[k])
      continue;
    f->in[k].elems = cy_value_elems(f->g, f->n->in[k], &n);
    if (!f->in[k].elems && f->n->op != CY_OP_mul)
      return false;
  }
  return true;
}

static bool handles(cy_op op) {
  return is_move(op) || cy_op_is_ew(op) || is_reduce(op) || op == CY_OP_iota || op == CY_OP_dims ||
         op == CY_OP_argmin || op == CY_OP_argmax || op == CY_OP_cumsum || op == CY_OP_cumprod;
}

/* floor and ceil look through a division of integers that leaves a fraction, see fold_math.c. */
static bool rounds_quotient(cy_graph *g, const cy_node_info *n) {
  cy_quotient q;
  return (n->op == CY_OP_floor || n->op == CY_OP_ceil) && cy_fold_quotient(g, n->in[0], &q);
}

static void set_const(cy_graph *g, cy_val v, const void *bytes, uint64_t size) {
  cy_value_set_data(g, v, bytes, size);
  cy_value_of(g, v)->node = 0;
}

static bool fold_symbolic(fold *f) {
  cy_op op = (cy_op)f->n->op;
  if (f->count > MAX_SYMBOLIC || op == CY_OP_iota || (op >= CY_OP_argmin && op <= CY_OP_cumprod))
    return false;
  if (rounds_quotient(f->g, f->n)) {
    if (!set_up_inputs(f))
      return false;
  } else if (!all_elems(f)) {
    return false;
  }
  return eval_symbolic(f);
}

/* What is known of v, at most `*left` nodes away. NULL: nothing. */
static const cy_dim *known_part(cy_graph *g, cy_val v, int *left) {
  fold f;
  uint32_t n;
  const cy_dim *all = cy_value_elems(g, v, &n);
  cy_node made_by = cy_value_of(g, v)->node;
  cy_op op = made_by ? (cy_op)cy_node_slot_of(g, made_by)->n.op : CY_OP_reduce_sum;
  if (all || (!is_move(op) && !cy_op_is_ew(op)))
    return all;
  if (--*left < 0 || !set_up(&f, g, made_by) || f.count > MAX_SYMBOLIC || !set_up_inputs(&f))
    return NULL;
  bool some = false;
  for (uint32_t k = 0; k < f.n->nin; k++) {
    if (!f.n->in[k])
      continue;
    if (f.in[k].count > MAX_CONST)
      return NULL;
    f.in[k].elems = known_part(g, f.n->in[k], left);
    some = some || f.in[k].elems;
    if (!f.in[k].elems)
      f.in[k].elems = CY_NEW_ARRAY(g->arena, cy_dim, f.in[k].count + 1);
  }
  f.partly = true;
  return some && eval_symbolic(&f) ? f.elems : NULL;
}

const cy_dim *cy_fold_known_part(cy_graph *g, cy_val v) {
  int left = MAX_PARTLY;
  return known_part(g, v, &left);
}

void cy_fold_elems(cy_graph *g, cy_node n) {
  fold f;
  if (handles((cy_op)cy_node_slot_of(g, n)->n.op) && set_up(&f, g, n) && fold_symbolic(&f))
    cy_value_of(g, f.n->out[0])->elems = f.elems;
}

/* Known integers as bytes; NULL when one of them is symbolic. */
static void *bytes_of_elems(fold *f) {
  void *bytes = cy_arena_alloc(f->g->arena, cy_dtype_bytes(f->dtype, f->count) + 1);
  for (uint64_t o = 0; o < f->count; o++) {
    cy_scalar s;
    if (!cy_dim_is_const(f->g, f->elems[o], &s.i))
      return NULL;
    cy_scalar_store(bytes, f->dtype, o, cy_scalar_convert(CY_I64, f->dtype, s, true));
  }
  return bytes;
}

bool cy_fold_small(cy_graph *g, cy_node n) {
  fold f;
  const cy_node_info *info = &cy_node_slot_of(g, n)->n;
  if (!handles((cy_op)info->op))
    return false;
  bool consts = all_const(g, info);
  if (info->op == CY_OP_reshape && consts) {
    cy_data data = cy_value_of(g, info->in[0])->data;
    uint64_t count;
    if (!cy_type_static_count(g, &cy_value_of(g, info->out[0])->type, &count))
      return false; /* whether it fits shows when the model runs */
    set_const(g, info->out[0], data.bytes, data.size);
    return true;
  }
  if (!set_up(&f, g, n))
    return false;
  if (consts && set_up_inputs(&f) && eval_const(&f)) {
    set_const(g, info->out[0], f.bytes, cy_dtype_bytes(f.dtype, f.count));
    return true;
  }
  if (!fold_symbolic(&f))
    return false;
  void *bytes = bytes_of_elems(&f);
  if (bytes)
    set_const(g, info->out[0], bytes, cy_dtype_bytes(f.dtype, f.count));
  else
    cy_value_of(g, info->out[0])->elems = f.elems;
  return bytes != NULL;
}
