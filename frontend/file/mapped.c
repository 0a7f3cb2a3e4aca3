/* SPDX-License-Identifier: Apache-2.0 */
/* mapped.c - an ONNX file of any size, mapped, and its ModelProto without the weights.
 *
 * In:  a path. Out: the mapping, and a protobuf-c ModelProto in which every TensorProto's bulk data is replaced by a
 * cy_bulk token in raw_data that says where in the file the data is. Method: one pass over the wire format, driven by
 * protobuf-c's own descriptors, copies everything else into a small "skeleton" message. Lengths of enclosing messages
 * shrink, so they are written as five-byte padded varints and patched when the message ends. protobuf-c then unpacks
 * the skeleton only: a 1 GB model costs its graph, not its weights. The pass is also the guard in front of protobuf-c:
 * it checks bounds and limits nesting (protobuf-c recurses per level). doc_string is dropped, and so is metadata_props
 * but for the model's own: nobody reads them here.
 */
#include "frontend/import_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_SKELETON ((size_t)1 << 30)

bool cy_mapping_open(cy_mapping *m, const char *path, char *why, size_t room) {
  *m = (cy_mapping){0};
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is not waited for */
  if (fd < 0) {
    snprintf(why, room, "cannot open '%s': %s", path, strerror(errno));
    return false;
  }
  struct stat st;
  bool ok = false;
  if (fstat(fd, &st) != 0) {
    snprintf(why, room, "cannot read '%s': %s", path, strerror(errno));
  } else if (!S_ISREG(st.st_mode)) {
    snprintf(why, room, "'%s' is not a regular file", path);
  } else if (st.st_size == 0) {
    snprintf(why, room, "'%s' is empty", path);
  } else {
    void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) {
      snprintf(why, room, "cannot map '%s': %s", path, strerror(errno));
    } else {
      m->bytes = p;
      m->size = (uint64_t)st.st_size;
      ok = true;
    }
  }
  close(fd);
  return ok;
}

void cy_mapping_close(cy_mapping *m) {
  if (m->bytes && !m->borrowed)
    munmap((void *)(uintptr_t)m->bytes, m->size);
  *m = (cy_mapping){0};
}

/* ---- the skeleton ---- */

typedef struct scan {
  const uint8_t *bytes;
  uint8_t *out;
  size_t n, capacity;
  cy_diag_sink *diag;
  cy_location where;
} scan;

static bool fail(scan *s, uint64_t pos, const char *what) {
  cy_diag_add(s->diag, CY_ERROR, &s->where,
              "not a valid ONNX model: %s at byte %llu; is the file truncated, damaged, or of another kind?", what,
              (unsigned long long)pos);
  return false;
}

static bool put(scan *s, const void *p, size_t n) {
  if (n > MAX_SKELETON || s->n + n > MAX_SKELETON) {
    cy_diag_add(s->diag, CY_ERROR, &s->where,
                "the model without its tensor data is larger than 1 GiB; move large attribute lists into tensors");
    return false;
  }
  if (s->n + n > s->capacity) {
    size_t capacity = s->capacity ? s->capacity * 2 : 1 << 16;
    while (capacity < s->n + n)
      capacity *= 2;
    uint8_t *out = realloc(s->out, capacity);
    if (!out)
      cy_no_memory();
    s->out = out;
    s->capacity = capacity;
  }
  if (n)
    memcpy(s->out + s->n, p, n);
  s->n += n;
  return true;
}

static bool read_varint(const uint8_t *b, uint64_t *pos, uint64_t end, uint64_t *out) {
  uint64_t v = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (*pos >= end)
      return false;
    uint8_t c = b[(*pos)++];
    if (shift < 64)
      v |= (uint64_t)(c & 127) << shift;
    if (!(c & 128)) {
      *out = v;
      return true;
    }
  }
  return false;
}

static size_t encode_varint(uint8_t *out, uint64_t v) {
  size_t n = 0;
  for (; v >= 128; v >>= 7)
    out[n++] = (uint8_t)(v | 128);
  out[n++] = (uint8_t)v;
  return n;
}

