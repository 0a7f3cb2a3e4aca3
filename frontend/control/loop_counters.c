/* SPDX-License-Identifier: Apache-2.0 */
/* loop_counters.c - what a Loop counts, and how often it runs where that ends it.
 *
 * In:  a Loop's body, not yet imported. Out: carried integers that every iteration changes by the same number, as
 * formulas over the iteration's number; the number of iterations, where a comparison of such numbers is the condition:
 * scripted models and TensorFlow write `while i < n`. Then slices from i to i + 1 have one element, and what is scanned
 * has a known length. Only the nodes that counters and condition are made of are imported, with what is carried as
 * symbols, into a block that nothing uses afterwards; when that fails, nothing is known, and the import of the whole
 * body says why.
 *
 * The condition is taken apart into differences that must be positive. One of a - c * i, c > 0, i the number of the
 * iteration before, allows another iteration while it is. The first condition is the same one iteration earlier, or
 * always true. Where there is more in the condition, as in `while i < n and not done`, this is how often the loop runs
 * at most.
 */
#include "control.h"

#include <string.h>

enum { MAX_NODES = 64, MAX_PARTS = 4, MAX_STEP = 1 << 16 };

typedef struct probe {
  cy_importer *im;
  const cy_onnx_node *n;
  const cy_loop_body *b;
  cy_sym newest;            /* before the probe */
  bool *readable;           /* [inputs of the body] known to the probe as they are in every iteration */
  bool *wanted;             /* [nodes of the body] */
  uint32_t count;           /* of nodes wanted */
  cy_val *params, *results; /* of the body; those of the probe's block, 0: not imported */
  cy_dim iteration;
  cy_dim *carried; /* [inputs of the body] as symbols; 0: not an integer */
} probe;

static const cy_dim *one_integer(cy_importer *im, cy_val v) {
  uint32_t count;
  const cy_dim *e = v ? cy_value_elems(im->g, v, &count) : NULL;
  return e && count == 1 ? e : NULL;
}

/* Marks the nodes that a value is made of. False: there are too many, or something that is carried is among them. */
static bool want(probe *p, const char *name) {
  const Onnx__GraphProto *body = p->b->graph;
  for (size_t i = 0; i < body->n_input; i++)
    if (strcmp(body->input[i]->name ? body->input[i]->name : "", name) == 0)
      return p->readable[i];
  for (size_t i = 0; *name && i < body->n_node; i++) {
    const Onnx__NodeProto *n = body->node[i];
    bool here = false, ok = true;
    for (size_t k = 0; k < n->n_output; k++)
      here = here || strcmp(n->output[k], name) == 0;
    if (!here)
      continue;
    if (p->wanted[i])
      return true;
    if (p->count++ >= MAX_NODES)
      return false;
    p->wanted[i] = true;
    for (size_t k = 0; k < n->n_attribute; k++)
      ok = ok && !n->attribute[k]->g;
    for (size_t k = 0; k < n->n_input; k++)
      ok = ok && want(p, n->input[k]);
    return ok;
  }
  return true; /* of an enclosing graph, or a constant */
}

/* Iteration and condition are scalars, but bodies that declare a list of one get that. */
cy_val cy_loop_param(cy_importer *im, const Onnx__ValueInfoProto *input, cy_val v) {
  const Onnx__TypeProto *t = input->type;
  bool list = t && t->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE && t->tensor_type && t->tensor_type->shape &&
              t->tensor_type->shape->n_dim == 1;
  return list ? cy_build_unsqueeze(im->g, v, 0) : v;
}

/* The body's parameters, those that may be counters as symbols. */
static bool make_params(probe *p, cy_block block) {
  cy_graph *g = p->im->g;
  uint32_t count, kept = 0;
  for (uint32_t k = 0; k < p->b->graph->n_input; k++) {
    cy_val same = k < 2 ? 0 : p->b->unchanged[k - 2], initial = k < 2 || same ? 0 : p->b->initial[kept++];
    cy_type t = k == 0 ? cy_type_make(CY_I64, 0, NULL) : initial ? *cy_onnx_type(p->im, initial) : (cy_type){0};
    if (k == 1) /* there is no iteration otherwise */
      same = cy_build_scalar_int(g, CY_BOOL, 1);
    cy_val v = same ? same : cy_block_add_param(g, block, &t, NULL);
    bool integer = k == 0 || (one_integer(p->im, initial) && t.rank <= 1 && (t.dtype == CY_I32 || t.dtype == CY_I64));
    if (integer)
      p->carried[k] = cy_value_elems_or_read(g, v, &count)[0];
    p->readable[k] = integer || same;
    p->params[k] = k < 2 ? cy_loop_param(p->im, p->b->graph->input[k], v) : v;
    if (!p->params[k])
      return false;
  }
  p->iteration = p->carried[0];
  return true;
}

