/* SPDX-License-Identifier: Apache-2.0 */
/* fuse.c - decides which values never reach memory: cy_value.inlined.
 *
 * In:  a swept graph, layouts chosen (or all row-major). Out: `inlined` set; no node is changed.
 *
 * Lowering makes one kernel per stored value by composing the expressions of the inlined values behind it. Two steps:
 *   1. Epilogues. A contraction, reduction or row operation (the root of the fusion) takes the element-wise ops behind it:
 *      from the root forward, ops of its shape are gathered as long as there is one last value, the target, through
 *      which everything leaves. `x * sigmoid(x)` and gelu read the root several times; it is computed once. Later
 *      roots choose first, so a residual sum belongs to the branch that ends last.
 *   2. Prologues and chains, from the end to the start. A value is inlined if all its readers are in one kernel and
 *      read each element once (equal expressions are computed once, so several reads at the same index are one), or if
 *      computing it is cheaper than loading it. Views of stored values stay: lowering makes them strides, which cost
 *      nothing.
 *
 * Never inlined: model outputs, block results, what symbols or other blocks read, operands of contractions, calls and
 * control flow.
 */
#include "pass_int.h"

#include <string.h>

enum {
  MAX_EPILOGUE = 32, /* ops in one epilogue */
  MAX_VISITS = 160,  /* steps of composing one expression: diamonds double them */
  MANY_VISITS = 40,  /* .. from which on what is broadcast to REPEATED times its elements is stored */
  REPEATED = 8,
  MAX_LOADS = 24, /* distinct operands of one kernel */
  FREE = 1,       /* cost up to which computing beats loading */
  CHEAP = 4       /* cost that may be paid two or three times */
};

typedef struct fuser {
  cy_pass *p;
  cy_graph *g;
  cy_uses uses;
  cy_node *kernel;  /* [node]: the node whose output the kernel stores that computes this one; 0: several */
  bool *pinned;     /* [value]: stored, decided */
  bool *inside;     /* [node]: inlined into whatever reads it, decided */
  uint32_t *member; /* [node]: mark of the epilogue being gathered */
  uint32_t *place;  /* [node]: in its block */
  uint16_t *cost;   /* [value]: operations per element, if its single-use inputs are inlined */
  uint16_t *visits; /* [value]: composing steps, if all its element-wise inputs are inlined */
  uint16_t *loads;  /* [value]: operands, likewise, as often as they are read */
  struct operands { /* [value]: each of them once */
    uint32_t n;
    cy_val *v;
  } * operands;
  uint32_t mark;
} fuser;

static cy_op_class class_of(const cy_node_info *n) { return cy_node_op(n)->cls; }

static uint32_t use_count(const fuser *f, cy_val v) { return f->uses.start[v + 1] - f->uses.start[v]; }

/* Padding around an argument, as caches grow, read by a select: lanes of a vector share the side it is of, so that choosing
 * is a branch. What a kernel makes is better stored between its padding at once. */
static bool is_chosen_pad(const fuser *f, const cy_node_info *n) {
  const cy_attr *pads = n->op == CY_OP_pad ? cy_attr_find(n, CY_ATTR_pads) : NULL;
  if (!pads || cy_attr_get_int(n, CY_ATTR_mode, CY_PAD_CONSTANT) != CY_PAD_CONSTANT || cy_def(f->g, n->in[0]) ||
      use_count(f, n->out[0]) != 1)
    return false;
  int rank = cy_type_of(f->g, n->in[0])->rank;
  cy_node user = f->uses.list[f->uses.start[n->out[0]]];
  return user && cy_node_of(f->g, user)->op == CY_OP_select && rank > 1 && cy_dim_is(f->g, pads->dims[rank - 1], 0) &&
         cy_dim_is(f->g, pads->dims[2 * rank - 1], 0);
}

static bool is_pure_view(const cy_node_info *n) { return cy_op_is_pure_view((cy_op)n->op) && n->op != CY_OP_identity; }

