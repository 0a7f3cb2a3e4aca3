/* SPDX-License-Identifier: Apache-2.0 */
/* lower.c - the driver of lowering: walks the graph once, gives every stored value a place, and appends the steps that
 * compute it.
 *
 * In: a graph whose values are marked inlined or not (fuse.c) and laid out (layout.c). Out: a program.
 * A node whose outputs are all inlined makes no step: its users compose it. A node that only renames memory makes none
 * either. For everything else the *root value* is looked for: the one reduction or contraction inlined into the value, if
 * any; its own kernel form is then used, else a plain kernel with one grid axis per output axis. Symbols read from data
 * are set right behind the step that computes the data.
 */
#include "lower_int.h"

#include <string.h>

cy_dtype cy_compute_dtype(cy_dtype storage) {
  switch (storage) {
  case CY_I4:
  case CY_I2:
    return CY_I8;
  case CY_U4:
  case CY_U2:
    return CY_U8;
  case CY_STRING:
  case CY_REF:
    return CY_I32;
  default:
    return cy_dtype_is_float(storage) && storage != CY_F64 ? CY_F32 : storage;
  }
}

const cy_type *cy_lower_type(const cy_lowering *l, cy_val v) { return &cy_value_of(l->g, v)->type; }

/* ---- places ---- */

/* Strides of a dense tensor whose axes lie in the order `layout`, outermost first (NULL: row-major). */
void cy_lower_dense_strides(cy_graph *g, const cy_type *t, const uint8_t *layout, cy_dim *out_stride) {
  cy_dim stride = cy_dim_const(g, 1);
  for (int i = t->rank - 1; i >= 0; i--) {
    int axis = layout ? layout[i] : i;
    out_stride[axis] = stride;
    stride = cy_dim_mul(g, stride, t->dim[axis]);
  }
}

static cy_dim type_bytes(cy_graph *g, const cy_type *t) {
  int bits = cy_dtype_of(t->dtype)->bits;
  cy_dim n = cy_type_elems(g, t);
  return bits >= 8 ? cy_dim_muli(g, n, bits / 8) : cy_dim_cdiv(g, cy_dim_muli(g, n, bits), cy_dim_const(g, 8));
}

static cy_place place_in(cy_lowering *l, uint32_t buffer, const cy_type *t, const uint8_t *layout) {
  cy_place p = {.placed = true, .buffer = buffer, .offset = cy_dim_const(l->g, 0)};
  cy_lower_dense_strides(l->g, t, layout, p.stride);
  return p;
}

bool cy_lower_is_dynamic(const cy_lowering *l, const cy_type *t) {
  for (int i = 0; i < t->rank; i++)
    if (cy_dim_has_data_sym(l->g, t->dim[i]))
      return true;
  return false;
}

cy_step *cy_lower_step(cy_lowering *l, cy_step_kind kind) {
  cy_step *s = CY_NEW(cy_graph_arena(l->g), cy_step);
  s->kind = kind;
  s->node = l->node;
  *l->tail = s;
  l->tail = &s->next;
  return s;
}

static void place_constant(cy_lowering *l, cy_val v) {
  cy_value *val = cy_value_of(l->g, v);
  uint32_t c = cy_program_add_constant(l->p, v, val->data.size, "", NULL, NULL, 1);
  uint32_t buffer = cy_program_add_buffer(l->p, CY_BUF_CONST, c, cy_dim_const(l->g, (int64_t)val->data.size));
  l->place[v] = place_in(l, buffer, &val->type, NULL);
}

cy_place *cy_lower_place(cy_lowering *l, cy_val v) {
  if (!l->place[v].placed && cy_value_of(l->g, v)->data.bytes)
    place_constant(l, v);
  if (!l->place[v].placed)
    cy_bug("value %%%u of '%s' is read before it has a place", v, cy_graph_name(l->g));
  return &l->place[v];
}

/* In the arena, whose size is settled when a run begins, or, where the size follows from data, in a slot of its own. */
static uint32_t own_buffer(cy_lowering *l, cy_dim bytes, bool dynamic) {
  if (dynamic)
    return cy_program_add_buffer(l->p, CY_BUF_DYNAMIC, l->p->ndynamic++, bytes);
  return cy_program_add_buffer(l->p, CY_BUF_ARENA, 0, bytes);
}

