/* SPDX-License-Identifier: Apache-2.0 */
/* channel.c - messages over a pair of sockets; see channel.h. */
#include "channel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

static bool send_all(int socket, const void *bytes, size_t n) {
  for (const char *p = bytes; n;) {
    ssize_t sent = send(socket, p, n, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR)
      continue;
    if (sent <= 0)
      return false;
    p += sent;
    n -= (size_t)sent;
  }
  return true;
}

static bool receive_all(int socket, void *bytes, size_t n) {
  for (char *p = bytes; n;) {
    ssize_t got = recv(socket, p, n, 0);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return false;
    p += got;
    n -= (size_t)got;
  }
  return true;
}

bool channel_send(int socket, channel_kind kind, const int64_t number[CHANNEL_NUMBERS], const char *const *text,
                  int n) {
  channel_head head = {.kind = (uint32_t)kind};
  memcpy(head.number, number, sizeof head.number);
  for (int i = 0; i < n; i++)
    head.bytes += (uint32_t)strlen(text[i]) + 1;
  bool ok = send_all(socket, &head, sizeof head);
  for (int i = 0; ok && i < n; i++)
    ok = send_all(socket, text[i], strlen(text[i]) + 1);
  return ok;
}

bool channel_receive(int socket, channel_message *out, bool *out_no_memory) {
  *out = (channel_message){0};
  *out_no_memory = false;
  if (!receive_all(socket, &out->head, sizeof out->head))
    return false;
  out->bytes = malloc(out->head.bytes + 1);
  *out_no_memory = !out->bytes;
  if (!out->bytes || !receive_all(socket, out->bytes, out->head.bytes)) {
    free(out->bytes);
    out->bytes = NULL;
    return false;
  }
  out->bytes[out->head.bytes] = 0;
  const char *p = out->bytes, *end = p + out->head.bytes;
  for (int i = 0; i < CHANNEL_TEXTS; i++) {
    out->text[i] = p < end ? p : end;
    p += p < end ? strlen(p) + 1 : 0;
  }
  return true;
}
