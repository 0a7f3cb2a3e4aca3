/* SPDX-License-Identifier: Apache-2.0 */
/* host_model.c - what a compiled model shows to the world: its cyrt_model with all tables, <name>_model(),
 * <name>_run() and <name>_create().
 *
 * Everything is read-only data of the host module. The names of inputs and outputs are the true ONNX names; C
 * identifiers are the header's business. <name>_run() hands its arguments on to cyto_run_simple() of the runtime: the
 * structs of pointers in the header have the layout of arrays of pointers.
 */
#include "codegen/host_int.h"

#include "version.h"

#include <stdlib.h>
#include <string.h>

bool cy_host_output_dynamic(const cy_host *h, uint32_t output) {
  const cy_port_info *ports;
  cy_graph_outputs(h->g, &ports);
  const cy_type *type = &cy_value_of(h->g, ports[output].value)->type;
  for (int i = 0; i < type->rank; i++)
    if (cy_dim_has_data_sym(h->g, type->dim[i]))
      return true;
  return false;
}

/* ---- constants ---- */

static LLVMValueRef null_ptr(cy_host *h) { return LLVMConstNull(h->cg->ptr); }

static LLVMValueRef table(cy_host *h, LLVMTypeRef type, LLVMValueRef *v, uint32_t n) {
  return n ? cy_host_constant(h, LLVMConstArray2(type, v, n)) : null_ptr(h);
}

/* dims of cyrt_port: sizes; -1 - symbol for an input's symbol, -1 for what plan() and run() find out. */
static LLVMValueRef port_dims(cy_host *h, const cy_type *type, bool input) {
  LLVMValueRef v[CY_MAX_RANK];
  for (int i = 0; i < type->rank; i++) {
    int64_t size = -1;
    if (!cy_dim_is_const(h->g, type->dim[i], &size) && input) {
      const cy_term *t;
      cy_dim_terms(h->g, type->dim[i], &t);
      size = -1 - (int64_t)h->sym_index[cy_dim_atom(h->g, t->atoms[0])->sym];
    }
    v[i] = cy_i64(h->cg, size);
  }
  return table(h, h->cg->i64, v, type->rank);
}

/* ---- strings, sequences, maps, optional values ---- */

_Static_assert((int)CY_RX_ASSERT == CYRT_RX_ASSERT && (int)CY_RX_NOT_IN == CYRT_RX_NOT_IN &&
                   (int)CY_RX_NOT_AT_WORD_EDGE == CYRT_RX_NOT_AT_WORD_EDGE,
               "the compiler and the runtime agree on programs of regular expressions");
_Static_assert((int)CY_CASE_UPPER == CYRT_CASE_UPPER && (int)CY_TERM_WEIGHTED == CYRT_TERM_WEIGHTED,
               "the compiler and the runtime agree on attributes of operators on strings");

_Static_assert(CY_MAX_RANK == CYTO_MAX_RANK, "the compiler and the runtime agree on the largest rank");
_Static_assert(CY_REF == CYRT_REF, "the compiler and the runtime agree on the dtype of objects");

static LLVMValueRef type_row(cy_host *h, int kind, int dtype, LLVMValueRef of) {
  LLVMValueRef row[3] = {cy_host_i32(h, kind), cy_host_i32(h, dtype), of};
  return cy_host_constant(h, LLVMConstStructInContext(h->cg->ctx, row, 3, 0));
}

/* The chain of cyto_type for a value that holds c. */
static LLVMValueRef content_type(cy_host *h, cy_content c) {
  static const int kinds[] = {
      [CY_CONTENT_SEQUENCE] = CYTO_SEQUENCE, [CY_CONTENT_OPTIONAL] = CYTO_OPTIONAL, [CY_CONTENT_MAP] = CYTO_MAP};
  const cy_content_info *info = cy_content_of(h->g, c);
  LLVMValueRef of =
      info->item ? content_type(h, info->item) : type_row(h, CYTO_TENSOR, info->dtype, LLVMConstNull(h->cg->ptr));
  return type_row(h, kinds[info->kind], info->key, of);
}