static void patch_length(scan *s, size_t at) {
  uint32_t len = (uint32_t)(s->n - at - 5);
  for (int i = 0; i < 5; i++, len >>= 7)
    s->out[at + (size_t)i] = (uint8_t)((len & 127) | (i < 4 ? 128 : 0));
}

static bool is_bulk(uint32_t field) {
  return field == 4 || field == 5 || field == 7 || field == 9 || field == 10 || field == 11;
}

static bool put_bulk(scan *s, uint32_t field, uint64_t offset, uint64_t length, bool *seen) {
  if (length == 0)
    return true;
  if (*seen)
    return fail(s, offset, "a tensor whose data is in several pieces");
  *seen = true;
  cy_bulk bulk = {field, offset, length};
  uint8_t head[2] = {9 << 3 | 2, sizeof bulk};
  return put(s, head, 2) && put(s, &bulk, sizeof bulk);
}

static bool is_dropped(const ProtobufCMessageDescriptor *desc, const ProtobufCFieldDescriptor *f) {
  return !f || strcmp(f->name, "doc_string") == 0 ||
         (desc != &onnx__model_proto__descriptor && strcmp(f->name, "metadata_props") == 0);
}

static bool scan_message(scan *s, const ProtobufCMessageDescriptor *desc, uint64_t pos, uint64_t end, int depth) {
  if (depth > CY_MAX_PROTO_DEPTH)
    return fail(s, pos, "more than 160 levels of nested messages");
  bool is_tensor = desc == &onnx__tensor_proto__descriptor, has_bulk = false;
  while (pos < end) {
    uint64_t start = pos, tag, len = 0;
    if (!read_varint(s->bytes, &pos, end, &tag) || tag >> 3 == 0 || tag >> 3 > 0x1fffffff)
      return fail(s, start, "a bad field tag");
    switch (tag & 7) {
    case 0:
      if (!read_varint(s->bytes, &pos, end, &len))
        return fail(s, start, "a number that does not end");
      len = 0;
      break;
    case 1: len = 8; break;
    case 5: len = 4; break;
    case 2:
      if (!read_varint(s->bytes, &pos, end, &len))
        return fail(s, start, "a length that does not end");
      break;
    default: return fail(s, start, "an unknown wire type");
    }
    if (len > end - pos)
      return fail(s, start, "a field that goes beyond the end of its message");
    uint32_t id = (uint32_t)(tag >> 3);
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field(desc, id);
    uint64_t body = pos;
    pos += len;
    if (is_dropped(desc, f))
      continue;
    if ((tag & 7) == 2 && f->type == PROTOBUF_C_TYPE_MESSAGE) {
      uint8_t head[10], zero[5] = {0};
      size_t n = encode_varint(head, tag);
      if (!put(s, head, n) || !put(s, zero, 5))
        return false;
      size_t at = s->n - 5;
      if (!scan_message(s, f->descriptor, body, pos, depth + 1))
        return false;
      patch_length(s, at);
    } else if (is_tensor && (tag & 7) == 2 && is_bulk(id)) {
      if (!put_bulk(s, id, body, len, &has_bulk))
        return false;
    } else if (!put(s, s->bytes + start, (size_t)(pos - start))) {
      return false;
    }
  }
  return true;
}

static void *arena_alloc(void *arena, size_t n) { return cy_arena_alloc(arena, n ? n : 1); }
static void arena_free(void *arena, void *p) { (void)arena, (void)p; }

Onnx__ModelProto *cy_model_unpack(const cy_mapping *m, cy_arena *arena, cy_diag_sink *diag, const char *file) {
  scan s = {.bytes = m->bytes, .diag = diag, .where = {.file = file, .node_index = -1}};
  Onnx__ModelProto *model = NULL;
  if (scan_message(&s, &onnx__model_proto__descriptor, 0, m->size, 0)) {
    ProtobufCAllocator allocator = {arena_alloc, arena_free, arena};
    static const uint8_t nothing[1];
    model = onnx__model_proto__unpack(&allocator, s.n, s.out ? s.out : nothing);
    if (!model)
      cy_diag_add(diag, CY_ERROR, &s.where,
                  "not a valid ONNX model: a field has the wrong wire type; is this an ONNX file?");
  }
  free(s.out);
  return model;
}
