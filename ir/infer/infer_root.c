/* SPDX-License-Identifier: Apache-2.0 */
/* infer_root.c - output types of contractions, pools, recurrences, runtime calls and control flow. See infer.c. */
#include "infer_int.h"

/* Zero points of integer operands: inputs 2 (one element) and 3 (one, or one per column), of their operand's dtype. */
static bool zero_points(infer *i, cy_dim columns) {
  for (uint32_t k = 2; k < i->n->nin; k++) {
    if (!has_in(i, k))
      continue;
    const cy_type *t = in_type(i, k), *operand = in_type(i, k - 2);
    char cls = cy_dtype_of((cy_dtype)operand->dtype)->cls;
    if ((cls != 'I' && cls != 'U') || !cy_check_dtype(i, k, (cy_dtype)operand->dtype))
      return cls == 'I' || cls == 'U'
                 ? false
                 : FAIL(i, "expected no zero point of operand %s, found %s", TEXT(i, operand), TEXT(i, t));
    if (!cy_check_rank(i, k, 0, k == 2 ? 0 : 1) || (t->rank && !cy_check_dim(i, "zero points", t->dim[0], columns)))
      return false;
  }
  return true;
}

bool cy_infer_matmul(infer *i) {
  const cy_type *a = in_type(i, 0), *b = in_type(i, 1);
  if (!cy_check_rank(i, 0, 2, CY_MAX_RANK) || !cy_check_rank(i, 1, 2, CY_MAX_RANK))
    return false;
  if (cy_dims_differ(i, a->dim[a->rank - 1], b->dim[b->rank - 2]))
    return FAIL(i, "expected matrices whose inner dims agree, found %s and %s", TEXT(i, a), TEXT(i, b));
  cy_type x = *a, y = *b, t = {.dtype = out_type(i, 0)->dtype ? out_type(i, 0)->dtype : a->dtype};
  x.rank = (uint8_t)(a->rank - 2);
  y.rank = (uint8_t)(b->rank - 2);
  int rank = cy_infer_broadcast(i, &x, &y, t.dim);
  if (rank < 0)
    return false;
  t.dim[rank] = a->dim[a->rank - 2];
  t.dim[rank + 1] = b->dim[b->rank - 1];
  t.rank = (uint8_t)(rank + 2);
  return zero_points(i, t.dim[rank + 1]) && set_type(i, 0, t);
}

bool cy_infer_matmul_blocks(infer *i) {
  if (!cy_check_rank(i, 0, 2, CY_MAX_RANK) || !cy_check_rank(i, 1, 4, 4) || !cy_check_rank(i, 2, 2, 2))
    return false;
  const cy_type *x = in_type(i, 0), *w = in_type(i, 1), *scale = in_type(i, 2);
  int64_t blocks, rows, k, last;
  cy_dim n = cy_dim_mul(i->g, w->dim[1], w->dim[3]);
  int64_t codes = int_attr(i, CY_ATTR_codes);
  bool floats = cy_dtype_is_float8((cy_dtype)w->dtype) || (codes == CY_F4E2M1 && w->dtype == CY_U8);
  bool bytes = w->dtype == CY_U8 || w->dtype == CY_I8 || floats;
  if ((codes && !floats) || (floats ? !cy_dtype_is_float((cy_dtype)scale->dtype) : scale->dtype != CY_F32))
    return FAIL(
        i,
        "expected scales of f32, of codes that are floats any floats, and such codes as f4e2m1 in u8, found %s and %s",
        TEXT(i, w), TEXT(i, scale));
  bool known = is_const(i, x->dim[x->rank - 1], &k) && is_const(i, w->dim[0], &blocks) &&
               is_const(i, w->dim[2], &rows) && is_const(i, n, &last);
  if (!bytes || !known || (blocks * rows != k && (blocks * rows * 2 != k || w->dtype != CY_U8)))
    return FAIL(i, "expected 8-bit weights with a row for each column of x, or u8 with two in each, found %s and %s",
                TEXT(i, x), TEXT(i, w));
  if (!cy_check_dim(i, "scales", scale->dim[0], w->dim[0]) || !cy_check_dim(i, "scales", scale->dim[1], n))
    return false;
  const cy_type *zero = has_in(i, 3) ? in_type(i, 3) : NULL;
  bool each = zero && zero->rank == 2 && zero->dim[0] == w->dim[0] && zero->dim[1] == n;
  if (zero && (zero->dtype != CY_U8 || w->dtype != CY_U8 || floats || (zero->rank && !each)))
    return FAIL(i, "expected zero points of u8 weights, one or as many as scales, found %s", TEXT(i, zero));
  if (x->dtype != CY_F32 && x->dtype != CY_F16 && x->dtype != CY_BF16)
    return FAIL(i, "expected x of f32, f16 or bf16, found %s", TEXT(i, x));
  cy_type t = *x;
  t.dtype = CY_F32;
  t.dim[t.rank - 1] = n;
  return set_type(i, 0, t);
}

