/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_control.c - Loop, Scan and SequenceMap; If is in onnx_branch.c.
 *
 * In:  nodes with subgraphs. Out: `loop` nodes that own blocks, which use values of the enclosing graph directly, as ONNX
 * subgraphs do. A loop-carried value may change its shape from one iteration to the next. The body is imported with the
 * shapes of the initial values first; dims that come out different become symbols and the body is imported again, until
 * nothing changes. A loop of few known iterations that fills a sequence becomes one body behind the other, so that the
 * elements are known; a sequence that a longer one fills with tensors of one shape is a scanned output. A loop that a
 * counter ends is one of a known number of iterations (loop_counters.c). What a Loop
 * carries unchanged, as loops of TensorFlow carry their weights, is no carried value but one of the enclosing graph. Scan
 * is a loop whose body takes slices of the scanned inputs.
 */
#include "control.h"

#include <string.h>

#define X (n->in[0])

/* What Loop and Scan have in common. `fill` imports the body: params are iteration, condition, carried..; results
 * condition, carried, scans. */
typedef struct loop_plan {
  const cy_onnx_node *n;
  const Onnx__GraphProto *body;
  cy_val trips, cond; /* 0: no limit; always true */
  uint32_t ncarried, nscans;
  cy_val *initial;
  const char **names, **leave; /* what a Loop's body calls its carried values, and their results */
  const cy_val *unchanged;     /* Loop only: [the node's carried values] the value at all times, 0: carried */
  cy_counter *counters;        /* Loop only: [carried] */
  cy_dim iterations;           /* Loop only: it has no more; 0: not known */
  bool counted;                /* Loop only: `trips` alone says when it ends */
  bool (*fill)(cy_importer *im, const struct loop_plan *p, const cy_val *params, cy_val *results);
  const cy_loop *built;  /* by another importer */
  const cy_val *scanned; /* Scan only */
  uint32_t nscanned;
  const int64_t *axes, *backward;
  /* made by build_body */
  cy_block block;
  cy_val *params, *results;
  uint32_t syms_before;
  cy_type *types;       /* of the carried parameters */
  cy_content *contents; /* [carried] 0: as the initial value has it */
  bool *boxed;          /* [carried] enters as an optional, leaves the body as its value */
  bool *varying;        /* [carried * CY_MAX_RANK] */
} loop_plan;

/* memcpy() does not take the null pointers of empty lists. */
static void copy_values(cy_val *to, const cy_val *from, uint32_t n) {
  for (uint32_t k = 0; k < n; k++)
    to[k] = from[k];
}

/* No iteration's number is as large as `iterations`. */
static void bound_iteration(cy_importer *im, cy_sym_info *info, cy_dim iterations) {
  int64_t count;
  if (!cy_dim_is_const(im->g, iterations, &count))
    info->upper = cy_dim_addi(im->g, iterations, -1);
  else if (count <= info->max)
    info->max = count > 0 ? count - 1 : 0;
}

/* The iteration as a symbol with its bounds: slices from i to i + 1 have one element then. */
static void know_iteration(cy_importer *im, const loop_plan *p) {
  uint32_t count;
  cy_value_elems_or_read(im->g, p->params[0], &count);
  cy_sym_info *info = cy_sym_of(im->g, cy_sym_count(im->g));
  const cy_dim *limit = p->trips ? cy_value_elems(im->g, p->trips, &count) : NULL;
  info->min = 0;
  if (limit)
    bound_iteration(im, info, limit[0]);
  if (p->iterations)
    bound_iteration(im, info, p->iterations);
}

/* What counters are in an iteration. */
static void know_counters(cy_importer *im, const loop_plan *p) {
  uint32_t count;
  const cy_dim *iteration = cy_value_elems(im->g, p->params[0], &count);
  for (uint32_t k = 0; k < p->ncarried && p->counters; k++) {
    if (!p->counters[k].start)
      continue;
    cy_dim *e = CY_NEW_ARRAY(cy_graph_arena(im->g), cy_dim, 1);
    e[0] = cy_counter_at(im, &p->counters[k], iteration[0]);
    cy_value_of(im->g, p->params[2 + k])->elems = e;
  }
}

static bool build_body(cy_importer *im, loop_plan *p) {
  cy_block here = cy_build_block(im->g);
  cy_type iteration = cy_type_make(CY_I64, 0, NULL), condition = cy_type_make(CY_BOOL, 0, NULL);
  p->syms_before = cy_sym_count(im->g);
  p->block = cy_block_create(im->g, here);
  p->params[0] = cy_block_add_param(im->g, p->block, &iteration, NULL);
  p->params[1] = cy_block_add_param(im->g, p->block, &condition, NULL);
  know_iteration(im, p);
  for (uint32_t k = 0; k < p->ncarried; k++) {
    cy_type t = *cy_onnx_type(im, p->initial[k]);
    if (p->contents[k])
      t.content = p->contents[k];
    cy_sym syms[CY_MAX_RANK] = {0};
    for (uint32_t i = 0; i < t.rank; i++) {
      if (!p->varying[k * CY_MAX_RANK + i])
        continue;
      syms[i] = cy_sym_new(im->g, NULL, CY_SYM_COUNT);
      cy_sym_of(im->g, syms[i])->min = 0;
      t.dim[i] = cy_dim_sym(im->g, syms[i]);
    }
    p->types[k] = t;
    p->params[2 + k] = cy_block_add_param(im->g, p->block, &t, NULL);
    for (uint32_t i = 0; i < t.rank; i++)
      if (syms[i])
        cy_onnx_bind_count(im, syms[i], p->params[2 + k], i);
  }
  know_counters(im, p);
  cy_build_in(im->g, p->block);
  bool ok = p->fill(im, p, p->params, p->results);
  for (uint32_t k = 0; k < p->ncarried && ok; k++) {
    cy_val *result = &p->results[1 + k];
    *result = p->boxed[k] ? cy_onnx_box(im, *result, p->types[k].content) : cy_with_rank(im, *result, p->types[k].rank);
    ok = *result != 0;
  }
  cy_build_in(im->g, here);
  cy_onnx_at(im, p->n);
  return ok;
}