static uint32_t type_buffer(cy_lowering *l, const cy_type *t) {
  return own_buffer(l, type_bytes(l->g, t), cy_lower_is_dynamic(l, t));
}

cy_place cy_lower_unsized(cy_lowering *l, const cy_type *t) { return place_in(l, type_buffer(l, t), t, NULL); }

static void size_buffer(cy_lowering *l, uint32_t buffer) {
  if (l->p->buffers[buffer].kind != CY_BUF_DYNAMIC)
    return;
  cy_step *s = cy_lower_step(l, CY_STEP_ALLOC);
  s->bind = CY_NEW(cy_graph_arena(l->g), cy_bind);
  *s->bind = (cy_bind){buffer, cy_dim_const(l->g, 0)};
  s->nbind = 1;
}

void cy_lower_size(cy_lowering *l, const cy_place *p) { size_buffer(l, p->buffer); }

/* The model output that v is, or -1. */
static int output_index(cy_lowering *l, cy_val v) {
  const cy_port_info *ports;
  uint32_t n = cy_graph_outputs(l->g, &ports);
  for (uint32_t i = 0; i < n; i++)
    if (ports[i].value == v)
      return (int)i;
  return -1;
}

void cy_lower_alloc(cy_lowering *l, cy_val v) {
  if (l->place[v].placed)
    return;
  const cy_value *val = cy_value_of(l->g, v);
  int output = output_index(l, v);
  if (output >= 0) {
    uint32_t buffer = cy_program_add_buffer(l->p, CY_BUF_OUTPUT, (uint32_t)output, type_bytes(l->g, &val->type));
    if (cy_lower_is_dynamic(l, &val->type))
      cy_lower_step(l, CY_STEP_OUTPUT)->index = (uint32_t)output;
    l->place[v] = place_in(l, buffer, &val->type, NULL);
    return;
  }
  l->place[v] = place_in(l, type_buffer(l, &val->type), &val->type, val->layout);
  cy_lower_size(l, &l->place[v]);
}

cy_place cy_lower_temp(cy_lowering *l, cy_dtype dtype, const cy_dim *dims, int rank) {
  cy_type t = cy_type_make(dtype, rank, dims);
  cy_place p = cy_lower_unsized(l, &t);
  cy_lower_size(l, &p);
  return p;
}

bool cy_lower_is_contiguous(const cy_lowering *l, const cy_place *p, const cy_type *t) {
  cy_dim want[CY_MAX_RANK];
  cy_lower_dense_strides(l->g, t, NULL, want);
  for (int i = 0; i < t->rank; i++)
    if (p->stride[i] != want[i] && !cy_dim_is(l->g, t->dim[i], 1))
      return false;
  return true;
}

cy_bind cy_lower_bind(cy_lowering *l, const cy_place *p, cy_dtype dtype) {
  int bits = cy_dtype_of(dtype)->bits;
  cy_dim bytes = bits >= 8 ? cy_dim_muli(l->g, p->offset, bits / 8)
                           : cy_dim_div(l->g, cy_dim_muli(l->g, p->offset, bits), cy_dim_const(l->g, 8));
  return (cy_bind){p->buffer, bytes};
}

/* ---- kernels ---- */

void cy_kb_init(cy_kb *b, cy_lowering *l, const char *name) { *b = (cy_kb){.l = l, .k = cy_kernel_create(l->g, name)}; }

static void add_bind(cy_kb *b, cy_bind bind) {
  b->bind = cy_arena_grow(cy_graph_arena(b->l->g), b->bind, b->nbind, &b->bind_cap, sizeof *b->bind);
  b->bind[b->nbind++] = bind;
}

static void note_fused(cy_kb *b, cy_node n) {
  for (uint32_t i = 0; i < b->nfused; i++)
    if (b->fused[i] == n)
      return;
  b->fused = cy_arena_grow(cy_graph_arena(b->l->g), b->fused, b->nfused, &b->fused_cap, sizeof *b->fused);
  b->fused[b->nfused++] = n;
}

