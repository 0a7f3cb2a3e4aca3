/* SPDX-License-Identifier: Apache-2.0 */
/* graph.c - the graph's storage: values, nodes, blocks, model inputs and outputs, types; where nodes are built.
 *
 * In: requests by id. Out: pointers that stay valid for the graph's life (storage is chunked). Block 1 is the model
 * itself; its params and results mirror the ports. Before editing: cy_node_of() marks nodes as touched for the use
 * lists, see ir_int.h; code in this folder that only reads may take cy_node_slot_of() instead.
 */
#include "ir_int.h"

#include <stdarg.h>

cy_graph *cy_graph_create(cy_diag_sink *diag, const char *file) {
  cy_arena *a = cy_arena_create();
  cy_graph *g = CY_NEW(a, cy_graph);
  g->arena = a;
  g->diag = diag;
  g->file = file ? cy_arena_copy(a, file, strlen(file) + 1) : NULL;
  cy_chunks_init(&g->values, a, sizeof(cy_value_slot));
  cy_chunks_init(&g->nodes, a, sizeof(cy_node_slot));
  cy_chunks_init(&g->blocks, a, sizeof(cy_block_info));
  cy_chunks_init(&g->strs, a, sizeof(cy_str_slot));
  cy_chunks_init(&g->dims, a, sizeof(cy_dim_slot));
  cy_chunks_init(&g->atoms, a, sizeof(cy_atom_slot));
  cy_chunks_init(&g->syms, a, sizeof(cy_sym_info));
  cy_chunks_init(&g->uses, a, sizeof(cy_use));
  cy_chunks_init(&g->texts, a, sizeof(cy_text_slot));
  cy_chunks_init(&g->contents, a, sizeof(cy_content_slot));
  g->origin.index = -1;
  g->in_block = cy_block_create(g, 0);
  return g;
}

void cy_graph_destroy(cy_graph *g) {
  if (!g)
    return;
  for (cy_owned *o = g->owned; o; o = o->next)
    o->release(o->handle);
  cy_arena_destroy(g->arena);
}

cy_arena *cy_graph_arena(const cy_graph *g) { return g->arena; }
cy_diag_sink *cy_graph_diag(const cy_graph *g) { return g->diag; }
const char *cy_graph_name(const cy_graph *g) { return cy_str_text(g, g->name); }
void cy_graph_set_name(cy_graph *g, const char *name) { g->name = cy_intern(g, name); }

void cy_graph_add_metadata(cy_graph *g, const char *key, const char *value) {
  cy_metadata row = {.key = cy_intern(g, key)};
  row.value = cy_intern(g, value);
  g->metadata = cy_arena_grow(g->arena, g->metadata, g->nmetadata, &g->metadata_cap, sizeof row);
  g->metadata[g->nmetadata++] = row;
}

uint32_t cy_graph_metadata(const cy_graph *g, const cy_metadata **out_rows) {
  *out_rows = g->metadata;
  return g->nmetadata;
}

void cy_graph_own(cy_graph *g, void *handle, void (*release)(void *handle)) {
  cy_owned *o = CY_NEW(g->arena, cy_owned);
  *o = (cy_owned){handle, release, g->owned};
  g->owned = o;
}

cy_value *cy_value_of(const cy_graph *g, cy_val v) {
  if (v == 0 || v > g->values.count)
    cy_bug("value %u of %u", v, g->values.count);
  return &((cy_value_slot *)cy_chunks_at(&g->values, v))->v;
}

cy_node_slot *cy_node_slot_of(const cy_graph *g, cy_node n) {
  if (n == 0 || n > g->nodes.count)
    cy_bug("node %u of %u", n, g->nodes.count);
  return cy_chunks_at(&g->nodes, n);
}

cy_node_info *cy_node_of(const cy_graph *cg, cy_node n) {
  cy_node_slot *s = cy_node_slot_of(cg, n);
  if (!s->touched && s->n.nin) {
    cy_graph *g = (cy_graph *)cg; /* bookkeeping only */
    g->touched = cy_arena_grow(g->arena, g->touched, g->ntouched, &g->touched_cap, sizeof *g->touched);
    s->touched = true;
    g->touched[g->ntouched++] = n;
  }
  return &s->n;
}