/* Imports what is wanted of the outputs in `list`. */
static bool import_part(probe *p, const size_t *list, size_t count) {
  Onnx__GraphProto part = *p->b->graph;
  const Onnx__GraphProto *body = p->b->graph;
  cy_val *results = CY_NEW_ARRAY(p->im->arena, cy_val, count + 1);
  part.node = CY_NEW_ARRAY(p->im->arena, Onnx__NodeProto *, body->n_node + 1);
  part.output = CY_NEW_ARRAY(p->im->arena, Onnx__ValueInfoProto *, count + 1);
  part.n_node = 0;
  part.n_output = count;
  for (size_t i = 0; i < body->n_node; i++)
    if (p->wanted[i])
      part.node[part.n_node++] = body->node[i];
  for (size_t i = 0; i < count; i++)
    part.output[i] = body->output[list[i]];
  if (!cy_import_subgraph(p->im, p->n, &part, p->params, (uint32_t)body->n_input, results))
    return false;
  for (size_t i = 0; i < count; i++)
    p->results[list[i]] = results[i];
  return true;
}

/* Which outputs are the condition and may be counters; imports them. */
static bool import_outputs(probe *p) {
  const Onnx__GraphProto *body = p->b->graph;
  size_t *list = CY_NEW_ARRAY(p->im->arena, size_t, body->n_output + 1), count = 0;
  bool *before = CY_NEW_ARRAY(p->im->arena, bool, body->n_node + 1);
  for (size_t k = 0; k < body->n_output && k + 1 < body->n_input; k++) {
    uint32_t nodes = p->count;
    if (k && (!p->carried[k + 1] || !body->output[k]->name))
      continue;
    memcpy(before, p->wanted, sizeof *before * body->n_node);
    if (want(p, body->output[k]->name ? body->output[k]->name : "")) {
      list[count++] = k;
    } else {
      memcpy(p->wanted, before, sizeof *before * body->n_node);
      p->count = nodes;
    }
  }
  return count && import_part(p, list, count);
}

/* ---- counters ---- */

/* What an iteration adds to the carried integer that is input k of the body. */
static bool step_of(probe *p, size_t k, int64_t *out) {
  cy_graph *g = p->im->g;
  const cy_dim *next = p->carried[k] && k > 1 ? one_integer(p->im, p->results[k - 1]) : NULL;
  if (!next || !cy_type_equal(cy_onnx_type(p->im, p->results[k - 1]), cy_onnx_type(p->im, p->params[k])))
    return false;
  return cy_dim_is_const(g, cy_dim_sub(g, next[0], p->carried[k]), out) && *out >= -MAX_STEP && *out <= MAX_STEP;
}

static void find_counters(probe *p, cy_counter *out) {
  uint32_t kept = 0;
  for (size_t k = 2; k < p->b->graph->n_input; k++) {
    if (p->b->unchanged[k - 2])
      continue;
    cy_counter *c = &out[kept];
    if (step_of(p, k, &c->step))
      c->start = one_integer(p->im, p->b->initial[kept])[0];
    kept++;
  }
}

cy_dim cy_counter_at(cy_importer *im, const cy_counter *c, cy_dim iteration) {
  return cy_dim_add(im->g, c->start, cy_dim_muli(im->g, iteration, c->step));
}

/* ---- the condition ---- */

typedef struct parts { /* dims that all must be positive */
  cy_dim d[MAX_PARTS];
  uint32_t n;
  bool more; /* .. but not only they */
} parts;

/* a < b and the like: what must be positive. */
static void take_comparison(cy_importer *im, const cy_node_info *n, parts *out) {
  const cy_dim *a = one_integer(im, n->in[0]), *b = one_integer(im, n->in[1]);
  bool less = n->op == CY_OP_lt || n->op == CY_OP_le, equal = n->op == CY_OP_le || n->op == CY_OP_ge;
  if (!a || !b || out->n == MAX_PARTS) {
    out->more = true;
    return;
  }
  cy_dim d = less ? cy_dim_sub(im->g, b[0], a[0]) : cy_dim_sub(im->g, a[0], b[0]);
  out->d[out->n++] = cy_dim_addi(im->g, d, equal);
}

static void take_apart(cy_importer *im, cy_val v, parts *out) {
  const cy_dim *known = one_integer(im, v);
  int64_t c;
  if (known && cy_dim_is_const(im->g, known[0], &c) && c)
    return;
  const cy_node_info *n = cy_value_of(im->g, v)->node ? cy_node_of(im->g, cy_value_of(im->g, v)->node) : NULL;
  bool truth = n && n->nin && n->in[0] && cy_onnx_type(im, n->in[0])->dtype == CY_BOOL;
  switch (n ? (cy_op)n->op : CY_OP_dims) {
  case CY_OP_cast:
  case CY_OP_reshape:
  case CY_OP_identity:
  case CY_OP_and:
    out->more = out->more || !truth;
    for (uint32_t k = 0; k < n->nin && truth; k++)
      take_apart(im, n->in[k], out);
    return;
  case CY_OP_lt:
  case CY_OP_le:
  case CY_OP_gt:
  case CY_OP_ge:
    take_comparison(im, n, out);
    return;
  default:
    out->more = true;
    return;
  }
}