/* Is v a slice, or little more than one? */
static bool is_part(const fuser *f, cy_val v, cy_block block) {
  const cy_node_info *d = cy_def(f->g, v);
  bool ok = d && d->block == block;
  for (; ok && class_of(d) == CY_CLASS_EW && d->nin == 1; d = cy_def(f->g, d->in[0]), ok = d && d->block == block)
    ok = use_count(f, d->out[0]) == 1;
  return ok && d->op == CY_OP_slice;
}

/* Parts of something in another order, as rotary embeddings have it (the negated second half, then the first one), read by
 * an element-wise op: on a device the kernel of that chooses for each element, instead of a kernel for each part. */
static bool is_chosen_concat(const fuser *f, const cy_node_info *n) {
  enum { MAX_CHOSEN = 4 };
  if (n->op != CY_OP_concat || !cy_caps_of(f->p->options->caps)->device || n->nin > MAX_CHOSEN ||
      use_count(f, n->out[0]) != 1)
    return false;
  cy_node user = f->uses.list[f->uses.start[n->out[0]]];
  bool ok = user && cy_node_of(f->g, user)->block == n->block && class_of(cy_node_of(f->g, user)) == CY_CLASS_EW;
  for (uint32_t k = 0; k < n->nin && ok; k++)
    ok = is_part(f, n->in[k], n->block);
  return ok;
}

/* Of what is no expression by itself, a kernel may have these inside. */
static bool is_chosen(const fuser *f, const cy_node_info *n) { return is_chosen_pad(f, n) || is_chosen_concat(f, n); }

/* How often user n reads each element of input k when it is inlined there: 0: must be stored, 1, or several. */
static int reads_of(const cy_graph *g, const cy_node_info *n, uint32_t k) {
  switch (n->op) {
  case CY_OP_softmax:
  case CY_OP_log_softmax:
  case CY_OP_normalize:
    return 3;
  case CY_OP_quantize:
  case CY_OP_dequantize:
    return k == 0;
  case CY_OP_quantize_rows: /* keeps what it computes */
    return 1;
  case CY_OP_attention:
    return k > 2; /* bias and masks, once per score */
  case CY_OP_write_rows:
    return k < 2 ? 1 : 3;
  case CY_OP_gather: /* an index, for every element that it names */
    return k == 1 ? (cy_type_of(g, n->in[0])->rank == 1 ? 1 : 3) : 0;
  case CY_OP_gather_elements:
    return k == 1;
  default:
    return class_of(n) == CY_CLASS_EW || class_of(n) == CY_CLASS_REDUCE || cy_op_is_pure_view((cy_op)n->op);
  }
}

/* Pools and resizing read an element several times; converting it each time costs less than storing four times the
 * bytes. */
static bool converts_while_reading(const cy_node_info *n, uint32_t k, const cy_node_info *d) {
  bool reads = n->op == CY_OP_pool_max || n->op == CY_OP_pool_avg || n->op == CY_OP_resize;
  return reads && k == 0 && d->op == CY_OP_dequantize;
}

/* A reduction, or what only that reads? So is what finds a scale for every row. */
static bool is_reduced(const fuser *f, const cy_node_info *n) {
  while ((class_of(n) == CY_CLASS_EW || n->op == CY_OP_transpose) && use_count(f, n->out[0]) == 1 &&
         f->uses.list[f->uses.start[n->out[0]]])
    n = cy_node_of(f->g, f->uses.list[f->uses.start[n->out[0]]]);
  return class_of(n) == CY_CLASS_REDUCE || n->op == CY_OP_quantize_rows;
}

/* Does the user read v at the index of its own elements, so that several such reads are one? */
static bool same_index(const fuser *f, const cy_node_info *user, cy_val v) {
  cy_op_class cls = class_of(user);
  bool rows = user->op == CY_OP_softmax || user->op == CY_OP_log_softmax || user->op == CY_OP_normalize ||
              cls == CY_CLASS_REDUCE || user->op == CY_OP_quantize || user->op == CY_OP_dequantize ||
              user->op == CY_OP_quantize_rows;
  return rows || (cls == CY_CLASS_EW && cy_same_shape(cy_type_of(f->g, user->out[0]), cy_type_of(f->g, v)));
}