cy_karg cy_kb_arg(cy_kb *b, const cy_place *p, cy_dtype dtype, cy_karg_kind kind) {
  if (dtype == CY_STRING || dtype == CY_REF)
    dtype = CY_I32; /* to a kernel they are numbers */
  cy_bind bind = cy_lower_bind(b->l, p, dtype);
  const cy_karg_info *args;
  uint32_t n = cy_kernel_args(b->k, &args);
  for (uint32_t i = 0; i < n; i++)
    if (args[i].kind == kind && args[i].dtype == dtype && b->bind[i].buffer == bind.buffer &&
        b->bind[i].offset == bind.offset)
      return i;
  add_bind(b, bind);
  return cy_kernel_add_arg(b->k, kind, dtype, 0);
}

cy_karg cy_kb_scratch(cy_kb *b, cy_dtype dtype, cy_dim elems) {
  cy_graph *g = b->l->g;
  cy_dim stripe = cy_dim_muli(g, elems, cy_dtype_of(dtype)->bits / 8);
  cy_dim bytes = cy_dim_mul(g, stripe, cy_dim_sym(g, b->l->p->workers));
  uint32_t buffer = own_buffer(b->l, bytes, cy_dim_has_data_sym(g, stripe));
  size_buffer(b->l, buffer);
  add_bind(b, (cy_bind){buffer, cy_dim_const(g, 0)});
  return cy_kernel_add_arg(b->k, CY_ARG_SCRATCH, dtype, elems);
}

cy_expr cy_kb_offset(cy_kb *b, const cy_place *p, int rank, const cy_expr *idx) {
  cy_expr sum = cy_x_index(b->k, 0);
  for (int i = 0; i < rank; i++)
    sum = cy_x_bin(b->k, CY_OP_add, sum, cy_x_bin(b->k, CY_OP_mul, idx[i], cy_x_dim(b->k, p->stride[i])));
  return sum;
}

cy_expr cy_kb_load(cy_kb *b, const cy_place *p, cy_dtype dtype, int rank, const cy_expr *idx) {
  cy_karg arg = cy_kb_arg(b, p, dtype, CY_ARG_READ);
  return cy_x_cast(b->k, cy_x_load(b->k, arg, cy_kb_offset(b, p, rank, idx)), cy_compute_dtype(dtype));
}

void cy_kb_store(cy_kb *b, const cy_place *p, cy_dtype dtype, int rank, const cy_expr *idx, cy_expr value) {
  cy_expr offset = cy_kb_offset(b, p, rank, idx);
  cy_kernel_store(b->k, cy_kb_arg(b, p, dtype, CY_ARG_WRITE), offset, value);
}

cy_expr cy_kb_grid_index(cy_kb *b, cy_dim extent) {
  if (cy_dim_is(b->l->g, extent, 1))
    return cy_x_index(b->k, 0);
  cy_var v = cy_kernel_add_var(b->k, extent);
  cy_kernel_add_grid(b->k, v);
  return cy_x_var(b->k, v);
}

cy_expr cy_kb_loop(cy_kb *b, cy_dim extent, bool lanes) {
  cy_var v = cy_kernel_add_var(b->k, extent);
  cy_kernel_for(b->k, v, lanes);
  return cy_x_var(b->k, v);
}

void cy_kb_launch(cy_kb *b, bool schedule) {
  if (schedule && b->l->splits_rows)
    cy_kernel_share_addresses(b->k);
  if (schedule)
    cy_kernel_schedule(b->k);
  cy_kernel_expand_math(b->k);
  cy_step *s = cy_lower_step(b->l, CY_STEP_LAUNCH);
  s->kernel = cy_program_intern_kernel(b->l->p, b->k);
  s->bind = b->bind;
  s->nbind = b->nbind;
  s->fused = b->fused;
  s->nfused = b->nfused;
}

