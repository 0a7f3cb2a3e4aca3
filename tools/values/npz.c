/* SPDX-License-Identifier: Apache-2.0 */
/* npz.c - the arrays of an .npz archive, as numpy.savez and numpy.savez_compressed write them.
 *
 * In:  a path. Out: the bytes of each entry, one after the other, to a function of the caller's.
 *
 * An .npz is a ZIP archive of .npy files, stored or deflated. Sizes, offsets and checksums are those of the central
 * directory: local headers may leave them empty. Nothing in the file is believed: every offset is held against the
 * file's end, the size that an entry claims against what so many deflated bytes can become (so that a damaged size
 * asks for no memory that the file could not fill), and what came out against the size and the CRC-32. Encrypted
 * entries, other methods and entries of 4 GB or more (ZIP64) are refused.
 */
#include "tools/calibrate/calibrate.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

enum { END_BYTES = 22, CENTRAL_BYTES = 46, LOCAL_BYTES = 30, STORED = 0, DEFLATED = 8 };
enum { MAX_GROWTH = 1032 }; /* bytes out of one deflated byte: a match of 258 from two bits */

typedef struct archive {
  const char *path;
  uint8_t *file;
  size_t size;
  char *error;
} archive;

/* What the central directory says of an entry. */
typedef struct entry {
  char name[NAME_MAX + 1];
  uint32_t flags, method, crc, packed, bytes, local;
} entry;

static int fail(const archive *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int fail(const archive *a, const char *format, ...) {
  char text[TENSOR_ERROR_SIZE / 2];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  snprintf(a->error, TENSOR_ERROR_SIZE, "'%.240s': %s", a->path, text);
  return -1;
}

static uint32_t le(const uint8_t *p, int n) {
  uint32_t v = 0;
  for (int i = n - 1; i >= 0; i--)
    v = v << 8 | p[i];
  return v;
}

/* The entry of the central directory at *at; sets where the next one is. */
static int read_entry(const archive *a, size_t *at, entry *out) {
  if (*at > a->size || a->size - *at < CENTRAL_BYTES || le(a->file + *at, 4) != 0x02014b50)
    return fail(a, "damaged archive: an entry is missing in its directory");
  const uint8_t *c = a->file + *at;
  size_t name = le(c + 28, 2);
  if (a->size - *at - CENTRAL_BYTES < name)
    return fail(a, "damaged archive: the directory is cut off");
  *out = (entry){.flags = le(c + 8, 2),
                 .method = le(c + 10, 2),
                 .crc = le(c + 16, 4),
                 .packed = le(c + 20, 4),
                 .bytes = le(c + 24, 4),
                 .local = le(c + 42, 4)};
  snprintf(out->name, sizeof out->name, "%.*s", (int)name, (const char *)c + CENTRAL_BYTES);
  *at += CENTRAL_BYTES + name + le(c + 30, 2) + le(c + 32, 2);
  return 0;
}

/* Where the data of e begins; NULL: it does not lie in the file. */
static uint8_t *find_data(const archive *a, const entry *e) {
  size_t at = (size_t)e->local + LOCAL_BYTES;
  if (at > a->size || le(a->file + e->local, 4) != 0x04034b50)
    return NULL;
  at += le(a->file + e->local + 26, 2) + le(a->file + e->local + 28, 2);
  return at <= a->size && e->packed <= a->size - at ? a->file + at : NULL;
}

/* `packed` bytes into exactly `bytes`. */
static bool unpack(uint8_t *from, uint32_t packed, uint8_t *to, uint32_t bytes) {
  z_stream z = {.next_in = from, .avail_in = packed, .next_out = to, .avail_out = bytes};
  if (inflateInit2(&z, -MAX_WBITS) != Z_OK)
    return false;
  int status = inflate(&z, Z_FINISH);
  inflateEnd(&z);
  return status == Z_STREAM_END && !z.avail_out && !z.avail_in;
}

static int check_entry(const archive *a, const entry *e) {
  if (e->flags & 1)
    return fail(a, "'%.100s' is encrypted: save it by numpy.savez or numpy.savez_compressed", e->name);
  if (e->method != STORED && e->method != DEFLATED)
    return fail(a, "'%.100s' is compressed by method %u: expected deflate, as by numpy.savez_compressed, or none", e->name,
                e->method);
  if (e->packed == UINT32_MAX || e->bytes == UINT32_MAX || e->local == UINT32_MAX)
    return fail(a, "'%.100s' has 4 GB or more: use a folder of .npy files", e->name);
  bool possible = e->method == STORED ? e->bytes == e->packed : e->bytes / MAX_GROWTH <= e->packed;
  return possible ? 0 : fail(a, "damaged archive: '%.100s' cannot be %u bytes out of %u", e->name, e->bytes, e->packed);
}

/* The contents of e, checked; *out_own: they are malloc'ed, not a part of the file. */
static int read_data(const archive *a, const entry *e, uint8_t **out, uint8_t **out_own) {
  if (check_entry(a, e))
    return -1;
  *out = find_data(a, e);
  if (!*out)
    return fail(a, "damaged archive: '%.100s' does not lie in the file", e->name);
  if (e->method == DEFLATED) {
    *out_own = malloc((size_t)e->bytes + 1);
    if (!*out_own)
      return fail(a, "no memory for the %u bytes of '%.100s'", e->bytes, e->name);
    if (!unpack(*out, e->packed, *out_own, e->bytes))
      return fail(a, "damaged archive: '%.100s' cannot be decompressed to %u bytes", e->name, e->bytes);
    *out = *out_own;
  }
  if (crc32_z(0, *out, e->bytes) != e->crc)
    return fail(a, "damaged archive: the checksum of '%.100s' is wrong", e->name);
  return 0;
}

static int each_entry(const archive *a, npz_visit *visit, void *ctx) {
  size_t end = a->size < END_BYTES ? 0 : a->size - END_BYTES;
  while (end && le(a->file + end, 4) != 0x06054b50)
    end--;
  if (a->size < END_BYTES || le(a->file + end, 4) != 0x06054b50)
    return fail(a, "not an .npz archive");
  uint32_t entries = le(a->file + end + 10, 2);
  size_t at = le(a->file + end + 16, 4);
  int status = 0;
  for (uint32_t i = 0; i < entries && !status; i++) {
    entry e;
    uint8_t *bytes, *own = NULL;
    status = read_entry(a, &at, &e);
    if (!status)
      status = read_data(a, &e, &bytes, &own);
    if (!status)
      status = visit(ctx, e.name, bytes, e.bytes, a->error);
    free(own);
  }
  return status;
}

int npz_each(const char *path, npz_visit *visit, void *ctx, char error[TENSOR_ERROR_SIZE]) {
  archive a = {.path = path, .error = error};
  if (file_read(path, &a.file, &a.size, error))
    return -1;
  int status = each_entry(&a, visit, ctx);
  free(a.file);
  return status;
}
