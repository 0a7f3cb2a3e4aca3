/* SPDX-License-Identifier: Apache-2.0 */
/* lower_options.h - what lowering asks of a target, filled in from the machine: passes know nothing of codegen, so the
 * tools stand between them. Private to the tools. */
#ifndef CYTO_LOWER_OPTIONS_H
#define CYTO_LOWER_OPTIONS_H

#include "codegen/codegen.h"
#include "passes/lower/lower.h"

static inline bool lower_options_supports(const void *machine, cy_kernel *k) { return cy_machine_supports(machine, k); }

/* The machine must outlive the lowering. */
static inline cy_lower_options lower_options_of(const cy_machine *machine, int opt_level) {
  return (cy_lower_options){.level = opt_level,
                            .supports = lower_options_supports,
                            .target = machine,
                            .cuts_rows = opt_level && cy_machine_cuts_rows(machine),
                            .planar = cy_machine_has_planar(machine),
                            .busy_parts = opt_level ? cy_machine_busy_parts(machine) : 0,
                            .grows = true,
                            .searches = opt_level && cy_machine_has_device(machine),
                            .late_checks = cy_machine_has_device(machine),
                            .few_rows = cy_machine_few_rows(machine),
                            .few_queries = cy_machine_few_queries(machine),
                            .tile_columns = cy_machine_tile_columns(machine)};
}

#endif