void cy_lower_copy(cy_lowering *l, const cy_place *from, const cy_place *to, const cy_type *t) {
  cy_kb b;
  cy_kb_init(&b, l, "copy");
  cy_expr idx[CY_MAX_RANK];
  for (int i = 0; i < t->rank; i++)
    idx[i] = cy_kb_grid_index(&b, t->dim[i]);
  cy_expr offset = cy_kb_offset(&b, from, t->rank, idx);
  cy_karg arg = cy_kb_arg(&b, from, t->dtype, CY_ARG_READ);
  cy_kb_store(&b, to, t->dtype, t->rank, idx, cy_x_load(b.k, arg, offset));
  cy_kb_launch(&b, true);
}

/* ---- composing ---- */

/* A constant with one value everywhere needs no memory. */
static bool splat_value(cy_kb *b, cy_val v, cy_expr *out) {
  cy_graph *g = b->l->g;
  cy_value *val = cy_value_of(g, v);
  if (!val->data.bytes || cy_dtype_of(val->type.dtype)->cls == 'C')
    return false;
  double unused;
  int64_t n = 0;
  if (!cy_dim_is_const(g, cy_type_elems(g, &val->type), &n) || n == 0)
    return false;
  if (n > 1 && !cy_value_is_splat(g, v, &unused))
    return false;
  cy_dtype compute = cy_compute_dtype(val->type.dtype);
  cy_scalar s = cy_scalar_load(val->data.bytes, val->type.dtype, 0);
  *out = cy_dtype_is_float(compute) ? cy_x_const(b->k, compute, s.f) : cy_x_int(b->k, compute, s.i);
  return true;
}

static struct cy_memo_entry *memo_slot(const cy_memo *m, cy_val v, const cy_expr *idx, int rank) {
  uint32_t hash = v * 2654435761u;
  for (int i = 0; i < rank; i++)
    hash = (hash ^ idx[i]) * 16777619u;
  for (uint32_t at = hash ^ hash >> 15;; at++) {
    struct cy_memo_entry *e = &m->entry[at & (m->cap - 1)];
    if (!e->v || (e->v == v && !memcmp(e->idx, idx, sizeof *idx * (size_t)rank)))
      return e;
  }
}

static void memo_grow(cy_kb *b) {
  cy_memo old = b->memo;
  b->memo.cap = old.cap ? old.cap * 2 : 64;
  b->memo.entry = CY_NEW_ARRAY(b->l->arena, struct cy_memo_entry, b->memo.cap);
  for (uint32_t i = 0; i < old.cap; i++) {
    struct cy_memo_entry *e = &old.entry[i];
    if (e->v)
      *memo_slot(&b->memo, e->v, e->idx, cy_value_of(b->l->g, e->v)->type.rank) = *e;
  }
}

/* The definition of an inlined value, composed once per index. */
static cy_expr composed(cy_kb *b, cy_val v, const cy_expr *idx, int rank) {
  if (b->memo.n * 2 >= b->memo.cap)
    memo_grow(b);
  struct cy_memo_entry *e = memo_slot(&b->memo, v, idx, rank);
  if (e->v)
    return e->value;
  cy_expr value = cy_lower_def(b, v, idx);
  if (b->memo.n * 2 >= b->memo.cap)
    memo_grow(b);
  e = memo_slot(&b->memo, v, idx, rank); /* composing may have moved the table */
  e->v = v;
  e->value = value;
  memcpy(e->idx, idx, sizeof *idx * (size_t)rank);
  b->memo.n++;
  return value;
}

static cy_expr anchored(cy_kb *b) {
  cy_node n = cy_value_of(b->l->g, b->root_value)->node;
  if (n)
    note_fused(b, n);
  return b->root_expr;
}

cy_expr cy_lower_at(cy_kb *b, cy_val v, const cy_expr *idx) {
  if (v == b->root_value)
    return anchored(b);
  cy_expr e;
  if (splat_value(b, v, &e))
    return e;
  const cy_value *val = cy_value_of(b->l->g, v);
  if (val->inlined && !b->l->place[v].placed)
    return composed(b, v, idx, val->type.rank);
  return cy_kb_load(b, cy_lower_place(b->l, v), val->type.dtype, val->type.rank, idx);
}

