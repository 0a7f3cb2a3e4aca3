/* SPDX-License-Identifier: Apache-2.0 */
/* explain_json.c - what --explain=json prints: the program as `cytoc report` draws it.
 *
 * In: a program whose kernels have their plans and whose memory is planned. Out: one line of JSON:
 *   {"target", "device": is it one, "clock_hz", "flops_per_cycle", "cache_bytes", "bytes_per_cycle": [cached, memory],
 *    "sizes": {symbol: assumed}, "weights_bytes", "arena_bytes", "arena_bytes_per_thread",
 *    "steps": [{"position", "kernel", "algorithm", "blocks", "why", "ops", "nodes": [{"name", "op", "index", "graph"}..], "layout", "output",
 *               "shape", "dtype", "flops", "read_bytes", "write_bytes", "floor_us", "by_bytes", "reads": [buffer..],
 *               "writes": [..], "alive"}..],
 *    "buffers": [{"id", "kind", "name", "bytes", "first", "last", "scratch"}..]}
 * in the order of the program. Sizes that are left open have the values that --explain assumes. floor_us is that of one
 * core, or of the device.
 */
#define _GNU_SOURCE
#include "codegen/explain/explain_int.h"
#include "ir/clock.h"

#include <jansson.h>
#include <stdlib.h>

typedef struct printer {
  cy_work *b;
  int64_t *syms;
  json_t *steps;
  int64_t *alive; /* [positions + 2] */
  double rate;
} printer;

/* Names of models may be any bytes; JSON has text only. */
static json_t *text(const char *s) {
  json_t *string = json_string(s ? s : "");
  return string ? string : json_string("?");
}

/* The ONNX nodes of a step, each once. */
static json_t *nodes_json(cy_graph *g, const cy_node *list, uint32_t n) {
  json_t *nodes = json_array();
  for (uint32_t i = 0; i < n; i++) {
    const cy_origin *o = &cy_node_of(g, list[i])->origin;
    bool seen = o->index < 0;
    for (uint32_t k = 0; k < i && !seen; k++) {
      const cy_origin *other = &cy_node_of(g, list[k])->origin;
      seen = other->index == o->index && other->graph == o->graph;
    }
    if (!seen)
      json_array_append_new(nodes, json_pack("{s:o, s:o, s:i, s:o}", "name", text(cy_str_text(g, o->name)), "op",
                                             text(cy_str_text(g, o->op)), "index", (int)o->index, "graph",
                                             text(cy_str_text(g, o->graph))));
  }
  return nodes;
}

/* What the last node of a step gives. */
static void add_result(printer *p, json_t *step, cy_node node) {
  cy_graph *g = p->b->g;
  const cy_value *v = cy_value_of(g, cy_node_of(g, node)->out[0]);
  json_t *shape = json_array();
  for (int i = 0; i < v->type.rank; i++)
    json_array_append_new(shape, json_integer(cy_dim_eval(g, v->type.dim[i], p->syms)));
  json_object_set_new(step, "output", text(v->name ? cy_str_text(g, v->name) : ""));
  json_object_set_new(step, "shape", shape);
  json_object_set_new(step, "dtype", text(cy_dtype_of((cy_dtype)v->type.dtype)->name));
}

static void add_buffers(const printer *p, json_t *step, const cy_step *s) {
  json_t *reads = json_array(), *writes = json_array();
  const cy_karg_info *args = NULL;
  uint32_t n = s->kind == CY_STEP_LAUNCH ? cy_kernel_args(s->kernel, &args) : 0;
  const cy_kernel_plan *plan = n ? cy_kernels_plan(p->b, s->kernel) : NULL;
  for (uint32_t i = 0; i < s->nbind && i < n; i++)
    if ((int32_t)i != plan->scratch_arg && (int32_t)i != plan->shared_arg && args[i].kind != CY_ARG_SCRATCH &&
        p->b->p->buffers[s->bind[i].buffer].kind != CY_BUF_CONST)
      json_array_append_new(args[i].kind == CY_ARG_WRITE ? writes : reads, json_integer(s->bind[i].buffer));
  for (uint32_t i = 0; i < s->nin; i++)
    if (s->in[i].type.dtype != CY_NONE && p->b->p->buffers[s->in[i].at.buffer].kind != CY_BUF_CONST)
      json_array_append_new(reads, json_integer(s->in[i].at.buffer));
  for (uint32_t i = 0; i < s->nout; i++)
    if (s->out[i].type.dtype != CY_NONE)
      json_array_append_new(writes, json_integer(s->out[i].at.buffer));
  json_object_set_new(step, "reads", reads);
  json_object_set_new(step, "writes", writes);
}

