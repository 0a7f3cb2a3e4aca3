/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* query.c - the one symbol that all models export under the same name, as shared libraries: archives of two models can be
 * linked into one program, so it is no part of them.
 *
 * Compiled when cytoc is built, carried by it as an object (codegen/link_files.S) and linked as it is: LLVM would take
 * as long for it as for a small kernel. link.c says which model it is that has the name here.
 */
#include "runtime/cyto.h"

extern const cyrt_model cyrt_linked_model;

CYTO_API const cyrt_model *cyto_model_query(uint32_t version) {
  return version == CYTO_ABI_VERSION ? &cyrt_linked_model : NULL;
}

#ifdef _WIN32
/* What Windows calls when the library comes and goes. */
int cyrt_dll_main(void *library, uint32_t reason, void *reserved);
int cyrt_dll_main(void *library, uint32_t reason, void *reserved) {
  (void)library, (void)reason, (void)reserved;
  return 1;
}
#endif
