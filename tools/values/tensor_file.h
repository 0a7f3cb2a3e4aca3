/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_file.h - tensors in files and in memory, for the command line tools: NumPy's .npy and ONNX's .pb
 * (TensorProto).
 *
 * A host_tensor owns its data (malloc), dense and row-major, in the runtime's layout (sub-byte elements packed). That
 * of strings is one block: the cyto_string elements, then their bytes, each with a zero behind it.
 * Functions that can fail return 0, or -1 with a text for people in `error`.
 */
#ifndef TENSOR_FILE_H
#define TENSOR_FILE_H

#include "runtime/cyto.h"

#include <stdbool.h>
#include <stdint.h>

enum { TENSOR_ERROR_SIZE = 512 };

/* Writes the message, cut to the room; -1. */
int tensor_fail(char error[TENSOR_ERROR_SIZE], const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A tensor's name as part of a file's name: every character outside [A-Za-z0-9._-] is '_', UTF-8 ones as a whole. Cut
 * to the room. */
void file_name_of(const char *name, char *out, size_t room);
bool file_ends_with(const char *path, const char *ending); /* ".npy" */

typedef struct host_tensor {
  int32_t dtype, rank;
  int64_t dims[CYTO_MAX_RANK];
  void *data;
  size_t bytes;
} host_tensor;

/* ---- npy.c: every dtype that numpy has, strings among them ('<U5', '|S5'; not object arrays). Those it lacks are stored by their bits: bfloat16 as uint16, float8 and float6 as uint8,
 * 2- and 4-bit integers an element per int8/uint8, float4 by its bits in uint8. Reading gives what the file says. ----
 */
int npy_read(const char *path, host_tensor *out_tensor, char error[TENSOR_ERROR_SIZE]);
/* The contents of such a file, called `path` in messages; the end of its header is overwritten. */
int npy_parse(const char *path, uint8_t *file, size_t bytes, host_tensor *out_tensor, char error[TENSOR_ERROR_SIZE]);
int npy_write(const char *path, const host_tensor *tensor, char error[TENSOR_ERROR_SIZE]);

/* ---- tensor_pb.c: all dtypes, raw or typed data; no external data ---- */
int tensor_pb_read(const char *path, host_tensor *out_tensor, char error[TENSOR_ERROR_SIZE]);
int tensor_pb_write(const char *path, const char *name, const host_tensor *tensor, char error[TENSOR_ERROR_SIZE]);

/* ---- tensor_value.c ---- */
/* Allocates zeroed data for dtype, rank and dims that are set. */
int host_tensor_alloc(host_tensor *tensor, char error[TENSOR_ERROR_SIZE]);
/* The same for strings, with room for `bytes` bytes of text; elements are set one after the other, from the first on. */
int host_strings_alloc(host_tensor *tensor, size_t bytes, char error[TENSOR_ERROR_SIZE]);
void host_strings_set(host_tensor *tensor, int64_t i, const void *text, size_t length);
void host_tensor_free(host_tensor *tensor);
int64_t host_tensor_count(const host_tensor *tensor);
/* Element i as a number (of a complex one the real part). */
double host_tensor_get(const host_tensor *tensor, int64_t i);
/* Makes element i this number: of integers what is below it, of halves what is nearest. Types of numbers with a byte or more
 * that are not float8. */
void host_tensor_set(host_tensor *tensor, int64_t i, double v);
/* Fills with reproducible numbers: floats in [-1, 1), bytes of all values, wider integers in [0, 10). */
void host_tensor_randomize(host_tensor *tensor, uint64_t *state);
/* Takes what npy_read() gave for an input of `dtype` where numpy had no such dtype: reinterprets or packs. Other dtypes
 * stay, for the caller to compare. */
int host_tensor_adapt(host_tensor *tensor, int32_t dtype, char error[TENSOR_ERROR_SIZE]);
/* The whole file, malloc'ed. */
int file_read(const char *path, uint8_t **out_data, size_t *out_bytes, char error[TENSOR_ERROR_SIZE]);

#endif
