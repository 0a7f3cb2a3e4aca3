/* SPDX-License-Identifier: Apache-2.0 */
/* last_logits.c - --last-logits=OUTPUT: of a model that computes logits of all positions, those of the last one.
 *
 * In: the graph as read, and the name of an output of floats, [.., positions, vocabulary]. Out: that output is a slice of what it
 * was, [.., 1, vocabulary]; passes move the slice in front of the product that computes it, so that it takes one row for each
 * element of the batch. Or a diagnostic.
 */
#include "last_logits.h"

#include "ir/nearest.h"

#include <string.h>

static int bad_option(cy_graph *g, const char *format, const char *name, const char *more) {
  cy_diag_add(cy_graph_diag(g), CY_ERROR, NULL, format, name, more);
  cy_diag_blame(cy_graph_diag(g), CY_CAUSE_OPTION);
  return -1;
}

/* The number of the output of that name, or -1 after a diagnostic. */
static int find_output(cy_graph *g, const char *name) {
  const cy_port_info *ports;
  uint32_t n = cy_graph_outputs(g, &ports);
  cy_nearest near = cy_nearest_of(name, strlen(name));
  char names[400] = "", hint[CY_NEAREST_TEXT];
  for (uint32_t i = 0; i < n; i++) {
    const char *text = cy_str_text(g, ports[i].name);
    size_t used = strlen(names);
    if (!strcmp(text, name))
      return (int)i;
    cy_nearest_try(&near, text, strlen(text));
    if (used + strlen(text) + 5 < sizeof names)
      snprintf(names + used, sizeof names - used, "%s'%s'", i ? ", " : "", text);
  }
  const char *more =
      near.best ? cy_nearest_say(&near, hint) : cy_arena_printf(cy_graph_arena(g), ": expected one of %s", names);
  return bad_option(g, "option '--last-logits': the model has no output '%s'%s", name, more);
}

int cytoc_last_logits(cy_graph *g, const char *name) {
  int output = find_output(g, name);
  const cy_port_info *ports;
  if (output < 0)
    return -1;
  cy_graph_outputs(g, &ports);
  cy_val v = ports[output].value;
  cy_type t = cy_value_of(g, v)->type;
  if (t.content || t.rank < 2 || !cy_dtype_is_float((cy_dtype)t.dtype))
    return bad_option(g,
                      "option '--last-logits': output '%s' is %s: expected floats of rank 2 or more, positions on the "
                      "last axis but one",
                      name, t.content ? "no tensor" : cy_type_text(g, &t));
  int axis = t.rank - 2;
  int64_t size;
  cy_dim one = cy_dim_const(g, 1);
  if (cy_dim_is_const(g, t.dim[axis], &size) && size < 1)
    return bad_option(g, "option '--last-logits': output '%s' is %s, and has no positions", name, cy_type_text(g, &t));
  cy_build_in(g, 1);
  cy_origin origin = {.name = cy_intern(g, name), .op = cy_intern(g, "--last-logits"), .index = -1};
  cy_build_origin(g, &origin);
  cy_graph_record(g, true);
  cy_graph_require(g, one, t.dim[axis], CY_REQUIRE_AT_MOST);
  cy_val last = cy_build_slice_axis(g, v, axis, cy_dim_sub(g, t.dim[axis], one), one);
  cy_graph_record(g, false);
  if (!last)
    return -1;
  cy_graph_set_output(g, (uint32_t)output, last);
  return 0;
}
