/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - tensors of strings as Triton has them: one behind the other, each 4 bytes that tell its length, and its text.
 *
 * In and out: such bytes, and cyto_strings.
 */
#include "integrations/triton/backend.h"

#include <string.h>

triton_error *text_read(const char *name, const void *data, uint64_t bytes, cyto_string *strings, uint64_t n) {
  const char *p = data;
  uint64_t left = bytes;
  for (uint64_t i = 0; i < n; i++) {
    uint32_t length = 0;
    if (left >= sizeof length)
      memcpy(&length, p, sizeof length);
    if (left < sizeof length || left - sizeof length < length)
      return error_of(TRITON_INVALID_ARG, "input '%s': string %llu of %llu ends behind the %llu bytes of the tensor",
                      name, (unsigned long long)i, (unsigned long long)n, (unsigned long long)bytes);
    strings[i] = (cyto_string){p + sizeof length, length};
    p += sizeof length + length;
    left -= sizeof length + length;
  }
  if (left)
    return error_of(TRITON_INVALID_ARG, "input '%s': %llu bytes are left behind its %llu strings", name,
                    (unsigned long long)left, (unsigned long long)n);
  return NULL;
}

uint64_t text_bytes(const cyto_string *strings, uint64_t n) {
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < n; i++)
    bytes += sizeof(uint32_t) + strings[i].length;
  return bytes;
}

void text_write(const cyto_string *strings, uint64_t n, void *to) {
  char *p = to;
  for (uint64_t i = 0; i < n; i++) {
    uint32_t length = (uint32_t)strings[i].length;
    memcpy(p, &length, sizeof length);
    if (length)
      memcpy(p + sizeof length, strings[i].text, length);
    p += sizeof length + length;
  }
}
