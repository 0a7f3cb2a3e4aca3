/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* error.c - filling the caller's cyto_error.
 *
 * The struct is the caller's and may be missing, so failing never allocates. Generated code uses cyrt_fail(), which
 * also survives a frame without an error struct; everything else in the runtime uses cyrt_error_set().
 */
#include "cyrt.h"

#include <stdio.h>

const char *cyto_status_name(int32_t status) {
  switch (status) {
#define X(name, number, text)                                                                                          \
  case number:                                                                                                         \
    return text;
    CYTO_STATUS_ROWS(X)
#undef X
  default:
    return "unknown status";
  }
}

static void error_fill(cyto_error *error, int32_t code, const char *format, va_list args) {
  if (!error)
    return;
  error->code = code;
  if (vsnprintf(error->message, sizeof error->message, format, args) < 0)
    error->message[0] = 0;
}

cyto_status cyrt_error_set(cyto_error *error, cyto_status code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  error_fill(error, code, format, args);
  va_end(args);
  return code;
}

cyto_status cyrt_error_null(cyto_error *error, const char *what) {
  return cyrt_error_set(error, CYTO_INVALID_ARGUMENT, "%s", what);
}

void cyrt_error_clear(cyto_error *error) {
  if (!error)
    return;
  error->code = CYTO_OK;
  error->message[0] = 0;
}

int32_t cyrt_fail(cyrt_frame *frame, int32_t code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  error_fill(frame->error, code, format, args);
  va_end(args);
  return code;
}

int32_t cyrt_fail_at(cyrt_frame *frame, int32_t code, const char *node) {
  char text[sizeof frame->error->message];
  if (!code || !frame->error)
    return code;
  snprintf(text, sizeof text, "%s", frame->error->message);
  return cyrt_fail(frame, code, "node '%s': %s", node, text);
}