static cy_val first_stored(const cy_graph *g, const cy_val *v, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (v[i] && (cy_value_of(g, v[i])->type.dtype == CY_STRING || cy_value_of(g, v[i])->type.dtype == CY_REF))
      return v[i];
  return 0;
}

cy_val cy_graph_first_stored(const cy_graph *g) {
  cy_val v = 0;
  for (cy_block b = 1; b <= cy_block_count(g) && !v; b++) {
    const cy_block_info *block = cy_block_of(g, b);
    v = first_stored(g, block->params, block->nparams);
    for (uint32_t i = 0; i < block->nnodes && !v; i++) {
      const cy_node_info *n = cy_node_of(g, block->nodes[i]);
      v = first_stored(g, n->in, n->nin);
      v = v ? v : first_stored(g, n->out, n->nout);
    }
    v = v ? v : first_stored(g, block->results, block->nresults);
  }
  return v;
}

/* cyrt_texts of the graph, or NULL. */
static LLVMValueRef texts_table(cy_host *h) {
  uint32_t n = cy_text_count(h->g);
  if (!cy_graph_first_stored(h->g))
    return null_ptr(h);
  LLVMValueRef *starts = calloc(n + 1, sizeof *starts);
  size_t used = 0, length;
  for (uint32_t i = 0; i < n; i++) {
    cy_text_of(h->g, i, &length);
    used += length + 1;
  }
  char *bytes = calloc(used, 1);
  if (!starts || !bytes)
    cy_no_memory();
  used = 0;
  for (uint32_t i = 0; i < n; i++) {
    const char *text = cy_text_of(h->g, i, &length);
    starts[i] = cy_i64(h->cg, (int64_t)used);
    memcpy(bytes + used, text, length);
    used += length + 1;
  }
  starts[n] = cy_i64(h->cg, (int64_t)used);
  LLVMValueRef row[3] = {cy_i64(h->cg, n), table(h, h->cg->i64, starts, n + 1),
                         cy_host_constant(h, LLVMConstStringInContext(h->cg->ctx, bytes, (unsigned)used, 1))};
  free(starts);
  free(bytes);
  return cy_host_constant(h, LLVMConstStructInContext(h->cg->ctx, row, 3, 0));
}

/* The input in whose memory output i may be made, or -1. */
static int64_t shared_input(const cy_host *h, uint32_t i) {
  for (uint32_t k = 0; k < h->p->nshares; k++)
    if (h->p->shares[k].output == i)
      return h->p->shares[k].input;
  return -1;
}

/* dim_texts of an output. */
static LLVMValueRef port_texts(cy_host *h, const cy_type *type) {
  LLVMValueRef v[CY_MAX_RANK];
  bool any = false;
  for (int i = 0; i < type->rank; i++) {
    int64_t size;
    bool known = cy_dim_is_const(h->g, type->dim[i], &size) || cy_dim_has_data_sym(h->g, type->dim[i]);
    v[i] = cy_host_text(h, known ? "" : cy_dim_text(h->g, type->dim[i]));
    any |= !known;
  }
  return any ? table(h, h->cg->ptr, v, type->rank) : null_ptr(h);
}

/* The input that output i continues, and along which axis; NULL: none. */
static const cy_memory_growth *growth_of(const cy_host *h, uint32_t i) {
  for (uint32_t k = 0; k < h->p->ngrowths; k++)
    if (h->p->growths[k].output == i)
      return &h->p->growths[k];
  return NULL;
}

