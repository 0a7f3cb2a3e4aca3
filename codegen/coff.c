/* SPDX-License-Identifier: Apache-2.0 */
/* coff.c - a COFF object around a block of bytes, as Windows has them: see elf.c.
 *
 *   head: COFF header, the section's header, 4 bytes of nothing | data | tail: symbol, strings
 *
 * Linkers put the section at the end of .rdata, as the part of a name behind $ only says where. All is little-endian.
 */
#include "codegen/work.h"

#include <string.h>

static const char SECTION[] = ".rdata$z";
enum { INITIALIZED_DATA = 0x40, ALIGNED_64 = 0x700000, READABLE = 0x40000000, EXTERNAL = 2 };

static unsigned char *put(unsigned char *at, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++)
    *at++ = (unsigned char)(value >> 8 * i);
  return at;
}

static unsigned char *put_name(unsigned char *at, const char *name) {
  memcpy(at, name, strlen(name));
  return at + 8;
}

void cy_coff_data_object(uint16_t machine, const char *symbol, uint64_t bytes, cy_data_image *out) {
  size_t length = strlen(symbol) + 1;
  if (bytes > CY_WEIGHTS_SIDE_FILE + 64 || length > sizeof out->tail - 64)
    cy_bug("a COFF section or symbol is too long: '%s'", symbol);
  memset(out, 0, sizeof *out);
  out->data_offset = sizeof out->head;
  out->tail_offset = out->data_offset + bytes;
  unsigned char *at = put(out->head, machine, 2);
  at = put(at, 1, 2);                /* sections */
  at = put(at, 0, 4);                /* no date */
  at = put(at, out->tail_offset, 4); /* symbols: where, and how many */
  at = put(at, 1, 4);
  at = put(at, 0, 4);
  at = put_name(at, SECTION);
  at = put(at, 0, 8);
  at = put(at, bytes, 4);
  at = put(at, out->data_offset, 4);
  at = put(at, 0, 8); /* nothing is relocated */
  at = put(at, 0, 4);
  put(at, INITIALIZED_DATA | ALIGNED_64 | READABLE, 4);

  at = put(out->tail, 0, 4); /* the name stands in the strings, .. */
  at = put(at, 4, 4);        /* .. whose first 4 bytes are their size */
  at = put(at, 0, 4);        /* value, section, type */
  at = put(at, 1, 2);
  at = put(at, 0, 2);
  at = put(at, EXTERNAL, 1);
  at = put(at, 0, 1);
  at = put(at, 4 + length, 4);
  memcpy(at, symbol, length);
  out->tail_bytes = (size_t)(at - out->tail) + length;
}
