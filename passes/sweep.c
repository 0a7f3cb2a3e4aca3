/* SPDX-License-Identifier: Apache-2.0 */
/* sweep.c - removes nodes whose outputs nobody uses.
 *
 * In:  any graph. Out: swept. Values that symbols read (sizes that depend on data) count as used, and so does what a
 * nested block reads from outside. The work is cy_graph_sweep(), which other passes call when they have replaced
 * things.
 */
#include "pass_int.h"

/* requires: -   establishes: swept   breaks: - */
int cy_pass_sweep(cy_pass *p) {
  cy_pass_count(p, "removed", cy_graph_sweep(p->g));
  return 0;
}
