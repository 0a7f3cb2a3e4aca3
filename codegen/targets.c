/* SPDX-License-Identifier: Apache-2.0 */
/* targets.c - the table of targets, and looking one up by what --target says.
 *
 * A new target is one row here and one folder beside cpu/.
 */
#include "codegen/target.h"

#include <stdlib.h>

static const cy_target *const targets[] = {&cy_target_cpu, &cy_target_cuda};
#define NTARGETS (sizeof targets / sizeof targets[0])

static void no_such_target(const char *spec, const char *reason, cy_diag_sink *diag) {
  char list[512] = "", near[CY_NEAREST_TEXT];
  size_t n = 0;
  cy_nearest nearest = cy_nearest_of(spec, strlen(spec));
  for (size_t i = 0; i < NTARGETS && n < sizeof list; i++)
    n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? "; " : "", targets[i]->specs);
  for (size_t i = 0; i < NTARGETS; i++)
    if (targets[i]->try_names)
      targets[i]->try_names(&nearest);
  if (reason)
    cy_diag_add(diag, CY_ERROR, NULL, "target '%s': %s; expected %s", spec, reason, list);
  else
    cy_diag_add(diag, CY_ERROR, NULL, "unknown target '%s'; expected %s%s", spec, list,
                cy_nearest_say(&nearest, near));
  cy_diag_blame(diag, CY_CAUSE_OPTION);
}

/* NULL: nobody knows it; *out_reason, for free(), is then NULL or what a target says to it. */
static cy_machine *machine_match(const char *spec, char **out_reason) {
  cy_machine *m = calloc(1, sizeof *m);
  if (!m)
    cy_no_memory();
  for (size_t i = 0; i < NTARGETS && !*out_reason; i++)
    if (targets[i]->match(spec, m, out_reason)) {
      m->target = targets[i];
      return m;
    }
  cy_machine_close(m);
  return NULL;
}

cy_machine *cy_machine_open(const char *spec, cy_diag_sink *diag) {
  if (!spec || !*spec)
    spec = "native";
  char *reason = NULL;
  cy_machine *m = machine_match(spec, &reason);
  if (!m)
    no_such_target(spec, reason, diag);
  free(reason);
  return m;
}

void cy_machine_close(cy_machine *m) {
  if (!m)
    return;
  if (m->target)
    m->target->release(m);
  free(m->cpu);
  free(m->text);
  free(m->needs);
  free(m);
}

const char *cy_machine_text(const cy_machine *m) { return m->text; }

int64_t cy_machine_busy_parts(const cy_machine *m) { return m->target->busy_parts; }

bool cy_machine_cuts_rows(const cy_machine *m) { return m->target->cuts_rows; }

bool cy_machine_has_device(const cy_machine *m) { return m->target->device; }

int64_t cy_machine_most_head(const cy_machine *m) { return m->target->most_head; }

int64_t cy_machine_tile_columns(const cy_machine *m) { return m->tile_columns; }

double cy_machine_layer_cycles(const cy_machine *m, const cy_graph *g, const cy_node_info *n, const int64_t *sizes,
                               cy_layer_form form) {
  return m->target->layer_cycles ? m->target->layer_cycles(m, g, n, sizes, form) : 0;
}

double cy_machine_rounding_margin(const cy_machine *m) { return m->rounding_margin; }

bool cy_machine_has_planar(const cy_machine *m) { return m->target->conv_cycles != NULL; }

bool cy_machine_conv_cycles(const cy_machine *m, const cy_graph *g, const cy_node_info *n, const int64_t *sizes,
                            cy_conv_cycles *out) {
  return m->target->conv_cycles && m->target->conv_cycles(m, g, n, sizes, out);
}

bool cy_machine_half_factors(const cy_machine *m, cy_dtype half, const cy_graph *g, const cy_node_info *n,
                             const int64_t *sizes) {
  return m->target->half_factors && m->target->half_factors(m, half, g, n, sizes);
}

bool cy_machine_half_weights(const cy_machine *m, cy_dtype half) {
  return m->target->half_weights && m->target->half_weights(m, half);
}

bool cy_machine_blocks_round(const cy_machine *m) { return m->target->blocks_round; }
bool cy_machine_words(const cy_machine *m) { return m->target->words; }
bool cy_machine_mixed_bytes(const cy_machine *m) { return m->target->mixed_bytes; }

bool cy_machine_int_rows(const cy_machine *m, int bits, int64_t block, int64_t n) {
  return m->target->int_rows && m->target->int_rows(m, bits, block, n);
}

int64_t cy_machine_few_rows(const cy_machine *m) { return m->target->few_rows; }

int64_t cy_machine_few_queries(const cy_machine *m) { return m->target->few_queries; }

bool cy_machine_allow_tf32(cy_machine *m) { return m->tf32 = m->target->tf32; }

bool cy_machine_set_cudnn(cy_machine *m, cy_cudnn_use use) {
  m->cudnn = use;
  return m->target->cudnn;
}

bool cy_machine_forgo_fast(cy_machine *m) {
  if (m->target->forgo_fast)
    m->target->forgo_fast(m);
  return m->target->forgo_fast;
}

void cy_machine_prefer_size(cy_machine *m) { m->smallest = true; }

bool cy_machine_supports(const cy_machine *m, cy_kernel *k) { return m->target->supports(m, k); }

void cy_machine_list(FILE *out) {
  for (size_t i = 0; i < NTARGETS; i++)
    fprintf(out, "%-6s %s\n", targets[i]->name, targets[i]->specs);
  char *reason = NULL;
  cy_machine *m = machine_match("native", &reason);
  fprintf(out, "here   %s\n", m ? m->text : reason ? reason : "no CPU that there is code for");
  free(reason);
  cy_machine_close(m);
}