cy_expr cy_lower_def(cy_kb *b, cy_val v, const cy_expr *idx) {
  if (v == b->root_value)
    return anchored(b);
  const cy_value *val = cy_value_of(b->l->g, v);
  const cy_node_info *n = cy_node_of(b->l->g, val->node);
  cy_expr_fn fn = val->node ? cy_lower_expr_of(n->op) : NULL;
  if (!fn)
    cy_bug("op '%s' cannot be inlined into another kernel", val->node ? cy_op_of(n->op)->name : "none");
  note_fused(b, val->node);
  return fn(b, val->node, val->output, idx);
}

cy_expr cy_lower_behind(cy_kb *b, cy_val target, cy_val root_value, const cy_expr *idx, cy_expr value) {
  b->root_value = root_value;
  b->root_expr = value;
  b->memo = (cy_memo){0};
  cy_expr e = cy_lower_def(b, target, idx);
  b->root_value = 0;
  b->memo = (cy_memo){0};
  return e;
}

void cy_lower_finish(cy_kb *b, cy_val target, cy_val root_value, const cy_expr *idx, cy_expr value) {
  const cy_type *t = cy_lower_type(b->l, target);
  cy_expr e = cy_lower_behind(b, target, root_value, idx, value);
  cy_kb_store(b, cy_lower_place(b->l, target), t->dtype, t->rank, idx, e);
}

/* The reduction or root inlined into v's expression, v's own included; 0 when there is none. */
static cy_val find_root(cy_lowering *l, cy_val v) {
  const cy_value *val = cy_value_of(l->g, v);
  if (!val->node)
    return 0;
  const cy_node_info *n = cy_node_of(l->g, val->node);
  bool ends = n->op == CY_OP_quantize_rows; /* its kernel may be that of what it reads */
  if (!ends && (cy_op_of(n->op)->cls == CY_CLASS_ROOT || cy_op_of(n->op)->cls == CY_CLASS_REDUCE))
    return v;
  for (uint32_t i = 0; i < n->nin; i++) {
    if (!n->in[i] || !cy_value_of(l->g, n->in[i])->inlined || l->place[n->in[i]].placed)
      continue;
    cy_val a = find_root(l, n->in[i]);
    if (a)
      return a;
  }
  return 0;
}

void cy_lower_element(cy_kb *b, cy_val root_value, cy_val target, const cy_expr *idx) {
  const cy_type *t = cy_lower_type(b->l, target);
  b->memo = (cy_memo){0};
  if (root_value && root_value != target) { /* once, however often the chain behind it asks */
    cy_expr value = cy_lower_def(b, root_value, idx);
    cy_local held = cy_kernel_add_local(b->k, cy_compute_dtype((cy_dtype)cy_lower_type(b->l, root_value)->dtype));
    cy_kernel_set(b->k, held, value);
    cy_lower_finish(b, target, root_value, idx, cy_x_local(b->k, held));
  } else {
    cy_kb_store(b, cy_lower_place(b->l, target), t->dtype, t->rank, idx, cy_lower_def(b, target, idx));
  }
}

void cy_lower_plain(cy_lowering *l, cy_val root_value, cy_val target, const char *name, const cy_place *padded) {
  cy_kb b;
  cy_kb_init(&b, l, name);
  b.padded = padded;
  const cy_type *t = cy_lower_type(l, target);
  cy_expr idx[CY_MAX_RANK];
  for (int i = 0; i < t->rank; i++)
    idx[i] = cy_kb_grid_index(&b, t->dim[i]);
  cy_lower_element(&b, root_value, target, idx);
  cy_kb_launch(&b, true);
}

void cy_lower_read(cy_lowering *l, const cy_place *p, cy_dtype dtype, cy_sym sym) {
  cy_step *s = cy_lower_step(l, CY_STEP_READ);
  s->bind = CY_NEW(cy_graph_arena(l->g), cy_bind);
  *s->bind = cy_lower_bind(l, p, dtype);
  s->nbind = 1;
  s->dtype = dtype;
  s->sym = sym;
}

