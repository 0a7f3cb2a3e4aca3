/* query.c - the one symbol that all models export under the same name, as shared libraries: archives of two models can be
 * linked into one program, so it is no part of them.
 *
 * Compiled when cytoc is built, carried by it as an object (codegen/link_files.S) and linked as it is: LLVM would take
 * as long for it as for a small kernel. link.c says which model it is that has the name here.
 */
#include "runtime/cyto_abi.h"

extern const cyrt_model cyrt_linked_model;

__attribute__((visibility("default"))) const cyrt_model *cyto_model_query(uint32_t version) {
  return version == CYTO_ABI_VERSION ? &cyrt_linked_model : NULL;
}
