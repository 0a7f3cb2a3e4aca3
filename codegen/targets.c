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
    cy_diag_add(diag, CY_ERROR, NULL, "unknown target '%s'; expected %s%s", spec, list, cy_nearest_say(&nearest, near));
  cy_diag_blame(diag, CY_CAUSE_OPTION);
}

/* NULL: nobody knows it; *out_reason, for free(), is then NULL or what a target says to it. */
static cy_machine *machine_match(const char *spec, char **out_reason) {
  cy_machine *m = calloc(1, sizeof *m);
  if (!m)
    cy_no_memory();
  for (size_t i = 0; i < NTARGETS && !*out_reason; i++) {
    m->caps = targets[i]->caps;
    m->caps.machine = m;
    if (targets[i]->match(spec, m, out_reason)) {
      m->target = targets[i];
      return m;
    }
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

const cy_target_caps *cy_machine_caps(const cy_machine *m) { return &m->caps; }

bool cy_machine_allow_tf32(cy_machine *m) { return m->tf32 = m->target->tf32; }

bool cy_machine_set_library(cy_machine *m, cy_library library, cy_library_use use) {
  m->libraries[library] = use;
  return m->target->libraries;
}

bool cy_machine_strict_fp(cy_machine *m) {
  if (m->target->strict_fp)
    m->target->strict_fp(m);
  return m->target->strict_fp;
}

bool cy_machine_choose(cy_machine *m, cy_choices *choices) {
  if (m->target->choose)
    m->target->choose(m, choices);
  return m->target->choose;
}

void cy_machine_prefer_size(cy_machine *m) { m->smallest = true; }

void cy_machine_list(FILE *out) {
  for (size_t i = 0; i < NTARGETS; i++)
    fprintf(out, "%-6s %s\n", targets[i]->name, targets[i]->specs);
  for (size_t i = 0; i < NTARGETS; i++)
    if (targets[i]->names)
      fprintf(out, "%-6s%s\n", "names", targets[i]->names);
  char *reason = NULL;
  cy_machine *m = machine_match("native", &reason);
  fprintf(out, "here   %s\n", m ? m->text : reason ? reason : "no CPU that there is code for");
  free(reason);
  cy_machine_close(m);
}