/* The number that the node gives carried value k, for messages. */
static uint32_t number_of(const loop_plan *p, uint32_t k) {
  for (uint32_t i = 0; p->unchanged && i <= k; i++)
    k += p->unchanged[i] != 0;
  return k;
}

/* Sequences and optional values: what fits the parameter and the body's result. False: there is nothing. */
static bool settle_content(cy_importer *im, loop_plan *p, uint32_t k, bool *out_same) {
  cy_content a = p->types[k].content, b = cy_onnx_type(im, p->results[1 + k])->content, both;
  if (p->boxed[k])
    return true;
  if (!a || !b || !cy_content_join(im->g, a, b, &both)) {
    cy_content held = a && cy_content_of(im->g, a)->kind == CY_CONTENT_OPTIONAL ? cy_content_of(im->g, a)->item : 0;
    p->boxed[k] = held && b && cy_content_join(im->g, held, b, &both);
    if (!p->boxed[k])
      return false;
    cy_content_info info = {.kind = CY_CONTENT_OPTIONAL, .item = both};
    both = cy_content_add(im->g, &info);
    *out_same = false;
  }
  *out_same &= both == a;
  p->contents[k] = both;
  return true;
}

/* How often a graph, graphs within it included, reads a value. */
static uint32_t count_reads(const Onnx__GraphProto *graph, const char *name) {
  uint32_t count = 0;
  for (size_t i = 0; i < graph->n_node; i++) {
    const Onnx__NodeProto *n = graph->node[i];
    for (size_t k = 0; k < n->n_input; k++)
      count += strcmp(n->input[k], name) == 0;
    for (size_t k = 0; k < n->n_attribute; k++)
      count += n->attribute[k]->g ? count_reads(n->attribute[k]->g, name) : 0;
  }
  for (size_t k = 0; k < graph->n_output; k++)
    count += graph->output[k]->name && strcmp(graph->output[k]->name, name) == 0;
  return count;
}

/* Exporters carry values that the body makes anew, and let them begin as a number of any rank. Where the body does not
 * read value k, zeros of the type that it leaves with stand in for what it begins with. */
static bool stand_in(cy_importer *im, loop_plan *p, uint32_t k, const cy_type *leaves) {
  cy_type t = *leaves;
  if (!p->names || t.content || t.dtype != p->types[k].dtype || count_reads(p->body, p->names[k]))
    return false;
  cy_location where = cy_importer_at(im, p->n);
  cy_diag_add(
      im->diag, CY_WARNING, &where,
      "loop-carried value %u enters the body as %s and leaves it as %s: as the body does not read it, it starts as "
      "zeros of the latter, which is the result of no iterations",
      number_of(p, k), cy_type_text(im->g, &p->types[k]), cy_type_text(im->g, &t));
  cy_outer_dims(im, &t, p->syms_before);
  p->initial[k] = cy_onnx_fill(im, cy_build_scalar_int(im->g, t.dtype, 0), t.dim, t.rank);
  return p->initial[k] != 0;
}

/* True when the body's carried results have the parameters' types; else marks what varies. */
static bool settled(cy_importer *im, loop_plan *p, bool *out_error) {
  bool same = true;
  for (uint32_t k = 0; k < p->ncarried; k++) {
    const cy_type *a = &p->types[k], *b = cy_onnx_type(im, p->results[1 + k]);
    bool fits = a->dtype == b->dtype && a->rank == b->rank;
    if (fits && a->dtype == CY_REF)
      fits = settle_content(im, p, k, &same);
    if (!fits && stand_in(im, p, k, b)) {
      same = false;
      continue;
    }
    if (!fits) {
      cy_build_error(im->g, NULL,
                     "loop-carried value %u enters the body as %s and leaves it as %s: type and rank must not change",
                     number_of(p, k), cy_type_text(im->g, a), cy_type_text(im->g, b));
      *out_error = true;
      return false;
    }
    for (uint32_t i = 0; i < a->rank; i++) {
      if (a->dim[i] == b->dim[i] || p->varying[k * CY_MAX_RANK + i])
        continue;
      p->varying[k * CY_MAX_RANK + i] = true;
      same = false;
    }
  }
  return same;
}

/* The number of iterations as a dim, where nothing but the limit ends the loop; else 0. */
static cy_dim known_trips(cy_importer *im, const loop_plan *p) {
  uint32_t count;
  const cy_dim *e;
  if (!p->trips || !(e = cy_value_elems(im->g, p->trips, &count)))
    return 0;
  cy_dim trips = cy_dim_max(im->g, e[0], cy_dim_const(im->g, 0));
  const cy_dim *start = p->cond ? cy_value_elems(im->g, p->cond, &count) : NULL;
  if (p->cond && !(start && cy_dim_is(im->g, start[0], 1)))
    return 0;
  const cy_dim *next = cy_value_elems(im->g, p->results[0], &count);
  return p->results[0] == p->params[1] || (next && cy_dim_is(im->g, next[0], 1)) ? trips : 0;
}