cy_block_info *cy_block_of(const cy_graph *g, cy_block b) {
  if (b == 0 || b > g->blocks.count)
    cy_bug("block %u of %u", b, g->blocks.count);
  return cy_chunks_at(&g->blocks, b);
}

uint32_t cy_value_count(const cy_graph *g) { return g->values.count; }
uint32_t cy_node_count(const cy_graph *g) { return g->nodes.count; }
uint32_t cy_block_count(const cy_graph *g) { return g->blocks.count; }

cy_val cy_value_add(cy_graph *g, const cy_type *type) {
  cy_val v = cy_chunks_add(&g->values, g->arena);
  cy_value *info = cy_value_of(g, v);
  info->type = *type;
  for (uint8_t i = 0; i < CY_MAX_RANK; i++)
    info->layout[i] = i;
  return v;
}

void cy_value_set_data(cy_graph *g, cy_val v, const void *bytes, uint64_t size) {
  static const char empty[16];
  cy_value_of(g, v)->data = (cy_data){bytes ? bytes : empty, size};
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

cy_block cy_block_create(cy_graph *g, cy_block parent) {
  cy_block b = cy_chunks_add(&g->blocks, g->arena);
  cy_block_of(g, b)->parent = parent;
  return b;
}

/* A list one longer than `old`. */
static cy_val *grow_list(cy_graph *g, const cy_val *old, uint32_t n, cy_val last) {
  cy_val *list = (n & (n - 1)) == 0 ? CY_NEW_ARRAY(g->arena, cy_val, n ? n * 2 : 1) : (cy_val *)old;
  if (n && list != old)
    memcpy(list, old, sizeof *list * n);
  list[n] = last;
  return list;
}

static void add_param(cy_graph *g, cy_block b, cy_val v) {
  cy_block_info *block = cy_block_of(g, b);
  block->params = grow_list(g, block->params, block->nparams, v);
  block->nparams++;
}

cy_val cy_block_add_param(cy_graph *g, cy_block b, const cy_type *type, const char *name) {
  cy_val v = cy_value_add(g, type);
  cy_value_of(g, v)->param = true;
  cy_value_of(g, v)->name = cy_intern(g, name);
  add_param(g, b, v);
  return v;
}

void cy_block_set_results(cy_graph *g, cy_block b, const cy_val *vals, uint32_t n) {
  cy_block_info *block = cy_block_of(g, b);
  block->results = CY_NEW_ARRAY(g->arena, cy_val, 2 * n + 1); /* grow_list() may add to it */
  if (n)
    memcpy(block->results, vals, sizeof *vals * n);
  block->nresults = n;
}

void cy_block_append(cy_graph *g, cy_block b, cy_node before, cy_node n) {
  cy_block_info *block = cy_block_of(g, b);
  block->nodes = cy_arena_grow(g->arena, block->nodes, block->nnodes, &block->capacity, sizeof *block->nodes);
  uint32_t at = block->nnodes++;
  if (before) { /* from the end: passes walk forwards, but what they insert is mostly near */
    while (at > 0 && block->nodes[at - 1] != before) {
      block->nodes[at] = block->nodes[at - 1];
      at--;
    }
    if (at == 0)
      cy_bug("node %u is not in block %u", before, b);
    block->nodes[at] = block->nodes[at - 1];
    at--;
  }
  block->nodes[at] = n;
  cy_node_slot_of(g, n)->n.block = b;
}

/* ---- ports ------------------------------------------------------------------------------------------------------- */

static void add_port(cy_graph *g, cy_port_info **ports, uint32_t *n, uint32_t *cap, cy_port_info port) {
  *ports = cy_arena_grow(g->arena, *ports, *n, cap, sizeof **ports);
  (*ports)[(*n)++] = port;
}

uint32_t cy_graph_inputs(const cy_graph *g, const cy_port_info **out_ports) {
  *out_ports = g->inputs;
  return g->ninputs;
}

uint32_t cy_graph_outputs(const cy_graph *g, const cy_port_info **out_ports) {
  *out_ports = g->outputs;
  return g->noutputs;
}

cy_val cy_graph_add_input(cy_graph *g, const char *name, const cy_type *type) {
  cy_val v = cy_block_add_param(g, 1, type, name);
  add_port(g, &g->inputs, &g->ninputs, &g->inputs_cap, (cy_port_info){cy_value_of(g, v)->name, v});
  return v;
}

void cy_graph_add_output(cy_graph *g, const char *name, cy_val v) {
  cy_block_info *top = cy_block_of(g, 1);
  add_port(g, &g->outputs, &g->noutputs, &g->outputs_cap, (cy_port_info){cy_intern(g, name), v});
  top->results = grow_list(g, top->results, top->nresults, v);
  top->nresults++;
}

void cy_graph_set_output(cy_graph *g, uint32_t index, cy_val v) {
  if (index >= g->noutputs)
    cy_bug("output %u of %u", index, g->noutputs);
  g->outputs[index].value = v;
  cy_block_of(g, 1)->results[index] = v;
}

/* ---- types ------------------------------------------------------------------------------------------------------- */

cy_type cy_type_make(cy_dtype dtype, int rank, const cy_dim *dims) {
  cy_type t = {.dtype = (uint8_t)dtype, .rank = (uint8_t)rank};
  if (rank < 0 || rank > CY_MAX_RANK)
    cy_bug("a type of rank %d (at most %d)", rank, CY_MAX_RANK);
  for (int i = 0; i < rank; i++)
    t.dim[i] = dims[i];
  return t;
}

cy_dim cy_type_elems(cy_graph *g, const cy_type *t) {
  cy_dim n = cy_dim_const(g, 1);
  for (int i = 0; i < t->rank; i++)
    n = cy_dim_mul(g, n, t->dim[i]);
  return n;
}

bool cy_type_equal(const cy_type *a, const cy_type *b) {
  return a->dtype == b->dtype && a->rank == b->rank && a->content == b->content &&
         memcmp(a->dim, b->dim, sizeof(cy_dim) * a->rank) == 0;
}

const char *cy_type_text(cy_graph *g, const cy_type *t) {
  if (t->content)
    return cy_content_text(g, t->content);
  char *s = cy_arena_printf(g->arena, "%s[", cy_dtype_of((cy_dtype)t->dtype)->name);
  for (int i = 0; i < t->rank; i++)
    s = cy_arena_printf(g->arena, "%s%s%s", s, i ? "," : "", t->dim[i] ? cy_dim_text(g, t->dim[i]) : "?");
  return cy_arena_printf(g->arena, "%s]", s);
}

bool cy_type_static_count(const cy_graph *g, const cy_type *t, uint64_t *out_count) {
  uint64_t n = 1;
  for (int i = 0; i < t->rank; i++) {
    int64_t d;
    if (!cy_dim_is_const(g, t->dim[i], &d) || d < 0 || !cy_mul_size(n, (uint64_t)d, &n))
      return false;
  }
  *out_count = n;
  return n < (uint64_t)1 << 48;
}

uint64_t cy_dtype_bytes(cy_dtype dtype, uint64_t count) { return (count * (uint64_t)cy_dtype_of(dtype)->bits + 7) / 8; }

/* ---- what sizes must fulfil ---- */

/* Of a tensor: sums of products of an index and a stride stay far below 2^63, in bytes, too. */
#define MAX_ELEMENTS ((int64_t)1 << 56)

void cy_graph_record(cy_graph *g, bool on) { g->recording = on; }

void cy_graph_expect_kernel(cy_graph *g, int64_t length) {
  enum { LONGEST = 1 << 16 }; /* products of it stay numbers */
  if (length > g->longest_kernel && length <= LONGEST)
    g->longest_kernel = length;
}

/* Does what is required hold whatever the symbols are? */
static bool holds(cy_graph *g, cy_dim a, cy_dim b, cy_require kind) {
  int64_t low, high, limit = 0;
  switch (kind) {
  case CY_REQUIRE_EQUAL:
    return a == b;
  case CY_REQUIRE_BROADCAST:
    return a == b || cy_dim_is(g, a, 1) || cy_dim_is(g, b, 1);
  case CY_REQUIRE_AT_MOST:
    return cy_dim_le(g, a, b);
  case CY_REQUIRE_SOURCE:
    cy_dim_range(g, b, &low, &high);
    return a == b || low > 0;
  case CY_REQUIRE_SIZE:
    cy_dim_range(g, a, &low, &high);
    return low >= 0;
  case CY_REQUIRE_FITS:
    cy_dim_range(g, a, &low, &high);
    return cy_dim_is_const(g, b, &limit) && high <= limit;
  case CY_REQUIRE_INDEX:
  case CY_REQUIRE_CLAMPED:
    return cy_dim_lt(g, a, b);
  }
  return false;
}

static void require(cy_graph *g, cy_dim a, cy_dim b, cy_require kind, const char *text) {
  int64_t x, y;
  bool numbers = cy_dim_is_const(g, a, &x) && cy_dim_is_const(g, b, &y);
  if (!g->recording || numbers || holds(g, a, b, kind))
    return;
  for (uint32_t i = 0; i < g->nrequirements; i++) {
    const cy_requirement *r = &g->requirements[i];
    if (r->a == a && r->b == b && r->kind == kind && (r->block == 1 || r->block == g->in_block))
      return;
  }
  g->requirements =
      cy_arena_grow(g->arena, g->requirements, g->nrequirements, &g->requirements_cap, sizeof *g->requirements);
  g->requirements[g->nrequirements++] = (cy_requirement){a, b, g->in_block, kind, text, g->origin};
}

void cy_graph_require(cy_graph *g, cy_dim a, cy_dim b, cy_require kind) { require(g, a, b, kind, NULL); }

void cy_graph_require_text(cy_graph *g, cy_dim a, cy_dim b, cy_require kind, const char *text) {
  require(g, a, b, kind, text);
}

static void require_type(cy_graph *g, const cy_type *t) {
  cy_dim max = cy_dim_const(g, MAX_ELEMENTS), zero = cy_dim_const(g, 0), count = cy_dim_const(g, 1);
  for (int i = 0; i < t->rank; i++) {
    cy_graph_require(g, t->dim[i], zero, CY_REQUIRE_SIZE);
    count = cy_dim_mul(g, count, t->dim[i]);
  }
  cy_graph_require(g, count, max, CY_REQUIRE_FITS);
}

void cy_graph_require_sizes(cy_graph *g) {
  cy_block in_block = g->in_block;
  cy_origin origin = g->origin;
  for (cy_block b = 1; b <= g->blocks.count; b++) {
    const cy_block_info *block = cy_block_of(g, b);
    for (uint32_t i = 0; i < block->nnodes; i++) {
      const cy_node_info *n = &cy_node_slot_of(g, block->nodes[i])->n;
      g->in_block = b;
      g->origin = n->origin;
      for (uint32_t k = 0; k < n->nout; k++)
        require_type(g, &cy_value_of(g, n->out[k])->type);
    }
  }
  g->in_block = in_block;
  g->origin = origin;
}

uint32_t cy_graph_requirements(const cy_graph *g, const cy_requirement **out_list) {
  *out_list = g->requirements;
  return g->nrequirements;
}

void cy_graph_requirements_cut(cy_graph *g, uint32_t n) { g->nrequirements = n; }

/* ---- where nodes are built ---------------------------------------------------------------------------------------- */

void cy_build_in(cy_graph *g, cy_block b) {
  cy_block_of(g, b);
  g->in_block = b;
  g->before = 0;
}

cy_block cy_build_block(const cy_graph *g) { return g->in_block; }

void cy_build_before(cy_graph *g, cy_node n) {
  g->in_block = cy_node_slot_of(g, n)->n.block;
  g->before = n;
}

void cy_build_origin(cy_graph *g, const cy_origin *origin) { g->origin = *origin; }

cy_val cy_build_error(cy_graph *g, const char *item, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *text = cy_arena_vprintf(g->arena, format, args);
  va_end(args);
  const cy_origin *o = &g->origin;
  cy_location where = {.file = g->file,
                       .graph = cy_str_text(g, o->graph),
                       .node = cy_str_text(g, o->name),
                       .op = cy_str_text(g, o->op),
                       .node_index = o->index,
                       .item = item};
  cy_diag_add(g->diag, CY_ERROR, &where, "%s%s%s", o->pass ? o->pass : "", o->pass ? ": " : "", text);
  return 0;
}

cy_type cy_type_ref(cy_content c) {
  cy_type t = cy_type_make(CY_REF, 0, NULL);
  t.content = c;
  return t;
}
