/* SPDX-License-Identifier: Apache-2.0 */
/* pass.c - what every pass asks of the one that runs it.
 *
 * In:  the pass at work. Out: its statistics counted up, the nodes to walk over. The table of passes is pipeline.c's, which
 * calls them all: what they call stands here.
 */
#include "pass_int.h"

#include <string.h>

void cy_pass_count(cy_pass *p, const char *what, uint64_t n) {
  if (!n)
    return;
  cy_pass_stat *s = p->stat;
  uint32_t i = 0;
  while (i < s->ncounters && strcmp(s->counter[i].name, what))
    i++;
  if (i == CY_PASS_MAX_COUNTERS)
    return;
  if (i == s->ncounters) {
    s->counter[i].name = what;
    s->counter[i].count = 0;
    s->ncounters++;
  }
  s->counter[i].count += n;
}

uint32_t cy_pass_nodes(const cy_graph *g) {
  uint32_t n = 0;
  for (cy_block b = 1; b <= cy_block_count(g); b++)
    n += cy_block_of(g, b)->nnodes;
  return n;
}

const cy_node *cy_pass_walk(cy_pass *p, cy_block b, uint32_t *out_count) {
  const cy_block_info *block = cy_block_of(p->g, b);
  cy_node *nodes = CY_NEW_ARRAY(p->scratch, cy_node, block->nnodes + 1);
  if (block->nnodes)
    memcpy(nodes, block->nodes, block->nnodes * sizeof *nodes);
  *out_count = block->nnodes;
  return nodes;
}