/* Symbols whose value stands in v can be read now. */
void cy_lower_read_symbols(cy_lowering *l, cy_val v) {
  const cy_type *t = cy_lower_type(l, v);
  for (uint32_t i = l->sym_start[v]; i < l->sym_start[v + 1]; i++) {
    cy_sym_info *s = cy_sym_of(l->g, l->sym_list[i]);
    cy_place at = *cy_lower_place(l, v);
    int64_t rest = s->index, extent = 1;
    for (int axis = t->rank - 1; axis >= 0; axis--, rest /= extent) {
      if (!cy_dim_is_const(l->g, t->dim[axis], &extent) || extent < 1)
        extent = 1;
      at.offset = cy_dim_add(l->g, at.offset, cy_dim_muli(l->g, at.stride[axis], rest % extent));
    }
    if (l->in_kernel[l->sym_list[i]])
      cy_lower_check_symbol(l, &at, (cy_dtype)t->dtype, l->sym_list[i]);
    else
      cy_lower_read(l, &at, (cy_dtype)t->dtype, l->sym_list[i]);
  }
}

static void lower_value(cy_lowering *l, cy_node node, cy_val v) {
  cy_val root_value = find_root(l, v);
  cy_node root = root_value ? cy_value_of(l->g, root_value)->node : 0;
  const cy_node_info *n = cy_node_of(l->g, node);
  cy_lower_alloc(l, v);
  if (n->op == CY_OP_quantize_rows)
    cy_lower_alloc(l, n->out[1]);
  cy_root_fn fn = cy_lower_root_of(root ? cy_node_of(l->g, root)->op : n->op);
  if (fn)
    fn(l, root ? root : node, root_value ? root_value : v, v);
  else if (!root || !cy_lower_parted_reduce(l, root, root_value, v))
    cy_lower_plain(l, root_value, v, cy_op_of(root ? cy_node_of(l->g, root)->op : n->op)->name, NULL);
}

static void lower_node(cy_lowering *l, cy_node node) {
  const cy_node_info *n = cy_node_of(l->g, node);
  l->node = node;
  if (n->op == CY_OP_if) {
    cy_lower_if(l, node);
  } else if (n->op == CY_OP_loop) {
    cy_lower_loop(l, node);
  } else if (cy_op_of(n->op)->cls == CY_CLASS_CALL) {
    if (!(l->o->level > 0 && l->caps->device) || !cy_lower_search(l, node))
      cy_lower_call(l, node);
  } else if (n->op == CY_OP_recurrent) { /* one kernel, three outputs */
    cy_lower_recurrent(l, node, n->out[0], n->out[0]);
  } else if (n->op == CY_OP_quantize_rows) { /* both outputs from the kernel of the first one */
    lower_value(l, node, n->out[0]);
  } else {
    for (uint32_t i = 0; i < n->nout; i++) {
      cy_value *v = cy_value_of(l->g, n->out[i]);
      if (v->inlined || v->data.bytes || l->uses.start[n->out[i]] == l->uses.start[n->out[i] + 1])
        continue;
      bool may_rename = l->place[n->out[i]].placed || output_index(l, n->out[i]) < 0;
      if (may_rename && cy_op_of(n->op)->cls == CY_CLASS_VIEW && cy_lower_view(l, node))
        continue;
      lower_value(l, node, n->out[i]);
    }
  }
  for (uint32_t i = 0; i < n->nout; i++)
    if (l->sym_start[n->out[i]] != l->sym_start[n->out[i] + 1])
      cy_lower_read_symbols(l, n->out[i]);
}

void cy_lower_steps(cy_lowering *l, cy_block block) {
  const cy_block_info *b = cy_block_of(l->g, block);
  cy_lower_concat_places(l, block);
  for (uint32_t i = 0; i < b->nnodes; i++)
    lower_node(l, b->nodes[i]);
}

/* ---- the whole graph ---- */