static LLVMValueRef ports_table(cy_host *h, const cy_port_info *ports, uint32_t n, bool input) {
  LLVMValueRef *rows = calloc(n + 1, sizeof *rows);
  if (!rows)
    cy_no_memory();
  for (uint32_t i = 0; i < n; i++) {
    const cy_value *v = cy_value_of(h->g, ports[i].value);
    int flags = input ? (v->data.bytes ? CYRT_PORT_OPTIONAL : 0) : cy_host_output_dynamic(h, i) ? CYRT_PORT_DYNAMIC : 0;
    const cy_memory_growth *growth = input ? NULL : growth_of(h, i);
    LLVMValueRef row[] = {cy_host_text(h, cy_str_text(h->g, ports[i].name)),
                          cy_host_i32(h, v->type.dtype),
                          cy_host_i32(h, v->type.rank),
                          port_dims(h, &v->type, input),
                          cy_host_i32(h, flags),
                          v->type.content ? content_type(h, v->type.content) : null_ptr(h),
                          cy_i64(h->cg, input ? 0 : shared_input(h, i) + 1),
                          input ? null_ptr(h) : port_texts(h, &v->type),
                          cy_host_i32(h, growth ? (int64_t)growth->input + 1 : 0),
                          cy_host_i32(h, growth ? growth->axis : 0)};
    rows[i] = LLVMConstStructInContext(h->cg->ctx, row, sizeof row / sizeof *row, 0);
  }
  LLVMValueRef t = n ? table(h, LLVMTypeOf(rows[0]), rows, n) : null_ptr(h);
  free(rows);
  return t;
}

static LLVMValueRef sym_names(cy_host *h) {
  LLVMValueRef *names = calloc(h->n_syms + 1, sizeof *names), none = cy_host_text(h, "");
  cy_sym *inputs;
  if (!names)
    cy_no_memory();
  uint32_t n = cy_input_symbols(h->g, &inputs);
  for (uint32_t i = 0; i < h->n_syms; i++)
    names[i] = i < n ? cy_host_text(h, cy_str_text(h->g, cy_sym_of(h->g, inputs[i])->name)) : none;
  LLVMValueRef t = table(h, h->cg->ptr, names, h->n_syms);
  free(names);
  return t;
}

static LLVMValueRef metadata_table(cy_host *h, const cy_metadata *metadata, uint32_t n) {
  LLVMValueRef *rows = calloc(n + 1, sizeof *rows);
  if (!rows)
    cy_no_memory();
  for (uint32_t i = 0; i < n; i++) {
    LLVMValueRef key = cy_host_text(h, cy_str_text(h->g, metadata[i].key));
    LLVMValueRef row[2] = {key, cy_host_text(h, cy_str_text(h->g, metadata[i].value))};
    rows[i] = LLVMConstStructInContext(h->cg->ctx, row, 2, 0);
  }
  LLVMValueRef t = n ? table(h, LLVMTypeOf(rows[0]), rows, n) : null_ptr(h);
  free(rows);
  return t;
}

static LLVMValueRef weights_symbol(cy_host *h) {
  if (!h->build->has_weights || h->build->weights_file)
    return null_ptr(h);
  return cy_host_external(h, cy_host_symbol(h, "_weights"));
}

/* ---- exported functions ---- */

static void emit_model_function(cy_host *h, LLVMValueRef model) {
  LLVMValueRef fn = cy_fn_begin(h->cg, cy_host_symbol(h, "_model"), h->cg->ptr, NULL, 0, 0);
  LLVMSetVisibility(fn, LLVMDefaultVisibility);
  cy_fn_end(h->cg, model);
}

/* int32_t <name>_run(cache, [inputs,] [symbols,] outputs, error): arguments without content are left out, as in the
 * header. */
static void emit_run_function(cy_host *h, LLVMValueRef model, bool has_inputs) {
  cy_cg *cg = h->cg;
  LLVMTypeRef params[6] = {cg->ptr, cg->ptr, cg->ptr, cg->ptr, cg->ptr, cg->ptr};
  LLVMValueRef simple = cy_host_declare(h, "cyto_run_simple", cg->i32, params, 6, false);
  unsigned n = 3 + has_inputs + (h->n_input_syms > 0), at = 0;
  LLVMValueRef fn = cy_fn_begin(cg, cy_host_symbol(h, "_run"), cg->i32, params, n, 0);
  LLVMSetVisibility(fn, LLVMDefaultVisibility);
  LLVMValueRef args[6] = {model, LLVMGetParam(fn, at++)};
  args[2] = has_inputs ? LLVMGetParam(fn, at++) : null_ptr(h);
  args[3] = h->n_input_syms ? LLVMGetParam(fn, at++) : null_ptr(h);
  args[4] = LLVMGetParam(fn, at++);
  args[5] = LLVMGetParam(fn, at++);
  cy_fn_end(cg, cy_call(cg, simple, args, 6));
}