/* The windows' attributes have one element per spatial axis, pads two. */
static bool window_lists(infer *i, int spatial) {
  return cy_check_list(i, CY_ATTR_strides, spatial) && cy_check_list(i, CY_ATTR_dilations, spatial) &&
         cy_check_list(i, CY_ATTR_pads, 2 * spatial);
}

/* A window over an axis without elements would only see padding: a mistake, which ONNX Runtime refuses, too. */
static bool windows_have_source(infer *i, const cy_type *made) {
  for (int k = 2; k < made->rank; k++)
    if (!cy_check_source(i, in_type(i, 0), k, made))
      return false;
  return true;
}

/* Channels of one group that become positions: a number that divides them for each spatial axis; no zero points of theirs. */
static bool can_shuffle(infer *i, const cy_attr *shuffle, int64_t group, cy_dim channels) {
  int64_t n, parts = 1;
  if (!cy_check_list(i, CY_ATTR_shuffle, in_type(i, 0)->rank - 2))
    return false;
  for (uint32_t k = 0; k < shuffle->n && parts > 0 && parts < INT32_MAX; k++)
    parts = shuffle->ints[k] < 1 ? 0 : parts * shuffle->ints[k];
  bool fits = parts > 0 && is_const(i, channels, &n) && n % parts == 0;
  return (fits && group == 1 && (i->n->nin < 4 || !i->n->in[3])) ||
         FAIL(i, "expected channels of one group that can become spatial positions, found %s",
              cy_dim_text(i->g, channels));
}

bool cy_infer_conv(infer *i) {
  const cy_type *x = in_type(i, 0), *w = in_type(i, 1);
  if (!cy_check_rank(i, 0, 3, CY_MAX_RANK) || !cy_check_rank(i, 1, x->rank, x->rank) || !window_lists(i, x->rank - 2))
    return false;
  int64_t group = int_attr(i, CY_ATTR_group), o;
  if (group < 1 || (is_const(i, w->dim[0], &o) && o % group != 0))
    return FAIL(i, "expected a number of groups that divides the %s output channels, found %lld",
                cy_dim_text(i->g, w->dim[0]), (long long)group);
  cy_dim per_group = cy_dim_div(i->g, w->dim[0], cy_dim_const(i->g, group));
  if (!cy_check_dim(i, "output channels that all groups have", w->dim[0], cy_dim_muli(i->g, per_group, group)))
    return false;
  if (!cy_check_dim(i, "input channels", x->dim[1], cy_dim_muli(i->g, w->dim[1], group)))
    return false;
  const int64_t *strides = cy_attr_find(i->n, CY_ATTR_strides)->ints, *pads = cy_attr_find(i->n, CY_ATTR_pads)->ints,
                *dilations = cy_attr_find(i->n, CY_ATTR_dilations)->ints;
  cy_type t = *x;
  t.dtype = out_type(i, 0)->dtype ? out_type(i, 0)->dtype : x->dtype;
  t.dim[1] = w->dim[0];
  const cy_attr *shuffle = cy_attr_find(i->n, CY_ATTR_shuffle);
  if (shuffle && !can_shuffle(i, shuffle, group, w->dim[0]))
    return false;
  for (int k = 0; k < x->rank - 2; k++) {
    cy_graph *g = i->g;
    int64_t d;
    if (strides[k] < 1 || dilations[k] < 1)
      return FAIL(i, "expected strides and dilations of at least 1 on spatial axis %d", k);
    cy_dim reach = cy_dim_addi(g, cy_dim_muli(g, cy_dim_addi(g, w->dim[k + 2], -1), dilations[k]), 1);
    cy_dim padded = cy_dim_addi(g, cy_dim_addi(g, x->dim[k + 2], pads[k]), pads[k + x->rank - 2]);
    t.dim[k + 2] = cy_dim_addi(g, cy_dim_div(g, cy_dim_sub(g, padded, reach), cy_dim_const(g, strides[k])), 1);
    if (is_const(i, t.dim[k + 2], &d) && d < 0)
      return FAIL(i, "the kernel of %s is larger than the padded input %s (spatial axis %d)", TEXT(i, w), TEXT(i, x),
                  k);
    if (shuffle) {
      t.dim[1] = cy_dim_div(g, t.dim[1], cy_dim_const(g, shuffle->ints[k]));
      t.dim[k + 2] = cy_dim_muli(g, t.dim[k + 2], shuffle->ints[k]);
    }
  }
  return windows_have_source(i, &t) && zero_points(i, t.dim[1]) && set_type(i, 0, t);
}