/* Is what d gives stored whatever is decided: a result, an operand of an operation that reads memory, what several read
 * and one looks up in a table, or what both a reduction and another kernel read and neither computes for itself? Chains
 * end there. */
static bool ends_kernel(const fuser *f, const cy_node_info *d) {
  cy_val v = d->out[0];
  bool several = use_count(f, v) > 1 && (f->cost[v] > FREE || f->loads[v] > 1);
  for (uint32_t i = f->uses.start[v]; i < f->uses.start[v + 1]; i++) {
    if (!f->uses.list[i])
      return true;
    const cy_node_info *user = cy_node_of(f->g, f->uses.list[i]);
    if (several && (is_reduced(f, user) || user->op == CY_OP_gather))
      return true;
    for (uint32_t k = 0; k < user->nin; k++)
      if (user->in[k] == v && !is_chosen_concat(f, user) && !reads_of(f->g, user, k) && !converts_while_reading(user, k, d))
        return true;
  }
  return false;
}

/* Adds v unless it is there; one too many tells that there is no room. */
static void add_operand(struct operands *set, cy_val v) {
  for (uint32_t i = 0; i < set->n; i++)
    if (set->v[i] == v)
      return;
  if (set->n <= MAX_LOADS)
    set->v[set->n++] = v;
}

static void keep_operands(fuser *f, cy_val v, const struct operands *set) {
  f->operands[v] = (struct operands){set->n, CY_NEW_ARRAY(f->p->scratch, cy_val, set->n + 1)};
  memcpy(f->operands[v].v, set->v, set->n * sizeof *set->v);
}

/* Is v, which takes many steps to compose, better stored than composed for the elements of n, of which each of v's makes
 * many? n would be the next to grow too large, and there is more of it. */
static bool is_repeated(const fuser *f, const cy_node_info *n, cy_val v) {
  cy_graph *g = f->g;
  const cy_type *t = n->nout == 1 ? cy_type_of(g, n->out[0]) : NULL;
  return t && f->visits[v] > MANY_VISITS &&
         cy_dim_le(g, cy_dim_muli(g, cy_type_elems(g, cy_type_of(g, v)), REPEATED), cy_type_elems(g, t));
}

/* One index serves a whole matrix of what is gathered along an axis in front of two others. */
static int own_cost(const cy_graph *g, const cy_node_info *n) {
  bool matrices = n->op == CY_OP_gather && cy_attr_get_int(n, CY_ATTR_axis, 0) + 2 < cy_type_of(g, n->in[0])->rank;
  return matrices ? FREE : cy_node_op(n)->cost;
}

/* Forward: what a value would cost if everything that can be was inlined into it; cuts expressions that grow too large.
 */
