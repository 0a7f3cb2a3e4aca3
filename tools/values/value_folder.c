/* SPDX-License-Identifier: Apache-2.0 */
/* value_folder.c - values by number in folders, as reference runs and ONNX's test cases have them: see value_file.h. */
#define _GNU_SOURCE
#include "value_file.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

bool value_folder_find(const char *folder, bool output, int32_t k, char *path, size_t room) {
  char numbered[32], plain[32];
  DIR *dir = opendir(folder);
  bool found = false;
  snprintf(numbered, sizeof numbered, "%s_%d_", output ? "out" : "in", k);
  snprintf(plain, sizeof plain, "%s_%d.pb", output ? "output" : "input", k);
  for (struct dirent *entry; dir && !found && (entry = readdir(dir));) {
    const char *name = entry->d_name;
    bool is_value = file_ends_with(name, ".npy") || file_ends_with(name, ".pb") || file_ends_with(name, ".json");
    if ((is_value && !strncmp(name, numbered, strlen(numbered))) || !strcmp(name, plain))
      found = snprintf(path, room, "%s/%s", folder, name) < (int)room;
  }
  if (dir)
    closedir(dir);
  return found;
}

int value_folder_check(const char *folder, const cyto_model *model, char error[TENSOR_ERROR_SIZE]) {
  char path[PATH_MAX];
  DIR *dir = opendir(folder);
  if (!dir)
    return snprintf(error, TENSOR_ERROR_SIZE, "cannot read the folder '%s': %s", folder, strerror(errno)), -1;
  closedir(dir);
  for (int32_t i = 0; i < cyto_model_input_count(model); i++)
    if (value_folder_find(folder, false, i, path, sizeof path))
      return 0;
  snprintf(error, TENSOR_ERROR_SIZE, "the folder '%s' has no input of the model: expected in_0_*.npy, .json or .pb",
           folder);
  return -1;
}

int value_file_read(const char *path, const cyto_port *port, cyto_value *value, char error[TENSOR_ERROR_SIZE]) {
  host_tensor tensor = {0};
  if (file_ends_with(path, ".json"))
    return value_json_read(path, port->type, value, error);
  if (port->type->kind != CYTO_TENSOR)
    return value_pb_read(path, port->type, value, error);
  int failed = file_ends_with(path, ".pb") ? tensor_pb_read(path, &tensor, error) : npy_read(path, &tensor, error);
  if (!failed && !(failed = host_tensor_adapt(&tensor, port->dtype, error)))
    host_value_take(value, &tensor);
  return failed;
}