bool cy_infer_conv_transpose(infer *i) {
  const cy_type *x = in_type(i, 0), *w = in_type(i, 1);
  cy_type *t = out_type(i, 0);
  if (!cy_check_rank(i, 0, 3, CY_MAX_RANK) || !cy_check_rank(i, 1, x->rank, x->rank) || !window_lists(i, x->rank - 2))
    return false;
  if (t->rank != x->rank)
    return FAIL(i, "expected an output of %d dims, found %s", x->rank, TEXT(i, t));
  int64_t group = int_attr(i, CY_ATTR_group);
  return cy_check_dim(i, "input channels", x->dim[1], w->dim[0]) && cy_check_dim(i, "batch", t->dim[0], x->dim[0]) &&
         cy_check_dim(i, "output channels", t->dim[1], cy_dim_muli(i->g, w->dim[1], group));
}

static bool pool(infer *i) {
  const cy_type *x = in_type(i, 0);
  cy_type *t = out_type(i, 0);
  if (!cy_check_rank(i, 0, 3, CY_MAX_RANK) || !window_lists(i, x->rank - 2) ||
      !cy_check_list(i, CY_ATTR_kernel, x->rank - 2))
    return false;
  if (t->rank != x->rank)
    return FAIL(i, "expected an output of %d dims, found %s", x->rank, TEXT(i, t));
  t->dtype = x->dtype;
  for (int k = 2; k < t->rank; k++) {
    int64_t d;
    if (is_const(i, t->dim[k], &d) && d < 0)
      return FAIL(i, "the window is larger than the padded input %s (spatial axis %d)", TEXT(i, x), k - 2);
  }
  return windows_have_source(i, t) && cy_check_dim(i, "batch", t->dim[0], x->dim[0]) &&
         cy_check_dim(i, "channels", t->dim[1], x->dim[1]);
}

bool cy_infer_pool_avg(infer *i) { return pool(i); }

bool cy_infer_pool_max(infer *i) {
  if (!pool(i))
    return false;
  cy_type t = *out_type(i, 0);
  t.dtype = CY_I64;
  return set_type(i, 1, t);
}

/* R of integers: its scale, and a zero point of its type, are one number or one per row. */
static bool recurrent_integers(infer *i, cy_dim rows) {
  char cls = cy_dtype_of((cy_dtype)in_type(i, 1)->dtype)->cls;
  bool ints = cls == 'I' || cls == 'U';
  if (ints != (i->n->nin > 7 && i->n->in[7]))
    return FAIL(i, "expected a scale of R where R is of integers, and only there");
  for (uint32_t k = 7; k < i->n->nin; k++) {
    if (!i->n->in[k])
      continue;
    const cy_type *t = in_type(i, k);
    if (!cy_check_dtype(i, k, k == 7 ? CY_F32 : (cy_dtype)in_type(i, 1)->dtype) || !cy_check_rank(i, k, 0, 1) ||
        (t->rank && !cy_check_dim(i, k == 7 ? "scales of R" : "zero points of R", t->dim[0], rows)))
      return false;
  }
  return true;
}