static void estimate(fuser *f) {
  cy_graph *g = f->g;
  for (cy_block b = 1; b <= cy_block_count(g); b++)
    for (uint32_t i = 0; i < cy_block_of(g, b)->nnodes; i++) {
      const cy_node_info *n = cy_node_of(g, cy_block_of(g, b)->nodes[i]);
      f->place[cy_block_of(g, b)->nodes[i]] = i;
      uint32_t cost = (uint32_t)own_cost(g, n), visits = 1, loads = 0;
      cy_val distinct[MAX_LOADS + 1];
      struct operands set = {0, distinct};
      for (uint32_t k = 0; k < n->nin; k++) {
        const cy_node_info *d = cy_def(g, n->in[k]);
        bool inner =
            d && (cy_node_op(d)->expression || is_chosen(f, d)) && !f->pinned[n->in[k]] && !ends_kernel(f, d);
        if (inner && is_repeated(f, n, n->in[k])) {
          f->pinned[n->in[k]] = true;
          inner = false;
        }
        visits += inner ? f->visits[n->in[k]] : 1;
        loads += inner ? f->loads[n->in[k]] : 1;
        for (uint32_t j = 0; inner && j < f->operands[n->in[k]].n; j++)
          add_operand(&set, f->operands[n->in[k]].v[j]);
        if (!inner)
          add_operand(&set, n->in[k]);
        if (inner && use_count(f, n->in[k]) == 1)
          cost += f->cost[n->in[k]];
      }
      bool cut = visits > MAX_VISITS || set.n > MAX_LOADS;
      for (uint32_t k = 0; k < n->nout; k++) {
        f->pinned[n->out[k]] = cut;
        f->cost[n->out[k]] = (uint16_t)(cost > 1000 ? 1000 : cost);
        f->visits[n->out[k]] = (uint16_t)(cut ? 1 : visits);
        f->loads[n->out[k]] = (uint16_t)(cut ? 1 : loads);
        if (!cut && cy_node_op(n)->expression)
          keep_operands(f, n->out[k], &set);
      }
    }
}

/* ---- step 1: epilogues ------------------------------------------------------------------------------------------ */

/* Does root a have the whole of a row at hand, as n wants it? */
static bool has_rows_for(const fuser *f, const cy_node_info *a, const cy_node_info *n) {
  bool reduced[CY_MAX_RANK];
  int rank = cy_type_of(f->g, a->out[0])->rank, count = 0;
  if (n->op != CY_OP_quantize_rows || a->op != CY_OP_normalize || !cy_axes_of(a, rank, reduced))
    return false;
  for (int i = 0; i < rank; i++)
    count += reduced[i];
  return count == 1 && reduced[rank - 1];
}

/* May node n join the epilogue of root a? One of its inputs is a member already. */
static bool can_join(const fuser *f, const cy_node_info *n, const cy_node_info *a) {
  const cy_type *t = cy_type_of(f->g, a->out[0]);
  bool converts = n->op == CY_OP_quantize || n->op == CY_OP_dequantize;
  if ((class_of(n) != CY_CLASS_EW && !converts && !has_rows_for(f, a, n)) || n->block != a->block ||
      f->pinned[n->out[0]] || !cy_same_shape(cy_type_of(f->g, n->out[0]), t))
    return false;
  for (uint32_t k = 0; k < n->nin; k++) { /* a member that n broadcasts has another index than the root */
    cy_node d = cy_value_of(f->g, n->in[k])->node;
    if (d && f->member[d] == f->mark &&
        (!cy_same_shape(cy_type_of(f->g, n->in[k]), t) || cy_node_of(f->g, d)->op == CY_OP_quantize_rows))
      return false;
  }
  return true;
}

/* Do all uses of v stay among the members? */
static bool is_closed(const fuser *f, cy_val v) {
  for (uint32_t i = f->uses.start[v]; i < f->uses.start[v + 1]; i++)
    if (!f->uses.list[i] || f->member[f->uses.list[i]] != f->mark)
      return false;
  return use_count(f, v) > 0;
}

/* The first user of the members, in the order of the block, that can join; 0: none. Those that a value is made of come
 * before those that read it: gelu is whole before the two that round it join, which would leave by two ways. */
static cy_node next_member(const fuser *f, const cy_node *members, int n, const cy_node_info *a) {
  cy_node first = 0;
  for (int i = 0; i < n; i++) {
    cy_val v = cy_node_of(f->g, members[i])->out[0];
    for (uint32_t k = f->uses.start[v]; k < f->uses.start[v + 1]; k++) {
      cy_node u = f->uses.list[k];
      if (u && f->member[u] != f->mark && !f->kernel[u] && (!first || f->place[u] < f->place[first]) &&
          can_join(f, cy_node_of(f->g, u), a))
        first = u;
    }
  }
  return first;
}