/* d with counters as what they are in an iteration: begin - c * (turn + 1). */
static bool over_iterations(probe *p, const cy_counter *counters, cy_dim d, cy_dim *out_begin, int64_t *out_c) {
  cy_graph *g = p->im->g;
  const cy_term *term;
  uint32_t kept = 0;
  for (size_t k = 2; k < p->b->graph->n_input; k++) {
    if (p->b->unchanged[k - 2])
      continue;
    const cy_counter *c = &counters[kept++];
    if (c->start && cy_dim_terms(g, p->carried[k], &term) == 1)
      d = cy_dim_subst(g, d, cy_dim_atom(g, term->atoms[0])->sym, cy_counter_at(p->im, c, p->iteration));
  }
  if (cy_dim_terms(g, p->iteration, &term) != 1)
    return false;
  cy_sym iteration = cy_dim_atom(g, term->atoms[0])->sym;
  cy_dim at_first = cy_dim_subst(g, d, iteration, cy_dim_const(g, 0));
  cy_dim change = cy_dim_sub(g, at_first, cy_dim_subst(g, d, iteration, cy_dim_const(g, 1)));
  if (!cy_dim_is_const(g, change, out_c) || *out_c < 1 || cy_dim_is_inner(p->im, at_first, p->newest) ||
      d != cy_dim_sub(g, at_first, cy_dim_muli(g, p->iteration, *out_c)))
    return false;
  *out_begin = cy_dim_addi(g, at_first, *out_c);
  return true;
}

static bool among(const parts *list, cy_dim d) {
  for (uint32_t i = 0; i < list->n; i++)
    if (list->d[i] == d)
      return true;
  return false;
}

/* How often the body runs by its condition, at most; 0: that is not known. */
static cy_dim count_iterations(probe *p, const cy_counter *counters, bool *out_exactly) {
  cy_graph *g = p->im->g;
  cy_dim iterations = 0, zero = cy_dim_const(g, 0), begin;
  const cy_dim *known = one_integer(p->im, p->b->cond);
  bool always = !p->b->cond || (known && cy_dim_is(g, known[0], 1));
  parts first = {.n = 0}, next = {.n = 0}, begins = {.n = 0};
  int64_t c;
  if (!p->results[0])
    return 0;
  take_apart(p->im, p->results[0], &next);
  if (!always)
    take_apart(p->im, p->b->cond, &first);
  *out_exactly = !first.more && !next.more;
  for (uint32_t i = 0; i < next.n; i++) {
    if (!over_iterations(p, counters, next.d[i], &begin, &c) ||
        !(always || among(&first, begin) || cy_dim_lt(g, zero, begin))) {
      *out_exactly = false;
      continue;
    }
    begins.d[begins.n++] = begin;
    cy_dim allowed = cy_dim_cdiv(g, begin, cy_dim_const(g, c));
    iterations = iterations ? cy_dim_min(g, iterations, allowed) : allowed;
  }
  for (uint32_t i = 0; i < first.n; i++)
    *out_exactly = *out_exactly && among(&begins, first.d[i]);
  return iterations ? cy_dim_max(g, iterations, always ? cy_dim_const(g, 1) : zero) : 0;
}

cy_dim cy_count_loop(cy_importer *im, const cy_onnx_node *n, const cy_loop_body *b, cy_counter *out_counters,
                     bool *out_exactly) {
  size_t inputs = b->graph->n_input, mark = cy_diag_count(im->diag);
  uint32_t malformed = im->malformed;
  uint64_t skipped = im->skipped;
  probe p = {.im = im,
             .n = n,
             .b = b,
             .newest = cy_sym_count(im->g),
             .readable = CY_NEW_ARRAY(im->arena, bool, inputs),
             .wanted = CY_NEW_ARRAY(im->arena, bool, b->graph->n_node + 1),
             .params = CY_NEW_ARRAY(im->arena, cy_val, inputs),
             .results = CY_NEW_ARRAY(im->arena, cy_val, b->graph->n_output + 1),
             .carried = CY_NEW_ARRAY(im->arena, cy_dim, inputs)};
  cy_block here = cy_build_block(im->g), block = cy_block_create(im->g, here);
  cy_build_in(im->g, block);
  bool ok = make_params(&p, block) && import_outputs(&p);
  cy_build_in(im->g, here);
  cy_onnx_at(im, n);
  cy_diag_forget(im->diag, mark);
  im->malformed = malformed;
  im->skipped = skipped;
  *out_exactly = false;
  if (!ok)
    return 0;
  find_counters(&p, out_counters);
  return count_iterations(&p, out_counters, out_exactly);
}