/* Biases, states, peepholes and lengths, each of dims that the cell gives: kernels read as many elements. */
static bool recurrent_shapes(infer *i, cy_dim gh, cy_dim h) {
  cy_dim batch = in_type(i, 0)->dim[1];
  const struct {
    const char *what;
    int rank;
    cy_dim dim[2];
  } rows[] = {{"recurrent biases", 1, {gh}},
              {"initial state", 2, {batch, h}},
              {"initial cells", 2, {batch, h}},
              {"peepholes", 1, {cy_dim_muli(i->g, h, 3)}},
              {"lengths", 1, {batch}}};
  for (uint32_t k = 0; k < sizeof rows / sizeof *rows; k++) {
    if (!has_in(i, k + 2))
      continue;
    if (!cy_check_rank(i, k + 2, rows[k].rank, rows[k].rank))
      return false;
    for (int d = 0; d < rows[k].rank; d++)
      if (!cy_check_dim(i, rows[k].what, in_type(i, k + 2)->dim[d], rows[k].dim[d]))
        return false;
  }
  return !has_in(i, 6) || cy_dtype_of((cy_dtype)in_type(i, 6)->dtype)->cls == 'I' ||
         FAIL(i, "expected lengths of integers, found %s", TEXT(i, in_type(i, 6)));
}

bool cy_infer_recurrent(infer *i) {
  const cy_type *x = in_type(i, 0);
  static const int gates[] = {[CY_CELL_RNN] = 1, [CY_CELL_GRU] = 3, [CY_CELL_LSTM] = 4};
  int64_t cell = int_attr(i, CY_ATTR_cell), hidden = int_attr(i, CY_ATTR_hidden);
  if (!cy_check_rank(i, 0, 3, 3) || !cy_check_rank(i, 1, 2, 2))
    return false;
  if (cell < CY_CELL_RNN || cell > CY_CELL_LSTM || hidden < 1 || hidden > INT32_MAX)
    return FAIL(i, "expected a recurrent cell with a hidden size, found cell %lld, size %lld", (long long)cell,
                (long long)hidden);
  cy_dim h = cy_dim_const(i->g, hidden), gh = cy_dim_muli(i->g, h, gates[cell]);
  if (!cy_check_dim(i, "gates of the input", x->dim[2], gh) ||
      !cy_check_dim(i, "rows of R", in_type(i, 1)->dim[0], gh) ||
      !cy_check_dim(i, "columns of R", in_type(i, 1)->dim[1], h) || !recurrent_integers(i, gh) ||
      !recurrent_shapes(i, gh, h))
    return false;
  cy_dtype dtype = (cy_dtype)x->dtype;
  bool ints = has_in(i, 7);
  for (uint32_t k = ints ? 2 : 1; k < 6; k++)
    if (has_in(i, k) && !cy_check_dtype(i, k, dtype))
      return false;
  cy_dim all[3] = {x->dim[0], x->dim[1], h};
  return set_type(i, 0, cy_type_make(dtype, 3, all)) && set_type(i, 1, cy_type_make(dtype, 2, all + 1)) &&
         set_type(i, 2, cy_type_make(dtype, 2, all + 1));
}

/* ---- runtime calls ----------------------------------------------------------------------------------------------- */

bool cy_infer_topk(infer *i) {
  const cy_type *x = in_type(i, 0);
  cy_type t = *out_type(i, 0);
  int64_t axis = int_attr(i, CY_ATTR_axis), k, d;
  if (!cy_check_axis(i, axis, x->rank))
    return false;
  if (t.rank != x->rank)
    return FAIL(i, "expected an output of %d dims, found %s", x->rank, TEXT(i, &t));
  if (is_const(i, t.dim[axis], &k) && is_const(i, x->dim[axis], &d) && (k < 0 || k > d))
    return FAIL(i, "expected at most the %lld elements of axis %lld, found k = %lld", (long long)d, (long long)axis,
                (long long)k);
  cy_graph_require(i->g, t.dim[axis], x->dim[axis], CY_REQUIRE_AT_MOST);
  t.dtype = x->dtype;
  set_type(i, 0, t);
  t.dtype = CY_I64;
  return set_type(i, 1, t);
}

bool cy_infer_nonzero(infer *i) {
  const cy_type *t = out_type(i, 0);
  if (t->dtype != CY_I64 || t->rank != 2)
    return FAIL(i, "expected an output i64[rank, count], found %s", TEXT(i, t));
  return cy_check_dim(i, "rows", t->dim[0], cy_dim_const(i->g, in_type(i, 0)->rank));
}