/* Eight bits are stored rather than what they stand for, where a choice is. */
static bool may_end_with(const fuser *f, cy_node node) {
  const cy_node_info *n = cy_node_of(f->g, node);
  if (n->op != CY_OP_dequantize)
    return true;
  for (uint32_t i = f->uses.start[n->out[0]]; i < f->uses.start[n->out[0] + 1]; i++)
    if (!f->uses.list[i])
      return true;
  return false;
}

/* Is n what makes floats of the halves that `half` rounds to? A device moves half as much where each reader does that. */
static bool widens_halves(const fuser *f, const cy_node_info *half, const cy_node_info *n) {
  return cy_caps_of(f->p->options->caps)->device && half->op == CY_OP_cast && n->op == CY_OP_cast &&
         n->in[0] == half->out[0] && cy_type_of(f->g, n->out[0])->dtype == CY_F32 &&
         (cy_type_of(f->g, n->in[0])->dtype == CY_F16 || cy_type_of(f->g, n->in[0])->dtype == CY_BF16);
}

/* Would an epilogue that could end with eight bits end with floats made of them, which their only reader can make for
 * itself? Or with floats made of halves, which all readers can? */
static bool widens(const fuser *f, cy_node target, cy_node open) {
  const cy_node_info *n = cy_node_of(f->g, open);
  if (widens_halves(f, cy_node_of(f->g, target), n) && !ends_kernel(f, n))
    return true;
  return cy_node_of(f->g, target)->op == CY_OP_quantize && cy_dtype_is_float(cy_type_of(f->g, n->out[0])->dtype) &&
         use_count(f, n->out[0]) == 1 && !ends_kernel(f, n);
}

static void gather_epilogue(fuser *f, cy_node root) {
  cy_graph *g = f->g;
  const cy_node_info *a = cy_node_of(g, root);
  cy_node members[MAX_EPILOGUE + 1] = {root}, target = root;
  int n = 1, whole = 1; /* everything in members[0 .. whole) leaves through target */
  f->mark++;
  f->member[root] = f->mark;
  while (n <= MAX_EPILOGUE) {
    cy_node u = next_member(f, members, n, a), open = 0;
    if (!u)
      break;
    members[n++] = u;
    f->member[u] = f->mark;
    int nopen = 0;
    for (int i = 0; i < n; i++)
      if (!is_closed(f, cy_node_of(g, members[i])->out[0])) {
        open = members[i];
        nopen++;
      }
    if (nopen == 1 && may_end_with(f, open) && !widens(f, target, open)) {
      whole = n;
      target = open;
    }
  }
  for (int i = 0; i < whole; i++) {
    cy_val v = cy_node_of(g, members[i])->out[0];
    f->kernel[members[i]] = target;
    f->pinned[v] = true;
    cy_value_of(g, v)->inlined = members[i] != target;
  }
  cy_pass_count(f->p, "epilogue ops", (uint64_t)(whole - 1));
}

/* Does n find largest elements that the kernel of the images finds, or does what only such a one reads? */
static bool is_found(const fuser *f, const cy_node_info *n) {
  const cy_node_info *user = n;
  if (n->op != CY_OP_reduce_max)
    return false;
  if (use_count(f, n->out[0]) == 1 && f->uses.list[f->uses.start[n->out[0]]])
    user = cy_node_of(f->g, f->uses.list[f->uses.start[n->out[0]]]);
  const cy_target_caps *caps = f->p->options->caps;
  return cy_maxima_are_found(f->g, caps, n->out[0]) ||
         (user->op == CY_OP_reduce_max && cy_maxima_are_found(f->g, caps, user->out[0]));
}

static void epilogues(fuser *f, cy_block b) {
  const cy_block_info *block = cy_block_of(f->g, b);
  for (uint32_t i = block->nnodes; i-- > 0;) {
    const cy_node_info *n = cy_node_of(f->g, block->nodes[i]);
    if (cy_node_op(n)->fusion_root && !is_found(f, n))
      gather_epilogue(f, block->nodes[i]);
  }
}