static void index_symbols(cy_lowering *l) {
  uint32_t nsyms = cy_sym_count(l->g);
  l->sym_start = CY_NEW_ARRAY(l->arena, uint32_t, l->nplaces + 1);
  l->sym_list = CY_NEW_ARRAY(l->arena, cy_sym, nsyms + 1);
  for (cy_sym s = 1; s <= nsyms; s++)
    if (cy_sym_of(l->g, s)->kind == CY_SYM_DATA)
      l->sym_start[cy_sym_of(l->g, s)->value + 1]++;
  for (uint32_t v = 1; v <= l->nplaces; v++)
    l->sym_start[v] += l->sym_start[v - 1];
  uint32_t *next = CY_NEW_ARRAY(l->arena, uint32_t, l->nplaces + 1);
  memcpy(next, l->sym_start, sizeof(uint32_t) * l->nplaces);
  for (cy_sym s = 1; s <= nsyms; s++)
    if (cy_sym_of(l->g, s)->kind == CY_SYM_DATA)
      l->sym_list[next[cy_sym_of(l->g, s)->value]++] = s;
}

/* Symbols whose data folding made a constant: no step computes it, so they are read at the start. */
static void read_constants(cy_lowering *l) {
  for (cy_val v = 1; v < l->nplaces; v++)
    if (l->sym_start[v] != l->sym_start[v + 1] && cy_value_of(l->g, v)->data.bytes)
      cy_lower_read_symbols(l, v);
}

static void place_inputs(cy_lowering *l) {
  const cy_port_info *ports;
  uint32_t n = cy_graph_inputs(l->g, &ports);
  for (uint32_t i = 0; i < n; i++) {
    const cy_type *t = cy_lower_type(l, ports[i].value);
    l->place[ports[i].value] = place_in(l, cy_program_add_buffer(l->p, CY_BUF_INPUT, i, type_bytes(l->g, t)), t, NULL);
    cy_lower_read_symbols(l, ports[i].value);
  }
}

/* Outputs that no kernel of their own computes: inputs and constants handed through, one value under two names. */
static void copy_outputs(cy_lowering *l) {
  const cy_port_info *ports;
  uint32_t n = cy_graph_outputs(l->g, &ports);
  for (uint32_t i = 0; i < n; i++) {
    cy_place *from = cy_lower_place(l, ports[i].value);
    cy_buffer *b = &l->p->buffers[from->buffer];
    if (b->kind == CY_BUF_OUTPUT && b->index == i)
      continue;
    const cy_type *t = cy_lower_type(l, ports[i].value);
    uint32_t buffer = cy_program_add_buffer(l->p, CY_BUF_OUTPUT, i, type_bytes(l->g, t));
    if (cy_lower_is_dynamic(l, t))
      cy_lower_step(l, CY_STEP_OUTPUT)->index = i;
    cy_place to = place_in(l, buffer, t, NULL);
    cy_lower_copy(l, cy_lower_place(l, ports[i].value), &to, t);
  }
}

static void number_step(void *next, cy_step *s) { s->position = (*(int32_t *)next)++; }

cy_program *cy_lower(cy_graph *g, const cy_lower_options *o) {
  cy_lowering l = {.g = g, .o = o, .caps = cy_caps_of(o->caps), .arena = cy_arena_create(), .p = cy_program_create(g)};
  l.busy_parts = o->level > 0 ? l.caps->busy_parts : 0;
  l.splits_rows = o->level > 0 && l.caps->splits_rows;
  cy_graph_record(g, true);
  cy_graph_require_sizes(g);
  cy_graph_record(g, false);
  l.nplaces = cy_value_count(g) + 1;
  l.place = CY_NEW_ARRAY(l.arena, cy_place, l.nplaces);
  l.uses = cy_graph_uses(g, l.arena);
  index_symbols(&l);
  cy_lower_find_checks(&l);
  l.tail = &l.p->steps;
  place_inputs(&l);
  cy_lower_growing_places(&l);
  read_constants(&l);
  cy_lower_output_places(&l);
  cy_lower_steps(&l, 1);
  copy_outputs(&l);
  int32_t next = 0;
  cy_steps_visit(l.p->steps, number_step, &next);
  cy_lower_check_shares(&l);
  cy_arena_destroy(l.arena);
  if (cy_diag_errors(cy_graph_diag(g)))
    return NULL;
  char why[1024] = "";
  if (o->verify && !cy_program_verify(l.p, why, sizeof why))
    cy_bug("lowering: %s", why);
  return l.p;
}
