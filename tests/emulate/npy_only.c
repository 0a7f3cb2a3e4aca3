/* SPDX-License-Identifier: Apache-2.0 */
/* npy_only.c - in place of what cyto-run reads and writes by libraries: .npy files do where these are not at hand, that is
 * on other architectures. See value_file.h.
 */
#include "tools/run_json.h"
#include "tools/values/value_file.h"

#include <stdio.h>

static int no_library(const char *path, char error[TENSOR_ERROR_SIZE]) {
  snprintf(error, TENSOR_ERROR_SIZE, "'%s': this cyto-run knows .npy only", path);
  return -1;
}

int value_pb_read(const char *path, const cyto_type *type, cyto_value *out_value, char error[TENSOR_ERROR_SIZE]) {
  (void)type, (void)out_value;
  return no_library(path, error);
}

int value_json_read(const char *path, const cyto_type *type, cyto_value *out_value, char error[TENSOR_ERROR_SIZE]) {
  (void)type, (void)out_value;
  return no_library(path, error);
}

int value_json_write(const char *path, const cyto_value *value, char error[TENSOR_ERROR_SIZE]) {
  (void)value;
  return no_library(path, error);
}

int tensor_pb_read(const char *path, host_tensor *out_tensor, char error[TENSOR_ERROR_SIZE]) {
  (void)out_tensor;
  return no_library(path, error);
}

int tensor_pb_write(const char *path, const char *name, const host_tensor *tensor, char error[TENSOR_ERROR_SIZE]) {
  (void)name, (void)tensor;
  return no_library(path, error);
}

int run_json_write(const char *path, const run_report *report, char error[TENSOR_ERROR_SIZE]) {
  (void)report;
  return no_library(path, error);
}
