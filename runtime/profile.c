/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* profile.c - the clock of libraries compiled by cytoc --profile.
 *
 * Generated code calls the two functions around every launch. Their rows are data of the library itself, which
 * cyto_model_profile() hands out; all contexts of the model add to them. Some 40 ns are spent per launch, part of which
 * shows in the row. A library compiled without --profile has none of this.
 */
#include "cyrt.h"

int64_t cyrt_profile_start(void) { return cyrt_os_now_ns(); }

void cyrt_profile_stop(cyrt_profile_row *row, int64_t start) {
  __atomic_fetch_add(&row->ns, cyrt_profile_start() - start, __ATOMIC_RELAXED);
  __atomic_fetch_add(&row->runs, 1, __ATOMIC_RELAXED);
}