static cy_val as_scalar(cy_importer *im, cy_val v) {
  return v && cy_onnx_type(im, v)->rank ? cy_build_reshape(im->g, v, NULL, 0) : v;
}

/* Types of the outputs: carried, then scans with the iterations in front. */
static bool output_types(cy_importer *im, const loop_plan *p, cy_new_syms *syms, cy_type *types) {
  cy_dim trips = known_trips(im, p);
  for (uint32_t k = 0; k < p->ncarried + p->nscans; k++) {
    bool scan = k >= p->ncarried;
    cy_type t = *cy_onnx_type(im, p->results[1 + k]), *out = &types[k];
    if (scan && t.content)
      return cy_build_error(im->g, NULL, "scan output %u is %s, expected a tensor", k - p->ncarried,
                            cy_type_text(im->g, &t));
    if (!scan && t.content)
      t.content = p->types[k].content;
    if (t.rank + scan > CY_MAX_RANK)
      return cy_build_error(im->g, NULL, "scan output %u has too many dimensions: %s", k - p->ncarried,
                            cy_type_text(im->g, &t));
    *out = t;
    out->rank = (uint8_t)(t.rank + scan);
    if (scan)
      out->dim[0] = trips ? trips : cy_new_syms_add(im, syms, k, 0);
    for (uint32_t i = 0; i < t.rank; i++) {
      bool local = cy_dim_is_inner(im, t.dim[i], p->syms_before) || (!scan && p->varying[k * CY_MAX_RANK + i]);
      out->dim[i + scan] = local ? cy_new_syms_add(im, syms, k, i + scan) : t.dim[i];
    }
  }
  return true;
}

/* Imports the body until its types are settled. */
static bool settle_loop(cy_importer *im, loop_plan *p) {
  uint32_t nout = p->ncarried + p->nscans;
  p->types = CY_NEW_ARRAY(im->arena, cy_type, p->ncarried + 1);
  p->varying = CY_NEW_ARRAY(im->arena, bool, (p->ncarried + 1) * CY_MAX_RANK);
  p->contents = CY_NEW_ARRAY(im->arena, cy_content, p->ncarried + 1);
  p->boxed = CY_NEW_ARRAY(im->arena, bool, p->ncarried + 1);
  p->params = CY_NEW_ARRAY(im->arena, cy_val, p->ncarried + 2);
  p->results = CY_NEW_ARRAY(im->arena, cy_val, nout + 1);
  bool error = false;
  do {
    if (!build_body(im, p))
      return false;
  } while (!settled(im, p, &error) && !error);
  return !error;
}

/* A settled loop's node. Out: the carried values at the end, then the stacked scans. */
static bool finish_loop(cy_importer *im, const loop_plan *p, cy_val *out) {
  uint32_t nout = p->ncarried + p->nscans;
  cy_block_set_results(im->g, p->block, p->results, nout + 1);
  cy_type *types = CY_NEW_ARRAY(im->arena, cy_type, nout + 1);
  cy_new_syms syms = cy_new_syms_make(im, nout);
  if (!output_types(im, p, &syms, types))
    return false;
  cy_val *in = CY_NEW_ARRAY(im->arena, cy_val, p->ncarried + 2);
  in[0] = p->trips;
  in[1] = p->cond;
  copy_values(in + 2, p->initial, p->ncarried);
  cy_attr a = cy_attr_block(CY_ATTR_body, p->block);
  cy_val first = cy_build(im->g, CY_OP_loop, in, p->ncarried + 2, &a, 1, types, nout);
  if (!first)
    return nout == 0;
  cy_new_syms_bind(im, &syms, first);
  for (uint32_t k = 0; k < nout; k++) {
    out[k] = cy_build_output(im->g, first, k);
    if (k < p->ncarried && p->boxed[k] && !(out[k] = cy_onnx_unbox(im, out[k])))
      return false;
  }
  return true;
}

static bool build_loop(cy_importer *im, loop_plan *p, cy_val *out) {
  return settle_loop(im, p) && finish_loop(im, p, out);
}

static bool fill_built(cy_importer *im, const loop_plan *p, const cy_val *params, cy_val *results) {
  return p->built->fill(im, p->built->context, params + 2, results);
}

bool cy_onnx_loop(cy_importer *im, const cy_onnx_node *n, const cy_loop *loop, cy_val *out) {
  loop_plan p = {.n = n,
                 .trips = loop->trips,
                 .cond = loop->cond,
                 .ncarried = loop->ncarried,
                 .nscans = loop->nscans,
                 .initial = loop->initial,
                 .fill = fill_built,
                 .built = loop};
  return build_loop(im, &p, out);
}

static bool fill_loop(cy_importer *im, const loop_plan *p, const cy_val *params, cy_val *results) {
  uint32_t nin = (uint32_t)p->body->n_input, nout = (uint32_t)p->body->n_output;
  cy_val *in = CY_NEW_ARRAY(im->arena, cy_val, nin), *out = CY_NEW_ARRAY(im->arena, cy_val, nout);
  for (int i = 0; i < 2; i++)
    if (!(in[i] = cy_loop_param(im, p->body->input[i], params[i])))
      return false;
  for (uint32_t k = 2, kept = 2; k < nin; k++)
    in[k] = p->unchanged[k - 2] ? p->unchanged[k - 2] : params[kept++];
  if (!cy_import_subgraph(im, p->n, p->body, in, nin, out))
    return false;
  cy_onnx_at(im, p->n);
  *results = p->counted ? cy_build_scalar_int(im->g, CY_BOOL, 1) : as_scalar(im, out[0]);
  if (!*results++)
    return false;
  for (uint32_t k = 1; k < nout; k++)
    if (k + 1 >= nin || !p->unchanged[k - 1])
      *results++ = out[k];
  return true;
}