static void add_launch(printer *p, json_t *step, const cy_step *s) {
  const cy_kernel_plan *plan = cy_kernels_plan(p->b, s->kernel);
  cy_launch_facts facts = cy_launch_explain(p->b, s, plan);
  cy_cost cost = cy_kernel_cost(s->kernel, p->syms);
  char layout[CY_MAX_RANK + 1];
  json_object_set_new(step, "kernel", text(plan->symbol));
  json_object_set_new(step, "algorithm", text(plan->algorithm));
  json_object_set_new(step, "blocks", text(plan->blocks));
  json_object_set_new(step, "why", text(plan->why));
  json_object_set_new(step, "ops", text(facts.ops));
  json_object_set_new(step, "nodes", nodes_json(p->b->g, s->fused, s->nfused));
  json_object_set_new(step, "layout", text(cy_launch_layout(p->b, s, layout)));
  json_object_set_new(step, "flops", json_real(cost.flops));
  json_object_set_new(step, "read_bytes", json_real(cost.read_bytes));
  json_object_set_new(step, "write_bytes", json_real(cost.write_bytes));
  json_object_set_new(step, "by_bytes", json_boolean(facts.by_bytes));
  if (facts.floor > 0)
    json_object_set_new(step, "floor_us", json_real(facts.floor / p->rate * 1e6));
  if (s->nfused)
    add_result(p, step, s->fused[s->nfused - 1]);
}

static void add_call(const printer *p, json_t *step, const cy_step *s) {
  json_object_set_new(step, "kernel", text(s->call));
  json_object_set_new(step, "algorithm", text("runtime"));
  json_object_set_new(step, "ops", text(s->call));
  json_object_set_new(step, "nodes", nodes_json(p->b->g, &s->node, s->node != 0));
}

static void add_step(void *ctx, cy_step *s) {
  printer *p = ctx;
  if (s->kind != CY_STEP_LAUNCH && s->kind != CY_STEP_CALL)
    return;
  json_t *step = json_pack("{s:i, s:I}", "position", (int)s->position, "alive", (json_int_t)p->alive[s->position]);
  if (s->kind == CY_STEP_LAUNCH)
    add_launch(p, step, s);
  else
    add_call(p, step, s);
  add_buffers(p, step, s);
  json_array_append_new(p->steps, step);
}

static json_t *buffers_json(const printer *p, const cy_memory *m) {
  static const char *const kinds[] = {[CY_BUF_ARENA] = "arena",
                                      [CY_BUF_INPUT] = "input",
                                      [CY_BUF_OUTPUT] = "output",
                                      [CY_BUF_CONST] = "const",
                                      [CY_BUF_DYNAMIC] = "dynamic"};
  const cy_port_info *in, *out;
  cy_graph_inputs(p->b->g, &in);
  cy_graph_outputs(p->b->g, &out);
  json_t *list = json_array();
  for (uint32_t i = 0; i < p->b->p->nbuffers; i++) {
    const cy_buffer *b = &p->b->p->buffers[i];
    if (b->kind == CY_BUF_CONST || b->first < 0)
      continue;
    const cy_port_info *port = b->kind == CY_BUF_INPUT    ? &in[b->index]
                               : b->kind == CY_BUF_OUTPUT ? &out[b->index]
                                                          : NULL;
    json_array_append_new(list, json_pack("{s:i, s:s, s:o, s:I, s:i, s:i, s:b}", "id", (int)i, "kind", kinds[b->kind],
                                          "name", text(port ? cy_str_text(p->b->g, port->name) : ""), "bytes",
                                          (json_int_t)cy_dim_eval(p->b->g, b->bytes, p->syms), "first", (int)b->first,
                                          "last", (int)b->last, "scratch", (int)m->scratch[i]));
  }
  return list;
}

static json_t *sizes_json(const printer *p) {
  cy_sym *inputs;
  uint32_t n = cy_input_symbols(p->b->g, &inputs);
  json_t *sizes = json_object();
  for (uint32_t i = 0; i < n; i++) {
    const char *name = cy_str_text(p->b->g, cy_sym_of(p->b->g, inputs[i])->name);
    if (*name)
      json_object_set_new(sizes, name, json_integer(p->syms[inputs[i]]));
  }
  return sizes;
}

void cy_explain_json(cy_work *b, FILE *out) {
  cy_memory m = cy_memory_measure(b);
  cy_rates rates = cy_explain_rates(b);
  printer p = {b, m.syms, json_array(), m.alive, rates.cycles_per_second};
  cy_steps_visit(b->p->steps, add_step, &p);
  json_t *all =
      json_pack("{s:o, s:b, s:f, s:f, s:f, s:[f, f], s:o, s:I, s:I, s:I, s:o, s:o}", "target", text(b->machine->text),
                "device", (int)b->machine->caps.device, "clock_hz", rates.cycles_per_second, "flops_per_cycle",
                rates.flops_per_cycle, "cache_bytes", rates.cache_bytes, "bytes_per_cycle",
                rates.bytes_per_cycle_cached, rates.bytes_per_cycle_memory, "sizes", sizes_json(&p), "weights_bytes",
                (json_int_t)b->p->weights_bytes, "arena_bytes", (json_int_t)m.one_thread, "arena_bytes_per_thread",
                (json_int_t)(m.two_threads - m.one_thread), "steps", p.steps, "buffers", buffers_json(&p, &m));
  json_dumpf(all, out, JSON_COMPACT | JSON_REAL_PRECISION(9));
  fputc('\n', out);
  json_decref(all);
  cy_memory_free(&m);
}
