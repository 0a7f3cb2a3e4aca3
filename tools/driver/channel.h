/* SPDX-License-Identifier: Apache-2.0 */
/* channel.h - what a job in the caller's process and its worker say to each other.
 *
 * A message is a head of plain numbers and some texts behind it, each with its 0. Both ends are the same program.
 */
#ifndef CYTOC_CHANNEL_H
#define CYTOC_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum channel_kind {
  CHANNEL_PROGRESS,   /* number: done, total; text: stage */
  CHANNEL_DIAGNOSTIC, /* number: severity, node_index; text: file, graph, node, op, item, text, line */
  CHANNEL_EXTERNAL,   /* number: offset, length; text: location. Wants an answer: */
  CHANNEL_DATA,       /* number: 0 or what the callback returned, place in the file of external data, size */
  CHANNEL_DONE        /* number: cytoc_status. The last one. */
} channel_kind;

enum { CHANNEL_NUMBERS = 3, CHANNEL_TEXTS = 7 };

typedef struct channel_head {
  uint32_t kind, bytes; /* of the texts */
  int64_t number[CHANNEL_NUMBERS];
} channel_head;

typedef struct channel_message {
  channel_head head;
  char *bytes; /* all texts; free() it */
  const char *text[CHANNEL_TEXTS];
} channel_message;

/* False: the other end is gone. No signal. text: n of them. */
bool channel_send(int socket, channel_kind kind, const int64_t number[CHANNEL_NUMBERS], const char *const *text, int n);
/* False: the other end is gone, or *out_no_memory. free(out->bytes). */
bool channel_receive(int socket, channel_message *out, bool *out_no_memory);

#endif
