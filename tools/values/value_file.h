/* SPDX-License-Identifier: Apache-2.0 */
/* value_file.h - values of every kind in files and in memory, for the command line tools: ONNX's .pb (TensorProto,
 * SequenceProto, OptionalProto, MapProto) and JSON.
 *
 * A host value is a tree of cyto_value that owns everything in it (malloc). The JSON that cyto-run reads and writes:
 *
 * - a tensor: {"dtype":"string","shape":[2],"data":["a","b"]}. Elements are flat in row-major order, types are called
 *   as ONNX calls them ("float", "double", "int64", "bool" ..); NaN, Infinity, -Infinity and uint64 from 2^63 on are
 *   strings.
 * - a sequence: {"sequence":[..]}; a map: {"map":[keys, values]}, two tensors.
 * - an optional: {"optional":value}, or {"optional":null}.
 *
 * Functions that can fail return 0, or -1 with a text for people in `error`.
 */
#ifndef VALUE_FILE_H
#define VALUE_FILE_H

#include "tensor_file.h"

#include <stdio.h>

/* Reads a value of this type. */
int value_pb_read(const char *path, const cyto_type *type, cyto_value *out_value, char error[TENSOR_ERROR_SIZE]);
int value_json_read(const char *path, const cyto_type *type, cyto_value *out_value, char error[TENSOR_ERROR_SIZE]);
int value_json_write(const char *path, const cyto_value *value, char error[TENSOR_ERROR_SIZE]);
void host_value_free(cyto_value *value);

/* The file of a folder that holds input (or output) number k: in_K_*.npy, .json or .pb, or input_K.pb of an ONNX test case;
 * out_K_*, output_K.pb. False: there is none. */
bool value_folder_find(const char *folder, bool output, int32_t k, char *path, size_t room);
/* Can the folder be read, and has it an input of the model? */
int value_folder_check(const char *folder, const cyto_model *model, char error[TENSOR_ERROR_SIZE]);
/* A file of any of these kinds, for a port. */
int value_file_read(const char *path, const cyto_port *port, cyto_value *value, char error[TENSOR_ERROR_SIZE]);

/* Files that processes of one machine hand each other, one value behind the other. A tensor without a dtype is a value that
 * is absent. False: errno says why. Reading: 0, or -1 with a text. */
bool value_stream_write(FILE *f, const cyto_value *value);
int value_stream_read(FILE *f, cyto_value *out_value, char error[TENSOR_ERROR_SIZE]);

/* "seq(map(int64,float32))" */
void type_text(const cyto_type *type, char *out_text, size_t size);

/* ---- for the files above ---- */
/* Room for `count` items, each of which is freed even when it was never filled. */
int host_value_items(cyto_value *value, uint64_t count, char error[TENSOR_ERROR_SIZE]);
void host_value_take(cyto_value *value, const host_tensor *tensor);

#endif