/* Is what leaves a body the parameter `enters`, perhaps by another name? */
static bool leaves_unchanged(const Onnx__GraphProto *body, const char *enters, const char *leaves) {
  for (size_t i = body->n_node; i-- && strcmp(enters, leaves) != 0;) {
    const Onnx__NodeProto *n = body->node[i];
    if (n->n_input == 1 && n->n_output == 1 && strcmp(n->output[0], leaves) == 0 &&
        strcmp(n->op_type, "Identity") == 0 && !*cy_onnx_domain(n->domain))
      leaves = n->input[0];
  }
  return *enters && strcmp(enters, leaves) == 0;
}

/* Finds what the node carries unchanged: constants among them are constants in the body then. The rest is carried. */
static bool find_carried(cy_importer *im, loop_plan *p) {
  uint32_t given = p->ncarried;
  cy_val *unchanged = CY_NEW_ARRAY(im->arena, cy_val, given + 1);
  p->unchanged = unchanged;
  p->initial = CY_NEW_ARRAY(im->arena, cy_val, given + 1);
  p->names = CY_NEW_ARRAY(im->arena, const char *, given + 1);
  p->leave = CY_NEW_ARRAY(im->arena, const char *, given + 1);
  p->ncarried = 0;
  for (uint32_t k = 0; k < given; k++) {
    const char *enters = p->body->input[2 + k]->name, *leaves = p->body->output[1 + k]->name;
    cy_val initial = p->n->in[2 + k];
    if (!initial)
      return cy_build_error(im->g, NULL, "loop-carried input %u is missing", k + 2);
    if (enters && leaves && leaves_unchanged(p->body, enters, leaves)) {
      unchanged[k] = initial;
      continue;
    }
    p->initial[p->ncarried] = initial;
    p->names[p->ncarried] = enters ? enters : "";
    p->leave[p->ncarried++] = leaves ? leaves : "";
  }
  return true;
}

/* Finds counters; where they end the loop, it becomes one of a known number of iterations. */
static bool find_counters(cy_importer *im, loop_plan *p) {
  cy_loop_body b = {p->body, p->cond, p->unchanged, p->initial};
  p->counters = CY_NEW_ARRAY(im->arena, cy_counter, p->ncarried + 1);
  p->iterations = cy_count_loop(im, p->n, &b, p->counters, &p->counted);
  p->counted = p->counted && p->iterations;
  if (!p->counted)
    return true;
  cy_val limit = cy_build_dim_scalar(im->g, p->iterations);
  p->trips = p->trips ? MIN(p->trips, limit) : limit;
  p->cond = 0;
  return p->trips != 0;
}

/* How often a loop runs that is worth writing out; else -1. */
static int64_t few_trips(cy_importer *im, const loop_plan *p) {
  enum { LIMIT = 16 };
  uint32_t count;
  int64_t trips;
  bool fills = false;
  const cy_dim *limit = p->trips ? cy_value_elems(im->g, p->trips, &count) : NULL;
  const cy_dim *start = p->cond ? cy_value_elems(im->g, p->cond, &count) : NULL;
  for (uint32_t k = 0; k < p->ncarried; k++)
    fills = fills || cy_onnx_is_sequence(im, p->initial[k]);
  bool few = fills && !p->nscans && limit && cy_dim_is_const(im->g, limit[0], &trips) && trips <= LIMIT &&
             (!p->cond || (start && cy_dim_is(im->g, start[0], 1)));
  return !few ? -1 : trips > 0 ? trips : 0;
}

/* One body behind the other; *out_done: whether each is sure to be followed by the next. */
static bool unroll(cy_importer *im, const loop_plan *p, int64_t trips, cy_val *out, bool *out_done) {
  cy_val *params = CY_NEW_ARRAY(im->arena, cy_val, 2 + p->ncarried);
  cy_val *results = CY_NEW_ARRAY(im->arena, cy_val, 1 + p->ncarried);
  params[1] = cy_build_scalar_int(im->g, CY_BOOL, 1);
  copy_values(params + 2, p->initial, p->ncarried);
  *out_done = false;
  for (int64_t i = 0; i < trips; i++) {
    uint32_t count;
    params[0] = cy_build_scalar_int(im->g, CY_I64, i);
    if (!params[0] || !params[1] || !fill_loop(im, p, params, results))
      return false;
    const cy_dim *next = cy_value_elems(im->g, results[0], &count);
    if (!next || !cy_dim_is(im->g, next[0], 1))
      return true;
    copy_values(params + 2, results + 1, p->ncarried);
  }
  copy_values(out, params + 2, p->ncarried);
  *out_done = true;
  return true;
}

/* ---- sequences that a loop fills ---- */

/* A loop that puts one tensor behind a sequence in each iteration, and does nothing else with it, as a loop that scans
 * these tensors instead. */
typedef struct collecting {
  loop_plan scans; /* first: what is handed to collect() */
  const loop_plan *loop;
  bool *collected; /* [carried values of the loop] */
} collecting;