/* ---- step 2: prologues and chains ------------------------------------------------------------------------------- */

/* Is it better to compute v (by d) inside the kernel that materialises view n than to store v and let n be strides of
 * it? */
static bool view_wants(const fuser *f, const cy_node_info *n, cy_val v) {
  switch (n->op) {
  case CY_OP_slice:
    return true; /* computes only what is kept */
  case CY_OP_identity:
    return true; /* a change of layout: compute and convert at once */
  case CY_OP_reshape:
    return !cy_layout_is_row_major(cy_value_of(f->g, v));
  default:
    return false;
  }
}

/* Reshape that, read through an index of its output, needs no division: every input axis is kept, or several output
 * axes make it up. */
static bool reshape_only_splits(const fuser *f, const cy_node_info *n) {
  cy_graph *g = f->g;
  const cy_type *from = cy_type_of(g, n->in[0]), *to = cy_type_of(g, n->out[0]);
  int j = 0;
  for (int i = 0; i < from->rank; i++) {
    if (cy_dim_is(g, from->dim[i], 1))
      continue;
    cy_dim product = cy_dim_const(g, 1);
    while (product != from->dim[i]) {
      if (j == to->rank)
        return false;
      product = cy_dim_mul(g, product, to->dim[j++]);
      if (!cy_dim_le(g, product, from->dim[i]))
        return false;
    }
  }
  for (; j < to->rank; j++)
    if (!cy_dim_is(g, to->dim[j], 1))
      return false;
  return true;
}

/* Is v as large as the scores of attention n, so that each of its elements is read once? */
static bool per_score(const fuser *f, const cy_node_info *n, cy_val v) {
  cy_attention a = cy_attention_of(n);
  cy_type t = cy_attention_scores(f->g, &a);
  return cy_same_shape(cy_type_of(f->g, v), &t);
}

/* What may be computed again for each element that a broadcast value meets. A division by what an image has one of costs a
 * GPU less than the kernel that would do it once. */
static int broadcast_limit(const fuser *f, cy_val v) {
  const cy_type *t = cy_type_of(f->g, v);
  for (int i = 1; i < t->rank; i++)
    if (!cy_dim_is(f->g, t->dim[i], 1))
      return 2;
  return cy_caps_of(f->p->options->caps)->device && t->rank > 0 ? CHEAP : 2;
}

/* May the user have v inside its kernel? Lowers *limit to what v may cost there. */
static bool user_allows(const fuser *f, cy_node user, cy_val v, int *limit) {
  const cy_node_info *n = cy_node_of(f->g, user), *d = cy_def(f->g, v);
  if (n->block != d->block)
    return false;
  for (uint32_t k = 0; k < n->nin; k++) {
    if (n->in[k] != v)
      continue;
    int reads = converts_while_reading(n, k, d) ? 3 : reads_of(f->g, n, k);
    if (n->op == CY_OP_concat && cy_value_of(f->g, n->out[0])->inlined)
      reads = 1;
    bool inner_view = is_pure_view(n) && cy_value_of(f->g, n->out[0])->inlined;
    if (!reads || ((is_pure_view(n) || n->op == CY_OP_identity) && !inner_view && !view_wants(f, n, v)))
      return false;
    if (reads > 1 && *limit > CHEAP)
      *limit = CHEAP;
    bool broadcast = class_of(n) == CY_CLASS_EW
                         ? !cy_same_shape(cy_type_of(f->g, n->out[0]), cy_type_of(f->g, v))
                         : n->op == CY_OP_expand || (n->op == CY_OP_attention && !per_score(f, n, v));
    if (broadcast && *limit > broadcast_limit(f, v))
      *limit = broadcast_limit(f, v);
  }
  return true;
}