bool cy_infer_refuse(infer *i) { return set_type(i, 0, *in_type(i, 0)); }

bool cy_infer_require_found(infer *i) { return cy_check_dtype(i, 0, CY_I64) && set_type(i, 0, *in_type(i, 0)); }

bool cy_infer_unique(infer *i) {
  for (uint32_t k = 1; k < 4; k++)
    if (out_type(i, k)->dtype != CY_I64 || out_type(i, k)->rank != 1)
      return FAIL(i, "expected output %u to be a list of i64, found %s", k, TEXT(i, out_type(i, k)));
  out_type(i, 0)->dtype = in_type(i, 0)->dtype;
  return true;
}

bool cy_infer_non_max_suppression(infer *i) {
  const cy_type *t = out_type(i, 0);
  const cy_type *boxes = in_type(i, 0), *scores = in_type(i, 1);
  if (!cy_check_rank(i, 0, 3, 3) || !cy_check_rank(i, 1, 3, 3) ||
      !cy_check_dim(i, "coordinates of a box", boxes->dim[2], cy_dim_const(i->g, 4)) ||
      !cy_check_dim(i, "batches of scores", scores->dim[0], boxes->dim[0]) ||
      !cy_check_dim(i, "boxes that have scores", scores->dim[2], boxes->dim[1]))
    return false;
  for (uint32_t k = 0; k < i->n->nin; k++)
    if (has_in(i, k) &&
        (!cy_check_dtype(i, k, k == 2 ? CY_I64 : CY_F32) ||
         (k >= 2 && !cy_check_dim(i, "numbers in an input that is one number", cy_type_elems(i->g, in_type(i, k)),
                                  cy_dim_const(i->g, 1)))))
      return false;
  return (t->dtype == CY_I64 && t->rank == 2) || FAIL(i, "expected an output i64[count, 3], found %s", TEXT(i, t));
}

/* ---- strings ----------------------------------------------------------------------------------------------------- */

static bool check_strings(infer *i, uint32_t inputs) {
  for (uint32_t k = 0; k < inputs; k++)
    if (!cy_check_dtype(i, k, CY_STRING))
      return false;
  return true;
}

/* As the first input, but for the type of the elements. */
static bool set_like(infer *i, uint32_t k, cy_dtype dtype) {
  const cy_type *x = in_type(i, 0);
  return set_type(i, k, cy_type_make(dtype, x->rank, x->dim));
}

static bool check_out(infer *i, uint32_t k, cy_dtype dtype, int rank) {
  const cy_type *t = out_type(i, k);
  return (t->dtype == dtype && t->rank == rank) ||
         FAIL(i, "expected an output of %d dims of %s, found %s", rank, cy_dtype_of(dtype)->name, TEXT(i, t));
}

bool cy_infer_string_normalize(infer *i) {
  return check_strings(i, 2) && cy_check_rank(i, 0, 1, 2) && check_out(i, 0, CY_STRING, in_type(i, 0)->rank);
}

bool cy_infer_string_concat(infer *i) {
  const cy_type *a = in_type(i, 0), *b = in_type(i, 1);
  if (!check_strings(i, 2))
    return false;
  bool same = a->rank == b->rank;
  for (int k = 0; k < a->rank && same; k++)
    same = !cy_dims_clash(i, a->dim[k], b->dim[k]);
  return same ? set_like(i, 0, CY_STRING) : FAIL(i, "expected equal dims, found %s and %s", TEXT(i, a), TEXT(i, b));
}

bool cy_infer_string_split(infer *i) {
  return check_strings(i, 2) && cy_check_rank(i, 1, 0, 0) && cy_check_rank(i, 0, 0, CY_MAX_RANK - 1) &&
         check_out(i, 0, CY_STRING, in_type(i, 0)->rank + 1) && set_like(i, 1, CY_I64);
}

bool cy_infer_string_match(infer *i) {
  return check_strings(i, 1) && cy_check_dtype(i, 1, CY_I32) && cy_check_rank(i, 1, 1, 1) && set_like(i, 0, CY_BOOL);
}