/* Does the body only add an element at the end of carried value k, which is empty at first? */
static bool only_appends(cy_importer *im, const loop_plan *p, uint32_t k) {
  const char *enters = p->names[k], *leaves = p->leave[k];
  uint32_t count;
  if (!cy_onnx_known_sequence(im, p->initial[k], &count) || count || count_reads(p->body, enters) != 1 ||
      count_reads(p->body, leaves) != 1)
    return false;
  for (size_t i = 0; i < p->body->n_node; i++) {
    const Onnx__NodeProto *n = p->body->node[i];
    bool at_end = n->n_input == 2 || (n->n_input == 3 && !*n->input[2]);
    if (at_end && n->n_output == 1 && strcmp(n->input[0], enters) == 0 && strcmp(n->output[0], leaves) == 0)
      return strcmp(n->op_type, "SequenceInsert") == 0 && !*cy_onnx_domain(n->domain);
  }
  return false;
}

/* The body of the scanning loop: that of the other one, on sequences that are empty in each iteration, has sequences of
 * one. */
static bool collect(cy_importer *im, const loop_plan *scans, const cy_val *params, cy_val *results) {
  const collecting *c = (const collecting *)scans;
  const loop_plan *p = c->loop;
  cy_val *in = CY_NEW_ARRAY(im->arena, cy_val, 2 + p->ncarried);
  cy_val *out = CY_NEW_ARRAY(im->arena, cy_val, 1 + p->ncarried + p->nscans), *scan = results + 1 + scans->ncarried;
  uint32_t count;
  memcpy(in, params, 2 * sizeof *params);
  for (uint32_t k = 0, kept = 2; k < p->ncarried; k++)
    if (!(in[2 + k] = c->collected[k] ? cy_onnx_make_sequence(im, NULL, 0, cy_onnx_type(im, p->initial[k])->content)
                                      : params[kept++]))
      return false;
  if (!p->fill(im, p, in, out))
    return false;
  *results++ = *out++;
  for (uint32_t k = 0; k < p->ncarried; k++) {
    if (c->collected[k])
      *scan++ = cy_onnx_known_sequence(im, out[k], &count)[0];
    else
      *results++ = out[k];
  }
  copy_values(scan, out + p->ncarried, p->nscans);
  return true;
}

/* Have all elements of the sequences the same shape? Dims known in the body only may differ from one iteration to the
 * next. */
static bool same_shapes(cy_importer *im, const collecting *c) {
  const loop_plan *p = &c->scans;
  for (uint32_t k = 0; k < p->nscans - c->loop->nscans; k++) {
    cy_type t = *cy_onnx_type(im, p->results[1 + p->ncarried + k]);
    if (t.content || t.rank == CY_MAX_RANK)
      return false;
    for (int i = 0; i < t.rank; i++)
      if (cy_dim_is_inner(im, t.dim[i], p->syms_before))
        return false;
  }
  return true;
}

/* Builds the scanning loop, if there is one to build (*out_done): its scans, cut up again, are the sequences. What reads
 * these looks through the cuts. */
static bool collect_loop(cy_importer *im, const loop_plan *p, cy_val *values, bool *out_done) {
  collecting c = {.scans = *p, .loop = p, .collected = CY_NEW_ARRAY(im->arena, bool, p->ncarried + 1)};
  cy_val *out = CY_NEW_ARRAY(im->arena, cy_val, p->ncarried + p->nscans + 1);
  uint32_t count = 0;
  c.scans.initial = CY_NEW_ARRAY(im->arena, cy_val, p->ncarried + 1);
  c.scans.names = CY_NEW_ARRAY(im->arena, const char *, p->ncarried + 1);
  c.scans.counters = CY_NEW_ARRAY(im->arena, cy_counter, p->ncarried + 1);
  for (uint32_t k = 0; k < p->ncarried; k++) {
    c.collected[k] = only_appends(im, p, k);
    c.scans.initial[k - count] = p->initial[k];
    c.scans.names[k - count] = p->names[k];
    c.scans.counters[k - count] = p->counters[k];
    count += c.collected[k];
  }
  c.scans.ncarried -= count;
  c.scans.nscans += count;
  c.scans.fill = collect;
  if (!count)
    return true;
  if (!settle_loop(im, &c.scans))
    return false;
  if (!same_shapes(im, &c))
    return true;
  if (!finish_loop(im, &c.scans, out))
    return false;
  const cy_val *scan = out + c.scans.ncarried;
  for (uint32_t k = 0; k < p->ncarried; k++)
    if (!(values[k] = c.collected[k] ? cy_onnx_split_sequence(im, *scan++) : *out++))
      return false;
  copy_values(values + p->ncarried, scan, p->nscans);
  *out_done = true;
  return true;
}

/* Leaves out the scans of a Loop that nobody uses: what they hold need not fit together. */
static void drop_scans(cy_importer *im, loop_plan *p) {
  Onnx__GraphProto *part = cy_arena_copy(im->arena, p->body, sizeof *p->body);
  uint32_t fixed = 1 + p->ncarried, scans = 0;
  part->output = cy_arena_copy(im->arena, p->body->output, sizeof *p->body->output * p->body->n_output);
  for (uint32_t k = 0; k < p->nscans; k++)
    if (cy_onnx_wants(p->n, p->ncarried + k))
      part->output[fixed + scans++] = p->body->output[fixed + k];
  part->n_output = fixed + scans;
  p->body = part;
  p->nscans = scans;
}