/* Is v read by a concatenation in its user's kernel alone, perhaps through an element-wise op? */
static bool is_chosen_part(const fuser *f, cy_val v) {
  const cy_node_info *n = NULL;
  do {
    cy_node user = use_count(f, v) == 1 ? f->uses.list[f->uses.start[v]] : 0;
    n = user ? cy_node_of(f->g, user) : NULL;
    v = n && n->nout == 1 ? n->out[0] : 0;
  } while (v && class_of(n) == CY_CLASS_EW && cy_value_of(f->g, v)->inlined);
  return v && n->op == CY_OP_concat && cy_value_of(f->g, v)->inlined;
}

/* A view is inlined when that lets the expression behind it join; or when strides can't express it and no one else
 * needs it. */
static bool view_should(const fuser *f, const cy_node_info *d) {
  const cy_value *in = cy_value_of(f->g, d->in[0]);
  const cy_node_info *before = in->node ? cy_node_of(f->g, in->node) : NULL;
  if (in->data.bytes)
    return false;
  if (d->op == CY_OP_reshape && !reshape_only_splits(f, d))
    return false;
  if (before && cy_node_op(before)->expression && !is_pure_view(before) && !f->pinned[d->in[0]] &&
      use_count(f, d->in[0]) == 1 && before->block == d->block)
    return true;
  bool strided = before && is_pure_view(before);
  if (d->op == CY_OP_slice && strided && is_chosen_part(f, d->out[0]))
    return true;
  return d->op == CY_OP_reshape && (strided || !cy_layout_is_row_major(in));
}

static void put_inside(fuser *f, cy_val v) {
  f->inside[cy_value_of(f->g, v)->node] = true;
  cy_value_of(f->g, v)->inlined = true;
  cy_pass_count(f->p, "inlined", 1);
}

/* Are channels of v's images innermost, in whole runs of so many? */
static bool has_runs(const fuser *f, cy_val v, int64_t of) {
  const cy_value *val = cy_value_of(f->g, v);
  int rank = val->type.rank;
  int64_t channels;
  return cy_dim_is_const(f->g, val->type.dim[1], &channels) && channels % of == 0 && val->layout[rank - 1] == 1;
}

/* Convolutions may round images as they read them, where the target can and somebody else has found the largest element. */
static bool is_rounded_in_place(const fuser *f, cy_val v, cy_maxima_rounding *out) {
  const cy_target_caps *caps = cy_caps_of(f->p->options->caps);
  if (!caps->finds_maxima || !cy_maxima_rounds(f->g, v, out) || !cy_maxima_are_found(f->g, caps, out->max) ||
      !has_runs(f, v, caps->finds_maxima) || !has_runs(f, out->x, caps->finds_maxima) || use_count(f, out->up) != 1 ||
      use_count(f, out->product) != 1 || use_count(f, out->whole) != 1)
    return false;
  for (uint32_t i = f->uses.start[v]; i < f->uses.start[v + 1]; i++) {
    const cy_node_info *n = f->uses.list[i] ? cy_node_of(f->g, f->uses.list[i]) : NULL;
    if (!n || n->op != CY_OP_conv || n->in[0] != v || n->in[1] == v || n->nin > 2 ||
        cy_attr_get_int(n, CY_ATTR_group, 1) != 1 || cy_attr_find(n, CY_ATTR_shuffle) ||
        n->block != cy_def(f->g, v)->block || cy_type_of(f->g, n->in[1])->dtype != CY_I8)
      return false;
  }
  return use_count(f, v) > 0;
}

/* Is v the scale of an image, or what that is a multiple of? Then the maximum that it is made of, else 0. */
static cy_val maxima_of_scale(const fuser *f, cy_val v) {
  const cy_node_info *mul = cy_def_of(f->g, v, CY_OP_mul);
  double unused;
  return cy_maxima_bounded(f->g, mul && cy_value_is_splat(f->g, mul->in[1], &unused) ? mul->in[0] : v);
}

