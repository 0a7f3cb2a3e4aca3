/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* tensor.c - facts about element types and shapes: one table of dtypes, overflow-checked sizes, shapes as text. */
#include "cyrt.h"

#include <stdio.h>
#include <string.h>

/* name, bits of an element, alignment of a pointer to elements. Of strings: those of a cyto_string. */
#define DTYPE_ROWS(X)                                                                                                  \
  X(CYTO_F32, "float32", 32, 4)                                                                                        \
  X(CYTO_U8, "uint8", 8, 1)                                                                                            \
  X(CYTO_I8, "int8", 8, 1)                                                                                             \
  X(CYTO_U16, "uint16", 16, 2)                                                                                         \
  X(CYTO_I16, "int16", 16, 2)                                                                                          \
  X(CYTO_I32, "int32", 32, 4)                                                                                          \
  X(CYTO_I64, "int64", 64, 8)                                                                                          \
  X(CYTO_STRING, "string", 128, 8)                                                                                     \
  X(CYTO_BOOL, "bool", 8, 1)                                                                                           \
  X(CYTO_F16, "float16", 16, 2)                                                                                        \
  X(CYTO_F64, "float64", 64, 8)                                                                                        \
  X(CYTO_U32, "uint32", 32, 4)                                                                                         \
  X(CYTO_U64, "uint64", 64, 8)                                                                                         \
  X(CYTO_C64, "complex64", 64, 4)                                                                                      \
  X(CYTO_C128, "complex128", 128, 8)                                                                                   \
  X(CYTO_BF16, "bfloat16", 16, 2)                                                                                      \
  X(CYTO_F8E4M3FN, "float8e4m3fn", 8, 1)                                                                               \
  X(CYTO_F8E4M3FNUZ, "float8e4m3fnuz", 8, 1)                                                                           \
  X(CYTO_F8E5M2, "float8e5m2", 8, 1)                                                                                   \
  X(CYTO_F8E5M2FNUZ, "float8e5m2fnuz", 8, 1)                                                                           \
  X(CYTO_U4, "uint4", 4, 1)                                                                                            \
  X(CYTO_I4, "int4", 4, 1)                                                                                             \
  X(CYTO_F4E2M1, "float4e2m1", 4, 1)                                                                                   \
  X(CYTO_F8E8M0, "float8e8m0", 8, 1)                                                                                   \
  X(CYTO_U2, "uint2", 2, 1)                                                                                            \
  X(CYTO_I2, "int2", 2, 1)                                                                                             \
  X(CYTO_F6E2M3, "float6e2m3", 8, 1)                                                                                   \
  X(CYTO_F6E3M2, "float6e3m2", 8, 1)

typedef struct dtype_row {
  char name[16]; /* no pointer, which would take a relocation in every library */
  int32_t bits;
  uint32_t align;
} dtype_row;

static const dtype_row dtypes[] = {
#define X(dtype, name, bits, align) [dtype] = {name, bits, align},
    DTYPE_ROWS(X)
#undef X
};

static const dtype_row *dtype_find(int32_t dtype) {
  static const dtype_row unknown = {"unknown", 0, 1};
  int known = dtype > 0 && (size_t)dtype < sizeof dtypes / sizeof dtypes[0] && dtypes[dtype].bits;
  return known ? &dtypes[dtype] : &unknown;
}

const cyto_type *cyrt_tensor_type(int32_t dtype) {
  static const cyto_type types[] = {
#define X(dtype, name, bits, align) [dtype] = {CYTO_TENSOR, dtype, NULL},
      DTYPE_ROWS(X)
#undef X
  };
  return &types[dtype_find(dtype)->bits ? dtype : 0];
}

const char *cyto_dtype_name(int32_t dtype) { return dtype_find(dtype)->name; }
int32_t cyto_dtype_bits(int32_t dtype) { return dtype_find(dtype)->bits; }
uint32_t cyrt_dtype_align(int32_t dtype) { return dtype_find(dtype)->align; }

int64_t cyrt_count(int32_t rank, const int64_t *dims) {
  int64_t count = 1;
  int empty = 0;
  for (int32_t i = 0; i < rank; i++) {
    if (dims[i] < 0)
      return -1;
    empty |= dims[i] == 0;
  }
  for (int32_t i = 0; i < rank && !empty; i++)
    if (__builtin_mul_overflow(count, dims[i], &count))
      return -1;
  return empty ? 0 : count;
}

int64_t cyto_tensor_bytes(int32_t dtype, int32_t rank, const int64_t *dims) {
  if (rank < 0 || (rank > 0 && !dims))
    return -1;
  int64_t count = cyrt_count(rank, dims), bits;
  if (count < 0 || __builtin_mul_overflow(count, (int64_t)cyto_dtype_bits(dtype), &bits) || bits > INT64_MAX - 7)
    return -1;
  return (bits + 7) / 8;
}

const char *cyrt_dims_text(int32_t rank, const int64_t *dims, const char *const *names, char text[CYRT_DIMS_TEXT]) {
  size_t used = 0;
  text[used++] = '[';
  for (int32_t i = 0; i < rank; i++) {
    const char *name = names && names[i] && names[i][0] ? names[i] : "?";
    int room = (int)(CYRT_DIMS_TEXT - 2 - used);
    int wrote = dims[i] >= 0 ? snprintf(text + used, (size_t)room, "%s%lld", i ? "," : "", (long long)dims[i])
                             : snprintf(text + used, (size_t)room, "%s%s", i ? "," : "", name);
    if (wrote < 0 || wrote >= room) /* names are the model's and may be of any length: cut there */
      break;
    used += (size_t)wrote;
  }
  strcpy(text + used, "]");
  return text;
}