IMPORT(loop) {
  loop_plan p = {
      .n = n, .body = cy_onnx_graph(im, n, "body"), .fill = fill_loop, .ncarried = n->nin > 2 ? n->nin - 2 : 0};
  if (!p.body)
    return false;
  if (p.body->n_input != 2 + p.ncarried || p.body->n_output != 1 + n->nout || n->nout < p.ncarried)
    return cy_build_error(im->g, "attribute 'body'",
                          "a body for %u carried values and %u outputs has %u inputs and %u outputs, found %zu and %zu",
                          p.ncarried, n->nout, 2 + p.ncarried, 1 + n->nout, p.body->n_input, p.body->n_output);
  uint32_t given = p.ncarried;
  p.nscans = n->nout - given;
  drop_scans(im, &p);
  p.trips = as_scalar(im, n->in[0]);
  p.cond = as_scalar(im, n->in[1]);
  if (!find_carried(im, &p) || !find_counters(im, &p))
    return false;
  cy_val *out = CY_NEW_ARRAY(im->arena, cy_val, p.ncarried + p.nscans + 1);
  const cy_requirement *unused;
  uint32_t required = cy_graph_requirements(im->g, &unused);
  int64_t trips = few_trips(im, &p);
  bool done = false;
  if (trips >= 0 && !unroll(im, &p, trips, out, &done))
    return false;
  if (!done)
    cy_graph_requirements_cut(im->g, required);
  if (!done && (!collect_loop(im, &p, out, &done) || (!done && !build_loop(im, &p, out))))
    return false;
  for (uint32_t k = 0; k < n->nout; k++)
    if (k < given || cy_onnx_wants(n, k))
      n->out[k] = k < given && p.unchanged[k] ? p.unchanged[k] : *out++;
  return true;
}

/* ---- Scan ---- */

static bool fill_scan(cy_importer *im, const loop_plan *p, const cy_val *params, cy_val *results) {
  cy_val *in = CY_NEW_ARRAY(im->arena, cy_val, p->ncarried + p->nscanned + 1);
  copy_values(in, params + 2, p->ncarried);
  for (uint32_t k = 0; k < p->nscanned; k++) {
    cy_val at = params[0];
    cy_dim last = cy_dim_addi(im->g, cy_onnx_type(im, p->scanned[k])->dim[p->axes[k]], -1);
    if (p->backward[k])
      at = SUB(cy_build_dim_scalar(im->g, last), at);
    if (!(in[p->ncarried + k] = cy_build_gather(im->g, p->scanned[k], at, (int)p->axes[k])))
      return false;
  }
  results[0] = cy_build_scalar_int(im->g, CY_BOOL, 1);
  return results[0] && cy_import_subgraph(im, p->n, p->body, in, p->ncarried + p->nscanned, results + 1);
}

/* A list attribute with one element per value; absent: zeros. Axes are made positive for tensors of rank ranks[k]. */
static const int64_t *scan_list(cy_importer *im, const cy_onnx_node *n, const char *name, uint32_t count,
                                const cy_val *ranks, int add) {
  uint32_t found;
  const int64_t *v = cy_onnx_ints(im, n, name, &found);
  int64_t *out = CY_NEW_ARRAY(im->arena, int64_t, count + 1);
  if (v && found != count) {
    cy_build_error(im->g, cy_arena_printf(im->arena, "attribute '%s'", name), "expected %u numbers, found %u", count,
                   found);
    return NULL;
  }
  for (uint32_t k = 0; k < count; k++) {
    int axis = 0;
    out[k] = v ? v[k] : 0;
    if (ranks && (!ranks[k] || !cy_onnx_axis(im, out[k], cy_onnx_type(im, ranks[k])->rank + add, &axis)))
      return NULL;
    out[k] = ranks ? axis : out[k];
  }
  return out;
}

static cy_val reversed(cy_importer *im, cy_val x) {
  const cy_type t = *cy_onnx_type(im, x);
  cy_dim starts[CY_MAX_RANK];
  int64_t steps[CY_MAX_RANK];
  for (int i = 0; i < t.rank; i++) {
    starts[i] = i ? cy_dim_const(im->g, 0) : cy_dim_addi(im->g, t.dim[0], -1);
    steps[i] = i ? 1 : -1;
  }
  return cy_build_slice(im->g, x, starts, steps, t.dim);
}

/* One Scan, as since opset 9: `in` are the initial values, then the scanned ones; all outputs to `out`. */
static bool scan_once(cy_importer *im, const cy_onnx_node *n, loop_plan p, cy_val *in, cy_val *out) {
  p.initial = in;
  p.scanned = in + p.ncarried;
  p.axes = scan_list(im, n, "scan_input_axes", p.nscanned, p.scanned, 0);
  p.backward = scan_list(im, n, n->version < 9 ? "directions" : "scan_input_directions", p.nscanned, NULL, 0);
  if (!p.axes || !p.backward)
    return false;
  p.trips = cy_build_dim_scalar(im->g, cy_onnx_type(im, p.scanned[0])->dim[p.axes[0]]);
  if (!p.trips || !build_loop(im, &p, out))
    return false;
  const int64_t *axes = scan_list(im, n, "scan_output_axes", p.nscans, out + p.ncarried, 0);
  const int64_t *backward = scan_list(im, n, "scan_output_directions", p.nscans, NULL, 0);
  if (!axes || !backward)
    return false;
  for (uint32_t k = 0; k < p.nscans; k++) {
    cy_val *v = &out[p.ncarried + k];
    *v = backward[k] ? reversed(im, *v) : *v;
    *v = cy_onnx_move_axis(im, *v, 0, (int)axes[k]);
  }
  return true;
}

/* Opset 8: everything has a batch axis in front, and each element its own number of iterations. */
typedef struct batch_scan {
  loop_plan once; /* the Scan of one element */
  const cy_val *in;
  uint32_t count;
  cy_val lengths; /* 0: all that there is */
} batch_scan;