/* Rounding in those that read, and what the scale of an image is made of in all of them. */
static bool decide_rounding(fuser *f, cy_val v) {
  cy_maxima_rounding r;
  cy_val most = maxima_of_scale(f, v);
  if (is_rounded_in_place(f, v, &r)) {
    const cy_val inner[] = {v, r.whole, r.product, r.up};
    for (int i = 0; i < 4; i++)
      put_inside(f, inner[i]);
    return true;
  }
  if (!most || !cy_maxima_are_found(f->g, f->p->options->caps, most))
    return false;
  for (uint32_t i = f->uses.start[v]; i < f->uses.start[v + 1]; i++)
    if (!f->uses.list[i] || class_of(cy_node_of(f->g, f->uses.list[i])) != CY_CLASS_EW)
      return false;
  put_inside(f, v);
  return true;
}

static void decide(fuser *f, cy_node node) {
  cy_graph *g = f->g;
  const cy_node_info *d = cy_node_of(g, node);
  if (f->kernel[node] || f->inside[node])
    return;
  cy_val v = d->nout == 1 ? d->out[0] : 0;
  if (v && class_of(d) == CY_CLASS_EW && decide_rounding(f, v))
    return;
  f->kernel[node] = node;
  if (!v || (!cy_node_op(d)->expression && !is_chosen(f, d)) || f->pinned[v] || cy_value_of(g, v)->data.bytes)
    return;
  cy_node kernel = 0;
  int limit = 1 << 20;
  bool together = true, once = use_count(f, v) == 1;
  for (uint32_t i = f->uses.start[v]; i < f->uses.start[v + 1]; i++) {
    cy_node u = f->uses.list[i];
    if (!u || !user_allows(f, u, v, &limit))
      return;
    together &= f->kernel[u] && (!kernel || kernel == f->kernel[u]) && (once || same_index(f, cy_node_of(g, u), v));
    kernel = f->kernel[u];
  }
  if (!use_count(f, v))
    return;
  if (!together && limit > FREE)
    limit = FREE;
  if (f->cost[v] > limit || (limit <= FREE && f->loads[v] > 1))
    return;
  if (is_pure_view(d) && !view_should(f, d))
    return;
  if (d->op == CY_OP_identity)
    return; /* a change of layout is there to be stored */
  cy_value_of(g, v)->inlined = true;
  f->kernel[node] = together ? kernel : 0;
  cy_pass_count(f->p, "inlined", 1);
}

/* requires: swept   establishes: fused   breaks: - */
int cy_pass_fuse(cy_pass *p) {
  cy_graph *g = p->g;
  uint32_t nv = cy_value_count(g) + 1, nn = cy_node_count(g) + 1;
  fuser f = {.p = p, .g = g, .uses = cy_graph_uses(g, p->scratch)};
  f.kernel = CY_NEW_ARRAY(p->scratch, cy_node, nn);
  f.pinned = CY_NEW_ARRAY(p->scratch, bool, nv);
  f.inside = CY_NEW_ARRAY(p->scratch, bool, nn);
  f.member = CY_NEW_ARRAY(p->scratch, uint32_t, nn);
  f.place = CY_NEW_ARRAY(p->scratch, uint32_t, nn);
  f.cost = CY_NEW_ARRAY(p->scratch, uint16_t, nv);
  f.visits = CY_NEW_ARRAY(p->scratch, uint16_t, nv);
  f.loads = CY_NEW_ARRAY(p->scratch, uint16_t, nv);
  f.operands = CY_NEW_ARRAY(p->scratch, struct operands, nv);
  for (cy_val v = 1; v < nv; v++)
    cy_value_of(g, v)->inlined = false;
  estimate(&f);
  for (cy_block b = 1; b <= cy_block_count(g); b++)
    epilogues(&f, b);
  for (cy_block b = 1; b <= cy_block_count(g); b++)
    for (uint32_t i = cy_block_of(g, b)->nnodes; i-- > 0;)
      decide(&f, cy_block_of(g, b)->nodes[i]);
  uint64_t stored = 0;
  for (cy_node n = 1; n < nn; n++)
    stored += f.kernel[n] == n;
  cy_pass_count(p, "stored", stored);
  return 0;
}