/* int32_t <name>_create(cache, options, error): the struct of options in the header is cyto_simple_options. */
static void emit_create_function(cy_host *h, LLVMValueRef model) {
  cy_cg *cg = h->cg;
  LLVMTypeRef params[4] = {cg->ptr, cg->ptr, cg->ptr, cg->ptr};
  LLVMValueRef simple = cy_host_declare(h, "cyto_create_simple", cg->i32, params, 4, false);
  LLVMValueRef fn = cy_fn_begin(cg, cy_host_symbol(h, "_create"), cg->i32, params, 3, 0);
  LLVMSetVisibility(fn, LLVMDefaultVisibility);
  LLVMValueRef args[4] = {model, LLVMGetParam(fn, 0), LLVMGetParam(fn, 1), LLVMGetParam(fn, 2)};
  cy_fn_end(cg, cy_call(cg, simple, args, 4));
}

/* The fields in the order of cyrt_model; LLVM pads the struct as C does. */
void cy_host_emit_model(cy_host *h, LLVMValueRef plan, LLVMValueRef run) {
  cy_work *b = h->build;
  const cy_port_info *in, *out;
  uint32_t nin = cy_graph_inputs(h->g, &in), nout = cy_graph_outputs(h->g, &out);
  const cy_metadata *metadata;
  uint32_t nmetadata = cy_graph_metadata(h->g, &metadata);
  const cy_host_device *target = b->machine->target->host;
  LLVMValueRef device = null_ptr(h), device_data = null_ptr(h);
  char compiler[80];
  snprintf(compiler, sizeof compiler, "cytoc %s%s%s", CYTO_VERSION, *b->compiled_by.name ? ", " : "",
           b->compiled_by.name);
  if (target->describe)
    target->describe(h, &device, &device_data);
  LLVMValueRef fields[] = {cy_host_i32(h, CYTO_ABI_VERSION),
                           cy_host_i32(h, 0),
                           cy_host_text(h, cy_graph_name(h->g)),
                           cy_host_text(h, b->machine->text),
                           cy_host_text(h, b->machine->needs),
                           cy_host_text(h, compiler),
                           cy_host_i32(h, nin),
                           cy_host_i32(h, nout),
                           ports_table(h, in, nin, true),
                           ports_table(h, out, nout, false),
                           cy_host_i32(h, h->n_syms),
                           cy_host_i32(h, h->n_input_syms),
                           sym_names(h),
                           cy_host_i32(h, h->n_planned * CYRT_PLAN_WORDS),
                           cy_host_i32(h, h->p->ndynamic),
                           weights_symbol(h),
                           cy_i64(h->cg, (int64_t)h->p->weights_bytes),
                           b->weights_file ? cy_host_text(h, b->weights_file) : null_ptr(h),
                           plan,
                           run,
                           device,
                           device_data,
                           texts_table(h),
                           cy_i64(h->cg, nmetadata),
                           metadata_table(h, metadata, nmetadata),
                           b->o->profile ? cy_host_profile_table(h) : null_ptr(h)};
  LLVMValueRef data = LLVMConstStructInContext(h->cg->ctx, fields, sizeof fields / sizeof fields[0], 0);
  LLVMValueRef model = LLVMAddGlobal(h->cg->module, LLVMTypeOf(data), cy_host_symbol(h, "_cyrt_model"));
  LLVMSetInitializer(model, data);
  LLVMSetGlobalConstant(model, 1);
  LLVMSetVisibility(model, LLVMHiddenVisibility);
  emit_model_function(h, model);
  emit_run_function(h, model, nin > 0);
  emit_create_function(h, model);
}