/* Zeros behind the end of an element that is shorter than others. */
static cy_val fill_up(cy_importer *im, cy_val x, cy_dim length) {
  const cy_type t = *cy_onnx_type(im, x);
  cy_dim pads[2 * CY_MAX_RANK];
  for (int i = 0; i < 2 * t.rank; i++)
    pads[i] = cy_dim_const(im->g, 0);
  pads[t.rank] = cy_dim_sub(im->g, length, t.dim[0]);
  return cy_build_pad(im->g, x, pads, CY_PAD_CONSTANT, LIKE(x, 0));
}

/* The batch's element number params[0]. */
static bool fill_element(cy_importer *im, const loop_plan *p, const cy_val *params, cy_val *results) {
  const batch_scan *b = p->built->context;
  uint32_t one, carried = b->once.ncarried;
  cy_val *in = CY_NEW_ARRAY(im->arena, cy_val, b->count + 1);
  cy_dim all = cy_onnx_type(im, b->in[carried])->dim[1], length = all;
  if (b->lengths) {
    cy_val own = cy_build_gather(im->g, b->lengths, params[0], 0);
    const cy_dim *e = own ? cy_value_elems_or_read(im->g, CAST(own, CY_I64), &one) : NULL;
    if (!e || !cy_onnx_at_most(im, "input 'sequence_lens'", cy_dim_const(im->g, 0), e[0]) ||
        !cy_onnx_at_most(im, "input 'sequence_lens'", e[0], all))
      return false;
    length = cy_dim_max(im->g, cy_dim_const(im->g, 0), e[0]);
  }
  for (uint32_t k = 0; k < b->count; k++) {
    in[k] = cy_build_gather(im->g, b->in[k], params[0], 0);
    if (in[k] && k >= carried && length != all)
      in[k] = cy_build_slice_axis(im->g, in[k], 0, cy_dim_const(im->g, 0), length);
    if (!in[k])
      return false;
  }
  results[0] = cy_build_scalar_int(im->g, CY_BOOL, 1);
  if (!scan_once(im, p->n, b->once, in, results + 1))
    return false;
  for (uint32_t k = 0; k < b->once.nscans && length != all; k++)
    if (!(results[1 + carried + k] = fill_up(im, results[1 + carried + k], all)))
      return false;
  return true;
}

static bool scan_batch(cy_importer *im, const cy_onnx_node *n, const loop_plan *once, cy_val *in, uint32_t count,
                       cy_val *out) {
  cy_dim batch = 0;
  for (uint32_t k = 0; k < count; k++) {
    const cy_type *t = cy_onnx_type(im, in[k]);
    if (t->rank < (k < once->ncarried ? 1 : 2) || (batch && cy_onnx_clash(im, batch, t->dim[0])))
      return cy_build_error(im->g, NULL, "expected values with %s in front, found %s (number %u)",
                            k < once->ncarried ? "one batch axis" : "one batch axis and a sequence axis",
                            cy_type_text(im->g, t), k);
    if (batch)
      cy_graph_require(im->g, batch, t->dim[0], CY_REQUIRE_EQUAL);
    batch = batch ? batch : t->dim[0];
  }
  const cy_type *lengths = n->in[0] ? cy_onnx_type(im, n->in[0]) : NULL;
  if (lengths && (lengths->rank != 1 || cy_onnx_clash(im, lengths->dim[0], batch)))
    return cy_build_error(im->g, "input 'sequence_lens'", "expected one length for each element of the batch, found %s",
                          cy_type_text(im->g, lengths));
  if (lengths)
    cy_graph_require(im->g, batch, lengths->dim[0], CY_REQUIRE_EQUAL);
  batch_scan b = {.once = *once, .in = in, .count = count, .lengths = n->in[0]};
  cy_loop context = {.context = &b};
  loop_plan p = {.n = n, .fill = fill_element, .nscans = n->nout, .built = &context};
  p.trips = cy_build_dim_scalar(im->g, batch);
  return p.trips && build_loop(im, &p, out);
}

/* Of one element, and of all there is of it: no loop around. */
static bool scan_without_batch(cy_importer *im, const cy_onnx_node *n, const loop_plan *once, cy_val *in, uint32_t count,
                               cy_val *out) {
  for (uint32_t k = 0; k < count; k++)
    if (!(in[k] = cy_build_squeeze(im->g, in[k], 0)))
      return false;
  if (!scan_once(im, n, *once, in, out))
    return false;
  for (uint32_t k = 0; k < n->nout; k++)
    if (!(out[k] = cy_build_unsqueeze(im->g, out[k], 0)))
      return false;
  return true;
}

static bool has_batch_of_one(cy_importer *im, const cy_onnx_node *n, const cy_val *in, uint32_t count) {
  bool one = !n->in[0];
  for (uint32_t k = 0; k < count; k++)
    one = one && cy_onnx_type(im, in[k])->rank && cy_dim_is(im->g, cy_onnx_type(im, in[k])->dim[0], 1);
  return one;
}