bool cy_infer_string_tokens(infer *i) {
  for (uint32_t k = 2; k < i->n->nin; k++)
    if (!cy_check_dtype(i, k, CY_I32) || !cy_check_rank(i, k, 1, 1))
      return false;
  return check_strings(i, 2) && cy_check_rank(i, 1, 1, 1) && cy_check_rank(i, 0, 0, CY_MAX_RANK - 1) &&
         check_out(i, 0, CY_STRING, in_type(i, 0)->rank + 1);
}

bool cy_infer_string_from(infer *i) {
  return set_like(i, 0, CY_STRING);
}

bool cy_infer_string_to(infer *i) {
  uint8_t to = out_type(i, 0)->dtype;
  if (to != CY_F64 && to != CY_I64 && to != CY_U64)
    return FAIL(i, "expected an output of f64, i64 or u64, found %s", cy_dtype_of((cy_dtype)to)->name);
  return check_strings(i, 1) && set_like(i, 0, (cy_dtype)to);
}

bool cy_infer_string_rank(infer *i) { return check_strings(i, 1) && set_like(i, 0, CY_I64); }

bool cy_infer_count_ngrams(infer *i) {
  const cy_type *x = in_type(i, 0);
  bool texts = x->dtype == CY_STRING || x->dtype == CY_I64;
  return (texts || FAIL(i, "expected strings or i64, found %s", TEXT(i, x))) && cy_check_rank(i, 0, 1, 2) &&
         cy_check_dtype(i, 1, (cy_dtype)x->dtype) && cy_check_dtype(i, 2, CY_I64) && cy_check_dtype(i, 3, CY_I64) &&
         cy_check_dtype(i, 4, CY_F32) && check_out(i, 0, CY_F32, x->rank);
}

/* ---- control flow ------------------------------------------------------------------------------------------------ */

/* May a value of type r become one of type t? The sizes are not looked at. */
static bool fits(infer *i, const cy_type *r, const cy_type *t) {
  cy_content both;
  return r->dtype == t->dtype &&
         (!t->content || (r->content && cy_content_join(i->g, t->content, r->content, &both) && both == t->content));
}

static bool branch_fits(infer *i, cy_attr_key key) {
  const cy_block_info *b = cy_block_of(i->g, cy_attr_find(i->n, key)->block);
  if (b->nresults != i->n->nout || b->nparams != 0)
    return FAIL(i, "expected a branch '%s' with %u results, found %u", cy_attr_name(key), i->n->nout, b->nresults);
  for (uint32_t k = 0; k < b->nresults; k++) {
    const cy_type *r = &cy_value_of(i->g, b->results[k])->type, *t = out_type(i, k);
    if (!fits(i, r, t))
      return FAIL(i, "expected result %u of branch '%s' to be %s, found %s", k, cy_attr_name(key), TEXT(i, t),
                  TEXT(i, r));
  }
  return true;
}

bool cy_infer_if(infer *i) {
  return cy_check_dtype(i, 0, CY_BOOL) && branch_fits(i, CY_ATTR_then) && branch_fits(i, CY_ATTR_else);
}

bool cy_infer_loop(infer *i) {
  const cy_block_info *b = cy_block_of(i->g, cy_attr_find(i->n, CY_ATTR_body)->block);
  uint32_t carried = i->n->nin - 2;
  if ((has_in(i, 0) && !cy_check_dtype(i, 0, CY_I64)) || (has_in(i, 1) && !cy_check_dtype(i, 1, CY_BOOL)))
    return false;
  if (b->nparams != carried + 2 || b->nresults != i->n->nout + 1 || i->n->nout < carried)
    return FAIL(i, "expected a loop body with %u parameters and %u results, found %u and %u", carried + 2,
                i->n->nout + 1, b->nparams, b->nresults);
  for (uint32_t k = 0; k < carried; k++) {
    const cy_type *p = &cy_value_of(i->g, b->params[k + 2])->type, *r = &cy_value_of(i->g, b->results[k + 1])->type;
    if (!fits(i, in_type(i, k + 2), p) || !fits(i, r, p))
      return FAIL(i, "expected carried value %u to keep its type, found %s, %s and %s", k, TEXT(i, in_type(i, k + 2)),
                  TEXT(i, p), TEXT(i, r));
  }
  return true;
}