IMPORT(scan) {
  bool old = n->version < 9;
  uint32_t skip = old ? 1 : 0, count = n->nin > skip ? n->nin - skip : 0;
  int64_t nscanned = cy_onnx_int(im, n, "num_scan_inputs", 0);
  loop_plan p = {.n = n, .body = cy_onnx_graph(im, n, "body"), .fill = fill_scan};
  if (!p.body)
    return false;
  if (nscanned < 1 || nscanned > count)
    return cy_build_error(im->g, "attribute 'num_scan_inputs'", "expected 1 to %u, found %lld", count,
                          (long long)nscanned);
  p.nscanned = (uint32_t)nscanned;
  p.ncarried = count - p.nscanned;
  p.nscans = n->nout - p.ncarried;
  if (n->nout < p.ncarried || p.body->n_input != count || p.body->n_output != n->nout)
    return cy_build_error(im->g, "attribute 'body'", "expected %u inputs and %u outputs, found %zu and %zu", count,
                          n->nout, p.body->n_input, p.body->n_output);
  cy_val *in = CY_NEW_ARRAY(im->arena, cy_val, count + 1), *out = CY_NEW_ARRAY(im->arena, cy_val, n->nout + 1);
  copy_values(in, n->in + skip, count);
  for (uint32_t k = 0; k < count; k++)
    if (!in[k])
      return cy_build_error(im->g, NULL, "input %u is missing", k);
  bool ok = !old                                ? scan_once(im, n, p, in, out)
            : has_batch_of_one(im, n, in, count) ? scan_without_batch(im, n, &p, in, count, out)
                                                 : scan_batch(im, n, &p, in, count, out);
  for (uint32_t k = 0; ok && k < n->nout; k++)
    ok = cy_importer_set(im, n, k, out[k]);
  return ok;
}

/* ---- SequenceMap ---- */

/* The body's inputs for one iteration: elements of the sequences, and the tensors as they are. */
static bool map_inputs(cy_importer *im, const cy_onnx_node *n, cy_val at, cy_val *out) {
  for (uint32_t k = 0; k < n->nin; k++) {
    bool sequence = cy_onnx_is_sequence(im, n->in[k]);
    if (!(out[k] = sequence ? cy_onnx_sequence_at(im, n->in[k], at) : n->in[k]))
      return false;
  }
  return true;
}

static bool fill_map(cy_importer *im, const loop_plan *p, const cy_val *params, cy_val *results) {
  cy_val *in = CY_NEW_ARRAY(im->arena, cy_val, p->n->nin + 1);
  if (!map_inputs(im, p->n, params[0], in) || !cy_import_subgraph(im, p->n, p->body, in, p->n->nin, results + 1))
    return false;
  cy_onnx_at(im, p->n);
  results[0] = cy_build_scalar_int(im->g, CY_BOOL, 1);
  for (uint32_t k = 0; k < p->ncarried; k++) {
    const cy_type *element = cy_onnx_type(im, results[1 + k]);
    cy_content content = cy_onnx_holding(im, CY_CONTENT_SEQUENCE, element), both;
    cy_type t =
        cy_type_ref(cy_content_join(im->g, cy_onnx_type(im, params[2 + k])->content, content, &both) ? both : content);
    cy_val in2[2] = {params[2 + k], results[1 + k]};
    if (!(results[1 + k] = cy_build(im->g, CY_OP_seq_insert, in2, 2, NULL, 0, &t, 1)))
      return false;
  }
  return results[0] != 0;
}

/* A body for every element, where their number is known. */
static bool map_known(cy_importer *im, const cy_onnx_node *n, const Onnx__GraphProto *body, uint32_t count,
                      cy_val *initial) {
  cy_val *made = CY_NEW_ARRAY(im->arena, cy_val, (size_t)n->nout * count + 1);
  cy_val *in = CY_NEW_ARRAY(im->arena, cy_val, n->nin + 1), *results = CY_NEW_ARRAY(im->arena, cy_val, n->nout + 1);
  for (uint32_t i = 0; i < count; i++) {
    if (!map_inputs(im, n, cy_build_scalar_int(im->g, CY_I64, i), in) ||
        !cy_import_subgraph(im, n, body, in, n->nin, results))
      return false;
    cy_onnx_at(im, n);
    for (uint32_t k = 0; k < n->nout; k++)
      made[(size_t)k * count + i] = results[k];
  }
  for (uint32_t k = 0; k < n->nout; k++)
    if (!cy_importer_set(
            im, n, k,
            cy_onnx_make_sequence(im, made + (size_t)k * count, count, cy_onnx_type(im, initial[k])->content)))
      return false;
  return true;
}

IMPORT(sequence_map) {
  const Onnx__GraphProto *body = cy_onnx_graph(im, n, "body");
  cy_val *initial = CY_NEW_ARRAY(im->arena, cy_val, n->nout + 1);
  uint32_t count;
  if (!body)
    return false;
  if (body->n_input != n->nin || body->n_output != n->nout || !cy_onnx_is_sequence(im, X))
    return cy_build_error(im->g, "attribute 'body'",
                          "expected %u inputs and %u outputs, found %zu and %zu; input 0 is a sequence", n->nin,
                          n->nout, body->n_input, body->n_output);
  for (uint32_t k = 0; k < n->nout; k++) {
    const Onnx__TypeProto *t = body->output[k]->type;
    int32_t dtype =
        t && t->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE && t->tensor_type ? t->tensor_type->elem_type : 0;
    if (dtype <= 0 || dtype >= CY_REF)
      return cy_build_error(im->g, "attribute 'body'", "output %u of the body does not declare a tensor's element type",
                            k);
    initial[k] = cy_onnx_make_sequence(im, NULL, 0, cy_onnx_empty_sequence(im, (cy_dtype)dtype));
  }
  if (cy_onnx_known_sequence(im, X, &count))
    return map_known(im, n, body, count, initial);
  loop_plan p = {.n = n, .body = body, .fill = fill_map, .ncarried = n->nout, .initial = initial};
  p.trips = cy_onnx_sequence_length(im, X);
  return p.trips && build_loop(im, &p, n->out);
}
